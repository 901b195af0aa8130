"""How many requests a server is sent at once, found by trying; and how long each may take."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from llmsim_lab._util.text import estimate_prompt_tokens, roughly
from llmsim_lab.errors import BackendError
from llmsim_lab.llm._debug import log_queued, log_request
from llmsim_lab.types import ChatReply, ChatRequest

if TYPE_CHECKING:
    from llmsim_lab.llm.scope import InFlight

PhaseOf = Callable[[ChatRequest], Awaitable[str | None]]

ASK_EVERY_S = 5.0
"""How often a server that has sent nothing of a reply is asked whether it lives."""
_FIRST = 8
"""How many are sent at once before anything is known of a server."""
_MOST = 64
"""How many are sent at once at most."""
_FEWEST = 8
"""Answers by which a number is judged, at least: fewer say little where they differ in length."""
_GROWTH = 1.2
"""How much faster twice as many at once must be to be worth it."""
_SLOWER = 0.6
"""The share of what a server did below which smaller numbers are tried again."""
_AS_FAST = 0.9
"""The share of a number's speed that half as many must reach to be taken in its place."""
_LOADED_S = 0.5
"""A server that took so long before it began with a request was loading the model."""
_PAUSE = 8
"""Another number is tried when there are an eighth more answers than at the last try."""


