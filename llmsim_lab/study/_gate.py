"""The economic gate: does a player answer the economy, or the word "inflation"?

A player (a model, or a rule) is shown situations in which an economist has no doubt about the
direction of the policy rate, and each one's mirror image, in which everything is as far on the
other side of the steady state. It chooses among a few moves with ``client.choose``; drawing, the
likeliest move and the expected one are all judged from the same answers, by four criteria
(``CRITERIA``), each with a 95 % interval: passed or failed if the whole interval is on one side of
the cut, undecided otherwise.

A situation and its mirror are one unit, since they share their history; orders, draws and tokens
are repeats, which never count as more evidence.

There are two sets of situations. Set A can be looked at. Set B is kept back: its figures are in no
output, only what the answers to both add up to. Prompts must be tuned on neither.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from math import inf, isfinite, sqrt
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmsim_lab._util.files import economics_folder
from llmsim_lab._util.html import join, safe, table
from llmsim_lab._util.tables import plain_frame
from llmsim_lab._util.text import clip
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.agents._agents import (
    NationProfile,
    briefing_prompt,
    moves_to_choose,
    thin_prompt,
)
from llmsim_lab.agents._briefing import SHOWN, PolicyBriefing
from llmsim_lab.economy import RudebuschSvensson, TaylorRule
from llmsim_lab.economy._data import Quarter, mirrored_quarters, next_quarter
from llmsim_lab.economy._macro import STEADY_STATE, Rule, Shocks, function_of
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException
from llmsim_lab.llm import LLMClient, connect
from llmsim_lab.llm._choose import Decide
from llmsim_lab.models import GlobalState
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation._verdicts import GATE_VERSION, GateVerdict, Told, Verdict
from llmsim_lab.study._checks import LASTING
from llmsim_lab.types import ModelInfo

if TYPE_CHECKING:
    import pandas as pd


VERSION = GATE_VERSION

GATE_MOVES_BP = (-200, -75, -25, 0, 25, 75, 200)
"""The moves on offer, basis points: seven, since each costs calls. A Taylor rule with an inertia of
0.8 takes a fifth of what the rule without it asks for, which is 15 basis points or more here, so
there has to be 25; without 200 most answers of a rule would be the largest move, and how much it
answers inflation could not be told."""
CLEAR = 0.75
"""Percentage points: the least that a Taylor rule would move in an unambiguous situation."""
PAIRS = 24
"""Situations of a set, mirrors apart."""
NAMED_PAIRS = 12
"""Pairs of set A that are asked again with names and dates."""

RIGHT, RESPONSE, EXPLAINED, CHANGE_BP = 0.8, 1.0, 0.5, 12.5
"""The cuts: share of right directions, long-run response to inflation in points per point, share of
the moves' variance that the state explains, and mean change with names and dates, which is half of
the smallest move."""
CRITERIA = ("direction", "response", "state", "names")
_WAYS: tuple[Decide, ...] = get_args(Decide)
_LEVEL = 0.95
_WORST: tuple[Verdict, ...] = ("fail", "undecided", "pass")

_SETS = ("A", "B")
_QUARTERS = 28
"""Quarters that are played from the steady state on before a player is asked."""
_SLIP, _SLIP_STD = 0.85, 0.6
"""The rate of the past differs from a rule's by an AR(1): else it would hardly ever be far off."""
_REPEATS = 4
"""How often a rule is asked in each situation."""
_DATES = ("1969Q4", "1974Q2", "1979Q3", "1982Q1", "1990Q3", "2001Q1")
_NAME, _NO_NAME = "United States", "a large economy"


# --- situations -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One situation, with the quarters that led to it.

    Attributes:
        pair: its set and number, ``A01``.
        mirrored: whether all deviations from the steady state have the opposite sign.
        quarters: oldest first; they obey the macro model, mirrored or not, since it is linear.
        gap: percent, as the quarters show it (one-sided, as in a briefing).
        growth: of the last quarter, percent at an annual rate.
        move: what Taylor (1993) would move, percentage points.
    """

    pair: str
    mirrored: bool
    quarters: tuple[Quarter, ...]
    gap: float
    growth: float
    move: float

    @property
    def name(self) -> str:
        """``A01``, and ``A01 mirrored``."""
        return f"{self.pair} mirrored" if self.mirrored else self.pair

    @property
    def inflation(self) -> float:
        """Over four quarters, percent."""
        found = self.quarters[-1].inflation
        assert found is not None  # the macro model's quarters have it
        return found

    @property
    def interest_rate(self) -> float:
        """In force, percent per year."""
        return self.quarters[-1].interest_rate


@cache
def situations(which: str) -> tuple[Situation, ...]:
    """Return a set's situations, each followed by its mirror image; always the same ones."""
    seed = f"economic gate, set {which}, seed {_SETS.index(which) + 1}"
    return drawn_situations(random.Random(seed), which, PAIRS)


