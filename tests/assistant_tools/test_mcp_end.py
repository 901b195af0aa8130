"""How a server that an executor keeps ends: on its own, with its program, or never."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.errors import ConfigError
from tests.assistant_tools.mcp_kit import RAW, runs, servers, slow_calls, until

pytestmark = pytest.mark.process


async def test_tools_that_were_closed_stay_closed(memory: MCPToolExecutor) -> None:
    await memory.ready()
    await memory.aclose()
    for use in (memory.start, memory.ready):
        with pytest.raises(ConfigError, match="make the executor again"):
            await use()
    with pytest.raises(ConfigError, match="make the executor again"):
        memory.get_available_tools()
    assert (await memory.execute("list_tasks", {}, "ann")).error_code == "SERVER_DIED"


async def test_closing_ends_the_calls_that_are_under_way() -> None:
    tools = MCPToolExecutor(RAW)
    calls = await slow_calls(tools, 3)
    await tools.aclose()
    assert {(await call).error_code for call in calls} == {"SERVER_DIED"}
    assert servers() == []


async def test_a_server_that_will_not_end_is_killed() -> None:
    tools = MCPToolExecutor([*RAW, "--stubborn"])
    await tools.ready()
    assert len(servers()) == 1
    await tools.aclose()
    assert servers() == []


@pytest.mark.skipif(os.name != "posix", reason="on Windows the library ends them together")
async def test_what_a_server_has_started_ends_when_it_is_closed() -> None:
    async with MCPToolExecutor(RAW) as tools:
        server, child = (await tools.execute("spawn", {}, "ann")).data
        assert runs(child)
    assert not runs(server)
    await until(lambda: not runs(child))


async def test_an_executor_that_nobody_holds_ends_its_server() -> None:
    tools = MCPToolExecutor(RAW)
    await tools.start()
    assert len(servers()) == 1
    del tools
    gc.collect()
    await until(lambda: not servers())


def program(body: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that prints the numbers of its servers' processes.

    Args:
        body: what it does after the server's start.
        folder: for its temporary files.
    """
    opening = f"""
        import asyncio, os, sys
        import psutil
        from llmsim_lab.assistant import MCPToolExecutor
        from llmsim_lab._util.waiting import run_sync
        tools = MCPToolExecutor({RAW!r})
        tools.get_available_tools()
        pids = [child.pid for child in psutil.Process().children()]
        print(*pids, flush=True)
    """
    code = textwrap.dedent(opening) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )


@pytest.mark.parametrize(
    "ending",
    ["raise KeyError('a fault')", "os.kill(os.getpid(), 9)"],
)
def test_neither_server_nor_what_it_started_nor_a_file_outlives_its_program(
    ending: str, tmp_path: Path
) -> None:
    spawn = "print(*run_sync(tools.execute('spawn', {}, 'ann')).data, flush=True)\n"
    done = program(spawn + ending, folder=tmp_path)
    pids = [int(word) for word in done.stdout.split()]
    # Waited for, since a program that was killed cannot do so itself.
    asyncio.run(until(lambda: not any(map(runs, pids))))
    assert len(pids) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on this system")
def test_a_forked_process_has_a_server_of_its_own(tmp_path: Path) -> None:
    done = program(
        """
        count = lambda: run_sync(tools.execute('count', {}, 'ann')).data
        print(count(), flush=True)
        if (child := os.fork()) == 0:
            print(count(), flush=True)
            sys.exit(0)
        os.waitpid(child, 0)
        print(count(), flush=True)
        """,
        folder=tmp_path,
    )
    assert done.stdout.splitlines()[1:] == ["1", "1", "2"], done.stderr
