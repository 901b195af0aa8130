"""The context X-ray, clicked: whose prompt, and which modules."""

from __future__ import annotations

import pytest
from lab_page import LOOKS, LabPage, Notebook, Theme
from playwright.sync_api import Locator, expect

SETUP = """
from llmsim_lab._util.files import data_path
from llmsim_lab.lab import ContextXRay
"""
XRAY = """
xray = ContextXRay(data_path("tapes/crisis.tape"))
xray
"""
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("context_x_ray", [SETUP, XRAY])
    notebook.run_cell(0)
    notebook.run_cell(1)
    shows(notebook, "Tokens by module")
    return notebook


def field(notebook: Notebook, label: str) -> Locator:
    return notebook.output(WIDGET).get_by_label(label, exact=True)


def shows(notebook: Notebook, text: str) -> None:
    expect(notebook.output(WIDGET)).to_contain_text(text)


def section(notebook: Notebook, name: str) -> Locator:
    rows = notebook.output(WIDGET).get_by_role("table").first.get_by_role("row")
    return rows.filter(has=notebook.page.get_by_role("rowheader", name=name, exact=True))


def look_at(notebook: Notebook, agent: str, turn: int) -> None:
    field(notebook, "Agent").select_option(label=agent)
    field(notebook, "Turn shown").fill(str(turn))
    field(notebook, "Turn shown").press("Enter")
    shows(notebook, f"{agent}, turn {turn}: about ")


def test_the_prompt_of_an_agent_and_a_turn_is_chosen(notebook: Notebook) -> None:
    for agent, turn in (("China", 2), ("Japan", 1), ("Taiwan", 2)):
        look_at(notebook, agent, turn)
        shows(notebook, f"You are the government of {agent}.")
        shows(notebook, f"Time: Step {turn} ")
    expect(section(notebook, "DIPLOMACY")).to_contain_text("module diplomatic_base")
    expect(section(notebook, "SITUATION")).to_contain_text("context builder")
    assert notebook.faults() == []


def test_a_module_is_left_out_and_put_back(notebook: Notebook) -> None:
    look_at(notebook, "Taiwan", 2)
    box = field(notebook, "trust_dynamics")
    gone = notebook.output(WIDGET).locator("del")
    for _ in range(3):
        expect(section(notebook, "TRUST DYNAMICS").get_by_role("cell").last).to_have_text("yes")
        box.uncheck()
        expect(section(notebook, "TRUST DYNAMICS").get_by_role("cell").last).to_have_text("no")
        expect(gone).to_contain_text("Your trust is stable (65/100).")
        shows(notebook, "without trust_dynamics (-33)")
        box.check()
        expect(gone).to_have_count(0)
    assert notebook.faults() == []


def test_what_was_chosen_is_there_after_the_page_was_loaded_anew(notebook: Notebook) -> None:
    look_at(notebook, "Japan", 1)
    field(notebook, "diplomatic_base").uncheck()
    shows(notebook, "without diplomatic_base")
    notebook.reload()
    shows(notebook, "Japan, turn 1: about ")
    expect(field(notebook, "diplomatic_base")).not_to_be_checked()
    field(notebook, "diplomatic_base").check()
    expect(section(notebook, "DIPLOMACY").get_by_role("cell").last).to_have_text("yes")


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_it_reads_in_both_colours_and_on_a_narrow_page(
    notebook: Notebook, lab: LabPage, theme: Theme, width: int
) -> None:
    look_at(notebook, "Taiwan", 2)
    field(notebook, "trust_dynamics").uncheck()
    with lab.looking(theme, width=width):
        name = f"x_ray_{theme.split()[-1].lower()}_{width}"
        notebook.screenshot(name, of=notebook.output(WIDGET))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(WIDGET) == []
        assert not notebook.moves_sideways()
