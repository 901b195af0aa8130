"""A fake Ollama: a real HTTP server on loopback that plays recorded answers of real ones."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, Literal, Self

from pydantic import BaseModel

from fake_ollama._exchanges import filled, play, recorded, refuse
from fake_ollama._http import Connection, Request, Response, dumps
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import ChatReply, ToolCall

_DIED = "80-runner-killed-nonstream"
_RUNNER_DIED: str = recorded(_DIED)["error"]
_TEXTS = {429: "too many requests", 500: _RUNNER_DIED, 503: recorded("82-queue-full-cold")["error"]}
FaultName = Literal[
    "status",
    "delay",
    "hang",
    "cut_connection",
    "cut_stream",
    "end_stream",
    "error_line",
    "invalid_json",
    "overflow",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong with a chat request; made by the class methods below."""

    name: FaultName
    status_code: int = 500
    text: str = ""
    seconds: float = 0.0
    after: int = 0
    retry_after: str | None = None

    @classmethod
    def status(
        cls, status_code: int, text: str | None = None, *, retry_after: str | None = None
    ) -> Fault:
        """Answer with an error status; 429, 500 and 503 have Ollama's own texts.

        Args:
            status_code: 400 to 599.
            text: the error's text.
            retry_after: the header ``Retry-After``, which proxies send: seconds, or a date.
        """
        if not 400 <= status_code <= 599:
            raise ConfigError(f"status_code={status_code} is not an error; give 400 to 599")
        if text is None:
            text = _TEXTS.get(status_code, f"fault {status_code} on demand")
        return cls(name="status", status_code=status_code, text=text, retry_after=retry_after)

    @classmethod
    def delay(cls, seconds: float) -> Fault:
        """Answer properly, but this much later."""
        return cls(name="delay", seconds=seconds)

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
        """Drop the connection after so many lines; a plain answer is cut in its middle."""
        return cls(name="cut_stream", after=after)

    @classmethod
    def end_stream(cls, after: int = 2) -> Fault:
        """End the answer early but properly, as a server does that stops its model.

        A stream has only so many lines and lacks its closing line; a plain answer has so many
        tokens, ``"done": false`` and no counts.
        """
        return cls(name="end_stream", after=after)

    @classmethod
    def error_line(cls, after: int = 2, text: str = _RUNNER_DIED) -> Fault:
        """End a stream with an error line, status 200; a plain answer becomes a 500."""
        return cls(name="error_line", after=after, text=text)

    @classmethod
    def invalid_json(cls) -> Fault:
        """Answer with status 200 and a body (or first line) that is cut JSON."""
        return cls(name="invalid_json")

    @classmethod
    def overflow(cls) -> Fault:
        """Answer that the prompt does not fit, whatever its length."""
        return cls(name="overflow")


_MAX_REPEATS = 30
"""How often in a row a token may be repeated, apart from white space around it."""
_PROMPT_NS, _EVAL_NS, _LOADED_NS = 1_000_000, 20_000_000, 700_000
"""Made-up durations: of one prompt token, one generated token, and a model that is loaded."""
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


UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_FOREVER = timedelta(microseconds=(2**63 - 1) / 1000)
"""Go's longest duration; what a negative ``keep_alive`` stands for."""


def _lifetime(keep_alive: float | str | None) -> timedelta:
    """Read a ``keep_alive``: seconds, or a text such as ``10m``; below zero means for ever."""
    if keep_alive is None:
        return timedelta(minutes=5)
    if isinstance(keep_alive, str):
        parts = re.findall(r"([\d.]+)([a-zµ]+)", keep_alive)
        seconds = sum(float(number) * UNITS_S[unit] for number, unit in parts)
        keep_alive = -seconds if keep_alive.startswith("-") else seconds
    return _FOREVER if keep_alive < 0 else timedelta(seconds=keep_alive)