def drawn_situations(rng: random.Random, which: str, pairs: int) -> tuple[Situation, ...]:
    """Return new situations, each followed by its mirror image.

    Each is the end of a run of the macro model from the steady state, with random shocks and a
    policy that makes lasting mistakes. One is taken if a Taylor rule would move by ``CLEAR`` points
    or more, in the same direction by the model's own output gap and by the one that can be seen,
    and to a rate that the lower bound does not touch, its mirror's included.

    Args:
        rng: what they follow from.
        which: the set's name.
        pairs: how many, mirror images apart.
    """
    found: list[Situation] = []
    while len(found) < 2 * pairs:
        path = _played(rng)
        one = _clear(path, f"{which}{len(found) // 2 + 1:02}") if path else None
        if one is not None:
            found += [one, _mirror(one)]
    return tuple(found)


def _played(rng: random.Random) -> list[GlobalState] | None:
    """Return a run's quarters; None where one of them leaves the range of what is usual."""
    model, rule, state = RudebuschSvensson(), TaylorRule(), STEADY_STATE
    path, slip = [state], 0.0
    for _ in range(_QUARTERS):
        slip = _SLIP * slip + rng.gauss(0, _SLIP_STD)
        wanted = _asked(rule, state.inflation, state.output_gap)
        # Inertia of 0.8, half of the slip; the shocks vary as ``ShockGenerator``'s do.
        rate = 0.8 * state.interest_rate + 0.2 * wanted + 0.5 * slip
        shocks = Shocks(supply=rng.gauss(0, 1.009), demand=rng.gauss(0, 0.819))
        try:
            state = model.advance(state, interest_rate=rate, shocks=shocks)
        except EconomyError:
            return None
        path.append(state)
    # As far on both sides of the steady state, so that mirror images are as usual.
    usual = all(
        0.25 <= one.interest_rate <= 7.75
        and -1.5 < one.inflation < 5.5
        and 1 < one.unemployment < 9
        for one in path
    )
    return path if usual else None


def _asked(rule: TaylorRule, inflation: float, gap: float) -> float:
    return replace(rule, lower_bound=-inf).rate(
        inflation=inflation, output_gap=gap, previous_rate=STEADY_STATE.interest_rate
    )


def _clear(path: Sequence[GlobalState], pair: str) -> Situation | None:
    # A table has a past: quarters of the steady state.
    quarters = (*([_quarter(STEADY_STATE)] * SHOWN), *map(_quarter, path))
    gap = path[-1].output_gap
    last, rule = path[-1], TaylorRule()
    asked = _asked(rule, last.inflation, gap)
    move = asked - last.interest_rate
    if abs(move) < CLEAR or not 0 <= asked <= 2 * STEADY_STATE.interest_rate:
        return None
    return Situation(
        pair=pair, mirrored=False, quarters=quarters, gap=gap, growth=last.gdp_growth, move=move
    )


def _quarter(state: GlobalState) -> Quarter:
    return Quarter(
        period=None,
        inflation=state.inflation,
        inflation_in_quarter=state.lags.inflation[0],
        output_gap=state.output_gap,
        unemployment=state.unemployment,
        interest_rate=state.interest_rate,
    )


def _mirror(one: Situation) -> Situation:
    """Return a situation with all deviations from the steady state turned round."""
    growth = 2 * STEADY_STATE.gdp_growth - one.growth
    quarters = tuple(mirrored_quarters(one.quarters))
    turned = replace(one, mirrored=True, quarters=quarters, growth=growth)
    return replace(turned, gap=-one.gap, move=-one.move)


# --- asking ---------------------------------------------------------------------------------------


def question(situation: Situation, *, told: Told, named: bool) -> str:
    """Return what a model is asked, which is what agents of a run are that have ``decide``.

    Args:
        situation: what it is asked about.
        told: ``economist`` for the briefing, ``thin`` for four indicators.
        named: whether it has the economy's name and, in a briefing, dates.
    """
    name, profile, prompt = _NAME if named else _NO_NAME, NationProfile(), _prompt(told)
    if told == "thin":
        last = situation.quarters[-1]
        economy = GlobalState(
            interest_rate=last.interest_rate,
            inflation=situation.inflation,
            unemployment=last.unemployment,
            gdp_growth=situation.growth,
            output_gap=situation.gap,
        )
        return thin_prompt(prompt, economy, name=name, profile=profile, moves_bp=GATE_MOVES_BP)
    quarters = situation.quarters
    if named:
        quarters = _dated(quarters, _DATES[int(situation.pair[1:]) % len(_DATES)])
    how = PolicyBriefing(masked=not named)
    return briefing_prompt(
        prompt, quarters, name=name, profile=profile, how=how, moves_bp=GATE_MOVES_BP
    )


