"""Tools of a server that runs elsewhere and is reached by its URL."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time

import pytest

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant.types import ToolServerError

pytestmark = pytest.mark.process

SERVER = """
import itertools, sys
from mcp.server.mcpserver import MCPServer
server, calls = MCPServer("far", log_level="CRITICAL"), itertools.count(1)
@server.tool()
def count() -> int:
    "Count the calls."
    return next(calls)
server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""


def started(port: int) -> subprocess.Popen[bytes]:
    """Start a server, and wait until it can be connected to."""
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)])
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.05)
    pytest.fail("it did not start")


def stop(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()


async def test_a_server_elsewhere_is_connected_to_again_after_it_was_away() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tools = MCPToolExecutor(f"http://127.0.0.1:{port}/mcp")
    with pytest.raises(ToolServerError, match="could not be started"):
        await tools.start()
    server = await asyncio.to_thread(started, port)
    try:
        assert (await tools.execute("count", {}, "ann")).data == 1
        assert (await tools.execute("count", {}, "ann")).data == 2
        stop(server)
        assert (await tools.execute("count", {}, "ann")).error_code == "SERVER_DIED"
        server = await asyncio.to_thread(started, port)
        assert (await tools.execute("count", {}, "ann")).data == 1
    finally:
        stop(server)
        await tools.aclose()