def _timestamp(moment: datetime | None = None) -> str:
    """Return RFC 3339 in UTC, without trailing zeros in the second's fraction, as Go writes it."""
    moment = moment or datetime.now(UTC)
    fraction = f".{moment.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


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
        family: the architecture.
        modified_at: when it was pulled.
        size_bytes: of its file.
    """

    name: str
    capabilities: tuple[str, ...] = ("completion", "tools")
    context_length: int = 8192
    family: str = "llama"
    modified_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    size_bytes: int = 2_000_000_000

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
            "family": self.family,
            "families": [self.family],
            "context_length": self.context_length,
            f"{self.family}.context_length": self.context_length,
            "capabilities": list(self.capabilities),
            "modified_at": _timestamp(self.modified_at),
            "size": self.size_bytes,
        }

    def as_shown(self) -> dict[str, Any]:
        """Return what ``/api/show`` tells of the model."""
        # The architecture begins many keys there, such as "llama.context_length".
        text = json.dumps(recorded("05-show")).replace('"llama', f'"{self.family}')
        text = text.replace("smollm2:latest", full_name(self.name))
        return filled(json.loads(text), self.about())

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

    Its answers are recorded ones of real servers with your replies in them, but it takes any
    request, also one with a wrong option or schema, which Ollama would not accept. It counts
    tokens in its own simple way (digits, punctuation marks, up to 8 letters of a word). Its
    durations are made up, as are the log-probabilities of replies that are not
    ``FakeOllama.tokens``. A reply that repeats one token more than thirty times in a row is stopped
    there.

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
        at_once: how many chat requests are worked on at once, as ``OLLAMA_NUM_PARALLEL`` says;
            others wait. None is all.
        load_s: how long loading a model is said to take, seconds.
        port: where it listens; 0 for any that is free.

    Example:
        >>> import ollama
        >>> question = {"role": "user", "content": "Inflation is at 6 percent. What now?"}
        >>> with FakeOllama(reply="Raise the rate.") as fake, ollama.Client(fake.host) as client:
        ...     answer = client.chat("llama3.2", [question])
        >>> answer.message.content
        'Raise the rate.'
        >>> fake.requests[0].body["messages"][0]["content"]
        'Inflation is at 6 percent. What now?'
    """

    def __init__(
        self,
        models: Iterable[str | FakeModel] = ("llama3.2",),
        *,
        reply: Replies = None,
        version: str = "0.32.15",
        delay_s: float = 0.0,
        at_once: int | None = None,
        load_s: float = 0.25,
        port: int = 0,
    ) -> None:
        now = datetime.now(UTC)
        self._models: dict[str, FakeModel] = {}
        for age, model in enumerate(models):
            if isinstance(model, str):
                model = FakeModel(name=model, modified_at=now - timedelta(hours=age))
            self._models[full_name(model.name)] = model
        self._load_ns, self._port = int(load_s * 1e9), port
        self._loaded: dict[str, tuple[datetime, tuple[int, bool]]] = {}
        """By full name: when it is unloaded; the context it was loaded with, and if that shifts."""
        self._version = version
        self._old = tuple(map(int, version.split(".")[:2])) < (0, 30)
        self._replies = iter(reply) if isinstance(reply, list) else repeat(reply)
        self._delay_s = delay_s
        self._at_once = at_once
        self._slots: asyncio.Semaphore
        self._faults: deque[Fault] = deque()
        self._requests: list[RecordedRequest] = []
        self._lines: list[str] = []
        self._active = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._host = ""

    @staticmethod
    def tokens(places: Sequence[Mapping[str, float]]) -> TokenReply:
        """Return a reply token by token, with the probabilities that the model had for each.

        Args:
            places: for each token of the reply, what might have stood there, with the natural
                logarithms of the probabilities. The first one is what the reply says, whether or
                not it is the likeliest.

        Raises:
            ConfigError: something is not the logarithm of a probability.

        Example:
            >>> import ollama
            >>> reply = FakeOllama.tokens([{"A": -0.4, "B": -1.6, "The": -2.3}])
            >>> with FakeOllama(reply=reply) as fake, ollama.Client(fake.host) as client:
            ...     question = {"role": "user", "content": "A (raise) or B (hold)?"}
            ...     answer = client.chat("llama3.2", [question], logprobs=True, top_logprobs=2)
            >>> [(each.token, each.logprob) for each in answer.logprobs[0].top_logprobs]
            [('A', -0.4), ('B', -1.6)]
        """
        for place in places:
            if not place or max(place.values()) > 0:
                raise ConfigError(
                    f"FakeOllama.tokens: {dict(place)} is not one or more tokens with logarithms "
                    'of probabilities, 0 at most; write FakeOllama.tokens([{"A": -0.4, "B": -1.1}])'
                )
        return TokenReply(places)

    @property
    def host(self) -> str:
        """The server's address, to be given as ``host``, such as ``http://127.0.0.1:40123``."""
        if not self._host:
            raise ConfigError("the fake server is not running; use it as: with FakeOllama() as s:")
        return self._host

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

    @property
    def active(self) -> int:
        """How many chat requests are being worked on."""
        with self._changed:
            return self._active

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
        if self._thread:
            raise ConfigError("this fake server runs already; make a second FakeOllama")
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)), name="fake-ollama", daemon=True
        )
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._thread:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._thread, self._host = None, ""

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._slots = asyncio.Semaphore(self._at_once or sys.maxsize)
        connections: set[Connection] = set()
        server = await self._loop.create_server(
            # Tests of many agents connect hundreds of clients at once.
            lambda: Connection(self._answer, connections),
            "127.0.0.1",
            self._port,
            backlog=1024,
        )
        self._host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
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
            async with self._slots:
                return await self._chat(dict(body), fault)
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _look_up(self, line: str, body: Mapping[str, Any]) -> Response:
        """Answer a request that is about the server or its models."""
        match line:
            case "GET /":
                return play("01-root")
            case "GET /api/version":
                return play("02-version", {"version": self._version})
            case "GET /api/tags":
                return self._list("03-tags", [m.about() for m in self._models.values()])
            case "GET /api/ps":
                now = datetime.now(UTC)
                self._loaded = {n: entry for n, entry in self._loaded.items() if entry[0] > now}
                loaded = [
                    self._models[name].about()
                    | {"expires_at": _timestamp(until), "context_length": num_ctx}
                    for name, (until, (num_ctx, _)) in self._loaded.items()
                ]
                return self._list("10-ps-loaded", loaded)
            case "POST /api/show":
                name = body.get("model") or ""
                if not name:
                    return play("05-show-empty")
                model = self._models.get(full_name(name))
                if model is None:
                    words = {"nope:latest": full_name(name), "nope": name}
                    return refuse("05-show-missing", words, old=self._old)
                return play("05-show", model.as_shown())
        return play("06-404")

    def _list(self, name: str, models: list[dict[str, Any]]) -> Response:
        [entry] = recorded(name, old=self._old)["models"]
        return play(name, {"models": [filled(entry, model) for model in models]})

    async def _chat(self, body: dict[str, Any], fault: Fault | None) -> Response:
        if fault and fault.name == "hang":
            await self._stop.wait()
        if seconds := fault.seconds if fault and fault.name == "delay" else self._delay_s:
            await asyncio.sleep(seconds)
        if fault is None or fault.name == "delay":
            return self._reply(body)
        if fault.name == "status":
            return _failure(fault)
        if fault.name in ("cut_connection", "hang"):
            return Response(cut=True)
        if fault.name == "overflow":
            tokens = prompt_tokens(body.get("messages") or (), body.get("tools"))
            num_ctx = int((body.get("options") or {}).get("num_ctx") or _DEFAULT_CTX)
            return self._overflow(body, max(tokens, num_ctx), num_ctx)
        if fault.name == "error_line" and body.get("stream") is False:
            return _error(fault.text)
        return _cut_short(self._reply(body), fault)

    def _reply(self, body: dict[str, Any]) -> Response:
        """Answer a chat request without a fault."""
        if not body:
            return _error("FakeOllama: the request is not a JSON object", 400)
        name = str(body.get("model"))
        model = self._models.get(full_name(name))
        if model is None:
            return refuse("40-missing-model", {"nope": name})
        if refusal := model.cannot(body):
            return refusal
        options, messages = body.get("options") or {}, body.get("messages") or []
        lifetime = _lifetime(body.get("keep_alive"))
        key = full_name(name)
        # Ollama's way to load a model and to unload it: a request without messages.
        if not messages and not lifetime:
            self._loaded.pop(key, None)
            return Answer(name, reason="unload").bare()
        # A server silently loads no larger window than the model was trained for.
        num_ctx = min(int(options.get("num_ctx") or _DEFAULT_CTX), model.context_length)
        settings = (num_ctx, body.get("shift") is not False)
        _, there = self._loaded.get(key, (None, None))
        self._loaded[key] = (datetime.now(UTC) + lifetime, settings)
        if not messages:
            return Answer(name, reason="load").bare()
        read = _tokens_read(body, num_ctx, old=self._old)
        if read >= num_ctx and body.get("truncate") is False:
            return self._overflow(body, read, num_ctx)
        reply = self._next_reply(body)
        if isinstance(reply, Response):
            return reply
        answer = Answer(name, read=read, load_ns=_LOADED_NS if there == settings else self._load_ns)
        answer.top = (body.get("top_logprobs") or 0) if body.get("logprobs") else None
        answer.take(reply, body, num_ctx)
        return answer.plain() if body.get("stream") is False else answer.stream()

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

    def _overflow(self, body: Mapping[str, Any], tokens: int, num_ctx: int) -> Response:
        """Answer to a prompt that must not be cut and does not fit."""
        streamed = "" if body.get("stream") is False else "-stream"
        words = {"5921": tokens, "2048": num_ctx}
        return refuse(f"50-ctx-truncate-false{streamed}", words, old=self._old)


