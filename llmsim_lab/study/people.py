"""Runs of a study that people play: how many decisions people made, and how many were filled in."""

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
        unit: the run's seed.
        decisions: how often a person was asked.
        filled: how often a stand-in answered for a person, with the status ``fallback``.
    """

    arm: str
    unit: Unit
    decisions: int
    filled: int

    @property
    def is_without_people(self) -> bool:
        """Whether no person decided anything in the run."""
        return self.filled == self.decisions


def seats_of_people(run: Run) -> list[str]:
    """Return the names of a run's seats in which people answer."""
    seats = []
    for name, player in run.players.items():
        if isinstance(getattr(player, "backend", None), Person):
            seats.append(OTHERS if name == "*" else name)
    # A person in place of the model has all seats that no other player has.
    return seats or [OTHERS]


def answers_of_people(run: Run) -> list[Answer]:
    """Return the decisions that people were asked for, including those of stand-ins."""
    answers: list[Answer] = []
    for turn in run.turns:
        answers += turn.answers
    # A person's call comes first, that of a model that stands in comes later.
    answered = [answer for answer in answers if answer.calls]
    return [answer for answer in answered if answer.calls[0].request.model == HUMAN]
