"""Recording one run, and answering from what is recorded of it.

``Recorder`` is what a call asks, whatever the run is recorded on. It has four implementers:

- ``Unrecorded``: the run is on no tape, or there is no run;
- ``LiveRecorder``: writes to a tape, and answers what the unfinished turn has already asked;
- ``ReplayRecorder``: answers from a tape, and has nothing else;
- ``Rehearsal``: the turn is only looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeAlias

from typing_extensions import TypedDict, Unpack

from llmsim_lab._util.jsontext import dumps, loads, plain
from llmsim_lab._util.text import clip, counted, now
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
"""What is asked: equal ones have the same."""
BY_PLAIN_CODE = "call"
"""The component of a call that a world's own code made, with no site of its own."""


class Place(NamedTuple):
    """Of a request, or of something from outside: what is asked, and which of equal ones it is."""

    identity: Identity
    nth: int


class Key(NamedTuple):
    """Where what becomes of a request is kept, and the parts of its line."""

    place: Place
    parts: RequestParts


@dataclass(slots=True)
class Entry:
    """What a recorder has on a request.

    Attributes:
        request: the request with the turn that is being played.
        attempt: what became of it, where that is recorded; None if it is to be made.
        key: where the recorder will keep what becomes of it; None of one that keeps nothing.
    """

    request: ChatRequest
    attempt: Attempt | None = None
    key: Key | None = None


@dataclass(frozen=True, slots=True)
class Outside:
    """What is wanted from outside: a tool's answer, a file, a clock.

    Attributes:
        nth: how many equal ones were wanted before it in its turn.
        is_done: whether the tape has what became of it, so that nothing is to be done.
        result: what came; None if nothing did.
        stopped: whether it was begun and broken off, so that it is not known how far it came.
        seconds: after how long the code that wanted it waited no longer, where that was recorded.
    """

    nth: int
    is_done: bool = False
    result: Any = None
    stopped: bool = False
    seconds: float = 0.0


