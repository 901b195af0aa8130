"""Exact probabilities beside people: nothing of the model is sampled, and people vary alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from people_kit import OFFERS, choosing, classic

from llmsim_lab.people import PublishedFigure
from llmsim_lab.study import PeopleComparison, compare_with_people, exact
from llmsim_lab.study.estimates.people import Margins, Weighted, compare_law

OFFERED = Counter(round(10 * share) for share in OFFERS.values)
"""How many people offered so many tenths of 5 dollars."""


def as_people_do(text: str) -> float:
    return OFFERED[round(2 * float(text))] / OFFERS.n


def of_dictator(share_of: object, *, twin: bool = False) -> Any:
    run = classic("splitting")(llm_client=choosing(share_of), decide="sample", twin=twin)
    [one] = compare_with_people(exact(run, turns=1))
    return one


def test_peoples_own_probabilities_are_like_them_without_any_group() -> None:
    one = of_dictator(as_people_do)
    assert one.verdict == "like people"
    assert (one.groups, one.decisions, one.mass) == (0, 0, pytest.approx(1))
    assert one.parts.difference.value == pytest.approx(0, abs=0.002)
    assert one.parts.spread.value == pytest.approx(1, abs=0.02)
    assert one.parts.distance.value == pytest.approx(0, abs=0.002)
    assert "exact, mass 1.00, 45 persons" in str(one)
    assert "the interval is of the people alone" in str(one)


def people_with(values: list[float], *, count: float | None = None) -> PublishedFigure:
    return PublishedFigure(
        study="drawn",
        condition="",
        source="",
        place="",
        n=len(values),
        mean=float(np.mean(values)),
        sd=None if count is not None else float(np.std(values, ddof=1)),
        values=() if count is not None else tuple(values),
        count=count,
    )


def test_of_shares_the_interval_of_values_is_that_of_their_count() -> None:
    law = Weighted(np.array([0.0, 1.0]), np.array([0.6, 0.4]))
    values = [1.0] * 5 + [0.0] * 15
    by_value = compare_law(law, people_with(values), Margins()).difference
    by_count = compare_law(law, people_with(values, count=5), Margins()).difference
    assert by_value.interval == pytest.approx(by_count.interval, abs=0.01)
    assert by_value.p_near == pytest.approx(by_count.p_near, abs=0.01)


def test_their_mean_in_one_amount_is_unlike_people() -> None:
    one = of_dictator(lambda text: 1.0 if text == "1" else 0.0)
    assert one.parts.difference.near == "near"
    assert (one.parts.spread.near, one.verdict) == ("far", "unlike people")
    assert one.answers == pytest.approx(1, abs=0.01)


def test_a_choice_of_two_is_a_share_with_its_probability() -> None:
    client = choosing(lambda text: 0.7 if "200 people" in text or "400 people" in text else 0.3)
    run = classic("framing")(llm_client=client, decide="sample")
    saved, lost = compare_with_people(exact(run, turns=1))
    assert (saved.mean, lost.mean) == (pytest.approx(0.7), pytest.approx(0.7))
    assert (saved.verdict, lost.verdict) == ("like people", "unlike people")


def test_a_recorded_law_is_compared_from_its_tape_and_nothing_is_asked(tmp_path: Path) -> None:
    run = classic("framing")(llm_client=choosing(lambda text: float(len(text))), decide="sample")
    played = compare_with_people(exact(run, turns=1, tape=tmp_path / "law.tape"))
    read = compare_with_people(tmp_path / "law.tape")
    assert str(read) == str(played)


def test_laws_of_chance_and_of_the_textbook_need_no_model() -> None:
    verdicts = {}
    for player in ("rule", "random"):
        run = classic("splitting")(players={"*": player}, decide="sample")
        [one] = compare_with_people(exact(run, turns=1))
        verdicts[player] = (round(one.mean, 3), one.verdict)
    assert verdicts == {"rule": (0.0, "unlike people"), "random": (0.5, "unlike people")}


def test_verdicts_of_many_measures_count_how_many_are_judged() -> None:
    client = choosing(lambda text: 0.65 if "200 people" in text else 0.35)
    run = classic("framing")(llm_client=client, decide="sample")
    saved, lost = compare_with_people(exact(run, turns=1))
    assert (saved.verdict, lost.verdict) == ("like people", "unlike people")
    together = PeopleComparison([saved, lost] * 10).adjusted()
    # Inside the margin with p = .01: one of twenty such measures may be so by chance.
    assert [one.verdict for one in together[:2]] == ["undecided", "unlike people"]
    assert together.label == "verdicts adjusted for 20 measures (Holm)"
