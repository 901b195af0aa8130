"""The backend for a small model that runs on this machine, in a child process."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import time
from dataclasses import replace
from pathlib import Path

from llmsim_lab._util.checks import whole_number
from llmsim_lab.errors import BackendError, ConfigError, ModelFileError
from llmsim_lab.llm._embedded import weights
from llmsim_lab.llm._embedded.server import ChildProcess, shared_server
from llmsim_lab.types import ChatReply, ChatRequest, ModelInfo, OnText

_RUNTIME = "xllamacpp"
_UNNAMED = ("", "auto", "embedded")
_HANG_GRACE_S = 10.0
"""A child that was silent for so long when its request is given up counts as hung, and is ended."""


def runtime_installed() -> bool:
    """Return True if the runtime is installed; does not load it."""
    return importlib.util.find_spec(_RUNTIME) is not None


class EmbeddedBackend:
    """Answers requests by a model on this machine; nothing has to be installed or started.

    May be used from several event loops and threads. The model runs in a child process that
    all backends of the same model share, and that starts with the first request; requests are
    answered one at a time, in order. If the child dies or hangs, the next request starts it again.

    Args:
        model: a name of the catalogue, or a GGUF file; None takes what suits this machine.
        num_ctx: context window to load the model with, tokens; a request that asks for more
            loads it again.

    Raises:
        ConfigError: no model has that name, or the window is below 1.
        ModelFileError: the model is not on this machine.
    """

    max_top_logprobs = 100
    streams = True

    def __init__(self, model: str | Path | None = None, *, num_ctx: int = 4096) -> None:
        self.name = str(model or "")
        if self.name in _UNNAMED:
            self.name = weights.default_model()[0]
        is_own = isinstance(model, Path) or is_file(self.name)
        self._known = None if is_own else weights.find_model(self.name)
        self._path = self._known.path if self._known else Path(self.name).expanduser().resolve()
        if not self._path.is_file():
            raise ModelFileError(
                f"there is no model file {self._path}"
                if is_own
                else f"the weights of {self.name!r} are not on this machine (no {self._path}); "
                f"'llmsim-lab model get {self.name}' fetches them, or connect(..., download=True)"
            )
        self._num_ctx = whole_number("num_ctx", num_ctx, least=1)
        self._server = shared_server(self._path)

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        """Answer one request.

        Args:
            request: what is asked.
            on_text: is given each piece of the reply as it comes.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
            ConfigError: the runtime is missing or does not run on this machine, or the model was
                not trained for so large a context window.
            ModelFileError: the model cannot be loaded.
        """
        if request.model not in (*_UNNAMED, self.name, f"embedded:{self.name}"):
            text = f"this backend runs {self.name!r} and was asked for {request.model!r}"
            way_out = f"connect('embedded:{request.model}') runs that one"
            raise BackendError(f"{text}; {way_out}", reason="model_not_found")
        began = time.perf_counter()
        self._server.users.add(self)
        async with self._server.turn(on_text):
            reply = await self._answer(request, on_text)
        return replace(reply, seconds=time.perf_counter() - began)

    async def model_info(self) -> ModelInfo:
        """Return which model answers; does not load it.

        Raises:
            ModelFileError: the file is damaged or was removed.
        """
        if self._known is not None:
            await asyncio.to_thread(weights.verified_path, self._known)
        digest = await asyncio.to_thread(weights.file_sha256, self._path)
        version = importlib.metadata.version(_RUNTIME) if runtime_installed() else None
        return ModelInfo(name=self.name, backend="embedded", digest=digest, version=version)

    async def aclose(self) -> None:
        """Release the model; the last backend that uses it ends its process."""
        self._server.users.discard(self)
        if not self._server.users:
            self._server.stop()

    async def _answer(self, request: ChatRequest, on_text: OnText | None) -> ChatReply:
        """Let the child answer; it has no other request meanwhile."""
        began, load_seconds = time.monotonic(), 0.0
        num_ctx = request.options.get("num_ctx") or self._num_ctx
        child = self._server.running(num_ctx)
        if child is None:
            # In a thread: hashing and loading a gigabyte take seconds each.
            child = await asyncio.to_thread(self._start, num_ctx)
            load_seconds = time.monotonic() - began
        heard = time.monotonic()

        def hear(piece: str) -> None:
            nonlocal heard
            heard = time.monotonic()
            if on_text is not None:
                on_text(piece)

        asked = replace(request, model=self.name, keep_alive=None)
        try:
            reply = await child.backend.chat(asked, on_text=hear)
        except asyncio.CancelledError:
            silent_s = time.monotonic() - heard
            if silent_s >= _HANG_GRACE_S:
                self._server.stop(f"hung: it was silent for {silent_s:.1f} s")
            raise
        except BackendError as error:
            if error.reason == "connection_error":
                ending = await asyncio.to_thread(child.ending)
                self._server.stop(ending)
                text = f"the connection to the embedded model's process was lost: {ending}"
                raise BackendError(text, reason="connection_error", retry=True) from error
            raise
        return replace(reply, load_seconds=load_seconds)

    def _start(self, num_ctx: int) -> ChildProcess:
        """Return a child that is ready; blocks."""
        if known := self._known:
            if num_ctx > (trained := known.context_length):
                raise ConfigError(
                    f"num_ctx={num_ctx} but {self.name} was trained for at most {trained} tokens "
                    f"of context; take num_ctx={trained} or another model"
                )
            weights.verified_path(known)
        return self._server.start(num_ctx)


def is_file(name: str) -> bool:
    """Return True if a name is meant as a file's."""
    return name.endswith(".gguf") or os.sep in name or "/" in name
