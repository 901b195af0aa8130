"""A run's configuration, and interventions.

The configuration is a pydantic model, made from the annotated fields of the world's class. So these
can be given by keyword, read from a file and written on a tape.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticUndefined

from llmsim_lab._util.checks import plain_number, whole_number
from llmsim_lab._util.config import Settings, with_first_faults
from llmsim_lab._util.text import brief, clip, whole
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.llm.human import StandIn
from llmsim_lab.people import Population
from llmsim_lab.run._kept import kept_values
from llmsim_lab.run.registry import RunClass, is_shipped
from llmsim_lab.types import OfJson, Rationale


def _as_on_tape(values: object) -> object:
    """Return values as a tape gives them back, so that a replay sets the same."""
    if not isinstance(values, Mapping):
        return values
    return whole(kept_values(values))


class StateChange(Settings):
    """Values set in a world's state from outside, at one turn.

    Attributes:
        turn: the number of the state that is changed.
        set: new values by name, such as ``{"coins.Ann": 5}``.
        note: why, for the record.
    """

    # Also a whole number of numpy's, as frames have them, but not True.
    turn: Annotated[int, Field(ge=0), BeforeValidator(partial(whole_number, "turn"))]
    set: Annotated[dict[str, Any], BeforeValidator(_as_on_tape)] = Field(default_factory=dict)
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        # Checked here, so that a file and a world's call get this message too.
        for name in values.keys() - cls.model_fields.keys():
            raise ValueError(
                f"{name}: unknown; there are {', '.join(cls.model_fields)}; write {{'turn': 3, "
                "'set': {'coins.Ann': 5}}, which acts on the way to turn 4"
            )
        return values

    def __str__(self) -> str:
        values = ", ".join(f"{name} = {value}" for name, value in self.set.items())
        words = f"turn {self.turn}: {clip(values, 200)}"
        if self.note:
            words += f" ({self.note})"
        return words


PlayerWord = Literal[
    "model",
    "rule",
    "random",
    "person",
    "person, else random",
    "person, else rule",
    "person, else model",
]
"""Who answers for a player: the run's model, the world's own rule, chance, or a person here.

``person, else random`` lets chance answer in place of a person who has left, or takes too long.
"""

_ELSE = "person, else "


def word_of_person(stand_in: StandIn) -> PlayerWord:
    """Return the word for a person with this stand-in."""
    match stand_in:
        case "random":
            return "person, else random"
        case "rule":
            return "person, else rule"
        case "model":
            return "person, else model"
    return "person"


def stand_in_of(word: str) -> StandIn | None:
    """Return who stands in for the person that a word means; None if it means no person."""
    match word.partition(_ELSE)[2]:
        case "random":
            return "random"
        case "rule":
            return "rule"
        case "model":
            return "model"
    return "" if word == "person" else None


OnError = Literal["raise", "fallback"]
"""What happens if a player's own code fails: the turn fails, or a stand-in answers."""


def by_name(players: object) -> Mapping[str, Any]:
    """Return players by name; a single one answers for all."""
    if isinstance(players, Mapping):
        return players
    return {"*": players}


Players = Annotated[dict[str, PlayerWord], BeforeValidator(by_name)]


def _place_of_reasons(value: object) -> object:
    """Return where in a reply the reasoning stands; older configurations have true and false.

    Raises:
        ValueError: the value is not such a place.
    """
    value = plain_number(value)
    if value is True:
        return "before"
    # By identity, since 0 equals False and is an error, as 1 is.
    if value is False:
        return value
    if isinstance(value, str) and value in ("before", "after"):
        return value
    raise ValueError(
        f"{brief(value)} is not one of 'before' (players give their reasoning before they decide), "
        "'after' and False (not at all)"
    )


Place = Annotated[Rationale, BeforeValidator(_place_of_reasons)]


MOST_REPLICATES = 2**31
"""Of a run: their numbers are below it."""

OnTape = Annotated[Population, AfterValidator(Population.on_tape)]


