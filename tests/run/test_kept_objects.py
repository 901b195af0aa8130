"""What a run keeps in memory."""

from __future__ import annotations

import gc

from builders import make_simulation


async def test_a_run_keeps_few_objects_for_each_call() -> None:
    # Each is one more for the collector to walk over whenever it passes over everything.
    run = make_simulation(names=("Aland", "Borduria", "Syldavia"))
    for _ in range(3):
        await run.step()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(10):
        await run.step()
    gc.collect()
    calls = sum(len(turn.calls) for turn in run.turns[-10:])
    assert (len(gc.get_objects()) - before) / calls < 14
