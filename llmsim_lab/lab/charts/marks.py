"""What happened to runs and when: shocks, interventions, forks, numbered for the chart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmsim_lab.lab.charts.tracks import Ensemble, Track

__all__ = ["Mark", "marks_of"]

_TURN = re.compile(r"(^|; )turn \d+: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something at one turn.

    Attributes:
        number: on the chart, 1 for the earliest.
        turn: when.
        text: what, in words.
        runs: to whom.
        fork: whether a run branches off here.
    """

    number: int
    turn: int
    text: str
    runs: tuple[str, ...]
    fork: bool = False


def marks_of(
    items: Sequence[Track | Ensemble], branches: Iterable[tuple[int, str, str]]
) -> tuple[Mark, ...]:
    """Return the marks of runs, earliest first; what several runs share is one mark.

    Args:
        items: the runs.
        branches: turn, the run that branches off there, and the one it comes from.
    """
    found: dict[tuple[int, bool, str], list[str]] = {}
    for turn, name, parent in branches:
        found.setdefault((turn, True, f"fork of {parent}"), []).append(name)
    for item in items:
        for track in item.members if isinstance(item, Ensemble) else [item]:
            for row in track.rows:
                text = row.get("interventions")
                if isinstance(text, str) and text:
                    names = found.setdefault((int(row["turn"]), False, _TURN.sub(r"\1", text)), [])
                    if item.name not in names:
                        names.append(item.name)
    ordered = sorted(found.items(), key=lambda pair: pair[0][:2])
    return tuple(
        Mark(number=number, turn=turn, text=text, runs=tuple(names), fork=fork)
        for number, ((turn, fork, text), names) in enumerate(ordered, 1)
    )
