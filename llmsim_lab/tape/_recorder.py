"""Recording one run, and answering from what is recorded of it."""

from __future__ import annotations

import asyncio
import difflib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from llmsim_lab._util.text import clip
from llmsim_lab.errors import LLMFailureException, TapeError, TapeMiss
from llmsim_lab.prompts._prompt import PromptDiff
from llmsim_lab.tape._codec import (
    KEY_BYTES,
    EncodedRequest,
    SettingsCache,
    digest_of,
    encode_request,
    fault_text,
    nth_key,
    reply_text,
    settings_of,
)
from llmsim_lab.tape._ledger import Ledger, claim
from llmsim_lab.tape._tape import Tape
from llmsim_lab.types import Attempt, CallSite, ChatRequest

_WINDOW_S = 0.002
"""How long an answer may wait for others to be committed with it, while more are expected."""
_MAX_DIFF = 2_000

_cache = SettingsCache()
"""Of the whole process, since runs of one process often have the same settings."""


class _Keys:
    """Keys of requests; the n-th request equal to others of its turn gets a key of its own.

    So repeats are samples of their own. They are counted in the order in which they are asked,
    whatever the order of the answers, and a second attempt has its first one's count.
    """

    def __init__(self, known: Mapping[bytes, Attempt]) -> None:
        self._seen: dict[bytes, int] = {}
        self._repeats: dict[int | None, int] = {}
        """By number of an attempt, its count where that is not 0."""
        self._lock = threading.Lock()
        for key, attempt in known.items():
            # The first of its like has the bare key; only later ones have their count behind it.
            if len(key) > KEY_BYTES:
                self.remember(attempt.number, key)

    def next(self, base: bytes, previous: Attempt | None) -> bytes:
        """Return the key of a request that is asked now.

        Args:
            base: the key of its content.
            previous: the call's first attempt, if this is its second.
        """
        if previous is not None:
            count = self._repeats.get(previous.number, 0)
        else:
            with self._lock:
                count = self._seen.get(base, 0)
                self._seen[base] = count + 1
        return nth_key(base, count) if count else base

    def remember(self, number: int | None, key: bytes) -> None:
        """Remember the count of a recorded attempt that is not the first of its like."""
        self._repeats[number] = _count_of(key)

    def clear(self) -> None:
        """Begin to count again, since the turn does."""
        self._seen.clear()


def _count_of(key: bytes) -> int:
    return int.from_bytes(key[KEY_BYTES:], "big")


