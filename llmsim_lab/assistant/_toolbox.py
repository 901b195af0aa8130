"""The tools of one message: what the model is told of them, which calls are allowed, their runs.

Tools act for the user as authenticated, never for whom a model names: the user's identity is taken
out of schemas and out of arguments. What a tool returns comes from outside, as a model's reply
does: within a recorded run it is on the tape, and a replay runs no tool.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any, Self

from pydantic import TypeAdapter

from llmsim_lab._util.jsontext import read
from llmsim_lab._util.text import brief, clip, listed, log_event, whole
from llmsim_lab._util.waiting import in_thread
from llmsim_lab.assistant._schemas import SchemaCheck, SchemaSizes
from llmsim_lab.assistant.types import (
    Arguments,
    FunctionCall,
    ToolDeclaration,
    ToolExecutor,
    ToolResult,
)
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm.scope import scope
from llmsim_lab.run.outside import from_outside

logger = logging.getLogger(__name__)

IDENTITY = "user_id"
"""The argument that says who a tool acts for."""
USER_KEY = "llmsim-lab/user_id"
"""The same in the metadata of a request to an MCP server, which models cannot write."""
ERROR_KEY = "llmsim-lab/error_code"
"""The code in the metadata of a failed result of an MCP server's."""
MAYBE = "it may have been done anyway"
"""What is known of a call that was not answered."""

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
_UNCHECKED = {
    *("$schema", "pattern", "patternProperties", "additionalProperties"),
    *("unevaluatedItems", "unevaluatedProperties"),
}
"""What the tool itself checks: regular expressions, such as ``^(a+)+$``, can take for ever, and a
part of a schema that names a version would be checked in full. What is unevaluated is found by
checking all else once more at each level."""
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
_MOST_FAULTS = 3
"""How many things that are wrong with a call a model is told at once."""
_QUICK_CHARS = 10_000
"""Of schemas that are compared with the standard in .2 s at most; those of a hundred tools take
longer, and a thread of their own."""
_MOST_STEPS = 150_000
"""Of all checks of arguments, which take some 2 s."""
_INSIDE = 20
"""How deep a result may stand in a line of a tape, all of which has to be read."""
_STOPPED = {
    "success": False,
    "error": "it was stopped before it answered, so it may have been done or not; look before "
    "you ask for it again",
    "error_code": "STOPPED",
}


