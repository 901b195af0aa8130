"""Modules: what they define, what they add to prompts, and the code they may bring along.

A module's code sees copies that refuse changes, and what it returns is checked. If it raises, the
turn stops with a ``ModuleError``.
"""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, InstanceOf, field_validator, model_validator

from llmsim_lab.context.table import Variables
from llmsim_lab.context.wording import humanise
from llmsim_lab.errors import ModuleError, PromptError
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts.rendered import digest_of
from llmsim_lab.settings import Settings
from llmsim_lab.values import FrozenDict
from llmsim_lab.yaml_file import YamlFile

__all__ = ["BehaviorModule", "ModuleData", "ModuleSection", "ShownState", "check_code", "read_only"]

_PARAMETERS = {
    "build_agent_context": ("agent_name", "agent_state", "global_state"),
    "compute_state_updates": ("agent_name", "agent_state", "global_state", "step_number"),
}
_HALF = "a text with half of a surrogate pair, which is no Unicode"
_MOST_BITS = 1024
"""Whole numbers of more bits cannot even be floats."""

_UNCHANGING = (str, int, float, bool, type(None))


class ModuleSection(Settings):
    """A section of text that every agent gets.

    Attributes:
        title: its heading; the module's title where empty.
        text: with slots such as ``{{ trust_level }}`` for variables, which are filled with their
            unit or scale, and ``{{ agent_name }}``.
    """

    title: str = ""
    text: Annotated[str, Field(min_length=1)]

    @field_validator("text")
    @classmethod
    def _template(cls, text: str) -> str:
        try:
            Prompt(text, name="section")
        except PromptError as error:
            raise ValueError(str(error)) from error
        return text.strip()


class ModuleData(Settings):
    """What a module's YAML file holds.

    Attributes:
        title: heading of what the module says; made of its name where empty.
        description: what the module is about, for people.
        requires: modules that must be there as well; their code runs first.
        variables: what it defines.
        sections: texts for every agent.
        max_tokens: the most its part of a prompt may take, estimated tokens; None: no limit.
        priority: 0 to 100; where a prompt is too long, the lowest goes first.
    """

    title: str = ""
    description: str = ""
    requires: tuple[str, ...] = ()
    variables: Variables = Field(default_factory=Variables)
    sections: tuple[ModuleSection, ...] = ()
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    priority: Annotated[int, Field(ge=0, le=100)] = 50


