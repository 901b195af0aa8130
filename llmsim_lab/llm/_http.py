"""Requests to model servers, whichever protocol they speak, and what goes wrong with them.

A prompt goes only where its user sent it, so redirects are not followed. Nothing is decompressed,
and nothing is read beyond a limit; the limits also bound how long parsing an answer blocks the
event loop. Requests are made by httpx's transport, without a client around it: there are no
cookies, no redirects and no timeouts here, and a request cancelled closes its connection at once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import os
import re
import socket
import ssl
import threading
import traceback
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import SplitResult, urlsplit
from weakref import WeakKeyDictionary

import httpx
from pydantic import SecretStr
from pydantic_core import from_json

from llmsim_lab._util.text import clip, printable
from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.llm._retry import errors_behind, retry_after_s
from llmsim_lab.types import ChatReply, OnText

P = ParamSpec("P")
T = TypeVar("T")

MAX_REPLY_BYTES = 2**20
"""Of one document, and of one line of a stream: more than models write."""
MAX_STREAM_BYTES = 16 * 2**20
"""Of a streamed reply, which needs some 150 bytes for each token."""
MAX_TEXT_CHARS = 2**20
"""Of a streamed reply's text; all of it is parsed at once."""
MAX_ERROR_BYTES = 64 * 2**10
"""What is read of the body of an error; the rest is left."""
MAX_VALUES = 50_000
"""In one JSON document; a list of a thousand models has fewer."""
MAX_TOKENS = 10**9
"""What a server may report as a number of tokens."""
_LEAST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**64 - 1
_MAX_TEXT = 500


# --- addresses and secrets ------------------------------------------------------------------------


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


# --- what a server sends --------------------------------------------------------------------------


