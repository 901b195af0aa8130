"""One turn's record."""

from __future__ import annotations

from dataclasses import dataclass

from llmsim_lab.models import Action, LLMReasoningChain, SimulationState
from llmsim_lab.runs import TurnBase
from llmsim_lab.simulation.interventions import Intervention

__all__ = ["Turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(TurnBase[SimulationState, Intervention]):
    """What happened in a turn and where it led.

    Attributes:
        number: 1 for the first turn played; 0 stands for the initial state.
        state: the state the turn led to, with the turn's chains.
        actions: what was proposed, as the validator marked it, in the agents' order.
        interventions: what was done from outside.
        seconds: wall time of the turn.
    """

    actions: tuple[Action, ...] = ()

    @property
    def chains(self) -> tuple[LLMReasoningChain, ...]:
        """Why each component did what it did."""
        return self.state.reasoning_chains
