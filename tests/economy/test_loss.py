"""The quadratic loss by which policies are compared."""

from __future__ import annotations

import math
from typing import Any

import pytest

from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import ConfigError


def run(inflation: Any, output_gap: Any, interest_rate: Any) -> dict[str, list[float]]:
    return {"inflation": inflation, "output_gap": output_gap, "interest_rate": interest_rate}


def test_each_part_is_a_mean_square_over_the_quarters_played() -> None:
    parts = QuadraticLoss().of(run([2, 5, 3], [0, -2, 4], [4, 6, 6]))
    assert (parts["inflation"], parts["output_gap"]) == ((9 + 1) / 2, (4 + 16) / 2)
    assert parts["rate_change"] == (4 + 0) / 2
    assert parts["loss"] == 5 + 1.0 * 10 + 0.5 * 2  # the benchmark's weights
    assert QuadraticLoss().of(run([9, 2, 2], [3, 0, 0], [4, 4, 4]))["loss"] == 0
    loss = QuadraticLoss(inflation_target=4, gap_weight=0.25, rate_change_weight=0)
    assert loss.of(run([2, 5], [0, 2], [4, 6]))["loss"] == 1 + 0.25 * 4


@pytest.mark.parametrize("gaps", [[0], [0, 0, 0]])
def test_a_run_of_no_turn_and_columns_of_different_lengths_have_no_loss(gaps: Any) -> None:
    with pytest.raises(ConfigError, match=f"1, {len(gaps)} and 1 quarters have no loss"):
        QuadraticLoss().of(run([2], gaps, [4]))
    for no_numbers in ([0, None], "23", [True, 1]):
        with pytest.raises(ConfigError, match="a dict of numbers by inflation, output_gap"):
            QuadraticLoss().of(run([2, 3], no_numbers, [4, 4]))
    assert math.isnan(QuadraticLoss().of(run([2, math.nan], [0, 0], [4, 4]))["loss"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("gap_weight", -1), ("rate_change_weight", math.nan), ("inflation_target", math.inf)],
)
def test_a_weight_or_target_without_meaning_is_an_error(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        QuadraticLoss(**{field: value})
