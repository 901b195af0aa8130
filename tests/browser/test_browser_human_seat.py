"""A seat for a person, filled in and sent as a person does."""

from __future__ import annotations

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect

SETUP = """
from builders import make_config
from llmsim_lab import Simulation
from llmsim_lab.lab import HumanSeat
simulation = Simulation(
    make_config(nations=[{"name": "Aland", "kind": "human"}], start="1979Q3", turns=4, seed=7)
)
"""
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("human_seat", [SETUP, "seat = HumanSeat(simulation); seat", "6 * 7"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Step", cell=WIDGET)).to_be_enabled()
    return notebook


def field(notebook: Notebook, label: str) -> Locator:
    return notebook.output(WIDGET).get_by_label(label, exact=True)


def fill(notebook: Notebook, action: str) -> None:
    field(notebook, "Action").fill(action)
    field(notebook, "New rate").select_option(index=6)
    field(notebook, "Reasoning").fill("Prices rise too fast.")
    field(notebook, "Confidence").select_option(label="0.80")


def test_answers_are_given_and_the_leaderboard_shows_the_score(notebook: Notebook) -> None:
    output = notebook.output(WIDGET)
    answer = notebook.button("Answer", cell=WIDGET)
    for turn in (1, 2, 3):
        expect(answer).to_be_disabled()
        notebook.click("Step")
        notebook.says(WIDGET, f"It is your turn to answer. Turn {turn} waits for: Aland.")
        expect(field(notebook, "Action")).to_have_value("")
        fill(notebook, "Raise the interest rate")
        if turn == 1:
            assert notebook.axe_faults() == []
            notebook.screenshot("human_seat_asked", of=output)
        answer.click()
        notebook.says(WIDGET, f"{turn} of 4 turns are played.")
    for _ in range(3):
        notebook.click("Score")
        expect(output.get_by_role("table").last).to_contain_text("you (Aland)")
        expect(output.get_by_role("table").last).to_contain_text("Taylor rule")
        expect(notebook.button("Score", cell=WIDGET)).to_be_enabled()
    assert notebook.axe_faults() == []
    assert notebook.cut_off(WIDGET) == []
    notebook.screenshot("human_seat_score", of=output)
    assert notebook.evaluate("[turn.statuses['ok'] for turn in simulation.turns[1:]]") == [1, 1, 1]
    assert notebook.faults() == []


def test_an_answer_with_an_empty_field_is_not_sent(notebook: Notebook) -> None:
    alert = notebook.output(WIDGET).get_by_role("alert")
    notebook.click("Step")
    for _ in range(3):
        notebook.click("Answer")
        expect(alert).to_contain_text("the answer of Aland was not sent")
    fill(notebook, "Raise the interest rate")
    field(notebook, "Confidence").select_option(index=0)
    notebook.until("seat.forms['Aland'].values['confidence'] is None")
    notebook.click("Answer")
    expect(alert).to_contain_text("confidence")
    expect(field(notebook, "Action")).to_have_value("Raise the interest rate")
    assert notebook.axe_faults() == []
    notebook.screenshot("human_seat_refused", of=notebook.output(WIDGET))
    fill(notebook, "Raise the interest rate")
    notebook.click("Answer")
    notebook.says(WIDGET, "1 of 4 turns are played.")


def test_an_answer_beside_the_point_comes_back_once(notebook: Notebook) -> None:
    notebook.click("Step")
    notebook.says(WIDGET, "It is your turn")
    fill(notebook, "Dance in the streets")
    notebook.click("Answer")
    alert = notebook.output(WIDGET).get_by_role("alert")
    expect(alert).to_contain_text("This is the second try, and the last.")
    fill(notebook, "Raise the interest rate")
    notebook.click("Answer")
    notebook.says(WIDGET, "1 of 4 turns are played.")
    assert notebook.evaluate("simulation.turns[1].statuses['repaired']") == 1


def test_a_cell_runs_while_the_seat_waits_and_stop_leaves_the_run(notebook: Notebook) -> None:
    for _ in range(3):
        notebook.button("Step", cell=WIDGET).dblclick()
        notebook.says(WIDGET, "It is your turn to answer.")
        notebook.run_cell(2)
        expect(notebook.output(2)).to_contain_text("42")
        notebook.click("Stop")
        notebook.says(WIDGET, "0 of 4 turns are played.")
    assert notebook.evaluate("simulation.turn_number") == 0
    assert notebook.faults() == []


def test_it_reads_in_the_dark_and_on_a_narrow_page(notebook: Notebook, lab: LabPage) -> None:
    notebook.click("Step")
    notebook.says(WIDGET, "It is your turn")
    fill(notebook, "Dance in the streets")
    with lab.looking("JupyterLab Dark", width=800):
        notebook.screenshot("human_seat_dark_800", of=notebook.output(WIDGET))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(WIDGET) == []
    notebook.click("Stop")
