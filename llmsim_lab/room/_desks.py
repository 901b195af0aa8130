"""Desks: each answers for one kind of page, with what its viewer may see and do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from llmsim_lab._util.jsontext import JSON, JSONObject, dumps
from llmsim_lab._util.text import brief, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.room._asking import (
    CLOSING,
    ask_view,
    closed,
    closing_answers,
    closing_view,
    take_answer,
)
from llmsim_lab.room._faults import RoomError, refused
from llmsim_lab.room._keys import is_same
from llmsim_lab.room._seats import Guest, RoomSeats
from llmsim_lab.room._streams import Viewer
from llmsim_lab.room._tables import answers_csv, otree_csv, people_csv
from llmsim_lab.room._views import guest_view, projector_view, teacher_view
from llmsim_lab.run import Run
from llmsim_lab.run.seating import SeatQuestion

_SHOWN_LINKS = ("link", "base", "code", "qr")


Buttons = Mapping[str, Callable[[JSONObject], object]]
"""What the buttons of a page do, by name: functions of the message that the page sends."""


@dataclass(frozen=True)
class Download:
    """A file that a page offers.

    Attributes:
        file_name: the name under which it is saved; empty for data that the page itself reads.
    """

    content: str
    media_type: str
    file_name: str = ""


@dataclass(frozen=True)
class Reception:
    """The parts of a room that all its desks use.

    Attributes:
        seats: the people, and the groups that they play in.
        epoch: differs in each process, so that pages notice a restart of the room.
        welcome: a text that people read and agree to before they join; empty for none.
        closing: the closing questions; None if there are none.
        beside: a run that charts compare the class with.
        base: returns the address that people open.
        links: returns what pages show of the room's addresses, with the QR code.
    """

    seats: RoomSeats
    epoch: str
    welcome: str
    closing: SeatQuestion | None
    beside: Run | None
    base: Callable[[], str]
    links: Callable[[], JSONObject]


class GuestDesk:
    """Answers for the participants' pages.

    Args:
        reception: the parts of the room.
        trial: the number of a trial's link; 0 for the room's own link.
    """

    name = "guest"

    def __init__(self, reception: Reception, trial: int = 0) -> None:
        room = reception.seats.keys.room
        self._reception = reception
        self._seats = reception.seats
        # A path for each link of a trial, so that several guests can play in one browser.
        self._trial = trial
        # The cookie's name differs between rooms, since a browser sends cookies to all ports of a
        # host.
        self.path = "/"
        self.cookie = f"seat-{room}"
        if trial:
            self.path = f"/p/{trial}/"
            self.cookie = f"seat-{room}-{trial}"

    def about(self, token: str) -> JSONObject:
        """Return what any visitor may know."""
        return {
            "room": self._seats.keys.room,
            "epoch": self._reception.epoch,
            "title": self._seats.source.title,
            "welcome": self._reception.welcome,
            "labels": self._seats.labels is not None,
            "joined": self.viewer(token) is not None,
            "over": self._seats.phase == "over",
        }

    def join(
        self,
        message: JSONObject,
        token: str,
    ) -> tuple[str, JSONObject]:
        """Let a person in who has the link or the code.

        Raises:
            RoomError: the code, the link or the label is wrong, or the person did not agree.
        """
        guest = self._seats.guest_of(token, self._trial)
        if guest is not None:  # the person joined before, in another tab
            return token, {"guest": guest.id, "name": guest.name}
        keys = self._seats.keys
        # Cut first, since a visitor may send any length; a label is a word or two. Half characters
        # are replaced, since they can be neither hashed nor written.
        sent_label = str(message.get("id", ""))[:200]
        label = whole_text(sent_label)
        secret = message.get("secret", "")
        # People may type small letters, or a dash or a space in the middle.
        typed_code = str(message.get("code", ""))
        code = re.sub(r"[^A-Z0-9]", "", typed_code.upper())
        has_own_link = False
        if label:
            has_own_link = is_same(secret, keys.of_label(label))
        has_room_link = is_same(secret, keys.join)
        has_code = is_typed(message) and is_same(code, keys.code)
        if not (has_own_link or has_room_link or has_code):
            raise RoomError(403, "wrong_code", "That is not the code of this room.")
        if self._seats.labels is None:
            label = ""
        # With a list of labels, no one else gets in: the data can then be joined by label.
        elif label not in self._seats.labels:
            raise RoomError(403, "wrong_label", "This room has no participant of that label.")
        # Checked here and not only in the page: whatever program joins has to agree.
        if self._reception.welcome and message.get("agreed") is not True:
            raise RoomError(403, "agree_first", "Agree to take part first.")
        guest, new_token = self._seats.join(
            str(message.get("name", "")),
            label,
            self._trial,
            may_return=has_own_link,
        )
        return new_token, {"guest": guest.id, "name": guest.name}

    def viewer(self, token: str) -> Guest | None:
        """Return the participant with a token; None if there is none."""
        return self._seats.guest_of(token, self._trial)

    def viewers(self) -> Iterable[Viewer]:
        """Return all participants who use this link."""
        guests = self._seats.guests
        return [guest for guest in guests if guest.trial == self._trial]

    def view(self, viewer: Viewer) -> JSONObject:
        """Return all that this participant may know."""
        guest = _as_guest(viewer)
        with self._seats.lock:
            question = ask_view(self._seats, guest)
            # Asked only once, and not shown again after the answer.
            closing = None
            if self._reception.closing is not None and guest.closing is None:
                closing = closing_view(self._reception.closing)
            view = guest_view(self._seats, guest, question, closing)
        return {"epoch": self._reception.epoch, **view}

    def do(self, viewer: Viewer, message: JSONObject) -> None:
        """Take an answer, or give the seat back to a participant who was away.

        Raises:
            RoomError: the answer is wrong, or the question is closed.
        """
        guest = _as_guest(viewer)
        if message.get("do") == "back":
            self._seats.set_away(guest, is_away=False)
            return
        if message.get("do") != "answer":
            raise RoomError(400, "malformed", "There is no such button.")
        values = message.get("values")
        closing = self._reception.closing
        with self._seats.lock:  # two taps, or two tabs, count once
            if closing is not None and message.get("id") == CLOSING:
                if guest.closing is not None:
                    raise closed()
                self._seats.keep_closing(guest, closing_answers(closing, values))
                return
            ask = self._seats.ask_of(guest)
            # When the tap arrives, the next question may be there already.
            if ask is None or ask.id != message.get("id"):
                raise closed()
            take_answer(guest, ask, values)

    def download(self, viewer: Viewer, name: str) -> Download | None:
        """Return a file of the participant's own answers."""
        if name != "answers":
            return None
        guest = _as_guest(viewer)
        answers = answers_csv(self._seats, guest)
        return Download(answers, "text/csv", "answers.csv")


