"""``Room``: people join a run, or the runs of a study, from their own phones and laptops."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import quote, urlsplit

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab._util.copies import Sole
from llmsim_lab._util.files import as_path
from llmsim_lab._util.html import safe
from llmsim_lab._util.jsontext import JSON, JSONObject
from llmsim_lab._util.text import brief, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.room._asking import closing_questions
from llmsim_lab.room._faults import RoomError
from llmsim_lab.room._pages import Words, read_text, read_words, room_page
from llmsim_lab.room._seats import Phase, RoomSeats
from llmsim_lab.room._sources import RunSource, Source, StudySource
from llmsim_lab.run import Run
from llmsim_lab.run.recorded import anew
from llmsim_lab.study import Study
from llmsim_lab.types import Reply

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.room._desks import Buttons, Desk
    from llmsim_lab.room._server import RoomServer

_LOOK_S = 0.05
_EVERY_ADDRESS = ("0.0.0.0", "::")
_HERE = "127.0.0.1"
_MOST_TRIALS = 24
_USUAL_PORT = 80
_MOST_PORT = 65_535
_URL = re.compile(r"https?://([\w.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?/*", re.ASCII | re.IGNORECASE)

Fill = Literal["random", "rule", "model"]


class Room(Sole):
    """People join a run, or the runs of a study, from their own devices.

    One machine is the server; people need a browser and the link. The runs of a study get the
    participants, who are dealt at the start, full groups first; groups without people are not
    played.

    Args:
        source: a run or a study whose players are people, ``"person, else random"``.
        seats: the names of the seats for people; those of all the source's people if not given.
        fill: who answers for an empty seat. Give it with ``seats`` if the source has no people yet:
            then the room puts people into these seats.
        timeout_s: how long a question waits before the stand-in answers, in seconds; without end if
            not given.
        welcome: a text that people read and agree to before they join, or a file with one.
        labels: the labels of the people to let in, or a file with one a line. Each has a link of
            its own.
        closing: a class of replies: the questions at the end, outside the runs.
        words: the interface's sentences in another language, by name, or a JSON file of them.
        beside: a run to compare the class with in the charts at the end, such as a model's.
        url: the address that people use, if a tunnel or a proxy is in front of the room.
        host: the address to listen on; this machine alone if not given. ``"0.0.0.0"`` lets in the
            local network, where others can read along, since it is plain HTTP.
        port: the port; any free one if not given, and the same one after a restart.
        folder: the folder for the room's files; beside the tapes if not given.

    Raises:
        ConfigError: an argument is wrong, or the source has no people.

    Example:
        ``room = Room(study, timeout_s=90)``, then ``room.open(host="0.0.0.0")`` and
        ``await room.play()`` in cells of their own.
    """

    no_copy = (
        "a Room cannot be copied or pickled, since it holds its port and the seats of people; make "
        "another one of another run or study: Room(run.fork())"
    )

    def __init__(
        self,
        source: Run | Study,
        *,
        seats: Sequence[str] | None = None,
        fill: Fill | None = None,
        timeout_s: float | None = None,
        welcome: str | Path = "",
        labels: str | Path | Sequence[str] | None = None,
        closing: type[Reply] | None = None,
        words: str | Path | Words | None = None,
        beside: Run | None = None,
        url: str = "",
        host: str = _HERE,
        port: int = 0,
        folder: str | Path | None = None,
    ) -> None:
        if fill is not None:
            source = _with_people(source, seats, fill)
        kept_in = None
        if folder is not None:
            kept_in = as_path("folder", folder)
        if isinstance(source, Study):
            self._source: Source = StudySource(source, seats)
        else:
            self._source = RunSource(source, seats)
        self._words = read_words(words)
        # Made now: a field that forms cannot show is an error before anybody has joined.
        self._closing = None
        if closing is not None:
            self._closing = closing_questions(closing)
        self._welcome = _text_or_file(welcome)
        if beside is not None and not isinstance(beside, Run):
            raise ConfigError(
                f"beside={brief(beside)} is not a run; give one, as load() returns it"
            )
        self._beside = beside
        self._url = _checked_url(url)
        self._host = _checked_host(host)
        self._port = whole_number("port", port, least=0, most=_MOST_PORT)
        if timeout_s is not None:
            # Else the clock that ends questions would stop at its first look.
            timeout_s = real_number("timeout_s", timeout_s, least=0)
        self._trials = 0
        self._seats = RoomSeats(
            self._source,
            self._source.journal(kept_in),
            labels=_as_labels(labels),
            timeout_s=timeout_s,
        )
        self._tickets: set[str] = set()
        self._desks: dict[str, Desk] = {}
        self._server: RoomServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    # --- opening ----------------------------------------------------------------------------------

    def open(
        self,
        host: str | None = None,
        port: int | None = None,
    ) -> Self:
        """Let people in; a cell shows how. Called again, this shows the same room.

        Args:
            host: as for the class.
            port: as for the class.

        Raises:
            ConfigError: the port is taken, or the extra ``room`` is not installed.
        """
        if self._server is None:
            self._host = _checked_host(host or self._host)
            # After a restart, the port that people's pages know.
            wanted_port = whole_number(
                "port",
                port or self._port or self._seats.port,
                least=0,
                most=_MOST_PORT,
            )
            self._server = self._begin(wanted_port)
        return self

    def _begin(self, port: int) -> RoomServer:
        # Imported here: it takes long, and making a room does not need the extra.
        try:
            from llmsim_lab.room._server import RoomServer
        except ImportError as error:
            raise ConfigError(
                f"a room needs more than is installed ({error}): pip install 'llmsim-lab[room]'"
            ) from error
        from llmsim_lab.room._desks import GuestDesk, Reception, projector_desk, teacher_desk

        self._reception = Reception(
            seats=self._seats,
            # Another one each time: pages notice that the room was opened again, and reload.
            epoch=secrets.token_hex(4),
            welcome=self._welcome,
            closing=self._closing,
            beside=self._beside,
            base=self._opened,
            links=self._links,
        )
        teacher = teacher_desk(
            self._reception,
            is_played=lambda: self._task is not None,
            buttons=self._buttons(),
            tickets=self._tickets,
        )
        # The server keeps this same dictionary, since ``try_out`` adds desks later.
        guests = GuestDesk(self._reception)
        projector = projector_desk(self._reception)
        for desk in (guests, teacher, projector):
            self._desks[desk.path] = desk
        for trial in range(1, self._trials + 1):
            self._add_trial(trial)
        title = self._seats.source.title
        server = RoomServer(
            self._desks,
            lambda name: room_page(name, title, self._words),
            self._words,
            host=self._host,
            port=port,
            tick=self._seats.give_up_overdue,
            on_visit=self._seats.tell_staff,
        )
        shown_host = self._host
        if shown_host in _EVERY_ADDRESS:
            # An address that phones can open.
            shown_host = _own_address()
        self._base = self._url or _address(shown_host, server.port)
        # Another site may be behind requests for any other host; see _check_source.
        hosts = (_HERE, "localhost", shown_host)
        addresses = [_address(name, server.port) for name in hosts]
        for address in (*addresses, self._base):
            server.names.add(urlsplit(address).netloc.lower())
        # Behind a proxy with HTTPS, cookies may be marked as secure.
        server.is_secure = self._base.startswith("https:")
        server.start()
        try:
            # Only now is the port known, if any free one was asked for.
            self._seats.keep_port(server.port)
        except ConfigError:
            server.stop()
            raise
        self._seats.news.open(server.call)
        self._is_closed = False
        return server

    def close(self) -> None:
        """Let nobody in any more; everything stays in the files."""
        if self._server is not None:
            self._is_closed = True
            self._server.stop()
            self._server = None
            # A room that is opened again has new desks, which know the new address.
            self._desks = {}

    @property
    def link(self) -> str:
        """The link in the QR code: everybody who opens it can join."""
        return f"{self._opened()}/#{self._seats.keys.join}"

    @property
    def port(self) -> int:
        """The port that the room listens on, the same after a restart."""
        return self._seats.port

    @property
    def code(self) -> str:
        """The code for people who open the address without the QR code."""
        return self._seats.keys.code

    @property
    def teacher_link(self) -> str:
        """The teacher's page: who sits where, and the buttons. Keep it to yourself."""
        return f"{self._opened()}/teacher/#{self._seats.keys.teacher}"

    @property
    def projector_link(self) -> str:
        """The page for the wall: the code, numbers, and charts at the end."""
        return f"{self._opened()}/projector/#{self._seats.keys.projector}"

    @property
    def label_links(self) -> dict[str, str]:
        """Each label's own link, by label."""
        base = self._opened()
        links: dict[str, str] = {}
        for label in self._seats.labels or ():
            # Behind the #, which browsers do not send: no log of a proxy has the secret.
            links[label] = f"{base}/?id={quote(label)}#{self._seats.keys.of_label(label)}"
        return links

    def try_out(self, people: int = 4) -> list[str]:
        """Return links that act as several people in one browser, to try a game alone.

        Each link has a seat of its own; tabs of the room's own link are all the same person. People
        who joined by these links are marked in ``people``. For real data, make a room in another
        folder.
        """
        base = self._opened()
        if not 1 <= people <= _MOST_TRIALS:
            raise ConfigError(f"try_out({people!r}): the number of people is 1 to {_MOST_TRIALS}")
        for trial in range(self._trials + 1, people + 1):
            self._add_trial(trial)
        self._trials = max(self._trials, people)
        secret = self._seats.keys.join
        return [f"{base}/p/{trial}/#{secret}" for trial in range(1, people + 1)]

    def _add_trial(self, trial: int) -> None:
        """Add a link for one more person in the same browser."""
        from llmsim_lab.room._desks import GuestDesk

        desk = GuestDesk(self._reception, trial)
        self._desks[desk.path] = desk

    def _opened(self) -> str:
        if self._server is None:
            raise ConfigError("the room is not open; call room.open() first")
        return self._base

    def _links(self) -> JSONObject:
        import segno

        # Some cameras cannot read Micro QR codes.
        code = segno.make(self.link, error="m", micro=False)
        # One path of squares, which the page draws in its own colours.
        squares: list[str] = []
        for y, row in enumerate(code.matrix):
            squares += [f"M{x} {y}h1v1h-1z" for x, is_dark in enumerate(row) if is_dark]
        trials: list[JSON] = []
        if self._trials:
            trials += self.try_out(self._trials)
        return {
            "link": self.link,
            "base": self._base,
            "code": self.code,
            "qr": {
                "path": "".join(squares),
                "size": len(code.matrix),
            },
            "projector": self.projector_link,
            "try_out": trials,
        }

    def _repr_html_(self) -> str:
        """Show link, code and QR code, and the teacher's link with a ticket.

        The output of a cell is saved with the notebook, and passed on with it. The ticket opens the
        page only once, while this process lives; the room's own key is not shown.
        """
        import segno

        base = self._opened()
        # A new ticket each time the room is shown; older ones stay valid until they are used.
        ticket = secrets.token_urlsafe(18)
        self._tickets.add(ticket)
        code = segno.make(self.link, error="m")
        # White, with a border: a camera would not find the code in a dark notebook.
        picture = code.svg_data_uri(scale=5, light="#fff", border=3)
        join = f'<a href="{safe(self.link)}">{safe(base)}</a>'
        teacher = f'<a href="{safe(base)}/teacher/#{ticket}">Teacher\'s page</a>'
        projector = f'<a href="{safe(self.projector_link)}">Projector</a>'
        return (
            f'<img src="{picture}" alt="QR code of {safe(self.link)}">'
            f"<p>Join: {join}, code <b>{safe(self.code)}</b></p>"
            f"<p>{teacher} (opens once; show the room again for another link) · {projector}</p>"
        )

    def __repr__(self) -> str:
        if self._server is None:
            return f"Room({brief(self._seats.source.item)}), not open"
        joined = len(self._seats.guests)
        return f"Room at {self._base}, code {self.code}, {joined} of {self._seats.count} joined"

    # --- playing ----------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """The state of the round: ``lobby`` until the start, ``open``, ``over``."""
        return self._seats.phase

    @property
    def round(self) -> int:
        """The round's number, from 1."""
        return self._seats.round

    async def play(self) -> Run | Study:
        """Wait for the start, play the round, and return its run or study.

        A round that an earlier process began continues at once. Its answers are on the tapes; one
        that arrived in the moment of a crash may be asked for again.
        """
        if self._task is not None:
            raise ConfigError("this room is being played already, by another cell or thread")
        seats = self._seats
        self._task = asyncio.current_task()
        seats.tell_all()
        source = seats.source
        try:
            # Polled, since an event of asyncio belongs to one loop, and the start may come from a
            # cell or from the server's thread.
            while seats.phase == "lobby" and not self._is_closed:  # noqa: ASYNC110 - started from any thread
                await asyncio.sleep(_LOOK_S)
            source = seats.source
            await self._play_round()
        finally:
            self._task = None
            seats.tell_all()
        return source.item

    async def _play_round(self) -> None:
        seats = self._seats
        number = seats.round
        # Groups without people are not played: nothing would be learned from them.
        numbers = [group.number for group in seats.playing if not group.is_over]
        playing = asyncio.ensure_future(seats.source.play(numbers))
        try:
            # Another round may have begun since the last look.
            while not playing.done() and self._is_at(number):
                await asyncio.wait([playing], timeout=_LOOK_S)
        finally:
            # Ended by the teacher, or with the cell; the answers are on the tapes either way.
            if not playing.done():
                playing.cancel()
                await asyncio.wait([playing])
        if not playing.cancelled():
            error = playing.exception()
            # Shown on the teacher's page too, since nobody may be looking at the cell.
            if error is not None:
                seats.fault = str(error)
                raise error
        elif self._is_closed:
            raise ConfigError("the room was closed while it was played; open it, and play again")
        if self._is_at(number):
            seats.end()

    def _is_at(self, number: int) -> bool:
        """Return True while a round is played and people can answer."""
        seats = self._seats
        is_open = not self._is_closed and seats.phase != "over"
        return is_open and seats.round == number

    def _buttons(self) -> Buttons:
        """Return the buttons of the teacher's page; each calls a method of the room."""

        # A page may send anything, so each argument is made what the method takes.
        def start(message: JSONObject) -> None:
            self.start(stepwise=message.get("stepwise") is True)

        def fill(message: JSONObject) -> None:
            self.fill(str(message.get("guest")))

        def give_back(message: JSONObject) -> None:
            self.give_back(str(message.get("guest")))

        def show(message: JSONObject) -> None:
            self.show(message.get("on") is True)

        return {
            "start": start,
            "pause": lambda message: self.pause(),
            "next_turn": lambda message: self.next_turn(),
            "resume": lambda message: self.resume(),
            "fill": fill,
            "give_back": give_back,
            "show": show,
            "another_round": lambda message: self.another_round(),
            "end": lambda message: self.end(),
        }

    def start(self, *, stepwise: bool = False) -> None:
        """Deal the seats and begin; ``stepwise`` stops after each turn until ``next_turn()``."""
        self._press(lambda: self._seats.start(is_stepwise=stepwise))

    def pause(self) -> None:
        """Let the turn under way end, and hold the next one."""
        self._press(self._seats.pause)

    def next_turn(self) -> None:
        """Let one more turn be played, and hold the one after it."""
        self._press(self._seats.next_turn)

    def resume(self) -> None:
        """Let turns follow each other without a pause."""
        self._press(self._seats.resume)

    def fill(self, participant: str) -> None:
        """Let the stand-in answer for a participant, until ``give_back`` or the person returns."""
        self._press(lambda: self._set_away(participant, is_away=True))

    def give_back(self, participant: str) -> None:
        """Give a participant the seat back."""
        self._press(lambda: self._set_away(participant, is_away=False))

    def _set_away(self, participant: str, *, is_away: bool) -> None:
        guest = self._seats.named(participant)
        self._seats.set_away(guest, is_away=is_away)

    def show(self, on: bool = True) -> None:
        """Show the class's means on the projector before the end, or stop showing them."""
        self._seats.show(is_shown=on)

    def another_round(self) -> None:
        """Begin a round with new groups, after the end of this one; ``play()`` plays it."""
        self._press(self._seats.another_round)

    def end(self) -> None:
        """End the round where it is."""
        self._press(self._seats.end)

    def _press(self, button: Callable[[], object]) -> None:
        # A page shows a RoomError as it is; code has one kind of error for what it may not do.
        try:
            button()
        except RoomError as fault:
            raise ConfigError(fault.sentence) from fault

    # --- what came of it --------------------------------------------------------------------------

    @property
    def people(self) -> pd.DataFrame:
        """A row for each participant.

        Columns: ``participant``; ``label``; ``name``; ``round``; ``run``, ``arm`` and ``seat`` of
        this round; ``answered`` and ``filled``, decisions; ``payoff``, if the world has
        ``payoff(player)``; ``code``, shown at the end; ``trial``, the number of the link of
        ``try_out``, else 0; the closing questions' fields.
        """
        import pandas as pd

        from llmsim_lab.room._tables import people_rows

        return pd.DataFrame(people_rows(self._seats))

    def to_otree(self, path: str | Path) -> Path:
        """Write this round as CSV with the columns of an oTree app's export; return its path.

        A row is a participant in a turn: ``participant.code``, ``participant.label``,
        ``player.id_in_group``, ``player.payoff``, ``player.FIELD``, ``group.id_in_subsession``,
        ``subsession.round_number``, ``session.code``.

        Args:
            path: the file; an existing one is replaced.

        Raises:
            ConfigError: the file cannot be written, or is a tape.
        """
        from llmsim_lab.room._tables import write_otree

        return write_otree(self._seats, as_path("path", path))


