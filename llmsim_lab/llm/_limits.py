"""How many requests a server is sent at once, found by trying; and how long each may take."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextvars import Context
from typing import Literal

from llmsim_lab.types import Attempt

_MOST = 64
_GROWTH = 1.2
"""How much faster twice as many at once must be to be worth it."""
_SLOWER = 0.6
"""A server that does less than this share of what it did is sent fewer, if it does as much then."""
_LOADED_ANEW_S, _LOADINGS, _SOON_S = 1.0, 3, 60.0
"""A model that was loaded for so long, for so many answers in a row, each asked for so soon after
the one before it, is in other hands in between."""
_PAUSE = 8
"""A larger number is tried again when there are an eighth more answers than at the last try."""


class Limits:
    """How many requests are in flight at once: a given number, or one that is found.

    It begins with one and doubles the number as long as the server gets a fifth more done in a
    second, then keeps the best, and tries a larger one again from time to time. What is done is
    counted in tokens, since answers differ in length, over the time in which something is in
    flight; and a number counts as tried only when so many requests were in flight: a run that asks
    two agents at a time says nothing about four. The first answer is left out, since a server may
    load the model for it.

    The number holds for each event loop that the client is used on; usually there is one.

    Args:
        given: a fixed number; None to find one.

    Attributes:
        at_once: requests in flight at most, now.
        answers_per_s: what was measured last with each number that was tried.
    """

    def __init__(self, given: int | None = None) -> None:
        self.answers_per_s: dict[int, float] = {}
        self._tokens_per_s: dict[int, float] = {}
        self._given = given
        self._lock = threading.Lock()  # event loops on other threads share the number
        self._in_flight, self._since = 0, 0.0
        self._before_cut = 0
        """Those in flight that were sent before the server said that it was too much."""
        self._warm = False
        self._phase: Literal["rising", "holding", "falling"] = "rising"
        self._total = 0
        self._count_with(given or 1, wanted=1)

    def _count_with(self, number: int, *, wanted: int) -> None:
        """Count anew, with so many at once, until there are enough answers to judge by."""
        self.at_once, self._wanted = number, wanted
        self._answers = self._tokens = self._peak = 0
        self._busy_s = 0.0

    def began(self, now: float) -> None:
        """Note that a request was sent, at a time in seconds."""
        if self._given is not None:
            return
        with self._lock:
            if not self._in_flight:
                self._since = now
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)

    def ended(self, now: float, *, tokens: int | None, too_many: bool = False) -> None:
        """Note that a request has ended.

        Args:
            now: the time, seconds.
            tokens: of the answer, 1 where they are not known; None if there was no answer.
            too_many: whether the server said that it is sent too much.
        """
        if self._given is not None:
            return
        with self._lock:
            self._busy_s += now - self._since
            self._since = now
            self._in_flight -= 1
            sent_before_cut = self._before_cut > 0
            self._before_cut = max(0, self._before_cut - 1)
            if too_many:
                if not sent_before_cut:  # else the same burst would cut it again and again
                    self._before_cut = self._in_flight
                    self._hold(max(1, self.at_once // 2))
            elif tokens is not None and not self._warm:
                self._warm = True
                self._count_with(1, wanted=1)
            elif tokens is not None:
                self._answers += 1
                self._tokens += tokens
                self._total += 1
                if self._answers >= self._wanted:
                    self._judge()

    def _judge(self) -> None:
        """Choose the next number, from what was counted with this one."""
        tried = self.at_once
        if self._peak < tried:  # nobody needs so many: nothing was learnt
            self._count_with(tried, wanted=self._wanted)
            return
        before = self._tokens_per_s.get(tried)
        self.answers_per_s[tried] = self._answers / max(self._busy_s, 1e-9)
        rate = self._tokens_per_s[tried] = self._tokens / max(self._busy_s, 1e-9)
        if self._phase == "holding":
            if tried > 1 and before is not None and rate < _SLOWER * before:
                # The server has less time for us than when this number was found.
                self._phase = "falling"
                self._count_with(tried // 2, wanted=tried)
            elif tried < _MOST:
                # The first way up was quick; what few answers decided is looked at again.
                self._phase = "rising"
                self._count_with(2 * tried, wanted=4 * tried)
            else:
                self._hold(tried)
        elif self._phase == "falling":
            if rate * _GROWTH < self._tokens_per_s[2 * tried]:
                self._hold(2 * tried)
            elif tried == 1:
                self._hold(1)
            else:
                self._count_with(tried // 2, wanted=tried)
        elif tried > 1 and rate < _GROWTH * self._tokens_per_s.get(tried // 2, 0.0):
            self._hold(tried // 2)
        elif tried == _MOST:
            self._hold(tried)
        else:
            self._count_with(2 * tried, wanted=2 * tried)

    def _hold(self, number: int) -> None:
        self._phase = "holding"
        self._count_with(number, wanted=max(4 * number, self._total // _PAUSE))

    def __repr__(self) -> str:
        if self._given is not None:
            return f"<{self.at_once} at once, fixed>"
        rates = sorted(self._tokens_per_s.items())  # by which the number is chosen
        tried = ", ".join(f"{n}: {rate:,.{0 if rate >= 10 else 1}f}" for n, rate in rates)
        return f"<{self.at_once} at once; tokens/s by number: {tried or 'none yet'}>"


class Loads:
    """How often in a row a server had to load the model before it answered."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._since = -_SOON_S
        """When the last answer had come, on the clock of ``note``."""
        self._told = False

    def note(self, began: float, ended: float, seconds: float) -> list[float]:
        """Note an answer; return the times of loading where it is time to tell of them, once.

        Args:
            began: when it was asked for, seconds.
            ended: when it had come.
            seconds: how long the model was loaded for it.
        """
        # Requests sent at once all wait for one loading, and an idle model is unloaded.
        one_after_another = self._since <= began <= self._since + _SOON_S
        self._since = max(self._since, ended)
        if seconds < _LOADED_ANEW_S:
            self._seconds.clear()
        elif one_after_another or not self._seconds:
            self._seconds.append(seconds)
        if self._told or len(self._seconds) < _LOADINGS:
            return []
        self._told = True
        return self._seconds


