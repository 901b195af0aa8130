"""``llmsim-lab run CONFIG.yaml``: any run a file describes."""

from __future__ import annotations

from pathlib import Path

from llmsim_lab.cli.output import end, open_folder, report
from llmsim_lab.cli.play import client_for, play
from llmsim_lab.simulation import Simulation, SimulationConfig

__all__ = ["run"]


def run(path: Path, *, turns: int | None, model: str | None, out: Path, host: str | None) -> None:
    """Play a configured run and write its results.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    config = SimulationConfig.from_yaml(path)
    if model is not None:
        llm = config.llm.model_copy(update={"model": model})
        config = config.model_copy(update={"llm": llm})
    out = open_folder(out)
    simulation = Simulation(config, llm_client=client_for(config, host=host))
    wanted = config.turns if turns is None else turns
    failure = play(simulation, wanted)
    report(simulation, out)
    end(simulation, wanted, failure)
