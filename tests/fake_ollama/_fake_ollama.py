"""A fake Ollama: a real HTTP server on loopback, which answers in the words of recorded ones.

``exchanges.json`` has recorded answers of real servers by version and by the name of the
recording; of the older server only what differs. Long lists are cut to one item, a stream has no
lines there; the rest is whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import resources
from itertools import cycle, repeat
from typing import Any, Self

from jsonschema import Draft202012Validator
from pydantic import BaseModel

from fake_ollama._throttle import Runner, Throttle
from llmsim_lab.types import ChatReply, ToolCall

# Recorded answers, played again with a test's values in their places


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One HTTP answer; its chunks may be cut off after the last one, or begin again for ever."""

    status: int
    headers: Mapping[str, str]
    chunks: tuple[bytes, ...] = ()
    cut: bool = False
    endless: bool = False


FILE = resources.files("fake_ollama") / "exchanges.json"
_NEWER, _OLDER = json.loads(FILE.read_text(encoding="utf-8")).values()
_EXCHANGES = {False: _NEWER, True: _NEWER | _OLDER}


def recorded(name: str, *, old: bool = False) -> Any:
    """Return a recorded answer's body: a text or a JSON document."""
    return _EXCHANGES[old][name]["body"]


def filled(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a document with these values for its keys, nested ones too; None leaves a key out."""
    nested = {key: filled(item, values) for key, item in document.items() if isinstance(item, dict)}
    whole = {**document, **nested, **{key: values[key] for key in document if key in values}}
    return {key: item for key, item in whole.items() if item is not None or key not in values}


def play(name: str, body: Any = None, *, old: bool = False) -> Response:
    """Answer as recorded, or with another body; a list is the lines of a stream."""
    exchange = _EXCHANGES[old][name]
    body = exchange["body"] if body is None else body
    documents = body if isinstance(body, list) else [body]
    texts = [
        one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in documents
    ]
    return Response(
        status=exchange["status"],
        headers={"Content-Type": exchange["content_type"]},
        chunks=tuple(f"{text}\n".encode() for text in texts),
    )


def refuse(name: str, words: Mapping[str, object], *, old: bool = False) -> Response:
    """Answer with a recorded error, some of its words replaced by others."""
    found = "|".join(map(re.escape, words))
    text = recorded(name, old=old)["error"]
    text = re.sub(found, lambda match: str(words[match[0]]), text)
    return play(name, {"error": text}, old=old)


_DIED = "80-runner-killed-nonstream"
_TEXTS = {500: recorded(_DIED)["error"], 503: recorded("82-queue-full-cold")["error"]}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong with a chat request.

    Attributes:
        name: ``hang`` (until the client goes away), ``cut_connection`` (before the first byte),
            ``cut_stream`` and ``end_stream`` (after so many lines: the connection is dropped, or
            the answer ends as of a server that stops its model), ``invalid_json`` (a first line
            that is cut), ``endless`` (all but the last line again and again), ``overflow`` (the
            prompt does not fit, whatever its length), ``status``.
    """

    name: str
    status_code: int = 500
    text: str = ""
    after: int = 2

    @classmethod
    def status(cls, code: int, text: str | None = None) -> Fault:
        """Answer with an error status; 500 and 503 have Ollama's own texts."""
        text = _TEXTS.get(code, f"fault {code} on demand") if text is None else text
        return cls("status", code, text)


_DEFAULT_CTX = 4096
_PROSE = "This is a fake answer."
_PIECE = re.compile(
    r"\s*(?:\d|[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\W\d_]{1,8}|[^\w\s]|_)|\s+"
)
_PER_MESSAGE, _PER_PROMPT = 4, 3


def pieces_of(text: str) -> list[str]:
    """Cut a text into its tokens: digits, punctuation marks, ideographs, up to 8 letters of a word.

    White space belongs to the token after it.
    """
    return _PIECE.findall(text)


def prompt_tokens(messages: Iterable[Mapping[str, Any]]) -> int:
    """Count a prompt's tokens: each message's, 4 for its frame, and 3 more."""
    texts = [message.get("content") or "" for message in messages]
    return sum(_PER_MESSAGE + len(pieces_of(text)) for text in texts) + _PER_PROMPT


def _timestamp(since: timedelta) -> str:
    return f"{datetime.now(UTC) + since:%Y-%m-%dT%H:%M:%SZ}"


def full_name(name: str) -> str:
    """Return the name as Ollama lists it: with its tag, in lower case."""
    return name.lower() if ":" in name else f"{name.lower()}:latest"


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
        named = dict.fromkeys(("name", "model"), full_name(self.name))
        length = dict.fromkeys(("context_length", "llama.context_length"), self.context_length)
        return {"digest": self.digest, "capabilities": list(self.capabilities), **named, **length}

    def cannot(self, body: Mapping[str, Any]) -> Response | None:
        """Return the server's error where a chat request asks what the model is not made for."""
        if body.get("tools") and "tools" not in self.capabilities:
            return refuse("30-tools-unsupported", {"gemma3:latest": full_name(self.name)})
        return None


@dataclass(frozen=True, slots=True)
class TokenReply:
    """A reply token by token; see ``FakeOllama.tokens``."""

    places: Sequence[Mapping[str, float]]


Reply = str | Mapping[str, Any] | BaseModel | ChatReply | TokenReply | Fault
Replies = Reply | Callable[[dict[str, Any]], Any] | list[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came over the wire.

    Attributes:
        line: method and path.
        body: the JSON document; empty where there is none.
        headers: names in lower case.
        content: the bytes of the body.
    """

    line: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    content: bytes

    @classmethod
    async def read(cls, head: bytes, reader: asyncio.StreamReader) -> Request:
        """Read the rest of a request that begins with some bytes."""
        head += await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in rest)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(content) if content else {}
        line = first.rpartition(" ")[0].partition("?")[0]
        return cls(line=line, body=body, headers=headers, content=content)


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
        wants: what the header ``Authorization`` of every request has to be, as a gateway in front
            of a server asks for it: ``Bearer KEY``, or ``Basic`` and a base64; else a 401.
        throttle: how slow the server is; then it works on one chat request at a time.
        port: where it listens; 0 for any that is free.
        ignores_format: whether it does what Ollama's cloud and some models do: the request's
            ``format`` is not enforced. Without a ``reply`` the model then answers with JSON only
            where a message names the fields, and with the example if it is told one.

    Attributes:
        host: the server's address, such as ``http://127.0.0.1:40123``.
        requests: all chat requests so far, oldest first.
        request_lines: method and path of all requests so far, ``GET /api/tags`` and the like.
        active: how many chat requests are being worked on.
        runner: what runs the model of a slow server, with what it has done.
    """

    def __init__(
        self,
        models: Iterable[str | FakeModel] = ("llama3.2",),
        *,
        reply: Replies = None,
        version: str = "0.32.15",
        delay_s: float = 0.0,
        wants: str = "",
        throttle: Throttle | None = None,
        port: int = 0,
        ignores_format: bool = False,
    ) -> None:
        made = (FakeModel(name=one) if isinstance(one, str) else one for one in models)
        self._models = {full_name(model.name): model for model in made}
        self._loaded: dict[str, dict[str, Any]] = {}
        """By full name: until when, and with which context."""
        self._version, self._port, self._delay_s = version, port, delay_s
        self._wants = wants
        self._answer = as_told if ignores_format else enforced
        self._throttle = throttle or Throttle()
        self._is_slow = throttle is not None
        self.runner = Runner(self._throttle)
        self._old = tuple(map(int, version.split(".")[:2])) < (0, 30)
        self._replies = iter(reply) if isinstance(reply, list) else repeat(reply)
        self._faults: deque[Fault] = deque()
        self.requests: list[Request] = []
        self.request_lines: list[str] = []
        self.active = 0
        self.host = ""
        self._thread: threading.Thread
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._server: asyncio.Server
        self._talks = set[asyncio.Task[None]]()

    @staticmethod
    def tokens(places: Sequence[Mapping[str, float]]) -> TokenReply:
        """Return a reply token by token, with the probabilities that the model had for each.

        Args:
            places: for each token of the reply, what might have stood there, with the natural
                logarithms of the probabilities. The first one is what the reply says, whether or
                not it is the likeliest.
        """
        return TokenReply(places)

    def fail_next(self, *faults: Fault, times: int = 1) -> None:
        """Let the next chat requests fail, one fault each; all of them ``times`` times."""
        self._faults.extend(faults * times)

    def freeze(self, seconds: float) -> None:
        """Stop all of the server for a while, as SIGSTOP and SIGCONT do."""
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    def delete(self, name: str) -> None:
        """Delete a model, as ``ollama rm`` does."""
        del self._models[full_name(name)]
        self._loaded.pop(full_name(name), None)

    def kill(self, *, away_s: float | None = None) -> None:
        """Kill the server, which starts again after so many seconds, without a model loaded."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        if away_s is not None:
            start = partial(self._loop.create_task, self._listen())
            self._loop.call_soon_threadsafe(self._loop.call_later, away_s, start)

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
        await self._listen()
        ready.set()
        await self._stop.wait()
        await self._close()

    async def _listen(self) -> None:
        def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._talk(reader, writer))
            self._talks.add(task)
            task.add_done_callback(self._talks.discard)

        # Tests of many agents connect hundreds of clients at once.
        self._server = await asyncio.start_server(talk, "127.0.0.1", self._port, backlog=1024)
        self._port = self._server.sockets[0].getsockname()[1]
        self.host = f"http://127.0.0.1:{self._port}"

    async def _close(self) -> None:
        self._server.close()
        for task in self._talks:
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop must run once more for the sockets to close
        self._loaded.clear()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; the work on a request ends when its client goes away."""
        work = [asyncio.create_task(reader.read(1))]
        try:
            while first := await work[0]:
                request = await Request.read(first, reader)
                work = [asyncio.create_task(reader.read(1))]
                work.append(asyncio.create_task(self._serve(request, writer)))
                await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
                if not work[1].done() or not work[1].result():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client went away
        finally:
            for task in work:
                task.cancel()
            writer.transport.abort()

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return False if the answer was cut off."""
        self.request_lines.append(request.line)
        if self._wants and request.headers.get("authorization") != self._wants:
            return await _send(writer, _refused(self._wants.partition(" ")[0]))
        if request.line != "POST /api/chat":
            return await _send(writer, self._look_up(request.line, request.body))
        self.requests.append(request)
        self.active += 1
        try:
            if not self._is_slow:
                return await _send(writer, await self._chat(dict(request.body)))
            async with self.runner.turn:
                await self._prepare(request.body)
                response = await self._chat(dict(request.body))
                return await _send(writer, response, pause_s=self._throttle.write_s)
        finally:
            self.active -= 1

    async def _prepare(self, body: Mapping[str, Any]) -> None:
        """Load the model where that is due, and read the prompt; say nothing meanwhile."""
        name = full_name(str(body.get("model")))
        if name not in self._models:
            return
        how = self._loaded.get(name, {})
        if how.get("context_length") != self._window(body):
            self._loaded.clear()
            await self.runner.load()
            self._load(body)
        texts = [message.get("content") or "" for message in body.get("messages") or ()]
        await self.runner.read([piece for text in texts for piece in pieces_of(text)])

    def _window(self, body: Mapping[str, Any]) -> int:
        """Return a request's context window: no larger than the model was trained for."""
        asked = int((body.get("options") or {}).get("num_ctx") or _DEFAULT_CTX)
        return min(asked, self._models[full_name(str(body.get("model")))].context_length)

    def _load(self, body: Mapping[str, Any]) -> None:
        how = {"expires_at": _timestamp(timedelta(minutes=5))}
        how["context_length"] = self._window(body)
        self._loaded[full_name(str(body.get("model")))] = how

    def _look_up(self, line: str, body: Mapping[str, Any]) -> Response:
        """Answer a request that is about the server or its models."""
        match line:
            case "GET /api/version":
                return play("02-version", {"version": self._version})
            case "GET /api/tags":
                ages = enumerate(self._models.values())
                return self._list(
                    "03-tags",
                    [m.about() | {"modified_at": _timestamp(timedelta(hours=-n))} for n, m in ages],
                )
            case "GET /api/ps":
                loaded = [self._models[name].about() | how for name, how in self._loaded.items()]
                return self._list("10-ps-loaded", loaded)
            case "POST /api/show":
                name = body.get("model") or ""
                if (model := self._models.get(full_name(name))) is None:
                    words = {"nope:latest": full_name(name), "nope": name}
                    return refuse("05-show-missing", words, old=self._old)
                return play("05-show", filled(recorded("05-show"), model.about()))
            case "POST /api/pull":  # as its documentation says; not recorded
                self._models[full_name(body["model"])] = FakeModel(name=body["model"])
                return play("02-version", {"status": "success"})
        return play("06-404")

    def _list(self, name: str, models: list[dict[str, Any]]) -> Response:
        [entry] = recorded(name, old=self._old)["models"]
        return play(name, {"models": [filled(entry, model) for model in models]})

    async def _chat(self, body: dict[str, Any]) -> Response:
        fault = self._faults.popleft() if self._faults else None
        if fault is not None and fault.name == "hang":
            await self._stop.wait()
        await asyncio.sleep(self._delay_s)
        if fault is None:
            return self._reply(body)
        if fault.name == "status":
            return _failure(fault)
        if fault.name == "overflow":
            return self._overflow(_DEFAULT_CTX, _DEFAULT_CTX)
        response = self._reply(body)
        if fault.name == "cut_connection":
            return replace(response, chunks=(), cut=True)
        if fault.name == "invalid_json":
            return replace(response, chunks=(response.chunks[0][:20] + b"\n",))
        # The closing line is never among what is left, however short the answer.
        if fault.name == "endless":
            return replace(response, chunks=response.chunks[:-1], endless=True)
        lines = response.chunks[:-1][: fault.after]
        return replace(response, chunks=lines, cut=fault.name == "cut_stream")

    def _reply(self, body: dict[str, Any]) -> Response:
        """Answer a chat request without a fault."""
        name = str(body.get("model"))
        model = self._models.get(full_name(name))
        if model is None:
            return refuse("40-missing-model", {"nope": name})
        if refusal := model.cannot(body):
            return refusal
        self._load(body)
        num_ctx = self._window(body)
        read = prompt_tokens(body.get("messages") or ())
        if read >= num_ctx:
            return self._overflow(read, num_ctx)
        reply = self._next_reply(body)
        return reply if isinstance(reply, Response) else _stream(name, reply, body, read)

    def _next_reply(self, body: dict[str, Any]) -> ChatReply | TokenReply | Response:
        """Return the next reply, or the error that is answered in its place."""
        try:
            given = next(self._replies)
            given = given(body) if callable(given) else given
        except Exception as fault:  # noqa: BLE001 - the client sees what a user's function raises
            return _failure(Fault.status(500, f"FakeOllama has no reply: {fault!r}"))
        if isinstance(given, Fault):
            return _failure(given)
        if isinstance(given, ChatReply | TokenReply):
            return given
        if given is None:
            wanted = body.get("format")
            given = self._answer(wanted, body) if wanted else _PROSE
        if isinstance(given, BaseModel):
            given = given.model_dump(mode="json")
        return ChatReply(text=given if isinstance(given, str) else json.dumps(given, indent=2))

    def _overflow(self, tokens: int, num_ctx: int) -> Response:
        """Answer to a prompt that must not be cut and does not fit."""
        words = {"5921": tokens, "2048": num_ctx}
        return refuse("50-ctx-truncate-false-stream", words, old=self._old)


def _failure(fault: Fault) -> Response:
    return replace(play(_DIED, {"error": fault.text}), status=fault.status_code)


def _refused(scheme: str) -> Response:
    """Answer as nginx does to a request without the right key or password; not recorded."""
    return Response(
        status=401,
        headers={"WWW-Authenticate": f'{scheme} realm="models"', "Content-Type": "text/html"},
        chunks=(b"<html>401 Authorization Required</html>",),
    )


async def _send(writer: asyncio.StreamWriter, response: Response, *, pause_s: float = 0.0) -> bool:
    """Send an answer in chunks, one by one as from a model; return False if it was cut."""
    if response.chunks or not response.cut:
        lines = [f"{name}: {value}" for name, value in response.headers.items()]
        lines = [f"HTTP/1.1 {response.status} said", *lines, "Transfer-Encoding: chunked"]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    chunks = cycle(response.chunks) if response.endless else response.chunks
    for chunk in chunks:
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await asyncio.sleep(0.001 if response.endless else pause_s)
        await writer.drain()
    if not response.cut:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return not response.cut


_CALLED = recorded("31-toolcall")["message"]
_CHAT = recorded("35-logprobs-top") | {
    # No recording has thinking; Ollama puts it after the content.
    "message": {"role": "", "content": "", "thinking": "", "tool_calls": []} | _CALLED
}
"""All that a line can say, in its order; what has nothing to say is left out of it."""
_UNSAID = dict.fromkeys(_CHAT.keys() - {"model", "created_at", "message", "done"})
_UNSAID |= {"thinking": None, "tool_calls": None}


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    values = {"index": index, "name": call.name, "arguments": dict(call.arguments)}
    values["id"] = call.id or f"call_{secrets.token_hex(4)}"
    return filled(_CALLED["tool_calls"][0], values)


def _stream(
    name: str, reply: ChatReply | TokenReply, body: Mapping[str, Any], read: int
) -> Response:
    """Answer with a line a token, up to the limit."""
    options = body.get("options") or {}
    if isinstance(reply, TokenReply):
        places, reply = reply.places, ChatReply(text="")
    else:
        places = [{piece: -0.5} for piece in pieces_of(reply.text)]
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
    lines += [{"content": next(iter(place))} | _odds(place, top) for place in places]
    lines += [{"tool_calls": calls}] if calls else []
    always = {"model": name, "created_at": _timestamp(timedelta()), "content": "", "done": False}
    unfinished = _UNSAID | always
    return play("12-chat-stream", [filled(_CHAT, unfinished | line) for line in [*lines, ending]])


def _odds(place: Mapping[str, float], top: int | None) -> dict[str, Any]:
    """Return the log-probabilities of a token, where the request asks for them."""
    if top is None:
        return {}
    likeliest = sorted(place.items(), key=lambda pair: -pair[1])[:top]
    alternatives = [{"token": piece, "logprob": value} for piece, value in likeliest]
    said, value = next(iter(place.items()))
    return {"logprobs": [{"token": said, "logprob": value, "top_logprobs": alternatives}]}


def enforced(schema: Mapping[str, Any], _body: Mapping[str, Any]) -> Any:
    """Return the answer of a model whose server holds it to a schema."""
    return example(schema)


def as_told(schema: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    """Return the answer of a model that knows of a schema only what its messages say."""
    text = "\n".join(message.get("content") or "" for message in body["messages"])
    for line in reversed(text.splitlines()):
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict) and Draft202012Validator(schema).is_valid(value):
                return value
    names = schema.get("properties", {"the fields of no one form"})
    return example(schema) if all(f'"{name}"' in text for name in names) else _PROSE


def example(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """Return a small value that a reply's schema allows: first choices, lower bounds."""
    root = root or schema
    if "$ref" in schema:
        return example(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return example(schema["anyOf"][0], root)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
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
