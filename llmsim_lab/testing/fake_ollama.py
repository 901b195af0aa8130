"""A fake Ollama: a real HTTP server on loopback that says what the real one says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from llmsim_lab.calls import ChatReply
from llmsim_lab.errors import ConfigError
from llmsim_lab.testing import _go
from llmsim_lab.testing._faults import Fault
from llmsim_lab.testing._http import Connection, Request, Response, error, json_response
from llmsim_lab.testing._ollama_chat import overflow
from llmsim_lab.testing._ollama_models import FakeModel, pieces_of, prompt_tokens
from llmsim_lab.testing._ollama_state import FakeState

__all__ = ["FakeModel", "FakeOllama", "Fault", "RecordedRequest"]

Reply = str | Mapping[str, Any] | BaseModel | ChatReply
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

    It counts tokens in its own simple way (digits, punctuation marks, up to 8 letters of a word),
    holds no weights, and its durations are made up; all else is as recorded from real servers. So
    a reply in which one token comes more than thirty times again at once is stopped there.

    Args:
        models: names, or ``FakeModel`` where more than the name matters. The first one counts as
            pulled last.
        reply: what chat requests are answered with: a text, a dict or pydantic model (sent as
            JSON), a ``ChatReply`` (for tool calls, thinking, or made-up token counts), a function
            of the request's body, or a list of these, used up in order. Without one, the answer
            is the least that fits the request's ``format``.
        version: ``0.32.15`` or ``0.24.0``, the two that were recorded.
        delay_s: how long each chat answer takes, seconds.
        knows_truncate: False for a server that ignores ``truncate`` and ``shift``, as older ones
            do: it cuts what is too long without a word.

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
        knows_truncate: bool = True,
    ) -> None:
        now = datetime.now(UTC)
        self._state = FakeState(
            models=tuple(
                model
                if isinstance(model, FakeModel)
                else FakeModel(name=model, modified_at=now - timedelta(hours=age))
                for age, model in enumerate(models)
            ),
            version=version,
            reply=self._reply,
            knows_truncate=knows_truncate,
        )
        self._script = deque(reply) if isinstance(reply, list) else None
        self._every = reply
        self._delay_s = delay_s
        self._faults: deque[Fault] = deque()
        self._requests: list[RecordedRequest] = []
        self._lines: list[str] = []
        self._active = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._host = ""

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
        """Let the next chat requests fail, one fault each, the whole row ``times`` times."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._thread, self._host = None, ""

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        connections: set[Connection] = set()
        server = await self._loop.create_server(
            lambda: Connection(self._answer, connections), "127.0.0.1", 0, backlog=1024
        )
        self._host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await self._stop.wait()
        server.close()
        for connection in list(connections):
            connection.abort()
        await asyncio.sleep(0)

    async def _answer(self, request: Request) -> Response:
        is_chat = (request.method, request.path) == ("POST", "/api/chat")
        with self._changed:
            self._lines.append(f"{request.method} {request.path}")
        if not is_chat:
            return self._state.answer(request)
        with self._changed:
            self._requests.append(_recorded(request))
            fault = self._faults.popleft() if self._faults else None
            self._active += 1
            self._changed.notify_all()
        try:
            if fault and fault.kind == "hang":
                await self._stop.wait()
            seconds = fault.seconds if fault and fault.kind == "delay" else self._delay_s
            if seconds:
                await asyncio.sleep(seconds)
            return self._spoil(request, fault)
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _reply(self, body: dict[str, Any]) -> Any:
        reply = self._every
        if self._script is not None:
            if not self._script:
                raise LookupError("the list of replies is used up")
            reply = self._script.popleft()
        return reply(body) if callable(reply) else reply

    def _respond(self, request: Request) -> Response:
        try:
            return self._state.answer(request)
        except Exception as fault:  # noqa: BLE001 - whatever a user's reply function raises is told
            return error(500, f"FakeOllama has no reply: {fault!r}")

    def _spoil(self, request: Request, fault: Fault | None) -> Response:
        """Answer with the fault that is due."""
        if fault is None or fault.kind == "delay":
            return self._respond(request)
        if fault.kind == "status":
            answer = error(fault.status_code, fault.text)
            more = {"Retry-After": fault.retry_after} if fault.retry_after is not None else {}
            return replace(answer, headers={**answer.headers, **more})
        if fault.kind in ("cut_connection", "hang"):
            return Response(cut=True)
        body = dict(_recorded(request).body)
        if fault.kind == "overflow":
            tokens = prompt_tokens(body.get("messages") or (), body.get("tools"))
            asked = int((body.get("options") or {}).get("num_ctx") or 4096)
            refusal = overflow(max(tokens, asked), asked, old=self._state.old)
            return error(refusal.status, str(refusal))
        streamed = body.get("stream") is not False
        if fault.kind == "error_line" and not streamed:
            return error(500, fault.text)
        return _cut_short(self._respond(request), fault)


def _cut_short(response: Response, fault: Fault) -> Response:
    """Spoil a good answer: after some lines of a stream, or within a plain one."""
    if not response.chunked:
        whole = b"".join(response.chunks)
        if fault.kind == "cut_stream" and fault.text and response.status == 200:
            answer = json.loads(whole)
            said = pieces_of(answer["message"]["content"])[: fault.after]
            message = {"role": "assistant", "content": "".join(said)}
            return json_response(
                {"model": answer["model"], "created_at": answer["created_at"]}
                | {"message": message, "done": False}
            )
        half = (whole[: len(whole) // 2],)
        return replace(response, chunks=half, cut=fault.kind == "cut_stream")
    if fault.kind == "invalid_json":
        return replace(response, chunks=(response.chunks[0][:20] + b"\n",))
    # The closing line is never among what is left, however short the answer.
    kept = response.chunks[:-1][: fault.after]
    if fault.kind == "error_line":
        line = _go.dumps({"error": fault.text}).encode() + b"\n"
        return replace(response, chunks=(*kept, line))
    return replace(response, chunks=kept, cut=not fault.text)


def _recorded(request: Request) -> RecordedRequest:
    try:
        body = json.loads(request.content)
    except ValueError:
        body = {}
    return RecordedRequest(
        body=body if isinstance(body, dict) else {},
        headers=request.headers,
        content=request.content,
    )
