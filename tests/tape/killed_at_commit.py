"""A run that ends itself at one boundary of a commit, for ``test_tape_crashes``; its own process.

``python killed_at_commit.py TAPE LOG BOUNDARY`` plays a recorded run and leaves, without any
clean-up, the moment a turn has come to the boundary. ``LOG.paid`` lists the requests that
the model answered, ``LOG.handed_on`` those whose answers came back from the tape.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tape_kit import HashBackend, hash_client, identity, steady_config

from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._recorder import LiveRecorder
from llmsim_lab.types import Attempt, ChatRequest

TURNS = 6
KILLED = 77
"""The status of a process that came to its boundary."""


def armed_turn(boundary: str) -> int:
    """Return the turn in which a run is killed: the first one in which it comes to the boundary."""
    # An answer is written by itself where nothing else waits and all shared texts are there.
    return 5 if "INSERT" in boundary else 2


class Watched:
    """A connection that leaves the process at a boundary, once it is armed.

    Args:
        connection: does the work.
        boundary: ``before BEGIN``, ``before COMMIT`` or ``after COMMIT`` of answers; the latter two
            with ``of the turn`` behind them are of the transaction that writes the turn. Or
            ``before INSERT`` or ``after INSERT`` of an answer that is written by itself.
    """

    def __init__(self, connection: sqlite3.Connection, boundary: str) -> None:
        self.armed = False
        self._connection = connection
        self._boundary = boundary.removesuffix(" of the turn")
        self._table = "turns" if boundary.endswith("turn") else "calls"
        self._written = False

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        mine = sql == "COMMIT" and self._written
        alone = sql.startswith("INSERT INTO calls ") and not self._connection.in_transaction
        if sql.startswith("BEGIN"):
            self._leave_at("before BEGIN")
        if mine:
            self._leave_at("before COMMIT")
        if alone:
            self._leave_at("before INSERT")
        found = self._connection.execute(sql, values)
        if alone:
            self._leave_at("after INSERT")
        if mine:
            self._leave_at("after COMMIT")
            self._written = False
        return found

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> sqlite3.Cursor:
        self._written |= sql.startswith(f"INSERT INTO {self._table} ")
        return self._connection.executemany(sql, rows)

    def _leave_at(self, boundary: str) -> None:
        if self.armed and boundary == self._boundary:
            os._exit(KILLED)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def main(path: Path, log: Path, boundary: str) -> None:
    """Play until the boundary."""
    paid, handed_on = [
        os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT) for name in ("paid", "handed_on")
    ]
    keep = LiveRecorder.keep

    async def keep_and_say(recorder: LiveRecorder, attempt: Attempt) -> Attempt:
        kept = await keep(recorder, attempt)
        os.write(handed_on, f"{identity(kept.request)}\n".encode())
        return kept

    LiveRecorder.keep = keep_and_say  # type: ignore[method-assign]

    def pay(request: ChatRequest) -> None:
        # From here on, since a run that continues first notes on its tape that it does.
        watched.armed = request.site is not None and request.site.turn == armed_turn(boundary)
        os.write(paid, f"{identity(request)}\n".encode())

    client = hash_client(HashBackend(faulty=True, before_answer=pay))
    tape = Tape(path)
    watched = Watched(tape.file._connection, boundary)
    tape.file._connection = watched  # type: ignore[assignment]
    simulation = Simulation(steady_config(turns=TURNS), llm_client=client, tape=tape)
    simulation.run(TURNS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
