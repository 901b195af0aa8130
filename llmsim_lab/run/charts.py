"""Which charts a run has: their order, their lines, and their axes.

The page, the window and static pictures draw these charts, in this order. A chart is a ``Series``
whose column may hold a star: ``belief.*`` draws a line for each key of the dict ``belief``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Annotated, Any, NamedTuple, Protocol, TypeGuard, get_args, get_origin

from pydantic import BaseModel

from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import closest, listed
from llmsim_lab.run.series import Series, own_numbers
from llmsim_lab.run.state import State, fields_of
from llmsim_lab.run.turn import Turn

_WHOLE_SHARE_FROM = 0.2
"""Values from 0 to 1 are drawn on an axis from 0 to 1, if one of them reaches this."""
_LEAST_POINTS = 2.0
"""The least span of an axis in percentage points: less would make noise look like news."""
_LEAST_SHARE = 0.1
"""The least span of any other axis, as a share of its largest value."""
_UNITS = {
    "bp": "bp",
    "pct": "%",
    "percent": "%",
    "eur": "€",
    "usd": "$",
    "gbp": "£",
    "s": "s",
}
"""Units by the ends of names; ``front/text.js`` has the same."""
_NOT = re.compile(r"^(is |has )?")
"""Finds the place for a "not" in a field's name."""
MOST_COLUMNS = 100_000
"""Of a run that are shown."""
_MOST_CHARTS = 1_000
"""Of a run: nobody looks at more, and a tape of megabytes may name a column in each few bytes."""
_MOST_CHARACTERS = 20_000
"""The longest field that is shown as a table or a network, in characters."""


class Charted(Protocol):
    """A run that has charts; also a recorded run whose class is not known."""

    @property
    def series(self) -> Sequence[Series | str]:
        """The run's columns of numbers."""
        ...

    @property
    def turns(self) -> Sequence[Turn]:
        """The run's turns, the initial state first."""
        ...

    def prediction(self) -> Mapping[str, float]:
        """Return what theory predicts, by column."""
        ...


# --- which charts --------------------------------------------------------------------------------


