"""The settings of a client: which model answers, how it samples, and how long it may take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from llmsim_lab._util.checks import plain_number
from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import brief

_FIRST_PIECE_S = 600.0
_RESERVED = {"temperature", "seed", "num_ctx", "num_predict"}
_DURATION = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0")
"""What Go's time.ParseDuration accepts, which Ollama reads texts with."""
_LONGEST_KEEP_S = 9e9
"""The longest time that Ollama can hold: nanoseconds in 64 bits."""
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Ollama's and OpenAI's words for how long a model thinks; each of them has some of these."""


class LLMConfig(Settings):
    """The settings of a model and of the requests to it.

    Attributes:
        model: the model's name, as the backend knows it; in a run's file also a ``connect`` text
            such as ``auto`` or ``ollama:llama3.2``.
        temperature: 0 gives the likeliest answer each time.
        seed: the seed of the server's sampler, the same for each call. With None, each call of a
            run has a seed of its own, which follows from the run's seed; for calls outside a run
            the server chooses. A seed repeats an answer only on the same machine, server, model and
            load. To reproduce a run, use its recording.
        num_ctx: the context window that the server is asked for, tokens; prompt and reply must fit.
        max_tokens: the longest reply, tokens.
        max_text_chars: the longest text in a structured reply, characters; it is part of the reply
            schema. A field's own limit counts if it is smaller, such as that of ``reasoning``
            (300). None leaves only the fields' own limits.
        timeout_s: the longest silence of a server while it works for us, seconds: no piece of any
            reply has come. The time in its queue and the length of a reply do not count.
        first_piece_s: the longest silence before the first piece of a reply, seconds, in which a
            server loads the model and reads the prompt. If it is left at 600, it is at least
            ``timeout_s``. Backends without streaming have ``timeout_s`` only.
        total_timeout_s: the longest time for one reply, seconds, without the queue; None for no
            limit but ``max_tokens``.
        retry_wait_s: the shortest and the longest wait before the retry, seconds; a single number
            is both. A server may ask for more (``Retry-After``), up to ``timeout_s``.
        wait_for_server_s: how long the retry waits, in seconds, for a server that refuses the
            connection, as during a restart, or that says that it loads its model or that its queue
            is full. With a ``retry_wait_s`` of 0 it does not wait.
        max_concurrency: requests in flight. None finds the number that serves this server best
            (``client.limits``), and begins with eight, or with what a llama.cpp server says. An
            embedded model answers one at a time in any case.
        keep_alive: how long a server keeps the model loaded, seconds or a text such as ``"10m"``;
            -1 for ever.
        think: True if a reasoning model may think before it answers, which costs tokens; or how
            long: Ollama knows ``"low"``, ``"medium"``, ``"high"`` and ``"max"``.
        options: further sampling options by Ollama's names, for example ``{"top_p": 0.9}``.
        tell_form: True to tell the model the form of its reply in words, at the end of the system
            message, in the first attempt. This is for models whose server does not enforce a
            schema: they then answer at once. Without it, the second attempt tells the form if the
            first reply had no JSON of that form.
        repeatable: True to get the same words for the same request with the same seed: one request
            at a time, each prompt read whole. How far a server can do that differs; ``connect``
            says it.
    """

    model: Annotated[str, Field(min_length=1)] = "auto"
    temperature: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] = 0.7
    seed: Annotated[int, Field(ge=0, le=2**32 - 2)] | None = None
    num_ctx: Annotated[int, Field(ge=128)] = 4096
    max_tokens: Annotated[int, Field(ge=1)] = 512
    max_text_chars: Annotated[int, Field(ge=20)] | None = 400
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    # Left out if it is the default, so that older recordings, which lack it, stay equal.
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
    # Left out if it is the default, as above.
    tell_form: Annotated[bool, Field(exclude_if=lambda is_told: not is_told)] = False
    repeatable: Annotated[bool, Field(exclude_if=lambda is_wanted: not is_wanted)] = False

    @field_validator("keep_alive", mode="before")
    @classmethod
    def _keep_alive_is_a_time(cls, value: object) -> object:
        is_time = value is None
        # True is a number in Python, but ``keep_alive: true`` in a file means something else.
        if isinstance(value, int | float) and not isinstance(value, bool):
            is_time = value <= _LONGEST_KEEP_S
        elif isinstance(value, str):
            is_time = _DURATION.fullmatch(value) is not None
        if not is_time:
            raise ValueError(
                f"keep_alive={brief(value)} is not a time: give seconds as a number, such as 600, "
                'or a text with units, such as "10m" or "1h30m"; -1 keeps the model loaded, and 0 '
                "unloads it at once"
            )
        return value

    @field_validator("think", mode="before")
    @classmethod
    def _think_is_known(cls, value: object) -> object:
        is_effort = isinstance(value, str) and value in _EFFORTS
        if not isinstance(value, bool) and not is_effort:
            raise ValueError(
                f"think={brief(value)} must be True, False or how long, as a server calls it: "
                f"{', '.join(_EFFORTS)}"
            )
        return value

    @field_validator("retry_wait_s", mode="before")
    @classmethod
    def _one_wait_is_both(cls, wait: object) -> object:
        wait = plain_number(wait)
        if isinstance(wait, int | float) and not isinstance(wait, bool):
            # As people write it in a notebook: ``retry_wait_s=0``.
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
        # One of two places for a setting would silently win.
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
        # A value that the user set is taken as it is, even if it is shorter.
        if self.first_piece_s != _FIRST_PIECE_S:
            return self.first_piece_s
        # Older recordings and code with a longer timeout_s do not know this setting.
        return max(self.first_piece_s, self.timeout_s)

    @property
    def most_at_once(self) -> int | None:
        """How many requests may be in flight; None for as many as serve the server best."""
        # Requests that a server computes together may get slightly different numbers.
        return 1 if self.repeatable else self.max_concurrency

    @property
    def sampling(self) -> Mapping[str, Any]:
        """The options of every request, by Ollama's names."""
        # In the order of recordings, whose settings are compared as text.
        options: dict[str, Any] = {"temperature": self.temperature}
        if self.seed is not None:
            options["seed"] = self.seed
        options["num_ctx"] = self.num_ctx
        options["num_predict"] = self.max_tokens
        if self.repeatable:
            options["cache_prompt"] = False
        return options | self.options
