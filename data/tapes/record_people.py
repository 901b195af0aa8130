"""Record the tapes of a model's card anew: ``data/tapes/people/*/*.tape.gz``.

``python data/tapes/record_people.py`` takes about an hour with the embedded model. It runs
``llmsim-lab people``, which goes on where it was broken off, and packs what that has recorded.
``--own-replies`` records the designs of several rounds anew with the replies of their old tapes,
and asks no model: their tapes name their template's code. Laws name none, and stay.
"""

from __future__ import annotations

import argparse
import gzip
import re
import subprocess
import sys
from pathlib import Path

from own_replies import OwnReplies

from llmsim_lab.simulation.people import DESIGNS, people_designs, play_design

HERE = Path(__file__).parent
TAPES = HERE / "people"
TEMPLATES = HERE.parent / "templates"
RUNS_OF_TEMPLATES = {
    "contributing": "original_seed0",
    "guessing": "original_factor-0.666667_seed0",
}
"""The runs of the card that are tapes of their templates too."""
COMMAND = [sys.executable, "-c", "from llmsim_lab.cli import main; main()", "people"]


def play_with_own_replies(folder: Path) -> None:
    """Play the designs of several rounds into a folder, answered from their old tapes."""
    for name, design in DESIGNS.items():
        if not design.has_rounds:
            continue
        design.load()
        replies = OwnReplies(sorted((TAPES / name).glob("*.tape.gz")))
        designs = people_designs(
            [name],
            folder=folder,
            rationale=False,
            llm_client=replies.client(),
        )
        play_design(designs[name])
        replies.check_all_used()


def main() -> None:
    """Play the published designs, and keep their tapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--out", type=Path, default=Path("out/people"))
    parser.add_argument("--own-replies", action="store_true", help="of the tapes that are there")
    arguments = parser.parse_args()
    if arguments.own_replies:
        play_with_own_replies(arguments.out / "runs")
    else:
        settings = ["--model", arguments.model, "--out", str(arguments.out)]
        subprocess.run([*COMMAND, *settings], check=True)
    for tape in sorted(arguments.out.glob("runs/*/*.tape")):
        packed = TAPES / tape.parent.name / f"{packed_name(tape)}.tape.gz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress(tape.read_bytes(), mtime=0))
    for template, tape_name in RUNS_OF_TEMPLATES.items():
        packed = TAPES / template / f"{tape_name}.tape.gz"
        (TEMPLATES / f"{template}.tape").write_bytes(gzip.decompress(packed.read_bytes()))


def packed_name(tape: Path) -> str:
    """Return a name without a study's digest, and without signs that some systems refuse."""
    name = re.sub("-[0-9a-f]{16}$", "", tape.stem)
    return name.replace("twin=False", "original").replace("twin=True", "twin").replace("=", "-")


if __name__ == "__main__":
    main()
