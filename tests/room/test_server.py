"""How long the room's server waits for a connection, and whom it slows down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from room_kit import PEOPLE, Pots, open_room
from uvicorn.server import ServerState

from llmsim_lab.room import _server
from llmsim_lab.room._server import PatientProtocol


class Alarm:
    """Something to be done later; ``cancelled`` if not any more."""

    def __init__(self, after_s: float, work: Callable[[], object]) -> None:
        self.after_s = after_s
        self.ring = work
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Line:
    """A connection: its transport, and the loop on which it is served."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []
        self.aborted = 0
        self.protocol = PatientProtocol(
            uvicorn.Config(self.app, log_config=None),
            ServerState(),
            {},
            self,  # type: ignore[arg-type]
        )
        self.protocol.connection_made(self)  # type: ignore[arg-type]

    async def app(self, scope: object, receive: object, send: object) -> None:
        """Answer nothing."""

    def call_later(self, after_s: float, work: Callable[[], object]) -> Alarm:
        self.alarms.append(Alarm(after_s, work))
        return self.alarms[-1]

    def create_task(self, work: Any) -> Any:
        work.close()
        return self

    def add_done_callback(self, done: object) -> None: ...

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        self.aborted += 1

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def pause_reading(self) -> None: ...

    def waits(self) -> list[float]:
        """Return for how long it waits now, of each alarm that was not put off."""
        return [alarm.after_s for alarm in self.alarms if not alarm.cancelled]


def test_a_request_has_ten_seconds_for_its_headers_and_an_answer_takes_its_time() -> None:
    line = Line()
    for part in (b"GET / HTTP/1.1\r\n", b"host: a\r\n"):
        line.protocol.data_received(part)
        assert line.waits() == [10.0]
    line.protocol.data_received(b"\r\n")
    assert line.waits() == []
    # The next request of the same connection waits for the answer, and then has its own time.
    line.protocol.data_received(b"GET / HTTP/1.1\r\n")
    assert line.waits() == []
    line.protocol.cycle.response_complete = True
    line.protocol.data_received(b"host: a\r\n")
    assert line.waits() == [10.0]
    line.alarms[-1].ring()
    assert line.aborted == 1
    # Whose answer has begun meanwhile is not cut off.
    line.protocol.cycle.response_complete = False
    line.alarms[-1].ring()
    assert line.aborted == 1
    line.protocol.connection_lost(ConnectionResetError())
    assert line.aborted == 1


def test_who_takes_nothing_of_an_answer_for_thirty_seconds_is_cut_off() -> None:
    line = Line()
    line.protocol.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    line.protocol.pause_writing()
    line.protocol.pause_writing()
    assert (line.waits(), line.protocol.flow.write_paused) == ([30.0], True)
    line.protocol.resume_writing()
    assert (line.waits(), line.protocol.flow.write_paused) == ([], False)
    line.protocol.resume_writing()
    line.protocol.pause_writing()
    assert line.waits() == [30.0]
    line.alarms[-1].ring()
    assert line.aborted == 1
    line.protocol.connection_lost(ConnectionResetError())
    assert line.waits() == []


async def test_wrong_codes_are_answered_ever_more_slowly_and_right_ones_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1_000.0, monotonic=lambda: clock.now)
    waits: list[float] = []

    def timeout(wait_s: float) -> asyncio.Timeout:
        if wait_s != _server._BODY_S:
            waits.append(round(wait_s, 6))
            wait_s = 0
        return asyncio.timeout(wait_s)

    async with open_room(Pots(players=PEOPLE, turns=1)) as here:
        hurried = SimpleNamespace(**{**vars(asyncio), "timeout": timeout})
        monkeypatch.setattr(_server, "asyncio", hurried)
        monkeypatch.setattr(_server, "time", clock)
        guest = here.visitor()

        async def wrong() -> int:
            return (await guest.post("join", {"code": "WRONG2"})).status_code

        assert {await wrong() for _ in range(13)} == {403}
        # Ten of the latest minute are free; each more costs a tenth of a second, up to three.
        assert waits == [0] * 10 + [0.1, 0.2, 0.3]
        monkeypatch.setattr(_server, "_SLOW_STEP_S", 1)
        await wrong()
        assert waits[-1] == 3.0
        clock.now += 60
        await wrong()
        assert waits[-1] == 3.0
        clock.now += 0.01
        await wrong()
        assert waits[-1] == 0
        # As people type it.
        code = here.room.code.lower()
        right = {"name": "Ana", "code": f" {code[:3]}-{code[3:]} "}
        # While too many wait, no code is looked at, but the link opens the room.
        for limit in ("_MOST_SLOWED", "_MOST_SLOWED_AT_ONE"):
            with monkeypatch.context() as meanwhile:
                meanwhile.setattr(_server, limit, 0)
                assert await wrong() == 429
                assert (await here.visitor().post("join", right)).status_code == 429
                await here.visitor().join(here.room)
        assert (await guest.post("join", right)).json() == {"guest": "p003", "name": "Ana"}
        assert len(waits) == 16
