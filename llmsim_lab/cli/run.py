"""``llmsim-lab run CONFIG.yaml``: any run a file describes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from llmsim_lab.cli.output import end, open_folder, report, say
from llmsim_lab.cli.play import client_for, play
from llmsim_lab.llm import Tape
from llmsim_lab.runs.config_file import config_from_file
from llmsim_lab.runs.registry import kind_of_config

__all__ = ["run"]


def run(
    path: Path,
    *,
    turns: int | None,
    model: str | None,
    out: Path,
    host: str | None,
    tape: Path | None = None,
) -> None:
    """Play a configured run and write its results; record it, if there is a tape for it.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    config = config_from_file(path, kind="economic")
    if model == "rule" and hasattr(config, "by_rules"):
        config = config.by_rules()
    elif model is not None:
        llm = config.llm.model_copy(update={"model": model})
        config = config.model_copy(update={"llm": llm})
    if turns is not None:
        config = config.model_copy(update={"turns": turns})
    out = open_folder(out)
    client = client_for(config, host=host)
    with Tape(tape) if tape is not None else nullcontext() as record:
        kind: Any = kind_of_config(config)
        simulation = kind(config, llm_client=client, tape=record)
        failure = play(simulation, config.turns)
        report(simulation, out)
        if record is not None:
            say(f"All of it is recorded as run {simulation.run_id} of {tape}.")
            simulation.close()
    end(simulation, config.turns, failure)
