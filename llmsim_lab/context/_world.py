"""The world of a crisis: its variables, and what became of each change asked for.

Changes are judged one by one: those that are possible are made; the others are not, and are
recorded with the reason. So one impossible value does not cost a turn its possible ones, and no
value is moved into its bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from llmsim_lab._util.checks import instance_of
from llmsim_lab._util.text import among, brief, log_event
from llmsim_lab.context._modules import ComposedModules
from llmsim_lab.context._variables import Scalar, Variable, Variables, inferred
from llmsim_lab.errors import ConfigError

logger = logging.getLogger(__name__)

ENGINE = "engine"
"""The source of changes that the engine's model asks for."""

OUTSIDE = "outside"
"""The source of changes made by interventions; it may set what the engine's model may not."""


class UpdateRecord(NamedTuple):
    """What became of one change.

    Attributes:
        agent: whose variable, or None for the world's.
        variable: its name.
        asked: the value asked for, as it came.
        before: the value until then, None if there is no such variable.
        after: the value from then on.
        status: ``ok``, or ``failed`` if the change was not made.
        reason: why not; empty if ok.
        source: who asked: ``engine``, or a module's name.
    """

    agent: str | None
    variable: str
    asked: object
    before: Scalar | None
    after: Scalar | None
    status: Literal["ok", "failed"]
    reason: str
    source: str

    @property
    def column(self) -> str:
        """The variable as a frame names it: an agent's as ``agent.variable``."""
        if not self.agent:
            return self.variable
        return f"{self.agent}.{self.variable}"

    @property
    def is_refused(self) -> bool:
        """Whether the change was impossible."""
        return self.status == "failed"

    @property
    def is_made(self) -> bool:
        """Whether the variable has another value now."""
        # A value that is asked for as it is changes nothing, and is no line of a story.
        return not self.is_refused and self.after != self.before


def count_made(updates: Iterable[UpdateRecord]) -> int:
    """Return how many changes gave a variable another value."""
    return sum(update.is_made for update in updates)


def count_refused(updates: Iterable[UpdateRecord]) -> int:
    """Return how many changes were impossible."""
    return sum(update.is_refused for update in updates)


class GameEngine:
    """Holds the state and changes it by the rules.

    Args:
        global_vars: the world's initial values by name.
        agent_vars: each agent's initial values by name.
        modules: their definitions apply; a variable of theirs that is not given has its default.
        variables: further definitions, a scenario's own. A value without a definition becomes a
            number, a text or a flag without bounds.
        closed: whether a value without a definition is an error instead.

    Attributes:
        variables: all definitions.

    Raises:
        ConfigError: an initial value is impossible, missing or, if closed, not defined.

    Example:
        >>> engine = GameEngine({"alert": False}, {"Ada": {"gold": 5}})
        >>> [record.status for record in engine.apply_state_updates({"global_vars": {"alert": 3}})]
        ['failed']
    """

    def __init__(
        self,
        global_vars: Mapping[str, object],
        agent_vars: Mapping[str, Mapping[str, object]],
        modules: ComposedModules | None = None,
        *,
        variables: Variables | None = None,
        closed: bool = False,
    ) -> None:
        if modules is None:
            modules = ComposedModules()
        instance_of("modules", modules, ComposedModules, "ComposedModules")
        defined = modules.variables_with(variables)
        # All agents share their definitions, so that one checks all of them.
        of_world = _Start(
            "global_vars",
            defined.global_vars,
            closed=closed,
        )
        of_agents = _Start(
            "agent_vars",
            defined.agent_vars,
            closed=closed,
        )
        self._values: dict[str | None, dict[str, Scalar]] = {}
        # The world's values stand under None, so that no agent's name can be theirs.
        self._values[None] = of_world.values(global_vars)
        for agent, values in _by_name("agent_vars", agent_vars).items():
            self._values[agent] = of_agents.values(values, agent)
        self.variables = Variables(global_vars=of_world.variables, agent_vars=of_agents.variables)

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents' names, in the order given."""
        return tuple(agent for agent in self._values if agent is not None)

    def get_current_state(self) -> dict[str, Any]:
        """Return ``{"global_vars": {name: value}, "agent_vars": {agent: {name: value}}}``.

        It is a copy: changing it changes nothing here.
        """
        # Copies of both levels: what a module's code changes in them would be on no record.
        return {
            "global_vars": dict(self._values[None]),
            "agent_vars": {agent: dict(self._values[agent]) for agent in self.agents},
        }

    def apply_state_updates(
        self, updates: Mapping[str, Any], *, source: str = ENGINE
    ) -> tuple[UpdateRecord, ...]:
        """Make the changes that are possible; return what became of each.

        Args:
            updates: ``{"global_vars": {name: value}, "agent_vars": {agent: {name: value}}}``, each
                part optional, as ``EngineOutput.state_updates`` has it.
            source: who asks, for the records.

        Raises:
            ConfigError: the updates have other parts.
        """
        unknown_parts = _by_name("updates", updates).keys() - {"global_vars", "agent_vars"}
        # A misspelt part would be a turn without changes, without a word.
        if unknown_parts:
            raise ConfigError(
                f"updates have global_vars and agent_vars, not {brief(unknown_parts.pop())}"
            )
        records = []
        of_world = _by_name("global_vars", updates.get("global_vars", {}))
        for name, value in of_world.items():
            record = self.change(
                None,
                name,
                value,
                source,
            )
            records.append(record)
        of_agents = _by_name("agent_vars", updates.get("agent_vars", {}))
        for agent, changes in of_agents.items():
            for name, value in _by_name(f"agent_vars.{agent}", changes).items():
                record = self.change(
                    agent,
                    name,
                    value,
                    source,
                )
                records.append(record)
        return tuple(records)

    def change(
        self,
        agent: str | None,
        name: str,
        value: object,
        source: str,
    ) -> UpdateRecord:
        """Make one change, if it is possible, and return what became of it."""
        # Of an unknown agent an empty one, which is thrown away: ``_accepted`` refuses the change.
        values = self._values.get(agent, {})
        before = values.get(name)
        status: Literal["ok", "failed"] = "ok"
        reason = ""
        try:
            values[name] = self._accepted(agent, name, value, source)
        except ValueError as error:
            status = "failed"
            reason = str(error)
            # An intervention that cannot be made raises an error, which says the same.
            if source != OUTSIDE:
                log_event(
                    logger,
                    logging.WARNING,
                    "state_update_refused",
                    source=source,
                    agent=agent,
                    variable=name,
                    asked=brief(value),
                    reason=reason,
                )
        return UpdateRecord(
            agent,
            name,
            value,
            before,
            values.get(name),
            status,
            reason,
            source,
        )

    def _accepted(
        self,
        agent: str | None,
        name: str,
        value: object,
        source: str,
    ) -> Scalar:
        """Return a value as its variable takes it.

        Raises:
            ValueError: the change is impossible; the message says why.
        """
        if agent not in self._values:
            raise ValueError(f"unknown agent; there are: {', '.join(self.agents) or 'none'}")
        names = self._values[agent]
        if name not in names:
            raise ValueError(f"unknown variable; there are: {', '.join(names) or 'none'}")
        defined = self.variables.agent_vars
        if agent is None:
            defined = self.variables.global_vars
        # The schema does not name such variables to the model, but not every server limits it to
        # the schema. Modules' code and interventions may change any variable.
        if source == ENGINE and not defined[name].engine_may_set:
            raise ValueError("only modules' code may change it")
        return defined[name].accept(value)


