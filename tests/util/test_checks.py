"""Arguments of the wrong type or out of range: what passes, and what the refusal says."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from llmsim_lab._util.checks import items_of, longest_wait, real_number, whole_number
from llmsim_lab.errors import ConfigError


def test_numpys_numbers_pass_as_pythons_own() -> None:
    assert type(whole_number("turn", np.int64(3))) is int
    assert type(real_number("rate", np.float32(0.5))) is float
    assert real_number("rate", 2) == 2.0


@pytest.mark.parametrize(
    ("check", "value", "kind"),
    [
        *((whole_number, it, "whole") for it in (True, np.True_, 1.0, "1", None, [1], Decimal(1))),
        *((real_number, it, "finite") for it in (True, "1", None, float("nan"), float("inf"), 1j)),
    ],
)
def test_what_only_looks_like_a_number_is_refused(check: Any, value: object, kind: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"x={value!r} must be a {kind} number")):
        check("x", value)


def test_a_wait_is_any_time_above_0() -> None:
    for right in (0.005, np.float32(2), math.inf):
        assert longest_wait("x", right) == right
    for wrong in (0, -1, math.nan, "1", True):
        with pytest.raises(ConfigError, match=r"of seconds above 0; math\.inf waits without end"):
            longest_wait("x", wrong)


def test_a_list_of_right_items_without_an_end_is_read_up_to_a_limit() -> None:
    with pytest.raises(ConfigError, match=r"x=repeat\(1\) has more than 100,000 items; give fewer"):
        items_of("x", repeat(1), int, "numbers")
    with pytest.raises(ConfigError, match=r"x=array\(3\) must be numbers"):
        items_of("x", np.array(3), int, "numbers")


@pytest.mark.parametrize(
    ("limits", "value", "said"),
    [
        ({"least": 1}, 0, "n=0 must be a whole number from 1 on"),
        ({"least": 1, "most": 1_000}, 1_001, "n=1001 must be a whole number, 1 to 1,000"),
    ],
)
def test_a_number_out_of_range_is_told_the_range(
    limits: dict[str, Any], value: int, said: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        whole_number("n", value, **limits)
