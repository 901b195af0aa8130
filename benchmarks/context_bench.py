"""Measure what building prompts costs: CPU per prompt with few and many agents, five modules.

``python benchmarks/context_bench.py --out context_bench.json`` builds each agent's prompt of one
step. Each agent hears a few others; how the cost grows where one hears all is measured as well, per
reply. CPU is this process's own time, medians of the repeats.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.context import (
    AgentContextBuilder,
    BehaviorModule,
    ComposedModules,
    GameEngine,
    apply_deterministic_updates,
)
from llmsim_lab.context._scenario import CrisisScenario
from llmsim_lab.prompts._prompt import RenderedPrompt

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

_HEARD = 3
_REPLY = (
    "ASSESSMENT: The blockade tightens and talks go on. We keep our posture and watch the strait. "
    "ACTIONS: Patrols continue, no new forces. COMMUNICATIONS: We ask our allies for restraint."
)
_EVENTS = [
    {"type": "naval", "description": "Patrol vessels inspected eleven freighters"},
    {"type": "economic", "description": "Insurers raised premiums again"},
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        agents: how many agents, for each figure.
        prompts: built at least for each repeat.
        repeats: of which medians are taken.
    """

    agents: tuple[int, ...]
    prompts: int
    repeats: int


FULL = Plan(agents=(4, 100, 1000), prompts=1000, repeats=9)
QUICK = Plan(agents=(2, 4), prompts=4, repeats=1)


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    few, many = str(plan.agents[0]), str(plan.agents[-1])
    worlds = {str(number): make_world(number) for number in plan.agents}
    orders = {"usual": {}, "stable_first": {"stable_first": True}}
    us: dict[str, dict[str, float]] = {
        order: {size: measure_prompts(plan, worlds[size], options) for size in worlds}
        for order, options in orders.items()
    }
    everyone = {size: measure_everyone(plan, worlds[size]) for size in (few, many)}
    more = int(many) - int(few)
    prompt = next(iter(_building(worlds[many], {})()))
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "modules": list(worlds[few].modules.names),
        "prompt": {
            "characters": len(prompt),
            "sections": len(prompt.provenance.spans),
            "heard": min(_HEARD, int(many) - 1),
        },
        "us_per_prompt": us,
        "growth": round(us["usual"][many] / us["usual"][few], 3),
        "us_per_prompt_everyone_heard": everyone,
        "us_per_reply_heard": round((everyone[many] - everyone[few]) / more, 3),
        "us_per_agent_of_updates": measure_updates(plan, worlds[many]),
    }


@dataclass(frozen=True, slots=True)
class World:
    """A scenario's modules and engine, blown up to a number of agents."""

    scenario: CrisisScenario
    modules: ComposedModules
    engine: GameEngine


def make_world(agents: int) -> World:
    """Return the strait scenario with a fifth module and as many agents as wanted."""
    scenario = CrisisScenario.load("strait")
    code = SimpleNamespace(build_agent_context=_weather)
    weather = BehaviorModule(name="weather", code=code)
    modules = ComposedModules([*scenario.compose(), weather])
    start = scenario.agents["Taiwan"].vars
    engine = GameEngine(
        scenario.global_vars,
        {f"Agent {number}": start for number in range(agents)},
        modules,
        variables=scenario.variables,
    )
    return World(scenario, modules, engine)


def _weather(
    agent_name: str, agent_state: Mapping[str, Any], global_state: Mapping[str, Any]
) -> str:
    return (
        f"Seas are calm; {agent_name} sees clearly at crisis level {global_state['crisis_level']}."
    )


def _building(world: World, options: Mapping[str, Any]) -> Callable[[], list[RenderedPrompt]]:
    """Return a function that builds every agent's prompt of a step."""
    agents = world.engine.agents
    builder = AgentContextBuilder(
        "3 days",
        False,
        world.modules,
        variables=world.scenario.variables,
        briefing=world.scenario.briefing,
        roles=dict.fromkeys(agents, "You are a government."),
        agent_order=agents,
        **options,
    )
    state = world.engine.get_current_state()
    said = {
        agent: dict.fromkeys(agents[place - _HEARD : place + 1] or agents[: _HEARD + 1], _REPLY)
        for place, agent in enumerate(agents)
    }

    def build() -> list[RenderedPrompt]:
        return [
            builder.build_prompt(agent, 3, own, state["global_vars"], said[agent], _EVENTS)
            for agent, own in state["agent_vars"].items()
        ]

    return build


def measure_prompts(plan: Plan, world: World, options: Mapping[str, Any]) -> float:
    """Measure CPU per prompt where each agent hears a few others, microseconds."""
    agents = len(world.engine.agents)
    build = _building(world, options)
    rounds = max(1, plan.prompts // agents)
    return _median_us(plan, lambda: [build() for _ in range(rounds)], rounds * agents)


def measure_everyone(plan: Plan, world: World) -> float:
    """Measure CPU per prompt where one agent hears all others, microseconds."""
    agents = world.engine.agents
    builder = AgentContextBuilder("3 days", False, world.modules, agent_order=agents)
    state = world.engine.get_current_state()
    said = dict.fromkeys(agents, _REPLY)
    own = state["agent_vars"][agents[0]]
    number = max(1, plan.prompts // len(agents))

    def build() -> None:
        for _ in range(number):
            builder.build_prompt(agents[0], 3, own, state["global_vars"], said, _EVENTS)

    return _median_us(plan, build, number)


def measure_updates(plan: Plan, world: World) -> float:
    """Measure CPU of the modules' updates per agent, microseconds."""
    return _median_us(
        plan,
        lambda: apply_deterministic_updates(world.modules, world.engine, 1),
        len(world.engine.agents),
    )


def _median_us(plan: Plan, work: Callable[[], object], number: int) -> float:
    work()
    times = []
    for _ in range(plan.repeats):
        gc.collect()
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1e6 / number)
    return round(median(times), 2)


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures beside what they should be."""
    shown = Table("figure", "measured", "target", title="Building prompts")
    for order, sizes in figures["us_per_prompt"].items():
        for size, micros in sizes.items():
            shown.add_row(f"CPU per prompt, {size} agents, {order}", f"{micros} µs", "< 100 µs")
    shown.add_row("  many agents against few", f"{figures['growth']}", "<= 1.3")
    for size, micros in figures["us_per_prompt_everyone_heard"].items():
        shown.add_row(f"  everyone heard, {size} agents", f"{micros} µs", "")
    shown.add_row("  per reply heard", f"{figures['us_per_reply_heard']} µs", "")
    shown.add_row("updates by rule, per agent", f"{figures['us_per_agent_of_updates']} µs", "")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    command(
        arguments,
        doc=__doc__,
        out="context_bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


if __name__ == "__main__":
    main()
