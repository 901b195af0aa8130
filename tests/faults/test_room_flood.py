"""A class plays while somebody on its network sends what nobody should."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import room_kit
from faults_kit import Attack, Case, Plan
from room_kit import NAMES, PEOPLE, Class, Pot, Pots, Visitor, open_room, playing

from llmsim_lab.room import _server
from llmsim_lab.study import Study

pytestmark = pytest.mark.process

TURNS = 3
AT_ONCE = 100
"""Attempts under way; of these the room holds up to fifty, those with wrong codes, for seconds."""


class Whispers(Pots):
    """Each participant is told a word that no other may see."""

    def told(self, state: Pot, player: str) -> dict[str, Any]:
        return {"word": f"word-of-{player}"}


def nothing_of_others(seat: str, seen: str) -> None:
    """Check that the bytes which somebody got are about the own seat alone."""
    assert f"word-of-{seat}" in seen
    for other in NAMES:
        if other != seat:
            assert f"word-of-{other}" not in seen
            assert f"Secret of {other}" not in seen


@contextmanager
def quiet_notebook() -> Iterator[None]:
    """Check that nothing is logged: a notebook shows a server's warnings below its cell."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)
    assert log.getvalue() == "", log.getvalue()[-1_000:]


# --- from outside ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """A request that the room must refuse.

    Attributes:
        head: in place of the usual lines of its head, or besides them; None leaves a line out.
    """

    method: str
    path: str
    body: bytes = b""
    head: Mapping[str, str | None] = field(default_factory=dict)
    version: str = "HTTP/1.1"

    def as_bytes(self, port: int) -> bytes:
        head = {
            "host": f"127.0.0.1:{port}",
            "origin": f"http://127.0.0.1:{port}",
            "content-type": "application/json",
            "content-length": str(len(self.body)),
            "connection": "close",
            **self.head,
        }
        lines = [f"{self.method} {self.path} {self.version}"]
        for name, value in head.items():
            if value is not None:
                lines.append(f"{name}: {value}")
        return "\r\n".join([*lines, "", ""]).encode() + self.body


TEXT = {"content-type": "text/plain"}
GUEST = {"cookie": "guest=p001; seat=Ann; llmsim=x"}
CHUNKED = {"transfer-encoding": "chunked", "content-length": None}
WEBSOCKET = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-key": "x",
    "sec-websocket-version": "13",
}
FORWARDED = {
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-host": "127.0.0.1",
    "x-http-method-override": "GET",
    "x-original-url": "/about",
}
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
    Attempt("POST", "/join", b'{"secret":%b1%b}' % (b"[" * 900, b"]" * 900)),
    Attempt("POST", "/teacher/join", b'{"key":"guess"}'),
    Attempt("POST", "/teacher/do", b'{"do":"end"}', GUEST),
    Attempt("PUT", "/do", b"{}"),
    Attempt("TRACE", "/"),
    Attempt("HEAD", "/now"),
    Attempt("OPTIONS", "*"),
    Attempt("GET", "/../../etc/passwd"),
    Attempt("GET", "/%2e%2e/room.jsonl"),
    Attempt("GET", "http://evil.example/now"),
    Attempt("GET", "/", head={"host": "evil.example"}),
    Attempt("GET", "/", head={"host": None}, version="HTTP/1.0"),
    Attempt("GET", "/now\x00"),
    Attempt("GET", "/" + "a" * 70_000),
    Attempt("GET", "/now", head={"cookie": "a=b; " * 20_000}),
    Attempt("GET", "/now", head=WEBSOCKET),
    Attempt("GET", "/teacher/now", head=FORWARDED),
    Attempt("POST", "/join", b"{}", {"content-length": "-5"}),
    # The head of each is sound, and answered before its body is read.
    Attempt("POST", "/do", b"no chunk\r\n", CHUNKED),
    Attempt("POST", "/join", b"2\r\n{}\r\n-5\r\n", CHUNKED),
    # A proxy in front may read the length, where the room reads the chunks.
    Attempt("POST", "/join", b"0\r\n\r\nGET /now", {"transfer-encoding": "chunked"}),
]


REFUSED = {"closed", "501", *(str(status) for status in range(400, 500))}


async def sent(port: int, attempt: Attempt) -> str:
    """Send it; return the status, or ``closed``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with suppress(ConnectionError):
        writer.write(attempt.as_bytes(port))
        answer = await asyncio.wait_for(reader.readline(), 30)
    writer.close()
    return answer.split()[1].decode() if answer else "closed"


async def flood(port: int, number: int) -> Counter[tuple[str, str]]:
    """Send attempts in turn; return how often each had which answer."""
    answers: Counter[tuple[str, str]] = Counter()
    at_once = asyncio.Semaphore(AT_ONCE)

    async def send(attempt: Attempt) -> None:
        async with at_once:
            answers[f"{attempt.method} {attempt.path[:40]}", await sent(port, attempt)] += 1

    await asyncio.gather(*[send(ATTEMPTS[at % len(ATTEMPTS)]) for at in range(number)])
    return answers


async def play_under_attack(folder: Path, *, people: int, requests: int) -> None:
    # Of seconds on the clock, which a busy machine needs many of.
    room_kit.PATIENCE_S = 300.0
    _server._HEADERS_S = 300.0
    groups = people // len(NAMES)
    players = dict.fromkeys(NAMES, "person, else random")
    study = Study(Whispers, seeds=groups, turns=TURNS, players=players, tape=folder / "study")
    with quiet_notebook():
        async with open_room(study) as here, playing(here) as rounds:
            guests = await here.guests(people)
            here.room.start()
            answers, *_ = await asyncio.gather(
                flood(here.room.port, requests), *[guest.play() for guest in guests]
            )
            await rounds
            for guest in guests:
                nothing_of_others(seat_of(guest), json.dumps(guest.views))
    assert {status for _, status in answers} <= REFUSED, answers
    assert sum(answers.values()) == requests
    assert (study.results["outcome"] == "given").any()


