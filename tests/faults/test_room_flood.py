"""A class plays while somebody on its network sends what nobody should."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import room_kit
from faults_kit import Attack, Case, Plan
from room_kit import NAMES, PEOPLE, Pot, Pots, Visitor, open_room, playing

from llmsim_lab.study import Study

pytestmark = pytest.mark.process

TURNS = 3


class Whispers(Pots):
    """Each participant is told a word that no other may see."""

    def told(self, state: Pot, player: str) -> dict[str, Any]:
        return {"word": f"word-of-{player}"}


@dataclass(frozen=True)
class Attempt:
    """A request that the room must refuse."""

    method: str
    path: str
    body: bytes = b""
    head: Mapping[str, str] = field(default_factory=dict)


TEXT = {"content-type": "text/plain"}
GUEST = {"cookie": "guest=p001; seat=Ann; llmsim=x"}
ATTEMPTS = [
    Attempt("GET", "/now"),
    Attempt("GET", "/events"),
    Attempt("GET", "/answers"),
    Attempt("GET", "/teacher/now", head=GUEST),
    Attempt("GET", "/teacher/people", head=GUEST),
    Attempt("POST", "/join", b'{"code":"AAAAAA"}'),
    Attempt("POST", "/join", b'{"secret":"AAAAAA","name":"x"}', TEXT),
    Attempt("POST", "/join", b'{"name":"x","secret":"guess"}', {"origin": "http://evil.example"}),
    Attempt("POST", "/do", b'{"do":"answer","id":"1","values":{"amount":20}}', GUEST),
    Attempt("POST", "/do", b'{"do":"answer"}', {"origin": "null"}),
    Attempt("POST", "/do", b"[" * 15_000),
    Attempt("POST", "/join", b"x" * 20_000),
    Attempt("POST", "/join", b'{"name":NaN,"secret":1e999}'),
    Attempt("POST", "/join", b'{"secret":"guess","id":"\\ud800"}'),
    Attempt("POST", "/teacher/join", b'{"key":"guess"}'),
    Attempt("POST", "/teacher/do", b'{"do":"end"}', GUEST),
    Attempt("PUT", "/do", b"{}"),
    Attempt("TRACE", "/", b""),
    Attempt("GET", "/../../etc/passwd"),
    Attempt("GET", "/%2e%2e/room.jsonl"),
    Attempt("GET", "/", head={"host": "evil.example"}),
    Attempt("GET", "/now\x00", b""),
    Attempt("GET", "/" + "a" * 70_000),
    Attempt("POST", "/join", b"{}", {"content-length": "-5"}),
    Attempt("POST", "/join", b"{}", {"transfer-encoding": "chunked"}),
]


REFUSED = {"closed", "501", *(str(status) for status in range(400, 500))}


async def sent(port: int, attempt: Attempt) -> str:
    """Send it; return the status, or ``closed``."""
    head = {
        "host": f"127.0.0.1:{port}",
        "origin": f"http://127.0.0.1:{port}",
        "content-type": "application/json",
        "content-length": str(len(attempt.body)),
        "connection": "close",
        **attempt.head,
    }
    lines = [f"{attempt.method} {attempt.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in head.items()]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with suppress(ConnectionError):
        writer.write("\r\n".join([*lines, "", ""]).encode() + attempt.body)
        answer = await asyncio.wait_for(reader.readline(), 30)
    writer.close()
    return answer.split()[1].decode() if answer else "closed"


async def flood(port: int, number: int) -> Counter[tuple[str, str]]:
    """Send attempts in turn, at most 40 at once; return how often each had which answer."""
    answers: Counter[tuple[str, str]] = Counter()
    at_once = asyncio.Semaphore(40)

    async def send(attempt: Attempt) -> None:
        async with at_once:
            answers[f"{attempt.method} {attempt.path[:40]}", await sent(port, attempt)] += 1

    await asyncio.gather(*[send(ATTEMPTS[at % len(ATTEMPTS)]) for at in range(number)])
    return answers


async def play_under_attack(folder: Path, *, people: int, requests: int) -> None:
    # Of seconds on the clock, which a busy machine needs many of.
    room_kit.PATIENCE_S = 300.0
    groups = people // len(NAMES)
    players = dict.fromkeys(NAMES, "person")
    study = Study(Whispers, seeds=groups, turns=TURNS, players=players, tape=folder / "study")
    async with open_room(study) as here, playing(here) as rounds:
        silent = [await asyncio.open_connection("127.0.0.1", here.room.port) for _ in range(50)]
        guests = await here.guests(people)
        here.room.start()
        answers, *_ = await asyncio.gather(
            flood(here.room.port, requests), *[guest.play() for guest in guests]
        )
        await rounds
        for _, writer in silent:
            writer.close()
        for guest in guests:
            nothing_of_others(guest)
    assert {status for _, status in answers} <= REFUSED, answers
    assert sum(answers.values()) == requests
    assert (study.results["outcome"] == "given").any()


def nothing_of_others(guest: Visitor) -> None:
    seat = next(view["seat"] for view in guest.views if view.get("seat"))
    shown = json.dumps(guest.views)
    assert f"word-of-{seat}" in shown
    assert f"Secret of {seat}" in shown
    for other in NAMES:
        if other != seat:
            assert f"word-of-{other}" not in shown
            assert f"Secret of {other}" not in shown


AMOUNTS = dict(zip(NAMES, (3, 7, 11, 13), strict=True))
BUTTONS = ("start", "pause", "next_turn", "resume", "fill", "give_back", "another_round", "end")


class Insider:
    """Somebody who takes part, has a seat, and tries to answer for others and to lead the class.

    Attributes:
        guest: the browser.
        taken: what the room took that it should not have.
        bytes_seen: all that came back.
    """

    def __init__(self, guest: Visitor) -> None:
        self.guest = guest
        self.taken: list[str] = []
        self.bytes_seen = ""

    async def try_to(self, what: str, path: str, message: object, **head: str) -> None:
        reply = await self.guest.post(path, message, **head)
        self.bytes_seen += f"{reply.headers} {reply.text}"
        if reply.status_code < 400:
            self.taken.append(f"{what}: {reply.status_code} {reply.text[:100]}")

    async def answer_for(self, number: str, amount: object) -> None:
        message = {"do": "answer", "id": number, "values": {"amount": amount}}
        await self.try_to(f"answer {number} with {amount!r}", "do", message)


async def play_with_an_insider(folder: Path) -> None:
    """Play a game in which one of four forges, repeats, and answers late."""
    run = Whispers(players=PEOPLE, turns=TURNS, tape=folder / "pot.tape")
    async with open_room(run) as here, playing(here) as rounds:
        guests = await here.guests(4)
        insider = Insider(guests[0])
        here.room.start()
        old: list[str] = []
        for _ in range(TURNS):
            asked = [await guest.asked() for guest in guests]
            seats = [guest.views[-1]["seat"] for guest in guests]
            for question in asked[1:]:
                await insider.answer_for(question["id"], 1)
            for number in (*old, "0", "-1", "x" * 99, asked[0]["id"] + "0"):
                await insider.answer_for(number, 1)
            for amount in (-1, 21, "x", None, 1e308, [1], {"a": 1}, "9" * 5_000):
                await insider.answer_for(asked[0]["id"], amount)
            for button in BUTTONS:
                for path in ("do", "teacher/do"):
                    await insider.try_to(
                        button, path, {"do": button, "guest": "p002", "seat": "Bob"}
                    )
            replies = [
                await guest.answer(AMOUNTS[seat]) for guest, seat in zip(guests, seats, strict=True)
            ]
            assert [reply.status_code for reply in replies] == [200] * 4
            old = [question["id"] for question in asked]
        await rounds
        await insider.answer_for(old[0], 1)
        for path in ("now", "answers", "teacher/now", "teacher/people", "projector/now"):
            reply = await guests[0].client.get(guests[0].base + path)
            insider.bytes_seen += f"{reply.headers} {reply.text}"
        insider.bytes_seen += json.dumps([guests[0].views, guests[0].events])
        own = guests[0].views[-1]["seat"]
    assert not insider.taken, insider.taken
    assert f"word-of-{own}" in insider.bytes_seen
    for other in NAMES:
        if other != own:
            assert f"word-of-{other}" not in insider.bytes_seen
            assert f"Secret of {other}" not in insider.bytes_seen
    gifts = {
        (answer.player, answer.fields["amount"]) for turn in run.turns for answer in turn.answers
    }
    assert gifts == set(AMOUNTS.items())


def cases(plan: Plan) -> Iterator[Case]:
    people, requests = {"brief": (8, 240), "full": (40, 2_400)}.get(plan.size, (200, 24_000))
    steps = {"play": partial(play_under_attack, people=people, requests=requests)}
    yield Case("an insider", {"play": play_with_an_insider}, may_raise=False, wall_s=200)
    # The class's own browsers and the attackers work in this process too.
    yield Case(f"{people} people", steps, cpu_s=5 + people / 8 + requests / 400, wall_s=3_000)


def test_a_class_plays_on_while_its_room_is_attacked_and_sees_nothing_of_others(
    attack: Attack,
) -> None:
    attack("the room: a flood", cases)
