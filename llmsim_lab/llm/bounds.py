"""What of a reply's fields is allowed: their own bounds, narrowed by a question's limits.

Limits are checked against the field when a question is asked. What is left of a field is told in
one form, ``narrowed``: to the model as the schema, to servers as a grammar, to people as a form.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from numbers import Integral, Real
from typing import Annotated, Any, NamedTuple, TypeGuard

from pydantic import TypeAdapter, ValidationError
from pydantic_core import core_schema

from llmsim_lab._util.checks import plain_number
from llmsim_lab._util.jsontext import JSON, SCALARS, Schema, all_finite
from llmsim_lab._util.schemas import NUMBERS, alternatives, not_null, resolved, values_of
from llmsim_lab._util.text import brief, closest, text_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.extract import allowed_words
from llmsim_lab.types import Decision, Number, Reply, SchemaMaker, aliases_of, reply_schema

Limits = Mapping[str, Any]
"""By field: ``(lowest, highest)``, a list of the values allowed, or a dict of values and words."""

_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
_RULES = _BOUNDS | frozenset(
    (
        *("type", "enum", "const", "format", "pattern", "multipleOf", "minLength", "maxLength"),
        *("anyOf", "oneOf", "allOf", "not", "$ref", "discriminator"),
        *("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
        *("properties", "required", "x-required", "additionalProperties", "propertyNames"),
    )
)
"""Members of a schema that say what a value must be; all others describe it."""
_CLOSE = 1e-9
"""A model writes 0.1 + 0.2 as 0.3, which is not the float that a grid was computed to."""


class Allowed(NamedTuple):
    """What of some fields is allowed.

    Attributes:
        choices: the only values, for the schema.
        ranges: the lowest and highest number.
        wording: what each value is called where it is chosen by probabilities.
        values: the choices as the reply's class reads them.
    """

    choices: dict[str, tuple[Any, ...]]
    ranges: dict[str, tuple[Number, Number]]
    wording: dict[str, Mapping[Any, str]]
    values: dict[str, tuple[object, ...]]

    @property
    def words(self) -> Mapping[str, str]:
        """What each field must be."""
        return allowed_words(self.choices, self.ranges)

    def complaint(self, decision: object) -> str | None:
        """Return what is wrong with a reply's content, in words; None if nothing is."""
        for name, (lowest, highest) in self.ranges.items():
            value = getattr(decision, name)
            # None is an optional field's, or a rule's confidence, which it need not give.
            if value is not None and not lowest <= value <= highest:
                return f"{name} must be {self.words[name]}, and it is {text_of(value)}"
        for name, values in self.values.items():
            value = plain_value(getattr(decision, name))
            # A rule need not say how sure it is.
            may_be_missing = value is None and name == "confidence"
            is_allowed = may_be_missing or value in values or _is_close(value, values)
            if not is_allowed:
                return f"{name} must be {self.words[name]}, and it is {value!s:.60}"
        return None


EVERYTHING = Allowed({}, {}, {}, {})


def _is_close(value: object, values: Sequence[object]) -> bool:
    """Return True if a value is a number that is almost one of the values."""
    if not is_number(value):
        return False
    numbers = filter(is_number, values)
    return any(math.isclose(value, number, abs_tol=_CLOSE) for number in numbers)


# --- a field with its limits ----------------------------------------------------------------------


def narrowed(
    part: Schema,
    root: Schema,
    limits: Schema,
) -> dict[str, Any]:
    """Return a field's schema with its limits; what describes the field stays.

    Args:
        part: the field's schema.
        root: the whole schema, with the definitions that the field may refer to.
        limits: ``enum``, or ``minimum`` and ``maximum``.
    """
    description = _description(part, root)
    if "enum" in limits:
        # The values say the type, and whatever other rules the field has were checked.
        return {**description, **limits}
    part = resolved(part, root)
    bounded: list[dict[str, Any]] = []
    for alternative in alternatives(part, root):
        if alternative.get("type") == "null":
            bounded.append(dict(alternative))
        # A number's other form, a text, cannot be bounded.
        elif alternative.get("type") in NUMBERS:
            bounded.append(_with_bounds(alternative, limits))
    if not bounded:
        return _with_bounds(part, limits)
    if len(bounded) == 1:
        return {**bounded[0], **description}
    return {**description, "anyOf": bounded}


