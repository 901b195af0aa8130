"""Servers that answer as no server should: each call ends soon, in an error of ours or a reply."""

from __future__ import annotations

import asyncio
import io
import logging
import pickle
import traceback
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from faults_kit import Attack, Case, Plan, serving
from wire_kit import FAULTS, KEY, answer_all_with, answer_chats_with, backend_at

from llmsim_lab import LLMClient, LLMConfig
from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm import ChatBackend, OllamaBackend, OpenAIBackend
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import ChatRequest, Message

pytestmark = pytest.mark.process


def chats(plan: Plan) -> Iterator[Case]:
    for name, _ in plan.chosen(FAULTS, 8, 60):
        steps = {kind: partial(chat, kind=kind, fault=name) for kind in ("Ollama", "OpenAI")}
        yield Case(name, steps)


def chat(_: Path, *, kind: str, fault: str) -> None:
    with serving(partial(answer_chats_with, fault)) as port:
        asyncio.run(ask_twice(backend_at(port, kind)))


async def ask_twice(backend: ChatBackend) -> None:
    """Ask, and again, since an answer may be meant for the next request; look for the key."""
    log = io.StringIO()
    logging.basicConfig(stream=log, level=logging.DEBUG, force=True)
    settings = LLMConfig(
        model="m",
        timeout_s=0.6,
        first_piece_s=0.6,
        total_timeout_s=2.0,
        retry_wait_s=0,
    )
    client = LLMClient(settings, backend)
    try:
        for _ in range(2):
            decision = await client.call_with_retry(
                prompt="What now?", response_model=PolicyDecision
            )
            assert "EVIL" not in decision.action
            assert KEY not in repr(decision)
    except LLMFailureException as error:
        look_for_key(error)
    assert KEY not in f"{client!r} {backend!r} {log.getvalue()}"


def look_for_key(failure: BackendError | LLMFailureException) -> None:
    shown = traceback.TracebackException.from_exception(failure, capture_locals=True)
    assert KEY not in "".join(shown.format())
    assert KEY not in f"{failure!r} {vars(failure)}"
    assert KEY.encode() not in pickle.dumps(failure)
    assert len(str(failure)) < 1_500


REQUEST = ChatRequest(model="m", messages=(Message("user", "What now?"),))
QUESTIONS: dict[str, Callable[[str], Awaitable[object]]] = {
    "look": lambda url: OllamaBackend(host=url, key=KEY).look(0.6),
    "what is loaded": lambda url: OllamaBackend("m", host=url, key=KEY).phase(REQUEST),
    "models": lambda url: OpenAIBackend(base_url=url, api_key=KEY).names(),
    "pull": lambda url: OllamaBackend(host=url, key=KEY).pull("m"),
    "tokens": lambda url: OpenAIBackend("m", base_url=url, api_key=KEY).tokens_in("x"),
    "trace": lambda url: OpenAIBackend("m", base_url=url, api_key=KEY).traced(REQUEST),
}
"""What is asked of a server beside chats."""


def questions(plan: Plan) -> Iterator[Case]:
    source = plan.source
    number = 2  # since most of them wait for seconds
    if plan.size == "long":
        number = len(QUESTIONS)
    for name, _ in plan.chosen(FAULTS, 2, 6):
        chosen = source.sample(list(QUESTIONS), number)
        steps = {question: partial(ask, question=question, fault=name) for question in chosen}
        yield Case(name, steps)


async def ask(_: Path, *, question: str, fault: str) -> None:
    with serving(partial(answer_all_with, fault)) as port:
        limit_s = 7  # for a list of models may take 5 s
        if question == "pull":
            limit_s = 2  # which a pull may reach
        try:
            async with asyncio.timeout(limit_s):
                await QUESTIONS[question](f"http://127.0.0.1:{port}")
        except BackendError as error:
            look_for_key(error)
        except TimeoutError:
            assert question in ("pull", "tokens", "trace")  # bounded by the caller


def test_what_a_server_is_asked_beside_chats_ends_too(attack: Attack) -> None:
    attack("servers: other questions", questions)


def test_a_servers_answer_is_a_reply_or_an_error_and_never_shows_the_key(attack: Attack) -> None:
    attack("servers: answers of HTTP", chats)
