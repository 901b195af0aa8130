"""A call from ``ask`` to the backend: its layers, and which objects may be a backend."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
from worlds import PublicGoods

import llmsim_lab
from llmsim_lab import Budget, LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.llm import ChatBackend, ChatReply, ChatRequest
from llmsim_lab.types import ModelInfo

PACKAGE = str(Path(llmsim_lab.__file__).parent)
GIFT = {"reasoning": "Why not.", "amount": 2, "confidence": 1}


def client_of(backend: Any) -> LLMClient:
    return LLMClient(LLMConfig(model="m", retry_wait_s=0), backend)


def test_a_call_passes_six_coroutines_of_ours_at_most() -> None:
    passed: list[str] = []

    def answer(request: ChatRequest) -> dict[str, Any]:
        passed.clear()
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE) and code.co_flags & inspect.CO_COROUTINE:
                passed.append(code.co_qualname)
        return GIFT

    PublicGoods(llm_client=client_of(ScriptedBackend(answer))).run(1)
    first = passed.index("LLMClient.call_with_retry")
    assert passed[:first] == [
        "ScriptedBackend.chat",
        "Queued._in_turn",
        "Recorded.send",
        "Retried.send",
    ]
    assert passed[first + 1] == "TurnQuestions._wait_for"


class Other:
    """A backend that derives from nothing."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text="Yes.")


class Derived(ChatBackend):
    """A backend with what the base class has."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text="Yes.")


@pytest.mark.parametrize("backend", [Other(), Derived()])
async def test_a_backend_needs_one_method_whatever_it_derives_from(backend: Any) -> None:
    client = client_of(backend)
    [reply, _] = await client.converse([llmsim_lab.types.Message("user", "Well?")])
    assert reply.text == "Yes."
    assert await client.model_info() == ModelInfo(name="m", backend=type(backend).__name__)
    assert client.backend is backend
    await client.aclose()


def test_a_budget_counts_attempts() -> None:
    backend = ScriptedBackend(lambda request: GIFT if request.attempt == 2 else "Two.")
    run = PublicGoods(llm_client=client_of(backend))
    run.run(1, budget=Budget(calls=5))
    assert (len(backend.requests), run.turn_number) == (5, 0)
