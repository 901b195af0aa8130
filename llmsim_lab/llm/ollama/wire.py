"""Connections to an Ollama server: its address, fields its client lacks, clients shared per loop.

The official client has no ``truncate`` or ``shift`` parameter in ``chat`` and drops what it does
not know of a tool's JSON schema. ``FieldsTransport`` therefore adds such fields to the request's
JSON on its way out: a public httpx transport, given to the client by the keyword it hands on.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import threading
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import httpx
import ollama

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.faults import retry_after_s
from llmsim_lab.llm.ollama.answers import CheckedTransport
from llmsim_lab.llm.scope import scope
from llmsim_lab.llm.transport import STREAMED, GuardedTransport

__all__ = [
    "Clients",
    "FieldsTransport",
    "Outgoing",
    "clients_for",
    "is_loopback",
    "parse_host",
    "release",
    "without_password",
]

_DEFAULT_PORT = 11434
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_OF_THE_API = re.compile(r"/(?:api|v1)(?:/(?:chat|generate|tags|chat/completions))?$")
"""What people copy along with an address: the path of Ollama's protocol, or OpenAI's."""


def parse_host(host: str | None = None) -> str:
    """Return a server's URL; without a host that of ``$OLLAMA_HOST``, else the usual local one.

    Understands what Ollama does: ``gpu-box``, ``gpu-box:8080``, ``:8080``, ``https://box/path``,
    ``::1``; an address to listen on, such as ``0.0.0.0``, becomes that of this machine, and a path
    that ends in ``/api`` or ``/v1`` loses that end, since clients add it themselves.

    Raises:
        ConfigError: the address makes no sense.
    """
    source = "host" if host else "OLLAMA_HOST"
    given = (host or os.environ.get("OLLAMA_HOST") or "").strip().strip("\"'")
    scheme, separator, rest = given.partition("://")
    scheme = scheme.lower()
    if not separator:
        scheme, rest = "http", given
    wrong = ConfigError(
        f"{source}={without_password(given)!r} is not a server's address; write it as host:port or "
        "http://host:port, for example 127.0.0.1:11434 or [::1]:11434"
    )
    if "@" in rest:
        raise ConfigError(f"{wrong}, with no user name or password, which Ollama does not know")
    if scheme not in ("http", "https"):
        raise wrong
    name, slash, path = rest.partition("/")
    if _is_ipv6(name):
        rest = f"[{name}]{slash}{path}"
    try:
        split = urllib.parse.urlsplit(f"{scheme}://{rest}")
        usual = {"http": 80, "https": 443}[scheme] if separator else _DEFAULT_PORT
        port = usual if split.port is None else split.port
        name = split.hostname or "127.0.0.1"
        address = _connectable(name) if _ADDRESS.fullmatch(name) else name
        url = f"{scheme}://{address}:{port}{_OF_THE_API.sub('', split.path.rstrip('/'))}"
        extra = split.query or split.fragment
        if extra or not httpx.URL(url).host or " " in url or not url.isprintable():
            raise wrong
    except (ValueError, httpx.InvalidURL) as error:
        raise wrong from error
    return url


def without_password(url: str) -> str:
    """Return an address as it may be shown: whatever stands before an ``@`` is masked."""
    before, at, after = url.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme}://***@{after}" if separator else f"***@{after}" if at else url


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _connectable(text: str) -> str:
    address = ipaddress.ip_address(text)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"


def is_loopback(url: str) -> bool:
    """Whether the URL is this machine's own; no proxy is asked for those."""
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@dataclass(slots=True)
class Outgoing:
    """A chat request's further fields, and what the client does not tell of it and its response.

    Attributes:
        fields: added to the request.
        sent: whether it has left.
        retry_after_s: how long the server asks to wait, seconds.
        framed: whether the response says where it ends; a broken connection is no end then.
    """

    fields: Mapping[str, Any]
    sent: bool = False
    retry_after_s: float | None = None
    framed: bool = True


