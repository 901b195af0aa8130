"""The backend for a small model that runs on this machine, in a child process.

The process is started when first needed, and again when it has died. All backends of a model in
this process share it; it ends when the last of them is closed or forgotten, or with this process.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import logging
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.copies import Shared
from llmsim_lab._util.files import path_from_home
from llmsim_lab._util.text import log_event, printable
from llmsim_lab.errors import BackendError, ModelFileError
from llmsim_lab.llm._access import without_locals
from llmsim_lab.llm._limits import Limits
from llmsim_lab.llm.embedded import weights
from llmsim_lab.llm.embedded.wire import extend
from llmsim_lab.llm.openai import OpenAIBackend, TracedToken
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest, ModelInfo, OnText

logger = logging.getLogger(__name__)

_RUNTIME = "xllamacpp"
_UNNAMED = ("", "auto", "embedded")
_HANG_GRACE_S = 10.0
"""A child that was silent for so long when its request is given up counts as hung, and is ended."""
_SCRIPT = Path(__file__).with_name("child.py")
_POLL_S = 0.02
_STARTUP_S = 120.0
"""Longest wait until the model is loaded."""
_START_GRACE_S = 10.0
_MOST_LINES = 1_000
_MOST_LINE_BYTES = 1_000
"""Of what a child prints before its address."""
_EXIT_S = 2.0
_READ_BYTES = 10_000
"""Of what a child printed, for what is shown of it."""
_MOST_PRINTED_BYTES = 1_000_000
"""Of what a child printed, from one request to the next."""
_SHOWN_CHARS = 600
_ENDINGS = {
    None: "it is still running but does not answer",
    -4: "signal SIGILL (the runtime needs a newer processor, x86 with AVX2)",
    -6: "signal SIGABRT (the runtime gave up)",
    -9: "signal SIGKILL (it was killed: by hand, or because the machine ran out of memory)",
    -11: "signal SIGSEGV",
}
"""By what a process returned."""


def runtime_installed() -> bool:
    """Return True if the runtime is installed; does not load it."""
    return importlib.util.find_spec(_RUNTIME) is not None


def is_file(name: str) -> bool:
    """Return True if a name is meant as a file's."""
    return name.endswith(".gguf") or os.sep in name or "/" in name


