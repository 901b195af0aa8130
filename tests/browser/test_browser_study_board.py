"""A study's board, used as people do: played, stopped, a run opened with the keyboard."""

from __future__ import annotations

import re
import shutil

from lab_page import LabPage, Notebook
from playwright.sync_api import expect

SETUP = """
from scenes import Givers
from llmsim_lab.lab import StudyBoard
model = Givers()
model.set(pause_s=0.05, broken=True)
study = model.study("board")
"""
WIDGET = 1


def reads(notebook: Notebook, name: str) -> None:
    """Check that the board can be read as the page is now, and keep a picture."""
    assert notebook.axe_faults() == []
    assert notebook.cut_off(WIDGET) == []
    assert not notebook.moves_sideways()
    notebook.screenshot(f"study_board_{name}", of=notebook.output(WIDGET))


def test_a_study_is_played_stopped_continued_and_a_run_opened(lab: LabPage) -> None:
    shutil.rmtree(lab.server.root / "board", ignore_errors=True)
    notebook = lab.write("study_board", [SETUP, "board = StudyBoard(study); board"])
    notebook.run_all()
    output = notebook.output(WIDGET)
    expect(output.get_by_role("button", name=re.compile("seed 19: left"))).to_have_count(3)

    notebook.click("Run", cell=WIDGET)
    expect(
        output.get_by_role("button", name=re.compile(r"running at turn \d of 8"))
    ).not_to_have_count(0)
    expect(output).to_contain_text(re.compile(r"of 60 runs done .* about \d+ s left"))
    notebook.screenshot("study_board_running", of=output)
    notebook.click("Stop", cell=WIDGET)
    notebook.says(WIDGET, "Stopped.")
    expect(output.get_by_role("button", name=re.compile("running"))).to_have_count(0)

    notebook.evaluate("model.set(pause_s=0)")
    notebook.click("Run", cell=WIDGET)
    notebook.says(WIDGET, re.compile(r"Finished: \d+ runs are done; \d+ failed"))
    notebook.evaluate("model.set(broken=False)")
    notebook.click("Run", cell=WIDGET)
    notebook.says(WIDGET, "Finished: 60 runs are done.")
    expect(output.get_by_role("img")).to_have_count(2)
    expect(output.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "60")
    reads(notebook, "light")
    with lab.looking("JupyterLab Dark", width=1200):
        reads(notebook, "dark")
        notebook.page.set_viewport_size({"width": 500, "height": 1000})
        reads(notebook, "dark_500")

    cell = output.get_by_role("button", name="thrifty, seed 3: done")
    cell.focus()
    notebook.page.keyboard.press("Enter")
    notebook.says(WIDGET, "thrifty, seed 3: done. It is open below.")
    expect(output).to_contain_text("Turn 8")
    notebook.click("Close", cell=WIDGET)
    expect(output).not_to_contain_text("Turn 8")
    assert notebook.faults() == []
