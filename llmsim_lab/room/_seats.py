"""The state of a room: who is here, who sits where, what waits; no network here.

A run's turns are not held up by anything here. What can be held are questions: until the room is
started, and after a turn that is to be the last one for now, they are not shown, and so each group
waits where it is, whether a run or a study plays.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from llmsim_lab._util.jsontext import JSONObject
from llmsim_lab._util.text import whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.room._faults import RoomError, refused
from llmsim_lab.room._journal import RoomJournal
from llmsim_lab.room._keys import RoomKeys, new_token, token_digest
from llmsim_lab.room._sources import GroupPlan, Source
from llmsim_lab.room._streams import NewsDesk, Viewer
from llmsim_lab.run import Run
from llmsim_lab.run.people import People
from llmsim_lab.run.seating import SeatQuestion, put
from llmsim_lab.run.state import Columns
from llmsim_lab.run.turn import Turn

PARTICIPANT = "participant"
"""The field of a reply that says who gave it."""
_MOST_GUESTS = 500
_MOST_NAME = 40

Phase = Literal["lobby", "open", "over"]


class RoomPlace(NamedTuple):
    """A seat of one of the round's groups."""

    group: int
    seat: str


@dataclass(eq=False)
class Guest(Viewer):
    """A participant.

    Attributes:
        id: on tapes and in data, ``p007``.
        name: for the teacher alone; on no tape.
        label: of a list that the teacher has; empty without one.
        trial: the number of the link of a trial; 0 of others.
        place: the seat; None of somebody who waits for one.
        is_away: something else answers until the participant is back.
        answers: how many were given in this round's whole turns.
        closing: what the closing questions were answered with; None before.
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
    """A question that a seat has.

    Attributes:
        put: the question as it is put.
        id: what an answer names, so that a second tap does not answer the next question.
        shown_at: since when it can be answered, seconds of the clock; None while it is held.
    """

    person: Person
    put: SeatQuestion
    id: str = field(default_factory=partial(secrets.token_hex, 6))
    shown_at: float | None = None

    @property
    def question(self) -> OpenQuestion:
        """What waits for the answer."""
        return self.put.question


@dataclass(eq=False)
class RoomGroup:
    """One group of a round.

    Attributes:
        number: its place in the plans.
        run: None until it begins.
        asks: what waits for answers, by seat.
        fault: why it ended early; empty if it did not.
    """

    number: int
    plan: GroupPlan
    run: Run | None = None
    asks: dict[str, OpenAsk] = field(default_factory=dict)
    fault: str = ""
    _rows: list[tuple[Turn, Columns]] = field(default_factory=list)

    def rows(self) -> list[Columns]:
        """Return the turns' rows, each made once: charts are drawn anew all the time."""
        if self.run is None:
            return []
        for number, turn in enumerate(list(self.run.turns)):
            # By identity: a turn whose state is changed from outside is another one.
            is_known = number < len(self._rows) and self._rows[number][0] is turn
            if not is_known:
                row: Columns = {"turn": turn.number, **turn.columns()}
                # Those after it are made again too.
                self._rows[number:] = [(turn, row)]
        return [row for _, row in self._rows]

    @property
    def is_over(self) -> bool:
        """Whether no further turn is planned."""
        run = self.run
        if run is None:
            return False
        # With 0 turns a run is stepped by hand, and is over when its world says so.
        planned: int = run.config.turns
        return run.turn_number >= planned > 0 or run.done(run.state)


