"""Checks of arguments: each returns the value, or raises an error of the same form for all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sized
from numbers import Real
from operator import index
from typing import Any, TypeVar

from llmsim_lab._util.text import brief, closest, listed
from llmsim_lab.errors import ConfigError

Value = TypeVar("Value")

_MOST_NUMBERS = 10_000_000
"""Of an array that becomes a list of Python's numbers."""
_MOST_ITEMS = 100_000
"""Of an argument that lists things: a generator or a range may have no end."""


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
    number = as_whole_number(value)
    if number is not None and _is_within(number, least, most):
        return number
    # Of a number not the value, which numpy writes as np.int64(3).
    shown = value if number is None else number
    bounds = _in_words(least, most)
    raise ConfigError(f"{name}={brief(shown, 120)} must be a whole number{bounds}")


def as_whole_number(value: Any) -> int | None:
    """Return a whole number of any kind as an int; None for True, 1.0, "1" and all else."""
    # index() takes True for 1.
    if isinstance(value, bool):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def plain_number(value: Any) -> Any:
    """Return a number or truth value of numpy's as Python's, and all else as it is."""
    # Signed, unsigned, floating and bool, by numpy's letters; without importing numpy.
    dtype = getattr(value, "dtype", None)
    is_number = getattr(dtype, "kind", "") in ("i", "u", "f", "b")
    if is_number and value.shape == ():
        return value.item()
    return value


def plain_numbers(values: Any) -> Any:
    """Return an array, a series, or a set of numbers as a list, and all else as it is.

    Raises:
        ConfigError: it has too many numbers.
    """
    # An array of no dimension is a number, which plain_number takes.
    if not hasattr(values, "tolist") or getattr(values, "shape", None) == ():
        return values
    check_array(values)
    return values.tolist()


def check_array(value: object) -> None:
    """Raise ConfigError for an array beyond all size: numpy's broadcast_to needs no memory."""
    # Of torch's arrays it is a method.
    size = getattr(value, "size", None)
    if isinstance(size, int) and size > _MOST_NUMBERS:
        raise ConfigError(
            f"an array of {size:,} numbers is given; at most {_MOST_NUMBERS:,} can be"
        )


def item_count(values: Sized) -> float:
    """Return how many items there are; ``math.inf`` for a range of more than Python counts."""
    try:
        return len(values)
    except OverflowError:
        return math.inf
    except TypeError:  # an array of numpy's without a dimension
        return 1


def real_number(
    name: str,
    value: object,
    *,
    least: float | None = None,
    most: float | None = None,
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
    number = plain_number(value)
    if is_number(number) and _is_finite(number) and _is_within(number, least, most):
        return float(number)
    bounds = _in_words(least, most)
    raise ConfigError(f"{name}={brief(number, 120)} must be a finite number{bounds}")


def is_number(value: object) -> bool:
    """Return whether a value is a number, finite or not; True and "1" are not."""
    number = plain_number(value)
    # True is a Real too.
    return isinstance(number, Real) and not isinstance(number, bool)


def longest_wait(name: str, value: object) -> float:
    """Return a time limit, seconds; ``math.inf`` is none.

    Raises:
        ConfigError: it is not a number above 0.
    """
    number = plain_number(value)
    # A comparison with NaN is False.
    if not is_number(number) or not number > 0:
        raise ConfigError(
            f"{name}={brief(number)} must be a number of seconds above 0; math.inf waits without "
            "end"
        )
    if number == math.inf:
        return math.inf
    return real_number(name, number)


def text_argument(name: str, value: object) -> str:
    """Return an argument that must be a text.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{name}={brief(value)} must be a text")
    return value


def yes_or_no(name: str, value: object) -> bool:
    """Return an argument that must be True or False, numpy's too.

    Raises:
        ConfigError: it is something else.
    """
    answer = plain_number(value)
    if not isinstance(answer, bool):
        raise ConfigError(f"{name}={brief(answer)} must be True or False")
    return answer


def instance_of(
    name: str,
    value: Value,
    kinds: Any,
    right: str,
) -> Value:
    """Return an argument that must be of a class, or have the methods of a protocol.

    Args:
        name: of the argument, as the caller wrote it.
        value: what was given.
        kinds: the class or protocol, or several.
        right: what is right, in words.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, kinds):
        raise ConfigError(f"{name}={brief(value)} must be {right}")
    return value


def items_of(
    name: str,
    values: Any,
    kind: type,
    right: str,
    *,
    most: int = _MOST_ITEMS,
) -> list[Any]:
    """Return the items of a list, or other iterable, that must all be of a class.

    Args:
        name: as for ``instance_of``.
        values: what was given.
        kind: the class.
        right: what is right, in words.
        most: how many there may be.

    Raises:
        ConfigError: an item is something else, there are none to read, or too many.
    """
    try:
        # A text is one item that was not put into a list.
        unread = None if isinstance(values, str) else iter(values)
    except TypeError:  # not a list, or an array of numpy's without a dimension
        unread = None
    if unread is None:
        raise ConfigError(f"{name}={brief(values)} must be {right}")
    # One by one, so that an iterable without an end stops at its first wrong item, or at the limit.
    items: list[Any] = []
    for item in unread:
        if not isinstance(item, kind):
            raise ConfigError(f"{name} has {brief(item)} in it; it must be {right}")
        if len(items) == most:
            raise ConfigError(f"{name}={brief(values)} has more than {most:,} items; give fewer")
        items.append(item)
    return items


def known_names(
    kind: str,
    names: object,
    right_names: Iterable[str],
) -> tuple[str, ...]:
    """Return one or several names, in the order of the right ones.

    Args:
        kind: the kind of thing that has these names, such as ``agent``.
        names: the given name, or names.
        right_names: the names that there are.

    Raises:
        ConfigError: a given name is not a right one.
    """
    every_name = dict.fromkeys(right_names)
    wanted: Iterable[object] = [names]
    if isinstance(names, Iterable) and not isinstance(names, str | Mapping):
        wanted = names
    chosen = set()
    for place, name in enumerate(wanted):
        if place == _MOST_ITEMS:
            raise ConfigError(f"more than {_MOST_ITEMS:,} names of a kind {kind} are given")
        if not isinstance(name, str) or name not in every_name:
            raise ConfigError(
                f"there is no {kind} {brief(name)}{closest(name, every_name)}; there are "
                f"{listed([*every_name]) or 'none'}"
            )
        chosen.add(name)
    # In the order of the right names, so that the same choice gives the same order.
    return tuple(name for name in every_name if name in chosen)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number of more than 308 digits, which no float holds
        return False


def _is_within(
    number: float,
    least: float | None,
    most: float | None,
) -> bool:
    is_too_small = least is not None and number < least
    is_too_large = most is not None and number > most
    return not is_too_small and not is_too_large


def _in_words(least: float | None, most: float | None) -> str:
    """Return how a message on a number ends: what it has to lie between."""
    if least is not None and most is not None:
        return f", {least:,} to {most:,}"
    if least is not None:
        return f" from {least:,} on"
    if most is not None:
        return f" up to {most:,}"
    return ""
