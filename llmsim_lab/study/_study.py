"""A study: many runs, or recorded situations asked again, so that one number comes out.

``Study`` says what is varied and over which units; it plays what is left, many at once, and reads
what came of it into one long table. Of a run that is done its tape is read once, and only the rows
of its frame are kept.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import shutil
import tempfile
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from markupsafe import Markup

from llmsim_lab._util.checks import (
    as_whole_number,
    known_names,
    real_number,
    whole_number,
)
from llmsim_lab._util.html import join, pre, table
from llmsim_lab._util.jsontext import as_mapping
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import (
    among,
    clip,
    contrast_name,
    counted,
    error_text,
    listed,
    log_event,
    roughly,
)
from llmsim_lab._util.waiting import Listeners, explain, run_sync
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.scope import Budget, Purse
from llmsim_lab.run import Run
from llmsim_lab.run.charts import series_of
from llmsim_lab.run.guided import edits_of, leave_out_warnings
from llmsim_lab.run.people import people_of
from llmsim_lab.run.progress import progress_line
from llmsim_lab.run.records import clients_of, config_of, entries_of, llm_config_of
from llmsim_lab.run.registry import class_of_manifest, identity
from llmsim_lab.run.terminal import ask_people_here
from llmsim_lab.study._files import Contents, StudyFiles
from llmsim_lab.study._jobs import (
    PlannedUnit,
    independent_runs,
    jobs_of,
    leaders_of,
    situations_of,
)
from llmsim_lab.study._outcomes import Outcome, OutcomeReader, Outcomes, outcomes_of
from llmsim_lab.study._plan import Prices, StudyPlan
from llmsim_lab.study.cost import Count
from llmsim_lab.study.design import (
    LAST,
    MOST_SAMPLES,
    AnyRun,
    Arm,
    Models,
    Play,
    PromptEdits,
    World,
    said,
    seeds_of,
)
from llmsim_lab.study.people import GroupOfPeople, answers_of_people, seats_of_people
from llmsim_lab.study.playing import (
    Job,
    Key,
    StudyPlayer,
    StudyRun,
    Task,
    Unit,
    copy_runs,
    play_all,
    sole_study,
)
from llmsim_lab.study.registration import (
    MODEL,
    Claims,
    Design,
    RegisteredPart,
    Registration,
    RunFacts,
    model_facts,
    models_of,
    prompts_of,
    read_registration,
    together,
    write_registration,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

    from llmsim_lab.study.estimates.effects import Compared, Remark
    from llmsim_lab.study.estimates.estimate import Effects, Estimate, Generality
    from llmsim_lab.study.estimates.power import Detectable, Sizes

logger = logging.getLogger(__name__)

Model = LLMClient | str | Callable[[], LLMClient]

_COLUMNS = (
    "arm",
    "unit",
    "run",
    "wording",
    "replicate",
    "turn",
    "outcome",
    "value",
)
_STATES = ("done", "running", "failed", "stopped", "left")
_WATCH_S = 0.5
"""Between two pictures of a study that is watched."""
_MOST_ARMS_IN_LINE = 6
"""Whose runs the line of progress counts: more would not fit on it."""
_RUNS_AT_ONCE = 8
"""A local server takes a few requests at once; more runs would only hold more states in memory."""
_MOST_TURNS_ON_TRIAL = 10
"""In which a second kind of question may show that an edit must say which prompt it is of."""


class KeptResults(NamedTuple):
    """The one long table, and the status and turns of each run when it was made."""

    progress: Sequence[tuple[str, int]]
    table: pd.DataFrame


class Draws(NamedTuple):
    """A table of results in which an arm's replicates are draws of it, and its reference."""

    table: pd.DataFrame
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyArguments:
    """What a study of runs was made with; see ``Study``."""

    world: type[Run]
    vary: Mapping[str, Any] | None
    seeds: int | Sequence[int]
    turns: int | None
    outcome: Outcomes | None
    tape: str | Path | None
    llm_client: Model | None
    name: str
    fixed: Mapping[str, Any]


