"""The work for one message: ask the model, run what it wants, until there is a decision."""

from __future__ import annotations

import asyncio
import logging
import time

from llmsim_lab.assistant import answers
from llmsim_lab.assistant.book import Book, Outcome
from llmsim_lab.assistant.call_words import words_of
from llmsim_lab.assistant.claims import claims_change
from llmsim_lab.assistant.errors import InvalidResponseError, LLMError
from llmsim_lab.assistant.guard import (
    as_llm_error,
    not_by_itself,
    result_text,
    run_tool,
    told_of_too_many,
)
from llmsim_lab.assistant.protocols import (
    FunctionCall,
    LLMAdapter,
    LLMMessage,
    LLMResponse,
    ToolExecutor,
)
from llmsim_lab.assistant.questions import asks_to_confirm
from llmsim_lab.assistant.shown import for_user, in_words
from llmsim_lab.assistant.toolbox import BadCall, GoodCall, Toolbox
from llmsim_lab.assistant.types import (
    AgentEngineConfig,
    DecisionContext,
    PendingAction,
    ToolCall,
    ToolErrorCode,
    ToolResult,
)
from llmsim_lab.assistant.yes_no import yes_or_no
from llmsim_lab.llm.scope import scope, time_limit
from llmsim_lab.logs import log_event

__all__ = ["Conversation", "answered"]

logger = logging.getLogger(__name__)

_GRACE_S, _GRACE_ON_TAPE_S = 0.25, 5.0
"""The shared client keeps to the limit by itself; other adapters are given up a little later, later
still on a tape, since what is given up from outside leaves nothing there."""
_BEFORE_ANYTHING: tuple[ToolErrorCode, ...] = ("INVALID_PARAMETERS", "NOT_FOUND", "TOOL_NOT_FOUND")
"""How tools fail that have not begun to do anything."""
_NOTHING_RAN = (
    "No tool has changed anything, so nothing has been done. If something is to be done, call the "
    "tool for it now; else answer again without saying that it was."
)
_ASKED_ITSELF = (
    "Do not ask the user to confirm: to {}, call the tool for it now, and the user will be asked "
    "before anything is done."
)


def answered(pending: PendingAction, message: str) -> Outcome | None:
    """Return the outcome of a reply that runs nothing, a no or neither; None for a yes."""
    answer = yes_or_no(message, about=words_of(pending))
    if answer == "yes":
        return None
    return answers.dropped(pending) if answer == "no" else answers.asked_again(pending)


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
                objection = self._objection(text)
                final = self._final(text, objection)
                if objection is None or is_last or objected:
                    return final
                objected, spare = True, final
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

    def _objection(self, text: str) -> str | None:
        """Return what speaks against a text as an answer, to be told to the model, or None."""
        if not self._config.check_claims or any(map(self._may_have_changed, self._executed)):
            return None
        confirmed = [in_words(name) for name in self._toolbox.confirmed]
        if confirmed and asks_to_confirm(text, [words.split()[0] for words in confirmed]):
            return _ASKED_ITSELF.format(" or ".join(confirmed))
        if claims_change(text, looked=any(call.worked for call in self._executed)):
            return _NOTHING_RAN
        return None

    def _final(self, text: str, objection: str | None) -> Outcome:
        """Return the decision that a text is if the model is asked no more."""
        if objection == _NOTHING_RAN:
            return answers.unfounded(text, self._executed)
        return answers.said(text, self._executed)

    def _may_have_changed(self, call: ToolCall) -> bool:
        """Say whether a tool has changed something as far as one can tell, also where it failed."""
        if self._toolbox.only_looks(call.tool_name) or call.result is None:
            return False
        return call.result.success or call.result.error_code not in _BEFORE_ANYTHING

    def _shown(self, content: str | None) -> str:
        text = for_user(content or "", self._toolbox.names)
        if not text:
            raise InvalidResponseError("the model answered with nothing")
        return text
