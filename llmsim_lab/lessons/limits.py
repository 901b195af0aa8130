"""A process that runs code of others and may use so much of the processor, time and memory."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from llmsim_lab._util.checks import real_number
from llmsim_lab._util.files import as_path
from llmsim_lab._util.jsontext import is_too_deep
from llmsim_lab._util.text import error_text, printable
from llmsim_lab.errors import ConfigError

_SCRIPT = Path(__file__).with_name("_child.py")
_LOOK_S = 0.05
"""How often a process is looked at, so that what it uses beyond a limit is little."""
_LOOK_AT_FILES_S = 0.25
_LOOKING_SHARE = 20
"""A look at many files takes long: the next one comes so many times later."""
_MOST_WRITTEN_MB = 500
"""In all files of a process's folder; the system's limit is of one file."""
_MOST_ENTRIES = 20_000
_MOST_LEVELS = 60
"""Of folders in one another: their paths stay within what a system opens."""
_EXIT_S = 5.0
_LONGEST_REPLY = 64 * 1024
_SPARE_CPU_S = 5
"""For starting, beyond what tasks may take."""
_STOPPED = "it was stopped, as by Ctrl-C"
_PASSED_ON = ("PATH", "PYTHONPATH", "HOME", "USER", "LANG", "SYSTEMROOT", "MPLCONFIGDIR")
"""Of the environment: not the keys and addresses of model servers."""
stopping: ContextVar[threading.Event] = ContextVar("stopping")
"""Once it is set, processes that were started in its context end, and none is started any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """What a task may use: a match of a tournament, or a hand-in that is graded.

    Attributes:
        cpu_s: seconds of the processor.
        wall_s: seconds that it is waited for; many, since a busy machine gives it a part of them.
        memory_mb: at any time.
        printed: characters.
    """

    cpu_s: float = 5.0
    wall_s: float = 60.0
    memory_mb: int = 512
    printed: int = 1_000_000

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wall_s", "memory_mb", "printed"):
            # Within what the system's own limits can be.
            if not real_number(name, getattr(self, name), most=10**9) > 0:
                raise ConfigError(f"{name}={getattr(self, name):g} must be above 0")


class HandInFault(Exception):  # noqa: N818 - its message is a hand-in's result
    """Code of a hand-in raised an error, ended its process or went beyond a limit."""


def paths_in(folder: Path) -> list[Path]:
    """Return what is in a folder of hand-ins, by name.

    Raises:
        ConfigError: it is not a folder, or cannot be read.
    """
    if not as_path("folder", folder).is_dir():
        raise ConfigError(f"{folder} is not a folder; name the one with the hand-ins")
    # What Python and file managers leave behind is nobody's hand-in.
    left_behind = (".", "__")
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith(left_behind)]
    except OSError as error:
        raise ConfigError(
            f"cannot read the folder {folder}: {error.strerror or error}; change its permissions"
        ) from error
    return sorted(paths)


