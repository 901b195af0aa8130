"""Random players: replies drawn evenly from what is allowed."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any, cast

from pydantic import ValidationError

from llmsim_lab._util.frozen import thawed
from llmsim_lab._util.jsontext import Schema
from llmsim_lab._util.patterns import text_like
from llmsim_lab._util.schemas import resolved, schemas_in
from llmsim_lab._util.text import faults
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.bounds import field_schemas, fields_of, json_number, narrowed, own_range
from llmsim_lab.llm.choice import LABELS
from llmsim_lab.llm.form import FORMATS
from llmsim_lab.run.question import AskedQuestion
from llmsim_lab.types import ChatReply, ChatRequest, Decision, Number, Reply

BY_CHANCE = "A random answer."
"""The reasoning of a random player."""
_MOST_DRAWS = 100
"""Tries for one reply: its class may have rules, such as two fields that add up to 10."""
_DEEPEST = 4
"""How deeply objects may be nested, if the schema allows a shallower one."""
_MORE = 3
"""At most how many items are drawn beyond the fewest allowed."""
_MOST_CHARS = 200
"""The longest text in a reply like a model's, if the schema sets no limit."""
_FORMED = {"enum", "const", "pattern", "format", "contentSchema"}
"""Keywords of a schema that allow only some texts."""


def random_reply(question: AskedQuestion, rng: Random) -> Decision:
    """Return a reply drawn evenly from what is allowed.

    Args:
        question: the question.
        rng: the random numbers.

    Raises:
        ConfigError: no draw was a reply that the class accepts.
    """
    reply = question.batch.reply
    for _ in range(_MOST_DRAWS):
        try:
            return reply(**_drawn_fields(question, rng))
        except ValidationError as error:
            fault = error
    raise ConfigError(
        f"no random {reply.__name__} for {question.player} can be drawn: {faults(fault)}; answer "
        "by a rule, players={'*': 'rule'}, or a function of the question"
    ) from fault


def chance_reply(request: ChatRequest, rng: Random) -> ChatReply:
    """Return a reply that a model might give: one that fits the schema, or the letter of an option.

    Booleans are True where they may be: a yes mostly leads to more questions. Texts are words of
    the prompt, since a class may accept only words of its subject.

    Args:
        request: the request.
        rng: the random numbers.
    """
    if request.top_logprobs:
        share = math.log(1 / len(LABELS))
        return ChatReply(
            text="A",
            top_logprobs=tuple((label, share) for label in LABELS),
        )
    if request.schema is None:
        return ChatReply(text="A")
    schema = thawed(request.schema)
    for part in schemas_in(schema):
        if part.get("type") == "boolean":
            part["const"] = True
        elif part.get("type") == "string" and not part.keys() & _FORMED:
            text = request.prompt[: part.get("maxLength", _MOST_CHARS)]
            part["const"] = text.ljust(part.get("minLength", 0), "m")
    reply = _drawn(schema, schema, rng)
    return ChatReply(text=json.dumps(reply, default=str))


def _drawn_fields(question: AskedQuestion, rng: Random) -> dict[str, object]:
    reply = question.batch.reply
    allowed = question.allowed
    root = field_schemas(reply)
    drawn: dict[str, object] = {}
    if "reasoning" in reply.model_fields:
        drawn["reasoning"] = BY_CHANCE
    for name, part in fields_of(reply).items():
        is_of_every_reply = name in Reply.model_fields
        # The fixed replies of this package must have a confidence; others may leave it out.
        if name in drawn or (is_of_every_reply and not reply.model_fields[name].is_required()):
            continue
        if name in allowed.choices:
            drawn[name] = rng.choice(allowed.choices[name])
            continue
        if name in allowed.ranges:
            lowest, highest = allowed.ranges[name]
            part = _within(reply, name, lowest, highest)
        drawn[name] = _drawn(part, root, rng)
    return drawn


