"""Make of a run and one of its turns a run of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from llmsim_lab.checks import whole_number
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, ScriptedBackend, Tape
from llmsim_lab.llm.tape._codec import Verb
from llmsim_lab.logs import log_event
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs.manifest import make_manifest
from llmsim_lab.runs.parts import belongs_to, check_used, copied
from llmsim_lab.runs.records import tape_turn
from llmsim_lab.runs.settings import checked
from llmsim_lab.runs.taping import Recording

if TYPE_CHECKING:
    from llmsim_lab.runs.base import Run

__all__ = ["NoModel", "fork_of", "on_tape"]

logger = logging.getLogger(__name__)

RunT = TypeVar("RunT", bound="Run")


class NoModel(ScriptedBackend):
    """In the place of a recorded run's model: whoever asks it has left the tape."""

    def __init__(self) -> None:
        super().__init__(TapeError("a replay makes no call"))


def fork_of(
    simulation: RunT,
    turn: int | None,
    *,
    prompt: Prompt | Sequence[Prompt],
    state: Any,
    intervene: Iterable[Mapping[str, Any]],
    llm_client: LLMClient | None = None,
    tape: Tape | None = None,
) -> RunT:
    """Return a run that goes on from a turn of another; see ``Run.fork``."""
    at = simulation.turn_number if turn is None else whole_number("turn", turn)
    first = simulation.turns[0].number
    if not first <= at <= simulation.turn_number:
        raise ConfigError(
            f"turn {at} cannot be forked from: the run has turns {first} to "
            f"{simulation.turn_number}"
        )
    from_outside = _listed(intervene)
    client = _live_client(simulation, llm_client)
    turns = list(simulation.turns[: at - first + 1])
    if state is not None:
        turns[-1] = replace(turns[-1], state=simulation.state_at(turns[-1], state))
    planned = [item for when, items in simulation.planned.items() if when > at for item in items]
    new = _copy_of(
        simulation, client, [prompt] if isinstance(prompt, Prompt) else prompt, turns[-1]
    )
    new.take_over(turns, planned, None)
    for values in from_outside:
        new.add_intervention(checked(type(simulation).intervention_type, values))
    tape = simulation.tape if tape is None else tape
    if tape is None:
        return new.note_unrecorded(simulation.unrecorded)
    if tape.read_only:
        return _in_memory(new, tape, simulation.run_id, at)
    return on_tape(new, tape, verb="fork", parent=simulation.run_id, fork_turn=at)


def _listed(intervene: Any) -> list[Mapping[str, Any]]:
    """Return interventions as a list, whatever they came in; a generator can be read but once."""
    one = isinstance(intervene, Mapping | str) or not isinstance(intervene, Iterable)
    items = [] if one else list(intervene)
    if one or not all(isinstance(item, Mapping) for item in items):
        raise ConfigError(
            f"intervene={items or intervene!r:.120} must be a list of interventions, each a dict: "
            "intervene=[{'turn': 3, ...}]"
        )
    return items


def _live_client(simulation: Run, llm_client: LLMClient | None) -> LLMClient | None:
    client = llm_client or simulation.llm_client
    if client is not None and isinstance(client.backend, NoModel):
        if simulation.config.needs_model:
            raise ConfigError(
                "what comes after a fork is live: give it a model, fork(..., "
                "llm_client=connect('auto'))"
            )
        return None
    return client


def _copy_of(
    simulation: RunT, client: LLMClient | None, prompts: Sequence[Prompt], turn: Any
) -> RunT:
    """Return a run with copies of another's parts, which starts from a turn's state."""
    wanted = {prompt.name: prompt for prompt in prompts}
    used = simulation.prompts
    check_used(wanted, [prompt.name for prompt in used.values()])
    kind = type(simulation)
    new = kind.rebuilt(
        simulation.config.model_copy(update={"interventions": ()}),
        llm_client=client,
        state=turn.state,
        prompts={
            place: wanted.get(prompt.name, prompt)
            for place, prompt in used.items()
            if not belongs_to(place, kind.part_names)
        },
        parts=copied(simulation.parts, client, wanted),
    )
    new.config, new.given = simulation.config, simulation.given
    return new


def _in_memory(new: RunT, tape: Tape, run: int | None, at: int) -> RunT:
    """Say loudly that a fork is not recorded, and how it would be."""
    log_event(
        logger,
        logging.WARNING,
        "FORK_NOT_RECORDED",
        tape=tape.path,
        run=run,
        fork_turn=at,
        reason="the tape was opened for reading only, so the fork lives in memory and is lost "
        "with this process",
        way_out=f"fork({str(tape.path)!r}, {run}, turn={at}, ...) opens the tape for writing; "
        "where its file cannot be written to, fork a copy of it",
    )
    return new.note_unrecorded(f"the tape {tape.path} is open for reading only")


def on_tape(
    simulation: RunT,
    tape: Tape,
    *,
    verb: Verb,
    parent: int | None,
    fork_turn: int | None = None,
) -> RunT:
    """Begin a run on a tape for a simulation that has its turns already."""
    kind = type(simulation)
    number = tape.add_run(
        make_manifest(simulation),
        name=simulation.config.name,
        first=tape_turn(kind, simulation.turns[-1], simulation.planned),
        verb=verb,
        parent=parent,
        fork_turn=fork_turn,
    )
    planned = [item for items in simulation.planned.values() for item in items]
    return simulation.take_over(simulation.turns, planned, Recording(kind, tape, number))
