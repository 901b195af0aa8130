"""What a window offers to change, and the runs that come of it: forms, words, numbers, settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from builders import played, until
from lab_kit import Browser, opened
from pydantic import Field

from llmsim_lab import Ask, Run, State, Tape
from llmsim_lab.lab import Lab
from llmsim_lab.run import StateChange, load

pytestmark = pytest.mark.usefixtures("undrawn")


class Mixed(State):
    """A state of many kinds.

    Attributes:
        share: how much of it is left.
    """

    share: float = 1 / 3
    large: float = 123456.789
    count: int = 7
    is_open: bool = True
    fixed: float = Field(2.0, frozen=True)
    word: str = "no number"


class Mixes(Run[Mixed]):
    wait_s: float = 3
    parts: dict[str, dict[str, float]] = Field({"a": {"low": 1}})
    defaults: ClassVar[Any] = {"turns": 2}

    def row(self, state: Mixed) -> dict[str, Any]:
        return {"large": state.large, "word": state.word, "endless": math.inf}

    async def turn(self, state: Mixed, ask: Ask) -> Mixed:
        ask.note(noted=ask.turn)
        return state.replace(share=state.share / 2)


async def formed(run: Any, turn: int) -> tuple[Lab, Browser, list[dict[str, Any]]]:
    lab, browser = opened(run)
    browser.send("form", run=1, turn=turn)
    await until(lambda: any("form" in it for it in browser.heard))
    return lab, browser, browser.latest("form")["parts"]


async def test_a_form_has_the_states_numbers_in_six_figures_and_nothing_that_cannot_be_set() -> (
    None
):
    _, _, parts = await formed(played(Mixes(), 1), 1)
    assert [(part["do"], part["title"]) for part in parts] == [
        ("fork", "From turn 1 on"),
        ("restart", "Parameters, from the beginning"),
    ]
    values = {field["place"][-1]: field["value"] for field in parts[0]["fields"]}
    note = values.pop("note", None)
    assert values == {"share": 0.166667, "large": 123457.0, "count": 7.0, "is_open": True}
    assert not note
    told = {field["place"][-1]: field["help"] for field in parts[0]["fields"]}
    assert told["share"] == "how much of it is left"


async def test_a_note_alone_is_no_intervention_and_a_form_of_before_is_read_as_it_was_sent() -> (
    None
):
    lab, browser, _ = await formed(played(Mixes(), 2), 1)
    browser.send("fork", run=1, turn=1, changes={"note": "why"})
    await until(lambda: 2 in lab.runs)
    assert lab.reading.runs[2]["changes"] == ["note = why"]
    assert not lab.runs[2].turns[1].interventions
    browser.send("fork", run=1, turn=1, changes={"set": {"share": "0.5"}, "note": "why"})
    await until(lambda: 3 in lab.runs)
    assert lab.reading.runs[3]["changes"] == ["share = 0.5; note = why"]
    assert [str(it) for it in lab.runs[3].turns[1].interventions] == ["turn 1: share = 0.5 (why)"]
    browser.send("fork", run=1, turn=2, changes={"set": {"share": "0.5"}})
    await until(lambda: any("fault" in it for it in browser.heard))
    assert "share" in browser.latest("fault"), "no form of that turn was sent"


def test_a_restart_has_the_new_parameters_and_says_them() -> None:
    run = played(Mixes(wait_s=4, parts={"a": {"low": 1, "high": 3}}), 2)
    lab = Lab(run)
    new: Any = lab.restart(wait_s=5, parts={"a": {"low": 2}, "b": {"low": 9}})
    assert (new.wait_s, new.turn_number) == (5, 0)
    assert new.parts == {"a": {"low": 2, "high": 3}, "b": {"low": 9}}
    known = lab.reading.runs[2]
    assert known["changes"] == ["wait_s = 5; parts a low = 2; parts b low = 9"]
    assert (known["verb"], known["parent"], known["fork"]) == ("restart", 1, None)
    assert lab.shown == (2, 0)
    same = lab.restart(run=1)
    assert (lab.reading.runs[3]["changes"], same.turn_number) == ([], 0)


class Adds(Mixes):
    """A world in which to set ``large`` adds to it."""

    def changed(self, state: Mixed, values: Mapping[str, object]) -> Mixed:
        new = super().changed(state, values)
        return new.replace(large=new.large + state.large) if "large" in values else new


AGAIN: list[Callable[[Any, Path], Any]] = [
    lambda run, tape: run,
    lambda run, tape: Adds.load(tape),
    lambda run, tape: Adds.resume(tape),
    lambda run, tape: Adds.load(run.fork(1).tape.path),
    lambda run, tape: Adds.rerun(tape),
    lambda run, tape: run.counterfactual({}),
]


@pytest.mark.parametrize("state", [None, Mixed(large=1)])
@pytest.mark.parametrize("again", AGAIN)
def test_a_restart_begins_with_the_state_that_the_run_began_with(
    tmp_path: Path, state: Mixed | None, again: Any
) -> None:
    tape = tmp_path / "m.tape"
    run = Adds(state=state, interventions=[{"turn": 0, "set": {"count": 1}}], tape=tape)
    run.intervene(0, {"large": 5})
    run.intervene(2, {"word": "later"})
    played(run, 1)
    run.close()
    known = again(run, tape)
    new = Lab(known).restart(wait_s=5)
    assert new.turns[0] == run.turns[0]
    assert [change.set for change in new.planned] == [{"word": "later"}]
    without = Lab(known).restart(interventions=[], wait_s=5)
    assert without.state == (state or Mixed()).replace(large=5 + (state or Mixed()).large)


def test_what_is_set_in_play_or_no_longer_planned_is_not_set_in_a_restart() -> None:
    run = Mixes()
    run.intervene(3, {"word": "no longer"})
    run.planned = [StateChange(turn=3)]  # as on older tapes: it sets nothing
    played(run, 1)
    run.intervene(3, {"word": "in play"})
    assert not Lab(run).restart(wait_s=5).planned


def test_runs_keep_their_tapes_numbers_unless_another_run_here_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Tape(tmp_path / "m.tape") as tape:
        first = played(Mixes(tape=tape), 1)
        second = played(first.fork(1), 1)
        lab = Lab(second)
        assert (list(lab.runs), lab.shown) == ([2], (2, 2))
        third = lab.fork(1)
        assert (third.run_id, list(lab.runs)) == (3, [2, 3])
        assert lab.reading.runs[3]["parent"] == 2
        elsewhere = lab.fork(1, run=2, to="n.tape")
        assert (elsewhere.run_id, list(lab.runs)) == (3, [2, 3, 4])
        assert lab.reading.runs[4]["changes"] == ["to n.tape"]
        first.close()
    here = Lab(played(Mixes(), 1))
    here.fork(0)
    here.fork(1, run=1)
    assert list(here.runs) == [1, 2, 3]
    assert [here.reading.runs[number]["fork"] for number in (2, 3)] == [0, 1]
    assert list(Lab(load("m.tape", 2)).runs) == [2]
    here.show(1, run=1, view="calls")
    assert here.first == {"run": 1, "turn": 1, "view": "calls"}
    here.show()
    assert here.first == {"run": 1}
