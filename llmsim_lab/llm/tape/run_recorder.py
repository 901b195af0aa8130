"""Recording one run, and answering from what is recorded of it."""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from llmsim_lab.calls import Attempt, CallSite, ChatRequest
from llmsim_lab.errors import TapeError, TapeMiss
from llmsim_lab.llm.tape.keys import SettingsCache, call_key
from llmsim_lab.llm.tape.nearest import explain_miss
from llmsim_lab.llm.tape.rows import encode_attempt
from llmsim_lab.llm.tape.tape import Tape

__all__ = ["LiveRecorder", "ReplayRecorder"]

_cache = SettingsCache()


class _Keys:
    """Keys of requests; the n-th request equal to others of its turn gets a key of its own.

    So repeats are samples of their own, and which of two equal requests comes first does not
    matter.
    """

    def __init__(self) -> None:
        self._seen: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def next(self, request: ChatRequest) -> bytes:
        base = call_key(request, _cache.of(request))
        with self._lock:
            count = self._seen[base]
            self._seen[base] += 1
        return _nth(base, count)

    def clear(self) -> None:
        self._seen.clear()


def _nth(base: bytes, count: int) -> bytes:
    return base if count == 0 else base + count.to_bytes(4, "big")


class LiveRecorder:
    """Keeps a run's calls and turns; answers again what the unfinished turn had already paid for.

    Args:
        tape: the tape.
        run: the run, which must not have another writer.

    Raises:
        TapeError: somebody else writes to this run, or the tape is read-only.
    """

    def __init__(self, tape: Tape, run: int) -> None:
        self.tape = tape
        self.run = run
        self._keys = _Keys()
        self._pending: dict[int, bytes] = {}
        self._known: dict[bytes, Attempt] = {}
        self._release = _claim(tape, run, self)
        last = tape.run(run).turns
        for call in tape.calls(run):
            site = call.attempt.request.site
            if site is None or site.turn is None or site.turn > last:
                self._known[self._keys.next(call.attempt.request)] = call.attempt
        self._keys.clear()
        self._forget_failed(lambda attempt: attempt.reply is None)

    def find(self, request: ChatRequest) -> Attempt | None:
        """Return what the unfinished turn already knows, or None to have the request made."""
        key = self._keys.next(request)
        known = self._known.get(key)
        if known is None:
            self._pending[id(request)] = key
        return known

    def keep(self, attempt: Attempt) -> Attempt:
        """Write an answered or failed request to the tape; returns it with its number there.

        Raises:
            TapeError: the disk is full or fails.
        """
        request, site = attempt.request, attempt.request.site
        key = self._pending.pop(id(request), None) or self._keys.next(request)
        settings = _cache.of(request)
        messages, reply, fault, seconds = encode_attempt(attempt)
        with self.tape.transaction() as connection:
            settings_id = self.tape.text_id(connection, settings.text, settings.digest)
            cursor = connection.execute(
                "INSERT INTO calls (run, key, turn, component, agent, replicate, attempt, "
                "messages, settings, reply, fault, seconds) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    self.run,
                    key,
                    site.turn if site else None,
                    site.component if site else None,
                    site.agent if site else None,
                    site.replicate if site else 0,
                    request.attempt,
                    messages,
                    settings_id,
                    reply,
                    fault,
                    seconds,
                ),
            )
        kept = replace(attempt, number=int(cursor.lastrowid or 0))
        self._known[key] = kept
        return kept

    def restart_turn(self) -> None:
        """Begin the turn again, after it failed.

        What was answered will be answered from the tape. Calls that failed for good will be made
        anew; their attempts stay on the tape, marked.
        """
        self._forget_failed(lambda attempt: True)
        self._keys.clear()
        self._pending.clear()

    def _forget_failed(self, which: Callable[[Attempt], bool]) -> None:
        """Mark the calls whose last attempt failed, as far as a condition on that one holds."""
        last: dict[CallSite | None, Attempt] = {}
        for attempt in self._known.values():
            site = attempt.request.site
            if site not in last or attempt.request.attempt >= last[site].request.attempt:
                last[site] = attempt
        failed = {
            site
            for site, attempt in last.items()
            if attempt.reason is not None
            and (attempt.request.attempt > 1 or not attempt.retry)
            and which(attempt)
        }
        if not failed:
            return
        gone = {k: a for k, a in self._known.items() if a.request.site in failed}
        numbers = [(attempt.number,) for attempt in gone.values()]
        with self.tape.transaction() as connection:
            connection.executemany("UPDATE calls SET forgotten = 1 WHERE id = ?", numbers)
        for key in gone:
            del self._known[key]

    def commit_turn(self, turn: int, record: str, row: str) -> None:
        """Write a whole turn.

        Args:
            turn: its number.
            record: all of it, as JSON.
            row: its row of the run's frame, as a JSON object.

        Raises:
            TapeError: the disk is full or fails, or the turn is there already.
        """
        with self.tape.transaction() as connection:
            connection.execute(
                "INSERT INTO turns (run, turn, record, row) VALUES (?, ?, ?, ?)",
                (self.run, turn, record, row),
            )
        self._known.clear()
        self._keys.clear()
        self._pending.clear()

    def replace_turn(self, turn: int, record: str, row: str) -> None:
        """Write the latest turn again, after something was done to it from outside."""
        with self.tape.transaction() as connection:
            connection.execute(
                "UPDATE turns SET record = ?, row = ? WHERE run = ? AND turn = ?",
                (record, row, self.run, turn),
            )

    def close(self) -> None:
        """Let another writer have the run."""
        self._release()


