"""Agents that make economic policy: their prompt, their relevance check, a nation's profile."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from llmsim_lab.agents.llm_agent import LLMAgent
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import PolicyDecision, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.settings import Settings
from llmsim_lab.text import number

__all__ = ["EconLLMAgent", "NationAgent", "NationProfile"]

_ECONOMIC_STEMS = (
    "austerity balance bank bond borrow budget business capital cash credit currenc debt deficit "
    "demand deregulat devalu econom employ excise export financ fiscal fund gdp growth hike hiring "
    "import incentive industr inflation infrastructure interest invest job labor labour lend levy "
    "liquidity loan market mint monet mortgage output pension price product quota rate recession "
    "reserve salar sanction saving spend stimul subsid suppl surplus tariff tax trade treasury "
    "unemploy wage welfare"
)
_ECONOMIC = re.compile(rf"\b(?:{'|'.join(_ECONOMIC_STEMS.split())})", re.IGNORECASE)

_SOURCES = {
    "profile": "{agent}'s profile",
    "gdp_growth": "state.global_state.gdp_growth, turn {turn}",
    "inflation": "state.global_state.inflation, turn {turn}",
    "unemployment": "state.global_state.unemployment, turn {turn}",
    "interest_rate": "state.global_state.interest_rate, turn {turn}",
}
"""Where what stands in the prompt's slots comes from."""


class NationProfile(Settings):
    """What makes one nation's advisor different from another's.

    Attributes:
        mandate: what the advisor is to achieve.
        inflation_target: percent per year.
        temperament: a word or two on how the advisor weighs risks.
    """

    mandate: Annotated[str, Field(min_length=1)] = "stable prices and full employment"
    inflation_target: Annotated[float, Field(ge=-5, le=50, allow_inf_nan=False)] = 2.0
    temperament: Annotated[str, Field(min_length=1)] = "pragmatic"


class EconLLMAgent(LLMAgent):
    """An advisor on economic policy without a nation's particulars.

    Args:
        name: unique in a run.
        llm_client: the model.
        prompt: a prompt with the slots of the shipped ``agent_policy``; that one if not given.
    """

    def __init__(self, name: str, llm_client: LLMClient, *, prompt: Prompt | None = None) -> None:
        super().__init__(name, llm_client)
        self.prompt = prompt or Prompt.load("agent_policy")

    def _profile(self) -> str:
        return f"You advise {self.name}."

    def _construct_prompt(self, state: SimulationState) -> str:
        """Show the four indicators, percent, to two decimals."""
        economy = state.global_state
        return self.prompt.render(
            profile=self._profile(),
            gdp_growth=number(economy.gdp_growth),
            inflation=number(economy.inflation),
            unemployment=number(economy.unemployment),
            interest_rate=number(economy.interest_rate),
        ).sourced(_SOURCES, agent=self.name, turn=state.turn)

    def _validate_decision(self, decision: PolicyDecision) -> bool:
        """Look for a word of economic policy in the action."""
        return _ECONOMIC.search(decision.action) is not None

    def _complaint(self) -> str:
        return (
            "the action names nothing of economic policy "
            "(interest rates, taxes, spending, trade, credit, wages, prices ...)"
        )


class NationAgent(EconLLMAgent):
    """A nation's advisor, with a mandate, an inflation target and a temperament.

    Args:
        name: the nation's name, unique in a run.
        llm_client: the model.
        profile: the nation's particulars.
        prompt: a prompt with the slots of the shipped ``agent_policy``; that one if not given.
    """

    def __init__(
        self,
        name: str,
        llm_client: LLMClient,
        *,
        profile: NationProfile | None = None,
        prompt: Prompt | None = None,
    ) -> None:
        super().__init__(name, llm_client, prompt=prompt)
        self.profile = profile or NationProfile()

    def _profile(self) -> str:
        profile = self.profile
        return (
            f"You advise {self.name}. Mandate: {profile.mandate}. "
            f"Inflation target: {number(profile.inflation_target)}%. "
            f"Temperament: {profile.temperament}."
        )
