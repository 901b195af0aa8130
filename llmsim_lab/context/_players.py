"""Who plays the agents of a crisis (a language model, a script or a rule), and what they answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

from pydantic import Field, create_model

from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import FORGIVEN, LooksUp, chain_of, chain_of_failure
from llmsim_lab.types import CallSite, Decision, LLMReasoningChain, Status

logger = logging.getLogger(__name__)

PRIVATE = "ASSESSMENT"
"""The part that is the agent's own view: why it acts, which the others do not read."""

_LABEL = re.compile(r"\s*([^:]{1,60}):\s*(.*)", re.DOTALL)


class AgentReply(Decision):
    """An agent's answer; ``reply_model`` derives one with a field for each part asked for.

    Attributes:
        labels: the parts' names by field, in the order asked for.
    """

    labels: ClassVar[dict[str, str]] = {}

    @property
    def parts(self) -> dict[str, str]:
        """The words under each label, without spaces around them."""
        return {label: getattr(self, field).strip() for field, label in self.labels.items()}

    @property
    def public(self) -> str:
        """What the others read: all but the assessment, each part under its label."""
        parts = self.parts
        # A format that asks for an assessment only: then that is public.
        public = {label: text for label, text in parts.items() if label != PRIVATE} or parts
        return "\n".join(f"{label}: {text}" for label, text in public.items() if text)

    @property
    def reasoning(self) -> str:
        """The assessment; where none was asked for, the whole answer."""
        return self.parts.get(PRIVATE) or self.public

    confidence: ClassVar[None] = None
    """Not asked for."""

    def problem(self) -> str | None:
        """Return what is wrong with the answer, or None: some of it must be public."""
        if self.public:
            return None
        wanted = [field for field, label in self.labels.items() if label != PRIVATE]
        return f"it says nothing in {' or '.join(wanted or self.labels)}"


# Cached, since clients cache schema and validator by class: a class made for each call would cost
# more than the prompt.
@lru_cache(maxsize=64)
def reply_model(response_format: tuple[str, ...]) -> type[AgentReply]:
    """Return the model of an answer, for ``LLMClient.call_with_retry``; one for each format.

    Args:
        response_format: a briefing's, such as ``ACTIONS: What you do``. An empty one asks for one
            text.

    Raises:
        ConfigError: two parts have the same label.
    """
    labels: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for place, line in enumerate(response_format or ("RESPONSE: What you say and do",), 1):
        found = _LABEL.fullmatch(line)
        label, what = (found[1].strip(), found[2]) if found else (f"PART {place}", line)
        name = re.sub(r"\W+", "_", label.lower()).strip("_") or f"part_{place}"
        # A label such as "Copy" or "Parts" would hide what every reply has.
        if name[0].isdigit() or hasattr(AgentReply, name):
            name = f"part_{name}"
        if name in labels:
            raise ConfigError(f"response_format: two parts are called {label!r}; rename one")
        # A label with other characters than letters and digits is not an identifier, so the field
        # has a name made of it, and the class keeps the label.
        labels[name] = label
        fields[name] = (Annotated[str, Field(description=what.strip() or label)], ...)
    model: type[AgentReply] = create_model("AgentReply", __base__=AgentReply, **fields)
    model.labels = labels
    return model


@dataclass(frozen=True, slots=True)
class CrisisAction:
    """What an agent did in a turn.

    Attributes:
        agent_name: who.
        action_string: what the others read.
        status: how the answer came about; ``failed`` where the model gave none, so that the agent
            said nothing.
        parts: the whole answer, by the labels of the response format.
    """

    agent_name: str
    action_string: str
    status: Status = "ok"
    parts: dict[str, str] = field(default_factory=dict)


class CrisisDecision(NamedTuple):
    """What an agent did in a turn, and why."""

    action: CrisisAction
    chain: LLMReasoningChain


class CrisisAgent(Protocol):
    """What plays an agent; a class of your own may be one."""

    @property
    def name(self) -> str:
        """The agent that it plays."""
        ...

    async def respond(self, prompt: str, *, step_number: int) -> CrisisDecision:
        """Answer a prompt.

        Args:
            prompt: what the context builder made for this agent.
            step_number: the turn's number.
        """
        ...


