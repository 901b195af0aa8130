"""What of a reply's fields is allowed: their own bounds, narrowed by a question's limits.

Limits are checked against the field when a question is asked. What is left of a field is told in
one form, ``narrowed``: to the model as the schema, to servers as a grammar, to people as a form.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from numbers import Integral, Real
from typing import Annotated, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from llmsim_lab._util.checks import plain_number
from llmsim_lab._util.jsontext import SCALARS, all_finite
from llmsim_lab._util.text import closest, text_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._extract import allowed_words
from llmsim_lab.types import Decision, Number, Reply, SchemaMaker, aliases_of, reply_schema

Limits = Mapping[str, Any]
"""By field: ``(lowest, highest)``, a list of the values allowed, or a dict of values and words."""
Schema = Mapping[str, Any]

_NUMBERS = ("integer", "number")
"""The types that a JSON schema has for numbers."""
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
    values: dict[str, tuple[Any, ...]]

    @property
    def words(self) -> Mapping[str, str]:
        """What each field must be."""
        return allowed_words(self.choices, self.ranges)

    def complaint(self, decision: Any) -> str | None:
        """Return what is wrong with a reply's content, in words; None if nothing is."""
        for name, (lowest, highest) in self.ranges.items():
            value = getattr(decision, name)
            # None is an optional field's, or a rule's confidence, which it need not give.
            if value is not None and not lowest <= value <= highest:
                return f"{name} must be {self.words[name]}, and it is {text_of(value)}"
        for name, values in self.values.items():
            value = plain_value(getattr(decision, name))
            if value in values or (value is None and name == "confidence"):
                continue
            numbers = filter(is_number, values if is_number(value) else ())
            if not any(math.isclose(value, number, abs_tol=_CLOSE) for number in numbers):
                return f"{name} must be {self.words[name]}, and it is {value!s:.60}"
        return None


EVERYTHING = Allowed({}, {}, {}, {})


# --- a field with its limits ----------------------------------------------------------------------


def narrowed(part: Schema, known: Mapping[str, Schema], limits: Schema) -> dict[str, Any]:
    """Return a field's schema with its limits; what describes the field stays.

    Args:
        part: the field's schema.
        known: the definitions that it may refer to.
        limits: ``enum``, or ``minimum`` and ``maximum``.
    """
    description = _description(part, known)
    if "enum" in limits:
        return {**description, **limits}
    part = resolved(part, known)
    if "anyOf" not in part:
        return _with_bounds(part, limits)
    alternatives = [resolved(one, known) for one in part["anyOf"]]
    # A number's other form, a text, cannot be bounded.
    kept = [one for one in alternatives if one.get("type") in (*_NUMBERS, "null")]
    bounded = [one if one["type"] == "null" else _with_bounds(one, limits) for one in kept]
    if len(bounded) == 1:
        return {**bounded[0], **description}
    return {**description, "anyOf": bounded} if bounded else _with_bounds(part, limits)


def _with_bounds(part: Schema, limits: Schema) -> dict[str, Any]:
    kept = {name: value for name, value in part.items() if name not in _BOUNDS}
    lowest, highest = limits["minimum"], limits["maximum"]
    if part.get("type") == "integer":
        return {**kept, "minimum": math.ceil(lowest), "maximum": math.floor(highest)}
    return {**kept, "minimum": lowest, "maximum": highest}


def _description(part: Schema, known: Mapping[str, Schema]) -> dict[str, Any]:
    """Return what describes a field: its title, description, examples and what else it says.

    Where the field itself says nothing, its definition does, or what it is if it is not None.
    """
    part = resolved(part, known)
    described: dict[str, Any] = {}
    alternatives = [one for one in part.get("anyOf", ()) if one.get("type") != "null"]
    if len(alternatives) == 1:
        described = _description(alternatives[0], known)
    its_own = {name: value for name, value in part.items() if name not in _RULES}
    return {**described, **its_own}


def resolved(part: Schema, known: Mapping[str, Schema]) -> Schema:
    """Return a part of a schema with the definition that it refers to in its place."""
    if "$ref" not in part:
        return part
    beside = {name: value for name, value in part.items() if name != "$ref"}
    return {**resolved(known[part["$ref"].rpartition("/")[2]], known), **beside}


# --- a class's fields -----------------------------------------------------------------------------


