"""``llmsim-lab tournament``, ``lesson`` and ``grade``: hand-ins that play and are judged."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import active_children, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from llmsim_lab._util.tables import csv_text
from llmsim_lab._util.text import counted
from llmsim_lab.cli._output import errors, open_folder, open_results, say
from llmsim_lab.cli._playing import import_file, world_from
from llmsim_lab.cli._run import named_values
from llmsim_lab.lessons import ProcessLimits, grade, make_lesson, tournament
from llmsim_lab.lessons.grading import HAND_IN, check_apart
from llmsim_lab.lessons.grading import RESULTS as RESULTS_OF_GRADING
from llmsim_lab.lessons.limits import stopping
from llmsim_lab.lessons.round_robin import RESULTS as RESULTS_OF_TOURNAMENT
from llmsim_lab.run.registry import file_of

_MATCH = ProcessLimits()
_LOOK_S = 0.2
_LONGEST_END_S = 10.0


def play_tournament(
    players: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A Python file each, with a function.")
    ],
    world: Annotated[
        str, typer.Option(metavar="FILE.py:CLASS", help="A world that asks two players.")
    ],
    rounds: Annotated[int, typer.Option(min=1, help="Turns of a match.")] = 50,
    seeds: Annotated[int, typer.Option(min=1, help="How often all pairs play.")] = 20,
    also: Annotated[
        list[str] | None, typer.Option(help="Who plays besides: random, rule; repeatable.")
    ] = None,
    self_play: Annotated[bool, typer.Option("--self-play", help="Each also plays itself.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="both_defect=2: a parameter of the world; repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Results, tapes and pages.")] = (
        Path("out/tournament")
    ),
    parallel: Annotated[
        int | None,
        typer.Option(min=1, max=1_000, help="Pairs at once; as many as there are cores."),
    ] = None,
    cpu: Annotated[float, typer.Option(help="Seconds of the processor a match.")] = _MATCH.cpu_s,
    wall: Annotated[float, typer.Option(help="Seconds a match.")] = _MATCH.wall_s,
    memory: Annotated[int, typer.Option(help="MB of memory.")] = _MATCH.memory_mb,
) -> None:
    """Let functions of several files play each other, all pairs; write a table and pages.

    Each runs in a process with limits; one that makes a mistake is out, with its error. The same
    command again plays only what is missing or was changed.
    """
    kind = world_from(world)
    file = file_of(kind)
    assert file is not None
    results = open_results(out, "tournament", *RESULTS_OF_TOURNAMENT, source=players)
    # In the processes below, files of this folder must not hide Python's own modules.
    os.environ["PYTHONSAFEPATH"] = "1"
    with _workers(parallel, file) as executor:
        standings = tournament(
            players,
            kind,
            rounds=rounds,
            seeds=seeds,
            also=also or (),
            self_play=self_play,
            folder=out,
            limits=ProcessLimits(cpu_s=cpu, wall_s=wall, memory_mb=memory),
            executor=executor,
            report=say,
            parameters=named_values(set_ or ()),
        )
    try:
        say(standings)
    finally:
        # Also where nobody reads what is printed, as in: llmsim-lab tournament ... | head
        table = results.write("standings.csv", csv_text(standings.to_frame()).encode())
        page = standings.page(out)
    say(f"Written: {page}, {table}")


class _Worker(SpawnProcess):
    """A process that no Ctrl-C reaches: it would print a traceback. ``_workers`` ends it."""

    def start(self) -> None:
        """Start with SIGINT blocked, which a new process has from the one that starts it."""
        if sys.platform == "win32":
            super().start()
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Workers(SpawnContext):
    Process = _Worker


@contextmanager
def _workers(parallel: int | None, file: Path) -> Iterator[Executor]:
    """Start processes that have a world's file, and end them, at once after an error or Ctrl-C."""
    # Spawned: a process that is forked has the threads' locks of this one, and not the threads.
    with ProcessPoolExecutor(
        parallel or os.cpu_count(),
        mp_context=_Workers(),
        initializer=_begin_worker,
        initargs=(file,),
    ) as executor:
        try:
            yield executor
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                say("Stopped. What is done is kept; run it again.", style="red", to=errors)
            executor.shutdown(wait=False, cancel_futures=True)
            _end_workers()
            raise


