"""Reasoners, which choose among an agent's legal moves: a language model, or a rule as baseline.

An enum of the legal options limits the model's answer, so that an illegal move can only come from a
backend that ignores schemas. The order of the options is drawn from the run's seed, since models
prefer certain places. In a run the order begins at another place for each post and turn, so that
all users of a post read the same list. Measured with the reasoner contract's prompt and the
embedded model qwen2.5-coder-1.5b, 12 questions in all 6 rotations of their options: the option in
first place was chosen in 4 % of the 72 answers (95 % interval 0 to 9 %), those in places 2 to 4 in
72 %; without a preference for places it would be 17 % each. Other models prefer the first.
"""

from __future__ import annotations

import json
import logging
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import AfterValidator, StringConstraints, ValidationError

from llmsim_lab._util.checks import instance_of, items_of, text_argument, whole_number
from llmsim_lab._util.text import faults, log_event
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.chains import FORGIVEN
from llmsim_lab.llm.client import checked_client
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run import Question
from llmsim_lab.statechart._agent import Post, PostKind, SocialAgent, interest_match
from llmsim_lab.statechart._chart import STATE_DESCRIPTIONS, AgentState
from llmsim_lab.types import CallSite, Decision, OneSentence, Rationale, Status, Text

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MoveQuestion:
    """A move with its options, which ``Reasoner.decide`` chooses from.

    Attributes:
        agent: the agent that moves.
        current_state: the agent's state.
        trigger: the event.
        options: the legal states.
        context: what the move is about, such as a ``Post``.
        turn: the turn being played, if any.

    Raises:
        ConfigError: there are no options, or a value is of the wrong kind.
    """

    agent: SocialAgent
    current_state: AgentState
    trigger: str
    options: Sequence[AgentState]
    context: Any = None
    turn: int | None = None

    def __post_init__(self) -> None:
        text_argument("trigger", self.trigger)
        options = items_of("options", self.options, AgentState, "a list of AgentStates")
        object.__setattr__(self, "options", tuple(options))
        if not options:
            raise ConfigError(
                f"{self.agent.name} has no option for the trigger {self.trigger!r} in state "
                f"{self.current_state.value!r}; ask the chart's valid_targets first"
            )

    @property
    def place(self) -> tuple[object, ...]:
        """The values that identify a question in a run: turn, user, trigger, and post if any."""
        post = getattr(self.context, "id", None)
        return (
            self.turn,
            self.agent.name,
            self.trigger,
            post,
        )

    def ordered(self, seed: int | None) -> list[AgentState]:
        """Return the options, each once, in the order drawn from a seed; None keeps the order."""
        options = list(dict.fromkeys(self.options))
        if seed is None:
            return options
        # A string seed is hashed the same way in every process.
        place = "/".join(map(str, (seed, *self.place)))
        rng = random.Random(place)
        return rng.sample(options, len(options))

    def rotated(self, seed: int) -> list[AgentState]:
        """Return the options, each once, in the run's order, from a place drawn for the post.

        Users who see the same post in a turn read the same list, so that a server reads it once.
        Over posts and turns, each option has each place equally often.

        Args:
            seed: of the run.
        """
        options = list(dict.fromkeys(self.options))
        # By the seed alone: the whole run has one order, and turns begin at different places.
        rng = random.Random(str(seed))
        ordered = rng.sample(options, len(options))
        about = getattr(self.context, "id", None)
        share = draw(
            seed,
            self.turn,
            self.trigger,
            about,
            "options",
        )
        start = int(share * len(ordered))
        return [*ordered[start:], *ordered[:start]]

    def by_rule(self, seed: int | str) -> AgentState:
        """Return the option that the rule draws: a logit on the post's match with the interests."""
        # Without a post, the match is neither good nor bad.
        match = 0.5
        if isinstance(self.context, Post):
            match = interest_match(self.agent, self.context)
        # A logit, as for the feed: chances are proportional to the exponential of the utilities.
        weights = {option: _APPEAL[option].weight(match) for option in self.options}
        total = sum(weights.values())
        left = draw(seed, *self.place)
        for option, weight in weights.items():
            left -= weight / total
            if left < 0:
                return option
        return option  # reached where rounded shares add up to a little less than 1


# Without an enum, models write "Scrolling".
_StateName = Annotated[Text, AfterValidator(lambda text: text.strip().lower())]
_Reason = Annotated[OneSentence, StringConstraints(strip_whitespace=True, min_length=1)]


class NextState(Decision):
    """What the model answers: the state to go to."""

    gives_reason: ClassVar[Rationale] = False
    next_state: _StateName


# Not derived from NextState, whose field would then come before the reason.
class ExplainedNextState(Decision):
    """The same with a reason, which comes first so that the choice can follow from it."""

    gives_reason: ClassVar[Rationale] = "before"
    rationale: _Reason
    next_state: _StateName

    @property
    def reasoning(self) -> str:
        """Why, in one sentence."""
        return self.rationale


