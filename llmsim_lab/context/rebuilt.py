"""Build an agent's prompt of any turn: it follows from the turns alone.

No model is asked, and no module's rules are run where the turn says what they changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from llmsim_lab.context.builder import AgentContextBuilder
from llmsim_lab.context.crisis_state import CrisisState, CrisisTurn
from llmsim_lab.context.game_engine import GameEngine, UpdateRecord
from llmsim_lab.errors import ConfigError
from llmsim_lab.prompts import RenderedPrompt

__all__ = ["HasContext", "context_at"]


class HasContext(Protocol):
    """A crisis simulation, as far as its prompts depend on it."""

    turns: Any

    def world(self, state: CrisisState) -> GameEngine:
        """Return a state's variables with their definitions."""
        ...


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
        _change(world, played.updates)
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


def _change(world: GameEngine, records: Iterable[UpdateRecord]) -> None:
    """Make recorded changes again, the modules' and the engine's."""
    for record in records:
        if record.status == "failed":
            continue
        change = {record.variable: record.after}
        updates = (
            {"global_vars": change}
            if record.agent is None
            else {"agent_vars": {record.agent: change}}
        )
        world.apply_state_updates(updates, source=record.source)
