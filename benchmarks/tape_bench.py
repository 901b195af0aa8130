"""Measure the tape: what recording costs per call and turn, bytes per call, replay, opening.

``python benchmarks/tape_bench.py --out tape_bench.json`` plays the same run with and without a
tape in turn, on a model that answers at the event loop's next turn, and takes medians. CPU is this
process's own time, also of replay and loading; opening is wall time, since a reader waits for it.
A bare loop of gather and pydantic, timed in between, makes the ratios hold on any machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from workloads import CALLS_PER_AGENT_TURN, IN_FLIGHT, StubBackend, make_simulation, time_bare

from llmsim_lab.engines import Engine
from llmsim_lab.llm import Tape
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.run import load, replay
from llmsim_lab.simulation import Simulation

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

_MODEL_DELAY_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        agents: of the run.
        turns: of the run.
        repeats: how often the run is played each way.
        large: calls of the tape that is opened.
    """

    agents: int
    turns: int
    repeats: int
    large: int


FULL = Plan(agents=100, turns=100, repeats=3, large=100_000)
QUICK = Plan(agents=2, turns=3, repeats=1, large=60)


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tape"
        return {
            "machine": {
                "cpus": os.cpu_count(),
                "python": platform.python_version(),
                "sqlite": sqlite3.sqlite_version,
                "system": f"{platform.system()} {platform.machine()}",
            },
            "size": {"agents": plan.agents, "turns": plan.turns, "large_calls": plan.large},
            "recording": measure_recording(plan, path),
            "waiting": measure_waiting(plan, Path(folder) / "waiting.tape"),
            "tape": measure_size(path),
            "replay": measure_replay(plan, path),
            "opening": measure_opening(plan, path),
        }


