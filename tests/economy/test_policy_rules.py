"""The Taylor rule, against its source and by hand."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from llmsim_lab.economy import TaylorRule
from llmsim_lab.errors import ConfigError


def ask(rule: TaylorRule, inflation: float = 2.0, gap: float = 0.0, previous: float = 4.0) -> float:
    return rule.rate(inflation=inflation, output_gap=gap, previous_rate=previous)


def test_the_defaults_are_the_formula_printed_in_the_1993_article() -> None:
    p, y = 5.3, -1.7
    assert ask(TaylorRule(), p, y) == pytest.approx(p + 0.5 * y + 0.5 * (p - 2) + 2, abs=1e-12)


def test_bound_and_inertia() -> None:
    assert ask(TaylorRule(), inflation=-1.0, gap=-8.0) == 0.0
    assert ask(TaylorRule(lower_bound=-inf), inflation=-1.0, gap=-8.0) == -4.5
    assert ask(TaylorRule(inertia=0.8), 4.0, previous=2.0) == pytest.approx(0.8 * 2 + 0.2 * 7)
    assert ask(TaylorRule(), previous=0.0) == ask(TaylorRule(), previous=15.0)


@pytest.mark.parametrize("inertia", [-0.1, 1.0, nan])
def test_inertia_outside_zero_to_one_is_named_in_the_error(inertia: float) -> None:
    with pytest.raises(ConfigError, match="inertia="):
        TaylorRule(inertia=inertia)


@pytest.mark.parametrize(
    ("rule", "seen", "named"),
    [
        *(({name: nan}, {}, f"{name}=nan") for name in ("inflation_target", "inflation_weight")),
        *(({"lower_bound": bound}, {}, f"lower_bound={bound}") for bound in (nan, inf)),
        *(({"inertia": 0.5}, {name: nan}, "nan") for name in ("inflation", "gap", "previous")),
    ],
)
def test_what_is_no_number_gives_no_rate_and_is_shown(rule: Any, seen: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named}.* finite"):
        ask(TaylorRule(**rule), **seen)
