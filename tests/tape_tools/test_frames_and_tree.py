"""What a tape's runs look like side by side: frames, comparisons, the tree, what each changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import answer, in_words, make_client, make_config, make_simulation
from tape_text import changed_manifest, rewrite

from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.models import GlobalState
from llmsim_lab.run import fork, load, replay
from llmsim_lab.run._run import record
from llmsim_lab.simulation import Simulation


def record_family(path: Path, *, name: str = "economy") -> Path:
    """Record run 1, three turns; run 2, its fork at turn 1; run 3, a fork of that one; close."""
    config = in_words(name=name, nations=("Aland", "Borduria"), turns=3, start_at="1979Q3")
    first = Simulation(config, llm_client=make_client(answer), tape=path)
    first.run()
    second = first.fork(1, prompt=first.prompt("agent_policy").replace("ONE", "exactly one"))
    second.run(3)
    third = second.fork(intervene=[{"turn": 4, "set": {"shock.supply": 2}, "note": "oil"}])
    third.run(1)
    for simulation in (first, second, third):
        simulation.close()
    return path


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tape of three runs, not to be changed."""
    return record_family(tmp_path_factory.mktemp("tape") / "runs.tape")


@pytest.fixture
def copied(family: Path, tmp_path: Path) -> Path:
    """A copy of it, to change."""
    return Path(shutil.copy(family, tmp_path / "copy.tape"))


def edit_rows(path: Path, run: int, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Replace the rows of a run's turns."""

    def change(line: dict[str, Any]) -> dict[str, Any]:
        if (line.get("run"), line.get("is")) == (run, "turn"):
            line["row"] = edit(line["row"])
        return line

    rewrite(path, change)


def edit_begin(path: Path, run: int, **changes: Any) -> None:
    """Change the line that a run begins with; what is None is left out."""

    def change(line: dict[str, Any]) -> dict[str, Any]:
        if (line.get("run"), line.get("is")) == (run, "run"):
            line |= changes
            line = {name: value for name, value in line.items() if value is not None}
        return line

    rewrite(path, change)


@pytest.mark.parametrize("run", [1, 2, 3])
def test_a_turns_frame_is_the_one_that_its_simulation_gives(family: Path, run: int) -> None:
    with Tape(family, read_only=True) as tape:
        assert tape.turns_frame(run).equals(load(tape, run).to_frame())
        assert load(tape, run).turns == replay(tape, run).turns


def test_a_row_that_is_no_object_is_an_error(copied: Path) -> None:
    edit_rows(copied, 1, lambda _: 7)
    with Tape(copied) as tape, pytest.raises(TapeError, match=r"turn 0 of run 1 .* damaged: row"):
        tape.turns_frame(1)


def test_a_comparison_has_both_values_and_their_difference_for_the_turns_that_both_have(
    family: Path,
) -> None:
    with Tape(family, read_only=True) as tape:
        frame = tape.compare(2, 3)
        a, b = tape.turns_frame(2), tape.turns_frame(3)
    assert frame.index.name == "turn"
    assert frame.index.tolist() == [0, 1, 2, 3, 4]
    assert frame["inflation"].columns.tolist() == ["a", "b", "difference"]
    assert frame["inflation", "a"].tolist() == a["inflation"].tolist()
    assert frame["inflation", "b"].tolist() == b["inflation"].tolist()[:5]
    assert (frame["interest_rate", "difference"] == 0).all()


def test_a_comparison_goes_by_the_turns_of_the_lines_and_not_of_their_rows(copied: Path) -> None:
    edit_rows(copied, 1, lambda row: {**row, "turn": 1})
    with Tape(copied) as tape:
        assert tape.compare(1, 2).index.tolist() == [0, 1, 2, 3]


def test_runs_that_share_no_number_cannot_be_compared(copied: Path) -> None:
    edit_rows(copied, 2, lambda row: {"turn": row["turn"]})
    edit_begin(copied, 2, parent=None, fork_turn=None)
    with Tape(copied) as tape, pytest.raises(TapeError) as failure:
        tape.compare(1, 2)
    assert "runs 1 and 2 cannot be compared: they share no turn or" in str(failure.value)


def test_a_fork_from_before_its_parents_own_fork_shares_only_the_turns_before(
    tmp_path: Path,
) -> None:
    with Tape(tmp_path / "forks.tape") as tape:
        first = make_simulation()
        first = Simulation(first.config, llm_client=first.llm_client, tape=tape)
        first.run(4)
        second = first.fork(3)
        second.run(1)
        third = second.fork(1, intervene=[{"turn": 1, "set": {"inflation": 9}}])
        third.run(1)
        assert tape.turns_frame(3)["turn"].tolist() == [0, 1, 2]
        assert tape.turns_frame(3).equals(third.to_frame())
        assert replay(tape, 3).turns == third.turns


def test_the_tree_shows_what_came_from_what(family: Path) -> None:
    with Tape(family, read_only=True) as tape:
        title, *lines = tape.tree().splitlines()
    assert title.endswith("runs.tape': 3 runs>")
    assert lines == [
        "1 economy · run · turns 1 to 3 · done · scripted",
        '   2 economy · fork at turn 1 · prompt agent_policy: "ONE" → "exactly one" · turns 2 to 4 '
        "· done · scripted",
        "      3 economy · fork at turn 4 · turn 4: set shock.supply 2, note oil · turns 5 to 5 "
        "· done · scripted",
    ]


def test_branches_beside_each_other_are_told_apart_and_rules_have_no_model(tmp_path: Path) -> None:
    with Tape(tmp_path / "rules.tape") as tape:
        first = Simulation(make_config(name="rule"), tape=tape)
        first.run(1)
        first.fork(0).fork(0)
        first.fork(1)
        _, *lines = tape.tree().splitlines()
    open_ones = [("   2", 0), ("      3", 0), ("   4", 1)]
    assert lines == ["1 rule · run · turns 1 to 1 · done · no model"] + [
        f"{place} rule · fork at turn {turn} · no turn yet · open · no model"
        for place, turn in open_ones
    ]


def test_a_run_whose_parent_did_not_come_first_stands_by_itself_in_the_tree(copied: Path) -> None:
    edit_begin(copied, 2, parent=3)
    with Tape(copied) as tape:
        starts = [line.split(" economy")[0] for line in tape.tree().splitlines()[1:]]
        assert starts == ["1", "2", "   3"]
        with pytest.raises(TapeError, match=r"run 2 .* came later"):
            tape.turns_frame(3)


def test_a_very_deep_tree_is_drawn(tmp_path: Path) -> None:
    with Tape(tmp_path / "deep.tape") as tape, tape.writing():
        for parent in range(1_010):  # deeper than Python's stack
            origin: Any = {"verb": "fork", "parent": parent, "fork_turn": 0} if parent else {}
            tape.add_run({}, name="deep", first=(0, "{}", "{}"), **origin)
        assert len(tape.tree().splitlines()) == 1_011


# What each run changed

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
    run = load(tape, 1).branch(1, make_client())
    economy = run.state.with_economy(GlobalState(inflation=9.5))
    run.turns[-1] = replace(run.turns[-1], state=economy)  # as a study does
    record(run, tape, verb="fork", parent=1, fork_turn=1)
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
    return lambda path: edit_begin(path, run, **changes)


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
