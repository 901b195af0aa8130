"""The decision engine: one message in, one decision out, tools run in between."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
import uuid
from dataclasses import dataclass
from typing import Any, Literal

from llmsim_lab._util.text import log_event
from llmsim_lab.assistant import _answers as answers
from llmsim_lab.assistant._adapter import as_llm_error
from llmsim_lab.assistant._decision_log import DecisionEntry, DecisionOutcome
from llmsim_lab.assistant._recorded_tools import recorded
from llmsim_lab.assistant._toolbox import (
    BadCall,
    GoodCall,
    KnownTools,
    Toolbox,
    beyond_limit_text,
    own_cancellation_fails,
    result_text,
    run_tool,
)
from llmsim_lab.assistant._types import (
    AgentDecision,
    AgentEngineConfig,
    DecisionContext,
    DecisionLogger,
    FunctionCall,
    InvalidResponseError,
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
from llmsim_lab.llm._scope import scope, time_limit

logger = logging.getLogger(__name__)

_DEFAULT_ITERATIONS = 5  # named, to tell an argument that was given from one that was not
_GRACE_S, _GRACE_ON_TAPE_S = 0.25, 5.0
"""The shared client keeps the time limit itself. Other adapters are cancelled a little later, and
later still on a tape, since a call that is cancelled from outside leaves nothing there."""

_OF_A_TRY = "@"
"""What stands in an action's id before what tells one try of its conversation from another."""

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
        max_iterations: most model calls for one message.
        config: all settings, ``max_iterations`` among them.
        decision_log: logs decisions and tool calls.

    Raises:
        ConfigError: the constitution is empty, or ``max_iterations`` is neither 5, the default,
            nor what ``config`` says.

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
        max_iterations: int = _DEFAULT_ITERATIONS,
        *,
        config: AgentEngineConfig | None = None,
        decision_log: DecisionLogger | None = None,
    ) -> None:
        if not constitution.strip():
            raise ConfigError("the constitution is empty; load_constitution() has the shipped one")
        if config is None:
            config = AgentEngineConfig(max_iterations=max_iterations)
        elif max_iterations not in (_DEFAULT_ITERATIONS, config.max_iterations):
            raise ConfigError(
                f"max_iterations={max_iterations} and config.max_iterations="
                f"{config.max_iterations} differ; give it in one place"
            )
        self.llm_adapter = llm_adapter
        self.tool_executor = tool_executor
        self.constitution = constitution
        self.config = config
        self.decision_log = decision_log
        self._tools = KnownTools(self.config.confirm)
        self._confirmed: set[tuple[str, str, str]] = set()

    async def process_message(self, context: DecisionContext) -> AgentDecision:
        """Decide about a message.

        A failure of the model or of a tool is an answer to the user, not an exception. The
        decision also has the tools that ran before a failure.

        Args:
            context: the message, who wrote it, what was said before, what waits for a yes.

        Raises:
            TapeError: the message is part of a replay, and its calls are not on the tape.
            ConfigError: the model's client is not set up right.
            DataError: the decision log cannot be written to, before anything was done.
        """
        entry = DecisionEntry(self.decision_log, context)
        await entry.start()
        try:
            outcome = await self._decide(context, entry)
        except (Exception, asyncio.CancelledError) as error:  # a message may be stopped halfway
            await entry.fail(error)
            raise
        await entry.finish(outcome)
        return outcome.decision

    async def __call__(self, question: Any) -> Said:
        """Answer the message of a conversation in which this engine has the assistant's seat."""
        seated = copy.copy(self)
        seated.tool_executor = recorded(self.tool_executor, self.config.timeout_seconds)
        context = context_of(question.run, question.state)
        return Said.by(await seated.process_message(context))

    async def _decide(self, context: DecisionContext, entry: DecisionEntry) -> DecisionOutcome:
        executed: list[ToolCall] = []
        pending = context.pending_confirmation
        if pending is not None and not pending.belongs_to(context):
            log_event(logger, logging.WARNING, "confirmation_ignored", user=context.user_id)
            if yes_or_no(context.message) is not None:
                return answers.nothing_asked()
            context, pending = context.model_copy(update={"pending_confirmation": None}), None
        # Yes and no are read here, without a model: a deletion must not depend on how one samples.
        if pending is not None and (answer := yes_or_no(context.message)) != "yes":
            if answer is None:
                return answers.asked_again(pending)
            return answers.dropped(pending)
        if pending is not None and _which(pending) in self._confirmed:
            return answers.done_before(pending)
        try:
            return await _Deciding(
                context=context,
                adapter=self.llm_adapter,
                executor=self.tool_executor,
                toolbox=await self._tools.now(self.tool_executor, self.llm_adapter),
                constitution=self.constitution,
                config=self.config,
                entry=entry,
                executed=executed,
                confirmed=self._confirmed,
            ).outcome()
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
            return answers.failed(fault, executed, None if executed else pending)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.llm_adapter!r}, tools by {self.tool_executor!r}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deciding:
    """One message on its way to a decision: ask the model, run what it wants, until there is one.

    Attributes:
        context: the message.
        adapter: talks to the model.
        executor: runs the tools.
        toolbox: the tools that exist now.
        constitution: the system prompt.
        config: limits.
        entry: logs what is done.
        executed: gets the calls that were made, also where this fails.
        confirmed: the pending actions that were run, by owner and id, which do not run again.
    """

    context: DecisionContext
    adapter: LLMAdapter
    executor: ToolExecutor
    toolbox: Toolbox
    constitution: str
    config: AgentEngineConfig
    entry: DecisionEntry
    executed: list[ToolCall]
    confirmed: set[tuple[str, str, str]]

    async def outcome(self) -> DecisionOutcome:
        """Return the decision; a pending action counts as confirmed.

        Raises:
            Exception: whatever the adapter raises.
        """
        if (pending := self.context.pending_confirmation) is not None:
            return await self._confirmed(pending)
        messages = self._opening()
        for iteration in range(1, self.config.max_iterations + 1):
            response = await self._ask(messages)
            calls = tuple(response.function_calls or ())
            if not calls:
                text = answers.for_user(response.content or "", self.toolbox.names)
                if not text:
                    raise InvalidResponseError("the model answered with nothing")
                kind = getattr(response, "kind", None)  # a user's own adapter may not have it
                return answers.final_text(text, self.executed, kind=kind)
            is_last = iteration == self.config.max_iterations
            if is_last:  # no model call is left to read results, but a question takes none
                calls = self._only_question(calls)
                if not calls:
                    break
            messages.append(LLMMessage("assistant", response.content or "", calls))
            question = await self._make_calls(calls, messages)
            if question is not None:
                return question
        return answers.too_complex(self.executed)

    async def _confirmed(self, pending: PendingAction) -> DecisionOutcome:
        """Make the call that the user has said yes to."""
        checked = self.toolbox.check(FunctionCall(pending.tool_name, pending.parameters))
        if isinstance(checked, BadCall):
            return answers.impossible(pending, checked)
        if _which(pending) in self.confirmed:  # by another yes, while the tools were listed
            return answers.done_before(pending)
        self.confirmed.add(_which(pending))
        await self._run(checked)
        return answers.confirmed(pending, self.executed[-1])

    def _opening(self) -> list[LLMMessage]:
        """Return the first messages; what never changes comes first, for the prefix cache."""
        count = self.config.include_history_messages
        history = self.context.message_history[-count:] if count else []  # [-0:] would be all of it
        return [
            LLMMessage("system", self.constitution),
            *(LLMMessage(message.role, message.content) for message in history),
            LLMMessage("user", self.context.message),
        ]

    async def _ask(self, messages: list[LLMMessage]) -> LLMResponse:
        limit = self.config.timeout_seconds
        grace = _GRACE_S if scope().recorder is None else _GRACE_ON_TAPE_S
        with time_limit(limit), own_cancellation_fails("the model's adapter"):
            async with asyncio.timeout(limit + grace):
                response = await self.adapter.generate(
                    tuple(messages),
                    self.toolbox.declarations,
                    temperature=self.config.temperature,
                    max_tokens=self.config.max_tokens,
                )
        if isinstance(response.error, LLMError):
            raise response.error
        if response.error:
            raise LLMError(str(response.error))
        return response

    def _only_question(self, calls: tuple[FunctionCall, ...]) -> tuple[FunctionCall, ...]:
        """Return the calls from the first on that the user is asked about."""
        for place, call in enumerate(calls):
            checked = self.toolbox.check(call)
            if isinstance(checked, GoodCall) and self.toolbox.needs_yes(checked.name):
                return calls[place:]
        return ()

    async def _make_calls(
        self, calls: tuple[FunctionCall, ...], messages: list[LLMMessage]
    ) -> DecisionOutcome | None:
        """Make calls in order and add their results; stop at one that needs a yes."""
        most = self.config.max_calls
        for place, call in enumerate(calls, 1):
            checked = self.toolbox.check(call)
            if place > most:
                text = beyond_limit_text(most)
            elif isinstance(checked, BadCall):
                text = f"error {checked.code}: {checked.complaint}"
            elif self.toolbox.needs_yes(checked.name):
                left = len(calls) - place
                call_id = f"{self.entry.decision_id}-{place}"
                return answers.wants_yes(
                    checked, self.executed, self.context, call_id=call_id, left=left
                )
            else:
                result = await self._run(checked)
                text = result_text(result, max_chars=self.config.max_result_chars)
            messages.append(LLMMessage("tool", text, tool_name=checked.name))
        return None

    async def _run(self, call: GoodCall) -> ToolResult:
        """Run a tool for the context's user; list the call and log it."""
        began = time.perf_counter()
        result = await run_tool(
            self.executor,
            call.name,
            call.parameters,
            self.context.user_id,
            timeout_s=self.config.timeout_seconds,
        )
        milliseconds = (time.perf_counter() - began) * 1000
        done = ToolCall(
            tool_name=call.name,
            parameters=call.parameters,
            result=result,
            duration_ms=milliseconds,
        )
        self.executed.append(done)
        await self.entry.tool_ran(done)
        return result


