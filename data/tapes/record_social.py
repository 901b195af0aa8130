"""Record ``social.tape`` anew, with a real model.

``python data/tapes/record_social.py`` plays ``data/scenarios/harbour_town.yaml`` twice: run 1 asks
the model for no reasons, and so for shorter answers; run 2 does as the file says, but for six of
its seven turns. It takes some ten minutes on two cores with the embedded model
``qwen2.5-coder-1.5b``. What the model says differs from one recording to the next, so notebooks
that show it must be run again afterwards.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from llmsim_lab import connect
from llmsim_lab._util.config import YamlFile
from llmsim_lab._util.files import data_path
from llmsim_lab.llm import Tape
from llmsim_lab.run.registry import class_and_config
from llmsim_lab.statechart import SocialSimulation

HERE = Path(__file__).parent


def runs() -> list[tuple[Any, int]]:
    """Return what is played, without and with reasons asked for, and how many turns of it."""
    config = class_and_config(YamlFile.read(data_path("scenarios/harbour_town.yaml")))[1]
    short = config.llm.model_copy(update={"max_tokens": 48})
    silent = config.model_copy(update={"rationale": False, "llm": short})
    return [(silent, 7), (config, 6)]


def record(path: Path, model: str) -> None:
    """Play the runs and pack the tape."""
    path.unlink(missing_ok=True)
    with Tape(path) as tape:
        for config, turns in runs():
            client = connect(model, config=config.llm, download=True)
            simulation = SocialSimulation(config, llm_client=client, tape=tape)
            simulation.run(turns)
            simulation.close()


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--out", type=Path, default=HERE / "social.tape")
    arguments = parser.parse_args()
    record(arguments.out, arguments.model)


if __name__ == "__main__":
    main()