class _FieldSchemas(SchemaMaker):
    """Makes schemas that have what JSON schemas cannot say too, as ``core``: for us alone."""

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        number: dict[str, Any] = super().decimal_schema(schema)["anyOf"][0]
        return {**number, "core": schema}

    def date_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().date_schema(schema), "core": schema}

    def datetime_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().datetime_schema(schema), "core": schema}

    def time_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().time_schema(schema), "core": schema}

    def timedelta_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().timedelta_schema(schema), "core": schema}


@lru_cache(maxsize=1024)
def definitions_of(reply: type[Decision]) -> Mapping[str, Schema]:
    """Return the definitions that the schemas of a reply's fields refer to."""
    definitions: Mapping[str, Schema] = _schema_of(reply).get("$defs", {})
    return definitions


@lru_cache(maxsize=1024)
def fields_of(reply: type[Decision]) -> dict[str, Schema]:
    """Return the schemas of a reply's fields, with the definitions that they refer to in place."""
    known = definitions_of(reply)
    properties = _schema_of(reply)["properties"]
    names = {alias: name for name, alias in aliases_of(reply).items()}
    fields: dict[str, Schema] = {}
    for alias, part in properties.items():
        name = names.get(alias, alias)
        field = resolved(part, known)
        if "anyOf" in field:
            alternatives = [resolved(one, known) for one in field["anyOf"]]
            field = {**field, "anyOf": alternatives}
        fields[name] = field
    return fields


# Kept, since a schema takes much longer to make than an answer to validate.
_schema_of = lru_cache(maxsize=1024)(partial(reply_schema, maker=_FieldSchemas))


@lru_cache(maxsize=1024)
def own_limits(reply: type[Decision]) -> Mapping[str, tuple[Number, Number] | list[Any]]:
    """Return what a reply's fields allow by themselves, as far as they say."""
    limits: dict[str, tuple[Number, Number] | list[Any]] = {}
    for name, part in fields_of(reply).items():
        if name in Reply.model_fields:
            continue
        if "enum" in part:
            limits[name] = list(part["enum"])
        elif _numbers_in(part):
            lowest, highest = own_range(part)
            if math.isfinite(lowest) and math.isfinite(highest):
                limits[name] = lowest, highest
    return limits


def _alternatives(part: Schema) -> list[Schema]:
    """Return what a field may be if it is not None."""
    return [one for one in part.get("anyOf", [part]) if one.get("type") != "null"]


def _numbers_in(part: Schema) -> list[Schema]:
    """Return the schemas of a field of numbers; none if it may be something else than a number."""
    alternatives = _alternatives(part)
    are_numbers = all(one.get("type") in _NUMBERS for one in alternatives)
    return alternatives if are_numbers else []


def _values_in(part: Schema) -> list[Any]:
    """Return the values of a field that names them all, None too; else none."""
    values: list[Any] = []
    for one in part.get("anyOf", [part]):
        if one.get("type") == "null":
            values.append(None)
        elif "enum" in one:
            values += one["enum"]
        elif "const" in one:
            values.append(one["const"])
        else:
            return []
    return values


def own_range(part: Schema) -> tuple[Number, Number]:
    """Return the bounds of a field of numbers; infinite where it has none."""
    if "anyOf" not in part:
        return _bounds_of(part)
    ranges = [_bounds_of(one) for one in _numbers_in(part)]
    # Of several kinds of numbers pydantic says the bounds in its own words.
    around = {its: part[ours] for its, ours in _OF_SEVERAL.items() if ours in part}
    lowest, highest = _bounds_of(around)
    lowest = max(lowest, min(low for low, _ in ranges))
    return lowest, min(highest, max(high for _, high in ranges))


_OF_SEVERAL = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
}


def _bounds_of(part: Schema) -> tuple[Number, Number]:
    """Return the bounds of one kind of number."""
    is_whole = part.get("type") == "integer"
    lowest = part.get("minimum", -math.inf)
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
    part: Schema
    given: Any

    @property
    def field(self) -> str:
        return f"{self.reply.__name__}.{self.name}"


