"""Strangers' words in a page, Lab and a room of a real browser; a kernel that is interrupted."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest
from lab_page import IDLE, LabPage
from playwright.sync_api import expect

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.room import Room
from llmsim_lab.run.recorded import page as write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FAULTS = Path(__file__).parents[1] / "faults"
sys.path.append(str(FAULTS))
from poison_kit import record_both  # noqa: E402
from poisoned_worlds import POISON  # noqa: E402

VIEWS = ("overview", "turn", "turn&turn=1", "calls", "calls&call=2", "compare", "compare&of=calls")
SHOWN = [word for word in POISON if word.strip() and "\ud800" not in word]

# What words could have become: an element, an attribute that runs or loads, a script that ran.
STRUCTURE = """
(roots) => {
    const found = {tags: {}, odd: [], text: "", hacked: window.hacked ?? null};
    const loading = ["href", "src", "srcset", "action", "formaction", "xlink:href", "data"];
    const look = (element) => {
        const tag = element.tagName.toLowerCase();
        found.tags[tag] = (found.tags[tag] ?? 0) + 1;
        for (const {name, value} of element.attributes) {
            const runs = loading.includes(name) && /^\\s*javascript:/i.test(value);
            if (name.startsWith("on") || runs)
                found.odd.push(`${tag} ${name}=${value.slice(0, 60)}`);
        }
        if (tag === "img" && !element.src.startsWith("data:image/"))
            found.odd.push(`img ${element.src.slice(0, 60)}`);
        if (tag === "svg") {
            const text = new XMLSerializer().serializeToString(element);
            const read = new DOMParser().parseFromString(text, "image/svg+xml");
            if (read.querySelector("parsererror, script, foreignObject"))
                found.odd.push(`svg ${text.slice(0, 200)}`);
        }
        // Which selectors of the document do not reach.
        for (const inner of element.shadowRoot?.children ?? []) walk(inner);
    };
    const walk = (element) => {
        found.text += element.innerText ?? "";
        look(element);
        element.querySelectorAll("*").forEach(look);
    };
    document.querySelectorAll(roots).forEach(walk);
    return found;
}
"""
SPAN_LIKE = {"mark", "ins", "del", "span", "text", "tspan", "b", "button", "td", "tr"}
"""Of these there may be more: what differs between words, and what is cut short to be opened."""


CONTROLS = set("\x00\x08\x1b\x7f\x9b\u200f\u202e\u2066")


class Looked(NamedTuple):
    """What a part of a page has: how many elements of a tag, and the text that is seen."""

    tags: dict[str, int]
    text: str


def look_at(page: Page, roots: str) -> Looked:
    """Return what is there; nothing of it may do what strangers' words say."""
    found: dict[str, Any] = page.evaluate(STRUCTURE, roots)
    assert found["hacked"] is None
    assert found["odd"] == []
    assert found["tags"], "nothing was looked at"
    for tag in ("script", "iframe", "object", "embed"):
        assert tag not in found["tags"]
    assert not CONTROLS & set(found["text"])
    return Looked(found["tags"], found["text"])


def test_a_poisoned_page_has_the_elements_of_a_harmless_one(
    browser: Browser, tmp_path: Path
) -> None:
    record_both(tmp_path)
    paths = {
        name: write_page(tmp_path / name / "x.tape", tmp_path / f"{name}.html")
        for name in ("poisoned", "harmless")
    }
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for view in VIEWS:
        tags = {}
        for name, path in paths.items():
            page.goto("about:blank")
            page.goto(f"{path.as_uri()}#view={view}")
            expect(page.locator("html[data-ready]")).to_have_count(1)
            expect(page.get_by_role("main")).to_be_visible()
            tags[name] = look_at(page, "#page").tags
        assert tags["poisoned"].keys() <= tags["harmless"].keys() | SPAN_LIKE, view
        assert page.title()
    page.goto("about:blank")
    page.goto(f"{paths['poisoned'].as_uri()}#view=turn&turn=1")
    expect(page.locator("html[data-ready]")).to_have_count(1)
    assert "<script>window.hacked=1</script>" in look_at(page, "#page").text
    context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "about:", "data:"))] == []


LAB = f"""
import sys
sys.path += [{str(FAULTS)!r}, {str(FAULTS.parent)!r}]
from pathlib import Path
from poison_kit import record
from poisoned_worlds import POISON
from llmsim_lab.lab import Lab
Path("poisoned").mkdir(exist_ok=True)
record(POISON, Path("poisoned"))
"""


ROLES: tuple[Literal["tab", "button"], ...] = ("tab", "button")


