"""Effects with intervals: which unit was repeated, what the result speaks of, what is withheld."""

from __future__ import annotations

import json
import math
import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from llmsim_lab.errors import ConfigError
from llmsim_lab.study._statistics import (
    Effect,
    energy_test,
    exact_situation_effects,
    holm,
    power,
    romano_wolf,
    run_effects,
    situation_effects,
    smallest_effect,
    sup_t_band,
    word_distance,
)

REPO = Path(__file__).resolve().parents[2]


def make_runs(arms: dict[str, list[float]], *, shared: bool = True, **columns: Any) -> pd.DataFrame:
    """A row for each run; arms share seeds 0, 1, 2 … unless said otherwise."""
    rows = [
        {"arm": arm, "seed": seed if shared else f"{arm}{seed}", "outcome": "loss", "value": value}
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows).assign(**columns)


def make_answers(array: Any, *, seeds: Callable[[int, int, int], object] | None = None) -> Any:
    """A row for each answer of an array of arm x run x situation x replicate."""
    rows = []
    for (arm, run, situation, replicate), value in np.ndenumerate(np.asarray(array, dtype=float)):
        row = {"arm": "ab"[arm], "run": run, "situation": situation, "replicate": replicate}
        if seeds is not None:
            row["seed"] = seeds(run, situation, replicate)
        rows.append(row | {"outcome": "rate", "value": value})
    return pd.DataFrame(rows)


NOISE = np.random.default_rng(5).standard_normal((2, 4, 3, 5))


# --- runs -----------------------------------------------------------------------------------------


def test_arms_that_share_seeds_are_compared_pair_by_pair() -> None:
    plain, hawk = [1.0, 2.5, 3.1, 4.7], [1.4, 3.3, 3.3, 5.9]
    [effect] = run_effects(make_runs({"cautious": plain, "hawkish": hawk}))
    test = stats.ttest_rel(hawk, plain)
    interval = test.confidence_interval()
    assert effect.contrast == "hawkish \N{MINUS SIGN} cautious"
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))
    assert effect.p == pytest.approx(test.pvalue)
    assert (effect.n, effect.unit, effect.speaks_of) == (4, "runs", "new runs of this design")


def test_arms_with_seeds_of_their_own_are_compared_by_welch() -> None:
    plain, hawk = [1.0, 2.5, 3.1, 4.7], [1.4, 3.3, 9.3]
    [effect] = run_effects(make_runs({"a": plain, "b": hawk}, shared=False))
    test = stats.ttest_ind(hawk, plain, equal_var=False)
    interval = test.confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))
    assert effect.p == pytest.approx(test.pvalue)
    assert (effect.n, effect.method) == (7, "Welch over 3 and 4 run means")


def test_an_effect_is_one_line() -> None:
    effect = Effect(
        contrast="b - a", outcome="loss", estimate=0.5, low=0.13, high=0.87, p=0.0151, n=20
    )
    assert str(effect) == "b - a, loss: +0.50 [0.13, 0.87], p = .015, n = 20 runs"
    [alone] = run_effects(make_runs({"a": [1.0], "b": [2.0]}))
    assert str(alone) == "b \N{MINUS SIGN} a, loss: +1.00 (no interval), n = 1 run"


def test_one_run_has_no_interval_and_says_so() -> None:
    [effect] = run_effects(make_runs({"a": [1.0], "b": [2.0]}))
    assert (effect.estimate, effect.low, effect.high, effect.p) == (1.0, None, None, None)
    assert effect.note == "1 pair of runs: an interval takes two"


def test_a_pair_with_a_failed_run_is_left_out_and_counted() -> None:
    [effect] = run_effects(make_runs({"a": [1.0, 2.0, math.nan], "b": [2.0, 2.6, 3.0]}))
    assert (effect.estimate, effect.n) == (pytest.approx(0.8), 2)
    assert effect.note == "1 of 3 pairs left out: a run failed, has no value or has no partner"


def test_if_all_runs_of_an_arm_failed_nothing_is_known() -> None:
    [effect] = run_effects(make_runs({"a": [1.0, 2.0], "b": [math.nan, math.nan]}))
    assert effect.estimate is None
    assert "not known" in str(effect)


