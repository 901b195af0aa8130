"""What servers send that none should: a table of bytes on the wire, for both protocols."""

from __future__ import annotations

import json
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from llmsim_lab.llm import ChatBackend, OllamaBackend, OpenAIBackend

__all__ = ["FAULTS", "KEY", "KEY_FAULTS", "answer_all_with", "answer_chats_with", "backend_at"]

KEY = "sk-never-to-be-seen-0123456789"
WORDS = {"action": "Raise the rate", "reasoning": "Prices rise.", "confidence": 0.5}

Piece = bytes | float
"""What is sent; a number is a pause in seconds."""
RESET = -1.0
"""Ends the connection as a router does that has forgotten it."""
MB = 2**20


def in_json(value: object) -> bytes:
    """Return a value as JSON, as it stands within a text of JSON."""
    return json.dumps(json.dumps(value)).encode()[1:-1]


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
        return self.line(in_json(WORDS)) + self.end


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
"""Returns what is sent in answer to a request."""

# --- parts of HTTP --------------------------------------------------------------------------------

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
DEEP = b"[" * 100_000 + b"]" * 100_000


def chunked_with(header: bytes) -> bytes:
    """Return the head of an answer in chunks, with one more header."""
    return CHUNKED.removesuffix(b"\r\n") + header + b"\r\n"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def one_chunk(content: bytes, trailer: bytes = b"") -> bytes:
    """Return a whole answer in one chunk."""
    return CHUNKED + chunk(content) + b"0\r\n" + trailer + b"\r\n"


def document(
    content: bytes, status: bytes = b"200 OK", head: bytes = b"", length: int | None = None
) -> bytes:
    if length is None:
        length = len(content)
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, length, head, content)


def redirect(status: int, location: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, location)


