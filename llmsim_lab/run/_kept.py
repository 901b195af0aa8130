"""What a tape gives back of a state, or of parameters: it is what a run continues with.

A state is written as JSON and read back after each turn, with and without a tape, so that a run
continues with the same values as its replay, a fork or a resumed run. A value may come back as
another type where its annotation does not say which: a tuple in ``Any`` is a list then. A value of
which something would be lost is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import datetime, time
from enum import Enum
from functools import lru_cache
from numbers import Number
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from llmsim_lab._util.jsontext import (
    JSON,
    MOST_LEVELS,
    SCALARS,
    JSONObject,
    all_finite,
    dumps,
    is_too_deep,
    loads,
    number_of,
    read,
)
from llmsim_lab._util.text import brief, clip, error_text, faults
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.run.state import fields_of
from llmsim_lab.types import CallRecord, Places

ConfigT = TypeVar("ConfigT", bound=BaseModel)
ValuePath = tuple[str, ...]
"""Where a value is: the name of a class, then the names of fields, keys and items."""

_NO_CALLS = Places()
_ANYTHING: Any = Any
"""The type of values of which none is known; a form of typing's, and no class."""
_UNWRITABLE = (ValueError, TypeError, OverflowError, RecursionError, TapeError)
"""What writing JSON raises, by pydantic, by a class's own serializer, or of calls."""
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""What reading JSON raises, by pydantic or by a class's own validator."""


class Kept(NamedTuple):
    """A state as a tape gives it back, and as JSON."""

    state: Any
    json: bytes


def kept_state(
    state: object,
    cls: type,
    calls: Sequence[CallRecord] = (),
    *,
    on_tape: bool = False,
) -> Kept:
    """Return a state as its tape gives it back.

    Args:
        state: the state.
        cls: its class.
        calls: its turn's.
        on_tape: whether its run is on a tape.

    Raises:
        ConfigError: something would be lost; says of which field, and why.
    """
    name = cls.__name__
    # A subclass would come back as its base, without its own fields.
    if type(state) is not cls and not is_defined_again(type(state), cls):
        raise ConfigError(
            f"the state is a {type(state).__name__}, and its tape would give a {name} back: write "
            f"Run[{type(state).__name__}]"
        )
    # A state may hold replies, whose calls are named by their places in the turn.
    places = Places(
        calls,
        others={},
        are_numbered=on_tape,
    )
    # Written and read at each turn and not only on tapes: what a run continues with must not depend
    # on whether it is recorded.
    try:
        raw = encoded(state, cls, places)
    except _UNWRITABLE as error:
        raise _cannot_write((name,), state, error) from error
    try:
        back = decoded(raw, cls, places)
    except _UNREADABLE as error:
        raise _cannot_read((name,), state, error) from error
    # The state itself, with what only it has: cached properties, and what it shares with the state
    # before it.
    if is_same(state, back, (name,)):
        back = state
    return Kept(back, raw)


def kept_config(config: ConfigT, name: str) -> ConfigT:
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
        raise _cannot_write((name,), config, error) from error
    try:
        back = type(config).model_validate(values)
    except _UNREADABLE as error:
        raise _cannot_read((name,), config, error) from error
    # As after a cell was run again: old objects, new classes.
    if is_defined_again(type(config), type(back)):
        raise defined_again(name, type(config).__module__)
    if is_same(config, back, (name,)):
        return config
    changed = {
        field: value
        for field, value in back.__dict__.items()
        if not is_same(config.__dict__[field], value, (name, field))
    }
    # Not the one that came back, which does not know what was given and what is a default.
    return config.model_copy(update=changed)


def config_as_json(config: BaseModel) -> JSONObject:
    """Return a configuration as a manifest has it."""
    return config.model_dump(
        mode="json",
        by_alias=True,
        round_trip=True,
        warnings=False,
        fallback=number_of,
    )


