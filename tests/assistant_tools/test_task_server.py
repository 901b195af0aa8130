"""The task list as an MCP server, used by the library's own client, and as a program."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from llmsim_lab.assistant.tasks import main, task_server

ANN = {"llmsim-lab/user_id": "ann"}
BOB = {"llmsim-lab/user_id": "bob"}
CODE = "llmsim-lab/error_code"
TOOLS = ["add_task", "complete_task", "delete_task", "list_tasks", "update_task"]
MILK = {"id": 1, "description": "Buy milk", "done": False}
COMMAND = [sys.executable, "-m", "llmsim_lab.assistant.tasks"]


def over_stdio(db: Path) -> StdioServerParameters:
    words = [*COMMAND[1:], "--db", str(db), "--user", "ann"]
    return StdioServerParameters(command=sys.executable, args=words)


async def called(client: Client, tool: str, meta: Any = None, **arguments: Any) -> Any:
    """Call a tool; return what it returned, or what it said was wrong."""
    result = await client.call_tool(tool, arguments, meta=meta)
    return words(result) if result.is_error else result.structured_content


def words(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def listed(client: Client, meta: Any = None, **arguments: Any) -> list[tuple[int, str]]:
    found = await called(client, "list_tasks", meta, **arguments)
    return [(task["id"], task["description"]) for task in found["tasks"]]


@pytest.mark.process
async def test_the_sdks_own_client_can_use_the_server_over_stdio(tmp_path: Path) -> None:
    db = tmp_path / "tasks.db"
    async with Client(over_stdio(db)) as client:
        assert sorted(tool.name for tool in (await client.list_tools()).tools) == TOOLS
        assert await called(client, "add_task", description=" Buy milk ") == MILK
        oat = {**MILK, "description": "Buy oat milk"}
        changed = await called(client, "update_task", task_id=1, description="Buy oat milk")
        assert changed == oat
        assert await called(client, "complete_task", task_id=1) == {**oat, "done": True}
        assert await listed(client, status="open") == []
        assert await listed(client, status="done") == [(1, "Buy oat milk")]
        assert await called(client, "delete_task", task_id=1) == {**oat, "done": True}
        again = await called(client, "add_task", description="Call mum")
        assert again == {"id": 2, "description": "Call mum", "done": False}, "no number twice"
    async with Client(task_server(db, user="ann")) as client:
        assert await listed(client) == [(2, "Call mum")]


async def test_the_server_keeps_users_apart_by_the_requests_metadata() -> None:
    async with Client(task_server()) as client:
        for user, text in ((ANN, "Buy milk"), (BOB, "Bob's own"), (BOB, "Another")):
            await called(client, "add_task", user, description=text)
        assert await listed(client, ANN) == [(1, "Buy milk")]
        foreign = await called(client, "delete_task", ANN, task_id=2)
        assert foreign == "there is no task 2; list the tasks to see which there are"
        assert await called(client, "delete_task", {CODE: "x", **ANN}, task_id=3) == (
            foreign.replace("2", "3")
        )
        assert await listed(client, BOB) == [(1, "Bob's own"), (2, "Another")]


@pytest.mark.parametrize("meta", [None, {}, *({"llmsim-lab/user_id": user} for user in (7, ""))])
async def test_a_request_for_nobody_is_refused(meta: Any) -> None:
    async with Client(task_server()) as client:
        assert "does not name the user" in await called(client, "list_tasks", meta)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("delete_task", {"task_id": "1"}, "task_id"),
        ("delete_task", {"task_id": 2**70}, "task_id"),
        ("add_task", {"description": " \n "}, "description"),
        ("add_task", {"description": "x" * 1001}, "description"),
        ("list_tasks", {"status": "all "}, "status"),
    ],
)
async def test_wrong_arguments_change_nothing_and_are_named(
    tool: str, arguments: dict[str, Any], said: str
) -> None:
    async with Client(task_server(user="ann")) as client:
        await called(client, "add_task", description="Buy milk")
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert said in words(result)
        assert await listed(client) == [(1, "Buy milk")]


# The program


@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="it cannot be sent there")
def test_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    command = [*COMMAND, "--db", str(tmp_path / "tasks.db"), "--user", "ann"]
    pipe = subprocess.PIPE
    program = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    client = {"name": "by hand", "version": "0"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    assert program.stdin is not None
    assert program.stdout is not None
    print(json.dumps(request), file=program.stdin, flush=True)
    assert '"llmsim-lab-tasks"' in program.stdout.readline()
    program.send_signal(signal.SIGINT)
    assert program.communicate(timeout=60) == ("", "")
    assert program.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("db", "said"),
    [
        ("no/such/tasks.db", "no/such/tasks.db: unable to open"),
        ("folder", "folder: unable to open"),
        ("letter.txt", "letter.txt: file is not a database"),
    ],
)
def test_what_keeps_it_from_serving_is_said_in_a_line(
    db: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "letter.txt").write_text("Dear Ann, " * 100)
    assert main(["--db", db]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("llmsim-lab-tasks: ")
    assert said in err


@pytest.mark.parametrize("module", ["tasks", "_mcp_executor"])
def test_without_the_extra_it_says_what_to_install(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"llmsim_lab.assistant.{module}"
    for missing in ("mcp", "mcp.server.mcpserver"):
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=r"pip install 'llmsim-lab\[tools\]'"):
        importlib.import_module(name)
