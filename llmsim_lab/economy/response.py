"""Whether a policymaker responds to the economy: a regression of its moves, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from typing import TYPE_CHECKING, Literal, NamedTuple

from llmsim_lab._util.checks import instance_of
from llmsim_lab._util.text import brief
from llmsim_lab.economy.analysis import largest_roots, matrices_of
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Verdict = Literal["pass", "fail", "undecided"]


class _Bounds(NamedTuple):
    """The bounds for an interval, percentage points a quarter.

    Attributes:
        least: to pass, the whole interval must be above it.
        most: to pass, the whole interval must be below it.
        wrong: to fail, the whole interval must be below it, or above ``most``.
    """

    least: float
    most: float
    wrong: float


class _Weights(NamedTuple):
    """The weight of each coefficient in a sum of coefficients, in the order of the regressors."""

    constant: int = 0
    inflation: int = 0
    output_gap: int = 0
    rate: int = 0


class _Judged(NamedTuple):
    """A sum of coefficients, and its bounds; None where the sum is reported but not judged."""

    weights: _Weights
    bounds: _Bounds | None


_AROUND_ZERO = _Bounds(
    least=-0.25,
    most=0.25,
    wrong=-0.25,
)
_LONG_RUN = _Weights(inflation=1, rate=1)
_CRITERIA = {
    "inflation": _Judged(
        _Weights(inflation=1),
        _Bounds(
            least=0.0,
            most=inf,
            wrong=0.05,
        ),
    ),
    "long run": _Judged(
        _LONG_RUN,
        _Bounds(
            least=0.0,
            most=inf,
            wrong=0.0,
        ),
    ),
    "output gap": _Judged(
        _Weights(output_gap=1),
        _Bounds(
            least=-0.05,
            most=inf,
            wrong=0.0,
        ),
    ),
    "drift": _Judged(_Weights(constant=1), _AROUND_ZERO),
    # Not judged: small for a slow rule and large for a quick one, and neither is wrong.
    "rate": _Judged(_Weights(rate=1), None),
}
_NEAR = 0.5
"""Inflation within so many points of the target counts as on target."""
_FAR = 2.0
"""An interval that includes 0 may reach so many points of inflation from the target."""
_DRAWS = 1_000
"""How many draws of coefficients give the interval of the largest root."""
_CHANGED = {
    "inflation": "a point more of inflation",
    "long run": "a point more of both inflation and the rate",
    "output gap": "a point more of the output gap",
}
_AT = (1 + 0.95) / 2
"""The quantile of a 95 % interval; a test by one of its ends errs in 2.5 % of cases."""
_WORST_FIRST: tuple[Verdict, ...] = ("fail", "undecided", "pass")
_FEWEST = 6
"""The least number of groups: with fewer, intervals are too wide to decide anything."""


class Estimated(NamedTuple):
    """A value and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def rounded(self) -> Estimated:
        """Return the value to nine places, so that rounding errors of equal moves do not count."""
        # Adding 0 turns -0 into 0.
        value, low, high = (round(float(number), 9) + 0.0 for number in self)
        return Estimated(value, low, high)


class Criterion(NamedTuple):
    """One criterion: its estimate, and whether it is met.

    Attributes:
        name: ``inflation``, ``rate``, ``long run``, ``output gap``, ``drift``, ``target``, or the
            name of an economy.
        value: percentage points a quarter; for ``target``, percentage points of inflation.
        low: the lower end of the 95 % interval.
        high: the upper end.
        needs: what it takes to pass, in words; empty if the criterion is not judged.
        verdict: None if the criterion is not judged.
    """

    name: str
    value: float
    low: float
    high: float
    needs: str = ""
    verdict: Verdict | None = None

    @property
    def interval(self) -> str:
        """The value and its interval: ``0.30 (0.21 to 0.39)``."""
        return f"{self.value:z.2f} ({self.low:z.2f} to {self.high:z.2f})"


