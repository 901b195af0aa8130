"""A nation's agent that may look things up before it decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmsim_lab.agents import NationAgent
from llmsim_lab.assistant.lookup import ToolLookup
from llmsim_lab.assistant.protocols import ToolExecutor
from llmsim_lab.calls import CallSite
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import PolicyDecision, SimulationState
from llmsim_lab.prompts import Prompt

__all__ = ["ToolUsingNationAgent"]


class ToolUsingNationAgent(NationAgent):
    """A nation's advisor with tools: first it looks things up, then it decides with what it found.

    ``ToolLookup`` says how; agents of the other simulations take one.

    Args:
        name: the nation's name, unique in a run; tools act for this user.
        llm_client: the model.
        tools: runs the tools.
        max_lookups: most model calls for looking up, each turn.
        profile: as ``NationAgent`` takes it.
        prompt: a prompt with the slots of the shipped ``agent_policy``; that one if not given.

    Attributes:
        lookup: looks things up.

    Raises:
        ConfigError: ``max_lookups`` is no whole number from 1 on.

    Example:
        >>> agent = ToolUsingNationAgent("Aland", client, tools=FunctionTools(latest_inflation))
    """

    def __init__(
        self,
        name: str,
        llm_client: LLMClient,
        *,
        tools: ToolExecutor,
        max_lookups: int = 2,
        profile: Mapping[str, Any] | None = None,
        prompt: Prompt | None = None,
    ) -> None:
        super().__init__(name, llm_client, profile=profile, prompt=prompt)
        self.lookup = ToolLookup(tools, max_lookups=max_lookups)

    async def _ask(self, prompt: str, state: SimulationState, site: CallSite) -> PolicyDecision:
        extended = await self.lookup.look_up(prompt, self.llm_client, site)
        return await super()._ask(extended, state, site)
