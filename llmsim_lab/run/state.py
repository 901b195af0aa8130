"""The state of a user's own world: values that are never changed in place.

A ``State`` is a frozen pydantic model whose dicts and lists are frozen too, so that no code can
change a turn that was played. ``replace`` makes the next state. The numbers in a state have names
such as ``coins.Ann``, also those in dicts and in states inside it. They are the columns of the
run's frame, and the names that interventions use.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, MutableSequence, Set
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from llmsim_lab._util.config import with_first_faults
from llmsim_lab._util.frozen import FrozenDict, FrozenList
from llmsim_lab._util.jsontext import MOST_LEVELS, SCALARS
from llmsim_lab._util.text import brief, clip, closest, faults, listed, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import OfJson, Status

COMMON_COLUMNS = frozenset(
    {"turn", "calls", *get_args(Status), "tokens", "seconds", "interventions"}
)
"""The columns of every run's frame, beside those of the run's class."""

Columns = dict[str, Any]
"""Values by the columns of a frame, or by the fields of a reply; JSON-ready."""


class State(OfJson):
    """The base of a world's state: derive from it and annotate fields, each with a default.

    Fields may be numbers, texts, booleans, tuples, lists, dicts with texts as keys, and other
    states. NaN and Infinity are errors. If a field depends on the run's parameters, leave out its
    default and write ``def start(self)`` in the run's class.

    Raises:
        ConfigError: while the class is made: a field has a name that a run's frame or pydantic
            needs, or a type that JSON cannot hold, such as a graph.

    Example:
        >>> class Pot(State):
        ...     coins: dict[str, float] = {"Ann": 20.0}
        >>> Pot().replace(coins={"Ann": 15}).coins["Ann"]
        15.0
    """

    # Else a default of 20 for a float would stay an int, and a run would differ from its own
    # replay, which reads 20.0 from the tape.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
    )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        return with_first_faults(super().__get_pydantic_core_schema__(source, handler), handler)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        for name in cls.model_fields:
            if name in COMMON_COLUMNS or hasattr(State, name):
                raise ConfigError(
                    f"{cls.__name__}.{name}: the name {name!r} is taken, by every run or State "
                    f"itself; call the field something else, such as {name}_"
                )

    def model_post_init(self, _context: object, /) -> None:
        """Freeze the values of the fields."""
        # pydantic's ``frozen`` only keeps fields from being set: state.coins["Ann"] = -1 would
        # still change a turn that was played. ``__dict__`` avoids __setattr__, which raises.
        values = self.__dict__
        for name, value in values.items():
            if type(value) is str:
                # Files cannot hold half a character.
                values[name] = whole_text(value)
            elif type(value) not in _PLAIN:  # checked here, so that plain values cost no f-string
                values[name] = _frozen_field(self, name, value)
        extra = self.__pydantic_extra__
        if extra:
            for name, value in extra.items():
                extra[name] = _frozen_field(self, name, value)

    def replace(self, **changes: Any) -> Self:
        """Return this state with some fields changed, and all of it checked again.

        Args:
            changes: new values by field.

        Raises:
            ConfigError: there is no such field, or a value does not fit.
        """
        cls = type(self)
        values = {**fields_of(self), **changes}
        try:
            return cls.model_validate(
                values,
                by_alias=True,
                by_name=True,
            )
        except ValidationError as error:
            raise ConfigError(f"{cls.__name__}: {faults(error, cls.model_fields)}") from error
        except TypeError as error:  # such as pydantic's error for pandas's NaT as a date
            changed = ", ".join(f"{name}={brief(value)}" for name, value in changes.items())
            raise ConfigError(f"{cls.__name__}.replace({changed}): {error}") from error

    def columns(self) -> dict[str, Any]:
        """Return the state's columns of the frame: its numbers, and its fields that are texts.

        Computed fields are included. A state may override this to add further columns.
        """
        values = values_in(self)
        for name in type(self).model_computed_fields:
            values[name] = ValueInState((name,), getattr(self, name))
        columns: dict[str, Any] = {}
        for name, (path, value) in values.items():
            is_field = len(path) == 1
            if isinstance(value, Decimal | Fraction):
                columns[name] = _for_table(value)
            elif isinstance(value, int | float) or (is_field and isinstance(value, str)):
                columns[name] = value
        return columns

    def model_copy(
        self,
        *,
        update: Mapping[str, Any] | None = None,
        deep: bool = False,
    ) -> Self:
        """Do what ``replace`` does: every value in a state is checked."""
        # ``deep`` is ignored: nothing in a state can be changed, so a copy may share all of it.
        changes = update or {}
        return self.replace(**changes)

    def __setattr__(self, name: str, value: object) -> None:
        raise ConfigError(
            "a state is never changed in place; make the next one: "
            f"state.replace({name}={clip(repr(value), 40)})"
        )


StateT = TypeVar("StateT", bound=State)
_PLAIN = SCALARS - {str} | {FrozenDict, FrozenList}
"""Classes of values that cannot be changed; checked first, since most values are of these."""


def _for_table(value: Decimal | Fraction) -> float | int:
    """Return a number that a table can add up and a chart can draw."""
    try:
        number = float(value)
    except OverflowError:  # a fraction raises; a Decimal becomes infinite
        number = math.inf
    # An integer if it is too large for a float: Python's integers have no limit.
    return number if math.isfinite(number) else int(value)


def _frozen_field(
    state: State,
    name: str,
    value: object,
) -> object:
    """Return a field's value with everything inside it frozen.

    Raises:
        ConfigError: a value inside can be changed in place, or is nested too deeply.
    """
    where = f"{type(state).__name__}.{name}"
    try:
        return _frozen(value, where)
    except RecursionError:
        raise ConfigError(
            f"{where} is nested too deeply for a tape: more than {MOST_LEVELS} lists and dicts in "
            "one another"
        ) from None


def _frozen(value: object, where: str) -> object:
    """Return a value with everything inside it frozen; see ``_frozen_field``."""
    cls: type = type(value)
    if type(value) is str:
        return whole_text(value)
    if _cannot_change(cls):
        return value
    if isinstance(value, tuple):
        return _frozen_tuple(value, where)
    if isinstance(value, Mapping):
        return _frozen_dict(value, where)
    if isinstance(value, list):
        # Numbers need no freezing, and there may be many.
        return FrozenList(
            [item if type(item) in _PLAIN else _frozen(item, where) for item in value]
        )
    raise ConfigError(
        f"{where} holds a {cls.__name__}, which can be changed in place or has no order; hold it "
        "as a tuple, of a set tuple(sorted(...)), a State or a @dataclass(frozen=True)"
    )


def _frozen_tuple(
    value: tuple[Any, ...],
    where: str,
) -> tuple[Any, ...]:
    """Return a tuple of frozen items; the same tuple if nothing had to be frozen."""
    items: list[Any] = []
    for item in value:
        is_frozen = _cannot_change(type(item))  # type: ignore[arg-type]
        items.append(item if is_frozen else _frozen(item, where))
    # Most tuples have only frozen items already, and are returned themselves.
    if all(map(operator.is_, items, value)):
        return value
    if hasattr(value, "_fields"):  # a named tuple stays one
        return type(value)(*items)
    return tuple(items)


def _frozen_dict(value: Mapping[Any, object], where: str) -> FrozenDict:
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(
                f"{where} has the key {brief(key, 40)}; a state's keys are texts, as on the tape: "
                f"write {brief(str(key), 40)}"
            )
    # Joined, since one check of all keys is faster than one check of each.
    if not "".join(value).isascii():
        value = _with_whole_keys(value, where)
    frozen: dict[str, object] = {}
    for key, item in value.items():
        # Checked here, so that plain values cost no f-string.
        frozen[key] = item if type(item) in _PLAIN else _frozen(item, f"{where}.{key}")
    return FrozenDict(frozen)


def _with_whole_keys(
    value: Mapping[str, object],
    where: str,
) -> Mapping[str, object]:
    """Return a dict whose keys have no half characters.

    Raises:
        ConfigError: two keys differ only in their half characters.
    """
    whole = {whole_text(key): item for key, item in value.items()}
    if len(whole) < len(value):
        raise ConfigError(
            f"{where} has keys that differ in half a character alone (a surrogate), which no file "
            "can hold: write others"
        )
    return whole


@lru_cache(maxsize=1024)  # called for every value in every state
def _cannot_change(cls: type) -> bool:
    """Return True if values of a class cannot change, and hold nothing that needs freezing."""
    if cls in _PLAIN:
        return True
    if cls is str or issubclass(cls, Mapping | tuple | Set | MutableSequence | Iterator):
        return False
    if issubclass(cls, BaseModel):
        return bool(cls.model_config.get("frozen"))
    parameters = getattr(cls, "__dataclass_params__", None)
    return parameters is None or bool(parameters.frozen)


def fields_of(value: Any) -> Mapping[Any, Any]:
    """Return the fields of a model or dataclass, or the items of a dict; no cached properties."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, BaseModel):
        return {field.name: getattr(value, field.name, None) for field in dataclass_fields(value)}
    inside: Mapping[str, Any] = value.__dict__
    names = type(value).model_fields
    # A cached property is in ``__dict__`` as well, once it was computed.
    if len(inside) != len(names):
        inside = {name: inside[name] for name in names if name in inside}
    extra = value.__pydantic_extra__
    if not extra:
        return inside
    return {**inside, **extra}


