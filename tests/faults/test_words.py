"""Words of strangers in all places where they are shown, read back by parsers.

The same words in a page, Lab and a room of a real browser: ``browser/test_browser_faults``. Keys
and passwords: ``test_keys_shown``, ``test_servers`` and ``llm/test_keys``.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from faults_kit import Attack, Case, Plan
from poison_kit import client, record, record_both
from poisoned_worlds import HARMLESS, POISON, Poisoned
from room_kit import PEOPLE, Pots, open_room
from verbs_kit import command

from llmsim_lab.lab import Lab, PromptViewer, RateChart, RunTree, StudyBoard
from llmsim_lab.run.recorded import page
from llmsim_lab.study import Study
from llmsim_lab.tape import Tape

pytestmark = pytest.mark.process

WORLD = Path(__file__).with_name("poisoned_worlds.py")


# --- what reads back ------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Counts elements, and the attributes that they have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: set[tuple[str, str]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes |= {(tag, name) for name, _ in attrs}


def same_elements(poisoned: str, harmless: str) -> None:
    """Check that words became neither elements nor attributes, beside a page of harmless ones."""
    bad, good = Elements(poisoned), Elements(harmless)
    for tag in ("script", "style", "svg", "img", "iframe", "link", "meta", "title", "a", "body"):
        assert bad.elements[tag] == good.elements[tag], tag
    assert bad.elements.keys() <= good.elements.keys() | {"ins", "del", "mark"}
    assert bad.attributes <= good.attributes, bad.attributes - good.attributes
    assert not [name for _, name in bad.attributes if name.startswith("on")]


MAY_STAY = {"\n", "\t"}


def for_terminals(text: str) -> None:
    """Check that a terminal would obey none of it."""
    odd = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - MAY_STAY
    assert not odd, sorted(map(ascii, odd))


def for_spreadsheets(text: str) -> None:
    for_terminals(text)
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            if not re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell):
                assert not cell.lstrip(" ").startswith(
                    ("=", "+", "-", "@", "\t", "\r", "\uff1d")
                ), cell


# --- where words are shown ------------------------------------------------------------------------

Shown = Callable[[Path], str]


def written(path: Path) -> str:
    return path.read_text("utf-8")


def report(folder: Path) -> str:
    words = POISON if folder.name == "poisoned" else HARMLESS
    study = Study(
        Poisoned,
        {"words": {words[7]: tuple(words), words[0]: (*words, words[4])}},
        outcome=f"coins.{words[15]}@last",
        seeds=2,
        turns=1,
        name=words[1],
        llm_client=client(words),
    )
    study.run(progress=False)
    board = StudyBoard(study)
    return written(study.report(folder / "report.html")) + board.static_html()


HTML: dict[str, Shown] = {
    "page": lambda folder: written(page(folder / "x.tape", folder / "x.html")),
    "Lab": lambda folder: Lab(folder / "x.tape").static_html(),
    "PromptViewer": lambda folder: PromptViewer(folder / "x.tape").static_html(),
    "RunTree": lambda folder: RunTree(folder / "x.tape").static_html(),
    "study": report,
}
TEXT: dict[str, Shown] = {
    "tape ls": lambda folder: command("tape", "ls", folder / "x.tape"),
    "tape show": lambda folder: command("tape", "show", folder / "x.tape"),
    "tape show --turn": lambda folder: command("tape", "show", folder / "x.tape", "--turn", 1),
    "tape diff": lambda folder: command("tape", "diff", folder / "x.tape", 1, 2),
    "tape verify": lambda folder: command("tape", "verify", folder / "x.tape"),
    "replay": lambda folder: command(
        *("replay", folder / "x.tape", "--run", 1, "--import", WORLD, "--out", folder / "out")
    ),
    "Lab": lambda folder: Lab(folder / "x.tape").static_text(),
    "PromptViewer": lambda folder: PromptViewer(folder / "x.tape").static_text(),
    "tree": lambda folder: str(Tape(folder / "x.tape", read_only=True).tree()),
}


def html_step(show: Shown, folder: Path) -> None:
    same_elements(show(folder / "poisoned"), show(folder / "harmless"))


def text_step(show: Shown, folder: Path) -> None:
    text = show(folder / "poisoned")
    for_terminals(text)
    assert "loud" not in text or "[bold red]loud" in text, "Rich obeyed"


def csv_step(folder: Path) -> None:
    TEXT["replay"](folder / "poisoned")
    for name in ("turns.csv", "decisions.csv"):
        for_spreadsheets(written(folder / "poisoned" / "out" / name))


def svg_step(folder: Path) -> None:
    """Write charts, and read them back as XML."""
    for name, charts in (("poisoned", None), ("columns", [f"coins.{POISON[0]}"])):
        chart = RateChart(folder / "poisoned" / "x.tape", columns=charts, title="".join(POISON[:5]))
        root = ElementTree.parse(chart.save(folder / f"{name}.svg")).getroot()
        for element in root.iter():
            assert element.tag.rpartition("}")[2] not in ("script", "image", "foreignObject", "a")
            for attribute, value in element.attrib.items():
                assert not attribute.startswith("on")
                assert not attribute.endswith("href") or value.startswith("#")
            for_terminals(element.text or "")


def log_step(folder: Path) -> None:
    """Play once more, and look at what handlers write."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    logging.getLogger("llmsim_lab").setLevel(logging.INFO)
    (folder / "again").mkdir()
    record(POISON, folder / "again")
    logging.getLogger().removeHandler(handler)
    assert stream.getvalue()
    for_terminals(stream.getvalue())


