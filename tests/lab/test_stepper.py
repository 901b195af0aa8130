"""The stepper as its user has it: clicks, what is seen after them, what a cell may do beside."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import answer, make_client, make_config, make_simulation, policy, verdict

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import BackendError, ConfigError, LabError, LLMFailureException
from llmsim_lab.lab import TurnStepper
from llmsim_lab.lab._stepper import Playing
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.run import replay
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import ChatReply, ChatRequest, OnText


def ruled(**config: Any) -> Simulation:
    return Simulation(make_config(**config))


class Gate:
    """Lets a model answer only when told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = asyncio.Event()

    async def answer(self, request: ChatRequest) -> Any:
        self.asked.set()
        await self.open.wait()
        return answer(request)


def failing_once(at_turn: int) -> Callable[[ChatRequest], Any]:
    """Answer sensibly, but fail a turn's first call for good, once."""
    left = [BackendError("no model here", reason="model_not_found")]

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.turn == at_turn and left:
            raise left.pop()
        return answer(request)

    return reply


# Stepping and playing


async def test_a_click_plays_one_turn_and_shows_it() -> None:
    stepper = TurnStepper(make_simulation(names=("Aland",)))
    assert "Initial state" in stepper.heading.value
    assert (stepper.step_button.disabled, stepper.stop_button.disabled) == (False, True)
    stepper.step_button.click()
    await stepper.idle()
    assert stepper.simulation.turn_number == stepper.shown == 1
    assert "<strong>Turn 1</strong> of 1" in stepper.heading.value
    assert "3 ok" in stepper.heading.value
    assert "Policy rate" in stepper.state.value
    assert re.search(r"text-align:right[^>]*>\+0\.25<", stepper.state.value)
    assert "Aland sees turn 1." in stepper.decisions.value
    assert "Turn 1 is played." in stepper.status.value


async def test_play_plays_as_many_turns_as_the_box_says() -> None:
    stepper = TurnStepper(ruled())
    stepper.turns_box.value = 3
    stepper.play_button.click()
    await stepper.idle()
    assert stepper.simulation.turn_number == stepper.shown == stepper.turn_box.value == 3
    assert stepper.progress.value == ""


async def test_a_click_that_overtakes_the_number_of_turns_plays_that_number() -> None:
    stepper = TurnStepper(ruled())
    stepper.play_button.click()
    stepper.turns_box.value = 2
    await stepper.idle()
    assert stepper.simulation.turn_number == 2


async def test_a_step_past_the_end_of_a_recorded_run_names_the_ways_out() -> None:
    stepper = TurnStepper(data_path("tapes/first_run.tape"), run=1)
    stepper.step_button.click()
    await stepper.idle()
    assert "run 1 ends at turn 8; turn 9 was not recorded" in stepper.error.value
    assert "fork(llm_client=connect(&#39;auto&#39;))" in stepper.error.value
    assert "Fork here" in stepper.error.value


def test_decisions_that_nobody_was_asked_the_confidence_of_say_so() -> None:
    stepper = TurnStepper(data_path("tapes/social.tape"))
    assert "confidence not asked" in stepper.decisions.value
    assert "None" not in stepper.decisions.value


async def test_a_double_click_plays_one_turn() -> None:
    gate = Gate()
    stepper = TurnStepper(make_simulation(gate.answer))
    stepper.step_button.click()
    stepper.step_button.click()
    stepper.play_button.click()
    await gate.asked.wait()
    assert stepper.step_button.disabled
    assert not stepper.stop_button.disabled
    gate.open.set()
    await stepper.idle()
    assert stepper.simulation.turn_number == 1
    assert not stepper.step_button.disabled
    assert stepper.stop_button.disabled


async def test_pause_finishes_the_turn_under_way_and_stops_then() -> None:
    gate = Gate()
    stepper = TurnStepper(make_simulation(gate.answer))
    stepper.play_button.click()
    await gate.asked.wait()
    stepper.pause_button.click()
    assert "finished first" in stepper.status.value
    gate.open.set()
    await stepper.idle()
    assert stepper.simulation.turn_number == 1
    assert "Paused after turn 1; 3 of 4 turns were not played." in stepper.status.value