def measure_recording(plan: Plan, path: Path) -> dict[str, float]:
    """Measure CPU per call with and without a tape; leaves the last recorded run at a path.

    A turn's figure is the typical one; the mean has the garbage collector's full passes as well,
    and the best is what an otherwise idle machine comes to.
    """
    bare: list[list[float]] = []
    taped: list[list[float]] = []
    loop: list[float] = []
    for _ in range(plan.repeats):
        loop.append(asyncio.run(time_bare(plan.agents * CALLS_PER_AGENT_TURN)))
        bare.append(asyncio.run(_times(plan, None)))
        path.unlink(missing_ok=True)
        with Tape(path) as tape:
            taped.append(asyncio.run(_times(plan, tape)))
    per_call = 1e6 / (plan.agents * CALLS_PER_AGENT_TURN)
    without, recorded = (median(median(run) for run in runs) for runs in (bare, taped))
    means = [median(mean(run) for run in runs) for runs in (bare, taped)]
    best = [min(min(run) for run in runs) for runs in (bare, taped)]
    width = max(1, (plan.turns - 1) // 5)
    return {
        "us_per_call_bare_loop": round(median(loop), 2),
        "ratio_to_bare_loop_without": round(without * per_call / median(loop), 2),
        "ratio_to_bare_loop_recorded": round(recorded * per_call / median(loop), 2),
        "slowest_turn_to_median": round(median(max(run) / median(run) for run in taped), 2),
        "late_turns_to_early_ones": round(
            median(median(run[-width:]) / median(run[:width]) for run in taped), 3
        ),
        "us_per_call_without": round(without * per_call, 2),
        "us_per_call_recorded": round(recorded * per_call, 2),
        "us_per_call_added": round((recorded - without) * per_call, 2),
        "us_per_call_added_mean": round((means[1] - means[0]) * per_call, 2),
        "us_per_call_without_best": round(best[0] * per_call, 2),
        "us_per_call_added_best": round((best[1] - best[0]) * per_call, 2),
        "ms_per_turn_added": round((recorded - without) * 1e3, 3),
        "ratio": round(recorded / without, 2),
    }


async def _times(plan: Plan, tape: Tape | None) -> list[float]:
    simulation = _simulation(plan.agents, tape)
    await simulation.step()
    times = []
    for _ in range(plan.turns - 1):
        began = time.process_time()
        await simulation.step()
        times.append(time.process_time() - began)
    return times


def _simulation(agents: int, tape: Tape | None) -> Simulation:
    plain = make_simulation(agents, StubBackend())
    return Simulation(plain.config, llm_client=plain.llm_client, tape=tape)


def measure_waiting(plan: Plan, path: Path) -> dict[str, float]:
    """Measure CPU per recorded call of agents and validators where each answer takes 20 ms."""

    async def asked(tape: Tape | None) -> float:
        backend = StubBackend(_MODEL_DELAY_S)
        plain = make_simulation(plan.agents, backend)
        config = plain.config.model_copy(update={"turns": 1})
        simulation = Simulation(config, llm_client=plain.llm_client, tape=tape, engine=_NoEngine())
        await simulation.step()
        began = time.process_time()
        await simulation.step()
        return (time.process_time() - began) / plan.agents / 2 * 1e6

    without, recorded = list[float](), list[float]()
    for _ in range(plan.repeats):
        without.append(asyncio.run(asked(None)))
        path.unlink(missing_ok=True)
        with Tape(path) as tape:
            recorded.append(asyncio.run(asked(tape)))
    return {
        "model_delay_s": _MODEL_DELAY_S,
        "in_flight": IN_FLIGHT,
        "us_per_call_without": round(median(without), 2),
        "us_per_call_recorded": round(median(recorded), 2),
    }


class _NoEngine(Engine):
    """An engine that applies nothing: with a model it would ask one call after another."""

    async def run_turn(self, actions: Sequence[Action]) -> SimulationState:
        """Return the next state, which is this one."""
        del actions
        state = self.current_state
        return state.model_copy(update={"turn": state.turn + 1, "reasoning_chains": ()})


def measure_size(path: Path) -> dict[str, float]:
    """Measure the file's bytes per call, and what the same calls' texts would be, written out."""
    with Tape(path, read_only=True) as tape:
        calls = tape.calls(1)
        texts = sum(
            len(json.dumps(dict(call.attempt.request.schema or {})))
            + len(call.attempt.request.prompt)
            + len(call.attempt.reply.text if call.attempt.reply else "")
            for call in calls
        )
    return {
        "calls": len(calls),
        "bytes": path.stat().st_size,
        "bytes_per_call": round(path.stat().st_size / len(calls)),
        "bytes_per_call_written_out": round(texts / len(calls)),
    }


def measure_replay(plan: Plan, path: Path) -> dict[str, float]:
    """Measure how fast a run is replayed, and loaded without being played; CPU time."""
    figures = {}
    for name, verb in (("replay", replay), ("load", load)):
        began = time.process_time()
        turns = len(verb(path).turns) - 1
        seconds = time.process_time() - began
        figures[f"{name}_turns_per_s"] = round(turns / seconds, 1)
        figures[f"{name}_us_per_call"] = round(
            seconds / turns / plan.agents / CALLS_PER_AGENT_TURN * 1e6, 1
        )
    return figures


def measure_opening(plan: Plan, path: Path) -> dict[str, float]:
    """Measure opening a large tape and reading one turn of its last run; wall time."""
    with Tape(path) as tape:
        while (number := sum(info.calls for info in tape.runs())) < plan.large:
            left = (plan.large - number) / plan.agents / CALLS_PER_AGENT_TURN
            simulation = _simulation(plan.agents, tape)
            asyncio.run(simulation.arun(min(plan.turns, max(1, round(left)))))
    times = []
    for _ in range(max(3, plan.repeats)):
        began = time.perf_counter()
        with Tape(path, read_only=True) as tape:
            run = tape.run()
            calls = tape.calls(run.id, turn=run.turns)
            record = tape.turn_records(run.id, up_to=1)[-1]
            opened = time.perf_counter() - began
        assert len(calls) == len(record["chains"])
        times.append(opened)
    return {
        "calls": number,
        "bytes": path.stat().st_size,
        "ms_open_and_read_a_turn": round(median(times) * 1e3, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path("tape_bench.json"), help="the JSON file")
    parser.add_argument("--quick", action="store_true", help="tiny runs: does it work at all?")
    options = parser.parse_args(arguments)
    text = json.dumps(measure(QUICK if options.quick else FULL), indent=2)
    options.out.write_text(text + "\n", encoding="utf-8")
    print(text)  # noqa: T201 - what the command is for


if __name__ == "__main__":
    main()
