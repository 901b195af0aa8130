"""Hand-ins and players for the tests of lessons."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, Self

from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend, data_path
from llmsim_lab.lessons import ProcessLimits, _child
from llmsim_lab.lessons.limits import HandInFault, request_line, result_of
from llmsim_lab.tape import RunInfo

WORLD = data_path("templates/contract_net.py")


def cell(source: str | list[str], kind: str = "code", tags: tuple[str, ...] = ()) -> dict[str, Any]:
    made: dict[str, Any] = {"cell_type": kind, "source": source, "metadata": {}}
    if tags:
        made["metadata"] = {"tags": list(tags)}
    return made | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def write_notebook(path: Path, *cells: dict[str, Any]) -> None:
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    path.write_text(json.dumps(content))


def model(name: str) -> LLMClient:
    reply = {"reasoning": "so", "confidence": 0.5, "bid": True, "sure": 70}
    return LLMClient(LLMConfig(model=name), ScriptedBackend(lambda request: reply))


class SameProcess:
    """Does what ``LimitedProcess`` does, over the same lines, but here and without limits."""

    has_left_network = False

    def __init__(
        self, folder: Path, limits: ProcessLimits, *, file: str = "", tasks: int = 1
    ) -> None:
        self.alive = True
        self.ends_at_once = False
        self.begun = 0
        self.asked_for = tasks
        self._folder = folder
        self._file = file
        self._tasks = _child.tasks_of(file) | {"cell": self._run_cell}
        self._names: dict[str, Any] = {}
        self._told: Any = None
        """What it says of its answers by itself, after a cell such as ``TELL 5``."""
        STARTED.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.alive = False

    def begin_task(self) -> None:
        self.begun += 1

    def ask(self, task: str, **arguments: object) -> Any:
        if self.ends_at_once:
            raise HandInFault("its process ended")
        line = request_line({"do": task, **arguments})
        if task == "answers" and self._told is not None:
            return self._told
        if task == "replay":
            # Each process imports the hand-in's world anew.
            sys.modules.pop("talks", None)
        with chdir(self._folder):
            reply = _child.reply_to(line, self._tasks, self._file)
        return result_of(_child.line_of(reply))

    def _run_cell(self, source: str) -> None:
        if source == "END":
            self.alive = False
            raise RuntimeError("its process ended")
        if source.startswith("TELL "):
            self._told = json.loads(source.removeprefix("TELL "))
            return
        exec(source, self._names)


STARTED: list[SameProcess] = []
"""Emptied by ``same_process`` before each test."""


TALKS = '''"""One player says yes or no."""
from llmsim_lab import Ask, Reply, Run, State


class Word(Reply):
    bid: bool


class Talk(State):
    yes: int = 0


class Talks(Run[Talk]):
    loud: bool = False

    async def turn(self, state: Talk, ask: Ask) -> Talk:
        word = await ask("Ann", Word, "Yes?")
        return Talk(yes=state.yes + word.bid)
'''


def recorded(
    seed: int | None = 0,
    *,
    arm: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    prompts: Sequence[str] = ("0a1b2c3d9",),
    code: str = "as handed out",
    verb: Any = "run",
    outcome: str | None = "done",
) -> RunInfo:
    """Return a run of two turns as a tape has it; what differs in all of one arm is left out."""
    own = {"seed": seed, "replicate": seed, "name": f"run {seed}", "llm": {"seed": seed}}
    manifest = {
        "kind": "talks:Talks",
        "seed": seed,
        "config": {"turns": 2, **own, **(arm or {})},
        "llm": {"model": "auto", "seed": seed, **(settings or {})},
        "model": {"name": "small", "digest": "d1", **(model or {})},
        "prompts": {f"ask {n}": {"digest": digest} for n, digest in enumerate(prompts)},
        "code": {"file": code},
    }
    return RunInfo(
        id=1, name="", verb=verb, started="", outcome=outcome, turns=2, calls=2, manifest=manifest
    )
