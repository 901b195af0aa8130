"""Open pages, and how they learn that something has changed."""

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
"""How long news about other people are collected; a viewer's own are shown at once."""
_SPREAD_S = 0.02
"""How long news are collected: the questions of a turn come within milliseconds."""

_BEGAN_AT = time.time() - time.monotonic()


def clock() -> float:
    """Return the time, seconds since 1970, as if nobody set the machine's clock meanwhile.

    A clock that is put forward by an hour would else end all questions at once, and one that is put
    back would let them wait an hour longer.
    """
    return _BEGAN_AT + time.monotonic()


@dataclass(eq=False)
class RoomStream:
    """One open page.

    Attributes:
        is_moved: True if another tab took its place.
    """

    is_moved: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _urgent: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self, *, urgent: bool) -> None:
        """Let the view be made again; called on the server's loop.

        Args:
            urgent: True for the viewer's own news; other people's can wait a little.
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
        # In a group of two hundred, each answer is news to all: otherwise 40,000 views a turn.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SOON_S):
                await self._urgent.wait()
        self._changed.clear()
        self._urgent.clear()
        return True


@dataclass(eq=False)
class Viewer:
    """A person with open pages: a participant, the teacher, or whoever runs the projector.

    Attributes:
        streams: the open pages, oldest first.
        most_streams: the most pages. A browser opens six connections to a server in all its tabs
            together; with more than three streams, posts would wait for ever.
    """

    streams: list[RoomStream] = field(default_factory=list, init=False)
    most_streams: int = field(default=3, init=False)
    _polled_at: float = field(default=-_POLL_S, init=False)

    @property
    def is_online(self) -> bool:
        """True if a page is open and in sight; hidden pages close their streams."""
        since_s = time.monotonic() - self._polled_at
        return bool(self.streams) or since_s < _POLL_S

    def polled(self) -> None:
        """Record a request of a page that polls, because a proxy holds its stream back."""
        self._polled_at = time.monotonic()

    def add(self, stream: RoomStream) -> None:
        """Add a page; if there are too many, the oldest ends."""
        while len(self.streams) >= self.most_streams:
            oldest = self.streams.pop(0)
            oldest.is_moved = True
            oldest.wake(urgent=True)
        self.streams.append(stream)

    def remove(self, stream: RoomStream) -> None:
        """Remove a page, which may be gone already."""
        # ``add`` may have removed it for another tab.
        if stream in self.streams:
            self.streams.remove(stream)


class NewsDesk:
    """Collects the viewers with news, from any thread, and wakes the server's loop once for all.

    To wake it for each person and each answer would write 120,000 times to the loop's pipe, in
    three turns of two hundred people.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[Viewer, bool] = {}
        self._call: Callable[[Callable[[], object]], object] | None = None

    def open(self, call: Callable[[Callable[[], object]], object]) -> None:
        """Spread news from now on.

        Args:
            call: runs a function on the server's loop.
        """
        with self._lock:
            # A room that was closed may have left news here. They would look as if the loop were to
            # wake soon, and no later news would wake it.
            self._due = {}
            self._call = call

    def tell(
        self,
        viewers: Iterable[Viewer],
        *,
        urgent: bool = False,
    ) -> None:
        """Wake the pages of viewers, soon."""
        # Without a server there are no pages; a page shows everything when it is opened.
        if self._call is None:
            return
        with self._lock:
            is_first = not self._due
            # News stay urgent, even if later ones could wait.
            for viewer in viewers:
                self._due[viewer] = urgent or self._due.get(viewer, False)
            wakes = is_first and bool(self._due)
        if wakes:
            self._call(self._spread_soon)

    def _spread_soon(self) -> None:
        asyncio.get_running_loop().call_later(_SPREAD_S, self._spread)

    def _spread(self) -> None:
        # Taken first, so that later news wake the loop again.
        with self._lock:
            due = self._due
            self._due = {}
        for viewer, urgent in due.items():
            for stream in viewer.streams:
                stream.wake(urgent=urgent)
