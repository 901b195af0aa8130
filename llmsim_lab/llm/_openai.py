"""The backend for servers that speak OpenAI's protocol.

vLLM, llama.cpp's server, LM Studio and hosted services do, each a little differently. What a server
turns down (structured outputs, the name of the token limit, switches for thinking) is found out
with the first request that has it, logged, remembered, and left out of later ones.

Should a server repeat the key that a request carries, it is masked.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal
from urllib.parse import SplitResult

import httpx
from pydantic import SecretStr

from llmsim_lab._util.text import clip, listed, log_event, printable
from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.llm._extract import alternatives, with_instruction
from llmsim_lab.llm._http import (
    SHORTEST_SECRET,
    Server,
    StatusError,
    Written,
    as_object,
    clear_locals,
    count,
    is_framed,
    is_loopback,
    read_address,
    read_json,
    run_aside,
    text_of,
    unwrapped,
    without,
    without_locals,
)
from llmsim_lab.llm._retry import context_overflow
from llmsim_lab.types import ChatReply, ChatRequest, Message, ModelInfo, OnText, ToolCall

logger = logging.getLogger(__name__)

Key = str | Callable[[], str | Awaitable[str]]
Extend = Callable[[ChatRequest, dict[str, Any]], None]

HOSTED = "https://api.openai.com/v1"
_UNNAMED = ("", "auto", "openai")
_LIST_TIMEOUT_S = 5.0
_LAST_WORDS_S = 5.0
"""How long a reply that is done is waited for to end: its counts come after it."""
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

_DONE_REASONS = {
    **dict.fromkeys(("length", "max_tokens"), "length"),
    **dict.fromkeys(("content_filter", "abort", "error"), "aborted"),
    "insufficient_system_resource": "aborted",
}


class OpenAIBackend:
    """Answers requests by a server that speaks OpenAI's protocol: ``/v1/chat/completions``.

    May be used from several event loops and threads; all backends of one server share its
    connections in a loop. Bounds neither time nor concurrency: ``LLMClient`` does. Such servers
    say nothing of a model's weights, so ``model_info`` has no digest, and they choose the context
    window and how long a model stays loaded: ``num_ctx`` is compared with what a prompt took, and
    ``keep_alive`` is not sent.

    Args:
        model: taken where a request names none (or ``auto``); without one, the only one there.
        base_url: the server's address, with its ``/v1``; by default ``$OPENAI_BASE_URL``, else
            OpenAI's own.
        api_key: the key, or a function that returns it, also an ``async`` one, called for each
            request; by default ``$OPENAI_API_KEY``. Local servers mostly need none.
        extend: is given each request and its body, and may change the body before it is sent.

    Raises:
        ConfigError: the address makes no sense, OpenAI's own servers are to be asked without a
            key, or the key has characters that no key has.
    """

    max_top_logprobs: ClassVar[int] = 20
    streams = True

    @without_locals
    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: Key | None = None,
        extend: Extend | None = None,
    ) -> None:
        self.base_url = parse_base_url(base_url)
        self.server = Server(
            url=self.base_url,
            who=f"the server at {self.base_url}",
            kind="OpenAI-compatible server",
            form="OpenAI's",
            way_out="start it, or set base_url or OPENAI_BASE_URL",
        )
        self._extend = extend
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
        rebuilt = partial(
            type(self),
            self._model,
            base_url=self.base_url,
            api_key=given,
            extend=self._extend,
        )
        return rebuilt, ()

    def __repr__(self) -> str:
        return f"OpenAIBackend({self._model!r}, base_url={self.base_url!r})"

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        """Answer one request.

        Args:
            request: what is asked.
            on_text: is given each piece of the reply as it comes.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
        """
        model = await self._resolve(request.model)
        num_ctx = request.options.get("num_ctx")
        known = self._turned_down.copy(), self._forms.copy()
        while True:
            form = self._form(model, request.schema)
            fields = self.body_of(model, request, form)
            try:
                reply = await self._exchange(model, fields, on_text)
                break
            except StatusError as error:
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
        try:
            answer = await self.server.document("/models", key=await self._secret())
        except StatusError as error:
            if error.status in (404, 405, 501):
                return None
            raise await self._fault(error, "") from error
        with self.server.translated():
            models = as_object(answer).get("data")
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

    def body_of(self, model: str, request: ChatRequest, form: int) -> dict[str, Any]:
        """Return a request as the protocol writes it."""
        messages, fields = request.messages, self._options(model, request.options)
        # Without ``stream_options`` it would come without token counts.
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
        if isinstance(request.think, str):
            fields["reasoning_effort"] = request.think
        elif request.think is not None and not self._hosted:
            # vLLM's and llama.cpp's; OpenAI's own servers have no such field.
            fields["chat_template_kwargs"] = {"enable_thinking": request.think}
        if request.tools:
            fields["tools"] = [dict(tool) for tool in request.tools]
        if request.top_logprobs:
            fields |= {"logprobs": True, "top_logprobs": request.top_logprobs}
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
        if "logprobs" not in fields:
            fields.pop("top_logprobs", None)
        body = {"model": model, "messages": list(as_json(messages)), **fields}
        if self._extend is not None:
            self._extend(request, body)
        return body

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
        self, request: ChatRequest, fields: Mapping[str, Any], form: int, error: StatusError
    ) -> bool:
        """Remember what the server does not take of a request; False if that is not the trouble."""
        if error.status not in _REJECTIONS or _is_overflow(error):
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
            StatusError: the server reports an error.
            BackendError: it does not answer, or not in the protocol's form.
        """
        key = await self._secret()
        answer = _Completion(Written("the server", on_text), who=self.server.who)
        began = time.perf_counter()
        asked = self.server.asked("/chat/completions", fields, model=model, key=key)
        async with asked as response:
            transport = await self.server.transport()
            await _read(_events(transport.lines(response), response), answer)
            # Without a length the end of a broken connection looks like the end of the reply.
            if not (answer.is_done or is_framed(response)):
                raise self.server.broken_off(f"{answer.events} events")
            if not (answer.is_done or answer.events):
                raise ValueError("it has no events, so it is no streamed reply")
            reply = answer.reply(seconds=time.perf_counter() - began)
        self._fingerprint = answer.fingerprint or self._fingerprint
        if key is not None and len(key) >= SHORTEST_SECRET:
            told = key.get_secret_value()
            calls = tuple(
                replace(
                    call, name=without(told, call.name), arguments=without(told, call.arguments)
                )
                for call in reply.tool_calls
            )
            reply = replace(
                reply,
                text=without(told, reply.text),
                thinking=without(told, reply.thinking),
                tool_calls=calls,
            )
        if reply.done_reason == "aborted":
            raise self.server.stopped(reply)
        return reply

    async def _fault(
        self, error: StatusError, model: str, request: ChatRequest | None = None
    ) -> BackendError:
        """Return the failure behind a reported error; that of a missing model lists the others."""
        status, text, url = error.status, error.text or "no explanation", self.base_url
        if _is_overflow(error) and request is not None:
            return _overflow(error, request)
        reason: FailureReason = "client_error"
        if status in (401, 403):
            what = "wants a key" if self._key is None else "does not accept the key"
            message = f"{url} {what}: {text}; set OPENAI_API_KEY, or give api_key=..."
        elif _is_missing_model(error):
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
            # A quota that is used up does not come back within seconds.
            is_lasting = "insufficient_quota" in error.said
            return self.server.status_fault(error, model=model, is_lasting=is_lasting)
        return BackendError(
            message, reason=reason, status_code=status, retry_after_s=error.retry_after_s
        )


