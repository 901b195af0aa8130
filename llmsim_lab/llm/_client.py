"""The one way to ask a model: bounded, retried once, validated, recorded.

``call_with_retry`` promises that the reply fits the response model, or an ``LLMFailureException``
says why not. A failed request is made once more, after a jittered wait, where that may help: after
a timeout, a lost connection, status 429 or 5xx, and after an invalid reply, which the model then
sees together with the complaint. A server that asks for a longer wait (``Retry-After``) is given
it, up to ``timeout_s``; one that refuses the connection is waited for, so that a run outlives it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self, TypeVar

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_core import to_json

from llmsim_lab._spans import Origin
from llmsim_lab._util.checks import plain_number, whole_number
from llmsim_lab._util.config import Settings
from llmsim_lab._util.frozen import frozen
from llmsim_lab._util.jsontext import dumps, plain
from llmsim_lab._util.text import log_as_asked, log_event
from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException, TapeMiss
from llmsim_lab.llm import _choose, _extract, _retry
from llmsim_lab.llm._choose import Choice, OptionT
from llmsim_lab.llm._debug import log_outcome, log_recorded, log_wait
from llmsim_lab.llm._extract import InvalidReply, with_instruction
from llmsim_lab.llm._form import told_form
from llmsim_lab.llm._limits import Lane, Limits, Sent
from llmsim_lab.llm._returned import returned_fault, returned_info, returned_reply
from llmsim_lab.llm._scope import Scope, caller, scope, scoped
from llmsim_lab.llm.bounds import json_number, narrowed
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.types import (
    Attempt,
    CallRecord,
    CallSite,
    ChatBackend,
    ChatReply,
    ChatRequest,
    Decision,
    Message,
    ModelInfo,
    Number,
    Rationale,
    aliases_of,
    reply_schema,
)

if TYPE_CHECKING:
    import tenacity

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")
Send = Callable[..., Awaitable[ChatReply]]

logger = logging.getLogger("llmsim_lab.llm")

_CANCELLED_LATE_S = 30.0
"""How much longer than when it was recorded a replay waits for a call to be cancelled."""
_FIRST_PIECE_S = 600.0
_KNOCK_S = 0.5  # how often a server that refuses the connection is tried
_RESERVED = {"temperature", "seed", "num_ctx", "num_predict"}
_DURATION = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0")
"""What Go's time.ParseDuration takes, with which Ollama reads a text."""
_LONGEST_KEEP_S = 9e9
"""What Ollama can hold: nanoseconds in 64 bits."""
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""What Ollama and OpenAI call how long a model thinks; each knows some of them."""
_CHANCE = random.SystemRandom()  # Python's shared generator is the user's
_MOST_STAND_INS = 100  # replies of what stands in for a model: a class may have rules of its own


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
        max_text_chars: longest text in a structured reply, characters; part of the schema the model
            is held to. A field's own limit counts where it is smaller, as that of ``reasoning``
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

    @field_validator("keep_alive", mode="before")
    @classmethod
    def _keep_alive_is_a_time(cls, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_text = isinstance(value, str) and _DURATION.fullmatch(value) is not None
        is_long = is_number and value > _LONGEST_KEEP_S
        if value is not None and (is_long or not (is_number or is_text)):
            raise ValueError(
                f"keep_alive={value!r} is not a time: give seconds as a number, such as 600, or a "
                'text with units, such as "10m" or "1h30m"; -1 keeps the model loaded, and 0 '
                "unloads it at once"
            )
        return value

    @field_validator("think", mode="before")
    @classmethod
    def _think_is_known(cls, value: Any) -> Any:
        if not isinstance(value, bool) and value not in _EFFORTS:
            raise ValueError(
                f"think={value!r} must be True, False or how long, as a server calls it: "
                f"{', '.join(_EFFORTS)}"
            )
        return value

    @field_validator("retry_wait_s", mode="before")
    @classmethod
    def _one_wait_is_both(cls, wait: Any) -> Any:
        wait = plain_number(wait)
        is_one = isinstance(wait, int | float) and not isinstance(wait, bool)
        return (wait, wait) if is_one else wait

    @model_validator(mode="after")
    def _check(self) -> Self:
        shortest, longest = self.retry_wait_s
        if not 0 <= shortest <= longest < float("inf"):
            form = "must be two times in seconds, 0 <= shortest <= longest"
            raise ValueError(f"retry_wait_s={self.retry_wait_s} {form}")
        if self.max_tokens >= self.num_ctx:
            what = f"max_tokens={self.max_tokens} leaves no room for a prompt"
            way_out = f"num_ctx={self.num_ctx}; lower the one or raise the other"
            raise ValueError(f"{what} in {way_out}")
        if clash := _RESERVED & self.options.keys():
            own = "these are LLMConfig's own fields (num_predict is max_tokens)"
            raise ValueError(f"options must not name {', '.join(sorted(clash))}: {own}")
        return self

    @property
    def first_wait_s(self) -> float:
        """The longest silence before the first piece of a reply, seconds."""
        if self.first_piece_s != _FIRST_PIECE_S:
            return self.first_piece_s
        # Recordings and code with a longer timeout_s are from before there was such a setting.
        return max(self.first_piece_s, self.timeout_s)

    @property
    def sampling(self) -> Mapping[str, Any]:
        """The options of every request, by Ollama's names."""
        seed = {} if self.seed is None else {"seed": self.seed}
        window = {"num_ctx": self.num_ctx, "num_predict": self.max_tokens}
        return {"temperature": self.temperature, **seed, **window, **self.options}