class _AtTurn:
    """What records or answers the calls of a turn, and so knows which turn it is."""

    _turn: int

    def place(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the turn that is being played."""
        site, turn = request.site, self._turn
        if site is not None and site.turn == turn:
            return request
        origin = request.origin
        if origin is not None and site is not None and site.turn is not None:
            # Its sources may name turns relative to the one that it was made for; now they name
            # them.
            origin = origin.moved(site.turn)
        site = replace(site, turn=turn) if site else CallSite(component="call", turn=turn)
        return replace(request, site=site, origin=origin)


def _check_key(key: bytes, attempt: Attempt) -> None:
    """Raise TapeError if a recorded attempt is not the one of its key."""
    if not key.startswith(encode_request(attempt.request, _cache).key):
        raise TapeError(
            f"call {attempt.number} on the tape is damaged: it is not the one of its key"
        )


_Answer = tuple[Attempt, EncodedRequest, str | None, str | None]
"""What became of a request, the request as the tape has it, reply and fault as JSON."""


@dataclass(slots=True)
class _Group:
    """Answers of one event loop that are committed together: many cost little more than one."""

    answers: list[_Answer] = field(default_factory=list)
    futures: list[asyncio.Future[Attempt]] = field(default_factory=list)
    timer: asyncio.Handle | None = None

    def committed(self, attempts: Sequence[Attempt]) -> None:
        """Hand on what was committed."""
        for attempt, future in zip(attempts, self.futures, strict=True):
            if not future.done():  # it is if its task was cancelled
                future.set_result(attempt)

    def failed(self, error: BaseException) -> None:
        """Raise an error where the answers are waited for."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                # Its task may be gone, and asyncio reports errors that nobody has looked at.
                future.exception()


class LiveRecorder(_AtTurn):
    """Records a run's calls and turns; answers calls that the unfinished turn has already made.

    Args:
        tape: the tape.
        run: the run, which must not have another writer.

    Raises:
        TapeError: somebody else writes to this run, or the tape is read-only.
    """

    def __init__(self, tape: Tape, run: int) -> None:
        self.tape = tape
        self.run = run
        self._ledger = Ledger(run)
        # Not by value: equal requests may be in flight at once, each with a key of its own.
        self._pending: dict[int, EncodedRequest] = {}
        """By identity, the requests that were asked for and are not answered yet."""
        self._groups: dict[asyncio.AbstractEventLoop, _Group] = {}
        self._lock = threading.Lock()
        self._text_ids: dict[bytes, int] = {}
        """Of shared texts, by digest: of the texts, which may be long, none is kept in memory.

        The run's own calls have them, so that nobody can take them off the tape meanwhile.
        """
        self._file = tape.file
        # Before anything is read: what is read must not change any more.
        self._release = claim(self._file, run, self)
        self._read_known()
        # What had failed when the run stopped is asked again when it is resumed.
        self._forget_failed(None)
        self._under_way = False
        """True from a turn's beginning until it is committed, or ready to begin again."""

    def _read_known(self) -> None:
        self._turn = self.tape.run(self.run).turns + 1
        self._known: dict[bytes, Attempt] = {}
        """What the unfinished turn has recorded, by key."""
        for call in self.tape.calls(self.run, turn=self._turn):
            _check_key(call.key, call.attempt)
            self._known[call.key] = call.attempt
        self._keys = _Keys(self._known)
        self._is_known = True
        """False while the tape may have more than is known here: Python raises a Ctrl-C that comes
        during a commit when the commit has ended."""

    def begin_turn(self, turn: int) -> None:
        """Begin a turn, again if it was interrupted.

        Raises:
            TapeError: the recorder was closed, or the tape has the turn already, as after a Ctrl-C
                between its commit and the run.
        """
        if not self._release.alive:
            raise self._closed()
        # A Ctrl-C may have met the restart of the turn as well.
        if self._under_way or not self._is_known:
            self.restart_turn()
        self._check_next(turn)
        self._under_way = True

    def _check_next(self, turn: int) -> None:
        following = self._turn if self._is_known else self.tape.run(self.run).turns + 1
        if turn < following:
            path = str(self.tape.path)
            raise TapeError(
                f"turn {turn} of run {self.run} is on {path} already: it was interrupted when it "
                "had just been written, before this simulation had it; nothing is lost: close() "
                f"this simulation, and resume({path!r}, {self.run}) continues after that turn"
            )

    def find(self, request: ChatRequest, previous: Attempt | None = None) -> Attempt | None:
        """Return what the unfinished turn already recorded, or None if the request is to be made.

        Raises:
            TapeError: the recorder was closed.
        """
        if not self._release.alive:
            raise self._closed()
        found = encode_request(request, _cache)
        key = self._keys.next(found.key, previous)
        known = self._known.get(key)
        if known is None:
            # Kept, since encoding a long prompt again for ``keep`` would take as long again.
            self._pending[id(request)] = found if key == found.key else found._replace(key=key)
        return known

    async def keep(self, attempt: Attempt) -> Attempt:
        """Write an answered or failed request to the tape; returns it with its number there.

        Answers that arrive together are committed together; each is returned after its commit.

        Raises:
            TapeError: the disk is full or fails, or the answer holds what JSON cannot.
        """
        answer = self._as_kept(attempt)
        # Nothing else is expected that could be committed with it, as with an engine, which makes
        # one call at a time.
        if not self._pending and not self._groups:
            [kept] = self._write([answer])
            return kept
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Attempt] = loop.create_future()
        with self._lock:
            group = self._groups.get(loop)
            if group is None:
                group = self._groups[loop] = _Group()
            group.answers.append(answer)
            group.futures.append(future)
            # While other answers are expected, this one waits for them, but not for long.
            last = not self._pending
            if group.timer is None and not last:
                group.timer = loop.call_later(_WINDOW_S, self._commit_group, loop)
        if last:
            self._commit_group(loop)
        # If this task is cancelled, its answer is committed with the group all the same.
        return await future

    def keep_now(self, attempt: Attempt) -> Attempt:
        """Do the same as ``keep`` in code that cannot wait: the answer is committed by itself."""
        [kept] = self._write([self._as_kept(attempt)])
        return kept

    def _as_kept(self, attempt: Attempt) -> _Answer:
        request = attempt.request
        found = self._pending.pop(id(request), None)
        if found is None:
            found = encode_request(request, _cache)
            found = found._replace(key=self._keys.next(found.key, None))
        try:
            return attempt, found, reply_text(attempt.reply), fault_text(attempt)
        except ValueError as error:
            raise TapeError(f"an answer cannot be kept on {self.tape.path}: {error}") from error

    def _commit_group(self, loop: asyncio.AbstractEventLoop, *, is_here: bool = True) -> None:
        """Commit a loop's answers, and hand them on: at once if this runs in it (``is_here``)."""
        with self._lock:
            group = self._groups.pop(loop, None)
        if group is None:
            return
        if group.timer is not None:
            group.timer.cancel()

        def tell(work: Callable[[Any], None], outcome: object) -> None:
            if is_here:
                work(outcome)
                return
            with suppress(RuntimeError):  # the loop was closed, so that nobody waits any more
                loop.call_soon_threadsafe(work, outcome)

        try:
            attempts = self._write(group.answers)
        except BaseException as error:
            tell(group.failed, error)
            # Ctrl-C in the loop's own callback has to reach the loop as well.
            if not isinstance(error, Exception):
                raise
        else:
            tell(group.committed, attempts)

    def _write(self, answers: Sequence[_Answer]) -> list[Attempt]:
        """Commit answers; returns them with their numbers."""
        try:
            return self._written(answers)
        except BaseException as error:
            # Ctrl-C is noticed when a commit has ended: the answers may be on the tape then.
            if not isinstance(error, Exception):
                self._is_known = False
            raise

    def _written(self, answers: Sequence[_Answer]) -> list[Attempt]:
        [first, *more] = answers
        # Alone, as an engine's calls are, a row is a transaction of its own, at two thirds of the
        # cost of one that is begun and committed.
        with self._file.lock:  # what another thread is writing may be undone
            cells = None if more else self._cells(first)
            number = None if cells is None else self._ledger.add_call(self._file, cells)
        if number is not None:
            numbers = [number]
        else:
            with self._transaction() as connection:
                # Inside a transaction there always are some.
                rows = [self._cells(answer, connection) or () for answer in answers]
                numbers = self._ledger.add_calls(connection, rows)
            self._file.next_call = numbers[-1] + 1
        # Only now, when the commit is done: nothing may be handed on that a kill could still undo.
        attempts = []
        for number, (attempt, found, _, _) in zip(numbers, answers, strict=True):
            # Nobody else has it yet, so that nobody sees it change; a copy takes ten times as long.
            object.__setattr__(attempt, "number", number)
            self._known[found.key] = attempt
            if len(found.key) > KEY_BYTES:
                self._keys.remember(number, found.key)
            attempts.append(attempt)
        return attempts

    def _cells(
        self, answer: _Answer, connection: sqlite3.Connection | None = None
    ) -> tuple[Any, ...] | None:
        """Return an answer's columns from ``key`` to ``forgotten``.

        Args:
            answer: the answer.
            connection: in a transaction; without one this is None if a shared text is new.
        """
        attempt, (messages, settings, key), reply, fault = answer
        request, text_id = attempt.request, self._text_id
        place: tuple[int | None, str | None, str | None, int] = (None, None, None, 0)
        if (site := request.site) is not None:
            place = (site.turn, site.component, site.agent, site.replicate)
        form = spans = None
        shared = text_id(settings.text, settings.digest, connection)
        if (origin := request.origin) is not None:
            spans, form = origin.spans, text_id(origin.form, digest_of(origin.form), connection)
        if shared is None or (origin is not None and form is None):
            return None
        question = (key, *place, request.attempt, messages, shared, form, spans)
        return (*question, reply, fault, float(attempt.seconds), 0)

    def _text_id(
        self, text: str, digest: bytes, connection: sqlite3.Connection | None
    ) -> int | None:
        known = self._text_ids.get(digest)
        if known is None and connection is not None:
            known = self._text_ids[digest] = self._file.text_id(text, digest, connection)
        return known

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Write everything that is written inside, or nothing of it; updates the ledger."""
        # Held until all is counted: another thread's answer would be counted in between.
        with self._file.lock:
            try:
                with self._file.transaction() as connection:
                    yield connection
                self._ledger.committed()
            except BaseException:
                # The ledger has counted rows that the file has just undone, or has not counted
                # those that it has just written.
                self._ledger.rolled_back()
                self._text_ids.clear()
                raise

    def flush(self) -> None:
        """Commit the answers that wait for others."""
        for loop in list(self._groups):
            self._commit_group(loop, is_here=False)

    def settle(self) -> None:
        """Update the run's tally, also in the middle of a turn, because the run ends here."""
        self.flush()
        with self._transaction() as connection:
            self._ledger.count_calls(connection)

    def restart_turn(self, error: BaseException | None = None) -> None:
        """Begin the turn again, after it failed.

        Answered calls will be answered from the tape. Calls that failed for good will be made
        again; their attempts stay on the tape, marked.

        Args:
            error: why the turn failed; where a model's invalid answers were the reason, the calls
                of that component will be made again as well.
        """
        self.flush()
        # Equal requests are counted from the first again, so that they find their answers.
        self._keys.clear()
        if not self._is_known:
            self._read_known()
        self._pending.clear()
        self._forget_failed(_failure_in(error))
        self._under_way = False

    def _forget_failed(self, failure: LLMFailureException | None) -> None:
        """Mark the calls that got no answer, and those whose answers made the turn fail."""
        calls: dict[tuple[object, ...], dict[bytes, Attempt]] = {}
        # First attempts first, so that a second one finds the call that it belongs to.
        by_attempt = sorted(self._known.items(), key=lambda item: item[1].request.attempt)
        for key, attempt in by_attempt:
            request = attempt.request
            call = (request.site, _count_of(key), request.messages)
            # A second attempt may have two messages more: the invalid answer and what is wrong.
            if call not in calls and request.attempt > 1:
                call = (request.site, _count_of(key), request.messages[:-2])
            calls.setdefault(call, {})[key] = attempt
        failed: dict[bytes, Attempt] = {}
        for attempts in calls.values():
            if _failed_for_good(list(attempts.values())[-1], failure):
                failed |= attempts
        if not failed:
            return
        self._is_known = False
        with self._transaction() as connection:
            self._ledger.forget(connection, [attempt.number or 0 for attempt in failed.values()])
        for key in failed:
            del self._known[key]
        self._is_known = True

    def commit_turn(self, turn: int, record: str, row: str) -> None:
        """Write a whole turn.

        Args:
            turn: its number.
            record: all of it, as JSON.
            row: its row of the run's frame, as a JSON object.

        Raises:
            TapeError: the disk is full or fails, or the turn is there already.
        """
        if not self._release.alive:
            raise self._closed()
        self.flush()
        self._is_known = False
        with self._transaction() as connection:
            self._ledger.add_turn(connection, turn, record, row)
        self._turn = turn + 1
        self._known = {}
        self._keys = _Keys({})
        self._pending.clear()
        self._is_known, self._under_way = True, False

    def replace_turn(self, turn: int, record: str, row: str) -> None:
        """Write the latest turn again, after it was changed from outside.

        Raises:
            TapeError: the disk is full or fails, or the tape has a later turn.
        """
        if not self._release.alive:
            raise self._closed()
        self._check_next(turn + 1)
        with self._transaction() as connection:
            self._ledger.replace_turn(connection, turn, record, row)

    def close(self) -> None:
        """Let another writer have the run."""
        self.flush()
        self._release()

    def _closed(self) -> TapeError:
        return TapeError(
            f"run {self.run} on {self.tape.path} was closed by this simulation; "
            f"resume({str(self.tape.path)!r}, {self.run}) continues it"
        )


