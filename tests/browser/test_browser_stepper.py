"""The stepper, clicked."""

from __future__ import annotations

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect

RUN = """
from llmsim_lab.lab import TurnStepper
from scenes import Model, make_run
model = Model()
simulation = make_run(model)
"""
STEPPER = "stepper = TurnStepper(simulation); stepper"
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    """A stepper in the second cell; the third is for what a person types meanwhile."""
    notebook = lab.write("stepper", [RUN, STEPPER, "6 * 7", "await stepper.play(3)"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Step", cell=WIDGET)).to_be_enabled()
    return notebook


def shows(notebook: Notebook, text: str) -> None:
    expect(notebook.output(WIDGET).locator("strong").first).to_contain_text(text)


def box(notebook: Notebook, label: str) -> Locator:
    return notebook.output(WIDGET).get_by_label(label)


def test_three_clicks_on_step_play_three_turns(notebook: Notebook) -> None:
    for turn in (1, 2, 3):
        notebook.click("Step")
        notebook.says(WIDGET, f"Turn {turn} is played.")
        shows(notebook, f"Turn {turn} (")
    assert notebook.evaluate("simulation.turn_number") == 3
    assert notebook.axe_faults() == []
    notebook.screenshot("stepper_light", of=notebook.output(WIDGET))


def test_clicks_while_a_turn_is_under_way_are_not_counted(notebook: Notebook) -> None:
    notebook.evaluate("model.set(waiting=True)")
    step = notebook.button("Step")
    step.dblclick()
    notebook.says(WIDGET, "Playing turn 1.")
    expect(step).to_be_disabled()
    for _ in range(3):
        step.click(force=True)
    notebook.evaluate("model.set(waiting=False)")
    notebook.says(WIDGET, "Turn 1 is played.")
    expect(step).to_be_enabled()
    assert notebook.evaluate("simulation.turn_number") == 1


def test_the_slider_leads_to_the_first_turn_by_keys(notebook: Notebook) -> None:
    notebook.click("Play")
    notebook.says(WIDGET, "Turn 4 is played.")
    for _ in range(3):
        box(notebook, "Turn slider").press("Home")
        shows(notebook, "Initial state")
        notebook.click("Latest")
        shows(notebook, "Turn 4 (")


def test_another_cell_runs_while_a_turn_is_under_way(notebook: Notebook) -> None:
    notebook.evaluate("model.set(waiting=True)")
    notebook.click("Step")
    notebook.says(WIDGET, "Playing turn 1.")
    for _ in range(3):
        notebook.run_cell(2)
        expect(notebook.output(2)).to_contain_text("42")
    notebook.says(WIDGET, "Playing turn 1.")
    notebook.evaluate("model.set(waiting=False)")
    notebook.says(WIDGET, "Turn 1 is played.")


def test_run_all_again_gives_a_stepper_that_works(notebook: Notebook) -> None:
    for _ in range(3):
        notebook.run_all()
        shows(notebook, "Turn 3 (")
        notebook.click("Step")
        notebook.says(WIDGET, "Turn 4 is played.")
    assert notebook.faults() == []


def test_it_reads_in_the_dark_and_on_a_narrow_page(notebook: Notebook, lab: LabPage) -> None:
    notebook.click("Step", times=2)
    notebook.says(WIDGET, "is played.")
    with lab.looking("JupyterLab Dark", width=800):
        assert notebook.axe_faults() == []
        assert notebook.cut_off(WIDGET) == []
        notebook.screenshot("stepper_dark_800", of=notebook.output(WIDGET))
