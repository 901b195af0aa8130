"""Servers that die, hang, write garbage or answer late: what an executor makes of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant._types import ToolResult
from tests.assistant_tools.mcp_kit import RAW, runs, slow_calls, until

pytestmark = pytest.mark.process


async def impatiently(tools: MCPToolExecutor, tool: str, *, timeout_s: float = 0.2) -> ToolResult:
    """Run a tool for a moment only, on a server that has been started."""
    await tools.ready()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "timeout_s", timeout_s)
        return await tools.execute(tool, {}, "ann")


# Death


async def test_a_server_that_dies_in_a_call_is_a_result_and_starts_again(
    faulty: MCPToolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    result = await faulty.execute("die", {}, "ann")
    assert (result.success, result.error_code) == (False, "SERVER_DIED")
    assert "may have been done" in str(result.error)
    assert (await faulty.execute("count", {}, "ann")).data == 1
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


async def test_a_server_that_hangs_is_given_up_and_started_again(
    faulty: MCPToolExecutor,
) -> None:
    result = await impatiently(faulty, "hang")
    assert (result.success, result.error_code) == (False, "TIMEOUT")
    assert "within 0.2 s" in str(result.error)
    assert (await faulty.execute("count", {}, "ann")).data == 1


async def test_a_slow_tool_does_not_cost_the_server_its_life(
    faulty: MCPToolExecutor,
) -> None:
    before = (await faulty.execute("count", {}, "ann")).data
    assert (await impatiently(faulty, "slow")).error_code == "TIMEOUT"
    assert (await faulty.execute("count", {}, "ann")).data == before + 1


async def test_a_caller_that_gives_up_leaves_a_server_that_answers_alone(
    faulty: MCPToolExecutor,
) -> None:
    before = (await faulty.execute("count", {}, "ann")).data
    [call] = await slow_calls(faulty, 1)
    await given_up(call)
    assert (await faulty.execute("count", {}, "ann")).data == before + 1


async def given_up(call: asyncio.Task[ToolResult]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_garbage_is_no_answer_and_is_got_over(
    raw: MCPToolExecutor,
) -> None:
    result = await impatiently(raw, "garbage", timeout_s=2)
    assert (result.success, result.error_code) == (False, "TIMEOUT")
    assert "Segmentation" not in str(result.error)
    assert (await raw.execute("noise", {}, "ann")).success


@pytest.mark.parametrize("tool", ["nonsense", "wrong_schema"])
async def test_an_answer_of_the_wrong_form_is_an_invalid_result(
    raw: MCPToolExecutor, tool: str
) -> None:
    assert (await raw.execute(tool, {}, "ann")).error_code == "INVALID_RESULT"


async def test_a_crash_in_a_tool_tells_nothing_of_its_inside(faulty: MCPToolExecutor) -> None:
    result = await faulty.execute("crash", {}, "ann")
    assert result.error_code == "TOOL_ERROR"
    assert "internal detail" not in str(result.error)


async def test_the_calls_of_others_end_too_when_the_server_dies(faulty: MCPToolExecutor) -> None:
    others = await slow_calls(faulty, 3)
    await faulty.execute("die", {}, "ann")
    assert {(await other).error_code for other in others} == {"SERVER_DIED"}


async def test_many_calls_after_a_death_start_one_server(faulty: MCPToolExecutor) -> None:
    await faulty.execute("die", {}, "ann")
    results = await asyncio.gather(*(faulty.execute("count", {}, "ann") for _ in range(20)))
    assert sorted(result.data for result in results) == list(range(1, 21))


async def test_a_server_that_only_closes_its_output_is_started_again(raw: MCPToolExecutor) -> None:
    result = await raw.execute("mute", {}, "ann")
    assert result.error_code == "SERVER_DIED"
    assert (await raw.execute("count", {}, "ann")).data == 1


# Lateness


async def test_a_late_answer_is_not_taken_for_the_next_calls(raw: MCPToolExecutor) -> None:
    before = (await raw.execute("count", {}, "ann")).data
    assert (await impatiently(raw, "hold")).error_code == "TIMEOUT"
    assert (await raw.execute("count", {}, "ann")).data == before + 1
    assert (await raw.execute("no_json", {}, "ann")).data == "just a text"


# Garbage


async def test_a_megabyte_of_garbage_before_an_answer_is_passed_over(raw: MCPToolExecutor) -> None:
    assert (await raw.execute("flood", {}, "ann")).data == "just a text"


async def test_a_server_may_write_any_amount_of_errors(
    raw: MCPToolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await raw.execute("chatter", {}, "ann")).success
    assert (await raw.execute("mute", {}, "ann")).error_code == "SERVER_DIED"
    assert "the very last words" in caplog.text
    assert len(caplog.text) < 10_000


async def test_bytes_that_are_no_text_are_passed_over(raw: MCPToolExecutor) -> None:
    before = (await raw.execute("count", {}, "ann")).data
    assert (await raw.execute("binary", {}, "ann")).data == "just a text"
    assert (await raw.execute("count", {}, "ann")).data == before + 1


async def test_a_thousand_lines_of_garbage_are_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with MCPToolExecutor(RAW) as tools:
        for _ in range(2):
            assert (await tools.execute("babble", {}, "ann")).success
    [warning] = [record for record in caplog.records if record.levelname != "DEBUG"]
    assert warning.getMessage().startswith("tool_server_garbage ")
    assert "raw_server.py" in warning.getMessage()


# What cannot be sent


@pytest.mark.parametrize(
    "value",
    ["half \ud800", json.loads("[" * 300 + "]" * 300)],
    ids=["text", "depth"],
)
async def test_arguments_that_are_no_json_cost_nobody_the_connection(
    faulty: MCPToolExecutor, value: Any
) -> None:
    before = (await faulty.execute("count", {}, "ann")).data
    other = asyncio.create_task(faulty.execute("plain", {}, "bob"))
    result = await faulty.execute("plain", {"value": value}, "ann")
    assert result.error_code == "INVALID_PARAMETERS"
    assert "the arguments: no JSON can be made of it" in str(result.error)
    assert (await other).success
    assert (await faulty.execute("count", {}, "ann")).data == before + 1
