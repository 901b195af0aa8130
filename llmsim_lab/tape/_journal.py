"""The tape's file: one JSON object a line, and where each of them is.

Each rule below is a trap that a trial fell into. ``Rule 1`` and so on name them at their lines,
here and in the tape's other modules.

1. A line is written whole, by one call, before what it says is handed on. Then the position is
   compared, so that lines of another writer are noticed; and the file is compared with the one that
   was opened: another file is never written to.
2. A short write, as on a full disk, is cut back to the last whole line at once. On opening, a bad
   end is cut and kept beside the tape. A bad line with good ones after it is never cut: nothing is
   written then, and ``repair`` says what it would keep.
3. Which of equal requests it was (``nth``) stands in its line, and a second attempt takes its first
   one's. Equality is by parts; settings are compared as text, never by the file's bytes.
4. The lock, on an empty file beside the tape, is held while a run plays or an operation writes. A
   forked child neither writes nor keeps it. A process has one ``Journal`` for a path.
5. Lines are read with a limit, as bytes that end in a line feed, and as strict JSON: what is not as
   it should be is a fault of its line, and the faults that are listed are bounded.
6. Opening is linear in the file, so a study is a folder with one file a run.
7. A packed tape, ``.tape.gz``, is only read.

Each line ends with a check sum over itself and the line of its run before it, so that a change, a
line too many and a missing one show.
"""

from __future__ import annotations

import gzip
import logging
import math
import os
import re
import secrets
import shutil
import sys
import threading
import weakref
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, partial
from hashlib import blake2b
from importlib.metadata import version
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeAlias, TypeVar
from zlib import crc32

import filelock

from llmsim_lab._util.files import shown_path
from llmsim_lab._util.text import clip, log_event
from llmsim_lab.errors import TapeError

logger = logging.getLogger(__name__)

T = TypeVar("T")

FORMAT = 3
MAX_LINE = 32 * 2**20
"""Of a line, in bytes."""
_MAX_VALUES = 2**21
"""Of a line, with its commas and brackets in texts: Python takes some hundred bytes for each."""
_MAX_UNPACKED = 2**27
"""Of a packed tape, in bytes: a few thousand could be made to unpack to gigabytes."""
MAX_TEXTS = 2**24
"""Of the texts that calls share: about so many bytes are held at once."""
MAX_KEPT = 2**26
"""Of the texts, as values of Python, that are kept of a tape, in bytes: about so much memory."""
_PIECE = 2**20
"""Of lines that are read at once, in bytes."""
_VALUE_WEIGHT = 48
"""Of a value in a text, in bytes."""
_MOST_FAULTY = 10**6
"""Lines that are not as they were written: after so many a file is no tape."""
_HEAD = re.compile(rb'\{"tape":3,')
_SUM = re.compile(rb',"sum":"([0-9a-f]{8})"\}\n')
_SUM_LEN = len(b',"sum":"01234567"}\n')
_FACT = re.compile(
    rb'\{"run":([1-9][0-9]{0,8}),"is":"(run|set|call|outside|forget|turn|end)"'
    rb'(?:,"turn":(?:(-?[0-9]{1,9})|null))?(?:,"no":([1-9][0-9]{0,14}))?[,}]'
)
_TEXT = re.compile(rb'\{"text":"([0-9a-f]{16})","value":')
_TEXT_LEN = len(b'{"text":"0123456789abcdef","value":')
_SHARED = re.compile(rb'\{"(tape|text)":')
"""How a line begins that belongs to no run."""
_DIGEST = re.compile(rb'"([0-9a-f]{16})"')
_NUMBERS = re.compile(rb'"calls":\[([0-9,]*)\]')
_ESCAPED_EMOJI = re.compile(rb"\\u[dD][89abAB]")
_PROCESS = re.compile(rb'\{"run":[0-9]{1,9},"is":"set","process":([0-9]{1,10}),')


Place: TypeAlias = tuple[int, int]
"""Where a line is: its first byte, and how many it has with its line break.

A plain tuple, and so is a ``Fact``: one is made for each line when a file is opened."""


def weight_of(raw: bytes) -> int:
    """Return about how many bytes a text of JSON takes as values of Python."""
    letters = len(raw)
    if not raw.isascii():
        # Two or four bytes for each letter of a text in which one needs them.
        letters = sys.getsizeof(raw.decode(errors="replace"))
    elif _ESCAPED_EMOJI.search(raw):
        letters *= 4
    # Each value takes some tens of them, as short as it may be in JSON.
    return letters + _VALUE_WEIGHT * sum(map(raw.count, b",[{"))


