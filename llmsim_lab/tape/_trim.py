"""Removing runs from a tape, whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llmsim_lab.errors import TapeError
from llmsim_lab.tape._codec import RunInfo
from llmsim_lab.tape._file import SHARED, TapeFile
from llmsim_lab.tape._ledger import check_free


def prune(file: TapeFile, runs: Collection[int], known: Iterable[RunInfo]) -> None:
    """Remove runs from a tape for good; see ``Tape.prune``.

    Args:
        file: the tape's.
        runs: the runs' numbers.
        known: all runs on the tape.
    """
    for info in known:
        if info.parent is not None and info.parent in runs and info.id not in runs:
            both = sorted({info.parent, info.id})
            options = " ".join(f"--run {run}" for run in both)
            raise TapeError(
                f"run {info.parent} cannot be taken off {file.path}: run {info.id}, a {info.verb} "
                f"of it, would lose what it came from; name both: {options} (in Python, "
                f"runs={both})"
            )
    these = f"({', '.join(map(str, sorted(runs)))})"
    with file.transaction() as connection:
        for run in sorted(runs):
            row = connection.execute("SELECT writer FROM runs WHERE id = ?", (run,)).fetchone()
            check_free(row["writer"], file.path, run)
        for table in ("turns", "calls", "tallies"):
            connection.execute(f"DELETE FROM {table} WHERE run IN {these}")
        connection.execute(f"DELETE FROM runs WHERE id IN {these}")
        [before] = connection.execute("SELECT value FROM meta WHERE key = 'pruned'").fetchone()
        pruned = " ".join(map(str, sorted({*map(int, str(before).split()), *runs})))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'pruned'", (pruned,))
        connection.execute(f"DELETE FROM texts WHERE id NOT IN ({SHARED})")
    file.compact()
