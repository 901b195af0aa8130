"""The tools one message may use: what the model is told of them, and the check of what it wants."""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from llmsim_lab.assistant.errors import LLMError
from llmsim_lab.assistant.identity import schema_without_user, without_user
from llmsim_lab.assistant.protocols import (
    DeclaresTools,
    FunctionCall,
    LLMAdapter,
    ToolDeclaration,
    ToolExecutor,
)
from llmsim_lab.assistant.shown import in_words
from llmsim_lab.errors import ConfigError
from llmsim_lab.logs import log_event
from llmsim_lab.text import clip

__all__ = ["BadCall", "GoodCall", "KnownTools", "Toolbox", "declared_tools", "make_ready"]

logger = logging.getLogger(__name__)

_DESTRUCTIVE = re.compile(
    r"\b(?:(?:erase|purge|clear|destroy|drop|wipe|trash|discard|expunge|truncate|unlink|del|rm)s?\b"
    r"|remov(?:e(?!d)|al|ing))|delet(?:e(?!d)|ion|ing)"
)
_MAX_DEPTH = 50
_MAX_FAULTS = 3
_MAX_NAMES = 40


@dataclass(frozen=True, slots=True)
class GoodCall:
    """A call that may be made."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadCall:
    """A call that may not be made, and what to tell the model."""

    name: str
    complaint: str
    code: str


async def declared_tools(
    names: Sequence[str], adapter: LLMAdapter, executor: ToolExecutor
) -> list[ToolDeclaration]:
    """Return tools' declarations, from the adapter or else from the executor.

    A tool that neither declares is declared by its name alone, with any arguments: whoever lists a
    tool wants it used.
    """
    known = _by_name(await _value_of(adapter.get_tool_declarations(list(names))))
    missing = [name for name in names if name not in known]
    if missing and isinstance(executor, DeclaresTools):
        known = _by_name(await _value_of(executor.get_tool_declarations(missing))) | known
    return [known.get(name) or ToolDeclaration(name) for name in names]


async def _value_of(value: Any) -> Any:
    """Return a value, also one that must be awaited: adapters and executors may be of any make."""
    return await value if inspect.isawaitable(value) else value


def _by_name(declared: Any) -> dict[str, ToolDeclaration]:
    there = declared if isinstance(declared, list | tuple) else ()
    return {tool.name: tool for tool in there if isinstance(tool, ToolDeclaration)}


async def make_ready(executor: ToolExecutor) -> None:
    """Have an executor start that has to, as ``StartsFirst`` says; others are left alone.

    Raises:
        Exception: whatever the executor raises.
    """
    ready = getattr(executor, "ready", None)
    if callable(ready):
        await _value_of(ready())


class Toolbox:
    """Tools with their declarations; makes no calls itself.

    Args:
        names: of the tools that can be run; no others are.
        declared: their declarations. A tool without a sound one is not offered to the model, nor
            run.
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
        """Return the tool as it is offered, or None if it cannot be."""
        from jsonschema import Draft202012Validator, SchemaError  # takes long to import
        from jsonschema.validators import validator_for
        from referencing import Registry

        if tool.name not in self.names:
            return None
        kind: Any = validator_for(tool.parameters, default=Draft202012Validator)
        try:
            kind.check_schema(tool.parameters)
        except SchemaError as error:
            log_event(
                logger, logging.WARNING, "tool_schema_invalid", tool=tool.name, detail=error.message
            )
            return None
        tool = replace(tool, parameters=schema_without_user(tool.parameters))
        # An empty registry, since a schema must not make this process fetch anything.
        self._validators[tool.name] = kind(tool.parameters, registry=Registry())
        return tool

    def needs_yes(self, name: str) -> bool:
        """Say whether a call of the tool needs the user's yes.

        A tool whose name says that it deletes does, whatever its server declares: the settings
        alone may say otherwise.
        """
        if name in self._confirm:
            return self._confirm[name]
        return name in self._destructive or _DESTRUCTIVE.search(in_words(name)) is not None

    def check(self, call: FunctionCall) -> GoodCall | BadCall:
        """Check a call the model wants: the tool, the arguments' form, their schema.

        The user's identity is taken out of the arguments, as deep as the model wrote it there.
        """
        if not isinstance(call.name, str) or call.name not in self._validators:
            there = ", ".join(list(self._validators)[:_MAX_NAMES]) or "none"
            complaint = f"there is no tool {clip(str(call.name), 60)!r}; available: {there}"
            return BadCall(str(call.name), complaint, "TOOL_NOT_FOUND")
        arguments: Any = call.arguments
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments.strip() else {}
            except (ValueError, RecursionError) as error:
                return _wrong(call.name, f"they are not valid JSON: {error}")
        if not isinstance(arguments, Mapping):
            kind = type(arguments).__name__
            return _wrong(call.name, f"they must be a JSON object, not {kind}")
        if odd := _oddity(arguments):
            return _wrong(call.name, odd)
        parameters: dict[str, Any] = _with_whole_numbers(without_user(arguments))
        if parameters != arguments:
            log_event(logger, logging.WARNING, "identity_ignored", tool=call.name)
        if faults := self._faults(call.name, parameters):
            return _wrong(call.name, faults)
        return GoodCall(call.name, parameters)

    def _faults(self, name: str, parameters: dict[str, Any]) -> str:
        from referencing.exceptions import Unresolvable

        try:
            faults = list(islice(self._validators[name].iter_errors(parameters), _MAX_FAULTS))
        except Unresolvable as error:
            return f"the tool's own schema cannot be followed: {error}"
        found = []
        for fault in faults:
            place = ".".join(str(part) for part in fault.absolute_path)
            found.append(clip(f"{place}: {fault.message}" if place else fault.message, 200))
        return "; ".join(found)