@dataclass(frozen=True)
class StaffDesk:
    """Answers for a page that is opened with a key: the teacher's or the projector's.

    Attributes:
        name: the page's name.
        key: opens the page; the page's browser keeps it.
        owner: the viewer whose page it is.
        view_now: returns what the page shows.
        buttons: the page's buttons, by name; each calls a method of the room.
        downloads: functions that make the page's files, by name.
        tickets: further keys, which open the page only once.
    """

    reception: Reception
    name: str
    key: str
    owner: Viewer
    view_now: Callable[[], JSONObject]
    # Functions, since a table of two hundred people is made only when it is asked for.
    downloads: Mapping[str, Callable[[], Download]]
    buttons: Buttons = field(default_factory=dict)
    tickets: set[str] = field(default_factory=set)

    @property
    def path(self) -> str:
        """The beginning of the page's address."""
        return f"/{self.name}/"

    @property
    def cookie(self) -> str:
        """The name of the cookie with the key."""
        return f"{self.name}-{self.reception.seats.keys.room}"

    def about(self, token: str) -> JSONObject:
        """Return what any visitor may know."""
        return {
            "room": self.reception.seats.keys.room,
            "epoch": self.reception.epoch,
            "title": self.reception.seats.source.title,
            "joined": self.viewer(token) is not None,
        }

    def join(
        self,
        message: JSONObject,
        token: str,
    ) -> tuple[str, JSONObject]:
        """Let in a person who has the key, or a ticket.

        Raises:
            RoomError: the key is wrong, or the ticket was used.
        """
        key = str(message.get("key", ""))
        # Removed: a ticket stands in the output of a cell, which may be saved and passed on.
        if key in self.tickets:
            self.tickets.remove(key)
        elif self.viewer(token) is None and not is_same(key, self.key):
            raise RoomError(
                403,
                "wrong_code",
                "This link was used, or is of another room; show the room again for a new one.",
            )
        return self.key, {}

    def viewer(self, token: str) -> Viewer | None:
        """Return the page's owner if the token is right; else None."""
        return self.owner if is_same(token, self.key) else None

    def viewers(self) -> Iterable[Viewer]:
        """Return everybody who may have this page open."""
        return [self.owner]

    def view(self, viewer: Viewer) -> JSONObject:
        """Return all that the page shows now."""
        with self.reception.seats.lock:
            view = self.view_now()
            return {"epoch": self.reception.epoch, **view}

    def do(self, viewer: Viewer, message: JSONObject) -> None:
        """Press a button.

        Raises:
            RoomError: there is no such button, or it makes no sense now.
        """
        name = str(message.get("do"))
        button = self.buttons.get(name)
        if button is None:
            raise refused("There is no such button.")
        try:
            button(message)
        except ConfigError as error:
            raise refused(str(error)) from error

    def download(self, viewer: Viewer, name: str) -> Download | None:
        """Return a file; None if there is none with this name."""
        make = self.downloads.get(name)
        if make is None:
            return None
        return make()


