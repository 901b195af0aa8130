"""Each duration that is reported is its end minus its beginning, by a clock of the test's own."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from assistant_kit import ListLog, MemoryTasks, call, context, engine
from builders import make_client, make_simulation
from fake_ollama import FakeOllama

from llmsim_lab.assistant import FunctionTools
from llmsim_lab.assistant._recorded_tools import RecordedTools
from llmsim_lab.lab._stepper import Playing
from llmsim_lab.llm import Tape
from llmsim_lab.llm._ollama.backend import OllamaBackend
from llmsim_lab.llm._scope import scoped
from llmsim_lab.tape._recorder import LiveRecorder
from llmsim_lab.types import ChatRequest, Message


def clock(monkeypatch: pytest.MonkeyPatch, module: str, *moments: float) -> None:
    """Let a module's clock show these moments, and from the last one on stand still."""
    shown = itertools.chain(moments, itertools.repeat(moments[-1]))
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(perf_counter=lambda: next(shown)))


async def test_the_attempts_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, "llmsim_lab.llm._limits", 100.0, 101.5, 200.0, 204.0)
    _, record = await make_client([TimeoutError(), "Hi"]).converse([Message("user", "Hi")])
    assert [attempt.seconds for attempt in record.history] == [1.5, 4.0]
    assert record.seconds == 5.5


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_of_ollama(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    clock(monkeypatch, "llmsim_lab.llm._ollama.backend", 100.0, 102.5)
    with FakeOllama() as server:
        backend = OllamaBackend(host=server.host, stream=stream)
        asked = ChatRequest(model="llama3.2", messages=(Message("user", "Hi"),))
        assert (await backend.chat(asked)).seconds == 2.5
        await backend.aclose()


async def test_a_turn_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, "llmsim_lab.run._run", 100.0, 103.0)
    assert (await make_simulation().step()).seconds == 3.0


async def test_turns_that_are_being_played(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, "llmsim_lab.lab._stepper", 100.0, 101.0, 200.0, 207.0)
    playing = Playing(make_simulation(), 0, on_tick=lambda _: None, on_turn=lambda _: None)
    assert playing.seconds == 1.0
    await playing()
    assert playing.seconds == 7.0


async def test_a_decision_and_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, "llmsim_lab.assistant._decision_log", 100.0, 100.25)
    clock(monkeypatch, "llmsim_lab.assistant._engine", 200.0, 200.5)
    log = ListLog()
    made = engine(call("add_task", title="Milk"), "Added.", log=log)
    await made.process_message(context("Add milk"))
    assert [row["duration_ms"] for row in log.decisions] == [0, 250.0]
    assert [row["duration_ms"] for row in log.invocations] == [500.0]


async def test_a_decision_that_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, "llmsim_lab.assistant._decision_log", 100.0, 100.75)
    log, tools, begun = ListLog(), MemoryTasks(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    tools.instead = lambda _: hang()
    made = engine(call("list_tasks"), tools=tools, log=log)
    task = asyncio.create_task(made.process_message(context("List")))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.decisions[-1]["duration_ms"] == 750.0


async def test_a_tool_on_a_tape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def latest(name: str) -> dict[str, Any]:
        """Look up a data series by name."""
        return {"name": name}

    clock(monkeypatch, "llmsim_lab.assistant._recorded_tools", 100.0, 100.125)
    with Tape(tmp_path / "x.tape") as tape:
        recorder = LiveRecorder(tape, tape.add_run({}, name="tools", first=(0, "{}", "{}")))
        with scoped(recorder=recorder):
            await RecordedTools(FunctionTools(latest)).execute("latest", {"name": "cpi"}, "ann")
        recorder.close()
        seconds = [recorded.attempt.seconds for recorded in tape.calls(1)]
    assert seconds == [0.125]
