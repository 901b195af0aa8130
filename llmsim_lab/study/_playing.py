"""Playing a study's runs: many on one event loop, or each as a job of an executor.

On a tape each run says in its manifest, under ``study``, which it is: the study's name, the digest
of its design, arm and seed. So a study finds its runs again, also after this process was killed;
the tape's format is the same, and ``verify`` covers the entry like the rest of the manifest.

What goes to an executor is the design and the pickled class; what comes back is the run's tape as
JSON lines, compressed. No two processes share a database file.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import aclosing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import clip
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import BudgetReached, ConfigError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.llm._scope import Purse
from llmsim_lab.run import resume
from llmsim_lab.run._progress import progress_line
from llmsim_lab.study._design import AnyRun, Arm, Models, World, said

NOTE = "study"
"""The entry of a run's manifest that says which run of which study it is."""
_FAILED = "failed: "
_TRIES = 3
"""How often a job is handed out whose worker was lost."""
_MOST_SAID = 200
"""Characters of a text in the note; of a longer one the digest is there."""

RunStatus = Literal["left", "running", "stopped", "failed", "done"]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study.

    Attributes:
        arm: its arm's name.
        seed: its seed.
        status: ``left`` if it was never begun, ``stopped`` if it can be continued, ``failed``,
            ``done``; ``running`` in ``Study.progress`` alone.
        run: its number on the tape, if it is on one.
        turns: how many it has played.
        error: why it failed.
    """

    arm: str
    seed: int
    status: RunStatus = "left"
    run: int | None = None
    turns: int = 0
    error: str = ""

    @property
    def key(self) -> Key:
        """Which of the study's runs it is."""
        return self.arm, self.seed


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


# --- how runs are found again --------------------------------------------------------------------


class Notes:
    """What a study writes into its runs' manifests, and reads from them.

    Args:
        name: the study's.
        design: what its runs follow from, as ``said`` gives it; seeds are not in it, so that a
            study may be continued with more of them.
    """

    def __init__(self, name: str, design: Mapping[str, Any]) -> None:
        self.name = name
        self.design = {key: _short(value) for key, value in design.items()}
        self.digest = hashlib.sha256(dumps(said(design)).encode()).hexdigest()

    def of(self, arm: Arm, seed: int) -> dict[str, Any]:
        """Return the note of one run."""
        of_study = {"name": self.name, "digest": self.digest, "design": self.design}
        return {**of_study, "arm": arm.name, "seed": seed}

    def found(self, tape: Tape) -> Iterator[tuple[StudyRun, Mapping[str, Any]]]:
        """Yield the study's runs on a tape, oldest first, each with its code digests.

        Raises:
            ConfigError: the tape holds another study of this name.
        """
        for info in tape.runs():
            note = info.manifest.get(NOTE)
            if not isinstance(note, Mapping) or note.get("name") != self.name:
                continue
            if note.get("digest") != self.digest:
                raise ConfigError(
                    f"the tape {tape.path} holds the study {self.name!r} with another design: "
                    f"{self._difference(note)}. Record this one on another tape, or give it "
                    "another name: Study(..., name='second')"
                )
            arm, seed, ended = note.get("arm"), note.get("seed"), info.outcome or ""
            if isinstance(arm, str) and isinstance(seed, int):
                entry = StudyRun(arm, seed, "stopped", info.id, info.turns)
                if ended.startswith(_FAILED):
                    entry = replace(entry, status="failed", error=ended.removeprefix(_FAILED))
                elif ended == "done":
                    entry = replace(entry, status="done")
                yield entry, info.manifest.get("code") or {}

    def check_free(self, tape: Tape) -> None:
        """Raise ConfigError where another process is recording on the tape."""
        try:
            with tape.writing():
                pass
        except TapeError as error:
            raise ConfigError(f"the study {self.name!r} cannot be played: {error}") from None

    def _difference(self, note: Mapping[str, Any]) -> str:
        there = note.get("design")
        there = there if isinstance(there, Mapping) else {}
        changed = [
            f"its {key} is {clip(dumps(there.get(key)), 120)} there and "
            f"{clip(dumps(self.design.get(key)), 120)} here"
            for key in {**there, **self.design}
            if there.get(key) != self.design.get(key)
        ]
        return "; ".join(changed[:3]) or "a text or a function of it has changed"


def _short(value: Any) -> Any:
    value = said(value)
    if isinstance(value, Mapping):
        return {key: _short(it) for key, it in value.items()}
    if isinstance(value, list):
        return [_short(it) for it in value]
    if isinstance(value, str) and len(value) > _MOST_SAID:
        return f"a text, sha256 {hashlib.sha256(value.encode()).hexdigest()[:12]}"
    return value