def test_strangers_words_in_lab_are_words_before_and_after_the_kernel(lab: LabPage) -> None:
    notebook = lab.write("poisoned", [LAB, 'Lab("poisoned/x.tape")'])
    notebook.run_all()
    output = notebook.output(1)
    expect(output.get_by_role("group", name="Runs")).to_be_visible()
    areas = ".jp-OutputArea-output"
    for tab in ("Turn", "Calls", "Compare"):
        output.get_by_role("tab", name=tab).or_(
            output.get_by_role("button", name=tab)
        ).first.click()
        assert "<script>window.hacked=1</script>" in look_at(notebook.page, areas).text, tab
    # What is saved is a static view, which JupyterLab shows where no kernel is.
    lab.reopen(kernel=False)
    expect(notebook.outputs(1)).to_contain_text("window.hacked=1")
    assert "window.hacked=1" in look_at(notebook.page, areas).text
    assert [fault for fault in notebook.faults() if not fault.startswith("cell 0")] == []


class Said(State):
    words: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it


class Word(Reply):
    word: str


class Round(Run[Said]):
    """Two people say words, which each is told."""

    async def turn(self, state: Said, ask: Ask) -> Said:
        said = await ask.each(("Ann", "Bob"), Word, f"{' '.join(SHOWN[:6])} {{{{ state.words }}}}")
        return Said(words={name: word.word for name, word in said.items()})

    def told(self, state: Said, player: str) -> dict[str, Any]:
        return {SHOWN[0]: " ".join(SHOWN[:4]), **state.words}

    def payoff(self, player: str) -> float:
        return 1.0


def test_strangers_words_in_a_room_are_words_on_each_page(browser: Browser, tmp_path: Path) -> None:
    run = Round(
        players=dict.fromkeys(("Ann", "Bob"), "person, else random"),
        turns=2,
        tape=tmp_path / "x.tape",
        name=SHOWN[0],
    )
    room = Room(run, welcome=f"# {SHOWN[0]}\n\n{SHOWN[1]} [x](javascript:window.hacked=5)")
    room.open()
    errors: list[str] = []
    with ExitStack() as stack:
        stack.callback(room.close)
        contexts = [browser.new_context() for _ in range(4)]
        for context in contexts:
            stack.callback(context.close)
        pages = [context.new_page() for context in contexts]
        for page in pages:
            page.on("pageerror", lambda error: errors.append(str(error)))
        *guests, teacher, wall = pages
        teacher.goto(room.teacher_link)
        wall.goto(room.projector_link)
        threads = stack.enter_context(ThreadPoolExecutor(1))
        playing = threads.submit(asyncio.run, room.play())
        for guest, name in zip(guests, SHOWN, strict=False):
            guest.goto(room.link)
            guest.get_by_label("Your name").fill(name)
            agree = guest.get_by_label("I agree to take part")
            if agree.count():
                agree.check()
            guest.get_by_role("button", name="Join").click()
        expect(teacher.get_by_text("<script>").first).to_be_visible()
        room.start()
        for turn in (1, 2):
            for guest, word in zip(guests, (SHOWN[0], SHOWN[2]), strict=True):
                expect(guest.get_by_role("heading", name=f"Turn {turn} of 2")).to_be_visible()
                guest.get_by_label("Word").fill(word)
                guest.get_by_role("button", name="Send").click()
            for page in pages:
                look_at(page, "body > *:not(script)")
        for guest in guests:
            expect(guest.get_by_role("heading", name="This is over")).to_be_visible()
        for page in (*guests, teacher):
            assert "<script>window.hacked=1</script>" in look_at(page, "main").text
        playing.result(30)
    run.close()
    assert errors == []


PLAY = """
import asyncio
from scenes import Model, make_run
model = Model()
run = make_run(model)
"""
KEPT = "Turn 2 was not finished: the run is kept up to turn 1, and .run(2) continues it"


@pytest.mark.parametrize("cell", ["run.run(2)", "await run.arun(2)"])
def test_a_kernel_that_is_interrupted_keeps_whole_turns_and_plays_on(
    lab: LabPage, cell: str
) -> None:
    begin = "turns = run.run(1, progress=False)\nmodel.set(waiting=True)"
    then = "print(run.turn_number, model.set(waiting=False), len(run.run(2, progress=False)))"
    notebook = lab.write("interrupted", [PLAY, begin, cell, then])
    notebook.run_cell(0)
    notebook.run_cell(1)
    page = notebook.page
    page.evaluate(
        "() => {window.panel.content.activeCellIndex = 2;"
        " window.jupyterapp.commands.execute('notebook:run-cell');}"
    )
    page.wait_for_function("() => window.panel.sessionContext.session.kernel.status === 'busy'")
    page.wait_for_timeout(500)  # until it waits for the model
    notebook.command("notebook:interrupt-kernel")
    expect(notebook.outputs(2)).to_contain_text(KEPT)
    raised = "CancelledError" if "await" in cell else "KeyboardInterrupt"
    expect(notebook.outputs(2)).to_contain_text(raised)
    page.wait_for_function(IDLE)
    notebook.run_cell(3)
    expect(notebook.outputs(3)).to_contain_text("1 done 4")
