"""Find the JSON in a reply, or what is wrong with it in words that a model can act on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import SchemaValidator

from llmsim_lab._util.jsontext import ALWAYS_FINITE, JSONObject, Schema, all_finite
from llmsim_lab._util.text import brief, fault_text, few, listed, text_of
from llmsim_lab.llm._strict import reply_validator
from llmsim_lab.llm.form import field_names
from llmsim_lab.types import Message, Number

ModelT = TypeVar("ModelT", bound=BaseModel)

_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
MAX_REPLY_CHARS = 2**20
"""Of a reply's text, more than models write. To look for JSON takes up to a hundred times as much
memory."""
_DECODER = json.JSONDecoder()
_MAX_CANDIDATES = 50
_MAX_FAULTS = 5
_MOST_LISTED = 12
_BROKEN_LIMITS = (
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
    *("literal_error", "enum"),
)
"""Types of pydantic's errors about a value of the right type that is not allowed."""


class InvalidReply(ValueError):  # noqa: N818 - its words are for the model, not for a programmer
    """A reply that is not what was asked for.

    Attributes:
        rejected: the reply as a model instance where only its content was wrong.
        by_field: what is wrong, by field; under an empty name what is wrong with the whole.
    """

    def __init__(
        self,
        complaint: str,
        rejected: BaseModel | None = None,
        by_field: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(complaint)
        self.rejected = rejected
        self.by_field = by_field or {"": complaint}


def parse_reply(
    text: str,
    response_model: type[ModelT],
    check: Callable[[ModelT], str | None] | None = None,
    choices: Mapping[str, Sequence[object]] | None = None,
    limits: Mapping[str, tuple[Number, Number]] | None = None,
    *,
    thinking: str = "",
    may_lack: frozenset[str] = frozenset(),
) -> ModelT:
    """Return the reply as an instance of the response model.

    The JSON may stand alone, in prose, in a code fence, or after ``<think>``. Where several pieces
    fit, the last one counts: models that think aloud give drafts first.

    Args:
        text: the reply.
        response_model: what it must be.
        check: returns what is wrong with the content of a well-formed reply, or None.
        choices: of some fields, where they are fewer than the response model allows: a reply that
            breaks both is told these.
        limits: likewise the lowest and highest value.
        thinking: what the server separated from the text, for the complaint about an empty one.
        may_lack: fields that may be left out.

    Raises:
        InvalidReply: nothing in the text fits.
    """
    if len(text) > MAX_REPLY_CHARS:
        raise InvalidReply(
            f"the reply has {len(text):,} characters, and {MAX_REPLY_CHARS:,} are the most that "
            "are read"
        )
    validator = reply_validator(response_model, may_lack)
    # Most replies are JSON and nothing else, and then the text is read once.
    try:
        decision: ModelT = validator.validate_json(text)
    except ValidationError as error:
        words = allowed_words(choices or {}, limits or {})
        decision = _last_that_fits(validator, text, error, words, thinking)
    # The dict's items, since every reply is asked and those of the model itself take long.
    values = decision.__dict__
    if decision.__pydantic_extra__:
        values = {**values, **decision.__pydantic_extra__}
    # Reading is strict; but a class's own validator may return what it likes, and a field that is
    # allowed besides is of no type.
    for name, value in values.items():
        if type(value) not in ALWAYS_FINITE and not all_finite(value):
            infinite = f"Input should be finite (it is {brief(value)})"
            raise InvalidReply(f"{name}: {infinite}", by_field={name: infinite})
    complaint = None
    if check is not None:
        complaint = check(decision)
    if complaint:
        # With the decision: a caller may show what was refused.
        raise InvalidReply(complaint, rejected=decision)
    return decision


def _last_that_fits(
    validator: SchemaValidator,
    text: str,
    error: ValidationError,
    allowed: Mapping[str, str],
    thinking: str,
) -> Any:
    """Return the last of the pieces of JSON in a reply that fits.

    Raises:
        InvalidReply: none does; it is about the last piece, or about the text where it has none.
    """
    answer = without_thinking(text)
    # What pydantic says of prose, an invalid first character, would puzzle a model.
    reason = "there is no JSON object in it"
    if "{" in answer:
        reason = error.errors()[0]["msg"]
    complaint = f"the reply is not valid JSON: {reason}"
    if not answer.strip():
        complaint = "the reply is empty"
        if thinking.strip() or text.strip():
            complaint += ": it has only thinking, and no answer after it"
    decision: object = None
    by_field: Mapping[str, str] | None = None
    for value in _json_values(answer):
        try:
            decision = validator.validate_python(value)
        except ValidationError as wrong:
            # Of the last piece, which is the answer of a model that wrote drafts first.
            complaint = _describe(wrong, allowed)
            by_field = _by_field(wrong, allowed)
    if decision is None:
        raise InvalidReply(complaint, by_field=by_field)
    return decision


class _AnyObject(BaseModel):
    model_config = ConfigDict(extra="allow")


def reply_fields(text: str) -> JSONObject:
    """Return the fields of the JSON object in a reply, whatever was asked for.

    Raises:
        InvalidReply: it has no JSON object.
    """
    return parse_reply(text, _AnyObject).model_extra or {}


def has_form(text: str, schema: Schema) -> bool:
    """Return True if a reply has a complete JSON object with a field of the schema, or more."""
    names = field_names(schema)
    values = _json_values(without_thinking(text))
    return any(not names or names & value.keys() for value in values)


def without_thinking(text: str) -> str:
    """Return a text without a model's thoughts between ``<think>`` tags.

    The opening tag may be missing, where the chat template wrote it: then all before the closing
    one is thought. The closing one may be, where the token limit cut it off: then all after the
    opening one is.
    """
    spoken = _THINKING.sub(" ", text[:MAX_REPLY_CHARS])
    # A closing tag that is left had its opening one in the chat template.
    return _THOUGHT_ENDS.split(spoken)[-1]


def allowed_words(
    choices: Mapping[str, Sequence[object]],
    limits: Mapping[str, tuple[Number, Number]],
) -> dict[str, str]:
    """Return by field what it must be, in words: ``from 0 to 5``, ``one of Ann, Bob``."""
    words: dict[str, str] = {}
    for name, (lowest, highest) in limits.items():
        words[name] = f"from {text_of(lowest)} to {text_of(highest)}"
    for name, values in choices.items():
        ellipsis = ", …" if len(values) > _MOST_LISTED else ""
        words[name] = f"one of {', '.join(map(str, values[:_MOST_LISTED]))}{ellipsis}"
    return words


def _json_values(text: str) -> Iterator[JSONObject]:
    """Yield the outermost JSON objects in a text, in order."""
    position = 0
    # Bounded, since each attempt may read to the end: a text of braces would take quadratic time.
    for _ in range(_MAX_CANDIDATES):
        position = text.find("{", position)
        if position < 0:
            return
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            position += 1  # a brace of prose, or of a draft that was not finished
            continue
        yield value


def _describe(error: ValidationError, allowed: Mapping[str, str]) -> str:
    """Return what is wrong with a reply's fields: those that it lacks, then the others."""
    lacking: list[str] = []
    wrong: list[str] = []
    for fault in error.errors(include_url=False):
        place = ".".join(map(str, fault["loc"]))
        if fault["type"] == "missing":
            lacking.append(place)
        # In the question's words: pydantic knows the class's limits, which may be wider.
        elif fault["type"] in _BROKEN_LIMITS and place in allowed:
            wrong.append(fault_text({**fault, "msg": f"must be {allowed[place]}"}))
        else:
            wrong.append(fault_text(fault))
    if lacking:
        wrong.insert(0, f"it lacks {listed(lacking, _MOST_LISTED)}")
    return "; ".join(few(wrong, _MAX_FAULTS))


def _by_field(
    error: ValidationError,
    allowed: Mapping[str, str],
) -> dict[str, str]:
    """Return what is wrong with a reply, by field; under an empty name, with all of it."""
    by_field: dict[str, str] = {}
    for fault in error.errors(include_url=False):
        field, *inside = map(str, fault["loc"] or ("",))
        words = fault_text({**fault, "loc": tuple(inside)})
        if fault["type"] == "missing":
            words = f"{'.'.join(inside)} is missing".strip()
        elif fault["type"] in _BROKEN_LIMITS and field in allowed and not inside:
            words = f"must be {allowed[field]}"
        by_field.setdefault(field, words)
    return by_field


def with_instruction(
    messages: Sequence[Message],
    text: str,
) -> tuple[Message, ...]:
    """Return the conversation with a text at the end of its system message."""
    # Chat templates take one system message, some refuse a second.
    if messages and messages[0].role == "system":
        first = replace(messages[0], content=f"{messages[0].content}\n\n{text}")
        return (first, *messages[1:])
    return (Message("system", text), *messages)
