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


def test_a_double_click_on_step_does_no_harm(notebook: Notebook) -> None:
    for _ in range(3):
        before = notebook.evaluate("simulation.turn_number")
        notebook.button("Step").dblclick()
        notebook.until(f"simulation.turn_number > {before} and not stepper.worker.busy")
    assert 3 <= notebook.evaluate("simulation.turn_number") <= 6
    expect(notebook.output(WIDGET).get_by_role("alert")).to_have_count(0)


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


def test_play_pause_and_stop(notebook: Notebook) -> None:
    box(notebook, "Turns to play").fill("3")
    box(notebook, "Turns to play").press("Tab")
    notebook.until("stepper.turns_box.value == 3")
    for last in (3, 6, 9):
        notebook.click("Play")
        notebook.says(WIDGET, f"Turn {last} is played.")
    for last in (10, 11, 12):
        notebook.evaluate("model.set(waiting=True)")
        notebook.click("Play")
        notebook.says(WIDGET, "1 of 3.")
        notebook.click("Pause")
        notebook.says(WIDGET, "Pausing")
        notebook.evaluate("model.set(waiting=False)")
        notebook.says(WIDGET, f"Paused after turn {last}; 2 of 3 turns were not played.")
    for _ in range(3):
        notebook.evaluate("model.set(waiting=True)")
        notebook.click("Play")
        notebook.says(WIDGET, "Playing turn 13")
        notebook.click("Stop")
        notebook.says(WIDGET, "Stopped. The run is at turn 12")
    notebook.evaluate("model.set(waiting=False)")
    assert notebook.evaluate("simulation.turn_number") == 12
    notebook.click("Step")
    notebook.says(WIDGET, "Turn 13 is played.")


def test_back_and_forth(notebook: Notebook) -> None:
    notebook.click("Play")
    notebook.says(WIDGET, "Turn 4 is played.")
    for turn in (3, 2, 1):
        notebook.click("Previous")
        shows(notebook, f"Turn {turn} (")
    for turn in (2, 3, 4):
        notebook.click("Next")
        shows(notebook, f"Turn {turn} (")
    for _ in range(3):
        box(notebook, "Turn slider").press("Home")
        shows(notebook, "Initial state")
        notebook.click("Latest")
        shows(notebook, "Turn 4 (")
    for turn in (2, 4, 1):
        box(notebook, "Turn shown").fill(str(turn))
        box(notebook, "Turn shown").press("Enter")
        shows(notebook, f"Turn {turn} (")


def test_a_failed_turn_is_shown_in_place_and_tried_again(notebook: Notebook) -> None:
    alert = notebook.output(WIDGET).get_by_role("alert")
    notebook.click("Step")
    notebook.says(WIDGET, "Turn 1 is played.")
    notebook.evaluate("model.set(broken=True)")
    notebook.click("Step")
    expect(alert).to_contain_text("LLMFailureException")
    expect(alert).to_contain_text("no reply within 60 s")
    assert notebook.axe_faults() == []
    notebook.screenshot("stepper_error", of=notebook.output(WIDGET))
    for _ in range(3):
        before = notebook.evaluate("model.asked")
        notebook.click("Try again")
        expect(notebook.button("Try again")).to_be_visible()
        expect(notebook.button("Step")).to_be_enabled()
        notebook.until(f"model.asked > {before}")
    assert notebook.evaluate("simulation.turn_number") == 1
    notebook.evaluate("model.set(broken=False)")
    notebook.click("Try again")
    notebook.says(WIDGET, "Turn 2 is played.")
    expect(alert).to_have_count(0)
    expect(notebook.button("Try again")).to_have_count(0)


def test_forks_go_on_from_the_turn_shown(notebook: Notebook) -> None:
    notebook.click("Play")
    notebook.says(WIDGET, "Turn 4 is played.")
    runs = notebook.output(WIDGET).get_by_label("Run shown")
    for number in (1, 2, 3):
        runs.select_option(index=0)
        shows(notebook, "Turn 4 (")
        box(notebook, "Turn shown").fill("2")
        box(notebook, "Turn shown").press("Enter")
        shows(notebook, "Turn 2 (")
        notebook.click("Fork here")
        notebook.says(WIDGET, f"fork {number} of the original at turn 2")
        notebook.click("Step")
        notebook.says(WIDGET, "Turn 3 is played.")
    assert notebook.evaluate("[run.turn_number for run in stepper.forks]") == [3, 3, 3]
    assert notebook.evaluate("simulation.turn_number") == 4
    notebook.screenshot("stepper_forks", of=notebook.output(WIDGET))


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


def test_an_interrupt_leaves_the_last_whole_turn(notebook: Notebook) -> None:
    notebook.click("Step")
    notebook.says(WIDGET, "Turn 1 is played.")
    for _ in range(3):
        notebook.evaluate("model.set(waiting=True)")
        notebook.start_cell(3)
        notebook.says(WIDGET, "Playing turn 2, 1 of 3.")
        notebook.interrupt()
        notebook.says(WIDGET, "Stopped. The run is at turn 1")
        notebook.evaluate("model.set(waiting=False)")
    assert notebook.evaluate("simulation.turn_number") == 1
    notebook.click("Step")
    notebook.says(WIDGET, "Turn 2 is played.")


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
