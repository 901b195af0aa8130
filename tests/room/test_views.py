"""What each page is told, whole, by what is so in the room."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from seats_kit import playing, room, seated

from llmsim_lab import Reply
from llmsim_lab.room._asking import closing_answers, closing_questions
from llmsim_lab.room._faults import RoomError
from llmsim_lab.room._seats import OpenAsk, RoomSeats
from llmsim_lab.room._streams import RoomStream
from llmsim_lab.room._views import guest_view, projector_view, teacher_view

ASKED, CLOSING = {"id": "1"}, {"id": "2"}
GAME = '"seat": "Ann", "turn": 2, "planned": 5, "told": [["seat", "Ann"]], "told_turn": 2'
PLACES = ((0, "Ann"), (0, "Bob"), (2, "Ann"), None)


def show(seats: RoomSeats, group: int, **shown_at: float | None) -> None:
    """Have seats of a group a question, shown since then or held."""
    for seat, since in shown_at.items():
        ask = OpenAsk(None, None, shown_at=since)  # type: ignore[arg-type]
        seats.groups[group].asks[seat] = ask


def begin(seats: RoomSeats, turn: int, planned: int = 5) -> None:
    seats.groups[0].run = playing(turn, planned)


def away(seats: RoomSeats) -> None:
    begin(seats, 2)
    seats.guests[0].is_away = True


def held(seats: RoomSeats) -> None:
    begin(seats, 2)
    seats.last_turn = 2


def let_go(seats: RoomSeats) -> None:
    begin(seats, 2)
    seats.last_turn = 3
    show(seats, 0, Ann=None, Bob=7.5)


def failed(seats: RoomSeats) -> None:
    begin(seats, 2)
    seats.groups[0].fault = "no model"


def over(seats: RoomSeats) -> None:
    begin(seats, 2)
    seats.phase = "over"


def new(seats: RoomSeats) -> None:
    """Leave it: the group's run has not begun."""


def second(seats: RoomSeats) -> None:
    begin(seats, 2)


def first(seats: RoomSeats) -> None:
    begin(seats, 0)


def last(seats: RoomSeats) -> None:
    begin(seats, 2, 2)


@pytest.mark.parametrize(
    ("change", "guest", "asked", "closing", "expected"),
    [
        (new, 0, ASKED, CLOSING, '"step": "opening"'),
        (new, 3, ASKED, CLOSING, '"step": "full"'),
        (second, 0, ASKED, CLOSING, f'{GAME}, "step": "ask", "ask": {{"id": "1"}}'),
        (second, 0, None, None, f'{GAME}, "step": "wait", "waiting": null'),
        (
            first,
            *(0, ASKED, None),
            '"seat": "Ann", "turn": 0, "planned": 5, "step": "ask", "ask": {"id": "1"}',
        ),
        (away, 0, ASKED, None, f'{GAME}, "step": "filled"'),
        (held, 0, None, None, f'{GAME}, "step": "held"'),
        (held, 0, ASKED, None, f'{GAME}, "step": "ask", "ask": {{"id": "1"}}'),
        (
            let_go,
            *(0, None, None),
            f'{GAME}, "step": "wait", "waiting": {{"count": 1, "seats": ["Bob"], "since": 7.5}}',
        ),
        (failed, 0, None, CLOSING, f'{GAME}, "payoff": 2, "step": "closing", "ask": {{"id": "2"}}'),
        (failed, 0, None, None, f'{GAME}, "payoff": 2, "step": "done", "code": "p001"'),
        (over, 0, ASKED, None, f'{GAME}, "payoff": 2, "step": "done", "code": "p001"'),
        (over, 3, None, CLOSING, '"step": "done"'),
        (over, 2, None, None, '"step": "done", "code": "p003"'),
        (
            last,
            *(0, None, None),
            f'{GAME.replace("5", "2")}, "payoff": 2, "step": "done", "code": "p001"',
        ),
    ],
)
def test_a_participant_is_told_where_the_own_game_is(
    change: Callable[[RoomSeats], None],
    guest: int,
    asked: Any,
    closing: Any,
    expected: str,
    tmp_path: Path,
) -> None:
    seats = seated(tmp_path, *PLACES)
    change(seats)
    who = seats.guests[guest]
    view = guest_view(seats, who, asked, closing)
    if "code" in view:
        assert view["code"] == seats.keys.completion_code(who.id)
        view["code"] = who.id
    about = f'"guest": "{who.id}", "name": "{who.name}", "round": 1'
    assert view == json.loads(f"{{{about}, {expected}}}")


