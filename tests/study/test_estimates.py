"""Effects with intervals: which unit was repeated, what the result speaks of, what is withheld."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from builders import benchmark
from scipy import stats

from llmsim_lab.errors import ConfigError
from llmsim_lab.study.estimates import Estimate, effects
from llmsim_lab.study.estimates.bands import Curves, Group, band, by_turn
from llmsim_lab.study.estimates.choice import Wanted
from llmsim_lab.study.estimates.effects import Remark, Tally, compared
from llmsim_lab.study.estimates.estimate import Generality
from llmsim_lab.study.estimates.family import holm
from llmsim_lab.study.estimates.groups import smallest_difference_of_group_shares
from llmsim_lab.study.estimates.numeric import skewness

REPO = Path(__file__).resolve().parents[2]
MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
THESE: Literal["these situations"] = "these situations"

# Hours of sleep that two drugs added in ten patients: Student (1908), "The probable error of a
# mean", Biometrika 6, after Cushny and Peebles. Its t, intervals and p are in every textbook.
DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]

NOISE = np.random.default_rng(5).standard_normal((2, 4, 3, 5))


def make_table(arms: Mapping[str, Any], *axes: str, **fixed: Any) -> pd.DataFrame:
    """A row for each value of an array an arm, whose axes are named; a unit is a run of its own."""
    row = {"unit": 1, "wording": "", "replicate": 1, "turn": 0, "outcome": "loss", **fixed}
    rows = [
        {"arm": arm, **row, **dict(zip(axes, places, strict=True)), "value": value}
        for arm, array in arms.items()
        for places, value in np.ndenumerate(array)
    ]
    return pd.DataFrame(rows).assign(run=lambda table: table["unit"])


def make_runs(arms: dict[str, list[Any]], *, outcome: str = "loss") -> pd.DataFrame:
    """A row for each run; arms share seeds 0, 1, 2 …"""
    return make_table(arms, "unit", outcome=outcome)


def make_answers(array: Any) -> pd.DataFrame:
    """A row for each answer of an array of arm x run x turn x replicate."""
    table = make_table(dict(zip("ab", array, strict=True)), "unit", "turn", "replicate")
    situation = table["unit"].astype(str) + ":" + table["turn"].astype(str)
    return table.assign(unit=situation)


def make_wordings(arms: dict[str, Any], *, runs: int = 1) -> pd.DataFrame:
    """A row for each answer of arrays of wording x situation x replicate."""
    table = make_table(arms, "wording", "unit", "replicate")
    wording = table["arm"] + table["wording"].astype(str)
    return table.assign(wording=wording, run=table["unit"] % runs)


def make_factorial(values: Any) -> pd.DataFrame:
    """A row for each run of an array of factor x prompt x seed."""
    levels = [(factor, prompt) for factor in (1.2, 1.8) for prompt in ("plain", "kind")]
    tables = [
        make_table({f"{factor} {prompt}": its}, "unit", factor=factor, prompt=prompt)
        for (factor, prompt), its in zip(levels, values.reshape(4, -1), strict=True)
    ]
    return pd.concat(tables)


# --- runs -----------------------------------------------------------------------------------------


def test_arms_that_share_seeds_are_compared_pair_by_pair() -> None:
    [effect] = effects(make_runs({"one": DRUG_1, "two": DRUG_2}))
    assert (effect.contrast, effect.n, effect.df) == (f"two {MINUS} one", 10, 9)
    assert effect.value == pytest.approx(1.58)
    assert (effect.low, effect.high) == pytest.approx((0.7001142, 2.4598858))
    assert effect.p == pytest.approx(0.00283289)
    assert (effect.generalises_to, effect.method) == ("new runs", "paired t over run means")


def test_turns_are_averaged_within_their_run() -> None:
    arms = {"one": DRUG_1, "two": DRUG_2}
    turns = {arm: np.add.outer(values, [7, -7, 7, -7]) for arm, values in arms.items()}
    [effect] = effects(make_table(turns, "unit", "turn"))
    assert (effect.n, effect.p) == (10, pytest.approx(0.00283289))


def test_one_pair_of_runs_has_no_interval_and_says_so() -> None:
    found = effects(make_runs({"a": [1.0], "b": [2.0]}))
    note = "one run: an interval takes several runs, not situations"
    assert (found[0].value, found[0].low, found[0].p, found[0].note) == (1.0, None, None, note)
    assert str(found) == f"b {MINUS} a: +1.00 (loss, 1 run)\n  note: {note}"


def test_a_pair_with_a_failed_run_is_left_out_and_counted() -> None:
    table = make_runs({"a": [1.0, 2.0, math.nan, 1.0], "b": [2.0, 2.6, 3.0, 5.5]})
    [effect] = effects(table)
    assert (effect.value, effect.n) == (pytest.approx((1.0 + 0.6 + 4.5) / 3), 3)
    assert effect.note.startswith("1 of 4 units left out: failed, not played")
    assert "if that depends on the arm, no interval shows it" in effect.note
    [without_row] = effects(table.dropna())
    assert without_row == effect


def test_runs_that_share_no_seed_are_not_compared() -> None:
    table = make_runs({"a": [1, 2], "b": [1, 2]})
    apart = table["arm"] + table["unit"].astype(str)
    [effect] = effects(table.assign(unit=apart, run=apart))
    assert (effect.value, effect.p, effect.n) == (None, None, 0)
    assert effect.note.startswith("4 of 4 units left out")


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        ([4.0, 4.25, 4.5, 4.0, 4.25], [4.0, 4.25, 4.75, 4.0, 4.25]),  # their differences
        ([4.0, 4.25, 4.5], [4.0, 4.25, 4.75]),
        ([4.0, 4.25, 4.0, 4.0], [4.25, 4.25, 4.0, 4.25]),  # the outcome itself
    ],
)
def test_an_outcome_that_takes_two_values_has_no_interval(
    plain: list[float], other: list[float]
) -> None:
    [effect] = effects(make_runs({"a": plain, "b": other}))
    assert (effect.low, effect.high, effect.method) == (None, None, "sign flips")
    assert effect.note == "takes two values only: too coarse for an interval"


@pytest.mark.parametrize("is_paired", [True, False])
def test_two_runs_are_enough_for_an_interval(is_paired: bool) -> None:
    up, down = [3.0, 5.5], [1.0, 2.0]
    [effect] = effects(make_runs({"a": down, "b": up}), paired=is_paired)
    test = stats.ttest_rel(up, down) if is_paired else stats.ttest_ind(up, down, equal_var=False)
    interval = test.confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))
    assert effect.note == ""


@pytest.mark.parametrize("n", [3, 5])
def test_a_main_effect_of_shares_has_an_interval_from_five_runs_on(n: int) -> None:
    values = np.random.default_rng(2).integers(0, 2, (2, 2, n)).astype(float)
    found = effects(make_factorial(values), "loss ~ factor")[0]
    if n < 5:
        assert (found.low, found.note) == (None, "3 runs: an interval of a 0 or 1 takes 5")
    else:
        interval = stats.ttest_1samp((values[1] - values[0]).mean(axis=0), 0).confidence_interval()
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_shares_have_width_and_the_exact_test_of_pairs() -> None:
    [never] = effects(make_runs({"a": [0.0] * 20, "b": [0.0] * 20}))
    assert (never.value, never.p) == (0, 1)
    assert never.low is not None
    assert never.low < -0.1
    [pairs] = effects(make_runs({"a": [0.0] * 7 + [1.0], "b": [1.0] * 8}))
    assert pairs.p == pytest.approx(stats.binomtest(0, 7).pvalue)
    # Bonett and Price: (7 + 1 - 1) / 10, and the variance of (8 + 1 - .49 x 10) / 10 over 10.
    error = 1.959964 * math.sqrt(((8 + 1) / 10 - 0.7**2) / 10)
    assert (pairs.low, pairs.high) == (pytest.approx(0.7 - error, abs=1e-6), 1)
    assert pairs.df is None


def test_shares_of_fewer_than_five_runs_have_no_interval() -> None:
    [effect] = effects(make_runs({"a": [0.0] * 4, "b": [1.0] * 4}))
    assert (effect.value, effect.low) == (1, None)
    assert effect.note == "4 runs: an interval of a 0 or 1 takes 5"
    assert effect.p is not None


def test_one_smallest_effect_of_interest_does_not_judge_shares_beside_other_numbers() -> None:
    coins = make_runs({"a": DRUG_1, "b": DRUG_2})
    won = make_runs({"a": [0.0, 1.0] * 5, "b": [1.0] * 10}, outcome="won")
    of_coins, of_won = effects(pd.concat([coins, won]), sesoi=3.0)
    assert of_coins.margin == 3.0
    assert (of_won.margin, of_won.verdict) == (None, "")
    assert of_won.note == (
        "a share, which sesoi=3 of outcomes in another unit does not judge; name its own: "
        "sesoi={'won': 0.1}"
    )
    assert effects(won, sesoi=0.1)[0].margin == 0.1


def test_a_formula_without_a_tilde_is_answered_by_one_with_it() -> None:
    for formula, outcome in (("loss", "loss"), ("", "y")):
        with pytest.raises(ConfigError, match=rf"write '{outcome} ~ factor \* prompt'"):
            effects(make_factorial(np.zeros((2, 2, 3))), formula)


def test_answers_that_stand_in_are_counted_beside_the_arms_they_are_in() -> None:
    table = make_runs({"a": DRUG_1, "b": DRUG_2, "c": DRUG_1[::-1]})
    counts = {"a": Tally(0, 20), "b": Tally(1, 20), "c": Tally(0, 0)}
    remark = Remark("answers that stand in for invalid ones (fallback)", counts)
    with_b, without = effects(table, remarks=[remark])
    assert with_b.note.endswith(
        "answers that stand in for invalid ones (fallback): 0 of 20 in a, 1 of 20 in b"
    )
    assert without.note == ""


def test_skewed_outcomes_are_warned_of() -> None:
    rare = [0.0, 0.1, 0.2, 0.1, 0.3, 0.2, 0.1, 9.0]
    [effect] = effects(make_runs({"a": [0.0] * 8, "b": rare}))
    assert effect.low is not None
    assert effect.note.startswith("skewed: a mean's interval is too narrow then")
    assert effect.typical is not None
    assert effect.typical.value == pytest.approx(0.15)
    assert "typical difference: +0.15, 95 %" in str(effect)
    assert effects(make_runs({"a": [0.0] * 8, "b": DRUG_2[:8]}))[0].typical is None


@pytest.mark.parametrize(("last", "is_skewed"), [(16.4, False), (16.5, True)])
def test_skewness_counts_from_two_standard_errors_on(last: float, is_skewed: bool) -> None:
    # It is 1.372 and 1.390; of ten values of a normal distribution two standard errors are 1.374.
    values = [*map(float, range(1, 10)), last]
    [effect] = effects(make_runs({"a": [0.0] * 10, "b": values}))
    assert effect.note.startswith("skewed") is is_skewed


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1.1e150])
def test_infinite_values_are_left_out_and_counted(value: float) -> None:
    [effect] = effects(make_runs({"a": [1.0, 2.0, value, 4.0], "b": [2.0, 4.5, 3.0, 5.5]}))
    assert (effect.value, effect.n) == (pytest.approx(5 / 3), 3)
    assert effect.note.startswith("1 of 4 units left out: failed, not played or without a value")


def test_an_outcome_in_the_trillions_does_not_hide_the_difference_in_another_one() -> None:
    small = make_runs({"a": [1.0, 2.0, 4.0], "b": [2.0, 4.0, 5.0]}, outcome="rate")
    large = make_runs({"a": [1e14, 2e14, 3e14], "b": [2e14, 1e14, 5e14]}, outcome="output")
    [alone] = effects(small)
    beside = effects(pd.concat([large, small]))[1]
    assert (beside.value, beside.low, beside.p) == (alone.value, alone.low, alone.p)


def test_contrasts_are_with_the_reference_or_those_that_are_named() -> None:
    table = make_runs({"a": DRUG_1, "b": DRUG_2, "c": DRUG_1[::-1]})
    assert [e.contrast for e in effects(table)] == [f"b {MINUS} a", f"c {MINUS} a"]
    assert [e.contrast for e in effects(table, reference="c")] == [f"a {MINUS} c", f"b {MINUS} c"]
    [named] = effects(table, contrasts=[("c", "b")])
    assert named.contrast == f"c {MINUS} b"
    assert named.value == pytest.approx(-1.58)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"reference": "c"}, "arm='c' is unknown; there are a, b"),
        ({"contrasts": [("a", "d")]}, "arm='d' is unknown"),
        ({"formula": "rate ~ factor"}, "outcome='rate' is unknown; there are loss"),
    ],
)
def test_unknown_names_are_errors(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        effects(make_runs({"a": [1.0], "b": [2.0]}), **how)


def test_an_empty_table_and_one_arm_have_no_effects() -> None:
    table = make_runs({"a": DRUG_1})
    assert effects(table.head(0)) == effects(table) == []
    assert str(effects(table)) == "nothing to compare"


# --- the typical difference, groups ---------------------------------------------------------------


def test_the_typical_difference_is_the_middle_of_the_means_of_two_differences() -> None:
    table = make_runs({"one": DRUG_1, "two": DRUG_2})
    [effect] = effects(table, typical=True)
    differences = np.array(DRUG_2) - DRUG_1
    means = [(x + y) / 2 for k, x in enumerate(differences) for y in differences[k:]]
    assert effect.value == pytest.approx(np.median(means))
    # Of 10 pairs the interval ends at the 9th mean from each end: Conover (1999), table A12.
    assert (effect.low, effect.high) == pytest.approx((sorted(means)[8], sorted(means)[-9]))
    assert (effect.kind, effect.n) == ("typical difference", 10)
    assert str(effect).startswith(f"two {MINUS} one, typical difference: +1.30, 95 % ")


@pytest.mark.parametrize(("n", "level"), [(5, 0.95), (3, 0.9), (4, 0.875)])
def test_of_few_runs_the_typical_difference_has_no_interval(n: int, level: float) -> None:
    # Of n pairs no sign may change by chance in 2 of 2^n; the interval begins where that is less.
    needed = next(k for k in range(20) if 2 / 2**k <= 1 - level)
    runs = {"a": DRUG_1[:n], "b": DRUG_2[:n]}
    [effect] = effects(make_runs(runs), typical=True, level=level)
    if n < needed:
        note = f"{n} runs: at a level of {level:g} this interval takes {needed}"
        assert (effect.low, effect.note) == (None, note)
    else:  # from the smallest difference to the largest
        differences = np.subtract(DRUG_2[:n], DRUG_1[:n])
        ends = (differences.min(), differences.max())
        assert (effect.low, effect.high) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("a", "b", "value", "note"),
    [
        ([1.0], [3.0], 2.0, "one run: an interval takes several runs, not situations"),
        (DRUG_1, DRUG_1, 0.0, "all differences are exactly 0, so nothing shows how new ones "),
        ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6], 0.3, "all differences are equal, so nothing shows"),
    ],
)
def test_a_typical_difference_without_spread_has_no_interval(
    a: list[float], b: list[float], value: float, note: str
) -> None:
    [effect] = effects(make_runs({"a": a, "b": b}), typical=True)
    assert (effect.value, effect.low, effect.p) == (pytest.approx(value), None, None)
    assert (effect.method, effect.note[: len(note)]) == ("Hodges-Lehmann", note)
    nan = [math.nan] * len(a)
    [nothing] = effects(make_runs({"a": a, "b": nan}), typical=True)
    assert (nothing.value, nothing.n, nothing.low) == (None, 0, None)
    assert nothing.note.endswith("an arm has no values")


@pytest.mark.parametrize("margin", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "values", [[0, 0, 1, 1, 1, -1, 2, 2, -0.5], [1, -1, 2, -2, 0.5, -0.5, 4, -4, 0]]
)
def test_ranks_of_equal_differences_are_shared_and_zeros_have_ranks(
    values: list[float], margin: float
) -> None:
    differences = np.array(values, float)
    [effect] = effects(
        make_runs({"a": [0.0] * 9, "b": list(differences)}), typical=True, sesoi=margin
    )
    flips = 1 - 2 * np.array(list(np.ndindex(*[2] * 9)))

    def p_of(values: np.ndarray, *, two_sided: bool) -> float:
        """Sums of signed ranks under all flips, of which one is observed (Pratt 1959)."""
        signed = stats.rankdata(np.abs(values)) * np.sign(values)
        sums = flips @ signed
        if two_sided:
            return float((np.abs(sums) >= abs(sums[0]) - 1e-9).mean())
        return float((sums <= sums[0] + 1e-9).mean())

    assert effect.p == pytest.approx(p_of(differences, two_sided=True))
    sides = (differences - margin, -(differences + margin))
    beyond = max(p_of(side, two_sided=False) for side in sides)
    assert effect.p_equivalent == pytest.approx(beyond)


def test_skewness_is_pandas_own() -> None:
    for values in ([1.0, 2.0, 4.0], [0.0, 0.0, 0.0, 5.0], DRUG_2):
        assert skewness(np.array(values)) == pytest.approx(pd.Series(values).skew())
    assert skewness(np.array([1.0, 2.0])) == skewness(np.full(4, 0.5)) == 0


def test_groups_that_share_nothing_are_compared_by_welch() -> None:
    groups = {"a": DRUG_1, "b": [*DRUG_2[:5], math.nan]}
    table = make_runs(groups)
    table["unit"] = table["run"] = table["arm"] + table["unit"].astype(str)
    [effect] = effects(table, paired=False)
    test = stats.ttest_ind(DRUG_2[:5], DRUG_1, equal_var=False)
    interval = test.confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))
    assert (effect.p, effect.df) == pytest.approx((test.pvalue, test.df))
    assert (effect.n, effect.method) == (15, "Welch's t over 10 and 5 runs")
    assert effect.note.startswith("1 of 16 units left out")


@pytest.mark.parametrize(("small", "df"), [(4, 3 * (1 + 4 / 20)), (5, None)])
def test_from_five_runs_on_a_small_group_has_welchs_own_degrees_of_freedom(
    small: int, df: float | None
) -> None:
    # Nearly equal, so that Welch's own are those of the large group: more than so few runs tell.
    groups = [1.0, 1.01, 1.02, 1.0, 1.03][:small], [*DRUG_2, *DRUG_2]
    [effect] = effects(make_runs(dict(zip("ab", groups, strict=True))), paired=False)
    welch = stats.ttest_ind(*groups[::-1], equal_var=False)
    assert effect.df == pytest.approx(df or welch.df)
    assert effect.method == f"Welch's t over {small} and 20 runs" + ", at most 3.6 df" * bool(df)


def test_groups_are_told_why_there_is_no_interval_or_one_that_is_too_narrow() -> None:
    alone = effects(make_runs({"a": DRUG_1, "b": [2.0]}), paired=False)[0]
    assert (alone.low, alone.note) == (None, "an arm has one run: an interval takes two in each")
    coarse = effects(make_runs({"a": [4.0, 4.25, 4.0], "b": [4.25, 4.25, 4.0]}), paired=False)[0]
    assert (coarse.low, coarse.note) == (
        None,
        "takes two values only: too coarse for an interval",
    )
    rare = [0.0, 0.1, 0.2, 0.1, 0.3, 0.2, 0.1, 9.0]
    skewed = effects(make_runs({"a": DRUG_1, "b": rare}), paired=False)[0]
    assert skewed.low is not None
    assert skewed.note == "skewed: a mean's interval is too narrow then"
    assert effects(make_runs({"a": DRUG_1, "b": DRUG_2}), paired=False)[0].note == ""
    nothing = effects(make_runs({"a": [0.0, 1.0], "b": [math.nan] * 2}), paired=False)[0]
    assert (nothing.value, nothing.n) == (None, 2)
    assert nothing.note.endswith("an arm has no values")


def test_how_groups_vary_is_kept_for_a_plan() -> None:
    table = make_runs({"a": DRUG_1, "b": DRUG_2[:6]})
    [one] = compared(table, wanted=Wanted(paired=False))
    variances = [np.var(DRUG_1, ddof=1), np.var(DRUG_2[:6], ddof=1)]
    assert [spread.variance for spread in one.parts.groups] == pytest.approx(variances)
    assert [spread.df for spread in one.parts.groups] == [9, 5]


def test_shares_of_groups_of_unequal_size_are_those_of_agresti_and_caffo() -> None:
    ones = {"a": [1.0] * 3 + [0.0] * 9, "b": [1.0] * 5 + [0.0] * 3}
    up, down = effects(make_runs(ones), paired=False, contrasts=[("b", "a"), ("a", "b")])
    shares = np.array([4 / 14, 6 / 10])
    error = math.sqrt((shares * (1 - shares) / [14, 10]).sum())
    normal = stats.norm(shares[1] - shares[0], error)
    assert (up.value, up.n) == (pytest.approx(5 / 8 - 3 / 12), 20)
    assert (up.low, up.high) == pytest.approx(normal.interval(0.95))
    assert (down.low, down.high) == pytest.approx((-up.high, -up.low))  # type: ignore[operator]
    assert up.p == pytest.approx(stats.fisher_exact([[5, 3], [3, 9]]).pvalue)
    assert up.method == "shares (Agresti and Caffo), Fisher's exact test, 12 and 8 runs"
    assert down.method == "shares (Agresti and Caffo), Fisher's exact test, 8 and 12 runs"
    few = effects(make_runs({"a": [0.0] * 4, "b": [1.0] * 5}), paired=False)[0]
    assert (few.low, few.note) == (None, "4 runs: an interval of a 0 or 1 takes 5")
    five = effects(make_runs({"a": [0.0] * 5, "b": [1.0] * 5}), paired=False, sesoi=0.1)[0]
    centre, error = 5 / 7, math.sqrt(2 * 6 / 7 / 7 / 7)
    assert (five.low, five.high) == (pytest.approx(centre - 1.959964 * error), 1.0)
    assert five.p_equivalent == pytest.approx(stats.norm.cdf((centre - 0.1) / error))


@pytest.mark.parametrize(("n", "alpha"), [(12, 0.05), (20, 0.01)])
def test_the_smallest_difference_of_group_shares_has_the_power_it_promises(
    n: int, alpha: float
) -> None:
    size = smallest_difference_of_group_shares(n, alpha=alpha)
    assert size is not None

    ones = np.arange(n + 1)
    # The tables in which Fisher's test as scipy has it finds the difference.
    found = np.array(
        [[stats.fisher_exact([[a, n - a], [b, n - b]]).pvalue <= alpha for b in ones] for a in ones]
    )

    def power(size: float) -> float:
        upper = stats.binom.pmf(ones, n, 0.5 + size / 2)
        lower = stats.binom.pmf(ones, n, 0.5 - size / 2)
        return float(upper @ found @ lower)

    assert power(size - 0.01) < 0.8 <= power(size)


def test_too_few_groups_show_no_difference_of_shares() -> None:
    assert smallest_difference_of_group_shares(3) is None


# --- factorials -----------------------------------------------------------------------------------


def test_a_factorial_has_main_effects_and_interactions_in_the_order_of_the_design() -> None:
    values = np.random.default_rng(5).standard_normal((2, 3, 2, 4))
    tables = [
        make_table({f"{a}{b}{c}": values[a, b, c]}, "unit", one=a, two=b, three=c)
        for a, b, c in np.ndindex(2, 3, 2)
    ]
    found = effects(pd.concat(tables), "~ three * one + two:one")
    labels = [e.contrast.replace(f" {MINUS} ", "-") for e in found]
    ones, threes = "one=1-one=0", "three=1-three=0"
    assert labels == [
        ones,
        threes,
        *(f"({ones}) {TIMES} (two={level}-two=0)" for level in (1, 2)),
        f"({ones}) {TIMES} ({threes})",
    ]
    change = values[1] - values[0]
    expected = [
        change.mean(),
        (values[:, :, 1] - values[:, :, 0]).mean(),
        *((change[level] - change[0]).mean() for level in (1, 2)),
        (change[:, 1] - change[:, 0]).mean(),
    ]
    assert [e.value for e in found] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rows", "formula", "message"),
    [
        (12, "~ factor * size", "factor='size' is unknown; there are factor, prompt"),
        (9, "~ factor * prompt", "3 arms are not all combinations of factor, prompt"),
        (12, "~ factor - prompt", "factor='factor - prompt' is unknown"),
    ],
)
def test_a_formula_takes_factors_and_all_their_combinations(
    rows: int, formula: str, message: str
) -> None:
    table = make_factorial(np.arange(12.0).reshape(2, 2, 3)).head(rows)
    with pytest.raises(ConfigError, match=message):
        effects(table, formula)


# --- families, equivalence ------------------------------------------------------------------------


def make_family(n: int) -> pd.DataFrame:
    values = np.random.default_rng(3).standard_normal((3, n, 2))
    values[1] += 1.5
    table = make_table(dict(zip("abc", values, strict=True)), "unit", "outcome")
    return table.replace({"outcome": {0: "loss", 1: "rate"}})


def test_contrasts_and_outcomes_are_one_family() -> None:
    few = effects(make_family(5))
    assert len(few) == 4
    assert [e.p_family for e in few] == pytest.approx(holm([e.p or 0 for e in few]))
    assert (few[0].method, few[0].family) == ("paired t over run means", "Holm over 4")
    many = effects(make_family(9))
    assert many[0].family == "Romano-Wolf over 4, 256 sign flips"
    assert all((e.p or 0) <= (e.p_family or 0) for e in many)
    [alone] = effects(make_runs({"a": DRUG_1, "b": DRUG_2}))
    assert alone.p_family == alone.p


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize(
    ("shift", "margin", "verdict"),
    [
        (0.0, 1.0, "no difference of 1 or more"),
        (0.6, 1.0, "differs by less than 1"),
        (0.6, 0.1, "differs by more than 0.1"),
        (-0.6, 0.1, "differs by more than 0.1"),
        (0.6, 0.6, "differs"),
        (0.02, 0.1, "undecided"),
    ],
)
def test_a_smallest_effect_of_interest_gives_a_verdict(
    shift: float, margin: float, verdict: str
) -> None:
    noise = np.tile([-0.4, -0.2, 0.0, 0.2, 0.4], 2)
    table = make_runs({"a": [0.0] * 10, "b": list(noise + shift)})
    [effect] = effects(table, sesoi={"loss": margin})
    above = stats.ttest_1samp(noise + shift, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(noise + shift, margin, alternative="less").pvalue
    assert effect.p_equivalent == pytest.approx(max(above, below))
    assert effect.verdict == verdict
    assert str(effect).endswith(f"; {verdict} (loss, 10 runs)")
    assert effects(table)[0].verdict == ""


def test_a_verdict_has_the_level_of_the_interval() -> None:
    noise = np.tile([-0.4, -0.2, 0.0, 0.2, 0.4], 2)
    table = make_runs({"a": [0.0] * 10, "b": list(noise + 0.2)})
    [strict], [wide] = (effects(table, sesoi=0.35, level=level) for level in (0.95, 0.9))
    assert 0.05 < (strict.p or 0) < 0.1
    assert 0.05 < (strict.p_equivalent or 0) < 0.1
    assert (strict.verdict, wide.verdict) == ("undecided", "differs by less than 0.35")


def test_equivalence_is_judged_by_its_family_too() -> None:
    rng = np.random.default_rng(4)
    tables = [
        make_runs(dict(zip("ab", rng.standard_normal((2, 30)), strict=True)), outcome=f"y{k}")
        for k in range(4)
    ]
    found = effects(pd.concat(tables), sesoi=0.7)
    own = [one.p_equivalent or 0 for one in found]
    assert [one.p_equivalent_family for one in found] == pytest.approx(holm(own))
    assert any(one.verdict == "undecided" and (one.p_equivalent or 1) < 0.05 for one in found)


def test_what_chance_alone_gives_is_shown_beside_and_is_in_no_family() -> None:
    rng = np.random.default_rng(9)
    values = rng.standard_normal((2, 12, 4))
    values[1] += 3
    table = make_table(dict(zip("ab", values, strict=True)), "unit", "replicate")
    effect, noise = effects(table, noise=True)
    halves = values[:, :, 2:].mean(axis=2) - values[:, :, :2].mean(axis=2)
    assert noise.is_noise
    assert noise.value == pytest.approx((halves[1] - halves[0]).mean() / 2)
    assert (effect.family, noise.p_family) == ("", None)
    assert f"b {MINUS} a, by chance alone: " in str(noise)


def test_a_difference_is_judged_by_its_family() -> None:
    weak = list(np.array(DRUG_2) - 1.0)
    arms = {"a": DRUG_1, "b": weak, **{x: DRUG_1[k:] + DRUG_1[:k] for k, x in enumerate("cdef", 1)}}
    found = effects(make_runs(arms), sesoi=0.3)[0]
    alone = effects(make_runs({"a": DRUG_1, "b": list(np.array(DRUG_2) - 0.6)}), sesoi=0.3)[0]
    assert (alone.p_family or 1) < 0.05
    assert alone.verdict == "differs"
    assert (found.verdict, found.p == found.p_family) == ("undecided", False)


# --- situations -----------------------------------------------------------------------------------


def test_turns_of_one_run_speak_of_these_situations_only() -> None:
    table = make_answers(NOISE[:, :1])
    [effect] = effects(table, generalises_to=THESE)
    differences = NOISE[1, 0] - NOISE[0, 0]
    parts = differences.var(axis=1, ddof=1) / 5 / 9
    assert effect.value == pytest.approx(differences.mean())
    assert effect.df == pytest.approx(parts.sum() ** 2 / (parts**2 / 4).sum())
    reach = stats.t.ppf(0.975, effect.df) * math.sqrt(parts.sum())
    assert effect.high == pytest.approx(differences.mean() + reach)
    assert str(effect).endswith("(loss, 3 situations)")
    [new] = effects(table)
    assert (new.n, new.low, new.p) == (1, None, None)
    assert new.note.startswith("one run: an interval takes several")


def test_several_runs_are_the_units_of_new_runs() -> None:
    [effect] = effects(make_answers(NOISE))
    interval = stats.ttest_1samp((NOISE[1] - NOISE[0]).mean(axis=(1, 2)), 0).confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))
    assert (effect.n, effect.generalises_to) == (4, "new runs")


def test_a_situation_that_an_arm_did_not_answer_is_left_out() -> None:
    array = NOISE.copy()
    array[0, 0, 1] = math.nan
    [these] = effects(make_answers(array[:, :1]), generalises_to=THESE)
    assert (these.n, these.note[:21]) == (2, "1 of 3 units left out")
    kept = array[:, 0, [0, 2]].mean(axis=(1, 2))
    assert these.value == pytest.approx(kept[1] - kept[0])
    [new] = effects(make_answers(array))
    runs = [(array[1, r] - array[0, r]).mean(axis=1) for r in range(4)]
    assert new.value == pytest.approx(np.mean([np.nanmean(run) for run in runs]))
    assert new.note.startswith("1 of 12 units left out")
    array[0, 0, 1, :2] = 3.0  # two answers are enough
    [two] = effects(make_answers(array[:, :1]), generalises_to=THESE)
    assert (two.n, two.note) == (3, "")


def test_one_answer_a_situation_has_no_interval() -> None:
    [effect] = effects(make_answers(NOISE[:, :1, :, :1]), generalises_to=THESE)
    assert (effect.low, effect.note) == (None, "one answer a situation: an interval takes two")


def test_answers_that_take_two_values_have_no_interval_unless_they_are_shares() -> None:
    answers = np.tile([4.0, 4.25], (2, 1, 3, 2))
    answers[1, 0, 0, 0] = 4.25
    [effect] = effects(make_answers(answers), generalises_to=THESE)
    assert effect.note == "takes two values only: too coarse for an interval"
    [share] = effects(make_answers(4 * (answers - 4)), generalises_to=THESE)
    assert share.low is not None
    alike = np.ones((2, 1, 3, 2))
    [same] = effects(make_answers(alike), generalises_to=THESE)
    assert (same.value, same.low, same.p) == (0, None, None)


# --- wordings -------------------------------------------------------------------------------------


def test_wordings_are_the_units_of_new_wordings() -> None:
    a, b = NOISE[0], NOISE[1, :3]
    [effect] = effects(make_wordings({"a": a, "b": b}), generalises_to="new wordings")
    means = [array.mean(axis=(1, 2)) for array in (a, b)]
    error = math.sqrt(sum(mean.var(ddof=1) / len(mean) for mean in means))
    assert (effect.n, effect.df, effect.generalises_to) == (7, 2, "new wordings")
    assert effect.high == pytest.approx(b.mean() - a.mean() + stats.t.ppf(0.975, 2) * error)


def test_an_arm_with_one_wording_stays_as_it_is() -> None:
    a, b = NOISE[0, :1], NOISE[1]
    [effect] = effects(make_wordings({"a": a, "b": b}), generalises_to="new wordings")
    means = b.mean(axis=(1, 2))
    error = math.sqrt(a[0].var(axis=1, ddof=1).sum() / 5 / 9 + means.var(ddof=1) / 4)
    assert (effect.n, effect.df) == (5, 3)
    assert effect.high == pytest.approx(b.mean() - a.mean() + stats.t.ppf(0.975, 3) * error)


def test_shares_of_answers_that_are_all_alike_vary_as_with_a_0_and_a_1_more() -> None:
    same = {"a": np.zeros((3, 2, 5)), "b": np.ones((3, 2, 5))}
    [effect] = effects(make_wordings(same), generalises_to="new wordings")
    error = math.sqrt(2 * (1 / 32) * (31 / 32) / 32)  # of 30 answers an arm
    assert effect.high == pytest.approx(1 + stats.t.ppf(0.975, 2) * error)


def test_fewer_than_three_wordings_are_no_sample_of_wordings() -> None:
    found: Generality
    for found in ("new wordings", "new wordings and situations"):
        table = make_wordings({"a": NOISE[0, :2], "b": NOISE[1, :3]}, runs=3)
        [effect] = effects(table, generalises_to=found)
        assert (effect.low, effect.note) == (None, "two wordings of an arm: new ones take three")
        assert effect.value is not None


def test_new_wordings_and_situations_take_several_runs_and_are_wider() -> None:
    arms = {"a": NOISE[0], "b": NOISE[1]}
    [these] = effects(make_wordings(arms), generalises_to="new wordings")
    [new] = effects(make_wordings(arms, runs=3), generalises_to="new wordings and situations")
    [one_run] = effects(make_wordings(arms), generalises_to="new wordings and situations")
    runs = (NOISE[1] - NOISE[0]).mean(axis=(0, 2))
    error = (these.high - these.value) / stats.t.ppf(0.975, 3)  # type: ignore[operator]
    wider = math.sqrt(error**2 + runs.var(ddof=1) / 3)
    assert new.df == 2
    assert new.high == pytest.approx(new.value + stats.t.ppf(0.975, 2) * wider)
    assert (one_run.low, one_run.note[:7]) == (None, "one run")
    [two] = effects(make_wordings(arms, runs=2), generalises_to="new wordings and situations")
    assert (two.df, two.note) == (1, "")


def test_an_arm_with_one_wording_takes_one_answer_a_run() -> None:
    table = make_wordings({"a": NOISE[0, :1, :, :1], "b": NOISE[1, :, :, :1]}, runs=3)
    [effect] = effects(table, generalises_to="new wordings and situations")
    assert (effect.df, effect.note) == (2, "")
    [these] = effects(table, generalises_to="new wordings")
    assert these.note == "an arm's only wording takes two answers a situation"


def test_contrasts_of_single_wordings_speak_of_what_they_can() -> None:
    table = make_wordings({"a": NOISE[0, :1], "b": NOISE[1, :1], "c": NOISE[1]})
    one, several = effects(table, generalises_to="new wordings")
    assert (one.generalises_to, several.generalises_to) == (THESE, "new wordings")


def test_wordings_that_arms_share_are_compared_wording_by_wording() -> None:
    levels = 3 * NOISE[0].mean(axis=(1, 2), keepdims=True)
    arms = {"low": NOISE[0] + levels, "high": NOISE[1] + levels}
    table = make_table(arms, "wording", "unit", "replicate").assign(prompt="kind")
    [effect] = effects(table, generalises_to="new wordings")
    means = (arms["high"] - arms["low"]).mean(axis=(1, 2))
    interval = stats.ttest_1samp(means, 0).confidence_interval()
    assert (effect.n, effect.df) == (4, 3)
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))
    # Lists of two prompts are numbered alike, and are different wordings.
    nested = effects(table.assign(prompt=table["arm"]), generalises_to="new wordings")[0]
    assert (nested.n, nested.value) == (8, pytest.approx(effect.value))


# --- texts ----------------------------------------------------------------------------------------


def make_texts(arms: dict[str, list[str]], *, of: int) -> pd.DataFrame:
    """A row for each text; ``of`` are the texts of a situation."""
    answers = {arm: np.reshape(np.array(texts, object), (-1, of)) for arm, texts in arms.items()}
    return make_table(answers, "unit", "replicate", outcome="move")


def of_texts(arms: dict[str, list[str]], of: int, generalises_to: Generality = THESE) -> Estimate:
    found = effects(make_texts(arms, of=of), generalises_to=generalises_to)
    [effect] = [effect for effect in found if effect.kind == "text distance"]
    return effect


def test_the_energy_test_sees_always_a_against_sixty_percent_a() -> None:
    effect = of_texts({"a": ["A"] * 12 + ["B"] * 8, "b": ["A"] * 20}, 20)
    assert effect.value == pytest.approx(2 * 0.4**2)
    assert (effect.p or 1) < 0.01
    assert of_texts({"a": ["up", "down"] * 5, "b": ["down", "up"] * 5}, 10).p == 1


def test_shares_are_averaged_over_situations_which_may_differ() -> None:
    effect = of_texts({"a": ["A"] * 5 + ["B"] * 5, "b": ["A"] * 3 + ["C"] * 2 + ["B"] * 5}, 5)
    assert (effect.n, effect.value) == (2, pytest.approx(2 * 0.2**2))
    assert effect.p == 0.5  # two pairs of ten differ, and both in the same direction


def test_whole_runs_are_exchanged_where_the_test_generalises_to_new_runs() -> None:
    effect = of_texts({"a": ["A"] * 40, "b": ["B"] * 40}, 10, "new runs")
    # Four pairs of runs, so one exchange in eight leaves all runs of an arm alike.
    assert effect.n == 4
    assert effect.p == 1 / 8


def test_outcomes_that_are_texts_are_compared_beside_numbers() -> None:
    texts = make_texts({"a": ["A"] * 8, "b": ["B"] * 8}, of=1)
    numbers = make_runs({"a": DRUG_1[:8], "b": DRUG_2[:8]})
    loss, move = effects(pd.concat([numbers, texts]))
    assert (move.outcome, move.value, move.low) == ("move", 2, None)
    assert loss.family == "Holm over 2"
    factors = texts.assign(size=texts["arm"])
    assert effects(factors, "move ~ size")[0].value == 2


def test_a_text_that_is_missing_is_left_out_with_its_pair_and_has_no_noise() -> None:
    table = make_texts({"a": ["A", "B", "A", "A"], "b": ["B", "B", "A", "B"]}, of=1)
    table.loc[0, "value"] = None
    [effect] = effects(table, noise=True)
    assert (effect.n, effect.value) == (3, pytest.approx(2 / 9))
    assert effect.note.startswith("1 of 4 units left out: failed")
    assert effect.p == 1  # one pair of three differs


def test_texts_that_hardly_recur_are_compared_by_their_words() -> None:
    texts = {"a": ["one b", "One, c", "one d"], "b": ["two b", "two c", "two d"]}
    assert of_texts(texts, 3).value == pytest.approx(1)  # 1 / 2 of "one", and as much of "two"
    again = {arm: [text.casefold() for text in its] * 2 for arm, its in texts.items()}
    assert of_texts(again, 6).value == pytest.approx(2 / 3)  # six categories, each a third


def test_texts_without_words_are_alike_also_beside_numbers() -> None:
    texts = make_texts({"a": ["", "?!", "...", "-"], "b": ["go up.", "go on.", "go.", "up."]}, of=1)
    numbers = make_runs({"a": [1.0, 2, 3, 4], "b": [2.0, 4, 3, 9]})
    alone, _ = effects(texts)
    assert effects(pd.concat([numbers, texts]))[1].value == alone.value
    assert (alone.n, alone.note) == (4, "")


def test_arms_with_different_numbers_of_wordings_have_no_p_value_of_texts() -> None:
    table = make_texts({"a": ["A", "B", "A"], "b": ["A", "B", "A"]}, of=1)
    more = table[table["arm"] == "b"].assign(wording="another")
    [effect] = effects(pd.concat([table, more]))
    assert (effect.value, effect.p) == (0, None)
    assert effect.note == "no p-value: arms have different numbers of wordings"


def test_numbers_and_texts_in_one_outcome_are_not_compared() -> None:
    table = make_runs({"a": np.array([1.0, 2, 3]), "b": np.array([2.0, 4, "n/a"], object)})
    [effect] = effects(table)
    assert (effect.value, effect.p) == (None, None)
    assert effect.note == (
        "5 numbers and 1 text, such as 'n/a', cannot be compared; return None where a run has no "
        "number"
    )


def test_a_distance_of_texts_is_worded_as_one_with_the_difference_in_length_beside_it() -> None:
    short = ["we wait", "no move", "hold it", "stay put", "we hold"]
    long = [f"{text} and see what comes of it" for text in short]
    distance, length = effects(make_texts({"a": short, "b": long}, of=1), generalises_to="new runs")
    assert distance.sentence().startswith(f"b {MINUS} a: the texts' distance is ")
    assert (length.kind, length.value, length.p) == ("length difference", 6, None)
    assert length.sentence() == f"b {MINUS} a, words a text: +6.00"
    # A mean, also where typical differences are wanted of other outcomes.
    table = make_texts({"a": short, "b": [*long[1:], f"{long[0]} and of much else"]}, of=1)
    assert effects(table, typical=True)[1].value == pytest.approx(6.8)
    [categories] = effects(make_texts({"a": ["up"] * 5, "b": ["down"] * 5}, of=1))
    assert categories.kind == "text distance"


def test_of_texts_of_one_arm_nothing_is_known() -> None:
    table = make_texts({"a": ["A"], "b": ["B"]}, of=1)
    [apart] = effects(table.assign(unit=[1, 2], run=[1, 2]))
    assert apart.value is None
    assert apart.note.endswith("; there are no answers of both arms")


# --- turns ----------------------------------------------------------------------------------------


def make_curves(curves: Any) -> pd.DataFrame:
    return make_table({"a": 0 * curves, "b": curves}, "unit", "turn")


def test_before_the_shock_the_band_has_no_width() -> None:
    curves = np.random.default_rng(6).standard_normal((10, 4))
    curves[:, :2] = 0
    frame = by_turn(make_curves(curves), "b", "a")
    assert (frame.loc[:1, ["low", "high"]] == 0).to_numpy().all()
    assert (frame["high"] > frame["low"])[2:].all()
    constant = by_turn(make_curves(np.ones((3, 2))), "b", "a")
    assert (constant[["low", "high"]] == 1).to_numpy().all()


def test_a_curve_with_a_gap_is_left_out_and_one_curve_has_no_band() -> None:
    frame = by_turn(make_curves(np.array([[1.0, 2.0], [3.0, math.nan]])), "b", "a")
    assert (list(frame["estimate"]), list(frame["n"])) == ([1, 2], [1, 1])
    assert frame["low"].isna().all()


@pytest.mark.parametrize("n", [2, 5, 12])
def test_a_band_of_one_turn_is_students_interval(n: int) -> None:
    curves = np.random.default_rng(n).standard_normal((n, 1))
    frame = by_turn(make_curves(curves), "b", "a", level=0.8)
    interval = stats.ttest_1samp(curves[:, 0], 0).confidence_interval(0.8)
    reach = (interval.high - interval.low) / 2
    assert (frame["high"] - frame["estimate"])[0] == pytest.approx(reach, rel=0.05)
    assert (frame["estimate"] - frame["low"])[0] == pytest.approx(reach, rel=0.05)
    assert list(frame.columns) == ["turn", "estimate", "low", "high", "n", "unit"]
    assert (frame["n"][0], frame["unit"][0]) == (n, "run")


def test_the_correlation_of_few_curves_is_shrunk_towards_none() -> None:
    same = np.tile(np.random.default_rng(2).standard_normal((5, 1)), 20)
    frame = by_turn(make_curves(same), "b", "a")
    c = (frame["high"] - frame["estimate"])[0] / (same[:, 0].std(ddof=1) / math.sqrt(5))
    # The sample's 1, of five curves, counts as .8.
    rng = np.random.default_rng(1)
    shared = rng.standard_normal((20_000, 5, 1))
    drawn = math.sqrt(0.8) * shared + math.sqrt(0.2) * rng.standard_normal((20_000, 5, 20))
    t = drawn.mean(axis=1) / (drawn.std(axis=1, ddof=1) / math.sqrt(5))
    assert c == pytest.approx(np.quantile(np.abs(t).max(axis=1), 0.95), rel=0.05)


def test_groups_have_a_band_by_both_variances_and_by_the_smaller_number_of_runs() -> None:
    rng = np.random.default_rng(3)
    arms = {"a": rng.standard_normal((12, 1)), "b": 3 * rng.standard_normal((4, 1))}
    frame = by_turn(make_table(arms, "unit", "turn"), "a", "b", paired=False)
    variances = [arms["a"].var(ddof=1) / 12, arms["b"].var(ddof=1) / 4]
    reach = stats.t.ppf(0.975, 3) * math.sqrt(sum(variances))
    assert frame["estimate"][0] == pytest.approx(arms["a"].mean() - arms["b"].mean())
    assert (frame["high"] - frame["estimate"])[0] == pytest.approx(reach, rel=0.06)
    missing = make_table({**arms, "b": np.full((4, 1), math.nan)}, "unit", "turn")
    with pytest.raises(ConfigError, match="no run of 'b' has numbers at every turn"):
        by_turn(missing, "a", "b", paired=False)


@pytest.mark.parametrize(
    ("counts", "generalises_to", "has_band"),
    [
        ((3, 4), "new wordings", True),
        ((3, 4), "new wordings and situations", True),
        ((1, 4), "new wordings", False),  # nothing shows how the only wording's answers vary
        ((1, 4), "new wordings and situations", True),
        ((2, 4), "new wordings", False),
        ((2, 4), "new wordings and situations", False),
    ],
)
def test_wordings_have_a_band_where_effects_would_have_an_interval(
    counts: tuple[int, int], generalises_to: Generality, has_band: bool
) -> None:
    rng = np.random.default_rng(4)
    arms = {arm: rng.standard_normal((n, 5, 2)) for arm, n in zip("ab", counts, strict=True)}
    table = make_table(arms, "wording", "unit", "turn")
    table = table.assign(prompt=table["arm"])
    frame = by_turn(table, "b", "a", generalises_to=generalises_to)
    means = [arms[arm].mean(axis=(0, 1)) for arm in "ab"]
    assert frame["estimate"].to_numpy() == pytest.approx(means[1] - means[0])
    assert frame["low"].notna().all() == has_band
    assert (set(frame["n"]), set(frame["unit"])) == ({sum(counts)}, {"wording"})
    if has_band:
        # Of each arm's wordings, if it has several; and of runs where new ones are spoken of.
        variances = sum(
            array.mean(axis=1).var(axis=0, ddof=1) / len(array)
            for array in arms.values()
            if len(array) > 1
        )
        if "situations" in generalises_to:
            runs = arms["b"].mean(axis=0) - arms["a"].mean(axis=0)
            variances = variances + runs.var(axis=0, ddof=1) / 5
        reach = ((frame["high"] - frame["estimate"]) / np.sqrt(variances)).to_numpy()
        assert reach[0] == pytest.approx(reach[1])
        assert reach[0] > stats.t.ppf(0.975, min(c for c in counts if c > 1) - 1)


def test_wordings_of_which_no_run_is_whole_have_no_band() -> None:
    arms = {arm: np.ones((3, 2, 2)) for arm in "ab"}
    table = make_table(arms, "wording", "unit", "turn")
    table.loc[(table["arm"] == "a") & (table["turn"] == 1), "value"] = math.nan
    with pytest.raises(ConfigError, match="no run has numbers of 'b' and 'a' at every turn"):
        by_turn(table, "b", "a", generalises_to="new wordings")


def test_by_turn_compares_pairs_of_runs() -> None:
    table = make_curves(np.ones((2, 2)))
    apart = table.assign(run=table["unit"].astype(str) + table["arm"])
    with pytest.raises(ConfigError, match="no pair of runs has numbers of 'b' and 'a'"):
        by_turn(apart, "b", "a")
    with pytest.raises(ConfigError, match="arm='c' is unknown"):
        by_turn(table, "c", "a")


def test_long_curves_of_many_runs_have_the_same_band_from_fewer_draws() -> None:
    curves = np.random.default_rng(2).standard_normal((60, 30)).cumsum(axis=1)
    difference = Curves(
        turns=list(range(30)),
        mean=curves.mean(axis=0),
        groups=[Group(1.0, curves)],
        n=60,
        unit="run",
    )
    few = band(difference, 0.95, draws=5_000).high
    assert few == pytest.approx(band(difference, 0.95, draws=10_000).high, rel=0.05)


# --- many specifications --------------------------------------------------------------------------


# --- plans ----------------------------------------------------------------------------------------


# --- the benchmark, reduced -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench() -> Any:
    return benchmark("coverage")


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("pairs of runs", "n=5, normal"),
        ("shares, pairs", "n=20, 0.0 and 0.1"),
        ("new runs, from situations", "4 runs x 8 turns, AR(1) 0.95"),
        ("new wordings and situations", "4 runs, 8 and 1, sd 0.5"),
        ("through the table", "n=10, ~ factor * prompt"),
    ],
)
def test_intervals_contain_the_truth_as_often_as_they_say(
    bench: Any, group: str, name: str
) -> None:
    [cell] = [cell for cell in bench["CELLS"] if (cell.group, cell.name) == (group, name)]
    row = bench["measure_cell"](cell, 200 if group != "through the table" else 60)
    assert row["measured"] > 0.92


def test_calls_taken_as_units_would_fail_the_same_check(bench: Any) -> None:
    cell = next(c for c in bench["CELLS"] if c.group == "before: calls as units")
    assert bench["measure_cell"](cell, 60)["measured"] < 0.75


def test_the_committed_figures_are_of_all_cells_and_name_those_that_miss(bench: Any) -> None:
    figures = json.loads((REPO / "benchmarks" / "coverage.json").read_text(encoding="utf-8"))
    assert [(row["group"], row["cell"]) for row in figures["cells"]] == [
        (cell.group, cell.name) for cell in bench["CELLS"]
    ]
    assert figures["replications"] == 5_000
    assert figures["misses"] == []