class ValueInState(NamedTuple):
    """A value in a state, and its path: the names of fields and keys that lead to it."""

    path: tuple[str, ...]
    value: Any


def values_in(state: State) -> dict[str, ValueInState]:
    """Return the values in a state, by names such as ``coins.Ann``.

    Raises:
        ConfigError: two values have the same name, because a key holds a dot.
    """
    values: dict[str, ValueInState] = {}

    def walk(holder: object, path_to_it: tuple[str, ...]) -> None:
        for key, value in fields_of(holder).items():
            path = (*path_to_it, key)
            # Keys are texts, except in models that are not states.
            name = ".".join(map(str, path))
            if name in values:
                raise ConfigError(
                    f"two values of the state are called {name}: {values[name].path} and {path}; "
                    "take the dot out of one of the names"
                )
            values[name] = ValueInState(path, value)
            if type(value) in SCALARS:
                continue
            if isinstance(value, BaseModel | Mapping) or is_dataclass(value):
                walk(value, path)

    walk(state, ())
    return values


def changed_at(state: StateT, values: Mapping[str, object]) -> StateT:
    """Return a state with new values at some names, such as ``coins.Ann``.

    Args:
        state: the state.
        values: the new values, by name.

    Raises:
        ConfigError: there is no such name, or a value does not fit.
    """
    places = values_in(state)
    # A copy with plain dicts, which can be changed.
    changed: dict[str, Any] = state.model_dump(round_trip=True)
    for name, value in values.items():
        if name not in places:
            raise ConfigError(
                f"the state has nothing called {name!r}{closest(name, places)}; it has "
                f"{listed([*places])}"
            )
        _check_can_be_set(state, name, places[name].path)
        _check_is_set_once(name, places[name].path, values)
        # Found by path and not by splitting the name: a key may hold a dot.
        *path, last = places[name].path
        holder = changed
        for key in path:
            holder = holder[key]
        holder[last] = value
    return state.replace(**changed)


def _check_is_set_once(
    name: str,
    path: tuple[str, ...],
    values: Mapping[str, object],
) -> None:
    """Raise ConfigError if a value is set together with a dict or state that it is in."""
    # Else it would depend on their order which of the two counts.
    for length in range(1, len(path)):
        around = ".".join(path[:length])
        if around not in values:
            continue
        inside = brief(values[name], 40)
        for key in reversed(path[length:]):
            inside = f"{{{key!r}: {inside}, ...}}"
        raise ConfigError(
            f"{around} and {name} are both set, and {name} is in {around}; put it there: "
            f"{{{around!r}: {inside}}}"
        )


def _check_can_be_set(
    state: State,
    name: str,
    path: tuple[str, ...],
) -> None:
    """Raise ConfigError if a value belongs to a field that its class marks as derived."""
    holder: Any = state
    for key in path:
        if isinstance(holder, BaseModel):
            field = type(holder).model_fields.get(key)
            if field is not None and field.frozen:
                raise ConfigError(
                    f"{name} cannot be set: {type(holder).__name__}.{key} is a Field(frozen=True), "
                    "which each turn makes anew; set what it follows from"
                )
        holder = fields_of(holder)[key]
