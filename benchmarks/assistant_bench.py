"""Measure what the decision engine itself costs: CPU per message, the model and the tools instant.

``python benchmarks/assistant_bench.py --out assistant_bench.json`` sends messages of several kinds
to an engine whose model answers at once and whose tools are functions in memory: with nothing
else, with a log of decisions, through the shared client with a scripted model, and with a history
of many messages. CPU is this process's own time, all threads, medians of the repeats.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.assistant import (
    DecisionContext,
    DecisionLog,
    FunctionTools,
    LLMAgentEngine,
    OllamaAdapter,
    load_constitution,
)
from llmsim_lab.assistant._types import (
    FunctionCall,
    LLMMessage,
    LLMResponse,
    Message,
    PendingAction,
    ToolDeclaration,
)
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.types import ChatReply, ChatRequest, ToolCall

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        messages: for each repeat.
        repeats: of which medians are taken.
        history: messages in the long history.
    """

    messages: int
    repeats: int
    history: int


FULL = Plan(messages=1000, repeats=7, history=10_000)
QUICK = Plan(messages=5, repeats=1, history=100)


def add_task(title: str, user_id: str) -> dict[str, Any]:
    """Create a task."""
    return {"id": 1, "title": title, "owner": user_id}


def list_tasks(user_id: str) -> dict[str, Any]:
    """Show the user's tasks."""
    return {"tasks": [{"id": number, "title": f"Task {number}"} for number in range(10)]}


def delete_task(task_id: int, user_id: str) -> dict[str, Any]:
    """Remove a task."""
    return {"id": task_id}


class InstantAdapter:
    """Answers at once: a greeting with text, ``add`` and ``delete`` with calls."""

    async def generate(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[ToolDeclaration],
        temperature: float = 0.0,
        max_tokens: int = 1024,
    ) -> LLMResponse:
        """Return the answer."""
        last = messages[-1]
        if last.role == "tool":
            return LLMResponse("I added it to your list.")
        if last.content.startswith("Add"):
            return LLMResponse(function_calls=[FunctionCall("add_task", {"title": "Buy milk"})])
        if last.content.startswith("Delete"):
            return LLMResponse(function_calls=[FunctionCall("delete_task", {"task_id": 3})])
        return LLMResponse("Hello! How can I help you today?")

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Leave it to the executor."""
        return []


def _instant_reply(request: ChatRequest) -> ChatReply:
    if request.messages[-1].role == "tool":
        return ChatReply(text="I added it to your list.")
    return ChatReply(
        text="", tool_calls=(ToolCall(name="add_task", arguments={"title": "Buy milk"}),)
    )


def _engine(adapter: Any = None, log: DecisionLog | None = None) -> LLMAgentEngine:
    tools = FunctionTools(add_task, list_tasks, delete_task)
    return LLMAgentEngine(adapter or InstantAdapter(), tools, load_constitution(), decision_log=log)


def _context(message: str, **fields: Any) -> DecisionContext:
    return DecisionContext(user_id="ann", message=message, conversation_id="c", **fields)


def _confirming() -> DecisionContext:
    """Return a yes to an action of its own, since each runs once."""
    pending = PendingAction(tool_name="delete_task", parameters={"task_id": 1})
    return _context("yes", pending_confirmation=pending)


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    history = [Message(role="user", content=f"message {n}") for n in range(plan.history)]
    add = _context("Add milk")
    figures = {
        "answer": _micros(plan, _engine, _context("Hello")),
        "one tool": _micros(plan, _engine, add),
        "confirmation asked": _micros(plan, _engine, _context("Delete 3")),
        "confirmed": _micros(plan, _engine, _confirming),
        "one tool, long history": _micros(
            plan, _engine, _context("Add milk", message_history=history)
        ),
    }
    client = LLMClient(LLMConfig(model="instant"), ScriptedBackend(_instant_reply))
    figures["one tool, shared client"] = _micros(plan, lambda: _engine(OllamaAdapter(client)), add)
    with tempfile.TemporaryDirectory() as folder, DecisionLog(Path(folder) / "log.db") as log:
        figures["one tool, decision log"] = _micros(plan, lambda: _engine(log=log), add)
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "history": plan.history,
        "us_per_message": figures,
    }


def _micros(
    plan: Plan,
    make: Callable[[], LLMAgentEngine],
    context: DecisionContext | Callable[[], DecisionContext],
) -> float:
    """Measure CPU per message, microseconds."""
    fresh = context if callable(context) else lambda: context
    return asyncio.run(_measured(plan, make(), fresh))


async def _measured(
    plan: Plan, engine: LLMAgentEngine, fresh: Callable[[], DecisionContext]
) -> float:
    await engine.process_message(fresh())
    times = []
    for _ in range(plan.repeats):
        contexts = [fresh() for _ in range(plan.messages)]
        gc.collect()
        began = time.process_time()
        for context in contexts:
            await engine.process_message(context)
        times.append((time.process_time() - began) * 1e6 / plan.messages)
    return round(median(times), 1)


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures beside what they should be."""
    shown = Table("CPU per message", "measured", "target", title="The decision engine")
    for kind, micros in figures["us_per_message"].items():
        shown.add_row(kind, f"{micros} µs", "< 1,000 µs")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    command(
        arguments,
        doc=__doc__,
        out="assistant_bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


if __name__ == "__main__":
    main()
