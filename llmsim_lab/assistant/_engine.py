"""The decision engine: one message in, one decision out, tools run in between."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from typing import Any, Literal

from llmsim_lab._util.text import log_event
from llmsim_lab.assistant import _answers as answers
from llmsim_lab.assistant._adapter import as_llm_error
from llmsim_lab.assistant._decision_log import DecisionEntry, DecisionOutcome
from llmsim_lab.assistant._recorded_tools import recorded
from llmsim_lab.assistant._toolbox import Toolbox, failed_result, result_text
from llmsim_lab.assistant._types import (
    AgentDecision,
    AgentEngineConfig,
    DecisionContext,
    DecisionLogger,
    FunctionCall,
    LLMAdapter,
    LLMError,
    LLMMessage,
    LLMResponse,
    PendingAction,
    Said,
    ToolCall,
    ToolExecutor,
    ToolResult,
)
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._scope import time_limit

logger = logging.getLogger(__name__)

_GRACE_S = 5.0
"""The shared client keeps the time limit itself. Other adapters are cancelled a little later, since
a call that is cancelled from outside leaves nothing on a tape."""

_WORDS: dict[str, Literal["yes", "no"]] = {
    **dict.fromkeys(("yes", "ok", "okay", "confirm"), "yes"),
    **dict.fromkeys(("no", "cancel", "stop"), "no"),
    **dict.fromkeys(("ja", "bestätigen", "oui", "confirmer"), "yes"),
    **dict.fromkeys(("nein", "abbrechen", "non", "annuler"), "no"),
    **dict.fromkeys(("是", "是的", "好", "好的", "确认"), "yes"),
    **dict.fromkeys(("不", "不是", "不要", "否", "取消"), "no"),
}
# Without a question mark: "yes?" is not a yes.
_AROUND = " \t\r\n.,!'\"*\u3002\uff01\uff0c\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"


class LLMAgentEngine:
    """Decides what to do about a message: answer, run tools, ask, or have the user confirm.

    Args:
        llm_adapter: talks to the model.
        tool_executor: runs the tools.
        constitution: the model's system prompt; ``load_constitution()`` has the shipped one.
        max_iterations: most model calls for one message, where ``config`` does not say it.
        config: all settings.
        decision_log: logs decisions and tool calls.

    Raises:
        ConfigError: the constitution is empty.

    Example:
        >>> engine = LLMAgentEngine(OllamaAdapter(client), tools, load_constitution())
        >>> decision = await engine.process_message(
        ...     DecisionContext(user_id="ann", message="Add milk", conversation_id="1")
        ... )
    """

    def __init__(
        self,
        llm_adapter: LLMAdapter,
        tool_executor: ToolExecutor,
        constitution: str,
        max_iterations: int = 5,
        *,
        config: AgentEngineConfig | None = None,
        decision_log: DecisionLogger | None = None,
    ) -> None:
        if not constitution.strip():
            raise ConfigError("the constitution is empty; load_constitution() has the shipped one")
        self.config = config or AgentEngineConfig(max_iterations=max_iterations)
        self.llm_adapter = llm_adapter
        self.tool_executor = recorded(tool_executor, self.config.timeout_seconds)
        self.constitution = constitution
        self.decision_log = decision_log
        self._confirmed: set[tuple[str, str, str]] = set()

    async def process_message(self, context: DecisionContext) -> AgentDecision:
        """Decide about a message.

        A failure of the model or of a tool is an answer to the user, not an exception. The
        decision also has the tools that ran before a failure.

        Args:
            context: the message, who wrote it, what was said before, what waits for a yes.

        Raises:
            TapeError: the message is part of a replay, and its calls are not on the tape.
            ConfigError: the model's client or the tools are not set up right.
            DataError: the decision log cannot be written to, before anything was done.
        """
        entry = DecisionEntry(self.decision_log, context)
        await entry.start()
        try:
            outcome = await self._decide(context, entry)
        except BaseException as error:  # a message may be stopped halfway
            await entry.fail(error)
            raise
        await entry.finish(outcome)
        return outcome.decision

    async def __call__(self, question: Any) -> Said:
        """Answer the message of a conversation in which this engine has the assistant's seat."""
        seated = copy.copy(self)
        seated._confirmed = set()  # the conversation's state says what waits, in a replay as well
        context = context_of(question.run, question.state)
        return Said.by(await seated.process_message(context))

    async def _decide(self, context: DecisionContext, entry: DecisionEntry) -> DecisionOutcome:
        # Yes and no are read here, without a model: a deletion must not depend on how one samples.
        pending, answer = context.pending_confirmation, yes_or_no(context.message)
        if pending is not None and not pending.belongs_to(context):
            log_event(logger, logging.WARNING, "confirmation_ignored", user=context.user_id)
            if answer is not None:
                return answers.outcome("REFUSAL:NOT_ASKED", answers.NOT_ASKED)
            pending = None
        if pending is not None and answer is None:
            unclear = "I did not take that for a yes or a no. "
            return answers.wants_yes(
                pending, category="AMBIGUITY:CONFIRMATION_UNCLEAR", before=unclear
            )
        if pending is not None and answer == "no":
            text = f"All right, I will not {answers.words_of(pending)}."
            return answers.outcome("SUCCESS:CANCELLED", text)
        try:
            toolbox = await self.tool_executor.toolbox(self.llm_adapter, self.config.confirm)
            if pending is not None:
                return await self._confirm(pending, context, toolbox, entry)
            return await self._converse(context, toolbox, entry)
        except Exception as error:  # noqa: BLE001 - users' adapters raise anything
            fault = as_llm_error(error)
            log_event(
                logger,
                logging.WARNING,
                "assistant_failure",
                decision_id=entry.decision_id,
                code=fault.code,
                retry_after=fault.retry_after,
                detail=fault.message,
            )
            # Where nothing ran, a yes is not used up: the action still waits.
            return answers.failed(fault, entry.calls, None if entry.calls else pending)

    async def _confirm(
        self,
        pending: PendingAction,
        context: DecisionContext,
        toolbox: Toolbox,
        entry: DecisionEntry,
    ) -> DecisionOutcome:
        """Make the call that the user has said yes to, once."""
        words = answers.words_of(pending)
        checked = toolbox.check(FunctionCall(pending.tool_name, pending.parameters))
        if isinstance(checked, ToolResult):
            text = f"I can no longer {words}. Please ask me again."
            return answers.outcome(f"ERROR:{checked.error_code}", text)
        # An id alone may be another user's too, where a program makes its own.
        which = pending.user_id, pending.conversation_id, pending.call_id
        if which in self._confirmed:
            text = f"Your yes was taken before; I do not {words} twice."
            return answers.outcome("REFUSAL:CONFIRMED_BEFORE", text)
        self._confirmed.add(which)
        await self._run(pending.tool_name, checked, context, entry)
        return answers.confirmed(pending, entry.calls[-1])

    async def _converse(
        self, context: DecisionContext, toolbox: Toolbox, entry: DecisionEntry
    ) -> DecisionOutcome:
        """Ask the model and run what it wants, until there is a decision.

        Raises:
            Exception: whatever the adapter raises.
        """
        count = self.config.include_history_messages
        history = context.message_history[-count:] if count else []  # [-0:] would be all of it
        messages = [  # what never changes comes first, for the prefix cache
            LLMMessage("system", self.constitution),
            *(LLMMessage(message.role, message.content) for message in history),
            LLMMessage("user", context.message),
        ]
        for iteration in range(1, self.config.max_iterations + 1):
            response = await self._ask(messages, toolbox)
            calls = tuple(response.function_calls or ())
            if not calls:
                names = [tool.name for tool in toolbox.declarations]
                text = answers.for_user(response.content or "", names)
                if not text:
                    raise LLMError("the model answered with nothing", "INVALID_RESPONSE")
                kind = getattr(response, "kind", None)  # a user's own adapter may not have it
                return answers.final_text(text, entry.calls, kind)
            messages.append(LLMMessage("assistant", response.content or "", calls))
            is_last = iteration == self.config.max_iterations
            for place, call in enumerate(calls, 1):
                result = toolbox.check(call)
                if place > (most := self.config.max_calls):
                    told = f"only the first {most} calls of an answer are made"
                    result = failed_result(told, "TOO_MANY_CALLS")
                if not isinstance(result, ToolResult) and toolbox.needs_yes(call.name):
                    pending = PendingAction(
                        tool_name=call.name,
                        parameters=result,
                        description=answers.described(call.name, result),
                        user_id=context.user_id,
                        conversation_id=context.conversation_id,
                    )
                    left = len(calls) - place
                    steps = "One more step has" if left == 1 else f"{left} more steps have"
                    more = f" {steps} not been done; please ask again afterwards." if left else ""
                    return answers.wants_yes(pending, entry.calls, after=more)
                # No model call is left to read results, but a question takes none.
                if not isinstance(result, ToolResult) and not is_last:
                    result = await self._run(call.name, result, context, entry)
                if isinstance(result, ToolResult):
                    text = result_text(result, max_chars=self.config.max_result_chars)
                    messages.append(LLMMessage("tool", text, tool_name=call.name))
        return answers.outcome("ERROR:TOO_MANY_STEPS", answers.TOO_COMPLEX, entry.calls)

    async def _ask(self, messages: list[LLMMessage], toolbox: Toolbox) -> LLMResponse:
        limit = self.config.timeout_seconds
        with time_limit(limit):
            async with asyncio.timeout(limit + min(limit, _GRACE_S)):
                response = await self.llm_adapter.generate(
                    tuple(messages),
                    toolbox.declarations,
                    temperature=self.config.temperature,
                    max_tokens=self.config.max_tokens,
                )
        if isinstance(response.error, LLMError):
            raise response.error
        if response.error:
            raise LLMError(str(response.error))
        return response

    async def _run(
        self, name: str, parameters: dict[str, Any], context: DecisionContext, entry: DecisionEntry
    ) -> ToolResult:
        """Run a tool for the context's user; list the call and log it."""
        began = time.perf_counter()
        result = await self.tool_executor.execute(name, parameters, context.user_id)
        call = ToolCall(
            tool_name=name,
            parameters=parameters,
            result=result,
            duration_ms=(time.perf_counter() - began) * 1000,
        )
        await entry.tool_ran(call, result)
        return result

    def __repr__(self) -> str:
        executor = self.tool_executor.executor
        return f"<{type(self).__name__} on {self.llm_adapter!r}, tools by {executor!r}>"


# --- confirmations --------------------------------------------------------------------------------


def context_of(config: Any, state: Any) -> DecisionContext:
    """Return the message in a conversation's inbox as an engine is given it.

    Args:
        config: the conversation's.
        state: its state.
    """
    return DecisionContext(
        user_id=config.user_id,
        message=state.inbox,
        conversation_id=config.name,
        message_history=list(state.said),
        pending_confirmation=state.pending,
    )


def yes_or_no(message: str) -> Literal["yes", "no"] | None:
    """Return the answer to "Shall I …?" that a message is, or None if it is neither.

    An answer is one of a few words in English, German, French or Chinese and nothing else; case
    and the marks around it do not matter. With a question mark it is not an answer.
    """
    return _WORDS.get(message.strip(_AROUND).casefold())
