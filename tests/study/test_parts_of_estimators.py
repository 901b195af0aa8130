"""What estimators are made of, against other formulas: arrays, flips, shares, texts, words."""

from __future__ import annotations

import html
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from llmsim_lab.study.estimates import Estimate, effects
from llmsim_lab.study.estimates.estimate import Effects, Interval
from llmsim_lab.study.estimates.family import adjusted, flipped_t, romano_wolf, sign_flips
from llmsim_lab.study.estimates.joint import joint_test
from llmsim_lab.study.estimates.numeric import (
    by_run,
    is_share,
    is_two_valued,
    known,
    mean_of_known,
    without_rounding,
)
from llmsim_lab.study.estimates.parts import Parts, Spread
from llmsim_lab.study.estimates.samples import cube
from llmsim_lab.study.estimates.shares import cut, smallest_share_difference
from llmsim_lab.study.estimates.student import (
    ALL_EQUAL,
    ALL_ZERO,
    NO_VALUES,
    Stratum,
    Student,
    has_no_spread,
    smallest_detectable,
    spread_of,
    student,
    weighted_mean,
    with_student,
)
from llmsim_lab.study.estimates.texts import text_kinds, text_lengths

MINUS = "\N{MINUS SIGN}"
NAN = math.nan


def array(*values: float) -> np.ndarray:
    return np.array(values, float)


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "two_valued", "share"),
    [
        ([], True, True),
        ([1, 1, NAN], True, True),
        ([0, 1, 1, NAN], True, True),
        ([0.5, 0.5], True, False),
        ([0, 1, 2], False, False),
        ([0.3, 0.1 + 0.2, 1.0], True, False),  # but for rounding
        ([1e9, 1e9 + 0.5, 2e9], True, False),
        ([1e9, 1e9 + 5, 2e9], False, False),
        ([-4, -4, 4], True, False),
    ],
)
def test_values_are_two_but_for_rounding_or_shares(
    values: list[float], two_valued: bool, share: bool
) -> None:
    assert (is_two_valued(array(*values)), is_share(array(*values))) == (two_valued, share)


def test_means_are_of_what_is_known_and_of_runs_in_their_order() -> None:
    values = np.array([[1, NAN, 3, 4], [NAN, NAN, 5, NAN]])
    assert known(values).tolist() == [1, 3, 4, 5]
    assert mean_of_known(values, 1).tolist() == pytest.approx([8 / 3, 5])
    assert mean_of_known(values, 0) == pytest.approx([1, NAN, 4, 4], nan_ok=True)
    assert by_run(values, np.array([7, 3, 7, 3]))[0].tolist() == [2, 4]
    assert by_run(values, np.array([7, 3, 7, 3]))[1] == pytest.approx([5, NAN], nan_ok=True)
    assert by_run(values, np.arange(4)[::-1]) is values


def test_differences_that_are_rounding_are_0() -> None:
    values = array(0.3, 1.0, NAN)
    differences = array(0.1 + 0.2 - 0.3, 1e-12, 1.1e-12, NAN)
    assert without_rounding(differences, values)[:3].tolist() == [0, 0, 1.1e-12]
    assert np.isnan(without_rounding(differences, values)[3])


# --- Student's t ----------------------------------------------------------------------------------


def test_a_weighted_mean_is_not_known_without_values_and_0_but_for_rounding() -> None:
    third = [Stratum(1 / 3, array(0.1))] * 3
    assert weighted_mean([*third, Stratum(-1, array(0.1))]) == 0
    assert weighted_mean([*third, Stratum(-1, array(0.1 - 1e-12))]) == pytest.approx(1e-12)
    assert weighted_mean([Stratum(2, array(1, 2)), Stratum(-1, array(4))]) == -1
    assert weighted_mean([Stratum(1, array(1)), Stratum(1, array())]) is None
    assert weighted_mean([]) is None


