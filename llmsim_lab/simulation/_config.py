"""What defines a run: its configuration, from Python or YAML, and changes from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from llmsim_lab._util.config import Settings, YamlFile
from llmsim_lab.agents._agents import NationProfile
from llmsim_lab.economy import initial_state
from llmsim_lab.economy._macro import RateLimits, Shocks, StaticEconomy, mirrored, set_levels
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.engines._committee import Committee, check_idle
from llmsim_lab.engines._engines import EngineConfig
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._choose import Decide
from llmsim_lab.llm._human import DAY_S
from llmsim_lab.models import GlobalState, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._config import RunConfig, RunIntervention
from llmsim_lab.run._registry import find_class
from llmsim_lab.run._turn import Series

Variable = Literal[
    "interest_rate", "inflation", "output_gap", "unemployment", "gdp_growth", "total_economic_value"
]

SERIES = (
    Series(column="interest_rate", label="Policy rate", unit="% per year", short="rate"),
    Series(column="inflation", label="Inflation", unit="% over four quarters", short="infl."),
    Series(column="output_gap", label="Output gap", unit="% of potential output"),
    Series(column="unemployment", label="Unemployment", unit="% of labour force", short="unem."),
    Series(column="gdp_growth", label="Real growth", unit="% per year"),
    Series(column="total_economic_value", label="Real output", unit="index"),
    Series(column="taylor_rate", label="Rate by the Taylor rule", unit="% per year"),
)
"""The columns of a run's frame that can be charted."""


LOSS_OF = ("inflation", "output_gap", "interest_rate")
"""The columns that a loss is computed of."""


def bounded(limits: RateLimits) -> Sequence[Series]:
    """Return the columns of a run's frame that can be charted, with the policy rate's bounds."""
    rate, *others = SERIES
    return (replace(rate, low=limits.lower, high=limits.upper), *others)


class Intervention(RunIntervention):
    """A change from outside at one turn; it is in that turn's state before anyone acts on it.

    Attributes:
        turn: the number of the state that is changed.
        set_to: variables and their new values, in their own units. Inflation's last four quarters
            move together, so that the four-quarter figure is the one given; the interest rate and
            the output gap change in this quarter only.
        shock: percentage points added to the quarter's inflation (``supply``) or output gap
            (``demand``) while the macro model leads to that state.
        note: why, for the record.
    """

    model_config = ConfigDict(populate_by_name=True)

    set_to: dict[Variable, FiniteFloat] = Field(default_factory=dict, alias="set")
    shock: dict[Literal["supply", "demand"], FiniteFloat] = Field(default_factory=dict)
    note: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.set_to and not self.shock:
            raise ValueError(
                "an intervention needs 'set' or 'shock', for example shock: {supply: 2}"
            )
        if self.shock and self.turn == 0:
            raise ValueError(
                "a shock at turn 0 would hit before the run begins; use turn 1, or 'set'"
            )
        # Values that make no valid state fail here, not in the middle of a run.
        self.apply(GlobalState())
        return self

    @property
    def shocks(self) -> Shocks:
        """The shock in the macro model's form."""
        return Shocks(**self.shock)

    def apply(self, economy: GlobalState) -> GlobalState:
        """Return the economy with the variables set, and its lags to match."""
        return set_levels(economy, **self.set_to)

    def applied(self, state: SimulationState, run: Any) -> SimulationState:
        """Return the state with the variables set; a shock enters earlier, in the macro model."""
        del run
        return state.model_copy(update={"global_state": self.apply(state.global_state)})

    def check(self, run: Any) -> None:
        """Check that a shock can still enter the run.

        Raises:
            ConfigError: the shock's turn is reached, or the run has no macro model for it; the
                message says what is possible instead.
        """
        if not self.shock:
            return
        if self.turn == run.turn_number:
            raise ConfigError(
                f"a shock hits on the way to a turn, and turn {self.turn} is reached; use "
                f"turn={self.turn + 1}, or set=..."
            )
        macro = run.engine.macro if isinstance(run.engine, EconomicEngine) else None
        if macro is None or isinstance(macro, StaticEconomy):
            raise ConfigError(
                f"{type(run.engine).__name__} has no economy for a shock to hit; use an "
                "EconomicEngine with RudebuschSvensson behind it, or set=..."
            )

    def __str__(self) -> str:
        parts = [f"{name}={value:g}" for name, value in self.set_to.items()]
        parts += [f"{name} shock {value:+g}" for name, value in self.shock.items()]
        note = f" ({self.note})" if self.note else ""
        return f"turn {self.turn}: {', '.join(parts)}{note}"


