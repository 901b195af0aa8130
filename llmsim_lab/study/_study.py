"""A study: many runs arranged so that one number comes out, with an interval.

``Study`` says what is varied and over how many seeds; it plays the runs that are left, many at
once, and reads what came of them: from the tape as it is needed, so that a thousand runs take no
more memory than ten.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from markupsafe import Markup

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab._util.files import write_file
from llmsim_lab._util.html import join, pairs, table
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import among, clip, closest, counted, duration, log_event, roughly
from llmsim_lab._util.waiting import explain, run_sync
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm._embedded.weights import CATALOGUE
from llmsim_lab.llm._scope import Budget, Purse
from llmsim_lab.run import load
from llmsim_lab.run._progress import progress_line
from llmsim_lab.run._turn import turn_row
from llmsim_lab.study import _design, _playing
from llmsim_lab.study._charts import arms_chart, runs_chart
from llmsim_lab.study._report import report_html

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

    from llmsim_lab.study._statistics import Effect

logger = logging.getLogger(__name__)

Outcome = str | Callable[[_design.AnyRun], float]
Outcomes = Outcome | Mapping[str, Outcome] | Sequence[Outcome]
"""A column of the frame, a name that the world has for one, or a function of the run."""

_FEW = 3
"""Runs that a spread is estimated from at least."""
_ROUNDING = 1e-12
_MOST_ERRORS = 3
_OUTCOMES = ["arm", "seed", "outcome", "value"]
_STATES = ("done", "failed", "stopped", "left")
_CODE = ("methods", "parameters", "state")
"""Digests of a world's code; not of its file, which holds more than the world."""


