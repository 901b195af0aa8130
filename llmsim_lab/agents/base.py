"""What every agent has: a name and a decision."""

from __future__ import annotations

from abc import ABC, abstractmethod

from llmsim_lab.errors import ConfigError
from llmsim_lab.models import Action, SimulationState

__all__ = ["Agent"]


class Agent(ABC):
    """Somebody who looks at the state and proposes one action a turn.

    Args:
        name: unique in a run.
    """

    def __init__(self, name: str) -> None:
        if not name.strip():
            raise ConfigError("an agent needs a name that is not empty")
        self.name = name.strip()

    @abstractmethod
    async def decide_action(self, state: SimulationState) -> Action:
        """Propose one action for this state."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
