"""Measure what the framework itself costs: CPU per model call, on tape too, growth, importing.

``python benchmarks/bench.py --out bench.json`` plays whole economic simulations (agent, validator
and engine: three calls per agent and turn) on a model that answers at the event loop's next turn.
A bare loop, which gathers as many calls and validates each reply with pydantic, is timed in between
in the same process, so that the ratio holds on any machine. Everything is repeated in turn and
medians are taken. CPU is this process's own time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeVar

from command import command
from pydantic import BaseModel, Field
from rich.table import Table

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.run import Ask, Run, State, load, replay
from llmsim_lab.run._kept import kept_state
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import ChatReply, ChatRequest, ModelInfo, Reply

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

T = TypeVar("T")

CALLS = 3
"""Per agent and turn: one each of agent, validator and engine."""
_READINGS = 10
"""A single one is too short for the clock."""
IN_FLIGHT = 16
_REPLIES = {
    "agent": '"action": "Raise the interest rate by 25 basis points", "confidence": 0.8, ',
    "validator": '"is_valid": true, "confidence": 0.9, ',
    "engine": '"new_interest_rate": 4.0, "confidence": 0.75, ',
}
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


# --- what is played -------------------------------------------------------------------------------


def _reply(component: str, number: int) -> str:
    reasoning = f"Inflation is above its target in case {number}."
    return f'{{{_REPLIES[component]}"reasoning": "{reasoning}"}}'


class StubBackend:
    """A model that answers by the component that asks, each time with a text of its own."""

    def __init__(self) -> None:
        self._calls = 0

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Answer one request."""
        await asyncio.sleep(0)
        self._calls += 1
        component = request.site.component if request.site else "agent"
        return ChatReply(text=_reply(component, self._calls), prompt_tokens=250, reply_tokens=40)

    async def model_info(self) -> ModelInfo:
        """Say that a stub answers."""
        return ModelInfo(name="stub", backend="stub")


class BareReply(BaseModel):
    """What the bare loop validates replies with."""

    action: str
    reasoning: str
    confidence: float


async def time_bare(calls: int) -> float:
    """Do the least anybody must: ask all at once, 16 in flight, and validate each reply.

    Returns:
        The CPU time, microseconds per call.
    """
    limiter = asyncio.Semaphore(IN_FLIGHT)

    async def ask(number: int) -> tuple[str, BareReply]:
        prompt = f"You advise nation {number}. Inflation: {4.25:.2f}%. Propose one action."
        async with limiter:
            await asyncio.sleep(0)
            text = _reply("agent", number)
        return prompt, BareReply.model_validate_json(text)

    began = time.process_time()
    await asyncio.gather(*[ask(number) for number in range(calls)])
    return (time.process_time() - began) / calls * 1e6


class Purses(State):
    """What the players of ``Giving`` have."""

    coins: dict[str, float] = Field(default_factory=dict)
    given: dict[str, int] = Field(default_factory=dict)


class Gift(Reply):
    """How much a player gives."""

    amount: int = Field(ge=0, le=20)


class Giving(Run[Purses]):
    """Each turn every player gives something: a world of a user's own, as small as they come."""

    kind = "bench:Giving"
    players_count: int = 10

    def start(self) -> Purses:
        """Give each player as much."""
        return Purses(coins={f"Player {number}": 20.0 for number in range(self.players_count)})

    async def turn(self, state: Purses, ask: Ask) -> Purses:
        """Ask all, and note what they gave."""
        gifts = await ask.each(state.coins, Gift, "You are {{ name }}. What do you give?")
        return state.replace(
            coins={name: coins + 0.1 for name, coins in state.coins.items()},
            given={name: gift.amount for name, gift in gifts.items()},
        )


async def share_of_reading_back(run: Any, turns: int) -> float:
    """Play turns; return how much of a turn goes into reading its state back as from a tape."""
    played, read_back = list[float](), list[float]()
    for _ in range(turns):
        began = time.process_time()
        await run.step()
        played.append(time.process_time() - began)
        began = time.process_time()
        for _ in range(_READINGS):
            kept_state(run.state, run.state_type, run.turns[-1].calls)
        read_back.append((time.process_time() - began) / _READINGS)
    return median(read_back) / median(played)


async def time_turns(
    agents: int, turns: int, *, rules: bool = False, tape: Tape | None = None
) -> list[float]:
    """Play a run and return the CPU time of each turn, microseconds per agent."""
    config = SimulationConfig.model_validate(
        {
            "nations": [f"Nation {number}" for number in range(agents)],
            "players": "rule" if rules else {},
            "llm": {"model": "stub", "max_concurrency": IN_FLIGHT},
            "moves_bp": None,  # else the engine would ask nothing
            "committee": "sequential",
            "economy": {"shock_scale": 0},
        }
    )
    client = None if rules else LLMClient(config.llm, backend=StubBackend())
    simulation = Simulation(config, llm_client=client, tape=tape)
    times = []
    for _ in range(turns):
        began = time.process_time()
        await simulation.step()
        times.append((time.process_time() - began) / agents * 1e6)
    return times


