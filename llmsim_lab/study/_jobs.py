"""The jobs of a study, one for each arm and unit, and which arms continue the runs of others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from llmsim_lab._util.checks import as_whole_number, items_of, plain_numbers, whole_number
from llmsim_lab._util.jsontext import dumps, plain
from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape
from llmsim_lab.run import Run
from llmsim_lab.run.registry import is_shipped, sources_digest
from llmsim_lab.study.design import MOST_RUNS, Arm, Play, SharedTurns, World
from llmsim_lab.study.playing import Job, Unit, digest_of
from llmsim_lab.tape import RunInfo


class PlannedUnit(NamedTuple):
    """A seed or a recorded situation, in which each arm is played.

    Attributes:
        unit: the seed, or the recorded situation.
        run: the seed, or the number of the recorded run.
        digest: of what identifies the unit.
        turn: the turn that is continued; 0 for a seed.
    """

    unit: Unit
    run: int
    digest: str
    turn: int = 0


class Leader(NamedTuple):
    """The arm whose runs another one continues.

    Attributes:
        arm: the leading arm.
        shared: the turns that both have in common.
    """

    arm: Arm
    shared: SharedTurns


def leaders_of(
    world: World,
    arms: Iterable[Arm],
) -> dict[str, Leader]:
    """Return, by arm, the arm whose runs it continues; arms with runs of their own are left out.

    Arms that differ only in what is set from outside share each run up to the first turn where
    they differ, so that its calls are made once.
    """
    if world.asks_again:
        return {}
    leaders: dict[str, Leader] = {}
    first_arms: dict[str, Arm] = {}

    def changes_from_outside(arm: Arm) -> int:
        return len(world.interventions(arm))

    # Arms that set the least from outside come first, since others continue their runs.
    for arm in sorted(arms, key=changes_from_outside):
        levels = dict(arm.values)
        levels.pop("interventions", None)
        # The first arm with these levels leads, and shared_turns() of it with itself is None.
        leader = first_arms.setdefault(digest_of(levels), arm)
        shared_turns = world.shared_turns(arm, leader)
        if shared_turns is not None:
            leaders[arm.name] = Leader(leader, shared_turns)
    return leaders


def jobs_of(
    world: World,
    arms: Sequence[Arm],
    units: Sequence[PlannedUnit],
    *,
    samples: int,
    leaders: Mapping[str, Leader],
) -> Iterator[Job]:
    """Yield one job for each arm and unit, unit by unit."""
    digests = _digests_of(world, arms)
    # Unit by unit, so that the runs of a stopped study can be compared in pairs.
    for unit in units:
        for arm in arms:
            leader = leaders.get(arm.name)
            yield _job(
                world,
                arm,
                unit,
                samples=samples,
                leader=leader,
                digests=digests,
            )


def _digests_of(
    world: World,
    arms: Iterable[Arm],
) -> dict[str, str]:
    """Return by arm the digest of all that decides its runs, except the unit."""
    code = ""
    if not is_shipped(world.cls):
        # A digest of the class alone: its file may be the study's own script.
        code = sources_digest(world.cls, Run)
    digests = {}
    for arm in arms:
        # None, 0 and the order are historical: digests in the names of existing files have them.
        spec = [
            world.cls.kind,
            code,
            None,
            world.fixed,
            world.asks_again or world.turns,
            arm.name,
            arm.values,
            0,
        ]
        digests[arm.name] = digest_of(spec)
    return digests


def _job(
    world: World,
    arm: Arm,
    unit: PlannedUnit,
    *,
    samples: int,
    leader: Leader | None,
    digests: Mapping[str, str],
) -> Job:
    """Return the job of an arm in a unit."""
    plays = []
    for wording in range(len(world.wordings(arm))):
        plays += [Play(wording, sample) for sample in range(1, samples + 1)]
    specs = [digests[arm.name], unit.digest]
    start_turn = unit.turn
    end_turn = world.turns
    changes_done = 0
    forks: tuple[int, ...] = ()
    if world.asks_again:
        end_turn = start_turn + 1
        # Each sample continues the same recorded run.
        forks = (unit.run,) * len(plays)
    elif leader is not None:
        start_turn = leader.shared.turn
        changes_done = leader.shared.changes
        # copy_runs() numbers the leader's runs from 1 in the new file, play by play.
        numbers = range(1, len(plays) + 1)
        forks = tuple(numbers)
        # The shared turns decide this run too: if the leader changes, the file must be another.
        specs.append(digests[leader.arm.name])
    return Job(
        arm=arm.name,
        digest=digest_of(specs),
        unit=unit.unit,
        run=unit.run,
        plays=tuple(plays),
        start_turn=start_turn,
        end_turn=end_turn,
        changes_done=changes_done,
        forks=forks,
    )


# --- recorded situations --------------------------------------------------------------------------


def independent_runs(tape: Tape, run: Any) -> list[RunInfo]:
    """Return the runs to ask again.

    Raises:
        ConfigError: the runs are of several worlds, share turns, or have the same seed.
    """
    run = plain_numbers(run)
    if run is None or as_whole_number(run) is not None:
        return [tape.run(run)]
    if isinstance(run, str) and run == "all":
        # A fork shares its first turns with its parent.
        infos = [info for info in tape.runs() if info.parent is None]
    else:
        right = "a run's number, several ([1, 2, 3]), or 'all'"
        infos = [tape.run(number) for number in items_of("run", run, object, right, most=MOST_RUNS)]
    roots = set()
    for info in infos:
        # A fork's line begins with the run that was forked.
        first_number, _ = tape.line(info.id)[0]
        roots.add(first_number)
    seeds = [info.manifest["seed"] for info in infos]
    worlds = {info.manifest["kind"] for info in infos}
    # Forks share their first turns; runs with the same seed have the same random numbers.
    are_independent = len(infos) == len(roots) == len(set(seeds))
    if len(worlds) != 1 or not are_independent:
        raise ConfigError(
            f"runs {[info.id for info in infos]}, of {', '.join(worlds)}, have seeds {seeds} and "
            f"begin as {len(roots)} runs: they are not independent; choose runs of one world with "
            "different seeds that share no turns, as forks do"
        )
    return infos


def situations_of(
    tape: Tape,
    infos: Sequence[RunInfo],
    turns: Sequence[int] | None,
) -> list[PlannedUnit]:
    """Return the turns that recorded runs continued; of these only ``turns``, if given.

    Raises:
        ConfigError: a run did not continue one of ``turns``, or continued none.
    """
    units: list[PlannedUnit] = []
    turns = plain_numbers(turns)
    if turns is not None:
        listed = items_of("turns", turns, object, "a list of turns: turns=[3, 4]")
        turns = [whole_number("a turn", turn) for turn in listed]
    for info in infos:
        digests = _digests_of_situations(tape, info)
        wanted = list(digests)
        missing: list[str] = []
        if turns is not None:
            # In the run's order and each once, whatever the order of ``turns``.
            wanted = [turn for turn in digests if turn in turns]
            missing = [f"turn {brief(turn)}" for turn in turns if turn not in digests]
        if missing or not wanted:
            first = missing[0] if missing else "no turn"
            raise ConfigError(
                f"{first} of run {info.id} was continued by it; {list(digests) or 'none'} were"
            )
        units += [
            PlannedUnit(
                unit=f"{info.id}:{turn}",
                run=info.id,
                digest=digests[turn],
                turn=turn,
            )
            for turn in wanted
        ]
    return units


def _digests_of_situations(
    tape: Tape,
    info: RunInfo,
) -> dict[int, str]:
    """Return a digest for each situation of a run, by the turn that was continued."""
    manifest = dumps(plain(info.manifest))
    # All earlier turns are part of a situation, so that each turn adds to the digest.
    so_far = hashlib.sha256(manifest.encode())
    # The turns before a fork were continued by its parent.
    first_turn = info.fork_turn or 0
    digests: dict[int, str] = {}
    # Without the last turn, which nothing continued.
    for record in tape.turn_records(info.id)[:-1]:
        so_far.update(dumps(record).encode())
        turn = int(record["turn"])
        if turn >= first_turn:
            digests[turn] = so_far.hexdigest()[:16]
    return digests
