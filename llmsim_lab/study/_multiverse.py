"""Specification curves: one effect, estimated in all combinations of the study's other factors.

After Simonsohn, Simmons and Nelson (2020, Nature Human Behaviour 4) and, for language models as
participants, Cummins (2025, arXiv:2509.13397).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.checks import known_names, text_argument
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import brief, contrast_name
from llmsim_lab.errors import ConfigError
from llmsim_lab.study._charts import curve_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from llmsim_lab.study.estimates.effects import Compared
    from llmsim_lab.study.estimates.joint import JointTest

_OWN_COLUMNS = ("estimate", "low", "high", "p", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiverse:
    """An effect in each specification.

    Attributes:
        finding: what is compared, in words.
        frame: one row for each specification, ordered by estimate: the choices, one column for
            each factor; ``estimate``, ``low``, ``high``, ``p``, ``n``. The column of a factor that
            is called like one of these is ``factor NAME``.
        choices: the columns of the choices.
        same_sign: the share of specifications whose estimate has the sign of the median one.
        holds: the share of those whose interval is on the same side of 0 as well.
        chance: both shares if chance alone decides, from the same runs, and the p-value of the
            median estimate. It flips pairs of runs, and is None where units are not pairs.
    """

    finding: str
    frame: pd.DataFrame
    choices: list[str]
    same_sign: float
    holds: float
    chance: JointTest | None = None

    def figure(self) -> Figure:
        """Draw the specification curve: estimates by size, and below each its choices."""
        return curve_figure(
            self.frame.drop(columns=["p", "n"]),
            title=str(self),
        )

    def __str__(self) -> str:
        count = len(self.frame)
        is_zero = self.frame["estimate"] == 0
        # No estimate has a sign, which the other sentences count.
        if is_zero.all():
            return f"{self.finding}: exactly 0 in all {count} specifications"
        if self.chance is None:
            return (
                f"{self.finding}: holds in {self.holds:.0%} of {count} specifications, has the "
                f"same sign in {self.same_sign:.0%}; no joint test, which takes pairs of runs"
            )
        p = f"{self.chance.p:.3f}".replace("0.", ".", 1)
        return (
            f"{self.finding}: holds in {self.holds:.0%} of {count} specifications (by chance alone "
            f"{self.chance.holds:.0%}), has the same sign in {self.same_sign:.0%} (by chance alone "
            f"{self.chance.same_sign:.0%}); joint p = {p} of the median "
            f"({self.chance.flips:,} flips of whole runs)"
        )

    __repr__ = __str__


def multiverse(
    study: Any,
    factor: str,
    *,
    outcome: str = "",
) -> Multiverse:
    """Return the effect of one factor in each combination of the study's other factors.

    Vary what a finding might depend on: wordings of the prompt, orders of options, personas,
    temperatures, models. Each combination is a specification, and the finding is the factor's
    second level minus its first.

    Args:
        study: a full factorial of runs or situations that was played.
        factor: the factor that the finding is about, which has two levels.
        outcome: an outcome of the study with numbers; the first if not given.

    Raises:
        ConfigError: there is no such factor or outcome, the factor does not have two levels, or the
            outcome has texts.
    """
    # Not by its class: that module imports this one, by way of the study's window.
    if not hasattr(study, "compared"):
        raise ConfigError(f"study={brief(study)} must be a Study that was played")
    text_argument("outcome", outcome)
    outcome = outcome or next(iter(study.outcome), "")
    known_names("factor", [factor], study.arms[study.reference])
    known_names("outcome", [outcome], study.outcome)
    # In the order of the design: the first level is subtracted from the second.
    every_level = [of_arm[factor] for of_arm in study.arms.values()]
    levels = list(dict.fromkeys(every_level))
    if len(levels) != 2:
        raise ConfigError(f"{factor} has {len(levels)} levels, and a finding compares two")
    pairs = _pairs(study.arms, factor, levels)
    comparisons = study.compared(
        contrasts=list(pairs.items()),
        outcome=outcome,
    )
    if not comparisons:
        raise ConfigError("no run has ended yet, so there is nothing to compare; study.run() plays")
    kinds = {comparison.parts.kind for comparison in comparisons}
    if "text distance" in kinds:
        raise ConfigError(
            f"{outcome!r} is a text, whose distance has no sign; make a number of it: "
            "outcome=lambda run: ..."
        )
    rows = []
    for arm, comparison in zip(pairs, comparisons, strict=True):
        choices = _choices(study.arms[arm], factor)
        rows.append({**choices, **_numbers_of(comparison)})
    numbers = frame_of(rows).astype(
        {
            # As numbers, so that an unknown one is NaN.
            "estimate": float,
            "low": float,
            "high": float,
            "p": float,
        }
    )
    frame = numbers.sort_values("estimate", ignore_index=True)
    # The finding has the sign of the median estimate, as in the joint test.
    is_up = frame["estimate"].median() >= 0
    has_same_sign = (frame["estimate"] > 0) == is_up
    # An estimate without an interval does not hold: comparisons with NaN are False.
    is_beyond_zero = frame["high"] < 0
    if is_up:
        is_beyond_zero = frame["low"] > 0
    first_level, second_level = levels
    return Multiverse(
        finding=f"{contrast_name(second_level, first_level)}, {outcome}",
        frame=frame,
        choices=list(_choices(study.arms[study.reference], factor)),
        same_sign=float(has_same_sign.mean()),
        holds=float(is_beyond_zero.mean()),
        chance=_by_chance(comparisons),
    )


def _pairs(
    arms: Mapping[str, Mapping[str, str]],
    factor: str,
    levels: list[str],
) -> dict[str, str]:
    """Return, by arm with the factor's second level, the arm that has the first level instead."""
    first_by_choices = {}
    second_by_choices = {}
    for arm, of_arm in arms.items():
        choices = tuple(_choices(of_arm, factor).items())
        if of_arm[factor] == levels[0]:
            first_by_choices[choices] = arm
        else:
            second_by_choices[choices] = arm
    # A full factorial has both arms for all choices.
    return {arm: first_by_choices[choices] for choices, arm in second_by_choices.items()}


def _choices(
    of_arm: Mapping[str, str],
    factor: str,
) -> dict[str, str]:
    """Return an arm's levels of the other factors, by column."""
    choices = {}
    for name, level in of_arm.items():
        if name != factor:
            column = f"factor {name}" if name in _OWN_COLUMNS else name
            choices[column] = level
    return choices


def _numbers_of(comparison: Compared) -> dict[str, float | None]:
    """Return a specification's estimate, interval, p-value and number of units."""
    low = None
    high = None
    if comparison.parts.interval is not None:
        low, high = comparison.parts.interval
    return {
        "estimate": comparison.parts.value,
        "low": low,
        "high": high,
        "p": comparison.parts.p,
        "n": comparison.parts.n,
    }


def _by_chance(comparisons: list[Compared]) -> JointTest | None:
    """Return what chance alone gives, where all specifications compare pairs of runs."""
    from numpy import column_stack

    from llmsim_lab.study.estimates.joint import joint_test

    columns = []
    for comparison in comparisons:
        pairs = comparison.parts.pairs
        # Groups, situations and wordings have no pairs to flip, and flips need at least two pairs.
        if pairs is None or len(pairs) < 2:
            return None
        columns.append(pairs)
    return joint_test(column_stack(columns), level=0.95)
