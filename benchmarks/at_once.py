"""How long calls take while the number to send at once is found, on servers played by numbers.

``python benchmarks/at_once.py`` takes seconds. It prints the time of all calls divided by that of
the best fixed number, for servers that answer 1, 2, 4 and 16 requests at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from statistics import fmean

from llmsim_lab.llm._limits import Limits

FIXED = (1, 2, 4, 8, 16, 32)
SEEDS = range(8)
CALLS = (8, 24, 200, 400)
SLOTS = (1, 2, 4, 16)


def equally_fast(_: int) -> float:
    """Return how fast each of some requests is answered: as fast as one alone."""
    return 1.0


def on_two_cores(number: int) -> float:
    """Return the same where more at once gain 1.4 to 1.6 times the speed in all."""
    return {1: 1.4, 2: 1.4, 3: 1.5}.get(number, 1.6) / (1.4 if number == 1 else number)


def better_alone(number: int) -> float:
    """Return the same where each reads the shared text for itself, so that more are slower."""
    return {1: 1.0, 2: 0.9, 3: 0.84, 4: 0.8}.get(number, 0.7) / number


def play(
    limit: Limits,
    *,
    slots: int,
    calls: int = 400,
    wanted: int = 400,
    refuses_above: int = 10_000,
    load_s: float = 0.0,
    tells: bool = True,
    spread: float = 0.0,
    seed: int = 0,
    speed: Callable[[int], float] = equally_fast,
) -> float:
    """Send calls to a server and return how long all of them took, an answer taking one second.

    Args:
        limit: says how many may be in flight.
        slots: how many the server answers at once; others wait there.
        calls: how many calls in all.
        wanted: how many are wanted at the same time, as by the agents of a turn.
        refuses_above: with more requests than this the server says that these are too many.
        load_s: how long it loads the model first.
        tells: whether it tells that.
        spread: how much the lengths of answers differ: from 1 - spread to 1 + spread.
        seed: of the lengths.
        speed: how fast each is answered while so many are.
    """
    rng = random.Random(seed)
    now = 0.0
    left = calls
    while left > 0:
        due = min(left, wanted)
        left -= due
        queue = list[float]()  # when each was sent
        running = list[list[float]]()  # what is left of each, when it was sent, its length
        while due or queue or running:
            while due and len(queue) + len(running) < limit.at_once:
                limit.began(now)
                due -= 1
                if len(queue) + len(running) >= refuses_above:
                    limit.ended(now, now, tokens=None, too_many=True)
                    due += 1
                    break
                queue.append(now)
            while queue and len(running) < slots:
                length = rng.uniform(1 - spread, 1 + spread)
                running.append([length, queue.pop(0), length])
            next_end = min(running)
            done = next_end[0]
            now = max(now, load_s) + done / speed(len(running))
            for one in running:
                one[0] -= done
            running.remove(next_end)
            _, sent_at, length = next_end
            loading = {"load_s": max(0.001, load_s - sent_at)} if load_s and tells else {}
            limit.ended(sent_at, now, tokens=round(100 * length), **loading)
    return now


def mean_share(*, slots: int, calls: int, wanted: int, speed: Callable[[int], float]) -> float:
    """Return the time that calls take as a share of the best fixed number's, in the mean."""
    shares = []
    for seed in SEEDS:

        def took(limit: Limits, seed: int = seed) -> float:
            return play(
                limit,
                slots=slots,
                calls=calls,
                wanted=wanted,
                spread=0.6,
                seed=seed,
                speed=speed,
            )

        shares.append(took(Limits()) / min(took(Limits(number)) for number in FIXED))
    return fmean(shares)


if __name__ == "__main__":
    print("| Server | slots | wanted |", *(f"{calls} calls |" for calls in CALLS))  # noqa: T201
    print("| --- | --- | --- |", "--- |" * len(CALLS))  # noqa: T201
    kinds = {"alike": equally_fast, "two cores": on_two_cores, "faster alone": better_alone}
    for (name, speed), slots, wanted in product(kinds.items(), SLOTS, (8, 400)):
        cells = [
            f"{mean_share(slots=slots, calls=calls, wanted=wanted, speed=speed):.2f} |"
            for calls in CALLS
        ]
        print(f"| {name} | {slots} | {wanted} |", *cells)  # noqa: T201
