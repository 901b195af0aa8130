"""Contagion: fear in the market wears confidence in every bank down, calm restores it slowly.

An illustration, not an estimate.
"""

from __future__ import annotations

from typing import Any

__all__ = ["build_agent_context", "compute_state_updates"]

ALARM = 60
CALM = 30


def build_agent_context(
    agent_name: str, agent_state: dict[str, Any], global_state: dict[str, Any]
) -> str | None:
    """Say that fear is spreading, if it is."""
    fear = global_state.get("market_fear", 40)
    if fear <= ALARM:
        return None
    return (
        f"Fear is spreading ({fear}/100): your depositors lose {_loss(fear)} points a step by it."
    )


def compute_state_updates(
    agent_name: str, agent_state: dict[str, Any], global_state: dict[str, Any], step_number: int
) -> dict[str, Any]:
    """Move the agent's depositors with the market's mood."""
    fear = global_state.get("market_fear", 40)
    confidence = agent_state["depositor_confidence"]
    if fear > ALARM and confidence:
        return {"depositor_confidence": max(0, confidence - _loss(fear))}
    if fear < CALM and confidence < 100:
        return {"depositor_confidence": confidence + 1}
    return {}


def _loss(fear: int) -> int:
    """Return the points of confidence lost in a step: one for every eight of fear above alarm."""
    return 1 + (fear - ALARM) // 8