class ChartedColumns:
    """The columns of numbers of a run's turns so far, and the charts made from them.

    Args:
        run: the run.
    """

    def __init__(self, run: Charted) -> None:
        self._run = run
        self._patterns: dict[str, str] = {}
        """The chart that draws each column, such as ``belief.*`` for ``belief.Ada``."""
        self._dicts: set[str] = set()
        """The charts with a star. Kept as a set, since a run may have 100,000 columns."""
        self._left_out = False
        """Whether there were more columns than these."""

    def add(
        self,
        turn: Turn,
        row: Mapping[str, object],
    ) -> bool:
        """Take a turn's row; return True if it has new columns of numbers."""
        new_names = [name for name in own_numbers(row) if name not in self._patterns]
        self._left_out = self._left_out or len(self._patterns) + len(new_names) > MOST_COLUMNS
        new_names = new_names[: MOST_COLUMNS - len(self._patterns)]
        if new_names:
            patterns = _patterns_in(turn.state)
            for name in new_names:
                # A class that names its columns itself may have names such as "Taiwan.trust_level".
                _, dot, rest = name.partition(".")
                pattern = name
                if dot:
                    pattern = f"*.{rest}"
                self._patterns[name] = patterns.get(name, pattern)
                self._dicts.add(self._patterns[name])
        return bool(new_names)

    def series(self) -> list[Series]:
        """Return the columns, single numbers first, with what the state's fields say about them."""
        fields = self._field_series()
        names = sorted(
            self._patterns,
            key=lambda name: "*" in self._patterns[name],
        )
        series: list[Series] = []
        for name in names:
            item = fields.get(name, Series(label=name))
            series.append(replace(item, column=name))
        return series

    def _field_series(self) -> dict[str, Series]:
        state_type = getattr(self._run, "state_type", None)
        return field_series(state_type)

    def charts(self, series: Sequence[Series] | None = None) -> list[Series]:
        """Return the charts that the class names; if it names none, all, with single numbers first.

        Columns with a prediction come before the others. No more than a thousand are returned, and
        ``left_out`` says how many are not.

        Args:
            series: the run's series, if the caller has them.
        """
        fields = self._field_series()
        wanted = _named_charts(self._run)
        if wanted:
            return [self._chart(item, fields) for item in wanted]
        by_column: dict[str, Series] = {}
        if series is None:
            series = series_of(self._run)
        for item in series:
            # A column without a label of its own is drawn with the other columns of its dict.
            if item.label == item.column:
                pattern = self._patterns.get(item.column, "")
                item = self._chart(Series(column=pattern), fields)
            if item.column:
                by_column.setdefault(item.column, item)
        predicted: set[str] = set()
        for name in self._run.prediction():
            predicted.add(name)
            predicted.add(self._patterns.get(name, name))
        # Single numbers come before dicts: a run's outcome is mostly a single number.
        patterns = sorted(
            self._all_patterns(),
            key=lambda pattern: (pattern not in predicted, _has_star(pattern)),
        )
        for pattern in patterns:
            if len(by_column) >= _MOST_CHARTS:
                break
            if pattern not in by_column:
                by_column[pattern] = self._chart(Series(column=pattern), fields)
        # Sorting keeps the order within the predicted columns, and within the others.
        return sorted(
            by_column.values(),
            key=lambda item: item.column not in predicted,
        )

    def left_out(self) -> str:
        """Return a sentence on charts that ``charts`` leaves out; empty if it has all."""
        count = len(self._all_patterns())
        if count <= _MOST_CHARTS or _named_charts(self._run):
            return ""
        more = "More than " if self._left_out else ""
        return (
            f"{more}{count:,} columns or dicts of numbers would be a chart each: the first "
            f"{_MOST_CHARTS:,} are drawn, and to_frame() or the tape's turns_frame() has all."
        )

    def dicts(self) -> list[str]:
        """Return the charts of the state's dicts of numbers, such as ``belief.*``."""
        return list(filter(_has_star, self._all_patterns()))

    def _all_patterns(self) -> list[str]:
        """Return the columns' charts, each once, in the order in which they first came."""
        return list(dict.fromkeys(self._patterns.values()))

    def missing(self) -> str:
        """Return a sentence on names in ``charts`` that no turn has; empty if all are there."""
        # With fields that hold no numbers: they are drawn as networks.
        columns = {*self._patterns, *self._patterns.values(), *self._field_series()}
        missing: list[str] = []
        for item in _named_charts(self._run):
            name = item.column
            if name not in columns and f"{name}.*" not in columns:
                missing.append(name)
        # Before its first turn, a run may lack columns that a turn will note.
        if not missing or len(self._run.turns) < 2:
            return ""
        return (
            f"{type(self._run).__name__}.charts names {missing[0]!r}, which is no column of "
            f"numbers here{closest(missing[0], columns)}; there are {listed([*columns])}."
        )

    def _chart(
        self,
        item: Series,
        fields: Mapping[str, Series],
    ) -> Series:
        """Return a chart with what its field says of it; a dict's name stands for all its keys."""
        column = item.column  # a column with exactly this name comes before a dict
        if column not in self._patterns and f"{column}.*" in self._dicts:
            column = f"{column}.*"
        field_name = column.removesuffix(".*")
        field = fields.get(field_name, Series())
        return Series(
            column=column,
            label=item.label or field.label or _label(column),
            unit=item.unit or field.unit or _unit_of(column),
            short=item.short or field.short,
            low=_first(item.low, field.low),
            high=_first(item.high, field.high),
        )


def charts_of(run: Charted) -> list[Series]:
    """Return the charts of a run; see ``ChartedColumns.charts``."""
    return charted_columns(run).charts()


def charted_columns(run: Charted) -> ChartedColumns:
    """Return the columns of all turns of a run, without those of hidden fields."""
    columns = ChartedColumns(run)
    hidden = hidden_fields(getattr(run, "state_type", None))
    for turn in run.turns:
        columns.add(turn, without_fields(turn.columns(), hidden))
    return columns


