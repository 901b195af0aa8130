"""The settings of a client: which model answers, how it samples, and how long it may take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from llmsim_lab._util.checks import plain_number
from llmsim_lab._util.config import Settings

_FIRST_PIECE_S = 600.0
_RESERVED = {"temperature", "seed", "num_ctx", "num_predict"}
_DURATION = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0")
"""What Go's time.ParseDuration takes, with which Ollama reads a text."""
_LONGEST_KEEP_S = 9e9
"""What Ollama can hold: nanoseconds in 64 bits."""
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""What Ollama and OpenAI call how long a model thinks; each knows some of them."""


class LLMConfig(Settings):
    """How to talk to a model.

    Attributes:
        model: the model's name, as the backend knows it; in a run's file also a ``connect`` text
            such as ``auto`` or ``ollama:llama3.2``.
        temperature: 0 gives the likeliest answer each time.
        seed: for the server's sampler, the same for each call; None gives each call of a run its
            own, which follows from the run's seed, and leaves calls outside a run to the server. It
            repeats an answer only on the same machine, server, model and load; a recording is what
            reproduces a run.
        num_ctx: context window asked of the server, tokens; prompt and reply must fit.
        max_tokens: longest reply, tokens.
        max_text_chars: longest text in a structured reply, characters; part of the reply
            schema. A field's own limit counts where it is smaller, as that of ``reasoning``
            (300) is. None leaves it to them.
        timeout_s: longest silence of a server while it works for us, seconds: nothing of any reply
            has come. Its queue does not count, nor does how long a reply takes.
        first_piece_s: longest silence before the first piece of a reply, seconds, in which a server
            loads the model and reads the prompt, and says nothing; where it is left at 600, it is
            at least ``timeout_s``. Backends that hand on no pieces have ``timeout_s`` only.
        total_timeout_s: longest time for one reply, seconds, its queue left out; None for no limit
            but ``max_tokens``.
        retry_wait_s: shortest and longest wait before the retry, seconds; one number is both. A
            server that asks for more (``Retry-After``) is given it, up to ``timeout_s``.
        wait_for_server_s: how long the retry waits for a server that refuses the connection, as one
            that is being restarted does, or says that it loads its model or that its queue is
            full, seconds; not at all where ``retry_wait_s`` is 0.
        max_concurrency: requests in flight; None finds the number that serves this server best
            (``client.limits``), beginning with eight, or with what a llama.cpp server says. An
            embedded model answers one at a time in any case.
        keep_alive: how long a server keeps the model loaded, seconds or text such as ``"10m"``;
            -1 for ever.
        think: whether a reasoning model thinks before it answers (its thinking costs tokens), or
            how long: Ollama knows ``"low"``, ``"medium"``, ``"high"`` and ``"max"``.
        options: further sampling options by Ollama's names, for example ``{"top_p": 0.9}``.
        tell_form: whether the first attempt tells the model the form of its reply in words, at the
            end of the system message. For models whose server does not hold replies to a schema:
            they answer at once, in place of at the second attempt, which tells the form wherever
            the first reply had no JSON of it.
        repeatable: whether the same request with the same seed is to be answered with the same
            words: one request at a time, each prompt read whole. What a server can do of that
            differs; ``connect`` says it.
    """

    model: Annotated[str, Field(min_length=1)] = "auto"
    temperature: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] = 0.7
    seed: Annotated[int, Field(ge=0, le=2**32 - 2)] | None = None
    num_ctx: Annotated[int, Field(ge=128)] = 4096
    max_tokens: Annotated[int, Field(ge=1)] = 512
    max_text_chars: Annotated[int, Field(ge=20)] | None = 400
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    # Left out where it is the default: recordings made before there was such a setting stay equal.
    first_piece_s: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False, exclude_if=lambda seconds: seconds == _FIRST_PIECE_S),
    ] = _FIRST_PIECE_S
    total_timeout_s: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, exclude_if=lambda seconds: seconds is None)
    ] = None
    retry_wait_s: tuple[float, float] = (1.0, 5.0)
    wait_for_server_s: Annotated[
        float, Field(ge=0, allow_inf_nan=False, exclude_if=lambda seconds: seconds == 60.0)
    ] = 60.0
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    keep_alive: float | str | None = None
    think: bool | str = False
    options: dict[str, Any] = Field(default_factory=dict)
    # Left out where it is the default, as above.
    tell_form: Annotated[bool, Field(exclude_if=lambda is_told: not is_told)] = False
    repeatable: Annotated[bool, Field(exclude_if=lambda is_wanted: not is_wanted)] = False

    @field_validator("keep_alive", mode="before")
    @classmethod
    def _keep_alive_is_a_time(cls, value: object) -> object:
        is_time = value is None
        # True is a number for Python; a file that says ``keep_alive: true`` means something else.
        if isinstance(value, int | float) and not isinstance(value, bool):
            is_time = value <= _LONGEST_KEEP_S
        elif isinstance(value, str):
            is_time = _DURATION.fullmatch(value) is not None
        if not is_time:
            raise ValueError(
                f"keep_alive={value!r} is not a time: give seconds as a number, such as 600, or a "
                'text with units, such as "10m" or "1h30m"; -1 keeps the model loaded, and 0 '
                "unloads it at once"
            )
        return value

    @field_validator("think", mode="before")
    @classmethod
    def _think_is_known(cls, value: object) -> object:
        if not isinstance(value, bool) and value not in _EFFORTS:
            raise ValueError(
                f"think={value!r} must be True, False or how long, as a server calls it: "
                f"{', '.join(_EFFORTS)}"
            )
        return value

    @field_validator("retry_wait_s", mode="before")
    @classmethod
    def _one_wait_is_both(cls, wait: object) -> object:
        wait = plain_number(wait)
        if isinstance(wait, int | float) and not isinstance(wait, bool):
            # As one writes it in a notebook: ``retry_wait_s=0``.
            return (wait, wait)
        return wait

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
        # Two places for one setting, of which one would win without a word.
        clash = _RESERVED & self.options.keys()
        if clash:
            raise ValueError(
                f"options must not name {', '.join(sorted(clash))}: these are LLMConfig's own "
                "fields (num_predict is max_tokens)"
            )
        if self.repeatable and self.max_concurrency not in (None, 1):
            raise ValueError(
                f"max_concurrency={self.max_concurrency} does not go with repeatable=True, which "
                "sends one request at a time: leave one of them out"
            )
        if self.repeatable and self.options.get("cache_prompt"):
            raise ValueError(
                "options={'cache_prompt': True} does not go with repeatable=True, which turns the "
                "prompt cache off: leave one of them out"
            )
        return self

    @property
    def first_wait_s(self) -> float:
        """The longest silence before the first piece of a reply, seconds."""
        # Said by the user, and so taken as it is, even where it is shorter.
        if self.first_piece_s != _FIRST_PIECE_S:
            return self.first_piece_s
        # Recordings and code with a longer timeout_s are from before there was such a setting.
        return max(self.first_piece_s, self.timeout_s)

    @property
    def most_at_once(self) -> int | None:
        """How many requests may be in flight; None for as many as serve the server best."""
        # Requests that a server answers together are computed together, and so a little otherwise.
        return 1 if self.repeatable else self.max_concurrency

    @property
    def sampling(self) -> Mapping[str, Any]:
        """The options of every request, by Ollama's names."""
        # In this order, which recordings have: their settings are compared as text.
        options: dict[str, Any] = {"temperature": self.temperature}
        if self.seed is not None:
            options["seed"] = self.seed
        options["num_ctx"] = self.num_ctx
        options["num_predict"] = self.max_tokens
        if self.repeatable:
            options["cache_prompt"] = False
        return options | self.options