async def test_stop_leaves_the_last_whole_turn_and_the_next_step_continues() -> None:
    gate = Gate()
    gate.open.set()
    stepper = TurnStepper(make_simulation(gate.answer))
    await stepper.step()
    gate.open.clear()
    gate.asked.clear()
    stepper.play_button.click()
    await gate.asked.wait()
    stepper.stop_button.click()
    await stepper.idle()
    assert stepper.simulation.turn_number == 1
    assert "Stopped. The run is at turn 1" in stepper.status.value
    assert stepper.error.value == ""
    gate.open.set()
    stepper.step_button.click()
    await stepper.idle()
    assert stepper.simulation.turn_number == 2


async def test_a_failure_is_shown_in_place_and_trying_again_plays_what_is_left() -> None:
    stepper = TurnStepper(make_simulation(failing_once(at_turn=2)))
    stepper.turns_box.value = 3
    stepper.play_button.click()
    await stepper.idle()
    assert stepper.simulation.turn_number == 1
    assert 'role="alert"' in stepper.error.value
    assert "no model here" in stepper.error.value
    assert stepper.retry.layout.display == ""
    stepper.retry.click()
    await stepper.idle()
    assert stepper.simulation.turn_number == 3
    assert stepper.error.value == ""
    assert stepper.retry.layout.display == "none"


async def test_while_a_turn_is_played_the_screen_says_how_far_it_is() -> None:
    gate = Gate()
    stepper = TurnStepper(make_simulation(gate.answer))
    stepper.tick_s = 0.001
    stepper.turns_box.value = 2
    seen: list[str] = []
    stepper.progress.observe(lambda change: seen.append(change["new"]), names="value")
    stepper.play_button.click()
    await gate.asked.wait()
    await asyncio.sleep(0.02)
    assert "Playing turn 1, 1 of 2." in stepper.status.value
    assert '<progress value="0" max="2" aria-label="Turns played">' in stepper.progress.value
    assert "waiting 0 s for agent of Aland" in stepper.progress.value
    gate.open.set()
    await stepper.idle()
    assert any('<progress value="1"' in text for text in seen)


class Writing:
    """A model that writes its answer in as many pieces as it is let."""

    streams = "always"

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        assert on_text is not None
        while piece := await self.pieces.get():
            on_text(piece)
        return ChatReply(text=self.text)


def asking(backend: Writing) -> Simulation:
    """Return a run of one nation that asks this model."""
    client = LLMClient(LLMConfig(model="m", max_concurrency=1), backend)
    return Simulation(SimulationConfig(nations=("Aland",)), llm_client=client)


async def test_what_is_being_written_is_seen_to_grow_and_does_nothing_to_the_page() -> None:
    backend = Writing(policy().model_dump_json())
    stepper = TurnStepper(asking(backend))
    stepper.tick_s = 0.01
    shown: list[str] = []
    stepper.progress.observe(lambda change: shown.append(change["new"]), names="value")

    async def shows(text: str) -> None:
        async with asyncio.timeout(20):
            while text not in stepper.progress.value:  # noqa: ASYNC110 - what the user sees
                await asyncio.sleep(0.005)

    stepper.step_button.click()
    backend.pieces.put_nowait("Prices <script>alert(1)</script> rise")
    await shows("Prices &lt;script&gt;alert(1)&lt;/script&gt; rise</pre>")
    backend.pieces.put_nowait(" \x1b[31mfast.")
    await shows("rise ␛[31mfast.</pre>")
    backend.pieces.put_nowait("so " * 400)
    await shows(">… so so so ")
    assert not any("<script>" in text for text in shown)
    stepper.stop()
    await stepper.idle()
    assert stepper.progress.value == ""


async def test_growing_text_is_shown_a_few_times_a_second_and_else_at_each_tick() -> None:
    ticks: list[int] = []
    backend = Writing(policy().model_dump_json())
    playing = Playing(
        asking(backend),
        1,
        on_tick=lambda play: ticks.append(play.calls.pieces),
        on_turn=lambda _: None,
        tick_s=60,
    )
    task = asyncio.create_task(playing())
    for _ in range(60):
        backend.pieces.put_nowait("word ")
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ticks[0] == 0
    assert 2 <= len(ticks) < 8  # of sixty pieces
    assert ticks == sorted(set(ticks))


# From a cell


async def test_a_cell_gets_the_turns_it_played() -> None:
    stepper = TurnStepper(ruled())
    turn = await stepper.step()
    turns = await stepper.play(2)
    assert [turn.number, *(turn.number for turn in turns)] == [1, 2, 3]
    assert stepper.shown == 3


async def test_a_cell_gets_the_failure_which_is_shown_too() -> None:
    stepper = TurnStepper(make_simulation(failing_once(at_turn=2)))
    with pytest.raises(LLMFailureException, match="no model here"):
        await stepper.play(3)
    assert "no model here" in stepper.error.value
    assert stepper.simulation.turn_number == 1


