"""The one way to ask a model: bounded, retried once, validated, recorded.

``call_with_retry`` promises that the reply fits the response model, or an ``LLMFailureException``
says why not. A failed request is made once more, after a jittered wait, where that may help: after
a timeout, a lost connection, status 429 or 5xx, and after an invalid reply, which the model then
sees together with the complaint if both fit into the context window. It is not made again after
another 4xx, or where the server says that the request itself is wrong.

A model that the server stopped because it repeats itself learns that from the second request and
gets another seed, derived from the first one; without a seed the server draws anew.

Where the server says how long to wait (``Retry-After``), the wait is at least that long, but never
longer than ``timeout_s``. Where the caller will not wait that long, there is no retry.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from llmsim_lab._util.config import Settings
from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm._extract import InvalidReply, parse_reply
from llmsim_lab.llm._limits import Lane, Limits
from llmsim_lab.llm._retry import (
    as_backend_error,
    both_faults,
    failed_attempt,
    failure_of,
    invalid_fault,
    no_time_to_retry,
    recorded_fault,
    second_request,
    second_seed,
)
from llmsim_lab.llm._scope import CallLog, scope, seconds_left
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
    reply_schema,
)

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")

_MOST_CHARS_PER_TOKEN = 16
"""Far above what any tokenizer packs into a token on average: no longer prompt can fit."""

_RESERVED = {"temperature", "seed", "num_ctx", "num_predict"}
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}


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
            is held to. None leaves it unbounded.
        timeout_s: longest wait for one reply, seconds. Of requests sent to a server at once, the
            time of each begins when those before it are answered: its queue does not count.
        retry_wait_s: shortest and longest wait before the retry, seconds; one number is both. A
            server that asks for more (``Retry-After``) is given it, up to ``timeout_s``.
        max_concurrency: requests in flight; None takes ``OLLAMA_NUM_PARALLEL``, else the number
            that is found to serve this server best (``client.limits``).
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
    def concurrency(self) -> int | None:
        """Requests in flight at most; None where the client is to find the number.

        Raises:
            ConfigError: ``OLLAMA_NUM_PARALLEL`` is needed and not a whole number.
        """
        if self.max_concurrency is not None:
            return self.max_concurrency
        text = os.environ.get("OLLAMA_NUM_PARALLEL", "").strip() or "0"
        if not text.isdecimal():
            raise ConfigError(
                f"OLLAMA_NUM_PARALLEL={text!r} is not a whole number; "
                "set it right or give LLMConfig.max_concurrency"
            )
        return int(text) or None


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
        self.config = config or LLMConfig()
        if backend is None:
            from llmsim_lab.llm._ollama.backend import OllamaBackend

            backend = OllamaBackend(None if self.config.model == "auto" else self.config.model)
        self.backend = backend
        self.chosen = chosen
        self.limits = Limits(self.config.concurrency)
        self._options = dict(self.config.sampling)
        """Shared by all requests, not to be changed."""
        self._variants: dict[str, Mapping[str, Any]] = {}
        self._lanes: dict[asyncio.AbstractEventLoop, Lane] = {}
        self._lock = threading.Lock()
        self._turns: dict[CallLog, asyncio.AbstractEventLoop] = {}
        """The turns being played with this client, each with its loop."""

    def with_config(self, config: LLMConfig) -> LLMClient:
        """Return a client of the same server with other settings, for what a copy asks.

        It knows what this one has found out about the server, and both keep to one number of
        requests in flight, unless the number itself is set otherwise.
        """
        other = LLMClient(config, self.backend, chosen=self.chosen)
        if config.concurrency == self.config.concurrency:
            other.limits, other._lanes, other._lock = self.limits, self._lanes, self._lock
        return other

    async def call_with_retry(
        self,
        *,
        prompt: str,
        response_model: type[ModelT],
        choices: Mapping[str, tuple[Any, ...]] | None = None,
        limits: Mapping[str, tuple[float, float]] | None = None,
        check: Callable[[ModelT], str | None] | None = None,
        site: CallSite | None = None,
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

        Raises:
            LLMFailureException: the call failed for good.
        """
        self._check_size(prompt, site)
        request = self._first_request(prompt, response_model, choices, limits, site)
        decision, call = await self._ask_twice(
            request, lambda reply: parse_reply(reply.text, response_model, check), site
        )
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
        sampling: Mapping[str, Any] = self._options
        if options:
            # The same object each time: a tape recognises settings that it has by their identity.
            key = repr(sorted(options.items()))
            sampling = self._variants.setdefault(key, {**sampling, **options})
        request = ChatRequest(
            model=self.config.model,
            messages=tuple(messages),
            schema=schema,
            tools=tuple(tools),
            options=sampling,
            think=self.config.think,
            keep_alive=self.config.keep_alive,
            timeout_s=self.config.timeout_s,
            site=site,
        )
        self._check_size(request.prompt, site)

        def read(reply: ChatReply) -> ChatReply:
            if check is not None and (complaint := check(reply)):
                raise InvalidReply(complaint)
            return reply

        return await self._ask_twice(request, read, site)

    async def _ask_twice(
        self, request: ChatRequest, read: Callable[[ChatReply], T], site: CallSite | None
    ) -> tuple[T, CallRecord]:
        """Make a request, once more where that may help; ``read`` parses a reply."""
        log, history = scope().log, list[Attempt]()
        if log is None:
            self._check_not_lost()
        else:
            log.begin(request)
        call, repaired = None, False
        # Beside the request, not in it: a recording is found by what was asked, and the seed
        # follows from the run's own.
        seed = log.seed_at(site) if log and "seed" not in request.options else None
        try:
            outcome = await self._attempt(request, read, history, seed=seed)
            if isinstance(outcome, BackendError) and outcome.retry:
                first = outcome
                second, repaired = second_request(request, history[-1], first)
                if seed is not None and history[-1].reply is not None:
                    seed = second_seed(seed)  # the first one gave an answer that is of no use
                outcome = await self._attempt(
                    second, read, history, asked_wait=first.retry_after_s, seed=seed
                )
                if isinstance(outcome, BackendError):
                    outcome = both_faults(first, outcome, repaired=repaired)
            if isinstance(outcome, BackendError):
                raise failure_of(outcome, history, site, model=self.config.model)
            call = CallRecord(history=tuple(history), status="repaired" if repaired else "ok")
        except LLMFailureException as failure:
            call = failure.call
            raise
        finally:
            # Also after a cancellation: what was answered before it belongs to the turn.
            if log is not None:
                if call is None and history:
                    call = CallRecord(history=tuple(history), status="failed")
                log.end(request, call)
        return outcome, call

    @contextmanager
    def playing(self, log: CallLog) -> Iterator[None]:
        """Register a turn that a run plays with this client, on the current event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._turns[log] = loop
        try:
            yield
        finally:
            with self._lock:
                self._turns.pop(log, None)

    def _check_not_lost(self) -> None:
        """Raise ConfigError for a call out of a run's turn that the run cannot see."""
        if not self._turns:
            return
        loop = asyncio.get_running_loop()
        # A copy, since other threads add and remove turns meanwhile. Context variables do not
        # follow work into a bare thread: such a call has no log, whatever turn it belongs to.
        for log, loop_of_turn in tuple(self._turns.items()):
            if loop_of_turn is not loop:
                raise ConfigError(
                    f"a call was made on another thread while turn {log.turn} of {log.run!r} is "
                    "being played with the same client, so the run cannot know of it: hand work "
                    "to threads with await asyncio.to_thread(...), which takes the run along, not "
                    "by loop.run_in_executor; for questions of your own connect() another client"
                )

    async def model_info(self) -> ModelInfo:
        """Return which model answers.

        Raises:
            LLMFailureException: the backend cannot be reached, or lacks the model.
        """
        if not hasattr(self.backend, "model_info"):
            return ModelInfo(name=self.config.model, backend=type(self.backend).__name__)
        try:
            return await self.backend.model_info()
        except Exception as error:
            fault = as_backend_error(error, timeout_s=self.config.timeout_s)
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

    def _first_request(
        self,
        prompt: str,
        response_model: type[BaseModel],
        choices: Mapping[str, tuple[Any, ...]] | None,
        limits: Mapping[str, tuple[float, float]] | None,
        site: CallSite | None,
    ) -> ChatRequest:
        if not prompt.strip():
            raise ConfigError("the prompt is empty; give the model something to answer")
        config, origin = self.config, None
        messages: tuple[Message, ...] = (Message("user", str(prompt)),)
        if isinstance(prompt, RenderedPrompt):
            origin = prompt.origin(site)
            messages = (Message("user", prompt.user),)
            if prompt.system:
                messages = (_system_message(prompt.system), *messages)
        chosen, bounds = tuple((choices or {}).items()), tuple((limits or {}).items())
        return ChatRequest(
            model=config.model,
            messages=messages,
            schema=_schema_of(
                response_model,
                config.max_text_chars,
                chosen,
                bounds,
                repr((chosen, bounds)) if chosen or bounds else "",
            ),
            options=self._options,
            think=config.think,
            keep_alive=config.keep_alive,
            timeout_s=config.timeout_s,
            site=site,
            origin=origin,
        )

    def _check_size(self, prompt: str, site: CallSite | None) -> None:
        """Raise if the prompt cannot fit by any count; backends judge the close cases."""
        limit = self.config.num_ctx * _MOST_CHARS_PER_TOKEN
        if len(prompt) > limit:
            fault = BackendError(
                f"the prompt has {len(prompt):,} characters, more than {limit:,}, which "
                f"num_ctx={self.config.num_ctx} can never hold; shorten the prompt or raise "
                "LLMConfig.num_ctx",
                reason="context_overflow",
            )
            raise failure_of(fault, [], site, model=self.config.model)

    async def _attempt(
        self,
        request: ChatRequest,
        read: Callable[[ChatReply], T],
        history: list[Attempt],
        *,
        asked_wait: float | None = None,
        seed: int | None = None,
    ) -> T | BackendError:
        """Make one request, or take it from the tape; its outcome goes into the history.

        ``read`` parses a reply; ``asked_wait`` is how long the server asked to wait first, seconds;
        ``seed`` is the server's sampler's.
        """
        around = scope()
        recorder, known, fault = around.recorder, None, None
        if recorder is not None:
            request = recorder.place(request)
            known = recorder.find(request, history[-1] if history else None)
        outcome: T | BackendError
        if known is not None:
            attempt = known
            if around.watch is not None:
                around.watch.ended(request, known, taped=True)
        else:
            # Charged only here: what a tape answers costs nothing.
            purse = around.log.purse if around.log is not None else None
            if purse is not None:
                purse.begin()
            make = self._make if around.deadline is None else self._make_in_time
            attempt, fault = await make(request, asked_wait, seed)
            if purse is not None:
                purse.end(attempt)
        # A recorded reply is parsed again, an invalid one too: a replay takes the same path.
        if attempt.reply is None or attempt.reason not in (None, "invalid_response"):
            outcome = fault or recorded_fault(attempt)
        else:
            try:
                outcome = read(attempt.reply)
            except InvalidReply as error:
                outcome = invalid_fault(attempt.reply, error, options=request.options)
                outcome.__cause__ = error  # the second request shows the model its words
                if known is None:
                    attempt = replace(
                        attempt, reason=outcome.reason, detail=str(outcome), retry=True
                    )
        if recorder is not None and known is None:
            # Before anybody acts on it: what a run has seen must be on its tape.
            attempt = await recorder.keep(attempt)
        history.append(attempt)
        return outcome

    async def _make_in_time(
        self, request: ChatRequest, asked_wait: float | None, seed: int | None
    ) -> tuple[Attempt, BackendError | None]:
        """Ask the backend, for no longer than the caller will wait."""
        left = seconds_left() or 0.0
        limit = asyncio.timeout(left)
        try:
            async with limit:
                return await self._make(request, asked_wait, seed)
        except TimeoutError:
            if not limit.expired():
                raise  # a time limit further out ended this: its owner must see it
            # ``Scope.deadline`` has passed: no retry, and the tape shows why.
            fault = BackendError(
                f"no reply within {round(left, 2):g} s, and the caller waits no longer",
                reason="timeout",
            )
            return failed_attempt(request, fault, seconds=left), fault

    async def _make(
        self, request: ChatRequest, asked_wait: float | None, seed: int | None
    ) -> tuple[Attempt, BackendError | None]:
        """Ask the backend, within the limits of time and of requests in flight."""
        if request.attempt > 1:
            await self._back_off(min(asked_wait or 0.0, request.timeout_s))
        lane = self._lane()
        # The time limit begins inside the queue: waiting for a slot is not charged to the model.
        await lane.enter()
        try:
            watch, attempt = scope().watch, None
            if watch is not None:
                watch.began(request)
            limit, began = lane.limit(request.timeout_s), time.perf_counter()
            self.limits.began(lane.loop.time())
            try:
                async with limit:
                    reply = await self.backend.chat(_seeded(request, seed))
                if not isinstance(reply, ChatReply):
                    raise ConfigError(
                        f"{type(self.backend).__name__}.chat returned {type(reply).__name__}; it "
                        "must return ChatReply(text=...)"
                    )
                seconds = time.perf_counter() - began
                attempt = Attempt(request=request, reply=reply, seconds=seconds)
                return attempt, None
            except Exception as error:  # not a cancellation, which leaves nothing to record
                fault = as_backend_error(error, timeout_s=request.timeout_s)
                if fault is None:
                    raise
                fault = no_time_to_retry(fault, left=seconds_left(), timeout_s=request.timeout_s)
                attempt = failed_attempt(request, fault, seconds=time.perf_counter() - began)
                return attempt, fault
            finally:
                lane.ended(limit)
                reply_of = attempt.reply if attempt is not None else None
                self.limits.ended(
                    lane.loop.time(),
                    tokens=None if reply_of is None else reply_of.reply_tokens or 1,
                    too_many=attempt is not None and attempt.status_code in (429, 503),
                )
                if watch is not None:
                    watch.ended(request, attempt, taped=False)
        finally:
            lane.leave()

    async def _back_off(self, least_s: float) -> None:
        """Wait before the retry, at least so many seconds."""
        import tenacity  # here, since few runs need it and it takes long to import

        # Jittered, so that agents who failed together do not all come back at the same moment.
        shortest, longest = self.config.retry_wait_s
        wait = tenacity.wait_random_exponential(multiplier=longest, min=shortest, max=longest)
        drawn = wait(tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {}))
        seconds = max(drawn, least_s)
        if seconds > 0:
            await asyncio.sleep(seconds)

    def _lane(self) -> Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            with self._lock:
                # Scripts may use a loop for each run; the lanes of closed ones would pile up.
                for other in [other for other in self._lanes if other.is_closed()]:
                    del self._lanes[other]
                lane = self._lanes.setdefault(loop, Lane(self.limits, loop))
        return lane


