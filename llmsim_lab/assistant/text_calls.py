"""Tool calls that a model writes as text: by accident, or since it knows no other way."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from llmsim_lab.assistant.protocols import FunctionCall
from llmsim_lab.llm.extract import without_thinking

__all__ = [
    "calls_in_text",
    "cut_answer",
    "embedded_calls",
    "is_code",
    "read_choice",
    "was_shown",
    "without_calls",
]

_TAGS = r"</?\|?tool_calls?\|?>|<\|python_tag\|>|\[/?TOOL_CALLS\]"
_WRAPPING = re.compile(rf"{_TAGS}|```(?:json|tool_call)?", re.IGNORECASE)
_FUNCTION = re.compile(r"<function=([\w.\-]{1,64})>\s*(\{[^<]*\})?\s*</function>")
_OBJECT = re.compile(r'\{\s*"(?:name|function|arguments|parameters|type|id)"\s*:')
_MAX_OBJECTS = 32
"""More objects in one text are not looked at, so that no text takes long."""
_MARKS = re.compile(
    rf"<tool_calls?>[^<]*</tool_calls?>|{_TAGS}|</?function\b[^<>]*>", re.IGNORECASE
)
_LEFT_OVER = re.compile(r"```\w*\s*```|\[[\s,]*\]")
_NOT_MEANT = re.compile(
    "[?\uff1f\u061f]|\\b(?:would|could|should|example|instance|never|not|don't|didn't)\\b|e\\.g\\.",
    re.IGNORECASE,
)
"""Prose about a call, or a question beside it: whoever asks first does not want it made yet."""
_FENCE = re.compile(r"```\w*|`")
_CODE_LINE = re.compile(r"(?:\w+\.)*(\w+)(?:\s*\([^\n]*\))?;?")
_ANSWER_BEGUN = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_HALF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z")
_DECODER = json.JSONDecoder()


def calls_in_text(text: str) -> list[FunctionCall]:
    """Return the calls that a text consists of; none if there is anything else in it.

    Small models write what their server should have taken for a call, ``{"name": ...,
    "arguments": ...}``, bare or in tags or fences. What stands in the model's thoughts is no call.
    """
    # Where the whole is JSON, a tag within it is an argument's own and begins no thought.
    return _only_calls(text) or _only_calls(without_thinking(text))


def _only_calls(text: str) -> list[FunctionCall]:
    bare = _WRAPPING.sub(" ", text).strip()
    if not bare.startswith(("{", "[")):
        return []
    calls = []
    try:
        for value in _values(bare):
            for item in value if isinstance(value, list) else [value]:
                if (call := _call_of(item)) is None:
                    return []
                calls.append(call)
    except (ValueError, RecursionError):
        return []
    return calls


def embedded_calls(text: str, names: Collection[str], shown: Collection[str]) -> list[FunctionCall]:
    """Return the calls that a text holds beside prose, as far as they are meant to be made.

    They are not where the prose asks something or speaks of a call that could be made, where no
    tool has the name, where they stand in the model's thoughts, and where the model was shown the
    same words: a task's text that looks like a call must not become one by being read out. That
    holds for the same characters only, whatever the spaces and backslashes between them: a call
    that the model puts in other words, or whose fields it puts in another order, is made.

    Args:
        text: what the model wrote.
        names: of the tools the model was offered.
        shown: what the model was shown before: messages of the user, results of tools.
    """
    text = without_thinking(text)
    found = list(_calls_within(text))
    calls = [call for call, _, _ in found]
    if not any(call.name in names for call in calls) or _NOT_MEANT.search(_around(text, found)):
        return []
    known = "".join(map(_without_gaps, shown))
    if any(_without_gaps(text[start:end]) in known for _, start, end in found):
        return []
    return calls


def was_shown(text: str, shown: Collection[str]) -> bool:
    """Say whether a text, fences and brackets aside, stands in what the model was shown.

    Args:
        text: what the model wrote.
        shown: as ``embedded_calls`` has it.
    """
    bare = _without_gaps(_WRAPPING.sub(" ", without_thinking(text))).strip("[],;")
    return bool(bare) and bare in "".join(map(_without_gaps, shown))


def without_calls(text: str, names: Collection[str]) -> str:
    """Return a text without the calls in it, which are nothing for the user to read.

    Args:
        text: what the model wrote.
        names: of the tools; a call of one of them is cut off also where its JSON is broken.
    """
    rest = _around(text, list(_calls_within(text)))
    for match in islice(_OBJECT.finditer(rest), _MAX_OBJECTS):
        begun = rest[match.start() : match.start() + 200]
        if any(f'"{name}"' in begun for name in names) and _decoded(rest, match.start()) is None:
            rest = rest[: match.start()]
            break
    rest = _MARKS.sub("", rest)
    if rest == text:
        return text
    rest = _LEFT_OVER.sub("", rest).strip()
    return rest if re.search(r"\w", rest) else ""


def is_code(text: str, names: Collection[str]) -> bool:
    """Say whether a text is nothing but tools' names or calls as a program has them.

    Such calls, ``add_task(title="x")``, are not made: what they mean is guesswork.
    """
    lines = [line.strip() for line in _FENCE.sub("", without_thinking(text)).splitlines()]
    found = [_CODE_LINE.fullmatch(line) for line in lines if line]
    return bool(found) and all(match is not None and match[1] in names for match in found)


def _calls_within(text: str) -> Iterator[tuple[FunctionCall, int, int]]:
    """Yield the calls in a text in order, each with where it stands."""
    found = [
        (FunctionCall(match[1], match[2] or "{}"), *match.span())
        for match in islice(_FUNCTION.finditer(text), _MAX_OBJECTS)
    ]
    for match in islice(_OBJECT.finditer(text), _MAX_OBJECTS):
        read = _decoded(text, match.start())
        call = _call_of(read[0]) if read else None
        if read and call is not None:
            found.append((call, match.start(), read[1]))
    place = 0
    for call, start, end in sorted(found, key=lambda each: each[1]):
        if start >= place:  # not within the one before
            place = end
            yield call, start, end


def _around(text: str, found: Collection[tuple[FunctionCall, int, int]]) -> str:
    """Return a text without what was found in it."""
    for _, start, end in reversed(list(found)):
        text = text[:start] + text[end:]
    return text


def _without_gaps(text: str) -> str:
    """Return a text without what may differ where it is quoted: spaces and escapes."""
    return re.sub(r"[\s\\]", "", text)


def _decoded(text: str, place: int) -> tuple[Any, int] | None:
    """Return the JSON value that begins at a place, and where it ends; None if none does."""
    try:
        return _DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        return None


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values that a text consists of."""
    place = 0
    while place < len(text):
        value, place = _DECODER.raw_decode(text, place)
        yield value
        while place < len(text) and text[place] in " \t\r\n,;":
            place += 1


def _call_of(value: Any) -> FunctionCall | None:
    if not isinstance(value, dict):
        return None
    value = value.get("function") if isinstance(value.get("function"), dict) else value
    name = value.get("name")
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(name, str) and isinstance(arguments, dict | str):
        return FunctionCall(name, arguments)
    return None


def read_choice(text: str) -> FunctionCall | str | None:
    """Return what a reply held to ``tool_schema`` says: a call, an answer, or None if neither."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(said, dict) and isinstance(answer := said.get("answer"), str) and answer.strip():
        return answer
    return _call_of(said)


def cut_answer(text: str) -> str | None:
    """Return what there is of an answer that the token limit cut inside its JSON, or None."""
    begun = _ANSWER_BEGUN.match(text)
    if begun is None:
        return None
    rest = _HALF_ESCAPE.sub(r"\1", text[begun.end() :])
    try:
        said = str(json.loads(f'"{rest}"', strict=False)).strip()
    except ValueError:
        return None
    return f"{said} …" if said else None
