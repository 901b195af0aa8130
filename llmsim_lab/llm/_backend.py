"""Backends of other classes, which have what they have."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from llmsim_lab._util.checks import whole_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest, ModelInfo


def as_backend(backend: Any) -> ChatBackend:
    """Return a backend with all that one may have.

    Raises:
        ConfigError: it is a class, has no method ``chat``, or gives an odd number of alternatives.
    """
    if isinstance(backend, type) or not callable(getattr(backend, "chat", None)):
        raise ConfigError(
            f"backend={backend!r:.80} is not a backend: one has async def chat(self, request), "
            "which returns a ChatReply; a class is called first, as in OllamaBackend('NAME')"
        )
    adapted = backend if isinstance(backend, ChatBackend) else _Adapted(backend)
    whole_number("max_top_logprobs", adapted.max_top_logprobs, least=0)
    return adapted


class _Adapted(ChatBackend):
    """An object that has a method ``chat``, and perhaps some of what else a backend may have."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.streams = getattr(inner, "streams", False)
        self.max_top_logprobs = getattr(inner, "max_top_logprobs", 0)
        self.is_model = getattr(inner, "is_model", True)
        self.slots = getattr(inner, "slots", None)
        self.client_limits = getattr(inner, "client_limits", None)

    def chat(self, request: ChatRequest, **more: Any) -> Coroutine[Any, Any, ChatReply]:
        """Answer one request."""
        asking: Coroutine[Any, Any, ChatReply] = self._inner.chat(request, **more)
        return asking

    def model_info(self) -> Coroutine[Any, Any, ModelInfo | None]:
        """Return which model answers, if the object says."""
        if not hasattr(self._inner, "model_info"):
            return super().model_info()
        asking: Coroutine[Any, Any, ModelInfo] = self._inner.model_info()
        return asking

    def phase(self, request: ChatRequest) -> Coroutine[Any, Any, str | None]:
        """Return what the server does, if the object says."""
        if not hasattr(self._inner, "phase"):
            return super().phase(request)
        asking: Coroutine[Any, Any, str] = self._inner.phase(request)
        return asking

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Close connections, if the object can."""
        if not hasattr(self._inner, "aclose"):
            return super().aclose()
        closing: Coroutine[Any, Any, None] = self._inner.aclose()
        return closing
