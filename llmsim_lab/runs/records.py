"""A turn to and from the JSON that a tape holds.

Calls are not written again: the turn names its calls by their numbers on the tape, and whatever in
it refers to a call or a chain of the turn says its place among them. All else is written by the
types of the state, of the interventions, and of the fields that the turn's class adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from llmsim_lab.calls import Attempt, CallRecord, Places
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm.tape._changes import flat
from llmsim_lab.llm.tape._codec import dumps, read
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.frames import turn_row
from llmsim_lab.runs.settings import RunIntervention
from llmsim_lab.runs.turn import RunTurn
from llmsim_lab.text import clip

if TYPE_CHECKING:
    from llmsim_lab.runs.base import Run

__all__ = [
    "AnyKind",
    "AnyTurn",
    "Planned",
    "changed_values",
    "decode_turn",
    "interventions_of",
    "planned_in",
    "record_of",
    "row_text",
    "tape_turn",
]

AnyKind = type["Run"]
AnyTurn = RunTurn[Any, Any]
Planned = Mapping[int, Sequence[RunIntervention]]

_COMMON = {field.name for field in fields(RunTurn)}
_TAKEN = {"turn", "planned"}
_CALLS: TypeAdapter[Any] = TypeAdapter(tuple[CallRecord, ...])
_CHAINS: TypeAdapter[Any] = TypeAdapter(tuple[LLMReasoningChain, ...])


def tape_turn(kind: AnyKind, turn: AnyTurn, planned: Planned) -> tuple[int, str, str]:
    """Return a turn as the tape takes it: number, record, and row of the run's frame.

    Args:
        kind: the simulation's class.
        turn: the turn, its calls recorded.
        planned: what is to be done from outside, by turn.

    Raises:
        TapeError: a call was not recorded, so that the turn could not be replayed.
    """
    later = [item for at in sorted(planned) if at > turn.number for item in planned[at]]
    record, row = record_of(kind, turn, later), turn_row(turn, kind.own_columns(turn))
    try:
        return turn.number, dumps(record), dumps(row)
    except ValueError as error:
        raise TapeError(
            f"turn {turn.number} cannot be written: it holds a number that is not finite (NaN or "
            f"Infinity), which JSON has no form for ({error}); look for a division by zero in what "
            "made the state"
        ) from error


def row_text(kind: AnyKind, turn: AnyTurn) -> str:
    """Return a turn's row of the run's frame as a JSON object."""
    return dumps(turn_row(turn, kind.own_columns(turn)))


def record_of(
    kind: AnyKind, turn: AnyTurn, planned: Sequence[RunIntervention] = ()
) -> dict[str, Any]:
    """Return a turn's record, JSON-ready.

    Args:
        kind: the simulation's class.
        turn: the turn.
        planned: what is to be done from outside at later ones.

    Raises:
        TapeError: a call was not recorded.
    """
    adapter, own = _adapter_of(kind)
    values = {
        "state": turn.state,
        "turn": turn.number,
        "seconds": turn.seconds,
        "interventions": turn.interventions,
        "planned": tuple(planned),
        **{name: getattr(turn, name) for name in own},
    }
    calls = [[call.status, call.numbers] for call in turn.calls]
    return {
        **_plain(adapter, values, Places(turn.calls, turn.chains)),
        "calls": calls,
        "chains": _plain(_CHAINS, turn.chains, Places(turn.calls)),
    }


def _plain(adapter: TypeAdapter[Any], value: object, places: Places) -> Any:
    try:
        return adapter.dump_python(value, mode="json", by_alias=True, context=places)
    except PydanticSerializationError as error:
        raise TapeError(f"a turn cannot be written: {error}") from error


def _adapter_of(kind: AnyKind) -> tuple[TypeAdapter[Any], Sequence[str]]:
    """Return what writes and reads a record but for calls and chains, and the turn's own fields."""
    types: Any = kind.turn_type, kind.state_type, kind.intervention_type
    return _made_of(*types)


