"""The task list as an MCP server: five tools, each for the user that the request is made for.

Who that is comes from the request's metadata, written by the program that authenticated the user,
or from the server's own start (``--user``). It is not an argument of any tool, so no model can
write it, whichever program the model runs in.

The ``mcp`` library's own server ignores arguments that a tool does not have, takes true or "1" for
1, and answers wrong arguments with a validator's dump. Here they fail with one line, in a result
that is marked as an error, as the protocol wants it so that models can correct themselves.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError, create_model

from llmsim_lab._util.text import clip, few, printable
from llmsim_lab.assistant._toolbox import ERROR_KEY, USER_KEY
from llmsim_lab.assistant._types import ServerErrorCode
from llmsim_lab.assistant.tasks._store import MAX_CHARS, Status, Task, TaskError, TaskStore
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import Value

_MAX_USER_CHARS = 200
_MAX_FAULTS = 5
_MAX_SHOWN = 60

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
        user: who all requests are for; one for somebody else fails. None takes the user that each
            request names, for programs that serve several users.

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

    # The library sets up logging for the whole program, by basicConfig, which does nothing where
    # the root logger has a handler.
    root, keep_out = logging.getLogger(), logging.NullHandler()
    root.addHandler(keep_out)
    try:
        return _StrictServer(
            "llmsim-lab-tasks",
            instructions="A user's task list. Deleting is for good: ask the user before.",
            tools=[
                _strict_tool(add_task, annotations=_CHANGES),
                _strict_tool(list_tasks, annotations=_READS),
                _strict_tool(update_task, annotations=_CHANGES_ONCE),
                _strict_tool(complete_task, annotations=_CHANGES_ONCE),
                _strict_tool(delete_task, annotations=_DELETES),
            ],
        )
    finally:
        root.removeHandler(keep_out)


def _user_of(ctx: Context[Any, Any], fixed: str | None) -> str:
    """Return the user that a request is made for.

    Raises:
        TaskError: it names none, or another than the server was started for.
    """
    named = (ctx.request_context.meta or {}).get(USER_KEY)
    if named is None and fixed is not None:
        return fixed
    if not isinstance(named, str) or not 0 < len(named) <= _MAX_USER_CHARS:
        raise TaskError("the request does not say which user it is made for")
    if fixed is not None and named != fixed:
        raise TaskError("this server works for another user")
    return named


# --- strict arguments -----------------------------------------------------------------------------


class _StrictServer(MCPServer[Any]):
    """Tells a model what it did wrong, and nothing about faults of its own.

    Args:
        name: the server's.
        instructions: what a model should know of the tools as a whole.
        tools: as ``_strict_tool`` makes them.
    """

    def __init__(self, name: str, *, instructions: str, tools: Sequence[Tool]) -> None:
        super().__init__(name, instructions=instructions, tools=list(tools), log_level="WARNING")
        self._schemas = {tool.name: tool.parameters for tool in tools}

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; wrong arguments and a ``TaskError`` are results.

        Raises:
            ToolError: there is no such tool, or it crashed.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, TaskError):
                return _failed(str(cause), cause.code)
            # Unexpected: raised by the tool's own code, which is not the model's fault.
            if isinstance(cause, ValidationError) and not isinstance(error, UnexpectedToolError):
                text = _complaint(name, self._schemas[name], cause)
                return _failed(text, "INVALID_PARAMETERS")
            raise


def _strict_tool(function: Callable[..., Any], *, annotations: ToolAnnotations) -> Tool:
    """Return a function as a tool that takes no unknown arguments and no values of another type.

    Args:
        function: as for the library's own tools.
        annotations: what it does to the world.
    """
    tool = Tool.from_function(function, annotations=annotations)
    lax = tool.fn_metadata.arg_model
    # By class arguments, since pydantic takes either a base or a configuration.
    model = create_model(
        lax.__name__, __base__=lax, __cls_kwargs__={"extra": "forbid", "strict": True}
    )
    metadata = tool.fn_metadata.model_copy(update={"arg_model": model})
    schema = model.model_json_schema()
    return tool.model_copy(update={"fn_metadata": metadata, "parameters": schema})


def _failed(text: str, code: ServerErrorCode) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)], is_error=True, _meta={ERROR_KEY: code}
    )


def _complaint(tool: str, schema: dict[str, Any], error: ValidationError) -> str:
    faults = error.errors(include_url=False)
    complaints = [_fault(tool, schema["properties"], fault) for fault in faults]
    return "; ".join(few(complaints, _MAX_FAULTS))


def _fault(tool: str, properties: dict[str, Any], fault: Any) -> str:
    name = fault["loc"][0]
    if name not in properties:
        return f"{tool} has no argument {_quoted(name)}; it takes {', '.join(properties)}"
    allowed = _allowed(properties[name])
    if fault["type"] == "missing":
        return f"{name} is missing; it must be {allowed}"
    return f"{name} must be {allowed}; it is {_quoted(fault['input'])}"


def _allowed(schema: dict[str, Any]) -> str:
    """Return what an argument must be, for the kinds of schema that these tools have."""
    if "enum" in schema:
        return f"one of {', '.join(map(json.dumps, schema['enum']))}"
    if schema["type"] == "integer":
        return f"a whole number from {schema['minimum']} on"
    return f"a text of {schema['minLength']} to {schema['maxLength']:,} characters"


def _quoted(value: Any) -> str:
    text = clip(printable(json.dumps(value, ensure_ascii=False, default=str)), _MAX_SHOWN)
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        return f"{text} ({len(value):,} characters)"
    return text
