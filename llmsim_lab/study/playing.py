"""Jobs of a study and how they are played: many on one event loop, or each in an executor.

A *job* is one arm at one unit, a seed or a recorded situation. It has a tape of its own in the
study's folder. The file's name has the arm, the unit, and a digest of the world's code and all else
that decides the job, so that a study finds its runs again on any machine. The digest is never that
of a pickle, whose bytes differ between processes. Runs that a job forks are copied into its file
first.

An executor gets the pickled world, the job, and the bytes of its tape if the job was begun. It
returns the tape's bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import filelock

from llmsim_lab._util.checks import as_whole_number
from llmsim_lab._util.files import temporary_folder
from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import brief, error_text
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import BudgetReached, ConfigError, LabError, TapeError
from llmsim_lab.llm.scope import Purse
from llmsim_lab.run import Run
from llmsim_lab.run.guided import edits_of, leave_out_warnings, note_end, pay_from
from llmsim_lab.run.playing import play_turns
from llmsim_lab.run.recorded import ANEW, RunOrigin, record
from llmsim_lab.run.records import llm_config_of
from llmsim_lab.run.session import load_turns
from llmsim_lab.study.design import Arm, Models, Play, PromptEdits, World, stable_json
from llmsim_lab.tape import RunInfo, Tape

NOTE = "study"
"""The entry of a run's manifest that says which of a study's runs it is."""
_FAILED = "failed: "
_TRIES = 3
"""How often a job is handed out if its workers are lost."""

RunStatus = Literal["left", "running", "stopped", "failed", "done"]
Unit = int | str
"""A seed; or a recorded situation, by its run and the turn that is continued, such as ``1:4``."""
Key = tuple[str, Unit]


@dataclass(frozen=True, slots=True)
class _ArmAtUnit:
    """One arm at one unit.

    Attributes:
        arm: the arm's name.
        unit: the seed, or the recorded situation.
    """

    arm: str
    unit: Unit

    @property
    def key(self) -> Key:
        """The arm and the unit, which identify a job of the study."""
        return self.arm, self.unit


@dataclass(frozen=True, slots=True)
class StudyRun(_ArmAtUnit):
    """How far one arm is at one unit.

    Attributes:
        status: ``left`` if the run was never begun, ``stopped`` if it can be continued,
            ``failed``, ``done``; ``running`` in ``Study.progress`` alone.
        turns: how many turns were played.
        error: why the run failed.
        tape: the run's file; None before the run was begun.
    """

    status: RunStatus = "left"
    turns: int = 0
    error: str = ""
    tape: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(_ArmAtUnit):
    """The runs that are played into one file: one, or several wordings and samples.

    Attributes:
        run: the seed, or the number of the recorded run on its tape.
        digest: of all that decides the job.
        plays: the runs.
        start_turn: the turn that each run continues; 0 for new runs.
        end_turn: the turn that each run ends with.
        changes_done: how many of the arm's interventions were made up to ``start_turn``.
        forks: by play, the run in the file that it continues; empty for new runs.
    """

    run: int
    digest: str
    plays: tuple[Play, ...]
    start_turn: int
    end_turn: int
    changes_done: int
    forks: tuple[int, ...]

    @property
    def where(self) -> str:
        """The unit in words."""
        if isinstance(self.unit, int):
            return f"seed {self.unit}"
        return f"run {self.unit}"

    @property
    def file_name(self) -> str:
        """The name of the job's file, in characters that every file system takes."""
        label = re.sub(r"[^\w.=+-]+", "_", self.arm)
        unit = self.where.replace(" ", "").replace(":", "turn")
        # A long name may be cut, since the digest tells arms apart.
        return f"{label[:40]}_{unit}-{self.digest}.tape"

    def runs_on(self, tape: Tape) -> dict[Play, RunInfo]:
        """Return the job's runs that were begun, by play.

        Raises:
            TapeError: the tape was changed, or belongs to another job.
        """
        runs: dict[Play, RunInfo] = {}
        is_foreign = False
        # Copied runs, which the job's runs continue, come first.
        last_copied = max(self.forks, default=0)
        try:
            for info in tape.runs():
                note = info.manifest.get(NOTE) or {}
                if note.get("job") == self.digest:
                    wording, sample = note["play"]
                    runs[Play(wording, sample)] = info
                # A copied run has no note, or that of the job that it was copied from.
                elif note and info.id > last_copied:
                    is_foreign = True
            # Without runs of this job the file is another job's, and that is the error to show.
            is_changed = bool(runs and tape.damaged)
        except TapeError as error:
            raise TapeError(
                f"{tape.path} is damaged: {error}; delete it, and the run is played again"
            ) from error
        if is_changed:
            raise TapeError(
                f"{tape.path} was changed since it was recorded; delete it, and the run is played "
                "again"
            )
        if is_foreign:
            raise TapeError(
                f"{tape.path} is not of arm {self.arm!r}, {self.where}; delete it, and the run is "
                "played again"
            )
        return runs


