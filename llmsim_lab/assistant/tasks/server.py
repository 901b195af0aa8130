"""The task list as an MCP server: five tools, each for the user that the request is made for.

Who that is comes from the request's metadata, put there by the program that authenticated the
user, or from the server's own start (``--user``). It is no argument of any tool, so that no model
can write it, whichever program the model runs in.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import Field

from llmsim_lab.assistant.mcp_metadata import USER_KEY
from llmsim_lab.assistant.tasks.store import MAX_CHARS, Status, Task, TaskError, TaskStore
from llmsim_lab.assistant.tasks.strict import StrictServer, strict_tool
from llmsim_lab.errors import ConfigError
from llmsim_lab.values import Value

__all__ = ["TaskList", "task_server"]

_MAX_USER_CHARS = 200

TaskId = Annotated[int, Field(ge=1, description="The task's number, as the list shows it.")]
Description = Annotated[
    str,
    Field(min_length=1, max_length=MAX_CHARS, description="What is to be done, in a few words."),
]
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_CHANGES_ONCE = _CHANGES.model_copy(update={"idempotent_hint": True})
_DELETES = _CHANGES.model_copy(update={"destructive_hint": True})
_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)


class TaskList(Value):
    """What the list tool returns."""

    tasks: list[Task]


def task_server(store: TaskStore, *, user: str | None = None) -> MCPServer[Any]:
    """Return the server.

    Args:
        store: where the tasks are.
        user: whom all requests are for; a request made for somebody else is refused. None takes
            each request's own word, for programs that serve several users.

    Raises:
        ConfigError: ``user`` is empty or too long.
    """
    if user is not None and not 0 < len(user) <= _MAX_USER_CHARS:
        raise ConfigError(
            f"user={user!r:.60} has {len(user):,} characters; it must have 1 to {_MAX_USER_CHARS}"
        )

    def add_task(description: Description, ctx: Context[Any, Any]) -> Task:
        """Add a task to the user's list."""
        return store.add(_user_of(ctx, user), description)

    def list_tasks(
        ctx: Context[Any, Any],
        status: Annotated[Status, Field(description="Which tasks to show.")] = "all",
    ) -> TaskList:
        """Show the user's tasks with their numbers."""
        return TaskList(tasks=store.list(_user_of(ctx, user), status))

    def update_task(task_id: TaskId, description: Description, ctx: Context[Any, Any]) -> Task:
        """Change what a task says."""
        return store.update(_user_of(ctx, user), task_id, description)

    def complete_task(task_id: TaskId, ctx: Context[Any, Any]) -> Task:
        """Mark a task as done."""
        return store.complete(_user_of(ctx, user), task_id)

    def delete_task(task_id: TaskId, ctx: Context[Any, Any]) -> Task:
        """Remove a task for good."""
        return store.delete(_user_of(ctx, user), task_id)

    with _logging_left_alone():
        return StrictServer(
            "llmsim-lab-tasks",
            instructions="A user's task list. Deleting is for good: ask the user before.",
            tools=[
                strict_tool(add_task, annotations=_CHANGES),
                strict_tool(list_tasks, annotations=_READS),
                strict_tool(update_task, annotations=_CHANGES_ONCE),
                strict_tool(complete_task, annotations=_CHANGES_ONCE),
                strict_tool(delete_task, annotations=_DELETES),
            ],
        )


def _user_of(ctx: Context[Any, Any], fixed: str | None) -> str:
    """Return whom a request is made for.

    Raises:
        TaskError: it does not say, or says another than the server was started for.
    """
    said = (ctx.request_context.meta or {}).get(USER_KEY)
    if said is None and fixed is not None:
        return fixed
    if not isinstance(said, str) or not 0 < len(said) <= _MAX_USER_CHARS:
        raise TaskError("the request does not say which user it is made for")
    if fixed is not None and said != fixed:
        raise TaskError("this server works for another user")
    return said


@contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Keep the library from setting up logging for the whole program, as it does by default."""
    root, keep_out = logging.getLogger(), logging.NullHandler()
    root.addHandler(keep_out)
    try:
        yield
    finally:
        root.removeHandler(keep_out)
