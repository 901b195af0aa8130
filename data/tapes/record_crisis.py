"""Record ``crisis.tape`` anew, with a real model.

``python data/tapes/record_crisis.py`` takes some half an hour on two cores with the embedded model
``qwen2.5-coder-1.5b``. It goes on where it stopped; delete the tape to begin anew. Run 1 is the
crisis; run 2 asks Taiwan's government again, with one module's words taken out of its prompt.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from record_tapes import HERE

from llmsim_lab import LLMClient, connect
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.llm import LLMConfig, Tape
from llmsim_lab.run import load, resume
from llmsim_lab.study import Comparison

SETTINGS = LLMConfig(
    seed=7,
    temperature=0.7,
    num_ctx=4096,
    max_tokens=500,
    max_text_chars=200,
    timeout_s=600,
    retry_wait_s=1,
)
CONFIG = CrisisSimulation.config_type(
    name="the strait", scenario="strait", seed=7, turns=4, stable_first=True, llm=SETTINGS
)
STEPS = 2
"""Of the configuration's four; the engine's calls are long."""
SAMPLES = 5


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


def without_trust(text: str) -> str:
    """Take the words of the module ``trust_dynamics`` out of a prompt."""
    return re.sub(r"\n*=== TRUST DYNAMICS ===\n.*?(?=\n\n===|\Z)", "", text, flags=re.DOTALL)


def the_comparison(path: Path, client: LLMClient) -> None:
    """Both turns of Taiwan's government, with the module's words and without."""
    with Tape(path) as tape:
        if len(tape.runs()) > 1:
            comparison = Comparison.load(tape, llm_client=client)
        else:
            comparison = Comparison(
                load(tape, 1),
                prompt={"without trust": without_trust},
                component="agent:Taiwan",
                only_component=True,
                samples=SAMPLES,
                llm_client=client,
            )
        comparison.run(on_progress=lambda now: sys.stderr.write(f"{now.done} of {now.total}\n"))


def main() -> None:
    """Record, or go on recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--tape", type=Path, default=HERE / "crisis.tape")
    arguments = parser.parse_args()
    client = connect(arguments.model, config=SETTINGS, download=True)
    the_run(arguments.tape, client)
    the_comparison(arguments.tape, client)


if __name__ == "__main__":
    main()
