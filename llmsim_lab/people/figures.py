"""Published figures of what people did, each with its source and the place where it was read.

The tables are in ``data/people/``, one for each study; ``data/people/README.md`` says of each what
is in it and what is not. A figure has everyone's value where the study prints them, a count where
it prints shares, and the mean alone elsewhere: only the first two have an interval.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llmsim_lab._util.files import data_path
from llmsim_lab._util.text import closest
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

_FOLDER = "people"

MARGIN = 0.15
"""The difference of means, and the distance of distributions, that still counts as near."""
LEAST_GROUPS = 5
"""Below, a cell has no interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """What people did in one condition of one study.

    Attributes:
        study: its table's name, such as ``forsythe_1994``.
        condition: as the table has it.
        source: a DOI's address, or that of the page.
        place: the table or page where it was read.
        n: how many people; 0 where the study does not say.
        mean: of all people; of a share the share.
        sd: of the people; None where it is not known.
        values: each person's, where the study prints them; else empty.
        count: of a share, how many people; None elsewhere. It is no whole number where the study
            prints a rounded percentage.
        note: what to keep in mind.
    """

    # Plain numbers, so that a figure can be made without a table: of a study of one's own.
    study: str
    condition: str
    source: str
    place: str
    n: int
    mean: float
    sd: float | None = None
    values: tuple[float, ...] = ()
    count: float | None = None
    note: str = ""

    @property
    def is_mean_only(self) -> bool:
        """True where nothing tells how much the mean would vary with other people."""
        return not self.values and self.count is None and self.sd is None


def load_people(study: str) -> pd.DataFrame:
    """Return a study's table as it was typed in, a row for each figure or person.

    Columns: ``source`` and ``place`` of the row; ``condition``, ``measure`` and ``period`` that it
    is of; ``n``, how many people; ``statistic``, what ``value`` is.

    Args:
        study: its table's name, such as ``nagel_1995``.

    Raises:
        ConfigError: there is no such table.
    """
    return _table_of(study).copy()  # the caller's own


@lru_cache(maxsize=16)  # a chart asks for a dozen figures of one table, and again each turn
def _table_of(study: str) -> pd.DataFrame:
    import pandas as pd

    path = data_path(_FOLDER) / f"{study}.csv"
    # Listed, and not looked for: a name with a slash in it would read another file.
    studies = sorted(table.stem for table in data_path(_FOLDER).glob("*.csv"))
    if study not in studies:
        raise ConfigError(
            f"there is no table of people called {study!r:.60}{closest(study, studies)}; there are "
            f"{', '.join(studies)}"
        )
    return pd.read_csv(path)


def published(
    study: str,
    *,
    condition: str,
    measure: str,
    period: int | None = None,
    divide_by: float = 1.0,
    n: int | None = None,
    note: str = "",
) -> PublishedFigure:
    """Return what people did in one condition of a study.

    Args:
        study: its table's name.
        condition: as the table has it.
        measure: likewise.
        period: likewise; None where the table has none.
        divide_by: what values are divided by, such as a stake, so that they are shares of it.
        n: how many independent people there are, where the table counts decisions.
        note: what to keep in mind.

    Raises:
        ConfigError: the table has no such figure.
    """
    return _figure_of(
        study,
        condition=condition,
        measure=measure,
        period=period,
        divide_by=divide_by,
        n=n,
        note=note,
    )


@lru_cache(maxsize=512)  # each run of a study asks for its dozen figures again
def _figure_of(
    study: str,
    *,
    condition: str,
    measure: str,
    period: int | None,
    divide_by: float,
    n: int | None,
    note: str,
) -> PublishedFigure:
    table = _table_of(study)
    of_condition = table[table["condition"] == condition]
    rows = of_condition[of_condition["measure"] == measure]
    # An empty cell is NaN, which equals nothing.
    is_of_period = rows["period"].isna()
    if period is not None:
        is_of_period = rows["period"] == period
    rows = rows[is_of_period]
    if rows.empty:
        conditions = ", ".join(map(repr, table["condition"].unique()))
        measures = ", ".join(map(repr, of_condition["measure"].unique()))
        raise ConfigError(
            f"{study} has no {measure!r} in {condition!r} with the period {period}; its "
            f"conditions are {conditions}; measured in this one: {measures or 'nothing'}"
        )
    # All rows of a figure were read at one place.
    first = rows.iloc[0]
    source = str(first["source"])
    place = str(first["place"])
    # Raw data go first: mean, spread, distance and halves all follow from them.
    by_person = rows[rows["statistic"] == "person"]["value"]
    if len(by_person):
        values = tuple(float(value) / divide_by for value in by_person)
        return PublishedFigure(
            study=study,
            condition=condition,
            source=source,
            place=place,
            n=len(values),
            mean=statistics.fmean(values),
            sd=statistics.stdev(values),
            values=values,
            note=note,
        )
    numbers = dict(
        zip(
            rows["statistic"],
            map(float, rows["value"]),
            strict=True,
        )
    )
    printed_n = 0
    if rows["n"].notna().any():
        printed_n = int(rows["n"].max())
    # What the study prints is decisions where each person made several: they are no more people.
    people = printed_n
    if n is not None:
        people = n
    share = _share_of(numbers, printed_n)
    if share is not None:
        return PublishedFigure(
            study=study,
            condition=condition,
            source=source,
            place=place,
            n=people,
            mean=share,
            # Of the independent people, not of their decisions: else the interval is too narrow.
            count=share * people,
            note=note,
        )
    if "mean" not in numbers:
        raise ConfigError(
            f"{study} has no mean and no share of {measure!r} in {condition!r}; it has "
            f"{', '.join(numbers)}"
        )
    sd = numbers.get("sd")
    if sd is not None:
        sd /= divide_by
    return PublishedFigure(
        study=study,
        condition=condition,
        source=source,
        place=place,
        n=people,
        mean=numbers["mean"] / divide_by,
        sd=sd,
        note=note,
    )


def _share_of(
    numbers: dict[str, float],
    n: int,
) -> float | None:
    """Return the share that a table has as a count, a percentage or a share; None if it has none.

    Args:
        numbers: by statistic.
        n: how many people or decisions it is a share of.
    """
    # A count goes before a percentage, which is rounded.
    if "count" in numbers and n:
        return numbers["count"] / n
    if "percent" in numbers:
        return numbers["percent"] / 100
    return numbers.get("share")