def lines_of_chart(
    chart: Series,
    columns: Iterable[str],
) -> dict[str, str]:
    """Return the columns that a chart draws, by the names of the chart's lines."""
    start, star, end = chart.column.partition("*")
    if not star:
        return {chart.label: chart.column}
    lines: dict[str, str] = {}
    for name in columns:
        is_longer = len(name) > len(start) + len(end)
        if is_longer and name.startswith(start) and name.endswith(end):
            inner = name.removeprefix(start).removesuffix(end)
            lines[inner] = name
    return lines


def series_of(run: Charted) -> list[Series]:
    """Return a run's ``series``; a class may give columns by their names alone."""
    series: list[Series] = []
    for item in map(_as_series, run.series):
        label = item.label or item.column
        series.append(replace(item, label=label))
    return series


def _named_charts(run: Charted) -> list[Series]:
    """Return the charts that a run's class names; a recorded run of an unknown class has none."""
    charts: Sequence[Series | str] = getattr(type(run), "charts", ())
    return list(map(_as_series, charts))


def _has_star(pattern: str) -> bool:
    """Return True for the chart of a dict, which has a line for each key."""
    return "*" in pattern


def _as_series(item: Series | str) -> Series:
    if isinstance(item, Series):
        return item
    return Series(column=item)


def _label(column: str) -> str:
    """Return a column's name in words: ``belief`` of ``belief.*``, ``cash`` of ``firms.*.cash``."""
    *_, name = column.rpartition("*.")
    name = name.removesuffix(".*")
    suffix = _unit_suffix(name)
    return name.removesuffix(suffix).replace("_", " ")


class NameAndUnit(NamedTuple):
    """The parts of a name: ``applied`` and ``bp`` for ``applied_bp``; the unit may be empty."""

    words: str
    unit: str


def name_and_unit(name: str) -> NameAndUnit:
    """Return a name in words, and the unit at its end (``labelled`` in ``front/text.js``)."""
    suffix = _unit_suffix(name)
    words = name.removesuffix(suffix).replace("_", " ")
    return NameAndUnit(words, _unit_of(name))


def name_in_words(name: str) -> str:
    """Return a name in words with its unit: ``amount (€)`` for ``amount_eur``."""
    words, unit = name_and_unit(name)
    return f"{words} ({unit})" if unit else words


def field_in_words(
    name: str,
    value: object,
    shown: str,
) -> str:
    """Return a field and its value as the window shows them: ``applied 125 bp``, ``is not valid``.

    Args:
        name: the field's name.
        value: the field's value.
        shown: the value as a text.
    """
    whole_name = name.replace("_", " ")
    if value is True:
        return whole_name
    if value is False:
        return _NOT.sub(r"\1not ", whole_name, count=1)
    words, unit = name_and_unit(name)
    # Only numbers get a unit: a text in "price_eur", such as "none known", has none.
    if unit and isinstance(value, int | float):
        return f"{words} {shown} {unit}"
    return f"{whole_name} {shown}"


def _unit_suffix(name: str) -> str:
    """Return the end of a name if it is a unit: ``_bp`` for ``applied_bp``."""
    start, _, end = name.rpartition("_")
    if start and end in _UNITS:
        return f"_{end}"
    return ""


def _unit_of(name: str) -> str:
    """Return the unit at the end of a name; empty if there is none."""
    suffix = _unit_suffix(name)
    return _UNITS.get(suffix.removeprefix("_"), "")


def _patterns_in(state: object) -> dict[str, str]:
    """Return the values in a state by name, each with the name of its chart, which has a star."""
    patterns: dict[str, str] = {}

    def walk(
        holder: object,
        path: tuple[str, ...],
        parts: tuple[str, ...],
    ) -> None:
        # A recorded state of an unknown class is a dict, whose keys are the names of fields.
        has_keys = isinstance(holder, Mapping) and path != ()
        for key, value in fields_of(holder).items():
            part = str(key)
            if has_keys and "*" not in parts:
                part = "*"
            inner_path = (*path, str(key))
            inner_parts = (*parts, part)
            name = ".".join(inner_path)
            patterns[name] = ".".join(inner_parts)
            if isinstance(value, BaseModel | Mapping) or is_dataclass(value):
                walk(value, inner_path, inner_parts)

    walk(state, (), ())
    return patterns


