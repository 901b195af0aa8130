"""A tool server that speaks MCP over HTTP by hand and has one fault."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from odd_tool_server import SAID_WITHOUT_END
from wire_kit import CHUNKED, HINTS, MB, Piece, chunk, document, endless, gzip_of, slowly

__all__ = ["FAULTS", "answer_with"]

JSON_HEAD = b"Content-Type: application/json\r\n"
STREAM = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Type: text/event-stream\r\n\r\n")
JSON_IN_CHUNKS = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Type: application/json\r\n\r\n")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

Site = Callable[[dict[str, Any]], Iterable[Piece]]
"""Returns the bytes that answer a call."""


def result_of(call: dict[str, Any]) -> bytes:
    content = [{"type": "text", "text": "done"}]
    return json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"content": content}}).encode()


def sound(call: dict[str, Any]) -> Iterable[bytes]:
    return [document(result_of(call), head=JSON_HEAD)]


def event(message: bytes, head: bytes = b"") -> bytes:
    return chunk(b"%bevent: message\ndata: %b\n\n" % (head, message))


def stream(write: Callable[[dict[str, Any]], Iterable[Piece]]) -> Site:
    """Send events."""

    def site(call: dict[str, Any]) -> Iterator[Piece]:
        yield STREAM
        yield from write(call)

    return site


def always(*pieces: Piece) -> Site:
    return lambda _call: pieces


def without_end(first: bytes, rest: bytes) -> Site:
    """Send something for ever."""

    def site(_call: dict[str, Any]) -> Iterator[Piece]:
        yield first
        yield from endless(rest)

    return site


def said_without_end(line: object) -> Site:
    return without_end(STREAM, event(json.dumps(line).encode()) * 100)


FAULTS: dict[str, Site] = {
    "sound": sound,
    "a sound stream": stream(lambda call: [event(result_of(call)), b"0\r\n\r\n"]),
    "JSON without end": without_end(JSON_IN_CHUNKS, chunk(b"[" * 60_000)),
    "one text without end": without_end(JSON_IN_CHUNKS + chunk(b'{"x":"'), chunk(b"x" * 60_000)),
    "gzip of 200 MB": always(gzip_of(200, JSON_HEAD)),
    "a header without end": without_end(HEAD + b"X: ", b"y" * 60_000),
    "early hints without end": without_end(b"", HINTS * 500),
    "a slow head": lambda _: slowly(b"H", 0.3, 200),
    "an event without end": without_end(STREAM + chunk(b"data: "), chunk(b"x" * 60_000)),
    "comments without end": without_end(STREAM, chunk(b":\n\n" * 20_000)),
    "empty events without end": without_end(STREAM, chunk(b"data:\n\n" * 9_000)),
    "other events without end": without_end(STREAM, chunk(b"event: x\ndata: 1\n\n" * 3_000)),
    **{f"{name} without end": said_without_end(line) for name, line in SAID_WITHOUT_END.items()},
    "a stream that is always resumed": stream(
        lambda _: [chunk(b"id: 7\nretry: 0\ndata:\n\n"), b"0\r\n\r\n"]
    ),
    "a stream that is resumed in a year": stream(
        lambda _: [chunk(b"id: 7\nretry: 31536000000\ndata:\n\n"), b"0\r\n\r\n"]
    ),
    "202": always(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"),
    "307 to itself": always(
        b"HTTP/1.1 307 X\r\nLocation: /mcp\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    ),
    "307 elsewhere": always(
        b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    ),
    "401": always(document(b"", b"401 X", b'WWW-Authenticate: Bearer realm="x"\r\n')),
    "500 with 10 MB": always(document(b"E" * 10**7, b"500 X", JSON_HEAD)),
    "HTML": always(document(b"<html>Log in</html>", head=b"Content-Type: text/html\r\n")),
    "nothing": always(b""),
    "silence": always(60.0),
    "no JSON": always(document(b"[", head=JSON_HEAD)),
    "200,000 levels": always(document(b"[" * 10**5 + b"]" * 10**5, head=JSON_HEAD)),
    "another's answer": lambda call: sound({"id": call["id"] + 1}),
    "an answer twice": lambda call: [*sound(call), *sound(call)],
    "16 MB of lists": always(
        document(b'{"result":[%b0]}' % (b"[]," * 5 * MB), head=JSON_HEAD),
    ),
    "20 MB of text": lambda call: [
        document(result_of(call).replace(b"done", b"x" * 20 * MB), head=JSON_HEAD)
    ],
    "half a character": lambda call: [
        document(result_of(call).replace(b"done", b"\\ud800"), head=JSON_HEAD)
    ],
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
    is_faulty = method == at or (b"last-event-id" in head.lower())
    for piece in FAULTS[fault](message) if is_faulty else usual(method, message):
        if isinstance(piece, bytes):
            connection.sendall(piece)
        else:
            time.sleep(piece)


def usual(method: str, message: dict[str, Any]) -> list[bytes]:
    """Return the answer of a sound server."""
    if "id" not in message:
        status = b"405 X" if method in ("GET", "DELETE") else b"202 Accepted"
        return [document(b"", status)]
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "0"}}
        version = message["params"]["protocolVersion"]
        answer["result"] = {"protocolVersion": version, **about}
    elif method == "tools/list":
        answer["result"] = {"tools": [{"name": "f", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        return [document(result_of(message), head=JSON_HEAD)]
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    head = JSON_HEAD + b"Mcp-Session-Id: 7\r\n"
    return [document(json.dumps(answer).encode(), head=head)]
