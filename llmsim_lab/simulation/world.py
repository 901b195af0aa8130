"""The economic world: in a quarter members propose, actions may be checked, and the rate moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from math import sqrt
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from llmsim_lab._util.checks import known_names, real_number
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.agents.agents import (
    NOT_ECONOMIC,
    SOURCES,
    RateDecision,
    TaylorRuleAgent,
    is_economic,
    moves_in_words,
    moves_to_choose,
    rule_proposal,
    thin_prompts,
)
from llmsim_lab.agents.briefing import (
    NationProfile,
    briefing,
    briefing_for_people,
    known_quarters,
    role_of,
    view_of,
)
from llmsim_lab.economy import QuadraticLoss, RudebuschSvensson, TaylorRule, initial_state
from llmsim_lab.economy.data import Quarter, next_quarter, start_quarter
from llmsim_lab.economy.macro import (
    NO_SHOCKS,
    EngineConfig,
    Rule,
    Shocks,
    fiscal_demand,
    mirrored,
    rate_by,
    set_levels,
    shocks_at,
)
from llmsim_lab.engines.committee import Committee
from llmsim_lab.engines.engines import dissents, minutes, update_prompts
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.choice import Decide
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.models import (
    GlobalState,
    MacroLags,
    PolicyDecision,
    SimulationState,
    StateUpdateDecision,
    ValidationDecision,
)
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.prompts.prompt import is_file_name
from llmsim_lab.run import Ask, Question, Run, State
from llmsim_lab.run.config import WorldConfig
from llmsim_lab.run.series import Series
from llmsim_lab.simulation._lint import LintFinding, MacroModel, of_model, of_rule, of_targets
from llmsim_lab.simulation.chair import as_reply, in_rates
from llmsim_lab.simulation.gate import DatedEconomy, EconomicsCard, Examinee, card_of
from llmsim_lab.simulation.parameters import MOVES_BP, SERIES, EconomyConfig, checked_moves
from llmsim_lab.types import Rate, Reply
from llmsim_lab.validators.validators import verdict_prompts

if TYPE_CHECKING:
    import pandas as pd

_VARIABLES = tuple(series.column for series in SERIES if series.column != "taylor_rate")
# The source's rule for the charts, whatever inflation targets the nations have.
_TAYLOR = TaylorRule()
TOLD = ("interest_rate", "inflation", "unemployment", "gdp_growth")
"""The figures in the shortest prompt; a person gets no more than a model."""
_MACRO_FIELDS = tuple(GlobalState.model_fields)
_FIGURES_IN_LINE = ("interest_rate", "inflation", "unemployment", "output_gap")
"""The figures in a quarter's line of text."""
GAP_NOISE_PERSISTENCE = 0.97
"""Persistence, in a quarter, of the error in the gap that players read: the first autocorrelation
of ``output_gap`` minus ``output_gap_one_sided`` in the US data; the standard deviation is 1.5 % of
potential."""


# --- state and replies ----------------------------------------------------------------------------


class Economy(State):
    """The economy at the end of a quarter, in the units of ``GlobalState``.

    Attributes:
        period: the quarter, such as ``1979Q3``, or None in an undated run.
        shock: what hits the next quarter, on top of the random shocks: ``shock.supply`` is added to
            its inflation, ``shock.demand`` to its output gap.
        gap_error: by how much the output gap that players read is above ``output_gap``, the true
            one, percent of potential; 0 without ``gap_noise``. In ``question.state`` it is 0, and
            ``output_gap`` is the one that is read.
    """

    interest_rate: float = 4.0
    inflation: float = 2.0
    output_gap: float = 0.0
    unemployment: Annotated[float, Field(ge=0, le=100)] = 5.0
    gdp_growth: float = 2.2
    total_economic_value: Annotated[float, Field(ge=0)] = 1000.0
    lags: MacroLags | None = None
    period: str | None = None
    shock: Shocks = NO_SHOCKS
    gap_error: float = 0.0

    @property
    def actual(self) -> GlobalState:
        """The economy in the class that macro models take.

        Raises:
            ConfigError: it has no lags; a run's first state gets them, one of a tape may lack them.
        """
        if self.lags is None:
            raise ConfigError(
                "this state of the economy has lags=None, but the next quarter depends on the last "
                "ones; take the state of a run, or the start that Simulation(...).state has"
            )
        return GlobalState(**{name: getattr(self, name) for name in _MACRO_FIELDS})

    @property
    def global_state(self) -> GlobalState:
        """The economy as models, rules, people and the contracts' classes read it."""
        if not self.gap_error:
            return self.actual
        gap_read = real_number("output_gap + gap_error", self.output_gap + self.gap_error)
        return set_levels(self.actual, output_gap=gap_read)

    def with_economy(self, economy: GlobalState, **changes: object) -> Self:
        """Return this state with the figures of an economy."""
        return self.replace(**dict(economy), **changes)

    def columns(self) -> dict[str, Any]:
        """Return the figures, the gap as read, and the Taylor rule's rate by that gap."""
        economy = self.global_state
        columns = {name: getattr(self, name) for name in ("period", *_VARIABLES)}
        # Without noise there is one gap, and one column.
        if self.gap_error:
            columns["output_gap_read"] = economy.output_gap
        columns["taylor_rate"] = rate_by(_TAYLOR, economy)
        return columns


