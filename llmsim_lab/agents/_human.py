"""A person as an agent, who sees the prompt and passes the checks that a model would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from llmsim_lab.agents._agents import NationAgent, NationProfile, RateDecision, nearest_move
from llmsim_lab.economy._macro import RateLimits
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._human import (
    DAY_S,
    AskPerson,
    OpenQuestion,
    Person,
    checked_answer,
    human_client,
    same_choice,
)
from llmsim_lab.models import PolicyDecision, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.types import CallSite, Rate


class NamedRate(PolicyDecision):
    """A person's decision: an action, and the interest rate that it means."""

    proposed_rate: Rate
    """Percent per year."""


class HumanAgent(NationAgent):
    """A nation's advisor who is a person.

    A turn waits for the person's answer, which is treated like a model's: it is checked, recorded
    on the tape as a call of the model ``human``, and replayed from there. An answer that names
    nothing of economic policy is sent back once, with a complaint.

    Args:
        name: the nation's name, unique in a run.
        profile: as ``NationAgent`` takes it.
        prompt: a prompt with the slots of the shipped ``agent_policy``; that one if not given.
        limits: how far one action may move the rate, such as a configuration's ``engine.limits``;
            the engine's defaults if not given.
        moves_bp: the changes of the rate on offer, basis points, such as a configuration's: the
            person chooses among the rates they lead to, and of the limits only the bounds matter.
        names_rate: whether the person also chooses the new rate, so that the engine needs no model;
            if not, the answer has only the fields of a model's, and there are no moves.
        ask: asks the person a question and returns the answer as a mapping, for example with
            ``input``; without it, something else calls ``answer``, as ``HumanSeat`` does.
        timeout_s: how long each answer is waited for, seconds.

    Example:
        >>> agent = HumanAgent(
        ...     "Aland",
        ...     ask=lambda question: {
        ...         "action": "Hold the interest rate",
        ...         "reasoning": "All is calm.",
        ...         "confidence": 0.9,
        ...         "proposed_rate": 4.0,
        ...     },
        ... )
    """

    def __init__(
        self,
        name: str,
        *,
        profile: NationProfile | Mapping[str, Any] | None = None,
        prompt: Prompt | None = None,
        limits: RateLimits | None = None,
        moves_bp: Sequence[int] | None = None,
        names_rate: bool = True,
        ask: AskPerson | None = None,
        timeout_s: float = DAY_S,
    ) -> None:
        client = human_client(Person(ask), timeout_s=timeout_s)
        super().__init__(name, client, profile=profile, prompt=prompt)
        self.limits = limits or RateLimits()
        self.names_rate = names_rate
        # Set here, since a person reads the contract's prompt, which has no slot for moves.
        self.moves_bp = tuple(moves_bp) if moves_bp and names_rate else None

    def rates_on_offer(self, current: float) -> list[float]:
        """Return the rates that the person may name, percent per year, lowest first.

        Args:
            current: the rate in force. Where moves are on offer they lead from it, and the rates
                have two decimals, as people read them.
        """
        if self.moves_bp is None:
            return self.limits.choices(current)
        there = (self.limits.inside(current + move / 100) for move in self.moves_bp)
        return sorted({round(rate, 2) for rate in there})

    @property
    def person(self) -> Person:
        """The backend that asks the person and waits for the answers."""
        backend = self.llm_client.backend
        if not isinstance(backend, Person):
            raise ConfigError(
                f"the client of {self.name!r} was replaced by {self.llm_client!r}; a HumanAgent "
                "keeps its own. For a model in this seat use a NationAgent"
            )
        return backend

    @property
    def question(self) -> OpenQuestion | None:
        """The question that the person is being asked, if any."""
        return next(iter(self.person.questions), None)

    def expected(self, state: SimulationState) -> OpenQuestion:
        """Return the question about a state, as it will be asked when a turn is played."""
        offered = {"proposed_rate": tuple(self.rates_on_offer(state.global_state.interest_rate))}
        form, choices = (NamedRate, offered) if self.names_rate else (PolicyDecision, None)
        site = CallSite(component="agent", agent=self.name, turn=state.turn + 1)
        prompt = self._construct_prompt(state)
        return OpenQuestion(self.llm_client.request_of(prompt, form, choices, site=site))

    def answer(
        self,
        action: str,
        *,
        reasoning: str,
        confidence: float,
        rate: float | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer the open question; may be called from any thread.

        Args:
            action: one policy action, in words.
            reasoning: why.
            confidence: 0 to 1, in steps of 0.05.
            rate: the new interest rate, percent per year, one of those offered; only where the
                agent names rates.
            notes: what the tape keeps with the reply's text besides, such as ``advice_asked``.

        Raises:
            ConfigError: no question is open, or a field is wrong; then nothing was sent.
        """
        values: dict[str, Any] = {
            "action": action,
            "reasoning": reasoning,
            "confidence": confidence,
        }
        if rate is not None:
            values["proposed_rate"] = rate
        checked_answer(self.person, self.question, values, name=self.name, notes=notes)

    def complaint_about(self, action: str) -> str:
        """Return what would be wrong with an action's content; empty if nothing is.

        Args:
            action: in words, not empty.
        """
        decision = PolicyDecision(action=action, reasoning="not given yet", confidence=0)
        return self._check(decision) or ""

    async def _ask(self, prompt: str, state: SimulationState, site: CallSite) -> PolicyDecision:
        if not self.names_rate:
            return await super()._ask(prompt, state, site)
        here = state.global_state.interest_rate
        offered = {"proposed_rate": tuple(self.rates_on_offer(here))}
        fault = partial(self._rate_fault, state=state)
        answer = await self._ask_for_size(NamedRate, offered, fault, prompt, site)
        if self.moves_bp is None:
            return answer
        # The move that leads there, which code applies exactly: a rate named has two decimals.
        named, said = answer.proposed_rate, PolicyDecision.model_validate(answer.model_dump())
        move = nearest_move(named, self.moves_bp, limits=self.limits, current=here)
        decision = RateDecision(**dict(said), rate_change_bp=move)
        return decision if answer.call is None else decision.with_call(answer.call)

    def _rate_fault(self, decision: NamedRate, state: SimulationState) -> str | None:
        rate, here = decision.proposed_rate, state.global_state.interest_rate
        if self.moves_bp is None:
            return self.limits.problem(rate, current=here)
        offered = self.rates_on_offer(here)
        if any(same_choice(rate, choice) for choice in offered):
            return None
        rates = ", ".join(f"{choice:g}" for choice in offered)
        return f"the new interest rate {rate:g}% is not on offer; those that are: {rates}"
