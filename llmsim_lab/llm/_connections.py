"""Connections to a model server, whichever protocol it speaks.

The transport, with the environment's proxy and certificates; what failures mean, those of a
connection and those that a server reports; and one set of clients per server and event loop, closed
with the loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
import threading
import traceback
import urllib.request
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Generic, ParamSpec, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit
from weakref import WeakKeyDictionary, WeakSet

import httpx

from llmsim_lab._util.text import clip
from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.llm._extract import repeated_end
from llmsim_lab.llm._retry import errors_behind
from llmsim_lab.llm._transport import GuardedTransport, error_text
from llmsim_lab.types import ChatReply

P = ParamSpec("P")
T = TypeVar("T")

_MAX_DETAIL = 500
_MAX_EXCERPT, _MAX_UNIT = 120, 40


def without_password(url: str) -> str:
    """Return an address for messages: what may be a password or a key in it is masked."""
    before, separator, rest = url.partition("://")
    start = before + separator if separator else ""
    place, *query = re.split("[?#]", rest if separator else url, maxsplit=1)
    if query and "@" in query[0]:  # of a query, or of a password with such a sign in it
        place = "***"
    elif "@" in place:
        place = f"***@{place.rpartition('@')[2]}"
    return f"{start}{place}{'?***' if query else ''}"


def clear_locals(error: BaseException) -> None:
    """Clear the local variables of the frames that an error, and those behind it, came through.

    An address or a key is in those of ours and of the HTTP client's, and tools for debugging show
    them. Frames that still run keep theirs.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def without_locals(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function's errors come without its arguments and local variables, which are secret."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            clear_locals(error)
            raise

    return call


def read_address(
    given: str, url_of: Callable[[SplitResult, bool], str], *, source: str, form: str, note: str
) -> str:
    """Return a server's URL, from what a user writes; without a scheme it is http.

    Args:
        given: the address.
        url_of: returns the URL of what was read, and of whether it named its scheme; may raise
            ValueError.
        source: where the address comes from.
        form: how one is written, with an example.
        note: what to say where it has a user name or a password.

    Raises:
        ConfigError: it is not a server's address, or has a user name, password or query in it.
    """
    wrong = ConfigError(
        f"{source}={without_password(given)!r} is not a server's address; write it as {form}"
    )
    scheme, separator, rest = given.partition("://")
    if not separator:
        scheme, rest = "http", given
    if "@" in rest:
        raise ConfigError(f"{wrong}, with no user name or password{note}")
    name, slash, path = rest.partition("/")
    with suppress(ValueError):  # most names are not addresses
        if ipaddress.ip_address(name).version == 6:
            rest = f"[{name}]{slash}{path}"
    try:
        split = urlsplit(f"{scheme.lower()}://{rest}")
        url = url_of(split, bool(separator))
        has_host = split.scheme in ("http", "https") and httpx.URL(url).host
    except (ValueError, httpx.InvalidURL) as error:
        raise wrong from error
    if split.query or split.fragment:
        raise ConfigError(f"{wrong}, with nothing after a {'?' if split.query else '#'}{note}")
    if not has_host or " " in url or not url.isprintable():
        raise wrong
    return url


def is_loopback(url: str) -> bool:
    """Return True if the URL is this machine's own, which is reached without a proxy."""
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def env_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for a URL."""
    parsed = httpx.URL(url)
    if is_loopback(url) or urllib.request.proxy_bypass(parsed.host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parsed.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def run_aside(work: Coroutine[Any, Any, T]) -> T:
    """Run a quick look at a server to its end."""
    # In a thread of its own, since the caller's may be running an event loop already.
    with ThreadPoolExecutor(1, thread_name_prefix="llmsim-lab-look") as thread:
        return thread.submit(asyncio.run, work).result()


def open_transport(url: str, *, who: str) -> GuardedTransport:
    """Return a guarded transport without a limit of connections: the caller bounds those.

    Args:
        url: the server.
        who: the same, for messages.

    Raises:
        ConfigError: the environment's proxy, or its file of certificates, cannot be used.
    """
    proxy = env_proxy(url)  # httpx asks the environment only for transports of its own
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
    return GuardedTransport(inner, who=who)


def connection_fault(
    error: ConnectionError | httpx.TransportError,
    *,
    url: str,
    who: str,
    kind: str,
    not_made: bool,
    way_out: str,
) -> BackendError:
    """Return the failure of a connection that could not be made, or broke.

    Args:
        error: what the client raised.
        url: the server.
        who: the same, as a name.
        kind: what kind of server it is.
        not_made: whether there was never a connection.
        way_out: what to do if no such server answers.
    """
    plain = url.replace("https:", "http:", 1)
    if not_made and (fault := _tls_fault(error)) is not None:
        if isinstance(fault, ssl.SSLCertVerificationError):
            text = (
                f"the certificate of {url} is not trusted ({fault.verify_message}); name the file "
                "of your own authority's certificate in SSL_CERT_FILE"
            )
        else:
            text = (
                f"{url} does not answer in TLS ({fault.reason or fault}); if it speaks plain "
                f"http, as local model servers do, write {plain}"
            )
        return BackendError(text, reason="connection_error")
    if not_made and (lost := unknown_name(error)) is not None and not env_proxy(url):
        return BackendError(
            f"the name {httpx.URL(url).host!r} of {url} is not known ({lost.strerror}); see that "
            "it is written right, and that this machine can look names up",
            reason="connection_error",
            retry=True,
        )
    if not_made:
        text = f"no {kind} answers at {url}; {way_out}"
    elif isinstance(error, httpx.TimeoutException):
        text = f"nothing answered in time at {url}; see that an {kind} runs there"
    else:
        detail = error_text(str(error)) or type(error).__name__
        text = f"the connection to {who} at {url} broke: {detail}"
    if url.startswith("https:") and (not_made or isinstance(error, httpx.ConnectTimeout)):
        text += f"; if it speaks plain http, write {plain}"
    return BackendError(text, reason="connection_error", retry=True)


def unknown_name(error: BaseException) -> socket.gaierror | None:
    """Return the error of a host's name that could not be looked up."""
    found = (one for one in errors_behind(error) if isinstance(one, socket.gaierror))
    return next(found, None)


def _tls_fault(error: BaseException | None) -> ssl.SSLError | None:
    """Return what went wrong with TLS, below the errors of the libraries in between."""
    # Every read over TLS raises these, so they are in the context of other errors too.
    not_yet = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
    return next(
        (
            one
            for one in errors_behind(error)
            if isinstance(one, ssl.SSLError) and not isinstance(one, not_yet)
        ),
        None,
    )


def broken_off(who: str, parts: str) -> BackendError:
    """Return the failure of a streamed reply that ended early.

    Args:
        who: the server.
        parts: how much has come, in words.
    """
    return BackendError(
        f"the reply of {who} ended after {parts}, before it was done",
        reason="connection_error",
        status_code=200,
        retry=True,
    )


def stopped(reply: ChatReply, *, who: str) -> BackendError:
    """Return the failure of a model that was stopped before it was done.

    Args:
        reply: what had arrived of it.
        who: what stopped it.
    """
    found = repeated_end(reply.text) or repeated_end(reply.thinking)
    if found is None:
        what = (
            f"ended the reply before the model was done, after {clip(reply.text, _MAX_EXCERPT)!r}"
        )
    else:
        unit = repr(clip(found.unit, _MAX_UNIT)) if found.unit else "white space"
        what = (
            f"stopped the model because it repeated {unit} {found.times} times, at the end of "
            f"{clip(found.before, _MAX_EXCERPT)!r}"
        )
    return BackendError(
        f"{who} {what}; change the prompt, raise the temperature, or use another model",
        reason="generation_stopped",
        status_code=200,
        retry=True,
        reply=reply,
    )


def not_understood(
    error: Exception, *, url: str, form: str, model: str = "", sent: bool = True
) -> BackendError:
    """Return the failure of an answer that cannot be read, or of a request that cannot be written.

    Clients raise the same exceptions for both; whether the request was sent tells which it was.

    Args:
        error: what the client raised.
        url: the server.
        form: whose form the answer should have.
        model: the one that was asked for.
        sent: whether the request has left.
    """
    detail = clip(error_text(f"{type(error).__name__}: {error}"), _MAX_DETAIL)
    if not sent:
        return BackendError(
            f"the request for {model!r} cannot be sent: {detail}", reason="client_error"
        )
    return BackendError(
        f"the answer of {url} is not valid JSON of {form} form ({detail})",
        reason="server_error",
        status_code=200,
        retry=True,
    )


def status_fault(
    status: int | None,
    text: str,
    *,
    who: str,
    model: str,
    is_wrong_request: bool = False,
    is_lasting: bool = False,
    retry_after_s: float | None = None,
) -> BackendError:
    """Return the failure that a server reports by its status and in its words.

    Args:
        status: of HTTP.
        text: the words.
        who: the server.
        model: the one that was asked for.
        is_wrong_request: whether the request is at fault whatever the status says.
        is_lasting: whether trying again is of no use.
        retry_after_s: how long the server asks to wait, seconds.
    """
    reason: FailureReason = "server_error"
    message = f"{who} failed on {model!r}: {text}"
    if status == 429:
        reason, message = "rate_limited", f"{who} limits the rate: {text}"
    elif is_wrong_request or (status is not None and status < 500):
        reason, message = "client_error", f"{who} rejects the request for {model!r}: {text}"
    return BackendError(
        message,
        reason=reason,
        status_code=status,
        retry=reason != "client_error" and not is_lasting,
        retry_after_s=retry_after_s,
    )


class Closable(Protocol):
    """What has connections."""

    async def aclose(self) -> None:
        """Close them."""
        ...


ClientsT = TypeVar("ClientsT", bound=Closable)


@dataclass(slots=True, eq=False)
class _Lease(Generic[ClientsT]):
    clients: ClientsT
    lifetime: AsyncGenerator[ClientsT, None]
    # Weak, since a backend may be forgotten without being closed.
    users: WeakSet[Any] = field(default_factory=WeakSet)


class Shared(Generic[ClientsT]):
    """The clients of servers: one set for each server and event loop, shared by all its users.

    Args:
        open_clients: opens those of a server, by its URL.
    """

    def __init__(self, open_clients: Callable[[str], ClientsT]) -> None:
        self._open = open_clients
        self._leases: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Lease[ClientsT]]] = (
            WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    async def _lifetime(self, url: str) -> AsyncGenerator[ClientsT, None]:
        """Keep clients open; ``asyncio.run`` closes async generators before it closes the loop."""
        clients = self._open(url)
        try:
            yield clients
        finally:
            await clients.aclose()

    async def get(self, url: str, user: object) -> ClientsT:
        """Return the clients that all users of a server share in the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            shared = self._leases.setdefault(loop, {})
        lease = shared.get(url)
        if lease is None:
            lifetime = self._lifetime(url)
            # This does not suspend, so no other task of the loop can come in between.
            lease = shared[url] = _Lease(await anext(lifetime), lifetime)
        lease.users.add(user)
        return lease.clients

    async def release(self, url: str, user: object) -> None:
        """Close the clients that only this user has, in every loop that still runs."""
        here = asyncio.get_running_loop()
        with self._lock:  # not held below: the other loops need it to answer
            pairs = [(loop, shared) for loop, shared in self._leases.items() if url in shared]
        for loop, shared in pairs:
            lease = shared[url]
            lease.users.discard(user)
            if lease.users:
                continue
            del shared[url]
            if loop is here:
                await lease.lifetime.aclose()
            elif loop.is_running():
                # Connections belong to their loop and are closed on it.
                closing = asyncio.run_coroutine_threadsafe(lease.lifetime.aclose(), loop)
                await asyncio.wrap_future(closing)