class Toolbox:
    """Tools with their declarations: checks calls, and runs them.

    A replay takes what tools answer from the tape and runs nothing, and so does a resumed run for
    what its broken turn had done. A call that deletes is never made twice: stopped halfway, it
    counts as done. A tool's faults are results.

    Args:
        tools: as declared. One whose schema makes no sense is neither offered to the model nor run.
        confirm: by tool, whether a call needs the user's yes.
        executor: runs them; not asked for anything in a replay. None where there is none any more,
            as in a recorded run.
        timeout_s: longest wait for one tool, seconds.
    """

    def __init__(
        self,
        tools: Sequence[ToolDeclaration],
        confirm: Mapping[str, bool] | None = None,
        *,
        executor: ToolExecutor | None = None,
        timeout_s: float = 25.0,
    ) -> None:
        if tools and find_spec("jsonschema") is None:
            raise ConfigError(
                f"the tool {tools[0].name!r} cannot be offered: what a model calls a tool with is "
                "checked by jsonschema, which is not installed: pip install 'llmsim-lab[tools]'"
            )
        settings = confirm or {}
        self._executor = executor
        self._timeout_s = timeout_s
        self._destructive = {
            tool.name for tool in tools if tool.destructive or deletes_by_name(tool.name)
        }
        unknown = sorted(settings.keys() - {tool.name for tool in tools})
        # A warning, not an error: a server may offer a tool today and not tomorrow.
        if unknown:
            log_event(
                logger,
                logging.WARNING,
                "confirm_unknown",
                names=", ".join(unknown),
            )
        # The settings come last: they alone can free a tool that deletes from asking.
        self._confirm = dict.fromkeys(self._destructive, True) | dict(settings)
        self._checks: dict[str, SchemaCheck] = {}
        self._sizes = SchemaSizes()
        self._steps = 0
        admitted = [self._admitted(tool) for tool in tools]
        self.declarations = tuple(tool for tool in admitted if tool is not None)

    @classmethod
    async def of(cls, executor: ToolExecutor | None, **settings: Any) -> Self:
        """Return the tools that exist now, as the executor declares them.

        A tool that it does not declare is declared by its name alone, with any arguments: an
        executor that lists a tool wants it used.

        Args:
            executor: runs them.
            settings: ``confirm`` and ``timeout_s``.
        """

        async def listing() -> object:
            tools = _checked(executor)
            if hasattr(tools, "ready"):
                await tools.ready()
            # Once each: some model servers refuse a request that declares a name twice.
            names = list(dict.fromkeys(tools.get_available_tools()))
            declared = []
            if hasattr(tools, "get_tool_declarations"):
                declared = [[*astuple(tool)] for tool in tools.get_tool_declarations(names)]
            return {"names": names, "declared": declared}

        # Agents of one run may have different tools.
        listed_tools = await from_outside("tools", scope().asker or "", listing)
        by_name = {fields[0]: ToolDeclaration(*fields) for fields in listed_tools["declared"]}
        tools = [by_name.get(name) or ToolDeclaration(name) for name in listed_tools["names"]]
        make = partial(cls, tools, executor=executor, **settings)
        if sum(len(str(tool.parameters)) for tool in tools) < _QUICK_CHARS:
            return make()
        return await in_thread(make)

    def _admitted(self, tool: ToolDeclaration) -> ToolDeclaration | None:
        """Return the tool as it is offered to the model, or None if it cannot be."""
        try:
            self._sizes.add(tool.parameters)
            slim = without(tool.parameters)
            self._checks[tool.name] = SchemaCheck(tool.parameters, without(slim, _UNCHECKED))
        except Exception as error:  # noqa: BLE001 - an odd "$schema" or deep nesting may raise any
            detail = clip(str(error), 200)
            log_event(
                logger,
                logging.WARNING,
                "tool_schema_invalid",
                tool=tool.name,
                detail=detail,
            )
            return None
        return replace(tool, parameters=slim)

    def needs_yes(self, name: str) -> bool:
        """Return True if a call of the tool needs the user's yes.

        A tool whose name says that it deletes does, whatever its server declares; only the
        settings can change that.
        """
        return self._confirm.get(name, False)

    async def checked(self, call: FunctionCall) -> Arguments | ToolResult:
        """Do as ``check`` does in another thread, since large arguments take long."""
        return await in_thread(partial(self.check, call))

    def check(self, call: FunctionCall) -> Arguments | ToolResult:
        """Return the arguments of a call that the model wants, or why it cannot be made.

        The user's identity is taken out of the arguments, however deep the model wrote it.
        """
        if call.name not in self._checks:
            # For the model, which misspells names, and can then choose again.
            available = listed(list(self._checks), 40) or "none"
            complaint = f"there is no tool {clip(call.name, 60)!r}; available: {available}"
            return failed_result(complaint, "TOOL_NOT_FOUND")
        try:
            arguments = whole(json_ready(dict(call.arguments)))
            parameters: Arguments = _cleaned(arguments)
            if parameters != arguments:  # 1.0 == 1
                log_event(
                    logger,
                    logging.WARNING,
                    "identity_ignored",
                    tool=call.name,
                )
            faults = self._faults(call.name, parameters)
        # A valid schema may still refer to what is missing, or to itself: each ends in another
        # error of the library.
        except Exception as error:  # noqa: BLE001
            faults = [clip(str(error), 300)]
        if not faults:
            return parameters
        return failed_result(f"the arguments are wrong: {'; '.join(faults)}", "INVALID_PARAMETERS")

    def _faults(self, name: str, parameters: Arguments) -> list[str]:
        """Return what is wrong with the arguments of a call.

        Raises:
            ValueError: this cannot be found out in time.
        """
        # Of all calls together: a model may make twenty that take the longest, five times.
        if self._steps > _MOST_STEPS:
            raise ValueError("the calls before it took too long to check")
        schema = self._checks[name]
        try:
            errors = islice(schema.faults(parameters), _MOST_FAULTS)
            return [_fault_text(error) for error in errors]
        finally:
            self._steps += schema.steps

    async def run(
        self,
        name: str,
        parameters: Arguments,
        user_id: str,
    ) -> ToolResult:
        """Run a tool, or take its result from the tape.

        Raises:
            TapeMiss: a replay has no such call.
            TapeError: it is to be run, and there is no executor.
        """

        async def running() -> object:
            tools = _checked(self._executor)
            try:
                async with asyncio.timeout(self._timeout_s):
                    # The limit ends the wait, not the work: a server may finish it all the same.
                    result = await tools.execute(name, parameters, user_id)
                fields = json_ready(result.model_dump())
                # Without what is not set: a tape's line is read by people too.
                return {key: value for key, value in fields.items() if value is not None}
            except TapeError:
                raise
            except TimeoutError:
                log_event(
                    logger,
                    logging.WARNING,
                    "tool_timeout",
                    tool=name,
                    detail=f"no answer within {self._timeout_s:g} s; an assistant's "
                    "timeout_seconds gives its tools longer",
                )
                return {
                    "success": False,
                    "error": f"it gave no answer within {self._timeout_s:g} s; {MAYBE}",
                    "error_code": "TIMEOUT",
                }
            except Exception as error:
                # The traceback is for the program's log; the model reads the type alone, since the
                # text may hold internals. It has run, so its call must still get onto the tape.
                logger.warning("tool_failure tool=%s", name, exc_info=error)
                return {
                    "success": False,
                    "error": f"it failed: {type(error).__name__}",
                    "error_code": "TOOL_ERROR",
                }

        fields = await from_outside(
            "tool",
            f"{name}({json_text(parameters)}) for {user_id}",
            running,
            once=name in self._destructive,
            fallback=_STOPPED,
        )
        return ToolResult.model_validate(fields)


