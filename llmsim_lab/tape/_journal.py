"""The tape's file: one JSON object a line, and where each of them is.

A line is written whole, by one call, before what it says is handed on. Each ends with a check sum
over itself and the line of its run before it, so that a change, a line too many and a missing one
show. Whoever writes holds a lock on an empty file beside the tape, and looks before each line
whether the tape is still the file it was: another file is never written to.
"""

from __future__ import annotations

import gzip
import logging
import os
import re
import secrets
import shutil
import threading
import weakref
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, partial
from hashlib import blake2b
from importlib.metadata import version
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import filelock

from llmsim_lab._util.text import clip, log_event
from llmsim_lab.errors import TapeError

logger = logging.getLogger(__name__)

FORMAT = 3
MAX_LINE = 32 * 2**20
"""Of a line, in bytes."""
_MAX_VALUES = 2**21
"""Of a line, with its commas and brackets in texts: Python takes some hundred bytes for each."""
_MAX_UNPACKED = 2**27
MAX_TEXTS = 2**24
"""Of the texts that calls share: about so many bytes are held at once."""
MAX_KEPT = 2**26
"""Of the texts, as values of Python, that are kept of a tape, in bytes: about so much memory."""
_VALUE_WEIGHT = 48
"""Of a value in a text, in bytes."""
_HEAD = re.compile(rb'\{"tape":3,')
_SUM = re.compile(rb',"sum":"([0-9a-f]{8})"\}\n')
_SUM_LEN = len(b',"sum":"01234567"}\n')
_FACT = re.compile(
    rb'\{"run":([1-9][0-9]{0,8}),"is":"(run|set|call|outside|forget|turn|end)"'
    rb'(?:,"turn":(?:(-?[0-9]{1,9})|null))?(?:,"no":([1-9][0-9]{0,14}))?[,}]'
)
_TEXT = re.compile(rb'\{"text":"([0-9a-f]{16})","value":')
_TEXT_LEN = len(b'{"text":"0123456789abcdef","value":')
_NUMBERS = re.compile(rb'"calls":\[([0-9,]*)\]')
_PROCESS = re.compile(rb'\{"run":[0-9]{1,9},"is":"set","process":([0-9]{1,10}),')


Place = tuple[int, int]
"""Where a line is: its first byte, and how many it has with its line break."""


def weight_of(raw: bytes) -> int:
    """Return about how many bytes a text of JSON takes as values of Python."""
    # Each value takes some tens of them, as short as it may be in JSON.
    return len(raw) + _VALUE_WEIGHT * sum(map(raw.count, b",[{"))


class Fault(NamedTuple):
    """What is wrong with a line: its number, from 1, its first byte, and what, in words."""

    line: int
    start: int
    what: str


Fact = tuple[int, bytes, int | None, int]
"""What a line of a run is: of which run, its kind, its turn, and the number of a call."""


def fact_in(raw: bytes) -> Fact | None:
    """Return what a line of a run is; None of another line."""
    found = _FACT.match(raw)
    if found is None:
        return None
    return int(found[1]), found[2], int(found[3]) if found[3] else None, int(found[4] or 0)


def _sum_in(raw: bytes) -> int:
    """Return the check sum that a line ends with; -1 if with none."""
    found = _SUM.match(raw, max(0, len(raw) - _SUM_LEN))
    return int(found[1], 16) if found else -1


def _excess(raw: bytes) -> str:
    """Return what a line has too much of, in words; empty if nothing."""
    if len(raw) > _MAX_VALUES and sum(map(raw.count, b",[{")) > _MAX_VALUES:
        return f"more than {_MAX_VALUES:,} values"
    return f"more than {MAX_LINE:,} bytes" if len(raw) > MAX_LINE else ""


def text_digest(value: bytes) -> bytes:
    """Return what names a text on a tape, hexadecimal."""
    return blake2b(value, digest_size=8).hexdigest().encode()


_version = cache(version)  # which reads a file, and a study has a thousand runs


@lru_cache(maxsize=512)
def _named(text: str) -> tuple[bytes, bytes]:
    """Return a text's digest and its bytes; most calls share theirs."""
    raw = text.encode()
    return text_digest(raw), raw


