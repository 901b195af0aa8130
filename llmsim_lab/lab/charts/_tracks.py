"""Runs as a chart needs them: named rows of values, kept up to date at little cost."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.checks import whole_number
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run import Run
from llmsim_lab.run._registry import class_of_manifest
from llmsim_lab.run._run import series_on
from llmsim_lab.run._turn import Series, turn_row
from llmsim_lab.simulation._config import SERIES
from llmsim_lab.tape._lines import RunInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]


_COUNTS = (
    Series(column="calls", label="Model calls of a turn"),
    Series(column="repaired", label="Repaired decisions"),
    Series(column="fallback", label="Fallback decisions"),
    Series(column="failed", label="Failed decisions"),
    Series(column="tokens", label="Tokens of a turn"),
    Series(column="seconds", label="Time of a turn", unit="s"),
)
_LARGEST = 1e300
"""What an axis has room for: the difference of two larger numbers may be infinite."""
_NOT_CHARTED = {"turn", "ok", "actions", "accepted"}


def plain_number(value: object) -> bool:
    """Return True if a value can be drawn on an axis; a truth value cannot."""
    return isinstance(value, Real) and not isinstance(value, bool)


def chartable(
    rows: Iterable[Mapping[str, Any]], declared: Iterable[Series] = ()
) -> Sequence[Series]:
    """Return what can be charted: first what simulations name, then other columns of numbers.

    Args:
        rows: one row of each run, or more.
        declared: the simulations' own series.
    """
    cells = (cell for row in rows for cell in row.items())
    numeric = dict.fromkeys(str(name) for name, value in cells if plain_number(value))
    others = numeric.keys() - _NOT_CHARTED - {item.column for item in _COUNTS}
    plain = [
        Series(column=name, label=name.replace("_", " ")) for name in numeric if name in others
    ]
    found: dict[str, Series] = {}
    for item in (*declared, *SERIES, *plain, *_COUNTS):
        if item.column in numeric:
            found.setdefault(item.column, item)
    return tuple(found.values())


logger = logging.getLogger(__name__)

Row = Mapping[str, Any]


@dataclass(eq=False)
class Track:
    """One run's rows, as in its ``to_frame()``.

    Attributes:
        name: in legends and tables.
        rows: one a turn.
        read: reads all rows again; None for a frame, which does not change.
        simulation: where turns are still to come from, if anywhere.
        series: what the run itself says can be charted.
        prediction: what theory says of the run, by column.
        bounds: the least and the most that a column can be, by its name.
        notes: what readers of its numbers have to know.
        last_planned: the last turn planned, where its rows do not say more.
        taped: True if it is read from a tape.
    """

    name: str
    rows: list[Any] = field(default_factory=list)
    read: Callable[[], list[Any]] | None = None
    simulation: Run | None = None
    series: Sequence[Series] = ()
    prediction: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    last_planned: int = 0
    taped: bool = False
    _turns: list[Any] = field(default_factory=list)
    _columns: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bounds = {item.column: (item.low, item.high) for item in self.series} | {**self.bounds}
        # What theory says something of comes before the rest.
        self.series = sorted(self.series, key=lambda item: item.column not in self.prediction)

    @property
    def members(self) -> list[Track]:
        """Itself, as an ensemble has its runs."""
        return [self]

    @property
    def label(self) -> str:
        """What its numbers are called."""
        return self.name

    def update(self) -> None:
        """Take over what has changed: with a ``Run`` only the turns that are new."""
        if (run := self.simulation) is not None:
            self._follow(run)
            self.notes, self.last_planned = run.notes, run.last_planned
        elif self.read is not None:
            self.rows = self.read()
            self._columns.clear()

    def _follow(self, run: Run) -> None:
        turns = list(run.turns)
        # Only the latest turn can be replaced, by an intervention: so look from the end.
        same = min(len(turns), len(self._turns))
        while same and turns[same - 1] is not self._turns[same - 1]:
            same -= 1
        new = [turn_row(turn, run.own_columns(turn)) for turn in turns[same:]]
        self.rows[same:] = new
        self._turns[same:] = turns[same:]
        # A replaced turn takes its values with it; the columns fill up again when they are read.
        for values in self._columns.values():
            del values[same:]

    def numbers(self, column: str) -> Values:
        """Return a column; NaN where there is no number, or one too large to draw."""
        import numpy as np

        values = self._columns.setdefault(column, [])
        for row in self.rows[len(values) :]:
            value = row.get(column)
            drawn = plain_number(value) and abs(value) <= _LARGEST
            values.append(float(value) if drawn else math.nan)
        return np.array(values, dtype=float)

    @property
    def turns(self) -> tuple[int, int]:
        """The first and the latest turn."""
        return int(self.rows[0]["turn"]), int(self.rows[-1]["turn"])

    @property
    def planned(self) -> int:
        """The turn that the run is to reach; the latest if not later."""
        return max(self.turns[1], self.last_planned)

    @property
    def recorded_to(self) -> int:
        """The last turn that comes from a tape; the first one if none does."""
        if self.taped:
            return self.turns[1]
        run = self.simulation
        return max(self.turns[0], 0 if run is None else run.recorded_to)

    def period(self, turn: int) -> str:
        """Return a turn's quarter; empty where the run is not dated."""
        period = self.rows[turn - self.turns[0]].get("period")
        return period if isinstance(period, str) else ""

    @property
    def first_period(self) -> str:
        """The quarter of the first turn, if the run is dated."""
        return self.period(self.turns[0])


