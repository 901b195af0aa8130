"""The decision engine: one message in, one decision out, tools run in between."""

from __future__ import annotations

import asyncio
import copy
import logging
import re
import time
import uuid
from collections.abc import Awaitable
from typing import Any, Literal

from llmsim_lab._util.checks import instance_of, is_number, longest_wait, text_argument
from llmsim_lab._util.text import log_event, logfmt
from llmsim_lab.assistant._answers import asks, described, for_user
from llmsim_lab.assistant._toolbox import Toolbox, failed_result, result_text
from llmsim_lab.assistant.types import (
    AgentDecision,
    AgentEngineConfig,
    Arguments,
    DecisionContext,
    DecisionLogger,
    DecisionType,
    FunctionCall,
    LLMAdapter,
    LLMError,
    LLMMessage,
    LLMResponse,
    PendingAction,
    RateLimitError,
    Said,
    ToolCall,
    ToolExecutor,
    ToolResult,
)
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm.scope import scoped
from llmsim_lab.run import Question

logger = logging.getLogger(__name__)

_GRACE_S = 5.0
"""The shared client keeps the time limit itself. Other adapters are cancelled a little later, since
a call that is cancelled from outside leaves nothing on a tape."""

TROUBLE = "I'm having trouble processing your request. Please try again."
RATE_LIMITED = "I'm receiving too many requests. Please wait a moment."
TOO_COMPLEX = "That request is too complex. Could you break it into smaller steps?"

_YES = re.compile("yes|ok|okay|confirm|ja|bestätigen|oui|confirmer|是|是的|好|好的|确认")
_NO = re.compile("no|cancel|stop|nein|abbrechen|non|annuler|不|不是|不要|否|取消")
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
        call_timeout_s: longest wait for one model call, its retry included, seconds; the settings'
            ``timeout_seconds``, which is also for tools, if not given or 0.

    Raises:
        ConfigError: the constitution is empty, or an argument is of the wrong kind.

    Example:
        >>> engine = LLMAgentEngine(OllamaAdapter(client), tools, load_constitution())
        >>> decision = await engine.process_message(
        ...     DecisionContext(user_id="ann", message="Add milk", conversation_id="1")
        ... )
    """

    def __init__(
        self,
        llm_adapter: LLMAdapter,
        tool_executor: ToolExecutor | None,
        constitution: str,
        max_iterations: int = 5,
        *,
        config: AgentEngineConfig | None = None,
        decision_log: DecisionLogger | None = None,
        call_timeout_s: float | None = None,
    ) -> None:
        if not text_argument("constitution", constitution).strip():
            raise ConfigError("the constitution is empty; load_constitution() has the shipped one")
        instance_of("config", config, AgentEngineConfig | None, "an AgentEngineConfig")
        self.config = config or AgentEngineConfig(max_iterations=max_iterations)
        self.llm_adapter = instance_of(
            "llm_adapter",
            llm_adapter,
            LLMAdapter,
            "an adapter, such as OllamaAdapter(client)",
        )
        self.tool_executor = tool_executor
        self.constitution = constitution
        self.decision_log = instance_of(
            "decision_log",
            decision_log,
            DecisionLogger | None,
            "a log, such as DecisionLog('decisions.jsonl'), or an object with its methods "
            "write_decision_log and write_tool_invocation_log",
        )
        if call_timeout_s is None or (is_number(call_timeout_s) and call_timeout_s == 0):
            call_timeout_s = self.config.timeout_seconds
        self.call_timeout_s = longest_wait("call_timeout_s", call_timeout_s)
        # In memory only: across restarts the state of a conversation says what still waits.
        self._confirmed: set[tuple[str | None, str | None, str]] = set()

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
        instance_of("context", context, DecisionContext, "a DecisionContext")
        return await _Message(self, context).decided()

    def confirm_once(self, pending: PendingAction) -> bool:
        """Take a user's yes to an action; return False if it was taken before."""
        # An id alone may be another user's too, where a program makes its own.
        key = (pending.user_id, pending.conversation_id, pending.call_id)
        if key in self._confirmed:
            return False
        self._confirmed.add(key)
        return True

    async def __call__(self, question: Question) -> Said:
        """Answer the message of a conversation in which this engine has the assistant's seat."""
        # A copy for each message: one engine may sit in several runs at once.
        seated = copy.copy(self)
        seated._confirmed = set()  # the conversation's state says what waits, in a replay as well
        context = context_of(question.run, question.state)
        return Said.by(await seated.process_message(context))


