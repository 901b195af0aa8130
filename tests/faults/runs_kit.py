"""Runs of each world that ``killed_runs`` has: new, recorded whole, and continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from killed_runs import World
from tape_kit import hash_client

from llmsim_lab.tape import Tape

__all__ = ["TURNS", "new_run", "played_on", "recorded", "states_of"]

TURNS = 3


def new_run(world: World, path: Path, **options: Any) -> Any:
    """Return a run with a tape, before its first turn; options are those of its model."""
    client = hash_client(world.backend(**options))
    return world.cls(**world.parts(), llm_client=client, tape=path)


def recorded(world: World, path: Path) -> Any:
    """Return a run that was played to its end."""
    run = new_run(world, path)
    run.run(TURNS, progress=False)
    run.close()
    return run


def played_on(world: World, path: Path) -> Any:
    """Resume a run and play it to its end."""
    client = hash_client(world.backend())
    with Tape(path) as tape:
        run = world.cls.resume(tape, llm_client=client, **world.again())
        run.run(TURNS - run.turn_number, progress=False)
        run.close()
    return run


def states_of(run: Any) -> list[Any]:
    return [turn.state for turn in run.turns]
