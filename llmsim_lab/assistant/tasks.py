"""``llmsim-lab-tasks``: a small task list, served as five tools over MCP, as long as it runs.

Whose tasks a request is about comes from its metadata, written by the program that authenticated
the user. It is not an argument of any tool, so no model can choose it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from llmsim_lab.assistant._toolbox import ERROR_KEY, USER_KEY
from llmsim_lab.types import Value

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import CallToolResult, TextContent, ToolAnnotations
except ImportError as error:
    raise ImportError("the task server needs mcp: pip install 'llmsim-lab[tools]'") from error


class Task(Value):
    """One task; a user's numbers count up from 1, and none is given twice."""

    id: int
    description: str
    done: bool = False


class TaskList(Value):
    """What the list tool returns."""

    tasks: list[Task]


_ID = Field(
    ge=1,
    le=10**9,
    strict=True,
    description="The task's number, as the list shows it.",
)
_DESCRIPTION = Field(description="What is to be done, in a few words.")
_TEXT = StringConstraints(
    strip_whitespace=True,
    min_length=1,
    max_length=1000,
    strict=True,
)
_Number = Annotated[int, _ID]
_Words = Annotated[str, _TEXT, _DESCRIPTION]
_Status = Annotated[Literal["all", "open", "done"], Field(description="Which tasks to show.")]
_Request = Context[Any, Any]
_Changed = Annotated[CallToolResult, Task]
_READS = ToolAnnotations(
    read_only_hint=True,
    destructive_hint=False,
    open_world_hint=False,
)
_CHANGES = ToolAnnotations(
    read_only_hint=False,
    destructive_hint=False,
    open_world_hint=False,
)
_DELETES = ToolAnnotations(
    read_only_hint=False,
    destructive_hint=True,
    open_world_hint=False,
)


def task_server() -> MCPServer[Any]:
    """Return a server of tasks, which has none yet; each request names its user."""
    server: MCPServer[Any] = MCPServer("llmsim-lab-tasks", log_level="WARNING")
    # A deleted task leaves its place, so that no number is given again.
    lists: defaultdict[str, list[Task | None]] = defaultdict(list)

    def tasks_of_user(ctx: _Request) -> list[Task | None]:
        # Without a user an error, not a list that all share.
        user = (ctx.request_context.meta or {}).get(USER_KEY)
        if not isinstance(user, str) or not user:
            raise ToolError("the request does not name the user whose tasks are served here")
        return lists[user]

    def changed(
        ctx: _Request,
        number: int,
        *,
        is_deleted: bool = False,
        **fields: object,
    ) -> CallToolResult:
        tasks = tasks_of_user(ctx)
        task = tasks[number - 1] if number <= len(tasks) else None
        if task is None:  # nor is there for others, so that numbers reveal nothing
            text = f"there is no task {number}; list the tasks to see which there are"
            return CallToolResult(
                content=[TextContent(type="text", text=text)],
                is_error=True,
                _meta={ERROR_KEY: "NOT_FOUND"},
            )
        task = task.model_copy(update=fields)
        tasks[number - 1] = None if is_deleted else task
        return CallToolResult(
            content=[TextContent(type="text", text=task.model_dump_json())],
            structured_content=task.model_dump(),
        )

    # Async, so that they run one after another on the loop.
    @server.tool(annotations=_CHANGES)
    async def add_task(description: _Words, ctx: _Request) -> Task:
        """Add a task to the user's list."""
        tasks = tasks_of_user(ctx)
        task = Task(id=len(tasks) + 1, description=description)
        tasks.append(task)
        return task

    @server.tool(annotations=_READS)
    async def list_tasks(ctx: _Request, status: _Status = "all") -> TaskList:
        """Show the user's tasks with their numbers."""
        tasks = [task for task in tasks_of_user(ctx) if task is not None]
        if status != "all":
            tasks = [task for task in tasks if task.done == (status == "done")]
        return TaskList(tasks=tasks)

    @server.tool(annotations=_CHANGES)
    async def update_task(
        task_id: _Number,
        description: _Words,
        ctx: _Request,
    ) -> _Changed:
        """Change what a task says."""
        return changed(ctx, task_id, description=description)

    @server.tool(annotations=_CHANGES)
    async def complete_task(task_id: _Number, ctx: _Request) -> _Changed:
        """Mark a task as done."""
        return changed(ctx, task_id, done=True)

    @server.tool(annotations=_DELETES)
    async def delete_task(task_id: _Number, ctx: _Request) -> _Changed:
        """Remove a task for good."""
        return changed(ctx, task_id, is_deleted=True)

    return server


def main() -> None:
    """Serve until the client disconnects."""
    argparse.ArgumentParser(
        prog="llmsim-lab-tasks",
        description="Serve a task list as MCP tools over standard input and output, as long as "
        "this runs; each request names the user in its metadata.",
    ).parse_args()
    task_server().run()


if __name__ == "__main__":
    main()
