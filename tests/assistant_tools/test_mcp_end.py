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
from builders import until

from llmsim_lab.assistant import MCPToolExecutor
from tests.assistant_tools.mcp_kit import RAW, runs, servers, slow_calls

pytestmark = pytest.mark.process


@pytest.mark.skipif(os.name != "posix", reason="on Windows the library ends them together")
async def test_closing_ends_the_calls_that_are_under_way_and_what_the_server_started() -> None:
    async with MCPToolExecutor(RAW) as tools:
        await tools.execute("stay", {}, "ann")
        server, child = (await tools.execute("spawn", {}, "ann")).data
        assert runs(child)
        calls = await slow_calls(tools, 3)
    assert {(await call).error_code for call in calls} == {"SERVER_DIED"}
    await until(lambda: not runs(server) and not runs(child))


async def test_an_executor_that_nobody_holds_ends_its_server() -> None:
    tools = MCPToolExecutor(RAW)
    await tools.start()
    assert len(servers()) == 1
    del tools
    gc.collect()
    await until(lambda: not servers())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on this system")
def test_a_forked_process_has_a_server_of_its_own_and_none_outlives_a_kill(tmp_path: Path) -> None:
    code = f"""
        import os, sys
        import psutil
        from llmsim_lab.assistant import MCPToolExecutor
        from llmsim_lab._util.waiting import run_sync
        tools = MCPToolExecutor({RAW!r})
        say = lambda tool: print(run_sync(tools.execute(tool, {{}}, 'ann')).data, flush=True)
        say('count')
        # Importing it takes seconds of the processor.
        assert 'rfc3987_syntax' not in sys.modules
        if (child := os.fork()) == 0:
            say('count')
            sys.exit(0)
        os.waitpid(child, 0)
        say('count')
        say('spawn')
        os.kill(os.getpid(), 9)
    """
    command, own = [sys.executable, "-c", textwrap.dedent(code)], {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **own}
    )
    *counts, spawned = done.stdout.splitlines()
    assert counts == ["1", "1", "2"], done.stderr
    pids = [int(number) for number in spawned.strip("[]").split(",")]
    # Waited for, since a program that was killed cannot do so itself.
    asyncio.run(until(lambda: not any(map(runs, pids))))
    assert (len(pids), [*tmp_path.iterdir()]) == (2, [])
