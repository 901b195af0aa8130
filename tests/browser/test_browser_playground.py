"""The playground in a real browser: made anew, served as any host would, and played."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from axe import faults_of
from playwright.sync_api import expect

from llmsim_lab import Tape, data_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "out" / "screenshots"
START_MS = 240_000
"""How long a browser may take to start Python, on a machine that is busy."""
MOST_BESIDE_THE_RUNTIME = 20_000_000
SPIED_ON = ("http://127.0.0.1:1/",)
"""What the page's policy refuses; a browser reports it to us as asked for at some times only."""
SPIED = """
import js
from pyodide.ffi import create_proxy
js.addEventListener("securitypolicyviolation", create_proxy(lambda event: print("refused")))
js.fetch("http://127.0.0.1:1/").catch(create_proxy(lambda error: None))
"""
SPOILS = """
import js
from pyodide.ffi import to_js
print("storage:", [name for name in ("indexedDB", "caches", "Worker") if hasattr(js, name)])
for place in ("pot", "my-pot"):
    for kind in ("tape", "page"):
        lie = {kind: f"{place}/{place}.tape", "bytes": b"spoiled"}
        js.postMessage(to_js(lie, dict_converter=js.Object.fromEntries))
"""
KEPT = """
() => new Promise((resolve) => {
    indexedDB.open("llmsim-lab playground").onsuccess = ({target}) => {
        const kept = target.result.transaction("worlds").objectStore("worlds").getAll();
        kept.onsuccess = () => resolve(kept.result.map(({place, tape}) => [place, tape?.length]));
    };
})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The playground, as ``make playground`` makes it."""
    made = tmp_path_factory.mktemp("playground") / "site"
    command = [sys.executable, str(ROOT / "playground" / "build.py"), str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return made


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def context(browser: Browser, address: str) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1400, "height": 950})
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    yield context
    context.close()
    asked = [url for url in asked if not url.startswith((*SPIED_ON, "blob:", "data:"))]
    hosts = {urlsplit(url).netloc for url in asked}
    assert hosts == {urlsplit(address).netloc}, "everything comes from the folder"


@pytest.fixture(scope="module")
def page(context: BrowserContext, address: str) -> Page:
    """One page for all tests, since Python takes seconds to start in it."""
    # Here, as for JupyterLab's page: a test that makes a folder in the checkout is a fault.
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page = context.new_page()
    page.set_default_timeout(START_MS)
    page.goto(address)
    expect(page.get_by_role("button", name="Step")).to_be_visible(timeout=START_MS)
    return page


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_all_but_the_runtime_is_small(folder: Path) -> None:
    own = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "pyodide"]
    assert 1_000_000 < sum(path.stat().st_size for path in own) < MOST_BESIDE_THE_RUNTIME


def test_a_world_is_played_forked_and_changed_by_chance_and_a_person(
    page: Page, tmp_path: Path
) -> None:
    press(page, "Step")
    expect(page.locator(".when")).to_have_text("Turn 1")
    page.get_by_label("You play Ann").check()
    press(page, "Start a run")
    expect(page.get_by_role("button", name=re.compile("players Ann"))).to_be_visible()
    press(page, "Step")
    form = page.get_by_role("form", name="Ann, turn 1")
    form.get_by_label("Amount").fill("21")
    press(page, "Answer")
    expect(form).to_contain_text("must be a whole number from 0 to 20")
    form.get_by_label("Amount").fill("7")
    press(page, "Answer")
    expect(page.locator(".when")).to_have_text("Turn 1")
    press(page, "Step")  # a second question, soon after the first
    page.get_by_role("form", name="Ann, turn 2").get_by_label("Amount").fill("3")
    press(page, "Answer")
    expect(page.locator(".when")).to_have_text("Turn 2")
    press(page, "Fork or change …")
    changes = page.get_by_role("form", name="Fork or change")
    changes.get_by_label(re.compile("Ann$")).fill("50")
    press(page, "Fork with 1 change")
    expect(page.get_by_role("button", name=re.compile("coins.Ann"))).to_be_visible()
    press(page, "Replay and compare")
    expect(page.locator("#says")).to_contain_text("3 runs with 5 turns, all equal")
    with page.expect_download() as saved:
        press(page, "Save")
    saved.value.save_as(tmp_path / "pot.tape")
    tape = Tape(tmp_path / "pot.tape", read_only=True)
    assert [info.fork_turn for info in tape.runs()] == [None, None, 2]
    assert tape.frame_rows(3)[2]["coins.Ann"] == 50
    with page.expect_download() as mailed:
        press(page, "Page to mail")
    assert "<title>pot.tape</title>" in Path(mailed.value.path()).read_text(encoding="utf-8")


