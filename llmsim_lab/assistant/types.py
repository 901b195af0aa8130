"""What goes into the decision engine and what comes out, the roles around it, and its errors.

A role is a Protocol: an object with these methods will do, whatever its class.

```
LabError
├── ToolServerError          a tool server could not be started, or does not answer
└── LLMError                 the model gave no usable answer
    └── RateLimitError       it has too many requests to answer; try again later
```
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import FailFast, Field, PrivateAttr

from llmsim_lab import types
from llmsim_lab._util.checks import real_number, text_argument, whole_number
from llmsim_lab._util.config import Checked
from llmsim_lab._util.jsontext import Schema
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.types import Reply, Value

Arguments: TypeAlias = dict[str, Any]
"""What a tool is called with: values of JSON, by name."""


class DecisionType(StrEnum):
    """The kinds of decisions."""

    RESPOND_ONLY = "RESPOND_ONLY"
    INVOKE_TOOL = "INVOKE_TOOL"
    ASK_CLARIFICATION = "ASK_CLARIFICATION"
    REQUEST_CONFIRMATION = "REQUEST_CONFIRMATION"


class Message(Value, Checked):
    """One message of a conversation between a user and the assistant.

    Attributes:
        role: who wrote it.
        content: the text.
        timestamp: when; the engine ignores it.
    """

    role: Literal["user", "assistant"]
    content: str
    timestamp: datetime | None = None


class ToolResult(Value):
    """The result of a tool call.

    Attributes:
        success: whether the tool did what it was asked to.
        data: what it returned; JSON-ready.
        error: what went wrong, in words that the model may read.
        error_code: the same as a code, such as ``NOT_FOUND`` or ``TIMEOUT``, or the executor's own.
    """

    success: bool
    data: Any = None
    error: str | None = None
    error_code: str | None = None


class ToolCall(Value):
    """A tool call that was made.

    Attributes:
        tool_name: the tool.
        parameters: its arguments, without the user's identity.
        result: what it returned, or how it failed.
        duration_ms: how long it took, milliseconds.
    """

    tool_name: str
    parameters: Arguments = Field(default_factory=dict)
    result: ToolResult | None = None
    duration_ms: float = Field(default=0.0, repr=False)

    @property
    def worked(self) -> bool:
        """Whether it did what it was asked to."""
        return self.result is not None and self.result.success


class PendingAction(Value):
    """A tool call that waits for the user's yes; pass it on in the next context.

    Attributes:
        tool_name: the tool.
        parameters: its arguments, without the user's identity.
        description: what it will do, in words for the user, such as ``delete task 3``.
        call_id: tells it from an equal call asked for at another time; an engine runs it once.
        user_id: who was asked, and alone can say yes; None, for one that no engine made, is the
            user of the context that has it.
        conversation_id: where, likewise.
    """

    tool_name: Annotated[str, Field(min_length=1)]
    parameters: Arguments = Field(default_factory=dict)
    description: str = ""
    call_id: str = Field(
        min_length=1,
        default_factory=lambda: uuid.uuid4().hex,
    )
    user_id: Annotated[str, Field(min_length=1)] | None = None
    conversation_id: Annotated[str, Field(min_length=1)] | None = None


class DecisionContext(Value, Checked):
    """All that the engine knows of a message.

    Attributes:
        user_id: who wrote it, as authenticated; tools act for this user and no other.
        message: the text.
        conversation_id: the conversation it belongs to.
        message_history: the messages before it, oldest first.
        pending_confirmation: what the user was asked to confirm by the latest decision, if so.
    """

    user_id: Annotated[str, Field(min_length=1)]
    message: str
    conversation_id: str
    message_history: Annotated[list[Message], FailFast()] = Field(default_factory=list)
    pending_confirmation: PendingAction | None = None


class AgentDecision(Value):
    """What the engine decided about a message.

    Attributes:
        decision_type: the kind.
        tool_calls: the calls that were made, in order, whatever the kind; None if there were none.
        response_text: what to tell the user.
        clarification_question: what the user is asked, for ``ASK_CLARIFICATION``.
        pending_action: what the user is asked to confirm, for ``REQUEST_CONFIRMATION``; or what
            still waits, where the tools could not be reached after a yes.
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


