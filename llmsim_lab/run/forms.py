"""Forms for values with a JSON schema: what the front end draws, and how answers are read.

A field has a place in nested values, a label in words, help, a schema and a value. The browser
sends the values that were changed, nested by place; typed texts are read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from itertools import islice
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from llmsim_lab._util.jsontext import Schema
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.fields import field_fault, field_of, field_words, typed_value
from llmsim_lab.llm.form import bounds_words
from llmsim_lab.run.charts import name_in_words

Field = dict[str, Any]

_KINDS = {"integer", "number", "string", "boolean"}
MOST_FIELDS = 120
MOST_SET = 100
"""How many of these fields may set numbers of a state."""
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_VAST = 2**53
"""A limit of this size, such as that of a seed, does not help a person."""
_NOT_HERE = {"turn", "turns", "interventions", "llm", "name", "replicate"}
"""Parts of a configuration or an intervention that have no field in a form."""
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_ATTRIBUTES = re.compile(r"^(?:Args|Attributes):\n((?: {4}.*\n?|\n(?= ))*)", re.MULTILINE)
"""The parts of a docstring that describe arguments and attributes."""


def fields_of(
    schema: Schema,
    values: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    about: Mapping[str, str] | None = None,
) -> list[Field]:
    """Return the fields of a schema: numbers, texts, choices, booleans.

    Args:
        schema: the schema of an object; the attributes in its description are the fields' help.
        values: the object's values now.
        labels: labels by name.
        about: help by name for fields at the top that the description does not mention.
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
    labels = labels or {}
    for field in fields:
        place = field["place"]
        label = labels.get(place[-1])
        if not label:
            label = label_of(place, field["schema"])
        field["label"] = _capitalized(label)
    return fields


def documented(cls: type) -> dict[str, str]:
    """Return the descriptions of a class's and its parents' parameters and attributes, by name.

    They come from docstrings, below ``Args:`` or ``Attributes:``, and from fields' descriptions.
    """
    about: dict[str, str] = {}
    # The class itself comes last, so that its words replace those of its parents.
    for base in reversed(cls.__mro__):
        docstring = vars(base).get("__doc__") or ""
        about |= _about_attributes(cleandoc(docstring))
    fields: Mapping[str, FieldInfo] = getattr(cls, "model_fields", {})
    for name, field in fields.items():
        if field.description:
            about[name] = field.description
    return about


def help_of_number(state_type: type, name: str) -> str:
    """Return a state's class's description of one of its numbers, such as ``shock.supply``."""
    help_text = ""
    holder: type | None = state_type
    for part in name.split("."):
        if holder is None:
            break
        fields: Mapping[str, FieldInfo] = getattr(holder, "model_fields", {})
        field = fields.get(part)
        help_text = documented(holder).get(part, help_text)
        if field is not None:  # else the part is a key of a dict, and the class of its values stays
            holder = _class_within(field.annotation)
    return help_text


def _class_within(annotation: object) -> type | None:
    """Return the class of a field's values: ``Firm`` for ``dict[str, Firm]``."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def label_of(
    place: Sequence[str],
    part: Schema,
) -> str:
    """Return a place in words, or its field's title: ``Coins · Ann`` for ``coins.Ann``."""
    if place[0] == "set":
        # An intervention names a number in the state, such as coins.Ann.
        field, _, key = place[-1].partition(".")
        place = [field, key] if key else [field]
    # The key "*" has values for all players.
    names = ("everybody" if name == "*" else name_in_words(name) for name in place)
    title: str = part.get("title", "")
    title_of_pydantic = place[-1].replace("_", " ")
    # A title that pydantic made from the name says nothing more.
    if title and title.lower() != title_of_pydantic.lower():
        return _capitalized(title)
    return _capitalized(" · ".join(names))


def _capitalized(words: str) -> str:
    # Not capitalize(), which would make the other letters small.
    first = words[:1]
    return first.upper() + words[1:]


def _fields(
    place: tuple[str, ...],
    schema: Schema,
    value: Any,
    root: Schema,
    help_text: str,
    about_top: Mapping[str, str],
) -> Iterator[Field]:
    """Yield the fields at a place and inside it.

    Args:
        place: the names that lead to the place.
        schema: the schema at the place.
        value: the value at the place now.
        root: the whole schema, with the definitions of references.
        help_text: the help of the part around the place.
        about_top: help by name for fields at the top.
    """
    part = field_of(schema, root)
    values = value if isinstance(value, Mapping) else {}
    inner = _inner_schemas(part, values)
    # Without a value, the fields inside would have nothing to start from.
    if value is None and place:
        inner = {}  # this part of the configuration is not set
    about = _about_attributes(part.get("description", ""))
    for name, inner_schema in inner.items():
        if not place and name in _NOT_HERE:
            continue
        inner_help = about.get(name, "")
        if not place and not inner_help:
            inner_help = about_top.get(name, "")
        # The help of a mapping says how to write it, and does not fit the numbers inside.
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
        # The description is the field's help already.
        schema_of_field = dict(part)
        schema_of_field.pop("description", None)
        yield {
            "place": [*place],
            "help": _help_of(part, help_text, is_class=bool(about)),
            "schema": schema_of_field,
            "value": _shown(value),
        }


