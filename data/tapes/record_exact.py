"""Record the laws of notebook 04 anew, with a real model: ``data/tapes/exact_dilemma/*.tape.gz``.

``python data/tapes/record_exact.py`` takes two minutes on two cores with the embedded model. The
world is the one of the notebook's cell, so that it stands in one place.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from llmsim_lab import connect
from llmsim_lab.study import exact

HERE = Path(__file__).parent
NOTEBOOK = HERE.parents[1] / "notebooks" / "04_prompts_under_the_microscope.ipynb"
CELL = "exact-world"
TAPES = HERE / "exact_dilemma"
OTHERS = ("opponent", "partner")


def world() -> ModuleType:
    """Return what the notebook's cell defines; without a file, as in a notebook."""
    module = ModuleType("a_notebook")
    sys.modules[module.__name__] = module
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    [source] = ["".join(cell["source"]) for cell in cells if cell["id"] == CELL]
    exec(source, vars(module))
    return module


def main() -> None:
    """Ask what the laws of both worlds need, and keep the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:smollm2-135m")
    client = connect(parser.parse_args().model, repeatable=True, timeout_s=600, download=True)
    dilemma = world().Dilemma
    TAPES.mkdir(exist_ok=True)
    for other in OTHERS:
        with TemporaryDirectory() as folder:
            tape = Path(folder) / "law.tape"
            exact(dilemma(other=other, llm_client=client), turns=3, tape=tape)
            packed = gzip.compress(tape.read_bytes(), mtime=0)
        (TAPES / f"{other}.tape.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
