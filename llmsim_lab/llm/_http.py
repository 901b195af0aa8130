"""Requests to model servers, whichever protocol they speak, and what goes wrong with them.

A prompt goes only where its user sent it, so redirects are not followed. Nothing is decompressed,
and nothing is read beyond a limit; the limits also bound how long parsing an answer blocks the
event loop. Requests are made by httpx's transport, without a client around it: there are no
cookies, no redirects and no timeouts here, and a request cancelled closes its connection at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import httpx
from pydantic import SecretStr
from pydantic_core import from_json

from llmsim_lab._util.jsontext import JSON, JSONObject
from llmsim_lab._util.text import clip, errors_behind, printable
from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.llm._access import (
    NO_MASK,
    Access,
    Credential,
    Mask,
    clear_locals,
    env_proxy,
    mask_of,
    without_password,
)
from llmsim_lab.llm.calls.faults import is_refused, retry_after_s
from llmsim_lab.llm.extract import MAX_REPLY_CHARS
from llmsim_lab.llm.wire_limits import BoundedHTTP, TooMuchSentError, reading_head
from llmsim_lab.types import ChatReply, ChatRequest, OnText, ToolCall

T = TypeVar("T")

MAX_REPLY_BYTES = 2**20
"""Of one document, and of one line of a stream: more than models write."""
MAX_STREAM_BYTES = 16 * 2**20
"""Of a streamed reply, which needs some 150 bytes for each token."""
MAX_STREAM_LINES = 200_000
"""Of a streamed reply, empty lines left out: more than those bytes hold of tokens."""
MAX_CHUNKS = 150_000
"""Pieces in which a body may come; a server sends a line or more at once."""
MAX_ARGUMENTS_BYTES = 2**20
"""Of all tool calls of a reply together."""
MAX_CALLS = 1_000
"""Tool calls of a reply."""
_GIVE_BACK_S = 0.05
"""The event loop is given back after so long, where there is always more to read."""
LIST_TIMEOUT_S = 5.0
"""How long a server may take to list its models."""
_CONNECT_S = 30.0
"""How long a connection may take, where the caller bounds the time of the whole request."""
_KEEPALIVE = {
    "TCP_KEEPIDLE": 20,
    "TCP_KEEPALIVE": 20,  # macOS's name of the same
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 50_000,
}
"""Seconds, a count and milliseconds after which TCP finds that the other machine has gone, within a
minute; its packets also keep routers from forgetting a connection on which a model says nothing."""
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length"
    r"|exceeds? (?:the )?(?:available |maximum )?context|longer than the maximum model length"
    r"|greater than the context length",
    re.IGNORECASE,
)


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


def member(
    values: Any,
    name: str,
    kind: type,
) -> Any:
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
        # A count that a server does not report is not 0.
        return None if kind is int else kind()
    # The type itself, since ``True`` is an int.
    is_of_kind = type(value) is kind
    if kind is int and is_of_kind:
        is_of_kind = 0 <= value < 2**63
    if not is_of_kind:
        raise TypeError(f"{name} is {clip(repr(value), 60)}, not of type {kind.__name__}")
    return value


class Written:
    """A reply that is written piece by piece.

    Attributes:
        fields: what is known of it beside its texts and calls, by the names of ``ChatReply``.
        ended: whether the server has said that nothing follows.

    Args:
        server_name: for messages.
        on_text: is given each piece, thinking between ``<think>`` tags; None if there is no reader.
        mask: of what the server was shown, which it may repeat.
    """

    def __init__(
        self,
        server_name: str,
        on_text: OnText | None,
        mask: Mask,
    ) -> None:
        self.fields: dict[str, Any] = {}
        self.ended = False
        self._server_name = server_name
        self._calls: dict[int, _WrittenCall] = {}
        self._arguments_bytes = 0
        self._on_text = on_text
        self._thinks = False
        self._mask = mask
        self._held = ""
        self._began = time.perf_counter()
        self._text_chars = 0
        self._thinking_chars = 0
        self._texts: list[str] = []
        self._thoughts: list[str] = []

    def add(self, text: str, thinking: str = "") -> None:
        """Take a piece; an empty one says that the server works.

        Raises:
            BackendError: the text, or the thinking, is too long.
        """
        self._text_chars += len(text)
        self._thinking_chars += len(thinking)
        if max(self._text_chars, self._thinking_chars) > MAX_REPLY_CHARS:
            raise _too_much(self._server_name, f"{MAX_REPLY_CHARS:,} characters in a reply")
        self._texts.append(text)
        self._thoughts.append(thinking)
        if self._on_text is None:
            return
        piece = ""
        if thinking:
            piece += thinking if self._thinks else f"<think>{thinking}"
            self._thinks = True
        if text:
            piece += f"</think>{text}" if self._thinks else text
            self._thinks = False
        if self._mask:
            whole = self._mask.text(self._held + piece)
            # What may be the beginning of a secret is not shown before its end is known.
            known_length = self._mask.known_length(whole)
            piece = whole[:known_length]
            self._held = whole[known_length:]
        self._on_text(piece)

    def add_logprobs(self, tokens: list[JSON]) -> None:
        """Take tokens with their alternatives, of which those of the first one are kept."""
        if tokens and not self.fields.get("top_logprobs"):
            likely = member(tokens[0], "top_logprobs", list)
            # The logarithms are checked with the whole reply, as those of any backend.
            pairs = [(member(token, "token", str), token.get("logprob")) for token in likely]
            self.fields["top_logprobs"] = tuple(pairs)

    def add_call(
        self,
        name: str,
        arguments: str | JSONObject,
        *,
        size: int,
        place: int | None = None,
        id: str = "",  # noqa: A002 - its name in the protocol
    ) -> None:
        """Take a tool call, or a piece of one.

        Args:
            name: of the tool; empty where an earlier piece has it.
            arguments: an object, or a piece of its JSON.
            size: of the arguments, bytes or more.
            place: among the reply's calls; None for one more.
            id: of the call; empty where an earlier piece has it, or nothing has.

        Raises:
            BackendError: there are too many, or they are too large.
        """
        self._arguments_bytes += size
        if self._arguments_bytes > MAX_ARGUMENTS_BYTES:
            raise _too_much(
                self._server_name,
                f"{MAX_ARGUMENTS_BYTES:,} bytes of arguments of tools",
            )
        if place is None:
            place = len(self._calls)
        call = self._calls.setdefault(place, _WrittenCall())
        if len(self._calls) > MAX_CALLS:
            raise _too_much(self._server_name, f"{MAX_CALLS:,} calls of tools")
        call.id = id or call.id
        call.name = name or call.name
        if isinstance(arguments, str):
            call.pieces.append(arguments)
        else:
            call.arguments = arguments

    def reply(self) -> ChatReply:
        """Return what has been written."""
        if self._on_text is not None and self._held:
            self._on_text(self._held)
        # In the order of their places, which need not be the order in which they came.
        in_order = sorted(self._calls.items())
        calls = [call.whole(self._mask) for _, call in in_order]
        return ChatReply(
            text=self._mask.text("".join(self._texts)),
            thinking=self._mask.text("".join(self._thoughts)),
            tool_calls=tuple(calls),
            seconds=time.perf_counter() - self._began,
            **self.fields,
        )


@dataclass(slots=True)
class _WrittenCall:
    """A tool call that is written piece by piece.

    Attributes:
        arguments: an object, where it came whole.
        pieces: of its JSON, where it comes in pieces.
    """

    id: str | None = None
    name: str = ""
    arguments: JSONObject | None = None
    pieces: list[str] = field(default_factory=list)

    def whole(self, mask: Mask) -> ToolCall:
        """Return the call, masked as a whole, since a secret may come in pieces.

        Raises:
            BackendError: the arguments are not a JSON object.
        """
        arguments = mask.value(self.arguments)
        if arguments is None:
            try:
                # A tool without parameters comes without arguments.
                text = mask.text("".join(self.pieces)) or "{}"
                arguments = read_object(text)
            except (ValueError, TypeError) as error:  # the model wrote them
                # Without a cause, of which a tape keeps nothing: the model is shown these words.
                raise BackendError(
                    f"the arguments of {_words(self.name, mask)} are not a JSON object: {error}",
                    reason="invalid_response",
                    retry=True,
                ) from None
        call_id = self.id
        if call_id:
            call_id = mask.text(call_id)
        return ToolCall(mask.text(self.name), arguments, call_id)


def _words(text: object, mask: Mask | None = None) -> str:
    """Return a server's explanation, clipped, without secrets and what controls a terminal."""
    words = printable(str(text), keep="\n")
    if mask is not None:
        # Before it is clipped, which may leave a part of a secret.
        words = mask.text(words)
    return clip(words, 500)


