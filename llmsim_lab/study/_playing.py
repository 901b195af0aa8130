"""Playing a study's runs: many on one event loop, or each as a job of an executor.

Each run has a tape of its own, in the study's folder. The file's name says the run's arm and seed,
and a digest of all that decides the run and of its world's code; so a study finds its runs again on
any machine. The digest is never one of the pickle, whose bytes differ between processes.

What goes to an executor is the pickled world, which run is to be played, and the bytes of its tape
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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
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
from llmsim_lab.study._design import AnyRun, Arm, Models, World, said

RUN = 1
"""A study's run on its tape; what else is there, such as a fork, came later."""
NOTE = "study"
"""The entry of a run's manifest that says which of a study's runs it is."""
_FAILED = "failed: "
_TRIES = 3
"""How often a job is handed out whose worker was lost."""

RunStatus = Literal["left", "running", "stopped", "failed", "done"]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study.

    Attributes:
        arm: its arm's name.
        seed: its seed.
        status: ``left`` if it was never begun, ``stopped`` if it can be continued, ``failed``,
            ``done``; ``running`` in ``Study.progress`` alone.
        tape: its file, once it was begun, if it is in one.
        turns: how many it has played.
        error: why it failed.
    """

    arm: str
    seed: int
    status: RunStatus = "left"
    tape: Path | None = None
    turns: int = 0
    error: str = ""

    @property
    def key(self) -> Key:
        """Which of the study's runs it is."""
        return self.arm, self.seed

    def on(self, tape: Path) -> StudyRun:
        """Return the run as its file says that it is; without a file of its own it failed."""
        try:
            opened = Tape(tape, read_only=True)
            if not len(opened):
                return self
            self.check(opened)
            info = opened.run(RUN)
        except LabError as wrong:
            return replace(self, status="failed", tape=tape, error=str(wrong))
        ended = info.outcome or ""
        error = ended.removeprefix(_FAILED) if ended.startswith(_FAILED) else ""
        status: RunStatus = "failed" if error else "done" if ended == "done" else "stopped"
        return replace(self, status=status, tape=tape, turns=info.turns, error=error)

    @property
    def note(self) -> dict[str, Any]:
        """What its tape's manifest says of it: a file may be copied to another one's name."""
        return {"arm": self.arm, "seed": self.seed}

    def check(self, tape: Tape) -> None:
        """Raise TapeError where a tape is not the one that was recorded of this run."""
        why = ""
        try:
            if tape.first_fault(RUN) is not None:
                why = "was changed since it was recorded"
            elif tape.run(RUN).manifest.get(NOTE) != self.note:
                why = f"is not of arm {self.arm!r}, seed {self.seed}"
        except TapeError as error:
            why = f"is damaged: {error}"
        if why:
            raise TapeError(f"{tape.path} {why}; delete it, and the run is played again")


Key = tuple[str, int]
"""A run's arm and seed."""
MakesExecutor = Callable[[], Executor]


@contextmanager
def one_at_a_time(subject: Any, what: str) -> Iterator[None]:
    """Raise ConfigError where this is being played already; ``_playing`` within the block.

    Args:
        subject: a comparison, a response ...
        what: that in a word.
    """
    if subject._playing:
        raise ConfigError(f"this {what} is being played; wait for it, or cancel it")
    subject._playing = True
    try:
        yield
    finally:
        subject._playing = False


# --- the folder ----------------------------------------------------------------------------------


def digest_of(spec: Any) -> str:
    """Return the digest of what decides a run, the same in every process."""
    text = dumps(said(spec)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:16]


def file_name(arm: Arm, seed: int, digest: str) -> str:
    """Return the name of a run's file, with characters that every file system takes."""
    label = re.sub(r"[^\w.=+-]+", "_", arm.name)[:40]
    return f"{label}_seed{seed}-{digest_of([digest, seed])}.tape"


def tapes_in(path: Path) -> list[Path]:
    """Return the tapes in a folder; of a file only itself."""
    return sorted(path.glob("*.tape")) if path.is_dir() else [path]


def _tidy(file: Path | None) -> None:
    """Remove the empty lock beside a tape: a thousand of them would hide the tapes."""
    if file is not None:
        with suppress(OSError):
            file.with_name(f"{file.name}.lock").unlink()


