"""The scope of a model call: the run that it belongs to, who watches it, what it may cost.

A run sets the scope for the tasks that it starts, and a client reads it. So agents, validators and
engines need not pass it on. It is the package's only context variable.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, model_validator

from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import brief
from llmsim_lab.errors import BackendError, BudgetReached, ConfigError
from llmsim_lab.llm._seeds import seed_from
from llmsim_lab.tape.recorder import Recorder, Unrecorded
from llmsim_lab.types import Attempt, CallRecord, CallSite, ChatReply, ChatRequest

_MAX_TEXT_CHARS = 2_000
"""The most characters of an unfinished reply that are kept for watchers."""


@lru_cache(maxsize=4096, typed=True)  # typed, since 1, 1.0 and True are equal
def _as_json(*values: object) -> str:
    """Return values as JSON has them in a list, without the brackets."""
    return json.dumps(values)[1:-1]


class CallLog:
    """The calls of one turn, as the run itself records them.

    Args:
        run: the run's name, for messages.
        turn: the turn that is being played.
        purse: limits the turn's requests; None for no limit.
        sampling: the run's seed and replicate, from which each call's sampling seed follows; None
            leaves the seed to the server.
    """

    def __init__(
        self,
        run: str,
        turn: int,
        purse: Purse | None,
        *,
        sampling: tuple[int, int] | None,
    ) -> None:
        self.run = run
        self.turn = turn
        self.purse = purse
        self.closed = False
        self._sampled = ""
        """The common part of the turn's sampling seeds; empty if there are none."""
        if sampling is not None:
            self._sampled = _as_json(*sampling, turn)
        # The number of calls that each place has made, and the calls under way, by identity.
        self._drawn: dict[tuple[object, ...], int] = {}
        self._calls: list[CallRecord] = []
        self._under_way: dict[int, ChatRequest] = {}

    def begin(self, request: ChatRequest) -> int | None:
        """Record that a call begins; return its sampling seed, or None to leave it to the server.

        The seed follows from the run's seed and replicate, the turn, who asks and for what, and the
        number of earlier calls of this place. It does not depend on the prompt and the model: two
        runs that differ only in those draw the same numbers.

        Raises:
            ConfigError: the turn is over.
        """
        # Also if the run has continued, and the next turn has a log of its own.
        if self.closed:
            raise ConfigError(
                f"{caller(request.site)} made a call for turn {self.turn} of {self.run!r}, which "
                "is over: a task was left running. Await every task in the turn that starts it, as "
                "in await asyncio.gather(...)"
            )
        # By identity, since two equal questions are two calls. The request is kept alive here:
        # otherwise another request might get the same identity.
        self._under_way[id(request)] = request
        if not self._sampled or "seed" in request.options:
            return None
        site = request.site
        place: tuple[object, ...] = (None,)
        if site is not None:
            place = (site.component, site.agent, site.replicate)
        before = self._drawn.get(place, 0)
        self._drawn[place] = before + 1
        # Recorded seeds follow from this text: with one more blank, no run would repeat.
        return seed_from(f"[{self._sampled}, {_as_json(*place)}, {before}]")

    def end(self, request: ChatRequest, call: CallRecord) -> None:
        """Record the outcome of a call that began; a call without an attempt is not listed."""
        self._under_way.pop(id(request), None)
        # A call that ends after its turn is not part of it; ``close`` has raised an error for that.
        if call.history and not self.closed:
            self._calls.append(call)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls that have ended, in the order of their ends."""
        return tuple(self._calls)

    def close(self) -> tuple[CallRecord, ...]:
        """End the turn; returns its calls, in the order in which their first answers came.

        Raises:
            ConfigError: a call is still under way.
        """
        self.closed = True
        if self._under_way:
            request = next(iter(self._under_way.values()))
            raise ConfigError(
                f"turn {self.turn} of {self.run!r} ended while a call of {caller(request.site)} is "
                "still under way; await every call in the turn that makes it"
            )
        # A tape numbers attempts in the order of their answers. In a replay all answers come at
        # once, but the calls must have the same order.
        return tuple(sorted(self._calls, key=lambda call: call.history[0].number or 0))


def caller(site: CallSite | None) -> str:
    """Return who makes a call, for messages."""
    if site is None:
        return "plain code"
    if not site.agent:
        return site.component
    if site.component == "player":
        return site.agent
    return f"{site.component} of {site.agent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the current task's calls belong to.

    Attributes:
        recorder: records the calls, or answers them from a recording.
        log: lists the calls of the turn.
        watch: is notified of each request.
        deadline: when the caller gives up, seconds of ``time.monotonic``. The client ends a call
            that takes longer, with its retry, and records it as failed.
        late: the message of the error for a call that passes the deadline.
        round: the round in which requests that belong together are sent; None for the next one.
        asker: the user for whom tools are looked up.
        driver: a token of the code that plays the run; only that code may play its next turn.
        counted: True if a progress line counts the work already.
        stand_in: answers each request instead of the model, for instance in a plan that counts
            calls.
        judge: reads a person's answer as the reply, or raises what is wrong with it.
        for_people: what a person is shown instead of the prompt; empty for the prompt itself.
        answerer: the person who is asked; empty if the call's site says it.
    """

    recorder: Recorder = field(default_factory=Unrecorded)
    log: CallLog | None = None
    watch: InFlight | None = None
    deadline: float | None = None
    late: str = "no reply, and the caller waits no longer"
    round: int | None = None
    asker: str | None = None
    driver: object = None
    counted: bool = False
    stand_in: Callable[[ChatRequest], ChatReply] | None = None
    judge: Callable[[ChatReply], object] | None = None
    for_people: str = ""
    answerer: str = ""