def test_spreads_add_up_with_satterthwaites_df_in_a_block_and_the_fewest_over_blocks() -> None:
    rng = np.random.default_rng(1)
    groups = [rng.standard_normal(n) * scale for n, scale in ((4, 1), (9, 3), (6, 1))]
    strata = [Stratum(weight, group) for weight, group in zip((1, -2, 0.5), groups, strict=True)]
    parts = [w**2 * g.var(ddof=1) / len(g) for w, g in strata]
    found = spread_of([strata[:2], strata[2:]])
    df = sum(parts[:2]) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 8)
    assert found == pytest.approx((sum(parts), min(df, 5)))
    few = spread_of([strata, [Stratum(1, array(3))]])
    assert (math.isnan(few.variance), few.df) == (True, 0)
    # Where nothing varies the smallest group says how surely.
    same = [Stratum(1, np.full(n, 2.0)) for n in (4, 3)]
    assert spread_of([same]) == (0, 2)
    assert has_no_spread(Spread(0.0, 2), same)
    assert has_no_spread(Spread((2e-9) ** 2, 2), same)
    assert not has_no_spread(Spread((2.1e-9) ** 2, 2), same)


def test_students_t_has_the_interval_and_tests_of_scipy() -> None:
    t = student(-0.4, [Spread(0.03, 7), Spread(0.01, 4)])
    assert t == pytest.approx((-0.4, 0.2, 4))
    law = stats.t(4, scale=0.2)
    assert t.interval(0.9) == pytest.approx(tuple(law.interval(0.9) - np.array(0.4)))
    assert t.p() == pytest.approx(2 * law.sf(0.4))
    assert t.p_beyond(0.5) == pytest.approx(law.cdf(-0.1))
    assert t.p_beyond(0.1) == pytest.approx(law.cdf(0.3))
    assert (t.known_df(), Student(0, 1, math.inf).known_df()) == (4, None)


@pytest.mark.parametrize(
    ("values", "reasons", "note"),
    [
        ((1, 2), {}, ""),
        ((), {"few": "few", "coarse": "coarse"}, NO_VALUES),
        ((1, 2), {"few": "few", "coarse": "coarse"}, "few"),
        ((1, 2), {"coarse": "coarse"}, "coarse"),
        ((0, 0), {"coarse": "coarse"}, ALL_ZERO),
        ((2, 2), {"coarse": "coarse"}, ALL_EQUAL),
    ],
)
def test_without_an_interval_the_nearest_reason_alone_is_said(
    values: Any, reasons: dict[str, str], note: str
) -> None:
    strata = [Stratum(1.0, array(*values))]
    parts = Parts(kind="mean difference", n=2, method="t", notes=("before",))
    found = with_student(parts, strata, [spread_of([strata])], 0.95, **reasons)
    assert found.notes == (("before", note) if note else ("before",))
    assert (found.interval is None, found.p is None) == (bool(note), bool(note))
    assert found.value == (np.mean(values) if values else None)
    assert found.method == ("t" if values else "none")


@pytest.mark.parametrize(("alpha", "power", "df"), [(0.05, 0.8, 5), (0.01, 0.9, 30), (0.1, 0.5, 2)])
def test_the_smallest_effect_is_found_with_its_power_at_its_level(
    alpha: float, power: float, df: int
) -> None:
    size = smallest_detectable([Spread(0.25, df)], alpha=alpha, power=power)
    critical = stats.t.ppf(1 - alpha / 2, df)
    assert stats.nct.sf(critical, df, size / 0.5) == pytest.approx(power, abs=1e-3)
    # Two sources, whose variances are drawn each with its own degrees of freedom.
    rng = np.random.default_rng(5)
    sources = [Spread(0.15, df), Spread(0.1, 20)]
    size = smallest_detectable(sources, alpha=alpha, power=power)
    error = np.sqrt(sum(s.variance * rng.chisquare(s.df, 40_000) / s.df for s in sources))
    effect = size + 0.5 * rng.standard_normal(40_000)
    fewest = stats.t.ppf(1 - alpha / 2, min(df, 20))
    assert np.mean(effect > fewest * error) == pytest.approx(power, abs=0.012)


