"""One writer at a time: who writes to a run, and whether that process is still there."""

from __future__ import annotations

import socket
import weakref

from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.codec import loads

__all__ = ["check_free", "holders", "started_at"]

_CLOCK_STEP_S = 2.0

holders: dict[tuple[str, int], weakref.ref[object]] = {}


def check_free(writer: str | None, me: str, place: tuple[str, int]) -> None:
    """Check that a run may be written to, or changed.

    Args:
        writer: its entry on the tape.
        me: this process's entry, if it is to become the writer.
        place: the tape's path and the run's number.

    Raises:
        TapeError: somebody else writes to it.
    """
    path, run = place
    if writer is None:
        return
    if writer == me:
        other_holder = holders.get(place)
        if other_holder is not None and other_holder() is not None:
            raise TapeError(
                f"run {run} on {path} is being recorded by another simulation of this process; "
                "go on with that one, or close() it"
            )
        return
    other = loads(writer, f"the writer of run {run}")
    if not (isinstance(other, dict) and isinstance(other.get("pid"), int)):
        raise TapeError(
            f"the writer of run {run} on the tape {path} is damaged; if nobody records it, "
            f"Tape({path!r}).release({run})"
        )
    if other.get("host") != socket.gethostname():
        raise TapeError(
            f"run {run} on {path} is being recorded on {other.get('host')} (process "
            f"{other['pid']}); fork it, or, if that process is surely gone, "
            f"Tape({path!r}).release({run})"
        )
    if _is_alive(other["pid"], other.get("since")):
        raise TapeError(
            f"run {run} on {path} is being recorded by process {other['pid']}; "
            "end that one first, or fork the run"
        )


def _is_alive(pid: int, since: object) -> bool:
    now = started_at(pid)
    # Setting the clock moves the times at which processes seem to have started.
    return now is not None and isinstance(since, int | float) and abs(now - since) < _CLOCK_STEP_S


def started_at(pid: int) -> float | None:
    """Return when a process started, or None if it is gone: numbers of processes are used again."""
    import psutil  # here, since it takes long to import

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None