def reply_as_json(reply: BaseModel) -> JSONObject:
    """Return the fields of a reply of code as a record has them.

    Raises:
        ConfigError: JSON cannot hold one; says which.
    """
    try:
        written: JSONObject = reply.model_dump(
            mode="json",
            warnings=False,
            fallback=number_of,
        )
        # Most replies are of numbers and texts, which JSON gives back as they are.
        if not SCALARS.issuperset(map(type, written.values())):
            written = loads(dumps(_ordered(written, reply)))
    except _UNWRITABLE as error:
        raise _cannot_write((type(reply).__name__,), reply, error) from error
    return written


def _ordered(written: JSON, value: object) -> JSON:
    """Return JSON of a value with its sets in one order, which differs between processes."""
    if isinstance(value, set | frozenset) and isinstance(written, list):
        return sorted(written, key=dumps)
    if isinstance(written, dict):
        parts = dict(_parts_of(value))
        return {name: _ordered(part, parts.get(name)) for name, part in written.items()}
    if isinstance(written, list) and isinstance(value, list | tuple):
        pairs = zip(written, value, strict=True)
        return [_ordered(part, member) for part, member in pairs]
    return written


def kept_values(values: Mapping[str, object]) -> JSONObject:
    """Return values of no known type as a tape gives them back: numbers, texts, lists and dicts.

    Args:
        values: by name.

    Raises:
        ConfigError: something would be lost; says of which value, and why.
    """
    _check_depth(values, ())
    try:
        raw = encoded(values, _ANYTHING)
    except _UNWRITABLE as error:
        raise _cannot_write((), values, error) from error
    try:
        back: JSONObject = decoded(raw, _ANYTHING)
    except _UNREADABLE as error:
        raise _cannot_read((), values, error) from error
    # For what it raises; what came back is what is kept in any case.
    is_same(values, back, ())
    return back


# --- writing and reading -------------------------------------------------------------------------


@lru_cache(maxsize=64)  # bounded, since a notebook's cell makes its classes anew each time
def _adapter_of(cls: type) -> TypeAdapter[Any]:
    """Return what writes and reads values of a type, within a list and an object.

    On a line of a tape a state stands within two objects, and how deeply JSON may be nested is
    limited: a state that can be read alone might make its line unreadable.
    """
    holder: Any = TypedDict("holder", {"state": cls})  # type: ignore[valid-type]
    return TypeAdapter(list[holder])


# What stands around a state in that list and object.
_HOLDER_BEGINS = b'[{"state":'
_HOLDER_ENDS = b"}]"


def encoded(
    value: object,
    cls: type,
    places: Places = _NO_CALLS,
) -> bytes:
    """Return a state as a tape has it, JSON.

    Args:
        value: the state.
        cls: its type.
        places: the calls that it may name.

    Raises:
        ValueError: it holds something that JSON cannot.
    """
    adapter = _adapter_of(cls)
    holders = [{"state": value}]
    # By the names of the fields, as ``replace`` takes them, and without what is computed of them.
    try:
        raw = adapter.dump_json(
            holders,
            context=places,
            round_trip=True,
            warnings=False,
            fallback=number_of,
        )
    except ValueError:  # half a character, which pydantic cannot write as JSON; or a true fault
        ready = adapter.dump_python(
            holders,
            mode="json",
            context=places,
            round_trip=True,
            warnings=False,
            fallback=number_of,
        )
        raw = dumps(ready).encode()
    return raw.removeprefix(_HOLDER_BEGINS).removesuffix(_HOLDER_ENDS)


def decoded(
    raw: bytes,
    cls: type,
    places: Places = _NO_CALLS,
) -> Any:
    """Return the state that JSON holds, strictly of a type.

    Args:
        raw: the JSON.
        cls: the type.
        places: the calls that it may name.

    Raises:
        ValueError: it holds something else.
    """
    adapter = _adapter_of(cls)
    holders = _HOLDER_BEGINS + raw + _HOLDER_ENDS
    try:
        return read(
            adapter,
            holders,
            places,
            within=1,
        )[0]["state"]
    except ValueError:
        # Behind a validator of mode "before" or "wrap" strict pydantic takes no list for a tuple.
        # Read laxly then, where what would be written of the value says just this.
        with suppress(ValueError):
            [holder] = adapter.validate_json(
                holders,
                context=places,
                by_alias=True,
                by_name=True,
            )
            again = encoded(holder["state"], cls, places)
            # As values, since how JSON is spaced does not count.
            is_unchanged = dumps(loads(again)) == dumps(loads(raw))
            if is_unchanged:
                return holder["state"]
        raise