# --- families -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "method"),
    [
        (7, "Holm over 2"),
        (8, "Romano-Wolf over 2, 128 sign flips"),
        (13, "Romano-Wolf over 2, 4,096 sign flips"),
        (14, "Romano-Wolf over 2, 5,000 sign flips"),
    ],
)
def test_from_eight_pairs_on_flips_adjust_a_family_and_from_fourteen_on_random_ones(
    pairs: int, method: str
) -> None:
    rng = np.random.default_rng(pairs)
    columns = list(rng.standard_normal((2, pairs)) + 9)
    found = adjusted([1e-9, 0.5], columns)
    assert found.method == method
    assert found.p_values[1] == 0.5  # none is below its own
    flips = sign_flips(pairs)
    if "flips" in method:
        # No flip but none, and its opposite if that was drawn, gives as large a mean.
        as_large = np.abs(flips.sum(axis=1)) == pairs
        assert found.p_values[0] == pytest.approx(as_large.mean())
        assert f"{len(flips):,} sign" in method
    else:
        assert found.p_values[0] == 2e-9
    assert flips.shape[1] == pairs
    assert set(np.unique(flips)) == {-1, 1}
    assert (flips[0] == 1).all()
    # One column that has no pairs leaves Holm's to all.
    assert adjusted([0.01, 0.5], [columns[0], None]).method == "Holm over 2"
    assert adjusted([0.01], columns[:1]) == ([0.01], "")
    assert adjusted([], []) == ([], "")


def test_flips_have_students_t_of_what_is_not_missing() -> None:
    table = np.random.default_rng(2).standard_normal((6, 4)) + 0.5
    table[4:, 1] = NAN
    table[1:, 2] = NAN  # one pair has no t
    table[:, 3] = 2.0
    t = flipped_t(table)
    for column in (0, 1):
        values = known(table[:, column])
        for flip, found in zip(sign_flips(6), t[column], strict=True):
            signed = values * flip[: len(values)]
            assert found == pytest.approx(abs(stats.ttest_1samp(signed, 0).statistic))
    assert (t[2] == 0).all()
    assert t[3, 0] > 1e5  # all equal: as good as infinite
    assert t[3].argmax() == 0
    zeros = flipped_t(np.zeros((4, 1)))
    assert (zeros == 0).all()
    assert romano_wolf(np.zeros((4, 1))).tolist() == [1]


def test_romano_wolfs_p_is_of_the_largest_that_is_left_under_each_flip() -> None:
    table = np.random.default_rng(7).standard_normal((9, 3)) + array(0.2, 0.9, 0.6)
    t = flipped_t(table)
    order = np.argsort(-t[:, 0])
    p = [(t[order[k:]].max(axis=0) >= t[order[k], 0] * (1 - 1e-9)).mean() for k in range(3)]
    expected = np.maximum.accumulate(p)
    assert romano_wolf(table)[order] == pytest.approx(expected)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_joint_test_counts_signs_and_intervals_of_each_flip(level: float) -> None:
    table = np.random.default_rng(3).standard_normal((7, 4)) + array(0.4, 0.9, 0.0, 0.3)
    table[:, 3] = 0.0  # a sign that is none
    table[5:, 1] = NAN
    found = joint_test(table, level)
    signs, holds, medians = [], [], []
    for flip in sign_flips(7):
        columns = [known(column * flip) for column in table.T]
        means = np.array([column.mean() for column in columns])
        median = np.median(means)
        medians.append(abs(median))
        same = (np.sign(means) == np.sign(median)) & (means != 0)
        signs.append(same.mean())
        t = np.array(
            [
                abs(m) / (c.std(ddof=1) / math.sqrt(len(c))) if c.any() else 0
                for c, m in zip(columns, means, strict=True)
            ]
        )
        limits = stats.t.ppf((1 + level) / 2, [len(c) - 1 for c in columns])
        holds.append((same & (t > limits)).mean())
    assert found.flips == 64
    assert found.same_sign == pytest.approx(np.mean(signs))
    assert found.holds == pytest.approx(np.mean(holds))
    assert found.p == pytest.approx(np.mean(np.array(medians) >= medians[0] * (1 - 1e-9)))
    one_run = joint_test(np.array([[1.0, 2.0]]), level)
    assert (one_run.p, one_run.same_sign, one_run.holds, one_run.flips) == (1, 1, 0, 1)


