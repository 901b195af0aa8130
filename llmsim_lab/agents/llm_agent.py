"""The part of a model-driven agent that knows no domain: ask, check, log, make an action of it."""

from __future__ import annotations

import logging
from abc import abstractmethod

from llmsim_lab.agents.base import Agent
from llmsim_lab.calls import CallSite, Status
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import chain_of
from llmsim_lab.models import Action, PolicyDecision, SimulationState

__all__ = ["LLMAgent"]

logger = logging.getLogger(__name__)


class LLMAgent(Agent):
    """An agent whose decisions a language model makes.

    A subclass writes the prompt and says which decisions belong to its domain. A decision that
    does not belong is shown to the model once with that complaint; if the second one does not
    belong either, it becomes an action of status ``failed``, which validators reject.

    Args:
        name: unique in a run.
        llm_client: the model.
    """

    def __init__(self, name: str, llm_client: LLMClient) -> None:
        super().__init__(name)
        self.llm_client = llm_client

    @abstractmethod
    def _construct_prompt(self, state: SimulationState) -> str:
        """Write the whole prompt; a ``RenderedPrompt`` keeps its system part apart."""

    @abstractmethod
    def _validate_decision(self, decision: PolicyDecision) -> bool:
        """Say whether the decision belongs to the agent's domain."""

    def _complaint(self) -> str:
        """What the model is told when its decision does not belong."""
        return "the action does not belong to this agent's domain"

    async def decide_action(self, state: SimulationState) -> Action:
        """Let the model propose one action for this state.

        Raises:
            LLMFailureException: the model could not be reached or gave no valid answer twice.
        """
        prompt = self._construct_prompt(state)
        site = CallSite(component="agent", agent=self.name, turn=state.turn + 1)
        status: Status | None = None
        try:
            decision = await self._ask(prompt, state, site)
        except LLMFailureException as failure:
            if not isinstance(failure.rejected, PolicyDecision):
                raise
            decision, status = failure.rejected, "failed"
        chain = chain_of(decision, site, logger=logger, prompt=prompt, status=status)
        return Action(
            agent_name=self.name,
            action_string=decision.action,
            policy_decision=decision,
            status=chain.status,
            reasoning_chain_id=f"{chain.turn}/agent/{self.name}",
            chain=chain,
        )

    async def _ask(self, prompt: str, state: SimulationState, site: CallSite) -> PolicyDecision:
        """Put the prompt to the model; a subclass may ask for more, which depends on the state."""
        del state
        return await self.llm_client.call_with_retry(
            prompt=prompt, response_model=PolicyDecision, check=self._check, site=site
        )

    def _check(self, decision: PolicyDecision) -> str | None:
        return None if self._validate_decision(decision) else self._complaint()