def _dated(quarters: Sequence[Quarter], last: str) -> tuple[Quarter, ...]:
    """Return quarters with the dates that end in this one."""
    ago = range(len(quarters) - 1, -1, -1)
    return tuple(
        replace(quarter, period=next_quarter(last, steps=-back))
        for back, quarter in zip(ago, quarters, strict=True)
    )


@cache
def _prompt(told: Told) -> Prompt:
    return Prompt.load("agent_briefing" if told == "economist" else "agent_rate")


class GateAnswer(BaseModel):
    """What a player would do in one situation.

    Attributes:
        chances: the probability of each move, by basis points; empty where there was no answer.
        orders: the same for each order in which the moves were shown, as it came.
        mass: how much of a model's answers were moves at all.
        label_pull: how the letters pull, as ``Choice`` has it.
        method: as ``Choice`` has it; ``rule`` for a rule.
        calls: how many it took.
        seconds: how long it took.
        fault: why there was no answer.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    chances: dict[int, float] = {}
    orders: tuple[dict[int, float], ...] = ()
    mass: float = 0.0
    label_pull: dict[str, float] = {}
    method: str = ""
    calls: int = 0
    seconds: float = 0.0
    fault: str = ""

    def moved(self, way: Decide) -> float:
        """Return the move that is made, points; of draws their mean."""
        return _moved(self.chances, way)

    def right(self, way: Decide, direction: float) -> float:
        """Return how often the move goes in a direction, 0 to 1."""
        if not self.chances:
            return 0.0
        if way == "sample":
            return sum(p for move, p in self.chances.items() if move * direction > 0)
        return float(self.moved(way) * direction > 0)


def _moved(chances: Mapping[int, float], way: Decide) -> float:
    mean = sum(move * p for move, p in chances.items())
    if way == "sample":
        return mean / 100
    if way == "mode":
        return max(chances, key=chances.__getitem__) / 100
    return min(chances, key=lambda move: (abs(move - mean), -chances[move])) / 100


async def _answered(client: LLMClient, prompt: str) -> GateAnswer:
    began = time.perf_counter()
    try:
        # As an agent with ``decide`` asks.
        choice = await client.choose(prompt, moves_to_choose(GATE_MOVES_BP), seed=1)
    except LLMFailureException as failure:
        if failure.reason in LASTING:
            raise  # the card can be continued
        return GateAnswer(fault=clip(str(failure), 200), seconds=time.perf_counter() - began)
    return GateAnswer(
        chances=dict(choice.probabilities),
        orders=tuple(share for share in map(_whole, choice.measured) if share),
        mass=choice.mass,
        label_pull=dict(choice.label_pull),
        method=choice.method,
        calls=len(choice.calls),
        seconds=time.perf_counter() - began,
    )


def _whole(shares: Mapping[int, float]) -> dict[int, float]:
    """Return shares of all answers as shares of those that are moves; empty if none is."""
    mass = sum(shares.values())
    return {move: share / mass for move, share in shares.items()} if mass > 0 else {}


def _by_rule(rule: Rule, situation: Situation) -> GateAnswer:
    """Ask a rule several times, since it may draw."""
    here, orders = situation.interest_rate, []
    for _ in range(_REPEATS):
        wanted = rule(inflation=situation.inflation, output_gap=situation.gap, previous_rate=here)
        # Of two equally close moves the smaller one, as ``TaylorRuleAgent`` does it.
        distance = {move: round(abs(move / 100 - wanted + here), 9) for move in GATE_MOVES_BP}
        chosen = min(GATE_MOVES_BP, key=lambda move: (distance[move], abs(move)))
        orders.append({move: float(move == chosen) for move in GATE_MOVES_BP})
    chances = {move: fmean(order[move] for order in orders) for move in GATE_MOVES_BP}
    return GateAnswer(chances=chances, orders=tuple(orders), mass=1.0, method="rule")


# --- judging --------------------------------------------------------------------------------------


class Criterion(BaseModel):
    """One criterion's outcome for one way of deciding.

    Attributes:
        name: ``direction``, ``response``, ``state`` or ``names``.
        decide: the way.
        value: what was measured; None where it cannot be computed.
        low: of its 95 % interval; None where it is unbounded.
        high: likewise.
        cut: what it is compared with.
        verdict: by the interval.
        words: what it means.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    decide: Decide
    value: float | None
    low: float | None
    high: float | None
    cut: float
    verdict: Verdict
    words: str


