"""What a room's tables have in their rows, and its charts in their lines; no room is opened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from seats_kit import playing

from llmsim_lab.people import PublishedFigure
from llmsim_lab.room._charts import class_charts
from llmsim_lab.room._keys import LETTERS, RoomKeys, is_same
from llmsim_lab.room._seats import Guest, RoomGroup, RoomPlace
from llmsim_lab.room._sources import GroupPlan
from llmsim_lab.room._tables import answers_csv, otree_csv, people_csv
from llmsim_lab.run.series import Series
from llmsim_lab.run.turn import Answer, Turn

KEYS = RoomKeys("abc123", "CODE42", "secret")


def played(turns: list[Turn], planned: int = 2) -> Any:
    """Return a run that was played so."""
    run = playing(turns[-1].number, planned)
    run.turns = turns
    run.series = [Series(column=name, label=name.title(), unit="coins") for name in COLUMNS]
    run.told = lambda state, seat: {"of": f"{seat} in {state}", "turn": state}
    run.payoff = lambda seat: 1.5 if seat == "Ann" else 20
    run.people = dict
    run.prompts = {}
    return run


COLUMNS = ["a", "b", "c", "d", "e"]


def answer(player: str, component: str = "player", status: Any = "ok", **given: Any) -> Answer:
    return Answer(player=player, component=component, status=status, reasoning="so", given=given)


@pytest.fixture
def seats() -> Any:
    """One group at play, of which Ann's seat is p002's and was p001's; Bob's is nobody's."""
    turns = [
        Turn(number=0, state=0),
        Turn(
            number=1,
            state=1,
            by_code=(
                answer("Ann", participant="p002", amount=5, agrees=True),
                answer("Bob", status="fallback", amount=0, role="=1"),
                # Whom a question is about is not who answers it.
                answer("Ann", "Bob", participant="p009", fair=1),
            ),
        ),
        Turn(
            number=2,
            state=2,
            by_code=(
                answer("Ann", participant="p001", amount=9),
                answer("Ann", participant="p002", amount=6),
                answer("Ann", "later", "fallback", amount=7),
                answer("Bob", amount=1),
                answer("Ann", "Bob", fair=4),
            ),
        ),
    ]
    group = RoomGroup(1, GroupPlan("high, seed 3", "high", 0, ("Ann", "Bob")))
    group.run = played(turns)
    first = Guest("p001", "Old", "x1", closing={"fair": 3, "arm": "left"})
    second = Guest("p002", "=New", "x2", trial=4, place=RoomPlace(1, "Ann"), answers=2)
    unplayed = RoomGroup(0, GroupPlan("low, seed 3", "low", 0, ("Ann", "Bob")))
    return SimpleNamespace(
        guests=[first, second],
        groups=[unplayed, group],
        playing=[unplayed, group],
        round=3,
        keys=KEYS,
        guest_at={RoomPlace(1, "Ann"): second}.get,
    )


def test_otrees_table_has_a_row_for_each_seat_and_turn_and_the_payoff_once(seats: Any) -> None:
    assert otree_csv(seats).splitlines() == [
        "participant.id_in_session,participant.code,participant.label,participant._is_bot,"
        "player.id_in_group,player.role,player.payoff,player.amount,player.agrees,player.filled,"
        "player.player_role,player.later_amount,player.fair,"
        "group.id_in_subsession,group.arm,subsession.round_number,session.code",
        "2,p002,x2,0,1,Ann,,5,1,0,,,,2,high,1,abc123",
        ",2-Bob,,1,2,Bob,,0,,1,'=1,,,2,high,1,abc123",
        "2,p002,x2,0,1,Ann,1.5,6,,1,,7,,2,high,2,abc123",
        ",2-Bob,,1,2,Bob,20.0,1,,0,,,4,2,high,2,abc123",
    ]
    seats.playing = []
    header = otree_csv(seats)
    assert header.startswith("participant.id_in_session,participant.code,")
    assert header.endswith(",subsession.round_number,session.code\n")
    assert header.count("\n") == 1


def test_the_people_stand_in_their_order_with_seat_payoff_and_what_was_filled_in(
    seats: Any,
) -> None:
    assert people_csv(seats).splitlines() == [
        "participant,label,name,round,run,arm,seat,answered,filled,payoff,code,trial,fair,"
        "closing arm",
        f"p001,x1,Old,3,,,,0,0,,{KEYS.completion_code('p001')},0,3,left",
        f'p002,x2,\'=New,3,"high, seed 3",high,Ann,2,1,1.5,{KEYS.completion_code("p002")},4,,',
    ]


