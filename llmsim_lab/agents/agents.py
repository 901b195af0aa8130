"""Agents that propose policy: any agent, one that asks a language model, one that follows a rule.

``Agent`` and ``LLMAgent`` have no domain; a subclass of ``LLMAgent`` writes the prompt and decides
which decisions belong to its domain. For ``EconLLMAgent`` and ``NationAgent`` that is economic
policy.

The prompts and the rule's proposal are functions, which the economic world uses too.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import ConfigDict

from llmsim_lab._util.checks import instance_of, items_of, real_number, text_argument
from llmsim_lab._util.text import brief, number
from llmsim_lab.agents.briefing import NationProfile
from llmsim_lab.economy.macro import EngineConfig, Rule, checked_rule, rate_by
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.chains import chain_of
from llmsim_lab.llm.client import checked_client
from llmsim_lab.models import Action, AgentState, GlobalState, PolicyDecision, SimulationState
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run import Question
from llmsim_lab.types import CallSite, LLMReasoningChain, Status

logger = logging.getLogger(__name__)

# Matched at the start of a word: "tax" also finds "taxation", but "tax" is not found in "syntax".
_ECONOMIC_STEMS = (
    "austerity balance bank bond borrow budget business capital cash credit currenc debt deficit "
    "demand deregulat devalu econom employ excise export financ fiscal fund gdp growth hike hiring "
    "import incentive industr inflation infrastructure interest invest job labor labour lend levy "
    "liquidity loan market mint monet mortgage output pension price product quota rate recession "
    "reserve salar sanction saving spend stimul subsid suppl surplus tariff tax trade treasury "
    "unemploy wage welfare"
)


def _any_of(stems: Sequence[str]) -> str:
    """Return a pattern of stems, grouped by first letter, since trying all of them is slower."""
    patterns = []
    for letter, group in groupby(stems, lambda stem: stem[0]):
        ends = "|".join(stem[1:] for stem in group)
        patterns.append(f"{letter}(?:{ends})")
    return "|".join(patterns)


_ECONOMIC = re.compile(rf"\b(?:{_any_of(_ECONOMIC_STEMS.split())})", re.IGNORECASE)

_INDICATORS = ("gdp_growth", "inflation", "unemployment", "interest_rate")
"""The figures in the contract's prompt."""
SOURCES = {
    **{name: f"state.global_state.{name}, turn {{turn}}" for name in (*_INDICATORS, "output_gap")},
    "profile": "{agent}'s profile",
    "moves": "the run's moves_bp",
    "role": "{agent}'s briefing",
    "neutral_real_rate": "the macro model's neutral_real_rate",
    "quarters": "how many quarters are known, eight at most",
    "history": "the data before the run, and its turns up to turn {turn}",
    "distance": "inflation minus the target of {agent}'s profile, turn {turn}",
    "inflation_target": "{agent}'s profile",
    "real_rate": "interest rate minus inflation, turn {turn}",
    "stance": "the real rate minus the neutral one, turn {turn}",
}
"""The sources of the values of the prompt's slots."""

NOT_ECONOMIC = (
    "the action names nothing of economic policy "
    "(interest rates, taxes, spending, trade, credit, wages, prices ...)"
)
"""The complaint to a model whose action is not economic by ``is_economic``."""


def is_economic(action: str) -> bool:
    """Return True if an action's words name something of economic policy."""
    return _ECONOMIC.search(action) is not None