@lru_cache(maxsize=1024)  # cached, since most players of a turn have the same limits
def _within(
    reply: type[Decision],
    name: str,
    lowest: Number,
    highest: Number,
) -> Schema:
    """Return the schema of a numeric field with other bounds."""
    limits = {"minimum": json_number(lowest), "maximum": json_number(highest)}
    return narrowed(
        fields_of(reply)[name],
        field_schemas(reply),
        limits,
    )


def _drawn(
    part: Schema,
    root: Schema,
    rng: Random,
    depth: int = 0,
) -> object:
    """Return a random value that fits a schema, as JSON or Python has it.

    Args:
        part: the schema.
        root: the whole schema, with the definitions that ``part`` may refer to.
        rng: the player's random numbers.
        depth: the number of objects and lists around the value.
    """
    part = resolved(part, root)
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return rng.choice(part["enum"])
    if "anyOf" in part:  # an optional field has its type first, and null second
        alternatives = part["anyOf"]
        if depth > _DEEPEST and {"type": "null"} in alternatives:
            return None
        return _drawn(alternatives[0], root, rng, depth)
    if "oneOf" in part:
        return _drawn(
            rng.choice(part["oneOf"]),
            root,
            rng,
            depth,
        )
    match part.get("type"):
        case "null":
            return None
        case "integer" | "number":
            return _drawn_number(part, rng)
        case "boolean":
            return rng.random() < 0.5
        case "array":
            return _drawn_items(part, root, rng, depth + 1)
        case "object":
            return _drawn_object(part, root, rng, depth + 1)
        case "string" if "contentSchema" in part:
            return json.dumps(
                _drawn(part["contentSchema"], root, rng, depth + 1),
                default=str,
            )
    return _drawn_text(part, rng)


def _drawn_object(
    part: Schema,
    root: Schema,
    rng: Random,
    depth: int,
) -> dict[str, object]:
    drawn: dict[str, object] = {}
    for name, inside in part.get("properties", {}).items():
        drawn[name] = _drawn(inside, root, rng, depth)
    if drawn:
        return drawn
    # A mapping gets the fewest items that it may have.
    fewest = part.get("minProperties", 0)
    # Keys are numbers, in case they have to be: the schema does not say so.
    names = [str(number) for number in range(1, fewest + 1)]
    allowed = resolved(part.get("propertyNames", {}), root).get("enum", ())
    if len(allowed) >= fewest:
        names = rng.sample(allowed, fewest)
    values = part.get("additionalProperties")
    if not isinstance(values, Mapping):  # ``true``, if the class does not say what the values are
        values = {"type": "string"}
    for name in names:
        drawn[name] = _drawn(values, root, rng, depth)
    return drawn


def _drawn_items(
    part: Schema,
    root: Schema,
    rng: Random,
    depth: int,
) -> list[object]:
    first = part.get("prefixItems", [])
    items = [_drawn(item, root, rng, depth) for item in first]
    if first and not part.get("items"):
        return items
    fewest = part.get("minItems", 0)
    most = part.get("maxItems", fewest + _MORE)
    if depth > _DEEPEST:
        most = fewest
    further = part.get("items") or {"type": "string"}
    missing = rng.randint(fewest, most) - len(items)
    return items + [_drawn(further, root, rng, depth) for _ in range(missing)]


def _drawn_number(part: Schema, rng: Random) -> float:
    is_whole = part.get("type") == "integer"
    # A schema has the bounds of a Decimal as floats, too.
    lowest, highest = cast("tuple[float, float]", own_range(part))
    step = part.get("multipleOf")
    width = max(100 if is_whole else 1.0, step or 0)
    if math.isinf(lowest):
        lowest = 0 if highest >= 0 else highest - max(100, width)
    if math.isinf(highest):
        highest = lowest + width
    if step:
        fewest_steps = math.ceil(lowest / step)
        most_steps = math.floor(highest / step)
        drawn = rng.randint(fewest_steps, most_steps) * step
        return int(drawn) if is_whole else float(drawn)
    decimals = part.get("core", {}).get("decimal_places")
    if decimals is not None:
        per_unit = 10**decimals
        fewest = math.ceil(lowest * per_unit)
        most = math.floor(highest * per_unit)
        return float(rng.randint(fewest, most) / per_unit)
    if is_whole:
        return rng.randint(math.ceil(lowest), math.floor(highest))
    return rng.uniform(lowest, highest)


