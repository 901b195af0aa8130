"""Limits of what is read from a connection, below HTTP.

HTTP's parser bounds one header and one chunk's head. It does not bound how many answers of the kind
``103 Early Hints`` come before the one that counts, nor how many remarks stand between chunks.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx

from llmsim_lab.llm._access import env_proxy

MAX_HEAD_BYTES = 256 * 2**10
"""Of all that comes before an answer's body, which is a kilobyte in practice."""
MAX_WIRE_BYTES = 32 * 2**20
"""Of all that comes after a request: twice what is taken of a body, for the heads of its chunks."""

# Within one task: httpcore reads a head in the task that makes the request.
_in_head: ContextVar[bool] = ContextVar("_in_head", default=False)


class TooMuchSentError(Exception):
    """A server sent more than is read of it, as the text says: "it sent more than 5 bytes"."""


@contextmanager
def reading_head() -> Iterator[None]:
    """Let what is read within count as the head of an answer."""
    token = _in_head.set(True)
    try:
        yield
    finally:
        _in_head.reset(token)


class BoundedHTTP(httpx.AsyncHTTPTransport):
    """httpx's transport, which reads only so much for each request.

    Args:
        verify: whether certificates are needed.
        proxy: URL of a proxy.
        socket_options: of each connection.
    """

    def __init__(
        self,
        *,
        verify: bool,
        proxy: str | None,
        socket_options: Iterable[tuple[int, int, int]],
    ) -> None:
        super().__init__(
            verify=verify,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            proxy=proxy,
            socket_options=socket_options,
        )
        bound(self, most_bytes=MAX_WIRE_BYTES)


def bound(
    transport: Any,
    *,
    most_bytes: int | None,
    count: Callable[[int], None] = lambda _: None,
) -> None:
    """Let a transport of httpx or httpx2 read only so much.

    Args:
        transport: for which this holds.
        most_bytes: for each request; None where the caller counts them. Heads have a limit anyway.
        count: is called with the size of each piece that is read, and may raise.
    """
    # httpcore's pools have an argument for it, and httpx has none.
    pool = transport._pool
    pool._network_backend = BoundedNetwork(
        pool._network_backend,
        most_bytes=most_bytes,
        count=count,
    )


def proxy_url(url: str) -> str | None:
    """Return the address of the proxy that the environment names for a URL, with its password."""
    proxy = env_proxy(url)
    return None if proxy is None else proxy.url.get_secret_value()


class BoundedNetwork:
    """Makes connections from which only so much is read for each request.

    Args:
        inner: makes them; httpcore's, or httpcore2's, which has the same methods.
        most_bytes: for one request; None where the caller counts them.
        count: is called with the size of each piece that is read.
    """

    def __init__(
        self,
        inner: Any,
        *,
        most_bytes: int | None,
        count: Callable[[int], None],
    ) -> None:
        self._inner = inner
        self._most_bytes = most_bytes
        self._count = count

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> _BoundedStream:
        """Connect to a host."""
        stream = await self._inner.connect_tcp(
            host,
            port,
            timeout=timeout,
            local_address=local_address,
            socket_options=socket_options,
        )
        return _BoundedStream(stream, self._most_bytes, self._count)

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts to connect."""
        await self._inner.sleep(seconds)


class _BoundedStream:
    """A connection from which only so much is read for each request."""

    def __init__(
        self,
        inner: Any,
        most_bytes: int | None,
        count: Callable[[int], None],
    ) -> None:
        self._inner = inner
        self._most_bytes = most_bytes
        self._count = count
        self._received_bytes = 0

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> bytes:
        content: bytes = await self._inner.read(max_bytes, timeout)
        self._received_bytes += len(content)
        self._count(len(content))
        if _in_head.get() and self._received_bytes > MAX_HEAD_BYTES:
            raise TooMuchSentError(f"it sent more than {MAX_HEAD_BYTES:,} bytes before its answer")
        if self._most_bytes is not None and self._received_bytes > self._most_bytes:
            raise TooMuchSentError(f"it sent more than {self._most_bytes:,} bytes for one request")
        return content

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> None:
        # The next request of a connection that is used again.
        self._received_bytes = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> _BoundedStream:
        encrypted = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        return _BoundedStream(encrypted, self._most_bytes, self._count)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
