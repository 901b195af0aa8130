"""What a tape gives back of a state, or of parameters: it is what a run continues with.

A state is written as JSON and read back after each turn, with and without a tape, so that a run
continues with the same values as its replay, a fork or a resumed run. A value may come back as
another type where its annotation does not say which: a tuple in ``Any`` is a list then. A value of
which something would be lost is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import datetime, time
from enum import Enum
from functools import lru_cache
from numbers import Number
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from llmsim_lab._util.jsontext import (
    MOST_LEVELS,
    SCALARS,
    all_finite,
    dumps,
    is_too_deep,
    loads,
    number_of,
    read,
)
from llmsim_lab._util.text import brief, clip, error_text, faults
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.run._state import fields_of
from llmsim_lab.types import CallRecord, Places

Path = tuple[str, ...]
"""Where a value is: the name of a class, then the names of fields, keys and items."""

_NO_CALLS = Places()
_UNWRITABLE = (ValueError, TypeError, OverflowError, RecursionError, TapeError)
"""What writing JSON raises, by pydantic, by a class's own serializer, or of calls."""
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""What reading JSON raises, by pydantic or by a class's own validator."""


class Kept(NamedTuple):
    """A state as a tape gives it back, and as JSON."""

    state: Any
    json: bytes


def kept_state(
    state: Any, kind: Any, calls: Sequence[CallRecord] = (), *, on_tape: bool = False
) -> Kept:
    """Return a state as its tape gives it back.

    Args:
        state: the state.
        kind: its class.
        calls: its turn's.
        on_tape: whether its run is on a tape.

    Raises:
        ConfigError: something would be lost; says of which field, and why.
    """
    name = kind.__name__
    if type(state) is not kind and not is_defined_again(type(state), kind):
        other = type(state).__name__
        raise ConfigError(
            f"the state is a {other}, and its tape would give a {name} back: write Run[{other}]"
        )
    places = Places(calls, others={}, are_numbered=on_tape)
    try:
        raw = encoded(state, kind, places)
    except _UNWRITABLE as error:
        raise _cannot_write(state, (name,), error) from error
    try:
        back = decoded(raw, kind, places)
    except _UNREADABLE as error:
        raise _cannot_read(state, (name,), error) from error
    return Kept(state if is_same(state, back, (name,)) else back, raw)


def kept_config(config: Any, name: str) -> Any:
    """Return a world's configuration as its tape gives it back.

    Args:
        config: the configuration.
        name: of the world.

    Raises:
        ConfigError: something would be lost; says of which parameter, and why.
    """
    _check_depth(config, (name,))
    try:
        values = loads(dumps(config_as_json(config)))
    except _UNWRITABLE as error:
        raise _cannot_write(config, (name,), error) from error
    try:
        back = type(config).model_validate(values)
    except _UNREADABLE as error:
        raise _cannot_read(config, (name,), error) from error
    if is_defined_again(type(config), type(back)):
        raise defined_again(name, type(config).__module__)
    if is_same(config, back, (name,)):
        return config
    changed = {
        field: value
        for field, value in back.__dict__.items()
        if not is_same(config.__dict__[field], value, (name, field))
    }
    return config.model_copy(update=changed)  # which knows what was given, and not by default


def config_as_json(config: Any) -> dict[str, Any]:
    """Return a configuration as a manifest has it."""
    written: dict[str, Any] = config.model_dump(
        mode="json", by_alias=True, round_trip=True, warnings=False, fallback=number_of
    )
    return written


def reply_as_json(reply: BaseModel) -> dict[str, Any]:
    """Return the fields of a reply of code as a record has them.

    Raises:
        ConfigError: JSON cannot hold one; says which.
    """
    try:
        written = reply.model_dump(mode="json", warnings=False, fallback=number_of)
        if not SCALARS.issuperset(map(type, written.values())):
            written = loads(dumps(_ordered(written, reply)))
    except _UNWRITABLE as error:
        raise _cannot_write(reply, (type(reply).__name__,), error) from error
    return written


def _ordered(written: Any, value: Any) -> Any:
    """Return JSON of a value with its sets in one order, which differs between processes."""
    if isinstance(value, set | frozenset):
        return sorted(written, key=dumps)
    if isinstance(written, dict):
        parts = dict(_parts_of(value))
        return {name: _ordered(part, parts.get(name)) for name, part in written.items()}
    if isinstance(written, list) and isinstance(value, list | tuple):
        return [_ordered(part, it) for part, it in zip(written, value, strict=True)]
    return written


