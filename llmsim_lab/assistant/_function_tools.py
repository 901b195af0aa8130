"""Tools that are Python functions of this program: no server, no other process."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError, validate_call
from pydantic_core import SchemaError, to_jsonable_python

from llmsim_lab._util.checks import items_of
from llmsim_lab._util.text import brief, clip, faults
from llmsim_lab._util.waiting import called_in_thread
from llmsim_lab.assistant._toolbox import IDENTITY, failed_result, without
from llmsim_lab.assistant.types import Arguments, ToolDeclaration, ToolResult
from llmsim_lab.errors import ConfigError, LabError, TapeError


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

    def __init__(self, *functions: Any, destructive: Sequence[str] = ()) -> None:
        self._calls: dict[str, Callable[..., Any]] = {}
        self._declared: dict[str, ToolDeclaration] = {}
        asking_first = items_of("destructive", destructive, str, "a list of tools' names")
        for function in functions:
            name = getattr(function, "__name__", "")
            if not name or not callable(function):
                raise ConfigError(
                    f"{brief(function)} is not a function that could be a tool; write one around "
                    "it: def look_up(word: str) -> str"
                )
            description = inspect.getdoc(function)
            if name in self._calls:
                raise ConfigError(f"two tools have the name {name!r}; rename one function")
            if not description:
                raise ConfigError(f"the tool {name!r} needs a docstring, for the model to read")
            try:
                # NaN and infinity are not JSON: a tape could not hold a call with them.
                self._calls[name] = validate_call(config=ConfigDict(allow_inf_nan=False))(function)
                schema = without(TypeAdapter(function).json_schema())
            except (PydanticUserError, SchemaError, TypeError, NameError) as error:
                raise ConfigError(
                    f"the parameters of the tool {name!r} cannot come from JSON: "
                    f"{clip(str(error), 200)}"
                ) from error
            # None leaves it to the name: "delete_task" asks first in any case.
            needs_yes = True if name in asking_first else None
            self._declared[name] = ToolDeclaration(name, description, schema, needs_yes)
        unknown = sorted(set(asking_first) - self._calls.keys())
        if unknown:
            raise ConfigError(f"destructive names no tool: {', '.join(unknown)}")

    def get_available_tools(self) -> list[str]:
        """Return the functions' names."""
        return list(self._calls)

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as they exist."""
        return [self._declared[name] for name in names if name in self._declared]

    async def execute(
        self,
        tool_name: str,
        parameters: Arguments,
        user_id: str,
    ) -> ToolResult:
        """Call a function; a ``ValueError`` or an error of this package is a failed result."""
        function = self._calls.get(tool_name)
        if function is None:
            return failed_result(f"there is no tool {tool_name!r}", "TOOL_NOT_FOUND")
        # Only here, from the context: a model never chooses who a tool acts for.
        if IDENTITY in inspect.signature(function).parameters:
            parameters = parameters | {IDENTITY: user_id}
        try:
            call = partial(function, **parameters)
            value = await asyncio.to_thread(called_in_thread, call)
            # In the thread an async function only makes its coroutine, which runs on this loop.
            if inspect.isawaitable(value):
                value = await value
            return ToolResult(success=True, data=to_jsonable_python(value))
        # Not a tool's fault but a replay's: it must reach the user as it is.
        except TapeError:
            raise
        except ValidationError as error:
            return failed_result(faults(error), "INVALID_PARAMETERS")
        except (ValueError, LabError) as error:
            return failed_result(str(error) or type(error).__name__, "TOOL_ERROR")

    def __repr__(self) -> str:
        return f"FunctionTools({', '.join(self._calls)})"
