"""The line that says how far a run is: its words, where it appears, that nothing is left of it."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from builders import answer, in_words, make_client, make_simulation
from IPython.display import DisplayHandle

from llmsim_lab._util.text import duration
from llmsim_lab.llm.scope import InFlight, scoped
from llmsim_lab.run import progress
from llmsim_lab.run.progress import ProgressLine, ProgressLog, Work, progress_line
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Study
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
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def line(clock: Clock, shown: list[str]) -> ProgressLine:
    return ProgressLine(shown.append, Work("turn", first=3, last=8))


# What it says


def test_it_names_who_is_waited_for_or_counts_them(line: ProgressLine) -> None:
    requests = [make_request(name) for name in ("Aland", "Borduria", "Syldavia")]
    line.began(requests[0])
    assert line.text == "turn 3 of 8 · waiting for agent of Aland · 0 s so far"
    for request in requests[1:]:
        line.began(request)
    assert line.text == "turn 3 of 8 · waiting for 3 answers · 0 s so far"
    line.asked(make_request("Latveria"))
    assert line.text == "turn 3 of 8 · waiting for 4 answers · 0 s so far"


def test_it_says_what_a_silent_server_does_until_a_piece_of_the_reply_has_come(
    line: ProgressLine,
) -> None:
    request = make_request("Aland")
    line.began(request)
    line.noted(request, "reading about 870 tokens")
    assert line.text == "turn 3 of 8 · agent of Aland: reading about 870 tokens · 0 s so far"
    line.wrote(request, "The")
    assert line.text == "turn 3 of 8 · waiting for agent of Aland · 0 s so far"


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


@pytest.mark.parametrize("turns", [1, 2])
def test_the_time_left_falls_with_the_calls_that_are_left(
    clock: Clock, shown: list[str], turns: int
) -> None:
    log = ProgressLog(shown.append, Work("turn", first=1, last=turns))
    total = 40 * turns
    for turn in range(turns):
        requests = [make_request(f"P{number}") for number in range(40)]
        for request in requests:
            log.asked(request)
        for number, request in enumerate(requests, 1):
            log.began(request)
            clock.now += 5
            log.ended(request)
            done = 40 * turn + number
            assert log.text.startswith(f"turn {turn + 1} of {turns}: {done} of about {total} calls")
            assert log.text.endswith(f"; {duration(5 * (total - done))} left")
            clock.now += 3  # nothing has come since, and the time runs down
            assert log.text.endswith(f"; {duration(max(0, 5 * (total - done) - 3))} left")
            clock.now -= 3
        log.advance(40)


async def test_the_time_left_of_a_study_counts_the_turns_of_the_runs_under_way(
    clock: Clock, shown: list[str]
) -> None:
    log = ProgressLog(shown.append, Work("run", first=1, last=5, turns=10))

    async def play() -> None:
        async with progress_line("turn", number=1, last=2, enabled=False) as turn_done:
            for _ in range(2):
                requests = [make_request("Ann"), make_request("Bob")]
                for request in requests:
                    log.began(request)
                await asyncio.sleep(0)
                for request in requests:
                    clock.now += 10
                    log.ended(request)
                    lefts.append(log.text.rpartition("; ")[2])
                turn_done(2)

    lefts: list[str] = []
    with scoped(counted=True, watch=log):
        async with progress_line("turn", number=1, last=2, enabled=False):
            pass  # a run that has ended by itself
        log.advance()
        for _ in range(2):
            await asyncio.gather(play(), play())
            log.advance()
            log.advance()
    assert lefts == [f"{duration(10 * left)} left" for left in range(15, -1, -1)]


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

    ProgressLine(broken, Work("turn", first=1, last=1)).say("turn 1")


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
    monkeypatch.setattr(progress, "sys", around)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(progress, "_PATIENCE_S", 0)
    monkeypatch.setattr(progress, "_TICK_S", 0)
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


@pytest.mark.parametrize("how", ["argument", "environment", "pipe", "watch", "done at once"])
def test_it_is_silent_on_request_and_where_nobody_looks(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def reply(request: ChatRequest) -> Any:
        for _ in range(50):
            await asyncio.sleep(0)
        return answer(request)

    if how == "environment":
        monkeypatch.setenv("LLMSIM_PROGRESS", "0")
    if how == "pipe":
        monkeypatch.setattr(Terminal, "isatty", lambda _: False)
    if how == "done at once":
        monkeypatch.setattr(progress, "_PATIENCE_S", 60)
    with scoped(watch=InFlight() if how == "watch" else None):
        make_simulation(reply, names=("Aland",)).run(1, progress=how != "argument")
    assert terminal.getvalue() == ""


# Without a terminal


@pytest.fixture
def pipe(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The standard error, a pipe, where what comes each minute comes at once."""
    monkeypatch.setattr(Terminal, "isatty", lambda _: False)
    monkeypatch.setattr(progress, "_LOG_EVERY_S", 0.005)
    return terminal


