"""Helpers for the tests of the commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., tuple[int, str, str]]


def succeeds(run: Run, *arguments: str) -> str:
    """Run a command that ends well and without a warning; return what it prints."""
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    return out


def fails(run: Run, *arguments: str) -> str:
    """Run a command that ends with status 1; return its message."""
    status, _, err = run(*arguments)
    assert status == 1
    return err


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """Answer like a model that always wants half a point more."""
    fields = body["format"]["properties"]
    if "is_valid" in fields:
        return {"is_valid": True, "reasoning": "It is monetary.", "confidence": 0.9}
    if "new_interest_rate" in fields:
        rates = fields["new_interest_rate"]["enum"]
        return {
            "new_interest_rate": rates[len(rates) // 2 + 2],
            "reasoning": "Up.",
            "confidence": 0.9,
        }
    size = {"rate_change_bp": 50} if "rate_change_bp" in fields else {}
    return {
        "action": "Raise the interest rate [bold]now[/bold]",
        "reasoning": "Prices rise.",
        "confidence": 0.8,
        **size,
    }