def _begin_worker(file: Path) -> None:
    stop = threading.Event()
    stopping.set(stop)

    def end(*_: object) -> NoReturn:
        stop.set()
        sys.exit()

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=_end_with_command, args=(stop,), daemon=True).start()
    import_file(file)


def _end_with_command(stop: threading.Event) -> None:
    """End this process once the command is gone: a killed one tells nobody."""
    command = parent_process()
    assert command is not None
    command.join()
    stop.set()
    # In which what this process started is ended.
    time.sleep(_LOOK_S)
    os._exit(1)


def _end_workers() -> None:
    """End the processes, which first end the hand-ins that they play."""
    workers = [process for process in active_children() if isinstance(process, _Worker)]
    ends_at = time.monotonic() + _LONGEST_END_S
    # Several times: the first one ends the pair that is played, and the worker takes the next.
    while any(worker.is_alive() for worker in workers) and time.monotonic() < ends_at:
        for worker in workers:
            worker.terminate()
        time.sleep(_LOOK_S)
    for worker in workers:
        worker.kill()


def lesson(
    source: Annotated[
        Path, typer.Argument(metavar="LESSON.ipynb", help="With solutions, marked as in Otter.")
    ],
    to: Annotated[Path, typer.Option(help="Gets the folders student and teacher.")],
) -> None:
    """Make a student's version of a lesson, a teacher's, and the key of its answers.

    The notebook is run: what it gives to grade_answer is right. Its questions have tolerances,
    answers that are nearly right, and hints, in raw cells.
    """
    open_folder(to, "--to")
    key = make_lesson(source, to)
    say(f"{counted(len(key.questions), 'question')}: {', '.join(key.questions)}")
    say(f"Written: {to / 'student'}, which you hand out, and {to / 'teacher'}")


def grade_hand_ins(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder for each hand-in.")],
    key: Annotated[Path | None, typer.Option(help="The lesson's key.")] = None,
    world: Annotated[
        Path | None, typer.Option(metavar="FILE.py", help="What all are to have played.")
    ] = None,
    arms: Annotated[int | None, typer.Option(min=1, help="How many conditions.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many runs of each.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Table and pages.")] = Path("out/grades"),
    parallel: Annotated[
        int | None,
        typer.Option(min=1, max=1_000, help="Hand-ins at once; as many as there are cores."),
    ] = None,
    cpu: Annotated[float, typer.Option(help="Seconds of the processor a notebook.")] = (
        HAND_IN.cpu_s
    ),
    wall: Annotated[float, typer.Option(help="Seconds a notebook.")] = HAND_IN.wall_s,
    memory: Annotated[int, typer.Option(help="MB of memory.")] = HAND_IN.memory_mb,
) -> None:
    """Judge hand-ins: verify and replay tapes, compare runs, run notebooks, compare answers.

    Code of a hand-in runs in a process with limits and no network, in a copy of its folder.
    """
    check_apart(out, folder)
    open_results(out, "grades", *RESULTS_OF_GRADING, source=folder)
    limits = replace(
        HAND_IN,
        cpu_s=cpu,
        wall_s=wall,
        memory_mb=memory,
    )
    try:
        grades = grade(
            folder,
            key=key,
            world=world,
            arms=arms,
            seeds=seeds,
            limits=limits,
            parallel=parallel,
        )
    except KeyboardInterrupt:
        say("Stopped. No grades were written; run it again.", style="red", to=errors)
        raise
    try:
        say(grades)
    finally:
        page = grades.write(out)
    say(f"Written: {page}, {out / 'grades.csv'}")
