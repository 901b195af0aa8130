"""``llmsim-lab run CONFIG.yaml``: any run a file describes."""

from __future__ import annotations

from pathlib import Path

from llmsim_lab.cli.output import console, open_folder, summary, turns_table, write_results
from llmsim_lab.cli.play import client_for, play
from llmsim_lab.concurrency import run_sync
from llmsim_lab.economy import history
from llmsim_lab.errors import LabError
from llmsim_lab.lab import rate_figure
from llmsim_lab.simulation import Simulation, SimulationConfig

__all__ = ["run"]


def run(path: Path, *, turns: int | None, model: str | None, out: Path, host: str | None) -> None:
    """Play a configured run and write its results.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    config = SimulationConfig.from_yaml(path)
    if model is not None:
        config = config.model_copy(update={"llm": config.llm.model_copy(update={"model": model})})
    out = open_folder(out)
    client = client_for(config, host=host)
    simulation = Simulation(config, llm_client=client)
    wanted = config.turns if turns is None else turns
    failure: BaseException | None = None
    try:
        play(simulation, wanted)
    except (LabError, KeyboardInterrupt) as error:
        failure = error
    finally:
        if client is not None:
            run_sync(client.aclose())
    console.print(turns_table(simulation))
    console.print(summary(simulation))
    frame = simulation.to_frame()
    first = simulation.turns[0].state.period
    figure = rate_figure(
        {config.name: frame},
        history=history(first, len(frame)) if first else None,
        rule_of=config.name,
        title=config.name,
    )
    chart = out / "rates.png"
    figure.savefig(chart, dpi=120)
    paths = [chart, *write_results(simulation, out, {})]
    console.print("Written:", ", ".join(str(path) for path in paths), soft_wrap=True)
    if failure is not None:
        console.print(f"The run ended early, at turn {simulation.turn} of {wanted}.", style="red")
        raise failure
