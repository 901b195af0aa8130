"""Does a policymaker respond to the economy? A regression of its moves, and one verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, Literal

from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

Verdict = Literal["pass", "fail", "undecided"]
_WORST_FIRST: tuple[Verdict, ...] = ("fail", "undecided", "pass")
_CRITERIA: Mapping[str, tuple[tuple[int, ...], tuple[float, float, float]]] = {
    "inflation": ((0, 1, 0, 0), (0.0, inf, 0.05)),
    "long run": ((0, 1, 0, 1), (0.0, inf, 0.0)),
    "output gap": ((0, 0, 1, 0), (-0.05, inf, 0.0)),
    "drift": ((1, 0, 0, 0), (-0.25, 0.25, -0.25)),
    "rate": ((0, 0, 0, 1), (-inf, inf, -inf)),
}
"""By name: weights on constant, inflation, output gap and rate; the least and the most that the
whole interval may be to pass, and what it is surely below where it fails, points a quarter."""
_NAMED = (-0.25, 0.25, -0.25)
_AT = (1 + 0.95) / 2
"""The quantile of a 95 % interval; a test that looks at one end of it errs in 2.5 % of cases."""
_FEWEST = 6
"""Groups: with fewer the intervals are so wide that nothing can be decided."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyResponse:
    """What ``response_of`` found.

    Attributes:
        outcome: ``pass`` if all criteria are passed; ``fail`` if one is failed; else ``undecided``.
        sentence: the outcome for readers who know no statistics.
        criteria: a row each, by name: ``value`` and its 95 % interval from ``low`` to ``high``,
            percentage points a quarter; what it ``takes`` to pass, empty where it is not judged;
            its ``verdict``.
        in_the_end: by how many points the rate rises in the end for each point of inflation, with
            its interval; None where no long run can be told.
        units: how many pairs, or other groups of decisions, it rests on.
    """

    outcome: Verdict
    sentence: str
    criteria: pd.DataFrame
    in_the_end: tuple[float, float, float] | None
    units: int

    def __str__(self) -> str:
        return self.sentence


def response_of(
    deviations: ArrayLike,
    moves: ArrayLike,
    *,
    groups: ArrayLike,
    names: Mapping[str, ArrayLike] | None = None,
) -> PolicyResponse:
    """Return whether a policymaker responds to the economy, from its decisions.

    Moves are regressed on a constant and on how far inflation, output gap and rate are from their
    steady state. In a linear economy the constant is what is done whatever happens, and minus the
    coefficient of inflation over that of the rate is how far the rate rises in the end for a point
    of inflation: inertia changes both, and leaves the ratio. With situations and their mirror
    images, a pair a group, it is the regression without constant of half the difference within each
    pair, with HC3 variances.

    Passed if the whole interval, and failed if no part of it, is as it has to be:

    - ``inflation``: its coefficient is above 0 (failed: it is surely below 0.05);
    - ``long run``: inflation's and the rate's coefficients together are above 0, which is a
      response of more than one for one in the end (failed: surely below 0);
    - ``output gap``: its coefficient is above -0.05 (failed: surely below 0);
    - ``drift``: the constant is within 0.25 points of zero;
    - each of ``names``: the mean change is within 0.25 points of zero.

    Intervals are Student's, 95 %, with three degrees of freedom fewer than there are groups; that
    of the ratio is Fieller's (1954). They hold for one look: of two looks either may err.

    Args:
        deviations: a row a decision, three columns: inflation, output gap and rate in force, each
            minus its steady state (2, 0 and 4 in the shipped model), percent.
        moves: what was decided there, percentage points: 0.25 for +25 basis points. Of a player
            that draws the mean of its probabilities, or of ten draws; single draws are noise.
        groups: of each decision, which of them are not independent: the number of its pair, or the
            seed of its run, with both a run and its mirror image.
        names: by the economy's name, the changes of the move when the player is told the name,
            percentage points, one for each group that was asked again.

    Returns:
        The outcome with its criteria; ``str()`` of it is one sentence.

    Raises:
        ConfigError: there are fewer than six groups, or the situations are too much alike.

    Example:
        >>> found = response_of(frame[["pi", "gap", "rate"]], frame["move"], groups=frame["seed"])
        >>> found.outcome, found.criteria.value["inflation"]
        >>> print(found)
    """
    import numpy as np
    import pandas as pd
    from scipy.special import stdtrit  # quantiles of Student's t

    x = np.insert(np.asarray(deviations, dtype=float), 0, 1.0, axis=1)
    slopes, variance, units = _regressed(x, np.asarray(moves, dtype=float), groups)
    reach = float(stdtrit(units - 3, _AT))
    rows = dict[str, tuple[Any, ...]]()
    for name, (weights, bounds) in _CRITERIA.items():
        w = np.array(weights)
        rows[name] = _judged(w @ slopes, reach * sqrt(max(0.0, w @ variance @ w)), bounds)
    for name, of_name in (names or {}).items():
        changes = np.asarray(of_name, dtype=float)
        error = changes.std(ddof=1) / sqrt(len(changes))
        rows[name] = _judged(changes.mean(), stdtrit(len(changes) - 1, _AT) * error, _NAMED)
    in_the_end = None
    if rows["rate"][2] < 0:
        a, b, c = (
            slopes[i] * slopes[j] - reach**2 * variance[i, j] for i, j in ((3, 3), (1, 3), (1, 1))
        )
        root = sqrt(max(0.0, b * b - a * c))
        ratio = -slopes[1] / slopes[3]
        in_the_end = float(ratio), float(-(b + root) / a), float((root - b) / a)
    outcome = next(it for it in _WORST_FIRST if it in {row[-1] for row in rows.values()})
    return PolicyResponse(
        outcome=outcome,
        sentence=_sentence(outcome, rows, in_the_end, units),
        criteria=pd.DataFrame.from_dict(
            rows, orient="index", columns=["value", "low", "high", "takes", "verdict"]
        ),
        in_the_end=in_the_end,
        units=units,
    )


