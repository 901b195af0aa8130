"""What every kind of simulation is configured with, and what may be done to one from outside."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError, field_validator

from llmsim_lab.checks import whole_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.logs import log_event
from llmsim_lab.runs.series import Series
from llmsim_lab.runs.state import changed_at
from llmsim_lab.settings import Settings
from llmsim_lab.text import clip, faults
from llmsim_lab.values import FrozenDict, FrozenList

__all__ = [
    "PlayerWord",
    "RunConfig",
    "RunIntervention",
    "StateChange",
    "WorldConfig",
    "checked",
    "idle_seeds",
    "say_if_unreached",
]

logger = logging.getLogger(__name__)


class RunConfig(Settings):
    """What every run has; a kind's configuration derives from it and adds its own.

    Attributes:
        name: for charts and records.
        seed: of everything random but the model.
        turns: how many ``run()`` plays.
        llm: the model and how to talk to it.
        interventions: what is done from outside, and when; a kind names its own type of them.
    """

    name: Annotated[str, Field(min_length=1)] = "run"
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    turns: Annotated[int, Field(ge=0, le=100_000)] = 8
    llm: LLMConfig = Field(default_factory=LLMConfig)
    interventions: tuple[Any, ...] = ()

    @property
    def needs_model(self) -> bool:
        """Whether a run makes any model call; a kind with rules for players overrides this."""
        return True

    @property
    def seed_idle(self) -> str:
        """Why ``seed`` changes nothing in such a run; empty where it does."""
        return ""

    @property
    def series(self) -> Sequence[Series]:
        """The columns of such a run's frame that can be charted, the most telling first."""
        return ()


class RunIntervention(Settings):
    """Something done from outside at one turn; a kind adds what can be done.

    Attributes:
        turn: the number of the state that is changed.
    """

    turn: Annotated[int, Field(ge=0)]

    @field_validator("turn", mode="before")
    @classmethod
    def _whole(cls, turn: Any) -> int:
        return whole_number("turn", turn)  # numpy's too, as frames have them; True is none

    def check(self, run: Any) -> None:
        """Raise ConfigError for what a run has no place for; being late is seen to."""

    def applied(self, state: Any, run: Any) -> Any:
        """Return a run's state with what is done to it."""
        del state, run
        raise NotImplementedError(
            f"{type(self).__name__} does not say what it does: def applied(self, state, run) "
            "returns the state with it"
        )

    def __str__(self) -> str:
        # A value of 0 is something done; what is as it is by default is not.
        fields = type(self).model_fields
        done = [
            f"{name}={value}"
            for name, value in self
            if name != "turn" and value != fields[name].get_default(call_default_factory=True)
        ]
        return f"turn {self.turn}: {clip(', '.join(done), 200)}"


class StateChange(RunIntervention):
    """Values set in a world's state from outside.

    Attributes:
        set: new values by name, such as ``{"coins.Ann": 5}``.
        note: why, for the record.
    """

    set: dict[str, Any] = Field(default_factory=dict)
    note: str = ""

    @field_validator("set", mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """Take numpy's numbers, as frames have them, for Python's."""
        if not isinstance(values, Mapping):
            return values
        return {
            name: value.item() if hasattr(value, "dtype") and not value.shape else value
            for name, value in values.items()
        }

    def applied(self, state: Any, run: Any) -> Any:
        """Return the state with the values set."""
        del run
        return changed_at(state, self.set)

    def __str__(self) -> str:
        done = clip(", ".join(f"{name} = {value}" for name, value in self.set.items()), 200)
        return f"turn {self.turn}: {done}{f' ({self.note})' if self.note else ''}"


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return FrozenDict({key: _frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return FrozenList(map(_frozen, value))
    return value


PlayerWord = Literal["model", "rule", "random", "person"]
"""Who answers for a player: the run's model, the world's own rule, chance, or somebody here."""


class WorldConfig(RunConfig):
    """What a world of one's own is configured with; the fields of its class are added to it.

    Attributes:
        players: who answers for a player, by name; ``*`` stands for all others, which the model
            answers for if nothing is said.
    """

    # A default of 2 for a float is 2.0 at once, as it is when it was read from a tape.
    model_config = ConfigDict(validate_default=True)

    players: dict[str, PlayerWord] = Field(default_factory=dict)
    interventions: tuple[StateChange, ...] = ()

    def model_post_init(self, _context: Any, /) -> None:
        """Freeze lists and dicts: what a turn put into one would be in no state, and on no tape."""
        for name, value in self.__dict__.items():
            self.__dict__[name] = _frozen(value)

    @property
    def needs_model(self) -> bool:
        """Whether a run makes any model call."""
        return "model" in self.players.values() or "*" not in self.players

    def by_rules(self) -> Self:
        """Return the configuration in which the world's own rule answers for everybody."""
        return self.model_copy(update={"players": {"*": "rule"}})


InterventionT = TypeVar("InterventionT", bound=RunIntervention)


def checked(kind: type[InterventionT], values: Mapping[str, Any]) -> InterventionT:
    """Return an intervention from a dict.

    Raises:
        ConfigError: a key or value is wrong; the message names it.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        at = values.get("turn", "?")
        raise ConfigError(f"intervention at turn {at}: {faults(error)}") from error


def idle_seeds(configs: Sequence[Any], *, model_seed: int | None) -> str:
    """Say why runs that differ in their seeds alone cannot differ; empty where they can.

    Args:
        configs: the runs' configurations.
        model_seed: the seed that their model is asked with; None draws anew.
    """
    first = configs[0]
    seeds = list(dict.fromkeys(config.seed for config in configs))
    why = getattr(first, "seed_idle", "")
    if len(seeds) < 2 or not why or (first.needs_model and model_seed is None):
        return ""
    same = {"seed": first.seed, "name": first.name}
    if any(config.model_copy(update=same) != first for config in configs):
        return ""
    if first.needs_model:
        why += f", and llm.seed={model_seed} gives the model's answers again; vary that"
    listed = ", ".join(map(str, seeds[:5])) + (", …" if len(seeds) > 5 else "")
    return f"runs that differ only in their seeds ({listed}) cannot differ: {why}"


def say_if_unreached(intervention: RunIntervention, *, run: str, reaches: int | None) -> None:
    """Log a WARNING where an intervention stands after the turn that ``run()`` ends at.

    It is not refused: a run may be played on.

    Args:
        intervention: what was planned.
        run: the run's name.
        reaches: the turn that ``run()`` would end at; None if that is not known.
    """
    if reaches is None or intervention.turn <= reaches:
        return
    log_event(
        logger,
        logging.WARNING,
        "INTERVENTION_NOT_REACHED",
        run=run,
        planned=intervention,
        run_reaches=reaches,
        way_out=f"run() called now ends at turn {reaches}: name a turn up to {reaches}, raise the "
        "configuration's turns, or play on with run(...) or step()",
    )
