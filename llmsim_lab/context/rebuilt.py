"""Build a prompt of a past turn again: it follows from the turns alone.

No model is asked, and no module's rules are run where the turn says what they changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from llmsim_lab.context.builder import AgentContextBuilder
from llmsim_lab.context.composed import ComposedModules
from llmsim_lab.context.crisis_engine import CrisisEngine, Judges
from llmsim_lab.context.crisis_state import CrisisState, CrisisTurn
from llmsim_lab.context.game_engine import ENGINE, GameEngine, UpdateRecord
from llmsim_lab.context.updates import apply_deterministic_updates
from llmsim_lab.errors import ConfigError
from llmsim_lab.prompts import RenderedPrompt

__all__ = ["HasContext", "context_at", "prompt_again"]


class HasContext(Protocol):
    """A crisis simulation, as far as its prompts depend on it."""

    engine: Judges
    modules: ComposedModules
    builder: AgentContextBuilder
    turns: Any

    def world(self, state: CrisisState) -> GameEngine:
        """Return a state's variables with their definitions."""
        ...


def prompt_again(
    simulation: HasContext, turn: int, component: str, agent: str
) -> RenderedPrompt | None:
    """Return the prompt that a component read in a turn, or None where that cannot be told.

    Args:
        simulation: the run.
        turn: the turn that was being played; the engine's may be of one that failed.
        component: ``agent`` or ``engine``.
        agent: whose prompt.
    """
    turns: Sequence[CrisisTurn] = simulation.turns
    place = turn - turns[0].number
    if not 1 <= place <= len(turns):
        return None
    if component == "agent" and place < len(turns) and agent in turns[place].state.agent_vars:
        return context_at(simulation, turn, agent, simulation.builder)
    if component != "engine" or not isinstance(simulation.engine, CrisisEngine):
        return None
    before = turns[place - 1].state
    world = simulation.world(before)
    if place < len(turns):
        _change(world, turns[place].updates, engine=False)
    else:
        apply_deterministic_updates(simulation.modules, world, turn)
    return simulation.engine.build_prompt(
        world,
        step_number=turn,
        responses=before.responses,
        events=[item.event for item in (*before.events, *before.pending)],
    )


def context_at(
    simulation: HasContext, turn: int, agent: str, builder: AgentContextBuilder
) -> RenderedPrompt:
    """Return what an agent read in a turn, or, for the turn to come, would read as things are.

    Args:
        simulation: the run.
        turn: one that was played, or the next.
        agent: whose prompt.
        builder: what builds it.

    Raises:
        ConfigError: there is no such turn.
    """
    turns: Sequence[CrisisTurn] = simulation.turns
    first = turns[0].number
    place = turn - first
    if not 1 <= place <= len(turns):
        raise ConfigError(
            f"there is no prompt of turn {turn}: turns {first + 1} to {turns[-1].number} were "
            f"played, and turn {turns[-1].number + 1} can be previewed"
        )
    before = turns[place - 1].state
    world = simulation.world(before)
    events = before.pending
    if place < len(turns):
        played = turns[place]
        _change(world, played.updates, engine=True)
        events = played.state.events
    state = world.get_current_state()
    return builder.build_prompt(
        agent_name=agent,
        step_number=turn,
        agent_state=state["agent_vars"][agent],
        global_state=state["global_vars"],
        other_responses=before.responses,
        events=[item.event for item in events],
    )


def _change(world: GameEngine, records: Iterable[UpdateRecord], *, engine: bool) -> None:
    """Make recorded changes again: the modules', and the engine's if wanted."""
    for record in records:
        if record.status == "failed" or (record.source == ENGINE and not engine):
            continue
        change = {record.variable: record.after}
        updates = (
            {"global_vars": change}
            if record.agent is None
            else {"agent_vars": {record.agent: change}}
        )
        world.apply_state_updates(updates, source=record.source)
