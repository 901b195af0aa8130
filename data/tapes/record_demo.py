"""Record ``demo.tape`` anew, with a real model: what ``llmsim-lab demo`` and notebook 01 show.

``python data/tapes/record_demo.py`` plays, seed by seed, twenty quarters of one central bank, the
same quarters mirrored, and a fork of the first with an oil shock: 49 decisions a seed, of seven
calls each. With the embedded model ``qwen2.5-coder-1.5b`` eight seeds take hours on two cores. It
goes on where it stopped; delete the tape to begin anew. ``--pack`` leaves one small file with what
is whole, and records nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from record_tapes import HERE

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
from llmsim_lab.tape._lines import RunInfo

_DRIVEN_OFF = "driven the model off its range"
"""Words of the outcome of a run that an ``EconomyError`` ended."""


def record(path: Path, seed: int, client: LLMClient) -> None:
    """Play what a seed lacks: its run, the mirrored one, and the fork with the oil shock."""
    with Tape(path) as tape:
        for world in ("plain", "mirrored", "oil"):
            done = demo_runs(tape).get(seed, {})
            if world in done:
                simulation = resume(tape, done[world], llm_client=client)
            elif world == "oil":
                before, changes = OIL_TURN - 1, [OIL]
                simulation = fork(
                    tape, done["plain"], turn=before, intervene=changes, llm_client=client
                )
            else:
                config = demo_config(
                    model=client.config.model, seed=seed, mirrored=world == "mirrored"
                )
                simulation = Simulation(config, llm_client=client, tape=tape)
            play(simulation, OIL_END if world == "oil" else simulation.config.turns)


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
    """Remove runs that are too short, and all of a seed that lacks one of the two; then pack.

    Half of the quarters are enough, since answers count by quarter; a fork has to be whole.
    """
    with Tape(path) as tape:
        # A run that drove the economy off the model's range is as whole as it can be.
        broken = {
            run.id
            for run in tape.runs()
            if run.turns < _least(run) and _DRIVEN_OFF not in (run.outcome or "")
        }
        for found in demo_runs(tape).values():
            if not {"plain", "mirrored"} <= {w for w, run in found.items() if run not in broken}:
                broken |= set(found.values())
        if broken:
            tape.prune(sorted(broken))


def _least(run: RunInfo) -> int:
    return OIL_END if run.fork_turn is not None else int(run.manifest["config"]["turns"] // 2)


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
