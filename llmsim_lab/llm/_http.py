"""Requests to model servers, whichever protocol they speak, and what goes wrong with them.

A prompt goes only where its user sent it, so redirects are not followed. Nothing is decompressed,
and nothing is read beyond a limit; the limits also bound how long parsing an answer blocks the
event loop. Requests are made by httpx's transport, without a client around it: there are no
cookies, no redirects and no timeouts here, and a request cancelled closes its connection at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import traceback
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx
from pydantic import SecretStr
from pydantic_core import from_json

from llmsim_lab._util.text import clip, printable
from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.llm._retry import errors_behind, is_refused, retry_after_s
from llmsim_lab.types import ChatReply, ChatRequest, OnText, ToolCall

P = ParamSpec("P")
T = TypeVar("T")

MAX_REPLY_BYTES = 2**20
"""Of one document, and of one line of a stream: more than models write."""
MAX_STREAM_BYTES = 16 * 2**20
"""Of a streamed reply, which needs some 150 bytes for each token."""
LIST_TIMEOUT_S = 5.0
"""How long a server may take to list its models."""
_SHORTEST_SECRET = 8
"""Characters; what is shorter is no key, but what local servers are given in place of one."""
_LOCAL = {None: "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""What a server that listens everywhere is reached by on its own machine."""
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length"
    r"|exceeds? (?:the )?(?:available |maximum )?context|longer than the maximum model length"
    r"|greater than the context length",
    re.IGNORECASE,
)


# --- addresses and secrets ------------------------------------------------------------------------


def without_password(url: str) -> str:
    """Return an address for messages: one that may have a password or a key in it is masked."""
    scheme = re.match(r"(?:https?://)?", url, re.IGNORECASE)
    return f"{scheme[0] if scheme else ''}***" if re.search("[@?#]", url) else url


def clear_locals(error: BaseException) -> None:
    """Clear the local variables of the frames that an error, and those behind it, came through.

    An address or a key is in those of ours and of the HTTP client's, and tools for debugging show
    them. Frames that still run keep theirs.
    """
    for one in errors_behind(error):
        traceback.clear_frames(one.__traceback__)


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


def read_address(text: str, *, source: str, example: str, usual_port: int | None = None) -> str:
    """Return a server's URL, from what a user writes; without a scheme it is http.

    An address to listen on, such as ``0.0.0.0`` or ``:8080``, becomes that of this machine.

    Args:
        text: the address.
        source: where it comes from.
        example: how one is written.
        usual_port: where the address names neither a scheme nor a port.

    Raises:
        ConfigError: it is not a server's address, or has a user name, password or query in it.
    """
    text = text.strip().strip("\"'")
    try:
        split = urlsplit(text if "://" in text else f"http://{text}")
        port = split.port or (None if "://" in text else usual_port)
        is_one = split.scheme in ("http", "https") and text.isprintable()
    except ValueError:
        is_one = False
    if not is_one or re.search(r"[\s@?#]", text):
        raise ConfigError(
            f"{source}={without_password(text)!r} is not a server's address; write it as "
            f"{example}, without a user name, password or query"
        )
    host = _LOCAL.get(split.hostname, split.hostname)
    host = f"[{host}]" if ":" in str(host) else host
    return f"{split.scheme}://{host}{f':{port}' if port else ''}{split.path.rstrip('/')}"


def env_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; this machine is reached without."""
    at = httpx.URL(url)
    is_local = at.host in ("localhost", "::1") or at.host.startswith("127.")
    if is_local or urllib.request.proxy_bypass(at.host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(at.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


# --- what a server sends --------------------------------------------------------------------------


def read_json(text: str | bytes) -> Any:
    """Return the value of a server's JSON text.

    Raises:
        ValueError: it is not JSON (``NaN`` is not either), is nested more than 200 deep, or has a
            number beyond all floats.
    """
    value = from_json(text, allow_inf_nan=False)
    json.dumps(value, allow_nan=False)  # 1e999 was read as an infinite number
    return value


def read_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object that a text is; raise TypeError if it is something else."""
    return _object(read_json(text))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{clip(repr(value), 60)} is not an object")
    return value