def test_players_without_a_difference_give_exactly_0() -> None:
    losses = [1.25, 1.5, 3.75]
    [effect] = run_effects(make_runs({"a": losses, "b": losses}))
    assert (effect.estimate, effect.low, effect.high, effect.p) == (0, 0, 0, 1)
    assert effect.note == "all differences are exactly 0"


def test_a_constant_difference_has_no_interval() -> None:
    [effect] = run_effects(make_runs({"a": [1.0, 2.2, 3.5], "b": [1.5, 2.7, 4.0]}))
    assert (effect.estimate, effect.low, effect.p) == (0.5, None, 0.25)
    assert "all pairs differ by the same" in effect.note


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        ([4.0, 4.25, 4.5, 4.0, 4.25], [4.0, 4.25, 4.75, 4.0, 4.25]),  # their differences
        ([4.0, 4.25, 4.0, 4.0], [4.25, 4.25, 4.0, 4.25]),  # the outcome itself
    ],
)
def test_an_outcome_that_takes_two_values_has_no_interval(
    plain: list[float], other: list[float]
) -> None:
    [effect] = run_effects(make_runs({"a": plain, "b": other}))
    assert (effect.low, effect.high, effect.method) == (None, None, "sign flips")
    assert effect.note == "takes two values only: too coarse for an interval"


def test_answers_that_take_two_values_have_no_interval_unless_they_are_shares() -> None:
    answers = np.tile([4.0, 4.25], (2, 1, 3, 2))
    answers[1, 0, 0, 0] = 4.25
    [effect] = situation_effects(make_answers(answers))
    assert effect.note == "takes two values only: too coarse for an interval"
    [share] = situation_effects(make_answers(4 * (answers - 4)))
    assert share.low is not None


def test_whether_something_happened_has_an_interval_with_width_even_if_it_never_did() -> None:
    for shared in (True, False):
        frame = make_runs({"a": [0.0] * 20, "b": [0.0] * 20}, shared=shared)
        [effect] = run_effects(frame)
        assert effect.estimate == 0
        assert effect.p == 1
        assert effect.low is not None
        assert effect.low < -0.1


def test_shares_have_the_exact_test_of_their_design() -> None:
    a, b = [0.0] * 7 + [1.0], [1.0] * 8
    [paired] = run_effects(make_runs({"a": a, "b": b}))
    assert paired.p == pytest.approx(stats.binomtest(0, 7).pvalue)
    [own] = run_effects(make_runs({"a": a, "b": b}, shared=False))
    assert own.p == pytest.approx(stats.fisher_exact([[8, 0], [1, 7]]).pvalue)


def test_two_values_for_one_run_are_an_error() -> None:
    twice = pd.concat([make_runs({"a": [1.0], "b": [2.0]})] * 2)
    with pytest.raises(ConfigError, match="two values for arm=a, seed=0, outcome=loss"):
        run_effects(twice)


def test_an_unknown_reference_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"arm='c' has no values; there are a, b"):
        run_effects(make_runs({"a": [1.0], "b": [2.0]}), reference="c")


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"columns seed are missing"):
        run_effects(make_runs({"a": [1.0]}).drop(columns="seed"))


def test_a_seed_that_failed_in_both_arms_is_counted_as_left_out() -> None:
    runs = make_runs({"a": [1.0, math.nan, 2.0, 4.0], "b": [2.0, math.nan, 1.0, 3.0]})
    [effect] = run_effects(runs)
    assert effect.n == 3
    assert effect.note.startswith("1 of 4 pairs left out")


def test_an_outcome_in_the_trillions_does_not_hide_the_difference_in_another_one() -> None:
    small = make_runs({"a": [1.0, 2.0, 4.0], "b": [2.0, 4.0, 5.0]}, outcome="rate")
    large = make_runs({"a": [1e14, 2e14, 3e14], "b": [2e14, 1e14, 5e14]}, outcome="output")
    [alone] = run_effects(small)
    beside = run_effects(pd.concat([large, small]))[1]
    assert beside.outcome == "rate"
    assert (beside.estimate, beside.low, beside.p) == (alone.estimate, alone.low, alone.p)
    assert alone.estimate == pytest.approx(4 / 3)