# --- what a state's class says of its fields -----------------------------------------------------


def field_series(state_type: object) -> dict[str, Series]:
    """Return what a state's class says about its numbers: label, unit and bounds, by field.

    Args:
        state_type: the class. Without a ``State`` there is nothing to return.
    """
    if not _is_state(state_type):
        return {}
    by_name: dict[str, Series] = {}
    for name, field in state_type.model_fields.items():
        annotations = [*_metadata_of_values(field.annotation), *field.metadata]
        by_name[name] = _annotated_series(name, field.title, annotations)
    # pydantic keeps the annotations of a computed field only in its return type.
    for name, computed in state_type.model_computed_fields.items():
        annotations = []
        if get_origin(computed.return_type) is Annotated:
            _, *annotations = get_args(computed.return_type)
        by_name[name] = _annotated_series(name, computed.title, annotations)
    return by_name


def _is_state(state_type: object) -> TypeGuard[type[State]]:
    return isinstance(state_type, type) and issubclass(state_type, State)


def _annotated_series(
    name: str,
    title: str | None,
    annotations: Sequence[object],
) -> Series:
    """Return a field's series; label and unit follow from the name if the class gives none."""
    item = Series(column=name, label=title or "")
    for part in annotations:
        item = _with_metadata(item, part)
    return replace(
        item,
        column=name,
        label=item.label or _label(name),
        unit=item.unit or _unit_of(name),
    )


def hidden_fields(state_type: object) -> frozenset[str]:
    """Return the hidden fields of a state, which are marked with ``Field(repr=False)``."""
    if not _is_state(state_type):
        return frozenset()
    hidden = {name for name, field in state_type.model_fields.items() if not field.repr}
    for name, computed in state_type.model_computed_fields.items():
        if not computed.repr:
            hidden.add(name)
    return frozenset(hidden)


def without_fields(
    row: Mapping[str, Any],
    hidden: frozenset[str],
) -> Mapping[str, Any]:
    """Return a turn's row without the columns of hidden fields."""
    if not hidden:
        return row
    shown: dict[str, Any] = {}
    for name, value in row.items():
        field, _, _ = name.partition(".")
        if field not in hidden:
            shown[name] = value
    return shown


def _metadata_of_values(annotation: object) -> Iterator[object]:
    """Yield the annotations of a dict's values: ``dict[str, Annotated[float, Field(ge=0)]]``."""
    values = get_args(annotation)[-1:]
    if values and get_origin(values[0]) is Annotated:
        for part in get_args(values[0])[1:]:
            yield from getattr(part, "metadata", ())
            yield part


def _with_metadata(item: Series, part: object) -> Series:
    """Return a series with what one part of a field's annotation says."""
    if isinstance(part, Series):
        return replace(
            part,
            low=_first(part.low, item.low),
            high=_first(part.high, item.high),
        )
    # pydantic turns Field(ge=0, lt=1) into objects with these attributes.
    low = item.low
    high = item.high
    for name in ("ge", "gt"):
        low = _first(_bound(part, name), low)
    for name in ("le", "lt"):
        high = _first(_bound(part, name), high)
    return replace(item, low=low, high=high)


def _bound(part: object, name: str) -> float | None:
    """Return a bound in an annotation; None if there is none, or if it is no number but a date."""
    bound = getattr(part, name, None)
    if isinstance(bound, int | float):
        return float(bound)
    return None


def _first(
    number: float | None,
    otherwise: float | None,
) -> float | None:
    """Return the number if there is one, even if it is 0, and else the other."""
    if number is None:
        return otherwise
    return number


# --- axes ----------------------------------------------------------------------------------------