class LLMClient:
    """A model and how to talk to it; share one among all agents of a run.

    Usable from any number of event loops and threads; each loop has its own limit of requests in
    flight.

    Args:
        config: settings; the defaults suit a small local model.
        backend: what answers; an ``OllamaBackend`` where none is given.
        chosen: one line on why this backend, where ``connect`` chose it.
    """

    def __init__(
        self,
        config: LLMConfig | None = None,
        backend: ChatBackend | None = None,
        *,
        chosen: str = "",
    ) -> None:
        config = LLMConfig() if config is None else config
        if not isinstance(config, LLMConfig):
            raise ConfigError(
                f"config={config!r:.80} is not an LLMConfig; connect('ollama:NAME') makes a client "
                "from a model's name"
            )
        if backend is None:
            from llmsim_lab.llm._ollama import OllamaBackend

            backend = OllamaBackend(None if config.model == "auto" else config.model)
        if isinstance(backend, type) or not callable(getattr(backend, "chat", None)):
            raise ConfigError(
                f"backend={backend!r:.80} is not a backend: one has async def chat(self, request), "
                "which returns a ChatReply; a class is called first, as in OllamaBackend('NAME')"
            )
        whole_number("max_top_logprobs", getattr(backend, "max_top_logprobs", 0), least=0)
        self.backend, self.chosen = backend, chosen
        self._models_said = set[str]()
        """Those that were said to need the form in words."""
        log_as_asked()
        slots: int | None = getattr(backend, "slots", None)
        self.limits = getattr(backend, "client_limits", None) or Limits(
            config.max_concurrency, slots=slots
        )
        self.use(config)

    def use(self, config: LLMConfig) -> None:
        """Ask with other settings from now on, as a replay does of a run whose settings changed."""
        self._config = config
        self._request = partial(
            ChatRequest,
            model=config.model,
            options=frozen(config.sampling),  # shared by all requests
            think=config.think,
            keep_alive=config.keep_alive,
            timeout_s=config.timeout_s,
        )

    @property
    def config(self) -> LLMConfig:
        """The settings; ``with_config`` makes a client that has others."""
        return self._config

    def with_config(self, config: LLMConfig) -> LLMClient:
        """Return a client of the same server with other settings, for what a copy asks.

        Both keep to one number of requests in flight, unless the number itself is set otherwise.
        """
        other = LLMClient(config, self.backend, chosen=self.chosen)
        if config.max_concurrency == self.config.max_concurrency:
            other.limits = self.limits
        # Each run of a study has a client of its own, and one sentence does.
        other._models_said = self._models_said
        return other

    async def call_with_retry(
        self,
        *,
        prompt: str,
        response_model: type[ModelT],
        choices: Mapping[str, tuple[Any, ...]] | None = None,
        limits: Mapping[str, tuple[Number, Number]] | None = None,
        check: Callable[[ModelT], str | None] | None = None,
        site: CallSite | None = None,
        total_timeout_s: float | None = None,
        rationale: Rationale = "before",
    ) -> ModelT:
        """Ask for a structured decision; a ``Decision`` has the record of the call as ``.call``.

        Args:
            prompt: a text, or a ``RenderedPrompt``, whose parts go out as system and user message.
            response_model: what the reply must be.
            choices: for some fields of the response model, the only values allowed here; they
                go into the schema the model is held to, and are not checked again.
            limits: likewise the lowest and highest value of some fields.
            check: returns what is wrong with the content of a well-formed reply, or None; a
                complaint makes the reply invalid.
            site: where in the run the call is made.
            total_timeout_s: where none is configured.
            rationale: where a ``Reply`` has its reasoning: ``before`` its other fields, ``after``
                them, or not at all, False.

        Raises:
            LLMFailureException: the call failed for good.
        """
        request = self.request_of(
            prompt, response_model, choices, limits, site, rationale=rationale
        )

        def read(reply: ChatReply) -> ModelT:
            return _extract.parse_reply(
                reply.text,
                response_model,
                check,
                choices,
                limits,
                thinking=reply.thinking,
                rationale=rationale,
            )

        decision, call = await self._call(request, read, total_timeout_s)
        if isinstance(decision, Decision):
            decision.with_call(call)
        return decision

    async def converse(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        check: Callable[[ChatReply], str | None] | None = None,
        site: CallSite | None = None,
    ) -> tuple[ChatReply, CallRecord]:
        """Continue a conversation, in which the model may ask for tools to be called.

        Args:
            messages: oldest first.
            tools: function declarations, as ``ChatRequest.tools`` has them.
            schema: the JSON schema the reply is held to, if any.
            options: sampling options instead of the configured ones, by Ollama's names.
            check: returns what is wrong with a reply, or None; a complaint makes it invalid.
            site: where the call is made.

        Returns:
            The reply, and the record of the call.

        Raises:
            LLMFailureException: the call failed for good.
        """
        # Copies, since a recording is written when the reply is here, and the caller may have
        # changed them by then.
        how = self._with(options) | {"schema": None if schema is None else _fixed("schema", schema)}
        how["tools"] = tuple(_fixed("tools", list(tools)))
        sent = self._with_form(tuple(map(_as_it_is, messages)), schema)
        request = self._request(messages=sent, site=site, **how)

        def read(reply: ChatReply) -> ChatReply:
            if check is not None and (complaint := check(reply)):
                raise InvalidReply(complaint)
            return reply

        return await self._call(request, read)

    async def choose(
        self,
        prompt: str,
        options: Sequence[OptionT] | Mapping[OptionT, str],
        *,
        samples: int = 100,
        seed: int | None = None,
        site: CallSite | None = None,
    ) -> Choice[OptionT]:
        """Return what the model would choose, with the probability of each option.

        The probabilities are the model's own, at temperature 1 whatever the configured one.

        Args:
            prompt: the question, without the options: they are added, with how to answer.
            options: texts, numbers or enums; or a mapping of them to the texts the model sees.
            samples: how many answers are drawn where the backend gives no probabilities, at least;
                as many in each order of the options.
            seed: of the drawn answers, instead of the configured one.
            site: where in the run the call is made.

        Raises:
            ConfigError: the options are fewer than two, alike, or too many for letters.
            LLMFailureException: a call failed for good, or no answer was one of the options.

        Example:
            >>> choice = await client.choose("Inflation is 6 %. What now?", ["raise", "hold"])
            >>> choice.mode, choice.mass
        """
        named = _choose.options_of(options)
        samples = whole_number("samples", samples, least=1)
        seed = seed if seed is None else whole_number("seed", seed)
        before, origin = self._messages_of(prompt, site)

        async def ask(
            messages: Sequence[Message], settings: Mapping[str, Any], top: int | None
        ) -> tuple[ChatReply, CallRecord]:
            how = self._with(settings) | {"think": False, "top_logprobs": top, "origin": origin}
            request = self._request(messages=tuple(messages), site=site, **how)
            return await self._call(request, lambda reply: reply)

        base = self.config.seed if seed is None else seed
        # All orders of the options in one round: they share all that stands before the options.
        with scoped(round=self.limits.lane().next_round):
            return await _choose.choice_by(ask, before, named, samples=samples, seed=base)

    def _with(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what a request with other options changes; they go before the configured ones."""
        if not options:
            return {}
        configured = self._request.keywords["options"]
        return {"options": _fixed("options", {**configured, **options})}

    async def _call(
        self, request: ChatRequest, read: Callable[[ChatReply], T], total_s: float | None = None
    ) -> tuple[T, CallRecord]:
        """Make a request, once more where that may help; ``read`` parses a reply."""
        history: list[Attempt] = []
        around, call, repaired = scope(), None, False
        log = around.log
        # Beside the request, not in it: a recording is found by what was asked, and the seed
        # follows from the run's own.
        seed = log.begin(request) if log is not None else None
        try:
            total_s = self.config.total_timeout_s or total_s or math.inf
            outcome = await self._attempt(request, read, around, seed, total_s, history)
            if isinstance(outcome, BackendError) and outcome.retry:
                first = outcome
                second, repaired = _retry.second_request(request, history[0], first)
                if seed is not None and history[0].reply is not None:
                    seed = _retry.second_seed(seed)  # the first one's answer is of no use
                # Jittered, so that agents who failed together do not all come back at once.
                wait_s = _CHANCE.uniform(*self.config.retry_wait_s)
                wait_s = max(wait_s, min(first.retry_after_s or 0.0, request.timeout_s))
                log_wait(second, wait_s, first.reason)
                outcome = await self._attempt(
                    second, read, around, seed, total_s, history, wait_s=wait_s
                )
                if repaired and isinstance(outcome, BackendError):
                    # The repair may have made the prompt too long, not the user.
                    outcome = first if outcome.reason == "context_overflow" else outcome
            if isinstance(outcome, BackendError):
                call = CallRecord(history=tuple(history), status="failed")
                raise _retry.failure_of(outcome, call, request)
            call = CallRecord(history=tuple(history), status="repaired" if repaired else "ok")
        finally:
            # Also after a cancellation: what was answered before it belongs to the turn.
            if log is not None:
                if call is None and history:
                    call = CallRecord(history=tuple(history), status="failed")
                log.end(request, call)
        return outcome, call

    async def _attempt(
        self,
        request: ChatRequest,
        read: Callable[[ChatReply], T],
        around: Scope,
        seed: int | None,
        total_s: float,
        history: list[Attempt],
        *,
        wait_s: float = 0.0,
    ) -> T | BackendError:
        """Make one request, or take it from the tape; return what was read, or its fault.

        The attempt is added to the history, which has the first one where this is the second, made
        after so many seconds.
        """
        if around.stand_in is not None:
            return self._stood_in(request, read, around.stand_in, history)
        recorder = around.recorder
        previous = history[0] if history else None
        if recorder is not None:
            request = recorder.place(request)
            known = recorder.find(request, previous)
            if known is not None:
                if around.watch is not None:
                    around.watch.ended(request)
                history.append(known)
                log_recorded(known)
                if known.reason == "cancelled":
                    await until_cancelled(
                        f"call {known.number} ({caller(request.site)})", known.seconds
                    )
                return _retry.judged(known, None, read)[1]
        asked = time.monotonic()
        try:
            attempt, fault = await self._live(request, around, seed, total_s, previous, wait_s)
        except asyncio.CancelledError:
            # The code that asked may catch this and go on, so a replay has to know of it.
            attempt = Attempt(
                request=request,
                reply=None,
                seconds=time.monotonic() - asked,
                reason="cancelled",
                detail="cancelled by its caller, as by asyncio.wait_for",
            )
            history.append(_kept(attempt, previous, recorder))
            log_outcome(attempt)
            raise
        attempt, outcome = _retry.judged(attempt, fault, read)
        if isinstance(outcome, BaseModel):
            attempt.cut = _retry.cut_texts(outcome, request.schema)
        log_outcome(attempt)
        history.append(_kept(attempt, previous, recorder))
        if previous is not None and not isinstance(outcome, BackendError):
            self._say_what_helped(previous)
        return outcome

    def _stood_in(
        self,
        request: ChatRequest,
        read: Callable[[ChatReply], T],
        stand_in: Callable[[ChatRequest], ChatReply],
        history: list[Attempt],
    ) -> T | BackendError:
        """Return what was read in the first valid reply of what stands in for the model."""
        tells_probabilities = getattr(self.backend, "max_top_logprobs", 0) > 0
        if not tells_probabilities:
            request = replace(request, top_logprobs=None)
        for _ in range(_MOST_STAND_INS):
            attempt = Attempt(request=request, reply=stand_in(request), seconds=0.0)
            attempt, outcome = _retry.judged(attempt, None, read)
            if not isinstance(outcome, BackendError):
                break
        history.append(attempt)
        return outcome

    def _say_what_helped(self, first: Attempt) -> None:
        """Say once that the model answers where it is told the form, if that was the reason."""
        is_whole = first.reply is not None and first.reply.done_reason == "stop"
        model = first.request.model
        if model in self._models_said or self.config.tell_form or not is_whole:
            return
        if first.reason == "invalid_response" and _retry.lacks_form(first):
            self._models_said.add(model)
            words = (
                f"{model} answered in the form asked for only when it was told the form in words: "
                "its server does not hold replies to a schema. With connect(..., tell_form=True) "
                "the first attempt tells it, which saves a second one."
            )
            log_event(logger, logging.WARNING, "form_told", words=words, model=model, detail=words)

    async def _live(
        self,
        request: ChatRequest,
        around: Scope,
        seed: int | None,
        total_s: float,
        previous: Attempt | None,
        wait_s: float,
    ) -> tuple[Attempt, BackendError | None]:
        """Make one request of the backend; return it with its reply, and its fault if it failed."""
        watch = around.watch
        reply = fault = None
        purse = around.log.purse if around.log is not None else None
        if purse is not None:  # only here: what a tape answers costs nothing
            purse.begin()
        streams = getattr(self.backend, "streams", False)
        sent = Sent(
            request=request,
            first_piece_s=self.config.first_wait_s if streams else None,
            total_s=total_s,
            phase_of=getattr(self.backend, "phase", None),
            watch=watch,
            round=around.round,
        )
        lane = self.limits.lane()
        send: Send = lane.send
        if previous is not None:
            send = partial(self._again, send, wait_s)
        if around.deadline is not None:
            send = partial(_in_time, send, around.deadline, around.late)
        try:
            reply = await send(sent, self._ask, sent, seed, lane)
        except Exception as error:
            fault = _retry.as_backend_error(error, request.timeout_s)
            if fault is None:
                raise
            reply = fault.reply
            if watch is not None:
                watch.failed(request, fault)
        finally:
            if watch is not None and sent.began is not None:
                watch.ended(request)
        attempt = Attempt(request=request, reply=reply, seconds=sent.seconds)
        if purse is not None:
            purse.end(attempt)
        return attempt, fault

    async def model_info(self) -> ModelInfo:
        """Return which model answers.

        Raises:
            LLMFailureException: the backend cannot be reached, or lacks the model.
        """
        if not hasattr(self.backend, "model_info"):
            return ModelInfo(name=self.config.model, backend=type(self.backend).__name__)
        try:
            # The embedded one may have gigabytes to read first.
            is_own = hasattr(self.backend, "client_limits")
            async with asyncio.timeout(None if is_own else self.config.timeout_s):
                asking = self.backend.model_info()
                info = await asking if inspect.isawaitable(asking) else asking
            return returned_info(info, type(self.backend).__name__)
        except Exception as error:
            fault = _retry.as_backend_error(error, self.config.timeout_s)
            if fault is None:
                raise
            raise LLMFailureException(
                fault.reason, 1, fault.status_code, detail=str(fault)
            ) from error

    async def aclose(self) -> None:
        """Release the backend's connections and processes."""
        if hasattr(self.backend, "aclose"):
            await self.backend.aclose()

    async def __aenter__(self) -> LLMClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        why = f": {self.chosen}" if self.chosen else ""
        return f"<LLMClient {self.config.model!r} on {type(self.backend).__name__}{why}>"

    def request_of(
        self,
        prompt: str,
        response_model: type[BaseModel],
        choices: Mapping[str, tuple[Any, ...]] | None = None,
        limits: Mapping[str, tuple[Number, Number]] | None = None,
        site: CallSite | None = None,
        *,
        rationale: Rationale = "before",
    ) -> ChatRequest:
        """Return what ``call_with_retry``, whose arguments these are, asks first; nothing is asked.

        Raises:
            ConfigError: the prompt is empty, or a field is named that the response model lacks.
        """
        messages, origin = self._messages_of(prompt, site)
        allowed: dict[str, dict[str, Any]] = {}
        for field, values in (choices or {}).items():
            allowed[field] = {"enum": [json_number(value) for value in values]}
        for field, (lowest, highest) in (limits or {}).items():
            bounds = {"minimum": json_number(lowest), "maximum": json_number(highest)}
            allowed.setdefault(field, {}).update(bounds)
        try:
            # As text, which a cache can find, and in which 20 and 20.0, 1 and True differ.
            named = to_json(allowed) if allowed else b"{}"
        except ValueError as error:
            raise ConfigError(f"choices and limits {allowed!r:.120}: {error}") from error
        schema = _schema_of(response_model, self.config.max_text_chars, rationale, named)
        messages = self._with_form(messages, schema)
        return self._request(messages=messages, schema=schema, site=site, origin=origin)

    def _messages_of(
        self, prompt: str, site: CallSite | None
    ) -> tuple[tuple[Message, ...], Origin | None]:
        """Return a prompt's messages, and where its values came from."""
        if not prompt or prompt.isspace():
            raise ConfigError("the prompt is empty; give the model something to answer")
        if not isinstance(prompt, RenderedPrompt):
            return (Message("user", str(prompt)),), None
        user, origin = Message("user", prompt.user), prompt.origin(site)
        return (_system_message(prompt.system), user) if prompt.system else (user,), origin

    def _with_form(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None
    ) -> tuple[Message, ...]:
        """Return the messages, with the form of the reply where the first attempt tells it."""
        if schema is None or not self.config.tell_form:
            return tuple(messages)
        return with_instruction(messages, told_form(schema))

    async def _ask(self, sending: Sent, seed: int | None, lane: Lane) -> ChatReply:
        """Ask the backend, with the seed; the watch sees the reply being written."""
        ask: Send = self.backend.chat
        request = sending.request
        if sending.watch is not None:
            sending.watch.began(request)
        if sending.first_piece_s is not None:
            ask = partial(ask, on_text=partial(lane.heard, sending))
        # What was asked for stays on the tape, without the seed, and with more alternatives than
        # this backend can give: a replay, which has no backend, asks the same.
        sent = ChatRequest(*_fields(request))
        if seed is not None:
            sent.options = {**request.options, "seed": seed}
        if (top := request.top_logprobs) is not None:
            sent.top_logprobs = min(top, getattr(self.backend, "max_top_logprobs", 0)) or None
        who = type(self.backend).__name__
        asking = ask(sent)
        if not inspect.isawaitable(asking):
            raise ConfigError(f"{who}.chat must be async: async def chat(self, request): ...")
        try:
            reply = await asking
        except BackendError as fault:
            sound = returned_fault(fault, who)
            if sound is fault:
                raise
            raise sound from fault.__cause__
        return returned_reply(reply, who)

    async def _again(self, send: Send, wait_s: float, *what: Any) -> ChatReply:
        """Send a second request: after a wait, and until a server that is away is back."""
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        patience = self.config.wait_for_server_s if self.config.retry_wait_s[1] > 0 else 0.0
        if not patience:
            return await send(*what)
        import tenacity  # here, since few runs need it and it takes long to import

        def tell(state: tenacity.RetryCallState) -> None:
            if not self.limits.is_away:  # once, and not by each that waits
                self.limits.is_away = True
                why = state.outcome and state.outcome.exception()
                detail = f"waiting up to {patience:g} s for it; {why}"
                log_event(logger, logging.WARNING, "server_away", detail=detail)

        knocking = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_retry.is_not_ready),
            wait=tenacity.wait_fixed(_KNOCK_S),
            stop=tenacity.stop_after_delay(patience),
            before_sleep=tell,
            reraise=True,
        )
        reply: ChatReply = await knocking(send, *what)
        self.limits.is_away = False
        return reply