# --- comparing -----------------------------------------------------------------------------------


def is_same(
    was: object,
    back: object,
    path: ValuePath,
) -> bool:
    """Return True if a value came back just as it was; False if as another that says the same.

    Args:
        was: the value.
        back: what came back.
        path: where it is.

    Raises:
        ConfigError: something is lost.
    """
    if was is back:  # a member of an Enum, or the record of a call
        return True
    cls: type = type(was)
    if cls is type(back):
        return _comparison_of(cls)(was, back, path)  # type: ignore[arg-type]
    _check_converted(was, back, path)
    return False


@lru_cache(maxsize=1024)  # asked of every value in every state
def _comparison_of(cls: type) -> Callable[[Any, Any, ValuePath], bool]:
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


def _types_of(values: Iterable[object]) -> list[type]:
    return list(map(type, values))


def _is_same_dict(
    was: Mapping[Any, object],
    back: Mapping[Any, object],
    path: ValuePath,
) -> bool:
    # An enum of texts, or numpy's text, equals the text that a tape gives back as a key.
    same = _types_of(was) == _types_of(back)
    # Most are of numbers, and may have thousands: compared at once. Their types too, since 1 equals
    # 1.0 and True.
    types = _types_of(was.values())
    if SCALARS.issuperset(types) and was == back and types == _types_of(back.values()):
        return same
    # A field that is not written, with exclude=, say.
    if len(was) != len(back):
        raise _lost(_place(path), was, back)
    # In their order, which is part of a dict here: prompts and columns follow it.
    pairs = zip(was.items(), back.items(), strict=True)
    for (key, value), (key_back, value_back) in pairs:
        if key != key_back:
            if isinstance(key, str):
                raise _lost(_place(path), was, back)
            same = False  # a number as a key of a dict in ``Any`` is a text in JSON
        if not is_same(value, value_back, (*path, str(key))):
            same = False
    return same


def _is_same_list(
    was: Collection[object],
    back: Collection[object],
    path: ValuePath,
) -> bool:
    types = _types_of(was)
    if SCALARS.issuperset(types) and was == back and types == _types_of(back):
        return True
    if len(was) != len(back):
        raise _lost(_place(path), was, back)
    same = True
    for number, (value, value_back) in enumerate(zip(was, back, strict=True)):
        if not is_same(value, value_back, (*path, str(number))):
            same = False
    return same


def _is_same_model(
    was: BaseModel,
    back: BaseModel,
    path: ValuePath,
) -> bool:
    if was.__pydantic_private__ != back.__pydantic_private__:
        raise ConfigError(
            f"{_place(path)} has the private attributes "
            f"{', '.join(was.__pydantic_private__ or ())}, which are on no tape: make fields of "
            "them"
        )
    written = was.__dict__
    read_back = back.__dict__
    same = True
    if list(written) != list(read_back):
        # A cached property, or the call that gave a reply: what came back has none.
        written = {name: written.get(name) for name in read_back}
        same = False
    if not _is_same_dict(written, read_back, path):
        same = False
    # Of a class with extra="allow".
    extra = was.__pydantic_extra__
    if extra and not is_same(extra, back.__pydantic_extra__, path):
        same = False
    return same


def _is_same_dataclass(
    was: object,
    back: object,
    path: ValuePath,
) -> bool:
    return _is_same_dict(fields_of(was), fields_of(back), path)


