"""What a tool call will do, in words for the user: made of the call itself, not by the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmsim_lab.assistant.shown import in_words
from llmsim_lab.assistant.types import PendingAction, ToolCall
from llmsim_lab.text import clip, printable

__all__ = ["described", "words_of"]

_MAX_CHARS = 200
_MAX_ITEMS = 10
_TITLES = ("title", "description", "name", "text")
_NUMBER = re.compile(r"(?:(?P<noun>.+)_)?(?:id|number)")
"""Arguments that say which thing is meant and nothing else, so that the thing alone is named."""
_PLAIN = (*_TITLES, "key", "url", "path", "query")
_QUOTES = str.maketrans("“”", "''")


def described(tool_name: str, parameters: Mapping[str, Any], seen: Sequence[ToolCall] = ()) -> str:
    """Return what a call will do.

    A thing named by its number is also given by its title, where a tool for such things has shown
    it: ``delete task 3 (“Buy milk”)``. What is too long is cut, and it is said how much.

    Args:
        tool_name: the tool.
        parameters: its arguments, checked.
        seen: calls whose results the title may come from.
    """
    words = in_words(tool_name)
    if not parameters:
        return words
    shown = {key: _shown(value) for key, value in parameters.items()}
    if len(shown) == 1:
        [(key, value)] = parameters.items()
        if (is_number := _NUMBER.fullmatch(key)) or (key in _PLAIN and isinstance(value, str)):
            noun = (is_number and is_number["noun"]) or words.rpartition(" ")[2].removesuffix("s")
            title = _title_of(value, noun, seen) if is_number else ""
            return f"{words} {shown[key]}" + (f" ({title})" if title else "")
    listed = ", ".join(f"{in_words(key)}: {value}" for key, value in shown.items())
    return f"{words} ({listed})"


def words_of(pending: PendingAction) -> str:
    """Return what a pending action will do.

    Its own description counts only as far as it adds a title to what the call itself says: a
    context may have been anywhere since.
    """
    own = described(pending.tool_name, pending.parameters)
    return pending.description if pending.description.startswith(f"{own} (") else own


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        items = ", ".join(map(_shown, value[:_MAX_ITEMS]))
        left = len(value) - _MAX_ITEMS
        return f"[{items}, and {left:,} more]" if left > 0 else f"[{items}]"
    text = printable(str(value))
    short = clip(text, _MAX_CHARS)
    cut = f" ({len(text):,} characters)" if len(text) > _MAX_CHARS else ""
    return f"“{short.translate(_QUOTES)}”{cut}" if isinstance(value, str) else f"{short}{cut}"


def _title_of(value: Any, noun: str, seen: Sequence[ToolCall]) -> str:
    for call in reversed(seen):
        if noun not in in_words(call.tool_name) or call.result is None:
            continue
        for thing in _objects(call.result.data):
            same = value in (thing.get("id"), thing.get("number"), thing.get(f"{noun}_id"))
            if same and not isinstance(value, bool):
                titles = [thing[name] for name in _TITLES if isinstance(thing.get(name), str)]
                return _shown(titles[0]) if titles else ""
    return ""


def _objects(data: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, Mapping):
        yield data
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from _objects(item)
