"""Recording one run, and answering from what is recorded of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from llmsim_lab.calls import Attempt, CallSite, ChatRequest
from llmsim_lab.errors import LLMFailureException, TapeError, TapeMiss
from llmsim_lab.llm.tape.keys import Settings, SettingsCache, call_key, nth_key
from llmsim_lab.llm.tape.nearest import explain_miss
from llmsim_lab.llm.tape.rows import RecordedCall, encode_attempt
from llmsim_lab.llm.tape.tape import Tape
from llmsim_lab.llm.tape.writers import claim

__all__ = ["LiveRecorder", "ReplayRecorder"]

_cache = SettingsCache()


_KEY_BYTES = 32


class _Keys:
    """Keys of requests; the n-th request equal to others of its turn gets a key of its own.

    So repeats are samples of their own. They are counted as they are asked, whenever answered, and
    a second attempt has its first one's count.
    """

    def __init__(self) -> None:
        self._seen: Counter[bytes] = Counter()
        self._counts: dict[int, int] = {}
        self._lock = threading.Lock()

    def next(self, request: ChatRequest, settings: Settings, previous: Attempt | None) -> bytes:
        base = call_key(request, settings)
        if previous is not None and previous.number in self._counts:
            return nth_key(base, self._counts[previous.number])
        with self._lock:
            count = self._seen[base]
            self._seen[base] += 1
        return nth_key(base, count)

    def remember(self, number: int, key: bytes) -> None:
        """Note which count a recorded attempt has."""
        self._counts[number] = _count_of(key)

    def clear(self) -> None:
        self._seen.clear()


def _count_of(key: bytes) -> int:
    return int.from_bytes(key[_KEY_BYTES:], "big")


def _placed(request: ChatRequest, turn: int) -> ChatRequest:
    site = request.site
    if site is not None and site.turn == turn:
        return request
    site = replace(site, turn=turn) if site else CallSite(component="call", turn=turn)
    return replace(request, site=site)


def _by_key(calls: Iterable[RecordedCall]) -> dict[bytes, Attempt]:
    """Return recorded attempts by their keys, each checked to be its request's."""
    known = {}
    for call in calls:
        request = call.attempt.request
        if not call.key.startswith(call_key(request, _cache.of(request))):
            raise TapeError(f"call {call.id} on the tape is damaged: it is not the one of its key")
        known[call.key] = call.attempt
    return known


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
        self._pending: dict[int, tuple[bytes, Settings]] = {}
        self._release = claim(tape, run, self)
        self._turn = tape.run(run).turns + 1
        self._known = _by_key(tape.calls(run, turn=self._turn))
        for key, attempt in self._known.items():
            self._keys.remember(attempt.number or 0, key)
        self._forget_failed(None)

    def place(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the turn that is being played."""
        return _placed(request, self._turn)

    def find(self, request: ChatRequest, previous: Attempt | None = None) -> Attempt | None:
        """Return what the unfinished turn already knows, or None to have the request made.

        Raises:
            TapeError: the recorder was closed.
        """
        self._check_open()
        settings = _cache.of(request)
        key = self._keys.next(request, settings, previous)
        known = self._known.get(key)
        if known is None:
            self._pending[id(request)] = key, settings
        return known

    def keep(self, attempt: Attempt) -> Attempt:
        """Write an answered or failed request to the tape; returns it with its number there.

        Raises:
            TapeError: the disk is full or fails.
        """
        request, site = attempt.request, attempt.request.site
        key, settings = self._pending.pop(id(request), (None, _cache.of(request)))
        key = key or self._keys.next(request, settings, None)
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
        self._keys.remember(kept.number or 0, key)
        return kept

    def restart_turn(self, error: BaseException | None = None) -> None:
        """Begin the turn again, after it failed.

        What was answered will be answered from the tape. Calls that failed for good will be made
        anew; their attempts stay on the tape, marked.

        Args:
            error: why the turn failed; where a model's invalid answers were the reason, those of
                that component will be asked for anew as well.
        """
        self._keys.clear()
        self._pending.clear()
        self._forget_failed(_failure_in(error))

    def _forget_failed(self, failure: LLMFailureException | None) -> None:
        """Mark the calls that got no answer, and those whose answers made the turn fail."""
        calls: dict[tuple[object, ...], dict[bytes, Attempt]] = {}
        by_attempt = sorted(self._known.items(), key=lambda item: item[1].request.attempt)
        for key, attempt in by_attempt:
            request = attempt.request
            call = (request.site, _count_of(key), request.messages)
            if call not in calls and request.attempt > 1:  # shown its own answer and a complaint
                call = (request.site, _count_of(key), request.messages[:-2])
            calls.setdefault(call, {})[key] = attempt
        gone: dict[bytes, Attempt] = {}
        for attempts in calls.values():
            if _failed_for_good(list(attempts.values())[-1], failure):
                gone |= attempts
        if not gone:
            return
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
        self._check_open()
        with self.tape.transaction() as connection:
            connection.execute(
                "INSERT INTO turns (run, turn, record, row) VALUES (?, ?, ?, ?)",
                (self.run, turn, record, row),
            )
        self._turn = turn + 1
        self._known.clear()
        self._keys = _Keys()
        self._pending.clear()

    def replace_turn(self, turn: int, record: str, row: str) -> None:
        """Write the latest turn again, after something was done to it from outside."""
        self._check_open()
        with self.tape.transaction() as connection:
            connection.execute(
                "UPDATE turns SET record = ?, row = ? WHERE run = ? AND turn = ?",
                (record, row, self.run, turn),
            )

    def close(self) -> None:
        """Let another writer have the run."""
        self._release()

    def _check_open(self) -> None:
        if not self._release.alive:
            raise TapeError(
                f"run {self.run} on {self.tape.path} was closed by this simulation; "
                f"resume({str(self.tape.path)!r}, {self.run}) goes on with it"
            )


def _failure_in(error: BaseException | None) -> LLMFailureException | None:
    """Return the model failure that an error is, or comes from."""
    while error is not None and not isinstance(error, LLMFailureException):
        error = error.__cause__ or error.__context__
    return error


def _failed_for_good(last: Attempt, failure: LLMFailureException | None) -> bool:
    """Say whether a call, of which this is the last attempt, is to be made anew."""
    if last.reason is None or (last.request.attempt == 1 and last.retry):
        return False
    if last.reply is None:
        return True
    # Answered, but not well. An agent may have made the best of that; the turn's failure tells.
    site = last.request.site
    return failure is not None and failure.component in (None, site and site.component)


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
        self._turn = 0
        self._known: dict[bytes, Attempt] = {}
        self._by_number: dict[int | None, Attempt] = {}

    def begin_turn(self, turn: int) -> None:
        """Get the calls of a turn ready."""
        part = next((part for part, last in self._line if turn <= last), self.run)
        self._known = _by_key(self.tape.calls(part, turn=turn))
        self._by_number = {attempt.number: attempt for attempt in self._known.values()}
        self._keys = _Keys()
        for key, attempt in self._known.items():
            self._keys.remember(attempt.number or 0, key)
        self._turn = turn

    def place(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the turn that is being played."""
        return _placed(request, self._turn)

    def find(self, request: ChatRequest, previous: Attempt | None = None) -> Attempt:
        """Return what became of this request.

        Raises:
            TapeMiss: it was never made; the message shows how it differs from the nearest one.
        """
        known = self._known.get(self._keys.next(request, _cache.of(request), previous))
        if known is None:
            raise TapeMiss(explain_miss(request, self._known.values(), run=self.run))
        return known

    def knows(self, request: ChatRequest) -> bool:
        """Say whether a placed request was made in its turn; asking this does not count as that."""
        return call_key(request, _cache.of(request)) in self._known

    def attempt(self, number: int) -> Attempt:
        """Return a recorded attempt by its number, without asking the file for this turn's."""
        known = self._by_number.get(number)
        return known if known is not None else self.tape.call(number).attempt

    def keep(self, attempt: Attempt) -> Attempt:
        """Never called: nothing is asked that could be kept."""
        raise TapeError("a replay makes no call")  # pragma: no cover - find() never returns None
