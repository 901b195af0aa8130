"""Who has a seat, what is asked and who is told: a room's state without a network or a run."""

from __future__ import annotations

import asyncio
import os
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from room_kit import PATIENCE_S
from seats_kit import TWO, Plans, joined, playing, room

from llmsim_lab.errors import ConfigError
from llmsim_lab.room import _seats, _streams
from llmsim_lab.room._faults import RoomError
from llmsim_lab.room._journal import RoomJournal
from llmsim_lab.room._seats import Guest, OpenAsk, RoomPlace, RoomSeats
from llmsim_lab.room._streams import NewsDesk, RoomStream, Viewer


class Waiting:
    """A person with a question, who gives up when told to."""

    def __init__(self) -> None:
        self.given_up: list[str] = []

    def give_up(self, question: Any, reason: str) -> None:
        self.given_up.append(reason)
        if reason == "the person was away" and question.turn == 9:
            raise ConfigError("it was answered just now")


def put(seats: RoomSeats, place: RoomPlace, turn: int) -> Waiting:
    person = Waiting()
    question = SimpleNamespace(turn=turn)
    group = seats.groups[place.group]
    group.asks[place.seat] = OpenAsk(person, SimpleNamespace(question=question))  # type: ignore[arg-type]
    return person


def test_who_joins_has_a_short_name_on_one_line_and_a_token_of_the_link() -> None:
    seats = room()
    guest, token = seats.join(f"  Ana\n Lu {'x' * 50}", "", 2, may_return=False)
    assert (guest.id, guest.name, guest.trial) == ("p001", "Ana Lu " + "x" * 33, 2)
    assert seats.news.latest() == ([guest, seats.teacher, seats.projector], True)  # type: ignore[attr-defined]
    found = [seats.guest_of(token, 2), seats.guest_of(token), seats.guest_of("x", 2)]
    assert found == [guest, None, None]
    labelled, _ = seats.join(" ", "bo", 0, may_return=False)
    nameless, _ = seats.join("", "", 0, may_return=False)
    assert [labelled.name, nameless.name] == ["bo", "p003"]
    with pytest.raises(RoomError, match="Somebody took part as this already"):
        seats.join("Bo", "bo", 0, may_return=False)
    again, other_token = seats.join("Other", "bo", 0, may_return=True)
    assert (again, again.name, seats.guest_of(other_token)) == (labelled, "bo", labelled)
    assert seats.named("p002") is labelled
    # Who comes back keeps the seat, also when others are free.
    seats.start()
    place = labelled.place
    seats.join("", "bo", 0, may_return=True)
    assert labelled.place == place
    with pytest.raises(RoomError, match=r"no participant 'p9'; there are: p001, p002, p003\."):
        seats.named("p9")
    with pytest.raises(RoomError, match=r"no participant 1; there are: nobody\."):
        room().named(1)


def test_a_room_has_places_for_five_hundred() -> None:
    seats = room()
    guests = joined(seats, 500)
    assert guests[-1].id == "p500"
    with pytest.raises(RoomError, match="This room is full: 500 people have joined"):
        joined(seats, 1)
    assert seats.count == 8


def test_a_start_deals_whole_groups_of_a_block_and_who_comes_late_what_is_left() -> None:
    seats = room()
    with pytest.raises(RoomError, match="Nobody has joined yet"):
        seats.start()
    guests = joined(seats, 5)
    assert seats.playing == []
    seats.start(is_stepwise=True)
    assert (seats.phase, seats.last_turn) == ("open", 1)
    dealt = [guest.place for guest in guests if guest.place is not None]
    assert len({*dealt}) == 5
    # The two whole ones are the first block: one of each arm.
    groups = [place.group for place in dealt]
    [third] = {*groups} - {0, 1}
    assert sorted(groups) == [0, 0, 1, 1, third]
    assert [group.number for group in seats.playing] == [0, 1, third]
    assert seats.is_filled(RoomPlace(5 - third, "Ann"))
    [late, too_late] = joined(seats, 2)
    [alone] = [place for place in dealt if place.group == third]
    assert late.place == RoomPlace(third, "Bob" if alone.seat == "Ann" else "Ann")
    assert too_late.place is None
    with pytest.raises(RoomError, match="This round has begun already"):
        seats.start()
    # Over groups have no free seats.
    other = room()
    [first] = joined(other, 1)
    other.start()
    assert other.last_turn is None
    assert first.place is not None
    other.groups[first.place.group].run = playing(5)
    assert joined(other, 1)[0].place is None