@dataclass(frozen=True, slots=True)
class PolicyResponse:
    """The result of ``response_of``.

    Attributes:
        outcome: ``pass`` if all criteria are passed; ``fail`` if one is failed; else ``undecided``.
        criteria: in the order in which they are reported.
        in_the_end: by how many points the rate rises in the long run for each point of inflation,
            with its interval; None where there is no long run.
        units: the number of pairs, or other groups of decisions.
        slopes: the coefficients of constant, inflation, output gap and rate.
        variance: the covariance matrix of the coefficients.
    """

    outcome: Verdict
    criteria: tuple[Criterion, ...]
    in_the_end: Estimated | None
    units: int
    slopes: tuple[float, ...] = ()
    variance: tuple[tuple[float, ...], ...] = ()

    def __getitem__(self, name: str) -> Criterion:
        """Return a criterion by its name."""
        by_name = {criterion.name: criterion for criterion in self.criteria}
        return by_name[name]

    @property
    def largest_root(self) -> Estimated | None:
        """The largest root of the shipped economy with these decisions, with its interval.

        Below 1 every shock dies out, above 1 it grows. The value follows from the estimated
        coefficients; the 95 % interval from 1,000 draws of them from Student's distribution
        (Krinsky and
        Robb 1986, "On approximating the statistical properties of elasticities", Review of
        Economics and Statistics 68). None with too few groups.
        """
        if not self.slopes:
            return None
        import numpy as np

        # Minus one for each of the three slopes; the constant follows from the pairs' means.
        freedom = self.units - 3
        rng = np.random.default_rng(0)
        draws = rng.multivariate_normal(
            np.zeros(4),
            self.variance,
            _DRAWS,
            method="eigh",
            check_valid="ignore",  # a variance may be rounded to -0
        )
        # Student's distribution is a normal variable over the root of a chi-squared one.
        scale = rng.chisquare(freedom, (_DRAWS, 1))
        draws *= np.sqrt(freedom / scale)
        slopes = np.vstack([np.zeros(4), draws]) + self.slopes
        # The rule's weight of the previous rate is 1 plus the slope: 1 if it never moves the rate.
        weights = slopes[:, 1:] + [0.0, 0.0, 1.0]
        # The first row has the estimates themselves.
        of_estimates, *of_draws = largest_roots(matrices_of(weights))
        low, high = np.quantile(of_draws, [1 - _AT, _AT])
        return Estimated(
            float(of_estimates),
            float(low),
            float(high),
        )

    @property
    def stability(self) -> str:
        """Whether these decisions stabilise the shipped economy, in a sentence; empty if unknown.

        This is not part of the outcome: a rule may respond, but too slowly.
        """
        root = self.largest_root
        if root is None:
            return ""
        words = f"largest root {root.value:.3f}, {root.low:.3f} to {root.high:.3f}"
        if root.high < 1:
            return f"It stabilises this economy: shocks die out ({words})."
        if root.low > 1:
            return f"It does not stabilise this economy: shocks grow ({words})."
        return (
            f"Whether it stabilises this economy is not decided ({words}; below 1 shocks die out)."
        )

    @property
    def sentence(self) -> str:
        """The outcome in a sentence for readers without statistics."""
        if not self.criteria:
            return (
                f"{self.units} groups of decisions decide nothing; it takes {_FEWEST} or more, "
                "such as runs of other seeds."
            )
        # In the order of the criteria, the most important first.
        decisive = [criterion for criterion in self.criteria if criterion.verdict == self.outcome]
        words = self._words(decisive[0])
        if self.outcome == "pass":
            words = f"{self._long_run()}: it responds"
        elif self.outcome == "undecided":
            words = (
                f"not decided by {self.units} independent cases: {words}; to pass it takes "
                f"{decisive[0].needs}, the interval included"
            )
        else:
            also_failed = {criterion.name for criterion in decisive[1:]}
            # If both are missed, the distance of inflation from the target tells more.
            for name in ("target", "drift"):
                if name in also_failed:
                    words += f"; {self._words(self[name])}"
                    break
        return f"{words[0].upper()}{words[1:]}."

    def _long_run(self, *, is_too_little: bool = False) -> str:
        if self.in_the_end is None:
            slope = self["inflation"].interval
            return f"for each point of inflation it raises the rate by {slope} points a quarter"
        value, low, high = self.in_the_end
        points = f"{value:.1f} points ({low:.1f} to {high:.1f})"
        # "Raises by -0.3" would look like a mistake.
        verb = "moves the rate by"
        if value > 0:
            verb = "raises the rate by only" if is_too_little else "raises the rate by"
        return f"in the end it {verb} {points} for each point of inflation"

    def _words(self, criterion: Criterion) -> str:
        """Return one criterion in words."""
        interval = criterion.interval
        if criterion.name == "drift":
            return f"whatever happens, it moves the rate by {interval} points a quarter"
        if criterion.name == "target":
            return self._missed(criterion)
        is_failed_long_run = criterion.name == "long run" and criterion.verdict == "fail"
        if is_failed_long_run and self.in_the_end is not None:
            words = self._long_run(is_too_little=True)
            return f"{words}: it responds too little, so the real rate falls"
        if criterion.name == "inflation" and criterion.high < 0:
            return (
                "the higher inflation, the lower it sets the rate: a point more changes its move "
                f"by {interval} points"
            )
        cause = _CHANGED.get(criterion.name, f"the name {criterion.name} alone")
        return f"{cause} changes its move by {interval} points"

    def _missed(self, target: Criterion) -> str:
        """Return in words how far inflation is from the target in the long run."""
        side = "above"
        low = target.low
        high = target.high
        # "0.50 points below (0.20 to 0.80)" is easier to read than two minus signs.
        if target.value < 0:
            side = "below"
            low = -target.high
            high = -target.low
        size = f"{abs(target.value):.2f} points ({low:z.2f} to {high:z.2f})"
        words = f"in the end inflation is {size} {side} its target"
        if target.verdict == "fail":
            words += (
                ": it assumes another neutral rate than this economy's, or aims at another "
                "inflation"
            )
        return words

    def __str__(self) -> str:
        return self.sentence


