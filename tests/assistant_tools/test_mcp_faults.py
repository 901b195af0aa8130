"""Servers that die, hang, write garbage or answer late: what an executor makes of it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from builders import until

from llmsim_lab.assistant import MCPToolExecutor
from tests.assistant_tools.mcp_kit import RAW, runs

pytestmark = pytest.mark.process


async def test_a_server_that_dies_in_a_call_is_a_result_and_starts_again(
    raw: MCPToolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    result = await raw.execute("die", {}, "ann")
    assert (result.success, result.error_code) == (False, "SERVER_DIED")
    assert "may have been done" in str(result.error)
    assert (await raw.execute("count", {}, "ann")).data == 1
    assert "I cannot go on" in caplog.text
    assert "I cannot go on" not in str(result.error)


@pytest.mark.skipif(os.name != "posix", reason="on Windows the library ends them together")
async def test_a_killed_servers_group_ends_with_it_and_another_server_starts() -> None:
    async with MCPToolExecutor(RAW) as tools:
        server, child = (await tools.execute("spawn", {}, "ann")).data
        held = asyncio.create_task(tools.execute("hold", {}, "ann"))
        os.kill(server, signal.SIGKILL)
        assert (await held).error_code == "SERVER_DIED"
        await until(lambda: not runs(child))
        assert (await tools.execute("count", {}, "ann")).data == 1


async def test_a_late_answer_is_not_taken_for_the_next_calls(raw: MCPToolExecutor) -> None:
    before = (await raw.execute("count", {}, "ann")).data
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(raw.execute("hold", {}, "ann"), 0.2)
    assert (await raw.execute("count", {}, "ann")).data == before + 1
    assert (await raw.execute("no_json", {}, "ann")).data == "just a text"


async def test_a_server_may_write_any_amount_of_errors_and_is_started_again_without_output(
    raw: MCPToolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await raw.execute("chatter", {}, "ann")).success
    assert (await raw.execute("mute", {}, "ann")).error_code == "SERVER_DIED"
    assert (await raw.execute("count", {}, "ann")).data == 1
    assert "the very last words" in caplog.text
    assert len(caplog.text) < 10_000