@dataclass(eq=False)
class Ensemble:
    """Runs of one kind that differ by chance, such as by their seeds.

    Attributes:
        name: in legends and tables.
        members: the runs.
    """

    name: str
    members: list[Track]

    @property
    def label(self) -> str:
        """What its numbers are called."""
        return f"{self.name} (median of {len(self.members)})"

    @property
    def turns(self) -> tuple[int, int]:
        """The first and the latest turn that all members have."""
        ends = [member.turns for member in self.members]
        return max(first for first, _ in ends), min(last for _, last in ends)

    def numbers(self, column: str) -> Values:
        """Return a column's medians."""
        medians: Values = self.spread(column, [0.5])[1][0]
        return medians

    def spread(self, column: str, quantiles: Sequence[float]) -> tuple[Values, Values]:
        """Return the turns that all members have, and the values' quantiles at each of them.

        Returns:
            Turns; an array of one row a quantile and one column a turn.
        """
        import numpy as np

        first, last = self.turns
        values = np.array(
            [
                member.numbers(column)[first - member.turns[0] : last - member.turns[0] + 1]
                for member in self.members
            ]
        )
        return np.arange(first, last + 1, dtype=float), np.quantile(values, quantiles, axis=0)


Item = Track | Ensemble


def common_turns(one: Track, other: Track) -> int:
    """Return how many first rows two runs share; forks share even the time that turns took."""

    def known(row: Row) -> Row:
        # NaN, which differs from itself, stands for None in a column of numbers.
        return {name: None if value != value else value for name, value in row.items()}

    pairs = zip(one.rows, other.rows, strict=False)
    # Rows without NaN are compared as they are, which takes a tenth of the time.
    alike = (one == other or known(one) == known(other) for one, other in pairs)
    return sum(takewhile(bool, alike))


# --- what the user gives ---------------------------------------------------------------------


def read_runs(
    runs: Iterable[object],
    *,
    names: Sequence[str] | None = None,
    numbers: Sequence[int] | None = None,
) -> list[Item]:
    """Return what is to be charted.

    Args:
        runs: simulations, tapes or their files, frames, lists of these as ensembles, or mappings
            from names to any of them.
        names: in the runs' order, a tape's runs one by one.
        numbers: of tapes, these runs only.

    Raises:
        ConfigError: there is nothing to chart, or the names do not fit.
        TapeError: a tape cannot be read, or lacks a run.
    """
    found = [item for run in runs for item in _read(run, numbers)]
    if found and numbers is not None and not any(track.taped for track in tracks_of(found)):
        raise ConfigError(
            f"run={numbers} goes with a tape; simulations and frames are one run each already"
        )
    if not found:
        raise ConfigError(
            "there is no run to chart; pass simulations, tapes or frames: RateChart(simulation)"
        )
    if names is not None:
        if isinstance(names, str) or len(names) != len(found):
            raise ConfigError(
                f"names={names!r} must be a list of {len(found)} names, one for each run; those "
                f"are: {', '.join(item.name for item in found)}"
            )
        for item, name in zip(found, names, strict=True):
            item.name = str(name)
    used = Counter[str]()
    for item in found:
        used[item.name] += 1
        if used[item.name] > 1:
            item.name = f"{item.name} ({used[item.name]})"
    return found


def run_numbers(run: int | Sequence[int] | None) -> list[int] | None:
    """Return which of a tape's runs are meant; None for all.

    Args:
        run: one number or several.

    Raises:
        ConfigError: there is something else than whole numbers.
    """
    if run is None:
        return None
    if isinstance(run, str) or not isinstance(run, Iterable):
        return [whole_number("run", run)]
    return [whole_number("run", number) for number in run]