def is_typed(message: JSONObject) -> bool:
    """Return True if somebody joins by a code, which can be guessed, and not by a link's key."""
    return "secret" not in message and "key" not in message


Desk = GuestDesk | StaffDesk
"""Answers for one kind of page: what its viewer may see and do."""


def teacher_desk(
    reception: Reception,
    *,
    is_played: Callable[[], bool],
    buttons: Buttons,
    tickets: set[str],
) -> StaffDesk:
    """Return the desk of the teacher's page."""
    seats = reception.seats

    def view_now() -> JSONObject:
        return teacher_view(
            seats,
            reception.beside,
            is_played=is_played(),
        )

    def otree() -> Download:
        table = otree_csv(seats)
        return Download(table, "text/csv", "otree.csv")

    def people() -> Download:
        table = people_csv(seats)
        return Download(table, "text/csv", "people.csv")

    return StaffDesk(
        reception,
        name="teacher",
        key=seats.keys.teacher,
        owner=seats.teacher,
        view_now=view_now,
        downloads={
            "links": lambda: _json_file(reception.links()),
            "otree": otree,
            "people": people,
        },
        buttons=buttons,
        tickets=tickets,
    )


def projector_desk(reception: Reception) -> StaffDesk:
    """Return the desk of the page on the wall, which has no buttons and names no one."""
    seats = reception.seats

    # Without the teacher's link: everybody in the room can read the wall.
    def links() -> Download:
        every_link = reception.links()
        shown_links: JSONObject = {}
        for name in _SHOWN_LINKS:
            shown_links[name] = every_link[name]
        return _json_file(shown_links)

    def view_now() -> JSONObject:
        view = projector_view(seats, reception.beside)
        return {
            **view,
            "code": seats.keys.code,
            "base": reception.base(),
        }

    return StaffDesk(
        reception,
        name="projector",
        key=seats.keys.projector,
        owner=seats.projector,
        view_now=view_now,
        downloads={"links": links},
    )


def _as_guest(viewer: Viewer) -> Guest:
    if not isinstance(viewer, Guest):
        raise TypeError(f"{brief(viewer)} is not a participant")
    return viewer


def _json_file(content: JSON) -> Download:
    return Download(dumps(content), "application/json")
