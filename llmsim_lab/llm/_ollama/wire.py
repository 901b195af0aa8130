"""Connections to an Ollama server: its address, what goes out and comes back, clients per loop.

The official client's ``chat`` has no parameter ``truncate``, and drops what it does not know of a
tool's JSON schema. ``OllamaTransport`` therefore adds such fields to the JSON of the
request on its way out: a public httpx transport, which the client accepts as a keyword.

The client parses answers without limits of depth or of the size of numbers, takes ``true`` for a
count of 1, and puts the server's texts into exceptions as they are. So the same transport gives it
JSON that was read and checked before.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import ollama

from llmsim_lab.llm._connections import Shared, open_transport, read_address
from llmsim_lab.llm._retry import retry_after_s
from llmsim_lab.llm._scope import scope
from llmsim_lab.llm._transport import (
    MAX_TOKENS,
    STREAMED,
    OuterTransport,
    count,
    error_text,
    is_framed,
    read_json,
    streamed,
)

_DEFAULT_PORT = 11434
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_OF_THE_API = re.compile(r"/(?:api|v1)(?:/(?:chat|generate|tags|chat/completions))?$")
"""What people often copy with an address: the path of Ollama's protocol, or OpenAI's."""
_MAX_NANOSECONDS = 10**18
_DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
_COUNTS = {
    **dict.fromkeys(("prompt_eval_count", "eval_count"), MAX_TOKENS),
    **dict.fromkeys(_DURATIONS, _MAX_NANOSECONDS),
}


def parse_host(host: str | None = None) -> str:
    """Return a server's URL; without a host that of ``$OLLAMA_HOST``, else the usual local one.

    Understands what Ollama does: ``gpu-box``, ``gpu-box:8080``, ``:8080``, ``https://box/path``,
    ``::1``. An address to listen on, such as ``0.0.0.0``, becomes that of this machine, and a path
    loses ``/api`` or ``/v1`` at its end, since clients add it themselves.

    Raises:
        ConfigError: it is not a server's address.
    """

    def url_of(split: urllib.parse.SplitResult, has_scheme: bool) -> str:
        # As in the official client: 11434 only where no scheme is named.
        usual = (80 if split.scheme == "http" else 443) if has_scheme else _DEFAULT_PORT
        port = usual if split.port is None else split.port
        name = split.hostname or "127.0.0.1"
        if _ADDRESS.fullmatch(name):
            address = ipaddress.ip_address(name)
            local = {4: "127.0.0.1", 6: "::1"}[address.version]
            name = local if address.is_unspecified else str(address)
            name = f"[{name}]" if address.version == 6 else name
        return f"{split.scheme}://{name}:{port}{_OF_THE_API.sub('', split.path.rstrip('/'))}"

    return read_address(
        (host or os.environ.get("OLLAMA_HOST") or "").strip().strip("\"'"),
        url_of,
        source="host" if host else "OLLAMA_HOST",
        form="host:port or http://host:port, for example 127.0.0.1:11434 or [::1]:11434",
        note=", which Ollama does not know",
    )


@dataclass(slots=True)
class ChatExchange:
    """A chat request's further fields, and what the client leaves out of its response.

    Attributes:
        fields: added to the request.
        sent: whether it has left.
        retry_after_s: how long the server asks to wait, seconds.
        framed: whether the response says where it ends; if not, a broken connection looks like
            its end.
    """

    fields: Mapping[str, Any]
    sent: bool = False
    retry_after_s: float | None = None
    framed: bool = True


class OllamaTransport(OuterTransport):
    """Adds the fields of the scope's ``outgoing`` to chat requests; passes on valid JSON alone.

    Args:
        inner: makes the requests and bounds the answers, as ``GuardedTransport`` does.
    """

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request, a chat request with its further fields.

        Raises:
            ValueError: the answer is not valid JSON, or a count in it is not a count.
        """
        extra: ChatExchange | None = scope().outgoing
        if (
            extra is not None
            and request.method == "POST"
            and request.url.path.endswith("/api/chat")
        ):
            extra.sent = True
            body = json.loads(await request.aread()) | extra.fields
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            kept = [pair for pair in request.headers.raw if pair[0].lower() != b"content-length"]
            request = httpx.Request(
                request.method,
                request.url,
                headers=kept,
                content=content,
                extensions=request.extensions | (STREAMED if body.get("stream") else {}),
            )
        response = await self._inner.handle_async_request(request)
        if extra is not None:
            extra.framed = is_framed(response)
        if response.is_error:
            if extra is not None:  # the official client's errors leave the headers out
                extra.retry_after_s = retry_after_s(response.headers.get("retry-after"))
            return httpx.Response(
                response.status_code, json={"error": _explanation(response.content)}
            )
        if request.extensions.get("streamed") and response.is_success:
            return streamed(response, _checked_lines)
        return _Document(response.status_code, _checked(response.content))


class _Document(httpx.Response):
    """An answer whose JSON was read already."""

    def __init__(self, status_code: int, value: Any) -> None:
        super().__init__(status_code)
        self._value = value

    def json(self, **_: Any) -> Any:
        """Return the value that was read."""
        return self._value


async def _checked_lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a streamed answer, each line read, checked and written anew."""
    async for block in blocks:
        lines = []
        for line in filter(bytes.strip, block.split(b"\n")):
            value = _checked(line)
            # The line itself, unless its error was rewritten. In ASCII, since the client ends lines
            # also at characters that may stand in JSON unescaped, such as U+2028.
            same = line.isascii() and isinstance(value, dict) and "error" not in value
            lines.append(line if same else json.dumps(value).encode())
        if lines:
            yield b"\n".join(lines) + b"\n"


def _checked(content: bytes) -> Any:
    value = read_json(content)
    if not isinstance(value, dict):
        return value
    for name in _COUNTS.keys() & value.keys():
        count(value[name], name, most=_COUNTS[name])
    if value.get("error"):
        # The client parses this text as JSON again if it can, so it gets JSON that is safe.
        value["error"] = json.dumps({"error": _text(value["error"])})
    return value


def _explanation(content: bytes) -> str:
    try:
        value = read_json(content)
    except ValueError:
        value = None
    if isinstance(value, dict) and "error" in value:
        return _text(value["error"])
    return error_text(content.decode(errors="replace"))


def _text(error: Any) -> str:
    return error_text(error if isinstance(error, str) else json.dumps(error, ensure_ascii=False))


@dataclass(slots=True, eq=False)
class Clients:
    """The official client and a plain one for one server and one event loop."""

    chat: ollama.AsyncClient
    http: httpx.AsyncClient

    @classmethod
    def open(cls, url: str, *, timeout_s: float | None = None) -> Clients:
        """Open clients without a limit of connections: the caller bounds those.

        Args:
            url: the server.
            timeout_s: longest wait for a connection and for each piece of an answer, seconds;
                None where the caller bounds the time.

        Raises:
            ConfigError: the environment's proxy, or its file of certificates, cannot be used.
        """
        transport = OllamaTransport(open_transport(url, who=f"Ollama at {url}"))
        return cls(
            ollama.AsyncClient(url, transport=transport, timeout=timeout_s),
            httpx.AsyncClient(base_url=url, transport=transport, timeout=timeout_s),
        )

    async def aclose(self) -> None:
        """Close the connections, which both share."""
        await self.http.aclose()


_shared = Shared(Clients.open)
clients_for, release = _shared.get, _shared.release