def test_a_second_tab_keeps_a_copy_of_its_own(page: Page) -> None:
    second = page.context.new_page()
    second.goto(f"{page.url}#world=pot")
    expect(second.locator("#says")).to_have_text(
        "pot is open in another tab; here it is kept as pot-2."
    )
    second.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_is_accessible_and_fits(page: Page, scheme: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 950})
    page.emulate_media(color_scheme=scheme)
    page.screenshot(path=SCREENSHOTS / f"playground-{width}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert faults_of(page, "body") == []


def test_a_fault_is_shown_at_its_line_and_an_endless_loop_is_stopped(page: Page) -> None:
    code = page.get_by_label("Code of the world")
    good = code.input_value()
    line = good[: good.index("/ len(gifts)")].count("\n") + 1
    code.fill(good.replace("/ len(gifts)", "/ lenn(gifts)"))
    press(page, "Start a run")
    fault = page.locator("#wrong")
    expect(fault).to_have_text(
        f"Line {line}: NameError: name 'lenn' is not defined. Did you mean: 'len'?"
    )
    expect(page.locator("#numbers .bad")).to_have_text(str(line))
    code.fill(good.replace("class Gift(", "class Gift"))
    press(page, "Start a run")
    expect(fault).to_contain_text("Line 12: Python cannot read this line:")
    code.fill(good.replace("factor: float = 1.6", "while True: pass"))
    press(page, "Start a run")
    press(page, "Stop Python")
    page.get_by_label("You play Ann").uncheck()
    code.fill(good.replace("1.6", "2.0") + SPIED)
    expect(page.get_by_role("button", name="Start a run")).to_be_enabled(timeout=START_MS)
    press(page, "Start a run")
    expect(page.locator("#printed")).to_contain_text("refused", timeout=START_MS)
    press(page, "Step")
    expect(page.locator(".when")).to_have_text("Turn 1")


def test_a_reload_loses_nothing_and_code_from_a_link_waits_for_a_click(page: Page) -> None:
    press(page, "Copy link")
    expect(page.locator("#says")).to_contain_text("link")
    link = page.url
    assert "#name=pot&code=" in link
    code = page.get_by_label("Code of the world").input_value()
    expect(page.locator("html")).to_have_attribute("data-kept", "yes")
    page.reload()
    press(page, "Show the runs")
    expect(page.locator(".when")).to_have_text("Turn 1", timeout=START_MS)
    assert page.get_by_label("Code of the world").input_value() == code
    press(page, "Step")
    expect(page.locator(".when")).to_have_text("Turn 2")
    other = page.context.browser.new_context().new_page()  # type: ignore[union-attr]
    other.goto(link)
    expect(other.get_by_text("Nothing of it has run")).to_be_visible()
    assert other.get_by_label("Code of the world").input_value() == code
    assert other.locator("#window > *").count() == 0
    other.context.close()


def link_to(name: str, code: str) -> str:
    """Return the end of a link, as somebody makes it who means harm."""
    packer = zlib.compressobj(wbits=-15)
    packed = base64.urlsafe_b64encode(packer.compress(code.encode()) + packer.flush())
    return f"#name={name}&code={packed.decode().rstrip('=')}"


def test_code_of_a_link_reaches_nothing_of_what_other_worlds_have_kept(
    page: Page, address: str
) -> None:
    before = dict(page.evaluate(KEPT))
    assert any(before.values())
    code = (ROOT / "playground" / "worlds" / "pot.py").read_text(encoding="utf-8")
    other = page.context.new_page()
    downloads: list[object] = []
    other.on("download", lambda download: downloads.append(download))
    other.goto(f"{address}{link_to('evil', code + SPOILS)}")
    button = other.get_by_role("button", name="Start a run")
    expect(button).to_be_enabled(timeout=START_MS)
    button.click()
    expect(other.locator("#printed")).to_contain_text("storage: []", timeout=START_MS)
    press(other, "Step")
    expect(other.locator(".when")).to_have_text("Turn 1")
    expect(other.locator("html")).to_have_attribute("data-kept", "yes")
    after = dict(other.evaluate(KEPT))
    assert after.pop("my-evil") > 1_000
    assert after == before
    assert downloads == []
    # A world of the user's own is not played by a Python in which such code has run.
    other.locator("#choice").select_option("beauty_contest")
    expect(other.locator(".when")).to_have_text("Start", timeout=START_MS)
    assert "storage" not in other.locator("#printed").inner_text().partition("storage: []")[2]
    other.close()


def test_a_tape_from_elsewhere_is_opened_and_played_on_with_its_world(page: Page) -> None:
    tape = data_path("templates/contract_net.tape")
    page.get_by_label("Open a tape or a world …").set_input_files(tape)
    expect(page.locator(".when")).to_contain_text(f"Turn {Tape(tape).run().turns}")
    expect(page.get_by_label("Code of the world")).to_have_value(
        tape.with_suffix(".py").read_text(encoding="utf-8")
    )


def test_opened_as_a_file_the_page_says_that_it_needs_a_server(
    browser: Browser, folder: Path
) -> None:
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    expect(page.get_by_role("status")).to_contain_text("python -m http.server")
    page.close()