class Agent(ABC):
    """Looks at the state and proposes one action a turn.

    It may also sit in a seat of an economic run: ``players={"Aland": agent}``.

    Args:
        name: unique in a run.
    """

    def __init__(self, name: str) -> None:
        if not text_argument("name", name).strip():
            raise ConfigError("an agent needs a name that is not empty")
        self.name = name.strip()

    @abstractmethod
    async def decide_action(self, state: SimulationState) -> Action:
        """Propose one action for this state."""

    async def __call__(self, question: Question) -> Any:
        """Answer as a player of an economic run.

        Raises:
            LLMFailureException: the model failed, or its action is outside the domain twice.
            ConfigError: the question is not about an action; or moves are on offer, and the agent's
                action has none.
        """
        reply = question.reply
        if not {"action", "rate_change_bp"} & reply.model_fields.keys():
            raise ConfigError(
                f"{self.name!r} proposes actions, and is asked for a {reply.__name__}; its seat is "
                "'agent', or a nation's: players={'agent': ...}"
            )
        # In the contract's class, so that an agent works the same in a run and in a test.
        state = question.state
        action = await self.decide_action(
            SimulationState(
                turn=question.turn - 1,
                agents={self.name: AgentState(name=self.name)},
                global_state=state.global_state,
                period=state.period,
            )
        )
        # An action made by hand has no chain, and a rule's chain no call.
        call = action.chain.call if action.chain else None
        if action.status == "failed":
            # The model was asked a second time, with a complaint.
            raise LLMFailureException(
                "invalid_response",
                2,
                None,
                "agent",
                detail=f"{action.action_string!r} is outside the agent's domain",
                call=call,
            )
        asks_for_move = "rate_change_bp" in reply.model_fields
        # An action in words has no size, which the run would have to guess.
        if asks_for_move and action.rate_change_bp is None:
            raise ConfigError(
                f"{self.name!r} states no change, and moves are on offer; give the run "
                "moves_bp=None, or a TaylorRuleAgent moves_bp=run.moves_bp"
            )
        all_fields = self._fields_of(action, state.interest_rate)
        # Only the reply's fields, since it forbids others.
        fields = {name: all_fields[name] for name in all_fields if name in reply.model_fields}
        if call is None:
            return fields
        # With its call, so that the tape tells which request the decision came from.
        return reply.model_validate(fields).with_call(call)

    def _fields_of(
        self,
        action: Action,
        here: float,
    ) -> dict[str, object]:
        """Return an action's values by the names of replies' fields."""
        rate = action.proposed_rate
        if action.rate_change_bp is not None:
            rate = here + action.rate_change_bp / 100
        return {
            # An action may lack reasons and confidence, which a reply must have.
            "reasoning": "It gave no reason.",
            "confidence": 1.0,
            **dict(action.policy_decision or ()),
            # The agent's own words, which may differ from those of its decision.
            "action": action.action_string,
            "rate_change_bp": action.rate_change_bp,
            "proposed_rate": rate,
        }

    def _proposal(
        self,
        decision: PolicyDecision,
        chain: LLMReasoningChain,
        *,
        rate_change_bp: float | None = None,
        proposed_rate: float | None = None,
    ) -> Action:
        """Return the action that a decision proposes."""
        return Action(
            agent_name=self.name,
            action_string=decision.action,
            policy_decision=decision,
            status=chain.status,
            # The contract's link from an action to its reasons, unique in a run.
            reasoning_chain_id=f"{chain.turn}/agent/{self.name}",
            chain=chain,
            rate_change_bp=rate_change_bp,
            proposed_rate=proposed_rate,
        )


class LLMAgent(Agent):
    """An agent whose decisions a language model makes.

    A subclass writes the prompt and says which decisions belong to its domain. A decision that
    does not belong is sent back to the model once with a complaint; if the second one does not
    belong either, it becomes an action of status ``failed``, which validators reject.

    Args:
        name: unique in a run.
        llm_client: the model.

    Attributes:
        complaint: the text to the model if its decision does not belong to the domain.
    """

    complaint = "the action does not belong to this agent's domain"

    def __init__(self, name: str, llm_client: LLMClient) -> None:
        super().__init__(name)
        self.llm_client: LLMClient = checked_client(llm_client, "llm_client")

    @abstractmethod
    def _construct_prompt(self, state: SimulationState) -> str:
        """Write the whole prompt; a ``RenderedPrompt`` keeps its system part apart."""

    @abstractmethod
    def _validate_decision(self, decision: PolicyDecision) -> bool:
        """Return True if the decision belongs to the agent's domain."""

    async def decide_action(self, state: SimulationState) -> Action:
        """Let the model propose one action for this state.

        Raises:
            LLMFailureException: the model could not be reached or gave no valid answer twice.
        """
        prompt = self._construct_prompt(state)
        # The turn being played, which is one after the state's.
        site = CallSite(
            component="agent",
            agent=self.name,
            turn=state.turn + 1,
        )
        status: Status | None = None
        try:
            decision = await self.llm_client.call_with_retry(
                total_timeout_s=self.llm_client.config.timeout_s,
                prompt=prompt,
                response_model=PolicyDecision,
                check=self._complaint_about,
                site=site,
            )
        except LLMFailureException as failure:
            # Two valid decisions outside the domain are a rejected action, not a failed call.
            if not isinstance(failure.rejected, PolicyDecision):
                raise
            decision = failure.rejected
            status = "failed"
        chain = chain_of(
            decision,
            site,
            logger=logger,
            prompt=prompt,
            status=status,
        )
        return self._proposal(decision, chain)

    def _complaint_about(self, decision: PolicyDecision) -> str | None:
        """Return the complaint to the model about a decision; None if it belongs to the domain."""
        if self._validate_decision(decision):
            return None
        return self.complaint


