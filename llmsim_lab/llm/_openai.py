"""The backend for servers that speak OpenAI's protocol, through the official client.

vLLM, llama.cpp's server, LM Studio and hosted services do, each a little differently. What a server
turns down (structured outputs, the name of the token limit, switches for thinking) is found out
with the first request that has it, logged, remembered, and left out of later ones.

The key goes into a request in the transport, as late as possible, so that nothing of the official
client has it: neither its errors nor its log. Should a server repeat it, it is masked.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal
from urllib.parse import SplitResult

import httpx
from pydantic import SecretStr

from llmsim_lab._util.text import clip, listed, log_event, printable
from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.llm._completions import Completion, as_object, with_instruction
from llmsim_lab.llm._connections import (
    Shared,
    broken_off,
    clear_locals,
    connection_fault,
    is_loopback,
    not_understood,
    open_transport,
    read_address,
    run_aside,
    status_fault,
    stopped,
    without_locals,
)
from llmsim_lab.llm._retry import context_overflow, retry_after_s
from llmsim_lab.llm._scope import scope, scoped
from llmsim_lab.llm._transport import (
    STREAMED,
    OuterTransport,
    Telling,
    error_text,
    is_framed,
    lines,
    read_json,
    streamed,
    unwrapped,
)
from llmsim_lab.types import ChatReply, ChatRequest, Message, ModelInfo, OnText

logger = logging.getLogger(__name__)

Key = str | Callable[[], str | Awaitable[str]]

HOSTED = "https://api.openai.com/v1"
_UNNAMED = ("", "auto", "openai")
_PLACEHOLDER = "none"
_LIST_TIMEOUT_S = 5.0
_SHORTEST_SECRET = 8
"""Characters; what is shorter is no key, but what local servers are given in place of one."""
_LAST_WORDS_S = 5.0
"""How long a reply that is done is waited for to end: its counts come after it."""
_MAX_TEXT = 500
_OPERATIONS = re.compile(r"/(?:chat/completions|completions|models)$")
_LIMITS = ("max_tokens", "max_completion_tokens")
"""The older name, which all servers but OpenAI's own understand, and the newer one."""
_REJECTIONS = (400, 422, 501)
"""Statuses of a request that has something in it that the server does not know."""
_ABOUT_SCHEMAS = re.compile(
    r"response_format|json.?schema|json_object|structured.?output|guided|grammar", re.IGNORECASE
)
_ABOUT_THIS_SCHEMA = re.compile(
    r"invalid schema|(?:json.?)?schema .{0,40}(?:invalid|not valid|unsupported|not permitted)"
    r"|unsupported .{0,40}schema|(?:convert|parse|compile) .{0,20}(?:schema|grammar)",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|exceed_context_size_error"
    r"|exceeds? the (?:available |maximum )?context|longer than the maximum model length"
    r"|greater than the context length",
    re.IGNORECASE,
)
_WINDOW = re.compile(r"(?:context|model) length (?:is|of) (\d{1,9})", re.IGNORECASE)
_STRICT_KEYWORDS = {
    *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf"),
    *("$ref", "$defs", "description", "pattern", "format", "multipleOf", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
"""What OpenAI's strict mode knows of JSON Schema."""
_NEVER_STRICT = ("patternProperties", "prefixItems", "not", "if", "then", "else", "oneOf", "allOf")
_FORMS: tuple[Literal["whole", "portable", "none"], ...] = ("whole", "portable", "none")
"""How a schema is sent: as it is; without what OpenAI's strict mode lacks; within the prompt."""


class OpenAIBackend:
    """Answers requests by a server that speaks OpenAI's protocol: ``/v1/chat/completions``.

    May be used from several event loops and threads; all backends of one server share one client
    per loop. Bounds neither time nor concurrency: ``LLMClient`` does. Such servers say nothing of a
    model's weights, so ``model_info`` has no digest, and they choose the context window and how
    long a model stays loaded: ``num_ctx`` is compared with what a prompt took, and ``keep_alive``
    is not sent.

    Args:
        model: taken where a request names none (or ``auto``); without one, the only one there.
        base_url: the server's address, with its ``/v1``; by default ``$OPENAI_BASE_URL``, else
            OpenAI's own.
        api_key: the key, or a function that returns it, also an ``async`` one, called for each
            request; by default ``$OPENAI_API_KEY``. Local servers mostly need none.

    Raises:
        ConfigError: the ``openai`` package is not installed, the address makes no sense, OpenAI's
            own servers are to be asked without a key, or the key has characters that no key has.
    """

    max_top_logprobs: ClassVar[int] = 20
    streams: ClassVar[bool | Literal["always"]] = True

    @without_locals
    def __init__(
        self, model: str | None = None, *, base_url: str | None = None, api_key: Key | None = None
    ) -> None:
        try:
            # Here, since it takes long to import, and not within an event loop's first request.
            importlib.import_module("openai")
        except ImportError as error:
            raise ConfigError(
                "models of OpenAI-compatible servers need the openai package: "
                "pip install 'llmsim-lab[openai]'"
            ) from error
        self.base_url = parse_base_url(base_url)
        self._hosted = self.base_url.startswith(HOSTED)
        self._model = None if model in _UNNAMED else model
        given = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "").strip()
        self._key: Callable[[], Any] | None = None
        if callable(given):
            self._key = given
        elif given:
            # The method of a secret, so that no attribute of this backend shows the key.
            self._key = _checked_key(given).get_secret_value
        if self._key is None and self._hosted:
            raise ConfigError(
                f"{self.base_url} wants a key: set OPENAI_API_KEY or give api_key=...; for a "
                "server of your own give base_url=..., or set OPENAI_BASE_URL"
            )
        self._fingerprint: str | None = None
        self._forms: dict[tuple[str, str], int] = {}
        """By model and schema (or all schemas, the empty text), the place in ``_FORMS``."""
        self._turned_down: set[tuple[str, str]] = set()
        """Models, and names of fields that their server does not take."""
        plain = self.base_url.startswith("http:")
        if self._key is not None and plain and not is_loopback(self.base_url):
            log_event(logger, logging.WARNING, "key_in_clear", base_url=self.base_url)

    def __reduce__(self) -> tuple[object, ...]:
        """Leave a key out that was given as a text: the other process has ``$OPENAI_API_KEY``."""
        given = None if isinstance(getattr(self._key, "__self__", None), SecretStr) else self._key
        return partial(type(self), self._model, base_url=self.base_url, api_key=given), ()

    def __repr__(self) -> str:
        return f"OpenAIBackend({self._model!r}, base_url={self.base_url!r})"

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        """Answer one request.

        Args:
            request: what is asked.
            on_text: is given each piece of the reply as it comes; True stops the model.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
        """
        model = await self._resolve(request.model)
        num_ctx = request.options.get("num_ctx")
        known = self._turned_down.copy(), self._forms.copy()
        while True:
            form = self._form(model, request.schema)
            fields = self._fields(model, request, form, stream=on_text is not None)
            try:
                reply = await self._exchange(model, fields, on_text)
                break
            except _StatusError as error:
                # Each time one thing less is sent, so this comes to an end.
                if not self._learn(request, fields, form, error):
                    if error.status in _REJECTIONS:
                        # Something else is wrong: the names may have stood there as a quotation.
                        self._turned_down, self._forms = known
                    raise await self._fault(error, model, request) from error
        if num_ctx is not None and (reply.prompt_tokens or 0) > num_ctx:
            # The server's own window is larger than the one this request allows.
            raise context_overflow(f"{reply.prompt_tokens:,} tokens", num_ctx)
        return reply

    async def model_info(self) -> ModelInfo:
        """Return which model answers, as far as such a server tells: no digest.

        Raises:
            BackendError: the server cannot be reached, or turns the key down.
        """
        name = await self._resolve("")
        listed = await self._listing() or []
        # A server with one model, such as llama.cpp's, takes any name for it.
        found = next((one for one in listed if one["id"] == name or len(listed) == 1), {})
        owner = found.get("owned_by")
        told = [f"owned by {owner}"] if isinstance(owner, str) and owner else []
        told += [f"system_fingerprint {self._fingerprint}"] if self._fingerprint else []
        meta = found.get("meta")
        trained = meta.get("n_ctx_train") if isinstance(meta, dict) else None
        length = found.get("max_model_len") or trained  # vLLM's, llama.cpp's
        return ModelInfo(
            name=name,
            backend="openai",
            context_length=length if type(length) is int and length > 0 else None,
            version=clip(printable(", ".join(told)), 120) or None,
        )

    def look(self, *, timeout_s: float = _LIST_TIMEOUT_S) -> list[str] | None:
        """Return the names of the server's models; None if it does not list them.

        Raises:
            BackendError: no server answers there, or it turns the key down.
        """
        try:
            listed = run_aside(asyncio.wait_for(self._listing(), timeout_s))
        except TimeoutError:
            raise BackendError(
                f"nothing answered in time at {self.base_url}; see that an OpenAI-compatible "
                "server runs there",
                reason="timeout",
            ) from None
        return None if listed is None else [printable(str(one["id"])) for one in listed]

    async def aclose(self) -> None:
        """Close the connections that no other backend uses."""
        await _shared.release(self.base_url, self)

    async def _resolve(self, asked: str) -> str:
        """Return the model to ask; a choice, once made, stays."""
        if asked not in _UNNAMED:
            return asked.removeprefix("openai:")
        if self._model is None:
            names = [str(one["id"]) for one in await self._listing() or ()]
            self._model = only_one(names, self.base_url)
            log_event(
                logger, logging.INFO, "model_chosen", model=self._model, base_url=self.base_url
            )
        return self._model

    async def _secret(self) -> SecretStr | None:
        """Return the key of this moment."""
        if self._key is None:
            return None
        try:
            return await _fetched_key(self._key)
        except ConfigError as error:
            clear_locals(error)
            raise BackendError(str(error), reason="client_error") from None

    async def _listing(self) -> list[dict[str, Any]] | None:
        """Return the server's models; None if it does not list them.

        Raises:
            BackendError: the server cannot be reached, or turns the key down.
        """
        outgoing = _OpenAIExchange(await self._secret())
        try:
            with self._translated(outgoing, ""):
                sdk = (await _shared.get(self.base_url, self)).sdk
                answer = await sdk.models.with_raw_response.list()
                models = as_object(read_json(answer.content)).get("data")
        except _StatusError as error:
            if error.status in (404, 405, 501):
                return None
            raise await self._fault(error, "") from error
        if not isinstance(models, list):
            return None
        return [one for one in models if isinstance(one, dict) and isinstance(one.get("id"), str)]

    def _form(self, model: str, schema: Mapping[str, Any] | None) -> int:
        """Return how a schema is sent: the place in ``_FORMS``."""
        first = 1 if self._hosted else 0
        if schema is None or not self._forms:
            return first
        # What is known of all schemas, and of this one.
        known = (self._forms.get((model, key), 0) for key in ("", _key_of(schema)))
        return max(first, *known)

    def _fields(
        self, model: str, request: ChatRequest, form: int, *, stream: bool
    ) -> dict[str, Any]:
        """Return a request as the protocol writes it."""
        messages, fields = request.messages, self._options(model, request.options)
        if isinstance(request.think, str):
            fields["reasoning_effort"] = request.think
        elif request.think is not None and not self._hosted:
            # vLLM's and llama.cpp's; OpenAI's own servers have no such field.
            fields["chat_template_kwargs"] = {"enable_thinking": request.think}
        if request.tools:
            fields["tools"] = [dict(tool) for tool in request.tools]
        if request.top_logprobs:
            fields["logprobs"] = request.top_logprobs
        if stream:  # else it would come without token counts
            fields["stream_options"] = {"include_usage": True}
        if request.schema is not None and _FORMS[form] == "none":
            messages = with_instruction(
                messages,
                "Reply with one JSON object and nothing else. It must fit this JSON schema:\n"
                f"{json.dumps(request.schema, ensure_ascii=False)}",
            )
        elif request.schema is not None:
            schema = dict(request.schema)
            if _FORMS[form] == "portable":
                schema = portable(schema)
            held = {"name": "reply", "strict": is_strict(schema), "schema": schema}
            fields["response_format"] = {"type": "json_schema", "json_schema": held}
        for name in _SWITCHES:
            if (model, name) in self._turned_down:
                fields.pop(name, None)
        return {"model": model, "messages": list(as_json(messages)), **fields}

    def _options(self, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return sampling options by this protocol's names; others go out as they are."""
        fields: dict[str, Any] = {}
        for name, value in options.items():
            if value is None or name == "num_ctx" or (name == "seed" and value == -1):
                continue  # Ollama draws anew at -1
            if name != "num_predict":
                fields[name] = value
            elif value >= 0:
                newer = self._hosted or (model, _LIMITS[0]) in self._turned_down
                fields[_LIMITS[newer]] = value
        return fields

    def _learn(
        self, request: ChatRequest, fields: Mapping[str, Any], form: int, error: _StatusError
    ) -> bool:
        """Remember what the server does not take of a request; False if that is not the trouble."""
        if error.status not in _REJECTIONS or error.is_overflow:
            return False
        model, said = fields["model"], error.said
        lacking = [name for name in _SWITCHES if name in fields and name in said]
        if _LIMITS[0] in fields and _LIMITS[1] in said:
            lacking.append(_LIMITS[0])
        if not lacking and "response_format" in fields and _ABOUT_SCHEMAS.search(said):
            schema = request.schema or {}
            # A complaint about this schema leaves others alone; any other is about all of them.
            this_one = _ABOUT_THIS_SCHEMA.search(said) is not None
            further = form + 1 if this_one and portable(schema) != schema else len(_FORMS) - 1
            place = (model, _key_of(schema) if this_one else "")
            self._forms[place] = max(further, self._forms.get(place, 0))
            if _FORMS[further] != "none":
                return True
            lacking.append("response_format")
        for name in lacking:
            if (model, name) not in self._turned_down:
                self._turned_down.add((model, name))
                level, detail = _TURNED_DOWN[name]
                log_event(
                    logger,
                    level,
                    f"{name}_unsupported",
                    model=model,
                    base_url=self.base_url,
                    said=clip(error.text, 200),
                    detail=detail,
                )
        return bool(lacking)

    async def _exchange(
        self, model: str, fields: Mapping[str, Any], on_text: OnText | None
    ) -> ChatReply:
        """Make one request over the wire.

        Raises:
            _StatusError: the server reports an error.
            BackendError: it does not answer, or not in the protocol's form.
        """
        stream = on_text is not None
        outgoing = _OpenAIExchange(await self._secret(), stream=stream)
        rest = {name: fields[name] for name in fields if name not in ("model", "messages")}
        if "logprobs" in rest:
            rest |= {"logprobs": True, "top_logprobs": rest["logprobs"]}
        # As extra fields: the official client turns down options that are not OpenAI's own.
        told = {"model": model, "messages": fields["messages"], "extra_body": rest}
        tell, answer = Telling(on_text), Completion("the server")
        began = time.perf_counter()
        with self._translated(outgoing, model):
            chat = (await _shared.get(self.base_url, self)).sdk.chat.completions
            if on_text is None:
                body = as_object(read_json((await chat.with_raw_response.create(**told)).content))
                if isinstance(body.get("error"), dict | str) and not body.get("choices"):
                    raise _StatusError(200, body["error"], None)
                answer.add_whole(body)
            else:
                # Closed whatever happens: the server stops a model nobody listens to.
                async with chat.with_streaming_response.create(stream=True, **told) as response:
                    await _read(events(response.iter_bytes()), answer, tell)
                # Without a length the end of a broken connection looks like the end of the reply.
                if not (answer.is_done or outgoing.framed):
                    raise broken_off(self.base_url, f"{answer.events} events")
                if not (answer.is_done or answer.events):
                    raise ValueError("it has no events, so it is no streamed reply")
            reply = answer.reply(seconds=time.perf_counter() - began)
        self._fingerprint = answer.fingerprint or self._fingerprint
        reply = _masked(reply, outgoing.secret)
        if reply.done_reason == "aborted":
            raise stopped(reply, who=f"the server at {self.base_url}")
        return reply

    @contextmanager
    def _translated(self, outgoing: _OpenAIExchange, model: str) -> Iterator[None]:
        """Send what is asked for inside; turn what the clients raise into failures of ours."""
        import openai

        url = self.base_url
        try:
            with scoped(outgoing=outgoing):
                try:
                    yield
                except BaseException as error:
                    clear_locals(error)  # those of the HTTP client have the key
                    raise
        except openai.APIStatusError as error:
            response: Any = error.response
            asked = retry_after_s(response.headers.get("retry-after"))
            raise _StatusError(response.status_code, _parsed(response), asked) from error
        except (openai.APIConnectionError, ConnectionError, httpx.TransportError) as error:
            cause: Any = error if not isinstance(error, openai.OpenAIError) else error.__cause__
            if isinstance(cause, BackendError):  # older clients wrap what the transport raises
                raise cause from None
            raise connection_fault(
                cause,
                url=url,
                who="the server",
                kind="OpenAI-compatible server",
                not_made=isinstance(cause, httpx.ConnectError),
                way_out="start it, or set base_url or OPENAI_BASE_URL",
            ) from error
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            raise not_understood(
                error, url=url, form="OpenAI's", model=model, sent=outgoing.sent
            ) from error

    async def _fault(
        self, error: _StatusError, model: str, request: ChatRequest | None = None
    ) -> BackendError:
        """Return the failure behind a reported error; that of a missing model lists the others."""
        status, text, url = error.status, error.text or "no explanation", self.base_url
        if error.is_overflow and request is not None:
            return _overflow(error, request)
        reason: FailureReason = "client_error"
        if status in (401, 403):
            what = "wants a key" if self._key is None else "does not accept the key"
            message = f"{url} {what}: {text}; set OPENAI_API_KEY, or give api_key=..."
        elif error.is_missing_model:
            reason, message = "model_not_found", f"{url} has no model {model!r} ({text})"
            with suppress(BackendError, TimeoutError):
                async with asyncio.timeout(_LIST_TIMEOUT_S):
                    names = [printable(one["id"]) for one in await self._listing() or ()]
                message += f"; it has {listed(names)}" if names else ""
        elif status == 404:
            message = (
                f"there is no OpenAI-compatible server at {url}: {text}; base_url mostly ends "
                "in /v1"
            )
        else:
            return status_fault(
                status,
                text,
                who=url,
                model=model,
                # A quota that is used up does not come back within seconds.
                is_lasting="insufficient_quota" in error.said,
                retry_after_s=error.retry_after_s,
            )
        return BackendError(
            message, reason=reason, status_code=status, retry_after_s=error.retry_after_s
        )


async def _read(parts: AsyncIterator[dict[str, Any]], answer: Completion, tell: Telling) -> None:
    """Read the events of a stream to its end.

    Raises:
        _StatusError: one of them is an error.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as patience:
            async for event in parts:
                if error := event.get("error"):  # some have it always, as null
                    raise _StatusError(200, error, None)
                was_done = answer.is_done
                tell(*answer.add(event))
                if answer.is_done and not was_done:
                    loop = asyncio.get_running_loop()
                    patience.reschedule(loop.time() + _LAST_WORDS_S)


_TURNED_DOWN: dict[str, tuple[int, str]] = {
    "chat_template_kwargs": (logging.INFO, "continuing without; think is left to the server"),
    "stream_options": (logging.INFO, "continuing without; streamed replies have no token counts"),
    "logprobs": (logging.WARNING, "continuing without log-probabilities"),
    _LIMITS[0]: (logging.INFO, f"continuing with {_LIMITS[1]}"),
    "response_format": (
        logging.WARNING,
        "continuing without structured outputs: the schema goes into the prompt, and replies are "
        "held to it by validation alone",
    ),
}
"""What requests do without where a server does not take it, and how that is logged."""
_SWITCHES = ("chat_template_kwargs", "stream_options", "logprobs")
"""Those that are just left out."""


@dataclass(slots=True)
class _OpenAIExchange:
    """What a request's transport adds and notes.

    Attributes:
        secret: the key.
        stream: whether the reply is streamed.
        sent: whether the request has left.
        framed: whether the response says where it ends.
    """

    secret: SecretStr | None
    stream: bool = False
    sent: bool = False
    framed: bool = True


class _StatusError(Exception):
    """An error that the server reports."""

    def __init__(self, status: int, error: Any, retry_after_s: float | None) -> None:
        text, details = unwrapped(error)
        code = details.get("code")
        if status == 200:  # with which some services report one
            status = code if type(code) is int and 400 <= code <= 599 else 500
        self.status = status
        self.text = clip(error_text(text), _MAX_TEXT)
        self.details = details
        self.retry_after_s = retry_after_s
        named = (str(details.get(name) or "") for name in ("param", "code", "type"))
        self.said = " ".join([*named, self.text])
        """All that it says, for searching."""
        super().__init__(self.text)

    @property
    def is_overflow(self) -> bool:
        """Whether the prompt does not fit."""
        return self.status < 500 and _OVERFLOW.search(self.said) is not None

    @property
    def is_missing_model(self) -> bool:
        """Whether the server lacks the model."""
        return "model_not_found" in self.said or (
            self.status == 404 and "model" in self.text.lower()
        )


def _overflow(error: _StatusError, request: ChatRequest) -> BackendError:
    """Return the failure of a prompt that does not fit the server's window."""
    tokens, window = error.details.get("n_prompt_tokens"), error.details.get("n_ctx")
    if type(window) is not int:
        found = _WINDOW.search(error.text)
        window = int(found[1]) if found else None
    chars = sum(len(message.content) for message in request.messages)
    prompt = f"{tokens} tokens" if type(tokens) is int else f"{chars} characters"
    most = f"the {window} tokens of context" if window is not None else "the context window"
    return BackendError(
        f"the prompt has {prompt}, more than {most} that the server gives this model "
        f"({error.text}); shorten the prompt, or start the server with a larger window",
        reason="context_overflow",
        status_code=error.status,
    )


@dataclass(slots=True, eq=False)
class _OpenAIClient:
    """The official client for one server and one event loop."""

    sdk: Any

    @classmethod
    def open(cls, url: str) -> _OpenAIClient:
        from openai import AsyncOpenAI

        transport = _KeyTransport(open_transport(url, who=url), own=url.startswith(HOSTED))
        http: Any = httpx.AsyncClient(transport=transport, timeout=None, follow_redirects=False)
        # Retries are the caller's. The key is not known here, and a text has to be given.
        sdk = AsyncOpenAI(api_key=_PLACEHOLDER, base_url=url, http_client=http, max_retries=0)
        sdk.timeout = None  # as above: the caller bounds the time
        return cls(sdk)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.sdk.close()


_shared = Shared(_OpenAIClient.open)


class _KeyTransport(OuterTransport):
    """Adds the scope's key to requests, and masks it in answers.

    Args:
        inner: makes the requests.
        own: whether they go to OpenAI; others do not get the names of organization and project.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, own: bool) -> None:
        super().__init__(inner)
        # The first is what the official client says of this machine.
        others = () if own else (b"openai-organization", b"openai-project")
        self._left_out: tuple[bytes, ...] = (b"x-stainless-", *others)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request."""
        outgoing: _OpenAIExchange = scope().outgoing
        secret = outgoing.secret.get_secret_value().encode() if outgoing.secret else b""
        key = _forms_of(secret)
        headers = [
            (name, value)
            for name, value in request.headers.raw
            if not name.lower().startswith(self._left_out)
            and value != f"Bearer {_PLACEHOLDER}".encode()
        ]
        if secret:
            headers = [pair for pair in headers if pair[0].lower() != b"authorization"]
            headers.append((b"Authorization", b"Bearer " + secret))
        content = await request.aread()
        outgoing.sent = True
        # A new request: the client's own is in its errors, and must not have the key.
        response = await self._inner.handle_async_request(
            httpx.Request(
                request.method,
                request.url,
                headers=headers,
                content=content,
                extensions=request.extensions | (STREAMED if outgoing.stream else {}),
            )
        )
        outgoing.framed = is_framed(response)
        # Only what is read later: some other header might repeat the key.
        kept = ("content-type", "retry-after")
        response.headers = httpx.Headers(
            {name: value for name, value in response.headers.items() if name in kept}
        )
        if key is None:
            return response
        if outgoing.stream and response.is_success:
            return streamed(response, partial(_mask, key))
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            content=key.sub(b"***", response.content),
        )


async def _mask(key: re.Pattern[bytes], blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for block in blocks:  # which are whole lines, so that none ends within the key
        yield key.sub(b"***", block)


def _masked(reply: ChatReply, secret: SecretStr | None) -> ChatReply:
    """Return a reply without the key, which a stream may have brought in pieces."""
    key = secret.get_secret_value() if secret is not None else ""
    if len(key) < _SHORTEST_SECRET:
        return reply
    calls = (
        replace(call, name=_without(key, call.name), arguments=_without(key, call.arguments))
        for call in reply.tool_calls
    )
    return replace(
        reply,
        text=_without(key, reply.text),
        thinking=_without(key, reply.thinking),
        tool_calls=tuple(calls),
    )


def _without(key: str, value: Any) -> Any:
    """Return a JSON value without the key in any of its texts."""
    if isinstance(value, str):
        return value.replace(key, "***")
    if isinstance(value, Mapping):
        return {_without(key, name): _without(key, one) for name, one in value.items()}
    return [_without(key, one) for one in value] if isinstance(value, list) else value


def _forms_of(secret: bytes) -> re.Pattern[bytes] | None:
    """Return how a key may stand in JSON, which has escapes for any character.

    None for a word that stands in a key's place, such as ``EMPTY`` or ``ollama``: without it, a
    text that has the word would be another text.
    """
    if len(secret) < _SHORTEST_SECRET:
        return None
    forms = (rb"(?:\\?%s|\\u00(?i:%02x))" % (re.escape(b"%c" % code), code) for code in secret)
    return re.compile(b"".join(forms))


async def _fetched_key(source: Callable[[], Any]) -> SecretStr:
    """Return the key that a user's function returns now."""
    value = source()
    return _checked_key(await value if inspect.isawaitable(value) else value)


def _checked_key(value: object) -> SecretStr:
    """Return a key that can stand in a header.

    Raises:
        ConfigError: it cannot; the message does not show it, nor do the errors of HTTP clients.
    """
    if not isinstance(value, str):
        raise ConfigError(
            f"api_key must be a text, or return one; it was of type {type(value).__name__}"
        )
    key = value.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"the API key (of {len(value)} characters, not shown) is empty or has characters that "
            "no key has, such as line breaks; see OPENAI_API_KEY, or what you gave as api_key"
        )
    return SecretStr(key)


def parse_base_url(base_url: str | None = None) -> str:
    """Return a server's URL; without one that of ``$OPENAI_BASE_URL``, else OpenAI's own.

    ``gpu-box:8000`` is ``http://gpu-box:8000/v1``. A path loses an operation at its end, such as
    ``/chat/completions``, which clients add themselves.

    Raises:
        ConfigError: it is not a server's address, or has a password in it.
    """

    def url_of(split: SplitResult, _: bool) -> str:
        if split.port == 0:
            raise ValueError("no server listens there")
        path = _OPERATIONS.sub("", split.path.rstrip("/")) or "/v1"
        return f"{split.scheme}://{split.netloc}{path}"

    return read_address(
        (base_url or os.environ.get("OPENAI_BASE_URL") or HOSTED).strip().strip("\"'"),
        url_of,
        source="base_url" if base_url else "OPENAI_BASE_URL",
        form="http://host:port/v1, for example http://127.0.0.1:8000/v1",
        note="; the key goes into api_key",
    )


def only_one(names: Sequence[str], url: str) -> str:
    """Return the model to take where none is named.

    Raises:
        BackendError: there is not exactly one.
    """
    if len(names) == 1:
        return names[0]
    there = f"has {listed(names)}" if names else "lists none"
    raise BackendError(
        f"name the model, as 'openai:NAME': the server at {url} {there}",
        reason="model_not_found",
    )


def as_json(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Yield messages as the protocol writes them, where each result names the call it is of."""
    open_calls: list[tuple[str, str]] = []
    number = 0
    for message in messages:
        value: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            value["tool_calls"] = calls = []
            for call in message.tool_calls:
                number += 1
                named = call.id or f"call_{number}"
                open_calls.append((call.name, named))
                arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
                function = {"name": call.name, "arguments": arguments}
                calls.append({"id": named, "type": "function", "function": function})
        if message.role == "tool":
            # A result names its tool and not the call, so it is of the first open one of that tool.
            same = [pair for pair in open_calls if pair[0] == message.tool_name]
            pair = next(iter(same or open_calls), ("", "call_0"))
            if pair in open_calls:
                open_calls.remove(pair)
            value["tool_call_id"] = pair[1]
        yield value


def portable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the keywords that OpenAI's strict mode turns down.

    What they said is checked in the reply all the same.
    """
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            result[key] = {name: portable(child) for name, child in value.items()}
        elif key in ("anyOf", "oneOf"):
            result["anyOf"] = [portable(child) for child in value]
        elif key == "items" and isinstance(value, Mapping):
            result[key] = portable(value)
        elif key in _STRICT_KEYWORDS or key in _NEVER_STRICT:
            result[key] = value
    return result


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Return True if a schema is one that strict mode takes: closed objects, all required."""
    if any(key in schema for key in _NEVER_STRICT):
        return False
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or properties:
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
    inner = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    if "items" in schema:
        inner.append(schema["items"])
    return all(is_strict(child) for child in inner if isinstance(child, Mapping))


def _key_of(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, sort_keys=True)


def _parsed(response: Any) -> Any:
    try:
        return read_json(response.content)
    except ValueError:
        return response.content.decode(errors="replace")


async def events(blocks: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream that comes in blocks of whole lines; the last is empty."""
    ended = False
    async for line in lines(blocks):
        name, _, data = line.partition(b":")
        if ended:  # read to its end all the same, so that the connection can be used again
            continue
        if name == b"data" and data.strip() == b"[DONE]":
            ended = True
            yield {}
        elif name == b"data":
            yield as_object(read_json(data))
        elif name == b"error":  # llama.cpp's
            yield {"error": _parsed(httpx.Response(200, content=data))}