def fieller_interval(
    top: float, bottom: float, *, variances: tuple[float, float, float], quantile: float
) -> tuple[float, float]:
    """Return the interval of a ratio of two estimates; infinite ends where it has no bound.

    Source: Fieller (1954), "Some problems in interval estimation", Journal of the Royal Statistical
    Society B 16: all r for which ``(top - r bottom)² <= t² (v11 - 2 r v12 + r² v22)``. They are an
    interval only where the bottom differs from zero at the same level; elsewhere the set has no
    bound on one side or both, and this returns the whole line.

    Args:
        top: the estimate above.
        bottom: the estimate below.
        variances: of the top, of both together (their covariance), of the bottom.
        quantile: Student's t.
    """
    v11, v12, v22 = variances
    square = quantile**2
    a = bottom**2 - square * v22
    b = top * bottom - square * v12
    c = top**2 - square * v11
    if a <= 0:
        return -inf, inf
    root = sqrt(max(0.0, b * b - a * c))
    return (b - root) / a, (b + root) / a


def student_quantile(units: int) -> float:
    """Return how many standard errors a 95 % interval of the mean of so many units reaches."""
    from scipy.stats import t

    return float(t.ppf((1 + _LEVEL) / 2, units - 1))


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of a mean; None of fewer than two values."""
    if len(values) < 2:
        return None
    reach = student_quantile(len(values)) * stdev(values) / sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def _criterion(
    name: str,
    way: Decide,
    cut: float,
    words: str,
    value: float | None = None,
    low: float = -inf,
    high: float = inf,
    *,
    verdict: Verdict | None = None,
) -> Criterion:
    """Return a criterion; by its interval it has to be above the cut, if no verdict is given."""
    by_interval: Verdict = "pass" if low >= cut else "fail" if high < cut else "undecided"
    return Criterion(
        name=name,
        decide=way,
        value=value,
        low=low if isfinite(low) else None,
        high=high if isfinite(high) else None,
        cut=cut,
        verdict=verdict or by_interval,
        words=words,
    )


_Asked = Sequence[tuple[Situation, GateAnswer]]


def _pairs(asked: _Asked) -> dict[str, list[tuple[Situation, GateAnswer]]]:
    groups: dict[str, list[tuple[Situation, GateAnswer]]] = {}
    for situation, answer in asked:
        groups.setdefault(situation.pair, []).append((situation, answer))
    return groups


def share_interval(right: float, units: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of units, each of which may be right in part.

    Clopper and Pearson (1934), "The use of confidence or fiducial limits illustrated in the case of
    the binomial", Biometrika 26, as quantiles of beta distributions. Differs from the source:
    ``right`` need not be whole, as in Korn and Graubard (1998), "Confidence intervals for
    proportions with small expected number of positive counts estimated from survey data", Survey
    Methodology 24. Of all variables from 0 to 1 with one mean those of 0 or 1 vary most, so that
    the interval is, if anything, too wide.
    """
    from scipy.stats import beta  # here, since it takes long to import

    low = beta.ppf(0.025, right, units - right + 1) if right > 0 else 0.0
    high = beta.ppf(0.975, right + 1, units - right) if right < units else 1.0
    return float(low), float(high)


def direction(asked: _Asked, way: Decide) -> Criterion:
    """Return how often the move goes where it has to."""

    def right(which: _Asked) -> float:
        return fmean(answer.right(way, situation.move) for situation, answer in which)

    units = len(_pairs(asked))
    value = right(asked)
    low, high = share_interval(value * units, units)
    by_set = ", ".join(
        f"set {name}: {100 * right(part):.0f} %"
        for name in _SETS
        if (part := [one for one in asked if one[0].pair.startswith(name)])
    )
    words = f"{_moves_in_words(asked, way)}; right in {100 * value:.0f} % ({by_set})"
    return _criterion("direction", way, RIGHT, words, value, low, high)


def _moves_in_words(asked: _Asked, way: Decide) -> str:
    whole, ups = len(asked), sum(situation.move > 0 for situation, _ in asked)
    counts = {
        verb: sum(answer.right(way, sign) for _, answer in asked)
        for verb, sign in (("raises", 1.0), ("lowers", -1.0))
    }
    silent = sum(not answer.chances for _, answer in asked)
    counts["holds"] = whole - silent - sum(counts.values())
    if way == "sample":
        shares = ", ".join(f"{verb} {100 * n / whole:.0f} %" for verb, n in counts.items())
        text = f"of draws {shares} in {whole} situations"
    else:
        shown = {verb: round(n) for verb, n in counts.items() if n > 0.5}
        text = ", ".join(f"{verb} in {n}" for verb, n in shown.items())
        text = f"{text or 'answers nothing'} of {whole} situations"
    if silent:
        text += f", no answer in {silent}"
    return f"{text}, of which {ups} call for a rise"


