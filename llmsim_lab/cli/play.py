"""Play a run with a progress bar that says what is being waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from llmsim_lab.cli.output import console
from llmsim_lab.cli.person import seat_people
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import InFlight, LLMClient, connect, watching
from llmsim_lab.runs import SimulationLike
from llmsim_lab.simulation import SimulationConfig

__all__ = ["client_for", "play"]


def client_for(config: SimulationConfig, *, host: str | None) -> LLMClient | None:
    """Connect to a run's model, fetching the embedded one first if need be.

    Raises:
        ConfigError: there is no such model.
    """
    if not config.needs_model:
        return None
    if config.llm.model == "rule":
        raise ConfigError(
            "model 'rule' is no model, but parts of the run are of kind llm; make an economic "
            "run's nations kind taylor and its validator kind always_valid"
        )
    client = connect(config.llm.model, host=host, config=config.llm, download=True, quiet=True)
    console.print(client.chosen, markup=False, highlight=False)
    return client


def play(simulation: SimulationLike, turns: int) -> BaseException | None:
    """Play turns, let go of the model, and return what ended the run early, if anything did.

    People in the run are asked on the terminal. The turns played until then stay in the simulation.
    """
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[waiting]}", style="dim"),
        console=console,
        transient=True,
        disable=seat_people(simulation),  # a bar would write over what people type
    )
    try:
        with progress:
            run_sync(_play(simulation, turns, progress))
    except (LabError, KeyboardInterrupt) as error:
        return error
    finally:
        if simulation.llm_client is not None:
            run_sync(simulation.llm_client.aclose())
    return None


async def _play(simulation: SimulationLike, turns: int, progress: Progress) -> None:
    bar = progress.add_task("playing", total=turns, waiting="")
    calls = InFlight()

    async def say_what_is_awaited() -> None:
        while True:
            waiting = calls.waiting
            more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            progress.update(bar, waiting=f"waiting for {waiting[0]}{more}" if waiting else "")
            await asyncio.sleep(0.1)

    async with _in_background(say_what_is_awaited()):
        with watching(calls):
            await simulation.arun(turns, on_turn=lambda _: progress.advance(bar))


@asynccontextmanager
async def _in_background(work: object) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