class _Message:
    """One message on its way to a decision, with its rows in the decision log.

    The pending row is written before anything is done; if that fails, nothing is done. A later row
    that cannot be written is an ERROR line of the program's own log, and the user gets the answer.

    The outcome categories, each with its kind: ``SUCCESS`` (``RESPONDED``, ``TOOL_DONE``,
    ``CONFIRMATION_ASKED``, ``CANCELLED``), ``ERROR`` (``TOOL_FAILED``, ``TOO_MANY_STEPS``, the code
    of a failed result or an ``LLMError``), ``REFUSAL`` (``DECLINED``, ``CONFIRMED_BEFORE``),
    ``AMBIGUITY`` (``CLARIFICATION``, ``CONFIRMATION_UNCLEAR``). Where there is no decision:
    ``ERROR`` with the exception's name.
    """

    def __init__(self, engine: LLMAgentEngine, context: DecisionContext) -> None:
        self.engine = engine
        self.config = engine.config
        self.context = context
        self.decision_id = uuid.uuid4().hex
        self.calls: list[ToolCall] = []
        self.category = ""

    async def decided(self) -> AgentDecision:
        """Return the decision, once its row is in the log."""
        began = time.perf_counter()
        await self._write("LLM_PROCESSING", "PENDING", "PENDING", 0)
        # What the row says where no decision comes about.
        intent = "UNKNOWN"
        kind = "NONE"
        try:
            decision = await self._decide()
            kind = decision.decision_type.value
            intent = self._intent(decision)
            return decision
        # Also a cancellation: a row that stays PENDING would mean that the program died.
        except BaseException as error:
            self.category = f"ERROR:{type(error).__name__}"
            raise
        finally:
            milliseconds = (time.perf_counter() - began) * 1000
            await self._kept(
                "decision",
                self._write(intent, kind, self.category, milliseconds),
            )

    def _intent(self, decision: AgentDecision) -> str:
        """Return what the message was taken for: its tools, whatever a model says."""
        names = [call.tool_name for call in self.calls]
        if decision.pending_action is not None:
            names.append(decision.pending_action.tool_name)
        return ", ".join(dict.fromkeys(names)) or "CONVERSATION"

    async def _decide(self) -> AgentDecision:
        pending = self._pending()
        if pending is not None:
            # Read here, without a model: a deletion must not depend on how one samples.
            answer = yes_or_no(self.context.message)
            # "Yes, but the other one" is not a yes: the question is asked again.
            if answer is None:
                return self._wants_yes(
                    pending,
                    "AMBIGUITY:CONFIRMATION_UNCLEAR",
                    before="I did not take that for a yes or a no. ",
                )
            if answer == "no":
                return self._says(
                    "SUCCESS:CANCELLED", f"All right, I will not {_words_of(pending)}."
                )
        try:
            toolbox = await Toolbox.of(
                self.engine.tool_executor,
                confirm=self.config.confirm,
                timeout_s=self.config.timeout_seconds,
            )
            if pending is not None:
                return await self._confirm(pending, toolbox)
            return await self._converse(toolbox)
        except (TapeError, ConfigError):  # a replay lacks a call, or the program is set up wrong
            raise
        except Exception as error:  # noqa: BLE001 - users' adapters raise anything
            return self._failed(error, pending)

    def _pending(self) -> PendingAction | None:
        """Return what this user was asked to confirm in this conversation."""
        context = self.context
        pending = context.pending_confirmation
        if pending is None:
            return None
        # A program may hand in another user's context by mistake: only who was asked can say yes.
        is_users = pending.user_id in (None, context.user_id)
        is_of_conversation = pending.conversation_id in (None, context.conversation_id)
        if is_users and is_of_conversation:
            return pending
        log_event(
            logger,
            logging.WARNING,
            "confirmation_ignored",
            user=context.user_id,
        )
        return None

    def _failed(self, error: Exception, pending: PendingAction | None) -> AgentDecision:
        """Return the answer to a user whose message failed, and log why."""
        # Users' adapters may raise anything: all of it becomes one of the contract's codes.
        if isinstance(error, LLMError):
            fault = error
        elif isinstance(error, TimeoutError):
            fault = LLMError(repr(error), "TIMEOUT")
        else:
            fault = LLMError(repr(error), "UNEXPECTED")
        line = logfmt(
            decision_id=self.decision_id,
            code=fault.code,
            retry_after=fault.retry_after,
            detail=fault.message,
        )
        logger.warning(
            "assistant_failure %s",
            line,
            exc_info=fault.code == "UNEXPECTED",
        )
        return self._says(
            f"ERROR:{fault.code}",
            RATE_LIMITED if isinstance(fault, RateLimitError) else TROUBLE,
            # Where nothing ran, a yes is not used up: the action still waits.
            pending_action=None if self.calls else pending,
        )

    async def _confirm(self, pending: PendingAction, toolbox: Toolbox) -> AgentDecision:
        """Make the call that the user has said yes to, once."""
        words = _words_of(pending)
        # Once more: the tool may be gone, or have another schema, since the user was asked.
        checked = toolbox.check(FunctionCall(pending.tool_name, pending.parameters))
        if isinstance(checked, ToolResult):
            text = f"I can no longer {words}. Please ask me again."
            return self._says(f"ERROR:{checked.error_code}", text)
        # A "yes" that a client sends twice must not delete twice.
        if not self.engine.confirm_once(pending):
            text = f"Your yes was taken before; I do not {words} twice."
            return self._says("REFUSAL:CONFIRMED_BEFORE", text)
        result = await self._run(pending.tool_name, checked, toolbox)
        if result.success:
            return self._says(
                "SUCCESS:TOOL_DONE",
                f"Done: {words}.",
                DecisionType.INVOKE_TOOL,
            )
        text = f"That did not work: I could not {words}."  # the reason may be an internal
        return self._says("ERROR:TOOL_FAILED", text, DecisionType.INVOKE_TOOL)

    async def _converse(self, toolbox: Toolbox) -> AgentDecision:
        """Ask the model and run what it wants, until there is a decision.

        Raises:
            Exception: whatever the adapter raises.
        """
        messages = self._first_messages()
        for iteration in range(1, self.config.max_iterations + 1):
            response = await self._ask(messages, toolbox)
            calls = tuple(response.function_calls or ())
            if not calls:
                return self._final(response, toolbox)
            # Servers refuse results of tools without the calls that they answer before them.
            messages.append(LLMMessage("assistant", response.content or "", calls))
            is_last = iteration == self.config.max_iterations
            for place, call in enumerate(calls, 1):
                result = await self._checked(call, place, toolbox)
                if not isinstance(result, ToolResult) and toolbox.needs_yes(call.name):
                    return self._asks_first(
                        call,
                        result,
                        is_followed=place < len(calls),
                    )
                # In the last round no tool runs, since no model call is left to read its result; a
                # question to the user takes none, and was asked above.
                if not isinstance(result, ToolResult) and not is_last:
                    result = await self._run(call.name, result, toolbox)
                if isinstance(result, ToolResult):
                    text = result_text(result, max_chars=self.config.max_result_chars)
                    messages.append(
                        LLMMessage(
                            "tool",
                            text,
                            tool_name=call.name,
                        )
                    )
        return self._says("ERROR:TOO_MANY_STEPS", TOO_COMPLEX)

    def _first_messages(self) -> list[LLMMessage]:
        """Return what the model is sent at first; what never changes first, for its cache."""
        messages = [LLMMessage("system", self.engine.constitution)]
        history = self.context.message_history
        first = max(0, len(history) - self.config.include_history_messages)
        messages += [LLMMessage(message.role, message.content) for message in history[first:]]
        messages.append(LLMMessage("user", self.context.message))
        return messages

    async def _checked(
        self,
        call: FunctionCall,
        place: int,
        toolbox: Toolbox,
    ) -> Arguments | ToolResult:
        """Return the arguments of a call, the first, second ... of an answer; or why it fails."""
        if place > self.config.max_calls:
            return failed_result(
                f"only the first {self.config.max_calls} calls of an answer are made",
                "TOO_MANY_CALLS",
            )
        return await toolbox.checked(call)

    def _asks_first(
        self,
        call: FunctionCall,
        parameters: Arguments,
        *,
        is_followed: bool,
    ) -> AgentDecision:
        """Return the question whether to make a call.

        Args:
            call: what the model wants.
            parameters: its arguments, checked.
            is_followed: whether the model wanted further calls after it, which are not made.
        """
        pending = PendingAction(
            tool_name=call.name,
            parameters=parameters,
            description=described(call.name, parameters),
            user_id=self.context.user_id,
            conversation_id=self.context.conversation_id,
        )
        after = ""
        if is_followed:
            after = " What was to follow has not been done; ask again afterwards."
        return self._wants_yes(pending, "SUCCESS:CONFIRMATION_ASKED", after=after)

    async def _ask(
        self,
        messages: list[LLMMessage],
        toolbox: Toolbox,
    ) -> LLMResponse:
        config = self.config
        limit_s = self.engine.call_timeout_s
        late = (
            f"no reply within {limit_s:g} s, the longest that the assistant waits for a model call "
            "with its retry; raise timeout_seconds, as in "
            "Chat(engine=AgentEngineConfig(timeout_seconds=120)), or the total_timeout_s of the "
            "Chat's client"
        )
        # Cancelled only some time after the deadline, at which the shared client ends the call.
        cancelled_s = limit_s + min(limit_s, _GRACE_S)
        with scoped(deadline=time.monotonic() + limit_s, late=late):
            try:
                async with asyncio.timeout(cancelled_s) as clock:
                    response = await self.engine.llm_adapter.generate(
                        tuple(messages),
                        toolbox.declarations,
                        config.temperature,
                        config.max_tokens,
                    )
            except TimeoutError as timeout:
                if not clock.expired():  # the adapter's own
                    raise
                raise LLMError(late, "TIMEOUT") from timeout
        # Adapters may return errors in place of raising them.
        if isinstance(response.error, LLMError):
            raise response.error
        if response.error:
            raise LLMError(str(response.error))
        return response

    async def _run(
        self,
        name: str,
        parameters: Arguments,
        toolbox: Toolbox,
    ) -> ToolResult:
        """Run a tool for the context's user; list the call and log it."""
        began = time.perf_counter()
        result = await toolbox.run(name, parameters, self.context.user_id)
        milliseconds = (time.perf_counter() - began) * 1000
        self.calls.append(
            ToolCall(
                tool_name=name,
                parameters=parameters,
                result=result,
                duration_ms=milliseconds,
            )
        )
        log = self.engine.decision_log
        if log is not None:
            writing = log.write_tool_invocation_log(
                decision_id=self.decision_id,
                tool_name=name,
                parameters=parameters,
                result=result.data,
                success=result.success,
                error_code=result.error_code,
                error_message=result.error,
                duration_ms=milliseconds,
            )
            await self._kept(name, writing)
        return result

    # --- decisions ----------------------------------------------------------------------------

    def _final(self, response: LLMResponse, toolbox: Toolbox) -> AgentDecision:
        """Return the decision that a model's final text stands for.

        Where the model does not say what its text is, one that ends in a question mark is a
        question, and any other an answer.
        """
        text = for_user(response.content or "", [tool.name for tool in toolbox.declarations])
        if not text:
            raise LLMError("the model answered with nothing", "INVALID_RESPONSE")
        is_question = response.kind == "question"
        if response.kind is None:
            is_question = asks(text)
        if is_question:
            return self._says(
                "AMBIGUITY:CLARIFICATION",
                text,
                DecisionType.ASK_CLARIFICATION,
            )
        # By what ran, not by what the text claims: models say "done" after a tool that failed.
        if any(call.worked for call in self.calls):
            return self._says("SUCCESS:TOOL_DONE", text, DecisionType.INVOKE_TOOL)
        if self.calls:
            return self._says("ERROR:TOOL_FAILED", text, DecisionType.INVOKE_TOOL)
        if response.kind == "refusal":
            return self._says("REFUSAL:DECLINED", text)
        return self._says("SUCCESS:RESPONDED", text)

    def _wants_yes(
        self,
        pending: PendingAction,
        category: str,
        *,
        before: str = "",
        after: str = "",
    ) -> AgentDecision:
        """Return the question whether to do what waits, between what is said before and after."""
        return self._says(
            category,
            f"{before}Shall I {_words_of(pending)}? Please answer yes or no.{after}",
            DecisionType.REQUEST_CONFIRMATION,
            pending_action=pending,
        )

    def _says(
        self,
        category: str,
        text: str,
        kind: DecisionType = DecisionType.RESPOND_ONLY,
        *,
        pending_action: PendingAction | None = None,
    ) -> AgentDecision:
        """Return a decision that says a text to the user, after the tools that ran."""
        self.category = category
        is_question = kind is DecisionType.ASK_CLARIFICATION
        return AgentDecision(
            decision_type=kind,
            tool_calls=list(self.calls) or None,
            # The contract gives a question a field of its own; ``text`` reads both.
            response_text=None if is_question else text,
            clarification_question=text if is_question else None,
            pending_action=pending_action,
        )

    # --- the log ------------------------------------------------------------------------------

    async def _write(
        self,
        intent: str,
        kind: str,
        category: str,
        milliseconds: float,
    ) -> None:
        log = self.engine.decision_log
        if log is not None:
            await log.write_decision_log(
                decision_id=self.decision_id,
                conversation_id=self.context.conversation_id,
                user_id=self.context.user_id,
                message=self.context.message,
                intent_type=intent,
                decision_type=kind,
                outcome_category=category,
                duration_ms=milliseconds,
            )

    async def _kept(
        self,
        row: str,
        writing: Awaitable[None],
    ) -> None:
        """Write a row; log one that is lost, and continue: what was decided has been done."""
        try:
            await writing
        except Exception as error:  # noqa: BLE001 - users' loggers raise anything
            log_event(
                logger,
                logging.ERROR,
                "decision_log_lost",
                decision_id=self.decision_id,
                what=row,
                detail=repr(error),
            )


# --- confirmations --------------------------------------------------------------------------------


def _words_of(pending: PendingAction) -> str:
    """Return what a pending action will do.

    Its own description does not count: the context has been outside since and may have been
    changed, and the user must confirm what really runs.
    """
    return described(pending.tool_name, pending.parameters)


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
    word = message.strip(_AROUND).casefold()
    if _YES.fullmatch(word):
        return "yes"
    if _NO.fullmatch(word):
        return "no"
    return None
