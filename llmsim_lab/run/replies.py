"""The fields of a model's reply, as its recorded call has them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pydantic import FiniteFloat, TypeAdapter

from llmsim_lab._util.jsontext import Schema, as_mapping
from llmsim_lab._util.schemas import alternatives, not_null, resolved
from llmsim_lab.llm.extract import InvalidReply, reply_fields
from llmsim_lab.run.state import Columns
from llmsim_lab.types import CallRecord

_READERS: dict[str, Callable[[object], object]] = {
    "integer": TypeAdapter(int).validate_python,
    "number": TypeAdapter(FiniteFloat).validate_python,
    "boolean": TypeAdapter(bool).validate_python,
}
"""Functions that read a reply's field, by the field's type in the schema."""


def reply_of(call: CallRecord | None) -> Columns:
    """Return what the model answered, by field; nothing where it was not an object."""
    if call is None or call.reply is None:
        return {}
    schema = call.request.schema or {}
    parts = as_mapping(schema.get("properties"))  # a tape may hold anything there
    # An invalid reply is on the tape as well, and has no fields to show.
    with suppress(InvalidReply):
        reply: Columns = {}
        for name, value in reply_fields(call.reply.text).items():
            reply[name] = _as_asked(value, parts.get(name), schema)
        return reply
    return {}


def as_reasoning(value: object) -> str:
    """Return why, as a reply says; empty where it says nothing, or something that is no text."""
    return value if isinstance(value, str) else ""


def as_confidence(value: object) -> float | None:
    """Return how sure a reply is, 0 to 1; None where it says nothing, or something else."""
    # As the model wrote it, or a class of one's own has it: nothing has checked this.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= 1:
        return None
    return value


def _as_asked(
    value: object,
    part: object,
    schema: Schema,
) -> object:
    """Return a number or truth value that was written as another type, as the world got it.

    Args:
        value: what the model wrote.
        part: the field's schema; anything, on a damaged tape.
        schema: the reply's.
    """
    # Otherwise one such answer would make its column one of texts, whose sum is a long text.
    field_type = _sole_type(part, schema)
    is_whole_number = field_type == "number" and type(value) is int
    if field_type not in _READERS or is_whole_number:
        return value
    try:
        return _READERS[field_type](value)
    except ValueError:
        # An invalid reply, which stays as the model wrote it.
        return value


def _sole_type(part: object, schema: Schema) -> str:
    """Return the type of a field, null left out; empty where it is not one type."""
    # A damaged schema says nothing.
    with suppress(
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):
        whole_part = resolved(part, schema)
        [typed] = not_null(alternatives(whole_part, schema)) or [whole_part]
        return str(typed["type"])
    return ""
