"""What every kind of simulation notes of a turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

from llmsim_lab.calls import Status
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.faces import turn_html

__all__ = ["RunTurn", "TurnBase"]

StateT = TypeVar("StateT")
InterventionT = TypeVar("InterventionT")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBase(Generic[StateT, InterventionT]):
    """What happened in a turn and where it led; a kind says where its ``chains`` are kept.

    Attributes:
        number: 1 for the first turn played; 0 stands for the initial state.
        state: the state the turn led to.
        interventions: what was done from outside.
        seconds: wall time of the turn.
    """

    number: int
    state: StateT
    interventions: tuple[InterventionT, ...] = ()
    seconds: float = 0.0

    @property
    def chains(self) -> tuple[LLMReasoningChain, ...]:
        """Why each component did what it did."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its chains are")

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

    def _repr_html_(self) -> str:
        return str(turn_html(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTurn(TurnBase[StateT, InterventionT]):
    """A turn that holds its chains itself, which is what a new kind's turn should do.

    Attributes:
        chains: why each component did what it did.
    """

    chains: tuple[LLMReasoningChain, ...] = ()