class Fault(NamedTuple):
    """What is wrong with a line.

    Attributes:
        line: its number, from 1.
        start: its first byte.
        words: what is wrong.
    """

    line: int
    start: int
    words: str


Fact: TypeAlias = tuple[int, bytes, int | None, int]
"""What a line of a run is: of which run, its kind, its turn, and the number of a call."""


def fact_in(raw: bytes) -> Fact | None:
    """Return what a line of a run is; None of another line."""
    match = _FACT.match(raw)
    if match is None:
        return None
    run, kind, turn, number = match.groups()
    return int(run), kind, None if turn is None else int(turn), int(number or 0)


def kind_in(raw: bytes) -> str:
    """Return the kind of a line; empty if it is not a line of a tape."""
    match = _FACT.match(raw)
    if match is not None:
        return match[2].decode()
    match = _SHARED.match(raw)
    return "" if match is None else match[1].decode()


def digest_in(raw: bytes) -> bytes:
    """Return the digest that the line of a text has; empty if there is none."""
    match = _TEXT.match(raw)
    return b"" if match is None else match[1]


def _sum_in(raw: bytes) -> int | None:
    """Return the check sum that a line ends with."""
    # Only at the end: a prompt may quote a line of a tape.
    match = _SUM.match(raw, max(0, len(raw) - _SUM_LEN))
    return None if match is None else int(match[1], 16)


def _with_sum(line: bytes, check_sum: int) -> bytes:
    """Return a line whole: with its check sum, its bracket and its line break."""
    return b'%b,"sum":"%08x"}\n' % (line, check_sum)


def _excess(raw: bytes) -> str:
    """Return what a line has too much of, in words; empty if nothing."""
    if len(raw) > _MAX_VALUES and sum(map(raw.count, b",[{")) > _MAX_VALUES:
        return f"more than {_MAX_VALUES:,} values"
    if len(raw) > MAX_LINE:
        return f"more than {MAX_LINE:,} bytes"
    return ""


def text_digest(value: bytes) -> bytes:
    """Return what names a text on a tape, hexadecimal."""
    # 64 bits: that two of a million texts share a digest has a chance of 3 in 100 million.
    return blake2b(value, digest_size=8).hexdigest().encode()


_version = cache(version)  # which reads a file, and a study has a thousand runs