def _regressed(x: NDArray[Any], y: NDArray[Any], groups: ArrayLike) -> tuple[Any, Any, int]:
    """Return coefficients, their variance by the jackknife over groups, and how many groups.

    With a decision a group it is HC3 (MacKinnon and White 1985); with more it is CV3J without its
    factor (MacKinnon, Nielsen and Webb 2023, "Fast and reliable jackknife and bootstrap methods for
    cluster-robust inference", Journal of Applied Econometrics 38).
    """
    import numpy as np

    labels, places = np.unique(np.asarray(groups), return_inverse=True)
    if len(labels) < _FEWEST:
        raise ConfigError(
            f"{len(labels)} groups of decisions decide nothing; it takes {_FEWEST} or more: other "
            "situations, or runs of other seeds"
        )
    member = (np.arange(len(labels))[:, None] == places).astype(float)
    squares = np.einsum("gn,ni,nj->gij", member, x, x)
    sums = np.einsum("gn,ni,n->gi", member, x, y)
    rest = squares.sum(0) - squares
    if np.linalg.matrix_rank(rest).min() < x.shape[1]:
        raise ConfigError(
            "the situations are too much alike to tell what the moves respond to: inflation, "
            "output gap and rate have to differ, and not only in one group"
        )
    slopes = np.linalg.solve(squares.sum(0), sums.sum(0))
    apart = np.linalg.solve(rest, (sums.sum(0) - sums)[..., None])[..., 0] - slopes
    return slopes, apart.T @ apart, len(labels)


def _judged(value: float, reach: float, bounds: tuple[float, float, float]) -> tuple[Any, ...]:
    # Nine places, so that rounding decides nothing where a player's moves are all alike.
    value, low, high = (round(float(it), 9) + 0.0 for it in (value, value - reach, value + reach))
    least, most, wrong = bounds
    takes = f"above {least:g}" if most == inf else f"between {least:g} and {most:g}"
    passed, failed = least < low and high < most, high < wrong or low > most
    verdict = "pass" if passed else "fail" if failed else "undecided"
    return (value, low, high, takes, verdict) if least > -inf else (value, low, high, "", "")


def _sentence(
    outcome: Verdict, rows: Mapping[str, tuple[Any, ...]], in_the_end: Any, units: int
) -> str:
    telling = [name for name, row in rows.items() if row[-1] == outcome]
    name, drift = telling[0], "whatever happens, it moves the rate by {} points a quarter"
    value = "{:.2f} ({:.2f} to {:.2f})"
    changes = f"changes its move by {value.format(*rows[name])} points"
    ends = "{:.1f} points ({:.1f} to {:.1f}) for each point of inflation"
    if in_the_end is None or (outcome == "fail" and in_the_end[0] <= 0):
        steps = f"a point of inflation moves the rate by {value.format(*rows['inflation'])} points"
        end = f"{steps} a quarter"
    else:
        only = "only " if outcome == "fail" else ""
        end = f"in the end it raises the rate by {only}{ends.format(*in_the_end)}"
    words = {
        "inflation": f"a point more of inflation {changes}",
        "long run": f"a point more of both inflation and the rate {changes}",
        "output gap": f"a point more of the output gap {changes}",
        "drift": drift.format(value.format(*rows["drift"])),
    }
    said = words.get(name, f"the name {name} alone {changes}")
    if outcome == "pass":
        said = f"{end}: it responds"
    elif outcome == "undecided":
        said = f"not decided by {units} independent cases: {said}; to pass it takes an interval "
        said += str(rows[name][3])
    elif name == "long run":
        said = f"{end}: it responds too little, so the real rate falls"
    elif "drift" in telling[1:]:
        said += f"; {words['drift']}"
    return f"{said[0].upper()}{said[1:]}."
