"""Measure the study's statistics: does each interval contain the truth as often as it says?

``nice python benchmarks/coverage.py --out benchmarks/coverage.json`` draws numbers whose true
differences are known, 5,000 times a cell, and counts. Every interval and every p-value that
``llmsim_lab.study.estimates`` offers has its cells here; all follow from one seed. Where the module
may refuse after a look at the numbers, the share is of those that it offers. One check covers all
judged cells, so that none can be picked: the smallest binomial p-value of a cell that misses its
level, times the number of cells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import sqrt
from typing import Any, Literal
from zlib import crc32

import numpy as np
import pandas as pd
from command import command
from numpy.typing import NDArray
from rich.table import Table
from scipy import special, stats

from llmsim_lab.study.estimates import Contrast, effects, family
from llmsim_lab.study.estimates.bands import sup_t_band
from llmsim_lab.study.estimates.choice import Wanted, estimate_numbers, estimate_texts
from llmsim_lab.study.estimates.estimate import Generality, Unit
from llmsim_lab.study.estimates.family import adjusted
from llmsim_lab.study.estimates.parts import Parts, Sample, Spread, TextSample
from llmsim_lab.study.estimates.student import smallest_detectable

__all__ = ["CELLS", "FULL", "QUICK", "Plan", "main", "measure", "measure_cell"]

SEED = 36
LEVEL = 0.95
OVERALL = 0.01
"""The check fails below."""

Numbers = NDArray[np.float64]
Rng = np.random.Generator
Draw = Callable[[Rng, tuple[int, ...]], Numbers]
Counts = tuple[int, int]
"""How many intervals or tests did what is counted, of how many that were offered."""
Rule = Literal["at least", "at most", "within .02", "never offered"] | None
AT_MOST: Rule = "at most"
PAIR = np.array([-1.0, 1.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure: replications of each cell."""

    replications: int


FULL = Plan(replications=5_000)
QUICK = Plan(replications=40)


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition: its group and name, what plays it, the share that was promised.

    ``rule`` is in which direction missing the share is a fault; None shows it for comparison.
    """

    group: str
    name: str
    play: Callable[[Rng, int], Counts]
    wanted: float = LEVEL
    rule: Rule = "at least"


# --- numbers --------------------------------------------------------------------------------------


def normal(rng: Rng, shape: tuple[int, ...], sd: float = 1.0) -> Numbers:
    return sd * rng.standard_normal(shape)


def heavy(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    """Student's t with three degrees of freedom, scaled to a variance of 1."""
    return rng.standard_t(3, shape) / sqrt(3)


