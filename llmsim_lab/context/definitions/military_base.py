"""Armed forces: what their readiness allows, what an alert costs, how they recover."""

from __future__ import annotations

from typing import Any

__all__ = ["build_agent_context", "compute_state_updates"]

COST_OF_ALERT = 2
RECOVERY = 1
RESTED = 50
"""Forces not on alert recover up to here, one point a step."""


def build_agent_context(
    agent_name: str, agent_state: dict[str, Any], global_state: dict[str, Any]
) -> str | None:
    """Say what is out of the ordinary: worn or strong forces, and an alert."""
    lines = []
    readiness = agent_state.get("military_readiness", RESTED)
    if readiness < 30:
        lines.append(f"WARNING: Your forces are worn ({readiness}/100). A show of force may fail.")
    elif readiness > 85:
        lines.append(f"ADVANTAGE: Your forces are at high readiness ({readiness}/100).")
    if agent_state.get("on_alert"):
        lines.append(f"Your forces are on alert, which costs {COST_OF_ALERT} points a step.")
    return "\n".join(lines) or None


def compute_state_updates(
    agent_name: str,
    agent_state: dict[str, Any],
    global_state: dict[str, Any],
    step_number: int,
) -> dict[str, Any]:
    """Wear forces on alert out; let others recover."""
    readiness = agent_state.get("military_readiness", RESTED)
    if agent_state.get("on_alert"):
        return {"military_readiness": max(0, readiness - COST_OF_ALERT)} if readiness else {}
    if readiness < RESTED:
        return {"military_readiness": readiness + RECOVERY}
    return {}
