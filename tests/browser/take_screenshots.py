"""Take the README's animation of the window anew: ``make screenshots``.

``take_screenshots.py --looks FOLDER [WIDGET ...]`` takes every widget, the views of the window and
those of a mailed page, or the widgets named, in light and dark colours at three widths, to be
looked at one by one.
"""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chromium import chromium
from lab_page import LabPage, Notebook, Theme
from lab_server import lab_server
from own_worlds import own_runs
from playwright.sync_api import Error as PlaywrightError

from llmsim_lab import data_path
from llmsim_lab import lab as widgets
from llmsim_lab.run import load

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

DOCS = Path(__file__).resolve().parents[2] / "docs"
WIDTH, MOST_BYTES, WINDOW_HEIGHT = 1180, 600_000, 760
MOST_OFF = 60
"""Of 255: how far a colour of the palette may be from the one that it stands for."""
THEMES: tuple[Theme, ...] = ("JupyterLab Light", "JupyterLab Dark")
WIDTHS = (1400, 800, 400)
# What is clicked for each look of a widget, after the one before it.
CLICKS: dict[str, dict[str, list[str | re.Pattern[str]]]] = {
    "Lab": {
        "Lab_turn": ["Turn"],
        "Lab_calls": [re.compile("^Calls")],
        "Lab_compare": ["Compare"],
        "Lab_fork": ["Overview", "Fork or change …", re.compile("^From turn")],
        "Lab_change": ["Parameters, from the beginning"],
        "Lab_keys": ["Cancel", "Keys"],
        "Lab": ["Keys"],
    },
    "Gossip": {
        "Gossip_fork": ["Fork or change …", re.compile("^From turn")],
        "Gossip_change": ["Parameters, from the beginning"],
        "Gossip": ["Cancel"],
    },
    "Gossip_seat": {"Gossip_seat": [], "Gossip_seat_wrong": ["Answer"]},
}
PAGE_VIEWS = {
    "overview": "run=2",
    "turn": "run=2&turn=5",
    "calls": "run=2&view=calls&q=rate&call=26",
    "compare_runs": "run=3&view=compare",
    "compare_calls": "view=compare&of=calls&a=10&b=40",
}
OWN_VIEWS = {
    "gossip": {
        "overview": "view=overview&turn=4",
        "turn": "view=turn",
        "compare": "view=compare&run=2",
    },
    "jury": {"overview": "run=1", "turn": "view=turn"},
    "market": {"overview": "run=1", "turn": "view=turn"},
    "start": {"overview": "run=1"},
}
TAPES = {
    "two_nations": "tapes/two_nations.tape",
    "crisis": "tapes/crisis.tape",
    "social": "tapes/social.tape",
    **{
        name: f"templates/{name}.tape"
        for name in (
            "beauty_contest",
            "contract_net",
            "double_auction",
            "prisoners_dilemma",
            "public_goods",
            "ultimatum",
        )
    },
}
"""The other worlds and six templates."""
TAPE_VIEWS = {"overview": "run=1", "turn": "view=turn"}
OWN_WIDGETS = ("Gossip", "Gossip_seat")
LOOKS = """
import asyncio
from llmsim_lab.lab import HumanSeat, Lab
from own_worlds import Gossip
from widget_kit import every_widget
widgets = await every_widget()
rumour = Gossip(players="random", seed=3)
await rumour.arun(4)
widgets["Gossip"] = Lab(rumour)
widgets["Gossip_seat"] = HumanSeat(Gossip(players={"Ada": "person", "*": "random"}))
turn = asyncio.ensure_future(widgets["Gossip_seat"].play())
"""

WINDOW = """
from llmsim_lab.lab import Lab
from llmsim_lab.simulation import Simulation
window = Lab(Simulation(start_at="2000Q2", turns=12, nations=["Central bank"], players="rule"))
window
"""