_scope: ContextVar[Scope] = ContextVar("llmsim_lab_scope", default=Scope())  # noqa: B039 - frozen


scope = _scope.get
"""Returns what the current task's calls belong to."""


@contextmanager
def scoped(**changes: Any) -> Iterator[None]:
    """Change values of ``Scope`` for calls made inside, and in tasks started inside."""
    # Reset by its token, since scopes are nested, and a task copies the scope that it starts in.
    token = _scope.set(replace(_scope.get(), **changes))
    try:
        yield
    finally:
        # A task that never ended is closed in the context of the code that closes it, or of the
        # garbage collector, where this scope never was.
        with suppress(ValueError):
            _scope.reset(token)


@dataclass(kw_only=True)
class Waiting:
    """A request that is waited for, with the latest part of its reply.

    ``since`` is in seconds of ``time.monotonic``; ``site`` is None for a call outside a run.
    ``doing`` is what the server does before the reply begins, if that is known, such as ``reading
    about 870 tokens``.
    """

    site: CallSite | None
    attempt: int
    since: float
    text: str = ""
    model: str = ""
    doing: str = ""

    @property
    def seconds(self) -> float:
        """The seconds since the request was sent."""
        return time.monotonic() - self.since

    def __str__(self) -> str:
        return caller(self.site)


