"""One running model per file and process, shared by all its users: started, watched, ended.

Backends of any thread and event loop share a ``ModelServer``. It starts its child process when
first needed, again when that has died, and ends it with the last backend that uses it, or with
this process.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
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
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from llmsim_lab._util.text import log_event, printable
from llmsim_lab.errors import BackendError, ConfigError, LabError, ModelFileError
from llmsim_lab.llm._embedded.weights import check_fits
from llmsim_lab.llm._embedded.wire import extend
from llmsim_lab.llm._openai import OpenAIBackend

logger = logging.getLogger(__name__)

_LAST_LINES = 60
_SHOWN_LINES = 3


class ModelServer:
    """A model's child process, if it runs, and what is known of it.

    Attributes:
        gate: whoever talks to the child holds it.
        suspect_since: when a request was given up, by ``time.monotonic``, until it is known that
            the child noticed; else None.
    """

    def __init__(self, settings: ChildSettings, *, command: Sequence[str] | None = None) -> None:
        self.settings = settings
        self.gate = Gate()
        self.suspect_since: float | None = None
        self.users = 0
        self._command = command
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._closed = False

    def running(self, num_ctx: int) -> ChildProcess | None:
        """Return the child if it runs and its context window is large enough."""
        child = self._child
        if child is not None and child.alive and child.settings.num_ctx >= num_ctx:
            return child
        return None

    def start(self, num_ctx: int) -> ChildProcess:
        """Return a child with a context window that large; blocks while it starts.

        Raises:
            ConfigError: the runtime is missing or does not run here, or the model was not trained
                for such a window.
            ModelFileError: the file is not a model, or does not fit into memory.
            BackendError: it was not ready in time.
        """
        with self._lock:
            child = self.running(num_ctx)
            if child is not None:
                return child
            # Never less than before: it is shared, and others may need what they had.
            num_ctx = max(num_ctx, self.settings.num_ctx)
            path = self.settings.model
            # Before memory is checked: what it held is free then.
            self._end(then="starting it again")
            check_fits(path, num_ctx)
            self.settings = replace(self.settings, num_ctx=num_ctx)
            self.suspect_since = None
            self._child = child = ChildProcess(self.settings, command=self._command)
            log_event(
                logger,
                logging.INFO,
                "EMBEDDED_READY",
                model=path.name,
                pid=child.pid,
                num_ctx=num_ctx,
                threads=self.settings.threads,
                seconds=round(child.load_seconds, 2),
            )
            if self._closed:  # while it was starting, the last user left
                self._end()
            return child

    def discard(self, child: ChildProcess, cause: str) -> None:
        """End a child that does not answer any more."""
        with self._lock:
            if child is self._child:
                self._end(cause, then="the next request starts it again")
        self.suspect_since = None

    def stop(self) -> None:
        """End the child for good."""
        # Before taking the lock, which a start may hold for a minute; at its end it looks here.
        self._closed = True
        with self._lock:
            self._end()

    def _end(self, cause: str = "", *, then: str = "") -> None:
        """End the child, and say so if it did not do so in order."""
        child, self._child = self._child, None
        if child is None:
            return
        if then and not child.alive:
            cause = child.ending()
        if cause:
            name, pid = self.settings.model.name, child.pid
            words = f"The embedded model {name} has ended: {cause}; {then}."
            fields = {"model": name, "pid": pid, "cause": cause, "then": then}
            log_event(logger, logging.WARNING, "EMBEDDED_ENDED", words=words, **fields)
        child.stop()


_entries: dict[tuple[Path, int], ModelServer] = {}
_entries_lock = threading.Lock()
_owner = 0


def lease(settings: ChildSettings, *, command: Sequence[str] | None = None) -> ModelServer:
    """Return the server of a model, made by its first user with that one's settings.

    Args:
        settings: a later user may ask for a larger ``num_ctx``; each number of threads is a
            process of its own.
        command: runs in place of ``child.py``; for tests.
    """
    global _owner
    with _entries_lock:
        if _owner != os.getpid():
            _entries.clear()  # after a fork, the children belong to the parent process
            _owner = os.getpid()
            atexit.register(_stop_all, _owner)
        server = _entries.get(settings.key)
        if server is None:
            server = _entries[settings.key] = ModelServer(settings, command=command)
        server.users += 1
        return server


def release(server: ModelServer) -> None:
    """Release a server; the last user's release ends it."""
    with _entries_lock:
        # Else another process's, from before a fork.
        if _entries.get(server.settings.key) is not server:
            return
        server.users -= 1
        if server.users > 0:
            return
        del _entries[server.settings.key]
    server.stop()


def _stop_all(owner: int) -> None:
    if owner != os.getpid():  # a fork runs the parent's callbacks at its end, too
        return
    for server in list(_entries.values()):
        server.stop()


