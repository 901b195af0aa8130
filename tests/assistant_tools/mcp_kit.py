"""For tests of tool servers: how they are started, which run, and waiting for that to change."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from llmsim_lab.assistant import MCPToolExecutor, ToolResult

RAW = [sys.executable, str(Path(__file__).with_name("raw_server.py"))]


def servers() -> list[psutil.Process]:
    """Return the servers that this process has started and that have not ended."""
    return [child for child in psutil.Process().children() if _is_server(child)]


def _is_server(child: psutil.Process) -> bool:
    try:
        return any("raw_server.py" in word for word in child.cmdline())
    except psutil.NoSuchProcess:  # it is just ending
        return False


def runs(pid: int) -> bool:
    """Return True if a process runs; one that has ended may stay listed until its parent looks."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def slow_calls(tools: MCPToolExecutor, number: int) -> list[asyncio.Task[ToolResult]]:
    """Call the tool that never answers this often, and wait until all calls are at the server."""
    await tools.ready()
    made = [asyncio.create_task(tools.execute("never", {}, "ann")) for _ in range(number)]
    for _ in range(3000):
        if (await tools.execute("how_many_wait", {}, "ann")).data == number:
            return made
    pytest.fail("the calls never came to the server")
