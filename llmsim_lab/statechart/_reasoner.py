"""Who chooses among an agent's legal moves: a language model, or a rule as a baseline for it.

An enum of the legal options limits the model's answer, so that an illegal move can only come from a
backend that ignores schemas. Options stand in an order drawn from the run's seed, since models
answer to the place where an option stands. Measured with the embedded model qwen2.5-coder-1.5b, 12
questions in all 6 rotations of their options: the one in first place was chosen in 4 % of the 72
answers (95 % interval 0 to 9 %), those in places 2 to 4 in 72 %; without a preference for places it
would be 17 % each. Other models prefer the first.
"""

from __future__ import annotations

import json
import logging
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar, Literal, Self, overload

from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import FORGIVEN, LooksUp, chain_of, chain_of_failure
from llmsim_lab.llm._choose import Choice
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.statechart._agent import Post, SocialAgent, interest_match
from llmsim_lab.statechart._chart import STATE_DESCRIPTIONS, AgentState
from llmsim_lab.types import CallSite, Decision, LLMReasoningChain, Status, Text

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MoveQuestion:
    """One ambiguous move: the arguments of ``Chooser.decide``.

    Attributes:
        agent: who decides.
        current_state: what it is doing.
        trigger: the event.
        options: the legal states.
        context: what it is about, such as a ``Post``.
        turn: the turn being played, if one is.

    Raises:
        ValueError: there are no options.
    """

    agent: SocialAgent
    current_state: AgentState
    trigger: str
    options: Sequence[AgentState]
    context: Any = None
    turn: int | None = None

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError(
                f"{self.agent.name} has no option for the trigger {self.trigger!r} in state "
                f"{self.current_state.value!r}; ask the chart's valid_targets first"
            )

    @property
    def place(self) -> tuple[object, ...]:
        """What tells it from other questions of a run: turn, user, trigger, and post if any."""
        return self.turn, self.agent.name, self.trigger, getattr(self.context, "id", None)


@dataclass(frozen=True, slots=True)
class MoveChoice:
    """An answer to a question.

    Attributes:
        state: the state to go to.
        status: ``ok``, ``repaired``, or ``fallback`` where the first option was taken instead.
        chain: why; None where a rule decided.
    """

    state: AgentState
    status: Status
    chain: LLMReasoningChain | None = None


class Chooser(ABC):
    """Chooses among an agent's legal moves."""

    @overload
    async def decide(
        self,
        agent: SocialAgent,
        current_state: AgentState,
        trigger: str,
        options: Sequence[AgentState],
        context: Any = None,
    ) -> AgentState: ...

    @overload
    async def decide(self, agent: Sequence[MoveQuestion]) -> list[AgentState]: ...

    async def decide(
        self,
        agent: SocialAgent | Sequence[MoveQuestion],
        current_state: AgentState | None = None,
        trigger: str = "",
        options: Sequence[AgentState] = (),
        context: Any = None,
    ) -> AgentState | list[AgentState]:
        """Return the state that an agent goes to, or those of a batch of questions, asked at once.

        Args:
            agent: who decides; or a sequence of ``MoveQuestion``, and nothing else.
            current_state: what it is doing.
            trigger: the event.
            options: the legal states.
            context: what it is about, such as a ``Post``.

        Raises:
            ValueError: there are no options.
            LLMFailureException: the model cannot be reached. A timeout or a bad answer, after the
                one retry, leads to the first option, a WARNING and status ``fallback``.
        """
        if isinstance(agent, Sequence):
            return [choice.state for choice in await self.choose_all(agent)]
        state = agent.state if current_state is None else current_state
        (choice,) = await self.choose_all([MoveQuestion(agent, state, trigger, options, context)])
        return choice.state

    @abstractmethod
    async def choose_all(self, questions: Sequence[MoveQuestion]) -> list[MoveChoice]:
        """Answer questions, in their order, with how each answer came about; see ``decide``."""


class NextState(Decision):
    """What the model answers: the state to go to."""

    next_state: Text

    @property
    def reasoning(self) -> str:
        """What it chose; no reason was asked for."""
        return f"chose {self.next_state}"

    confidence: ClassVar[None] = None
    """Not asked for."""


