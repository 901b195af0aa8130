"""The backend for Ollama servers, through the official client.

It also finds out which models a server has, and whether a prompt fits the context window, without
a tokenizer. Servers that do not know ``truncate`` cut an overlong prompt silently, and then report
fewer tokens than the prompt can possibly have. ``PromptGauge`` estimates that least number from the
prompt's characters: a token of ordinary text has a few characters at most, and the replies so far,
with a margin, say how many for this model.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import ollama

from llmsim_lab._util.text import clip, log_event, printable
from llmsim_lab.errors import BackendError
from llmsim_lab.llm._connections import broken_off, run_aside, stopped, without_locals
from llmsim_lab.llm._extract import alternatives
from llmsim_lab.llm._ollama.faults import fault_of, is_overflow, no_thinking, translated
from llmsim_lab.llm._ollama.wire import ChatExchange, Clients, clients_for, parse_host, release
from llmsim_lab.llm._retry import context_overflow, window_left
from llmsim_lab.llm._scope import scoped
from llmsim_lab.llm._transport import Telling, check_length, count
from llmsim_lab.types import ChatReply, ChatRequest, Message, ModelInfo, OnText, ToolCall

logger = logging.getLogger(__name__)

SUGGESTED_MODEL = "llama3.1:8b"
"""What to pull where there is no model, or only a very small one; 4.9 GB."""
_LIST_TIMEOUT_S = 2.0
_UNNAMED = ("", "auto")

_START, _FLOOR, _MARGIN = 8.0, 6.0, 1.3
"""Characters per token: at first, and at least, once some prompts were counted (after Chinese or
JSON there will be English), and a factor of safety."""
_LEAST_TRAINED = 512
"""No model that chats was trained for a shorter context."""
_LEAST_TOKENS = 64
"""Shorter prompts say little: they are mostly the chat template."""
_TEMPLATE_TOKENS, _TEMPLATE_TOKENS_PER_MESSAGE = 128, 16
"""Generous: what chat templates and their default system messages add."""

_SPACES = re.compile(r"\s+")
_RUNS = re.compile(r"(\S)\1{3,}")
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)


class OllamaBackend:
    """Answers requests by an Ollama server.

    May be used from several event loops and threads; all backends of one server share one client
    per loop. Bounds neither time nor concurrency: ``LLMClient`` does.

    Args:
        model: taken where a request names none (or ``auto``); without one, a model that is loaded,
            else the one pulled last, embedding models left out.
        host: the server; by default ``$OLLAMA_HOST``, else ``127.0.0.1:11434``.
        stream: fetch all replies token by token, not only those of a slow model; what comes out is
            the same.

    Raises:
        ConfigError: the host makes no sense.
    """

    streams: bool | Literal["always"] = True
    max_top_logprobs = 20
    """What the server grants; one too old for probabilities answers without them."""

    @without_locals
    def __init__(
        self, model: str | None = None, *, host: str | None = None, stream: bool = False
    ) -> None:
        self.host = parse_host(host)
        self._model = None if model in _UNNAMED else model
        if stream:
            self.streams = "always"
        self._thinkless: set[str] = set()
        self._gauges: dict[str, PromptGauge] = {}
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
        model = await self._resolve(request.model)
        gauge = self._gauges.setdefault(full_name(model), PromptGauge())
        texts = texts_read(request.messages)
        num_ctx = request.options.get("num_ctx")
        # Before it is sent: servers that do not know ``truncate`` would cut it without a word.
        if num_ctx is not None and (least := gauge.least_tokens(texts, limit=num_ctx)) > num_ctx:
            raise await self._overflow(model, f"at least {least} tokens", num_ctx)
        think = None if full_name(model) in self._thinkless else request.think
        try:
            reply = await self._exchange(model, request, think, on_text)
        except _NoThinkingError:
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
        if reply.prompt_tokens is not None:
            # With tools nothing is certain: a template that is not known here writes them out.
            fits = not request.tools and gauge.surely_fits(texts, num_ctx=num_ctx or 0)
            if num_ctx is not None and not fits:
                # Has the server read fewer tokens than the whole prompt must have?
                read = reply.prompt_tokens
                least = gauge.least_tokens(texts, limit=read)
                if least > read or read >= num_ctx:
                    what = (
                        f"the server has read {read} tokens of it and cut the rest without a word"
                    )
                    prompt = f"at least {max(least, read)} tokens"
                    raise await self._overflow(model, prompt, num_ctx, what=what)
            # Only now: a prompt that was cut must not teach the gauge.
            gauge.learn(texts, reply.prompt_tokens)
            if num_ctx is not None:
                await self._check_end(model, reply, num_ctx)
        return reply

    async def _check_end(self, model: str, reply: ChatReply, num_ctx: int) -> None:
        """Raise if the server dropped the start of a full window and let the model write on."""
        used = (reply.prompt_tokens or 0) + (reply.reply_tokens or 0)
        if used <= min(num_ctx, _LEAST_TRAINED):
            return
        if model not in self._trained:
            self._trained[model] = await self._trained_length(model)
        trained = self._trained[model]
        if used > min(num_ctx, trained or num_ctx):
            raise window_left(reply, num_ctx, trained=trained)

    async def model_info(self) -> ModelInfo:
        """Return which model answers: digest, context length, capabilities, the server's version.

        Raises:
            BackendError: the server cannot be reached, or lacks the model.
        """
        name = await self._resolve("")
        with translated(name, host=self.host):
            clients = await clients_for(self.host, self)
            try:
                details = await clients.chat.show(name)
            except ollama.ResponseError as error:
                raise await self._explained(error, name) from error
            listed = installed(await clients.chat.list())
            same = (known for known in listed if full_name(known.name) == full_name(name))
            found = next(same, None)
            return ModelInfo(
                name=name,
                backend="ollama",
                digest=found.digest if found else None,
                context_length=context_length(details),
                capabilities=tuple(map(printable, details.capabilities or ())),
                version=await version_of(clients),
            )

    async def list_models(self) -> list[InstalledModel]:
        """Return the models on the server, the one pulled last first.

        Raises:
            BackendError: the server cannot be reached.
        """
        with translated("", host=self.host):
            clients = await clients_for(self.host, self)
            return installed(await clients.chat.list())

    async def memory_bytes(self) -> int | None:
        """Return the memory that the loaded model takes; None where it is not loaded.

        Raises:
            BackendError: the server cannot be reached.
        """
        name = await self._resolve("")
        with translated(name, host=self.host):
            model = await self._loaded(name)
        return None if model is None else int(model.size or 0) or None

    async def _loaded(self, name: str) -> ollama.ProcessResponse.Model | None:
        loaded = (await (await clients_for(self.host, self)).chat.ps()).models
        same = (known for known in loaded if full_name(known.model or "") == full_name(name))
        return next(same, None)

    async def aclose(self) -> None:
        """Close the connections that no other backend uses."""
        await release(self.host, self)

    async def _resolve(self, asked: str) -> str:
        """Return the model to ask; a choice, once made, stays."""
        if asked not in _UNNAMED:
            return asked
        if self._model is None:
            with translated("", host=self.host):
                clients = await clients_for(self.host, self)
                name, _ = await in_use(clients, installed(await clients.chat.list()))
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
        self,
        model: str,
        request: ChatRequest,
        think: bool | str | None,
        on_text: OnText | None,
    ) -> ChatReply:
        """Make one request over the wire."""
        extra, tell = ChatExchange(_further_fields(request)), Telling(on_text)
        stream = self.streams == "always" or on_text is not None
        began = time.perf_counter()
        with translated(model, host=self.host, extra=extra), scoped(outgoing=extra):
            try:
                parts = await self._parts(model, request, think, tell if stream else None)
            except ollama.ResponseError as error:
                if think is not None and no_thinking(error):
                    raise _NoThinkingError from error
                fault = await self._explained(error, model, request)
                fault.retry_after_s = extra.retry_after_s
                raise fault from error
        seconds = time.perf_counter() - began
        # Without a length the end of a broken connection looks like the end of the reply.
        may_be_cut = stream and not extra.framed
        if not parts or (may_be_cut and not parts[-1].done):
            raise broken_off(f"Ollama at {self.host}", f"{len(parts)} lines")
        reply = _joined(parts, host=self.host, seconds=seconds)
        if not parts[-1].done:
            raise stopped(reply, who=f"Ollama at {self.host}")
        return reply

    async def _parts(
        self, model: str, request: ChatRequest, think: bool | str | None, tell: Telling | None
    ) -> list[ollama.ChatResponse]:
        """Return the lines of a stream, or without ``tell`` the answer."""
        answer: Any = await (await clients_for(self.host, self)).chat.chat(
            model,
            [_as_json(message) for message in request.messages],
            stream=tell is not None,  # type: ignore[call-overload]
            think=think,
            format=request.schema,
            options=dict(request.options),
            keep_alive=request.keep_alive,
        )
        if tell is None:
            return [answer]
        parts = list[ollama.ChatResponse]()
        # Closed whatever happens: the server stops a model nobody listens to.
        async with aclosing(answer) as lines:
            async for line in lines:
                parts.append(line)
                tell(line.message.content or "", line.message.thinking or "")
        return parts

    async def _explained(
        self, error: ollama.ResponseError, model: str, request: ChatRequest | None = None
    ) -> BackendError:
        """Return the failure behind a reported error; that of a missing model lists the others."""
        fault = fault_of(
            error,
            model=model,
            host=self.host,
            num_ctx=request.options.get("num_ctx") if request else None,
            chars=sum(len(message.content) for message in request.messages) if request else 0,
            trained=await self._trained_length(model) if is_overflow(error) else None,
        )
        if fault.reason != "model_not_found":
            return fault
        try:
            async with asyncio.timeout(_LIST_TIMEOUT_S):
                names = ", ".join(known.name for known in await self.list_models())
        except (BackendError, TimeoutError) as lost:
            log_event(logger, logging.DEBUG, "no_listing", host=self.host, detail=repr(lost))
            return fault
        return BackendError(
            f"{fault}; it has {names or 'none yet'}",
            reason=fault.reason,
            status_code=fault.status_code,
        )

    async def _overflow(
        self, model: str, prompt: str, num_ctx: int, *, what: str = ""
    ) -> BackendError:
        """Return the failure of a prompt that does not fit this model."""
        trained = await self._trained_length(model)
        return context_overflow(prompt, num_ctx, trained=trained, what=what)

    async def _trained_length(self, model: str) -> int | None:
        """Return the longest context a model was trained for, tokens, where the server tells."""
        try:
            async with asyncio.timeout(_LIST_TIMEOUT_S):
                with translated(model, host=self.host):
                    clients = await clients_for(self.host, self)
                    return context_length(await clients.chat.show(model))
        except (BackendError, TimeoutError) as lost:
            log_event(logger, logging.DEBUG, "no_details", host=self.host, detail=repr(lost))
            return None


class _NoThinkingError(Exception):
    """The model cannot think; ask again without."""


def _further_fields(request: ChatRequest) -> dict[str, Any]:
    """Return what the official client has no parameter for, or does not pass on whole."""
    # Else the server cuts an overlong prompt silently. ``shift: false`` would keep it from dropping
    # the start of a full window, but makes it load the model anew after other clients' requests.
    fields: dict[str, Any] = {"truncate": False}
    if request.tools:
        fields["tools"] = [dict(tool) for tool in request.tools]
    if request.top_logprobs:
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    return fields


def _as_json(message: Message) -> dict[str, Any]:
    """Return a message as the protocol writes it."""
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        value["tool_calls"] = [
            {"function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in message.tool_calls
        ]
    if message.tool_name is not None:
        value["tool_name"] = message.tool_name
    return value


def _joined(parts: list[ollama.ChatResponse], *, host: str, seconds: float) -> ChatReply:
    """Put together the lines of a stream, or the one answer.

    Raises:
        BackendError: it is too long, or its probabilities are none.
    """
    last = parts[-1]
    messages = [part.message for part in parts]
    chars = sum(len(part.content or "") + len(part.thinking or "") for part in messages)
    check_length(chars, who=f"the model of Ollama at {host}")
    tokens = next((part.logprobs for part in parts if part.logprobs), ())
    listed = tokens[0].top_logprobs or () if tokens else ()
    calls = [call.function for message in messages for call in message.tool_calls or ()]
    return ChatReply(
        text="".join(message.content or "" for message in messages),
        thinking="".join(message.thinking or "" for message in messages),
        # Without their ids, which the official client does not pass on.
        tool_calls=tuple(
            ToolCall(name=call.name, arguments=dict(call.arguments)) for call in calls
        ),
        done_reason=last.done_reason or ("stop" if last.done else "aborted"),
        prompt_tokens=last.prompt_eval_count,
        reply_tokens=last.eval_count,
        seconds=seconds,
        load_seconds=(last.load_duration or 0) / 1e9,
        top_logprobs=alternatives(
            [(one.token, one.logprob) for one in listed], who=f"Ollama at {host}"
        ),
    )


def countable(text: str) -> int:
    """Count a text's characters, runs of white space and of one character as a single one."""
    return len(_RUNS.sub(r"\1", _SPACES.sub(" ", text)))


