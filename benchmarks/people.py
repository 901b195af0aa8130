"""Measure the comparison with people: do intervals hold the truth, and verdicts say what is true?

``nice python benchmarks/people.py --out benchmarks/people.json`` draws people and runs of a model
whose true difference is known, 2,000 times a cell, and counts. People and players are drawn from
the offers of Forsythe et al. (1994), from shares, and from groups whose players are alike. The
rules and the one check of all cells are those of ``coverage.py``; the seed is not, since the method
was changed after its figures had been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from command import command
from coverage import Cell, Counts, Numbers, Plan, Rng, as_table, measure_cell, summarised

from llmsim_lab.people import PublishedFigure, published
from llmsim_lab.study.estimates.people import (
    MARGIN,
    SPREAD_MARGIN,
    Margins,
    PeopleParts,
    Weighted,
    compare_law,
    compare_numbers,
    family_verdicts,
    groups_for,
)

__all__ = ["CELLS", "main", "measure"]

SEED = 20261201
FULL = Plan(replications=2_000)
QUICK = Plan(replications=5)

OFFERS = {
    f"{game} ${stake}": np.array(
        published(
            "forsythe_1994",
            condition=f"{game} ${stake}",
            measure="offer_usd",
            divide_by=stake,
        ).values
    )
    for game in ("dictator", "ultimatum")
    for stake in (5, 10)
}
Draw = Callable[[Rng], PeopleParts]


def people_of(
    values: Numbers,
    *,
    keeps_values: bool = True,
) -> PublishedFigure:
    """Return people as a study would publish them: each one's value, or mean and spread."""
    return PublishedFigure(
        study="drawn",
        condition="",
        source="",
        place="",
        n=len(values),
        mean=float(values.mean()),
        sd=float(values.std(ddof=1)),
        values=tuple(values) if keeps_values else (),
    )


def share_of_people(rng: Rng, *, n: int, p: float) -> PublishedFigure:
    count = float(rng.binomial(n, p))
    return PublishedFigure(
        study="drawn",
        condition="",
        source="",
        place="",
        n=n,
        mean=count / n,
        count=count,
    )


def one_each(values: Numbers) -> list[Numbers]:
    return list(values[:, None])


def offers(
    rng: Rng,
    *,
    of: str,
    n: int,
    shift: float = 0.0,
    spread: float = 1.0,
    keeps_values: bool = True,
) -> PeopleParts:
    """New people, and ``n`` runs of a player with another mean and spread."""
    population = OFFERS[of]
    people = rng.choice(population, len(population))
    players = rng.choice(population, n)
    centre = population.mean()
    players = centre + shift + spread * (players - centre)
    figure = people_of(people, keeps_values=keeps_values)
    return compare_numbers(one_each(players), figure, Margins())


def shares(
    rng: Rng,
    *,
    n: int,
    people: int,
    p: float,
    shift: float = 0.0,
) -> PeopleParts:
    players = (rng.random(n) < p + shift).astype(float)
    return compare_numbers(one_each(players), share_of_people(rng, n=people, p=p), Margins())


def in_groups(rng: Rng, *, groups: int, likeness: float = 0.3) -> PeopleParts:
    """Groups of 16 players; part of the variance is the group's."""
    of_group = sqrt(likeness) * rng.standard_normal((groups, 1))
    players = of_group + sqrt(1 - likeness) * rng.standard_normal((groups, 16))
    figure = people_of(rng.standard_normal(60))
    return compare_numbers(list(players), figure, Margins())


def constant(rng: Rng, *, of: str, n: int) -> PeopleParts:
    population = OFFERS[of]
    figure = people_of(rng.choice(population, len(population)))
    return compare_numbers(one_each(np.full(n, population.mean())), figure, Margins())


def law_of_offers(
    rng: Rng,
    *,
    of: str,
    shift: float = 0.0,
    spread: float = 1.0,
) -> PeopleParts:
    """New people, and a player whose probabilities are known: another mean and spread."""
    population = OFFERS[of]
    figure = people_of(rng.choice(population, len(population)))
    centre = population.mean()
    values, counts = np.unique(population, return_counts=True)
    model = Weighted(centre + shift + spread * (values - centre), counts / counts.sum())
    return compare_law(model, figure, Margins())


