"""The backend for Ollama servers: ``/api/chat`` as a stream; all else by the official client.

Its chat has no parameter ``truncate``, without which a server cuts an overlong prompt silently.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import time
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import ollama

from llmsim_lab._util.text import clip, log_event, printable
from llmsim_lab.errors import BackendError
from llmsim_lab.llm._extract import alternatives
from llmsim_lab.llm._http import (
    Server,
    StatusError,
    Written,
    as_object,
    count,
    is_framed,
    read_address,
    read_json,
    run_aside,
    text_of,
    without_locals,
)
from llmsim_lab.llm._retry import context_overflow, window_left
from llmsim_lab.types import ChatReply, ChatRequest, Message, ModelInfo, OnText, ToolCall

logger = logging.getLogger(__name__)

SUGGESTED_MODEL = "llama3.1:8b"
"""What to pull where there is no model, or only a very small one; 4.9 GB."""
OLDEST = (0, 24)
"""The oldest version whose protocol is known: it says that a prompt does not fit."""
_LIST_TIMEOUT_S = 2.0
_UNNAMED = ("", "auto")
_LEAST_TRAINED = 512
"""No model that chats was trained for a shorter context."""
_MAX_NANOSECONDS = 10**18
_DEFAULT_PORT = 11434
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_OF_THE_API = re.compile(r"/(?:api|v1)(?:/(?:chat|generate|tags|chat/completions))?$")
"""What people often copy with an address: the path of Ollama's protocol, or OpenAI's."""
_WRONG_REQUEST = re.compile(
    r"option \".*\" must be of type|option \".*\" must be of an array|invalid format:"
    r"|invalid JSON schema in format|failed to parse grammar",
    re.IGNORECASE,
)
"""Errors with status 500, of older and newer servers, that the request itself causes."""
_OVERFLOW = re.compile(
    r"exceeds the available context size|exceeds (?:the )?(?:maximum )?context length"
    r"|exceed_context_size_error",
    re.IGNORECASE,
)


class OllamaBackend:
    """Answers requests by an Ollama server.

    May be used from several event loops and threads; all backends of one server share its
    connections in a loop. Bounds neither time nor concurrency: ``LLMClient`` does.

    Args:
        model: taken where a request names none (or ``auto``); without one, a model that is loaded,
            else the one pulled last, embedding models left out.
        host: the server; by default ``$OLLAMA_HOST``, else ``127.0.0.1:11434``.

    Raises:
        ConfigError: the host makes no sense.
    """

    streams = True
    max_top_logprobs = 20

    @without_locals
    def __init__(self, model: str | None = None, *, host: str | None = None) -> None:
        self.host = parse_host(host)
        self.server = _server(self.host)
        self._model = None if model in _UNNAMED else model
        self._version = ""
        self._thinkless: set[str] = set()
        self._trained: dict[str, int | None] = {}

    def __repr__(self) -> str:
        return f"OllamaBackend({self._model!r}, host={self.host!r})"

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        """Answer one request.

        Args:
            request: what is asked.
            on_text: is given each piece of the reply as it comes.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
        """
        if not self._version:
            self._version, found = "?", ""  # others need not ask, too
            try:
                found = await _version(self.server)
            except BackendError as error:  # of which the request itself will tell
                found = "" if error.reason == "connection_error" else "unknown"
            finally:
                self._version = found
        _check_age(self._version, self.server)
        model = await self._resolve(request.model)
        think = None if full_name(model) in self._thinkless else request.think
        try:
            try:
                reply = await self._exchange(model, request, think, on_text)
            except StatusError as error:
                if think is None or "does not support thinking" not in error.text:
                    raise
                # Remembered, so that each later request of the run is made once and not twice.
                self._thinkless.add(full_name(model))
                log_event(
                    logger,
                    logging.INFO,
                    "think_unsupported",
                    model=model,
                    host=self.host,
                    asked=request.think,
                    detail="continuing without",
                )
                reply = await self._exchange(model, request, None, on_text)
        except StatusError as error:
            raise await self._fault(error, model, request) from error
        num_ctx = request.options.get("num_ctx")
        used = (reply.prompt_tokens or 0) + (reply.reply_tokens or 0)
        if num_ctx is not None and used > min(num_ctx, _LEAST_TRAINED):
            if model not in self._trained:
                self._trained[model] = await self._trained_length(model)
            trained = self._trained[model]
            if used > min(num_ctx, trained or num_ctx):
                # The server dropped the start of a full window and let the model write on.
                raise window_left(reply, num_ctx, trained=trained)
        return reply

    async def model_info(self) -> ModelInfo:
        """Return which model answers: digest, context length, capabilities, the server's version.

        Raises:
            BackendError: the server cannot be reached, or lacks the model.
        """
        name = await self._resolve("")
        try:
            async with _official(self.server, model=name) as client:
                details = await client.show(name)
                listed = installed(await client.list())
                length = context_length(details)
            version = await _version(self.server)
        except BackendError as fault:
            if fault.reason != "model_not_found":
                raise
            raise await self._with_names(fault) from fault.__cause__
        same = (known for known in listed if full_name(known.name) == full_name(name))
        found = next(same, None)
        return ModelInfo(
            name=name,
            backend="ollama",
            digest=found.digest if found else None,
            context_length=length,
            capabilities=tuple(map(printable, details.capabilities or ())),
            version=version,
        )

    async def list_models(self) -> list[InstalledModel]:
        """Return the models on the server, the one pulled last first.

        Raises:
            BackendError: the server cannot be reached.
        """
        async with _official(self.server) as client:
            return installed(await client.list())

    async def memory_bytes(self) -> int | None:
        """Return the memory that the loaded model takes; None where it is not loaded.

        Raises:
            BackendError: the server cannot be reached.
        """
        name = await self._resolve("")
        async with _official(self.server) as client:
            loaded = (await client.ps()).models
        same = (known for known in loaded if full_name(known.model or "") == full_name(name))
        return int(getattr(next(same, None), "size", None) or 0) or None

    async def _resolve(self, asked: str) -> str:
        """Return the model to ask; a choice, once made, stays."""
        if asked not in _UNNAMED:
            return asked
        if self._model is None:
            async with _official(self.server) as client:
                name, _ = await in_use(client, installed(await client.list()))
            if name is None:
                raise BackendError(
                    f"Ollama at {self.host} has no model that can chat; get one with: "
                    f"ollama pull {SUGGESTED_MODEL}",
                    reason="model_not_found",
                )
            self._model = name
            log_event(logger, logging.INFO, "model_chosen", model=name, host=self.host)
        return self._model

    async def _exchange(
        self, model: str, request: ChatRequest, think: bool | str | None, on_text: OnText | None
    ) -> ChatReply:
        """Make one request over the wire.

        Raises:
            StatusError: the server reports an error.
            BackendError: something else is wrong.
        """
        body: dict[str, Any] = {
            "model": model,
            "messages": [_as_json(message) for message in request.messages],
            "stream": True,
            # Else the server cuts an overlong prompt silently. ``shift: false`` would keep it from
            # dropping the start of a full window, but makes it load the model anew after other
            # clients' requests.
            "truncate": False,
            "options": dict(request.options),
        }
        further = {"think": think, "format": request.schema, "keep_alive": request.keep_alive}
        body |= {name: value for name, value in further.items() if value is not None}
        if request.tools:
            body["tools"] = [dict(tool) for tool in request.tools]
        if request.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        written = Written(f"the model of {self.server.who}", on_text)
        began = time.perf_counter()
        last: dict[str, Any] = {}
        calls: list[ToolCall] = []
        tokens: Any = None
        number = 0
        async with self.server.asked("/api/chat", body, model=model) as response:
            transport = await self.server.transport()
            async for line in transport.lines(response):
                number += 1
                last = as_object(read_json(line))
                if error := last.get("error"):
                    raise StatusError(None, error)
                message = as_object(last.get("message") or {})
                calls += map(_call_of, message.get("tool_calls") or ())
                tokens = tokens or last.get("logprobs")
                written.add(text_of(message, "content"), text_of(message, "thinking"))
            done = last.get("done") is True
            # Without a length the end of a broken connection looks like the end of the reply.
            if not last or not (done or is_framed(response)):
                raise self.server.broken_off(f"{number} lines")
            first = as_object(tokens[0]) if tokens else {}
            listed = [as_object(one) for one in first.get("top_logprobs") or ()]
            loading = count(last.get("load_duration"), "load_duration", most=_MAX_NANOSECONDS)
            reply = ChatReply(
                text=written.text,
                thinking=written.thinking,
                tool_calls=tuple(calls),
                done_reason=text_of(last, "done_reason") or ("stop" if done else "aborted"),
                prompt_tokens=count(last.get("prompt_eval_count"), "prompt_eval_count"),
                reply_tokens=count(last.get("eval_count"), "eval_count"),
                seconds=time.perf_counter() - began,
                load_seconds=(loading or 0) / 1e9,
                top_logprobs=alternatives(
                    [(one.get("token"), one.get("logprob")) for one in listed],
                    who=self.server.who,
                ),
            )
        if not done:
            raise self.server.stopped(reply)
        return reply

    async def _fault(self, error: StatusError, model: str, request: ChatRequest) -> BackendError:
        """Return the failure behind a reported error; that of a missing model lists the others."""
        if is_overflow(error):
            return _overflow(error, request, await self._trained_length(model))
        fault = _fault_of(error, self.server, model)
        return await self._with_names(fault) if fault.reason == "model_not_found" else fault

    async def _with_names(self, fault: BackendError) -> BackendError:
        """Return the failure of a missing model with the names of those that are there."""
        try:
            async with asyncio.timeout(_LIST_TIMEOUT_S):
                names = ", ".join(known.name for known in await self.list_models())
        except (BackendError, TimeoutError) as lost:
            log_event(logger, logging.DEBUG, "no_listing", host=self.host, detail=repr(lost))
            return fault
        message = f"{fault}; it has {names or 'none yet'}"
        return BackendError(message, reason=fault.reason, status_code=fault.status_code)

    async def _trained_length(self, model: str) -> int | None:
        """Return the longest context a model was trained for, tokens, where the server tells."""
        try:
            async with asyncio.timeout(_LIST_TIMEOUT_S), _official(self.server) as client:
                return context_length(await client.show(model))
        except (BackendError, TimeoutError) as lost:
            log_event(logger, logging.DEBUG, "no_details", host=self.host, detail=repr(lost))
            return None


def _server(url: str) -> Server:
    return Server(
        url=url,
        who=f"Ollama at {url}",
        kind="Ollama server",
        form="Ollama's",
        way_out="start it with: ollama serve, or set OLLAMA_HOST",
    )


def parse_host(host: str | None = None) -> str:
    """Return a server's URL; without a host that of ``$OLLAMA_HOST``, else the usual local one.

    Understands what Ollama does: ``gpu-box``, ``gpu-box:8080``, ``:8080``, ``https://box/path``,
    ``::1``. An address to listen on, such as ``0.0.0.0``, becomes that of this machine, and a path
    loses ``/api`` or ``/v1`` at its end, since clients add it themselves.

    Raises:
        ConfigError: it is not a server's address.
    """

    def url_of(split: urllib.parse.SplitResult, has_scheme: bool) -> str:
        # As in the official client: 11434 only where no scheme is named.
        usual = (80 if split.scheme == "http" else 443) if has_scheme else _DEFAULT_PORT
        port = usual if split.port is None else split.port
        name = split.hostname or "127.0.0.1"
        if _ADDRESS.fullmatch(name):
            address = ipaddress.ip_address(name)
            local = {4: "127.0.0.1", 6: "::1"}[address.version]
            name = local if address.is_unspecified else str(address)
            name = f"[{name}]" if address.version == 6 else name
        return f"{split.scheme}://{name}:{port}{_OF_THE_API.sub('', split.path.rstrip('/'))}"

    return read_address(
        (host or os.environ.get("OLLAMA_HOST") or "").strip().strip("\"'"),
        url_of,
        source="host" if host else "OLLAMA_HOST",
        form="host:port or http://host:port, for example 127.0.0.1:11434 or [::1]:11434",
        note=", which Ollama does not know",
    )


@asynccontextmanager
async def _official(
    server: Server, *, model: str = "", timeout_s: float | None = None
) -> AsyncIterator[ollama.AsyncClient]:
    """Give the official client for a few questions, about a model or about all.

    Raises:
        BackendError: the server reports an error, does not answer, or not in Ollama's form.
    """
    with server.translated():
        transport = await server.transport()
        client = ollama.AsyncClient(server.url, transport=transport, timeout=timeout_s)
        try:
            yield client
        except ollama.ResponseError as error:
            said = StatusError(error.status_code, error.error)
            raise _fault_of(said, server, model) from error


def _as_json(message: Message) -> dict[str, Any]:
    """Return a message as the protocol writes it."""
    value: dict[str, Any] = {"role": message.role}
    if message.content:
        value["content"] = message.content
    if message.tool_calls:
        value["tool_calls"] = [
            {"function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in message.tool_calls
        ]
    if message.tool_name is not None:
        value["tool_name"] = message.tool_name
    return value


def _call_of(call: Any) -> ToolCall:
    function = as_object(as_object(call).get("function"))
    return ToolCall(
        name=text_of(function, "name"), arguments=as_object(function.get("arguments") or {})
    )


def is_overflow(error: StatusError) -> bool:
    """Return True if the server says that the prompt does not fit."""
    return _OVERFLOW.search(error.said) is not None


def _overflow(error: StatusError, request: ChatRequest, trained: int | None) -> BackendError:
    num_ctx = request.options.get("num_ctx")
    tokens, in_force = error.details.get("n_prompt_tokens"), error.details.get("n_ctx", num_ctx)
    in_force = in_force if type(in_force) is int else num_ctx
    chars = sum(len(message.content) for message in request.messages)
    prompt = f"{tokens} tokens" if type(tokens) is int else f"{chars} characters"
    if trained is None and in_force is not None and in_force < (num_ctx or 0):
        trained = in_force  # the server grants less than was asked for
    return context_overflow(
        prompt, num_ctx or in_force, trained=trained, what=error.text, status_code=error.status
    )


def _fault_of(error: StatusError, server: Server, model: str) -> BackendError:
    """Return the failure behind a reported error."""
    status, text = error.status, error.text
    if status == 403 and not text:
        error.text = "it rejects this host name or origin; see its setting OLLAMA_ORIGINS"
    # A 404 is also what anything else than Ollama answers at that path.
    if status == 404 and "model" in text:
        return BackendError(
            f"model {model!r} is not on {server.who}; get it with: ollama pull {model}",
            reason="model_not_found",
            status_code=status,
        )
    if status == 404:
        return BackendError(
            f"{server.url} is not the address of an Ollama server, for it answers 404 "
            f"({text or 'no explanation'}); see that host, port and path are right",
            reason="client_error",
            status_code=status,
        )
    is_wrong = _WRONG_REQUEST.search(text) is not None
    return server.status_fault(error, model=model, is_wrong_request=is_wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledModel:
    """A model on the server.

    Attributes:
        name: with its tag.
        digest: hash of its manifest.
        size_bytes: on the server's disk.
        modified_at: when it was pulled or made; None where the server does not tell.
    """

    name: str
    digest: str | None
    size_bytes: int
    modified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaProbe:
    """What a quick look at a server found.

    Attributes:
        host: its URL.
        version: its version.
        models: the names of all models, the one pulled last first.
        model: the one that is taken where none is named, or None if none can chat.
        why: why that one; names a larger one that is there too.
    """

    host: str
    version: str
    models: tuple[str, ...]
    model: str | None
    why: str


def full_name(name: str) -> str:
    """Return a model's name for comparing: lower case, with its tag."""
    name = name.lower()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def installed(response: ollama.ListResponse) -> list[InstalledModel]:
    """Return the models of a listing, the one pulled last first."""
    oldest = datetime.min.replace(tzinfo=UTC)
    models = [
        InstalledModel(
            name=printable(model.model or ""),
            digest=printable(model.digest) if model.digest else None,
            size_bytes=int(model.size or 0),
            modified_at=model.modified_at,
        )
        for model in response.models
    ]
    return sorted(models, key=lambda model: model.modified_at or oldest, reverse=True)


