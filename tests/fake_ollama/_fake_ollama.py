"""A fake Ollama: a real HTTP server on loopback, which answers in the words of recorded ones."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, Self

from pydantic import BaseModel

from fake_ollama._exchanges import filled, play, recorded, refuse
from fake_ollama._http import Connection, Request, Response
from llmsim_lab.types import ChatReply, ToolCall

_DIED = "80-runner-killed-nonstream"
_TEXTS = {500: recorded(_DIED)["error"], 503: recorded("82-queue-full-cold")["error"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong with a chat request; made by the class methods below."""

    name: str
    status_code: int = 500
    text: str = ""
    after: int = 0
    retry_after: str | None = None

    @classmethod
    def status(cls, code: int, text: str | None = None, *, retry_after: str | None = None) -> Fault:
        """Answer with an error status; 500 and 503 have Ollama's own texts."""
        text = _TEXTS.get(code, f"fault {code} on demand") if text is None else text
        return cls(name="status", status_code=code, text=text, retry_after=retry_after)

    @classmethod
    def hang(cls) -> Fault:
        """Never answer; the request ends when the client goes away or the server stops."""
        return cls(name="hang")

    @classmethod
    def cut_connection(cls) -> Fault:
        """Drop the connection before the first byte of the answer."""
        return cls(name="cut_connection")

    @classmethod
    def cut_stream(cls, after: int = 2) -> Fault:
        """Drop the connection after so many lines."""
        return cls(name="cut_stream", after=after)

    @classmethod
    def end_stream(cls, after: int = 2) -> Fault:
        """End the answer after so many lines, as a server does that stops its model."""
        return cls(name="end_stream", after=after)

    @classmethod
    def invalid_json(cls) -> Fault:
        """Answer with status 200 and a first line that is cut JSON."""
        return cls(name="invalid_json")

    @classmethod
    def overflow(cls) -> Fault:
        """Answer that the prompt does not fit, whatever its length."""
        return cls(name="overflow")


_DEFAULT_CTX = 4096
_PIECE = re.compile(
    r"\s*(?:\d|[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\W\d_]{1,8}|[^\w\s]|_)|\s+"
)
_PER_MESSAGE, _PER_PROMPT = 4, 3


def pieces_of(text: str) -> list[str]:
    """Cut a text into its tokens: digits, punctuation marks, ideographs, up to 8 letters of a word.

    White space belongs to the token after it.
    """
    return _PIECE.findall(text)


def prompt_tokens(messages: Iterable[Mapping[str, Any]], tools: Any = None) -> int:
    """Count a prompt's tokens: each message's, 4 for its frame, the tools' JSON, and 3 more."""
    texts = [message.get("content") or "" for message in messages]
    count = sum(_PER_MESSAGE + len(pieces_of(text)) for text in texts) + _PER_PROMPT
    return count + (len(pieces_of(json.dumps(tools))) if tools else 0)


_FOREVER = timedelta(days=106_751)
"""Go's longest duration; what a negative ``keep_alive`` stands for."""


def _timestamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def full_name(name: str) -> str:
    """Return the name as Ollama lists it: with its tag, in lower case."""
    name = name.lower().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeModel:
    """A model of the fake server.

    Attributes:
        name: with or without a tag.
        capabilities: ``completion``, ``tools``, ``thinking``, ``vision``, ``embedding`` …
        context_length: the longest context it was trained for, tokens.
    """

    name: str
    capabilities: tuple[str, ...] = ("completion", "tools")
    context_length: int = 8192

    @property
    def digest(self) -> str:
        """A hash that is different for different models."""
        return hashlib.sha256(self.name.encode()).hexdigest()

    def about(self) -> dict[str, Any]:
        """Return what the server says of the model, by the keys it says it under."""
        name = full_name(self.name)
        return {
            "name": name,
            "model": name,
            "digest": self.digest,
            "context_length": self.context_length,
            "llama.context_length": self.context_length,
            "capabilities": list(self.capabilities),
        }

    def cannot(self, body: Mapping[str, Any]) -> Response | None:
        """Return the server's error where a chat request asks what the model is not made for."""
        full = full_name(self.name)
        if body.get("tools") and "tools" not in self.capabilities:
            path = full if "/" in full else f"library/{full}"
            return refuse("30-tools-unsupported", {"library/gemma3:latest": path})
        asked = {"smollm2": body["model"]}
        if body.get("think") and "thinking" not in self.capabilities:
            return refuse("40-think", asked)
        if "completion" not in self.capabilities:
            # No recording has it; in the server's words only what is lacking differs.
            return refuse("40-think", asked | {"thinking": "chat"})
        return None


