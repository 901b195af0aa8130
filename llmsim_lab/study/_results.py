"""The tables of a study: one row for each value, run or turn, read from the files of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError
from llmsim_lab.study._outcomes import Outcome, OutcomeReader
from llmsim_lab.study._setup import RESULT_COLUMNS, StudySetup
from llmsim_lab.study.design import LAST
from llmsim_lab.study.people import GroupOfPeople, answers_of_people
from llmsim_lab.study.playing import Key, Unit

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


class _KeptTable(NamedTuple):
    """The table of all outcomes, and the status and turns of each run when it was made."""

    progress: Sequence[tuple[str, int]]
    table: pd.DataFrame


class StudyResults:
    """Makes the tables of a study, and keeps what took long to read.

    Args:
        setup: the study.

    Attributes:
        setup: the study.
    """

    def __init__(self, setup: StudySetup) -> None:
        self.setup = setup
        self._reader = OutcomeReader(setup.files)
        self._rows_by_key: dict[Key, list[dict[str, Any]]] = {}
        self._kept: _KeptTable | None = None
        self._groups: dict[Key, GroupOfPeople] = {}

    def runs(self) -> pd.DataFrame:
        """Return one row for each arm and unit: how far its run is, and its file."""
        rows = []
        for entry in self.setup.files.entries.values():
            columns = asdict(entry)
            columns["tape"] = ""
            if entry.tape is not None:
                # Without its folder, so that the frame is the same on another machine.
                columns["tape"] = entry.tape.name
            levels = self.setup.levels(entry.arm, columns)
            rows.append({"arm": entry.arm, **levels, **columns})
        return frame_of(rows)

    def turns(self) -> pd.DataFrame:
        """Return one row for each turn of the runs that are done."""
        files = self.setup.files
        rows = []
        for entry in files.entries.values():
            if entry.status != "done":
                continue
            wordings = self.setup.world.wordings(self.setup.arms[entry.arm])
            labels = list(wordings)
            for play, contents in files.contents(entry).items():
                for row in self.rows_that_count(contents.rows):
                    columns = {
                        "arm": entry.arm,
                        "unit": entry.unit,
                        "wording": labels[play.wording],
                        "replicate": play.sample,
                        **row,
                    }
                    levels = self.setup.levels(entry.arm, columns)
                    rows.append({"arm": entry.arm, **levels, **columns})
        return frame_of(rows)

    def rows_that_count(self, rows: Mapping[int, Any]) -> list[Any]:
        """Return a run's turns; of a situation only the turn that was asked again."""
        return self._reader.rows_that_count(rows)

    # --- values of outcomes ------------------------------------------------------------------

    def table(self) -> pd.DataFrame:
        """Return one row for each value of an outcome, of the runs that have ended."""
        entries = self.setup.files.entries.values()
        progress = [(entry.status, entry.turns) for entry in entries]
        # A board reads the table twenty times for each turn that is played.
        if self._kept is None or self._kept.progress != progress:
            table = self._table_of(self.setup.outcomes, self._rows_by_key)
            self._kept = _KeptTable(progress, table)
        # A caller may change the frame that it gets.
        return self._kept.table.copy()

    def _table_of(
        self,
        outcomes: Mapping[str, Outcome],
        rows_by_key: dict[Key, list[dict[str, Any]]],
    ) -> pd.DataFrame:
        """Return the long table of some outcomes.

        Args:
            outcomes: by label.
            rows_by_key: rows of runs that are done, as far as they were read before; rows that are
                read now are added.
        """
        rows: list[dict[str, Any]] = []
        for entry in self.setup.files.entries.values():
            if entry.status not in ("done", "failed"):
                continue
            rows_of_entry = rows_by_key.get(entry.key)
            if rows_of_entry is None:
                rows_of_entry = list(self._reader.rows_of(entry, outcomes))
            # A run that failed may be played again, so that its rows are not kept.
            if entry.status == "done":
                rows_by_key[entry.key] = rows_of_entry
            columns_of_entry = {
                "arm": entry.arm,
                **self.setup.levels(entry.arm),
                "unit": entry.unit,
                "run": self.setup.files.jobs[entry.key].run,
            }
            rows += [{**columns_of_entry, **row} for row in rows_of_entry]
        first_column, *other_columns = RESULT_COLUMNS
        return frame_of(
            rows,
            columns=[first_column, *self.setup.factors, *other_columns],
        )

    def counted(self) -> pd.DataFrame:
        """Return the rows of ``table`` without groups in which no person decided anything."""
        return self._without_empty_groups(self.table())

    def compared(self) -> pd.DataFrame:
        """Return the table for effects: factors have labels, since labels name the effects."""
        setup = self.setup
        table = self.counted()
        # Both are in the order of the factors; only the names may differ.
        factors_by_column = zip(setup.factors, setup.arms[setup.reference].levels, strict=True)
        labels_by_column = {}
        for column, factor in factors_by_column:
            labels = {name: arm.levels[factor] for name, arm in setup.arms.items()}
            labels_by_column[column] = table["arm"].map(labels)
        return table.assign(**labels_by_column)

    def values_of(self, column: str) -> pd.DataFrame:
        """Return the table of an outcome, by its label, or of a column."""
        for label, outcome in self.setup.outcomes.items():
            if column in (label, outcome):
                table = self.counted()
                return table[table["outcome"] == label]
        return self._counted_column(column, column)

    def values_by_turn(self, column: str) -> pd.DataFrame:
        """Return the table of a column; an outcome that is one number a run has no curve.

        Raises:
            ConfigError: the name is that of such an outcome, and no column has it.
        """
        outcome = self.setup.outcomes.get(column, column)
        table = self.values_of(column)
        has_several_turns = table["turn"].nunique() > 1
        # Situations, and runs of one turn, have single turns in any case.
        may_be_single = self.setup.source is not None or self.setup.world.turns == 1
        if has_several_turns or may_be_single:
            return table
        try:
            # An outcome may be called as the column whose last value it takes.
            column_name = column.removesuffix(LAST)
            return self._counted_column(column, column_name)
        except ConfigError as error:
            described = f"{column!r}"
            if outcome != column:
                described = f"{column!r}, {brief(outcome)},"
            if not self.setup.series:
                raise ConfigError(
                    f"outcome {described} is one number a run, and a curve takes a column of "
                    f"numbers; this world has none"
                ) from error
            raise ConfigError(
                f"outcome {described} is one number a run, and a curve takes a column: "
                f"study.by_turn({self.setup.series[0].column!r})"
            ) from error

    def _counted_column(self, label: str, column: str) -> pd.DataFrame:
        """Return the table of a column that need not be an outcome of the study."""
        table = self._table_of({label: column}, {})
        return self._without_empty_groups(table)

    def to_xarray(self) -> xr.Dataset:
        """Return the values as an array whose axes are all columns but the run."""
        # The run is left out: a seed is its own run, and a situation's name has its run in it.
        index = [name for name in RESULT_COLUMNS if name not in ("run", "value")]
        table = self.table()
        wide = table.set_index(index)["value"].unstack("outcome")
        values: xr.Dataset = wide.to_xarray()
        # All rows of an arm have the arm's levels.
        first_rows = table.drop_duplicates("arm").set_index("arm")
        # In xarray's order of the arms, which is not the design's.
        in_order = first_rows.loc[values["arm"].values]
        coordinates = {}
        for name in self.setup.factors:
            coordinates[name] = ("arm", in_order[name].to_numpy())
        return values.assign_coords(coordinates)

    # --- groups of people --------------------------------------------------------------------

    def groups(self) -> list[GroupOfPeople]:
        """Return how much of each complete run of people was decided by people."""
        return [
            self._group(arm, unit)
            for arm, unit in product(self.setup.seats_of_people, self.setup.units)
            if self.setup.files.entries[arm, unit].status == "done"
        ]

    def _group(self, arm: str, unit: Unit) -> GroupOfPeople:
        # Kept, since counting takes the run with all its calls, which are not kept.
        if (arm, unit) not in self._groups:
            files = self.setup.files
            job = files.jobs[arm, unit]
            answers = []
            for play in job.plays:
                answers += answers_of_people(files.load(job, play))
            filled = sum(answer.status == "fallback" for answer in answers)
            self._groups[arm, unit] = GroupOfPeople(
                arm,
                unit,
                len(answers),
                filled,
            )
        return self._groups[arm, unit]

    def _without_empty_groups(self, table: pd.DataFrame) -> pd.DataFrame:
        for group in self.groups():
            if group.is_without_people:
                is_arm = table["arm"] == group.arm
                is_unit = table["unit"] == group.unit
                table = table[~(is_arm & is_unit)]
        return table