async def test_interrupting_a_cell_leaves_the_last_whole_turn_and_a_ready_stepper() -> None:
    gate = Gate()
    stepper = TurnStepper(make_simulation(gate.answer))
    cell = asyncio.create_task(stepper.play(3))
    await gate.asked.wait()
    cell.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cell
    assert stepper.simulation.turn_number == 0
    assert not stepper.step_button.disabled
    gate.open.set()
    assert (await stepper.step()).number == 1


async def test_a_step_that_is_stopped_by_the_button_is_told_to_the_cell() -> None:
    gate = Gate()
    stepper = TurnStepper(make_simulation(gate.answer))
    cell = asyncio.create_task(stepper.step())
    await gate.asked.wait()
    stepper.stop_button.click()
    with pytest.raises(LabError, match="the step was stopped; the run is at turn 0"):
        await cell


async def test_a_cell_that_waits_for_clicked_work_may_be_interrupted_without_harm() -> None:
    gate = Gate()
    stepper = TurnStepper(make_simulation(gate.answer))
    stepper.step_button.click()
    waiting = asyncio.create_task(stepper.idle())
    await gate.asked.wait()
    waiting.cancel()
    gate.open.set()
    await stepper.idle()
    assert stepper.simulation.turn_number == 1


async def test_playing_twice_at_once_is_refused() -> None:
    gate = Gate()
    stepper = TurnStepper(make_simulation(gate.answer))
    stepper.step_button.click()
    with pytest.raises(ConfigError, match="at work"):
        await stepper.step()
    with pytest.raises(ConfigError, match="has to wait"):
        stepper.fork()
    gate.open.set()
    await stepper.idle()


@pytest.mark.parametrize("turns", [0, -1, 1.5, True, 100_001])
async def test_a_wrong_number_of_turns_is_refused(turns: Any) -> None:
    with pytest.raises(ConfigError, match="1 to 100,000"):
        await TurnStepper(ruled()).play(turns)


async def test_a_run_that_a_cell_steps_is_followed() -> None:
    stepper = TurnStepper(ruled())
    await stepper.simulation.step()
    await asyncio.sleep(0)
    assert stepper.shown == stepper.turn_box.max == 1
    stepper.show(0)
    await stepper.simulation.arun(2)
    assert stepper.shown == 0
    assert stepper.turn_box.max == 3


async def test_a_run_that_a_cell_plays_at_once_is_followed_from_the_other_thread() -> None:
    stepper = TurnStepper(ruled())
    stepper.simulation.run(3)
    await asyncio.sleep(0)
    assert "<strong>Turn 3</strong> of 3" in stepper.heading.value


async def test_only_the_run_that_is_shown_is_followed_and_none_after_closing() -> None:
    simulation = ruled()
    stepper = TurnStepper(simulation)
    fork = stepper.fork()
    seen: list[int] = []
    stepper.on_change(lambda it: seen.append(it.shown))
    await simulation.step()
    await fork.step()
    await asyncio.sleep(0)
    stepper.close()
    await fork.step()
    await asyncio.sleep(0)
    assert seen == [1]


def test_a_stepper_that_was_closed_and_its_run_take_no_memory() -> None:
    stepper = TurnStepper(ruled())
    kept = weakref.ref(stepper), weakref.ref(stepper.simulation)
    stepper.close()
    del stepper
    gc.collect()
    assert [one() for one in kept] == [None, None]


def test_without_an_event_loop_it_works_on_the_background_loop() -> None:
    stepper = TurnStepper(ruled())
    stepper.step_button.click()
    asyncio.run(stepper.idle())
    assert stepper.simulation.turn_number == 1


# Back and forth


async def test_back_and_forth_through_the_turns() -> None:
    stepper = TurnStepper(ruled())
    await stepper.play(3)
    seen = []
    stepper.slider.value = 0
    seen.append(stepper.shown)
    for part in (stepper.next_button, stepper.previous_button):
        part.click()
        seen.append(stepper.shown)
    stepper.previous_button.click()
    seen.append(stepper.shown)
    stepper.turn_box.value = 2
    seen.append(stepper.shown)
    stepper.latest_button.click()
    stepper.next_button.click()
    seen.append(stepper.shown)
    assert seen == [0, 1, 0, 0, 2, 3]
    assert "<strong>Turn 3</strong> of 3" in stepper.heading.value


