"""The window in Python: what the browser asks for is done, and what is done is sent once."""

from __future__ import annotations

import asyncio
import gc
import importlib
import sys
import threading
import time
from collections.abc import Callable
from inspect import isfunction, signature
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import pytest
from anywidget import AnyWidget
from builders import answer, make_client, make_simulation, recorded, until
from lab_kit import Browser, opened, same_reading
from page_kit import hostile_game
from pydantic import Field, computed_field
from worlds import Pot, PublicGoods

from llmsim_lab import Ask, State, data_path
from llmsim_lab import lab as lab_module
from llmsim_lab.errors import ConfigError, LLMFailureException, TapeError
from llmsim_lab.lab import (
    HumanSeat,
    Lab,
    PromptComparer,
    PromptViewer,
    RateChart,
    RunTree,
    StudyBoard,
    TurnStepper,
)
from llmsim_lab.llm import LLMClient, LLMConfig, Person, ScriptedBackend, Tape
from llmsim_lab.run import Run, load
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Study

pytestmark = pytest.mark.usefixtures("undrawn")
RECORDED = data_path("tapes/first_run.tape")
TAPES = ["first_run", "crisis", "social", "assistant", "two_nations"]
TEMPLATES = sorted(path.stem for path in data_path("templates").glob("*.py"))


def game(**more: Any) -> PublicGoods:
    return PublicGoods(players="random", seed=3, **more)


