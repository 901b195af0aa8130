"""What a chart shows: curves, bands, marks and notes, composed from runs; nothing is drawn here.

Besides the runs themselves that is what happened to them (shocks, interventions, forks), and what
they are compared with (a prediction, the Taylor rule, history).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.checks import plain_text
from llmsim_lab._util.drawing import STYLES
from llmsim_lab._util.html import SERIES_COLOURS
from llmsim_lab._util.text import number
from llmsim_lab.economy import TaylorRule, history
from llmsim_lab.economy._data import next_quarter
from llmsim_lab.errors import ConfigError, DataError
from llmsim_lab.lab.charts._tracks import Ensemble, Item, Track, common_turns, tracks_of
from llmsim_lab.run._turn import Series

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.lab.charts._tracks import Values


_TURN = re.compile(r"(^|; )turn \d+: ")
"""How the words of interventions begin; their mark stands at that turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something at one turn.

    Attributes:
        number: on the chart, 1 for the earliest.
        turn: when.
        text: what, in words.
        runs: to whom.
    """

    number: int
    turn: int
    text: str
    runs: tuple[str, ...]


def marks_of(items: Sequence[Item], branches: Iterable[tuple[int, str, str]]) -> tuple[Mark, ...]:
    """Return the marks of runs, earliest first; what several runs share is one mark.

    Args:
        items: the runs.
        branches: turn, the run that branches off there, and the one it comes from.
    """
    found: dict[tuple[int, bool, str], list[str]] = {}
    for turn, name, parent in branches:
        found.setdefault((turn, True, f"fork of {parent}"), []).append(name)
    for item in items:
        for row in (row for track in item.members for row in track.rows):
            text = row.get("interventions")
            if isinstance(text, str) and text:
                words = _TURN.sub(r"\1", text)
                found.setdefault((int(row["turn"]), False, words), []).append(item.name)
    ordered = sorted(found.items(), key=lambda pair: pair[0][:2])
    return tuple(
        Mark(number=number, turn=turn, text=text, runs=tuple(dict.fromkeys(names)))
        for number, ((turn, _, text), names) in enumerate(ordered, 1)
    )


def check_choices(*, panels: object, history: object, rule: object, title: object) -> None:
    """Raise ConfigError for what a chart cannot be given.

    Args:
        panels: names of columns, or None.
        history: True, False, or a frame.
        rule: True, False, a run's name, or a Taylor rule.
        title: a text.

    Raises:
        ConfigError: one of them is of the wrong type; the message says what it takes.
    """
    import pandas as pd

    plain_text("title", title)
    if not isinstance(history, bool | pd.DataFrame):
        raise ConfigError(f"history={history!r:.80} must be True, False, or a frame of what was")
    if not isinstance(rule, bool | str | TaylorRule):
        raise ConfigError(f"rule={rule!r:.80} must be True, False, a run's name, or a TaylorRule")
    if panels is not None and (isinstance(panels, str) or not isinstance(panels, Iterable)):
        raise ConfigError(f"panels={panels!r:.80} must be a list of columns, as in ['inflation']")


_MARKERS = ("o", "s", "D", "^", "v")
_RULE_NEEDS = ("inflation", "output_gap", "interest_rate")
_FAN_FROM = 5
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_TICKS = 12
_LEAST_SHARE, _LEAST = 1e-6, 1e-9
"""A panel shows no difference below that share of its values, or below that: it is rounding."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line in every panel that has its column.

    Attributes:
        name: whose it is.
        legend: what the legend calls it; empty keeps it out.
        points: turns and values by column.
        labelled: True if its name is also written at its end.
        colour, style, marker: how it is drawn; each of them tells runs apart.
        width, alpha: likewise.
    """

    name: str
    legend: str
    points: Mapping[str, tuple[Values, Values]]
    labelled: bool = True
    colour: str = "black"
    style: str = "-"
    marker: str = ""
    width: float = 1.5
    alpha: float = 1.0


@dataclass(frozen=True, slots=True)
class Band:
    """Where a share of an ensemble lies.

    Attributes:
        legend: what the legend calls it.
        colour, alpha: how it is filled.
        points: turns, lower and upper values by column.
    """

    legend: str
    colour: str
    alpha: float
    points: Mapping[str, tuple[Values, Values, Values]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """The turns' axis: where it is labelled and how."""

    label: str
    at: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least or the most that a column can be.

    Attributes:
        column: which.
        value: the bound.
        upper: True for the most.
        at: the turn at which its label begins, where nothing is drawn.
    """

    column: str
    value: float
    upper: bool
    at: float = 0.0

    def __str__(self) -> str:
        return f"{'at most' if self.upper else 'at least'} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that a chart shows.

    Attributes:
        items: the runs; what is below shows them as they were when it was composed.
        title: above it.
        series: what the large panel shows, then what the small ones show.
        marks: what happened when, numbered from 1.
        notes: what else the reader must know, a sentence each.
        caption: what the runs themselves say of it; it is in the picture as well.
        ticks: of the turns' axis.
        span: the first and the last turn on that axis; there may be none played so far yet.
        limits: the lowest and the highest value on a panel's other axis, by column.
        bounds: what a column cannot go below or beyond, where its values come near.
        rest: the latest turn played and the last one planned, if there are any between.
        taped: the first turn and the last one from a tape, where live turns follow or may follow.
        plain: True if no names stand at the lines' ends.
    """

    items: Sequence[Item] = field(repr=False)
    title: str
    series: tuple[Series, ...]
    curves: tuple[Curve, ...]
    bands: tuple[Band, ...]
    marks: tuple[Mark, ...]
    notes: tuple[str, ...]
    ticks: Ticks
    span: tuple[float, float]
    limits: Mapping[str, tuple[float, float]]
    caption: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()
    rest: tuple[float, float] | None = None
    taped: tuple[float, float] | None = None
    plain: bool = False

    @property
    def main(self) -> Series:
        """What the large panel shows."""
        return self.series[0]

    @property
    def turns(self) -> tuple[int, int]:
        """The first and the latest turn that any run has."""
        ends = [item.turns for item in self.items]
        return min(first for first, _ in ends), max(last for _, last in ends)

    @property
    def reach(self) -> tuple[float, float]:
        """Where the turns' axis begins and ends, with a little room beside the first and last."""
        first, last = self.span
        side = 0.03 * (last - first)
        return first - side, last + side

    @property
    def marked(self) -> tuple[int, ...]:
        """The turns that have marks."""
        return tuple(dict.fromkeys(mark.turn for mark in self.marks))

    @property
    def shades(self) -> Iterator[tuple[tuple[float, float], str, str]]:
        """Turns that are shaded, from and to, their colour and what they are."""
        if self.rest:
            yield self.rest, "#777777", "planned, not played yet"
        if self.taped:
            yield self.taped, "#56B4E9", "from the tape"

    def late(self, turn: float) -> bool:
        """Return True if a turn is so far to the right that words on it stand to its left."""
        first, last = self.span
        return turn > first + 0.6 * (last - first)