def test_the_seed_and_the_round_decide_who_sits_where() -> None:
    dealt = []
    for seed, number in (("3", 1), ("3", 1), ("4", 1), ("3", 2)):
        source = Plans()
        source.seed = seed  # type: ignore[misc]
        seats = room(source)
        seats.round = number
        guests = joined(seats, 8)
        seats.start()
        dealt.append([guest.place for guest in guests])
    assert dealt[0] == dealt[1]
    assert len({tuple(places) for places in map(tuple, dealt)}) == 3


def test_turns_are_held_from_the_fastest_groups_and_let_go_from_the_slowest() -> None:
    seats = room()
    for press in (seats.pause, seats.next_turn, seats.resume):
        with pytest.raises(RoomError, match="Start the round first"):
            press()
    joined(seats, 8)
    seats.start()
    for group, turn in zip(seats.groups, (2, 3, 5, 0), strict=True):
        group.run = playing(turn)
    seats.groups[3].run = None
    steps = []
    # A group that is over, with five of five turns, or that has not begun, holds nobody up.
    for press in (seats.pause, seats.next_turn, seats.resume, seats.next_turn):
        press()
        steps.append(seats.last_turn)
    assert steps == [3, 4, None, 3]
    # What is asked already may be answered; what is held is not being asked.
    seats.groups[0].asks.clear()
    asked, held = RoomPlace(0, "Ann"), RoomPlace(1, "Ann")
    put(seats, asked, 4)
    put(seats, held, 6)
    seats.groups[0].asks["Ann"].shown_at = 1.0
    seats.pause()
    assert seats.last_turn == 4
    seats.end()
    assert (seats.phase, seats.last_turn) == ("over", 4)


def test_a_question_is_shown_when_it_may_be_asked_and_given_up_for_who_is_away() -> None:
    seats = room()
    guests = joined(seats, 7)
    seats.start(is_stepwise=True)
    guest = guests[0]
    assert guest.place is not None
    seats.set_away(guest, is_away=False)
    person = put(seats, guest.place, 2)
    ask = seats.groups[guest.place.group].asks[guest.place.seat]
    assert (seats.ask_of(guest), ask.shown_at) == (None, None)
    seats.next_turn()
    shown_at = ask.shown_at
    assert shown_at is not None
    assert seats.ask_of(guest) is ask
    seats.resume()
    assert ask.shown_at == shown_at
    assert person.given_up == []
    seats.news.latest()  # type: ignore[attr-defined]
    seats.set_away(guest, is_away=True)
    told, is_urgent = seats.news.latest()  # type: ignore[attr-defined]
    assert (told, is_urgent) == ([*seats.guests, seats.teacher, seats.projector], True)
    assert person.given_up == ["the person was away"]
    assert seats.ask_of(guest) is None
    assert seats.is_filled(guest.place)
    seats.set_away(guest, is_away=False)
    assert seats.ask_of(guest) is ask
    seats.end()
    assert seats.ask_of(guest) is None
    # Somebody else's question that is answered just now is not given up.
    other = put(seats, guest.place, 9)
    seats.phase = "open"
    seats.set_away(guest, is_away=True)
    assert other.given_up == ["the person was away"]
    waiting = Guest("p008", "Late")
    with pytest.raises(RoomError, match=r"p008 has no seat\."):
        seats.set_away(waiting, is_away=True)
    assert seats.ask_of(waiting) is None


def test_who_takes_too_long_is_filled_in_and_who_is_gone_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(_seats, "clock", lambda: clock.now)
    seats = room(timeout_s=2.5)
    here, gone, *_ = joined(seats, 8)
    seats.start()
    here.add(RoomStream())
    persons = [put(seats, guest.place, 1) for guest in (here, gone) if guest.place is not None]
    for guest in (here, gone):
        seats.set_away(guest, is_away=False)
    clock.now += 2.5 - 0.001
    seats.give_up_overdue()
    assert (persons[0].given_up, gone.is_away) == ([], False)
    clock.now += 0.001
    seats.phase = "over"
    seats.give_up_overdue()
    seats.phase = "open"
    seats.timeout_s = None
    seats.give_up_overdue()
    assert persons[0].given_up == []
    seats.timeout_s = 2.5
    seats.give_up_overdue()
    assert persons[0].given_up == ["there was no answer within 2.5 s"]
    assert (here.is_away, gone.is_away) == (False, True)
    assert persons[1].given_up == ["the person was away"]


