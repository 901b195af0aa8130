"""States and parameters as a tape gives them back, which is how a run uses them.

A state is written as JSON and read back after each turn, also in a run that is on no tape. So a run
continues with the same values as its replay, a fork or a resumed run. If an annotation leaves the
type open, a value may come back as another type: a tuple in ``Any`` comes back as a list. If a part
of a value would be lost, that is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from datetime import datetime, time
from enum import Enum
from functools import lru_cache
from numbers import Number
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
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
from llmsim_lab._util.text import brief, clip, error_text, faults, plain_text
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.run.state import fields_of
from llmsim_lab.types import CallRecord, Places

ConfigT = TypeVar("ConfigT", bound=BaseModel)
ValuePath = tuple[str, ...]
"""The place of a value: the name of a class, then the names of fields, keys and items."""

_NO_CALLS = Places()
_ANYTHING: Any = Any
"""The type of values without annotation; it is a form of ``typing`` and not a class."""
_UNWRITABLE = (ValueError, TypeError, OverflowError, RecursionError, TapeError)
"""The errors of writing JSON: of pydantic, of a class's own serializer, or of calls."""
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""The errors of reading JSON: of pydantic, or of a class's own validator."""


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
        cls: the class of the run's states.
        calls: the calls of the state's turn.
        on_tape: True if the run is on a tape.

    Raises:
        ConfigError: a part of the state would be lost; the message names the field, and why.
    """
    name = cls.__name__
    # A subclass would come back as its base class, without its own fields.
    if type(state) is not cls and not is_defined_again(type(state), cls):
        raise ConfigError(
            f"the state is a {type(state).__name__}, and its tape would give a {name} back: write "
            f"Run[{type(state).__name__}]"
        )
    # A state may hold replies, which name their calls by the calls' places in the turn.
    places = Places(
        calls,
        others={},
        are_numbered=on_tape,
    )
    # This happens in every run: whether it is recorded must make no difference.
    try:
        raw = encoded(state, cls, places)
    except _UNWRITABLE as error:
        raise _cannot_write((name,), state, error) from error
    try:
        back = decoded(raw, cls, places)
    except _UNREADABLE as error:
        raise _cannot_read((name,), state, error) from error
    # The state itself is kept if it is equal. It has more than what came back: cached properties,
    # and parts that it shares with the state before it.
    if is_same(state, back, (name,)):
        back = state
    return Kept(back, raw)


def kept_config(config: ConfigT, name: str) -> ConfigT:
    """Return a world's configuration as its tape gives it back.

    Args:
        config: the configuration.
        name: the world's name.

    Raises:
        ConfigError: a part of a parameter would be lost; the message names the parameter, and why.
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
    # The cell of a class was run again: an old object meets the new class.
    if is_defined_again(type(config), type(back)):
        raise defined_again(name, type(config).__module__)
    if is_same(config, back, (name,)):
        return config
    changed = {
        field: value
        for field, value in back.__dict__.items()
        if not is_same(config.__dict__[field], value, (name, field))
    }
    # A copy of the given one, which knows which values are defaults. The one that came back does
    # not.
    return config.model_copy(update=changed)


def config_as_json(config: BaseModel) -> JSONObject:
    """Return a configuration in the form of a manifest."""
    with ctrl_c_unchanged():
        return config.model_dump(
            mode="json",
            by_alias=True,
            round_trip=True,
            warnings=False,
            fallback=number_of,
        )


def reply_as_json(reply: BaseModel) -> JSONObject:
    """Return the fields of a reply of code in the form of a record.

    Raises:
        ConfigError: JSON cannot hold a field; the message names it.
    """
    try:
        with ctrl_c_unchanged():
            written: JSONObject = reply.model_dump(
                mode="json",
                warnings=False,
                fallback=number_of,
            )
        # Most replies consist of numbers and texts, which JSON gives back unchanged.
        if not SCALARS.issuperset(map(type, written.values())):
            written = loads(dumps(_ordered(written, reply)))
    except _UNWRITABLE as error:
        raise _cannot_write((type(reply).__name__,), reply, error) from error
    return written


