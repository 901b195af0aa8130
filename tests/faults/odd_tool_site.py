"""A tool server that speaks MCP over HTTP by hand and has one fault."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from odd_tool_server import SAID_WITHOUT_END, Fault, reply_to
from wire_kit import (
    HINTS,
    LAST_CHUNK,
    MB,
    Piece,
    chunk,
    chunked_with,
    document,
    endless,
    gzip_of,
    redirect,
    slowly,
)

__all__ = ["FAULTS", "answer_with"]

JSON = b"Content-Type: application/json\r\n"
STREAM = chunked_with(b"Content-Type: text/event-stream\r\n")
JSON_IN_CHUNKS = chunked_with(JSON)

Message = dict[str, Any]
Site = Callable[[Message], Iterable[Piece]]
"""Returns what is sent in answer to a call."""


def result_of(call: Message) -> bytes:
    content = [{"type": "text", "text": "done"}]
    return json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"content": content}}).encode()


def sound(call: Message) -> Iterable[bytes]:
    return [document(result_of(call), head=JSON)]


def with_text(text: bytes) -> Site:
    """Send a sound result with another text."""
    return lambda call: [document(result_of(call).replace(b"done", text), head=JSON)]


def event(message: bytes) -> bytes:
    return chunk(b"event: message\ndata: %b\n\n" % message)


def stream(write: Callable[[Message], Iterable[Piece]]) -> Site:
    """Send events."""

    def site(call: Message) -> Iterator[Piece]:
        yield STREAM
        yield from write(call)
        yield LAST_CHUNK

    return site


def always(*pieces: Piece) -> Site:
    return lambda _call: pieces


def without_end(first: bytes, rest: bytes) -> Site:
    """Send something for ever."""

    def site(_call: Message) -> Iterator[Piece]:
        yield first
        yield from endless(rest)

    return site


def said_without_end(line: object) -> Site:
    return without_end(STREAM, event(json.dumps(line).encode()) * 100)


FAULTS: dict[str, Site] = {
    "sound": sound,
    "a sound stream": stream(lambda call: [event(result_of(call))]),
    "JSON without end": without_end(JSON_IN_CHUNKS, chunk(b"[" * 60_000)),
    "one text without end": without_end(JSON_IN_CHUNKS + chunk(b'{"x":"'), chunk(b"x" * 60_000)),
    "gzip of 200 MB": lambda _call: [gzip_of(200, JSON)],
    "a header without end": without_end(b"HTTP/1.1 200 OK\r\n" + JSON + b"X: ", b"y" * 60_000),
    "early hints without end": without_end(b"", HINTS * 500),
    "a slow head": lambda _call: slowly(b"H", 0.3, 200),
    "an event without end": without_end(STREAM + chunk(b"data: "), chunk(b"x" * 60_000)),
    "comments without end": without_end(STREAM, chunk(b":\n\n" * 20_000)),
    "empty events without end": without_end(STREAM, chunk(b"data:\n\n" * 9_000)),
    "other events without end": without_end(STREAM, chunk(b"event: x\ndata: 1\n\n" * 3_000)),
    **{f"{name} without end": said_without_end(line) for name, line in SAID_WITHOUT_END.items()},
    "a stream that is always resumed": stream(lambda _call: [chunk(b"id: 7\nretry: 0\ndata:\n\n")]),
    "a stream that is resumed in a year": stream(
        lambda _call: [chunk(b"id: 7\nretry: 31536000000\ndata:\n\n")]
    ),
    "202": always(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"),
    "307 to itself": always(
        b"HTTP/1.1 307 X\r\nLocation: /mcp\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    ),
    "307 elsewhere": always(redirect(307, b"http://127.0.0.1:9/")),
    "401": always(document(b"", b"401 X", b'WWW-Authenticate: Bearer realm="x"\r\n')),
    "500 with 10 MB": always(document(b"E" * 10**7, b"500 X", JSON)),
    "HTML": always(document(b"<html>Log in</html>", head=b"Content-Type: text/html\r\n")),
    "nothing": always(b""),
    "silence": always(60.0),
    "no JSON": always(document(b"[", head=JSON)),
    "200,000 levels": always(document(b"[" * 10**5 + b"]" * 10**5, head=JSON)),
    "another's answer": lambda call: sound({"id": call["id"] + 1}),
    "an answer twice": lambda call: [*sound(call), *sound(call)],
    "16 MB of lists": always(
        document(b'{"result":[%b0]}' % (b"[]," * 5 * MB), head=JSON),
    ),
    "20 MB of text": with_text(b"x" * 20 * MB),
    "half a character": with_text(b"\\ud800"),
    "a goodbye without end": sound,
    "SSH": always(b"SSH-2.0-x\r\n"),
    "a reset": always(0.0),
}
"""What is sent in answer to a call."""


def answer_with(fault: str, at: str, connection: socket.socket, request: bytes) -> None:
    """Answer a request: this method with a fault, others soundly."""
    head, _, body = request.partition(b"\r\n\r\n")
    message = json.loads(body or b"{}")
    method = message.get("method", head.split()[0].decode())
    if fault == "a goodbye without end" and method == "DELETE":
        time.sleep(600)
    if method == at or b"last-event-id" in head.lower():
        pieces = FAULTS[fault](message)
    else:
        pieces = [sound_answer(method, message)]
    for piece in pieces:
        if isinstance(piece, bytes):
            connection.sendall(piece)
        else:
            time.sleep(piece)


def sound_answer(method: str, message: Message) -> bytes:
    if method in ("GET", "DELETE"):
        return document(b"", b"405 X")
    if "id" not in message:
        return document(b"", b"202 Accepted")
    head = JSON
    if method == "initialize":
        head += b"Mcp-Session-Id: 7\r\n"
    return document(json.dumps(reply_to(message, Fault())).encode(), head=head)
