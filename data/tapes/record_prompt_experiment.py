"""Record ``prompt_experiment.tape`` anew, with a real model.

``python data/tapes/record_prompt_experiment.py`` takes some half an hour on two cores with the
embedded model ``qwen2.5-coder-1.5b``. It goes on where it stopped; delete the tape to begin anew.
The states are those of run 1 on ``first_run.tape``, which is copied to the new tape.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from record_tapes import ADVISOR, FEARFUL, HERE, SETTINGS

from llmsim_lab import LLMClient, connect
from llmsim_lab.llm import Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import load
from llmsim_lab.study import Comparison

TURNS = (1, 3, 5, 7)
SAMPLES = 4


def begin(path: Path, client: LLMClient) -> Comparison:
    """Copy the run and set up the experiment: what it was, another role, another order."""
    with tempfile.TemporaryDirectory() as folder:
        [copied] = Tape(HERE / "first_run.tape", read_only=True).export(
            Path(folder) / "run.jsonl", run=1
        )
        tape = Tape(path)
        [run] = tape.import_jsonl(copied)
    simulation = load(tape, run)
    # Shared seeds, so that the notebook can show what that does to an interval.
    return Comparison(
        simulation,
        prompt=variants_of(simulation.agents[0].prompt),  # type: ignore[attr-defined]
        turns=TURNS,
        samples=SAMPLES,
        llm_client=client,
        shared_seeds=True,
    )


def variants_of(prompt: Prompt) -> dict[str, Prompt]:
    """Return the agents' prompt as it was, with another role, and with another order."""
    rate = "- Interest Rate: {{ interest_rate }}%"
    first = "- GDP Growth: {{ gdp_growth }}%"
    return {
        "as it was": prompt,
        "hawkish": prompt.replace(ADVISOR, FEARFUL),
        "reordered": prompt.replace(f"\n{rate}", "").replace(first, f"{rate}\n{first}"),
    }


def has_experiment(path: Path) -> bool:
    """Say whether an experiment was begun on a tape."""
    with Tape(path, read_only=True) as tape:
        return any(run.verb == "experiment" for run in tape.runs())


def main() -> None:
    """Record, or go on recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--tape", type=Path, default=HERE / "prompt_experiment.tape")
    arguments = parser.parse_args()
    client = connect(arguments.model, config=SETTINGS, download=True)
    path: Path = arguments.tape
    if path.exists() and has_experiment(path):
        experiment = Comparison.load(Tape(path), llm_client=client)
    else:
        path.unlink(missing_ok=True)
        experiment = begin(path, client)
    sys.stderr.write(f"{experiment.plan()}\n")
    experiment.run(
        on_progress=lambda now: sys.stderr.write(f"{now.done} of {now.total}: {now.latest}\n")
    )
    if experiment.tape is not None:
        experiment.tape.close()


if __name__ == "__main__":
    main()