def _failure_in(error: BaseException | None) -> LLMFailureException | None:
    """Return the model failure that an error is, or comes from."""
    while error is not None and not isinstance(error, LLMFailureException):
        error = error.__cause__ or error.__context__
    return error


def _failed_for_good(last: Attempt, failure: LLMFailureException | None) -> bool:
    """Return True if a call, of which this is the last attempt, is to be made again."""
    # A first attempt that may be tried again is not yet the end of its call.
    if last.reason is None or (last.request.attempt == 1 and last.retry):
        return False
    if last.reply is None:
        return True
    # Invalid answers only. Its agent may have used a default; then the turn failed for another
    # reason, and the default has to stay.
    site = last.request.site
    return failure is not None and failure.component in (None, site and site.component)


class ReplayRecorder(_AtTurn):
    """Answers from the tape only; a request that is not there is a ``TapeMiss``.

    Args:
        tape: the tape.
        run: the run to replay, with the turns that it shares with its parents.
    """

    def __init__(self, tape: Tape, run: int) -> None:
        self.tape = tape
        self.run = run
        self._keys = _Keys({})
        self._line = tape.line(run)
        self._turn = 0
        self._known: dict[bytes, Attempt] = {}
        self._by_number: dict[int | None, Attempt] = {}

    def begin_turn(self, turn: int) -> None:
        """Read the calls of a turn."""
        # A fork's first turns are recorded with the runs it comes from.
        part = next((part for part, last in self._line if turn <= last), self.run)
        self._known = {call.key: call.attempt for call in self.tape.calls(part, turn=turn)}
        self._by_number = {attempt.number: attempt for attempt in self._known.values()}
        self._keys = _Keys(self._known)
        self._turn = turn

    def find(self, request: ChatRequest, previous: Attempt | None = None) -> Attempt:
        """Return what became of this request.

        Raises:
            TapeMiss: it was never made; the message shows how it differs from the nearest one.
        """
        found = encode_request(request, _cache)
        key = self._keys.next(found.key, previous)
        known = self._known.get(key)
        if known is None:
            # Damage would be explained as a difference.
            for its_key, attempt in self._known.items():
                _check_key(its_key, attempt)
            raise TapeMiss(explain_miss(request, self._known.values(), run=self.run))
        # On a damaged tape the recorded request may not be the one of its key. If it equals what is
        # asked it is; only otherwise its key has to be computed.
        recorded = known.request
        if not (
            request.messages == recorded.messages
            and request.site == recorded.site
            and request.attempt == recorded.attempt
            and found.settings.key_digest == _cache.of(recorded).key_digest
        ):
            _check_key(key, known)
        return known

    def knows(self, request: ChatRequest) -> bool:
        """Return True if a placed request was made in its turn, without counting it as asked."""
        return encode_request(request, _cache).key in self._known

    def attempt(self, number: int) -> Attempt:
        """Return a recorded attempt by its number; this turn's without reading the file."""
        known = self._by_number.get(number)
        return known if known is not None else self.tape.call(number).attempt

    async def keep(self, attempt: Attempt) -> Attempt:  # pragma: no cover - find() returns no None
        """Raise TapeError: a replay makes no call that could be kept."""
        raise TapeError("a replay makes no call")

    def keep_now(self, attempt: Attempt) -> Attempt:  # pragma: no cover - likewise
        """Raise TapeError likewise."""
        raise TapeError("a replay makes no call")