class KnownTools:
    """The tools of an executor; what was made of their declarations is kept while they stay.

    Args:
        confirm: by tool, whether a call needs the user's yes.
    """

    def __init__(self, confirm: Mapping[str, bool] | None = None) -> None:
        self._confirm = confirm
        self._latest: Toolbox | None = None

    async def now(self, executor: ToolExecutor, adapter: LLMAdapter) -> Toolbox:
        """Return the tools there are now, after the executor's start if it needs one.

        Raises:
            LLMError: the executor is set up wrong.
            Exception: whatever else the executor raises.
        """
        try:
            await make_ready(executor)
            names = tuple(await _value_of(executor.get_available_tools()))
            declared = tuple(await declared_tools(names, adapter, executor))
        except ConfigError as error:
            raise LLMError(f"the tools cannot be had: {error}", "NO_TOOLS") from error
        known = self._latest
        if known is None or known.names != names or known.source != declared:
            known = self._latest = Toolbox(names, declared, confirm=self._confirm)
            if bare := [tool.name for tool in declared if tool == ToolDeclaration(tool.name)]:
                log_event(logger, logging.WARNING, "tools_undeclared", names=", ".join(bare))
        return known


def _wrong(name: str, what: str) -> BadCall:
    return BadCall(name, f"the arguments are wrong: {what}", "INVALID_PARAMETERS")


def _oddity(arguments: Any) -> str:
    """Return what JSON cannot hold or no tool would want: odd numbers, things too deep inside."""
    level = [arguments]
    for _ in range(_MAX_DEPTH):
        for value in level:
            if isinstance(value, float) and not math.isfinite(value):
                return f"{value} is no number that JSON has"
        level = [item for value in level for item in _inside(value)]
        if not level:
            return ""
    return f"they go more than {_MAX_DEPTH} levels deep"


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _with_whole_numbers(value: Any) -> Any:
    """Return ``1.0`` as ``1``: to JSON they are the same, and many tools take only the latter."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    return list(map(_with_whole_numbers, value)) if isinstance(value, list | tuple) else value
