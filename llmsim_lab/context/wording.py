"""How state values and other people's words are written into a prompt."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from llmsim_lab.text import number

__all__ = ["event_line", "humanise", "names_a_speaker", "quote", "section", "spoken", "value_text"]

_SPEECH = re.compile(r""":[*_]*\s*["\u201c\u201d\u201e\u00ab]""")
"""A colon and an opening quotation mark, however a model sets them."""


def humanise(name: str) -> str:
    """Make a label of a name: ``crisis_level`` reads ``Crisis level``."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def event_line(event: Mapping[str, Any]) -> str:
    """Write an event on one line, so that its words cannot pass for a section; empty for none."""
    words = event.get("description") or humanise(str(event.get("type") or ""))
    return " ".join(str(words).split())


def section(title: str, text: str) -> str:
    """Put a heading over a text, unless it begins with one of its own."""
    return text if text.startswith("=== ") else f"=== {title} ===\n{text}"


def value_text(value: Any) -> str:
    """Write a value that no definition describes, on one line."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, Mapping):
        pairs = [f"{key}: {value_text(item)}" for key, item in value.items()]
        return ", ".join(pairs) or "none"
    if isinstance(value, list | tuple):
        return ", ".join([value_text(item) for item in value]) or "none"
    return " ".join(str(value).split())


def quote(speaker: str, words: str, names: Collection[str] = ()) -> str:
    """Return what somebody said, in the form ``Speaker: "words"``.

    The words are a model's. Lines of theirs that could pass for a section's heading, or for another
    speaker's, are marked with ``> ``, so that nobody speaks for others or for the simulation.

    Args:
        speaker: who said it.
        words: what.
        names: of all who could speak, in ``casefold``.
    """
    words = words.strip()
    if "===" in words or names_a_speaker(words):
        first, *rest = words.splitlines()  # the first stands behind the speaker's name
        words = "\n".join([first, *[_marked(line, names) for line in rest]])
    return spoken(speaker, words)


def spoken(speaker: str, words: str) -> str:
    """Return what ``quote`` makes of words that are stripped and need no mark."""
    return f'{speaker}: "{words}"' if words else f"{speaker}: (said nothing)"


def names_a_speaker(words: str) -> bool:
    """Say whether anything in a text has the form of somebody's words: ``Speaker: "``."""
    return ":" in words and _SPEECH.search(words) is not None


def _marked(line: str, names: Collection[str]) -> str:
    found = _SPEECH.search(line)
    fakes = line.lstrip().startswith("===") or (
        found and line[: found.start()].strip(" \t*_#>-").casefold() in names
    )
    return f"> {line}" if fakes else line
