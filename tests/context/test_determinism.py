"""The same input makes the same bytes, whatever the process's hash seed and the dicts' order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCRIPT = """
import json
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.context._engine import engine_output_for, engine_prompt
from llmsim_lab.prompts import Prompt
from llmsim_lab.run.records import record_of
from llmsim_lab.types import reply_schema

for stable_first in (False, True):
    run = CrisisSimulation(scenario="strait", players="rule", stable_first=stable_first)
    for turn in (1, 2, 3):
        run.run(1)
        for agent in run.scenario.agents:
            prompt = run.context_of(agent)
            print(prompt, prompt.provenance)
    world, said = run.world(run.state), run.state.responses
    print(json.dumps(reply_schema(engine_output_for(world))))
    print(engine_prompt(Prompt.load("crisis_engine"), run.scenario, world, 4, said, []))
    print([record_of(CrisisSimulation, turn)["state"] for turn in run.turns])
    print(*run.turns[3].in_words(), run.config.model_dump_json(), run.code_digests)
"""


@pytest.mark.process
def test_two_processes_with_different_hash_seeds_make_the_same_text(
    under_two_hash_seeds: Callable[..., list[str]],
) -> None:
    one, other = under_two_hash_seeds(SCRIPT)
    assert one.count("=== YOUR DECISION ===") == 2 * 3 * 4
    assert one == other
