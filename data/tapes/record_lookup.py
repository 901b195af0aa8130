"""Record ``lookup.tape`` anew: a nation's agent that looks data up before it decides.

``python data/tapes/record_lookup.py`` takes some minutes on two cores with the embedded model. What
the model says differs from one recording to the next, so the notebook that shows it must be run
again afterwards.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal

from llmsim_lab import LLMClient, LLMConfig, Simulation, SimulationConfig, connect
from llmsim_lab.assistant import FunctionTools, ToolLookup
from llmsim_lab.economy import load_us_macro

TAPE = Path(__file__).parent / "lookup.tape"
NATION = "United States"
START = "1979Q3"
TURNS = 3
MODEL = LLMConfig(temperature=0, seed=7, num_ctx=4096, max_tokens=200, timeout_s=600)
CONFIG = SimulationConfig(
    name="looking up",
    seed=7,
    turns=TURNS,
    start_at=START,
    nations=(NATION,),
    llm=MODEL,
    # In words, and the engine's model turns each action into a rate.
    moves_bp=None,
    committee="sequential",
    economy={"shock_scale": 0},
)


def past_values(
    series: Literal["inflation", "unemployment", "interest_rate", "gdp_growth"],
) -> dict[str, float]:
    """Look up a series in the four quarters before the simulation began, in percent."""
    values = load_us_macro()[series]
    return {str(q): round(float(values[q]), 2) for q in values.index[values.index < START][-4:]}


def seats(client: LLMClient) -> dict[str, Any]:
    """Return who decides: no tape holds a player's code, so a replay is given it again."""
    return {NATION: ToolLookup(FunctionTools(past_values)).player(client)}


def record(client: LLMClient) -> None:
    """Play the run onto a new tape; an old one goes."""
    TAPE.unlink(missing_ok=True)
    simulation = Simulation(CONFIG, llm_client=client, players=seats(client), tape=TAPE)
    simulation.run(TURNS)
    simulation.close()


def main() -> None:
    """Record, and leave one file that reads from any disk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    record(connect(parser.parse_args().model, config=MODEL))


if __name__ == "__main__":
    main()