class RateMove(Reply):
    """A change of the rate alone, where a choice is taken from probabilities."""

    rate_change_bp: int

    @property
    def action(self) -> str:
        """The change in words."""
        if not self.rate_change_bp:
            return "Hold the interest rate"
        return f"Change the interest rate by {self.rate_change_bp:+g} basis points"


class EconomicDecision(PolicyDecision):
    """An action of economic policy in words, which the engine's player judges.

    Attributes:
        proposed_rate: the rate that it means, percent per year, where code says it: then nothing is
            judged.
    """

    proposed_rate: SkipJsonSchema[Rate | None] = None

    @model_validator(mode="after")
    def _is_economic(self) -> Self:
        # A stated rate is policy, whatever the words are.
        if self.proposed_rate is None and not is_economic(self.action):
            raise ValueError(NOT_ECONOMIC)
        return self


class NoPolicy(EconomicDecision):
    """Stands in where a model twice proposes what is not economic policy: it changes nothing."""


_NO_POLICY = NoPolicy(
    action="No change of economic policy",
    reasoning="No valid answer.",
    confidence=0.0,
)

Proposal = RateDecision | RateMove | EconomicDecision
"""The reply of a committee's member."""
_JudgementWriter = Callable[[float, str, str], RenderedPrompt]
"""Writes the engine's prompt from the current rate, the proposal, and the member's name."""


class RateSetting(NamedTuple):
    """The rate that the proposals of a quarter lead to.

    Attributes:
        rate: percent per year.
        outcomes: the outcome of each proposal, by member, as columns of the member's row.
        minutes: how a committee voted; empty without a vote.
    """

    rate: float
    outcomes: Mapping[str, Mapping[str, Any]]
    minutes: str = ""


# --- parameters -----------------------------------------------------------------------------------


def _not_a_file(prompt: str) -> str:
    """Return a prompt's text; raise for a file's name, which a model would be asked."""
    if is_file_name(prompt):
        raise ValueError(f"{prompt!r} is a file's name; a nation's prompt is the text itself")
    return prompt


