"""A run as a tape holds it: each turn as JSON, and the manifest of what defines the run.

A turn's calls are not written again: the turn names them by their numbers on the tape, and whatever
in it refers to a call or a chain of the turn says its place among them. All else is written by the
types of the state, of the interventions, and of the fields that the turn's class adds. The manifest
is enough to play the run again, and to tell two runs apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from llmsim_lab._util.jsontext import dumps, dumps_plain, flat, read
from llmsim_lab._util.text import clip, faults
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._config import RunIntervention
from llmsim_lab.run._registry import RunClass, class_of_manifest
from llmsim_lab.run._turn import RunTurn, Turn, turn_row
from llmsim_lab.tape._lines import RunInfo
from llmsim_lab.types import Attempt, CallRecord, LLMReasoningChain, ModelInfo, Places

AnyTurn = Turn | RunTurn[Any, Any]
Planned = Mapping[int, Sequence[RunIntervention]]
"""What is to be done from outside, by turn."""

_COMMON = {field.name for field in fields(RunTurn)}
_TAKEN = {"turn", "planned"}
"""What a record has beside the fields of a turn."""
# Made once: an adapter takes milliseconds to make.
_CALLS: TypeAdapter[Any] = TypeAdapter(tuple[CallRecord, ...])
_CHAINS: TypeAdapter[Any] = TypeAdapter(tuple[LLMReasoningChain, ...])
_CHAIN_FIELDS = tuple([field.name for field in fields(LLMReasoningChain)])
_chain_fields = attrgetter(*_CHAIN_FIELDS)


# --- turns ---------------------------------------------------------------------------------------


def tape_turn(cls: RunClass, turn: AnyTurn, planned: Planned) -> tuple[int, str, str]:
    """Return a turn as the tape takes it: number, record, and row of the run's frame.

    Args:
        cls: the run's class.
        turn: the turn, its calls recorded.
        planned: what is to be done from outside, by turn.

    Raises:
        TapeError: a call was not recorded, so that the turn could not be replayed.
    """
    # Those of past turns are in their turns' own records.
    later = [item for at in sorted(planned) if at > turn.number for item in planned[at]]
    record, row = record_of(cls, turn, later), turn_row(turn, cls.own_columns(turn))
    try:
        return turn.number, dumps_plain(record), dumps(row)
    except ValueError as error:
        raise TapeError(
            f"turn {turn.number} cannot be written: it holds a number that is not finite (NaN or "
            f"Infinity), which JSON has no form for ({error}); look for a division by zero in what "
            "made the state"
        ) from error


def record_of(
    cls: RunClass, turn: AnyTurn, planned: Sequence[RunIntervention] = ()
) -> dict[str, Any]:
    """Return a turn's record, JSON-ready.

    Args:
        cls: the run's class.
        turn: the turn.
        planned: what is to be done from outside at later ones.

    Raises:
        TapeError: a call was not recorded.
    """
    adapter, own = _adapter_of(cls.turn_type, cls.state_type, cls.intervention_type)
    values = {
        "state": turn.state,
        "turn": turn.number,
        "seconds": turn.seconds,
        "interventions": turn.interventions,
        "planned": tuple(planned),
        **{name: getattr(turn, name) for name in own},
    }
    of_turn = turn.chains if isinstance(turn, RunTurn) else ()
    places = Places(turn.calls, of_turn)
    plain: dict[str, Any] = _plain(adapter, values, places)
    plain["calls"] = [[call.status, call.numbers] for call in turn.calls]
    if not isinstance(turn, RunTurn):
        return plain
    plain["chains"] = chains = []
    for chain in of_turn:
        # By hand, since pydantic would ask ``Places`` about each chain and each call: every field
        # but the call is a text or a number.
        fields_of = dict(zip(_CHAIN_FIELDS, _chain_fields(chain), strict=True))
        if chain.call is not None:
            fields_of["call"] = places.name(chain.call)
        chains.append(fields_of)
    return plain


def _plain(adapter: TypeAdapter[Any], value: object, places: Places) -> Any:
    try:
        return adapter.dump_python(value, mode="json", by_alias=True, context=places)
    except PydanticSerializationError as error:
        raise TapeError(f"a turn cannot be written: {error}") from error


@lru_cache(maxsize=64)  # bounded, since a notebook's cell makes its classes anew each time
def _adapter_of(
    turn_type: Any, state_type: Any, intervention_type: Any
) -> tuple[TypeAdapter[Any], Sequence[str]]:
    """Return what writes and reads a record but for calls and chains, and the turn's own fields.

    Raises:
        ConfigError: such a field has the name of something else in the record.
    """
    hints = get_type_hints(turn_type, include_extras=True)  # of fields they may be texts
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
    cls: RunClass, record: Mapping[str, Any], attempts: Callable[[int], Attempt]
) -> Any:
    """Return the turn that a record holds; its values must be of their types exactly.

    Args:
        cls: the run's class.
        record: the parsed JSON.
        attempts: gives the attempt of a number on the tape.

    Raises:
        TapeError: the record does not hold what it should; the tape is damaged.
    """
    adapter, own = _adapter_of(cls.turn_type, cls.state_type, cls.intervention_type)
    rest = dict(record)
    # Calls first: chains name calls by their places, and the rest names both.
    try:
        calls = rest.pop("calls")
        known: dict[str, Any] = {"calls": _read(_CALLS, calls, Places(attempts=attempts))}
        if issubclass(cls.turn_type, RunTurn):
            chains = _read(_CHAINS, rest.pop("chains"), Places(known["calls"], attempts=attempts))
            known["chains"] = chains
        values = _read(adapter, rest, Places(**known, attempts=attempts))
        known |= {name: values[name] for name in ("state", "seconds", "interventions", *own)}
        return cls.turn_type(number=values["turn"], **known)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise TapeError(f"turn {record.get('turn')} on the tape is damaged: {error}") from error


def _read(adapter: TypeAdapter[Any], parsed: Any, places: Places) -> Any:
    """Return what parsed JSON holds, strictly of the adapter's type.

    Raises:
        ValueError: it holds something else.
    """
    # As a text, since of JSON strict pydantic takes a list for a tuple.
    text = dumps_plain(parsed)
    try:
        return read(adapter, text, places)
    except ValueError:
        # Behind a validator of mode "before" or "wrap" it does not. Read laxly then, where what
        # would be written of the value is this very text.
        with suppress(ValueError):
            value = adapter.validate_json(text, context=places)
            if dumps(_plain(adapter, value, places)) == dumps(parsed):
                return value
        raise


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return which values of two records, or rows of the frame, differ; at most three of them."""
    was, now = flat(before), flat(after)
    changed = [
        f"{name} was {clip(was.get(name) or 'not there', 80)} and is "
        f"{clip(now.get(name) or 'not there', 80)}"
        for name in was | now
        if was.get(name) != now.get(name)
    ]
    return "; ".join(changed[:3])


