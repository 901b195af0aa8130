"""The backend for Ollama servers: ``/api/chat`` as a stream; all else by the official client.

Its chat has no parameter ``truncate``, without which a server cuts an overlong prompt silently.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from llmsim_lab._util.copies import Shared
from llmsim_lab._util.frozen import SetOnce
from llmsim_lab._util.text import clip, printable
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm._access import (
    Access,
    Address,
    Key,
    LocalsCleared,
    read_address,
    without_locals,
)
from llmsim_lab.llm._http import (
    LIST_TIMEOUT_S,
    Server,
    StatusError,
    Written,
    member,
    read_json,
    read_object,
    run_aside,
)
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest, Message, ModelInfo, OnText

if TYPE_CHECKING:
    import ollama

SUGGESTED_MODEL = "llama3.1:8b"
"""What to pull where there is no model, or only a very small one; 4.9 GB."""
OLDEST = (0, 24)
"""The oldest version whose protocol is known: it says that a prompt does not fit."""
_UNNAMED = ("", "auto")
_LEAST_TRAINED = 512
"""No model that chats was trained for a shorter context."""
_MOST_SHOWN = 200
"""Models that are looked at, one request each, for one that chats."""
_REQUESTS_IN_A_LOOK = 6
"""So many times what one request may take is the longest look: all but the first are quick."""


class OllamaBackend(Shared, SetOnce, ChatBackend):
    """Answers requests by an Ollama server.

    May be used from several event loops and threads; all backends of one server share its
    connections in a loop. Bounds neither time nor concurrency: ``LLMClient`` does.

    Args:
        model: taken where a request names none (or ``auto``); without one, a model that is loaded,
            else the one pulled last, embedding models left out.
        host: the server; by default ``$OLLAMA_HOST``, else ``127.0.0.1:11434``. It may have a user
            name and password, ``http://NAME:PASSWORD@box``, which are not shown.
        key: for a server that wants one, such as ollama.com: the key, or a function that returns
            it, also an ``async`` one, called for each request; by default ``$OLLAMA_API_KEY``.

    Raises:
        ConfigError: the host makes no sense, or the key has characters that no key has.
    """

    streams = True
    max_top_logprobs = 20

    set_once = ("host",)

    @without_locals
    def __init__(
        self,
        model: str | None = None,
        *,
        host: str | None = None,
        key: Key | None = None,
    ) -> None:
        address = _address(host)
        self.host = address.url
        self.server = Server(
            url=self.host,
            name=f"Ollama at {self.host}",
            kind="Ollama server",
            if_absent="start it with: ollama serve, or set OLLAMA_HOST",
            access=Access(
                key,
                variable="OLLAMA_API_KEY",
                argument="key",
                login=address.login,
            ),
            if_refused="its setting OLLAMA_ORIGINS says which host names and origins it serves",
            pull="ollama pull",
        )
        self._model = None if model in _UNNAMED else model
        self._version = ""
        # Asked for once a model: it does not change while the server runs.
        self._trained: dict[str, int | None] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Leave secrets out: the other process has ``$OLLAMA_API_KEY`` or ``$OLLAMA_HOST``."""
        make = partial(
            type(self),
            self._model,
            host=self.host,
            key=self.server.access.kept,
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
        """
        with LocalsCleared():
            if not self._version:
                # Both are answered at once by a server that lives, whatever its models do.
                async with asyncio.timeout(request.timeout_s):  # the first request pays for it
                    self._version = await _version(self.server)
                    await self._resolve(request.model)
            model = await self._resolve(request.model)
            body = _body_of(model, request)
            async with self.server.asked("/api/chat", body, request) as answer:
                reply = await answer.reply(on_text, _add)
            # What went past the window was answered without the prompt's start, and looks whole.
            num_ctx = request.options.get("num_ctx")
            used = (reply.prompt_tokens or 0) + (reply.reply_tokens or 0)
            if num_ctx is not None and used > min(num_ctx, _LEAST_TRAINED):
                # The server cuts a window to what its model was trained for.
                trained = await self._trained_length(model)
                window = min(num_ctx, trained or num_ctx)
                if used > window:
                    raise self._overflow(reply, window)
            return reply

    def _overflow(self, reply: ChatReply, window: int) -> BackendError:
        """Return the fault of an answer that went past the window."""
        return BackendError(
            f"the answer reached the context's end: {reply.prompt_tokens} tokens of prompt and "
            f"{reply.reply_tokens} of answer are more than the {window} tokens that fit, so the "
            "server dropped the start of the prompt as the model wrote on; ask for less, shorten "
            f"the prompt, or {self.server.larger_window}",
            reason="context_overflow",
            status_code=200,
            retry=True,
            reply=reply,
        )

    @without_locals
    async def phase(self, request: ChatRequest) -> str:
        """Return ``loading`` if the server does not list the model as a loaded one yet.

        One that is listed may still be loading, and the server does not say whether it is.

        Raises:
            BackendError: nothing listens at the server's address any more.
        """
        # A look at what is loaded costs the server nothing, and is answered while a model loads.
        content = await self.server.glance("/api/ps")
        model = self._model if request.model in _UNNAMED else request.model
        if content is None or model is None:
            return ""
        try:
            entries = member(read_json(content), "models", list)
            loaded = [full_name(member(entry, "model", str)) for entry in entries]
        except (ValueError, TypeError):  # it answers, and that is enough
            return ""
        return "" if full_name(model) in loaded else "loading"

    @without_locals
    async def model_info(self) -> ModelInfo:
        """Return which model answers: its digest, if the server has it, and the server's version.

        Raises:
            BackendError: the server cannot be reached, or lacks the model.
        """
        version = await _version(self.server)
        name = await self._resolve("")
        async with _official(self.server) as client:
            models = (await client.list()).models
        for model in models:
            # "llama3.2" is "llama3.2:latest" in its list.
            if full_name(model.model or "") == full_name(name):
                digest = printable(model.digest or "") or None
                return ModelInfo(
                    name=name,
                    backend="ollama",
                    digest=digest,
                    version=version,
                )
        raise BackendError(
            f"Ollama at {self.host} has no model {name!r}; get it with: ollama pull {name}",
            reason="model_not_found",
            status_code=404,
        )

    @without_locals
    async def look(self, timeout_s: float | None = None) -> OllamaProbe:
        """Return what the server has; see the function ``look``."""
        longest_s = None if timeout_s is None else _REQUESTS_IN_A_LOOK * timeout_s
        try:
            async with asyncio.timeout(longest_s):
                return await self._look(timeout_s)
        except TimeoutError as error:
            raise BackendError(
                f"Ollama at {self.host} did not say within {longest_s:g} s what its models can do; "
                "see whether it hangs or is busy",
                reason="timeout",
            ) from error

    async def _look(self, timeout_s: float | None) -> OllamaProbe:
        version = await _version(self.server, timeout_s=timeout_s)
        async with _official(self.server, timeout_s=timeout_s) as client:
            listing = await client.list()
            # The one pulled last is the one that was wanted last.
            models = sorted(
                listing.models,
                key=_pulled_at,
                reverse=True,
            )
            names = [printable(model.model or "") for model in models]
            processes = await client.ps()
            loaded = [printable(model.model or "") for model in processes.models]
            # One that is loaded answers at once, and pushes no other user's out of memory.
            for name in [*dict.fromkeys([*loaded, *names])][:_MOST_SHOWN]:
                shown = await client.show(name)
                # A model without a list of capabilities is expected to chat.
                if shown.capabilities is not None and "completion" not in shown.capabilities:
                    continue
                reason = "the model pulled last there"
                if name in loaded:
                    reason = "it is loaded there"
                return OllamaProbe(
                    host=self.host,
                    version=version,
                    models=tuple(names),
                    model=name,
                    reason=reason,
                )
        return OllamaProbe(self.host, version, tuple(names))

    @without_locals
    async def pull(self, name: str) -> None:
        """Have the server fetch a model; it says nothing until that is done.

        Raises:
            BackendError: it cannot.
        """
        async with _official(self.server, name) as client:
            await client.pull(name)

    async def _resolve(self, name: str) -> str:
        """Return the model to ask; a choice, once made, stays."""
        if name not in _UNNAMED:
            return name
        if self._model is None:
            probe = await self.look()
            self._model = probe.chosen()
        return self._model

    async def _trained_length(self, model: str) -> int | None:
        """Return the longest context a model was trained for, tokens, where the server tells."""
        if model not in self._trained:
            # An answer that is there must not fail for what is only a check of it.
            with suppress(BackendError):
                async with _official(self.server, timeout_s=LIST_TIMEOUT_S) as client:
                    shown = await client.show(model)
                    details = shown.modelinfo or {}
                    # The name before it is that of the model's architecture.
                    keys = (key for key in details if key.endswith(".context_length"))
                    self._trained[model] = member(
                        details,
                        next(keys, ""),
                        int,
                    )
        return self._trained.get(model)


def _pulled_at(model: ollama.ListResponse.Model) -> float:
    """Return when a model was pulled, in seconds; a server may not say it."""
    if model.modified_at is None:
        return 0.0
    return model.modified_at.timestamp()


def parse_host(host: str | None = None) -> str:
    """Return a server's URL; without a host that of ``$OLLAMA_HOST``, else the usual local one.

    Understands ``gpu-box``, ``gpu-box:8080``, ``:8080``, ``https://box/path``, ``[::1]:8080``. A
    user name and password are not in the URL.

    Raises:
        ConfigError: it is not a server's address.
    """
    return _address(host).url


def _address(host: str | None) -> Address:
    return read_address(
        host,
        argument="host",
        variable="OLLAMA_HOST",
        default="127.0.0.1",
        example="host:port or http://host:port, for example 127.0.0.1:11434 or [::1]:11434",
        usual_port=11434,
    )


@asynccontextmanager
async def _official(
    server: Server,
    model: str = "",
    *,
    timeout_s: float | None = None,
) -> AsyncIterator[ollama.AsyncClient]:
    """Give the official client for a few questions.

    Raises:
        BackendError: the server reports an error, does not answer, or not in Ollama's form.
        ConfigError: the client cannot read the environment.
    """
    # Only here: it reads the environment as it is imported, and what is wrong there must not keep
    # everything else from being used.
    fault = ""
    try:
        import ollama
    except Exception as error:  # noqa: BLE001 - whatever a wrong variable leads to
        fault = type(error).__name__
    # Without the exception, which may have a password of a variable.
    if fault:
        raise ConfigError(
            f"Ollama's client cannot read the environment ({fault}); correct OLLAMA_HOST, "
            "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY or SSL_CERT_FILE"
        )
    async with server.opened({"model": model}) as transport:
        client = ollama.AsyncClient(
            server.url,
            transport=transport,
            timeout=timeout_s,
            headers={"Authorization": "-"},  # or it would hold $OLLAMA_API_KEY itself
        )
        try:
            yield client
        except ollama.ResponseError as error:
            raise StatusError(error.status_code, error.error) from error


def _body_of(model: str, request: ChatRequest) -> dict[str, object]:
    """Return a request as the protocol writes it."""
    options = dict(request.options)
    # llama.cpp's: Ollama always sends True to its own, and would log a warning for each request.
    options.pop("cache_prompt", None)
    fields = {
        "model": model,
        "messages": [_as_json(message) for message in request.messages],
        "stream": True,
        # Else the server cuts an overlong prompt silently. ``shift: false`` would keep it from
        # dropping the start of a full window, but makes it load the model anew after other
        # clients' requests.
        "truncate": False,
        "options": options,
        # Left out where None: a model that cannot think refuses either value.
        "think": request.think,
        "format": request.schema,
        "keep_alive": request.keep_alive,
        "tools": [dict(tool) for tool in request.tools] or None,
        "top_logprobs": request.top_logprobs or None,
        "logprobs": bool(request.top_logprobs) or None,
    }
    return _without_none(fields)


def _as_json(message: Message) -> dict[str, object]:
    """Return a message as the protocol writes it."""
    calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in message.tool_calls]
    fields = {
        "role": message.role,
        "content": message.content or None,
        "tool_calls": [{"function": call} for call in calls] or None,
        "tool_name": message.tool_name,
    }
    return _without_none(fields)


def _without_none(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _add(written: Written, line: bytes) -> None:
    """Put a line of a stream to a reply."""
    chunk = read_object(line)
    if chunk.get("error"):
        raise StatusError(None, chunk["error"])
    message = member(chunk, "message", dict)
    for number, call in enumerate(member(message, "tool_calls", list)):
        function = member(call, "function", dict)
        written.add_call(
            member(function, "name", str),
            member(function, "arguments", dict),
            # The line has the arguments of all its calls, and counts once.
            size=0 if number else len(line),
        )
    written.add_logprobs(member(chunk, "logprobs", list))
    written.add(member(message, "content", str), member(message, "thinking", str))
    written.fields["done_reason"] = "aborted"  # unless more comes
    if member(chunk, "done", bool):
        written.ended = True
        written.fields |= {
            "done_reason": member(chunk, "done_reason", str) or "stop",
            "prompt_tokens": member(chunk, "prompt_eval_count", int),
            "reply_tokens": member(chunk, "eval_count", int),
            "load_seconds": (member(chunk, "load_duration", int) or 0) / 1e9,
        }


@dataclass(frozen=True, slots=True)
class OllamaProbe:
    """What a quick look at a server found.

    Attributes:
        host: its URL.
        version: its version.
        models: the names of all models, the one pulled last first.
        model: the one that is taken where none is named: a loaded one, else the latest pulled; None
            if none completes text. One without a list of capabilities is expected to.
        why: why that one.
    """

    host: str
    version: str
    models: tuple[str, ...]
    model: str | None = None
    reason: str = ""

    def chosen(self) -> str:
        """Return that model.

        Raises:
            BackendError: there is none.
        """
        if self.model is None:
            raise BackendError(
                f"Ollama at {self.host} has no model that can chat; "
                f"'ollama pull {SUGGESTED_MODEL}' gets one",
                reason="model_not_found",
            )
        return self.model


def full_name(name: str) -> str:
    """Return a model's name for comparing: lower case, with its tag."""
    name = name.lower()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


async def _version(
    server: Server,
    *,
    timeout_s: float | None = None,
) -> str:
    """Return the server's version.

    Raises:
        BackendError: it does not answer, is no Ollama server, or is too old to say that a prompt
            does not fit.
    """
    async with server.asked("/api/version", timeout_s=timeout_s) as answer:
        version = clip(printable(member(read_json(answer.content), "version", str)), 40)
        numbers = re.match(r"v?(\d{1,6})\.(\d{1,6})", version)
        if numbers is None:
            raise ValueError(f"version is {version!r}")
    # A development build is "0.0.0", and has what is newest.
    release = int(numbers[1]), int(numbers[2])
    if (0, 0) < release < OLDEST:
        raise BackendError(
            f"{server.name} is of version {version}; the oldest that can be used is "
            f"{'.'.join(map(str, OLDEST))}; older ones cut prompts silently; get one from "
            "https://ollama.com/download",
            reason="client_error",
        )
    return version


@without_locals
def look(
    host: str | None = None,
    *,
    key: Key | None = None,
    timeout_s: float = 5.0,
) -> OllamaProbe:
    """Return what an Ollama server has.

    Args:
        host: the server; by default ``$OLLAMA_HOST``, else the usual local one.
        key: for a server that wants one; by default ``$OLLAMA_API_KEY``.
        timeout_s: how long each of the few requests may take, seconds.

    Raises:
        ConfigError: the host's name makes no sense.
        BackendError: no server answers there, or not in Ollama's form; the message says which.
    """
    return run_aside(OllamaBackend(host=host, key=key).look(timeout_s))