class EmbeddedBackend(Shared, ChatBackend):
    """Answers requests by a model on this machine; nothing has to be installed or started.

    May be used from several event loops and threads. The model runs in a child process that
    all backends of the same model share, and that starts with the first request; requests are
    answered one at a time, in order. If the child dies or hangs, the next request starts it again.

    Args:
        model: a name of the catalogue, or a GGUF file; None takes what suits this machine.
        num_ctx: context window to load the model with, tokens; a request that asks for more
            loads it again.

    Raises:
        ConfigError: no model or file has that name, or the window is below 1.
        ModelFileError: the model is not on this machine.
    """

    max_top_logprobs = 100
    streams = True

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        num_ctx: int = 4096,
    ) -> None:
        self._num_ctx = whole_number(
            "num_ctx",
            num_ctx,
            least=1,
        )
        self.name = str(model or "")
        if self.name in _UNNAMED:
            self.name = weights.default_model()[0]
        self._listed: weights.CatalogueModel | None = None
        """The model in the catalogue; None for a file of the user's own."""
        if isinstance(model, Path) or is_file(self.name):
            self._path = path_from_home("model", self.name).resolve()
        else:
            self._listed = weights.find_model(self.name)
            self._path = self._listed.path
        try:
            is_there = self._path.is_file()
        except OSError as error:  # its folder may not be looked into
            raise ModelFileError(
                f"the model file {self._path} cannot be read: {error.strerror}"
            ) from error
        if not is_there:
            fetch_hint = ""
            if self._listed is not None:
                fetch_hint = (
                    f"; 'llmsim-lab model get {self.name}', or connect(..., download=True), "
                    "fetches it"
                )
            raise ModelFileError(f"there is no model file {self._path}{fetch_hint}")
        # One process for all clients of a model: two would take twice the memory.
        self._server = shared_server(self._path)
        self.client_limits = self._server.limits

    def __reduce__(self) -> tuple[object, ...]:
        """Leave the model's process out: another one loads the model again."""
        model = self._path if self._listed is None else self.name
        make = partial(
            type(self),
            model,
            num_ctx=self._num_ctx,
        )
        return make, ()

    async def chat(
        self,
        request: ChatRequest,
        *,
        on_text: OnText | None = None,
    ) -> ChatReply:
        """Answer one request.

        Args:
            request: what is asked.
            on_text: is given each piece of the reply as it comes.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
            ModelFileError: the runtime or the model cannot be loaded.
        """
        if request.model not in (*_UNNAMED, self.name, f"embedded:{self.name}"):
            raise BackendError(
                f"this backend runs {self.name!r} and was asked for {request.model!r}; "
                f"connect('embedded:{request.model}') runs that one",
                reason="model_not_found",
            )
        began = time.perf_counter()
        self._server.users.add(self)
        async with self._server.turn(on_text):
            child, load_seconds = await self._running(request.options.get("num_ctx"))
            reply = await self._server.ask(child, request, on_text)
        seconds = time.perf_counter() - began
        return replace(reply, seconds=seconds, load_seconds=load_seconds)

    async def traced(self, request: ChatRequest) -> list[TracedToken]:
        """Return the tokens of a reply with what else was likely; see ``OpenAIBackend.traced``."""
        self._server.users.add(self)
        async with self._server.turn():
            child, _ = await self._running(request.options.get("num_ctx"))
            return await child.backend.traced(request)

    async def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has for the model, without those of a chat's form.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
            ModelFileError: the runtime or the model cannot be loaded.
        """
        self._server.users.add(self)
        async with self._server.turn():
            child, _ = await self._running()
            return await child.backend.tokens_in(text)

    async def _running(self, num_ctx: int | None = None) -> tuple[ChildProcess, float]:
        """Return the child, started if need be, and how many seconds that took.

        Args:
            num_ctx: the context window that a request asks for; the backend's own if not given.
        """
        num_ctx = num_ctx or self._num_ctx
        child = self._server.running(num_ctx)
        if child is not None:
            return child, 0.0
        loading = time.perf_counter()
        # In threads: hashing and loading a gigabyte take seconds each.
        if self._listed is not None:
            await asyncio.to_thread(weights.checked, self._path, self._listed)
        child = await asyncio.to_thread(self._server.start, num_ctx)
        return child, time.perf_counter() - loading

    async def phase(self, request: ChatRequest) -> str:
        """Return ``loading`` until the child runs; if it dies, its connection tells at once."""
        return "reading" if self._server.running() else "loading"

    async def model_info(self) -> ModelInfo:
        """Return which model answers; does not load it.

        Raises:
            ModelFileError: the file was removed.
        """
        digest = await asyncio.to_thread(weights.file_sha256, self._path)
        # A tape may be looked at where the runtime is not installed.
        version = None
        if runtime_installed():
            version = importlib.metadata.version(_RUNTIME)
        return ModelInfo(
            name=self.name,
            backend="embedded",
            digest=digest,
            version=version,
        )

    async def aclose(self) -> None:
        """Release the model; the last backend that uses it ends its process."""
        self._server.users.discard(self)
        if not self._server.users:
            self._server.stop()


class ModelServer:
    """A model's child process, if it runs, and the requests that wait for it.

    Attributes:
        users: the backends that are not closed.
        child: the process; None where none was started, or it was ended.
        limits: of the clients, for whose requests the queue does not count.
    """

    def __init__(self, model: Path) -> None:
        self.users: weakref.WeakSet[object] = weakref.WeakSet()
        self.child: ChildProcess | None = None
        self.limits = Limits(1)
        self._model = model
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
        if child is None or not child.alive or child.num_ctx < num_ctx:
            return None
        return child

    def start(self, num_ctx: int) -> ChildProcess:
        """Return a child with a context window that large; blocks while it starts.

        Raises:
            ModelFileError: the runtime or the model cannot be loaded, or not in time.
        """
        with self._starting:  # a start that was given up continues in its thread
            running = self.running(num_ctx)
            if running is not None:
                return running
            if self.child is not None:
                # One that lives has too small a window; that is no fault to log.
                self.stop("" if self.child.alive else self.child.ending())
            child = ChildProcess(self._model, num_ctx)
            self.child = child
            if not self.users:  # the last one left meanwhile
                self.stop()
            return child

    async def ask(
        self,
        child: ChildProcess,
        request: ChatRequest,
        on_text: OnText | None,
    ) -> ChatReply:
        """Let the child answer a request; it has no other one meanwhile."""
        child.forget_printed()
        heard = time.monotonic()

        def hear(piece: str) -> None:
            nonlocal heard
            heard = time.monotonic()
            if on_text is not None:
                on_text(piece)

        try:
            return await child.backend.chat(request, on_text=hear)
        except asyncio.CancelledError:
            silent_s = time.monotonic() - heard
            if silent_s >= _HANG_GRACE_S:
                self.stop(f"hung: it was silent for {silent_s:.1f} s")
            raise
        except BackendError as error:
            if error.reason != "connection_error":
                raise
            if not self.users:
                raise BackendError(
                    "the client was closed while the embedded model answered",
                    reason="connection_error",
                ) from error
            ending = await asyncio.to_thread(child.ending)
            self.stop(ending)
            raise BackendError(
                f"the connection to the embedded model's process was lost: {ending}",
                reason="connection_error",
                retry=True,
            ) from error

    def stop(self, cause: str = "") -> None:
        """End the child; log why if there is a cause."""
        child = self.child
        self.child = None
        if child is None:
            return
        child.stop()
        if cause:
            name = self._model.name
            log_event(
                logger,
                logging.WARNING,
                "EMBEDDED_ENDED",
                words=f"The embedded model {name} has ended: {cause}; the next request starts it.",
                model=name,
                cause=cause,
            )


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
        stop: ends it at once.

    Raises:
        ModelFileError: the runtime or the model cannot be loaded, or not in time.
    """

    @without_locals
    def __init__(self, model: Path, num_ctx: int) -> None:
        self.num_ctx = num_ctx
        # A file and no pipe: nobody reads it while the child runs, and a full pipe would stop it.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
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
        self.stop = weakref.finalize(self, _end, self._process)
        weakref.finalize(self, self._printed.close)  # later: how it ended may still be asked
        # The runtime's server listens on loopback, where any program of the machine can ask it.
        key = secrets.token_urlsafe(24)
        settings = (str(model), num_ctx, weights.usable_cores(), _STARTUP_S, key)
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            # Not on the command line, which other users can read.
            stdin.write(json.dumps(settings).encode() + b"\n")
        limit_s = _STARTUP_S + _START_GRACE_S
        began = time.monotonic()
        url = self._address(limit_s)
        if not url:
            ending = self.ending()
            if time.monotonic() - began >= limit_s:
                ending = f"it was not ready after {limit_s:g} s"
            self.stop()
            raise ModelFileError(
                f"{model} cannot be loaded with num_ctx={num_ctx}: {ending}; see that the "
                "machine is not too busy, that the file is whole and not too new for the runtime, "
                "and that the runtime is installed (pip install 'llmsim-lab[embedded]'; on Linux "
                "it needs libgomp.so.1: 'apt-get install libgomp1' or 'dnf install libgomp')"
            )
        self.backend = OpenAIBackend(
            model.name,
            base_url=url,
            api_key=key,
            extend=extend,
        )
        self.backend.server = replace(
            self.backend.server,
            name="the embedded model",
            larger_window="raise LLMConfig.num_ctx, up to what the model was trained for",
        )

    def _address(self, limit_s: float) -> str:
        """Return where the child is ready; an empty text if it is not, and prints something else.

        Args:
            limit_s: after which it is ended. Its own limit is shorter, but a frozen process has
                none.
        """
        stdout = self._process.stdout
        assert stdout is not None
        limit = threading.Timer(limit_s, self._process.kill)
        limit.daemon = True
        limit.start()
        try:
            # What an environment's own modules print as Python starts comes first.
            for _ in range(_MOST_LINES):
                line = stdout.readline(_MOST_LINE_BYTES)
                if line.startswith(b"http://127.0.0.1:") and line.endswith(b"\n"):
                    return line.decode(errors="replace").strip()
                if not line:
                    break
        finally:
            limit.cancel()
        return ""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def forget_printed(self) -> None:
        """Empty the file of what the child printed if it is large: a class may ask for weeks."""
        file = self._printed.fileno()
        if os.fstat(file).st_size > _MOST_PRINTED_BYTES:
            # The child has the same place in the file, and so continues at its beginning.
            os.lseek(file, 0, os.SEEK_SET)
            os.ftruncate(file, 0)

    def ending(self) -> str:
        """Return how the child ended, and what it printed last."""
        with suppress(subprocess.TimeoutExpired):  # its connection breaks a moment before it ends
            self._process.wait(timeout=_EXIT_S)
        code = self._process.returncode
        if code in _ENDINGS:
            ending = _ENDINGS[code]
        elif code < 0:
            ending = f"signal {-code}"
        else:
            ending = f"exit status {code}"
        # The end alone: a runtime may have printed for hours.
        size_bytes = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size_bytes - _READ_BYTES))
        text = self._printed.read(_READ_BYTES).decode(errors="replace")
        words = " ".join(printable(text, keep="\n").split())
        last_words = words[-_SHOWN_CHARS:]
        if not last_words:
            return ending
        return f"{ending}; it printed last: {last_words}"


def _end(process: subprocess.Popen[bytes]) -> None:
    # Not asked to end: it has nothing to save, and native code may not listen.
    with process:
        process.kill()
