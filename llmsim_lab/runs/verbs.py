"""What can be done with a recorded run of any kind: replay, resume, run again, fork.

Each verb has one meaning. ``replay`` asks no model. ``resume`` goes on where a run stopped.
``rerun`` begins anew with fresh calls. ``fork`` shares a run's turns up to one and goes on live.
Which class plays the run, the tape says.

``parts`` are the parts that a run was given by its user, such as ``agents`` and ``engine``. A verb
takes each as it is, or as anything that can be called with the client that the part is to ask, and
returns it: ``agents=lambda client: [MyAgent("Ann", client)]``. The client is the verb's
``llm_client`` with the recorded settings; where a tape answers, one that can make no call; and None
where there is neither, as in a run without a model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.tape import RunInfo
from llmsim_lab.logs import log_event
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs.forks import NoModel, fork_of, on_tape
from llmsim_lab.runs.frames import own_numbers
from llmsim_lab.runs.garbage import rare_collections
from llmsim_lab.runs.manifest import check_manifest, config_of, llm_config_of, prompts_of
from llmsim_lab.runs.parts import belongs_to, digests_in, made_of
from llmsim_lab.runs.records import planned_in
from llmsim_lab.runs.registry import kind_name, kind_of_config, kind_of_manifest
from llmsim_lab.runs.series import Series, plain_series
from llmsim_lab.runs.settings import RunConfig
from llmsim_lab.runs.taping import Recording, Replaying, load_turns

if TYPE_CHECKING:
    from llmsim_lab.runs.base import Run

__all__ = ["AnyRun", "fork", "load", "replay", "rerun", "resume", "run", "series_on", "turns_of"]

logger = logging.getLogger(__name__)

Tapes = Tape | str | Path
AnyRun = Any
"""A run of any class."""
AnyRunType = type["Run"]

_THE_CLIENTS_OWN = ("model", "timeout_s", "retry_wait_s", "max_concurrency", "keep_alive")
"""Settings that say where and how patiently to ask, not what."""


def run(
    config: RunConfig,
    *,
    tape: Tapes,
    llm_client: LLMClient | None = None,
    turns: int | None = None,
) -> AnyRun:
    """Play a new run and record it.

    Args:
        config: what to run; its type says which kind of simulation.
        tape: the tape, or a file that becomes or is one.
        llm_client: the model, where the configuration calls for one.
        turns: how many; the configuration's number if not given.
    """
    kind: Any = kind_of_config(config)
    simulation: AnyRun = kind(config, llm_client=llm_client, tape=tape)
    simulation.run(turns)
    return simulation


@rare_collections()
def replay(
    tape: Tapes,
    run: int | None = None,
    *,
    turns: int | None = None,
    kind: AnyRunType | None = None,
    **parts: Any,
) -> AnyRun:
    """Play a recorded run again from the tape alone; no model is asked, nothing is written.

    The code runs as it did; every call is answered from the tape, and every turn is held against
    the recorded one. What is returned equals the original run to the last bit.

    Args:
        tape: the tape, or its file, which is opened for reading only.
        run: the run's number; the latest if not given.
        turns: the last turn to replay; the last recorded if not given.
        kind: the class that plays it; the tape says its name, and a class that is known here by
            that name is found by itself.
        parts: those that the run was given by its user, the same again; or for each what makes it
            of the client, or of None where the run has no model.

    Raises:
        TapeMiss: a call differs from the recorded ones; the message shows how.
        TapeError: a turn came out differently, the run was redacted, or the tape cannot be read.
    """
    tape = _reading(tape)
    info = tape.run(run)
    if info.manifest.get("redacted"):
        raise TapeError(
            f"run {info.id} on {tape.path} was redacted: digests stand where its texts were, so "
            f"it cannot be replayed; load({str(tape.path)!r}, {info.id}) shows what is left"
        )
    kind = _kind_of(info, kind)
    records = tape.turn_records(info.id)
    first = records[0]["turn"] if info.fork_turn is None else info.fork_turn
    shared = [record for record in records if record["turn"] <= first]
    loaded = load_turns(kind, tape, info.id, shared)
    simulation = _rebuild(kind, info, _no_model(kind, info), parts, loaded[-1].state)
    planned = planned_in(kind, records)
    simulation.take_over(loaded, planned, Replaying(kind, tape, info.id, records))
    wanted = info.turns if turns is None else turns
    if not first <= wanted <= info.turns:
        raise ConfigError(
            f"turns={wanted}: run {info.id} can be replayed up to turn {first} to {info.turns}"
        )
    try:
        run_sync(simulation.play_on(wanted - first, beyond_done=True))
    except TapeError as error:
        if changed := simulation.code_changes or _code_changes(info, simulation):
            raise type(error)(f"{error}. Mind that {changed}") from error
        raise
    return simulation


def resume(
    tape: Tapes,
    run: int | None = None,
    *,
    llm_client: LLMClient | None = None,
    kind: AnyRunType | None = None,
    **parts: Any,
) -> AnyRun:
    """Return a run ready to go on after its last whole turn, on the same tape.

    Calls that the broken turn had been answered are not made again.

    Args:
        tape: the tape, or its file.
        run: the run's number; the latest if not given.
        llm_client: the model; it must be the recorded one.
        kind: the class that plays it; the tape says its name, and a class that is known here by
            that name is found by itself.
        parts: those that the run was given by its user, the same again; or for each what makes it
            of the client, or of None where the run has no model.

    Raises:
        TapeError: another process is writing to the run, or the tape is read-only.
    """
    tape = _writing(tape)
    info = tape.run(run)
    kind = _kind_of(info, kind)
    records = tape.turn_records(info.id)
    turns = load_turns(kind, tape, info.id, records)
    simulation = _rebuild(kind, info, llm_client, parts, turns[-1].state)
    planned = planned_in(kind, records)
    if changed := _code_changes(info, simulation):
        log_event(
            logger,
            logging.WARNING,
            "CODE_CHANGED",
            run=info.id,
            reason=f"{changed}, so the turns to come are played by other code than those before",
            way_out=f"rerun({str(tape.path)!r}, {info.id}) plays all of it anew",
        )
    return simulation.take_over(turns, planned, Recording(kind, tape, info.id))


def rerun(
    tape: Tapes,
    run: int | None = None,
    *,
    llm_client: LLMClient | None = None,
    kind: AnyRunType | None = None,
    **parts: Any,
) -> AnyRun:
    """Return a new run with a recorded one's configuration and prompts, at its first turn.

    All calls will be fresh ones: another sample of the same run, beside it on the tape.

    Args:
        tape: the tape, or its file.
        run: the run's number; the latest if not given.
        llm_client: the model.
        kind: the class that plays it; the tape says its name, and a class that is known here by
            that name is found by itself.
        parts: those that the run was given by its user, the same again; or for each what makes it
            of the client, or of None where the run has no model.
    """
    tape = _writing(tape)
    info = tape.run(run)
    kind = _kind_of(info, kind)
    records = tape.turn_records(info.id)
    start = load_turns(kind, tape, info.id, records[:1])
    planned = planned_in(kind, records if kind.repeats_interventions else records[:1])
    simulation = _rebuild(kind, info, llm_client, parts, start[0].state)
    simulation.take_over(start, planned, None)
    client = simulation.llm_client
    if client is not None and client.config.seed is not None:
        log_event(
            logger,
            logging.WARNING,
            "RERUN_MAY_REPEAT",
            run=info.id,
            reason=f"llm.seed={client.config.seed} was recorded and is sent again: a server that "
            "keeps to it gives the same answers, which is no further sample",
            way_out="record with llm.seed left out, or run the configuration with another llm.seed",
        )
    return on_tape(simulation, tape, verb="rerun", parent=info.id)


def fork(
    tape: Tapes,
    run: int | None = None,
    *,
    turn: int | None = None,
    prompt: Prompt | Sequence[Prompt] = (),
    state: Any = None,
    intervene: Iterable[Mapping[str, Any]] = (),
    llm_client: LLMClient | None = None,
    **parts: Any,
) -> AnyRun:
    """Return a new run that goes on from a turn of a recorded one, with something changed.

    The turns up to there come from the tape; those after are live and recorded beside them.

    Args:
        tape: the tape, or its file.
        run: the run's number; the latest if not given.
        turn: the turn to go on from; the run's last if not given.
        prompt: an edited prompt, or several; each takes the place of those of its name.
        state: the state instead of that turn's.
        intervene: interventions as dicts, as the run's ``intervene`` takes them.
        llm_client: the model.
        parts: those that the run was given by its user, the same again; or for each what makes it
            of the client, or of None where the run has no model.

    Raises:
        ConfigError: there is no such turn, or no part uses a prompt of that name.
    """
    tape = _writing(tape)
    recorded = _load(tape, tape.run(run), llm_client, parts)
    return fork_of(recorded, turn, prompt=prompt, state=state, intervene=intervene, tape=tape)


def load(
    tape: Tapes, run: int | None = None, *, kind: AnyRunType | None = None, **parts: Any
) -> AnyRun:
    """Return a recorded run to look at: its turns, frames and chains, without playing anything.

    Args:
        tape: the tape, or its file, which is opened for reading only.
        run: the run's number; the latest if not given.
        kind: the class that plays it; the tape says its name, and a class that is known here by
            that name is found by itself.
        parts: those that the run was given by its user, the same again; or for each what makes it
            of the client, or of None where the run has no model.
    """
    tape = _reading(tape)
    return _load(tape, tape.run(run), None, parts, kind)


def turns_of(tape: Tape, run: int, *, up_to: int | None = None) -> list[Any]:
    """Return a run's turns from the tape, those it shares with its parents included."""
    info = tape.run(run)
    kind = kind_of_manifest(info.id, info.manifest)
    return load_turns(kind, tape, info.id, tape.turn_records(info.id, up_to=up_to))


