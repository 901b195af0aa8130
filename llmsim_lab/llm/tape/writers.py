"""One writer at a time: who records a run enters it there, and whoever comes second hears of it."""

from __future__ import annotations

import json
import os
import socket
import weakref

from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.info import loads
from llmsim_lab.llm.tape.tape import Tape

__all__ = ["claim"]

_CLOCK_STEP_S = 2.0

_here: dict[tuple[str, int], weakref.ref[object]] = {}


def claim(tape: Tape, run: int, holder: object) -> weakref.finalize[[Tape, int, str], object]:
    """Enter this process as the run's writer; returns what gives the run back.

    Args:
        tape: the tape.
        run: the run.
        holder: who writes; the run is given back when it is gone.

    Raises:
        TapeError: somebody else writes to this run, or there is no such run.
    """
    me = json.dumps(
        {"host": socket.gethostname(), "pid": os.getpid(), "since": _since(os.getpid())}
    )
    place = (str(tape.path.resolve()), run)
    with tape.transaction() as connection:
        row = connection.execute("SELECT writer FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise TapeError(f"the tape {tape.path} has no run {run}")
        _refuse_if_taken(row[0], me, place)
        connection.execute("UPDATE runs SET writer = ? WHERE id = ?", (me, run))
    _here[place] = weakref.ref(holder)
    return weakref.finalize(holder, _give_back, tape, run, me)


def _refuse_if_taken(writer: str | None, me: str, place: tuple[str, int]) -> None:
    path, run = place
    if writer is None:
        return
    if writer == me:
        other_holder = _here.get(place)
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
    now = _since(pid)
    # Setting the clock moves the times at which processes seem to have started.
    return now is not None and isinstance(since, int | float) and abs(now - since) < _CLOCK_STEP_S


def _since(pid: int) -> float | None:
    """Return when a process started, or None if it is gone: numbers of processes are used again."""
    import psutil  # here, since it takes long to import

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _give_back(tape: Tape, run: int, me: str) -> None:
    if json.loads(me)["pid"] != os.getpid():
        return  # a forked child has a copy of what its parent still writes with
    _here.pop((str(tape.path.resolve()), run), None)
    # If it cannot be written, the entry names this process and dies with it.
    tape.write_when_possible("UPDATE runs SET writer = NULL WHERE id = ? AND writer = ?", (run, me))