def gzip_of(megabytes: int, head: bytes = b"") -> bytes:
    """Return an answer that is so large once it is decompressed."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    packed = [packer.compress(b" " * MB) for _ in range(megabytes)]
    content = b"".join([*packed, packer.flush()])
    return document(content, head=head + b"Content-Encoding: gzip\r\n")


# --- pieces, one after another --------------------------------------------------------------------


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


# --- kinds of faults ------------------------------------------------------------------------------


def always(*pieces: Piece) -> Fault:
    """Send this, whatever the protocol and the request."""
    return lambda _protocol, _request: pieces


def flood(content: bytes, total: int, *, after: bytes = b"") -> Fault:
    """Send so much of a content, after something else."""
    return lambda _protocol, _request: chain([after], repeated(content, total))


def stream(write: Callable[[Protocol], Iterable[Piece]]) -> Fault:
    """Send pieces as chunks of a stream that is said to have ended after them."""

    def fault(protocol: Protocol, _request: bytes) -> Iterator[Piece]:
        yield CHUNKED
        for piece in write(protocol):
            yield chunk(piece) if isinstance(piece, bytes) else piece
        yield LAST_CHUNK

    return fault


def with_reply(answer: Callable[[bytes], bytes]) -> Fault:
    """Send an answer that is made of a sound reply."""
    return lambda protocol, _request: [answer(protocol.reply)]


def changed(change: Callable[[bytes], bytes]) -> Fault:
    """Send a sound reply with a change."""
    return with_reply(lambda reply: document(change(reply)))


def drop_by_drop(protocol: Protocol, _request: bytes) -> Iterator[Piece]:
    for byte in document(protocol.reply):
        yield bytes([byte])
        yield 0.3


def many_arguments(protocol: Protocol) -> Iterator[bytes]:
    for _ in range(8):
        yield protocol.call(b'{"x":"%b"}' % (b"x" * 900_000))


def error_in_errors() -> bytes:
    error: Any = "x"
    for _ in range(14):
        error = json.dumps({"error": error})
    return str(error).encode()


def authorization_in(request: bytes) -> bytes:
    """Return the header of a request that has its key."""
    for line in request.split(b"\r\n"):
        if line.lower().startswith(b"authorization"):
            return line
    return b"Authorization: Bearer none"


def key_in(header: bytes) -> bytes:
    return header.rpartition(b" ")[2]


def echoed(answer: Callable[[bytes], bytes]) -> Fault:
    """Send an answer that is made of the header with the key."""
    return lambda _protocol, request: [answer(authorization_in(request))]


def echoed_in_error(status: bytes) -> Fault:
    def answer(header: bytes) -> bytes:
        error = {"error": {"message": f"you sent {header.decode()}"}}
        return document(json.dumps(error).encode(), status)

    return echoed(answer)


def echoed_beside(answer: Callable[[bytes, bytes], bytes]) -> Fault:
    """Send an answer that is made of a sound reply and the header with the key."""
    return lambda protocol, request: [answer(protocol.reply, authorization_in(request))]


def echoed_in_two_pieces(protocol: Protocol, request: bytes) -> Iterator[bytes]:
    key = key_in(authorization_in(request))
    text = in_json({**WORDS, "reasoning": key.decode(), "action": f"Raise {key.decode()}"})
    middle = text.index(key) + len(key) // 2
    lines = protocol.line(text[:middle]) + protocol.line(text[middle:])
    yield document(lines + protocol.end)


def echoed_in_escapes(protocol: Protocol, request: bytes) -> Iterator[bytes]:
    """Send a reply whose JSON has the key as numbers of its characters."""
    key = key_in(authorization_in(request)).decode()
    escapes = "".join(rf"\\u{ord(character):04x}" for character in key)
    text = in_json({**WORDS, "reasoning": "KEY"}).replace(b"KEY", escapes.encode())
    yield document(protocol.line(text) + protocol.end)


# --- the tables -----------------------------------------------------------------------------------

KEY_FAULTS: dict[str, Fault] = {
    "key in 400": echoed_in_error(b"400 X"),
    "key in 401": echoed_in_error(b"401 X"),
    "key in 500": echoed_in_error(b"500 X"),
    "key in the status": echoed(lambda header: document(b"{", b"500 " + header)),
    "key in a header": echoed(lambda header: document(b"{", b"500 X", b"X-%b\r\n" % header)),
    "key in a broken header": echoed(
        lambda header: b"HTTP/1.1 200 OK\r\nBad " + header + b"\r\n\r\n"
    ),
    "key in place of HTTP": echoed(lambda header: b"NOT HTTP " + header + b"\r\n\r\n"),
    "key in a redirect": echoed(
        lambda header: redirect(302, b"http://127.0.0.1:9/" + key_in(header))
    ),
    "key in a stream's error": echoed(
        lambda header: one_chunk(b'data: {"error":{"message":"%b"}}\n' % header)
    ),
    "key in a trailer": echoed_beside(
        lambda reply, header: one_chunk(reply, b"X-Key: %b\r\n" % header)
    ),
    "key in a broken trailer": echoed_beside(
        lambda reply, header: one_chunk(reply, header.partition(b":")[2] + b"\r\n")
    ),
    "key in a chunk's remark": echoed_beside(
        lambda reply, header: (
            CHUNKED + b"%x;%b\r\n%b\r\n" % (len(reply), key_in(header), reply) + LAST_CHUNK
        )
    ),
    "key in place of a chunk": echoed(lambda header: CHUNKED + header + b"\r\n\r\n"),
    "key in no JSON": echoed(lambda header: one_chunk(b"data: [%b\n" % header)),
    "key in a reply, in two pieces": echoed_in_two_pieces,
    "key in a reply, in escapes": echoed_in_escapes,
}
"""The key, wherever HTTP has place for it."""
FAULTS: dict[str, Fault] = {
    # without end, or too much
    "endless": stream(lambda protocol: endless(protocol.line(b"x" * 1000) * 50)),
    "endless after the end": stream(lambda protocol: chain([protocol.reply], endless(b"\n" * MB))),
    "17 MB of objects": stream(lambda _: repeated(b"{}\n")),
    "17 MB of events": stream(lambda _: repeated(b"data: {}\n")),
    "17 MB of comments": stream(lambda _: repeated(b":\n")),
    "17 MB of empty lines": stream(lambda _: repeated(b"\n")),
    "17 MB of single letters": stream(lambda protocol: repeated(protocol.line(b"x"))),
    "17 MB of long lines": stream(lambda protocol: repeated(protocol.line(b"x" * 50_000))),
    "15 MB of braces": stream(lambda protocol: repeated(protocol.line(b"{" * 900), 15 * MB)),
    "a million braces": stream(lambda protocol: [protocol.line(b"{" * 10**6), protocol.end]),
    "150,000 thoughts": stream(
        lambda protocol: [protocol.line(b"<think>" * 148_000), protocol.end]
    ),
    "90,000 objects": stream(
        lambda protocol: [protocol.line(rb"{\"a\":1}" * 90_000), protocol.end]
    ),
    "one line of 17 MB": stream(lambda _: repeated(b"x" * 60_000)),
    "8 MB of arguments": stream(many_arguments),
    "20,000 calls": stream(lambda protocol: repeated(protocol.call(b"{}"), 2 * MB)),
    "900 kB of arguments, then letter by letter": stream(
        lambda protocol: chain(
            [protocol.call(b"x" * 900_000)], repeated(protocol.call(b"x"), 4 * MB)
        )
    ),
    "500 with 10 MB": always(document(b"E" * 10**7, b"500 X")),
    "a header of 50 MB": flood(b"y", 50 * MB, after=b"HTTP/1.1 200 OK\r\nX: "),
    "headers of 50 MB": flood(b"X: %b\r\n" % (b"y" * 500), 50 * MB, after=b"HTTP/1.1 200 OK\r\n"),
    "60,000 continues": flood(CONTINUE, 60_000 * len(CONTINUE)),
    "early hints of 20 MB": flood(HINTS, 20 * MB),
    "a remark of 60 kB beside each byte": flood(
        b"1;%b\r\nx\r\n" % (b"y" * 60_000), 200 * MB, after=CHUNKED
    ),
    "a chunk's remark of 1 MB": always(CHUNKED + b"5;" + b"a" * MB + b"\r\nabcde\r\n0\r\n\r\n"),
    "trailers of 1 MB": with_reply(lambda reply: one_chunk(reply, b"X: y\r\n" * 170_000)),
    "a million chunks": flood(b"1\r\nx\r\n", 6 * MB, after=CHUNKED),
    # without content
    "nothing": always(b""),
    "204": always(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "an empty document": always(document(b"")),
    "null": always(document(b"null\n")),
    "a list": always(document(b"[]\n")),
    "a number": always(document(b"data: 7\n")),
    "the end alone": lambda protocol, _request: [document(protocol.end)],
    "another reply after the end": changed(lambda reply: reply + reply.replace(b"Raise", b"EVIL")),
    "no end": lambda protocol, _request: [document(protocol.line(b"{}"))],
    # compressed
    "gzip of 200 MB": lambda _protocol, _request: [gzip_of(200)],
    "gzip that is none": with_reply(
        lambda reply: document(reply, head=b"Content-Encoding: gzip\r\n")
    ),
    # redirects
    "302": always(redirect(302, b"http://127.0.0.1:9/x")),
    "307": always(redirect(307, b"http://127.0.0.1:9/x")),
    "308 to a relative host": always(redirect(308, b"//evil/")),
    "303 to control characters": always(redirect(303, b"\x01\x02")),
    "300 with a password": always(redirect(300, b"http://a:b@127.0.0.1:9/?k=1")),
    # lies in lengths
    "a length too small": with_reply(lambda reply: document(reply, length=20)),
    "a length too large": with_reply(lambda reply: document(reply, length=10**6)),
    "a length beyond all": with_reply(lambda reply: document(reply, length=10**18)),
    "a negative length": with_reply(lambda reply: document(reply, length=-5)),
    "two lengths": with_reply(lambda reply: document(reply, head=b"Content-Length: 3\r\n")),
    "a length and chunks": with_reply(
        lambda reply: chunked_with(b"Content-Length: 5\r\n") + chunk(reply) + LAST_CHUNK
    ),
    "a chunk beyond all": with_reply(lambda reply: CHUNKED + b"F" * 16 + b"\r\n" + reply),
    "a negative chunk": with_reply(lambda reply: CHUNKED + b"-5\r\n" + reply),
    # slow
    "silence": always(30.0),
    "a slow head": drop_by_drop,
    "slow comments": stream(lambda _: slowly(b":\n", 0.3, 60)),
    "slow empty lines": stream(lambda _: slowly(b"\n", 0.3, 60)),
    "slow empty texts": stream(lambda protocol: slowly(protocol.line(b""), 0.3, 60)),
    "slow after the end": stream(lambda protocol: chain([protocol.reply], slowly(b"\n", 0.3, 60))),
    "slow continues": lambda _protocol, _request: slowly(CONTINUE, 0.3, 60),
    "reset halfway": lambda protocol, _request: [
        document(protocol.reply, length=10**6)[:200],
        0.1,
        RESET,
    ],
    # no HTTP, or another's
    "SSH": always(b"SSH-2.0-x\r\n"),
    "HTTP 2": always(b"\0\0\0\4\0\0\0\0\0" * 100_000),
    "a switch to HTTP 2": always(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
    "HTTP 0.9": with_reply(lambda reply: reply),
    "HTTP 1.0": with_reply(lambda reply: b"HTTP/1.0 200 OK\r\n\r\n" + reply),
    "HTML": always(document(b"<html>Log in</html>")),
    "another request's answer": lambda protocol, _request: [
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
    **KEY_FAULTS,
}
"""What is sent in answer to a chat, by what it is called."""


def backend_at(port: int, kind: str) -> ChatBackend:
    """Return a client of a server on this machine, ``Ollama`` or ``OpenAI``, with the key."""
    url = f"http://127.0.0.1:{port}"
    if kind == "Ollama":
        return OllamaBackend("m", host=url, key=KEY)
    return OpenAIBackend("m", base_url=f"{url}/v1", api_key=KEY)


def answer_chats_with(name: str, connection: socket.socket, request: bytes) -> None:
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
