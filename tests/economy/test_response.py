"""``response_of``: what passes, what fails, and that its numbers are those of the sources."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import benchmark
from numpy.typing import NDArray
from scipy import stats

from llmsim_lab.economy import response_of
from llmsim_lab.errors import ConfigError

REPO = Path(__file__).parents[2]
RNG = np.random.default_rng(37)
PAIRS = RNG.normal(size=(24, 3)) * [1.3, 2, 1.8]
AWAY = np.concatenate([PAIRS, -PAIRS])
GROUPS = np.tile(np.arange(24), 2)
NOISE = RNG.normal(size=48) / 10


def rule(inertia: float = 0.0, inflation: float = 1.5, gap: float = 0.5) -> NDArray[Any]:
    return (1 - inertia) * AWAY @ [inflation, gap, -1]


@pytest.mark.parametrize("inertia", [0, 0.5, 0.8, 0.9])
def test_a_taylor_rule_passes_and_inertia_leaves_the_long_run_as_it_is(inertia: float) -> None:
    found = response_of(AWAY, rule(inertia) + (1 - inertia) * NOISE, groups=GROUPS)
    assert found.outcome == "pass"
    assert found.in_the_end == pytest.approx((1.5, 1.4, 1.6), abs=0.1)
    assert re.fullmatch(
        r"In the end it raises the rate by 1\.5 points \(1\.\d to 1\.\d\) for each point of "
        r"inflation: it responds\.",
        str(found),
    )


def test_what_is_moved_whatever_happens_is_not_in_the_response_in_the_end() -> None:
    moves = rule(0.5) + NOISE
    plain, drifting = (response_of(AWAY, moves + drift, groups=GROUPS) for drift in (0, 0.2))
    assert drifting.in_the_end == pytest.approx(plain.in_the_end)
    assert drifting["drift"].value - plain["drift"].value == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("moves", "failed", "words"),
    [
        (np.zeros(48), "inflation", "A point more of inflation changes its move by "),
        (-rule(), "inflation", "The higher inflation, the lower it sets the rate: a point more"),
        (rule(0.8, 0.8), "long run", "In the end it raises the rate by only 0.8 points"),
        (rule(0.8, gap=-0.5), "output gap", "A point more of the output gap changes its move by"),
        (rule() + 0.75, "drift", "Whatever happens, it moves the rate by 0.7"),
        (rule(0.8) - 0.1, "target", "In the end inflation is 1."),
        (rule(0.8) + 0.1, "target", "In the end inflation is 1."),
    ],
)
def test_what_fails_is_told_in_a_sentence(moves: Any, failed: str, words: str) -> None:
    found = response_of(AWAY, moves + NOISE / 10, groups=GROUPS)
    assert found.outcome == found[failed].verdict == "fail"
    assert found.sentence.startswith(words)


def test_a_bank_with_another_neutral_rate_fails_since_it_misses_its_target() -> None:
    moves = rule(0.8) - 0.2 * 0.5
    found = response_of(AWAY, moves + 0.2 * NOISE, groups=GROUPS)
    assert found["target"].value == pytest.approx(1, abs=0.2)
    assert found["drift"].verdict == "pass"  # it is slow
    assert re.fullmatch(
        r"In the end inflation is [01]\.\d\d points \(0\.\d\d to 1\.\d\d\) above its target: it "
        r"assumes another neutral rate than this economy's, or aims at another inflation\.",
        str(found),
    )


@pytest.mark.parametrize(
    ("moves", "root", "words"),
    [
        (rule(), 0.946, "It stabilises this economy: shocks die out (largest root 0.9"),
        (rule(0.95), 1.010, "It does not stabilise this economy: shocks grow (largest root 1.0"),
        (rule(0.8, 1.0), 1.000, "Whether it stabilises this economy is not decided (largest"),
        (np.zeros(48), 1.056, "It does not stabilise this economy: shocks grow (largest root 1.0"),
    ],
)
def test_whether_it_stabilises_the_economy_is_told_beside(
    moves: Any, root: float, words: str
) -> None:
    found = response_of(AWAY, moves + NOISE / 20, groups=GROUPS)
    assert found.largest_root is not None
    value, low, high = found.largest_root
    assert value == pytest.approx(root, abs=0.01)
    assert low < value < high
    assert found.stability.startswith(words)


def test_a_constant_move_fails_by_two_criteria_and_both_are_told() -> None:
    assert response_of(AWAY, np.full(48, 0.75), groups=GROUPS).sentence == (
        "A point more of inflation changes its move by 0.00 (0.00 to 0.00) points; whatever "
        "happens, it moves the rate by 0.75 (0.75 to 0.75) points a quarter."
    )


def test_too_much_noise_decides_nothing_and_the_sentence_says_what_it_takes() -> None:
    found = response_of(AWAY, rule(0.8) + 30 * NOISE, groups=GROUPS)
    assert found.outcome == "undecided"
    assert found.sentence.startswith("Not decided by 24 independent cases: ")
    assert "to pass it takes " in found.sentence


def test_a_rule_without_a_pull_back_has_no_long_run_and_passes() -> None:
    found = response_of(AWAY, 0.5 * AWAY[:, 0] + NOISE / 10, groups=GROUPS)
    assert (found.outcome, found.in_the_end) == ("pass", None)
    assert found.sentence.startswith("For each point of inflation it raises the rate by 0.5")


def test_names_are_judged_by_equivalence_each_for_itself() -> None:
    names = {"Japan": NOISE[:6], "United States": 0.75 + NOISE[:6]}
    found = response_of(AWAY, rule(), groups=GROUPS, names=names)
    assert [found[name].verdict for name in names] == ["pass", "fail"]
    assert found.sentence.startswith("The name United States alone changes its move by 0.")
    ends = stats.ttest_1samp(NOISE[:6], 0).confidence_interval()
    assert (found["Japan"].low, found["Japan"].high) == pytest.approx(tuple(ends))


def test_mirrored_pairs_give_the_regression_of_half_differences_with_hc3() -> None:
    moves = rule(0.5) + 3 * NOISE
    found = response_of(AWAY, moves, groups=GROUPS)
    x, y = PAIRS, (moves[:24] - moves[24:]) / 2
    inverse = np.linalg.inv(x.T @ x)
    slopes = inverse @ x.T @ y
    left = (y - x @ slopes) / (1 - np.einsum("ni,ij,nj->n", x, inverse, x))
    errors = np.sqrt(np.diag(inverse @ (x.T * left**2) @ x @ inverse))
    reach = stats.t.ppf(0.975, 21) * errors
    for name, at in (("inflation", 0), ("output gap", 1), ("rate", 2)):
        assert found[name].value == pytest.approx(slopes[at])
        assert found[name].high - found[name].value == pytest.approx(reach[at])
    assert found["drift"].value == pytest.approx(moves.mean())


def test_the_long_run_passes_where_its_interval_is_above_one() -> None:
    for size in (1, 3, 6, 9):
        found = response_of(AWAY, rule(0.5, 1.3) + size * NOISE, groups=GROUPS)
        assert found.in_the_end is not None
        assert (found["long run"].verdict == "pass") == (found.in_the_end[1] > 1)


def test_repeats_within_a_group_are_not_more_evidence() -> None:
    moves = rule(0.5) + 3 * NOISE
    once = response_of(AWAY, moves, groups=GROUPS)
    often = response_of(
        np.tile(AWAY, (5, 1)), np.tile(moves, 5), groups=[f"seed {it}" for it in [*GROUPS] * 5]
    )
    assert often["inflation"].high == pytest.approx(once["inflation"].high)


def test_too_few_groups_decide_nothing_and_situations_that_are_alike_raise() -> None:
    found = response_of(AWAY, rule(), groups=GROUPS % 5)
    assert (found.outcome, found.criteria, found.units) == ("undecided", (), 5)
    assert (found.largest_root, found.stability) == (None, "")
    assert str(found).startswith("5 groups of decisions decide nothing; it takes 6 or more")
    with pytest.raises(ConfigError, match="too much alike"):
        response_of(AWAY * [1, 1, 0], rule(), groups=GROUPS)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("deviations", AWAY.T, r"shape \(3, 48\), moves of \(48,\) and groups of \(48,\)"),
        ("deviations", "high", "deviations='high' must be numbers"),
        ("moves", rule()[1:], r"moves of \(47,\)"),
        ("moves", [*rule()[1:], np.nan], "moves=.* must be finite numbers"),
        ("groups", None, r"groups of \(\)"),
        ("groups", ["a", None, *GROUPS[2:]], "groups=.* must be numbers, or all texts"),
        ("names", [0.1, 0.2], "names=.* must be a dict"),
        ("names", {"Aland": [[0.1]]}, r"of the shape \(1, 1\) must be one list"),
    ],
)
def test_decisions_that_are_no_table_are_an_error(argument: str, value: Any, message: str) -> None:
    decisions: dict[str, Any] = {"deviations": AWAY, "moves": rule(), "groups": GROUPS}
    with pytest.raises(ConfigError, match=message):
        response_of(**{**decisions, argument: value})


# --- error rates ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench() -> Any:
    return benchmark("gate")


@pytest.mark.parametrize(
    "name",
    [
        "Taylor rule, inertia .9",
        "target 3, inertia 0.85",
        "neutral rate 1.5, inertia 0.5",
        "long run exactly 1, inertia .8",
        "no change",
    ],
)
def test_players_pass_and_fail_as_they_should_in_forty_cards(bench: Any, name: str) -> None:
    row = bench["measure_player"](name, 40, bench["pool"](4))
    if name.startswith("long run exactly"):
        assert row["pass"] <= 0.15  # of 40 cards, each with a chance of 0.05
    else:
        assert row["as_wanted"]


def test_the_committed_figures_are_of_all_players() -> None:
    figures = json.loads((REPO / "benchmarks" / "gate.json").read_text(encoding="utf-8"))
    bench_players = {row["player"]: row for row in figures["players"]}
    assert {row["cards"] for row in figures["players"]} == {500, 2_000}
    assert bench_players["Taylor rule, inertia .9"]["pass"] >= 0.95
    assert bench_players["random moves, one draw"]["pass"] == 0
