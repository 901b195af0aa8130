"""Recorders: they record a run's calls, and answer calls from what is recorded.

A call asks a ``Recorder``, wherever the run is recorded. There are four of them:

- ``Unrecorded``: for a run on no tape, and for calls outside runs;
- ``LiveRecorder``: writes to a tape, and answers calls that the unfinished turn has made already;
- ``ReplayRecorder``: answers from a tape alone;
- ``Rehearsal``: for a turn that is only looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeAlias

from typing_extensions import TypedDict, Unpack

from llmsim_lab._util.jsontext import checked, dumps, loads, plain
from llmsim_lab._util.text import clip, counted, errors_behind, now
from llmsim_lab.errors import ConfigError, LLMFailureException, TapeError, TapeMiss
from llmsim_lab.tape._miss import explain_miss
from llmsim_lab.tape._tape import Tape
from llmsim_lab.tape.lines import (
    RecordedCall,
    RequestParts,
    call_body,
    checked_json,
    members,
    parts_of,
    run_body,
)
from llmsim_lab.types import Attempt, CallSite, ChatRequest

Identity: TypeAlias = tuple[object, ...]
"""What identifies a request: equal requests have the same."""
BY_PLAIN_CODE = "call"
"""The component of a call that a world's own code made, without a site."""


class Place(NamedTuple):
    """The identity of a request or of something from outside, and its number among equal ones."""

    identity: Identity
    nth: int


class Key(NamedTuple):
    """The place at which a request's attempt is kept, and the parts of its line."""

    place: Place
    parts: RequestParts


@dataclass(slots=True)
class Entry:
    """What a recorder knows of a request.

    Attributes:
        request: the request, with the turn that is being played.
        attempt: the recorded attempt; None if the request is to be made.
        key: where the recorder will keep the attempt; None for a recorder that keeps nothing.
    """

    request: ChatRequest
    attempt: Attempt | None = None
    key: Key | None = None


@dataclass(frozen=True, slots=True)
class Outside:
    """Something that is wanted from outside: a tool's answer, a file, a clock.

    Attributes:
        nth: how many equal ones were wanted before it in its turn.
        is_done: True if the tape has the outcome, so that nothing is to be done.
        result: the result; None if there is none.
        stopped: True if the work was begun and broken off, perhaps halfway.
        seconds: the time after which the code no longer waited for it, if that was recorded.
    """

    nth: int
    is_done: bool = False
    result: Any = None
    stopped: bool = False
    seconds: float = 0.0


class OutsideResult(TypedDict, total=False):
    """The outcome of something from outside.

    Attributes:
        result: the result, as JSON.
        once: True if it must never be done again.
        stopped: True if it was broken off.
        seconds: the time until then, if the code no longer waited for it.
    """

    result: object
    once: bool
    stopped: bool
    seconds: float


class Recorder(Protocol):
    """Records and answers the calls of the turn that is being played."""

    @property
    def tape(self) -> Tape | None:
        """The tape, if there is one."""
        ...

    @property
    def is_replay(self) -> bool:
        """True if all answers come from the tape."""
        ...

    def find(
        self,
        request: ChatRequest,
        first: Attempt | None = None,
    ) -> Entry:
        """Return what is recorded of a request.

        Args:
            request: the request.
            first: the call's first attempt, if this is its second.

        Raises:
            TapeMiss: the request should be on the tape, and is not.
        """
        ...

    def keep(self, entry: Entry, attempt: Attempt) -> None:
        """Record the attempt of a request, which gets its number.

        Raises:
            TapeError: the attempt cannot be written.
        """
        ...

    def find_outside(self, kind: str, key: object) -> Outside:
        """Return what is recorded of something from outside.

        Raises:
            TapeMiss: it should be on the tape, and is not.
        """
        ...

    def outside(
        self,
        kind: str,
        key: object,
        *,
        nth: int = 0,
        **outcome: Unpack[OutsideResult],
    ) -> None:
        """Record what came from outside.

        Raises:
            TapeError: the outcome cannot be written.
        """
        ...