def law_of_share(rng: Rng, *, people: int, p: float, shift: float = 0.0) -> PeopleParts:
    model = Weighted(np.array([1.0, 0.0]), np.array([p + shift, 1 - p - shift]))
    return compare_law(model, share_of_people(rng, n=people, p=p), Margins())


# --- counting -------------------------------------------------------------------------------------


def holds_difference(rng: Rng, replications: int, *, draw: Draw, truth: float = 0.0) -> Counts:
    """Count the intervals of the difference that hold it."""
    hits = 0
    offered = 0
    for _ in range(replications):
        interval = draw(rng).difference.interval
        if interval is not None:
            offered += 1
            hits += interval.low <= truth <= interval.high
    return Counts(hits, offered)


def holds_ratio(rng: Rng, replications: int, *, draw: Draw, truth: float = 1.0) -> Counts:
    """Count the intervals of the ratio of spreads that hold it."""
    hits = 0
    offered = 0
    for _ in range(replications):
        interval = draw(rng).spread.interval
        if interval is not None:
            offered += 1
            hits += interval.low <= truth <= interval.high
    return Counts(hits, offered)


def judged(rng: Rng, replications: int, *, draw: Draw, verdict: str) -> Counts:
    """Count the comparisons that have a verdict."""
    hits = sum(draw(rng).verdict == verdict for _ in range(replications))
    return Counts(hits, replications)


def near_mean(rng: Rng, replications: int, *, draw: Draw) -> Counts:
    hits = sum(draw(rng).difference.near == "near" for _ in range(replications))
    return Counts(hits, replications)


def near_spread(rng: Rng, replications: int, *, draw: Draw) -> Counts:
    hits = sum(draw(rng).spread.near == "near" for _ in range(replications))
    return Counts(hits, replications)


def any_judged(
    rng: Rng,
    replications: int,
    *,
    draw: Draw,
    measures: int,
    verdict: str,
) -> Counts:
    """Count the cards of several measures of which at least one has a verdict."""
    hits = 0
    for _ in range(replications):
        card = [draw(rng) for _ in range(measures)]
        hits += verdict in family_verdicts(card)
    return Counts(hits, replications)


def recites(rng: Rng, replications: int, *, original: Draw, twin: Draw) -> Counts:
    """Count the players who are called like people in the original and unlike them in the twin."""
    hits = 0
    for _ in range(replications):
        both = (draw(rng).verdict for draw in (original, twin))
        hits += tuple(both) == ("like people", "unlike people")
    return Counts(hits, replications)


def _cells_of_laws() -> list[Cell]:
    cells = []
    for of in OFFERS:
        draw = partial(law_of_offers, of=of)
        for group, count in (
            ("difference of means", partial(holds_difference, draw=draw)),
            ("ratio of spreads", partial(holds_ratio, draw=draw)),
        ):
            cells.append(Cell(group=group, name=f"exact: {of}", count=count))
        cells.append(
            Cell(
                group="called like people",
                name=f"exact, their own probabilities: {of}",
                count=partial(judged, draw=draw, verdict="like people"),
                rule=None,
            )
        )
        far = partial(law_of_offers, of=of, shift=MARGIN)
        narrow = partial(law_of_offers, of=of, spread=1 / SPREAD_MARGIN)
        wide = partial(law_of_offers, of=of, spread=SPREAD_MARGIN)
        for name, count in (
            ("as far as the margin", partial(near_mean, draw=far)),
            ("a spread as small as the margin", partial(near_spread, draw=narrow)),
            ("a spread as large as the margin", partial(near_spread, draw=wide)),
        ):
            cells.append(
                Cell(
                    group="called like people",
                    name=f"exact, {name}: {of}",
                    count=count,
                    wanted=0.05,
                    rule="at most",
                )
            )
        tenth = partial(law_of_offers, of=of, spread=0.1)
        cells.append(
            Cell(
                group="called unlike people",
                name=f"exact, their mean, a tenth of their spread: {of}",
                count=partial(judged, draw=tenth, verdict="unlike people"),
            )
        )
    for p, people, shift in (
        (0.72, 152, MARGIN),
        (0.88, 183, -MARGIN),
        (0.29, 88, MARGIN),
        (0.16, 80, MARGIN),
        (0.16, 80, -MARGIN),
        (0.03, 80, MARGIN),
    ):
        held = partial(law_of_share, people=people, p=p)
        name = f"exact: {p} of {people} people"
        cells.append(
            Cell(
                group="difference of shares",
                name=f"{name}, {shift:+}",
                count=partial(holds_difference, draw=held),
            )
        )
        far = partial(law_of_share, people=people, p=p, shift=shift)
        cells.append(
            Cell(
                group="called like people",
                name=f"{name}, as far as the margin, {shift:+}",
                count=partial(near_mean, draw=far),
                wanted=0.05,
                rule="at most",
            )
        )
    return cells