def window(lab: LabPage) -> bytes:
    """A run by rule that is stepped, forked with an oil shock, played on and compared, as a GIF."""
    notebook = lab.write("window", [WINDOW])
    notebook.run_cell(0)
    output = notebook.output(0)
    output.get_by_role("button", name="Step").wait_for()
    frames: list[tuple[bytes, int]] = []

    def take(milliseconds: int) -> None:
        notebook.page.wait_for_timeout(600)  # until the chart has moved
        frames.append((picture(notebook, output), milliseconds))

    def at_turn(number: int) -> None:
        output.locator(".when", has_text=f"Turn {number} ").wait_for()

    output.get_by_label("Turns to play").fill("8")
    take(1200)
    for turn in range(1, 5):
        notebook.click("Step", cell=0)
        at_turn(turn)
        take(700)
    notebook.click("Fork or change …", cell=0)
    output.get_by_role("group", name="Shock").get_by_label("Supply").fill("4")
    take(2200)
    notebook.click("Fork with 1 change", cell=0)
    output.get_by_role("group", name="Runs").wait_for()
    take(1200)
    notebook.click("Play", cell=0)
    at_turn(12)
    take(1500)
    output.get_by_role("group", name="Runs").get_by_role("button").first.click()
    at_turn(4)
    notebook.click("Play", cell=0)
    at_turn(12)
    take(4000)
    return animation(frames)


def animation(frames: Sequence[tuple[bytes, int]]) -> bytes:
    """Return pictures, each with its milliseconds, as a GIF that begins again.

    Raises:
        SystemExit: a frame of the GIF is not its picture.
    """
    import PIL.Image
    import PIL.ImageChops

    pictures = [PIL.Image.open(io.BytesIO(png)).convert("RGB") for png, _ in frames]
    width = pictures[0].width
    height = min(WINDOW_HEIGHT, max(image.height for image in pictures))
    # All of one size, since a viewer leaves black what a frame has not, and of one palette: the
    # last one alone has no form, and no button that is pressed.
    film = PIL.Image.new("RGB", (width, height * len(pictures)), "white")
    for place, image in enumerate(pictures):
        film.paste(image.crop((0, 0, width, min(height, image.height))), (0, place * height))
    boxes = [(0, place * height, width, (place + 1) * height) for place in range(len(pictures))]
    images = [film.crop(box) for box in boxes]
    palette = film.quantize(96)
    colours = palette.getpalette() or []
    whitest = max(range(96), key=lambda index: sum(colours[3 * index : 3 * index + 3]))
    colours[3 * whitest : 3 * whitest + 3] = [255, 255, 255]  # as the page around it
    palette.putpalette(colours)
    first, *rest = [
        image.quantize(palette=palette, dither=PIL.Image.Dither.NONE) for image in images
    ]
    buffer = io.BytesIO()
    times = [milliseconds for _, milliseconds in frames]
    # Not optimized: Pillow would leave out what stays, with a colour that is in use as transparent.
    first.save(
        buffer, "GIF", save_all=True, append_images=rest, duration=times, loop=0, optimize=False
    )
    with PIL.Image.open(buffer) as written:
        for place, image in enumerate(images):
            written.seek(place)
            difference = PIL.ImageChops.difference(written.convert("RGB"), image).convert("L")
            if difference.getextrema()[1] > MOST_OFF:
                raise SystemExit(f"frame {place + 1} of the animation is not its picture")
    return buffer.getvalue()


def looks(lab: LabPage, names: Sequence[str]) -> list[str]:
    """Take widgets in two themes and all widths, each as ``NAME_light_1400.png``.

    Of the window, each view and its forms are taken too.

    Returns:
        Those that could not be taken.
    """
    notebook = lab.write("looks", [LOOKS, *(f"widgets[{name!r}]" for name in names)])
    notebook.run_all()
    failed = []
    for theme, width in itertools.product(THEMES, WIDTHS):
        with lab.looking(theme, width=width):
            for cell, widget in enumerate(names, 1):
                for name, clicks in CLICKS.get(widget, {widget: []}).items():
                    look = f"{name}_{theme.split()[-1].lower()}_{width}"
                    try:
                        for button in clicks:
                            notebook.button(button, cell=cell).click()
                        path = notebook.screenshot(look, of=notebook.output(cell))
                        sys.stderr.write(f"{path}\n")
                    except PlaywrightError as error:
                        failed.append(f"{look}: {str(error).splitlines()[0]}")
    return failed


