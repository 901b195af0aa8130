"""Each committed notebook that shows a widget, opened in JupyterLab and run with Run All."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_page import LabPage

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = [
    path
    for path in sorted(FOLDER.glob("*.ipynb"))
    if "llmsim_lab.lab import" in path.read_text(encoding="utf-8")
]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end_without_an_error(lab: LabPage, path: Path) -> None:
    notebook = lab.copy(path)
    notebook.run_all()
    assert notebook.faults() == []
    assert notebook.axe_faults() == []
    notebook.screenshot(f"notebook_{path.stem}")
