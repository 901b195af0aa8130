"""Who answers for each page: what its viewer sees, and what the viewer may do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from llmsim_lab._util.jsontext import JSON, JSONObject, dumps
from llmsim_lab.errors import ConfigError
from llmsim_lab.room._asking import ClosingQuestions, PutQuestions
from llmsim_lab.room._faults import RoomError, refused
from llmsim_lab.room._keys import is_same
from llmsim_lab.room._seats import Guest, RoomSeats
from llmsim_lab.room._streams import RoomStream, Viewer
from llmsim_lab.room._tables import answers_csv, otree_csv, people_csv
from llmsim_lab.room._views import guest_view, projector_view, teacher_view
from llmsim_lab.run import Run


@dataclass(frozen=True)
class Download:
    """A file that a page offers.

    Attributes:
        file_name: under which it is saved; empty for what the page itself reads.
    """

    content: str
    media_type: str
    file_name: str = ""


class Desk(Protocol):
    """Answers for one page.

    Attributes:
        name: the page's.
        path: where its address begins, with a slash at the end.
        cookie: what keeps its viewer's right.
    """

    name: str
    path: str
    cookie: str

    def about(self, token: str) -> JSONObject:
        """Return what anybody may know, and whether a token has a right here."""

    def join(self, message: JSONObject, token: str) -> tuple[str, JSONObject]:
        """Let somebody in; return the token for the browser, and what the page is told."""

    def viewer(self, token: str) -> Viewer | None:
        """Return whose token it is."""

    def viewers(self) -> Iterable[Viewer]:
        """Return everybody who may have this page open."""

    def came(self, viewer: Viewer, stream: RoomStream) -> None:
        """Note an open page."""

    def went(self, viewer: Viewer, stream: RoomStream) -> None:
        """Note that a page was closed."""

    def view(self, viewer: Viewer) -> JSONObject:
        """Return all that the page shows now."""

    def do(self, viewer: Viewer, message: JSONObject) -> None:
        """Do what a button says."""

    def download(self, viewer: Viewer, name: str) -> Download | None:
        """Return a file; None if there is none of that name."""


@dataclass(frozen=True)
class Reception:
    """What a room's desks share.

    Attributes:
        seats: who takes part.
        epoch: another one in each process, so that pages notice that the room was begun again.
        welcome: what people read and agree to before they join; empty for nothing.
        closing: the closing questions; None if there are none.
        beside: a run that charts compare the class with.
        links: what the pages may show of the room's addresses: by name; the QR code among them.
        buttons: what the teacher may do, by name.
    """

    seats: RoomSeats
    epoch: str
    welcome: str
    closing: ClosingQuestions | None
    beside: Run | None
    links: Callable[[], JSONObject]
    buttons: Mapping[str, Callable[[JSONObject], object]]
    is_played: Callable[[], bool]
    tickets: set[str]
    """Keys for one use, which open the teacher's page."""

    @property
    def title(self) -> str:
        """What is played."""
        return self.seats.source.title


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
        self._trial = trial
        self._questions = PutQuestions(reception.seats)
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
            "title": self._reception.title,
            "welcome": self._reception.welcome,
            "labels": self._seats.labels is not None,
            "joined": self.viewer(token) is not None,
            "over": self._seats.phase == "over",
        }

    def join(self, message: JSONObject, token: str) -> tuple[str, JSONObject]:
        """Let somebody in who has the link, or the code.

        Raises:
            RoomError: the code, the link or the label is wrong, or what is asked was not agreed to.
        """
        guest = self._seats.guest_of(token, self._trial)
        if guest is not None:  # who joined before, in another tab
            return token, {"guest": guest.id, "name": guest.name}
        keys = self._seats.keys
        label = str(message.get("id", ""))[:200]
        secret = message.get("secret", "")
        code = re.sub(r"[^A-Z0-9]", "", str(message.get("code", "")).upper())
        has_own_link = bool(label) and is_same(secret, keys.of_label(label))
        if not (has_own_link or is_same(secret, keys.join) or is_same(code, keys.code)):
            raise RoomError(403, "wrong_code", "That is not the code of this room.")
        if self._seats.labels is None:
            label = ""
        elif label not in self._seats.labels:
            raise RoomError(403, "wrong_label", "This room has no participant of that label.")
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

    def came(self, viewer: Viewer, stream: RoomStream) -> None:
        """Note an open page."""
        self._seats.came(viewer, stream)

    def went(self, viewer: Viewer, stream: RoomStream) -> None:
        """Note that a page was closed."""
        self._seats.went(viewer, stream)

    def view(self, viewer: Viewer) -> JSONObject:
        """Return all that this participant may know."""
        guest = _as_guest(viewer)
        with self._seats.lock:
            asked = self._questions.of(guest)
            closing = None
            if self._reception.closing is not None and guest.closing is None:
                closing = self._reception.closing.put()
            view = guest_view(self._seats, guest, asked, closing)
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
        closing = self._reception.closing
        if closing is not None and message.get("id") == closing.id:
            if guest.closing is not None:
                raise _closed()
            self._seats.keep_closing(guest, closing.taken(message.get("values")))
            return
        with self._seats.lock:  # of two taps, or two tabs, one counts
            ask = self._seats.ask_of(guest)
            if ask is None or ask.id != message.get("id"):
                raise _closed()
            try:
                self._questions.answer(guest, ask, message.get("values"))
            except ConfigError as error:
                raise _closed() from error

    def download(self, viewer: Viewer, name: str) -> Download | None:
        """Return the participant's own answers."""
        if name != "answers":
            return None
        guest = _as_guest(viewer)
        return Download(answers_csv(self._seats, guest), "text/csv", "answers.csv")


