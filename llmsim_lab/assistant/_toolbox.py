"""The tools of one message: what the model is told of them, which calls are allowed, running one.

Tools act for the user as authenticated, never for whom a model names: the user's identity is taken
out of schemas and out of arguments.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic import TypeAdapter

from llmsim_lab._util.jsontext import read
from llmsim_lab._util.text import clip, listed, log_event, whole_text
from llmsim_lab.assistant._types import (
    DeclaresTools,
    FunctionCall,
    LLMAdapter,
    LLMError,
    ToolDeclaration,
    ToolExecutor,
    ToolResult,
)
from llmsim_lab.errors import ConfigError, TapeError

logger = logging.getLogger(__name__)

IDENTITY = "user_id"
"""The argument that says who a tool acts for."""
USER_KEY = "llmsim-lab/user_id"
"""The same in the metadata of a request to an MCP server, which models cannot write."""
ERROR_KEY = "llmsim-lab/error_code"
"""The ``ServerErrorCode`` in the metadata of a failed result of an MCP server's."""

# Of verbs only the forms that order something: "deleted" and "removed" describe what is there.
_DESTRUCTIVE = re.compile(
    r"\b(?:(?:erase|purge|clear|destroy|drop|wipe|trash|discard|expunge|truncate|unlink|del|rm)s?\b"
    r"|remov(?:e(?!d)|al|ing))|delet(?:e(?!d)|ion|ing)"
)
# "get or create" and "read write file" do more than their first word says.
_READS = re.compile(
    r"(?:get|list|show|read|view|search|find|count|describe|look ?up|lookup|fetch)\b"
    r"(?!.*\b(?:and|or|then|add|append|create|exec(?:ute)?|increment|insert|modify|push|put"
    r"|replace|save|send|set|update|write)\b)"
)
_UNCHECKED = ("pattern", "patternProperties", "unevaluatedProperties")
"""Keywords that match regular expressions, such as ``^(a+)+$``, which can take for ever: the tool
itself checks them."""
_MAX_DEPTH = 50
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
_INSIDE = 20
"""How deep a result may stand in a line of a tape, all of which has to be read."""
_MAX_FAULTS = 3
_MAX_NAMES = 40


