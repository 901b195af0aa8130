"""Checks of arguments: each returns the value, or raises an error of the same form for all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from operator import index
from typing import Any

from llmsim_lab._util.text import brief, closest, listed
from llmsim_lab.errors import ConfigError


def whole_number(
    name: str, value: object, *, least: int | None = None, most: int | None = None
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
    number = as_whole_number(value)
    fits = number is not None
    return int(
        _checked(name, value if number is None else number, fits, "a whole number", least, most)
    )


def as_whole_number(value: Any) -> int | None:
    """Return a whole number of any kind as an int; None for True, 1.0, "1" and all else."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def plain_number(value: Any) -> Any:
    """Return a number or truth value of numpy's as Python's, and all else as it is."""
    is_number = getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u", "f", "b")
    return value.item() if is_number and value.shape == () else value


def plain_numbers(values: Any) -> Any:
    """Return an array, a series, or a set of numbers as a list, and all else as it is."""
    is_several = hasattr(values, "tolist") and getattr(values, "shape", None) != ()
    return values.tolist() if is_several else values


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
    value = plain_number(value)
    fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    return float(_checked(name, value, fits, "a finite number", least, most))


def known_names(what: str, names: Any, known: Iterable[str]) -> tuple[str, ...]:
    """Return one name or several, in the order of those that there are.

    Args:
        what: they name, such as ``agent``.
        names: what was given.
        known: those that there are.

    Raises:
        ConfigError: one of them is not known.
    """
    alone = isinstance(names, str | Mapping) or not isinstance(names, Iterable)
    wanted, there = [names] if alone else list(names), dict.fromkeys(known)
    for name in wanted:
        if not isinstance(name, str) or name not in there:
            near = f"{closest(str(name), there)}; there are {listed([*there]) or 'none'}"
            raise ConfigError(f"there is no {what} {brief(name)}{near}")
    chosen = set(wanted)
    return tuple(name for name in there if name in chosen)


def _checked(
    name: str, value: Any, fits: bool, wanted: str, least: float | None, most: float | None
) -> Any:
    if fits and (least is None or value >= least) and (most is None or value <= most):
        return value
    if most is None:
        bounds = "" if least is None else f" from {least:,} on"
    else:
        bounds = f" up to {most:,}" if least is None else f", {least:,} to {most:,}"
    raise ConfigError(f"{name}={value!r:.120} must be {wanted}{bounds}")
