"""Tools of a server in this process: calls that break off or are given up."""

from __future__ import annotations

import asyncio

import pytest

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant.tasks import task_server


async def test_a_caller_that_is_cancelled_stays_so() -> None:
    async with MCPToolExecutor(task_server()) as tools:
        call = asyncio.create_task(tools.execute("list_tasks", {}, "ann"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await tools.execute("list_tasks", {}, "ann")).success