def member(values: Any, name: str, kind: type) -> Any:
    """Return a member of a JSON object; what is empty of its kind, where it is missing or null.

    Args:
        values: the object.
        name: of the member.
        kind: its type in Python; ``int`` is a count from 0 on, of which None is the empty one.

    Raises:
        TypeError: it is not an object, or the member is of another kind.
    """
    value = _object(values).get(name)
    if value is None:
        return None if kind is int else kind()
    # The type itself, since ``True`` is an int.
    if type(value) is not kind or (type(value) is int and not 0 <= value < 2**63):
        raise TypeError(f"{name} is {clip(repr(value), 60)}, not of type {kind.__name__}")
    return value


class Written:
    """A reply that is written piece by piece.

    Attributes:
        fields: what is known of it beside its texts and calls, by the names of ``ChatReply``.
        calls: of tools, by their places; arguments may be JSON, which comes in pieces.
        ended: whether the server has said that nothing follows.

    Args:
        on_text: is given each piece, thinking between ``<think>`` tags; None if there is no reader.
    """

    def __init__(self, on_text: OnText | None) -> None:
        self.fields: dict[str, Any] = {}
        self.calls: dict[int, dict[str, Any]] = {}
        self.ended = False
        self._on_text, self._thinks = on_text, False
        self._began = time.perf_counter()
        self._texts: list[str] = []
        self._thoughts: list[str] = []

    def add(self, text: str, thinking: str = "") -> None:
        """Take a piece; an empty one says that the server works."""
        self._texts.append(text)
        self._thoughts.append(thinking)
        if self._on_text is None:
            return
        begins, ends = thinking and not self._thinks, text and (thinking or self._thinks)
        self._thinks = bool(thinking or self._thinks) and not ends
        self._on_text(f"{'<think>' if begins else ''}{thinking}{'</think>' if ends else ''}{text}")

    def add_logprobs(self, tokens: list[Any]) -> None:
        """Take tokens with their alternatives, of which those of the first one are kept."""
        if tokens and not self.fields.get("top_logprobs"):
            likely = member(tokens[0], "top_logprobs", list)
            pairs = tuple((member(one, "token", str), one.get("logprob")) for one in likely)
            self.fields["top_logprobs"] = pairs

    def reply(self) -> ChatReply:
        """Return what has been written."""
        calls = [call for _, call in sorted(self.calls.items())]
        for call in calls:
            try:
                if isinstance(call["arguments"], str):
                    call["arguments"] = read_object(call["arguments"] or "{}")
            except (ValueError, TypeError) as error:  # the model wrote them
                text = f"the arguments of {_words(call['name'])} are not a JSON object: {error}"
                # Without a cause, of which a tape keeps nothing: the model is shown these words.
                raise BackendError(text, reason="invalid_response", retry=True) from None
        return ChatReply(
            text="".join(self._texts),
            thinking="".join(self._thoughts),
            tool_calls=tuple(ToolCall(**call) for call in calls),
            seconds=time.perf_counter() - self._began,
            **self.fields,
        )


def _words(text: object) -> str:
    """Return a server's explanation, clipped, without what controls a terminal."""
    return clip(printable(str(text), keep="\n"), 500)


