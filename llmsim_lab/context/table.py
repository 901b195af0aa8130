"""Which variables a scenario has: the definitions of its own and of its modules, together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from llmsim_lab.context.variables import Variable
from llmsim_lab.context.wording import humanise
from llmsim_lab.errors import ConfigError
from llmsim_lab.settings import Settings

__all__ = ["VariableName", "Variables", "initial_values"]

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Location = tuple[str, ...]


class Variables(Settings):
    """Definitions by name; their order is the order in which prompts list the variables.

    Attributes:
        global_vars: of the world.
        agent_vars: of every agent.
    """

    global_vars: dict[VariableName, Variable] = Field(default_factory=dict)
    agent_vars: dict[VariableName, Variable] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if both := sorted(self.global_vars.keys() & self.agent_vars.keys()):
            raise ValueError(f"{both[0]!r} is both a global and an agent's variable; rename one")
        return self

    def label(self, name: str) -> str:
        """Return how prompts name a variable, defined or not."""
        found = self.global_vars.get(name) or self.agent_vars.get(name)
        return (found.label if found else "") or humanise(name)

    def get(self, name: str) -> Variable | None:
        """Return the definition of a variable, the world's or the agents'."""
        return self.global_vars.get(name) or self.agent_vars.get(name)

    @classmethod
    def together(cls, parts: Iterable[tuple[str, Variables]]) -> Variables:
        """Join definitions, in order.

        Args:
            parts: each with who defines it, for the error message.

        Raises:
            ConfigError: a variable is defined twice.
        """
        owners: dict[str, str] = {}
        world: dict[str, Variable] = {}
        own: dict[str, Variable] = {}
        for owner, part in parts:
            for target, source in ((world, part.global_vars), (own, part.agent_vars)):
                for name, variable in source.items():
                    if name in owners:
                        raise ConfigError(
                            f"{owner} defines the variable {name!r}, which {owners[name]} defines "
                            "already; rename one, or leave one out"
                        )
                    owners[name] = owner
                    target[name] = variable
        return cls(global_vars=world, agent_vars=own)


def initial_values(
    variables: Mapping[str, Variable], given: Mapping[str, Any], location: Location
) -> tuple[dict[str, Any], list[tuple[Location, str]]]:
    """Return the values a run starts with, in the definitions' order, and what is wrong with them.

    Args:
        variables: the definitions.
        given: values by name; a variable without one has its default.
        location: where the values were given, for the faults.
    """
    values: dict[str, Any] = {}
    faults: list[tuple[Location, str]] = []
    for name, variable in variables.items():
        if name not in given:
            if variable.initial is None:
                faults.append((location, f"no value for {name!r}, which has no default"))
            values[name] = variable.initial
            continue
        try:
            accepted = variable.accept(given[name])
        except ValueError as error:
            faults.append(((*location, name), str(error)))
            continue
        if accepted.repair:
            faults.append(((*location, name), f"write {accepted.value!r}: {accepted.repair}"))
        values[name] = accepted.value
    known = ", ".join(variables) or "none"
    faults += [
        ((*location, name), f"unknown variable; defined are: {known}")
        for name in given
        if name not in variables
    ]
    return values, faults
