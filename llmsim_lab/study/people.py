"""Runs of a study that people play: what they decided, and what somebody decided for them."""

from __future__ import annotations

from typing import NamedTuple

from llmsim_lab.llm import Person
from llmsim_lab.run import Run
from llmsim_lab.run.people import OTHERS
from llmsim_lab.run.turn import Answer
from llmsim_lab.study.playing import Unit
from llmsim_lab.types import HUMAN


class GroupOfPeople(NamedTuple):
    """How much of one run was decided by the people who played it.

    Attributes:
        arm: the run's arm.
        unit: its seed.
        decisions: how often a person was asked.
        filled: how often something stood in for the answer, with the status ``fallback``.
    """

    arm: str
    unit: Unit
    decisions: int
    filled: int

    @property
    def is_without_people(self) -> bool:
        """Whether no person decided anything in it."""
        return self.filled == self.decisions


def seats_of_people(run: Run) -> list[str]:
    """Return the names of a run's seats in which people answer."""
    seats = []
    for name, player in run.players.items():
        if isinstance(getattr(player, "backend", None), Person):
            seats.append(OTHERS if name == "*" else name)
    # A person in the model's place has all seats that nobody else has.
    return seats or [OTHERS]


def answers_of_people(run: Run) -> list[Answer]:
    """Return the decisions that people were asked for, with what stood in for them."""
    answers: list[Answer] = []
    for turn in run.turns:
        answers += turn.answers
    # Of several calls the person's comes first, and that of a model which stands in later.
    answered = [answer for answer in answers if answer.calls]
    return [answer for answer in answered if answer.calls[0].request.model == HUMAN]