class InFlight:
    """Lists the requests that are waited for, and counts those that ended; any thread may read it.

    A client calls ``asked``, ``began``, ``noted``, ``wrote``, ``failed``, ``ended`` and
    ``recorded`` on the thread that makes the request. A subclass must keep them quick and raise
    nothing: an exception would end the call.

    Attributes:
        finished: the number of requests that ended, with or without success, live or from a tape.
    """

    def __init__(self) -> None:
        # By identity, here and below, since equal requests are separate ones.
        self._queued: set[int] = set()
        self._waiting: dict[int, Waiting] = {}
        self.finished = 0

    def asked(self, request: ChatRequest) -> None:
        """Record that a request waits to be sent; not called for answers from a tape."""
        self._queued.add(id(request))

    def began(self, request: ChatRequest) -> None:
        """Record that a request was sent; not called for answers from a tape."""
        self._queued.discard(id(request))
        # By identity: equal requests are two.
        self._waiting[id(request)] = Waiting(
            site=request.site,
            attempt=request.attempt,
            since=time.monotonic(),
            model=request.model,
        )

    def wrote(self, request: ChatRequest, piece: str) -> None:
        """Record a piece of the reply; only backends that stream call this."""
        entry = self._waiting.get(id(request))
        if entry is not None:  # its request may have ended meanwhile
            # Only the end of the text, since a lab shows it several times a second.
            entry.text = (entry.text + piece)[-_MAX_TEXT_CHARS:]
            entry.doing = ""

    def noted(self, request: ChatRequest, doing: str) -> None:
        """Record what the server does before its reply begins."""
        entry = self._waiting.get(id(request))
        if entry is not None:
            entry.doing = doing

    def failed(self, request: ChatRequest, fault: BackendError) -> None:
        """Record why a request failed that is about to end."""

    def ended(self, request: ChatRequest) -> None:
        """Record the end of a request that was sent; for others, nothing."""
        self._queued.discard(id(request))
        if self._waiting.pop(id(request), None) is not None:
            self.finished += 1

    def recorded(self) -> None:
        """Record that a tape answered a request."""
        self.finished += 1

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """The requests that are waited for, the longest wait first."""
        return tuple(self._waiting.values())

    @property
    def under_way(self) -> int:
        """The number of requests that are waited for, or that wait to be sent."""
        return len(self._waiting) + len(self._queued)


class Budget(Settings):
    """What ``run()`` may spend on live calls before it stops; answers from a tape cost nothing.

    Tokens are counted by the server; if a server reports none, they are not limited.

    Attributes:
        calls: the number of requests to a model, with repeated ones.
        tokens: the tokens of prompts and replies together.

    Raises:
        ConfigError: neither is limited.
    """

    calls: Annotated[int, Field(ge=1)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> Budget:
        if self.calls is None and self.tokens is None:
            raise ConfigError("a Budget limits something: Budget(calls=500), or tokens=")
        return self


class Purse:
    """The rest of a budget while a run spends it.

    Attributes:
        calls: the number of requests that began.
        tokens: the tokens of the requests that were answered.
        refusal: why a request was not made, or None. With a refusal the turn does not count, even
            if its code handled the error.
    """

    def __init__(self, budget: Budget) -> None:
        if not isinstance(budget, Budget):
            # True is an int as well.
            is_count = type(budget) is int and 0 < budget < 1_000_000
            number = budget if is_count else 500
            raise ConfigError(f"budget={brief(budget)} is no Budget; write Budget(calls={number})")
        self.budget = budget
        self.calls = 0
        self.tokens = 0
        self.refusal: BudgetReached | None = None

    def check(self) -> None:
        """Raise BudgetReached if no further request may be made.

        The tokens of a request are known with its answer, so requests in flight together can
        exceed the limit.
        """
        calls = self.budget.calls
        tokens = self.budget.tokens
        if calls is not None and self.calls >= calls:
            raise BudgetReached(
                f"the budget of {calls:,} calls is spent; resume the run with another budget to "
                "continue"
            )
        if tokens is not None and self.tokens >= tokens:
            raise BudgetReached(
                f"the budget of {tokens:,} tokens is spent; resume the run with another budget to "
                "continue"
            )

    def begin(self) -> None:
        """Count a request that is about to be made.

        Raises:
            BudgetReached: the budget is spent.
        """
        try:
            self.check()
        except BudgetReached as refusal:
            # Kept, since an agent's own ``except`` may treat it as a failed call.
            self.refusal = refusal
            raise
        self.calls += 1

    def end(self, attempt: Attempt) -> None:
        """Count the tokens of a request."""
        reply = attempt.reply
        if reply is not None:
            # Tokens that a server does not report are not limited, as ``Budget`` says.
            self.tokens += (reply.prompt_tokens or 0) + (reply.reply_tokens or 0)
