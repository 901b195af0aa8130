"""Hostile input: each case in a process of its own, which may use so much of the machine.

A test hands a function to the fixture ``attack``. Another program forks, imports that function's
module, calls it, and forks again for each ``Case`` that it yields. The case's steps end in a
``LabError`` or cleanly, in time, within memory, with the event loop free, and leave no process,
thread or open file behind. One more test is ten lines::

    def cases(plan: Plan) -> Iterator[Case]:
        for name, text in plan.chosen(TEXTS, 20):
            yield Case(name, {"read": lambda folder, text=text: read(folder, text)})

    def test_each_text_is_read_or_is_an_error(attack: Attack) -> None:
        attack("texts", cases)

``python tests/faults/faults_kit.py MODULE FUNCTION [SEED [SIZE [CASE]]]`` runs the same by hand.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import importlib
import inspect
import json
import os
import random
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

__all__ = ["Attack", "Case", "ForkServer", "Plan", "Tally", "serving", "takes_longer"]

CPU_S = 5.0
MEMORY_MB = 512
BLOCK_S = 0.5
WALL_S = 180.0
"""By the clock: for what waits for ever; it says nothing of how fast a step is."""
SIZES = {"brief": 1, "full": 8, "long": 120}
TESTS = Path(__file__).resolve().parents[1]
for _folder in [str(TESTS), *sorted({str(kit.parent) for kit in TESTS.glob("*/*_kit.py")})]:
    if _folder not in sys.path:
        sys.path.append(_folder)  # so that cases are made with the kits of other tests
BYSTANDER = "somebody's file\n"

SORTED_S = 0.02
"""Seconds in which the processor that these limits are for sorts 100,000 texts."""

Step = Callable[[Path], object | Awaitable[object]]
RowT = TypeVar("RowT")


@dataclass(frozen=True)
class Case:
    """One hostile thing, and what is done with it.

    Attributes:
        name: of the thing.
        steps: each by its name; called with an empty folder, in which it stands, where ``mine.txt``
            must stay as it is. One that ends in a LabError does not stop the next. What a step
            asserts is part of the rule. A step may be a coroutine function.
        prepare: writes files into the folder first, in another process, without limits.
        cpu_s: seconds of the processor for each step, more on a slow machine.
        memory_mb: at the peak, with all that was imported.
        block_s: seconds of the processor for which one callback of an event loop may run, likewise.
        may_raise: whether a LabError is an end.
        wall_s: after which a step is given up, whatever it waits for.
    """

    name: str
    steps: Mapping[str, Step]
    prepare: Callable[[Path], object] | None = None
    cpu_s: float = CPU_S
    memory_mb: float = MEMORY_MB
    block_s: float = BLOCK_S
    may_raise: bool = True
    wall_s: float = WALL_S


@dataclass(frozen=True)
class Plan:
    """How much is tried, and by what chance."""

    seed: int
    size: str

    @property
    def source(self) -> random.Random:
        return random.Random(self.seed)

    def times(self, brief: int) -> int:
        """Return how often to try: so often in CI, 8 times in three minutes, 120 in long."""
        return brief * SIZES[self.size]

    def chosen(
        self,
        table: Mapping[str, RowT],
        brief: int,
        full: int | None = None,
    ) -> list[tuple[str, RowT]]:
        """Return rows of a table, drawn by the seed: so many in CI and in three minutes, or all."""
        rows = list(table.items())
        count: int | None = None
        if self.size == "brief":
            count = brief
        elif self.size == "full":
            count = full
        if count is None:
            return rows
        return self.source.sample(rows, min(count, len(rows)))


@dataclass(kw_only=True)
class StepReport:
    """What became of one step of a case.

    Attributes:
        step: its name.
        message: how it ended: the LabError's words, or ``done``.
        faults: what broke the rule, a sentence each.
        cpu_s: seconds of the processor that it took.
        block_s: the most seconds of the processor for which a callback kept the event loop.
        mb: the process's memory at its peak.
    """

    step: str
    message: str = ""
    faults: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    block_s: float = 0.0
    mb: float = 0.0


MEASURES = ("cpu_s", "block_s", "mb")


@dataclass
class Tally:
    """What became of a class of cases.

    Attributes:
        name: of the class, in the table.
        tried: how many steps were taken.
        faults: the steps that broke the rule, with how.
        worst: the most that a step took of each of ``MEASURES``.
        seconds: by the clock, for all.
        cpu_s: of the processor, for all.
    """

    name: str
    tried: int = 0
    faults: list[str] = field(default_factory=list)
    worst: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MEASURES, 0.0))
    seconds: float = 0.0
    cpu_s: float = 0.0

    def count(self, case: str, report: StepReport) -> None:
        """Count a step of a case."""
        self.tried += 1
        if report.faults:
            self.faults.append(_sendable(f"{case}: {report.step}: {'; '.join(report.faults)}"))
        for measure in MEASURES:
            self.worst[measure] = max(self.worst[measure], getattr(report, measure))


def _sendable(text: str) -> str:
    # Half a character cannot be sent from one process of pytest's to another.
    return text.encode(errors="backslashreplace").decode()


Attack = Callable[[str, Callable[[Plan], Iterator[Case]]], Tally]


# --- in the process of a case ---------------------------------------------------------------------


class Watch:
    """Measures the steps of this process, and what they leave behind.

    Args:
        case: whose steps it takes.
        begins: is told the name of each step before it is taken.
        ended: is told what became of it.
    """

    def __init__(
        self,
        case: Case,
        begins: Callable[[str], None],
        ended: Callable[[StepReport], None],
    ) -> None:
        self.case = case
        self.begins = begins
        self.ended = ended
        self.blocked_s = 0.0
        self.uncaught: list[str] = []
        """Errors that no code can catch, as in ``__del__`` or in a thread."""
        run_handle = asyncio.Handle._run

        # Seconds of this thread's processor, so that a busy machine makes no difference.
        def timed(handle: asyncio.Handle) -> None:
            begun = time.thread_time()
            try:
                run_handle(handle)
            finally:
                self.blocked_s = max(self.blocked_s, time.thread_time() - begun)

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        sys.unraisablehook = self._keep_uncaught
        threading.excepthook = self._keep_uncaught

    def _keep_uncaught(self, raised: Any) -> None:
        self.uncaught.append(f"uncaught {raised.exc_type.__name__}: {raised.exc_value}")

    def census(self) -> dict[str, list[str]]:
        """Return the processes, threads and open files that there are."""
        gc.collect()
        me = psutil.Process()
        folder = Path("/proc/self/fd")
        files = []
        for number in [*folder.iterdir()] if folder.exists() else []:
            with suppress(FileNotFoundError):  # another thread has just closed it
                files.append(str(number.readlink()))
        # matplotlib keeps its fonts open.
        files = [name for name in files if not name.endswith(".ttf")]
        return {
            "process": [str(child) for child in me.children(recursive=True)],
            # A loop keeps its idle threads, as the package's own does, for the next that needs one.
            "thread": [
                thread.name
                for thread in threading.enumerate()
                if not thread.name.startswith("asyncio_")
            ],
            "open file": files or ["?"] * me.num_fds(),
        }

    def left_behind(self, before: dict[str, list[str]]) -> list[str]:
        """Return what there is more of than before, once it had time to end."""
        for _ in range(40):
            after = self.census()
            leftovers = [
                f"left behind: {kind} {after[kind][len(before[kind]) :]}"
                for kind in before
                if len(after[kind]) > len(before[kind])
            ]
            if not leftovers:
                break
            time.sleep(0.05)
        return leftovers

    def play(self, folder: Path) -> None:
        """Take all steps of the case in a folder."""
        from llmsim_lab._util.waiting import run_sync

        os.chdir(folder)
        run_sync(asyncio.sleep(0))  # starts the one thread that the package keeps
        before = self.census()
        last = list(self.case.steps)[-1]
        for name, step in self.case.steps.items():
            self.begins(name)
            report = self.take(name, step, folder)
            if name == last:
                report.faults += self.left_behind(before)
            mine = folder / "mine.txt"
            if not mine.is_file() or mine.read_bytes() != BYSTANDER.encode():
                report.faults.append("mine.txt was changed")
            self.ended(report)

    def take(self, name: str, step: Step, folder: Path) -> StepReport:
        """Take a step; return how it ended, and what it used."""
        from llmsim_lab.errors import LabError

        case = self.case
        report = StepReport(step=name, message="done")
        gc.collect()  # what the step before left has no part in this one's memory
        self.blocked_s = 0.0
        self.uncaught = []
        begun = time.process_time()
        # Ends a step that does not end by itself; one that is late is told below.
        limit_s = int(begun + 3 * case.cpu_s) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
        try:
            result = step(folder)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except LabError as error:
            report.message = f"{type(error).__name__}: {error}"[:600]
            if not case.may_raise:
                report.faults.append(report.message)
        except BaseException as error:  # noqa: BLE001 - each is a fault, and is told
            report.faults.append(_with_place(error))
        cpu_s = time.process_time() - begun
        memory_mb = _peak_mb()
        if takes_longer(cpu_s, case.cpu_s):
            report.faults.append(f"took {cpu_s:.1f} seconds of the processor, {case.cpu_s} allowed")
        if memory_mb > case.memory_mb:
            report.faults.append(f"took {memory_mb:.0f} MB, {case.memory_mb} allowed")
        if takes_longer(self.blocked_s, case.block_s):
            report.faults.append(f"kept the event loop for {self.blocked_s:.2f} seconds")
        report.faults += self.uncaught
        report.cpu_s = round(cpu_s, 2)
        report.block_s = round(self.blocked_s, 2)
        report.mb = round(memory_mb)
        return report


def takes_longer(seconds: float, limit_s: float) -> bool:
    """Return whether so many seconds of this processor are more than a limit.

    A processor that others use too may do half as much in a second. How much this one does is
    looked at here, while they still use it as they did.
    """
    if seconds <= limit_s:
        return False
    begun = time.thread_time()
    sorted(map(str, range(100_000)))
    slowness = (time.thread_time() - begun) / SORTED_S
    return seconds > limit_s * max(1.0, slowness)


def _with_place(error: BaseException) -> str:
    """Return an error that is none of ours, with the lines that it came from."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = " ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    notes = "\n".join(getattr(error, "__notes__", []))[-2_000:]
    return f"{type(error).__name__}: {str(error)[:600]} ({places}) {notes}"


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@contextmanager
def serving(answer: Callable[[socket.socket, bytes], object]) -> Iterator[int]:
    """Answer HTTP in a process of its own, whose work does not count; yields its port on loopback.

    Args:
        answer: writes to a connection all that answers a request, which it gets with its head. It
            may do so slowly or for ever; the connection is closed when it returns.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        port = server.getsockname()[1]
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            while True:
                connection, _ = server.accept()
                threading.Thread(target=_answer, args=(connection, answer), daemon=True).start()
    try:
        yield port
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(connection: socket.socket, answer: Callable[[socket.socket, bytes], object]) -> None:
    with connection, suppress(OSError):
        request = b""
        while b"\r\n\r\n" not in request:
            request += _received(connection)
        head, _, body = request.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        while len(body) < int(length or 0):
            body += _received(connection)
        answer(connection, head + b"\r\n\r\n" + body)


def _received(connection: socket.socket) -> bytes:
    piece = connection.recv(65536)
    if not piece:
        raise ConnectionError
    return piece


# --- the program that forks for each case ---------------------------------------------------------


def _forked(work: Callable[[], object], log: Path) -> int:
    """Fork for some work, which writes what it prints to a file; returns the child's number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in (1, 2):
            os.dup2(written, number)
        os.close(written)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable()
        faulthandler.register(signal.SIGXCPU, chain=True)
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - it is in the log
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _ended(child: int, give_up: Callable[[], bool]) -> str:
    """Wait for a child, which is killed when it is given up; returns how it ended."""
    sent = [signal.SIGABRT, signal.SIGKILL]
    while True:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            code = os.waitstatus_to_exitcode(status)
            if code == 0:
                return ""
            reason = signal.Signals(-code).name if code < 0 else str(code)
            return f"ended with {reason}"
        if sent and give_up():
            os.kill(child, sent.pop(0))
            time.sleep(0.5)
        time.sleep(0.002)