class Index:
    """Where each fact is, and none of the facts.

    Attributes:
        end: the byte after the last whole line.
        head: the first line.
        tail: the end of the last one.
        lines: how many whole lines there are.
        first_fault: the first of the lines that are not as they were written.
        faulty: how many there are.
        broken: by run, the first of its lines that is faulty.
        texts: texts that are used often, by digest.
        runs: by run, the lines that say what it is, in order.
        turns: by run, its turns; written again, the last counts.
        sums: by run, the check sum of its latest line.
        outside: by run and turn, lines of what came from outside.
        places: by number of a call, its run and where it is.
        calls: by run, by turn, numbers of calls, in order.
        counts: by run, how many calls it has.
        next_call: the number of the next call.
        forgotten: numbers of calls that were made again.
        process: the latest line that says which process plays a run: the run, and its number.
    """

    def __init__(self) -> None:
        self.end = self.lines = self.faulty = 0
        self.first_fault: Fault | None = None
        self.broken: dict[int, int] = {}
        self.head = self.tail = b""
        self.texts: dict[bytes, Place] = {}
        self.runs: dict[int, list[Place]] = {}
        self.turns: dict[int, dict[int, Place]] = {}
        self.sums: dict[int, int] = {}
        self.outside: dict[tuple[int, int | None], list[Place]] = defaultdict(list)
        self.places: dict[int, tuple[int, Place]] = {}
        self.calls: dict[int, dict[int | None, list[int]]] = {}
        self.counts: Counter[int] = Counter()
        self.next_call = 1
        self.forgotten: set[int] = set()
        self.process = 0, 0

    def add(self, raw: bytes, own: int = -1, fact: Fact | None = None) -> str | None:
        """Take the next whole line in, as it says; return what is wrong with it, if anything.

        Args:
            raw: the line.
            own: its check sum, where it was written just now and is not to be checked.
            fact: what it says, where that is known.
        """
        fact, place = fact or fact_in(raw), (self.end, len(raw))
        what = self._take(raw, fact, place, own) if fact else self._take_shared(raw, place, own)
        self.head = self.head or raw
        self.lines += 1
        self.end += len(raw)
        self.tail = raw[-_SUM_LEN:]
        if what is not None:
            self.faulty += 1
            self.first_fault = self.first_fault or Fault(self.lines, place[0], what)
            if fact is not None:
                self.broken.setdefault(fact[0], self.lines)
        return what

    def _take(self, raw: bytes, fact: Fact, place: Place, own: int) -> str | None:
        run, kind, turn, number = fact
        what = None
        if own < 0:
            own, before = _sum_in(raw), self.sums.get(run)
            if (before is None) != (kind == b"run"):
                what = f"run {run} " + ("has not begun" if before is None else "begins twice")
            elif own != crc32(raw[:-_SUM_LEN], run if before is None else before):
                what = "it was changed, or a line of its run before it was added, removed or moved"
        self.sums[run] = max(own, 0)
        if kind == b"call":
            if number < self.next_call:
                return what or f"call {number} comes after one of a higher number"
            self.next_call = number + 1
            self.places[number] = run, place
            self.calls.setdefault(run, {}).setdefault(turn, []).append(number)
            self.counts[run] += 1
        elif kind == b"turn" and turn is not None:
            self.turns.setdefault(run, {})[turn] = place
        elif kind == b"outside":
            self.outside[run, turn].append(place)
        elif kind == b"forget":
            named = _NUMBERS.search(raw)
            found = re.finditer(rb"[0-9]{1,15}", named[1] if named else b"")
            # No more than there are calls; others, of which a file may hold millions, verify names.
            numbers = {int(digits[0]) for digits in islice(found, len(self.places))}
            self.forgotten |= numbers & self.places.keys()
        else:
            self.runs.setdefault(run, []).append(place)
            if process := _PROCESS.match(raw):
                self.process = run, int(process[1])
        return what

    def _take_shared(self, raw: bytes, place: Place, own: int) -> str | None:
        text = _TEXT.match(raw)
        if text is None and not (self.end == 0 and _HEAD.match(raw)):
            return "it is not a line of a tape"
        is_right = own >= 0 or _sum_in(raw) == crc32(raw[:-_SUM_LEN])
        if not is_right or (text and text_digest(raw[_TEXT_LEN:-_SUM_LEN]) != text[1]):
            return "it was changed"
        if text is not None and self.texts.setdefault(text[1], place) != place:
            return "the text stands there a second time"
        return None


