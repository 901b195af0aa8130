"""Measure what the lab's widgets cost: from a click to the updated screen, and memory kept.

``python benchmarks/lab_bench.py --out lab_bench.json`` steps runs whose decisions take no time: two
nations by the Taylor rule, or four on a model that answers at the event loop's next turn. The time
of the run's own ``step`` is subtracted. What the kernel would send to the browser is written as
JSON, as the kernel would, and counted; the browser's own time is not in these figures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import platform
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

import comm
import psutil
from comm.base_comm import BaseComm
from command import command
from rich.table import Table
from workloads import StubBackend, make_simulation

from llmsim_lab.lab import TurnStepper, _widget
from llmsim_lab.simulation import Simulation, SimulationConfig

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

_TARGET_MS = 250
_MODEL_NATIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        turns: lengths of the runs at which clicks are timed.
        clicks: how many of each.
        steps: how many turns are stepped for the memory.
    """

    turns: tuple[int, ...]
    clicks: int
    steps: int


FULL = Plan(turns=(10, 100, 1000), clicks=25, steps=1000)
QUICK = Plan(turns=(2, 5), clicks=2, steps=5)


class Wire(BaseComm):  # type: ignore[misc]
    """Writes what a widget sends as the kernel would, and counts it."""

    sent_bytes = 0

    def publish_msg(self, *_: Any, data: Any = None, **__: Any) -> None:
        """Count one message."""
        Wire.sent_bytes += len(json.dumps(data))


def ruled() -> Simulation:
    """Return a run of two nations by the Taylor rule."""
    return Simulation(
        SimulationConfig(
            start="1979Q3",
            nations=tuple({"name": name, "kind": "taylor"} for name in ("Aland", "Borduria")),
            validator={"kind": "always_valid"},
            economy={"shock_scale": 0.2},
        )
    )


def modelled() -> Simulation:
    """Return a run of four nations on a model that answers at once."""
    return make_simulation(_MODEL_NATIONS, StubBackend())


RUNS: dict[str, Callable[[], Simulation]] = {"rules": ruled, "model": modelled}


class Timed:
    """Adds up the time that a run's own steps take."""

    def __init__(self, simulation: Simulation) -> None:
        self.seconds = 0.0
        self._step = simulation.step
        simulation.step = self.step  # type: ignore[method-assign]

    async def step(self) -> Any:
        """Play one turn."""
        began = time.perf_counter()
        turn = await self._step()
        self.seconds += time.perf_counter() - began
        return turn


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    comm.create_comm = Wire
    return {
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("llmsim-lab", "ipywidgets")},
        },
        "stepper": {
            name: {str(turns): asyncio.run(time_clicks(make, turns, plan)) for turns in plan.turns}
            for name, make in RUNS.items()
        },
        "memory": {name: asyncio.run(kept(make, plan.steps)) for name, make in RUNS.items()},
    }


async def time_clicks(make: Callable[[], Simulation], turns: int, plan: Plan) -> dict[str, float]:
    """Time clicks on Step and on Previous in a run that has so many turns already."""
    simulation = make()
    for _ in range(turns):
        await simulation.step()
    own = Timed(simulation)
    stepper = TurnStepper(simulation)
    gc.collect()
    steps, backs, sent = [], [], []
    for _ in range(plan.clicks):
        own.seconds, before = 0.0, Wire.sent_bytes
        began = time.perf_counter()
        stepper.step_button.click()
        await stepper.idle()
        steps.append(time.perf_counter() - began - own.seconds)
        sent.append(Wire.sent_bytes - before)
        began = time.perf_counter()
        stepper.previous_button.click()
        backs.append(time.perf_counter() - began)
        stepper.latest_button.click()
    return {
        "step_ms": round(median(steps) * 1e3, 2),
        "step_ms_worst": round(max(steps) * 1e3, 2),
        "previous_ms": round(median(backs) * 1e3, 2),
        "sent_kb": round(median(sent) / 1e3, 1),
    }


async def kept(make: Callable[[], Simulation], steps: int) -> dict[str, float]:
    """Measure what is kept after so many clicks on Step, and after as many steps without a widget.

    The growth of the whole process is measured apart, since tracing allocations takes memory.
    """
    process = psutil.Process()
    # A click waits until fields have settled; over so many clicks that would be minutes.
    _widget.SETTLE_S = 0.0
    began_rss = process.memory_info().rss
    clicked = TurnStepper(make())
    for _ in range(steps):
        clicked.step_button.click()
        await clicked.idle()
    rss = process.memory_info().rss - began_rss
    del clicked
    tracemalloc.start()
    try:
        alone, simulation = await _traced(make(), steps, clicks=False)
        del simulation
        shown, stepper = await _traced(make(), steps, clicks=True)
        del stepper
    finally:
        tracemalloc.stop()
    return {
        "steps": steps,
        "bytes_per_step_with_widget": round(shown / steps),
        "bytes_per_step_without": round(alone / steps),
        "process_growth_mb": round(rss / 1e6, 1),
    }


async def _traced(simulation: Simulation, steps: int, *, clicks: bool) -> tuple[int, object]:
    stepper = TurnStepper(simulation)
    await stepper.step()
    before = await _bytes()
    for _ in range(steps):
        if clicks:
            stepper.step_button.click()
            await stepper.idle()
        else:
            await simulation.step()
    return await _bytes() - before, stepper


async def _bytes() -> int:
    await asyncio.sleep(0)  # lets the loop drop finished tasks
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures beside what they should be."""
    shown = Table("figure", "measured", "target", title="What the widgets cost")
    for name, lengths in figures["stepper"].items():
        for turns, its in lengths.items():
            said = f"{its['step_ms']} ms (worst {its['step_ms_worst']}), {its['sent_kb']} kB sent"
            shown.add_row(f"Step to screen, {name}, {turns} turns", said, f"< {_TARGET_MS} ms")
            shown.add_row("  Previous to screen", f"{its['previous_ms']} ms", "")
    for name, its in figures["memory"].items():
        said = f"{its['bytes_per_step_with_widget']} B ({its['bytes_per_step_without']} B without)"
        shown.add_row(f"kept per step, {name}, {its['steps']} steps", said, "as without")
        shown.add_row("  the process grew by", f"{its['process_growth_mb']} MB", "")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    command(
        arguments,
        doc=__doc__,
        out="lab_bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


if __name__ == "__main__":
    main()
