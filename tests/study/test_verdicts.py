"""What an experiment says in words, and what it leaves unsaid."""

from __future__ import annotations

from typing import Any

import pytest
from experiment_kit import make_experiment
from llmsim_lab.experiments._experiment import duration
from llmsim_lab.experiments._results import verdict
from llmsim_lab.experiments._statistics import Difference, Noise


def make_noise(floor: float | None) -> Noise:
    return Noise(
        outcome="confidence",
        variant="a",
        floor=floor,
        sd_within=floor,
        samples=4,
        failed=0,
        turns=2,
    )


def said(floor: float | None = 0.1, **values: Any) -> str:
    known = {"outcome": "confidence", "variant": "b", "reference": "a", "pairs": 6, "turns": 3}
    return verdict(Difference(**known | values), make_noise(floor), make_noise(floor))


def test_without_an_estimate_there_are_words_and_no_number() -> None:
    text = said(note="too few pairs for an interval: 1")
    assert text.startswith("confidence, b minus a: no number (too few pairs")


def test_a_difference_without_a_noise_floor_says_so() -> None:
    text = said(None, estimate=0.2, low=0.1, high=0.3, p_value=0.01, p_holm=0.01)
    assert "Evidence of a difference." in text
    assert "takes two samples a turn" in text


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        (
            {"low": -0.1, "high": 0.5, "p_value": 0.151, "p_holm": 0.151},
            "95 % interval -0.10 to +0.50, p = 0.151 (t); 6 pairs of 3 turns used, 0 failed. "
            "No evidence of a difference.",
        ),
        (
            {"low": 0.1, "high": 0.3, "p_value": 0.0004, "p_holm": 0.0004},
            "95 % interval +0.10 to +0.30, p < 0.001 (t); 6 pairs of 3 turns used, 0 failed. "
            "Evidence of a difference.",
        ),
        (
            {"low": 0.01, "high": 0.39, "p_value": 0.04, "p_holm": 0.08},
            "95 % interval +0.01 to +0.39, p = 0.040, for several variants (Holm) p = 0.080 (t); "
            "6 pairs of 3 turns used, 0 failed. Evidence of a difference by itself, but not once "
            "adjusted for the number of variants compared.",
        ),
        (
            {"low": 0.2, "high": 0.2, "p_value": 0.0, "p_holm": 0.0},
            "95 % interval +0.20 to +0.20 (t); 6 pairs of 3 turns used, 0 failed. There is no "
            "variation at all between the pairs.",
        ),
    ],
)
def test_a_verdict_follows_from_its_interval_and_the_p_value_that_stands_in_it(
    numbers: dict[str, float], sentence: str
) -> None:
    assert sentence in said(estimate=0.2, method="t", **numbers)


@pytest.mark.parametrize("floor", [0.05, 0.5])
def test_the_noise_of_one_sample_changes_nothing_about_a_mean(floor: float) -> None:
    known = {"estimate": 0.2, "low": 0.1, "high": 0.3, "p_value": 0.01, "p_holm": 0.01}
    before, _, after = said(floor, **known).partition(" Two single samples ")
    assert before.endswith("Evidence of a difference.")
    assert after == (
        f"of one prompt at one state differ by {floor:g} and {floor:g} of 1 on average; that is "
        "about one answer, not about this mean."
    )


def test_one_pair_of_one_turn_is_in_the_singular() -> None:
    assert "; 1 pair of 1 turn used, 0 failed." in said(pairs=1, turns=1, note="too few pairs")
    assert "; 6 pairs of 3 turns used, 0 failed." in said(note="too few pairs")


async def test_single_samples_leave_the_noise_open_in_the_summary_too() -> None:
    experiment = make_experiment(samples=1)
    await experiment.arun()
    assert experiment.summary["noise_floor"].isna().all()
    assert experiment.noise_frame["note"].str.contains("two samples a turn").all()


def test_times_are_written_for_people() -> None:
    assert [duration(s) for s in (0, 42.4, 99.6, 3_600, 9_000)] == [
        "0 s",
        "42 s",
        "2 min",
        "60 min",
        "2.5 h",
    ]


def test_a_note_stands_at_the_verdicts_end() -> None:
    assert said(estimate=0.2, low=0.1, high=0.3, note="few").endswith(" Note: few.")
