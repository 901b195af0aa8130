"""``llmsim-lab replay | resume | rerun | fork``: what can be done with a recorded run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from llmsim_lab import simulation as verbs
from llmsim_lab.cli.output import end, open_folder, report, say
from llmsim_lab.cli.play import client_for, play
from llmsim_lab.cli.run import named_values
from llmsim_lab.cli.world_file import lines_told
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError, LabError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm.tape import RunInfo
from llmsim_lab.llm.tape.codec import manifest_faults
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs._records import config_of, prompts_of
from llmsim_lab.simulation import Simulation

__all__ = ["fork", "model_text", "replay", "rerun", "resume", "sound_run"]

_CONNECTABLE = ("ollama", "embedded")


def sound_run(tape: Tape, run: int | None) -> RunInfo:
    """Return one run, the latest if none is named, whose manifest has all it needs.

    Raises:
        TapeError: there is no such run, or its manifest is damaged.
    """
    info = tape.run(run)
    faults = manifest_faults(info.manifest)
    if not faults and info.manifest["llm"] is not None:
        try:
            LLMConfig.model_validate(info.manifest["llm"])
        except ValidationError as error:
            faults = [f"the settings of the model: {error}"]
    if faults:
        raise TapeError(f"run {info.id} on {tape.path} is damaged: {'; '.join(faults)}")
    return info


def model_text(info: RunInfo) -> str:
    """Return the text by which ``connect`` finds the model that a run was recorded with.

    Raises:
        ConfigError: no text does, for it was a script or a backend of the user's.
    """
    recorded = info.manifest["model"]
    if recorded is None:
        return str(config_of(info).llm.model)
    backend, name = recorded.get("backend"), recorded.get("name")
    if backend not in _CONNECTABLE:
        raise ConfigError(
            f"run {info.id} was recorded with the model {name!r} of the backend {backend!r}, which "
            "the command line cannot reach; name another with --model, for example --model auto"
        )
    return f"{backend}:{name}"


def replay(path: Path, *, run: int | None, turns: int | None, out: Path) -> None:
    """Play a recorded run again from its tape alone and write its results.

    Raises:
        TapeError: the tape does not hold the run that its code and prompts lead to.
    """
    with Tape(path, read_only=True) as tape:
        info = sound_run(tape, run)
        open_folder(out)
        with lines_told():
            simulation = verbs.replay(tape, info.id, turns=turns)
        report(simulation, out, taped=simulation.turn_number)
        say(
            f"All turns to {simulation.turn_number} are from the tape: run {info.id} of {path}, "
            "replayed. No model was asked."
        )


def resume(
    path: Path,
    *,
    run: int | None,
    turns: int | None,
    model: str | None,
    host: str | None,
    out: Path,
) -> None:
    """Go on with a recorded run, on the same tape.

    Raises:
        LabError: it cannot go on, or a model call failed; what was played until then is written.
    """
    with _existing(path) as tape:
        info = sound_run(tape, run)
        wanted = _turns_to_play(info, info.turns, turns)
        out = open_folder(out)
        _go_live(
            lambda client: verbs.resume(tape, info.id, llm_client=client),
            _client(info, model, host),
            wanted,
            out,
        )


def rerun(
    path: Path,
    *,
    run: int | None,
    turns: int | None,
    model: str | None,
    host: str | None,
    out: Path,
) -> None:
    """Play a recorded run's configuration anew with fresh calls, beside it on the tape.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    with _existing(path) as tape:
        info = sound_run(tape, run)
        wanted = _turns_to_play(info, 0, turns)
        out = open_folder(out)
        _go_live(
            lambda client: verbs.rerun(tape, info.id, llm_client=client),
            _client(info, model, host),
            wanted,
            out,
        )


