"""Each way to read a tape, and to continue one, as steps of a case."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path

from faults_kit import Step

from llmsim_lab.cli import main
from llmsim_lab.errors import LabError
from llmsim_lab.lab import Lab, PromptViewer, RateChart
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.llm.asked_again import ask_again, recorded_model
from llmsim_lab.run import fork, load, replay, resume
from llmsim_lab.run.recorded import page
from llmsim_lab.tape import Tape, repair, verify

__all__ = ["CONTINUE", "LARGE", "READ", "command", "steps_of"]

Verb = Callable[[Path], object]


def command(*arguments: object) -> str:
    """Run a command line; an exception that is not for its user is raised."""
    # Bytes, as a terminal gets them: as a text they may be four times as long.
    written = BytesIO()
    output = TextIOWrapper(written, "utf-8", write_through=True)
    sys.argv = ["llmsim-lab", *map(str, arguments)]
    with redirect_stdout(output), redirect_stderr(output), suppress(SystemExit):
        main()
    assert b"Traceback" not in written.getvalue()
    return written.getvalue().decode()


def client() -> LLMClient:
    config = LLMConfig(model="s", retry_wait_s=0, wait_for_server_s=0)
    return LLMClient(config, ScriptedBackend(lambda _: "no JSON"))


def frames(path: Path) -> None:
    with Tape(path, read_only=True) as tape:
        tape.turns_frame()
        tape.calls_frame()


def asked_again(path: Path) -> None:
    with Tape(path, read_only=True) as tape:
        asyncio.run(ask_again(tape, client(), number=3, seed=1))
        recorded_model(tape)


def opened(window: Lab | PromptViewer | RateChart) -> None:
    """Show a window without a browser, and close it: ipywidgets keep it till then."""
    try:
        window.static_text()
        window.static_html()
    finally:
        window.close()


LARGE: Mapping[str, Verb] = {
    "verify": verify,
    "ls": lambda path: command("tape", "ls", path),
    "show": lambda path: command("tape", "show", path),
    "diff": lambda path: command("tape", "diff", path, 1, 2),
    "page": lambda path: page(path, path.with_suffix(".html")),
    "Lab": lambda path: opened(Lab(path)),
    "turns_frame": lambda path: Tape(path, read_only=True).turns_frame(),
}
"""What is done with a tape before it is known to be sound, however large it is."""

READ: Mapping[str, Verb] = {
    **LARGE,
    "tree": lambda path: Tape(path, read_only=True).tree(),
    "show a turn": lambda path: command("tape", "show", path, "--turn", 1),
    "view": lambda path: command("view", path, "-o", path.with_suffix(".html")),
    "PromptViewer": lambda path: opened(PromptViewer(path)),
    "RateChart": lambda path: opened(RateChart(path)),
    "compare": lambda path: Tape(path, read_only=True).compare(1, 2),
    "load": lambda path: load(path).decisions(),
    "replay": replay,
    "verify --ask": asked_again,
    "frames": frames,  # last, since pandas keeps the memory of its columns
}

CONTINUE: Mapping[str, Verb] = {
    "fork": lambda path: fork(path, 1, turn=1, llm_client=client(), to=path.with_name("f.tape")),
    "copy": lambda path: Tape(path, read_only=True).copy([1], path.with_name("c.tape")),
    "repair": lambda path: repair(path, path.with_name("r.tape")),
    "resume": lambda path: resume(path, 1, llm_client=client()).run(1, progress=False),
    "prune": lambda path: Tape(path).prune([1]),
}
"""These write: each has a copy of its own."""


def steps_of(verbs: Mapping[str, Verb], ends: Mapping[str, str] | None = None) -> dict[str, Step]:
    """Return steps that read ``x.tape``, which must not change by it.

    Args:
        verbs: what is done.
        ends: how it ends, by the verb's name: a pattern of an error, or ``done``; else in either.
    """
    ends = ends or {}
    return {name: partial(_step, verb, name, ends.get(name, "")) for name, verb in verbs.items()}


def _step(verb: Verb, name: str, end: str, folder: Path) -> None:
    path = folder / "x.tape"
    before = path.read_bytes()
    if name in CONTINUE:
        path = folder / f"{name}.tape"
        path.write_bytes(before)
    ending = "done"
    try:
        verb(path)
    except LabError as error:
        ending = f"{type(error).__name__}: {error}"
    assert re.match(end, ending), ending
    assert len(ending) < 20_000, "the error is too long to read"
    assert (folder / "x.tape").read_bytes() == before, "the tape was changed"
