"""What every validator does: mark actions, never drop one, and count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypedDict

from llmsim_lab.models import Action, SimulationState, ValidationResult

__all__ = ["AlwaysValid", "Validator", "ValidatorStats"]


class ValidatorStats(TypedDict):
    """How many actions were judged and how; the rate is 0 before the first."""

    total_validated: int
    accepted: int
    rejected: int
    rejection_rate: float


class Validator(ABC):
    """Marks each action as validated or not."""

    def __init__(self) -> None:
        self._accepted = 0
        self._rejected = 0

    @abstractmethod
    async def validate_actions(
        self, actions: Sequence[Action], state: SimulationState
    ) -> list[Action]:
        """Return the actions marked: as many as came in, in the same order."""

    def get_stats(self) -> ValidatorStats:
        """Return the counts since this validator was made."""
        total = self._accepted + self._rejected
        return ValidatorStats(
            total_validated=total,
            accepted=self._accepted,
            rejected=self._rejected,
            rejection_rate=self._rejected / total if total else 0.0,
        )

    def recount(self, actions: Iterable[Action]) -> None:
        """Begin the counts anew, with these marked actions: those of a run's whole turns."""
        marks = [action.validated for action in actions]
        self._accepted = sum(marks)
        self._rejected = len(marks) - self._accepted

    def _mark(self, actions: Sequence[Action], results: Sequence[ValidationResult]) -> list[Action]:
        """Return marked copies and count them."""
        marked = [
            action.model_copy(update={"validated": result.is_valid, "validation_result": result})
            for action, result in zip(actions, results, strict=True)
        ]
        accepted = sum(result.is_valid for result in results)
        self._accepted += accepted
        self._rejected += len(results) - accepted
        return marked


class AlwaysValid(Validator):
    """Accepts everything: for rule-based runs and for measuring what a validator changes."""

    async def validate_actions(
        self, actions: Sequence[Action], state: SimulationState
    ) -> list[Action]:
        """Mark every action as validated."""
        del state
        return self._mark(
            actions,
            [
                ValidationResult(
                    is_valid=True,
                    reasoning="Every action is accepted.",
                    action_evaluated=action.action_string,
                )
                for action in actions
            ],
        )
