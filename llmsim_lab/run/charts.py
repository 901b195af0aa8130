"""What of a run is charted: in which order, with a line for each player, on which axis.

The page, the window and static pictures draw these charts, in this order. A chart is a ``Series``
whose column may hold a star: ``belief.*`` draws a line for each key of the dict ``belief``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Annotated, Any, NamedTuple, Protocol, get_args, get_origin

from pydantic import BaseModel

from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import closest, listed
from llmsim_lab.run.series import Series, own_numbers
from llmsim_lab.run.state import State, fields_of
from llmsim_lab.run.turn import Turn

_WHOLE_SHARE_FROM = 0.2
"""Values from 0 to 1 that reach this are drawn on the whole axis of a share."""
_LEAST_POINTS = 2.0
"""The least span of an axis in percent, percentage points: less would make noise look like news."""
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
"""Units by how a name ends; ``front/text.js`` has the same."""
_NOT = re.compile(r"^(is |has )?")
"""Where a "not" goes into a field's name."""
_MOST_CHARACTERS = 20_000
"""Of a field that is shown as a table or a network."""


class Charted(Protocol):
    """What has charts: a run, or a recorded one whose class is not known."""

    @property
    def series(self) -> Sequence[Series | str]:
        """Its columns of numbers."""
        ...

    @property
    def turns(self) -> Sequence[Turn]:
        """Its turns, the initial state first."""
        ...

    def prediction(self) -> Mapping[str, float]:
        """Return what theory says, by column."""
        ...


# --- which charts --------------------------------------------------------------------------------


class ChartedColumns:
    """The columns of numbers that a run's turns have had so far, and the charts that they make.

    Args:
        run: the run.
    """

    def __init__(self, run: Charted) -> None:
        self._run = run
        self._patterns: dict[str, str] = {}
        """By column: the chart that draws it, such as ``belief.*`` for ``belief.Ada``."""
        self._dicts: set[str] = set()
        """Those charts, since a run may have 100,000 columns."""

    def add(
        self,
        turn: Turn,
        row: Mapping[str, object],
    ) -> bool:
        """Take a turn's row, and return True if it has columns of numbers that are new."""
        new = [name for name in own_numbers(row) if name not in self._patterns]
        if new:
            patterns = _patterns_in(turn.state)
            for name in new:
                # A class that names its columns itself may have them as "Taiwan.trust_level".
                _, dot, rest = name.partition(".")
                pattern = name
                if dot:
                    pattern = f"*.{rest}"
                self._patterns[name] = patterns.get(name, pattern)
                self._dicts.add(self._patterns[name])
        return bool(new)

    def series(self) -> list[Series]:
        """Return the columns, numbers that stand alone first, with what their fields say."""
        fields = field_series(getattr(self._run, "state_type", None))
        names = sorted(
            self._patterns,
            key=lambda name: "*" in self._patterns[name],
        )
        return [replace(fields.get(name, Series(label=name)), column=name) for name in names]

    def charts(self, series: Sequence[Series] | None = None) -> list[Series]:
        """Return the charts: those that the class names, else all, numbers that stand alone first.

        What theory predicts comes before the rest.

        Args:
            series: the run's, where they are known already.
        """
        fields = field_series(getattr(self._run, "state_type", None))
        wanted = _named_charts(self._run)
        if wanted:
            return [self._chart(_as_series(item), fields) for item in wanted]
        by_column: dict[str, Series] = {}
        if series is None:
            series = series_of(self._run)
        for item in series:
            # One that nobody gave a label is drawn with those of its dict.
            if item.label == item.column:
                item = self._chart(Series(column=self._patterns.get(item.column, "")), fields)
            if item.column:
                by_column.setdefault(item.column, item)
        # Each once, first those of one number, then those of many: an outcome is mostly one.
        patterns = dict.fromkeys(self._patterns.values())
        for pattern in sorted(patterns, key=lambda pattern: "*" in pattern):
            if pattern not in by_column:
                by_column[pattern] = self._chart(Series(column=pattern), fields)
        predicted: set[str] = set()
        for name in self._run.prediction():
            predicted |= {name, self._patterns.get(name, name)}
        # Sorting keeps the order among the predicted ones, and among the others.
        return sorted(
            by_column.values(),
            key=lambda item: item.column not in predicted,
        )

    def dicts(self) -> list[str]:
        """Return the dicts of numbers that the state has, such as ``belief.*``."""
        return [pattern for pattern in dict.fromkeys(self._patterns.values()) if "*" in pattern]

    def missing(self) -> str:
        """Return a sentence on names in ``charts`` that no turn has had; empty if it has all."""
        # Of the fields some have no numbers, and are drawn as a network.
        fields = field_series(getattr(self._run, "state_type", None))
        columns = {*self._patterns, *self._patterns.values(), *fields}
        names = [_as_series(item).column for item in _named_charts(self._run)]
        missing = [name for name in names if not {name, f"{name}.*"} & columns]
        # Before its first turn a run may lack columns that a turn will note.
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
        """Return a chart with what its field says of it; a dict's name means all its keys."""
        column = item.column  # a column of that very name is meant before a dict
        if column not in self._patterns and f"{column}.*" in self._dicts:
            column = f"{column}.*"
        field = fields.get(column.removesuffix(".*"), Series())
        return Series(
            column=column,
            label=item.label or field.label or _label(column),
            unit=item.unit or field.unit or _UNITS.get(_unit_suffix(column)[1:], ""),
            short=item.short or field.short,
            low=_first(item.low, field.low),
            high=_first(item.high, field.high),
        )


