"""The page of runs in a real browser: opened from a file, with no network."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import axe
import pytest
from page_kit import HOSTILE, hostile_game, long_run, odd_run
from playwright.sync_api import Browser, Page, expect
from worlds import PublicGoods

from llmsim_lab._util.files import data_path
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.run._page import write_page
from llmsim_lab.run._run import page as write
from llmsim_lab.types import ChatReply

VIEWS = ("turns", "calls", "decisions", "compare", "compare&of=runs", "settings")
MOST_BYTES, MOST_NODES = 15_000_000, 1_500


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


def test_the_tree_leads_to_a_run_and_a_chart_tells_its_values(
    opened: Opened, first_run: Path
) -> None:
    page = opened.open(first_run)
    tree = page.get_by_role("region", name="Runs")
    expect(tree.get_by_role("link")).to_have_count(4)  # three runs, and the comparison
    tree.get_by_role("link", name="turn 4: shock supply 4, note oil").click()
    expect(page.get_by_label("Run", exact=True)).to_have_value("2")
    chart = page.get_by_role("img", name="Policy rate, % per year, turns 0 to 8: run 2 from")
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 44 + (box["width"] - 54) / 2, box["y"] + 60)
    tip = page.locator(".tip:visible")
    expect(tip).to_contain_text("Turn 4 · 1980Q3")
    expect(tip).to_contain_text("run 2")
    expect(tip).to_contain_text("12.50")
    expect(tip).to_contain_text("supply shock +4 (oil)")
    over = tip.bounding_box()
    assert over is not None
    assert box["y"] < over["y"] < over["y"] + over["height"] < box["y"] + box["height"] + 20
    assert abs(over["x"] - (box["x"] + 44 + (box["width"] - 54) / 2)) < 280
    chart.focus()
    page.keyboard.press("End")
    expect(tip).to_contain_text("Turn 8 · 1981Q3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Turn 8 · 1981Q3")).to_be_visible()


def test_calls_are_filtered_searched_and_walked_through_by_keys(
    opened: Opened, first_run: Path
) -> None:
    page = opened.open(first_run, "run=1&view=calls")
    rows = page.get_by_role("listbox", name="Calls").get_by_role("option")
    found = page.get_by_role("status")
    expect(found).to_have_text("24 calls")
    page.get_by_label("All components").select_option("validator")
    expect(found).to_have_text("8 of 24 calls")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("BORROWING costs")
    expect(found).not_to_have_text("8 of 24 calls")
    expect(page.locator(".detail mark").first).to_have_text("borrowing costs")
    page.keyboard.press("Escape")
    expect(found).to_have_text("8 of 24 calls")
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    assert "component=validator" in page.url
    assert "call=" in page.url


def test_a_link_opens_a_call_with_its_prompt_by_slot(opened: Opened, first_run: Path) -> None:
    page = opened.open(first_run, "run=2&call=26")
    detail = page.get_by_role("region", name="Call", exact=True)
    expect(detail).to_contain_text("call 26")
    expect(detail).to_contain_text("You are a validator of policy actions")
    slot = detail.locator(".slot", has_text="economic policy: interest rates")
    expect(slot).to_have_attribute("title", "domain_description: the validator's domain")
    detail.get_by_role("button", name="By slot").click()
    expect(detail.locator(".slots")).to_contain_text("domain_description")
    expect(detail.locator(".slots")).not_to_contain_text("You are a validator")


def test_beside_a_chart_of_counts_stand_whole_numbers(opened: Opened, tmp_path: Path) -> None:
    page = opened.open(write(data_path("tapes/social.tape"), tmp_path / "social.html"))
    posts = page.get_by_role("img", name="Posts, a turn")
    assert posts.locator("text[text-anchor=end]").all_text_contents() == ["0", "5"]


def test_two_calls_and_two_runs_are_compared_word_by_word(opened: Opened, first_run: Path) -> None:
    page = opened.open(first_run, "a=1&b=4&view=compare")
    expect(page.get_by_role("region", name="Prompts").locator("del").first).to_have_text("2.86")
    page = opened.open(first_run, "run=3&a=10&b=40&view=compare")
    prompts = page.get_by_role("region", name="Prompts")
    expect(page.get_by_label("Left")).to_contain_text("turn 4 · United States, agent")
    expect(prompts.locator("del").first).to_contain_text("an economic policy advisor for")
    expect(prompts.locator("ins").first).to_contain_text("central banker who fears inflation")
    page = opened.open(first_run, "run=3&view=compare&of=runs")
    expect(page.get_by_label("Left")).to_have_value("1")
    expect(page.get_by_label("Right")).to_have_value("3")
    page = opened.open(first_run, "run=1&view=compare&of=runs")
    expect(page.get_by_label("Left")).to_have_value("1")
    expect(page.get_by_label("Right")).to_have_value("2")
    page = opened.open(first_run, "view=compare&of=runs&a=1&b=3")
    templates = page.get_by_role("region", name="Prompt templates")
    expect(templates.locator("ins").first).to_contain_text("central banker who fears inflation")
    apart = page.get_by_role("region", name="Decisions that differ")
    apart.get_by_role("link", name="calls").first.click()
    expect(page.get_by_role("heading", name="Two calls side by side")).to_be_visible()


def test_decisions_are_sorted_and_lead_to_their_calls(opened: Opened, first_run: Path) -> None:
    page = opened.open(first_run, "run=1&view=decisions")
    expect(page.get_by_role("status")).to_have_text("24 decisions")
    page.get_by_role("button", name="confidence").click()
    page.get_by_role("button", name="confidence").click()
    heading = page.get_by_role("columnheader", name="confidence")
    expect(heading).to_have_attribute("aria-sort", "descending")
    rows = page.locator(".sheet .body").get_by_role("row")
    expect(rows.first).to_contain_text("1")
    rows.first.click()
    expect(page.get_by_role("region", name="Call", exact=True)).to_be_visible()


def test_what_a_model_wrote_is_read_and_never_obeyed(opened: Opened, tmp_path: Path) -> None:
    game = hostile_game(tape=tmp_path / "a.tape")
    game.fork(1, intervene=[{"turn": 1, "set": {"coins.Ann": 5}}]).run(1)
    path = write(tmp_path / "a.tape", tmp_path / "poison.html")
    for place in ("", "turn=1", "call=2", "view=decisions", "a=1&b=2", "view=settings",
                  "view=compare&of=runs&a=1&b=2"):  # fmt: skip
        page = opened.open(path, place)
        expect(page.get_by_role("heading").first).to_be_visible()
        expect(page.locator("#page img, #page script, #page style")).to_have_count(0)
        assert page.evaluate("window.hacked") is None
    page = opened.open(path, "call=2")
    detail = page.get_by_role("region", name="Call", exact=True)
    expect(detail).to_contain_text("<script>window.hacked=1</script><img src=x")
    expect(detail).to_contain_text("␛[31m ⟨U+202E⟩reversed {{ script }}")
    page = opened.open(path, f"view=calls&q={HOSTILE[:20].replace('=', '%3D')}")
    expect(page.locator("mark").first).to_have_text("<script>window.hacke")


def test_names_and_texts_that_a_script_would_stumble_over_are_shown(
    opened: Opened, tmp_path: Path
) -> None:
    names = ["__proto__", "constructor", "toString", "\u2028", "\ud800", "a\0b", ".*+?^${}()|[]\\"]
    texts = [f"{name}: {HOSTILE}" for name in names]
    texts += [f'{{"a": {"[" * 50_000}{"]" * 50_000}}}', f"{{{'[' * 100_000}"]
    runs = [odd_run(number, names, texts) for number in (1, 2)]
    path = write_page(tmp_path / "odd.html", runs, title="\ud800</title>", start=1)
    for view in ("overview", *VIEWS, "__proto__", "toString"):
        page = opened.open(path, f"view={view}")
        expect(page.locator("main > *").first).to_be_visible()
        assert page.evaluate("window.hacked") is None
    page = opened.open(path, "view=compare&of=runs&a=1&b=2")
    changed = page.get_by_role("region", name="What defines them").get_by_role("row")
    expect(changed.filter(has_text="__proto__.__proto__")).to_have_text(
        "__proto__.__proto____proto__—"
    )
    expect(changed.filter(has_text="constructor.constructor")).to_have_count(1)
    page = opened.open(path, "call=8")
    expect(page.locator(".answer-text")).to_contain_text('{"a": [[[')
    page = opened.open(path, f"view=calls&q={quote(names[-1])}")
    expect(page.locator(".filters").get_by_role("status")).to_have_text("1 of 9 calls")


@pytest.mark.parametrize("text", ["x", "x!", "李", "a\n", "{x}\n"])
def test_a_text_of_a_million_letters_is_opened_searched_and_compared_without_a_halt(
    opened: Opened, tmp_path: Path, text: str
) -> None:
    texts = [text * (count // len(text)) for count in (1_000_000, 900_000)]
    texts[1] = "\n".join(f"{at} {line}" for at, line in enumerate(texts[1].split("\n")))
    path = write_page(
        tmp_path / "long.html", [odd_run(1, ["Ann", "Bob"], texts)], title="", start=1
    )
    for place in ("call=1", "view=calls&q=x", "a=1&b=2"):
        page = opened.open(path, place)
        expect(page.locator("main > *").first).to_be_visible()
        assert page.locator("*").count() < 5 * MOST_NODES
    page.get_by_role("button", name="more").first.click()
    expect(page.get_by_role("button", name="more").first).to_be_visible()


def test_ten_thousand_calls_are_a_small_file_of_which_little_is_drawn(
    opened: Opened, tmp_path: Path
) -> None:
    path = write_page(tmp_path / "long.html", [long_run()], title="long", start=1)
    assert path.stat().st_size < MOST_BYTES
    began = time.perf_counter()
    page = opened.open(path)
    seconds = time.perf_counter() - began
    sys.stderr.write(f"{path.stat().st_size / 1e6:.1f} MB, open in {seconds:.2f} s\n")
    page = opened.open(path, "view=calls")
    expect(page.get_by_role("status")).to_have_text("10,000 calls")
    assert page.locator("*").count() < MOST_NODES
    page.get_by_role("searchbox").fill("news of turn 7:")
    expect(page.get_by_role("status")).to_have_text("40 of 10,000 calls")
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_role("status")).to_have_text("10,000 calls")
    rows = page.get_by_role("listbox", name="Calls")
    rows.focus()
    page.keyboard.press("End")
    expect(rows.get_by_role("option", selected=True)).to_contain_text("turn 250")
    assert page.locator("*").count() < MOST_NODES


def test_without_scripts_the_essential_is_read(browser: Browser, first_run: Path) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(first_run.as_uri())
    assert "└─ 3 one nation · fork at turn 3" in page.inner_text("main")
    assert "config.llm.temperature" in page.inner_text("main")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_view_is_accessible_and_as_wide_as_the_window(
    browser: Browser, first_run: Path, scheme: str, width: int
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    seen = Opened(context.new_page())
    for place in ("run=2", "run=2&turn=4", "call=26", "view=decisions", "a=10&b=40",
                  "view=compare&of=runs&a=1&b=3", "view=settings"):  # fmt: skip
        page = seen.open(first_run, place)
        expect(page.get_by_role("heading").first).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{place} is {wide} px wide"
        assert axe.faults_of(page, "#page") == [], place
    context.close()


def test_a_reply_that_was_cut_at_its_length_says_so(opened: Opened, tmp_path: Path) -> None:
    whole = '{"reasoning": "r", "amount": 1, "confidence": 1}'
    cut = ChatReply(text=whole, done_reason="length", reply_tokens=9)
    client = LLMClient(LLMConfig(model="s"), ScriptedBackend([cut, *[whole] * 9]))
    run = PublicGoods(llm_client=client)
    run.run(1)
    path = run.page(tmp_path / "cut.html")
    expect(opened.open(path, "call=1").get_by_text("cut at its length")).to_be_visible()
    expect(opened.open(path, "call=2").get_by_text("cut at its length")).to_have_count(0)
