"""What the modules below ``Run`` use of one, which they do not import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from llmsim_lab.llm import LLMClient
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._config import StateChange
from llmsim_lab.run._turn import Turn


class _Session(Protocol):
    @property
    def is_replay(self) -> bool:
        """Whether all calls are answered from a tape."""
        ...


class AnyRun(Protocol):
    """A run of any class, as it is asked, recorded and shown; see ``Run`` and ``BaseWorld``."""

    state_type: ClassVar[Any]
    config: Any
    llm_client: LLMClient | None
    players: Mapping[str, Any]
    planned: Sequence[StateChange]
    turns: list[Turn]
    _prompts: dict[str, Prompt]
    _sources: dict[Any, tuple[Prompt | str, bool]]
    _edit: Any
    _text_edits: bool
    _varied: set[str]
    _quiet: bool
    _order_told: bool
    _compared: set[tuple[object, ...]]
    _stood_in: Counter[str]

    @property
    def name(self) -> str:
        """Its name, for charts and messages."""
        ...

    @property
    def _session(self) -> _Session: ...

    def seat(self, name: str, *, by: str = "", tag: str = "") -> Any:
        """Return who answers a question."""
        ...
