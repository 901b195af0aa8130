"""The world of a crisis: its variables, and what became of each change asked for.

Changes are judged one by one: those that are possible are made, all at once; the others are not
made, and are recorded with the reason. So one impossible value does not cost a turn its possible
ones, and no value is moved into its bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from llmsim_lab._util.text import clip, log_event
from llmsim_lab.context._modules import ComposedModules
from llmsim_lab.context._variables import Scalar, Variable, Variables, inferred, initial_values
from llmsim_lab.errors import ConfigError, ModuleError
from llmsim_lab.types import Status

logger = logging.getLogger(__name__)

ENGINE = "engine"
"""The source of changes that the engine's model asks for."""

OUTSIDE = "outside"
"""The source of changes made by interventions; it may set what the engine's model may not."""

_KINDS = ("global_vars", "agent_vars")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRecord:
    """What became of one change.

    Attributes:
        agent: whose variable, or None for the world's.
        variable: its name.
        asked: the value asked for, as it came.
        before: the value until then, None if there is no such variable.
        after: the value from then on.
        status: ``ok``; ``repaired`` if the value was converted, as ``reason`` says; ``failed`` if
            the change was not made.
        reason: empty if ok.
        source: who asked: ``engine``, or a module's name.
    """

    agent: str | None
    variable: str
    asked: Any
    before: Scalar | None
    after: Scalar | None
    status: Status
    reason: str = ""
    source: str = ENGINE

    @property
    def column(self) -> str:
        """The variable as a frame names it: an agent's as ``agent.variable``."""
        return f"{self.agent}.{self.variable}" if self.agent else self.variable


_Change: TypeAlias = tuple[str | None, str, Any, str]
"""One change asked for: agent, variable, value; and a fault if it has not the form of one."""


class GameEngine:
    """Holds the state and changes it by the rules.

    Args:
        global_vars: the world's initial values by name.
        agent_vars: each agent's initial values by name.
        modules: their definitions apply; a variable of theirs that is not given has its default.
        variables: further definitions, a scenario's own. A value without a definition becomes a
            number, a text or a flag without bounds.

    Attributes:
        variables: all definitions.
        records: every change asked for since the start.

    Raises:
        ConfigError: an initial value is impossible or missing.

    Example:
        >>> engine = GameEngine({"alert": False}, {"Ada": {"gold": 5}})
        >>> [record.status for record in engine.apply_state_updates({"global_vars": {"alert": 3}})]
        ['failed']
    """

    def __init__(
        self,
        global_vars: Mapping[str, Any],
        agent_vars: Mapping[str, Mapping[str, Any]],
        modules: ComposedModules | None = None,
        *,
        variables: Variables | None = None,
    ) -> None:
        defined = (modules or ComposedModules()).variables_with(variables)
        found: list[tuple[tuple[str, ...], str]] = []
        extra_global = _undefined(global_vars, defined.global_vars, ("global_vars",), found)
        self._global_definitions = dict(defined.global_vars) | extra_global
        self._agent_definitions: dict[str, dict[str, Variable]] = {}
        agents_extra: dict[str, Variable] = {}
        self._global, faults = initial_values(
            self._global_definitions, global_vars, ("global_vars",)
        )
        found += faults
        self._agents: dict[str, dict[str, Any]] = {}
        for agent, given in agent_vars.items():
            place = ("agent_vars", agent)
            extra = _undefined(given, defined.agent_vars, place, found)
            # One definition for all agents: the type is that of the first agent's value.
            agents_extra = extra | agents_extra
            definitions = dict(defined.agent_vars) | {name: agents_extra[name] for name in extra}
            self._agent_definitions[agent] = definitions
            self._agents[agent], faults = initial_values(definitions, given, place)
            found += faults
        if found:
            lines = [f"{'.'.join(place)}: {what}" for place, what in found]
            raise ConfigError("\n".join(lines))
        self.variables = Variables(
            global_vars=self._global_definitions,
            agent_vars=dict(defined.agent_vars) | agents_extra,
        )
        self.records: list[UpdateRecord] = []

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents' names, in the order given."""
        return tuple(self._agents)

    def definitions_of(self, agent: str | None = None) -> Mapping[str, Variable]:
        """Return the definitions of the world's variables, or of one agent's."""
        return self._global_definitions if agent is None else self._agent_definitions[agent]

    def get_current_state(self) -> dict[str, Any]:
        """Return ``{"global_vars": {name: value}, "agent_vars": {agent: {name: value}}}``.

        It is a copy: changing it changes nothing here.
        """
        return {
            "global_vars": dict(self._global),
            "agent_vars": {agent: dict(values) for agent, values in self._agents.items()},
        }

    def apply_state_updates(
        self, updates: Mapping[str, Any], *, source: str = ENGINE
    ) -> tuple[UpdateRecord, ...]:
        """Make the changes that are possible, all at once; return what became of each.

        Args:
            updates: ``{"global_vars": {name: value}, "agent_vars": {agent: {name: value}}}``, each
                part optional, as ``EngineOutput.state_updates`` has it.
            source: who asks, for the records.
        """
        # All are judged before any is made, so that their order does not matter.
        records = [self._judge(change, source) for change in self._changes(updates)]
        for record in records:
            if record.status != "failed":
                self._values(record.agent)[record.variable] = record.after
            _log(record)
        self.records += records
        return tuple(records)

    def checkpoint(self) -> Callable[[], None]:
        """Return a function that brings state and records back to where they are now."""
        # Records are only ever added, so their number is enough.
        state, records = self.get_current_state(), len(self.records)

        def restore() -> None:
            self._global, self._agents = state["global_vars"], state["agent_vars"]
            del self.records[records:]

        return restore

    def _values(self, agent: str | None) -> dict[str, Any]:
        return self._global if agent is None else self._agents[agent]

    def _changes(self, updates: Any) -> Iterator[_Change]:
        """Yield each change in the updates; what does not have the form of one has a fault."""
        # Checked here although ``EngineOutput`` has the types: users' code calls this too.
        if not isinstance(updates, Mapping):
            what = f"updates are {type(updates).__name__}, not {' and '.join(_KINDS)}"
            yield None, "", updates, what
            return
        for kind, part in updates.items():
            if kind not in _KINDS:
                what = f"updates have {' and '.join(_KINDS)}, no {str(kind)!r}"
                yield None, str(kind), part, what
            elif not isinstance(part, Mapping):
                yield None, kind, part, f"{kind} is {type(part).__name__}, not names and values"
            elif kind == "global_vars":
                yield from ((None, str(name), asked, "") for name, asked in part.items())
            else:
                for agent, own in part.items():
                    if agent not in self._agents:
                        known = ", ".join(self._agents) or "none"
                        yield str(agent), "", own, f"unknown agent; there are: {known}"
                    elif not isinstance(own, Mapping):
                        given = type(own).__name__
                        what = f"an agent's changes are {given}, not names and values"
                        yield agent, "", own, what
                    else:
                        yield from ((agent, str(name), asked, "") for name, asked in own.items())

    def _judge(self, change: _Change, source: str) -> UpdateRecord:
        before: Scalar | None = None
        after: Scalar | None = None
        agent, name, asked, fault = change
        repair = ""
        if not fault:
            variable = self.definitions_of(agent).get(name)
            if variable is None:
                fault = self._unknown(agent, name)
            else:
                before = after = self._values(agent)[name]
                # The schema does not name such variables to the model, but not every server holds
                # it to the schema. Modules' code and interventions may change any variable.
                if source == ENGINE and not variable.engine_may_set:
                    fault = "only modules' code may change it"
                else:
                    try:
                        after, repair = variable.accept(asked)
                    except ValueError as error:
                        fault = str(error)
        return UpdateRecord(
            agent=agent,
            variable=name,
            asked=asked,
            before=before,
            after=after,
            status="failed" if fault else "repaired" if repair else "ok",
            reason=fault or repair,
            source=source,
        )

    def _unknown(self, agent: str | None, name: str) -> str:
        if agent is not None and name in self._global_definitions:
            return f"{name!r} is a variable of the world, not of an agent"
        if agent is None and name in self.variables.agent_vars:
            return f"{name!r} is a variable of an agent, not of the world"
        known = ", ".join(self.definitions_of(agent)) or "none"
        return f"unknown variable; there are: {known}"


