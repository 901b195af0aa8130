"""Faults that a fake server commits on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmsim_lab.errors import ConfigError

__all__ = ["Fault"]

_RUNNER_DIED = "an error was encountered while running the model: unexpected EOF"
_TEXTS = {
    429: "too many requests",
    500: _RUNNER_DIED,
    503: "server busy, please try again.  maximum pending requests exceeded",
}
Kind = Literal[
    "status",
    "delay",
    "hang",
    "cut_connection",
    "cut_stream",
    "error_line",
    "invalid_json",
    "overflow",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong with a chat request; made by the class methods below."""

    kind: Kind
    status_code: int = 500
    text: str = ""
    seconds: float = 0.0
    after: int = 0
    retry_after: str | None = None

    @classmethod
    def status(
        cls, status_code: int, text: str | None = None, *, retry_after: str | None = None
    ) -> Fault:
        """Answer with an error status; 429, 500 and 503 have Ollama's own texts.

        Args:
            status_code: 400 to 599.
            text: the error's text.
            retry_after: the header ``Retry-After``, which proxies send: seconds, or a date.
        """
        if not 400 <= status_code <= 599:
            raise ConfigError(f"status_code={status_code} is no error; give 400 to 599")
        said = _TEXTS.get(status_code, f"fault {status_code} on demand") if text is None else text
        return cls(kind="status", status_code=status_code, text=said, retry_after=retry_after)

    @classmethod
    def delay(cls, seconds: float) -> Fault:
        """Answer properly, but this much later."""
        return cls(kind="delay", seconds=seconds)

    @classmethod
    def hang(cls) -> Fault:
        """Never answer; the request ends when the client goes away or the server stops."""
        return cls(kind="hang")

    @classmethod
    def cut_connection(cls) -> Fault:
        """Drop the connection before a byte of the answer."""
        return cls(kind="cut_connection")

    @classmethod
    def cut_stream(cls, after: int = 2) -> Fault:
        """Drop the connection after so many lines; a plain answer is cut in its middle."""
        return cls(kind="cut_stream", after=after)

    @classmethod
    def end_stream(cls, after: int = 2) -> Fault:
        """End in good form after so many tokens, as a server does that stops its model.

        A stream lacks its closing line; a plain answer has ``"done": false`` and no counts.
        """
        return cls(kind="cut_stream", after=after, text="in good form")

    @classmethod
    def error_line(cls, after: int = 2, text: str = _RUNNER_DIED) -> Fault:
        """End a stream with an error line, status 200; a plain answer becomes a 500."""
        return cls(kind="error_line", after=after, text=text)

    @classmethod
    def invalid_json(cls) -> Fault:
        """Answer with status 200 and a body (or first line) that is cut JSON."""
        return cls(kind="invalid_json")

    @classmethod
    def overflow(cls) -> Fault:
        """Say that the prompt does not fit, whatever its length."""
        return cls(kind="overflow")
