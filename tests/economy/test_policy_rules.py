"""The Taylor rule, against its source and by hand."""

from __future__ import annotations

import math

import pytest

from llmsim_lab.economy import TaylorRule, initial_state
from llmsim_lab.errors import ConfigError


def ask(rule: TaylorRule, inflation: float = 2.0, gap: float = 0.0, previous: float = 4.0) -> float:
    return rule.rate(inflation=inflation, output_gap=gap, previous_rate=previous)


def test_the_defaults_are_the_formula_printed_in_the_1993_article() -> None:
    p, y = 5.3, -1.7
    assert ask(TaylorRule(), p, y) == pytest.approx(p + 0.5 * y + 0.5 * (p - 2) + 2, abs=1e-12)


def test_bound_and_inertia() -> None:
    assert ask(TaylorRule(), inflation=-1.0, gap=-8.0) == 0.0
    assert ask(TaylorRule(lower_bound=-math.inf), inflation=-1.0, gap=-8.0) == -4.5
    assert ask(TaylorRule(inertia=0.8), 4.0, previous=2.0) == pytest.approx(0.8 * 2 + 0.2 * 7)
    assert ask(TaylorRule(), previous=0.0) == ask(TaylorRule(), previous=15.0)


def test_in_1979q3_the_rule_asks_for_nineteen_percent() -> None:
    # By hand: 2 + 11.0853 + 0.5 * (11.0853 - 2) + 0.5 * 2.6063 = 18.931
    now = initial_state("1979Q3").global_state
    assert ask(TaylorRule(), now.inflation, now.output_gap) == pytest.approx(18.931, abs=0.001)


@pytest.mark.parametrize("inertia", [-0.1, 1.0, 1.5, math.nan])
def test_inertia_outside_zero_to_one_is_named_in_the_error(inertia: float) -> None:
    with pytest.raises(ConfigError, match="inertia="):
        TaylorRule(inertia=inertia)


@pytest.mark.parametrize(
    "name",
    ["neutral_real_rate", "inflation_target", "inflation_weight", "output_gap_weight"],
)
def test_a_parameter_that_is_not_finite_gives_no_rate_and_is_shown(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=nan"):
        ask(TaylorRule(**{name: math.nan}))


@pytest.mark.parametrize("bound", [math.nan, math.inf])
def test_a_lower_bound_that_nothing_can_meet_is_an_error(bound: float) -> None:
    with pytest.raises(ConfigError, match=f"lower_bound={bound}"):
        ask(TaylorRule(lower_bound=bound))


@pytest.mark.parametrize("name", ["inflation", "gap", "previous"])
def test_a_missing_number_in_the_data_is_an_error_rather_than_a_rate(name: str) -> None:
    with pytest.raises(ConfigError, match="finite"):
        ask(TaylorRule(inertia=0.5), **{name: math.nan})
