"""What goes into the decision engine and what comes out: contexts, decisions, settings."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from llmsim_lab.checks import real_number, whole_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.values import Value

__all__ = [
    "AgentDecision",
    "AgentEngineConfig",
    "DecisionContext",
    "DecisionType",
    "Message",
    "PendingAction",
    "ToolCall",
    "ToolErrorCode",
    "ToolResult",
]

ToolErrorCode = Literal[
    "INVALID_PARAMETERS",
    "INVALID_RESULT",
    "NOT_FOUND",
    "REFUSED",
    "SERVER_DIED",
    "TIMEOUT",
    "TOO_MANY_CALLS",
    "TOOL_ERROR",
    "TOOL_NOT_FOUND",
]
"""How a call fails, as far as it is known here; an executor may have codes of its own."""


class DecisionType(StrEnum):
    """What kind of decision it is."""

    RESPOND_ONLY = "RESPOND_ONLY"
    INVOKE_TOOL = "INVOKE_TOOL"
    ASK_CLARIFICATION = "ASK_CLARIFICATION"
    REQUEST_CONFIRMATION = "REQUEST_CONFIRMATION"


class Message(Value):
    """One message of a conversation between a user and the assistant.

    Attributes:
        role: who wrote it.
        content: the text.
        timestamp: when; the engine does not look at it.
    """

    role: Literal["user", "assistant"]
    content: str
    timestamp: datetime | None = None


class ToolResult(Value):
    """What became of a tool's execution.

    Attributes:
        success: whether the tool did what it was asked to.
        data: what it returned; JSON-ready.
        error: what went wrong, in words that the model may read.
        error_code: the same in a word: a ``ToolErrorCode``, or one of the executor's own.
    """

    success: bool
    data: Any = None
    error: str | None = None
    error_code: str | None = None


class ToolCall(Value):
    """A tool that was executed, in the order in which the decision has them.

    Attributes:
        tool_name: the tool.
        parameters: what it was given, the user's identity left out.
        result: what became of it.
        duration_ms: how long it took, milliseconds.
    """

    tool_name: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    result: ToolResult | None = None
    duration_ms: float = 0.0

    @property
    def worked(self) -> bool:
        """Whether it did what it was asked to."""
        return self.result is not None and self.result.success


class PendingAction(Value):
    """A tool call that waits for the user's yes; hand it back in the next context.

    Attributes:
        tool_name: the tool.
        parameters: what it will be given, the user's identity left out.
        description: what it will do, in words for the user, such as ``delete task 3``.
        call_id: distinguishes it from an equal one asked for another time; of all that have the
            same one, the first that is answered runs, and no other.
    """

    tool_name: Annotated[str, Field(min_length=1)]
    parameters: dict[str, Any] = Field(default_factory=dict)
    description: str = ""
    call_id: Annotated[str, Field(min_length=1, default_factory=lambda: uuid.uuid4().hex)]


class DecisionContext(Value):
    """All that the engine knows of a message.

    Attributes:
        user_id: who wrote it, as authenticated; the only source of the identity tools act for.
        message: the text.
        conversation_id: whose turn of talk it belongs to.
        message_history: what was said before, oldest first.
        pending_confirmation: what the user was asked to confirm by the latest decision, if so.
    """

    user_id: Annotated[str, Field(min_length=1)]
    message: str
    conversation_id: str
    message_history: list[Message] = Field(default_factory=list)
    pending_confirmation: PendingAction | None = None


class AgentDecision(Value):
    """What the engine made of a message.

    Attributes:
        decision_type: the kind.
        tool_calls: the tools that were executed, whatever the kind; None if there were none.
        response_text: what to tell the user.
        clarification_question: what the user is asked, for ``ASK_CLARIFICATION``.
        pending_action: what the user is asked to confirm, for ``REQUEST_CONFIRMATION``; or what
            still waits, where the tools could not be had after a yes.
    """

    decision_type: DecisionType
    tool_calls: list[ToolCall] | None = None
    response_text: str | None = None
    clarification_question: str | None = None
    pending_action: PendingAction | None = None

    @property
    def text(self) -> str:
        """What to show the user."""
        return self.response_text or self.clarification_question or ""


@dataclass(frozen=True, slots=True)
class AgentEngineConfig:
    """Settings of the decision engine.

    Attributes:
        max_iterations: most model calls for one message.
        include_history_messages: how many of the latest messages the model is shown.
        temperature: 0 gives the likeliest answer each time.
        timeout_seconds: longest wait for one model call, its retry included, and for one tool,
            seconds.
        max_tokens: longest answer of the model, tokens.
        max_calls: most tool calls of one answer that are made; the model is told of the rest.
        max_result_chars: longest tool result the model is shown, characters; what is cut off is
            counted there.
        confirm: by tool, whether a call needs the user's yes; for tools not named here, those
            declared destructive and those whose name says that something is deleted do.
        check_claims: whether a text that reports the work of a tool that did none for this message
            goes back to the model once, and, if it insists, is shown with a remark on what was not
            done. Only what a model declares with ``respond`` can be checked.
    """

    max_iterations: int = 5
    include_history_messages: int = 10
    temperature: float = 0.0
    timeout_seconds: float = 30
    max_tokens: int = 1024
    max_calls: int = 20
    max_result_chars: int = 4000
    confirm: Mapping[str, bool] | None = None
    check_claims: bool = True

    def __post_init__(self) -> None:
        least = {
            "max_iterations": 1,
            "include_history_messages": 0,
            "max_tokens": 1,
            "max_calls": 1,
            "max_result_chars": 100,
        }
        for name, limit in least.items():
            whole_number(name, getattr(self, name), least=limit)
        real_number("temperature", self.temperature, least=0)
        if not real_number("timeout_seconds", self.timeout_seconds) > 0:
            raise ConfigError(f"timeout_seconds={self.timeout_seconds!r} must be above 0")
