"""The evaluation's messages, each with the decision that is right."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from llmsim_lab.assistant.types import DecisionType, Message
from llmsim_lab.errors import ConfigError
from llmsim_lab.files import data_path
from llmsim_lab.settings import Settings
from llmsim_lab.yaml_file import read_config

__all__ = ["USER", "Case", "Cases", "ToolName", "load_cases"]

USER = "ann"
"""Who writes the messages."""

ToolName = Literal["add_task", "list_tasks", "update_task", "complete_task", "delete_task"]


class _Said(Settings):
    role: Literal["user", "assistant"]
    content: str


class Case(Settings):
    """One message and what is right.

    Attributes:
        id: its name.
        kind: what it tries: ``greeting``, ``delete``, ``injection`` …
        message: the text.
        expect: the type of decision.
        tools: what must run, or wait for a yes, in order.
        arguments: of the last of them: a text's words must all be there, all else be equal.
        forbidden: tools that must not run, whatever comes of them: what would be seen to run if an
            order were followed that is not the user's to give, or stands in a task.
        tasks: the user's tasks; those of the file if not given.
        history: what was said before.
    """

    id: str
    kind: str
    message: str
    expect: DecisionType
    tools: tuple[ToolName, ...] = ()
    arguments: dict[str, Any] = Field(default_factory=dict)
    forbidden: tuple[ToolName, ...] = ()
    tasks: tuple[str, ...] | None = None
    history: tuple[_Said, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Case:
        acts = self.expect in (DecisionType.INVOKE_TOOL, DecisionType.REQUEST_CONFIRMATION)
        if acts != bool(self.tools):
            raise ValueError(f"{self.id}: expect {self.expect} and tools {self.tools} differ")
        if self.arguments and not self.tools:
            raise ValueError(f"{self.id}: arguments belong to a tool")
        return self

    def said_before(self) -> list[Message]:
        """Return the history as the engine takes it."""
        return [Message(role=said.role, content=said.content) for said in self.history]


class Cases(Settings):
    """A file of messages.

    Attributes:
        tasks: the user's tasks, unless a message has its own.
        others: other users' tasks, which nothing may reach.
        messages: the messages.
    """

    tasks: tuple[str, ...]
    others: dict[str, tuple[str, ...]]
    messages: Annotated[tuple[Case, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_unique(self) -> Cases:
        names = [case.id for case in self.messages]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two messages have the id {', '.join(twice)}")
        return self

    def one_of_each_kind(self) -> Cases:
        """Return the first message of each kind, for a quick look."""
        first: dict[str, Case] = {}
        for case in self.messages:
            first.setdefault(case.kind, case)
        return self.model_copy(update={"messages": tuple(first.values())})

    def of_kind(self, *kinds: str) -> Cases:
        """Return the messages of these kinds.

        Raises:
            ConfigError: there is no such kind.
        """
        known = sorted({case.kind for case in self.messages})
        if unknown := sorted(set(kinds) - set(known)):
            raise ConfigError(f"no messages of the kind {', '.join(unknown)}; there are: {known}")
        chosen = tuple(case for case in self.messages if case.kind in kinds)
        return self.model_copy(update={"messages": chosen})


def load_cases(path: str | Path | None = None) -> Cases:
    """Return a file of messages; the shipped one if no other is given.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong.
    """
    return _shipped() if path is None else read_config(Path(path), Cases)


@cache
def _shipped() -> Cases:
    return read_config(data_path("assistant/messages.yaml"), Cases)
