"""Find the JSON in a reply, or what is wrong with it in words that a model can act on."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from llmsim_lab._util.text import clip
from llmsim_lab.errors import BackendError
from llmsim_lab.types import WIRE, Message

ModelT = TypeVar("ModelT", bound=BaseModel)

_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_DECODER = json.JSONDecoder()
_MAX_CANDIDATES = 50
_MAX_FAULTS, _MOST_LISTED = 5, 12
_BROKEN_LIMITS = (
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
    *("literal_error", "enum"),
)
"""Types of pydantic's errors about a value of the right type that is not allowed."""
_MOST_PROBABILITY = 1.05
"""Of a token's alternatives together: servers round each."""
_LEAST_REPEATS, _LEAST_REPEATED_CHARS, _MAX_UNIT_CHARS = 4, 30, 300


class InvalidReply(ValueError):  # noqa: N818 - its words are for the model, not for a programmer
    """A reply that is not what was asked for.

    Attributes:
        rejected: the reply as a model instance where only its content was wrong.
    """

    def __init__(self, complaint: str, rejected: BaseModel | None = None) -> None:
        super().__init__(complaint)
        self.rejected = rejected


def parse_reply(
    text: str,
    response_model: type[ModelT],
    check: Callable[[ModelT], str | None] | None = None,
    *,
    allowed: Callable[[], Mapping[str, str]] = dict,
) -> ModelT:
    """Return the reply as an instance of the response model.

    The JSON may stand alone, in prose, in a code fence, or after ``<think>``. Where several pieces
    fit, the last one counts: models that think aloud give drafts first.

    Args:
        text: the reply.
        response_model: what it must be.
        check: returns what is wrong with the content of a well-formed reply, or None.
        allowed: returns what some fields must be here, in words, where that is less than the
            response model allows: a reply that breaks both is told this.

    Raises:
        InvalidReply: nothing in the text fits.
    """
    try:
        decision = response_model.model_validate_json(text, context=WIRE)
    except ValidationError as error:
        decision = _search(text, response_model, error, allowed())
    if check is not None and (complaint := check(decision)):
        raise InvalidReply(complaint, rejected=decision)
    return decision


class _AnyObject(BaseModel):
    model_config = ConfigDict(extra="allow")


def reply_fields(text: str) -> dict[str, Any]:
    """Return the fields of the JSON object in a reply, whatever was asked for.

    Raises:
        InvalidReply: it has no JSON object.
    """
    return parse_reply(text, _AnyObject).model_extra or {}


def without_thinking(text: str) -> str:
    """Return a text without a model's thoughts between ``<think>`` tags.

    The opening tag may be missing, where the chat template wrote it: then all before the closing
    one is thought. The closing one may be, where the token limit cut it off: then all after the
    opening one is.
    """
    return _THOUGHT_ENDS.split(_THINKING.sub(" ", text))[-1]


class Repetition(NamedTuple):
    """What a text repeats at its end.

    Attributes:
        before: the text up to there, with the repeated piece at most once.
        unit: the repeated piece, without the white space around it; empty for white space alone.
        times: how often it stands there.
    """

    before: str
    unit: str
    times: int


