"""Take secrets out of what is kept: by the names they go under."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from llmsim_lab.errors import ConfigError

__all__ = ["SECRETS", "Redactor"]

SECRETS = ("password", "passphrase", "secret", "token", "api_key", "authorization")
"""Names under which secrets go, if nothing else is said."""

_HIDDEN = "***"
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_VALUE = (
    r"(\\\"[^\"\n]*\"|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'"  # the first: JSON inside a JSON string
    r"|(?:(?:bearer|basic|digest|token)\s+)?[^\s,;&}]+)"
)


class Redactor:
    """Replaces secrets by ``***``.

    Args:
        keys: names of secrets, in any spelling: ``api_key`` also finds ``apiKey``, ``API-KEY``,
            ``github_api_key`` and ``api_key2``. In text, what follows the name and ``:``, ``=`` or
            ``is`` goes.

    Raises:
        ConfigError: a name has no letters.
    """

    def __init__(self, keys: Iterable[str] = SECRETS) -> None:
        self._keys = [_words(key) for key in keys]
        if [] in self._keys:
            raise ConfigError("a key to redact must have letters; leave empty ones out")
        names = "|".join(r"[\s_-]?".join(words) for words in self._keys)
        self._in_text = re.compile(
            rf"((?<![a-z])(?:{names})\d*\\?[\"']?\s*(?::|=|\bis\b)\s*){_VALUE}", re.IGNORECASE
        )

    def text(self, text: str) -> str:
        """Return a text without the secrets that it names."""
        return self._in_text.sub(rf"\g<1>{_HIDDEN}", text) if self._keys else text

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets, as deep as it goes."""
        if isinstance(value, Mapping):
            return {
                str(key): _HIDDEN if self._is_secret(str(key)) else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _is_secret(self, key: str) -> bool:
        words = _words(key.rstrip("0123456789"))
        return any(words[-len(secret) :] == secret for secret in self._keys)


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(key)]
