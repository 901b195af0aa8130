"""Record ``social.tape`` anew, with a real model.

``python data/tapes/record_social.py`` plays ``data/scenarios/harbour_town.yaml`` and takes some ten
minutes on two cores with the embedded model ``qwen2.5-coder-1.5b``. What the model says differs
from one recording to the next, so notebooks that show it must be run again afterwards.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from pathlib import Path

from llmsim_lab import connect
from llmsim_lab.files import data_path
from llmsim_lab.statechart import SocialConfig, SocialSimulation

HERE = Path(__file__).parent


def record(path: Path, model: str, turns: int | None) -> None:
    """Play the scenario onto a new tape; an old one of that name goes."""
    config = SocialConfig.from_yaml(data_path("scenarios/harbour_town.yaml"))
    client = connect(model, config=config.llm, download=True)
    path.unlink(missing_ok=True)
    simulation = SocialSimulation(config, llm_client=client, tape=path)
    simulation.run(turns, on_turn=lambda turn: sys.stderr.write(f"round {turn.number}\n"))
    simulation.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("VACUUM")
    connection.close()


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--out", type=Path, default=HERE / "social.tape")
    parser.add_argument("--turns", type=int)
    arguments = parser.parse_args()
    record(arguments.out, arguments.model, arguments.turns)


if __name__ == "__main__":
    main()
