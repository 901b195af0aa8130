"""Measure what a chart costs: drawing it anew, and following a run.

``python benchmarks/chart_bench.py --out chart_bench.json`` draws four runs by the Taylor rule with
three small panels, history and the rule, at several lengths, and plays a run that a chart follows.
The times are the kernel's; the browser's own are not in them.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.lab import RateChart
from llmsim_lab.simulation import Simulation, SimulationConfig

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

_TARGET_MS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        turns: lengths of the runs that are drawn.
        repeats: how often each is drawn.
        followed: turns of the run that a chart follows.
    """

    turns: tuple[int, ...]
    repeats: int
    followed: int


FULL = Plan(turns=(10, 100, 1000), repeats=15, followed=1000)
QUICK = Plan(turns=(2, 5), repeats=2, followed=5)


def ruled(seed: int) -> Simulation:
    """Return a run by the Taylor rule with shocks of its own."""
    return Simulation(
        SimulationConfig(
            name=f"run {seed}",
            seed=seed,
            start="1979Q3",
            nations=({"name": "Aland", "kind": "taylor"},),
            validator={"kind": "always_valid"},
            economy={"shock_scale": 0.2},
        )
    )


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    names = ("llmsim-lab", "ipywidgets", "matplotlib")
    return {
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "versions": {name: version(name) for name in names},
        },
        "drawing": {str(turns): drawing(turns, plan.repeats) for turns in plan.turns},
        "following": asyncio.run(following(plan.followed)),
    }


def drawing(turns: int, repeats: int) -> dict[str, float]:
    """Time drawing four runs of so many turns, wall time and the process's own."""
    runs = [ruled(seed) for seed in range(4)]
    for run in runs:
        run.run(turns)
    began = time.perf_counter()
    chart = RateChart(*runs)
    chart._repr_mimebundle_()  # as a notebook that shows it; before that nothing is drawn
    first = time.perf_counter() - began
    wall, cpu = [], []
    for _ in range(repeats):
        runs[0].run(1)
        began, began_cpu = time.perf_counter(), time.process_time()
        chart.refresh()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return {
        "first_ms": round(first * 1e3, 1),
        "redraw_ms": round(median(wall) * 1e3, 1),
        "redraw_ms_worst": round(max(wall) * 1e3, 1),
        "redraw_cpu_ms": round(median(cpu) * 1e3, 1),
        "image_kb": round(len(chart.picture.value) / 1e3, 1),
    }


async def following(turns: int) -> dict[str, float]:
    """Count how often a chart is drawn while a run goes on, and what that costs the run."""
    alone, followed = ruled(1), ruled(1)
    began = time.perf_counter()
    await alone.arun(turns)
    without = time.perf_counter() - began
    chart = RateChart(followed)
    chart._repr_mimebundle_()
    drawn: list[float] = []
    chart.picture.observe(lambda _: drawn.append(time.perf_counter()), names="value")
    began = time.perf_counter()
    await followed.arun(turns)
    with_chart = time.perf_counter() - began
    await chart.idle()
    return {
        "turns": turns,
        "drawn": len(drawn),
        "seconds_without": round(without, 2),
        "seconds_with": round(with_chart, 2),
    }


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures beside what they should be."""
    shown = Table("figure", "measured", "target", title="What a chart costs")
    for turns, its in figures["drawing"].items():
        said = f"{its['redraw_ms']} ms (worst {its['redraw_ms_worst']}, CPU {its['redraw_cpu_ms']})"
        shown.add_row(f"redraw, 4 runs of {turns} turns", said, f"< {_TARGET_MS} ms")
        shown.add_row("  the first time", f"{its['first_ms']} ms", "")
    its = figures["following"]
    shown.add_row(f"drawn while {its['turns']} turns are played", f"{its['drawn']} times", "few")
    shown.add_row("  the run took", f"{its['seconds_with']} s ({its['seconds_without']} s)", "")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    command(
        arguments,
        doc=__doc__,
        out="chart_bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


if __name__ == "__main__":
    main()
