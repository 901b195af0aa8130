"""Exact probabilities beside people: nothing of the model is sampled, and people vary alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from people_kit import OFFERS, choosing, classic

from llmsim_lab.study import compare_with_people, exact

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
