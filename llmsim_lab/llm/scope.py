"""The scope of a model call: the run it belongs to, who watches it, what it may cost.

A run sets the scope for the tasks that it starts, and a client reads it, so that agents, validators
and engines need not pass it on. It is the package's one context variable.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, model_validator

from llmsim_lab._util.config import Settings
from llmsim_lab.errors import BackendError, BudgetReached, ConfigError
from llmsim_lab.llm._seeds import seed_from
from llmsim_lab.tape.recorder import Recorder, Unrecorded
from llmsim_lab.types import Attempt, CallRecord, CallSite, ChatReply, ChatRequest

_MAX_TEXT_CHARS = 2_000
"""How much of a reply that is being written is kept for those who watch."""


@lru_cache(maxsize=4096, typed=True)  # typed, since 1, 1.0 and True are equal
def _as_json(*values: object) -> str:
    """Return values as JSON has them in a list, without its brackets."""
    return json.dumps(values)[1:-1]


class CallLog:
    """The calls of one turn, as the run itself records them.

    Args:
        run: the run's name, for messages.
        turn: the turn being played.
        purse: what limits its requests, if anything does.
        sampling: the run's seed and replicate, from which each call's sampling seed follows; None
            leaves it to the server.
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
        """What the sampling seeds of the turn have in common; empty where there are none."""
        if sampling is not None:
            self._sampled = _as_json(*sampling, turn)
        # How many calls each place has made, and by identity those that have not ended.
        self._drawn: dict[tuple[object, ...], int] = {}
        self._calls: list[CallRecord] = []
        self._under_way: dict[int, ChatRequest] = {}

    def begin(self, request: ChatRequest) -> int | None:
        """Record that a call begins; return its sampling seed, None to leave that to the server.

        The seed follows from the run's seed and replicate, the turn, who asks what for, and how
        many calls this place made before. What is asked, and of which model, is not in it: two runs
        that differ in those alone draw the same numbers.

        Raises:
            ConfigError: the turn is over.
        """
        # Also where the run has gone on, and the next turn has a log of its own.
        if self.closed:
            raise ConfigError(
                f"{caller(request.site)} made a call for turn {self.turn} of {self.run!r}, which "
                "is over: a task was left running. Await every task in the turn that starts it, as "
                "in await asyncio.gather(...)"
            )
        # By identity: two equal questions are two calls.
        # Kept alive here: else another request might get the same identity.
        self._under_way[id(request)] = request
        if not self._sampled or "seed" in request.options:
            return None
        site = request.site
        place: tuple[object, ...] = (None,)
        if site is not None:
            place = (site.component, site.agent, site.replicate)
        before = self._drawn.get(place, 0)
        self._drawn[place] = before + 1
        # These words are what recorded seeds follow from: another blank, and no run repeats.
        return seed_from(f"[{self._sampled}, {_as_json(*place)}, {before}]")

    def end(self, request: ChatRequest, call: CallRecord) -> None:
        """Record the outcome of a call that began; one without an attempt is not listed."""
        self._under_way.pop(id(request), None)
        # A call that ends after its turn is not part of it; ``close`` has raised an error for it.
        if call.history and not self.closed:
            self._calls.append(call)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls that have ended, in that order."""
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
        # A tape numbers attempts as their answers arrived. In a replay all answers come at once,
        # yet its calls must have the same order.
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
        recorder: records them, or answers from what is recorded.
        log: lists them, for the turn.
        watch: is notified of each request.
        deadline: when the caller gives up, seconds of ``time.monotonic``: the client itself ends a
            call that takes longer, its retry included, and records it as failed.
        late: the error's words for a call that passes the deadline.
        round: in which requests are sent that belong together; None for the next one.
        asker: for whom tools are looked up.
        driver: what plays the run, turn by turn; only that may play its next turn.
        counted: whether a line on the screen counts the work already.
        stand_in: answers each request in place of the model, which is asked nothing, as where a
            plan counts calls.
        judge: reads an answer of a person as the reply that is asked for, or raises what is wrong.
        for_people: what a person is shown in place of the prompt; empty for the prompt itself.
        answerer: which person is asked; empty where the call's site says it.
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
    """Change values of ``Scope`` for calls made inside, also by tasks started there."""
    # Set back by its token: scopes lie in one another, and tasks copy the one they start in.
    token = _scope.set(replace(_scope.get(), **changes))
    try:
        yield
    finally:
        _scope.reset(token)


@dataclass(kw_only=True)
class Waiting:
    """A request that is being waited for, since when, and the end of what is written of its reply.

    ``since`` is in seconds of ``time.monotonic``; ``site`` is None for a call outside a run.
    ``doing`` is what the server does while nothing comes, where that is known, such as ``reading
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
        """How long it has been waited for until now."""
        return time.monotonic() - self.since

    def __str__(self) -> str:
        return caller(self.site)


