"""The process that runs a model: started when first needed, and again when it has died.

All backends of a model in this process share a ``ModelServer``, and so its child process, which
ends when the last of them is closed or forgotten, or with this process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from llmsim_lab._util.text import log_event, printable
from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm._embedded.weights import usable_cores
from llmsim_lab.llm._embedded.wire import extend
from llmsim_lab.llm._openai import OpenAIBackend
from llmsim_lab.types import OnText

logger = logging.getLogger(__name__)

_SCRIPT = Path(__file__).with_name("child.py")
_POLL_S = 0.02
_STARTUP_S = 120.0
"""Longest wait until the model is loaded."""
_EXIT_S = 2.0
_SHOWN_CHARS = 600
_HINTS = {
    "SIGILL": " (an illegal instruction: the runtime needs a newer processor, x86 with AVX2)",
    "SIGKILL": " (it was killed: by hand, or because the machine ran out of memory)",
}


class ModelServer:
    """A model's child process, if it runs, and the requests that wait for it.

    Attributes:
        users: the backends that are not closed.
        child: the process; None where none was started, or it was ended.
    """

    def __init__(self, model: Path) -> None:
        self.users: weakref.WeakSet[object] = weakref.WeakSet()
        self.child: ChildProcess | None = None
        self._model, self._num_ctx = model, 0
        self._waiting: list[object] = []
        self._starting = threading.Lock()

    @asynccontextmanager
    async def turn(self, on_text: OnText | None = None) -> AsyncIterator[None]:
        """Wait until all earlier requests are answered, also those of other event loops.

        The runtime has a queue of its own, but says nothing to those that wait there.

        Args:
            on_text: is given empty pieces meanwhile, as while the child reads a prompt.
        """
        ticket = object()
        self._waiting.append(ticket)
        try:
            while self._waiting[0] is not ticket:
                if on_text is not None:
                    on_text("")
                await asyncio.sleep(_POLL_S)
            yield
        finally:
            self._waiting.remove(ticket)

    def running(self, num_ctx: int = 0) -> ChildProcess | None:
        """Return the child if it runs and its context window is large enough."""
        child = self.child
        return child if child and child.alive and child.num_ctx >= num_ctx else None

    def start(self, num_ctx: int) -> ChildProcess:
        """Return a child with a context window that large; blocks while it starts.

        Raises:
            ConfigError: the runtime cannot be loaded.
            ModelFileError: the model cannot be loaded, or not in time.
        """
        with self._starting:  # a start that was given up continues in its thread
            if child := self.running(num_ctx):
                return child
            if self.child is not None:
                self.stop("" if self.child.alive else self.child.ending())
            # Never less than before: other users may need what they had.
            self._num_ctx = max(num_ctx, self._num_ctx)
            self.child = child = ChildProcess(self._model, self._num_ctx)
            if not self.users:  # the last one left meanwhile
                self.stop()
            return child

    def stop(self, cause: str = "") -> None:
        """End the child; log why if there is a cause."""
        child, self.child = self.child, None
        if child is None:
            return
        child.stop()
        if cause:
            name = self._model.name
            words = f"The embedded model {name} has ended: {cause}; the next request starts it."
            fields = {"model": name, "pid": child.pid, "cause": cause}
            log_event(logger, logging.WARNING, "EMBEDDED_ENDED", words=words, **fields)


_servers: weakref.WeakValueDictionary[tuple[int, Path], ModelServer] = weakref.WeakValueDictionary()


def shared_server(model: Path) -> ModelServer:
    """Return the server that all backends of a model share."""
    # After a fork, children belong to the parent process.
    return _servers.setdefault((os.getpid(), model), ModelServer(model))


class ChildProcess:
    """A process that serves a model on this machine; ready once it is made.

    It ends with the last reference to it.

    Attributes:
        backend: asks it, with the key that it demands.
        num_ctx: its context window, tokens.
        pid: its process id.
        stop: ends it at once.

    Raises:
        ConfigError: the runtime cannot be loaded.
        ModelFileError: the model cannot be loaded, or not in time.
    """

    def __init__(self, model: Path, num_ctx: int) -> None:
        self.num_ctx = num_ctx
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            # -P: modules of this folder must not hide those of the runtime.
            [sys.executable, "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            bufsize=0,
            # Read as the runtime is loaded. On a busy machine, spinning threads block the others.
            env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONUTF8": "1"},
            start_new_session=True,  # an interrupt of the notebook's kernel is not for the child
        )
        self.pid = self._process.pid
        self.stop = weakref.finalize(self, _end, self._process, self._printed)
        key = secrets.token_urlsafe(24)
        settings = {"model": str(model), "num_ctx": num_ctx, "threads": usable_cores()}
        try:
            url = self._address({**settings, "api_key": key})
        except BaseException:  # also an interrupt while it loads
            self.stop()
            raise
        self.backend = OpenAIBackend(base_url=url, api_key=key, extend=extend)
        self.backend.server = replace(
            self.backend.server,
            who="the embedded model",
            wider="raise LLMConfig.num_ctx, up to what the model was trained for",
            lasting=False,  # the runtime closes them, at times just as the next request is sent
        )

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def ending(self) -> str:
        """Return how the child ended, and what it printed last."""
        with suppress(subprocess.TimeoutExpired):  # its connection breaks a moment before it ends
            self._process.wait(timeout=_EXIT_S)
        code = self._process.returncode
        how = f"exit status {code}"
        if code is None:
            how = "it is still running but does not answer"
        elif code < 0:
            name = signal.Signals(-code).name
            how = f"signal {name}{_HINTS.get(name, '')}"
        self._printed.seek(0)
        text = self._printed.read().decode(errors="replace")
        last = " ".join(printable(text, keep="\n").split())[-_SHOWN_CHARS:]
        return f"{how}; it printed last: {last}" if last else how

    def _address(self, settings: dict[str, object]) -> str:
        """Give the child its settings, and return where it listens once it is ready."""
        stdin, stdout, began = self._process.stdin, self._process.stdout, time.monotonic()
        assert stdin is not None
        assert stdout is not None
        deadline = threading.Timer(_STARTUP_S, self._process.kill)
        deadline.daemon = True
        deadline.start()
        with suppress(BrokenPipeError):  # it has ended already
            # Not on the command line, which other users can read.
            stdin.write(json.dumps(settings).encode() + b"\n")
        message = json.loads(stdout.readline() or b"{}")
        deadline.cancel()
        if "ready" in message:
            return str(message["ready"])
        if "missing" in message:
            raise ConfigError(
                f"the embedded model's runtime cannot be loaded ({message['missing']}); "
                "pip install 'llmsim-lab[embedded]' installs it; on Linux it needs libgomp.so.1: "
                "'apt-get install libgomp1' or 'dnf install libgomp'"
            )
        is_late = time.monotonic() - began >= _STARTUP_S
        why = f"it was not ready within {_STARTUP_S:g} s" if is_late else self.ending()
        raise ModelFileError(
            f"{settings['model']} cannot be loaded with num_ctx={settings['num_ctx']}: {why}; the "
            "file may be damaged or too new for the runtime, or the machine busy"
        )


def _end(process: subprocess.Popen[bytes], printed: IO[bytes]) -> None:
    # Not asked to end: it has nothing to save, and native code may not listen.
    with printed, process:
        process.kill()
