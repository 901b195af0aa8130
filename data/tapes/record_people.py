"""Record the tapes of a model's card anew: ``data/tapes/people/*/*.tape.gz``.

``python data/tapes/record_people.py`` takes about an hour with the embedded model. It runs
``llmsim-lab people``, which goes on where it was broken off, and packs what that has recorded.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TAPES = HERE / "people"
COMMAND = [sys.executable, "-c", "from llmsim_lab.cli import main; main()", "people"]


def main() -> None:
    """Play the published designs, and keep their tapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--out", type=Path, default=Path("out/people"))
    arguments = parser.parse_args()
    settings = ["--model", arguments.model, "--out", str(arguments.out)]
    subprocess.run([*COMMAND, *settings], check=True)
    for tape in sorted(arguments.out.glob("runs/*/*.tape")):
        packed = TAPES / tape.parent.name / f"{tape.name}.gz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress(tape.read_bytes(), mtime=0))


if __name__ == "__main__":
    main()
