"""The room on the network: pages that never change, one stream down, posts up.

A stream sends the whole view of a page whenever it has changed, so a page can miss nothing. There
is no log, no index, and nothing to resume. The server has a loop and a thread of its own, so that
pages get answers while a notebook's cell is busy.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import cast

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from llmsim_lab._util.jsontext import JSONObject
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.room._desks import Desk, is_typed
from llmsim_lab.room._faults import RoomError, malformed
from llmsim_lab.room._pages import PageFile, RoomPage, Words
from llmsim_lab.room._streams import RoomStream, Viewer, clock

logger = logging.getLogger(__name__)

_MOST_BYTES = 16_384
_MOST_CONNECTIONS = 2_000
"""Enough for five hundred people with three tabs each, and for visitors who do not join."""
_MOST_AT_ONCE = 256
"""Connections that are accepted in one go, before any of them can be closed again."""
_HEADERS_S = 10.0
_BODY_S = 10.0
_UNREAD_S = 30.0
"""A sleeping phone reads nothing either; its page opens the stream again later."""
_TICK_S = 0.5
_START_S = 10.0
_SLOW_AFTER = 10
"""The number of wrong codes in a minute, from all visitors: a school has a single address."""
_SLOW_WINDOW_S = 60.0
_SLOW_STEP_S = 0.1
_SLOWEST_S = 3.0
_MOST_SLOWED = 50
"""Wrong codes that wait for their answer; then no typed code is looked at. So nobody can try more
than some seventeen a second, from however many addresses."""
_MOST_SLOWED_AT_ONE = 20
"""Of these, from one address: a single guesser does not keep the others from typing the code."""
_SAFE = {
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_KEPT = {**_SAFE, "cache-control": "public, max-age=31536000, immutable"}
_CHECKED = {**_SAFE, "cache-control": "no-cache"}


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP, with limits for how long a request's headers may take, and for idle clients.

    uvicorn has no such limits, and each byte that arrives ends its limit for idle connections. A
    client that sends a byte now and then could hold a connection for ever, and one that opens a
    thousand of them could keep everybody else out.
    """

    _limit: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _opened_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock for a request."""
        super().connection_made(transport)
        self._opened_at = time.monotonic()
        most = self.limit_concurrency
        # Not later: with so many, uvicorn refuses all requests.
        if most is not None and len(self.connections) >= most:
            self._make_room()
        self._keep_time()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def is_idle(self) -> bool:
        """True if the client waits for no answer."""
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        """Close an idle connection for this one, which is more likely to have something to ask."""
        others = [other for other in self.connections if isinstance(other, PatientProtocol)]
        ended = [other for other in others if other.transport.is_closing()]
        idle = [other for other in others if other.is_idle and other is not self]
        if ended:
            self.connections.difference_update(ended)
        elif idle:
            crowds = Counter(other._address for other in idle)

            # First of whoever has the most, and those that never asked anything: pages have.
            def order(other: PatientProtocol) -> tuple[int, bool, float]:
                has_asked = other.cycle is not None
                return -crowds[other._address], has_asked, other._opened_at

            first = min(idle, key=order)
            # Not counted from now on, however many come before its end is noticed.
            self.connections.discard(first)
            first.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, unless this request has its answer already."""
        # Of a request whose body is not HTTP, the head may be under way, or answered. A second
        # answer would be an error of uvicorn's own, whose traceback appears in the notebook.
        if str(self.conn.our_state) in ("IDLE", "SEND_RESPONSE"):
            super().send_400_response(msg)
        else:
            self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Take bytes, which may complete a request's headers."""
        super().data_received(data)
        self._keep_time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        super().connection_lost(exc)
        self._stop_clock()
        self._stop_unread()

    def pause_writing(self) -> None:
        """Close the connection if the client reads nothing of its answer for a while."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that clock: the client reads again."""
        super().resume_writing()
        self._stop_unread()

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _keep_time(self) -> None:
        """Run the clock while no answer is owed; bytes that arrive do not set it back."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_clock()
        elif self._limit is None:
            self._limit = self.loop.call_later(_HEADERS_S, self._close)

    def _stop_clock(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _close(self) -> None:
        self._limit = None
        if self.is_idle:
            self.transport.abort()


class RoomServer:
    """Serves one room, on a loop and in a thread of its own.

    Args:
        desks: the desks, by the beginning of their addresses.
        page_of: makes a page, by the name of its desk.
        words: the interface's sentences.
        host: the address to listen on.
        port: the port; 0 for any free one.
        tick: called twice a second, since questions may be overdue.
        on_visit: called when a page is opened or closed.

    Attributes:
        port: the port that the server listens on.
        names: hosts by which browsers may know the server, each with its port; set before
            ``start``.
        is_secure: True if people come over HTTPS, through a proxy or a tunnel.

    Raises:
        ConfigError: the port is taken, or the address is not this machine's.
    """

    def __init__(
        self,
        desks: Mapping[str, Desk],
        page_of: Callable[[str], RoomPage],
        words: Words,
        *,
        host: str,
        port: int,
        tick: Callable[[], object],
        on_visit: Callable[[], object],
    ) -> None:
        self._desks = desks
        self._page_of = page_of
        self._words = words
        self._tick = tick
        self._on_visit = on_visit
        self._files: dict[str, PageFile] = {}
        self._pages: dict[str, RoomPage] = {}
        self._socket = _bound_socket(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.names: set[str] = set()
        self.is_secure = False
        self._wrong_codes: deque[float] = deque()
        self._slowed: Counter[str] = Counter()
        config = uvicorn.Config(
            self._answer,
            http=PatientProtocol,
            interface="asgi3",
            ws="none",  # not needed: a stream of events down, and a post for each answer
            lifespan="off",
            log_config=None,
            log_level="error",  # what visitors send is not worth a warning in a notebook
            access_log=False,  # addresses are personal data
            server_header=False,
            proxy_headers=False,  # any client could write another address into them
            limit_concurrency=_allowed_connections(),
            backlog=_MOST_AT_ONCE,
            timeout_graceful_shutdown=1,  # pages connect again by themselves
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(
            target=self._serve,
            name="llmsim-room",
            daemon=True,
        )

    def start(self) -> None:
        """Start to listen; when this returns, pages get answers."""
        self._thread.start()
        self._ready.wait(_START_S)

    def stop(self) -> None:
        """End all streams, and stop listening."""
        self._server.should_exit = True
        self.call(self._wake_all)
        self._thread.join(_START_S)

    def call(self, work: Callable[[], object]) -> None:
        """Run something on the server's loop, from any thread."""
        # A room that is being closed has no pages to update.
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(work)

    def _wake_all(self) -> None:
        self._stopping.set()
        for desk in self._desks.values():
            for viewer in desk.viewers():
                for stream in viewer.streams:
                    stream.wake(urgent=True)

    def _serve(self) -> None:
        asyncio.run(self._serve_until_stopped())

    async def _serve_until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        clock = asyncio.create_task(self._keep_clock())
        self._ready.set()
        await self._server.serve(sockets=[self._socket])
        clock.cancel()

    async def _keep_clock(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._tick()

    # --- one request ------------------------------------------------------------------------------

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._response(request)
        except RoomError as fault:
            response = self._of_fault(fault)
        except LabError as error:  # such as a full disk
            logger.warning("%s", error)
            sentence = "This could not be kept. Tell who runs the room, and try again."
            response = self._of_fault(RoomError(507, "not_kept", sentence))
        except ClientDisconnect:
            # The phone fell asleep while it posted: nobody waits for an answer.
            return
        await response(scope, receive, send)

    def _of_fault(self, fault: RoomError) -> Response:
        content: JSONObject = {
            "error": fault.code,
            "fault": self._words.get(f"error_{fault.code}", fault.sentence),
        }
        if fault.faults is not None:
            content["faults"] = dict(fault.faults)
        response = _json(content, fault.status)
        if fault.status == 400:
            # What follows on this connection may be the rest of the same nonsense.
            response.headers["connection"] = "close"
        return response

    async def _response(self, request: Request) -> Response:
        self._check_source(request)
        path = request.scope["path"]
        # Before the cookie is checked: scripts and styles are the same for everybody.
        if path in self._files and request.method == "GET":
            return _file(self._files[path], _KEPT)
        # Addresses are relative to their page, so that /p/3/ and /teacher/ work alike.
        base, _, action = path.rpartition("/")
        desk = self._desks.get(f"{base}/")
        if desk is None:
            raise _not_found()
        if request.method == "GET":
            return self._of_get(desk, action, request)
        if request.method == "POST":
            return await self._of_post(desk, action, request)
        raise _not_found()

    def _check_source(self, request: Request) -> None:
        """Raise RoomError for a request that comes from another site's page.

        Another site's name may be made to lead to this machine, so the host is checked. A page of
        another origin may post here, so the origin is checked.
        """
        host = request.headers.get("host", "").lower()
        is_foreign = host not in self.names
        if request.method == "POST":
            origin = request.headers.get("origin", "").lower()
            site = request.headers.get("sec-fetch-site", "same-origin")
            content_type = request.headers.get("content-type", "")
            media_type, _, _ = content_type.partition(";")
            is_foreign = (
                is_foreign
                or origin not in (f"http://{host}", f"https://{host}")
                or site != "same-origin"
                or media_type.strip().lower() != "application/json"
            )
        if is_foreign:
            raise RoomError(421, "not_here", "This room is not at this address.")
        # A proxy that believes the length, before a server that believes the chunks, takes the rest
        # of a body for the next visitor's request.
        if "transfer-encoding" in request.headers and "content-length" in request.headers:
            raise malformed()

    def _of_get(
        self,
        desk: Desk,
        action: str,
        request: Request,
    ) -> Response:
        if action == "":
            return self._page(desk, request)
        if action == "about":
            token = request.cookies.get(desk.cookie, "")
            return _json(desk.about(token))
        viewer = self._viewer(desk, request)
        if action == "now":
            viewer.polled()
            return _json(_with_time(desk.view(viewer)))
        if action == "events":
            # Proxies that collect an answer before they pass it on would hold news back.
            headers = {**_SAFE, "x-accel-buffering": "no"}
            events = self._events(desk, viewer)
            return StreamingResponse(events, headers=headers, media_type="text/event-stream")
        download = desk.download(viewer, action)
        if download is None:
            raise _not_found()
        headers = dict(_SAFE)
        if download.file_name:
            headers["content-disposition"] = f'attachment; filename="{download.file_name}"'
        return Response(
            download.content,
            headers=headers,
            media_type=download.media_type,
        )

    def _page(self, desk: Desk, request: Request) -> Response:
        page = self._pages.get(desk.name)
        # Made when it is first opened, and only once: its modules are read and compressed.
        if page is None:
            page = self._page_of(desk.name)
            self._pages[desk.name] = page
            self._files[page.script.path] = page.script
            self._files[page.style.path] = page.style
        host = request.headers["host"].lower()
        etag = f'"{page.shell.tag}"'
        headers = {
            **_CHECKED,
            "content-security-policy": page.policy(host),
            "etag": etag,
        }
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return _file(page.shell, headers)

    async def _of_post(
        self,
        desk: Desk,
        action: str,
        request: Request,
    ) -> Response:
        if action == "join":
            message = await _message(request)
            address = request.client.host if request.client else ""
            if is_typed(message):
                self._check_guesses(address)
            # A person who joined before, in another tab, has a token already.
            known_token = request.cookies.get(desk.cookie, "")
            try:
                token, content = desk.join(message, known_token)
            except RoomError as fault:
                # Waited for here, since a desk only computes and never waits. A link's key is too
                # long to be guessed.
                if fault.code == "wrong_code" and is_typed(message):
                    await self._slow_down(address)
                raise
            response = _json(content)
            response.set_cookie(
                desk.cookie,
                token,
                max_age=86_400,
                path=desk.path,
                secure=self.is_secure,
                httponly=True,
                samesite="strict",
            )
            return response
        if action == "do":
            # The cookie is checked first: a body without one is not even read.
            viewer = self._viewer(desk, request)
            message = await _message(request)
            desk.do(viewer, message)
            return _json({})
        raise _not_found()

    def _viewer(self, desk: Desk, request: Request) -> Viewer:
        token = request.cookies.get(desk.cookie, "")
        viewer = desk.viewer(token)
        if viewer is None:
            raise RoomError(401, "join_first", "Join the room first.")
        return viewer

    def _check_guesses(self, address: str) -> None:
        """Raise RoomError while too many wrong codes wait for their answer.

        Else a guesser would send the next codes meanwhile: a right one is answered at once.
        """
        is_too_many = self._slowed.total() >= _MOST_SLOWED
        if is_too_many or self._slowed[address] >= _MOST_SLOWED_AT_ONE:
            raise RoomError(
                429,
                "slow_down",
                "Too many wrong codes at once; open the room's link, or try again in a while.",
            )

    async def _slow_down(self, address: str) -> None:
        """Wait before the answer to a wrong code, the longer the more of them there were.

        A right code does not have to wait, unless so many wrong ones of its address wait that no
        code is looked at. Behind one address, as of a proxy, a class then gets in by the link.
        """
        now = time.monotonic()
        while self._wrong_codes and now - self._wrong_codes[0] > _SLOW_WINDOW_S:
            self._wrong_codes.popleft()
        self._wrong_codes.append(now)
        excess = max(0, len(self._wrong_codes) - _SLOW_AFTER)
        self._slowed[address] += 1
        try:
            # Not a plain sleep, since closing the room would have to wait for it.
            wait_s = min(_SLOWEST_S, excess * _SLOW_STEP_S)
            async with asyncio.timeout(wait_s):
                await self._stopping.wait()
        except TimeoutError:
            pass
        finally:
            # With the key, so that addresses are not kept.
            self._slowed -= Counter([address])

    async def _events(
        self,
        desk: Desk,
        viewer: Viewer,
    ) -> AsyncIterator[str]:
        """Yield a viewer's view whenever it has changed."""
        stream = RoomStream()
        viewer.add(stream)
        self._on_visit()
        latest: JSONObject | None = None
        try:
            yield "retry: 1000\n\n"
            while not self._server.should_exit:
                if stream.is_moved:
                    # Else the browser would connect again at once, and two tabs would keep ending
                    # each other.
                    yield "event: moved\ndata: \n\n"
                    return
                view = desk.view(viewer)
                if view != latest:
                    latest = view
                    yield f"data: {json.dumps(_with_time(view))}\n\n"
                if not await stream.wait():
                    # A phone that slept does not notice that its connection is gone. An event
                    # reaches the page; a comment would not.
                    yield "event: ping\ndata: \n\n"
        finally:
            viewer.remove(stream)
            self._on_visit()


def _with_time(view: JSONObject) -> JSONObject:
    """Return a view with the server's time, since a phone's clock may differ."""
    return {**view, "at": clock()}


def _json(content: JSONObject, status: int = 200) -> Response:
    return Response(json.dumps(content), status, _SAFE, "application/json")


def _file(file: PageFile, headers: Mapping[str, str]) -> Response:
    # Every browser that can run these pages reads gzip.
    sent = {
        **headers,
        "content-encoding": "gzip",
        "vary": "accept-encoding",
    }
    return Response(
        file.content,
        headers=sent,
        media_type=file.media_type,
    )


def _not_found() -> RoomError:
    return RoomError(404, "not_found", "There is no such page in this room.")


async def _message(request: Request) -> JSONObject:
    """Return the JSON object that a page posts.

    Raises:
        RoomError: the body is too long or too slow, or it is not an object.
    """
    body = b""
    try:
        async with asyncio.timeout(_BODY_S):
            # Part by part, since a body in chunks does not announce its length.
            async for part in request.stream():
                body += part
                if len(body) > _MOST_BYTES:
                    raise RoomError(413, "too_long", "That is too long; please shorten it.")
    except TimeoutError:
        raise RoomError(408, "too_slow", "The connection is too slow; please try again.") from None
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise malformed()
    return cast("JSONObject", message)


def _bound_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    if os.name == "posix":  # on Windows, two programs would share the port
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(_MOST_CONNECTIONS)  # holds the connections that arrive while the server starts
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"the room cannot listen at {host}, port {port}: {error.strerror or error}; choose "
            "another: room.open(port=8765), or end the program that has it"
        ) from error
    return bound


def _allowed_connections() -> int:
    """Return how many connections a room may have, after allowing this process as many files.

    macOS allows 256 by default. Tapes and the room's own files need some as well.
    """
    if sys.platform == "win32":  # Windows has no such limit
        return _MOST_CONNECTIONS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MOST_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted
        if hard != resource.RLIM_INFINITY:
            most = min(wanted, hard)
        # A container may not allow it; then fewer people can connect.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(_MOST_CONNECTIONS, soft // 2)
