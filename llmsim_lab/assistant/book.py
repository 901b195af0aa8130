"""What is noted of one message: its decision's row, and one for each tool that ran."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
import uuid
from dataclasses import dataclass
from typing import Any

from llmsim_lab.assistant.protocols import DecisionLogger
from llmsim_lab.assistant.types import AgentDecision, DecisionContext, ToolCall
from llmsim_lab.logs import log_event

__all__ = ["Book", "Outcome"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision and how it counts.

    Attributes:
        decision: the decision.
        category: ``SUCCESS``, ``ERROR``, ``REFUSAL`` or ``AMBIGUITY``, a colon, and which kind.
        intent: what the message was taken for: the tools it needed, or a word.
    """

    decision: AgentDecision
    category: str
    intent: str = "CONVERSATION"


class Book:
    """Writes one message's rows.

    The pending row is written before anything is done: if it cannot be, nothing is. What cannot be
    written later is an ERROR line of the program's own log, since the user is owed an answer then.

    Args:
        log: where the rows go, or None.
        context: the message.
    """

    def __init__(self, log: DecisionLogger | None, context: DecisionContext) -> None:
        self.decision_id = uuid.uuid4().hex
        self._log = log
        self._context = context
        self._began = time.perf_counter()

    async def begin(self) -> None:
        """Write that a decision is pending."""
        if self._log is not None:
            await self._write(self._log, "LLM_PROCESSING", "PENDING", "PENDING", 0)

    async def end(self, outcome: Outcome) -> None:
        """Write what became of it."""
        milliseconds = (time.perf_counter() - self._began) * 1000
        kind = outcome.decision.decision_type.value
        log_event(
            logger,
            logging.DEBUG,
            "decision",
            decision_id=self.decision_id,
            decision_type=kind,
            outcome=outcome.category,
            duration_ms=round(milliseconds, 3),
        )
        await self._close(outcome.intent, kind, outcome.category, milliseconds)

    async def broken(self, error: BaseException) -> None:
        """Write that there is no decision: the message was stopped, or the program is at fault."""
        stopped = isinstance(error, asyncio.CancelledError)
        code = "STOPPED" if stopped else _error_code(error)
        milliseconds = (time.perf_counter() - self._began) * 1000
        await self._close("UNKNOWN", "NONE", f"ERROR:{code}", milliseconds)

    async def _close(self, intent: str, kind: str, category: str, milliseconds: float) -> None:
        if self._log is None:
            return
        try:
            await self._write(self._log, intent, kind, category, milliseconds)
        except Exception as error:  # noqa: BLE001 - any logger may be plugged in
            self._lost("decision", error)

    async def ran(self, call: ToolCall) -> None:
        """Write that a tool ran."""
        if self._log is None or (result := call.result) is None:
            return
        try:
            written: Any = self._log.write_tool_invocation_log(
                decision_id=self.decision_id,
                tool_name=call.tool_name,
                parameters=call.parameters,
                result=result.data,
                success=result.success,
                error_code=result.error_code,
                error_message=result.error,
                duration_ms=call.duration_ms,
            )
            if inspect.isawaitable(written):
                await written
        except Exception as error:  # noqa: BLE001 - any logger may be plugged in
            self._lost(call.tool_name, error)

    async def _write(
        self, log: DecisionLogger, intent: str, kind: str, category: str, duration_ms: float
    ) -> None:
        written: Any = log.write_decision_log(
            decision_id=self.decision_id,
            conversation_id=self._context.conversation_id,
            user_id=self._context.user_id,
            message=self._context.message,
            intent_type=intent,
            decision_type=kind,
            outcome_category=category,
            duration_ms=duration_ms,
        )
        if inspect.isawaitable(written):
            await written

    def _lost(self, what: str, error: Exception) -> None:
        log_event(
            logger,
            logging.ERROR,
            "decision_log_lost",
            decision_id=self.decision_id,
            what=what,
            detail=repr(error),
        )


def _error_code(error: BaseException) -> str:
    """Return an error's class as a code: ``TapeMiss`` as ``TAPE_MISS``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).upper()
