"""The backend for a small model that runs on this machine, in a child process."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmsim_lab.errors import BackendError, ConfigError, ModelFileError
from llmsim_lab.llm._embedded.server import ChildProcess, ChildSettings, ModelServer, lease, release
from llmsim_lab.llm._embedded.weights import (
    CatalogueModel,
    check_gguf,
    default_model,
    file_sha256,
    find_model,
    usable_cores,
    verified_path,
)
from llmsim_lab.llm._http import StatusError
from llmsim_lab.llm._retry import context_overflow
from llmsim_lab.types import ChatReply, ChatRequest, ModelInfo, OnText

_RUNTIME = "xllamacpp"
_POLL_S = 0.05
_LEAST_GRACE_S = 0.5
_UNNAMED = ("", "auto", "embedded")


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
        threads: for the computation; None takes the physical cores this process may use.
        startup_timeout_s: longest wait until the model is loaded.
        hang_grace_s: how long a given-up request may continue in the child before the child
            counts as hung.

    Raises:
        ConfigError: no model has that name, or a number is below 1.
        ModelFileError: the model is not on this machine, or the file is not a GGUF file.
    """

    max_top_logprobs = 100
    streams = True

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        num_ctx: int = 4096,
        threads: int | None = None,
        startup_timeout_s: float = 120.0,
        hang_grace_s: float = 10.0,
    ) -> None:
        for name, value in (("num_ctx", num_ctx), ("threads", threads)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} must be at least 1")
        self.name, self._known, self._path = _locate(model)
        check_gguf(self._path)
        self._trained = self._known.context_length if self._known else None
        self._settings = ChildSettings(
            model=self._path,
            num_ctx=num_ctx,
            threads=threads or usable_cores(),
            startup_timeout_s=startup_timeout_s,
        )
        self._hang_grace_s = hang_grace_s
        self._lock = threading.Lock()
        self._leased: ModelServer | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._digest: str | None = None

    def __repr__(self) -> str:
        return f"EmbeddedBackend({self.name!r}, num_ctx={self._settings.num_ctx})"

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        """Answer one request.

        Args:
            request: what is asked.
            on_text: is given each piece of the reply as it comes.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
            ConfigError: the runtime is missing or does not run on this machine.
            ModelFileError: the model cannot be loaded.
        """
        if request.model not in (*_UNNAMED, self.name, f"embedded:{self.name}"):
            raise BackendError(
                f"this backend runs {self.name!r} and was asked for {request.model!r}; "
                f"connect('embedded:{request.model}') runs that one",
                reason="model_not_found",
            )
        began = time.perf_counter()
        server = self._server()
        async with server.gate:
            reply = await self._answer(server, request, on_text)
        return replace(reply, seconds=time.perf_counter() - began)

    async def model_info(self) -> ModelInfo:
        """Return which model answers; does not load it.

        Raises:
            ModelFileError: the file is damaged or was removed.
        """
        if self._digest is None:
            self._digest = await asyncio.to_thread(self._hash)
        return ModelInfo(
            name=self.name,
            backend="embedded",
            digest=self._digest,
            context_length=self._trained,
            capabilities=("completion",),
            version=importlib.metadata.version(_RUNTIME) if runtime_installed() else None,
        )

    async def memory_bytes(self) -> int | None:
        """Return the memory that the model's process holds; None where it does not run."""
        import psutil  # here, since it takes long to import

        child = self._server().running(0)
        return None if child is None else psutil.Process(child.pid).memory_info().rss

    async def aclose(self) -> None:
        """Release the model; the last backend that uses it ends its process."""
        with self._lock:
            finalizer, self._finalizer, self._leased = self._finalizer, None, None
        if finalizer is not None:  # runs once, even if the backend is collected at the same moment
            await asyncio.to_thread(finalizer)

    def _server(self) -> ModelServer:
        with self._lock:
            if self._leased is None:
                self._leased = lease(self._settings)
                self._finalizer = weakref.finalize(self, release, self._leased)
            return self._leased

    def _hash(self) -> str:
        if self._known is not None:
            verified_path(self._known)
            return self._known.sha256
        return file_sha256(self._path)

    async def _answer(
        self, server: ModelServer, request: ChatRequest, on_text: OnText | None
    ) -> ChatReply:
        """Let the child answer; the caller holds the gate."""
        num_ctx, trained = self._settings.num_ctx, self._trained
        # The child may be loaded with a larger window than this request asks for.
        child, load_seconds = await self._child(server, request.options.get("num_ctx") or num_ctx)
        asked = replace(request, model=self.name, keep_alive=None)
        try:
            reply = await child.backend.chat(asked, on_text=on_text)
        except asyncio.CancelledError:
            # The child may not have noticed yet: the next request checks that before it asks.
            server.suspect_since = server.suspect_since or time.monotonic()
            raise
        except BackendError as error:
            if error.reason == "connection_error":
                server.suspect_since = time.monotonic()
                ending = await asyncio.to_thread(child.ending)
                raise BackendError(
                    f"the connection to the embedded model's process was lost: {ending}",
                    reason="connection_error",
                    retry=True,
                ) from error
            details = getattr(error.__cause__, "details", {})
            read, window = details.get("n_prompt_tokens"), details.get("n_ctx")
            if type(read) is type(window) is int:
                raise context_overflow(f"{read:,} tokens", window, trained=trained) from error
            raise
        return replace(reply, load_seconds=load_seconds)

    async def _child(self, server: ModelServer, num_ctx: int) -> tuple[ChildProcess, float]:
        """Return a child that is ready, and the seconds it took to get it."""
        if server.suspect_since is not None:
            await self._settle(server, server.suspect_since)
        child = server.running(num_ctx)
        if child is not None:
            return child, 0.0
        if not runtime_installed():
            raise ConfigError(
                "the embedded model's runtime is not installed: pip install 'llmsim-lab[embedded]'"
            )
        began = time.perf_counter()
        if self._known is not None:
            # In a thread, as the start: hashing and loading a gigabyte take seconds each.
            await asyncio.to_thread(verified_path, self._known)
        child = await asyncio.to_thread(server.start, num_ctx)
        return child, time.perf_counter() - began

    async def _settle(self, server: ModelServer, since: float) -> None:
        """Wait until the child has dropped a given-up request; end it if it does not."""
        child = server.running(0)
        if child is not None:
            grace = max(_LEAST_GRACE_S, self._hang_grace_s - (time.monotonic() - since))
            try:
                async with asyncio.timeout(grace):
                    while await child.is_busy():  # noqa: ASYNC110 - it is another process
                        await asyncio.sleep(_POLL_S)
            except (TimeoutError, BackendError, StatusError):
                if child.alive:
                    seconds = round(time.monotonic() - since, 1)
                    cause = f"hung: a request that was given up was still running {seconds} s later"
                    await asyncio.to_thread(server.discard, child, cause)
        server.suspect_since = None


def _locate(model: str | Path | None) -> tuple[str, CatalogueModel | None, Path]:
    """Return name, catalogue entry and file of what the user asks for."""
    if model is None or model in _UNNAMED:
        model = default_model()[0]
    text = str(model)
    # A slash stands in paths on Windows, too.
    if isinstance(model, Path) or text.endswith(".gguf") or os.sep in text or "/" in text:
        path = Path(text).expanduser().resolve()
        if not path.is_file():
            raise ModelFileError(f"there is no model file {path}")
        return text, None, path
    known = find_model(text)
    if not known.path.is_file():
        raise ModelFileError(
            f"the weights of {text!r} are not on this machine (no {known.path}); "
            f"'llmsim-lab model get {text}' fetches them"
        )
    return text, known, known.path