# --- what is measured -----------------------------------------------------------------------------


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
        "tape": measure_tape(plan),
        "read_back_pct_of_turn": measure_reading_back(plan),
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
    rules: list[float] = []
    sizes = [(max(1, plan.few // 10), plan.short), (plan.few, plan.short)]
    sizes += [(plan.many, plan.short), (plan.few, plan.long)]
    typical: dict[str, list[float]] = {f"{agents}x{turns}": [] for agents, turns in sizes}
    means: dict[str, list[float]] = {size: [] for size in typical}
    _run(time_bare(CALLS))
    _run(time_turns(1, 2))
    for _ in range(plan.repeats):
        for agents, turns in sizes:
            bare.append(_run(time_bare(plan.few * CALLS)))
            times = _run(time_turns(agents, turns))
            typical[f"{agents}x{turns}"].append(median(times) / CALLS)
            means[f"{agents}x{turns}"].append(mean(times) / CALLS)
        by_turn.append(_late_against_early(times))
        rules.append(median(_run(time_turns(plan.few, plan.short, rules=True))))
    many, long = f"{plan.many}x{plan.short}", f"{plan.few}x{plan.long}"
    return {
        "us_per_call": {size: _rounded(typical[size]) for size in typical},
        "us_per_call_mean": {size: _rounded(means[size]) for size in means},
        "us_per_call_bare_loop": _rounded(bare),
        "ratio_to_bare_loop": round(median(typical[long]) / median(bare), 2),
        "us_per_agent_turn_without_model": _rounded(rules),
        "growth_with_agents": round(median(means[many]) / median(means[long]), 3),
        "growth_with_turns": round(median(by_turn), 3),
    }


def _late_against_early(times: list[float]) -> float:
    """Compare the last tenth of a run's turns with a tenth around the tenth turn of a hundred."""
    width = max(1, len(times) // 10)
    return median(times[-width:]) / median(times[width // 2 : width // 2 + width])


def measure_tape(plan: Plan) -> dict[str, float]:
    """Measure CPU per call with and without a tape, the file's size, and replaying and loading."""
    without, recorded = list[float](), list[float]()
    verbs: dict[str, list[float]] = {"replay": [], "load": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tape"
        for _ in range(plan.repeats):
            without.append(median(_run(time_turns(plan.few, plan.long))) / CALLS)
            path.unlink(missing_ok=True)
            with Tape(path) as tape:
                recorded.append(median(_run(time_turns(plan.few, plan.long, tape=tape))) / CALLS)
            for name, verb in (("replay", replay), ("load", load)):
                gc.collect()
                began = time.process_time()
                verb(path)
                seconds = time.process_time() - began
                verbs[name].append(seconds / plan.long / plan.few / CALLS * 1e6)
        with Tape(path, read_only=True) as tape:
            calls = tape.run().calls
        size = path.stat().st_size
    return {
        "us_per_call_without": _rounded(without),
        "us_per_call_recorded": _rounded(recorded),
        "us_per_call_added": round(median(recorded) - median(without), 2),
        "us_per_call_replayed": _rounded(verbs["replay"]),
        "us_per_call_loaded": _rounded(verbs["load"]),
        "calls": calls,
        "bytes_per_call": round(size / calls),
    }


def measure_reading_back(plan: Plan) -> dict[str, float]:
    """Measure which share of a turn goes into reading its state back, percent.

    Both are timed in one run, in turn. With a tape the state is not written a second time.
    """

    def gift(question: Any) -> Gift:
        return Gift(amount=1, reasoning="r", confidence=1)

    def client() -> LLMClient:
        reply = {"reasoning": "r", "amount": 1, "confidence": 1}
        return LLMClient(LLMConfig(model="script"), ScriptedBackend(reply))

    shares: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(plan.repeats):
            for count in (10, 100):
                by_rule: dict[str, Any] = {"players_count": count, "players": {"*": gift}}
                runs = {
                    f"rules, {count} players, no tape": Giving(**by_rule),
                    f"rules, {count} players, tape": Giving(
                        **by_rule, tape=Path(folder) / f"{count}-{repeat}.tape"
                    ),
                    f"model, {count} players, no tape": Giving(
                        players_count=count, llm_client=client()
                    ),
                }
                for name, run in runs.items():
                    share = _run(share_of_reading_back(run, plan.long))
                    shares.setdefault(name, []).append(share * 100)
    return {name: _rounded(found) for name, found in shares.items()}


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
    cpu, tape = figures["cpu"], figures["tape"]
    shown = Table("figure", "measured", "target", title="The framework's own cost")
    for size, micros in cpu["us_per_call"].items():
        whole = cpu["us_per_call_mean"][size]
        name = f"CPU per model call, {size} agents x turns"
        shown.add_row(name, f"{micros} µs (mean {whole})", "< 40 µs")
    for name, percent in figures["read_back_pct_of_turn"].items():
        target = "<= 15 %" if name.startswith("rules") else "<= 5 %"
        shown.add_row(f"reading a state back: {name}", f"{percent} % of a turn", target)
    for name, measured, target in (
        ("  bare loop of gather and pydantic", f"{cpu['us_per_call_bare_loop']} µs", ""),
        ("  ratio to the bare loop", f"{cpu['ratio_to_bare_loop']}", "<= 4"),
        ("  many agents against few", f"{cpu['growth_with_agents']}", "<= 1.15"),
        ("  late turns against early ones", f"{cpu['growth_with_turns']}", "<= 1.05"),
        ("CPU per agent-turn, no model", f"{cpu['us_per_agent_turn_without_model']} µs", ""),
        ("added per call by a tape", f"{tape['us_per_call_added']} µs", ""),
        ("  replayed", f"{tape['us_per_call_replayed']} µs", ""),
        ("  loaded", f"{tape['us_per_call_loaded']} µs", ""),
        ("  bytes", f"{tape['bytes_per_call']}", ""),
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