def tracks_of(items: Iterable[Item]) -> list[Track]:
    """Return single runs, those of ensembles too."""
    return [track for item in items for track in item.members]


def _read(run: object, numbers: Sequence[int] | None) -> list[Item]:
    import pandas as pd

    if isinstance(run, Mapping):
        return [_named(str(name), item, numbers) for name, item in run.items()]
    if isinstance(run, str | Path):
        run = Tape(run, read_only=True)
    if isinstance(run, Tape):
        infos = run.runs() if numbers is None else [run.run(number) for number in numbers]
        if not infos:
            raise TapeError(f"the tape {run.path} holds no run")
        return [_checked(_on_tape(run, info)) for info in infos]
    if isinstance(run, pd.DataFrame):
        said = run.attrs  # what to_frame says beside the rows
        track = Track(
            name="run",
            rows=run.to_dict("records"),
            bounds=dict(said.get("bounds", {})),
            notes=tuple(said.get("notes", ())),
            last_planned=int(said.get("planned", 0)),
        )
        return [_checked(track)]
    if isinstance(run, Sequence):
        members = [member for item in run for member in _read(item, numbers)]
        tracks = [member for member in members if isinstance(member, Track)]
        if not tracks or len(tracks) != len(members):
            raise ConfigError(f"a list of runs is an ensemble of at least one; it is {run!r}")
        return [Ensemble("ensemble", tracks)]
    return [_checked(_of_simulation(run))]


def _named(name: str, run: object, numbers: Sequence[int] | None) -> Item:
    items = _read(run, numbers)
    if len(items) == 1:
        items[0].name = name
        return items[0]
    raise ConfigError(
        f"{name!r} names {len(items)} runs; say which: run=1, or pass the tape by itself"
    )


def _of_simulation(run: object) -> Track:
    if not isinstance(run, Run):
        raise ConfigError(
            f"{type(run).__name__} is not a run; pass a Simulation, a Tape, a frame as "
            "to_frame() gives it, or a list of these"
        )
    track = Track(
        name=run.config.name if run.run_id is None else f"{run.run_id} {run.config.name}",
        simulation=run,
        series=run.series,
        prediction=_predicted(run),
    )
    track.update()
    return track


def _on_tape(tape: Tape, info: RunInfo) -> Track:
    def read() -> list[Any]:
        return tape.turns_frame(info.id).to_dict("records")

    run_class: Any
    config: Any
    try:
        run_class = class_of_manifest(info.id, info.manifest)
        config = run_class.config_type.recorded(info.manifest["config"])
    except (TapeError, ValueError, KeyError):
        run_class = config = None  # not known here, or not any more
    prediction: Mapping[str, float] = {}
    # A run is made only to be asked, so not of a class that has nothing to say.
    if run_class is not None and run_class.prediction is not Run.prediction:
        prediction = _predicted(run_class(config))
    rows = read()
    # A run that was ended as it should is not to go any further.
    planned = 0 if info.outcome == "done" else rows[0]["turn"] + getattr(config, "turns", 0)
    return Track(
        name=f"{info.id} {info.name}",
        rows=rows,
        read=read,
        series=series_on(tape, info),
        prediction=prediction,
        notes=() if run_class is None else run_class.notes_on(info.manifest),
        last_planned=planned,
        taped=True,
    )


def _predicted(run: Run) -> Mapping[str, float]:
    values = run.prediction()
    for column, value in values.items():
        if not plain_number(value):
            raise ConfigError(
                f"{type(run).__name__}.prediction says {column} is {value!r:.60}; return a number "
                "for each column: {'price': 50}"
            )
    return values


def _checked(track: Track) -> Track:
    if not track.rows:
        raise ConfigError(f"the run {track.name!r} has no turn to chart")
    turns = [row.get("turn") for row in track.rows]
    if not all(plain_number(turn) for turn in turns):
        raise ConfigError(
            f"the frame of {track.name!r} has no column 'turn' of numbers; pass one as to_frame() "
            f"gives it (it has {', '.join(map(str, list(track.rows[0])[:12]))})"
        )
    first = track.turns[0]
    if turns != list(range(first, first + len(turns))):
        raise ConfigError(
            f"the turns of {track.name!r} are not one after the other: it has {turns[:12]}; pass "
            "one row a turn, in order"
        )
    return track