def kept_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of no known type as a tape gives them back: numbers, texts, lists and dicts.

    Args:
        values: by name.

    Raises:
        ConfigError: something would be lost; says of which value, and why.
    """
    _check_depth(values, ())
    try:
        raw = encoded(values, Any)
    except _UNWRITABLE as error:
        raise _cannot_write(values, (), error) from error
    try:
        back: dict[str, Any] = decoded(raw, Any)
    except _UNREADABLE as error:
        raise _cannot_read(values, (), error) from error
    is_same(values, back, ())
    return back


# --- writing and reading -------------------------------------------------------------------------


@lru_cache(maxsize=64)  # bounded, since a notebook's cell makes its classes anew each time
def _adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return what writes and reads values of a type, within a list and an object.

    On a line of a tape a state stands within two objects, and how deeply JSON may be nested is
    limited: a state that can be read alone might make its line unreadable.
    """
    holder: Any = TypedDict("holder", {"state": kind})
    return TypeAdapter(list[holder])


_BEFORE = b'[{"state":'
_AFTER = b"}]"


def encoded(value: Any, kind: Any, places: Places = _NO_CALLS) -> bytes:
    """Return a state as a tape has it, JSON.

    Args:
        value: the state.
        kind: its type.
        places: the calls that it may name.

    Raises:
        ValueError: it holds something that JSON cannot.
    """
    adapter, held = _adapter_of(kind), [{"state": value}]
    # By the names of the fields, as ``replace`` takes them, and without what is computed of them.
    try:
        raw = adapter.dump_json(
            held, context=places, round_trip=True, warnings=False, fallback=number_of
        )
    except ValueError:  # half a character, which pydantic cannot write as JSON; or a true fault
        ready = adapter.dump_python(
            held, mode="json", context=places, round_trip=True, warnings=False, fallback=number_of
        )
        raw = dumps(ready).encode()
    return raw.removeprefix(_BEFORE).removesuffix(_AFTER)


def decoded(raw: bytes, kind: Any, places: Places = _NO_CALLS) -> Any:
    """Return the state that JSON holds, strictly of a type.

    Args:
        raw: the JSON.
        kind: the type.
        places: the calls that it may name.

    Raises:
        ValueError: it holds something else.
    """
    adapter, held = _adapter_of(kind), _BEFORE + raw + _AFTER
    try:
        return read(adapter, held, places, within=1)[0]["state"]
    except ValueError:
        # Behind a validator of mode "before" or "wrap" strict pydantic takes no list for a tuple.
        # Read laxly then, where what would be written of the value says just this.
        with suppress(ValueError):
            [holder] = adapter.validate_json(held, context=places, by_alias=True, by_name=True)
            again = encoded(holder["state"], kind, places)
            if dumps(loads(again)) == dumps(loads(raw)):
                return holder["state"]
        raise


# --- comparing -----------------------------------------------------------------------------------


def is_same(was: Any, back: Any, path: Path) -> bool:
    """Return True if a value came back just as it was; False if as another that says the same.

    Args:
        was: the value.
        back: what came back.
        path: where it is.

    Raises:
        ConfigError: something is lost.
    """
    cls: Any = type(was)
    if was is back:  # a member of an Enum, or the record of a call
        return True
    if cls is type(back):
        return _comparison_of(cls)(was, back, path)  # type: ignore[arg-type]
    _check_converted(was, back, path)
    return False


@lru_cache(maxsize=1024)  # asked of every value in every state
def _comparison_of(cls: type) -> Callable[[Any, Any, Path], bool]:
    """Return what compares two values of a class."""
    if issubclass(cls, Mapping):
        return _is_same_dict
    if issubclass(cls, list | tuple):
        return _is_same_list
    if issubclass(cls, BaseModel):
        return _is_same_model
    if is_dataclass(cls):
        return _is_same_dataclass
    if issubclass(cls, datetime | time):
        return _is_same_time
    if issubclass(cls, set | frozenset | deque):
        return _is_same_collection
    return _is_same_value


def _is_same_dict(was: Mapping[Any, Any], back: Mapping[Any, Any], path: Path) -> bool:
    types = [*map(type, was.values())]
    # An enum of texts, or numpy's text, equals the text that a tape gives back as a key.
    same = [*map(type, was)] == [*map(type, back)]
    # Most are of numbers, and may have thousands.
    if SCALARS.issuperset(types) and was == back and types == [*map(type, back.values())]:
        return same
    if len(was) != len(back):
        raise _lost(was, back, path)
    for (key, value), (key_back, value_back) in zip(was.items(), back.items(), strict=True):
        if key != key_back:
            if isinstance(key, str):
                raise _lost(was, back, path)
            same = False  # a number as a key of a dict in ``Any`` is a text in JSON
        same = is_same(value, value_back, (*path, str(key))) and same
    return same


