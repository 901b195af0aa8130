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
    """Return a model's reply by field; empty if the reply was not a JSON object."""
    if call is None or call.reply is None:
        return {}
    schema = call.request.schema or {}
    parts = as_mapping(schema.get("properties"))  # a tape may hold anything there
    # An invalid reply is on the tape as well, but has no fields.
    with suppress(InvalidReply):
        reply: Columns = {}
        for name, value in reply_fields(call.reply.text).items():
            reply[name] = _as_asked(value, parts.get(name), schema)
        return reply
    return {}


def as_reasoning(value: object) -> str:
    """Return a reply's reasoning; empty if there is none, or if it is not a text."""
    return value if isinstance(value, str) else ""


def reasoning_in(reply: Columns) -> str:
    """Return the reasoning among a reply's fields; empty if there is none."""
    if "reasoning" in reply:
        return as_reasoning(reply["reasoning"])
    # An agent of a crisis gives its reasons in this part, which the others do not read.
    return as_reasoning(reply.get("assessment")).strip()


def as_confidence(value: object) -> float | None:
    """Return a reply's confidence, 0 to 1; None if there is none, or if it is something else."""
    # The value comes from a model or from a user's own class, and was never checked.
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
    """Return a number or boolean that was written as another type, such as a text, as its own type.

    Args:
        value: what the model wrote.
        part: the field's schema; anything, on a damaged tape.
        schema: the reply's schema.
    """
    # One such answer would turn its whole column into texts.
    field_type = _sole_type(part, schema)
    is_whole_number = field_type == "number" and type(value) is int
    if field_type not in _READERS or is_whole_number:
        return value
    try:
        return _READERS[field_type](value)
    except ValueError:
        # An invalid reply stays as the model wrote it.
        return value


def _sole_type(part: object, schema: Schema) -> str:
    """Return the type of a field, apart from null; empty if there are several types."""
    # On a damaged tape the schema may be anything.
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
