"""What a call asks of a run's recording, whatever it is: a tape, a replay, nothing, a rehearsal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from llmsim_lab.errors import LabError
from llmsim_lab.tape._tape import Tape
from llmsim_lab.types import Attempt, ChatRequest


@dataclass(slots=True)
class Entry:
    """What a recorder has on a request.

    Attributes:
        request: the request with the turn that is being played.
        known: what became of it, where that is recorded; None if it is to be made.
        key: where the recorder will keep what becomes of it.
    """

    request: ChatRequest
    known: Attempt | None = None
    key: Any = None


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


class Recorder(Protocol):
    """Records and answers the calls of the turn that is being played.

    There are four: ``LiveRecorder`` and ``ReplayRecorder`` have a tape, ``Unrecorded`` has none,
    and ``Rehearsal`` is for a turn that is only looked at.
    """

    @property
    def tape(self) -> Tape | None:
        """The tape, if there is one."""
        ...

    @property
    def is_replay(self) -> bool:
        """Whether all answers come from the tape."""
        ...

    def find(self, request: ChatRequest, first: Attempt | None = None) -> Entry:
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

    def find_outside(self, what: str, key: Any) -> Outside:
        """Return what is recorded of something from outside.

        Raises:
            TapeMiss: it would have to be recorded, and is not.
        """
        ...

    def outside(self, what: str, key: Any, *, nth: int = 0, **outcome: Any) -> None:
        """Record what came from outside.

        Raises:
            TapeError: it cannot be written.
        """
        ...


class NotRehearsed(LabError):  # noqa: N818 - not a fault: a turn is only looked at
    """A rehearsal came to something that only a turn that counts may do."""


class Rehearsal:
    """Stands where a recorder would in a turn that is only looked at: nothing is asked or done."""

    tape: Tape | None = None
    is_replay = False

    def find(self, request: ChatRequest, first: Attempt | None = None) -> Entry:
        """Raise NotRehearsed: a model would be asked."""
        raise NotRehearsed(f"a rehearsal asks no model ({request.model})")

    def keep(self, entry: Entry, attempt: Attempt) -> None:
        """Raise NotRehearsed: nothing was asked."""
        raise NotRehearsed("a rehearsal keeps no answers")

    def find_outside(self, what: str, key: Any) -> Outside:
        """Raise NotRehearsed: something would be done outside."""
        raise NotRehearsed(f"a rehearsal does nothing outside ({what})")

    def outside(self, what: str, key: Any, *, nth: int = 0, **outcome: Any) -> None:
        """Raise NotRehearsed: nothing was done."""
        raise NotRehearsed(f"a rehearsal does nothing outside ({what})")
