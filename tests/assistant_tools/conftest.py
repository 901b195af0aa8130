"""A task list, and the tools of servers: the shipped one in memory, and two that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant.tasks._server import task_server
from llmsim_lab.assistant.tasks._store import TaskStore
from tests.assistant_tools.mcp_kit import FAULTY, RAW


@pytest.fixture
def store() -> Iterator[TaskStore]:
    """Two users' tasks."""
    with closing(TaskStore()) as made:
        made.add("ann", "Buy milk")
        made.add("bob", "Bob's secret")
        made.add("ann", "Call mum")
        yield made


@pytest.fixture
def memory() -> Iterator[MCPToolExecutor]:
    """The task server's tools, without a task."""
    with closing(TaskStore()) as made, closing(MCPToolExecutor(task_server(made))) as tools:
        yield tools


@pytest.fixture(scope="module")
def faulty() -> Iterator[MCPToolExecutor]:
    with closing(MCPToolExecutor(FAULTY)) as tools:
        yield tools


@pytest.fixture(scope="module")
def raw() -> Iterator[MCPToolExecutor]:
    with closing(MCPToolExecutor(RAW)) as tools:
        yield tools