@lru_cache(maxsize=512)
def _encoded(text: str) -> tuple[bytes, bytes]:
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
        runs: by run, the lines that say what it is: of each kind the latest, which replaces those
            before it, since a file may have a million of them.
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
        self.end = 0
        self.lines = 0
        self.faulty = 0
        self.first_fault: Fault | None = None
        self.broken: dict[int, int] = {}
        self.head = b""
        self.tail = b""
        self.texts: dict[bytes, Place] = {}
        self.runs: dict[int, dict[bytes, Place]] = {}
        self.turns: dict[int, dict[int, Place]] = {}
        self.sums: dict[int, int] = {}
        self.outside: dict[tuple[int, int | None], list[Place]] = defaultdict(list)
        self.places: dict[int, tuple[int, Place]] = {}
        self.calls: dict[int, dict[int | None, list[int]]] = {}
        self.counts: Counter[int] = Counter()
        self.next_call = 1
        self.forgotten: set[int] = set()
        self.process = (0, 0)

    def add(
        self,
        raw: bytes,
        written_sum: int | None = None,
        fact: Fact | None = None,
    ) -> str | None:
        """Take the next whole line in, as it says; return what is wrong with it, if anything.

        Args:
            raw: the line.
            written_sum: its check sum, where it was written just now and is not to be checked.
            fact: what it says, where that is known.
        """
        start = self.end
        place = (start, len(raw))
        # Known of what this process writes; else by a pattern, which is faster than parsing JSON.
        fact = fact or fact_in(raw)
        if fact is None:
            fault = self._take_shared(raw, place, written_sum)
        else:
            fault = self._take(
                raw,
                fact,
                place,
                written_sum,
            )
        # A faulty line counts too: what follows it has to have the right place and number.
        self.head = self.head or raw
        self.lines += 1
        self.end += len(raw)
        self.tail = raw[-_SUM_LEN:]
        if fault is not None:
            self.faulty += 1
            # Rule 5: a file may have millions of faults; they are counted, and the first is kept.
            self.first_fault = self.first_fault or Fault(self.lines, start, fault)
            if fact is not None:
                run, *_ = fact
                self.broken.setdefault(run, self.lines)
        return fault

    def _take(
        self,
        raw: bytes,
        fact: Fact,
        place: Place,
        written_sum: int | None,
    ) -> str | None:
        """Take in a line of a run."""
        run, kind, turn, number = fact
        fault = None
        check_sum = written_sum
        if check_sum is None:
            check_sum = _sum_in(raw)
            fault = self._fault_in_order(
                raw,
                run,
                kind,
                check_sum,
            )
        # Of a faulty line too: the next one follows from what stands there.
        self.sums[run] = check_sum or 0
        if kind == b"call":
            # Numbers rise, so that none names two calls, and a line that was moved shows.
            if number < self.next_call:
                return fault or f"call {number} comes after one of a higher number"
            self.next_call = number + 1
            self.places[number] = (run, place)
            self.calls.setdefault(run, {}).setdefault(turn, []).append(number)
            self.counts[run] += 1
        elif kind == b"turn" and turn is not None:
            self.turns.setdefault(run, {})[turn] = place
        elif kind == b"outside":
            self.outside[run, turn].append(place)
        elif kind == b"forget":
            self.forgotten |= self._calls_named_in(raw)
        else:
            process = _PROCESS.match(raw)
            if process is not None:
                self.process = (run, int(process[1]))
                kind = b"process"  # it says nothing of the manifest, as the other lines of its kind
            self.runs.setdefault(run, {})[kind] = place
        return fault

    def _fault_in_order(
        self,
        raw: bytes,
        run: int,
        kind: bytes,
        check_sum: int | None,
    ) -> str | None:
        """Return what is wrong with a line as the next one of its run, if anything."""
        before = self.sums.get(run)
        if before is None and kind != b"run":
            return f"run {run} has not begun"
        if before is not None and kind == b"run":
            return f"run {run} begins twice"
        # The first line of a run has none before it: the run's number stands for it.
        start = run if before is None else before
        if check_sum != crc32(raw[:-_SUM_LEN], start):
            return "it was changed, or a line of its run before it was added, removed or moved"
        return None

    def _calls_named_in(self, raw: bytes) -> set[int]:
        """Return the calls that a line names; others, which are not there, verify names."""
        match = _NUMBERS.search(raw)
        if match is None:
            return set()
        matches = re.finditer(rb"[0-9]{1,15}", match[1])
        # No more than there are calls: a file may hold millions of numbers.
        numbers = {int(digits[0]) for digits in islice(matches, len(self.places))}
        return numbers & self.places.keys()

    def _take_shared(
        self,
        raw: bytes,
        place: Place,
        written_sum: int | None,
    ) -> str | None:
        """Take in a line that belongs to no run: the first one, or a text."""
        digest = digest_in(raw)
        # Of lines without a run only the first one is no text.
        is_head = self.end == 0 and _HEAD.match(raw) is not None
        if not digest and not is_head:
            return "it is not a line of a tape"
        if written_sum is None and _sum_in(raw) != crc32(raw[:-_SUM_LEN]):
            return "it was changed"
        if not digest:
            return None
        # A changed text with a recomputed sum still has its old name, by which calls find it.
        if text_digest(raw[_TEXT_LEN:-_SUM_LEN]) != digest:
            return "it was changed"
        if self.texts.setdefault(digest, place) != place:
            return "the text stands there a second time"
        return None


# At once, also where a fifo stands in a tape's place by now, which would wait for a writer. Binary
# on Windows, which else ends a file at a Ctrl-Z.
_OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

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
        try:
            # Rule 4: one object for a file, whatever link leads to it.
            place = Path(os.path.realpath(path))
            if place.exists() and not place.is_file():
                raise TapeError(f"{path} is not a file; a study's folder has one tape a run")
            # An empty file is what is left where a disk was full while a tape was begun.
            is_empty = not place.exists() or not place.stat().st_size
            if is_empty:
                if not make:
                    raise _no_tape(path)
                _make(place)
            # Also where another object has it open: this one checks that the file can be read.
            journal = Journal(place)
        except OSError as error:
            raise TapeError(
                f"no tape can be opened at {shown_path(path)}: {error.strerror or error}"
            ) from error
        shared = _open.get(place)
        # What is packed is not written to, so need not be shared.
        if shared is not None and not shared.is_packed:
            with suppress(TapeError):  # another file is there by now
                shared.refresh()
                return shared
        _open[place] = journal
        journal.refresh()
        return journal


def _no_tape(path: Path) -> TapeError:
    if path.suffix == ".gz":
        return TapeError(
            f"there is no tape at {shown_path(path)}; record on a .tape, which gzip packs"
        )
    return TapeError(f"there is no tape at {shown_path(path)}")


