"""A run and the forks that were made of it, one of them looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmsim_lab.text import clip, printable

if TYPE_CHECKING:
    from llmsim_lab.runs._run import Run

__all__ = ["RunList"]

_LONGEST_NAME = 40


class RunList:
    """A run and its forks, in the order in which they were made.

    Args:
        original: the run.

    Attributes:
        place: which one is looked at, 0 for the original.
    """

    def __init__(self, original: Run) -> None:
        self._runs = [original]
        self._origins = ["the original"]
        self.place = 0

    @property
    def shown(self) -> Run:
        """The run that is looked at."""
        return self._runs[self.place]

    @property
    def forks(self) -> list[Run]:
        """All but the original."""
        return self._runs[1:]

    def add(self, fork: Run, turn: int) -> None:
        """Take in a fork of the run that is looked at, and look at it.

        Args:
            fork: the new run.
            turn: the turn it goes on from.
        """
        parent = f"fork {self.place}" if self.place else "the original"
        self._runs.append(fork)
        self._origins.append(f"fork {len(self._runs) - 1} of {parent} at turn {turn}")
        self.place = len(self._runs) - 1

    def name_of(self, run: Run) -> str:
        """Return a run's name with where it came from and its number on the tape."""
        place = next(place for place, item in enumerate(self._runs) if item is run)
        name = clip(printable(run.config.name, keep="\n"), _LONGEST_NAME)
        parts = [name] if place == 0 else [name, self._origins[place]]
        if run.run_id is not None:
            parts.append(f"run {run.run_id} on its tape")
        return ", ".join(parts)

    def options(self) -> tuple[tuple[str, int], ...]:
        """Return names and places as a dropdown takes them."""
        return tuple((self.name_of(run), place) for place, run in enumerate(self._runs))