def _cells_of_cards() -> list[Cell]:
    """Cards of many measures, and pairs of an original and its twin."""
    at_margin = partial(law_of_share, people=152, p=0.72, shift=MARGIN)
    cells = [
        Cell(
            group="a card of 20 measures",
            name=f"as far as the margin, one or more called {verdict}",
            count=partial(any_judged, draw=at_margin, measures=20, verdict=verdict),
            wanted=0.05,
            rule="at most",
            fewer=4,
        )
        for verdict in ("like people", "unlike people")
    ]
    like = partial(offers, of="dictator $5", n=100)
    nothing = partial(
        offers, of="dictator $5", n=100, shift=-OFFERS["dictator $5"].mean(), spread=0
    )
    cells.append(
        Cell(
            group="recites",
            name="draws from people in the original, gives nothing in the twin",
            count=partial(recites, original=like, twin=nothing),
            rule=None,
        )
    )
    cells.append(
        Cell(
            group="recites",
            name="draws from people in both",
            count=partial(recites, original=like, twin=like),
            wanted=0.05,
            rule="at most",
        )
    )
    return cells


def _cells_of_differences() -> list[Cell]:
    cells = []
    for of in OFFERS:
        for n in (5, 10, 30, 100):
            draw = partial(offers, of=of, n=n)
            count = partial(holds_difference, draw=draw)
            cells.append(Cell(group="difference of means", name=f"{of}, {n} runs", count=count))
    for shift, spread in ((0.2, 0.5), (0.0, 0.1)):
        draw = partial(offers, of="dictator $5", n=30, shift=shift, spread=spread)
        cells.append(
            Cell(
                group="difference of means",
                name=f"dictator $5, 30 runs, {shift:+}, spread {spread}",
                count=partial(holds_difference, draw=draw, truth=shift),
            )
        )
    draw = partial(offers, of="dictator $5", n=30, keeps_values=False)
    cells.append(
        Cell(
            group="difference of means",
            name="dictator $5, 30 runs, people's mean and spread alone",
            count=partial(holds_difference, draw=draw),
        )
    )
    draw = partial(constant, of="dictator $5", n=30)
    cells.append(
        Cell(
            group="difference of means",
            name="a player that never varies",
            count=partial(holds_difference, draw=draw),
        )
    )
    for groups in (5, 10, 30):
        draw = partial(in_groups, groups=groups)
        cells.append(
            Cell(
                group="difference of means",
                name=f"{groups} groups of 16 that are alike",
                count=partial(holds_difference, draw=draw),
            )
        )
    return cells


def _cells_of_shares() -> list[Cell]:
    cells = []
    for p, people in ((0.72, 152), (0.46, 200), (0.16, 80), (0.03, 80)):
        for n in (5, 10, 30, 100):
            draw = partial(shares, n=n, people=people, p=p)
            count = partial(holds_difference, draw=draw)
            name = f"{p} of {people} people, {n} runs"
            cells.append(Cell(group="difference of shares", name=name, count=count))
    draw = partial(shares, n=30, people=152, p=0.72, shift=0.25)
    cells.append(
        Cell(
            group="difference of shares",
            name="0.72 of 152 people, .97 of 30 runs",
            count=partial(holds_difference, draw=draw, truth=0.25),
        )
    )
    return cells


