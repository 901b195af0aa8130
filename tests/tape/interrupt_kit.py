"""Runs that a Ctrl-C meets at a line of the code, and how they must end."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import filelock
import pytest
from counter_kit import make_counter
from tape_kit import HashBackend, content, hash_client, identity, repeated, steady_config

import llmsim_lab.tape
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run import load, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import plans, verify

__all__ = ["Lines", "assert_ends_well", "begun", "interrupt_a_plan", "interrupt_often"]

FOLDER = str(Path(llmsim_lab.tape.__file__).parent)
TURNS, TIMES = 3, 15


class Lines:
    """Counts the lines of a folder's code that run, and raises KeyboardInterrupt at one of them."""

    def __init__(self, at: int | None = None, *, folder: str = FOLDER) -> None:
        self.ran, self.at, self.folder = 0, at, folder

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.folder):
            return None
        self.ran += event == "line"
        if event == "line" and self.ran == self.at:
            raise KeyboardInterrupt
        return self

    @contextmanager
    def watched(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


def begun(path: Path, backend: HashBackend) -> Simulation:
    client = hash_client(backend, max_concurrency=2)
    return Simulation(steady_config(), llm_client=client, tape=path)


def assert_ends_well(path: Path, run: Simulation, backend: HashBackend, expected: Any) -> None:
    """Play an interrupted run to its end: it is the same, asked nothing twice, and is whole."""
    while run.turn_number < TURNS:
        try:
            asyncio.run(run.arun(TURNS - run.turn_number))
        except TapeError as error:
            assert "nothing is lost" in str(error)  # noqa: PT017 - it may also raise nothing
            run.close()
            run = resume(path, llm_client=run.llm_client)
    assert content(run) == content(expected)
    assert verify(path) == []
    tape = Tape(path, read_only=True)
    assert repeated(tape, run.run_id or 0) == []
    twice = [n for n in Counter(map(identity, backend.requests)).values() if n > 1]
    assert sum(twice) - len(twice) <= 2  # those in flight
    with filelock.FileLock(f"{path}.lock", timeout=0):
        pass


def interrupt_often(folder: Path) -> None:
    """Record runs that a Ctrl-C meets at lines from first to last, and play them to their end."""
    alike, counted = begun(folder / "y.tape", HashBackend(faulty=True)), Lines()
    with counted.watched():
        asyncio.run(alike.arun(TURNS))
    for number in range(TIMES):
        path, backend = folder / f"{number}.tape", HashBackend(faulty=True)
        run = begun(path, backend)
        # Not in the last lines of all, when the run is done.
        part = (number + random.Random(number).random()) / TIMES
        with pytest.raises(KeyboardInterrupt), Lines(1 + int(part * counted.ran * 0.9)).watched():
            asyncio.run(run.arun(TURNS))
        assert_ends_well(path, run, backend, alike)


def interrupt_a_plan(path: Path) -> None:
    """Meet the sixteenth intervention, with which all become a text, at each line in turn."""
    run = make_counter(path, turns=99)
    for turn in range(1, 16):
        run.intervene(turn, {"value": turn})
    line = 0
    while len(run.planned) < 16:
        line += 1
        with suppress(KeyboardInterrupt), Lines(line, folder=plans.__file__).watched():
            run.intervene(16, {"value": 16})
        assert load(path).planned == run.planned
    assert line > 20
