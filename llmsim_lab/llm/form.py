"""The form of a reply in words, for models whose server does not hold them to a JSON schema.

One place turns a schema into words: its fields in their order, with types, bounds, choices and
descriptions, and an example that fits. A second attempt has them where the first reply had no JSON
of the form; a first attempt has them with ``LLMConfig(tell_form=True)``, and on servers that reject
schemas.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from random import Random

from llmsim_lab._util.jsontext import JSON, JSONObject, Schema
from llmsim_lab._util.patterns import text_like
from llmsim_lab._util.schemas import alternatives, resolved
from llmsim_lab._util.text import text_of
from llmsim_lab.types import one_sentence

_SCALARS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "null": "null",
}
_BOUNDS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "below {}",
    "maxLength": "of at most {:,} characters",
}
FORMATS = {
    "date": "2024-05-31",
    "date-time": "2024-05-31T12:30:00Z",
    "time": "12:30:00Z",
    "duration": "P1DT2H",
    "uuid": "3f2b8c1e-5d4a-4e6f-9a7b-0c1d2e3f4a5b",
    **{f"uuid{kind}": f"3f2b8c1e-5d4a-{kind}e6f-9a7b-0c1d2e3f4a5b" for kind in range(1, 9)},
    "base64": "YSB0ZXh0",
    "base64url": "YSB0ZXh0",
    "email": "ann@example.org",
    "uri": "https://example.org/",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "ipv4network": "192.0.2.0/24",
    "ipv6network": "2001:db8::/32",
    "ipv4interface": "192.0.2.1/24",
    "ipv6interface": "2001:db8::1/32",
    "ipvanyaddress": "192.0.2.1",
}
"""A text of each format that schemas name."""
_TEXT = "a text"
_DRAWS = 20
"""Of texts for a pattern, of which one may have a length that is allowed."""
_NOT_OF_A_FORM = ("description", "title", "examples", "$defs")
"""What a part of a schema may have beside the form that it describes."""


class _NoExample(Exception):  # noqa: N818 - not an error: the form is told without an example
    """No value that fits a part of a schema could be made."""


def told_form(schema: Schema) -> str:
    """Return the form of a reply in words, with an example; the same text for equal schemas."""
    # By what it holds, since a schema may be changed in place.
    return _told(json.dumps(schema))


@lru_cache(maxsize=1024)
def _told(schema: str) -> str:
    return _Form(json.loads(schema)).text()


def field_names(schema: Schema) -> set[str]:
    """Return the names that a reply's fields may have; empty where the schema names none."""
    return set(_names_in(schema, schema))


def _names_in(part: Schema, root: Schema) -> Iterator[str]:
    """Yield the names of an object's fields, of all alternatives."""
    part = resolved(part, root)
    yield from part.get("properties", ())
    for alternative in part.get("anyOf", part.get("oneOf", ())):
        yield from _names_in(alternative, root)


def bounds_words(schema: Schema) -> str:
    """Return the bounds of a number or a text in words, such as ``from 0 to 20``; may be empty."""
    if "minimum" in schema and "maximum" in schema:
        return f"from {text_of(schema['minimum'])} to {text_of(schema['maximum'])}"
    return " and ".join(
        words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema
    )