def _in_the_order_asked(schema: dict[str, Any]) -> None:
    """Sort the fields of a decision's schema in the order in which a model fills them in."""
    # Otherwise inherited fields come first, and a model states its confidence before it decides.
    order = ("reasoning", "rate_change_bp", "action", "confidence")
    properties = schema["properties"]
    schema["properties"] = {name: properties[name] for name in order}


class RateDecision(PolicyDecision):
    """A decision that states its size, among moves on offer; code applies exactly that.

    A model is asked for its reasoning first, then for the size, then for the action in words.

    Attributes:
        rate_change_bp: the change of the interest rate in force, basis points; 0 holds it. None
            leaves the size to the engine's model, which judges the words.
    """

    model_config = ConfigDict(json_schema_extra=_in_the_order_asked)

    rate_change_bp: int | None = None


def thin_prompts(
    prompt: Prompt,
    economy: GlobalState,
    *,
    moves_bp: Sequence[int] | None = None,
    turn: int = 0,
) -> Callable[[str, NationProfile | None], RenderedPrompt]:
    """Return a function that writes the contract's prompt: four indicators, to two decimals.

    The function is called with the advisor's name and the nation's profile or None.

    Args:
        prompt: has the slots of the shipped ``agent_policy``, or with moves those of
            ``agent_rate``; a person's prompt need not have a slot for moves.
        economy: the quarter.
        moves_bp: the changes of the rate on offer, basis points.
        turn: the number of the state that is shown.
    """
    # Once for all members, who differ only in their profile.
    shared = {name: number(getattr(economy, name)) for name in _INDICATORS}
    # Only if the prompt has the slot: a value without a slot is an error.
    if moves_bp and "moves" in prompt.slots:
        shared["moves"] = moves_in_words(moves_bp)
    render = prompt.sharing(shared)

    def write(name: str, profile: NationProfile | None) -> RenderedPrompt:
        # The contract's agents know only the name of their nation.
        advised = f"You advise {name}."
        if profile is not None:
            target = number(profile.inflation_target)
            advised += f" Mandate: {profile.mandate}. Inflation target: {target}%. "
            advised += f"Temperament: {profile.temperament}."
        text = render({"profile": advised})
        return text.sourced(
            SOURCES,
            agent=name,
            turn=turn,
        )

    return write


class EconLLMAgent(LLMAgent):
    """Advises on economic policy, and knows only the name of its nation.

    Attributes:
        profile: the nation's profile.
    """

    complaint = NOT_ECONOMIC
    profile: NationProfile | None = None

    def _construct_prompt(self, state: SimulationState) -> str:
        """Show the four indicators."""
        write = thin_prompts(
            Prompt.load("agent_policy"),
            state.global_state,
            turn=state.turn,
        )
        return write(self.name, self.profile)

    def _validate_decision(self, decision: PolicyDecision) -> bool:
        """Return True if the action's words name something of economic policy."""
        return is_economic(decision.action)


def moves_in_words(moves_bp: Sequence[int]) -> str:
    """Return moves in a prompt's form: ``-25, 0, +25``."""
    return ", ".join(f"{move:+d}" if move else "0" for move in moves_bp)


def moves_to_choose(moves_bp: Sequence[int]) -> dict[int, str]:
    """Return moves in the form that ``LLMClient.choose`` takes."""
    options = {move: f"{move:+d} basis points" for move in moves_bp}
    if 0 in options:
        options[0] = "no change"
    return options


class NationAgent(EconLLMAgent):
    """A nation's advisor, with a mandate, an inflation target and a temperament.

    Args:
        name: the nation's name, unique in a run.
        llm_client: the model.
        profile: how this advisor differs from others, such as ``{"mandate": "low unemployment"}``:
            ``mandate``, ``inflation_target`` (percent per year) and ``temperament``, each optional.

    Raises:
        ConfigError: the profile has an unknown key or a wrong value.
    """

    profile: NationProfile

    def __init__(
        self,
        name: str,
        llm_client: LLMClient,
        *,
        profile: NationProfile | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, llm_client)
        # Made anew, so that a user's dict is checked.
        if not isinstance(profile, NationProfile | Mapping | None):
            raise ConfigError(
                f"profile={brief(profile)} must be a dict, such as {{'inflation_target': 3}}"
            )
        self.profile = NationProfile(**dict({} if profile is None else profile))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleProposal:
    """A rule's proposal, as the fields of a reply.

    Attributes:
        action: the proposal in words.
        reasoning: the figures that it follows from.
        confidence: always 1.
        rate_change_bp: the move; None where no moves are on offer.
        proposed_rate: the rate, percent per year, where no moves are on offer.
    """

    action: str
    reasoning: str
    confidence: float = 1.0
    rate_change_bp: float | None = None
    proposed_rate: float | None = None


