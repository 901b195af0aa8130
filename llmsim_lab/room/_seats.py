"""The state of a room: who is here, who sits where, which questions wait; without any network.

Nothing here holds up a run's turns. Only questions can be held: before the start, and after the
last turn that may be played for now, they are not shown. So each group waits where it is, in a
single run and in a study.
"""

from __future__ import annotations

import random
import re
import secrets
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

from llmsim_lab._util.jsontext import JSONObject
from llmsim_lab._util.text import brief, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.room._faults import RoomError, refused
from llmsim_lab.room._journal import RoomJournal
from llmsim_lab.room._keys import RoomKeys, new_token, token_digest
from llmsim_lab.room._sources import GroupPlan, Source
from llmsim_lab.room._streams import NewsDesk, Viewer, clock
from llmsim_lab.run import Run
from llmsim_lab.run.people import People
from llmsim_lab.run.seating import SeatQuestion, put
from llmsim_lab.run.state import Columns
from llmsim_lab.run.turn import Turn

_KEY = re.compile(r"[\w-]{4,80}", re.ASCII)
"""A room's keys, as they stand in cookies' names and in links."""
_GUEST = re.compile(r"p\d{3,6}", re.ASCII)
_RUN = re.compile(r"\d{1,9}", re.ASCII)
_MOST_CLOSING = 200
"""Columns of answers to the closing questions."""
PARTICIPANT = "participant"
"""The field of a reply that holds the participant's id."""
_MOST_GUESTS = 500
_MOST_NAME = 40
_MOST_DEVICES = 20
"""Of one participant, whose own link lets in each browser that opens it."""

Phase = Literal["lobby", "open", "over"]


class RoomPlace(NamedTuple):
    """A seat in one of the round's groups."""

    group: int
    seat: str


@dataclass(eq=False)
class Guest(Viewer):
    """A participant.

    Attributes:
        id: the id on tapes and in data, such as ``p007``.
        name: for the teacher only; it is on no tape.
        label: from the teacher's list; empty without one.
        trial: the number of a trial's link; 0 for others.
        place: the participant's seat; None for a person who waits for one.
        is_away: True while something else answers for the participant.
        answers: the number of answers in this round's whole turns.
        closing: the answers to the closing questions; None before.
    """

    id: str
    name: str
    label: str = ""
    trial: int = 0
    place: RoomPlace | None = None
    is_away: bool = False
    answers: int = 0
    closing: JSONObject | None = None


@dataclass(eq=False)
class OpenAsk:
    """A question to a seat.

    Attributes:
        put: the question as people see it.
        id: an answer names it, so that a second tap does not answer the next question.
        shown_at: the time since when it can be answered, seconds of the clock; None while it is
            held.
    """

    person: Person
    put: SeatQuestion
    id: str = field(default_factory=partial(secrets.token_hex, 6))
    shown_at: float | None = None

    @property
    def question(self) -> OpenQuestion:
        """The question that waits for the answer."""
        return self.put.question


@dataclass(eq=False)
class RoomGroup:
    """One group of a round.

    Attributes:
        number: the group's place in the source's plans.
        run: the group's run; None until it begins.
        asks: the questions that wait for answers, by seat.
        fault: why the run ended early; empty if it did not.
    """

    number: int
    plan: GroupPlan
    run: Run | None = None
    asks: dict[str, OpenAsk] = field(default_factory=dict)
    fault: str = ""
    _rows: list[tuple[Turn, Columns]] = field(default_factory=list)

    def place_of(self, seat: str) -> RoomPlace:
        """Return a seat of this group as a place in the room."""
        return RoomPlace(self.number, seat)

    def rows(self) -> list[Columns]:
        """Return the turns' rows. Each is made only once, since charts are drawn all the time."""
        if self.run is None:
            return []
        # A copy, since another thread may play a turn.
        turns = list(self.run.turns)
        for number, turn in enumerate(turns):
            if number < len(self._rows):
                turn_of_row, _ = self._rows[number]
                # By identity: an intervention replaces a turn.
                if turn_of_row is turn:
                    continue
            row: Columns = {"turn": turn.number, **turn.columns()}
            # The rows after a changed turn are made again too.
            self._rows[number:] = [(turn, row)]
        return [row for _, row in self._rows]

    @property
    def is_over(self) -> bool:
        """True if no further turn is planned."""
        run = self.run
        if run is None:
            return False
        # A run with 0 turns is stepped by hand, and is over when its world says so.
        planned: int = run.config.turns
        return run.turn_number >= planned > 0 or run.done(run.state)