def charts_of(run: Charted) -> list[Series]:
    """Return the charts of a run; see ``ChartedColumns.charts``."""
    return charted_columns(run).charts()


def charted_columns(run: Charted) -> ChartedColumns:
    """Return the columns of all turns of a run, but for those of hidden fields."""
    columns = ChartedColumns(run)
    hidden = hidden_fields(getattr(run, "state_type", None))
    for turn in run.turns:
        columns.add(turn, without_fields(turn.columns(), hidden))
    return columns


def lines_of_chart(
    chart: Series,
    columns: Iterable[str],
) -> dict[str, str]:
    """Return the columns that a chart draws, by the names of their lines."""
    start, star, end = chart.column.partition("*")
    if not star:
        return {chart.label: chart.column}
    inner = slice(len(start), -len(end) or None)  # -0 would be an empty name
    return {
        name[inner]: name
        for name in columns
        if name.startswith(start) and name.endswith(end) and len(name) > len(start) + len(end)
    }


def series_of(run: Charted) -> list[Series]:
    """Return a run's ``series``, in which a class may write the names of columns alone."""
    return [replace(item, label=item.label or item.column) for item in map(_as_series, run.series)]


def _named_charts(run: Charted) -> Sequence[Series | str]:
    return getattr(type(run), "charts", ())


def _as_series(item: Series | str) -> Series:
    if isinstance(item, Series):
        return item
    return Series(column=item)


def _label(column: str) -> str:
    """Return a column's name in words: ``belief`` of ``belief.*``, ``cash`` of ``firms.*.cash``."""
    name = column.rpartition("*.")[2].removesuffix(".*")
    return name.removesuffix(_unit_suffix(name)).replace("_", " ")


class NameAndUnit(NamedTuple):
    """What a name says: ``applied`` and ``bp`` of ``applied_bp``; without a unit an empty text."""

    words: str
    unit: str


def name_and_unit(name: str) -> NameAndUnit:
    """Return a name in words, and the unit that it ends in (``labelled`` in ``front/text.js``)."""
    suffix = _unit_suffix(name)
    words = name.removesuffix(suffix).replace("_", " ")
    return NameAndUnit(words, _UNITS.get(suffix.removeprefix("_"), ""))


def name_in_words(name: str) -> str:
    """Return a name in words with the unit that it ends in: ``amount (€)`` of ``amount_eur``."""
    words, unit = name_and_unit(name)
    return f"{words} ({unit})" if unit else words


