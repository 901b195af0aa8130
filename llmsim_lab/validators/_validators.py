"""Which actions an engine may apply: validators mark each action, never drop one, and count.

A subclass of ``LLMValidator`` describes its domain; ``EconLLMValidator`` describes economic policy.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypedDict

from llmsim_lab._util.waiting import gather_all
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import chain_of
from llmsim_lab.models import Action, SimulationState, ValidationDecision, ValidationResult
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
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
"""Where the value of each of the prompt's slots comes from."""


def economic_domain(domain: str = "economic") -> str:
    """Return what belongs to economic policy, in words."""
    return (
        f"{domain} policy: interest rates, money and credit, taxes, public spending, "
        "trade, wages, prices, regulation of business, and whatever else moves output, jobs or "
        "prices."
    )


def verdict_prompt(
    prompt: Prompt, domain_description: str, action: str, *, permissive: bool, agent: str
) -> RenderedPrompt:
    """Return what is read by the one who judges whether an action belongs to a domain.

    Args:
        prompt: with the slots of the shipped ``validator_economic``.
        domain_description: what belongs to it.
        action: in words.
        permissive: whether an indirect effect on the domain is enough.
        agent: whose action it is.
    """
    return prompt.render(
        domain_description=domain_description,
        rule=_PERMISSIVE if permissive else _STRICT,
        action=action,
    ).sourced(_SOURCES, permissive=permissive, agent=agent)


class ValidatorStats(TypedDict):
    """How many actions were judged and how; the rate is 0 before the first."""

    total_validated: int
    accepted: int
    rejected: int
    rejection_rate: float


class Validator(ABC):
    """Marks each action as validated or not."""

    def __init__(self) -> None:
        self._verdicts: list[bool] = []

    @abstractmethod
    async def validate_actions(
        self, actions: Sequence[Action], state: SimulationState
    ) -> list[Action]:
        """Return the actions marked: as many as came in, in the same order."""

    def get_stats(self) -> ValidatorStats:
        """Return the counts since this validator was made."""
        total, accepted = len(self._verdicts), sum(self._verdicts)
        return ValidatorStats(
            total_validated=total,
            accepted=accepted,
            rejected=total - accepted,
            rejection_rate=(total - accepted) / total if total else 0.0,
        )

    def _mark(self, actions: Sequence[Action], results: Sequence[ValidationResult]) -> list[Action]:
        """Return marked copies and count them."""
        self._verdicts += [result.is_valid for result in results]
        return [
            action.model_copy(update={"validated": result.is_valid, "validation_result": result})
            for action, result in zip(actions, results, strict=True)
        ]


class LLMValidator(Validator):
    """Asks a model about each action, all of a turn's at once.

    It may also sit in a seat of an economic run: ``players={"validator": validator}``.

    Args:
        llm_client: the model.
        domain: the domain's name.
        permissive: whether an indirect effect on the domain is enough.
    """

    def __init__(
        self, llm_client: LLMClient, domain: str = "economic", *, permissive: bool = True
    ) -> None:
        super().__init__()
        self.llm_client = llm_client
        self.domain = domain
        self.permissive = permissive

    @abstractmethod
    def _construct_validation_prompt(self, action: Action) -> str:
        """Write the prompt about one action."""

    @abstractmethod
    def _get_domain_description(self) -> str:
        """Return a sentence that says what belongs to the domain."""

    async def validate_actions(
        self, actions: Sequence[Action], state: SimulationState
    ) -> list[Action]:
        """Return the actions marked, in the same order; none is dropped.

        An action of status ``failed`` is rejected without asking.

        Raises:
            LLMFailureException: the model failed on one of them; then none is counted.
        """
        # All or none: counts and marks follow only once every verdict is there.
        results = await gather_all([self._judge(action, state) for action in actions])
        return self._mark(actions, results)

    async def __call__(self, question: Question) -> ValidationDecision:
        """Answer as a player of an economic run, and count.

        Raises:
            LLMFailureException: the model failed.
        """
        action = Action(agent_name=question.player, action_string=question.values["action"])
        decision, _ = await self._decide(action, question.turn)
        self._verdicts.append(decision.is_valid)
        return decision

    async def _judge(self, action: Action, state: SimulationState) -> ValidationResult:
        # Not asked: the agent has found it outside the domain, after a second try.
        if action.status == "failed":
            return ValidationResult(
                is_valid=False,
                reasoning="The agent's own check found the action outside its domain.",
                action_evaluated=action.action_string,
            )
        decision, chain = await self._decide(action, state.turn + 1)
        return ValidationResult(
            is_valid=decision.is_valid,
            reasoning=decision.reasoning,
            confidence=decision.confidence,
            action_evaluated=action.action_string,
            status=chain.status,
            chain=chain,
        )

    async def _decide(
        self, action: Action, turn: int
    ) -> tuple[ValidationDecision, LLMReasoningChain]:
        site = CallSite(component="validator", agent=action.agent_name, turn=turn)
        prompt = self._construct_validation_prompt(action)
        decision = await self.llm_client.call_with_retry(
            total_timeout_s=self.llm_client.config.timeout_s,
            prompt=prompt,
            response_model=ValidationDecision,
            site=site,
        )
        chain = chain_of(decision, site, logger=logger, prompt=prompt, is_valid=decision.is_valid)
        return decision, chain


class EconLLMValidator(LLMValidator):
    """Asks whether an action is economic policy.

    Args:
        llm_client: the model.
        domain: the domain's name.
        permissive: whether any significant economic effect is enough.
        prompt: a prompt with the slots of the shipped ``validator_economic``.
    """

    def __init__(
        self,
        llm_client: LLMClient,
        domain: str = "economic",
        *,
        permissive: bool = True,
        prompt: Prompt | None = None,
    ) -> None:
        super().__init__(llm_client, domain, permissive=permissive)
        self.prompt = prompt or Prompt.load("validator_economic")

    def _get_domain_description(self) -> str:
        return economic_domain(self.domain)

    def _construct_validation_prompt(self, action: Action) -> str:
        return verdict_prompt(
            self.prompt,
            self._get_domain_description(),
            action.action_string,
            permissive=self.permissive,
            agent=action.agent_name,
        )
