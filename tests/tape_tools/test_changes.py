"""Trees, lists and differences say what each run changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, make_simulation
from tape_text import changed_manifest, rewrite

from llmsim_lab.llm import Tape
from llmsim_lab.models import GlobalState
from llmsim_lab.run import fork, load
from llmsim_lab.simulation import Simulation

HOSTILE = "\x1b[2Jnote\u202e [bold]<b>&"
"""Clears a terminal, turns the line around, and tries both kinds of markup."""


@pytest.fixture
def tape(tmp_path: Path) -> Any:
    with Tape(tmp_path / "x.tape") as tape:
        made = make_simulation()
        Simulation(made.config, llm_client=made.llm_client, tape=tape).run(2)
        yield tape


def test_two_forks_are_told_apart_by_what_was_done_to_them(tape: Tape) -> None:
    for changed in ({"inflation": 9}, {"shock.demand": -1}):
        done = [{"turn": 1, "set": changed}]
        fork(tape, 1, turn=1, llm_client=make_client(), intervene=done)
    assert tape.changes(1) == []
    assert tape.changes(2) == ["turn 1: set inflation 9"]
    assert tape.changes(3) == ["turn 1: set shock.demand -1"]


def test_another_state_is_named_by_its_values(tape: Tape) -> None:
    economy = load(tape, 1).turns[1].state.with_economy(GlobalState(inflation=9.5))
    fork(tape, 1, turn=1, llm_client=make_client(), state=economy)
    [change] = tape.changes(2)
    assert change.startswith("state: interest_rate 4.5 → 4, ")
    assert "inflation 2 → 9.5" in change


def test_an_edited_prompt_is_named_by_its_words_and_by_the_part_that_has_it_alone(
    tape: Tape,
) -> None:
    run = fork(tape, 1, turn=1, llm_client=make_client())
    prompt = run.prompt("agent_policy")
    fork(tape, 1, turn=1, llm_client=make_client(), prompt=prompt.replace(" ONE", ""))
    assert tape.changes(3) == ['prompt agent_policy: - "ONE"']


def test_another_model_and_other_settings_are_named(tape: Tape) -> None:
    client = make_client(model="other", temperature=0.25, timeout_s=7)
    load(tape, 1).fork(llm_client=client).run(1)
    assert tape.changes(2) == ['llm.model "auto" → "other"', "llm.temperature 0.7 → 0.25"]


def test_untrusted_words_are_printable_and_short(tape: Tape) -> None:
    done = [{"turn": 1, "set": {"inflation": 9}, "note": HOSTILE * 50}]
    fork(tape, 1, turn=1, llm_client=make_client(), intervene=done)
    [change] = tape.changes(2)
    assert change.isprintable()
    assert len(change) <= 160


def turns(**changes: Any) -> Callable[[Path], None]:
    """Return what changes parts of each turn's record."""

    def edit(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("is") == "turn":
            line["record"] |= changes
        return line

    return lambda path: rewrite(path, edit)


def begins(run: int, **changes: Any) -> Callable[[Path], None]:
    """Return what changes parts of the line that a run begins with."""
    return lambda path: rewrite(
        path,
        lambda line: line | changes if (line.get("run"), line.get("is")) == (run, "run") else line,
    )


@pytest.mark.parametrize(
    "damage",
    [
        turns(interventions=7, state=8),
        turns(planned=[7, [], {}]),
        turns(turn="1"),
        lambda path: changed_manifest(path, 1, config=3, llm=[], prompts=7, model="x"),
        lambda path: changed_manifest(path, 2, prompts={"a": 7, "b": {"text": 3}}, config={}),
        begins(1, parent=2, fork_turn=99),
        begins(2, parent=2),
    ],
)
def test_a_damaged_tape_still_has_a_tree(tape: Tape, damage: Callable[[Path], None]) -> None:
    fork(tape, 1, turn=1, llm_client=make_client()).close()
    damage(tape.path)
    assert len(Tape(tape.path, read_only=True).tree().splitlines()) == 3