def test_before_the_start_people_see_how_many_are_there() -> None:
    seats = room()
    guest, _ = seats.join("Ana", "", 0, may_return=False)
    own = {"guest": "p001", "name": "Ana", "round": 1}
    assert guest_view(seats, guest, None, None) == {**own, "step": "lobby", "here": 1, "seats": 8}


def test_of_many_who_are_waited_for_eight_are_named(tmp_path: Path) -> None:
    seats = seated(tmp_path, *PLACES)
    begin(seats, 2)
    show(seats, 0, **{f"s{n}": 30.0 - n for n in range(10)})
    waiting = guest_view(seats, seats.guests[0], None, None)["waiting"]
    names = [f"s{n}" for n in range(8)]
    assert waiting == {"count": 10, "seats": names, "since": 21.0}


CLASS: dict[str, Any] = {
    "title": "Pots",
    "phase": "open",
    "round": 1,
    "joined": 4,
    "online": 1,
    "seats": 8,
    "groups": 2,
    "groups_over": 0,
    "turn": 3,
    "planned": 5,
    "waiting": 1,
    "asked": 2,
    "answered": 1,
    "held": False,
}


def test_the_teacher_sees_who_sits_where_and_who_is_waited_for(tmp_path: Path) -> None:
    seats = seated(tmp_path, *PLACES)
    begin(seats, 2)
    show(seats, 0, Ann=None, Bob=7.5)
    bob = seats.guests[1]
    bob.add(RoomStream())
    bob.answers = 2
    seats.fault = "no model"
    view = teacher_view(seats, None, is_played=True)
    rows: Any = view.pop("rows")
    # As lines: what stands in a row, in the order of the page.
    assert [" ".join(map(str, row.values())) for group in rows for row in group.pop("seats")] == [
        "p001 Guest 1 l1 False Ann False None 0",
        "p002 Guest 2 l2 True Bob False 7.5 2",
        "p003 Guest 3 l3 False Ann False None 0",
        "   False Bob True None 0",
    ]
    assert [" ".join(map(str, row.values())) for row in rows] == [
        "1 g0 2 5 False ",
        "3 g2 0 0 False ",
    ]
    assert list(rows[0]) == ["key", "name", "turn", "turns", "over", "fault"]
    [late] = view.pop("lobby")  # type: ignore[misc,union-attr]
    assert late == {"guest": "p004", "name": "Guest 4", "label": "l4", "online": False}
    more = {"charts": [], "gate": None, "shown": False, "playing": True, "fault": "no model"}
    assert view == {**CLASS, **more}


@pytest.mark.parametrize(
    ("turns", "last_turn", "expected"),
    [
        # A group that is over is not waited for, and where all are, it is the last turn.
        ((5, 3), None, {"turn": 4, "planned": 6, "asked": 1, "waiting": 0, "groups_over": 1}),
        ((5, 6), 6, {"turn": 6, "held": True, "asked": 0, "waiting": 0, "groups_over": 2}),
        ((2, 3), 3, {"turn": 3, "held": False, "asked": 3, "answered": 2}),
    ],
)
def test_the_wall_counts_those_who_still_play(
    turns: tuple[int, int], last_turn: int | None, expected: dict[str, Any], tmp_path: Path
) -> None:
    seats = seated(tmp_path, *PLACES)
    seats.groups[0].run = playing(turns[0])
    seats.groups[2].run = playing(turns[1], 6)
    show(seats, 0, Bob=7.5, Ann=None)
    seats.last_turn = last_turn
    changed = {"online": 0, "planned": 6, "answered": expected.get("asked", 0), **expected}
    assert projector_view(seats, None) == {**CLASS, **changed, "charts": []}


class Leaving(Reply):
    age: int | None = None
    fair: bool


def test_an_answer_that_may_be_none_may_be_left_empty() -> None:
    questions = closing_questions(Leaving)
    assert closing_answers(questions, {"fair": "yes"}) == {"age": None, "fair": True}
    assert closing_answers(questions, {"age": "20", "fair": "yes"}) == {"age": 20, "fair": True}
    with pytest.raises(RoomError, match="fair is missing"):
        closing_answers(questions, {"age": "20"})