class LLMCrisisAgent:
    """An agent that asks a language model.

    Args:
        name: the agent that it plays.
        llm_client: the model.
        response_format: the parts of an answer, as the scenario's briefing has them.
        lookup: looks things up before each answer, with tools say; what it finds is added to the
            prompt.
    """

    def __init__(
        self,
        name: str,
        llm_client: LLMClient,
        *,
        response_format: Sequence[str] = (),
        lookup: LooksUp | None = None,
    ) -> None:
        self.name = name
        self.llm_client = llm_client
        self.lookup = lookup
        self.reply_model: type[AgentReply] = reply_model(tuple(response_format))

    async def respond(self, prompt: str, *, step_number: int) -> CrisisDecision:
        """Ask the model.

        An answer that stays invalid after the one retry, is stopped twice because the model repeats
        itself, or does not come in time, makes the agent say nothing, with a WARNING and status
        ``failed``. So does one to the lookup's own questions before: the agent is then not asked
        what it does, and the WARNING says so.

        Raises:
            LLMFailureException: the model cannot be reached, or refuses the request.
            LabError: the lookup's tools cannot be had; of ``ToolLookup`` it is an ``LLMError`` or a
                ``ToolServerError``.
        """
        site = CallSite(component="agent", agent=self.name, turn=step_number)
        # For the WARNING: whether it was a question of the lookup that failed.
        looking_up = self.lookup is not None
        try:
            if self.lookup is not None:
                prompt = await self.lookup.look_up(prompt, self.llm_client, site)
            looking_up = False
            reply = await self.llm_client.call_with_retry(
                prompt=prompt,
                response_model=self.reply_model,
                check=self.reply_model.problem,
                site=site,
            )
        except LLMFailureException as failure:
            # Without a connection no agent would answer: that stops the run, not one agent.
            if failure.reason not in FORGIVEN:
                raise
            chain = chain_of_failure(
                failure,
                site,
                logger=logger,
                event="AGENT_SAID_NOTHING",
                status="failed",
                instead="said nothing",
                looking_up=looking_up,
            )
            return CrisisDecision(CrisisAction(self.name, "", "failed"), chain)
        chain = chain_of(reply, site, logger=logger, prompt=prompt)
        return CrisisDecision(
            CrisisAction(self.name, reply.public, chain.status, reply.parts), chain
        )


@dataclass(eq=False)
class ScriptedCrisisAgent:
    """An agent with set lines: one a turn, then silence.

    Args:
        name: the agent that it plays.
        lines: what it says in turn 1, 2, …
    """

    name: str
    lines: Sequence[str]

    async def respond(self, prompt: str, *, step_number: int) -> CrisisDecision:
        """Return the turn's line."""
        has_line = 1 <= step_number <= len(self.lines)
        words = self.lines[step_number - 1].strip() if has_line else ""
        why = f"line {step_number} of its script" if has_line else "its script has ended"
        return _by_rule(self.name, words, why, step_number)


Rule = Callable[[str, str, int], str]
"""From an agent's name, its prompt and the turn's number to what it says."""


@dataclass(eq=False)
class RuleCrisisAgent:
    """An agent that follows a rule; the default keeps its course, whatever happens.

    Args:
        name: the agent that it plays.
        rule: a function of name, prompt and the turn's number that returns what the agent says. It
            must return the same for the same arguments.
    """

    name: str
    rule: Rule = lambda *_: "We keep our course and change nothing."

    async def respond(self, prompt: str, *, step_number: int) -> CrisisDecision:
        """Return what the rule says."""
        words = self.rule(self.name, prompt, step_number).strip()
        return _by_rule(self.name, words, "a rule", step_number)


def _by_rule(name: str, words: str, why: str, step_number: int) -> CrisisDecision:
    chain = LLMReasoningChain(component="agent", agent=name, turn=step_number, reasoning=why)
    return CrisisDecision(CrisisAction(name, words), chain)