class Sent:
    """A request in flight, which the lane's timer ends when its time is over.

    It does what ``asyncio.timeout`` does, in a third of the time.
    """

    __slots__ = ("_cancelling", "_task", "due", "is_late", "seconds")

    def __init__(self, due: float, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "requests are made in tasks"
        # Somebody else may have cancelled the task before: that is not this one's to take back.
        self._task, self._cancelling = task, task.cancelling()
        self.due, self.seconds, self.is_late = due, seconds, False

    def end(self) -> None:
        """Cancel the work, whose time is over; ``take_back`` must follow."""
        self.is_late = True
        self._task.cancel()

    def take_back(self) -> None:
        """Take the cancellation back, once the work has ended."""
        self._task.uncancel()

    @property
    def only_late(self) -> bool:
        """True if it was cancelled since its time was over, and by nobody else."""
        return self.is_late and self._task.cancelling() <= self._cancelling + 1


class Lane:
    """The requests of one event loop: who is sent next, and how long each may take.

    The time of a request begins when the last of those sent before it has ended, for a server that
    answers one after another has not looked at it before: its queue is not charged to the model.

    One timer serves all requests. Nearly every request ends long before its time, and a timer for
    each, set and taken away again, would cost more than everything else that a limit does.
    """

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._limits = limits
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sent: dict[Sent, None] = {}
        """Those in flight, in the order of sending."""
        self._since = 0.0
        """The time of none begins before this."""
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, seconds: float) -> Sent:
        """Wait until a request may be sent, which must follow at once, and then ``leave``.

        Args:
            seconds: how long the request may take.
        """
        if not self._waiting and self._in_flight < self._limits.at_once:
            self._in_flight += 1
        else:
            turn: asyncio.Future[None] = self.loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it had just been let in: somebody else may go
                    self._let_in()
                raise
        now = self.loop.time()
        self._limits.began(now)
        sent = Sent(now + seconds, seconds)
        self._sent[sent] = None
        if self._timer is None or sent.due < self._timer.when():
            self._wake_at(sent.due)
        return sent

    def _let_in(self) -> None:
        """Let those who wait be sent, as many as may be now that one is not in flight any more."""
        self._in_flight -= 1
        while self._waiting and self._in_flight < self._limits.at_once:
            turn = self._waiting.popleft()
            if not turn.done():  # else it was cancelled
                self._in_flight += 1
                turn.set_result(None)

    def leave(self, sent: Sent, attempt: Attempt | None) -> None:
        """Note that a request has ended; the time of those sent later begins anew.

        Args:
            sent: the request, as ``enter`` gave it.
            attempt: what became of it; None if it was cancelled or the backend broke.
        """
        if sent.is_late:
            sent.take_back()
        now = self.loop.time()
        reply = attempt.reply if attempt is not None else None
        self._limits.ended(
            now,
            tokens=None if reply is None else reply.reply_tokens or 1,
            too_many=attempt is not None and attempt.status_code in (429, 503),
        )
        if sent is next(iter(self._sent)):  # as nearly always: all others were sent later
            self._since = now
        else:
            sent_later = False
            for other in self._sent:
                if sent_later:
                    other.due = now + other.seconds
                sent_later = sent_later or other is sent
        del self._sent[sent]
        self._let_in()

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # In an empty context: the timer outlives its first request, whose context would keep
        # that one's run alive.
        self._timer = self.loop.call_at(due, self._end_late_ones, context=Context())

    def _end_late_ones(self) -> None:
        self._timer = None
        due = []
        for sent in self._sent:
            at = max(sent.due, self._since + sent.seconds)
            if at > self.loop.time():
                due.append(at)
            elif not sent.is_late:
                sent.end()
        if due:
            self._wake_at(min(due))