def _is_same_time(
    was: datetime | time,
    back: datetime | time,
    path: ValuePath,
) -> bool:
    _check_time(was, path)
    is_same_time = _is_same_value(was, back, path)
    # Zones of several libraries may have one offset, and another name for it.
    return is_same_time and type(was.tzinfo) is type(back.tzinfo)


def _is_same_collection(
    was: Collection[object],
    back: Collection[object],
    path: ValuePath,
) -> bool:
    for value in was:
        if isinstance(value, datetime | time):  # of which two may be equal in different zones
            _check_time(value, path)
    if was != back:
        raise _lost(_place(path), was, back)
    # Sets have no order in which members could be compared one by one.
    return SCALARS.issuperset(map(type, was))


def _is_same_value(
    was: object,
    back: object,
    path: ValuePath,
) -> bool:
    if _is_equal(was, back, path):
        return True
    # An object that its class writes and reads by itself, and that equals no other.
    equals_no_other = type(was).__eq__ is object.__eq__ and not isinstance(was, Iterator)
    if equals_no_other and getattr(was, "__dict__", None) == getattr(back, "__dict__", None):
        return False
    raise _lost(_place(path), was, back)


def _is_equal(
    was: object,
    back: object,
    path: ValuePath,
) -> bool:
    # An array compares member by member, and has no truth value.
    try:
        return bool(was == back)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{_place(path)} is {brief(was, 80)}, which does not compare as one value ({error}): "
            "hold it as value.tolist(), and make the array where you use it"
        ) from error


def _check_converted(
    was: object,
    back: object,
    path: ValuePath,
) -> None:
    """Raise ConfigError if a value that came back as another type does not say the same.

    So it may where its annotation does not say which type: in ``Any``, ``Sequence`` or a union.
    """
    if isinstance(was, Enum):
        # In a field of its own type it would have come back as a member.
        is_same(was.value, back, path)
    elif isinstance(back, Mapping) and _has_fields(was):
        # A model in ``Any`` comes back as a dict of its fields.
        _is_same_dict(fields_of(was), back, path)
    elif isinstance(back, list | tuple) and isinstance(was, list | tuple | deque):
        # As lists, since a deque equals no list.
        _is_same_list(list(was), list(back), path)
    elif isinstance(was, datetime) and isinstance(back, str):
        _check_time(was, path)
        # As in a field without a type, where a time comes back as text.
        if datetime.fromisoformat(back) != was:
            raise _lost(_place(path), was, back)
    elif isinstance(was, datetime | time):
        _check_time(was, path)
        if was != back and not isinstance(back, str):
            raise _lost(_place(path), was, back)
    elif not _is_equal(was, back, path) and not _is_whole_as_text(was, back):
        raise _lost(_place(path), was, back)


def _is_whole_as_text(was: object, back: object) -> bool:
    """Return True if a value came back as a text that says all of it."""
    if not isinstance(back, str) or isinstance(was, str | Iterator):
        return False
    # A time of pandas' in nanoseconds, and a secret, which is written as asterisks.
    is_cut = getattr(was, "nanoseconds", 0) or hasattr(was, "get_secret_value")
    return not is_cut and all_finite(was)


def _check_time(value: datetime | time, path: ValuePath) -> None:
    """Raise ConfigError for a time of which a tape would not keep all."""
    zone = value.tzinfo
    # A zone that knows its offset without a date has one offset, which JSON can say.
    if zone is not None and zone.utcoffset(None) is None:
        raise ConfigError(
            f"{_place(path)} is a time in the zone {zone}, and a tape keeps its offset alone, "
            "which is another one in another season: hold it in UTC, "
            "value.astimezone(datetime.UTC), and the zone's name in a field of its own"
        )
    if value.fold:
        raise ConfigError(
            f"{_place(path)} is {value!r}, the second of two equal times of a day, and a tape "
            "does not keep which (fold=1): hold it in UTC, value.astimezone(datetime.UTC)"
        )


# --- what is wrong -------------------------------------------------------------------------------


