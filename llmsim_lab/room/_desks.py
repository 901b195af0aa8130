"""Who answers for each page: what its viewer sees, and what the viewer may do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from llmsim_lab._util.jsontext import JSON, JSONObject, dumps
from llmsim_lab._util.text import whole_text
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


@dataclass(frozen=True)
class Download:
    """A file that a page offers.

    Attributes:
        file_name: under which it is saved; empty for what the page itself reads.
    """

    content: str
    media_type: str
    file_name: str = ""


@dataclass(frozen=True)
class Reception:
    """What a room's desks share.

    Attributes:
        seats: who takes part.
        epoch: another one in each process, so that pages notice that the room was begun again.
        welcome: what people read and agree to before they join; empty for nothing.
        closing: the closing questions; None if there are none.
        beside: a run that charts compare the class with.
        base: makes the address that people open.
        links: makes what pages show of the room's addresses, the QR code among them.
    """

    seats: RoomSeats
    epoch: str
    welcome: str
    closing: SeatQuestion | None
    beside: Run | None
    base: Callable[[], str]
    links: Callable[[], JSONObject]


class GuestDesk:
    """Answers for participants.

    Args:
        reception: the room.
        trial: of which link of a trial; 0 for the room's own.
    """

    name = "guest"

    def __init__(self, reception: Reception, trial: int = 0) -> None:
        room = reception.seats.keys.room
        self._reception = reception
        self._seats = reception.seats
        # With a path of its own, so that four guests are tried out in one browser.
        self._trial = trial
        # Cookies of all ports of a machine go to each of them: the name tells rooms apart.
        self.path = "/"
        self.cookie = f"seat-{room}"
        if trial:
            self.path = f"/p/{trial}/"
            self.cookie = f"seat-{room}-{trial}"

    def about(self, token: str) -> JSONObject:
        """Return what anybody may know."""
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
        """Let somebody in who has the link, or the code.

        Raises:
            RoomError: the code, the link or the label is wrong, or what is asked was not agreed to.
        """
        guest = self._seats.guest_of(token, self._trial)
        if guest is not None:  # who joined before, in another tab
            return token, {"guest": guest.id, "name": guest.name}
        keys = self._seats.keys
        # Cut before it is compared with anything; a label is a word or two. Whole, since half a
        # character could be neither hashed nor written.
        label = whole_text(str(message.get("id", ""))[:200])
        secret = message.get("secret", "")
        # As people type it: small letters, a dash or a space in the middle.
        typed_code = str(message.get("code", "")).upper()
        code = re.sub(r"[^A-Z0-9]", "", typed_code)
        has_own_link = bool(label) and is_same(secret, keys.of_label(label))
        has_room_link = is_same(secret, keys.join)
        has_code = is_same(code, keys.code)
        if not (has_own_link or has_room_link or has_code):
            raise RoomError(403, "wrong_code", "That is not the code of this room.")
        if self._seats.labels is None:
            label = ""
        # A list of labels lets in nobody else, so that data can be joined by them.
        elif label not in self._seats.labels:
            raise RoomError(403, "wrong_label", "This room has no participant of that label.")
        # Here and not in the page alone: who answers has agreed, whatever sent the request.
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
        """Return whose token it is."""
        return self._seats.guest_of(token, self._trial)

    def viewers(self) -> Iterable[Viewer]:
        """Return all participants of the link."""
        return [guest for guest in self._seats.guests if guest.trial == self._trial]

    def view(self, viewer: Viewer) -> JSONObject:
        """Return all that this participant may know."""
        guest = _as_guest(viewer)
        with self._seats.lock:
            question = ask_view(self._seats, guest)
            # Asked once: what was answered is not shown again.
            closing = None
            if self._reception.closing is not None and guest.closing is None:
                closing = closing_view(self._reception.closing)
            view = guest_view(self._seats, guest, question, closing)
        return {"epoch": self._reception.epoch, **view}

    def do(self, viewer: Viewer, message: JSONObject) -> None:
        """Take an answer, or the seat back from what filled it.

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
        with self._seats.lock:  # of two taps, or two tabs, one counts
            if closing is not None and message.get("id") == CLOSING:
                if guest.closing is not None:
                    raise closed()
                self._seats.keep_closing(guest, closing_answers(closing, values))
                return
            ask = self._seats.ask_of(guest)
            # A tap may come when the next question is there already.
            if ask is None or ask.id != message.get("id"):
                raise closed()
            take_answer(guest, ask, values)

    def download(self, viewer: Viewer, name: str) -> Download | None:
        """Return the participant's own answers."""
        if name != "answers":
            return None
        guest = _as_guest(viewer)
        return Download(answers_csv(self._seats, guest), "text/csv", "answers.csv")


