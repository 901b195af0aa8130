"""A finding in all the ways in which it might have been looked for: a specification curve.

After Simonsohn, Simmons and Nelson (2020, Nature Human Behaviour 4) and, for language models as
participants, Cummins (2025, arXiv:2509.13397).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.tables import frame_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.study._charts import curve_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Multiverse:
    """What became of a finding in each specification.

    Attributes:
        finding: what is compared, in words.
        frame: a row each, by its estimate: the choices made, by factor; ``estimate``, ``low``,
            ``high``, ``p``, ``n``.
        same_sign: the share of specifications whose estimate has the sign of the median one.
        holds: the share whose interval leaves out 0 on that side as well.
    """

    finding: str
    frame: pd.DataFrame
    same_sign: float
    holds: float

    def figure(self) -> Figure:
        """Draw the specification curve: estimates by size, and below what each was made with."""
        return curve_figure(self.frame.drop(columns=["p", "n"]), title=str(self))

    def __str__(self) -> str:
        return (
            f"{self.finding}: holds in {self.holds:.0%} of {len(self.frame)} specifications, "
            f"has the same sign in {self.same_sign:.0%}"
        )

    __repr__ = __str__


def multiverse(study: Any, factor: str, *, outcome: str = "") -> Multiverse:
    """Return the effect of one factor in each combination of the study's other factors.

    Vary what a finding might hang on: wordings of the prompt, orders of options, personas,
    temperatures, models. Each combination is a specification, and the finding is the difference
    that the factor's second level makes to its first.

    Args:
        study: a full factorial, played; of runs, or of situations asked again.
        factor: the one with two levels that the finding is about.
        outcome: of the study; its first one if not given.

    Raises:
        ConfigError: there is no such factor or outcome, or it has other than two levels.
    """
    outcome = outcome or next(iter(study.outcome), "")
    known_names("factor", factor, study.arms[study.reference])
    known_names("outcome", outcome, study.outcome)
    levels = list(dict.fromkeys(its[factor] for its in study.arms.values()))
    if len(levels) != 2:
        raise ConfigError(f"{factor} has {len(levels)} levels, and a finding compares two")
    places = {tuple(its.items()): arm for arm, its in reversed(study.arms.items())}
    pairs = {
        arm: places[tuple({**its, factor: levels[0]}.items())]
        for arm, its in study.arms.items()
        if its[factor] == levels[1]
    }
    of_all = [it for it in study.effects(contrasts=list(pairs.items())) if it.outcome == outcome]
    if not of_all:
        raise ConfigError("no run has ended yet, so there is nothing to compare; study.run() plays")
    rows = []
    for arm, effect in zip(pairs, of_all, strict=True):
        others = {name: level for name, level in study.arms[arm].items() if name != factor}
        own = {name: getattr(effect, name) for name in ("low", "high", "p", "n")}
        own = {"estimate": effect.value, **own}
        rows.append({**others, **own})
    frame = frame_of(rows).sort_values("estimate", ignore_index=True)
    up = frame["estimate"].median() >= 0
    beyond = frame["low"] > 0 if up else frame["high"] < 0
    return Multiverse(
        f"{levels[1]} \N{MINUS SIGN} {levels[0]}, {outcome}",
        frame,
        float(((frame["estimate"] > 0) == up).mean()),
        float(beyond.mean()),
    )
