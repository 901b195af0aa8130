"""The embedded backend on the real small model: answers, limits, crashes, hangs, sharing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmsim_lab.errors import BackendError, ConfigError, ModelFileError
from llmsim_lab.llm.embedded import backend
from llmsim_lab.llm.embedded.backend import EmbeddedBackend
from llmsim_lab.llm.embedded.weights import find_model
from llmsim_lab.types import ChatReply, ChatRequest, Message

pytestmark = [pytest.mark.embedded, pytest.mark.process]

RATES = [9.0, 9.25, 9.38]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "zone": {"type": "string", "maxLength": 12},
        "rate": {"enum": RATES},
        "change": {"type": "number", "minimum": 0.5, "maximum": 4.5},
    },
    "required": ["zone", "rate", "change"],
}
LONG = {"num_predict": 3000, "seed": 1, "temperature": 2}


def request(text: str = "Say hello.", *, timeout_s: float = 60, **changes: Any) -> ChatRequest:
    values: dict[str, Any] = {
        "model": "auto",
        "messages": (Message("system", "You are brief."), Message("user", text)),
        "options": {"num_predict": 8, "seed": 1},
        "timeout_s": timeout_s,
    }
    return ChatRequest(**values | changes)


def pid_of(embedded: EmbeddedBackend) -> int:
    """Return the process id of the backend's child, which must run."""
    child = embedded._server.running()
    assert child is not None
    return child._process.pid


async def begun(embedded: EmbeddedBackend) -> asyncio.Task[ChatReply]:
    """Return a long request of which the first piece of the answer has come."""
    writes = asyncio.Event()

    def hear(piece: str) -> None:
        if piece:  # empty ones come while the model still reads
            writes.set()

    long = request("Tell a story.", options=LONG)
    task = asyncio.create_task(embedded.chat(long, on_text=hear))
    task.add_done_callback(lambda _: writes.set())
    await writes.wait()
    assert not task.done()
    return task


@pytest.fixture
async def embedded(small_model: Path) -> AsyncIterator[EmbeddedBackend]:
    ready = EmbeddedBackend("smollm2-135m", num_ctx=1024)
    yield ready
    await ready.aclose()
    assert ready._server.child is None


# Answers


async def test_it_answers_and_counts_tokens(embedded: EmbeddedBackend) -> None:
    began = time.perf_counter()
    assert await embedded.phase(request()) == "loading"
    reply = await embedded.chat(request())
    assert await embedded.phase(request()) == "reading"
    assert 0 < reply.load_seconds < reply.seconds < time.perf_counter() - began
    assert reply.text
    assert reply.prompt_tokens is not None
    assert reply.prompt_tokens > 10
    assert reply.reply_tokens is not None
    assert 1 <= reply.reply_tokens <= 8
    assert (await embedded.chat(request())).load_seconds == 0


async def test_without_the_prompt_cache_words_repeat_and_their_tokens_can_be_looked_at(
    embedded: EmbeddedBackend,
) -> None:
    options = {"num_predict": 12, "seed": 3, "temperature": 1, "cache_prompt": False}
    asked = request("Tell a story.", options=options, top_logprobs=5)
    reply = await embedded.chat(asked)
    await embedded.chat(request("Tell a story. A long one."))
    traced = await embedded.traced(asked)
    assert b"".join(token.content for token, _ in traced).decode() == reply.text
    assert all(len(likely) == 5 for _, likely in traced)
    first, likely = traced[0]
    assert likely[0].probability >= first.probability > 0


async def test_replies_keep_to_the_rates_of_the_schema(embedded: EmbeddedBackend) -> None:
    for seed in range(8):
        options = {"num_predict": 80, "seed": seed, "temperature": 2}
        reply = await embedded.chat(request("Set rates.", schema=SCHEMA, options=options))
        decision = json.loads(reply.text)
        assert list(decision) == ["zone", "rate", "change"]
        assert decision["rate"] in RATES
        assert 0.5 <= decision["change"] <= 4.5