def response(asked: _Asked, way: Decide) -> Criterion:
    """Return how far the rate rises in the end with inflation: the Taylor principle.

    The moves are regressed on inflation, output gap and the rate in force, all as deviations from
    the steady state; the long-run response is minus the coefficient of inflation over that of the
    rate, since ``i = i₋₁ + move`` has come to rest where the move is zero. Moves are bounded, which
    scales all coefficients alike where regressors are normal, and leaves the ratio (Brillinger
    1982, "A generalized linear model with Gaussian regressor variables"). Variances are the
    cluster jackknife's over pairs (MacKinnon, Nielsen and Webb 2023, "Fast and reliable jackknife
    and bootstrap methods for cluster-robust inference", Journal of Applied Econometrics 38).

    A rate that is raised the higher it is comes to rest nowhere: that fails, whatever the ratio.
    """
    import numpy as np

    def away(s: Situation) -> tuple[float, ...]:
        rest = STEADY_STATE
        return 1.0, s.inflation - rest.inflation, s.gap, s.interest_rate - rest.interest_rate

    answered = ([it for it in pair if it[1].chances] for pair in _pairs(asked).values())
    groups = [[(away(s), answer.moved(way)) for s, answer in pair] for pair in answered if pair]

    result = partial(_criterion, "response", way, RESPONSE)
    if len(groups) < 6:
        return result("there are too few answers to tell a response")
    moves = [move for group in groups for _, move in group]
    if max(moves) - min(moves) < 1e-9:
        return result("the move is the same whatever inflation is", verdict="fail")
    arrays = [tuple(map(np.array, zip(*group, strict=True))) for group in groups]
    products = [(state.T @ state, state.T @ move) for state, move in arrays]
    squares, sums = sum(xx for xx, _ in products), sum(xy for _, xy in products)
    slopes = np.linalg.solve(squares, sums)
    without = np.array([np.linalg.solve(squares - xx, sums - xy) for xx, xy in products])
    apart = without - without.mean(axis=0)
    count = len(groups)
    variance = (count - 1) / count * apart.T @ apart
    quantile = student_quantile(count)
    of_inflation, of_rate = float(slopes[1]), float(slopes[3])
    if of_rate - quantile * sqrt(variance[3, 3]) >= 0:
        return result(
            "the higher the rate, the more it is raised: it comes to rest nowhere", verdict="fail"
        )
    low, high = fieller_interval(
        of_inflation,
        -of_rate,
        variances=(float(variance[1, 1]), -float(variance[1, 3]), float(variance[3, 3])),
        quantile=quantile,
    )
    if not (isfinite(low) and isfinite(high)):
        return result("the move hardly depends on the rate in force: no long run can be told")
    value = of_inflation / -of_rate
    words = f"for a point of inflation the rate rises by {value:.2f} points in the end"
    return result(words, value, low, high)


def state(asked: _Asked, way: Decide) -> Criterion:
    """Return how much of the moves' variance the state explains; draws and order have the rest.

    Single moves, one for each state, order and draw, vary between states and within them. The
    variance within is that of draws plus that between orders; the one between states is that of
    their means, minus what the orders add to it. The interval is the jackknife's over pairs.
    """
    import numpy as np

    # Of each pair: how many states, the sums of their means and of the squares, what is within.
    # The jackknife leaves a pair out by subtracting these.
    sums: list[list[float]] = []
    for pair in _pairs(asked).values():
        found = [0.0] * 5
        for answer in (answer for _, answer in pair if answer.orders):
            means = [_moved(order, way) for order in answer.orders]
            mean, number = fmean(means), len(means)
            between = sum((one - mean) ** 2 for one in means) / (number - 1) if number > 1 else 0.0
            drawn = 0.0
            if way == "sample":
                drawn = fmean(
                    sum(p * (move / 100 - one) ** 2 for move, p in order.items())
                    for order, one in zip(answer.orders, means, strict=True)
                )
            row = (1.0, mean, mean * mean, between + drawn, between / number)
            found = [a + b for a, b in zip(found, row, strict=True)]
        if found[0]:
            sums.append(found)

    def explained(states: float, first: float, second: float, within: float, by: float) -> float:
        variance = (second - first * first / states) / (states - 1)
        of_states = max(0.0, variance - by / states)
        whole = of_states + within / states
        return of_states / whole if whole > 1e-9 else 0.0

    if len(sums) < 3:
        return _criterion("state", way, EXPLAINED, "there are too few answers")
    whole, count = np.sum(sums, axis=0), len(sums)
    value = explained(*whole)
    without = np.array([explained(*(whole - one)) for one in np.array(sums)])
    reach = student_quantile(count) * sqrt((count - 1) * float(without.var()))
    low, high = max(0.0, value - reach), min(1.0, value + reach)
    words = (
        f"the state explains {100 * value:.0f} % of how moves differ, draws and the order of the "
        "moves the rest"
    )
    return _criterion("state", way, EXPLAINED, words, value, low, high)


