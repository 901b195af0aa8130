"""The tree of a tape's runs, clicked."""

from __future__ import annotations

import re

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect

SETUP = """
from llmsim_lab._util.files import data_path
from llmsim_lab.lab import RunTree
from llmsim_lab.llm import Tape
from scenes import Model
tape = Tape(data_path("tapes/first_run.tape"), read_only=True)
"""
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("run_tree", [SETUP, "tree = RunTree(tape); tree"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Open", cell=WIDGET)).to_be_enabled()
    return notebook


def choose(notebook: Notebook, label: str, index: int) -> None:
    lists: Locator = notebook.output(WIDGET).get_by_label(label, exact=True)
    expect(lists).to_be_enabled()
    lists.select_option(index=index)


def test_a_run_is_chosen_and_compared_with_its_forks(notebook: Notebook) -> None:
    output = notebook.output(WIDGET)
    places: dict[int, tuple[float, float]] = {}
    for number, place in ((1, (0, 0)), (2, (1, 0)), (3, (1, 1))):
        box = notebook.button(re.compile(rf"\b{number} one nation"), cell=WIDGET).bounding_box()
        assert box is not None
        places[number] = box["x"], box["y"]
        assert (box["x"] > places[1][0], box["y"] > places[1][1]) == tuple(map(bool, place))
    node = notebook.button(re.compile("3 one nation"), cell=WIDGET)
    node.focus()
    notebook.page.keyboard.press("Space")
    notebook.says(WIDGET, "Run 1 and run 3 are compared.")
    expect(node).to_contain_text("○")
    for other in (2, 3, 2):
        choose(notebook, "Compare with", other)
        notebook.says(WIDGET, f"Run 1 and run {other} are compared.")
        expect(output).to_contain_text("They part at turn 4")
        expect(output.locator("img")).to_have_attribute(
            "alt", re.compile(rf"run 1: Policy rate .*run {other}: Policy rate ")
        )
    assert notebook.axe_faults() == []
    assert notebook.cut_off(WIDGET) == []
    notebook.screenshot("run_tree_light", of=output)
    choose(notebook, "Compare with", 1)
    notebook.says(WIDGET, "A run does not differ from itself")
    choose(notebook, "Compare with", 0)
    expect(output.locator("img")).to_have_count(0)
    for run in (2, 3, 1):
        choose(notebook, "Run", run - 1)
        expect(output).to_contain_text(f"Run {run}")
    assert notebook.faults() == []


def test_it_reads_in_the_dark_and_on_a_narrow_page(notebook: Notebook, lab: LabPage) -> None:
    choose(notebook, "Compare with", 2)
    notebook.says(WIDGET, "are compared.")
    with lab.looking("JupyterLab Dark", width=800):
        notebook.screenshot("run_tree_dark_800", of=notebook.output(WIDGET))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(WIDGET) == []