async def room_step(_: Path) -> None:
    """Join under each word, and take the teacher's table."""
    async with open_room(Pots(players=PEOPLE, turns=1)) as here:
        secret = here.room.link.partition("#")[2]
        for word in POISON:
            guest = here.visitor()
            content = json.dumps({"name": word, "secret": secret})
            headers = {"content-type": "application/json", "origin": guest.base.rstrip("/")}
            await guest.client.post(guest.base + "join", content=content, headers=headers)
        teacher = await here.teacher()
        table = (await teacher.client.get(teacher.base + "people")).text
    assert "HYPERLINK" in table
    for_spreadsheets(table)


def named_by(words: list[str], folder: Path) -> list[Path]:
    """Return paths in a folder that are called so, as far as files can be."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [word.replace("/", "|")[:80] for word in words]
    return [
        folder / name for name in names if not set(name) & {"\0", "\ud800"} and name[0] not in "._"
    ]


def class_step(folder: Path) -> None:
    """Grade hand-ins, and let players meet, whose names are strangers' words."""
    pages = {}
    count = len(named_by(POISON, folder / "poisoned" / "in"))
    for kind, words in (("poisoned", POISON), ("harmless", HARMLESS[:count])):
        for path in named_by(words, folder / kind / "in"):
            path.mkdir()
            (path / "x.tape").write_text(words[0])
        out = folder / kind / "grades"
        printed = command("grade", folder / kind / "in", "--out", out)
        for_terminals(printed)
        for_spreadsheets(written(out / "grades.csv"))
        pages[kind] = written(out / "index.html")
        for path in out.glob("pages/*.html"):
            assert not [name for _, name in Elements(written(path)).attributes if name[:2] == "on"]
    same_elements(pages["poisoned"], pages["harmless"])


def words_shown(plan: Plan) -> Iterator[Case]:
    html = {f"HTML of {name}": partial(html_step, show) for name, show in HTML.items()}
    text = {f"text of {name}": partial(text_step, show) for name, show in TEXT.items()}
    steps = {
        **html,
        **text,
        "CSV": csv_step,
        "SVG": svg_step,
        "a class": class_step,
        "log": log_step,
    }
    yield Case("words", steps, record_both, may_raise=False)
    yield Case("a room", {"CSV of a room": room_step}, may_raise=False)


def test_words_of_strangers_are_shown_and_never_obeyed(attack: Attack) -> None:
    attack("words", words_shown)