def _watched(case: Case) -> Iterator[StepReport]:
    """Play a case in a process of its own; yields what became of each step."""
    home = Path(tempfile.mkdtemp(prefix="faults-"))
    folder = home / "here"
    log = home / "log"
    folder.mkdir()
    (folder / "mine.txt").write_text(BYSTANDER)
    try:
        if case.prepare is not None:
            prepare = case.prepare
            ending = _ended(_forked(lambda: prepare(folder), log), lambda: False)
            if ending:
                raise RuntimeError(f"{case.name} was not prepared: {log.read_text()[-2000:]}")
        # By way of files, since the process may end at any moment.
        begun_path = home / "begun"
        report_path = home / "reports"
        for path in (begun_path, report_path):
            path.touch()

        def begins(step: str) -> None:
            begun_path.write_text(json.dumps(step))

        def ended(report: StepReport) -> None:
            with report_path.open("a") as file:
                file.write(f"{json.dumps(asdict(report))}\n")
            begun_path.write_text(json.dumps(f"after {report.step}"))

        def play() -> None:
            # Beyond this the machine would suffer; what is over memory_mb is ending either way.
            resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
            Watch(case, begins, ended).play(folder)

        began = time.monotonic()
        child = _forked(play, log)
        limit_s = case.wall_s * len(case.steps)
        ending = _ended(child, lambda: time.monotonic() - began > limit_s)
        for line in report_path.read_text().splitlines():
            yield StepReport(**json.loads(line))
        if ending:
            # Faulthandler lists hundreds of modules below the stacks.
            printed = log.read_text(errors="replace").partition("Extension modules")[0][-1500:]
            seconds = time.monotonic() - began
            yield StepReport(
                step=json.loads(begun_path.read_text() or '"before any step"'),
                faults=[f"the process {ending} after {seconds:.0f} s; {printed}"],
            )
    finally:
        for path in [home, *home.rglob("*")]:
            # Else what a step made unreadable could not be removed.
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(home, ignore_errors=True)