def is_defined_again(cls: type, other: type) -> bool:
    """Return True if two classes are one that was defined twice."""
    is_same_module = cls.__module__ == other.__module__
    is_same_name = cls.__qualname__ == other.__qualname__
    return is_same_module and is_same_name and cls is not other


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


def _lost(
    place: str,
    was: object,
    back: object,
) -> ConfigError:
    """Return the error of a value that would not come back as it is."""
    cls = type(was)
    if isinstance(was, Number) and (back is None or not all_finite(was)):
        return _not_finite(place, was)
    if is_defined_again(cls, type(back)):
        return defined_again(cls.__name__, cls.__module__)
    change = f"{place} is {brief(was, 80)}, and its tape would give {brief(back, 80)} back"
    if cls is type(back):
        return ConfigError(
            f"{change}: what writes and reads it (a validator, a serializer, exclude=) must leave "
            "it as it is"
        )
    if isinstance(was, BaseModel) or is_dataclass(was):
        return ConfigError(
            f"{change}: annotate just what it holds; of several classes each needs a field such "
            "as kind: Literal['car'] = 'car'"
        )
    return ConfigError(
        f"{change}: annotate the field as what it holds, or hold a number, a text, a list or a "
        f"dict in place of the {cls.__name__}"
    )


def _not_finite(place: str, value: object) -> ConfigError:
    return ConfigError(
        f"{place} is {value}, and a tape holds finite numbers alone: give one, or None"
    )


def _cannot_write(
    path: ValuePath,
    value: object,
    error: BaseException,
) -> ConfigError:
    """Return the error of a state that cannot be written; it names the innermost such value."""
    # Asked first: what is too deep fails in several ways, none of which says so.
    _check_depth(value, path)
    # The innermost value that fails is the one to name.
    for name, part in _parts_of(value):
        try:
            _as_json(part)
        except _UNWRITABLE as error_of_part:
            return _cannot_write((*path, name), part, error_of_part)
    if isinstance(value, datetime):
        return ConfigError(f"{_place(path)} is {brief(value)}, which is not a time: write None")
    if isinstance(value, float):
        return _not_finite(_place(path), value)
    return ConfigError(
        f"{_place(path)} is {brief(value, 80)}, which a tape cannot hold: {error}. Hold numbers, "
        "texts, lists and dicts: an array as value.tolist(), bytes as value.hex()"
    )


def _cannot_read(
    path: ValuePath,
    value: object,
    error: Exception,
) -> ConfigError:
    """Return the error of a state whose JSON its class does not take."""
    _check_depth(value, path)
    try:
        _as_json(value)
    except _UNWRITABLE as error_of_writing:  # of NaN and numbers of too many digits
        return _cannot_write(path, value, error_of_writing)
    if isinstance(error, ValidationError):
        fault = faults(error)
    elif isinstance(error, ValueError):
        fault = str(error)
    else:
        fault = error_text(error)
    return ConfigError(f"a tape would not give {_place(path)} back: {fault}")


def _check_depth(value: object, path: ValuePath) -> None:
    """Raise ConfigError if something in a value is nested too deeply for a tape."""
    # By its parts, so that the message names the field.
    for name, part in _parts_of(value):
        if is_too_deep(part):
            raise ConfigError(
                f"{_place((*path, name))} is nested too deeply for a tape: more than "
                f"{MOST_LEVELS} lists and dicts in one another; hold it flat, by names or numbers "
                "that refer to each other"
            )


def _as_json(value: object) -> bytes:
    return dumps(to_jsonable_python(value, fallback=number_of)).encode()


def _parts_of(value: object) -> list[tuple[str, object]]:
    """Return what is directly in a value, by name."""
    if _has_fields(value):
        return [(str(name), part) for name, part in fields_of(value).items()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [(str(number), part) for number, part in enumerate(value)]
    return []


def _has_fields(value: object) -> bool:
    """Return True if a value is made of others by name; see ``fields_of``."""
    return isinstance(value, BaseModel | Mapping) or is_dataclass(value)


def _place(path: ValuePath) -> str:
    return clip(".".join(path), 200) or "this"