def _checked(executor: ToolExecutor | None) -> Any:
    """Return what runs tools; it may have more than the protocol's methods.

    Raises:
        TapeError: there is none, as where a run continues from a tape.
        ConfigError: it runs no tools.
    """
    if executor is None:
        raise TapeError(
            "what comes after the tape is live, and no tape can hold tools: give them, as in "
            "resume(tape, tools=...); tools=FunctionTools() has none"
        )
    if not hasattr(executor, "get_available_tools"):
        raise ConfigError(
            f"tools={brief(executor, 80)} runs no tools; functions go into "
            "tools=FunctionTools(function)"
        )
    return executor


def _fault_text(fault: Any) -> str:
    text = fault.message
    if fault.absolute_path:
        path = ".".join(map(str, fault.absolute_path))
        text = f"{path}: {text}"
    return clip(text, 200)


def without(
    schema: object,
    keywords: Collection[str] = (),
) -> Any:
    """Return a JSON schema without some keywords and the user's identity, in no part of it.

    Nor has it the titles that pydantic makes from names, which cost tokens.
    """
    if isinstance(schema, list | tuple):
        return [without(item, keywords) for item in schema if not is_identity(item)]
    if not isinstance(schema, Mapping):
        return schema
    kept = {}
    for key, item in schema.items():
        is_title = key == "title" and isinstance(item, str)
        if key not in keywords and not is_identity(key) and not is_title:
            kept[key] = without(item, keywords)
    return kept


def is_identity(key: object) -> bool:
    """Return True if an argument's name stands for the user's identity, in any spelling."""
    return isinstance(key, str) and re.sub(r"[^a-z]", "", key.lower()) == "userid"


def _cleaned(value: object) -> Any:
    """Return arguments without the user's identity, and ``1.0`` as ``1``."""
    # JSON has one type of number, and many tools want whole ones.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items() if not is_identity(key)}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return value


def deletes_by_name(name: str) -> bool:
    """Return True if a tool's name says that it deletes."""
    return _DESTRUCTIVE.search(in_words(name)) is not None


def reads_by_name(name: str) -> bool:
    """Return True if a tool's name says that it only reads."""
    return _READS.match(in_words(name)) is not None and not deletes_by_name(name)


def in_words(tool_name: str) -> str:
    """Return a tool's name as words: ``delete_task`` and ``deleteTask`` as ``delete task``."""
    # camelCase, snake_case and MCP's "server/tool" alike.
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./:]+", " ", tool_name)
    return " ".join(spaced.lower().split())


# --- results --------------------------------------------------------------------------------------


def failed_result(error: str, code: str) -> ToolResult:
    """Return the result of a call that failed."""
    return ToolResult(
        success=False,
        error=error,
        error_code=code,
    )


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


def json_text(
    value: object,
    *,
    indent: int | None = None,
) -> str:
    """Return a value as JSON for people and models to read."""
    return json.dumps(
        value,
        ensure_ascii=False,
        indent=indent,
        default=str,
    )
