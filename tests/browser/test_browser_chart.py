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
    expect(plot(notebook)).to_be_visible(timeout=60_000)  # plotly is imported and sent
    return notebook


def plot(notebook: Notebook) -> Locator:
    """The chart that plotly draws."""
    return notebook.output(CHART).locator(".js-plotly-plot .main-svg").first


def picture(notebook: Notebook) -> Locator:
    """The chart in words."""
    return notebook.output(CHART).locator("[role=img]")


def points(notebook: Notebook) -> Locator:
    """The run's points in the large panel."""
    first = notebook.output(CHART).locator(".js-plotly-plot .scatterlayer .trace").first
    return first.locator(".point")


def test_hovering_says_who_decided_and_a_click_opens_the_prompt(notebook: Notebook) -> None:
    output, page = notebook.output(CHART), notebook.page
    for turn in (1, 2):
        notebook.click("Step", cell=STEPPER)
        expect(points(notebook)).to_have_count(turn + 1)
    with notebook.tall():
        box = points(notebook).nth(1).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        label = output.locator(".hoverlayer .hovertext")
        expect(label).to_contain_text("Turn 1 (1979Q4)")
        expect(label).to_contain_text("Aland, ok:")
        expect(label).to_contain_text("Raise the interest rate by 0.25")
        page.screenshot(path=notebook.lab.screenshots / "chart_hover_light.png")
        wide = plot(notebook).bounding_box()
        page.mouse.down()
        page.mouse.up()
        expect(output).to_contain_text("Turn 1 · agent · Aland")
        expect(output).to_contain_text("You are an economic policy advisor")
        notebook.page.wait_for_timeout(300)
        narrow = plot(notebook).bounding_box()
    assert wide is not None
    assert narrow is not None
    assert narrow["width"] < 0.8 * wide["width"]
    assert notebook.cut_off(CHART) == []
    notebook.screenshot("chart_prompt_light", of=output)
    notebook.click("Step", cell=STEPPER)
    expect(points(notebook)).to_have_count(4)
    notebook.click("Hide prompts", cell=CHART)
    expect(output.get_by_text("Turn 1 · agent · Aland")).to_have_count(0)
    # A page that is loaded anew gets what there is now, not what there was at first.
    notebook.reload()
    expect(points(notebook)).to_have_count(4)
    assert notebook.faults() == []


def latest_rate(notebook: Notebook) -> str:
    return f"{notebook.evaluate('simulation.state.global_state.interest_rate'):.2f}".rstrip("0")


def test_the_chart_follows_a_run_and_says_its_latest_values(notebook: Notebook) -> None:
    for turn in (1, 2, 3):
        notebook.click("Step", cell=STEPPER)
        expect(picture(notebook)).to_have_accessible_name(re.compile(rf"turns 0 to {turn}\b"))
        expect(picture(notebook)).to_have_accessible_name(re.compile(latest_rate(notebook)))
        expect(points(notebook)).to_have_count(turn + 1)
    notebook.evaluate("model.set(waiting=True)")
    notebook.click("Play", cell=STEPPER)
    notebook.says(STEPPER, "1 of 4")
    expect(picture(notebook)).to_have_accessible_name(re.compile(r"turns 0 to 3\b"))
    notebook.evaluate("model.set(waiting=False)")
    expect(picture(notebook)).to_have_accessible_name(re.compile(r"turns 0 to 7\b"))
    expect(points(notebook)).to_have_count(8)
    assert notebook.axe_faults() == []
    assert notebook.cut_off(CHART) == []
    notebook.screenshot("chart_light", of=notebook.output(CHART))
    assert notebook.faults() == []


def test_columns_and_references_are_chosen(notebook: Notebook) -> None:
    for turn in (1, 2, 3):  # a click while a turn is still being played is passed over
        notebook.click("Step", cell=STEPPER)
        notebook.until(f"simulation.turn_number == {turn} and not stepper.worker.busy")
    output = notebook.output(CHART)
    main = output.get_by_label("Main chart", exact=True)
    names = main.locator("option").all_inner_texts()
    for name in (names[1], names[2], names[0]):
        main.select_option(label=name)
        label = name.partition("(")[0].strip()
        expect(output.locator(".annotation-text").first).to_contain_text(label)
    for label, drawn in (("Taylor rule", "Taylor"), ("History", "history"), ("Inflation", "")):
        box = output.get_by_label(re.compile(label)).first
        said = output.locator(".legendtext" if drawn else ".annotation-text")
        here = said.filter(has_text=drawn or label)
        for count in (0, 1):
            box.click()
            expect(here).to_have_count(count)
    for _ in range(3):
        notebook.click("Update", cell=CHART)
        notebook.says(CHART, "Up to turn 3.")


def test_files_are_made_and_the_table_is_shown(notebook: Notebook) -> None:
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
    notebook.button("Play", cell=STEPPER).click()
    notebook.says(STEPPER, "Turn 5 is played.")
    notebook.button("Play", cell=STEPPER).click()
    notebook.says(STEPPER, "Turn 9 is played.")
    notebook.button("Play", cell=STEPPER).click()
    notebook.says(STEPPER, "Turn 13 is played.")
    for _ in range(3):
        notebook.click("Show table", cell=CHART)
        expect(output.get_by_role("table").last).to_be_visible()
        page = output.get_by_label("Page (1 is the latest)")
        for number, turn in (("2", "3"), ("1", "13")):
            page.fill(number)
            page.press("Tab")
            expect(output.get_by_role("rowheader", name=turn, exact=True).first).to_be_visible()
        notebook.click("Hide table", cell=CHART)
        expect(page).to_be_hidden()
    assert notebook.faults() == []


def test_it_reads_in_the_dark_and_on_a_narrow_page(notebook: Notebook, lab: LabPage) -> None:
    notebook.click("Step", cell=STEPPER)
    notebook.says(STEPPER, "Turn 1 is played.")
    notebook.click("Show table", cell=CHART)
    with lab.looking("JupyterLab Dark", width=800):
        notebook.screenshot("chart_dark_800", of=notebook.output(CHART))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(CHART) == []