class FieldsTransport(httpx.AsyncBaseTransport):
    """Adds the fields of the scope's ``outgoing`` to the JSON of chat requests."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, a chat request with its further fields."""
        extra: Outgoing | None = scope().outgoing
        if (
            extra is not None
            and request.method == "POST"
            and request.url.path.endswith("/api/chat")
        ):
            extra.sent = True
            body = json.loads(await request.aread()) | extra.fields
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            headers = [pair for pair in request.headers.raw if pair[0].lower() != b"content-length"]
            request = httpx.Request(
                request.method,
                request.url,
                headers=headers,
                content=content,
                extensions=request.extensions | (STREAMED if body.get("stream") else {}),
            )
        response = await self._inner.handle_async_request(request)
        if extra is not None:
            told = response.headers
            extra.framed = "content-length" in told or "transfer-encoding" in told
            if response.is_error:
                # The official client's errors leave the headers out.
                extra.retry_after_s = retry_after_s(told.get("retry-after"))
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _env_proxy(url: str) -> str | None:
    """Return the proxy the environment names for a URL; httpx asks only for its own transports."""
    parsed = httpx.URL(url)
    if is_loopback(url) or urllib.request.proxy_bypass(parsed.host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parsed.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


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
        proxy = _env_proxy(url)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        try:
            # Certificates take long to load, and without redirects plain http stays plain http.
            verify = any(address.startswith("https:") for address in (url, (proxy or "").lower()))
            inner = httpx.AsyncHTTPTransport(verify=verify, limits=limits, proxy=proxy)
        except (ValueError, ImportError) as error:
            raise ConfigError(
                f"the environment's proxy {without_password(proxy or '')!r} cannot be used for "
                f"{url}: {error}; correct it, or name the host in NO_PROXY"
            ) from error
        except OSError as error:
            named = {
                name: os.environ[name]
                for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")
                if os.environ.get(name)
            }
            raise ConfigError(
                f"the environment's certificates {named} cannot be read: {error}; name a file "
                "of certificates in PEM format, or unset the variable"
            ) from error
        guarded = GuardedTransport(inner, who=f"Ollama at {url}")
        transport = FieldsTransport(CheckedTransport(guarded))
        return cls(
            ollama.AsyncClient(url, transport=transport, timeout=timeout_s),
            httpx.AsyncClient(base_url=url, transport=transport, timeout=timeout_s),
        )

    async def aclose(self) -> None:
        """Close the connections, which both share."""
        await self.http.aclose()


@dataclass(slots=True, eq=False)
class _Lease:
    clients: Clients
    lifetime: AsyncGenerator[Clients, None]
    users: WeakSet[Any] = field(default_factory=WeakSet)


_leases: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Lease]] = WeakKeyDictionary()
_lock = threading.Lock()


async def _lifetime(url: str) -> AsyncGenerator[Clients, None]:
    """Keep clients open; ``asyncio.run`` closes such a generator before it closes its loop."""
    clients = Clients.open(url)
    try:
        yield clients
    finally:
        await clients.aclose()


async def clients_for(url: str, user: object) -> Clients:
    """Return the clients that all users of a server share in the running loop."""
    loop = asyncio.get_running_loop()
    with _lock:
        shared = _leases.setdefault(loop, {})
    lease = shared.get(url)
    if lease is None:
        lifetime = _lifetime(url)
        # This does not suspend, so no other task of the loop can come in between.
        lease = shared[url] = _Lease(await anext(lifetime), lifetime)
    lease.users.add(user)
    return lease.clients


async def release(url: str, user: object) -> None:
    """Close the clients that only this user has, in every loop that still runs."""
    here = asyncio.get_running_loop()
    with _lock:
        pairs = [(loop, shared) for loop, shared in _leases.items() if url in shared]
    for loop, shared in pairs:
        lease = shared[url]
        lease.users.discard(user)
        if lease.users:
            continue
        del shared[url]
        if loop is here:
            await lease.lifetime.aclose()
        elif loop.is_running():
            closing = asyncio.run_coroutine_threadsafe(lease.lifetime.aclose(), loop)
            await asyncio.wrap_future(closing)