# Not derived from NextState, whose field would then come before the reason.
class ExplainedNextState(Decision):
    """The same with a reason, which comes first so that the choice can follow from it."""

    rationale: Text
    next_state: Text

    @property
    def reasoning(self) -> str:
        """What it chose, and why."""
        return f"chose {self.next_state}: {self.rationale}"

    confidence: ClassVar[None] = None
    """Not asked for."""


class Reasoner(Chooser):
    """Lets a language model choose among an agent's legal moves.

    Args:
        client: the model.
        seed: of the order in which options stand in the prompt; None leaves them as they are given.
        rationale: whether the model gives a reason, in one sentence; with ``decide``, whether it
            writes down its reasoning first.
        decide: ``sample`` or ``mode`` asks for the probability of each option, in every order of
            them, and draws, or takes the likeliest. None asks for an answer.
        draws: the seed of these draws.
        prompt: a prompt with the slots of the shipped ``social_reasoner``, or with ``decide`` of
            ``social_choice``; that one if not given.
        lookup: looks things up before each choice, for example with tools; what it finds is added
            to the prompt.

    Attributes:
        counts: decisions of this reasoner so far by status; a copy starts at zero. A run counts its
            own, in ``statuses``.
    """

    def __init__(
        self,
        client: LLMClient,
        *,
        seed: int | None = None,
        rationale: bool = False,
        decide: Literal["sample", "mode"] | None = None,
        draws: int = 0,
        prompt: Prompt | None = None,
        lookup: LooksUp | None = None,
    ) -> None:
        if decide is not None and lookup is not None:
            raise ConfigError(
                f"decide={decide!r} asks for probabilities, and a lookup goes with an answer; "
                "leave one of them out"
            )
        self.llm_client = client
        self.seed = seed
        self.rationale = rationale
        self.decide_by = decide
        self.draws = draws
        self.lookup = lookup
        self.prompt = prompt or Prompt.load("social_choice" if decide else "social_reasoner")
        self.counts: dict[Status, int] = {}

    # A fork copies its reasoner; shared counts would mix the two runs.
    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__ = {**self.__dict__, "counts": {}}
        return twin

    async def choose_all(self, questions: Sequence[MoveQuestion]) -> list[MoveChoice]:
        """Answer several questions concurrently, in order; see ``decide``.

        Where an answer stays invalid, is stopped because the model repeats itself, or does not come
        in time, the first option is taken, with a WARNING and status ``fallback``. The same holds
        for the lookup's own questions: the choice is then not asked for, and the WARNING says so.

        Raises:
            LLMFailureException: the model cannot be reached, or refuses the request.
            LabError: the lookup's tools are not available; of ``ToolLookup`` it is an ``LLMError``
                or a ``ToolServerError``.
        """
        answer = self._choose if self.decide_by is None else self._measure
        return await gather_all([answer(question) for question in questions])

    async def _measure(self, question: MoveQuestion) -> MoveChoice:
        """Ask for the probability of each option, and decide by them."""
        options = tuple(dict.fromkeys(question.options))
        if len(options) == 1:
            return MoveChoice(options[0], "ok")
        name, turn = question.agent.name, question.turn
        site = CallSite(component="reasoner", agent=name, turn=turn)
        texts = {option: f"{option.value} - {STATE_DESCRIPTIONS[option]}" for option in options}
        try:
            chances = await self.llm_client.choose(
                self.build_prompt(question), texts, reasoning=self.rationale, site=site
            )
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            return self._fallback(failure, question, site)
        state = self._decided(chances, question)
        how = "drew" if self.decide_by == "sample" else "took the likeliest,"
        reasoning = (
            f"{how} {state.value}: {chances.probabilities[state]:.1%} among {', '.join(options)}; "
            f"{chances.mass:.1%} of all answers are one of them"
        )
        chain = LLMReasoningChain(
            component="reasoner", agent=name, turn=turn or 0, reasoning=reasoning, confidence=None
        )
        return self._counted(state, chain)

    def _counted(self, state: AgentState, chain: LLMReasoningChain) -> MoveChoice:
        self.counts[chain.status] = self.counts.get(chain.status, 0) + 1
        return MoveChoice(state, chain.status, chain)

    def _fallback(
        self,
        failure: LLMFailureException,
        question: MoveQuestion,
        site: CallSite,
        *,
        looking_up: bool = False,
    ) -> MoveChoice:
        """Log a fallback; return the first legal option in the chart's order.

        Not the one shown first: a fallback must not depend on how the options were shuffled.
        """
        chosen = question.options[0]
        chain = chain_of_failure(
            failure,
            site,
            logger=logger,
            event="REASONER_FALLBACK",
            status="fallback",
            instead=f"fallback to {chosen.value}, the first option",
            looking_up=looking_up,
            trigger=question.trigger,
            chosen=chosen.value,
        )
        return self._counted(chosen, chain)

    def _decided(self, chances: Choice[AgentState], question: MoveQuestion) -> AgentState:
        """Return what one user does; a draw is the user's own, by seed, turn and name."""
        if self.decide_by == "mode":
            return chances.mode
        return drawn(chances.probabilities, draw(self.draws, *question.place, "decides"))

    async def _choose(self, question: MoveQuestion) -> MoveChoice:
        legal = question.options
        prompt: str = self.build_prompt(question)
        site = CallSite(component="reasoner", agent=question.agent.name, turn=question.turn)

        def fault(decision: NextState | ExplainedNextState) -> str | None:
            try:
                legal_option(decision.next_state, legal)
            except ValueError as error:
                return str(error)
            return None

        # For the WARNING: whether it was a question of the lookup that failed.
        looking_up = self.lookup is not None
        try:
            if self.lookup is not None:
                prompt = await self.lookup.look_up(prompt, self.llm_client, site)
            looking_up = False
            decision: NextState | ExplainedNextState = await self.llm_client.call_with_retry(
                prompt=prompt,
                response_model=ExplainedNextState if self.rationale else NextState,
                # In the prompt's order: a server that goes through the enum must not have another.
                choices={"next_state": tuple(option.value for option in self._ordered(question))},
                check=fault,
                site=site,
            )
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            return self._fallback(failure, question, site, looking_up=looking_up)
        chain = chain_of(decision, site, logger=logger, prompt=prompt)
        return self._counted(legal_option(decision.next_state, legal), chain)

    def build_prompt(self, question: MoveQuestion) -> RenderedPrompt:
        """Return the prompt for a question, its options in the order the seed gives.

        With ``decide`` the options are added later, in every order.
        """
        agent = question.agent
        if self.decide_by is not None:
            return self.prompt.render(
                agent_personality=agent.personality,
                current_state=question.current_state.value,
                trigger=question.trigger,
                context=format_context(question.context),
                fit=_fit(agent, question.context),
            )
        return build_reasoner_prompt(
            agent.name,
            agent.interests,
            agent.personality,
            question.current_state,
            question.trigger,
            self._ordered(question),
            question.context,
            prompt=self.prompt,
            rationale=self.rationale,
        )

    def _ordered(self, question: MoveQuestion) -> list[AgentState]:
        """Return the options, each once, in the order in which the model reads them."""
        options = list(dict.fromkeys(question.options))
        if self.seed is None:
            return options
        # A string seed is hashed the same way in every process.
        place = "/".join(map(str, (self.seed, *question.place)))
        return random.Random(place).sample(options, len(options))