class Nation(NationProfile):
    """A member of the central bank's committee.

    Attributes:
        name: unique in the run.
        prompt: a prompt of its own instead of the shipped one: its text, with the slots of
            ``agent_briefing``, ``committee_briefing``, ``agent_rate`` or ``agent_policy``.
    """

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    prompt: Annotated[str, AfterValidator(_not_a_file)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _seated(cls, values: Any) -> Any:
        # nations=["Ann", "Bob"] gives names only.
        if isinstance(values, str):
            return {"name": values}
        # Files had a "kind" before players were named by their seats.
        if isinstance(values, Mapping) and "kind" in values:
            name = values.get("name", "Ann")
            raise ValueError(
                f"kind: who decides is said in players: {{{name}: rule}}, or model, or person"
            )
        return values


def _by_rule(committee: object) -> object:
    """Return a committee's settings; a text is the name of its rule."""
    if isinstance(committee, str):
        return {"rule": committee}
    return committee


def _different(nations: tuple[Nation, ...]) -> tuple[Nation, ...]:
    """Return nations if their names differ, since seats and votes are found by name."""
    counts = Counter(nation.name for nation in nations)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise ValueError(f"nations must have different names; twice: {', '.join(repeated)}")
    return nations


def _not_a_player(
    setting: object,
    info: ValidationInfo,
) -> object:
    """Return a setting; raise for a "kind", since who answers is set in ``players``."""
    # Older files had the "kind" among the settings.
    has_kind = isinstance(setting, Mapping) and "kind" in setting
    if callable(setting) or has_kind:
        raise ValueError(
            f"who answers is a player: players={{{info.field_name!r}: ...}}, a word such as "
            "'rule', a function, a person or a client"
        )
    return setting


# --- the world ------------------------------------------------------------------------------------


class Simulation(Run[Economy]):
    """One central bank and its economy, one quarter a turn.

    All members see the same quarter and propose at once. Where moves are on offer, a proposal
    states its size, and code applies exactly that; else it is in words, and the player ``engine``
    says which rate they mean. In between the player ``validator`` may be asked whether an action
    counts. The votes become one rate by the committee's rule, and a macro model leads the economy
    to the next quarter.

    Each nation is a player, and ``agent`` in ``players`` stands for all. The rule of a nation is
    Taylor's with its inflation target, the validator's accepts everything, and the engine's holds
    the rate. ``{"inflation": 9}`` sets a figure, ``{"shock.supply": 4}`` a shock of the next
    quarter.

    Args:
        start_at: the quarter whose real data are the initial state, such as ``1979Q3``; None starts
            from the steady state.
        nations: who proposes policy. Several are the members of one central bank's committee; the
            order in which they are named does not matter.
        committee: how their votes become one rate: ``median``, ``majority``, ``sequential``, or
            ``{rule: chair, chair: Ann, tolerance_bp: 25}``.
        moves_bp: the changes of the rate in force that may be decided on, basis points; None (in a
            file: null) lets members put an action into words.
        briefing: what members read: ``economist``, eight quarters with units and horizons, the
            target, the stance of policy and when a decision bites; ``thin``, four indicators of the
            quarter, as the agent contract has it, which is the default where ``moves_bp`` is None.
        masked: whether an economist's briefing leaves out dates and the names of countries.
        decide: how a model's move is taken from its probabilities: ``sample``, ``mode`` or
            ``expected``; None lets it write its decision.
        validator: whether the player ``validator`` is ``asked`` about each action, or ``none`` is;
            asked by default where actions are in words.
        domain: what actions must belong to.
        permissive: whether an indirect effect on the domain is enough.
        engine: limits of the interest rate: ``rate_bounds``, ``max_move``, ``rate_step``.
        economy: the economy that the rate acts on.
        gap_noise: how far the output gap that is read is from the true one: standard deviation,
            percent of potential. The error is an AR(1) of ``GAP_NOISE_PERSISTENCE`` with a random
            stream of its own; models, rules and people read the same gap, and the loss is computed
            of the true one.
    """

    kind: ClassVar[str] = "economic"
    defaults: ClassVar[Mapping[str, Any]] = {"name": "economy"}
    gone: ClassVar[Mapping[str, str]] = {
        "agents": "say who decides by the seat, players={'Ann': NationAgent(...)}; the nations are "
        "nations=['Ann', ...]",
        "start": "write start_at: 1979Q3",
        "engine_prompt": "edit the prompt engine_interest_rate in a fork, fork(prompt=...)",
        "shock": "write interventions: [{turn: 3, set: {shock.supply: 4}}]",
    }

    start_at: Annotated[str, AfterValidator(start_quarter)] | None = None
    nations: Annotated[
        tuple[Nation, ...], Field(min_length=1, max_length=5_000), AfterValidator(_different)
    ] = (Nation(name="United States"),)
    committee: Annotated[Committee, BeforeValidator(_by_rule)] = Committee()
    moves_bp: Annotated[tuple[int, ...], AfterValidator(checked_moves)] | None = MOVES_BP
    briefing: Literal["economist", "thin"] | None = None
    masked: bool = True
    decide: Decide | None = None
    validator: Annotated[Literal["asked", "none"] | None, BeforeValidator(_not_a_player)] = None
    domain: Annotated[str, Field(min_length=1)] = "economic"
    permissive: bool = True
    engine: Annotated[EngineConfig, BeforeValidator(_not_a_player)] = EngineConfig()
    economy: EconomyConfig = EconomyConfig()
    gap_noise: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0

    def ready(self) -> None:
        """Set what follows from the parameters, and check that they fit together."""
        self._nations = {nation.name: nation for nation in self.nations}
        self._members = list(self._nations)
        if self.committee.rule != "sequential":
            # Sorted, since the order in which members are named must not matter.
            self._members.sort()
        self._reply = self._reply_type()
        self._shipped = self._shipped_prompt()
        self._check_moves()
        # Without a chair there is no name to look up.
        known_names("chair", self.committee.chair or (), self._members)
        # A rate that a bound changes would not be the mirror image.
        rate = self.start().interest_rate
        if self.economy.mirrored and rate != self.engine.inside(rate):
            raise ConfigError(
                f"the mirror image of {self.start_at} has an interest rate of {rate:.2f}, outside "
                f"engine.rate_bounds {self.engine.lower:g} to {self.engine.upper:g}; choose "
                "another start, such as 1973Q1"
            )

    @property
    def checks_actions(self) -> bool:
        """Whether the validator is asked about each action."""
        if self.validator is None:
            # Moves on offer are always policy; words may be anything.
            return self.moves_bp is None
        return self.validator == "asked"

    def _reply_type(self) -> type[Proposal]:
        """Return the reply's class."""
        # A choice from probabilities has neither reasons nor words.
        if self.decide:
            return RateMove
        if self.moves_bp:
            return RateDecision
        return EconomicDecision

    @property
    def _is_briefed(self) -> bool:
        """Whether members read an economist's briefing."""
        if self.briefing is None:
            return self.moves_bp is not None
        return self.briefing == "economist"

    def _shipped_prompt(self) -> str:
        """Return the name of the prompt for members that have no prompt of their own."""
        if not self._is_briefed:
            return "agent_rate" if self.moves_bp else "agent_policy"
        # Older recordings of committees have the prompt that only a single bank gets now.
        banks_own = ("agent_briefing#", "agent_briefing of ")
        is_recorded_so = any(place.startswith(banks_own) for place in self.prompts)
        if len(self.nations) == 1 or is_recorded_so:
            return "agent_briefing"
        return "committee_briefing"

    def _check_moves(self) -> None:
        """Raise ConfigError if a parameter or prompt does not fit the moves on offer."""
        # Only options have probabilities that can be measured.
        if self.moves_bp is None and self.decide:
            raise ConfigError(
                f"decide: {self.decide} needs moves on offer, and moves_bp is null; set moves_bp"
            )
        if self.moves_bp is None and self._is_briefed:
            raise ConfigError(
                "an economist's briefing needs moves on offer, and moves_bp is null; set moves_bp"
            )
        # Only a briefing has dates and names of countries to leave out.
        if not self._is_briefed and not self.masked:
            raise ConfigError("masked: false has no effect with briefing: thin; leave it out")
        for name in self._members:
            has_slot = "moves" in self._prompt_of(name).slots
            if self.moves_bp and not has_slot:
                raise ConfigError(
                    f"the prompt of {name!r} has no slot {{{{ moves }}}} for the moves on offer; "
                    "add it, or set moves_bp to null"
                )

    def start(self) -> Economy:
        """Return the quarter to start from, or its mirror image."""
        first = SimulationState()
        if self.start_at:
            first = initial_state(self.start_at)
        economy = first.global_state
        period = first.period
        if self.economy.mirrored:
            economy = mirrored(economy)
            # The mirror image never happened, so that it has no date.
            period = None
        return Economy().with_economy(
            economy,
            period=period,
            gap_error=self.gap_noise * self._gap_draw(0),
        )

    def _gap_draw(self, turn: int) -> float:
        """Return the innovation of the gap's error in a quarter, in standard deviations."""
        # A separate stream, so that runs with and without noise have the same shocks.
        rng = Random(f"{self.seed}/gap noise/{turn}")
        draw = rng.gauss(0, 1)
        return -draw if self.economy.mirrored else draw

    async def turn(self, state: Economy, ask: Ask) -> Economy:
        """Play a quarter: proposals, verdicts, the rate, and its effect on the economy."""
        proposals = await self._decided(
            ask,
            self._members,
            self._quarters(state),
        )
        accepted = await self._accepted(ask, proposals)
        # Words are judged by the figures that members read; the rate acts on the true ones.
        setting = await self._new_rate(
            ask,
            self._as_read(state).actual,
            accepted,
        )
        after = self._next_quarter(state, setting.rate, ask.turn)
        _note_quarter(ask, proposals, accepted, setting, after)
        return after

    def _next_quarter(
        self,
        state: Economy,
        rate: float,
        turn: int,
    ) -> Economy:
        """Return the quarter that follows from a rate and the shocks."""
        shocks = state.shock + shocks_at(
            turn,
            seed=self.seed,
            scale=self.economy.shock_scale,
            mirrored=self.economy.mirrored,
        )
        if self.economy.fiscal_backstop:
            demand = fiscal_demand(
                state.actual,
                rate=rate,
                lower_bound=self.engine.lower,
            )
            shocks += Shocks(demand=demand)
        economy = RudebuschSvensson().advance(
            state.actual,
            interest_rate=rate,
            shocks=shocks,
        )
        period = None
        if state.period is not None:
            period = next_quarter(state.period)
        return state.with_economy(
            economy,
            period=period,
            # A shock that was set for one quarter has acted.
            shock=NO_SHOCKS,
            gap_error=self._next_gap_error(state.gap_error, turn),
        )

    def _next_gap_error(self, error: float, turn: int) -> float:
        """Return the next quarter's error in the gap that players read: a stationary AR(1)."""
        # The error's standard deviation is gap_noise in every quarter, including the first.
        spread = sqrt(1 - GAP_NOISE_PERSISTENCE**2) * self.gap_noise
        return GAP_NOISE_PERSISTENCE * error + spread * self._gap_draw(turn)

    def _quarters(self, state: Economy) -> list[Economy]:
        """Return the run's quarters up to a state."""
        # The latest is the given state, which interventions may have changed.
        before = [turn.state for turn in self.turns[:-1]]
        return [*before, state]

    def _as_put(self, question: OpenQuestion) -> OpenQuestion:
        return in_rates(self, question)

    def _as_reply(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return as_reply(self, values)

    def _as_read(self, state: Economy) -> Economy:
        """Return a quarter as prompts show it: with the gap as read, and without a coming shock."""
        read = state
        # Players must not see the shock of the next quarter.
        if state.shock != NO_SHOCKS:
            read = state.replace(shock=NO_SHOCKS)
        if not state.gap_error:
            return read
        *_, before, now = self._known(self._quarters(state))
        lags = replace(
            state.actual.lags,
            output_gap=(now.output_gap, before.output_gap),
        )
        return read.replace(
            output_gap=now.output_gap,
            lags=lags,
            gap_error=0.0,
        )

    def _known(self, states: Sequence[Economy]) -> list[Quarter]:
        """Return all quarters up to the last of these, with those before the first, for prompts."""
        is_mirrored = self.economy.mirrored
        us_from = self.start_at
        if us_from and not is_mirrored:
            # From the first of these states, which the gate may take from another economy.
            us_from = states[0].period
        return known_quarters(
            states,
            us_from=us_from,
            mirrored=is_mirrored,
        )

    async def _decided(
        self,
        ask: Ask,
        members: Sequence[str],
        quarters: Sequence[Economy],
        alias: str = "",
    ) -> dict[str, Proposal]:
        """Return the members' proposals; an ``alias`` replaces a member's name."""
        limits = fallback = None
        if self.moves_bp:
            # An invalid move has no fallback, so that on_error decides about the turn.
            limits = {"rate_change_bp": moves_to_choose(self.moves_bp)}
        else:
            fallback = _NO_POLICY
        return await ask.each(
            members,
            self._reply,
            self._prompts_to(quarters, ask.turn, alias),
            tag="agent",
            limits=limits,
            decide=self.decide,
            fallback=fallback,
            for_people=self._for_people(quarters, alias),
        )

    async def _accepted(
        self,
        ask: Ask,
        proposals: Mapping[str, Proposal],
    ) -> dict[str, Proposal]:
        """Return the proposals that count: those that are policy and pass the validator."""
        policies = {
            name: proposal
            for name, proposal in proposals.items()
            if not isinstance(proposal, NoPolicy)
        }
        if not self.checks_actions:
            return policies

        @cache  # called only if a model is asked, since rules read no prompt
        def writer() -> Callable[[str, str], RenderedPrompt]:
            return verdict_prompts(
                self.prompt("validator_economic"),
                self.domain,
                self.permissive,
            )

        verdicts = await ask.each(
            policies,
            ValidationDecision,
            lambda name: writer()(policies[name].action, name),
            by="validator",
            action=lambda name: policies[name].action,
        )
        return {name: policies[name] for name, verdict in verdicts.items() if verdict.is_valid}

    async def _new_rate(
        self,
        ask: Ask,
        economy: GlobalState,
        accepted: Mapping[str, Proposal],
    ) -> RateSetting:
        """Return the rate that accepted proposals lead to, by a vote or one after the other."""

        @cache  # once in a turn: the prompts of all judgements differ only in the rate
        def writer() -> _JudgementWriter:
            return update_prompts(
                self.prompt("engine_interest_rate"),
                self.engine,
                economy,
                ask.turn - 1,
            )

        # A single member's vote is the rate.
        if self.committee.rule == "sequential" or len(self._members) < 2:
            return await self._one_after_the_other(
                ask,
                economy,
                accepted,
                writer,
            )
        start = economy.interest_rate
        votes = await self._rates_meant(
            ask,
            economy,
            start,
            accepted,
            writer,
        )
        rate = self.committee.rate(votes, current=start)
        outcomes = {}
        for name, vote in votes.items():
            outcomes[name] = {
                "new_rate": rate,
                "vote_bp": _basis_points(start, vote),
                "outcome_bp": _basis_points(start, rate),
                "dissent": dissents(vote, rate),
            }
        words = minutes(
            self.committee,
            votes,
            rate,
            current=start,
        )
        return RateSetting(rate, outcomes, words)

    async def _one_after_the_other(
        self,
        ask: Ask,
        economy: GlobalState,
        accepted: Mapping[str, Proposal],
        writer: Callable[[], _JudgementWriter],
    ) -> RateSetting:
        """Return the rate that proposals lead to if each starts from the result of the last."""
        rate = economy.interest_rate
        outcomes: dict[str, Mapping[str, Any]] = {}
        # Not concurrently: each proposal starts from the rate that the one before has set.
        for name, proposal in accepted.items():
            rates = await self._rates_meant(
                ask,
                economy,
                rate,
                {name: proposal},
                writer,
            )
            outcomes[name] = {
                "new_rate": rates[name],
                "applied_bp": _basis_points(rate, rates[name]),
            }
            rate = rates[name]
        return RateSetting(rate, outcomes)

    async def _rates_meant(
        self,
        ask: Ask,
        economy: GlobalState,
        here: float,
        proposals: Mapping[str, Proposal],
        writer: Callable[[], _JudgementWriter],
    ) -> dict[str, float]:
        """Return the rate that each proposal means; ``here`` is the current rate.

        The engine's player judges proposals that have only words.
        """
        rates: dict[str, float] = {}
        words: dict[str, str] = {}
        for name, proposal in proposals.items():
            rate = _stated_rate(proposal, here)
            if rate is None:
                words[name] = proposal.action
            else:
                rates[name] = self.engine.inside(rate)
        if not words:
            return rates

        judgements = await ask.each(
            words,
            StateUpdateDecision,
            lambda name: writer()(here, words[name], name),
            by="engine",
            # Rounded, since real data and rules have more than the prompt's two digits.
            limits={"new_interest_rate": self.engine.choices(round(here, 2))},
            action=lambda name: words[name],
            economy=lambda _: economy.model_copy(update={"interest_rate": here}),
        )
        for name, judgement in judgements.items():
            rates[name] = judgement.new_interest_rate
        return rates

    def rule(self, question: Question) -> Any:
        """Return Taylor's rate for a nation; accept every action; hold the rate for mere words."""
        if question.by == "validator":
            return {
                "is_valid": True,
                "reasoning": "Every action is accepted.",
                "confidence": 1.0,
            }
        if question.by == "engine":
            here = question.values["economy"].interest_rate
            # The options have two decimals; the current rate may have more.
            offered = question.limits["new_interest_rate"]
            return {
                "new_interest_rate": min(offered, key=lambda rate: abs(rate - here)),
                "reasoning": "The rule takes no rate from words.",
                "confidence": 1.0,
            }
        nation = self._nations[question.player]
        proposal = rule_proposal(
            _rule_with(nation.inflation_target),
            question.state.global_state,
            self.engine,
            moves_bp=self.moves_bp,
        )
        fields = {}
        for name in question.reply.model_fields:
            value = getattr(proposal, name)
            # A reply has either a rate or a move.
            if value is not None:
                fields[name] = value
        return fields

    def changed(
        self,
        state: Economy,
        values: Mapping[str, Any],
    ) -> Economy:
        """Return a state with figures or shocks set; inflation's last four quarters move with it.

        Raises:
            ConfigError: there is no such figure, or a value is not one for it.
        """
        levels = {name: values[name] for name in values if name in _VARIABLES}
        # First, so that an error names a wrong value as the user wrote it.
        changed = super().changed(state, values)
        # With the lags, since the next quarter follows from them, not from the levels.
        economy = set_levels(state.actual, **levels)
        return changed.with_economy(economy)

    # --- prompts --------------------------------------------------------------------------------

    def _prompts_to(
        self,
        states: Sequence[Economy],
        turn: int,
        alias: str = "",
    ) -> Callable[[str], RenderedPrompt]:
        """Return a function that writes a member's prompt about the run so far."""
        writers: dict[str | None, Callable[[str, Nation], RenderedPrompt]] = {}

        def put(name: str) -> RenderedPrompt:
            nation = self._nations[name]
            # Members with the same prompt share its writer.
            if nation.prompt not in writers:
                prompt = self._prompt_of(name)
                writers[nation.prompt] = self._writer(
                    prompt,
                    states,
                    turn,
                    is_named=bool(alias),
                )
            return writers[nation.prompt](alias or name, nation)

        return put

    def _writer(
        self,
        prompt: Prompt,
        states: Sequence[Economy],
        turn: int,
        *,
        is_named: bool,
    ) -> Callable[[str, Nation], RenderedPrompt]:
        """Return a function that fills a prompt: with a briefing where it has the slots for one."""
        economy = states[-1].global_state
        # By the slots, since a nation's own prompt may be of either kind, whatever ``briefing`` is.
        if "history" not in prompt.slots:
            return thin_prompts(
                prompt,
                economy,
                moves_bp=self.moves_bp,
                turn=turn - 1,
            )
        # An economy with a name shows name and dates, whose effect the gate measures.
        masked = self.masked and not is_named
        # The part that all members share; each member's role and view follow below.
        shared = briefing(self._known(states), masked=masked)
        shared["moves"] = moves_in_words(self.moves_bp or ())
        render = prompt.sharing(shared)

        def write(name: str, nation: Nation) -> RenderedPrompt:
            view = view_of(nation, economy.inflation)
            view["role"] = role_of(
                name,
                masked=masked,
                members=len(self.nations),
                rule=self.committee.rule,
            )
            text = render(view)
            return text.sourced(
                SOURCES,
                agent=name,
                turn=turn - 1,
            )

        return write

    def _for_people(
        self,
        states: Sequence[Economy],
        alias: str,
    ) -> Callable[[str], str]:
        """Return a function that writes to people; its text is empty where the prompt is short."""

        def write(name: str) -> str:
            nation = self._nations[name]
            # A nation's own prompt is shown as it is, and four indicators are short already.
            if nation.prompt is not None or not self._is_briefed:
                return ""
            masked = self.masked and not alias
            role = role_of(
                alias or name,
                masked=masked,
                members=len(self.nations),
                rule=self.committee.rule,
            )
            return briefing_for_people(
                self._known(states),
                nation,
                role,
                masked=masked,
            )

        return write

    def told(
        self,
        state: Economy,
        player: str,
    ) -> Mapping[str, Any]:
        """Return the quarter's figures that are in the shortest prompt."""
        # A validator and an engine look at no figures of their own.
        if player not in self._nations:
            return {}
        columns = state.columns()
        labels = {series.column: str(series) for series in self.series}
        figures = {}
        for column in TOLD:
            # Two decimals, as in prompts.
            figures[labels[column]] = round(columns[column], 2)
        return figures

    def _prompt_of(self, name: str) -> Prompt:
        """Return the prompt that a member is asked with."""
        text = self._nations[name].prompt
        if text is None:
            return self.prompt(self._shipped)
        # Named after the member, so that it can be edited separately from the shipped prompt.
        own_prompt = Prompt.parse(text, name=f"{self._shipped} of {name}")
        return self.prompt(own_prompt)

    # --- views --------------------------------------------------------------------------------

    def responds(
        self,
        member: str | None = None,
        *,
        seed: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> EconomicsCard:
        """Return a card on whether a player of this run responds to the economy.

        The run's player, prompt, moves and ``decide`` are asked about 48 or 96 economies that have
        nothing to do with the run's own, around the member's inflation target: the economic gate
        (``docs/models.md``). With ``decide`` a
        model is asked for the probability of each move, once in each order of the moves; a model
        that writes its decisions, and any other player, is asked twice, and ten times if its
        answers differ. A model's card is kept in ``$LLMSIM_CARDS``, else the user's cache, and
        continued where it was stopped.

        Args:
            member: who is judged; the first nation if not given.
            seed: of the economies; that of a kept card, or a new one, if not given.
            progress: called before each question with how far it is; without it there is a line
                that says so, as of a run.

        Raises:
            ConfigError: there is no such member, a person answers for it, there are no moves, or
                the folder cannot be written to.
            LLMFailureException: the server does not answer; what was measured until then is kept.

        Example:
            >>> card = Simulation(players="rule").responds()
            >>> print(card.verdict)
        """
        if member is None:
            member = self.nations[0].name
        [name] = known_names("member", member, self._nations)
        examinee = self._examinee(name)
        return run_sync(card_of(examinee, seed, progress))

    def _examinee(self, member: str) -> Examinee:
        """Return a member for the gate, which asks it as in a turn, about other economies."""

        def states_of(quarters: Sequence[DatedEconomy]) -> list[Economy]:
            return [
                Economy().with_economy(quarter.economy, period=quarter.period)
                for quarter in quarters
            ]

        def write(quarters: Sequence[DatedEconomy], alias: str) -> RenderedPrompt:
            return self._prompts_to(states_of(quarters), 1, alias)(member)

        async def answer(
            quarters: Sequence[DatedEconomy],
            turn: int,
            alias: str,
        ) -> float:
            states = states_of(quarters)
            # As in a turn of this run, but about another state, and not recorded.
            ask = self._asking(states[-1], turn)
            proposals: Mapping[str, Any] = await self._decided(
                ask,
                [member],
                states,
                alias,
            )
            return float(proposals[member].rate_change_bp)

        return Examinee(
            name=member,
            player=self.seat(member, tag="agent"),
            prompt=self._prompt_of(member),
            inflation_target=self._nations[member].inflation_target,
            moves_bp=self.moves_bp,
            decide=self.decide,
            write=write,
            answer=answer,
        )

    def lint(
        self,
        *,
        rule: Rule | None = None,
        model: MacroModel | None = None,
    ) -> list[LintFinding]:
        """Return what is probably wrong with this run; an empty list if nothing is.

        No model is asked. The checks are for mistakes that published simulations have made: a rule
        that follows inflation too little, an economy that is unstable under it, percent given as a
        fraction, a yearly rate that is applied undivided in each quarter, moves that cannot reach
        what the rule asks for.

        Args:
            rule: a policy rule to check instead of the run's: a ``TaylorRule``, or a function of
                ``inflation``, ``output_gap`` and ``previous_rate``, all percent.
            model: an economy of your own to check too: an object with the method ``advance`` of
                ``RudebuschSvensson``.

        Example:
            >>> for finding in Simulation(turns=20).lint(rule=TaylorRule(inflation_weight=0.5)):
            ...     print(finding.rule)
            Taylor principle
        """
        rules = self._rules()
        if rule is not None:
            rules = {"the rule": rule}
        largest_move = self.engine.max_move
        if self.moves_bp:
            # One turn can change the rate by the largest move on offer.
            largest_move = max(map(abs, self.moves_bp)) / 100
        start = self.turns[0].state.global_state
        findings = list(of_targets(self.nations))
        if model is not None:
            findings += of_model(model)
        for name, one_rule in rules.items():
            findings += of_rule(
                name,
                one_rule,
                start,
                largest_move,
            )
        return findings

    def _rules(self) -> dict[str, Rule]:
        """Return the rules of the members that follow one."""
        rules: dict[str, Rule] = {}
        for name, nation in self._nations.items():
            player = seat_of(self, name)
            if isinstance(player, TaylorRuleAgent):
                rules[name] = player.rule
            elif player == "rule":
                # The same rule as in ``rule()``.
                rules[name] = TaylorRule(inflation_target=nation.inflation_target)
        return rules

    def _doubts(self) -> list[Mapping[str, str]]:
        """Return the findings of ``lint``, which are warnings before the first turn."""
        # The fields of a warning: the rule, the finding, the remedy.
        return [finding._asdict() for finding in self.lint()]

    @classmethod
    def measures(cls, config: Any) -> Mapping[str, Callable[[pd.DataFrame], float]]:
        """Return ``loss``: ``QuadraticLoss`` with the first nation's inflation target."""
        # The first nation's target, since a frame has one loss.
        target = config.nations[0].inflation_target
        loss = QuadraticLoss(inflation_target=target)
        return {"loss": lambda frame: loss.of(frame)["loss"]}

    @property
    def series(self) -> Sequence[Series]:
        """The economy's figures; the policy rate has bounds."""
        rate, *figures = SERIES
        # Only the rate is bounded, by this run's limits.
        bounded = replace(
            rate,
            low=self.engine.lower,
            high=self.engine.upper,
        )
        return (bounded, *figures)


def seat_of(run: Simulation, nation: str) -> Any:
    """Return the player that decides for a nation."""
    # Like Run.seat(), which would note that the seat was asked.
    for seat in (nation, "agent", "*"):
        player = run.players.get(seat)
        if player:
            return player
    return "model"


@lru_cache(maxsize=1024)  # its values are checked each time that one is made
def _rule_with(inflation_target: float) -> TaylorRule:
    return TaylorRule(inflation_target=inflation_target)


def _stated_rate(proposal: Proposal, here: float) -> float | None:
    """Return the rate that a proposal states; None if it has only words."""
    if isinstance(proposal, EconomicDecision):
        return proposal.proposed_rate
    if proposal.rate_change_bp is None:
        return None
    # Rounded, to remove the error of binary fractions.
    return round(here + proposal.rate_change_bp / 100, 10)


def _note_quarter(
    ask: Ask,
    proposals: Mapping[str, Proposal],
    accepted: Mapping[str, Proposal],
    setting: RateSetting,
    after: Economy,
) -> None:
    """Record a quarter: the votes, each proposal with its outcome, the resulting figures."""
    if setting.minutes:
        ask.note(text=setting.minutes)
    figures = []
    for name in _FIGURES_IN_LINE:
        value = getattr(after, name)
        figures.append(f"{name.replace('_', ' ')} {value:.2f}")
    ask.note(
        led_to=", ".join(figures),
        actions=len(proposals),
        accepted=len(accepted),
    )
    for name, proposal in proposals.items():
        verdict = "accepted" if name in accepted else "REJECTED"
        ask.note(text=f"{name} proposed ({verdict}): {proposal.action}")
    # First the proposals that count, in the order in which they were applied.
    for name in {**setting.outcomes, **proposals}:
        outcome = setting.outcomes.get(name, {})
        ask.note(
            name,
            component="agent",
            **outcome,
            accepted=name in accepted,
        )


def _basis_points(rate: float, to: float) -> float:
    """Return a change of the rate in basis points."""
    change = round(100 * (to - rate), 4)
    # Adding 0 turns minus zero, which tables would show, into zero.
    return change + 0.0


if TYPE_CHECKING:

    class SimulationConfig(WorldConfig):
        """What a run is configured with: the parameters of ``Simulation``, as a file holds them."""

        def __getattr__(self, name: str) -> Any: ...  # made of the class, which is not read here
else:
    SimulationConfig = Simulation.config_type
