"""Words of strangers in all places where they are shown, read back by parsers.

The same words in a page, widgets and a room of a real browser: ``browser/test_browser_faults``.
Keys and passwords: ``test_keys_shown``, ``test_servers`` and ``llm/test_keys``.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from faults_kit import Attack, Case, Plan
from poison_kit import chat_of, client, record, record_both, study_of
from poisoned_worlds import CONSTRUCTOR, HARMLESS, POISON, SCRIPT, Closing, Poisoned
from room_kit import Class, Visitor, open_room, playing
from verbs_kit import command

from llmsim_lab.errors import LabError
from llmsim_lab.lab import (
    AssistantChat,
    HumanSeat,
    Lab,
    PromptComparer,
    PromptViewer,
    RateChart,
    RunTree,
    StudyBoard,
    TurnStepper,
)
from llmsim_lab.llm import LLMConfig
from llmsim_lab.run import load
from llmsim_lab.run.recorded import page
from llmsim_lab.tape import Tape

pytestmark = pytest.mark.process

WORLD = Path(__file__).with_name("poisoned_worlds.py")
COLUMN = f"coins.{POISON[CONSTRUCTOR]}"


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


LOADING = ("script", "style", "svg", "img", "iframe", "link", "meta", "title", "a", "body")
MARKS = {"ins", "del", "mark", "span"}
"""Of these there may be more: what differs between words, and what became of an answer."""


def same_elements(poisoned: str, harmless: str) -> None:
    """Check that words became neither elements nor attributes, beside a page of harmless ones."""
    bad = Elements(poisoned)
    good = Elements(harmless)
    for tag in LOADING:
        assert bad.elements[tag] == good.elements[tag], tag
    assert bad.elements.keys() <= good.elements.keys() | MARKS
    odd = {(tag, name) for tag, name in bad.attributes - good.attributes if tag not in MARKS}
    assert not odd, odd
    nothing_runs(poisoned)


def nothing_runs(html: str) -> None:
    for _, name in Elements(html).attributes:
        assert not name.startswith("on"), name


MAY_STAY = {"\n", "\t"}
OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of Unicode: control codes, marks of direction, half characters, ends of lines."""


def harmless_in_terminals(text: str) -> None:
    """Check that a terminal would obey none of it."""
    odd = {c for c in text if unicodedata.category(c) in OBEYED} - MAY_STAY
    assert not odd, sorted(map(ascii, odd))


FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d")


def harmless_in_spreadsheets(text: str) -> None:
    harmless_in_terminals(text)
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            is_number = re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell)
            assert is_number or not cell.lstrip(" ").startswith(FORMULAS), cell


# --- files and commands ---------------------------------------------------------------------------

Shown = Callable[[Path], str]


def written(path: Path) -> str:
    return path.read_text("utf-8")


def report(folder: Path) -> str:
    study = study_of(POISON if folder.name == "poisoned" else HARMLESS)
    board = StudyBoard(study)
    html = written(study.report(folder / "report.html"))
    return f"{html}{board.static_html()}{study._repr_html_()}{study.effects()._repr_html_()}"