def _ordered(written: JSON, value: object) -> JSON:
    """Return a value's JSON with its sets sorted, since their order differs between processes."""
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
    """Return values without annotated types as a tape gives them back.

    Args:
        values: numbers, texts, lists and dicts, by name.

    Raises:
        ConfigError: a part of a value would be lost; the message names the value, and why.
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
    # Called only because it raises if something is lost.
    is_same(values, back, ())
    return back


# --- writing and reading -------------------------------------------------------------------------


@contextmanager
def ctrl_c_unchanged() -> Iterator[None]:
    """Raise a Ctrl-C as itself that pydantic would raise as an error of writing.

    pydantic wraps whatever a serializer raises, ours or one of a user's class. It is the error's
    cause where pydantic writes values; where it writes text, only the error's own text tells.
    """
    try:
        yield
    except PydanticSerializationError as error:
        is_cause = isinstance(error.__cause__, KeyboardInterrupt)
        if is_cause or str(error).endswith(": KeyboardInterrupt: "):
            raise KeyboardInterrupt from error
        raise


@lru_cache(maxsize=64)  # bounded, since a notebook's cell makes its classes anew each time it runs
def _adapter_of(cls: type) -> TypeAdapter[Any]:
    """Return an adapter that writes and reads values of a type, inside a list and an object.

    The depth of nested JSON is limited, and on a tape's line a state stands inside two objects.
    Without this list and object, a state could be read alone that makes its line unreadable.
    """
    holder: Any = TypedDict("holder", {"state": cls})  # type: ignore[valid-type]
    return TypeAdapter(list[holder])


# The JSON of that list and object, around the state.
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
        places: the calls that the state may name.

    Raises:
        ValueError: the state holds something that JSON cannot hold.
    """
    adapter = _adapter_of(cls)
    holders = [{"state": value}]
    # With the names of fields that ``replace`` takes, and without computed fields.
    try:
        with ctrl_c_unchanged():
            raw = adapter.dump_json(
                holders,
                context=places,
                round_trip=True,
                warnings=False,
                fallback=number_of,
            )
    except (
        ValueError
    ):  # pydantic cannot write half a character as JSON; any other fault is raised below
        with ctrl_c_unchanged():
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
    """Return the state in some JSON, read strictly by its type.

    Args:
        raw: the JSON.
        cls: the type.
        places: the calls that the state may name.

    Raises:
        ValueError: the JSON holds something else.
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
        # Behind a validator of mode "before" or "wrap", strict pydantic does not take a list for a
        # tuple. So the JSON is read laxly, and accepted if writing the value gives the same JSON.
        with suppress(ValueError):
            [holder] = adapter.validate_json(
                holders,
                context=places,
                by_alias=True,
                by_name=True,
            )
            again = encoded(holder["state"], cls, places)
            # Compared as values, since spaces in JSON do not matter.
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
    """Return True if a value came back unchanged, and False if another type with equal content did.

    Args:
        was: the value before.
        back: the value that came back.
        path: the value's place.

    Raises:
        ConfigError: a part of the value is lost.
    """
    if was is back:  # so are members of an Enum, and records of calls
        return True
    cls: type = type(was)
    if cls is type(back):
        return _comparison_of(cls)(was, back, path)  # type: ignore[arg-type]
    _check_converted(was, back, path)
    return False


@lru_cache(maxsize=1024)  # called for every value in every state
def _comparison_of(cls: type) -> Callable[[Any, Any, ValuePath], bool]:
    """Return the function that compares two values of a class."""
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
    # Types are compared too: an enum of texts, or numpy's text, equals the key that came back.
    same = _types_of(was) == _types_of(back)
    # Most dicts hold numbers, perhaps thousands, which are compared in one go; with their types,
    # since 1 equals 1.0 and True.
    types = _types_of(was.values())
    if SCALARS.issuperset(types) and was == back and types == _types_of(back.values()):
        return same
    # A field was not written, perhaps because of exclude=.
    if len(was) != len(back):
        raise _lost(_place(path), was, back)
    # Compared in order, since prompts and columns follow the order of a dict.
    pairs = zip(was.items(), back.items(), strict=True)
    for (key, value), (key_back, value_back) in pairs:
        if key != key_back:
            if isinstance(key, str):
                raise _lost(_place(path), was, back)
            same = False  # in ``Any``, a number as a key comes back as a text
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
        # What came back lacks cached properties, and the call that gave a reply.
        written = {name: written.get(name) for name in read_back}
        same = False
    if not _is_same_dict(written, read_back, path):
        same = False
    # Fields of a class with extra="allow".
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
    # Different libraries may give one offset zones with different names.
    return is_same_time and type(was.tzinfo) is type(back.tzinfo)


def _is_same_collection(
    was: Collection[object],
    back: Collection[object],
    path: ValuePath,
) -> bool:
    for value in was:
        if isinstance(value, datetime | time):  # two times in different zones may be equal
            _check_time(value, path)
    if was != back:
        raise _lost(_place(path), was, back)
    # Members of a set cannot be compared one by one, since a set has no order.
    return SCALARS.issuperset(map(type, was))


def _is_same_value(
    was: object,
    back: object,
    path: ValuePath,
) -> bool:
    if _is_equal(was, back, path):
        return True
    # The class writes and reads its objects itself, but does not compare them.
    equals_no_other = type(was).__eq__ is object.__eq__ and not isinstance(was, Iterator)
    if equals_no_other and getattr(was, "__dict__", None) == getattr(back, "__dict__", None):
        return False
    raise _lost(_place(path), was, back)


def _is_equal(
    was: object,
    back: object,
    path: ValuePath,
) -> bool:
    # An array compares member by member, so the result is not a single boolean.
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
    """Raise ConfigError if a value came back as another type with other content.

    A type may change if the annotation leaves it open: in ``Any``, ``Sequence`` or a union.
    """
    if isinstance(was, Enum):
        # A field annotated with the enum would have given the member back.
        is_same(was.value, back, path)
    elif isinstance(back, Mapping) and _has_fields(was):
        # A model in ``Any`` comes back as a dict of its fields.
        _is_same_dict(fields_of(was), back, path)
    elif isinstance(back, list | tuple) and isinstance(was, list | tuple | deque):
        # As lists, since a deque never equals a list.
        _is_same_list(list(was), list(back), path)
    elif isinstance(was, datetime) and isinstance(back, str):
        _check_time(was, path)
        # In a field without a type, a time comes back as a text.
        if datetime.fromisoformat(back) != was:
            raise _lost(_place(path), was, back)
    elif isinstance(was, datetime | time):
        _check_time(was, path)
        if was != back and not isinstance(back, str):
            raise _lost(_place(path), was, back)
    elif not _is_equal(was, back, path) and not _is_whole_as_text(was, back):
        raise _lost(_place(path), was, back)


def _is_whole_as_text(was: object, back: object) -> bool:
    """Return True if a value came back as a text that holds all of it."""
    if not isinstance(back, str) or isinstance(was, str | Iterator):
        return False
    # pandas' times have nanoseconds, which are cut off; a secret is written as asterisks.
    is_cut = getattr(was, "nanoseconds", 0) or hasattr(was, "get_secret_value")
    return not is_cut and all_finite(was)


def _check_time(value: datetime | time, path: ValuePath) -> None:
    """Raise ConfigError for a time that a tape would not keep whole."""
    zone = value.tzinfo
    # A zone with one fixed offset, which JSON can hold, knows its offset without a date.
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
    """Return True if two classes are the same class, defined twice."""
    is_same_module = cls.__module__ == other.__module__
    is_same_name = cls.__qualname__ == other.__qualname__
    return is_same_module and is_same_name and cls is not other


def defined_again(name: str, module: str) -> ConfigError:
    """Return the error for a class that was defined again while objects of the old one are used."""
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
    """Return the error for a value that would come back changed."""
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
    """Return the error for a state that cannot be written; it names the innermost faulty value."""
    # Checked first: too much depth fails in several ways, and none of them names the cause.
    _check_depth(value, path)
    # The message names the innermost value that fails.
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
    """Return the error for a state whose JSON its class cannot read."""
    _check_depth(value, path)
    try:
        _as_json(value)
    except _UNWRITABLE as error_of_writing:  # NaN, or a number with too many digits
        return _cannot_write(path, value, error_of_writing)
    if isinstance(error, ValidationError):
        fault = faults(error)
    elif isinstance(error, ValueError):
        fault = str(error)
    else:
        fault = error_text(error)
    return ConfigError(f"a tape would not give {_place(path)} back: {fault}")


def _check_depth(value: object, path: ValuePath) -> None:
    """Raise ConfigError if a value is nested too deeply for a tape."""
    # Part by part, so that the message names the field.
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
    """Return the parts of a value, by name."""
    if _has_fields(value):
        return [(plain_text(name), part) for name, part in fields_of(value).items()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [(str(number), part) for number, part in enumerate(value)]
    return []


def _has_fields(value: object) -> bool:
    """Return True if a value has parts with names; see ``fields_of``."""
    return isinstance(value, BaseModel | Mapping) or is_dataclass(value)


def _place(path: ValuePath) -> str:
    return clip(".".join(path), 200) or "this"
