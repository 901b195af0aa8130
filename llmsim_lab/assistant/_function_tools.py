"""Tools that are Python functions of this program: no server, no other process."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError, validate_call
from pydantic_core import SchemaError

from llmsim_lab._util.text import faults
from llmsim_lab.assistant._toolbox import IDENTITY, failed_result, untitled, value_of, without
from llmsim_lab.assistant._types import ToolDeclaration, ToolResult
from llmsim_lab.errors import ConfigError, LabError, TapeError

_JSON: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


class FunctionTools:
    """Runs functions as tools.

    A function's name is the tool's, its docstring the description, its annotated parameters are
    the arguments. A parameter ``user_id`` is not one of them: it gets the user that the tool acts
    for. What the function returns must be JSON-ready or a pydantic model. Of a ``ValueError`` or an
    error of this package the model reads the message; of any other fault only the kind, and the
    program's log has the rest.

    A function runs in another thread (``asyncio.to_thread``), so that the event loop stays free and
    a time limit holds. A call that timed out continues there by itself, and several calls may run
    at once. An ``async`` function runs on the loop's thread, where it can use what belongs to that
    thread.

    Args:
        functions: the tools.
        destructive: names of those whose calls need the user's yes.

    Raises:
        ConfigError: a function cannot be a tool; the message says why.

    Example:
        >>> def population(country: str) -> float:
        ...     '''Look up a country's population, millions.'''
        ...     if country not in POPULATIONS:
        ...         raise ValueError(f"no such country; there are {', '.join(POPULATIONS)}")
        ...     return POPULATIONS[country]
        >>> tools = FunctionTools(population)
    """

    def __init__(self, *functions: Callable[..., Any], destructive: Sequence[str] = ()) -> None:
        self._tools: dict[str, _Tool] = {}
        for function in functions:
            tool = _Tool(function, destructive)
            if tool.name in self._tools:
                raise ConfigError(f"two tools have the name {tool.name!r}; rename one function")
            self._tools[tool.name] = tool
        if unknown := sorted(set(destructive) - self._tools.keys()):
            raise ConfigError(f"destructive names no tool: {', '.join(unknown)}")

    def get_available_tools(self) -> list[str]:
        """Return the functions' names."""
        return list(self._tools)

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as they exist."""
        return [self._tools[name].declaration for name in names if name in self._tools]

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Call a function; a ``ValueError`` or an error of this package is a failed result."""
        if (tool := self._tools.get(tool_name)) is None:
            return failed_result(f"there is no tool {tool_name!r}", "TOOL_NOT_FOUND")
        try:
            value = await tool.called(parameters, user_id)
        except TapeError:
            raise
        except ValidationError as error:
            return failed_result(faults(error), "INVALID_PARAMETERS")
        except (ValueError, LabError) as error:
            return failed_result(str(error) or type(error).__name__, "TOOL_ERROR")
        try:
            return ToolResult(success=True, data=json.loads(_JSON.dump_json(value)))
        except ValueError as error:
            what = f"its result, of type {type(value).__name__}, is not ready for JSON: {error}"
            return failed_result(what, "INVALID_RESULT")

    def __repr__(self) -> str:
        return f"FunctionTools({', '.join(self._tools)})"


class _Tool:
    """One function with its declaration."""

    def __init__(self, function: Callable[..., Any], destructive: Sequence[str]) -> None:
        self.name: str = function.__name__
        if not (description := inspect.getdoc(function)):
            raise ConfigError(
                f"the tool {self.name!r} needs a docstring: the model reads what it is for"
            )
        typed: Any = function  # a function is a type to pydantic, not to mypy
        try:
            self._checked = validate_call(config=ConfigDict(allow_inf_nan=False))(function)
            schema = TypeAdapter(typed).json_schema()
        except (PydanticUserError, SchemaError, TypeError, NameError) as error:
            why = str(error).partition("\n")[0]
            raise ConfigError(
                f"the parameters of the tool {self.name!r} cannot come from JSON: {why}"
            ) from error
        self._acts_for_user = IDENTITY in schema["properties"]
        self.declaration = ToolDeclaration(
            name=self.name,
            description=description,
            parameters=untitled(without(schema)),
            destructive=True if self.name in destructive else None,
        )

    async def called(self, parameters: dict[str, Any], user_id: str) -> Any:
        """Return what the function returns, or raise what it raises."""
        arguments = parameters | ({IDENTITY: user_id} if self._acts_for_user else {})
        if inspect.iscoroutinefunction(self._checked):
            return await self._checked(**arguments)
        # A decorated async function may look like a plain one and return what has to be awaited.
        return await value_of(await asyncio.to_thread(self._checked, **arguments))