# --- a call that is not on the tape --------------------------------------------------------------


def explain_miss(request: ChatRequest, recorded: Iterable[Attempt], *, run: int) -> str:
    """Return a message about a request that is not on the tape: its differences to the nearest.

    Args:
        request: what was asked for.
        recorded: what the run recorded in that turn.
        run: the run's number, for the message.
    """
    site = request.site
    where = (
        f"{site.component} of {site.agent}, turn {site.turn}, attempt {request.attempt}"
        if site
        else "a call outside a turn"
    )
    nearest = _nearest(request, list(recorded))
    if nearest is None:
        return (
            f"run {run} has no recorded call for {where}: nothing of that turn is on the tape; "
            "replay only as many turns as were recorded, or fork the run to continue"
        )
    return (
        f"run {run} has no recorded call for {where}. From the nearest recorded one, "
        f"{_differences(nearest, request)}\n"
        "A replay takes the prompts, the configuration and the code of the recording; "
        "to continue with other ones, fork the run."
    )


def _nearest(request: ChatRequest, recorded: list[Attempt]) -> ChatRequest | None:
    if not recorded:
        return None
    site = request.site

    def likeness(attempt: Attempt) -> tuple[bool, bool, bool, float]:
        other = attempt.request
        its = other.site
        same_component = bool(site and its and site.component == its.component)
        same_agent = bool(site and its and site.agent == its.agent)
        # The quick one: the exact ratio takes seconds for long prompts.
        ratio = difflib.SequenceMatcher(
            a=other.prompt.split(), b=request.prompt.split(), autojunk=False
        ).quick_ratio()
        return same_component, same_agent, other.attempt == request.attempt, ratio

    return max(recorded, key=likeness).request