@dataclass(frozen=True, slots=True)
class GoodCall:
    """A tool call that is allowed."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadCall:
    """A tool call that is not allowed, and what to tell the model."""

    name: str
    complaint: str
    code: str


class Toolbox:
    """Tools with their declarations; checks calls and makes none.

    Args:
        names: the tools that can be run; no others are.
        declared: their declarations. A tool without a valid one is neither offered to the model
            nor run.
        confirm: by tool, whether a call needs the user's yes.
    """

    def __init__(
        self,
        names: Iterable[str],
        declared: Iterable[ToolDeclaration],
        *,
        confirm: Mapping[str, bool] | None = None,
    ) -> None:
        self.names = tuple(names)
        self.source = tuple(declared)
        self._confirm = dict(confirm or {})
        self._validators: dict[str, Any] = {}
        self.declarations = tuple(filter(None, map(self._admitted, self.source)))
        self._destructive = {tool.name for tool in self.source if tool.destructive}
        if hidden := sorted(set(self.names) - self._validators.keys()):
            log_event(logger, logging.WARNING, "tools_not_offered", names=", ".join(hidden))
        if unknown := sorted(self._confirm.keys() - set(self.names)):
            log_event(logger, logging.WARNING, "confirm_unknown", names=", ".join(unknown))

    def _admitted(self, tool: ToolDeclaration) -> ToolDeclaration | None:
        """Return the tool as it is offered to the model, or None if it cannot be."""
        from jsonschema import Draft202012Validator, SchemaError  # takes long to import
        from jsonschema.validators import extend, validator_for
        from referencing import Registry

        # An adapter may declare what this executor cannot run.
        if tool.name not in self.names:
            return None
        try:
            validator: Any = validator_for(tool.parameters, default=Draft202012Validator)
            validator.check_schema(tool.parameters)
        except Exception as error:  # noqa: BLE001 - an odd "$schema" or deep nesting may raise any
            detail = error.message if isinstance(error, SchemaError) else repr(error)
            log_event(logger, logging.WARNING, "tool_schema_invalid", tool=tool.name, detail=detail)
            return None
        tool = replace(tool, parameters=schema_without_user(tool.parameters))
        # With an empty registry a schema's $ref cannot make this process fetch anything.
        keywords = dict.fromkeys(_UNCHECKED, _no_faults) | {"additionalProperties": _additional}
        local: Any = extend(validator, keywords)  # type: ignore[no-untyped-call]
        self._validators[tool.name] = local(_undated(tool.parameters), registry=Registry())
        return tool

    def needs_yes(self, name: str) -> bool:
        """Return True if a call of the tool needs the user's yes.

        A tool whose name says that it deletes does, whatever its server declares; only the
        settings can change that.
        """
        # A server is untrusted: one that declares its deletions harmless is still asked about.
        if name in self._confirm:
            return self._confirm[name]
        return name in self._destructive or deletes_by_name(name)

    def check(self, call: FunctionCall) -> GoodCall | BadCall:
        """Check a call that the model wants: the tool, the arguments' form, their schema.

        The user's identity is taken out of the arguments, however deep the model wrote it.
        """
        if not isinstance(call.name, str) or call.name not in self._validators:
            available = listed(list(self._validators), _MAX_NAMES) or "none"
            complaint = f"there is no tool {clip(str(call.name), 60)!r}; available: {available}"
            return BadCall(str(call.name), complaint, "TOOL_NOT_FOUND")
        arguments: Any = call.arguments
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments.strip() else {}
            except (ValueError, RecursionError) as error:
                return _wrong(call.name, f"they are not valid JSON: {error}")
        if not isinstance(arguments, Mapping):
            return _wrong(call.name, f"they must be a JSON object, not {type(arguments).__name__}")
        # Before all that follows, which is recursive and compares numbers.
        if fault := _not_json(arguments):
            return _wrong(call.name, fault)
        parameters: dict[str, Any] = _cleaned(arguments)
        if parameters != arguments:  # 1.0 == 1, so only an identity that was taken out differs
            log_event(logger, logging.WARNING, "identity_ignored", tool=call.name)
        if faults := self._faults(call.name, parameters):
            return _wrong(call.name, faults)
        return GoodCall(call.name, parameters)

    def _faults(self, name: str, parameters: dict[str, Any]) -> str:
        try:
            faults = list(islice(self._validators[name].iter_errors(parameters), _MAX_FAULTS))
        # A valid schema may still refer to what is missing, to itself or to what is not a schema,
        # or divide by 0.1 what no float can hold: each ends in another error of the library.
        except Exception as error:  # noqa: BLE001
            return f"the tool's own schema cannot be followed: {clip(str(error), 200)}"
        places = [".".join(map(str, fault.absolute_path)) for fault in faults]
        return "; ".join(
            clip(f"{place}: {fault.message}" if place else fault.message, 200)
            for place, fault in zip(places, faults, strict=True)
        )


def _no_faults(*_: Any) -> Collection[Any]:
    return ()


def _additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check ``additionalProperties``, unless regular expressions say which those are."""
    if "patternProperties" not in schema:
        from jsonschema import Draft202012Validator

        check: Any = Draft202012Validator.VALIDATORS["additionalProperties"]
        yield from check(validator, allowed, instance, schema)


def _undated(schema: Any) -> Any:
    """Return a schema none of whose parts names a version, by which it would be checked in full."""
    if isinstance(schema, list | tuple):
        return list(map(_undated, schema))
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _undated(item)
        for key, item in schema.items()
        if key != "$schema" or not isinstance(item, str)
    }


def _wrong(name: str, what: str) -> BadCall:
    return BadCall(name, f"the arguments are wrong: {what}", "INVALID_PARAMETERS")


def _not_json(arguments: Any) -> str:
    """Return what is wrong with arguments: NaN, infinity or too many levels; empty if nothing."""
    level = [arguments]  # level by level, since recursion could not survive what is looked for
    for _ in range(_MAX_DEPTH):
        for value in level:
            if isinstance(value, float) and not math.isfinite(value):
                return f"{value} is not a number in JSON"
        level = [item for value in level for item in _inside(value)]
        if not level:
            return ""
    return f"they go more than {_MAX_DEPTH} levels deep"


