"""What widgets and tools may ask of any simulation, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from llmsim_lab.calls import CallRecord, Status
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.series import Series
from llmsim_lab.runs.settings import ConfigLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SimulationLike", "TurnLike"]


@runtime_checkable
class TurnLike(Protocol):
    """What happened in a turn and where it led."""

    @property
    def number(self) -> int:
        """1 for the first turn played; 0 stands for the initial state."""
        ...

    @property
    def state(self) -> Any:
        """The state the turn led to; what it is, is the kind's."""
        ...

    @property
    def chains(self) -> tuple[LLMReasoningChain, ...]:
        """Why each component did what it did."""
        ...

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """Every model call of the turn."""
        ...

    @property
    def statuses(self) -> Mapping[Status, int]:
        """How many of the turn's model decisions came about how."""
        ...

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens of the turn's model calls."""
        ...

    @property
    def seconds(self) -> float:
        """Wall time of the turn."""
        ...

    @property
    def interventions(self) -> tuple[Any, ...]:
        """What was done from outside; ``str`` says it in words."""
        ...


@runtime_checkable
class SimulationLike(Protocol):
    """A run that can be looked at and sent commands. ``Run`` is one; so may be a user's own class.

    ``turns`` is never empty: its first element holds the state the run started from.
    """

    @property
    def kind(self) -> str:
        """``economic``, ``crisis``, ``social`` or a user's own."""
        ...

    @property
    def config(self) -> ConfigLike:
        """What is run."""
        ...

    @property
    def llm_client(self) -> LLMClient | None:
        """The model, if there is one."""
        ...

    @property
    def series(self) -> Sequence[Series]:
        """The columns of ``to_frame()`` that can be charted, the most telling first."""
        ...

    @property
    def turns(self) -> Sequence[TurnLike]:
        """The turns so far, oldest first."""
        ...

    @property
    def turn(self) -> int:
        """The latest turn's number."""
        ...

    @property
    def state(self) -> Any:
        """The latest state."""
        ...

    @property
    def chains(self) -> Sequence[LLMReasoningChain]:
        """Every decision so far and why, oldest first."""
        ...

    @property
    def statuses(self) -> Mapping[Status, float]:
        """Share of the model decisions so far by status."""
        ...

    @property
    def planned(self) -> Mapping[int, Sequence[Any]]:
        """What was or is to be done from outside, by turn."""
        ...

    @property
    def tape(self) -> Tape | None:
        """The tape that the run is recorded on or replayed from, if any."""
        ...

    @property
    def run_id(self) -> int | None:
        """The run's number on its tape."""
        ...

    async def step(self) -> TurnLike:
        """Play one turn and return its record."""
        ...

    async def arun(
        self, turns: int | None = None, *, on_turn: Callable[[Any], object] | None = None
    ) -> pd.DataFrame:
        """Play turns and return the whole run as a frame."""
        ...

    def run(
        self, turns: int | None = None, *, on_turn: Callable[[Any], object] | None = None
    ) -> pd.DataFrame:
        """Do what ``arun`` does from plain code."""
        ...

    @property
    def intervene(self) -> Callable[..., Any]:
        """``intervene(turn, ...)`` changes a turn's state, now or when the run gets there.

        What comes after the turn is the kind's: the fields of its interventions, by keyword.
        """
        ...

    @property
    def fork(self) -> Callable[..., Any]:
        """``fork(turn, ...)`` returns a run that goes on from there, with something changed.

        By keyword ``prompt``, ``state``, ``intervene``, ``llm_client``, as ``Run.fork`` has them.
        """
        ...

    def to_frame(self) -> pd.DataFrame:
        """Return the run as a frame, one row a turn."""
        ...

    def decisions(self) -> pd.DataFrame:
        """Return the run's decisions as a frame, one row each: replies, and what became of them."""
        ...

    def close(self) -> None:
        """Let others write to this run on its tape."""
        ...
