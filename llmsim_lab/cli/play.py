"""Play a run on the command line: connect to its model, seat its people, let go in the end."""

from __future__ import annotations

from typing import Any

from llmsim_lab.cli.output import console
from llmsim_lab.cli.person import seat_people
from llmsim_lab.cli.world_file import lines_told
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import LLMClient, connect
from llmsim_lab.runs import Run

__all__ = ["client_for", "play"]


def client_for(config: Any, *, host: str | None) -> LLMClient | None:
    """Connect to a run's model, fetching the embedded one first if need be.

    Raises:
        ConfigError: there is no such model.
    """
    if not config.needs_model:
        return None
    if config.llm.model == "rule":
        raise ConfigError(
            "llm.model is 'rule', which is not a model; leave it out of the file and run it with "
            "--model rule, if this kind of simulation has rules"
        )
    client = connect(config.llm.model, host=host, config=config.llm, download=True, quiet=True)
    console.print(client.chosen, markup=False, highlight=False)
    return client


def play(simulation: Run, turns: int) -> BaseException | None:
    """Play turns, let go of the model, and return what ended the run early, if anything did.

    People in the run are asked on the terminal. The turns played until then stay in the simulation.
    """
    seat_people(simulation)
    try:
        with lines_told():
            simulation.run(turns)
    except (LabError, KeyboardInterrupt) as error:
        return error
    finally:
        if simulation.llm_client is not None:
            run_sync(simulation.llm_client.aclose())
    return None
