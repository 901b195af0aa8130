"""Runs, studies and tapes beside people: verdicts, twins, and what is no evidence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
from people_kit import classic, like_people, on_offer, their_mean

from llmsim_lab import LLMClient, LLMConfig, Person, ScriptedBackend, load
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import OpenQuestion
from llmsim_lab.people import Population
from llmsim_lab.run.reading import Reading
from llmsim_lab.study import PeopleComparison, Study, compare_with_people, exact
from llmsim_lab.tape import RunInfo


def played(player: Any, *, groups: int = 60, twins: bool = True) -> list[Any]:
    runs = []
    for seed in range(groups):
        for twin in (False, True)[: 1 + twins]:
            run = classic("splitting")(players={"*": player}, seed=seed, twin=twin)
            run.run()
            runs.append(run)
    return runs


def shown_people(run: Any) -> Any:
    """Return what a page or window of a run shows of people."""
    reading = Reading("")
    reading.add(RunInfo(id=1, name="", verb="run", started="", turns=0, calls=0, manifest={}), run)
    return reading.runs[1]["people"]


def verdicts(compared: PeopleComparison) -> list[tuple[bool, str]]:
    return [(one.twin, one.verdict) for one in compared]


def test_who_draws_from_peoples_offers_is_like_them_in_both_stories() -> None:
    compared = compare_with_people(played(like_people, groups=50))
    assert verdicts(compared) == [(False, "like people"), (True, "like people")]
    assert compared.recital(compared[0]) == "like people in both"
    assert compared[0].people.n == 45
    assert "halves of the people" in str(compared)


def test_their_mean_with_a_tenth_of_their_spread_fails() -> None:
    [one] = compare_with_people(played(their_mean, twins=False))
    assert abs(one.parts.difference.value) < 0.05
    assert (one.verdict, one.parts.spread.near) == ("unlike people", "far")
    assert one.answers < 2.5  # of 60: nearly all say the same


def test_what_is_not_judged_is_a_table_with_each_twin_below_its_original() -> None:
    runs = []
    for twin in (False, True):
        run = classic("contributing")(players="random", twin=twin)
        run.run(2)
        runs.append(run)
    printed = str(compare_with_people(runs))
    heading, unjudged, columns, first, *_ = printed.splitlines()
    assert heading == "Contributing · chance; public_goods: 10 rounds, 20 tokens"
    assert unjudged == "  not judged (1 group, 362 persons)"
    assert columns.split()[:2] == ["players", "people"]
    assert first.split()[0] == "share@1"
    assert printed.count("\n      its twin") == 4


def test_a_tape_is_compared_as_it_was_played(tmp_path: Path) -> None:
    def answer(request: Any) -> dict[str, object]:
        return {"reasoning": "", "amount": 1.0, "confidence": 1}

    client = LLMClient(LLMConfig(model="script"), ScriptedBackend(answer))
    path = tmp_path / "offers.tape"
    for seed in range(6):
        run = classic("splitting")(llm_client=client, tape=path, seed=seed)
        run.run()
        run.close()
    [one] = compare_with_people(path)
    assert (one.groups, one.answers) == (6, 1.0)
    assert (one.mean, one.sd) == pytest.approx((0.2, 0.0))
    assert one.arm == "script; forsythe_1994: dictator $5"
    # Six equal answers are few: of people most of whom decide alike, six are often equal too.
    assert one.verdict == "undecided"


def test_what_cannot_be_compared_is_an_error_that_says_why() -> None:

    class Unpublished(classic("splitting")):
        def people(self) -> Any:
            return {}

    with pytest.raises(ConfigError, match="Unpublished has no figures of them"):
        compare_with_people(Unpublished(players="random"))
    with pytest.raises(ConfigError, match="margin=0 must be above 0"):
        compare_with_people([], margin=0)

    class Wrong(classic("splitting")):
        def people(self) -> Any:
            return {"gift": super().people()["share"]}

    run = Wrong(players={"*": lambda question: on_offer(question, 0.5)})
    run.run()
    with pytest.raises(ConfigError, match=r"no column 'gift'; they have .*share"):
        compare_with_people(run)


@pytest.mark.parametrize(
    ("name", "parameters", "difference"),
    [
        ("splitting", {"stake": 7}, "stake=7.0, and people played 5 or 10"),
        ("splitting", {"turns": 4}, "turns=4, and people played 1"),
        ("investing", {"turns": 2}, "turns=2, and people played 1"),
        ("framing", {"turns": 2}, "turns=2, and people played 1"),
        ("disjunction", {"turns": 2}, "turns=2, and people played 1"),
        ("guessing", {"players_in_group": 3}, "players_in_group=3, and people played 15 to 18"),
        ("guessing", {"factor": 0.9}, "factor=0.9, and people played 0.5, 0.6666666666666666 or"),
        ("guessing", {"turns": 10}, "turns=10, and people played 1 to 4"),
        ("contributing", {"returned": 0.6}, "returned=0.6, and people played 0.4"),
        ("contributing", {"turns": 5}, "turns=5, and people played 10"),
        ("contributing", {"turns": 9, "returned": 2}, "people played 10; returned=2.0, and people"),
    ],
)
def test_of_a_design_that_nobody_played_there_are_no_figures_and_the_parameter_is_named(
    name: str, parameters: dict[str, Any], difference: str
) -> None:
    run = classic(name)(players="random", **parameters)
    run.run(1)
    assert run.people() == {}
    assert shown_people(run) == []
    with pytest.raises(ConfigError, match=f"1 run of {type(run).__name__} left out: ") as error:
        compare_with_people(run)
    assert difference in str(error.value)


def test_a_run_that_is_played_on_and_a_law_of_more_turns_are_another_design() -> None:
    run = classic("splitting")(players="random")
    run.run(2)
    law = exact(classic("splitting")(players="random"), turns=2)
    law.run()
    for played_twice in (run, law):
        with pytest.raises(ConfigError, match="turns=2, and people played 1"):
            compare_with_people(played_twice)


def test_a_start_that_nobody_played_is_another_design(tmp_path: Path) -> None:
    world = classic("contributing")
    usual = world(players="random", state=world.state_type())
    assert usual.played_otherwise() == []
    run = world(players="random", state=world.state_type(share=1.0), tape=tmp_path / "own.tape")
    run.run(1)
    run.close()
    assert run.people() == {}
    assert shown_people(run) == []
    with pytest.raises(ConfigError, match="1 run of Contributing left out: a start state of its o"):
        compare_with_people(tmp_path / "own.tape")


def test_the_same_run_counts_once(tmp_path: Path) -> None:
    run = classic("splitting")(players="random", tape=tmp_path / "one.tape")
    run.run()
    other = classic("splitting")(players="random", seed=1)
    other.run()
    compared = compare_with_people([run, load(tmp_path / "one.tape"), other, other])
    assert compared[0].groups == 2
    assert compared.label == "2 runs left out: the same as another in the list"


def test_a_fork_of_a_run_in_the_list_is_no_second_group(tmp_path: Path) -> None:
    for tape in (None, tmp_path / "forks.tape"):
        run = classic("contributing")(players="random", tape=tape)
        run.run()
        later = run.fork(5)
        anew = run.fork(0)
        for fork in (later, anew):
            fork.run(run.turn_number - fork.turn_number)
        compared = compare_with_people([run, later, anew, later.fork(7)])
        assert {likeness.groups for likeness in compared} == {2}
        assert "2 runs left out: forks, whose first turns are those of ano" in compared.label


def test_arms_that_people_did_not_play_are_left_out_and_counted() -> None:
    study = Study(
        classic("contributing"),
        {"returned": [0.4, 0.6]},
        seeds=1,
        players="random",
        outcome="share",
    )
    compared = compare_with_people(study.run(progress=False))
    assert {one.arm for one in compared} == {"returned=0.4"}
    assert compared.label == ("1 run of Contributing left out: returned=0.6, and people played 0.4")


def test_what_people_played_names_parameters() -> None:
    class Misnamed(classic("splitting")):
        people_played: ClassVar[Any] = {"stakes": [5]}

    with pytest.raises(ConfigError, match=r"names 'stakes', which is no parameter \(did you mean"):
        Misnamed(players="random").people()
    for wrong in (None, 3, ["stake"]):
        Misnamed.people_played = wrong
        with pytest.raises(ConfigError, match=r"of Misnamed is .*by parameter: \{'stake': \[5, 10"):
            Misnamed(players="random").people()
    for value in (5, None, "5", b"5"):
        Misnamed.people_played = {"stake": value}
        with pytest.raises(ConfigError, match=r"for stake; list the values"):
            Misnamed(players="random").people()


def test_values_that_people_played_are_named_one_by_one() -> None:
    class Stepped(classic("splitting")):
        people_played = {"turns": range(2, 11, 4)}  # noqa: RUF012 - as authors write it

    run = Stepped(players="random")
    assert run.played_otherwise(0) == ["turns=0, and people played 2, 6 or 10"]
    Stepped.people_played = {"turns": []}
    with pytest.raises(ConfigError, match=r"has \[\] for turns; list the values"):
        run.played_otherwise()


def test_a_twin_has_figures_in_a_comparison_alone() -> None:
    run = classic("splitting")(players="random", twin=True)
    run.run()
    assert len(compare_with_people(run)) == 1
    assert shown_people(run) == []


def test_chance_rules_and_populations_are_not_compared_as_one() -> None:
    population = Population.from_table(pd.DataFrame({"age": [30]}), names=["A"])
    players: list[dict[str, Any]] = [
        {"players": "random"},
        {"players": "rule"},
        {"players": "rule", "population": population},
    ]
    runs = [classic("splitting")(**player) for player in players]
    for run in runs:
        run.run()
    arms = [one.arm.split(";")[:-1] for one in compare_with_people(runs)]
    assert arms == [["chance"], ["rules", " a population of 1"], ["rules"]]


def test_edited_prompts_and_interventions_are_said() -> None:
    run = classic("splitting")(players="random")
    run.run()
    [prompt] = run.prompts.values()
    edited = run.fork(0, prompt=prompt.replace("You are", "Your name is"))
    edited.run()
    assert (len(shown_people(run)), shown_people(edited)) == (1, [])
    compared = compare_with_people([run, edited])
    assert compared.label == (
        "1 run with edited prompts or interventions, beside people of the design without them"
    )


def test_groups_without_people_are_left_out_and_filled_decisions_are_counted() -> None:
    async def never(question: OpenQuestion) -> Any:
        await asyncio.sleep(3600)

    present = Person(ask=lambda question: {"amount": 5})
    absent = Person(ask=never, timeout_s=0.01, stand_in="random")
    runs = []
    for others in (present, absent):
        run = classic("contributing")(players={"A": absent, "*": others})
        run.run(1)
        runs.append(run)
    compared = compare_with_people(runs)
    assert compared.label == (
        "1 group without people left out; 1 of 4 decisions of people were filled in"
    )
    assert compared[0].groups == 1
    present_alone = classic("splitting")(players={"A": present})
    present_alone.run()
    of_class = compare_with_people(present_alone)
    assert of_class[0].arm == "class; forsythe_1994: dictator $5"
    assert "class  people" in str(of_class)
    assert ">class</th>" in of_class._repr_html_()


def test_runs_that_failed_are_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    def fails_for_two(question: Any) -> float:
        if question.run.seed < 2:
            raise ValueError("no idea")
        return 1.0

    study = Study(classic("splitting"), seeds=7, players={"*": fails_for_two}, outcome="share")
    study.run(progress=False)
    compared = compare_with_people(study)
    assert compared[0].groups == 5
    assert str(compared).startswith("2 of 7 runs failed or were not played\n")


def test_of_a_study_whose_runs_all_failed_the_first_failure_is_repeated() -> None:
    def fails(question: Any) -> float:
        raise ValueError("no idea")

    study = Study(classic("splitting"), seeds=2, players={"*": fails}, outcome="share")
    study.run(progress=False)
    with pytest.raises(ConfigError, match=r"no run that was played; the first failed: .*no idea"):
        compare_with_people(study)
