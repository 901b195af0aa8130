"""The demonstration: one central bank, the same quarters mirrored, and an oil shock.

One set-up for the command, the notebook and the recording that both show
(``data/tapes/record_demo.py``).
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from llmsim_lab.llm import LLMConfig, Tape
from llmsim_lab.simulation import SimulationConfig

World = Literal["plain", "oil", "mirrored"]

DEMO_START = "2000Q2"
"""Inflation and output gap are above their steady state there, unemployment and a real rate that
is too low for it agree, and the mirror image of the rate is far enough from its lower bound."""
DEMO_TURNS = 20
DEMO_SEEDS = range(1, 9)
DEMO_MOVES_BP = (-200, -75, 0, 75, 200)
"""Five of the gate's seven, since each costs a call a decision."""
OIL_TURN, OIL_END = 4, 12
OIL = {"turn": OIL_TURN, "shock": {"supply": 4.0}, "note": "oil"}
"""Four points of inflation in a quarter, at an annual rate."""


def demo_config(
    *,
    model: str = "auto",
    seed: int = 1,
    start: str = DEMO_START,
    turns: int = DEMO_TURNS,
    mirrored: bool = False,
) -> SimulationConfig:
    """Return the configuration of one central bank with a model in it.

    Args:
        model: as ``connect`` takes it.
        seed: of the shocks and of the model's draws.
        start: the quarter whose data come first.
        turns: how many quarters.
        mirrored: whether all is as far on the other side of the steady state.
    """
    return SimulationConfig(
        name=f"seed {seed}, mirrored" if mirrored else f"seed {seed}",
        seed=seed,
        turns=turns,
        start=start,
        moves_bp=DEMO_MOVES_BP,
        decide="sample",
        validator={"kind": "always_valid"},
        llm=LLMConfig(model=model, num_ctx=2048, max_tokens=256, timeout_s=600),
        economy={"mirrored": mirrored, "fiscal_backstop": True},
    )


def demo_runs(tape: Tape | str | Path) -> dict[int, dict[World, int]]:
    """Return the numbers of a recording's runs, by seed and by what each shows."""
    found: dict[int, dict[World, int]] = {}
    with ExitStack() as opened:
        if not isinstance(tape, Tape):
            tape = opened.enter_context(Tape(tape, read_only=True))
        for run in tape.runs():
            config = run.manifest["config"]
            mirrored = config["economy"].get("mirrored", False)
            world: World = "oil" if run.fork_turn is not None else "plain"
            found.setdefault(config["seed"], {})["mirrored" if mirrored else world] = run.id
    return found