class BehaviorModule(ModuleData):
    """A module, from files or made by hand.

    Attributes:
        name: what scenarios and other modules call it.
        code: an object with ``build_agent_context(agent_name, agent_state, global_state)`` and/or
            ``compute_state_updates(agent_name, agent_state, global_state, step_number)``, or None.
        source: the file it was read from, or None.
        code_text: the code's text as it was run; of code made by hand it is found where it can be.

    Example:
        >>> from types import SimpleNamespace
        >>> code = SimpleNamespace(build_agent_context=lambda agent, own, world: "Keep calm.")
        >>> BehaviorModule(name="calm", code=code).context_for("Ada", {}, {})
        'Keep calm.'
    """

    name: Annotated[str, Field(min_length=1)]
    code: Any = Field(default=None, repr=False)
    source: InstanceOf[YamlFile] | None = Field(default=None, repr=False, exclude=True)
    code_text: str = Field(default="", repr=False)

    @model_validator(mode="after")
    def _code_can_be_called(self) -> Self:
        if self.code is not None:
            check_code(self.code)
        return self

    @property
    def heading(self) -> str:
        """The title of what its code says."""
        return self.title or humanise(self.name).upper()

    @property
    def digest(self) -> str:
        """SHA-256 of its data and its code's text, hexadecimal, for a run's records."""
        data = self.model_dump_json(include={"name", *ModuleData.model_fields})
        return digest_of(data, self.code_text or _source_of(self.code))

    @property
    def builds_context(self) -> bool:
        """Whether it has ``build_agent_context``."""
        return hasattr(self.code, "build_agent_context")

    @property
    def updates_state(self) -> bool:
        """Whether it has ``compute_state_updates``."""
        return hasattr(self.code, "compute_state_updates")

    def where(self, *location: str | int) -> str:
        """Return the module's name and, if it came from a file, the place in it."""
        place = f" ({self.source.place(location)})" if self.source else ""
        return f"module {self.name!r}{place}"

    def context_for(
        self, agent_name: str, agent_state: Mapping[str, Any], global_state: Mapping[str, Any]
    ) -> str | None:
        """Return what its code has to say to an agent, or None.

        Raises:
            ModuleError: the code raised, or returned neither a text nor None.
        """
        if not self.builds_context:
            return None
        text = self._call("build_agent_context", agent_name, agent_state, global_state)
        if isinstance(text, str) and not _is_unicode(text):
            raise self._fault("build_agent_context", agent_name, _HALF)
        if text is None or isinstance(text, str):
            return text
        raise self._fault("build_agent_context", agent_name, f"{_kind(text)}, not a text or None")

    def updates_for(
        self,
        agent_name: str,
        agent_state: Mapping[str, Any],
        global_state: Mapping[str, Any],
        step_number: int,
    ) -> dict[str, Any]:
        """Return what its code changes of an agent's state; an empty dict for nothing.

        Raises:
            ModuleError: the code raised, or returned no dict of names and values.
        """
        if not self.updates_state:
            return {}
        updates = self._call(
            "compute_state_updates", agent_name, agent_state, global_state, step_number
        )
        if not isinstance(updates, dict):
            detail = f"{_kind(updates)}, not a dict; return {{}} to change nothing"
            raise self._fault("compute_state_updates", agent_name, detail)
        for name, value in updates.items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
                detail = f"a dict with {name!r}: {_kind(value)}; it must map names to values"
                raise self._fault("compute_state_updates", agent_name, detail)
            if not (_is_unicode(name) and _is_unicode(value)):
                raise self._fault("compute_state_updates", agent_name, _HALF)
            if isinstance(value, int) and value.bit_length() > _MOST_BITS:
                detail = f"for {name!r} a whole number of {value.bit_length():,} bits"
                raise self._fault("compute_state_updates", agent_name, detail)
        return dict(updates)

    def _call(
        self, name: str, agent: str, own: Mapping[str, Any], world: Mapping[str, Any], *rest: int
    ) -> Any:
        try:
            return getattr(self.code, name)(agent, read_only(own), read_only(world), *rest)
        except (Exception, SystemExit) as error:  # no module may end the program
            detail = f"{type(error).__name__}: {error}{_place_of(error)}"
            raise ModuleError(self.name, agent=agent, function=name, detail=detail) from error

    def _fault(self, function: str, agent: str, returned: str) -> ModuleError:
        return ModuleError(
            self.name, agent=agent, function=function, detail=f"it returned {returned}"
        )


def check_code(code: Any) -> None:
    """Refuse an object that is not a module's code.

    Raises:
        ValueError: it has none of the two functions, or one that cannot be called as it will be.
    """
    found = [name for name in _PARAMETERS if hasattr(code, name)]
    if not found:
        raise ValueError(f"the code defines neither {' nor '.join(_PARAMETERS)}")
    for name in found:
        function, parameters = getattr(code, name), _PARAMETERS[name]
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ValueError(f"{name} must be a plain function")
        try:
            inspect.signature(function).bind(*parameters)
        except TypeError as error:
            raise ValueError(f"{name} must take ({', '.join(parameters)}): {error}") from error


class ShownState(FrozenDict):
    """A state as module code sees it: a dict that refuses changes."""

    def _refuse_here(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "a module cannot change the state it is shown; return the changes from "
            "compute_state_updates"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse_here
    clear = pop = popitem = setdefault = update = _refuse_here


def read_only(state: Mapping[str, Any]) -> ShownState:
    """Return a copy of a state that refuses changes; nested values are copied."""
    if isinstance(state, ShownState):
        return state
    return ShownState(
        {
            name: value if isinstance(value, _UNCHANGING) else copy.deepcopy(value)
            for name, value in state.items()
        }
    )


def _source_of(code: Any) -> str:
    """Return the text of code made by hand; empty where Python does not know it."""
    functions = [getattr(code, name) for name in _PARAMETERS if hasattr(code, name)]
    try:
        return "\n".join([inspect.getsource(function) for function in functions])
    except (OSError, TypeError):
        return ""


def _kind(value: object) -> str:
    return type(value).__name__


def _is_unicode(value: object) -> bool:
    """Say whether a text can be sent and recorded; halves of surrogate pairs cannot."""
    try:
        return not isinstance(value, str) or value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def _place_of(error: BaseException) -> str:
    """Say where in the module's code it went wrong: past the frame of the call itself.

    The refusal to change a state stands in this file, but the fault is its caller's.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if frames and frames[-1].name == ShownState._refuse_here.__name__:
        frames.pop()
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
