"""The state of a world of one's own: values that are never changed in place.

A ``State`` is a frozen pydantic model whose dicts and lists are frozen too, so that what a
turn was cannot be rewritten afterwards. ``replace`` makes the next one. Its numbers, also those in
dicts and in states inside it, have names such as ``coins.Ann``: columns of the run's frame, and
what an intervention sets.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from llmsim_lab._util.jsontext import SCALARS, dumps, loads, plain
from llmsim_lab._util.text import clip, closest, faults, listed, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import FrozenDict, FrozenList, Status

COMMON_COLUMNS = frozenset(
    {"turn", "calls", *get_args(Status), "tokens", "seconds", "interventions"}
)
"""Columns of every run's frame, beside those of its class."""


class State(BaseModel):
    """The base of a world's state: derive from it and annotate fields, each with a default.

    Fields may be numbers, texts, booleans, tuples, lists, dicts with texts as keys, and other
    states. NaN and Infinity are errors. Where a field depends on the run's parameters, leave
    its default out and write ``def start(self)`` in the run's class.

    Raises:
        ConfigError: when the class is made: a field has a name that a run's frame or pydantic
            needs.

    Example:
        >>> class Pot(State):
        ...     coins: dict[str, float] = {"Ann": 20.0}
        >>> Pot().replace(coins={"Ann": 15}).coins["Ann"]
        15.0
    """

    # Else a default of 20 for a float stays an int, and a run begun with it would differ from its
    # own replay, which reads 20.0 from the tape.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for name in cls.model_fields:
            if name in COMMON_COLUMNS or hasattr(State, name):
                what = f"{cls.__name__}.{name}: the name {name!r} is taken, by every run or State"
                raise ConfigError(f"{what} itself; call the field something else, such as {name}_")

    def model_post_init(self, _context: Any, /) -> None:
        """Freeze what the fields hold."""
        # pydantic's ``frozen`` only keeps fields from being set: state.coins["Ann"] = -1 would
        # rewrite a turn that was played. ``__dict__`` goes past __setattr__, which raises.
        values = self.__dict__
        for name, value in values.items():
            if type(value) is str:
                values[name] = whole_text(value)
            elif type(value) not in _PLAIN:  # asked here, so that the hot path makes no f-string
                values[name] = _frozen(value, f"{type(self).__name__}.{name}")

    def replace(self, **changes: Any) -> Self:
        """Return this state with some fields changed, all of it checked again.

        Args:
            changes: new values by field.

        Raises:
            ConfigError: there is no such field, or a value is not one for it.
        """
        cls = type(self)
        try:
            return cls.model_validate({**self.__dict__, **changes})
        except ValidationError as error:
            raise ConfigError(f"{cls.__name__}: {faults(error, cls.model_fields)}") from error

    def columns(self) -> dict[str, Any]:
        """Return what a frame's row says of it: its numbers, and the texts that are its fields.

        A state may add what follows from it.
        """
        columns = {}
        for name, (path, value) in values_in(self).items():
            if isinstance(value, (int, float)) or (len(path) == 1 and isinstance(value, str)):
                columns[name] = value
        return columns

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Do what ``replace`` does: a state holds nothing that was not checked."""
        # ``deep`` says nothing: what is in a state cannot be changed, so that a copy may share it.
        return self.replace(**(update or {}))

    def __setattr__(self, name: str, value: Any) -> None:
        way_out = f"make the next one: state.replace({name}={clip(repr(value), 40)})"
        raise ConfigError(f"a state is never changed in place; {way_out}")


_PLAIN = SCALARS - {str} | {FrozenDict, FrozenList}


def _frozen(value: Any, where: str) -> Any:
    """Return a field's value with everything in it frozen.

    Raises:
        ConfigError: it holds something that can be changed in place.
    """
    cls: Any = type(value)
    if cls is str:
        return whole_text(value)
    if _cannot_change(cls):
        return value
    if isinstance(value, tuple):
        items = [
            it if _cannot_change(type(it)) else _frozen(it, where)  # type: ignore[arg-type]
            for it in value
        ]
        if all(map(operator.is_, items, value)):
            return value
        return cls(*items) if hasattr(cls, "_fields") else tuple(items)  # a named one stays one
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                way_out = f"a state's keys are texts, as on the tape: write {str(key)!r:.40}"
                raise ConfigError(f"{where} has the key {key!r:.40}; {way_out}")
        inside = value.items()  # numbers are as they should be, and there may be many
        fixed = {k: it if type(it) in _PLAIN else _frozen(it, f"{where}.{k}") for k, it in inside}
        return FrozenDict(fixed)
    if isinstance(value, list):
        return FrozenList([_frozen(item, where) for item in value])
    way_out = (
        "hold it as a tuple, of a set tuple(sorted(...)), a State or a @dataclass(frozen=True)"
    )
    raise ConfigError(
        f"{where} holds a {cls.__name__}, which can be changed in place or has no order; {way_out}"
    )


@lru_cache(maxsize=1024)  # asked of every value in every state
def _cannot_change(cls: type) -> bool:
    """Return True if the values of a class stay as they are, and hold nothing to be frozen."""
    if cls in _PLAIN:
        return True
    if cls is str or issubclass(cls, Mapping | list | tuple | set | frozenset):
        return False
    if issubclass(cls, BaseModel):
        return bool(cls.model_config.get("frozen"))
    parameters = getattr(cls, "__dataclass_params__", None)
    return parameters is None or bool(parameters.frozen)


def check_kept(state: BaseModel, kind: type[BaseModel], *, parsed: bool = False) -> None:
    """Raise ConfigError for a state, or parameters, that a tape would not give back as they are.

    Args:
        state: the state, or the parameters.
        kind: the class that it is read back as.
        parsed: whether from values, by their aliases, as parameters are; else from text.
    """
    name, why = kind.__name__, ""
    # pydantic warns of a value of another type; here it is an error, as what is read back shows.
    try:
        how: Any = {"mode": "json", "by_alias": parsed, "warnings": False}
        text = dumps(kind.__pydantic_serializer__.to_python(state, **how))
        back = kind.model_validate(loads(text)) if parsed else kind.model_validate_json(text)
        # A replay may well see a list of parameters where a tuple was given.
        if back == state or (parsed and plain(back.__dict__) == plain(state.__dict__)):
            return
        if type(state) is not kind:
            why = f"it is a {type(state).__name__}: write Run[{type(state).__name__}]"
        for field, value in state.__dict__.items():
            if not why and value != back.__dict__[field]:
                was, now = clip(repr(value), 80), clip(repr(back.__dict__[field]), 80)
                why = f"{field} is {was}, and comes back as {now}: annotate just what it holds. "
                why += "Of several classes each needs a field such as kind: Literal['car'] = 'car'"
    except ValueError as error:
        why = clip(faults(error) if isinstance(error, ValidationError) else str(error), 200)
    raise ConfigError(f"a tape would not give this {name} back as it is: {why}")


def values_in(state: State) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Return what is in a state by name, such as ``coins.Ann``: its path, and the value.

    Raises:
        ConfigError: two values have one name, as with a key that holds a dot.
    """
    found: dict[str, tuple[tuple[str, ...], Any]] = {}

    def walk(inside: Any, around: tuple[str, ...]) -> None:
        for own, value in (inside.__dict__ if isinstance(inside, BaseModel) else inside).items():
            path = (*around, own)
            if (name := ".".join(path)) in found:
                both = f"two values of the state are called {name}: {found[name][0]} and {path}"
                raise ConfigError(f"{both}; take the dot out of one of the names")
            found[name] = path, value
            if type(value) not in SCALARS and isinstance(value, BaseModel | Mapping):
                walk(value, path)

    walk(state, ())
    return found


def changed_at(state: State, values: Mapping[str, Any]) -> Any:
    """Return a state with other values at some names, such as ``coins.Ann``.

    Args:
        state: the state.
        values: by name.

    Raises:
        ConfigError: there is no such name, or a value is not one for it.
    """
    places = values_in(state)
    dumped: dict[str, Any] = state.model_dump()  # a copy, whose dicts can be changed
    for name, value in values.items():
        if name not in places:
            what = f"the state has nothing called {name!r}{closest(name, places)}"
            raise ConfigError(f"{what}; it has {listed([*places])}")
        *path, last = places[name][0]
        inside = dumped
        for part in path:
            inside = inside[part]
        inside[last] = value
    return state.replace(**dumped)
