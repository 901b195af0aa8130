"""Record ``demo.tape`` anew, with a real model: what ``llmsim-lab demo`` and notebook 01 show.

``python data/tapes/record_demo.py`` plays, seed by seed, twenty quarters of one central bank, a
fork of them with an oil shock, and the same quarters mirrored: 49 decisions a seed, which take some
eight minutes on two idle cores with the embedded model ``qwen2.5-coder-1.5b``. It goes on where it
stopped; delete the tape to begin anew. ``--pack`` leaves one small file with the seeds that are
whole, and records nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from record_tapes import HERE, pack

from llmsim_lab import LLMClient, Simulation, connect
from llmsim_lab.errors import EconomyError
from llmsim_lab.llm import Tape
from llmsim_lab.run import Run, fork, resume
from llmsim_lab.study._demo import (
    DEMO_SEEDS,
    OIL,
    OIL_END,
    OIL_TURN,
    demo_config,
    demo_runs,
)

_DRIVEN_OFF = "driven the model off its range"
"""Words of the outcome of a run that an ``EconomyError`` ended."""


def record(path: Path, seed: int, client: LLMClient) -> None:
    """Play what a seed lacks: its run, the fork of it, and the mirrored one."""
    with Tape(path) as tape:
        for mirrored in (False, True):
            config = demo_config(model=client.config.model, seed=seed, mirrored=mirrored)
            done = demo_runs(tape).get(seed, {}).get("mirrored" if mirrored else "plain")
            if done is None:
                play(Simulation(config, llm_client=client, tape=tape), config.turns)
            else:
                play(resume(tape, done, llm_client=client), config.turns)
            if mirrored:
                continue
            done = demo_runs(tape)[seed].get("oil")
            if done is None:
                plain = demo_runs(tape)[seed]["plain"]
                first = OIL_TURN - 1
                play(fork(tape, plain, turn=first, intervene=[OIL], llm_client=client), OIL_END)
            else:
                play(resume(tape, done, llm_client=client), OIL_END)


def play(simulation: Run, turns: int) -> None:
    """Play up to a turn, say how long each takes, and let the next run have the tape."""
    while simulation.turn_number < turns:
        began = time.monotonic()
        try:
            simulation.run(1, progress=False)
        except EconomyError as error:  # the model's doing: what it drove the economy to is shown
            sys.stderr.write(f"{simulation.config.name}, run {simulation.run_id}: {error}\n")
            break
        sys.stderr.write(
            f"{time.strftime('%H:%M:%S')} {simulation.config.name}, run {simulation.run_id}, "
            f"turn {simulation.turn_number} of {turns}: {time.monotonic() - began:.1f} s\n"
        )
    simulation.close()


def keep_whole(path: Path) -> None:
    """Remove the runs of seeds that are not whole, and pack the tape."""
    runs = demo_runs(path)
    with Tape(path) as tape:
        # A run that drove the economy off the model's range is as whole as it can be.
        length = {
            run.id: 10**6 if _DRIVEN_OFF in (run.outcome or "") else run.turns
            for run in tape.runs()
        }
        wanted = {"plain": demo_config().turns, "oil": OIL_END, "mirrored": demo_config().turns}
        broken = [
            number
            for found in runs.values()
            if any(length.get(found.get(world, 0), 0) < turns for world, turns in wanted.items())
            for number in found.values()
        ]
        if broken:
            tape.prune(broken)
    pack(path)


def main() -> None:
    """Record, or go on recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--tape", type=Path, default=HERE / "demo.tape")
    parser.add_argument("--pack", action="store_true", help="keep whole seeds only, and end")
    arguments = parser.parse_args()
    if arguments.pack:
        keep_whole(arguments.tape)
        return
    client = connect(arguments.model, config=demo_config().llm, download=True)
    # As many as an Ollama server lists: what follows them is no letter, and would fill the tape.
    client.backend.max_top_logprobs = 20  # type: ignore[attr-defined]
    for seed in DEMO_SEEDS:
        record(arguments.tape, seed, client)
    keep_whole(arguments.tape)


if __name__ == "__main__":
    main()
