"""Check a tape while a widget goes on: is it whole, and does each run follow from its calls?

The work is done in a thread on a connection of its own, so that neither the event loop nor whoever
writes to the tape has to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmsim_lab.errors import LabError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.tape import verify
from llmsim_lab.llm.tape._verify import Finding
from llmsim_lab.runs import replay

__all__ = ["Checked", "check_tape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check came to.

    Attributes:
        findings: what is wrong; nothing if the tape is sound.
        same: how many runs were replayed to the recorded turns.
    """

    findings: tuple[Finding, ...]
    same: int


async def check_tape(path: Path, *, on_run: Callable[[int, int], object]) -> Checked:
    """Return what is wrong with a tape, and how many of its runs came out as recorded.

    Where the tape itself is damaged no run is replayed. Experiments on runs are no runs, and a
    redacted run cannot be replayed.

    Args:
        path: the tape.
        on_run: called before each run is replayed, with its number and how many runs there are.
    """
    findings, runs = await asyncio.to_thread(_verified, path)
    same = 0
    for run in runs:
        on_run(run, len(runs))
        found = await asyncio.to_thread(_replayed, path, run)
        findings += found
        same += not found
    return Checked(findings=tuple(findings), same=same)


def _verified(path: Path) -> tuple[list[Finding], list[int]]:
    with Tape(path, read_only=True) as tape:
        findings = verify(tape)
        runs = [
            info.id
            for info in tape.runs()
            if info.verb != "experiment" and not info.manifest.get("redacted")
        ]
        return findings, [] if findings else runs


def _replayed(path: Path, run: int) -> list[Finding]:
    with Tape(path, read_only=True) as tape:
        try:
            replay(tape, run)
        except LabError as error:
            return [Finding(what=f"it cannot be replayed: {error}", run=run)]
    return []
