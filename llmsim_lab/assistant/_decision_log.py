"""The decision log: what was decided about messages and which tools ran, as lines of JSON.

A decision's row is written as ``PENDING`` before the model is asked, and again when the decision is
made, or the message given up. Of the rows with one ``decision_id`` the last counts; one that stays
pending belongs to a program that ended in between.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmsim_lab._util.text import log_event
from llmsim_lab.assistant._toolbox import value_of
from llmsim_lab.assistant._types import (
    AgentDecision,
    DecisionContext,
    DecisionLogger,
    ToolCall,
    ToolResult,
)
from llmsim_lab.errors import DataError

logger = logging.getLogger(__name__)


class DecisionLog:
    """Appends each row to a file, as one line of JSON in UTF-8; everything is written as it is.

    ``pandas.read_json(path, lines=True)`` reads it. Several processes may write to one file.

    Args:
        path: the file; made with the first row.

    Example:
        >>> log = DecisionLog("decisions.jsonl")
        >>> engine = LLMAgentEngine(adapter, tools, load_constitution(), decision_log=log)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    async def write_decision_log(self, **row: Any) -> None:
        """Append a decision's row.

        Raises:
            DataError: the file cannot be written.
        """
        self._append(row="decision", **row)

    async def write_tool_invocation_log(self, **row: Any) -> None:
        """Append a tool call's row.

        Raises:
            DataError: the file cannot be written.
        """
        self._append(row="tool", **row)

    def _append(self, **row: Any) -> None:
        row["time"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = json.dumps(row, ensure_ascii=False, default=str)
        # JSON may hold half a character, which UTF-8 cannot: it is written as its escape.
        line = f"{text}\n".encode("utf-8", "backslashreplace")
        try:
            # One write to a file that is open to append to, so that lines never mix.
            with self.path.open("ab", buffering=0) as file:
                file.write(line)
        except OSError as error:
            raise DataError(f"cannot write to the decision log {self.path}: {error}") from error

    def __repr__(self) -> str:
        return f"DecisionLog({str(self.path)!r})"


# --- the rows of one message ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DecisionOutcome:
    """A decision and how it counts.

    Attributes:
        decision: the decision.
        category: ``SUCCESS``, ``ERROR``, ``REFUSAL`` or ``AMBIGUITY``, a colon, and which kind.
    """

    decision: AgentDecision
    category: str


class DecisionEntry:
    """Writes one message's rows: its decision's, and one for each tool call.

    The pending row is written before anything is done; if that fails, nothing is done. A later row
    that cannot be written is an ERROR line of the program's own log, and the user gets the answer.

    Args:
        log: where the rows go, or None.
        context: the message.

    Attributes:
        decision_id: tells the message from others.
        calls: the tools that ran.
    """

    def __init__(self, log: DecisionLogger | None, context: DecisionContext) -> None:
        self.decision_id = uuid.uuid4().hex
        self.calls: list[ToolCall] = []
        self._log = log
        self._context = context
        self._began = time.perf_counter()

    async def start(self) -> None:
        """Write that a decision is pending."""
        await self._write("LLM_PROCESSING", "PENDING", "PENDING", 0)

    async def finish(self, outcome: DecisionOutcome) -> None:
        """Write the decision; what the message was taken for are the tools that it needed."""
        waits = outcome.decision.pending_action
        names = [call.tool_name for call in self.calls] + ([waits.tool_name] if waits else [])
        await self._end(
            ", ".join(dict.fromkeys(names)) or "CONVERSATION",
            outcome.decision.decision_type.value,
            outcome.category,
        )

    async def fail(self, error: BaseException) -> None:
        """Write that there is no decision: the message was stopped, or the program failed."""
        await self._end("UNKNOWN", "NONE", f"ERROR:{type(error).__name__}")

    async def tool_ran(self, call: ToolCall, result: ToolResult) -> None:
        """Write that a tool ran."""
        self.calls.append(call)
        if self._log is not None:
            row = self._log.write_tool_invocation_log(
                decision_id=self.decision_id,
                tool_name=call.tool_name,
                parameters=call.parameters,
                result=result.data,
                success=result.success,
                error_code=result.error_code,
                error_message=result.error,
                duration_ms=call.duration_ms,
            )
            await self._kept(call.tool_name, row)

    async def _end(self, intent: str, decision_type: str, category: str) -> None:
        milliseconds = (time.perf_counter() - self._began) * 1000
        await self._kept("decision", self._write(intent, decision_type, category, milliseconds))

    async def _write(self, intent: str, kind: str, category: str, milliseconds: float) -> None:
        if self._log is not None:
            row = self._log.write_decision_log(
                decision_id=self.decision_id,
                conversation_id=self._context.conversation_id,
                user_id=self._context.user_id,
                message=self._context.message,
                intent_type=intent,
                decision_type=kind,
                outcome_category=category,
                duration_ms=milliseconds,
            )
            await value_of(row)

    async def _kept(self, what: str, writing: Awaitable[None]) -> None:
        """Write a row; log one that is lost, and continue: what was decided has been done."""
        try:
            await value_of(writing)
        except Exception as error:  # noqa: BLE001 - users' loggers raise anything
            fields = {"decision_id": self.decision_id, "what": what, "detail": repr(error)}
            log_event(logger, logging.ERROR, "decision_log_lost", **fields)