def test_another_round_clears_the_seats_and_hears_nothing_of_the_old_one() -> None:
    source = Plans()
    seats = room(source)
    [guest] = joined(seats, 1)
    with pytest.raises(RoomError, match="End this round first"):
        seats.another_round()
    seats.start()
    seats.show(is_shown=True)
    assert seats.news.latest() == ([seats.teacher, seats.projector], True)  # type: ignore[attr-defined]
    seats.tell_staff()
    assert seats.news.latest() == ([seats.teacher, seats.projector], False)  # type: ignore[attr-defined]
    seats.set_away(guest, is_away=True)
    guest.answers = 4
    seats.end()
    seats.another_round()
    assert (seats.round, seats.phase, seats.is_shown, seats.last_turn) == (2, "lobby", False, None)
    assert (guest.place, guest.is_away, guest.answers) == (None, False, 0)
    assert source.listeners == []
    assert source.rounds == [(1, ""), (2, "")]
    assert seats.source is not source
    seats.keep_closing(guest, {"fair": 3})
    assert seats.news.latest() == ([guest, seats.teacher], True)  # type: ignore[attr-defined]
    assert guest.closing == {"fair": 3}


def test_a_group_tells_of_its_turns_and_why_its_run_ended_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_seats, "People", lambda run: SimpleNamespace(seats={}))
    source = Plans()
    seats = room(source)
    turn_ends: list[Any] = []
    source.begun = {0: playing(1)}
    source.begun[0].listen = turn_ends.append
    source.listeners[0]()
    turn_ends[0](SimpleNamespace(answers=()))
    assert seats.news.latest() == ([seats.teacher, seats.projector], False)  # type: ignore[attr-defined]
    assert [group.fault for group in seats.groups] == [""] * 4
    source.failed = {2: "no model"}
    source.listeners[0]()
    assert [group.fault for group in seats.groups] == ["", "", "no model", ""]
    told, is_urgent = seats.news.latest()  # type: ignore[attr-defined]
    assert (told, is_urgent) == ([seats.teacher, seats.projector], True)


def test_what_was_kept_is_there_again_and_lines_that_make_no_sense_cost_nothing(
    tmp_path: Path,
) -> None:
    seats = room(folder=tmp_path)
    seats.keep_port(8_765)
    guests = [seats.join(f"Guest {n}", f"l{n}", n, may_return=False) for n in range(3)]
    seats.start(is_stepwise=True)
    seats.set_away(guests[1][0], is_away=True)
    seats.keep_closing(guests[2][0], {"fair": 3})
    journal = RoomJournal(tmp_path)
    for line in ({"guest": "p099", "group": 0, "seat": "Ann"}, {"away": "p099", "is_away": True}):
        journal.write(line)  # type: ignore[arg-type]
    journal.write({"guest": "p099", "name": "x"}, ".names")
    journal.write({"guest": "p099", "answers": {}}, ".closing")
    journal.write({"guest": "p001", "answers": "none"}, ".closing")
    with (tmp_path / "room.jsonl").open("ab") as file:
        file.write(b'"a text"\n{"port": \xff}\n{"port": -1}\n{"port": 1%b}\n' % (b"0" * 5_000))
        file.write(b'{"room": {"room": "a\\r\\n", "code": "", "secret": ""}}\n')
        file.write(b'{"guest": "p001", "group": -1, "seat": "Ann"}\n')
        file.write(b'{"guest": "\\ud800", "token": "x", "trial": 0}\n')
        file.write(b'{"deep": %b\n{"cut off": ' % (b"[" * 50_000))
    source = Plans()
    again = room(source, tmp_path)
    assert (again.keys, again.port) == (seats.keys, 8_765)
    assert (again.phase, again.last_turn, again.round) == ("open", 1, 1)
    assert source.rounds == [(1, "7")]
    kept = attrgetter("id", "name", "label", "trial", "place", "is_away", "closing")
    assert list(map(kept, again.guests)) == list(map(kept, seats.guests))
    assert [again.guest_of(token, n) for n, (_, token) in enumerate(guests)] == again.guests
    # The line that was cut off does not cost the next one.
    again.set_away(again.guests[1], is_away=False)
    again.end()
    again.another_round()
    third = room(folder=tmp_path)
    assert (third.round, third.phase, third.last_turn) == (2, "lobby", None)
    assert [(guest.place, guest.is_away) for guest in third.guests] == [(None, False)] * 3
    assert (tmp_path / "room.jsonl").stat().st_mode & 0o777 == 0o600
    seats = room(folder=tmp_path / "new")
    joined(seats, 8)
    seats.start()
    with pytest.raises(
        ConfigError, match=r"people sit in group \d of a room, and there are 2 grou"
    ):
        room(Plans(2), tmp_path / "new")


def test_the_seats_of_a_start_that_was_cut_off_are_nobodys_in_the_next_process(
    tmp_path: Path,
) -> None:
    # Killed between the seats and the phase, in which a room ends in its lobby.
    seats = room(folder=tmp_path)
    joined(seats, 1)
    seats.start()
    path = tmp_path / "room.jsonl"
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in whole if "phase" not in line))
    second = room(folder=tmp_path)
    joined(second, 1)
    second.start()
    third = room(folder=tmp_path)
    every = [group.place_of(seat) for group in third.groups for seat in TWO]
    sitting = [[getattr(it.guest_at(place), "id", "") for place in every] for it in (second, third)]
    assert sitting[0] == sitting[1]