def as_unit(unit: object) -> Unit:
    """Return a seed as an int, anything else as a text, which equals no seed: True is not 1."""
    number = as_whole_number(unit)
    if number is not None:
        return number
    # Not str() of any value, whose own code may raise.
    return str(unit) if isinstance(unit, str) else brief(unit)


Task = tuple[Job, Path]
"""A job and its file."""

# --- the folder ----------------------------------------------------------------------------------


def digest_of(spec: Any) -> str:
    """Return a digest of what decides a run; it is the same in every process."""
    text = dumps(stable_json(spec))
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest()[:16]


def copy_runs(
    source: Tape,
    runs: Sequence[int],
    up_to: int,
    file: Path,
) -> None:
    """Make a job's file with the runs that it forks, unless the file exists."""
    if not _content(file):
        # Under another name first, so that a killed process leaves no half of a file.
        part = file.with_suffix(".part")
        part.unlink(missing_ok=True)
        source.copy(runs, part, up_to=up_to)
        part.replace(file)


def _size_of(file: Path) -> int | None:
    """Return how many bytes a job's file has; None if it does not exist.

    Raises:
        TapeError: the system does not tell.
    """
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TapeError(f"cannot read {file}: {error.strerror or error}") from error


def _content(file: Path) -> bytes:
    """Return the bytes of a job's file; none if it does not exist.

    Raises:
        TapeError: the path is not a file. Reading a fifo, for example, would wait for ever.
    """
    if _size_of(file) is None:
        return b""
    try:
        if not file.is_file():
            raise TapeError(f"{file} is not a file; move it away, or choose another folder")
        return file.read_bytes()
    except OSError as error:
        raise TapeError(f"cannot read {file}: {error.strerror or error}") from error


def _tape_to_play_on(file: Path) -> Tape:
    # In a folder from elsewhere it may lead to any tape of the user's.
    if file.is_symlink():
        raise TapeError(
            f"{file} is a link, and a study plays into files of its own folder; put the file "
            "itself there, or move the link away"
        )
    return Tape(file)


def _tidy(file: Path) -> None:
    """Remove the empty lock file beside a tape: a thousand of them would hide the tapes."""
    with suppress(OSError):
        file.with_name(f"{file.name}.lock").unlink()


