"""How a study is played: what is checked first, which runs are left, and in which order they go."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import replace

from llmsim_lab._util.checks import item_count, items_of, plain_numbers
from llmsim_lab._util.text import brief, error_text, listed
from llmsim_lab._util.waiting import Listeners
from llmsim_lab.errors import ConfigError, PromptError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.scope import Budget, Purse
from llmsim_lab.run import Run
from llmsim_lab.run.guided import edits_of, leave_out_warnings
from llmsim_lab.run.people import people_of
from llmsim_lab.run.progress import progress_line
from llmsim_lab.run.terminal import ask_people_here
from llmsim_lab.study._prices import Prices
from llmsim_lab.study._setup import StudySetup
from llmsim_lab.study.design import PromptEdits
from llmsim_lab.study.playing import Job, Key, StudyRun, Task, as_unit, copy_runs, play_all

logger = logging.getLogger(__name__)

_MOST_ARMS_IN_LINE = 6
"""The line of progress counts the runs of each arm where there are so many: more would not fit."""
_RUNS_AT_ONCE = 8
"""A local server takes a few requests at once; more runs would only hold more states in memory."""
_MOST_TURNS_ON_TRIAL = 10
"""How long a trial waits for a second kind of question, for which an edit must name its prompt."""


# --- before anything is played -------------------------------------------------------------------


def find_terminal_for_people(setup: StudySetup) -> None:
    """Let people answer at this terminal where no seat has a stand-in and nothing else asks them.

    Raises:
        ConfigError: nobody can answer here, so that each of their runs would fail.
    """
    for arm in setup.seats_of_people:
        trial = setup.trial(setup.arms[arm])
        # What listens to the study, such as a room, may give up on a person who has a stand-in.
        if not any(person.stand_in for person in people_of(trial)):
            ask_people_here(trial)


def check_executor(
    setup: StudySetup,
    executor: object,
    budget: Budget | None,
) -> None:
    """Raise ConfigError for what is not an executor, or where the study cannot be played in one."""
    if not isinstance(executor, Executor):
        # Such as Dask's client itself, which has submit() too.
        raise ConfigError(
            f"executor={brief(executor)} is not a concurrent.futures.Executor; give "
            "ProcessPoolExecutor() or Dask's client.get_executor()"
        )
    if budget is not None:
        raise ConfigError("executor= takes no budget=, since workers do not know of each other")
    if setup.seats_of_people:
        [arm, *_] = setup.seats_of_people
        raise ConfigError(
            "executor= plays in other processes, where no person can answer, and arm "
            f"{arm!r} asks people; leave it out"
        )


def keys_of(setup: StudySetup, only: object) -> list[Key]:
    """Return the runs that a caller names, each by its arm and unit.

    Raises:
        ConfigError: they are no pairs, or the study does not have such an arm or unit.
    """
    only = plain_numbers(only)
    right = (
        f"a list of runs, each an arm and a {setup.unit_name}: only=[({setup.reference!r}, "
        f"{setup.units[0]!r})]"
    )
    pairs = items_of("only", only, object, right)
    keys: list[Key] = []
    for pair in pairs:
        is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and item_count(pair) == 2
        if not is_pair or not isinstance(pair[0], str):
            raise ConfigError(
                f"only={brief(only, 120)} must be a list of runs, each an arm and a "
                f"{setup.unit_name}: only=[({setup.reference!r}, {setup.units[0]!r})]"
            )
        arm, unit = pair
        key = (arm, as_unit(unit))
        keys.append(key)
        if key not in setup.files.jobs:
            raise ConfigError(
                f"only: there is no run of arm {brief(arm)} with {setup.unit_name} {brief(unit)}; "
                f"arms are {listed(list(setup.arms))}, {setup.unit_name}s {brief(setup.units, 200)}"
            )
    return keys


def check_models(setup: StudySetup) -> None:
    """Raise ConfigError where an arm may ask a model and has none, or a wrong one."""
    for arm in setup.arms.values():
        if setup.lacks_model(arm):
            raise ConfigError(
                f"{setup.world.cls.__name__} may ask a model, and the study has none: llm_client="
                "connect('auto'), vary={'model': [...]}, players='random' or 'rule'"
            )


async def _try_edits(setup: StudySetup, arms: Container[str]) -> None:
    """Play turns by chance with each edited prompt, since only a turn shows what is wrong with it.

    Args:
        setup: the study.
        arms: those that are played.

    Raises:
        ConfigError: a prompt has no such name, an edit gives no prompt, or there are several
            prompts and the edit does not say which it is of.
    """
    for arm in setup.arms.values():
        if arm.name not in arms:
            continue
        for place, wording in enumerate(setup.world.wordings(arm)):
            run = setup.trial(arm, place)
            edits = edits_of(run)
            if not isinstance(edits, PromptEdits):
                # The arm has the world's own prompts.
                continue
            try:
                await _play_until_edited(setup, run, edits)
                edits.check()
            except PromptError as error:
                raise ConfigError(f"arm {arm.name!r}: {error}") from error
            except Exception as error:  # noqa: BLE001 - a model may answer what chance does not
                logger.debug("%s cannot be played by chance: %r", setup.name, error)
                continue
            if not edits.changed:
                setup.warn(
                    "PROMPT_UNCHANGED",
                    arm=arm.name,
                    wording=wording,
                    reason="the edited prompts are those that the world has",
                )


async def _play_until_edited(
    setup: StudySetup,
    run: Run,
    edits: PromptEdits,
) -> None:
    """Play turns by chance until each prompt that is edited was asked with."""
    first_job = next(iter(setup.files.jobs.values()))
    begun_at = run.turn_number
    # A situation is continued by one turn, a run by all of its turns.
    while run.turn_number < first_job.end_turn and not run.done(run.state):
        # A named prompt may come in the last turn. A second kind of question, for which an edit of
        # all prompts is refused, comes early or never.
        is_short = run.turn_number - begun_at < _MOST_TURNS_ON_TRIAL
        may_see_another_kind = edits.is_of_all and is_short
        if not edits.missing and not may_see_another_kind:
            return
        await _by_chance(run).step()


def _by_chance(run: Run) -> Run:
    """Let chance answer in a trial run, except where a rule or a function does."""
    players = {"*": "random", **run.players}
    # Rules and functions stay: their answers decide what is asked next.
    for name, player in players.items():
        if player == "model":
            players[name] = "random"
    run.players = players
    # Each warning comes when the run is played.
    leave_out_warnings(run)
    return run


# --- playing -------------------------------------------------------------------------------------


def jobs_left(setup: StudySetup, keys: Container[Key]) -> list[Job]:
    """Return those jobs among ``keys`` that are not done."""
    entries = setup.files.entries
    return [
        job
        for key, job in setup.files.jobs.items()
        if key in keys and entries[key].status != "done"
    ]


async def play_study(
    setup: StudySetup,
    listeners: Listeners,
    keys: Collection[Key],
    *,
    parallel: int | None,
    executor: Executor | None,
    budget: Budget | None,
    progress: bool,
) -> None:
    """Play what is left of a study; see ``Study.arun``.

    Args:
        setup: the study.
        listeners: are notified as each run ends.
        keys: the runs that are to be played.
        parallel: how many runs at once; None for as many as make sense.
        executor: where; None for this process.
        budget: what may be spent on calls.
        progress: whether a line says how far the study is.
    """
    files = setup.files
    player = files.player
    files.read_progress()
    other_tapes = files.others
    if other_tapes:
        setup.warn(
            "OTHER_RUNS",
            folder=files.folder,
            tapes=other_tapes,
            reason="they are of other settings, seeds or code, and do not count",
        )
    if executor is None:
        check_models(setup)
    left = jobs_left(setup, keys)
    # Before the first call: a wrong name would be found out after hours.
    await _try_edits(setup, {job.arm for job in left})
    if budget is not None:
        player.purse = Purse(budget)
    most = parallel
    if most is None and executor is None:
        most = _RUNS_AT_ONCE
    player.at_once = asyncio.Semaphore(most or 1)
    wanted = sum(key in keys for key in files.jobs)
    turns_left = Prices(files, setup.source).turns_left(left)
    line = progress_line(
        "run",
        number=wanted - len(left) + 1,
        last=wanted,
        enabled=progress,
        turns=turns_left.total(),
        parts=lambda: _ended_by_arm(setup),
    )
    beginning = [job for job in left if job.arm not in setup.leaders]
    # Arms that continue runs of others follow when these are done.
    following = [job for job in left if job.arm in setup.leaders]
    async with line as advance:

        def take_up(entry: StudyRun) -> None:
            advance()
            _take_up(setup, listeners, entry)

        for jobs in (beginning, following):
            tasks = _ready_tasks(setup, jobs, take_up)
            playing = play_all(player, tasks, most, executor)
            # Closed here and now, so that Ctrl-C does not leave tasks behind.
            async with aclosing(playing) as ended:  # type: ignore[type-var]
                async for entry in ended:
                    take_up(entry)


def _ended_by_arm(setup: StudySetup) -> str:
    """Return how many runs of each arm have ended; nothing where there are many arms."""
    if len(setup.arms) > _MOST_ARMS_IN_LINE:
        return ""
    ended = Counter[str]()
    for entry in setup.files.entries.values():
        if entry.status in ("done", "failed"):
            ended[entry.arm] += 1
    return ", ".join(f"{arm}: {ended[arm]} of {len(setup.units)}" for arm in setup.arms)


def _take_up(
    setup: StudySetup,
    listeners: Listeners,
    entry: StudyRun,
) -> None:
    """Note how a run ended."""
    setup.files.entries[entry.key] = entry
    # After the line above: in between the run would be neither under way nor done.
    setup.files.player.playing.pop(entry.key, None)
    listeners()
    if entry.status == "failed":
        setup.warn(
            "STUDY_RUN_FAILED",
            arm=entry.arm,
            unit=entry.unit,
            turns_played=entry.turns,
            error=entry.error,
        )


def _ready_tasks(
    setup: StudySetup,
    jobs: Iterable[Job],
    take_up: Callable[[StudyRun], None],
) -> Iterator[Task]:
    """Yield jobs with their files; a job that forks a run gets its file when it is taken.

    Args:
        setup: the study.
        jobs: those that are left.
        take_up: gets the entry of a job that failed before it could be played.
    """
    for job in jobs:
        file = setup.files.paths[job.key]
        error = ""
        is_ready = True
        try:
            if setup.source is not None:
                copy_runs(
                    setup.source,
                    [job.run],
                    job.start_turn,
                    file,
                )
            elif job.arm in setup.leaders:
                error = _failure_of_leader(setup, job)
                is_ready = not error and _copy_shared_turns(setup, job)
        except Exception as fault:  # noqa: BLE001 - whatever the error, other jobs are played
            error = error_text(fault)
        if error:
            entry = setup.files.entries[job.key]
            take_up(replace(entry, status="failed", error=error))
        elif is_ready:
            yield job, file


def _failure_of_leader(setup: StudySetup, job: Job) -> str:
    """Return why a job fails whose leader's run has failed; empty where that has not."""
    leader = setup.leaders[job.arm].arm.name
    shared = setup.files.entries[leader, job.unit]
    if shared.status != "failed":
        return ""
    return f"it shares a run with arm {leader!r}, which failed: {shared.error}"


def _copy_shared_turns(setup: StudySetup, job: Job) -> bool:
    """Copy the turns that a job shares with its leader's run; False where that run is not done."""
    files = setup.files
    shared_key = (setup.leaders[job.arm].arm.name, job.unit)
    if files.entries[shared_key].status != "done":
        # A budget was spent, or it was not among those to be played.
        return False
    with Tape(files.paths[shared_key], read_only=True) as tape:
        runs = files.jobs[shared_key].runs_on(tape)
        # Play by play: a job's ``forks`` count on this order.
        numbers = sorted(info.id for info in runs.values())
        copy_runs(
            tape,
            numbers,
            job.start_turn,
            files.paths[job.key],
        )
    return True
