"""The work for one message: ask the model, run what it wants, until there is a decision."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from llmsim_lab.assistant import answers
from llmsim_lab.assistant.book import Book, Outcome
from llmsim_lab.assistant.errors import InvalidResponseError, LLMError
from llmsim_lab.assistant.guard import (
    as_llm_error,
    not_by_itself,
    result_text,
    run_tool,
    settle,
    told_of_too_many,
    yes_or_no,
)
from llmsim_lab.assistant.protocols import (
    FunctionCall,
    LLMAdapter,
    LLMMessage,
    LLMResponse,
    ToolExecutor,
)
from llmsim_lab.assistant.shown import for_user
from llmsim_lab.assistant.toolbox import BadCall, GoodCall, Toolbox
from llmsim_lab.assistant.types import (
    AgentEngineConfig,
    DecisionContext,
    PendingAction,
    ToolCall,
    ToolErrorCode,
    ToolResult,
)
from llmsim_lab.llm._scope import scope, time_limit
from llmsim_lab.logs import log_event

__all__ = ["Conversation", "answered"]

logger = logging.getLogger(__name__)

_GRACE_S, _GRACE_ON_TAPE_S = 0.25, 5.0
"""The shared client keeps to the limit by itself; other adapters are given up a little later, later
still on a tape, since what is given up from outside leaves nothing there."""
_BEFORE_ANYTHING: tuple[ToolErrorCode, ...] = ("INVALID_PARAMETERS", "NOT_FOUND", "TOOL_NOT_FOUND")
"""How tools fail that have not begun to do anything."""
_NOT_DONE = (
    "You report the work of {}, but no call of it has worked for this message, so nothing of it is "
    "done. If it is to be done, call the tool now; else answer again without reporting it."
)


def answered(pending: PendingAction, message: str) -> Outcome | None:
    """Return the outcome of a reply that runs nothing, a no or neither; None for a yes."""
    answer = yes_or_no(message)
    if answer is None:
        return answers.asked_again(pending)
    if answer == "yes":
        return None
    return answers.dropped(pending) if settle(pending) else answers.answered_before(pending)


class Conversation:
    """One message's way to a decision.

    Args:
        context: the message.
        adapter: talks to the model.
        executor: runs the tools.
        toolbox: which there are.
        constitution: the system prompt.
        config: limits.
        book: notes what is done.
        executed: takes the tools that ran, also where the conversation fails.
    """

    def __init__(
        self,
        context: DecisionContext,
        *,
        adapter: LLMAdapter,
        executor: ToolExecutor,
        toolbox: Toolbox,
        constitution: str,
        config: AgentEngineConfig,
        book: Book,
        executed: list[ToolCall],
    ) -> None:
        self._context = context
        self._adapter = adapter
        self._executor = executor
        self._toolbox = toolbox
        self._constitution = constitution
        self._config = config
        self._book = book
        self._executed = executed

    async def outcome(self) -> Outcome:
        """Come to a decision; a pending action counts as confirmed.

        Raises:
            Exception: whatever the adapter raises.
        """
        if (pending := self._context.pending_confirmation) is not None:
            return await self._confirmed(pending)
        messages = self._opening()
        objected, spare = False, None
        for iteration in range(1, self._config.max_iterations + 1):
            try:
                response = await self._ask(messages)
                calls = tuple(response.function_calls or ())
                text = "" if calls else self._shown(response.content)
            except Exception as error:
                if spare is None:
                    raise
                fault = as_llm_error(error)
                log_event(logger, logging.WARNING, "objection_unanswered", detail=fault.message)
                return spare
            is_last = iteration == self._config.max_iterations
            if not calls:
                kind = getattr(response, "kind", None)  # adapters of other makes may not have it
                unfounded = self._unfounded(getattr(response, "claims", ()))
                final = answers.said(text, self._executed, kind=kind, unfounded=unfounded)
                if not unfounded or is_last or objected:
                    return final
                objected, spare = True, final
                objection = _NOT_DONE.format(", ".join(unfounded))
                messages += LLMMessage("assistant", text), LLMMessage("user", objection)
                continue
            spare = None
            if is_last:
                calls = self._only_question(calls)
                if not calls:
                    break
            messages.append(LLMMessage("assistant", response.content or "", calls))
            question = await self._work_off(calls, messages)
            if question is not None:
                return question
        return answers.too_complex(self._executed)

    async def _confirmed(self, pending: PendingAction) -> Outcome:
        """Do what the user has said yes to."""
        checked = self._toolbox.check(FunctionCall(pending.tool_name, pending.parameters))
        if isinstance(checked, BadCall):
            return answers.gone(pending, checked)
        if not settle(pending):
            return answers.answered_before(pending)
        return answers.confirmed(pending, await self._run(checked))

    def _opening(self) -> list[LLMMessage]:
        """Return what the model is shown first; what never changes stands first."""
        count = self._config.include_history_messages
        history = self._context.message_history[-count:] if count else []
        return [
            LLMMessage("system", self._constitution),
            *(LLMMessage(message.role, message.content) for message in history),
            LLMMessage("user", self._context.message),
        ]

    async def _ask(self, messages: list[LLMMessage]) -> LLMResponse:
        limit = self._config.timeout_seconds
        grace = _GRACE_S if scope().recorder is None else _GRACE_ON_TAPE_S
        with time_limit(limit), not_by_itself("the model's adapter"):
            async with asyncio.timeout(limit + grace):
                response = await self._adapter.generate(
                    tuple(messages),
                    self._toolbox.declarations,
                    temperature=self._config.temperature,
                    max_tokens=self._config.max_tokens,
                )
        if isinstance(response.error, LLMError):
            raise response.error
        if response.error:
            raise LLMError(str(response.error))
        return response

    def _only_question(self, calls: tuple[FunctionCall, ...]) -> tuple[FunctionCall, ...]:
        """Return the calls from the first that is put to the user, which takes no model."""
        for place, call in enumerate(calls):
            checked = self._toolbox.check(call)
            if isinstance(checked, GoodCall) and self._toolbox.needs_yes(checked.name):
                return calls[place:]
        return ()

    async def _work_off(
        self, calls: tuple[FunctionCall, ...], messages: list[LLMMessage]
    ) -> Outcome | None:
        """Make calls in order and add what became of them; stops at one that needs a yes."""
        most = self._config.max_calls
        for place, call in enumerate(calls, 1):
            checked = self._toolbox.check(call)
            if place > most:
                told = told_of_too_many(most)
            elif isinstance(checked, BadCall):
                told = f"error {checked.code}: {checked.complaint}"
            elif self._toolbox.needs_yes(checked.name):
                left = len(calls) - place
                call_id = f"{self._book.decision_id}-{place}"
                return answers.wants_yes(checked, self._executed, call_id=call_id, left=left)
            else:
                result = (await self._run(checked)).result or ToolResult(success=False)
                told = result_text(result, max_chars=self._config.max_result_chars)
            messages.append(LLMMessage("tool", told, tool_name=checked.name))
        return None

    async def _run(self, call: GoodCall) -> ToolCall:
        """Run a tool for the context's user, and note it."""
        began = time.perf_counter()
        result = await run_tool(
            self._executor,
            call.name,
            call.parameters,
            self._context.user_id,
            timeout_s=self._config.timeout_seconds,
        )
        milliseconds = (time.perf_counter() - began) * 1000
        done = ToolCall(
            tool_name=call.name,
            parameters=call.parameters,
            result=result,
            duration_ms=milliseconds,
        )
        self._executed.append(done)
        await self._book.ran(done)
        return done

    def _unfounded(self, claims: Sequence[str] | None) -> list[str]:
        """Return the tools among those that a text reports of which no call can have worked."""
        if not self._config.check_claims:
            return []
        done = {call.tool_name for call in self._executed if _may_have_worked(call)}
        return [name for name in dict.fromkeys(claims or ()) if name not in done]

    def _shown(self, content: str | None) -> str:
        text = for_user(content or "", self._toolbox.names)
        if not text:
            raise InvalidResponseError("the model answered with nothing")
        return text


def _may_have_worked(call: ToolCall) -> bool:
    result = call.result
    return result is not None and (result.success or result.error_code not in _BEFORE_ANYTHING)