class Said(Reply):
    """What the assistant says to the user.

    Attributes:
        text: what the user reads.
    """

    text: str
    _decision: AgentDecision | None = PrivateAttr(default=None)

    @property
    def decision(self) -> AgentDecision:
        """What was decided: all of it where an engine did, else to respond with the text."""
        if self._decision is not None:
            return self._decision
        return AgentDecision(decision_type=DecisionType.RESPOND_ONLY, response_text=self.text)

    @classmethod
    def by(cls, decision: AgentDecision) -> Said:
        """Return what a decision says; the conversation keeps all of it."""
        reply = cls(text=decision.text)
        # A private attribute: it is not part of what a model or a person is asked for.
        reply._decision = decision
        return reply


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
        max_result_chars: longest tool result the model is shown, characters; a longer one is cut,
            and the cut says how much is missing.
        confirm: by tool, whether a call needs the user's yes. Tools not named here need it if they
            are declared destructive or their name says that something is deleted.
    """

    max_iterations: int = 5
    include_history_messages: int = 10
    temperature: float = 0.0
    timeout_seconds: float = 30
    max_tokens: int = 1024
    max_calls: int = 20
    max_result_chars: int = 4000
    confirm: Mapping[str, bool] | None = None

    def __post_init__(self) -> None:
        for name in ("max_iterations", "max_tokens", "max_calls", "max_result_chars"):
            whole_number(
                name,
                getattr(self, name),
                least=1,
            )
        whole_number(
            "include_history_messages",
            self.include_history_messages,
            least=0,
        )
        real_number("temperature", self.temperature, least=0)
        real_number("timeout_seconds", self.timeout_seconds, least=0.01)


# --- errors --------------------------------------------------------------------------------------


class LLMError(LabError):
    """The model gave no usable answer.

    Attributes:
        message: what happened.
        code: the kind of fault, such as ``TIMEOUT``.
        retry_after: when to try again, seconds from now, if the server said.
    """

    default_code = "LLM_ERROR"

    def __init__(
        self,
        message: str,
        code: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.retry_after = retry_after


class RateLimitError(LLMError):
    """The model has too many requests to answer."""

    default_code = "RATE_LIMITED"


class ToolServerError(LabError):
    """A tool server could not be started, or does not answer; the message says why."""


# --- roles ---------------------------------------------------------------------------------------


Meaning = Literal["answer", "question", "refusal"]
"""What a model's text is to the user."""


LLMMessage: TypeAlias = types.Message
FunctionCall: TypeAlias = types.ToolCall
"""What the conversation with the model is made of, and a tool that it wants called."""


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """What the model answered.

    Attributes:
        content: the text, if there is any.
        function_calls: the tools it wants called, in order.
        finish_reason: ``stop``, or ``length`` if the token limit cut the answer.
        error: why there is no answer, for adapters that return errors instead of raising them.
        kind: what the model says its text is; None if it does not say, as for plain text.
    """

    content: str | None = None
    function_calls: Sequence[FunctionCall] | None = None
    finish_reason: str | None = "stop"
    error: LLMError | str | None = None
    kind: Meaning | None = None


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """A tool as it is declared to the model.

    Attributes:
        name: the tool's name.
        description: what it does and when to use it.
        parameters: JSON schema of its arguments, without the user's identity.
        destructive: whether a call needs the user's yes; None leaves it to the name.

    Raises:
        ConfigError: the name has characters that MCP does not allow, or more than 128.
    """

    name: str
    description: str = ""
    parameters: Schema = field(default_factory=lambda: {"type": "object", "properties": {}})
    destructive: bool | None = None

    def __post_init__(self) -> None:
        # As MCP has it, and the slash. Other letters could make one tool pass for another.
        text_argument("name", self.name)
        if not re.fullmatch(r"[A-Za-z0-9_./-]{1,128}", self.name):
            raise ConfigError(
                f"the tool {self.name[:150]!a} cannot be used: a name has 1 to 128 letters of A-Z "
                "and a-z, digits, _, -, . and /"
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
            LLMError: there is no answer.
        """
        ...


@runtime_checkable
class ToolExecutor(Protocol):
    """Runs tools.

    An executor that must start before it knows its tools also has ``async def ready(self)``, which
    is awaited first; one that knows their declarations has ``get_tool_declarations(names)``, which
    returns those of these tools, as far as it has them.
    """

    async def execute(
        self,
        tool_name: str,
        parameters: Arguments,
        user_id: str,
    ) -> ToolResult:
        """Run a tool for a user; its failure is a result, not an exception.

        Args:
            tool_name: the tool.
            parameters: its arguments, without the user's identity.
            user_id: who it acts for, as authenticated.
        """
        ...

    def get_available_tools(self) -> list[str]:
        """Return the names of the tools that can be run now."""
        ...


@runtime_checkable
class DecisionLogger(Protocol):
    """Logs decisions and tool calls: the contract's logging service. ``DecisionLog`` is one.

    All arguments are given by name.
    """

    async def write_decision_log(self, *args: object, **row: object) -> None:
        """Write a decision's row: first as ``PENDING``, then again, by the same id, when made.

        Args:
            args: none.
            row: ``decision_id``, which tells the message from others; ``conversation_id``,
                ``user_id`` and ``message``; ``intent_type``, what it was taken for
                (``LLM_PROCESSING`` until that is known); ``decision_type``, a ``DecisionType``,
                or ``PENDING``; ``outcome_category``, which is ``SUCCESS``, ``ERROR``, ``REFUSAL``
                or ``AMBIGUITY`` with its kind after a colon, such as ``ERROR:TIMEOUT``, or
                ``PENDING``; ``duration_ms``, from the message to the decision.
        """
        ...

    async def write_tool_invocation_log(self, *args: object, **row: object) -> None:
        """Write one tool call.

        Args:
            args: none.
            row: ``decision_id``, ``tool_name``, ``parameters``, ``result``, ``success``,
                ``error_code``, ``error_message`` and ``duration_ms``.
        """
        ...
