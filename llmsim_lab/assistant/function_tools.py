"""Tools that are Python functions of this program: no server, no other process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from llmsim_lab.assistant.protocols import ToolDeclaration
from llmsim_lab.assistant.types import ToolResult
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.text import faults
from llmsim_lab.values import reply_schema

__all__ = ["FunctionTools"]

_IDENTITY = "user_id"
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


class FunctionTools:
    """Runs functions as tools.

    A function's name is the tool's, its docstring the description, its annotated parameters are
    the arguments. A parameter ``user_id`` is none of them: it is given who the tool acts for. The
    function may be ``async``. What it returns must be JSON-ready or a pydantic model; a
    ``ValueError`` or an error of this package that it raises is told to the model.

    Args:
        functions: the tools.
        destructive: names of those whose calls need the user's yes.

    Raises:
        ConfigError: a function has no docstring or an unannotated parameter, or a name is taken.

    Example:
        >>> def population(country: str) -> float:
        ...     '''Look up a country's population, millions.'''
        ...     return {"Aland": 0.03}[country]
        >>> tools = FunctionTools(population)
    """

    def __init__(self, *functions: Callable[..., Any], destructive: Sequence[str] = ()) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._arguments: dict[str, type[BaseModel]] = {}
        self._declarations: dict[str, ToolDeclaration] = {}
        for function in functions:
            name = getattr(function, "__name__", "")
            if name in self._functions:
                raise ConfigError(f"two tools have the name {name!r}; rename one function")
            arguments = _arguments_of(function, name)
            self._functions[name] = function
            self._arguments[name] = arguments
            self._declarations[name] = ToolDeclaration(
                name=name,
                description=inspect.getdoc(function) or "",
                parameters=_schema_of(arguments),
                destructive=True if name in destructive else None,
            )
        if unknown := sorted(set(destructive) - self._functions.keys()):
            raise ConfigError(f"destructive names no tool: {', '.join(unknown)}")

    def get_available_tools(self) -> list[str]:
        """Return the functions' names."""
        return list(self._functions)

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as they are there."""
        return [self._declarations[name] for name in names if name in self._declarations]

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Call a function."""
        if (function := self._functions.get(tool_name)) is None:
            return _failed(f"there is no tool {tool_name!r}", "TOOL_NOT_FOUND")
        try:
            checked = self._arguments[tool_name].model_validate(parameters)
        except ValidationError as error:
            return _failed(faults(error), "INVALID_PARAMETERS")
        arguments = {name: getattr(checked, name) for name in type(checked).model_fields}
        if _IDENTITY in inspect.signature(function).parameters:
            arguments[_IDENTITY] = user_id
        try:
            value = function(**arguments)
            if inspect.isawaitable(value):
                value = await value
        except (ValueError, LabError) as error:
            return _failed(str(error), "TOOL_ERROR")
        return ToolResult(success=True, data=_JSON.dump_python(value, mode="json"))

    def __repr__(self) -> str:
        return f"FunctionTools({', '.join(self._functions)})"


def _arguments_of(function: Callable[..., Any], name: str) -> type[BaseModel]:
    if not name.isidentifier():
        raise ConfigError(f"{function!r} has no name that a tool could have; use a plain function")
    if not inspect.getdoc(function):
        raise ConfigError(f"the tool {name!r} needs a docstring: the model reads what it is for")
    fields: dict[str, Any] = {}
    for key, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if key == _IDENTITY:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"parameter {parameter} of the tool {name!r} has no name of its own")
        if parameter.annotation is parameter.empty:
            raise ConfigError(
                f"parameter {key!r} of the tool {name!r} needs a type, e.g. {key}: str"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[key] = (parameter.annotation, default)
    made: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return made


def _schema_of(arguments: type[BaseModel]) -> dict[str, Any]:
    required = [name for name, field in arguments.model_fields.items() if field.is_required()]
    return reply_schema(arguments) | {"required": required}


def _failed(error: str, code: str) -> ToolResult:
    return ToolResult(success=False, error=error, error_code=code)
