"""One turn's record."""

from __future__ import annotations

from dataclasses import dataclass

from llmsim_lab.models import Action, SimulationState
from llmsim_lab.runs import RunTurn
from llmsim_lab.simulation.interventions import Intervention

__all__ = ["Turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(RunTurn[SimulationState, Intervention]):
    """What happened in a turn and where it led; its state has the turn's chains, too.

    Attributes:
        actions: what was proposed, as the validator marked it, in the agents' order.
    """

    actions: tuple[Action, ...] = ()