def texts_read(messages: Iterable[Message]) -> list[str]:
    """Return what every chat template shows the model: not tool results, nor earlier thoughts."""
    return [
        _THOUGHTS.sub("", message.content) if message.role == "assistant" else message.content
        for message in messages
        if message.role != "tool"
    ]


class PromptGauge:
    """How tightly one model's tokenizer has packed text so far."""

    def __init__(self) -> None:
        self._highest: float | None = None

    @property
    def chars_per_token(self) -> float:
        """The most characters per token that ordinary text is taken to have."""
        return _MARGIN * min(_START, max(_FLOOR, self._highest or _START))

    def least_tokens(self, texts: list[str], *, limit: int) -> int:
        """Return how many tokens the texts have at least; rough up to ``limit``."""
        rough = int(sum(map(len, texts)) / self.chars_per_token)
        # Counting exactly takes regular expressions over the whole prompt; few prompts need it.
        return rough if rough <= limit else int(sum(map(countable, texts)) / self.chars_per_token)

    @staticmethod
    def surely_fits(texts: list[str], *, num_ctx: int) -> bool:
        """Return True if even a token for each byte, with the chat template, fits the window."""
        size = sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
        return size + _TEMPLATE_TOKENS + _TEMPLATE_TOKENS_PER_MESSAGE * len(texts) < num_ctx

    def learn(self, texts: list[str], tokens: int) -> None:
        """Learn from a prompt that was read whole."""
        highest = self._highest or 0.0
        # All characters are at least the countable ones: mostly this tells, without counting those.
        if tokens < _LEAST_TOKENS or sum(map(len, texts)) <= highest * tokens:
            return
        self._highest = max(highest, sum(map(countable, texts)) / tokens)


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


