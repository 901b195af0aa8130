"""Contrasts, estimates of them, and their sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from llmsim_lab._util.html import table as html_table
from llmsim_lab._util.text import MINUS, counted, printable

if TYPE_CHECKING:
    import pandas as pd

Generality = Literal[
    "new runs", "these situations", "new wordings", "new wordings and situations", "new messages"
]
"""The new data that an interval holds for."""
Unit = Literal["run", "situation", "wording", "message"]
"""The unit that is repeated."""
Kind = Literal[
    "mean difference",
    "share difference",
    "typical difference",
    "text distance",
    "length difference",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A difference of arms, over units of a kind.

    Attributes:
        name: such as "hawkish" minus "cautious".
        weights: the weights of the arms' means in the sum. Arms with weight 0 are left out.
        unit: the unit that is repeated.
        generalises_to: what the interval holds for.
    """

    name: str
    weights: Mapping[str, float]
    unit: Unit = "run"
    generalises_to: Generality = "new runs"


class Interval(NamedTuple):
    """The lower and the upper end of an interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate of one contrast in one outcome.

    Attributes:
        contrast: the difference, such as "hawkish" minus "cautious".
        outcome: what is compared.
        kind: what ``value`` is. A "typical difference" is the pseudo-median of Hodges and Lehmann:
            the median of the means of all pairs of differences. A "text distance" is the energy
            distance, which has no direction.
        value: the difference, or distance; None where nothing can be compared.
        low: the lower end of the interval; None where there is none, and ``note`` says why.
        high: the upper end.
        level: of the interval, for this contrast alone.
        p: the two-sided p-value of no difference, for this contrast alone.
        p_family: the same, adjusted for the whole family.
        margin: the smallest effect of interest; None where none was named.
        p_equivalent: the p-value of a difference of ``margin`` or more, for this contrast alone.
        p_equivalent_family: the same, adjusted for the whole family.
        verdict: the conclusion for ``margin``: "differs" by ``p_family``, "no difference of ... or
            more" by ``p_equivalent_family``.
        family: how p-values were adjusted, and for how many comparisons; empty for a single one.
        n: how many units; never calls or turns.
        unit: what a unit is.
        df: degrees of freedom; None where the method has none.
        generalises_to: what the interval holds for.
        method: how interval and p-value were computed.
        note: why there is no interval, which runs were left out, other limits.
        is_noise: whether two draws of the same arms are compared, which differ by chance alone.
        typical: the typical difference, for a mean of skewed differences.
    """

    contrast: str
    outcome: str
    kind: Kind = "mean difference"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    p: float | None = None
    p_family: float | None = None
    margin: float | None = None
    p_equivalent: float | None = None
    p_equivalent_family: float | None = None
    verdict: str = ""
    family: str = ""
    n: int = 0
    unit: Unit = "run"
    df: float | None = None
    generalises_to: Generality = "new runs"
    method: str = "none"
    note: str = ""
    is_noise: bool = False
    typical: Estimate | None = None

    def __str__(self) -> str:
        lines = [f"{self.sentence()} ({self.outcome}, {counted(self.n, self.unit)})"]
        if self.typical is not None:
            lines.append(f"  {self.typical.sentence()}")
        if self.note and self.value is not None:
            lines.append(f"  note: {self.note}")
        # The arms' names may come from a file of unknown origin.
        return printable("\n".join(lines), keep="\n")

    def sentence(self, unit: str = "") -> str:
        """Return the estimate in words, without its outcome: value, interval, p-value.

        Args:
            unit: the unit of the outcome.
        """
        if self.value is None:
            return f"{self.contrast}: not known ({self.note})"
        parts = [self._worded_value(unit)]
        # Texts, and too few or too coarse values, have no interval.
        if self.low is not None:
            parts.append(f"{100 * self.level:g} % {self.low:.2f} to {self.high:.2f}")
        if self.p_family is not None and self.p_family != self.p:
            parts.append(f"p {_printed(self.p_family)} adjusted for all comparisons")
        elif self.p is not None:
            parts.append(f"p {_printed(self.p)}")
        text = ", ".join(parts)
        if self.verdict:
            text = f"{text}; {self.verdict}"
        # The contrast is left as it is: an arm's name may have a hyphen before a number.
        return self.contrast + re.sub(r"-(?=\d)", MINUS, text)

    def _worded_value(self, unit: str) -> str:
        if self.kind == "text distance":
            return f": the texts' distance is {self.value:.2f} (0 if alike)"
        words = {
            "typical difference": ", typical difference",
            "length difference": ", words a text",
        }
        name = words.get(self.kind, "")
        if self.is_noise:
            name = f"{name}, by chance alone"
        return f"{name}: {self.value:+.2f} {unit}".rstrip()


def _printed(p: float) -> str:
    # Three decimals would show .000, and a p-value is never 0.
    if p < 0.0005:
        return "< .001"
    return f"= {p:.3f}".replace("= 0", "= ")


class Effects(list[Estimate]):
    """Estimates in the order of contrasts and outcomes; ``label`` says what they are based on."""

    label: str = ""

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each estimate, with its attributes as columns."""
        import pandas as pd

        rows = []
        for estimate in self:
            row = asdict(estimate)
            # ``typical`` is an estimate itself, and does not fit into a cell.
            del row["typical"]
            rows.append(row)
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        lines = [str(estimate) for estimate in self] or ["nothing to compare"]
        if self.label:
            lines.insert(0, self.label)
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for estimate in self:
            # The note has its own column.
            without_note = replace(estimate, note="")
            # The note stays in the sentence of an unknown effect, where it is the reason.
            effect = estimate if estimate.value is None else without_note
            method = estimate.method
            if estimate.family:
                method = f"{method}; {estimate.family}"
            rows.append(
                (
                    str(effect),
                    estimate.generalises_to,
                    method,
                    estimate.note,
                )
            )
        caption = str(self)
        if self:
            caption = self.label or "effects"
        return str(
            html_table(
                ("effect", "holds for", "method", "note"),
                rows,
                caption=caption,
            )
        )
