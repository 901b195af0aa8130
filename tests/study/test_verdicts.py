"""What a comparison says in words, and what it leaves unsaid."""

from __future__ import annotations

from typing import Any

import pytest
from comparison_kit import make_comparison
from llmsim_lab.study._comparison import duration
from llmsim_lab.study._results import verdict

from llmsim_lab.study._statistics import Effect


def said(floor: float | None = 0.1, *, pairs: int = 6, **values: Any) -> str:
    known: dict[str, Any] = {"outcome": "confidence", "contrast": "b \u2212 a", "method": "t"}
    known |= {"n": 3, "unit": "situations", "speaks_of": "these 3 situations"}
    return verdict(Effect(**known | values), [floor, floor], pairs=pairs, failed=0)


def test_without_an_estimate_there_are_words_and_no_number() -> None:
    text = said(note="one answer a situation")
    assert (
        text
        == "confidence, b \u2212 a: no number (one answer a situation); 6 pairs used, 0 failed."
    )


def test_a_difference_without_a_noise_floor_says_so() -> None:
    text = said(None, estimate=0.2, low=0.1, high=0.3, p=0.01, p_family=0.01)
    assert "Evidence of a difference at these 3 situations." in text
    assert "takes two samples a turn" in text


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        (
            {"low": -0.1, "high": 0.5, "p": 0.151, "p_family": 0.151},
            "95 % interval -0.10 to +0.50, p = 0.151 (t); 6 pairs used, 0 failed. "
            "No evidence of a difference.",
        ),
        (
            {"low": 0.1, "high": 0.3, "p": 0.0004, "p_family": 0.0004},
            "95 % interval +0.10 to +0.30, p < 0.001 (t); 6 pairs used, 0 failed. "
            "Evidence of a difference at these 3 situations.",
        ),
        (
            {"low": 0.01, "high": 0.39, "p": 0.04, "p_family": 0.08},
            "95 % interval +0.01 to +0.39, p = 0.040, for all that is compared p = 0.080 (t); "
            "6 pairs used, 0 failed. Evidence of a difference by itself, but not once adjusted for "
            "all comparisons.",
        ),
        (
            {"note": "too coarse"},
            "b \u2212 a: +0.20 of 1 (t); 6 pairs used, 0 failed. No evidence either way.",
        ),
    ],
)
def test_a_verdict_follows_from_the_p_value_of_the_family(
    numbers: dict[str, Any], sentence: str
) -> None:
    assert sentence in said(estimate=0.2, **numbers)


@pytest.mark.parametrize("floor", [0.05, 0.5])
def test_the_noise_of_one_sample_changes_nothing_about_a_mean(floor: float) -> None:
    known = {"estimate": 0.2, "low": 0.1, "high": 0.3, "p": 0.01, "p_family": 0.01}
    before, _, after = said(floor, **known).partition(" Two single samples ")
    assert before.endswith("Evidence of a difference at these 3 situations.")
    assert after == (
        f"of one prompt at one state differ by {floor:g} and {floor:g} of 1 on average; that is "
        "about one answer, not about this mean."
    )


def test_one_pair_is_in_the_singular() -> None:
    assert "; 1 pair used, 0 failed." in said(pairs=1, note="too few")


async def test_single_samples_leave_the_noise_open_in_the_summary_too() -> None:
    experiment = make_comparison(samples=1)
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
