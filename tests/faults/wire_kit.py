"""What servers send that none should: a table of bytes on the wire, for both protocols."""

from __future__ import annotations

import json
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["FAULTS", "KEY", "answer_all_with", "answer_with"]

KEY = "sk-never-to-be-seen-0123456789"
WORDS = {"action": "Raise the rate", "reasoning": "Prices rise.", "confidence": 0.5}

Piece = bytes | float
"""What is sent; a number is a pause in seconds."""
RESET = -1.0
"""Ends the connection as a router does that has forgotten it."""
MB = 2**20


@dataclass(frozen=True)
class Protocol:
    """How a kind of server writes a stream.

    Attributes:
        line: a piece of a reply with this text, which is within JSON.
        end: the reply's end.
        call: a call of a tool, with these arguments as JSON.
    """

    line: Callable[[bytes], bytes]
    end: bytes
    call: Callable[[bytes], bytes]

    @property
    def reply(self) -> bytes:
        return self.line(json.dumps(json.dumps(WORDS)).encode()[1:-1]) + self.end


OLLAMA = Protocol(
    line=lambda text: b'{"message":{"role":"assistant","content":"%b"},"done":false}\n' % text,
    end=b'{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",'
    b'"prompt_eval_count":60,"eval_count":5}\n',
    call=lambda text: (
        b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":%b}}]}}\n' % text
    ),
)
OPENAI = Protocol(
    line=lambda text: b'data: {"choices":[{"delta":{"content":"%b"}}]}\n' % text,
    end=b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":60,"completion_tokens":5}}\ndata: [DONE]\n',
    call=lambda text: (
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":'
        b'{"name":"f","arguments":%b}}]}}]}\n' % json.dumps(text.decode()).encode()
    ),
)

Fault = Callable[[Protocol, bytes], Iterable[Piece]]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def document(
    content: bytes, status: bytes = b"200 OK", head: bytes = b"", length: int | None = None
) -> bytes:
    length = len(content) if length is None else length
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, length, head, content)


def always(*pieces: Piece) -> Fault:
    """Send this, whatever the protocol and the request."""
    return lambda _protocol, _request: pieces


def stream(write: Callable[[Protocol], Iterable[Piece]]) -> Fault:
    """Send pieces as chunks of a stream that is said to have ended after them."""

    def fault(protocol: Protocol, _request: bytes) -> Iterator[Piece]:
        yield CHUNKED
        for piece in write(protocol):
            yield chunk(piece) if isinstance(piece, bytes) else piece
        yield b"0\r\n\r\n"

    return fault


def changed(change: Callable[[bytes], bytes]) -> Fault:
    """Send a sound reply with a change."""
    return lambda protocol, _request: [document(change(protocol.reply))]