class NextStateExplained(Decision):
    """The same with the reason after the choice, which it then explains."""

    gives_reason: ClassVar[Rationale] = "after"
    next_state: _StateName
    rationale: _Reason

    @property
    def reasoning(self) -> str:
        """Why, in one sentence."""
        return self.rationale


_BY_RATIONALE: Mapping[Rationale, type[Decision]] = {
    "before": ExplainedNextState,
    "after": NextStateExplained,
    False: NextState,
}


def next_state_type(rationale: Rationale) -> type[Decision]:
    """Return the reply's class, by where the model gives its reason."""
    return _BY_RATIONALE[rationale]


class Reasoner:
    """Lets a language model choose among an agent's legal moves.

    It works by itself, or in a seat of a run: ``players={"reasoner": Reasoner(client)}``. The run
    then decides whether the model gives a reason.

    Args:
        client: the model.
        seed: of the order of the options in the prompt; None keeps the given order.

    Attributes:
        counts: decisions of this reasoner so far by status. A run's are in ``to_frame()``.
    """

    def __init__(
        self,
        client: LLMClient,
        *,
        seed: int | None = None,
    ) -> None:
        self.llm_client: LLMClient = checked_client(client, "client")
        self.seed = None if seed is None else whole_number("seed", seed, least=0, most=2**64)
        self.counts: Counter[Status] = Counter()

    async def decide(
        self,
        agent: SocialAgent | Sequence[MoveQuestion],
        current_state: AgentState | None = None,
        trigger: str = "",
        options: Sequence[AgentState] = (),
        context: Any = None,
    ) -> Any:
        """Return the state that an agent goes to; for several questions, asked at once, a list.

        If an answer stays invalid, is stopped because the model repeats itself, or does not come in
        time, the first option is used, with a WARNING.

        Args:
            agent: the agent that decides; or, as the only argument, a sequence of ``MoveQuestion``.
            current_state: the agent's state.
            trigger: the event.
            options: the legal states.
            context: what the move is about, such as a ``Post``.

        Raises:
            ConfigError: there are no options, or a value is of the wrong kind.
            LLMFailureException: the model cannot be reached, or refuses the request.
        """
        if isinstance(agent, Sequence):
            right = "a SocialAgent, or a list of MoveQuestions"
            questions = items_of("agent", agent, MoveQuestion, right)
            return await gather_all([self._decided(question) for question in questions])
        instance_of("agent", agent, SocialAgent, "a SocialAgent")
        state = agent.state if current_state is None else current_state
        return await self._decided(
            MoveQuestion(
                agent,
                state,
                trigger,
                options,
                context,
            )
        )

    async def __call__(self, question: Question) -> Any:
        """Answer as a player of a run; the run decides what is used without an answer."""
        return await self._asked(question.values["move"], question.reply)

    async def _decided(self, question: MoveQuestion) -> AgentState:
        try:
            decision = await self._asked(question, NextState)
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            # The first as given, not as shown, so that a fallback does not depend on shuffling.
            chosen = question.options[0]
            name = question.agent.name
            log_event(
                logger,
                logging.WARNING,
                "REASONER_FALLBACK",
                words=f"{name} takes the first option, {chosen}: {failure}",
                agent=name,
                turn=question.turn,
                chosen=chosen,
                reason=failure.reason,
            )
            self.counts["fallback"] += 1
            return chosen
        # A decision made by hand, such as one of a test's client, has no call.
        status: Status = "ok"
        if decision.call is not None:
            status = decision.call.status
        self.counts[status] += 1
        return AgentState(decision.next_state)

    async def _asked(
        self,
        question: MoveQuestion,
        reply: type[Any],
    ) -> Any:
        """Return the model's reply."""
        options = question.ordered(self.seed)
        return await self.llm_client.call_with_retry(
            prompt=move_prompt(
                question,
                options,
                Prompt.load("reasoner"),
                # By the reply's class, since a reasoner by itself has no run.
                reply.gives_reason,
            ),
            response_model=reply,
            # In the prompt's order, since some servers try the values of an enum in order.
            choices={"next_state": tuple(map(str, options))},
            # Checked here too, since not every server enforces an enum, nor do scripted replies.
            check=lambda decision: _fault(decision.next_state, options),
            site=CallSite(
                component="reasoner",
                agent=question.agent.name,
                turn=question.turn,
            ),
        )


def move_prompt(
    question: MoveQuestion,
    options: Sequence[AgentState],
    prompt: Prompt,
    rationale: Rationale,
) -> RenderedPrompt:
    """Return the prompt for a decision.

    Args:
        question: the move to decide.
        options: the legal states, in the order in which the model reads them.
        prompt: has the slots of the shipped ``reasoner``, which has the contract's order, or of
            ``social_reasoner``, which begins with the part that all users share.
        rationale: where the answer gives a reason.
    """
    agent = question.agent
    # The contract's form, without a reason.
    answer_form = '{"next_state": "<state_value>"}'
    if rationale == "before":
        answer_form = '{"rationale": "<one sentence>", "next_state": "<state_value>"}'
    elif rationale == "after":
        answer_form = '{"next_state": "<state_value>", "rationale": "<one sentence>"}'
    option_lines = [f"- {option.value}: {STATE_DESCRIPTIONS[option]}" for option in options]
    return prompt.render(
        agent_name=agent.name,
        agent_interests=", ".join(agent.interests),
        agent_personality=agent.personality,
        current_state=question.current_state.value,
        trigger=question.trigger,
        context=format_context(question.context),
        options="\n".join(option_lines),
        answer_form=answer_form,
    )