class OutsideResult(TypedDict, total=False):
    """What became of something from outside.

    Attributes:
        result: what came, as JSON.
        once: True if it must never be done again.
        stopped: True if it was broken off.
        seconds: until then, if the code that wanted it waited no longer.
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
        """Whether all answers come from the tape."""
        ...

    def find(
        self,
        request: ChatRequest,
        first: Attempt | None = None,
    ) -> Entry:
        """Return what is recorded of a request.

        Args:
            request: what is asked.
            first: the call's first attempt, if this is its second.

        Raises:
            TapeMiss: it would have to be recorded, and is not.
        """
        ...

    def keep(self, entry: Entry, attempt: Attempt) -> None:
        """Record what became of a request, which gets its number.

        Raises:
            TapeError: it cannot be written.
        """
        ...

    def find_outside(self, kind: str, key: object) -> Outside:
        """Return what is recorded of something from outside.

        Raises:
            TapeMiss: it would have to be recorded, and is not.
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
            TapeError: it cannot be written.
        """
        ...


class Known:
    """A turn's calls, and what came from outside, by what was asked and which of equal ones it was.

    So repeats are samples of their own. They are counted in the order in which they are asked,
    whatever the order of the answers, and a second attempt has its first one's count.

    Args:
        calls: of the turn.
        outside: lines of what came from outside in it.
        outcomes: what came from outside before, in a run on no tape, which is kept there.
    """

    def __init__(
        self,
        calls: Iterable[RecordedCall] = (),
        outside: Iterable[Mapping[str, Any]] = (),
        outcomes: dict[Place, Outside] | None = None,
    ) -> None:
        self.attempts: dict[Place, Attempt] = {}
        # The caller's own, where it hands one in: it outlives this try of the turn.
        self._outcomes: dict[Place, Outside] = {} if outcomes is None else outcomes
        self._asked: dict[Identity, Iterator[int]] = {}
        """Counts equal ones."""
        self._nth: dict[int | None, int] = {}
        """By number of an attempt, which of equal ones it was."""
        for call in calls:
            # Rule 3: which of equal ones it was stands in its line; in the order of the lines,
            # five equal questions that were answered in reverse would come back swapped.
            identity = parts_of(call.attempt.request).identity
            self.keep(Place(identity, call.nth), call.attempt)
        for line in outside:
            self.keep_outside(line)

    def place_of(
        self,
        identity: Identity,
        first: Attempt | None = None,
    ) -> Place:
        """Return the place of what is asked now, which is counted.

        Args:
            identity: what is asked.
            first: the call's first attempt, if this is its second.
        """
        if first is not None:
            return Place(identity, self._nth.get(first.number, 0))
        # ``setdefault`` and ``next`` are one step each, also where agents ask in threads.
        return Place(identity, next(self._asked.setdefault(identity, count())))

    def keep(self, place: Place, attempt: Attempt) -> None:
        """Record what became of a request."""
        self.attempts[place] = attempt
        self._nth[attempt.number] = place.nth

    def find_outside(self, kind: str, key: object) -> Outside:
        """Return what is known of something from outside, now that it is wanted."""
        place = self.place_of((kind, dumps(plain(key))))
        return self._outcomes.get(place) or Outside(place.nth)

    def keep_outside(self, line: Mapping[str, Any]) -> None:
        """Record what a line says of something from outside; a later one of the same counts."""
        nth = line.get("nth", 0)
        place = Place((line["what"], dumps(line["key"])), nth)
        self._outcomes[place] = Outside(
            nth,
            is_done=True,
            result=line.get("result"),
            # Begun, and nothing came of it: the process was killed in between.
            stopped=line.get("stopped", "result" not in line),
            seconds=line.get("seconds", 0.0),
        )


class Unrecorded:
    """What stands where a recorder would for a run on no tape, and for calls of plain code.

    Args:
        memory: what became of things from outside that may not be done twice; None for plain code,
            which remembers nothing.
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
        """Return what is remembered of this, or that it is to be done."""
        memory = self._memory or Known()  # of plain code each is the first
        return memory.find_outside(kind, key)

    def outside(
        self,
        kind: str,
        key: object,
        *,
        nth: int = 0,
        **outcome: Unpack[OutsideResult],
    ) -> None:
        """Remember what may not be done twice."""
        if self._memory is not None and outcome.get("once"):
            # As a tape's line would say it.
            line = {"what": kind, "key": key, "nth": nth, **outcome}
            self._memory.keep_outside(plain(line))


class Rehearsal:
    """Stands where a recorder would in a turn that is only looked at: nothing is asked or done."""

    tape: Tape | None = None
    is_replay = False

    def find(
        self,
        request: ChatRequest,
        first: Attempt | None = None,
    ) -> Entry:
        """Raise ConfigError: a model would be asked."""
        raise ConfigError(
            f"the turn asks {request.model} by itself, and its answer has no probability that "
            "could be enumerated; ask a player: await ask(name, Reply, prompt, decide='sample')"
        )

    def keep(self, entry: Entry, attempt: Attempt) -> None:
        """Raise ConfigError: nothing was asked."""
        raise ConfigError("a rehearsal keeps no answers")

    def find_outside(self, kind: str, key: object) -> Outside:
        """Raise ConfigError: something would be done outside."""
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
        """Raise ConfigError: nothing was done."""
        raise ConfigError(f"a rehearsal does nothing outside ({kind})")