@pytest.mark.parametrize("how", [{}, {"paired": False}])
@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e200])
def test_infinite_values_give_no_number_and_leave_other_outcomes_alone(
    value: float, how: dict[str, Any]
) -> None:
    finite = make_runs({"a": [1.0, 2.0, 4.0], "b": [2.0, 4.0, 5.0]}, outcome="rate")
    other = make_runs({"a": [1.0, value, 4.0], "b": [2.0, 4.0, 5.0]}, outcome="output")
    rate, output = run_effects(pd.concat([finite, other]), **how)
    assert rate.estimate == pytest.approx(4 / 3)
    assert (output.estimate, output.low, output.p) == (None, None, None)
    assert "infinite" in output.note


def test_an_infinite_answer_does_not_make_the_other_situations_equal() -> None:
    array = NOISE.copy()
    array[0, 0, 0, 0] = math.inf
    [effect] = situation_effects(make_answers(array, seeds=lambda *_: _))
    assert effect.estimate is None


# --- families -------------------------------------------------------------------------------------


def make_family(n: int) -> pd.DataFrame:
    values = np.random.default_rng(3).standard_normal((3, n, 2))
    values[1] += 1.5
    return pd.DataFrame(
        [
            {"arm": "abc"[arm], "seed": seed, "outcome": ["loss", "rate"][out], "value": value}
            for (arm, seed, out), value in np.ndenumerate(values)
        ]
    )


def test_contrasts_and_outcomes_are_one_family() -> None:
    few = run_effects(make_family(5))
    assert len(few) == 4
    assert [effect.p_family for effect in few] == pytest.approx(holm([e.p for e in few]))
    assert few[0].method == "paired t over run means; Holm over 4"
    many = run_effects(make_family(9))
    assert many[0].method == "paired t over run means; Romano-Wolf over 4, 256 sign flips"
    assert all((e.p or 0) <= (e.p_family or 0) for e in many)


def test_romano_wolf_asks_less_than_holm_where_outcomes_say_the_same() -> None:
    one = np.random.default_rng(1).standard_normal(12) + 0.8
    same = romano_wolf(np.stack([one] * 6, axis=1))
    alone = romano_wolf(one[:, None])
    assert same == pytest.approx(np.full(6, alone[0]))


def test_romano_wolf_steps_down() -> None:
    rng = np.random.default_rng(2)
    strong, weak = rng.standard_normal(12) + 5, rng.standard_normal(12) + 0.7
    adjusted = romano_wolf(np.stack([weak, strong], axis=1))
    assert adjusted[1] == pytest.approx(1 / 2**11)
    assert adjusted[0] == pytest.approx(romano_wolf(weak[:, None])[0])


def test_holm_ignores_what_was_not_tested() -> None:
    assert holm([0.01, None, 0.04]) == [0.02, None, 0.04]


# --- situations -----------------------------------------------------------------------------------


def test_turns_of_one_run_speak_of_these_situations_only() -> None:
    [effect] = situation_effects(make_answers(NOISE[:, :1]))
    a, b = NOISE[0, 0], NOISE[1, 0]
    error = math.sqrt(sum(x.var(ddof=1) / 5 for x in [*a, *b])) / 3
    assert effect.speaks_of == "these 3 situations of one run"
    assert effect.estimate == pytest.approx(b.mean() - a.mean())
    assert effect.low is not None
    assert (effect.estimate - effect.low) / error == pytest.approx(2.0, abs=0.2)
    assert str(effect).endswith("n = 3 situations of 1 run")


def test_one_run_says_nothing_of_new_situations() -> None:
    [effect] = situation_effects(make_answers(NOISE[:, :1]), speak_of="new")
    assert (effect.low, effect.p) == (None, None)
    assert effect.note.startswith("one run: its turns say nothing of new situations")


def test_several_runs_are_the_units_of_new_situations() -> None:
    [effect] = situation_effects(make_answers(NOISE))
    interval = stats.ttest_1samp((NOISE[1] - NOISE[0]).mean(axis=(1, 2)), 0).confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))
    assert effect.speaks_of == "new situations of such runs, from 12 of 4 runs"


def test_answers_with_the_same_seed_are_paired() -> None:
    frame = make_answers(NOISE[:, :1, :1], seeds=lambda *place: place)
    [effect] = situation_effects(frame)
    interval = stats.ttest_rel(NOISE[1, 0, 0], NOISE[0, 0, 0]).confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))


