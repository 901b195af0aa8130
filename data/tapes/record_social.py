"""Record ``social.tape`` anew, with a real model.

``python data/tapes/record_social.py`` plays ``data/scenarios/harbour_town.yaml`` twice: run 1 asks
the model for no reasons, run 2 does as the file says. It takes some ten minutes on two cores with
the embedded model ``qwen2.5-coder-1.5b``. What the model says differs from one recording to the
next, so notebooks that show it must be run again afterwards.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from pathlib import Path

from llmsim_lab import connect
from llmsim_lab.files import data_path
from llmsim_lab.llm import Tape
from llmsim_lab.statechart import SocialConfig, SocialSimulation

HERE = Path(__file__).parent


def record(path: Path, model: str, turns: int) -> None:
    """Play the scenario twice, without and with reasons asked for, and pack the tape."""
    config = SocialConfig.from_yaml(data_path("scenarios/harbour_town.yaml"))
    silent = config.model_copy(
        update={
            "name": "harbour town, no reasons asked",
            "reasoner": config.reasoner.model_copy(update={"rationale": False}),
        }
    )
    client = connect(model, config=config.llm, download=True)
    path.unlink(missing_ok=True)
    with Tape(path) as tape:
        for one in (silent, config):
            simulation = SocialSimulation(one, llm_client=client, tape=tape)
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
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    record(arguments.out, arguments.model, arguments.turns)


if __name__ == "__main__":
    main()
