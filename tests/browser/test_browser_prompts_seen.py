"""The prompt viewer, clicked."""

from __future__ import annotations

import re

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import expect

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


def test_a_prompt_is_copied_by_keys(notebook: Notebook) -> None:
    output = notebook.output(VIEWER)
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
