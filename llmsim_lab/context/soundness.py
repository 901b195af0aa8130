"""Whether a state of a crisis is sound, and its variables have names of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from llmsim_lab.context.crisis_state import CrisisState, Happening
from llmsim_lab.context.table import Variables
from llmsim_lab.errors import ConfigError
from llmsim_lab.runs._state import COMMON_COLUMNS

__all__ = ["check_columns", "check_state"]

_COUNTS = ("events", "changes", "refused")
"""The frame's columns besides the variables."""


def check_columns(names: Iterable[str]) -> None:
    """Refuse variables that would be lost in the frame, before anything is played.

    Raises:
        ConfigError: it names the first of them.
    """
    columns = {*_COUNTS, *COMMON_COLUMNS}
    if taken := [name for name in names if name in columns]:
        raise ConfigError(
            f"the variable {taken[0]!r} has the name of a column that every crisis's frame has: "
            f"{', '.join(sorted(columns))}; rename it"
        )


def check_state(state: CrisisState, *, agents: Sequence[str], variables: Variables) -> None:
    """Refuse a state of other agents, of unknown variables, or with words of nobody.

    Whether the values are possible is the ``GameEngine``'s to judge.

    Args:
        state: the state.
        agents: the scenario's.
        variables: all definitions there are.

    Raises:
        ConfigError: it names the first thing that is wrong.
    """
    there = list(state.agent_vars)
    if sorted(there) != sorted(agents):
        raise ConfigError(f"the state has agents {there}; the scenario's are {list(agents)}")
    fault = next(_faults(state, agents, variables), "")
    if fault:
        raise ConfigError(f"the state is not sound: {fault}")


def _faults(state: CrisisState, agents: Sequence[str], variables: Variables) -> Iterator[str]:
    yield from _names("global_vars", state.global_vars, variables.global_vars)
    for agent, own in state.agent_vars.items():
        yield from _names(f"agent_vars.{agent}", own, variables.agent_vars)
    for field, names in (("muted", state.muted), ("responses", state.responses)):
        for name in names:
            if name not in agents:
                yield f"{field}: there is no agent {name!r}; there are: {', '.join(agents)}"
    for agent, words in state.responses.items():
        if not isinstance(words, str):
            yield f"responses: what {agent!r} said is {type(words).__name__}, not a text"
    for field, happened in (("events", state.events), ("pending", state.pending)):
        for item in happened:
            if not isinstance(item, Happening):
                yield f"{field}: {item!r:.80} is no Happening; make it Happening({item!r:.80})"
            elif not item.description.strip():
                yield f"{field}: an event of type {item.type!r} says nothing; describe it"


def _names(where: str, given: Mapping[str, object], defined: Mapping[str, object]) -> Iterator[str]:
    for name in given:
        if name not in defined:
            known = ", ".join(defined) or "none"
            yield f"{where}.{name}: unknown variable; defined are: {known}"
    for name in defined:
        if name not in given:
            yield f"{where}: no value for {name!r}, which a state must have even at its default"
