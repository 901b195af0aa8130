"""States and turns to and from JSON by their types, and where two of them differ."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from llmsim_lab.errors import ConfigError
from llmsim_lab.runs.turn import RunTurn
from llmsim_lab.text import clip

__all__ = ["adapter_of", "changed_values", "own_fields", "to_json"]

_COMMON = {field.name for field in fields(RunTurn)}
_TAKEN = {"turn", "planned"}


def changed_values(before: Any, after: Any) -> str:
    """Say which values of two mappings differ, at most three of them."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return "" if before == after else f"it was {_short(before)} and is {_short(after)}"
    changed = [
        f"{name} was {_short(before.get(name))} and is {_short(after.get(name))}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    return "; ".join(changed[:3])


def _short(value: object) -> str:
    return clip(repr(value), 80)


@lru_cache(maxsize=64)
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return what writes and reads values of a type."""
    return TypeAdapter(kind)


def to_json(adapter: TypeAdapter[Any], value: object) -> Any:
    """Return a value as plain lists, mappings, numbers and texts."""
    return adapter.dump_python(value, mode="json", by_alias=True)


@lru_cache(maxsize=64)
def own_fields(turn_type: Any) -> dict[str, TypeAdapter[Any]]:
    """Return what a turn's class adds to the common fields, with what writes and reads it."""
    hints = get_type_hints(turn_type)
    if taken := _TAKEN & hints.keys():
        raise ConfigError(
            f"{turn_type.__name__}.{taken.pop()}: a turn's record has something else of that name; "
            "call the field something else"
        )
    return {
        field.name: adapter_of(hints[field.name])
        for field in fields(turn_type)
        if field.name not in _COMMON
    }
