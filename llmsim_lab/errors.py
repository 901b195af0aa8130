"""Every exception the package raises on purpose.

```
LabError
├── ConfigError            a wrong argument, option, file or environment (also a ValueError)
│   └── PromptError        a prompt cannot be read, parsed or filled
├── DataError              a data file lacks what was asked for (also a ValueError)
├── EconomyError           a macro model was driven where it has no meaning
├── ModuleError            a context module's code failed, or returned what it must not
├── ModelFileError         model weights or their runtime are missing, damaged, or do not fit
├── BackendError           one request to a model failed; the client turns it into the next one
├── LLMFailureException    a model call failed for good, after its retry
├── LLMError               in assistant: the decision engine's model failed; has subclasses
├── BudgetReached          a run may make no further call; it stops, and can be resumed
└── TapeError              a recording cannot be used
    └── TapeMiss           a replay asked for a call that was never recorded
```
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "BackendError",
    "BudgetReached",
    "ConfigError",
    "DataError",
    "EconomyError",
    "LLMFailureException",
    "LabError",
    "ModelFileError",
    "ModuleError",
    "PromptError",
    "TapeError",
    "TapeMiss",
]

FailureReason = Literal[
    "timeout",
    "connection_error",
    "rate_limited",
    "server_error",
    "client_error",
    "model_not_found",
    "invalid_response",
    "context_overflow",
    "generation_stopped",
    "cancelled",
]
"""Why a model call failed.

- ``timeout``: no reply in time.
- ``connection_error``: no server, or the connection broke.
- ``rate_limited``: HTTP 429.
- ``server_error``: HTTP 5xx, or an answer that is not of the protocol's form.
- ``client_error``: the server does not accept the request.
- ``model_not_found``: the server does not have the model.
- ``invalid_response``: the reply is not what was asked for.
- ``context_overflow``: the prompt, or with it the answer, does not fit the context window.
- ``generation_stopped``: the server stopped the model because it repeated itself, or for another
  reason; the text so far is kept as the attempt's reply.
- ``cancelled``: the code that asked waits no longer, as after ``asyncio.wait_for``; only attempts
  have this reason, since that code sees its own ``TimeoutError`` or ``CancelledError``.
"""


class LabError(Exception):
    """Base of all errors of this package; it survives copying and pickling, whatever it takes."""

    def __str__(self) -> str:
        # A message may quote an untrusted text, and a traceback is printed as it is.
        message = super().__str__()
        if message.isprintable():
            return message
        kept: list[str] = []
        for character in message:
            if character.isprintable() or character in "\n\t":
                kept.append(character)
            elif character.isspace():
                kept.append(" ")
        return "".join(kept)

    def __reduce__(self) -> tuple[Any, ...]:
        # Not what a notebook shows in place of the traceback: that is a function of its own.
        kept = vars(self).copy()
        kept.pop("_render_traceback_", None)
        return type(self).__new__, (type(self), *self.args), kept


class ConfigError(LabError, ValueError):
    """An argument, option, file or environment variable is wrong; the message says which."""


class PromptError(ConfigError):
    """A prompt cannot be read, parsed or filled with the values given."""


class DataError(LabError, ValueError):
    """A data file lacks what was asked for."""


class EconomyError(LabError):
    """A macro model was driven where it has no meaning, such as negative unemployment."""


class ModuleError(LabError):
    """A context module failed while a turn was made; the turn stops.

    Attributes:
        module: the module's name.
        agent: the agent it was asked about.
        function: what was called, ``build_agent_context`` or ``compute_state_updates``.
        detail: what went wrong, with the line of the module's code.
    """

    def __init__(
        self,
        module: str,
        *,
        agent: str,
        function: str,
        detail: str,
    ) -> None:
        super().__init__(f"module {module!r}, {function}, agent {agent!r}: {detail}")
        self.module = module
        self.agent = agent
        self.function = function
        self.detail = detail


class ModelFileError(LabError):
    """Model weights or their runtime are missing, damaged, or do not fit this machine."""


@dataclass(eq=False, repr=False)
class BackendError(LabError):
    """One request to a model failed.

    Backends raise it; ``LLMClient`` retries where that can help and otherwise raises
    ``LLMFailureException`` with the same reason.

    Attributes:
        message: what is wrong, in words.
        reason: one of ``FailureReason``.
        status_code: the HTTP status, where there was one.
        retry: whether the same request may succeed a moment later.
        rejected: the reply, if it had the right form but its content was not accepted.
        retry_after_s: how long to wait before trying again, seconds, where the server says so.
        reply: the ``ChatReply``, where the server stopped the model before it was done, or the
            answer went past the end of the context window.
    """

    message: str
    _: KW_ONLY
    reason: FailureReason
    status_code: int | None = None
    retry: bool = False
    rejected: BaseModel | None = None
    retry_after_s: float | None = None
    reply: Any = None

    def __post_init__(self) -> None:
        super().__init__(self.message)


@dataclass(eq=False, repr=False)
class LLMFailureException(LabError):  # noqa: N818 - the contracts' public name
    """A model call failed for good: the retry, where one was due, did not help.

    Attributes:
        reason: one of ``FailureReason``.
        attempts: how many requests were made, 1 or 2 (0 if the prompt could not be sent at all).
        status_code: the last HTTP status, where there was one.
        component: who called: ``agent``, ``validator``, ``engine`` …
        agent: for whom, where that is known.
        turn: in which turn of a run, likewise.
        detail: what the server or the validation said.
        rejected: the last reply, if it had the right form but its content was not accepted.
        call: the ``CallRecord`` of the requests, where any was made.
    """

    reason: FailureReason
    attempts: int = 1
    status_code: int | None = None
    component: str | None = None
    _: KW_ONLY
    agent: str | None = None
    turn: int | None = None
    detail: str = ""
    rejected: BaseModel | None = None
    call: Any = None

    def __post_init__(self) -> None:
        caller = " of ".join(filter(None, (self.component, self.agent)))
        if self.turn is not None:
            caller = f"{caller} in turn {self.turn}".lstrip()
        text = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        text = f"{self.reason} after {text}"
        if caller:
            text = f"{caller}: {text}"
        if self.status_code:
            text += f" (HTTP {self.status_code})"
        if self.detail:
            text += f": {self.detail}"
        super().__init__(text)


class BudgetReached(LabError):  # noqa: N818 - not a fault
    """A run has spent what it may; ``run()`` stops at the last whole turn, and can be resumed."""


class TapeError(LabError):
    """A recording cannot be opened, read or continued."""


class TapeMiss(TapeError):  # noqa: N818 - the design's public name
    """A replay asked for a call that was never recorded."""
