"""How slow a server is: it loads a model, reads a prompt, writes a reply, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """The speed of a server.

    Attributes:
        load_s: how long a model takes to load.
        read_s: how long a token of a prompt takes to be read.
        write_s: how long a token of a reply takes to be written.
        batch: how many tokens are read before the server sees that a client has gone.
    """

    load_s: float = 0.0
    read_s: float = 0.0
    write_s: float = 0.0
    batch: int = 512

    @classmethod
    def seen(cls, second_s: float) -> Throttle:
        """Return the speed of a real server on two busy cores, with seconds as long as this.

        It had a model of 1.5 billion parameters (28 November 2026).
        """
        return cls(load_s=14 * second_s, read_s=second_s / 9, write_s=second_s / 2)


class Runner:
    """What runs the model of a slow server.

    Attributes:
        turn: of the request that is worked on; others wait for it.
        loads: how many times a model was loaded.
        tokens_read: of all prompts, without those that were in the cache.
    """

    def __init__(self, throttle: Throttle) -> None:
        self.turn = asyncio.Lock()
        self.loads = self.tokens_read = 0
        self._throttle = throttle
        self._cache: list[str] = []

    async def load(self) -> None:
        """Load a model; it is dropped where the client goes away meanwhile."""
        self._cache = []
        await asyncio.sleep(self._throttle.load_s)
        self.loads += 1

    async def read(self, prompt: Sequence[str]) -> None:
        """Read the tokens of a prompt that are not in the cache; a batch is read to its end."""
        known = 0
        for token, cached in zip(prompt, self._cache, strict=False):
            if token != cached:
                break
            known += 1
        del self._cache[known:]
        while len(self._cache) < len(prompt):
            batch = prompt[len(self._cache) :][: self._throttle.batch]
            reading = asyncio.ensure_future(asyncio.sleep(len(batch) * self._throttle.read_s))
            try:
                await asyncio.shield(reading)
            finally:
                await reading
                self._cache += batch
                self.tokens_read += len(batch)
