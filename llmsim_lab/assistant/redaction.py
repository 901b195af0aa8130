"""Take secrets out of what is kept: by the names they go under."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from llmsim_lab.errors import ConfigError

__all__ = ["SECRETS", "Redactor"]

SECRETS = ("password", "passphrase", "secret", "token", "api_key", "authorization")
"""Names under which secrets go, if nothing else is said."""

_HIDDEN = "***"
_MAX_DEPTH = 100
_TOO_DEEP = f"(left out: more than {_MAX_DEPTH} levels deep, or a part of itself)"
_LONG = 5
"""Letters from which on a name is also found at the end of a longer word, as in ``dbpassword``."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_COUNTS = re.compile(r"\b(?:count|limit|max|min|number|total|usage|length)\b")
_NAMES_A_VALUE = ("name", "key", "header")

_GAP = r"[\s_-]?"
_BETWEEN = r"""\\*["']?(?:
    \s*(?:(?:is|was)\b\s*)?(?:(?P<line>[:\uff1a→]|->)|(?P<word>[=\uff1d]+>?))\s*
    | \s+(?P<clause>is|was)\b\s*
    | (?P<option>\s+))"""
"""What stands between a name and its value; the group says how far the value goes. The escapes are
a wide colon and a wide equals sign.
"""
_QUOTED = re.compile(r"(\\*)([\"']).*?(?:(?<!\\)\1\2[^\s,;&}\])\\]*|\Z)", re.DOTALL)
_BRACKETED = re.compile(r"[\[{].*", re.DOTALL)
_WORD = re.compile(r"(?:(?:bearer|basic|digest|token)\s+)?(?:[^\s,;&]|,(?=\S))+", re.IGNORECASE)
_PLAIN = {
    "line": re.compile(r"[^\n]+"),
    "clause": re.compile(r"(?:[^\n,;.]|[,;.](?=\S))+"),
    "word": _WORD,
    "option": _WORD,
}
_OPTION_START = re.compile(r"(?:^|\s)--?[\w-]*$")
_LONGEST_START = 40
_NUMBER = re.compile(r"[\d.,_ ]*\d\b")


class Redactor:
    """Replaces secrets by ``***``.

    In JSON, the value goes with its key: whole, whatever it is. In a text, what goes after a name
    is a quoted text up to its closing quote; all the rest after an opening bracket; and else, after
    ``:`` or an arrow, the rest of the line, after ``is`` or ``was``, the rest of the clause, after
    ``=``, and after the name of an option (``--password x``), the next word. So rather too much is
    hidden than too little; a secret that no such name stands before is not found. A text that is
    JSON is treated as JSON. Numbers under names of counts stay: ``tokens``, ``token_count``.

    Args:
        keys: names of secrets, in any spelling: ``api_key`` also finds ``apiKey``, ``API-KEY``,
            ``apikey``, ``github_api_key``, ``api_key_id`` and ``api_keys``. Names of at least five
            letters are found at the end of longer words, too: ``dbpassword``.

    Raises:
        ConfigError: a name has no letters.
    """

    def __init__(self, keys: Iterable[str] = SECRETS) -> None:
        names = [_words(key) for key in keys]
        if not all(names):
            raise ConfigError("a key to redact must have letters; leave empty ones out")
        self._key = re.compile(_any_of(names, " ?") + r"s?(?!\w)")
        self._in_text = re.compile(
            rf"(?P<key>{_any_of(names, _GAP)}(?:\w|-(?=\w)){{0,40}}+){_BETWEEN}",
            re.IGNORECASE | re.VERBOSE,
        )
        self._active = bool(names)

    def text(self, text: str) -> str:
        """Return a text without the secrets that it names."""
        return self._text(text, 0)

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets; what is no JSON becomes text.

        What is nested too deeply, or contains itself, is replaced by a remark.
        """
        return self._value(value, 0)

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, depth)
        if value is None or isinstance(value, bool | int | float):
            return value
        if not isinstance(value, Mapping | list | tuple):
            return self._text(str(value), depth)
        if depth >= _MAX_DEPTH:
            return _TOO_DEEP
        if isinstance(value, Mapping):
            named = any(self._names_secret(value.get(key)) for key in _NAMES_A_VALUE)
            return {
                str(key): _HIDDEN
                if self._is_secret(str(key), item) or (named and key == "value")
                else self._value(item, depth + 1)
                for key, item in value.items()
            }
        if len(value) == 2 and self._names_secret(value[0]):
            return [value[0], _HIDDEN]
        return [self._value(item, depth + 1) for item in value]

    def _text(self, text: str, depth: int) -> str:
        if not self._active:
            return text
        if text.lstrip()[:1] in ("{", "[") and depth < _MAX_DEPTH:
            try:
                read = json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                if (shown := self._value(read, depth + 1)) != read:
                    return json.dumps(shown, ensure_ascii=False)
        kept, at = [], 0
        for found in self._in_text.finditer(text):
            if found.start() < at:
                continue
            if (end := self._end_of_secret(text, found)) > found.end():
                kept += [text[at : found.end()], _HIDDEN]
                at = end
        return "".join([*kept, text[at:]])

    def _end_of_secret(self, text: str, found: re.Match[str]) -> int:
        """Return where the value after a name ends; the name's own end if it is no secret."""
        how, begin = str(found.lastgroup), found.end()
        number = _NUMBER.match(text, begin)
        if not self._is_secret(found["key"], 0 if number else text):
            return begin
        if how == "option":
            before = text[max(0, found.start() - _LONGEST_START) : found.start()]
            if not _OPTION_START.search(before):
                return begin
        for pattern in (_QUOTED, _BRACKETED, _PLAIN[how]):
            if value := pattern.match(text, begin):
                return value.end()
        return begin

    def _is_secret(self, key: str, value: Any) -> bool:
        words = " ".join(_words(key))
        if not self._active or (found := self._key.search(words)) is None:
            return False
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        counts = found[0].endswith("s") or _COUNTS.search(words) is not None
        return not (is_number and counts)

    def _names_secret(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) <= 100 and self._is_secret(value, value)


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(key)]


def _any_of(names: Iterable[list[str]], between: str) -> str:
    """Return a pattern of names; short ones must begin a word."""
    patterns = []
    for words in names:
        start = "" if len("".join(words)) >= _LONG else r"(?<![^\W_])"
        patterns.append(start + between.join(map(re.escape, words)))
    return f"(?:{'|'.join(patterns)})"
