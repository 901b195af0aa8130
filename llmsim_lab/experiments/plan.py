"""What an experiment will cost, estimated from what the run itself has cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmsim_lab.calls import CallRecord
from llmsim_lab.experiments.bench import Bench, Sample, Stage

__all__ = ["Plan", "Progress", "calls_of", "duration", "plan_of", "schedule_of"]

_STAGES: tuple[Stage, ...] = ("agent", "validator", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is still to be played, and about what it takes.

    Attributes:
        samples: how many are to be played.
        done: how many were played before.
        calls: model calls, retries not counted; fewer where the validator rejects an action.
        tokens: prompt and reply tokens; None where the run recorded none.
        seconds: time in the model; likewise.
        recorded_calls: how many recorded calls the estimate comes from.
        model: the model that answered those.
        storage: where the results will be.
    """

    samples: int
    done: int
    calls: int
    tokens: float | None
    seconds: float | None
    recorded_calls: int
    model: str
    storage: str = ""

    def __str__(self) -> str:
        already = f" ({self.done} done already)" if self.done else ""
        work = f"{self.samples} samples to play{already}: {self.calls} model calls"
        if not self.samples:
            return f"Nothing left to play{already}."
        if self.seconds is None:
            cost = "; the run has no recorded calls of these kinds to estimate the time from"
        else:
            tokens = f"{_rounded(self.tokens):,} tokens and " if self.tokens is not None else ""
            cost = (
                f", about {tokens}{duration(self.seconds)}. An "
                f"estimate: the mean of this run's {self.recorded_calls} recorded calls "
                f"({self.model}), retries extra"
            )
        where = f" {self.storage}" if self.storage else ""
        return f"{work}{cost}.{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an experiment is.

    Attributes:
        done: samples played, those that failed included.
        total: samples in all.
        failed: samples that failed.
        latest: the one just played.
        seconds: how long it took.
    """

    done: int
    total: int
    failed: int
    latest: Sample
    seconds: float


def schedule_of(
    variants: Sequence[str], turns: Sequence[int], samples: int, *, seed: int, shared: bool
) -> list[Sample]:
    """Return every sample in the order of playing.

    Args:
        variants: their names.
        turns: the turns to play again.
        samples: of each variant at each turn.
        seed: the samples' seeds follow it.
        shared: whether all turns have the same seeds.
    """
    schedule: list[Sample] = []
    for sample in range(1, samples + 1):
        for place, turn in enumerate(turns):
            own = sample if shared else (sample - 1) * len(turns) + place + 1
            schedule += [
                Sample(
                    number=len(schedule) + number,
                    variant=variant,
                    turn=turn,
                    sample=sample,
                    seed=seed + own,
                )
                for number, variant in enumerate(variants, 1)
            ]
    return schedule


def plan_of(bench: Bench, samples: Iterable[Sample], *, done: int, storage: str = "") -> Plan:
    """Return the cost of samples as the run's own recorded calls let one expect it.

    Per component, the mean tokens and seconds of the run's calls, first and second attempts
    together, times the number of calls. Calls are counted as if every action were accepted.
    """
    samples = list(samples)
    recorded = _recorded(bench)
    counts = dict.fromkeys(_STAGES, 0)
    for turn, times in Counter(sample.turn for sample in samples).items():
        for stage, calls in calls_of(bench, turn).items():
            counts[stage] += calls * times
    needed = [stage for stage in _STAGES if counts[stage]]
    tokens = seconds = None
    if all(recorded[stage] for stage in needed):
        tokens = sum(counts[s] * _mean(c.tokens for c in recorded[s]) for s in needed) or None
        seconds = sum(counts[s] * _mean(c.seconds for c in recorded[s]) for s in needed)
    used = [call for stage in needed for call in recorded[stage]]
    return Plan(
        samples=len(samples),
        done=done,
        calls=sum(counts.values()),
        tokens=tokens,
        seconds=seconds,
        recorded_calls=len(used),
        model=", ".join(dict.fromkeys(call.request.model for call in used)),
        storage=storage,
    )


def calls_of(bench: Bench, turn: int) -> dict[Stage, int]:
    """Return how many calls a sample of a turn makes at most, by component."""
    subjects = len(bench.subjects(turn))
    counts: dict[Stage, int] = dict.fromkeys(_STAGES, 0)
    counts[bench.stage] = subjects
    if bench.only_component:
        return counts
    if bench.stage == "agent" and hasattr(bench.simulation.validator, "llm_client"):
        counts["validator"] = subjects
    if bench.stage != "engine":
        actions = bench.turn(turn).actions
        played = set(bench.subjects(turn))
        # An action that names its rate is taken at its word; the others' marks are as recorded.
        counts["engine"] = sum(
            action.proposed_rate is None and (action.agent_name in played or action.validated)
            for action in actions
        )
    return counts


def _recorded(bench: Bench) -> dict[Stage, list[CallRecord]]:
    calls: dict[Stage, list[CallRecord]] = {stage: [] for stage in _STAGES}
    for chain in bench.simulation.chains:
        for stage in _STAGES:
            if chain.component == stage and chain.call is not None:
                calls[stage].append(chain.call)
    return calls


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _rounded(count: float) -> int:
    """Two figures are all that an estimate has."""
    return int(float(f"{count:.1e}")) if count >= 100 else round(count)


def duration(seconds: float) -> str:
    """Write a time for people: 42 s, 7 min, 2.5 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 5_940:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"