class StatusError(Exception):
    """An error that a server reports.

    Servers have it bare, under several names, and as JSON within JSON. Of what several objects
    say, the innermost counts: it comes from the part that failed, and others pass it on.

    Attributes:
        status: of HTTP; within a stream, whose own status was 200, the error's code, if it has one.
        text: what it says, clipped.
        said: all that it says, for searching.
        sizes: numbers that come with it.
        retry_after_s: how long the server asks to wait, seconds.
    """

    def __init__(self, status: int | None, error: Any, *, retry_after: str | None = None) -> None:
        values: dict[str, Any] = {}
        inner = [error]
        while inner:
            error = inner[0]
            with suppress(ValueError, TypeError):
                error = read_object(error)
            parts = error if isinstance(error, dict) else {}
            values |= {name: value for name, value in parts.items() if value is not None}
            inner = [parts[name] for name in ("error", "message", "detail") if parts.get(name)]
        text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
        self.sizes = {name: value for name, value in values.items() if type(value) is int}
        code = self.sizes.get("code", 0)
        self.status = status or (code if 400 <= code <= 599 else None)
        self.text = _words(text) or "no explanation"
        named = (str(values.get(name) or "") for name in ("param", "code", "type"))
        self.said = " ".join([*named, _words(text)]).strip()
        self.retry_after_s = retry_after_s(retry_after)
        super().__init__(self.text)

    def hide(self, secret: str) -> None:
        """Mask a secret that the server repeats."""
        self.text, self.said = self.text.replace(secret, "***"), self.said.replace(secret, "***")
        self.args = (self.text,)


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server of models.

    Attributes:
        url: its address.
        who: what it is called in messages.
        kind: what kind of server it is.
        way_out: what to do where none answers.
        way_in: what to do where it refuses access.
        wider: how its models get a larger context window.
        pull: the command that gets a model, where there is one.
        key: returns the key of this moment.
        lasting: whether connections outlive a request.
    """

    url: str
    who: str
    kind: str
    way_out: str
    way_in: str
    wider: str = "raise LLMConfig.num_ctx, up to what the model was trained for"
    pull: str = ""
    key: Callable[[], Awaitable[SecretStr | None]] | None = None
    lasting: bool = True

    async def transport(self) -> Transport:
        """Return the connections to this server that all share in the running loop.

        Raises:
            ConfigError: the environment's proxy, or its file of certificates, cannot be used.
        """
        kept = _kept.setdefault(asyncio.get_running_loop(), {})
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
        chat: ChatRequest | None = None,
        *,
        timeout_s: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Make a request, and turn what goes wrong until its answer is read into a failure of ours.

        The answer to a body is not read yet: it is a stream.

        Args:
            path: after the server's address.
            body: JSON that is posted; without it the request is a GET.
            chat: what the body asks.
            timeout_s: longest wait for a connection and for each piece of the answer, seconds;
                None where the caller bounds the time.

        Raises:
            BackendError: the request cannot be sent, the server does not answer, or not in its
                protocol's form; or it reports an error, the ``StatusError`` behind this one.
        """
        content = b"" if body is None else _as_json(body)
        extensions = {"timeout": httpx.Timeout(timeout_s).as_dict(), "streamed": bool(content)}
        async with self.translated(body, chat):
            key = await self.key() if self.key else None
            transport = await self.transport()
            # In no variable here: this frame runs on while an error's locals are cleared, and what
            # it held would show the key, which the server may repeat.
            asking = transport.handle_async_request(
                httpx.Request(
                    "POST" if content else "GET",
                    self.url + path,
                    headers=self._headers(key),
                    content=content,
                    extensions=extensions,
                )
            )
            # Closing it closes the connection if there is more to come.
            async with aclosing(await asking) as response:
                try:
                    if response.is_error:
                        raise StatusError(
                            response.status_code,
                            response.content.decode(errors="replace"),
                            retry_after=response.headers.get("retry-after"),
                        )
                    yield response
                except StatusError as error:
                    if key is not None and len(key) >= _SHORTEST_SECRET:
                        error.hide(key.get_secret_value())
                    raise

    def _headers(self, key: SecretStr | None) -> dict[str, str]:
        headers = {"User-Agent": "llmsim-lab", "Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key.get_secret_value()}"
        if not self.lasting:
            headers["Connection"] = "close"
        return headers

    async def chat(
        self,
        path: str,
        body: Mapping[str, Any],
        request: ChatRequest,
        on_text: OnText | None,
        add: Callable[[Written, bytes], None],
    ) -> ChatReply:
        """Return a reply that comes as a stream of lines.

        Args:
            path: after the server's address.
            body: the request as the protocol writes it.
            request: what it asks.
            on_text: is given each piece of the reply.
            add: puts a line to what has been written.

        Raises:
            BackendError: as ``asked`` does; or the reply is not whole.
        """
        written = Written(on_text)
        async with self.asked(path, body, request) as response:
            async for line in self.lines(response):
                # Read to its end all the same, so that the connection can be used again.
                if not written.ended:
                    add(written, line)
            if not (written.ended or written.fields.get("done_reason")):
                text = f"the reply of {self.who} ended before it was done"
                raise BackendError(text, reason="connection_error", status_code=200, retry=True)
            reply = written.reply()
        if reply.done_reason == "aborted":
            said = clip(reply.text, 120)
            text = f"{self.who} stopped the model before it was done, after {said!r}"
            text += "; change the prompt, raise the temperature, or use another model"
            more: dict[str, Any] = {"status_code": 200, "retry": True, "reply": reply}
            raise BackendError(text, reason="generation_stopped", **more)
        return reply

    async def lines(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the lines of a streamed answer, without their ends and without empty ones.

        Not by ``splitlines``, as httpx does: JSON may have other ends of lines in it, as U+2028.

        Raises:
            BackendError: it is too large.
        """
        rest, total = b"", 0
        async for chunk in response.stream:  # type: ignore[union-attr]
            total += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            if max(map(len, [rest, *lines])) > MAX_REPLY_BYTES:
                raise too_large(self.who, MAX_REPLY_BYTES)
            if total > MAX_STREAM_BYTES:
                raise too_large(self.who, MAX_STREAM_BYTES)
            for line in filter(None, map(bytes.strip, lines)):
                yield line
        if rest := rest.strip():
            yield rest

    @asynccontextmanager
    async def translated(
        self, body: Mapping[str, Any] | None = None, chat: ChatRequest | None = None
    ) -> AsyncIterator[None]:
        """Turn what HTTP clients raise, and what is raised in reading, into failures of ours."""
        try:
            yield
        except BaseException as error:
            clear_locals(error)  # those of the HTTP client have the key, or a proxy's password
            if isinstance(error, StatusError):
                raise self._reported(error, body or {}, chat) from error
            if isinstance(error, ConnectionError | httpx.TransportError):
                detail = _words(error) or type(error).__name__
                text = f"the connection to {self.who} broke: {detail}"
                # The official client makes a plain ConnectionError of a ConnectError.
                if isinstance(error, ConnectionError | httpx.ConnectError | httpx.TimeoutException):
                    what = "" if is_refused(error) else f" ({detail})"
                    text = f"no {self.kind} answers at {self.url}{what}; {self.way_out}"
                raise BackendError(text, reason="connection_error", retry=True) from error
            if isinstance(error, ConfigError):
                raise BackendError(str(error), reason="client_error") from error
            if isinstance(error, ValueError | TypeError):
                what = _words(f"{type(error).__name__}: {error}")
                text = f"the answer of {self.url} is not JSON as an {self.kind} sends it ({what})"
                more: dict[str, Any] = {"status_code": 200, "retry": True}
                raise BackendError(text, reason="server_error", **more) from error
            raise

    def _reported(
        self, error: StatusError, body: Mapping[str, Any], chat: ChatRequest | None
    ) -> BackendError:
        """Return the failure that a server reports by its status and in its words."""
        status, text = error.status, error.text
        reason: FailureReason = "client_error"
        model = body.get("model", "")
        named = f" for {model!r}" if model else ""
        what, hint = f"rejects the request{named}", ""
        if chat is not None and _OVERFLOW.search(error.said):
            read = error.sizes.get("n_prompt_tokens")
            prompt = f"{len(chat.prompt)} characters" if read is None else f"{read} tokens"
            windows = error.sizes.get("n_ctx"), body.get("options", {}).get("num_ctx")
            window = min(filter(None, windows), default=None)
            of = f" of {window} tokens" if window else ""
            text = f"the prompt has {prompt}, more than the context window{of} can hold ({text})"
            text += f"; shorten the prompt, or {self.wider}"
            return BackendError(text, reason="context_overflow", status_code=status)
        if status == 401 or (status == 403 and not error.said):
            hint = f"; {self.way_in}"
        elif "model_not_found" in error.said or (status == 404 and "model" in text.lower()):
            reason, what = "model_not_found", f"has no model {model!r}"
            hint = f"; get it with: {self.pull} {model}" if self.pull else ""
        elif status == 404:
            hint = f"; see that {self.url} is the address of an {self.kind}"
        elif status == 429:
            reason, what = "rate_limited", "limits the rate"
        elif status is None or status >= 500:
            reason, what = "server_error", f"failed{named}"
        is_passing = reason in ("rate_limited", "server_error")
        # A quota that is used up does not come back within seconds.
        retry = is_passing and "insufficient_quota" not in error.said
        more: dict[str, Any] = {"status_code": status, "retry_after_s": error.retry_after_s}
        return BackendError(f"{self.who} {what}: {text}{hint}", reason=reason, retry=retry, **more)


def _as_json(body: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (ValueError, TypeError) as error:
        text = f"the request for {body.get('model')!r} cannot be sent: {_words(error)}"
        raise BackendError(text, reason="client_error") from error


class Transport(httpx.AsyncBaseTransport):
    """Connections to one server, for one event loop; also what the official client works through.

    Answers are not compressed and do not redirect. They are read whole, within a limit, but for
    those to requests with ``extensions={"streamed": True}``; see ``Server.lines``.

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
        # Certificates take long to load, and without redirects plain http stays plain http.
        verify = any(address.startswith("https:") for address in (url, (proxy or "").lower()))
        try:
            self._inner = httpx.AsyncHTTPTransport(verify=verify, limits=limits, proxy=proxy)
        except (ValueError, ImportError, OSError) as error:
            raise ConfigError(
                f"{url} cannot be reached with the environment's proxy or certificates: {error}; "
                "see HTTP_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE"
            ) from error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request.

        Raises:
            BackendError: the answer redirects or is too large.
        """
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        # Read as it is, whatever it says: decompressed, a small answer may have gigabytes.
        response.headers.pop("content-encoding", None)
        if request.extensions.get("streamed") and response.is_success:
            return response
        content = bytearray()
        async with aclosing(response):
            async for chunk in response.stream:  # type: ignore[union-attr]
                content += chunk
                if len(content) > MAX_REPLY_BYTES:
                    break
        status = response.status_code
        if response.has_redirect_location:
            target = clip(printable(without_password(response.headers["location"])), 200)
            text = (
                f"{self._who} redirects to {target}, which is not followed: prompts go only to the "
                "address given; if that is the right one, give it instead"
            )
            raise BackendError(text, reason="client_error", status_code=status)
        if len(content) > MAX_REPLY_BYTES and not response.is_error:
            raise too_large(self._who, MAX_REPLY_BYTES)
        return httpx.Response(status, headers=response.headers, content=bytes(content))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def too_large(who: str, limit: int) -> BackendError:
    """Return the failure of an answer that is larger than what is read of one."""
    text = f"{who} sent more than {limit:,} bytes; lower max_tokens, or see what answers there"
    return BackendError(text, reason="server_error", status_code=200)


_kept: WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[str, tuple[Transport, AsyncIterator[Transport]]]
] = WeakKeyDictionary()


async def _lifetime(url: str, who: str) -> AsyncIterator[Transport]:
    """Keep connections open; ``asyncio.run`` closes async generators before it closes the loop."""
    async with Transport(url, who) as transport:
        yield transport


def run_aside(work: Coroutine[Any, Any, T]) -> T:
    """Run a quick look at a server to its end."""
    # In a thread of its own, since the caller's may be running an event loop already.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