@contextmanager
def sole_study(folder: Path) -> Iterator[None]:
    """Make a folder if needed, and lock it, so that only one study plays in it.

    Raises:
        ConfigError: another study is being played there, or the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(
            folder / ".lock",
            timeout=0,
            thread_local=False,
        )
        guard = lock.acquire()
    except OSError as error:  # filelock.Timeout is an OSError
        raise ConfigError(
            f"cannot play in {folder}: another Study is being played there, here or by another "
            f"process, or it is no folder to write to ({error}); wait, or choose another folder"
        ) from error
    with guard:
        yield


# --- one job -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class StudyPlayer:
    """Plays a study's jobs.

    Attributes:
        world: makes the runs.
        models: the clients that the runs ask.
        arms: by name.
        purse: what the runs may spend; None for no limit.
        playing: the runs under way, by key. The study takes a run out when it has noted its end.
        at_once: limits how many runs are under way; others wait, in the order of jobs and plays.
        on_change: is called when a run begins, and after each of its turns.
        warned: arms whose warnings were logged, by the first of their runs.
    """

    world: World
    models: Models
    arms: Mapping[str, Arm]
    purse: Purse | None = None
    playing: dict[Key, Run] = field(default_factory=dict)
    at_once: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, 1))
    on_change: Callable[[], object] = lambda: None
    warned: set[str] = field(default_factory=set)

    def read(self, job: Job, file: Path) -> StudyRun:
        """Return how far a job is, from its file; a file of another job is a failure."""
        entry = StudyRun(job.arm, job.unit)
        try:
            if not _size_of(file):
                return entry
            tape = Tape(file, read_only=True)
            runs = job.runs_on(tape)
            ended = sum(self.is_done(job, tape, info) for info in runs.values())
        except LabError as error:
            return replace(
                entry,
                status="failed",
                tape=file,
                error=str(error),
            )
        if not runs:
            # Killed before its first turn; the file may have the runs that the job forks.
            return entry
        before = job.start_turn if self.world.asks_again else 0
        turns = sum(info.turns - before for info in runs.values())
        status: RunStatus = "done" if ended == len(job.plays) else "stopped"
        entry = replace(
            entry,
            status=status,
            tape=file,
            turns=turns,
        )
        for info in runs.values():
            if info.outcome is not None and info.outcome.startswith(_FAILED):
                error_words = info.outcome.removeprefix(_FAILED)
                return replace(entry, status="failed", error=error_words)
        return entry

    def is_done(
        self,
        job: Job,
        tape: Tape,
        info: RunInfo,
    ) -> bool:
        """Return True for a run that has ended, at its last turn or because the world was done."""
        # A situation whose world was done already is done too, without a further turn.
        if info.outcome != "done" or info.turns >= job.end_turn or self.world.asks_again:
            return info.outcome == "done"
        # "done" before the last turn: a user may have played single turns by hand.
        [last] = load_turns(
            self.world.cls,
            tape,
            info.id,
            tape.turn_records(info.id)[-1:],
        )
        arm = self.arms[job.arm]
        # Only a run can tell, since done() may look at the parameters.
        trial = self.world.begin(arm, None, job.run)
        return bool(trial.done(last.state))

    async def play(self, job: Job, file: Path) -> StudyRun:
        """Play what is left of a job, and return how far it is, with the error if it failed."""
        errors: list[str] = []
        try:
            tape = _tape_to_play_on(file)
            runs = job.runs_on(tape)
            # At the same time, up to the limit: samples of a situation have the same prompt, and a
            # server that gets it several times at once reads it once.
            plays = [self._play(job, tape, play, runs.get(play)) for play in job.plays]
            outcomes = await asyncio.gather(*plays, return_exceptions=True)
            faults = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            errors += map(error_text, faults)
        except Exception as error:  # noqa: BLE001 - whatever the error, other jobs are played
            errors.append(error_text(error))
        finally:
            _tidy(file)
        entry = self.read(job, file)
        if errors:
            return replace(
                entry,
                status="failed",
                error=errors[0],
            )
        return entry

    async def _play(
        self,
        job: Job,
        tape: Tape,
        play: Play,
        info: RunInfo | None,
    ) -> None:
        """Play what is left of one of a job's runs, if the budget is not spent by then."""
        async with self.at_once:
            # Checked here, since the budget may have been spent while this run waited.
            if self.is_spent:
                return
            if info is None or not self.is_done(job, tape, info):
                await self._play_rest(job, tape, play, info)

    async def _play_rest(
        self,
        job: Job,
        tape: Tape,
        play: Play,
        info: RunInfo | None,
    ) -> None:
        """Play the rest of a run; a failure is noted on its tape, and raised."""
        run = self._begun(job, tape, play, info)
        unlisten = run.listen(lambda _: self.on_change())
        pay_from(run, self.purse)
        # An arm's warning is logged once, not for each of a hundred seeds.
        leave_out_warnings(run, left_out=job.arm in self.warned)
        self.warned.add(job.arm)
        self.playing[job.key] = run
        self.on_change()
        try:
            turns_left = job.end_turn - run.turn_number
            await play_turns(
                run,
                max(0, turns_left),
                progress=False,
            )
            edits = edits_of(run)
            has_ended = run.turn_number >= job.end_turn or run.done(run.state)
            # Only at the end: an edited prompt may first be asked with in the last turn.
            if isinstance(edits, PromptEdits) and has_ended:
                edits.check()
        except Exception as error:
            with suppress(TapeError):  # the caller needs the first failure, not that of the tape
                note_end(run, f"{_FAILED}{error_text(error)}")
            raise
        finally:
            unlisten()
            run.close()

    def _begun(
        self,
        job: Job,
        tape: Tape,
        play: Play,
        info: RunInfo | None,
    ) -> Run:
        """Return one of a job's runs, either new or resumed."""
        if info is not None:
            return self._resumed(job, tape, play, info)
        world = self.world
        arm = self.arms[job.arm]
        origin = ANEW
        if job.forks:
            # ``plays`` and ``forks`` have the same order.
            number = job.forks[job.plays.index(play)]
            manifest = tape.run(number).manifest
            recorded = llm_config_of(manifest)
            if world.asks_again:
                # Without its seed, with which all samples of a situation would be the same.
                recorded = llm_config_of(manifest, seed=None)
            client = self.models.of(world, arm, recorded)
            run = world.begin(
                arm,
                client,
                number,
                play,
                tape,
                job.changes_done,
            )
            origin = RunOrigin("fork", number, run.turn_number)
        else:
            run = world.begin(
                arm,
                self.models.of(world, arm),
                job.run,
                play,
            )
        # The wording of an arm that has one wording has no name.
        wordings = list(world.wordings(arm))
        parts = [job.arm, wordings[play.wording], job.where]
        if world.asks_again:
            parts.append(f"sample {play.sample}")
        name = ", ".join(filter(None, parts))
        run.config = run.config.model_copy(update={"name": name})
        return record(
            run,
            tape,
            {
                "code": world.code,
                # Says which job the run is of, since the file may be renamed.
                NOTE: {"job": job.digest, "play": list(play)},
            },
            origin=origin,
        )

    def _resumed(
        self,
        job: Job,
        tape: Tape,
        play: Play,
        info: RunInfo,
    ) -> Run:
        """Return one of a job's runs as far as it was played."""
        world = self.world
        arm = self.arms[job.arm]
        recorded = llm_config_of(info.manifest)
        run: Run = world.cls.resume(
            tape,
            info.id,
            llm_client=self.models.of(world, arm, recorded),
            players=world.level(arm, "players"),
        )
        world.edit(
            run,
            arm,
            play.wording,
            resumed=True,
        )
        return run

    @property
    def is_spent(self) -> bool:
        """Whether the budget is spent."""
        if self.purse is None:
            return False
        # check() raises, since it stops a call that cannot be paid.
        try:
            self.purse.check()
        except BudgetReached:
            return True
        return False