def _with_bounds(part: Schema, limits: Schema) -> dict[str, Any]:
    bounded = {name: value for name, value in part.items() if name not in _BOUNDS}
    bounded["minimum"] = limits["minimum"]
    bounded["maximum"] = limits["maximum"]
    if part.get("type") == "integer":
        bounded["minimum"] = math.ceil(limits["minimum"])
        bounded["maximum"] = math.floor(limits["maximum"])
    return bounded


def _description(part: Schema, root: Schema) -> dict[str, Any]:
    """Return what describes a field: its title, description, examples and what else it says.

    Where the field itself says nothing, its definition does, or what it is if it is not None.
    """
    part = resolved(part, root)
    described: dict[str, Any] = {}
    kinds = not_null(alternatives(part, root))
    if len(kinds) == 1:
        described = _description(kinds[0], root)
    for name, value in part.items():
        if name not in _RULES:
            described[name] = value
    return described


# --- a class's fields -----------------------------------------------------------------------------


class _FieldSchemas(SchemaMaker):
    """Makes schemas that have what JSON schemas cannot say too, as ``core``: for us alone."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> dict[str, Any]:
        number: dict[str, Any] = super().decimal_schema(schema)["anyOf"][0]
        return {**number, "core": schema}

    def date_schema(self, schema: core_schema.DateSchema) -> dict[str, Any]:
        return {**super().date_schema(schema), "core": schema}

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> dict[str, Any]:
        return {**super().datetime_schema(schema), "core": schema}

    def time_schema(self, schema: core_schema.TimeSchema) -> dict[str, Any]:
        return {**super().time_schema(schema), "core": schema}

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> dict[str, Any]:
        return {**super().timedelta_schema(schema), "core": schema}


# Kept, since a schema takes much longer to make than an answer to validate.
@lru_cache(maxsize=1024)
def field_schemas(reply: type[Decision]) -> Schema:
    """Return the schema of a reply, with the definitions that its fields refer to."""
    return reply_schema(reply, maker=_FieldSchemas)


@lru_cache(maxsize=1024)
def fields_of(reply: type[Decision]) -> dict[str, Schema]:
    """Return the schemas of a reply's fields, with the definitions that they refer to in place."""
    root = field_schemas(reply)
    names = {alias: name for name, alias in aliases_of(reply).items()}
    fields: dict[str, Schema] = {}
    for alias, part in root["properties"].items():
        field = resolved(part, root)
        if "anyOf" in field:
            field = {**field, "anyOf": alternatives(field, root)}
        fields[names.get(alias, alias)] = field
    return fields


@dataclass(frozen=True, slots=True)
class _Field:
    """What a reply's field allows by itself; read once, and not for each player's limits.

    Attributes:
        name: as in ``Gift.amount``.
        part: its schema.
        values: all that it may be, where it names them; None is one of them where it may be that.
        numbers: the schemas of a field of numbers; none if it may be something else.
        lowest: of the numbers; infinite where it has no bound.
        highest: likewise.
        step: what the numbers are multiples of, if they are.
    """

    name: str
    part: Schema
    values: Sequence[JSON]
    numbers: Sequence[Schema]
    lowest: Number = -math.inf
    highest: Number = math.inf
    step: Number | None = None

    @property
    def takes_range(self) -> bool:
        """Whether numbers are among what it may be, so that a question may bound them."""
        return bool(self.numbers) or any(is_number(value) for value in self.values)


@lru_cache(maxsize=1024)
def _fields(reply: type[Decision]) -> Mapping[str, _Field]:
    """Return what each field of a reply allows by itself."""
    fields: dict[str, _Field] = {}
    for name, part in fields_of(reply).items():
        field = _Field(
            name=f"{reply.__name__}.{name}",
            part=part,
            values=values_of(_kinds_of(part)),
            numbers=_numbers_in(part),
        )
        if field.numbers:
            lowest, highest = own_range(part)
            step = _step_of(field.numbers)
            field = replace(
                field,
                lowest=lowest,
                highest=highest,
                step=step,
            )
        fields[name] = field
    return fields


