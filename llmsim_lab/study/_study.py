"""A study: many runs, or recorded situations asked again, so that one number comes out.

``Study`` says what is varied and over which units; it plays what is left, many at once, and reads
what came of it into one long table: from its tapes as it is needed, so that a thousand runs take no
more memory than ten.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, Self

from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import join, pairs, table
from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import among, clip, closest, counted, duration, log_event, roughly
from llmsim_lab._util.waiting import explain, run_sync
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm._scope import Budget, Purse
from llmsim_lab.run import Run
from llmsim_lab.run._progress import progress_line
from llmsim_lab.run._records import config_of
from llmsim_lab.run._run import _load, class_on
from llmsim_lab.run._session import load_turns
from llmsim_lab.run._turn import turn_row
from llmsim_lab.study import _design, _playing

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

    from llmsim_lab.study._effects import Effects, SpeaksOf
    from llmsim_lab.tape._lines import RunInfo

logger = logging.getLogger(__name__)

Outcome = str | Callable[[_design.AnyRun], float | str]
Outcomes = Outcome | Mapping[str, Outcome] | Sequence[Outcome]
"""A column of the frame, a name that the world has for one, or a function of the run."""

_MOST_ERRORS = 3
_COLUMNS = ("arm", "unit", "run", "wording", "replicate", "turn", "outcome", "value")
_STATES = ("done", "failed", "stopped", "left")
_CODE = ("methods", "parameters", "state")
"""Digests of a world's code; not of its file, which holds more than the world."""
_AS_IT_IS = "as it is"


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is repeated: a seed, or a recorded situation.

    Attributes:
        name: as results have it.
        run: the seed, or the recorded run.
        turn: the recorded turn that is continued; None for a seed.
        number: of that run in the file that it is copied to.
        digest: of what was recorded up to there.
    """

    name: _playing.Unit
    run: int
    turn: int | None = None
    number: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What is left to play, and what it takes, as far as is known.

    Attributes:
        left: how many files of runs are left; one an arm and unit.
        done: how many are done.
        arms: how many arms.
        units: how many seeds or situations each has.
        turns: that are left to play, samples and wordings included.
        calls: model calls; None where nothing tells.
        tokens: of prompts and replies; likewise.
        hours: of playing, one after the other; likewise.
        smallest: by outcome, the smallest true difference from the reference that is seen with
            power .8, at the upper 80 % limit of the pilot's spread; None where nothing tells.
        based_on: what the estimates are made from, in words.
    """

    left: int
    done: int
    arms: int
    units: int
    turns: int
    calls: float | None = None
    tokens: float | None = None
    hours: float | None = None
    smallest: Mapping[str, float | None]
    based_on: str = ""

    def __str__(self) -> str:
        already = f" ({self.done} done already)" if self.done else ""
        lines = [
            f"{self.left} runs to play{already}: {self.arms} arms of {self.units} units, "
            f"{self.turns:,} turns in all."
        ]
        costs = [
            f"{roughly(value):,} {unit}"
            for value, unit in ((self.calls, "calls"), (self.tokens, "tokens"))
            if value is not None
        ]
        if self.hours is not None:
            costs.append(f"{duration(3600 * self.hours)} one after the other")
        if self.left and costs:
            lines.append(f"About {', '.join(costs)} ({self.based_on}).")
        for outcome, value in self.smallest.items():
            known = "not yet known: it takes some units of two arms, here or in study.plan(pilot=)"
            if value is not None:
                known = f"{value:.3g}, with {self.units} units and power .8"
            lines.append(f"Smallest detectable difference in {outcome}: {known}.")
        return "\n".join(lines)

    __repr__ = __str__


