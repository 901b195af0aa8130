"""What the modules below ``Run`` use of one, which they do not import."""

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
    """What a run has warned of already, or will warn of at its end."""

    are_left_out: bool = False
    """Whether it warns of nothing, as in a study, whose first run has warned of the same thing."""
    has_order: bool = False
    """Whether it has warned of the order of its prompts."""
    compared: set[tuple[object, ...]] = field(default_factory=set)
    """The questions whose prompts were compared."""
    stand_ins: Counter[str] = field(default_factory=Counter)
    """How often a stand-in answered, by who did not."""


class AnyRun(Protocol):
    """A run of any class, as it is asked, recorded and shown; see ``Run`` and ``BaseWorld``."""

    state_type: ClassVar[Any]
    config: Any
    llm_client: LLMClient | None
    players: Mapping[str, Any]
    planned: Sequence[StateChange]
    turns: list[Turn]

    @property
    def name(self) -> str:
        """Its name, for charts and messages."""
        ...

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts in use, by their places."""
        ...

    def _as_put(self, question: OpenQuestion) -> OpenQuestion:
        """Return a question as it is put to a person."""
        ...

    def _as_reply(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a person answered as the run takes it."""
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