def names(asked: _Asked, named: Mapping[str, GateAnswer], way: Decide) -> Criterion:
    """Return how much the move changes when it has names and dates: basis points, a pair a unit."""
    changes = []
    for pair in _pairs(asked).values():
        both = [
            abs(answer.moved(way) - other.moved(way)) * 100
            for situation, answer in pair
            if (other := named.get(situation.name)) is not None and other.chances and answer.chances
        ]
        if both:
            changes.append(fmean(both))
    low, high, value = -inf, inf, None
    words = "too few were asked again"
    if len(changes) > 2 and (ends := mean_interval(changes)):
        value, low, high = fmean(changes), max(0.0, ends[0]), ends[1]
        words = f"with names and dates the move changes by {value:.1f} basis points in the mean"
    verdict: Verdict = "pass" if high <= CHANGE_BP else "fail" if low > CHANGE_BP else "undecided"
    return _criterion("names", way, CHANGE_BP, words, value, low, high, verdict=verdict)


# --- the card -------------------------------------------------------------------------------------


class EconomicsCard(BaseModel):
    """How a player answers unambiguous situations; ``verdict`` says whether it passes the gate.

    Attributes:
        model: the model's name as its backend knows it.
        backend: ``ollama``, ``embedded`` …; of a rule ``rule``.
        version: of the server or runtime, where known.
        digest: of the model's weights; None where it is not known: the card is kept by name then.
        told: ``economist`` or ``thin``.
        measured_at: when it was begun.
        version_of_gate: a kept card of another one is not read.
        answers: by situation; those with names and dates end in ``named``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    model: str
    backend: str
    version: str | None = None
    digest: str | None = None
    told: Told = "economist"
    measured_at: datetime
    version_of_gate: Annotated[int, Field(ge=VERSION, le=VERSION)] = VERSION
    answers: dict[str, GateAnswer] = Field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return a kept card, or None where none can be read: it is measured anew."""
        with suppress(OSError, ValidationError):
            return cls.model_validate_json(path.read_bytes())
        return None

    @property
    def finished(self) -> bool:
        """Whether all situations were asked."""
        return all(key in self.answers for key, _, _ in _plan())

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """All criteria, for each way of deciding."""
        known = self.answers
        there = [(one, known[key], again) for key, one, again in _plan() if key in known]
        asked = [(one, answer) for one, answer, again in there if not again]
        named = {one.name: answer for one, answer, again in there if again}
        if not asked:
            return ()
        judges = (direction, response, state, lambda asked, way: names(asked, named, way))
        return tuple(judge(asked, way) for way in _WAYS for judge in judges)

    def outcome(self, decide: Decide = "sample") -> Verdict:
        """Return whether all criteria are passed, or one is failed, for a way of deciding.

        Agents of a run answer once, at the model's temperature, which is ``sample``.
        """
        if not self.finished:
            return "undecided"
        return _outcome(self.criteria, decide)

    @property
    def verdict(self) -> str:
        """Whether the player passes, in each way of deciding, and why not."""
        criteria = self.criteria
        if not self.finished:
            so_far = f"; so far {_telling(criteria, 'direction').words}." if criteria else ""
            return f"Undecided: {len(self.answers)} of {len(_plan())} situations were asked{so_far}"
        outcomes = {way: _outcome(criteria, way) for way in _WAYS}
        each = ", ".join(f"{way}: {outcome}" for way, outcome in outcomes.items())
        head = f"Economic gate by way of deciding: {each}"
        if len(set(outcomes.values())) == 1:
            said = {"pass": "Passes the", "fail": "Fails the", "undecided": "Undecided at the"}
            head = f"{said[outcomes['sample']]} economic gate"
        whys = [
            f"{one.name} ({one.verdict}): {one.words}"
            for one in (_telling(criteria, name) for name in CRITERIA)
            if one.verdict != "pass"
        ]
        return f"{head}; {'; '.join(whys or [_telling(criteria, 'direction').words])}."

    def in_short(self, decide: Decide) -> GateVerdict:
        """Return the outcome for a way of deciding, with what tells it in a few words."""
        outcome = self.outcome(decide)
        mine = [one for one in self.criteria if one.decide == decide]
        telling = next((one for one in mine if one.verdict == outcome), mine[0])
        # Of directions only what was done: how many were right follows from it.
        return GateVerdict(outcome=outcome, words=telling.words.partition("; right in")[0])

    def kept_json(self) -> str:
        """Return a finished card as it is kept: its answers, and the verdicts for runs to read."""
        verdicts = {way: self.in_short(way).model_dump() for way in _WAYS}
        return json.dumps(self.model_dump(mode="json") | {"verdicts": verdicts})

    @property
    def heading(self) -> str:
        """Which player this is, and how it was asked."""
        known = f", digest {self.digest[:12]}" if self.digest else ""
        told = "an economist's briefing" if self.told == "economist" else "four indicators"
        calls = sum(one.calls for one in self.answers.values())
        seconds = sum(one.seconds for one in self.answers.values())
        methods = ", ".join(sorted({one.method for one in self.answers.values() if one.method}))
        return (
            f"{self.model} ({self.backend}{known}), {told}, {len(self.answers)} situations by "
            f"{methods or 'nothing'}, {calls:,} calls, {self.measured_at:%Y-%m-%d}, {seconds:.0f} s"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the criteria, a row each for each way of deciding."""
        rows = [one.model_dump() for one in self.criteria]
        return plain_frame(rows, list(Criterion.model_fields))

    def situations(self) -> pd.DataFrame:
        """Return set A and what was answered, a row a situation; set B is kept back."""
        columns = ["situation", "inflation", "output_gap", "interest_rate", "taylor_move", "mass"]
        rows = []
        for one in situations("A"):
            if (answer := self.answers.get(one.name)) is not None:
                row = (one.name, one.inflation, one.gap, one.interest_rate, one.move, answer.mass)
                moves = {way: answer.moved(way) for way in _WAYS} if answer.chances else {}
                rows.append(dict(zip(columns, row, strict=True)) | moves)
        return plain_frame(rows, [*columns, *_WAYS])

    def to_json(self) -> str:
        """Return all answers and the verdict; of set B no more than the answers."""
        return json.dumps(self.model_dump(mode="json") | {"verdict": self.verdict}, indent=1)

    def __str__(self) -> str:
        lines = [
            f"{one.name}, {one.decide}: {one.verdict} ({_shown(one)}); {one.words}"
            for one in self.criteria
        ]
        return "\n".join([self.heading, *lines, self.verdict])

    def __repr__(self) -> str:
        return f"<EconomicsCard {self.model!r}: {self.verdict}>"

    def _repr_html_(self) -> str:
        rows = map(cells_of, self.criteria)
        header = ("criterion", "decided by", "verdict", "value and 95 % interval", "in words")
        return str(join([table(header, rows, caption=self.heading), safe(self.verdict)]))


def cells_of(one: Criterion) -> tuple[str, ...]:
    """Return a criterion as a row of a card's table."""
    return one.name, one.decide, one.verdict, _shown(one), one.words


def _shown(one: Criterion) -> str:
    """Return a criterion's value, interval and cut in words."""
    if one.value is None:
        return "not known"
    unit = " bp" if one.name == "names" else ""
    takes = "at most" if one.name == "names" else "at least"
    ends = ["no bound" if end is None else f"{end:.2f}" for end in (one.low, one.high)]
    return f"{one.value:.2f}{unit}, {ends[0]} to {ends[1]}; it takes {takes} {one.cut:g}"


def _outcome(criteria: Sequence[Criterion], decide: Decide) -> Verdict:
    return min((one.verdict for one in criteria if one.decide == decide), key=_WORST.index)


def _telling(criteria: Sequence[Criterion], name: str) -> Criterion:
    """Return the worst outcome of a criterion, of equally bad ones that by mode."""
    found = [one for one in criteria if one.name == name]
    return min(found, key=lambda one: (_WORST.index(one.verdict), one.decide != "mode"))


@cache
def _plan() -> tuple[tuple[str, Situation, bool], ...]:
    """Return what is asked, in order: each answer's name, the situation, whether it is named."""
    plain = [(one.name, one, False) for which in _SETS for one in situations(which)]
    again = situations("A")[: 2 * NAMED_PAIRS]
    return (*plain, *((f"{one.name} named", one, True) for one in again))


def what_it_takes() -> str:
    """Return how much is asked, in words."""
    whole, moves = len(_plan()), len(GATE_MOVES_BP)
    return (
        f"{whole} situations, each in {moves} calls of one token ({whole * moves:,} in all; more "
        "where the backend tells no probabilities), most of each prompt read once"
    )


def economics_card(
    player: LLMClient | str | TaylorRule | Rule = "auto",
    *,
    told: Told = "economist",
    again: bool = False,
    folder: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> EconomicsCard:
    """Return how a player answers unambiguous situations: a kept card, completed where need be.

    Args:
        player: a client; what ``connect`` takes; a Taylor rule; or any function that takes
            ``inflation``, ``output_gap`` and ``previous_rate`` by name, percent, and returns a
            rate. A rule's card is not kept.
        told: ``economist`` asks with the briefing that agents of a ``SimulationConfig`` get,
            ``thin`` with four indicators.
        again: measure anew what is kept.
        folder: where cards are kept; ``$LLMSIM_CARDS``, else the user's cache.
        progress: called before each situation with how far it is and what time is left.

    Raises:
        ConfigError: there is no such model, or the folder cannot be written to.
        LLMFailureException: the server does not answer; what was measured until then is kept.
    """
    if isinstance(player, TaylorRule) or not isinstance(player, LLMClient | str):
        rule = function_of(player)
        name = getattr(player, "__name__", type(player).__name__)
        name = repr(player) if isinstance(player, TaylorRule) else name
        answers, now = {key: _by_rule(rule, one) for key, one, _ in _plan()}, datetime.now(UTC)
        return EconomicsCard(
            model=name, backend="rule", told=told, measured_at=now, answers=answers
        )

    async def measured(client: LLMClient) -> EconomicsCard:
        info = await client.model_info()
        asked = told, _prompt(told).digest
        path = _place_of(economics_folder(folder), client, info, *asked)
        card = None if again else EconomicsCard.read(path)
        card = card or EconomicsCard(
            model=info.name,
            backend=info.backend,
            version=info.version,
            digest=info.digest,
            told=told,
            measured_at=datetime.now(UTC),
        )
        todo = [one for one in _plan() if one[0] not in card.answers]
        whole, began = len(_plan()), time.perf_counter()
        for done, (key, situation, named) in enumerate(todo):
            if progress is not None:
                left = (time.perf_counter() - began) / done * (len(todo) - done) if done else 0.0
                about = f", about {left / 60:.0f} min left" if done else ""
                progress(f"situation {whole - len(todo) + done + 1} of {whole}{about}")
            answer = await _answered(client, question(situation, told=told, named=named))
            card = card.model_copy(update={"answers": card.answers | {key: answer}})
            _write_card(path, card.model_dump_json())
        # Also where the last answer was written and the program then ended before its verdicts.
        if todo or '"verdicts":' not in path.read_text(encoding="utf-8"):
            _write_card(path, card.kept_json())
        return card

    async def closing() -> EconomicsCard:
        if isinstance(player, LLMClient):
            return await measured(player)
        async with connect(player, quiet=True, timeout_s=300) as client:
            return await measured(client)

    return run_sync(closing())


def kept_economics_cards() -> list[EconomicsCard]:
    """Return the finished cards that are kept, the newest first."""
    found = map(EconomicsCard.read, economics_folder().glob("*.json"))
    done = [card for card in found if card is not None and card.finished]
    return sorted(done, key=attrgetter("measured_at"), reverse=True)


def _place_of(folder: Path, client: LLMClient, info: ModelInfo, *what: str) -> Path:
    """Return the file of a card, by a digest of all that tells it from others.

    Args:
        folder: where it is.
        client: who answers.
        info: what the server says of its model.
        what: further texts that are a part of what is asked.
    """
    which = [VERSION, info.backend, info.digest or f"name {info.name}", info.version]
    # Two servers may have different weights by one name, and are not equally fast.
    which += [str(getattr(client.backend, name, "")) for name in ("host", "base_url")]
    own = {"num_ctx": client.config.num_ctx, "options": client.config.options}
    text = json.dumps([*which, *what, own], sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()
    plain = re.sub(r"[^\w.-]+", "-", info.name.rpartition("/")[2], flags=re.ASCII)[:60]
    return folder / f"{plain}-{key[:16]}.json"


def _write_card(path: Path, text: str) -> None:
    """Write a card aside and move it into place: whoever stops this finds the old one or the new.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise ConfigError(
            f"cannot keep the card in {path.parent}: {error.strerror}; name another folder in "
            "$LLMSIM_CARDS"
        ) from error
