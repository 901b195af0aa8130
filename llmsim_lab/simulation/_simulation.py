"""The economic simulation: agents propose at once, the validator marks, the engine applies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from llmsim_lab._util.text import closest, log_event
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.agents import Agent, EconLLMAgent, NationAgent, TaylorRuleAgent
from llmsim_lab.agents._briefing import PolicyBriefing
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.economy import QuadraticLoss, RudebuschSvensson, TaylorRule, initial_state
from llmsim_lab.economy._macro import (
    NO_SHOCKS,
    FiscalBackstop,
    MacroModel,
    RateLimits,
    Rule,
    ShockGenerator,
    StaticEconomy,
    mirrored,
    rate_by,
)
from llmsim_lab.engines import EconLLMEngine, EconomicEngine, Engine
from llmsim_lab.engines._committee import Committee
from llmsim_lab.engines._engines import changed_by
from llmsim_lab.engines._fidelity import TOLERANCE, stated_rate
from llmsim_lab.errors import ConfigError, LabError, TapeError
from llmsim_lab.llm import LLMClient, ScriptedBackend, Tape
from llmsim_lab.llm._extract import InvalidReply, parse_reply
from llmsim_lab.models import Action, AgentState, GlobalState, SimulationState, StateUpdateDecision
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.run._session import Recording, Replaying
from llmsim_lab.run._turn import RunTurn, Series
from llmsim_lab.simulation._config import (
    SERIES,
    Intervention,
    NationConfig,
    SimulationConfig,
    Variable,
    bounded,
    named_twice,
)
from llmsim_lab.simulation._lint import LintFinding, Subject, findings, findings_at_start
from llmsim_lab.simulation._verdicts import AskedHow, gate_notes, kept_verdicts
from llmsim_lab.types import FrozenDict, LLMReasoningChain
from llmsim_lab.validators import AlwaysValid, EconLLMValidator, Validator

if TYPE_CHECKING:
    import pandas as pd

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)

_LOSS_OF = ("inflation", "output_gap", "interest_rate")
_FAITHFUL = 0.95
"""Share of actions that an engine's model must get right, else the run is not its agents'."""
_TAYLOR = TaylorRule()
_ROUNDING = 1e-6
"""Percentage points."""

Prompts = Mapping[str, Prompt]
"""Prompts by the part that uses them: ``agent:NAME``, ``validator``, ``engine``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EconomicTurn(RunTurn[SimulationState, Intervention]):
    """What happened in a turn, and the state it led to, which also has the turn's chains.

    Attributes:
        actions: what was proposed, as the validator marked it, in the agents' order.
    """

    actions: tuple[Action, ...] = ()

    def own_columns(self) -> dict[str, Any]:
        """Return what the turn's row of the frame says of the economy.

        Columns: ``period``; the economy's variables in their units; ``taylor_rate``, the rate that
        the rule asks for on that row's data, percent; ``actions`` and ``accepted``, how many.
        """
        economy = self.state.global_state
        row: dict[str, Any] = {"period": self.state.period}
        row |= {name: getattr(economy, name) for name in get_args(Variable)}
        row["taylor_rate"] = rate_by(_TAYLOR, economy)
        row["actions"] = len(self.actions)
        row["accepted"] = sum(action.validated for action in self.actions)
        return row

    def in_words(self) -> Sequence[str]:
        """Return the economy's main figures, and each action with its verdict."""
        economy = self.state.global_state
        lines = [
            f"it led to: interest rate {economy.interest_rate:.2f}, "
            f"inflation {economy.inflation:.2f}, unemployment {economy.unemployment:.2f}, "
            f"output gap {economy.output_gap:.2f}"
        ]
        for action in self.actions:
            accepted = "accepted" if action.validated else "REJECTED"
            lines.append(f"{action.agent_name} proposed ({accepted}): {action.action_string}")
        return lines


