"""What of a model's text the user is shown: its words, and none of the machinery."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import get_args

from llmsim_lab.assistant.types import ToolErrorCode
from llmsim_lab.llm._extract import without_thinking
from llmsim_lab.text import printable

__all__ = ["for_user", "in_words"]

_QUOTED = re.compile(
    r"\"[^\"\n]*\"|“[^“”\n]*”|«[^«»\n]*»|`[^`\n]*`|(?<!\w)'[^'\n]*(?:'\w[^'\n]*){0,3}'(?!\w)"
)
"""Words in quotation marks or as code; an apostrophe within a word is none."""
_BETWEEN = r"(?:\\?_|[-./:])?"  # Markdown may have it as \_
_ARGUMENTS = r"(?:\((?:[^()\n]|\([^()\n]{0,100}\)){0,300}\))?"
_CODES: tuple[str, ...] = get_args(ToolErrorCode)


def in_words(tool_name: str) -> str:
    """Return a tool's name as words: ``delete_task`` and ``deleteTask`` as ``delete task``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./:]+", " ", tool_name)
    return " ".join(spaced.lower().split())


def for_user(text: str, tool_names: Iterable[str]) -> str:
    """Return a model's text fit to be shown: no thinking, names of tools, control codes.

    A name within a quotation that says more than the name is the user's own word and stays.
    """
    names = list(tool_names)
    shown = printable(without_thinking(text), keep="\n\t").strip()
    internal = {_letters(name): in_words(name) for name in (*names, *_CODES)}
    quoted = [match.span() for match in _QUOTED.finditer(shown) if match[0][0] != "`"]

    def reworded(match: re.Match[str]) -> str:
        place = bisect_right(quoted, (match.start(), len(shown))) - 1
        if place >= 0 and match.end() < quoted[place][1]:
            start, end = quoted[place]
            if _letters(shown[start:end]) != _letters(match[0]):
                return match[0]
        return internal[_letters(match[1])]

    longest_first = sorted(internal.values(), key=len, reverse=True)
    spelled = "|".join(_BETWEEN.join(map(re.escape, w.split())) for w in longest_first if " " in w)
    return re.sub(
        rf"`?(?<!\w)({spelled})(?!\w){_ARGUMENTS}`?", reworded, shown, flags=re.IGNORECASE
    )


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()