@contextmanager
def sole_player(folder: Path | None) -> Iterator[None]:
    """Be the only study that plays in a folder, which is made.

    Raises:
        ConfigError: another one is being played there, or the folder cannot be written to.
    """
    if folder is None:
        yield
        return
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


# --- one run -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class StudyPlayer:
    """Plays single runs of a study.

    Attributes:
        world: makes them.
        models: whom they ask.
        files: where each is recorded; empty to keep them in memory.
        purse: what they may spend.
        kept: the runs that are in no file.
        playing: the runs that are under way, until the study has what became of them.
        on_change: called when a run begins, and after each of its turns.
        warned: arms of which a run has said what it has to warn of.
    """

    world: World
    models: Models
    files: Mapping[Key, Path] = field(default_factory=dict)
    purse: Purse | None = None
    kept: dict[Key, AnyRun] = field(default_factory=dict)
    playing: dict[Key, AnyRun] = field(default_factory=dict)
    on_change: Callable[[], object] = lambda: None
    warned: set[str] = field(default_factory=set)

    async def play(self, arm: Arm, before: StudyRun) -> StudyRun:
        """Play a run to its end, from where it is; what goes wrong is in what is returned."""
        run, entry = None, before
        try:
            run = self._begun(arm, before)
            unlisten = run.listen(lambda _: self.on_change())
            self.playing[before.key] = run
            self.on_change()
            entry = replace(entry, tape=self.files.get(before.key), turns=run.turn_number)
            run._purse, run._quiet = self.purse, arm.name in self.warned
            self.warned.add(arm.name)
            # Of a run that starts from a state, the first turn need not be turn 0.
            left = max(0, run.config.turns - run.turn_number + run.turns[0].number)
            await run.play_on(left, progress=False)
            over = run.turn_number - run.turns[0].number >= run.config.turns
            status: RunStatus = "done" if over or run.done(run.state) else "stopped"
            if places := self.world.unedited(arm, run):
                raise self._not_its_arm(run, places)
            return replace(entry, status=status, turns=run.turn_number, error="")
        except Exception as error:  # noqa: BLE001 - kept with the run, and the others are played
            turns = entry.turns if run is None else run.turn_number
            return replace(entry, status="failed", turns=turns, error=str(error) or repr(error))
        finally:
            if run is not None:
                unlisten()
                run._purse = None
                run.close()
                _tidy(self.files.get(before.key))

    def _begun(self, arm: Arm, before: StudyRun) -> AnyRun:
        """Return a run, new or as far as it was played."""
        if (kept := self.kept.get(before.key)) is not None:
            return kept
        client = self.models.of(self.world, arm)
        run = self.world.run(arm, before.seed, client)
        if (file := self.files.get(before.key)) is None:
            self.kept[before.key] = run
            return run
        tape = Tape(file)
        if not len(tape):
            run._record(tape, {**self.world.known(arm, run), NOTE: before.note})
            return run
        before.check(tape)
        parts = {name: run.parts[name] for name in tape.run(RUN).manifest["given"]}
        client = client or run.llm_client  # a function may give its runs one of its own
        return resume(tape, RUN, llm_client=client, kind=type(run), **parts)

    def _not_its_arm(self, run: AnyRun, places: Sequence[str]) -> ConfigError:
        error = ConfigError(
            f"turn {run.turn_number} and before asked with prompts that this arm edits by name and "
            f"that the trial with random answers never came to ({', '.join(places[:3])}); make it "
            "one prompt for all cases, or edit it in the world with a parameter of its own"
        )
        run._ended(f"{_FAILED}{error}")
        return error


# --- many on one event loop ----------------------------------------------------------------------


