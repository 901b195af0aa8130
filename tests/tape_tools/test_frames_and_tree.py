"""What a tape's runs look like side by side: frames, comparisons, the tree, what each changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import answer, in_words, make_client, make_config, make_simulation, played
from tape_text import changed_manifest, rewrite

from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.models import GlobalState
from llmsim_lab.run import fork, load, replay, resume
from llmsim_lab.run.recorded import RunOrigin, record, unrecorded_fork
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify
from llmsim_lab.tape.changes import indented


def record_family(path: Path, *, name: str = "economy") -> Path:
    """Record run 1, three turns; run 2, its fork at turn 1; run 3, a fork of that one; close."""
    config = in_words(name=name, nations=("Aland", "Borduria"), turns=3, start_at="1979Q3")
    first = played(Simulation(config, llm_client=make_client(answer), tape=path))
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


def edit(path: Path, kind: str, change: Callable[[dict[str, Any]], Any], run: int = 0) -> None:
    """Change a run's lines of a kind, or those of all runs; members that are None are left out."""

    def changed(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("is") != kind or line["run"] != (run or line["run"]):
            return line
        return {name: value for name, value in change(line).items() if value is not None}

    rewrite(path, changed)


@pytest.mark.parametrize("run", [1, 2, 3])
def test_a_turns_frame_is_the_one_that_its_simulation_gives(family: Path, run: int) -> None:
    with Tape(family, read_only=True) as tape:
        assert tape.turns_frame(run).equals(load(tape, run).to_frame())
        assert load(tape, run).turns == replay(tape, run).turns


def test_a_comparison_has_both_values_and_their_difference_for_the_turns_that_both_have(
    family: Path,
) -> None:
    with Tape(family, read_only=True) as tape:
        frame = tape.compare(2, 3)
        a, b = tape.turns_frame(2), tape.turns_frame(3)
    assert (frame.index.name, frame.index.tolist()) == ("turn", [0, 1, 2, 3, 4])
    assert frame["inflation"].columns.tolist() == ["a", "b", "difference"]
    assert frame["inflation", "a"].tolist() == a["inflation"].tolist()
    assert frame["inflation", "b"].tolist() == b["inflation"].tolist()[:5]
    assert (frame["interest_rate", "difference"] == 0).all()


def test_a_comparison_goes_by_the_turns_of_the_lines_and_needs_a_number_that_both_have(
    copied: Path,
) -> None:
    edit(copied, "turn", lambda line: {**line, "row": {**line["row"], "turn": 1}}, 1)
    assert Tape(copied).compare(1, 2).index.tolist() == [0, 1, 2, 3]
    edit(copied, "turn", lambda line: {**line, "row": {"turn": line["turn"]}}, 2)
    edit(copied, "run", lambda line: {**line, "parent": None, "fork_turn": None}, 2)
    with pytest.raises(TapeError, match="they share no column of numbers; run 1 has turns 0 to 3 "):
        Tape(copied).compare(1, 2)
    edit(copied, "turn", lambda line: {**line, "row": 7}, 1)
    with pytest.raises(TapeError, match=r"turn 0 of run 1 .* damaged: row"):
        Tape(copied).turns_frame(1)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_fork_from_before_its_parents_own_fork_shares_only_the_turns_before(
    path: Path, elsewhere: bool
) -> None:
    made = make_simulation(interventions=[{"turn": 2, "set": {"inflation": 5}}])
    first = played(Simulation(made.config, llm_client=made.llm_client, tape=path), 4)
    second = played(first.fork(3), 1)
    to = path.with_name("other.tape") if elsewhere else None
    third = played(second.fork(1, intervene={"inflation": 9}, to=to), 1)
    tape = third.tape
    assert tape is not None
    frame = tape.turns_frame(3)
    assert frame["turn"].tolist() == [0, 1, 2]
    # What was planned for a turn is made when the turn is played again.
    assert frame["inflation"].tolist()[1:] == [9, 5]
    assert frame.equals(third.to_frame())
    assert replay(tape, 3).turns == third.turns
    assert verify(tape) == []


def test_the_tree_shows_what_came_from_what(family: Path) -> None:
    with Tape(family, read_only=True) as tape:
        title, *lines = tape.tree().splitlines()
    assert title.endswith("runs.tape': 3 runs>")
    assert lines == [
        "1 economy · run · turns 1 to 3 · done · scripted",
        "   2 economy · fork at turn 1 · prompt agent_policy: [-ONE-]{+exactly one+} · "
        "turns 2 to 4 · done · scripted",
        "      3 economy · fork at turn 4 · turn 4: shock.supply = 2 (oil) · turn 5 "
        "· done · scripted",
    ]


def test_branches_beside_each_other_are_told_apart_and_rules_have_no_model(path: Path) -> None:
    first = played(Simulation(make_config(name="rule"), tape=path), 1)
    first.fork(0).fork(0)
    first.fork(1)
    _, *lines = Tape(path).tree().splitlines()
    forks = [("   2", 0), ("      3", 0), ("   4", 1)]
    assert lines == ["1 rule · run · turn 1 · done · no model"] + [
        f"{place} rule · fork at turn {turn} · no turn yet · open · no model"
        for place, turn in forks
    ]


def test_a_run_whose_parent_did_not_come_first_stands_by_itself_in_the_tree(copied: Path) -> None:
    edit(copied, "run", lambda line: {**line, "parent": 3}, 2)
    with Tape(copied) as tape:
        starts = [line.split(" economy")[0] for line in tape.tree().splitlines()[1:]]
        assert starts == ["1", "2", "   3"]
        with pytest.raises(TapeError, match=r"run 2 .* came later"):
            tape.turns_frame(3)


def test_a_tree_deeper_than_pythons_stack_is_drawn() -> None:
    assert len(indented((run, run - 1 or None, "") for run in range(1, 2_000))) == 1_999


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
    assert tape.changes(2) == ["turn 1: inflation = 9"]
    assert tape.changes(3) == ["turn 1: shock.demand = -1"]


def test_a_fork_says_what_it_lacks_of_its_parents_interventions(tape: Tape) -> None:
    run = resume(tape, 1, llm_client=make_client())
    run.intervene(2, {"inflation": 9})
    run.run(1)
    forked = fork(tape, 1, turn=1, llm_client=make_client())
    assert tape.changes(2) == []
    forked.run(1)
    assert tape.changes(2) == ["without turn 2: inflation = 9"]


def test_an_intervention_that_a_run_and_its_fork_still_plan_is_no_change(tape: Tape) -> None:
    run = resume(tape, 1, llm_client=make_client())
    run.intervene(9, {"inflation": 9})
    run.run(1)
    fork(tape, 1, turn=2, llm_client=make_client())
    assert tape.changes(2) == []


def test_another_state_is_named_by_its_values(tape: Tape) -> None:
    run = unrecorded_fork(load(tape, 1), 1, make_client())
    economy = run.state.with_economy(GlobalState(inflation=9.5))
    run.turns[-1] = replace(run.turns[-1], state=economy)  # as a study does
    record(run, tape, origin=RunOrigin("fork", 1, 1))
    [change] = tape.changes(2)
    assert change.startswith("state: interest_rate 4.5 → 4, ")
    assert "inflation 2 → 9.5" in change


def test_an_edited_prompt_is_named_by_its_words_and_by_the_part_that_has_it_alone(
    tape: Tape,
) -> None:
    run = fork(tape, 1, turn=1, llm_client=make_client())
    prompt = run.prompt("agent_policy")
    fork(tape, 1, turn=1, llm_client=make_client(), prompt=prompt.replace(" ONE", ""))
    assert tape.changes(3) == ["prompt agent_policy: [- ONE-], [-ONE -]"]
    fork(tape, 1, turn=1, llm_client=make_client(), prompt=prompt.edit("x" * 10_001))
    assert "characters became 10," in tape.changes(4)[0]


def test_another_model_and_other_settings_are_named(tape: Tape) -> None:
    client = make_client(model="other", temperature=0.25, timeout_s=7, first_piece_s=9)
    load(tape, 1).fork(llm_client=client).run(1)
    assert tape.changes(2) == ['llm.model "auto" → "other"', "llm.temperature 0.7 → 0.25"]


def test_untrusted_words_are_printable_and_short(tape: Tape) -> None:
    done = [{"turn": 1, "set": {"inflation": 9}, "note": HOSTILE * 50}]
    fork(tape, 1, turn=1, llm_client=make_client(), intervene=done)
    [change] = tape.changes(2)
    assert change.isprintable()
    assert len(change) <= 160


@pytest.mark.parametrize(
    "damage",
    [
        *(
            lambda path, new=new: edit(path, "turn", lambda it: it | {"record": it["record"] | new})
            for new in ({"interventions": 7, "state": 8}, {"planned": [7, [], {}]}, {"turn": "1"})
        ),
        lambda path: changed_manifest(path, 1, config=3, llm=[], prompts=7, model="x"),
        lambda path: changed_manifest(path, 2, prompts={"a": 7, "b": {"text": 3}}, config={}),
        lambda path: edit(path, "run", lambda line: line | {"parent": 2, "fork_turn": 99}, 1),
        lambda path: edit(path, "run", lambda line: line | {"parent": 2}, 2),
    ],
)
def test_a_damaged_tape_still_has_a_tree(tape: Tape, damage: Callable[[Path], None]) -> None:
    fork(tape, 1, turn=1, llm_client=make_client()).close()
    damage(tape.path)
    assert len(Tape(tape.path, read_only=True).tree().splitlines()) == 3
