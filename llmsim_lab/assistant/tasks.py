"""``llmsim-lab-tasks``: a small task list in SQLite, served as five tools over MCP.

Whose tasks a request is about comes from its metadata, written by the program that authenticated
the user, or from ``--user``. It is not an argument of any tool, so no model can choose it.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
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


_ID = Field(ge=1, le=10**9, strict=True, description="The task's number, as the list shows it.")
_WHAT = Field(description="What is to be done, in a few words.")
_TEXT = StringConstraints(strip_whitespace=True, min_length=1, max_length=1000, strict=True)
_Number = Annotated[int, _ID]
_Words = Annotated[str, _TEXT, _WHAT]
_Status = Annotated[Literal["all", "open", "done"], Field(description="Which tasks to show.")]
_Request = Context[Any, Any]
_Changed = Annotated[CallToolResult, Task]
_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_DELETES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
# users.last_number survives deletions, so that no number is given again.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS users (user_id TEXT PRIMARY KEY, last_number INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS tasks (user_id TEXT NOT NULL REFERENCES users, number INTEGER NOT NULL,
    description TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (user_id, number)
) STRICT, WITHOUT ROWID;
"""


def task_server(db: Path | str = ":memory:", *, user: str | None = None) -> MCPServer[Any]:
    """Return the server of the tasks in a SQLite file.

    Args:
        db: the file, made if it does not exist.
        user: whose tasks; without it each request names the user.

    Raises:
        sqlite3.Error: the file cannot be opened, or is not a database.
    """
    store = sqlite3.connect(db, check_same_thread=False, isolation_level=None)
    store.executescript(_SCHEMA)
    store.row_factory = sqlite3.Row
    server: MCPServer[Any] = MCPServer("llmsim-lab-tasks", log_level="WARNING")
    weakref.finalize(server, store.close)

    def user_of(ctx: _Request) -> str:
        named = (ctx.request_context.meta or {}).get(USER_KEY, user)
        if not isinstance(named, str) or not named or user not in (None, named):
            raise ToolError("the request does not name the user whose tasks are served here")
        return named

    def changed(ctx: _Request, number: int, change: str, *values: str) -> CallToolResult:
        where = "WHERE user_id = ? AND number = ? RETURNING number AS id, description, done"
        row = store.execute(f"{change} {where}", (*values, user_of(ctx), number)).fetchone()
        if row is None:  # nor is there for others, so that numbers reveal nothing
            text = f"there is no task {number}; list the tasks to see which there are"
            how: dict[str, Any] = {"is_error": True, "_meta": {ERROR_KEY: "NOT_FOUND"}}
        else:
            task = Task(**row)
            text, how = task.model_dump_json(), {"structured_content": task.model_dump()}
        return CallToolResult(content=[TextContent(type="text", text=text)], **how)

    # Async, so that they run one after another on the loop and share the connection.
    @server.tool(annotations=_CHANGES)
    async def add_task(description: _Words, ctx: _Request) -> Task:
        """Add a task to the user's list."""
        count = (
            "INSERT INTO users VALUES (?, 1) ON CONFLICT DO UPDATE SET last_number = "
            "last_number + 1 RETURNING last_number"
        )
        [number] = store.execute(count, (owner := user_of(ctx),)).fetchone()
        store.execute("INSERT INTO tasks VALUES (?, ?, ?, 0)", (owner, number, description))
        return Task(id=number, description=description)

    @server.tool(annotations=_READS)
    async def list_tasks(ctx: _Request, status: _Status = "all") -> TaskList:
        """Show the user's tasks with their numbers."""
        query = (
            "SELECT number AS id, description, done FROM tasks WHERE user_id = ? ORDER BY number"
        )
        tasks = [Task(**row) for row in store.execute(query, (user_of(ctx),))]
        return TaskList(tasks=[t for t in tasks if status == "all" or t.done == (status == "done")])

    @server.tool(annotations=_CHANGES)
    async def update_task(task_id: _Number, description: _Words, ctx: _Request) -> _Changed:
        """Change what a task says."""
        return changed(ctx, task_id, "UPDATE tasks SET description = ?", description)

    @server.tool(annotations=_CHANGES)
    async def complete_task(task_id: _Number, ctx: _Request) -> _Changed:
        """Mark a task as done."""
        return changed(ctx, task_id, "UPDATE tasks SET done = 1")

    @server.tool(annotations=_DELETES)
    async def delete_task(task_id: _Number, ctx: _Request) -> _Changed:
        """Remove a task for good."""
        return changed(ctx, task_id, "DELETE FROM tasks")

    return server


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the client disconnects; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="llmsim-lab-tasks",
        description="Serve a task list as MCP tools over standard input and output. MCP clients "
        "start this command themselves: name it in their settings.",
    )
    parser.add_argument(
        "--db", default=":memory:", metavar="FILE", help="SQLite file; in memory if not given"
    )
    parser.add_argument("--user", metavar="NAME", help="whose tasks; else each request says it")
    options = parser.parse_args(argv)
    try:
        server = task_server(options.db, user=options.user)
    except sqlite3.Error as error:
        print(f"llmsim-lab-tasks: {options.db}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    # Ctrl-C ends it at once; Python's own handler would wait for the thread that reads the input.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