async def test_who_looks_at_an_earlier_turn_stays_there_while_turns_are_played() -> None:
    stepper = TurnStepper(ruled())
    await stepper.play(2)
    stepper.show(1)
    await stepper.step()
    assert stepper.shown == 1
    assert stepper.turn_box.max == 3


def test_a_turn_that_is_not_there_cannot_be_shown() -> None:
    with pytest.raises(ConfigError, match="the run has no turn 5; it has turns 0 to 0"):
        TurnStepper(ruled()).show(5)


async def test_what_was_done_from_outside_is_shown_at_its_turn() -> None:
    simulation = ruled()
    simulation.intervene(1, shock={"supply": 2}, note="dear <oil>")
    stepper = TurnStepper(simulation)
    assert stepper.interventions.value == ""
    await stepper.step()
    assert "supply shock +2 (dear &lt;oil&gt;)" in stepper.interventions.value
    assert "from outside: turn 1: supply shock +2" in stepper.static_text()


# Forks


async def test_a_fork_continues_from_the_turn_shown_and_its_parent_stays_in_reach() -> None:
    simulation = ruled()
    stepper = TurnStepper(simulation)
    await stepper.play(3)
    stepper.show(2)
    stepper.fork_button.click()
    await stepper.idle()
    [fork] = stepper.forks
    assert stepper.simulation is fork
    assert fork.turn_number == stepper.shown == 2
    assert "fork 1 of the original at turn 2" in stepper.heading.value
    stepper.step_button.click()
    await stepper.idle()
    assert (fork.turn_number, simulation.turn_number) == (3, 3)
    stepper.run_box.value = 0
    assert stepper.simulation is simulation
    assert stepper.shown == 3
    assert [label for label, _ in stepper.run_box.options] == [
        "economy",
        "economy, fork 1 of the original at turn 2",
    ]


async def test_a_fork_of_a_fork_says_where_it_came_from() -> None:
    stepper = TurnStepper(ruled())
    await stepper.step()
    stepper.fork(0)
    await stepper.step()
    stepper.fork()
    assert "fork 2 of fork 1 at turn 1" in stepper.heading.value


async def test_a_fork_that_is_refused_for_another_reason_says_just_that() -> None:
    with pytest.raises(ConfigError) as caught:
        TurnStepper(ruled()).fork(0, intervene=[{"turn": 1, "set": {"gravity": 1}}])
    assert "gravity" in str(caught.value)
    assert "TurnStepper" not in str(caught.value)


async def test_what_a_fork_changes_is_passed_on() -> None:
    stepper = TurnStepper(ruled())
    await stepper.play(2)
    fork = stepper.fork(1, intervene=[{"turn": 2, "set": {"inflation": 9}}])
    await stepper.step()
    assert fork.state.global_state.inflation == 9
    with pytest.raises(ConfigError, match="turn 7 cannot be forked from"):
        stepper.fork(7)


async def test_a_recorded_run_without_a_model_says_how_to_fork_it() -> None:
    stepper = TurnStepper(data_path("tapes/first_run.tape"), run=1)
    assert stepper.shown == 8
    stepper.fork_button.click()
    await stepper.idle()
    assert "TurnStepper(..., llm_client=connect(&#39;auto&#39;))" in stepper.error.value
    assert stepper.forks == []


async def test_a_recorded_run_continues_live_with_a_model(tmp_path: Path) -> None:
    path = tmp_path / "copy.tape"
    path.write_bytes(data_path("tapes/first_run.tape").read_bytes())
    tape = Tape(path)
    stepper = TurnStepper(tape, run=1, llm_client=make_client())
    stepper.show(3)
    stepper.fork_button.click()
    await stepper.idle()
    stepper.step_button.click()
    await stepper.idle()
    assert stepper.error.value == ""
    assert "run 4 on its tape" in stepper.heading.value
    assert tape.run(4).fork_turn == 3
    assert tape.run(4).turns == 4


async def test_a_fork_of_a_tape_that_is_only_read_says_that_it_is_not_recorded() -> None:
    stepper = TurnStepper(data_path("tapes/first_run.tape"), run=1, llm_client=make_client())
    stepper.fork_button.click()
    await stepper.idle()
    assert "It is not recorded: the tape" in stepper.status.value
    assert "not recorded" in stepper.heading.value
    assert (await stepper.step()).number == 9


async def test_a_recorded_run_at_its_end_says_so_and_stays() -> None:
    stepper = TurnStepper(data_path("tapes/first_run.tape"), run=1)
    stepper.step_button.click()
    await stepper.idle()
    assert "turn 9 was not recorded" in stepper.error.value
    assert stepper.simulation.turn_number == 8


