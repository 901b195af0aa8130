"""What a run has been through: its turns, and views of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from llmsim_lab.calls import Status
from llmsim_lab.economy.rules import TaylorRule
from llmsim_lab.models import LLMReasoningChain, SimulationState
from llmsim_lab.simulation.frames import chains_frame, turns_frame
from llmsim_lab.simulation.turn import Turn

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["History"]


class History:
    """A run's turns so far; the first holds the state it started from.

    Attributes:
        turns: oldest first.
    """

    def __init__(self, turns: Iterable[Turn]) -> None:
        self.turns: list[Turn] = list(turns)

    @property
    def state(self) -> SimulationState:
        """The latest state."""
        return self.turns[-1].state

    @property
    def turn(self) -> int:
        """The latest turn's number; 0 before the first step."""
        return self.turns[-1].number

    @property
    def chains(self) -> list[LLMReasoningChain]:
        """Every decision so far and why, oldest first."""
        return [chain for turn in self.turns for chain in turn.chains]

    @property
    def statuses(self) -> Mapping[Status, float]:
        """Share of the model decisions so far by status; empty if no model was asked."""
        counts: Counter[Status] = sum((turn.statuses for turn in self.turns), Counter())
        total = counts.total()
        return {status: count / total for status, count in counts.items()}

    def to_frame(self) -> pd.DataFrame:
        """Return the run as a frame, one row a turn; see ``frames.turns_frame`` for the columns."""
        return turns_frame(self.turns, TaylorRule())

    def chains_frame(self) -> pd.DataFrame:
        """Return the run's decisions as a frame, one row each; see ``frames.chains_frame``."""
        return chains_frame(self.turns)
