"""Checking a tool call's arguments by the tool's own schema, in bounded time.

Schemas come from tool servers and arguments from models, and the check may take exponentially long:
ten levels of ``anyOf`` that refer to the next one twice are a thousand checks of one value. So each
check of a keyword counts as a step, and each entry of what it names as one more.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmsim_lab._util.jsontext import Schema

_MAX_STEPS = 15_000
"""Some 0.2 s, for which the event loop stands still; twice that on an overloaded machine."""
_MOST_PARTS = 6_000
"""Objects and lists in the schemas of all tools together. Of published servers Notion's 24 tools
have 2,200, since each repeats what all share, and GitHub's 117 have 1,400 (November 2026). It takes
up to .3 ms to compare a part with the standard."""
_VALUES_A_PART = 20
_CHARS_A_STEP = 100
"""Of an error's message, which holds the value that is wrong."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def import_jsonschema() -> None:
    """Import jsonschema, without what it would take seconds of the event loop for.

    Beside JupyterLab it finds rfc3987_syntax, which compiles grammars for the formats ``iri`` and
    ``iri-reference``. No format is checked here, so the first import of jsonschema in a process
    does not find it.
    """
    if "jsonschema" in sys.modules or "rfc3987_syntax" in sys.modules:
        return
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    try:
        import jsonschema  # noqa: F401
    finally:
        # Another thread may have come first.
        sys.modules.pop("rfc3987_syntax", None)


class TooMuchToCheck(ValueError):  # noqa: N818 - its words are for the model
    """A check would take too long."""


class SchemaSizes:
    """Counts the parts of several tools' schemas, which are compared with the standard at once."""

    def __init__(self) -> None:
        self._parts = 0

    def add(self, schema: Schema) -> None:
        """Count a schema.

        Raises:
            TooMuchToCheck: with those before it, it is too large; it is not counted then.
        """
        parts = math.ceil(_size_of(schema))
        if self._parts + parts > _MOST_PARTS:
            raise TooMuchToCheck(
                f"its schema has {parts:,} parts, after {self._parts:,} of other tools; all tools "
                f"together may have {_MOST_PARTS:,}"
            )
        self._parts += parts


def _size_of(value: object) -> float:
    if isinstance(value, Mapping):
        return 1 + sum(map(_size_of, value.values()))
    if isinstance(value, list | tuple):
        return 1 + sum(map(_size_of, value))
    return 1 / _VALUES_A_PART


class SchemaCheck:
    """Finds what is wrong with a value by a JSON schema, in a bounded number of steps.

    Args:
        schema: the whole schema; one that names no version is of 2020-12.
        checked: the part of it that values are checked by.

    Raises:
        Exception: it is not a schema, and jsonschema's error says why; or it has too much to check.
    """

    def __init__(self, schema: Schema, checked: Schema) -> None:
        import_jsonschema()
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import extend, validator_for
        from referencing import Registry

        version: Any = validator_for(schema, default=Draft202012Validator)
        counted = {name: self._counted(name, check) for name, check in version.VALIDATORS.items()}
        counted["uniqueItems"] = self._counted("uniqueItems", _unique)
        validator: Any = extend(version, counted)  # type: ignore[no-untyped-call]
        self._left = _MAX_STEPS
        self._entries = 0  # the standard's own schema knows its anchors
        # By the counted validator, since a hostile schema can make this check endless too.
        for error in validator(version.META_SCHEMA).iter_errors(schema):
            raise SchemaError.create_from(error)
        self._entries = _entries_in(checked)
        # With an empty registry a schema's $ref cannot make this process fetch anything.
        self._validator = validator(checked, registry=Registry())

    def faults(self, value: object) -> Iterator[Any]:
        """Yield jsonschema's errors.

        Raises:
            TooMuchToCheck: it would take too long.
            Exception: the schema refers to what is missing, or to itself.
        """
        self._left = _MAX_STEPS
        yield from self._validator.iter_errors(value)

    @property
    def steps(self) -> int:
        """How many steps the last check took."""
        return _MAX_STEPS - self._left

    def _charge(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooMuchToCheck(
                f"the tool's schema takes more than {_MAX_STEPS:,} steps to check these arguments; "
                "give fewer or simpler ones"
            )

    def _counted(self, name: str, check: Any) -> Any:
        """Return jsonschema's check of a keyword as one that charges for its work."""

        def run(
            validator: Any,
            value: object,
            instance: object,
            schema: object,
        ) -> Iterator[Any]:
            steps = 1
            if isinstance(value, list | dict):
                steps += len(value)
            elif name in _REFERENCES and not str(value).startswith("#/"):
                steps += self._entries  # an anchor is looked for in the whole schema
            self._charge(steps)
            for error in check(validator, value, instance, schema) or ():
                self._charge(len(error.message) // _CHARS_A_STEP)
                yield error

        return run


def _unique(
    validator: Any,
    wanted: object,
    instance: object,
    schema: object,
) -> Iterator[Any]:
    """Check ``uniqueItems`` in linear time; jsonschema compares each object with each other."""
    from jsonschema import ValidationError

    if not wanted or not isinstance(instance, list):
        return
    seen = set()
    for item in instance:
        # As JSON, in which true and 1 differ; whole floats have become integers before.
        text = json.dumps(item, sort_keys=True)
        if text in seen:
            yield ValidationError(f"{item!r} stands in it more than once")
            return
        seen.add(text)


def _entries_in(schema: object) -> int:
    if isinstance(schema, Mapping):
        return len(schema) + sum(map(_entries_in, schema.values()))
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return len(schema) + sum(map(_entries_in, schema))
    return 0
