"""Turn whatever a backend raised into one kind of fault, and say whether a retry may help."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from llmsim_lab.errors import BackendError, FailureReason

__all__ = ["as_backend_error", "retry_after_s"]

_MAX_RETRY_AFTER_S = 86_400.0
_BY_STATUS: dict[int, FailureReason] = {404: "model_not_found", 429: "rate_limited"}


def as_backend_error(error: Exception, *, timeout_s: float) -> BackendError | None:
    """Return the fault behind an exception, or None if it is a bug and must not be hidden.

    Args:
        error: what the backend raised.
        timeout_s: the limit that was in force, for the message.
    """
    if isinstance(error, BackendError):
        return error
    status = _status_code(error)
    if status is not None:
        reason = _BY_STATUS.get(status)
        if reason is None:
            reason = "server_error" if status >= 500 else "client_error"
        retry = status == 429 or status >= 500
        headers = getattr(getattr(error, "response", None), "headers", {})
        return BackendError(
            str(error),
            reason=reason,
            status_code=status,
            retry=retry,
            retry_after_s=retry_after_s(headers.get("retry-after")),
        )
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        message = f"no reply within {timeout_s:g} s; raise timeout_s or use a faster model"
        return BackendError(message, reason="timeout", retry=True)
    if isinstance(error, ConnectionError | httpx.TransportError):
        message = str(error) or type(error).__name__
        return BackendError(message, reason="connection_error", retry=True)
    return None


def retry_after_s(text: str | None, *, now: datetime | None = None) -> float | None:
    """Return the seconds a ``Retry-After`` header asks to wait, at most a day; None without one.

    Args:
        text: the header's value: seconds, or a date.
        now: what a date is counted from; the present if not given.
    """
    text = (text or "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), _MAX_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return min(max(0.0, seconds), _MAX_RETRY_AFTER_S)


def _status_code(error: Exception) -> int | None:
    """Return the HTTP status an exception carries, in ollama's, httpx's or openai's way."""
    response = getattr(error, "response", None)
    for holder in (error, response):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int) and status >= 400:
            return status
    return None
