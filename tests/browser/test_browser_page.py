"""The page of runs in a real browser: opened from a file, with no network."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import axe
import pytest
from own_worlds import own_runs
from page_kit import HOSTILE, add_odd_run, hostile_game, long_run
from playwright.sync_api import Browser, Page, expect

from llmsim_lab import data_path
from llmsim_lab.run.page import write_page
from llmsim_lab.run.reading import Reading
from llmsim_lab.run.recorded import page as write

VIEWS = ("overview", "turn", "calls", "compare", "compare&of=calls")
MOST_BYTES, MOST_NODES = 3_000_000, 1_500


class Opened:
    """A page that was opened from its file; what it asked for, and what its script complained of.

    Args:
        page: the browser's.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: Path, place: str = "") -> Page:
        """Open a file at a place of it, such as ``call=17``, and wait until it is ready."""
        self.page.goto("about:blank")
        self.page.goto(f"{path.as_uri()}#{place}")
        expect(self.page.locator("html[data-ready]")).to_have_count(1)
        return self.page


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "first.html"
    return write(data_path("tapes/first_run.tape"), path)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    seen = Opened(context.new_page())
    yield seen
    context.close()
    assert [url for url in seen.asked if not url.startswith(("file:", "about:"))] == []
    assert seen.complaints == []


def test_the_runs_lead_to_each_other_and_a_chart_tells_its_values(
    opened: Opened, first_run: Path
) -> None:
    page = opened.open(first_run)
    runs = page.get_by_role("group", name="Runs").get_by_role("button")
    expect(runs).to_have_count(3)
    runs.filter(has_text="turn 3: shock.supply = 4 (oil)").click()
    expect(runs.nth(1)).to_have_attribute("aria-pressed", "true")
    chart = page.get_by_role("img", name="Policy rate").first
    box = chart.bounding_box()
    assert box is not None
    at = box["x"] + box["width"] * 3 / 8
    page.mouse.move(at, box["y"] + 50)
    tip = page.locator(".tip")
    expect(tip).to_contain_text("Turn 3 · 1980Q2")
    expect(tip).to_contain_text("shock.supply = 4 (oil)")
    page.mouse.click(at, box["y"] + 50)
    expect(page.get_by_role("region", name="Decisions")).to_contain_text("United States")
    expect(page.locator(".when")).to_have_text("Turn 3 · 1980Q2")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".when")).to_have_text("Turn 4 · 1980Q3")
    page.wait_for_url("**#*turn=4*")


