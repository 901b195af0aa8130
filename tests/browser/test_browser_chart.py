"""The chart of runs, beside a stepper that plays one of them."""

from __future__ import annotations

import re

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect

SETUP = """
from llmsim_lab.lab import RateChart, TurnStepper
from scenes import Model, make_run
model = Model()
simulation = make_run(model)
"""
STEPPER, CHART = 1, 2


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    cells = [
        SETUP,
        "stepper = TurnStepper(simulation); stepper",
        "chart = RateChart(simulation); chart",
    ]
    notebook = lab.write("chart", cells)
    for cell in range(3):
        notebook.run_cell(cell)
    expect(picture(notebook)).to_be_visible()
    return notebook


def picture(notebook: Notebook) -> Locator:
    """The chart."""
    return notebook.output(CHART).get_by_role("img").first


def latest_rate(notebook: Notebook) -> str:
    return f"{notebook.evaluate('simulation.state.global_state.interest_rate'):.2f}".rstrip("0")


def test_the_chart_follows_a_run_and_says_its_latest_values(notebook: Notebook) -> None:
    for turn in (1, 2, 3):
        notebook.click("Step", cell=STEPPER)
        expect(picture(notebook)).to_have_accessible_name(re.compile(rf"turns 0 to {turn}\b"))
        expect(picture(notebook)).to_have_accessible_name(re.compile(latest_rate(notebook)))
    notebook.evaluate("model.set(waiting=True)")
    notebook.click("Play", cell=STEPPER)
    notebook.says(STEPPER, "1 of 4")
    expect(picture(notebook)).to_have_accessible_name(re.compile(r"turns 0 to 3\b"))
    notebook.evaluate("model.set(waiting=False)")
    expect(picture(notebook)).to_have_accessible_name(re.compile(r"turns 0 to 7\b"))
    assert notebook.axe_faults() == []
    assert notebook.cut_off(CHART) == []
    notebook.screenshot("chart_light", of=notebook.output(CHART))
    assert notebook.faults() == []


def test_files_are_downloaded(notebook: Notebook) -> None:
    notebook.click("Step", cell=STEPPER)
    output = notebook.output(CHART)
    for _ in range(3):
        for kind in ("PNG", "SVG", "CSV"):
            notebook.click(kind, cell=CHART)
            link = output.get_by_role("link", name=re.compile(rf"chart\.{kind.lower()}"))
            expect(link).to_be_visible()
            with notebook.page.expect_download() as download:
                link.click()
            assert download.value.suggested_filename == f"chart.{kind.lower()}"
            assert download.value.path().stat().st_size > 100
    assert notebook.faults() == []


def test_it_reads_in_the_dark_and_on_a_narrow_page(notebook: Notebook, lab: LabPage) -> None:
    notebook.click("Step", cell=STEPPER)
    notebook.says(STEPPER, "Turn 1 is played.")
    notebook.click("Show table", cell=CHART)
    with lab.looking("JupyterLab Dark", width=800):
        notebook.screenshot("chart_dark_800", of=notebook.output(CHART))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(CHART) == []
