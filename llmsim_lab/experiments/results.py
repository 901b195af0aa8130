"""What an experiment says: differences with their intervals, noise floors, answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from llmsim_lab.experiments.answers import agreement, common_answers, directions
from llmsim_lab.experiments.statistics import Difference, Noise, Outcome, differences, noise
from llmsim_lab.text import number

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["UNITS", "Results", "verdict"]

UNITS: dict[Outcome, tuple[str, str]] = {
    "interest_rate": ("resulting interest rate", "points"),
    "confidence": ("confidence", "of 1"),
    "accepted": ("acceptance", "of 1"),
}
"""What each outcome is called, and the unit of its differences."""

_ALPHA = 0.05
"""What a p-value is compared with: 1 minus the intervals' level."""


class Results(ABC):
    """The views of a finished or stopped experiment; each is computed from ``frame``."""

    _known: tuple[pd.DataFrame, list[Difference], list[Noise]] | None = None

    @property
    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """All results so far, one row a decision."""

    @property
    @abstractmethod
    def source(self) -> str:
        """The run that the results are of, in words."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The variants' names, the reference first."""

    @property
    @abstractmethod
    def outcomes(self) -> Sequence[Outcome]:
        """What was measured."""

    @property
    def differences(self) -> list[Difference]:
        """How each variant differs from the first, by outcome."""
        return list(self._statistics()[0])

    @property
    def noise(self) -> list[Noise]:
        """Each variant's noise floor, by outcome."""
        return list(self._statistics()[1])

    def _statistics(self) -> tuple[list[Difference], list[Noise]]:
        # Tables, sentences and charts each ask, and the answer takes some 60 ms.
        frame, known = self.frame, self._known
        if known is None or not known[0].equals(frame):
            found = [d for name in self.outcomes for d in differences(frame, name, self.names)]
            floors = [n for name in self.outcomes for n in noise(frame, name, self.names)]
            self._known = known = frame, found, floors
        return known[1:]

    @property
    def summary(self) -> pd.DataFrame:
        """One row an outcome and variant: the difference from the first, beside the noise floors.

        Columns: those of ``Difference``, and ``noise_floor``, the larger of the two variants' or
        None where one is not known. The floor is about two single samples, the estimate about a
        mean.
        """
        import pandas as pd

        floors = {(n.outcome, n.variant): n.floor for n in self.noise}
        rows = []
        for difference in self.differences:
            names = (difference.reference, difference.variant)
            known = [floors[difference.outcome, name] for name in names]
            floor = max((value for value in known if value is not None), default=None)
            floor = None if None in known else floor
            rows.append(asdict(difference) | {"noise_floor": floor})
        order = ["outcome", "variant", "reference", "estimate", "low", "high", "noise_floor"]
        frame = pd.DataFrame(rows)
        return frame[[*order, *(name for name in frame.columns if name not in order)]]

    @property
    def noise_frame(self) -> pd.DataFrame:
        """The noise floors, one row an outcome and variant; ``Noise`` names the columns."""
        import pandas as pd

        return pd.DataFrame([asdict(item) for item in self.noise])

    @property
    def directions(self) -> pd.DataFrame:
        """Each variant's shares of raising, holding and lowering the rate."""
        return directions(self.frame, self.names)

    @property
    def agreement(self) -> pd.DataFrame:
        """How often samples agree: between variants, of one seed or two, and within each."""
        return agreement(self.frame, self.names)

    @property
    def answers(self) -> pd.DataFrame:
        """Each variant's commonest answers."""
        return common_answers(self.frame)

    @property
    def verdicts(self) -> list[str]:
        """What each difference amounts to: its interval and p-value, how many pairs, the noise."""
        floors = {(n.outcome, n.variant): n for n in self.noise}
        return [
            verdict(d, floors[d.outcome, d.reference], floors[d.outcome, d.variant])
            for d in self.differences
        ]


def verdict(difference: Difference, reference: Noise, variant: Noise) -> str:
    """Say in words what a difference amounts to, and what it does not.

    Args:
        difference: of the two variants.
        reference: the first one's noise floor.
        variant: the other one's.
    """
    name, unit = UNITS[difference.outcome]
    what = f"{name}, {difference.variant} minus {difference.reference}"
    pairs = "1 pair" if difference.pairs == 1 else f"{difference.pairs} pairs"
    turns = "1 turn" if difference.turns == 1 else f"{difference.turns} turns"
    used = f"{pairs} of {turns} used, {difference.failed} failed"
    if difference.estimate is None or difference.low is None or difference.high is None:
        return f"{what}: no number ({difference.note}); {used}."
    low, high = difference.low, difference.high
    text = (
        f"{what}: {difference.estimate:+.2f} {unit}, 95 % interval {low:+.2f} to {high:+.2f}"
        f"{_p_values(difference)} ({difference.method}); {used}."
    )
    if low == high:
        text += " There is no variation at all between the pairs."
    elif low <= 0 <= high:
        text += " No evidence of a difference."
    elif difference.p_holm is not None and difference.p_holm >= _ALPHA:
        text += (
            " Evidence of a difference by itself, but not once adjusted for the number of variants "
            "compared."
        )
    else:
        text += " Evidence of a difference."
    if reference.floor is None or variant.floor is None:
        text += " The noise floor is not known: it takes two samples a turn."
    else:
        text += (
            f" Two single samples of one prompt at one state differ by {number(reference.floor)} "
            f"and {number(variant.floor)} {unit} on average; that is about one answer, not about "
            "this mean."
        )
    return f"{text} Note: {difference.note}." if difference.note else text


def _p_values(difference: Difference) -> str:
    """Return the p-value, and the adjusted one where it differs; nothing without variation."""
    if difference.p_value is None or difference.low == difference.high:
        return ""
    text = f", p {_p(difference.p_value)}"
    if difference.p_holm is not None and difference.p_holm != difference.p_value:
        text += f", for several variants (Holm) p {_p(difference.p_holm)}"
    return text


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"
