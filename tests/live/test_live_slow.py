"""What is promised about time, on a real server, however slow it is.

The server is its user's: what stops here is only a relay before it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from builders import eight_lines

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend, Tape
from llmsim_lab.types import CallRecord, ChatRequest, Message
from tests.live.conftest import Live

pytestmark = pytest.mark.timeout(3600)
SENTENCE = "Inflation is high, output is above its potential, and prices rise. "
STORY = "Tell a long story about a fox."


def client_of(live: Live, host: str = "", **settings: Any) -> LLMClient:
    config = LLMConfig(**{"model": live.model, "num_ctx": 2048, "max_tokens": 60, **settings})
    return LLMClient(config, OllamaBackend(host=host or live.host))


async def called(client: LLMClient, text: str = "Say hello.") -> CallRecord:
    _, call = await client.converse([Message("user", text)])
    return call


def faults(call: CallRecord) -> list[str | None]:
    return [attempt.reason for attempt in call.history]


def long_prompt() -> str:
    """Return a prompt of some 900 tokens that no cache knows."""
    return f"{uuid.uuid4()}: {SENTENCE * 60}"


class Relay:
    """Hands on what a client and the server send each other, until it is cut."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        if address.scheme == "https" or address.path:
            pytest.skip(f"the relay cannot stand in front of {target}")
        self.address, self.port = address.hostname, address.port or 80
        self.host, self.at = "", 0
        self.writes = asyncio.Event()
        self._server: asyncio.Server
        self._writers: list[asyncio.StreamWriter] = []

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._hand_on, "127.0.0.1", self.at)
        self.at = self._server.sockets[0].getsockname()[1]
        self.host = f"http://127.0.0.1:{self.at}"

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(self.address, self.port)
        self._writers += [writer, to_there]
        with suppress(ConnectionError):
            await asyncio.gather(self._pipe(reader, to_there), self._pipe(there, writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)
            if b'"message":' in piece:
                self.writes.set()
        writer.close()

    def cut(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()


def test_the_eight_lines_of_the_readme_run(
    live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code = eight_lines(f'connect("ollama:{live.model}", host="{live.host}", quiet=True)')
    exec(code, {})
    calls = [call for run in Tape("my.tape").runs() for call in Tape("my.tape").calls(run.id)]
    assert "timeout" not in [call.attempt.reason for call in calls]
    assert Path("rates.png").is_file()


async def test_a_prompt_that_is_read_for_longer_than_a_silence_is_one_attempt(live: Live) -> None:
    heard = [time.monotonic()]
    backend = OllamaBackend(live.model, host=live.host)
    options = {"num_ctx": 2048, "num_predict": 30}
    request = ChatRequest(live.model, (Message("user", long_prompt()),), options=options)
    await backend.chat(request, on_text=lambda _: heard.append(time.monotonic()))
    first_s, *gaps_s = [after - before for before, after in pairwise(heard)]
    gap_s = max(gaps_s)
    if first_s < 4 * gap_s:
        pytest.skip(f"it reads about as fast as it writes: {first_s:.2f} and {gap_s:.2f} s")
    client = client_of(live, timeout_s=(first_s * gap_s) ** 0.5, max_tokens=30)
    assert faults(await called(client, long_prompt())) == [None]


async def test_other_windows_and_a_queue_are_no_faults(live: Live) -> None:
    for num_ctx in (1024, 2048, 1024):
        assert faults(await called(client_of(live, num_ctx=num_ctx))) == [None]
    client = client_of(live, max_concurrency=3)
    calls = await asyncio.gather(*[called(client, long_prompt()) for _ in range(3)])
    assert [faults(call) for call in calls] == [[None]] * 3


async def test_while_a_prompt_is_read_the_server_answers_and_a_cancelled_one_frees_it(
    live: Live,
) -> None:
    client = client_of(live)
    asking = asyncio.create_task(called(client, long_prompt()))
    await asyncio.sleep(0.05)
    request = ChatRequest(live.model, (Message("user", "?"),))
    async with asyncio.timeout(10):
        assert await client.backend.phase(request) in ("", "loading")  # type: ignore[attr-defined]
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    assert faults(await called(client)) == [None]


@pytest.mark.parametrize("is_back", [True, False])
async def test_a_server_that_goes_in_an_answer_is_waited_for(live: Live, is_back: bool) -> None:
    relay = Relay(live.host)
    await relay.listen()
    await called(client_of(live))  # it is loaded
    client = client_of(live, relay.host, wait_for_server_s=20 if is_back else 1, retry_wait_s=0.1)
    asking = asyncio.create_task(called(client, STORY))
    await relay.writes.wait()
    relay.cut()
    if is_back:
        await asyncio.sleep(1)
        await relay.listen()
        assert faults(await asking) == ["connection_error", None]
    else:
        with pytest.raises(LLMFailureException, match="no Ollama server answers at") as caught:
            await asking
        assert caught.value.reason == "connection_error"
    await client.aclose()
    relay.cut()


async def test_a_model_that_is_not_there_is_named_at_once(live: Live) -> None:
    with pytest.raises(LLMFailureException, match="no-such-model") as caught:
        await called(client_of(live, model="no-such-model"))
    assert (caught.value.reason, caught.value.attempts) == ("model_not_found", 1)
