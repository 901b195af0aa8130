"""What can go wrong between the decision engine, its model and its tools.

```
LabError
├── ToolServerError          a server of tools could not be started, or does not answer
└── LLMError                 the model gave no usable answer
    ├── RateLimitError       it has too many requests to answer; try again later
    ├── InvalidResponseError it answered with nothing, or with what nobody can read
    └── ToolNotFoundError    a tool was named that does not exist
```
"""

from __future__ import annotations

from llmsim_lab.errors import LabError

__all__ = [
    "InvalidResponseError",
    "LLMError",
    "RateLimitError",
    "ToolNotFoundError",
    "ToolServerError",
]


class LLMError(LabError):
    """The model gave no usable answer.

    Attributes:
        message: what happened.
        code: the kind of fault in a word or two, such as ``TIMEOUT``.
        retry_after: when to try again, seconds from now, where the server said.
    """

    default_code = "LLM_ERROR"

    def __init__(
        self, message: str, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling with all that is known."""
        return type(self), (self.message, self.code, self.retry_after)


class RateLimitError(LLMError):
    """The model has too many requests to answer."""

    default_code = "RATE_LIMITED"


class InvalidResponseError(LLMError):
    """The model answered with nothing, or with what nobody can read."""

    default_code = "INVALID_RESPONSE"


class ToolNotFoundError(LLMError):
    """A tool was named that does not exist."""

    default_code = "TOOL_NOT_FOUND"


class ToolServerError(LabError):
    """A server of tools could not be started, or does not answer; the message says why."""