def test_closing_answers_in_a_file_have_no_more_columns_than_a_form(tmp_path: Path) -> None:
    seats = room(folder=tmp_path)
    for guest in joined(seats, 3):
        seats.keep_closing(guest, {f"{guest.id} {number}": 1 for number in range(150)})
    closings = [guest.closing or {} for guest in room(folder=tmp_path).guests]
    assert [len(answers) for answers in closings] == [150, 50, 0]


def test_nothing_is_written_through_what_stands_in_the_place_of_a_rooms_file(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine\n")
    path = tmp_path / "room.names.jsonl"
    for stand_in in (path.symlink_to, lambda _: os.mkfifo(path)):
        stand_in(mine)
        with pytest.raises(ConfigError, match=r"room\.names\.jsonl is "):
            room(folder=tmp_path)
        path.unlink()
    assert mine.read_text() == "mine\n"


def test_what_cannot_be_written_has_not_happened_and_can_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seats = room()
    guest = joined(seats, 8)[0]
    actions = [
        lambda: seats.join("Late", "", 0, may_return=False),
        lambda: seats.start(is_stepwise=True),
        lambda: seats.set_away(guest, is_away=True),
        lambda: seats.keep_closing(guest, {"age": 20}),
        seats.end,
        seats.another_round,
    ]

    def state() -> object:
        kept = attrgetter("place", "is_away", "closing")
        return (seats.phase, seats.round, seats.last_turn, [*map(kept, seats.guests)])

    def write(*_: object) -> None:
        raise ConfigError("the disk is full")

    for action in actions:
        before = state()
        with monkeypatch.context() as full:
            full.setattr(RoomJournal, "write", write)
            with pytest.raises(ConfigError):
                action()
        assert state() == before
        action()
        assert state() != before


def test_a_clock_that_is_set_meanwhile_ends_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _streams.clock()
    monkeypatch.setattr(_streams.time, "time", lambda: before + 3_600)
    assert 0 <= _streams.clock() - before < 600


def test_a_page_is_open_in_sight_or_asks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(_streams, "time", clock)
    viewer = Viewer()
    assert not viewer.is_online
    viewer.polled()
    clock.now = 9.99
    assert viewer.is_online
    clock.now = 10.0
    assert not viewer.is_online
    viewer.add(RoomStream())
    assert viewer.is_online
    assert (viewer.most_streams, room().teacher.most_streams) == (3, 12)


@pytest.mark.parametrize(
    ("news", "waits", "is_news"),
    [([], [15.0], False), ([False], [15.0, 0.4], True), ([False, True], [15.0, 0.4], True)],
)
async def test_other_peoples_news_are_collected_and_ones_own_come_at_once(
    news: list[bool], waits: list[float], is_news: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def timeout(wait_s: float) -> asyncio.Timeout:
        waited.append(wait_s)
        return asyncio.timeout(0.001)

    hurried = SimpleNamespace(**{**vars(asyncio), "timeout": timeout})
    monkeypatch.setattr(_streams, "asyncio", hurried)
    page = RoomStream()
    for urgent in news:
        page.wake(urgent=urgent)
    assert await page.wait() is is_news
    assert waited == waits
    # What was shown is no news any more.
    assert not await page.wait()


async def test_news_are_spread_once_and_urgent_ones_stay_urgent() -> None:
    desk = NewsDesk()
    one, other = Viewer(), Viewer()
    pages = [RoomStream(), RoomStream()]
    one.add(pages[0])
    other.add(pages[1])
    woken: list[tuple[int, bool]] = []
    is_spread = asyncio.Event()

    def wakes(number: int) -> Any:
        def wake(*, urgent: bool) -> None:
            woken.append((number, urgent))
            is_spread.set()

        return wake

    for number, page in enumerate(pages):
        page.wake = wakes(number)  # type: ignore[method-assign]
    calls: list[object] = []

    def call(work: Any) -> None:
        calls.append(work)
        asyncio.get_running_loop().call_soon(work)

    desk.tell([one])  # before there is a server
    desk.open(call)
    desk.tell([])
    desk.tell([one], urgent=True)
    desk.tell([one, other])
    async with asyncio.timeout(PATIENCE_S):
        await is_spread.wait()
    # Each wake-up writes to the loop's pipe: 120,000 in three turns of two hundred people.
    assert (woken, len(calls)) == ([(0, True), (1, False)], 1)
    is_spread.clear()
    desk.tell([other])
    async with asyncio.timeout(PATIENCE_S):
        await is_spread.wait()
    assert woken[2:] == [(1, False)]
