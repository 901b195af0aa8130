"""The states that a user of a social network can be in."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["STATE_DESCRIPTIONS", "AgentState"]


class AgentState(StrEnum):
    """What an agent is doing."""

    IDLE = "idle"
    SCROLLING = "scrolling"
    EVALUATING = "evaluating"
    COMPOSING = "composing"
    ENGAGING_LIKE = "engaging_like"
    ENGAGING_REPLY = "engaging_reply"
    ENGAGING_RESHARE = "engaging_reshare"
    RESTING = "resting"


STATE_DESCRIPTIONS: dict[AgentState, str] = {
    AgentState.IDLE: "Stop browsing, wait for next round",
    AgentState.SCROLLING: "Continue browsing without engaging",
    AgentState.EVALUATING: "Look more closely at this post",
    AgentState.COMPOSING: "Write a response or original content",
    AgentState.ENGAGING_LIKE: "Like this post",
    AgentState.ENGAGING_REPLY: "Reply to this post",
    AgentState.ENGAGING_RESHARE: "Reshare this post",
    AgentState.RESTING: "Take a break from activity",
}
"""What a model is told of each state where it may choose it. Wording: the reasoner contract's."""