def _inner_schemas(
    part: Schema,
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the schemas of an object's parts, by name; for a mapping, those of its values."""
    inner = dict(part.get("properties", {}))
    if inner or part.get("type") != "object":
        return inner
    each = part.get("additionalProperties")
    keys = part.get("propertyNames", {})
    # A dict whose keys are not listed gets fields for the keys that it has.
    for name in keys.get("enum", values):
        if isinstance(each, dict):
            inner[name] = each
        elif isinstance(values.get(name), bool):
            inner[name] = {"type": "boolean"}
        else:
            inner[name] = {"type": "number"}
    return inner


def _help_of(
    part: Schema,
    help_text: str,
    *,
    is_class: bool,
) -> str:
    """Return a field's help, with its limits unless a list shows its values."""
    # The description of a class does not describe a field.
    if not help_text and not is_class:
        help_text = part.get("description", "")
    sentences = [help_text.rstrip(".")]
    if not part.get("enum") and not _is_plain(part):
        sentences.append(field_words(_without_vast_limits(part)))
    return "; ".join(filter(None, sentences))


def _is_plain(part: Schema) -> bool:
    """Return True if a control says enough: any text, any number, yes or no."""
    if part.get("type") not in ("string", "number", "boolean"):
        return False
    return not bounds_words(part)


def _without_vast_limits(part: Schema) -> dict[str, Any]:
    """Return a field's schema without vast limits, such as those of 64-bit numbers."""
    kept: dict[str, Any] = {}
    for name, rule in part.items():
        is_vast = name in _LIMITS and abs(rule) >= _VAST
        if not is_vast:
            kept[name] = rule
    return kept


def _about_attributes(description: str) -> dict[str, str]:
    """Return the attributes in a class's docstring, each with its description."""
    attributes: list[tuple[str, str]] = []
    for section in _ATTRIBUTES.findall(description):
        attributes += _ATTRIBUTE.findall(section)
    about: dict[str, str] = {}
    for name, description_of_one in attributes:
        words = description_of_one.replace("``", "").split()
        about[name] = " ".join(words)
    return about


def _shown(value: Any) -> Any:
    """Return a value as a form shows it: without rounding digits, and not infinite."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):  # JSON cannot hold it
        return None
    return float(f"{value:.15g}")


def _fits(part: Schema, value: Any) -> bool:
    """Return True if a form has a field for a value: a number, text, choice or boolean."""
    choices = part.get("enum", ())
    # A single choice that is taken already leaves nothing to choose.
    is_fixed = len(choices) == 1 and value is not None
    has_kind = part.get("type") in _KINDS
    has_field = choices or has_kind or "anyOf" in part
    if is_fixed or not has_field:
        return False
    if value in (None, ""):
        return True
    # Only types are checked: a value outside its limits gets a field, and can be changed there.
    return not field_fault(value, _without_limits(part))


def _without_limits(part: Schema) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name in ("type", "enum"):
        if name in part:
            kept[name] = part[name]
    # The parts of a union, such as "int | None", have limits of their own.
    alternatives = list(map(_without_limits, part.get("anyOf", ())))
    if alternatives:
        kept["anyOf"] = alternatives
    return kept


def read_changes(
    fields: Sequence[Field],
    changes: Any,
) -> dict[str, Any]:
    """Return the changed values, nested as in the schema, with typed texts read.

    Raises:
        ConfigError: a value is wrong, or there is no such field.
    """
    by_place = {tuple(field["place"]): field for field in fields}

    # Checked by the form's fields and not by the schema: a page may not set anything else.
    def read(place: tuple[str, ...], value: Any) -> Any:
        if place in by_place:
            return _read_value(by_place[place], value)
        if not isinstance(value, Mapping):
            raise ConfigError(f"{' · '.join(place) or 'this'} cannot be changed here")
        values: dict[str, Any] = {}
        for key, inner in value.items():
            name = str(key)
            values[name] = read((*place, name), inner)
        return values

    changed: dict[str, Any] = read((), changes)
    return changed


def _read_value(field: Field, value: Any) -> Any:
    schema = field["schema"]
    is_text_field = schema.get("type") == "string"
    # A browser sends texts, and only the schema says whether "3" is a number.
    if isinstance(value, str) and not is_text_field:
        value = typed_value(value.strip(), schema)
    fault = field_fault(value, schema)
    if fault:
        raise ConfigError(f"{field['label']} {fault}")
    return value