def main(module: str, function: str, seed: str = "0", size: str = "brief", only: str = "") -> None:
    """Print a line of JSON for each step of each case."""
    _import_much()
    cases = getattr(importlib.import_module(module), function)
    gc.collect()
    gc.freeze()
    for case in cases(Plan(int(seed), size)):
        if only in case.name:
            for report in _watched(case):
                print(json.dumps({"case": case.name, **asdict(report)}), flush=True)  # noqa: T201


def _import_much() -> None:
    """Import what else would be on the account of the first case that needs it."""
    # Of this one jsonschema, where it finds it, compiles grammars for seconds.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    for name in ("jsonschema", "matplotlib.pyplot", "pandas", "scipy.stats", "typer._adapters"):
        importlib.import_module(name)
    importlib.import_module("verbs_kit")


def serve() -> None:
    """Fork for each class of cases that a line of standard input names."""
    _import_much()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                main(*json.loads(line))
                status = 0
            except BaseException:  # noqa: BLE001 - it is printed, and told by the status
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status, used = os.wait4(child, 0)
        report = {
            "ended": os.waitstatus_to_exitcode(status),
            "cpu_s": round(used.ru_utime + used.ru_stime, 1),  # of all its cases too
        }
        print(json.dumps(report), flush=True)  # noqa: T201