def _fit(agent: SocialAgent, context: Any) -> str:
    """Return what of a post is among a user's interests."""
    if not isinstance(context, Post):
        return ""
    shared = [topic for topic in context.topics if topic in agent.interests]
    return f"Of its topics you care about: {', '.join(shared) or 'none'}."


def build_reasoner_prompt(
    agent_name: str,
    agent_interests: Sequence[str],
    agent_personality: str,
    current_state: AgentState,
    trigger: str,
    options: Sequence[AgentState],
    context: Any,
    *,
    prompt: Prompt | None = None,
    rationale: bool = False,
) -> RenderedPrompt:
    """Return the prompt for a decision. Its wording is the reasoner contract's.

    Args:
        agent_name: who decides.
        agent_interests: its topics.
        agent_personality: how it is.
        current_state: what it is doing.
        trigger: the event.
        options: the legal states, in the order in which the model reads them.
        context: what it is about; see ``format_context``.
        prompt: one with the slots of the shipped ``social_reasoner``; that one if not given.
        rationale: whether the answer gives a reason.
    """
    reason = '"rationale": "<one sentence>", ' if rationale else ""
    return (prompt or Prompt.load("social_reasoner")).render(
        agent_name=agent_name,
        agent_interests=", ".join(agent_interests),
        agent_personality=agent_personality,
        current_state=current_state.value,
        trigger=trigger,
        context=format_context(context),
        options="\n".join(f"- {option.value}: {STATE_DESCRIPTIONS[option]}" for option in options),
        answer_form=f'{{{reason}"next_state": "<state_value>"}}',
    )