async def _events(
    lines: AsyncIterator[bytes], response: httpx.Response
) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a reply; the last is empty.

    Raises:
        StatusError: one of them is an error.
    """
    if response.headers.get("content-type", "").startswith("application/json"):
        # Not streamed, though asked to be.
        event = _without_error(as_object(read_json(b"\n".join([line async for line in lines]))))
        as_object(_first(event.get("choices")).get("message"))
        yield event
        yield {}
        return
    ended = False
    async for line in lines:
        name, _, data = line.partition(b":")
        if ended:  # read to its end all the same, so that the connection can be used again
            continue
        if name == b"data" and data.strip() == b"[DONE]":
            ended = True
            yield {}
        elif name == b"data":
            yield _without_error(as_object(read_json(data)))
        elif name == b"error":  # llama.cpp's
            _without_error({"error": read_json(data)})


def _without_error(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event; raise what it reports."""
    if error := event.get("error"):  # some have it always, as null
        code = unwrapped(error)[1].get("code")
        # With status 200, under which some services report one.
        raise StatusError(code if type(code) is int and 400 <= code <= 599 else 500, error)
    return event


async def _read(events: AsyncIterator[dict[str, Any]], answer: _Completion) -> None:
    """Read the events of a reply to its end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as patience:
            async for event in events:
                was_done = answer.is_done
                answer.add(event)
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


def _is_overflow(error: StatusError) -> bool:
    """Return True if the prompt does not fit."""
    return (error.status or 500) < 500 and _OVERFLOW.search(error.said) is not None


def _is_missing_model(error: StatusError) -> bool:
    """Return True if the server lacks the model."""
    named = error.status == 404 and "model" in error.text.lower()
    return named or "model_not_found" in error.said


def _overflow(error: StatusError, request: ChatRequest) -> BackendError:
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


@dataclass(slots=True)
class _Completion:
    """Puts a reply together from its events.

    Attributes:
        written: its text.
        who: the server, for messages.
        is_done: whether the server has said that this is all.
        events: how many there were so far, the end mark left out.
        fingerprint: what the server says of its set-up; empty where it does not.
    """

    written: Written
    who: str
    is_done: bool = False
    events: int = 0
    fingerprint: str = ""
    _calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    _top_logprobs: tuple[tuple[str, float], ...] = ()
    _finish: str = ""
    _read: int | None = None
    _wrote: int | None = None

    def add(self, event: Mapping[str, Any]) -> None:
        """Take an event, the empty one as the end mark.

        Raises:
            ValueError: a count is not what it must be.
            TypeError: something is of another type than it must be.
            BackendError: a log-probability is not one, or the reply is too long.
        """
        if not event:
            self.is_done = True
            return
        self.events += 1
        if event.get("usage"):
            usage = as_object(event["usage"])
            self._read = count(usage.get("prompt_tokens"), "prompt_tokens")
            self._wrote = count(usage.get("completion_tokens"), "completion_tokens")
        if isinstance(fingerprint := event.get("system_fingerprint"), str):
            self.fingerprint = fingerprint or self.fingerprint
        if not event.get("choices"):
            self.written.add("")  # mostly how far the server has read the prompt
            return
        choice = _first(event["choices"])
        # A stream's events have a delta, a whole answer has a message.
        message = as_object(choice.get("delta") or choice.get("message") or {})
        self._finish = text_of(choice, "finish_reason") or self._finish
        self.is_done = self.is_done or bool(self._finish)
        tokens = as_object(choice.get("logprobs") or {}).get("content")
        if tokens and not self._top_logprobs:
            listed = map(as_object, _first(tokens).get("top_logprobs") or ())
            pairs = ((one.get("token"), one.get("logprob")) for one in listed)
            self._top_logprobs = alternatives(pairs, who=self.who)
        for part in message.get("tool_calls") or ():
            self._add_call(as_object(part))
        # A refusal is what OpenAI's models write in place of an answer.
        thinking = text_of(message, "reasoning_content", "reasoning")
        self.written.add(text_of(message, "content", "refusal"), thinking)

    def _add_call(self, part: Mapping[str, Any]) -> None:
        # Of servers that leave the index out, each part is a whole call.
        place = count(part.get("index", len(self._calls)), "index")
        call = self._calls.setdefault(place or 0, {"id": None, "name": "", "arguments": ""})
        function = as_object(part.get("function") or {})
        call["id"] = text_of(part, "id") or call["id"]
        call["name"] = text_of(function, "name") or call["name"]
        if isinstance(function.get("arguments"), dict):  # some servers do not write them as text
            call["arguments"] = function["arguments"]
        else:
            call["arguments"] += text_of(function, "arguments")

    def reply(self, *, seconds: float) -> ChatReply:
        """Return what has come so far.

        Raises:
            ValueError: a call's arguments are not JSON.
            TypeError: they are not an object.
        """
        return ChatReply(
            text=self.written.text,
            thinking=self.written.thinking,
            tool_calls=tuple(_call_of(call) for _, call in sorted(self._calls.items())),
            done_reason=_DONE_REASONS.get(self._finish, "stop"),
            prompt_tokens=self._read,
            reply_tokens=self._wrote,
            seconds=seconds,
            top_logprobs=self._top_logprobs,
        )


def _first(values: Any) -> dict[str, Any]:
    if not isinstance(values, list) or not values:
        raise TypeError(f"it is {clip(repr(values), 60)}, not a list of objects")
    return as_object(values[0])


def _call_of(call: Mapping[str, Any]) -> ToolCall:
    arguments = call["arguments"] or "{}"
    if isinstance(arguments, str):
        arguments = read_json(arguments)
    return ToolCall(name=call["name"], arguments=as_object(arguments), id=call["id"])


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
