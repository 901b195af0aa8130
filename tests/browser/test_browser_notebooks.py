"""Committed notebooks whose widgets do something, run in JupyterLab with Run All.

That notebooks give the outputs they are committed with is compared elsewhere, cell by cell.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_page import LabPage

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("number", ["03", "05"])
def test_a_notebook_runs_to_its_end_without_an_error(lab: LabPage, number: str) -> None:
    [path] = FOLDER.glob(f"{number}_*.ipynb")
    notebook = lab.copy(path)
    notebook.run_all()
    assert notebook.faults() == []
    assert notebook.axe_faults() == []
    notebook.screenshot(f"notebook_{path.stem}")
