"""The window in a real JupyterLab: buttons, keys, forms, a busy kernel and one that is gone."""

from __future__ import annotations

import re

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import expect

RUN = """
from llmsim_lab.lab import Lab, PromptViewer, RateChart, RunTree, TurnStepper
from scenes import Model, make_run
model = Model()
simulation = make_run(model)
"""
LAB = "window = Lab(simulation); window"
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("window", [RUN, LAB, "window"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Step", cell=WIDGET)).to_be_enabled()
    return notebook


def at_turn(notebook: Notebook, text: str, *, cell: int = WIDGET) -> None:
    expect(notebook.output(cell).locator(".when")).to_contain_text(text)


def cells(notebook: Notebook) -> int:
    return int(notebook.page.evaluate("window.panel.content.model.cells.length"))


def test_buttons_and_keys_play_and_look(notebook: Notebook) -> None:
    page, step = notebook.page, notebook.button("Step")
    for turn in (1, 2):
        step.click()
        at_turn(notebook, f"Turn {turn} ")
    step.focus()
    page.keyboard.press("Enter")
    at_turn(notebook, "Turn 3 ")
    expect(step).to_be_focused()
    page.keyboard.press("ArrowLeft")
    at_turn(notebook, "Turn 2 ")
    page.keyboard.press("ArrowRight")
    at_turn(notebook, "Turn 3 ")
    notebook.evaluate("model.set(waiting=True)")
    notebook.button("Play").click()
    notebook.says(WIDGET, "Playing turn 4, then 3 more turns.")
    notebook.says(WIDGET, "Aland")
    notebook.button("Pause").click()
    notebook.evaluate("model.set(waiting=False)")
    notebook.says(WIDGET, "Paused after turn 4.")
    notebook.evaluate("model.set(waiting=True)")
    step.click()
    notebook.button("Stop").click()
    notebook.says(WIDGET, "Stopped. The run is at turn 4, its last whole one.")
    notebook.evaluate("model.set(waiting=False)")
    assert notebook.evaluate("simulation.turn_number") == 4
    notebook.evaluate("model.set(broken=True)")
    step.click()
    alert = notebook.output(WIDGET).get_by_role("alert")
    expect(alert).to_contain_text("the model is gone")
    notebook.evaluate("model.set(broken=False)")
    notebook.click("Try again")
    at_turn(notebook, "Turn 5 ")
    expect(alert).to_have_count(0)
    notebook.check_looks(WIDGET, "window")
    assert notebook.faults() == []


def test_what_is_typed_into_a_field_is_no_key_of_jupyterlab(notebook: Notebook) -> None:
    before, page = cells(notebook), notebook.page
    box = notebook.output(WIDGET).get_by_label("Turns to play")
    box.click()
    page.keyboard.press("Escape")
    box.fill("2")
    for key in ("x", "d", "d", "a", "b", "z", "m"):
        page.keyboard.press(key)
    box.fill("2")
    notebook.click("Play")
    at_turn(notebook, "Turn 2 ")
    assert cells(notebook) == before


def test_a_changed_value_makes_a_fork_and_a_changed_parameter_a_restart(notebook: Notebook) -> None:
    output = notebook.output(WIDGET)
    notebook.click("Step")
    at_turn(notebook, "Turn 1 ")
    notebook.click("Fork or change …")
    field = output.get_by_label("Inflation (% over four quarters)")
    field.fill("9")
    notebook.button("Fork with 1 change").click()
    expect(output.get_by_role("group", name="Runs")).to_contain_text("inflation = 9")
    assert notebook.evaluate("window.runs[2].state.global_state.inflation") == 9
    notebook.click("Fork or change …")
    notebook.button("Parameters, from the beginning").click()
    output.get_by_label(re.compile("^Seed")).first.fill("8")
    notebook.button("Start again with 1 change").click()
    expect(output.get_by_role("group", name="Runs")).to_contain_text("seed = 8")
    at_turn(notebook, "Start")
    assert notebook.axe_faults() == []
    assert notebook.faults() == []


def test_two_views_and_a_page_loaded_anew_show_the_same(notebook: Notebook) -> None:
    notebook.run_cell(2)
    notebook.click("Step", cell=WIDGET)
    for cell in (WIDGET, 2):
        at_turn(notebook, "Turn 1 ", cell=cell)
    notebook.reload()
    for cell in (WIDGET, 2):
        at_turn(notebook, "Turn 1 ", cell=cell)
    notebook.click("Step", cell=2)
    at_turn(notebook, "Turn 2 ")


def test_while_a_cell_is_busy_a_click_waits_in_words(lab: LabPage) -> None:
    free = lab.server.root / "free"
    busy = "import pathlib, time\nwhile not pathlib.Path('free').exists(): time.sleep(0.05)"
    notebook = lab.write("busy", [RUN, LAB, busy])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Step", cell=WIDGET)).to_be_enabled()
    notebook.page.evaluate(
        "() => {window.panel.content.activeCellIndex = 2;"
        " window.jupyterapp.commands.execute('notebook:run-cell');}"
    )
    notebook.click("Step", cell=WIDGET, times=1)
    notebook.says(WIDGET, "Sent; waiting for the kernel, which is busy.")
    free.touch()
    at_turn(notebook, "Turn 1 ")  # the click was kept
    assert notebook.evaluate("simulation.turn_number") == 1


def test_a_window_whose_kernel_is_gone_says_so(lab: LabPage) -> None:
    notebook = lab.write("gone", [RUN, LAB])
    notebook.run_all()
    expect(notebook.button("Step", cell=WIDGET)).to_be_enabled()
    notebook.page.evaluate("window.panel.sessionContext.session.kernel.restart().then(() => null)")
    notebook.says(WIDGET, "The kernel is gone: run the cell again.")
    notebook.run_all()
    expect(notebook.button("Step", cell=WIDGET)).to_be_enabled()