def page_looks(browser: Browser, folder: Path) -> list[str]:
    """Take the views of mailed pages likewise, each as ``page_VIEW_light_1400.png``.

    They are of recorded runs, and of worlds that are not ours, as users write them.
    """
    sys.path.append(str(data_path("templates")))  # so that a template's tape has its class
    file = load(data_path("tapes/first_run.tape")).page(folder / "page.html")
    failed = views_of(browser, file, PAGE_VIEWS)
    with tempfile.TemporaryDirectory() as tapes:
        for name, run in own_runs(tapes).items():
            own_file = run.page(folder / f"{name}.html")
            failed += views_of(browser, own_file, OWN_VIEWS[name])
    for name, tape in TAPES.items():
        if tape.startswith("templates"):
            importlib.import_module(name)
        tape_file = load(data_path(tape)).page(folder / f"{name}.html")
        failed += views_of(browser, tape_file, TAPE_VIEWS)
    return failed


def views_of(browser: Browser, file: Path, views: Mapping[str, str]) -> list[str]:
    """Take the views of a page, by their names and addresses, and remove it."""
    failed = []
    for theme in ("light", "dark"):
        page = browser.new_page(color_scheme=theme)
        page.goto(file.resolve().as_uri())
        for width, view in itertools.product(WIDTHS, views):
            path = file.with_name(f"{file.stem}_{view}_{theme}_{width}.png")
            try:
                page.set_viewport_size({"width": width, "height": 1000})
                page.evaluate("(place) => {location.hash = place}", views[view])
                page.get_by_role("main").wait_for()
                page.wait_for_timeout(300)  # until the charts know how wide they are
                page.screenshot(path=path, full_page=True)
                sys.stderr.write(f"{path}\n")
            except PlaywrightError as error:
                failed.append(f"{path.stem}: {str(error).splitlines()[0]}")
        page.close()
    file.unlink()
    return failed


def picture(notebook: Notebook, of: Locator) -> bytes:
    """Return a picture of a cell's window, as high as it is."""
    with notebook.tall():
        notebook.page.mouse.move(0, 0)
        return of.locator(".jp-OutputArea-output").first.screenshot()


def main() -> None:
    """Take those that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of docs/; with --looks, widgets")
    parser.add_argument("--looks", type=Path, metavar="FOLDER", help="take widgets, into a folder")
    given = parser.parse_args()
    pictures = {"window.gif": window}
    with (
        tempfile.TemporaryDirectory() as folder,
        lab_server(Path(folder)) as server,
        chromium() as browser,
    ):
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
        lab = LabPage(page, server, given.looks or Path(folder))
        if given.looks:
            given.looks.mkdir(parents=True, exist_ok=True)
            names = [name for name in widgets.__all__ if name != "leaderboard"]
            names += OWN_WIDGETS
            failed = looks(lab, given.names or names)
            if not given.names:
                failed += page_looks(browser, given.looks)
            if failed:
                raise SystemExit("Not taken:\n" + "\n".join(failed))
        for name in [] if given.looks else given.names or pictures:
            data = pictures[name](lab)
            if len(data) > MOST_BYTES:
                raise SystemExit(f"{name} has {len(data):,} bytes, which is too many")
            (DOCS / name).write_bytes(data)
            sys.stderr.write(f"docs/{name}: {len(data):,} bytes\n")
        lab.close()


if __name__ == "__main__":
    main()