def _undefined(
    given: Mapping[str, Any],
    defined: Mapping[str, Variable],
    place: tuple[str, ...],
    found: list[tuple[tuple[str, ...], str]],
) -> dict[str, Variable]:
    """Return definitions for values that have none; add to ``found`` which cannot have one."""
    extra: dict[str, Variable] = {}
    for name, value in given.items():
        if name not in defined:
            try:
                extra[name] = inferred(value)
            except ValueError as error:
                found.append(((*place, name), str(error)))
    return extra


def _log(record: UpdateRecord) -> None:
    # An intervention that cannot be made raises an error, which says the same.
    told = record.status == "failed" and record.source == OUTSIDE
    if record.status != "ok" and not told:
        log_event(
            logger,
            logging.WARNING if record.status == "failed" else logging.INFO,
            f"state_update_{'refused' if record.status == 'failed' else 'repaired'}",
            source=record.source,
            agent=record.agent,
            variable=record.variable,
            asked=clip(repr(record.asked), 60),
            reason=record.reason,
        )


def apply_deterministic_updates(
    composed_modules: ComposedModules | None, game_engine: GameEngine, step_number: int
) -> tuple[UpdateRecord, ...]:
    """Apply the rules of each module, in dependency order, before the engine's model is asked.

    A module sees all agents as they were before it, so that their order does not matter; the next
    module sees what it changed.

    Args:
        composed_modules: the modules, or None for none.
        game_engine: its state is changed.
        step_number: the number of the turn being played.

    Returns:
        What became of each change that the modules asked for.

    Raises:
        ModuleError: a module's code failed. The state is then as it was before the first module.
    """
    restore = game_engine.checkpoint()
    records: list[UpdateRecord] = []
    try:
        for module in composed_modules or ():
            if not module.updates_state:
                continue
            state = game_engine.get_current_state()
            changes = {
                agent: updates
                for agent, own in state["agent_vars"].items()
                if (updates := module.updates_for(agent, own, state["global_vars"], step_number))
            }
            if changes:
                asked = {"agent_vars": changes}
                records += game_engine.apply_state_updates(asked, source=module.name)
    except ModuleError:
        restore()
        raise
    return tuple(records)