@dataclass(frozen=True, slots=True)
class TokenReply:
    """A reply token by token; see ``FakeOllama.tokens``."""

    places: Sequence[Mapping[str, float]]


_NO_REPLY = object()
Reply = str | Mapping[str, Any] | BaseModel | ChatReply | TokenReply | Fault
Replies = Reply | Callable[[dict[str, Any]], Any] | list[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """A chat request as it came over the wire.

    Attributes:
        body: the JSON document; empty where it could not be read as one.
        headers: names in lower case.
        content: the bytes of the body.
    """

    body: Mapping[str, Any]
    headers: Mapping[str, str]
    content: bytes


class FakeOllama:
    """A fake Ollama server, running between ``with`` and its end.

    It answers chat requests as streams, which is all that the package asks for, and takes any
    request, also one with a wrong option or schema, which Ollama would not accept. It counts
    tokens in its own simple way (digits, punctuation marks, up to 8 letters of a word). Its
    durations are made up, as are the log-probabilities of replies that are not
    ``FakeOllama.tokens``.

    Args:
        models: names, or ``FakeModel`` where more than the name matters. The first one counts as
            pulled last.
        reply: what chat requests are answered with: a text, a dict or pydantic model (sent as
            JSON), a ``ChatReply`` (for tool calls, thinking, or made-up token counts),
            ``FakeOllama.tokens(...)`` (for log-probabilities), a ``Fault.status``, a function of
            the request's body, or a list of these, used up in order. Without one, the answer is the
            least that fits the request's ``format``.
        version: ``0.32.15`` or ``0.24.0``, the two that were recorded.
        delay_s: how long each chat answer takes, seconds.
        port: where it listens; 0 for any that is free.
    """

    def __init__(
        self,
        models: Iterable[str | FakeModel] = ("llama3.2",),
        *,
        reply: Replies = None,
        version: str = "0.32.15",
        delay_s: float = 0.0,
        port: int = 0,
    ) -> None:
        made = (FakeModel(name=one) if isinstance(one, str) else one for one in models)
        self._models = {full_name(model.name): model for model in made}
        self._loaded: dict[str, dict[str, Any]] = {}
        """By full name: until when, and with which context."""
        self._version, self._port, self._delay_s = version, port, delay_s
        self._old = tuple(map(int, version.split(".")[:2])) < (0, 30)
        self._replies = iter(reply) if isinstance(reply, list) else repeat(reply)
        self._faults: deque[Fault] = deque()
        self._requests: list[RecordedRequest] = []
        self._lines: list[str] = []
        self._active = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self.host = ""
        """The server's address, such as ``http://127.0.0.1:40123``."""

    @staticmethod
    def tokens(places: Sequence[Mapping[str, float]]) -> TokenReply:
        """Return a reply token by token, with the probabilities that the model had for each.

        Args:
            places: for each token of the reply, what might have stood there, with the natural
                logarithms of the probabilities. The first one is what the reply says, whether or
                not it is the likeliest.
        """
        return TokenReply(places)

    @property
    def requests(self) -> list[RecordedRequest]:
        """All chat requests so far, oldest first."""
        with self._changed:
            return list(self._requests)

    @property
    def request_lines(self) -> list[str]:
        """Method and path of all requests so far, ``GET /api/tags`` and the like."""
        with self._changed:
            return list(self._lines)

    def fail_next(self, *faults: Fault, times: int = 1) -> None:
        """Let the next chat requests fail, one fault each; all of them ``times`` times."""
        with self._changed:
            self._faults.extend(faults * times)

    def wait_for(self, *, active: int, timeout_s: float = 5.0) -> None:
        """Block until so many chat requests are being worked on.

        Raises:
            TimeoutError: it did not come to that.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._active == active, timeout_s):
                raise TimeoutError(
                    f"{self._active} chat requests are active after {timeout_s:g} s, not {active}"
                )

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)), name="fake-ollama", daemon=True
        )
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        connections: set[Connection] = set()
        server = await self._loop.create_server(
            # Tests of many agents connect hundreds of clients at once.
            lambda: Connection(self._answer, connections),
            "127.0.0.1",
            self._port,
            backlog=1024,
        )
        self.host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await self._stop.wait()
        server.close()
        for connection in list(connections):  # a copy: an aborted one removes itself
            connection.abort()
        await asyncio.sleep(0)  # the loop must run once more for the sockets to close

    async def _answer(self, request: Request) -> Response:
        try:
            body = json.loads(request.content)
        except ValueError:
            body = None
        body = body if isinstance(body, dict) else {}
        line = f"{request.method} {request.path}"
        with self._changed:
            self._lines.append(line)
        if line != "POST /api/chat":
            return self._look_up(line, body)
        seen = RecordedRequest(body=body, headers=request.headers, content=request.content)
        with self._changed:
            self._requests.append(seen)
            fault = self._faults.popleft() if self._faults else None
            self._active += 1
            self._changed.notify_all()
        try:
            return await self._chat(dict(body), fault)
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _look_up(self, line: str, body: Mapping[str, Any]) -> Response:
        """Answer a request that is about the server or its models."""
        match line:
            case "GET /api/version":
                return play("02-version", {"version": self._version})
            case "GET /api/tags":
                now = datetime.now(UTC)
                pulled = [
                    _timestamp(now - timedelta(hours=age)) for age in range(len(self._models))
                ]
                models = zip(self._models.values(), pulled, strict=True)
                return self._list("03-tags", [m.about() | {"modified_at": at} for m, at in models])
            case "GET /api/ps":
                loaded = [self._models[name].about() | how for name, how in self._loaded.items()]
                return self._list("10-ps-loaded", loaded)
            case "POST /api/show":
                name = body.get("model") or ""
                if (model := self._models.get(full_name(name))) is None:
                    words = {"nope:latest": full_name(name), "nope": name}
                    return refuse("05-show-missing", words, old=self._old)
                return play("05-show", filled(recorded("05-show"), model.about()))
        return play("06-404")

    def _list(self, name: str, models: list[dict[str, Any]]) -> Response:
        [entry] = recorded(name, old=self._old)["models"]
        return play(name, {"models": [filled(entry, model) for model in models]})

    async def _chat(self, body: dict[str, Any], fault: Fault | None) -> Response:
        if fault and fault.name == "hang":
            await self._stop.wait()
        await asyncio.sleep(self._delay_s)
        if fault is None:
            return self._reply(body)
        if fault.name == "status":
            return _failure(fault)
        if fault.name in ("cut_connection", "hang"):
            return Response(cut=True)
        if fault.name == "overflow":
            return self._overflow(_DEFAULT_CTX, _DEFAULT_CTX)
        # The closing line is never among what is left, however short the answer.
        response = self._reply(body)
        lines = response.chunks[:-1][: fault.after]
        if fault.name == "invalid_json":
            lines = (response.chunks[0][:20] + b"\n",)
        return replace(response, chunks=lines, cut=fault.name == "cut_stream")

    def _reply(self, body: dict[str, Any]) -> Response:
        """Answer a chat request without a fault."""
        name = str(body.get("model"))
        model = self._models.get(full_name(name))
        if model is None:
            return refuse("40-missing-model", {"nope": name})
        if refusal := model.cannot(body):
            return refusal
        # A server silently loads no larger window than the model was trained for.
        asked = int((body.get("options") or {}).get("num_ctx") or _DEFAULT_CTX)
        num_ctx = min(asked, model.context_length)
        lasts = _FOREVER if body.get("keep_alive") == -1 else timedelta(minutes=5)
        expires_at = _timestamp(datetime.now(UTC) + lasts)
        self._loaded[full_name(name)] = {"expires_at": expires_at, "context_length": num_ctx}
        read = prompt_tokens(body.get("messages") or (), body.get("tools"))
        if read >= num_ctx:
            return self._overflow(read, num_ctx)
        reply = self._next_reply(body)
        return reply if isinstance(reply, Response) else _stream(name, reply, body, read)

    def _next_reply(self, body: dict[str, Any]) -> ChatReply | TokenReply | Response:
        """Return the next reply, or the error that is answered in its place."""
        given = next(self._replies, _NO_REPLY)  # only the server's thread gets here: no lock
        if given is _NO_REPLY:
            return _error("FakeOllama has no reply: the list of replies is used up")
        if callable(given):
            try:
                given = given(body)
            except Exception as fault:  # noqa: BLE001 - the client sees what a user's function raises
                return _error(f"FakeOllama has no reply: {fault!r}")
        if isinstance(given, Fault):
            if given.name == "status":
                return _failure(given)
            return _error(f"FakeOllama: give Fault.{given.name} to fail_next(), not as a reply")
        if isinstance(given, ChatReply | TokenReply):
            return given
        if given is None:
            given = default_reply(body.get("format"))
        if isinstance(given, BaseModel):
            given = given.model_dump(mode="json")
        return ChatReply(text=given if isinstance(given, str) else json.dumps(given, indent=2))

    def _overflow(self, tokens: int, num_ctx: int) -> Response:
        """Answer to a prompt that must not be cut and does not fit."""
        words = {"5921": tokens, "2048": num_ctx}
        return refuse("50-ctx-truncate-false-stream", words, old=self._old)


def _error(text: str, status: int = 500) -> Response:
    return replace(play(_DIED, {"error": text}), status=status)


def _failure(fault: Fault) -> Response:
    answer = _error(fault.text, fault.status_code)
    if fault.retry_after is None:
        return answer
    return replace(answer, headers={**answer.headers, "Retry-After": fault.retry_after})


def default_reply(wanted: Any) -> str:
    """Return what is answered where the user gave no reply: the least that has the form asked."""
    if wanted == "json" or wanted == {}:
        return "{}"
    return json.dumps(example(wanted), indent=2) if wanted else "This is a fake answer."


_CALLED = recorded("31-toolcall")["message"]
_CHAT = recorded("35-logprobs-top") | {
    # No recording has thinking; Ollama puts it after the content.
    "message": {"role": "", "content": "", "thinking": "", "tool_calls": []} | _CALLED
}
"""All that a line can say, in its order; what has nothing to say is left out of it."""
_UNSAID = dict.fromkeys(_CHAT.keys() - {"model", "created_at", "message", "done"})
_UNSAID |= {"thinking": None, "tool_calls": None}


def _said(place: Mapping[str, float]) -> str:
    return next(iter(place))


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    values = {"index": index, "name": call.name, "arguments": dict(call.arguments)}
    values["id"] = call.id or f"call_{secrets.token_hex(4)}"
    return filled(_CALLED["tool_calls"][0], values)


def _stream(
    name: str, reply: ChatReply | TokenReply, body: Mapping[str, Any], read: int
) -> Response:
    """Answer with a line a token, up to a stop sequence or the limit."""
    options = body.get("options") or {}
    if isinstance(reply, TokenReply):
        places, reply = reply.places, ChatReply(text="")
    else:
        text = reply.text
        for stop in options.get("stop") or ():
            text = text.partition(stop)[0]
        places = [{piece: -0.5} for piece in pieces_of(text)]
    calls = [_call(index, call) for index, call in enumerate(reply.tool_calls)]
    reason, limit = reply.done_reason, int(options.get("num_predict") or -1)
    written = len(places) + len(calls) + 1  # the end of the turn is a token too
    if 0 < limit <= len(places):
        places, reason, written = places[:limit], "length", limit
    ending = {
        "done": True,
        "done_reason": reason,
        "load_duration": 250_000_000,
        "prompt_eval_count": read if reply.prompt_tokens is None else reply.prompt_tokens,
        "eval_count": written if reply.reply_tokens is None else reply.reply_tokens,
    }
    thinking = "" if body.get("think") is False else reply.thinking
    top = (body.get("top_logprobs") or 0) if body.get("logprobs") else None
    lines: list[dict[str, Any]] = [{"thinking": piece} for piece in pieces_of(thinking)]
    lines += [{"content": _said(place)} | _odds(place, top) for place in places]
    lines += [{"tool_calls": calls}] if calls else []
    always = {"model": name, "created_at": _timestamp(datetime.now(UTC)), "content": ""}
    unfinished = _UNSAID | always | {"done": False}
    return play("12-chat-stream", [filled(_CHAT, unfinished | line) for line in [*lines, ending]])


def _odds(place: Mapping[str, float], top: int | None) -> dict[str, Any]:
    """Return the log-probabilities of a token, where the request asks for them."""
    if top is None:
        return {}
    likeliest = sorted(place.items(), key=lambda pair: -pair[1])[:top]
    alternatives = [{"token": piece, "logprob": value} for piece, value in likeliest]
    said = _said(place)
    return {"logprobs": [{"token": said, "logprob": place[said], "top_logprobs": alternatives}]}


def example(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """Return a small value that a reply's schema allows: first choices, lower bounds."""
    root = schema if root is None else root
    if "$ref" in schema:
        return example(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "const" in schema:
        return schema["const"]
    for key in ("enum", "anyOf"):
        if schema.get(key):
            first = schema[key][0]
            return example(first, root) if key == "anyOf" else first
    match schema.get("type", "object"):
        case "object":
            return {key: example(part, root) for key, part in schema.get("properties", {}).items()}
        case "array":
            return [example(schema.get("items", {}), root)] * schema.get("minItems", 0)
        case "string":
            return "text"[: schema.get("maxLength", 4)]
        case "number" | "integer":
            return schema.get("minimum", min(1, schema.get("maximum", 1)))
        case kind:
            return {"boolean": True}.get(kind)
