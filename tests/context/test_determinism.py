"""The same input makes the same bytes, whatever the process's hash seed and the dicts' order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCRIPT = """
import json, sys
from llmsim_lab.context import CrisisSimulation, apply_deterministic_updates
from llmsim_lab.context._engine import engine_output_for, engine_prompt
from llmsim_lab.context._scenario import CrisisScenario
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._records import record_of
from llmsim_lab.types import reply_schema

for name in ("strait",):
    scenario = CrisisScenario.load(name)
    modules = scenario.compose()
    engine = scenario.engine(modules)
    events = [event.model_dump() for event in scenario.events]
    for step in (1, 2, 3):
        records = apply_deterministic_updates(modules, engine, step)
        state = engine.get_current_state()
        said = {agent: f"{agent} waits." for agent in scenario.agents}
        for options in ({}, {"stable_first": True}):
            builder = scenario.builder(modules, **options)
            for agent, own in state["agent_vars"].items():
                prompt = builder.build_prompt(
                    agent, step, own, state["global_vars"], said, events
                )
                print(prompt, prompt.provenance)
        print(records)
    print(json.dumps(reply_schema(engine_output_for(engine))))
    simulation = CrisisSimulation(scenario=name, players="rule")
    simulation.run(3)
    world, said = simulation.world(simulation.state), simulation.state.responses
    prompt = Prompt.load("crisis_engine")
    print(engine_prompt(prompt, scenario, world, step_number=4, responses=said, events=[]))
    records = [record_of(CrisisSimulation, turn)["state"] for turn in simulation.turns]
    print(records, simulation.series)
    print(simulation.config.model_dump_json(), simulation.code_digests)
"""


@pytest.mark.process
def test_two_processes_with_different_hash_seeds_make_the_same_text(
    under_two_hash_seeds: Callable[..., list[str]],
) -> None:
    one, other = under_two_hash_seeds(SCRIPT)
    assert one.count("=== YOUR DECISION ===") == 3 * 2 * 4
    assert one == other