class StatusError(Exception):
    """An error that a server reports.

    Servers have it bare, under several names, and as JSON within JSON. Of what several objects
    say, the innermost counts: it comes from the part that failed, and others pass it on.

    Args:
        status: of HTTP; None within a stream, whose own status was 200.
        error: what the server sent: a text or a value of JSON.
        headers: of the answer.

    Attributes:
        status: of HTTP; within a stream the error's code, if it has one.
        sizes: numbers that come with it.
        retry_after_s: how long the server asks to wait, seconds.
        scheme: how the server wants its clients to show who they are, in lower case; empty where
            it does not say.
    """

    def __init__(
        self,
        status: int | None,
        error: JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        values: JSONObject = {}
        inner = [error]
        # Inwards, as from {"error": {"message": "{\"error\": …}"}}.
        while inner:
            error = inner[0]
            if isinstance(error, str):
                with suppress(ValueError, TypeError):
                    error = read_object(error)
            parts = error if isinstance(error, dict) else {}
            # What an inner one says takes the place of the outer one's.
            values |= {name: value for name, value in parts.items() if value is not None}
            inner = [parts[name] for name in ("error", "message", "detail") if parts.get(name)]
        self._text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
        self._named = [str(values.get(name) or "") for name in ("param", "code", "type")]
        # By the type itself: true is an int too.
        self.sizes = {name: value for name, value in values.items() if type(value) is int}
        code = self.sizes.get("code", 0)
        self.status = status
        if status is None and 400 <= code <= 599:
            self.status = code
        headers = headers or {}
        self.retry_after_s = retry_after_s(headers.get("retry-after"))
        wanted = headers.get("www-authenticate", "")
        self.scheme = wanted.partition(" ")[0].lower()
        super().__init__()  # without the text, which may have a secret

    def hide(self, mask: Mask) -> None:
        """Mask secrets that the server repeats."""
        self._text = mask.text(printable(self._text, keep="\n"))
        self._named = [mask.text(printable(name)) for name in self._named]

    @property
    def text(self) -> str:
        """What it says, clipped."""
        return _words(self._text) or "no explanation"

    @property
    def words(self) -> str:
        """All that it says, for searching."""
        words = " ".join([*self._named, _words(self._text)])
        return words.strip()

    def __str__(self) -> str:
        return self.text


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server of models.

    Attributes:
        url: its address.
        name: what it is called in messages.
        kind: what kind of server it is.
        if_absent: what to do where none answers.
        access: what lets requests in.
        if_refused: what to do where it refuses access without a word.
        larger_window: how its models get a larger context window.
        pull: the command that gets a model, where there is one.
    """

    url: str
    name: str
    kind: str
    if_absent: str
    access: Access
    if_refused: str
    larger_window: str = "raise LLMConfig.num_ctx, up to what the model was trained for"
    pull: str = ""

    async def _connections(self) -> _Connections:
        """Return the connections to this server that all share in the running loop.

        Raises:
            ConfigError: the environment's proxy, or its file of certificates, cannot be used.
        """
        kept = _kept.setdefault(asyncio.get_running_loop(), {})
        if self.url not in kept:
            lifetime = _lifetime(self.url)
            # This does not suspend, so no other task of the loop can come in between.
            kept[self.url] = (await anext(lifetime), lifetime)
        return kept[self.url][0]

    @asynccontextmanager
    async def opened(
        self,
        body: Mapping[str, Any] | None = None,
        chat: ChatRequest | None = None,
    ) -> AsyncIterator[Transport]:
        """Give the way to this server, and turn what goes wrong on it into failures of ours.

        Args:
            body: JSON that will be posted.
            chat: what the body asks.

        Raises:
            BackendError: the request cannot be sent, the server does not answer, or not in its
                protocol's form; or it reports an error, the ``StatusError`` behind this one.
        """
        mask = NO_MASK
        credential: Credential | None = None
        try:
            credential = await self.access.credential()
            connections = await self._connections()
            mask = mask_of(credential, connections.proxy_login)
            yield Transport(connections.inner, self.name, credential, mask)
        except BaseException as error:
            clear_locals(error)  # those of the HTTP client have the key, or a proxy's password
            if isinstance(error, StatusError):
                error.hide(mask)
            mask.errors(error)
            failure = self._failure(error, _Sent(body or {}, chat, credential, mask))
            if failure is None:
                raise
            raise failure from error

    @asynccontextmanager
    async def asked(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        chat: ChatRequest | None = None,
        *,
        timeout_s: float | None = None,
    ) -> AsyncIterator[HttpAnswer]:
        """Make a request; what goes wrong until its answer is read is a failure of ours.

        The answer to a body is not read yet: it is a stream.

        Args:
            path: after the server's address.
            body: JSON that is posted; without it the request is a GET.
            chat: what the body asks.
            timeout_s: longest wait for a connection and for each piece of the answer, seconds;
                None where the caller bounds the time.

        Raises:
            BackendError: as ``opened`` does.
        """
        headers = {"User-Agent": "llmsim-lab", "Content-Type": "application/json"}
        method = "GET"
        content = b""
        if body is not None:
            # No server's questions about itself have a body, and all its chats do.
            method = "POST"
            content = _as_json(body)
        connect_s = _CONNECT_S if timeout_s is None else timeout_s
        wait = httpx.Timeout(timeout_s, connect=connect_s)
        request = httpx.Request(
            method,
            self.url + path,
            headers=headers,
            content=content,
            extensions={"timeout": wait.as_dict(), "streamed": body is not None},
        )
        # Two statements, since editors lose the type of the first name where they are one.
        async with self.opened(body, chat) as transport:
            response = await transport.handle_async_request(request)
            async with _closing(response):  # also the connection, if there is more to come
                if response.is_error:
                    text = response.content.decode(errors="replace")
                    raise StatusError(response.status_code, text, response.headers)
                yield HttpAnswer(response, self.name, transport.mask)

    async def glance(self, path: str) -> bytes | None:
        """Return the answer to a small question; None if it is an error, or does not come at once.

        That says nothing of the server: it may be busy, or have nothing at this path. Connections
        to a machine that has gone are ended by TCP.

        Raises:
            BackendError: nothing listens at the server's address.
        """
        try:
            async with self.asked(path, timeout_s=LIST_TIMEOUT_S) as answer:
                return answer.content
        except BackendError as error:
            if is_refused(error):
                raise
            # A server that lives, and is busy or lacks this path: the request continues.
            return None

    def _failure(self, error: BaseException, sent: _Sent) -> BackendError | None:
        """Return what an error means that was raised on the way to this server; None for a bug."""
        if isinstance(error, StatusError):
            return self._reported(error, sent)
        if isinstance(error, ConnectionError | httpx.TransportError):
            return self._lost(error, sent.mask)
        if isinstance(error, TooMuchSentError):
            return BackendError(
                f"{self.name} is not read on: {error}; see what answers there",
                reason="server_error",
                status_code=200,
            )
        if isinstance(error, ConfigError):
            return BackendError(str(error), reason="client_error")
        # The last from the official client, which reads JSON of any depth.
        if isinstance(error, ValueError | TypeError | RecursionError):
            detail = _words(f"{type(error).__name__}: {error}", sent.mask)
            return BackendError(
                f"the answer of {self.url} is not JSON as an {self.kind} sends it ({detail})",
                reason="server_error",
                status_code=200,
                retry=True,
            )
        return None

    def _lost(self, error: BaseException, mask: Mask) -> BackendError:
        """Return the failure that there is no connection, or no longer."""
        distrust = _distrust(error)
        if distrust:
            return BackendError(
                f"{self.url} cannot be trusted: {distrust}", reason="connection_error"
            )
        detail = _words(error, mask) or type(error).__name__
        # The official client makes a plain ConnectionError of a ConnectError.
        has_begun = not isinstance(
            error, ConnectionError | httpx.ConnectError | httpx.TimeoutException | httpx.ProxyError
        )
        proxy = env_proxy(self.url)
        if has_begun:
            text = f"the connection to {self.name} broke: {detail}"
        elif proxy is not None:
            text = (
                f"the proxy {proxy.shown} gives no connection to {self.url} ({detail}); see "
                "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, or go past it with "
                f"NO_PROXY={httpx.URL(self.url).host}"
            )
        elif isinstance(error, httpx.ReadTimeout):
            text = (
                f"{self.name} took the request and sent no answer in time ({detail}); see whether "
                "it hangs or is busy"
            )
        elif is_refused(error):
            text = f"no {self.kind} answers at {self.url}; {self.if_absent}"
        else:
            text = f"no {self.kind} answers at {self.url} ({detail}); {self.if_absent}"
        return BackendError(text, reason="connection_error", retry=True)

    def _reported(self, error: StatusError, sent: _Sent) -> BackendError:
        """Return the failure that a server reports by its status and in its words."""
        # Servers have no common code for it, so their words decide.
        if sent.chat is not None and _OVERFLOW.search(error.words):
            return self._overflow(error, sent.body, sent.chat)
        status = error.status
        # Questions about the server itself name no model.
        model = sent.body.get("model", "")
        for_model = f" for {model!r}" if model else ""
        reason: FailureReason = "client_error"
        text = f"{self.name} rejects the request{for_model}: {error.text}"
        if status in (401, 403, 407):
            text += self._way_in(error, sent.credential)
        elif _lacks_model(error):
            reason = "model_not_found"
            text = f"{self.name} has no model {model!r}: {error.text}"
            if self.pull:
                text += f"; get it with: {self.pull} {model}"
        elif status == 404:
            text += f"; see that {self.url} is the address of an {self.kind}"
        elif status == 400 and "HTTPS" in error.words and self.url.startswith("http:"):
            text += f"; write its address with https:, as https{self.url.removeprefix('http')}"
        elif status == 429:
            reason = "rate_limited"
            text = f"{self.name} limits the rate: {error.text}"
        elif status is None or status >= 500:
            reason = "server_error"
            text = f"{self.name} failed{for_model}: {error.text}"
            # Those that a proxy says in a server's name.
            proxy = env_proxy(self.url) if status in (502, 503, 504) else None
            if proxy is not None:
                text += f"; it was asked through the proxy {proxy.shown}, which may have said this"
        is_passing = reason in ("rate_limited", "server_error")
        return BackendError(
            text,
            reason=reason,
            # A quota that is used up does not come back within seconds.
            retry=is_passing and "insufficient_quota" not in error.words,
            status_code=status,
            retry_after_s=error.retry_after_s,
        )

    def _overflow(
        self,
        error: StatusError,
        body: Mapping[str, Any],
        chat: ChatRequest,
    ) -> BackendError:
        """Return the failure that a prompt is longer than the context window, in its numbers."""
        prompt_tokens = error.sizes.get("n_prompt_tokens")
        size = f"{len(chat.prompt)} characters"
        if prompt_tokens is not None:
            size = f"{prompt_tokens} tokens"
        # The server's own, and the one asked for of a server that takes one.
        asked_for = body.get("options", {}).get("num_ctx")
        windows = [error.sizes.get("n_ctx"), asked_for]
        window = min(filter(None, windows), default=None)
        of_window = f" of {window} tokens" if window else ""
        return BackendError(
            f"the prompt has {size}, more than the context window{of_window} can hold "
            f"({error.text}); shorten the prompt, or {self.larger_window}",
            reason="context_overflow",
            status_code=error.status,
        )

    def _way_in(self, error: StatusError, credential: Credential | None) -> str:
        """Return what to do where access is refused, as the end of a message."""
        password_hint = (
            "write a user name and password into its address: "
            f"{self.url.replace('://', '://NAME:PASSWORD@')}"
        )
        key_hint = f"set {self.access.variable}, or give {self.access.argument}=..."
        if error.status == 407:
            proxy = env_proxy(self.url)
            shown = proxy.shown if proxy else "http://proxy:3128"
            return (
                "; this is the proxy: write a user name and password into its address in "
                f"HTTP_PROXY or HTTPS_PROXY, as {shown.replace('://', '://NAME:PASSWORD@')}"
            )
        if error.status == 403:
            if error.words.startswith("<"):
                return (
                    "; a server in front of it refuses, to judge by the HTML: it may want a key "
                    f"({key_hint}), or a user name and password ({password_hint})"
                )
            # Where it says why, no hint is better.
            return "" if error.words else f"; {self.if_refused}"
        if credential is None and error.scheme == "basic":
            return f"; {password_hint}"
        if credential is None:
            return f"; {key_hint}"
        if credential.kind == "Bearer" and error.scheme == "basic":
            return f"; it was shown a key and wants no key: {password_hint}"
        if credential.kind == "Basic" and error.scheme == "bearer":
            return f"; it was shown a user name and password and wants a key: {key_hint}"
        if credential.kind == "Bearer":
            return f"; the key that it was shown is not one that it knows: {key_hint}"
        return f"; it does not know this user name and password: {password_hint}"


def _lacks_model(error: StatusError) -> bool:
    """Return True if a server says that it has no such model, as well as that can be known."""
    if "model_not_found" in error.words:
        return True
    # A wrong address is a 404 as well, whose words are of a path.
    return error.status == 404 and "model" in error.text.lower()


@dataclass(frozen=True, slots=True)
class _Sent:
    """What went to a server, for what is said of its answer.

    Attributes:
        body: of the request, or what is known of it.
        chat: what the body asks, if it is a chat.
        credential: what lets the request in.
        mask: of that.
    """

    body: Mapping[str, Any]
    chat: ChatRequest | None
    credential: Credential | None
    mask: Mask


def _as_json(body: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(
            body,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )
        return text.encode()
    except (ValueError, TypeError) as error:
        raise BackendError(
            f"the request for {body.get('model')!r} cannot be sent: {_words(error)}",
            reason="client_error",
        ) from error


class Transport(httpx.AsyncBaseTransport):
    """The way to one server, for a few requests; also what the official client works through.

    It shows what lets requests in. Answers are not compressed and do not redirect. They are read
    whole, within a limit, but for those to requests with ``extensions={"streamed": True}``; see
    ``HttpAnswer.lines``.

    Args:
        connections: to the server.
        server_name: for messages.
        credential: what it is shown, if anything.
        mask: of that.
    """

    def __init__(
        self,
        connections: httpx.AsyncBaseTransport,
        server_name: str,
        credential: Credential | None,
        mask: Mask,
    ) -> None:
        self.mask = mask
        self._connections = connections
        self._server_name = server_name
        self._credential = credential

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request.

        Raises:
            BackendError: the answer redirects or is too large.
        """
        if request.extensions.get("streamed"):
            return await self._begun(request)
        # httpx bounds each read alone, and a head may come a byte at a time.
        limit_s = request.extensions.get("timeout", {}).get("read")
        try:
            async with asyncio.timeout(limit_s):
                return await self._whole(await self._begun(request))
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"no whole answer in {limit_s:g} s") from error

    async def _begun(self, request: httpx.Request) -> httpx.Response:
        """Return an answer whose body is to be read, if it is no error; else the whole answer."""
        with reading_head():
            response = await self._connections.handle_async_request(self._signed(request))
        # Read as it is, whatever it says: decompressed, a small answer may have gigabytes.
        response.headers.pop("content-encoding", None)
        if request.extensions.get("streamed") and not response.is_success:
            return await self._whole(response)
        return response

    async def _whole(self, response: httpx.Response) -> httpx.Response:
        """Return an answer with its body.

        Raises:
            BackendError: it redirects or is too large.
        """
        content = bytearray()
        async with _closing(response), aclosing(_chunks(response, self._server_name)) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > MAX_REPLY_BYTES:
                    break
        if response.has_redirect_location:
            target = without_password(response.headers["location"])
            raise BackendError(
                f"{self._server_name} redirects to {clip(_words(target, self.mask), 200)}, which "
                "is not followed: prompts go only to the address given; if that is the right one, "
                "give it instead",
                reason="client_error",
                status_code=response.status_code,
            )
        if len(content) > MAX_REPLY_BYTES and not response.is_error:
            raise too_large(self._server_name, MAX_REPLY_BYTES)
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            content=self.mask.document(bytes(content)),
        )

    def _signed(self, request: httpx.Request) -> httpx.Request:
        """Return a request with what lets it in, which the one that others hold never has."""
        headers = httpx.Headers(request.headers)
        headers["Accept-Encoding"] = "identity"
        # An old connection may be closed just as it is used, and may hold what a server sent too
        # much, which would be taken for the next answer. A new one takes a round trip or two, of a
        # call of seconds.
        headers["Connection"] = "close"
        headers.pop("Authorization", None)  # the official client's own, from OLLAMA_API_KEY
        if self._credential is not None:
            headers["Authorization"] = self._credential.header
        return httpx.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream,
            extensions=request.extensions,
        )


