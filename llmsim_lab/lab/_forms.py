"""Forms for values that JSON schemas describe, as the front end draws them and as they come back.

A field is a place in nested values, a label in people's words, help, its schema and its value. The
browser sends what was changed, nested by place; texts that were typed are read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.fields import field_fault, field_of, field_words, typed_value

Field = dict[str, Any]

_KINDS = {"integer", "number", "string", "boolean"}
MOST_FIELDS = 120
MOST_SET = 100
"""Of them numbers of a state."""
_NOT_HERE = {"turn", "turns", "interventions", "llm", "name", "replicate"}
"""Of a configuration or an intervention, what a form has no field for."""
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def fields_of(
    schema: Mapping[str, Any], values: Mapping[str, Any], labels: Mapping[str, str] | None = None
) -> list[Field]:
    """Return the fields of a schema: numbers, texts, choices, truth values.

    Args:
        schema: of an object; what its description says of attributes is the fields' help.
        values: what it holds now.
        labels: words for names.
    """
    made = _made((), schema, values, schema, "")
    fields = list(islice(made, MOST_FIELDS))
    for field in fields:
        name = field["place"][-1]
        words = " · ".join(part.replace("_", " ") for part in field["place"])
        # What can be set has its own names.
        own = name if field["place"][0] == "set" else words[:1].upper() + words[1:]
        field["label"] = (labels or {}).get(name) or own
    return fields


def _made(
    place: tuple[str, ...],
    schema: Mapping[str, Any],
    value: Any,
    root: Mapping[str, Any],
    words: str,
) -> Iterator[Field]:
    part = field_of(schema, root)
    given = value if isinstance(value, Mapping) else {}
    inner = dict(part.get("properties", {}))
    if value is None and place:
        inner = {}  # a part of the configuration that is not there
    elif part.get("type") == "object" and not inner:
        each, kinds = part.get("additionalProperties"), {True: "boolean", False: "number"}
        for name in part.get("propertyNames", {}).get("enum", given):
            own = {"type": kinds[isinstance(given.get(name), bool)]}
            inner[name] = each if isinstance(each, dict) else own
    about = _about(part.get("description", ""))
    for name, schema_of_it in inner.items():
        if place or name not in _NOT_HERE:
            # What says how to write a mapping says nothing of a number in it.
            told = about.get(name) or ("" if about or place == ("set",) else words)
            yield from _made((*place, name), schema_of_it, given.get(name), root, told)
    if place and not inner and _fits(part, value):
        limits = field_words(part)
        # A class's own description is no field's.
        help_ = words or ("" if about else part.get("description", ""))
        shown = {name: it for name, it in part.items() if name not in ("description", "$defs")}
        said = "; ".join(filter(None, (help_.rstrip("."), "" if part.get("enum") else limits)))
        yield {"place": [*place], "help": said, "schema": shown, "value": _shown(value)}


def _about(description: str) -> dict[str, str]:
    """Return what a class's description says of its attributes, by their names."""
    found = _ATTRIBUTE.findall(description.partition("Attributes:")[2])
    return {name: " ".join(words.replace("``", "").split()) for name, words in found}


def _shown(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.15g}") if math.isfinite(value) else None


def _fits(part: Mapping[str, Any], value: Any) -> bool:
    """Return True if there is a field for a value: number, text, choice or truth value."""
    kind, choices = part.get("type"), part.get("enum", ())
    is_fixed = len(choices) == 1 and value is not None
    if is_fixed or not (choices or kind in _KINDS or "anyOf" in part):
        return False
    # Its type counts, not its limits: what is there may be outside them, and then be changed.
    return value in (None, "") or not field_fault(value, _without_limits(part))


def _without_limits(part: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: it for name, it in part.items() if name in ("type", "enum")}
    several = [_without_limits(one) for one in part.get("anyOf", ())]
    return kept | ({"anyOf": several} if several else {})


def read_changes(fields: Sequence[Field], changes: Any) -> dict[str, Any]:
    """Return what was changed, nested as the schema is, with typed texts read.

    Raises:
        ConfigError: a value is wrong, or there is no such field.
    """
    known = {tuple(field["place"]): field for field in fields}

    def read(place: tuple[str, ...], value: Any) -> Any:
        if (field := known.get(place)) is None:
            if isinstance(value, Mapping):
                return {str(name): read((*place, str(name)), it) for name, it in value.items()}
            raise ConfigError(f"{' · '.join(place) or 'this'} cannot be changed here")
        schema = field["schema"]
        if isinstance(value, str) and schema.get("type") != "string":
            value = typed_value(value.strip(), schema)
        if fault := field_fault(value, schema):
            raise ConfigError(f"{field['label']} {fault}")
        return value

    found: dict[str, Any] = read((), changes)
    return found
