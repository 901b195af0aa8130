"""A run that ends itself at one boundary of a write, for ``test_tape_crashes``; its own process.

``python killed_at_write.py TAPE LOG WHEN KIND`` plays a recorded run and leaves, without any
clean-up, before, amid or after the write of a line of turn 2. ``LOG.paid`` lists the requests that
the model answered, ``LOG.handed_on`` those whose answers came back from the tape.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tape_kit import HashBackend, hash_client, identity, steady_config

from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._recorder import LiveRecorder
from llmsim_lab.types import Attempt, ChatRequest

TURNS = 4
TURN = 2
"""The one in which the run is killed."""
KILLED = 77
"""The status of a process that came to its boundary."""


def main(path: Path, log: Path, when: str, kind: str) -> None:
    """Play until the boundary."""
    write = os.write
    paid, handed_on = [
        os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT) for name in ("paid", "handed_on")
    ]
    line = b'{"run":1,"is":"%b","turn":%d,' % (kind.encode(), TURN)

    def write_or_leave(fd: int, data: bytes) -> int:
        is_it = data.startswith(line)
        if is_it and when != "after":
            write(fd, data[: len(data) // 2] if when == "amid" else b"")
            os._exit(KILLED)
        size = write(fd, data)
        if is_it:
            os._exit(KILLED)
        return size

    keep = LiveRecorder.keep

    def keep_and_say(recorder: LiveRecorder, attempt: Attempt) -> Attempt:
        kept = keep(recorder, attempt)
        write(handed_on, f"{identity(kept.request)}\n".encode())
        return kept

    def pay(request: ChatRequest) -> None:
        write(paid, f"{identity(request)}\n".encode())

    LiveRecorder.keep = keep_and_say  # type: ignore[method-assign, assignment]
    os.write = write_or_leave  # type: ignore[assignment]
    client = hash_client(HashBackend(faulty=True, before_answer=pay))
    Simulation(steady_config(turns=TURNS), llm_client=client, tape=path).run(TURNS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