class LimitedProcess:
    """Runs code of others in a process of its own.

    Args:
        folder: where it works, and all that it may write to.
        limits: of each task.
        file: of the player that it runs; empty for tapes and notebooks.
        tasks: how many there will be.

    Attributes:
        has_left_network: whether the system keeps it from the network; else only Python does.
    """

    def __init__(
        self,
        folder: Path,
        limits: ProcessLimits,
        *,
        file: str = "",
        tasks: int = 1,
    ) -> None:
        self._limits = limits
        self._stopping = stopping.get(threading.Event())
        if self._stopping.is_set():
            raise HandInFault(_STOPPED)
        # First: it may be a fault, and then nothing was started.
        self._bytes_before = _bytes_in(folder)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {
            # The same order of sets each time; no window; one thread a process.
            "PYTHONHASHSEED": "0",
            "PYTHONUTF8": "1",
            "MPLBACKEND": "Agg",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "IPYTHONDIR": str(folder),
            "TMPDIR": str(folder),
        }
        self._process = subprocess.Popen(
            # -P: modules of this folder must not hide others. -B: nor may it leave compiled ones.
            [sys.executable, "-P", "-B", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A pipe that nobody reads would be full one day, and then it would wait forever.
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            # A group of its own, by which all that it started can be ended.
            start_new_session=True,
        )
        self._watched = psutil.Process(self._process.pid)
        self._fault = ""
        self._folder = folder
        self._look_at_files_at = 0.0
        self._asked_at = math.inf
        self.begin_task()
        # The system's own limits are of a process's whole life, and Windows has none: these are of
        # each task, and look the same everywhere.
        threading.Thread(target=self._keep_limits, daemon=True).start()
        settings = {
            # Of all tasks together, by the system, in case that this process is gone.
            "cpu_s": math.ceil(limits.cpu_s * tasks) + _SPARE_CPU_S,
            "memory_mb": limits.memory_mb,
            "printed": limits.printed,
            "file": file,
        }
        try:
            self.has_left_network = bool(self._exchange(settings)["has_left_network"])
        except HandInFault:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()

    @property
    def alive(self) -> bool:
        """Whether it can be asked more."""
        return self._process.poll() is None

    def begin_task(self) -> None:
        """Count what is used from here on."""
        self._waited_s = 0.0
        self._cpu_before_s = self._cpu_s()

    def ask(self, task: str, **arguments: object) -> Any:
        """Return what a task of ``_child.py`` leads to.

        Raises:
            HandInFault: the code raised an error, ended its process or went beyond a limit.
        """
        return self._exchange({"do": task, **arguments})

    def kill(self) -> None:
        """End the process and all that it started."""
        # First the children, since those of an ended process are nobody's and not found.
        with suppress(psutil.Error):
            for child in self._watched.children(recursive=True):
                child.kill()
        if sys.platform != "win32":
            with suppress(ProcessLookupError, PermissionError):
                # Also those that lost their parent.
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def _exchange(self, request: Mapping[str, object]) -> Any:
        stdin = self._process.stdin
        stdout = self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._asked_at = time.monotonic()
        line = b""
        with suppress(BrokenPipeError):  # it has ended, and the reply says so
            stdin.write(request_line(request))
            stdin.flush()
            # A line without an end would fill the memory of this process, which has no limit.
            line = stdout.readline(_LONGEST_REPLY)
        self._waited_s += time.monotonic() - self._asked_at
        self._asked_at = math.inf
        if not line.endswith(b"\n"):
            raise HandInFault(self._ending(line))
        return result_of(line)

    def _ending(self, unfinished: bytes) -> str:
        """Return why there is no whole answer."""
        if unfinished:
            return f"it answered more than {_LONGEST_REPLY // 1024} kB"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S)
        # Before the signal, which is how a limit ends it.
        if self._fault:
            return self._fault
        code = self._process.returncode
        if code == -getattr(signal, "SIGXCPU", 0):
            return f"it used more than {self._limits.cpu_s:g} s of the processor"
        if code is not None and code < 0:
            return f"its process ended: signal {-code}"
        return f"its process ended: exit status {code}"

    def _cpu_s(self) -> float:
        with suppress(psutil.Error):
            times = self._watched.cpu_times()
            return float(times.user + times.system)
        return 0.0

    def _keep_limits(self) -> None:
        while self._process.poll() is None:
            try:
                self._fault = self._fault or self._beyond_limits()
            except Exception as error:  # noqa: BLE001 - without this thread nothing has a limit
                self._fault = f"its limits could not be kept: {error_text(error)}"
            if self._fault:
                self.kill()
            time.sleep(_LOOK_S)

    def _beyond_limits(self) -> str:
        """Return which limit the process went beyond; empty if none."""
        if self._stopping.is_set():
            return _STOPPED
        limits = self._limits
        # Between questions it is not waited for: the other player thinks then.
        under_way_s = max(0.0, time.monotonic() - self._asked_at)
        if self._waited_s + under_way_s > limits.wall_s:
            return f"it took more than {limits.wall_s:g} s"
        if self._cpu_s() - self._cpu_before_s > limits.cpu_s:
            return f"it used more than {limits.cpu_s:g} s of the processor"
        # What it uses, and not what it has reserved, which is often several times as much.
        with suppress(psutil.Error):
            used_bytes = self._watched.memory_info().rss
            if used_bytes > limits.memory_mb * 2**20:
                return f"it used more than {limits.memory_mb} MB of memory"
        begun = time.monotonic()
        if begun > self._look_at_files_at:
            try:
                written = _bytes_in(self._folder) - self._bytes_before
            except HandInFault as fault:
                return str(fault)
            looked_s = time.monotonic() - begun
            self._look_at_files_at = begun + max(_LOOK_AT_FILES_S, _LOOKING_SHARE * looked_s)
            if written > _MOST_WRITTEN_MB * 2**20:
                return f"it wrote more than {_MOST_WRITTEN_MB} MB"
        return ""


def request_line(request: Mapping[str, object]) -> bytes:
    """Return a request as ``_child.py`` reads it."""
    # By pydantic, which writes states too.
    try:
        line = to_json(
            request,
            fallback=str,
            inf_nan_mode="constants",
        )
    except PydanticSerializationError:
        # A file's name that is not UTF-8 has half characters, which only escapes can say.
        plain_request = to_jsonable_python(
            request,
            fallback=str,
            inf_nan_mode="constants",
        )
        line = json.dumps(plain_request).encode()
    return line + b"\n"


def result_of(line: bytes) -> Any:
    """Return the result in a reply of ``_child.py``.

    Raises:
        HandInFault: it tells of a fault, or is no such reply.
    """
    # A hand-in can write to this pipe too: nothing in the line is to be trusted.
    try:
        reply = json.loads(line)
        fault = str(reply.get("fault", ""))
        result = None if fault else reply["result"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise HandInFault("it wrote what is not an answer into this conversation") from error
    # json reads deeper lists than what looks at them later can.
    if is_too_deep(result):
        raise HandInFault("it answered lists or dicts that are nested too deeply")
    if fault:
        # On one line, as it stands in a table: what a replay lacks takes several.
        raise HandInFault(printable(" ".join(fault.split())))
    return result


# --- folders that code of others may fill ---------------------------------------------------------


def entries_in(folder: Path, most: int = _MOST_ENTRIES) -> Iterator[os.DirEntry[str]]:
    """Yield all that is in a folder and in its folders; links are not followed.

    Raises:
        HandInFault: it is more, or deeper, than can be looked at; or it cannot be read.
    """
    # Not os.walk nor rglob: deep folders are an error of their recursion.
    folders = [(str(folder), 1)]
    count = 0
    while folders:
        place, level = folders.pop()
        if level > _MOST_LEVELS:
            raise HandInFault(f"it has more than {_MOST_LEVELS} folders in one another")
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    count += 1
                    if count > most:
                        raise HandInFault(f"it has more than {most:,} files")
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, level + 1))
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError as error:
            raise HandInFault(f"its files cannot be looked at: {error.strerror}") from error


def size_of(entry: os.DirEntry[str]) -> int:
    """Return how much disk a file takes; 0 if it was removed meanwhile."""
    with suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_size
    return 0


def _bytes_in(folder: Path) -> int:
    return sum(map(size_of, entries_in(folder)))