@lru_cache(maxsize=1024)
def own_limits(reply: type[Decision]) -> Mapping[str, tuple[Number, Number] | list[Any]]:
    """Return what a reply's fields allow by themselves, as far as they say."""
    limits: dict[str, tuple[Number, Number] | list[Any]] = {}
    for name, field in _fields(reply).items():
        if name in Reply.model_fields or "const" in field.part:
            continue
        if "enum" in field.part:
            limits[name] = list(field.part["enum"])
        elif field.numbers:
            # A range with one end is none that a rule could draw from.
            is_bounded = math.isfinite(field.lowest) and math.isfinite(field.highest)
            if is_bounded:
                limits[name] = (field.lowest, field.highest)
    return limits


def _kinds_of(part: Schema) -> Sequence[Schema]:
    """Return the alternatives of one of ``fields_of``, or the field itself where it has none."""
    kinds: Sequence[Schema] = part.get("anyOf", (part,))
    return kinds


def _numbers_in(part: Schema) -> list[Schema]:
    """Return the schemas of a field of numbers; none if it may be something else than a number."""
    kinds = not_null(_kinds_of(part))
    if all(kind.get("type") in NUMBERS for kind in kinds):
        return kinds
    return []


def own_range(part: Schema) -> tuple[Number, Number]:
    """Return the bounds of a field of numbers; infinite where it has none."""
    if "anyOf" not in part:
        return _bounds_of(part)
    # What fits one kind is allowed, so the widest of their ranges counts.
    ranges = [_bounds_of(kind) for kind in _numbers_in(part)]
    # Of several kinds of numbers pydantic says the bounds in its own words.
    of_all = {name: part[word] for word, name in _PYDANTIC_BOUNDS.items() if word in part}
    lowest, highest = _bounds_of(of_all)
    lowest_of_kinds = min(low for low, _ in ranges)
    highest_of_kinds = max(high for _, high in ranges)
    return max(lowest, lowest_of_kinds), min(highest, highest_of_kinds)


_PYDANTIC_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}


def _bounds_of(part: Schema) -> tuple[Number, Number]:
    """Return the bounds of one kind of number."""
    is_whole = part.get("type") == "integer"
    lowest = part.get("minimum", -math.inf)
    # The next number that there is, so that all ranges include their ends from here on.
    if "exclusiveMinimum" in part:
        above = part["exclusiveMinimum"]
        lowest = above + 1 if is_whole else math.nextafter(above, math.inf)
    highest = part.get("maximum", math.inf)
    if "exclusiveMaximum" in part:
        below = part["exclusiveMaximum"]
        highest = below - 1 if is_whole else math.nextafter(below, -math.inf)
    return lowest, highest


# --- a question's limits --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Limit:
    """What a question allows of one field, for messages too."""

    player: str
    reply: type[Decision]
    name: str
    field: _Field
    allowed: Any
    """As the question says it: a pair, a list, or a dict of values and words."""

    def foreign(self, value: object, reason: str) -> ConfigError:
        """Return the error about a value that the field does not take."""
        return ConfigError(
            f"limits of {self.name} for {self.player} allow {brief(value)}, which "
            f"{self.field.name} does not take: {reason}; list values of the field alone"
        )


def allowed_of(
    player: str,
    reply: type[Decision],
    limits: Limits,
) -> Allowed:
    """Return what a reply's fields allow, narrowed by a question's limits.

    Args:
        player: who is asked, for messages.
        reply: the class of the answer.
        limits: by field.

    Raises:
        ConfigError: there is no such field, it cannot be limited so, it does not know a value, or
            nothing is left to answer.
    """
    fields = _fields(reply)
    allowed = Allowed({}, {}, {}, {})
    for name, limited_to in limits.items():
        if name not in fields:
            raise ConfigError(
                f"limits name {name!r}{closest(str(name), fields)}, which {reply.__name__} lacks; "
                f"{player} is asked for {', '.join(fields)}"
            )
        limit = _Limit(player, reply, name, fields[name], limited_to)
        if not _is_range(limit):
            allowed.choices[name], allowed.values[name] = _listed_values(limit)
            if isinstance(limited_to, Mapping):
                allowed.wording[name] = limited_to
        elif limit.field.values:
            allowed.choices[name] = _values_within(limit)
            allowed.values[name] = allowed.choices[name]
        else:
            allowed.ranges[name] = _range_within(limit)
    return allowed