def skewed(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return rng.exponential(size=shape) - 1


def lognormal(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return rng.lognormal(size=shape) - np.exp(0.5)


def on_grid(rng: Rng, shape: tuple[int, ...], sd: float) -> Numbers:
    """Policy rates in steps of 0.25 whose differences have at least this standard deviation."""
    return 0.25 * np.round((4 + sd / sqrt(2) * rng.standard_normal(shape)) / 0.25)


def chance(rng: Rng, shape: tuple[int, ...], p: float) -> Numbers:
    return (rng.random(shape) < p).astype(float)


def zero(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return np.zeros(shape)


def sevens(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return np.full(shape, 7.0)


def moves(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return rng.choice([-0.25, 0.0, 0.25], shape, p=[0.05, 0.65, 0.3])


def ar1(rng: Rng, shape: tuple[int, ...], rho: float) -> Numbers:
    """Stationary AR(1) along the last axis, with variance 1."""
    values = rng.standard_normal(shape)
    for turn in range(1, shape[-1]):
        values[..., turn] = rho * values[..., turn - 1] + sqrt(1 - rho**2) * values[..., turn]
    return values


# --- designs: arrays of arms x wordings x units x replicates, NaN where an arm has nothing --------


def runs(rng: Rng, n: int, a: Draw = normal, b: Draw = normal) -> Numbers:
    """Pairs of runs; what a seed decides would be in both, and is left out."""
    return np.stack([a(rng, (n,)), b(rng, (n,))])[:, None, :, None]


def factorial(rng: Rng, n: int, p: float | None = None) -> Numbers:
    """2 x 3 arms; units have a slope of their own, and arms different spreads."""
    spread = np.array([0.2, 1.0, 2.0] * 2)[:, None]
    slope = np.repeat([0.0, 0.7], 3)[:, None] * rng.standard_normal(n)
    values = slope + spread * rng.standard_normal((6, n))
    return (values if p is None else chance(rng, (6, n), p))[:, None, :, None]


def situations(
    rng: Rng, *, of: tuple[int, int, int], rho: float = 0.8, noise: float = 1.0, p: float = 0.0
) -> Numbers:
    """Runs x turns x answers; situations differ in their effect, by an AR(1) within a run."""
    count, turns, answers = of
    shape = (2, count * turns, answers)
    values = noise * rng.standard_normal(shape) if not p else chance(rng, shape, p)
    if count > 1:
        values[1] += ar1(rng, (count, turns), rho).reshape(-1, 1)
    return values[:, None]


def as_units(rng: Rng, play: Callable[[Rng], Numbers]) -> Numbers:
    """Take each call for a unit of its own."""
    return play(rng).reshape(2, 1, -1, 1)


def worded(
    rng: Rng, *, of: tuple[int, int], units: int, sd: float, by_run: float = 0.0, p: float = 0.0
) -> Numbers:
    """Arms of so many wordings, asked three times at units that differ in their effect."""
    values = np.full((2, sum(of), units, 3), np.nan)
    differ = by_run * rng.standard_normal((units, 1))
    for arm, at in enumerate((slice(of[0]), slice(of[0], None))):
        shape = (of[arm], units, 3)
        own = sd * rng.standard_normal((of[arm], 1, 1)) * (of[arm] > 1)
        values[arm, at] = chance(rng, shape, p) if p else own + arm * differ + normal(rng, shape)
    return values


def estimated(
    values: Numbers,
    *,
    w: Numbers = PAIR,
    sizes: Numbers | None = None,
    turns: int = 1,
    speaks_of: Generality = "new runs",
) -> Parts:
    """Return what the estimator of a design finds in an array; ``turns`` a run."""
    if sizes is None:
        sizes = np.ones(len(values))
    unit: Unit = "wording"
    if speaks_of == "new runs":
        unit = "run"
    elif speaks_of == "these situations":
        unit = "situation"
    contrast = Contrast(name="", weights={}, unit=unit, generalises_to=speaks_of)
    sample = Sample(
        values=values,
        weights=w,
        run_of=np.arange(values.shape[2]) // turns,
        wording_counts=sizes.astype(int),
        wording_sets=np.arange(len(values)),
    )
    return estimate_numbers(contrast, sample, Wanted())


def covered(
    rng: Rng,
    replications: int,
    *,
    design: Callable[[Rng], Numbers],
    truth: float = 0.0,
    w: Numbers = PAIR,
    speaks_of: Generality = "new runs",
    turns: int = 1,
    failed: float = 0.0,
) -> Counts:
    """Count the intervals that contain the truth, of those that are offered; ``turns`` a run."""
    hits = offered = 0
    for _ in range(replications):
        values = design(rng)
        values[rng.random(values.shape) < failed] = np.nan
        sizes = np.isfinite(values).any(axis=(2, 3)).sum(axis=1)
        found = estimated(values, w=w, sizes=sizes, turns=turns, speaks_of=speaks_of)
        if found.interval is not None:
            offered += 1
            low, high = found.interval
            hits += low <= truth + 1e-9 and high >= truth - 1e-9
    return hits, offered


# --- tests, the band, and the whole way from a table ----------------------------------------------


def family_error(
    rng: Rng, replications: int, *, n: int, m: int, draw: Draw, each: bool = False
) -> Counts:
    """Count the families in which anything is found, of outcomes that have a part in common."""
    hits = 0
    for _ in range(replications):
        differences = draw(rng, (n, m)) + 0.7 * draw(rng, (n, 1))
        alone = t_test(differences)
        together = adjusted(alone, list(differences.T)).p_values
        hits += min(alone if each else together) < 1 - LEVEL
    return hits, replications


def t_test(differences: Numbers) -> list[float]:
    error = differences.std(axis=0, ddof=1) / sqrt(len(differences))
    p = 2 * special.stdtr(len(differences) - 1, -np.abs(differences.mean(axis=0) / error))
    return [float(one) for one in p]


def shown(
    rng: Rng, replications: int, *, n: int, margin: float, shift: float, draw: Draw = normal
) -> Counts:
    """Count the verdicts that a difference of ``shift`` is within a margin; 0: that it differs."""
    hits = 0
    for _ in range(replications):
        values = runs(rng, n, zero, draw) + shift * np.arange(2)[:, None, None, None]
        found = estimated(values)
        p = found.p
        if margin:
            p = found.p_beyond(margin) if found.p_beyond else None
        hits += p is not None and p < 1 - LEVEL
    return hits, replications


def band(rng: Rng, replications: int, *, n: int, turns: int, pointwise: bool = False) -> Counts:
    """Count the bands that contain the whole curve."""
    hits = 0
    for number in range(replications):
        curves = ar1(rng, (n, turns), 0.8)
        reach = special.stdtrit(n - 1, (1 + LEVEL) / 2) / sqrt(n)
        low = curves.mean(axis=0) - reach * curves.std(axis=0, ddof=1)
        high = curves.mean(axis=0) + reach * curves.std(axis=0, ddof=1)
        if not pointwise:
            _, low, high = sup_t_band(curves, LEVEL, draws=500, seed=number)
        hits += bool(((low <= 0) & (high >= 0)).all())
    return hits, replications


def looked(rng: Rng, replications: int, *, last: int) -> Counts:
    """Count the studies that stop at p < .05, looked at after each pair from the fifth on."""
    differences = rng.standard_normal((last, replications))
    least = np.ones(replications)
    for n in range(5, last + 1):
        least = np.minimum(least, t_test(differences[:n]))
    return int((least < 1 - LEVEL).sum()), replications


def categories(
    rng: Rng, replications: int, *, units: int, answers: int, speaks_of: Generality
) -> Counts:
    """Count the energy tests that find a difference where there is none."""
    hits = 0
    unit: Unit = "run" if speaks_of == "new runs" else "situation"
    contrast = Contrast(name="", weights={}, unit=unit, generalises_to=speaks_of)
    for _ in range(replications):
        shares = rng.dirichlet([1, 1, 1], units).cumsum(axis=1)[:, None]
        values = (rng.random((2, units, answers, 1)) > shares).sum(axis=-1)
        lengths = Sample(
            values=np.zeros((2, 1, units, answers)),
            weights=PAIR,
            run_of=np.arange(units),
            wording_counts=np.ones(2, int),
            wording_sets=np.arange(2),
        )
        sample = TextSample(kinds=np.eye(4)[values], lengths=lengths, are_words=False)
        found = estimate_texts(contrast, sample, Wanted())
        hits += found.p is not None and found.p < 1 - LEVEL
    return hits, replications


def through_the_table(rng: Rng, replications: int, *, n: int, formula: str | None) -> Counts:
    """Count the intervals of ``effects`` from tables of 2 x 2 arms and three turns."""
    names = ["factor", "prompt", "unit", "turn", "outcome"]
    sizes, hits, offered = [range(k) for k in (2, 2, n, 3, min(replications, 250))], 0, 0
    table = pd.MultiIndex.from_product(sizes, names=names).to_frame(index=False)
    table = table.assign(run=table["unit"], wording="", replicate=1)
    table["arm"] = table["factor"].astype(str) + table["prompt"].astype(str)
    for _ in range(replications // len(sizes[-1])):
        shape = [len(size) for size in sizes]
        values = rng.standard_normal(shape) + rng.standard_normal([1, 1, n, 1, shape[-1]])
        values[1] += 0.5 + rng.standard_normal([1, n, 1, shape[-1]])
        contrasts = [("10", "00")] if formula is None else None
        for effect in effects(table.assign(value=values.ravel()), formula, contrasts=contrasts):
            if effect.low is not None and effect.high is not None:
                truth = 0.5 * effect.contrast.startswith(("factor", "10"))
                hits, offered = hits + (effect.low <= truth <= effect.high), offered + 1
    return hits, offered


# --- cells ----------------------------------------------------------------------------------------


def cell(group: str, name: str, rule: Rule = "at least", **how: Any) -> Cell:
    wanted = 0.0 if rule == "never offered" else LEVEL
    return Cell(group, name, partial(covered, **how), wanted, rule)


def _cells_of_runs() -> Iterator[Cell]:
    for n, draw in [*product((2, 3, 5, 10, 50), [normal]), (5, heavy), (20, heavy)]:
        name = f"n={n}, {'normal' if draw is normal else 't3'}"
        yield cell("runs, paired", name, design=partial(runs, n=n, b=draw))
    for n, draw in product((5, 10, 50), (skewed, lognormal)):
        play = partial(runs, n=n, a=zero, b=draw)
        yield cell("runs, paired, skewed (warned)", f"n={n}, {draw.__name__}", None, design=play)
    for n in (5, 20):
        play = partial(runs, n=n)
        yield cell("runs, paired", f"n={n}, 10 % failed", design=play, failed=0.1)
    for n, sd in product((5, 10, 20, 50), (0.1, 0.25)):
        play = partial(runs, n=n, a=partial(on_grid, sd=sd), b=partial(on_grid, sd=sd))
        yield cell("25-bp grid", f"n={n}, sd {sd}", design=play)
    for n in (5, 10, 20, 50):
        play = partial(runs, n=n, a=zero, b=moves)
        name = f"n={n}, moves of -25, 0, 25 bp with .05, .65, .3"
        yield cell("25-bp grid, skewed", name, None, design=play, truth=0.0625)
    for n, (a, b) in product((5, 20, 50), ((0.5, 0.5), (0.5, 0.9), (0.1, 0.1), (0.0, 0.1))):
        draws = {"a": partial(chance, p=a), "b": partial(chance, p=b)}
        play = partial(runs, n=n, **draws)
        yield cell("0 or 1", f"n={n}, {a} and {b}", design=play, truth=b - a)
    main = np.array([-1, -1, -1, 1, 1, 1]) / 3
    weights = {"main effect": main, "interaction": np.array([1.0, -1.0, 0.0, -1.0, 1.0, 0.0])}
    for n, (name, w) in product((3, 5, 30), weights.items()):
        yield cell("factorial 2x3", f"{name}, n={n}", design=partial(factorial, n=n), w=w)
    for n in (5, 20):
        play = partial(factorial, n=n, p=0.1)
        yield cell("factorial 2x3, 0 or 1", f"main effect, n={n}, .1", design=play, w=main)
    refused = partial(cell, "refused", rule="never offered")
    half = partial(chance, p=0.5)
    yield refused("one pair of runs", design=partial(runs, n=1))
    yield refused("0 or 1, 4 runs", design=partial(runs, n=4, a=half, b=half))
    yield refused("all differ by the same", design=partial(runs, n=5, a=zero, b=sevens))
    for n, p in ((5, 0.5), (20, 0.1)):
        play = partial(runs, n=n, a=sevens, b=lambda *how, p=p: sevens(*how) + chance(*how, p=p))
        yield refused(f"n={n}, 7 or 8, {p}", design=play)
    play = partial(situations, of=(1, 20, 5))
    yield refused("20 situations of one run, for new runs", design=play, turns=20)
    play = partial(situations, of=(1, 8, 1))
    yield refused("one answer a situation", design=play, speaks_of="these situations")
    play = partial(worded, of=(2, 2), units=4, sd=0.5)
    yield refused("two wordings", design=play, speaks_of="new wordings")


def _cells_of_situations() -> Iterator[Cell]:
    these = partial(cell, "these situations", speaks_of="these situations")
    for turns, answers in ((2, 5), (4, 4), (8, 2)):
        play = partial(situations, of=(1, turns, answers))
        yield these(f"{turns}x{answers}", design=play)
        yield these(f"{turns}x{answers}, 10 % failed", design=play, failed=0.1)
        yield these(f"{turns}x{answers}, 0 or 1, .25", design=partial(play, p=0.25))
    for count, rho in ((2, 0.8), (4, 0.8), (4, 0.95)):
        play = partial(situations, of=(count, 8, 5), rho=rho, noise=0.3)
        name = f"{count} runs x 8 turns, AR(1) {rho}"
        yield cell("new runs, from situations", name, design=play, turns=8)
        if (count, rho) == (4, 0.8):
            yield cell("before: situations as units", name, None, design=play)
            play = partial(as_units, play=play)
            yield cell("before: calls as units", name, None, design=play)
    for of, sd in product(((3, 3), (3, 8), (8, 1)), (0.0, 0.5)):
        name = f"{of[0]} and {of[1]}, sd {sd}"
        play = partial(worded, of=of, units=4, sd=sd)
        yield cell("new wordings", name, design=play, speaks_of="new wordings")
        for units in (2, 4) if sd else ():
            play = partial(worded, of=of, units=units, sd=sd, by_run=0.5)
            both: Generality = "new wordings and situations"
            yield cell(both, f"{units} runs, {name}", design=play, speaks_of=both)
    for of, p in product(((3, 3), (8, 1)), (0.5, 0.05)):
        play = partial(worded, of=of, units=4, sd=0.0, p=p)
        name = f"{of[0]} and {of[1]}, 0 or 1, {p}"
        yield cell("new wordings", name, design=play, speaks_of="new wordings")


def _cells_of_tests() -> Iterator[Cell]:
    alpha = 1 - LEVEL
    for n, m, draw in [
        *product((5, 8, 20), (2, 6, 20), [normal]),
        *product((8, 20), [6], (heavy, skewed)),
    ]:
        play, rule = partial(family_error, n=n, m=m, draw=draw), None if draw is skewed else AT_MOST
        yield Cell("family-wise error", f"n={n}, {m} of {draw.__name__}", play, alpha, rule)
    play = partial(family_error, n=20, m=6, draw=normal, each=True)
    yield Cell("before: each for itself", "n=20, 6 of normal", play, alpha, None)
    for last in (10, 20, 40):
        play = partial(looked, last=last)
        yield Cell("before: looking at each pair", f"5 to {last}", play, alpha, None)
    for n, draw in [*product((5, 20, 50), [normal]), (20, heavy), (20, skewed)]:
        play = partial(shown, n=n, margin=0.5, shift=0.5, draw=draw)
        rule = None if draw is skewed else AT_MOST
        yield Cell("equivalence, at the margin", f"n={n}, {draw.__name__}", play, alpha, rule)
    for n in (5, 20):
        play = partial(shown, n=n, margin=0.0, shift=smallest_detectable([Spread(1.0 / n, n - 1)]))
        yield Cell("power that was promised", f"n={n}", play, 0.8, "within .02")
    for n, turns in ((3, 8), (5, 8), (20, 8), (8, 20), (5, 40)):
        yield Cell("band of a curve", f"n={n}, {turns} turns", partial(band, n=n, turns=turns))
    play = partial(band, n=8, turns=20, pointwise=True)
    yield Cell("before: each turn for itself", "n=8, 20 turns", play, LEVEL, None)
    for units, answers, speaks_of in ((6, 3, "these situations"), (10, 1, "new runs")):
        play = partial(categories, units=units, answers=answers, speaks_of=speaks_of)
        yield Cell("energy test, size", f"{units} x {answers}, {speaks_of}", play, alpha, AT_MOST)
    for n, formula in ((5, None), (10, "~ factor * prompt")):
        play = partial(through_the_table, n=n, formula=formula)
        yield Cell("through the table", f"n={n}, {formula or 'one contrast'}", play)


CELLS: tuple[Cell, ...] = (*_cells_of_runs(), *_cells_of_situations(), *_cells_of_tests())


def measure_cell(cell: Cell, replications: int) -> dict[str, Any]:
    """Return what was counted in a cell, and the binomial p-value of its missing what it says."""
    # Its own seed, so that a cell's figures do not depend on which others are measured.
    rng = np.random.default_rng([SEED, crc32(f"{cell.group}/{cell.name}".encode())])
    begun = time.process_time()
    hits, offered = cell.play(rng, replications)
    share = hits / offered if offered else None
    p: float | None = None
    if cell.rule == "never offered":
        p = float(offered == 0)
    elif cell.rule is not None and offered:
        below = float(stats.binom.cdf(hits, offered, cell.wanted))
        above = float(stats.binom.sf(hits - 1, offered, cell.wanted))
        both = float(abs(hits / offered - cell.wanted) <= 0.02)
        p = {"at least": below, "at most": above, "within .02": both}[cell.rule]
    return {
        "group": cell.group,
        "cell": cell.name,
        "wanted": round(cell.wanted, 3),
        "rule": cell.rule or "for comparison",
        "measured": None if share is None else round(share, 4),
        "offered": round(min(1.0, offered / replications), 4),
        "p": p,
        "cpu_s": round(time.process_time() - begun, 1),
    }


def measure(plan: Plan) -> dict[str, Any]:
    """Return all cells, and the one check of them all."""
    family.RANDOM_FLIPS = 199  # exact with any number, and faster
    rows = [measure_cell(cell, plan.replications) for cell in CELLS]
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


def as_table(figures: Mapping[str, Any]) -> Table:
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
    how: dict[str, Any] = {"measure": measure, "quick": QUICK, "full": FULL, "table": as_table}
    command(arguments, doc=__doc__, out="coverage.json", **how)


if __name__ == "__main__":
    main()
