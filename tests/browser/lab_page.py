"""A JupyterLab page as a person uses it: open a notebook, run it, click, read."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import axe
import nbformat

if TYPE_CHECKING:
    from lab_server import LabServer
    from playwright.sync_api import ConsoleMessage, Error, Locator, Page, Request

__all__ = ["OUTPUTS", "LabPage", "Notebook", "Theme"]

OUTPUTS = ".jp-Notebook .jp-OutputArea"
OPEN_S = 60.0

Theme = Literal["JupyterLab Light", "JupyterLab Dark"]
LOOKS: list[tuple[Theme, int]] = [("JupyterLab Light", 1200), ("JupyterLab Dark", 400)]
"""Colours and widths, pixels, that a widget has to be readable in."""

OPEN = """
async ({path, kernel}) => {
    const app = window.jupyterapp;
    await app.restored;
    const panel = await app.commands.execute(
        "docmanager:open", {path, factory: "Notebook", ...(kernel ? {} : {kernel: null})});
    app.shell.activateById(panel.id);
    await panel.context.ready;
    if (kernel) {
        await panel.sessionContext.ready;
        await panel.sessionContext.session.kernel.info;
    }
    window.panel = panel;
}
"""
# A kernel may still be starting when it is connected; cells sent to it then are lost in some
# versions, so a page waits until it has nothing to do.
IDLE = "() => window.panel.sessionContext.session?.kernel?.status === 'idle'"
KERNEL = "() => window.panel.sessionContext.session.kernel.id"
LOADED = "() => !document.querySelector('.jp-Notebook').textContent.includes('Loading widget...')"
CLOSE = """
async () => {
    const app = window.jupyterapp;
    if (window.panel) {
        window.panel.context.model.dirty = false;
        window.panel.dispose();
        window.panel = undefined;
    }
    await app.serviceManager.sessions.shutdownAll();
}
"""
SAVE = "() => window.panel.context.save().then(() => window.panel.context.path)"
FAULTS = """
() => [...window.panel.content.model.cells].flatMap((cell, index) =>
    cell.type !== "code" ? [] : cell.outputs.toJSON()
        .filter(out => out.output_type === "error" || out.name === "stderr")
        .map(out => `cell ${index}: ${out.ename ? out.ename + ": " + out.evalue : out.text}`))
"""
# What can be scrolled by its own bar is not cut off, except the outputs as a whole.
CUT_OFF = """
(area) => {
    const right = area.getBoundingClientRect().right;
    const name = (element) =>
        `${element.tagName.toLowerCase()}.${element.className}: ` +
        `${(element.textContent || element.value || "").trim().slice(0, 60)}`;
    const scrolls = (element) => {
        for (let up = element.parentElement; up && up !== area; up = up.parentElement)
            if (["auto", "scroll"].includes(getComputedStyle(up).overflowX) &&
                !up.matches(".jp-OutputArea-output, .jp-OutputArea-child"))
                return true;
        return false;
    };
    return [...area.querySelectorAll("*")].filter(element => {
        const box = element.getBoundingClientRect();
        if (!box.width || !box.height || scrolls(element) || element.closest("svg")) return false;
        const hides = ["hidden", "clip"].includes(getComputedStyle(element).overflowX);
        return box.right > right + 1 || (hides && element.scrollWidth > element.clientWidth + 1);
    }).map(name);
}
"""
HEIGHT = """
async () => {
    const frame = document.querySelector(".jp-WindowedPanel-outer");
    frame.scrollTop = 0;
    await new Promise(done => setTimeout(done, 100));
    const inner = document.querySelector(".jp-WindowedPanel-inner");
    return Math.ceil(window.innerHeight - frame.clientHeight + inner.scrollHeight + 40);
}
"""
SIDEWAYS = """
() => [document.scrollingElement,
       ...document.querySelectorAll(".jp-WindowedPanel-outer, .jp-OutputArea .widget-box")]
    .some(frame => frame.scrollWidth > frame.clientWidth + 1)
