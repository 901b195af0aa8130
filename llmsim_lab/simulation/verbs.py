"""What can be done with a recorded run: replay it, resume it, run it again, fork it.

Each verb has one meaning. ``replay`` asks no model. ``resume`` goes on where a run stopped.
``rerun`` begins anew with fresh calls. ``fork`` shares a run's turns up to one and goes on live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.tape import RunInfo
from llmsim_lab.models import GlobalState, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation.build import Parts
from llmsim_lab.simulation.config import SimulationConfig
from llmsim_lab.simulation.forks import NoModel, fork_of, on_tape
from llmsim_lab.simulation.manifest import (
    check_manifest,
    config_of,
    llm_config_of,
    prompts_of,
)
from llmsim_lab.simulation.simulation import Simulation
from llmsim_lab.simulation.taping import Recording, Replaying, load_turns, planned_after

__all__ = ["fork", "load", "replay", "rerun", "resume", "run"]

Tapes = Tape | str | Path

_THE_CLIENTS_OWN = ("model", "timeout_s", "retry_wait_s", "max_concurrency", "keep_alive")
"""Settings that say where and how patiently to ask, not what."""


def run(
    config: SimulationConfig,
    *,
    tape: Tapes,
    llm_client: LLMClient | None = None,
    turns: int | None = None,
) -> Simulation:
    """Play a new run and record it.

    Args:
        config: what to run.
        tape: the tape, or a file that becomes or is one.
        llm_client: the model, where the configuration calls for one.
        turns: how many; the configuration's number if not given.
    """
    simulation = Simulation(config, llm_client=llm_client, tape=tape)
    simulation.run(turns)
    return simulation


def replay(
    tape: Tapes,
    run: int | None = None,
    *,
    turns: int | None = None,
    **parts: Unpack[Parts],
) -> Simulation:
    """Play a recorded run again from the tape alone; no model is asked, nothing is written.

    The code runs as it did; every call is answered from the tape, and every turn is held against
    the recorded one. What is returned equals the original run to the last bit.

    Args:
        tape: the tape, or its file, which is opened for reading only.
        run: the run's number; the latest if not given.
        turns: the last turn to replay; the last recorded if not given.
        parts: ``agents``, ``validator``, ``engine``, where the run was given its own.

    Raises:
        TapeMiss: a call differs from the recorded ones; the message shows how.
        TapeError: a turn came out differently, or the tape cannot be read.
    """
    tape = _reading(tape)
    info = tape.run(run)
    first = _first_own_turn(tape, info)
    loaded = load_turns(tape, info.id, up_to=first)
    simulation = _rebuild(info, _no_model(info), parts, loaded[-1].state)
    simulation.take_over(loaded, [], Replaying(tape, info.id))
    wanted = info.turns if turns is None else turns
    if not first <= wanted <= info.turns:
        raise ConfigError(
            f"turns={wanted}: run {info.id} can be replayed up to turn {first} to {info.turns}"
        )
    run_sync(simulation.arun(wanted - first))
    return simulation


def resume(
    tape: Tapes,
    run: int | None = None,
    *,
    llm_client: LLMClient | None = None,
    **parts: Unpack[Parts],
) -> Simulation:
    """Return a run ready to go on after its last whole turn, on the same tape.

    Calls that the broken turn had been answered are not made again.

    Args:
        tape: the tape, or its file.
        run: the run's number; the latest if not given.
        llm_client: the model; it must be the recorded one.
        parts: ``agents``, ``validator``, ``engine``, where the run was given its own.

    Raises:
        TapeError: another process is writing to the run, or the tape is read-only.
    """
    tape = _writing(tape)
    info = tape.run(run)
    turns = load_turns(tape, info.id)
    simulation = _rebuild(info, llm_client, parts, turns[-1].state)
    planned = planned_after(tape.turn_records(info.id)[-1])
    return simulation.take_over(turns, planned, Recording(tape, info.id))


def rerun(
    tape: Tapes,
    run: int | None = None,
    *,
    llm_client: LLMClient | None = None,
    **parts: Unpack[Parts],
) -> Simulation:
    """Return a new run with a recorded one's configuration and prompts, at its first turn.

    All calls will be fresh ones: another sample of the same run, beside it on the tape.

    Args:
        tape: the tape, or its file.
        run: the run's number; the latest if not given.
        llm_client: the model.
        parts: ``agents``, ``validator``, ``engine``, where the run was given its own.
    """
    tape = _writing(tape)
    info = tape.run(run)
    record = tape.turn_records(info.id)[0]
    start = load_turns(tape, info.id, up_to=record["turn"])
    planned = planned_after(record)
    simulation = _rebuild(info, llm_client, parts, start[0].state)
    simulation.take_over(start, planned, None)
    return on_tape(simulation, tape, verb="rerun", parent=info.id)


def fork(
    tape: Tapes,
    run: int | None = None,
    *,
    turn: int | None = None,
    prompt: Prompt | Sequence[Prompt] = (),
    state: GlobalState | SimulationState | None = None,
    intervene: Sequence[Mapping[str, Any]] = (),
    llm_client: LLMClient | None = None,
    **parts: Unpack[Parts],
) -> Simulation:
    """Return a new run that goes on from a turn of a recorded one, with something changed.

    The turns up to there come from the tape; those after are live and recorded beside them.

    Args:
        tape: the tape, or its file.
        run: the run's number; the latest if not given.
        turn: the turn to go on from; the run's last if not given.
        prompt: an edited prompt, or several; each takes the place of those of its name.
        state: the state instead of that turn's.
        intervene: interventions as dicts, as ``Simulation.intervene`` takes them.
        llm_client: the model.
        parts: ``agents``, ``validator``, ``engine``, where the run was given its own.

    Raises:
        ConfigError: there is no such turn, or no part uses a prompt of that name.
    """
    tape = _writing(tape)
    recorded = _load(tape, tape.run(run), llm_client, parts)
    return fork_of(recorded, turn, prompt=prompt, state=state, intervene=intervene, tape=tape)


def load(tape: Tapes, run: int | None = None) -> Simulation:
    """Return a recorded run to look at: its turns, frames and chains, without playing anything.

    Args:
        tape: the tape, or its file, which is opened for reading only.
        run: the run's number; the latest if not given.
    """
    tape = _reading(tape)
    return _load(tape, tape.run(run), None, {})


def _load(tape: Tape, info: RunInfo, llm_client: LLMClient | None, parts: Parts) -> Simulation:
    turns = load_turns(tape, info.id)
    client = llm_client or _no_model(info)
    simulation = _rebuild(info, client, parts, turns[-1].state)
    planned = planned_after(tape.turn_records(info.id)[-1])
    return simulation.take_over(turns, planned, Replaying(tape, info.id))


def _no_model(info: RunInfo) -> LLMClient | None:
    check_manifest(info.id, info.manifest)
    config = llm_config_of(info.manifest)
    return LLMClient(config, NoModel()) if config else None


def _with_recorded_settings(info: RunInfo, client: LLMClient | None) -> LLMClient | None:
    """Return a client that asks the given model as the recording did, waiting as it does itself."""
    if client is None:
        return None
    own = {name: getattr(client.config, name) for name in _THE_CLIENTS_OWN}
    config = llm_config_of(info.manifest, **own)
    return client if config in (None, client.config) else LLMClient(config, client.backend)


def _rebuild(
    info: RunInfo,
    llm_client: LLMClient | None,
    parts: Parts,
    state: SimulationState,
) -> Simulation:
    """Return a simulation of a recorded run's configuration, prompts and settings."""
    check_manifest(info.id, info.manifest)
    lacking = [name for name in info.manifest["given"] if parts.get(name) is None]
    if lacking:
        raise ConfigError(
            f"run {info.id} was given {', '.join(lacking)} of its own, which no tape can hold; "
            f"pass the same again: {', '.join(f'{name}=...' for name in lacking)}"
        )
    given = {name for name, part in parts.items() if part is not None}
    prompts = {
        place: prompt
        for place, prompt in prompts_of(info.manifest).items()
        if place not in given and not (place.startswith("agent:") and "agents" in given)
    }
    config = config_of(info.manifest)
    simulation = Simulation(
        config.model_copy(update={"interventions": ()}),
        llm_client=_with_recorded_settings(info, llm_client),
        state=state,
        prompts=prompts,
        **parts,
    )
    simulation.config = config
    return simulation


def _first_own_turn(tape: Tape, info: RunInfo) -> int:
    if info.fork_turn is not None:
        return info.fork_turn
    first: int = tape.turn_records(info.id)[0]["turn"]
    return first


def _reading(tape: Tapes) -> Tape:
    return tape if isinstance(tape, Tape) else Tape(tape, read_only=True)


def _writing(tape: Tapes) -> Tape:
    if isinstance(tape, Tape):
        return tape
    path = Path(tape)
    if not path.exists() or path.stat().st_size == 0:
        raise TapeError(f"there is no tape at {tape}")
    return Tape(tape)
