"""The economic world: members propose, actions may be checked, the rate moves, a quarter passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import sqrt
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator
from pydantic.json_schema import SkipJsonSchema

from llmsim_lab._util.checks import known_names
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
from llmsim_lab.agents.briefing import NationProfile, briefing, known_quarters, role_of, view_of
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
from llmsim_lab.llm._choose import Decide
from llmsim_lab.models import (
    GlobalState,
    MacroLags,
    PolicyDecision,
    SimulationState,
    StateUpdateDecision,
    ValidationDecision,
)
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run import Ask, Question, Run, State
from llmsim_lab.run._config import WorldConfig
from llmsim_lab.run._turn import Series
from llmsim_lab.simulation._lint import LintFinding, of_model, of_rule, of_targets
from llmsim_lab.simulation.gate import EconomicsCard, card_of
from llmsim_lab.simulation.parameters import MOVES_BP, SERIES, EconomyConfig, checked_moves
from llmsim_lab.types import Rate, Reply
from llmsim_lab.validators.validators import verdict_prompts

if TYPE_CHECKING:
    import pandas as pd

_VARIABLES = tuple(it.column for it in SERIES if it.column != "taylor_rate")
_TAYLOR = TaylorRule()
GAP_NOISE_PERSISTENCE = 0.97
"""A quarter, of the error of the gap that is read: the first autocorrelation of ``output_gap`` less
``output_gap_one_sided`` in the US data, whose standard deviation is 1.5 % of potential."""


# --- the state, and what players answer -----------------------------------------------------------


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
        """The economy as macro models take it."""
        return GlobalState(**{name: getattr(self, name) for name in GlobalState.model_fields})

    @property
    def global_state(self) -> GlobalState:
        """The economy as models, rules, people and the contracts' classes read it."""
        actual, error = self.actual, self.gap_error
        return set_levels(actual, output_gap=actual.output_gap + error) if error else actual

    def with_economy(self, economy: GlobalState, **changes: Any) -> Self:
        """Return this state with the figures of an economy."""
        return self.replace(**dict(economy), **changes)

    def columns(self) -> dict[str, Any]:
        """Return its figures, the gap as read, and the rate that the Taylor rule asks for on it."""
        figures = {name: getattr(self, name) for name in ("period", *_VARIABLES)}
        read = self.global_state
        seen = {"output_gap_read": read.output_gap} if self.gap_error else {}
        return {**figures, **seen, "taylor_rate": rate_by(_TAYLOR, read)}


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
        if self.proposed_rate is None and not is_economic(self.action):
            raise ValueError(NOT_ECONOMIC)
        return self


_NOTHING = EconomicDecision(
    action="No change of economic policy", reasoning="No valid answer.", confidence=0.0
)
"""Stands in where a model twice proposes what is no economic policy; it changes nothing."""


# --- parameters -----------------------------------------------------------------------------------