def axis_of(
    values: Sequence[float],
    chart: Series,
) -> tuple[float, float]:
    """Return the ends of a chart's axis; ``axisOf`` in ``front/chart.js`` does the same.

    Booleans and shares have an axis from 0 to 1, and values close to their bounds an axis from
    bound to bound. Other axes have a least span, so that noise does not look like news.
    """
    if not values or isinstance(values[0], bool):  # a column has values of one type only
        return 0.0, 1.0
    low = min(values)
    high = max(values)
    span = high - low
    if chart.low is not None and chart.high is not None:
        is_within = chart.low <= low and high <= chart.high
        # Bounds far away would flatten every line: an axis from 0 to 1,000,000 shows nothing.
        is_close = chart.high - chart.low <= max(1, 2 * span)
        if is_within and is_close:
            return chart.low, chart.high
    is_whole = all(float(value).is_integer() for value in values)
    may_be_share = low >= 0 and _WHOLE_SHARE_FROM <= high <= 1
    if may_be_share and not chart.unit and not is_whole:
        return 0.0, 1.0
    largest = max(abs(low), abs(high))
    least_span = _LEAST_SHARE * largest or 1.0
    if chart.unit.startswith("%"):
        least_span = _LEAST_POINTS
    room = max(0.08 * span, (least_span - span) / 2)
    start = low - room
    end = high + room
    # The axis of a quantity that is never negative does not go below zero.
    if start < 0 <= low:
        start = 0.0
    if end > 0 >= high > start:
        end = 0.0
    return start, end


# --- tables and networks -------------------------------------------------------------------------


def tables_in(
    state: object,
    hidden: frozenset[str],
) -> dict[str, str]:
    """Return a state's lists, and its dicts of texts or lists, as JSON with one item a line.

    A line is an item of a list, or ``{key: value}``. An item that stays the same from turn to turn
    is then stored only once. The other values of a state are columns, or are not shown.
    """
    tables: dict[str, str] = {}
    if not isinstance(state, BaseModel | Mapping):
        return tables
    for name, value in fields_of(state).items():
        if name in hidden or not value:
            continue
        lines = _table_lines(value)
        if lines and sum(map(len, lines)) <= _MOST_CHARACTERS:
            tables[name] = "\n".join(lines)
    return tables


def _table_lines(value: object) -> list[str]:
    """Return the lines of a field that is shown as a table; nothing for any other field."""
    if isinstance(value, Mapping):
        for item in value.values():
            if not isinstance(item, str) and not _is_list_of_texts(item):
                return []
        return [dumps({key: item}) for key, item in value.items()]
    if _is_list_of_texts(value) or _is_list_of_pairs(value):
        return list(map(dumps, value))
    return []


def _is_list_of_texts(value: object) -> TypeGuard[Sequence[str]]:
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, str) for item in value)


def _is_list_of_pairs(value: object) -> TypeGuard[Sequence[Sequence[str]]]:
    if not isinstance(value, list | tuple):
        return False
    return all(_is_list_of_texts(item) and len(item) == 2 for item in value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The ties between players in a turn.

    Attributes:
        label: the name of the field that holds the ties, in words.
        names: the players.
        pairs: the ties; a tie in both directions is there twice.
    """

    label: str
    names: Sequence[str]
    pairs: Sequence[tuple[str, str]]


def networks_of(run: Charted, turn: Turn) -> list[Network]:
    """Return the networks in a turn's state that a run shows, as the window finds them.

    A network is a dict of lists of its own keys, or a list of pairs (``tiesIn`` in
    ``front/network.js``).
    """
    state_type = getattr(run, "state_type", None)
    fields = field_series(state_type)
    wanted = [item.column for item in _named_charts(run)]
    tables = tables_in(turn.state, hidden_fields(state_type))
    networks: list[Network] = []
    for name, text in tables.items():
        if wanted and name not in wanted:
            continue
        label = _label(name)
        if name in fields:
            label = fields[name].label
        network = _network(label, map(json.loads, text.split("\n")))
        if network is not None:
            networks.append(network)
    return networks


def _network(label: str, lines: Iterable[object]) -> Network | None:
    """Return the network in a table's lines; None if the table ties no players."""
    names: dict[str, None] = {}
    pairs: list[tuple[str, str]] = []
    for line in lines:
        if isinstance(line, dict):
            for key, tied in line.items():
                names[key] = None
                pairs += [(key, other) for other in tied]
        elif isinstance(line, list):
            names |= dict.fromkeys(line)
            pairs.append((line[0], line[1]))
    if not pairs or any(other not in names for _, other in pairs):
        return None
    return Network(
        label=label,
        names=[*names],
        pairs=pairs,
    )