def build_reasoner_prompt(
    agent_name: str,
    agent_interests: Sequence[str],
    agent_personality: str,
    current_state: AgentState,
    trigger: str,
    options: Sequence[AgentState],
    context: Any,
) -> RenderedPrompt:
    """Return the prompt for a decision. Its wording is the reasoner contract's.

    Args:
        agent_name: the agent that decides.
        agent_interests: its topics.
        agent_personality: its personality, a sentence or two.
        current_state: its state.
        trigger: the event.
        options: the legal states, in the order in which the model reads them.
        context: what the decision is about; see ``format_context``.
    """
    agent = SocialAgent(
        text_argument("agent_name", agent_name),
        items_of("agent_interests", agent_interests, str, "a list of topics"),
        text_argument("agent_personality", agent_personality),
    )
    question = MoveQuestion(
        agent,
        current_state,
        trigger,
        options,
        context,
    )
    return move_prompt(
        question,
        question.options,
        Prompt.load("reasoner"),
        False,
    )


def format_context(context: Any) -> str:
    """Return a decision's context for the prompt; empty for None.

    A post is quoted as JSON, so that its text cannot look like a part of the prompt.
    """
    if context is None:
        return ""
    if not isinstance(context, Post):
        return str(context)
    words = f"You see a {_KIND_WORDS[context.kind]} by {context.author}"
    if context.topics:
        words += f" (about {', '.join(context.topics)})"
    # Without escapes such as \u00e9, which take more tokens and are harder to read.
    quoted = json.dumps(context.text, ensure_ascii=False)
    return f"{words}:\n{quoted}"


_KIND_WORDS: dict[PostKind, str] = {
    "original": "post",
    "reply": "reply",
    "reshare": "reshared post",
}


def parse_reasoner_response(
    response_text: str,
    options: Sequence[AgentState],
) -> AgentState:
    """Return the option that a reply names.

    Raises:
        ValueError: the reply is not a JSON object with ``next_state``, or names another state.
    """
    states = items_of("options", options, AgentState, "a list of AgentStates")
    try:
        reply = NextState.model_validate_json(response_text)
    except ValidationError as error:
        raise ValueError(f"Failed to parse Reasoner response: {faults(error)}") from error
    if reply.next_state not in states:
        raise ValueError(_not_an_option(reply.next_state, states))
    return AgentState(reply.next_state)


def _not_an_option(
    value: str,
    options: Sequence[AgentState],
) -> str:
    # The contract's words, followed by the options.
    return f"Invalid state: {value}; the options are {', '.join(options)}"


def _fault(
    value: str,
    options: Sequence[AgentState],
) -> str | None:
    """Return the complaint about a reply's state; None if it is one of the options."""
    if value in options:
        return None
    return _not_an_option(value, options)


class _Appeal(NamedTuple):
    """The appeal of a state to a user.

    Attributes:
        alone: the utility of the state by itself.
        by_match: what a full match of the post with the user's interests adds to it.
    """

    alone: float
    by_match: float

    def weight(self, match: float) -> float:
        """Return the weight of the state in the draw, by the match, 0 to 1."""
        return math.exp(self.alone + self.by_match * match)


# Assumed, not estimated: passive reading is most common, liking is cheaper than replying, and
# replying is cheaper than resharing.
_APPEAL: dict[AgentState, _Appeal] = {
    AgentState.SCROLLING: _Appeal(1.0, 0.0),
    AgentState.RESTING: _Appeal(-1.0, 0.0),
    AgentState.IDLE: _Appeal(-1.0, 0.0),
    AgentState.EVALUATING: _Appeal(0.0, 1.0),
    AgentState.ENGAGING_LIKE: _Appeal(0.0, 1.5),
    AgentState.ENGAGING_REPLY: _Appeal(-1.0, 1.5),
    AgentState.ENGAGING_RESHARE: _Appeal(-1.5, 2.0),
    AgentState.COMPOSING: _Appeal(-1.5, 1.0),
}


def draw(*place: object) -> float:
    """Return a number from 0 to 1, the same for the same place in every process."""
    # A digest, since hash() differs in each process.
    text = "/".join(map(str, place))
    digest = blake2b(text.encode(), digest_size=7).digest()
    # 7 bytes have more than the 53 bits of a float, so that the largest may be rounded up to 1.
    return int.from_bytes(digest) / 2**56
