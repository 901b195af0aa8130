"""Record ``crisis.tape`` anew, with a real model.

``python data/tapes/record_crisis.py`` takes some half an hour on two cores with the embedded model
``qwen2.5-coder-1.5b``. It goes on where it stopped; delete the tape to begin anew. Run 1 is the
crisis; runs 2 and 3 ask Taiwan's government again, with another prompt.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from record_tapes import HERE, pack

from llmsim_lab import LLMClient, connect
from llmsim_lab.context import BehaviorModule, CrisisConfig, CrisisSimulation
from llmsim_lab.llm import LLMConfig, Tape
from llmsim_lab.run import load, resume
from llmsim_lab.study import Ablation
from llmsim_lab.study._ablation import AblationConfig, PromptText

SETTINGS = LLMConfig(
    seed=7,
    temperature=0.7,
    num_ctx=4096,
    max_tokens=500,
    max_text_chars=200,
    timeout_s=600,
    retry_wait_s=1,
)
CONFIG = CrisisConfig(
    name="the strait", scenario="strait", seed=7, turns=4, stable_first=True, llm=SETTINGS
)
STEPS = 2
"""Of the configuration's four; the engine's calls are long."""
ASKED_AGAIN = STEPS
SAMPLES = {"thin against rich": 4, "without fuel": 3}
"""How many are played; the configuration of both says three."""
THIN = (
    "You are the government of Taiwan.\n\nOur government is mobilizing defenses and seeking "
    "international support amid the blockade.\n\n"
)
"""What an agent got before there was a context builder: one sentence."""


def the_run(path: Path, client: LLMClient) -> None:
    """Four governments, two steps."""
    if path.exists():
        simulation = resume(path, 1, llm_client=client)
    else:
        simulation = CrisisSimulation(CONFIG, llm_client=client, tape=path)
    simulation.run(
        STEPS - simulation.turn_number,
        on_turn=lambda turn: sys.stderr.write(f"step {turn.number}\n"),
    )
    simulation.close()


def the_crisis(path: Path) -> CrisisSimulation:
    """Return run 1 as it was recorded."""
    return cast("CrisisSimulation", load(path, 1))


def thin_against_rich(simulation: CrisisSimulation) -> AblationConfig:
    """Return the prompt of a step against one sentence."""
    rich = simulation.context_of("Taiwan", ASKED_AGAIN)
    asked = rich[rich.index("=== YOUR DECISION") : rich.index("=== SITUATION")].strip()
    prompts = {"rich": PromptText.of(rich), "thin": PromptText.of(THIN + asked)}
    return comparison("thin against rich", prompts)


def with_and_without_fuel(simulation: CrisisSimulation) -> AblationConfig:
    """Return the prompt of a step with one more module, against as it was."""
    more = simulation.context_of("Taiwan", ASKED_AGAIN, modules=[*simulation.modules, FUEL])
    prompts = {
        "with fuel": PromptText.of(more),
        "without fuel": PromptText.of(simulation.context_of("Taiwan", ASKED_AGAIN)),
    }
    return comparison("without fuel", prompts)


def comparison(name: str, prompts: dict[str, PromptText]) -> AblationConfig:
    """Return two prompts to compare."""
    return AblationConfig(
        name=name,
        turns=3,
        seed=7,
        prompts=prompts,
        response_format=CONFIG.scenario.briefing.response_format,
        about=f"Taiwan, turn {ASKED_AGAIN}",
        llm=SETTINGS,
    )


def fuel(agent_name: str, agent_state: Mapping[str, Any], global_state: Mapping[str, Any]) -> Any:
    """Say how long the island's gas lasts."""
    if agent_name != "Taiwan":
        return None
    days = round(11 * (1 - global_state["blockade_effectiveness"] / 100), 1)
    return f"Gas for the power plants lasts {days} more days. Hospitals come first after that."


FUEL = BehaviorModule(name="fuel", code=SimpleNamespace(build_agent_context=fuel))


def compare(path: Path, client: LLMClient, *, run: int, config: AblationConfig) -> None:
    """Play an ablation's samples, or those that are left."""
    tape = Tape(path)
    if run in [info.id for info in tape.runs()]:
        ablation = resume(tape, run, llm_client=client)
    else:
        ablation = Ablation(config, llm_client=client, tape=tape)
    ablation.run(
        SAMPLES[config.name] - ablation.turn_number,
        on_turn=lambda turn: sys.stderr.write(f"sample {turn.number}\n"),
    )
    ablation.close()


def main() -> None:
    """Record, or go on recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--tape", type=Path, default=HERE / "crisis.tape")
    arguments = parser.parse_args()
    client = connect(arguments.model, config=SETTINGS, download=True)
    the_run(arguments.tape, client)
    crisis = the_crisis(arguments.tape)
    compare(arguments.tape, client, run=2, config=thin_against_rich(crisis))
    compare(arguments.tape, client, run=3, config=with_and_without_fuel(crisis))
    pack(arguments.tape)


if __name__ == "__main__":
    main()
