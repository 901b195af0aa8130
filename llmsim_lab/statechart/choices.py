"""Questions that a chart leaves open, and what everybody who answers them has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from llmsim_lab.calls import Status
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.statechart.agent import SocialAgent
from llmsim_lab.statechart.states import AgentState

__all__ = ["Choice", "Chooser", "Question", "check_options"]


@dataclass(frozen=True, slots=True)
class Question:
    """One ambiguous move: the arguments of ``Chooser.decide``.

    Attributes:
        agent: who decides.
        current_state: what it is doing.
        trigger: the event.
        options: the legal states.
        context: what it is about, such as a ``Post``.
        turn: the round being played, where one is.
    """

    agent: SocialAgent
    current_state: AgentState
    trigger: str
    options: Sequence[AgentState]
    context: Any = None
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer to a question.

    Attributes:
        state: the state to go to.
        status: ``ok``, ``repaired``, or ``fallback`` where the first option stands in.
        chain: why; None where a rule decided.
    """

    state: AgentState
    status: Status
    chain: LLMReasoningChain | None = None


class Chooser(ABC):
    """Chooses among an agent's legal moves; one of your own needs ``choose_all`` only."""

    @overload
    async def decide(
        self,
        agent: SocialAgent,
        current_state: AgentState,
        trigger: str,
        options: Sequence[AgentState],
        context: Any = None,
    ) -> AgentState: ...

    @overload
    async def decide(self, agent: Sequence[Question]) -> list[AgentState]: ...

    async def decide(
        self,
        agent: SocialAgent | Sequence[Question],
        current_state: AgentState | None = None,
        trigger: str = "",
        options: Sequence[AgentState] = (),
        context: Any = None,
    ) -> AgentState | list[AgentState]:
        """Return the state that an agent goes to, or those of a batch, reasoned about at once.

        Args:
            agent: who decides; or a sequence of ``Question``, and nothing else.
            current_state: what it is doing.
            trigger: the event.
            options: the legal states.
            context: what it is about, such as a ``Post``.

        Raises:
            ValueError: there are no options.
            LLMFailureException: a model was to decide and cannot be reached. A timeout or a bad
                answer, after the one retry, is met with the first option, a WARNING and status
                ``fallback``.
        """
        if isinstance(agent, Sequence):
            return [choice.state for choice in await self.choose_all(agent)]
        state = agent.state if current_state is None else current_state
        (choice,) = await self.choose_all([Question(agent, state, trigger, options, context)])
        return choice.state

    @abstractmethod
    async def choose_all(self, questions: Sequence[Question]) -> list[Choice]:
        """Answer questions, in their order, and say how each answer came about; see ``decide``."""


def check_options(question: Question) -> None:
    """Refuse a question without options.

    Raises:
        ValueError: it names agent, trigger and state.
    """
    if not question.options:
        raise ValueError(
            f"{question.agent.name} has no option for the trigger {question.trigger!r} in state "
            f"{question.current_state.value!r}; ask the chart's valid_targets first"
        )