class ReplayRecorder:
    """Answers from the tape only; a request that is not there is a ``TapeMiss``.

    Args:
        tape: the tape.
        run: the run to replay, with the turns that it shares with its parents.
    """

    def __init__(self, tape: Tape, run: int) -> None:
        self.tape = tape
        self.run = run
        self._keys = _Keys()
        self._line = tape.line(run)
        self._turn: int | None = None
        self._known: dict[bytes, Attempt] = {}

    def find(self, request: ChatRequest) -> Attempt:
        """Return what became of this request.

        Raises:
            TapeMiss: it was never made; the message shows how it differs from the nearest one.
        """
        turn = request.site.turn if request.site else None
        if turn != self._turn:
            self._load(turn)
        known = self._known.get(self._keys.next(request))
        if known is None:
            raise TapeMiss(explain_miss(request, self._known.values(), run=self.run))
        return known

    def _load(self, turn: int | None) -> None:
        self._keys.clear()
        self._known = {}
        for attempt in self._attempts(turn):
            self._known[self._keys.next(attempt.request)] = attempt
        self._keys.clear()
        self._turn = turn

    def _attempts(self, turn: int | None) -> Iterable[Attempt]:
        for part, last in self._line:
            if turn is None or turn <= last:
                calls = self.tape.calls(part, turn=turn) if turn is not None else []
                return [call.attempt for call in calls]
        return []

    def keep(self, attempt: Attempt) -> Attempt:
        """Never called: nothing is asked that could be kept."""
        raise TapeError("a replay makes no call")  # pragma: no cover - find() never returns None


# --- one writer at a time ----------------------------------------------------------------------

_here: dict[tuple[str, int], weakref.ref[LiveRecorder]] = {}


def _claim(
    tape: Tape, run: int, recorder: LiveRecorder
) -> weakref.finalize[[Tape, int, str], LiveRecorder]:
    """Enter this process as the run's writer; returns what gives the run back."""
    me = json.dumps(
        {"host": socket.gethostname(), "pid": os.getpid(), "since": _since(os.getpid())}
    )
    place = (str(tape.path.resolve()), run)
    with tape.transaction() as connection:
        row = connection.execute("SELECT writer FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise TapeError(f"the tape {tape.path} has no run {run}")
        _refuse_if_taken(row[0], me, place)
        connection.execute("UPDATE runs SET writer = ? WHERE id = ?", (me, run))
    _here[place] = weakref.ref(recorder)
    return weakref.finalize(recorder, _give_back, tape, run, me)


def _refuse_if_taken(writer: str | None, me: str, place: tuple[str, int]) -> None:
    path, run = place
    if writer is None:
        return
    if writer == me:
        holder = _here.get(place)
        if holder is not None and holder() is not None:
            raise TapeError(
                f"run {run} on {path} is being recorded by another simulation of this process; "
                "go on with that one, or close() it"
            )
        return
    other = json.loads(writer)
    if other["host"] != socket.gethostname():
        raise TapeError(
            f"run {run} on {path} is being recorded on {other['host']} (process {other['pid']}); "
            "fork it, or copy the tape if that machine has stopped"
        )
    if _since(other["pid"]) == other["since"]:
        raise TapeError(
            f"run {run} on {path} is being recorded by process {other['pid']}; "
            "end that one first, or fork the run"
        )


def _since(pid: int) -> float | None:
    """Return when a process started, or None if it is gone: numbers of processes are used again."""
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _give_back(tape: Tape, run: int, me: str) -> None:
    try:
        with tape.transaction() as connection:
            connection.execute(
                "UPDATE runs SET writer = NULL WHERE id = ? AND writer = ?", (run, me)
            )
    except TapeError:
        # The tape is closed or its disk full; the entry names this process and dies with it.
        return
