"""What a study is: arms, units and outcomes, and a job with a file for each arm and unit.

All of it is decided when the study is made. ``_running`` plays the jobs, and ``_results`` reads
the tables that come out.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.files import as_path
from llmsim_lab._util.text import counted, log_event
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.run import Run
from llmsim_lab.run.charts import series_of
from llmsim_lab.run.people import people_of
from llmsim_lab.run.series import Series
from llmsim_lab.study._files import StudyFiles
from llmsim_lab.study._jobs import Leader, PlannedUnit, jobs_of, leaders_of
from llmsim_lab.study._outcomes import Outcome, Outcomes, outcomes_of
from llmsim_lab.study.design import LAST, MOST_RUNS, Arm, Models, Play, World
from llmsim_lab.study.people import seats_of_people
from llmsim_lab.study.playing import StudyPlayer, Unit

if TYPE_CHECKING:
    from llmsim_lab.study.estimates.estimate import Generality

logger = logging.getLogger(__name__)

Model = LLMClient | str | Callable[[], LLMClient]

RESULT_COLUMNS = (
    "arm",
    "unit",
    "run",
    "wording",
    "replicate",
    "turn",
    "outcome",
    "value",
)
"""Columns of ``Study.results``, those of the factors left out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StudySetup:
    """What a study consists of.

    Attributes:
        name: what reports call the study.
        world: makes the runs.
        source: the tape whose situations are asked again; None in a study of new runs.
        samples: how often each situation is asked in each arm.
        arms: by name; the reference is the first.
        units: the seeds, or the recorded situations.
        outcomes: what is compared, by label.
        series: the numbers that the world names, with their units.
        leaders: by arm, the arm whose runs it continues.
        files: the jobs, their files, and how far each job is.
    """

    name: str
    world: World
    source: Tape | None
    samples: int
    arms: Mapping[str, Arm]
    units: list[Unit]
    outcomes: dict[str, Outcome]
    series: Sequence[Series]
    leaders: Mapping[str, Leader]
    files: StudyFiles

    @property
    def reference(self) -> str:
        """The arm that others are compared with."""
        return next(iter(self.arms))

    @property
    def unit_name(self) -> str:
        """What a unit is."""
        return "seed" if self.source is None else "situation"

    @property
    def factors(self) -> list[str]:
        """The columns of ``results`` that hold levels."""
        return list(self.levels(self.reference))

    def levels(
        self,
        arm: str,
        other_columns: Container[str] = RESULT_COLUMNS,
    ) -> dict[str, Any]:
        """Return an arm's levels by column; a factor called "turn" has the column "factor turn".

        Args:
            arm: its name.
            other_columns: the columns of the table that the levels are added to.
        """
        levels = {}
        for name, label in self.arms[arm].levels.items():
            level = self.arms[arm].values[name]
            column = f"factor {name}" if name in other_columns else name
            # Numbers stay numbers, so that a chart can have them on an axis.
            is_number = isinstance(level, int | float)
            levels[column] = level if is_number else label
        return levels

    # --- who answers -------------------------------------------------------------------------

    def trial(
        self,
        arm: Arm,
        wording: int = 0,
    ) -> Run:
        """Return a run of an arm that is on no tape, to look at or to be played by chance."""
        first_job = next(iter(self.files.jobs.values()))
        return self.world.begin(
            arm,
            None,
            first_job.run,
            Play(wording),
            self.source,
        )

    def lacks_model(self, arm: Arm) -> bool:
        """Return True if a run of this arm may ask a model and the arm has none."""
        if self.files.player.models.of(self.world, arm) is not None:
            return False
        run = self.trial(arm)
        # Where a run has players, only a turn shows whether one of them asks the model.
        return run.config.needs_model and not run.players

    @cached_property
    def seats_of_people(self) -> dict[str, list[str]]:
        """The seats that people have, by arm; an arm without people is not in it."""
        seats: dict[str, list[str]] = {}
        # Recorded situations are the same in every arm, whoever answers when they are asked again.
        if self.source is not None:
            return seats
        for name, arm in self.arms.items():
            trial = self.trial(arm)
            if people_of(trial):
                seats[name] = seats_of_people(trial)
        return seats

    # --- what can be compared ----------------------------------------------------------------

    def is_paired(self, paired: bool | None) -> bool:
        """Return whether runs with one seed are pairs: as a caller says, or by who plays them."""
        if paired is None:
            return not self.seats_of_people
        return paired

    @property
    def run_count(self) -> int:
        """How many seeds, or recorded runs, there are."""
        return len({job.run for job in self.files.jobs.values()})

    @property
    def most_wordings(self) -> int:
        """The largest number of wordings that an arm has."""
        return max(len(self.world.wordings(arm)) for arm in self.arms.values())

    @property
    def generalises_to(self) -> Generality:
        """What a result of this design holds for."""
        # Recorded situations of one run say nothing of other runs.
        are_several_runs = self.run_count > 1
        if self.most_wordings > 1:
            return "new wordings and situations" if are_several_runs else "new wordings"
        if self.source is None or are_several_runs:
            return "new runs"
        return "these situations"

    def in_unit(self, outcome: str) -> str:
        """Return the unit of a difference in an outcome, if the world names one."""
        column = str(self.outcomes.get(outcome)).removesuffix(LAST)
        for series in self.series:
            if series.column == column:
                # A difference of two percentages is in points: "2 % higher" would be a ratio.
                is_percent = series.unit.startswith("%")
                return "points" if is_percent else series.unit
        return ""

    def warn(self, event: str, **fields: Any) -> None:
        """Log a WARNING that names the study."""
        log_event(
            logger,
            logging.WARNING,
            event,
            study=self.name,
            **fields,
        )


