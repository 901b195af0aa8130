"""Runs, studies and tapes beside people: verdicts, twins, and what is no evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from people_kit import classic, like_people, on_offer, reciter, their_mean

from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import PeopleComparison, Study, compare_with_people


def played(player: Any, *, groups: int = 60, twins: bool = True) -> list[Any]:
    runs = []
    for seed in range(groups):
        for twin in (False, True)[: 1 + twins]:
            run = classic("splitting")(players={"*": player}, seed=seed, twin=twin)
            run.run()
            runs.append(run)
    return runs


def verdicts(compared: PeopleComparison) -> list[tuple[bool, str]]:
    return [(one.twin, one.verdict) for one in compared]


def test_who_draws_from_peoples_offers_is_like_them_in_both_stories() -> None:
    compared = compare_with_people(played(like_people, groups=100))
    assert verdicts(compared) == [(False, "like people"), (True, "like people")]
    assert compared.recital(compared[0]) == "like people in both"
    assert compared[0].people.n == 45
    assert "halves of the people" in str(compared)


def test_their_mean_with_a_tenth_of_their_spread_fails() -> None:
    [one] = compare_with_people(played(their_mean, twins=False))
    assert abs(one.parts.difference.value) < 0.05
    assert (one.verdict, one.parts.spread.near) == ("unlike people", "far")
    assert one.answers < 2.5  # of 60: nearly all say the same


@pytest.mark.process  # takes seconds
def test_who_knows_the_original_alone_recites() -> None:
    compared = compare_with_people(played(reciter, groups=100))
    assert compared.recital(compared[0]) == "recites"
    assert "original and altered twin: recites" in str(compared)
    assert compared.to_frame()["recital"].tolist() == ["recites", ""]


@pytest.mark.process  # takes seconds
def test_the_textbooks_dictator_is_unlike_people_in_both() -> None:
    compared = compare_with_people(played("rule", groups=30))
    assert compared.recital(compared[0]) == "unlike people in both"
    assert compared[0].mean == 0


def test_a_comparison_is_eighty_characters_wide_and_has_each_note_once() -> None:
    runs = []
    for twin in (False, True):
        run = classic("contributing")(players="random", turns=2, twin=twin)
        run.run()
        runs.append(run)
    printed = str(compare_with_people(runs))
    assert max(map(len, printed.splitlines())) <= 80
    assert printed.count("mean only") == 1
    heading, first, *_ = printed.splitlines()
    assert heading == "Contributing · rules; public_goods: 10 rounds, 20 tokens"
    assert first.startswith("  share@1: not judged; players 0.")
    # Each twin below its original; what is not judged says nothing of both together.
    assert printed.count("    its twin: not judged") == 4
    assert "original and altered twin" not in printed


def test_few_groups_and_a_small_margin_are_no_evidence_of_likeness() -> None:
    few = played(like_people, groups=4, twins=False)
    [one] = compare_with_people(few)
    assert (one.verdict, one.parts.difference.interval) == ("not judged", None)
    many = played(like_people, twins=False)
    compared = compare_with_people(many, margin=0.03)
    assert compared[0].verdict == "undecided"
    assert "near: a difference and a distance inside 0.03" in str(compared)
    assert "inside 0.03" in compared._repr_html_()


@pytest.mark.process  # takes seconds
def test_arms_of_a_study_are_compared_one_by_one_each_with_its_own_people() -> None:
    study = Study(
        classic("splitting"),
        {"game": ["dictator", "ultimatum"], "stake": [5, 10]},
        seeds=6,
        players={"*": like_people},
        outcome="share",
    )
    compared = compare_with_people(study.run(progress=False))
    assert [one.people.condition for one in compared] == [
        f"{game} ${stake}" for game in ("dictator", "ultimatum") for stake in ("10", "5")
    ]
    assert all(one.groups == 6 for one in compared)
    assert compared.label == ""


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


@pytest.mark.process  # takes seconds
def test_rounds_are_compared_one_by_one_and_groups_are_the_unit() -> None:
    runs = [classic("contributing")(players="random", seed=seed) for seed in range(5)]
    for run in runs:
        run.run()
    compared = compare_with_people(runs)
    assert len(compared) == 14
    first = next(one for one in compared if one.measure == "share@1")
    assert (first.groups, first.decisions, first.people.mean) == (5, 20, 0.616)
    assert first.parts.difference.interval is not None
    second = next(one for one in compared if one.measure == "share@2")
    assert second.parts.notes[0].startswith("mean only")
    html = compared._repr_html_()
    assert html.count("share@1") == 2  # share@10 too


def test_what_cannot_be_compared_is_an_error_that_says_why() -> None:
    with pytest.raises(ConfigError, match=r"Splitting has no figures of them"):
        compare_with_people(classic("splitting")(stake=7, players="random"))
    with pytest.raises(ConfigError, match="margin=0 must be above 0"):
        compare_with_people([], margin=0)

    class Wrong(classic("splitting")):
        def people(self) -> Any:
            return {"gift": super().people()["share"]}

    run = Wrong(players={"*": lambda question: on_offer(question, 0.5)})
    run.run()
    with pytest.raises(ConfigError, match=r"no column 'gift'; they have .*share"):
        compare_with_people(run)


@pytest.mark.parametrize(("shares", "answers"), [((0.1, 0.2, 0.3, 0.4), 4), ((0.1,) * 4, 1)])
def test_equal_answers_count_as_one_and_equally_frequent_ones_as_many(
    shares: tuple[float, ...], answers: float
) -> None:
    def player(question: Any) -> float:
        return on_offer(question, shares[question.run.seed])

    [one] = compare_with_people(played(player, groups=4, twins=False))
    assert one.answers == pytest.approx(answers)


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


@pytest.mark.parametrize("setting", ["margin", "spread_margin", "level"])
def test_a_margin_or_level_that_is_nan_is_an_error(setting: str) -> None:
    settings: dict[str, Any] = {setting: float("nan")}
    with pytest.raises(ConfigError, match=f"{setting}=nan must be a finite number"):
        compare_with_people([], **settings)
    with pytest.raises(ConfigError, match="level=2 must be above 0 and below 1"):
        compare_with_people([], level=2)
