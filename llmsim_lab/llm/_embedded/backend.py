"""The backend for a small model that runs on this machine, in a child process."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import httpx

from llmsim_lab.errors import BackendError, ConfigError, ModelFileError
from llmsim_lab.llm._connections import Shared
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
from llmsim_lab.llm._embedded.wire import (
    MARKER,
    Outgoing,
    collect,
    json_object,
    outgoing,
    probe_of,
    raise_error,
    read_tool_reply,
    shape_of,
)
from llmsim_lab.llm._retry import context_overflow
from llmsim_lab.llm._transport import STREAMED, GuardedTransport, read_json
from llmsim_lab.types import ChatReply, ChatRequest, ModelInfo, OnText

_RUNTIME = "xllamacpp"
_POLL_S = 0.05
_LEAST_GRACE_S = 0.5
_UNNAMED = ("", "auto", "embedded")
_CHILDREN = "children"
"""What all children's clients are shared by; their addresses differ."""


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
    streams: bool | Literal["always"] = "always"

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
        sent = outgoing(request)
        began = time.perf_counter()
        server = self._server()
        try:
            async with asyncio.timeout(request.timeout_s), server.gate:
                reply = await self._answer(server, sent, on_text)
        except TimeoutError:
            raise BackendError(
                f"no reply from the embedded model within {request.timeout_s:g} s (requests are "
                "answered one after the other); raise timeout_s, or have fewer at once",
                reason="timeout",
                retry=True,
            ) from None
        if request.tools:
            reply = read_tool_reply(reply)
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
            capabilities=("completion", "tools"),
            version=importlib.metadata.version(_RUNTIME) if runtime_installed() else None,
        )

    async def memory_bytes(self) -> int | None:
        """Return the memory that the model's process holds; None where it does not run."""
        import psutil  # here, since it takes long to import

        child = self._server().running(0)
        return None if child is None else psutil.Process(child.pid).memory_info().rss

    async def aclose(self) -> None:
        """Release the model; the last backend that uses it ends its process."""
        await _shared.release(_CHILDREN, self)
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
        self, server: ModelServer, sent: Outgoing, on_text: OnText | None
    ) -> ChatReply:
        """Let the child answer; the caller holds the gate."""
        num_ctx, trained = sent.num_ctx or self._settings.num_ctx, self._trained
        child, load_seconds = await self._child(server, num_ctx)
        async with self._talking_to(server, child):
            if sent.schema is not None:
                await self._check_understood(server, child, sent)
            call = _call(child, "/v1/chat/completions", sent)
            client = await _shared.get(_CHILDREN, self)
            async with client.stream("POST", **call, extensions=STREAMED) as response:
                if response.status_code != 200:
                    body = _json_of(await response.aread())
                    raise_error(body, response.status_code, trained=trained)
                reply = await collect(response.aiter_bytes(), trained=trained, on_text=on_text)
        if reply.prompt_tokens is not None and reply.prompt_tokens > num_ctx:
            # The child may be loaded with a larger window than this request asks for.
            raise context_overflow(f"{reply.prompt_tokens:,} tokens", num_ctx, trained=trained)
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
                    while await self._busy(child):  # noqa: ASYNC110 - it is another process
                        await asyncio.sleep(_POLL_S)
            except (TimeoutError, httpx.TransportError, BackendError, ValueError):
                if child.alive:
                    seconds = round(time.monotonic() - since, 1)
                    cause = f"hung: a request that was given up was still running {seconds} s later"
                    await asyncio.to_thread(server.discard, child, cause)
        server.suspect_since = None

    async def _busy(self, child: ChildProcess) -> bool:
        client = await _shared.get(_CHILDREN, self)
        response = await client.get(**_call(child, "/slots"))
        return any(slot.get("is_processing") for slot in read_json(response.content))

    async def _check_understood(
        self, server: ModelServer, child: ChildProcess, sent: Outgoing
    ) -> None:
        """Raise if the runtime would silently ignore the schema; asked once per shape."""
        assert sent.schema is not None
        shape = shape_of(sent.schema)
        if shape in server.understood:
            return
        probe = {"prompt": "x", "n_predict": 4, "temperature": 0, "cache_prompt": False}
        fields = Outgoing(fields={**probe, "grammar": probe_of(sent.schema)})
        client = await _shared.get(_CHILDREN, self)
        response = await client.post(**_call(child, "/completion", fields))
        body = _json_of(response.content)
        if response.status_code != 200 or "content" not in body:
            raise_error(body, response.status_code)
        text = str(body["content"])
        # Four tokens may end within the marker; its first character alone may be chance.
        if len(text) < 2 or not (text.startswith(MARKER) or MARKER.startswith(text)):
            raise BackendError(
                "the embedded model cannot be held to this JSON schema; simplify it "
                f"({await child.complaint('llg error')})",
                reason="client_error",
            )
        server.understood.add(shape)

    @asynccontextmanager
    async def _talking_to(self, server: ModelServer, child: ChildProcess) -> AsyncIterator[None]:
        """Turn a lost connection into an error that says how the child ended."""
        try:
            yield
        except asyncio.CancelledError:
            # The child may not have noticed yet: the next request checks that before it asks.
            server.suspect_since = server.suspect_since or time.monotonic()
            raise
        except httpx.TransportError as error:
            server.suspect_since = time.monotonic()
            ending = await asyncio.to_thread(child.ending)
            raise BackendError(
                f"the connection to the embedded model's process was lost: {ending}",
                reason="connection_error",
                retry=True,
            ) from error


def _open_client(_: str) -> httpx.AsyncClient:
    """Return a client for children, without a proxy, since they are on this host."""
    # No connection outlives its request: the child that had it may be gone by then.
    limits = httpx.Limits(max_keepalive_connections=0)
    inner = httpx.AsyncHTTPTransport(trust_env=False, verify=False, limits=limits)
    transport = GuardedTransport(inner, who="the embedded model's process")
    return httpx.AsyncClient(transport=transport, timeout=None)


_shared = Shared(_open_client)


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


def _call(child: ChildProcess, route: str, sent: Outgoing | None = None) -> dict[str, Any]:
    call: dict[str, Any] = {
        "url": f"{child.address}{route}",
        "headers": {"Authorization": f"Bearer {child.api_key}"},
    }
    return call | {"json": sent.fields} if sent else call


def _json_of(content: bytes) -> dict[str, Any]:
    return json_object(content) or {"error": content.decode(errors="replace")[:300]}
