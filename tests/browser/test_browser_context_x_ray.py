"""The context X-ray, clicked: whose prompt, which module, what a model answers without it."""

from __future__ import annotations

import pytest
from lab_page import LOOKS, LabPage, Notebook, Theme
from playwright.sync_api import Locator, expect

SETUP = """
from crisis_kit import crisis_client, said
from llmsim_lab._util.files import data_path
from llmsim_lab.lab import ContextXRay
from scenes import Model
class Advisor(Model):
    async def __call__(self, request):
        await super().__call__(request)
        trusting = "TRUST DYNAMICS" in request.prompt
        return said("Talk to the allies first" if trusting else "Close every port tonight")
model = Advisor()
client = crisis_client(model)
"""
XRAY = """
xray = ContextXRay(data_path("tapes/crisis.tape"), run=1, llm_client=client)
xray
"""
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("context_x_ray", [SETUP, XRAY])
    notebook.run_cell(0)
    notebook.run_cell(1)
    expect(notebook.button("Ask", cell=WIDGET)).to_be_enabled()
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


def test_a_model_is_asked_with_and_without_a_module(notebook: Notebook) -> None:
    look_at(notebook, "Taiwan", 2)
    alert = notebook.output(WIDGET).get_by_role("alert")
    notebook.click("Ask", cell=WIDGET)
    expect(alert).to_contain_text("untick a module first")
    field(notebook, "trust_dynamics").uncheck()
    for samples in (2, 3):
        field(notebook, "Samples").fill(str(samples))
        notebook.click("Ask", cell=WIDGET)
        notebook.says(WIDGET, f"{samples} of {samples} samples asked")
        expect(alert).to_have_count(0)
        shows(notebook, "Close every port tonight")
        shows(notebook, "Talk to the allies first")
    assert notebook.faults() == []


def test_stop_keeps_the_samples_so_far(notebook: Notebook) -> None:
    field(notebook, "trust_dynamics").uncheck()
    notebook.evaluate("model.set(waiting=True)")
    for _ in range(3):
        notebook.click("Ask", cell=WIDGET)
        notebook.says(WIDGET, "Asking: 5 samples, 15 calls")
        notebook.click("Stop", cell=WIDGET)
        notebook.says(WIDGET, "Stopped.")
        expect(notebook.button("Ask", cell=WIDGET)).to_be_enabled()
    notebook.evaluate("model.set(waiting=False)")
    notebook.click("Ask", cell=WIDGET)
    notebook.says(WIDGET, "5 of 5 samples asked")


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
    field(notebook, "Samples").fill("2")
    notebook.click("Ask", cell=WIDGET)
    notebook.says(WIDGET, "2 of 2 samples asked")
    with lab.looking(theme, width=width):
        name = f"x_ray_{theme.split()[-1].lower()}_{width}"
        notebook.screenshot(name, of=notebook.output(WIDGET))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(WIDGET) == []
        assert not notebook.moves_sideways()
