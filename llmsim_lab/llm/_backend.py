"""Backends of other classes, which have what they have."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest, ModelInfo

T = TypeVar("T")
Work = Coroutine[Any, Any, T]


def as_backend(backend: object) -> ChatBackend:
    """Return a backend with all that one may have.

    Raises:
        ConfigError: it is a class, has no method ``chat``, or gives an odd number of alternatives
            or slots.
    """
    if isinstance(backend, type) or not callable(getattr(backend, "chat", None)):
        raise ConfigError(
            f"backend={brief(backend, 80)} is not a backend: one has async def chat(self, "
            "request), which returns a ChatReply; a class is called first, as in "
            "OllamaBackend('NAME')"
        )
    adapted = backend
    # The contract asks for ``chat`` alone, so a user's backend need not be derived from it.
    if not isinstance(adapted, ChatBackend):
        adapted = _Adapted(backend)
    # Now, since a wrong one would show only when a choice is asked for.
    whole_number("max_top_logprobs", adapted.max_top_logprobs, least=0)
    if adapted.slots is not None:
        whole_number("slots", adapted.slots, least=1)
    return adapted


class _Adapted(ChatBackend):
    """An object that has a method ``chat``, and perhaps some of what else a backend may have.

    Its methods return what the object's own do: a coroutine around each would be one more that
    every piece of a reply passes.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        # Read once, here: the rest of the package asks no object what it can do.
        self.streams = getattr(inner, "streams", False)
        self.max_top_logprobs = getattr(inner, "max_top_logprobs", 0)
        self.is_model = getattr(inner, "is_model", True)
        self.slots = getattr(inner, "slots", None)
        self.client_limits = getattr(inner, "client_limits", None)

    def chat(self, request: ChatRequest, **settings: object) -> Work[ChatReply]:
        """Answer one request."""
        asking: Work[ChatReply] = self._inner.chat(request, **settings)
        return asking

    def model_info(self) -> Work[ModelInfo | None]:
        """Return which model answers, if the object says."""
        if not hasattr(self._inner, "model_info"):
            return super().model_info()
        asking: Work[ModelInfo] = self._inner.model_info()
        return asking

    def phase(self, request: ChatRequest) -> Work[str | None]:
        """Return what the server does, if the object says."""
        if not hasattr(self._inner, "phase"):
            return super().phase(request)
        asking: Work[str] = self._inner.phase(request)
        return asking

    def count_tokens(self, text: str) -> Work[int | None]:
        """Return how many tokens a text has, if the object says."""
        if not hasattr(self._inner, "count_tokens"):
            return super().count_tokens(text)
        asking: Work[int] = self._inner.count_tokens(text)
        return asking

    def aclose(self) -> Work[None]:
        """Close connections, if the object can."""
        if not hasattr(self._inner, "aclose"):
            return super().aclose()
        closing: Work[None] = self._inner.aclose()
        return closing