async def in_use(clients: Clients, models: Sequence[InstalledModel]) -> tuple[str | None, str]:
    """Return the model to take where none is named, and why: a loaded one, else the latest pulled.

    None if no model completes text; one without a list of capabilities is expected to.
    """
    # One that is loaded answers at once, and pushes no other user's out of memory.
    loaded = [printable(model.model or "") for model in (await clients.chat.ps()).models]
    for name in dict.fromkeys(loaded + [model.name for model in models]):
        if await _can_chat(clients, name):
            if name in loaded:
                return name, "it is loaded there"
            alone = len(models) == 1
            return name, "the only model there" if alone else "the model pulled last of those there"
    return None, ""


async def _can_chat(clients: Clients, name: str) -> bool:
    capabilities = (await clients.chat.show(name)).capabilities
    return capabilities is None or "completion" in capabilities


async def _larger(
    clients: Clients, models: Sequence[InstalledModel], chosen: str | None
) -> tuple[InstalledModel, InstalledModel] | None:
    """Return the chosen model and the largest that can chat, if that is another."""
    own = next((model for model in models if model.name == chosen), None)
    if own is None:
        return None
    for model in sorted(models, key=lambda model: model.size_bytes, reverse=True):
        if model.size_bytes <= own.size_bytes:
            return None
        if await _can_chat(clients, model.name):
            return own, model
    return None


