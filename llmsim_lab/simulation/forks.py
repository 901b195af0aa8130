"""Make of a run and one of its turns a run of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, ScriptedBackend, Tape
from llmsim_lab.llm.tape import Verb
from llmsim_lab.models import GlobalState, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation.interventions import checked
from llmsim_lab.simulation.manifest import make_manifest
from llmsim_lab.simulation.taping import Recording, tape_turn
from llmsim_lab.simulation.turn import Turn

if TYPE_CHECKING:
    from llmsim_lab.simulation.simulation import Simulation

__all__ = ["NoModel", "fork_of", "on_tape"]


class NoModel(ScriptedBackend):
    """In the place of a recorded run's model: whoever asks it has left the tape."""

    def __init__(self) -> None:
        super().__init__(TapeError("a replay makes no call"))


def fork_of(
    simulation: Simulation,
    turn: int | None,
    *,
    prompt: Prompt | Sequence[Prompt],
    state: GlobalState | SimulationState | None,
    intervene: Sequence[Mapping[str, Any]],
    llm_client: LLMClient | None = None,
    tape: Tape | None = None,
) -> Simulation:
    """Return a simulation that goes on from a turn of another; see ``Simulation.fork``."""
    at = simulation.turn if turn is None else turn
    first = simulation.turns[0].number
    if not first <= at <= simulation.turn:
        raise ConfigError(
            f"turn {at} cannot be forked from: the run has turns {first} to {simulation.turn}"
        )
    client = llm_client or simulation.llm_client
    if client is not None and isinstance(client.backend, NoModel):
        if simulation.config.needs_model:
            raise ConfigError(
                "what comes after a fork is live: give it a model, fork(..., "
                "llm_client=connect('auto'))"
            )
        client = None
    turns = list(simulation.turns[: at - first + 1])
    if state is not None:
        turns[-1] = replace(turns[-1], state=_state_at(turns[-1], state))
    planned = [item for when, items in simulation.planned.items() if when > at for item in items]
    parts = _copied_parts(simulation, client, [prompt] if isinstance(prompt, Prompt) else prompt)
    new = type(simulation)(
        simulation.config.model_copy(update={"interventions": ()}),
        llm_client=client,
        state=turns[-1].state,
        **parts,
    )
    new.config, new.given = simulation.config, simulation.given
    new.take_over(turns, planned, None)
    for values in intervene:
        item = checked(values)
        new.intervene(item.turn, set=item.set_to, shock=item.shock, note=item.note)
    tape = simulation.tape if tape is None else tape
    if tape is None:
        return new
    return on_tape(new, tape, verb="fork", parent=simulation.run_id, fork_turn=at)


def _state_at(turn: Turn, state: GlobalState | SimulationState) -> SimulationState:
    """Return another state in a turn's place: its number, period and chains stay."""
    economy = state.global_state if isinstance(state, SimulationState) else state
    agents = state.agents if isinstance(state, SimulationState) else turn.state.agents
    return turn.state.model_copy(update={"global_state": economy, "agents": agents})


def _copied_parts(
    simulation: Simulation, client: LLMClient | None, prompts: Sequence[Prompt]
) -> dict[str, Any]:
    """Return copies of a simulation's parts with another model and other prompts."""
    wanted = {prompt.name: prompt for prompt in prompts}
    used: set[str] = set()

    def copied(part: Any) -> Any:
        new = copy.copy(part)
        if client is not None and hasattr(part, "llm_client"):
            new.llm_client = client
        name = part.prompt.name if isinstance(getattr(part, "prompt", None), Prompt) else None
        if name is not None:
            used.add(name)
            new.prompt = wanted.get(name, part.prompt)
        return new

    parts = {
        "agents": [copied(agent) for agent in simulation.agents],
        "validator": copied(simulation.validator),
        "engine": copied(simulation.engine),
    }
    if lost := wanted.keys() - used:
        raise ConfigError(
            f"no part of the run uses a prompt named {', '.join(sorted(lost))}; "
            f"its prompts are: {', '.join(sorted(used)) or 'none'}"
        )
    return parts


def on_tape(
    simulation: Simulation,
    tape: Tape,
    *,
    verb: Verb,
    parent: int | None,
    fork_turn: int | None = None,
) -> Simulation:
    """Begin a run on a tape for a simulation that has its turns already."""
    number = tape.add_run(
        make_manifest(simulation),
        name=simulation.config.name,
        first=tape_turn(simulation.turns[-1], simulation.planned),
        verb=verb,
        parent=parent,
        fork_turn=fork_turn,
    )
    planned = [item for items in simulation.planned.values() for item in items]
    return simulation.take_over(simulation.turns, planned, Recording(tape, number))
