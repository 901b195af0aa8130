"""Open pages, and how they are told that something changed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

_POLL_S = 10.0
_PING_S = 15.0
"""Proxies cut connections that are silent for 30 to 60 s."""
_SOON_S = 0.4
"""For how long other people's news are collected; one's own are shown at once."""
_SPREAD_S = 0.02
"""A turn's questions come one after the other within milliseconds: together they are one news."""


@dataclass(eq=False)
class RoomStream:
    """One open page.

    Attributes:
        is_moved: another tab took its place.
    """

    is_moved: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _urgent: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self, *, urgent: bool) -> None:
        """Have the view made again; on the server's loop.

        Args:
            urgent: it is this viewer's own; what others did can wait a little.
        """
        self._changed.set()
        if urgent:
            self._urgent.set()

    async def wait(self) -> bool:
        """Wait for news; return False if there are none for a while."""
        try:
            async with asyncio.timeout(_PING_S):
                await self._changed.wait()
        except TimeoutError:
            return False
        # In a group of two hundred each answer is news to all: 40,000 views a turn, else.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SOON_S):
                await self._urgent.wait()
        self._changed.clear()
        self._urgent.clear()
        return True


@dataclass(eq=False)
class Viewer:
    """Whoever has pages open: a participant, the teacher, the projector.

    Attributes:
        streams: the open pages, oldest first.
        most_streams: a browser opens six connections to a server in all of its tabs; with more
            streams than three, what a page posts would wait for ever.
    """

    streams: list[RoomStream] = field(default_factory=list, init=False)
    most_streams: int = field(default=3, init=False)
    _polled_at: float = field(default=-_POLL_S, init=False)

    @property
    def is_online(self) -> bool:
        """Whether a page is open and in sight; hidden ones close their stream."""
        since_s = time.monotonic() - self._polled_at
        return bool(self.streams) or since_s < _POLL_S

    def polled(self) -> None:
        """Note a page that asks again and again, where a proxy holds its stream back."""
        self._polled_at = time.monotonic()

    def add(self, stream: RoomStream) -> None:
        """Add a page, in place of the oldest if there are too many."""
        while len(self.streams) >= self.most_streams:
            oldest = self.streams.pop(0)
            oldest.is_moved = True
            oldest.wake(urgent=True)
        self.streams.append(stream)

    def remove(self, stream: RoomStream) -> None:
        """Remove a page, which may be gone already."""
        # ``add`` took it out, if another tab has its place.
        if stream in self.streams:
            self.streams.remove(stream)


class NewsDesk:
    """Collects whom news concern, from any thread, and wakes the server's loop once for all.

    A wake-up for each person and answer writes 120,000 times to the loop's pipe in three turns of
    two hundred people.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[Viewer, bool] = {}
        self._call: Callable[[Callable[[], object]], object] | None = None

    def open(self, call: Callable[[Callable[[], object]], object]) -> None:
        """Spread news from now on.

        Args:
            call: runs something on the server's loop.
        """
        with self._lock:
            # A room that was closed before its last news were spread: left here, they would look
            # as if a wake-up were still to come, and no later news would ask for one.
            self._due = {}
            self._call = call

    def tell(
        self,
        viewers: Iterable[Viewer],
        *,
        urgent: bool = False,
    ) -> None:
        """Wake the pages of viewers, soon."""
        # Nobody looks before there is a server; each page shows everything when it is opened.
        if self._call is None:
            return
        with self._lock:
            is_first = not self._due
            # Urgent once is urgent: a later one that can wait does not put it off.
            for viewer in viewers:
                self._due[viewer] = urgent or self._due.get(viewer, False)
            wakes = is_first and bool(self._due)
        if wakes:
            self._call(self._spread_soon)

    def _spread_soon(self) -> None:
        asyncio.get_running_loop().call_later(_SPREAD_S, self._spread)

    def _spread(self) -> None:
        # Taken before anybody is woken: what changes from now on wakes the loop again.
        with self._lock:
            due = self._due
            self._due = {}
        for viewer, urgent in due.items():
            for stream in viewer.streams:
                stream.wake(urgent=urgent)