class Gate:
    """A model that waits until it is let go on."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Any) -> Any:
        self.asked.set()
        await self.go.wait()
        return answer(request)


# --- worlds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TAPES)
def test_every_recorded_world_is_shown_with_all_its_runs(name: str) -> None:
    path = data_path(f"tapes/{name}.tape")
    lab, browser = opened(path)
    assert same_reading(lab.reading, browser.records)
    assert set(lab.runs) == {info.id for info in Tape(path, read_only=True).runs()}
    assert lab.runs[1] is lab.runs[1]  # read once
    assert lab.static_text().startswith(f"Lab of {name}.tape")
    lab.close()


async def form_opened(browser: Browser, *, turn: int) -> None:
    browser.send("form", run=1, turn=turn)
    await until(lambda: any("form" in it for it in browser.heard))


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_world_of_ones_own_is_played_and_forked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(data_path("templates")))
    monkeypatch.delitem(sys.modules, name, raising=False)
    found = vars(importlib.import_module(name)).values()
    world: Any = next(
        it for it in found if isinstance(it, type) and issubclass(it, Run) and it is not Run
    )
    lab, browser = opened(world(players={"*": "rule"}))
    await lab.play(2)
    lab.fork(1)
    await lab.play(1)
    assert browser.turns == [(1, 0), (1, 1), (1, 2), (2, 2)]
    assert same_reading(lab.reading, browser.records)
    browser.send("form", run=2, turn=2)
    await until(lambda: any("form" in it for it in browser.heard))
    lab.close()


# --- playing --------------------------------------------------------------------------------------


async def test_a_click_plays_and_a_second_one_meanwhile_does_nothing() -> None:
    gate = Gate()
    lab, browser = opened(make_simulation(gate, names=("Aland",)))
    for _ in range(3):
        browser.send("play", run=1, turns=1)
    await gate.asked.wait()
    await until(lambda: browser.latest("live").get("waiting"))
    assert browser.latest("live")["waiting"][0]["who"] == "Aland"
    with pytest.raises(ConfigError, match="turns are being played"):
        await lab.play()
    with pytest.raises(ConfigError, match="a fork has to wait"):
        lab.fork()
    gate.go.set()
    await until(lambda: not browser.latest("live")["busy"])
    assert lab.runs[1].turn_number == 1
    assert browser.turns == [(1, 0), (1, 1)]


async def test_pause_ends_after_the_turn_and_stop_drops_it() -> None:
    gate = Gate()
    lab, browser = opened(make_simulation(gate, names=("Aland",)))
    browser.send("play", run=1, turns=5)
    await gate.asked.wait()
    browser.send("pause")
    await asyncio.sleep(0)
    gate.go.set()
    await until(lambda: not browser.latest("live")["busy"])
    assert browser.latest("live")["says"] == "Paused after turn 1."
    gate.go.clear()
    gate.asked.clear()
    browser.send("play", run=1, turns=5)
    await gate.asked.wait()
    browser.send("stop")
    await until(lambda: not browser.latest("live")["busy"])
    assert browser.latest("live")["says"].startswith("Stopped. The run is at turn 1")
    assert browser.latest("live")["fault"] == ""
    gate.go.set()
    await lab.play()  # and goes on
    assert lab.runs[1].turn_number == 2


async def test_a_fault_is_one_sentence_and_what_was_asked_is_shown(path: Path) -> None:
    broken = [True]

    def gives(request: Any) -> Any:
        if broken[0]:
            raise TimeoutError("the model does not answer")
        return answer(request)

    client = LLMClient(LLMConfig(model="scripted", retry_wait_s=0), ScriptedBackend(gives))
    lab, browser = opened(Simulation(nations=["Aland"], llm_client=client, tape=path))
    with pytest.raises(LLMFailureException):
        await lab.play()
    assert "timeout after 2 attempts: no reply within 60 s" in browser.latest("live")["fault"]
    lost = [call for record in browser.records for call in record.get("calls", ())]
    assert [call["status"] for call in lost] == ["lost"]
    assert [tried["fault"] for tried in lost[0]["tries"]] == ["timeout", "timeout"]
    broken[0] = False
    browser.send("play", run=1, turns=1)  # Try again
    await until(lambda: (1, 1) in browser.turns)
    await until(lambda: not browser.latest("live")["busy"])
    assert browser.latest("live")["fault"] == ""


async def test_turns_played_in_a_cell_arrive_too_ten_times_a_second_at_most() -> None:
    run = game(turns=60)
    lab, browser = opened(run)
    before, began = len(browser.heard), time.monotonic()
    run.run(60, progress=False)  # on another thread's loop, while this one is blocked
    await until(lambda: len(browser.turns) == 61)
    assert same_reading(lab.reading, browser.records)
    assert len(browser.heard) - before <= max(30, 20 * (time.monotonic() - began))


async def test_commands_from_another_thread_are_done_on_the_loop() -> None:
    run = game()
    lab, where = Lab(run), []
    run.listen(lambda _: where.append(threading.current_thread()))
    browser = Browser(lab)
    thread = threading.Thread(target=browser.send, args=("play",), kwargs={"run": 1, "turns": 2})
    thread.start()
    thread.join()
    await until(lambda: len(browser.turns) == 3)
    assert set(where) == {threading.main_thread()}


async def test_a_view_that_comes_later_and_one_with_a_gap_ask_for_what_they_lack() -> None:
    lab = Lab(game())
    first = Browser(lab)
    await lab.play(2)
    second = Browser(lab)
    assert second.records == first.records
    second.send("since", at=1)
    assert second.heard[-3]["at"] == 1
    assert second.heard[-3]["records"] == first.records[1:]


async def test_a_step_costs_few_bytes_whatever_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a slow machine a turn would be sent in pieces, as it comes.
    monkeypatch.setattr("llmsim_lab.lab.window._LOOK_S", 10)
    lab, browser = opened(make_simulation(names=("Aland",)))
    await lab.play(3)
    early = len(browser.sizes)
    await lab.play(1)
    cost = sum(browser.sizes[early:])
    await lab.play(60)
    late = len(browser.sizes)
    await lab.play(1)
    assert sum(browser.sizes[late:]) < 1.5 * cost < 18_000


def test_no_name_of_a_window_hides_one_of_its_base_classes() -> None:
    names = [name for name in lab_module.__all__ if name[0].isupper()]
    windows = [it for name in names if issubclass(it := getattr(lab_module, name), AnyWidget)]
    assert HumanSeat in windows
    for cls in {part for it in windows for part in it.__mro__[: it.__mro__.index(AnyWidget)]}:
        own = {name for name, it in vars(cls).items() if isfunction(it) and name[:2] != "__"}
        hidden = {name for name in own if hasattr(AnyWidget, name)}
        assert hidden <= {"close"}, "such as _send, of each message"


def test_nothing_of_a_run_is_in_a_trait_and_so_in_a_notebook() -> None:
    state = Lab(RECORDED).get_state()
    text = " ".join(str(value) for name, value in state.items() if name != "_esm")
    assert "one nation" not in text
    assert len(text) < 2_000


ODD: list[Any] = [
    None,
    -1,
    9,
    10**30,
    1.5,
    True,
    "x",
    "\ud800",
    [],
    [[]],
    {},
    {"set": {"coins": 1}},
]


def windows(path: Path) -> dict[str, Callable[[], Lab]]:
    """Return what makes each window, the recorded one of a tape."""
    recorded(game(tape=path), 2)
    people = Simulation(nations=["Ann"], players={"Ann": Person()}, masked=False)
    vary = {"factor": [1.2, 1.8]}
    study = Study(PublicGoods, vary, seeds=2, turns=1, outcome="coins.Ann@last", players="random")
    return {
        "Lab": lambda: Lab(game()),
        "a tape": lambda: Lab(path),
        "HumanSeat": lambda: HumanSeat(people),
        "StudyBoard": lambda: StudyBoard(study),
        "PromptComparer": lambda: PromptComparer(RECORDED, prompt="agent_policy"),
    }


@pytest.mark.parametrize("name", ["Lab", "a tape", "HumanSeat", "StudyBoard", "PromptComparer"])
async def test_whatever_a_page_sends_ends_in_a_sentence_or_is_done(name: str, path: Path) -> None:
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: raised.append(about))
    lab, heard = windows(path)[name](), list[dict[str, Any]]()
    lab.send = lambda message, buffers=None: heard.append({} if buffers else message)
    for message in (None, [], "play", {"do": ["play"]}, {"do": "nothing"}):
        lab._receive(None, message, [])  # type: ignore[arg-type]
    for command in sorted(it for it in dir(lab) if it.startswith("_do_")):
        names = [*signature(getattr(lab, command)).parameters]
        # Playing on, and asking anew, are no faults.
        numbers = [it for it in ODD if it not in (9, True)]
        for values in product(numbers, repeat=len(names[:2])):
            sent = dict(zip(names, values, strict=False)) | dict.fromkeys(names[2:], values[-1:])
            lab._receive(None, {"do": command.removeprefix("_do_"), **sent}, [])
            await asyncio.sleep(0)
        lab._receive(None, {"do": command.removeprefix("_do_"), "no such thing": 1}, [])
    await asyncio.sleep(0.01)
    assert [about.get("exception", about) for about in raised] == []
    faults = [it["fault"] for it in heard if it.get("fault")]
    assert any("cannot be done with what was sent: " in fault for fault in faults)
    assert [fault for fault in faults if "Error: " in fault or "Exception" in fault] == []
    lab.close()


async def test_a_fault_of_our_own_is_shown_and_goes_to_the_kernels_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, browser = opened(game())
    monkeypatch.setattr(Lab, "_run", lambda _, number: number + "1")
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: heard.append(about))
    browser.send("form", run=1, turn=1)
    await until(lambda: heard)
    assert browser.latest("fault").startswith("TypeError: ")


# --- changing -------------------------------------------------------------------------------------


async def test_only_what_was_changed_is_sent_and_a_fork_says_what_it_was() -> None:
    lab, browser = opened(game())
    await lab.play(3)
    await form_opened(browser, turn=2)
    coins = browser.field("set", "coins.Ann")
    assert coins["value"] == float(f"{lab.runs[1].turns[2].state.coins['Ann']:.6g}")
    assert coins["label"] == "Coins · Ann"
    browser.send("fork", run=1, turn=2, changes={"set": {"coins.Ann": "7"}})
    await until(lambda: 2 in lab.runs)
    assert lab.runs[2].state.coins["Ann"] == 7
    known = [it["run"] for it in browser.records if "changes" in it.get("run", {})][-1]
    assert (known["parent"], known["fork"], known["changes"]) == (1, 2, ["coins.Ann = 7"])
    assert browser.latest("show") == {"run": 2, "turn": None}
    theft = {"turn": 3, "set": {"coins.Ann": 7}, "note": "a theft"}
    lab.fork(2, run=1, intervene={"coins.Ann": 7})
    lab.fork(2, run=1, intervene=[theft])
    assert lab.reading.runs[3]["changes"] == ["coins.Ann = 7"], "a cell says it as the form does"
    assert lab.reading.runs[4]["changes"] == ["turn 3: coins.Ann = 7 (a theft)"]


class Tally(State):
    left: dict[str, float] = Field({"Ann": 9.0, "Bob": 9.0, "Cy": 9.0})
    shown: dict[str, float] = Field({"Ann": 0.0}, frozen=True)
    friends: list[tuple[str, str]] = Field([("Ann", "Bob")])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def all_left(self) -> float:
        return sum(self.left.values())


class Counting(Run[Tally]):
    async def turn(self, state: Tally, ask: Ask) -> Tally:
        return state.replace(left={name: left - 1 for name, left in state.left.items()})


async def test_a_form_offers_no_number_that_follows_from_others_and_a_text_has_the_ties() -> None:
    lab, browser = opened(Counting())
    await lab.play(2)
    await form_opened(browser, turn=1)
    fields = browser.latest("form")["parts"][0]["fields"]
    places = [field["place"] for field in fields if field["place"][0] == "set"]
    assert places == [["set", "left.Ann"], ["set", "left.Bob"], ["set", "left.Cy"]]
    assert "friends, turn 2: 2 players, 1 tie" in lab.static_text()


async def test_a_prompt_is_edited_and_a_parameter_restarts_the_run() -> None:
    lab, browser = opened(make_simulation(names=("Aland",)))
    await lab.play(1)
    await form_opened(browser, turn=1)
    name = next(iter(lab.runs[1].prompts.values())).name
    text = browser.field("prompt", name)["value"]
    browser.send("fork", run=1, turn=1, changes={"prompt": {name: f"{text}\nBe brief."}})
    await until(lambda: 2 in lab.runs)
    assert any("Be brief." in prompt.text for prompt in lab.runs[2].prompts.values())
    browser.send("restart", run=1, changes={"economy": {"shock_scale": "0.5"}})
    await until(lambda: 3 in lab.runs)
    assert lab.runs[3].config.economy.shock_scale == 0.5
    assert lab.runs[3].turn_number == 0


@pytest.mark.parametrize(("players", "more"), [(300, 200), (100, 0)])
async def test_a_form_checks_a_large_state_once_and_shows_a_hundred_of_its_numbers(
    players: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(game(state=Pot(coins={f"P{at}": 20.0 for at in range(players)})))
    checks, replace = [], Pot.replace
    counted = lambda state, **changes: checks.append(changes) or replace(state, **changes)  # noqa: E731
    monkeypatch.setattr(Pot, "replace", counted)
    browser = Browser(lab)
    await form_opened(browser, turn=0)
    assert len(checks) == 1
    part = browser.latest("form")["parts"][0]
    places = [field["place"][0] for field in part["fields"]]
    assert (places.count("set"), "note" in places) == (100, True)
    rest = f"; {more} more numbers in code: fork(intervene=...)" if more else ""
    assert part["title"] == f"From turn 0 on{rest}"


@pytest.mark.parametrize(
    ("do", "values", "message"),
    [
        ("restart", {"changes": {"seed": "many"}}, "Seed is 'many'; it must be a whole number"),
        ("fork", {"turn": 0, "changes": {"set": {"coins.Ann": ""}}}, "Coins · Ann is missing"),
        ("fork", {"turn": 0, "changes": {"set": {"coins.Zoe": "5"}}}, "set · coins.Zoe cannot be"),
        ("fork", {"turn": 0, "changes": 5}, "this cannot be changed here"),
        ("play", {"turns": 200_000}, "turns=200000"),
    ],
)
async def test_a_wrong_value_is_explained_and_makes_no_run(
    do: str, values: Any, message: str
) -> None:
    lab, browser = opened(game())
    browser.send("form", run=1, turn=0)
    browser.send(do, run=1, **values)
    await until(lambda: any("fault" in it for it in browser.heard))
    assert message in browser.latest("fault")
    assert list(lab.runs) == [1]


async def test_a_fork_of_a_recorded_run_needs_a_model() -> None:
    lab = Lab(RECORDED, run=1)
    with pytest.raises(ConfigError, match="llm_client"):
        lab.fork(3)
    live = Lab(RECORDED, run=1, llm_client=make_client(answer))
    live.fork(3)
    assert "not recorded" in " ".join(live.reading.runs[4]["changes"])
    await live.play(1)
    assert live.shown == (4, 4)


async def test_forks_and_restarts_ask_with_the_settings_that_they_are_given() -> None:
    lab = Lab(RECORDED, run=1, llm_client=make_client(answer, temperature=1.5))
    lab.fork(3)
    await lab.play(1)
    lab.restart(run=1, llm={"num_ctx": 8192})
    await lab.play(1)
    sent = [lab.runs[made].calls[-1].request.options for made in (4, 5)]
    assert [(it["temperature"], it["num_ctx"]) for it in sent] == [(1.5, 4096), (1.5, 8192)]
    with pytest.raises(ConfigError, match=r"another window: Lab\(run, llm_client=connect\('x'\)\)"):
        lab.restart(run=1, llm={"model": "x"})


# --- people ---------------------------------------------------------------------------------------


async def test_a_forms_help_is_what_the_class_says_with_limits_and_its_labels_have_units() -> None:
    class Late(Run[Pot]):
        """A world.

        Args:
            wait_s: how long they think.

        Raises:
            loud: is no parameter here.
        """

        wait_s: float = 3
        boost_pct: Annotated[float, Field(le=50)] = 10
        loud: bool = False

    _, browser = opened(Late(players="random"))
    await form_opened(browser, turn=0)
    parts = browser.latest("form")["parts"]
    told = {field["label"]: field["help"] for part in parts for field in part["fields"]}
    # Not "below 18446744073709551616".
    assert told["Seed"].endswith("sampling included; a whole number of at least 0")
    assert told["Rationale"].startswith("where replies have their reasoning")
    assert (told["Wait (s)"], told["Loud"]) == ("how long they think", "")
    assert told["Boost (%)"] == "a number of at most 50"
    assert "Players · everybody" in told


async def test_a_person_in_any_world_is_asked_by_a_form() -> None:
    lab, browser = opened(PublicGoods(players={"Ann": Person(), "*": "random"}))
    assert browser.latest("ask") is None
    browser.send("play", run=1, turns=1)
    await until(lambda: browser.latest("ask"))
    asked = browser.latest("ask")
    assert (asked["who"], asked["turn"]) == ("Ann", 1)
    assert "You are Ann" in asked["text"]
    amount = next(field for field in asked["fields"] if field["place"] == ["amount"])
    assert amount["help"] == "coins for the pot; a whole number from 0 to 20"
    browser.send("answer", id=asked["id"], values={"amount": "99"})
    fault = "is 99; it must be a whole number from 0 to 20"
    assert browser.latest("ask")["faults"] == {"amount": fault}
    browser.send("answer", id=asked["id"], values={"amount": "4"})
    await until(lambda: not browser.latest("live")["busy"])
    assert browser.latest("ask") is None
    assert lab.runs[1].state.given["Ann"] == 4


# --- presets, static views ------------------------------------------------------------------------


async def test_presets_are_windows_with_fewer_parts() -> None:
    run = load(RECORDED, 1)
    texts = {cls: cls(run).static_text() for cls in (Lab, TurnStepper, PromptViewer, RateChart)}
    assert "Turn 8 (1981Q3)" in texts[TurnStepper]
    assert "Chart:" not in texts[TurnStepper]
    assert "Policy rate 9.67 → 16.75" in texts[RateChart]
    assert "[system]" in texts[PromptViewer]
    assert "[reply]" in texts[PromptViewer]
    assert "Chart:" not in texts[PromptViewer]
    tree = RunTree(RECORDED).static_text()
    assert "   2 one nation · fork at turn 3 · turn 3: shock.supply = 4 (oil)" in tree


def test_what_a_model_wrote_is_text_in_every_static_view() -> None:
    game = hostile_game()
    for widget in (TurnStepper(game), PromptViewer(game), RateChart(game)):
        html, text = str(widget.static_html()), widget.static_text()
        assert "&lt;script&gt;" in html
        for live in ("<script", "<img src=x", "</title", "\x1b", "\u202e"):
            assert live not in html
        assert not {"\x1b", "\u202e"} & {*text}


def test_a_chart_of_several_runs_and_frames_is_saved_for_papers(tmp_path: Path) -> None:
    first, second = game(), game()
    first.run(2)
    second.run(3)
    chart = RateChart({"one": first, "other": second.to_frame()}, columns=["coins.Ann"])
    assert "coins.Ann 20 → " in chart.static_text()
    for kind in ("svg", "png", "pdf"):
        assert chart.save(tmp_path / f"c.{kind}").stat().st_size > 0
    with pytest.raises(ConfigError, match=r"must end in \.png, \.svg or \.pdf"):
        chart.save(tmp_path / "c.txt")
    with pytest.raises(ConfigError, match="no run has the column 'gold'; there are coins"):
        RateChart(first, columns=["gold"])


def test_a_column_of_yes_and_no_is_charted_by_name_and_one_of_words_is_an_error() -> None:
    frame = pd.DataFrame({"turn": [0, 1], "war": [True, False], "mood": ["a", "b"], "y": [1, None]})
    assert "run, turns 0 to 1: y 1 in turn 0\n" in RateChart(frame).static_text() + "\n"
    [line] = RateChart(frame, columns=["war"]).figure.axes[0].lines
    assert list(line.get_ydata()) == [1, 0]
    with pytest.raises(ConfigError, match="the column 'mood' has no numbers to chart; those that"):
        RateChart(frame, columns=["mood"])


async def test_what_is_closed_follows_no_run_any_more() -> None:
    run = game()
    lab, browser = opened(run)
    lab.close()
    heard = len(browser.heard)
    await run.arun(1, progress=False)
    assert len(browser.heard) == heard


def test_a_widget_of_the_wrong_thing_is_refused_and_leaves_no_second_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc.collect()  # of other tests
    heard: list[Any] = []  # what Python reports that no code can catch, as from ``__del__``
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    for widget, source in product((HumanSeat, PromptViewer, RateChart), (None, 5, [], object())):
        with pytest.raises(ConfigError, match=r"is not an? |is neither a |there is no run to"):
            widget(source)
    gc.collect()
    assert heard == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lab(5), "int is neither a simulation nor a tape"),
        (lambda: Lab(game(), run=1), "run=1 goes with a tape"),
        (lambda: Lab(game(), llm_client="auto").fork(), "llm_client='auto' is not a client"),
        (lambda: TurnStepper(RECORDED).show(True), "turn=True must be a whole number"),
        (lambda: Lab(game()).show(9), "turn=9 must be a whole number, 0 to 0"),
        (lambda: Lab(game()).show(0, run=9), "there is no run 9 here"),
        (lambda: Lab(game()).answer(amount=3), "no question waits for a person in this run"),
    ],
)
def test_a_wrong_argument_is_named(make: Any, message: str) -> None:
    with pytest.raises((ConfigError, TapeError), match=message):
        make()
