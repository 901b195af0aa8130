"""The seat as a person has it: what is shown, the form, the wait, several people at one table."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import make_client, requests_of

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import ConfigError, EconomyError
from llmsim_lab.lab import HumanSeat, TurnStepper
from llmsim_lab.lab._fields import AnswerForm
from llmsim_lab.run import load, replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._scores import advice_asked

pytestmark = pytest.mark.usefixtures("undrawn")
RAISE: dict[str, Any] = {
    "action": "Raise the policy rate",
    "reasoning": "Prices rise.",
    "confidence": 0.8,
}
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)></style>\x1b[31m\u202etfel" + "x" * 1_000
)


def table_of(*names: str, **fields: Any) -> Simulation:
    """A run of people; one of Aland if nobody is named."""
    nations = names or ("Aland",)
    players = dict.fromkeys(nations, "person")
    return Simulation(
        **{"start_at": "1979Q3", "turns": 3, "players": players} | fields, nations=nations
    )


@contextmanager
def seated(simulation: Simulation, **more: Any) -> Iterator[HumanSeat]:
    """A seat that is taken away afterwards."""
    seat = HumanSeat(simulation, **more)
    try:
        yield seat
    finally:
        seat.close()


@asynccontextmanager
async def asked_at(simulation: Simulation, **more: Any) -> AsyncIterator[HumanSeat]:
    """A seat whose turn was begun with a click and waits; it is stopped afterwards."""
    with seated(simulation, **more) as seat:
        seat.step_button.click()
        await seat.asked()
        yield seat
        seat.stop_button.click()
        await seat.idle()


async def settled(seat: HumanSeat) -> None:
    """Let what an answer sets off happen."""
    await seat.sent()
    for _ in range(20):
        await asyncio.sleep(0)


# What is shown


async def test_before_a_turn_the_seat_says_how_to_begin() -> None:
    with seated(table_of()) as seat:
        assert "0 of 3 turns are played. Your answer plays turn 1." in seat.status.value
        assert ">11.09 %</div></div><div>over four quarters" in seat.facts.value
        assert "The term begins: inflation 11.1 %" in seat.facts.value
        assert not seat.forms["Aland"].answer_button.disabled
        assert "Mandate: stable prices" in seat.prompt.value


def test_the_path_so_far_is_seen_and_no_more_of_the_run() -> None:
    with seated(table_of()) as seat:
        assert seat.chart.panels == ["overview"]
        assert (
            "Interest rate" in seat.chart.static_text() or "Policy rate" in seat.chart.static_text()
        )


async def test_the_person_sees_the_prompt_by_role_and_is_told_it_is_their_turn() -> None:
    async with asked_at(table_of()) as seat:
        assert "It is your turn to answer. Turn 1 waits for: Aland." in seat.status.value
        assert "(system message)" in seat.prompt.value
        assert "Mandate: stable prices" in seat.prompt.value
        assert "(user message)" in seat.prompt.value
        assert not seat.forms["Aland"].answer_button.disabled
        assert seat.step_button.disabled


async def test_the_rates_are_those_that_the_runs_moves_lead_to_and_holding_is_proposed() -> None:
    async with asked_at(table_of()) as seat:
        form = seat.forms["Aland"]
        slider = form.fields["rate"].slider
        labels = [label for label, _ in slider.options]
        assert (labels[0], labels[-1]) == ("5.17", "14.17")
        assert form.values["rate"] == slider.value == 9.67
        assert form.answer_button.description == "Hold the rate at 9.67 %"
        assert form.values["confidence"] is None


async def test_the_slider_the_box_and_the_button_say_the_same_rate() -> None:
    with seated(table_of()) as seat:
        form = seat.forms["Aland"]
        form.fields["rate"].slider.value = 11.67
        assert form.fields["rate"].box.value == "11.67"
        assert form.answer_button.description == "Raise the rate to 11.67 %"
        form.fields["rate"].box.value = "8,67"
        assert form.fields["rate"].slider.value == 8.67
        assert form.answer_button.description == "Lower the rate to 8.67 %"
        form.fields["rate"].box.value = "30"
        assert "rate is 30; it must be one of 5.17" in form.hint.value


# A game


async def test_one_click_plays_a_quarter_and_the_tape_says_what_was_left_open(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ann.tape"
    with seated(table_of(tape=path)) as seat:
        form = seat.forms["Aland"]
        fields = dict(form.fields)
        form.fields["rate"].slider.value = 11.67
        form.answer_button.click()
        await seat.idle()
        [made] = seat.simulation.turns[1].answers
        assert (made.fields["action"], made.status) == ("Raise the rate to 11.67 %", "ok")
        assert made.fields["rate_change_bp"] == 200
        assert "1 of 3 turns are played. Your answer plays turn 2." in seat.status.value
        assert form.answer_button.description == "Hold the rate at 11.67 %"
        assert form.fields == fields  # the same widgets, so that the focus stays
        seat.simulation.close()
    again = replay(path)
    [call] = again.calls
    assert call.reply is not None
    said = json.loads(call.reply.text)
    assert said["left_open"] == ["action", "reasoning", "confidence"]
    assert "advice_asked" not in said


async def test_enter_in_the_box_of_the_rate_sends_it() -> None:
    with seated(table_of()) as seat:
        box = seat.forms["Aland"].fields["rate"].box
        box.value = "11.67"
        box._handle_custom_msg({"event": "submit"}, [])
        await seat.idle()
        assert seat.simulation.turn_number == 1


async def test_the_rules_advice_is_shown_when_asked_for_and_counted() -> None:
    with seated(table_of()) as seat:
        form = seat.forms["Aland"]
        seat.advice_button.click()
        assert "The Taylor rule: Set the interest rate to 14.17%." in seat.advice.value
        form.answer_button.click()
        await seat.idle()
        assert seat.advice.value == ""
        form.answer_button.click()
        await seat.idle()
        assert advice_asked(seat.simulation) == 1


async def test_the_last_click_shows_the_ending_and_the_static_view_keeps_it() -> None:
    with seated(table_of(turns=2)) as seat:
        for _ in range(2):
            seat.forms["Aland"].answer_button.click()
            await seat.idle()
        await seat.idle()
        assert seat.forms["Aland"].answer_button.disabled
        assert "the rule&#39;s" in seat.score.value
        for who in ("you (Aland)", "Taylor rule", "rate held"):
            assert who in seat.score.value
        assert "Holding the rate would have cost" in seat.static_text()
        assert "<img" in str(seat.static_html())


async def test_a_turn_played_by_a_click_is_written_into_the_notebook_at_once() -> None:
    kept: list[str] = []

    class Handle:
        def update(self, bundle: dict[str, Any], *, raw: bool) -> None:
            assert raw
            kept.append(bundle["text/plain"])

    with seated(table_of()) as seat:
        seat._kept = Handle()  # type: ignore[assignment]
        seat.forms["Aland"].answer_button.click()
        await seat.idle()
        assert ["turn 1: Aland (ok)" in text for text in kept] == [True]
        await seat.take_turn(**RAISE, rate=9.67)
        assert len(kept) == 1  # a cell shows what it played itself


async def test_a_game_is_sixteen_quarters_from_a_boom_with_shocks() -> None:
    seat = HumanSeat.game("Ann", seed=3)
    config = seat.simulation.config
    assert (config.turns, config.seed, config.economy.shock_scale) == (16, 3, 1)
    assert seat.simulation.state.period == "1973Q1"
    rates = [rate for _, rate in seat.forms["Ann"].fields["rate"].slider.options]
    assert (rates[0], rates[-1], len(rates)) == (3.7, 7.7, 17)
    seat.close()


async def test_where_actions_are_in_words_a_person_has_a_models_fields() -> None:
    client = make_client()
    run = Simulation(
        nations=["Aland"], players={"Aland": "person"}, moves_bp=None, llm_client=client
    )
    with seated(run) as seat:
        labels = [field.box.description for field in seat.forms["Aland"].fields.values()]
        assert labels == ["Action", "Reasoning", "Confidence"]
        await seat.take_turn(**RAISE)
        assert [it.component for it in run.turns[1].answers] == ["agent", "validator", "engine"]
        assert "Raise the policy rate" in requests_of(client, "engine")[0].prompt


async def test_a_person_may_judge_what_others_propose() -> None:
    players = {"validator": "person", "*": "rule"}
    with seated(table_of(players=players, validator="asked")) as seat:
        assert "Step starts turn 1." in seat.status.value
        await seat.take_turn(is_valid=False, reasoning="It is too much.", confidence=0.5)
        assert seat.simulation.turns[1].became["Aland"]["accepted"] is False
        assert "turn 1: Aland (ok): is_valid False; rate 9.67%" in seat.static_text()


# Answering


async def test_three_clicks_of_step_and_answer_play_three_turns() -> None:
    with seated(table_of()) as seat:
        form = seat.forms["Aland"]
        for turn, rate in ((1, 11.67), (2, 13.67), (3, 15.17)):
            seat.step_button.click()
            await seat.asked()
            form.fill(**RAISE, rate=rate)
            form.answer_button.click()
            await seat.idle()
            assert seat.simulation.turn_number == turn
            there = seat.simulation.state.interest_rate
            assert there == pytest.approx(rate, abs=0.005)
        await seat.idle()
        assert "All 3 turns are played. Score shows how you did." in seat.status.value


async def test_an_answer_that_cannot_be_sent_is_complained_about_in_place_and_stays() -> None:
    async with asked_at(table_of()) as seat:
        form = seat.forms["Aland"]
        form.fields["action"].box.value = "Raise the policy rate"
        form.fields["rate"].box.value = ""
        form.fields["confidence"].box.value = "2"
        form.answer_button.click()
        await seat.sent()
        assert 'role="alert"' in form.complaint.value
        assert "confidence is 2; it must be one of 0, 0.05" in form.complaint.value
        assert "rate is missing" in form.complaint.value
        assert form.fields["action"].box.value == "Raise the policy rate"
        assert seat.waiting_for == ("Aland",)


async def test_a_click_that_overtakes_what_was_written_sends_it_all_the_same() -> None:
    async with asked_at(table_of()) as seat:
        form = seat.forms["Aland"]
        form.answer_button.click()
        form.answer_button.click()
        form.fill(**RAISE, rate=11.67)
        await seat.idle()
        assert form.complaint.value == ""
        assert seat.simulation.state.interest_rate == pytest.approx(11.673333)


async def test_what_would_be_wrong_is_said_while_one_writes() -> None:
    async with asked_at(table_of()) as seat:
        form = seat.forms["Aland"]
        form.fields["reasoning"].box.value = "x" * 2_001
        assert "it must be a text of at most 2,000 characters" in form.hint.value
        form.fields["reasoning"].box.value = "Prices rise."
        assert form.hint.value == ""


async def test_a_refused_action_comes_back_with_the_complaint_and_the_words_stay() -> None:
    players = {"Aland": "person", "engine": "rule", "validator": "rule"}
    with seated(table_of(moves_bp=None, players=players)) as seat:
        form = seat.forms["Aland"]
        seat.step_button.click()
        await seat.asked()
        form.fill(**RAISE | {"action": "Plant tulips"})
        form.answer_button.click()
        await settled(seat)
        assert "names nothing of economic policy" in form.complaint.value
        assert "This is the second try, and the last." in form.complaint.value
        assert form.fields["action"].box.value == "Plant tulips"
        assert "(assistant message)" in seat.prompt.value
        form.fields["action"].box.value = "Raise the policy rate"
        form.answer_button.click()
        await seat.idle()
        assert seat.simulation.turns[1].answers[-1].status == "repaired"
        assert form.complaint.value == ""


async def test_the_form_is_empty_once_the_turn_was_played() -> None:
    with seated(table_of()) as seat:
        form = seat.forms["Aland"]
        await seat.take_turn(**RAISE, rate=11.67)
        assert form.values == {"action": "", "reasoning": "", "confidence": None, "rate": 11.67}


async def test_the_slider_of_an_empty_box_rests_at_its_least_value() -> None:
    with seated(table_of()) as seat:
        form = seat.forms["Aland"]
        form.fields["confidence"].box.value = "0.9"
        assert form.fields["confidence"].slider.value == 0.9
        await seat.take_turn(**RAISE, rate=11.67)
        assert form.values["confidence"] is None
        assert form.fields["confidence"].slider.value == 0
        assert form.fields["rate"].slider.value == 11.67


async def test_a_draft_of_the_next_answer_survives_the_next_question() -> None:
    with seated(table_of()) as seat:
        form = seat.forms["Aland"]
        await seat.take_turn(**RAISE, rate=11.67)
        form.fields["action"].box.value = "Raise it again, the rate"
        seat.step_button.click()
        await seat.asked()
        assert form.fields["action"].box.value == "Raise it again, the rate"
        seat.stop_button.click()
        await seat.idle()


async def test_stopping_leaves_the_run_at_its_last_whole_turn_and_the_words_in_the_form() -> None:
    with seated(table_of()) as seat:
        form = seat.forms["Aland"]
        seat.step_button.click()
        await seat.asked()
        form.fill(**RAISE, rate=11.67)
        seat.stop_button.click()
        await seat.idle()
        assert seat.simulation.turn_number == 0
        assert seat.waiting_for == ()
        assert form.fields["action"].box.value == "Raise the policy rate"
        assert not seat.step_button.disabled
        form.answer_button.click()
        await seat.idle()
        assert seat.simulation.turn_number == 1


async def test_clicking_step_while_the_turn_waits_does_no_harm() -> None:
    async with asked_at(table_of()) as seat:
        seat.step_button.click()
        seat.step_button.click()
        await settled(seat)
        assert seat.error.value == ""
        assert seat.waiting_for == ("Aland",)


# Code instead of clicks


async def test_an_answer_by_code_that_is_wrong_raises_and_the_question_waits_on() -> None:
    async with asked_at(table_of()) as seat:
        with pytest.raises(ConfigError, match=r"rate is 30; it must be one of 5\.17"):
            seat.answer(**RAISE, rate=30)
        assert seat.waiting_for == ("Aland",)
        assert seat.simulation.turn_number == 0


async def test_a_turn_that_fails_raises_where_it_was_taken_and_shows_in_place() -> None:
    simulation = table_of()
    with seated(simulation) as seat:

        def broken(_: int) -> Any:
            raise EconomyError("off its range")

        simulation._shocks = SimpleNamespace(at=broken)
        with pytest.raises(EconomyError, match="off its range"):
            await seat.take_turn(**RAISE, rate=11.67)
        assert "off its range" in seat.error.value
        assert seat.retry.layout.display == ""
        # Also after other work of the seat, which hides the error.
        seat.score_button.click()
        await settled(seat)
        with pytest.raises(EconomyError, match="off its range"):
            seat._raise_failure()


async def test_waiting_for_a_question_ends_with_the_turn_that_was_stopped() -> None:
    with seated(table_of("Aland", "Borduria")) as seat:
        seat.step_button.click()
        await seat.asked("Aland")
        seat.answer(**RAISE, rate=11.67, agent="Aland")
        waiting = asyncio.ensure_future(seat.asked("Aland"))
        await settled(seat)
        seat.stop_button.click()
        with pytest.raises(ConfigError, match="the turn ended and Aland was not asked"):
            await waiting


async def test_a_recorded_run_is_looked_at_without_being_asked(tmp_path: Path) -> None:
    path = tmp_path / "seat.tape"
    first = table_of(start_at=None, tape=path)
    with seated(first) as seat:
        await seat.take_turn(**RAISE, rate=5)
    first.close()
    with seated(load(path)) as seat:
        assert "turn 1: Aland (ok): Raise the policy rate; rate 5.00%" in seat.static_text()
        assert not seat.forms["Aland"].answer_button.disabled  # it may be looked at as if asked
    with seated(replay(path, turns=0)) as seat:
        seat.step_button.click()
        await seat.idle()
        assert seat.simulation.turn_number == 1


# Several people


async def test_one_seat_serves_several_people_by_choice() -> None:
    with seated(table_of("Aland", "Borduria")) as seat:
        seat.step_button.click()
        await seat.asked("Borduria")
        assert "waits for: Aland, Borduria." in seat.status.value
        seat.forms["Aland"].fields["action"].box.value = "Raise the rate, I think"
        seat.seat_box.value = "Borduria"
        assert seat.form_box.children == (seat.forms["Borduria"],)
        seat.forms["Borduria"].fill(**RAISE, rate=11.67)
        seat.forms["Borduria"].answer_button.click()
        await settled(seat)
        assert ">Turn 1 waits for: Aland.<" in seat.status.value
        seat.seat_box.value = "Aland"
        assert "It is your turn to answer." in seat.status.value
        assert seat.forms["Aland"].fields["action"].box.value == "Raise the rate, I think"
        seat.answer(**RAISE, rate=10.67)
        await seat.idle()
        moves = seat.simulation.decisions().set_index("player")["rate_change_bp"]
        assert moves.to_dict() == {"Aland": 100, "Borduria": 200}


async def test_seats_of_one_run_show_each_others_turns() -> None:
    simulation = table_of("Aland", "Borduria")
    with seated(simulation, agent="Aland") as mine, seated(simulation, agent="Borduria") as other:
        assert mine.seat_box.layout.display == "none"
        await asyncio.gather(
            mine.take_turn(**RAISE, rate=10.67), other.take_turn(**RAISE, rate=11.17)
        )
        assert simulation.turn_number == 1
        for seat in (mine, other):
            assert "1 of 3 turns are played" in seat.status.value
            assert seat.error.value == ""


async def test_a_turn_started_elsewhere_asks_and_shows_at_the_seat() -> None:
    simulation = table_of()
    with seated(simulation) as seat:
        task = asyncio.create_task(simulation.step())
        await seat.asked()
        assert "Turn 1 waits for: Aland." in seat.status.value
        seat.forms["Aland"].fill(**RAISE, rate=11.67)
        seat.forms["Aland"].answer_button.click()
        await task
        shown = asyncio.Event()
        seat.status.observe(lambda _: shown.set(), names="value")
        if "1 of 3 turns" not in seat.status.value:
            await shown.wait()
        assert "1 of 3 turns" in seat.status.value


async def test_the_stepper_of_the_same_run_can_start_the_turn() -> None:
    simulation = table_of()
    stepper = TurnStepper(simulation)
    with seated(simulation) as seat:
        playing = asyncio.create_task(stepper.play())
        await seat.asked()
        seat.answer(**RAISE, rate=11.67)
        await playing
        assert simulation.turn_number == 1


async def test_a_cell_that_waits_for_the_turn_itself_is_pointed_out() -> None:
    simulation = table_of()
    with seated(simulation) as seat:
        cell = asyncio.create_task(asyncio.to_thread(simulation.run, 1))
        await seat.asked()
        async with asyncio.timeout(10):
            while "A cell waits for this turn" not in seat.status.value:  # noqa: ASYNC110 - seen so
                await asyncio.sleep(0.01)  # the run's thread says so once the question is there
        assert "start the turn with Step" in seat.status.value
        seat.answer(**RAISE, rate=11.67)
        await cell
        assert simulation.turn_number == 1


async def test_a_click_on_another_thread_is_shown_by_the_seats_own_loop() -> None:
    simulation = table_of("Aland", "Borduria")
    with seated(simulation) as seat:
        seat.step_button.click()
        await seat.asked("Borduria")
        form = seat.forms["Aland"]
        form.fill(**RAISE)
        form.fields["rate"].box.value = "30"
        await asyncio.to_thread(form.answer_button.click)
        await settled(seat)
        assert "rate is 30" in form.complaint.value
        assert "Turn 1 waits for: Aland, Borduria." in seat.status.value
        assert "A cell waits" not in seat.status.value
        seat.stop_button.click()
        await seat.idle()


def test_a_seat_can_be_used_where_no_loop_runs() -> None:
    simulation = table_of()
    with seated(simulation) as seat:
        simulation.people[0].ask = lambda _: RAISE | {"rate_change_bp": 200}
        simulation.run(1)
        while "1 of 3 turns are played" not in seat.status.value:
            time.sleep(0.01)


async def test_a_seat_that_was_taken_away_hears_nothing_any_more() -> None:
    simulation = table_of()
    seat = HumanSeat(simulation)
    seat.close()
    shown = seat.status.value
    with seated(simulation) as other:
        await other.take_turn(**RAISE, rate=11.67)
    assert seat.status.value == shown


# Who may sit


def test_a_seat_for_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no people in it"):
        HumanSeat(Simulation(players="rule"))
    with pytest.raises(ConfigError, match="agent='Syldavia' is not a person in this run"):
        HumanSeat(table_of(), agent="Syldavia")


async def test_an_answer_for_somebody_without_a_seat_here_is_refused() -> None:
    no_seat = pytest.raises(ConfigError, match="agent='Borduria' has no seat here")
    with seated(table_of("Aland", "Borduria"), agent="Aland") as seat, no_seat:
        seat.answer(**RAISE, rate=10.67, agent="Borduria")


# Untrusted text, the saved notebook, the score


async def test_what_people_write_is_shown_and_obeyed_by_nothing() -> None:
    with seated(table_of(turns=9)) as seat:
        said = {"action": "Raise the rate " + HOSTILE, "reasoning": HOSTILE, "confidence": 0.5}
        for _ in range(2):
            rate = seat.simulation.state.interest_rate
            await seat.take_turn(**said, rate=rate)
        for html in (str(seat.static_html()), seat.facts.value, seat.status.value):
            for live in ("<script", "<img", "</style", "\x1b", "\u202e"):
                assert live not in html
        for hidden in ("\x1b", "\u202e"):
            assert hidden not in seat.static_text()
        assert "&lt;script&gt;" in str(seat.static_html())


async def test_the_static_view_is_the_same_for_the_same_run() -> None:
    views = []
    for _ in range(2):
        with seated(table_of()) as seat:
            await seat.take_turn(**RAISE, rate=11.67)
            bundle = seat._repr_mimebundle_()
            views.append((bundle["text/plain"], bundle["text/html"]))
    assert views[0] == views[1]
    assert views[0][0] == (
        "Seat of Aland: turn 1 (1979Q4), rate 11.67%\n"
        "turn 1: Aland (ok): Raise the policy rate; rate 11.67%"
    )


async def test_the_static_view_says_that_an_answer_is_waited_for() -> None:
    async with asked_at(table_of()) as seat:
        assert seat.static_text().splitlines() == [
            "Seat of Aland: turn 0 (1979Q3), rate 9.67%, waits for Aland",
            "no answer yet",
        ]
        assert "No answer yet." in seat.static_html()


def test_the_static_view_of_a_run_without_a_calendar_has_no_date() -> None:
    with seated(table_of(start_at=None)) as seat:
        assert seat.static_text().splitlines()[0] == "Seat of Aland: turn 0, rate 4.00%"


async def test_the_score_is_shown_in_place() -> None:
    with seated(
        table_of(seed=7, economy={"shock_scale": 0}), model=data_path("tapes/first_run.tape")
    ) as seat:
        await seat.take_turn(**RAISE, rate=11.67)
        seat.score_button.click()
        await seat.idle()
        assert seat.error.value == ""
        for who in ("you (Aland)", "Taylor rule", "language model (qwen2.5-coder-1.5b)"):
            assert who in seat.score.value


async def test_a_score_before_the_first_turn_says_what_is_missing() -> None:
    with seated(table_of()) as seat:
        seat.score_button.click()
        await seat.idle()
        assert "play a turn first" in seat.error.value


def test_what_is_typed_while_the_slider_still_follows_is_kept() -> None:
    form = AnswerForm((), on_change=lambda: None, send=lambda: None)
    form.show({"share": {"type": "number", "minimum": 0, "maximum": 1}})
    box, slider = form.fields["share"].box, form.fields["share"].slider
    slider.observe(lambda _: box.set_trait("value", "7"), names="value")  # typed meanwhile
    box.value = "0.8"
    assert (box.value, slider.value) == ("7", 0.8)
    slider.unobserve_all()


def test_a_field_that_was_not_asked_for_in_between_is_made_anew() -> None:
    form = AnswerForm((), on_change=lambda: None, send=lambda: None)
    form.show({"bid": {"enum": [1, 2]}})
    form.fill(bid=2)
    form.show({"words": {"type": "string"}})
    form.show({"bid": {"enum": [3, 4]}})
    assert form.values == {"bid": None}
    assert [value for _, value in form.fields["bid"].slider.options] == [3, 4]


def test_a_text_that_may_be_left_open_may_be_filled_in_with_nothing() -> None:
    form = AnswerForm((), on_change=lambda: None, send=lambda: None)
    form.show({"words": {"type": "string", "optional": True}})
    form.fill(words=None)
    assert form.values == {"words": None}
