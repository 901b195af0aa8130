"""The one way to ask a model: bounded, retried once, validated, recorded.

What ``call_with_retry`` promises: the reply fits the response model, or an ``LLMFailureException``
says why not. One retry, after a jittered wait, where it may help: after a timeout, a lost
connection, status 429 or 5xx, and after an invalid reply, which the model is then shown together
with the complaint, if both fit into the context window. Never after another 4xx, nor where the
server has said that the request itself is wrong.

A model that the server stopped because it repeats itself is told so and asked with another seed,
which follows from the first one; without a seed the server draws anew.

Where the server says how long to wait (``Retry-After``), the wait is at least that long, but never
longer than ``timeout_s``. Where the caller will not wait that long, there is no retry.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from llmsim_lab.calls import (
    Attempt,
    CallRecord,
    CallSite,
    ChatBackend,
    ChatReply,
    ChatRequest,
    Message,
    ModelInfo,
)
from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm.config import LLMConfig
from llmsim_lab.llm.extract import InvalidReply, parse_reply
from llmsim_lab.llm.faults import as_backend_error
from llmsim_lab.llm.outcomes import (
    both_told,
    failure_of,
    invalid_fault,
    no_time_to_retry,
    out_of_time,
    recorded_fault,
)
from llmsim_lab.llm.requests import first_request, second_request
from llmsim_lab.llm.scope import CallLog, scope, seconds_left
from llmsim_lab.models import Decision

__all__ = ["LLMClient"]

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")

_LEAST_CHARS_PER_CONTEXT_TOKEN = 16
"""Far above what any tokenizer packs into a token on average: beyond it nothing can fit."""


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
            from llmsim_lab.llm.ollama import OllamaBackend

            backend = OllamaBackend(None if self.config.model == "auto" else self.config.model)
        self.backend = backend
        self.chosen = chosen
        self._concurrency = self.config.concurrency
        self._options = dict(self.config.sampling)
        """Shared by all requests, not to be changed."""
        self._variants: dict[str, Mapping[str, Any]] = {}
        self._lanes: dict[asyncio.AbstractEventLoop, _Lane] = {}
        self._lock = threading.Lock()
        self._turns: dict[CallLog, asyncio.AbstractEventLoop] = {}
        """The turns that are being played with this client, and where."""

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
            check: says what is wrong with the content of a well-formed reply, or None; a complaint
                makes the reply invalid.
            site: where in the run the call is made.

        Raises:
            LLMFailureException: the call failed for good.
        """
        self._check_size(prompt, site)
        request = first_request(
            prompt,
            response_model,
            choices,
            site,
            limits=limits,
            config=self.config,
            options=self._options,
        )
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
        """Go on with a conversation, in which the model may ask for tools to be called.

        Args:
            messages: oldest first.
            tools: function declarations, as ``ChatRequest.tools`` has them.
            schema: the JSON schema the reply is held to, if any.
            options: sampling options instead of the configured ones, by Ollama's names.
            check: says what is wrong with a reply, or None; a complaint makes it invalid.
            site: where the call is made.

        Returns:
            The reply, and the record of the call.

        Raises:
            LLMFailureException: the call failed for good.
        """
        request = ChatRequest(
            model=self.config.model,
            messages=tuple(messages),
            schema=schema,
            tools=tuple(tools),
            options=self._options_with(options),
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
        """Make a request, once more where that may help; ``read`` says what a reply means."""
        log, began, history = scope().log, request, list[Attempt]()
        if log is None:
            self._check_known()
        else:
            log.begin(began)
        call = None
        try:
            outcome = await self._attempt(request, read, history)
            repaired = False
            if isinstance(outcome, BackendError) and outcome.retry:
                first = outcome
                request, repaired = second_request(request, history[-1], first)
                outcome = await self._attempt(
                    request, read, history, asked_wait=first.retry_after_s
                )
                if isinstance(outcome, BackendError):
                    outcome = both_told(first, outcome, repaired=repaired)
            if isinstance(outcome, BackendError):
                raise failure_of(outcome, history, site, model=self.config.model)
            call = CallRecord(history=tuple(history), status="repaired" if repaired else "ok")
        except LLMFailureException as failure:
            call = failure.call
            raise
        finally:
            if log is not None:
                if call is None and history:
                    call = CallRecord(history=tuple(history), status="failed")
                log.end(began, call)
        return outcome, call

    @contextmanager
    def playing(self, log: CallLog) -> Iterator[None]:
        """Note that a run plays a turn with this client, on the current event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._turns[log] = loop
        try:
            yield
        finally:
            with self._lock:
                self._turns.pop(log, None)

    def _check_known(self) -> None:
        """Raise ConfigError for a call that a run plays a turn for, but cannot know of."""
        if not self._turns:
            return
        loop = asyncio.get_running_loop()
        for log, its in tuple(self._turns.items()):
            if its is not loop:
                raise ConfigError(
                    f"a call was made on another thread while turn {log.turn} of {log.run!r} is "
                    "being played with the same client, so the run cannot know of it: hand work "
                    "to threads with await asyncio.to_thread(...), which takes the run along, not "
                    "by loop.run_in_executor; for questions of your own connect() another client"
                )

    async def model_info(self) -> ModelInfo:
        """Say which model answers.

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
        """Let go of the backend's connections and processes."""
        if hasattr(self.backend, "aclose"):
            await self.backend.aclose()

    async def __aenter__(self) -> LLMClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        why = f": {self.chosen}" if self.chosen else ""
        return f"<LLMClient {self.config.model!r} on {type(self.backend).__name__}{why}>"

    def _options_with(self, options: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the configured options with others; the same object each time, as a tape likes."""
        if not options:
            return self._options
        key = repr(sorted(options.items()))
        return self._variants.setdefault(key, {**self._options, **options})

    def _check_size(self, prompt: str, site: CallSite | None) -> None:
        """Refuse a prompt that cannot fit by any count; backends judge the close cases."""
        chars = len(prompt)
        limit = self.config.num_ctx * _LEAST_CHARS_PER_CONTEXT_TOKEN
        if chars > limit:
            fault = BackendError(
                f"the prompt has {chars:,} characters, more than {limit:,}, which "
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
    ) -> T | BackendError:
        """Make one request, or take it from the tape; what becomes of it goes into the history.

        Args:
            request: the request.
            read: says what a reply means.
            history: of the call.
            asked_wait: how long the server asked to wait first, seconds.
        """
        around = scope()
        recorder, known = around.recorder, None
        if recorder is not None:
            request = recorder.place(request)
            known = recorder.find(request, history[-1] if history else None)
        outcome: T | BackendError
        if known is not None:
            attempt, fault = known, None
            if around.watch is not None:
                around.watch.ended(request, known, taped=True)
        else:
            purse = around.log.purse if around.log is not None else None
            if purse is not None:
                purse.begin()
            make = self._make if around.deadline is None else self._make_in_time
            attempt, fault = await make(request, asked_wait)
            if purse is not None:
                purse.end(attempt)
        if attempt.reply is None or attempt.reason not in (None, "invalid_response"):
            outcome = fault or recorded_fault(attempt)
        else:
            try:
                outcome = read(attempt.reply)
            except InvalidReply as error:
                outcome = invalid_fault(attempt.reply, error, options=request.options)
                outcome.__cause__ = error
                if known is None:
                    attempt = replace(
                        attempt, reason=outcome.reason, detail=str(outcome), retry=True
                    )
        if recorder is not None and known is None:
            attempt = await recorder.keep(attempt)
        history.append(attempt)
        return outcome

    async def _make_in_time(
        self, request: ChatRequest, asked_wait: float | None
    ) -> tuple[Attempt, BackendError | None]:
        """Ask the backend, no longer than the caller is going to wait."""
        left = seconds_left() or 0.0
        limit = asyncio.timeout(left)
        try:
            async with limit:
                return await self._make(request, asked_wait)
        except TimeoutError:
            if not limit.expired():
                raise
            return out_of_time(request, left)

    async def _make(
        self, request: ChatRequest, asked_wait: float | None
    ) -> tuple[Attempt, BackendError | None]:
        """Ask the backend, within the limits of time and of requests in flight."""
        if request.attempt > 1:
            await self._back_off(min(asked_wait or 0.0, request.timeout_s))
        lane = self._lane()
        async with lane.slots:
            watch, attempt = scope().watch, None
            if watch is not None:
                watch.began(request)
            limit, began = lane.limit(request.timeout_s), time.perf_counter()
            try:
                async with limit:
                    reply = await self.backend.chat(request)
                if not isinstance(reply, ChatReply):
                    raise ConfigError(
                        f"{type(self.backend).__name__}.chat returned {type(reply).__name__}; it "
                        "must return ChatReply(text=...)"
                    )
                seconds = time.perf_counter() - began
                attempt = Attempt(request=request, reply=reply, seconds=seconds)
                return attempt, None
            except Exception as error:
                fault = as_backend_error(error, timeout_s=request.timeout_s)
                if fault is None:
                    raise
                fault = no_time_to_retry(fault, left=seconds_left(), timeout_s=request.timeout_s)
                attempt = Attempt(
                    request=request,
                    reply=fault.reply,
                    seconds=time.perf_counter() - began,
                    reason=fault.reason,
                    detail=str(fault),
                    status_code=fault.status_code,
                    retry=fault.retry,
                )
                return attempt, fault
            finally:
                lane.ended(limit)
                if watch is not None:
                    watch.ended(request, attempt, taped=False)

    async def _back_off(self, least_s: float) -> None:
        """Wait before the retry, at least so many seconds."""
        import tenacity  # here, since few runs need it and it takes long to import

        shortest, longest = self.config.retry_wait_s
        wait = tenacity.wait_random_exponential(multiplier=longest, min=shortest, max=longest)
        drawn = wait(tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {}))
        seconds = max(drawn, least_s)
        if seconds > 0:
            await asyncio.sleep(seconds)

    def _lane(self) -> _Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            with self._lock:
                for other in [other for other in self._lanes if other.is_closed()]:
                    del self._lanes[other]
                lane = self._lanes.setdefault(loop, _Lane(self._concurrency))
        return lane


class _Lane:
    """The requests of one event loop: how many at once, and how long each may take.

    One timer serves all of them. Nearly every request ends long before its time, and a timer for
    each, set and taken away again, would cost more than everything else that a limit does.

    Args:
        at_once: how many requests may be in flight.
    """

    def __init__(self, at_once: int) -> None:
        self.slots = asyncio.Semaphore(at_once)
        self._limits: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, seconds: float) -> asyncio.Timeout:
        """Return what ends the work inside it, which begins now, when it takes too long."""
        loop = asyncio.get_running_loop()
        limit, due = asyncio.timeout(None), loop.time() + seconds
        self._limits[limit] = due
        if self._timer is None or due < self._timer.when():
            self._wake_at(due, loop)
        return limit

    def ended(self, limit: asyncio.Timeout) -> None:
        """Forget a limit whose work has ended."""
        del self._limits[limit]

    def _wake_at(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # In no context: the timer outlives its first request, and would keep that one's run alive.
        self._timer = loop.call_at(due, self._end_late_ones, loop, context=Context())

    def _end_late_ones(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        due = []
        for limit, at in self._limits.items():
            if at > loop.time():
                due.append(at)
            elif not limit.expired():
                limit.reschedule(at)  # which has passed: the work is cancelled at once
        if due:
            self._wake_at(min(due), loop)