def _is_range(limit: _Limit) -> bool:
    """Return True if a limit is a pair of numbers, for a field of numbers.

    Raises:
        ConfigError: it is a pair, but not of numbers, or the field holds something else.
    """
    ends = limit.allowed
    if not isinstance(ends, tuple) or len(ends) != 2:
        return False
    # Python's whole numbers have no largest one, and bounds are compared as floats.
    too_large = [end for end in ends if is_number(end) and _is_too_large(end)]
    if too_large:
        raise ConfigError(
            f"limits of {limit.name} for {limit.player} have an end at {too_large[0]!s:.20}…, "
            "which is beyond all floats; give a number below 1.8e308"
        )
    wrong_ends = [end for end in ends if not is_number(end) or math.isnan(end)]
    if limit.field.takes_range:
        if wrong_ends:
            raise ConfigError(
                f"limits of {limit.name} for {limit.player} are {brief(ends, 80)}; of a number "
                f"such as {limit.field.name} a pair is the lowest and the highest, and "
                f"{brief(wrong_ends[0], 40)} is not a number: write limits={{{limit.name!r}: "
                f"{_example(limit)}}}, or a list"
            )
        return True
    # Two values of any other field are a list of what is allowed; two times are meant as a range.
    has_times = any(isinstance(end, dt.date | dt.time | dt.timedelta) for end in ends)
    if not wrong_ends or has_times:
        raise ConfigError(
            f"limits of {limit.name} for {limit.player} are {brief(ends, 80)}; only a field of "
            f"numbers has a range, and {limit.field.name} holds something else; list the values "
            f"allowed: limits={{{limit.name!r}: [...]}}"
        )
    return False


def _is_too_large(number: Number) -> bool:
    """Return True for a number that no float can hold; infinite ones are there."""
    try:
        float(number)
    except OverflowError:
        return True
    return False


def _example(limit: _Limit) -> str:
    """Return a range as it is written: with the ends that are numbers, or else the field's own."""
    lowest = limit.field.lowest
    highest = limit.field.highest
    first, last = limit.allowed
    if is_number(first) and math.isfinite(first):
        lowest = first
    elif math.isinf(lowest):
        lowest = min(0, highest)
    if is_number(last) and math.isfinite(last):
        highest = last
    elif math.isinf(highest):
        highest = max(0, lowest) + 10
    return f"({lowest:g}, {highest:g})"


def _values_within(limit: _Limit) -> tuple[JSON, ...]:
    """Return those of a field's values that are in a range; None stays."""
    first, last = limit.allowed
    values = limit.field.values
    allowed = [value for value in values if value is None or first <= value <= last]
    if not any(is_number(value) for value in allowed):
        raise ConfigError(
            f"limits of {limit.name} leave {limit.player} nothing: {limit.field.name} is one of "
            f"{', '.join(map(str, values))}, and none is from {first:g} to {last:g}; do not ask a "
            "player who has no choice"
        )
    return tuple(allowed)


def _range_within(limit: _Limit) -> tuple[Number, Number]:
    """Return the narrower of a field's own bounds and those given, rounded inwards."""
    first, last = limit.allowed
    field = limit.field
    lowest: Number = max(plain_value(first), field.lowest)
    highest: Number = min(plain_value(last), field.highest)
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise ConfigError(
            f"{limit.name} for {limit.player} has no bound on one side: from {lowest:g} to "
            f"{highest:g}; give both, limits={{{limit.name!r}: (lowest, highest)}}, or "
            "Field(ge=..., le=...)"
        )
    is_whole = all(kind["type"] == "integer" for kind in field.numbers)
    if is_whole:
        lowest = math.ceil(lowest)
        highest = math.floor(highest)
    elif any("core" in kind for kind in field.numbers):
        # By its digits: Decimal(0.1) itself is 0.1000000000000000055…
        lowest = Decimal(str(lowest))
        highest = Decimal(str(highest))
    else:
        lowest = json_number(lowest)
        highest = json_number(highest)
    is_empty = lowest > highest
    if field.step and not is_empty:
        is_empty = not _has_multiple(field.step, lowest, highest)
    if is_empty:
        whole_numbers = " in whole numbers" if is_whole else ""
        steps = f" in steps of {field.step:g}" if field.step else ""
        raise ConfigError(
            f"limits of {limit.name} leave {limit.player} nothing: from {lowest:g} to {highest:g}"
            f"{whole_numbers}{steps}; do not ask a player who has no choice"
        )
    return lowest, highest