def compose(
    items: Sequence[Item],
    series: Sequence[Series],
    *,
    title: str = "",
    history: bool | pd.DataFrame = False,
    rule: bool | str | TaylorRule = False,
    plain: bool = False,
) -> Scene:
    """Return what a chart of these runs shows.

    Args:
        items: the runs.
        series: what the large panel shows, then what the small ones show.
        title: above the chart; the main column's name if empty.
        history: True to draw what happened from the runs' first quarter on; a frame as
            ``economy.history`` gives it in place of what that looks up.
        rule: True to draw the Taylor rule's answer; a name says on which run's data, a rule
            which one.
        plain: True to draw the whole of each run, also turns that a fork has from another one, and
            without marks, nor names at the lines' ends.
    """
    made = _Composer(items, {item.column: item.label for item in series}, plain=plain)
    if rule is not False and series[0].column == "interest_rate":
        made.rule(rule)
    if history is not False:
        made.history(history)
    tracks, begun, played, planned = made.tracks, made.begun, made.played, made.planned
    recorded = max(track.recorded_to for track in tracks)
    ticks = _ticks(tracks, planned)
    since = f" from {tracks[0].first_period}" if tracks[0].first_period and ticks.names else ""
    turns = [x for curve in made.curves for x, _ in curve.points.values() if len(x)]
    first, last = min(float(x[0]) for x in turns), max(float(x[-1]) for x in turns)
    # At least a turn wide, also before the first one is played.
    span = first, max(last, float(planned), first + 1)
    limits, bounds = made.limits(span)
    return Scene(
        items=items,
        title=title or f"{series[0].label}{since}",
        series=tuple(series),
        curves=tuple(made.curves),
        bands=tuple(made.bands),
        marks=() if plain else marks_of(items, made.branches),
        notes=tuple(made.notes),
        ticks=ticks,
        span=span,
        limits=limits,
        caption=tuple(dict.fromkeys(note for track in tracks for note in track.notes)),
        bounds=tuple(bounds),
        rest=(played, planned) if played < planned else None,
        # Where all that there can be is from tapes, shading all of it would say nothing.
        taped=(begun, recorded) if begun < recorded < planned else None,
        plain=plain,
    )


