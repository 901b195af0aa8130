"""Measure what the framework itself costs: CPU and memory per model call, waiting, importing.

``python benchmarks/bench.py --out bench.json`` plays whole economic simulations (agent, validator
and engine: three calls per agent and turn) on a model that answers at the event loop's next turn.
Everything is measured beside a bare loop in the same run, which gathers the same number of calls
and validates each reply with pydantic, so that the ratio holds on any machine. Repeats are
interleaved and medians taken. CPU is the process's own time, wall time is measured only where
waiting is the point; there the agents and validators, which run at once, stand apart from the
engine, which applies actions one after another by contract.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from llmsim_lab.calls import ChatBackend, ChatReply, ChatRequest, ModelInfo
from llmsim_lab.llm import LLMClient, ScriptedBackend
from llmsim_lab.simulation import Simulation, SimulationConfig

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

T = TypeVar("T")

CALLS_PER_AGENT_TURN = 3
IN_FLIGHT = 16
MODEL_DELAY_S = 0.02
REPLIES = {
    "agent": '"action": "Raise the interest rate by 25 basis points", "confidence": 0.8, ',
    "validator": '"is_valid": true, "confidence": 0.9, ',
    "engine": '"new_interest_rate": 4.0, "confidence": 0.75, ',
}
IMPORTS = {
    "ours": "import llmsim_lab, llmsim_lab.llm, llmsim_lab.simulation",
    "base": "import ollama, pydantic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        sizes: runs to time, agents and turns each; the last one serves for growth with turns.
        growth_sizes: agents of the two runs among them that show growth with agents.
        memory_size: agents and turns of the run whose memory is measured.
        waiting_agents: agents of the run with a slow model; a multiple of the calls in flight.
        repeats: how often everything is measured.
        import_repeats: how many fresh processes import each.
    """

    sizes: tuple[tuple[int, int], ...]
    growth_sizes: tuple[int, int]
    memory_size: tuple[int, int]
    waiting_agents: int
    repeats: int
    import_repeats: int


FULL = Plan(
    sizes=((10, 10), (100, 10), (1000, 10), (100, 100)),
    growth_sizes=(100, 1000),
    memory_size=(100, 20),
    waiting_agents=10 * IN_FLIGHT,
    repeats=5,
    import_repeats=9,
)
QUICK = Plan(
    sizes=((2, 2), (4, 2), (2, 10)),
    growth_sizes=(2, 4),
    memory_size=(2, 3),
    waiting_agents=IN_FLIGHT,
    repeats=1,
    import_repeats=1,
)


class StubBackend:
    """A model that answers by the component that asks, each time with a text of its own.

    Args:
        delay_s: how long an answer takes; at 0 it comes at the event loop's next turn.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.calls = 0

    async def chat(self, request: ChatRequest) -> ChatReply:
        await asyncio.sleep(self.delay_s)
        self.calls += 1
        component = request.site.component if request.site else "agent"
        return ChatReply(text=_reply(component, self.calls), prompt_tokens=250, reply_tokens=40)

    async def model_info(self) -> ModelInfo:
        return ModelInfo(name="stub", backend="stub")

    async def aclose(self) -> None:
        pass


def _reply(component: str, number: int) -> str:
    return f'{{{REPLIES[component]}"reasoning": "Inflation is above its target in case {number}."}}'


class BareReply(BaseModel):
    """What the bare loop validates replies with."""

    action: str
    reasoning: str
    confidence: float


async def bare_loop(calls: int, delay_s: float = 0.0) -> list[tuple[str, BareReply]]:
    """Do the least anybody must: ask all at once, 16 in flight, and validate each reply."""
    limiter = asyncio.Semaphore(IN_FLIGHT)

    async def ask(number: int) -> tuple[str, BareReply]:
        prompt = f"You advise nation {number}. Inflation: {4.25:.2f}%. Propose one action."
        async with limiter:
            await asyncio.sleep(delay_s)
            text = _reply("agent", number)
        return prompt, BareReply.model_validate_json(text)

    return await asyncio.gather(*[ask(number) for number in range(calls)])


def make_simulation(agents: int, backend: ChatBackend | None) -> Simulation:
    """Return a run of so many nations; without a backend they follow the Taylor rule."""
    kind = "taylor" if backend is None else "llm"
    config = SimulationConfig.model_validate(
        {
            "nations": [{"name": f"Nation {n}", "kind": kind} for n in range(agents)],
            "validator": {"kind": "always_valid" if backend is None else "llm"},
            "llm": {"model": "stub", "max_concurrency": IN_FLIGHT},
        }
    )
    client = None if backend is None else LLMClient(config.llm, backend=backend)
    return Simulation(config, llm_client=client)


async def time_turns(agents: int, turns: int, backend: ChatBackend | None) -> list[float]:
    """Return the CPU time of each turn, microseconds per agent."""
    simulation = make_simulation(agents, backend)
    times = []
    for _ in range(turns):
        began = time.process_time()
        await simulation.step()
        times.append((time.process_time() - began) / agents * 1e6)
    return times


async def time_bare(calls: int) -> float:
    """Return the bare loop's CPU time, microseconds per call."""
    began = time.process_time()
    await bare_loop(calls)
    return (time.process_time() - began) / calls * 1e6