def _is_same_list(was: Collection[Any], back: Collection[Any], path: Path) -> bool:
    types = [*map(type, was)]
    if SCALARS.issuperset(types) and was == back and types == [*map(type, back)]:
        return True
    if len(was) != len(back):
        raise _lost(was, back, path)
    same = True
    for number, (value, value_back) in enumerate(zip(was, back, strict=True)):
        same = is_same(value, value_back, (*path, str(number))) and same
    return same


def _is_same_model(was: BaseModel, back: BaseModel, path: Path) -> bool:
    if was.__pydantic_private__ != back.__pydantic_private__:
        at, names = _place(path), ", ".join(was.__pydantic_private__ or ())
        raise ConfigError(
            f"{at} has the private attributes {names}, which are on no tape: make fields of them"
        )
    written, read_back = was.__dict__, back.__dict__
    same = True
    if [*written] != [*read_back]:
        # A cached property, or the call that gave a reply: what came back has none.
        written = {name: written.get(name) for name in read_back}
        same = False
    same = _is_same_dict(written, read_back, path) and same
    if was.__pydantic_extra__:
        same = is_same(was.__pydantic_extra__, back.__pydantic_extra__, path) and same
    return same


def _is_same_dataclass(was: Any, back: Any, path: Path) -> bool:
    return _is_same_dict(fields_of(was), fields_of(back), path)


def _is_same_time(was: Any, back: Any, path: Path) -> bool:
    _check_time(was, path)
    # Zones of several libraries may have one offset, and another name for it.
    return _is_same_value(was, back, path) and type(was.tzinfo) is type(back.tzinfo)


def _is_same_collection(was: Collection[Any], back: Collection[Any], path: Path) -> bool:
    for value in was:
        if isinstance(value, datetime | time):  # of which two may be equal in different zones
            _check_time(value, path)
    if was != back:
        raise _lost(was, back, path)
    return SCALARS.issuperset(map(type, was))


def _is_same_value(was: Any, back: Any, path: Path) -> bool:
    if _is_equal(was, back, path):
        return True
    # An object that its class writes and reads by itself, and that equals no other.
    cls: Any = type(was)
    alone = cls.__eq__ is object.__eq__ and not isinstance(was, Iterator)
    if alone and getattr(was, "__dict__", None) == getattr(back, "__dict__", None):
        return False
    raise _lost(was, back, path)


def _is_equal(was: Any, back: Any, path: Path) -> bool:
    try:
        return bool(was == back)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{_place(path)} is {brief(was, 80)}, which does not compare as one value ({error}): "
            "hold it as value.tolist(), and make the array where you use it"
        ) from error


def _check_converted(was: Any, back: Any, path: Path) -> None:
    """Raise ConfigError if a value that came back as another type does not say the same.

    So it may where its annotation does not say which type: in ``Any``, ``Sequence`` or a union.
    """
    if isinstance(was, Enum):
        is_same(was.value, back, path)
    elif isinstance(back, Mapping) and (isinstance(was, BaseModel | Mapping) or is_dataclass(was)):
        _is_same_dict(fields_of(was), back, path)
    elif isinstance(back, list | tuple) and isinstance(was, list | tuple | deque):
        _is_same_list(list(was), list(back), path)
    elif isinstance(was, datetime) and isinstance(back, str):
        _check_time(was, path)
        if datetime.fromisoformat(back) != was:
            raise _lost(was, back, path)
    elif isinstance(was, datetime | time):
        _check_time(was, path)
        if was != back and not isinstance(back, str):
            raise _lost(was, back, path)
    elif not _is_equal(was, back, path):
        is_text_of_it = isinstance(back, str) and not isinstance(was, str | Iterator)
        is_cut = getattr(was, "nanoseconds", 0) or hasattr(was, "get_secret_value")
        is_cut = is_cut or not all_finite(was)
        if not is_text_of_it or is_cut:
            raise _lost(was, back, path)


def _check_time(value: Any, path: Path) -> None:
    """Raise ConfigError for a time of which a tape would not keep all."""
    at, zone = _place(path), value.tzinfo
    # A zone that knows its offset without a date has one offset, which JSON can say.
    if zone is not None and zone.utcoffset(None) is None:
        raise ConfigError(
            f"{at} is a time in the zone {zone}, and a tape keeps its offset alone, which is "
            "another one in another season: hold it in UTC, value.astimezone(datetime.UTC), and "
            "the zone's name in a field of its own"
        )
    if value.fold:
        raise ConfigError(
            f"{at} is {value!r}, the second of two equal times of a day, and a tape does not keep "
            "which (fold=1): hold it in UTC, value.astimezone(datetime.UTC)"
        )


