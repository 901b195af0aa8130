"""A study: many runs, or recorded situations asked again, so that one number comes out.

``Study`` is what users hold. ``_setup`` says what a study consists of, ``_running`` how its runs
are played, ``_results`` which tables come out, ``_comparing`` how its arms differ, ``_registering``
what it claims beforehand, and ``_plan`` what it still takes.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex

from markupsafe import Markup

from llmsim_lab._util.checks import instance_of, known_names, text_argument, whole_number
from llmsim_lab._util.files import as_path
from llmsim_lab._util.html import join, pre, table
from llmsim_lab._util.text import brief, contrast_name, counted, listed, printable
from llmsim_lab._util.waiting import Listeners, explain, run_sync
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.scope import Budget
from llmsim_lab.run import Run
from llmsim_lab.run.config import by_name
from llmsim_lab.run.records import config_of, llm_config_of
from llmsim_lab.run.registry import class_of_manifest
from llmsim_lab.study._files import Contents
from llmsim_lab.study._jobs import PlannedUnit, independent_runs, situations_of
from llmsim_lab.study._outcomes import Outcomes
from llmsim_lab.study._results import StudyResults
from llmsim_lab.study._running import (
    check_executor,
    find_terminal_for_people,
    keys_of,
    play_study,
)
from llmsim_lab.study._setup import Model, set_up
from llmsim_lab.study.design import MOST_SAMPLES, Play, World, check_world, seeds_of
from llmsim_lab.study.people import GroupOfPeople
from llmsim_lab.study.playing import Key, StudyRun, Unit, as_unit, sole_study
from llmsim_lab.study.registration import RegisteredPart, Registration

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

    from llmsim_lab.study._plan import StudyPlan
    from llmsim_lab.study.estimates.effects import Compared
    from llmsim_lab.study.estimates.estimate import Effects, Estimate, Generality

_STATES = ("done", "running", "failed", "stopped", "left")
_WATCH_S = 0.5
"""Between two pictures of a study that is watched."""


class Study:
    """Runs of a world under different conditions, over seeds that all conditions share.

    A complete run is not played again. An interrupted run continues with its next turn, also after
    the process was killed. Arms that differ only in ``interventions`` share each run up to the
    first turn where they differ, so that the calls of these turns are made once.

    Args:
        world: a ``Run`` class.
        vary: the levels of each factor: a list, or a mapping of labels to levels. Each combination
            of levels is an arm; the first arm is the reference. A factor is one of these:
            a parameter of the world, or a place in one, such as ``llm.temperature``;
            ``model``: names as ``connect`` takes them, or clients;
            ``prompt``: a text, a ``Prompt``, or a function of the old text; by the prompt's name
            where there are several; a list of these for several wordings of one idea; None for
            the world's own prompt;
            ``players``; ``state``, to start from; ``interventions``, set from outside.
        seeds: how many, or which; seed k is the same world in every arm.
        turns: how many turns each run has; the world's number if not given.
        outcome: what is compared: a column of the frame, which counts as its mean over the turns
            after the first, or ``"column@last"``; a measure that the world names, such as
            ``loss``; a function of the run; a list of these, or a mapping of labels to them.
        tape: a folder, made if it does not exist, where each arm and seed has a file of its own.
            Without one the runs are deleted with the study. A file's name has a digest of all that
            decides the run and of the world's code: a run whose digest has changed is played anew.
        llm_client: the model of arms that name none: a client, a text as ``connect`` takes it, or
            a function that makes a client.
        name: what reports call the study; the world's name if not given.
        fixed: what is the same in all arms, by the names that can also be varied.

    Attributes:
        arms: by name, the labels of its levels, by factor.
        reference: the arm that others are compared with.
        factors: the columns of ``results`` that hold levels.
        units: the seeds, or the recorded situations.
        unit_name: ``seed`` or ``situation``.
        outcome: what is compared, by label.
        tape: the folder of the runs.
        registration: what ``register`` wrote or read; None before it was called.

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
        units = []
        for seed in seeds_of(seeds):
            unit = PlannedUnit(
                unit=seed,
                run=seed,
                digest=str(seed),
            )
            units.append(unit)
        text_argument("name", name)
        design = World(
            world,
            fixed,
            vary,
            turns=turns,
        )
        self._arrange(
            design,
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
        """Return a new study of the same design with other seeds, players or folder.

        Args:
            seeds: how many, or which; such as further groups of a class.
            players: who answers in all arms. Players that are not named stay; a single value is
                for all.
            tape: the folder of the new study's runs; this study's ``tape=`` if not given.

        Raises:
            ConfigError: situations are asked again, or players are varied.
        """
        world = self._setup.world
        if world.asks_again:
            raise ConfigError("replace() is of a study of runs; situations belong to their tape")
        if players is not None and "players" in world.factors:
            raise ConfigError(
                f"players={brief(players)} cannot replace what is varied: vary={{'players': ...}}"
            )
        fixed = dict(world.fixed)
        if isinstance(players, Mapping):
            fixed["players"] = {**by_name(fixed.get("players") or {}), **players}
        elif players is not None:
            fixed["players"] = players
        if tape is None and not self._is_temporary:
            tape = self.tape
        return Study(
            world.cls,
            world.factors,
            seeds=[int(seed) for seed in self.units] if seeds is None else seeds,
            turns=world.turns,
            outcome=self.outcome,
            tape=tape,
            llm_client=self._setup.files.player.models.given,
            name=self.name,
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
        """Return a study of recorded situations of any world, which are asked again.

        A situation is a turn of a recorded run. Each arm continues it by one turn, ``samples``
        times, with a sampling seed for each. The tape is only read. Situations of one run depend
        on each other, so that effects hold for these situations alone; effects in situations of
        several runs hold for new runs.

        Args:
            tape: the tape, its file, or a run on one.
            vary: as for ``Study``; a prompt's old text is the recorded one.
            run: the run's number, or several; "all" for those that are not forks; the latest run
                if not given.
            turns: the turns that are continued: 3 asks again what led from turn 3 to turn 4. If
                not given, all turns that the recorded runs continued.
            samples: how often each situation is asked in each arm.
            outcome: a column of the turn's row; a field of the turn's replies, which counts as its
                mean over the players, or one player's, ``"field.Ann"``; a function of the
                continued run; a list or mapping of these. If not given, all fields of the replies.
            to: the folder of the new runs; without one they are deleted with the study.
            llm_client: the model. If it is a client, all of its own settings are used, and a
                WARNING names those that differ from the recorded ones. A text such as
                ``"ollama:llama3.2"`` asks with the recorded settings. Where ``samples`` is more
                than 1, a fixed seed is left out: with it all samples would be the same.
            world: the class of the runs, where the tape's class is not known here.
            name: what reports call the study.
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
        text_argument("name", name)
        infos = independent_runs(source, run)
        first = infos[0]
        kind = world
        if kind is None:
            kind = class_of_manifest(first.id, first.manifest)
        check_world(kind)
        samples = whole_number(
            "samples",
            samples,
            least=1,
            most=MOST_SAMPLES,
        )
        # Without __init__, which takes seeds and makes new runs.
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
        """Set the attributes of a study, of new runs or of situations that are asked again.

        Args:
            world: what is played.
            units: the seeds or situations of each arm.
            outcome: what is compared, as a user names it.
            tape: the folder of the runs; None for a temporary one.
            llm_client: the model of arms that name none.
            name: what reports call the study.
            source: the tape whose situations are asked again.
            samples: how often each situation is asked in each arm.
        """
        self._is_temporary = tape is None or (isinstance(tape, str) and tape == "")
        self._listeners = Listeners()
        self._task: asyncio.Task[Any] | None = None
        setup = set_up(
            world,
            units,
            outcome=outcome,
            folder=None if self._is_temporary else tape,
            llm_client=llm_client,
            name=name,
            on_change=self._listeners,
            source=source,
            samples=samples,
        )
        self.tape = setup.files.folder
        if self._is_temporary:
            # The callback gets the folder alone: one that knew the study would keep it alive.
            weakref.finalize(
                self,
                shutil.rmtree,
                self.tape,
                ignore_errors=True,
            )
        self._setup = setup
        self._results = StudyResults(setup)
        self.name = name
        self.reference = setup.reference
        self.arms = {arm.name: dict(arm.levels) for arm in setup.arms.values()}
        self.units = setup.units
        self.unit_name = setup.unit_name
        self.factors = setup.factors
        self.outcome = setup.outcomes

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
        """Play what is left, and return the study: ``arun`` for scripts and notebook cells."""
        find_terminal_for_people(self._setup)
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

        A run that fails is kept with its error, and the others are played; another call tries the
        failed run again from its last whole turn. To stop, cancel the task or press Ctrl-C.

        Args:
            parallel: how many runs at once: 8 if not given. They share one event loop and one
                client for each model, which limits its own requests in flight. With an executor,
                how many jobs are handed out at once: all if not given.
            executor: plays each run as a job of its own, such as a ``ProcessPoolExecutor``, or
                Dask's ``client.get_executor()``; needs ``pip install 'llmsim-lab[study]'`` and
                models that are named or made by a function. A pool that loses a process is broken;
                another call with another pool continues.
            budget: what all runs together may spend on calls; runs that it does not pay for are
                left.
            progress: whether a line says how far the study is.
            only: the runs that are played, each an arm and a unit:
                ``[("hawkish", 0), ("cautious", 0)]``. The others are left, such as groups for
                which there are no people.

        Raises:
            ConfigError: there is no model, a prompt's name or edit is wrong, or the study or
                another one in its folder is being played already.
        """
        if self.running:
            raise ConfigError("this study is being played; wait for it, or cancel it")
        if parallel is not None:
            parallel = whole_number("parallel", parallel, least=1)
        setup = self._setup
        if executor is not None:
            check_executor(setup, executor, budget)
        keys: Collection[Key] = setup.files.jobs
        if only is not None:
            keys = keys_of(setup, only)
        with sole_study(self.tape):
            self._task = asyncio.current_task()
            try:
                await play_study(
                    setup,
                    self._listeners,
                    keys,
                    parallel=parallel,
                    executor=executor,
                    budget=budget,
                    progress=progress,
                )
            finally:
                self._task = None
                # A budget is one call's: the next run() has its own, or none.
                setup.files.player.purse = None
                # Stopped runs are still in it: only a run that ends is taken out.
                setup.files.player.playing.clear()
                setup.files.read_progress()
                self._listeners()
        return self

    def stop(self) -> None:
        """Stop playing, from any thread, as Ctrl-C does; do nothing if the study is not played.

        Code that awaits ``arun`` gets a ``CancelledError``.
        """
        # Read once: the task may end on another thread in between.
        task = self._task
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def listen(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Register a callback that is called as the study is played.

        Args:
            callback: is called on the loop that plays, when a run begins, has one more turn or
                ends, and when playing ends. What it raises goes to the caller of ``run``.

        Returns:
            A function that removes the callback.
        """
        return self._listeners.add(callback)

    @property
    def running(self) -> bool:
        """Whether the study is being played."""
        return self._task is not None

    @property
    def playing(self) -> dict[Key, Run]:
        """The runs that this process is playing, by arm and unit."""
        return dict(self._setup.files.player.playing)

    def progress(self) -> list[StudyRun]:
        """Return how far each run is, arm by arm; those that this process plays are ``running``."""
        return self._setup.files.progress()

    def lacks_model(self, arm: str) -> bool:
        """Return True if a run of this arm may ask a model and the arm has none."""
        [name] = known_names("arm", [arm], self._setup.arms)
        return self._setup.lacks_model(self._setup.arms[name])

    @property
    def others(self) -> int:
        """How many tapes in the folder belong to other settings, seeds or code."""
        return self._setup.files.others

    # --- what comes out ----------------------------------------------------------------------

    @property
    def counts(self) -> Counter[str]:
        """How many runs are ``done``, ``failed``, ``stopped`` and ``left``."""
        return self._setup.files.counts

    @property
    def runs(self) -> pd.DataFrame:
        """One row for each arm and unit.

        Columns: ``arm``; the factors' levels; ``unit``; ``status``; ``turns``; ``error``; ``tape``,
        the name of the file. The column of a factor that is called like one of these is
        ``factor NAME``.
        """
        return self._results.runs()

    @property
    def results(self) -> pd.DataFrame:
        """The long table: one row for each value of the runs that have ended.

        Columns: ``arm``; one for each factor; ``unit``, the seed or the situation; ``run``, the
        seed or the recorded run; ``wording``, where an arm has several; ``replicate``, the sample;
        ``turn``; ``outcome``; ``value``, a number or a text, NaN where the run failed.
        """
        return self._results.table()

    def contents(self, entry: StudyRun) -> Contents:
        """Return the rows of a run's file, without its calls."""
        instance_of("entry", entry, StudyRun, "one of the runs of study.progress()")
        return self._setup.files.contents(entry)

    def simulation(
        self,
        arm: str,
        unit: Unit,
        *,
        wording: str = "",
        replicate: int = 1,
    ) -> Any:
        """Return one run to look at: its turns, calls and decisions.

        Args:
            arm: the arm's name.
            unit: the seed, or the recorded situation.
            wording: its label, where the arm has several; the first if not given.
            replicate: which sample of a situation.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        unit = as_unit(unit)
        text_argument("wording", wording)
        replicate = whole_number("replicate", replicate, most=MOST_SAMPLES)
        # For its error, which says which arms and units there are.
        self.tape_of(arm, unit)
        setup = self._setup
        labels = list(setup.world.wordings(setup.arms[arm]))
        place = 0
        if wording:
            known_names("wording", wording, filter(None, labels))
            place = labels.index(wording)
        return setup.files.load(setup.files.jobs[arm, unit], Play(place, replicate))

    def tape_of(self, arm: str, unit: Unit) -> Path:
        """Return the file of one run, to replay or fork the run or ask its situations again.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        key = (text_argument("arm", arm), as_unit(unit))
        if key not in self._setup.files.entries:
            known_places = f"arms are {listed(list(self.arms))}; units {brief(self.units, 200)}"
            raise ConfigError(
                f"there is no arm {brief(arm)} with a unit {brief(key[1])}; {known_places}"
            )
        return self._setup.files.path_of(key)

    def to_frame(self) -> pd.DataFrame:
        """Return the turns of all complete runs, one row each.

        A situation has one row, the turn that was asked again. Columns: ``arm``; the factors'
        levels; ``unit``; ``wording``; ``replicate``; ``turn``, and the others of a run's frame. The
        column of a factor that is called like one of these is ``factor NAME``.
        """
        return self._results.turns()

    def to_xarray(self) -> xr.Dataset:
        """Return ``results`` as pandas gives it to xarray: each outcome by arm, unit, ... and turn.

        The factors' levels are coordinates along ``arm``. This needs xarray:
        ``pip install 'llmsim-lab[study]'``.
        """
        return self._results.to_xarray()

    # --- outcomes ----------------------------------------------------------------------------

    def in_unit(self, outcome: str) -> str:
        """Return the unit of a difference in an outcome, if the world names one."""
        text_argument("outcome", outcome)
        return self._setup.in_unit(outcome)

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
        """Return how each arm differs from the reference in each outcome, as one family.

        Args:
            formula: main effects and interactions of the factors instead: ``"y ~ a * b"``. Their
                names are the levels' labels.
            contrasts: pairs of arms instead: ``("hawkish", "cautious")`` is hawkish minus cautious.
            level: of the intervals.
            sesoi: the smallest effect of interest, for an equivalence verdict: one number, or one
                by outcome. One number does not judge shares beside outcomes in other units.
            paired: whether runs with the same seed are pairs; False compares arms that share
                nothing by Welch's t over runs. If not given, runs are pairs unless people play
                them: the people of seed 1 in one arm are not those of seed 1 in another.
            typical: return the typical difference of runs with the same seed (Hodges and Lehmann)
                instead of the mean. A few extreme runs do not move it.
            noise: add what chance alone gives here: each contrast again, between two draws of the
                same arms. This takes ``samples`` of 2 or more, or ``vary={"replicate": [0, 1]}``,
                whose levels then are draws of one arm.

        Raises:
            ConfigError: the study has no outcome, no arm of a name, or no such units.
        """
        # Here, since it imports scipy.
        from llmsim_lab.study._comparing import EffectOptions, effects_of

        options = EffectOptions(
            formula=formula,
            contrasts=contrasts,
            level=level,
            sesoi=sesoi,
            paired=paired,
            typical=typical,
            noise=noise,
        )
        return effects_of(self._results, options)

    @property
    def arms_of_people(self) -> list[str]:
        """The arms whose runs ask people; runs are not paired by seed if there are any."""
        return list(self.seats_of_people)

    @property
    def seats_of_people(self) -> dict[str, list[str]]:
        """The seats that people have, by arm; arms without people are left out."""
        return dict(self._setup.seats_of_people)

    def groups(self) -> list[GroupOfPeople]:
        """Return how much of each complete run of people was decided by people."""
        return self._results.groups()

    @property
    def counted_results(self) -> pd.DataFrame:
        """``results`` without groups of people in which no person decided anything."""
        return self._results.counted()

    def compared(
        self,
        *,
        contrasts: Sequence[tuple[str, str]],
        outcome: str,
    ) -> list[Compared]:
        """Return how pairs of arms differ in one outcome, in more detail than estimates have.

        Args:
            contrasts: pairs of arms.
            outcome: the outcome's label.

        Raises:
            ConfigError: there is no such outcome or arm, or an arm is compared with itself.
        """
        from llmsim_lab.study._comparing import compared_arms

        return compared_arms(self._results, contrasts, outcome)

    @property
    def generalises_to(self) -> Generality:
        """What a result of this design holds for."""
        return self._setup.generalises_to

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
            column: a column of the runs' frames, or the label of an outcome that is a column.
            arm: the arm; if not given, the only other one.
            reference: the arm that it is compared with; the study's reference if not given.
            level: of the band.
            paired: as for ``effects``; False takes the runs of each arm as units.

        Raises:
            ConfigError: there is no such column or arm, the column is one number a run, or an arm
                is compared with itself.
        """
        from llmsim_lab.study._comparing import difference_by_turn

        return difference_by_turn(
            self._results,
            column,
            arm,
            reference,
            level=level,
            paired=paired,
        )

    # --- what the study claims ---------------------------------------------------------------

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
        """Write down what the study claims before it is played, and return that with its hash.

        The file states the design, outcomes, contrasts and their family, the smallest effect of
        interest, seeds, turns, and digests of models, prompts and code. ``report`` then says which
        parts were kept, and which effects are not registered. An existing file is never replaced;
        it is read instead, so that a script that is run again keeps its first registration.
        Prompts come from turns in which chance answers. No model is called; its server only says
        which model it has.

        Args:
            path: the file, such as ``plan.json``.
            formula: the effects that are claimed, as for ``effects``.
            contrasts: likewise; each arm minus the reference if neither is given.
            level: of the intervals.
            sesoi: the smallest effect of interest: one number, or one by outcome.
            paired: as for ``effects``.
            typical: as for ``effects``.

        Raises:
            ConfigError: a name is wrong, the study has no model, or the file registers other
                claims.
        """
        from llmsim_lab.study._comparing import EffectOptions
        from llmsim_lab.study._registering import register_study

        options = EffectOptions(
            formula=formula,
            contrasts=contrasts,
            level=level,
            sesoi=sesoi,
            paired=paired,
            typical=typical,
        )
        self.registration = register_study(self._results, as_path("path", path), options)
        return self.registration

    def registered_parts(self) -> list[RegisteredPart]:
        """Return each part of the registration beside what was played; empty without one."""
        if self.registration is None:
            return []
        from llmsim_lab.study._registering import parts_of_registration

        return parts_of_registration(self._setup, self.registration)

    def registered_effects(self) -> Effects:
        """Return the effects that were registered, as one family; none without ``register``.

        Effects of a formula compare the arms and first levels that were registered, also if the
        study has other arms now.

        Raises:
            ConfigError: the study no longer has an arm that is compared, or any of the outcomes.
        """
        from llmsim_lab.study._registering import effects_of_registration
        from llmsim_lab.study.estimates import Effects

        if self.registration is None:
            return Effects()
        return effects_of_registration(self._results, self.registration)

    # --- what is left ------------------------------------------------------------------------

    def plan(self, pilot: Study | None = None) -> StudyPlan:
        """Return what is left to play, what that takes, and what differences the study can see.

        Calls, tokens and time are those of the turns so far, also of runs that are not complete. In
        an arm without turns, calls are counted in up to ten turns in which chance answers in place
        of models and people; no model is asked. The price of such a call is that of the calls in
        other arms, in a turn under way, or on the tape whose situations are asked again.

        Args:
            pilot: a smaller study with the same reference; this one if not given.
        """
        from llmsim_lab.study._plan import plan_of

        pilot = self if pilot is None else pilot
        instance_of("pilot", pilot, Study, "a smaller study of the same world")
        return plan_of(self._results, pilot._results)

    # --- showing -----------------------------------------------------------------------------

    def report(self, path: str | Path) -> Path:
        """Write what a referee asks for as one HTML file, and return its path.

        It has effects, registration, charts, design, settings, digests of the runs, and failures.
        The file loads nothing from elsewhere and runs no script. A printed ``page`` is the same.

        Args:
            path: the file, which ends in ``.html``; an existing one is replaced.

        Raises:
            ConfigError: the file cannot be written, or is a tape.
        """
        from llmsim_lab.study._report import write_study

        return write_study(self, path, with_window=False)

    def page(self, path: str | Path) -> Path:
        """Write the study with all its runs as one HTML page for others, and return its path.

        The page shows what ``StudyBoard`` shows: effects, charts, runs by arm, failures, and each
        run with every prompt and reply. Printed, or where no script runs, it shows what ``report``
        writes. It loads nothing.

        Args:
            path: the file, which ends in ``.html``; an existing one is replaced.

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
            arm: if given, draw by turn how this arm differs from the reference, with its band.

        Raises:
            ConfigError: there is no such column, or it has no values yet.
        """
        text_argument("outcome", outcome)
        from llmsim_lab.study._charts import arms_figure, difference_figure
        from llmsim_lab.study.view import shown_as_pairs, shown_effects

        if arm is not None:
            known_names("arm", [arm], self.arms)
            contrast = contrast_name(arm, self.reference)
            band = self.by_turn(outcome, arm)
            unit = str(band["unit"].iloc[0])
            # by_turn counts a pair of runs as one.
            if unit == "run" and self._setup.is_paired(None):
                unit = "pair"
            count = int(band["n"].max())
            return difference_figure(
                band,
                outcome=outcome,
                contrast=contrast,
                units=counted(count, unit),
            )
        # A user may name an outcome by its label or by its column.
        labels = [label for label, column in self.outcome.items() if outcome in (label, column)]
        effects: list[Estimate] = []
        if labels and len(self.arms) > 1:
            # From the whole family, since p-values are adjusted for all outcomes.
            of_family = shown_effects(self)
            effects = [estimate for estimate in of_family if estimate.outcome == labels[0]]
        values = self._results.values_of(outcome).assign(outcome=outcome)
        return arms_figure(
            values,
            outcome,
            arms=list(self.arms),
            effects=effects,
            unit_name=self.unit_name,
            paired=shown_as_pairs(self),
        )

    def watch(self) -> None:
        """Show a table of the runs and a chart of the first outcome, updated during play.

        Outside a notebook the study is printed once.
        """
        from IPython.display import HTML, display

        shown = (self, HTML(""))  # type: ignore[no-untyped-call]
        # Each in an output of its own, so that a new table leaves the chart in place.
        handles = [display(part, display_id=True) for part in shown]  # type: ignore[no-untyped-call]
        if None in handles:
            # Outside a notebook there is nothing to update.
            return
        latest = -math.inf

        def show() -> None:
            nonlocal latest
            # A turn may take a millisecond, a chart a hundred. The last picture is always drawn.
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
        # A hundred runs with the same error are one line.
        errors = Counter[str]()
        for entry in self._setup.files.entries.values():
            if entry.status == "failed":
                errors[entry.error] += 1
        lines += [f"  {count} failed: {error:.200}" for error, count in errors.most_common(3)]
        done_count = self.counts["done"]
        ended_count = done_count + self.counts["failed"]
        # While runs are left, effects so far are shown only to those who ask for them.
        has_ended = ended_count == len(self._setup.files.jobs) and not self.running
        if done_count and has_ended and len(self.arms) > 1:
            try:
                lines.append(str(self.effects()))
            except LabError as error:
                lines.append(f"effects: {error}")
        return printable("\n".join(lines), keep="\n")

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        """Return what copies and pickles are made of; see ``object``."""
        if self._is_temporary:
            raise ConfigError(
                "a Study without tape= cannot be copied or pickled, since its folder is deleted "
                "with the first of the two; give it a tape=, or make another one: "
                "study.replace(seeds=...)"
            )
        return super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return f"<Study {self.name!r}: {self.about()}>"

    def about(self) -> str:
        """Return the study's size and how far it is, in words."""
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
        """Return a table of how many runs of each arm are done, failed or left."""
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


def Comparison(  # noqa: N802 - called like a class, since it returns what it names
    tape: Tape | Run | str | Path,
    *,
    prompt: Mapping[str, Any],
    **more: Any,
) -> Study:
    """Compare prompts on recorded situations: ``Study.again`` for one factor.

    Args:
        tape: the tape, its file, or a run on one.
        prompt: prompts by label, as ``vary={"prompt": ...}`` takes them. ``None`` stands for the
            recorded prompt, which is added as the reference unless it is among them.
        more: as for ``Study.again``.

    Raises:
        ConfigError: prompts without labels, or what ``Study.again`` raises.
    """
    if not isinstance(prompt, Mapping):
        raise ConfigError(
            f"prompt={brief(prompt)} has no labels; write prompt={{'kind': 'Be kind. …'}}, a label "
            "for each prompt"
        )
    prompts = dict(prompt)
    if all(edit is not None for edit in prompts.values()):
        # First, so that the recorded prompt is the reference.
        prompts = {"as it is": None, **prompts}
    return Study.again(
        tape,
        {"prompt": prompts},
        **more,
    )
