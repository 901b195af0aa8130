"""Measure what the framework itself costs: CPU and memory per model call, waiting, importing.

``python benchmarks/bench.py --out bench.json`` plays whole economic simulations (agent, validator
and engine: three calls per agent and turn) on a model that answers at the event loop's next turn.
A bare loop, which gathers as many calls and validates each reply with pydantic, is timed in between
in the same process, so that the ratio holds on any machine. Everything is repeated in turn and
medians are taken. CPU is this process's own time; wall time is measured only where waiting is the
point. There the agents and the validator, whose calls run at once, stand apart from the engine,
which applies actions one after another by contract.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import mean, median
from typing import Any, TypeVar

from command import command
from rich.table import Table
from workloads import (
    CALLS_PER_AGENT_TURN,
    IN_FLIGHT,
    StubBackend,
    bare_loop,
    make_simulation,
    scripted_reply,
    time_bare,
    time_turns,
)

from llmsim_lab.llm import ScriptedBackend

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

T = TypeVar("T")

_MODEL_DELAY_S = 0.02
_IMPORTS = {
    "ours": "import llmsim_lab, llmsim_lab.llm, llmsim_lab.simulation",
    "base": "import ollama, pydantic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        few: agents of the smaller runs.
        many: agents of the largest run.
        short: turns of a short run.
        long: turns of a long one; ``few * long`` is best ``many * short``.
        repeats: how often everything but imports is measured.
        import_repeats: how many fresh processes import.
    """

    few: int
    many: int
    short: int
    long: int
    repeats: int
    import_repeats: int


FULL = Plan(few=100, many=1000, short=10, long=100, repeats=5, import_repeats=9)
QUICK = Plan(few=2, many=4, short=5, long=10, repeats=1, import_repeats=1)


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "load_1_min_before": round(os.getloadavg()[0], 2)
            if hasattr(os, "getloadavg")
            else None,
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("llmsim-lab", "ollama", "pydantic")},
        },
        "cpu": measure_cpu(plan),
        "memory": measure_memory(plan),
        "waiting": measure_waiting(plan),
        "import": measure_import(plan),
    }