def series_on(tape: Tape, run: RunInfo) -> Sequence[Series]:
    """Return the columns of a recorded run that can be charted, the most telling first.

    Those that its class names; where it names none, or is not known here, the numbers recorded.
    """
    with suppress(TapeError):
        kind = kind_of_manifest(run.id, run.manifest)
        if declared := tuple(kind.series_of(config_of(run))):
            return declared
    rows = tape.frame_rows(run.id).values()
    return plain_series(name for row in rows if isinstance(row, dict) for name in own_numbers(row))


def _kind_of(info: RunInfo, kind: AnyRunType | None) -> AnyRunType:
    """Return the class that plays a recorded run: the one given, if it is that.

    Raises:
        TapeError: it is another, or none is known.
    """
    if kind is None:
        return kind_of_manifest(info.id, info.manifest)
    if kind_name(info.manifest) != kind.kind:
        raise TapeError(
            f"run {info.id} on the tape is one of {kind_name(info.manifest)}, and "
            f"{kind.__name__} is {kind.kind}: another class, or in a file of another name; where "
            f"it was renamed, write kind = '{kind_name(info.manifest)}' in {kind.__name__}"
        )
    return kind


@rare_collections()
def _load(
    tape: Tape,
    info: RunInfo,
    llm_client: LLMClient | None,
    parts: Mapping[str, Any],
    kind: AnyRunType | None = None,
) -> AnyRun:
    kind = _kind_of(info, kind)
    records = tape.turn_records(info.id)
    turns = load_turns(kind, tape, info.id, records)
    client = llm_client or _no_model(kind, info)
    simulation = _rebuild(kind, info, client, parts, turns[-1].state)
    planned = planned_in(kind, records)
    return simulation.take_over(turns, planned, Replaying(kind, tape, info.id, records[-1:]))


