"""Settings of a model client."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from llmsim_lab.errors import ConfigError
from llmsim_lab.settings import Settings

__all__ = ["LLMConfig"]

_RESERVED = {"temperature", "seed", "num_ctx", "num_predict"}


class LLMConfig(Settings):
    """How to talk to a model.

    Attributes:
        model: the model's name, as the backend knows it; in a run's file also a ``connect`` text
            such as ``auto`` or ``ollama:llama3.2``.
        temperature: 0 gives the likeliest answer each time.
        seed: for the server's sampler; None draws anew. It repeats an answer only on the same
            machine, server, model and load; a recording is what reproduces a run.
        num_ctx: context window asked of the server, tokens; prompt and reply must fit.
        max_tokens: longest reply, tokens.
        max_text_chars: longest text in a structured reply, characters; part of the schema the model
            is held to. None leaves it unbounded.
        timeout_s: longest wait for one reply, seconds.
        retry_wait_s: shortest and longest wait before the retry, seconds; one number is both. A
            server that asks for more (``Retry-After``) is given it, up to ``timeout_s``.
        max_concurrency: requests in flight; None takes ``OLLAMA_NUM_PARALLEL``, else 4.
        keep_alive: how long a server keeps the model loaded, seconds or text such as ``"10m"``.
        think: whether a reasoning model thinks before it answers (its thinking costs tokens).
        options: further sampling options by Ollama's names, for example ``{"top_p": 0.9}``.
    """

    model: Annotated[str, Field(min_length=1)] = "auto"
    temperature: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] = 0.7
    seed: int | None = None
    num_ctx: Annotated[int, Field(ge=128)] = 4096
    max_tokens: Annotated[int, Field(ge=1)] = 512
    max_text_chars: Annotated[int, Field(ge=20)] | None = 400
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    retry_wait_s: tuple[float, float] = (1.0, 5.0)
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    keep_alive: float | str | None = None
    think: bool | str = False
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_wait_is_both(cls, values: Any) -> Any:
        if isinstance(values, dict):
            wait = values.get("retry_wait_s")
            if isinstance(wait, int | float) and not isinstance(wait, bool):
                return {**values, "retry_wait_s": (wait, wait)}
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        shortest, longest = self.retry_wait_s
        if not 0 <= shortest <= longest < float("inf"):
            raise ValueError(
                f"retry_wait_s={self.retry_wait_s} must be two times in seconds, "
                "0 <= shortest <= longest"
            )
        if self.max_tokens >= self.num_ctx:
            raise ValueError(
                f"max_tokens={self.max_tokens} leaves no room for a prompt in "
                f"num_ctx={self.num_ctx}; lower the one or raise the other"
            )
        if clash := _RESERVED & self.options.keys():
            raise ValueError(
                f"options must not name {', '.join(sorted(clash))}: "
                "these are LLMConfig's own fields (num_predict is max_tokens)"
            )
        return self

    @property
    def sampling(self) -> MappingProxyType[str, Any]:
        """The options of every request, by Ollama's names."""
        options: dict[str, Any] = {"temperature": self.temperature}
        if self.seed is not None:
            options["seed"] = self.seed
        options |= {"num_ctx": self.num_ctx, "num_predict": self.max_tokens}
        return MappingProxyType(options | self.options)

    @property
    def concurrency(self) -> int:
        """Requests in flight at most.

        Raises:
            ConfigError: ``OLLAMA_NUM_PARALLEL`` is needed and not a whole number.
        """
        if self.max_concurrency is not None:
            return self.max_concurrency
        text = os.environ.get("OLLAMA_NUM_PARALLEL", "").strip() or "4"
        if not text.isdecimal():
            raise ConfigError(
                f"OLLAMA_NUM_PARALLEL={text!r} is not a whole number; "
                "set it right or give LLMConfig.max_concurrency"
            )
        return int(text) or 4
