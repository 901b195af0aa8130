"""Measure what tools over MCP cost: round trips, starts, restarts after a crash, calls at once.

``python benchmarks/mcp_bench.py --out mcp_bench.json`` uses the shipped task server, its tasks in a
file, both in this process and as a program that is spoken to over standard input and output. The
model has no part in it. CPU is this process's own time, all threads; the server's is not in it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
from command import command
from llmsim_lab.assistant.tasks._server import task_server
from llmsim_lab.assistant.tasks._store import TaskStore
from rich.table import Table

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant._types import ToolResult

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

_LISTED = 10
"""How many tasks there are in the list that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        calls: of each tool, one after another.
        starts: of the server, and as many crashes.
        at_once: calls that are made at the same time.
        rounds: how often they are.
    """

    calls: int
    starts: int
    at_once: int
    rounds: int


FULL = Plan(calls=300, starts=5, at_once=20, rounds=20)
QUICK = Plan(calls=3, starts=1, at_once=20, rounds=1)


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store = TaskStore(Path(folder) / "memory.db")
        stack.callback(store.close)
        file = Path(folder) / "stdio.db"
        return {
            "machine": {
                "cpus": os.cpu_count(),
                "python": platform.python_version(),
                "system": f"{platform.system()} {platform.machine()}",
                "versions": {name: version(name) for name in ("llmsim-lab", "mcp")},
            },
            "tasks_listed": _LISTED,
            "at_once": plan.at_once,
            "memory": asyncio.run(_calls(MCPToolExecutor(task_server(store)), plan)),
            "stdio": asyncio.run(_calls(MCPToolExecutor.tasks(file), plan)),
            "starts_ms": asyncio.run(_starts(file, plan)),
            "after_a_crash_ms": asyncio.run(_crashes(file, plan)),
        }


async def _calls(tools: MCPToolExecutor, plan: Plan) -> dict[str, Any]:
    """Time calls of a tool that reads and of one that writes, one by one and many at once."""

    async def look(_: int) -> ToolResult:
        return await tools.execute("list_tasks", {}, "ann")

    async def add(number: int) -> ToolResult:
        # Each for another user, since a user's tasks are limited.
        return await tools.execute("add_task", {"description": "Buy milk"}, f"user{number}")

    async with tools:
        for number in range(_LISTED):
            await tools.execute("add_task", {"description": f"Task {number}"}, "ann")
        return {
            "list": await _one_by_one(look, plan.calls),
            "add": await _one_by_one(add, plan.calls),
            "list_at_once": await _at_once(look, plan),
            "add_at_once": await _at_once(add, plan),
        }


async def _one_by_one(work: Callable[[int], Awaitable[ToolResult]], calls: int) -> dict[str, float]:
    await _worked(work(0))
    times = []
    gc.collect()
    cpu = time.process_time()
    for number in range(calls):
        began = time.perf_counter()
        await _worked(work(number))
        times.append((time.perf_counter() - began) * 1e3)
    cpu = time.process_time() - cpu
    return {**_spread(times), "cpu_ms_per_call": round(cpu * 1e3 / calls, 3)}


async def _at_once(work: Callable[[int], Awaitable[ToolResult]], plan: Plan) -> dict[str, float]:
    """Time a number of calls that are made together, until the last has its answer."""
    times = []
    gc.collect()
    for _ in range(plan.rounds):
        began = time.perf_counter()
        await asyncio.gather(*(_worked(work(number)) for number in range(plan.at_once)))
        times.append((time.perf_counter() - began) * 1e3)
    spread = _spread(times)
    return {**spread, "median_ms_per_call": round(spread["median_ms"] / plan.at_once, 3)}


async def _starts(file: Path, plan: Plan) -> dict[str, float]:
    """Time the start of the program until its tools are known."""
    times = []
    for _ in range(plan.starts):
        tools = MCPToolExecutor.tasks(file)
        began = time.perf_counter()
        await tools.ready()
        times.append((time.perf_counter() - began) * 1e3)
        await tools.aclose()
    return _spread(times)


async def _crashes(file: Path, plan: Plan) -> dict[str, float]:
    """Time calls that find their server killed, and so have to start it again.

    Finding out is not in it: a call is made once the end of the server has been heard of, since one
    made before fails.
    """
    times = []
    async with MCPToolExecutor.tasks(file) as tools:
        for _ in range(plan.starts):
            await _worked(tools.execute("list_tasks", {}, "ann"))
            _kill_servers()
            await asyncio.sleep(0.5)  # so that its end has been heard of
            began = time.perf_counter()
            await _worked(tools.execute("list_tasks", {}, "ann"))
            times.append((time.perf_counter() - began) * 1e3)
    return _spread(times)


def _kill_servers() -> None:
    """Kill the servers that this process has started, and nothing else."""
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # one that is just ending
            if "llmsim_lab.assistant.tasks" in child.cmdline():
                child.kill()


async def _worked(call: Awaitable[ToolResult]) -> None:
    """Wait for a call, and have no failure counted as one.

    Raises:
        RuntimeError: it failed.
    """
    result = await call
    if not result.success:
        raise RuntimeError(f"a call failed: {result.error_code}: {result.error}")


def _spread(times: Sequence[float]) -> dict[str, float]:
    p95 = quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
    return {"median_ms": round(median(times), 3), "p95_ms": round(p95, 3)}


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures."""
    shown = Table("figure", "median", "95 %", "CPU here", title="Tools over MCP")
    many = figures["at_once"]
    for place in ("memory", "stdio"):
        for kind, its in figures[place].items():
            name = kind.replace("_at_once", f", {many} at once")
            cpu = f"{its['cpu_ms_per_call']} ms" if "cpu_ms_per_call" in its else ""
            shown.add_row(f"{place}, {name}", f"{its['median_ms']} ms", f"{its['p95_ms']} ms", cpu)
    for name, key in (("start", "starts_ms"), ("call after a crash", "after_a_crash_ms")):
        its = figures[key]
        shown.add_row(f"stdio, {name}", f"{its['median_ms']} ms", f"{its['p95_ms']} ms", "")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    command(
        arguments,
        doc=__doc__,
        out="mcp_bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


if __name__ == "__main__":
    main()