class Simulation(Run[SimulationState, EconomicTurn, SimulationConfig, Intervention]):
    """A run of the economic simulation, one quarter a turn.

    A turn that fails changes nothing: the turns before it stay, and ``step`` may be called again.

    Args:
        config: what to run; the defaults need a model.
        llm_client: the model, where the configuration calls for one.
        agents: instead of those the configuration describes.
        validator: instead of the configured one.
        engine: instead of the configured one.
        tape: where to record the run: a tape, or the path of one, which is made if need be.
        prompts: prompts instead of the configured ones, by the part that uses them:
            ``agent:NAME``, ``validator``, ``engine``.
        state: the initial state; if not given, the one ``config.start`` names, else that of the
            engine given.

    Example:
        >>> from llmsim_lab.simulation import Simulation, SimulationConfig
        >>> config = SimulationConfig(
        ...     nations=[{"name": "Rule", "kind": "taylor"}],
        ...     validator={"kind": "always_valid"},
        ...     economy={"shock_scale": 0},
        ... )
        >>> Simulation(config).run(4).interest_rate.tolist()
        [4.0, 4.0, 4.0, 4.0, 4.0]
    """

    kind = "economic"
    part_names = ("validator", "engine", "agents")

    def __init__(
        self,
        config: SimulationConfig | None = None,
        *,
        llm_client: LLMClient | None = None,
        agents: Sequence[Agent] | None = None,
        validator: Validator | None = None,
        engine: Engine | None = None,
        state: SimulationState | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        config = config or SimulationConfig()
        parts = {"agents": agents, "validator": validator, "engine": engine}
        given = {name for name, part in parts.items() if part is not None}
        prompts = prompts or {}
        _check_prompts(prompts, config, given)
        if agents is None:
            agents = [agent_for(nation, config, llm_client, prompts) for nation in config.nations]
        self.agents = tuple(agents)
        if twice := named_twice(agent.name for agent in self.agents):
            raise ConfigError(f"agents must have different names; twice: {', '.join(twice)}")
        committee = config.committee
        if committee.chair and committee.chair not in (names := [a.name for a in self.agents]):
            raise ConfigError(
                f"the committee's chair {committee.chair!r} is not one of its members"
                f"{closest(committee.chair, names)}, who are {', '.join(names)}"
            )
        self.validator = validator or _validator_for(config, llm_client, prompts)
        self.engine = engine or _engine_for(config, llm_client, prompts)
        if self.committee is not None:
            # One order whatever was given, so that not even a chain's place depends on it.
            self.agents = tuple(sorted(self.agents, key=lambda agent: agent.name))
        if state is None and engine is not None and config.start is None:
            state = engine.current_state
        elif state is None:
            state = _start_of(config)
        # The state may come from another run, with its chains.
        state = self._with_agents(state).model_copy(update={"reasoning_chains": ()})
        first = EconomicTurn(number=state.turn, state=state)
        self._warned = False
        self._model: Mapping[str, Any] | None = None
        self._gate_notes: Sequence[str] | None = None
        super().__init__(config, first=first, llm_client=llm_client, given=given, tape=tape)

    @classmethod
    def measures(cls, config: SimulationConfig) -> Mapping[str, Callable[[pd.DataFrame], float]]:
        """Return ``loss``, that of ``QuadraticLoss`` with the first nation's inflation target."""
        loss = QuadraticLoss(inflation_target=config.nations[0].inflation_target)

        def of(frame: pd.DataFrame) -> float:
            series = {name: frame[name].tolist() for name in _LOSS_OF}
            return loss.of(**series).total

        return {"loss": of}

    @property
    def committee(self) -> Committee | None:
        """How several agents' votes become one rate; None for one agent, or one after the other."""
        return getattr(self.engine, "committee", None) if len(self.agents) > 1 else None

    def _series(self, rows: Iterable[Mapping[str, Any]]) -> Sequence[Series]:
        """Return the columns that can be charted, with the bounds that the engine keeps."""
        if "engine" not in self.given:
            return super()._series(rows)
        limits = getattr(self.engine, "limits", None)
        return bounded(limits) if isinstance(limits, RateLimits) else SERIES

    @property
    def notes(self) -> Sequence[str]:
        """What the economic gate said of the run's model, if it did not pass; see ``doctor``."""
        if self._gate_notes is None:
            asked = self._asked_how()
            model = self._model or (self._recorded_model() if asked else None)
            if model is None:
                return ()
            self._gate_notes = gate_notes(model, asked)
        return self._gate_notes

    @classmethod
    def notes_on(cls, manifest: Mapping[str, Any]) -> Sequence[str]:
        """Return the same of a recorded run, from its manifest alone."""
        config, model = SimulationConfig.recorded(manifest["config"]), manifest["model"]
        asks = any(nation.kind == "llm" for nation in config.nations)
        if model is None or not asks or "agents" in manifest["given"]:
            return ()
        return gate_notes(model, [(config.briefing, config.decide or "sample")])

    def _asked_how(self) -> set[AskedHow]:
        """Return how agents ask the run's model; empty where none does."""
        return {
            (
                "economist" if getattr(agent, "briefing", None) else "thin",
                getattr(agent, "decide", None) or "sample",
            )
            for agent in self.agents
            if isinstance(agent, EconLLMAgent) and agent.llm_client is self.llm_client
        }

    def _recorded_model(self) -> Mapping[str, Any] | None:
        """Return which model answers a run on a tape, once it was asked."""
        tape, run = self.tape, self.run_id
        with suppress(TapeError):  # the tape may be closed, or its file gone
            return tape.run(run).manifest["model"] if tape is not None else None
        return None

    async def _ask_who_answers(self) -> None:
        """Learn which model answers an unrecorded run, where a card may say something of it."""
        asked = self._asked_how()
        if self._model is None and self.tape is None and self.llm_client is not None:
            if kept_verdicts(told for told, _ in asked):
                with suppress(LabError):  # a model that cannot be reached is the turn's to tell
                    self._model = asdict(await self.llm_client.model_info())
            else:
                self._gate_notes = []

    # --- a turn ------------------------------------------------------------------------------

    async def _play(self, before: EconomicTurn, planned: Sequence[Intervention]) -> EconomicTurn:
        if isinstance(self.engine, EconomicEngine):
            shocks = sum((item.shocks for item in planned), start=NO_SHOCKS)
            # Replaced, not added to: a turn that failed may be played again.
            self.engine.extra_shocks = {before.number + 1: shocks}
        # Not of a replay, nor of a turn that a comparison plays again, nor of an arm's later runs.
        told = self._quiet or not isinstance(self._session, Recording | None)
        if before is self.turns[0] and not told:
            self._warn_of_findings()
        if self._gate_notes is None:
            await self._ask_who_answers()
        brief(self.agents, self.turns[:-1], us_past=self.config.start is not None)
        # All agents see the same state: nobody knows what the others propose this turn.
        proposed = await gather_all([agent.decide_action(before.state) for agent in self.agents])
        actions = await self.validator.validate_actions(proposed, before.state)
        # Set anew each turn, since a fork or an intervention may have replaced the state.
        self.engine.current_state = before.state
        state = await self.engine.run_turn(actions)
        chains = [action.chain for action in actions if action.chain]
        verdicts = [action.validation_result for action in actions if action.validation_result]
        chains += [verdict.chain for verdict in verdicts if verdict.chain]
        # The engine adds only its own chains; those of agents and validator come first.
        state = state.model_copy(update={"reasoning_chains": (*chains, *state.reasoning_chains)})
        self.engine.current_state = state
        return EconomicTurn(
            number=state.turn, state=state, chains=state.reasoning_chains, actions=tuple(actions)
        )

    def _warn_of_findings(self) -> None:
        subject = self._subject()
        if self.config.briefing == "thin":  # by choice as the contract words it, horizons or not
            subject = replace(subject, prompts={})
        if self.config.committee.rule == "sequential":  # likewise
            subject = replace(subject, one_after_another=())
        for finding in findings_at_start(subject):
            if self.config.moves_bp is None and finding.rule.startswith("L9"):
                continue  # no moves are on offer, and ``max_move`` is the contract's engine's
            _warn("LINT", rule=finding.rule, found=finding.what, remedy=finding.remedy)

    def lint(self) -> list[LintFinding]:
        """Return what is probably wrong with this simulation, as ``simulation.lint`` does."""
        return findings(self._subject())

    def _subject(self) -> Subject:
        """Return what a check looks at; no model is asked."""
        first, config, engine = self.turns[0].state, self.config, self.engine
        brief(self.agents, (), us_past=config.start is not None)
        asked = [agent for agent in self.agents if isinstance(agent, NationAgent)]
        in_turn = isinstance(engine, EconLLMEngine) and engine.committee is None
        return Subject(
            state=first,
            turns=config.turns,
            model=engine.macro if isinstance(engine, EconomicEngine) else None,
            rules={a.name: a.rule for a in self.agents if isinstance(a, TaylorRuleAgent)},
            targets={agent.name: agent.profile.inflation_target for agent in asked},
            limits=engine.limits if isinstance(engine, EconLLMEngine) else RateLimits(),
            moves_bp=config.moves_bp or (),
            shock_scale=config.economy.shock_scale,
            fiscal_backstop=getattr(engine, "fiscal_backstop", None),
            prompts={
                agent.name: agent.prompt_for(first)
                for agent in asked
                if not isinstance(agent, HumanAgent)
            },
            one_after_another=[agent.name for agent in self.agents] if in_turn else [],
        )

    def _recount(self) -> None:
        self.validator.recount(action for turn in self.turns for action in turn.actions)

    def state_at(self, turn: EconomicTurn, state: GlobalState | SimulationState) -> SimulationState:
        """Return another state for a turn, which keeps its number, period and chains.

        Raises:
            ConfigError: it is not a state.
        """
        economy = state.global_state if isinstance(state, SimulationState) else state
        if not isinstance(economy, GlobalState):
            raise ConfigError(
                f"state={state!r:.80} is not a GlobalState or SimulationState; to set single "
                "variables: fork(intervene=[{'turn': ..., 'set': {'inflation': 9}}])"
            )
        agents = state.agents if isinstance(state, SimulationState) else turn.state.agents
        own = turn.state.model_copy(update={"global_state": economy, "agents": agents})
        return self._with_agents(own)

    def _with_agents(self, state: SimulationState) -> SimulationState:
        """Return the state with an entry for each agent."""
        names = [agent.name for agent in self.agents if agent.name not in state.agents]
        missing = {name: AgentState(name=name) for name in names}
        return state.model_copy(update={"agents": FrozenDict({**state.agents, **missing})})

    def _about(self) -> str:
        names = ", ".join(agent.name for agent in self.agents[:3])
        more = f" and {len(self.agents) - 3} more" if len(self.agents) > 3 else ""
        where = f" ({self.state.period})" if self.state.period else ""
        rate = self.state.global_state.interest_rate
        return f"{where}, rate {rate:.2f}%, agents {names}{more}"

    def outcomes(
        self, turn: EconomicTurn, chains: Sequence[LLMReasoningChain]
    ) -> Sequence[Mapping[str, Any]]:
        """Return what became of each decision's action: ``accepted``, ``applied``, ``new_rate``.

        ``new_rate`` is the rate right after the engine applied the action, percent per year; the
        actions of other agents may have moved it on. ``applied`` is None where the engine leaves no
        record of what it did. An action that no model put in words is under ``action``.

        Of an action that states its size, ``wanted_bp`` is the change of the rate that it states
        and ``applied_bp`` the one that it made, basis points; the bounds of the rate may lie
        between. Where agents vote, ``vote_bp`` is the change that the vote counts as,
        ``outcome_bp`` the change that the committee made, ``dissent`` whether they differ, and
        ``new_rate`` the committee's. Of an action that the engine's model judged, ``stated_rate``
        is the rate that its words ask for, percent per year, where they say it plainly and it is
        within reach, and ``faithful`` whether the engine came within 12.5 basis points of it.
        """
        before = self.turns[turn.number - self.turns[0].number - 1]
        actions = {action.agent_name: action for action in turn.actions}
        here = before.state.global_state.interest_rate
        committee = self.committee if len(actions) > 1 else None
        rate: float | None = here
        rates: dict[str, float | None] = {}
        sizes: dict[str, dict[str, Any]] = {name: {} for name in actions}
        for chain in chains:
            if chain.component == "engine":
                found_at = here if committee else rate
                action = actions.get(chain.agent)
                rate = rates[chain.agent] = self._rate_after(chain, action, found_at)
                if action is not None:
                    sizes[chain.agent] |= self._sizes(chain, action, found_at, rate)
        for name, action in actions.items():
            if action.rate_change_bp is not None:
                sizes[name]["wanted_bp"] = round(float(action.rate_change_bp), 4)
        if committee is not None and None not in rates.values():
            votes = {name: vote for name, vote in rates.items() if vote is not None}
            outcome = committee.rate(votes, current=here)
            made = {"outcome_bp": _basis_points(here, outcome)}
            for name, vote in votes.items():
                sizes[name].pop("applied_bp", None)
                sizes[name] |= {"vote_bp": _basis_points(here, vote), **made}
                sizes[name]["dissent"] = committee.dissents(vote, outcome)
            sizes["committee"] = made
            rates = dict.fromkeys((*votes, "committee"), outcome)
        found = []
        for chain in chains:
            action = actions.get(chain.agent)
            accepted = action is not None and action.validated
            # An engine of the user's own need not leave chains: then nothing is known of it.
            applied = chain.agent in rates if rates or not accepted else None
            row: dict[str, Any] = {
                "accepted": accepted,
                "applied": applied,
                "new_rate": rates.get(chain.agent),
                **sizes.get(chain.agent, {}),
            }
            if chain.component == "committee":
                row |= {"accepted": None, "applied": True}
            if action is not None and chain.component == "agent" and chain.call is None:
                row["action"] = action.action_string
            found.append(row)
        return found

    def _sizes(
        self, chain: LLMReasoningChain, action: Action, here: float | None, there: float | None
    ) -> dict[str, Any]:
        """Return what ``outcomes`` says of an action's size, from the rate that it met."""
        if here is None or there is None:
            return {}
        if action.rate_change_bp is not None:
            return {"applied_bp": _basis_points(here, there)}
        limits = getattr(self.engine, "limits", None)
        if chain.call is None or limits is None:
            return {}
        stated = stated_rate(action.action_string, current=here)
        # An engine that may not go there cannot be unfaithful.
        if stated is None or limits.problem(stated, current=round(here, 2)):
            return {}
        return {"stated_rate": stated, "faithful": abs(there - stated) <= TOLERANCE + _ROUNDING}

    def _ended(self, outcome: str) -> None:
        super()._ended(outcome)
        self._warn_of_unfaithful_engine()

    def _warn_of_unfaithful_engine(self) -> None:
        """Log a WARNING, once, where the engine's model does other than the actions' words say."""
        live = any(part.component == "engine" and part.call for part in self.turns[-1].chains)
        if self._warned or not live or isinstance(self._session, Replaying):
            return
        verdicts = [
            row["faithful"]
            for turn in self.turns[1:]
            for chain, row in zip(turn.chains, self.outcomes(turn, turn.chains), strict=True)
            if chain.component == "engine" and "faithful" in row
        ]
        if not verdicts or sum(verdicts) / len(verdicts) >= _FAITHFUL:
            return
        self._warned = True
        _warn(
            "ENGINE_UNFAITHFUL",
            run=self.config.name,
            measured=len(verdicts),
            within_12_5_bp=sum(verdicts),
            share=f"{sum(verdicts) / len(verdicts):.2f}",
            reason="the engine's model set other rates than the actions' words ask for, so that it "
            "is a second policymaker",
            way_out="let agents state their change (moves_bp); decisions() has stated_rate",
        )

    def _rate_after(
        self, chain: LLMReasoningChain, action: Action | None, rate: float | None
    ) -> float | None:
        """Return the rate that an engine's decision set; None where its record does not say."""
        if chain.call is not None:
            with suppress(InvalidReply):
                reply = chain.call.reply.text if chain.call.reply else ""
                return parse_reply(reply, StateUpdateDecision).new_interest_rate
            return None
        if action is not None and action.rate_change_bp is not None:
            limits = getattr(self.engine, "limits", None)
            if rate is None or limits is None:
                return None
            inside: float = limits.inside(changed_by(rate, action.rate_change_bp))
            return inside
        asked = action.proposed_rate if action else None
        if asked is None or chain.status == "ok" or rate is None:
            return asked
        if not isinstance(self.engine, EconLLMEngine):
            return None
        # A fallback went as far from the rate then in force as one action may go.
        return self.engine.limits.nearest(asked, current=rate)


def lint(
    subject: SimulationConfig | Simulation | str | Path,
    *,
    rule: TaylorRule | Rule | None = None,
    model: MacroModel | None = None,
) -> list[LintFinding]:
    """Return what is probably wrong with an economic simulation; an empty list if nothing is.

    No model is asked. The checks are for mistakes that published simulations have made; each
    finding has a number, says what was computed, and how to fix it.

    Args:
        subject: a configuration, its file, or a simulation with parts of your own.
        rule: a policy rule to check instead of the run's: a ``TaylorRule``, or a function of
            ``inflation``, ``output_gap`` and ``previous_rate``, all percent.
        model: an economy to check instead of the run's.

    Example:
        >>> for finding in lint(SimulationConfig(turns=20), rule=TaylorRule(inflation_weight=0.5)):
        ...     print(finding.rule)
        L1 Taylor principle
    """
    if isinstance(subject, str | Path):
        subject = SimulationConfig.from_yaml(subject)
    if isinstance(subject, SimulationConfig):
        nobody = (
            LLMClient(subject.llm, backend=ScriptedBackend([])) if subject.needs_model else None
        )
        subject = Simulation(subject, llm_client=nobody)
    checked = subject._subject()
    if rule is not None:
        checked = replace(checked, rules={"the rule": rule})
    if model is not None:
        checked = replace(checked, model=model)
    return findings(checked)


def brief(agents: Sequence[Agent], turns: Sequence[EconomicTurn], *, us_past: bool) -> None:
    """Give agents the states of the turns before the one that they will be asked about.

    Args:
        agents: who is told; only those of nations have a use for it.
        turns: from the run's first on.
        us_past: whether the run starts from the US data.
    """
    past = [turn.state for turn in turns]
    for agent in agents:
        if isinstance(agent, NationAgent):
            agent.past, agent.us_past = past, us_past


def _start_of(config: SimulationConfig) -> SimulationState:
    state = SimulationState() if config.start is None else initial_state(config.start)
    if not config.economy.mirrored:
        return state
    # Without its date: none of it happened.
    return SimulationState(global_state=mirrored(state.global_state))


def agent_for(
    nation: NationConfig, config: SimulationConfig, llm_client: LLMClient | None, prompts: Prompts
) -> Agent:
    if nation.kind == "taylor":
        return TaylorRuleAgent(
            nation.name,
            rule=TaylorRule(inflation_target=nation.inflation_target),
            limits=config.engine.limits,
            moves_bp=config.moves_bp,
            exact=nation.exact,
        )
    prompt = prompts.get(f"agent:{nation.name}") or _prompt_at(nation.prompt)
    if nation.kind == "human":
        if not nation.names_rate:
            _needed(llm_client, f"the engine, for nation {nation.name!r} (names_rate: false)")
        return HumanAgent(
            nation.name,
            profile=nation.profile,
            prompt=prompt,
            limits=config.engine.limits,
            moves_bp=config.moves_bp,
            names_rate=nation.names_rate,
            timeout_s=nation.timeout_s,
        )
    client = _needed(llm_client, f"nation {nation.name!r} (kind: llm)")
    briefing = None
    if config.briefing == "economist":
        members, rule = len(config.nations), config.committee.rule
        briefing = PolicyBriefing(
            masked=config.masked,
            members=members,
            rule=rule,
            mirror_of=config.start if config.economy.mirrored else None,
        )
    return NationAgent(
        nation.name,
        client,
        profile=nation.profile,
        prompt=prompt,
        moves_bp=config.moves_bp,
        briefing=briefing,
        decide=config.decide,
        seed=config.seed,
    )


def _validator_for(
    config: SimulationConfig, llm_client: LLMClient | None, prompts: Prompts
) -> Validator:
    if config.validator.kind == "always_valid":
        return AlwaysValid()
    return EconLLMValidator(
        _needed(llm_client, "the validator (kind: llm)"),
        config.validator.domain,
        permissive=config.validator.permissive,
        prompt=prompts.get("validator") or _prompt_at(config.validator.prompt),
    )


def _engine_for(
    config: SimulationConfig, llm_client: LLMClient | None, prompts: Prompts
) -> EconomicEngine:
    macro: MacroModel = StaticEconomy() if config.economy.model == "static" else RudebuschSvensson()
    scale = config.economy.shock_scale
    return EconomicEngine(
        config,
        llm_client,
        macro=macro,
        shocks=ShockGenerator(config.seed, scale=scale, mirrored=config.economy.mirrored)
        if scale
        else None,
        prompt=prompts.get("engine") or _prompt_at(config.engine_prompt),
        committee=config.committee,
        fiscal_backstop=FiscalBackstop() if config.economy.fiscal_backstop else None,
    )


def _basis_points(rate: float, to: float) -> float:
    return round(100 * (to - rate), 4) + 0.0  # never minus zero


def _prompt_at(path: Path | None) -> Prompt | None:
    return Prompt.load(path) if path else None


def _needed(llm_client: LLMClient | None, who: str) -> LLMClient:
    if llm_client is None:
        raise ConfigError(
            f"{who} needs a model: Simulation(config, llm_client=connect('auto')). For a run "
            "without one: nations of kind 'taylor' or 'human' and validator kind 'always_valid'"
        )
    if not hasattr(llm_client, "call_with_retry"):
        raise ConfigError(f"llm_client={llm_client!r} is not a client; make one: connect('auto')")
    return llm_client


def _check_prompts(prompts: Prompts, config: SimulationConfig, given: Collection[str]) -> None:
    """Raise ConfigError if a prompt would not be used by any of the parts built here."""
    places = {"validator", "engine"} - set(given)
    if "agents" not in given:
        places |= {f"agent:{nation.name}" for nation in config.nations}
    if idle := sorted(prompts.keys() - places):
        raise ConfigError(
            f"prompts for {', '.join(idle)} would not be used; the parts built here are "
            f"{', '.join(sorted(places)) or 'none'} (a part of your own brings its own prompt)"
        )
