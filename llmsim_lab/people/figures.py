"""Published figures of what people did, each with its source and the place where it was read.

The tables are in ``data/people/``, one for each study; ``data/people/README.md`` says of each what
is in it and what is not. A figure has everyone's value where the study prints them, a count where
it prints shares, and the mean alone elsewhere: only the first two have an interval.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab._util.files import data_path
from llmsim_lab._util.text import brief, closest
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

_FOLDER = "people"

MARGIN = 0.15
"""The difference of means, and the distance of distributions, that still counts as near."""
LEAST_GROUPS = 5
"""Below, a cell has no interval."""
TWIN = "twin"
"""The parameter by which a world is the altered twin of a published design."""
_TURN = re.compile(r"[1-9][0-9]{0,8}")
_ROUNDED = 0.01
"""How far a printed mean or spread may be from that of the values, as a share of it."""
_MOST_PEOPLE = 10**10
_PERCENT = 0.005
"""How far a printed share may be from its count: studies print whole percentages."""


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
        values: each person's, where the study prints them, with ``n``, ``mean`` and ``sd`` of
            theirs; else empty.
        count: of a share, how many people; None elsewhere. It is no whole number where the study
            prints a rounded percentage.
        note: what to keep in mind.

    Raises:
        ConfigError: a text or number is of the wrong kind, or the numbers contradict one another.
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

    def __post_init__(self) -> None:
        # Here, and not where it is compared: an interval of contradicting numbers looks like any.
        for name in ("study", "condition", "source", "place", "note"):
            _check_text(name, getattr(self, name))
        whole_number("n", self.n, least=0, most=_MOST_PEOPLE)
        real_number("mean", self.mean)
        if self.sd is not None:
            real_number("sd", self.sd, least=0)
        self._check_values()
        if self.count is not None:
            real_number("count", self.count, least=0, most=self.n)
            is_theirs = False  # of nobody there is no share
            if self.n > 0:
                is_theirs = math.isclose(self.mean, self.count / self.n, abs_tol=_PERCENT)
            if not is_theirs:
                raise ConfigError(
                    f"count={self.count} of n={self.n} people is not the share mean={self.mean}: "
                    "mean is count / n"
                )

    def _check_values(self) -> None:
        if not isinstance(self.values, tuple):
            raise ConfigError(
                f"values={brief(self.values)} must be a tuple of numbers, one for each person: "
                "values=tuple(...)"
            )
        for value in self.values:
            real_number("a person's value", value)
        if self.values and len(self.values) != self.n:
            raise ConfigError(
                f"n={self.n}, and there are {len(self.values)} values: give n of them"
            )
        if (self.values or self.sd is not None) and self.n < 2:
            raise ConfigError(f"n={self.n} must be at least 2, since one person has no spread")
        if self.values:
            mean = statistics.fmean(self.values)
            sd = statistics.stdev(self.values)
            is_theirs = math.isclose(self.mean, mean, rel_tol=_ROUNDED, abs_tol=_ROUNDED * sd)
            if self.sd is None or not math.isclose(self.sd, sd, rel_tol=_ROUNDED):
                is_theirs = False
            if not is_theirs:
                raise ConfigError(
                    f"mean={self.mean} and sd={self.sd}, and those of the values are {mean:.6g} "
                    f"and {sd:.6g}: give these"
                )

    @property
    def is_mean_only(self) -> bool:
        """True where nothing tells how much the mean would vary with other people."""
        return not self.values and self.count is None and self.sd is None

    @property
    def is_of_shares(self) -> bool:
        """True where what people did lies from 0 to 1, as far as the study says."""
        values = self.values or (self.mean,)
        # The spread of two shares, 0 and 1, is .71: no shares have a larger one.
        is_narrow = self.sd is None or self.sd < 0.75
        return min(values) >= 0 and max(values) <= 1 and is_narrow


def check_margin(margin: object, *, of_shares: bool = False) -> None:
    """Raise ConfigError for a margin that is not above 0, or more than shares can differ."""
    number = real_number("margin", margin)
    if number <= 0:
        raise ConfigError(f"margin={margin} must be above 0, such as {MARGIN}")
    if of_shares and number > 1:
        raise ConfigError(
            f"margin={margin} is more than shares, 0 to 1, can differ; 15 % is margin={MARGIN}"
        )


class _OwnDesign(Protocol):
    """A run, as far as figures of people are concerned."""

    @property
    def config(self) -> Any: ...

    @property
    def prompts(self) -> Mapping[str, Any]: ...

    turns: list[Any]

    def people(self) -> Mapping[str, PublishedFigure]: ...


class PeopleMeasure(NamedTuple):
    """What people did beside a column of a run's decisions.

    Attributes:
        measure: as the world has it, ``share`` or ``share@3``.
        column: of ``decisions()``.
        turn: that it is of; None for all.
        figure: what people did.
    """

    measure: str
    column: str
    turn: int | None
    figure: PublishedFigure


def measured_people(
    figures: object,
    world: str,
) -> list[PeopleMeasure]:
    """Return what a world's ``people()`` returned, measure by measure.

    Args:
        figures: what it returned.
        world: the name of its class.

    Raises:
        ConfigError: that is not a figure for each measure.
    """
    # A world of one's own returns anything; charts and comparisons read it many calls later.
    if not isinstance(figures, Mapping):
        raise ConfigError(
            f"people() of {world} returned {brief(figures)}; return a figure by the column it "
            "stands beside: {'share': published('forsythe_1994', ...)}"
        )
    measured = []
    for measure, figure in figures.items():
        if not isinstance(measure, str):
            raise ConfigError(
                f"people() of {world} has {brief(measure)} for a measure; it is a text: a column "
                "of decisions() such as 'share', or 'share@3' for turn 3"
            )
        if not isinstance(figure, PublishedFigure):
            raise ConfigError(
                f"people() of {world} has {brief(figure)} for {brief(measure)}; it is what people "
                "did: published('forsythe_1994', ...), or a PublishedFigure of your own"
            )
        column, at, text = measure.partition("@")
        if at and not _TURN.fullmatch(text):
            raise ConfigError(
                f"people() of {world} names {brief(measure)}; what follows @ is a turn's number "
                f"from 1 on, such as {brief(column + '@3')}"
            )
        turn = int(text) if at else None
        measured.append(PeopleMeasure(measure, column, turn, figure))
    return measured


def is_changed(run: _OwnDesign) -> bool:
    """Return whether a run has edited prompts or interventions, which no people had."""
    for prompt in run.prompts.values():
        # A text without slots that nobody edited has its own digest for a parent.
        if prompt.parent not in (None, prompt.digest):
            return True
    return any(turn.interventions for turn in run.turns)


def charted_people(run: _OwnDesign) -> list[PeopleMeasure]:
    """Return what charts show of people beside a run, measure by measure.

    Of an altered twin nothing, nor of a run with edited prompts or interventions: nobody played it,
    and only a comparison says whose figures those beside it are.
    """
    if getattr(run.config, TWIN, False) or is_changed(run):
        return []
    return measured_people(run.people(), type(run).__name__)


def load_people(study: str) -> pd.DataFrame:
    """Return a study's table as it was typed in, a row for each figure or person.

    Columns: ``source`` and ``place`` of the row; ``condition``, ``measure`` and ``period`` that it
    is of; ``n``, how many people; ``statistic``, what ``value`` is.

    Args:
        study: its table's name, such as ``nagel_1995``.

    Raises:
        ConfigError: there is no such table.
    """
    _check_text("study", study)
    return _table_of(study).copy()  # the caller's own


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{name}={brief(value)} must be a text")


@lru_cache(maxsize=16)  # a chart asks for a dozen figures of one table, and again each turn
def _table_of(study: str) -> pd.DataFrame:
    import pandas as pd

    path = data_path(_FOLDER) / f"{study}.csv"
    # Listed, and not looked for: a name with a slash in it would read another file.
    studies = sorted(table.stem for table in data_path(_FOLDER).glob("*.csv"))
    if study not in studies:
        raise ConfigError(
            f"there is no table of people called {brief(study)}{closest(study, studies)}; there "
            f"are {', '.join(studies)}"
        )
    return pd.read_csv(path)


def published(
    study: str,
    *,
    condition: str = "",
    measure: str = "",
    period: int | None = None,
    divide_by: float = 1.0,
    n: int | None = None,
    note: str = "",
) -> PublishedFigure:
    """Return what people did in one condition of a study.

    Args:
        study: its table's name.
        condition: as the table has it; without one the error lists those that there are.
        measure: likewise.
        period: likewise; None where the table has none.
        divide_by: what values are divided by, such as a stake, so that they are shares of it.
        n: how many independent people there are, where the table counts decisions.
        note: what to keep in mind.

    Raises:
        ConfigError: the table has no such figure, or an argument is of the wrong kind.
    """
    # Before the cache, which takes no list.
    _check_text("study", study)
    _check_text("condition", condition)
    _check_text("measure", measure)
    _check_text("note", note)
    if period is not None:
        period = whole_number("period", period, most=_MOST_PEOPLE)
    divide_by = real_number("divide_by", divide_by)
    if divide_by <= 0:
        raise ConfigError(f"divide_by={divide_by:g} must be above 0, such as the stake, 5")
    if n is not None:
        n = whole_number("n", n, least=1, most=_MOST_PEOPLE)
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
    if rows.empty:
        raise _no_such_figure(table, study, condition, measure)
    periods = rows["period"].dropna().unique()
    # An empty cell is NaN, which equals nothing.
    is_of_period = rows["period"].isna()
    if period is not None:
        is_of_period = rows["period"] == period
    rows = rows[is_of_period]
    if rows.empty:
        known_periods = "without a period"
        if len(periods):
            known_periods = f"of the periods {', '.join(f'{number:g}' for number in periods)}"
        raise ConfigError(
            f"{study} has {measure!r} in {condition!r} {known_periods}, and period={period} was "
            "given"
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


def _no_such_figure(
    table: pd.DataFrame,
    study: str,
    condition: str,
    measure: str,
) -> ConfigError:
    conditions = list(table["condition"].unique())
    if condition not in conditions:
        return ConfigError(
            f"{study} has no condition={brief(condition)}{closest(condition, conditions)}; it has "
            f"{', '.join(map(repr, conditions))}"
        )
    measures = list(table[table["condition"] == condition]["measure"].unique())
    return ConfigError(
        f"{study} has no measure={brief(measure)} in {condition!r}{closest(measure, measures)}; it "
        f"has {', '.join(map(repr, measures))}"
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