def _inside(value: Any) -> Collection[Any]:
    """Return what a JSON object or list holds; nothing for other values."""
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _cleaned(value: Any) -> Any:
    """Return arguments without the user's identity, however deep, and with ``1.0`` as ``1``."""
    # JSON has one type of number, and many tools want whole ones.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _cleaned(item) for key, item in value.items() if not is_identity(key)}
    return list(map(_cleaned, value)) if isinstance(value, list | tuple) else value


def deletes_by_name(name: str) -> bool:
    """Return True if a tool's name says that it deletes."""
    return _DESTRUCTIVE.search(in_words(name)) is not None


def reads_by_name(name: str) -> bool:
    """Return True if a tool's name says that it only reads."""
    return _READS.match(in_words(name)) is not None and not deletes_by_name(name)


class KnownTools:
    """An executor's tools; the checks made of their declarations are kept until these change.

    Args:
        confirm: by tool, whether a call needs the user's yes.
    """

    def __init__(self, confirm: Mapping[str, bool] | None = None) -> None:
        self._confirm = confirm
        self._latest: Toolbox | None = None

    async def now(self, executor: ToolExecutor, adapter: LLMAdapter) -> Toolbox:
        """Return the tools that exist now, after the executor's start if it needs one.

        Raises:
            LLMError: the executor is set up wrong.
            Exception: whatever else the executor raises.
        """
        try:
            await make_ready(executor)
            # Once each: some model servers refuse a request that declares a name twice.
            names = tuple(dict.fromkeys(await value_of(executor.get_available_tools())))
            declares = by_name(await value_of(adapter.get_tool_declarations(list(names))))
            if isinstance(executor, DeclaresTools):
                more = by_name(await value_of(executor.get_tool_declarations(list(names))))
                # The adapter words a tool; the executor still knows what it destroys.
                for name in declares.keys() & more.keys():
                    if more[name].destructive:
                        declares[name] = replace(declares[name], destructive=True)
                declares = more | declares
            # A tool that neither declares is declared by its name alone, with any arguments: an
            # executor that lists a tool wants it used.
            declared = tuple(declares.get(name) or ToolDeclaration(name) for name in names)
        except ConfigError as error:
            raise LLMError(f"the tools cannot be listed: {error}", "NO_TOOLS") from error
        known = self._latest  # building the validators takes longer than comparing declarations
        if known is None or known.names != names or known.source != declared:
            known = self._latest = Toolbox(names, declared, confirm=self._confirm)
            if bare := [tool.name for tool in declared if tool == ToolDeclaration(tool.name)]:
                log_event(logger, logging.WARNING, "tools_undeclared", names=", ".join(bare))
        return known


async def make_ready(executor: ToolExecutor) -> None:
    """Start an executor that has to be started: one with a method ``ready``.

    Raises:
        Exception: whatever the executor raises.
    """
    ready = getattr(executor, "ready", None)
    if callable(ready):
        await value_of(ready())


async def value_of(value: Any) -> Any:
    """Return a value, awaited if need be: users' adapters and executors may be sync or async."""
    return await value if inspect.isawaitable(value) else value


def by_name(declared: Any) -> dict[str, ToolDeclaration]:
    """Return declarations by their tools' names."""
    # Users' adapters and executors return anything, such as None.
    tools = declared if isinstance(declared, list | tuple) else ()
    return {tool.name: tool for tool in tools if isinstance(tool, ToolDeclaration)}


# --- running a tool -------------------------------------------------------------------------------


async def run_tool(
    executor: ToolExecutor, name: str, parameters: dict[str, Any], user_id: str, *, timeout_s: float
) -> ToolResult:
    """Run a tool; its failures are results.

    Args:
        executor: runs it.
        name: the tool.
        parameters: its arguments, checked.
        user_id: who it acts for.
        timeout_s: longest wait, seconds.

    Raises:
        TapeError: a replay lacks the call.
    """
    try:
        with own_cancellation_fails(f"the tool {name!r}"):
            async with asyncio.timeout(timeout_s):
                result = await value_of(executor.execute(name, parameters, user_id))
    except TapeError:
        raise
    except LLMError as error:  # as an executor of the user's own may raise, with a code
        return logged_failure(name, error.message, error.code)
    except TimeoutError:
        return logged_failure(name, f"it gave no answer within {timeout_s:g} s", "TIMEOUT")
    except Exception as error:
        # The traceback is for the program's log; the model reads the type alone, since the text
        # may hold internals.
        logger.warning("tool_failure", exc_info=error)
        return logged_failure(name, f"it failed: {type(error).__name__}", "TOOL_ERROR")
    if not isinstance(result, ToolResult):
        return logged_failure(name, f"it returned {type(result).__name__}", "INVALID_RESULT")
    return result