def read_json(text: str | bytes) -> Any:
    """Return the value of a server's JSON text.

    Raises:
        ValueError: it is not JSON (``NaN`` is not either), is nested more than 200 deep, has more
            than ``MAX_VALUES`` values, or a number that needs more than 64 bits.
    """
    value = from_json(text, allow_inf_nan=False)
    # Without recursion, since the server chooses how deep it goes.
    waiting, values = [value], 1
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            continue
        if isinstance(item, dict | list):
            values += len(item)
            if values > MAX_VALUES:
                raise ValueError(f"it has more than {MAX_VALUES:,} values")
            waiting.extend(item.values() if isinstance(item, dict) else item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise ValueError("it has a number that needs more than 64 bits")
        elif isinstance(item, int) and not _LEAST_INTEGER <= item <= _LARGEST_INTEGER:
            raise ValueError(f"it has a number of {len(str(abs(item)))} digits")
    return value


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object as it is; raise TypeError if it is something else."""
    if not isinstance(value, dict):
        raise TypeError(f"it is {clip(repr(value), 60)}, not an object")
    return value


def text_of(values: Mapping[str, Any], *names: str) -> str:
    """Return the first text there is under some names; raise TypeError if it is something else."""
    for name in names:
        value = values.get(name)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is {clip(repr(value), 60)}, not a text")
        if value:
            return value
    return ""


def count(value: object, name: str, *, most: int = MAX_TOKENS) -> int | None:
    """Return a count as a server reported it; None where it did not.

    Raises:
        ValueError: it is not a whole number from 0 to ``most``.
    """
    # The type itself, since ``True`` is an int.
    if value is None or (type(value) is int and 0 <= value <= most):
        return value
    raise ValueError(
        f"{name} is {clip(repr(value), 60)}, which is not a whole number from 0 to {most:,}"
    )


class Written:
    """The text of a reply that is written piece by piece, and its thinking, as they come.

    Args:
        who: the server, for messages.
        on_text: is given each piece, thinking between ``<think>`` tags; None if there is no reader.
    """

    def __init__(self, who: str, on_text: OnText | None) -> None:
        self._who, self._on_text = who, on_text
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._chars, self._thinks = 0, False

    def add(self, text: str, thinking: str = "") -> None:
        """Take a piece; an empty one says that the server works.

        Raises:
            BackendError: this is more than is read of a reply.
        """
        self._texts.append(text)
        self._thoughts.append(thinking)
        self._chars += len(text) + len(thinking)
        if self._chars > MAX_TEXT_CHARS:
            raise BackendError(
                f"{self._who} wrote {self._chars:,} characters; {MAX_TEXT_CHARS:,} are the most "
                "that is read of a reply: lower max_tokens",
                reason="server_error",
                status_code=200,
            )
        if self._on_text is None:
            return
        piece = ""
        if thinking:
            piece = thinking if self._thinks else f"<think>{thinking}"
            self._thinks = True
        if text and self._thinks:
            piece += "</think>"
            self._thinks = False
        self._on_text(piece + text)

    @property
    def text(self) -> str:
        """What has been written."""
        return "".join(self._texts)

    @property
    def thinking(self) -> str:
        """What has been thought."""
        return "".join(self._thoughts)


def error_text(text: str) -> str:
    """Return a server's explanation without characters that control a terminal."""
    return printable(text[:MAX_ERROR_BYTES], keep="\n").strip()


def unwrapped(error: Any) -> tuple[str, dict[str, Any]]:
    """Return the innermost text of an error that a server reports, and all that comes with it.

    Servers have it bare, under several names, and as JSON within JSON. Of what several objects
    say, the innermost counts: it comes from the part that failed, and others pass it on.
    """
    details: dict[str, Any] = {}
    while True:
        if isinstance(error, str) and error.lstrip().startswith("{"):
            with suppress(ValueError):
                error = read_json(error)
        if not isinstance(error, dict):
            text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
            return text.strip(), details
        details |= {name: value for name, value in error.items() if value is not None}
        inner = (error[name] for name in ("error", "message", "detail") if error.get(name))
        if (found := next(inner, None)) is None:
            return json.dumps(error, ensure_ascii=False), details
        error = found


class StatusError(Exception):
    """An error that a server reports.

    Attributes:
        status: of HTTP; None within a stream, whose own status was 200.
        text: what it says, clipped.
        details: what else comes with it.
        retry_after_s: how long the server asks to wait, seconds.
    """

    def __init__(self, status: int | None, error: Any, *, retry_after: str | None = None) -> None:
        text, self.details = unwrapped(error)
        self.status, self.text = status, clip(error_text(text), _MAX_TEXT)
        self.retry_after_s = retry_after_s(retry_after)
        super().__init__(self.text)

    @property
    def said(self) -> str:
        """All that it says, for searching."""
        named = (str(self.details.get(name) or "") for name in ("param", "code", "type"))
        return " ".join([*named, self.text])

    def hide(self, secret: str) -> None:
        """Mask a secret that the server repeats."""
        self.text, self.details = without(secret, self.text), without(secret, self.details)
        self.args = (self.text,)


def without(secret: str, value: Any) -> Any:
    """Return a JSON value without a secret in any of its texts."""
    if isinstance(value, str):
        return value.replace(secret, "***")
    if isinstance(value, Mapping):
        return {without(secret, name): without(secret, one) for name, one in value.items()}
    return [without(secret, one) for one in value] if isinstance(value, list) else value


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server of models.

    Attributes:
        url: its address.
        who: what it is called in messages.
        kind: what kind of server it is.
        form: whose form its answers have.
        way_out: what to do where none answers.
        lasting: whether connections outlive a request; not to a process that may have ended.
    """

    url: str
    who: str
    kind: str
    form: str
    way_out: str
    lasting: bool = True

    async def transport(self) -> Transport:
        """Return the connections to this server that all share in the running loop.

        Raises:
            ConfigError: the environment's proxy, or its file of certificates, cannot be used.
        """
        loop = asyncio.get_running_loop()
        with _lock:
            kept = _kept.setdefault(loop, {})
        if self.url not in kept:
            lifetime = _lifetime(self.url, self.who)
            # This does not suspend, so no other task of the loop can come in between.
            kept[self.url] = (await anext(lifetime), lifetime)
        return kept[self.url][0]

    @asynccontextmanager
    async def asked(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        model: str = "",
        key: SecretStr | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Make a request, and turn what goes wrong until its answer is read into a failure of ours.

        The answer to a body is not read yet: it is a stream.

        Args:
            path: after the server's address.
            body: JSON that is posted; without it the request is a GET.
            model: the one that is asked for, for messages.
            key: goes into the header ``Authorization``.
            timeout_s: longest wait for a connection and for each piece of the answer, seconds;
                None where the caller bounds the time.

        Raises:
            StatusError: the server reports an error.
            BackendError: the request cannot be sent, the server does not answer, or not in its
                protocol's form.
        """
        content = b"" if body is None else self._written(body, model)
        with self.translated():
            extensions = {"timeout": httpx.Timeout(timeout_s).as_dict(), "streamed": bool(content)}
            transport = await self.transport()
            headers = {"User-Agent": "llmsim-lab"}
            if not self.lasting:
                headers["Connection"] = "close"
            response = await _sent(transport, self.url + path, content, key, headers, extensions)
            try:
                if response.is_error:
                    said = _explanation(response.content)
                    again = response.headers.get("retry-after")
                    raise StatusError(response.status_code, said, retry_after=again)
                yield response
            except StatusError as error:
                if key is not None and len(key) >= SHORTEST_SECRET:
                    error.hide(key.get_secret_value())
                raise
            finally:
                await response.aclose()  # which closes the connection if there is more to come
                del response  # it has the request, and so the key

    async def document(self, path: str, **options: Any) -> Any:
        """Return the JSON document at a path; takes and raises what ``asked`` does."""
        async with self.asked(path, **options) as response:
            return read_json(response.content)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what HTTP clients raise, and what is raised in reading, into failures of ours."""
        try:
            try:
                yield
            except BaseException as error:
                clear_locals(error)  # those of the HTTP client have the key, or a proxy's password
                raise
        except (ConnectionError, httpx.TransportError) as error:
            raise self.lost(error) from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, ConfigError):
                raise
            detail = clip(error_text(f"{type(error).__name__}: {error}"), _MAX_TEXT)
            raise BackendError(
                f"the answer of {self.url} is not valid JSON of {self.form} form ({detail})",
                reason="server_error",
                status_code=200,
                retry=True,
            ) from error

    def _written(self, body: Mapping[str, Any], model: str) -> bytes:
        try:
            return json.dumps(
                body, ensure_ascii=False, allow_nan=False, separators=(",", ":")
            ).encode()
        except (ValueError, TypeError) as error:
            detail = clip(error_text(f"{type(error).__name__}: {error}"), _MAX_TEXT)
            raise BackendError(
                f"the request for {model!r} cannot be sent: {detail}", reason="client_error"
            ) from error

    def lost(self, error: ConnectionError | httpx.TransportError) -> BackendError:
        """Return the failure of a connection that could not be made, or broke."""
        url = self.url
        plain = url.replace("https:", "http:", 1)
        # The official client makes a plain ConnectionError of a ConnectError, and of nothing else.
        not_made = isinstance(error, httpx.ConnectError) or type(error) is ConnectionError
        if not_made and (fault := _tls_fault(error)) is not None:
            if isinstance(fault, ssl.SSLCertVerificationError):
                text = (
                    f"the certificate of {url} is not trusted ({fault.verify_message}); name the "
                    "file of your own authority's certificate in SSL_CERT_FILE"
                )
            else:
                text = (
                    f"{url} does not answer in TLS ({fault.reason or fault}); if it speaks plain "
                    f"http, as local model servers do, write {plain}"
                )
            return BackendError(text, reason="connection_error")
        if not_made and (lost := unknown_name(error)) is not None and not env_proxy(url):
            text = (
                f"the name {httpx.URL(url).host!r} of {url} is not known ({lost.strerror}); see "
                "that it is written right, and that this machine can look names up"
            )
            return BackendError(text, reason="connection_error", retry=True)
        if not_made:
            text = f"no {self.kind} answers at {url}; {self.way_out}"
        elif isinstance(error, httpx.TimeoutException):
            text = f"nothing answered in time at {url}; see that an {self.kind} runs there"
        else:
            detail = error_text(str(error)) or type(error).__name__
            text = f"the connection to {self.who} broke: {detail}"
        if url.startswith("https:") and (not_made or isinstance(error, httpx.ConnectTimeout)):
            text += f"; if it speaks plain http, write {plain}"
        return BackendError(text, reason="connection_error", retry=True)

    def status_fault(
        self,
        error: StatusError,
        *,
        model: str,
        is_wrong_request: bool = False,
        is_lasting: bool = False,
    ) -> BackendError:
        """Return the failure that a server reports by its status and in its words.

        Args:
            error: the report.
            model: the one that was asked for.
            is_wrong_request: whether the request is at fault whatever the status says.
            is_lasting: whether trying again is of no use.
        """
        status, text = error.status, error.text or "no explanation"
        reason: FailureReason = "server_error"
        message = f"{self.who} failed on {model!r}: {text}"
        if status == 429:
            reason, message = "rate_limited", f"{self.who} limits the rate: {text}"
        elif is_wrong_request or (status is not None and status < 500):
            reason = "client_error"
            message = f"{self.who} rejects the request for {model!r}: {text}"
        return BackendError(
            message,
            reason=reason,
            status_code=status,
            retry=reason != "client_error" and not is_lasting,
            retry_after_s=error.retry_after_s,
        )

    def broken_off(self, parts: str) -> BackendError:
        """Return the failure of a streamed reply that ended after so many parts."""
        return BackendError(
            f"the reply of {self.who} ended after {parts}, before it was done",
            reason="connection_error",
            status_code=200,
            retry=True,
        )

    def stopped(self, reply: ChatReply) -> BackendError:
        """Return the failure of a model that was stopped before it was done."""
        return BackendError(
            f"{self.who} stopped the model before it was done, after {clip(reply.text, 120)!r}; "
            "change the prompt, raise the temperature, or use another model",
            reason="generation_stopped",
            status_code=200,
            retry=True,
            reply=reply,
        )


async def _sent(
    transport: Transport,
    url: str,
    content: bytes,
    key: SecretStr | None,
    headers: dict[str, str],
    extensions: dict[str, Any],
) -> httpx.Response:
    """Make a request; the key is in no frame but this one, which has ended when others raise."""
    headers = dict(headers)  # the caller's shows up in errors
    if key is not None:
        headers["Authorization"] = f"Bearer {key.get_secret_value()}"
    method = "GET"
    if content:
        method, headers["Content-Type"] = "POST", "application/json"
    request = httpx.Request(method, url, headers=headers, content=content, extensions=extensions)
    return await transport.handle_async_request(request)


SHORTEST_SECRET = 8
"""Characters; what is shorter is no key, but what local servers are given in place of one."""


class Transport(httpx.AsyncBaseTransport):
    """Connections to one server, for one event loop; also what the official client works through.

    Answers are not compressed and do not redirect. They are read whole, within a limit, but for
    those to requests with ``extensions={"streamed": True}``; see ``lines``.

    Args:
        url: the server.
        who: what it is called in messages.

    Raises:
        ConfigError: the environment's proxy, or its file of certificates, cannot be used.
    """

    def __init__(self, url: str, who: str) -> None:
        self._who = who
        proxy = env_proxy(url)  # httpx asks the environment only for transports of its own
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        try:
            # Certificates take long to load, and without redirects plain http stays plain http.
            verify = any(address.startswith("https:") for address in (url, (proxy or "").lower()))
            self._inner = httpx.AsyncHTTPTransport(verify=verify, limits=limits, proxy=proxy)
        except (ValueError, ImportError) as error:
            raise ConfigError(
                f"the environment's proxy {without_password(proxy or '')!r} cannot be used for "
                f"{url}: {error}; correct it, or name the host in NO_PROXY"
            ) from error
        except OSError as error:
            names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
            named = {name: os.environ[name] for name in names if os.environ.get(name)}
            raise ConfigError(
                f"the environment's certificates {named} cannot be read: {error}; name a file "
                "of certificates in PEM format, or unset the variable"
            ) from error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request.

        Raises:
            BackendError: the answer redirects, is compressed, or is too large.
        """
        # Decompressed, a small answer may have gigabytes.
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        try:
            self._check_head(request, response)
            if request.extensions.get("streamed") and response.is_success:
                return response
            content = bytearray()
            most = MAX_ERROR_BYTES if response.is_error else MAX_REPLY_BYTES
            async for chunk in response.stream:  # type: ignore[union-attr]
                content += chunk
                if len(content) > most:
                    break
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()
        if len(content) > most and not response.is_error:
            raise self.too_large(response.status_code, most)
        return httpx.Response(
            response.status_code, headers=response.headers, content=bytes(content[:most])
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    def _check_head(self, request: httpx.Request, response: httpx.Response) -> None:
        fault = ""
        reason: FailureReason = "client_error"
        if response.has_redirect_location:
            fault = (
                f"redirects to {_target(request, response)}, which is not followed: prompts go "
                "only to the address given; if that is the right one, give it instead"
            )
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            reason = "server_error"
            fault = (
                f"sent a compressed reply ({clip(printable(encoding), 40)}) although asked not to, "
                "and it is not decompressed; turn compression off there, or in the proxy in between"
            )
        if fault:
            status = response.status_code
            raise BackendError(f"{self._who} {fault}", reason=reason, status_code=status)

    def too_large(self, status: int, limit: int) -> BackendError:
        """Return the failure of an answer that is larger than what is read of one."""
        what = "a streamed reply" if limit == MAX_STREAM_BYTES else "one document or line"
        return BackendError(
            f"{self._who} sent more than {limit:,} bytes, the most that is read of {what}; "
            "lower max_tokens, or see what answers at that address",
            reason="server_error",
            status_code=status,
        )

    async def lines(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the lines of a streamed answer, without their ends and without empty ones.

        Not by ``splitlines``, as httpx does: JSON may have other ends of lines in it, as U+2028.

        Raises:
            BackendError: it is too large.
        """
        waiting, total = bytearray(), 0
        async for chunk in response.stream:  # type: ignore[union-attr]
            total += len(chunk)
            # Searched in the new bytes only: with a long line in many pieces, searching all of them
            # each time would take quadratic time.
            whole, end, rest = chunk.rpartition(b"\n")
            if end:
                waiting += whole
            longest = max(len(waiting) + len(end), len(rest))
            for size, limit in ((total, MAX_STREAM_BYTES), (longest, MAX_REPLY_BYTES)):
                if size > limit:
                    raise self.too_large(200, limit)
            if end:
                for line in waiting.split(b"\n"):
                    if stripped := line.strip():
                        yield bytes(stripped)
                waiting.clear()
            waiting += rest
        if stripped := waiting.strip():
            yield bytes(stripped)


_kept: WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[str, tuple[Transport, AsyncGenerator[Transport, None]]]
] = WeakKeyDictionary()
_lock = threading.Lock()


async def _lifetime(url: str, who: str) -> AsyncGenerator[Transport, None]:
    """Keep connections open; ``asyncio.run`` closes async generators before it closes the loop."""
    transport = Transport(url, who)
    try:
        yield transport
    finally:
        await transport.aclose()


def is_framed(response: httpx.Response) -> bool:
    """Return True if a response says where it ends.

    If it does not, a connection that breaks looks like the end.
    """
    return bool({"content-length", "transfer-encoding"} & response.headers.keys())


def unknown_name(error: BaseException) -> socket.gaierror | None:
    """Return the error of a host's name that could not be looked up."""
    found = (one for one in errors_behind(error) if isinstance(one, socket.gaierror))
    return next(found, None)


def run_aside(work: Coroutine[Any, Any, T]) -> T:
    """Run a quick look at a server to its end."""
    # In a thread of its own, since the caller's may be running an event loop already.
    with ThreadPoolExecutor(1, thread_name_prefix="llmsim-lab-look") as thread:
        return thread.submit(asyncio.run, work).result()


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


def _explanation(content: bytes) -> Any:
    """Return what an error's body says: JSON, else text."""
    try:
        value = read_json(content)
        return "" if value == {"error": ""} else value
    except ValueError:
        return error_text(content.decode(errors="replace"))


def _target(request: httpx.Request, response: httpx.Response) -> str:
    """Return where a redirect leads, without path and password."""
    try:
        url = request.url.join(response.headers["location"])
        return clip(printable(f"{url.scheme}://{url.netloc.decode()}"), 200)
    except (httpx.InvalidURL, ValueError):
        return "an address that makes no sense"