class Study:
    """Runs of a world under different conditions, over seeds that all of them share.

    What is complete is not played again, and what was interrupted continues with its next turn,
    also after the process was killed. Arms that differ only in ``interventions`` share each run up
    to the first turn where they differ, so that its calls are made once.

    Args:
        world: a ``Run`` class.
        vary: levels by factor, a list or a mapping of labels to levels. A factor is a parameter of
            the world, or a place in one, such as ``llm.temperature``; ``model``, as ``connect``
            takes it, or clients; ``prompt``: a text, a ``Prompt``, or a function of the old text,
            by the prompt's name where there are several, a list of these as wordings of one idea,
            None for the world's own; ``players``; ``state``, to start from; ``interventions``,
            which are set from outside. Each combination of levels is an arm, the first of them the
            reference.
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
        fixed: what is the same in all arms, by the names that can also be varied.

    Attributes:
        arms: labels of the levels by factor, by arm.
        reference: the arm that others are compared with.
        factors: the columns of ``results`` that hold levels.
        units: the seeds, or the recorded situations.
        unit_name: what a unit is.
        outcome: what is compared, by label.
        tape: the folder of its runs.
        registration: what ``register`` wrote or read; None before it.

    Raises:
        ConfigError: a name or a level is wrong.

    Example:
        >>> from llmsim_lab.statechart import SocialSimulation
        >>> study = Study(SocialSimulation, vary={"population": [8, 12]}, seeds=3, turns=2,
        ...               outcome="posts", players="rule")
        >>> len(study.run(progress=False).effects())
        1
    """

    registration: Registration | None = None
    _arguments: StudyArguments | None = None

    def __init__(
        self,
        world: type[Run],
        vary: Mapping[str, Any] | None = None,
        *,
        seeds: int | Sequence[int] = 20,
        turns: int | None = None,
        outcome: Outcomes | None = None,
        tape: str | Path | None = None,
        llm_client: Model | None = None,
        name: str = "",
        **fixed: Any,
    ) -> None:
        self._arguments = StudyArguments(
            world=world,
            vary=vary,
            seeds=seeds,
            turns=turns,
            outcome=outcome,
            tape=tape,
            llm_client=llm_client,
            name=name,
            fixed=fixed,
        )
        units = []
        for seed in seeds_of(seeds):
            unit = PlannedUnit(
                unit=seed,
                run=seed,
                digest=str(seed),
            )
            units.append(unit)
        self._arrange(
            World(
                world,
                fixed,
                vary,
                turns=turns,
            ),
            units,
            outcome=outcome,
            tape=tape,
            llm_client=llm_client,
            name=name or world.__name__,
        )

    def replace(
        self,
        *,
        seeds: int | Sequence[int] | None = None,
        players: object = None,
        tape: str | Path | None = None,
    ) -> Study:
        """Return the same design with other seeds, players or folder, as a study of its own.

        Args:
            seeds: how many, or which; such as further groups of a class.
            players: who answers in all arms.
            tape: the folder of its runs; if not given the one that this study was given.

        Raises:
            ConfigError: situations are asked again, or players are varied.
        """
        arguments = self._arguments
        # Of situations there are no seeds to replace.
        if arguments is None:
            raise ConfigError("replace() is of a study of runs; situations belong to their tape")
        if players is not None and "players" in (arguments.vary or {}):
            raise ConfigError(
                f"players={players!r:.60} cannot replace what is varied: vary={{'players': ...}}"
            )
        fixed = dict(arguments.fixed)
        if players is not None:
            fixed["players"] = players
        return Study(
            arguments.world,
            arguments.vary,
            seeds=arguments.seeds if seeds is None else seeds,
            turns=arguments.turns,
            outcome=arguments.outcome,
            tape=tape or arguments.tape,
            llm_client=arguments.llm_client,
            name=arguments.name,
            **fixed,
        )

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
        llm_client: Model | None = None,
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
            llm_client: the model. A client's settings count, all of them, and a WARNING says which
                are not the recorded ones; a text, ``"ollama:llama3.2"``, asks with the recorded
                settings. A seed is left out where ``samples`` is more than 1, since all of them
                would be one.
            world: the class of the runs, where the tape's is not known here.
            name: what reports call it.
            fixed: what is the same in all arms, by the names that can also be varied.

        Raises:
            ConfigError: a name or a level is wrong, or the runs are not independent.
            TapeError: there is no such run.
        """
        source: Tape | None
        if isinstance(tape, Run):
            source = tape.tape
            if run is None:
                # Not the tape's latest run, which may be a fork of this one.
                run = tape.run_id
        elif isinstance(tape, Tape):
            source = tape
        else:
            source = Tape(tape, read_only=True)
        if source is None:
            world_name = type(tape).__name__
            raise ConfigError(
                f"the run is on no tape; make it with one: {world_name}(..., tape='my.tape')"
            )
        infos = independent_runs(source, run)
        first = infos[0]
        kind = world or class_of_manifest(first.id, first.manifest)
        samples = whole_number(
            "samples",
            samples,
            least=1,
            most=MOST_SAMPLES,
        )
        # Not by __init__, which takes seeds and makes new runs.
        study = cls.__new__(cls)
        study._arrange(
            World(
                kind,
                fixed,
                vary,
                recorded=config_of(first, kind),
                # Without a seed, with which all samples would be one.
                recorded_llm=llm_config_of(first.manifest, seed=None),
            ),
            situations_of(source, infos, turns),
            outcome=outcome,
            tape=to,
            llm_client=llm_client,
            name=name or f"{first.name} again",
            source=source,
            samples=samples,
        )
        return study

    def _arrange(
        self,
        world: World,
        units: Sequence[PlannedUnit],
        *,
        outcome: Outcomes | None,
        tape: str | Path | None,
        llm_client: Model | None,
        name: str,
        source: Tape | None = None,
        samples: int = 1,
    ) -> None:
        """Make what both kinds of study have: of new runs, and of situations that are asked again.

        Args:
            world: what is played.
            units: the seeds or situations of each arm.
            outcome: what is compared, as a user names it.
            tape: the folder of the runs; None for one that goes with the study.
            llm_client: the model of arms that name none.
            name: what reports call it.
            source: the tape whose situations are asked again.
            samples: of each situation in each arm.
        """
        arms = world.arms()
        # Made once, so that a wrong name or level raises here, and not after hours.
        trial = world.checked(
            arms,
            units[0].run,
            source,
        )
        self._world = world
        self._source = source
        self._samples = samples
        self.name = name
        self.reference = arms[0].name
        self.arms = {arm.name: dict(arm.levels) for arm in arms}
        self.units = [unit.unit for unit in units]
        self.unit_name = "seed" if source is None else "situation"
        self._arms = {arm.name: arm for arm in arms}
        # As columns of ``results``: a factor called "turn" is "factor turn" there.
        self.factors = list(self._levels(self.reference))
        self.outcome = outcomes_of(
            outcome,
            trial,
            asks_again=world.asks_again,
        )
        self._series = series_of(trial)
        self._listeners = Listeners()
        self._player = StudyPlayer(
            world,
            Models(llm_client, samples),
            self._arms,
            on_change=self._listeners,
        )
        self._task: asyncio.Task[Any] | None = None
        self._rows_by_key: dict[Key, list[dict[str, Any]]] = {}
        self._kept_results: KeptResults | None = None
        self._seats_of_people: dict[str, list[str]] | None = None
        self._groups: dict[Key, GroupOfPeople] = {}
        self.tape = Path(tape or tempfile.mkdtemp(prefix="llmsim-study-"))
        if not tape:
            # Of the folder alone: a callback that knew the study would keep it alive.
            weakref.finalize(
                self,
                shutil.rmtree,
                self.tape,
                ignore_errors=True,
            )
        self._leaders = leaders_of(world, arms)
        jobs = jobs_of(
            world,
            arms,
            units,
            samples=samples,
            leaders=self._leaders,
        )
        self._files = StudyFiles(
            self.tape,
            jobs,
            self._player,
            keys=product(self.arms, self.units),
        )
        self._jobs = self._files.jobs
        self._outcomes = OutcomeReader(self._files)
        self._prices = Prices(self._files, source)

    # --- playing -----------------------------------------------------------------------------

    def run(
        self,
        *,
        parallel: int | None = None,
        executor: Executor | None = None,
        budget: Budget | None = None,
        progress: bool = True,
        only: Iterable[Key] | None = None,
    ) -> Self:
        """Do what ``arun`` does from plain code: in a script, or in a notebook cell."""
        for arm in self.arms_of_people:
            trial = self._trial(self._arms[arm])
            # Before anything is played: where no one can answer, each of their runs would fail.
            # Who has a stand-in may be given up by what listens, as a room does.
            if not any(person.stand_in for person in people_of(trial)):
                ask_people_here(trial)
        playing = self.arun(
            parallel=parallel,
            executor=executor,
            budget=budget,
            progress=progress,
            only=only,
        )
        try:
            return run_sync(playing)
        except KeyboardInterrupt as error:
            explain(error, f"All whole turns are kept in {self.tape}; .run() plays the rest.")
            raise

    async def arun(
        self,
        *,
        parallel: int | None = None,
        executor: Executor | None = None,
        budget: Budget | None = None,
        progress: bool = True,
        only: Iterable[Key] | None = None,
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
                and another call with another pool continues.
            budget: what may be spent on calls by all runs together; then the rest is left.
            progress: whether a line says how far it is.
            only: the runs that are played, ``[("hawkish", 0), ("cautious", 0)]``, each an arm and a
                unit; the others are left, such as groups for which there are no people.

        Raises:
            ConfigError: there is no model, a prompt's name or edit is wrong, or the study or
                another one in its folder is being played already.
        """
        if self.running:
            raise ConfigError("this study is being played; wait for it, or cancel it")
        if parallel is not None:
            whole_number("parallel", parallel, least=1)
        if executor is not None:
            self._check_executor(executor, budget)
        wanted: Collection[Key] = self._jobs
        if only is not None:
            wanted = list(only)
            self._check_wanted(wanted)
        with sole_study(self.tape):
            self._task = asyncio.current_task()
            try:
                self._files.read_progress()
                other_tapes = self.others
                if other_tapes:
                    self._warn(
                        "OTHER_RUNS",
                        folder=self.tape,
                        tapes=other_tapes,
                        reason="they are of other settings, seeds or code, and do not count",
                    )
                if executor is None:
                    self._check_models()
                left = self._left(wanted)
                # Before the first call: a wrong name would be found out after hours.
                await self._try_edits({job.arm for job in left})
                if budget is not None:
                    self._player.purse = Purse(budget)
                most = parallel
                if most is None and executor is None:
                    most = _RUNS_AT_ONCE
                self._player.at_once = asyncio.Semaphore(most or 1)
                line = progress_line(
                    "run",
                    number=len(self._jobs) - len(left) + 1,
                    last=len(self._jobs),
                    enabled=progress,
                    turns=self._prices.turns_left(left).total(),
                    parts=self._ended_by_arm,
                )
                beginning = [job for job in left if job.arm not in self._leaders]
                # Arms that continue runs of others follow when these are done.
                following = [job for job in left if job.arm in self._leaders]
                async with line as advance:
                    for jobs in (beginning, following):
                        playing = play_all(
                            self._player,
                            self._ready(jobs),
                            most,
                            executor,
                        )
                        # Closed here and now, so that Ctrl-C does not leave tasks behind.
                        async with aclosing(playing) as ended:  # type: ignore[type-var]
                            async for entry in ended:
                                advance()
                                self._take_up(entry)
            finally:
                self._task = None
                # A budget is one call's: the next run() has its own, or none.
                self._player.purse = None
                # Of a study that was stopped some are left, which ``_take_up`` never had.
                self._player.playing.clear()
                self._files.read_progress()
                self._listeners()
        return self

    def _left(self, wanted: Container[Key]) -> list[Job]:
        """Return the jobs that are not done, of those that are wanted."""
        entries = self._files.entries
        return [
            job
            for key, job in self._jobs.items()
            if key in wanted and entries[key].status != "done"
        ]

    def _check_wanted(self, wanted: Iterable[Key]) -> None:
        """Raise ConfigError for an arm or a unit that the study does not have."""
        for arm, unit in wanted:
            if (arm, unit) not in self._jobs:
                raise ConfigError(
                    f"only: there is no run of arm {arm!r} with {self.unit_name} {unit!r}; arms "
                    f"are {listed(list(self.arms))}, {self.unit_name}s {self.units}"
                )

    def _check_executor(
        self,
        executor: object,
        budget: Budget | None,
    ) -> None:
        """Raise ConfigError for what cannot play elsewhere, or cannot be taken along."""
        if not isinstance(executor, Executor):
            # Such as Dask's client itself, which has submit() too.
            raise ConfigError(
                f"executor={executor!r:.60} is not a concurrent.futures.Executor; give "
                "ProcessPoolExecutor() or Dask's client.get_executor()"
            )
        if budget is not None:
            raise ConfigError("executor= takes no budget=, since workers do not know of each other")
        if self.arms_of_people:
            raise ConfigError(
                "executor= plays in other processes, where no person can answer, and arm "
                f"{self.arms_of_people[0]!r} asks people; leave it out"
            )

    def _check_models(self) -> None:
        """Raise ConfigError where an arm may ask a model and has none, or a wrong one."""
        for arm in self._arms.values():
            world_name = self.lacks_model(arm)
            if world_name:
                raise ConfigError(
                    f"{world_name} may ask a model, and the study has none: llm_client="
                    "connect('auto'), vary={'model': [...]}, players='random' or 'rule'"
                )

    def _ended_by_arm(self) -> str:
        """Return how many runs of each arm have ended; nothing where there are many arms."""
        if len(self._arms) > _MOST_ARMS_IN_LINE:
            return ""
        ended = Counter[str]()
        for entry in self._files.entries.values():
            if entry.status in ("done", "failed"):
                ended[entry.arm] += 1
        return ", ".join(f"{arm}: {ended[arm]} of {len(self.units)}" for arm in self._arms)

    async def _try_edits(self, arms: Container[str]) -> None:
        """Play turns by chance with each edited prompt, since what is wrong with one is seen there.

        Raises:
            ConfigError: one has no such name, its edit gives no prompt, or there are several
                prompts, and it is not said which is edited.
        """
        # Of situations one turn, of runs all turns.
        end = self._first_job.end
        for arm in self._arms.values():
            if arm.name not in arms:
                continue
            for place, wording in enumerate(self._world.wordings(arm)):
                run = self._trial(arm, place)
                begun_at = run.turn_number
                edits = edits_of(run)
                if not isinstance(edits, PromptEdits):
                    # The world's own prompts.
                    continue
                try:
                    while run.turn_number < end and not run.done(run.state):
                        # A named prompt may come in the last turn; a second kind of question, for
                        # which an edit of all prompts is refused, comes early or never.
                        is_short = run.turn_number - begun_at < _MOST_TURNS_ON_TRIAL
                        if not (edits.missing or (edits.is_of_all and is_short)):
                            break
                        await _by_chance(run).step()
                    edits.check()
                except PromptError as error:
                    raise ConfigError(f"arm {arm.name!r}: {error}") from error
                except Exception as error:  # noqa: BLE001 - a model may answer what chance does not
                    logger.debug("%s cannot be played by chance: %r", self.name, error)
                    continue
                if not edits.changed:
                    self._warn(
                        "PROMPT_UNCHANGED",
                        arm=arm.name,
                        wording=wording,
                        reason="the edited prompts are those that the world has",
                    )

    @property
    def _first_job(self) -> Job:
        return next(iter(self._jobs.values()))

    def _trial(
        self,
        arm: Arm,
        wording: int = 0,
    ) -> AnyRun:
        """Return a run of an arm on no tape, to look at or to be played by chance."""
        return self._world.begin(
            arm,
            None,
            self._first_job.run,
            Play(wording),
            self._source,
        )

    def _take_up(self, entry: StudyRun) -> None:
        """Take up what was played, as it ends."""
        self._files.entries[entry.key] = entry
        # Not earlier: in between it would be neither under way nor done.
        self._player.playing.pop(entry.key, None)
        self._listeners()
        if entry.status == "failed":
            self._warn(
                "STUDY_RUN_FAILED",
                arm=entry.arm,
                unit=entry.unit,
                turns_played=entry.turns,
                error=entry.error,
            )

    def _ready(self, jobs: Iterable[Job]) -> Iterator[Task]:
        """Yield jobs with their files, which are made as each is taken where it forks something."""
        for job in jobs:
            file = self._files.paths[job.key]
            if self._source is not None:
                copy_runs(
                    self._source,
                    [job.run],
                    job.at,
                    file,
                )
            elif job.arm in self._leaders:
                leader = self._leaders[job.arm].arm.name
                shared_key = (leader, job.unit)
                shared = self._files.entries[shared_key]
                if shared.status == "failed":
                    self._files.entries[job.key] = replace(
                        self._files.entries[job.key],
                        status="failed",
                        error=f"it shares a run with arm {leader!r}, which failed: {shared.error}",
                    )
                if shared.status != "done":
                    # It failed, a budget was spent, or it was not among those to be played.
                    continue
                shared_file = self._files.paths[shared_key]
                with Tape(shared_file, read_only=True) as tape:
                    runs = self._jobs[shared_key].runs_on(tape)
                    # In the order that a job's ``forks`` count on: play by play.
                    numbers = sorted(info.id for info in runs.values())
                    copy_runs(
                        tape,
                        numbers,
                        job.at,
                        file,
                    )
            yield job, file

    def stop(self) -> None:
        """Stop what is being played, from any thread, as Ctrl-C does; without that do nothing.

        Code that awaits ``arun`` gets a ``CancelledError``.
        """
        # Read once: on another thread it may end in between.
        task = self._task
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def listen(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Register a callback for what changes as the study is played.

        Args:
            callback: called on the loop that plays, when a run begins, has one more turn or ends,
                and when playing ends; what it raises goes to the caller of ``run``.

        Returns:
            A function that removes the callback.
        """
        return self._listeners.add(callback)

    @property
    def running(self) -> bool:
        """Whether the study is being played."""
        return self._task is not None

    @property
    def playing(self) -> dict[Key, AnyRun]:
        """The runs that are under way here, by arm and unit."""
        return dict(self._player.playing)

    def progress(self) -> list[StudyRun]:
        """Return all runs as they are, arm by arm; those under way here are ``running``."""
        turns = {key: run.turn_number for key, run in self.playing.items()}
        runs = []
        for entry in self._files.entries.values():
            if entry.key in turns:
                # Without the error of an earlier try.
                entry = replace(
                    entry,
                    status="running",
                    turns=turns[entry.key],
                    error="",
                )
            runs.append(entry)
        return runs

    def lacks_model(self, arm: Arm) -> str:
        """Return what asks a model in an arm for which there is none; empty where there is one."""
        if self._player.models.of(self._world, arm) is not None:
            return ""
        run = self._trial(arm)
        # With players it is known only when it is asked who asks the model.
        if run.config.needs_model and not run.players:
            return type(run).__name__
        return ""

    def _warn(self, event: str, **fields: Any) -> None:
        log_event(
            logger,
            logging.WARNING,
            event,
            study=self.name,
            **fields,
        )

    @property
    def others(self) -> int:
        """How many tapes in the folder are not this study's: of other settings, seeds or code."""
        return self._files.others

    # --- what came of it ---------------------------------------------------------------------

    @property
    def counts(self) -> Counter[str]:
        """How many runs are ``done``, ``failed``, ``stopped`` and ``left``."""
        return Counter(entry.status for entry in self._files.entries.values())

    @property
    def runs(self) -> pd.DataFrame:
        """One row an arm and unit.

        Columns: ``arm``; the factors' levels; ``unit``; ``status``; ``turns``; ``error``; ``tape``,
        its file's name. A factor that has the name of one of those is called ``factor NAME``.
        """
        rows = []
        for entry in self._files.entries.values():
            columns = asdict(entry)
            columns["tape"] = ""
            if entry.tape is not None:
                # Without its folder, so that the frame is the same on another machine.
                columns["tape"] = entry.tape.name
            levels = self._levels(entry.arm, columns)
            rows.append({"arm": entry.arm, **levels, **columns})
        return frame_of(rows)

    def _levels(
        self,
        arm: str,
        other_columns: Container[str] = _COLUMNS,
    ) -> dict[str, Any]:
        """Return an arm's levels by column, beside other columns."""
        levels = {}
        for name, label in self._arms[arm].levels.items():
            level = self._arms[arm].values[name]
            column = f"factor {name}" if name in other_columns else name
            # Numbers as they are, so that they can be drawn along an axis.
            is_number = isinstance(level, int | float)
            levels[column] = level if is_number else label
        return levels

    @property
    def results(self) -> pd.DataFrame:
        """The one long table: a row for each value of what has ended.

        Columns: ``arm``; one a factor; ``unit``, the seed or the situation; ``run``, the seed or
        the recorded run; ``wording``, where an arm has several; ``replicate``, the sample;
        ``turn``; ``outcome``; ``value``, a number or a text; NaN where the run failed.
        """
        entries = self._files.entries.values()
        progress = [(entry.status, entry.turns) for entry in entries]
        # A board reads it twenty times for each turn that is played.
        if self._kept_results is None or self._kept_results.progress != progress:
            table = self._table(self.outcome, self._rows_by_key)
            self._kept_results = KeptResults(progress, table)
        # A caller may change what it is given.
        return self._kept_results.table.copy()

    def _table(
        self,
        outcomes: Mapping[str, Outcome],
        rows_by_key: dict[Key, list[dict[str, Any]]],
    ) -> pd.DataFrame:
        """Return the long table of some outcomes.

        Args:
            outcomes: by label.
            rows_by_key: rows of runs that are done, read before; those that are read now are added.
        """
        rows: list[dict[str, Any]] = []
        for entry in self._files.entries.values():
            if entry.status not in ("done", "failed"):
                continue
            of_entry = rows_by_key.get(entry.key)
            if of_entry is None:
                of_entry = list(self._outcomes.rows_of(entry, outcomes))
            # What failed may be played again.
            if entry.status == "done":
                rows_by_key[entry.key] = of_entry
            head = {
                "arm": entry.arm,
                **self._levels(entry.arm),
                "unit": entry.unit,
                "run": self._jobs[entry.key].run,
            }
            rows += [{**head, **row} for row in of_entry]
        first, *others = _COLUMNS
        return frame_of(
            rows,
            columns=[first, *self.factors, *others],
        )

    def contents(self, entry: StudyRun) -> Contents:
        """Return what a run's file says, its calls left out."""
        return self._files.contents(entry)

    def simulation(
        self,
        arm: str,
        unit: Unit,
        *,
        wording: str = "",
        replicate: int = 1,
    ) -> AnyRun:
        """Return one run to look at: its turns, calls and decisions.

        Args:
            arm: the arm's name.
            unit: the seed, or the recorded situation.
            wording: where the arm has several; the first if not given.
            replicate: which sample of a situation.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        unit = _as_unit(unit)
        replicate = whole_number("replicate", replicate)
        # Its error says which arms and units there are.
        self.tape_of(arm, unit)
        labels = list(self._world.wordings(self._arms[arm]))
        place = 0
        if wording:
            known_names("wording", wording, filter(None, labels))
            place = labels.index(wording)
        return self._files.load(self._jobs[arm, unit], Play(place, replicate))

    def tape_of(self, arm: str, unit: Unit) -> Path:
        """Return the file of one run, to replay it, fork it or ask its situations again.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        key = (arm, _as_unit(unit))
        if key not in self._files.entries:
            known_places = clip(f"arms are {', '.join(self.arms)}; units {self.units}", 400)
            raise ConfigError(f"there is no arm {arm!r} with a unit {key[1]!r}; {known_places}")
        return self._files.path_of(key)

    def to_frame(self) -> pd.DataFrame:
        """Return the turns of all complete runs, one row each.

        Columns: ``arm``; the factors' levels; ``unit``; ``wording``; ``replicate``; ``turn``, and
        the others of a run's frame; of situations only the turn that was asked again. A factor that
        has the name of one of those is called ``factor NAME``.
        """
        rows = []
        for entry in self._files.entries.values():
            if entry.status != "done":
                continue
            labels = list(self._world.wordings(self._arms[entry.arm]))
            for play, contents in self.contents(entry).items():
                for row in self._outcomes.rows_that_count(contents.rows):
                    columns = {
                        "arm": entry.arm,
                        "unit": entry.unit,
                        "wording": labels[play.wording],
                        "replicate": play.sample,
                        **row,
                    }
                    levels = self._levels(entry.arm, columns)
                    rows.append({"arm": entry.arm, **levels, **columns})
        return frame_of(rows)

    def to_xarray(self) -> xr.Dataset:
        """Return ``results`` as pandas gives it to xarray: each outcome by arm, unit, ... and turn.

        The factors' levels are coordinates along ``arm``.

        It needs xarray: ``pip install 'llmsim-lab[study]'``.
        """
        # Of seeds unit and run are the same, of situations the unit names its run.
        index = [name for name in _COLUMNS if name not in ("run", "value")]
        table = self.results
        wide = table.set_index(index)["value"].unstack("outcome")
        values: xr.Dataset = wide.to_xarray()
        # All rows of an arm have its levels.
        first_rows = table.drop_duplicates("arm").set_index("arm")
        # In xarray's order of the arms, which is not the design's.
        in_order = first_rows.loc[values["arm"].values]
        coordinates = {}
        for name in self.factors:
            coordinates[name] = ("arm", in_order[name].to_numpy())
        return values.assign_coords(coordinates)

    # --- outcomes ----------------------------------------------------------------------------

    def in_unit(self, outcome: str) -> str:
        """Return the unit of a difference in an outcome, if the world names one."""
        column = str(self.outcome.get(outcome)).removesuffix(LAST)
        for series in self._series:
            if series.column == column:
                # A difference of two percentages is in points: "2 % higher" would be a ratio.
                is_percent = series.unit.startswith("%")
                return "points" if is_percent else series.unit
        return ""

    def effects(
        self,
        formula: str | None = None,
        *,
        contrasts: Sequence[tuple[str, str]] | None = None,
        level: float = 0.95,
        sesoi: float | Mapping[str, float] | None = None,
        paired: bool | None = None,
        typical: bool = False,
        noise: bool = False,
    ) -> Effects:
        """Return how arms differ from the reference, each in each outcome: one family.

        Args:
            formula: instead, main effects and interactions of the factors: ``"y ~ a * b"``, named
                by the levels' labels.
            contrasts: pairs of arms instead, ``("hawkish", "cautious")`` for what hawkish adds to
                cautious.
            level: of the intervals.
            sesoi: the smallest effect of interest, for an equivalence verdict; one, or by outcome.
                One number does not judge shares beside outcomes in other units.
            paired: whether runs with the same seed are pairs; False compares arms that share
                nothing by Welch's t over runs. If not given, runs are paired unless people play
                them: whoever plays seed 1 of one arm has nothing to do with seed 1 of another.
            typical: the typical difference of runs with the same seed (Hodges and Lehmann), which
                few extreme runs do not move, in place of the mean.
            noise: add what chance alone gives here: each contrast again, between two draws of the
                same arms. It takes ``samples`` of 2 or more, or ``vary={"replicate": [0, 1]}``,
                whose levels are draws of one arm then.

        Raises:
            ConfigError: there is no outcome, or no arm of a name; or the design has no such units.
        """
        # Here, since it imports scipy.
        from llmsim_lab.study.estimates.effects import check_formula, effects
        from llmsim_lab.study.estimates.estimate import Effects

        # An outcome may be left out where runs are played for their tapes alone.
        if not self.outcome:
            column = "a column"
            if self._series:
                column = self._series[0].column
            raise ConfigError(f"say what is compared: outcome={column!r}, or a function of the run")
        if formula is not None:
            check_formula(formula, self.factors)
        real_number(
            "level",
            level,
            least=0.5,
            most=0.9999,
        )
        self._check_sesoi(sesoi)
        for upper, lower in contrasts or ():
            if upper == lower:
                raise ConfigError(f"contrasts: {upper!r} is compared with itself")
        self._check_units(paired=paired, typical=typical)
        draws = self._draws(noise=noise)
        has_reference = draws.reference in set(draws.table["arm"])
        subtracts_reference = formula is None and not contrasts
        if subtracts_reference and not has_reference:
            # Nothing of it was played yet, or no group of it had people.
            estimates = Effects()
        else:
            estimates = effects(
                draws.table,
                formula,
                contrasts=contrasts,
                reference=draws.reference,
                generalises_to=self.generalises_to,
                level=level,
                sesoi=sesoi,
                paired=self._is_paired(paired),
                typical=typical,
                noise=noise,
                remarks=self._remarks(),
            )
        facts = self._facts(paired)
        estimates.label = "; ".join(facts)
        return estimates

    def _check_sesoi(self, sesoi: float | Mapping[str, float] | None) -> None:
        if not isinstance(sesoi, Mapping):
            if sesoi is not None:
                real_number("sesoi", sesoi, least=0)
            return
        for name in sesoi:
            if name not in self.outcome:
                raise ConfigError(f"sesoi: outcome {name!r} is unknown{among(name, self.outcome)}")
        for margin in sesoi.values():
            # None is what an outcome without one has.
            if margin is not None:
                real_number("sesoi", margin, least=0)

    def _check_units(
        self,
        *,
        paired: bool | None,
        typical: bool,
    ) -> None:
        if self.generalises_to != "new runs" and (typical or paired is False):
            option = "typical=True" if typical else "paired=False"
            raise ConfigError(
                f"{option} compares runs, and this study's effects hold for "
                f"{self.generalises_to}; leave it out"
            )
        if not typical or self._is_paired(paired):
            return
        if paired is None:
            raise ConfigError(
                "typical=True takes pairs of runs, and people play these; leave it out, or say "
                "paired=True if the same people played one seed in every arm"
            )
        raise ConfigError("typical=True takes pairs of runs; leave out paired=False")

    def _is_paired(self, paired: bool | None) -> bool:
        """Return whether runs with one seed are pairs, as asked, or by who plays them."""
        if paired is None:
            return not self.arms_of_people
        return paired

    def _facts(self, paired: bool | None) -> list[str]:
        """Return what is to be known of all effects: how many runs there are, and who played."""
        facts = []
        ended = self.counts["done"] + self.counts["failed"]
        if ended < len(self._jobs):
            # Who looks until p < .05 finds differences that are not there.
            facts.append(
                f"{ended} of {len(self._jobs)} runs so far: do not stop as soon as p < .05"
            )
        if self.arms_of_people and not self._is_paired(paired):
            facts.append("groups of people share nothing, so runs are not paired by seed")
        groups = self.groups()
        counted_groups = [group for group in groups if not group.is_without_people]
        decisions = sum(group.decisions for group in counted_groups)
        filled = sum(group.filled for group in counted_groups)
        if filled:
            facts.append(f"{filled} of {decisions} decisions of people were filled in")
        if len(counted_groups) < len(groups):
            facts.append(
                f"{len(groups) - len(counted_groups)} of {len(groups)} groups had no people, and "
                "are left out"
            )
        return facts

    def _draws(self, *, noise: bool) -> Draws:
        """Return what is compared; for ``noise`` with two draws or more of each run.

        These are samples, or levels of replicate.

        Raises:
            ConfigError: each run was drawn once.
        """
        table = self._compared_results()
        if not noise:
            return Draws(table, self.reference)
        replicates = self._world.factors.get("replicate", {})
        # Of one level there is one draw; samples of a situation are draws as they are.
        if len(replicates) < 2:
            if self._samples > 1:
                return Draws(table, self.reference)
            raise ConfigError(self._price_of_noise())
        if len(self._world.factors) == 1:
            raise ConfigError(
                "noise=True: only replicate is varied here, so effects() shows chance alone already"
            )
        # Arms that differ in it alone become one arm, and its levels that arm's replicates.
        names = {}
        for name, arm in self._arms.items():
            names[name] = self._world.name_without(arm, "replicate")
        column = "factor replicate"
        drawn = table.assign(
            arm=table["arm"].map(names),
            replicate=table[column],
        )
        return Draws(
            drawn.drop(columns=column),
            names[self.reference],
        )

    def _price_of_noise(self) -> str:
        """Return what it takes to draw each run a second time."""
        if self.unit_name == "situation":
            option = "samples=2 or more"
        else:
            option = "vary={'replicate': [0, 1], ...}"
        # All that there is once more: a second draw of each run.
        turns = Counter[str]()
        for job in self._jobs.values():
            turns_of_play = job.end - job.at
            turns[job.arm] += len(job.plays) * turns_of_play
        # At this study's own prices: it is its own pilot.
        costs, _ = self._prices.of_turns(turns, self._prices)
        calls = ""
        if not math.isnan(costs.calls):
            calls = f", about {roughly(costs.calls):,} calls"
        return (
            "noise=True compares two draws of each run, and here each was drawn once; "
            f"{option} draws them again: {counted(len(self._jobs), 'more run')}{calls}"
        )

    def _remarks(self) -> list[Remark]:
        """Return what the notes say of arms: answers of stand-ins, groups without people."""
        from llmsim_lab.study.estimates.effects import Remark, Tally

        fallbacks = Counter[str]()
        answers = Counter[str]()
        for entry in self._files.entries.values():
            if entry.status != "done":
                continue
            for contents in self.contents(entry).values():
                for row in self._outcomes.rows_that_count(contents.rows):
                    # None on tapes of turns in which nothing was asked.
                    fallbacks[entry.arm] += row.get("fallback") or 0
                    answers[entry.arm] += row.get("calls") or 0
        decisions = Counter[str]()
        filled = Counter[str]()
        groups = Counter[str]()
        left_out = Counter[str]()
        for group in self.groups():
            groups[group.arm] += 1
            # A stand-in of a person is named as that, and not among those of models.
            fallbacks[group.arm] -= group.filled
            answers[group.arm] -= group.decisions
            if group.is_without_people:
                left_out[group.arm] += 1
            else:
                decisions[group.arm] += group.decisions
                filled[group.arm] += group.filled

        def tallies(
            numbers: Mapping[str, int],
            totals: Mapping[str, int],
        ) -> dict[str, Tally]:
            # All arms that have a total: a Counter has 0 of an arm without a number.
            return {arm: Tally(numbers[arm], totals[arm]) for arm in totals}

        return [
            Remark(
                "answers that stand in for invalid ones (fallback)",
                tallies(fallbacks, answers),
            ),
            Remark(
                "decisions of people that were filled in",
                {arm: Tally(filled[arm], decisions[arm]) for arm in groups},
            ),
            Remark(
                "groups without people, left out",
                tallies(left_out, groups),
            ),
        ]

    @property
    def arms_of_people(self) -> list[str]:
        """The arms whose runs ask people; runs are not paired by seed if there are any."""
        return list(self.seats_of_people)

    @property
    def seats_of_people(self) -> dict[str, list[str]]:
        """The seats that people have, by arm; an arm without people is not in it."""
        if self._seats_of_people is None:
            self._seats_of_people = {}
            # Situations that are asked again are the same in every arm, whoever answers them.
            arms = self._arms if self._source is None else {}
            for name, arm in arms.items():
                trial = self._trial(arm)
                if people_of(trial):
                    self._seats_of_people[name] = seats_of_people(trial)
        return dict(self._seats_of_people)

    def groups(self) -> list[GroupOfPeople]:
        """Return how much of each complete run of people was decided by people."""
        return [
            self._group(arm, unit)
            for arm, unit in product(self.arms_of_people, self.units)
            if self._files.entries[arm, unit].status == "done"
        ]

    def _group(self, arm: str, unit: Unit) -> GroupOfPeople:
        # Kept: it takes the run with all its calls, of which nothing else is kept.
        if (arm, unit) not in self._groups:
            job = self._jobs[arm, unit]
            answers = []
            for play in job.plays:
                answers += answers_of_people(self._files.load(job, play))
            filled = sum(answer.status == "fallback" for answer in answers)
            self._groups[arm, unit] = GroupOfPeople(
                arm,
                unit,
                len(answers),
                filled,
            )
        return self._groups[arm, unit]

    @property
    def counted_results(self) -> pd.DataFrame:
        """``results`` without groups of people in which no person decided anything."""
        return self._without_empty_groups(self.results)

    def _without_empty_groups(self, table: pd.DataFrame) -> pd.DataFrame:
        for group in self.groups():
            if group.is_without_people:
                is_arm = table["arm"] == group.arm
                is_unit = table["unit"] == group.unit
                table = table[~(is_arm & is_unit)]
        return table

    def _compared_results(self) -> pd.DataFrame:
        """Return what effects are made from: factors have labels, by which effects are named."""
        table = self.counted_results
        # Both in the order of the factors; only their names may differ.
        columns = zip(self.factors, self.arms[self.reference], strict=True)
        labels_by_column = {}
        for column, factor in columns:
            labels = {arm: levels[factor] for arm, levels in self.arms.items()}
            labels_by_column[column] = table["arm"].map(labels)
        return table.assign(**labels_by_column)

    def compared(
        self,
        *,
        contrasts: Sequence[tuple[str, str]],
        outcome: str,
    ) -> list[Compared]:
        """Return what is found of contrasts in one outcome, for what reads more than estimates.

        Args:
            contrasts: pairs of arms.
            outcome: its label.
        """
        from llmsim_lab.study.estimates.choice import Wanted
        from llmsim_lab.study.estimates.effects import compared

        table = self._compared_results()
        return compared(
            table[table["outcome"] == outcome],
            contrasts=contrasts,
            generalises_to=self.generalises_to,
            wanted=Wanted(paired=self._is_paired(None)),
        )

    @property
    def generalises_to(self) -> Generality:
        """What a result of this design holds for."""
        # Recorded situations of one run say nothing of other runs.
        are_several_runs = self._run_count > 1
        if self._most_wordings > 1:
            return "new wordings and situations" if are_several_runs else "new wordings"
        if self._source is None or are_several_runs:
            return "new runs"
        return "these situations"

    @property
    def _run_count(self) -> int:
        """How many seeds, or recorded runs, there are."""
        return len({job.run for job in self._jobs.values()})

    @property
    def _most_wordings(self) -> int:
        """How many wordings the arm has that has most."""
        return max(len(self._world.wordings(arm)) for arm in self._arms.values())

    def by_turn(
        self,
        column: str,
        arm: str = "",
        reference: str = "",
        *,
        level: float = 0.95,
        paired: bool | None = None,
    ) -> pd.DataFrame:
        """Return by turn how an arm differs from another in a column, with a simultaneous band.

        Columns: ``turn``, ``estimate``, ``low``, ``high``, ``n``, ``unit``. The band contains the
        whole true curve with the given probability, not each turn by itself. Units are those of
        ``effects``: pairs of runs, or wordings where an arm has several.

        Args:
            column: of the runs' frames; or the label of an outcome that is one.
            arm: the arm; the only other one if not given.
            reference: what it is compared with; the study's if not given.
            level: of the band.
            paired: as for ``effects``; False takes the runs of each arm as units.

        Raises:
            ConfigError: there is no such column or arm, or it is one number a run.
        """
        from llmsim_lab.study.estimates.bands import by_turn

        level = real_number(
            "level",
            level,
            least=0.5,
            most=0.9999,
        )
        reference = reference or self.reference
        other_arms = [name for name in self.arms if name != reference]
        # The curve is of one arm; which one is not guessed.
        if not arm and len(other_arms) != 1:
            if not other_arms:
                raise ConfigError(f"there is no arm to compare with {reference!r}")
            raise ConfigError(
                f"say which arm: by_turn({column!r}, {other_arms[0]!r}); there are "
                f"{', '.join(other_arms)}"
            )
        arm = arm or other_arms[0]
        table = self._values_by_turn(column)
        for name in (arm, reference):
            if name in self.arms and name not in set(table["arm"]):
                raise ConfigError(f"arm {name!r} has no run with {column!r} yet; study.run() plays")
        return by_turn(
            table,
            arm,
            reference,
            level=level,
            generalises_to=self.generalises_to,
            paired=self._is_paired(paired),
        )

    def _values_of(self, column: str) -> pd.DataFrame:
        """Return the table of an outcome, by its label, or of a column."""
        for label, outcome in self.outcome.items():
            if column in (label, outcome):
                table = self.counted_results
                return table[table["outcome"] == label]
        of_column = self._table({column: column}, {})
        return self._without_empty_groups(of_column)

    def _values_by_turn(self, column: str) -> pd.DataFrame:
        """Return the table of a column; an outcome that is one number a run has no curve.

        Raises:
            ConfigError: it is such an outcome, and no column has its name.
        """
        outcome = self.outcome.get(column, column)
        table = self._values_of(column)
        has_several_turns = table["turn"].nunique() > 1
        # Situations, and runs of one turn, have single turns in any case.
        may_be_single = self._source is not None or self._world.turns == 1
        if has_several_turns or may_be_single:
            return table
        try:
            # An outcome may be called as the column whose last value it takes.
            column_name = column.removesuffix(LAST)
            of_column = self._table({column: column_name}, {})
            return self._without_empty_groups(of_column)
        except ConfigError as error:
            described = f"{column!r}"
            if outcome != column:
                described = f"{column!r}, {outcome!r:.60},"
            if not self._series:
                raise ConfigError(
                    f"outcome {described} is one number a run, and a curve takes a column of "
                    f"numbers; this world has none"
                ) from error
            raise ConfigError(
                f"outcome {described} is one number a run, and a curve takes a column: "
                f"study.by_turn({self._series[0].column!r})"
            ) from error

    # --- what is claimed ---------------------------------------------------------------------

    def register(
        self,
        path: str | Path,
        *,
        formula: str | None = None,
        contrasts: Sequence[tuple[str, str]] | None = None,
        level: float = 0.95,
        sesoi: float | Mapping[str, float] | None = None,
        paired: bool | None = None,
        typical: bool = False,
    ) -> Registration:
        """Write down what the study claims, before it is played, and return it with its hash.

        The file says the design, outcomes, contrasts and their family, the smallest effect of
        interest, seeds, turns, and digests of models, prompts and code. ``report`` says then what
        of it was kept, and which effects are not registered. A file that is there is never
        replaced: it counts, so that a script that is run again keeps its first registration.
        Prompts are found in turns that chance answers; no model is asked, but which one it is.

        Args:
            path: the file, such as ``plan.json``.
            formula: the effects that are claimed, as for ``effects``.
            contrasts: likewise; each arm minus the reference if neither is given.
            level: of the intervals.
            sesoi: the smallest effect of interest, one or by outcome.
            paired: as for ``effects``.
            typical: likewise.

        Raises:
            ConfigError: a name is wrong, there is no model, or the file is another one.
        """
        path = Path(path)
        claims = self._claims(
            formula,
            contrasts,
            level=level,
            sesoi=sesoi,
            paired=paired,
            typical=typical,
        )
        if not path.exists():
            self.registration = self._write_plan(path, claims)
            return self.registration
        registered = read_registration(path)
        filed = registered.claims
        # What was not named follows from the study, and is compared, not refused: a script that is
        # run again need not say again what its file says.
        claims = replace(claims, outcomes=filed.outcomes)
        if formula is None and contrasts is None:
            claims = replace(
                claims,
                formula=filed.formula,
                contrasts=filed.contrasts,
            )
        if sesoi is None:
            claims = replace(claims, sesoi=filed.sesoi)
        if paired is None:
            claims = replace(claims, paired=filed.paired)
        if claims != filed:
            changed_since = "" if registered.is_unchanged else " (the file was changed since)"
            raise ConfigError(
                f"{path} registered other claims{changed_since}: {filed.family}; level "
                f"{filed.level:g}, sesoi {filed.sesoi}, paired {filed.paired}, typical "
                f"{filed.typical}. It is kept as it is: show other effects by study.effects(...), "
                "or register under another name"
            )
        self.registration = registered
        self._warn_of_changes(registered)
        return registered

    def _write_plan(
        self,
        path: Path,
        claims: Claims,
    ) -> Registration:
        """Write what the study claims to a new file."""
        # Which model it is belongs to what is written down.
        self._check_models()
        begun = [run for run in self.progress() if run.status != "left"]
        design = self._design(self._planned_facts())
        return write_registration(
            path,
            design,
            claims,
            runs_before=len(begun),
        )

    def _warn_of_changes(self, registered: Registration) -> None:
        """Warn of a file that was changed, and of a study that is another than was registered."""
        if not registered.is_unchanged:
            self._warn(
                "REGISTRATION_CHANGED",
                file=registered.path,
                reason="its content has another hash",
            )
        # Not an error: a study may grow, and its report says what was registered.
        changed = [part.name for part in self.registered_parts() if part.status == "changed"]
        if changed:
            self._warn(
                "REGISTRATION_NOT_KEPT",
                file=registered.path,
                parts=", ".join(changed),
            )

    def registered_parts(self) -> list[RegisteredPart]:
        """Return what was registered, each part beside what was played; empty without."""
        if self.registration is None:
            return []
        # As the tapes have them, not as the study would make them now.
        facts = self._played_facts()
        return self.registration.compared(self._design(facts), facts.started)

    def registered_effects(self) -> Effects:
        """Return the effects that were registered, as one family; none without ``register``.

        Those of a formula compare the arms and first levels that were registered, whatever arms the
        study has had since.

        Raises:
            ConfigError: the study no longer has an arm that is compared, or any of the outcomes.
        """
        from llmsim_lab.study.estimates import Effects, effects

        if self.registration is None:
            return Effects()
        claims = self.registration.claims
        missing = [arm for arm in self.registration.claimed_arms if arm not in self.arms]
        if not set(claims.outcomes) & self.outcome.keys():
            missing += claims.outcomes
        if missing:
            raise ConfigError(
                f"{self.registration.path} claims effects of {listed(missing)}, which the study "
                f"does not have; it has the arms {listed(list(self.arms))} and the outcomes "
                f"{listed(list(self.outcome))}"
            )
        # In the registered order, whose first levels are what others are compared with.
        arms = list(self.registration.design.arms)
        table = self._compared_results()
        is_claimed = table["outcome"].isin(claims.outcomes)
        is_registered = table["arm"].isin(arms)
        in_order = table[is_claimed & is_registered].sort_values(
            "arm",
            key=lambda names: names.map(arms.index),
            kind="stable",
        )
        contrasts = [(upper, lower) for upper, lower in claims.contrasts]
        estimates = effects(
            in_order,
            claims.formula,
            # A formula has no pairs of arms.
            contrasts=contrasts or None,
            generalises_to=self.generalises_to,
            level=claims.level,
            sesoi=claims.sesoi,
            paired=claims.paired,
            typical=claims.typical,
            remarks=self._remarks(),
        )
        estimates.label = "; ".join(self._facts(claims.paired))
        return estimates

    def _claims(
        self,
        formula: str | None,
        contrasts: Sequence[tuple[str, str]] | None,
        *,
        level: float,
        sesoi: float | Mapping[str, float] | None,
        paired: bool | None,
        typical: bool,
    ) -> Claims:
        """Return which effects are claimed, checked as ``effects`` checks them."""
        # What effects refuses cannot be claimed either.
        self.effects(
            formula,
            contrasts=contrasts,
            level=level,
            sesoi=sesoi,
            paired=paired,
            typical=typical,
        )
        outcomes = list(self.outcome)
        pairs: list[list[str]] = []
        if formula is not None:
            left, _, right = formula.rpartition("~")
            names = [name.strip() for name in re.split("[+*:]", right)]
            # effects() knows a wrong name only once there are runs.
            known_names("factor", names, self.factors)
            outcome = left.strip()
            if outcome:
                outcomes = list(known_names("outcome", outcome, outcomes))
        elif contrasts is not None:
            for upper, lower in contrasts:
                known_names("arm", [upper, lower], self.arms)
                # Lists, as the file's JSON will have them.
                pairs.append([upper, lower])
        else:
            pairs = [[arm, self.reference] for arm in self.arms if arm != self.reference]
        if formula is None and not pairs:
            raise ConfigError("one arm: there is nothing to compare, and nothing to register")
        if isinstance(sesoi, Mapping):
            sesoi = dict(sesoi)
        return Claims(
            formula=formula,
            contrasts=pairs,
            outcomes=outcomes,
            level=level,
            sesoi=sesoi,
            paired=self._is_paired(paired),
            typical=typical,
        )

    def _design(self, facts: RunFacts) -> Design:
        world = self._world
        return Design(
            world=identity(world.cls),
            reference=self.reference,
            arms={name: said(arm.values) for name, arm in self._arms.items()},
            fixed=said(world.fixed),
            unit=self.unit_name,
            units=list(self.units),
            # A situation is continued by one turn.
            turns=1 if world.asks_again else world.turns,
            samples=self._samples,
            outcomes=said(self.outcome),
            models=facts.models,
            prompts=facts.prompts,
            code=facts.code,
        )

    def _planned_facts(self) -> RunFacts:
        """Return models, prompts and code as they are before anything is played."""
        models: dict[str, Any] = {}
        prompts: dict[str, Any] = {}
        for name, arm in self._arms.items():
            trial = self._trial(arm)
            trial.llm_client = self._player.models.of(
                self._world,
                arm,
                self._world.recorded_llm,
            )
            models[name] = {}
            for seat, client in clients_of(trial).items():
                # Of the server, so that the digest of the weights is known.
                info = run_sync(client.model_info())
                settings = client.config.model_dump(mode="json")
                # The model that all others ask has no seat of its own.
                models[name][seat or MODEL] = model_facts(asdict(info), settings)
            # A world's own prompts are known only once they were asked with.
            played = run_sync(self._played_by_chance(arm))
            prompts[name] = prompts_of(entries_of(played.prompts))
        code = {**self._world.code, "llmsim-lab": version("llmsim-lab")}
        return RunFacts(models, prompts, code)

    async def _played_by_chance(self, arm: Arm) -> AnyRun:
        """Return a run of an arm in which chance answered some turns, so that it has prompts."""
        with tempfile.TemporaryDirectory() as folder:
            run = next(self._prices.trials(arm, Path(folder)))
            try:
                await self._prices.count_turns(run, Count(len(self._arms)))
            except Exception as error:  # noqa: BLE001 - a model may answer what chance does not
                self._warn(
                    "NOT_PLAYED_BY_CHANCE",
                    arm=arm.name,
                    error=error_text(error),
                )
        return run

    def _played_facts(self) -> RunFacts:
        """Return models and prompts of arms with a run, and code, as the tapes have them."""
        started: list[str] = []
        code: list[Mapping[str, Any]] = []
        # Of arms without a run nothing is known yet: they are not in it.
        models: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        prompts: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for entry in self._files.entries.values():
            if entry.tape is None:
                continue
            for play, contents in self.contents(entry).items():
                info = contents.info
                manifest = info.manifest
                started.append(info.started)
                models[entry.arm].append(models_of(manifest))
                code.append({**manifest["code"], "llmsim-lab": manifest["package"]})
                # Of the first wording, as the plan has them.
                if play.wording == 0:
                    entries = as_mapping(manifest.get("prompts"))
                    prompts[entry.arm].append(prompts_of(entries))
        return RunFacts(
            {arm: together(of_runs) for arm, of_runs in models.items()},
            {arm: together(of_runs) for arm, of_runs in prompts.items()},
            together(code),
            started,
        )

    # --- what it takes -----------------------------------------------------------------------

    def plan(self, pilot: Study | None = None) -> StudyPlan:
        """Return what is left to play, what it takes, and what differences it can see.

        Calls, tokens and time are those of the turns so far, also of runs that are not complete. In
        arms that played none, calls are counted: stand-ins answer by chance in place of models and
        people, in up to ten turns, and no model is asked. A call takes then what one took so far,
        in other arms, in a turn that is under way, or on the tape whose situations are asked again.

        Args:
            pilot: a smaller study with the same reference; this one if not given.
        """
        pilot = pilot or self
        left = self._left(self._jobs)
        turns = self._prices.turns_left(left)
        costs, based_on = self._prices.of_turns(turns, pilot._prices)
        return StudyPlan(
            left=len(left),
            done=len(self._jobs) - len(left),
            turns=turns.total(),
            units=len(self.units),
            calls=_number_or_none(costs.calls),
            tokens=_number_or_none(costs.tokens),
            hours=_number_or_none(costs.seconds / 3600),
            detectable=self._detectable(pilot),
            based_on=based_on,
        )

    def _detectable(self, pilot: Study) -> dict[str, Detectable]:
        """Return by outcome what difference from the reference the study sees, from a pilot."""
        from llmsim_lab.study.estimates.choice import Wanted
        from llmsim_lab.study.estimates.effects import compared
        from llmsim_lab.study.estimates.power import NOT_YET, Detectable, detectable

        table = pilot._compared_results()
        # Another reference would have another spread, and other differences from it.
        if self.reference not in pilot.arms:
            note = f"not known: the pilot has no arm {self.reference!r}, the reference"
            return dict.fromkeys(self.outcome, Detectable(note=note))
        # As many as effects() adjusts for, also those that the pilot did not play.
        contrast_count = len(self.arms) - 1
        comparison_count = contrast_count * len(self.outcome)
        if comparison_count == 0:
            return dict.fromkeys(self.outcome, Detectable(note=NOT_YET))
        comparisons: list[Compared] = []
        # The pilot's reference may not have been played yet.
        if self.reference in set(table["arm"]):
            comparisons = compared(
                table,
                contrasts=pilot._contrasts_of_conditions(table),
                reference=self.reference,
                generalises_to=pilot.generalises_to,
                wanted=Wanted(paired=self._is_paired(None)),
            )
        found_by_outcome = {}
        for name in self.outcome:
            of_outcome = [comparison for comparison in comparisons if comparison.outcome == name]
            found_by_outcome[name] = detectable(
                of_outcome,
                pilot_sizes=pilot._sizes(),
                planned=self._sizes(),
                comparisons=comparison_count,
            )
        return found_by_outcome

    def _contrasts_of_conditions(self, table: pd.DataFrame) -> list[tuple[str, str]]:
        """Return each arm of a table and the reference, without those that only draw it again.

        Two draws of one arm differ by chance alone, which is less than arms do.
        """
        world = self._world
        reference = world.name_without(self._arms[self.reference], "replicate")
        return [
            (name, self.reference)
            for name in table["arm"].unique()
            if world.name_without(self._arms[name], "replicate") != reference
        ]

    def _sizes(self) -> Sizes:
        """Return how much is repeated."""
        from llmsim_lab.study.estimates.power import Sizes

        return Sizes(
            runs=self._run_count,
            situations=len(self.units),
            samples=self._samples,
            wordings=self._most_wordings,
        )

    # --- what is shown of it -----------------------------------------------------------------

    def report(self, path: str | Path) -> Path:
        """Write what a referee asks for as one HTML file, and return its path.

        Effects, registration, charts, design, settings, digests of the runs, and what failed. The
        file loads nothing from elsewhere and runs no script. It is what ``page`` prints.

        Args:
            path: the file, which ends in ``.html``; one that is there is replaced.

        Raises:
            ConfigError: the file cannot be written, or is a tape.
        """
        from llmsim_lab.study._report import write_study

        return write_study(self, path, with_window=False)

    def page(self, path: str | Path) -> Path:
        """Write the study with all its runs as one HTML page for others, and return its path.

        It is what ``StudyBoard`` shows: effects, charts, runs by arm, what failed, and each run
        with every prompt and reply. Printed, or where no script runs, it is what ``report`` writes.
        The page loads nothing.

        Args:
            path: the file, which ends in ``.html``; one that is there is replaced.

        Raises:
            ConfigError: the file cannot be written.
        """
        from llmsim_lab.study._report import write_study

        return write_study(self, path, with_window=True)

    def chart(
        self,
        outcome: str,
        arm: str | None = None,
    ) -> Figure:
        """Draw an outcome as the window does: effects, each unit by arm, and means by turn.

        Args:
            outcome: the label of one of the study's outcomes, or a column of the runs' frames.
            arm: draw instead by turn how this arm differs from the reference, with its band.

        Raises:
            ConfigError: there is no such column, or nothing is known of it.
        """
        from llmsim_lab.study._charts import arms_figure, difference_figure
        from llmsim_lab.study.view import shown_as_pairs, shown_effects

        if arm is not None:
            contrast = contrast_name(arm, self.reference)
            band = self.by_turn(outcome, arm)
            unit = str(band["unit"].iloc[0])
            # by_turn counts a pair of runs as one.
            if unit == "run" and self._is_paired(None):
                unit = "pair"
            count = int(band["n"].max())
            return difference_figure(
                band,
                outcome=outcome,
                contrast=contrast,
                units=counted(count, unit),
            )
        # By its label, or by the column that it is: both are what a user calls it.
        labels = [label for label, column in self.outcome.items() if outcome in (label, column)]
        effects: list[Estimate] = []
        if labels and len(self.arms) > 1:
            # Of the whole family, whose p-values count all outcomes.
            of_family = shown_effects(self)
            effects = [estimate for estimate in of_family if estimate.outcome == labels[0]]
        table = self._values_of(outcome).assign(outcome=outcome)
        return arms_figure(
            table,
            outcome,
            arms=list(self.arms),
            effects=effects,
            unit_name=self.unit_name,
            paired=shown_as_pairs(self),
        )

    def watch(self) -> None:
        """Show a table of the runs, and a chart of the first outcome, that follow the playing.

        Outside a notebook the study is printed, once.
        """
        from IPython.display import HTML, display

        shown = (self, HTML(""))  # type: ignore[no-untyped-call]
        # Each in an output of its own, so that the chart stays where a new table comes.
        handles = [display(part, display_id=True) for part in shown]  # type: ignore[no-untyped-call]
        if None in handles:
            # Outside a notebook there is nothing to update.
            return
        latest = -math.inf

        def show() -> None:
            nonlocal latest
            # A turn may take a millisecond, and a chart a hundred; the end is always shown.
            if self.running and time.monotonic() - latest < _WATCH_S:
                return
            latest = time.monotonic()
            of_table, of_chart = handles
            of_table.update(self)
            if self.counts["done"] and self.outcome:
                first_outcome = next(iter(self.outcome))
                of_chart.update(self.chart(first_outcome))

        show()
        self.listen(show)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.about()}"]
        # The same fault of a hundred runs is one line.
        errors = Counter[str]()
        for entry in self._files.entries.values():
            if entry.status == "failed":
                errors[entry.error] += 1
        lines += [f"  {count} failed: {error:.200}" for error, count in errors.most_common(3)]
        done_count = self.counts["done"]
        ended_count = done_count + self.counts["failed"]
        # Not while runs are left: effects so far are shown to those who ask for them.
        has_ended = ended_count == len(self._jobs) and not self.running
        if done_count and has_ended and len(self.arms) > 1:
            try:
                lines.append(str(self.effects()))
            except LabError as error:
                lines.append(f"effects: {error}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Study {self.name!r}: {self.about()}>"

    def about(self) -> str:
        """Return its size and how far it is, in words."""
        counts = self.counts
        states = [f"{counts[state]} {state}" for state in _STATES if counts[state]]
        other_tapes = self.others
        if other_tapes:
            words = counted(other_tapes, "tape")
            states.append(f"{words} of other settings, seeds or code not counted")
        size = f"{counted(len(self.arms), 'arm')}, {counted(len(self.units), self.unit_name)}"
        return f"{size}: {', '.join(states)}"

    def _repr_html_(self) -> str:
        return str(join([pre(str(self)), self.arms_table()]))

    def arms_table(self) -> Markup:
        """Return how many runs of each arm are done, failed, left."""
        return table(*self.arms_rows())

    def arms_rows(self) -> tuple[list[str], list[list[object]]]:
        """Return the heads and the rows of ``arms_table``."""
        by_arm = Counter[tuple[str, str]]()
        for run in self.progress():
            by_arm[run.arm, run.status] += 1
        rows: list[list[object]] = []
        for arm, levels in self.arms.items():
            # In the order of the heads.
            counts = [by_arm[arm, state] for state in _STATES]
            rows.append([arm, *levels.values(), *counts])
        factors = self.arms[self.reference]
        return ["arm", *factors, *_STATES], rows


def _by_chance(run: AnyRun) -> AnyRun:
    """Let chance answer in a run on trial, where neither a rule nor a function does."""
    players = {"*": "random", **run.players}
    # Rules and functions stay: what they answer decides what is asked next.
    for name, player in players.items():
        if player == "model":
            players[name] = "random"
    run.players = players
    # What is wrong is said where it is played.
    leave_out_warnings(run)
    return run


def Comparison(  # noqa: N802 - what it gives is one
    tape: Tape | Run | str | Path,
    *,
    prompt: Mapping[str, Any],
    **more: Any,
) -> Study:
    """Compare prompts on recorded situations: ``Study.again`` for one factor.

    Args:
        tape: the tape, its file, or a run on one.
        prompt: prompts by name, as ``vary={"prompt": ...}`` takes them; compared with the recorded
            one, which ``None`` stands for, unless it is among them.
        more: as for ``Study.again``.
    """
    prompts = dict(prompt)
    if None not in prompts.values():
        # First, so that the recorded prompt is the reference.
        prompts = {"as it is": None, **prompts}
    return Study.again(
        tape,
        {"prompt": prompts},
        **more,
    )


def _as_unit(unit: object) -> Unit:
    """Return a seed as an int, and all else as a text, which no seed equals: True is not 1."""
    number = as_whole_number(unit)
    if number is None:
        return str(unit)
    return number


def _number_or_none(number: float) -> float | None:
    """Return a number, None for NaN."""
    return None if math.isnan(number) else number
