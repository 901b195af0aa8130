"""A notebook of every widget: each is seen once, live or, when the file is reopened, static."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab_page import LabPage
from lab_server import TESTS
from playwright.sync_api import Locator, expect

SETUP = """
from IPython.display import display
from widget_kit import every_widget
widgets = await every_widget()
"""
SHOWN = {
    "AssistantChat": "I have added it.",
    "HumanSeat": "Raise the rate",
    "PromptComparer": "PromptComparer of agent_policy: as it was, bold",
    "PromptViewer": "You are an economic policy advisor",
    "RateChart": "one nation",
    "RunTree": "2 one nation · fork at turn 3",
    "StudyBoard": "2 arms, 4 seeds: 8 done",
    "TurnStepper": "Turn 8 (1981Q3)",
}
"""What is read in a widget's static view."""


PARTS: dict[str, tuple[Any, str]] = {
    "PromptViewer": ("listbox", "Calls"),
    "RateChart": ("img", "Policy rate"),
    "RunTree": ("group", "Runs"),
    "TurnStepper": ("region", "Decisions"),
}
"""What a preset has of the window, by role and name."""


PICTURED = ("HumanSeat", "RateChart", "RunTree", "StudyBoard")
"""Those that leave a picture above their text."""


def seen(outputs: Locator) -> Locator:
    """Those outputs of an area that can be seen."""
    return outputs.locator(":scope > .jp-OutputArea-child").filter(visible=True)


def test_every_widget_is_seen_once_while_it_lives_and_read_when_the_file_is_reopened(
    lab: LabPage,
) -> None:
    notebook = lab.write("reopened", [SETUP, *(f"widgets[{name!r}]" for name in SHOWN)])
    notebook.run_all()
    with notebook.tall():
        for cell, _ in enumerate(SHOWN, 1):
            expect(seen(notebook.outputs(cell))).to_have_count(1)
            expect(seen(notebook.outputs(cell)).locator(".llmsim-live").first).to_be_visible()
    # Anew, since the page was not as tall before the widgets came.
    with notebook.tall():
        for name, (role, label) in PARTS.items():
            part = notebook.output(list(SHOWN).index(name) + 1).get_by_role(role, name=label)
            expect(part.first).to_be_visible()
    assert notebook.axe_faults() == []
    assert notebook.faults() == []
    for kernel, instead in ((False, "Loading widget"), (True, "model not found")):
        lab.reopen(kernel=kernel)
        with notebook.tall():
            # It is still there, and out of sight.
            expect(notebook.page.get_by_text(instead)).to_have_count(len(SHOWN))
            for cell, (name, text) in enumerate(SHOWN.items(), 1):
                outputs = seen(notebook.outputs(cell))
                expect(outputs.last).to_contain_text(text)
                expect(outputs).to_have_count(2 if name in PICTURED else 1)
                expect(outputs.locator("img")).to_have_count(int(name in PICTURED))
    assert notebook.axe_faults() == []
    notebook.screenshot("reopened_light")
    lab.theme("JupyterLab Dark")
    notebook.screenshot("reopened_dark")
    lab.theme("JupyterLab Light")
    assert lab.foreign == []
    # What JupyterLab does not show any more it still reports to the console, each once or twice.
    assert [text for text in lab.complaints if "widget model not found" not in text] == []
    lab.complaints.clear()


PLAYED = [
    "from worlds import PublicGoods\nfrom llmsim_lab.lab import Lab\n"
    "run = PublicGoods(players='random', seed=3)",
    "window = Lab(run); window",
    "await window.play(2)",
    "run.run(1, progress=False); None",
]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook that was executed as a whole, outside JupyterLab, so that it is not trusted."""
    path = tmp_path_factory.mktemp("executed") / "executed.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(it) for it in PLAYED])
    nbformat.write(notebook, path)
    convert(path, "notebook", "--execute", "--inplace")
    return path


def convert(path: Path, to: str, *more: str) -> None:
    command = [sys.executable, "-m", "nbconvert", "--to", to, *more, str(path)]
    subprocess.run(
        command, check=True, env=os.environ | {"PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
    )


def reads_the_last_turn(place: Locator) -> None:
    """What stays is the picture and the table of the last turn played, each once."""
    picture = place.locator(".jp-RenderedImage img").filter(visible=True)
    expect(picture).to_have_count(1)
    assert picture.evaluate("image => image.complete && image.naturalWidth > 400")
    expect(place.get_by_text("Turn 3", exact=True).filter(visible=True)).to_have_count(1)
    tables = place.get_by_role("table").filter(visible=True)
    expect(tables).to_have_count(2)
    expect(tables.first).to_contain_text(re.compile("coins.*given.*Ann"))
    expect(tables.last).to_contain_text("Decisions")
    words = place.get_by_role("group").filter(has_text="The picture in words")
    expect(words).to_contain_text(re.compile("turns 0 to 3: coins.Ann 20 → "))


def test_a_page_of_an_executed_notebook_shows_the_last_turn(lab: LabPage, executed: Path) -> None:
    convert(executed, "html")
    page = lab.page.context.new_page()
    # The page asks for fonts and formulas, which are outside this machine.
    page.route(re.compile("^https?:"), lambda route: route.abort())
    page.goto(executed.with_suffix(".html").as_uri())
    reads_the_last_turn(page.locator("body"))
    page.screenshot(path=lab.screenshots / "executed_page.png", full_page=True)
    page.close()


def test_an_untrusted_notebook_shows_the_last_turn(lab: LabPage, executed: Path) -> None:
    notebook = lab.copy(executed)
    assert notebook.page.evaluate("window.panel.content.model.cells.get(1).trusted") is False
    with notebook.tall():
        reads_the_last_turn(notebook.outputs(1))
    notebook.screenshot("executed_untrusted")
    lab.complaints.clear()  # of models that are not found
