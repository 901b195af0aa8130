"""Play a run with a progress bar that says what is being waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from llmsim_lab.calls import ChatReply, ChatRequest, ModelInfo
from llmsim_lab.cli.output import console
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import ChatBackend, LLMClient, connect
from llmsim_lab.simulation import Simulation, SimulationConfig

__all__ = ["client_for", "play"]


class _Watched:
    """A backend that says on a progress bar whose call is under way."""

    def __init__(self, backend: ChatBackend) -> None:
        self.backend = backend
        self.waiting: dict[int, str] = {}

    async def chat(self, request: ChatRequest) -> ChatReply:
        site = request.site
        self.waiting[id(request)] = f"{site.component} of {site.agent}" if site else "a call"
        try:
            return await self.backend.chat(request)
        finally:
            del self.waiting[id(request)]

    async def model_info(self) -> ModelInfo:
        return await self.backend.model_info()

    async def aclose(self) -> None:
        await self.backend.aclose()


def client_for(config: SimulationConfig, *, host: str | None) -> LLMClient | None:
    """Connect to a run's model, fetching the embedded one first if need be.

    Raises:
        ConfigError: there is no such model.
    """
    if not config.needs_model:
        return None
    if config.llm.model == "rule":
        raise ConfigError(
            "model 'rule' is no model, but the run's nations or validator are of kind llm; make "
            "the nations kind taylor and the validator kind always_valid"
        )
    client = connect(config.llm.model, host=host, config=config.llm, download=True, quiet=True)
    client.backend = _Watched(client.backend)
    console.print(client.chosen, markup=False, highlight=False)
    return client


def play(simulation: Simulation, turns: int) -> BaseException | None:
    """Play turns, let go of the model, and return what ended the run early, if anything did.

    The turns played until then stay in the simulation.
    """
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[waiting]}", style="dim"),
        console=console,
        transient=True,
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


async def _play(simulation: Simulation, turns: int, progress: Progress) -> None:
    bar = progress.add_task("playing", total=turns, waiting="")
    client = simulation.llm_client
    watched = client.backend if client and isinstance(client.backend, _Watched) else None

    async def say_what_is_awaited() -> None:
        while watched is not None:
            waiting = list(watched.waiting.values())
            more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            progress.update(bar, waiting=f"waiting for {waiting[0]}{more}" if waiting else "")
            await asyncio.sleep(0.1)

    async with _in_background(say_what_is_awaited()):
        await simulation.arun(turns, on_turn=lambda _: progress.advance(bar))


@asynccontextmanager
async def _in_background(work: object) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