def field_in_words(
    name: str,
    value: object,
    shown: str,
) -> str:
    """Return a field with its value, as the window has it: ``applied 125 bp``, ``is not valid``.

    Args:
        name: the field's.
        value: what it holds.
        shown: the value as a text.
    """
    if value is True:
        return name.replace("_", " ")
    if value is False:
        return _NOT.sub(r"\1not ", name.replace("_", " "), count=1)
    words, unit = name_and_unit(name)
    # A unit stands beside a number only: of "price_eur: none known" the name is all there is.
    if unit and isinstance(value, int | float):
        return f"{words} {shown} {unit}"
    return f"{name.replace('_', ' ')} {shown}"


def _unit_suffix(name: str) -> str:
    """Return what a name ends in where that is a unit: ``_bp`` of ``applied_bp``."""
    start, _, end = name.rpartition("_")
    if start and end in _UNITS:
        return f"_{end}"
    return ""


def _patterns_in(state: object) -> dict[str, str]:
    """Return of each value in a state, by its name, that name with a star for the first key."""
    patterns: dict[str, str] = {}

    def walk(
        holder: object,
        path: tuple[str, ...],
        parts: tuple[str, ...],
    ) -> None:
        # A recorded state whose class is not known is a dict itself, of fields.
        has_keys = isinstance(holder, Mapping) and path != ()
        for key, value in fields_of(holder).items():
            part = str(key)
            if has_keys and "*" not in parts:
                part = "*"
            inner_path = (*path, str(key))
            inner_parts = (*parts, part)
            patterns[".".join(inner_path)] = ".".join(inner_parts)
            if isinstance(value, BaseModel | Mapping) or is_dataclass(value):
                walk(value, inner_path, inner_parts)

    walk(state, (), ())
    return patterns


# --- what a state's class says of its fields -----------------------------------------------------


def field_series(state_type: object) -> dict[str, Series]:
    """Return what a state's class says of its numbers: label, unit and bounds, by field.

    Args:
        state_type: the class; one that is no ``State`` says nothing.
    """
    if not (isinstance(state_type, type) and issubclass(state_type, State)):
        return {}
    by_name: dict[str, Series] = {}
    for name, field in state_type.model_fields.items():
        item = Series(column=name, label=field.title or "")
        for part in (*_metadata_of_values(field.annotation), *field.metadata):
            item = _with_metadata(item, part)
        by_name[name] = _with_label_and_unit(replace(item, column=name))
    # pydantic keeps what is annotated at a computed field in its return type alone.
    for name, computed in state_type.model_computed_fields.items():
        item = Series(column=name, label=computed.title or "")
        if get_origin(computed.return_type) is Annotated:
            for part in get_args(computed.return_type)[1:]:
                item = _with_metadata(item, part)
        by_name[name] = _with_label_and_unit(replace(item, column=name))
    return by_name


def _with_label_and_unit(item: Series) -> Series:
    """Return a field's series with what follows from its name where its class says nothing."""
    name = item.column
    return replace(
        item,
        label=item.label or _label(name),
        unit=item.unit or _UNITS.get(_unit_suffix(name)[1:], ""),
    )


def hidden_fields(state_type: object) -> frozenset[str]:
    """Return the fields of a state that are not shown: those with ``Field(repr=False)``."""
    if not (isinstance(state_type, type) and issubclass(state_type, State)):
        return frozenset()
    hidden = {name for name, field in state_type.model_fields.items() if not field.repr}
    hidden.update(
        name for name, field in state_type.model_computed_fields.items() if not field.repr
    )
    return frozenset(hidden)


def without_fields(
    row: Mapping[str, Any],
    hidden: frozenset[str],
) -> Mapping[str, Any]:
    """Return a turn's row without the columns of fields that are hidden."""
    if not hidden:
        return row
    return {name: value for name, value in row.items() if name.partition(".")[0] not in hidden}


def _metadata_of_values(annotation: object) -> Iterator[object]:
    """Yield what stands with the values of ``dict[str, Annotated[float, Field(ge=0)]]``."""
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
    # pydantic turns Field(ge=0, lt=1) into parts of a class each, which have these names.
    for name in ("ge", "gt"):
        item = replace(
            item,
            low=_first(_number(getattr(part, name, None)), item.low),
        )
    for name in ("le", "lt"):
        item = replace(
            item,
            high=_first(_number(getattr(part, name, None)), item.high),
        )
    return item


