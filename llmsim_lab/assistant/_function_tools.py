"""Tools that are Python functions of this program: no server, no other process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import PydanticSerializationError, SchemaError

from llmsim_lab._util.text import faults
from llmsim_lab.assistant._toolbox import IDENTITY, failed_result, is_identity
from llmsim_lab.assistant._types import ToolDeclaration, ToolResult
from llmsim_lab.errors import ConfigError, LabError, TapeError
from llmsim_lab.types import reply_schema

logger = logging.getLogger(__name__)

_MOST_IDLE = 8
"""Threads that are kept for more work; starting one costs more than most tools."""

_JSON: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


class FunctionTools:
    """Runs functions as tools.

    A function's name is the tool's, its docstring the description, its annotated parameters are
    the arguments. A parameter ``user_id`` is not one of them: it gets the user that the tool acts
    for. What the function returns must be JSON-ready or a pydantic model. Of a ``ValueError`` or an
    error of this package the model reads the message; of any other fault, and of ``sys.exit()``,
    only the kind, and the program's log has the rest.

    A function runs in another thread, so that the event loop stays free and a time limit holds.
    A call that timed out continues there by itself, and several calls may run at once. An
    ``async`` function runs on the loop's thread, where it can use what belongs to that thread.

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
            arguments = tool.arguments_of(parameters, user_id)
        except ValidationError as error:
            return failed_result(faults(error), "INVALID_PARAMETERS")
        # Validators of a user's own types run in here too.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - users' functions raise anything
            return _broken(tool_name, error)
        try:
            value = await _called(tool.function, arguments)
        except TapeError:
            raise
        except (ValueError, LabError) as error:
            return failed_result(str(error) or type(error).__name__, "TOOL_ERROR")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - users' functions raise anything
            return _broken(tool_name, error)
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
        self.function = function
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
        parameters = _parameters_of(function, self.name)
        self._acts_for_user = parameters.pop(IDENTITY, None) is not None
        # Not every parameter's name can be a pydantic field's, so the fields are numbered.
        self._fields = {f"argument_{place}": key for place, key in enumerate(parameters)}
        self._model, schema = _model_of(self.name, self._fields, parameters)
        self.declaration = ToolDeclaration(
            name=self.name,
            description=description,
            parameters=schema,
            destructive=True if self.name in destructive else None,
        )

    def arguments_of(self, parameters: dict[str, Any], user_id: str) -> dict[str, Any]:
        """Return the arguments, checked and converted.

        Raises:
            ValidationError: one is missing, wrong or unknown.
        """
        checked = self._model.model_validate(parameters)
        arguments = {key: getattr(checked, field) for field, key in self._fields.items()}
        return arguments | ({IDENTITY: user_id} if self._acts_for_user else {})


def _parameters_of(function: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    try:
        # Annotations are texts where a module imports them from the future, and evaluating those
        # raises anything.
        parameters = dict(inspect.signature(function, eval_str=True).parameters)
    except Exception as error:
        raise ConfigError(
            f"the parameters of the tool {name!r} cannot be read: {type(error).__name__}: {error}"
        ) from error
    for key, parameter in parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"parameter {parameter} of the tool {name!r} has no name of its own")
        if key == IDENTITY:
            continue
        if is_identity(key):
            raise ConfigError(
                f"parameter {key!r} of the tool {name!r}: no model is asked for the user; call it "
                f"{IDENTITY}, and it is given who the tool acts for"
            )
        if parameter.annotation is parameter.empty:
            raise ConfigError(
                f"parameter {key!r} of the tool {name!r} needs a type, e.g. {key}: str"
            )
    return parameters


def _model_of(
    name: str, fields: dict[str, str], parameters: dict[str, inspect.Parameter]
) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return what checks a tool's arguments, and their schema."""
    definitions: dict[str, Any] = {}
    for field, key in fields.items():
        parameter = parameters[key]
        default = ... if parameter.default is parameter.empty else parameter.default
        definitions[field] = (Annotated[parameter.annotation, Field(alias=key)], default)
    try:
        model: type[BaseModel] = create_model(
            name, __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **definitions
        )
        schema = reply_schema(model)
    except (PydanticUserError, SchemaError, TypeError, NameError) as error:
        why = str(error).partition("\n")[0]
        raise ConfigError(
            f"the parameters of the tool {name!r} cannot come from JSON: {why}"
        ) from error
    if (found := list(schema["properties"])) != list(parameters):
        raise ConfigError(
            f"the tool {name!r} has the parameters {', '.join(parameters)}, but by their types "
            f"they would be called {', '.join(found)}; leave out the aliases"
        )
    # A reply must have every field, but a tool's caller may leave out what has a default.
    required = [key for field, key in fields.items() if model.model_fields[field].is_required()]
    return model, schema | {"required": required}


async def _called(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    context = contextvars.copy_context()  # a tool may look at its run, which is a context variable
    work = partial(context.run, partial(function, **arguments))
    value, error = await asyncio.wrap_future(_threads.start(work))
    if error is not None:
        raise error
    # A decorated async function may look like a plain one and return what has to be awaited.
    return await value if inspect.isawaitable(value) else value


_Outcome = tuple[Any, BaseException | None]
_Work = tuple[Callable[[], Any], "Future[_Outcome]"]


class _Threads:
    """Any number of daemon threads, some of which are kept for more work.

    ``asyncio.to_thread`` has few threads, and waits for all of them at the end: tools that hang
    would use them up and then hang the program.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start without threads, also in a forked process, which has none of its parent's."""
        self._idle: list[SimpleQueue[_Work]] = []
        self._lock = threading.Lock()

    def start(self, work: Callable[[], Any]) -> Future[_Outcome]:
        """Run work in a thread that does not keep the program from ending.

        The future holds the value and what was raised: ``wrap_future`` changes exceptions.
        """
        with self._lock:
            waiting = self._idle.pop() if self._idle else None
        if waiting is None:
            waiting = SimpleQueue()
            threading.Thread(
                target=self._serve, args=(waiting,), name="llmsim-lab-tool", daemon=True
            ).start()
        outcome: Future[_Outcome] = Future()
        waiting.put((work, outcome))
        return outcome

    def _serve(self, waiting: SimpleQueue[_Work]) -> None:
        while True:
            work, outcome = waiting.get()
            ended: _Outcome
            try:
                ended = work(), None
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                ended = None, error
            # Idle before the caller is told, whose next call then finds this thread.
            with self._lock:
                is_kept = len(self._idle) < _MOST_IDLE
                if is_kept:
                    self._idle.append(waiting)
            with suppress(InvalidStateError):  # the caller was cancelled meanwhile
                outcome.set_result(ended)
            if not is_kept:
                return
            del work, outcome, ended  # or the idle thread would keep the result alive


_threads = _Threads()
if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_threads.reset)


def _broken(tool_name: str, error: BaseException) -> ToolResult:
    logger.warning("tool_failure tool=%s", tool_name, exc_info=error)
    return failed_result(f"it failed: {type(error).__name__}", "TOOL_ERROR")