# --- many jobs -----------------------------------------------------------------------------------


Submit = Callable[[Job, Path], Coroutine[Any, Any, StudyRun]]
"""Plays a job into its file and returns how it ended: ``StudyPlayer.play`` in this process,
``WorkerPlayer.play`` on an executor."""


class WorkerPlayer:
    """Plays jobs in an executor's workers.

    Args:
        player: the study's.
        executor: where the jobs are played.

    Raises:
        ConfigError: cloudpickle is not installed, or something cannot be pickled.
    """

    def __init__(self, player: StudyPlayer, executor: Executor) -> None:
        self._player = player
        self._executor = executor
        self._pickled = packed(player)

    async def play(self, job: Job, file: Path) -> StudyRun:
        """Hand out a job with the bytes of its file; again if its worker was lost.

        Raises:
            BrokenExecutor: the executor broke as a whole, as a pool that loses a process does.
        """
        fault: BaseException | None = None
        for _ in range(_TRIES):
            try:
                entry, content = await self._worked(job, file)
            except (BrokenExecutor, _Stopped):
                # Another try would use the broken pool, or continue after Ctrl-C.
                raise
            except LabError as error:
                return self._failed(job, file, error_text(error))
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a lost worker
                fault = error
            else:
                return _keep_tape(file, entry, content)
        assert fault is not None
        return self._failed(job, file, f"its worker was lost: {error_text(fault)}")

    async def _worked(
        self,
        job: Job,
        file: Path,
    ) -> tuple[StudyRun, bytes]:
        # A worker may be on another machine, which does not see the folder.
        begun = _content(file)
        once = secrets.token_hex(8)
        work_done = self._executor.submit(
            work,
            self._pickled,
            job,
            begun,
            once,
        )
        try:
            return await asyncio.wrap_future(work_done)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise _Stopped from error  # the study was stopped; no worker was lost
            raise

    def _failed(
        self,
        job: Job,
        file: Path,
        error: str,
    ) -> StudyRun:
        return replace(
            self._player.read(job, file),
            status="failed",
            error=error,
        )


class _Stopped(asyncio.CancelledError):
    """The study was stopped while a worker played."""