@asynccontextmanager
async def _closing(response: httpx.Response) -> AsyncIterator[None]:
    """Close an answer at the end, also while this task is cancelled.

    httpcore shields its closing from anyio's cancels alone: asyncio's, of agents whose neighbour
    failed, left a connection open for as long as the loop.
    """
    try:
        yield
    finally:
        await asyncio.shield(asyncio.ensure_future(response.aclose()))


class HttpAnswer:
    """What a server answers.

    Args:
        response: with its body, or a stream of it.
        server_name: for messages.
        mask: of what it was shown.
    """

    def __init__(
        self,
        response: httpx.Response,
        server_name: str,
        mask: Mask,
    ) -> None:
        self.mask = mask
        self._response = response
        self._server_name = server_name

    @property
    def content(self) -> bytes:
        """The whole body, where it is not a stream."""
        return self._response.content

    async def reply(
        self,
        on_text: OnText | None,
        add: Callable[[Written, bytes], None],
    ) -> ChatReply:
        """Return a reply that comes as a stream of lines.

        Args:
            on_text: is given each piece of the reply.
            add: puts a line to what has been written.

        Raises:
            BackendError: the reply is not whole, too large, or not in the protocol's form.
        """
        written = Written(self._server_name, on_text, self.mask)
        async for line in self.lines():
            # Read to its end all the same: a server may take a cut connection for a fault.
            if not written.ended:
                add(written, line)
        if not (written.ended or written.fields.get("done_reason")):
            raise BackendError(
                f"the reply of {self._server_name} ended before it was done",
                reason="connection_error",
                status_code=200,
                retry=True,
            )
        reply = written.reply()
        if reply.done_reason == "aborted":
            raise BackendError(
                f"{self._server_name} stopped the model before it was done, after "
                f"{clip(reply.text, 120)!r}; change the prompt, raise the temperature, or use "
                "another model",
                reason="generation_stopped",
                status_code=200,
                retry=True,
                reply=reply,
            )
        return reply

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of a streamed answer, without their ends and without empty ones.

        Not by ``splitlines``, as httpx does: JSON may have other ends of lines in it, as U+2028.

        Raises:
            BackendError: it is too large, or has too many lines.
        """
        begun: list[bytes] = []  # the pieces of a line that has not ended
        begun_bytes = 0
        total_bytes = 0
        count = 0
        clock = _Clock()
        async with aclosing(_chunks(self._response, self._server_name)) as chunks:
            async for chunk in chunks:
                total_bytes += len(chunk)
                *ended, rest = chunk.split(b"\n")
                if ended:
                    ended[0] = b"".join([*begun, ended[0]])
                    begun = []
                    begun_bytes = 0
                begun.append(rest)
                begun_bytes += len(rest)
                if max(begun_bytes, *map(len, ended), 0) > MAX_REPLY_BYTES:
                    raise too_large(self._server_name, MAX_REPLY_BYTES)
                if total_bytes > MAX_STREAM_BYTES:
                    raise too_large(self._server_name, MAX_STREAM_BYTES)
                for line in filter(None, map(bytes.strip, ended)):
                    count += 1
                    if count > MAX_STREAM_LINES:
                        raise _too_much(self._server_name, f"{MAX_STREAM_LINES:,} lines")
                    yield self.mask.line(line)
                    if clock.is_due:
                        await clock.give_back()
        last = b"".join(begun).strip()
        if last:
            yield self.mask.line(last)


class _Clock:
    """Says when others of the event loop are to have a turn, while there is always more to read."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._since = self._time()

    @property
    def is_due(self) -> bool:
        """Whether it was held for long."""
        return self._time() - self._since > _GIVE_BACK_S

    async def give_back(self) -> None:
        """Let others run."""
        await asyncio.sleep(0)
        self._since = self._time()