def _step_of(kinds: Sequence[Schema]) -> Number | None:
    """Return what a field's numbers are multiples of: as it says, or as its decimal places do."""
    first = kinds[0]
    if len(kinds) == 1 and "multipleOf" in first:
        step: Number = first["multipleOf"]
        return step
    places = first.get("core", {}).get("decimal_places")
    if places is None:
        return None
    return Decimal(1).scaleb(-places)


def _has_multiple(
    step: Number,
    lowest: Number,
    highest: Number,
) -> bool:
    # As decimals, since 0.3 / 0.1 is below 3 in floats.
    width = Decimal(str(step))
    first = math.ceil(Decimal(str(lowest)) / width)
    last = math.floor(Decimal(str(highest)) / width)
    return first <= last


def _listed_values(limit: _Limit) -> tuple[tuple[Any, ...], tuple[object, ...]]:
    """Return the values that a question lists of a field, as listed and as the class reads them.

    Raises:
        ConfigError: they are not a list of values, or the field does not take one of them.
    """
    is_list = isinstance(limit.allowed, (tuple, list, Mapping)) and bool(limit.allowed)
    if not is_list or limit.field.part.get("type") in ("array", "object"):
        raise ConfigError(
            f"limits of {limit.name} for {limit.player} are {brief(limit.allowed)}; give (lowest, "
            "highest) of a number, or a list of values for a field that holds one"
        )
    values = list(limit.allowed)
    if not SCALARS.issuperset(map(type, values)):
        values = [plain_value(value) for value in values]
    return tuple(values), _read_values(limit, values)


def _read_values(
    limit: _Limit,
    values: Sequence[object],
) -> tuple[object, ...]:
    """Return values as the reply's class reads them.

    Raises:
        ConfigError: the field does not take one of them, or it is of another type.
    """
    try:
        read = _reader(limit.reply, limit.name)(values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        # The first part of its place is the number of the value in the list.
        wrong = values[int(fault["loc"][0])]
        raise limit.foreign(wrong, fault["msg"]) from None
    if _all_plain_numbers(values) and _all_plain_numbers(read):
        return tuple(read)  # as most are, where a world asks each turn within another grid
    read = [plain_value(value) for value in read]
    for value, read_value in zip(values, read, strict=True):
        kind = _kind(value)
        wanted = _kind(read_value)
        # As a text does for a date.
        stands_for_it = kind == "text" and wanted not in ("number", "truth value")
        # Pydantic reads "3" as 3 and true as 1, which is not what a limit should say.
        if kind != wanted and not stands_for_it:
            raise limit.foreign(value, f"a {kind} is not a {wanted}")
        if not all_finite(read_value):
            raise limit.foreign(value, "it is not finite")
    return tuple(read)


def _all_plain_numbers(values: Sequence[Any]) -> bool:
    """Return True if all values are finite floats, or all Python's integers."""
    types = set(map(type, values))
    if types == {float}:
        return all(map(math.isfinite, values))
    return types == {int}


@lru_cache(maxsize=1024)
def _reader(
    reply: type[Decision],
    name: str,
) -> Callable[[Sequence[object]], list[object]]:
    """Return what reads a list of values of a field."""
    # With all that the field says of itself: as in a reply, so that limits mean the same.
    field = reply.model_fields[name]
    return TypeAdapter(list[Annotated[field.annotation, field]]).validate_python  # type: ignore[name-defined]


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "truth value"
    if is_number(value):
        return "number"
    if isinstance(value, str):
        return "text"
    return type(value).__name__


# --- numbers --------------------------------------------------------------------------------------


def is_number(value: object) -> TypeGuard[Number]:
    """Return True if a value is a number: Python's, numpy's, a Decimal or a Fraction."""
    if type(value) is float or type(value) is int:  # most are, and the check below takes long
        return True
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def plain_value(value: Any) -> Any:
    """Return an enumeration's value, and a number of numpy's as one of Python's."""
    if isinstance(value, Enum):
        return value.value
    if type(value) in SCALARS:
        return value
    value = plain_number(value)
    # Asked last, since it takes long: a Fraction is a Real too.
    if type(value) in SCALARS or not isinstance(value, Real):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value)


def json_number(value: Any) -> Any:
    """Return a Decimal as a number that JSON has; anything else as it is."""
    if not isinstance(value, Decimal):
        return value
    if value == value.to_integral_value():
        return int(value)
    return float(value)