class _Form:
    """What is told of a schema.

    Args:
        schema: of the whole reply; references are looked up in it.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._earlier: list[tuple[Schema, str]] = []
        """Objects that were described before, and what a value is part of; each with its place."""

    def text(self) -> str:
        first, *below = self._described(self._schema, "the whole reply", "")
        heading = f"Reply with JSON and nothing else: {first}"
        if "properties" in resolved(self._schema, self._schema):
            heading = "Reply with one JSON object and nothing else. Its fields, in this order:"
        lines = [heading, *below]
        # Small models copy a form more surely than they follow a description.
        with suppress(_NoExample):
            example = _json(self._example(self._schema, ()))
            lines += ["An example of this form, with made-up values:", example]
        return "\n".join(lines)

    # --- in words ---------------------------------------------------------------------------------

    def _described(
        self,
        part: Schema | bool,
        place: str,
        indent: str,
    ) -> list[str]:
        """Return what a value must be: the end of a line, and the lines below it.

        Args:
            part: the value's schema.
            place: where it stands, in words.
            indent: of the lines below.
        """
        part = resolved(part, self._schema)
        if part.get("enum"):
            # As JSON, so that a text has its quotes and the number 1 has none.
            choices = ", ".join(map(_json, part["enum"]))
            return [f"one of {choices}" if len(part["enum"]) > 1 else choices]
        kind = part.get("type")
        if isinstance(kind, str) and kind in _SCALARS:
            return [_scalar_words(kind, part)]
        form = {key: value for key, value in part.items() if key not in _NOT_OF_A_FORM}
        for earlier, where in self._earlier:
            if earlier == form:
                return [f"in the same form as {where}"]
        # Before what is inside it is told, since that may be of the same form again.
        self._earlier.append((form, place))
        if "properties" in part:
            return self._described_object(part, indent)
        forms = alternatives(part, self._schema)
        if forms:
            lines = self._described_alternatives(forms, place, indent)
        elif kind == "array":
            lines = self._described_list(part, place, indent)
        elif kind == "object":
            lines = self._described_mapping(part, place, indent)
        else:
            lines = ["any JSON value"]
        self._earlier.remove((form, place))  # short enough to be told again
        return lines

    def _described_object(self, part: Schema, indent: str) -> list[str]:
        lines = ["an object with these fields, in this order:"]
        for name, field in part["properties"].items():
            first, *below = self._described(
                field,
                _json(name),
                f"{indent}  ",
            )
            notes: list[str] = []
            if name not in part.get("required", ()):
                notes.append("may be left out")
            for words in (field.get("title", ""), field.get("description", "")):
                note = " ".join(str(words).split()).rstrip(".")
                # Titles that are made of the name say nothing more.
                if note and note.lower().replace(" ", "_") != name.lower():
                    notes.append(note)
            if field.get("examples"):
                notes.append(f"for example {' or '.join(map(_json, field['examples']))}")
            about = f" ({'; '.join(notes)})" if notes else ""
            lines += [f"{indent}- {_json(name)}{about}: {first}", *below]
        return lines

    def _described_alternatives(
        self,
        forms: Sequence[Schema],
        place: str,
        indent: str,
    ) -> list[str]:
        described = [self._described(form, place, f"{indent}  ") for form in forms]
        if all(len(lines) == 1 for lines in described):
            return [" or ".join(first for [first] in described)]
        lines = ["one of these:"]
        for first, *below in described:
            lines += [f"{indent}- {first}", *below]
        return lines

    def _described_mapping(
        self,
        part: Schema,
        place: str,
        indent: str,
    ) -> list[str]:
        keys, values = _entries(part)
        if values is False:
            return ["an empty object, {}"]
        # A name is a text, of which one line says all.
        [names] = self._described(keys, "", "")
        first, *below = self._described(values, f"the values of {place}", indent)
        count = _count_words(part, "Properties", "members")
        return [f"an object{count}, each name {names}, each value {first}", *below]

    def _described_list(
        self,
        part: Schema,
        place: str,
        indent: str,
    ) -> list[str]:
        if part.get("prefixItems"):
            lines = [f"a list of {len(part['prefixItems'])}, in this order:"]
            for number, item in enumerate(part["prefixItems"], 1):
                where = f"item {number} of {place}"
                first, *below = self._described(item, where, f"{indent}  ")
                lines += [f"{indent}- {first}", *below]
            return lines
        count = _count_words(part, "Items", "items")
        different = ", all different" if part.get("uniqueItems") else ""
        first, *below = self._described(
            part.get("items", {}),
            f"the items of {place}",
            indent,
        )
        return [f"a list{count}{different}, each item {first}", *below]

    # --- an example -------------------------------------------------------------------------------

    def _example(
        self,
        part: Schema | bool,
        inside: tuple[Schema, ...],
    ) -> JSON:
        """Return a small value that fits a schema.

        Args:
            part: the schema.
            inside: the schemas that it is a part of; one of them again would have no end.

        Raises:
            _NoExample: none could be made.
        """
        part = resolved(part, self._schema)
        # A tree of branches that must have branches: it has no example, and none is shown.
        if part in inside:
            raise _NoExample
        inside = (*inside, part)
        if part.get("enum"):
            choices: list[JSON] = part["enum"]
            # From the middle: the first and the last one of an order are extremes.
            return choices[len(choices) // 2]
        if "properties" in part:
            return self._example_object(part, inside)
        forms = alternatives(part, self._schema)
        if forms:
            if all("properties" in form for form in forms):
                # An assistant's last tool is the one that answers in words: a model that copies
                # the example must not do anything.
                forms.reverse()
            return self._first_example(forms, inside)
        match part.get("type"):
            case "integer" | "number":
                return _example_number(part)
            case "string":
                return self._example_text(part, inside)
            case "array":
                return self._example_list(part, inside)
            case "object":
                return self._example_mapping(part, inside)
            case "boolean":
                return True
            case "null":
                return None
        return _TEXT

    def _first_example(
        self,
        parts: Iterable[Schema],
        inside: tuple[Schema, ...],
    ) -> JSON:
        for part in parts:
            with suppress(_NoExample):
                return self._example(part, inside)
        raise _NoExample

    def _example_object(
        self,
        part: Schema,
        inside: tuple[Schema, ...],
    ) -> JSONObject:
        fields: Mapping[str, Schema] = part["properties"]
        required = [name for name in fields if name in part.get("required", ())]
        if required:
            return {name: self._example(fields[name], inside) for name in required}
        for name, field in fields.items():
            # One shows the form; values for all of them would read as if all had to be given.
            with suppress(_NoExample):
                return {name: self._example(field, inside)}
        return {}

    def _example_mapping(
        self,
        part: Schema,
        inside: tuple[Schema, ...],
    ) -> JSONObject:
        keys, values = _entries(part)
        if values is False:
            return {}
        fewest = part.get("minProperties", 0)
        count = min(max(fewest, 1), part.get("maxProperties", math.inf))
        try:
            names = self._different(keys, count, inside)
            return {str(name): self._example(values, inside) for name in names}
        except _NoExample:
            if fewest:
                raise
            return {}

    def _example_list(
        self,
        part: Schema,
        inside: tuple[Schema, ...],
    ) -> list[JSON]:
        first = [self._example(item, inside) for item in part.get("prefixItems", ())]
        fewest = part.get("minItems", 0)
        # One shows the form, where the schema does not want more.
        length = min(max(fewest, 1), part.get("maxItems", math.inf))
        count = length - len(first)
        if count <= 0:
            return first
        item = part.get("items", {})
        try:
            if part.get("uniqueItems"):
                return [*first, *self._different(item, count, inside)]
            return [*first, *[self._example(item, inside)] * count]
        except _NoExample:
            if len(first) < fewest:
                raise
            return first

    def _different(
        self,
        part: Schema,
        count: int,
        inside: tuple[Schema, ...],
    ) -> list[JSON]:
        """Return several values that fit a schema and differ."""
        part = resolved(part, self._schema)
        example = self._example(part, inside)
        values = [example]
        if "enum" in part:
            values = part["enum"]
        elif isinstance(example, str) and "pattern" not in part:
            values = [example, *[f"{example} {number}" for number in range(2, count + 1)]]
        elif type(example) is int:
            values = [example + number for number in range(count)]
        # Of other kinds, such as objects, there is no telling how to make them differ.
        if len(values) < count:
            raise _NoExample
        return list(values[:count])

    def _example_text(
        self,
        part: Schema,
        inside: tuple[Schema, ...],
    ) -> str:
        shortest = part.get("minLength", 0)
        longest = part.get("maxLength", math.inf)
        default = FORMATS.get(part.get("format", ""), _TEXT)
        if "contentSchema" in part:
            default = _json(self._example(part["contentSchema"], inside))
        elif len(default) > longest:
            default = default[:longest]
        # The author's own examples are the best ones, where they fit.
        candidates: list[JSON] = [*part.get("examples", ())]
        candidates.append(default.ljust(shortest, "."))
        candidates.append(f"{default}.")  # a sentence
        if "pattern" in part:
            with suppress(ValueError):
                # Seeded, so that equal schemas are told alike: a tape's requests are compared.
                for draw in range(_DRAWS):
                    text = text_like(
                        part["pattern"],
                        Random(draw),
                        shortest=shortest,
                    )
                    candidates.append(text)
        for candidate in candidates:
            if not isinstance(candidate, str) or not shortest <= len(candidate) <= longest:
                continue
            if _matches(part.get("pattern"), candidate):
                return candidate
        raise _NoExample


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _entries(part: Schema) -> tuple[Schema, Schema | bool]:
    """Return the schemas of a mapping's names and of its values; False if it has none."""
    for pattern, values in part.get("patternProperties", {}).items():
        return {"type": "string", "pattern": pattern}, values
    names = {"type": "string", **part.get("propertyNames", {})}
    return names, part.get("additionalProperties", {})