def _no_model(kind: AnyRunType, info: RunInfo) -> LLMClient | None:
    check_manifest(info.id, info.manifest, kind.part_names)
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
    kind: AnyRunType,
    info: RunInfo,
    llm_client: LLMClient | None,
    parts: Mapping[str, Any],
    state: Any,
) -> AnyRun:
    """Return a simulation of a recorded run's configuration, prompts and settings."""
    check_manifest(info.id, info.manifest, kind.part_names)
    client = _with_recorded_settings(info, llm_client)
    given = {name: part for name, part in parts.items() if part is not None}
    if unknown := given.keys() - set(kind.part_names):
        raise ConfigError(
            f"{', '.join(sorted(unknown))}: the parts of a run of the kind {kind.kind!r} are "
            f"{', '.join(kind.part_names) or 'none'}"
        )
    lacking = [name for name in info.manifest["given"] if name not in given]
    if lacking:
        raise ConfigError(
            f"run {info.id} was given {', '.join(lacking)} of its own, which no tape can hold; "
            f"pass the same again: {', '.join(f'{name}=...' for name in lacking)}"
        )
    config = config_of(info, kind)
    simulation = kind.rebuilt(
        config.model_copy(update={"interventions": ()}),
        llm_client=client,
        state=state,
        prompts={
            place: prompt
            for place, prompt in prompts_of(info.manifest).items()
            if not belongs_to(place, given)
        },
        parts=made_of(client, given),
    )
    simulation.config = config
    return simulation


def _code_changes(info: RunInfo, simulation: AnyRun) -> str:
    """Say what of a world's own code is not as it was recorded; empty where nothing is.

    Of parts with code of their own the run's ``code_changes`` tells.
    """
    if digests_in(simulation.parts):
        return ""
    then, now = info.manifest.get("code") or {}, simulation.code_digests
    changed = [name for name in _OWN_CODE if then.get(name) != now.get(name) and name in then]
    if not changed:
        return ""
    kind = type(simulation)
    return f"{kind.kind} has changed since it was recorded: its {', '.join(changed)}"


_OWN_CODE = ("file", "methods", "parameters", "state")


def _reading(tape: Tapes) -> Tape:
    return tape if isinstance(tape, Tape) else Tape(tape, read_only=True)


def _writing(tape: Tapes) -> Tape:
    if isinstance(tape, Tape):
        return tape
    path = Path(tape)
    if not path.exists() or path.stat().st_size == 0:
        raise TapeError(f"there is no tape at {tape}")
    return Tape(tape)
