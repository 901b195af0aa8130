"""A seat for a person, filled in and sent as a person does."""

from __future__ import annotations

import re

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect

SETUP = """
from llmsim_lab import Simulation
from llmsim_lab.lab import HumanSeat
calm = {"shock_scale": 0}
people = {"Aland": "person"}
simulation = Simulation(
    nations=["Aland"], players=people, start_at="1979Q3", turns=4, seed=7, economy=calm
)
"""
CLOSE = "seat.close()"
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("human_seat", [SETUP, "seat = HumanSeat(simulation); seat", CLOSE])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Step", cell=WIDGET)).to_be_enabled()
    return notebook


def field(notebook: Notebook, label: str) -> Locator:
    return notebook.output(WIDGET).get_by_label(label, exact=True)


def fill(notebook: Notebook, action: str) -> None:
    field(notebook, "Action").fill(action)
    field(notebook, "Rate").fill("11.67")
    field(notebook, "Reasoning").fill("Prices rise too fast.")
    field(notebook, "Confidence").fill("0.8")


def answer(notebook: Notebook) -> Locator:
    return notebook.output(WIDGET).get_by_role("button", name=re.compile(" the rate (at|to) "))


def test_a_quarter_is_one_click_and_the_ending_stays_when_the_kernel_is_gone(
    notebook: Notebook,
) -> None:
    output = notebook.output(WIDGET)
    expect(output.get_by_role("heading").first).to_contain_text("The term begins")
    for turn in (1, 2, 3):
        answer(notebook).click()
        notebook.says(WIDGET, f"{turn} of 4 turns are played.")
    notebook.click("Ask the rule")
    expect(output).to_contain_text("The Taylor rule: Set the interest rate to")
    assert notebook.axe_faults() == []
    notebook.screenshot("human_seat_asked", of=output)
    answer(notebook).click()
    table = output.get_by_role("table").first
    for who in ("you (Aland)", "Taylor rule", "rate held"):
        expect(table).to_contain_text(who)
    expect(output).to_contain_text("The rule was asked once.")
    assert notebook.axe_faults() == []
    assert notebook.cut_off(WIDGET) == []
    notebook.screenshot("human_seat_score", of=output)
    assert notebook.evaluate("[turn.statuses['ok'] for turn in simulation.turns[1:]]") == [1] * 4
    assert notebook.faults() == []
    notebook.run_cell(2)
    kept = notebook.outputs(WIDGET).locator(".llmsim-static").filter(visible=True)
    expect(kept).to_contain_text("Holding the rate would have cost")
    expect(kept.get_by_role("img").first).to_be_visible()


def test_the_rate_is_moved_by_arrows_and_sent_by_enter(notebook: Notebook) -> None:
    notebook.output(WIDGET).locator(".noUi-handle").first.focus()
    for _ in range(2):
        notebook.page.keyboard.press("ArrowRight")
    expect(field(notebook, "Rate")).to_have_value("10.17")
    expect(answer(notebook)).to_have_text("Raise the rate to 10.17 %")
    for turn in (1, 2):
        field(notebook, "Rate").press("Enter")
        notebook.says(WIDGET, f"{turn} of 4 turns are played.")
        expect(field(notebook, "Rate")).to_be_focused()


def test_it_reads_in_the_dark_and_on_a_narrow_page(notebook: Notebook, lab: LabPage) -> None:
    notebook.click("Step")
    notebook.says(WIDGET, "It is your turn")
    fill(notebook, "Raise it")
    with lab.looking("JupyterLab Dark", width=400):
        notebook.screenshot("human_seat_dark_400", of=notebook.output(WIDGET))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(WIDGET) == []
    notebook.click("Stop")