class _Composer:
    def __init__(self, items: Sequence[Item], labels: Mapping[str, str], *, plain: bool) -> None:
        self.items, self.labels, self.tracks = items, labels, tracks_of(items)
        self.begun = min(track.turns[0] for track in self.tracks)
        self.played = max(track.turns[1] for track in self.tracks)
        self.planned = max(track.planned for track in self.tracks)
        self.curves: list[Curve] = []
        self.bands: list[Band] = []
        self.notes: list[str] = []
        # Turn, the run that branches off there, and the one it comes from.
        self.branches: list[tuple[int, str, str]] = []
        drawn: list[Track] = []
        for place, item in enumerate(items):
            look = {
                "colour": SERIES_COLOURS[place % len(SERIES_COLOURS)],
                "style": STYLES[place % len(STYLES)],
                "marker": _MARKERS[place % len(_MARKERS)],
            }
            if isinstance(item, Ensemble):
                self._ensemble(item, look)
            else:
                start = 0 if plain else self._start(item, drawn)
                self._track(item, item.name, start, **look)
                drawn.append(item)
        self._predictions()

    def limits(
        self, span: tuple[float, float]
    ) -> tuple[dict[str, tuple[float, float]], list[Bound]]:
        """Return each panel's lowest and highest value, and the bounds that come near its values.

        Args:
            span: the first and the last turn drawn.
        """
        limits, bounds = {}, list[Bound]()
        for name in self.labels:
            low, high = ends = _limits(self.curves, self.bands, name)
            near = _bounds_near(self.tracks, name, ends)
            room = _BEYOND * (high - low)
            beyond = [one.value + (room if one.upper else -room) for one in near]
            limits[name] = ends = min([low, *beyond]), max([high, *beyond])
            bounds += [replace(one, at=_clear(self.curves, one, span, ends)) for one in near]
        return limits, bounds

    def _track(self, track: Track, legend: str, start: int, **look: Any) -> None:
        turns = track.numbers("turn")[start:]
        points = {
            name: (turns, track.numbers(name)[start:])
            for name in self.labels
            if any(name in row for row in (track.rows[0], track.rows[-1]))
        }
        self.curves.append(Curve(track.name, legend, points, **look))

    def _start(self, track: Track, drawn: Sequence[Track]) -> int:
        """Return the row that a run is drawn from: where it leaves the others."""
        shared = [(common_turns(track, other), other) for other in drawn]
        count, other = max(shared, key=lambda pair: pair[0], default=(0, track))
        if count == len(track.rows) == len(other.rows) and other is not track:
            self.notes.append(f"{track.name} is the same as {other.name}, turn by turn.")
        # One common row is the start, which runs of one configuration share without being forks.
        elif count > 1:
            self.branches.append((int(track.rows[count - 1]["turn"]), track.name, other.name))
        return max(0, count - 1)

    def _ensemble(self, item: Ensemble, look: Mapping[str, Any]) -> None:
        count = len(item.members)
        if count < _FAN_FROM:
            runs = "1 run is" if count == 1 else f"{count} runs are"
            self.notes.append(
                f"{item.name}: {runs} too few for a fan, which takes {_FAN_FROM}; each is a line."
            )
            for place, member in enumerate(item.members):
                thin = {**look, "marker": "", "width": 1.0, "alpha": 0.8, "labelled": False}
                legend = f"{item.name} (each of {count} runs)" if place == 0 else ""
                self._track(member, legend, 0, **thin)
            return
        found = {name: item.spread(name, _QUANTILES) for name in self.labels}
        points = {name: (turns, values[2]) for name, (turns, values) in found.items()}
        self.curves.append(Curve(item.name, f"{item.name}: median of {count} runs", points, **look))
        for share, low, high, alpha in (("90 %", 0, 4, 0.15), ("50 %", 1, 3, 0.3)):
            edges = {name: (turns, it[low], it[high]) for name, (turns, it) in found.items()}
            self.bands.append(Band(f"{item.name}: {share} of runs", look["colour"], alpha, edges))
        lasts = [member.turns[1] for member in item.members]
        cut = f" to turn {min(lasts)}, the last that all have" if min(lasts) < max(lasts) else ""
        self.notes.append(
            f"{item.name}: n = {count} runs{cut}; the line is their median, the bands hold the "
            "middle 50 % and 90 % of them at each turn."
        )

    def _predictions(self) -> None:
        """Draw what theory says of the runs, once where it says the same of several."""
        import numpy as np

        predicted: dict[tuple[tuple[str, float], ...], dict[str, None]] = {}
        for item in self.items:
            for track in item.members:
                shown = (name for name in self.labels if name in track.prediction)
                values = tuple((name, track.prediction[name]) for name in shown)
                predicted.setdefault(values, {})[item.name] = None
        predicted.pop((), None)  # runs without a prediction
        turns = np.array([self.begun, max(self.begun + 1, self.planned)], dtype=float)
        for values, names in predicted.items():
            whose = f" for {', '.join(names)}" if len(predicted) > 1 else ""
            points = {name: (turns, np.full(2, value, dtype=float)) for name, value in values}
            self.curves.append(Curve("prediction", f"prediction{whose}", points, style="--"))
            numbers = ", ".join(f"{self.labels[name]} {number(value)}" for name, value in values)
            self.notes.append(f"Prediction{whose}: {numbers}.")

    def rule(self, rule: bool | str | TaylorRule) -> None:
        """Draw what the Taylor rule asks, or note why that cannot be had."""
        asked = [item for item in self.items if item.name == rule or not isinstance(rule, str)]
        if not asked:
            raise ConfigError(
                f"the Taylor rule is asked for on the data of {rule!r}, which is not a run here; "
                f"the runs are: {', '.join(item.name for item in self.items)}"
            )
        singles = [item for item in asked if isinstance(item, Track)]
        rates = _rule_rates(singles[0], rule) if singles else None
        if rates is None:
            self.notes.append("The Taylor rule is not drawn: it needs a single run's data.")
            return
        legend = f"what the Taylor rule asks, on the data of: {singles[0].name}"
        points = {"interest_rate": (singles[0].numbers("turn"), rates)}
        self.curves.append(Curve("Taylor rule", legend, points, colour="#666666", style=":"))

    def history(self, wanted: bool | pd.DataFrame) -> None:
        """Draw what happened from the runs' first turn on, or note why that cannot be had."""
        import numpy as np

        if isinstance(wanted, bool):
            firsts = {(track.turns[0], track.first_period) for track in self.tracks}
            periods = {period for _, period in firsts}
            if periods == {""}:
                return
            if len(firsts) > 1:
                self.notes.append("History is not drawn: the runs begin in different quarters.")
                return
            quarters = self.played - self.begun + 1
            try:
                frame = history(periods.pop(), quarters)
            except (ConfigError, DataError) as error:
                self.notes.append(f"History is not drawn: {error}.")
                return
        else:
            frame, quarters = wanted, len(wanted)
        turns = np.arange(self.begun, self.begun + len(frame), dtype=float)
        there = [name for name in self.labels if name in frame.columns]
        try:
            points = {name: (turns, frame[name].to_numpy(dtype=float)) for name in there}
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"history= must hold numbers in {', '.join(there)}: {error}"
            ) from None
        if points:
            self.curves.append(Curve("history", "history (T-bill)", points))
            if len(frame) < quarters:
                self.notes.append(f"History ends with {frame.index[-1]}.")


