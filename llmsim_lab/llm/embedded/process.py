"""Start the child process that runs a model, hear what it says, and explain how it ended."""

from __future__ import annotations

import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from llmsim_lab.errors import BackendError, ConfigError, LabError, ModelFileError
from llmsim_lab.text import printable

__all__ = ["ChildProcess", "ChildSettings", "child_command"]

T = TypeVar("T")

_LAST_LINES = 60
_SHOWN_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """What the child is told.

    Attributes:
        model: the weights.
        num_ctx: context window, tokens.
        threads: for the computation.
        cache_ram_mib: most memory for prompts read before.
        startup_timeout_s: longest wait until it is ready.
    """

    model: Path
    num_ctx: int
    threads: int
    cache_ram_mib: int
    startup_timeout_s: float


def child_command() -> list[str]:
    """Return the command line of the child; nothing secret stands in it.

    Raises:
        ConfigError: there is no Python to run it with.
    """
    if not sys.executable:
        raise ConfigError(
            "the embedded model runs in a Python process of its own, but sys.executable is empty"
        )
    return [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]


class ChildProcess:
    """A running child that is ready to answer.

    Attributes:
        address: where it listens.
        api_key: what it wants to see.
        version: of the runtime.
        load_seconds: from the start until it was ready.

    Raises:
        ConfigError: the runtime is not installed, or does not run on this machine.
        ModelFileError: the model cannot be loaded.
        BackendError: it was not ready in time.
    """

    def __init__(self, settings: ChildSettings, *, command: Sequence[str] | None = None) -> None:
        began = time.perf_counter()
        self.settings = settings
        self.api_key = secrets.token_urlsafe(24)
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = _on_lasting_thread(lambda: _start(command or child_command()))
        self._readers = [
            _thread(self._read_stdout, self._process.stdout),
            _thread(self._read_stderr, self._process.stderr),
        ]
        try:
            self._instruct()
            ready = self._await_ready()
        except BaseException:
            self.stop()
            raise
        self.address = str(ready["ready"])
        self.version = str(ready["version"])
        self.load_seconds = time.perf_counter() - began

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def last_lines(self) -> str:
        """What the runtime printed last, on one line."""
        return " | ".join(list(self._lines)[-_SHOWN_LINES:])

    def stop(self) -> None:
        """End it at once; harmless if it has ended."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=2)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue  # what was still to be written has no reader any more

    def complaint(self, sign: str) -> str:
        """Return the last line the runtime printed that holds a sign, or that there is none."""
        found = [line for line in self._lines if sign in line]
        return found[-1] if found else "the runtime does not say why"

    def ending(self) -> str:
        """Say how the child ended, and what it printed last."""
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it is still running but does not answer"
        for reader in self._readers:
            reader.join(timeout=2)
        how = f"exit status {code}"
        if code < 0:
            how = f"signal {signal.Signals(-code).name}" if -code in _SIGNALS else f"signal {-code}"
        printed = f"; it printed last: {self.last_lines}" if self._lines else ""
        return f"{how}{_HINTS.get(code, '')}{printed}"

    def _instruct(self) -> None:
        told: dict[str, Any] = {
            "parent": os.getpid(),
            "model": str(self.settings.model),
            "num_ctx": self.settings.num_ctx,
            "threads": self.settings.threads,
            "cache_ram_mib": self.settings.cache_ram_mib,
            "api_key": self.api_key,
        }
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(told) + "\n")
            stdin.flush()
        except BrokenPipeError:
            return  # it has ended already; waiting for it says how

    def _await_ready(self) -> dict[str, Any]:
        limit = self.settings.startup_timeout_s
        try:
            line = self._said.get(timeout=limit)
        except queue.Empty:
            raise BackendError(
                f"the embedded model was not ready within {limit:g} s; raise startup_timeout_s, "
                f"or look whether the machine is busy{self._printed()}",
                reason="timeout",
                retry=True,
            ) from None
        try:
            said = json.loads(line) if line is not None else {}
        except ValueError:
            said = {}
        if isinstance(said, dict) and "ready" in said:
            return said
        raise self._failure(said if isinstance(said, dict) else {})

    def _failure(self, said: dict[str, Any]) -> LabError:
        what, detail = said.get("error"), str(said.get("detail", ""))
        if what == "runtime" and "libgomp" in detail:
            return ConfigError(
                "the embedded model's runtime needs the system library libgomp.so.1; install it: "
                f"'apt-get install libgomp1' or 'dnf install libgomp' ({detail})"
            )
        if what == "runtime":
            return ConfigError(
                "the embedded model's runtime cannot be loaded; install it: "
                f"pip install 'llmsim-lab[embedded]' ({detail})"
            )
        if what == "grammar":
            return ConfigError(
                "this build of the embedded model's runtime cannot hold replies to a schema; "
                f"install another: pip install -U xllamacpp (it made {detail!r})"
            )
        if what == "load":
            self.ending()  # by then all that it printed has been read
            return ModelFileError(
                f"{self.settings.model} cannot be loaded with num_ctx={self.settings.num_ctx}: "
                f"{detail}{self._printed()}; the file may be damaged or too new for the runtime"
            )
        return ModelFileError(
            f"the embedded model's process ended while it was loading {self.settings.model}: "
            f"{self.ending()}"
        )

    def _printed(self) -> str:
        return f"; it printed last: {self.last_lines}" if self._lines else ""

    def _read_stdout(self, pipe: IO[str]) -> None:
        self._said.put(pipe.readline() or None)
        self._read_stderr(pipe)

    def _read_stderr(self, pipe: IO[str]) -> None:
        for line in pipe:
            if line.strip():
                self._lines.append(printable(line).strip())


_SIGNALS = {int(number) for number in signal.Signals}
_HINTS = {
    -4: " (an illegal instruction: the runtime needs a newer processor, x86 with AVX2)",
    -9: " (it was killed; if nobody did that, the machine ran out of memory)",
}


def _thread(read: Callable[[IO[str]], None], pipe: IO[str] | None) -> threading.Thread:
    thread = threading.Thread(target=read, args=(pipe,), name="llmsim-embedded", daemon=True)
    thread.start()
    return thread


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONUTF8": "1"}
    # Read once, when the runtime is loaded. Spinning threads starve on a busy machine.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # an interrupt of the notebook's kernel is not for the child
    )


_lasting: dict[int, ThreadPoolExecutor] = {}
_lasting_lock = threading.Lock()


def _on_lasting_thread(work: Callable[[], T]) -> T:
    """Call a function on a thread that lives as long as this process.

    Linux ends the child when the *thread* that started it ends, and worker threads of an event
    loop end with the loop.
    """
    with _lasting_lock:
        executor = _lasting.get(os.getpid())
        if executor is None:  # also after a fork, which does not copy threads
            _lasting.clear()
            executor = ThreadPoolExecutor(1, thread_name_prefix="llmsim-embedded-start")
            _lasting[os.getpid()] = executor
    return executor.submit(work).result()