# --- one run -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class StudyPlayer:
    """Plays single runs of a study.

    Attributes:
        world: makes them.
        models: whom they ask.
        notes: what is written into their manifests.
        tape: where they are recorded; None to keep them in memory.
        purse: what they may spend.
        kept: the runs that are on no tape.
        playing: the runs that are under way, until the study has what became of them.
        on_change: called when a run begins, and after each of its turns.
        warned: arms of which a run has said what it has to warn of.
    """

    world: World
    models: Models
    notes: Notes
    tape: Tape | None = None
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
            if self.tape is None:
                self.kept[before.key] = run
            unlisten = run.listen(lambda _: self.on_change())
            self.playing[before.key] = run
            self.on_change()
            entry = replace(entry, run=run.run_id, turns=run.turn_number)
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

    def _begun(self, arm: Arm, before: StudyRun) -> AnyRun:
        """Return a run, new or as far as it was played."""
        if (kept := self.kept.get(before.key)) is not None:
            return kept
        client = self.models.of(self.world, arm)
        run = self.world.run(arm, before.seed, client)
        if self.tape is None:
            return run
        if before.run is None:
            known = {**self.world.known(arm, run), NOTE: self.notes.of(arm, before.seed)}
            run._record(self.tape, known)
            return run
        parts = {name: run.parts[name] for name in self.tape.run(before.run).manifest["given"]}
        client = client or run.llm_client  # a function may give its runs one of its own
        return resume(self.tape, before.run, llm_client=client, kind=type(run), **parts)

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
    """Return what a worker needs: the world with its class, the arms, the models, the notes.

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
    world, models = player.world, player.models
    for arm in arms:
        # Here, where the sources are: a class from a notebook has none in the worker.
        world.known(arm, world.trial(arm, 0))
    try:
        found: bytes = cloudpickle.dumps((world, models.given, player.notes, list(arms)))
    # Pickling runs code of any object's, which raises anything.
    except Exception as error:
        raise ConfigError(
            f"the study cannot travel to other processes: {error}. A client cannot: name the model "
            "('ollama:NAME'), or give a function that makes the client"
        ) from error
    return found


@cache
def _unpack(spec: bytes) -> tuple[StudyPlayer, dict[str, Arm]]:
    """Return what came to a worker; kept, so that a model is loaded once for each process."""
    import cloudpickle

    world, given, notes, arms = cloudpickle.loads(spec)
    return StudyPlayer(world, Models(given), notes), {arm.name: arm for arm in arms}


def work(spec: bytes, before: StudyRun, begun: bytes | None) -> tuple[StudyRun, bytes | None]:
    """Play one run in a worker; returns how it ended, and its tape as bytes.

    Args:
        spec: what ``packed`` gave.
        before: the run, as far as it was played.
        begun: its tape as bytes, if it was begun.
    """
    known, arms = _unpack(spec)
    # On this machine's own disk, whatever the working folder is on.
    with tempfile.TemporaryDirectory(prefix="llmsim-study-") as name:
        folder = Path(name)
        with Tape(folder / "run.tape") as tape:
            number = None if begun is None else _taken_in(tape, begun, folder)
            player = copy(known)  # with its clients; several threads of a worker may play
            player.tape = tape
            ended = run_sync(player.play(arms[before.arm], replace(before, run=number)))
            return ended, None if ended.run is None else _taken_out(tape, ended.run, folder)


class _Workers:
    """The executor that was given, or those that a function makes, one after the other.

    Attributes:
        broken: what it broke with, if it was given and takes no more jobs.
        lost: how many broke since a run came back.
    """

    def __init__(self, given: Executor | MakesExecutor) -> None:
        self._given = given
        self._now = given if isinstance(given, Executor) else None
        self._made: list[Executor] = []
        self.broken: BrokenExecutor | None = None
        self.lost = 0

    def submit(self, *job: Any) -> Future[Any] | None:
        """Hand a job out; None where the executor is broken."""
        while self.broken is None:
            executor = self._now or self._next()
            try:
                return executor.submit(*job)
            except BrokenExecutor as error:
                self._now, self.lost = None, self.lost + 1
                if executor is self._given:
                    self.broken = error
        return None

    def _next(self) -> Executor:
        if self.lost > _TRIES:
            raise ConfigError(
                f"{self.lost} pools of processes broke one after the other, and no run came to its "
                "end: look for what ends the processes, such as too little memory for the model in "
                "each"
            )
        make: Any = self._given
        found = make()
        if not isinstance(found, Executor):
            raise ConfigError(
                f"executor={make!r:.60} returned {found!r:.60}; it must return an executor: "
                "lambda: ProcessPoolExecutor(4)"
            )
        self._made.append(found)
        self._now = found
        return found

    def close(self) -> None:
        """End those that a function made."""
        for executor in self._made:
            executor.shutdown(wait=False, cancel_futures=True)


async def play_elsewhere(
    executor: Executor | MakesExecutor,
    player: StudyPlayer,
    jobs: Sequence[tuple[Arm, StudyRun]],
    parallel: int | None,
) -> AsyncIterator[StudyRun]:
    """Play runs as jobs of an executor; yields each when it is on the tape here.

    A job whose worker was lost is handed out again. An executor that broke as a whole, as a pool of
    processes does with its first lost process, is replaced where a function makes it.

    Raises:
        ConfigError: there is no tape, or the executor broke and no function makes another one.
    """
    tape = player.tape
    if tape is None:
        raise ConfigError("an executor's runs are merged on a tape: Study(..., tape='study.tape')")
    spec = packed(player, list({arm.name: arm for arm, _ in jobs}.values()))
    parts = tape.path.with_name(f"{tape.path.name}.runs")
    parts.mkdir(exist_ok=True)
    waiting = list(reversed(jobs))  # taken from the end, where one that was lost is put back
    tries: dict[Key, int] = {}
    out: dict[asyncio.Future[Any], tuple[Arm, StudyRun]] = {}
    workers = _Workers(executor)
    try:
        while out or waiting:
            while waiting and (parallel is None or len(out) < parallel):
                arm, before = waiting[-1]
                begun = None if before.run is None else _taken_out(tape, before.run, parts)
                if (future := workers.submit(work, spec, before, begun)) is None:
                    break  # the job is still waiting, to be counted in what is said below
                out[asyncio.wrap_future(future)] = waiting.pop()
            if not out:
                raise ConfigError(
                    f"the {type(executor).__name__} lost a process, and {len(waiting)} runs with "
                    "it; what has ended is on the tape, and another study.run(executor=...) "
                    "continues. With a function this call does so itself: "
                    "study.run(executor=lambda: ProcessPoolExecutor(4))"
                ) from workers.broken
            ended, _ = await asyncio.wait(out, return_when=asyncio.FIRST_COMPLETED)
            for job in ended:
                arm, before = out.pop(job)
                error = job.exception() if not job.cancelled() else asyncio.CancelledError()
                if error is None:
                    workers.lost = 0
                    yield _put_on(tape, parts, *job.result())
                    continue
                key = before.key
                # Of a pool that broke, all jobs are lost, and most of them have no part in it.
                tries[key] = tries.get(key, 0) + (not isinstance(error, BrokenExecutor))
                if tries[key] < _TRIES:
                    waiting.append((arm, before))
                else:
                    said_ = str(error) or repr(error)
                    yield replace(before, status="failed", error=f"its worker was lost: {said_}")
    finally:
        for job in out:
            job.cancel()
        workers.close()
        with suppress(OSError):
            parts.rmdir()


def _put_on(tape: Tape, folder: Path, entry: StudyRun, content: bytes | None) -> StudyRun:
    """Import what a worker played of a run, if it began it; returns the run with its number."""
    if content is None:
        return entry
    # A file first: what a worker has played is not lost with this process.
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.tape.gz"
    path.write_bytes(content)
    return replace(entry, run=merge(tape, path))


def _taken_out(tape: Tape, run: int, folder: Path) -> bytes:
    """Return a packed tape of one run."""
    path = folder / f"out-{run}.tape"
    try:
        with Tape(path) as alone:
            alone.take(tape, [run])
        return gzip.compress(path.read_bytes())
    finally:
        path.unlink(missing_ok=True)


def _taken_in(tape: Tape, content: bytes, folder: Path) -> int:
    """Copy the run of a packed tape; returns its number."""
    path = folder / f"in-{hashlib.sha256(content).hexdigest()[:16]}.tape.gz"
    path.write_bytes(content)
    try:
        alone = Tape(path)
        run = alone.run().id
        return tape.take(alone, [run])[run]
    finally:
        path.unlink()


def merge(tape: Tape, path: Path) -> int:
    """Copy the run of a packed tape, and remove that; returns the run's number."""
    number = _taken_in(tape, path.read_bytes(), path.parent)
    path.unlink()
    return number


