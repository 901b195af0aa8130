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
    expect(output).to_contain_text("0 of 60 runs done")

    notebook.click("Run", cell=WIDGET)
    expect(output).to_contain_text(re.compile(r"of 60 runs done · \d+ running .* left"))
    notebook.screenshot("study_board_running", of=output)
    notebook.click("Stop", cell=WIDGET)
    notebook.says(WIDGET, "Stopped.")
    expect(output).to_contain_text(re.compile(r"of 60 runs done · (\d+ failed · )?\d+ stopped"))

    notebook.evaluate("model.set(pause_s=0)")
    notebook.click("Run", cell=WIDGET)
    notebook.says(WIDGET, re.compile(r"Finished: \d+ runs are done; \d+ failed"))
    notebook.evaluate("model.set(broken=False)")
    notebook.click("Run", cell=WIDGET)
    notebook.says(WIDGET, "Finished: 60 runs are done.")
    expect(output.get_by_role("img")).to_have_count(1)
    reads(notebook, "light")
    with lab.looking("JupyterLab Dark", width=1200):
        reads(notebook, "dark")
        notebook.page.set_viewport_size({"width": 500, "height": 1000})
        reads(notebook, "dark_500")

    box = output.get_by_label("Open")
    box.focus()
    box.select_option("thrifty, 3: done")
    expect(output).to_contain_text("thrifty, seed 3")
    expect(output).to_contain_text(re.compile("Turn 8|turn 8"))
    assert notebook.faults() == []