# --- shares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("differing", "count", "n", "alpha", "power"),
    [(3, 20, 30, 0.05, 0.8), (0, 12, 25, 0.01, 0.9), (8, 8, 40, 0.05, 0.5)],
)
def test_the_smallest_difference_of_shares_has_the_power_it_promises(
    differing: int, count: int, n: int, alpha: float, power: float
) -> None:
    pilot = np.repeat([1.0, 0.0], [differing, count - differing])
    size = smallest_share_difference(pilot, n, alpha=alpha, power=power)
    assert size is not None
    limit = stats.binomtest(differing, count).proportion_ci(0.6).high  # .2 are beyond it

    def found(size: float) -> float:
        discordant = min(1.0, limit + size)
        total = 0.0
        for k in range(1, n + 1):
            ups = np.arange(k + 1)
            p = 2 * stats.binom.cdf(np.minimum(ups, k - ups), k, 0.5)  # McNemar's
            law = stats.binom(k, (1 + size / discordant) / 2)
            total += stats.binom.pmf(k, n, discordant) * law.pmf(ups)[p <= alpha].sum()
        return float(total)

    assert found(size - 0.01) < power <= found(size)
    assert smallest_share_difference(pilot, 4) is None
    assert cut(Interval(-1.2, 1.3)) == (-1, 1)


# --- tables ---------------------------------------------------------------------------------------


def test_a_cube_has_a_place_for_each_combination_and_no_infinite_mean() -> None:
    table = pd.DataFrame(
        {
            "arm": ["b", "b", "a", "a", "a"],
            "unit": [2, 1, 2, 2, 1],
            "value": [1.0, "text", 2.0, 5.0, -1.1e150],
        }
    )
    values, levels = cube(table, "arm", "unit")
    assert levels == [["b", "a"], [2, 1]]
    assert values == pytest.approx(np.array([[1, NAN], [3.5, NAN]]), nan_ok=True)
    one, names = cube(table.head(3), "arm")
    assert (one.tolist(), names) == ([1, 2], [["b", "a"]])


@pytest.mark.parametrize(
    ("texts", "are_words", "kinds"),
    [
        (["up", "up", "down", "down"], False, {"up", "down"}),
        (["up", "up", "down", "Go down"], True, {"up", "down", "go", ""}),
    ],
)
def test_texts_are_words_where_more_than_half_are_different(
    texts: list[str], are_words: bool, kinds: set[str]
) -> None:
    found = text_kinds(pd.Series(texts))
    assert (found.are_words, set(found.rows.columns)) == (are_words, kinds)
    assert text_lengths(pd.Series(["", "Go down!", "it's"])).tolist() == [0, 2, 2]


