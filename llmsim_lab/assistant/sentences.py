"""What the writer of a text says, sentence by sentence, and what is only quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["QUOTED", "is_question", "own_words", "plain", "sentences"]

QUOTED = re.compile(
    r"\"[^\"\n]*\"|“[^“”\n]*”|«[^«»\n]*»|`[^`\n]*`|(?<!\w)'[^'\n]*(?:'\w[^'\n]*){0,3}'(?!\w)"
)
"""Words in quotation marks or as code; an apostrophe within a word is none."""
_SENTENCE_END = re.compile("(?<=[.!?\u2026\uff1f\u061f])\\s+|\\n+")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")  # the wide and the Arabic one, too
_CLOSING = " \t\"'”\u2019»)]>~!."


def plain(text: str) -> str:
    """Return a text in small letters and with straight apostrophes."""
    return text.replace("\u2019", "'").replace("\u2018", "'").lower()


def own_words(text: str) -> str:
    """Return a text as ``plain`` does and without what it quotes."""
    return QUOTED.sub(" ", plain(text))


def sentences(own: str) -> Iterator[str]:
    """Yield the sentences of a text, each with single spaces."""
    for sentence in _SENTENCE_END.split(own):
        yield " ".join(sentence.split())


def is_question(sentence: str) -> bool:
    """Say whether a sentence ends in a question mark, whatever signs come after it."""
    return sentence.rstrip(_CLOSING).endswith(_QUESTION_MARKS)