class _Start:
    """Checks initial values of the world or of the agents.

    Args:
        place: where they stand, for messages.
        defined: the variables' definitions.
        closed: whether a value without a definition is an error.

    Attributes:
        variables: the definitions, and those that were made of values. All agents share them: the
            type is that of the first agent's value.
    """

    def __init__(
        self,
        place: str,
        defined: Mapping[str, Variable],
        *,
        closed: bool,
    ) -> None:
        self.variables = dict(defined)
        self._place = place
        self._defined = defined
        self._closed = closed

    def values(
        self,
        values: Mapping[str, object],
        agent: str = "",
    ) -> dict[str, Scalar]:
        """Return the values by name, those left out at their defaults, in the definitions' order.

        Raises:
            ConfigError: a value is impossible, missing or, if closed, not defined.
        """
        place = f"{self._place}.{agent}" if agent else self._place
        _by_name(place, values)
        accepted: dict[str, Scalar] = {}
        # The definitions' order, which prompts and frames keep; then what has no definition.
        for name in dict.fromkeys([*self._defined, *values]):
            if self._closed and name not in self._defined:
                raise ConfigError(f"{place}.{name}: unknown variable{among(name, self._defined)}")
            if name not in self.variables:
                self.variables[name] = inferred(f"{place}.{name}", values[name])
            variable = self.variables[name]
            value = values.get(name, variable.default)
            # YAML reads a name without a value, ``gold:``, as None.
            if value is None:
                raise ConfigError(f"{place}: no value for {name!r}, which has no default")
            try:
                accepted[name] = variable.accept(value)
            except ValueError as error:
                raise ConfigError(f"{place}.{name}: {error}") from error
        return accepted


def _by_name(place: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what must be a dict by names, such as that of an agent's values."""
    return instance_of(place, values, Mapping, "a dict by names")


def apply_deterministic_updates(
    composed_modules: ComposedModules | None,
    game_engine: GameEngine,
    step_number: int,
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
        ModuleError: a module's code failed; the modules before it have changed the state.
    """
    instance_of(
        "composed_modules",
        composed_modules,
        ComposedModules | None,
        "ComposedModules, or None",
    )
    instance_of("game_engine", game_engine, GameEngine, "a GameEngine")
    records: list[UpdateRecord] = []
    for module in composed_modules or ():
        state = game_engine.get_current_state()
        world = state["global_vars"]
        # All are asked for before one is made: no agent's rule sees another's change.
        changes = {}
        for agent, values in state["agent_vars"].items():
            update = module.call(
                "compute_state_updates",
                agent,
                values,
                world,
                step_number,
            )
            # None where the module's code has no such function.
            changes[agent] = update or {}
        records += game_engine.apply_state_updates({"agent_vars": changes}, source=module.name)
    return tuple(records)