def fork(
    path: Path,
    *,
    run: int | None,
    turn: int | None,
    prompts: Sequence[Path],
    settings: Sequence[str],
    shocks: Sequence[str],
    turns: int | None,
    model: str | None,
    host: str | None,
    out: Path,
) -> None:
    """Go on live from a turn of a recorded run, with something changed.

    Args:
        path: the tape.
        run: the run; the latest if not given.
        turn: the turn to go on from; the run's last if not given.
        prompts: prompt files, each in the place of the recorded prompt of its name.
        settings: ``VARIABLE=VALUE`` each: set in the state that is gone on from.
        shocks: ``supply=POINTS`` or ``demand=POINTS`` each: hit on the way to the next turn.
        turns: how many to play.
        model: instead of the recorded one.
        host: Ollama's address.
        out: the folder for the results.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    with _existing(path) as tape:
        info = sound_run(tape, run)
        at = info.turns if turn is None else turn
        wanted = _turns_to_play(info, at, turns)
        changes = _changes(at, settings, shocks)
        edited = [_edited(file, prompts_of(info.manifest).values()) for file in prompts]
        out = open_folder(out)
        _go_live(
            lambda client: verbs.fork(
                tape, info.id, turn=at, prompt=edited, intervene=changes, llm_client=client
            ),
            _client(info, model, host),
            wanted,
            out,
        )


def _existing(path: Path) -> Tape:
    if not path.exists():
        raise TapeError(f"there is no tape at {path}")
    return Tape(path)


def _turns_to_play(info: RunInfo, at: int, turns: int | None) -> int:
    """Return how many turns to play: as asked, or as many as the configuration has left."""
    if turns is not None:
        return turns
    configured: int = config_of(info).turns
    if configured <= at:
        raise ConfigError(
            f"turn {at} is the last that run {info.id}'s configuration has (turns: {configured}); "
            "say how many more to play: --turns 4"
        )
    return configured - at


def _changes(at: int, settings: Sequence[str], shocks: Sequence[str]) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = []
    if settings:
        changes.append({"turn": at, "set": named_values(settings, "--set inflation=9")})
    if shocks:
        changes.append({"turn": at + 1, "shock": named_values(shocks, "--shock supply=2")})
    return changes


def _edited(file: Path, recorded: Iterable[Prompt]) -> Prompt:
    """Return a file's prompt, which knows the recorded one of its name that it takes over from."""
    prompt = Prompt.load(file)
    for old in recorded:
        if old.name == prompt.name and old != prompt:
            return old.edit(prompt.text)
    return prompt


def _client(info: RunInfo, model: str | None, host: str | None) -> LLMClient | None:
    """Connect to the recorded model, or to another one, with the recorded settings."""
    config = config_of(info)
    if not config.needs_model:
        return None
    settings = LLMConfig.model_validate(info.manifest["llm"] or config.llm)
    llm = settings.model_copy(update={"model": model or model_text(info)})
    return client_for(config.model_copy(update={"llm": llm}), host=host)


def _go_live(
    make: Callable[[LLMClient | None], Simulation],
    client: LLMClient | None,
    turns: int,
    out: Path,
) -> None:
    """Make a simulation from the tape, play its live turns, and say which turns are which."""
    try:
        with lines_told():
            simulation = make(client)
    except LabError:
        if client is not None:
            with suppress(LabError):
                run_sync(client.aclose())
        raise
    taped = simulation.turn_number
    try:
        failure = play(simulation, turns)
        report(simulation, out, taped=taped)
        assert simulation.tape is not None
        say(_which_turns(simulation.tape, simulation, taped))
    finally:
        simulation.close()
    end(simulation, taped + turns, failure)


def _which_turns(tape: Tape, simulation: Simulation, taped: int) -> str:
    run = simulation.run_id
    own = tape.run(run)
    first = simulation.turns[0].number
    source = (
        f"run {own.parent}"
        if own.parent is not None and taped <= (own.fork_turn or 0)
        else (f"run {run}")
    )
    before = f"Turn {first} is" if taped == first else f"Turns {first} to {taped} are"
    live = (
        f"turns {taped + 1} to {simulation.turn_number} are live"
        if simulation.turn_number > taped
        else "no turn was played live"
    )
    return f"{before} from the tape {tape.path} ({source}); {live}, recorded there as run {run}."