def _beside(
    path: Path,
    suffix: str,
    like: BinaryIO,
) -> BinaryIO:
    """Open a new file beside a tape, under the next free name: ``my.tape.cut``, ``my.tape.cut2``.

    A file that has that name already, or a link, may be a user's and stays as it is.

    Args:
        path: the tape's.
        suffix: of the new file's name.
        like: the tape, whose readers may read the new file too.
    """
    # What is private stays so.
    mode = os.fstat(like.fileno()).st_mode & 0o777
    opener = partial(os.open, mode=mode)
    name = f"{path}{suffix}"
    number = 1
    while True:
        try:
            return open(name, "xb", opener=opener)
        except FileExistsError:
            number += 1
            name = f"{path}{suffix}{number}"


def _give_name(aside: Path, target: Path) -> None:
    """Give a file its name, in one step: another process may have made one there meanwhile.

    Raises:
        FileExistsError: there is one.
        OSError: the disk fails.
    """
    try:
        os.link(aside, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        target.touch(exist_ok=False)
        aside.replace(target)


def _new_head() -> bytes:
    """Return a new tape's first line."""
    package = f"llmsim_lab {_version('llmsim-lab')}".encode()
    identifier = secrets.token_hex(8).encode()
    line = b'{"tape":%d,"by":"%b","id":"%b"' % (FORMAT, package, identifier)
    return _with_sum(line, crc32(line))


def _make(path: Path) -> None:
    """Write an empty tape, unless another process just did."""
    path.parent.stat()  # the lock would make the folder
    head = _new_head()
    try:
        # Waited for: who else makes it is done in a moment.
        lock = filelock.FileLock(f"{path}.lock", timeout=10)
        with lock, path.open("ab", buffering=0) as file:
            if os.fstat(file.fileno()).st_size:
                return
            # A short write: half a first line would make a file that nothing opens.
            if file.write(head) != len(head):
                file.truncate(0)
                raise OSError("the disk is full")
    except filelock.Timeout:
        raise _busy(path) from None


def _busy(
    path: Path,
    run: int = 0,
    process: int = 0,
) -> TapeError:
    """Return the error where another process writes; it names the run that this one last began."""
    if process:
        return TapeError(
            f"another process writes to {path} (run {run} was last begun by process {process}): "
            "stop the run there, or record on another file"
        )
    return TapeError(
        f"another process writes to {path}: stop the run there, or record on another file"
    )


def _let_go() -> None:
    """Leave the tapes of the process that this one was forked from to that one (rule 4)."""
    global _opening
    _opening = threading.Lock()  # a thread that is not here may hold the other
    for journal in list(_open.values()):
        journal.let_go()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class RunWriter(Protocol):
    """What records a run, as its file knows it.

    Attributes:
        gone: why it writes no more, in words; empty while it may.
    """

    gone: str

    def close(self) -> None:
        """Let another writer have the run."""
        ...


class Journal:
    """A tape's file. Readers need no lock; ``writing`` takes the one that there is.

    Attributes:
        path: the file's.
        index: where what it holds is.
        recorders: those of this process, by run.
        lock: held while a line is written and taken in.
        generation: how often it was written anew, so that lines are elsewhere.
        writers: what is the file's writer, of which a process may have several at once.
        derived: what follows from texts, by a few words and their digests.
        is_packed: whether it is a ``.gz``, which is only read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = Index()
        self.lock = threading.RLock()
        self.generation = 0
        self.recorders: weakref.WeakValueDictionary[int, RunWriter] = weakref.WeakValueDictionary()
        self.writers: set[object] = set()
        self.derived: dict[tuple[str, str], Any] = {}
        self.is_packed = path.suffix == ".gz"
        self._opened = path.stat()
        self._pid = os.getpid()
        self._fd = -1
        self._unsure = False
        """True while the index may not have what is there, or half of it, as after a Ctrl-C."""
        self._sent = (0, b"")
        """The latest line that was written or begun, with the place of its first byte."""
        self._guard = filelock.FileLock(
            f"{path}.lock",
            timeout=0,
            thread_local=False,
        )
        self._texts: dict[tuple[object, object], Any] = {}
        """What was read, by its digest or place, and by its form."""
        self._weight = 0
        """Of all that is kept in them."""
        self._in_use: weakref.WeakValueDictionary[tuple[object, object], Any] = (
            weakref.WeakValueDictionary()
        )
        """Those that requests still hold: read once more, they would take memory twice."""
        self._weights: dict[str, int] = {}
        self._unpacked = b""
        if self.is_packed:
            self._unpacked = self._unpack()

    def _unpack(self) -> bytes:
        """Return the text of a packed tape (rule 7)."""
        try:
            with gzip.open(self.path) as packed:
                text = packed.read(_MAX_UNPACKED + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise TapeError(f"{self.path} cannot be unpacked: {error}") from error
        if len(text) > _MAX_UNPACKED:
            raise TapeError(f"{self.path} has more than 128 MiB unpacked; gunzip it to read it")
        return text

    def let_go(self) -> None:
        """Close the file in a process that was forked from the one that opened it."""
        self.lock = threading.RLock()
        self.writers = set()
        with suppress(TapeError):
            self._close()

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
            raise self._is_another() from None
        except OSError as error:
            raise self._failed("read", error) from error
        try:
            with file:
                with self.lock:  # another thread may be writing
                    if not (self.is_packed or self._is_same(file)):
                        raise self._is_another()
                yield file
        except OSError as error:  # a disk, or a file system of the network, fails at any time
            raise self._failed("read", error) from error

    def _failed(self, verb: str, error: OSError) -> TapeError:
        return TapeError(f"cannot {verb} the tape {self.path}: {error.strerror or error}")

    def _open_file(self) -> BinaryIO:
        number = os.open(self.path, os.O_RDONLY | _OPEN_FLAGS)
        try:
            return os.fdopen(number, "rb")
        except OSError:  # a folder can be opened, but is no file
            os.close(number)
            raise

    def _is_same(self, file: BinaryIO) -> bool:
        """Return True if a file is the one that was opened, as far as its ends show (rule 1)."""
        index = self.index
        # Device and inode alone would not do: another file may get those of a deleted one, and an
        # editor overwrites a file in place.
        if not os.path.samestat(os.fstat(file.fileno()), self._opened):
            return False
        if file.read(len(index.head)) != index.head:
            return False
        if self._unsure:
            return True
        file.seek(index.end - len(index.tail))
        return file.read(len(index.tail)) == index.tail

    def _is_another(self) -> TapeError:
        return TapeError(
            f"{self.path} is another file by now: it was deleted, replaced, overwritten or "
            "renamed. Nothing was written there; open it again, or put the first back"
        )

    def _is_appended_to(self) -> TapeError:
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
        generation = self.generation
        start = 0
        number = 0
        while True:
            piece: list[bytes] = []
            # Open only while it is read: an error of who uses a line keeps this generator.
            with self._reading_of(generation) as file:
                file.seek(start)
                end = start + _PIECE
                for raw in self._lines_from(file, number):
                    piece.append(raw)
                    start += len(raw)
                    if start >= end:
                        break
            if not piece:
                return
            for raw in piece:
                number += 1
                yield number, raw

    @contextmanager
    def _reading_of(self, generation: int) -> Iterator[BinaryIO]:
        """Open the file, as ``_reading`` does, unless lines are elsewhere by now."""
        with self._reading() as file:
            if self.generation != generation:
                raise self._is_another()
            yield file

    def rest(self) -> int:
        """Return how many bytes follow the last whole line."""
        with self._reading() as file:
            file.seek(self.index.end)  # whole lines may have come since
            return len(file.read().rpartition(b"\n")[2])

    def _lines_from(self, file: BinaryIO, line: int) -> Iterator[bytes]:
        """Yield the whole lines from where a file is read, after so many others."""
        # Rule 5: a line of gigabytes is not read; and str.splitlines would cut at U+2028 as well.
        while raw := file.readline(MAX_LINE + 1):
            line += 1
            excess = _excess(raw)
            if excess:
                raise TapeError(f"line {line} of {self.path} has {excess}")
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
            is_first = self.index.end == 0
            was_unsure = self._unsure
            # Before anything is taken in: what is another's must not get into the index.
            if self.writers and not is_first:
                self._check_own(file)
            index = Index() if was_unsure else self.index
            self._unsure = True  # a Ctrl-C may leave half of what follows in the index
            file.seek(index.end)
            if index.end == 0:
                self._check_head(file.readline(256))
                file.seek(0)
            # Lines that this process did not write, of runs that it knows.
            may_be_of_others = not (is_first or was_unsure or self.writers)
            for raw in self._lines_from(file, index.lines):
                fault = index.add(raw)
                if fault is not None and index.faulty > _MOST_FAULTY:
                    raise TapeError(
                        f"{self.path} has more than {_MOST_FAULTY:,} lines that are not as they "
                        "were written: it is no tape, or was overwritten by something else"
                    )
                if may_be_of_others and fault is None:
                    self._end_recorder_of(raw)
            self.index = index
            self._unsure = False
            if was_unsure and self.writers:
                self._cut_tail()  # half a line of our own

    def _end_recorder_of(self, raw: bytes) -> None:
        """Let the recorder of a line's run write no more: another process has continued it."""
        fact = fact_in(raw)
        if fact is None:
            return
        run, *_ = fact
        recorder = self.recorders.get(run)
        if recorder is not None:
            recorder.gone = recorder.gone or "was continued elsewhere meanwhile"

    def _check_own(self, file: BinaryIO) -> None:
        """Raise TapeError if there is more in the file than this process wrote (rule 1).

        While it writes, all that comes is its own, and stays out of the index if it is not: so
        nothing is ever written behind it.
        """
        start = self.index.end
        sent = b""
        if self._unsure:
            start, sent = self._sent
        file.seek(start)
        if not sent.startswith(file.read(len(sent) + 1)):
            raise self._is_appended_to()

    def _check_head(self, raw: bytes) -> None:
        """Raise TapeError if a file does not begin as a tape of this format does."""
        is_head = _HEAD.match(raw) is not None
        name = f"{self.path} is not a tape of format {FORMAT}"
        if raw.endswith(b"\r\n"):
            raise TapeError(
                f"{name}: its lines end in \\r\\n: dos2unix, and `*.tape -text` in .gitattributes"
            )
        if is_head and raw.endswith(b"\n"):
            return
        if raw.startswith(b"SQLite"):
            raise TapeError(
                f"{name}: it is a database, as earlier versions wrote, which this one does not read"
            )
        beginning = clip(repr(raw), 60)
        if raw.startswith(b'{"tape":') and not is_head:
            raise TapeError(f"{name}: it begins with {beginning}; pip install --upgrade llmsim-lab")
        raise TapeError(f"{name}: it begins with {beginning}")

    def read(self, places: Sequence[Place]) -> Iterator[bytes]:
        """Yield lines.

        Raises:
            TapeError: the file is another one by now.
        """
        generation = self.generation
        place = 0
        while place < len(places):
            piece: list[bytes] = []
            room = _PIECE
            with self._reading_of(generation) as file:
                while place < len(places) and room > 0:
                    start, size = places[place]
                    file.seek(start)
                    raw = file.read(size)
                    if len(raw) < size or not raw.endswith(b"\n"):
                        raise self._is_another()
                    piece.append(raw)
                    place += 1
                    room -= size
            yield from piece

    def text(
        self,
        digest: str,
        form: Callable[[str], T],
    ) -> T:
        """Return a text that is used often, in a form: one object for all that name it.

        Raises:
            TapeError: it is not there, or is not the one of its digest.
            ValueError: from ``form``, if it has not that form.
        """
        kept: T | None = self._texts.get((digest, form)) or self._in_use.get((digest, form))
        if kept is not None:
            return kept
        value = b""
        place = self.index.texts.get(digest.encode())
        if place is not None:
            [raw] = self.read([place])
            value = raw[_TEXT_LEN:-_SUM_LEN]
        # Compared each time it is read: it may have been changed in place since.
        if text_digest(value) != digest.encode():
            raise TapeError(f"the text {digest:.16} is not on the tape {self.path}, or was changed")
        formed = form(value.decode())
        with suppress(TypeError):  # of a plain text or dict nothing tells who holds it
            self._in_use[digest, form] = formed
        return self._keep(
            (digest, form),
            value,
            formed,
        )

    def line(
        self,
        place: Place,
        form: Callable[[bytes], T],
    ) -> T:
        """Return a line in a form, kept as texts are.

        Raises:
            TapeError: the file is another one by now.
            ValueError: from ``form``, if it has not that form.
        """
        kept: T | None = self._texts.get((place, form))
        if kept is not None:
            return kept
        [raw] = self.read([place])
        return self._keep(
            (place, form),
            raw,
            form(raw),
        )

    def weight(self, digest: str) -> int:
        """Return about how many bytes a text takes as values of Python; 0 if there is none."""
        place = self.index.texts.get(digest.encode())
        if place is None:
            return 0
        if digest not in self._weights:
            [raw] = self.read([place])
            self._weights[digest] = weight_of(raw)
        return self._weights[digest]

    def _keep(
        self,
        key: tuple[object, object],
        raw: bytes,
        value: T,
    ) -> T:
        """Keep what was read, unless all that is kept would take too much memory."""
        weight = weight_of(raw)
        # A small one does not put out a large one, which takes long to read again.
        is_large = weight > MAX_KEPT // 100
        most = MAX_KEPT if is_large else 2 * MAX_KEPT
        if self._weight + weight > most:  # all of it: what is used comes back at its next use
            self._forget_texts()
        self._weight += weight
        self._texts[key] = value
        return value

    def _forget_texts(self) -> None:
        self._texts.clear()
        self._weight = 0

    # --- writing -----------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the file's writer; several of a process may be at once."""
        writer = object()
        try:
            with self.lock:
                if self._pid != os.getpid():
                    raise TapeError(
                        f"{self.path} was opened before this process forked; open it anew"
                    )
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
        """Take the lock and open the file for writing."""
        # Rule 1: O_APPEND, so that what another writes meanwhile is never overwritten.
        flags = os.O_RDWR | os.O_APPEND | _OPEN_FLAGS
        try:
            self._guard.acquire()  # rule 4: not before, or a notebook that only looks would hold it
            self._fd = os.open(self.path, flags)
            self.refresh()
            self._cut_tail()
        except filelock.Timeout:
            self.refresh()
            raise _busy(self.path, *self.index.process) from None
        except FileNotFoundError:
            raise self._is_another() from None
        except OSError as error:
            raise self._failed("write to", error) from error

    def _close(self) -> None:
        fd = self._fd
        self._fd = -1  # first: a number that is closed may be another file's next
        if fd < 0:
            return
        try:
            os.close(fd)
        except OSError as error:
            raise self._failed("write the last lines of", error) from error

    def _end(self) -> None:
        self._close()
        # By force: it counts acquisitions, and an interrupted ``_begin`` may leave one too many.
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
        """Cut off what a kill or a power cut left at the end, and keep it beside the tape.

        Raises:
            TapeError: a faulty line has good ones after it, or the first line is faulty.
        """
        index = self.index
        size = os.fstat(self._fd).st_size
        first = index.first_fault
        start = index.end
        if first is not None:
            start = first.start
            # Rule 2: only what is faulty to the last line is cut; and not from the first line on,
            # for that would be all of it.
            has_good_ones_after = index.faulty <= index.lines - first.line
            if first.line == 1 or has_good_ones_after:
                raise TapeError(
                    f"{self.path} is damaged in line {first.line}: {first.words}. "
                    "Nothing is written to it; `llmsim-lab tape repair` may help"
                )
        if size == index.end and not index.faulty:
            return
        with self._reading() as file:
            file.seek(start)
            try:
                with _beside(self.path, ".cut", file) as beside:
                    shutil.copyfileobj(file, beside)
            except OSError as error:
                raise self._failed("keep the end of", error) from error
        # After the copy beside it is written: a kill in between keeps the bytes twice, not never.
        os.ftruncate(self._fd, start)
        cut = f"its last {size - start:,} bytes were no whole line; they are in {beside.name}"
        log_event(
            logger,
            logging.WARNING,
            "TAPE_TAIL_CUT",
            tape=self.path,
            found=cut,
        )
        if first is not None:
            self.read_anew()

    def read_anew(self) -> None:
        """Read the file from its beginning."""
        self.index = Index()
        # Who keeps places, as a Tape's family does, sees by it that they are void.
        self.generation += 1
        self._forget_texts()
        self.derived.clear()
        self.refresh()

    def append(
        self,
        run: int,
        kind: str,
        body: bytes,
        *,
        turn: int | None = None,
    ) -> int:
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
            # What readers take: see _Number and _Turn in lines.py.
            is_run = 0 < run < 10**9
            is_turn = abs(turn or 0) < 10**9
            if not is_run or not is_turn or number >= 10**15:
                raise TapeError(
                    f"run {run}, turn {turn}, call {number} are more than a tape can number"
                )
            # A call without a turn says so, since a run has both kinds.
            is_call = kind == "call"
            place = b""
            if turn is not None:
                place = b',"turn":%d' % turn
            elif is_call:
                place = b',"turn":null'
            if is_call:
                place += b',"no":%d' % number
            kind_name = kind.encode()
            line = b'{"run":%d,"is":"%b"%b%b' % (run, kind_name, place, body)
            if kind in ("turn", "end"):
                # Rule 1: is the file at the path still ours? Opening it tells, but takes too long
                # for each call.
                with self._reading():
                    pass
            self._write(
                line,
                self.index.sums.get(run, run),
                (run, kind_name, turn, number),
            )
            if kind == "end":
                self._flush()
            return number

    def _flush(self) -> None:
        """Have all that was written put where it survives a power cut."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._failed("write", error) from error

    def intern(self, value: str) -> bytes:
        """Write a text that is used often, if it is not there; returns its digest.

        The lock is held by who calls it.
        """
        digest, raw = _encoded(value)
        if digest not in self.index.texts:
            self._prepare_to_write()
        # Again: what was read just now may have it.
        if digest not in self.index.texts:
            self._write(b'{"text":"%b","value":%b' % (digest, raw), 0)
        return digest

    def _prepare_to_write(self) -> None:
        if self._fd < 0 or self._pid != os.getpid():
            raise TapeError(f"{self.path} is not open for writing in this process; open it again")
        if self._unsure:
            self.refresh()

    def _write(
        self,
        line: bytes,
        before: int,
        fact: Fact | None = None,
    ) -> None:
        """Write a line, its end added: the check sum, which follows from the one before."""
        index = self.index
        check_sum = crc32(line, before)
        raw = _with_sum(line, check_sum)
        excess = _excess(raw)
        if excess:
            raise TapeError(f"a line of {self.path} has {excess}; shorten prompt, reply or state")
        # Read to a byte after the end, where there is none unless another writer was here.
        try:
            os.lseek(
                self._fd,
                index.end - len(index.tail),
                os.SEEK_SET,
            )
            end = os.read(self._fd, len(index.tail) + 1)
        except OSError as error:
            raise self._failed("read", error) from error
        if end != index.tail:
            if end.startswith(index.tail):
                raise self._is_appended_to()
            raise self._is_another()
        # From here to the end a Ctrl-C may come, between any two steps.
        self._sent = (index.end, raw)
        self._unsure = True
        try:
            if os.write(self._fd, raw) != len(raw):
                raise OSError("the disk is full")
        except OSError as error:
            # Rule 2. It gives space back, so it succeeds on a full disk too.
            with suppress(OSError):
                os.ftruncate(self._fd, index.end)
            self._unsure = False
            raise TapeError(
                f"cannot write to the tape {self.path}: {error.strerror or error}. "
                "All that was answered before is on it; make room"
            ) from error
        try:
            after = os.lseek(self._fd, 0, os.SEEK_CUR)
            if after != index.end + len(raw):
                # Something else wrote between the two: what is ours behind it is taken back.
                if os.fstat(self._fd).st_size == after:
                    os.ftruncate(self._fd, after - len(raw))
                raise self._is_appended_to()
        except OSError as error:
            raise self._failed("read", error) from error
        index.add(raw, check_sum, fact)
        self._unsure = False

    def rewrite(
        self,
        last_turns: Mapping[int, float],
        path: Path | None = None,
    ) -> None:
        """Write some runs' lines, which keep their numbers, to a file.

        Args:
            last_turns: the runs, by number, each with the last turn to write, or infinity; of each
                what is before its first faulty line.
            path: the new file; in this one's place if not given.

        Raises:
            TapeError: another process or run writes to this tape, or the file cannot be written, or
                the new one is there already.
        """
        in_place = path is None
        target = self.path if path is None else path
        # Whole, under another name, before it takes the place of anything.
        aside = target.with_name(f".{secrets.token_hex(8)}.new")
        if in_place and len(self.writers) > 1:
            raise TapeError(f"a run is recorded on {self.path} now; stop it, then do this")
        try:
            with aside.open("xb") as file:
                file.writelines(self._lines_of(last_turns))
                # On the disk first: after a power cut one of the two files is whole.
                file.flush()
                os.fsync(file.fileno())
            aside.chmod(self.path.stat().st_mode | 0o200)  # a private tape's copy is private
            if in_place:
                self._close()  # Windows replaces no file that is open
                aside.replace(target)
                self._opened = target.stat()
                self.read_anew()
            else:
                _give_name(aside, target)
        except FileExistsError:
            raise TapeError(f"{target} is there already: name a new file") from None
        except OSError as error:
            raise TapeError(f"cannot write {target}: {error.strerror or error}") from error
        finally:
            # It is gone where it took the file's place; what failed was said above.
            with suppress(OSError):
                aside.unlink()

    def _lines_of(self, last_turns: Mapping[int, float]) -> Iterator[bytes]:
        """Yield the lines of runs, each with the texts above it that it is the first to name."""
        index = self.index
        texts = dict(index.texts)
        sums: dict[int, int] = {}
        # A repaired tape has to begin well; it is another file anyway.
        is_head_faulty = index.first_fault is not None and index.first_fault.line == 1
        yield _new_head() if is_head_faulty else index.head
        for number, raw in self.lines():
            fact = fact_in(raw)
            if fact is None:
                continue
            run, kind, turn, _ = fact
            first_faulty = index.broken.get(run)
            if run not in last_turns:
                continue
            # A run is whole up to its first faulty line; what follows may follow from that.
            if first_faulty is not None and number >= first_faulty:
                continue
            # Without its later turns a run has not ended.
            last = last_turns[run]
            if (turn or 0) > last or (kind == b"end" and math.isfinite(last)):
                continue
            # All that looks like a digest: one too many does no harm, one too few would.
            named = {*_DIGEST.findall(raw)} & texts.keys()
            yield from self.read(sorted(texts.pop(digest) for digest in named))
            line = raw[:-_SUM_LEN]
            # The same bytes again, unless a line before it is left out.
            sums[run] = crc32(line, sums.get(run, run))
            yield _with_sum(line, sums[run])