def test_a_range_is_zoomed_to_and_back(opened: Opened, first_run: Path) -> None:
    page = opened.open(first_run, "run=1")
    chart = page.get_by_role("img", name="Policy rate").first
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 50, steps=4)
    page.mouse.up()
    expect(page.get_by_text("1979Q3", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Show all turns").click()
    expect(page.get_by_text("1979Q3", exact=True).first).to_be_visible()


def test_calls_are_filtered_searched_and_walked_through_by_keys(
    opened: Opened, first_run: Path
) -> None:
    page = opened.open(first_run, "run=1&view=calls")
    rows = page.get_by_role("listbox", name="Calls").get_by_role("option")
    found = page.locator(".calls-count")
    expect(found).to_have_text("24 calls")
    page.get_by_label("All components").select_option("validator")
    expect(found).to_have_text("8 of 24 calls")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("BORROWING costs")
    expect(found).to_contain_text("hit")
    expect(page.locator(".call mark.hit").first).to_have_text("borrowing costs")
    page.keyboard.press("Escape")
    expect(found).to_have_text("8 of 24 calls")
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    page.wait_for_url("**#*component=validator*")


def test_a_link_opens_a_call_with_its_prompt_by_slot(opened: Opened, first_run: Path) -> None:
    page = opened.open(first_run, "run=2&call=26")
    detail = page.get_by_role("article", name="Call of United States")
    expect(detail).to_contain_text("You are a validator of policy actions")
    slot = detail.locator("mark.slot", has_text="economic policy: interest rates")
    slot.hover()
    expect(detail).to_contain_text("domain_description")
    expect(detail).to_contain_text("the validator's domain")


def test_two_calls_and_two_runs_are_compared_word_by_word(opened: Opened, first_run: Path) -> None:
    page = opened.open(first_run, "view=compare&of=calls&a=10&b=40")
    expect(page.locator("del").first).to_be_visible()
    expect(page.locator("ins").filter(has_text="central banker").first).to_be_visible()
    page = opened.open(first_run, "view=compare&of=runs&a=1&b=3")
    templates = page.get_by_role("region", name="Prompt templates")
    expect(templates.locator("ins").first).to_contain_text("central banker who fears inflation")
    apart = page.get_by_role("region", name="Decisions that differ")
    apart.get_by_role("button", name="compare").first.click()
    expect(page.get_by_role("region", name="Replies")).to_be_visible()


def test_what_a_model_wrote_is_read_and_never_obeyed(opened: Opened, tmp_path: Path) -> None:
    game = hostile_game(tape=tmp_path / "a.tape")
    game.fork(1, intervene=[{"turn": 1, "set": {"coins.Ann": 5}}]).run(1)
    path = write(tmp_path / "a.tape", tmp_path / "poison.html")
    for view in (*(f"view={name}" for name in VIEWS), "turn=1", "call=2"):
        page = opened.open(path, view)
        expect(page.get_by_role("main")).to_be_visible()
        expect(page.locator("#page img, #page script, #page style")).to_have_count(0)
        assert page.evaluate("window.hacked") is None
    page = opened.open(path, "call=2")
    expect(page.get_by_role("article")).to_contain_text(
        "<script>window.hacked=1</script><img src=x"
    )
    expect(page.get_by_role("article")).to_contain_text("␛[31m ⟨U+202E⟩reversed {{ script }}")
    page = opened.open(path, f"view=calls&q={quote(HOSTILE[:20])}")
    expect(page.locator("mark.hit").first).to_have_text("<script>window.hacke")


def test_names_and_texts_that_a_script_would_stumble_over_are_shown(
    opened: Opened, tmp_path: Path
) -> None:
    names = ["__proto__", "constructor", "toString", "\u2028", "\ud800", "a\0b", ".*+?^${}()|[]\\"]
    texts = [f"{name}: {HOSTILE}" for name in names]
    texts += [f'{{"a": {"[" * 50_000}{"]" * 50_000}}}', f"{{{'[' * 100_000}"]
    reading = Reading("\ud800</title>")
    for number in (1, 2):
        add_odd_run(reading, number, names, texts)
    path = write_page(tmp_path / "odd.html", reading, start=1)
    for view in (*VIEWS, "__proto__", "toString"):
        page = opened.open(path, f"view={view}")
        expect(page.get_by_role("main")).to_be_visible()
        assert page.evaluate("window.hacked") is None
    page = opened.open(path, "view=turn&turn=1")
    for name in ("__proto__", "constructor", "toString"):
        expect(page.get_by_role("region", name="State")).to_contain_text(name.replace("_", " "))
    page = opened.open(path, f"view=calls&run=1&q={quote(names[-1])}")
    expect(page.locator(".calls-count")).to_contain_text("1 of 9 calls")


@pytest.mark.parametrize("text", ["李", "{x}\n"])
def test_a_text_of_a_million_letters_is_opened_searched_and_compared_without_a_halt(
    opened: Opened, tmp_path: Path, text: str
) -> None:
    texts = [text * (count // len(text)) for count in (1_000_000, 900_000)]
    texts[1] = "\n".join(f"{at} {line}" for at, line in enumerate(texts[1].split("\n")))
    reading = Reading("long")
    add_odd_run(reading, 1, ["Ann", "Bob"], texts)
    path = write_page(tmp_path / "long.html", reading, start=1)
    for place in ("view=calls&call=1", "view=calls&q=x", "view=compare&of=calls&a=1&b=2"):
        page = opened.open(path, place)
        expect(page.get_by_role("main")).to_be_visible()
        assert page.locator("*").count() < 8 * MOST_NODES
    page.get_by_role("button", name="more").first.click()
    expect(page.get_by_role("button", name="more").first).to_be_visible()


def test_ten_thousand_calls_are_a_small_file_of_which_little_is_drawn(
    opened: Opened, tmp_path: Path
) -> None:
    path = write_page(tmp_path / "long.html", long_run(), start=1)
    assert path.stat().st_size < MOST_BYTES
    began = time.perf_counter()
    page = opened.open(path)
    seconds = time.perf_counter() - began
    sys.stderr.write(f"{path.stat().st_size / 1e6:.1f} MB, open in {seconds:.2f} s\n")
    page = opened.open(path, "view=calls")
    count = page.locator(".calls-count")
    expect(count).to_have_text("10,000 calls")
    assert page.locator("*").count() < MOST_NODES
    page.get_by_role("searchbox").fill("news of turn 7:")
    expect(count).to_contain_text("40 of 10,000 calls")
    page.get_by_role("searchbox").fill("")
    expect(count).to_have_text("10,000 calls")
    rows = page.get_by_role("listbox", name="Calls")
    rows.focus()
    page.keyboard.press("End")
    expect(rows.get_by_role("option", selected=True)).to_contain_text("turn 250")
    assert page.locator("*").count() < MOST_NODES


def test_without_scripts_the_page_says_what_it_takes(browser: Browser, first_run: Path) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(first_run.as_uri())
    assert "open the file in a browser" in page.inner_text("main")
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 400)])
def test_every_view_is_accessible_and_as_wide_as_the_window(
    browser: Browser, first_run: Path, tmp_path: Path, scheme: str, width: int
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    seen = Opened(context.new_page())
    for place in ("run=2", "run=2&turn=4", "call=26", "view=compare&of=calls&a=10&b=40",
                  "view=compare&of=runs&a=1&b=3"):  # fmt: skip
        page = seen.open(first_run, place)
        expect(page.get_by_role("main")).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{place} is {wide} px wide"
        assert axe.faults_of(page, "#page") == [], place
    jury = own_runs(str(tmp_path))["jury"].page(tmp_path / "jury.html")
    for place in ("view=overview", "view=turn"):  # with rows of yes and no, a network and tables
        page = seen.open(jury, place)
        expect(page.get_by_role("main")).to_be_visible()
        assert axe.faults_of(page, "#page") == [], place
    context.close()