async def test_each_kind_of_question_keeps_its_start(embedded: EmbeddedBackend) -> None:
    """Also if a short one came between that begins in the same way."""
    start = "You trade with others, and they trade with you."
    rules = "Each coin that you lend comes back doubled. " * 20
    anew = list[bool]()
    for turn in range(2):
        for text in (f"{start} {rules} Ann?", f"{start} {rules} Bob?", f"{start} Fair?"):
            messages = (Message("user", f"{text} {turn}"),)
            reply = await embedded.chat(request(messages=messages, options={"num_predict": 1}))
            assert reply.prompt_tokens is not None
            anew.append(reply.prompt_tokens - (reply.cached_tokens or 0) > 40)
    assert anew == [True, False, False, False, False, False]


# Limits


async def test_too_long_a_prompt_names_both_numbers(embedded: EmbeddedBackend) -> None:
    with pytest.raises(BackendError, match=r"1,?2\d\d tokens, .* of 1024 tokens can") as caught:
        await embedded.chat(request("word " * 1200))
    assert caught.value.reason == "context_overflow"


async def test_another_models_request_is_rejected(embedded: EmbeddedBackend) -> None:
    with pytest.raises(BackendError, match="runs 'smollm2-135m' and was asked for 'llama3'") as e:
        await embedded.chat(request(model="llama3"))
    assert e.value.reason == "model_not_found"


# Faults


async def test_a_cancelled_request_stops_the_generation(embedded: EmbeddedBackend) -> None:
    await embedded.chat(request())
    before = pid_of(embedded)
    task = await begun(embedded)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await embedded.chat(request())
    assert pid_of(embedded) == before


async def test_a_killed_child_is_one_failed_request_and_then_a_new_child(
    embedded: EmbeddedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    await embedded.chat(request())
    task = await begun(embedded)
    os.kill(pid_of(embedded), signal.SIGKILL)
    with pytest.raises(BackendError, match=r"was lost: signal SIGKILL") as caught:
        await task
    assert (caught.value.reason, caught.value.retry) == ("connection_error", True)
    assert (await embedded.chat(request())).load_seconds > 0
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("llmsim_lab")]
    assert [line.split()[0] for line in lines] == ["EMBEDDED_ENDED"]


async def test_a_hung_child_is_ended_and_started_again(
    embedded: EmbeddedBackend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_HANG_GRACE_S", 0.1)
    await embedded.chat(request())
    before = pid_of(embedded)
    psutil.Process(before).suspend()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await embedded.chat(request())
    assert "hung: it was silent for " in caplog.text
    await embedded.chat(request())
    assert pid_of(embedded) != before


# Sharing


async def test_backends_of_one_model_share_a_process(embedded: EmbeddedBackend) -> None:
    await embedded.chat(request())
    second = EmbeddedBackend("smollm2-135m", num_ctx=512)
    await second.chat(request())
    assert pid_of(second) == pid_of(embedded)
    await second.aclose()
    await second.aclose()
    await embedded.chat(request())
    assert pid_of(embedded)


# Which model


async def test_model_info_says_which_weights_answer(embedded: EmbeddedBackend) -> None:
    info = await embedded.model_info()
    assert (info.name, info.backend) == ("smollm2-135m", "embedded")
    assert info.digest == find_model("smollm2-135m").sha256
    assert info.version


@pytest.mark.parametrize(
    ("model", "num_ctx", "kind", "message"),
    [
        ("gpt", 64, ConfigError, "no embedded model 'gpt'"),
        ("none.gguf", 64, ModelFileError, "there is no model file .*none.gguf"),
        ("smollm2-135m", 0, ConfigError, "num_ctx=0 must be"),
        ("~nobody-here/x.gguf", 64, ConfigError, "'~nobody-here/x.gguf' begins with a home folder"),
        (f"{'x' * 5_000}.gguf", 64, ConfigError, "model='xxx.* is too long for a file's name"),
        ("a\0b.gguf", 64, ConfigError, r"model='a\\x00b.gguf' is not a file's name"),
        ("loop.gguf", 64, ConfigError, "model='loop.gguf' is a link that leads back to itself"),
    ],
)
def test_bad_arguments_are_rejected_at_once(
    model: str,
    num_ctx: int,
    kind: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop.gguf").symlink_to("loop.gguf")
    with pytest.raises(kind, match=message):
        EmbeddedBackend(model, num_ctx=num_ctx)