def _differences(old: ChatRequest, new: ChatRequest) -> str:
    faults = []
    if old.site != new.site:
        faults.append(f"the place differs: recorded {old.site}, asked {new.site}")
    before, after = (settings_of(request) for request in (old, new))
    for name in before | after:
        if name == "system":  # which is a part of the prompt
            continue
        was, now = (json.dumps(value.get(name)) for value in (before, after))
        if was != now:  # as JSON, where 20 and 20.0 differ
            was, now = clip(was, 200), clip(now, 200)
            faults.append(f"{name} differs: recorded {was}, asked {now}")
    if old.messages != new.messages:
        diff = str(PromptDiff(old.prompt, new.prompt))
        faults.append(f"the prompt differs:\n{_around_changes(diff)}")
    if not faults:
        faults.append("nothing differs: it was asked once more than was recorded")
    return "; ".join(faults)


def _around_changes(diff: str) -> str:
    """Return the lines of a word diff that changed, each with the one before and after."""
    lines = diff.splitlines()
    changed = {n for n, line in enumerate(lines) if "[-" in line or "{+" in line}
    kept = [line for n, line in enumerate(lines) if {n - 1, n, n + 1} & changed]
    text = "\n".join(kept)
    return text if len(text) <= _MAX_DIFF else text[:_MAX_DIFF] + " …"
