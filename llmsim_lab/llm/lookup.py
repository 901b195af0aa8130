"""The role of what looks things up for a component before that puts its question to the model."""

from __future__ import annotations

from typing import Protocol

from llmsim_lab.calls import CallSite
from llmsim_lab.llm.client import LLMClient

__all__ = ["LOOKING_UP", "LooksUp"]

LOOKING_UP = "in looking things up, before the decision was asked for: "
"""What a failure's detail begins with where it was not the decision that failed."""


class LooksUp(Protocol):
    """Finds out, with the model, what a question calls for; ``ToolLookup`` does so with tools."""

    async def look_up(self, prompt: str, client: LLMClient, site: CallSite) -> str:
        """Return a prompt with what was found at its end; as it is where nothing was.

        Args:
            prompt: the question.
            client: the model.
            site: who asks, and when.
        """
        ...