def merge_left_over(tape: Tape) -> None:
    """Import what came back to a process that ended before it was on the tape.

    Raises:
        TapeError: a file is damaged.
    """
    folder = tape.path.with_name(f"{tape.path.name}.runs")
    for path in sorted(folder.glob("*.tape.gz")):
        try:
            merge(tape, path)
        except (EOFError, gzip.BadGzipFile) as error:  # written halfway: the run is played again
            path.unlink()
            if not isinstance(error, EOFError):
                raise TapeError(f"{path} is damaged: {error}") from error


async def played(
    player: StudyPlayer,
    jobs: Sequence[tuple[Arm, StudyRun]],
    parallel: int | None,
    done: Callable[[StudyRun], Awaitable[None]],
    *,
    executor: Executor | MakesExecutor | None = None,
    of: int,
    line: str,
) -> None:
    """Play the runs that are left, here or elsewhere, and call back with each as it ends.

    Args:
        player: plays them.
        jobs: the runs that are left.
        parallel: how many at once.
        done: awaited with each run.
        executor: who plays them elsewhere.
        of: how many runs there are, with those that were done before.
        line: what the line of progress calls a run; empty for no such line.
    """
    if executor is None:
        runs = play_here(player, jobs, parallel or 8)
    else:
        runs = play_elsewhere(executor, player, jobs, parallel)
    first = of - len(jobs) + 1
    async with (
        progress_line(line, number=first, last=of, enabled=bool(line)) as advance,
        aclosing(runs) as ended,  # type: ignore[type-var]
    ):
        async for entry in ended:
            advance()
            await done(entry)
