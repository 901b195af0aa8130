"""Record the folder ``prompt_experiment`` anew, with a real model.

``python data/tapes/record_prompt_experiment.py`` takes some half an hour on two cores with the
embedded model ``qwen2.5-coder-1.5b``. It continues where it stopped; delete the folder to begin
anew. Four situations of run 1 on ``first_run.tape`` are asked again, with three prompts.

The answers that are there came from a recording in which sample k had one sampling seed at all
turns and with all prompts. A new one gives each situation and sample its own.
"""

from __future__ import annotations

import argparse

from record_tapes import ADVISOR, FEARFUL, HERE, SETTINGS, pack

from llmsim_lab import LLMClient, connect
from llmsim_lab.prompts import Prompt
from llmsim_lab.study import Study

FOLDER = HERE / "prompt_experiment"
TURNS = (0, 2, 4, 6)
SAMPLES = 4


def variants() -> dict[str, Prompt | None]:
    """Return the advisor's prompt as it was, with another role, and with another order."""
    prompt = Prompt.load("agent_policy")
    rate = "- Interest Rate: {{ interest_rate }}%"
    first = "- GDP Growth: {{ gdp_growth }}%"
    return {
        "as it was": None,
        "hawkish": prompt.replace(ADVISOR, FEARFUL),
        "reordered": prompt.replace(f"\n{rate}", "").replace(first, f"{rate}\n{first}"),
    }


def asked_again(client: LLMClient | None = None) -> Study:
    """Return the study: what is in its folder, and what is left."""
    return Study.again(
        HERE / "first_run.tape",
        {"prompt": variants()},
        run=1,
        turns=TURNS,
        samples=SAMPLES,
        outcome=["interest_rate", "accepted"],
        llm_client=client,
        to=FOLDER,
    )


def main() -> None:
    """Record, or continue to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    client = connect(parser.parse_args().model, config=SETTINGS, download=True)
    if not asked_again(client).run(parallel=1).counts["failed"]:
        pack(FOLDER)


if __name__ == "__main__":
    main()