def seat_of(guest: Visitor) -> str:
    return str(guest.views[-1]["seat"])


async def play_beside_idle_connections(_: Path) -> None:
    """Play while somebody opens ever more connections, more than the room has, and asks nothing."""
    _server._MOST_CONNECTIONS = 60
    with quiet_notebook():
        async with open_room(Whispers(players=PEOPLE, turns=TURNS)) as here, playing(here):
            idle = asyncio.create_task(open_many(here.room.port, 200))
            guests = await here.guests(len(NAMES))
            here.room.start()
            await asyncio.gather(*[guest.play() for guest in guests])
            idle.cancel()
            with suppress(asyncio.CancelledError):
                await idle


async def open_many(port: int, most: int) -> None:
    """Hold so many connections open; the oldest is dropped for each more."""
    loop = asyncio.get_running_loop()
    connections: deque[socket.socket] = deque()
    try:
        while True:
            connection = socket.socket()
            connections.append(connection)
            connection.setblocking(False)
            # From an address of their own, as another machine's would be.
            connection.bind(("127.0.0.2", 0))
            await loop.sock_connect(connection, ("127.0.0.1", port))
            if len(connections) > most:
                connections.popleft().close()
    finally:
        for connection in connections:
            connection.close()


# --- from inside ----------------------------------------------------------------------------------

AMOUNTS = dict(zip(NAMES, (3, 7, 11, 13), strict=True))
BUTTONS = ("start", "pause", "next_turn", "resume", "fill", "give_back", "another_round", "end")
WRONG_AMOUNTS = (-1, 21, "x", None, 1e308, True, [1], {"a": 1}, {"__proto__": 1}, "9" * 5_000, "½")
PAGES = ("now", "answers", "teacher/now", "teacher/people", "projector/now", "projector/links")


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

    async def try_to(self, what: str, path: str, message: object) -> None:
        reply = await self.guest.post(path, message)
        self.bytes_seen += f"{reply.headers} {reply.text}"
        if reply.status_code < 400:
            self.taken.append(f"{what}: {reply.status_code} {reply.text[:100]}")

    async def answer_for(self, number: str, amount: object, **more: object) -> None:
        values = {"amount": amount, **more}
        message = {"do": "answer", "id": number, "values": values}
        await self.try_to(f"answer {number} with {values!r}", "do", message)

    async def press_every_button(self) -> None:
        for button in BUTTONS:
            for path in ("do", "teacher/do"):
                message = {"do": button, "guest": "p002", "seat": "Bob"}
                await self.try_to(button, path, message)

    async def look_around(self) -> None:
        for path in PAGES:
            reply = await self.guest.client.get(self.guest.base + path)
            self.bytes_seen += f"{reply.headers} {reply.text}"
        self.bytes_seen += json.dumps([self.guest.views, self.guest.events])


async def play_with_an_insider(folder: Path) -> None:
    """Play a game in which one of four forges, repeats, and answers late."""
    run = Whispers(players=PEOPLE, turns=TURNS, tape=folder / "pot.tape")
    with quiet_notebook():
        async with open_room(run) as here, playing(here) as rounds:
            insider = await play_honestly_but_one(here)
            await rounds
            await insider.look_around()
    assert not insider.taken, insider.taken
    nothing_of_others(seat_of(insider.guest), insider.bytes_seen)
    gifts = {
        (answer.player, answer.fields["amount"]) for turn in run.turns for answer in turn.answers
    }
    assert gifts == set(AMOUNTS.items())


async def play_honestly_but_one(here: Class) -> Insider:
    guests = await here.guests(len(NAMES))
    insider = Insider(guests[0])
    here.room.start()
    closed: list[str] = []
    for _ in range(TURNS):
        questions = [await guest.asked() for guest in guests]
        numbers = [question["id"] for question in questions]
        own, *of_others = numbers
        for number in (*of_others, *closed, "0", "-1", "x" * 99, f"{own}0"):
            await insider.answer_for(number, 1)
        for amount in WRONG_AMOUNTS:
            await insider.answer_for(own, amount)
        for field_name in ("participant", "seat", "amount.x", "", "__proto__"):
            await insider.answer_for(own, 1, **{field_name: "p002"})
        await insider.press_every_button()
        for guest in guests:
            reply = await guest.answer(AMOUNTS[seat_of(guest)])
            assert reply.status_code == 200
        closed = numbers
    await insider.answer_for(closed[0], 1)
    return insider


def cases(plan: Plan) -> Iterator[Case]:
    people, requests = {"brief": (8, 240), "full": (40, 2_400)}.get(plan.size, (200, 24_000))
    flooded = {"play": partial(play_under_attack, people=people, requests=requests)}
    beside_idle = {"play": play_beside_idle_connections}
    yield Case("an insider", {"play": play_with_an_insider}, may_raise=False, wall_s=200)
    yield Case("idle connections", beside_idle, may_raise=False, wall_s=200)
    # The class's own browsers and the attackers work in this process too.
    yield Case(f"{people} people", flooded, cpu_s=5 + people / 8 + requests / 400, wall_s=3_000)


def test_a_class_plays_on_while_its_room_is_attacked_and_sees_nothing_of_others(
    attack: Attack,
) -> None:
    attack("the room: a flood", cases)
