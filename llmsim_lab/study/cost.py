"""What turns take: model calls, tokens and time, measured or counted in turns played by chance."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Self

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.llm.choice import measures
from llmsim_lab.llm.scope import scoped
from llmsim_lab.run import Run
from llmsim_lab.run.chance import chance_reply
from llmsim_lab.run.guided import leave_out_warnings
from llmsim_lab.tape import Tape
from llmsim_lab.types import HUMAN, Attempt

_MOST_TURNS = 10
_ENOUGH_CALLS = 1_000
"""After so many calls chance stops playing: a turn with thousands of prompts takes seconds."""
_MOST_IN_ALL = 10
"""Up to so many arms are played at full length; more arms share the same time."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a call, a turn or a run takes; NaN where that is not known.

    Attributes:
        calls: model calls; a second attempt is not a call of its own.
        tokens: the tokens of prompts and replies.
        seconds: how long playing took.
    """

    calls: float = math.nan
    tokens: float = math.nan
    seconds: float = math.nan

    @classmethod
    def of_turn(
        cls,
        row: Mapping[str, Any],
        asked_s: float,
    ) -> Self:
        """Return what a turn took.

        Args:
            row: the turn's row in the run's frame.
            asked_s: how long the turn's requests took, seconds.
        """
        # None on tapes of turns in which nothing was asked.
        calls = row["calls"] or 0
        seconds = row["seconds"] or 0
        if calls:
            # The smaller of two: a turn played beside other runs also waited for them, and requests
            # sent at the same time take longer together than the turn.
            seconds = min(seconds, asked_s)
        return cls(calls, row["tokens"] or 0, seconds)

    @classmethod
    def of_attempt(cls, attempt: Attempt) -> Self:
        """Return what a request took."""
        tokens = 0
        if attempt.reply is not None:
            # None where the server does not count tokens.
            tokens += attempt.reply.prompt_tokens or 0
            tokens += attempt.reply.reply_tokens or 0
        # A second attempt belongs to the same call, but takes tokens and time of its own.
        calls = 1 if attempt.first is None else 0
        return cls(calls, tokens, attempt.seconds)

    @classmethod
    def total(cls, several: Sequence[Costs]) -> Self:
        """Return the sum of several costs."""
        # fsum keeps NaN, and does not depend on the order of the runs.
        return cls(
            math.fsum(costs.calls for costs in several),
            math.fsum(costs.tokens for costs in several),
            math.fsum(costs.seconds for costs in several),
        )

    def times(self, number: float) -> Costs:
        """Return the costs multiplied by a number."""
        return Costs(
            self.calls * number,
            self.tokens * number,
            self.seconds * number,
        )


def seconds_of_calls(tape: Tape, run: int) -> Mapping[int, float]:
    """Return how long a run's requests took, by turn, without earlier attempts of a call."""
    seconds: defaultdict[int, float] = defaultdict(float)
    for call in tape.calls(run):
        site = call.attempt.request.site
        if site is not None and site.turn is not None:
            seconds[site.turn] += call.attempt.seconds
    return seconds


def cost_of_call(measured: Sequence[Costs]) -> Costs:
    """Return the mean cost of one call; if no call was made, tokens and seconds are not known."""
    total = Costs.total(measured)
    if not total.calls:
        # Turns in which only rules answer tell nothing about a model's tokens and seconds.
        return Costs(calls=1)
    return total.times(1 / total.calls)


class Count:
    """Counts the model calls of turns in which chance answers; no model and no person is asked.

    Args:
        arms: how many arms share the playing time.

    Attributes:
        turns: how many turns were played.
        calls: how many calls the turns made.
        chooses: whether some calls measure a choice.
        attempts: the requests of all calls.
    """

    def __init__(self, arms: int = 1) -> None:
        # Hundreds of arms would otherwise be played for minutes before the first call.
        self._share = min(1.0, _MOST_IN_ALL / arms)
        self.turns = 0
        self.calls = 0
        self.chooses = False
        self.attempts: list[Attempt] = []

    @property
    def is_enough(self) -> bool:
        """Whether no more turns need to be played."""
        if not self.turns:
            return False
        are_many_turns = self.turns >= _MOST_TURNS * self._share
        are_many_calls = self.calls >= _ENOUGH_CALLS * self._share
        return are_many_turns or are_many_calls

    @property
    def each(self) -> float:
        """The mean number of calls in a turn."""
        if not self.turns:
            return 0.0
        return self.calls / self.turns

    async def play(self, run: Run) -> None:
        """Play a turn of a run that is on no tape."""
        # Each warning comes when the run is played.
        leave_out_warnings(run)
        # Seeded by the turn, so that the same study has the same plan.
        rng = Random(run.turn_number)
        with scoped(stand_in=partial(chance_reply, rng=rng)):
            turn = await run.step()
        self.turns += 1
        for call in turn.calls:
            request = call.history[0].request
            # A person costs neither tokens nor the model's time.
            if request.model != HUMAN:
                self.calls += 1
                self.attempts += call.history
                self.chooses = self.chooses or measures(request)


def any_client() -> LLMClient:
    """Return a client for a run in which chance answers in its place."""
    config = LLMConfig(model="chance")
    # Without replies: it is never asked.
    return LLMClient(config, ScriptedBackend([]))
