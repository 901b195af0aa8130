"""What a hand-in's process may use, and how its end is told: with a process that is played here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons import ProcessLimits, limits
from llmsim_lab.lessons.limits import HandInFault, LimitedProcess, result_of

MEGA = 2**20


class PlayedProcess:
    """A process, its pipes, its clock, and what the system tells of it."""

    pid = 4_321

    def __init__(self) -> None:
        self.started: dict[str, Any] = {}
        self.stdin = self.stdout = self
        self.is_broken = False
        self.requests: list[Any] = []
        self.replies = [b'{"result": {"has_left_network": true}}\n']
        self.events: list[str] = []
        self.returncode: int | None = None
        self.exit_code = 0
        self.clock = 1_000.0
        self.takes_s = 0.3
        self.cpu_s = 15.0
        self.memory = 0
        self._polled = threading.Semaphore(0)

    # What a Popen and its pipes have

    def start(self, command: list[str], **settings: Any) -> PlayedProcess:
        self.started = {"command": command, **settings}
        return self

    def poll(self) -> int | None:
        self._polled.release()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self.events.append(f"waited {timeout}")
        if self.returncode is None:
            self.returncode = self.exit_code
        return self.returncode

    def kill(self) -> None:
        self.events.append("killed")
        if self.returncode is None:
            self.returncode = -9

    def write(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        if self.is_broken:
            raise BrokenPipeError
        self.requests.append(json.loads(line))

    def flush(self) -> None:
        self.events.append("flushed")

    def close(self) -> None:
        self.events.append("closed")
        if self.is_broken:
            raise BrokenPipeError

    def readline(self, most: int) -> bytes:
        self.clock += self.takes_s
        # One whole look at what it uses lies between two polls.
        while self._polled.acquire(blocking=False):
            pass
        for _ in range(2):
            assert self._polled.acquire(timeout=60)
        if self.returncode is not None or not self.replies:
            return b""
        return self.replies.pop(0)[:most]

    # What psutil has

    def cpu_times(self) -> SimpleNamespace:
        if self.cpu_s < 0:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(user=self.cpu_s - 5, system=5.0)

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=self.memory)

    def children(self, *, recursive: bool) -> list[Any]:
        return [SimpleNamespace(kill=lambda: self.events.append(f"child, recursive={recursive}"))]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedProcess]:
    played = PlayedProcess()
    pipes = {name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "TimeoutExpired")}
    monkeypatch.setattr(limits, "subprocess", SimpleNamespace(Popen=played.start, **pipes))
    watched = SimpleNamespace(Process=lambda pid: played, Error=psutil.Error)
    monkeypatch.setattr(limits, "psutil", watched)
    clock = SimpleNamespace(monotonic=lambda: played.clock, sleep=threading.Event().wait)
    monkeypatch.setattr(limits, "time", clock)
    monkeypatch.setattr(limits, "_LOOK_S", 0.0001)
    monkeypatch.setattr(os, "killpg", lambda *sent: played.events.append(f"group {sent}"))
    yield played
    played.returncode = played.returncode or 0


def test_a_process_is_started_apart_told_its_limits_and_ended_with_all_it_started(
    played: PlayedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.delenv("LANG", raising=False)
    played.replies.append(b'{"result": [1, 2]}\n')
    allowed = ProcessLimits(cpu_s=1.2, memory_mb=70, printed=9)
    with LimitedProcess(tmp_path, allowed, file="ann.py", tasks=3) as process:
        assert process.has_left_network
        # What JSON has not goes as Python's has it, or in words.
        assert process.ask("answer", bound=float("inf"), value=Path("a")) == [1, 2]
        assert process.alive
    assert not process.alive
    assert played.requests == [
        {"cpu_s": 4 + 5, "memory_mb": 70, "printed": 9, "file": "ann.py"},
        {"do": "answer", "bound": float("inf"), "value": "a"},
    ]
    ended = ["child, recursive=True", f"group {(4_321, signal.SIGKILL)}", "killed"]
    closed = ["closed", "closed", "waited None"]
    assert played.events == ["flushed", "flushed", *ended, *closed]
    started = played.started
    python, no_modules_of_here, no_compiled_ones, script = started.pop("command")
    assert (python, no_modules_of_here, no_compiled_ones) == (sys.executable, "-P", "-B")
    assert Path(script).is_file()
    environment = started.pop("env")
    assert started == {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
        "cwd": tmp_path,
        "start_new_session": True,
    }
    assert (environment["PYTHONPATH"], environment["TMPDIR"]) == ("/mine", str(tmp_path))
    assert not {"OPENAI_API_KEY", "LANG"} & {*environment}


LIMITS = ProcessLimits(cpu_s=3, wall_s=7, memory_mb=70)


@pytest.mark.parametrize(
    ("used", "fault"),
    [
        ({"memory": 70 * MEGA}, ""),
        ({"memory": 70 * MEGA + 1}, "it used more than 70 MB of memory"),
        ({"cpu_s": 15 + 3}, ""),
        ({"cpu_s": 15 + 3.01}, "it used more than 3 s of the processor"),
        ({"cpu_s": -1}, ""),  # it is gone, and the system tells nothing
        ({"takes_s": 7}, ""),
        ({"takes_s": 7.01}, "it took more than 7 s"),
        ({"written": 500 * MEGA}, ""),
        ({"written": 500 * MEGA + 1}, "it wrote more than 500 MB"),
    ],
)
def test_a_process_beyond_a_limit_is_ended_and_the_limit_named(
    used: dict[str, float], fault: str, played: PlayedProcess, tmp_path: Path
) -> None:
    (tmp_path / "of").mkdir()
    (tmp_path / "of" / "before").write_bytes(b"123")
    played.takes_s = 0
    with LimitedProcess(tmp_path, LIMITS) as process:
        played.takes_s = 0.3
        for name, value in used.items():
            if name == "written":
                (tmp_path / "of" / "new").touch()
                os.truncate(tmp_path / "of" / "new", int(value))  # a hole, which takes no disk
            else:
                setattr(played, name, value)
        if fault:
            with pytest.raises(HandInFault, match=f"^{fault}$"):
                process.ask("cell")
            assert played.returncode == -9
        else:
            played.replies.append(b'{"result": 1}\n')
            assert process.ask("cell") == 1


@pytest.mark.parametrize("is_new_task", [True, False])
@pytest.mark.parametrize("used", ["cpu_s", "clock"])
def test_limits_are_of_a_task_and_only_waiting_counts(
    used: str, is_new_task: bool, played: PlayedProcess, tmp_path: Path
) -> None:
    played.takes_s = 0
    with LimitedProcess(tmp_path, LIMITS) as process:
        for _ in range(2):
            played.clock += 60  # the other player thinks
            if used == "cpu_s":
                played.cpu_s += 2
            else:
                played.takes_s = 4
            played.replies.append(b'{"result": 1}\n')
            if is_new_task or played.requests[1:] == []:
                assert process.ask("answer") == 1
            else:
                with pytest.raises(HandInFault, match=r"it (used|took) more than"):
                    process.ask("answer")
            if is_new_task:
                process.begin_task()


@pytest.mark.parametrize(
    ("reply", "exit_code", "fault"),
    [
        (b"", 3, "its process ended: exit status 3"),
        (b"", 0, "its process ended: exit status 0"),
        (b"", -11, "its process ended: signal 11"),
        (b"", -signal.SIGXCPU, "it used more than 3 s of the processor"),
        (b'{"result": "' + b"x" * 65_521 + b'"}\n', 0, "it answered more than 64 kB"),
        (b"broken", 1, "its process ended: exit status 1"),
    ],
)
def test_why_there_is_no_whole_answer_is_told(
    reply: bytes, exit_code: int, fault: str, played: PlayedProcess, tmp_path: Path
) -> None:
    with LimitedProcess(tmp_path, LIMITS) as process:
        # The longest line that counts has 64 kB, with its end.
        played.replies.append(b'{"result": "' + b"x" * 65_521 + b'"}\n')
        assert process.ask("cell") == "x" * 65_521
        played.is_broken = reply == b"broken"
        played.exit_code = exit_code
        played.replies.append(b"x" + reply if b"x" in reply else b"")
        with pytest.raises(HandInFault, match=f"^{fault}$"):
            process.ask("cell")
    assert ("waited 5.0" in played.events) == (b"x" not in reply)
    assert played.events[-1] == "waited None"


@pytest.mark.parametrize(
    ("line", "result"),
    [
        (b'{"result": {"a": 1}}', {"a": 1}),
        (b'{"result": null, "fault": ""}', None),
        (b'{"fault": ""}', HandInFault("it wrote what is not an answer into this conversation")),
        (b"[1]", HandInFault("it wrote what is not an answer into this conversation")),
        (b"hello", HandInFault("it wrote what is not an answer into this conversation")),
        (b'{"fault": "line 2: \\u001b[31mno"}', HandInFault("line 2: [31mno")),
        (b'{"fault": "no,\\n never", "result": 1}', HandInFault("no, never")),
        (
            b'{"result": ' + b"[" * 400 + b"]" * 400 + b"}",
            HandInFault("it answered lists or dicts that are nested too deeply"),
        ),
    ],
)
def test_nothing_that_a_hand_in_may_have_written_is_trusted(line: bytes, result: object) -> None:
    if isinstance(result, HandInFault):
        with pytest.raises(HandInFault) as raised:
            result_of(line)
        assert str(raised.value) == str(result)
    else:
        assert result_of(line) == result


@pytest.mark.parametrize("name", ["cpu_s", "wall_s", "memory_mb", "printed"])
def test_limits_are_above_zero_and_have_defaults(name: str) -> None:
    assert ProcessLimits() == ProcessLimits(cpu_s=5, wall_s=60, memory_mb=512, printed=1_000_000)
    with pytest.raises(ConfigError, match=r"cpu_s=.* must be a finite number up to"):
        ProcessLimits(cpu_s=1e30)
    values: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"{name}=0 must be above 0"):
        ProcessLimits(**values)
