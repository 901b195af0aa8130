"""One turn's record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from llmsim_lab.calls import Status
from llmsim_lab.models import Action, LLMReasoningChain, SimulationState
from llmsim_lab.simulation.interventions import Intervention

__all__ = ["Turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What happened in a turn and where it led.

    Attributes:
        number: 1 for the first turn played; 0 stands for the initial state.
        state: the state the turn led to, with the turn's chains.
        actions: what was proposed, as the validator marked it, in the agents' order.
        interventions: what was done from outside.
        seconds: wall time of the turn.
    """

    number: int
    state: SimulationState
    actions: tuple[Action, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    seconds: float = 0.0

    @property
    def chains(self) -> tuple[LLMReasoningChain, ...]:
        """Why each component did what it did."""
        return self.state.reasoning_chains

    @property
    def statuses(self) -> Counter[Status]:
        """How the turn's model decisions came about; of rules' decisions only what went wrong."""
        return Counter(
            chain.status for chain in self.chains if chain.call is not None or chain.status != "ok"
        )

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens of the turn's model calls, as far as reported."""
        return sum(chain.call.tokens for chain in self.chains if chain.call)
