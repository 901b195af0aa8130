"""The lines that list a state, and the sections that modules give as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llmsim_lab.context.modules import BehaviorModule
from llmsim_lab.context.table import Variables
from llmsim_lab.context.wording import humanise, section, value_text
from llmsim_lab.errors import ConfigError, ModuleError
from llmsim_lab.prompts import Prompt

__all__ = ["DataSection", "StateLines", "data_sections"]


class StateLines:
    """Lists variables with label and unit: the defined ones in their order, then any others."""

    def __init__(self, variables: Variables, kind: Literal["global_vars", "agent_vars"]) -> None:
        definitions = getattr(variables, kind)
        self._known = frozenset(definitions)
        self._shown: list[tuple[str, str, Callable[[Any], str]]] = [
            (name, f"{variables.label(name)}: ", variable.text)
            for name, variable in definitions.items()
            if variable.shown
        ]

    def of(self, state: Mapping[str, Any]) -> list[str]:
        """Return one line a variable; those without a definition keep the order given."""
        lines = [label + text(state[name]) for name, label, text in self._shown if name in state]
        if not state.keys() <= self._known:
            lines += [
                f"{humanise(name)}: {value_text(value)}"
                for name, value in state.items()
                if name not in self._known
            ]
        return lines


@dataclass(frozen=True, slots=True)
class DataSection:
    """A module's text with its slots found."""

    module: str
    title: str
    template: Prompt
    writers: Mapping[str, Callable[[Any], str]]

    def fill(
        self, agent_name: str, agent_state: Mapping[str, Any], global_state: Mapping[str, Any]
    ) -> str:
        """Return the section with its heading.

        Raises:
            ModuleError: the state lacks a variable that it names.
        """
        values = {}
        for slot in self.template.slots:
            if slot == "agent_name":
                values[slot] = agent_name
                continue
            state = agent_state if slot in agent_state else global_state
            if slot not in state:
                raise ModuleError(
                    self.module,
                    agent=agent_name,
                    function=f"section {self.title!r}",
                    detail=f"the state has no variable {slot!r}",
                )
            values[slot] = self.writers[slot](state[slot])
        return section(self.title, self.template.render(**values).user)


def data_sections(module: BehaviorModule, variables: Variables) -> tuple[DataSection, ...]:
    """Return a module's sections, ready to be filled.

    Raises:
        ConfigError: a slot names no variable of the scenario's.
    """
    found = []
    for place, item in enumerate(module.sections):
        template = Prompt(item.text, name=module.name)
        writers = {}
        for slot in template.slots:
            variable = variables.get(slot)
            if variable is not None:
                writers[slot] = variable.text
            elif slot != "agent_name":
                known = ", ".join(["agent_name", *variables.global_vars, *variables.agent_vars])
                raise ConfigError(
                    f"{module.where('sections', place)}: no variable for the slot {slot!r}; "
                    f"there are: {known}"
                )
        title = item.title or module.heading
        found.append(DataSection(module.name, title, template, writers))
    return tuple(found)
