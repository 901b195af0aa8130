"""Take the README's pictures of the widgets anew: ``make screenshots``.

``take_screenshots.py --looks FOLDER [WIDGET ...]`` takes every widget, or those named, in light and
dark colours and on a wide and a narrow page, to be looked at one by one.
"""

from __future__ import annotations

import argparse
import io
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chromium import chromium
from lab_page import LabPage, Notebook, Theme
from lab_server import lab_server

from llmsim_lab import lab as widgets

if TYPE_CHECKING:
    from PIL.Image import Image
    from playwright.sync_api import Locator

DOCS = Path(__file__).resolve().parents[2] / "docs"
WIDTH, MOST_BYTES = 1180, 150_000
THEMES: tuple[Theme, ...] = ("JupyterLab Light", "JupyterLab Dark")
WIDTHS = (1200, 400)
LOOKS = "from widget_kit import every_widget\nwidgets = await every_widget()"

STEPPER = """
import ipywidgets as w
from llmsim_lab._util.files import data_path
from llmsim_lab.lab import RateChart, TurnStepper
from llmsim_lab.run import replay
run = replay(data_path("tapes/first_run.tape"), 1, turns=0)
stepper, chart = TurnStepper(run), RateChart(run)
w.VBox([stepper, chart])
"""
COMPARER = """
from llmsim_lab._util.files import data_path
from llmsim_lab.lab import PromptComparer
PromptComparer.from_results(data_path("tapes/prompt_experiment.tape"))
"""


def stepper(lab: LabPage) -> bytes:
    """Six turns played on the tape of the first notebook, and their chart."""
    notebook = lab.write("stepper", [STEPPER])
    notebook.run_cell(0)
    turns = notebook.output(0).get_by_label("Turns to play", exact=True)
    turns.fill("6")
    turns.press("Tab")
    notebook.until("stepper.turns_box.value == 6")
    notebook.click("Play", cell=0)
    notebook.says(0, "Turn 6 is played.")
    notebook.output(0).locator("[aria-label*='turns 0 to 6']").wait_for()
    notebook.output(0).locator(".js-plotly-plot .main-svg").first.wait_for()
    return picture(notebook, notebook.output(0))


def comparer(lab: LabPage) -> bytes:
    """The results of a recorded comparison, from what it cost to the first chart."""
    notebook = lab.write("comparer", [COMPARER])
    notebook.run_cell(0)
    output = notebook.output(0)
    first = output.get_by_label("Turns", exact=True)
    return picture(notebook, output, first=first, last=output.get_by_role("img").first)


def looks(lab: LabPage, names: Sequence[str]) -> None:
    """Take widgets in two themes and two widths, each as ``NAME_light_1200.png``."""
    notebook = lab.write("looks", [LOOKS, *(f"widgets[{name!r}]" for name in names)])
    notebook.run_all()
    for theme, width in itertools.product(THEMES, WIDTHS):
        with lab.looking(theme, width=width):
            for cell, name in enumerate(names, 1):
                look = f"{name}_{theme.split()[-1].lower()}_{width}"
                path = notebook.screenshot(look, of=notebook.output(cell))
                sys.stderr.write(f"{path}\n")


def picture(
    notebook: Notebook, of: Locator, *, first: Locator | None = None, last: Locator | None = None
) -> bytes:
    """Return a picture of a cell's outputs, or of the part from one thing in them to another."""
    with notebook.tall():
        notebook.page.mouse.move(0, 0)
        area = (of.locator(".jp-OutputArea-output").first).bounding_box()
        top = (first or of).bounding_box()
        bottom = (last or of).bounding_box()
        assert area is not None
        assert top is not None
        assert bottom is not None
        clip = {
            "x": area["x"] - 8,
            "y": top["y"] - 2,
            "width": area["width"] + 8,
            "height": bottom["y"] + bottom["height"] - top["y"] + 10,
        }
        return notebook.page.screenshot(clip=clip)


def small(png: bytes) -> bytes:
    """Return a PNG packed as well as can be, with fewer colours if it is too large without."""
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(png)).convert("RGB")
    packed = _packed(image)
    if len(packed) > MOST_BYTES:
        packed = _packed(image.quantize(256, method=PIL.Image.Quantize.MAXCOVERAGE))
    return packed


def _packed(image: Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def main() -> None:
    """Take those that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="stepper, comparer; with --looks, widgets")
    parser.add_argument("--looks", type=Path, metavar="FOLDER", help="take widgets, into a folder")
    given = parser.parse_args()
    pictures = {"stepper": stepper, "comparer": comparer}
    with (
        tempfile.TemporaryDirectory() as folder,
        lab_server(Path(folder)) as server,
        chromium() as browser,
    ):
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
        lab = LabPage(page, server, given.looks or Path(folder))
        if given.looks:
            given.looks.mkdir(parents=True, exist_ok=True)
            looks(lab, given.names or [name for name in widgets.__all__ if name != "leaderboard"])
        for name in [] if given.looks else given.names or pictures:
            data = small(pictures[name](lab))
            if len(data) > MOST_BYTES:
                raise SystemExit(f"{name}.png has {len(data):,} bytes, over {MOST_BYTES:,}")
            (DOCS / f"{name}.png").write_bytes(data)
            sys.stderr.write(f"docs/{name}.png: {len(data):,} bytes\n")
        lab.close()


if __name__ == "__main__":
    main()