def repeated(content: bytes, total: int = 17 * MB) -> Iterator[bytes]:
    """Yield so much of a content, in pieces of some 60 kB."""
    times = max(1, 60_000 // len(content))
    block = content * times
    for _ in range(total // len(block) + 1):
        yield block


def slowly(content: bytes, pause_s: float, times: int) -> Iterator[Piece]:
    for _ in range(times):
        yield content
        yield pause_s


def endless(content: bytes) -> Iterator[bytes]:
    while True:
        yield content


def drop_by_drop(protocol: Protocol, _request: bytes) -> Iterator[Piece]:
    for byte in document(protocol.reply):
        yield bytes([byte])
        yield 0.3


def many_arguments(protocol: Protocol) -> Iterator[bytes]:
    for _ in range(8):
        yield protocol.call(b'{"x":"%b"}' % (b"x" * 900_000))


def gzip_of(megabytes: int, head: bytes = b"") -> bytes:
    """Return an answer that is so large once it is decompressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = [packer.compress(b" " * MB) for _ in range(megabytes)]
    content = b"".join([*packed, packer.flush()])
    return document(content, head=head + b"Content-Encoding: gzip\r\n")


def echo_of(request: bytes) -> bytes:
    """Return the header of a request that lets it in."""
    lines = [line for line in request.split(b"\r\n") if line.lower().startswith(b"authorization")]
    return lines[0] if lines else b"Authorization: Bearer none"


def echoed(answer: Callable[[bytes], bytes]) -> Fault:
    """Send what holds the key that the request has."""
    return lambda _protocol, request: [answer(echo_of(request))]


def echoed_in_error(status: bytes) -> Fault:
    def answer(header: bytes) -> bytes:
        return document(
            json.dumps({"error": {"message": f"you sent {header.decode()}"}}).encode(), status
        )

    return echoed(answer)


def echoed_in_reply(protocol: Protocol, request: bytes) -> Iterator[bytes]:
    key = echo_of(request).rpartition(b" ")[2].decode()
    words = json.dumps({**WORDS, "reasoning": key, "action": f"Raise {key}"})
    text = json.dumps(words).encode()[1:-1]
    half = text.index(key.encode()) + len(key) // 2 if key.encode() in text else 5
    yield document(protocol.line(text[:half]) + protocol.line(text[half:]) + protocol.end)


def echoed_in_escapes(protocol: Protocol, request: bytes) -> Iterator[bytes]:
    """Send a reply whose JSON has the key as numbers of its characters."""
    key = echo_of(request).rpartition(b" ")[2].decode()
    escapes = "".join(f"\\u{ord(character):04x}" for character in key)
    words = json.dumps({**WORDS, "reasoning": "KEY"}).replace("KEY", escapes)
    yield document(protocol.line(json.dumps(words).encode()[1:-1]) + protocol.end)


def error_in_errors() -> bytes:
    error: Any = "x"
    for _ in range(14):
        error = json.dumps({"error": error})
    return str(error).encode()


DEEP = b"[" * 100_000 + b"]" * 100_000
STOPPED = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
FAULTS: dict[str, Fault] = {
    # without end, or too much
    "endless": stream(lambda protocol: endless(protocol.line(b"x" * 1000) * 50)),
    "endless after the end": stream(lambda protocol: _then(protocol.reply, endless(b"\n" * MB))),
    "17 MB of objects": stream(lambda _: repeated(b"{}\n")),
    "17 MB of events": stream(lambda _: repeated(b"data: {}\n")),
    "17 MB of comments": stream(lambda _: repeated(b":\n")),
    "17 MB of empty lines": stream(lambda _: repeated(b"\n")),
    "17 MB of single letters": stream(lambda protocol: repeated(protocol.line(b"x"))),
    "17 MB of long lines": stream(lambda protocol: repeated(protocol.line(b"x" * 50_000))),
    "15 MB of braces": stream(lambda protocol: repeated(protocol.line(b"{" * 900), 15 * MB)),
    "a million braces": stream(lambda protocol: _then(protocol.line(b"{" * 10**6), [protocol.end])),
    "150,000 thoughts": stream(
        lambda protocol: _then(protocol.line(b"<think>" * 148_000), [protocol.end])
    ),
    "90,000 objects": stream(
        lambda protocol: _then(protocol.line(rb"{\"a\":1}" * 90_000), [protocol.end])
    ),
    "one line of 17 MB": stream(lambda _: repeated(b"x" * 60_000)),
    "8 MB of arguments": stream(many_arguments),
    "20,000 calls": stream(lambda protocol: repeated(protocol.call(b"{}"), 2 * MB)),
    "900 kB of arguments, then letter by letter": stream(
        lambda protocol: _then(protocol.call(b"x" * 900_000), repeated(protocol.call(b"x"), 4 * MB))
    ),
    "500 with 10 MB": always(document(b"E" * 10**7, b"500 X")),
    "a header of 50 MB": lambda *_: _then(b"HTTP/1.1 200 OK\r\nX: ", repeated(b"y", 50 * MB)),
    "headers of 50 MB": lambda *_: _then(
        b"HTTP/1.1 200 OK\r\n", repeated(b"X: %b\r\n" % (b"y" * 500), 50 * MB)
    ),
    "60,000 continues": lambda *_: repeated(STOPPED, 60_000 * len(STOPPED)),
    "early hints of 20 MB": lambda *_: repeated(HINTS, 20 * MB),
    "a remark of 60 kB beside each byte": lambda *_: _then(
        CHUNKED, repeated(b"1;%b\r\nx\r\n" % (b"y" * 60_000), 200 * MB)
    ),
    "a chunk's remark of 1 MB": always(CHUNKED + b"5;" + b"a" * MB + b"\r\nabcde\r\n0\r\n\r\n"),
    "trailers of 1 MB": lambda protocol, _: [
        CHUNKED + chunk(protocol.reply) + b"0\r\n" + b"X: y\r\n" * 170_000 + b"\r\n"
    ],
    "a million chunks": lambda *_: _then(CHUNKED, repeated(b"1\r\nx\r\n", 6 * MB)),
    # without content
    "nothing": always(b""),
    "204": always(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "an empty document": always(document(b"")),
    "null": always(document(b"null\n")),
    "a list": always(document(b"[]\n")),
    "a number": always(document(b"data: 7\n")),
    "the end alone": lambda protocol, _: [document(protocol.end)],
    "another reply after the end": changed(lambda reply: reply + reply.replace(b"Raise", b"EVIL")),
    "no end": lambda protocol, _: [document(protocol.line(b"{}"))],
    # compressed
    "gzip of 200 MB": always(gzip_of(200)),
    "gzip that is none": lambda protocol, _: [
        document(protocol.reply, head=b"Content-Encoding: gzip\r\n")
    ],
    # redirects
    "302": always(b"HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:9/x\r\nContent-Length: 0\r\n\r\n"),
    "307": always(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:9/x\r\nContent-Length: 0\r\n\r\n"),
    "308 to a relative host": always(
        b"HTTP/1.1 308 X\r\nLocation: //evil/\r\nContent-Length: 0\r\n\r\n"
    ),
    "303 to control characters": always(
        b"HTTP/1.1 303 X\r\nLocation: \x01\x02\r\nContent-Length: 0\r\n\r\n"
    ),
    "300 with a password": always(
        b"HTTP/1.1 300 X\r\nLocation: http://a:b@127.0.0.1:9/?k=1\r\nContent-Length: 0\r\n\r\n"
    ),
    # lies in lengths
    "a length too small": lambda protocol, _: [document(protocol.reply, length=20)],
    "a length too large": lambda protocol, _: [document(protocol.reply, length=10**6)],
    "a length beyond all": lambda protocol, _: [document(protocol.reply, length=10**18)],
    "a negative length": lambda protocol, _: [document(protocol.reply, length=-5)],
    "two lengths": lambda protocol, _: [document(protocol.reply, head=b"Content-Length: 3\r\n")],
    "a length and chunks": lambda protocol, _: [
        CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n")
        + chunk(protocol.reply)
        + b"0\r\n\r\n"
    ],
    "a chunk beyond all": lambda protocol, _: [CHUNKED + b"F" * 16 + b"\r\n" + protocol.reply],
    "a negative chunk": lambda protocol, _: [CHUNKED + b"-5\r\n" + protocol.reply],
    # slow
    "silence": always(30.0),
    "a slow head": drop_by_drop,
    "slow comments": stream(lambda _: slowly(b":\n", 0.3, 60)),
    "slow empty lines": stream(lambda _: slowly(b"\n", 0.3, 60)),
    "slow empty texts": stream(lambda protocol: slowly(protocol.line(b""), 0.3, 60)),
    "slow after the end": stream(lambda protocol: _then(protocol.reply, slowly(b"\n", 0.3, 60))),
    "slow continues": lambda *_: slowly(STOPPED, 0.3, 60),
    "reset halfway": lambda protocol, _: [
        document(protocol.reply, length=10**6)[:200],
        0.1,
        RESET,
    ],
    # no HTTP, or another's
    "SSH": always(b"SSH-2.0-x\r\n"),
    "HTTP 2": always(b"\0\0\0\4\0\0\0\0\0" * 100_000),
    "a switch to HTTP 2": always(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
    "HTTP 0.9": lambda protocol, _: [protocol.reply],
    "HTTP 1.0": lambda protocol, _: [b"HTTP/1.0 200 OK\r\n\r\n" + protocol.reply],
    "HTML": always(document(b"<html>Log in</html>")),
    "another request's answer": lambda protocol, _: [
        document(protocol.reply) + document(protocol.reply.replace(b"Raise", b"EVIL")),
        1.0,
    ],
    # texts that are none
    "bytes that are no UTF-8": always(document(b"\xff\xfe\x80{}\n")),
    "UTF-16": changed(lambda reply: reply.decode().encode("utf-16")),
    "half a character": changed(lambda reply: reply.replace(b"Raise", b"\\ud800")),
    "NUL": changed(lambda reply: reply.replace(b"Raise", b"\\u0000")),
    "200,000 levels": always(document(DEEP)),
    "200,000 levels of an event": always(document(b"data: " + DEEP + b"\n")),
    "a terminal's commands": always(
        document(json.dumps({"error": "\x1b]0;x\x07\x1b[2J\u202e"}).encode(), b"500 \x1b[31mX")
    ),
    # wrong types
    "NaN": changed(lambda reply: reply.replace(b"60", b"NaN")),
    "1e999": changed(lambda reply: reply.replace(b"60", b"1e999")),
    "5,000 digits": changed(lambda reply: reply.replace(b"60", b"9" * 5000)),
    "a negative count": changed(lambda reply: reply.replace(b"60", b"-6")),
    "a text for a message": changed(lambda reply: reply.replace(b'{"role"', b'"x",{"role"')),
    "a list for a text": changed(lambda reply: reply.replace(b'content":"', b'content":["')),
    "arguments that are no object": stream(lambda protocol: [protocol.call(b"17"), protocol.end]),
    "errors in errors": always(document(error_in_errors(), b"500 X")),
    "429 for three thousand years": always(
        document(b"", b"429 X", b"Retry-After: 99999999999\r\n")
    ),
    "429 into the past": always(document(b"", b"429 X", b"Retry-After: -5\r\n")),
    "429 with no date": always(
        document(b"", b"429 X", b"Retry-After: Wed, 99 Foo 99999999999 99:99:99 GMT\r\n")
    ),
    # the key, wherever HTTP has place for it
    "key in 400": echoed_in_error(b"400 X"),
    "key in 401": echoed_in_error(b"401 X"),
    "key in 500": echoed_in_error(b"500 X"),
    "key in the status": echoed(lambda key: document(b"{", b"500 " + key)),
    "key in a header": echoed(lambda key: document(b"{", b"500 X", b"X-%b\r\n" % key)),
    "key in a broken header": echoed(lambda key: b"HTTP/1.1 200 OK\r\nBad " + key + b"\r\n\r\n"),
    "key in place of HTTP": echoed(lambda key: b"NOT HTTP " + key + b"\r\n\r\n"),
    "key in a redirect": echoed(
        lambda key: document(
            b"",
            b"302 X",
            b"Location: http://127.0.0.1:9/%b\r\n" % key.rpartition(b" ")[2],
        )
    ),
    "key in a stream's error": echoed(
        lambda key: CHUNKED + chunk(b'data: {"error":{"message":"%b"}}\n' % key) + b"0\r\n\r\n"
    ),
    "key in a trailer": lambda protocol, request: [
        CHUNKED + chunk(protocol.reply) + b"0\r\nX-Key: " + echo_of(request) + b"\r\n\r\n"
    ],
    "key in a broken trailer": lambda protocol, request: [
        CHUNKED + chunk(protocol.reply) + b"0\r\n" + echo_of(request)[14:] + b"\r\n\r\n"
    ],
    "key in a chunk's remark": lambda protocol, request: [
        CHUNKED
        + b"%x;%b\r\n%b\r\n" % (len(protocol.reply), echo_of(request)[22:], protocol.reply)
        + b"0\r\n\r\n"
    ],
    "key in place of a chunk": echoed(lambda key: CHUNKED + key + b"\r\n\r\n"),
    "key in no JSON": echoed(lambda key: CHUNKED + chunk(b"data: [%b\n" % key) + b"0\r\n\r\n"),
    "key in a reply, in two pieces": echoed_in_reply,
    "key in a reply, in escapes": echoed_in_escapes,
}
"""What is sent in answer to a chat, by what it is called."""


def _then(first: bytes, rest: Iterable[Piece]) -> Iterator[Piece]:
    yield first
    yield from rest


def answer_with(name: str, connection: socket.socket, request: bytes) -> None:
    """Answer a request: a chat with this fault, and what a server is asked besides soundly."""
    if b"/api/version" in request:
        connection.sendall(document(b'{"version":"0.32.15"}'))
        return
    answer_all_with(name, connection, request)


def answer_all_with(name: str, connection: socket.socket, request: bytes) -> None:
    """Answer a request with this fault, whatever it asks."""
    protocol = OLLAMA if b" /api/" in request else OPENAI
    for piece in FAULTS[name](protocol, request):
        if isinstance(piece, bytes):
            connection.sendall(piece)
        elif piece == RESET:
            now = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        else:
            time.sleep(piece)