async def in_use(
    client: ollama.AsyncClient, models: Sequence[InstalledModel]
) -> tuple[str | None, str]:
    """Return the model to take where none is named, and why: a loaded one, else the latest pulled.

    None if no model completes text; one without a list of capabilities is expected to.
    """
    # One that is loaded answers at once, and pushes no other user's out of memory.
    loaded = [printable(model.model or "") for model in (await client.ps()).models]
    for name in dict.fromkeys(loaded + [model.name for model in models]):
        if await _can_chat(client, name):
            if name in loaded:
                return name, "it is loaded there"
            alone = len(models) == 1
            return name, "the only model there" if alone else "the model pulled last of those there"
    return None, ""


async def _can_chat(client: ollama.AsyncClient, name: str) -> bool:
    capabilities = (await client.show(name)).capabilities
    return capabilities is None or "completion" in capabilities


async def _larger(
    client: ollama.AsyncClient, models: Sequence[InstalledModel], chosen: str | None
) -> str:
    """Return a remark on the largest model that can chat, if that is not the chosen one."""
    own = next((model for model in models if model.name == chosen), None)
    for model in sorted(models, key=lambda model: model.size_bytes, reverse=True):
        if own is None or model.size_bytes <= own.size_bytes:
            break
        if await _can_chat(client, model.name):
            sizes = f"{model.size_bytes / 1e9:.2g} GB against {own.size_bytes / 1e9:.2g} GB"
            return f"; {model.name} is larger, {sizes}: 'ollama:{model.name}' takes it"
    return ""