@dataclass(frozen=True)
class StaffDesk:
    """Answers for a page that is opened with a key: the teacher's, the projector's.

    Attributes:
        name: the page's.
        key: what opens it, and what its browser keeps.
        owner: whose page it is.
        view_now: what it shows.
        buttons: what it may do, by name; each is a method of the room.
        downloads: makes its files, by name.
        tickets: keys for one use that open it too.
    """

    reception: Reception
    name: str
    key: str
    owner: Viewer
    view_now: Callable[[], JSONObject]
    # Made when they are asked for: a table of two hundred people is not made for each view.
    downloads: Mapping[str, Callable[[], Download]]
    buttons: Mapping[str, Callable[[JSONObject], object]] = field(default_factory=dict)
    tickets: set[str] = field(default_factory=set)

    @property
    def path(self) -> str:
        """Where its address begins."""
        return f"/{self.name}/"

    @property
    def cookie(self) -> str:
        """What keeps the right to it."""
        return f"{self.name}-{self.reception.seats.keys.room}"

    def about(self, token: str) -> JSONObject:
        """Return what anybody may know."""
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
        """Let in who has the key, or one for one use.

        Raises:
            RoomError: it is another one, or was used.
        """
        key = str(message.get("key", ""))
        # Once: it stands in the output of a cell, which is saved and handed on.
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
        """Return whose page it is, if it is the right token."""
        return self.owner if is_same(token, self.key) else None

    def viewers(self) -> Iterable[Viewer]:
        """Return whoever may have this page open."""
        return [self.owner]

    def view(self, viewer: Viewer) -> JSONObject:
        """Return all that the page shows now."""
        with self.reception.seats.lock:
            return {"epoch": self.reception.epoch, **self.view_now()}

    def do(self, viewer: Viewer, message: JSONObject) -> None:
        """Do what a button says.

        Raises:
            RoomError: there is no such button, or it makes no sense now.
        """
        button = self.buttons.get(str(message.get("do")))
        if button is None:
            raise refused("There is no such button.")
        try:
            button(message)
        except ConfigError as error:
            raise refused(str(error)) from error

    def download(self, viewer: Viewer, name: str) -> Download | None:
        """Return a file; None if there is none of that name."""
        make = self.downloads.get(name)
        if make is None:
            return None
        return make()


Desk = GuestDesk | StaffDesk
"""Answers for one page: what its viewer sees, and what the viewer may do."""


def teacher_desk(
    reception: Reception,
    *,
    is_played: Callable[[], bool],
    buttons: Mapping[str, Callable[[JSONObject], object]],
    tickets: set[str],
) -> StaffDesk:
    """Return the desk of the teacher's page."""
    seats = reception.seats
    return StaffDesk(
        reception,
        name="teacher",
        key=seats.keys.teacher,
        owner=seats.teacher,
        view_now=lambda: teacher_view(seats, reception.beside, is_played=is_played()),
        downloads={
            "links": lambda: _json_file(reception.links()),
            "otree": lambda: Download(otree_csv(seats), "text/csv", "otree.csv"),
            "people": lambda: Download(people_csv(seats), "text/csv", "people.csv"),
        },
        buttons=buttons,
        tickets=tickets,
    )


def projector_desk(reception: Reception) -> StaffDesk:
    """Return the desk of the page on the wall, which has no buttons and no single person."""
    seats = reception.seats

    # Without the teacher's: everybody in the room reads the wall.
    def links() -> Download:
        every_link = reception.links()
        return _json_file({name: every_link[name] for name in _SHOWN_LINKS})

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
        raise TypeError(f"{viewer!r:.60} is not a participant")
    return viewer


def _json_file(content: JSON) -> Download:
    return Download(dumps(content), "application/json")
