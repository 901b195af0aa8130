"""What every engine has: a current state, and turns that lead to the next one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from llmsim_lab.models import Action, SimulationState

__all__ = ["Engine"]


class Engine(ABC):
    """Moves the world one turn at a time.

    Attributes:
        current_state: the state the next turn starts from. Who runs the engine sets it; a turn
            leaves it untouched.
    """

    def __init__(self, initial_state: SimulationState | None = None) -> None:
        self.current_state = initial_state or SimulationState()

    @abstractmethod
    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        """Apply the actions to the current state and return the next one."""