def logged_failure(name: str, what: str, code: str) -> ToolResult:
    """Log a call that failed, and return its result."""
    log_event(logger, logging.WARNING, "tool_failure", tool=name, code=code, detail=what)
    return failed_result(what, code)


def failed_result(error: str, code: str) -> ToolResult:
    """Return the result of a call that failed."""
    return ToolResult(success=False, error=error, error_code=code)


@contextmanager
def own_cancellation_fails(who: str) -> Iterator[None]:
    """Turn a CancelledError that the code inside raised by itself into a failure.

    Raises:
        RuntimeError: instead of it.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        # A cancelled tool must not look like a cancelled caller, which would end the program's own
        # task: only where the current task was told to cancel does the error mean that.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError(f"{who} cancelled itself") from error


def beyond_limit_text(most: int) -> str:
    """Return what the model is told about a call beyond the limit."""
    return f"error TOO_MANY_CALLS: only the first {most} calls of an answer are made"


def result_text(result: ToolResult, *, max_chars: int) -> str:
    """Return a result as the model reads it, with a note if it was cut.

    Args:
        result: the result.
        max_chars: longest text, characters, without that note.
    """
    if result.success:
        text = json_text(result.data)
    else:
        text = f"error {result.error_code or ''}: {result.error or 'it does not say what'}"
    text = whole_text(text)  # with half a character no request can be sent
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n(cut here: {len(text):,} characters, of which {max_chars:,} shown)"


def json_ready(value: object) -> Any:
    """Return a value as JSON gives it back, with None for numbers that JSON lacks.

    Raises:
        ValueError: it has odd keys, contains itself, or is nested too deeply.
    """
    try:
        text = json.dumps(value, default=str)
        read(_ANYTHING, f"{'[' * _INSIDE}{text}{']' * _INSIDE}")
        return json.loads(text, parse_constant=lambda _: None)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no JSON can be made of it: {error}") from error


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON; as Python writes it if it has odd keys or contains itself.

    Of one that Python cannot write either, nested too deeply or a number of thousands of digits,
    the text says so.
    """
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    except (TypeError, ValueError, RecursionError):
        try:
            return repr(value)
        except (ValueError, RecursionError) as error:
            return f"({type(value).__name__} that cannot be written out: {error})"


# --- the user's identity, and names in words ------------------------------------------------------


def is_identity(key: object) -> bool:
    """Return True if an argument's name stands for the user's identity, in any spelling."""
    return re.sub(r"[^a-z]", "", str(key).lower()) == "userid"


def schema_without_user(schema: Any) -> Any:
    """Return a JSON schema that does not ask for the user's identity, in no part of it."""
    if isinstance(schema, list | tuple):
        return list(map(schema_without_user, schema))
    if not isinstance(schema, Mapping):
        return schema
    slim = {key: schema_without_user(item) for key, item in schema.items()}
    if isinstance(schema.get("properties"), Mapping):
        own = slim["properties"].items()
        slim["properties"] = {key: item for key, item in own if not is_identity(key)}
    if isinstance(schema.get("required"), list | tuple):
        slim["required"] = [name for name in schema["required"] if not is_identity(name)]
    return slim


def untitled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the titles that pydantic makes from names, which cost tokens."""
    slim = {key: item for key, item in schema.items() if key != "title"}
    properties = slim.get("properties") or {}
    if isinstance(properties, dict):  # else it is no schema, and this tool alone is not offered
        properties = {
            name: {key: item for key, item in part.items() if key != "title"}
            if isinstance(part, dict)  # true and false are schemas too
            else part
            for name, part in properties.items()
        }
    return slim | {"properties": properties}


def in_words(tool_name: str) -> str:
    """Return a tool's name as words: ``delete_task`` and ``deleteTask`` as ``delete task``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./:]+", " ", tool_name)
    return " ".join(spaced.lower().split())
