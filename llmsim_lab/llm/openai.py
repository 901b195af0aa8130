"""The backend for servers that speak OpenAI's protocol.

vLLM, llama.cpp's server, LM Studio and hosted services do, each a little differently. What a server
turns down (structured outputs, the name of the token limit, switches for thinking) is found out
with the first request that has it, logged, remembered, and left out of later ones.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from llmsim_lab._util.copies import Shared
from llmsim_lab._util.frozen import SetOnce, thawed
from llmsim_lab._util.jsontext import JSON, JSONObject, Schema
from llmsim_lab._util.schemas import schemas_in
from llmsim_lab._util.text import listed, log_event, printable
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
    MAX_REPLY_BYTES,
    Server,
    StatusError,
    Written,
    member,
    read_json,
    read_object,
    too_large,
)
from llmsim_lab.llm.extract import with_instruction
from llmsim_lab.llm.form import told_form
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest, Message, ModelInfo, OnText

logger = logging.getLogger(__name__)

Body = dict[str, Any]
"""Of a request, as the protocol writes it: sampling options may be anything."""
Extend = Callable[[ChatRequest, Body], None]

HOSTED = "https://api.openai.com/v1"
_UNNAMED = ("", "auto", "openai")
_REJECTIONS = (400, 403, 422, 501)
"""Statuses of a request that has something in it that the server does not know."""
_ABOUT_SCHEMAS = re.compile(r"response_format|json.?schema|structured.?output|grammar", re.I)
_SWITCHES = ("chat_template_kwargs", "stream_options", "logprobs", "cache_prompt")
"""Fields that are just left out; services such as Groq and Mistral reject those they lack."""
_OFF = {
    "top_k": 0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
}
"""Settings that change nothing, where a server lacks them."""
_NOT_OF_OPENAI = frozenset(("chat_template_kwargs", "max_tokens", "full_schema", "cache_prompt"))
"""What OpenAI's own servers do not take."""
_STRICT_KEYWORDS = {
    *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf"),
    *("$ref", "$defs", "description", "pattern", "format", "multipleOf", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
"""What OpenAI's strict mode knows of JSON Schema."""
_NEVER_STRICT = frozenset(
    ("patternProperties", "prefixItems", "not", "if", "then", "else", "oneOf", "allOf")
)
"""What it turns down wherever it stands."""
_DONE_REASONS = {
    "length": "length",
    "content_filter": "aborted",
    "abort": "aborted",
}


class Token(NamedTuple):
    """A token that a model wrote, or might have written in its place.

    Attributes:
        content: its bytes; none at the end of a reply.
        probability: before temperature, schema and other settings of the sampler.
    """

    content: bytes
    probability: float


class TracedToken(NamedTuple):
    """A token of a reply, and the likeliest ones at its place, itself among them."""

    token: Token
    likely: tuple[Token, ...]


class OpenAIBackend(Shared, SetOnce, ChatBackend):
    """Answers requests by a server that speaks OpenAI's protocol: ``/v1/chat/completions``.

    May be used from several event loops and threads; all backends of one server share its
    connections in a loop. Bounds neither time nor concurrency: ``LLMClient`` does. Such servers
    say nothing of a model's weights, so ``model_info`` has no digest, and they choose the context
    window and how long a model stays loaded: ``num_ctx`` and ``keep_alive`` are not sent.

    Args:
        model: taken where a request names none (or ``auto``); without one, the only one there.
        base_url: the server's address, with its ``/v1``; by default ``$OPENAI_BASE_URL``, else
            OpenAI's own. It may have a user name and password, ``http://NAME:PASSWORD@box/v1``,
            which are not shown.
        api_key: the key, or a function that returns it, also an ``async`` one, called for each
            request; by default ``$OPENAI_API_KEY``. Local servers mostly need none.
        extend: is given each request and its body, and may change the body before it is sent.

    Raises:
        ConfigError: the address makes no sense, OpenAI's own servers are to be asked without a
            key, or the key has characters that no key has.
    """

    max_top_logprobs = 20
    streams = True

    set_once = ("base_url",)

    @without_locals
    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: Key | None = None,
        extend: Extend | None = None,
    ) -> None:
        address = _address(base_url)
        self.base_url = address.url
        self.server = Server(
            url=self.base_url,
            name=f"the server at {self.base_url}",
            kind="OpenAI-compatible server",
            if_absent="start it, or set base_url or OPENAI_BASE_URL",
            access=Access(
                api_key,
                variable="OPENAI_API_KEY",
                argument="api_key",
                login=address.login,
            ),
            if_refused="see what its key may use; OPENAI_API_KEY or api_key=... is the key",
            larger_window="start the server with a larger window",
        )
        self._extend = extend
        self._model = None if model in _UNNAMED else model
        lacking: frozenset[str] = frozenset()
        if self.base_url.startswith(HOSTED):
            lacking = _NOT_OF_OPENAI
        if lacking and not self.server.access:
            raise ConfigError(
                f"{self.base_url} wants a key: set OPENAI_API_KEY or give api_key=...; for a "
                "server of your own give base_url=..., or set OPENAI_BASE_URL"
            )
        self.slots: int | None = None
        """How many requests it answers at once; only llama.cpp's server tells, once it lists its
        models."""
        self._turned_down: dict[str, Set[str]] = defaultdict(lambda: lacking)
        """By model, what its server does not take."""

    def __reduce__(self) -> tuple[object, ...]:
        """Leave secrets out: the other process has ``$OPENAI_API_KEY`` or ``$OPENAI_BASE_URL``."""
        make = partial(
            type(self),
            self._model,
            base_url=self.base_url,
            api_key=self.server.access.kept,
            extend=self._extend,
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
            model = await self._resolve(request.model)
            without = self._turned_down[model]
            while True:
                body = self.body_of(model, request, without)
                try:
                    async with self.server.asked("/chat/completions", body, request) as answer:
                        reply = await answer.reply(on_text, _add)
                    break
                except BackendError as error:
                    # Each time one thing less is sent, so this comes to an end.
                    further = _turned_down(body, error.__cause__, without, request.schema)
                    without |= further
                    if further:
                        continue
                    hint = _without_option(body, error.__cause__)
                    if not hint:
                        raise
                    hinted = dataclasses.replace(error, message=f"{error}; {hint}")
                    raise hinted from error.__cause__
            # Not before a request went through: a rejection may quote fields of the request.
            before = self._turned_down[model]
            self._turned_down[model] = before | without
            # A schema that lost some of its keywords is still one, and they are not missed.
            lacks = sorted(without - before - {"full_schema", "patterns"})
            if lacks:
                log_event(
                    logger,
                    logging.WARNING,
                    "server_lacks",
                    model=model,
                    base_url=self.base_url,
                    lacks=", ".join(lacks),
                    detail="requests do without them; a schema that is not taken goes into the "
                    "prompt",
                )
            return reply

    async def traced(self, request: ChatRequest) -> list[TracedToken]:
        """Return the tokens of a reply, of a llama.cpp server, which tells each token's bytes.

        Args:
            request: what is asked; its ``top_logprobs`` says how many likely tokens are wanted.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
        """
        body = self.body_of(await self._resolve(request.model), request)
        tokens: list[TracedToken] = []

        def add(written: Written, line: bytes) -> None:
            _add(written, line)
            tokens.extend(_traced_in(line))

        with LocalsCleared():
            async with self.server.asked("/chat/completions", body, request) as answer:
                await answer.reply(None, add)
        return tokens

    @without_locals
    async def model_info(self) -> ModelInfo:
        """Return which model answers; such servers tell neither digest nor context length.

        Raises:
            BackendError: no model was named, and the server has not exactly one.
        """
        return ModelInfo(name=await self._resolve(""), backend="openai")

    async def tokens_in(self, text: str) -> int:
        """Return how many tokens a text has for the model of a llama.cpp server.

        Not ``count_tokens``, as other servers with this protocol have no such question.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
        """
        at_root = dataclasses.replace(
            self.server,
            url=self.base_url.removesuffix("/v1"),
        )
        with LocalsCleared():
            async with at_root.asked("/tokenize", {"content": text}) as answer:
                tokens = bytearray()
                async for line in answer.lines():
                    tokens += line
                    if len(tokens) > MAX_REPLY_BYTES:
                        raise too_large(self.server.name, MAX_REPLY_BYTES)
                return len(member(read_json(bytes(tokens)), "tokens", list))

    @without_locals
    async def phase(self, request: ChatRequest) -> str:
        """Return an empty text: such servers do not say whether they load a model.

        Raises:
            BackendError: nothing listens at the server's address any more.
        """
        await self.server.glance("/models")
        return ""

    @without_locals
    async def names(self) -> list[str]:
        """Return the names of the server's models; none if it does not list them.

        Of a llama.cpp server also its number of slots is asked.

        Raises:
            BackendError: no server answers there, or it turns the key down.
        """
        try:
            async with self.server.asked("/models", timeout_s=LIST_TIMEOUT_S) as answer:
                models = member(read_json(answer.content), "data", list)
                names = [printable(member(model, "id", str)) for model in models]
        except BackendError as error:
            if error.status_code in (404, 405, 501):
                return []
            raise
        if any(model.get("owned_by") == "llamacpp" for model in models):
            at_root = dataclasses.replace(
                self.server,
                url=self.base_url.removesuffix("/v1"),
            )
            with suppress(ValueError, TypeError):  # nothing depends on it
                properties = read_object(await at_root.glance("/props") or b"{}")
                self.slots = member(properties, "total_slots", int) or None
        return [name for name in names if name]

    async def _resolve(self, name: str) -> str:
        """Return the model to ask; a choice, once made, stays."""
        if name not in _UNNAMED:
            return name.removeprefix("openai:")
        if self._model is None:
            self._model = only_one(await self.names(), self.base_url)
        return self._model

    def body_of(
        self,
        model: str,
        request: ChatRequest,
        without: Set[str] = frozenset(),
    ) -> Body:
        """Return a request as the protocol writes it, without what its server does not take."""
        fields = {name: value for name, value in request.options.items() if value is not None}
        fields.pop("num_ctx", None)
        most_tokens = fields.pop("num_predict", -1)
        # Ollama's negative numbers say that there is no limit. OpenAI's reasoning models know the
        # limit by another name alone.
        if most_tokens >= 0 and "max_tokens" in without:
            fields["max_completion_tokens"] = most_tokens
        elif most_tokens >= 0:
            fields["max_tokens"] = most_tokens
        fields["stream"] = True
        # Without it the reply would come without token counts.
        fields["stream_options"] = {"include_usage": True}
        if isinstance(request.think, str):
            fields["reasoning_effort"] = request.think
        elif request.think is not None:
            # vLLM's and llama.cpp's.
            fields["chat_template_kwargs"] = {"enable_thinking": request.think}
        if request.tools:
            fields["tools"] = [dict(tool) for tool in request.tools]
        if request.top_logprobs and "logprobs" not in without:
            fields["logprobs"] = True
            fields["top_logprobs"] = request.top_logprobs
        messages = request.messages
        if request.schema is not None and "response_format" in without:
            form = told_form(request.schema)
            # Not where a second attempt or ``tell_form`` has told it already.
            if not any(form in message.content for message in messages):
                messages = with_instruction(messages, form)
        elif request.schema is not None:
            fields["response_format"] = _response_format(request.schema, without)
        fields = {name: value for name, value in fields.items() if name not in without}
        body = {
            "model": model,
            "messages": list(as_json(messages)),
            **fields,
        }
        if self._extend is not None:
            self._extend(request, body)
        return body


def _response_format(schema: Schema, without: Set[str]) -> Body:
    """Return what holds a reply to a schema, with the keywords that the server takes."""
    taken = portable(schema) if "full_schema" in without else thawed(schema)
    if "patterns" in without:
        for part in schemas_in(taken):
            part.pop("pattern", None)
    # ``strict`` is an error where a schema has what OpenAI's strict form leaves out.
    reply = {
        "name": "reply",
        "strict": is_strict(taken),
        "schema": taken,
    }
    return {"type": "json_schema", "json_schema": reply}


def _turned_down(
    body: Body,
    error: object,
    without: Set[str],
    schema: Schema | None,
) -> Set[str]:
    """Return what a server does not take of a request; nothing if that is not the trouble.

    Args:
        body: the request.
        error: how the server answered.
        without: what it is known not to take.
        schema: the reply schema.
    """
    if not isinstance(error, StatusError) or error.status not in _REJECTIONS:
        return frozenset()
    words = error.words
    # What the server names was turned down, whatever its sentence says of it.
    lacking = {name for name in _SWITCHES if name in body and name in words}
    lacking |= {name for name, off in _OFF.items() if body.get(name) == off and name in words}
    if "max_tokens" in body and "max_completion_tokens" in words:
        lacking.add("max_tokens")
    if not lacking and "response_format" in body and _ABOUT_SCHEMAS.search(words):
        # The schema as it is, then with OpenAI's keywords alone, then in words in the prompt.
        steps = ["full_schema", "response_format"]
        if any("pattern" in part for part in schemas_in(dict(schema or {}))):
            # OpenAI takes patterns, as that of a reasoning; others turn them down.
            steps.insert(1, "patterns")
        lacking.add(next(step for step in steps if step not in without))
    return lacking - without


def _without_option(body: Body, error: object) -> str:
    """Return what to do where a model does not take one of the sampling options; else nothing.

    OpenAI's reasoning models draw at temperature 1 and without a seed.
    """
    if not isinstance(error, StatusError) or error.status not in _REJECTIONS:
        return ""
    if not re.search("unsupported|not support", error.words, re.IGNORECASE):
        return ""
    for name in ("temperature", "seed", "top_p", "presence_penalty", "frequency_penalty"):
        if name not in body or not re.search(rf"\b{name}\b", error.words):
            continue
        left_out = (
            f"leave it out of each request: OpenAIBackend({body['model']!r}, "
            f"extend=lambda request, body: body.pop({name!r}, None))"
        )
        # The one of them whose only value can be said.
        return f"set temperature=1, or {left_out}" if name == "temperature" else left_out
    return ""


def _add(written: Written, line: bytes) -> None:
    """Put a line of a stream of events to a reply and its calls, which come in pieces."""
    name, _, data = line.partition(b":")
    if name in (b"", b"event", b"id", b"retry"):
        written.add("")  # with comments, servers keep a connection alive while they work
        return
    if name == b"error":  # llama.cpp's
        raise StatusError(None, read_json(data))
    if name != b"data":
        raise ValueError("it is not a stream of events")
    if data.strip() == b"[DONE]":
        written.ended = True
        return
    event = read_object(data)
    if event.get("error"):  # some have it always, as null
        raise StatusError(None, event["error"])
    usage = member(event, "usage", dict)
    if usage:
        written.fields["prompt_tokens"] = member(usage, "prompt_tokens", int)
        written.fields["reply_tokens"] = member(usage, "completion_tokens", int)
        details = member(usage, "prompt_tokens_details", dict)
        written.fields["cached_tokens"] = member(details, "cached_tokens", int)
    timings = member(event, "timings", dict)
    if timings:  # llama.cpp's
        written.fields["cached_tokens"] = member(timings, "cache_n", int)
    # One without choices mostly says how far the server has read the prompt.
    choices = member(event, "choices", list) or [{}]
    choice = choices[0]
    delta = member(choice, "delta", dict)
    done_reason = member(choice, "finish_reason", str)
    if done_reason:
        written.fields["done_reason"] = _DONE_REASONS.get(done_reason, "stop")
    logprobs = member(choice, "logprobs", dict)
    written.add_logprobs(member(logprobs, "content", list))
    for part in member(delta, "tool_calls", list):
        function = member(part, "function", dict)
        arguments = member(function, "arguments", str)
        written.add_call(
            member(function, "name", str),
            arguments,
            size=len(arguments),
            # Of servers that leave the index out, each part is a whole call.
            place=member(part, "index", int),
            id=member(part, "id", str),
        )
    # A refusal is what OpenAI's models write in place of an answer.
    text = member(delta, "content", str) or member(delta, "refusal", str)
    # Servers have not settled on one name.
    thinking = member(delta, "reasoning_content", str) or member(delta, "reasoning", str)
    written.add(text, thinking)


def _address(base_url: str | None) -> Address:
    """Return a server's address; without one that of ``$OPENAI_BASE_URL``, else OpenAI's own.

    ``gpu-box:8000`` is ``http://gpu-box:8000/v1``.

    Raises:
        ConfigError: it is not a server's address.
    """
    return read_address(
        base_url,
        argument="base_url",
        variable="OPENAI_BASE_URL",
        default=HOSTED,
        example="http://host:port/v1, for example http://127.0.0.1:8000/v1 (the key is api_key)",
        usual_path="/v1",
    )


def only_one(names: Sequence[str], url: str) -> str:
    """Return the model to take where none is named.

    Raises:
        BackendError: there is not exactly one.
    """
    if len(names) == 1:
        return names[0]
    raise BackendError(
        f"name the model, as 'openai:NAME': the server at {url} "
        f"{f'has {listed(names)}' if names else 'lists none'}",
        reason="model_not_found",
    )


def as_json(messages: Sequence[Message]) -> Iterator[JSONObject]:
    """Yield messages as the protocol writes them, where each result names the call it is of."""
    tool_names: dict[str, str] = {}
    """Of the calls whose results have not come yet, by their ids."""
    number = 0
    for message in messages:
        value: JSONObject = {"role": message.role, "content": message.content}
        calls: list[JSON] = []
        for call in message.tool_calls:
            number += 1
            call_id = call.id or f"call_{number}"
            tool_names[call_id] = call.name
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
            function: JSONObject = {"name": call.name, "arguments": arguments}
            calls.append({"id": call_id, "type": "function", "function": function})
        if calls:
            value["tool_calls"] = calls
        if message.role == "tool":
            # A result names its tool and not the call, so it is of the first one that waits.
            same_tool = (id_ for id_, name in tool_names.items() if name == message.tool_name)
            call_id = next(same_tool, "call_0")
            value["tool_call_id"] = call_id
            tool_names.pop(call_id, None)
        yield value


def portable(schema: Schema) -> dict[str, Any]:
    """Return a schema without the keywords that OpenAI's strict mode turns down.

    What they said is checked in the reply all the same.
    """
    result: dict[str, Any] = thawed(schema)
    for part in schemas_in(result):
        if "oneOf" in part:
            part["anyOf"] = part.pop("oneOf")
        # Beside a reference strict mode takes nothing else.
        taken = {"$ref"} if "$ref" in part else _STRICT_KEYWORDS
        for key in part.keys() - taken:
            del part[key]
    return result


def is_strict(schema: Schema) -> bool:
    """Return True if a schema is one that strict mode takes: closed objects, all required."""
    for part in schemas_in(dict(schema)):
        if _NEVER_STRICT & part.keys():
            return False
        if "properties" not in part and part.get("type") != "object":
            continue
        is_open = part.get("additionalProperties") is not False
        optional = part.get("properties", {}).keys() ^ set(part.get("required", ()))
        if is_open or optional:
            return False
    return True


def _traced_in(line: bytes) -> list[TracedToken]:
    """Return the tokens that a line of a stream of events has; none of most lines."""
    name, _, data = line.partition(b":")
    if name != b"data" or data.strip() == b"[DONE]":
        return []
    choices = member(read_object(data), "choices", list) or [{}]
    entries = member(
        member(choices[0], "logprobs", dict),
        "content",
        list,
    )
    tokens = []
    for entry in entries:
        likely = [_token_in(token) for token in member(entry, "top_logprobs", list)]
        tokens.append(TracedToken(_token_in(entry), tuple(likely)))
    return tokens


def _token_in(entry: JSONObject) -> Token:
    """Return a token as llama.cpp's servers write it."""
    logprob = member(entry, "logprob", float)
    if logprob > 0.01:  # a little may be rounding
        raise ValueError(f"logprob is {logprob:g}, which is not a logarithm of a probability")
    return Token(
        content=bytes(member(entry, "bytes", list)),
        probability=math.exp(min(logprob, 0.0)),
    )
