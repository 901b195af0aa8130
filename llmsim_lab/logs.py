"""One log format: an event's name, then ``key=value`` pairs (logfmt), through stdlib logging.

The package never configures logging; ``logging.basicConfig(level="DEBUG")`` shows everything.
"""

from __future__ import annotations

import logging
import re
from typing import Any

__all__ = ["log_event", "logfmt"]

_BARE = re.compile(r"[^\s\"=\\]+")


def _format(value: object) -> str:
    text = str(value)
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in escaped) + '"'


def logfmt(**fields: object) -> str:
    """Return ``key=value`` pairs on one line; fields that are None are left out."""
    return " ".join(f"{key}={_format(value)}" for key, value in fields.items() if value is not None)


def log_event(logger: logging.Logger, level: int, event: str, **fields: Any) -> None:
    """Log one event; costs next to nothing where the level is off."""
    if logger.isEnabledFor(level):
        line = logfmt(**fields)
        logger.log(level, "%s %s" if line else "%s%s", event, line, stacklevel=2)