def _with_people(
    source: Run | Study,
    seats: Sequence[str] | None,
    fill: Fill,
) -> Run | Study:
    """Return a run or study whose seats are people's, with what fills them."""
    if not seats:
        raise ConfigError(
            f"Room(fill={fill!r}) says who fills in, and seats= is missing: which seats people "
            "take, as in Room(run, seats=['Ann', 'Bob'], fill='random')"
        )
    if isinstance(seats, str):
        raise ConfigError(f"seats={seats!r} is one text; give a list: seats=[{seats!r}]")
    # Words and not Person objects: they are on the tape, so that a replay needs nothing else.
    players = dict.fromkeys(seats, f"person, else {fill}")
    if isinstance(source, Study):
        return source.replace(players=players, tape=source.tape)
    if source.turn_number:
        raise ConfigError(
            f"the run is at turn {source.turn_number}, and its players are what they are; make a "
            f"new one: {type(source).__name__}(players={brief(players, 200)})"
        )
    return anew(
        source,
        source.config,
        source.llm_client,
        players,
    )


def _as_labels(labels: str | Path | Sequence[str] | None) -> list[str] | None:
    """Return labels, each once.

    Raises:
        ConfigError: the file cannot be read, or a label is there twice.
    """
    if labels is None:
        return None
    if isinstance(labels, str | Path):
        labels = read_text("labels", labels).splitlines()
    # A link holds UTF-8, which has no half characters.
    stripped = [whole_text(str(label)).strip() for label in labels]
    # A list may end in empty lines.
    names = [label for label in stripped if label]
    for label, count in Counter(names).items():
        if count > 1:
            raise ConfigError(f"labels= has {brief(label, 80)} twice; each participant needs one")
    return names