async def _in_time(send: Send, deadline: float, late: str, *what: Any) -> ChatReply:
    """Send a request, for no longer than the caller will wait; else raise an error that says so."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()) as limit:
            return await send(*what)
    except TimeoutError:
        if not limit.expired():
            raise
        # No retry, and the tape shows why.
        raise BackendError(late, reason="timeout") from None


def _kept(attempt: Attempt, previous: Attempt | None, recorder: Any) -> Attempt:
    """Return an attempt as it is recorded, before it is acted on; unchanged where nothing records.

    What a run has seen must be on its tape.
    """
    if previous is not None:
        attempt.first = previous.number
    kept: Attempt = attempt if recorder is None else recorder.keep(attempt)
    return kept


async def until_cancelled(name: str, seconds: float) -> NoReturn:
    """Wait for the caller to cancel, in a replay, what it cancelled in the recording.

    Only this gives the caller what it saw then, whether it used ``asyncio.timeout``, ``wait_for``,
    or took the first of several answers.

    Args:
        name: of what it waits for, for the message.
        seconds: after which it was cancelled in the recording.

    Raises:
        TapeMiss: the caller waits for much longer than it did.
    """
    patience_s = seconds + _CANCELLED_LATE_S
    await asyncio.sleep(patience_s)
    raise TapeMiss(
        f"{name} was cancelled by its caller after {seconds:.1f} s when it was recorded, and in "
        f"this replay it is still waited for after {patience_s:.0f} s; cancel it in the turn's own "
        "code, as asyncio.wait_for does, not by a clock or an event from outside"
    )


def checked_client(
    client: Any, argument: str, needs: Sequence[str] = ("call_with_retry", "config")
) -> Any:
    """Return a client, which may be an object around one, that has what will be used of it.

    Args:
        client: what was given.
        argument: as what it was given, for the message.
        needs: what will be used.

    Raises:
        ConfigError: it is a class or lacks some of it; else its first call would fail.
    """
    lacking = [name for name in needs if not hasattr(client, name)]
    if isinstance(client, type) or needs[0] in lacking:
        right = client if isinstance(client, str) else "auto"
        raise ConfigError(
            f"{argument}={client!r:.80} is not a client; make one: {argument}=connect({right!r}), "
            "or LLMClient(LLMConfig(model='script'), backend)"
        )
    if lacking:
        raise ConfigError(
            f"{argument}={client!r:.80} is a client without {', '.join(lacking)}; derive its class "
            "from LLMClient, or have it hand on what it lacks: "
            "def __getattr__(self, name): return getattr(self.inner, name)"
        )
    return client


def run_client(client: Any, argument: str = "llm_client") -> LLMClient | None:
    """Return a client that has all that a run may use of it, or None.

    Raises:
        ConfigError: it is something else; a text would be taken for a player.
    """
    if client is None:
        return None
    needs = "call_with_retry", "converse", "choose", "model_info", "with_config"
    checked: LLMClient = checked_client(client, argument, (*needs, "config", "backend"))
    return checked


def _fixed(name: str, value: Any) -> Any:
    """Return a copy of a value of JSON that cannot be changed, one for all that are equal.

    Raises:
        ConfigError: JSON cannot hold it.
    """
    try:
        return _from_text(dumps(plain(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}={value!r:.120} must be values of JSON: {error}") from error


@lru_cache(maxsize=1024)
def _from_text(text: str) -> Any:
    return frozen(json.loads(text))


def _as_it_is(message: Message) -> Message:
    """Return a message whose calls' arguments cannot be changed."""
    if not message.tool_calls:
        return message
    calls = [replace(call, arguments=frozen(dict(call.arguments))) for call in message.tool_calls]
    return replace(message, tool_calls=tuple(calls))


_fields = attrgetter(*ChatRequest.__slots__)
_system_message = lru_cache(maxsize=1024)(partial(Message, "system"))
"""One message for all requests of a run that share it."""


@lru_cache(maxsize=1024)
def _schema_of(
    response_model: type[BaseModel], max_text: int | None, rationale: Rationale, allowed: bytes
) -> Mapping[str, Any]:
    """The schema a model is held to; shared by all its requests, not to be changed."""
    schema = reply_schema(response_model, max_text=max_text, rationale=rationale)
    fields: dict[str, Any] = schema.get("properties", {})
    aliases = aliases_of(response_model)
    for field, limits in json.loads(allowed).items():
        alias = aliases.get(field, field)
        if alias not in fields:
            raise ConfigError(
                f"choices or limits name {field!r}, which {response_model.__name__} lacks; its "
                f"fields are {', '.join(fields)}"
            )
        fields[alias] = narrowed(fields[alias], schema.get("$defs", {}), limits)
    shared: Mapping[str, Any] = frozen(schema)
    return shared
