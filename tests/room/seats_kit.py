"""A room's state without a network or a run: groups of two, and news that are noted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from llmsim_lab.room._journal import RoomJournal
from llmsim_lab.room._seats import Guest, RoomSeats
from llmsim_lab.room._sources import GroupPlan

TWO = ("Ann", "Bob")


class Plans:
    """What is played: groups of two, two of each block."""

    key = "7"
    title = "Pots"
    seed = "3"

    def __init__(self, groups: int = 4, rounds: list[tuple[int, str]] | None = None) -> None:
        self.rounds = rounds if rounds is not None else []
        arms = ("low", "high")
        self.plans = [GroupPlan(f"g{n}", arms[n % 2], n // 2, TWO) for n in range(groups)]
        self.begun: dict[int, Any] = {}
        self.failed: dict[int, str] = {}
        self.listeners: list[Any] = []

    def runs(self, missing: Iterable[int]) -> dict[int, Any]:
        return self.begun

    def faults(self) -> dict[int, str]:
        return self.failed

    def listen(self, callback: Any) -> Any:
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    def of_round(self, number: int, key: str) -> Plans:
        self.rounds.append((number, key))
        return self if number == 1 else Plans(len(self.plans), self.rounds)


class News:
    """Notes who is told, in place of waking pages."""

    def __init__(self) -> None:
        self.told: list[tuple[list[Any], bool]] = []

    def tell(self, viewers: Iterable[Any], *, urgent: bool = False) -> None:
        self.told.append((list(viewers), urgent))

    def latest(self) -> tuple[list[Any], bool]:
        told = self.told[-1]
        self.told.clear()
        return told


def room(source: Any = None, folder: Path | None = None, **settings: Any) -> RoomSeats:
    settings = {"labels": None, "timeout_s": None, **settings}
    seats = RoomSeats(source or Plans(), RoomJournal(folder), **settings)
    seats.news = News()  # type: ignore[assignment]
    return seats


def joined(seats: RoomSeats, count: int) -> list[Guest]:
    return [seats.join(f"Guest {n}", "", 0, may_return=False)[0] for n in range(count)]


def playing(turn: int, planned: int = 5) -> Any:
    """Return a run that is at a turn, tells who asks, and pays nobody."""
    return SimpleNamespace(
        turn_number=turn,
        turns=[],
        config=SimpleNamespace(turns=planned),
        state=None,
        series=(),
        done=lambda _: False,
        told=lambda state, seat: {"seat": seat},
        payoff=lambda seat: 2,
        prediction=dict,
    )


def seated(folder: Path, *places: tuple[int, str] | None, source: Any = None) -> RoomSeats:
    """Return a room that was begun, as its journal tells: guests with their groups and seats."""
    journal = RoomJournal(folder)
    journal.write({"phase": "open", "round": 1, "last_turn": None, "key": ""})
    for number, place in enumerate(places, start=1):
        guest = f"p{number:03}"
        journal.write({"guest": guest, "token": f"digest {guest}", "trial": 0})
        journal.write({"guest": guest, "name": f"Guest {number}", "label": f"l{number}"}, ".names")
        if place is not None:
            group, seat = place
            journal.write({"guest": guest, "group": group, "seat": seat})
    return room(source, folder)