def _cells_of_spreads() -> list[Cell]:
    cells = []
    for of in ("dictator $5", "ultimatum $5", "dictator $10"):
        for n in (30, 100):
            draw = partial(offers, of=of, n=n)
            count = partial(holds_ratio, draw=draw)
            cells.append(Cell(group="ratio of spreads", name=f"{of}, {n} runs", count=count))
    draw = partial(offers, of="dictator $5", n=30, spread=0.5)
    cells.append(
        Cell(
            group="ratio of spreads",
            name="dictator $5, 30 runs, half the spread",
            count=partial(holds_ratio, draw=draw, truth=0.5),
        )
    )
    draw = partial(in_groups, groups=30)
    cells.append(
        Cell(
            group="ratio of spreads",
            name="30 groups of 16 that are alike",
            count=partial(holds_ratio, draw=draw),
        )
    )
    return cells


def _cells_of_verdicts() -> list[Cell]:
    cells = []
    for of in ("dictator $5", "ultimatum $5"):
        for n in (30, 100, 300):
            draw = partial(offers, of=of, n=n)
            cells.append(
                Cell(
                    group="called like people",
                    name=f"draws from them: {of}, {n} runs",
                    count=partial(judged, draw=draw, verdict="like people"),
                    rule=None,
                )
            )
        for n in (5, 10, 30, 100):
            draw = partial(offers, of=of, n=n)
            cells.append(
                Cell(
                    group="called unlike people",
                    name=f"draws from them: {of}, {n} runs",
                    count=partial(judged, draw=draw, verdict="unlike people"),
                    wanted=0.05,
                    rule="at most",
                )
            )
        for n in (30, 100):
            draw = partial(offers, of=of, n=n, spread=0.1)
            cells.append(
                Cell(
                    group="called unlike people",
                    name=f"their mean, a tenth of their spread: {of}, {n} runs",
                    count=partial(judged, draw=draw, verdict="unlike people"),
                )
            )
        draw = partial(offers, of=of, n=100, shift=MARGIN)
        cells.append(
            Cell(
                group="called like people",
                name=f"as far as the margin: {of}, 100 runs",
                count=partial(judged, draw=draw, verdict="like people"),
                wanted=0.05,
                rule="at most",
            )
        )
        draw = partial(offers, of=of, n=100, spread=1 / SPREAD_MARGIN)
        cells.append(
            Cell(
                group="called like people",
                name=f"a spread as small as the margin: {of}, 100 runs",
                count=partial(near_spread, draw=draw),
                wanted=0.05,
                rule="at most",
            )
        )
    for p, people, n, shift in (
        (0.72, 152, 300, MARGIN),
        (0.72, 152, 100, -MARGIN),
        (0.16, 80, 100, -MARGIN),
        (0.03, 80, 100, MARGIN),
    ):
        draw = partial(shares, n=n, people=people, p=p, shift=shift)
        cells.append(
            Cell(
                group="called like people",
                name=f"a share as far as the margin, {p} of {people} people, {shift:+}, {n} runs",
                count=partial(judged, draw=draw, verdict="like people"),
                wanted=0.05,
                rule="at most",
            )
        )
    population = OFFERS["dictator $5"]
    groups = groups_for(people_of(population), MARGIN)
    if groups is not None:
        draw = partial(offers, of="dictator $5", n=groups)
        cells.append(
            Cell(
                group="promised",
                name=f"a near mean, dictator $5, with the {groups} runs that the plan says",
                count=partial(near_mean, draw=draw),
                wanted=0.8,
                rule=None,
            )
        )
    return cells


CELLS: tuple[Cell, ...] = (
    *_cells_of_differences(),
    *_cells_of_shares(),
    *_cells_of_spreads(),
    *_cells_of_verdicts(),
    *_cells_of_laws(),
    *_cells_of_cards(),
)


def measure(plan: Plan) -> dict[str, Any]:
    """Return what was counted in each cell, and what follows from all."""
    rows = [measure_cell(cell, plan.replications, seed=SEED) for cell in CELLS]
    return summarised(rows, plan.replications, seed=SEED)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    command(
        arguments,
        doc=__doc__,
        out="people.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=as_table,
    )


if __name__ == "__main__":
    main()