def _beside(prompt: Path, info: ValidationInfo) -> Path:
    """Return a prompt's file, which a configuration's file names as seen from its own folder."""
    if info.context is None or "folder" not in info.context:
        return prompt
    found: Path = info.context["folder"] / prompt
    Prompt.load(found)  # one that is missing or wrong is named now, not later
    return found


PromptFile = Annotated[Path, AfterValidator(_beside)]


class NationConfig(NationProfile):
    """One nation and who decides for it.

    Attributes:
        name: unique in the run.
        kind: ``llm``, a language model; ``taylor``, the Taylor rule; or ``human``, a person.
        prompt: a prompt file instead of the shipped one; not for ``taylor``.
        names_rate: for ``human``: whether the person also chooses the new rate; if not, the
            engine's model turns the action into a rate, as it does with a model's.
        timeout_s: for ``human``: how long each answer is waited for, seconds.
        exact: for ``taylor``: whether the rate becomes what the rule asks for, within
            ``rate_bounds``, instead of the nearest one that a move on offer leads to.
    """

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    kind: Literal["llm", "taylor", "human"] = "llm"
    prompt: PromptFile | None = None
    names_rate: bool = True
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = DAY_S
    exact: bool = False

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind != "human":
            check_idle(self, ("names_rate", "timeout_s"), "they are for nations of kind human")
        if self.kind != "taylor":
            check_idle(self, ("exact",), "it is for nations of kind taylor")
        if self.kind == "taylor":
            check_idle(self, ("mandate", "temperament", "prompt"), "a Taylor rule reads no prompt")
        return self

    @property
    def profile(self) -> NationProfile:
        """What is known of the nation's advisor, without who decides."""
        return NationProfile(**{key: getattr(self, key) for key in NationProfile.model_fields})


class ValidatorConfig(Settings):
    """How actions are checked.

    Attributes:
        kind: ``llm``, a language model, or ``always_valid``.
        domain: what actions must belong to.
        permissive: whether an indirect effect on the domain is enough.
        prompt: a prompt file instead of the shipped one.
    """

    kind: Literal["llm", "always_valid"] = "llm"
    domain: Annotated[str, Field(min_length=1)] = "economic"
    permissive: bool = True
    prompt: PromptFile | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind == "always_valid":
            check_idle(self, ("domain", "permissive", "prompt"), "always_valid accepts everything")
        return self