def _number(bound: object) -> float | None:
    """Return a bound as a number; None where it is of something else, such as a date."""
    if isinstance(bound, int | float):
        return float(bound)
    return None


def _first(
    number: float | None,
    otherwise: float | None,
) -> float | None:
    """Return the first one that is a number, also where it is 0."""
    if number is None:
        return otherwise
    return number


# --- axes ----------------------------------------------------------------------------------------


def axis_of(
    values: Sequence[float],
    chart: Series,
) -> tuple[float, float]:
    """Return where a chart's axis begins and ends; ``axisOf`` in ``front/chart.js`` is the same.

    Yes and no and shares have the whole axis from 0 to 1, and so do close bounds. Elsewhere a
    least span keeps noise from looking like news.
    """
    if not values or isinstance(values[0], bool):  # all of a column are of one kind
        return 0.0, 1.0
    low = min(values)
    high = max(values)
    if chart.low is not None and chart.high is not None and chart.low <= low and high <= chart.high:
        # Bounds far from all values would flatten every line: 0 to 1,000,000 says nothing.
        whole = chart.high - chart.low
        if whole <= max(1, 2 * (high - low)):
            return chart.low, chart.high
    is_whole = all(float(value).is_integer() for value in values)
    if not chart.unit and not is_whole and low >= 0 and _WHOLE_SHARE_FROM <= high <= 1:
        return 0.0, 1.0
    least = _LEAST_SHARE * max(abs(low), abs(high)) or 1.0
    if chart.unit.startswith("%"):
        least = _LEAST_POINTS
    room = max(0.08 * (high - low), (least - (high - low)) / 2)
    start = low - room
    end = high + room
    # A quantity that is never negative has no axis below zero.
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
    """Return the fields of a state that are lists, or dicts of texts and lists: JSON, a line each.

    A line is an item of a list, or ``{key: value}``, so that what stays the same from turn to turn
    is kept once. What else a state holds is in its columns, or not shown.
    """
    tables: dict[str, str] = {}
    if not isinstance(state, BaseModel | Mapping):
        return tables
    for name, value in fields_of(state).items():
        lines: list[str] = []
        if name in hidden or not value:
            continue
        if isinstance(value, Mapping):
            if all(isinstance(item, str) or _is_list_of_texts(item) for item in value.values()):
                lines = [dumps({key: item}) for key, item in value.items()]
        elif _is_list_of_texts(value) or _is_list_of_pairs(value):
            lines = [dumps(item) for item in value]
        if lines and sum(map(len, lines)) <= _MOST_CHARACTERS:
            tables[name] = "\n".join(lines)
    return tables


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _is_list_of_pairs(value: object) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(_is_list_of_texts(item) and len(item) == 2 for item in value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Who is tied to whom in a turn.

    Attributes:
        label: of the field that holds it.
        names: the players.
        pairs: the ties, those that go both ways twice.
    """

    label: str
    names: Sequence[str]
    pairs: Sequence[tuple[str, str]]


def networks_of(run: Charted, turn: Turn) -> list[Network]:
    """Return the networks in a turn's state that a run shows, as the window finds them.

    They are dicts of lists of their own keys, and lists of pairs (``tiesIn`` in
    ``front/network.js``).
    """
    state_type = getattr(run, "state_type", None)
    fields = field_series(state_type)
    wanted = {_as_series(item).column for item in _named_charts(run)}
    networks: list[Network] = []
    for name, text in tables_in(turn.state, hidden_fields(state_type)).items():
        if wanted and name not in wanted:
            continue
        pairs: list[tuple[str, str]] = []
        names: dict[str, None] = {}
        for line in map(json.loads, text.split("\n")):
            if isinstance(line, dict):
                names |= dict.fromkeys(line)
                pairs += [(key, other) for key, tied in line.items() for other in tied]
            elif isinstance(line, list):
                names |= dict.fromkeys(line)
                pairs.append((line[0], line[1]))
        if pairs and all(other in names for _, other in pairs):
            label = fields[name].label if name in fields else _label(name)
            networks.append(
                Network(
                    label=label,
                    names=[*names],
                    pairs=pairs,
                )
            )
    return networks
