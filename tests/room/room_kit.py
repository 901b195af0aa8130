"""A room with its visitors: each has a cookie, an open page and a way to answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State
from llmsim_lab.room import Room

PATIENCE_S = 20.0
NAMES = ("Ann", "Bob", "Cy", "Di")


class Gift(Reply):
    amount: int


class Pot(State):
    given: float = 0.0
    earned: dict[str, float] = Field(default_factory=dict)


class Pots(Run[Pot]):
    """Public goods, short: everybody gives, and earns."""

    group: tuple[str, ...] = NAMES
    factor: float = 1.6

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        gifts = await ask.each(
            self.group,
            Gift,
            "Secret of {{ name }}: how much do you give? {{ state.given }}",
            limits={"amount": (0, 20)},
        )
        given = {name: gift.amount for name, gift in gifts.items()}
        mean = sum(given.values()) / len(given)
        return Pot(
            given=mean,
            earned={name: 20 - coins + self.factor * mean for name, coins in given.items()},
        )

    def rule(self, question: Question) -> Gift:
        return Gift(amount=1)

    def told(self, state: Pot, player: str) -> dict[str, Any]:
        return {"earned": state.earned[player]}

    def payoff(self, player: str) -> float:
        return sum(turn.state.earned[player] for turn in self.turns[1:])

    def prediction(self) -> dict[str, float]:
        return {"given": 0}


PEOPLE = dict.fromkeys(NAMES, "person, else random")


class Visitor:
    """Somebody with a browser: a participant, or whoever has a key.

    Attributes:
        views: what the page has shown, oldest first.
    """

    def __init__(self, base: str, browser: Visitor | None = None) -> None:
        self.base = base
        if browser:
            self.client = browser.client
        else:
            # A connection for each request: unlike a browser, httpx does not repeat one that it
            # sends in the moment in which the server closes an old connection.
            limits = httpx.Limits(max_keepalive_connections=0)
            self.client = httpx.AsyncClient(timeout=PATIENCE_S, verify=False, limits=limits)
        self.views: list[dict[str, Any]] = []
        self.events: list[str] = []
        self._answered: set[str] = set()
        self._page: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def post(self, path: str, message: object, **headers: str) -> httpx.Response:
        origin = "/".join(self.base.split("/")[:3])
        return await self.client.post(
            self.base + path, json=message, headers={"origin": origin, **headers}
        )

    async def get(self, path: str = "now") -> Any:
        reply = await self.client.get(self.base + path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def join(self, room: Room, name: str = "Ana", **more: object) -> str:
        secret = room.link.partition("#")[2]
        reply = await self.post("join", {"name": name, "secret": secret, **more})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["guest"])

    async def enter(self, link: str) -> None:
        reply = await self.post("join", {"key": link.partition("#")[2]})
        assert reply.status_code == 200, reply.text

    async def press(self, button: str, **more: object) -> None:
        reply = await self.post("do", {"do": button, **more})
        assert reply.status_code == 200, reply.text

    def watch(self) -> None:
        """Open the page, which shows nothing of what it showed before."""
        self.views.clear()
        self._page = asyncio.create_task(self._follow())

    async def ended(self) -> None:
        """Wait until the server has ended the page's stream."""
        assert self._page is not None
        async with asyncio.timeout(PATIENCE_S):
            await self._page

    async def look_away(self) -> None:
        """Close the page; the cookie stays."""
        if self._page is not None:
            self._page.cancel()
            # The server may be gone; a browser then tries again.
            with suppress(asyncio.CancelledError, httpx.TransportError):
                await self._page
            self._page = None

    async def _follow(self) -> None:
        async with self.client.stream("GET", self.base + "events") as reply:
            assert reply.status_code == 200
            async for line in reply.aiter_lines():
                if line.startswith("event: "):
                    self.events.append(line.removeprefix("event: "))
                if line.startswith("data: {"):
                    self.views.append(json.loads(line.removeprefix("data: ")))
                self._changed.set()

    async def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the page shows something; return the view."""
        async with asyncio.timeout(PATIENCE_S):
            while not (self.views and is_so(self.views[-1])):
                self._changed.clear()
                await self._changed.wait()
        return self.views[-1]

    def _is_asked(self, view: dict[str, Any]) -> bool:
        return view["step"] == "ask" and view["ask"]["id"] not in self._answered

    async def asked(self) -> dict[str, Any]:
        """Wait for a question that was not answered."""
        question: dict[str, Any] = (await self.until(self._is_asked))["ask"]
        return question

    async def answer(self, amount: object = 5) -> httpx.Response:
        sent = (await self.asked())["id"]
        reply = await self.post("do", {"do": "answer", "id": sent, "values": {"amount": amount}})
        if reply.status_code == 200:
            self._answered.add(sent)
        return reply

    async def play(self, amount: int = 5) -> dict[str, Any]:
        """Answer whatever is asked, until it is over; return the last view."""
        while True:
            view = await self.until(
                lambda view: view["step"] in ("closing", "done") or self._is_asked(view)
            )
            if view["step"] != "ask":
                return view
            reply = await self.answer(amount)
            assert reply.status_code == 200, reply.text

    async def close(self) -> None:
        await self.look_away()
        await self.client.aclose()


class Class:
    """A room that is open, and those who visit it."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.visitors: list[Visitor] = []
        self.rounds: asyncio.Task[Any] | None = None

    def visitor(self, path: str = "") -> Visitor:
        visitor = Visitor(f"{self.room.link.partition('#')[0]}{path}")
        self.visitors.append(visitor)
        return visitor

    async def guests(self, count: int) -> list[Visitor]:
        guests = [self.visitor() for _ in range(count)]
        for number, guest in enumerate(guests, start=1):
            await guest.join(self.room, f"Guest {number}")
            guest.watch()
        return guests

    async def teacher(self) -> Visitor:
        teacher = self.visitor("teacher/")
        await teacher.enter(self.room.teacher_link)
        return teacher


@asynccontextmanager
async def open_room(source: Any, **arguments: Any) -> AsyncIterator[Class]:
    """Open a room on a free port, and close it with all its visitors' pages."""
    room = Room(source, **arguments).open()
    here = Class(room)
    try:
        yield here
    finally:
        for visitor in here.visitors:
            await visitor.close()
        await asyncio.to_thread(room.close)


@asynccontextmanager
async def playing(here: Class) -> AsyncIterator[asyncio.Task[Any]]:
    """Play the room meanwhile; what goes wrong in it is raised here."""
    task = asyncio.create_task(here.room.play())
    here.rounds = task
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def begun_class(
    run: Run[Any] | None = None, *, turns: int = 1, **arguments: Any
) -> AsyncIterator[tuple[Class, list[Visitor]]]:
    """Open a room with four guests and begin a game, of pots if no other is given."""
    run = run or Pots(players=PEOPLE, turns=turns)
    async with open_room(run, **arguments) as here, playing(here):
        guests = await here.guests(4)
        here.room.start()
        yield here, guests
