"""Who proposes policy: any agent, one that asks a language model, and one that follows a rule.

``Agent`` and ``LLMAgent`` know no domain; a subclass of ``LLMAgent`` writes the prompt and says
which decisions belong to its domain. In ``EconLLMAgent`` and ``NationAgent`` that is economic
policy.

What a model is asked, and what the rule answers, are functions: the economic world has them too.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from pydantic import ConfigDict

from llmsim_lab._util.text import number
from llmsim_lab.agents.briefing import NationProfile
from llmsim_lab.economy.macro import EngineConfig, Rule, TaylorRule, rate_by
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
# By first letters, since else all stems are tried at each word.
_BY_LETTER = groupby(_ECONOMIC_STEMS.split(), lambda stem: stem[0])
_ALTERNATIVES = (f"{one}(?:{'|'.join(stem[1:] for stem in those)})" for one, those in _BY_LETTER)
_ECONOMIC = re.compile(rf"\b(?:{'|'.join(_ALTERNATIVES)})", re.IGNORECASE)

_INDICATORS = ("gdp_growth", "inflation", "unemployment", "interest_rate")
"""What the contract's prompt shows."""
SOURCES = {
    **{it: f"state.global_state.{it}, turn {{turn}}" for it in (*_INDICATORS, "output_gap")},
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
"""Where the value of each of the prompt's slots comes from."""

NOT_ECONOMIC = (
    "the action names nothing of economic policy "
    "(interest rates, taxes, spending, trade, credit, wages, prices ...)"
)
"""What goes back to a model whose action ``is_economic`` finds outside the domain."""


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
        if not name.strip():
            raise ConfigError("an agent needs a name that is not empty")
        self.name = name.strip()

    @abstractmethod
    async def decide_action(self, state: SimulationState) -> Action:
        """Propose one action for this state."""

    async def __call__(self, question: Question) -> Any:
        """Answer as a player of an economic run.

        Raises:
            LLMFailureException: the model failed, or its action is outside the domain twice.
            ConfigError: it is asked for something else than an action; or moves are on offer, and
                it knows of none.
        """
        now, fields = question.state, question.reply.model_fields
        if not {"action", "rate_change_bp"} & fields.keys():
            what = f"{self.name!r} proposes actions, and is asked for a {question.reply.__name__}"
            raise ConfigError(
                f"{what}; its seat is 'agent', or a nation's: players={{'agent': ...}}"
            )
        turn, own = question.turn - 1, {self.name: AgentState(name=self.name)}
        economy, period = now.global_state, now.period
        action = await self.decide_action(
            SimulationState(turn=turn, agents=own, global_state=economy, period=period)
        )
        call = action.chain.call if action.chain else None
        if action.status == "failed":
            why = f"{action.action_string!r} is outside the agent's domain"
            raise LLMFailureException("invalid_response", 2, None, "agent", detail=why, call=call)
        words: Any = action.policy_decision or ()
        size = action.rate_change_bp
        if size is None and "rate_change_bp" in fields:
            way_out = "give the run moves_bp=None, or a TaylorRuleAgent moves_bp=run.moves_bp"
            raise ConfigError(f"{self.name!r} states no change, and moves are on offer; {way_out}")
        rate = action.proposed_rate if size is None else now.interest_rate + size / 100
        said = {"reasoning": "It gave no reason.", "confidence": 1.0, **dict(words)}
        said |= {"action": action.action_string, "rate_change_bp": size, "proposed_rate": rate}
        said = {name: it for name, it in said.items() if name in fields}
        return said if call is None else question.reply.model_validate(said).with_call(call)

    def _proposal(self, made: PolicyDecision, chain: LLMReasoningChain, **size: Any) -> Action:
        return Action(
            agent_name=self.name,
            action_string=made.action,
            policy_decision=made,
            status=chain.status,
            reasoning_chain_id=f"{chain.turn}/agent/{self.name}",
            chain=chain,
            **size,
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
        complaint: what goes back to the model when its decision does not belong.
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
        site = CallSite(component="agent", agent=self.name, turn=state.turn + 1)
        status: Status | None = None
        try:
            decision = await self.llm_client.call_with_retry(
                total_timeout_s=self.llm_client.config.timeout_s,
                prompt=prompt,
                response_model=PolicyDecision,
                check=lambda made: None if self._validate_decision(made) else self.complaint,
                site=site,
            )
        except LLMFailureException as failure:
            # Twice the right form with an action outside the domain: rejected, not a failed call.
            if not isinstance(failure.rejected, PolicyDecision):
                raise
            decision, status = failure.rejected, "failed"
        chain = chain_of(decision, site, logger=logger, prompt=prompt, status=status)
        return self._proposal(decision, chain)


def _in_the_order_asked(schema: dict[str, Any]) -> None:
    # Inherited fields come first, so a model would be sure of itself before it decided.
    order = ("reasoning", "rate_change_bp", "action", "confidence")
    schema["properties"] = {name: schema["properties"][name] for name in order}


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
    prompt: Prompt, economy: GlobalState, *, moves_bp: Sequence[int] | None = None, turn: int = 0
) -> Callable[[str, NationProfile | None], RenderedPrompt]:
    """Return what writes to advisors as the contract has it: four indicators, to two decimals.

    It is called with the name of whose advisor it is, and what is known of the nation, or None.

    Args:
        prompt: with the slots of the shipped ``agent_policy``, or with moves of ``agent_rate``; a
            person's prompt need not have a slot for them.
        economy: the quarter.
        moves_bp: the changes of the rate on offer, basis points.
        turn: the number of the state that is shown.
    """
    shared = {it: number(getattr(economy, it)) for it in _INDICATORS}
    if moves_bp and "moves" in prompt.slots:
        shared["moves"] = moves_in_words(moves_bp)
    render = prompt.sharing(shared)

    def write(name: str, profile: NationProfile | None) -> RenderedPrompt:
        advised = f"You advise {name}."
        if profile is not None:
            target = number(profile.inflation_target)
            advised += f" Mandate: {profile.mandate}. Inflation target: {target}%. "
            advised += f"Temperament: {profile.temperament}."
        return render({"profile": advised}).sourced(SOURCES, agent=name, turn=turn)

    return write


class EconLLMAgent(LLMAgent):
    """Advises on economic policy; knows nothing of its nation but the name.

    Attributes:
        profile: what is known of the nation.
    """

    complaint = NOT_ECONOMIC
    profile: NationProfile | None = None

    def _construct_prompt(self, state: SimulationState) -> str:
        """Show the four indicators."""
        write = thin_prompts(Prompt.load("agent_policy"), state.global_state, turn=state.turn)
        return write(self.name, self.profile)

    def _validate_decision(self, decision: PolicyDecision) -> bool:
        """Return True if the action's words name something of economic policy."""
        return is_economic(decision.action)


def moves_in_words(moves_bp: Sequence[int]) -> str:
    """Return moves as a prompt lists them: ``-25, 0, +25``."""
    return ", ".join(f"{move:+d}" if move else "0" for move in moves_bp)


def moves_to_choose(moves_bp: Sequence[int]) -> dict[int, str]:
    """Return moves as ``LLMClient.choose`` offers them."""
    return {move: f"{move:+d} basis points" if move else "no change" for move in moves_bp}


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
        self.profile = NationProfile(**dict(profile or {}))


def rule_proposal(
    rule: Rule, economy: GlobalState, limits: EngineConfig, *, moves_bp: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return what a rule proposes, as the fields of a reply: as far as one step goes.

    ``rate_change_bp`` is None where no moves are on offer; then ``proposed_rate`` is the rate.

    Args:
        rule: the rule.
        economy: the quarter.
        limits: how far one action may move the rate; with moves its bounds alone.
        moves_bp: the changes of the rate on offer, basis points.
    """
    asked, here = rate_by(rule, economy), economy.interest_rate
    move: int | None = None
    if moves_bp:
        # Of two equally close the smaller, so that a mirrored economy gets the mirrored move.
        leads_to = {it: limits.inside(here + it / 100) for it in moves_bp}
        move = min(leads_to, key=lambda it: (round(abs(leads_to[it] - asked), 9), abs(it)))
        rate, last = leads_to[move], move in (min(moves_bp), max(moves_bp))
        further = last and abs(asked - here) > abs(move) / 100
    else:
        rate = min(limits.choices(here), key=lambda it: (abs(it - asked), it))
        # Rounding to the grid moves the rate by half a step at most; more means a limit binds.
        further = abs(rate - asked) > limits.rate_step
    reasoning = (
        f"With inflation at {number(economy.inflation)}% and an output gap of "
        f"{number(economy.output_gap)}% the rule asks for {number(asked)}%."
    )
    if further:
        reasoning += f" One step from {number(here)}% goes no further."
    said = {"action": f"Set the interest rate to {number(rate)}%", "reasoning": reasoning}
    size = {"rate_change_bp": move, "proposed_rate": rate if move is None else None}
    return {**said, "confidence": 1.0, **size}


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
        moves_bp: Sequence[int] | None = None,
    ) -> None:
        super().__init__(name)
        self.rule = rule or TaylorRule()
        self.limits = limits or EngineConfig()
        self.moves_bp = moves_bp

    async def decide_action(self, state: SimulationState) -> Action:
        """Propose a rate by the rule."""
        said = rule_proposal(self.rule, state.global_state, self.limits, moves_bp=self.moves_bp)
        why, at = said["reasoning"], state.turn + 1
        chain = LLMReasoningChain(component="agent", agent=self.name, turn=at, reasoning=why)
        size = {it: said[it] for it in ("rate_change_bp", "proposed_rate")}
        return self._proposal(PolicyDecision(**said), chain, **size)
