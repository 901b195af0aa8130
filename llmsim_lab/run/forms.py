"""Forms for values that JSON schemas describe, as the front end draws them and as they come back.

A field is a place in nested values, a label in people's words, help, its schema and its value. The
browser sends what was changed, nested by place; texts that were typed are read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from itertools import islice
from typing import Any, get_args

from pydantic import BaseModel

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.fields import field_fault, field_of, field_words, typed_value
from llmsim_lab.llm.form import bounds_words
from llmsim_lab.run.charts import name_in_words

Field = dict[str, Any]

_KINDS = {"integer", "number", "string", "boolean"}
MOST_FIELDS = 120
MOST_SET = 100
"""Of them numbers of a state."""
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_VAST = 2**53
"""A limit from here on, such as that of a seed, tells a person nothing."""
_NOT_HERE = {"turn", "turns", "interventions", "llm", "name", "replicate"}
"""Of a configuration or an intervention, what a form has no field for."""
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_ATTRIBUTES = re.compile(r"^(?:Args|Attributes):\n((?: {4}.*\n?|\n(?= ))*)", re.MULTILINE)
"""The parts of a docstring that name what there is; not those on errors and results."""


def fields_of(
    schema: Mapping[str, Any],
    values: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    about: Mapping[str, str] | None = None,
) -> list[Field]:
    """Return the fields of a schema: numbers, texts, choices, truth values.

    Args:
        schema: of an object; what its description says of attributes is the fields' help.
        values: what it holds now.
        labels: words for names.
        about: help for names at the top, where the description says none.
    """
    drawn = _fields(
        (),
        schema,
        values,
        schema,
        "",
        about or {},
    )
    fields = list(islice(drawn, MOST_FIELDS))
    for field in fields:
        name = field["place"][-1]
        label = (labels or {}).get(name) or label_of(field["place"], field["schema"])
        field["label"] = _capitalized(label)
    return fields


def documented(cls: type) -> dict[str, str]:
    """Return what a class and its parents say of their parameters and attributes, by name.

    It stands in docstrings, below ``Args:`` or ``Attributes:``, or with a field's description.
    """
    about: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        about |= _about_attributes(cleandoc(vars(base).get("__doc__") or ""))
    for name, field in getattr(cls, "model_fields", {}).items():
        if field.description:
            about[name] = field.description
    return about


def help_of_number(state_type: type, name: str) -> str:
    """Return what a state's class says of one of its numbers, such as ``shock.supply``."""
    help_text = ""
    holder: type | None = state_type
    for part in name.split("."):
        if holder is None:
            break
        field = getattr(holder, "model_fields", {}).get(part)
        help_text = documented(holder).get(part, help_text)
        if field is not None:  # else a key of a dict, whose values are of the same class
            holder = _class_within(field.annotation)
    return help_text


def _class_within(annotation: object) -> type | None:
    """Return the class of what a field holds: of ``dict[str, Firm]`` it is ``Firm``."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def label_of(
    place: Sequence[str],
    part: Mapping[str, Any],
) -> str:
    """Return a place in people's words, or a field's title: ``Coins · Ann`` of ``coins.Ann``."""
    if place[0] == "set":
        field, _, key = place[-1].partition(".")
        place = [part for part in (field, key) if part]
    # Under "*" stands what holds for all players.
    names = ("everybody" if name == "*" else name_in_words(name) for name in place)
    words = " · ".join(names)
    title: str = part.get("title", "")
    # Those that pydantic makes of names say nothing more.
    if title and title.lower() != place[-1].replace("_", " ").lower():
        words = title
    return _capitalized(words)


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]


def _fields(
    place: tuple[str, ...],
    schema: Mapping[str, Any],
    value: Any,
    root: Mapping[str, Any],
    help_text: str,
    about_top: Mapping[str, str],
) -> Iterator[Field]:
    """Yield the fields at a place and within it.

    Args:
        place: the names that lead there.
        schema: of what stands there.
        value: what stands there now.
        root: the whole schema, to which references point.
        help_text: what the part around it says of it.
        about_top: help for names at the top.
    """
    part = field_of(schema, root)
    values = value if isinstance(value, Mapping) else {}
    inner = _inner_schemas(part, values)
    # Its fields would have nothing to start from.
    if value is None and place:
        inner = {}  # a part of the configuration that is not there
    about = _about_attributes(part.get("description", ""))
    for name, inner_schema in inner.items():
        if not place and name in _NOT_HERE:
            continue
        inner_help = about.get(name, "")
        if not place and not inner_help:
            inner_help = about_top.get(name, "")
        # What says how to write a mapping says nothing of a number in it.
        if not inner_help and not about and place != ("set",):
            inner_help = help_text
        yield from _fields(
            (*place, name),
            inner_schema,
            values.get(name),
            root,
            inner_help,
            about_top,
        )
    if place and not inner and _fits(part, value):
        yield {
            "place": [*place],
            "help": _help_of(part, help_text, is_class=bool(about)),
            "schema": {name: rule for name, rule in part.items() if name != "description"},
            "value": _shown(value),
        }


def _inner_schemas(
    part: Mapping[str, Any],
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the schemas of what an object has, by name; of a mapping those of its values."""
    inner = dict(part.get("properties", {}))
    if inner or part.get("type") != "object":
        return inner
    each = part.get("additionalProperties")
    for name in part.get("propertyNames", {}).get("enum", values):
        if isinstance(each, dict):
            inner[name] = each
        elif isinstance(values.get(name), bool):
            inner[name] = {"type": "boolean"}
        else:
            inner[name] = {"type": "number"}
    return inner