TIME = r"(?m)^\d\d:\d\d:\d\d "


@pytest.mark.parametrize(
    ("noted", "wrote", "doing"),
    [
        ("loading", "", ", loading"),
        ("reading about 870 tokens", "", ", reading about 870 tokens"),
        ("reading about 870 tokens", "The", ", writing"),
        ("", "", ""),
    ],
)
def test_a_log_says_how_far_a_run_is_whom_it_waits_for_and_what_the_server_does(
    clock: Clock, shown: list[str], noted: str, wrote: str, doing: str
) -> None:
    work = Work("turn", first=3, last=8)
    log = ProgressLog(shown.append, work, parts=lambda: "kind: 1 of 2")
    requests = [make_request(name) for name in ("Aland", "Borduria", "Syldavia")]
    for request in requests:
        log.began(request)
    log.asked(make_request("Latveria"))
    clock.now = 12
    log.ended(requests[2])
    log.noted(requests[0], noted)
    if wrote:
        log.wrote(requests[0], wrote)
    assert log.text == (
        "turn 3 of 8 (kind: 1 of 2): 1 of about 24 calls done; waiting for agent of Aland and 2 "
        f"more, 0 s{doing}; 5 min left"
    )
    assert shown == []


async def test_without_a_terminal_a_run_and_a_study_log_lines_with_the_time(pipe: Terminal) -> None:
    async def reply(request: ChatRequest) -> Any:
        await pipe.has(f"{TIME}(turn 1 of 1|run 1 of 2).*waiting for agent of Aland")
        return answer(request)

    await make_simulation(reply, names=("Aland",)).arun(1)
    line, *_ = pipe.getvalue().splitlines()
    assert re.search(rf"{TIME}turn 1 of 1: 0 of about 1 calls done; ", line)
    pipe.truncate(0)
    pipe.seek(0)
    client = make_client(reply)
    study = Study(
        Simulation,
        {"replicate": [0, 1]},
        seeds=1,
        turns=1,
        nations=["Aland"],
        moves_bp=None,
        llm_client=client,
    )
    await study.arun()
    assert re.search(
        "run 1 of 2 .replicate=0: 0 of 1, replicate=1: 0 of 1.: 0 of about", pipe.getvalue()
    )


async def test_where_logging_is_set_up_it_has_the_lines(
    pipe: Terminal, caplog: pytest.LogCaptureFixture
) -> None:
    async def reply(request: ChatRequest) -> Any:
        while not caplog.messages:  # noqa: ASYNC110 - a log has no event to wait for
            await asyncio.sleep(0)
        return answer(request)

    with caplog.at_level("INFO", logger="llmsim_lab.run"):
        await make_simulation(reply, names=("Aland",)).arun(1)
    assert caplog.messages[0].startswith('PROGRESS detail="turn 1 of 1: 0 of about 1 calls done; ')
    assert pipe.getvalue() == ""


async def test_a_request_that_timed_out_is_logged_at_once(
    pipe: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reply(request: ChatRequest) -> Any:
        if request.attempt == 1 and request.site and request.site.component == "agent":
            await asyncio.sleep(30)
        return answer(request)

    monkeypatch.setattr(progress, "_LOG_EVERY_S", 60)
    client = make_client(reply, timeout_s=0.25)
    await Simulation(in_words(nations=("Aland",)), llm_client=client).arun(1)
    [line] = pipe.getvalue().splitlines()
    assert re.search(
        rf"{TIME}turn 1 of 1: agent of Aland timed out: no reply within 0\.25 s; raise timeout_s .*"
        r" It is asked again\.$",
        line,
    )


# In a notebook


@pytest.mark.parametrize("by_hand", [True, False])
def test_in_a_notebook_it_is_an_output_that_ends_empty_and_only_for_a_person(
    by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, Any]] = []

    def shows(how: str) -> Any:
        return lambda _, data, raw: shown.append((how, data["text/plain"]))

    for how in ("display", "update"):
        monkeypatch.setattr(DisplayHandle, how, shows(how))
    request = {"content": {"allow_stdin": by_hand}}  # as nbconvert, nbval and papermill do not
    kernel = SimpleNamespace(get_parent=lambda _: request)
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))
    around = SimpleNamespace(stderr=Terminal(), modules={"IPython": ipython})
    monkeypatch.setattr(progress, "sys", around)
    monkeypatch.setattr(progress, "_PATIENCE_S", 0)
    monkeypatch.setattr(progress, "_TICK_S", 0)
    make_simulation(lambda it: asyncio.sleep(0.01, answer(it)), names=("Aland",)).run(1)
    says = "turn 1 of 1 · waiting for agent of Aland · 0 s so far"
    assert [how for how, _ in shown[:2]] == ["display", "update"][: 2 * by_hand]
    assert (("update", says) in shown) is by_hand
    assert shown[-1:] == [("update", "")] * by_hand
    assert around.stderr.getvalue() == ""
