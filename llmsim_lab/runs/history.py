"""What a run has been through: its turns, and views of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from llmsim_lab.calls import CallRecord, Status
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.frames import turn_row
from llmsim_lab.runs.kind import ConfigT, InterventionT, Kind, StateT, TurnT

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["History"]


class History(Kind[StateT, TurnT, ConfigT, InterventionT]):
    """A run's turns so far; the first holds the state it started from.

    Attributes:
        turns: oldest first.
    """

    def __init__(self, turns: Iterable[TurnT]) -> None:
        self.turns: list[TurnT] = list(turns)
        self._listeners: list[Callable[[TurnT], object]] = []

    @property
    def state(self) -> StateT:
        """The latest state."""
        state: StateT = self.turns[-1].state
        return state

    @property
    def turn(self) -> int:
        """The latest turn's number; 0 before the first step."""
        return self.turns[-1].number

    @property
    def chains(self) -> list[LLMReasoningChain]:
        """Every decision so far and why, oldest first."""
        return [chain for turn in self.turns for chain in turn.chains]

    @property
    def calls(self) -> list[CallRecord]:
        """Every model call so far, oldest first, whoever made it."""
        return [call for turn in self.turns for call in turn.calls]

    @property
    def statuses(self) -> Mapping[Status, float]:
        """Share of the model decisions so far by status; empty if no model was asked."""
        counts: Counter[Status] = sum((turn.statuses for turn in self.turns), Counter())
        total = counts.total()
        return {status: count / total for status, count in counts.items()}

    def listen(self, heard: Callable[[TurnT], object]) -> Callable[[], None]:
        """Have a function called with each turn played from now on, whoever plays it.

        Args:
            heard: called on the loop that the turn was played on, when the turn is kept; what it
                raises goes to whoever plays.

        Returns:
            What ends it; harmless if called again.
        """
        self._listeners.append(heard)

        def stop() -> None:
            self._listeners = [other for other in self._listeners if other is not heard]

        return stop

    def _tell(self, turn: TurnT) -> None:
        for heard in tuple(self._listeners):
            heard(turn)

    def to_frame(self) -> pd.DataFrame:
        """Return the run as a frame, one row a turn, the initial state first.

        Columns: ``turn``; the kind's own, see its ``own_columns``; ``calls``, ``ok``,
        ``repaired``, ``fallback``, ``failed``, model decisions by status; ``tokens``; ``seconds``;
        ``interventions``, in words.
        """
        import pandas as pd

        rows: list[dict[str, Any]] = [turn_row(turn, self.own_columns(turn)) for turn in self.turns]
        return pd.DataFrame(rows)
