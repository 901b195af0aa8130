"""The line that says how far a run is: its words, where it appears, that nothing is left of it."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import answer, make_simulation
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from llmsim_lab.llm._scope import InFlight, scoped
from llmsim_lab.run import _progress
from llmsim_lab.run._progress import ProgressLine
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import CallSite, ChatRequest, Message


def make_request(agent: str, *, model: str = "m") -> ChatRequest:
    return ChatRequest(
        model=model,
        messages=(Message(role="user", content="?"),),
        site=CallSite(component="agent", agent=agent, turn=1),
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_progress, "time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def line(clock: Clock, shown: list[str]) -> ProgressLine:
    return ProgressLine(shown.append, unit="turn", number=3, last=8)


# What it says


def test_it_names_who_is_waited_for_or_counts_them(line: ProgressLine) -> None:
    requests = [make_request(name) for name in ("Aland", "Borduria", "Syldavia")]
    line.began(requests[0])
    assert line.text == "turn 3 of 8 · waiting for agent of Aland · 0 s so far"
    for request in requests[1:]:
        line.began(request)
    line.ended(requests[0])
    assert line.text == "turn 3 of 8 · waiting for 2 answers · 0 s so far"


def test_the_time_left_follows_from_the_mean_turn(line: ProgressLine, clock: Clock) -> None:
    clock.now = 72
    assert line.text == "turn 3 of 8 · 72 s so far"
    clock.now = 0
    for seconds in (100, 10, 13):
        clock.now += seconds
        line.advance()
    assert line.text == "turn 6 of 8 · 2 min left"
    line.advance()
    line.advance()
    line.advance()
    assert line.text == "turn 8 of 8 · 0 s left"


def test_a_name_cannot_write_to_the_terminal(line: ProgressLine) -> None:
    line.began(make_request("A\x1b[2Jland" + "x" * 99))
    named = "agent of A[2Jland" + "x" * 22 + "…"
    assert line.text == f"turn 3 of 8 · waiting for {named} · 0 s so far"


def test_while_a_person_is_asked_the_line_is_gone(line: ProgressLine, shown: list[str]) -> None:
    line.say(line.text)
    line.began(make_request("Ann", model="human"))
    assert shown == ["turn 3 of 8 · 0 s so far", ""]


def test_a_screen_that_fails_ends_no_run() -> None:
    def broken(text: str) -> None:
        raise BrokenPipeError(text)

    ProgressLine(broken, unit="turn", number=1, last=1).say("turn 1")


# On a terminal


class Terminal(io.StringIO):
    """A stream that is a terminal, on which a test can wait for words."""

    def isatty(self) -> bool:
        return True

    async def has(self, pattern: str) -> None:
        while not re.search(pattern, self.getvalue()):  # noqa: ASYNC110 - a stream has no event to wait for
            await asyncio.sleep(0)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The standard error, a terminal, where lines appear at once."""
    stream = Terminal()
    # pytest puts its own stream in the place of sys.stderr after this.
    around = SimpleNamespace(stderr=stream, stdout=sys.stdout, modules=sys.modules)
    monkeypatch.setattr(_progress, "sys", around)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(_progress, "_PATIENCE_S", 0)
    monkeypatch.setattr(_progress, "_TICK_S", 0)
    return stream


def waiting_run(terminal: Terminal) -> Simulation:
    """A run whose agent answers when the line says that it is waited for."""

    async def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "agent":
            await terminal.has(rf"turn {request.site.turn}( of \d)? · waiting for agent of Aland")
        return answer(request)

    return make_simulation(reply, names=("Aland",))


ERASED = f"\r{' ' * 99}\r"


def test_run_says_what_it_waits_for_and_leaves_nothing(terminal: Terminal) -> None:
    waiting_run(terminal).run(2)
    written = terminal.getvalue()
    assert "turn 1 of 2 · waiting for agent of Aland · 0 s so far" in written
    assert "\n" not in written
    assert written.endswith(ERASED)


async def test_arun_has_it_too(terminal: Terminal) -> None:
    simulation = waiting_run(terminal)
    await simulation.arun(1)
    assert "turn 1 of 1 · waiting" in terminal.getvalue()


def _by_argument(run: Simulation, _: pytest.MonkeyPatch) -> None:
    run.run(1, progress=False)


def _by_environment(run: Simulation, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("LLMSIM_PROGRESS", "0")
    run.run(1)


def _by_a_pipe(run: Simulation, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Terminal, "isatty", lambda _: False)
    run.run(1)


def _by_being_done_at_once(run: Simulation, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_progress, "_PATIENCE_S", 60)
    run.run(2)


def _by_a_watch(run: Simulation, _: pytest.MonkeyPatch) -> None:
    with scoped(watch=InFlight()):
        run.run(1)


@pytest.mark.parametrize(
    "silent", [_by_argument, _by_environment, _by_a_pipe, _by_being_done_at_once, _by_a_watch]
)
def test_it_is_silent_on_request_and_where_nobody_looks(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    silent: Callable[[Simulation, pytest.MonkeyPatch], None],
) -> None:
    async def reply(request: ChatRequest) -> Any:
        for _ in range(50):
            await asyncio.sleep(0)
        return answer(request)

    silent(make_simulation(reply, names=("Aland",)), monkeypatch)
    assert terminal.getvalue() == ""


async def test_two_runs_at_once_share_one_terminal(terminal: Terminal) -> None:
    both = [waiting_run(terminal) for _ in range(2)]
    await asyncio.gather(*(run.arun(1) for run in both))
    assert terminal.getvalue().endswith(ERASED)


# In a notebook

TESTS = Path(__file__).resolve().parents[1]

SET_UP = f"""
import asyncio, sys
sys.path.insert(0, {str(TESTS)!r})
from builders import answer, make_simulation
from llmsim_lab.run import _progress
_progress._PATIENCE_S = _progress._TICK_S = 0

async def reply(request):
    for _ in range(50):
        await asyncio.sleep(0)
    return answer(request)
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingKernelClient]:
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    manager, client = start_new_kernel(cwd=str(tmp_path))
    try:
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.process
def test_in_a_notebook_it_is_an_output_that_ends_empty_and_only_for_a_person(
    kernel: BlockingKernelClient,
) -> None:
    def outputs(code: str, *, by_hand: bool) -> list[str]:
        seen: list[str] = []

        def hook(message: dict[str, Any]) -> None:
            if message["msg_type"] in ("display_data", "update_display_data", "stream", "error"):
                seen.append(f"{message['msg_type']}: {message['content']}")

        kernel.execute_interactive(code, output_hook=hook, allow_stdin=by_hand, timeout=60)
        return seen

    assert outputs(SET_UP, by_hand=True) == []
    run = "make_simulation(reply, names=('Aland',)).run(2);"
    assert outputs(run, by_hand=False) == []  # as nbconvert, nbval and papermill do
    for code in (run, f"await {run.replace('.run', '.arun')}"):
        seen = outputs(code, by_hand=True)
        assert [text.partition(":")[0] for text in seen[:2]] == [
            "display_data",
            "update_display_data",
        ]
        assert "turn 1 of 2 · waiting for agent of Aland · 0 s so far" in seen[0] + seen[1]
        assert "{'text/plain': ''}" in seen[-1]