def allowed_of(player: str, reply: type[Decision], limits: Limits) -> Allowed:
    """Return what a reply's fields allow, narrowed by a question's limits.

    Args:
        player: who is asked, for messages.
        reply: the class of the answer.
        limits: by field.

    Raises:
        ConfigError: there is no such field, it cannot be limited so, it does not know a value, or
            nothing is left to answer.
    """
    fields = fields_of(reply)
    allowed = Allowed({}, {}, {}, {})
    for name, given in limits.items():
        if name not in fields:
            raise ConfigError(
                f"limits name {name!r}{closest(str(name), fields)}, which {reply.__name__} lacks; "
                f"{player} is asked for {', '.join(fields)}"
            )
        limit = _Limit(player, reply, name, fields[name], given)
        if not _is_range(limit):
            _list_values(limit, allowed)
        elif values := _values_in(limit.part):
            allowed.choices[name] = allowed.values[name] = _values_within(limit, values)
        else:
            allowed.ranges[name] = _range_within(limit)
    return allowed


def _is_range(limit: _Limit) -> bool:
    """Return True if a limit is a pair of numbers, for a field of numbers.

    Raises:
        ConfigError: it is a pair, but not of numbers, or the field holds something else.
    """
    given, part = limit.given, limit.part
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    too_large = [end for end in given if is_number(end) and _is_too_large(end)]
    if too_large:
        raise ConfigError(
            f"limits of {limit.name} for {limit.player} have an end at {too_large[0]!s:.20}…, "
            "which is beyond all floats; give a number below 1.8e308"
        )
    wrong_ends = [end for end in given if not is_number(end) or math.isnan(end)]
    named_numbers = [value for value in _values_in(part) if is_number(value)]
    if _numbers_in(part) or named_numbers:
        if wrong_ends:
            raise ConfigError(
                f"limits of {limit.name} for {limit.player} are {given!r:.80}; of a number such as "
                f"{limit.field} a pair is the lowest and the highest, and {wrong_ends[0]!r:.40} is "
                f"not a number: write limits={{{limit.name!r}: {_example(limit)}}}, or a list"
            )
        return True
    if not wrong_ends or any(isinstance(end, dt.date | dt.time | dt.timedelta) for end in given):
        raise ConfigError(
            f"limits of {limit.name} for {limit.player} are {given!r:.80}; only a field of numbers "
            f"has a range, and {limit.field} holds something else; list the values allowed: "
            f"limits={{{limit.name!r}: [...]}}"
        )
    return False


def _is_too_large(number: Any) -> bool:
    """Return True for a number that no float can hold; infinite ones are there."""
    try:
        float(number)
    except OverflowError:
        return True
    return False


def _example(limit: _Limit) -> str:
    """Return a range as it is written: with the ends that are numbers, or else the field's own."""
    lowest, highest = own_range(limit.part) if _numbers_in(limit.part) else (-math.inf, math.inf)
    first, last = limit.given
    if is_number(first) and math.isfinite(first):
        lowest = first
    elif math.isinf(lowest):
        lowest = min(0, highest)
    if is_number(last) and math.isfinite(last):
        highest = last
    elif math.isinf(highest):
        highest = max(0, lowest) + 10
    return f"({lowest:g}, {highest:g})"


def _values_within(limit: _Limit, values: list[Any]) -> tuple[Any, ...]:
    """Return those of a field's values that are in a range; None stays."""
    first, last = limit.given
    kept = [value for value in values if value is None or first <= value <= last]
    if not any(is_number(value) for value in kept):
        raise ConfigError(
            f"limits of {limit.name} leave {limit.player} nothing: {limit.field} is one of "
            f"{', '.join(map(str, values))}, and none is from {first:g} to {last:g}; do not ask a "
            "player who has no choice"
        )
    return tuple(kept)


def _range_within(limit: _Limit) -> tuple[Number, Number]:
    """Return the narrower of a field's own bounds and those given, rounded inwards."""
    name, player, part = limit.name, limit.player, limit.part
    first, last = map(plain_value, limit.given)
    lowest, highest = own_range(part)
    lowest, highest = max(first, lowest), min(last, highest)
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise ConfigError(
            f"{name} for {player} has no bound on one side: from {lowest:g} to {highest:g}; give "
            f"both, limits={{{name!r}: (lowest, highest)}}, or Field(ge=..., le=...)"
        )
    kinds = _numbers_in(part)
    is_whole = all(kind["type"] == "integer" for kind in kinds)
    if is_whole:
        lowest, highest = math.ceil(lowest), math.floor(highest)
    elif any("core" in kind for kind in kinds):
        lowest, highest = Decimal(str(lowest)), Decimal(str(highest))
    else:
        lowest, highest = json_number(lowest), json_number(highest)
    step = kinds[0].get("multipleOf") if len(kinds) == 1 else None
    places = kinds[0].get("core", {}).get("decimal_places")
    if step is None and places is not None:
        step = Decimal(1).scaleb(-places)
    if lowest > highest or (step and not _has_multiple(step, lowest, highest)):
        whole_numbers = " in whole numbers" if is_whole else ""
        steps = f" in steps of {step:g}" if step else ""
        raise ConfigError(
            f"limits of {name} leave {player} nothing: from {lowest:g} to {highest:g}"
            f"{whole_numbers}{steps}; do not ask a player who has no choice"
        )
    return lowest, highest