class WorldConfig(OfJson, Settings):
    """What every run has; the fields of a world's class are added to it.

    Attributes:
        name: for charts and records.
        seed: of everything random, each model call's sampling included.
        replicate: which sample of the players' answers this is: another one has the same shocks,
            and models, chance players, rules and functions draw anew. None leaves a model's
            sampling to the server; the others draw as in replicate 0. A seed of ``llm`` overrides.
        turns: how many ``run()`` plays.
        llm: the model and how to talk to it.
        interventions: what is done from outside, and when.
        players: who answers for a player, by name; ``*`` stands for all others, which the model
            answers for if nothing is said. One word alone, ``random``, is for all. Of ``person,
            else random`` chance answers for a person who has left or takes too long; so do
            ``person, else rule`` and ``person, else model``.
        rationale: where replies have their ``reasoning``: ``before`` the decision, so that it can
            follow from it, ``after`` it, or not at all, ``False``.
        population: players like the people of a table; None is nobody in particular.
        on_error: ``fallback`` lets a stand-in answer for a function or rule that raises, or answers
            what is not allowed; with ``raise`` the turn fails.
    """

    # Else a default of 2 for a float would stay an int, unlike the 2.0 that a replay reads.
    model_config = ConfigDict(validate_default=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        return with_first_faults(super().__get_pydantic_core_schema__(source, handler), handler)

    gone: ClassVar[Mapping[str, str]] = {}
    shown_as: ClassVar[str] = ""
    """What messages call the configuration; the name of its class if empty."""

    name: Annotated[str, Field(min_length=1)] = "run"
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    replicate: Annotated[int, Field(ge=0, lt=MOST_REPLICATES)] | None = 0
    turns: Annotated[int, Field(ge=0, le=100_000)] = 8
    llm: LLMConfig = Field(default_factory=LLMConfig)
    interventions: tuple[StateChange, ...] = ()
    players: Players = Field(default_factory=dict)
    # Left out if it is the default, so that older recordings, which lack it, stay equal.
    rationale: Annotated[Place, Field(exclude_if=lambda place: place == "before")] = "before"
    on_error: OnError = "raise"
    # Left out if there is none, for the same reason.
    population: Annotated[OnTape | None, Field(exclude_if=lambda players: not players)] = None

    @property
    def needs_model(self) -> bool:
        """True if a run makes any model call."""
        words = self.players.values()
        return "model" in words or "person, else model" in words or "*" not in self.players


def players_seed(config: WorldConfig) -> int | str:
    """Return the seed of the players' random numbers, made from the run's seed and replicate.

    The world's own draws, its shocks, follow from the seed alone. In replicate 0 the players' do
    too, as in older recordings.
    """
    if not config.replicate:
        return config.seed
    return f"{config.seed}, replicate {config.replicate}"


# --- a world's parameters ------------------------------------------------------------------------


class Parameter:
    """A parameter as an attribute of a run; its value is in the run's configuration."""

    def __init__(self, name: str, default: object) -> None:
        self.name = name
        self.default = default

    # Without __set__, so that a run can keep the value in its own dict, where reading is fast.
    def __get__(self, run: Any, owner: type) -> Any:
        if run is not None:
            return getattr(run.config, self.name)
        if self.default in (..., PydanticUndefined):
            raise AttributeError(f"{owner.__name__}.{self.name} has no default")
        return self.default


def config_type_of(cls: RunClass, base: RunClass) -> type[WorldConfig]:
    """Return the class of a world's configuration, made from its and its parents' annotations.

    Each annotated field becomes a ``Parameter`` of the world's class.

    Args:
        cls: the world's class, just made.
        base: ``Run``, whose names are reserved.

    Raises:
        ConfigError: a field has a name that is taken, a default that does not fit, or a type that
            JSON cannot hold.
    """
    fields = _parameters_of(cls, base)
    _check_attributes(cls, base)
    # By default a run has the name of this class, and not of a parent.
    defaults = {"name": cls.__name__, **vars(cls).get("defaults", {})}
    parent: type[WorldConfig] = cls.config_type
    for name, default in defaults.items():
        inherited = parent.model_fields[name]
        fields[name] = (Annotated[inherited.annotation, *inherited.metadata, Field()], default)
    # All parents that are worlds have parameters; other mixins have none.
    worlds: list[RunClass] = [world for world in cls.__bases__ if issubclass(world, base)]
    bases = tuple(dict.fromkeys(world.config_type for world in worlds))
    make: Any = create_model  # its type hints allow a single base only
    config: type[WorldConfig] = make(
        f"{cls.__name__}Config",
        __base__=bases,
        __module__=cls.__module__,
        **fields,
    )
    config.gone = cls.gone
    # Users write the name of a shipped world's configuration themselves: SimulationConfig(...).
    config.shown_as = "" if is_shipped(cls) else cls.__name__
    # Pickle looks a class up by module and name; this name leads to it through the world's class.
    config.__qualname__ = f"{cls.__qualname__}.config_type"
    return config


def _parameters_of(cls: RunClass, base: RunClass) -> dict[str, Any]:
    """Return the type and default of each annotated field, and make it a ``Parameter``.

    Raises:
        ConfigError: a field has a name that is taken.
    """
    # Attributes that only instances have.
    taken = {*inspect.signature(base).parameters, "given", "unrecorded"}
    # Allowed, since the social world has a ``population`` of its own, a list of users.
    taken |= WorldConfig.model_fields.keys() - {"population"}
    fields: dict[str, Any] = {}
    for name, hint in _hints_of(cls).items():
        if get_origin(hint) is ClassVar or hint is ClassVar or name.startswith("_"):
            continue
        if hasattr(base, name) or name in taken:
            raise ConfigError(
                f"{cls.__name__}.{name}: the name {name!r} is taken, as every run has one; call "
                f"the parameter something else, such as {name}_"
            )
        default = cls.__dict__.get(name, ...)
        fields[name] = (hint, default)
        if isinstance(default, FieldInfo):
            default = default.get_default(call_default_factory=True)
        setattr(cls, name, Parameter(name, default))
    return fields


def _hints_of(cls: type) -> dict[str, Any]:
    """Return the types of a class's own annotations.

    Raises:
        ConfigError: an annotation cannot be read.
    """
    # In a class without bases, since get_type_hints also returns the annotations of all bases.
    namespace = {
        "__annotations__": dict(inspect.get_annotations(cls)),
        "__module__": cls.__module__,
    }
    shim = type("Annotations", (), namespace)
    try:
        return get_type_hints(
            shim,
            localns=dict(vars(cls)),
            include_extras=True,
        )
    except (NameError, TypeError) as error:
        raise ConfigError(
            f"an annotation of {cls.__name__} cannot be read: {error}; write types of parameters "
            "at the top of the file, or of the cell, where they are known"
        ) from error


def not_among(
    changes: Iterable[StateChange],
    others: Iterable[StateChange],
) -> list[StateChange]:
    """Return the interventions that are not among others."""
    # By turn: to compare each of thousands with all others takes long.
    by_turn: dict[int, list[StateChange]] = {}
    for other in others:
        by_turn.setdefault(other.turn, []).append(other)
    return [change for change in changes if change not in by_turn.get(change.turn, ())]


def _check_attributes(cls: RunClass, base: RunClass) -> None:
    """Raise ConfigError for attributes without annotation that have the name of something else."""
    annotated: set[str] = set()
    for part in base.__mro__:
        annotated.update(inspect.get_annotations(part))
    for name, value in cls.__dict__.items():
        if name.startswith("_") or isinstance(value, Parameter | type):
            continue
        of_base = inspect.getattr_static(base, name, None)  # a property itself, and not its value
        is_method = hasattr(type(value), "__get__")  # or a property, or another descriptor
        if is_method:
            is_taken = isinstance(of_base, property) and not hasattr(type(value), "__set__")
        else:
            is_of_run = name in cls.config_type.model_fields or of_base is not None
            is_taken = is_of_run and name not in annotated
        if is_taken:
            raise ConfigError(
                f"{cls.__name__}.{name}: the name {name!r} is taken, as every run has one; a new "
                f"default is annotated, {name}: {type(value).__name__} = {brief(value)}; or call "
                f"it something else, such as {name}_"
            )


def state_type_of(cls: RunClass, base: RunClass) -> type | None:
    """Return the class of states that ``class Pot(Run[PotState])`` names; None if it names none.

    Args:
        cls: the world's class, just made.
        base: ``Run``, or a class between, which has the type parameter.
    """
    for parent in cls.__dict__.get("__orig_bases__", ()):
        origin = get_origin(parent)
        if isinstance(origin, type) and issubclass(origin, base):
            state = get_args(parent)[0]
            # A class with an open type parameter is a base of worlds.
            return state if isinstance(state, type) and state is not Any else None
    return None