def response_of(
    deviations: ArrayLike,
    moves: ArrayLike,
    *,
    groups: Sequence[object] | NDArray[np.int64],
    names: Mapping[str, ArrayLike] | None = None,
) -> PolicyResponse:
    """Return whether a policymaker responds to the economy, from its decisions.

    Moves are regressed on a constant and on the deviations of inflation, output gap and rate from
    their steady state. In a linear economy the constant is the move whatever happens. Minus the
    coefficient of inflation over that of the rate is the rise of the rate in the long run for a
    point of inflation: inertia changes both coefficients, but not their ratio. With situations and
    their mirror images, one pair for each group, this is the regression without a constant of half
    the difference within each pair, with HC3 variances.

    A criterion is passed if the whole interval meets it, and failed if no part of it does:

    - ``inflation``: its coefficient is above 0 (failed: it is surely below 0.05);
    - ``long run``: inflation's and the rate's coefficients together are above 0, which is a
      response of more than one for one in the long run (failed: surely below 0);
    - ``output gap``: its coefficient is above -0.05 (failed: surely below 0);
    - ``drift``: the constant is within 0.25 points of zero;
    - ``target``: minus the constant over the sum of the coefficients of inflation and rate, which
      is the distance of inflation from the target in the long run, is within 0.5 points of zero;
      or the interval includes zero and is within 2 points, as for a slow player that draws
      (failed: the distance is surely more than 0.5). It is judged where the long run is surely
      above 0;
    - each of ``names``: the mean change is within 0.25 points of zero.

    Intervals are Student's, 95 %, with three degrees of freedom fewer than there are groups. That
    of the ratio is Fieller's (1954, "Some problems in interval estimation", Journal of the Royal
    Statistical Society B 16). They hold for one test of a player; two tests err more often.

    Args:
        deviations: one row for each decision, three columns: inflation minus the target, output
            gap, and current rate minus the neutral rate, percent. In the shipped model subtract 2,
            0 and 4 with a target of 2, and 3, 0 and 5 with a target of 3.
        moves: the decisions, percentage points: 0.25 for +25 basis points. For a player that draws,
            the mean of its probabilities or of ten draws, since single draws are noisy.
        groups: for each decision its group; decisions of a group are not independent. A group is
            the number of a pair, or the seed of a run and its mirror image.
        names: by the economy's name, the changes of the move when the player is told the name,
            percentage points, one for each group that was asked again.

    Returns:
        The outcome with its criteria; its ``str()`` is one sentence. With fewer than six groups it
        is undecided and has no criteria.

    Raises:
        ConfigError: the situations are too much alike; or there are not as many deviations, moves
            and groups, or not all are numbers.

    Example:
        >>> found = response_of(frame[["pi", "gap", "rate"]], frame["move"], groups=frame["seed"])
        >>> found.outcome, found["inflation"].value
        >>> print(found)
    """
    import numpy as np
    from scipy.special import stdtrit  # quantiles of Student's t

    situations = _numbers("deviations", deviations)
    changes = _numbers("moves", moves)
    instance_of("names", names, Mapping | None, "a dict of changes by an economy's name")
    n = changes.size
    try:
        group_of_each = np.asarray(groups)
        labels, places = np.unique(group_of_each, return_inverse=True)
    except (TypeError, ValueError) as error:  # such as None or a list among numbers
        raise ConfigError(f"groups={brief(groups)} must be numbers, or all texts") from error
    shapes = (situations.shape, changes.shape, group_of_each.shape)
    if shapes != ((n, 3), (n,), (n,)):
        raise ConfigError(
            f"deviations of the shape {shapes[0]}, moves of {shapes[1]} and groups of {shapes[2]} "
            "do not go together: for each of n decisions it takes a row of three deviations, "
            "(n, 3), one move, (n,), and one group, (n,)"
        )
    regressors = np.insert(
        situations,
        0,
        1.0,
        axis=1,
    )
    units = len(labels)
    if units < _FEWEST:
        return PolicyResponse("undecided", (), None, units)
    # One row for each group, True for its decisions.
    rows = np.arange(units)[:, None]
    member = rows == places
    slopes, variance = _regressed(
        regressors,
        changes,
        member,
    )
    quantile = float(stdtrit(units - 3, _AT))
    criteria: dict[str, Criterion] = {}
    for name, judged in _CRITERIA.items():
        estimated = _sum_of(slopes, variance, np.array(judged.weights), quantile)
        criteria[name] = _criterion(name, estimated, judged.bounds)
    products = np.outer(slopes, slopes)
    squares = products - quantile**2 * variance
    in_the_end = None
    # Otherwise the ratio's interval has not two ends.
    if criteria["rate"].high < 0:
        in_the_end = _ratio(
            slopes,
            squares,
            _Weights(inflation=-1),
            _Weights(rate=1),
        )
    # Where it may be 0 there is no long run.
    if criteria["long run"].low > 0:
        missed_by = _ratio(
            slopes,
            squares,
            _Weights(constant=-1),
            _LONG_RUN,
        )
        criteria["target"] = _on_target(missed_by)
    for name, of_name in (names or {}).items():
        change = _mean_of(_numbers(f"names[{name!r}]", of_name))
        criteria[name] = _criterion(name, change, _AROUND_ZERO)
    verdicts = {criterion.verdict for criterion in criteria.values()}
    # One failed criterion decides; one undecided criterion prevents a pass.
    outcome = next(verdict for verdict in _WORST_FIRST if verdict in verdicts)
    return PolicyResponse(
        outcome,
        tuple(criteria.values()),
        in_the_end,
        units,
        slopes=tuple(slopes.tolist()),
        variance=tuple(map(tuple, variance.tolist())),
    )


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return an argument that must be an array of finite numbers.

    Raises:
        ConfigError: it is not.
    """
    import numpy as np

    try:
        numbers = np.asarray(values, dtype=float)
    except (OverflowError, TypeError, ValueError) as error:
        raise ConfigError(f"{name}={brief(values)} must be numbers: {error}") from error
    if not np.isfinite(numbers).all():
        raise ConfigError(f"{name}={brief(values)} must be finite numbers")
    return numbers


def _sum_of(
    slopes: NDArray[np.float64],
    variance: NDArray[np.float64],
    weights: NDArray[np.float64],
    quantile: float,
) -> Estimated:
    """Return a weighted sum of coefficients with Student's interval."""
    value = float(weights @ slopes)
    of_sum = float(weights @ variance @ weights)
    # Rounding may give a variance of -1e-20 if all moves are equal.
    reach = quantile * sqrt(max(0.0, of_sum))
    return Estimated(value, value - reach, value + reach)