class InFlight:
    """Lists what is being waited for and counts what is done; may be read from any thread.

    A client calls ``asked``, ``began``, ``noted``, ``wrote``, ``failed``, ``ended`` and
    ``recorded`` on the thread that makes the request. In a subclass they must be quick and raise
    nothing: an exception ends the call.

    Attributes:
        finished: requests that came to an end, good or bad, live or from a tape.
    """

    def __init__(self) -> None:
        # By identity, as below: equal requests are several.
        self._queued: set[int] = set()
        self._waiting: dict[int, Waiting] = {}
        self.finished = 0

    def asked(self, request: ChatRequest) -> None:
        """Record that a request waits for its turn to be sent; not called for answers of a tape."""
        self._queued.add(id(request))

    def began(self, request: ChatRequest) -> None:
        """Record that the backend is being asked; not called for answers from a tape."""
        self._queued.discard(id(request))
        # By identity: equal requests are two.
        self._waiting[id(request)] = Waiting(
            site=request.site,
            attempt=request.attempt,
            since=time.monotonic(),
            model=request.model,
        )

    def wrote(self, request: ChatRequest, piece: str) -> None:
        """Record a piece of the reply; only of backends that stream, and not of every reply."""
        entry = self._waiting.get(id(request))
        if entry is not None:  # its request may have ended meanwhile
            # The end of it alone: a lab shows it again several times a second.
            entry.text = (entry.text + piece)[-_MAX_TEXT_CHARS:]
            entry.doing = ""

    def noted(self, request: ChatRequest, doing: str) -> None:
        """Record what the server does, of whose reply nothing has come yet."""
        entry = self._waiting.get(id(request))
        if entry is not None:
            entry.doing = doing

    def failed(self, request: ChatRequest, fault: BackendError) -> None:
        """Record why a request failed that is about to end."""

    def ended(self, request: ChatRequest) -> None:
        """Record the end of a request that began; of one that was never sent, nothing."""
        self._queued.discard(id(request))
        if self._waiting.pop(id(request), None) is not None:
            self.finished += 1

    def recorded(self) -> None:
        """Record that a tape answered a request."""
        self.finished += 1

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """What is being waited for, the longest wait first."""
        return tuple(self._waiting.values())

    @property
    def under_way(self) -> int:
        """How many requests are waited for or wait to be sent."""
        return len(self._waiting) + len(self._queued)


class Budget(Settings):
    """What ``run()`` may spend on live calls before it stops; what a tape answers costs nothing.

    Tokens are those that the server reports; a server that reports none is not limited by them.

    Attributes:
        calls: requests to a model, repeated ones included.
        tokens: of prompts and replies together.

    Raises:
        ConfigError: nothing is limited.
    """

    calls: Annotated[int, Field(ge=1)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> Budget:
        if self.calls is None and self.tokens is None:
            raise ConfigError("a Budget limits something: Budget(calls=500), or tokens=")
        return self


class Purse:
    """What is left of a budget while a run spends it.

    Attributes:
        calls: requests begun.
        tokens: used by those that were answered.
        refusal: why a request was not made, or None; then the turn does not count, even if its code
            handled the error.
    """

    def __init__(self, budget: Budget) -> None:
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
            # Kept, since an agent's own ``except`` may take it for a call that failed.
            self.refusal = refusal
            raise
        self.calls += 1

    def end(self, attempt: Attempt) -> None:
        """Count what a request used."""
        reply = attempt.reply
        if reply is not None:
            # What a server does not report is not limited, as ``Budget`` says.
            self.tokens += (reply.prompt_tokens or 0) + (reply.reply_tokens or 0)
