"""A seat for a person, used as a person does: by mouse, and by keyboard alone."""

from __future__ import annotations

import re

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect

SETUP = """
from llmsim_lab import Simulation
from llmsim_lab.lab import HumanSeat
people = {"Aland": "person"}
simulation = Simulation(
    nations=["Aland"], players=people, start_at="1979Q3", turns=4, economy={"shock_scale": 0}
)
"""
CLOSE = "seat.close()"
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("human_seat", [SETUP, "seat = HumanSeat(simulation); seat", CLOSE])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(answer(notebook)).to_be_visible()
    return notebook


def answer(notebook: Notebook) -> Locator:
    return notebook.output(WIDGET).get_by_role("button", name=re.compile(" the rate (at|to) "))


def at_turn(notebook: Notebook, number: int) -> None:
    expect(notebook.output(WIDGET).locator(".when")).to_contain_text(f"Turn {number} ")


def test_a_quarter_is_one_click_and_the_ending_stays_when_the_kernel_is_gone(
    notebook: Notebook,
) -> None:
    output = notebook.output(WIDGET)
    for turn in (1, 2, 3):
        answer(notebook).click()
        at_turn(notebook, turn)
    notebook.click("Ask the rule")
    expect(output).to_contain_text("The Taylor rule: Set the interest rate to")
    notebook.check_looks(WIDGET, "human_seat_asked")
    answer(notebook).click()
    for who in ("you (Aland)", "Taylor rule, inertia 0.5", "rate held"):
        expect(output.get_by_role("table")).to_contain_text(who)
    expect(output).to_contain_text("The rule was asked once.")
    notebook.check_looks(WIDGET, "human_seat_score")
    assert notebook.evaluate("[turn.statuses['ok'] for turn in simulation.turns[1:]]") == [1] * 4
    assert notebook.faults() == []
    notebook.run_cell(2)
    kept = notebook.outputs(WIDGET).locator(".llmsim-static").filter(visible=True)
    expect(kept).to_contain_text("Holding the rate would have cost")
    expect(notebook.outputs(WIDGET).locator(".jp-RenderedImage img")).to_be_visible()


def test_the_keyboard_alone_moves_the_rate_sends_it_and_says_why(notebook: Notebook) -> None:
    press = notebook.page.keyboard.press
    slider = notebook.output(WIDGET).get_by_role("slider", name="Rate")
    slider.focus()
    for _ in range(2):
        press("ArrowRight")
    expect(answer(notebook)).to_have_text("Raise the rate to 10.17 %")
    for turn in (1, 2):
        press("Enter")
        at_turn(notebook, turn)
        expect(slider).to_be_focused()
    press("Tab")
    press("Space")  # what may be said besides
    notebook.output(WIDGET).get_by_label("Reasoning").fill("Prices rise too fast.")
    press("Enter")  # within a text it begins a line
    while not answer(notebook).evaluate("it => it === it.getRootNode().activeElement"):
        press("Tab")
    press("Space")
    at_turn(notebook, 3)
    said = notebook.evaluate("simulation.turns[3].answers[0].reasoning")
    assert said.strip() == "Prices rise too fast."
