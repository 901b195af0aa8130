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
from wire_kit import FAULTS, KEY, answer_all_with, answer_with

from llmsim_lab import LLMClient, LLMConfig
from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm import ChatBackend, OllamaBackend, OpenAIBackend
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import ChatRequest, Message

pytestmark = pytest.mark.process


def cases(plan: Plan) -> Iterator[Case]:
    for name, _ in plan.chosen(FAULTS, 12, 60):
        steps = {kind: partial(called, kind=kind, fault=name) for kind in ("Ollama", "OpenAI")}
        yield Case(name, steps)


def called(_: Path, *, kind: str, fault: str) -> None:
    with serving(partial(answer_with, fault)) as port:
        url = f"http://127.0.0.1:{port}"
        backend: ChatBackend = OpenAIBackend("m", base_url=f"{url}/v1", api_key=KEY)
        if kind == "Ollama":
            backend = OllamaBackend("m", host=url, key=KEY)
        asyncio.run(call(backend))


async def call(backend: ChatBackend) -> None:
    """Ask twice, since an answer may be meant for the next request, and look for the key."""
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


QUESTIONS: dict[str, Callable[[str], Awaitable[object]]] = {
    "look": lambda url: OllamaBackend(host=url, key=KEY).look(0.6),
    "what is loaded": lambda url: OllamaBackend("m", host=url, key=KEY).phase(REQUEST),
    "models": lambda url: OpenAIBackend(base_url=url, api_key=KEY).names(),
    "pull": lambda url: OllamaBackend(host=url, key=KEY).pull("m"),
    "tokens": lambda url: OpenAIBackend("m", base_url=url, api_key=KEY).tokens_in("x"),
    "trace": lambda url: OpenAIBackend("m", base_url=url, api_key=KEY).traced(REQUEST),
}
"""What is asked of a server beside chats."""
REQUEST = ChatRequest(model="m", messages=(Message("user", "What now?"),))


def questions(plan: Plan) -> Iterator[Case]:
    source = plan.source
    for name, _ in plan.chosen(FAULTS, 2, 6):
        # Most of them wait for seconds.
        number = len(QUESTIONS) if plan.size == "long" else 2
        chosen = source.sample(list(QUESTIONS), number)
        yield Case(name, {text: partial(asked, question=text, fault=name) for text in chosen})


async def asked(_: Path, *, question: str, fault: str) -> None:
    with serving(partial(answer_all_with, fault)) as port:
        asking = asyncio.ensure_future(QUESTIONS[question](f"http://127.0.0.1:{port}"))
        try:
            # A list of models may take 5 s; a pull takes as long as it takes.
            async with asyncio.timeout(2 if question == "pull" else 7):
                await asking
        except BackendError as error:
            look_for_key(error)
        except TimeoutError:
            assert question in ("pull", "tokens", "trace")  # bounded by the caller


def test_what_a_server_is_asked_beside_chats_ends_too(attack: Attack) -> None:
    attack("servers: other questions", questions)


def test_a_servers_answer_is_a_reply_or_an_error_and_never_shows_the_key(attack: Attack) -> None:
    attack("servers: answers of HTTP", cases)
