"""What the layers of a call hand down, and what they give back.

Nothing changes them, but for the two fields that are filled in later: a call's seed, and the value
that was read. They are not frozen, since each call makes several, and one that is frozen takes five
times as long to make.
"""

from __future__ import annotations

import math
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._config import LLMConfig
from llmsim_lab.llm.scope import Scope
from llmsim_lab.types import Attempt, CallRecord, ChatReply, ChatRequest

T = TypeVar("T")


class TextLimit(NamedTuple):
    """The longest text that a schema allows in a field of a reply.

    Attributes:
        field: its name in the class.
        name: its name in the schema, and so in the reply.
        longest: characters.
    """

    field: str
    name: str
    longest: int


@dataclass(slots=True)
class CallContext(Generic[T]):
    """One attempt of a call: what is asked, for whom, and what limits it.

    Attributes:
        request: what is asked.
        read: parses a reply; raises ``InvalidReply`` for one that is not what was asked for.
        config: the client's settings.
        scope: the run that the call belongs to: its recorder, log, budget, watch and deadline.
        seed: of the server's sampler, where the run gives the call its own. Beside the request, not
            in it: a recording is found by what was asked, and the seed follows from the run's own.
        total_s: the longest time for one reply, seconds.
        text_limits: of the reply's texts: one that has reached its longest length was cut.
        first_attempt: the one that failed, where this is the second.
        wait_s: how long the second attempt waits before it is sent, seconds.
    """

    request: ChatRequest
    read: Callable[[ChatReply], T]
    config: LLMConfig
    scope: Scope
    seed: int | None = None
    total_s: float = math.inf
    text_limits: Sequence[TextLimit] = ()
    first_attempt: Attempt | None = None
    wait_s: float = 0.0


@dataclass(slots=True)
class Outcome(Generic[T]):
    """What became of an attempt; a fault of the model is an outcome, not an error.

    Attributes:
        attempt: the request with its reply, or with what was wrong.
        fault: what was wrong; a ``CancelledError`` where the caller waits no longer. None if
            nothing was, as far as the layer knows.
        value: what was read in the reply, once that was done.
    """

    attempt: Attempt
    fault: BackendError | CancelledError | None = None
    value: T | None = None


class Answered(NamedTuple, Generic[T]):
    """What was read in the reply to a call, and all attempts of the call."""

    value: T
    call: CallRecord
