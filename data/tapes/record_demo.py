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

from llmsim_lab import LLMClient, LLMConfig, Simulation, SimulationConfig, connect
from llmsim_lab.errors import EconomyError
from llmsim_lab.llm import Tape
from llmsim_lab.run import Run, fork, resume
from llmsim_lab.simulation.demonstration import OIL_TURN, demo_runs
from llmsim_lab.simulation.gate import GATE_MOVES_BP
from llmsim_lab.tape import RunInfo

START = "2000Q2"
"""Inflation and output gap are above their steady state there, unemployment and a real rate that
is too low for it agree, and the mirror image of the rate is far enough from its lower bound."""
TURNS, OIL_END = 20, 12
SEEDS = range(1, 9)
OIL = {"turn": OIL_TURN - 1, "set": {"shock.supply": 4.0}, "note": "oil"}
"""Four points of inflation in a quarter, at an annual rate: a state says what hits the next."""
_DRIVEN_OFF = "driven the model off its range"
"""Words of the outcome of a run that an ``EconomyError`` ended."""


def config_of(*, model: str = "auto", seed: int = 1, mirrored: bool = False) -> SimulationConfig:
    """Return the configuration of one central bank with a model in it.

    Args:
        model: as ``connect`` takes it.
        seed: of the shocks and of the model's draws.
        mirrored: whether all is as far on the other side of the steady state.
    """
    return SimulationConfig(
        name=f"seed {seed}, mirrored" if mirrored else f"seed {seed}",
        seed=seed,
        turns=TURNS,
        start_at=START,
        moves_bp=GATE_MOVES_BP,
        decide="sample",
        llm=LLMConfig(model=model, num_ctx=2048, max_tokens=256, timeout_s=600),
        economy={"mirrored": mirrored, "fiscal_backstop": True},
    )


def record(path: Path, seed: int, client: LLMClient) -> None:
    """Play what a seed lacks: its run, the mirrored one, and the fork with the oil shock."""
    with Tape(path) as tape:
        for world in ("plain", "mirrored", "oil"):
            done = demo_runs(tape).get(seed, {})
            if world in done:
                simulation = resume(tape, done[world].run_id, llm_client=client)
            elif world == "oil":
                plain, before = done["plain"].run_id, OIL_TURN - 1
                simulation = fork(tape, plain, turn=before, intervene=[OIL], llm_client=client)
            else:
                config = config_of(
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
            ids = {world: run.run_id for world, run in found.items()}
            if not {"plain", "mirrored"} <= {w for w, run in ids.items() if run not in broken}:
                broken |= set(ids.values())
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
    client = connect(arguments.model, config=config_of().llm, download=True)
    # As many as an Ollama server lists: what follows them is no letter, and would fill the tape.
    client.backend.max_top_logprobs = 20  # type: ignore[attr-defined]
    for seed in SEEDS:
        record(arguments.tape, seed, client)
    keep_whole(arguments.tape)


if __name__ == "__main__":
    main()
