"""What modules below ``Run`` need to know of a run without importing the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.prompts import Prompt
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.turn import Turn


@dataclass(slots=True)
class Warnings:
    """The warnings that a run has logged already, and those to log at its end."""

    are_left_out: bool = False
    """True if the run logs no warnings, such as the later runs of a study."""
    has_order: bool = False
    """True once the run has warned of the order of its prompts."""
    compared: set[tuple[object, ...]] = field(default_factory=set)
    """The questions whose prompts were compared."""
    stand_ins: Counter[str] = field(default_factory=Counter)
    """How often a stand-in answered, by the player whose answer failed."""


class AnyRun(Protocol):
    """A run of any class, as other modules ask, record and show it; see ``Run``."""

    state_type: ClassVar[Any]
    config: Any
    llm_client: LLMClient | None
    players: Mapping[str, Any]
    planned: Sequence[StateChange]
    turns: list[Turn]

    @property
    def name(self) -> str:
        """The run's name, for charts and messages."""
        ...

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts in use, by their places."""
        ...

    def _as_put(self, question: OpenQuestion) -> OpenQuestion:
        """Return a question as it is put to a person."""
        ...

    def _as_reply(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a person's answer as the run takes answers."""
        ...

    def seat(
        self,
        name: str,
        *,
        by: str = "",
        tag: str = "",
    ) -> Any:
        """Return who answers a question."""
        ...