def _text_or_file(text: str | Path) -> str:
    """Return a text, or what the file of that name says."""
    if not isinstance(text, Path):
        text = str(text)
        # A welcome of several lines is a text, whatever its last word looks like.
        is_one_line = "\n" not in text
        is_file_name = is_one_line and text.endswith((".md", ".txt"))
        if not is_file_name:
            return text
    return read_text("welcome", text)


def _checked_url(url: str) -> str:
    if not url:
        return ""
    # Without a path: cookies and addresses of the pages begin at the root.
    if not (isinstance(url, str) and _URL.fullmatch(url)):
        raise ConfigError(
            f"url={brief(url)} is not an address of a room; write it without a path: "
            "url='https://class.example.org'"
        )
    return url.rstrip("/")


def _checked_host(host: object) -> str:
    """Return an address to listen on; whether it is this machine's is seen when it is listened on.

    Raises:
        ConfigError: no host has such a name.
    """
    if isinstance(host, str) and re.fullmatch(r"[\w.:%-]{1,253}", host):
        return host
    raise ConfigError(
        f"host={brief(host)} is not an address to listen on; write 127.0.0.1 for this machine "
        "alone, or 0.0.0.0 for its network"
    )


def _address(host: str, port: int) -> str:
    """Return an address as browsers write it, which leave out the usual port."""
    name = host
    if ":" in host:  # of IP version 6
        name = f"[{host}]"
    if port == _USUAL_PORT:
        return f"http://{name}"
    return f"http://{name}:{port}"


def _own_address() -> str:
    """Return this machine's address in its network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the system only chooses the way. The address is kept for documents.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return _HERE
        return str(probe.getsockname()[0])