async def play_all(
    player: StudyPlayer,
    tasks: Iterator[Task],
    parallel: int | None,
    executor: Executor | None,
) -> AsyncIterator[StudyRun]:
    """Play jobs here or on an executor, and yield each as it ends, until a budget is spent.

    Args:
        player: the study's.
        tasks: the jobs. When a task is taken, its file has the runs that the job forks.
        parallel: how many jobs at once; all if not given.
        executor: where; in this process if not given.

    Raises:
        ConfigError: the executor broke as a whole, as a pool that loses a process does; or
            something cannot be pickled.
    """
    submit: Submit = player.play
    if executor is not None:
        submit = WorkerPlayer(player, executor).play
    broken: BrokenExecutor | None = None
    playing: set[asyncio.Task[StudyRun]] = set()
    try:
        while True:
            while broken is None and not player.is_spent:
                if parallel is not None and len(playing) >= parallel:
                    break
                task = next(tasks, None)
                if task is None:
                    break
                job, file = task
                playing.add(asyncio.create_task(submit(job, file)))
            if not playing:
                break
            # As each ends, so that the table is up to date and jobs that fork it can begin.
            ended, playing = await asyncio.wait(
                playing,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for finished in ended:
                try:
                    entry = finished.result()
                except BrokenExecutor as error:
                    broken = error  # raised below, when the other jobs have ended
                else:
                    yield entry
    finally:
        for unfinished in playing:
            unfinished.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
    if broken is not None:
        raise ConfigError(
            f"the {type(executor).__name__} lost a process, and the runs with it; what has ended "
            "is kept, and another study.run(executor=...) with another pool continues"
        ) from broken


def packed(player: StudyPlayer) -> bytes:
    """Return what a worker needs, pickled: the world with its class, the models, the arms.

    Raises:
        ConfigError: cloudpickle is not installed, or something cannot be pickled.
    """
    try:
        import cloudpickle

        models = player.models
        # Parts of the player, whose locks and callbacks cannot be pickled.
        travelling = (
            player.world,
            models.given,
            models.samples,
            player.arms,
        )
        pickled: bytes = cloudpickle.dumps(travelling)
    except Exception as error:  # pickling runs the objects' own code, which may raise anything
        raise ConfigError(
            f"the study cannot travel to other processes: {error}. In place of a client, name the "
            "model ('ollama:NAME'), or give a function that makes one; cloudpickle: "
            "llmsim-lab[study]"
        ) from error
    return pickled


@cache
def _unpack(pickled: bytes) -> StudyPlayer:
    """Return a worker's player; cached, so that each process loads a model once."""
    import cloudpickle

    world, model, samples, arms = cloudpickle.loads(pickled)
    return StudyPlayer(world, Models(model, samples), arms)


def work(
    pickled: bytes,
    job: Job,
    begun: bytes,
    _once: str,
) -> tuple[StudyRun, bytes]:
    """Play one job in a worker, and return how it ended and its tape's bytes.

    Args:
        pickled: what ``packed`` returned.
        job: what is played.
        begun: the bytes of the job's file; empty if there is none.
        _once: a random text, which differs for each call. Dask runs two calls with equal arguments
            only once, even if it has lost the result.
    """
    player = replace(
        # The same player for all jobs of this process, so that its clients stay.
        _unpack(pickled),
        # A worker may play in several threads; each plays the runs of its job one by one.
        at_once=asyncio.Semaphore(1),
    )
    # On this machine's own disk, since the working folder may be on a network.
    with temporary_folder("llmsim-study-") as folder:
        path = folder / "run.tape"
        if begun:
            path.write_bytes(begun)
        entry = run_sync(player.play(job, path))
        return entry, _content(path)


def _keep_tape(
    file: Path,
    entry: StudyRun,
    content: bytes,
) -> StudyRun:
    """Write a job's tape into the folder, unless another process wrote more there meanwhile."""
    part = file.with_suffix(".part")
    guard = filelock.FileLock(f"{file}.lock", timeout=0)
    part.unlink(missing_ok=True)  # left by a killed process; if it is a link, only the link goes
    with part.open("xb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    with suppress(filelock.Timeout), guard:
        present = _content(file)
        # Without a last line that a kill has cut off: the worker has dropped it too.
        whole_lines = present[: present.rfind(b"\n") + 1]
        if content.startswith(whole_lines):
            part.replace(file)
    if not part.exists():
        _tidy(file)
        return replace(entry, tape=file)
    # Not moved: another process holds the lock, or has written what the worker lacks.
    part.unlink()
    return replace(
        entry,
        status="failed",
        tape=file,
        error=f"{file} was continued elsewhere meanwhile; run() takes up what is there",
    )