class _AtTurn:
    """What records or answers the calls of a turn, and so knows which turn it is.

    Args:
        tape: the tape.
        run: the run's number there.
    """

    tape: Tape
    is_replay = False

    def __init__(self, tape: Tape, run: int) -> None:
        self.tape = tape
        self.run = run
        self._turn = 0
        self._known = Known()

    def _read_turn(self, run: int, turn: int) -> list[RecordedCall]:
        """Take in what the tape has of a turn that a run played itself; returns its calls."""
        calls = self.tape.calls(run, turn=turn)
        self._turn = turn
        self._known = Known(calls, self.tape.outside(run, turn))
        return calls

    def _at_turn(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the turn that is being played."""
        site = request.site
        turn = self._turn
        # A world's own call, by ``run.client``: it belongs to the turn all the same.
        if site is None:
            return replace(request, site=CallSite(component=BY_PLAIN_CODE, turn=turn))
        if site.turn == turn:
            return request
        # Where its values came from names turns relative to the one that it was made for.
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
        gone: why this one writes no more, in words; empty while it may.

    Raises:
        TapeError: the tape has another writer, or is read-only.
    """

    def __init__(self, tape: Tape, run: int) -> None:
        super().__init__(tape, run)
        journal = tape.journal
        self._journal = journal
        self._is_under_way = False
        """From a turn's beginning until its commit is known here, which a Ctrl-C may prevent."""
        self.gone = ""
        with journal.lock:  # another thread may want the same run
            other = journal.recorders.get(run)
            if other is not None and not other.gone:
                raise TapeError(
                    f"run {run} on {tape.path} is recorded by another simulation of this process; "
                    "continue with that one, or close() it first"
                )
            self.restart_turn()  # what had failed when the run stopped is asked again
            journal.recorders[run] = self

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the tape's writer, as while the run plays.

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
        """Return what makes lines possible: the journal's lock and no more while a run plays."""
        # Taking the file's lock for each line would take longer than writing it.
        if self._journal.writers and not self.gone:
            return self._journal.lock
        return self.writing()

    def begin_turn(self, turn: int) -> None:
        """Begin a turn, again if it was interrupted.

        Raises:
            TapeError: the tape has the turn already, as after a Ctrl-C between its commit and the
                run.
        """
        if self._is_under_way:  # the last one was not committed: it is played once more
            self.restart_turn()
        # Before the check, so that a turn that was refused is read again from the tape.
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
        assert entry.key is not None  # as ``find`` made it
        place, parts = entry.key
        journal = self._journal
        site = attempt.request.site
        turn = None
        if site is not None:
            turn = site.turn
        with journal.lock, self._held():  # agents may ask in threads
            # Under the lock, since the texts that it names have to stand above it.
            try:
                body = call_body(
                    attempt,
                    place.nth,
                    parts,
                    journal.intern,
                )
            except ValueError as error:
                raise TapeError(f"an answer cannot be kept on {journal.path}: {error}") from error
            # The number is the file's, so it is known only now.
            attempt.number = journal.append(
                self.run,
                "call",
                body,
                turn=turn,
            )
            self._known.keep(place, attempt)

    def find_outside(self, kind: str, key: object) -> Outside:
        """Return what the unfinished turn has recorded of this, or that it is to be done."""
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

        Of what must never be done twice, first ``once=True`` alone, and then what became of it: if
        it was cut off in between, it counts as done.

        Args:
            kind: what kind of thing, such as ``clock``.
            key: which one, as JSON.
            nth: which of equal ones, as ``find_outside`` said.
            outcome: what became of it, see ``OutsideResult``.

        Raises:
            TapeError: it holds what JSON cannot; the disk is full or fails.
        """
        line: dict[str, object] = {"what": kind, "key": key}
        if nth:
            line["nth"] = nth
        try:
            # Checked before anything is written: a value that JSON lacks must not break the tape.
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
            self._known.keep_outside(loads(body))  # as a replay will have it

    def restart_turn(self, error: BaseException | None = None) -> None:
        """Begin the turn again, after it failed.

        Answered calls will be answered from the tape. Calls that failed for good will be made
        again; their attempts stay on the tape, marked.

        Args:
            error: why the turn failed; where a model's invalid answers were the reason, the calls
                of that component will be made again as well.
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
                # Of a call that was cancelled in its second attempt, the first one's answer counts.
                if attempt.reason != "cancelled":
                    failed.add(attempt.first)
        forgotten: dict[Place, int] = {}
        for place, attempt in attempts.items():
            if attempt.number is not None and attempt.number in failed:
                forgotten[place] = attempt.number
        if not forgotten:
            return
        for place in forgotten:
            # Their counts stay: a call that is made again is the same sample of the same question.
            del attempts[place]
        body = members(calls=sorted(forgotten.values()))
        self._journal.append(
            self.run,
            "forget",
            body,
            turn=self._turn,
        )

    def commit_turn(self, turn: int, body: bytes) -> None:
        """Write a whole turn.

        Args:
            turn: its number.
            body: the other members of its line: its record, and its row of the run's frame.

        Raises:
            TapeError: the disk is full or fails, or the tape is another file by now.
        """
        with self._journal.lock, self._held():
            self._journal.append(
                self.run,
                "turn",
                body,
                turn=turn,
            )
        # Last: until then a Ctrl-C leaves the turn under way, and ``begin_turn`` says that it is
        # on the tape.
        self._turn = turn + 1
        self._known = Known()
        self._is_under_way = False

    def replace_turn(self, turn: int, body: bytes) -> None:
        """Write the latest turn again, after it was changed from outside.

        Raises:
            TapeError: the disk is full or fails, or the tape has a later turn.
        """
        with self.writing():
            self._check_is_next(turn + 1)
            self._journal.append(
                self.run,
                "turn",
                body,
                turn=turn,
            )

    def describe(self, more: Mapping[str, object]) -> None:
        """Write the run's manifest again, with what was not known at its start."""
        # All of it again: a reader needs the latest line only, and what is long is a shared text.
        manifest = {**self.tape.run(self.run).manifest, **more}
        with self._journal.lock, self._held():
            self._journal.append(
                self.run,
                "set",
                run_body(manifest, self._journal.intern),
            )

    def end(self, outcome: str | None) -> None:
        """Record how the run ended; None if it continues, by this process."""
        if outcome is None:
            # The process, so that an error can name who writes to the tape.
            kind = "set"
            body = members(process=os.getpid())
        else:
            kind = "end"
            body = members(ended=now(), outcome=outcome)
        with self._journal.lock, self._held():
            self._journal.append(self.run, kind, body)

    def close(self) -> None:
        """Let another writer have the run."""
        self.gone = "was closed by this simulation, or pruned"


def _failure_in(error: BaseException | None) -> LLMFailureException | None:
    """Return the model failure that an error is, or comes from."""
    # A world's own code may raise its error from a call's, or while it handles one.
    while error is not None and not isinstance(error, LLMFailureException):
        error = error.__cause__ or error.__context__
    return error


def _failed_for_good(last: Attempt, failure: LLMFailureException | None) -> bool:
    """Return True if a call, of which this is the last attempt, is to be made again."""
    if last.reason is None:
        return False
    # A first attempt that may be tried again is not yet the end of its call.
    if last.request.attempt == 1 and last.retry:
        return False
    if last.reply is None:
        return True
    # Invalid answers only. Its agent may have used a default; then the turn failed for another
    # reason, and the default has to stay.
    if failure is None:
        return False
    if failure.component is None:
        return True
    site = last.request.site
    return site is not None and site.component == failure.component


class ReplayRecorder(_AtTurn):
    """Answers from the tape only; a request that is not there is a ``TapeMiss``.

    Args:
        tape: the tape.
        run: the run to replay, with the turns that it shares with its parents.
    """

    is_replay = True

    def __init__(self, tape: Tape, run: int) -> None:
        super().__init__(tape, run)
        self._by_number: dict[int, Attempt] = {}

    def begin_turn(self, turn: int) -> None:
        """Read the calls of a turn."""
        # A fork's first turns are recorded with the runs it comes from.
        player = self.tape.player(self.run, turn)
        calls = self._read_turn(player, turn)
        self._by_number = {call.id: call.attempt for call in calls}

    def find(
        self,
        request: ChatRequest,
        first: Attempt | None = None,
    ) -> Entry:
        """Return what became of a request.

        Raises:
            TapeMiss: it was never made; the message shows how it differs from the nearest one.
        """
        request = self._at_turn(request)
        place = self._known.place_of(parts_of(request).identity, first)
        recorded = self._known.attempts.get(place)
        # The nearest recorded request is looked for only now: it takes long.
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
        """Keep nothing: it is on the tape."""

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
        """Keep nothing: it is on the tape."""

    def attempt(self, number: int) -> Attempt:
        """Return a recorded attempt by its number; this turn's without reading the file."""
        return self._by_number.get(number) or self.tape.call(number).attempt
