"""Tool calls that a model writes as text: by accident, or since it knows no other way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from llmsim_lab.assistant.protocols import FunctionCall

__all__ = ["calls_in_text", "cut_answer", "read_choice"]

_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_WRAPPING = re.compile(r"</?tool_calls?>|```(?:json|tool_call)?|\[/?TOOL_CALLS\]", re.IGNORECASE)
_ANSWER_BEGUN = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_HALF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z")
_DECODER = json.JSONDecoder()


def calls_in_text(text: str) -> list[FunctionCall]:
    """Return the calls that a text consists of; none if there is anything else in it.

    Small models write what their server should have taken for a call, ``{"name": ...,
    "arguments": ...}``, bare or in tags or fences.
    """
    bare = _WRAPPING.sub(" ", _THINKING.sub(" ", text)).strip()
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