@lru_cache(maxsize=64)
def _made_of(
    turn_type: Any, state_type: Any, intervention_type: Any
) -> tuple[TypeAdapter[Any], Sequence[str]]:
    """Return the adapter of these types, and the names of the fields that the turn's class adds.

    Raises:
        ConfigError: such a field has the name of something else in the record.
    """
    hints = get_type_hints(turn_type, include_extras=True)
    if taken := _TAKEN & hints.keys():
        raise ConfigError(
            f"{turn_type.__name__}.{taken.pop()}: a turn's record has something else of that name; "
            "call the field something else"
        )
    own = [field.name for field in fields(turn_type) if field.name not in _COMMON]
    items: dict[str, Any] = {
        "state": state_type,
        "turn": int,
        "seconds": float,
        "interventions": tuple[intervention_type, ...],
        "planned": tuple[intervention_type, ...],
        **{name: hints[name] for name in own},
    }
    record: Any = TypedDict("Record", items)  # type: ignore[misc]
    return TypeAdapter(with_config(ConfigDict(extra="forbid"))(record)), own


def decode_turn(
    kind: AnyKind, record: Mapping[str, Any], attempts: Callable[[int], Attempt]
) -> Any:
    """Return the turn that a record holds; its values must be of their types exactly.

    Args:
        kind: the simulation's class.
        record: the parsed JSON.
        attempts: gives the attempt of a number on the tape.

    Raises:
        TapeError: the record does not hold what it should; the tape is damaged.
    """
    adapter, own = _adapter_of(kind)
    rest = dict(record)
    try:
        calls, chains = dumps(rest.pop("calls")), dumps(rest.pop("chains"))
        known: dict[str, Any] = {"calls": _read(_CALLS, calls, Places(attempts=attempts))}
        known["chains"] = _read(_CHAINS, chains, Places(known["calls"], attempts=attempts))
        values = _read(adapter, dumps(rest), Places(**known, attempts=attempts))
        known |= {name: values[name] for name in ("state", "seconds", "interventions", *own)}
        return kind.turn_type(number=values["turn"], **known)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise TapeError(f"turn {record.get('turn')} on the tape is damaged: {error}") from error


def _read(adapter: TypeAdapter[Any], text: str, places: Places) -> Any:
    """Return what a JSON text holds, strictly of the adapter's type.

    Raises:
        ValueError: it holds something else.
    """
    try:
        return read(adapter, text, places)
    except ValueError:
        # Behind a validator of mode "before" or "wrap", a list is no tuple for pydantic if it is
        # strict. Then what would be written of the value must be the text.
        with suppress(ValueError):
            value = adapter.validate_json(text, context=places)
            if dumps(_plain(adapter, value, places)) == text:
                return value
        raise


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Say which values of two records, or rows of the frame, differ; at most three of them."""
    was, now = flat(before), flat(after)
    changed = [
        f"{name} was {_short(was.get(name))} and is {_short(now.get(name))}"
        for name in was | now
        if was.get(name) != now.get(name)
    ]
    return "; ".join(changed[:3])


def _short(value: str | None) -> str:
    return clip(value or "not there", 80)


def planned_in(kind: AnyKind, records: Sequence[Mapping[str, Any]]) -> list[RunIntervention]:
    """Return what a run had planned: for turns that were played since, and for later ones.

    Args:
        kind: the simulation's class.
        records: of its turns, oldest first.
    """
    planned = interventions_of(kind, records[-1], "planned")
    for record, after in pairwise(records):
        items = interventions_of(kind, record, "planned")
        planned += [item for item in items if item.turn == after["turn"]]
    return planned


def interventions_of(kind: AnyKind, record: Mapping[str, Any], part: str) -> list[RunIntervention]:
    """Return what a record says was done at its turn, or was ``planned`` for later ones.

    Raises:
        TapeError: it cannot be read; the tape is damaged.
    """
    try:
        return [kind.intervention_type.model_validate(values) for values in record[part]]
    except (ValidationError, KeyError, TypeError) as error:
        raise TapeError(f"turn {record['turn']} on the tape is damaged: {error}") from error
