"""Texts that fit a regular expression."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from random import Random

# Python's own parser is private. The public module that it was, ``sre_parse``, is deprecated and
# warns, and the libraries that make texts for an expression, such as rstr, read this one too.
# A Python without these names fails at import, where the tests see it.
from re import _constants as regex  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_MORE = 3
"""How often a part is repeated beyond the fewest times, at most; more often in a long text."""
_LETTERS = string.ascii_letters + string.digits
_PRINTABLE = _LETTERS + string.punctuation + " "
_CATEGORIES = {
    regex.CATEGORY_DIGIT: string.digits,
    regex.CATEGORY_WORD: _LETTERS + "_",
    regex.CATEGORY_SPACE: " ",
    regex.CATEGORY_NOT_DIGIT: string.ascii_letters,
    regex.CATEGORY_NOT_WORD: string.punctuation.replace("_", ""),
    regex.CATEGORY_NOT_SPACE: _LETTERS,
}


def text_like(
    pattern: str,
    rng: Random,
    *,
    shortest: int = 0,
) -> str:
    """Return a text that a regular expression matches, as far as it is one of characters.

    Args:
        pattern: the regular expression.
        rng: draws.
        shortest: the characters that it should have; where the expression leaves the length open,
            the text may have fewer or more.

    Raises:
        ValueError: Python's ``re`` does not read it, though pydantic may.
    """
    try:
        return _text_of(
            _parser.parse(pattern),
            rng,
            {},
            max(_MORE, shortest),
        )
    except (re.error, LookupError) as error:
        raise ValueError(str(error)) from error


Nodes = Iterable[tuple[object, Any]]
"""Of a parsed expression: what each is, and what it holds."""


def _text_of(
    nodes: Nodes,
    rng: Random,
    groups: dict[int, str],
    more: int,
) -> str:
    text = ""
    for kind, value in nodes:
        if kind is regex.LITERAL:
            text += chr(value)
        elif kind is regex.ANY:
            text += rng.choice(_LETTERS)
        elif kind is regex.IN:
            text += rng.choice(_characters(value))
        elif kind is regex.NOT_LITERAL:
            text += rng.choice(_PRINTABLE.replace(chr(value), ""))
        elif kind is regex.BRANCH:
            text += _text_of(
                rng.choice(value[1]),
                rng,
                groups,
                more,
            )
        elif kind is regex.SUBPATTERN:
            groups[value[0]] = _text_of(
                value[-1],
                rng,
                groups,
                more,
            )
            text += groups[value[0]]
        elif kind is regex.GROUPREF:
            text += groups[value]
        elif kind in (regex.MAX_REPEAT, regex.MIN_REPEAT, regex.POSSESSIVE_REPEAT):
            fewest, most, inner = value
            for _ in range(rng.randint(fewest, min(most, fewest + more))):
                text += _text_of(inner, rng, groups, more)
        elif kind is regex.ATOMIC_GROUP:
            text += _text_of(value, rng, groups, more)
        # Others, such as the anchors, stand for no character; the caller judges what is drawn.
    return text


def _characters(nodes: Nodes) -> str:
    """Return the characters of a class such as ``[A-Z_]``."""
    characters = ""
    is_negated = False
    for kind, value in nodes:
        if kind is regex.NEGATE:
            is_negated = True
        elif kind is regex.LITERAL:
            characters += chr(value)
        elif kind is regex.RANGE:
            first, last = value
            characters += "".join(map(chr, range(first, last + 1)))
        else:
            characters += _CATEGORIES[value]
    if is_negated:
        return "".join(letter for letter in _PRINTABLE if letter not in characters)
    return characters