class RoomSeats:
    """The participants of a room's rounds, and their seats.

    Each change is written to the journal before it is made: where the disk is full, nothing has
    changed, and it can be tried again.

    Args:
        source: what is played in the first round.
        journal: keeps changes, and has the earlier state of the room.
        labels: the labels of the people who are let in; None to let in everybody with the code.
        timeout_s: how long a question waits for its answer; None to wait without end.
    """

    def __init__(
        self,
        source: Source,
        journal: RoomJournal,
        *,
        labels: Sequence[str] | None,
        timeout_s: float | None,
    ) -> None:
        # Used by notebook cells, by the thread that plays, and by the server's thread.
        self.lock = threading.RLock()
        self.news = NewsDesk()
        self.labels = labels
        self.timeout_s = timeout_s
        self.keys = RoomKeys.new()
        self.port = 0
        self.round = 1
        self.phase: Phase = "lobby"
        self.last_turn: int | None = None
        """The last turn whose questions are shown; None to show all."""
        self.is_shown = False
        """True if the projector shows charts before the end."""
        self.fault = ""
        self.teacher = Viewer()
        self.projector = Viewer()
        # A teacher may have several devices, whose pages must not end each other.
        self.teacher.most_streams = self.projector.most_streams = 12
        self._journal = journal
        self._first = source
        self._guests: dict[str, Guest] = {}
        self._by_token: dict[str, Guest] = {}
        self._by_place: dict[RoomPlace, Guest] = {}
        self._key = ""
        self._recall()
        # After the journal, which knows the round in which an earlier process ended.
        self._take(source.of_round(self.round, self._key))
        self._check_places()

    def _check_places(self) -> None:
        """Raise ConfigError if the folder's room had another design."""
        for place in self._by_place:
            if place.group >= len(self.groups):
                raise ConfigError(
                    f"in this folder people sit in group {place.group + 1} of a room, and there "
                    f"are {len(self.groups)} groups now; open it with the design that it was "
                    "begun with, or choose another folder"
                )

    # --- the journal ------------------------------------------------------------------------------

    def _recall(self) -> None:
        """Restore the state in the journal; begin a journal if there is none."""
        is_new = True
        for line in self._journal.lines():
            is_new = False
            self._recall_line(line)
        # In a file of its own, which may be deleted. Then ids stand in for names.
        for line in self._journal.lines(".names"):
            guest_id = str(line.get("guest"))
            guest = self._guests.get(guest_id)
            if guest is not None:
                guest.name = str(line.get("name", ""))
                guest.label = str(line.get("label", ""))
        columns: dict[str, None] = {}
        for line in self._journal.lines(".closing"):
            guest_id = str(line.get("guest"))
            guest = self._guests.get(guest_id)
            answers = line.get("answers")
            if guest is not None and isinstance(answers, dict):
                # All answer the same questions; a column for each guest would make a huge table.
                columns |= dict.fromkeys(islice(answers, _MOST_CLOSING - len(columns)))
                guest.closing = {name: answers[name] for name in answers if name in columns}
        if is_new:
            self._journal.write({"room": {**self.keys.__dict__}})

    def _recall_line(self, line: JSONObject) -> None:
        match line:
            case {"room": {"room": str(room), "code": str(code), "secret": str(secret)}}:
                if _KEY.fullmatch(room) and _KEY.fullmatch(code) and _KEY.fullmatch(secret):
                    self.keys = RoomKeys(room, code, secret)
            case {"port": int(port)} if 0 <= port < 2**16:
                self.port = port
            case {"guest": str(name), "token": str(digest), "trial": int(trial)} if (
                _GUEST.fullmatch(name)
            ):
                # A person who joined with two devices has two such lines.
                newcomer = Guest(name, name, trial=trial)
                guest = self._guests.setdefault(name, newcomer)
                self._by_token[digest] = guest
            # A guest may be unknown, since a full disk or a power failure may have taken the line.
            case {"guest": str(name), "group": int(group), "seat": str(seat)} if (
                name in self._guests and group >= 0
            ):
                self._seat(self._guests[name], RoomPlace(group, seat))
            case {"away": str(name), "is_away": bool(is_away)} if name in self._guests:
                self._guests[name].is_away = is_away
            case {"phase": "lobby" | "open" | "over" as phase, "round": int(number)}:
                # Seats are for one round; those of this one follow.
                if number != self.round:
                    self._clear_seats()
                self.round = number
                self.phase = phase
                last_turn = line.get("last_turn")
                self.last_turn = None
                if isinstance(last_turn, int):
                    self.last_turn = last_turn
                key = str(line.get("key", ""))
                self._key = key if _RUN.fullmatch(key) else ""

    def _seat(self, guest: Guest, place: RoomPlace) -> None:
        # In the journal of a start that was cut off and made again, people have two seats.
        before = self._by_place.get(place)
        if before is not None:
            before.place = None
        if guest.place is not None:
            del self._by_place[guest.place]
        guest.place = place
        self._by_place[place] = guest

    def _clear_seats(self) -> None:
        self._by_place = {}
        for guest in self._guests.values():
            guest.place = None
            guest.is_away = False
            guest.answers = 0

    def keep_port(self, port: int) -> None:
        """Record the port, so that people's pages find the room again after a restart."""
        self.port = port
        self._journal.write({"port": port})

    def keep_closing(self, guest: Guest, answers: JSONObject) -> None:
        """Record a participant's answers to the closing questions."""
        with self.lock:
            line: JSONObject = {"guest": guest.id, "answers": answers}
            self._journal.write(line, ".closing")
            guest.closing = answers
        # Not the projector's page, which shows nothing about single people.
        self.news.tell([guest, self.teacher], urgent=True)

    # --- guests -----------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """The number of people who can take part in a round."""
        return sum(len(plan.seats) for plan in self.source.plans)

    @property
    def guests(self) -> list[Guest]:
        """All participants, in the order in which they came."""
        return list(self._guests.values())

    def guest_of(
        self,
        token: str,
        trial: int = 0,
    ) -> Guest | None:
        """Return the participant with a token that belongs to a link."""
        # A trial's links are open in one browser, so a token is valid for its own link only.
        guest = self._by_token.get(token_digest(token))
        if guest is None or guest.trial != trial:
            return None
        return guest

    def guest_at(self, place: RoomPlace) -> Guest | None:
        """Return the participant in a seat."""
        return self._by_place.get(place)

    def named(self, guest_id: object) -> Guest:
        """Return the participant with an id.

        Raises:
            RoomError: there is no such participant.
        """
        guest = self._guests.get(str(guest_id))
        if guest is None:
            names = ", ".join(self._guests) or "nobody"
            raise refused(f"There is no participant {brief(guest_id, 40)}; there are: {names}.")
        return guest

    def join(
        self,
        name: str,
        label: str,
        trial: int,
        *,
        may_return: bool,
    ) -> tuple[Guest, str]:
        """Let a person in; return the participant, and a token for the browser.

        Args:
            name: the name that the teacher sees.
            label: a label of the list; empty without a list.
            trial: the number of a trial's link.
            may_return: True if the link is the label's own: then another device may use its seat.

        Raises:
            RoomError: the room is full, or the label was used.
        """
        token = new_token()
        with self.lock:
            guest = self._guest_labelled(label)
            if guest is not None and not may_return:
                raise RoomError(
                    403,
                    "label_taken",
                    "Somebody took part as this already; open your own link to return.",
                )
            # The seat is the same on a new device, and the old device's token stays valid.
            is_new = guest is None
            if guest is None:
                guest = self._newcomer(name, label, trial)
            elif list(self._by_token.values()).count(guest) >= _MOST_DEVICES:
                raise refused(f"This link was opened in {_MOST_DEVICES} browsers; use one of them.")
            # Only the digest, so that nobody can take a seat by reading the journal.
            digest = token_digest(token)
            self._journal.write({"guest": guest.id, "token": digest, "trial": trial})
            self._guests[guest.id] = guest
            self._by_token[digest] = guest
            # Before the start there are no seats: they are dealt to all at once, at random.
            if is_new and self.phase == "open":
                self._deal([guest], self._free_places())
                self._fill_absent()
        self.tell_all()
        return guest, token

    def _newcomer(
        self,
        name: str,
        label: str,
        trial: int,
    ) -> Guest:
        """Return a participant whose name is recorded, and who is not in yet."""
        if len(self._guests) >= _MOST_GUESTS:
            raise refused(f"This room is full: {_MOST_GUESTS} people have joined.")
        guest = Guest(f"p{len(self._guests) + 1:03}", "", label, trial)
        # One short line, since the name stands in the teacher's table.
        words = whole_text(name).split()
        short_name = " ".join(words)[:_MOST_NAME]
        guest.name = short_name or label or guest.id
        names: JSONObject = {
            "guest": guest.id,
            "name": guest.name,
            "label": label,
        }
        self._journal.write(names, ".names")
        return guest

    def _guest_labelled(self, label: str) -> Guest | None:
        """Return the participant with a label; None if labels are not needed."""
        if not label:
            return None
        for guest in self.guests:
            if guest.label == label:
                return guest
        return None

    def tell_staff(self) -> None:
        """Update the teacher's page and the projector's."""
        self.news.tell([self.teacher, self.projector])

    # --- seats ------------------------------------------------------------------------------------

    def _deal(
        self,
        guests: Sequence[Guest],
        places: Sequence[RoomPlace],
    ) -> None:
        """Give each guest a seat, as far as there are seats."""
        for guest, place in zip(guests, places, strict=False):
            line: JSONObject = {
                "guest": guest.id,
                "group": place.group,
                "seat": place.seat,
            }
            self._journal.write(line)
            self._seat(guest, place)

    def _dealt_places(self, rng: random.Random) -> list[RoomPlace]:
        """Return all seats in the order in which they are dealt: group by group, at random.

        The groups of a block are in different arms. They are dealt one block after another, so arms
        differ by at most one group.
        """
        places: list[RoomPlace] = []
        blocks: dict[int, list[RoomGroup]] = {}
        for group in self.groups:
            block = blocks.setdefault(group.plan.block, [])
            block.append(group)
        for block in blocks.values():
            # Group by group, so that with too few people some groups are full, and the others are
            # not played.
            for group in rng.sample(block, len(block)):
                seats = group.plan.seats
                dealt = rng.sample(seats, len(seats))
                places += [group.place_of(seat) for seat in dealt]
        return places

    def _free_places(self) -> list[RoomPlace]:
        """Return the free seats of groups that are played, in random order."""
        places = []
        # A group that began without people is not played, however many come late.
        for group in self.playing:
            if not group.is_over:
                places += _places_of(group)
        free = [place for place in places if place not in self._by_place]
        # At random, so that the time of coming does not choose the group.
        random.shuffle(free)
        return free

    @property
    def playing(self) -> list[RoomGroup]:
        """The groups with a participant; the others are not played, and do not count."""
        numbers = {place.group for place in self._by_place}
        return [group for group in self.groups if group.number in numbers]

    def is_filled(self, place: RoomPlace) -> bool:
        """Return True if something else answers for a seat."""
        guest = self._by_place.get(place)
        return guest is None or guest.is_away

    # --- the round --------------------------------------------------------------------------------

    def _take(self, source: Source) -> None:
        """Begin a round that plays this source."""
        self.source = source
        self.groups = [RoomGroup(number, plan) for number, plan in enumerate(source.plans)]
        self._unlisten = source.listen(self._look)
        self._look()

    def start(self, *, is_stepwise: bool = False) -> None:
        """Deal the seats, full groups first, and allow questions."""
        with self.lock:
            if self.phase != "lobby":
                raise refused("This round has begun already.")
            if not self._guests:
                raise refused("Nobody has joined yet.")
            self._clear_seats()  # an earlier start may have been cut off before the phase
            # Seeded, so that a teacher can reconstruct how seats were dealt.
            rng = random.Random(f"{self.source.seed} {self.round}")
            shuffled = rng.sample(self.guests, len(self._guests))
            places = self._dealt_places(rng)
            self._deal(shuffled, places)
            self.fault = ""
            last_turn = 1 if is_stepwise else None
            self._change_phase("open", last_turn)

    def pause(self) -> None:
        """Hold the questions of turns that no group has begun."""
        with self.lock:
            self._check_open()
            # The fastest group decides: a turn that one group has begun, all groups may play.
            latest = max(self._turns_played(), default=0)
            for group in self.playing:
                for ask in group.asks.values():
                    # A question that is held already is not being asked.
                    if ask.shown_at is not None:
                        latest = max(latest, ask.question.turn)
            self._change_phase("open", latest)

    def next_turn(self) -> None:
        """Allow the questions of one more turn, and hold those after it."""
        with self.lock:
            self._check_open()
            # The slowest group decides, since a class continues together.
            last_turn = min(self._turns_played(), default=0)
            # Pressed twice during a turn, the button allows two more turns.
            if self.last_turn is not None:
                last_turn = max(last_turn, self.last_turn)
            self._change_phase("open", last_turn + 1)

    def resume(self) -> None:
        """Show questions as they come."""
        with self.lock:
            self._check_open()
            self._change_phase("open", None)

    def end(self) -> None:
        """End the round where it is."""
        with self.lock:
            self._change_phase("over", self.last_turn)

    def another_round(self) -> None:
        """Begin a round in which other people play together.

        Raises:
            RoomError: the present round is not over.
        """
        with self.lock:
            if self.phase != "over":
                raise refused("End this round first.")
            number = self.round + 1
            source = self._first.of_round(number, "")
            self._keep_phase("lobby", None, number, source)
            # The old round's runs no longer concern the room.
            self._unlisten()
            self.phase = "lobby"
            self.last_turn = None
            self.round = number
            self.is_shown = False
            self._clear_seats()
            self._take(source)

    def set_away(self, guest: Guest, *, is_away: bool) -> None:
        """Let the seat's stand-in answer for a participant, or end that."""
        with self.lock:
            if guest.place is None:
                raise refused(f"{guest.id} has no seat.")
            self._journal.write({"away": guest.id, "is_away": is_away})
            guest.is_away = is_away
            self._fill_absent()
        self.tell_all()

    def show(self, *, is_shown: bool) -> None:
        """Show charts of the whole class on the wall before the end, or stop that."""
        with self.lock:
            self.is_shown = is_shown
        self.news.tell(
            [self.teacher, self.projector],
            urgent=True,
        )

    def _check_open(self) -> None:
        if self.phase != "open":
            raise refused("Start the round first.")

    def _turns_played(self) -> list[int]:
        return [
            group.run.turn_number
            for group in self.playing
            if group.run is not None and not group.is_over
        ]

    def _change_phase(self, phase: Phase, last_turn: int | None) -> None:
        self._keep_phase(phase, last_turn, self.round, self.source)
        self.phase = phase
        self.last_turn = last_turn
        self._fill_absent()
        self.tell_all()

    def _keep_phase(
        self,
        phase: Phase,
        last_turn: int | None,
        number: int,
        source: Source,
    ) -> None:
        line: JSONObject = {
            "phase": phase,
            "last_turn": last_turn,
            "round": number,
            "key": source.key,
        }
        self._journal.write(line)

    # --- runs and their questions -----------------------------------------------------------------

    def _look(self) -> None:
        """Take up runs that have begun, and the errors of others."""
        with self.lock:
            missing = [group.number for group in self.groups if group.run is None]
            for number, run in self.source.runs(missing).items():
                if self.groups[number].run is None:
                    self._attach(self.groups[number], run)
            faults = self.source.faults()
            for group in self.groups:
                group.fault = faults.get(group.number, "")
        self.tell_all()

    def _attach(self, group: RoomGroup, run: Run) -> None:
        group.run = run
        # A run that continues has turns from an earlier process.
        for turn in run.turns:
            self._count(turn)
        run.listen(lambda turn: self._turn_ended(group, turn))
        # A person with several seats is registered once.
        people = dict.fromkeys(People(run).seats.values())
        for person in people:
            person.listen(partial(self._asked, group, person))
            self._asked(group, person)

    def _turn_ended(self, group: RoomGroup, turn: Turn) -> None:
        with self.lock:
            self._count(turn)
        self._tell_group(group)

    def _count(self, turn: Turn) -> None:
        """Count a whole turn's answers; those of a turn under way may have to be given again."""
        for answer in turn.answers:
            guest_id = str(answer.fields.get(PARTICIPANT, ""))
            guest = self._guests.get(guest_id)
            if guest is not None:
                guest.answers += 1

    def _asked(self, group: RoomGroup, person: Person) -> None:
        """Update a person's questions, whenever one comes or goes."""
        concerned: list[Viewer] = []
        with self.lock:
            open_now: dict[str, OpenQuestion] = {}
            for question in person.questions:
                # A seat may have several questions at once. They are shown one after another.
                open_now.setdefault(_seat_of(group, question), question)
            # A copy, since questions that are gone are deleted.
            for seat, ask in list(group.asks.items()):
                # The objects are compared, since id() may return the number of an older question.
                is_open = open_now.get(seat) is ask.question
                is_gone = ask.person is person and not is_open
                if is_gone:
                    del group.asks[seat]
                    concerned += self._viewers_at(group, seat)
            for seat, question in open_now.items():
                if seat not in group.asks:
                    as_put = put(group.run, question, seat)
                    group.asks[seat] = OpenAsk(person, as_put)
                    concerned += self._viewers_at(group, seat)
            self._fill_group(group)
        # Without the lock, since a callback may come back here from another thread.
        self.news.tell(concerned, urgent=True)
        self._tell_group(group)

    def _viewers_at(self, group: RoomGroup, seat: str) -> list[Viewer]:
        place = group.place_of(seat)
        guest = self._by_place.get(place)
        if guest is None:
            return []
        return [guest]

    def _fill_absent(self) -> None:
        for group in self.playing:
            self._fill_group(group)

    def _fill_group(self, group: RoomGroup) -> None:
        """Show the questions that may be asked now, and give up those of empty seats."""
        # A copy, since giving a question up deletes it.
        for seat, ask in list(group.asks.items()):
            if not self._may_be_asked(ask.question):
                continue
            # The clock starts when people can answer, not while the teacher holds the question.
            if ask.shown_at is None:
                ask.shown_at = clock()
            if self.is_filled(group.place_of(seat)):
                _give_up(ask, "the person was away")

    def _may_be_asked(self, question: OpenQuestion) -> bool:
        is_held = self.last_turn is not None and question.turn > self.last_turn
        return self.phase == "open" and not is_held

    def ask_of(self, guest: Guest) -> OpenAsk | None:
        """Return the question that a participant can answer now."""
        if guest.place is None or guest.is_away:
            return None
        group = self.groups[guest.place.group]
        ask = group.asks.get(guest.place.seat)
        if ask is None or ask.shown_at is None:
            return None
        # A question that was shown may not be asked any more, if the round is over.
        if not self._may_be_asked(ask.question):
            return None
        return ask

    def give_up_overdue(self) -> None:
        """Let stand-ins answer for people who take too long.

        A person without an open page counts as away until coming back; else each turn would wait as
        long.
        """
        if self.timeout_s is None or self.phase != "open":
            return
        latest = clock() - self.timeout_s
        with self.lock:
            for group in self.playing:
                # A copy, since giving a question up deletes it.
                open_asks = list(group.asks.items())
                for seat, ask in open_asks:
                    place = group.place_of(seat)
                    guest = self._by_place.get(place)
                    is_overdue = ask.shown_at is not None and ask.shown_at <= latest
                    if guest is None or not is_overdue:
                        continue
                    if guest.is_online:
                        reason = f"there was no answer within {self.timeout_s:g} s"
                        _give_up(ask, reason)
                    else:
                        self.set_away(guest, is_away=True)

    # --- news -------------------------------------------------------------------------------------

    def _tell_group(self, group: RoomGroup) -> None:
        viewers: list[Viewer] = []
        for seat in group.plan.seats:
            viewers += self._viewers_at(group, seat)
        self.news.tell([*viewers, self.teacher, self.projector])

    def tell_all(self) -> None:
        """Update all pages."""
        everybody: Iterable[Viewer] = [*self.guests, self.teacher, self.projector]
        self.news.tell(everybody, urgent=True)


def _places_of(group: RoomGroup) -> list[RoomPlace]:
    return [group.place_of(seat) for seat in group.plan.seats]


def _give_up(ask: OpenAsk, reason: str) -> None:
    """Give a question up; another thread may be closing it just now."""
    with suppress(ConfigError):
        ask.person.give_up(ask.question, reason)


def _seat_of(group: RoomGroup, question: OpenQuestion) -> str:
    """Return the seat that answers a question; with ``by=`` it is not the seat it is about."""
    if question.answerer in group.plan.seats:
        return question.answerer
    if question.component in group.plan.seats:
        return question.component
    return question.agent
