"""Diplomacy: open and closed channels, alliances, and a reputation that broken promises cost."""

from __future__ import annotations

from typing import Any

__all__ = ["build_agent_context", "compute_state_updates"]

PRICE_OF_A_BROKEN_COMMITMENT = 10
"""Points of reputation."""

_CHANNELS = {
    "Strained": "Channels are strained: expect slow answers, and hidden meanings read into yours.",
    "Closed": "Channels are closed: what you say reaches the other parties only in public.",
}


def build_agent_context(
    agent_name: str, agent_state: dict[str, Any], global_state: dict[str, Any]
) -> str | None:
    """Say what is out of the ordinary: channels, reputation, allies."""
    lines = []
    if note := _CHANNELS.get(global_state.get("diplomatic_channels", "Open")):
        lines.append(note)
    reputation = agent_state.get("reputation", 50)
    if reputation < 30:
        lines.append(f"Your word counts for little ({reputation}/100): others want guarantees.")
    elif reputation > 70:
        lines.append(f"Your word carries weight ({reputation}/100): others take your assurances.")
    if allies := agent_state.get("allies"):
        lines.append(f"Your allies: {allies}. They expect to hear from you before you act.")
    return "\n".join(lines) or None


def compute_state_updates(
    agent_name: str,
    agent_state: dict[str, Any],
    global_state: dict[str, Any],
    step_number: int,
) -> dict[str, Any]:
    """Charge a broken commitment to the agent's reputation, once."""
    if not agent_state.get("broke_commitment"):
        return {}
    left = max(0, agent_state.get("reputation", 50) - PRICE_OF_A_BROKEN_COMMITMENT)
    return {"reputation": left, "broke_commitment": False}