async def test_a_replay_can_be_stepped() -> None:
    again = replay(data_path("tapes/first_run.tape"), 1, turns=0)
    stepper = TurnStepper(again)
    await stepper.play(8)
    loaded = TurnStepper(data_path("tapes/first_run.tape"), run=1)
    assert stepper.static_text() == loaded.static_text()
    assert str(stepper.static_html()) == str(loaded.static_html())


# Others who listen


async def test_others_hear_of_turns_and_of_what_is_shown() -> None:
    stepper = TurnStepper(ruled())
    turns: list[int] = []
    shown: list[int] = []
    stepper.on_turn(lambda turn: turns.append(turn.number))
    stepper.on_change(lambda it: shown.append(it.shown))
    await stepper.play(2)
    stepper.previous_button.click()
    stepper.fork()
    assert turns == [1, 2]
    assert shown == [1, 2, 1, 1]


async def test_a_listener_that_fails_is_shown_and_the_turn_kept() -> None:
    stepper = TurnStepper(ruled())
    stepper.on_turn(lambda _: 1 / 0)
    stepper.step_button.click()
    await stepper.idle()
    assert "ZeroDivisionError" in stepper.error.value
    assert stepper.simulation.turn_number == 1


def test_a_listener_that_fails_when_something_else_is_shown_is_shown_too() -> None:
    stepper = TurnStepper(ruled())
    stepper.on_change(lambda _: 1 / 0)
    stepper.refresh()
    assert "ZeroDivisionError" in stepper.error.value


# What is on the screen

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)></style></pre>"
    "\x1b[31mred\u202edesrever" + "x" * 100_000
)


async def test_hostile_text_is_shown_and_does_nothing() -> None:
    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "agent":
            return policy(HOSTILE, reasoning=HOSTILE)
        return (
            verdict(reasoning=HOSTILE) if request.site.component == "validator" else answer(request)
        )

    stepper = TurnStepper(make_simulation(reply, names=("<b>Aland</b>",)))
    await stepper.step()
    seen = stepper.decisions.value + str(stepper.static_html())
    assert "<script" not in seen
    assert "<img" not in seen
    assert "<b>" not in seen
    assert "</style>" not in seen
    assert "\x1b" not in seen + stepper.static_text()
    assert "\u202e" not in seen + stepper.static_text()
    assert "&lt;script&gt;alert(1)" in seen
    assert len(stepper.decisions.value) < 60_000


async def test_many_agents_come_in_pages() -> None:
    names = [{"name": f"Nation {number}", "kind": "taylor"} for number in range(25)]
    stepper = TurnStepper(ruled(nations=names, committee="sequential"))
    await stepper.step()
    assert "Decisions of agents 1 to 10 of 25" in stepper.decisions.value
    assert "Nation 10" not in stepper.decisions.value
    stepper.agents_box.value = 2
    assert "Decisions of agents 21 to 25 of 25" in stepper.decisions.value
    assert "… and 15 more agents" in stepper.static_text()
    stepper.slider.value = 0
    assert "Nobody has decided anything yet." in stepper.decisions.value


async def test_what_is_sent_to_the_screen_does_not_grow_with_the_turns() -> None:
    stepper = TurnStepper(ruled())

    def size() -> int:
        return sum(len(part.value) for part in (stepper.heading, stepper.state, stepper.decisions))

    await stepper.play(2)
    early = size()
    await stepper.play(300)
    assert size() < early + 50


async def test_the_static_view_is_the_same_for_the_same_run_and_reads_without_a_widget() -> None:
    views = []
    for _ in range(2):
        stepper = TurnStepper(make_simulation(names=("Aland",)))
        await stepper.step()
        views.append(stepper._repr_mimebundle_())
    assert views[0]["text/plain"] == views[1]["text/plain"]
    assert views[0]["text/html"] == views[1]["text/html"]
    assert views[0]["text/plain"].splitlines()[:3] == [
        "TurnStepper of economy, at turn 1",
        "Turn 1 · model decisions: 3 ok",
        "  Policy rate (% per year): 4.25 (+0.25)",
    ]


async def test_a_failed_call_is_named_with_its_status() -> None:
    stepper = TurnStepper(make_simulation("no JSON at all"))
    stepper.step_button.click()
    await stepper.idle()
    assert LLMFailureException.__name__ in stepper.error.value
    assert "invalid_response" in stepper.error.value
