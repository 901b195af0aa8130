"""Tools that are Python functions of this program: no server, no other process."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError, validate_call
from pydantic_core import PydanticSerializationError, SchemaError

from llmsim_lab._util.text import faults
from llmsim_lab.assistant._toolbox import (
    IDENTITY,
    failed_result,
    is_identity,
    schema_without_user,
    untitled,
)
from llmsim_lab.assistant._types import ToolDeclaration, ToolResult
from llmsim_lab.errors import ConfigError, LabError, TapeError

logger = logging.getLogger(__name__)

_JSON: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


class FunctionTools:
    """Runs functions as tools.

    A function's name is the tool's, its docstring the description, its annotated parameters are
    the arguments. A parameter ``user_id`` is not one of them: it gets the user that the tool acts
    for. What the function returns must be JSON-ready or a pydantic model. Of a ``ValueError`` or an
    error of this package the model reads the message; of any other fault, and of ``sys.exit()``,
    only the kind, and the program's log has the rest.

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
        """Call a function; its faults are results.

        Raises:
            TapeError: the function asked a recording for a call that it does not hold.
        """
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
        except (Exception, SystemExit) as error:
            logger.warning("tool_failure tool=%s", tool_name, exc_info=error)
            return failed_result(f"it failed: {type(error).__name__}", "TOOL_ERROR")
        try:
            return ToolResult(success=True, data=_JSON.dump_python(value, mode="json"))
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            logger.warning("tool_failure tool=%s", tool_name, exc_info=error)
            what = f"its result, of type {type(value).__name__}, is not ready for JSON"
            return failed_result(what, "INVALID_RESULT")

    def __repr__(self) -> str:
        return f"FunctionTools({', '.join(self._tools)})"


class _Tool:
    """One function with its declaration."""

    def __init__(self, function: Callable[..., Any], destructive: Sequence[str]) -> None:
        self.name: str = getattr(function, "__name__", "")
        if not self.name.isidentifier():
            raise ConfigError(
                f"{function!r} has no name that a tool could have; use a plain function"
            )
        if not (description := inspect.getdoc(function)):
            raise ConfigError(
                f"the tool {self.name!r} needs a docstring: the model reads what it is for"
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"the tool {self.name!r} yields; let it return a list")
        typed: Any = function  # a function is a type to pydantic, not to mypy
        try:
            self._checked = validate_call(config=ConfigDict(allow_inf_nan=False))(function)
            schema = TypeAdapter(typed).json_schema()
        except (PydanticUserError, SchemaError, TypeError, NameError) as error:
            why = str(error).partition("\n")[0]
            raise ConfigError(
                f"the parameters of the tool {self.name!r} cannot come from JSON: {why}"
            ) from error
        if schema.get("additionalProperties") is not False:
            raise ConfigError(
                f"the tool {self.name!r} has parameters without a name of their own: "
                f"{inspect.signature(function)}"
            )
        if odd := [name for name in schema["properties"] if is_identity(name) and name != IDENTITY]:
            raise ConfigError(
                f"parameter {odd[0]!r} of the tool {self.name!r}: no model is asked for the user; "
                f"call it {IDENTITY}, and it is given who the tool acts for"
            )
        self._acts_for_user = IDENTITY in schema["properties"]
        self.declaration = ToolDeclaration(
            name=self.name,
            description=description,
            parameters=untitled(schema_without_user(schema)),
            destructive=True if self.name in destructive else None,
        )

    async def called(self, parameters: dict[str, Any], user_id: str) -> Any:
        """Return what the function returns.

        Raises:
            ValidationError: an argument is missing, wrong or unknown.
            Exception: whatever the function raises.
        """
        arguments = parameters | ({IDENTITY: user_id} if self._acts_for_user else {})
        if inspect.iscoroutinefunction(self._checked):
            return await self._checked(**arguments)

        def outcome() -> tuple[Any, BaseException | None]:
            # As a value, since a future cannot carry every exception: not a StopIteration.
            try:
                return self._checked(**arguments), None
            except BaseException as error:  # noqa: BLE001 - raised again below
                return None, error

        value, error = await asyncio.to_thread(outcome)
        if error is not None:
            raise error
        # A decorated async function may look like a plain one and return what has to be awaited.
        return await value if inspect.isawaitable(value) else value
