"""What an experiment says in words, and what it refuses to say."""

from __future__ import annotations

from typing import Any

import pytest
from experiment_kit import make_experiment

from llmsim_lab.experiments import Difference, Noise
from llmsim_lab.experiments.plan import duration
from llmsim_lab.experiments.results import verdict


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
    assert text.startswith("confidence, b less a: no number (too few pairs")


def test_a_difference_without_a_noise_floor_says_so() -> None:
    text = said(None, estimate=0.2, low=0.1, high=0.3)
    assert "does not hold zero" in text
    assert "takes two samples a turn" in text


@pytest.mark.parametrize(("estimate", "size"), [(0.2, "more"), (0.05, "less"), (-0.1, "no more")])
def test_a_difference_is_held_against_the_noise(estimate: float, size: str) -> None:
    text = said(estimate=estimate, low=-1.0, high=1.0)
    assert f"the difference is {size} than that noise" in text
    assert "this is no evidence of a difference" in text


def test_one_pair_of_one_turn_is_in_the_singular() -> None:
    assert "; 1 pair of 1 turn used, 0 failed." in said(pairs=1, turns=1, note="too few pairs")
    assert "; 6 pairs of 3 turns used, 0 failed." in said(note="too few pairs")


async def test_single_samples_leave_the_noise_open_in_the_summary_too() -> None:
    experiment = make_experiment(samples=1)
    await experiment.run()
    assert experiment.summary["noise_floor"].isna().all()
    assert experiment.summary["beyond_noise"].isna().all()
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
