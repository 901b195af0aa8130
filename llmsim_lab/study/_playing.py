"""Playing a study: many files on one event loop, or each as a job of an executor.

A *job* is one arm at one unit, a seed or a recorded situation, and has a tape of its own in the
study's folder. The file's name says arm and unit, and has a digest of all that decides it and of
the world's code; so a study finds its runs again on any machine. The digest is never one of the
pickle, whose bytes differ between processes. What a job forks is copied into its file first.

What goes to an executor is the pickled world, which job is to be played, and the bytes of its tape
if it was begun; what comes back are the tape's bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import filelock

from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import BudgetReached, ConfigError, LabError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.llm._scope import Purse
from llmsim_lab.run import resume
from llmsim_lab.run._session import load_turns
from llmsim_lab.study._design import AnyRun, Arm, Models, PromptEdits, World, said
from llmsim_lab.tape._lines import RunInfo

NOTE = "study"
"""The entry of a run's manifest that says which of a study's runs it is."""
_FAILED = "failed: "
_TRIES = 3
"""How often a job is handed out whose worker was lost."""

RunStatus = Literal["left", "running", "stopped", "failed", "done"]
Unit = int | str
"""A seed; or a recorded situation, by its run and the turn that is continued, such as ``1:4``."""
Key = tuple[str, Unit]
Play = tuple[int, int]
"""A run of a job: which of the arm's wordings, from 0; and which sample, from 1."""
MakesExecutor = Callable[[], Executor]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One arm at one unit.

    Attributes:
        arm: its arm's name.
        unit: its seed, or the recorded situation.
        status: ``left`` if it was never begun, ``stopped`` if it can be continued, ``failed``,
            ``done``; ``running`` in ``Study.progress`` alone.
        tape: its file, once it was begun.
        turns: how many were played.
        error: why it failed.
    """

    arm: str
    unit: Unit
    status: RunStatus = "left"
    tape: Path | None = None
    turns: int = 0
    error: str = ""

    @property
    def key(self) -> Key:
        """Which of the study's it is."""
        return self.arm, self.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is played into one file.

    Attributes:
        arm: its arm's name.
        unit: its seed, or the recorded situation.
        digest: of all that decides it.
        plays: its runs.
        end: the turn that each ends with.
        forks: by play, the run in the file that it continues; empty where all begin anew.
        at: the turn that it continues.
        since: how many of the arm's interventions there were by then.
    """

    arm: str
    unit: Unit
    digest: str
    plays: tuple[Play, ...]
    end: int
    forks: tuple[int, ...] = ()
    at: int = 0
    since: int = 0

    @property
    def key(self) -> Key:
        """Which of the study's it is."""
        return self.arm, self.unit

    @property
    def file_name(self) -> str:
        """The name of its file, with characters that every file system takes."""
        label = re.sub(r"[^\w.=+-]+", "_", self.arm)[:40]
        unit = f"seed{self.unit}" if isinstance(self.unit, int) else f"run{self.unit}"
        return f"{label}_{unit.replace(':', '_turn')}-{self.digest}.tape"

    def note(self, play: Play) -> dict[str, Any]:
        """Return what a run's manifest says of it: a file may be copied to another one's name."""
        return {"job": self.digest, "play": list(play)}

    def runs_on(self, tape: Tape) -> dict[Play, RunInfo]:
        """Return those of its runs that were begun.

        Raises:
            TapeError: the tape was changed, or is another job's.
        """
        runs: dict[Play, RunInfo] = {}
        why = ""
        try:
            for info in tape.runs():
                note = info.manifest.get(NOTE) or {}
                if note.get("job") == self.digest:
                    runs[tuple(note["play"])] = info
                elif note and info.id > max(self.forks, default=0):
                    why = f"is not of arm {self.arm!r}, {_named(self.unit)}"
            if any(tape.first_fault(info.id) is not None for info in runs.values()):
                why = "was changed since it was recorded"
        except TapeError as error:
            why = f"is damaged: {error}"
        if why:
            raise TapeError(f"{tape.path} {why}; delete it, and the run is played again")
        return runs


def _named(unit: Unit) -> str:
    return f"seed {unit}" if isinstance(unit, int) else unit


# --- the folder ----------------------------------------------------------------------------------


def digest_of(spec: Any) -> str:
    """Return the digest of what decides a run, the same in every process."""
    text = dumps(said(spec)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:16]


