"""Have a model decide about the messages beside this file, and print how it did.

``python data/assistant/evaluate.py --model embedded:qwen2.5-coder-1.5b`` takes some ten minutes on
two cores. The README beside this file has the scores of the embedded model, and the CSV file its
rows: ``--against data/assistant/qwen2.5-coder-1.5b.csv`` compares another model with it, message by
message.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from llmsim_lab import LLMConfig, connect
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.assistant import evaluate, load_cases
from llmsim_lab.assistant._evaluation import Evaluation, Scored
from llmsim_lab.assistant._types import AgentEngineConfig
from llmsim_lab.study._statistics import run_effects
from llmsim_lab.study._study import Effects

ENGINE = AgentEngineConfig(timeout_seconds=600, max_tokens=200)
MODEL = LLMConfig(temperature=0, seed=1, num_ctx=4096, max_tokens=200, timeout_s=600)


def say(row: Scored) -> None:
    """Show one message's outcome."""
    mark = {True: "ok", False: "--", None: ".."}
    marks = f"{mark[row.decision]} {mark[row.tool]}"
    decided = "NO ANSWER" if row.failed else row.decided
    sys.stderr.write(
        f"{row.id:14} {marks} {decided:20} {','.join(row.tools):30} {row.seconds:5.1f} s"
        f"{'  UNSAFE' if row.safe is False else ''}  {row.answer[:70]!r}\n"
    )


async def run(model: str, kinds: list[str]) -> Evaluation:
    """Evaluate a model."""
    cases = load_cases()
    client = connect(model, config=MODEL)
    async with client:
        chosen = cases.of_kind(*kinds) if kinds else cases
        return await evaluate(client, cases=chosen, config=ENGINE, name=model, on_case=say)


def compared(found: pd.DataFrame, other: pd.DataFrame, *, names: tuple[str, str]) -> Effects:
    """Return how much more often one model is right than another, over the same messages.

    The unit is a message, and all measures are one family. A message counts in a measure if it was
    scored for both.

    Args:
        found: rows by message, as ``Evaluation.to_frame`` has them.
        other: those of the model that is subtracted.
        names: of both models.
    """
    measures = ["decision", "tool", "arguments", "safe"]
    both = found.index.intersection(other.index)
    rows = [
        {"arm": name, "seed": message, "outcome": measure, "value": float(right)}
        for measure in measures
        for message in both
        if all(frame[measure].notna()[message] for frame in (found, other))
        for name, right in zip(
            names, (found[measure][message], other[measure][message]), strict=True
        )
    ]
    effects = run_effects(pd.DataFrame(rows), contrasts=[names])
    return Effects(
        [replace(one, unit="situations", speaks_of="messages like these") for one in effects]
    )


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--kind", action="append", default=[], help="these messages only")
    parser.add_argument("--out", type=Path, help="write all rows to this CSV file, but for times")
    parser.add_argument("--against", type=Path, help="compare with the rows of this CSV file")
    arguments = parser.parse_args()
    found = run_sync(run(arguments.model, arguments.kind))
    if arguments.out:
        found.to_frame().drop(columns="seconds").to_csv(arguments.out)
    sys.stdout.write(f"{found!r}\n\n")
    for frame in (found.scores(), found.scores(by_kind=True), found.confusion()):
        sys.stdout.write(f"{frame.round(2).to_string()}\n\n")
    if arguments.against:
        names = arguments.model, arguments.against.stem
        other = pd.read_csv(arguments.against, index_col="id")
        sys.stdout.write(f"{compared(found.to_frame(), other, names=names)}\n")


if __name__ == "__main__":
    main()