class Limits:
    """How many requests are in flight at once: a fixed number, or one that is found.

    It begins with eight, or with as many as the server says that it answers at once, and doubles
    the number as long as the server gets a fifth more done in a second. If the first doubling
    brings nothing, it halves the number as long as the server stays nearly as fast. From time to
    time it tries a larger one again, and smaller ones where the server has become much slower.

    What is done is counted in tokens, since answers differ in length, over the time in which
    something is in flight. A number counts as tried only when so many were in flight; where fewer
    than eight are asked at a time, the search begins with as many as are. Answers to requests that
    were sent before the server had loaded the model are left out; where it does not tell how long
    that took, those to requests that were sent before its first answer.

    Args:
        fixed: the number; None to find it.
        slots: how many the server says that it answers at once; None where it does not.

    Attributes:
        at_once: requests in flight at most, now, on each event loop; usually there is one.
        tokens_per_s: what was measured last with each number that was tried.
    """

    def __init__(
        self,
        fixed: int | None = None,
        *,
        slots: int | None = None,
    ) -> None:
        self.tokens_per_s: dict[int, float] = {}
        self._is_fixed = fixed is not None
        self._lock = threading.Lock()  # event loops on other threads share the number
        self._in_flight = 0
        self._peak = 0
        """The most that were in flight since the number was taken."""
        self._total = 0
        """Answers in all."""
        self._since = 0.0
        self._last_cut = -math.inf
        self._loaded_at = -math.inf
        self._best = fixed or min(slots or _FIRST, _MOST)
        self._may_be_fewer = True
        """Whether smaller numbers than the best one are still to be tried."""
        self._lanes: dict[asyncio.AbstractEventLoop, Lane] = {}
        self.is_away = False
        """Whether the server is waited for, and that was logged."""
        self._try(self._best)

    def lane(self) -> Lane:
        """Return the lane of the event loop that is running."""
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = Lane(self, loop)
            with self._lock:
                # Scripts may use a loop for each run; the lanes of closed ones would pile up.
                lanes = {other: of for other, of in self._lanes.items() if not other.is_closed()}
                # Not changed in place: another thread may be reading it.
                self._lanes = {**lanes, loop: lane}
        return lane

    def began(self, now: float) -> None:
        """Note that a request was sent, at a time in seconds."""
        if self._is_fixed:
            return
        with self._lock:
            # While nothing is in flight the server has nothing to do: that time counts for no
            # number.
            if not self._in_flight:
                self._since = now
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)

    def ended(
        self,
        began: float,
        now: float,
        *,
        tokens: int | None,
        load_s: float = 0.0,
        too_many: bool = False,
    ) -> None:
        """Note that a request has ended.

        Args:
            began: when it was sent.
            now: when it ended.
            tokens: those of the answer, 1 where they are not known, None if there was none.
            load_s: how long the server loaded the model before it began with it; 0 where it does
                not tell.
            too_many: whether the server is sent too much.
        """
        if self._is_fixed:
            return
        with self._lock:
            # The time in which something is in flight, not the sum over requests, which overlap.
            self._busy_s += now - self._since
            self._since = now
            self._in_flight -= 1
            if too_many:
                self._cut(began, now)
            elif tokens is not None:
                self._count(
                    began,
                    now,
                    tokens,
                    load_s,
                )

    def _cut(self, began: float, now: float) -> None:
        """Take a smaller number, since the server has turned a request down."""
        # No more than it has left of a burst: else those turned down meet the same again.
        fewer = max(1, min(self.at_once, self._in_flight))
        if began > self._last_cut:  # one burst does not halve it again and again
            self._last_cut = now
            fewer = min(fewer, max(1, self.at_once // 2))
        if fewer < self.at_once:
            self._keep(fewer)

    def _count(
        self,
        began: float,
        now: float,
        tokens: int,
        load_s: float,
    ) -> None:
        """Count an answer, and judge the number when there are enough."""
        self._total += 1
        # Whatever was sent before the model was loaded waited for that, and says nothing of speed.
        if load_s > _LOADED_S:
            self._loaded_at = max(self._loaded_at, began + load_s)
        # A server that does not tell loads its model, if at all, before its first answer.
        elif self._total == 1 and not load_s:
            self._loaded_at = now
        if began < self._loaded_at:
            self._try(self.at_once, wanted=self._wanted)
            return
        self._answers += 1
        self._tokens += tokens
        if self._answers >= self._wanted:
            self._judge()

    def _try(
        self,
        number: int,
        *,
        wanted: int = 0,
    ) -> None:
        """Count anew, with so many at once, until there are enough answers to judge by."""
        # What few answers decided is looked at again, with twice as many.
        enough = number
        if number in self.tokens_per_s:
            enough = 2 * number
        self.at_once = number
        self._wanted = max(_FEWEST, wanted or enough)
        # Those that were sent under another number go on beside the new ones.
        self._peak = self._in_flight
        self._answers = 0
        self._tokens = 0
        self._busy_s = 0.0

    def _keep(self, number: int) -> None:
        """Take a number as the best one, until it is time to try another."""
        self._best = number
        self._may_be_fewer = False
        # Ever more seldom, as answers add up: to try a number that is worse costs time.
        self._try(
            number,
            wanted=max(4 * number, self._total // _PAUSE),
        )

    def _keep_or_try_fewer(self, number: int) -> None:
        """Take a number as the best one so far."""
        self._best = number
        if self._may_be_fewer and number > 1:
            self._try(number // 2)
        else:
            self._keep(number)

    def _judge(self) -> None:
        """Choose the next number, from what was counted with this one."""
        number = self.at_once
        best = self._best
        rates = self.tokens_per_s
        # Fewer are asked at a time than may be sent: nothing was learnt of the number.
        if self._peak < number:
            if number > best and self._may_be_fewer:
                self._keep_or_try_fewer(best)
            elif number == best and self._may_be_fewer:
                # The search begins with as many as are asked.
                self._best = self._peak
                self._try(self._peak)
            else:
                self._try(number, wanted=self._wanted)
            return
        before = rates.get(number, 0.0)
        # A script answers in no time at all.
        rate = self._tokens / max(self._busy_s, 1e-9)
        rates[number] = rate
        if number < best:
            if rate < _AS_FAST * rates[best]:
                self._keep(best)
            else:
                self._keep_or_try_fewer(number)
        elif number > best and rate < _GROWTH * rates[best]:
            self._keep_or_try_fewer(best)
        elif number == best and rate < _SLOWER * before:
            self._may_be_fewer = True
            self._keep_or_try_fewer(number)
        elif 2 * number > _MOST:
            self._keep(number)
        else:
            # Half as many were slower, so fewer still need not be tried.
            if number > best:
                self._may_be_fewer = False
            self._best = number
            self._try(2 * number)


@dataclass(slots=True, eq=False)
class Sent:
    """A request that ends when its server was silent for too long, or when it took too long.

    Attributes:
        request: what was asked; its ``timeout_s`` is the longest silence.
        first_piece_s: the longest silence before the first piece of the reply; None where the
            backend hands on no pieces.
        total_s: the longest time in all.
        phase_of: the backend's ``phase``.
        watch: is notified of what the server does.
        round: see ``Lane.next_round``; None for a request that follows from no other.
        queued_at: when it began to wait for its turn, if it had to.
        began: when it was sent, by the event loop's clock; None while it waits for its turn.
        at_work_by: by when the server had no earlier request of ours before it, as far as we know.
        seconds: how long it took, once it has ended.
        is_writing: whether a piece of the reply has come.
        phase: what the server did when it was last asked: ``loading`` or ``reading``; empty where
            that is not known.
        fault: why the request was ended from here, if it was.
        cancelled: how often its task had been cancelled before its turn.
    """

    request: ChatRequest
    first_piece_s: float | None
    total_s: float
    phase_of: PhaseOf
    watch: InFlight | None
    round: int | None = None
    queued_at: float | None = None
    began: float | None = None
    at_work_by: float = 0.0
    seconds: float = 0.0
    is_writing: bool = False
    phase: str = ""
    fault: Exception | None = None
    cancelled: int = 0

    @property
    def silence_s(self) -> float:
        """The longest silence of the server, as things are now."""
        if self.first_piece_s is None or self.is_writing:
            return self.request.timeout_s
        return self.first_piece_s

    @property
    def doing(self) -> str:
        """What the server does, or may be doing, while nothing of the reply has come."""
        if self.phase == "loading":
            return "loading"
        tokens = roughly(estimate_prompt_tokens(self.request.prompt))
        if self.phase == "reading":
            return f"reading about {tokens:,} tokens"
        return f"loading or reading about {tokens:,} tokens"

    def lateness(self, *, is_total: bool) -> BackendError:
        """Return the fault of a request whose time is over, in all or without a sign of life."""
        # Each message names the setting that was reached: from the time alone no user can tell.
        if self.first_piece_s is None or self.is_writing:
            if is_total:
                message = (
                    f"no reply within {self.total_s:g} s; raise total_timeout_s, lower max_tokens, "
                    "or use a faster model"
                )
            elif self.is_writing:
                message = (
                    f"the reply stopped: nothing more of it came within {self.silence_s:g} s; "
                    "raise timeout_s, or see whether the server hangs"
                )
            else:
                message = (
                    f"no reply within {self.silence_s:g} s; raise timeout_s or use a faster model"
                )
        elif is_total:
            message = (
                f"no reply within {self.total_s:g} s; raise total_timeout_s, shorten the prompt or "
                f"use a faster model (no piece of it had come: unless the server hangs, it was "
                f"still {self.doing})"
            )
        else:
            message = (
                f"no reply within {self.silence_s:g} s; raise first_piece_s, shorten the prompt or "
                f"use a faster model (no piece of it had come: unless the server hangs, it was "
                f"still {self.doing})"
            )
        return BackendError(message, reason="timeout", retry=True)


class _Queued(NamedTuple):
    """A request that waits to be sent, in the order in which requests are.

    A named tuple, since a queue compares its requests often.
    """

    round: int
    texts: tuple[str, ...]
    number: int
    """No other has it, so what follows is never compared."""
    is_next: asyncio.Future[None]


class Lane:
    """The requests of one event loop: which is sent next, and how long each may take.

    A server keeps what a prompt shares from its start with the one before, and reads the rest. So
    of the requests that wait together the texts decide, and neighbours share the longest starts.
    They are sent in rounds: what comes later waits for what was there before, whatever its text.

    The time of a request is the longest silence while the server works for us. It begins anew with
    each piece of any reply and when another request has ended, for a server that answers one after
    another has not looked at it before: its queue is not charged to the model. Nor is it charged to
    the longest time in all, which begins when those that were sent earlier have ended, unless the
    reply has begun before.

    Before the first piece of a reply the silence may be long, since a server says nothing while it
    loads a model or reads a prompt. Meanwhile it is asked now and then what it does, which it
    answers at once if it lives.

    One timer serves all: most requests end long before their time, and a timer is dear.
    """

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self._limits = limits
        self._loop = loop
        self._size = limits.at_once
        """How many may be in flight, as far as this lane has followed the search."""
        self._free = limits.at_once
        """How many more may be sent now."""
        self._queue: list[_Queued] = []
        self._numbers = count()
        self._round = 0
        """The round that is being sent."""
        self._is_choosing = False
        """Whether those that are next will be chosen in a moment."""
        self._others = 0
        """Tasks beside the one that asked, when they were last counted, less what came since."""
        self._since = 0.0
        """When the server last showed that it lives: no silence begins before."""
        self._in_time: dict[Sent, asyncio.Task[object]] = {}
        self._limited: set[Sent] = set()
        """Those of them whose time is limited in all."""
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self._has_answered = False

    def begin(self, sent: Sent) -> None:
        """Begin a request's turn, and with it its time."""
        began = self._loop.time()
        sent.began = began
        sent.at_work_by = began
        queued_s = 0.0 if sent.queued_at is None else began - sent.queued_at
        log_request(sent.request, queued_s)
        # Of a first try, when the server was away.
        sent.queued_at = None
        sent.is_writing = False
        sent.fault = None
        self._limits.began(began)
        task = asyncio.current_task()
        assert task is not None  # requests are made in tasks
        sent.cancelled = task.cancelling()
        self._in_time[sent] = task
        if sent.total_s < math.inf:
            self._limited.add(sent)
        self._look_at(began + min(sent.silence_s, sent.total_s, ASK_EVERY_S))

    def end(
        self,
        sent: Sent,
        *,
        reply: ChatReply | None = None,
        error: BaseException | None = None,
    ) -> Exception | None:
        """End a request's turn, and let others have theirs.

        Args:
            sent: the request.
            reply: what was answered, if anything was.
            error: what it ended with otherwise.

        Returns:
            Why it was ended from here, if it was: its time was over, or its server has gone.
        """
        self._in_time.pop(sent, None)
        self._limited.discard(sent)
        if self._asking is not None and not self._in_time:
            self._asking.cancel()  # nothing waits for what the server does
        now = self._loop.time()
        self._since = now
        began = now if sent.began is None else sent.began
        sent.seconds = now - began
        # These alone have a limit in all. To look at each of sixty in flight would cost more than
        # the rest of a call.
        for other in self._limited:
            # A server that answers one after another has not looked at it before.
            if other.began is not None and other.began >= began and not other.is_writing:
                other.at_work_by = now
        if reply is not None:
            self._has_answered = True
            tokens = reply.reply_tokens or 1
            self._limits.ended(
                began,
                now,
                tokens=tokens,
                load_s=reply.load_seconds,
            )
        else:
            too_many = isinstance(error, BackendError) and error.status_code in (429, 503)
            self._limits.ended(
                began,
                now,
                tokens=None,
                too_many=too_many,
            )
        # The number may have become much smaller: each that ends then gives up its own place.
        change = max(-1, self._limits.at_once - self._size)
        self._size += change
        self._free += 1 + change
        if self._queue:
            self._choose_soon()
        # The usual case: neither late nor is its server gone.
        if sent.fault is None:
            return None
        # As ``asyncio.timeout`` does it, which takes long where nothing is late.
        task = asyncio.current_task()
        assert task is not None  # the one that ``begin`` saw
        is_ended_from_here = task.uncancel() <= sent.cancelled
        # Without an error it was late, and not to be stopped.
        if is_ended_from_here and isinstance(error, asyncio.CancelledError):
            return sent.fault
        return None

    @property
    def next_round(self) -> int:
        """The round of a request that comes now.

        What follows from its answer may be sent in the same round, beside it.
        """
        return self._round + 1

    def takes_at_once(self, sent: Sent) -> bool:
        """Return True for a request that is next at once, since none can come at the same time.

        That saves two steps of the loop, which cost as much as the rest of a call.
        """
        # Tasks are looked at all together, and so not again before as many requests have come.
        if self._others > 0:
            self._others -= 1
            return False
        # With something in flight its answer may lead to others, which this one has to be compared
        # with.
        if self._free < 1 or self._queue or self._in_time:
            return False
        self._others = len(asyncio.all_tasks(self._loop)) - 1
        if self._others > 0:
            return False
        self._free -= 1
        self._round = max(self._round, self._round_of(sent))
        return True

    def _round_of(self, sent: Sent) -> int:
        """Return the round in which a request is sent."""
        return self.next_round if sent.round is None else sent.round

    async def turn_of(self, sent: Sent) -> None:
        """Wait until it is this request's turn to be sent."""
        request = sent.request
        sent.queued_at = self._loop.time()
        if len(self._queue) >= self._free:
            log_queued(request, self._limits.at_once)
        texts = (request.model, *[message.content for message in request.messages])
        is_next = self._loop.create_future()
        queued = _Queued(
            self._round_of(sent),
            texts,
            next(self._numbers),
            is_next,
        )
        heapq.heappush(self._queue, queued)
        self._choose_soon()
        try:
            await is_next
        except asyncio.CancelledError:
            if not is_next.cancelled():  # it had just been chosen
                self._free += 1
                self._choose_soon()
            raise

    def _choose_soon(self) -> None:
        """Send what is next once others have come that are asked at the same time."""
        if self._queue and self._free > 0 and not self._is_choosing:
            self._is_choosing = True
            # Two steps of the loop: code that got an answer starts tasks in the first, which ask
            # in the second.
            self._loop.call_soon(
                self._loop.call_soon,
                self._choose,
                context=Context(),
            )

    def _choose(self) -> None:
        """Send the requests that are next, as many as may be sent."""
        self._is_choosing = False
        while self._queue and self._free > 0:
            queued = heapq.heappop(self._queue)
            # Its caller may have given up while it waited.
            if not queued.is_next.cancelled():
                self._round = max(self._round, queued.round)
                self._free -= 1
                queued.is_next.set_result(None)

    def _look_at(self, due: float) -> None:
        """See that requests which are late then are ended."""
        if self._timer is not None:
            # Not asked of the timer: in a browser's Python it does not know.
            if self._looks_at <= due:
                return
            self._timer.cancel()
        self._looks_at = due
        # In an empty context: the timer outlives its request, whose context would keep the run.
        # Not at once: where the loop was held up, some of their replies have just come.
        self._timer = self._loop.call_at(
            due,
            self._loop.call_soon,
            self._look,
            context=Context(),
        )

    def _look(self) -> None:
        """End the requests that are late, and see to it that a silent server is asked."""
        self._timer = None
        now = self._loop.time()
        for sent in list(self._in_time):  # which changes as they are ended
            began = sent.began or now
            # Whichever comes first decides what the message advises.
            over_at = sent.at_work_by + sent.total_s
            silent_at = max(began, self._since) + sent.silence_s
            due = min(over_at, silent_at)
            if due <= now:
                self._end(sent, sent.lateness(is_total=over_at < silent_at))
            else:
                self._look_at(due)
        silent = [sent for sent in self._in_time if not sent.is_writing]
        if not silent:
            return
        ask_at = max(silent[0].began or now, self._asked_at) + ASK_EVERY_S
        if ask_at <= now:
            if self._asking is None or self._asking.done():
                self._asked_at = now
                self._asking = self._loop.create_task(self._ask_phase(silent))
            ask_at = now + ASK_EVERY_S
        self._look_at(ask_at)

    async def _ask_phase(self, silent: Sequence[Sent]) -> None:
        """Ask the server, once for each model, what it does for requests that have no reply."""
        by_model: dict[str, list[Sent]] = {}
        for sent in silent:
            by_model.setdefault(sent.request.model, []).append(sent)
        for same in by_model.values():
            latest = same[-1]
            try:
                phase: object = latest.phase_of(latest.request)
                if inspect.isawaitable(phase):  # a backend of one's own may have a plain method
                    phase = await phase
            except Exception as error:  # noqa: BLE001 - raised where the replies are awaited
                for sent in same:
                    self._end(sent, error)
                continue
            if phase is None:  # a backend that does not know
                continue
            # What has answered before is loaded, unless others use the server with other settings.
            if not phase and self._has_answered:
                phase = "reading"
            for sent in same:
                sent.phase = str(phase)
                if sent.watch is not None and not sent.is_writing:
                    sent.watch.noted(sent.request, sent.doing)

    def _end(self, sent: Sent, fault: Exception) -> None:
        """End a request, unless it has ended meanwhile."""
        # Cancelled as ``asyncio.timeout`` does it; ``end`` makes the fault of it.
        task = self._in_time.pop(sent, None)
        if task is not None:
            sent.fault = fault
            task.cancel()

    def heard(self, sent: Sent, piece: str) -> None:
        """Note a piece of a reply; an empty one only says that the server works."""
        self._since = self._loop.time()
        if not piece:
            return
        if sent.watch is not None:
            sent.watch.wrote(sent.request, piece)
        if not sent.is_writing:
            sent.is_writing = True
            self._look_at(self._since + sent.silence_s)