def test_seeds_that_recur_in_all_situations_are_the_units() -> None:
    frame = make_answers(NOISE[:, :1], seeds=lambda run, situation, replicate: replicate)
    [effect] = situation_effects(frame)
    by_seed = (NOISE[1, 0] - NOISE[0, 0]).mean(axis=0)
    interval = stats.ttest_1samp(by_seed, 0).confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high))


def test_seeds_that_recur_in_several_runs_leave_no_interval() -> None:
    [effect] = situation_effects(make_answers(NOISE, seeds=lambda *place: place[2]))
    assert (effect.low, effect.p) == (None, None)
    assert effect.note == "seeds recur in several runs: give each run its own"


def test_a_situation_that_an_arm_did_not_answer_is_left_out() -> None:
    array = NOISE[:, :1].copy()
    array[0, 0, 1] = math.nan
    [effect] = situation_effects(make_answers(array))
    assert effect.n == 2
    assert effect.note == "1 of 3 situations left out: an arm has no answer"
    kept = array[:, 0, [0, 2]].mean(axis=(1, 2))
    assert effect.estimate == pytest.approx(kept[1] - kept[0])


def test_one_answer_a_situation_has_no_interval() -> None:
    [effect] = situation_effects(make_answers(NOISE[:, :1, :, :1]))
    assert (effect.low, effect.note) == (
        None,
        "one answer a situation: an interval takes two or more",
    )


def test_answers_that_are_all_alike_have_no_interval() -> None:
    alike = np.ones((2, 1, 3, 2))
    [same] = situation_effects(make_answers(alike))
    assert (same.estimate, same.low, same.p) == (0, None, 1)
    alike[1] = 2
    [apart] = situation_effects(make_answers(alike))
    assert (apart.estimate, apart.low, apart.p) == (1, None, None)
    assert apart.note == "all answers of a situation are alike"


def test_known_chances_give_an_exact_contrast() -> None:
    rows = [
        {
            "arm": arm,
            "run": run,
            "situation": 0,
            "outcome": "move",
            "value": value,
            "chance": chance,
        }
        for arm, up in (("a", 0.5), ("b", 0.8))
        for run in range(3)
        for value, chance in ((1.0, up - 0.1 * run * (arm == "b")), (0.0, 1 - up))
    ]
    frame = pd.DataFrame(rows)
    [one] = exact_situation_effects(frame[frame["run"] == 0])
    assert (one.estimate, one.low, one.method) == (pytest.approx(0.3), None, "exact")
    assert "(no interval)" not in str(one)
    [several] = exact_situation_effects(frame)
    assert several.low is not None
    assert several.low < (several.estimate or 0)
    assert several.speaks_of == "new situations of such runs, from 3 of 3 runs"
    assert several.note.endswith("at these 3 situations of 3 runs")


def test_no_values_have_no_effects() -> None:
    nothing = make_answers(NOISE[:, :0])
    assert run_effects(make_runs({}, arm="", seed="", outcome="", value=0.0)) == []
    assert situation_effects(nothing) == []
    assert exact_situation_effects(nothing) == []


# --- texts, curves, power -------------------------------------------------------------------------


def test_the_energy_test_sees_always_a_against_sixty_percent_a() -> None:
    statistic, p = energy_test(["A"] * 20, ["A"] * 12 + ["B"] * 8, distance="labels")
    assert statistic == pytest.approx(2 * 0.4**2)
    assert p < 0.01


def test_the_energy_test_finds_nothing_where_nothing_is() -> None:
    assert energy_test(["up", "down"], ["down", "up"])[1] == 1


def test_blocks_compare_answers_of_the_same_situation() -> None:
    where = [place for place in range(6) for _ in range(4)]
    x = [10.0 * place + shift for place in range(6) for shift in (0.0, 0.1, 0.2, 0.3)]
    y = [value + 0.5 for value in x]
    test = partial(energy_test, x, y, distance=lambda one, other: abs(one - other))
    assert test()[1] > 0.5
    assert test(blocks=(where, where))[1] == 0.001


def test_the_energy_test_takes_answers_of_both_arms() -> None:
    with pytest.raises(ConfigError, match="2 and 0 answers"):
        energy_test(["a", "b"], [])


