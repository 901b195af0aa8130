"""The same input makes the same bytes, whatever the process's hash seed and the dicts' order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCRIPT = """
import json
from crisis_kit import crisis_client, judged
from llmsim_lab.context import CrisisSimulation, SimulatorAgent
from llmsim_lab.run.records import record_of

for stable_first in (False, True):
    run = CrisisSimulation(scenario="strait", players="rule", stable_first=stable_first)
    for turn in (1, 2, 3):
        run.run(1)
        for agent in run.scenario.agents:
            prompt = run.context_of(agent)
            print(prompt, prompt.provenance)
    engine = crisis_client([judged()])
    SimulatorAgent(run.scenario, engine).process_step(4, run.state.responses)
    print(engine.backend.requests[0].prompt, json.dumps(engine.backend.requests[0].schema))
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
