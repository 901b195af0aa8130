"""Record ``crisis.tape`` and the folder ``crisis_asked_again`` anew, with a real model.

``python data/tapes/record_crisis.py`` takes some half an hour on two cores with the embedded model
``qwen2.5-coder-1.5b``. It continues where it stopped; delete both to begin anew. The folder has
Taiwan's government asked again, with and without one module's words in its prompt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from record_tapes import HERE, pack

from llmsim_lab import LLMClient, connect
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.llm import LLMConfig
from llmsim_lab.run import load, resume
from llmsim_lab.study import Study

SETTINGS = LLMConfig(
    seed=7,
    temperature=0.7,
    num_ctx=4096,
    max_tokens=500,
    max_text_chars=300,
    timeout_s=600,
    retry_wait_s=1,
)
CONFIG = CrisisSimulation.config_type(
    name="the strait", scenario="strait", seed=7, turns=4, stable_first=True, llm=SETTINGS
)
STEPS = 2
"""Of the configuration's four; the engine's calls are long."""
SAMPLES = 3
FOLDER = HERE / "crisis_asked_again"
OUTCOMES = [
    "crisis_level",
    "blockade_effectiveness",
    "Taiwan.military_readiness",
    "actions.Taiwan",
]


def the_run(path: Path, client: LLMClient) -> None:
    """Four governments, two steps."""
    if path.exists():
        simulation = resume(path, 1, llm_client=client)
    else:
        simulation = CrisisSimulation(CONFIG, llm_client=client, tape=path)
    simulation.run(STEPS - simulation.turn_number)
    simulation.close()


def asked_again(client: LLMClient | None = None) -> Study:
    """Return the study: Taiwan's government, with the words of a module and without.

    The engine says again what it said, and the others keep their course, of which Taiwan's
    government hears only in the turn after.
    """
    crisis = load(HERE / "crisis.tape", 1)
    judged = {turn.number: turn.answers[0] for turn in crisis.turns[1:]}

    # The same text as in notebook 06, since a study finds its runs by the source too.
    def as_recorded(question):  # type: ignore[no-untyped-def]
        answer = judged[question.turn]
        return {**answer.fields, "reasoning": answer.reasoning}

    return Study.again(
        crisis,
        {"silenced": {"as it was": [], "without trust": ["trust_dynamics"]}},
        samples=SAMPLES,
        outcome=OUTCOMES,
        llm_client=client,
        players={"engine": as_recorded, "Taiwan": "model", "agent": "rule"},
        to=FOLDER,
    )


def main() -> None:
    """Record, or go on recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--tape", type=Path, default=HERE / "crisis.tape")
    arguments = parser.parse_args()
    client = connect(arguments.model, config=SETTINGS, download=True)
    the_run(arguments.tape, client)
    if not asked_again(client).run(parallel=1).counts["failed"]:
        pack(FOLDER)


if __name__ == "__main__":
    main()