"""
EXECUTE = """
async (code) => {
    const kernel = window.panel.sessionContext.session.kernel;
    const future = kernel.requestExecute({
        code: "", silent: true, store_history: false, user_expressions: {value: code}});
    const reply = await future.done;
    const value = reply.content.user_expressions.value;
    return value.status === "ok" ? value.data["text/plain"] : value.ename + ": " + value.evalue;
}
"""


class LabPage:
    """One browser tab with JupyterLab; notebooks are opened in it one after the other.

    Attributes:
        complaints: what the page's scripts reported as errors since the notebook was opened.
        foreign: addresses outside this machine that the page asked for.
    """

    def __init__(self, page: Page, server: LabServer, screenshots: Path) -> None:
        self.page = page
        self.server = server
        self.screenshots = screenshots
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self._open_now: tuple[str, ...] = ()
        page.on("pageerror", self._on_error)
        page.on("console", self._on_console)
        page.on("request", self._on_request)
        page.set_default_timeout(20_000)
        self._start()

    def _start(self) -> None:
        page, server = self.page, self.server
        page.goto(f"{server.url}lab?token={server.token}", timeout=OPEN_S * 1000)
        page.wait_for_function("window.jupyterapp !== undefined", timeout=OPEN_S * 1000)
        page.evaluate("window.jupyterapp.restored.then(() => null)")
        page.evaluate("window.jupyterapp.shell.collapseLeft()")

    def _on_error(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.server.url, "data:", "blob:", "ws://127.0.0.1")):
            self.foreign.append(request.url)

    def theme(self, name: Theme) -> None:
        """Change the colours."""
        self.page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name
        )
        light = "true" if name == "JupyterLab Light" else "false"
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached")

    @contextmanager
    def looking(self, theme: Theme, *, width: int) -> Iterator[None]:
        """Change colours and width for a while."""
        before = self.page.viewport_size
        assert before is not None
        self.theme(theme)
        self.page.set_viewport_size({"width": width, "height": before["height"]})
        try:
            yield
        finally:
            self.page.set_viewport_size(before)
            self.theme("JupyterLab Light")

    def write(self, name: str, cells: Sequence[str]) -> Notebook:
        """Write a notebook of these code cells and open it, unless it is open and idle."""
        if self._open_now == (name, *cells) and self.page.evaluate(IDLE):
            self.complaints.clear()
            return Notebook(self)
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        nbformat.write(notebook, self.server.root / f"{name}.ipynb")
        opened = self._open(f"{name}.ipynb")
        self._open_now = (name, *cells)
        return opened

    def copy(self, path: Path) -> Notebook:
        """Open a copy of a notebook."""
        shutil.copyfile(path, self.server.root / path.name)
        return self._open(path.name)

    def _open(self, name: str, *, kernel: bool = True) -> Notebook:
        self.close()
        self.complaints.clear()
        return self._show(name, kernel=kernel)

    def _show(self, name: str, *, kernel: bool = True) -> Notebook:
        self.page.evaluate(OPEN, {"path": name, "kernel": kernel})
        if kernel:
            self.page.wait_for_function(IDLE, timeout=OPEN_S * 1000)
        return Notebook(self)

    def reload(self) -> None:
        """Save the notebook and load the page anew, as a person does; the kernel keeps running.

        Once in some twenty times on a busy machine JupyterLab finds none of the kernel's widgets
        and says "widget model not found"; a person then loads the page again.
        """
        path: str = self.page.evaluate(SAVE)
        kernel: str = self.page.evaluate(KERNEL)
        for _ in range(3):
            self.complaints.clear()
            self.page.goto("about:blank")
            self._start()
            self._show(path)
            assert self.page.evaluate(KERNEL) == kernel, "the notebook got another kernel"
            self.page.wait_for_function(LOADED)
            if not any("widget model not found" in text for text in self.complaints):
                break

    def reopen(self, *, kernel: bool = True) -> None:
        """Save and close the notebook, shut its kernel down, and open the file again.

        Args:
            kernel: True if it then gets a new kernel, as it does unless somebody refuses one.
        """
        self._open(self.page.evaluate(SAVE), kernel=kernel)

    def close(self) -> None:
        """Close the notebook and stop its kernel."""
        self._open_now = ()
        self.page.evaluate(CLOSE)


class Notebook:
    """The notebook that is open in a page."""

    def __init__(self, lab: LabPage) -> None:
        self.lab = lab
        self.page = lab.page

    def command(self, name: str) -> None:
        """Give a command of JupyterLab's menus, and wait until it is done."""
        self.page.evaluate(
            "(name) => window.jupyterapp.commands.execute(name).then(() => null)", name
        )

    def run_all(self) -> None:
        """Run all cells, and wait until the last has run."""
        self.command("notebook:run-all-cells")
        self.page.wait_for_function(IDLE)

    def run_cell(self, index: int) -> None:
        """Run one cell, and wait until it has run."""
        self.page.evaluate("(index) => {window.panel.content.activeCellIndex = index}", index)
        self.command("notebook:run-cell")

    def reload(self) -> None:
        """Save and load the page anew; the kernel keeps running."""
        self.lab.reload()

    def moves_sideways(self) -> bool:
        """Return True if the page, the notebook or a widget has a bar to move it sideways."""
        return bool(self.page.evaluate(SIDEWAYS))

    def faults(self) -> list[str]:
        """Return the error outputs and what was written to stderr, by cell."""
        found: list[str] = self.page.evaluate(FAULTS)
        return found

    def evaluate(self, expression: str) -> Any:
        """Return the value of a Python expression in the kernel, which must be one of JSON."""
        text = self.page.evaluate(EXECUTE, f"__import__('json').dumps({expression})")
        try:
            return json.loads(text[1:-1].encode().decode("unicode_escape"))
        except ValueError:
            raise AssertionError(f"{expression} gave {text}") from None

    def output(self, cell: int) -> Locator:
        """The first output of a cell, counted from 0; a widget's second is its static view."""
        return self.outputs(cell).locator(".jp-OutputArea-child").first

    def outputs(self, cell: int) -> Locator:
        """The area below a cell, counted from 0, where its outputs are."""
        return self.page.locator(
            f".jp-Notebook-cell[data-windowed-list-index='{cell}'] .jp-OutputArea"
        ).first

    def button(self, name: str | re.Pattern[str], *, cell: int | None = None) -> Locator:
        """The button of this accessible name, in all outputs or those of one cell."""
        where = self.page.locator(OUTPUTS) if cell is None else self.output(cell)
        return where.get_by_role("button", name=name, exact=isinstance(name, str))

    def click(self, name: str, *, cell: int | None = None, times: int = 1) -> None:
        """Click a button, waiting each time until it can be."""
        for _ in range(times):
            self.button(name, cell=cell).click()

    @contextmanager
    def tall(self) -> Iterator[None]:
        """Make the page as tall as the notebook: what is scrolled away is not drawn."""
        before = self.page.viewport_size
        assert before is not None
        for _ in range(3):  # what comes into view may grow
            height = self.page.evaluate(HEIGHT)
            self.page.set_viewport_size({"width": before["width"], "height": height})
        try:
            yield
        finally:
            self.page.set_viewport_size(before)

    def says(self, cell: int, text: str | re.Pattern[str]) -> None:
        """Wait until a widget's status, which screen readers read out, holds a text."""
        from playwright.sync_api import expect

        expect(self.output(cell).get_by_role("status").first).to_contain_text(text)

    def cut_off(self, cell: int) -> list[str]:
        """Return the texts and controls of a cell's outputs that do not fit where they are."""
        with self.tall():
            found: list[str] = self.output(cell).evaluate(CUT_OFF)
        return found

    def axe_faults(self) -> list[str]:
        """Return the serious and critical accessibility faults of the outputs."""
        with self.tall():
            return axe.faults_of(self.page, OUTPUTS)

    def check_looks(self, cell: int, name: str) -> None:
        """Check that a widget can be read in both colours, wide and narrow; keep pictures."""
        for theme, width in LOOKS:
            with self.lab.looking(theme, width=width):
                self.screenshot(f"{name}_{width}", of=self.output(cell))
                assert self.axe_faults() == []
                assert self.cut_off(cell) == []
                assert not self.moves_sideways()

    def screenshot(self, name: str, *, of: Locator | None = None) -> Path:
        """Keep a picture of the whole notebook, or of a part of it."""
        path = self.lab.screenshots / f"{name}.png"
        with self.tall():
            (of or self.page.locator(".jp-Notebook")).screenshot(path=path)
        return path