def _has_multiple(step: Number, lowest: Number, highest: Number) -> bool:
    # As decimals, since 0.3 / 0.1 is below 3 in floats.
    width = Decimal(str(step))
    return math.ceil(Decimal(str(lowest)) / width) <= math.floor(Decimal(str(highest)) / width)


def _list_values(limit: _Limit, allowed: Allowed) -> None:
    """Add the values that a question lists of a field, each checked against the field."""
    name, given = limit.name, limit.given
    is_list = isinstance(given, tuple | list | Mapping) and bool(given)
    if not is_list or limit.part.get("type") in ("array", "object"):
        raise ConfigError(
            f"limits of {name} for {limit.player} are {given!r:.60}; give (lowest, highest) of a "
            "number, or a list of values for a field that holds one"
        )
    values = list(given)
    if not SCALARS.issuperset(map(type, values)):
        values = [plain_value(value) for value in values]
    allowed.values[name] = _read_values(limit, values)
    allowed.choices[name] = tuple(values)
    if isinstance(given, Mapping):
        allowed.wording[name] = given


def _read_values(limit: _Limit, values: list[Any]) -> tuple[Any, ...]:
    """Return values as the reply's class reads them.

    Raises:
        ConfigError: the field does not take one of them, or it is of another type.
    """
    try:
        read = _reader(limit.reply, limit.name)(values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise _foreign(limit, values[int(fault["loc"][0])], fault["msg"]) from None
    if _all_plain_numbers(values) and _all_plain_numbers(read):
        return tuple(read)  # as most are, where a world asks each turn within another grid
    read = [plain_value(one) for one in read]
    for value, taken in zip(values, read, strict=True):
        kind, wanted = _kind(value), _kind(taken)
        stands_for_it = kind == "text" and wanted not in ("number", "truth value")  # as for a date
        if kind != wanted and not stands_for_it:
            raise _foreign(limit, value, f"a {kind} is not a {wanted}")
        if not all_finite(taken):
            raise _foreign(limit, value, "it is not finite")
    return tuple(read)


def _all_plain_numbers(values: list[Any]) -> bool:
    """Return True if all values are finite floats, or all Python's integers."""
    kinds = set(map(type, values))
    return kinds == {int} or (kinds == {float} and all(map(math.isfinite, values)))


@lru_cache(maxsize=1024)
def _reader(reply: type[Decision], name: str) -> Any:
    """Return what reads a list of values of a field."""
    field = reply.model_fields[name]
    return TypeAdapter(list[Annotated[field.annotation, field]]).validate_python  # type: ignore[name-defined]


def _foreign(limit: _Limit, value: Any, why: str) -> ConfigError:
    return ConfigError(
        f"limits of {limit.name} for {limit.player} allow {value!r:.60}, which {limit.field} does "
        f"not take: {why}; list values of the field alone"
    )


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth value"
    if is_number(value):
        return "number"
    return "text" if isinstance(value, str) else type(value).__name__


# --- numbers --------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Return True if a value is a number: Python's, numpy's, a Decimal or a Fraction."""
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def plain_value(value: Any) -> Any:
    """Return an enumeration's value, and a number of numpy's as one of Python's."""
    if isinstance(value, Enum):
        return value.value
    if type(value) in SCALARS:
        return value
    value = plain_number(value)
    if type(value) in SCALARS or not isinstance(value, Real):  # this last, as it takes long
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def json_number(value: Any) -> Any:
    """Return a Decimal as a number that JSON has; anything else as it is."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == value.to_integral_value() else float(value)
