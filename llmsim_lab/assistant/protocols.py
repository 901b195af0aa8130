"""The roles around the decision engine: who talks to the model, who runs tools, who keeps the log.

Each is a Protocol: an object with these methods will do, whatever its class.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from llmsim_lab.assistant.errors import LLMError
from llmsim_lab.assistant.types import ToolResult
from llmsim_lab.errors import ConfigError

__all__ = [
    "DecisionLogger",
    "DeclaresTools",
    "FunctionCall",
    "LLMAdapter",
    "LLMMessage",
    "LLMResponse",
    "Meaning",
    "StartsFirst",
    "ToolDeclaration",
    "ToolExecutor",
]


Meaning = Literal["answer", "question", "refusal"]
"""What a model's text is to the user."""


_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""What MCP says names should be, and the slash, which it once had too.

Letters that look alike, or that nobody sees, would let one tool pass for another.
"""
_ODD = re.compile(r"[^A-Za-z0-9_./-]")


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A tool the model wants called.

    Attributes:
        name: as the model wrote it.
        arguments: an object; some models write it as JSON text.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LLMMessage:
    """One message of the conversation with the model.

    Attributes:
        role: who wrote it; ``tool`` stands for a tool's result.
        content: the text.
        function_calls: for role ``assistant``: the tools it wanted called.
        tool_name: for role ``tool``: whose result it is.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    function_calls: Sequence[FunctionCall] = ()
    tool_name: str | None = None


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """What the model answered.

    Attributes:
        content: the text, if there is any.
        function_calls: the tools it wants called, in order.
        finish_reason: ``stop``, or ``length`` where the token limit cut the answer.
        usage: tokens: ``prompt_tokens`` and ``reply_tokens``, where known.
        error: why there is no answer, for adapters that return errors instead of raising them.
        kind: what the model says that its text is; None where it does not say, as for plain text.
        claims: the tools whose work the model says that its text reports.
    """

    content: str | None = None
    function_calls: Sequence[FunctionCall] | None = None
    finish_reason: str | None = "stop"
    usage: Mapping[str, int] | None = None
    error: LLMError | str | None = None
    kind: Meaning | None = None
    claims: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """A tool as the model is told of it.

    Attributes:
        name: the tool's name.
        description: what it does and when to use it.
        parameters: JSON schema of its arguments; the user's identity is no argument.
        destructive: whether a call needs the user's yes; None leaves it to the name.

    Raises:
        ConfigError: the name has other characters than MCP allows, or more than 128.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    destructive: bool | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            odd = ", ".join(
                f"U+{ord(sign):04X} {unicodedata.name(sign, 'without a name')}"
                for sign in dict.fromkeys(_ODD.findall(self.name))
            )
            raise ConfigError(
                f"the tool {self.name!a} cannot be used: a name has 1 to 128 letters of "
                f"A-Z and a-z, digits, _, -, . and /" + (f", and not {odd}" if odd else "")
            )


@runtime_checkable
class LLMAdapter(Protocol):
    """Talks to a model."""

    async def generate(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[ToolDeclaration],
        temperature: float = 0.0,
        max_tokens: int = 1024,
    ) -> LLMResponse:
        """Return the model's answer to a conversation.

        Raises:
            LLMError: there is none.
        """
        ...

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the adapter knows them."""
        ...


@runtime_checkable
class ToolExecutor(Protocol):
    """Runs tools."""

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Run a tool for a user; its failure is a result, not an exception.

        Args:
            tool_name: the tool.
            parameters: its arguments, the user's identity left out.
            user_id: who it acts for, as authenticated.
        """
        ...

    def get_available_tools(self) -> list[str]:
        """Return the names of the tools that can be run now."""
        ...


@runtime_checkable
class DeclaresTools(Protocol):
    """A tool executor that also knows its tools' declarations, as an MCP server tells them."""

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as they are known."""
        ...


class StartsFirst(Protocol):
    """A tool executor that has to start before it knows its tools, as a server of tools does."""

    async def ready(self) -> None:
        """Start if need be; at once where it is not."""
        ...


class DecisionLogger(Protocol):
    """Keeps what was decided and done; ``DecisionLog`` is one."""

    async def write_decision_log(
        self,
        *,
        decision_id: str,
        conversation_id: str,
        user_id: str,
        message: str,
        intent_type: str,
        decision_type: str,
        outcome_category: str,
        duration_ms: float,
    ) -> None:
        """Write a decision's row: once as ``PENDING``, and again, by the same id, when made."""
        ...

    async def write_tool_invocation_log(
        self,
        *,
        decision_id: str,
        tool_name: str,
        parameters: Mapping[str, Any],
        result: Any,
        success: bool,
        error_code: str | None,
        error_message: str | None,
        duration_ms: float,
    ) -> None:
        """Write one tool's execution."""
        ...