async def play_here(
    player: StudyPlayer, jobs: Sequence[tuple[Arm, StudyRun]], parallel: int
) -> AsyncIterator[StudyRun]:
    """Play runs, so many at once; yields each as it ends. What is spent of a budget ends it."""
    waiting = iter(jobs)
    playing: set[asyncio.Task[StudyRun]] = set()
    spent = False

    def begin() -> None:
        while not spent and len(playing) < parallel and (job := next(waiting, None)) is not None:
            playing.add(asyncio.create_task(player.play(*job)))

    try:
        begin()
        while playing:
            ended, playing = await asyncio.wait(playing, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                yield task.result()
            spent = spent or _is_spent(player.purse)
            begin()
    finally:
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


def _is_spent(purse: Purse | None) -> bool:
    if purse is None:
        return False
    try:
        purse.check()
    except BudgetReached:
        return True
    return purse.refusal is not None


# --- each as a job of an executor ----------------------------------------------------------------


def packed(player: StudyPlayer, arms: Sequence[Arm]) -> bytes:
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
    world = player.world
    for arm in arms:
        # Here, where the sources are: a class from a notebook has none in the worker.
        world.known(arm, world.trial(arm, 0))
    try:
        found: bytes = cloudpickle.dumps((world, player.models.given, list(arms)))
    # Pickling runs code of any object's, which raises anything.
    except Exception as error:
        raise ConfigError(
            f"the study cannot travel to other processes: {error}. A client cannot: name the model "
            "('ollama:NAME'), or give a function that makes the client"
        ) from error
    return found


@cache
def _unpack(pickled: bytes) -> tuple[StudyPlayer, dict[str, Arm]]:
    """Return what came to a worker; kept, so that a model is loaded once for each process."""
    import cloudpickle

    world, given, arms = cloudpickle.loads(pickled)
    return StudyPlayer(world, Models(given)), {arm.name: arm for arm in arms}


def work(pickled: bytes, before: StudyRun, begun: bytes, _once: str) -> tuple[StudyRun, bytes]:
    """Play one run in a worker; returns how it ended, and its tape's bytes, none if it has none.

    Args:
        pickled: what ``packed`` gave.
        before: the run, as far as it was played.
        begun: its tape's bytes, none if it was not begun.
        _once: what no other job is given: Dask takes equal ones for one, also one that it has lost.
    """
    known, arms = _unpack(pickled)
    # On this machine's own disk, whatever the working folder is on.
    with tempfile.TemporaryDirectory(prefix="llmsim-study-") as folder:
        path = Path(folder) / "run.tape"
        if begun:
            path.write_bytes(begun)
        player = copy(known)  # with its clients; several threads of a worker may play
        player.files = {before.key: path}
        ended = run_sync(player.play(arms[before.arm], before))
        return ended, path.read_bytes() if ended.tape else b""


async def play_elsewhere(
    executor: Executor | MakesExecutor,
    player: StudyPlayer,
    jobs: Sequence[tuple[Arm, StudyRun]],
    parallel: int | None,
) -> AsyncIterator[StudyRun]:
    """Play runs as jobs of an executor; yields each when its file is in the folder here.

    A job whose worker was lost is handed out again. An executor that broke as a whole, as a pool of
    processes does with its first lost process, is replaced where a function makes it.

    Raises:
        ConfigError: there is no folder, or the executor broke and no function makes another one.
    """
    if not player.files:
        raise ConfigError("an executor's runs are kept in a folder: Study(..., tape='study/')")
    pickled = packed(player, list({arm.name: arm for arm, _ in jobs}.values()))
    waiting = list(reversed(jobs))  # taken from the end, where one that was lost is put back
    tries = Counter[Key]()
    out: dict[asyncio.Future[tuple[StudyRun, bytes]], tuple[Arm, StudyRun]] = {}
    pools = _Pools(executor)
    try:
        while out or waiting:
            while waiting and (parallel is None or len(out) < parallel):
                file = player.files[waiting[-1][1].key]
                begun = file.read_bytes() if file.exists() else b""
                try:
                    job_of = (pickled, waiting[-1][1], begun, secrets.token_hex(8))
                    future = pools.now.submit(work, *job_of)
                except BrokenExecutor as error:
                    if out:
                        break  # what they bring is waited for
                    pools.replace(error, len(waiting))
                else:
                    out[asyncio.wrap_future(future)] = waiting.pop()
            ended, _ = await asyncio.wait(out, return_when=asyncio.FIRST_COMPLETED)
            for job in ended:
                arm, before = out.pop(job)
                lost = asyncio.CancelledError() if job.cancelled() else job.exception()
                if lost is None:
                    pools.broken = 0
                    entry, content = job.result()
                    yield _put(player.files[entry.key], entry, content)
                    continue
                # Of a pool that broke, all jobs are lost, and most of them have no part in it.
                tries[before.key] += not isinstance(lost, BrokenExecutor)
                if isinstance(lost, LabError) or tries[before.key] >= _TRIES:
                    why = "" if isinstance(lost, LabError) else "its worker was lost: "
                    why += str(lost) or repr(lost)
                    yield replace(before, status="failed", error=why)
                else:
                    waiting.append((arm, before))
    finally:
        for job in out:
            job.cancel()
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