# --- in the test ----------------------------------------------------------------------------------


class ForkServer:
    """A program that has imported much, once for all classes, and forks for each."""

    def __init__(self) -> None:
        folders = [str(Path(__file__).parent), *sys.path]
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(folders), PYTHONHASHSEED="0")
        self._program = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", "import faults_kit; faults_kit.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            process_group=0,  # to be ended with all that it leaves
        )

    def tally(self, name: str, cases: Callable[[Plan], Iterator[Case]], plan: Plan) -> Tally:
        """Run all cases of a class."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        tally = Tally(name)
        begun = time.monotonic()
        wanted = [cases.__module__, cases.__qualname__, str(plan.seed), plan.size]
        self._program.stdin.write(f"{json.dumps(wanted)}\n")
        self._program.stdin.flush()
        ended = "too early"
        for line in self._program.stdout:
            report = json.loads(line)
            if "ended" in report:
                ended = report["ended"]
                tally.cpu_s = report["cpu_s"]
                break
            case = report.pop("case")
            tally.count(case, StepReport(**report))
        tally.seconds = round(time.monotonic() - begun, 1)
        if ended:
            tally.faults.append(f"the cases' own program ended with {ended}")
        return tally

    def close(self) -> None:
        """End the program, and what it left."""
        with suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.communicate()


def row_of(tally: dict[str, Any]) -> str:
    """Return the line of the table for a tally, which is as ``asdict`` gives it."""
    worst = tally["worst"]
    survived = tally["tried"] - len(tally["faults"])
    return (
        f"{tally['name']:32} {tally['tried']:7} {survived:8} "
        f"{worst['cpu_s']:7.2f} {worst['block_s']:7.2f} {worst['mb']:6.0f} "
        f"{tally['cpu_s']:8.1f} {tally['seconds']:8.1f}"
    )


HEAD = (
    f"{'class':32} {'tried':>7} {'survived':>8} {'CPU s':>7} {'loop s':>7} {'MB':>6} "
    f"{'in all':>8} {'took s':>8}"
)
"""The most of a step, then the processor's seconds of the class, then how long it took."""


def attack_of(
    server: ForkServer,
    plan: Plan,
    test: str,
    record: Callable[[str, object], None],
) -> Attack:
    """Return what a test calls; each tally goes into the table at the end.

    Args:
        test: the test's name for pytest, so that a failure can say how to repeat it alone.
        record: keeps a tally for the table.
    """
    size = "" if plan.size == "brief" else f" --{plan.size}"
    repeat = f"python -m pytest -m process {shlex.quote(test)}{size} --seed={plan.seed}"

    def attack(name: str, cases: Callable[[Plan], Iterator[Case]]) -> Tally:
        tally = server.tally(name, cases, plan)
        record("faults", asdict(tally))
        assert tally.tried, "no case was tried"
        listed = "\n".join(tally.faults[:20])
        assert not tally.faults, (
            f"{len(tally.faults)} of {tally.tried} failed; repeat them: {repeat}\n{listed}"
        )
        return tally

    return attack


if __name__ == "__main__":
    # Under the name by which cases import it: here it is __main__, with other classes.
    importlib.import_module("faults_kit").main(*sys.argv[1:])