class EconomyConfig(Settings):
    """The economy that the interest rate acts on.

    Attributes:
        model: ``rudebusch_svensson``, or ``static``, in which only the rate moves.
        shock_scale: size of the random shocks: 1 for their estimated spread, which is what there
            is if nothing else is said; 0 for none, as in the static economy.
        fiscal_backstop: whether the budget adds demand where the rate is at its lower bound and the
            Taylor rule asks for a rate more than two points below it; without it long runs may end
            in a deflationary spiral.
        mirrored: whether all is as far on the other side of the steady state: the start, the
            quarters before it and the random shocks. Where inflation was too high it is then too
            low, so that two runs show whether a player answers the economy or the word "inflation".
    """

    model: Literal["rudebusch_svensson", "static"] = "rudebusch_svensson"
    shock_scale: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 1.0
    fiscal_backstop: bool = False
    mirrored: bool = False

    @model_validator(mode="before")
    @classmethod
    def _none_in_a_static_one(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("model") == "static":
            return {"shock_scale": 0.0, **values}
        return values

    @model_validator(mode="after")
    def _check_shocks(self) -> Self:
        if self.model == "static":
            check_idle(
                self, ("fiscal_backstop", "mirrored"), "in the static economy only the rate moves"
            )
        if self.model == "static" and self.shock_scale:
            raise ValueError(
                f"shock_scale={self.shock_scale:g} hits nothing in the static economy; "
                "set it to 0 or choose rudebusch_svensson"
            )
        return self


_SIZES_BP = (25, 50, 75, 100, 150, 200, 300, 450)
"""The largest change of a quarter in the data is 446."""
MOVES_BP = (*(-size for size in reversed(_SIZES_BP)), 0, *_SIZES_BP)
"""The moves on offer if nothing is said, basis points."""

_MOST_MOVES = 101
"""Servers hold a reply to a list of values only while it is not too long."""


def checked_moves(moves: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return moves in their order.

    Raises:
        ValueError: there are too few or too many, one is twice, or 0 is not among them.
    """
    if moves is None:
        return None
    if 0 not in moves or not 2 <= len(moves) <= _MOST_MOVES:
        raise ValueError(
            f"moves_bp={list(moves)} must be 2 to {_MOST_MOVES} changes in basis points, 0 (no "
            "change) among them, such as [-50, -25, 0, 25, 50]; null lets the engine's model "
            "judge what agents say"
        )
    if len(set(moves)) < len(moves):
        raise ValueError(f"moves_bp={list(moves)} names a move twice")
    return tuple(sorted(moves))


def checked_quarter(start: str | None) -> str | None:
    """Return a quarter to start from; ConfigError if the data do not have it."""
    if start is not None:
        initial_state(start)
    return start


_AS_BEFORE: Mapping[str, Any] = {
    "moves_bp": None,
    "committee": {"rule": "sequential"},
    "briefing": "thin",
}
"""What a configuration meant that was recorded before it could say so."""


class SimulationConfig(RunConfig):
    """Everything that defines a run, except for what its models answer.

    ``seed`` is that of the economy's shocks and of the model's sampling; a turn is a quarter.

    Attributes:
        start: the quarter whose real data are the initial state, such as ``1979Q3``; None starts
            from the steady state.
        nations: who proposes policy. Several are the members of one central bank's committee; the
            order in which they are named does not matter.
        committee: how their votes become one rate: ``median``, ``majority``, ``sequential``, or
            ``{rule: chair, chair: Ann, tolerance_bp: 25}``.
        moves_bp: the changes of the rate in force that agents may decide on, basis points; code
            applies exactly the one decided on, within ``rate_bounds``. None (in a file: null) lets
            agents put an action into words, which the engine's model turns into a rate.
        briefing: what agents are told: ``economist``, eight quarters with units and horizons, the
            target, the stance of policy and when a decision bites, as known at the time; ``thin``,
            four indicators of the quarter, as the agent contract has it, which is the default where
            ``moves_bp`` is None.
        masked: whether an economist's briefing leaves out dates and the names of countries.
        decide: how a model's move is taken from its probabilities: ``sample``, ``mode`` or
            ``expected``; None lets it write its decision.
        validator: how actions are checked.
        engine: limits of the interest rate: ``rate_bounds``, lowest and highest, percent per year;
            ``max_move``, the largest change by one action that states no move, percentage points;
            ``rate_step``, the grid of rates that the engine's model is offered.
        engine_prompt: a prompt file for the engine instead of the shipped one.
        economy: the economy that the rate acts on.
        interventions: what is done from outside, and when.
    """

    name: Annotated[str, Field(min_length=1)] = "economy"
    start: Annotated[str | None, AfterValidator(checked_quarter)] = None
    nations: tuple[NationConfig, ...] = (NationConfig(name="United States"),)
    committee: Committee = Field(default_factory=Committee)
    moves_bp: Annotated[tuple[int, ...] | None, AfterValidator(checked_moves)] = MOVES_BP
    briefing: Literal["economist", "thin"] = "economist"
    masked: bool = True
    decide: Decide | None = None
    validator: ValidatorConfig = Field(default_factory=ValidatorConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    engine_prompt: PromptFile | None = None
    economy: EconomyConfig = Field(default_factory=EconomyConfig)
    interventions: tuple[Intervention, ...] = ()

    @classmethod
    def recorded(cls, values: Mapping[str, Any]) -> Self:
        """Return the configuration that a tape holds, with the meaning that it had then."""
        return super().recorded({**_AS_BEFORE, **values})

    @model_validator(mode="before")
    @classmethod
    def _thin_without_moves(cls, values: Any) -> Any:
        """Brief thinly where there are no moves for an economist's briefing to ask about."""
        if isinstance(values, dict) and values.get("moves_bp", ()) is None:
            return {"briefing": "thin", **values}
        return values

    @field_validator("nations", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        """Turn a nation given by its name alone into a mapping."""
        if isinstance(value, list | tuple):
            return [{"name": item} if isinstance(item, str) else item for item in value]
        return value

    @field_validator("committee", mode="before")
    @classmethod
    def _rule_alone(cls, value: Any) -> Any:
        """Turn a committee given by its rule alone into a mapping."""
        return {"rule": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.nations:
            raise ValueError("nations is empty; name at least one, such as nations: [Aland]")
        if twice := named_twice(nation.name for nation in self.nations):
            raise ValueError(f"nations must have different names; twice: {', '.join(twice)}")
        if self.briefing == "thin" and not self.masked:
            raise ValueError("masked: false has no effect with briefing: thin; leave it out")
        if self.decide and self.moves_bp is None:
            raise ValueError(f"decide: {self.decide} needs moves to choose from; set moves_bp")
        if self.briefing == "economist" and self.moves_bp is None:
            raise ValueError(
                "moves_bp is null, and an economist's briefing asks for one of the moves on offer; "
                "set briefing: thin with it"
            )
        if self.start and self.economy.mirrored:
            rate = mirrored(initial_state(self.start).global_state).interest_rate
            low, high = self.engine.rate_bounds
            if not low <= rate <= high:
                raise ValueError(
                    f"economy.mirrored: the mirror image of {self.start} has an interest rate of "
                    f"{rate:.2f}, outside engine.rate_bounds {low:g} to {high:g}; choose another "
                    "start, such as 1973Q1"
                )
        if self.economy.model == "static" and (hit := [i for i in self.interventions if i.shock]):
            raise ValueError(
                f"economy.model 'static' has no equation for the shock at {hit[0]}; use 'set', or "
                "model 'rudebusch_svensson'"
            )
        return self

    @property
    def needs_model(self) -> bool:
        """Whether a run makes any model call; it makes none for a person who names the rate."""
        asking = (n.kind == "llm" or (n.kind == "human" and not n.names_rate) for n in self.nations)
        return self.validator.kind == "llm" or any(asking)

    @property
    def seed_idle(self) -> bool:
        """True without random shocks."""
        return not self.economy.shock_scale

    @property
    def series(self) -> Sequence[Series]:
        """The economy's variables and the rate that the Taylor rule asks for."""
        return bounded(self.engine.limits)

    def by_rules(self) -> SimulationConfig:
        """Return the configuration with a Taylor rule in place of each model.

        A rule keeps its nation's name and inflation target. People stay, and name the rate.
        """
        nations = tuple(
            nation.model_copy(update={"names_rate": True})
            if nation.kind == "human"
            else NationConfig(
                name=nation.name, kind="taylor", inflation_target=nation.inflation_target
            )
            for nation in self.nations
        )
        return self.model_copy(
            update={
                "nations": nations,
                "validator": ValidatorConfig(kind="always_valid"),
                "engine_prompt": None,
            }
        )

    def with_values(self, **values: Any) -> SimulationConfig:
        """Return the configuration with some values changed, and checked like the others.

        Raises:
            ConfigError: a value is wrong.
        """
        # Those set alone: the others follow from what is set now.
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return SimulationConfig(**{**own, **values})

    @classmethod
    def from_yaml(cls, path: str | Path) -> SimulationConfig:
        """Read a configuration file; prompt files in it are relative to its folder.

        Raises:
            ConfigError: the file cannot be read, or something in it is wrong; the message names
                file, line and key.
        """
        source = YamlFile.read(Path(path))
        # A class of one's own may have fields of these names.
        found = {key: source.values.get(key) for key in {"world", "kind"} - cls.model_fields.keys()}
        other = None
        if found.get("world") is not None:
            other = "a study", f"study {path} run"
        elif isinstance(kind := found.get("kind"), str) and kind != "economic":
            find_class(kind)  # an error of its own if there is none
            other = f"a run of kind {kind!r}", f"run {path}"
        if other is not None:
            raise ConfigError(
                f"{path} describes {other[0]}, and this takes an economic run's configuration; "
                f"llmsim-lab {other[1]} plays it"
            )
        return source.parse(cls)


def named_twice(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)