def context_length(details: ollama.ShowResponse) -> int | None:
    """Return the longest context a model was trained for, tokens, where the server tells.

    Raises:
        ValueError: it is not a number of tokens.
    """
    for key, value in (details.modelinfo or {}).items():
        if key.endswith(".context_length"):
            return count(value, key)
    return None


async def _version(server: Server, *, timeout_s: float | None = None) -> str:
    """Return the server's version.

    Raises:
        BackendError: it does not answer, or is no Ollama server.
    """
    try:
        with server.translated():
            document = await server.document("/api/version", timeout_s=timeout_s)
            version = text_of(as_object(document), "version")
            if not version:
                raise ValueError("it names no version")
    except StatusError as error:
        raise _fault_of(error, server, "") from error
    return clip(printable(version), 40)


def _check_age(version: str, server: Server) -> None:
    """Raise BackendError if a server is too old to say that a prompt does not fit."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", version)
    # A development build is "0.0.0", and has what is newest.
    if found and (0, 0) < (int(found[1]), int(found[2])) < OLDEST:
        raise BackendError(
            f"{server.who} is of version {version}; the oldest that can be used is "
            f"{'.'.join(map(str, OLDEST))}, since older ones cut prompts without a word: get a "
            "newer one from https://ollama.com/download",
            reason="client_error",
        )


@without_locals
def look(host: str | None = None, *, timeout_s: float = 5.0) -> OllamaProbe:
    """Return what an Ollama server has.

    Args:
        host: the server; by default ``$OLLAMA_HOST``, else the usual local one.
        timeout_s: how long each of the few requests may take, seconds.

    Raises:
        ConfigError: the host's name makes no sense.
        BackendError: no server answers there, or not in Ollama's form; the message says which.
    """
    return run_aside(_look(_server(parse_host(host)), timeout_s))


async def _look(server: Server, timeout_s: float) -> OllamaProbe:
    version = await _version(server, timeout_s=timeout_s)
    _check_age(version, server)
    async with _official(server, timeout_s=timeout_s) as client:
        models = installed(await client.list())
        chosen, why = await in_use(client, models)
        why += await _larger(client, models, chosen)
    names = tuple(model.name for model in models)
    return OllamaProbe(host=server.url, version=version, models=names, model=chosen, why=why)