def context_length(details: ollama.ShowResponse) -> int | None:
    """Return the longest context a model was trained for, tokens, where the server tells.

    Raises:
        ValueError: it is not a number of tokens.
    """
    for key, value in (details.modelinfo or {}).items():
        if key.endswith(".context_length"):
            return count(value, key)
    return None


async def version_of(clients: Clients) -> str:
    """Return the server's version.

    Raises:
        ollama.ResponseError: the server answers with an error, as others than Ollama do.
        ValueError: the server names none.
    """
    response = await clients.http.get("/api/version")
    if response.is_error:
        raise ollama.ResponseError(response.json()["error"], response.status_code)
    version = response.json().get("version")
    if not isinstance(version, str):
        raise ValueError(f"the version is {clip(repr(version), 60)}")
    return clip(printable(version), 40)


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
    url = parse_host(host)
    return run_aside(_look(url, timeout_s))


async def _look(url: str, timeout_s: float) -> OllamaProbe:
    clients = Clients.open(url, timeout_s=timeout_s)
    try:
        with translated("", host=url):
            version = await version_of(clients)
            models = installed(await clients.chat.list())
            chosen, why = await in_use(clients, models)
            pair = await _larger(clients, models, chosen)
    finally:
        await clients.aclose()
    if pair is not None:
        own, larger = (f"{model.size_bytes / 1e9:.2g} GB" for model in pair)
        name = pair[1].name
        why += f"; {name} is larger, {larger} against {own}: 'ollama:{name}' takes it"
    names = tuple(model.name for model in models)
    return OllamaProbe(host=url, version=version, models=names, model=chosen, why=why)