class TeacherDesk:
    """Answers for the teacher's page."""

    name = "teacher"
    path = "/teacher/"

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._seats = reception.seats
        self._key = reception.seats.keys.teacher
        self.cookie = f"teacher-{reception.seats.keys.room}"

    def about(self, token: str) -> JSONObject:
        """Return what anybody may know."""
        return _about_staff(self._reception, is_in=self.viewer(token) is not None)

    def join(self, message: JSONObject, token: str) -> tuple[str, JSONObject]:
        """Let in who has the key, or one for one use."""
        key = str(message.get("key", ""))
        if self.viewer(token) is not None:
            return token, {}
        if key in self._reception.tickets:
            self._reception.tickets.remove(key)
        elif not is_same(key, self._key):
            raise RoomError(
                403,
                "wrong_code",
                "This link was used, or is of another room; show the room again for a new one.",
            )
        return self._key, {}

    def viewer(self, token: str) -> Viewer | None:
        """Return the teacher if it is the teacher's token."""
        return self._seats.teacher if is_same(token, self._key) else None

    def viewers(self) -> Iterable[Viewer]:
        """Return the teacher."""
        return [self._seats.teacher]

    def came(self, viewer: Viewer, stream: RoomStream) -> None:
        """Note an open page."""
        viewer.add(stream)

    def went(self, viewer: Viewer, stream: RoomStream) -> None:
        """Note that a page was closed."""
        viewer.remove(stream)

    def view(self, viewer: Viewer) -> JSONObject:
        """Return who sits where and who is waited for."""
        with self._seats.lock:
            view = teacher_view(
                self._seats,
                self._reception.beside,
                is_played=self._reception.is_played(),
            )
        return {"epoch": self._reception.epoch, **view}

    def do(self, viewer: Viewer, message: JSONObject) -> None:
        """Do what a button says; the same as the room's method of that name.

        Raises:
            RoomError: there is no such button, or it makes no sense now.
        """
        button = self._reception.buttons.get(str(message.get("do")))
        if button is None:
            raise refused("There is no such button.")
        try:
            button(message)
        except ConfigError as error:
            raise refused(str(error)) from error

    def download(self, viewer: Viewer, name: str) -> Download | None:
        """Return links and tables."""
        if name == "links":
            return _json_file(self._reception.links())
        if name == "otree":
            return Download(otree_csv(self._seats), "text/csv", "otree.csv")
        if name == "people":
            return Download(people_csv(self._seats), "text/csv", "people.csv")
        return None


class ProjectorDesk:
    """Answers for the page on the wall, which has no buttons."""

    name = "projector"
    path = "/projector/"
    _shown_links = ("link", "base", "code", "qr")

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._seats = reception.seats
        self._key = reception.seats.keys.projector
        self.cookie = f"projector-{reception.seats.keys.room}"

    def about(self, token: str) -> JSONObject:
        """Return what anybody may know."""
        return _about_staff(self._reception, is_in=self.viewer(token) is not None)

    def join(self, message: JSONObject, token: str) -> tuple[str, JSONObject]:
        """Let in who has the key."""
        if not is_same(message.get("key", ""), self._key):
            raise RoomError(403, "wrong_code", "This is the projector's link of another room.")
        return self._key, {}

    def viewer(self, token: str) -> Viewer | None:
        """Return the projector if it is the projector's token."""
        return self._seats.projector if is_same(token, self._key) else None

    def viewers(self) -> Iterable[Viewer]:
        """Return the projector."""
        return [self._seats.projector]

    def came(self, viewer: Viewer, stream: RoomStream) -> None:
        """Note an open page."""
        viewer.add(stream)

    def went(self, viewer: Viewer, stream: RoomStream) -> None:
        """Note that a page was closed."""
        viewer.remove(stream)

    def view(self, viewer: Viewer) -> JSONObject:
        """Return what everybody may see."""
        with self._seats.lock:
            view = projector_view(self._seats, self._reception.beside)
        links = self._reception.links()
        return {
            "epoch": self._reception.epoch,
            "code": links["code"],
            "base": links["base"],
            **view,
        }

    def do(self, viewer: Viewer, message: JSONObject) -> None:
        """Raise RoomError."""
        raise refused("The projector's page has no buttons.")

    def download(self, viewer: Viewer, name: str) -> Download | None:
        """Return the links that a class may see."""
        if name != "links":
            return None
        links = self._reception.links()
        return _json_file({shown: links[shown] for shown in self._shown_links})


def _about_staff(reception: Reception, *, is_in: bool) -> JSONObject:
    return {
        "room": reception.seats.keys.room,
        "epoch": reception.epoch,
        "title": reception.title,
        "joined": is_in,
    }


def _as_guest(viewer: Viewer) -> Guest:
    if not isinstance(viewer, Guest):
        raise TypeError(f"{viewer!r:.60} is not a participant")
    return viewer


def _closed() -> RoomError:
    return RoomError(
        409,
        "closed",
        "This question is closed: it was answered, or something else answered for you.",
    )


def _json_file(content: JSON) -> Download:
    return Download(dumps(content), "application/json")