class Effects(list["Effect"]):
    """Effects, one a contrast and outcome, as text, frame and table.

    Attributes:
        label: what to keep in mind of all of them, such as runs that are left; empty if there is
            nothing to say.
    """

    def __init__(self, effects: Sequence[Effect] = (), *, label: str = "") -> None:
        super().__init__(effects)
        self.label = label

    def to_frame(self) -> pd.DataFrame:
        """Return one row an effect; the columns are those of ``Effect``, and ``label``."""
        return frame_of([{**asdict(effect), "label": self.label} for effect in self])

    def __str__(self) -> str:
        lines = [str(effect) for effect in self]
        lines += [f"({note})" for note in dict.fromkeys(it.note for it in self if it.note)]
        lines = lines or ["no effects"]
        return "\n".join([*lines, *([f"[{self.label}]"] if self.label else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header = ("effect", "speaks of", "method", "note")
        rows = [(str(it), it.speaks_of, it.method, it.note) for it in self]
        return str(table(header, rows, caption=self.label or "effects"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What is left to play, and what it takes, as far as runs so far tell.

    Attributes:
        runs: how many are left.
        done: how many are done.
        arms: how many arms.
        seeds: how many seeds each has.
        turns: of each run.
        calls: model calls, repeated ones included; None where nothing tells.
        tokens: of prompts and replies; likewise.
        hours: of playing, one run after the other; likewise.
        disk_bytes: of the tapes; likewise.
        smallest: by outcome, the smallest true difference from the reference that is seen with
            power .8; None where nothing tells.
        memory: what embedded models take, in words; empty if there are none.
        based_on: what the estimates are made from, in words.
    """

    runs: int
    done: int
    arms: int
    seeds: int
    turns: int
    calls: float | None = None
    tokens: float | None = None
    hours: float | None = None
    disk_bytes: float | None = None
    smallest: Mapping[str, float | None]
    memory: str = ""
    based_on: str = ""

    def __str__(self) -> str:
        already = f" ({self.done} done already)" if self.done else ""
        lines = [
            f"{self.runs} runs to play{already}: {self.arms} arms of {self.seeds} seeds, "
            f"{self.turns} turns each."
        ]
        costs = [
            f"{roughly(value):,} {unit}"
            for value, unit in ((self.calls, "calls"), (self.tokens, "tokens"))
            if value is not None
        ]
        if self.hours is not None:
            costs.append(f"{duration(3600 * self.hours)} one after the other")
        if self.disk_bytes is not None:
            costs.append(f"{self.disk_bytes / 1e6:,.1f} MB on disk")
        if self.runs and costs:
            lines.append(f"About {', '.join(costs)} ({self.based_on}).")
        elif self.runs:
            lines.append(
                "Calls, tokens, hours and disk are not known before a run was played: plan again "
                "after some runs, or take a small study's (in Python: "
                "study.plan(pilot='small/'))."
            )
        for outcome, value in self.smallest.items():
            if value is None:
                line = f"{outcome}: the smallest effect it can see is not known; {_PILOT}"
                lines.append(line + _PILOT_OF_FUNCTIONS * bool(self.based_on))
            elif not value:
                lines.append(
                    f"{outcome}: all pairs of the runs so far differ by the same, so that they do "
                    "not tell what luck does; play some with the model itself."
                )
            else:
                lines.append(
                    f"{outcome}: it sees a true difference of {value:.3g} four times in five, with "
                    f"{self.seeds} seeds."
                )
        return "\n".join([*lines, *([self.memory] if self.memory else [])])

    __repr__ = __str__


_PILOT = (
    f"the reference and another arm need {_FEW} shared seeds, here or in a small study's folder "
    "(in Python: study.plan(pilot='small/'))."
)
_PILOT_OF_FUNCTIONS = (
    " A folder does not tell of an outcome that is a function; the small study itself does: "
    "study.plan(pilot=small)."
)


class Study:
    """Runs of a world under different conditions, over seeds that all of them share.

    What is complete is not played again, and a run that was interrupted continues with its next
    turn, also after the process was killed; for that the study needs a folder, where each run has a
    tape of its own. Without one its runs are kept in memory.

    Args:
        world: a ``Run`` class, a configuration or its class, or a function that takes the levels by
            keyword, and ``seed``, and returns a run.
        vary: levels by factor, a list or a mapping of labels to levels. A factor is a parameter of
            the world; one inside its configuration by its path, such as ``llm.temperature`` or
            ``nations.0.temperament``, or by its name where that is in one place only (then in all
            nations); ``model``, as ``connect`` takes it, or clients; ``prompt``: a text, a
            ``Prompt``, or a function of the old text, by the prompt's name where there are several,
            None for the world's own; ``players``; ``state``, to start from; a part such as
            ``agents``, as a function of the client.
        seeds: how many, or which; seed k is the same world in every arm.
        turns: of each run; the configuration's if not given.
        outcome: what is compared: a column of the frame, which counts as its mean over the turns
            after the first, or ``"column@last"``; a name that the world has for one, such as
            ``loss``; a function of the run; a list of these, or a mapping of labels to them.
        tape: a folder, made if it is not there, where each run is recorded in a file of its own.
            The file's name says arm and seed, and has a digest of all that decides the run and of
            the world's code: what has changed is played anew, in another file.
        llm_client: the model of arms that name none: a client, or a text as ``connect`` takes it.
        name: what reports and boards call it; the world's name if not given.
        design: ``"full"``, every combination of levels; or ``"one at a time"``, the first level of
            each factor is the reference.
        aa: whether to play the reference arm once more with other call seeds, as the arm "A/A":
            its effect should be nothing.
        fixed: what is the same in all arms, by the names that can also be varied.

    Attributes:
        arms: labels of the levels by factor, by arm.
        reference: the arm that others are compared with.
        seeds: which.
        turns: of each run.
        outcome: what is compared, by label.
        tape: the folder of its runs, if they are in one.

    Raises:
        ConfigError: a name or a level is wrong, or ``tape`` is a file.

    Example:
        >>> from llmsim_lab import Simulation
        >>> rules = {"kind": "taylor", "name": "Rule"}
        >>> study = Study(Simulation, vary={"nations.0.inflation_target": [2.0, 3.0]}, seeds=3,
        ...               turns=4, outcome="interest_rate", nations=[rules],
        ...               validator={"kind": "always_valid"})
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
        self._factors, self._design = _design.factors_of(vary or {}), design
        factors = self._factors
        self.seeds = _design.seeds_of(seeds)
        self._arms = _design.arms_of(factors, design, aa=aa)
        self.reference = self._arms[0].name
        self._by_name = {arm.name: arm for arm in self._arms}
        self._world = _design.World(world, fixed=fixed, factors=factors, turns=turns)
        self._cls = self._world.checked(self._arms, self.seeds[0])
        self.arms = {arm.name: dict(arm.levels) for arm in self._arms}
        self.turns = self._world.turns
        self.name = name or getattr(world, "__name__", self._cls.__name__)
        self._trial = self._world.trial(self._arms[0], self.seeds[0])
        self.outcome = self._outcomes_of(outcome)
        self._chose_outcome = outcome is not None
        self._models = _design.Models(llm_client)
        self._player = _playing.StudyPlayer(self._world, self._models)
        self._listeners: list[Callable[[], object]] = []
        self._player.on_change = self._tell
        self._values: dict[_playing.Key, dict[str, float]] = {}
        self._task: asyncio.Task[Any] | None = None
        self._others = 0
        self._entries = {
            (arm.name, seed): _playing.StudyRun(arm=arm.name, seed=seed)
            for seed in self.seeds
            for arm in self._arms
        }
        self.tape = None if tape is None else _folder(tape)
        if self.tape is not None:
            self._player.files = self._files(self.tape)
            self._find()

    def _files(self, folder: Path) -> dict[_playing.Key, Path]:
        """Return where each run is recorded, or will be."""
        code = self._trial.code_digests
        shared = {
            "world": self._cls.kind,
            "code": {name: code[name] for name in _CODE if name in code},
            "made by": self._world.make,
            "turns": self.turns,
        }
        if self._world.base is not None:
            shared["config"] = self._world.base.model_dump(
                mode="json", exclude={"name", "seed", "turns"}, exclude_unset=True
            )
        files = {}
        for arm in self._arms:
            own = {"arm": arm.name, "levels": self._world.values(arm), "further": arm.further}
            digest = _playing.digest_of({**shared, **own})
            for seed in self.seeds:
                files[arm.name, seed] = folder / _playing.file_name(arm, seed, digest)
        return files

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
        path = self.tape
        later = f" (in another session, the same Study with tape={str(path)!r})" if path else ""
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
        """Play the runs that are left, and return the study.

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
                await self._play(parallel, executor, budget, on_run, progress=progress)
        finally:
            self._task = None
            self._player.playing.clear()
            self._after()
            self._tell()
        return self

    async def _play(
        self,
        parallel: int | None,
        executor: Executor | Callable[[], Executor] | None,
        budget: Budget | None,
        on_run: Callable[[_playing.StudyRun], object] | None,
        *,
        progress: bool,
    ) -> None:
        self._begin(executor)
        jobs = [(self._by_name[it.arm], it) for it in self._entries.values() if it.status != "done"]
        self._player.purse = None if budget is None else Purse(budget)
        if executor is None:
            runs = _playing.play_here(self._player, jobs, parallel or 8)
        else:
            runs = _playing.play_elsewhere(executor, self._player, jobs, parallel)
        # Looked at in the first run that is done: what columns there are, such as one of each
        # player, is known only then, and to say it when all is played would be late. Where
        # nobody named an outcome the study may be there for its frames alone.
        named = self.outcome.values() if self._chose_outcome else ()
        unseen = [it for it in named if isinstance(it, str)]
        last = len(self._entries)
        async with (
            progress_line(
                "run", number=last - len(jobs) + 1, last=last, enabled=progress
            ) as advance,
            aclosing(runs) as ended,  # type: ignore[type-var]
        ):
            async for entry in ended:
                advance()
                self._entries[entry.key] = entry
                self._player.playing.pop(entry.key, None)
                self._tell()
                if entry.status == "failed":
                    where = {"arm": entry.arm, "seed": entry.seed, "turn": entry.turns}
                    self._warn("STUDY_RUN_FAILED", **where, error=entry.error)
                elif entry.status == "done" and unseen:  # one that a budget stopped has few rows
                    rows = self._rows(entry)
                    while unseen:
                        self._value(entry, unseen.pop(), rows)
                returned = on_run(entry) if on_run is not None else None
                if inspect.isawaitable(returned):
                    await returned

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
        if self.tape is not None:
            self._find()
            if self._others:
                self._warn("OTHER_RUNS", folder=self.tape, reason=self._of_others())
        if executor is None:
            for arm in self._arms:  # here a wrong model raises before anything is played
                if self._models.of(self._world, arm) is None and arm is self._arms[0]:
                    self._check_own_client()

    def _warn(self, event: str, **fields: Any) -> None:
        log_event(logger, logging.WARNING, event, study=self.name, **fields)

    def _check_own_client(self) -> None:
        """Raise ConfigError where a run that asks a model has none from its function either."""
        run = self._world.run(self._arms[0], self.seeds[0], None)  # the built-in worlds raise here
        asks = run.config.needs_model and not run.players
        if asks and run.llm_client is None:
            raise ConfigError(
                f"{self._cls.__name__} asks a model, and the study has none: Study(..., "
                "llm_client=connect('auto')), vary={'model': [...]}, or players='rule'"
            )

    def _after(self) -> None:
        """Find out how far runs are that were interrupted."""
        self._player.purse = None
        if self.tape is not None:
            self._find()
        for key, run in self._player.kept.items():
            entry = self._entries[key]
            if entry.status == "left":
                self._entries[key] = replace(entry, status="stopped", turns=run.turn_number)

    def _find(self) -> None:
        """Read from their files how far runs are that have not ended here."""
        assert self.tape is not None
        there = {file.name for file in self.tape.glob("*.tape") if file.stat().st_size}
        for key, file in self._player.files.items():
            entry = self._entries[key]
            if entry.status in ("left", "stopped") and file.name in there:
                self._entries[key] = found = entry.on(file)
                # Somebody may have played single turns of it by hand; or it ended by itself.
                if found.status == "done" and found.turns < self.turns:
                    run = self.simulation(*key)
                    if not run.done(run.state):
                        self._entries[key] = replace(found, status="stopped")
        own = {file.name for file in self._player.files.values()}
        titles = {name.rpartition("-")[0] for name in own}
        self._others = sum(name.rpartition("-")[0] in titles for name in there - own)

    def _of_others(self) -> str:
        """Return how many runs of these arms and seeds are not this study's; empty if none."""
        if not self._others:
            return ""
        return (
            f"{counted(self._others, 'run')} of these arms and seeds in {self.tape} with other "
            "settings or code, which do not count"
        )

    # --- what came of it ---------------------------------------------------------------------

    @property
    def counts(self) -> Counter[str]:
        """How many runs are ``done``, ``failed``, ``stopped`` and ``left``."""
        return Counter(entry.status for entry in self._entries.values())

    @property
    def runs(self) -> pd.DataFrame:
        """One row a run, arm by arm.

        Columns: ``arm``; the factors' levels; ``seed``; ``status``; ``turns``; ``error``; ``tape``,
        its file's name. A factor that has the name of one of those is called ``factor NAME``.
        """
        rows = []
        for it in self._in_order():
            own = {name: getattr(it, name) for name in ("seed", "status", "turns", "error")}
            own["tape"] = it.tape.name if it.tape else ""
            rows.append({"arm": it.arm, **_beside(self._levels(it.arm), {"arm", *own}), **own})
        return frame_of(rows)

    def _in_order(self) -> Iterator[_playing.StudyRun]:
        """Yield the runs arm by arm."""
        for arm in self._arms:
            for seed in self.seeds:
                yield self._entries[arm.name, seed]

    def _levels(self, arm: str) -> dict[str, Any]:
        """Return an arm's levels: numbers as they are, of others the labels."""
        found = self._by_name[arm]
        plain = (bool, int, float)
        return {
            name: value if isinstance(value := found.values[name], plain) else label
            for name, label in found.levels.items()
        }

    def _rows(self, entry: _playing.StudyRun) -> list[dict[str, Any]]:
        """Return a run's frame as rows, from its tape or from memory."""
        if (run := self._player.kept.get(entry.key)) is not None:
            return [turn_row(turn) for turn in run.turns]
        assert entry.tape is not None
        with Tape(entry.tape, read_only=True) as tape:
            return list(tape.frame_rows(_playing.RUN).values())

    def simulation(self, arm: str, seed: int) -> _design.AnyRun:
        """Return one run to look at: its turns, calls and decisions.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        self._entry(arm, seed)
        if (run := self._player.kept.get((arm, seed))) is not None:
            return run
        tape = Tape(self.tape_of(arm, seed), read_only=True)
        given = tape.run(_playing.RUN).manifest["given"]
        made = self._world.trial(self._by_name[arm], seed)
        parts = {name: made.parts[name] for name in given}
        return load(tape, _playing.RUN, kind=self._cls, **parts)

    def tape_of(self, arm: str, seed: int) -> Path:
        """Return the file of one run, to replay it, fork it or ask its situations again.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        if (file := self._entry(arm, seed).tape) is None:
            raise ConfigError(
                f"the run of arm {arm!r} with seed {seed} was not begun; run() plays it"
            )
        return file

    def _entry(self, arm: str, seed: int) -> _playing.StudyRun:
        if arm not in self.arms:
            raise ConfigError(
                f"there is no arm {arm!r}{closest(str(arm), self.arms)}; arms are "
                f"{', '.join(self.arms)}"
            )
        entry = self._entries.get((arm, seed))
        if entry is None:
            there = clip(", ".join(map(str, self.seeds)), 200)
            raise ConfigError(f"there is no run with seed {seed!r}; seeds are {there}")
        return entry

    def to_frame(self) -> pd.DataFrame:
        """Return the turns of all complete runs, one row each.

        Columns: ``arm``; the factors' levels; ``seed``; ``turn``, and the others of a run's frame.
        A factor that has the name of one of those is called ``factor NAME``.
        """
        parts = []
        for entry, rows in self._done():
            levels = _beside(self._levels(entry.arm), {"arm", "seed", *rows[-1]})
            parts += [{"arm": entry.arm, **levels, "seed": entry.seed, **row} for row in rows]
        return frame_of(parts)

    def to_xarray(self) -> xr.Dataset:
        """Return the numbers of all complete runs by arm, seed and turn.

        Columns of players, such as ``coins.Ann`` and ``coins.Bob``, are one variable, ``coins``,
        with a further dimension ``player``; other columns with a dot that has other names behind it
        have one called ``NAME_key``. What a run lacks is NaN. The factors' levels are coordinates
        of the arms.

        Raises:
            ConfigError: xarray is not installed, or no run is complete.
        """
        if find_spec("xarray") is None:
            raise ConfigError(
                "to_xarray() needs xarray: pip install 'llmsim-lab[study]'; or to_frame(), which "
                "has the same numbers"
            )
        import pandas as pd
        import xarray as xr

        frame = self.to_frame()
        if frame.empty:
            raise ConfigError("no run is complete, so there is nothing to arrange; run() first")
        levels = {arm: self._levels(arm) for arm in frame["arm"].unique()}
        factors = next(iter(levels.values()))
        names = [*factors, "arm", "seed", "turn"]
        index = frame.set_index(["arm", "seed", "turn"])
        numbers = [
            str(name)
            for name in index.select_dtypes(["number", "bool"]).columns
            if name not in names and not str(name).startswith("factor ")
        ]
        data: dict[str, Any] = {}
        groups = _groups(numbers)
        first = next((tuple(keys) for keys in groups.values() if keys), None)
        arranged = index[numbers].astype("float64").to_xarray()
        for name, keys in groups.items():
            if not keys:
                data[name] = arranged[name]
                continue
            along = "player" if tuple(keys) == first else f"{name}_key"
            items: list[Any] = [arranged[f"{name}.{key}"] for key in keys]
            stacked = xr.concat(items, dim=pd.Index(keys, name=along))
            data[name] = stacked.transpose("arm", "seed", "turn", along)
        # In the order of the design, not of the alphabet.
        found = xr.Dataset(data).sel(arm=list(levels))
        taken = {str(name) for name in (*data, *found.dims)}
        of_arms = {
            shown: ("arm", [levels[arm].get(name) for arm in levels])
            for shown, name in _beside({name: name for name in factors}, taken).items()
        }
        return found.assign_coords(of_arms).assign_attrs(study=self.name, world=self._cls.kind)

    # --- outcomes ----------------------------------------------------------------------------

    def _outcomes_of(self, outcome: Outcomes | None) -> dict[str, Outcome]:
        """Return what is compared, by label.

        Raises:
            ConfigError: a name stands for no column and no measure.
        """
        measures = self._cls.measures(self._trial.config)
        if outcome is None:
            # Checked later: a study may be there for its frames alone.
            columns = [series.column for series in self._trial.series]
            outcome = next(iter([*measures, *columns]), None) or []
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
        for item in found.values():
            if isinstance(item, str):
                self._check_column(item, measures)
            elif not callable(item):
                raise ConfigError(
                    f"outcome {item!r:.60} is neither a column nor a function of the run; write "
                    "outcome='inflation', or outcome=lambda run: run.state.coins['Ann']"
                )
        return found

    def _check_column(self, name: str, measures: Mapping[str, Any]) -> None:
        first = self._trial.turns[0]
        row = turn_row(first)
        column = name.removesuffix(_design.LAST)
        # A mapping in a state may be filled later, so of its columns only the field is known.
        fields = getattr(type(first.state), "model_fields", {})
        known = [*measures, *(key for key, value in row.items() if isinstance(value, int | float))]
        if not (column in row or name in measures or column.partition(".")[0] in fields):
            raise ConfigError(
                f"outcome {name!r} is not a column of {self._cls.__name__}{among(column, known)}"
            )

    def outcomes(self) -> pd.DataFrame:
        """Return a row for each run that has ended and each outcome.

        Columns: ``arm``, ``seed``, ``outcome``, ``value``; NaN where the run failed.
        """
        rows = [
            (entry.arm, entry.seed, label, value)
            for entry in self._in_order()
            if entry.status in ("done", "failed")
            for label, value in self._values_of(entry).items()
        ]
        return frame_of(rows, columns=_OUTCOMES)

    def _values_of(self, entry: _playing.StudyRun) -> dict[str, float]:
        if entry.status != "done":
            return dict.fromkeys(self.outcome, math.nan)
        key = entry.key
        if key not in self._values:
            of_columns = any(isinstance(it, str) for it in self.outcome.values())
            rows = self._rows(entry) if of_columns else []
            self._values[key] = {
                label: self._value(entry, item, rows) for label, item in self.outcome.items()
            }
        return self._values[key]

    def _value(
        self, entry: _playing.StudyRun, outcome: Outcome, rows: list[dict[str, Any]]
    ) -> float:
        if not isinstance(outcome, str):
            run = self.simulation(entry.arm, entry.seed)
            try:
                value = outcome(run)
            except Exception as error:
                raise ConfigError(
                    f"outcome {_label_of(outcome)!r} fails for arm {entry.arm!r}, seed "
                    f"{entry.seed}: {type(error).__name__}: {error}; return float('nan') where a "
                    "run has none"
                ) from error
            return _number(value, _label_of(outcome))
        config = self._world.trial(self._by_name[entry.arm], entry.seed).config
        if (measure := self._cls.measures(config).get(outcome)) is not None:
            return _number(measure(frame_of(rows)), outcome)
        column = outcome.removesuffix(_design.LAST)
        if not any(column in row for row in rows):
            known = list(dict.fromkeys(name for row in rows for name in row))
            raise ConfigError(
                f"outcome {outcome!r} is not a column of these runs{among(column, known)}"
            )
        if outcome.endswith(_design.LAST):
            return _number(rows[-1].get(column), outcome)
        there = [_number(row.get(column), outcome) for row in rows[1:]]
        numbers = [value for value in there if value == value]  # but for NaN
        return math.fsum(numbers) / len(numbers) if numbers else math.nan

    def effects(
        self,
        *,
        contrasts: Sequence[tuple[str, str]] | None = None,
        level: float = 0.95,
    ) -> Effects:
        """Return how arms differ from the reference, each in each outcome: one family.

        The A/A arm is a family of its own.

        Args:
            contrasts: pairs of arms instead, ``("hawkish", "cautious")`` for
                what hawkish adds to cautious.
            level: of the intervals.

        Raises:
            ConfigError: there is no outcome, or no arm of a name.
        """
        from llmsim_lab.study._statistics import run_effects  # here, since it imports numpy

        real_number("level", level, least=0.5, most=0.9999)
        if not self.outcome:
            raise ConfigError(
                f"say what is compared: Study({self.name}, outcome='a column'), or a function of "
                "the run"
            )
        self._check_arms(contrasts or ())
        values = self.outcomes()
        main = values[values["arm"] != _design.AA] if contrasts is None else values
        found = run_effects(main, reference=self.reference, contrasts=contrasts, level=level)
        if contrasts is None and _design.AA in self.arms:
            again = values[values["arm"].isin([_design.AA, self.reference])]
            check = run_effects(again, reference=self.reference, level=level)
            found += [replace(it, note=f"{_AA_NOTE}{it.note and '; '}{it.note}") for it in check]
        return Effects(found, label=self._so_far())

    def _check_arms(self, contrasts: Sequence[tuple[str, str]]) -> None:
        """Raise ConfigError where an arm of the contrasts is not there."""
        for arm in (arm for pair in contrasts for arm in pair):
            if arm not in self.arms:
                raise ConfigError(f"there is no arm {arm!r}{among(arm, self.arms)}")

    def _so_far(self) -> str:
        """Return how many runs have ended; empty where all of them have."""
        ended, whole = self.counts["done"] + self.counts["failed"], len(self._entries)
        if not ended or ended == whole:
            return ""
        return (
            f"{ended} of {whole} runs so far: to stop as soon as p < .05 finds something far more "
            "often than one time in twenty"
        )

    # --- before it is played -----------------------------------------------------------------

    def report(self, path: str | Path) -> Path:
        """Write what a referee asks for as one HTML file, and return its path.

        Design, effects, charts, settings, digests of the runs, and what failed. The file loads
        nothing from elsewhere and runs no script.

        Args:
            path: the file; one that is there is replaced.

        Raises:
            ConfigError: the file cannot be written, or is a tape.
        """
        return write_file(Path(path), report_html(self).encode())

    def plan(self, *, pilot: Study | str | Path | None = None) -> StudyPlan:
        """Return what is left to play, what it takes, and what differences it can see.

        Args:
            pilot: a smaller study, or its folder; or a tape. The runs so far if not given.
        """
        from llmsim_lab.study._statistics import smallest_effect  # here, since it imports numpy

        left = len(self._entries) - self.counts["done"]
        costs, where = self._costs(pilot or self)
        spreads, n = self._spreads(pilot or self), len(self.seeds)
        return StudyPlan(
            runs=left,
            done=len(self._entries) - left,
            arms=len(self._arms),
            seeds=len(self.seeds),
            turns=self.turns,
            **{name: left * self.turns * cost for name, cost in costs.items()},
            smallest={
                it: smallest_effect(spreads[it], n) if it in spreads else None
                for it in self.outcome
            },
            memory=self._memory(),
            based_on=where,
        )

    def _costs(self, pilot: Study | str | Path) -> tuple[dict[str, float], str]:
        """Return what a turn costs, as far as it is known, and what tells so."""
        if isinstance(pilot, Study):
            runs, where = pilot._done(), pilot.tape
        else:
            runs, where = _recorded(Path(pilot)), Path(pilot)
        turns = sum(len(rows) - 1 for _, rows in runs)
        if not turns:
            return {}, ""
        calls, tokens, seconds = (
            sum(row.get(name) or 0 for _, rows in runs for row in rows) / turns
            for name in ("calls", "tokens", "seconds")
        )
        costs = {"calls": calls, "hours": seconds / 3600} | ({"tokens": tokens} if tokens else {})
        if files := {entry.tape for entry, _ in runs if entry.tape is not None}:
            costs["disk_bytes"] = sum(file.stat().st_size for file in files) / turns
        what = f"the mean of {turns} turns of {len(runs)} runs"
        return costs, what if where is None else f"{what} in {where.name}"

    def _done(self) -> list[tuple[_playing.StudyRun, list[dict[str, Any]]]]:
        """Return the runs that are complete, each with its rows."""
        return [(it, self._rows(it)) for it in self._in_order() if it.status == "done"]

    def _spreads(self, pilot: Study | str | Path) -> dict[str, float]:
        """Return by outcome the standard deviation of differences from the reference."""
        if isinstance(pilot, Study):
            values, reference = pilot.outcomes(), pilot.reference
        else:
            values, reference = self._values_in(Path(pilot)), self.reference
        found: dict[str, float] = {}
        for label, part in values.groupby("outcome"):
            table_ = part.pivot_table(index="seed", columns="arm", values="value")
            if reference not in table_:
                continue
            apart = table_.sub(table_[reference], axis=0)
            others = [arm for arm in apart if arm not in (reference, _design.AA)]
            spreads = [apart[arm].std() for arm in others if apart[arm].count() >= _FEW]
            if spreads:
                # An arm whose pairs all differ equally, but for rounding, tells nothing of luck. Of
                # the others the mean variance, since nobody knows which arm it will be about.
                least = _ROUNDING * table_.abs().max().max()
                variances = [spread**2 for spread in spreads if spread > least] or [0.0]
                found[str(label)] = math.sqrt(math.fsum(variances) / len(variances))
        return found

    def _values_in(self, pilot: Path) -> pd.DataFrame:
        """Return the outcomes of a pilot's runs that name their arm, as far as columns say them."""
        rows = [
            (entry.arm, entry.seed, label, self._value(entry, item, frame))
            for entry, frame in _recorded(pilot)
            for label, item in self.outcome.items()
            if entry.arm in self.arms and isinstance(item, str) and len(frame) > 1
        ]
        return frame_of(rows, columns=_OUTCOMES)

    def _memory(self) -> str:
        named = [self._world.model(arm) or self._models.given for arm in self._arms]
        texts = dict.fromkeys(it for it in named if str(it).startswith("embedded"))
        sizes = sorted(model.memory_bytes / 1e9 for model in CATALOGUE)
        known = {model.name: f"{model.memory_bytes / 1e9:.1f} GB" for model in CATALOGUE}
        some = f"{sizes[0]:.1f} to {sizes[-1]:.1f} GB"
        said_ = [f"{text}: {known.get(text.partition(':')[2], some)}" for text in texts]
        return f"Memory for each process of an executor: {', '.join(said_)}." if said_ else ""

    # --- what is shown of it -----------------------------------------------------------------

    def chart(self, outcome: str) -> Figure:
        """Draw a column by turn, or an outcome of whole runs by arm.

        Args:
            outcome: a column of the frame: each arm's mean over seeds, with a pointwise 95 % band.
                Or the label of one of the study's outcomes, functions included: a point a run, a
                bar at each arm's mean, and a line for each seed.

        Raises:
            ConfigError: there is no such column or outcome of numbers, no run is complete, or there
                are too many arms for the curves.
        """
        frame = self.to_frame()
        if frame.empty:
            raise ConfigError(f"no run of {self!r} is complete; run() first")
        arms = list(self.arms)
        if outcome in self.outcome and outcome not in frame.select_dtypes("number").columns:
            return runs_chart(self.outcomes(), outcome, arms=arms)
        return arms_chart(frame, outcome, arms=arms)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self._about()}"]
        lines += [f"  {error}" for error in self._errors()]
        shown = self._effects_shown()
        return "\n".join([*lines, *([str(shown)] if shown is not None else [])])

    def __repr__(self) -> str:
        return f"<Study {self.name!r}: {self._about()}>"

    def _about(self) -> str:
        counts = self.counts
        states = [f"{counts[it]} {it}" for it in _STATES if counts[it]]
        size = f"{len(self._arms)} arms, {len(self.seeds)} seeds, {self.turns} turns"
        others = self._of_others()
        return f"{size}: {', '.join(states)}{others and f' ({others})'}"

    def _errors(self) -> list[str]:
        errors = Counter(it.error for it in self._entries.values() if it.status == "failed")
        return [f"{n} failed: {error:.200}" for error, n in errors.most_common(_MOST_ERRORS)]

    def _effects_shown(self) -> Effects | str | None:
        """Return the effects, or why there are none; nothing while there is nothing to compare."""
        # Not while runs are left: effects so far are shown to those who ask for them.
        done, failed = self.counts["done"], self.counts["failed"]
        if not done or done + failed < len(self._entries) or len(self._arms) < 2:
            return None
        try:
            return self.effects()
        except LabError as error:
            return f"effects: {error}"

    def _repr_html_(self) -> str:
        facts: list[tuple[object, object]] = [
            ("design", self._about()),
            ("outcomes", ", ".join(self.outcome)),
            ("tapes", f"in {self.tape.name}" if self.tape else "none: kept in memory"),
            *(("failed", error) for error in self._errors()),
        ]
        factors = list(next(iter(self.arms.values())))
        by_arm = Counter((it.arm, it.status) for it in self._entries.values())
        header = ["arm", *factors, "done", "failed", "left"]
        rows = [
            [
                *(arm, *(levels.get(name, "") for name in factors)),
                *(by_arm[arm, "done"], by_arm[arm, "failed"]),
                by_arm[arm, "left"] + by_arm[arm, "stopped"],
            ]
            for arm, levels in self.arms.items()
        ]
        shown = self._effects_shown()
        below = Markup(shown._repr_html_()) if isinstance(shown, Effects) else shown or ""
        caption = f"Study {self.name!r}"
        return str(join([pairs(facts, caption=caption), table(header, rows), below]))


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


def _recorded(path: Path) -> list[tuple[_playing.StudyRun, list[dict[str, Any]]]]:
    """Return the runs on the tapes of a folder, or on a tape, each with its rows."""
    found = []
    for file in _playing.tapes_in(path):
        with Tape(file, read_only=True) as tape:
            for info in tape.runs():
                seed = int(info.manifest["seed"])
                arm = info.name.removesuffix(f", seed {seed}")
                entry = _playing.StudyRun(arm, seed, "done", file, info.turns)
                found.append((entry, list(tape.frame_rows(info.id).values())))
    return found


def _beside(levels: Mapping[str, Any], others: set[str]) -> dict[str, Any]:
    """Return levels by their factors' names, which other columns may have as well."""
    return {f"factor {name}" if name in others else name: it for name, it in levels.items()}


_AA_NOTE = "the same arm with other call seeds: what is seen here is chance"


def _label_of(outcome: Outcome) -> str:
    return outcome if isinstance(outcome, str) else getattr(outcome, "__name__", "outcome")


def _number(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"outcome {name!r} is {value!r:.60}, not a number; name a column of numbers, or make "
            "one of it: outcome=lambda run: ..."
        ) from error


def _groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Return columns by what stands before their last dot, with what stands behind it."""
    found: dict[str, list[str]] = {}
    for name in names:
        before, dot, key = name.rpartition(".")
        found.setdefault(before or name, []).extend([key] if dot else [])
    return found