_MOST_ANSWERS = 1_000_000
"""Of a study that asks recorded situations again."""


def _check_run_count(
    arms: int,
    units: int,
    samples: int,
) -> None:
    """Raise ConfigError if a study has too many runs."""
    if arms * units > MOST_RUNS:
        raise ConfigError(
            f"{counted(arms, 'arm')} and {units:,} seeds or situations are {arms * units:,} runs, "
            f"and a study has at most {MOST_RUNS:,}; take fewer of them, or make several studies"
        )
    if arms * units * samples > _MOST_ANSWERS:
        raise ConfigError(
            f"{samples:,} samples of {units:,} situations in {counted(arms, 'arm')} are "
            f"{arms * units * samples:,} answers, and a study has at most {_MOST_ANSWERS:,}; take "
            "fewer samples"
        )


def set_up(
    world: World,
    planned_units: Sequence[PlannedUnit],
    *,
    outcome: Outcomes | None,
    folder: str | Path | None,
    llm_client: Model | None,
    name: str,
    on_change: Callable[[], object],
    source: Tape | None,
    samples: int,
) -> StudySetup:
    """Return what a study consists of, after a trial of each arm.

    Args:
        world: what is played.
        planned_units: the seeds or situations of each arm.
        outcome: what is compared, as a user names it.
        folder: where the tapes of the runs are, or will be; a temporary one is made if not given.
        llm_client: the model of arms that name none.
        name: what reports call the study.
        on_change: is called as the runs are played.
        source: the tape whose situations are asked again; None for new runs.
        samples: how often each situation is asked in each arm.

    Raises:
        ConfigError: a name or a level is wrong.
    """
    arms = world.arms()
    _check_run_count(len(arms), len(planned_units), samples)
    # Before anything is played: a wrong name or level would otherwise raise after hours.
    trial = world.checked(
        arms,
        planned_units[0].run,
        source,
    )
    arms_by_name = {arm.name: arm for arm in arms}
    units = [planned.unit for planned in planned_units]
    outcomes = outcomes_of(
        outcome,
        trial,
        asks_again=world.asks_again,
    )
    leaders = leaders_of(world, arms)
    jobs = jobs_of(
        world,
        arms,
        planned_units,
        samples=samples,
        leaders=leaders,
    )
    player = StudyPlayer(
        world,
        Models(llm_client, samples),
        arms_by_name,
        on_change=on_change,
    )
    files = StudyFiles(
        as_path("tape", tempfile.mkdtemp(prefix="llmsim-study-") if folder is None else folder),
        jobs,
        player,
        keys=product(arms_by_name, units),
    )
    return StudySetup(
        name=name,
        world=world,
        source=source,
        samples=samples,
        arms=arms_by_name,
        units=units,
        outcomes=outcomes,
        series=series_of(trial),
        leaders=leaders,
        files=files,
    )