def _error(text: str, status: int = 500) -> Response:
    return replace(play(_DIED, {"error": text}), status=status)


def _failure(fault: Fault) -> Response:
    answer = _error(fault.text, fault.status_code)
    if fault.retry_after is None:
        return answer
    return replace(answer, headers={**answer.headers, "Retry-After": fault.retry_after})


def _cut_short(response: Response, fault: Fault) -> Response:
    """Spoil a good answer: after some lines of a stream, or within a plain one."""
    if not response.chunked:
        whole = b"".join(response.chunks)
        if fault.name == "end_stream" and response.status == 200:
            answer = json.loads(whole)
            kept = pieces_of(answer["message"]["content"])[: fault.after]
            undone = _UNSAID | {"content": "".join(kept), "done": False}
            return play("35-logprobs-top", filled(answer, undone))
        half = (whole[: len(whole) // 2],)
        return replace(response, chunks=half, cut=fault.name == "cut_stream")
    if fault.name == "invalid_json":
        return replace(response, chunks=(response.chunks[0][:20] + b"\n",))
    # The closing line is never among what is left, however short the answer.
    lines = response.chunks[:-1][: fault.after]
    if fault.name == "error_line":
        lines += (dumps({"error": fault.text}).encode() + b"\n",)
    return replace(response, chunks=lines, cut=fault.name == "cut_stream")


def default_reply(wanted: Any) -> str:
    """Return what is answered where the user gave no reply: the least that has the form asked."""
    if wanted == "json" or wanted == {}:
        return "{}"
    return json.dumps(example(wanted), indent=2) if wanted else "This is a fake answer."


def _tokens_read(body: Mapping[str, Any], num_ctx: int, *, old: bool) -> int:
    """Count the tokens that the model reads after the server has dropped the oldest messages."""
    messages: list[Mapping[str, Any]] = list(body["messages"])
    tokens = prompt_tokens(messages, body.get("tools"))
    while tokens >= num_ctx and body.get("truncate") is not False:
        oldest = next((m for m in messages[:-1] if m.get("role") != "system"), None)
        if oldest is None:  # a single long message: newer servers cut it to half the window
            return num_ctx if old else num_ctx // 2 + 2
        messages.remove(oldest)
        tokens = prompt_tokens(messages, body.get("tools"))
    return tokens


_CALLED = recorded("31-toolcall")["message"]
_CHAT = recorded("35-logprobs-top") | {
    # No recording has thinking; Ollama puts it after the content.
    "message": {"role": "", "content": "", "thinking": "", "tool_calls": []} | _CALLED
}
"""All that an answer can say, in its order; what has nothing to say is left out of an answer."""
_UNSAID = dict.fromkeys(_CHAT.keys() - {"model", "created_at", "message", "done"})
_UNSAID |= {"thinking": None, "tool_calls": None}


def _before_repeats(places: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
    """Return the tokens before the one that is repeated once too often, or all."""
    last, repeats = None, 0
    for index, place in enumerate(places):
        piece = _said(place).strip()
        repeats = repeats + 1 if piece == last else 0
        last = piece
        if repeats > _MAX_REPEATS:
            return places[:index]
    return places


def _said(place: Mapping[str, float]) -> str:
    return next(iter(place))


def _before_stops(
    places: Sequence[Mapping[str, float]], stops: Iterable[str]
) -> Sequence[Mapping[str, float]]:
    """Return the tokens before the first stop sequence; the last one may lose its end."""
    text = "".join(map(_said, places))
    for stop in stops:
        text = text.partition(stop)[0]
    kept = []
    for place in places:
        if piece := _said(place)[: len(text)]:
            kept.append({piece: place[_said(place)], **place})
            text = text[len(piece) :]
    return kept


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    values = {"index": index, "name": call.name, "arguments": dict(call.arguments)}
    values["id"] = call.id or f"call_{secrets.token_hex(4)}"
    return filled(_CALLED["tool_calls"][0], values)


@dataclass(slots=True)
class Answer:
    """One answer in the making."""

    model: str
    read: int = 0
    load_ns: int = 0
    top: int | None = None
    """How many alternatives each token's probability comes with; None for no probabilities."""
    thinking: str = ""
    calls: Sequence[dict[str, Any]] = ()
    places: Sequence[Mapping[str, float]] = ()
    reason: str = "stop"
    generated: int = 0
    stopped: bool = False
    """Whether it repeats itself, which ends it without a closing line."""

    def take(self, reply: ChatReply | TokenReply, body: Mapping[str, Any], num_ctx: int) -> None:
        """Take the reply's tokens up to a stop sequence, a limit, or a token repeated too often."""
        options = body.get("options") or {}
        if isinstance(reply, TokenReply):
            places, reply = reply.places, ChatReply(text="")
        else:
            places = [{piece: -0.5} for piece in pieces_of(reply.text)]
        places = _before_stops(places, options.get("stop") or ())
        self.thinking = "" if body.get("think") is False else reply.thinking
        self.calls = [_call(index, call) for index, call in enumerate(reply.tool_calls)]
        if reply.prompt_tokens is not None:
            self.read = reply.prompt_tokens
        limit = int(options.get("num_predict") or 0)
        if body.get("shift") is False:  # else the model may continue: a full window drops its start
            room = max(1, num_ctx - self.read)
            limit = min(limit, room) if limit > 0 else room
        self.reason = reply.done_reason
        self.generated = len(places) + len(self.calls) + 1  # the end of the turn is a token too
        if 0 < limit <= len(places):
            places, self.reason, self.generated = places[:limit], "length", limit
        if reply.reply_tokens is not None:
            self.generated = reply.reply_tokens
        self.places = _before_repeats(places)
        self.stopped = len(self.places) < len(places)

    def plain(self) -> Response:
        """Answer with one document."""
        said: dict[str, Any] = {
            "content": "".join(map(_said, self.places)),
            "thinking": self.thinking or None,
            "tool_calls": self.calls or None,
        }
        said |= self._odds(self.places) | ({} if self.stopped else self._ending())
        return play("35-logprobs-top", self._document(said))

    def stream(self) -> Response:
        """Answer with a line a token."""
        lines: list[dict[str, Any]] = [{"thinking": piece} for piece in pieces_of(self.thinking)]
        lines += [{"content": _said(place)} | self._odds([place]) for place in self.places]
        if not self.stopped:
            lines += [{"tool_calls": self.calls}] if self.calls else []
            lines += [self._ending()]
        return play("12-chat-stream", [self._document(line) for line in lines])

    def bare(self) -> Response:
        """Answer a request without messages, which only loads or unloads the model."""
        return play("35-logprobs-top", self._document({"done": True, "done_reason": self.reason}))

    def _document(self, said: dict[str, Any]) -> dict[str, Any]:
        always = {"model": self.model, "created_at": _timestamp(), "content": "", "done": False}
        return filled(_CHAT, _UNSAID | always | said)

    def _ending(self) -> dict[str, Any]:
        prompt_ns, eval_ns = self.read * _PROMPT_NS, self.generated * _EVAL_NS
        metrics = {
            "total_duration": self.load_ns + prompt_ns + eval_ns,
            "load_duration": self.load_ns,
            "prompt_eval_count": self.read,
            "prompt_eval_duration": prompt_ns,
            "eval_count": self.generated,
            "eval_duration": eval_ns,
        }
        written = {name: value for name, value in metrics.items() if value}  # Go leaves out zeros
        return {"done": True, "done_reason": self.reason} | written

    def _odds(self, places: Iterable[Mapping[str, float]]) -> dict[str, Any]:
        """Return the log-probabilities of tokens, where the request asks for them."""
        if self.top is None:
            return {}
        [token] = _CHAT["logprobs"]

        def listed(piece: str, logprob: float, top: Any = None) -> dict[str, Any]:
            values = {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}
            return filled(token, values | {"top_logprobs": top})

        odds = []
        for place in places:
            likeliest = sorted(place.items(), key=lambda pair: -pair[1])[: self.top]
            top = [listed(*pair) for pair in likeliest] or None
            odds.append(listed(_said(place), place[_said(place)], top))
        return {"logprobs": odds}


def example(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """Return a small value that the schema allows: first choices, lower bounds, short texts.

    Patterns are not followed: a text with one comes out as plain letters.
    """
    root = schema if root is None else root
    if "$ref" in schema:
        node: Any = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            node = node[name]
        return example(node, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return example(schema[key][0], root)
    if schema.get("allOf"):
        parts = [example(part, root) for part in schema["allOf"]]
        return {key: value for part in parts for key, value in part.items()}
    name = schema.get("type", "object")
    return _example_of(name[0] if isinstance(name, list) else name, schema, root)


def _example_of(name: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    if name == "object":
        return {key: example(part, root) for key, part in schema.get("properties", {}).items()}
    if name == "array":
        return [example(schema.get("items", {}), root)] * schema.get("minItems", 0)
    if name == "string":
        length = max(4, schema.get("minLength", 0))
        return ("text" * length)[: min(length, schema.get("maxLength", length))]
    if name in ("number", "integer"):
        # A bound, or what lies one step inside an exclusive one, else the step itself.
        step = 1 if name == "integer" else 0.5
        value = min(step, schema.get("maximum", step))
        if "exclusiveMaximum" in schema:
            value = min(step, schema["exclusiveMaximum"] - step)
        if "exclusiveMinimum" in schema:
            value = schema["exclusiveMinimum"] + step
        return schema.get("minimum", value)
    return {"boolean": True}.get(name)