def test_texts_with_the_same_words_are_the_same() -> None:
    assert word_distance("Rates up!", "up rates") == 0
    assert word_distance("", "") == 0
    assert energy_test(["a b"] * 9, ["c d"] * 9, distance=lambda x, y: float(x != y))[1] < 0.01


def test_a_band_is_wider_than_each_horizon_s_interval() -> None:
    curves = np.random.default_rng(6).standard_normal((10, 8))
    mean, low, high = sup_t_band(curves)
    alone = stats.t.ppf(0.975, 9) * curves.std(axis=0, ddof=1) / math.sqrt(10)
    assert mean == pytest.approx(curves.mean(axis=0))
    assert (high - mean > alone).all()
    assert (mean - low)[0] / alone[0] == pytest.approx((mean - low)[5] / alone[5])


def test_before_the_shock_the_band_has_no_width() -> None:
    curves = np.random.default_rng(6).standard_normal((10, 4))
    curves[:, :2] = 0
    _, low, high = sup_t_band(curves)
    assert (low[:2] == 0).all()
    assert (high[:2] == 0).all()
    assert (high[2:] > low[2:]).all()
    _, low, high = sup_t_band(np.ones((3, 2)))
    assert (low == 1).all()
    assert (high == 1).all()


def test_one_curve_has_no_band() -> None:
    curves = np.array([[1.0, 2.0], [3.0, math.nan]])
    mean, low, _ = sup_t_band(curves)
    assert list(mean) == [1, 2]
    assert np.isnan(low).all()


def test_power_is_that_of_the_noncentral_t() -> None:
    size = smallest_effect(2.0, 20, wanted=0.8)
    assert size is not None
    assert power(2.0, 20, size) == pytest.approx(0.8)
    assert power(2.0, 20, 0.0) == pytest.approx(0.05)
    assert size == pytest.approx(1.32, abs=0.01)  # d = 0.66, as in tables of the paired t test


@pytest.mark.parametrize("n", [2, 3, 100, 1_000])
def test_the_smallest_effect_is_known_with_few_and_with_many_runs(n: int) -> None:
    size = smallest_effect(1.0, n)
    assert size is not None
    assert power(1.0, n, size) == pytest.approx(0.8)
    assert power(1.0, n, 100 * size) == pytest.approx(1.0)


def test_one_run_can_see_nothing() -> None:
    assert smallest_effect(1.0, 1) is None
    assert power(1.0, 1, 5.0) == 0
    assert (smallest_effect(0.0, 5), power(0.0, 5, 0.1)) == (0, 1)


# --- the benchmark, reduced -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench() -> Any:
    """The benchmark's names; it is a script, so its folder is on the path while it is loaded."""
    folder = str(REPO / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(folder + "/coverage.py")
    finally:
        sys.path.remove(folder)
        sys.modules.pop("command", None)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("runs, paired", "n=5, normal"),
        ("runs, own seeds", "5 of sd 1, 20 of sd 3"),
        ("runs, yes or no", "n=20, 0.0 and 0.1"),
        ("these situations", "4x4, seeds crossed, 10 % failed"),
        ("new situations", "4 runs, AR(1) 0.95"),
        ("new wordings", "3 and 8, sd 0.5"),
        ("new wordings and situations", "4 runs, 8 and 1, sd 0.5"),
        ("old failures", "now: four such runs, of new situations"),
    ],
)
def test_intervals_contain_the_truth_as_often_as_they_say(
    bench: Any, group: str, name: str
) -> None:
    [cell] = [cell for cell in bench["CELLS"] if (cell.group, cell.name) == (group, name)]
    row = bench["measure_cell"](cell, 1_000)
    assert row["measured"] > 0.93


def test_turns_taken_as_units_would_fail_the_same_check(bench: Any) -> None:
    [cell] = [c for c in bench["CELLS"] if c.name.startswith("before: turns of one run")]
    assert bench["measure_cell"](cell, 1_000)["measured"] < 0.6


def test_the_committed_figures_are_of_all_cells_and_pass(bench: Any) -> None:
    figures = json.loads((REPO / "benchmarks" / "coverage.json").read_text(encoding="utf-8"))
    assert [(row["group"], row["cell"]) for row in figures["cells"]] == [
        (cell.group, cell.name) for cell in bench["CELLS"]
    ]
    assert figures["replications"] == 5_000
    assert figures["passes"]