class Study:
    """Runs of a world under different conditions, over seeds that all of them share.

    What is complete is not played again, and what was interrupted continues with its next turn,
    also after the process was killed. Arms that differ only in ``interventions`` share each run up
    to the first turn where they differ, so that its calls are made once.

    Args:
        world: a ``Run`` class, or a function that takes the levels by keyword, and ``seed``, and
            returns a run.
        vary: levels by factor, a list or a mapping of labels to levels. A factor is a parameter of
            the world, or a place in one, such as ``llm.temperature``; ``model``, as ``connect``
            takes it, or clients; ``prompt``: a text, a ``Prompt``, or a function of the old text,
            by the prompt's name where there are several, a list of these as wordings of one idea,
            None for the world's own; ``players``; ``state``, to start from; ``interventions``,
            which are set from outside.
        seeds: how many, or which; seed k is the same world in every arm.
        turns: of each run; the world's if not given.
        outcome: what is compared: a column of the frame, which counts as its mean over the turns
            after the first, or ``"column@last"``; a name that the world has for one, such as
            ``loss``; a function of the run; a list of these, or a mapping of labels to them.
        tape: a folder, made if it is not there, where each arm and seed has a file of its own;
            without one they are gone with the study. The file's name has a digest of all that
            decides the run and of the world's code: what has changed is played anew.
        llm_client: the model of arms that name none: a client, a text as ``connect`` takes it, or
            a function that makes a client.
        name: what reports call it; the world's name if not given.
        design: ``"full"``, every combination of levels; or ``"one at a time"``, the first level of
            each factor is the reference.
        aa: whether to play the reference arm once more with other call seeds, as the arm "A/A":
            its effect should be nothing.
        fixed: what is the same in all arms, by the names that can also be varied.

    Attributes:
        arms: labels of the levels by factor, by arm.
        reference: the arm that others are compared with.
        units: the seeds, or the recorded situations.
        outcome: what is compared, by label.
        tape: the folder of its runs.

    Raises:
        ConfigError: a name or a level is wrong, or ``tape`` is a file.

    Example:
        >>> from llmsim_lab.statechart import SocialSimulation
        >>> study = Study(SocialSimulation, vary={"population": [8, 12]}, seeds=3, turns=2,
        ...               outcome="posts", players="rule")
        >>> len(study.run(progress=False).effects())
        1
    """

    def __init__(
        self,
        world: Any,
        vary: Mapping[str, Any] | None = None,
        *,
        seeds: int | Sequence[int] = 20,
        turns: int | None = None,
        outcome: Outcomes | None = None,
        tape: str | Path | None = None,
        llm_client: LLMClient | str | Callable[[], LLMClient] | None = None,
        name: str = "",
        design: str = "full",
        aa: bool = False,
        **fixed: Any,
    ) -> None:
        factors, self._design = _design.factors_of(vary or {}), design
        arms = _design.arms_of(factors, design, aa=aa)
        units = [_Unit(seed, seed) for seed in _design.seeds_of(seeds)]
        self._source: Tape | None = None
        self._world = _design.World(world, fixed=fixed, factors=factors, turns=turns)
        self._trial = self._world.checked(arms, units[0].run)
        name = name or getattr(world, "__name__", self._world.cls.__name__)
        self._arrange(arms, units, [(0, 1)], outcome, tape, llm_client, name)

    @classmethod
    def again(
        cls,
        tape: Tape | Run | str | Path,
        vary: Mapping[str, Any] | None = None,
        *,
        run: int | Sequence[int] | Literal["all"] | None = None,
        turns: Sequence[int] | None = None,
        samples: int = 5,
        outcome: Outcomes | None = None,
        to: str | Path | None = None,
        llm_client: LLMClient | str | Callable[[], LLMClient] | None = None,
        world: type[Run] | None = None,
        name: str = "",
        **fixed: Any,
    ) -> Study:
        """Return a study of recorded situations that are asked again, of any world.

        Each is a turn of a recorded run that is continued by one turn, ``samples`` times in each
        arm, with seeds of their own. The tape is only read. One run's situations depend on each
        other: what is found speaks of them alone; of several runs, of new runs.

        Args:
            tape: the tape, its file, or a run on one.
            vary: as for ``Study``; a prompt's old text is the recorded one.
            run: the run's number; the latest if not given; several, or "all" that began by
                themselves.
            turns: the turns that are continued: 3 asks again what led from turn 3 to turn 4. All
                that were continued if not given.
            samples: of each situation in each arm.
            outcome: a column of the turn's row; a field of its replies, which counts as its mean
                over the players, or one player's, ``"field.Ann"``; a function of the run that was
                continued; a list or mapping of these. All fields of the replies if not given.
            to: the folder of the new runs; without one they are gone with the study.
            llm_client: the model; it is asked with the recorded settings.
            world: the class of the runs, where the tape's is not known here.
            name: what reports call it.
            fixed: what is the same in all arms, by the names that can also be varied.

        Raises:
            ConfigError: a name or a level is wrong, or the runs are not independent.
            TapeError: there is no such run.
        """
        made = cls.__new__(cls)
        own: dict[str, Any] = {"run": run, "turns": turns, "samples": samples, "outcome": outcome}
        own |= {"to": to, "llm_client": llm_client, "world": world, "name": name}
        made._ask_again(tape, vary or {}, **own, **fixed)
        return made

    def _ask_again(
        self,
        tape: Any,
        vary: Mapping[str, Any],
        *,
        run: Any = None,
        turns: Sequence[int] | None = None,
        samples: int = 5,
        outcome: Outcomes | None = None,
        to: str | Path | None = None,
        llm_client: Any = None,
        world: Any = None,
        name: str = "",
        **fixed: Any,
    ) -> None:
        if isinstance(tape, Run):
            if tape.tape is None:
                raise ConfigError("the run is on no tape: make it with tape='my.tape'")
            tape, run = tape.tape, tape.run_id if run is None else run
        self._source = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        infos = _independent(self._source, run)
        world = world or class_on(self._source, infos[0])
        factors, self._design = _design.factors_of(vary), "full"
        arms = _design.arms_of(factors, self._design, aa=False)
        self._world = _design.World(
            world, fixed=fixed, factors=factors, recorded=config_of(infos[0], world)
        )
        units = _situations(self._source, infos, turns)
        for arm in arms:
            self._trial = self._trial_of(arm, infos[0].id)
        plays = [(0, sample) for sample in range(1, whole_number("samples", samples, least=1) + 1)]
        name = name or f"{infos[0].name} again"
        self._arrange(arms, units, plays, outcome, to, llm_client, name)

    def _trial_of(self, arm: _design.Arm, run: int) -> _design.AnyRun:
        """Return a recorded run as an arm would continue it, to see whether its levels are right.

        Raises:
            ConfigError: they are not.
        """
        assert self._source is not None
        try:
            made = self._world.forked(arm, self._source, run, None, None, (0, 1), 0)
            if made._edit is not None:
                made._edit.check()
        except LabError as error:
            raise ConfigError(f"arm {arm.name!r}: {error}") from error
        return made

    def _arrange(
        self,
        arms: Sequence[_design.Arm],
        units: Sequence[_Unit],
        plays: Sequence[_playing.Play],
        outcome: Outcomes | None,
        tape: str | Path | None,
        llm_client: Any,
        name: str,
    ) -> None:
        self.name, self.reference = name, arms[0].name
        self.arms = {arm.name: dict(arm.levels) for arm in arms}
        self._arms = {arm.name: arm for arm in arms}
        self.units = [unit.name for unit in units]
        self._units = {unit.name: unit for unit in units}
        self._plays = plays
        self._chose_outcome = outcome is not None
        self.outcome = self._outcomes_of(outcome)
        self._models = _design.Models(llm_client)
        self._player = _playing.StudyPlayer(self._world, self._models, self._arms)
        self._player.on_change = self._tell
        self._listeners: list[Callable[[], object]] = []
        self._task: asyncio.Task[Any] | None = None
        self._read: dict[_playing.Key, list[dict[str, Any]]] = {}
        self._others = 0
        self._kept = None if tape is not None else tempfile.TemporaryDirectory(prefix="llmsim-")
        self.tape = _folder(self._kept.name if self._kept else tape)
        self._followed: dict[_playing.Key, _playing.Key] = {}
        self._jobs = {job.key: job for job in self._all_jobs()}
        self._files = {key: self.tape / job.file_name for key, job in self._jobs.items()}
        self._entries = {key: _playing.StudyRun(*key) for key in self._jobs}
        self._find()

    def _all_jobs(self) -> Iterator[_playing.Job]:
        """Yield what is played, unit by unit; those that others share their runs with first."""
        world, code = self._world, self._world.code(self._trial)
        shared = {
            "world": world.cls.kind,
            "code": {name: code[name] for name in _CODE if name in code},
            "made by": world.make,
            "turns": None if world.again else world.turns,
        }
        of_arm: dict[str, dict[str, Any]] = {}
        leaders: dict[str, tuple[str, int, int]] = {}
        of_set = sorted(self._arms.values(), key=lambda arm: len(world.interventions(arm)))
        for place, arm in enumerate(of_set):
            own = {"arm": arm.name, "levels": world.values(arm), "further": arm.further}
            of_arm[arm.name] = {**shared, **own}
            for other in [] if world.again else of_set[:place]:
                if other.name not in leaders and (at := world.shared(arm, other)) is not None:
                    leaders[arm.name] = (other.name, *at)
                    break
        base = {name: _playing.digest_of(spec) for name, spec in of_arm.items()}
        for unit in self._units.values():
            for name, arm in self._arms.items():
                wordings = range(len(world.wordings(arm)))
                plays = tuple((wording, n) for wording in wordings for _, n in self._plays)
                leader, at, since = leaders.get(name, ("", unit.turn or 0, 0))
                forks: tuple[int, ...] = (unit.number,) * len(plays) if world.again else ()
                end = at + 1 if world.again else world.turns
                if leader:
                    self._followed[name, unit.name] = (leader, unit.name)
                    forks = tuple(range(1, len(plays) + 1))
                where = unit.digest or unit.name
                digest = _playing.digest_of([base[name], where, base.get(leader), at])
                yield _playing.Job(
                    arm=name,
                    unit=unit.name,
                    digest=digest,
                    plays=plays,
                    end=end,
                    forks=forks,
                    at=at,
                    since=since,
                )

    # --- playing -----------------------------------------------------------------------------

    def run(
        self,
        *,
        parallel: int | None = None,
        executor: Executor | Callable[[], Executor] | None = None,
        budget: Budget | None = None,
        on_run: Callable[[_playing.StudyRun], object] | None = None,
        progress: bool = True,
    ) -> Self:
        """Do what ``arun`` does from plain code: in a script, or in a notebook cell."""
        work = self.arun(
            parallel=parallel, executor=executor, budget=budget, on_run=on_run, progress=progress
        )
        try:
            return run_sync(work)
        except KeyboardInterrupt as error:
            explain(error, self._what_now())
            raise

    def _what_now(self) -> str:
        """Return what is kept of a study that was stopped, and how it continues."""
        where = f"{'to' if self._world.again else 'tape'}={str(self.tape)!r}"
        later = "" if self._kept else f" (in another session, the same Study with {where})"
        return (
            f"{self.counts['done']} of {counted(len(self._entries), 'run')} are done and kept, and "
            f"of the others all whole turns; .run() plays the rest{later}."
        )

    async def arun(
        self,
        *,
        parallel: int | None = None,
        executor: Executor | Callable[[], Executor] | None = None,
        budget: Budget | None = None,
        on_run: Callable[[_playing.StudyRun], object] | None = None,
        progress: bool = True,
    ) -> Self:
        """Play what is left, and return the study.

        A run that fails is kept with its error, and the others are played; another call tries it
        again from its last whole turn. Cancel it, or press Ctrl-C, to stop.

        Args:
            parallel: how many runs at once: 8 if not given, on one event loop with one client for
                each model, which keeps to its own number of requests in flight. With an executor,
                how many jobs are handed out at once: all if not given.
            executor: plays each run as a job of its own, such as a ``ProcessPoolExecutor``, or
                Dask's ``client.get_executor()``; needs ``pip install 'llmsim-lab[study]'`` and
                models that are named or made by a function. A pool that loses a process is broken,
                and another call continues; a function that makes pools, ``lambda:
                ProcessPoolExecutor(4)``, is called for the next one, and their end is seen to here.
            budget: what may be spent on calls by all runs together; then the rest is left.
            on_run: called with each run as it ends; may be async.
            progress: whether a line says how far it is.

        Raises:
            ConfigError: there is no model, the first run has no such column as an outcome names, or
                the study or another one in its folder is being played already.
        """
        if self.running:
            raise ConfigError("this study is being played; wait for it, or cancel it")
        if parallel is not None:
            whole_number("parallel", parallel, least=1)
        if executor is not None and budget is not None:
            raise ConfigError(
                "a budget is counted in one process; without executor=, or give each run its own "
                "limit with turns="
            )
        self._task = asyncio.current_task()
        try:
            with _playing.sole_player(self.tape):
                self._begin(executor)
                self._player.purse = None if budget is None else Purse(budget)
                left = [key for key, it in self._entries.items() if it.status != "done"]
                first = [key for key in left if key not in self._followed]
                number, last = len(self._entries) - len(left) + 1, len(self._entries)
                async with progress_line(
                    "run", number=number, last=last, enabled=progress
                ) as advance:
                    for keys in (first, [key for key in left if key in self._followed]):
                        if executor is None:
                            runs = _playing.play_here(
                                self._player, self._ready(keys), parallel or 8
                            )
                        else:
                            jobs = self._ready(keys)
                            runs = _playing.play_elsewhere(executor, self._player, jobs, parallel)
                        await self._take(runs, on_run, advance)
        finally:
            self._task = None
            self._player.purse = None
            self._player.playing.clear()
            self._find()
            self._tell()
        return self

    async def _take(
        self,
        runs: Any,
        on_run: Callable[[_playing.StudyRun], object] | None,
        advance: Callable[[], None],
    ) -> None:
        """Take up what was played as it ends."""
        async with aclosing(runs) as ended:
            async for entry in ended:
                advance()
                self._entries[entry.key] = entry
                self._player.playing.pop(entry.key, None)
                self._tell()
                if entry.status == "failed":
                    where = {"arm": entry.arm, "unit": entry.unit, "turn": entry.turns}
                    self._warn("STUDY_RUN_FAILED", **where, error=entry.error)
                elif entry.status == "done" and self._chose_outcome and not self._read:
                    # What columns there are, such as one of each player, is known only with the
                    # first run, and to say it when all is played would be late.
                    columns = {name: it for name, it in self.outcome.items() if isinstance(it, str)}
                    self._rows_of(entry, columns)
                returned = on_run(entry) if on_run is not None else None
                if inspect.isawaitable(returned):
                    await returned

    def _ready(self, keys: Sequence[_playing.Key]) -> Iterator[tuple[_playing.Job, Path]]:
        """Yield jobs with their files, which are made as each is taken where it forks something."""
        for key in keys:
            job, file, unit = self._jobs[key], self._files[key], self._units[key[1]]
            if self._source is not None:
                assert unit.turn is not None
                _playing.copy_runs(self._source.path, [unit.run], unit.turn, file)
            elif (leader := self._followed.get(key)) is not None:
                if (its := self._entries[leader]).status != "done":
                    if its.status == "failed":
                        why = f"shares its run with arm {leader[0]!r}, which failed: {its.error}"
                        self._entries[key] = replace(self._entries[key], status="failed", error=why)
                    continue
                with Tape(self._files[leader], read_only=True) as tape:
                    runs = [info.id for info in self._jobs[leader].runs_on(tape).values()]
                _playing.copy_runs(self._files[leader], sorted(runs), job.at, file)
            yield job, file

    def stop(self) -> None:
        """Stop what is being played, from any thread, as Ctrl-C does; without that do nothing.

        Whoever awaits ``arun`` gets a ``CancelledError``.
        """
        if (task := self._task) is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def listen(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Register a callback for what changes as the study is played.

        Args:
            callback: called on the loop that plays, when a run begins, has one more turn or ends,
                and when playing ends; what it raises goes to whoever plays.

        Returns:
            A function that removes the callback.
        """
        self._listeners.append(callback)

        def stop() -> None:
            self._listeners[:] = [it for it in self._listeners if it is not callback]

        return stop

    def _tell(self) -> None:
        for callback in list(self._listeners):
            callback()

    @property
    def running(self) -> bool:
        """Whether the study is being played."""
        return self._task is not None

    def progress(self) -> list[_playing.StudyRun]:
        """Return all runs as they are, arm by arm; those under way here are ``running``."""
        turns = {key: run.turn_number for key, run in dict(self._player.playing).items()}
        return [
            replace(it, status="running", turns=turns[it.key], error="") if it.key in turns else it
            for it in self._in_order()
        ]

    def _begin(self, executor: object) -> None:
        """Find what is in the folder, and check what only matters when runs are played."""
        self._find()
        if self._others:
            self._warn("OTHER_RUNS", folder=self.tape, reason=self._of_others())
        if executor is not None:
            if self._kept is not None:
                raise ConfigError(
                    "an executor's runs are kept in a folder: Study(..., tape='study/')"
                )
            return
        for arm in self._arms.values():  # here a wrong model raises before anything is played
            if self._models.of(self._world, arm) is None:
                run = (
                    self._world.run(arm, int(self.units[0]), None)
                    if self._source is None
                    else self._trial_of(arm, next(iter(self._units.values())).run)
                )
                if run.config.needs_model and not run.players and run.llm_client is None:
                    raise ConfigError(
                        f"{type(run).__name__} asks a model, and the study has none: Study(..., "
                        "llm_client=connect('auto')), vary={'model': [...]}, or players='rule'"
                    )

    def _warn(self, event: str, **fields: Any) -> None:
        log_event(logger, logging.WARNING, event, study=self.name, **fields)

    def _find(self) -> None:
        """Read from their files how far runs are that have not ended here."""
        there = {file.name for file in self.tape.glob("*.tape") if file.stat().st_size}
        for key, file in self._files.items():
            if self._entries[key].status in ("left", "stopped") and file.name in there:
                self._entries[key] = self._player.read(self._jobs[key], file)
        own = {file.name for file in self._files.values()}
        titles = {name.rpartition("-")[0] for name in own}
        self._others = sum(name.rpartition("-")[0] in titles for name in there - own)

    def _of_others(self) -> str:
        """Return how many files of these arms and units are not this study's; empty if none."""
        if not self._others:
            return ""
        return (
            f"{counted(self._others, 'run')} of these arms and units in {self.tape} with other "
            "settings or code, which do not count"
        )

    # --- what came of it ---------------------------------------------------------------------

    @property
    def counts(self) -> Counter[str]:
        """How many runs are ``done``, ``failed``, ``stopped`` and ``left``."""
        return Counter(entry.status for entry in self._entries.values())

    @property
    def runs(self) -> pd.DataFrame:
        """One row an arm and unit.

        Columns: ``arm``; the factors' levels; ``unit``; ``status``; ``turns``; ``error``; ``tape``,
        its file's name. A factor that has the name of one of those is called ``factor NAME``.
        """
        rows = []
        for it in self._in_order():
            own = {name: getattr(it, name) for name in ("unit", "status", "turns", "error")}
            own["tape"] = it.tape.name if it.tape else ""
            rows.append({"arm": it.arm, **_beside(self._levels(it.arm), {"arm", *own}), **own})
        return frame_of(rows)

    def _in_order(self) -> Iterator[_playing.StudyRun]:
        """Yield the runs arm by arm."""
        for arm in self.arms:
            for unit in self.units:
                yield self._entries[arm, unit]

    def _levels(self, arm: str) -> dict[str, Any]:
        """Return an arm's levels: numbers as they are, of others the labels."""
        found = self._arms[arm]
        plain = (bool, int, float)
        return {
            name: value if isinstance(value := found.values[name], plain) else label
            for name, label in found.levels.items()
        }

    @property
    def factors(self) -> list[str]:
        """The columns of ``results`` that hold levels."""
        return list(_beside(dict.fromkeys(self.arms[self.reference]), set(_COLUMNS)))

    @property
    def results(self) -> pd.DataFrame:
        """The one long table: a row for each value of what has ended.

        Columns: ``arm``; one a factor; ``unit``, the seed or the situation; ``run``, the seed or
        the recorded run; ``wording``, where an arm has several; ``replicate``, the sample;
        ``turn``; ``outcome``; ``value``, a number or a text; NaN where the run failed.
        """
        return self._table(self.outcome)

    def _table(self, outcomes: Mapping[str, Outcome]) -> pd.DataFrame:
        rows: list[dict[str, Any]] = []
        for entry in self._in_order():
            if entry.status not in ("done", "failed"):
                continue
            own = outcomes is self.outcome and entry.status == "done"
            values = self._read.get(entry.key) if own else None
            if values is None:
                values = self._rows_of(entry, outcomes)
            if own:
                self._read[entry.key] = values
            levels = _beside(self._levels(entry.arm), set(_COLUMNS))
            run = self._units[entry.unit].run
            head = {"arm": entry.arm, **levels, "unit": entry.unit, "run": run}
            rows += [{**head, **row} for row in values]
        return frame_of(rows, columns=["arm", *self.factors, *_COLUMNS[1:]])

    def _rows_of(
        self, entry: _playing.StudyRun, outcomes: Mapping[str, Outcome]
    ) -> list[dict[str, Any]]:
        """Return the rows of one run's values, without what they share."""
        labels = list(self._world.wordings(self._arms[entry.arm]))
        rows = []
        for play, values in self._values_of(entry, outcomes):
            head = {"wording": labels[play[0]], "replicate": play[1]}
            rows += [
                {**head, "turn": turn, "outcome": label, "value": value}
                for label, turn, value in values
            ]
        return rows

    def _values_of(
        self, entry: _playing.StudyRun, outcomes: Mapping[str, Outcome]
    ) -> Iterator[tuple[_playing.Play, list[tuple[str, int, Any]]]]:
        """Yield for each of a job's runs outcomes by turn."""
        job = self._jobs[entry.key]
        if entry.status != "done" or entry.tape is None:
            for play in job.plays:
                yield play, [(label, entry.turns, math.nan) for label in outcomes]
            return
        with Tape(entry.tape, read_only=True) as tape:
            for play, info in sorted(job.runs_on(tape).items()):
                values = []
                for label, item in outcomes.items():
                    if not isinstance(item, str):
                        values.append((label, info.turns, self._by_function(item, entry, play)))
                    elif self._world.again:
                        values.append((label, info.turns, self._of_fork(tape, info, item)))
                    else:
                        values += [(label, *it) for it in self._of_run(tape, info, item)]
                yield play, values

    def _by_function(
        self, outcome: Callable[[Any], Any], entry: _playing.StudyRun, play: _playing.Play
    ) -> Any:
        where = f"arm {entry.arm!r}, {_playing._named(entry.unit)}"
        run = self._loaded(entry, play)
        try:
            value = outcome(run)
        except Exception as error:
            raise ConfigError(
                f"outcome {_label_of(outcome)!r} fails for {where}: {type(error).__name__}: "
                f"{error}; return float('nan') where a run has none"
            ) from error
        return _plain(value, _label_of(outcome))

    def _of_run(self, tape: Tape, info: RunInfo, outcome: str) -> list[tuple[int, Any]]:
        """Return an outcome of a whole run by turn: a measure, or a column."""
        rows = tape.frame_rows(info.id)
        cls = self._world.cls
        last = max(rows)
        if (measure := cls.measures(config_of(info, cls)).get(outcome)) is not None:
            return [(last, _plain(measure(frame_of(list(rows.values()))), outcome))]
        column = outcome.removesuffix(_design.LAST)
        if not any(column in row for row in rows.values()):
            known = list(dict.fromkeys(name for row in rows.values() for name in row))
            raise ConfigError(
                f"outcome {outcome!r} is not a column of these runs{among(column, known)}"
            )
        if outcome.endswith(_design.LAST):
            return [(last, _plain(rows[last].get(column), outcome))]
        first = min(rows)
        return [
            (turn, _plain(row.get(column), outcome)) for turn, row in rows.items() if turn > first
        ]

    def _of_fork(self, tape: Tape, info: RunInfo, outcome: str) -> Any:
        """Return an outcome of a turn that was asked again: a column, or a field of replies."""
        line = tape.turn_lines(info.id, first=info.turns)[info.turns]
        if outcome in line["row"]:
            return _plain(line["row"][outcome], outcome)
        [turn] = load_turns(self._world.cls, tape, info.id, [line["record"]])
        return _in_replies(turn, outcome)

    def simulation(
        self, arm: str, unit: _playing.Unit, *, wording: str = "", replicate: int = 1
    ) -> _design.AnyRun:
        """Return one run to look at: its turns, calls and decisions.

        Args:
            arm: the arm's name.
            unit: the seed, or the recorded situation.
            wording: where the arm has several; the first if not given.
            replicate: which sample of a situation.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        self.tape_of(arm, unit)
        labels = list(self._world.wordings(self._arms[arm]))
        if wording and wording not in labels:
            raise ConfigError(f"there is no wording {wording!r}{among(wording, labels)}")
        play = (labels.index(wording) if wording else 0, replicate)
        return self._loaded(self._entry(arm, unit), play)

    def _loaded(self, entry: _playing.StudyRun, play: _playing.Play) -> _design.AnyRun:
        assert entry.tape is not None
        tape = Tape(entry.tape, read_only=True)
        info = self._jobs[entry.key].runs_on(tape).get(play)
        if info is None:
            raise ConfigError(f"sample {play[1]} of {entry.key} was not begun; run() plays it")
        arm, world, made = self._arms[entry.arm], self._world, None
        if not world.again:
            made = world.run(arm, int(entry.unit), None, wording=play[0])
        return _load(tape, info, None, world.parts(arm, made, info), world.cls)

    def tape_of(self, arm: str, unit: _playing.Unit) -> Path:
        """Return the file of one run, to replay it, fork it or ask its situations again.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        if (file := self._entry(arm, unit).tape) is None:
            raise ConfigError(
                f"the run of arm {arm!r}, {_playing._named(unit)}, was not begun; run() plays it"
            )
        return file

    def _entry(self, arm: str, unit: _playing.Unit) -> _playing.StudyRun:
        if arm not in self.arms:
            raise ConfigError(
                f"there is no arm {arm!r}{closest(str(arm), self.arms)}; arms are "
                f"{', '.join(self.arms)}"
            )
        if (entry := self._entries.get((arm, unit))) is None:
            there = clip(", ".join(map(str, self.units)), 200)
            raise ConfigError(f"there is no unit {unit!r}; there are {there}")
        return entry

    def to_frame(self) -> pd.DataFrame:
        """Return the turns of all complete runs, one row each.

        Columns: ``arm``; the factors' levels; ``unit``; ``wording``; ``replicate``; ``turn``, and
        the others of a run's frame. Of situations only the turn that was asked again. A factor that
        has the name of one of those is called ``factor NAME``.
        """
        parts = []
        for entry in self._in_order():
            if entry.status != "done" or entry.tape is None:
                continue
            labels = list(self._world.wordings(self._arms[entry.arm]))
            with Tape(entry.tape, read_only=True) as tape:
                for (wording, sample), info in sorted(self._jobs[entry.key].runs_on(tape).items()):
                    rows = tape.frame_rows(info.id)
                    own = {"unit": entry.unit, "wording": labels[wording], "replicate": sample}
                    levels = _beside(self._levels(entry.arm), {"arm", *own, *rows[info.turns]})
                    parts += [
                        {"arm": entry.arm, **levels, **own, **row}
                        for turn, row in rows.items()
                        if not self._world.again or turn == info.turns
                    ]
        return frame_of(parts)

    def to_xarray(self) -> xr.Dataset:
        """Return ``results`` as pandas gives it to xarray: each outcome by arm, unit, ... and turn.

        Raises:
            ConfigError: xarray is not installed.
        """
        results, index = self.results, [name for name in _COLUMNS if name not in ("run", "value")]
        try:
            wide = results.set_index(index)["value"].unstack("outcome")
            found: xr.Dataset = wide.to_xarray()
        except ImportError as error:
            raise ConfigError(
                "to_xarray() needs xarray: pip install 'llmsim-lab[study]'; study.results has the "
                "same numbers"
            ) from error
        return found.sel(arm=list(results["arm"].unique())).assign_attrs(study=self.name)

    # --- outcomes ----------------------------------------------------------------------------

    def _outcomes_of(self, outcome: Outcomes | None) -> dict[str, Outcome]:
        """Return what is compared, by label.

        Raises:
            ConfigError: a name stands for no column and no measure.
        """
        known, at_least = self._columns()
        if outcome is None:
            outcome = known[:1] if self._source is None else at_least
        if isinstance(outcome, Mapping):
            found = dict(outcome)
        else:
            items = [outcome] if isinstance(outcome, str) or callable(outcome) else list(outcome)
            found = {_label_of(item): item for item in items}
            if len(found) < len(items):
                twice = Counter(map(_label_of, items)).most_common(1)[0][0]
                raise ConfigError(
                    f"two outcomes are called {twice!r}; give them labels: outcome={{'one': ..., "
                    "'other': ...}"
                )
        fields = getattr(type(self._trial.state), "model_fields", {})
        for item in found.values():
            if not isinstance(item, str) and not callable(item):
                raise ConfigError(
                    f"outcome {item!r:.60} is neither a column nor a function of the run; write "
                    "outcome='inflation', or outcome=lambda run: run.state.coins['Ann']"
                )
            if callable(item):
                continue
            name = item.removesuffix(_design.LAST)
            # A mapping in a state may be filled later, so of its columns only the field is known.
            if name not in known and name.partition(".")[0] not in {*fields, *at_least}:
                raise ConfigError(
                    f"outcome {item!r} is not a column of {self._world.cls.__name__}"
                    f"{among(name, known)}"
                )
        return found

    def _columns(self) -> tuple[list[str], list[str]]:
        """Return the names that outcomes may have, and those of the replies' fields."""
        trial = self._trial
        row = turn_row(trial.turns[-1], trial.own_columns(trial.turns[-1]))
        measures = list(trial.measures(trial.config))
        names = [*measures, *(it.column for it in trial.series), *row]
        fields: list[str] = []
        if self._source is not None:
            fields = [name for answer in trial.turns[-1].answers for name in answer.fields]
        return list(dict.fromkeys([*names, *fields])), list(dict.fromkeys(fields))

    def effects(
        self,
        formula: str | None = None,
        *,
        contrasts: Sequence[tuple[str, str]] | None = None,
        level: float = 0.95,
        sesoi: float | Mapping[str, float] | None = None,
        speaks_of: SpeaksOf | None = None,
    ) -> Effects:
        """Return how arms differ from the reference, each in each outcome: one family.

        The A/A arm is a family of its own.

        Args:
            formula: instead, main effects and interactions of the factors: ``"y ~ a * b"``.
            contrasts: pairs of arms instead, ``("hawkish", "cautious")`` for what hawkish adds to
                cautious.
            level: of the intervals.
            sesoi: the smallest effect of interest, for an equivalence verdict; one, or by outcome.
            speaks_of: what the intervals generalise to, instead of what the design suggests.

        Raises:
            ConfigError: there is no outcome, or no arm of a name.
        """
        from llmsim_lab.study._effects import Effects, effects  # here, since it imports scipy

        if not self.outcome:
            raise ConfigError(
                f"say what is compared: Study({self.name}, outcome='a column'), or a function of "
                "the run"
            )
        values = self.results
        own: dict[str, Any] = {
            "speaks_of": speaks_of or self._speaks_of(),
            "reference": self.reference,
            "level": level,
            "sesoi": sesoi,
        }
        main = values[values["arm"] != _design.AA] if contrasts is None else values
        found = effects(main, formula, factors=self.factors, contrasts=contrasts, **own)
        listed = list(found)
        if contrasts is None and formula is None and _design.AA in self.arms:
            again = values[values["arm"].isin([_design.AA, self.reference])]
            listed += [
                replace(it, note=f"{_AA_NOTE}{it.note and '; '}{it.note}")
                for it in effects(again, **own)
            ]
        return Effects(listed, label="; ".join(filter(None, [found.label, self._so_far()])))

    def _speaks_of(self) -> SpeaksOf:
        """Return what a result of this design generalises to."""
        several = any(len(self._world.wordings(arm)) > 1 for arm in self._arms.values())
        runs = len({unit.run for unit in self._units.values()})
        if several:
            return "new wordings and situations" if runs > 1 else "new wordings"
        return "new runs" if self._source is None or runs > 1 else "these situations"

    def by_turn(
        self,
        column: str,
        arm: str | None = None,
        reference: str | None = None,
        *,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Return by turn how an arm differs from another in a column, with a simultaneous band.

        Columns: ``turn``, ``estimate``, ``low``, ``high``, ``n``. The band contains the whole true
        curve with the given probability, not each turn by itself.

        Args:
            column: of the runs' frames.
            arm: the arm; the only other one if not given.
            reference: what it is compared with; the study's if not given.
            level: of the band.
        """
        from llmsim_lab.study._effects import by_turn

        reference = reference or self.reference
        others = [name for name in self.arms if name not in (reference, _design.AA)]
        if arm is None and len(others) != 1:
            raise ConfigError(f"say which arm: by_turn({column!r}, 'ARM'); {', '.join(others)}")
        found: pd.DataFrame = by_turn(
            self._table({column: column}), arm or others[0], reference, level=level
        )
        return found

    def _so_far(self) -> str:
        """Return how many runs have ended; empty where all of them have."""
        ended, whole = self.counts["done"] + self.counts["failed"], len(self._entries)
        if not ended or ended == whole:
            return ""
        return (
            f"{ended} of {whole} runs so far: to stop as soon as p < .05 finds something far more "
            "often than one time in twenty"
        )

    # --- what is shown of it -----------------------------------------------------------------

    def report(self, path: str | Path) -> Path:
        """Write what a referee asks for as one HTML file, and return its path.

        Design, effects, charts, settings, digests of the runs, and what failed. The file loads
        nothing from elsewhere and runs no script.

        Args:
            path: the file; one that is there is replaced.

        Raises:
            ConfigError: the file cannot be written, or is a tape.
        """
        from llmsim_lab._util.files import write_file
        from llmsim_lab.study._report import report_html

        return write_file(Path(path), report_html(self).encode())

    def chart(self, outcome: str) -> Figure:
        """Draw an outcome: a point a run and a line a unit, or by turn where it is a column."""
        from llmsim_lab.study._charts import arms_figure

        found: Figure = arms_figure(self.results, outcome, arms=list(self.arms))
        return found

    def __str__(self) -> str:
        lines = [f"{self.name}: {self._about()}"]
        lines += [f"  {error}" for error in self.errors()]
        shown = self._effects_shown()
        return "\n".join([*lines, *([str(shown)] if shown is not None else [])])

    def __repr__(self) -> str:
        return f"<Study {self.name!r}: {self._about()}>"

    def _about(self) -> str:
        counts = self.counts
        states = [f"{counts[it]} {it}" for it in _STATES if counts[it]]
        what = "seeds" if self._source is None else "situations"
        size = f"{len(self.arms)} arms, {len(self.units)} {what}"
        others = self._of_others()
        return f"{size}: {', '.join(states)}{others and f' ({others})'}"

    def errors(self) -> list[str]:
        """Return why runs failed, the most frequent reasons first."""
        errors = Counter(it.error for it in self._entries.values() if it.status == "failed")
        return [f"{n} failed: {error:.200}" for error, n in errors.most_common(_MOST_ERRORS)]

    def _effects_shown(self) -> Effects | str | None:
        """Return the effects, or why there are none; nothing while there is nothing to compare."""
        # Not while runs are left: effects so far are shown to those who ask for them.
        done, failed = self.counts["done"], self.counts["failed"]
        if not done or done + failed < len(self._entries) or len(self.arms) < 2:
            return None
        try:
            return self.effects()
        except LabError as error:
            return f"effects: {error}"

    def _repr_html_(self) -> str:
        facts: list[tuple[object, object]] = [
            ("design", self._about()),
            ("outcomes", ", ".join(self.outcome)),
            ("tapes", "not kept" if self._kept else f"in {self.tape.name}"),
            *(("failed", error) for error in self.errors()),
        ]
        by_arm = Counter((it.arm, it.status) for it in self.progress())
        states = ("done", "running", "failed", "stopped", "left")
        rows = [
            [arm, *levels.values(), *(by_arm[arm, state] for state in states)]
            for arm, levels in self.arms.items()
        ]
        header = ["arm", *self.arms[self.reference], *states]
        shown = None if self.running else self._effects_shown()
        below = shown if isinstance(shown, str) else Markup(shown._repr_html_()) if shown else ""
        return str(join([pairs(facts, caption=f"Study {self.name!r}"), table(header, rows), below]))


class Comparison(Study):
    """Prompts compared on recorded situations: ``Study.again`` for one factor.

    Args:
        tape: the tape, its file, or a run on one.
        prompt: prompts by name, as ``vary={"prompt": ...}`` takes them; compared with the recorded
            one, which ``None`` stands for, unless it is among them.
        run: as for ``Study.again``, and so are the others.
        more: as for ``Study.again``.
    """

    def __init__(
        self,
        tape: Tape | Run | str | Path,
        run: int | Sequence[int] | Literal["all"] | None = None,
        *,
        prompt: Mapping[str, Any],
        **more: Any,
    ) -> None:
        prompts = dict(prompt) if None in prompt.values() else {_AS_IT_IS: None, **prompt}
        self._ask_again(tape, {"prompt": prompts}, run=run, **more)


# --- recorded situations --------------------------------------------------------------------------


def _independent(tape: Tape, run: Any) -> list[RunInfo]:
    """Return the runs to ask again.

    Raises:
        ConfigError: they are of several worlds, share turns, or had the same luck.
    """
    if run == "all":
        infos = [info for info in tape.runs() if info.parent is None]
    elif run is None or isinstance(run, int):
        return [tape.run(run)]
    elif isinstance(run, str) or not isinstance(run, Sequence) or not run:
        raise ConfigError(f"run={run!r:.80} must be a run's number, several ([1, 2, 3]), or 'all'")
    else:
        infos = [tape.run(number) for number in dict.fromkeys(run)]
    luck: dict[Any, int] = {}
    for info in infos:
        if (kind := info.manifest["kind"]) != infos[0].manifest["kind"]:
            raise ConfigError(
                f"run {infos[0].id} is a {infos[0].manifest['kind']} and run {info.id} a {kind}; "
                "ask runs of one world again"
            )
        for what, key in (
            ("turns, as forks do", -tape.line(info.id)[0][0]),
            ("the seed", info.manifest["seed"]),
        ):
            if (other := luck.setdefault((what, key), info.id)) != info.id:
                raise ConfigError(
                    f"runs {other} and {info.id} share {what}, and are not independent; choose "
                    "runs with different seeds"
                )
    return infos


def _situations(tape: Tape, infos: Sequence[RunInfo], turns: Sequence[int] | None) -> list[_Unit]:
    """Return the turns of runs that were continued, or those of them that are wanted."""
    units: list[_Unit] = []
    for info in infos:
        number, parent = 1, info.parent
        while parent is not None:
            number, parent = number + 1, tape.run(parent).parent
        sofar = hashlib.sha256(dumps(info.manifest).encode("utf-8", "surrogatepass"))
        there = []
        for record in tape.turn_records(info.id)[:-1]:
            sofar.update(dumps(record).encode("utf-8", "surrogatepass"))
            turn = int(record["turn"])
            there.append(turn)
            if turns is None or turn in turns:
                digest = sofar.hexdigest()[:16]
                units.append(_Unit(f"{info.id}:{turn}", info.id, turn, number, digest))
        if wrong := [turn for turn in turns or () if turn not in there]:
            raise ConfigError(
                f"turn {wrong[0]} of run {info.id} was not continued; those that were are "
                f"{min(there, default=0)} to {max(there, default=0)}"
            )
    if not units:
        raise ConfigError(f"run {infos[0].id} has no turn that was continued; play it first")
    return units


def _in_replies(turn: Any, outcome: str) -> Any:
    """Return what a turn's replies say in a field: the mean, or the text where there is one.

    Raises:
        ConfigError: no reply has it, or several have texts.
    """
    name, _, player = outcome.partition(".")
    found = [
        answer.fields[name]
        for answer in turn.answers
        if name in answer.fields and player in ("", answer.player)
    ]
    if not found:
        known = {field for answer in turn.answers for field in answer.fields}
        raise ConfigError(f"outcome {outcome!r}: no reply of the turn has it{among(name, known)}")
    if all(isinstance(it, int | float) for it in found):
        return fmean(found)
    if len(found) > 1:
        raise ConfigError(
            f"outcome {outcome!r} is a text of {len(found)} players; name one: "
            f"'{name}.{turn.answers[0].player}', or make a number of them: outcome=lambda run: ..."
        )
    return _plain(found[0], outcome)


# --- small things ---------------------------------------------------------------------------------


def _folder(tape: Any) -> Path:
    """Return the folder that ``tape=`` names.

    Raises:
        ConfigError: it is something else.
    """
    path = getattr(tape, "path", None) or Path(tape)
    if path.is_file():
        raise ConfigError(
            f"{path} is a file, and a study is a folder with a tape for each run: "
            f"tape={path.stem + '/'!r}"
        )
    return Path(path)


def _beside(levels: Mapping[str, Any], others: set[str]) -> dict[str, Any]:
    """Return levels by their factors' names, which other columns may have as well."""
    return {f"factor {name}" if name in others else name: it for name, it in levels.items()}


_AA_NOTE = "the same arm with other call seeds: what is seen here is chance"


def _label_of(outcome: Outcome) -> str:
    return outcome if isinstance(outcome, str) else getattr(outcome, "__name__", "outcome")


def _plain(value: Any, name: str) -> Any:
    """Return a value as the table holds it: a number, NaN for none, or a text.

    Raises:
        ConfigError: it is something else.
    """
    if value is None:
        return math.nan
    if isinstance(value, str):
        return value
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"outcome {name!r} is {value!r:.60}, neither a number nor a text; make one of it: "
            "outcome=lambda run: ..."
        ) from error
