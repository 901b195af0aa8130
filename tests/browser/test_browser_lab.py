"""One window over a run: its keys, its focus, and what can be changed in it."""

from __future__ import annotations

import pytest
from lab_page import LOOKS, LabPage, Notebook
from playwright.sync_api import Locator, expect

RUN = """
from llmsim_lab.lab import Lab
from scenes import Model, make_run
model = Model()
simulation = make_run(model)
"""
LAB = "window = Lab(simulation); window"
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("window", [RUN, LAB])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Step", cell=WIDGET)).to_be_enabled()
    return notebook


def shows(notebook: Notebook, text: str) -> None:
    expect(notebook.output(WIDGET).locator("strong").first).to_contain_text(text)


def has_focus(part: Locator) -> None:
    expect(part).to_be_focused()


def test_keys_play_and_look_and_the_focus_stays_where_it_was(notebook: Notebook) -> None:
    page, step = notebook.page, notebook.button("Step")
    step.focus()
    for turn in (1, 2, 3):
        page.keyboard.press("Enter")
        notebook.says(WIDGET, f"Turn {turn} is played.")
        has_focus(step)
    page.keyboard.press("ArrowLeft")
    shows(notebook, "Turn 2 (")
    expect(notebook.output(WIDGET)).to_contain_text("Turn 2 · agent")
    page.keyboard.press("ArrowRight")
    shows(notebook, "Turn 3 (")
    slider = notebook.output(WIDGET).get_by_label("Turn slider")
    slider.focus()
    page.keyboard.press("Enter")
    notebook.says(WIDGET, "Turn 4 is played.")
    notebook.evaluate("model.set(waiting=True)")
    page.keyboard.press(" ")
    notebook.says(WIDGET, "1 of 4.")
    page.keyboard.press(" ")
    notebook.says(WIDGET, "Pausing")
    notebook.evaluate("model.set(waiting=False)")
    notebook.says(WIDGET, "Paused after turn 5")
    has_focus(slider)
    assert notebook.evaluate("len(window.forks)") == 0


def test_a_changed_value_makes_a_fork_and_a_changed_parameter_a_restart(notebook: Notebook) -> None:
    output = notebook.output(WIDGET)
    for turn in (1, 2):  # a click while a turn is played does nothing
        notebook.click("Step")
        notebook.says(WIDGET, f"Turn {turn} is played.")
    notebook.click("Change …")
    box = output.get_by_label("inflation", exact=True)
    box.fill("9")
    box.press("Tab")
    notebook.click("Fork from here with this")
    notebook.says(WIDGET, "fork 1 of the original at turn 2 with set inflation 9")
    box = output.get_by_label("seed", exact=True)
    box.fill("8")
    box.press("Tab")
    notebook.click("Restart with this")
    notebook.says(WIDGET, "restart 2 of fork 1 with seed 8")
    assert notebook.axe_faults() == []
    assert notebook.faults() == []


def test_it_reads_light_and_dark_wide_and_narrow(notebook: Notebook, lab: LabPage) -> None:
    notebook.click("Step")
    notebook.says(WIDGET, "Turn 1 is played.")
    for theme, width in LOOKS:
        with lab.looking(theme, width=width):
            assert notebook.axe_faults() == []
            assert notebook.cut_off(WIDGET) == []
            assert not notebook.moves_sideways()