_open: weakref.WeakValueDictionary[Path, Journal] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def journal_at(path: Path, *, make: bool) -> Journal:
    """Return the file at a path, the same object for all of this process that have it open.

    Args:
        path: the file.
        make: make it where there is none.

    Raises:
        TapeError: there is none, or it cannot be read, or is no tape of this format.
    """
    with _opening:
        place = Path(os.path.realpath(path))
        try:
            if place.exists() and not place.is_file():
                raise TapeError(f"{path} is not a file; a study's folder has one tape a run")
            if not (place.exists() and place.stat().st_size):
                if not make:
                    hint = "; record on a .tape, which gzip packs" if path.suffix == ".gz" else ""
                    raise TapeError(f"there is no tape at {path.absolute()}{hint}")
                _make(place)
            journal = Journal(place)
        except OSError as error:
            why = error.strerror or str(error)
            raise TapeError(f"no tape can be opened at {path.absolute()}: {why}") from error
        # What is packed is not written to, so need not be shared.
        if (known := _open.get(place)) is not None and not known.is_packed:
            with suppress(TapeError):  # another file is there by now
                known.refresh()
                return known
        _open[place] = journal
        journal.refresh()
        return journal


def _beside(path: Path, suffix: str, like: BinaryIO) -> BinaryIO:
    """Open a new file beside a tape, under the next free name: ``my.tape.cut``, ``my.tape.cut2``.

    Whatever has that name already, a link too, is somebody's and stays as it is.

    Args:
        path: the tape's.
        suffix: of the new file's name.
        like: the tape, whose readers may read the new file too.
    """
    mode = os.fstat(like.fileno()).st_mode & 0o777
    number, name = 1, f"{path}{suffix}"
    while True:
        try:
            return open(name, "xb", opener=partial(os.open, mode=mode))
        except FileExistsError:
            number += 1
            name = f"{path}{suffix}{number}"


def _head() -> bytes:
    """Return a tape's first line."""
    by = f"llmsim_lab {_version('llmsim-lab')}".encode()
    line = b'{"tape":%d,"by":"%b","id":"%b"' % (FORMAT, by, secrets.token_hex(8).encode())
    return b'%b,"sum":"%08x"}\n' % (line, crc32(line))


def _make(path: Path) -> None:
    """Write an empty tape, unless another process just did."""
    path.parent.stat()  # the lock would make the folder
    head = _head()
    try:
        with filelock.FileLock(f"{path}.lock", timeout=10), path.open("ab", buffering=0) as file:
            if not os.fstat(file.fileno()).st_size and file.write(head) != len(head):
                file.truncate(0)
                raise OSError("the disk is full")
    except filelock.Timeout:
        raise _busy(path) from None


def _busy(path: Path, run: int = 0, process: int = 0) -> TapeError:
    who = f" (run {run} was last begun by process {process})" if process else ""
    what = f"another process writes to {path}{who}"
    return TapeError(f"{what}: stop the run there, or record on another file")


