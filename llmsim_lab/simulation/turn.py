"""One turn's record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmsim_lab.models import Action, SimulationState
from llmsim_lab.runs import RunTurn
from llmsim_lab.simulation.frames import in_words, own_columns
from llmsim_lab.simulation.interventions import Intervention

__all__ = ["Turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(RunTurn[SimulationState, Intervention]):
    """What happened in a turn and where it led; its state has the turn's chains, too.

    Attributes:
        actions: what was proposed, as the validator marked it, in the agents' order.
    """

    actions: tuple[Action, ...] = ()

    def own_columns(self) -> dict[str, Any]:
        """Return what the turn's row of the frame says of the economy.

        Columns: ``period``; the economy's variables in their units; ``taylor_rate``, the rate that
        the rule asks for on that row's data, percent; ``actions`` and ``accepted``, how many.
        """
        return own_columns(self.state, self.actions)

    def in_words(self) -> Sequence[str]:
        """Return the economy's main figures, and each action with its verdict."""
        return in_words(self.state, self.actions)
