"""The decision log: what was decided about messages and which tools ran, as lines of JSON.

A decision's row is written as ``PENDING`` before the model is asked, and again when the decision is
made, or the message given up. Of the rows with one ``decision_id`` the last counts; one that stays
pending belongs to a program that ended in between.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmsim_lab._util.text import log_event
from llmsim_lab.assistant._toolbox import json_text, value_of
from llmsim_lab.assistant._types import AgentDecision, DecisionContext, DecisionLogger, ToolCall
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
        self._append({"row": "decision"} | row)

    async def write_tool_invocation_log(self, **row: Any) -> None:
        """Append a tool call's row.

        Raises:
            DataError: the file cannot be written.
        """
        self._append({"row": "tool"} | row)

    def _append(self, row: Mapping[str, Any]) -> None:
        row = {**row, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        try:
            text = json.dumps(row, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError):  # a tool returned what no JSON can be
            plain = {name: json_text(row[name]) for name in ("parameters", "result")}
            text = json.dumps(row | plain, ensure_ascii=False)
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
        intent: what the message was taken for: the tools that it needed, or a word.
    """

    decision: AgentDecision
    category: str
    intent: str = "CONVERSATION"


class DecisionEntry:
    """Writes one message's rows: its decision's, and one for each tool call.

    The pending row is written before anything is done; if that fails, nothing is done. A later row
    that cannot be written is an ERROR line of the program's own log, and the user gets the answer.

    Args:
        log: where the rows go, or None.
        context: the message.
    """

    def __init__(self, log: DecisionLogger | None, context: DecisionContext) -> None:
        self.decision_id = uuid.uuid4().hex
        self._log = log
        self._context = context
        self._began = time.perf_counter()

    async def start(self) -> None:
        """Write that a decision is pending."""
        await self._write("LLM_PROCESSING", "PENDING", "PENDING")

    async def finish(self, outcome: DecisionOutcome) -> None:
        """Write the decision."""
        kind = outcome.decision.decision_type.value
        await self._kept("decision", self._write(outcome.intent, kind, outcome.category))

    async def fail(self, error: BaseException) -> None:
        """Write that there is no decision: the message was stopped, or the program failed."""
        # The class as a code: TapeMiss as TAPE_MISS.
        code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).upper()
        if isinstance(error, asyncio.CancelledError):
            code = "STOPPED"
        await self._kept("decision", self._write("UNKNOWN", "NONE", f"ERROR:{code}"))

    async def tool_ran(self, call: ToolCall) -> None:
        """Write that a tool ran."""
        await self._kept(call.tool_name, self._write_tool(call))

    async def _write(self, intent: str, decision_type: str, category: str) -> None:
        pending = category == "PENDING"
        row: dict[str, Any] = {
            "decision_id": self.decision_id,
            "conversation_id": self._context.conversation_id,
            "user_id": self._context.user_id,
            "message": self._context.message,
            "intent_type": intent,
            "decision_type": decision_type,
            "outcome_category": category,
            "duration_ms": 0 if pending else (time.perf_counter() - self._began) * 1000,
        }
        if self._log is not None:
            await value_of(self._log.write_decision_log(**row))

    async def _write_tool(self, call: ToolCall) -> None:
        if self._log is None or (result := call.result) is None:
            return
        row = {
            "decision_id": self.decision_id,
            "tool_name": call.tool_name,
            "parameters": call.parameters,
            "result": result.data,
            "success": result.success,
            "error_code": result.error_code,
            "error_message": result.error,
            "duration_ms": call.duration_ms,
        }
        await value_of(self._log.write_tool_invocation_log(**row))

    async def _kept(self, what: str, writing: Awaitable[None]) -> None:
        """Write a row; log one that is lost, and continue: what was decided has been done."""
        try:
            await writing
        except Exception as error:  # noqa: BLE001 - users' loggers raise anything
            fields = {"decision_id": self.decision_id, "what": what, "detail": repr(error)}
            log_event(logger, logging.ERROR, "decision_log_lost", **fields)