def planned_in(cls: RunClass, records: Sequence[Mapping[str, Any]]) -> list[RunIntervention]:
    """Return what a run had planned: for turns that were played since, and for later ones.

    Args:
        cls: the run's class.
        records: of its turns, oldest first.
    """
    planned = interventions_of(cls, records[-1], "planned")
    for record, after in pairwise(records):
        items = interventions_of(cls, record, "planned")
        planned += [item for item in items if item.turn == after["turn"]]
    return planned


def interventions_of(cls: RunClass, record: Mapping[str, Any], part: str) -> list[RunIntervention]:
    """Return what a record says was done at its turn, or was ``planned`` for later ones.

    Raises:
        TapeError: it cannot be read; the tape is damaged.
    """
    try:
        return [cls.intervention_type.model_validate(values) for values in record[part]]
    except (ValidationError, KeyError, TypeError) as error:
        raise TapeError(f"turn {record['turn']} on the tape is damaged: {error}") from error


# --- the manifest --------------------------------------------------------------------------------


def entries_of(prompts: Mapping[str, Prompt]) -> dict[str, dict[str, Any]]:
    """Return prompts as a manifest has them, by their places."""
    return {
        place: {
            "name": prompt.name,
            "digest": prompt.digest,
            "parent": prompt.parent,
            "text": prompt.text,
        }
        for place, prompt in prompts.items()
    }


def model_differs(recorded: Mapping[str, Any] | None, info: ModelInfo) -> str | None:
    """Return how a model differs from the recorded one, if any; None for the same one."""
    if recorded is None:
        return None
    for key in ("backend", "name", "digest"):
        now = getattr(info, key)
        if (then := recorded.get(key)) != now:
            return f"its {key} is {now!r}, the recorded one's is {then!r}"
    return None


def config_of(info: RunInfo, cls: RunClass | None = None) -> Any:
    """Return the configuration that a run was recorded with, of its class's own type.

    Args:
        info: the run.
        cls: its class; found by its name if not given.

    Raises:
        TapeError: this version of the package does not understand it.
    """
    manifest = info.manifest
    try:
        cls = cls or class_of_manifest(info.id, manifest)
        return cls.config_type.recorded(manifest["config"])
    except (KeyError, ValidationError) as error:
        made_by = manifest.get("package", "an unknown version")
        raise TapeError(
            f"the run's configuration, recorded by llmsim-lab {made_by}, is not understood by this "
            f"version: {error}"
        ) from error


def check_manifest(info: RunInfo, part_names: Collection[str]) -> None:
    """Raise TapeError for a manifest that lacks what a run is rebuilt from; the tape is damaged.

    Args:
        info: the run.
        part_names: the parts that a run of its class may be given.
    """
    wrong = info.faults
    if not wrong and not all(name in part_names for name in info.manifest["given"]):
        wrong = ["it was given something that no run takes"]
    if wrong:
        raise TapeError(f"run {info.id} on the tape is damaged: {'; '.join(wrong[:3])}")


def llm_config_of(manifest: Mapping[str, Any], **changes: Any) -> LLMConfig | None:
    """Return the recorded settings of the model's client, with changes; None if it had none.

    Raises:
        TapeError: this version of the package does not understand them.
    """
    settings = manifest["llm"]
    try:
        return None if settings is None else LLMConfig.model_validate({**settings, **changes})
    except ValidationError as error:
        raise TapeError(f"the settings of the model are not understood: {faults(error)}") from error


def prompts_of(manifest: Mapping[str, Any]) -> dict[str, Prompt]:
    """Return the recorded prompts by the part that used them, as ``engine`` or ``agent:Ann``.

    Raises:
        TapeError: a prompt's text does not have the digest recorded for it.
    """
    prompts = {}
    parse = cache(Prompt.parse)  # once each: a thousand agents may share one prompt
    for place, entry in manifest.get("prompts", {}).items():
        prompt = parse(entry["text"], name=entry["name"], parent=entry["parent"])
        if prompt.digest != entry["digest"]:
            raise TapeError(f"the recorded prompt of {place} does not have its recorded digest")
        prompts[place] = prompt
    return prompts