def _seeded(request: ChatRequest, seed: int | None) -> ChatRequest:
    """Return a request as a backend gets it."""
    if seed is None:
        return request
    return replace(request, options={**request.options, "seed": seed})


@lru_cache(maxsize=1024)
def _system_message(text: str) -> Message:
    """One message for all requests of a run that share it."""
    return Message("system", text)


@lru_cache(maxsize=1024)
def _schema_of(
    response_model: type[BaseModel],
    max_text: int | None,
    choices: tuple[tuple[str, tuple[Any, ...]], ...] = (),
    limits: tuple[tuple[str, tuple[float, float]], ...] = (),
    _in_words: str = "",  # so that the cache tells 20 from 20.0 and True from 1, which are equal
) -> Mapping[str, Any]:
    """The schema a model is held to; shared by all its requests, not to be changed."""
    if not choices and not limits:
        return reply_schema(response_model, max_text=max_text)
    whole = _schema_of(response_model, max_text)
    fields: dict[str, Any] = dict(whole.get("properties", {}))
    for field, _ in (*choices, *limits):
        if field not in fields:
            raise ConfigError(
                f"choices or limits name {field!r}, which {response_model.__name__} lacks; "
                f"its fields are {', '.join(fields)}"
            )
    for field, values in choices:
        fields[field] = {"enum": list(values)}
    for field, (lowest, highest) in limits:
        known = {name: fields[field][name] for name in fields[field] if name not in _BOUNDS}
        fields[field] = {**known, "minimum": lowest, "maximum": highest}
    return {**whole, "properties": fields}
