"""For the tests of a tape's file: a small tape, lines with sums that fit, other processes."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmsim_lab.tape import Tape, verify
from llmsim_lab.tape.recorder import LiveRecorder
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message

__all__ = ["LATE", "MANIFEST", "add_run", "ask", "begun", "findings", "hear", "lines_of"]
__all__ += ["make_small", "program", "record", "run_program", "tell"]

MANIFEST: dict[str, Any] = {"kind": "counter", "package": "0", "config": {}, "prompts": {}}
MANIFEST |= {"given": [], "llm": None, "model": None}
FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]


def record(turn: int, *calls: int | None) -> tuple[int, bytes]:
    """Return a turn as a recorder takes it."""
    named = [["ok", [*calls]]] if calls else []
    empty = {"interventions": [], "planned": [], "by_code": [], "noted": {}, "became": {}}
    value = {"turn": turn, "state": {}, "seconds": 0, "calls": named, "story": [], **empty}
    return turn, f',"record":{json.dumps(value)},"row":{{}}'.encode()


def ask(
    recorder: LiveRecorder, text: str, *, attempt: int = 1, model: str = "m", **outcome: Any
) -> int:
    """Ask for an answer as a call of a turn does; returns its number on the tape."""
    site, messages = CallSite(component="agent", agent="Ann"), (Message("user", text),)
    asked = ChatRequest(model=model, messages=messages, site=site, attempt=attempt)
    entry, given = recorder.find(asked), {"reply": ChatReply(text="yes"), **outcome}
    kept = entry.attempt
    if kept is None:
        kept = Attempt(request=entry.request, seconds=0.5, **given)
        recorder.keep(entry, kept)
    assert kept.number is not None
    return kept.number


LATE: dict[str, Any] = {"reply": None, "reason": "timeout", "detail": "late"}


def begun(tape: Tape) -> LiveRecorder:
    """Begin the first turn of a new run."""
    recorder = LiveRecorder(tape, tape.add_run(MANIFEST, name="small", first=record(0)))
    recorder.begin_turn(1)
    return recorder


def add_run(tape: Tape, *, turns: int = 1, **of: Any) -> int:
    """Record a run of a call and a turn each; returns its number."""
    first = of.get("fork_turn") or 0
    run = tape.add_run(MANIFEST, name="small", first=record(first), **of)
    recorder = LiveRecorder(tape, run)
    for turn in range(first + 1, first + turns + 1):
        recorder.begin_turn(turn)
        recorder.commit_turn(*record(turn, ask(recorder, f"{run}.{turn}")))
    recorder.close()
    return run


def make_small(path: Path) -> Path:
    """Record run 1, with a second attempt, a forgotten call and a file; its fork; a fork of that.

    All kinds of lines are there. Runs 2 and 3 have ended; their lines stand between each other's.
    """
    with Tape(path) as tape:
        recorder = begun(tape)
        recorder.end(None)
        recorder.outside("file", {"name": "a.csv"}, result=[1, 2.5, None])
        numbers = ask(recorder, "one", **LATE, retry=True), ask(recorder, "one", attempt=2)
        recorder.commit_turn(*record(1, *numbers))
        recorder.begin_turn(2)
        ask(recorder, "two", attempt=2, **LATE)
        recorder.restart_turn()
        recorder.begin_turn(2)
        recorder.commit_turn(*record(2, ask(recorder, "two")))
        recorder.close()
        second = add_run(tape, verb="fork", parent=1, fork_turn=1)
        third = add_run(tape, verb="fork", parent=second, fork_turn=2)
        LiveRecorder(tape, second).describe(MANIFEST | {"code": {"long": "x" * 201}})
        for run in (third, second):
            LiveRecorder(tape, run).end("done")
    return path


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a tape, each with its end."""
    return path.read_bytes().splitlines(keepends=True)


def findings(path: Path) -> list[str]:
    return [str(finding) for finding in verify(path)]


def _command(code: str, arguments: tuple[object, ...]) -> list[str]:
    head = f"import sys\nsys.path[:0] = {FOLDERS}\n"
    return [sys.executable, "-W", "error", "-c", head + textwrap.dedent(code), *map(str, arguments)]


@contextmanager
def program(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start code in a process of its own, which talks by its pipes, and is killed at the end."""
    command = _command(code, arguments)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def tell(process: subprocess.Popen[str], line: str = "go\n") -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def run_program(code: str, *arguments: object, code_at_end: int = 0) -> str:
    """Run code in a process of its own, which ends with a code; return what it printed."""
    command = _command(code, arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == code_at_end, done.stderr
    return done.stdout