# --- texts ----------------------------------------------------------------------------------------


def _drawn_text(part: Schema, rng: Random) -> object:
    text_format = part.get("format", "")
    core = part.get("core")
    if core is not None:
        return _drawn_time(core, rng)
    if text_format.startswith("uuid"):
        digits = uuid.UUID(int=rng.getrandbits(128), version=4).hex
        version = text_format.removeprefix("uuid") or "4"  # Python makes versions 1 to 5
        return uuid.UUID(f"{digits[:12]}{version}{digits[13:]}")
    if "pattern" in part:
        return _text_like(part, rng)
    if text_format in FORMATS:  # any text of such a format will do
        return FORMATS[text_format]
    text = "random".ljust(part.get("minLength", 0), "m")
    return text[: part.get("maxLength")]


def _text_like(part: Schema, rng: Random) -> str:
    pattern = part["pattern"]
    try:
        return text_like(
            pattern,
            rng,
            shortest=part.get("minLength", 0),
        )
    except ValueError as error:
        raise ConfigError(
            f"no random text can be drawn for the pattern {pattern!r}: {error}; answer by a rule, "
            "players={'*': 'rule'}, or a function of the question"
        ) from error


_FIRST_DAYS = {
    None: dt.date(2000, 1, 1),
    "past": dt.date(1970, 1, 1),
    "future": dt.date(2100, 1, 1),
}
"""The bounds of dates without bounds; future dates are far ahead, since no clock is read."""
_DAYS = dt.timedelta(days=10_000)
_SECOND = dt.timedelta(seconds=1)
_DAY = dt.timedelta(days=1)


def _drawn_time(core: Schema, rng: Random) -> object:
    """Return a date, a time or a duration within the bounds of pydantic's schema ``core``."""
    lowest = core.get("ge", core.get("gt"))
    highest = core.get("le", core.get("lt"))
    if core["type"] == "time":
        return _drawn_time_of_day(
            core,
            lowest or dt.time(0),
            highest or dt.time(23, 59, 59),
            rng,
        )
    start = _start(core)
    if lowest is None:
        lowest = start if highest is None else min(start, highest - _DAYS)
    if highest is None:
        highest = max(lowest, start) + _DAYS
    unit = _DAY if core["type"] == "date" else _SECOND
    return lowest + rng.randint(0, (highest - lowest) // unit) * unit


def _drawn_time_of_day(
    core: Schema,
    first: dt.time,
    last: dt.time,
    rng: Random,
) -> dt.time:
    zone = first.tzinfo or last.tzinfo
    if core.get("tz_constraint") == "aware":
        zone = dt.UTC
    # As times of one day, since plain times cannot be added to.
    start = dt.datetime.combine(
        _FIRST_DAYS[None],
        first,
        dt.UTC,
    )
    end = dt.datetime.combine(
        _FIRST_DAYS[None],
        last,
        dt.UTC,
    )
    drawn = start + rng.randint(0, (end - start) // _SECOND) * _SECOND
    return drawn.time().replace(tzinfo=zone)


def _start(core: Schema) -> Any:
    """Return the least value, if a class names none."""
    if core["type"] == "timedelta":
        return dt.timedelta(0)
    day = _FIRST_DAYS[core.get("now_op")]
    if core["type"] == "date":
        return day
    zone = dt.UTC if core.get("tz_constraint") == "aware" else None
    return dt.datetime.combine(
        day,
        dt.time(0),
        zone,
    )