# --- confirmations --------------------------------------------------------------------------------


def context_of(config: Any, state: Any) -> DecisionContext:
    """Return the message in a conversation's inbox as an engine is given it.

    Args:
        config: the conversation's.
        state: its state.
    """
    pending = state.pending
    if pending is not None:
        # An engine runs an action once: it may serve several conversations, and a replay again.
        call_id = f"{pending.call_id}{_OF_A_TRY}{uuid.uuid4().hex}"
        pending = pending.model_copy(update={"call_id": call_id})
    return DecisionContext(
        user_id=config.user_id,
        message=state.inbox,
        conversation_id=config.name,
        message_history=list(state.said),
        pending_confirmation=pending,
    )


def asks_again(pending: PendingAction, asked: PendingAction) -> bool:
    """Return True if a decision asks about the action that its context had, as of that state."""
    return pending.call_id.startswith(f"{asked.call_id}{_OF_A_TRY}")


def _which(pending: PendingAction) -> tuple[str, str, str]:
    # An id alone may be another user's too, where a program makes its own.
    return pending.user_id, pending.conversation_id, pending.call_id


def yes_or_no(message: str) -> Literal["yes", "no"] | None:
    """Return the answer to "Shall I …?" that a message is, or None if it is neither.

    An answer is one of a few words in English, German, French or Chinese and nothing else; case
    and the marks around it do not matter. With a question mark it is not an answer.
    """
    return _WORDS.get(message.strip(_AROUND).casefold())
