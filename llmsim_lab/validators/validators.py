"""Validators: they mark which actions an engine may apply, and never drop an action.

A subclass of ``LLMValidator`` writes the prompt; ``EconLLMValidator`` asks about economic policy.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from llmsim_lab._util.waiting import gather_all
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.chains import chain_of
from llmsim_lab.llm.client import checked_client
from llmsim_lab.models import Action, SimulationState, ValidationDecision, ValidationResult
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run import Question
from llmsim_lab.types import CallSite, LLMReasoningChain

logger = logging.getLogger(__name__)

_PERMISSIVE = (
    "Be permissive: accept an action if it has any significant impact on this domain, "
    "also an indirect one."
)
_STRICT = (
    "Be strict: accept an action only if it is a measure of this domain itself and could be "
    "carried out as described."
)

_SOURCES = {
    "domain_description": "the validator's domain",
    "rule": "the validator's setting permissive={permissive}",
    "action": "the action that {agent} proposes",
}
"""The sources of the values of the prompt's slots."""


def verdict_prompts(
    prompt: Prompt,
    domain: str,
    permissive: bool,
) -> Callable[[str, str], RenderedPrompt]:
    """Return a function that writes the prompt on whether an action belongs to a domain.

    The function is called with an action in words, and with its agent.

    Args:
        prompt: has the slots of the shipped ``validator_economic``.
        domain: the adjective of the domain's policy, such as ``economic``.
        permissive: whether an indirect effect on the domain is enough.
    """
    described = (
        f"{domain} policy: interest rates, money and credit, taxes, public spending, trade, wages, "
        "prices, regulation of business, and whatever else moves output, jobs or prices."
    )
    rule = _PERMISSIVE if permissive else _STRICT
    # Filled in once, since the hundred prompts of a turn differ only in the action.
    render = prompt.sharing({"domain_description": described, "rule": rule})

    def write(action: str, agent: str) -> RenderedPrompt:
        text = render({"action": action})
        return text.sourced(
            _SOURCES,
            permissive=permissive,
            agent=agent,
        )

    return write


class Validator(ABC):
    """Marks each action as validated or not."""

    @abstractmethod
    async def validate_actions(
        self,
        actions: Sequence[Action],
        state: SimulationState,
    ) -> list[Action]:
        """Return the marked actions, all of them and in the same order."""


class LLMValidator(Validator):
    """Asks a model about each action, all of a turn's at once.

    It may also sit in a seat of an economic run: ``players={"validator": validator}``.

    Args:
        llm_client: the model.
        domain: the domain's name.
        permissive: whether an indirect effect on the domain is enough.
    """

    def __init__(
        self,
        llm_client: LLMClient,
        domain: str = "economic",
        *,
        permissive: bool = True,
    ) -> None:
        # Checked here, so that the error comes where the client is given, not in the first turn.
        self.llm_client: LLMClient = checked_client(llm_client, "llm_client")
        self.domain = domain
        self.permissive = permissive

    @abstractmethod
    def _construct_validation_prompt(self, action: Action) -> str:
        """Write the prompt about one action."""

    async def validate_actions(
        self,
        actions: Sequence[Action],
        state: SimulationState,
    ) -> list[Action]:
        """Return the marked actions, all of them and in the same order.

        An action of status ``failed`` is rejected without asking.

        Raises:
            LLMFailureException: the model failed on one of them.
        """
        # Concurrently, since verdicts do not depend on each other.
        marking = [self._marked(action, state) for action in actions]
        return await gather_all(marking)

    async def __call__(self, question: Question) -> ValidationDecision:
        """Answer as a player of an economic run.

        Raises:
            LLMFailureException: the model failed.
        """
        action = Action(
            agent_name=question.player,
            action_string=question.values["action"],
        )
        # The run has the chain: it records every call.
        decision, _ = await self._decide(action, question.turn)
        return decision

    async def _marked(
        self,
        action: Action,
        state: SimulationState,
    ) -> Action:
        """Return an action with its verdict."""
        # A failed action was outside the domain twice, so that no model is asked about it.
        if action.status == "failed":
            result = ValidationResult(
                is_valid=False,
                reasoning="The agent's own check found the action outside its domain.",
                action_evaluated=action.action_string,
            )
        else:
            # The turn being played, which is one after the state's.
            decision, chain = await self._decide(action, state.turn + 1)
            result = ValidationResult(
                **dict(decision),
                status=chain.status,
                chain=chain,
                action_evaluated=action.action_string,
            )
        # A copy, so that the caller's action stays without a verdict.
        return action.model_copy(
            update={
                "validated": result.is_valid,
                "validation_result": result,
            }
        )

    async def _decide(
        self,
        action: Action,
        turn: int,
    ) -> tuple[ValidationDecision, LLMReasoningChain]:
        """Ask the model about one action."""
        # With the action's agent, so that the calls of a turn can be distinguished.
        site = CallSite(
            component="validator",
            agent=action.agent_name,
            turn=turn,
        )
        prompt = self._construct_validation_prompt(action)
        decision = await self.llm_client.call_with_retry(
            total_timeout_s=self.llm_client.config.timeout_s,
            prompt=prompt,
            response_model=ValidationDecision,
            site=site,
        )
        chain = chain_of(
            decision,
            site,
            logger=logger,
            prompt=prompt,
            # The verdict is for the line of the log.
            is_valid=decision.is_valid,
        )
        return decision, chain


class EconLLMValidator(LLMValidator):
    """Asks whether an action is economic policy.

    Arguments are those of ``LLMValidator``.
    """

    def _construct_validation_prompt(self, action: Action) -> str:
        # The same prompt as for a run's player, so that a verdict does not depend on who asks.
        write = verdict_prompts(
            Prompt.load("validator_economic"),
            self.domain,
            self.permissive,
        )
        return write(action.action_string, action.agent_name)