class Nation(NationProfile):
    """A member of the central bank's committee.

    Attributes:
        name: unique in the run.
        prompt: a prompt of its own instead of the shipped one: its text, with the slots of
            ``agent_briefing``, ``committee_briefing``, ``agent_rate`` or ``agent_policy``.
    """

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    prompt: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _seated(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "kind" in values:
            players = f"{{{values.get('name', 'Ann')}: rule}}, or model, or person"
            raise ValueError(f"kind: who decides is said in players: {players}")
        return {"name": values} if isinstance(values, str) else values


def _by_rule(committee: Any) -> Any:
    return {"rule": committee} if isinstance(committee, str) else committee


def _different(nations: tuple[Nation, ...]) -> tuple[Nation, ...]:
    if twice := [name for name, many in Counter(it.name for it in nations).items() if many > 1]:
        raise ValueError(f"nations must have different names; twice: {', '.join(sorted(twice))}")
    return nations


def _in_a_seat(given: Any, info: Any) -> Any:
    if callable(given) or (isinstance(given, Mapping) and "kind" in given):
        what = f"who answers is a player: players={{{info.field_name!r}: ...}}"
        raise ValueError(f"{what}, a word such as 'rule', a function, a person or a client")
    return given


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
    validator: Annotated[Literal["asked", "none"] | None, BeforeValidator(_in_a_seat)] = None
    domain: Annotated[str, Field(min_length=1)] = "economic"
    permissive: bool = True
    engine: Annotated[EngineConfig, BeforeValidator(_in_a_seat)] = EngineConfig()
    economy: EconomyConfig = EconomyConfig()
    gap_noise: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0

    def ready(self) -> None:
        """Make what follows from the parameters, and check that they fit together."""
        moves = self.moves_bp
        self._nations = {nation.name: nation for nation in self.nations}
        # The order in which a committee's members are named must not matter.
        in_turn = self.committee.rule == "sequential"
        self._members = list(self._nations) if in_turn else sorted(self._nations)
        self._reply = RateMove if self.decide else RateDecision if moves else EconomicDecision
        self._checked = self.validator == "asked" or (self.validator is None and moves is None)
        briefed = self.briefing == "economist" or (self.briefing is None and moves is not None)
        # Recorded committees may have been asked with the prompt that is now a single bank's.
        single = ("agent_briefing#", "agent_briefing of ")
        recorded = any(place.startswith(single) for place in self._prompts)
        if briefed and (len(self.nations) == 1 or recorded):
            self._shipped = "agent_briefing"
        elif briefed:
            self._shipped = "committee_briefing"
        else:
            self._shipped = "agent_rate" if moves else "agent_policy"
        if moves is None and (briefed or self.decide):
            what = f"decide: {self.decide}" if self.decide else "an economist's briefing"
            raise ConfigError(f"{what} needs moves on offer, and moves_bp is null; set moves_bp")
        if not briefed and not self.masked:
            raise ConfigError("masked: false has no effect with briefing: thin; leave it out")
        for name in self._members:
            if moves and "moves" not in self._prompt_of(name).slots:
                what = f"the prompt of {name!r} has no slot {{{{ moves }}}} for the moves on offer"
                raise ConfigError(f"{what}; add it, or set moves_bp to null")
        known_names("chair", self.committee.chair or (), self._members)
        rate = self.start().interest_rate
        if self.economy.mirrored and rate != self.engine.inside(rate):
            what = f"the mirror image of {self.start_at} has an interest rate of {rate:.2f}"
            outside = f"outside engine.rate_bounds {self.engine.lower:g} to {self.engine.upper:g}"
            raise ConfigError(f"{what}, {outside}; choose another start, such as 1973Q1")

    def start(self) -> Economy:
        """Return the quarter to start from, or its mirror image, of which none happened."""
        first = initial_state(self.start_at) if self.start_at else SimulationState()
        economy, period = first.global_state, first.period
        if self.economy.mirrored:
            economy, period = mirrored(economy), None
        error = self.gap_noise * self._drawn(0)
        return Economy().with_economy(economy, period=period, gap_error=error)

    def _drawn(self, turn: int) -> float:
        """Return what is new of a quarter's error of the gap, in standard deviations."""
        drawn = Random(f"{self.seed}/gap noise/{turn}").gauss(0, 1)
        return -drawn if self.economy.mirrored else drawn

    async def turn(self, state: Economy, ask: Ask) -> Economy:
        """Play a quarter: proposals, verdicts, the rate, and what it does to the economy."""
        quarters = self._quarters(state)
        decisions = await self._decided(ask, self._members, quarters)
        actions = {name: made.action for name, made in decisions.items() if made is not _NOTHING}
        accepted = {name: decisions[name] for name in await self._accepted(ask, actions)}
        rate, became = await self._new_rate(ask, self._as_read(state).actual, accepted)
        scale, turned = self.economy.shock_scale, self.economy.mirrored
        shocks = shocks_at(ask.turn, seed=self.seed, scale=scale, mirrored=turned) + state.shock
        if self.economy.fiscal_backstop:
            low = self.engine.lower
            shocks += Shocks(demand=fiscal_demand(state.actual, rate=rate, lower_bound=low))
        after = RudebuschSvensson().advance(state.actual, interest_rate=rate, shocks=shocks)
        figures = ("interest_rate", "inflation", "unemployment", "output_gap")
        led_to = ", ".join(f"{it.replace('_', ' ')} {getattr(after, it):.2f}" for it in figures)
        ask.note(led_to=led_to, actions=len(decisions), accepted=len(accepted))
        for name, made in decisions.items():
            verdict = "accepted" if name in accepted else "REJECTED"
            ask.note(text=f"{name} proposed ({verdict}): {made.action}")
        for name in {**became, **decisions}:  # first those whose actions count
            outcome = {**became.get(name, {}), "accepted": name in accepted}
            ask.note(name, component="agent", **outcome)
        period = next_quarter(state.period) if state.period else None
        new = sqrt(1 - GAP_NOISE_PERSISTENCE**2) * self.gap_noise * self._drawn(ask.turn)
        error = GAP_NOISE_PERSISTENCE * state.gap_error + new
        return state.with_economy(after, period=period, shock=NO_SHOCKS, gap_error=error)

    def _quarters(self, state: Economy) -> list[Economy]:
        """Return the run's quarters up to one."""
        return [*(turn.state for turn in self.turns[:-1]), state]

    def _as_read(self, state: Economy) -> Economy:
        """Return a quarter with what prompts show of it: its gap as read, and no coming shock."""
        read = state.replace(shock=NO_SHOCKS) if state.shock != NO_SHOCKS else state
        if not state.gap_error:
            return read
        *_, before, now = self._known(self._quarters(state))
        lags = replace(state.actual.lags, output_gap=(now.output_gap, before.output_gap))
        return read.replace(output_gap=now.output_gap, lags=lags, gap_error=0.0)

    def _known(self, states: Sequence[Economy]) -> list[Quarter]:
        """Return all quarters that are known at the last of these, as prompts show them."""
        turned = self.economy.mirrored
        us_from = self.start_at and (self.start_at if turned else states[0].period)
        return known_quarters(states, us_from=us_from, mirrored=turned)

    async def _decided(
        self, ask: Ask, members: Sequence[str], quarters: Sequence[Economy], called: str = ""
    ) -> Mapping[str, Any]:
        """Return what members decide; ``called`` is told them instead of what they are called."""
        moves = self.moves_bp
        return await ask.each(
            members,
            self._reply,
            self._prompts_to(quarters, ask.turn, called),
            tag="agent",
            limits={"rate_change_bp": moves_to_choose(moves)} if moves else None,
            decide=self.decide,
            fallback=None if moves else _NOTHING,
        )

    async def _accepted(self, ask: Ask, actions: Mapping[str, str]) -> list[str]:
        """Return whose actions count."""
        if not self._checked:
            return list(actions)
        about = self.domain, self.permissive
        writes = cache(lambda: verdict_prompts(self.prompt("validator_economic"), *about))

        def put(name: str) -> RenderedPrompt:
            return writes()(actions[name], name)

        verdicts = await ask.each(
            actions, ValidationDecision, put, by="validator", action=actions.get
        )
        return [name for name, verdict in verdicts.items() if verdict.is_valid]

    async def _new_rate(
        self, ask: Ask, economy: GlobalState, accepted: Mapping[str, Any]
    ) -> tuple[float, dict[str, dict[str, Any]]]:
        """Return the rate that accepted actions lead to, and what became of each."""
        start = rate = economy.interest_rate
        engine, became = self.engine, dict[str, dict[str, Any]]()
        about = engine, economy, ask.turn - 1
        writes = cache(lambda: update_prompts(self.prompt("engine_interest_rate"), *about))

        async def rates(here: float, decisions: Mapping[str, Any]) -> dict[str, float]:
            """Return the rate that each decision leads to; the engine judges mere words."""
            sizes = {name: _stated(made, here) for name, made in decisions.items()}
            stated = {name: engine.inside(it) for name, it in sizes.items() if it is not None}
            words = {name: made.action for name, made in decisions.items() if name not in stated}
            if not words:
                return stated
            judged = await ask.each(
                words,
                StateUpdateDecision,
                lambda name: writes()(here, words[name], name),
                by="engine",
                # Real data and rules leave more digits than the two that the prompt shows.
                limits={"new_interest_rate": engine.choices(round(here, 2))},
                action=lambda name: words[name],
                economy=lambda _: economy.model_copy(update={"interest_rate": here}),
            )
            return stated | {name: made.new_interest_rate for name, made in judged.items()}

        if self.committee.rule == "sequential" or len(self._members) < 2:
            for name, made in accepted.items():  # each finds the rate that the last one left
                here, rate = rate, (await rates(rate, {name: made}))[name]
                became[name] = {"new_rate": rate, "applied_bp": _basis_points(here, rate)}
            return rate, became
        votes = await rates(start, accepted)
        rate = self.committee.rate(votes, current=start)
        ask.note(text=minutes(self.committee, votes, rate, current=start))
        outcome_bp = _basis_points(start, rate)
        for name, vote in votes.items():
            bp = {"vote_bp": _basis_points(start, vote), "outcome_bp": outcome_bp}
            became[name] = {"new_rate": rate, **bp, "dissent": dissents(vote, rate)}
        return rate, became

    def rule(self, question: Question) -> Any:
        """Return Taylor's rate for a nation; every action counts; mere words move no rate."""
        if question.by == "validator":
            return {"is_valid": True, "reasoning": "Every action is accepted.", "confidence": 1.0}
        if question.by == "engine":
            here, offered = question.values["economy"].interest_rate, question.limits
            # What is offered has two decimals; the rate in force may have more.
            held = min(offered["new_interest_rate"], key=lambda rate: abs(rate - here))
            why = "The rule takes no rate from words."
            return {"new_interest_rate": held, "reasoning": why, "confidence": 1.0}
        rule = TaylorRule(inflation_target=self._nations[question.player].inflation_target)
        economy, moves = question.state.global_state, self.moves_bp
        said = rule_proposal(rule, economy, self.engine, moves_bp=moves)
        return {it: said[it] for it in question.reply.model_fields if said[it] is not None}

    def changed(self, state: Economy, values: Mapping[str, Any]) -> Economy:
        """Return a state with figures or shocks set; inflation's last four quarters move with it.

        Raises:
            ConfigError: there is no such figure, or a value is not one for it.
        """
        levels = {name: values[name] for name in values if name in _VARIABLES}
        changed = super().changed(state, values)  # first, so that a wrong value is said by its name
        return changed.with_economy(set_levels(state.actual, **levels))

    # --- what is asked, and of which parameters -----------------------------------------------

    def _prompts_to(
        self, states: Sequence[Economy], turn: int, called: str = ""
    ) -> Callable[[str], RenderedPrompt]:
        """Return what writes to members of the run so far: what their prompts have slots for."""
        moves, at = self.moves_bp, turn - 1
        members, rule, masked = len(self.nations), self.committee.rule, self.masked and not called
        writers: dict[str | None, Callable[[str, Nation], RenderedPrompt]] = {}

        def writer(prompt: Prompt) -> Callable[[str, Nation], RenderedPrompt]:
            economy = states[-1].global_state
            if "history" not in prompt.slots:
                return thin_prompts(prompt, economy, moves_bp=moves, turn=at)
            quarters = briefing(self._known(states), masked=masked)
            shown = {"moves": moves_in_words(moves or ()), **quarters}
            render = prompt.sharing(shown)
            return lambda name, nation: render(
                {"role": role_of(name, masked=masked, members=members, rule=rule)}
                | view_of(nation, economy.inflation)
            ).sourced(SOURCES, agent=name, turn=at)

        def put(name: str) -> RenderedPrompt:
            nation = self._nations[name]
            if nation.prompt not in writers:  # what all with one prompt read is written once
                writers[nation.prompt] = writer(self._prompt_of(name))
            return writers[nation.prompt](called or name, nation)

        return put

    def _prompt_of(self, name: str) -> Prompt:
        own, base = self._nations[name].prompt, self._shipped
        return self.prompt(base if own is None else Prompt.parse(own, name=f"{base} of {name}"))

    # --- views --------------------------------------------------------------------------------

    def responds(
        self,
        member: str | None = None,
        *,
        seed: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> EconomicsCard:
        """Return whether who decides in this run responds to the economy.

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
        first = self.nations[0].name
        [name] = known_names("member", first if member is None else member, self._nations)
        return run_sync(card_of(self, name, seed, progress))

    def lint(self, *, rule: Rule | None = None, model: Any = None) -> list[LintFinding]:
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
        ruled: dict[str, Any] = {} if rule is None else {"the rule": rule}
        for name, nation in self._nations.items() if rule is None else ():
            who = seat_of(self, name)
            if isinstance(who, TaylorRuleAgent):
                ruled[name] = who.rule
            elif who == "rule":
                ruled[name] = TaylorRule(inflation_target=nation.inflation_target)
        largest = max(map(abs, self.moves_bp)) / 100 if self.moves_bp else self.engine.max_move
        start = self.turns[0].state.global_state
        of_rules = (it for who in ruled for it in of_rule(who, ruled[who], start, largest))
        of_own = of_model(model) if model is not None else ()
        return [*of_targets(self.nations), *of_own, *of_rules]

    def _doubts(self) -> list[Mapping[str, str]]:
        """Return what to warn of before the first turn: what ``lint`` finds."""
        return [found._asdict() for found in self.lint()]

    @classmethod
    def measures(cls, config: Any) -> Mapping[str, Callable[[pd.DataFrame], float]]:
        """Return ``loss``, that of ``QuadraticLoss`` with the first nation's inflation target."""
        loss = QuadraticLoss(inflation_target=config.nations[0].inflation_target)
        return {"loss": lambda frame: loss.of(frame)["loss"]}

    @property
    def series(self) -> Sequence[Series]:
        """The economy's figures, the policy rate with its bounds."""
        rate, *others = SERIES
        return (replace(rate, low=self.engine.lower, high=self.engine.upper), *others)


def seat_of(run: Simulation, nation: str) -> Any:
    """Return who decides for a nation, as ``players`` has it."""
    seats = (run.players.get(seat) for seat in (nation, "agent", "*"))
    return next(filter(None, seats), "model")


def _stated(made: Any, here: float) -> Any:
    """Return the rate that a decision states; None where it has only words."""
    if isinstance(made, EconomicDecision):
        return made.proposed_rate
    # Without the dust of binary fractions.
    return None if made.rate_change_bp is None else round(here + made.rate_change_bp / 100, 10)


def _basis_points(rate: float, to: float) -> float:
    return round(100 * (to - rate), 4) + 0.0  # never minus zero


if TYPE_CHECKING:

    class SimulationConfig(WorldConfig):
        """What a run is configured with: the parameters of ``Simulation``, as a file holds them."""

        def __getattr__(self, name: str) -> Any: ...  # made of the class, which is not read here
else:
    SimulationConfig = Simulation.config_type