async def _chunks(
    response: httpx.Response,
    server_name: str,
) -> AsyncGenerator[bytes, None]:
    """Yield a body as it comes.

    Raises:
        BackendError: it comes in too many pieces.
    """
    clock = _Clock()
    count = 0
    async for chunk in response.stream:  # type: ignore[union-attr]
        count += 1
        if count > MAX_CHUNKS:
            raise _too_much(server_name, f"{MAX_CHUNKS:,} pieces")
        yield chunk
        if clock.is_due:
            await clock.give_back()


def _socket_options() -> list[tuple[int, int, int]]:
    """Return the options of a connection that notices when the other machine has gone."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # systems differ
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def too_large(server_name: str, limit: int) -> BackendError:
    """Return the failure of an answer that is larger than what is read of one."""
    return _too_much(server_name, f"{limit:,} bytes")


def _too_much(server_name: str, limit: str) -> BackendError:
    return BackendError(
        f"{server_name} sent more than {limit}; lower max_tokens, or see what answers there",
        reason="server_error",
        status_code=200,
    )


# --- connections ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Connections:
    """Connections to a server, in one event loop.

    Attributes:
        inner: httpx's.
        proxy_login: user name and password of the proxy that they go through, if it has them.
    """

    inner: BoundedHTTP
    proxy_login: SecretStr | None


_kept: WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[str, tuple[_Connections, AsyncIterator[_Connections]]]
] = WeakKeyDictionary()


async def _lifetime(url: str) -> AsyncIterator[_Connections]:
    """Keep connections open; ``asyncio.run`` closes async generators before it closes the loop."""
    connections = _connections_to(url)
    async with connections.inner:
        yield connections


def _connections_to(url: str) -> _Connections:
    """Return connections to a server.

    Raises:
        ConfigError: the environment's proxy, or its file of certificates, cannot be used.
    """
    proxy = env_proxy(url)  # httpx asks the environment only for transports of its own
    proxy_url = None if proxy is None else proxy.url.get_secret_value()
    login: SecretStr | None = None
    # Certificates take long to load, and without redirects plain http stays plain http.
    addresses = [url.lower(), (proxy_url or "").lower()]
    verify = any(address.startswith("https:") for address in addresses)
    try:
        if proxy is not None:
            login = proxy.login
        inner = BoundedHTTP(
            verify=verify,
            proxy=proxy_url,
            socket_options=_socket_options(),
        )
    except (ValueError, ImportError, OSError) as error:
        file = os.environ.get("SSL_CERT_FILE")
        file_words = f" (SSL_CERT_FILE={file!r})" if verify and file else ""
        mask_of(None, login).errors(error)
        raise ConfigError(
            f"{url} cannot be reached with the environment's proxy or certificates{file_words}: "
            f"{error}; see HTTP_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE"
        ) from error
    return _Connections(inner, login)


_EXPIRED = 10
_NOT_YET = 9
_OTHER_NAMES = (62, 64)
"""OpenSSL's numbers of what is wrong with a certificate: X509_V_ERR_CERT_HAS_EXPIRED and so on."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
"""OpenSSL's names for an answer in plain text."""


def _distrust(error: BaseException) -> str:
    """Return what is wrong with a server's encryption, and what to do; empty if it is not that."""
    for cause in errors_behind(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            fault = cause.verify_message.rstrip(".")
            if cause.verify_code in (_EXPIRED, _NOT_YET):
                return f"{fault}; renew the certificate, or see this machine's date"
            if cause.verify_code in _OTHER_NAMES:
                return f"{fault}; give the address with a name that the certificate has"
            return (
                f"{fault}; if that is the right server, name a file with its certificate (or its "
                "authority's), in PEM form, in the environment: SSL_CERT_FILE=/path/to/file.pem"
            )
        if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
            return "what answers there speaks no TLS; write its address with http:, not https:"
    return ""


def run_aside(work: Coroutine[object, None, T]) -> T:
    """Run a quick look at a server to its end."""
    # In a thread of its own, since the caller's may be running an event loop already.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
