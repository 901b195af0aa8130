"""The tools of servers: the shipped one in memory, and one that misbehaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant.tasks import task_server
from tests.assistant_tools.mcp_kit import RAW


@pytest.fixture
def memory() -> Iterator[MCPToolExecutor]:
    """The task server's tools, without a task."""
    with closing(MCPToolExecutor(task_server())) as tools:
        yield tools


@pytest.fixture(scope="module")
def raw() -> Iterator[MCPToolExecutor]:
    with closing(MCPToolExecutor(RAW)) as tools:
        yield tools
