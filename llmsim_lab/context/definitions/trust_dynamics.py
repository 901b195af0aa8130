"""Trust: what its level means for an agent, and how it wears off without good dealings."""

from __future__ import annotations

import textwrap
from typing import Any

__all__ = ["build_agent_context", "compute_state_updates"]

LOW = 30
HIGH = 70
DECAY_PER_STEP = 1
"""Points of trust lost in a step without a positive interaction."""


def build_agent_context(
    agent_name: str, agent_state: dict[str, Any], global_state: dict[str, Any]
) -> str | None:
    """Say how the agent stands with the others, and what moved it."""
    trust = agent_state.get("trust_level", 50)
    if trust < LOW:
        text = f"WARNING: Trust critically low ({trust}/100). Others view you with suspicion."
    elif trust > HIGH:
        text = f"ADVANTAGE: High trust ({trust}/100). Others are receptive to your proposals."
    else:
        text = f"Your trust is stable ({trust}/100)."
    return textwrap.fill(f"{text} {agent_state.get('trust_note', '')}".strip(), 76)


def compute_state_updates(
    agent_name: str,
    agent_state: dict[str, Any],
    global_state: dict[str, Any],
    step_number: int,
) -> dict[str, Any]:
    """Let trust decay while there is no positive interaction."""
    trust = agent_state.get("trust_level", 50)
    if agent_state.get("had_positive_interaction") is False and trust > 0:
        return {"trust_level": max(0, trust - DECAY_PER_STEP)}
    return {}