def _let_go() -> None:
    """Leave the tapes of the process that this one was forked from to that one."""
    global _opening
    _opening = threading.Lock()
    for journal in list(_open.values()):
        journal.lock, journal.writers = threading.RLock(), set()
        journal._close()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class Journal:
    """A tape's file. Readers need no lock; ``writing`` takes the one that there is.

    Attributes:
        path: the file's.
        index: where what it holds is.
        recorders: those of this process, by run.
        lock: held while a line is written and taken in.
        generation: how often it was written anew, so that lines are elsewhere.
        writers: what is the file's writer, of which a process may have several at once.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.index = path, Index()
        self.lock = threading.RLock()
        self.generation = 0
        self._opened, self._pid = path.stat(), os.getpid()
        self.recorders: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._fd = -1
        self.writers: set[object] = set()
        self._unsure = False
        """True while the index may not have what is there, or half of it, as after a Ctrl-C."""
        self._sent = 0, b""
        """The latest line that was written or begun, with the place of its first byte."""
        self._guard = filelock.FileLock(f"{path}.lock", timeout=0, thread_local=False)
        self._texts: dict[tuple[object, object], Any] = {}
        self._weight = 0
        """Of all that is kept in them."""
        self._weights: dict[str, int] = {}
        self.found_out: dict[tuple[str, str], Any] = {}
        """What was found out about texts, by what and their digests."""
        self.is_packed = path.suffix == ".gz"
        self._unpacked = self._unpack() if self.is_packed else b""

    def _unpack(self) -> bytes:
        """Return the text of a packed tape."""
        try:
            with gzip.open(self.path) as packed:
                text = packed.read(_MAX_UNPACKED + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise TapeError(f"{self.path} cannot be unpacked: {error}") from error
        if len(text) > _MAX_UNPACKED:
            raise TapeError(f"{self.path} has more than 128 MiB unpacked; gunzip it to read it")
        return text

    # --- reading -----------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[BinaryIO]:
        """Open the file, for a while: one kept open could not be moved or deleted on Windows.

        Raises:
            TapeError: it cannot be read, or is another file by now.
        """
        try:
            file = BytesIO(self._unpacked) if self.is_packed else self._open_file()
        except FileNotFoundError:
            raise self._another() from None
        except OSError as error:
            raise TapeError(f"cannot read the tape {self.path}: {error.strerror}") from error
        with file:
            with self.lock:  # another thread may be writing
                if not (self.is_packed or self._is_same(file)):
                    raise self._another()
            yield file

    def _open_file(self) -> BinaryIO:
        # At once, also where a fifo stands in its place by now, which would wait for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        return os.fdopen(os.open(self.path, flags), "rb")

    def _is_same(self, file: BinaryIO) -> bool:
        """Return True if a file is the one that was opened, as far as its ends show."""
        index = self.index
        if not os.path.samestat(os.fstat(file.fileno()), self._opened):
            return False
        if file.read(len(index.head)) != index.head:
            return False
        if self._unsure:
            return True
        file.seek(index.end - len(index.tail))
        return file.read(len(index.tail)) == index.tail

    def _another(self) -> TapeError:
        why = "it was deleted, replaced, overwritten or renamed"
        what = f"{self.path} is another file by now: {why}"
        return TapeError(f"{what}. Nothing was written there; open it again, or put the first back")

    def _appended(self) -> TapeError:
        return TapeError(
            f"something else wrote to the end of {self.path} while a run was recorded there. "
            "Nothing is written behind it; the next run() or resume() moves it to a new file "
            f"beside it, {self.path.name}.cut, and continues"
        )

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the whole lines with their numbers.

        Raises:
            TapeError: one is too long.
        """
        with self._reading() as file:
            file.seek(0)
            yield from enumerate(self._rest(file, 0), 1)

    def rest(self) -> int:
        """Return how many bytes follow the last whole line."""
        with self._reading() as file:
            file.seek(self.index.end)  # whole lines may have come since
            return len(file.read().rpartition(b"\n")[2])

    def _rest(self, file: BinaryIO, line: int) -> Iterator[bytes]:
        while raw := file.readline(MAX_LINE + 1):
            line += 1
            if what := _excess(raw):
                raise TapeError(f"line {line} of {self.path} has {what}")
            if not raw.endswith(b"\n"):
                return  # it is being written, or its writer was killed
            yield raw

    def refresh(self) -> None:
        """Take in what was written since.

        Raises:
            TapeError: it is no tape of this format, or cannot be read; or this process writes it,
                and something else wrote to it meanwhile.
        """
        with self.lock, self._reading() as file:
            is_first, was_unsure = self.index.end == 0, self._unsure
            if self.writers and not is_first:
                self._check_own(file)
            index, self._unsure = Index() if was_unsure else self.index, True
            file.seek(index.end)
            if index.end == 0:
                self._check_head(file.readline(256))
                file.seek(0)
            for raw in self._rest(file, index.lines):
                is_faulty = index.add(raw) is not None
                if is_first or was_unsure or self.writers or is_faulty:
                    continue
                fact = fact_in(raw)
                recorder = self.recorders.get(fact[0]) if fact else None
                if recorder is not None:
                    recorder.gone = recorder.gone or "was continued elsewhere meanwhile"
            self.index, self._unsure = index, False
            if was_unsure and self.writers:
                self._cut_tail()  # half a line of our own

    def _check_own(self, file: BinaryIO) -> None:
        """Raise TapeError if there is more in the file than this process wrote.

        While it writes, all that comes is its own, and stays out of the index if it is not: so
        nothing is ever written behind it.
        """
        start, sent = self._sent if self._unsure else (self.index.end, b"")
        file.seek(start)
        if not sent.startswith(file.read(len(sent) + 1)):
            raise self._appended()

    def _check_head(self, raw: bytes) -> None:
        what = f"it begins with {clip(repr(raw), 60)}"
        if raw.endswith(b"\r\n"):
            what = "its lines end in \\r\\n: dos2unix, and `*.tape -text` in .gitattributes"
        elif _HEAD.match(raw) and raw.endswith(b"\n"):
            return
        elif raw.startswith(b"SQLite"):
            what = "it is a database, as earlier versions wrote, which this one does not read"
        elif raw.startswith(b'{"tape":') and not _HEAD.match(raw):
            what += "; pip install --upgrade llmsim-lab"
        raise TapeError(f"{self.path} is not a tape of format {FORMAT}: {what}")

    def read(self, places: Sequence[Place]) -> Iterator[bytes]:
        """Yield lines.

        Raises:
            TapeError: the file is another one by now.
        """
        if not places:
            return
        with self._reading() as file:
            for start, size in places:
                file.seek(start)
                raw = file.read(size)
                if len(raw) < size or not raw.endswith(b"\n"):
                    raise self._another()
                yield raw

    def text(self, digest: str, form: Callable[[str], Any] = str) -> Any:
        """Return a text that is used often, in a form: one object for all that name it.

        Raises:
            TapeError: it is not there, or is not the one of its digest.
            ValueError: from ``form``, if it has not that form.
        """
        known = self._texts.get((digest, form))
        if known is not None:
            return known
        place = self.index.texts.get(digest.encode())
        value = b"" if place is None else next(self.read([place]))[_TEXT_LEN:-_SUM_LEN]
        if text_digest(value) != digest.encode():
            raise TapeError(f"the text {digest:.16} is not on the tape {self.path}, or was changed")
        return self._keep((digest, form), value, form(value.decode()))

    def line(self, place: Place, form: Callable[[bytes], Any]) -> Any:
        """Return a line in a form, kept as texts are.

        Raises:
            TapeError: the file is another one by now.
            ValueError: from ``form``, if it has not that form.
        """
        known = self._texts.get((place, form))
        if known is not None:
            return known
        [raw] = self.read([place])
        return self._keep((place, form), raw, form(raw))

    def weight(self, digest: str) -> int:
        """Return about how many bytes a text takes as values of Python; 0 if there is none."""
        place = self.index.texts.get(digest.encode())
        if place is None:
            return 0
        if digest not in self._weights:
            [raw] = self.read([place])
            self._weights[digest] = weight_of(raw)
        return self._weights[digest]

    def _keep(self, key: tuple[object, object], raw: bytes, value: Any) -> Any:
        """Keep what was read, unless all that is kept would take too much memory."""
        weight = weight_of(raw)
        # A small one does not put out a large one, which takes long to read again.
        most = MAX_KEPT if weight > MAX_KEPT // 100 else 2 * MAX_KEPT
        if self._weight + weight > most:
            self._texts.clear()
            self._weight = 0
        self._weight += weight
        self._texts[key] = value
        return value

    # --- writing -----------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the file's writer; several of a process may be at once."""
        writer = object()
        try:
            with self.lock:
                if self._pid != os.getpid():
                    what = "was opened before this process forked; open it anew"
                    raise TapeError(f"{self.path} {what}")
                if not self.writers:
                    self._end()  # which a Ctrl-C may have met
                    self._begin()
                self.writers.add(writer)
            yield
        finally:
            try:
                self._release(writer)
            except BaseException:  # a Ctrl-C has to wait, or no other process could write
                self._release(writer)
                raise

    def _begin(self) -> None:
        try:
            self._guard.acquire()
            flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
            self._fd = os.open(self.path, flags | getattr(os, "O_BINARY", 0))
            self.refresh()
            self._cut_tail()
        except filelock.Timeout:
            self.refresh()
            raise _busy(self.path, *self.index.process) from None
        except FileNotFoundError:
            raise self._another() from None
        except OSError as error:
            raise TapeError(f"cannot write to the tape {self.path}: {error.strerror}") from error

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _end(self) -> None:
        self._close()
        self._guard.release(force=True)

    def _release(self, writer: object) -> None:
        with self.lock:
            if self._unsure and writer in self.writers:
                # While it is certain whose lines these are. What keeps it from being read is said
                # when it is needed.
                with suppress(TapeError):
                    self.refresh()
            self.writers.discard(writer)
            if not self.writers and self._pid == os.getpid():
                self._end()

    def _cut_tail(self) -> None:
        """Cut off what a kill or a power cut left at the end, and keep it beside the tape."""
        index, size = self.index, os.fstat(self._fd).st_size
        first = index.first_fault
        # Faulty to the last line, but not from the first: that would be all of it.
        if first and (first.line == 1 or index.faulty <= index.lines - first.line):
            what = f"{self.path} is damaged in line {first.line}: {first.what}"
            raise TapeError(f"{what}. Nothing is written to it; `llmsim-lab tape repair` may help")
        if size == index.end and not index.faulty:
            return
        start = first.start if first else index.end
        with self._reading() as file, _beside(self.path, ".cut", file) as beside:
            file.seek(start)
            shutil.copyfileobj(file, beside)
        os.ftruncate(self._fd, start)
        what = f"its last {size - start:,} bytes were no whole line; they are in {beside.name}"
        log_event(logger, logging.WARNING, "TAPE_TAIL_CUT", tape=self.path, found=what)
        if first:
            self._forget()

    def _forget(self) -> None:
        """Read the file from its beginning."""
        self.index = Index()
        self.generation += 1
        self._texts.clear()
        self._weight = 0
        self.found_out.clear()
        self.refresh()

    def append(self, run: int, kind: str, body: bytes, *, turn: int | None = None) -> int:
        """Write a line of a run; it is in the file when this returns.

        Args:
            run: the run.
            kind: of the line.
            body: the other members, each with a comma before it.
            turn: the turn that it belongs to.

        Returns:
            The number of a call, which other lines have none of.

        Raises:
            TapeError: the disk is full or fails, or the file is another one by now.
        """
        with self.lock:
            self._prepare_to_write()
            number = self.index.next_call
            if not 0 < run < 10**9 or abs(turn or 0) >= 10**9 or number >= 10**15:
                what = f"run {run}, turn {turn}, call {number}"
                raise TapeError(f"{what} are more than a tape can number")
            named, at = kind.encode(), b"" if turn is None else b',"turn":%d' % turn
            if kind == "call":
                at = b'%b,"no":%d' % (at or b',"turn":null', number)
            line = b'{"run":%d,"is":"%b"%b%b' % (run, named, at, body)
            if kind in ("turn", "end"):
                with self._reading():  # which raises where the path has another file by now
                    pass
            self._write(line, self.index.sums.get(run, run), (run, named, turn, number))
            if kind == "end":
                os.fsync(self._fd)  # what was written until now would survive a power cut
            return number

    def intern(self, value: str) -> bytes:
        """Write a text that is used often, if it is not there; returns its digest.

        The lock is held by who calls it.
        """
        digest, raw = _named(value)
        if digest not in self.index.texts:
            self._prepare_to_write()
        if digest not in self.index.texts:
            self._write(b'{"text":"%b","value":%b' % (digest, raw), 0)
        return digest

    def _prepare_to_write(self) -> None:
        if self._fd < 0 or self._pid != os.getpid():
            raise TapeError(f"{self.path} is not open for writing in this process; open it again")
        if self._unsure:
            self.refresh()

    def _write(self, line: bytes, before: int, fact: Fact | None = None) -> None:
        """Write a line, its end added: the check sum, which follows from the one before."""
        index, own = self.index, crc32(line, before)
        raw = line + b',"sum":"%08x"}\n' % own
        if what := _excess(raw):
            raise TapeError(f"a line of {self.path} has {what}; shorten prompt, reply or state")
        # Read to a byte after the end, where there is none unless another writer was here.
        os.lseek(self._fd, index.end - len(index.tail), os.SEEK_SET)
        end = os.read(self._fd, len(index.tail) + 1)
        if end != index.tail:
            raise self._appended() if end.startswith(index.tail) else self._another()
        self._sent = index.end, raw
        self._unsure = True
        try:
            if os.write(self._fd, raw) != len(raw):
                raise OSError("the disk is full")
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, index.end)  # gives space back, so also on a full disk
            self._unsure = False
            why = f"{error.strerror or error}. All that was answered before is on it"
            raise TapeError(f"cannot write to the tape {self.path}: {why}; make room") from error
        after = os.lseek(self._fd, 0, os.SEEK_CUR)
        if after != index.end + len(raw):
            # Something else wrote between the two: what is ours behind it is taken back.
            if os.fstat(self._fd).st_size == after:
                os.ftruncate(self._fd, after - len(raw))
            raise self._appended()
        index.add(raw, own, fact)
        self._unsure = False

    def rewrite(
        self, runs: Container[int], path: Path | None = None, *, up_to: int | None = None
    ) -> None:
        """Write these runs' lines, which keep their numbers, to a file.

        Args:
            runs: by number; of each what is before its first faulty line.
            path: the new file; in this one's place if not given.
            up_to: the last turn; all if not given.

        Raises:
            TapeError: another process or run writes to this tape, or the file cannot be written.
        """
        target = self.path if path is None else path
        aside = target.with_name(f".{secrets.token_hex(8)}.new")
        if path is None and len(self.writers) > 1:
            raise TapeError(f"a run is recorded on {self.path} now; stop it, then do this")
        try:
            with aside.open("xb") as file:
                file.writelines(self._of(runs, up_to))
                file.flush()
                os.fsync(file.fileno())
            aside.chmod(self.path.stat().st_mode | 0o200)  # a private tape's copy is private
            if path is None:
                self._close()  # Windows replaces no file that is open
            aside.replace(target)
            if path is None:
                self._opened = target.stat()
                self._forget()
        except OSError as error:
            raise TapeError(f"cannot write {target}: {error.strerror or error}") from error
        finally:
            aside.unlink(missing_ok=True)

    def _of(self, runs: Container[int], up_to: int | None) -> Iterator[bytes]:
        """Yield the lines of runs, each with the texts above it that it is the first to name."""
        index, texts, sums = self.index, dict(self.index.texts), dict[int, int]()
        yield _head() if index.first_fault and index.first_fault.line == 1 else index.head
        for number, raw in self.lines():
            if (fact := fact_in(raw)) is None:
                continue
            run, kind, turn, _ = fact
            is_late = up_to is not None and (kind == b"end" or (turn or 0) > up_to)
            if run not in runs or number >= index.broken.get(run, number + 1) or is_late:
                continue
            named = {*re.findall(rb'"([0-9a-f]{16})"', raw)} & texts.keys()
            yield from self.read(sorted(texts.pop(digest) for digest in named))
            line = raw[:-_SUM_LEN]  # the same bytes again, unless a line before it is left out
            sums[run] = crc32(line, sums.get(run, run))
            yield b'%b,"sum":"%08x"}\n' % (line, sums[run])
