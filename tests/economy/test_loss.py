"""The quadratic loss by which policies are compared."""

from __future__ import annotations

import math

import pytest

from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import ConfigError


def test_a_run_on_target_without_a_gap_or_a_change_loses_nothing() -> None:
    parts = QuadraticLoss().of(inflation=[9, 2, 2], output_gap=[3, 0, 0], interest_rate=[4, 4, 4])
    assert parts.total == 0


def test_each_part_is_a_mean_square_over_the_quarters_played() -> None:
    parts = QuadraticLoss().of(inflation=[2, 5, 3], output_gap=[0, -2, 4], interest_rate=[4, 6, 6])
    assert parts.inflation == (9 + 1) / 2
    assert parts.output_gap == (4 + 16) / 2
    assert parts.rate_change == (4 + 0) / 2


def test_the_benchmark_weights_are_those_of_the_source() -> None:
    parts = QuadraticLoss().of(inflation=[2, 5], output_gap=[0, 2], interest_rate=[4, 6])
    assert parts.total == 9 + 1.0 * 4 + 0.5 * 4


def test_the_weights_and_the_target_can_be_chosen() -> None:
    loss = QuadraticLoss(inflation_target=4, gap_weight=0.25, rate_change_weight=0)
    parts = loss.of(inflation=[2, 5], output_gap=[0, 2], interest_rate=[4, 6])
    assert parts.total == 1 + 0.25 * 4


def test_a_run_of_no_turn_has_no_loss() -> None:
    with pytest.raises(ConfigError, match="1, 1 and 1 quarters have no loss"):
        QuadraticLoss().of(inflation=[2], output_gap=[0], interest_rate=[4])


def test_series_of_different_lengths_are_errors() -> None:
    with pytest.raises(ConfigError, match="2, 3 and 2 quarters have no loss"):
        QuadraticLoss().of(inflation=[2, 2], output_gap=[0, 0, 0], interest_rate=[4, 4])


@pytest.mark.parametrize(
    ("field", "value"),
    [("gap_weight", -1), ("rate_change_weight", math.nan), ("inflation_target", math.inf)],
)
def test_a_weight_or_target_without_meaning_is_an_error(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        QuadraticLoss(**{field: value})