def _rule_rates(track: Track, rule: bool | str | TaylorRule) -> Values | None:
    """Return the rate that the rule asks for on each row's data, percent per year.

    Args:
        track: the run.
        rule: a rule of the user's own; else the rows' ``taylor_rate`` is taken, where there is one.
    """
    import numpy as np

    if not isinstance(rule, TaylorRule) and "taylor_rate" in track.rows[-1]:
        return track.numbers("taylor_rate")
    if not track.rows[-1].keys() >= {*_RULE_NEEDS}:
        return None
    asked = rule if isinstance(rule, TaylorRule) else TaylorRule()
    values = [
        asked.rate(inflation=inflation, output_gap=gap, previous_rate=rate)
        if np.isfinite([inflation, gap, rate]).all()
        else np.nan
        for inflation, gap, rate in zip(*map(track.numbers, _RULE_NEEDS), strict=True)
    ]
    return np.array(values, dtype=float)


def _ticks(tracks: Sequence[Track], planned: int) -> Ticks:
    """Name the quarters on the axis, at most a dozen of them, if the runs agree on them."""
    longest = max(tracks, key=lambda track: track.turns[1])
    first, last = longest.turns
    turns = range(first, planned + 1, math.ceil((planned - first + 1) / _TICKS))
    starts = {(track.turns[0], track.first_period) for track in tracks}
    periods = [row.get("period") for row in longest.rows]
    at = tuple(map(float, turns))
    if len(starts) == 1 and all(isinstance(period, str) for period in periods):
        # Turns that are only planned have no row: from the last quarter on they are counted.
        names = (
            periods[turn - first] if turn <= last else next_quarter(periods[-1], steps=turn - last)
            for turn in turns
        )
        return Ticks(label="quarter", at=at, names=tuple(map(str, names)))
    dated = any("period" in row for row in longest.rows)
    return Ticks(label="turn (quarters)" if dated else "turn", at=at)


