"""What is done to a crisis from outside: values set, events injected, agents muted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from llmsim_lab.context.crisis_state import CrisisIntervention, CrisisState, Happening
from llmsim_lab.context.game_engine import GameEngine
from llmsim_lab.errors import ConfigError

__all__ = ["OUTSIDE", "changed_from_outside", "check_possible"]

OUTSIDE = "outside"
"""The source of changes made by interventions; it may set what the engine's model may not."""


def check_possible(intervention: CrisisIntervention, world: GameEngine) -> None:
    """Refuse what cannot be done.

    Args:
        intervention: what is to be done.
        world: the variables and agents that there are; it is left as it is.

    Raises:
        ConfigError: there is no such variable or agent, or the value is impossible.
    """
    named = (*intervention.mute, *intervention.unmute)
    if strangers := [name for name in named if name not in world.agents]:
        raise ConfigError(
            f"there is no agent {strangers[0]!r} to mute or unmute; there are: "
            f"{', '.join(world.agents)}"
        )
    if both := set(intervention.mute) & set(intervention.unmute):
        raise ConfigError(f"{', '.join(sorted(both))}: cannot be muted and unmuted at once")
    restore = world.checkpoint()
    records = world.apply_state_updates(_updates(intervention), source=OUTSIDE)
    restore()
    for record in records:
        if record.status == "failed":
            whose = f"{record.agent}." if record.agent else ""
            raise ConfigError(f"{whose}{record.variable} = {record.asked!r}: {record.reason}")


def changed_from_outside(
    state: CrisisState, intervention: CrisisIntervention, world: GameEngine
) -> CrisisState:
    """Return a state with what an intervention does to it.

    Args:
        state: the state.
        intervention: a possible one.
        world: the state's variables, to be changed.
    """
    world.apply_state_updates(_updates(intervention), source=OUTSIDE)
    told = [
        Happening(event.description, event.type, source=OUTSIDE) for event in intervention.events
    ]
    return replace(
        state,
        **world.get_current_state(),
        pending=(*state.pending, *told),
        muted=tuple(_muted(state, intervention)),
    )


def _updates(intervention: CrisisIntervention) -> Mapping[str, Any]:
    return {"global_vars": intervention.set_to, "agent_vars": intervention.set_agents}


def _muted(state: CrisisState, intervention: CrisisIntervention) -> Iterator[str]:
    """Yield who is muted, in the scenario's order."""
    muted = {*state.muted, *intervention.mute} - {*intervention.unmute}
    yield from (name for name in state.agent_vars if name in muted)