class RoomSeats:
    """Who takes part in a room's rounds, and in which seats.

    Every change is in the journal before anybody sees it.

    Args:
        source: what is played in the first round.
        journal: what was so before, and where changes are kept.
        labels: whom alone to let in; None for everybody with the code.
        timeout_s: how long a question waits for its answer; None for as long as it takes.
    """

    def __init__(
        self,
        source: Source,
        journal: RoomJournal,
        *,
        labels: Sequence[str] | None,
        timeout_s: float | None,
    ) -> None:
        # A notebook's cell, the thread that plays and the server's thread all come here.
        self.lock = threading.RLock()
        self.news = NewsDesk()
        self.labels = labels
        self.timeout_s = timeout_s
        self.keys = RoomKeys.new()
        self.port = 0
        self.round = 1
        self.phase: Phase = "lobby"
        self.last_turn: int | None = None
        """The last turn whose questions are shown; None for all of them."""
        self.is_shown = False
        """Whether the projector has its charts before the end."""
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
        # After the journal, which says in which round the room was when its process ended.
        self._take(source.of_round(self.round, self._key))
        self._check_places()

    def _check_places(self) -> None:
        """Raise ConfigError where the folder's room was of another design."""
        for place in self._by_place:
            if place.group >= len(self.groups):
                raise ConfigError(
                    f"in this folder people sit in group {place.group + 1} of a room, and there "
                    f"are {len(self.groups)} groups now; open it with the design that it was "
                    "begun with, or choose another folder"
                )

    # --- the journal ------------------------------------------------------------------------------

    def _recall(self) -> None:
        """Take up what the journal says; without one, begin it."""
        is_new = True
        for line in self._journal.lines():
            is_new = False
            self._recall_line(line)
        # In a file of their own, which may be deleted: ids stand in for names then.
        for line in self._journal.lines(".names"):
            guest = self._guests.get(str(line.get("guest")))
            if guest is not None:
                guest.name = str(line.get("name", ""))
                guest.label = str(line.get("label", ""))
        for line in self._journal.lines(".closing"):
            guest = self._guests.get(str(line.get("guest")))
            answers = line.get("answers")
            if guest is not None and isinstance(answers, dict):
                guest.closing = answers
        if is_new:
            self._journal.write({"room": {**self.keys.__dict__}})

    def _recall_line(self, line: JSONObject) -> None:
        match line:
            case {"room": {"room": str(room), "code": str(code), "secret": str(secret)}}:
                self.keys = RoomKeys(room, code, secret)
            case {"port": int(port)}:
                self.port = port
            case {"guest": str(name), "token": str(digest), "trial": int(trial)}:
                # One who joined with two devices has two of these lines.
                newcomer = Guest(name, name, trial=trial)
                guest = self._guests.setdefault(name, newcomer)
                self._by_token[digest] = guest
            # A guest may be unknown: a full disk or a power failure took the line.
            case {"guest": str(name), "group": int(group), "seat": str(seat)} if (
                name in self._guests
            ):
                self._seat(self._guests[name], RoomPlace(group, seat))
            case {"away": str(name), "is_away": bool(is_away)} if name in self._guests:
                self._guests[name].is_away = is_away
            case {"phase": "lobby" | "open" | "over" as phase, "round": int(number)}:
                # Seats are of one round; its lines follow this one.
                if number != self.round:
                    self._clear_seats()
                self.round = number
                self.phase = phase
                last_turn = line.get("last_turn")
                self.last_turn = None
                if isinstance(last_turn, int):
                    self.last_turn = last_turn
                self._key = str(line.get("key", ""))

    def _seat(self, guest: Guest, place: RoomPlace) -> None:
        guest.place = place
        self._by_place[place] = guest

    def _clear_seats(self) -> None:
        self._by_place = {}
        for guest in self._guests.values():
            guest.place = None
            guest.is_away = False
            guest.answers = 0

    def keep_port(self, port: int) -> None:
        """Remember the port, so that people's pages find the room again after a restart."""
        self.port = port
        self._journal.write({"port": port})

    def keep_closing(self, guest: Guest, answers: JSONObject) -> None:
        """Keep what a participant answered to the closing questions."""
        with self.lock:
            guest.closing = answers
            self._journal.write({"guest": guest.id, "answers": answers}, ".closing")
        # The projector shows nothing of single people.
        self.news.tell([guest, self.teacher], urgent=True)

    def _keep_phase(self) -> None:
        line: JSONObject = {
            "phase": self.phase,
            "last_turn": self.last_turn,
            "round": self.round,
            "key": self.source.key,
        }
        self._journal.write(line)

    # --- guests -----------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many people can take part in a round."""
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
        """Return who has a token from one of the links."""
        # A trial's links are opened in one browser: a token of one of them opens no other.
        guest = self._by_token.get(token_digest(token))
        if guest is None or guest.trial != trial:
            return None
        return guest

    def guest_at(self, place: RoomPlace) -> Guest | None:
        """Return who sits there."""
        return self._by_place.get(place)

    def named(self, guest_id: object) -> Guest:
        """Return a participant by id.

        Raises:
            RoomError: there is none of that id.
        """
        guest = self._guests.get(str(guest_id))
        if guest is None:
            names = ", ".join(self._guests) or "nobody"
            raise refused(f"There is no participant {guest_id!r:.40}; there are: {names}.")
        return guest

    def join(
        self,
        name: str,
        label: str,
        trial: int,
        *,
        may_return: bool,
    ) -> tuple[Guest, str]:
        """Let somebody in; return the participant and the token for the browser.

        Args:
            name: what the teacher sees.
            label: of the list; empty without one.
            trial: of the link.
            may_return: the link is the label's own, so that another device may take over its seat.

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
            # Who returns on another device keeps the seat; the old device's token works on, too.
            is_new = guest is None
            if guest is None:
                if len(self._guests) >= _MOST_GUESTS:
                    raise refused(f"This room is full: {_MOST_GUESTS} people have joined.")
                guest = Guest(f"p{len(self._guests) + 1:03}", "", label, trial)
                # On one line, and short: it stands in the teacher's table.
                short_name = " ".join(whole_text(name).split())[:_MOST_NAME]
                guest.name = short_name or label or guest.id
                self._guests[guest.id] = guest
                names: JSONObject = {
                    "guest": guest.id,
                    "name": guest.name,
                    "label": label,
                }
                self._journal.write(names, ".names")
            # The digest alone: whoever reads the journal cannot take a seat.
            digest = token_digest(token)
            self._by_token[digest] = guest
            self._journal.write({"guest": guest.id, "token": digest, "trial": trial})
            # Before the start seats are dealt to all at once, by chance.
            if is_new and self.phase == "open":
                self._deal([guest], self._free_places())
                self._fill_absent()
        self.tell_all()
        return guest, token

    def _guest_labelled(self, label: str) -> Guest | None:
        """Return who took part under a label; None of those who need none."""
        if not label:
            return None
        for guest in self.guests:
            if guest.label == label:
                return guest
        return None

    def tell_staff(self) -> None:
        """Have the teacher's page and the wall show what is now."""
        self.news.tell([self.teacher, self.projector])

    # --- seats ------------------------------------------------------------------------------------

    def _deal(
        self,
        guests: Sequence[Guest],
        places: Sequence[RoomPlace],
    ) -> None:
        """Give each a seat, as far as there are any."""
        for guest, place in zip(guests, places, strict=False):
            self._seat(guest, place)
            line: JSONObject = {
                "guest": guest.id,
                "group": place.group,
                "seat": place.seat,
            }
            self._journal.write(line)

    def _dealt_places(self, rng: random.Random) -> list[RoomPlace]:
        """Return all seats in the order in which they are taken: group by group, by chance.

        Groups of one block are in different arms: one after the other of each block, arms differ by
        one group at the most.
        """
        places: list[RoomPlace] = []
        blocks: dict[int, list[RoomGroup]] = {}
        for group in self.groups:
            blocks.setdefault(group.plan.block, []).append(group)
        for block in blocks.values():
            # Group after group: with too few people some groups are whole, and the others are not
            # played.
            for group in rng.sample(block, len(block)):
                seats = group.plan.seats
                dealt = rng.sample(seats, len(seats))
                places += [RoomPlace(group.number, seat) for seat in dealt]
        return places

    def _free_places(self) -> list[RoomPlace]:
        """Return the seats of groups at play that nobody has, by chance."""
        places = []
        # A group that nobody began with is not played, however many come late.
        for group in self.playing:
            if not group.is_over:
                places += _places_of(group)
        free = [place for place in places if place not in self._by_place]
        # Who comes late cannot choose a group by the time of coming.
        random.shuffle(free)
        return free

    @property
    def playing(self) -> list[RoomGroup]:
        """The groups in which somebody has a seat; others are not played, and do not count."""
        numbers = {place.group for place in self._by_place}
        return [group for group in self.groups if group.number in numbers]

    def is_filled(self, place: RoomPlace) -> bool:
        """Return True if something else answers for a seat."""
        guest = self._by_place.get(place)
        return guest is None or guest.is_away

    # --- the round --------------------------------------------------------------------------------

    def _take(self, source: Source) -> None:
        """Begin a round with what is played in it."""
        self.source = source
        self.groups = [RoomGroup(number, plan) for number, plan in enumerate(source.plans)]
        self._unlisten = source.listen(self._look)
        self._look()

    def start(self, *, is_stepwise: bool = False) -> None:
        """Deal the seats, whole groups first, and let questions be asked."""
        with self.lock:
            if self.phase != "lobby":
                raise refused("This round has begun already.")
            if not self._guests:
                raise refused("Nobody has joined yet.")
            self._clear_seats()  # of a start that was cut off between the seats and the phase
            # By the seed, so that a teacher can say afterwards how seats were dealt.
            rng = random.Random(f"{self.source.seed} {self.round}")
            shuffled = rng.sample(self.guests, len(self._guests))
            places = self._dealt_places(rng)
            self._deal(shuffled, places)
            self.fault = ""
            last_turn = 1 if is_stepwise else None
            self._move("open", last_turn)

    def pause(self) -> None:
        """Hold the questions of turns that no group has begun."""
        with self.lock:
            self._check_open()
            # The fastest group's: a turn that one group has begun, all may play.
            latest = max(self._turns_played(), default=0)
            for group in self.playing:
                for ask in group.asks.values():
                    # One that is held already is not being asked.
                    if ask.shown_at is not None:
                        latest = max(latest, ask.question.turn)
            self._move("open", latest)

    def next_turn(self) -> None:
        """Show the questions of one more turn, and hold those after it."""
        with self.lock:
            self._check_open()
            # The slowest group's: a class goes on together.
            last_turn = min(self._turns_played(), default=0)
            # Pressed twice while a turn is played, it lets in two more.
            if self.last_turn is not None:
                last_turn = max(last_turn, self.last_turn)
            self._move("open", last_turn + 1)

    def resume(self) -> None:
        """Show questions as they come."""
        with self.lock:
            self._check_open()
            self._move("open", None)

    def end(self) -> None:
        """End the round where it is."""
        with self.lock:
            self._move("over", self.last_turn)

    def another_round(self) -> None:
        """Begin a round in which others play with each other.

        Raises:
            RoomError: this one is not over.
        """
        with self.lock:
            if self.phase != "over":
                raise refused("End this round first.")
            # What becomes of the old round's runs no longer concerns the room.
            self._unlisten()
            self.round += 1
            self._clear_seats()
            self._take(self._first.of_round(self.round, ""))
            self.is_shown = False
            self._move("lobby", None)

    def set_away(self, guest: Guest, *, is_away: bool) -> None:
        """Give a participant's seat to what fills it, or back."""
        with self.lock:
            if guest.place is None:
                raise refused(f"{guest.id} has no seat.")
            guest.is_away = is_away
            self._journal.write({"away": guest.id, "is_away": is_away})
            self._fill_absent()
        self.tell_all()

    def show(self, *, is_shown: bool) -> None:
        """Show charts of the whole class on the wall before the end, or not."""
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

    def _move(self, phase: Phase, last_turn: int | None) -> None:
        self.phase = phase
        self.last_turn = last_turn
        self._keep_phase()
        self._fill_absent()
        self.tell_all()

    # --- runs and their questions -----------------------------------------------------------------

    def _look(self) -> None:
        """Take up runs that have begun, and why others ended."""
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
        # A run that continues has turns of another process.
        for turn in run.turns:
            self._count(turn)
        run.listen(lambda turn: self._turn_ended(group, turn))
        # One person may have several seats, and calls once.
        people = dict.fromkeys(People(run).seats.values())
        for person in people:
            person.listen(partial(self._asked, group, person))
            self._asked(group, person)

    def _turn_ended(self, group: RoomGroup, turn: Turn) -> None:
        with self.lock:
            self._count(turn)
        self._tell_group(group)

    def _count(self, turn: Turn) -> None:
        """Count who answered in a turn; what a turn under way was answered may be asked again."""
        for answer in turn.answers:
            guest_id = str(answer.fields.get(PARTICIPANT, ""))
            guest = self._guests.get(guest_id)
            if guest is not None:
                guest.answers += 1

    def _asked(self, group: RoomGroup, person: Person) -> None:
        """Take up a person's questions, whenever one comes or goes."""
        concerned: list[Viewer] = []
        with self.lock:
            open_now: dict[str, OpenQuestion] = {}
            for question in person.questions:
                # A seat may have several questions at once; the next is put when this one is
                # answered.
                open_now.setdefault(_seat_of(group, question), question)
            # A copy, since what is gone is taken out.
            for seat, ask in list(group.asks.items()):
                # By the question itself, and not its id(), which comes again when one is gone.
                is_gone = ask.person is person and open_now.get(seat) is not ask.question
                if is_gone:
                    del group.asks[seat]
                    concerned += self._viewers_at(group, seat)
            for seat, question in open_now.items():
                if seat not in group.asks:
                    as_put = put(group.run, question, seat)
                    group.asks[seat] = OpenAsk(person, as_put)
                    concerned += self._viewers_at(group, seat)
            self._fill_group(group)
        # Without the lock: what is called may come back here from another thread.
        self.news.tell(concerned, urgent=True)
        self._tell_group(group)

    def _viewers_at(self, group: RoomGroup, seat: str) -> list[Viewer]:
        guest = self._by_place.get(RoomPlace(group.number, seat))
        if guest is None:
            return []
        return [guest]

    def _fill_absent(self) -> None:
        for group in self.playing:
            self._fill_group(group)

    def _fill_group(self, group: RoomGroup) -> None:
        """Show the questions that may be asked now; those of empty seats are given up."""
        # A copy, since giving one up takes it away.
        for seat, ask in list(group.asks.items()):
            if not self._may_be_asked(ask.question):
                continue
            # The clock runs from when people can answer, and not while the teacher holds it.
            if ask.shown_at is None:
                ask.shown_at = time.time()
            if self.is_filled(RoomPlace(group.number, seat)):
                _give_up(ask, "the person was away")

    def _may_be_asked(self, question: OpenQuestion) -> bool:
        is_held = self.last_turn is not None and question.turn > self.last_turn
        return self.phase == "open" and not is_held

    def ask_of(self, guest: Guest) -> OpenAsk | None:
        """Return what a participant can answer now."""
        if guest.place is None or guest.is_away:
            return None
        group = self.groups[guest.place.group]
        ask = group.asks.get(guest.place.seat)
        if ask is None or ask.shown_at is None:
            return None
        # One that was shown may not be asked any more: the round is over.
        if not self._may_be_asked(ask.question):
            return None
        return ask

    def give_up_overdue(self) -> None:
        """Let what fills in answer for those who take too long.

        Who has no page open is away until coming back; else each turn would wait for as long.
        """
        if self.timeout_s is None or self.phase != "open":
            return
        latest = time.time() - self.timeout_s
        with self.lock:
            for group in self.playing:
                for seat, ask in list(group.asks.items()):
                    guest = self._by_place.get(RoomPlace(group.number, seat))
                    if guest is None or ask.shown_at is None or ask.shown_at > latest:
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
        """Have all pages show what is now."""
        everybody: Iterable[Viewer] = [*self.guests, self.teacher, self.projector]
        self.news.tell(everybody, urgent=True)


def _places_of(group: RoomGroup) -> list[RoomPlace]:
    return [RoomPlace(group.number, seat) for seat in group.plan.seats]


def _give_up(ask: OpenAsk, reason: str) -> None:
    """Give a question up, which may be closed in another thread just now."""
    with suppress(ConfigError):
        ask.person.give_up(ask.question, reason)


def _seat_of(group: RoomGroup, question: OpenQuestion) -> str:
    """Return who answers a question, which with ``by=`` is not whom it is about."""
    if question.answerer in group.plan.seats:
        return question.answerer
    if question.component in group.plan.seats:
        return question.component
    return question.agent