# --- what is wrong -------------------------------------------------------------------------------


def is_defined_again(cls: type, other: type) -> bool:
    """Return True if two classes are one that was defined twice."""
    is_same_name = cls.__module__ == other.__module__ and cls.__qualname__ == other.__qualname__
    return is_same_name and cls is not other


def defined_again(name: str, module: str) -> ConfigError:
    """Return the error of a class that was defined twice, where both meet."""
    if module == "__main__":
        return ConfigError(
            f"{name} was defined again since something that uses it was made: run the cells again "
            "that define the world and its players, and make a new run"
        )
    return ConfigError(
        f"{name} was defined again since something that uses it was made, as %autoreload does "
        f"after an edit: import it and the world again, from {module} import ..., and make a new "
        "run"
    )


def _lost(was: Any, back: Any, path: Path) -> ConfigError:
    """Return the error of a value that would not come back as it is."""
    at = _place(path)
    cls = type(was)
    if isinstance(was, Number) and (back is None or not all_finite(was)):
        return ConfigError(
            f"{at} is {was}, and a tape holds finite numbers alone: give one, or None"
        )
    if is_defined_again(cls, type(back)):
        return defined_again(cls.__name__, cls.__module__)
    if cls is type(back):
        return ConfigError(
            f"{at} is {brief(was, 80)}, and its tape would give {brief(back, 80)} back: what "
            "writes and reads it (a validator, a serializer, exclude=) must leave it as it is"
        )
    if isinstance(was, BaseModel) or is_dataclass(was):
        return ConfigError(
            f"{at} is {brief(was, 80)}, and its tape would give {brief(back, 80)} back: annotate "
            "just what it holds; of several classes each needs a field such as "
            "kind: Literal['car'] = 'car'"
        )
    return ConfigError(
        f"{at} is {brief(was, 80)}, and its tape would give {brief(back, 80)} back: annotate the "
        f"field as what it holds, or hold a number, a text, a list or a dict in place of the "
        f"{cls.__name__}"
    )


def _cannot_write(value: Any, path: Path, error: BaseException) -> ConfigError:
    """Return the error of a state that cannot be written; it names the innermost such value."""
    _check_depth(value, path)
    for name, part in _parts_of(value):
        try:
            _as_json(part)
        except _UNWRITABLE as error_of_part:
            return _cannot_write(part, (*path, name), error_of_part)
    if isinstance(value, datetime):
        return ConfigError(f"{_place(path)} is {brief(value)}, which is not a time: write None")
    if isinstance(value, float):
        return ConfigError(
            f"{_place(path)} is {value}, and a tape holds finite numbers alone: give one, or None"
        )
    return ConfigError(
        f"{_place(path)} is {brief(value, 80)}, which a tape cannot hold: {error}. Hold numbers, "
        "texts, lists and dicts: an array as value.tolist(), bytes as value.hex()"
    )


def _cannot_read(value: Any, path: Path, error: Exception) -> ConfigError:
    """Return the error of a state whose JSON its class does not take."""
    _check_depth(value, path)
    try:
        _as_json(value)
    except _UNWRITABLE as error_of_writing:  # of NaN and numbers of too many digits
        return _cannot_write(value, path, error_of_writing)
    if isinstance(error, ValidationError):
        why = faults(error)
    elif isinstance(error, ValueError):
        why = str(error)
    else:
        why = error_text(error)
    return ConfigError(f"a tape would not give {_place(path)} back: {why}")


def _check_depth(value: Any, path: Path) -> None:
    """Raise ConfigError if something in a value is nested too deeply for a tape."""
    for name, part in _parts_of(value):
        if is_too_deep(part):
            at = _place((*path, name))
            raise ConfigError(
                f"{at} is nested too deeply for a tape: more than {MOST_LEVELS} lists and dicts in "
                "one another; hold it flat, by names or numbers that refer to each other"
            )


def _as_json(value: Any) -> bytes:
    return dumps(to_jsonable_python(value, fallback=number_of)).encode()


def _parts_of(value: Any) -> list[tuple[str, Any]]:
    """Return what is directly in a value, by name."""
    if isinstance(value, BaseModel | Mapping) or is_dataclass(value):
        return [(str(name), part) for name, part in fields_of(value).items()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [(str(number), part) for number, part in enumerate(value)]
    return []


def _place(path: Path) -> str:
    return clip(".".join(path), 200) or "this"