def repeated_end(text: str) -> Repetition | None:
    """Return what a text repeats at its end, four times or more; None if it repeats nothing."""
    trimmed = text.rstrip()
    if len(text) - len(trimmed) >= _LEAST_REPEATED_CHARS:
        return Repetition(trimmed, "", len(text) - len(trimmed))
    size = len(trimmed)
    for period in range(1, min(_MAX_UNIT_CHARS, size // _LEAST_REPEATS) + 1):
        least = max(_LEAST_REPEATED_CHARS, period * _LEAST_REPEATS)
        if least <= size and _repeats(trimmed, size - least, period):
            # Slices are compared, a megabyte in no time; letter by letter it took 80 ms.
            start = bisect_left(
                range(size - least), True, key=lambda at: _repeats(trimmed, at, period)
            )
            once = (size - start) % period or period
            unit = trimmed[-period:].strip()
            return Repetition(trimmed[: start + once].rstrip(), unit, trimmed.count(unit, start))
    return None


def _repeats(text: str, start: int, period: int) -> bool:
    """Return True if each character from a place on is the one a period before it."""
    return text[start:-period] == text[start + period :]


def allowed_words(
    choices: Mapping[str, Sequence[Any]], limits: Mapping[str, tuple[float, float]]
) -> dict[str, str]:
    """Return by field what it must be, in words: ``from 0 to 5``, ``one of Ann, Bob``."""
    words = {name: f"from {lowest:g} to {highest:g}" for name, (lowest, highest) in limits.items()}
    for name, values in choices.items():
        more = ", …" if len(values) > _MOST_LISTED else ""
        words[name] = f"one of {', '.join(map(str, values[:_MOST_LISTED]))}{more}"
    return words


def _search(
    text: str,
    response_model: type[ModelT],
    first_error: ValidationError,
    allowed: Mapping[str, str],
) -> ModelT:
    if not text.strip():
        raise InvalidReply("the reply is empty")
    answer = without_thinking(text)
    found: ModelT | None = None
    complaint = ""
    for value in _json_values(answer):
        try:
            found = response_model.model_validate(value, context=WIRE)
        except ValidationError as error:
            complaint = _describe(error, allowed)
    if found is not None:
        return found
    if complaint:
        raise InvalidReply(complaint)
    reason = first_error.errors()[0]["msg"] if "{" in answer else "there is no JSON object in it"
    raise InvalidReply(f"the reply is not valid JSON: {reason}")


def _json_values(text: str) -> Iterator[dict[str, Any]]:
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
            position += 1
            continue
        yield value


def _describe(error: ValidationError, allowed: Mapping[str, str]) -> str:
    faults = []
    for fault in error.errors(include_url=False)[:_MAX_FAULTS]:
        where = ".".join(str(part) for part in fault["loc"]) or "the reply"
        if fault["type"] == "missing":
            faults.append(f"{where}: is missing")
        else:
            given = repr(fault["input"])
            given = given if len(given) <= 80 else given[:77] + "..."
            says = fault["msg"]
            if where in allowed and fault["type"] in _BROKEN_LIMITS:
                says = f"must be {allowed[where]}"
            faults.append(f"{where}: {says} (it was {given})")
    return "; ".join(faults)


def alternatives(listed: Iterable[tuple[Any, Any]], *, who: str) -> tuple[tuple[str, float], ...]:
    """Return tokens with their log-probabilities, the likeliest first, without impossible ones.

    Args:
        listed: pairs of token and natural log-probability, as the server says.
        who: the server, for messages.

    Raises:
        BackendError: a token is not a text, a number is not the logarithm of a probability, or the
            probabilities add up to more than 1.
    """
    pairs = list(listed)
    for token, value in pairs:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # A little above 0 is rounding; what is not a number compares False.
        if not (isinstance(token, str) and number and value < 1e-3):
            raise BackendError(
                f"{who} sent {clip(repr((token, value)), 80)} where a token and the logarithm of "
                "its probability should be",
                reason="server_error",
                status_code=200,
                retry=True,
            )
    possible = [(token, float(min(value, 0))) for token, value in pairs if value > -math.inf]
    whole = math.fsum(math.exp(value) for _, value in possible)
    if whole > _MOST_PROBABILITY:
        raise BackendError(
            f"{who} sent probabilities of tokens that add up to {whole:.3g}, which are none",
            reason="server_error",
            status_code=200,
            retry=True,
        )
    return tuple(sorted(possible, key=lambda pair: -pair[1]))


def with_instruction(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Return the conversation with a text at the end of its system message."""
    first = messages[0] if messages else None
    if first is not None and first.role == "system":
        return (replace(first, content=f"{first.content}\n\n{text}"), *messages[1:])
    return (Message("system", text), *messages)
