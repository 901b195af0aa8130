"""How Go, which Ollama is written in, words JSON, times and durations."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["GoError", "dumps", "json_kind", "parse_duration", "quote", "timestamp"]

FOREVER = timedelta(microseconds=(2**63 - 1) / 1000)
"""Go's longest duration; what a negative ``keep_alive`` stands for."""

_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_HTML |= {0x2028: "\\u2028", 0x2029: "\\u2029"}
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[a-zµ]+(?:\d+\.?\d*|\.\d+))*([a-zµ]*)")


class GoError(Exception):
    """A fault whose text is what the server says."""


def dumps(value: Any) -> str:
    """Return compact JSON with Go's escapes of ``<``, ``>`` and ``&``."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_HTML)


def quote(text: str) -> str:
    """Return the text as ``%q`` prints it."""
    return json.dumps(text, ensure_ascii=False)


def json_kind(value: Any) -> str:
    """Name a JSON value's kind as Go's decoder does."""
    kinds = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    return kinds.get(type(value), "object")


def timestamp(moment: datetime | None = None) -> str:
    """Return RFC 3339 in UTC, trailing zeros of the second's fraction cut."""
    moment = moment or datetime.now(UTC)
    fraction = f".{moment.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def parse_duration(value: float | str) -> timedelta:
    """Read a ``keep_alive``: seconds, or text such as ``10m``; below zero is for ever.

    Raises:
        GoError: the text is no duration.
    """
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if not match:
            raise GoError(f"time: invalid duration {quote(value)}")
        if not match[1]:
            raise GoError(f"time: missing unit in duration {quote(value)}")
        parts = re.findall(r"([\d.]+)([a-zµ]+)", value)
        for _, unit in parts:
            if unit not in _UNITS_S:
                raise GoError(f"time: unknown unit {quote(unit)} in duration {quote(value)}")
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
        value = -seconds if value.startswith("-") else seconds
    return FOREVER if value < 0 else timedelta(seconds=value)
