"""How many requests a server is sent at once, found by trying; and how long each may take."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from llmsim_lab.errors import BackendError
from llmsim_lab.types import ChatReply

_MOST = 64
_GROWTH, _SLOWER = 1.2, 0.6
"""How much faster twice as many at once must be to be worth it; and the share of what a server did
below which it is sent fewer."""
_PAUSE = 8
"""Another number is tried when there are an eighth more answers than at the last try."""


class Limits:
    """How many requests are in flight at once: a fixed number, or one that is found.

    It begins with one and doubles the number as long as the server gets a fifth more done in a
    second, then keeps the best. From time to time it tries a larger one again; where the server has
    become much slower it goes one step back. What is done is counted in tokens, since answers
    differ in length, over the time in which something is in flight; a number counts as tried only
    when so many were in flight; and the first answer is left out, since a server may load the model
    for it.

    Attributes:
        at_once: requests in flight at most, now, on each event loop; usually there is one.
        tokens_per_s: what was measured last with each number that was tried.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self.tokens_per_s: dict[int, float] = {}
        self._is_fixed = fixed is not None
        self._lock = threading.Lock()  # event loops on other threads share the number
        self._in_flight = self._peak = self._total = 0
        self._best, self._since, self._last_cut = 1, 0.0, -math.inf
        self._lanes: dict[asyncio.AbstractEventLoop, Lane] = {}
        self.is_away = False
        """Whether the server is waited for, and that was logged."""
        self._try(fixed or 1, wanted=1)

    def lane(self) -> Lane:
        """Return the lane of the event loop that is running."""
        loop = asyncio.get_running_loop()
        if (lane := self._lanes.get(loop)) is None:
            with self._lock:
                # Scripts may use a loop for each run; the lanes of closed ones would pile up.
                self._lanes = {it: its for it, its in self._lanes.items() if not it.is_closed()}
                lane = self._lanes[loop] = Lane(self, loop)
        return lane

    def began(self, now: float) -> None:
        """Note that a request was sent, at a time in seconds."""
        if self._is_fixed:
            return
        with self._lock:
            if not self._in_flight:
                self._since = now
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)

    def ended(
        self, began: float, now: float, *, tokens: int | None, too_many: bool = False
    ) -> None:
        """Note that a request has ended.

        ``tokens`` are those of the answer, 1 where they are not known, None if there was none;
        ``too_many`` says that the server is sent too much.
        """
        if self._is_fixed:
            return
        with self._lock:
            self._busy_s += now - self._since
            self._since = now
            self._in_flight -= 1
            if too_many and began > self._last_cut:  # one burst does not cut it again and again
                self._last_cut = now
                self._keep(max(1, self.at_once // 2))
            elif tokens is not None:
                self._total += 1
                self._answers += 1
                self._tokens += tokens
                if self._total == 1:
                    self._try(1, wanted=1)
                elif self._answers >= self._wanted:
                    self._judge()

    def _try(self, number: int, *, wanted: int) -> None:
        """Count anew, with so many at once, until there are enough answers to judge by."""
        self.at_once, self._wanted, self._peak = number, wanted, 0
        self._answers, self._tokens, self._busy_s = 0, 0, 0.0

    def _keep(self, number: int) -> None:
        """Take a number as the best one, until it is time to try another."""
        self._best = number
        self._try(number, wanted=max(4 * number, self._total // _PAUSE))

    def _judge(self) -> None:
        """Choose the next number, from what was counted with this one."""
        number, best, rates = self.at_once, self._best, self.tokens_per_s
        if self._peak < number:  # fewer are asked at a time: nothing was learnt
            self._try(number, wanted=self._wanted)
            return
        before, rates[number] = rates.get(number, 0.0), self._tokens / max(self._busy_s, 1e-9)
        if number > best and rates[number] < _GROWTH * rates[best]:
            self._keep(best)
        elif number == best and rates[number] < _SLOWER * before:
            self._keep(max(1, number // 2))
        elif 2 * number > _MOST:
            self._keep(number)
        else:
            self._best = number
            # The first way up is quick; what few answers decided is looked at again.
            self._try(2 * number, wanted=2 * number * (2 if 2 * number in rates else 1))


@dataclass(slots=True, eq=False)
class Sent:
    """A request that ends when the server was silent for so many seconds, or it took too long.

    Attributes:
        began: when it was sent, by the event loop's clock; None while it waits for its turn.
        seconds: how long it took, once it has ended.
    """

    timeout_s: float
    total_s: float
    began: float | None = None
    seconds: float = 0.0


class Lane:
    """The requests of one event loop: who is sent next, and how long each may take.

    The time of a request is the longest silence while the server works for us. It begins anew with
    each piece of any reply and when another request has ended, for a server that answers one after
    another has not looked at it before: its queue is not charged to the model.

    One timer serves all: most requests end long before their time, and a timer is dear.
    """

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self._limits, self._loop = limits, loop
        self._size, self._free = limits.at_once, asyncio.Semaphore(limits.at_once)
        self._since = 0.0  # the time of none begins before this
        self._in_time: dict[Sent, asyncio.Task[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def send(
        self, sent: Sent, ask: Callable[..., Awaitable[ChatReply]], *what: Any
    ) -> ChatReply:
        """Ask when it is this request's turn.

        Raises:
            TimeoutError: its time is over.
        """
        await self._free.acquire()
        began = sent.began = self._loop.time()
        self._limits.began(began)
        tokens, too_many = None, False
        task: Any = asyncio.current_task()
        cancelled = task.cancelling()
        try:
            self._in_time[sent] = task
            self._look_at(began + min(sent.timeout_s, sent.total_s))
            reply = await ask(*what)
            if sent not in self._in_time:  # late, and not to be stopped
                task.uncancel()
            tokens = reply.reply_tokens or 1
            return reply
        except BaseException as error:
            too_many = isinstance(error, BackendError) and error.status_code in (429, 503)
            # As ``asyncio.timeout`` does it, which takes long where nothing is late.
            is_late = sent not in self._in_time and task.uncancel() <= cancelled
            if is_late and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from None
            raise
        finally:
            self._in_time.pop(sent, None)
            now = self._since = self._loop.time()
            sent.seconds = now - began
            self._limits.ended(began, now, tokens=tokens, too_many=too_many)
            change = max(-1, self._limits.at_once - self._size)
            self._size += change
            for _ in range(1 + change):
                self._free.release()

    def _look_at(self, due: float) -> None:
        """See that requests which are late then are ended."""
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        # In an empty context: the timer outlives its request, whose context would keep the run.
        # Not at once: where the loop was held up, some of their replies have just come.
        self._timer = self._loop.call_at(due, self._loop.call_soon, self._late, context=Context())

    def _late(self) -> None:
        self._timer, now = None, self._loop.time()
        for sent in [*self._in_time]:
            began = sent.began or now
            due = min(max(began, self._since) + sent.timeout_s, began + sent.total_s)
            if due <= now:
                self._in_time.pop(sent).cancel()
            else:
                self._look_at(due)

    def heard(self, *_: object) -> None:
        """Note that the server works: a piece of a reply has come."""
        self._since = self._loop.time()