def test_texts_of_groups_are_compared_by_the_exchanges_of_whole_runs() -> None:
    rows = [
        {"arm": arm, "unit": unit, "run": unit, "wording": "", "replicate": 1, "turn": 0}
        | {"outcome": "move", "value": text}
        for arm, texts in (("a", ["x", "x", "y"]), ("b", ["y"] * 3))
        for unit, text in enumerate(texts)
    ]
    table = pd.DataFrame(rows)
    [effect] = effects(table, paired=False)
    assert effect.method == "energy distance, 4,999 exchanges of runs"
    assert (effect.n, effect.value) == (6, pytest.approx(2 * (2 / 3) ** 2))
    # Two x of six runs: in 6 of 15 ways both are of one arm.
    assert effect.p == pytest.approx(6 / 15, abs=0.03)
    one = pd.concat([table[table["arm"] == "a"].head(1), table[table["arm"] == "b"]])
    [effect] = effects(one, paired=False)
    assert (effect.n, effect.value) == (4, pytest.approx(2))
    alone = table[table["arm"] == "a"]
    none = pd.concat([alone, alone.assign(arm="b", value=None)])
    [nothing] = effects(none, paired=False)
    assert (nothing.value, nothing.n) == (None, 3)
    assert nothing.note.endswith("an arm has no texts")


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known_values", "sentence"),
    [
        ({"value": None, "note": "too few"}, ": not known (too few)"),
        ({"value": -0.5}, f": {MINUS}0.50"),
        ({"low": -1.0, "high": 2.0, "level": 0.9}, f": +0.50, 90 % {MINUS}1.00 to 2.00"),
        ({"p": 0.0004}, ": +0.50, p < .001"),
        ({"p": 0.0005}, ": +0.50, p = .001"),
        ({"p": 1.0}, ": +0.50, p = 1.000"),
        ({"p": 0.01, "p_family": 0.01}, ": +0.50, p = .010"),
        ({"p": 0.01, "p_family": 0.02}, ": +0.50, p = .020 adjusted for all comparisons"),
        ({"verdict": "undecided"}, ": +0.50; undecided"),
        ({"kind": "typical difference"}, ", typical difference: +0.50"),
        ({"kind": "length difference", "is_noise": True}, ", words a text, by chance alone: +0.50"),
        ({"kind": "text distance"}, ": the texts' distance is 0.50 (0 if alike)"),
    ],
)
def test_an_estimate_is_read_out(known_values: dict[str, Any], sentence: str) -> None:
    fields = {"contrast": "b-2 - a", "outcome": "loss", "value": 0.5, **known_values}
    effect = Estimate(**fields)
    assert effect.sentence() == f"b-2 - a{sentence}"
    if sentence == ": +0.50; undecided":
        assert effect.sentence("coins") == "b-2 - a: +0.50 coins; undecided"


def test_effects_are_a_table_with_their_notes_in_a_column() -> None:
    typical = Estimate(contrast="b - a", outcome="loss", kind="typical difference", value=0.4)
    found = Effects(
        [
            Estimate(
                contrast="b - a",
                outcome="loss",
                value=0.5,
                n=8,
                method="t",
                family="Holm over 2",
                note="skewed",
                typical=typical,
            ),
            Estimate(contrast="c - a", outcome="loss", value=None, note="no values"),
        ]
    )
    rows = [
        [
            html.unescape(re.sub("<.*?>", "", cell))
            for cell in re.findall("<t[dh].*?</t[dh]>", row, re.S)
        ]
        for row in re.findall("<tr.*?</tr>", found._repr_html_(), re.S)
    ]
    first = "b - a: +0.50 (loss, 8 runs)\n  , typical difference: +0.40"
    assert rows[1][1:] == ["new runs", "t; Holm over 2", "skewed"]
    assert rows[1][0].split() == first.replace("\n  ,", "\n  b - a,").split()
    assert rows[2] == [
        "c - a: not known (no values) (loss, 0 runs)",
        "new runs",
        "none",
        "no values",
    ]
    assert "effects</caption>" in found._repr_html_()
    found.label = "4 of 8 runs so far"
    assert "4 of 8 runs so far</caption>" in found._repr_html_()
    assert str(found).startswith("4 of 8 runs so far\nb - a")
    assert "nothing to compare" in Effects()._repr_html_()
