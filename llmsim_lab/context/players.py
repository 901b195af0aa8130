"""Who plays the agents of a crisis: a language model, a fixed script, or a rule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from llmsim_lab.calls import CallSite
from llmsim_lab.context.crisis_state import CrisisAction
from llmsim_lab.context.reply import AgentReply, reply_model
from llmsim_lab.errors import FailureReason, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import LOOKING_UP, LooksUp, chain_of
from llmsim_lab.logs import log_event
from llmsim_lab.models import LLMReasoningChain

__all__ = [
    "FORGIVEN",
    "CrisisAgent",
    "Deed",
    "LLMCrisisAgent",
    "RuleCrisisAgent",
    "ScriptedCrisisAgent",
]

logger = logging.getLogger(__name__)

FORGIVEN: tuple[FailureReason, ...] = ("invalid_response", "generation_stopped", "timeout")
"""Failures of one agent's call that do not stop the step: the agent says nothing, loudly."""


class Deed(NamedTuple):
    """What an agent did in a step, and why."""

    action: CrisisAction
    chain: LLMReasoningChain


class CrisisAgent(Protocol):
    """The agents' role; what plays one may be anybody's own class."""

    @property
    def name(self) -> str:
        """Whom it plays."""
        ...

    async def respond(self, prompt: str, *, step_number: int) -> Deed:
        """Answer a prompt.

        Args:
            prompt: what the context builder made for this agent.
            step_number: the number of the step.
        """
        ...


class LLMCrisisAgent:
    """An agent that asks a language model.

    Args:
        name: whom it plays.
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

    async def respond(self, prompt: str, *, step_number: int) -> Deed:
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
        looking = self.lookup is not None
        try:
            if self.lookup is not None:
                prompt = await self.lookup.look_up(prompt, self.llm_client, site)
            looking = False
            reply = await self.llm_client.call_with_retry(
                prompt=prompt,
                response_model=self.reply_model,
                check=self.reply_model.problem,
                site=site,
            )
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            return self._silence(failure, site, LOOKING_UP if looking else "")
        chain = chain_of(reply, site, logger=logger, prompt=prompt)
        return Deed(CrisisAction(self.name, reply.public, chain.status, reply.parts), chain)

    def _silence(self, failure: LLMFailureException, site: CallSite, at: str) -> Deed:
        log_event(
            logger,
            logging.WARNING,
            "AGENT_SAID_NOTHING",
            agent=self.name,
            turn=site.turn,
            reason=failure.reason,
            detail=f"{at}{failure.detail}",
        )
        chain = LLMReasoningChain(
            component="agent",
            agent=self.name,
            turn=site.turn or 0,
            reasoning=f"said nothing: {at}{failure}",
            confidence=None,
            status="failed",
            call=failure.call,
        )
        return Deed(CrisisAction(self.name, "", "failed"), chain)


class ScriptedCrisisAgent:
    """An agent with set lines: one a step, then silence.

    Args:
        name: whom it plays.
        lines: what it says in step 1, 2, …
    """

    def __init__(self, name: str, lines: Sequence[str]) -> None:
        self.name = name
        self.lines = tuple(lines)

    async def respond(self, prompt: str, *, step_number: int) -> Deed:
        """Say the step's line."""
        del prompt
        there = 1 <= step_number <= len(self.lines)
        words = self.lines[step_number - 1].strip() if there else ""
        why = f"line {step_number} of its script" if there else "its script has ended"
        return _by_rule(self.name, words, why, step_number)


Rule = Callable[[str, str, int], str]
"""From an agent's name, its prompt and the step's number to what it says."""


class RuleCrisisAgent:
    """An agent that follows a rule; the usual one keeps its course, whatever happens.

    Args:
        name: whom it plays.
        rule: a function of name, prompt and step number that returns what the agent says. It must
            return the same for the same arguments.
    """

    def __init__(self, name: str, rule: Rule | None = None) -> None:
        self.name = name
        self.rule = rule or _keep_the_course

    async def respond(self, prompt: str, *, step_number: int) -> Deed:
        """Say what the rule says."""
        words = self.rule(self.name, prompt, step_number).strip()
        return _by_rule(self.name, words, "a rule", step_number)


def _keep_the_course(name: str, prompt: str, step_number: int) -> str:
    """Return the baseline's words: nothing new."""
    del name, prompt, step_number
    return "We keep our course and change nothing."


def _by_rule(name: str, words: str, why: str, step_number: int) -> Deed:
    """Return what somebody who is no model did; a rule is as sure as can be."""
    chain = LLMReasoningChain(component="agent", agent=name, turn=step_number, reasoning=why)
    return Deed(CrisisAction(name, words), chain)