def measure_cpu(plan: Plan) -> dict[str, Any]:
    """Measure CPU per model call, and how it grows with agents and with turns.

    A turn's figure is the typical one; the mean over a run also has the garbage collector's rare
    full passes, whose cost follows from how many objects a run keeps. Growth with agents is judged
    by means of two runs that keep equally much.
    """
    bare: list[float] = []
    by_turn: list[float] = []
    slowest: list[float] = []
    others: dict[str, list[float]] = {"scripted": [], "rules": []}
    sizes = [(max(1, plan.few // 10), plan.short), (plan.few, plan.short)]
    sizes += [(plan.many, plan.short), (plan.few, plan.long)]
    typical: dict[str, list[float]] = {f"{agents}x{turns}": [] for agents, turns in sizes}
    means: dict[str, list[float]] = {size: [] for size in typical}
    _run(time_bare(CALLS_PER_AGENT_TURN))
    _run(time_turns(1, 2, StubBackend()))
    for _ in range(plan.repeats):
        for agents, turns in sizes:
            bare.append(_run(time_bare(plan.few * CALLS_PER_AGENT_TURN)))
            times = _run(time_turns(agents, turns, StubBackend()))
            typical[f"{agents}x{turns}"].append(median(times) / CALLS_PER_AGENT_TURN)
            means[f"{agents}x{turns}"].append(mean(times) / CALLS_PER_AGENT_TURN)
        by_turn.append(_late_against_early(times))
        slowest.append(max(times) / median(times))
        times = _run(time_turns(plan.few, plan.short, ScriptedBackend(scripted_reply)))
        others["scripted"].append(median(times) / CALLS_PER_AGENT_TURN)
        others["rules"].append(median(_run(time_turns(plan.few, plan.short, None))))
    many, long = f"{plan.many}x{plan.short}", f"{plan.few}x{plan.long}"
    return {
        "us_per_call": {size: _rounded(typical[size]) for size in typical},
        "us_per_call_mean": {size: _rounded(means[size]) for size in means},
        "us_per_call_best": {size: round(min(typical[size]), 2) for size in typical},
        "us_per_call_scripted_backend": _rounded(others["scripted"]),
        "us_per_call_bare_loop": _rounded(bare),
        "us_per_call_bare_loop_best": round(min(bare), 2),
        "ratio_to_bare_loop": round(median(typical[long]) / median(bare), 2),
        "us_per_agent_turn_without_model": _rounded(others["rules"]),
        "growth_with_agents": round(median(means[many]) / median(means[long]), 3),
        "growth_with_turns": round(median(by_turn), 3),
        "slowest_turn_to_median": round(median(slowest), 2),
    }


def _late_against_early(times: list[float]) -> float:
    """Compare the last tenth of a run's turns with a tenth around the tenth turn of a hundred."""
    width = max(1, len(times) // 10)
    return median(times[-width:]) / median(times[width // 2 : width // 2 + width])


def measure_memory(plan: Plan) -> dict[str, int]:
    """Measure what a run keeps in memory, bytes per model call and per agent and turn."""
    agent_turns = plan.few * plan.short

    async def ours() -> tuple[int, int]:
        simulation = make_simulation(plan.few, StubBackend())
        await simulation.step()
        before = await _traced_bytes()
        for _ in range(plan.short):
            await simulation.step()
        kept = await _traced_bytes() - before
        texts = [
            text
            for turn in simulation.turns[-plan.short :]
            for call in turn.calls
            for text in (call.request.messages[-1].content, call.reply.text if call.reply else "")
        ]
        return kept, sum(map(sys.getsizeof, texts))

    async def bare() -> int:
        await bare_loop(1)
        before = await _traced_bytes()
        kept = await bare_loop(agent_turns * CALLS_PER_AGENT_TURN)
        after = await _traced_bytes()
        del kept
        return after - before

    tracemalloc.start()
    try:
        (bytes_ours, bytes_texts), bytes_bare = _run(ours()), _run(bare())
    finally:
        tracemalloc.stop()
    return {
        "bytes_per_call": round(bytes_ours / agent_turns / CALLS_PER_AGENT_TURN),
        "bytes_per_call_beyond_texts": round(
            (bytes_ours - bytes_texts) / agent_turns / CALLS_PER_AGENT_TURN
        ),
        "bytes_per_agent_turn": round(bytes_ours / agent_turns),
        "bytes_per_call_bare_loop": round(bytes_bare / agent_turns / CALLS_PER_AGENT_TURN),
    }


async def _traced_bytes() -> int:
    await asyncio.sleep(0)  # lets the loop drop finished tasks
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def measure_waiting(plan: Plan) -> dict[str, Any]:
    """Measure wall time against the ideal, with a model that takes 20 ms, 16 calls in flight."""
    calls = IN_FLIGHT * plan.short
    ideal_s = plan.short * _MODEL_DELAY_S
    shares: dict[str, list[float]] = {"agents": [], "validator": [], "engine": [], "bare_loop": []}

    async def once() -> None:
        simulation = make_simulation(calls, StubBackend(_MODEL_DELAY_S))
        state, validator = simulation.state, simulation.validator
        marks = [time.perf_counter()]
        actions = await asyncio.gather(*[a.decide_action(state) for a in simulation.agents])
        marks.append(time.perf_counter())
        validated = await validator.validate_actions(actions, state)
        marks.append(time.perf_counter())
        await simulation.engine.run_turn(validated[: plan.short])
        marks.append(time.perf_counter())
        await bare_loop(calls, _MODEL_DELAY_S)
        marks.append(time.perf_counter())
        for who, began, ended in zip(shares, marks, marks[1:], strict=False):
            shares[who].append(ideal_s / (ended - began))

    for _ in range(plan.repeats):
        _run(once())
    return {
        "model_delay_s": _MODEL_DELAY_S,
        "in_flight": IN_FLIGHT,
        "calls": calls,
        "share_of_ideal": {who: round(median(values), 3) for who, values in shares.items()},
        "note": (
            "agents and validator ask at once; the engine applies actions one after another by "
            f"contract, so its ideal is one delay per action ({plan.short} actions)"
        ),
    }


def measure_import(plan: Plan) -> dict[str, float]:
    """Measure the CPU time of importing the package in fresh processes, beside its base."""
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for repeat in range(plan.import_repeats + 1):
        for name, statement in _IMPORTS.items():
            code = (
                f"import time; t = time.process_time(); {statement}; print(time.process_time() - t)"
            )
            command = [sys.executable, "-c", code]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            if repeat:  # the first may have had to compile
                times[name].append(float(answer.stdout) * 1e3)
    return {
        "ms": _rounded(times["ours"]),
        "ms_ollama_and_pydantic": _rounded(times["base"]),
        "ratio": round(median(times["ours"]) / median(times["base"]), 2),
    }


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures beside what they should be."""
    cpu, memory, shares = figures["cpu"], figures["memory"], figures["waiting"]["share_of_ideal"]
    shown = Table("figure", "measured", "target", title="The framework's own cost")
    for size, micros in cpu["us_per_call"].items():
        whole = cpu["us_per_call_mean"][size]
        name = f"CPU per model call, {size} agents x turns"
        shown.add_row(name, f"{micros} µs (mean {whole})", "< 40 µs")
    for name, measured, target in (
        ("  with ScriptedBackend", f"{cpu['us_per_call_scripted_backend']} µs", "< 40 µs"),
        ("  bare loop of gather and pydantic", f"{cpu['us_per_call_bare_loop']} µs", ""),
        ("  ratio to the bare loop", f"{cpu['ratio_to_bare_loop']}", "<= 4"),
        ("  many agents against few", f"{cpu['growth_with_agents']}", "<= 1.15"),
        ("  late turns against early ones", f"{cpu['growth_with_turns']}", "<= 1.05"),
        ("  slowest turn against the typical one", f"{cpu['slowest_turn_to_median']}", "<= 3"),
        ("CPU per agent-turn, no model", f"{cpu['us_per_agent_turn_without_model']} µs", ""),
        ("kept per model call", f"{memory['bytes_per_call']} B", ""),
        ("  beyond its texts", f"{memory['bytes_per_call_beyond_texts']} B", "<= 1200 B"),
        ("kept per agent-turn (3 calls)", f"{memory['bytes_per_agent_turn']} B", ""),
        ("kept per call by the bare loop", f"{memory['bytes_per_call_bare_loop']} B", ""),
        ("share of ideal wall time, agents", f"{shares['agents']:.1%}", ">= 90%"),
        ("share of ideal wall time, validator", f"{shares['validator']:.1%}", ">= 90%"),
        ("share of ideal wall time, engine", f"{shares['engine']:.1%}", ">= 90%"),
        ("share of ideal wall time, bare loop", f"{shares['bare_loop']:.1%}", ""),
        ("import against ollama and pydantic", f"{figures['import']['ratio']}", "<= 1.3"),
    ):
        shown.add_row(name, measured, target)
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    command(
        arguments,
        doc=__doc__,
        out="bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


def _rounded(times: Sequence[float]) -> float:
    return round(median(times), 2)


def _run(work: Coroutine[Any, Any, T]) -> T:
    gc.collect()
    return asyncio.run(work)


if __name__ == "__main__":
    main()
