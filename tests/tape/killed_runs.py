"""A run that is killed again and again, for ``test_tape_crashes``; a process of its own.

``python killed_runs.py FOLDER SEED KILLS`` forks a child that begins or resumes the run and kills
it after a random time, so many times over, then lets one child finish. The model writes a line to
``paid.log``, down to the disk, for each answer, before it gives it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from tape_kit import HashBackend, hash_client, identity, steady_config

from llmsim_lab.llm import Tape
from llmsim_lab.run import resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._recorder import LiveRecorder
from llmsim_lab.types import Attempt, ChatRequest

TURNS = 12
LONGEST_LIFE_S = 0.25
NATIONS = ["Aland", "Borduria", "Cimmeria", {"name": "Syldavia", "kind": "taylor"}]


def play(folder: Path, life: int) -> None:
    """Begin the run, or go on with it, and play it to its end."""
    log = os.open(folder / "paid.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    safe = os.open(folder / "handed_on.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def pay(request: ChatRequest) -> None:
        os.write(log, f"{life} {identity(request)}\n".encode())
        os.fsync(log)

    keep = LiveRecorder.keep

    async def keep_and_say(recorder: LiveRecorder, attempt: Attempt) -> Attempt:
        kept = await keep(recorder, attempt)
        os.write(safe, f"{life} {identity(kept.request)}\n".encode())
        os.fsync(safe)
        return kept

    LiveRecorder.keep = keep_and_say  # type: ignore[method-assign]
    backend = HashBackend(delay_s=0.006, faulty=True, before_answer=pay)
    client = hash_client(backend, max_concurrency=2)
    tape = Tape(folder / "killed.tape")
    if len(tape) == 0:
        config = steady_config(nations=NATIONS, turns=TURNS)
        simulation = Simulation(config, llm_client=client, tape=tape)
    else:
        simulation = resume(tape, llm_client=client)
    simulation.run(TURNS - simulation.turn_number)
    simulation.close()
    tape.close()


def _wait_for_answers(log: Path, child: int, count: int) -> None:
    """Wait until a log has grown by so many lines, or the child has ended."""

    def lines() -> int:
        return log.read_bytes().count(b"\n") if log.exists() else 0

    wanted = lines() + count
    while lines() < wanted:
        # WNOWAIT leaves the child to be waited for.
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)


def main(folder: Path, seed: int, kills: int) -> None:
    """Kill so many times, then let the run finish."""
    delays = random.Random(seed)
    # What is imported and compiled here, the children need not.
    asyncio.run(Simulation(steady_config(), llm_client=hash_client()).arun(1))
    killed = 0
    for life in range(10_000):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                play(folder, life)
                status = 0
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                sys.stderr.flush()
                os._exit(status)
        if killed < kills:
            # Every other life is long enough to be answered, however slow the machine.
            if life % 2:
                _wait_for_answers(folder / "paid.log", child, delays.randint(1, 3))
                time.sleep(delays.uniform(0.0, 0.02))
            else:
                time.sleep(delays.uniform(0.0, LONGEST_LIFE_S))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
            killed += 1
            continue
        if status:
            sys.exit(f"life {life} ended with status {status}")
        break
    (folder / "lives.json").write_text(json.dumps({"killed": killed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