def test_ones_own_answers_are_those_of_the_seat_and_say_who_gave_them(seats: Any) -> None:
    first, second = seats.guests
    assert answers_csv(seats, second).splitlines() == [
        "turn,answered_by,amount,agrees,reasoning,result of,result turn",
        "1,p002,5,True,so,Ann in 1,1",
        "2,p002,6,,so,Ann in 2,2",
        "2,somebody else,7,,so,Ann in 2,2",
    ]
    assert answers_csv(seats, first).splitlines() == [
        "turn,answered_by,fair,arm",
        "closing,p001,3,left",
    ]
    second.place = RoomPlace(0, "Ann")  # of a group that has not begun
    assert answers_csv(seats, second) == "\n"


def test_a_rooms_keys_follow_from_its_secret_and_its_codes_are_easy_to_type() -> None:
    keys = RoomKeys.new()
    assert (len(keys.room), len(keys.code), len(keys.secret)) == (6, 6, 32)
    assert {*keys.code, *KEYS.completion_code("p001")} <= {*LETTERS} - {*"01IO"}
    derived = {KEYS.join, KEYS.teacher, KEYS.projector, KEYS.of_label("a"), KEYS.of_label("b")}
    assert [len(key) for key in derived] == [24] * 5
    assert RoomKeys("other", "OTHER", "secret").join == KEYS.join
    assert len({KEYS.completion_code(guest) for guest in ("p001", "p002")}) == 2
    assert len(KEYS.completion_code("p001")) == 8
    assert (is_same("é", "é"), is_same(7, "7"), is_same("\ud800", "a")) == (True, True, False)


FIGURE = PublishedFigure(study="mine_2024", condition="all", source="", place="", n=40, mean=0.25)


def group_of(number: int, arm: str, *rows: dict[str, Any], planned: int = 3) -> RoomGroup:
    """Return a group whose turns have these columns."""
    group = RoomGroup(number, GroupPlan(f"{arm} {number}", arm, 0, ("Ann",)))
    states = [SimpleNamespace(columns=lambda row=row: row) for row in rows]
    turns = [Turn(number=place, state=state) for place, state in enumerate(states)]
    group.run = played(turns, planned)
    return group


def test_a_class_is_charted_as_the_mean_of_those_turns_that_all_groups_have() -> None:
    groups = [
        group_of(0, "low", {"a": None, "b": "text"}, {"a": 1, "b": 2}, {"a": 5}),
        group_of(1, "high", {"a": None}, {"a": 4}),
        group_of(2, "high", {"a": None}, {"a": 7}, {"a": 9}),
        RoomGroup(3, GroupPlan("late", "late", 0, ("Ann",))),
    ]
    first, second = class_charts(groups, None, with_arms=False)[:2]
    assert first == {
        "name": "A",
        "unit": "coins",
        "lines": [{"label": "class", "kind": "class", "values": [[1, 4.0]], "groups": 3}],
    }
    assert second["lines"] == [{"label": "class", "kind": "class", "values": [[1, 2]], "groups": 1}]
    # More charts would be too small to read, and of what nobody has there is no line.
    assert [chart["name"] for chart in class_charts(groups, None, with_arms=False)] == [*"ABCD"]
    assert class_charts(groups, None, with_arms=False)[2]["lines"] == []
    assert class_charts(groups[3:], None, with_arms=True) == []


def lines_of(groups: list[RoomGroup], beside: Any = None) -> list[str]:
    [chart] = class_charts(groups, beside, with_arms=True)
    return [" ".join(map(str, line.values())) for line in chart["lines"]]


def test_lines_of_arms_of_a_model_of_theory_and_of_people_stand_beside_the_class() -> None:
    low, high = group_of(0, "low", {}, {"a": 1}), group_of(1, "high", {}, {"a": 3})
    beside = group_of(2, "", {"a": 0}, {"a": 8}).run
    beside.name = "a model"
    for group in (low, high):
        group.run.prediction = lambda: {"a": 2}
    of_all = ["class class [[1, 2.0]] 2", "low arm [[1, 1.0]] 1", "high arm [[1, 3.0]] 1"]
    of_model = "a model beside [[0, 0.0], [1, 8.0]] 1"
    theory = " theory [[1, 2.0], [3, 2.0]] 0"
    assert lines_of([low, high], beside) == [*of_all, of_model, theory]
    # One arm is the class itself; arms that theory tells apart have a line each.
    assert lines_of([low]) == ["class class [[1, 1.0]] 1", theory]
    high.run.prediction = lambda: {"a": 4}
    apart = [f"low{theory}", "high theory [[1, 4.0], [3, 4.0]] 0"]
    assert lines_of([low, high]) == [*of_all, *apart]
    high.run.prediction = lambda: {"b": 4}
    assert lines_of([low, high]) == [*of_all, theory]
    low.run.people = lambda: {"a": FIGURE, "b": FIGURE}
    people = "low: 40 people, mine_2024 people [[1, 0.25], [2, 0.25], [3, 0.25]] 0"
    assert lines_of([low, high])[-1] == people
    low.run.people = lambda: {"a@2": FIGURE}
    assert lines_of([low, high])[-1] == "low: 40 people, mine_2024 people [[2, 0.25]] 0"