def _scalar_words(kind: str, part: Schema) -> str:
    sample = FORMATS.get(part.get("format", ""))
    if sample:
        return f"a text in the form of {sample}"
    words = [_SCALARS[kind], bounds_words(part)]
    if "multipleOf" in part:
        words.append(f"in steps of {text_of(part['multipleOf'])}")
    if part.get("minLength", 0) > 1:
        words.append(f"of at least {part['minLength']:,} characters")
    # That it is one sentence, the description says in words.
    if "pattern" in part and part["pattern"] != one_sentence(part.get("maxLength", 0)):
        words.append(f"that matches the regular expression {part['pattern']}")
    return " ".join(filter(None, words))


def _count_words(
    part: Schema,
    key: str,
    noun: str,
) -> str:
    """Return in words how many a list or a mapping has, with a blank first; may be empty."""
    fewest = part.get(f"min{key}", 0)
    most = part.get(f"max{key}")
    if fewest == most == 1:
        return f" of 1 {noun.removesuffix('s')}"
    if fewest == most:
        return f" of {fewest} {noun}"
    if most is not None:
        return f" of {fewest} to {most} {noun}"
    if not fewest:
        return ""
    return f" of {fewest} or more {noun}"


def _matches(pattern: str | None, text: str) -> bool:
    try:
        return pattern is None or re.search(pattern, text) is not None
    except re.error:  # a schema's expressions are not quite Python's
        return False


