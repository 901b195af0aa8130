"""Who chooses among an agent's legal moves: a language model, or a rule as a baseline for it.

An enum of the legal options limits the model's answer, so that an illegal move can only come from a
backend that ignores schemas. Options stand in an order drawn from the run's seed, since models
answer to the place where an option stands; in a run it begins at another place for each post and
turn, so that users of one post read one list. Measured with the reasoner contract's prompt and the
embedded model qwen2.5-coder-1.5b, 12 questions in all 6 rotations of their options: the one in
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

from llmsim_lab._util.text import faults, log_event
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import LLMFailureException
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
    """One move that is due: what ``Reasoner.decide`` is asked where there are several options.

    Attributes:
        agent: who moves.
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
        post = getattr(self.context, "id", None)
        return (
            self.turn,
            self.agent.name,
            self.trigger,
            post,
        )

    def ordered(self, seed: int | None) -> list[AgentState]:
        """Return the options, each once, as a model reads them; None leaves them as they are."""
        options = list(dict.fromkeys(self.options))
        if seed is None:
            return options
        # A string seed is hashed the same way in every process.
        place = "/".join(map(str, (seed, *self.place)))
        rng = random.Random(place)
        return rng.sample(options, len(options))

    def rotated(self, seed: int) -> list[AgentState]:
        """Return the options, each once, in the run's order, begun at a place drawn for the post.

        Users who see one post in a turn read one list, so that a server reads it once. Over posts
        and turns each option stands in each place equally often.

        Args:
            seed: of the run.
        """
        options = list(dict.fromkeys(self.options))
        # Of the seed alone: one order in the whole run, of which turns begin at other places.
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
        """Return the option that the rule draws: a logit on how well a post fits the interests."""
        # Without a post there is neither a good match nor a bad one.
        match = 0.5
        if isinstance(self.context, Post):
            match = interest_match(self.agent, self.context)
        # A logit, as the feed's choice is: chances go with the exponential of the utilities.
        weights = {option: _APPEAL[option].weight(match) for option in self.options}
        total = sum(weights.values())
        left = draw(seed, *self.place)
        for option, weight in weights.items():
            left -= weight / total
            if left < 0:
                return option
        return option  # the shares add up to a little less than 1


# Where no enum limits them, models write "Scrolling".
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
    """Return what a model is asked for where it gives its reason there."""
    return _BY_RATIONALE[rationale]


class Reasoner:
    """Lets a language model choose among an agent's legal moves.

    It works alone, and in a seat of a run: ``players={"reasoner": Reasoner(client)}``. The run then
    says whether the model gives a reason.

    Args:
        client: the model.
        seed: of the order in which options stand in the prompt; None leaves them as they are given.

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
        self.seed = seed
        self.counts: Counter[Status] = Counter()

    async def decide(
        self,
        agent: SocialAgent | Sequence[MoveQuestion],
        current_state: AgentState | None = None,
        trigger: str = "",
        options: Sequence[AgentState] = (),
        context: Any = None,
    ) -> Any:
        """Return the state that an agent goes to, or a list of those of questions, asked at once.

        Where an answer stays invalid, is stopped because the model repeats itself, or does not come
        in time, the first option is taken, with a WARNING.

        Args:
            agent: who decides; or a sequence of ``MoveQuestion``, and nothing else.
            current_state: what it is doing.
            trigger: the event.
            options: the legal states.
            context: what it is about, such as a ``Post``.

        Raises:
            ValueError: there are no options.
            LLMFailureException: the model cannot be reached, or refuses the request.
        """
        if isinstance(agent, Sequence):
            return await gather_all([self._decided(question) for question in agent])
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
        """Answer as a player of a run, which says what stands in where no answer comes."""
        return await self._asked(question.values["move"], question.reply)

    async def _decided(self, question: MoveQuestion) -> AgentState:
        try:
            decision = await self._asked(question, NextState)
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            # Not the one shown first: a fallback must not depend on how options were shuffled.
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
        # A decision made by hand, as a test's client returns, knows no call.
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
        """Return the model's answer, of the class that is asked for."""
        options = question.ordered(self.seed)
        return await self.llm_client.call_with_retry(
            prompt=move_prompt(
                question,
                options,
                Prompt.load("reasoner"),
                # What is asked for says where the reason stands: a reasoner alone has no run.
                reply.gives_reason,
            ),
            response_model=reply,
            # In the prompt's order: a server that goes through the enum must not have another.
            choices={"next_state": tuple(map(str, options))},
            # Not every server enforces an enum, and a scripted reply goes through none.
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
        question: what is to be decided.
        options: the legal states, in the order in which the model reads them.
        prompt: one with the slots of the shipped ``reasoner``, which has the contract's order, or
            ``social_reasoner``, which has what all users read first.
        rationale: where the answer gives a reason.
    """
    agent = question.agent
    # The contract's form, which has no reason.
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
        agent_name: who decides.
        agent_interests: its topics.
        agent_personality: how it is.
        current_state: what it is doing.
        trigger: the event.
        options: the legal states, in the order in which the model reads them.
        context: what it is about; see ``format_context``.
    """
    agent = SocialAgent(agent_name, agent_interests, agent_personality)
    question = MoveQuestion(
        agent,
        current_state,
        trigger,
        options,
        context,
    )
    return move_prompt(
        question,
        options,
        Prompt.load("reasoner"),
        False,
    )


def format_context(context: Any) -> str:
    """Return what a decision is about, as the model reads it; empty for None.

    A post is quoted as JSON, so that its text cannot pass for part of the prompt.
    """
    if context is None:
        return ""
    if not isinstance(context, Post):
        return str(context)
    words = f"You see a {_KIND_WORDS[context.kind]} by {context.author}"
    if context.topics:
        words += f" (about {', '.join(context.topics)})"
    # With letters as they are: escapes such as \u00e9 are more tokens, and worse to read.
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
    try:
        reply = NextState.model_validate_json(response_text)
    except ValidationError as error:
        raise ValueError(f"Failed to parse Reasoner response: {faults(error)}") from error
    if reply.next_state not in options:
        raise ValueError(_not_an_option(reply.next_state, options))
    return AgentState(reply.next_state)


def _not_an_option(
    value: str,
    options: Sequence[AgentState],
) -> str:
    # The contract's words, and what the model may choose instead.
    return f"Invalid state: {value}; the options are {', '.join(options)}"


def _fault(
    value: str,
    options: Sequence[AgentState],
) -> str | None:
    """Return what is wrong with the state that a reply names; None if it is one of the options."""
    if value in options:
        return None
    return _not_an_option(value, options)


class _Appeal(NamedTuple):
    """How much a state appeals to a user.

    Attributes:
        alone: its utility by itself.
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
    # Not ``hash``, which is salted anew in each process.
    text = "/".join(map(str, place))
    digest = blake2b(text.encode(), digest_size=7).digest()
    # 7 bytes, more than the 53 bits of a float; the largest of them may be rounded up to 1.
    return int.from_bytes(digest) / 2**56
