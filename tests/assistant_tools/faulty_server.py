"""An MCP server that does everything wrong, each fault at a tool's call."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

server: MCPServer[Any] = MCPServer("faulty", log_level="CRITICAL")
calls = itertools.count(1)
waiting: set[object] = set()
"""The calls of ``slow`` that are under way."""


@server.tool()
def count() -> int:
    """Say how many calls of this tool there were since the server's start."""
    return next(calls)


@server.tool()
def die() -> str:
    """Stop the server at once."""
    sys.stderr.write("I cannot go on\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool()
async def slow() -> str:
    """Take long, while other calls go on."""
    waiting.add(me := object())
    try:
        await asyncio.sleep(60)
    finally:
        waiting.remove(me)
    return "too late"


@server.tool()
async def how_many_wait() -> int:
    """Say how many calls of the slow tool are under way."""
    return len(waiting)


@server.tool(structured_output=False)
def many_texts() -> list[str]:
    """Answer with two texts."""
    return ["one", "two"]


@server.tool(structured_output=False)
def plain() -> str:
    """Answer with a text that is not JSON."""
    return "just a text"


@server.tool()
def named_result() -> dict[str, Any]:
    """Answer with an object that looks like what other values are wrapped in."""
    return {"result": 1}


@server.tool()
def whoami(user_id: str, ctx: Context[Any, Any]) -> dict[str, Any]:
    """Say whom the call is for, by the argument and by the metadata."""
    meta: Any = ctx.request_context.meta or {}
    return {"argument": user_id, "metadata": meta.get("llmsim-lab/user_id")}


@server.tool()
def crash() -> str:
    """Fail without a word for the client."""
    raise KeyError("internal detail")


if __name__ == "__main__":
    if "--broken" in sys.argv:
        sys.stderr.write("no database here\n")
        raise SystemExit(4)
    if "--silent" in sys.argv:
        time.sleep(600)
    if "--when" in sys.argv:
        while not Path(sys.argv[-1]).exists():
            time.sleep(0.01)
    server.run()