def _windows(times: list[float]) -> tuple[float, float]:
    """Return the medians around turn 10 and turn 100 of 100, and in like places of other runs."""
    width = max(1, len(times) // 10)
    return median(times[width // 2 : width // 2 + width]), median(times[-width:])


def measure_cpu(plan: Plan) -> dict[str, Any]:
    """Measure CPU per model call, and how it grows with agents and with turns."""
    bare: list[float] = []
    per_call: dict[str, list[float]] = {f"{a}x{t}": [] for a, t in plan.sizes}
    scripted: list[float] = []
    rules: list[float] = []
    by_turn: list[float] = []
    agents_small, agents_large = plan.growth_sizes
    long_agents, long_turns = plan.sizes[-1]
    short_turns = plan.sizes[0][1]
    _run(time_bare(2 * IN_FLIGHT))
    _run(time_turns(2, 2, StubBackend()))
    for _ in range(plan.repeats):
        for agents, turns in plan.sizes:
            bare.append(_run(time_bare(max(agents, 100) * CALLS_PER_AGENT_TURN)))
            times = _run(time_turns(agents, turns, StubBackend()))
            per_call[f"{agents}x{turns}"].append(median(times) / CALLS_PER_AGENT_TURN)
            if (agents, turns) == plan.sizes[-1]:
                early, late = _windows(times)
                by_turn.append(late / early)
        backend = ScriptedBackend(_scripted_reply)
        times = _run(time_turns(long_agents, short_turns, backend))
        scripted.append(median(times) / CALLS_PER_AGENT_TURN)
        rules.append(median(_run(time_turns(long_agents, short_turns, None))))
    small = median(per_call[f"{agents_small}x{short_turns}"])
    large = median(per_call[f"{agents_large}x{short_turns}"])
    ours = median(per_call[f"{long_agents}x{long_turns}"])
    return {
        "us_per_call": {size: round(median(times), 2) for size, times in per_call.items()},
        "us_per_call_scripted_backend": round(median(scripted), 2),
        "us_per_call_bare_loop": round(median(bare), 2),
        "ratio_to_bare_loop": round(ours / median(bare), 2),
        "us_per_agent_turn_without_model": round(median(rules), 2),
        "growth_with_agents": round(large / small, 3),
        "growth_with_turns": round(median(by_turn), 3),
    }


def _scripted_reply(request: ChatRequest) -> str:
    return _reply(request.site.component if request.site else "agent", 0)


def measure_memory(plan: Plan) -> dict[str, float]:
    """Measure what a run keeps in memory, bytes per model call and per agent and turn."""
    agents, turns = plan.memory_size
    bare_calls = agents * turns * CALLS_PER_AGENT_TURN

    async def ours() -> float:
        simulation = make_simulation(agents, StubBackend())
        await simulation.step()
        before = _traced()
        for _ in range(turns):
            await simulation.step()
        return _traced() - before

    async def bare() -> float:
        await bare_loop(1)
        before = _traced()
        kept = await bare_loop(bare_calls)
        after = _traced()
        del kept
        return after - before

    tracemalloc.start()
    try:
        per_agent_turn = _run(ours()) / (agents * turns)
        per_bare_call = _run(bare()) / bare_calls
    finally:
        tracemalloc.stop()
    return {
        "bytes_per_call": round(per_agent_turn / CALLS_PER_AGENT_TURN),
        "bytes_per_agent_turn": round(per_agent_turn),
        "bytes_per_call_bare_loop": round(per_bare_call),
    }


def _traced() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def measure_waiting(plan: Plan) -> dict[str, Any]:
    """Measure wall time against the ideal, with a model that takes 20 ms, 16 calls in flight."""
    calls = plan.waiting_agents
    at_once_s = calls / IN_FLIGHT * MODEL_DELAY_S
    one_by_one = min(calls, 2 * IN_FLIGHT)
    shares: dict[str, list[float]] = {"agents": [], "validator": [], "engine": [], "bare_loop": []}

    async def once() -> None:
        simulation = make_simulation(calls, StubBackend(MODEL_DELAY_S))
        state = simulation.state
        began = time.perf_counter()
        actions = await asyncio.gather(*[a.decide_action(state) for a in simulation.agents])
        decided = time.perf_counter()
        actions = await simulation.validator.validate_actions(actions, state)
        validated = time.perf_counter()
        await simulation.engine.run_turn(actions[:one_by_one])
        applied = time.perf_counter()
        await bare_loop(calls, MODEL_DELAY_S)
        done = time.perf_counter()
        shares["agents"].append(at_once_s / (decided - began))
        shares["validator"].append(at_once_s / (validated - decided))
        shares["engine"].append(one_by_one * MODEL_DELAY_S / (applied - validated))
        shares["bare_loop"].append(at_once_s / (done - applied))

    for _ in range(plan.repeats):
        _run(once())
    return {
        "model_delay_s": MODEL_DELAY_S,
        "in_flight": IN_FLIGHT,
        "calls": calls,
        "share_of_ideal": {who: round(median(values), 3) for who, values in shares.items()},
        "note": (
            "agents and validator run at once; the engine applies actions one after another by "
            "contract, so its ideal is one delay per action"
        ),
    }


def measure_import(plan: Plan) -> dict[str, float]:
    """Measure the CPU time of importing the package in fresh processes, beside its base."""
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for repeat in range(plan.import_repeats + 1):
        for name, statement in IMPORTS.items():
            code = f"import time; t = time.process_time(); {statement}; t = time.process_time() - t"
            command = [sys.executable, "-c", f"{code}; print(t)"]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            if repeat:  # the first one may have had to compile
                times[name].append(float(answer.stdout) * 1e3)
    ours, base = median(times["ours"]), median(times["base"])
    return {
        "ms": round(ours, 1),
        "ms_ollama_and_pydantic": round(base, 1),
        "ratio": round(ours / base, 2),
    }


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "load_1_min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("llmsim-lab", "ollama", "pydantic")},
        },
        "cpu": measure_cpu(plan),
        "memory": measure_memory(plan),
        "waiting": measure_waiting(plan),
        "import": measure_import(plan),
    }


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures beside what they should be."""
    cpu, memory, waiting = figures["cpu"], figures["memory"], figures["waiting"]
    shown = Table("figure", "measured", "target", title="The framework's own cost")
    for size, micros in cpu["us_per_call"].items():
        shown.add_row(f"CPU per model call, {size} agents x turns", f"{micros} µs", "< 60 µs")
    rows = (
        ("  with ScriptedBackend", f"{cpu['us_per_call_scripted_backend']} µs", "< 60 µs"),
        ("  bare loop of gather and pydantic", f"{cpu['us_per_call_bare_loop']} µs", ""),
        ("  ratio to the bare loop", f"{cpu['ratio_to_bare_loop']}", "<= 4"),
        ("  many agents against few", f"{cpu['growth_with_agents']}", "<= 1.3"),
        ("  late turns against early ones", f"{cpu['growth_with_turns']}", "<= 1.1"),
        (
            "CPU per agent and turn without a model",
            f"{cpu['us_per_agent_turn_without_model']} µs",
            "",
        ),
        ("kept per model call", f"{memory['bytes_per_call']} B", "<= 1200 B"),
        ("kept per agent and turn (3 calls)", f"{memory['bytes_per_agent_turn']} B", ""),
        ("kept per call by the bare loop", f"{memory['bytes_per_call_bare_loop']} B", ""),
        *(
            (f"share of ideal wall time, {who}", f"{share:.1%}", target)
            for (who, share), target in zip(
                waiting["share_of_ideal"].items(), (">= 90%", ">= 90%", ">= 90%", ""), strict=True
            )
        ),
        ("import against ollama and pydantic", f"{figures['import']['ratio']}", "<= 1.5"),
    )
    for row in rows:
        shown.add_row(*row)
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="the JSON file")
    parser.add_argument("--quick", action="store_true", help="tiny runs: does it work at all?")
    options = parser.parse_args(arguments)
    figures = measure(QUICK if options.quick else FULL)
    options.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    console = Console()
    console.print(table(figures))
    console.print(f"All figures: {options.out}")


def _run(work: Coroutine[Any, Any, T]) -> T:
    gc.collect()
    return asyncio.run(work)


if __name__ == "__main__":
    main()
