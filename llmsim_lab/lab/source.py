"""What a widget is given, a simulation or a tape, as a simulation."""

from __future__ import annotations

from pathlib import Path

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape
from llmsim_lab.runs import Run
from llmsim_lab.runs._run import load

__all__ = ["Source", "simulation_of"]

Source = Run | Tape | str | Path
"""A simulation, or a tape or its file."""


def simulation_of(source: Source, *, run: int | None = None) -> Run:
    """Return the simulation to show; a tape's run is loaded, not played.

    Args:
        source: a simulation, a tape, or a tape's file, which is opened for reading only.
        run: for a tape, the run's number; the latest if not given.

    Raises:
        ConfigError: it is none of these, or a run was named for a simulation.
        TapeError: the tape cannot be read, or has no such run.
    """
    if isinstance(source, Tape | str | Path):
        loaded: Run = load(source, run)
        return loaded
    if not all(hasattr(source, name) for name in ("step", "turns", "to_frame", "chains")):
        raise ConfigError(
            f"{type(source).__name__} is no simulation and no tape; pass a Simulation, a Tape, or "
            "a tape's file"
        )
    if run is not None:
        raise ConfigError(f"run={run} goes with a tape; a simulation is one run already")
    return source
