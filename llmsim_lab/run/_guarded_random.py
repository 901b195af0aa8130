"""Random numbers that only one task may draw."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from llmsim_lab.errors import ConfigError


class GuardedRandom(Random):
    """Random numbers for one task: a second task that draws from them gets an error.

    With two tasks, the one whose answer comes first would draw first. A replay waits for no answer,
    so there the order would be another. All methods of ``Random`` draw through the two that are
    overridden here.

    Args:
        seed: what the numbers follow from.
        call: the code that returns this generator, such as ``ask.rng``, for messages.
    """

    def __init__(self, seed: str, call: str) -> None:
        self._call = call
        self._owner: asyncio.Task[Any] | None = None
        super().__init__(seed)

    def _check(self) -> None:
        task = current_task()
        # The first task that draws becomes the owner.
        self._owner = self._owner or task
        if task is None or self._owner is not task:
            raise ConfigError(
                f"{self._call} is used by two tasks or threads, whose order may change; draw "
                "before the await, or give each player its own: ask.rng_for(name)"
            )

    def random(self) -> float:
        self._check()
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        self._check()
        return super().getrandbits(k)


def current_task() -> asyncio.Task[Any] | None:
    """Return the task that is running; None on a thread without a loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