def _mean_of(changes: NDArray[np.float64]) -> Estimated:
    """Return the mean of changes with Student's interval."""
    from scipy.special import stdtrit  # quantiles of Student's t

    # Each name was asked in some of the groups only.
    n = changes.size
    if changes.ndim > 1:
        raise ConfigError(f"changes of a name of the shape {changes.shape} must be one list")
    if n < 2:
        # As of a card that was broken off: a change alone has no interval, none has no mean.
        value = float(changes.sum()) if n else nan
        return Estimated(value, nan, nan)
    value = float(changes.mean())
    error = changes.std(ddof=1) / sqrt(n)
    reach = stdtrit(n - 1, _AT) * error
    return Estimated(value, value - reach, value + reach)


def _ratio(
    slopes: NDArray[np.float64],
    squares: NDArray[np.float64],
    above: _Weights,
    below: _Weights,
) -> Estimated:
    """Return a ratio of two sums of coefficients with Fieller's interval.

    Args:
        slopes: the coefficients.
        squares: the products of the coefficients, each minus the squared quantile times covariance.
        above: the weights of the numerator.
        below: the weights of the denominator, which is surely not 0.
    """
    import numpy as np

    top = np.array(above)
    bottom = np.array(below)
    # Fieller's ends are the roots of the quadratic a x² - 2 b x + c.
    a = bottom @ squares @ bottom
    b = top @ squares @ bottom
    c = top @ squares @ top
    # Rounding may make the discriminant negative.
    root = sqrt(max(0.0, b * b - a * c))
    value = (top @ slopes) / (bottom @ slopes)
    low = (b - root) / a
    high = (b + root) / a
    return Estimated(
        float(value),
        float(low),
        float(high),
    )


