"""A room as its class sees it: phones, the teacher's page, the wall, and others who answer."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from axe import faults_of
from page_kit import script_of_room
from playwright.sync_api import expect
from pydantic import Field

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.room import Room
from llmsim_lab.study import Study

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

GROUP = ("Ann", "Bob", "Cy", "Di")
TURNS = 3
NAMES = ("<img src=x onerror=alert(1)>", "\u202eevil", "Olga")
OTHERS = 5


class Pot(State):
    given: float = 0.0
    earned: dict[str, float] = Field(default_factory=dict)


class Gift(Reply):
    amount: int


class Closing(Reply):
    age: int
    trust: bool


class Pots(Run[Pot]):
    factor: float = 1.6

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        gifts = await ask.each(
            GROUP,
            Gift,
            "How many of 20 coins do you give?\n\nturn | given\n0 | 3\n1 | 4.5",
            limits={"amount": (0, 20)},
        )
        mean = sum(gift.amount for gift in gifts.values()) / len(gifts)
        earned = {name: 20 - gift.amount + self.factor * mean for name, gift in gifts.items()}
        return Pot(given=mean, earned=earned)

    def told(self, state: Pot, player: str) -> dict[str, Any]:
        return {"you earned": state.earned[player]}

    def payoff(self, player: str) -> float:
        return sum(turn.state.earned[player] for turn in self.turns[1:])

    def prediction(self) -> dict[str, float]:
        return {"given": 0}


def one_of_the_others(link: str, name: str) -> None:
    """Take part without a browser, until it is over."""
    base, _, secret = link.partition("#")
    with httpx.Client(base_url=base, headers={"origin": base.rstrip("/")}) as phone:
        phone.post("join", json={"name": name, "secret": secret, "agreed": True})
        step = "lobby"
        while step not in ("done", "closing"):
            view = phone.get("now").json()
            step = view["step"]
            if step == "ask":
                values = {"amount": "10"}
                phone.post("do", json={"do": "answer", "id": view["ask"]["id"], "values": values})
            time.sleep(0.1)  # as a phone behind a proxy that holds streams back


@pytest.mark.parametrize("name", ["guest", "teacher", "projector"])
def test_the_modules_of_a_page_can_be_joined_into_one(name: str, tmp_path: Path) -> None:
    joined = tmp_path / "joined.mjs"  # in which no two have a name in common
    joined.write_text(script_of_room(name), encoding="utf-8")
    done = subprocess.run(["node", "--check", joined], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(
        Pots,
        vary={"factor": [1.2, 1.8]},
        players=dict.fromkeys(GROUP, "person, else random"),
        seeds=1,
        turns=TURNS,
        outcome="given@last",
        tape=tmp_path / "class",
    )


@contextmanager
def open_room(study: Study) -> Iterator[Room]:
    """A room that is played, and five others in it."""
    room = Room(study, welcome="# Welcome\n\nWe keep no names.", closing=Closing)
    room.open()
    with ThreadPoolExecutor(OTHERS + 1) as threads:
        playing = threads.submit(asyncio.run, room.play())
        others = [
            threads.submit(one_of_the_others, room.link, f"other {number}")
            for number in range(OTHERS)
        ]
        try:
            yield room
            for one in (*others, playing):
                one.result(30)
        finally:
            if room.phase != "over":
                room.end()
            room.close()


class Visitor:
    """A page of the room in a browser of its own, whose scripts must report no error."""

    def __init__(self, browser: Browser, width: int) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 740})
        self.errors: list[str] = []
        self.page = self.open_page()

    def open_page(self) -> Page:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page = page
        return page

    def join(self, room: Room, name: str) -> None:
        self.page.goto(room.link)
        self.page.get_by_label("Your name").fill(name)
        self.page.get_by_label("I agree to take part").check()
        self.page.get_by_role("button", name="Join").click()
        self.at(f"You are in, {name}".replace("\u202e", "⟨U+202E⟩"))

    def at(self, headline: str) -> None:
        expect(self.page.get_by_role("heading", name=headline)).to_be_visible()

    def press(self, button: str) -> None:
        self.page.get_by_role("button", name=button).click()

    def give(self, turn: int, amount: int) -> None:
        self.at(f"Turn {turn} of {TURNS}")
        self.page.get_by_label("Amount").fill(str(amount))
        self.page.get_by_role("button", name="Send").click()

    def check(self) -> None:
        assert faults_of(self.page, "body") == []
        wide = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide, "the page scrolls sideways"


def test_a_class_plays_through_reloads_lost_connections_and_absences(
    browser: Browser, study: Study, tmp_path: Path
) -> None:
    phones = [Visitor(browser, 360) for _ in NAMES]
    teacher, wall = Visitor(browser, 1400), Visitor(browser, 1400)
    with open_room(study) as room:
        teacher.page.goto(room.teacher_link)
        wall.page.goto(room.projector_link)
        for phone, name in zip(phones, NAMES, strict=True):
            phone.join(room, name)
        for page in (teacher.page, wall.page):
            expect(
                page.get_by_text(re.compile(rf"^{len(NAMES) + OTHERS} .*joined"))
            ).to_be_visible()
            assert "#" not in page.url  # a wall shows the address
        for visitor in (phones[0], teacher, wall):
            visitor.check()
        teacher.press("Start, turn by turn")
        reloads, loses, leaves = phones

        # One loads the page again in the middle, and has typed what no rule allows.
        reloads.at(f"Turn 1 of {TURNS}")
        reloads.page.get_by_label("Amount").fill("99")
        reloads.page.reload()
        expect(reloads.page.get_by_label("Amount")).to_have_value("99")
        reloads.page.get_by_role("button", name="Send").click()
        expect(reloads.page.get_by_label("Amount")).to_be_focused()
        expect(reloads.page.get_by_text("Amount is 99; it must be")).to_be_visible()
        reloads.check()
        reloads.give(1, 4)
        # One has no connection when the answer is sent: it is sent when there is one.
        loses.at(f"Turn 1 of {TURNS}")
        loses.context.set_offline(True)
        loses.give(1, 5)
        expect(loses.page.get_by_text("No connection")).to_be_visible()
        loses.context.set_offline(False)
        # One is gone: chance answers until they are back.
        leaves.at(f"Turn 1 of {TURNS}")
        leaves.page.close()
        place = teacher.page.locator("li").filter(has_text="Olga")
        place.get_by_role("button", name="Fill in").click()
        expect(place).to_contain_text("filled in")
        teacher.check()
        for phone in (reloads, loses):
            phone.at("A short break")
        leaves.open_page().goto(room.link)
        leaves.at("You were away")
        leaves.page.get_by_role("button", name="I am back").click()
        leaves.at("A short break")
        teacher.press("Next turn")
        for phone in phones:
            phone.give(2, 6)
        for phone in phones:
            phone.at("A short break")
        teacher.press("Continue without stops")
        for phone in phones:
            phone.at(f"Turn 3 of {TURNS}")
            for key in ("Tab", "Tab", "6", "Enter"):  # over the table, into the field
                phone.page.keyboard.press(key)

        for phone in phones:
            phone.at("A few last questions")
            phone.check()
            phone.page.get_by_label("Age").fill("20")
            phone.page.get_by_label("yes").check()
            phone.page.get_by_role("button", name="Send").click()
            phone.at("This is over")
            expect(phone.page.get_by_text("Your payoff")).to_be_visible()
        with reloads.page.expect_download() as download:
            reloads.page.get_by_role("link", name="Download my answers").click()
        assert "Olga" not in download.value.path().read_text("utf-8")
        wall.at("This is over")
        chart = wall.page.get_by_role("img", name=re.compile("factor=1.8.*theory 0"))
        expect(chart).to_be_visible()
        wall.check()
        assert reloads.page.evaluate("document.images.length") == 0
    assert [error for visitor in (*phones, teacher, wall) for error in visitor.errors] == []
    assert sum(group.filled for group in study.groups()) == 1
    tapes = "".join(path.read_text("utf-8") for path in (tmp_path / "class").glob("*.tape"))
    assert not any(name in tapes for name in (*NAMES, "other 1"))
    assert set(room.people["age"].dropna()) == {20}
