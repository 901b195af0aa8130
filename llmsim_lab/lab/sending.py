"""A form sent by a click, once what was written in it just before has arrived."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import ipywidgets as w

from llmsim_lab.concurrency import background_loop
from llmsim_lab.lab.widget import settled

__all__ = ["Sendings"]


class Sendings:
    """Sends forms, each once for however many clicks until it has settled.

    A loop of its own waits for that, since the page's may be held up by a cell.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[None]] = {}

    def send_soon(
        self, name: str, fields: Sequence[w.ValueWidget], send: Callable[[], object]
    ) -> None:
        """Have a form sent when its fields have settled, from any thread.

        Args:
            name: the form's.
            fields: what is written in it.
            send: does it, on the waiting loop.
        """
        with self._lock:
            before = self._under_way.get(name)
            if before is None or before.done():
                work = self._send_settled(fields, send)
                self._under_way[name] = asyncio.run_coroutine_threadsafe(work, background_loop())

    @staticmethod
    async def _send_settled(fields: Sequence[w.ValueWidget], send: Callable[[], object]) -> None:
        await settled(*fields)
        send()

    async def idle(self) -> None:
        """Wait until what was clicked is sent."""
        for sending in list(self._under_way.values()):
            await asyncio.wrap_future(sending)
