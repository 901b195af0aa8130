"""Measure the study's statistics: does each interval contain the truth as often as it says?

``nice python benchmarks/coverage.py --out benchmarks/coverage.json`` lets scripted players give
numbers whose true differences are known, 5,000 times a cell, and counts. Every interval and every
p-value that ``llmsim_lab.study._statistics`` offers has its cells here; all follow from one seed.
One check covers all cells, so that none can be picked: the smallest binomial p-value of a cell that
misses its level, times the number of cells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from math import sqrt
from typing import Any, Literal
from zlib import crc32

import numpy as np
import pandas as pd
from command import command
from numpy.typing import NDArray
from rich.table import Table
from scipy import stats

from llmsim_lab.study import _statistics
from llmsim_lab.study._statistics import (
    Distance,
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
)

__all__ = ["CELLS", "FULL", "QUICK", "Plan", "main", "measure", "measure_cell"]

SEED = 18
LEVEL = 0.95
AT_ONCE = 500
"""Replications in one frame, each as an outcome of its own."""
OVERALL = 0.01
"""The check fails below."""

Numbers = NDArray[np.float64]
Rng = np.random.Generator
Draw = Callable[[Rng, tuple[int, ...]], Numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure: replications of each cell."""

    replications: int


FULL = Plan(replications=5_000)
QUICK = Plan(replications=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many intervals or tests did what is counted, of how many that were offered."""

    hits: int
    offered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One condition.

    Attributes:
        group: what is measured.
        name: the condition.
        play: takes a generator and a number of replications.
        wanted: the share that was promised.
        rule: in which direction missing it is a fault; None shows a figure for comparison.
    """

    group: str
    name: str
    play: Callable[[Rng, int], Count]
    wanted: float = LEVEL
    rule: Literal["at least", "at most", "within .05", "never offered"] | None = "at least"


# --- players --------------------------------------------------------------------------------------


def normal(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return rng.standard_normal(shape)


def quietly(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return 0.3 * rng.standard_normal(shape)


def heavy(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    """Student's t with three degrees of freedom, scaled to a variance of 1."""
    return rng.standard_t(3, shape) / sqrt(3)


def skewed(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return rng.exponential(size=shape) - 1


def on_grid(rng: Rng, shape: tuple[int, ...], *, sd: float) -> Numbers:
    """Policy rates in steps of 0.25 whose differences have at least this standard deviation."""
    return 0.25 * np.round((4 + sd / sqrt(2) * rng.standard_normal(shape)) / 0.25)


def yes_or_no(rng: Rng, shape: tuple[int, ...], *, chance: float = 0.5) -> Numbers:
    return (rng.random(shape) < chance).astype(float)


def ar1(rng: Rng, shape: tuple[int, ...], *, rho: float) -> Numbers:
    """Stationary AR(1) along the second axis, with variance 1."""
    found = np.empty(shape)
    found[:, 0] = rng.standard_normal((shape[0], *shape[2:]))
    for turn in range(1, shape[1]):
        fresh = rng.standard_normal((shape[0], *shape[2:]))
        found[:, turn] = rho * found[:, turn - 1] + sqrt(1 - rho**2) * fresh
    return found


# --- frames in which each outcome is a replication ------------------------------------------------


def framed(array: Numbers, axes: Sequence[str]) -> pd.DataFrame:
    """Return an array as a long frame with a column for each axis."""
    places = np.indices(array.shape).reshape(array.ndim, -1)
    return pd.DataFrame(dict(zip(axes, places, strict=True)) | {"value": array.ravel()})


def in_parts(replications: int) -> Iterator[int]:
    for begun in range(0, replications, AT_ONCE):
        yield min(AT_ONCE, replications - begun)


def missing(rng: Rng, array: Numbers, share: float) -> Numbers:
    return np.where(rng.random(array.shape) < share, np.nan, array)


def covered(effects: Sequence[Effect], truth: Numbers) -> Count:
    """Count the intervals that contain the truth, of those that are offered."""
    inside = [
        effect.low <= true + 1e-9 and effect.high >= true - 1e-9
        for effect, true in zip(effects, truth, strict=True)
        if effect.low is not None and effect.high is not None
    ]
    return Count(hits=sum(inside), offered=len(inside))


def total(counts: Sequence[Count]) -> Count:
    return Count(hits=sum(c.hits for c in counts), offered=sum(c.offered for c in counts))


# --- independent runs -----------------------------------------------------------------------------


def runs_covered(
    rng: Rng,
    replications: int,
    *,
    n: int,
    draw: Draw = normal,
    other: Draw | None = None,
    n_other: int | None = None,
    paired: bool = True,
    failed: float = 0.0,
    truth: float = 0.0,
) -> Count:
    """Count the intervals of runs; paired runs share a part that their seed decides."""
    counts = []
    for size in in_parts(replications):
        arms = [draw(rng, (n, size)), (other or draw)(rng, (n_other or n, size))]
        frames = []
        for number, values in enumerate(arms):
            frame = framed(missing(rng, values, failed), ["seed", "outcome"]).assign(arm=number)
            frames.append(frame if paired else frame.assign(seed=frame["seed"] + 1_000 * number))
        effects = run_effects(pd.concat(frames), paired=paired)
        counts.append(covered(effects, np.full(size, truth)))
    return total(counts)


def p_values_below(
    rng: Rng,
    replications: int,
    *,
    n: int,
    draw: Draw = normal,
    paired: bool = True,
) -> Count:
    """Count the p-values of .05 or less where there is no difference."""
    found = []
    for size in in_parts(replications):
        frame = framed(draw(rng, (2, n, size)), ["arm", "seed", "outcome"])
        effects = run_effects(frame, paired=paired)
        found += [effect.p for effect in effects if effect.p is not None]
    return Count(hits=sum(p <= 1 - LEVEL for p in found), offered=len(found))


# --- situations -----------------------------------------------------------------------------------


def situations_covered(
    rng: Rng,
    replications: int,
    *,
    runs: int = 1,
    turns: int,
    answers: int,
    rho: float = 0.8,
    seeds: Literal["none", "shared", "crossed", "crossed runs"] = "none",
    failed: float = 0.0,
    noise: Draw = normal,
    speak_of: Literal["these", "new"] = "these",
    step: float = 0.0,
    exact: bool = False,
) -> Count:
    """Count the intervals of situations.

    The effect differs from situation to situation, AR(1) within a run, with a mean of 0. Answers
    have noise of their own, and with seeds some that arms, turns or runs share.
    """
    counts = []
    for size in in_parts(replications):
        effect = ar1(rng, (runs, turns, 1, size), rho=rho)
        shape = (runs, turns, answers, size)
        if step:
            effect = step * np.round(2 * effect)
        array = np.stack([noise(rng, shape), noise(rng, shape) + effect])
        if seeds == "shared":
            array += 1.5 * rng.standard_normal(shape)
        elif seeds != "none":
            # A seed is lucky for one arm, in all situations, or in all situations of a run.
            lucky = (1 if seeds == "crossed runs" else runs, 1, answers, size)
            array[1] += 0.7 * rng.standard_normal(lucky)
        array = missing(rng, array, failed)
        truth = effect.mean(axis=(0, 1, 2)) if speak_of == "these" else np.zeros(size)
        frame = framed(array, ["arm", "run", "situation", "replicate", "outcome"])
        counts.append(covered(_effects_of(frame, seeds, speak_of, exact), truth))
    return total(counts)


def _effects_of(
    frame: pd.DataFrame,
    seeds: str,
    speak_of: Literal["these", "new"],
    exact: bool,
) -> list[Effect]:
    if exact:
        return exact_situation_effects(frame.drop(columns="replicate").assign(chance=1.0))
    if seeds == "shared":
        place = 1_000 * frame["run"] + frame["situation"]
        frame = frame.assign(seed=100 * place + frame["replicate"])
    elif seeds == "crossed":
        frame = frame.assign(seed=100 * frame["run"] + frame["replicate"])
    elif seeds == "crossed runs":
        frame = frame.assign(seed=frame["replicate"])
    return situation_effects(frame, speak_of=speak_of)


def options_covered(
    rng: Rng,
    replications: int,
    *,
    runs: int,
    turns: int,
    answers: int,
    speak_of: Literal["these", "new"],
) -> Count:
    """Count the intervals of the share of the first option, of 2, 3 or 5 from turn to turn."""
    counts = []
    for size in in_parts(replications):
        options = np.array([2, 3, 5])[np.arange(turns) % 3][None, :, None, None]
        lean = 0.2 * ar1(rng, (runs, turns, 1, size), rho=0.8)
        chance = 1 / options + np.clip(lean, -0.9, 0.9) * np.minimum(1 / options, 1 - 1 / options)
        shape = (runs, turns, answers, size)
        first = rng.random((2, *shape)) < np.stack([1 / options + 0 * chance, chance])
        truth = (chance - 1 / options).mean(axis=(0, 1, 2))
        frame = framed(first.astype(float), ["arm", "run", "situation", "replicate", "outcome"])
        effects = situation_effects(frame, speak_of=speak_of)
        counts.append(covered(effects, truth if speak_of == "these" else np.zeros(size)))
    return total(counts)


def rare_covered(rng: Rng, replications: int, *, turns: int, answers: int) -> Count:
    """Count the intervals of the share of an option that one arm takes nearly always."""
    counts = []
    for size in in_parts(replications):
        chance = np.array([0.75, 0.95])[:, None, None, None, None]
        taken = rng.random((2, 1, turns, answers, size)) < chance
        frame = framed(taken.astype(float), ["arm", "run", "situation", "replicate", "outcome"])
        counts.append(covered(situation_effects(frame), np.full(size, 0.2)))
    return total(counts)


def wordings_covered(
    rng: Rng,
    replications: int,
    *,
    wordings: tuple[int, int],
    runs: int = 1,
    turns: int = 4,
    answers: int = 4,
    spread: float = 0.5,
    chance: float | None = None,
    seeds: Literal["none", "crossed", "shared", "opposed"] = "none",
    failed: float = 0.0,
    step: float = 0.0,
    draw: Draw = normal,
) -> Count:
    """Count the intervals that speak of new wordings; the arms' ideas do not differ on average.

    Each wording has a shift of its own, with this standard deviation, and half of it again at each
    situation; an arm with one wording has none, since the interval speaks of that one. Shares have
    the shift in their chance. Seeds that recur at each situation are lucky for their wording; those
    that the arms share, for the wordings of the same number, or where they are opposed for one
    arm's and unlucky for the other's. Several runs differ as in ``situations_covered``.
    """
    counts = []
    for size in in_parts(replications):
        lean = (
            ar1(rng, (runs, turns, 1, size), rho=0.8) if runs > 1 else np.zeros((1, turns, 1, size))
        )
        frames = []
        luck = 1.5 * rng.standard_normal((max(wordings), runs, turns, answers, size))
        for arm, count in enumerate(wordings):
            shift = np.zeros((count, runs, turns, 1, size))
            if count > 1:
                shift += spread * draw(rng, (count, 1, 1, 1, size))
                shift += spread / 2 * rng.standard_normal((count, runs, turns, 1, size))
            shape = (count, runs, turns, answers, size)
            if chance is None:
                array = shift + arm * lean + normal(rng, shape)
                if seeds == "crossed":
                    array += 0.7 * rng.standard_normal((count, 1, 1, answers, size))
                elif seeds != "none":
                    array += luck[:count] * (-1 if arm and seeds == "opposed" else 1)
            else:
                # The clipped shift has a mean of 0, since it is symmetric.
                room = min(chance, 1 - chance)
                array = (rng.random(shape) < chance + np.clip(shift, -room, room)).astype(float)
            if step:
                array = step * np.round(array / step)
            axes = ["wording", "run", "situation", "replicate", "outcome"]
            frame = framed(missing(rng, array, failed), axes).assign(arm=arm)
            place = 0 if seeds == "crossed" else 100 * frame["run"] + frame["situation"]
            frame["seed"] = 10_000 * place + 100 * frame["wording"] + frame["replicate"]
            frames.append(frame)
        counts.append(covered(situation_effects(pd.concat(frames)), np.zeros(size)))
    return total(counts)


def turns_as_units(
    rng: Rng, replications: int, *, rho: float, turns: int, answers: int, noise: Draw
) -> Count:
    """Count what t over the consecutive turns of one run covers, as once was offered."""
    means = ar1(rng, (1, turns, replications), rho=rho)[0]
    answered = noise(rng, (2, turns, answers, replications)).mean(axis=2)
    means += answered[1] - answered[0]
    low, high = stats.t.interval(
        LEVEL, turns - 1, loc=means.mean(axis=0), scale=stats.sem(means, axis=0)
    )
    return Count(hits=int(((low <= 0) & (high >= 0)).sum()), offered=replications)


# --- families ------------------------------------------------------------------------------------

OUTCOMES, ARMS = 3, 3


def family_values(rng: Rng, n: int, draw: Draw, effects: Numbers, common: float = 1.0) -> Numbers:
    """Return runs x arms x outcomes; outcomes have a part in common, and so have seeds."""
    own = draw(rng, (n, ARMS, OUTCOMES)) + draw(rng, (n, 1, OUTCOMES))
    own += common * draw(rng, (n, ARMS, 1))
    own[:, 1:] += effects
    return own


def family_error(
    rng: Rng,
    replications: int,
    *,
    n: int,
    draw: Draw = normal,
    false: int = 0,
    common: float = 1.0,
    how: Literal["offered", "Romano-Wolf", "Holm", "Holm per outcome", "own seeds"],
) -> Count:
    """Count the families, two contrasts by three outcomes, with a true hypothesis rejected."""
    effects = np.zeros((ARMS - 1, OUTCOMES))
    effects.ravel()[:false] = 3.0
    true = effects.ravel() == 0
    wrong = 0
    for _ in range(replications):
        values = family_values(rng, n, draw, effects, common)
        if how in ("offered", "own seeds"):
            frame = framed(values, ["seed", "arm", "outcome"])
            if how == "own seeds":
                frame["seed"] += 1_000 * frame["arm"]
            adjusted = np.array([effect.p_family for effect in run_effects(frame)])
        else:
            differences = (values[:, 1:] - values[:, :1]).reshape(n, -1)
            single = stats.ttest_1samp(differences, 0).pvalue
            if how == "Romano-Wolf":
                adjusted = romano_wolf(differences)
            elif how == "Holm":
                adjusted = np.array(holm(list(single)))
            else:
                columns = single.reshape(ARMS - 1, OUTCOMES)
                adjusted = np.array([holm(list(column)) for column in columns.T]).T.ravel()
        wrong += bool((adjusted[true] <= 1 - LEVEL).any())
    return Count(hits=wrong, offered=replications)


def family_power(
    rng: Rng, replications: int, *, n: int, how: Literal["Romano-Wolf", "Holm"]
) -> Count:
    """Count the hypotheses that are rejected where all are false, with power .8 for one alone."""
    size = smallest_effect(2.0, n) or 0.0  # sd of the differences: sqrt(2 * (1 + 1))
    effects = np.full((ARMS - 1, OUTCOMES), size)
    rejected = 0
    for _ in range(replications):
        values = family_values(rng, n, normal, effects)
        differences = (values[:, 1:] - values[:, :1]).reshape(n, -1)
        if how == "Romano-Wolf":
            adjusted = romano_wolf(differences)
        else:
            adjusted = np.array(holm(list(stats.ttest_1samp(differences, 0).pvalue)))
        rejected += int((adjusted <= 1 - LEVEL).sum())
    return Count(hits=rejected, offered=replications * (ARMS - 1) * OUTCOMES)


def stopped_early(rng: Rng, replications: int) -> Count:
    """Count the studies without a difference whose t interval excludes 0 at one of 19 looks."""
    values = normal(rng, (20, replications)) - normal(rng, (20, replications))
    wrong = np.zeros(replications, dtype=bool)
    for n in range(2, 21):
        mean, error = values[:n].mean(axis=0), stats.sem(values[:n], axis=0)
        low, high = stats.t.interval(LEVEL, n - 1, loc=mean, scale=error)
        wrong |= (low > 0) | (high < 0)
    return Count(hits=int(wrong.sum()), offered=replications)


# --- power, energy, bands -------------------------------------------------------------------------


def rejected(rng: Rng, replications: int, *, n: int, effect: float, draw: Draw = normal) -> Count:
    """Count the tests of runs that reject no difference; differences have an sd of 1."""
    count = 0
    for size in in_parts(replications):
        array = np.stack([np.zeros((n, size)), effect + draw(rng, (n, size))])
        frame = framed(array, ["arm", "seed", "outcome"])
        count += sum((effect.p or 0) <= 1 - LEVEL for effect in run_effects(frame))
    return Count(hits=count, offered=replications)


WORDS = [f"word{number}" for number in range(30)]


def labels(rng: Rng, n: int, chance: float) -> list[str]:
    return ["A" if one else "B" for one in rng.random(n) < chance]


def texts(rng: Rng, n: int, lean: float) -> list[str]:
    """Return texts of six words, of which the first ones are likelier the more one leans."""
    weights = np.exp(-lean * np.arange(len(WORDS)))
    return [
        " ".join(rng.choice(WORDS, 6, replace=False, p=weights / weights.sum())) for _ in range(n)
    ]


def energy_rejects(
    rng: Rng,
    replications: int,
    *,
    x: Callable[[Rng], list[Any]],
    y: Callable[[Rng], list[Any]],
    distance: Distance,
    blocks: tuple[list[int], list[int]] | None = None,
) -> Count:
    count = sum(
        energy_test(
            x(rng), y(rng), distance=distance, blocks=blocks, permutations=199, seed=number
        )[1]
        <= 1 - LEVEL
        for number in range(replications)
    )
    return Count(hits=count, offered=replications)


def apart(one: float, other: float) -> float:
    return abs(one - other)


def by_situation(rng: Rng, *, situations: int, answers: int, shift: float = 0.0) -> list[Numbers]:
    """Return answers whose situations differ much more than the arms do."""
    return list(
        np.repeat(10.0 * np.arange(situations), answers)
        + shift
        + rng.standard_normal(situations * answers)
    )


def band_covers(
    rng: Rng, replications: int, *, n: int, rho: float, horizons: int = 16, shape: Draw = normal
) -> Count:
    """Count the bands that contain the whole true curve."""
    count = 0
    for number in range(replications):
        curves = shape(rng, (n, horizons))
        for h in range(1, horizons):
            curves[:, h] = rho * curves[:, h - 1] + sqrt(1 - rho**2) * curves[:, h]
        _, low, high = sup_t_band(curves, draws=400, seed=number)
        count += bool(((low <= 0) & (high >= 0)).all())
    return Count(hits=count, offered=replications)


# --- the cells ------------------------------------------------------------------------------------


def _cells() -> Iterator[Cell]:
    yield from _cells_of_runs()
    yield from _cells_of_p_values()
    yield from _cells_of_situations()
    yield from _cells_of_wordings()
    yield from _cells_of_families()
    yield from _cells_of_the_rest()
    yield from _cells_of_old_failures()


def _cells_of_runs() -> Iterator[Cell]:
    draws: dict[str, Draw] = {"normal": normal, "t3": heavy}
    for n in (2, 3, 5, 10, 20, 50):
        for name, draw in draws.items():
            yield Cell(
                group="runs, paired",
                name=f"n={n}, {name}",
                play=partial(runs_covered, n=n, draw=draw),
            )
            play = partial(runs_covered, n=n, draw=draw, paired=False)
            yield Cell(group="runs, own seeds", name=f"n={n} each, {name}", play=play)
    for n in (2, 5, 10, 20):
        for mean in (0.2, 2.0):
            play = partial(
                runs_covered,
                n=n,
                draw=lambda rng, shape, m=mean: rng.poisson(m, shape).astype(float),
            )
            yield Cell(group="runs, paired", name=f"n={n}, counts of {mean}", play=play)
    for n in (5, 20):
        play = partial(runs_covered, n=n, failed=0.1)
        yield Cell(group="runs, paired", name=f"n={n}, 10 % failed", play=play)
        play = partial(runs_covered, n=n, draw=skewed)
        yield Cell(group="runs, paired", name=f"n={n}, exponential", play=play)
        for sd in (0.25, 0.5):
            play = partial(runs_covered, n=n, draw=partial(on_grid, sd=sd))
            yield Cell(group="runs, paired", name=f"n={n}, 25-bp grid, sd {sd}", play=play)
    wide = partial(lambda rng, shape: 3 * normal(rng, shape))
    for n, n_other in ((3, 3), (5, 20), (20, 5)):
        play = partial(runs_covered, n=n, n_other=n_other, other=wide, paired=False)
        yield Cell(group="runs, own seeds", name=f"{n} of sd 1, {n_other} of sd 3", play=play)
    for n in (2, 5, 10, 20, 50):
        for a, b in ((0.5, 0.5), (0.5, 0.9), (0.1, 0.1), (0.0, 0.1)):
            play = partial(
                runs_covered,
                n=n,
                draw=partial(yes_or_no, chance=a),
                other=partial(yes_or_no, chance=b),
                truth=b - a,
            )
            cell = partial(Cell, group="runs, yes or no")
            if n < _statistics.ENOUGH_FOR_SHARES:
                cell = partial(cell, wanted=0, rule="never offered")
            yield cell(name=f"n={n}, {a} and {b}", play=play)
            yield cell(name=f"n={n}, {a} and {b}, own seeds", play=partial(play, paired=False))
    yield Cell(
        group="runs, paired",
        name="one run",
        play=partial(runs_covered, n=1),
        wanted=0,
        rule="never offered",
    )


def _cells_of_p_values() -> Iterator[Cell]:
    """P-values that do not come with the interval they are shown beside."""
    size = partial(Cell, group="p-values", wanted=1 - LEVEL, rule="at most")
    test = partial(p_values_below, n=20)
    yield size(name="grid 0.25, sd 0.1", play=partial(test, draw=partial(on_grid, sd=0.1)))
    rare = partial(lambda rng, shape: rng.poisson(0.2, shape).astype(float))
    yield size(name="counts of 0.2", play=partial(test, draw=rare))
    for chance in (0.1, 0.5):
        play = partial(test, draw=partial(yes_or_no, chance=chance))
        yield size(name=f"yes or no, {chance}", play=play)
        yield size(name=f"yes or no, {chance}, own seeds", play=partial(play, paired=False))
    yield size(name="normal, own seeds", play=partial(test, paired=False))


SIZES = ((2, 5), (3, 4), (4, 4), (8, 2), (8, 5))


def _cells_of_situations() -> Iterator[Cell]:
    kinds: tuple[Literal["none", "shared", "crossed"], ...] = ("none", "shared", "crossed")
    for turns, answers in SIZES:
        these = partial(situations_covered, turns=turns, answers=answers)
        for seeds in kinds:
            for failed in (0.0, 0.1):
                gaps = ", 10 % failed" if failed else ""
                yield Cell(
                    group="these situations",
                    name=f"{turns}x{answers}, seeds {seeds}{gaps}",
                    play=partial(these, seeds=seeds, failed=failed),
                )
        play = partial(options_covered, runs=1, turns=turns, answers=answers, speak_of="these")
        yield Cell(
            group="these situations", name=f"{turns}x{answers}, 2, 3 and 5 options", play=play
        )
        play = partial(rare_covered, turns=turns, answers=answers)
        yield Cell(group="these situations", name=f"{turns}x{answers}, .95 against .75", play=play)
        play = partial(these, noise=partial(on_grid, sd=0.5), step=0.25)
        yield Cell(group="these situations", name=f"{turns}x{answers}, 25-bp grid", play=play)
    for runs in (2, 4, 8):
        new = partial(situations_covered, runs=runs, turns=8, answers=2, speak_of="new")
        for rho in (0.8, 0.95):
            for failed in (0.0, 0.1):
                gaps = ", 10 % failed" if failed else ""
                yield Cell(
                    group="new situations",
                    name=f"{runs} runs, AR(1) {rho}{gaps}",
                    play=partial(new, rho=rho, failed=failed),
                )
        for kind in ("shared", "crossed"):
            yield Cell(
                group="new situations",
                name=f"{runs} runs, seeds {kind}",
                play=partial(new, seeds=kind),
            )
        yield Cell(
            group="new situations",
            name=f"{runs} runs, seeds crossed runs",
            play=partial(new, seeds="crossed runs"),
            wanted=0,
            rule="never offered",
        )
        yield Cell(
            group="new situations",
            name=f"{runs} runs, 25-bp grid",
            play=partial(new, noise=partial(on_grid, sd=0.5), step=0.25),
        )
        play = partial(options_covered, runs=runs, turns=8, answers=2, speak_of="new")
        yield Cell(group="new situations", name=f"{runs} runs, 2, 3 and 5 options", play=play)
        play = partial(new, answers=1, noise=lambda rng, shape: np.zeros(shape), exact=True)
        yield Cell(group="new situations", name=f"{runs} runs, exact", play=play)
    for runs, turns, answers in ((1, 8, 2), (1, 8, 1)):
        play = partial(situations_covered, runs=runs, turns=turns, answers=answers, speak_of="new")
        yield Cell(
            group="new situations",
            name=f"one run, {turns}x{answers}",
            play=play,
            wanted=0,
            rule="never offered",
        )


def _cells_of_wordings() -> Iterator[Cell]:
    """Intervals that speak of new wordings, of these situations and of new ones."""
    cell = partial(Cell, group="new wordings")
    for counts in ((2, 2), (3, 3), (5, 5), (8, 8), (3, 8), (3, 1), (8, 1)):
        play = partial(wordings_covered, wordings=counts)
        name = " and ".join(map(str, counts))
        for spread in (0.0, 0.5, 2.0):
            yield cell(name=f"{name}, sd {spread}", play=partial(play, spread=spread))
        yield cell(name=f"{name}, 10 % failed", play=partial(play, answers=2, failed=0.1))
        yield cell(name=f"{name}, t3", play=partial(play, draw=heavy))
        yield cell(name=f"{name}, one situation", play=partial(play, turns=1))
        yield cell(name=f"{name}, grid of one sd", play=partial(play, step=1.0))
        for chance in (0.5, 0.95):
            for spread in (0.0, 0.2):
                yield cell(
                    name=f"{name}, share {chance}, sd {spread}",
                    play=partial(play, chance=chance, spread=spread),
                )
        kinds: tuple[Literal["crossed", "shared", "opposed"], ...] = (
            "crossed",
            "shared",
            "opposed",
        )
        for seeds in kinds:
            yield cell(name=f"{name}, seeds {seeds}", play=partial(play, seeds=seeds, spread=0.0))
    cell = partial(Cell, group="new wordings and situations")
    for runs in (2, 4, 8):
        for counts in ((3, 3), (8, 8), (3, 8), (8, 1)):
            play = partial(wordings_covered, wordings=counts, runs=runs, answers=2)
            name = f"{runs} runs, {counts[0]} and {counts[1]}"
            for spread in (0.0, 0.5, 2.0):
                yield cell(name=f"{name}, sd {spread}", play=partial(play, spread=spread))
            yield cell(name=f"{name}, 10 % failed", play=partial(play, failed=0.1))
            yield cell(name=f"{name}, share 0.95", play=partial(play, chance=0.95, spread=0.1))
            yield cell(name=f"{name}, seeds crossed", play=partial(play, seeds="crossed"))
    one = partial(wordings_covered, wordings=(3, 1), answers=1)
    yield Cell(group="new wordings", name="one answer", play=one, wanted=0, rule="never offered")


def _cells_of_families() -> Iterator[Cell]:
    error = partial(Cell, group="family-wise error", wanted=1 - LEVEL, rule="at most")
    draws: dict[str, Draw] = {"normal": normal, "t3": heavy, "exponential": skewed}
    how: Literal["Romano-Wolf", "Holm"]
    for n in (5, 8, 10, 20):
        # What run_effects chooses at this n; once through run_effects itself.
        how = "Romano-Wolf" if n >= _statistics.ENOUGH_RUNS else "Holm"
        yield error(name=f"n={n}, run_effects", play=partial(family_error, n=n, how="offered"))
        for name, draw in draws.items():
            play = partial(family_error, n=n, draw=draw, how=how)
            yield error(name=f"n={n}, {name}, {how}", play=play)
        play = partial(family_error, n=n, false=3, how=how)
        yield error(name=f"n={n}, half of them false, {how}", play=play)
    yield error(name="n=10, own seeds", play=partial(family_error, n=10, how="own seeds"))
    power_of = partial(Cell, group="which family method", wanted=0.8, rule=None)
    for n in (5, 6, 7, 8, 10, 20):
        for how in ("Romano-Wolf", "Holm"):
            yield power_of(name=f"power, n={n}, {how}", play=partial(family_power, n=n, how=how))


def _cells_of_the_rest() -> Iterator[Cell]:
    for n in (5, 10, 20, 50):
        for wanted in (0.5, 0.8):
            size = smallest_effect(1.0, n, wanted=wanted) or 0.0
            yield Cell(
                group="power",
                name=f"n={n}, {wanted}",
                play=partial(rejected, n=n, effect=size),
                wanted=power(1.0, n, size),
                rule="within .05",
            )
    size = smallest_effect(1.0, 20) or 0.0
    yield Cell(
        group="power",
        name="n=20, t3",
        play=partial(rejected, n=20, effect=size, draw=heavy),
        wanted=0.8,
        rule=None,
    )
    yield from _cells_of_energy()
    band = partial(Cell, group="sup-t band, 16 horizons")
    for n in (2, 3, 5, 10, 20, 50):
        for rho in (0.0, 0.9) if n < 50 else (0.9,):
            yield band(name=f"n={n}, AR(1) {rho}", play=partial(band_covers, n=n, rho=rho))
    for n in (5, 20):
        play = partial(band_covers, n=n, rho=0.9, shape=heavy)
        yield band(name=f"n={n}, AR(1) 0.9, t3", play=play)


def _cells_of_energy() -> Iterator[Cell]:
    size = partial(Cell, group="energy test, size", wanted=1 - LEVEL, rule="at most")
    test = partial(energy_rejects, distance="labels")
    for n in (5, 20):
        even = partial(labels, n=n, chance=0.5)
        yield size(name=f"labels .5/.5, n={n}", play=partial(test, x=even, y=even))
    same = partial(texts, n=10, lean=0.1)
    yield size(name="texts, n=10", play=partial(energy_rejects, x=same, y=same, distance="words"))
    block = partial(by_situation, situations=8, answers=3)
    where = [place for place in range(8) for _ in range(3)]
    blocked = partial(energy_rejects, x=block, distance=apart, blocks=(where, where))
    yield size(name="numbers in 8 situations", play=partial(blocked, y=block))
    seen = partial(Cell, group="energy test, power", wanted=0.8)
    play = partial(test, x=partial(labels, n=20, chance=0.5), y=partial(labels, n=20, chance=0.95))
    yield seen(name=".5/.5 against .95/.05, n=20", play=play)
    play = partial(test, x=partial(labels, n=20, chance=1.0), y=partial(labels, n=20, chance=0.6))
    yield seen(name="always A against .6/.4, n=20", play=play)
    play = partial(blocked, y=partial(block, shift=1.0))
    yield seen(name="one sd, 8 situations 10 sd apart", play=play, rule=None)


def _cells_of_old_failures() -> Iterator[Cell]:
    old = partial(Cell, group="old failures")
    quiet = partial(situations_covered, turns=8, answers=5, rho=0.8, noise=quietly)
    yield old(
        name="before: turns of one run as units, AR(1) .8, 8 turns",
        play=partial(turns_as_units, rho=0.8, turns=8, answers=5, noise=quietly),
        rule=None,
    )
    yield old(name="now: the same run, of these situations", play=quiet)
    play = partial(quiet, runs=4, speak_of="new")
    yield old(name="now: four such runs, of new situations", play=play)
    wrong = partial(old, wanted=1 - LEVEL)
    family = partial(family_error, n=10, common=0.0)
    play = partial(family, how="Holm per outcome")
    yield wrong(name="before: Holm per outcome, 3 outcomes", play=play, rule=None)
    yield wrong(name="now: one family", play=partial(family, how="offered"), rule="at most")
    yield wrong(name="t, looked at after each of 20 pairs", play=stopped_early, rule=None)


CELLS: tuple[Cell, ...] = tuple(_cells())


def measure_cell(cell: Cell, replications: int) -> dict[str, Any]:
    """Return what was counted in a cell, and the binomial p-value of its missing what it says."""
    # Its own seed, so that a cell's figures do not depend on which others are measured.
    rng = np.random.default_rng([SEED, crc32(f"{cell.group}/{cell.name}".encode())])
    begun = time.process_time()
    count = cell.play(rng, replications)
    share = count.hits / count.offered if count.offered else None
    p: float | None = None
    if cell.rule == "never offered":
        p = float(count.offered == 0)
    elif cell.rule == "within .05" and share is not None:
        p = float(abs(share - cell.wanted) <= 0.05)
    elif cell.rule == "at least" and count.offered:
        p = float(stats.binom.cdf(count.hits, count.offered, cell.wanted))
    elif cell.rule == "at most" and count.offered:
        p = float(stats.binom.sf(count.hits - 1, count.offered, cell.wanted))
    return {
        "group": cell.group,
        "cell": cell.name,
        "wanted": round(cell.wanted, 3),
        "rule": cell.rule or "for comparison",
        "measured": None if share is None else round(share, 4),
        "offered": round(min(1.0, count.offered / replications), 4),
        "p": p,
        "cpu_s": round(time.process_time() - begun, 1),
    }


def _measured(place: int, replications: int) -> dict[str, Any]:
    return measure_cell(CELLS[place], replications)


def measure(plan: Plan) -> dict[str, Any]:
    """Return all cells, and the one check of them all."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(_measured, range(len(CELLS)), repeat(plan.replications)))
    judged = [row["p"] for row in rows if row["p"] is not None]
    return {
        "seed": SEED,
        "level": LEVEL,
        "replications": plan.replications,
        "cells_judged": len(judged),
        "overall_p": min(1.0, len(judged) * min(judged)),
        "passes": len(judged) * min(judged) >= OVERALL,
        "cells": rows,
    }


def shown(figures: Mapping[str, Any]) -> Table:
    """Return the cells as a table."""
    title = (
        f"{figures['replications']:,} replications; {figures['cells_judged']} cells judged, "
        f"overall p = {figures['overall_p']:.3f}"
    )
    table = Table("group", "cell", "wanted", "rule", "measured", "offered", "p", title=title)
    for row in figures["cells"]:
        numbers = [row[name] for name in ("measured", "offered", "p")]
        cells = ["" if number is None else f"{number:.3f}" for number in numbers]
        table.add_row(row["group"], row["cell"], f"{row['wanted']:.2f}", row["rule"], *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    command(
        arguments,
        doc=__doc__,
        out="coverage.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=shown,
    )


if __name__ == "__main__":
    main()