def _example_number(part: Schema) -> float:
    """Return a number from the middle of its bounds.

    Raises:
        _NoExample: none is within them.
    """
    is_whole = part["type"] == "integer"
    step = Fraction(str(part.get("multipleOf", int(is_whole))))
    # As fractions: 0.3 is a multiple of 0.1, which it is not as a float.
    bounds: dict[str, Fraction] = {}
    for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if key in part:
            bounds[key] = Fraction(str(part[key]))
    lowest = [bound for key, bound in bounds.items() if key.lower().endswith("minimum")]
    highest = [bound for key, bound in bounds.items() if key.lower().endswith("maximum")]
    if lowest and highest:
        middle = (max(lowest) + min(highest)) / 2
    elif lowest:
        middle = max(lowest) + 1
    elif highest:
        middle = min(highest) - 1
    else:
        middle = Fraction(1)
    # The rounded one reads better, and may lie outside a narrow range.
    candidates = [round(middle, 2), middle]
    if step:
        below = math.floor(middle / step) * step
        candidates = [below, below + step]
    for number in candidates:
        is_within = (
            number >= bounds.get("minimum", number)
            and number <= bounds.get("maximum", number)
            and number > bounds.get("exclusiveMinimum", number - 1)
            and number < bounds.get("exclusiveMaximum", number + 1)
        )
        if is_within and number.denominator == 1:
            return int(number)
        if is_within and not is_whole:
            return float(number)
    raise _NoExample
