"""A world of one's own in a notebook, whose class no file has."""

from __future__ import annotations

import textwrap
from pathlib import Path

import nbformat
import pytest
from nbconvert.preprocessors import ExecutePreprocessor

pytestmark = pytest.mark.process

WORLDS = Path(__file__).resolve().parents[1] / "worlds.py"


def test_a_class_from_a_cell_is_recorded_defined_again_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    defined = WORLDS.read_text()
    record = """
        run = PublicGoods(players={"*": "random"}, tape="pot.tape")
        frame = run.run(2)
        run.close()
    """
    same = """
        from llmsim_lab.run import replay
        again = replay("pot.tape")
        print(again.to_frame().equals(frame), PublicGoods.replay("pot.tape").kind)
    """
    sources = (defined, record, same, defined, same)
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(source)) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    folder = {"metadata": {"path": str(tmp_path)}}
    ExecutePreprocessor(kernel_name="python3").preprocess(notebook, folder)
    said = [cell.outputs for cell in notebook.cells]
    for place in (2, 4):
        assert said[place][0]["text"] == "True notebook:PublicGoods\n"