class _Regression(NamedTuple):
    """Coefficients, and their variance."""

    slopes: NDArray[np.float64]
    variance: NDArray[np.float64]


def _regressed(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    member: NDArray[np.bool_],
) -> _Regression:
    """Return coefficients, and their variance by the jackknife over groups.

    With one decision in a group this is HC3 (MacKinnon and White 1985); with more it is CV3J
    without its factor (MacKinnon, Nielsen and Webb 2023, "Fast and reliable jackknife and bootstrap
    methods for cluster-robust inference", Journal of Applied Econometrics 38).
    """
    import numpy as np

    # By group, x'x and x'y; those of several groups add up.
    squares = np.einsum("gn,ni,nj->gij", member, x, x)
    sums = np.einsum("gn,ni,n->gi", member, x, y)
    all_squares = squares.sum(0)
    all_sums = sums.sum(0)
    # For each group, of all other groups; these may not identify the coefficients.
    rest_squares = all_squares - squares
    rest_sums = all_sums - sums
    ranks = np.linalg.matrix_rank(rest_squares)
    if ranks.min() < x.shape[1]:
        raise ConfigError(
            "the situations are too much alike: inflation, output gap and rate have to differ, "
            "and not only in one group"
        )
    slopes = np.linalg.solve(all_squares, all_sums)
    # As columns, since numpy takes a stack of vectors for a matrix.
    without_one = np.linalg.solve(rest_squares, rest_sums[..., None])
    apart = without_one[..., 0] - slopes
    return _Regression(slopes, apart.T @ apart)


def _criterion(
    name: str,
    measured: Estimated,
    bounds: _Bounds | None,
) -> Criterion:
    """Return a criterion, judged by its interval."""
    value, low, high = measured.rounded()
    if bounds is None:
        return Criterion(name, value, low, high)
    verdict: Verdict = "undecided"
    if bounds.least < low and high < bounds.most:
        verdict = "pass"
    elif high < bounds.wrong or low > bounds.most:
        verdict = "fail"
    needs = f"above {bounds.least:g}"
    if bounds.most < inf:
        needs = f"between {bounds.least:g} and {bounds.most:g}"
    return Criterion(name, value, low, high, needs, verdict)


def _on_target(missed_by: Estimated) -> Criterion:
    """Return the criterion on the distance of inflation from its target in the long run."""
    value, low, high = missed_by.rounded()
    surely_off = low > _NEAR or high < -_NEAR
    surely_near = low > -_NEAR and high < _NEAR
    # A slow player that draws has a wide interval, and does not fail because of that.
    may_be_none = -_FAR < low <= 0 <= high < _FAR
    verdict: Verdict = "undecided"
    if surely_off:
        verdict = "fail"
    elif surely_near or may_be_none:
        verdict = "pass"
    needs = f"within {_NEAR:g} of 0, or around 0 and within {_FAR:g}"
    return Criterion("target", value, low, high, needs, verdict)