def rule_proposal(
    rule: Rule,
    economy: GlobalState,
    limits: EngineConfig,
    *,
    moves_bp: Sequence[float] | None = None,
) -> RuleProposal:
    """Return a rule's proposal, limited to one step.

    Args:
        rule: the rule.
        economy: the quarter.
        limits: how far one action may move the rate; with moves on offer only the bounds count.
        moves_bp: the changes of the rate on offer, basis points.
    """
    here = economy.interest_rate
    wanted = rate_by(rule, economy)
    move: float | None = None
    proposed_rate: float | None = None
    if moves_bp:
        rates = {bp: limits.inside(here + bp / 100) for bp in moves_bp}

        def distance_and_size(bp: float) -> tuple[float, float]:
            # Rounded, so that two equally close rates do not differ in their last bits.
            distance = round(abs(rates[bp] - wanted), 9)
            return distance, abs(bp)

        # Of two equally close moves the smaller, so that a mirrored economy gets the mirrored move.
        move = min(rates, key=distance_and_size)
        rate = rates[move]
        # Only the largest move may fall short of what the rule asks for.
        is_largest = move in (min(moves_bp), max(moves_bp))
        is_cut_short = is_largest and abs(wanted - here) > abs(move) / 100
    else:
        # Of two equally close rates the lower one, which stands first.
        rate = min(limits.choices(here), key=lambda offered: abs(offered - wanted))
        proposed_rate = rate
        # The grid changes the rate by at most half a step; a larger difference means a limit binds.
        is_cut_short = abs(rate - wanted) > limits.rate_step
    reasoning = (
        f"With inflation at {number(economy.inflation)}% and an output gap of "
        f"{number(economy.output_gap)}% the rule asks for {number(wanted)}%."
    )
    if is_cut_short:
        reasoning += f" One step from {number(here)}% goes no further."
    return RuleProposal(
        action=f"Set the interest rate to {number(rate)}%",
        reasoning=reasoning,
        rate_change_bp=move,
        proposed_rate=proposed_rate,
    )


def _moves(moves_bp: Sequence[float]) -> list[float]:
    """Return moves that were given as an argument, whole ones as whole numbers."""
    moves: list[float] = []
    for given in items_of("moves_bp", moves_bp, object, "a list of numbers"):
        move = real_number("moves_bp", given)
        moves.append(int(move) if move.is_integer() else move)
    return moves


class TaylorRuleAgent(Agent):
    """Proposes the rate that the rule asks for, or the one on offer that is closest to it.

    Args:
        name: unique in a run.
        rule: the rule, or a function with the arguments of its ``rate``; Taylor (1993) with its own
            coefficients if not given.
        limits: how far one action may move the rate, such as a configuration's ``engine``;
            the engine's defaults if not given.
        moves_bp: the changes of the rate on offer, basis points; the action then states its size,
            and of the limits only the bounds matter.
    """

    def __init__(
        self,
        name: str = "Taylor rule",
        *,
        rule: Rule | None = None,
        limits: EngineConfig | None = None,
        moves_bp: Sequence[float] | None = None,
    ) -> None:
        super().__init__(name)
        self.rule = checked_rule(rule)
        instance_of("limits", limits, EngineConfig | None, "an EngineConfig")
        self.limits = EngineConfig() if limits is None else limits
        if moves_bp is not None:
            moves_bp = _moves(moves_bp)
        self.moves_bp = moves_bp

    async def decide_action(self, state: SimulationState) -> Action:
        """Propose a rate by the rule."""
        # The same function as in a run's seats, so that both propose the same.
        proposal = rule_proposal(
            self.rule,
            state.global_state,
            self.limits,
            moves_bp=self.moves_bp,
        )
        chain = LLMReasoningChain(
            component="agent",
            agent=self.name,
            # The turn being played, which is one after the state's.
            turn=state.turn + 1,
            reasoning=proposal.reasoning,
        )
        decision = PolicyDecision(
            action=proposal.action,
            reasoning=proposal.reasoning,
            confidence=proposal.confidence,
        )
        return self._proposal(
            decision,
            chain,
            rate_change_bp=proposal.rate_change_bp,
            proposed_rate=proposal.proposed_rate,
        )