class Known:
    """A turn's calls and what came from outside, by identity and number among equal ones.

    So equal requests are separate samples. They are numbered in the order in which they are asked,
    whatever the order of the answers. A second attempt has the number of the first.

    Args:
        calls: the turn's calls.
        outside: the lines of what came from outside in the turn.
        outcomes: for a run on no tape, earlier outcomes of what came from outside; new ones are
            added.
    """

    def __init__(
        self,
        calls: Iterable[RecordedCall] = (),
        outside: Iterable[Mapping[str, Any]] = (),
        outcomes: dict[Place, Outside] | None = None,
    ) -> None:
        self.attempts: dict[Place, Attempt] = {}
        # The caller's own dict, if one is given: it lasts longer than this try of the turn.
        self._outcomes: dict[Place, Outside] = {} if outcomes is None else outcomes
        self._asked: dict[Identity, Iterator[int]] = {}
        """Numbers equal requests."""
        self._nth: dict[int | None, int] = {}
        """The number among equal ones, by the number of the attempt."""
        for call in calls:
            # Rule 3: the line holds the number among equal ones. By the order of the lines, five
            # equal questions that were answered in reverse order would get each other's answers.
            identity = parts_of(call.attempt.request).identity
            self.keep(Place(identity, call.nth), call.attempt)
        for line in outside:
            self.keep_outside(line)

    def place_of(
        self,
        identity: Identity,
        first: Attempt | None = None,
    ) -> Place:
        """Return the place of a request that is asked now, and count it.

        Args:
            identity: the request's identity.
            first: the call's first attempt, if this is its second.
        """
        if first is not None:
            return Place(identity, self._nth.get(first.number, 0))
        # ``setdefault`` and ``next`` are atomic, so agents may ask in threads.
        return Place(identity, next(self._asked.setdefault(identity, count())))

    def keep(self, place: Place, attempt: Attempt) -> None:
        """Keep the attempt of a request."""
        self.attempts[place] = attempt
        self._nth[attempt.number] = place.nth

    def find_outside(self, kind: str, key: object) -> Outside:
        """Return what is known of something from outside that is wanted now."""
        place = self.place_of((kind, dumps(plain(key))))
        return self._outcomes.get(place) or Outside(place.nth)

    def keep_outside(self, line: Mapping[str, Any]) -> None:
        """Keep what a line says of something from outside; the latest line counts."""
        nth = line.get("nth", 0)
        place = Place((line["what"], dumps(line["key"])), nth)
        self._outcomes[place] = Outside(
            nth,
            is_done=True,
            result=line.get("result"),
            # Begun and without a result: the process was killed in between.
            stopped=line.get("stopped", "result" not in line),
            seconds=line.get("seconds", 0.0),
        )


class Unrecorded:
    """The recorder of a run on no tape, and of calls outside runs.

    Args:
        memory: outcomes of what may not be done twice; None for calls outside runs, which remember
            nothing.
    """

    tape: Tape | None = None
    is_replay = False

    def __init__(self, memory: Known | None = None) -> None:
        self._memory = memory

    def find(
        self,
        request: ChatRequest,
        first: Attempt | None = None,
    ) -> Entry:
        """Return that the request is to be made."""
        return Entry(request)

    def keep(self, entry: Entry, attempt: Attempt) -> None:
        """Keep nothing."""

    def find_outside(self, kind: str, key: object) -> Outside:
        """Return what is remembered, or that the work is to be done."""
        memory = self._memory or Known()  # outside runs each one is the first
        return memory.find_outside(kind, key)

    def outside(
        self,
        kind: str,
        key: object,
        *,
        nth: int = 0,
        **outcome: Unpack[OutsideResult],
    ) -> None:
        """Remember an outcome that may not be repeated."""
        if self._memory is not None and outcome.get("once"):
            # In the form of a tape's line.
            line = {"what": kind, "key": key, "nth": nth, **outcome}
            self._memory.keep_outside(plain(line))


class Rehearsal:
    """The recorder of a turn that is only looked at: nothing is asked or done."""

    tape: Tape | None = None
    is_replay = False

    def find(
        self,
        request: ChatRequest,
        first: Attempt | None = None,
    ) -> Entry:
        """Raise ConfigError, since a model would be asked."""
        raise ConfigError(
            f"the turn asks {request.model} by itself, and its answer has no probability that "
            "could be enumerated; ask a player: await ask(name, Reply, prompt, decide='sample')"
        )

    def keep(self, entry: Entry, attempt: Attempt) -> None:
        """Raise ConfigError, since nothing was asked."""
        raise ConfigError("a rehearsal keeps no answers")

    def find_outside(self, kind: str, key: object) -> Outside:
        """Raise ConfigError, since something would be done outside."""
        raise ConfigError(
            f"ask.outside({kind!r}, ...) brings something from outside, whose probabilities are "
            "not known; put it into the state before the first turn"
        )

    def outside(
        self,
        kind: str,
        key: object,
        *,
        nth: int = 0,
        **outcome: Unpack[OutsideResult],
    ) -> None:
        """Raise ConfigError, since nothing was done."""
        raise ConfigError(f"a rehearsal does nothing outside ({kind})")


