"""Committed notebooks whose widgets do something, run in JupyterLab with Run All.

That notebooks give the outputs they are committed with is compared elsewhere, cell by cell.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from lab_page import LabPage
from playwright.sync_api import expect

VIEW = "application/vnd.jupyter.widget-view+json"
FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("number", ["03", "05"])
def test_a_notebook_runs_to_its_end_without_an_error(lab: LabPage, number: str) -> None:
    [path] = FOLDER.glob(f"{number}_*.ipynb")
    notebook = lab.copy(path)
    notebook.run_all()
    assert notebook.faults() == []
    assert notebook.axe_faults() == []
    notebook.screenshot(f"notebook_{path.stem}")


@pytest.mark.parametrize("number", ["01", "03", "10"])
def test_a_notebook_of_a_fresh_clone_shows_pictures_where_its_windows_will_be(
    lab: LabPage, number: str
) -> None:
    [path] = FOLDER.glob(f"{number}_*.ipynb")
    notebook = lab.copy(path)
    assert notebook.page.evaluate("window.panel.content.model.cells.get(3).trusted") is False
    with notebook.tall():
        for index, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if not any(VIEW in output.get("data", ()) for output in cell.get("outputs", ())):
                continue
            outputs = notebook.outputs(index).locator(":scope > .jp-OutputArea-child")
            if "TurnStepper" not in cell.source:
                picture = outputs.filter(visible=True).first.get_by_role("img")
                expect(picture).to_be_visible()
                assert picture.evaluate("image => image.complete && image.naturalWidth > 400")
    notebook.screenshot(f"first_sight_{path.stem}")
    lab.complaints.clear()  # of models that are not found
