"""Checks of arguments: each returns the value, or raises an error of the same form for all."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from llmsim_lab.errors import ConfigError


def whole_number(
    name: str,
    value: object,
    *,
    least: int | None = None,
    most: int | None = None,
) -> int:
    """Return a whole number, numpy's too, as an int; True, 1.0 and "1" are not whole numbers.

    Args:
        name: of the argument, as the caller wrote it.
        value: what was given.
        least: the smallest number allowed; any if not given.
        most: the largest.

    Raises:
        ConfigError: it is not a whole number, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or _outside(value, least, most):
        raise _wrong(name, value, "a whole number", least, most)
    return int(value)


def real_number(
    name: str, value: object, *, least: float | None = None, most: float | None = None
) -> float:
    """Return a finite number as a float; True and "1" are not numbers.

    Args:
        name: of the argument, as the caller wrote it.
        value: what was given.
        least: as for ``whole_number``.
        most: likewise.

    Raises:
        ConfigError: it is not a number, not finite, or out of range.
    """
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not math.isfinite(number) or _outside(number, least, most):
        raise _wrong(name, value, "a finite number", least, most)
    return number


def _outside(number: Any, least: float | None, most: float | None) -> bool:
    return (least is not None and number < least) or (most is not None and number > most)


def _wrong(
    name: str, value: object, wanted: str, least: float | None, most: float | None
) -> ConfigError:
    if most is None:
        bounds = "" if least is None else f" from {least:,} on"
    else:
        bounds = f" up to {most:,}" if least is None else f", {least:,} to {most:,}"
    return ConfigError(f"{name}={value!r:.120} must be {wanted}{bounds}")
