"""Bank liquidity: depositors who lack confidence withdraw, and what is left to pay them.

The rule is an illustration: below half of the scale, each point of missing confidence moves 0.2
percent of the deposits out in a step. It is not estimated from any bank run.
"""

from __future__ import annotations

from typing import Any

__all__ = ["build_agent_context", "compute_state_updates"]

CALM = 50
"""Confidence from which on nobody withdraws more than is paid in."""

SHARE_PER_POINT = 0.002
"""Of the deposits, withdrawn in a step for each point of confidence below that."""

SHARE_IF_LIMITED = 0.01
"""The most that leaves in a step where the bank limits withdrawals."""


def build_agent_context(
    agent_name: str, agent_state: dict[str, Any], global_state: dict[str, Any]
) -> str | None:
    """Say what the bank owes and could pay out, and how long that lasts."""
    deposits, liquid = agent_state["deposits"], agent_state["liquid_assets"]
    lender = global_state.get("lender_of_last_resort", "Closed")
    lines = [
        f"{agent_name} owes its depositors {deposits:g} bn and could pay out {liquid:g} bn today. "
        f"The lender of last resort: {lender}."
    ]
    outflow = _outflow(agent_state)
    if outflow and liquid <= outflow:
        lines.append(
            f"WARNING: The next withdrawals, about {outflow} bn, take all that you have left."
        )
    elif outflow:
        steps = int(liquid / outflow)
        lines.append(f"At {outflow} bn a step, your liquid assets last {steps} more steps.")
    return "\n".join(lines)


def compute_state_updates(
    agent_name: str, agent_state: dict[str, Any], global_state: dict[str, Any], step_number: int
) -> dict[str, Any]:
    """Pay out what depositors withdraw, as far as there is anything to pay with."""
    paid = min(_outflow(agent_state), agent_state["liquid_assets"])
    if not paid:
        return {}
    return {
        "deposits": round(agent_state["deposits"] - paid, 2),
        "liquid_assets": round(agent_state["liquid_assets"] - paid, 2),
    }


def _outflow(agent_state: dict[str, Any]) -> float:
    """Return what is withdrawn in a step, bn."""
    deposits: float = agent_state["deposits"]
    confidence: int = agent_state["depositor_confidence"]
    share = max(0, CALM - confidence) * SHARE_PER_POINT
    if agent_state.get("withdrawals_limited"):
        share = min(share, SHARE_IF_LIMITED)
    return min(round(deposits * share, 2), deposits)