class _AtTurn:
    """A recorder with a tape, which knows the turn that is being played.

    Args:
        tape: the tape.
        run: the run's number on it.
    """

    tape: Tape
    is_replay = False

    def __init__(self, tape: Tape, run: int) -> None:
        self.tape = tape
        self.run = run
        self._turn = 0
        self._known = Known()

    def _read_turn(self, run: int, turn: int) -> list[RecordedCall]:
        """Read a turn that a run played itself; returns its calls."""
        calls = self.tape.calls(run, turn=turn)
        self._turn = turn
        with checked(f"turn {turn} of run {run} on the tape {self.tape.path} is damaged"):
            self._known = Known(calls, self.tape.outside(run, turn))
        return calls

    def _at_turn(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the turn that is being played."""
        site = request.site
        turn = self._turn
        # A world's own call, by ``run.client``, belongs to the turn as well.
        if site is None:
            return replace(request, site=CallSite(component=BY_PLAIN_CODE, turn=turn))
        if site.turn == turn:
            return request
        # The origin of its values counts turns from the turn that it was made for.
        origin = None
        if site.turn is None:
            origin = request.origin
        return replace(
            request,
            site=replace(site, turn=turn),
            origin=origin,
        )


class LiveRecorder(_AtTurn):
    """Records a run's calls and turns; answers calls that the unfinished turn has already made.

    Args:
        tape: the tape.
        run: the run, which must not have another writer.

    Attributes:
        gone: why this recorder no longer writes, in words; empty while it may.

    Raises:
        TapeError: the tape has another writer, or is read-only.
    """

    def __init__(self, tape: Tape, run: int) -> None:
        super().__init__(tape, run)
        journal = tape.journal
        self._journal = journal
        self._is_under_way = False
        """True from a turn's beginning until its commit is noted; a Ctrl-C may prevent that."""
        self.gone = ""
        with journal.lock:  # another thread may begin to record the same run
            other = journal.recorders.get(run)
            if other is not None and not other.gone:
                raise TapeError(
                    f"run {run} on {tape.path} is recorded by another simulation of this process; "
                    "continue with that one, or close() it first"
                )
            self.restart_turn()  # calls that had failed when the run stopped are made again
            journal.recorders[run] = self

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make this process the tape's writer, while the run plays.

        Raises:
            TapeError: another process writes to the tape, or has continued this run.
        """
        with self.tape.writing():
            if self.gone:
                raise TapeError(
                    f"run {self.run} on {self.tape.path} {self.gone}; "
                    f"resume({str(self.tape.path)!r}, {self.run}) continues what is there"
                )
            yield

    def _held(self) -> AbstractContextManager[object]:
        """Return the locks for writing a line: while a run plays, the journal's is enough."""
        # Locking the file for each line would take longer than writing the line.
        if self._journal.writers and not self.gone:
            return self._journal.lock
        return self.writing()

    def begin_turn(self, turn: int) -> None:
        """Begin a turn, again if it was interrupted.

        Raises:
            TapeError: the tape has the turn already. A Ctrl-C between the turn's commit and the
                run's own note of it causes this.
        """
        if self._is_under_way:  # the last turn was not committed, and is played again
            self.restart_turn()
        # Set before the check: if the turn is refused, it is read again from the tape.
        self._is_under_way = True
        self._check_is_next(turn)

    def _check_is_next(self, turn: int) -> None:
        if turn in self._journal.index.turns[self.run]:
            raise TapeError(
                f"run {self.run} on {self.tape.path} has turn {turn} already, written just before "
                "an interruption: nothing is lost; close() this simulation; "
                f"resume({str(self.tape.path)!r}, {self.run}) continues what is there"
            )

    def find(
        self,
        request: ChatRequest,
        first: Attempt | None = None,
    ) -> Entry:
        """Return what the unfinished turn has recorded of a request, or that it is to be made."""
        request = self._at_turn(request)
        parts = parts_of(request)
        place = self._known.place_of(parts.identity, first)
        return Entry(
            request,
            self._known.attempts.get(place),
            Key(place, parts),
        )

    def keep(self, entry: Entry, attempt: Attempt) -> None:
        """Write an answered or failed request to the tape; it gets its number there.

        Raises:
            TapeError: the disk is full or fails, or the answer holds what JSON cannot.
        """
        assert entry.key is not None  # ``find`` made it
        place, parts = entry.key
        journal = self._journal
        site = attempt.request.site
        turn = None
        if site is not None:
            turn = site.turn
        with journal.lock, self._held():  # agents may ask in threads
            # Under the lock, since the line's texts have to come before it.
            try:
                body = call_body(
                    attempt,
                    place.nth,
                    parts,
                    journal.intern,
                )
            except ValueError as error:
                raise TapeError(f"an answer cannot be kept on {journal.path}: {error}") from error
            # The file gives the number.
            attempt.number = journal.append(
                self.run,
                "call",
                body,
                turn=turn,
            )
            self._known.keep(place, attempt)

    def find_outside(self, kind: str, key: object) -> Outside:
        """Return what the unfinished turn has recorded, or that the work is to be done."""
        return self._known.find_outside(kind, key)

    def outside(
        self,
        kind: str,
        key: object,
        *,
        nth: int = 0,
        **outcome: Unpack[OutsideResult],
    ) -> None:
        """Record what came from outside: a tool's answer, a file, a clock.

        For work that must never be done twice, a line with ``once=True`` comes first, and its
        outcome later. If the process ends in between, the work counts as done.

        Args:
            kind: the kind of thing, such as ``clock``.
            key: which one, as JSON.
            nth: its number among equal ones, as ``find_outside`` returned it.
            outcome: the outcome; see ``OutsideResult``.

        Raises:
            TapeError: the outcome holds something that JSON cannot; or the disk is full or fails.
        """
        line: dict[str, object] = {"what": kind, "key": key}
        if nth:
            line["nth"] = nth
        try:
            # Checked before anything is written: a value that JSON lacks must not damage the tape.
            body = checked_json({**line, **outcome})
        except ValueError as error:
            raise TapeError(f"what {kind} gave cannot be kept: {error}") from error
        with self._journal.lock, self._held():
            self._journal.append(
                self.run,
                "outside",
                b"," + body[1:-1],
                turn=self._turn,
            )
            self._known.keep_outside(loads(body))  # in the form that a replay will have

    def restart_turn(self, error: BaseException | None = None) -> None:
        """Begin the turn again, after it failed.

        Answered calls will be answered from the tape. Calls that failed for good will be made
        again; their attempts stay on the tape, with a mark.

        Args:
            error: why the turn failed. If a model's invalid answers were the reason, the calls of
                that component will be made again as well.
        """
        with self.writing():
            unfinished = self.tape.run(self.run).turns + 1
            self._read_turn(self.run, unfinished)
            self._forget_failed(_failure_in(error))

    def _forget_failed(self, failure: LLMFailureException | None) -> None:
        """Mark the calls that got no answer, and those whose answers made the turn fail."""
        attempts = self._known.attempts
        failed: set[int | None] = set()
        for attempt in attempts.values():
            if _failed_for_good(attempt, failure):
                failed.add(attempt.number)
                # If a call was cancelled in its second attempt, the answer of the first one counts.
                if attempt.reason != "cancelled":
                    failed.add(attempt.first)
        forgotten: dict[Place, int] = {}
        for place, attempt in attempts.items():
            if attempt.number is not None and attempt.number in failed:
                forgotten[place] = attempt.number
        if not forgotten:
            return
        for place in forgotten:
            # The counts stay: a call that is made again is the same sample of the same question.
            del attempts[place]
        body = members(calls=sorted(forgotten.values()))
        self._journal.append(
            self.run,
            "forget",
            body,
            turn=self._turn,
        )

    def commit_turn(
        self,
        turn: int,
        body: bytes,
        texts: Iterable[str] = (),
    ) -> None:
        """Write a whole turn.

        Args:
            turn: the turn's number.
            body: the other members of its line: its record, and its row of the run's frame.
            texts: what the line names by its digest, as JSON.

        Raises:
            TapeError: the disk is full or fails, or the tape has become another file.
        """
        with self._journal.lock, self._held():
            self._write_turn(turn, body, texts)
        # Last: after a Ctrl-C before this line, ``begin_turn`` says that the turn is on the tape.
        self._turn = turn + 1
        self._known = Known()
        self._is_under_way = False

    def _write_turn(
        self,
        turn: int,
        body: bytes,
        texts: Iterable[str],
    ) -> None:
        for text in texts:
            self._journal.intern(text)
        self._journal.append(
            self.run,
            "turn",
            body,
            turn=turn,
        )

    def replace_turn(
        self,
        turn: int,
        body: bytes,
        texts: Iterable[str] = (),
    ) -> None:
        """Write the latest turn again, after an intervention changed it; see ``commit_turn``.

        Raises:
            TapeError: the disk is full or fails, or the tape has a later turn.
        """
        with self.writing(), self._journal.lock:
            self._check_is_next(turn + 1)
            self._write_turn(turn, body, texts)

    def describe(self, more: Mapping[str, object]) -> None:
        """Write the run's manifest again, with new entries."""
        # The whole manifest: readers need only the latest line, and long parts are shared texts.
        manifest = {**self.tape.run(self.run).manifest, **more}
        with self._journal.lock, self._held():
            self._journal.append(
                self.run,
                "set",
                run_body(manifest, self._journal.intern),
            )

    def end(self, outcome: str | None) -> None:
        """Record how the run ended; None if this process continues it."""
        if outcome is None:
            # With the process, so that an error can say who writes to the tape.
            kind = "set"
            body = members(process=os.getpid())
        else:
            kind = "end"
            body = members(ended=now(), outcome=outcome)
        with self._journal.lock, self._held():
            self._journal.append(self.run, kind, body)

    def close(self) -> None:
        """Stop writing, so that another recorder can have the run."""
        self.gone = "was closed by this simulation, or pruned"


def _failure_in(error: BaseException | None) -> LLMFailureException | None:
    """Return the model failure that an error is, or that caused it."""
    # A world's code may raise its own error from a call's, or while it handles one.
    for cause in errors_behind(error):
        if isinstance(cause, LLMFailureException):
            return cause
    return None


def _failed_for_good(last: Attempt, failure: LLMFailureException | None) -> bool:
    """Return True if a call with this last attempt is to be made again."""
    if last.reason is None:
        return False
    # After a first attempt that allows another one, the call has not ended.
    if last.request.attempt == 1 and last.retry:
        return False
    if last.reply is None:
        return True
    # Only invalid answers. An agent may have used a default for one; if the turn failed for another
    # reason, the default has to stay.
    if failure is None:
        return False
    if failure.component is None:
        return True
    site = last.request.site
    return site is not None and site.component == failure.component


class ReplayRecorder(_AtTurn):
    """Answers from the tape alone; a request that is not there is a ``TapeMiss``.

    Args:
        tape: the tape.
        run: the run to replay, with the turns that it shares with its parents.
    """

    is_replay = True

    def __init__(self, tape: Tape, run: int) -> None:
        super().__init__(tape, run)
        self._by_number: dict[int, Attempt] = {}
        self._of_other_turns: dict[int, Attempt] = {}

    def begin_turn(self, turn: int) -> None:
        """Read the calls of a turn."""
        # A fork's first turns are recorded with the runs that it came from.
        player = self.tape.player(self.run, turn)
        calls = self._read_turn(player, turn)
        self._by_number = {call.id: call.attempt for call in calls}

    def find(
        self,
        request: ChatRequest,
        first: Attempt | None = None,
    ) -> Entry:
        """Return the recorded attempt of a request.

        Raises:
            TapeMiss: the request was never made; the message shows the nearest one, and the
                difference.
        """
        request = self._at_turn(request)
        place = self._known.place_of(parts_of(request).identity, first)
        recorded = self._known.attempts.get(place)
        # Only now is the nearest request looked for, since that takes long.
        if recorded is None:
            raise TapeMiss(
                explain_miss(
                    request,
                    self._by_number.values(),
                    run=self.run,
                )
            )
        return Entry(request, recorded)

    def keep(self, entry: Entry, attempt: Attempt) -> None:
        """Keep nothing, since the tape has it."""

    def find_outside(self, kind: str, key: object) -> Outside:
        """Return what came from outside.

        Raises:
            TapeMiss: it is not on the tape.
        """
        outcome = self._known.find_outside(kind, key)
        if not outcome.is_done:
            name = clip(f"{kind} {dumps(plain(key))}", 200)
            times = counted(outcome.nth + 1, "time")
            raise TapeMiss(
                f"run {self.run} has nothing recorded for {name} in turn {self._turn}, "
                f"asked {times}; a replay does nothing outside: fork the run to continue"
            )
        return outcome

    def outside(
        self,
        kind: str,
        key: object,
        *,
        nth: int = 0,
        **outcome: Unpack[OutsideResult],
    ) -> None:
        """Keep nothing, since the tape has it."""

    def attempt(self, number: int) -> Attempt:
        """Return a recorded attempt by its number, one object however often it is named."""
        attempt = self._by_number.get(number) or self._of_other_turns.get(number)
        if attempt is None:
            attempt = self.tape.call(number).attempt
            self._of_other_turns[number] = attempt
        return attempt
