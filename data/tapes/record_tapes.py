"""Record the tapes beside this file anew, with a real model.

``python data/tapes/record_tapes.py`` takes some ten minutes on two cores with the embedded model
``qwen2.5-coder-1.5b``. What the model says differs from one recording to the next, so notebooks
that show it must be run again afterwards (``make notebooks``).
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from llmsim_lab import LLMClient, Simulation, SimulationConfig, connect
from llmsim_lab.llm import LLMConfig

HERE = Path(__file__).parent
SETTINGS = LLMConfig(
    model="auto", seed=7, num_ctx=2048, max_tokens=256, max_text_chars=200, timeout_s=180
)
IN_WORDS = {"moves_bp": None, "committee": "sequential"}
"""Agents put actions into words, and the engine's model turns each into a rate, in order."""
ONE_NATION = SimulationConfig(
    name="one nation",
    seed=7,
    turns=8,
    start_at="1979Q3",
    llm=SETTINGS,
    economy={"shock_scale": 0},
    **IN_WORDS,
)
TWO_NATIONS = SimulationConfig(
    name="model",
    seed=7,
    turns=12,
    start_at="1979Q3",
    nations=(
        {"name": "United States", "temperament": "cautious"},
        {"name": "Germany", "temperament": "hawkish on inflation"},
    ),
    llm=SETTINGS,
    economy={"shock_scale": 1.0},
    **IN_WORDS,
)
FORKED_AT = 3
OIL = {"turn": FORKED_AT, "set": {"shock.supply": 4}, "note": "oil"}
ADVISOR = "You are an economic policy advisor for a nation."
FEARFUL = "You are a central banker who fears inflation above all else."


def first_run(client: LLMClient) -> None:
    """One nation, eight quarters, and two forks at turn 3: dearer oil, and another prompt."""
    turns = ONE_NATION.turns
    simulation = begin("first_run.tape", ONE_NATION, client)
    play_on(simulation, turns)
    play_on(simulation.fork(FORKED_AT, intervene=[OIL]), turns - FORKED_AT)
    prompt = simulation.prompt("agent_policy").replace(ADVISOR, FEARFUL)
    play_on(simulation.fork(FORKED_AT, prompt=prompt), turns - FORKED_AT)


def two_nations(client: LLMClient) -> None:
    """Two nations, twelve quarters."""
    play_on(begin("two_nations.tape", TWO_NATIONS, client), TWO_NATIONS.turns)


def begin(name: str, config: SimulationConfig, client: LLMClient) -> Simulation:
    """Begin a run on a new tape; an old one of that name goes."""
    path = HERE / name
    path.unlink(missing_ok=True)
    return Simulation(config, llm_client=client, tape=path)


def play_on(simulation: Simulation, turns: int) -> None:
    """Play, and let the next run have the tape."""
    simulation.run(turns)
    simulation.close()


def pack(folder: Path) -> None:
    """Pack the tapes of a study that is complete, each by itself."""
    for path in folder.glob("*.tape"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


def main() -> None:
    """Record what was asked for."""
    recordings = {"first_run": first_run, "two_nations": two_nations}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*recordings, []], help="all if none is named")
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    arguments = parser.parse_args()
    client = connect(arguments.model, config=SETTINGS, download=True)
    for name in arguments.names or recordings:
        recordings[name](client)


if __name__ == "__main__":
    main()
