"""A model's decisions beside people's: each figure by another formula than the code's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from llmsim_lab.people import PublishedFigure
from llmsim_lab.study.estimates.people import (
    ALIKE,
    ALL_SAME,
    EXACT,
    FEW_GROUPS,
    MEAN_ONLY,
    NOT_BOUNDED,
    SKEWED,
    Closeness,
    Margins,
    PeopleParts,
    Verdict,
    Weighted,
    compare_law,
    compare_numbers,
    family_verdicts,
    groups_for,
    halves_of,
)

NONE = Closeness(None, None, "not judged")


def figure_of(values: Any, *, printed: bool = True, note: str = "") -> PublishedFigure:
    """People with these values, or those of whom a study prints the mean and the spread alone."""
    return PublishedFigure(
        study="drawn",
        condition="",
        source="",
        place="",
        n=len(values),
        mean=float(np.mean(values)),
        sd=float(np.std(values, ddof=1)),
        values=tuple(map(float, values)) if printed else (),
        note=note,
    )


def share_of(count: float, n: int) -> PublishedFigure:
    figure = figure_of([0.0, 1.0], printed=False)
    return replace(figure, n=n, mean=count / n, sd=None, count=count)


def one_each(values: Any) -> list[np.ndarray]:
    return [np.array([float(value)]) for value in values]


def check(part: Closeness, *expected: Any, within: float = 1e-9) -> None:
    """Compare value, interval, near, p_near and p_far."""
    value, interval, near, *p_values = expected
    assert part.value == pytest.approx(value)
    if interval is not None:
        interval = pytest.approx(tuple(interval), abs=within)
    assert part.interval == interval
    assert part.near == near
    assert part[3:] == pytest.approx(p_values or (1.0, 1.0), abs=within)


# --- runs -----------------------------------------------------------------------------------------

PEOPLE = np.array([0, 0, 0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5, 0.6])
SD = PEOPLE.std(ddof=1)
RUNS = np.random.default_rng(4).choice(PEOPLE, (32, 3))


@pytest.mark.parametrize(
    ("count", "shift", "margins", "near"),
    [
        (32, 0.0, Margins(mean=0.25), "near"),
        (32, 0.0, Margins(mean=0.1, level=0.9), "undecided"),
        (32, 0.5, Margins(mean=0.2), "far"),
        (32, -0.5, Margins(mean=0.2), "far"),
        (5, 0.0, Margins(mean=0.4), "near"),  # of which no spread is judged
    ],
)
def test_the_difference_of_means_has_students_t_of_runs_and_of_people(
    count: int, shift: float, margins: Margins, near: Verdict
) -> None:
    runs = RUNS[:count] + shift
    means = runs.mean(axis=1)
    # Two more runs of three players with people's spread; the fewer degrees of freedom.
    of_runs = (np.sum((means - means.mean()) ** 2) + 2 * SD**2 / 3) / (count + 1) / count
    error = math.sqrt(of_runs + SD**2 / 12)
    value = means.mean() - PEOPLE.mean()
    t = stats.t(min(count - 1, 11), scale=error)
    expected = (
        value,
        value + np.array(t.interval(margins.level)),
        near,
        t.cdf(abs(value) - margins.mean),
        t.sf(abs(value) - margins.mean),
    )
    parts = compare_numbers(list(runs), figure_of(PEOPLE), margins)
    check(parts.difference, *expected)
    # Without people's values the difference alone is judged.
    parts = compare_numbers(list(runs), figure_of(PEOPLE, printed=False), margins)
    check(parts.difference, *expected)
    check(parts.spread, runs.std(ddof=1) / SD, None, "not judged")
    assert (parts.distance, parts.halves) == (NONE, None)
    assert parts.verdict == {"near": "like people", "far": "unlike people"}.get(near, near)


def jackknifed(groups: list[np.ndarray]) -> np.ndarray:
    """Pseudo-values of the log standard deviation, a group left out each."""
    n = len(groups)
    whole = math.log(np.concatenate(groups).std(ddof=1))
    left = [np.concatenate([*groups[:k], *groups[k + 1 :]]) for k in range(n)]
    return np.array([n * whole - (n - 1) * math.log(part.std(ddof=1)) for part in left])


@pytest.mark.parametrize(
    ("factor", "margin", "near", "verdict"),
    [
        (1.0, 2.0, "near", "like people"),
        (1.0, 1.2, "undecided", "undecided"),
        (0.2, 2.0, "far", "unlike people"),
        (4.0, 2.0, "far", "unlike people"),
    ],
)
def test_the_ratio_of_spreads_has_welchs_t_of_jackknifed_logarithms(
    factor: float, margin: float, near: str, verdict: Verdict
) -> None:
    runs = (RUNS - RUNS.mean()) * factor + PEOPLE.mean()
    margins = Margins(mean=5.0, spread=margin, level=0.9)
    parts = compare_numbers(list(runs), figure_of(PEOPLE), margins)
    model, people = jackknifed(list(runs)), jackknifed(one_each(PEOPLE))
    test = stats.ttest_ind(model, people, equal_var=False)
    difference = model.mean() - people.mean()
    t = stats.t(test.df, scale=difference / test.statistic)
    beyond = abs(difference) - math.log(margin)
    interval = np.exp(test.confidence_interval(0.9))
    ratio = runs.std(ddof=1) / SD
    check(parts.spread, ratio, interval, near, t.cdf(beyond), t.sf(beyond), within=1e-6)
    assert parts.verdict == verdict


@pytest.mark.parametrize(
    ("groups", "people", "near", "value"),
    [
        (4, PEOPLE, "not judged", 1.0),
        (5, PEOPLE, "undecided", 1.0),
        (29, PEOPLE, "undecided", 1.0),
        (30, [0.1] * 4, "not judged", math.inf),
        (4, [0.1] * 4, "not judged", math.inf),
        (30, [0.1] * 11 + [0.5], "far", None),  # but for one person all are equal
    ],
)
def test_a_ratio_of_spreads_that_has_no_interval(
    groups: int, people: Any, near: str, value: float | None
) -> None:
    runs = one_each(np.resize(PEOPLE, groups))
    figure = figure_of(people)
    spread = compare_numbers(runs, figure, Margins()).spread
    if value == 1.0 or value is None:
        value = np.std(runs, ddof=1) / np.std(people, ddof=1)
    check(spread, value, None, near, 1.0, 0.0 if near == "far" else 1.0)


@pytest.mark.parametrize(("last", "value"), [(0.2, 0.0), (0.3, 0.1 / math.sqrt(30) / SD)])
def test_thirty_runs_of_which_all_are_equal_or_all_but_one_have_another_spread(
    last: float, value: float
) -> None:
    parts = compare_numbers(one_each([0.2] * 29 + [last]), figure_of(PEOPLE), Margins(mean=5.0))
    check(parts.spread, value, None, "far", 1.0, 0.0)
    assert (ALL_SAME in parts.notes) == (last == 0.2)


@pytest.mark.parametrize(
    ("groups", "figure", "notes"),
    [
        (one_each(PEOPLE), figure_of(PEOPLE), ()),
        (one_each(PEOPLE[:4]), figure_of(PEOPLE, note="in 1994"), (FEW_GROUPS, "in 1994")),
        (one_each([0.5] * 12), figure_of(PEOPLE), (ALL_SAME,)),
        (one_each([0.5] * 12), figure_of([0.5] * 4), (ALIKE,)),
        (one_each([0.1] * 11 + [0.9]), figure_of(PEOPLE), (SKEWED,)),
        (one_each([0.0] * 11 + [1.0]), share_of(5, 12), ()),
        (one_each([0.1] * 11 + [0.9]), share_of(5, 12), (SKEWED,)),
        (one_each([0.5] * 12), share_of(5, 12), (ALL_SAME,)),
        (one_each(PEOPLE), replace(share_of(5, 12), count=None), (MEAN_ONLY,)),
    ],
)
def test_a_note_says_why_there_is_no_interval_or_one_that_is_too_narrow(
    groups: list[np.ndarray], figure: PublishedFigure, notes: tuple[str, ...]
) -> None:
    parts = compare_numbers(groups, figure, Margins())
    assert parts.notes == notes
    has_interval = not {FEW_GROUPS, ALIKE, MEAN_ONLY} & set(notes)
    assert (parts.difference.interval is not None) == has_interval
    assert (parts.verdict != "not judged") == has_interval


@pytest.mark.parametrize(
    ("shift", "groups", "near"),
    [(0.0, 30, "near"), (0.0, 29, "undecided"), (0.9, 30, "far"), (0.9, 29, "undecided")],
)
def test_a_distance_is_judged_by_the_margin_and_by_peoples_own_halves(
    shift: float, groups: int, near: str
) -> None:
    decisions = np.resize(PEOPLE, groups) + shift
    parts = compare_numbers(one_each(decisions), figure_of(PEOPLE), Margins())
    value = stats.wasserstein_distance(decisions, PEOPLE)
    check(parts.distance, value, None, near)
    assert parts.halves == halves_of(tuple(PEOPLE))
    assert value < 0.1 or shift
    # Their halves differ by more than half a cent, but not by a dollar.
    tight = compare_numbers(one_each(decisions), figure_of(PEOPLE), Margins(mean=0.005))
    assert tight.distance.near == near


def test_of_halves_of_people_the_median_distance_and_95_percent_are_those_of_all_halves() -> None:
    ones = stats.hypergeom(40, 20, 20)  # of the first half
    distances = sorted((abs(2 * k - 20) / 20, ones.pmf(k)) for k in range(21))
    below = np.cumsum([share for _, share in distances])
    expected = [distances[int(np.searchsorted(below, share))][0] for share in (0.5, 0.95)]
    assert halves_of((0.0,) * 20 + (1.0,) * 20) == tuple(expected)
    # One of an odd number is left out, which may be the 9.
    assert halves_of((0.0, 0.0, 9.0)) == (9.0, 9.0)
    assert halves_of((3.0, 3.0, 3.0, 7.0)) == (2.0, 2.0)


# --- shares ---------------------------------------------------------------------------------------


def error_at(margin: float, ones: int, runs: int, count: float, n: int) -> float:
    """The standard error of a difference of shares that are the likeliest at a margin."""

    def unlikely(people: float) -> float:
        model = people + margin
        return -sum(
            a * math.log(share) + (of - a) * math.log(1 - share)
            for a, of, share in ((ones, runs, model), (count, n, people))
        )

    bounds = (max(0.0, -margin) + 1e-9, min(1.0, 1.0 - margin) - 1e-9)
    people = optimize.minimize_scalar(
        unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-9}
    ).x
    model = people + margin
    return math.sqrt(model * (1 - model) / runs + people * (1 - people) / n)


@pytest.mark.parametrize(
    ("ones", "runs", "count", "n", "near"),
    [
        (70, 100, 108, 150, "near"),
        (7, 10, 108, 150, "undecided"),
        (30, 100, 108, 150, "far"),
        (95, 100, 60, 150, "far"),
        (5, 60, 4, 90, "near"),
    ],
)
def test_a_difference_of_shares_has_agresti_and_caffos_interval_and_the_score_tests_margin(
    ones: int, runs: int, count: float, n: int, near: str
) -> None:
    decisions = [1.0] * ones + [0.0] * (runs - ones)
    parts = compare_numbers(one_each(decisions), share_of(count, n), Margins())
    of_model, of_people = (ones + 1) / (runs + 2), (count + 1) / (n + 2)
    variance = of_model * (1 - of_model) / (runs + 2) + of_people * (1 - of_people) / (n + 2)
    normal = stats.norm(of_model - of_people, math.sqrt(variance))
    value = ones / runs - count / n
    p_near = max(
        stats.norm.cdf((value - 0.15) / error_at(0.15, ones, runs, count, n)),
        stats.norm.sf((value + 0.15) / error_at(-0.15, ones, runs, count, n)),
    )
    p_far = stats.norm.sf((abs(of_model - of_people) - 0.15) / math.sqrt(variance))
    check(parts.difference, value, normal.interval(0.95), near, p_near, p_far, within=1e-6)
    assert (parts.spread, parts.halves) == (NONE, None)
    check(parts.distance, abs(value), None, "not judged")


def test_where_people_or_all_runs_did_it_the_margin_is_judged_without_a_division_by_0() -> None:
    for ones, near in ((60, "near"), (0, "far")):
        runs = one_each([1.0] * ones + [0.0] * (60 - ones))
        part = compare_numbers(runs, share_of(90, 90), Margins()).difference
        assert part.near == near
        assert part.p_near == pytest.approx(0.0 if ones else 1.0, abs=1e-3)
    # At the margin itself nothing varies: 1.0 and 0.0 are 1 apart.
    whole = compare_numbers(one_each([1.0] * 60), share_of(0, 90), Margins(mean=1.0)).difference
    assert whole.p_near == pytest.approx(0.5)


def test_of_runs_with_several_decisions_the_means_own_variance_counts_beside_a_count() -> None:
    runs = np.repeat([0.0, 1.0], [40, 56])
    runs = np.random.default_rng(1).permuted(runs).reshape(24, 4)
    parts = compare_numbers(list(runs), share_of(60, 100), Margins(mean=0.3))
    means = runs.mean(axis=1)
    share = 61 / 102
    error = math.sqrt(means.var(ddof=1) / 24 + share * (1 - share) / 102)
    t = stats.t(23, scale=error)
    middle = means.mean() - share
    interval = middle + np.array(t.interval(0.95))
    beyond = abs(middle) - 0.3
    value = means.mean() - 0.6
    check(parts.difference, value, interval, "near", t.cdf(beyond), t.sf(beyond))
    assert (parts.spread, parts.verdict) == (NONE, "like people")
    check(parts.distance, abs(value), None, "not judged")


# --- laws -----------------------------------------------------------------------------------------


def law_of(values: Any, weights: Any) -> Weighted:
    return Weighted(np.array(values, float), np.array(weights, float))


@pytest.mark.parametrize(
    ("share", "count", "n", "level", "near"),
    [
        (0.7, 108, 150, 0.95, "near"),
        (0.2, 108, 150, 0.99, "far"),
        (1.0, 108, 150, 0.95, "far"),
        (0.2, 1, 20, 0.95, "undecided"),
        (0.05, 0, 60, 0.95, "near"),
        (0.95, 60, 60, 0.95, "near"),
        (0.5, 0, 60, 0.9, "far"),
        (0.22, 10, 100, 0.95, "undecided"),
    ],
)
def test_a_share_of_a_law_has_the_exact_interval_and_tests_of_a_binomial_count(
    share: float, count: int, n: int, level: float, near: str
) -> None:
    margins = Margins(level=level)
    parts = compare_law(law_of([0, 1], [1 - share, share]), share_of(count, n), margins)
    theirs = stats.binomtest(count, n).proportion_ci(level)
    least, most = share - 0.15, share + 0.15
    # Nobody's share is below 0 or above 1.
    above = stats.binom.sf(count - 1, n, least) if least > 0 else 0.0
    below = stats.binom.cdf(count, n, most) if most < 1 else 0.0
    p_near = max(above, below)
    p_far = 1.0
    if least > 0:
        p_far = stats.binom.cdf(count, n, least)
    if most < 1:
        p_far = min(p_far, stats.binom.sf(count - 1, n, most))
    interval = share - theirs.high, share - theirs.low
    check(parts.difference, share - count / n, interval, near, p_near, p_far)
    assert (parts.notes, parts.spread, parts.halves) == ((EXACT,), NONE, None)
    check(parts.distance, abs(share - count / n), None, "not judged")


@pytest.mark.parametrize(
    ("values", "weights", "margins", "nears"),
    [
        ([0.0, 0.3, 0.5], [0.2, 0.4, 0.4], Margins(mean=0.2, spread=3.0), ("near", "near")),
        ([0.0, 1.0], [0.7, 0.3], Margins(mean=0.2, spread=1.2), ("near", "far")),
        ([0.8, 0.9], [0.5, 0.5], Margins(level=0.9), ("far", "far")),
        ([0.1, 0.3], [0.5, 0.5], Margins(), ("undecided", "undecided")),
    ],
)
def test_a_law_beside_values_from_0_to_1_has_limits_of_people_with_one_more(
    values: Any, weights: Any, margins: Margins, nears: tuple[str, str]
) -> None:
    parts = compare_law(law_of(values, weights), figure_of(PEOPLE), margins)
    mean = np.dot(values, weights)
    sd = math.sqrt(np.dot(weights, (np.array(values) - mean) ** 2))
    # Dirichlet's weights of 12 people and of one more, at the far end or at the mean.
    drawn = np.random.default_rng(0).dirichlet(np.ones(13), 40_000)

    def moments(extreme: float) -> tuple[np.ndarray, np.ndarray]:
        people = np.append(PEOPLE, extreme)
        means = drawn @ people
        variances = ((people - means[:, None]) ** 2 * drawn).sum(axis=1)
        return means, np.sqrt(variances * 13 / 12)

    reach = (1 - margins.level) / 2
    sides = (
        (moments(0.0)[0], moments(1.0)[0], mean - margins.mean, mean + margins.mean),
        (moments(PEOPLE.mean())[1], moments(1.0)[1], sd / margins.spread, sd * margins.spread),
    )
    expected = []
    for lower, upper, least, most in sides:
        p_near = max(np.mean(lower <= least), np.mean(upper >= most))
        p_far = min(np.mean(upper >= least), np.mean(lower <= most))
        expected.append((np.quantile(lower, reach), np.quantile(upper, 1 - reach), p_near, p_far))
    (low, high, *p_mean), (narrow, wide, *p_spread) = expected
    check(
        parts.difference,
        mean - PEOPLE.mean(),
        (mean - high, mean - low),
        nears[0],
        *p_mean,
        within=0.012,
    )
    interval = pytest.approx((sd / wide, sd / narrow), rel=0.03)
    assert parts.spread.interval == interval
    check(parts.spread._replace(interval=None), sd / SD, None, nears[1], *p_spread, within=0.012)
    distance = stats.wasserstein_distance(values, PEOPLE, weights)
    assert parts.distance.value == pytest.approx(distance)


@pytest.mark.parametrize(("extreme", "mean"), [(0.0, 0.25), (1.0, 0.75)])
def test_people_at_the_margin_itself_are_not_near(extreme: float, mean: float) -> None:
    at_margin = compare_law(law_of([mean], [1]), figure_of([extreme] * 90), Margins(mean=0.25))
    assert (at_margin.difference.near, at_margin.difference.p_near) == ("undecided", 1.0)


def test_no_draw_of_ten_thousand_is_a_p_value_of_one_in_so_many_and_one() -> None:
    people = figure_of(np.resize([0.4, 0.5, 0.6], 900))
    near = compare_law(law_of([0.4, 0.6], [0.5, 0.5]), people, Margins()).difference
    far = compare_law(law_of([1.0], [1]), people, Margins()).difference
    assert (near.p_near, near.p_far) == (pytest.approx(1 / 10_001), pytest.approx(1.0))
    assert (far.p_near, far.p_far) == (pytest.approx(1.0), pytest.approx(1 / 10_001))


DOLLARS = 5 * PEOPLE + 1


@pytest.mark.parametrize(
    ("values", "margins", "near"),
    [
        ([2.0, 3.5], Margins(mean=1.0, spread=2.5), "near"),
        ([2.0, 9.0], Margins(mean=1.0, level=0.9), "far"),
        ([2.1, 2.4], Margins(mean=0.5), "undecided"),
    ],
)
def test_a_law_beside_amounts_has_students_t_and_jackknifed_spreads_of_people(
    values: Any, margins: Margins, near: str
) -> None:
    parts = compare_law(law_of(values, [0.5, 0.5]), figure_of(DOLLARS), margins)
    mean = np.mean(values)
    sd = np.std(values)
    value = mean - DOLLARS.mean()
    t = stats.t(11, scale=DOLLARS.std(ddof=1) / math.sqrt(12))
    interval = value + np.array(t.interval(margins.level))
    beyond = abs(value) - margins.mean
    check(parts.difference, value, interval, near, t.cdf(beyond), t.sf(beyond))
    people = jackknifed(one_each(DOLLARS))
    difference = math.log(sd) - people.mean()
    t = stats.t(11, scale=stats.sem(people))
    beyond = abs(difference) - math.log(margins.spread)
    interval = np.exp(difference + np.array(t.interval(margins.level)))
    ratio = sd / DOLLARS.std(ddof=1)
    check(parts.spread, ratio, interval, parts.spread.near, t.cdf(beyond), t.sf(beyond))
    assert parts.notes == (EXACT,)


SAME_BUT_ONE = [2.0] * 11 + [9.0]


@pytest.mark.parametrize(
    ("values", "figure", "notes", "spread"),
    [
        ([2, 3], figure_of([2.0] * 4), (EXACT, ALIKE), (math.inf, None, "not judged")),
        ([2, 3], figure_of(DOLLARS, printed=False, note="of 1994"), (EXACT, "of 1994"), None),
        ([2, 2], figure_of(DOLLARS), (EXACT,), (0.0, None, "far", 1.0, 0.0)),
        ([0, 1], figure_of(SAME_BUT_ONE), (EXACT, NOT_BOUNDED), "far"),
        ([0, 1], replace(share_of(5, 12), count=None), (MEAN_ONLY,), NONE),
        ([0, 3], share_of(5, 12), (EXACT,), NONE),
    ],
)
def test_what_a_law_cannot_show_beside_such_people(
    values: Any, figure: PublishedFigure, notes: tuple[str, ...], spread: Any
) -> None:
    parts = compare_law(law_of(values, [0.5, 0.5]), figure, Margins(mean=9.0, spread=99.0))
    assert parts.notes == notes
    ratio = 0.5 / figure.sd if figure.sd else math.inf
    if spread == "far":  # without the one person nothing varies
        spread = (ratio, None, "far", 1.0, 0.0)
    check(parts.spread, *(spread or (ratio, None, "not judged")))
    if NOT_BOUNDED in notes:
        assert (parts.difference.near, parts.difference.p_near) == ("undecided", 1.0)
    if MEAN_ONLY in notes:
        assert (parts.difference.near, parts.verdict) == ("not judged", "not judged")
    if values == [0, 3]:  # a share that is none has no distance of shares
        assert parts.distance == NONE


def test_a_skewed_people_far_from_a_law_is_unlike_it() -> None:
    skewed = figure_of([1.0] * 22 + [1.1, 9.0])
    parts = compare_law(law_of([7.0, 8.0], [0.5, 0.5]), skewed, Margins())
    assert (parts.difference.near, parts.difference.p_near) == ("far", 1.0)
    assert parts.difference.p_far < 0.001
    assert (parts.spread.p_near, parts.verdict) == (1.0, "unlike people")


# --- verdicts -------------------------------------------------------------------------------------


def part(near: Any, p_near: float = 1.0, p_far: float = 1.0) -> Closeness:
    return Closeness(0.1, None, near, p_near, p_far)


def parts_of(difference: Closeness, spread: Closeness, distance: Closeness) -> PeopleParts:
    return PeopleParts(difference=difference, spread=spread, distance=distance)


@pytest.mark.parametrize(
    ("difference", "spread", "distance", "p_like", "p_unlike"),
    [
        (part("near", 0.01, 0.9), part("near", 0.03, 0.8), part("near"), 0.03, 1.0),
        (part("near", 0.01, 0.3), NONE, part("near"), 0.01, 0.6),
        (part("near", 0.01, 0.3), NONE, part("far"), 1.0, 0.0),
        (part("undecided", 0.2, 0.02), part("far", 1.0, 0.01), NONE, 1.0, 0.02),
        (NONE, NONE, NONE, 1.0, 1.0),
    ],
)
def test_likeness_is_as_sure_as_its_worst_part_and_unlikeness_twice_as_its_best(
    difference: Closeness, spread: Closeness, distance: Closeness, p_like: float, p_unlike: float
) -> None:
    parts = parts_of(difference, spread, distance)
    assert (parts.p_like, parts.p_unlike) == (p_like, p_unlike)


@pytest.mark.parametrize(
    ("verdict", "p_values", "verdicts"),
    [
        ("like people", [0.02, 0.03], ["like people", "like people"]),
        ("like people", [0.02, 0.06], ["like people", "undecided"]),
        ("unlike people", [0.01, 0.02], ["unlike people", "unlike people"]),
        ("undecided", [0.001, 0.001], ["undecided", "undecided"]),
        ("like people", [0.025, 0.03], ["undecided", "undecided"]),  # not below .05
        ("like people", [0.024, 0.05], ["like people", "undecided"]),
    ],
)
def test_verdicts_of_a_family_are_holms_of_each_kind_for_those_that_are_judged(
    verdict: Verdict, p_values: list[float], verdicts: list[Verdict]
) -> None:
    judged = [
        replace(
            parts_of(part("undecided", p, p), NONE, NONE),
            verdict=verdict,
        )
        for p in p_values
    ]
    none = parts_of(NONE, NONE, NONE)
    found = family_verdicts([none, judged[0], none, judged[1]])
    assert found == ["not judged", verdicts[0], "not judged", verdicts[1]]


@pytest.mark.parametrize(
    ("figure", "margin", "power", "least"),
    [
        (share_of(108, 150), 0.15, 0.8, 5),
        (share_of(108, 150), 0.15, 0.9, 5),
        (share_of(1, 1000), 0.5, 0.8, 5),
        (figure_of(PEOPLE), 0.3, 0.8, 30),  # where spreads are compared
        (figure_of(np.tile(PEOPLE, 20)), 0.06, 0.8, 30),
        (figure_of(np.tile(PEOPLE, 20), printed=False), 0.1, 0.8, 5),
    ],
)
def test_so_many_runs_show_likeness_with_a_power_and_one_less_does_not(
    figure: PublishedFigure, margin: float, power: float, least: int
) -> None:
    found = groups_for(figure, margin, power=power)
    assert found is not None
    variance = figure.sd**2 if figure.sd is not None else figure.mean * (1 - figure.mean)

    def passed(runs: int) -> float:
        """How often both one-sided tests are passed where nothing differs."""
        error = math.sqrt(variance / runs + variance / figure.n)
        return float(2 * stats.norm.cdf(margin / error - stats.norm.ppf(0.95)) - 1)

    assert passed(found) >= power
    assert found == least or passed(found - 1) < power
    assert found >= least


def test_few_people_or_a_mean_alone_show_no_likeness_however_many_runs() -> None:
    assert groups_for(figure_of(PEOPLE), 0.15) is None
    assert groups_for(replace(share_of(5, 12), count=None), 0.5) is None
    assert groups_for(figure_of([0.5] * 4, printed=False), 0.1) == 5
