"""Play a number of turns, watched, with a pause between any two: what a stepper's clicks start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from llmsim_lab.llm._scope import InFlight, watching
from llmsim_lab.text import clip, printable

if TYPE_CHECKING:
    from llmsim_lab.runs._run import Run
    from llmsim_lab.runs._turn import RunTurn

__all__ = ["Playing", "waiting_text"]

_MOST_NAMED = 3


class Playing:
    """So many turns of a run, one after the other. Called again, it goes on with those left.

    Args:
        simulation: the run.
        turns: how many.
        on_tick: called as each turn begins, and then at every tick, with this object.
        on_turn: called with each whole turn.
        tick_s: how often, seconds.

    Attributes:
        played: the whole turns, in order.
        calls: the model calls of the turn under way.
    """

    def __init__(
        self,
        simulation: Run,
        turns: int,
        *,
        on_tick: Callable[[Playing], None],
        on_turn: Callable[[RunTurn], None],
        tick_s: float = 1.0,
    ) -> None:
        self.simulation = simulation
        self.turns = turns
        self.played: list[RunTurn] = []
        self.calls = InFlight()
        self._on_tick = on_tick
        self._on_turn = on_turn
        self._tick_s = tick_s
        self._began = time.perf_counter()
        self._pausing = False

    @property
    def seconds(self) -> float:
        """Since it was called last."""
        return time.perf_counter() - self._began

    @property
    def pausing(self) -> bool:
        """Whether it stops after the turn under way."""
        return self._pausing

    def pause(self) -> None:
        """Stop after the turn under way; from any thread."""
        self._pausing = True

    async def __call__(self) -> None:
        """Play the turns that are left."""
        self._began = time.perf_counter()
        self._pausing = False
        ticker = asyncio.create_task(self._tick())
        try:
            while len(self.played) < self.turns and not self._pausing:
                self.calls = InFlight()
                self._on_tick(self)
                with watching(self.calls):
                    turn = await self.simulation.step()
                self.played.append(turn)
                self._on_turn(turn)
                # Instant turns would keep all else from happening.
                await asyncio.sleep(0)
        finally:
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            self._on_tick(self)


def waiting_text(calls: InFlight) -> str:
    """Say whose calls are being waited for, for how long, and what has been answered so far."""
    waiting = calls.waiting
    parts = []
    if waiting:
        names = [
            clip(printable(str(call)), 60) + (" (second attempt)" if call.attempt > 1 else "")
            for call in waiting[:_MOST_NAMED]
        ]
        more = f" and {len(waiting) - _MOST_NAMED} more" if len(waiting) > _MOST_NAMED else ""
        parts.append(f"waiting {waiting[0].seconds:.0f} s for {', '.join(names)}{more}")
    if calls.finished:
        done = f"{calls.finished} answered"
        if calls.taped:
            done += f" ({calls.taped} from the tape)"
        if calls.faulty:
            done += f", {calls.faulty} failed"
        parts.append(f"{done}, {calls.tokens:,} tokens")
    return " · ".join(parts)