def _limits(curves: Sequence[Curve], bands: Sequence[Band], column: str) -> tuple[float, float]:
    """Return limits that hold all of a column's values, with a little room around them."""
    import numpy as np

    parts = [curve.points[column][1] for curve in curves if column in curve.points]
    for band in bands:
        parts += band.points[column][1:]
    values = np.concatenate([*parts, []])  # of no part at all, numpy would raise
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    # One value, or several that differ by rounding: a scale that fine would magnify noise.
    flat = high - low <= max(_LEAST_SHARE * size, _LEAST)
    room = (size / 4 if size > _LEAST else 1.0) if flat else 0.06 * (high - low)
    return low - room, high + room


_NEAR = 0.15
"""Share of a panel's height within which a bound is drawn, though no value reaches it."""
_BEYOND = 0.1
"""Share of a panel's height that is kept beyond a bound, for its label."""


def _bounds_near(tracks: Sequence[Track], column: str, limits: tuple[float, float]) -> list[Bound]:
    """Return the bounds of a column that its values come near, each once."""
    low, high = limits
    near = _NEAR * (high - low)
    declared = {
        (value, bool(upper))
        for track in tracks
        for upper, value in enumerate(track.bounds.get(column, ()))
        if value is not None and low - near <= value <= high + near
    }
    return [Bound(column=column, value=value, upper=upper) for value, upper in sorted(declared)]


_LABEL_WIDE, _LABEL_HIGH = 0.2, 0.09
"""Shares of a panel that a bound's label takes."""


def _clear(
    curves: Sequence[Curve], bound: Bound, span: tuple[float, float], limits: tuple[float, float]
) -> float:
    """Return the turn at which a bound's label begins so that no curve goes through it."""
    import numpy as np

    first, width = span[0], span[1] - span[0]
    height = (limits[1] - limits[0]) * _LABEL_HIGH
    low, high = (0.0, height) if bound.upper else (-height, 0.0)

    def crossed(begin: float) -> int:
        turns = np.linspace(begin, begin + _LABEL_WIDE * width, 9)
        lines = (curve.points[bound.column] for curve in curves if bound.column in curve.points)
        apart = [np.interp(turns, *line, left=np.nan, right=np.nan) - bound.value for line in lines]
        return sum(int(((low <= line) & (line <= high)).sum()) for line in apart)

    # Left before right: of places that are crossed as little, ``min`` takes the first.
    return min((first + part * width for part in (0, 0.8, 0.6, 0.4, 0.2)), key=crossed)