def copy_runs(source: Path, runs: Sequence[int], up_to: int, file: Path) -> None:
    """Make a job's file, with what it forks, unless it is there."""
    if file.exists() and file.stat().st_size:
        return
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    with Tape(source, read_only=True) as tape, Tape(part) as made:
        made.take(tape, runs, up_to=up_to)
    _tidy(part)
    part.replace(file)


def _tidy(file: Path) -> None:
    """Remove the empty lock beside a tape: a thousand of them would hide the tapes."""
    with suppress(OSError):
        file.with_name(f"{file.name}.lock").unlink()


@contextmanager
def sole_player(folder: Path) -> Iterator[None]:
    """Be the only study that plays in a folder, which is made.

    Raises:
        ConfigError: another one is being played there, or the folder cannot be written to.
    """
    guard = filelock.FileLock(folder / ".lock", timeout=0, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        guard.acquire()
    except filelock.Timeout:
        raise ConfigError(
            f"another Study is being played in {folder}, here or by another process; wait for it, "
            "or give this one another folder: tape='second/'"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot write to the folder {folder}: {error.strerror}; choose another, tape='second/'"
        ) from error
    try:
        yield
    finally:
        guard.release()


# --- one job -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class StudyPlayer:
    """Plays a study's jobs.

    Attributes:
        world: makes the runs.
        models: whom they ask.
        arms: by name.
        purse: what they may spend.
        playing: the runs that are under way, until the study has what became of them.
        on_change: called when a run begins, and after each of its turns.
        warned: arms of which a run has said what it has to warn of.
    """

    world: World
    models: Models
    arms: Mapping[str, Arm]
    purse: Purse | None = None
    playing: dict[Key, AnyRun] = field(default_factory=dict)
    on_change: Callable[[], object] = lambda: None
    warned: set[str] = field(default_factory=set)

    def read(self, job: Job, file: Path) -> StudyRun:
        """Return how far a job is, as its file says; one that is not the job's has failed."""
        entry = StudyRun(job.arm, job.unit)
        if not (file.exists() and file.stat().st_size):
            return entry
        try:
            tape = Tape(file, read_only=True)
            runs = job.runs_on(tape)
            done = [play for play, info in runs.items() if self.is_done(job, tape, info)]
        except LabError as wrong:
            return replace(entry, status="failed", tape=file, error=str(wrong))
        ended = [info.outcome or "" for info in runs.values()]
        errors = [it.removeprefix(_FAILED) for it in ended if it.startswith(_FAILED)]
        status: RunStatus = "stopped" if runs else "left"
        if errors:
            status = "failed"
        elif len(done) == len(job.plays):
            status = "done"
        before = job.at if self.world.again else 0
        turns = sum(info.turns - before for info in runs.values())
        return replace(entry, status=status, tape=file, turns=turns, error="; ".join(errors[:1]))

    def is_done(self, job: Job, tape: Tape, info: RunInfo) -> bool:
        """Return True for a run that has ended: by its turns, or by itself."""
        if info.outcome != "done" or info.turns >= job.end or self.world.again:
            return info.outcome == "done"
        # Somebody may have played single turns of it by hand.
        [last] = load_turns(self.world.cls, tape, info.id, tape.turn_records(info.id)[-1:])
        return bool(self.world.run(self.arms[job.arm], int(job.unit), None).done(last.state))

    async def play(self, job: Job, file: Path) -> StudyRun:
        """Play what is left of a job; what goes wrong is in what is returned."""
        errors: list[str] = []
        try:
            tape = Tape(file)
            runs = job.runs_on(tape)
            for play in job.plays:
                if (info := runs.get(play)) is not None and self.is_done(job, tape, info):
                    continue
                if self.is_spent():
                    break
                try:
                    await self._play(job, tape, play, info)
                except Exception as error:  # noqa: BLE001 - kept, and the others are played
                    errors.append(str(error) or repr(error))
        except Exception as error:  # noqa: BLE001 - likewise
            errors.append(str(error) or repr(error))
        finally:
            _tidy(file)
        entry = self.read(job, file)
        return replace(entry, status="failed", error=errors[0]) if errors else entry

    async def _play(self, job: Job, tape: Tape, play: Play, info: RunInfo | None) -> None:
        run = self._begun(job, tape, play, info)
        unlisten = run.listen(lambda _: self.on_change())
        run._purse, run._quiet = self.purse, job.arm in self.warned
        self.warned.add(job.arm)
        self.playing[job.key] = run
        self.on_change()
        try:
            await run.play_on(max(0, job.end - run.turn_number), progress=False)
            over = run.turn_number >= job.end or run.done(run.state)
            if over and isinstance(run._edit, PromptEdits):
                try:
                    run._edit.check()
                except ConfigError as error:
                    run._ended(f"{_FAILED}{error}")
                    raise
        finally:
            unlisten()
            run._purse = None
            run.close()

    def _begun(self, job: Job, tape: Tape, play: Play, info: RunInfo | None) -> AnyRun:
        """Return one of a job's runs, new or as far as it was played."""
        arm, world, (wording, sample) = self.arms[job.arm], self.world, play
        client = self.models.of(world, arm)
        made = None
        if not world.again:
            made = world.run(arm, int(job.unit), client, wording=wording)
            client = client or made.llm_client  # a function may give its runs one of its own
        if info is not None:
            parts = world.parts(arm, made, info)
            run = resume(tape, info.id, llm_client=client, kind=world.cls, **parts)
            world.edit(run, arm, wording, resumed=True)
            return run
        run, number = made, 0
        if job.forks:
            number = dict(zip(job.plays, job.forks, strict=True))[play]
            run = world.forked(arm, tape, number, client, made, play, job.since)
        label = list(world.wordings(arm))[wording]
        last = f"sample {sample}" if world.again else ""
        name = ", ".join(filter(None, [job.arm, label, _named(job.unit), last]))
        run.config = run.config.model_copy(update={"name": name})
        known = {"code": world.code(run), NOTE: job.note(play)}
        if not job.forks:
            run._record(tape, known)
            return run
        at = run.turn_number
        return run._continue_on(tape, verb="fork", parent=number, fork_turn=at, known=known)

    def is_spent(self) -> bool:
        """Return True if there is nothing left of a budget."""
        if self.purse is None:
            return False
        try:
            self.purse.check()
        except BudgetReached:
            return True
        return self.purse.refusal is not None


Jobs = Iterable[tuple[Job, Path]]
"""With the file of each, which has what it forks by the time that it is taken."""


# --- many on one event loop ----------------------------------------------------------------------


async def play_here(player: StudyPlayer, jobs: Jobs, parallel: int) -> AsyncIterator[StudyRun]:
    """Play jobs, so many at once; yields each as it ends. What is spent of a budget ends it."""
    waiting = iter(jobs)
    playing: set[asyncio.Task[StudyRun]] = set()

    def begin() -> None:
        while len(playing) < parallel and not player.is_spent():
            if (job := next(waiting, None)) is None:
                break
            playing.add(asyncio.create_task(player.play(*job)))

    try:
        begin()
        while playing:
            ended, playing = await asyncio.wait(playing, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                yield task.result()
            begin()
    finally:
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


# --- each as a job of an executor ----------------------------------------------------------------


def packed(player: StudyPlayer) -> bytes:
    """Return what a worker needs: the world with its class, the models, the arms.

    Raises:
        ConfigError: cloudpickle is not installed, or something cannot travel.
    """
    try:
        import cloudpickle
    except ImportError as error:
        raise ConfigError(
            "an executor needs cloudpickle, which takes classes along: "
            "pip install 'llmsim-lab[study]'"
        ) from error
    try:
        found: bytes = cloudpickle.dumps((player.world, player.models.given, player.arms))
    # Pickling runs code of any object's, which raises anything.
    except Exception as error:
        raise ConfigError(
            f"the study cannot travel to other processes: {error}. A client cannot: name the model "
            "('ollama:NAME'), or give a function that makes the client"
        ) from error
    return found


@cache
def _unpack(pickled: bytes) -> StudyPlayer:
    """Return what came to a worker; kept, so that a model is loaded once for each process."""
    import cloudpickle

    world, given, arms = cloudpickle.loads(pickled)
    return StudyPlayer(world, Models(given), arms)


def work(pickled: bytes, job: Job, begun: bytes, _once: str) -> tuple[StudyRun, bytes]:
    """Play one job in a worker; returns how it ended, and its tape's bytes, none if it has none.

    Args:
        pickled: what ``packed`` gave.
        job: what is played.
        begun: its file's bytes, none if there is none.
        _once: what no other job is given: Dask takes equal ones for one, also one that it has lost.
    """
    player = copy(_unpack(pickled))  # with its clients; several threads of a worker may play
    player.playing = {}
    # On this machine's own disk, whatever the working folder is on.
    with tempfile.TemporaryDirectory(prefix="llmsim-study-") as folder:
        path = Path(folder) / "run.tape"
        if begun:
            path.write_bytes(begun)
        ended = run_sync(player.play(job, path))
        return ended, path.read_bytes() if ended.tape else b""


async def play_elsewhere(
    executor: Executor | MakesExecutor, player: StudyPlayer, jobs: Jobs, parallel: int | None
) -> AsyncIterator[StudyRun]:
    """Play jobs on an executor; yields each when its file is in the folder here.

    A job whose worker was lost is handed out again. An executor that broke as a whole, as a pool of
    processes does with its first lost process, is replaced where a function makes it.

    Raises:
        ConfigError: the executor broke and no function makes another one.
    """
    pickled = packed(player)
    waiting = list(jobs)[::-1]  # taken from the end, where one that was lost is put back
    tries = Counter[Key]()
    out: dict[asyncio.Future[tuple[StudyRun, bytes]], tuple[Job, Path]] = {}
    pools = _Pools(executor)
    try:
        while out or waiting:
            while waiting and (parallel is None or len(out) < parallel):
                job, file = waiting[-1]
                begun = file.read_bytes() if file.exists() else b""
                try:
                    future = pools.now.submit(work, pickled, job, begun, secrets.token_hex(8))
                except BrokenExecutor as error:
                    if out:
                        break  # what they bring is waited for
                    pools.replace(error, len(waiting))
                else:
                    out[asyncio.wrap_future(future)] = waiting.pop()
            ended, _ = await asyncio.wait(out, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                job, file = out.pop(task)
                lost = asyncio.CancelledError() if task.cancelled() else task.exception()
                if lost is None:
                    pools.broken = 0
                    yield _put(file, *task.result())
                    continue
                # Of a pool that broke, all jobs are lost, and most of them have no part in it.
                tries[job.key] += not isinstance(lost, BrokenExecutor)
                if isinstance(lost, LabError) or tries[job.key] >= _TRIES:
                    why = "" if isinstance(lost, LabError) else "its worker was lost: "
                    why += str(lost) or repr(lost)
                    yield replace(player.read(job, file), status="failed", error=why)
                else:
                    waiting.append((job, file))
    finally:
        for task in out:
            task.cancel()
        pools.close()


class _Pools:
    """The executor that was given, or those that a function makes, one after the other.

    Attributes:
        now: the one that takes jobs.
        broken: how many broke since a run came back.
    """

    def __init__(self, given: Executor | MakesExecutor) -> None:
        self._given, self._made = given, list[Executor]()
        self.now = given if isinstance(given, Executor) else self._make(given)
        self.broken = 0

    def _make(self, make: MakesExecutor) -> Executor:
        found: Any = make()
        if not isinstance(found, Executor):
            raise ConfigError(
                f"executor={make!r:.60} returned {found!r:.60}; it must return an executor: "
                "lambda: ProcessPoolExecutor(4)"
            )
        self._made.append(found)
        return found

    def replace(self, error: BrokenExecutor, left: int) -> None:
        """Make another executor in place of one that broke.

        Raises:
            ConfigError: no function makes one, or too many of them broke.
        """
        self.broken += 1
        if isinstance(self._given, Executor):
            raise ConfigError(
                f"the {type(self._given).__name__} lost a process, and {left} runs with it; what "
                "has ended is kept, and another study.run(executor=...) continues. With a function "
                "this call does so itself: study.run(executor=lambda: ProcessPoolExecutor(4))"
            ) from error
        if self.broken > _TRIES:
            raise ConfigError(
                f"{self.broken} pools of processes broke one after the other, and no run came to "
                "its end: look for what ends the processes, such as too little memory for the "
                "model in each"
            ) from error
        self.now = self._make(self._given)

    def close(self) -> None:
        """End those that a function made."""
        for executor in self._made:
            executor.shutdown(wait=False, cancel_futures=True)


def _put(file: Path, entry: StudyRun, content: bytes) -> StudyRun:
    """Put a run's tape into the folder, whole, unless more was written there meanwhile."""
    if not content:
        return entry
    part, guard = file.with_suffix(".part"), filelock.FileLock(f"{file}.lock", timeout=0)
    with part.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    with suppress(filelock.Timeout), guard:
        there = file.read_bytes() if file.exists() else b""
        # What a worker was given, but for a line that was cut off, and which it then cut too.
        if content.startswith(there[: there.rfind(b"\n") + 1]):
            part.replace(file)
    if not part.exists():
        _tidy(file)
        return replace(entry, tape=file)
    part.unlink()
    error = f"{file} was continued elsewhere meanwhile; run() takes up what is there"
    return replace(entry, status="failed", tape=file, error=error)
