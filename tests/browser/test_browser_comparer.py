"""Variants of a prompt, edited and run in the browser."""

from __future__ import annotations

import re

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect

SETUP = """
from llmsim_lab.lab import PromptComparer
from scenes import Model, make_run
model = Model()
simulation = make_run(model, "Aland")
_ = await simulation.arun(3)
"""
COMPARER = "comparer = PromptComparer(simulation, 'agent', turns=[1, 3], samples=2); comparer"
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("comparer", [SETUP, COMPARER])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Run", cell=WIDGET)).to_be_visible()
    return notebook


def prompts(notebook: Notebook) -> Locator:
    return notebook.output(WIDGET).get_by_label("Prompt", exact=True)


def make_bold(notebook: Notebook) -> None:
    text = prompts(notebook).nth(0).input_value()
    bold = text.replace("for a nation", "for a nation, bold and strict")
    assert bold != text
    prompts(notebook).nth(1).fill(bold)
    notebook.output(WIDGET).get_by_label("Show what differs, word by word").check()
    expect(notebook.output(WIDGET).locator("ins").first).to_contain_text("bold")
    notebook.until("'bold' in comparer.editors[1].prompt.text")


def test_faults_of_a_prompt_show_as_it_is_typed(notebook: Notebook) -> None:
    output, second = notebook.output(WIDGET), prompts(notebook).nth(1)
    good = second.input_value()
    for fault, said in (
        ("{{ infaltion }}", "infaltion"),
        ("{{ inflation", re.compile("line|brace|template|syntax", re.IGNORECASE)),
        ("{{ open('x') }}", "a call is not allowed"),
    ):
        second.fill(good)
        second.press("Control+End")
        second.press_sequentially(fault)
        expect(output.get_by_role("alert").first).to_contain_text(said)
        expect(output).to_contain_text("Cannot run:")
        expect(notebook.button("Run", cell=WIDGET)).to_be_disabled()
    assert notebook.axe_faults() == []
    notebook.screenshot("comparer_fault", of=output)
    second.fill(good)
    expect(output.get_by_role("alert")).to_have_count(0)
    make_bold(notebook)
    expect(notebook.button("Run", cell=WIDGET)).to_be_enabled()
    assert notebook.faults() == []


def test_variants_are_run_stopped_and_compared(notebook: Notebook) -> None:
    output = notebook.output(WIDGET)
    run, stop = (notebook.button(name, cell=WIDGET) for name in ("Run", "Stop"))
    make_bold(notebook)
    expect(output).to_contain_text("2 variants, 2 turns, 2 samples:")
    for _ in range(3):
        notebook.evaluate("model.set(waiting=True)")
        run.dblclick()
        expect(output).to_contain_text("0 of 8 samples played")
        expect(run).to_be_disabled()
        expect(prompts(notebook).nth(1)).to_be_disabled()
        stop.click()
        expect(output).to_contain_text("Stopped after 0 of 8 samples")
        notebook.evaluate("model.set(waiting=False)")
    for samples in (2, 3, 4):
        output.get_by_label("Samples", exact=True).fill(str(samples))
        output.get_by_label("Samples", exact=True).press("Tab")
        expect(run).to_be_enabled()
        notebook.until(f"comparer.samples_box.value == {samples}")
        run.click()
        expect(output).to_contain_text(f"{4 * samples} of {4 * samples} samples played")
        expect(output).to_contain_text("all samples are played")
    chart = output.get_by_role("img").first
    expect(chart).to_have_attribute("alt", re.compile("variant 2"))
    assert notebook.evaluate("len(comparer.frame)") == 16
    assert notebook.axe_faults() == []
    assert notebook.cut_off(WIDGET) == []
    notebook.screenshot("comparer_results", of=output)
    assert notebook.faults() == []


def test_it_reads_in_the_dark_and_on_a_narrow_page(notebook: Notebook, lab: LabPage) -> None:
    make_bold(notebook)
    notebook.click("Run", cell=WIDGET)
    expect(notebook.output(WIDGET)).to_contain_text("all samples are played")
    with lab.looking("JupyterLab Dark", width=800):
        notebook.screenshot("comparer_dark_800", of=notebook.output(WIDGET))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(WIDGET) == []
