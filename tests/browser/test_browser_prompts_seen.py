"""The prompt viewer, clicked."""

from __future__ import annotations

import re

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect

SETUP = """
from llmsim_lab._util.files import data_path
from llmsim_lab.lab import PromptViewer
from llmsim_lab.run import load
simulation = load(data_path("tapes/two_nations.tape"), 1)
"""
VIEWER = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    cells = [SETUP, "PromptViewer(simulation)"]
    notebook = lab.write("prompts", cells)
    for cell in range(2):
        notebook.run_cell(cell)
    expect(notebook.button("Previous", cell=VIEWER)).to_be_enabled()
    return notebook


def box(notebook: Notebook, cell: int, label: str) -> Locator:
    return notebook.output(cell).get_by_label(label, exact=True)


def test_turns_are_gone_through_back_and_forth(notebook: Notebook) -> None:
    output = notebook.output(VIEWER)
    for turn in (11, 10, 9):
        notebook.click("Previous", cell=VIEWER)
        expect(output).to_contain_text(f"Turn {turn}")
    for turn in (10, 11, 12):
        notebook.click("Next", cell=VIEWER)
        expect(output).to_contain_text(f"Turn {turn}")
    notebook.click("Next", cell=VIEWER)
    notebook.says(VIEWER, "There is nothing to show after turn 12.")
    for turn in (3, 7, 5):
        box(notebook, VIEWER, "Turn shown").fill(str(turn))
        box(notebook, VIEWER, "Turn shown").press("Enter")
        expect(output).to_contain_text(f"Turn {turn}")
        notebook.click("Latest", cell=VIEWER)
        expect(output).to_contain_text("Turn 12")
    assert notebook.faults() == []


def test_a_text_is_searched_and_the_hits_are_gone_through(notebook: Notebook) -> None:
    notebook.click("Find", cell=VIEWER, times=2)
    box(notebook, VIEWER, "Search").fill("no such words anywhere")
    box(notebook, VIEWER, "Search").press("Enter")
    notebook.says(VIEWER, "Not found.")
    box(notebook, VIEWER, "Search").fill("inflation")
    box(notebook, VIEWER, "Search").press("Enter")
    notebook.says(VIEWER, "Hit 1 of ")
    for hit in (2, 3, 4):
        notebook.click("Next hit", cell=VIEWER)
        notebook.says(VIEWER, f"Hit {hit} of ")
    for hit in (3, 2, 1):
        notebook.click("Previous hit", cell=VIEWER)
        notebook.says(VIEWER, f"Hit {hit} of ")
    box(notebook, VIEWER, "Hits").select_option(index=5)
    notebook.says(VIEWER, "Hit 6 of ")
    assert notebook.axe_faults() == []
    notebook.screenshot("prompt_viewer_search", of=notebook.output(VIEWER))


def test_components_and_agents_are_chosen_and_texts_copied(notebook: Notebook) -> None:
    output = notebook.output(VIEWER)
    for component in ("validator", "engine", "agent"):
        box(notebook, VIEWER, "Component").select_option(label=component)
        expect(output).to_contain_text(f"Turn 12 · {component} · ")
    for index in (1, 0, 1):
        box(notebook, VIEWER, "Agent").select_option(index=index)
        name = box(notebook, VIEWER, "Agent").locator("option").nth(index).inner_text()
        expect(output).to_contain_text(f"Turn 12 · agent · {name}")
    copy = output.get_by_role("textbox", name="Prompt")
    for _ in range(3):
        notebook.click("Copy", cell=VIEWER)
        expect(copy).to_have_value(re.compile("economic"))
        copy.click()
        notebook.page.keyboard.press("Control+a")
        notebook.page.keyboard.press("Control+c")
        copied = notebook.page.evaluate("navigator.clipboard.readText()")
        assert copied == copy.input_value()
        notebook.click("Copy", cell=VIEWER)
        expect(copy).to_have_count(0)
    compare = box(notebook, VIEWER, "Compare with the turn before")
    for _ in range(3):
        compare.check()
        expect(output).to_contain_text("From turn 11 to turn 12")
        compare.uncheck()
        expect(output.get_by_text("From turn 11 to turn 12")).to_have_count(0)