HTML: dict[str, Shown] = {
    "page": lambda folder: written(page(folder / "x.tape", folder / "x.html")),
    "Lab": lambda folder: Lab(folder / "x.tape").static_html(),
    "TurnStepper": lambda folder: TurnStepper(load(folder / "x.tape", 1)).static_html(),
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
    harmless_in_terminals(text)
    assert "loud" not in text or "[bold red]loud" in text, "Rich obeyed"


def csv_step(folder: Path) -> None:
    TEXT["replay"](folder / "poisoned")
    for name in ("turns.csv", "decisions.csv"):
        harmless_in_spreadsheets(written(folder / "poisoned" / "out" / name))


def svg_step(folder: Path) -> None:
    """Write charts, and read them back as XML."""
    for name, columns in (("poisoned", None), ("columns", [f"coins.{POISON[SCRIPT]}"])):
        title = "".join(POISON[:5])
        chart = RateChart(folder / "poisoned" / "x.tape", columns=columns, title=title)
        harmless_svg(chart.save(folder / f"{name}.svg"))
    figure = study_of(POISON).chart(f"{COLUMN}@last")
    figure.savefig(folder / "study.svg")
    harmless_svg(folder / "study.svg")


def harmless_svg(path: Path) -> None:
    for element in ElementTree.parse(path).getroot().iter():
        tag = element.tag.rpartition("}")[2]
        assert tag not in ("script", "foreignObject", "a")
        for attribute, value in element.attrib.items():
            assert not attribute.startswith("on")
            is_own = value.startswith(("#", "data:image/png"))
            assert is_own or not attribute.endswith("href"), value
        harmless_in_terminals(element.text or "")


# --- what a notebook prints -----------------------------------------------------------------------


def printed_step(folder: Path) -> None:
    """Play a run and a study with their progress shown, and print everything that there is."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        run = Poisoned(
            words=tuple(POISON),
            name=POISON[SCRIPT],
            llm_client=client(POISON),
            tape=folder / "printed.tape",
        )
        run.run(2)
        study = study_of(POISON)
    harmless_in_terminals(output.getvalue())
    harmless_in_notebooks(
        run, study, study.effects(), *study.effects(), study.plan(), run.manifest()
    )
    for turn in run.turns:
        harmless_in_notebooks(turn, turn.state, *turn.answers, *turn.calls, *turn.interventions)
    for prompt in run.prompts.values():
        harmless_in_notebooks(prompt)
    registration = study.register(folder / "plan.json")
    harmless_in_notebooks(registration)
    chat = chat_of(POISON)
    people = Poisoned(players={POISON[SCRIPT]: "person, else random"}, name=POISON[SCRIPT])
    widgets = (PromptComparer(run), StudyBoard(study), HumanSeat(people), AssistantChat(chat))
    harmless_in_notebooks(chat, *chat.exchanges, *widgets)
    for widget in widgets:
        harmless_in_terminals(widget.static_text())
        assert not Elements(widget.static_html()).elements["script"]


def harmless_in_notebooks(*values: object) -> None:
    for value in values:
        harmless_in_terminals(repr(value))
        harmless_in_terminals(str(value))
        show = getattr(value, "_repr_html_", str)
        nothing_runs(show())


ERRORS: dict[str, Callable[[Poisoned, str], object]] = {
    "a tape's name": lambda run, word: Tape(word, read_only=True),
    "a player's name": lambda run, word: Poisoned(players={word: "random"}),
    "a player": lambda run, word: Poisoned(players={"Ann": word}),
    "a field of the state": lambda run, word: run.intervene(1, {word: 1}),
    "a note": lambda run, word: run.intervene(1, {"none": 1}, note=word),
    "a prompt": lambda run, word: next(iter(run.prompts.values())).edit(f"{{{{ {word} }}}}"),
    "a column": lambda run, word: RateChart(run, columns=[f"{word}?"]),
    "a model's name": lambda run, word: LLMConfig(model="m", temperature=word),
}


def errors_step(_: Path) -> None:
    """Make each mistake with each word; the errors, as a traceback prints them, quote them."""
    run = Poisoned(words=tuple(POISON), llm_client=client(POISON))
    run.run(1, progress=False)
    count = 0
    for name, mistake in ERRORS.items():
        for word in POISON:
            try:
                mistake(run, word)
            except LabError as error:
                count += 1
                harmless_in_terminals(f"{name}: {error} {error!r}")
    assert count > len(POISON), "nothing was wrong"


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
    harmless_in_terminals(stream.getvalue())


# --- a class --------------------------------------------------------------------------------------

SEATS = Poisoned(words=tuple(POISON)).names


async def room_step(folder: Path) -> None:
    """Play in a room where names, labels, seats, answers and the class itself are such words."""
    labels = [f"{word}{number}" for number, word in enumerate(SEATS)]
    players = dict.fromkeys(SEATS, "person, else random")
    run = Poisoned(words=tuple(POISON), players=players, name=POISON[SCRIPT], turns=1)
    arguments: dict[str, Any] = {"labels": labels, "closing": Closing, "welcome": POISON[SCRIPT]}
    async with open_room(run, folder=folder, **arguments) as here, playing(here) as rounds:
        guests = await joined_by_label(here)
        here.room.start()
        await asyncio.gather(*[say_word(guest) for guest in guests])
        await rounds
        await asyncio.gather(*[say_word(guest) for guest in guests])
        tables = [(await guest.client.get(guest.base + "answers")).text for guest in guests]
        teacher = await here.teacher()
        of_class = [await teacher.client.get(teacher.base + name) for name in ("people", "otree")]
        tables += [reply.text for reply in of_class]
        tables.append(written(here.room.to_otree(folder / "otree.csv")))
        harmless_in_terminals(repr(here.room))
        nothing_runs(here.room._repr_html_())
    for table in tables:
        harmless_in_spreadsheets(table)
    assert all("HYPERLINK" in table for table in tables[-3:])


async def joined_by_label(here: Class) -> list[Visitor]:
    """Let a guest in by each label's own link, under a name that is another word."""
    guests: list[Visitor] = []
    for word, (label, link) in zip(POISON, here.room.label_links.items(), strict=False):
        guest = here.visitor()
        secret = link.partition("#")[2]
        message = {"id": label, "secret": secret, "name": word, "agreed": True}
        await post(guest, "join", message)
        guests.append(guest)
    return guests


async def say_word(guest: Visitor) -> None:
    """Answer what is asked, with a word of one's own."""
    view = await guest.get()
    while "ask" not in view:
        await asyncio.sleep(0.05)
        view = await guest.get()
    number = int(view["guest"].removeprefix("p"))
    values = {"word": POISON[number % len(POISON)]}
    if view["step"] == "ask":
        values["amount"] = "1"
    await post(guest, "do", {"do": "answer", "id": view["ask"]["id"], "values": values})


async def post(guest: Visitor, path: str, message: object) -> None:
    """Post JSON with escapes: httpx writes no half characters."""
    headers = {"content-type": "application/json", "origin": guest.base.rstrip("/")}
    content = json.dumps(message)
    reply = await guest.client.post(guest.base + path, content=content, headers=headers)
    assert reply.status_code == 200, reply.text


def named_by(words: list[str], folder: Path) -> list[Path]:
    """Return paths in a folder that are called so, as far as files can be."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for word in words:
        name = word.replace("/", "|")[:80]
        if not set(name) & {"\0", "\ud800"} and name[0] not in "._":
            paths.append(folder / name)
    return paths


def class_step(folder: Path) -> None:
    """Grade hand-ins, and let players meet, whose names are strangers' words."""
    pages = {}
    count = len(named_by(POISON, folder / "poisoned" / "in"))
    for kind, words in (("poisoned", POISON), ("harmless", HARMLESS[:count])):
        for path in named_by(words, folder / kind / "in"):
            path.mkdir()
            (path / "x.tape").write_text(words[SCRIPT])
        out = folder / kind / "grades"
        printed = command("grade", folder / kind / "in", "--out", out)
        harmless_in_terminals(printed)
        harmless_in_spreadsheets(written(out / "grades.csv"))
        pages[kind] = written(out / "index.html")
        for path in out.glob("pages/*.html"):
            nothing_runs(written(path))
    same_elements(pages["poisoned"], pages["harmless"])


def words_shown(plan: Plan) -> Iterator[Case]:
    steps: dict[str, Callable[[Path], object]] = {}
    for name, show in HTML.items():
        steps[f"HTML of {name}"] = partial(html_step, show)
    for name, show in TEXT.items():
        steps[f"text of {name}"] = partial(text_step, show)
    steps |= {
        "CSV": csv_step,
        "SVG": svg_step,
        "printed": printed_step,
        "errors": errors_step,
        "a class": class_step,
        "log": log_step,
    }
    yield Case("words", steps, record_both, may_raise=False)
    yield Case("a room", {"room": room_step}, may_raise=False)


def test_words_of_strangers_are_shown_and_never_obeyed(attack: Attack) -> None:
    attack("words", words_shown)
