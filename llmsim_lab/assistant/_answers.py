"""What users read: calls in words, and models' texts without what is not for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from llmsim_lab._util.text import clip, printable
from llmsim_lab.assistant._toolbox import in_words, json_text
from llmsim_lab.llm.extract import without_thinking

_QUESTION_MARKS = tuple("?;\uff1f\u061f\u037e")  # wide, Arabic; Greek looks like a semicolon
_CLOSING = " \t\r\n\"'*)]\u00bb\u2019\u201c\u201d\u300d\uff09"
_KEPT = "\n\t\u200c\u200d"  # and the joiners, with which emoji and Persian words are written


def asks(text: str) -> bool:
    """Return True if a text ends in a question mark."""
    # A closing quotation mark or bracket may follow the question mark.
    return text.rstrip(_CLOSING).endswith(_QUESTION_MARKS)


def described(tool_name: str, parameters: Mapping[str, object]) -> str:
    """Return what a call will do, in words: ``delete task 3``; long values are cut."""
    action = clip(in_words(tool_name), 200)
    if not parameters:
        return action
    names = [_shown(in_words(key)) for key in parameters]
    values = [_shown(json_text(value)) for value in parameters.values()]
    # "delete task 3", not "delete task (task id: 3)".
    if len(names) == 1 and re.fullmatch(r"(?:.+ )?(?:id|number)", names[0]):
        return f"{action} {values[0]}"
    # Not by name: two keys may be one in words, and the user has to see both values.
    pairs = zip(names, values, strict=True)
    listed = ", ".join(f"{name}: {value}" for name, value in pairs)
    return f"{action} ({listed})"


def _shown(text: str) -> str:
    # Marks of direction could make the question read as another one than what will run.
    return clip(printable(text), 200)


def for_user(text: str, tool_names: Iterable[str]) -> str:
    """Return a model's text as the user may see it: no thinking, tool names or control codes."""
    clean = printable(without_thinking(text), keep=_KEPT).strip()
    # The longest first: of "add" and "add-task" the second must be found whole.
    names = sorted(
        tool_names,
        key=len,
        reverse=True,
    )
    if not names:
        return clean
    any_name = "|".join(map(re.escape, names))
    return re.sub(
        rf"`?\b({any_name})\b`?",
        lambda match: in_words(match[1]),
        clean,
    )