def _help_of(
    part: Mapping[str, Any],
    help_text: str,
    *,
    is_class: bool,
) -> str:
    """Return a field's help and, where no list shows what it takes, its limits."""
    # A class's own description does not describe a field.
    if not help_text and not is_class:
        help_text = part.get("description", "")
    sentences = [help_text.rstrip(".")]
    if not part.get("enum") and not _is_plain(part):
        sentences.append(field_words(_without_vast_limits(part)))
    return "; ".join(filter(None, sentences))


def _is_plain(part: Mapping[str, Any]) -> bool:
    """Return True if a control shows what it takes: any text, any number, yes or no."""
    return part.get("type") in ("string", "number", "boolean") and not bounds_words(part)


def _without_vast_limits(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field without limits that nobody reaches, such as that of 64 bits."""
    return {name: rule for name, rule in part.items() if name not in _LIMITS or abs(rule) < _VAST}


def _about_attributes(description: str) -> dict[str, str]:
    """Return what a class's description says of its attributes, by their names."""
    attributes: list[tuple[str, str]] = []
    for section in _ATTRIBUTES.findall(description):
        attributes += _ATTRIBUTE.findall(section)
    return {name: " ".join(words.replace("``", "").split()) for name, words in attributes}


def _shown(value: Any) -> Any:
    """Return a value as a form shows it: no digits of rounding, nothing infinite."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):  # JSON has no word for it
        return None
    return float(f"{value:.15g}")


def _fits(part: Mapping[str, Any], value: Any) -> bool:
    """Return True if there is a field for a value: number, text, choice or truth value."""
    choices = part.get("enum", ())
    is_fixed = len(choices) == 1 and value is not None
    has_field = choices or part.get("type") in _KINDS or "anyOf" in part
    if is_fixed or not has_field:
        return False
    if value in (None, ""):
        return True
    # Its type counts, not its limits: what is there may be outside them, and then be changed.
    return not field_fault(value, _without_limits(part))


def _without_limits(part: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: rule for name, rule in part.items() if name in ("type", "enum")}
    alternatives = [_without_limits(alternative) for alternative in part.get("anyOf", ())]
    if alternatives:
        kept["anyOf"] = alternatives
    return kept


def read_changes(
    fields: Sequence[Field],
    changes: Any,
) -> dict[str, Any]:
    """Return what was changed, nested as the schema is, with typed texts read.

    Raises:
        ConfigError: a value is wrong, or there is no such field.
    """
    by_place = {tuple(field["place"]): field for field in fields}

    # By the fields that were sent, not by the schema: nothing else may be set from a page.
    def read(place: tuple[str, ...], value: Any) -> Any:
        if place in by_place:
            return _read_value(by_place[place], value)
        if not isinstance(value, Mapping):
            raise ConfigError(f"{' · '.join(place) or 'this'} cannot be changed here")
        return {str(name): read((*place, str(name)), inner) for name, inner in value.items()}

    values: dict[str, Any] = read((), changes)
    return values


def _read_value(field: Field, value: Any) -> Any:
    schema = field["schema"]
    # A browser sends texts: of "3" only the schema says whether it is a number.
    if isinstance(value, str) and schema.get("type") != "string":
        value = typed_value(value.strip(), schema)
    fault = field_fault(value, schema)
    if fault:
        raise ConfigError(f"{field['label']} {fault}")
    return value