def format_context(context: Any) -> str:
    """Return what a decision is about, as the model reads it; empty for None.

    A post is quoted as JSON, so that its text cannot pass for part of the prompt.
    """
    if context is None:
        return ""
    if isinstance(context, Post):
        kind = {"original": "post", "reply": "reply", "reshare": "reshared post"}[context.kind]
        about = f" (about {', '.join(context.topics)})" if context.topics else ""
        quoted = json.dumps(context.text, ensure_ascii=False)
        return f"You see a {kind} by {context.author}{about}:\n{quoted}"
    if isinstance(context, Mapping):
        return "\n".join(f"{name}: {value}" for name, value in context.items())
    return str(context)


def parse_reasoner_response(response_text: str, options: Sequence[AgentState]) -> AgentState:
    """Return the option that a reply names.

    Raises:
        ValueError: the reply is not a JSON object with ``next_state``, or names another state.
    """
    try:
        data = json.loads(response_text)
    except json.JSONDecodeError as error:
        raise ValueError(f"Failed to parse Reasoner response: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("next_state"), str):
        raise ValueError(
            "Failed to parse Reasoner response: it must be an object with a text 'next_state'"
        )
    return legal_option(data["next_state"], options)


def legal_option(value: str, options: Sequence[AgentState]) -> AgentState:
    """Return the option of that value, whatever its letters' case.

    Raises:
        ValueError: it is not one of the options; the message lists them.
    """
    wanted = value.strip().lower()
    for option in options:
        if option.value == wanted:
            return option
    there = ", ".join(option.value for option in options)
    raise ValueError(f"Invalid state: {value}; the options are {there}")


_APPEAL: dict[AgentState, tuple[float, float]] = {
    AgentState.SCROLLING: (1.0, 0.0),
    AgentState.RESTING: (-1.0, 0.0),
    AgentState.IDLE: (-1.0, 0.0),
    AgentState.EVALUATING: (0.0, 1.0),
    AgentState.ENGAGING_LIKE: (0.0, 1.5),
    AgentState.ENGAGING_REPLY: (-1.0, 1.5),
    AgentState.ENGAGING_RESHARE: (-1.5, 2.0),
    AgentState.COMPOSING: (-1.5, 1.0),
}
"""A state's utility by itself, and what a full match with the user's interests adds to it.

Assumed, not estimated: passive reading is most common, liking is cheaper than replying, and
replying is cheaper than resharing.
"""


def draw(*place: object) -> float:
    """Return a number from 0 to 1, the same for the same place in every process."""
    # Not ``hash``, which is salted anew in each process.
    text = "/".join(map(str, place)).encode()
    # 7 bytes, more than the 53 bits of a float; the largest of them may be rounded up to 1.
    return int.from_bytes(blake2b(text, digest_size=7).digest()) / 2**56


def drawn(shares: Mapping[AgentState, float], left: float) -> AgentState:
    """Return the option that a number from 0 to 1 falls on."""
    for option, share in shares.items():
        left -= share
        if left < 0:
            return option
    return option  # the shares add up to a little less than 1


class RuleReasoner(Chooser):
    """Chooses among moves by a logit on how well the post matches the user's interests.

    Args:
        seed: of its draws.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    async def choose_all(self, questions: Sequence[MoveQuestion]) -> list[MoveChoice]:
        """Answer several questions, in order."""
        return [MoveChoice(self.chosen(question), "ok") for question in questions]

    def shares(self, question: MoveQuestion) -> dict[AgentState, float]:
        """Return the chance of each option; they add up to 1."""
        # Without a post there is neither a good match nor a bad one.
        post = question.context
        match = interest_match(question.agent, post) if isinstance(post, Post) else 0.5
        appeals = {option: _APPEAL[option] for option in question.options}
        weights = {option: math.exp(base + fit * match) for option, (base, fit) in appeals.items()}
        total = sum(weights.values())
        return {option: weight / total for option, weight in weights.items()}

    def chosen(self, question: MoveQuestion) -> AgentState:
        """Return the option that the rule draws."""
        return drawn(self.shares(question), draw(self.seed, *question.place))
