"""``llmsim-lab room``: what a room is opened for, what is printed, how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_kit import Run, fails, succeeds

from llmsim_lab.cli import _room
from llmsim_lab.room import Room
from llmsim_lab.study import Study

LATE = """
from llmsim_lab import Ask, Run, State
from pot import Gift


class Count(State):
    left: int = 0


class Late(Run[Count]):
    first: int = 3

    async def turn(self, state: Count, ask: Ask) -> Count:
        if ask.turn >= self.first:
            await ask.each(("Eve", "Adam"), Gift, "You are {{ name }}.")
        return state

    def rule(self, question):
        return Gift(amount=1)
"""
STUDY = """\
world: pot.py:PublicGoods
fixed: {players: {Ann: "person, else random", "*": random}}
seeds: 2
turns: 3
tape: of the file
"""


class Opened:
    """What the command opens, and the phases that it meets after a round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.studies: list[dict[str, Any]] = []
        self.settings: dict[str, Any] = {}
        self.tape: object = None
        self.links: list[str] = []
        self.seats = ""
        self.room: Room | None = None
        self.phases = ["over", "open"]
        opened = self

        class KeptStudy(Study):
            def __init__(self, world: Any, **arguments: Any) -> None:
                opened.studies.append({"world": world.__name__, **arguments})
                super().__init__(world, **arguments)

        class KeptRoom(Room):
            def __init__(self, source: Any, **settings: Any) -> None:
                opened.tape = source.tape
                opened.settings = settings
                super().__init__(source, **settings)
                opened.room = self

            @property
            def phase(self) -> Any:
                return opened.phases.pop(0)

            async def play(self) -> Any:
                if not opened.links:
                    opened.links = [self.link, self.code, self.projector_link, self.teacher_link]
                    opened.seats = repr(self).partition(f"{self.code}, ")[2]
                    return "coins: 20"
                raise KeyboardInterrupt

        monkeypatch.setattr(_room, "Study", KeptStudy)
        monkeypatch.setattr(_room, "Room", KeptRoom)


@pytest.fixture
def opened(lab: Run, monkeypatch: pytest.MonkeyPatch) -> Opened:
    Path("ruled.py").write_text(LATE)
    return Opened(monkeypatch)


def test_a_room_is_opened_with_as_many_groups_as_people_need_until_ctrl_c(
    lab: Run, opened: Opened
) -> None:
    Path("rules.txt").write_text("Be kind.")
    Path("labels.txt").write_text("anna\nbert\n")
    Path("words.json").write_text("{}")
    status, out, err = lab(
        *("room", "pot.py:PublicGoods", "--seats", "6", "--take", "Ann, Bob", "--turns", "2"),
        *("--set", "rationale = before", "--vary", "factor=1.2,1.8"),
        *("--fill", "random", "--timeout", "90", "--folder", "class", "--url", "https://x.test"),
        *("--welcome", "rules.txt", "--labels", "labels.txt", "--words", "words.json"),
        *("--try-out", "2"),
    )
    assert status == 130, err
    assert opened.studies == [
        {
            "world": "PublicGoods",
            "vary": {"factor": [1.2, 1.8]},
            "seeds": 2,  # three groups, and a seed has one in each arm
            "turns": 2,
            "tape": Path("class"),
            "llm_client": None,
            "players": {"Ann": "person, else random", "Bob": "person, else random"},
            "rationale": "before",
        }
    ]
    assert opened.settings == {
        "timeout_s": 90,
        "welcome": Path("rules.txt"),
        "labels": Path("labels.txt"),
        "words": Path("words.json"),
        "host": "127.0.0.1",
        "port": 0,
        "url": "https://x.test",
    }
    link, code, wall, teacher = opened.links
    address, _, secret = link.partition("/#")
    anna, bert, *rest = out.splitlines()[3:]
    assert out.splitlines()[:3] == [
        f"People join at {link}",
        "  or open the address without what follows # and type",
        f"  the code {code}",
    ]
    assert (anna[:28], bert[:28]) == (
        "  anna: https://x.test/?id=a",
        "  bert: https://x.test/?id=b",
    )
    assert rest == [
        f"  person 1: {address}/p/1/#{secret}",
        f"  person 2: {address}/p/2/#{secret}",
        f"The wall: {wall}",
        f"Yours, keep it to yourself: {teacher}",
        "Kept in class. Ctrl-C ends the room; the same command opens it again.",
        "Round 1 is over.",
        "coins: 20",
    ]
    assert opened.seats == "0 of 8 joined"
    assert opened.phases == [], "another round begins once the teacher leaves the last one"
    assert repr(opened.room).endswith(", not open")


@pytest.mark.parametrize(
    ("arguments", "players", "seats"),
    [
        (("pot.py:PublicGoods",), ["Ann", "Bob", "Cy", "Di"], 4),
        (("pot.py:PublicGoods", "--seats", "5"), ["Ann", "Bob", "Cy", "Di"], 8),
        (("ruled.py:Late", "--fill", "rule", "--seats", "2"), ["Adam", "Eve"], 2),
        (("ruled.py:Late", "--set", "first=4", "--take", "Eve", "--seats", "2"), ["Eve"], 2),
    ],
)
def test_the_seats_are_those_that_a_world_asks_in_three_turns_or_that_are_named(
    lab: Run, opened: Opened, arguments: tuple[str, ...], players: list[str], seats: int
) -> None:
    _, out, _ = lab("room", *arguments)
    [study] = opened.studies
    fill = "rule" if "rule" in arguments else "random"
    assert study["players"] == dict.fromkeys(players, f"person, else {fill}")
    assert (study["seeds"], study["turns"], study["vary"]) == (seats // len(players), None, {})
    assert opened.seats == f"0 of {seats} joined"
    assert f"Kept in out/room {study['world']}. Ctrl-C" in out


def test_a_room_for_a_study_of_a_file_has_its_runs(lab: Run, opened: Opened) -> None:
    Path("study.yaml").write_text(STUDY)
    assert lab("room", "--study", "study.yaml")[0] == 130
    assert (str(opened.tape), opened.seats) == ("of the file", "0 of 2 joined")


def test_what_opens_no_room_is_said_and_help_and_forget_are_commands_of_their_own(
    lab: Run, opened: Opened
) -> None:
    Path("study.yaml").write_text(STUDY)
    for arguments in (("open",), ("pot.py:PublicGoods", "--study", "study.yaml")):
        assert "name a world, llmsim-lab room pot.py:PublicGoods" in fails(lab, "room", *arguments)
    late = ("room", "ruled.py:Late", "--set", "first=4")
    assert "Late asked nobody in 3 turns; say which seats people take: --take" in fails(lab, *late)
    wrong = fails(lab, "room", "pot.py:PublicGoods", "--vary", "factor")
    assert "'factor' names no value; write NAME=VALUE, such as factor=1.8" in wrong
    assert opened.studies == []
    assert "forget" in succeeds(lab, "room", "--help")
    for path in ("room.jsonl", "room.names.jsonl", "a room.names.jsonl"):
        Path(path).write_text("{}\n" * 2)
    assert succeeds(lab, "room", "forget", ".") == "4 names deleted from ..\n"
    assert "nowhere has no room" in fails(lab, "room", "forget", "nowhere")