class Gate:
    """A lock for coroutines of different event loops; first come, first served.

    The runtime answers one request at a time anyway. A request that waits here can be cancelled at
    no cost, and if the process hangs, it is clear on which request.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = True
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._open:
                self._open = False
                return
            admitted = loop.create_future()
            self._waiters.append((loop, admitted))
        try:
            await admitted
        except BaseException:
            with self._lock:
                waiting = (loop, admitted) in self._waiters
                if waiting:
                    self._waiters.remove((loop, admitted))
            if not waiting:  # cancelled just as it was admitted: admit the next one instead
                self._pass_on()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        """Admit the next one in the queue whose loop still runs."""
        with self._lock:
            while self._waiters:
                loop, admitted = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(_admit, admitted)
                except RuntimeError:
                    continue  # that loop was closed with the request waiting
                return
            self._open = True


def _admit(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """The settings that the child gets.

    Attributes:
        model: the weights.
        num_ctx: context window, tokens.
        threads: for the computation.
        startup_timeout_s: longest wait until it is ready.
    """

    model: Path
    num_ctx: int
    threads: int
    startup_timeout_s: float

    @property
    def key(self) -> tuple[Path, int]:
        """What users must have in common to share a process."""
        return self.model, self.threads


def child_command() -> list[str]:
    """Return the command line of the child, without secrets, since other users can read it.

    Raises:
        ConfigError: there is no Python to run it with.
    """
    if not sys.executable:
        raise ConfigError(
            "the embedded model runs in a Python process of its own, but sys.executable is empty"
        )
    # -P: modules of this folder must not hide those of the runtime or the standard library.
    return [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]


class ChildProcess:
    """A running child that is ready to answer.

    Attributes:
        backend: asks it.
        address: where it listens.
        api_key: it answers only requests that carry this.
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
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = _start(command or child_command())
        self._readers = [
            _thread(self._read_stdout, self._process.stdout),
            _thread(self._read_stderr, self._process.stderr),
        ]
        try:
            self._instruct()
            ready = self._await_ready()
        except BaseException:  # also an interrupt while it loads: nobody else would end it
            self.stop()
            raise
        self.address = url = str(ready["ready"])
        self.backend = OpenAIBackend(base_url=f"{url}/v1", api_key=self.api_key, extend=extend)
        self.backend.server = replace(
            self.backend.server,
            who="the embedded model",
            kind="process of an embedded model",
            form="its protocol's",
            way_out="the next request starts it again",
            lasting=False,
        )
        self._server = replace(self.backend.server, url=url)
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
        # Not asked to end: it has nothing to save, and native code may not listen.
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=2)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                with suppress(BrokenPipeError):  # what was still to be written has no reader now
                    pipe.close()

    async def is_busy(self) -> bool:
        """Return True while it answers a request."""
        slots = await self._server.document("/slots")
        return any(slot.get("is_processing") for slot in slots)

    def ending(self) -> str:
        """Return how the child ended, and what it printed last."""
        try:  # its connection breaks a moment before it has ended
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it is still running but does not answer"
        for reader in self._readers:
            reader.join(timeout=2)
        how = f"exit status {code}"
        if code < 0:
            how = f"signal {signal.Signals(-code).name}" if -code in _SIGNALS else f"signal {-code}"
        return f"{how}{_HINTS.get(code, '')}{self._printed()}"

    def _instruct(self) -> None:
        # Through its standard input, since other users can read a command line.
        settings: dict[str, Any] = {
            "model": str(self.settings.model),
            "num_ctx": self.settings.num_ctx,
            "threads": self.settings.threads,
            "api_key": self.api_key,
        }
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(settings) + "\n")
            stdin.flush()
        except BrokenPipeError:
            return  # it has ended already; ``_await_ready`` reports how

    def _await_ready(self) -> dict[str, Any]:
        limit = self.settings.startup_timeout_s
        try:
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            raise BackendError(
                f"the embedded model was not ready within {limit:g} s; raise startup_timeout_s, "
                f"or check whether the machine is busy{self._printed()}",
                reason="timeout",
                retry=True,
            ) from None
        message: dict[str, Any] = {}
        with suppress(ValueError, TypeError):  # the runtime may have printed something else
            message = dict(json.loads(line or ""))
        if "ready" in message:
            return message
        raise self._failure(message.get("error"), str(message.get("detail", "")))

    def _failure(self, what: object, detail: str) -> LabError:
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
            self.ending()  # waits until all that it printed has been read
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
        # Read to the end, line by line: a full pipe would block the child.
        self._answers.put(pipe.readline() or None)
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
    # The runtime reads this as it is loaded. On a busy machine, spinning threads block the others.
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
