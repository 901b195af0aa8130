"""For the client's tests: a question, its good answer, and calls that fail."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import CallRecord, CallSite, ChatReply, Message

__all__ = ["GOOD", "SITE", "Answer", "Served", "decide", "decided", "failure_of", "say"]

GOOD = {"action": "Raise the rate", "reasoning": "Prices rise.", "confidence": 0.8}
SITE = CallSite(component="agent", agent="Aland", turn=1)


async def decide(client: LLMClient, **more: Any) -> PolicyDecision:
    """Ask for a policy."""
    asked = {"prompt": "What now?", "response_model": PolicyDecision, "site": SITE, **more}
    decision: PolicyDecision = await client.call_with_retry(**asked)
    return decision


async def decided(client: LLMClient, **more: Any) -> CallRecord:
    """Ask for a policy; returns the record of the call."""
    decision = await decide(client, **more)
    assert decision.call is not None
    return decision.call


async def say(client: LLMClient, text: str = "Hi") -> tuple[ChatReply, CallRecord]:
    return await client.converse([Message("user", text)])


async def failure_of(client: LLMClient, **more: Any) -> LLMFailureException:
    with pytest.raises(LLMFailureException) as caught:
        await decide(client, **more)
    return caught.value


# Servers without a socket, which give every request the next answer of a list


@dataclass
class Answer:
    body: bytes | Exception
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Served:
    """All servers: each request gets the next answer, the last one over and over.

    An Ollama's version is a new one, unless the answer has one.
    """

    answers: list[Answer] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)

    def __call__(self, body: bytes | Exception, status: int = 200, **headers: str) -> None:
        """Give this answer from now on."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers = [Answer(body, status, named)]

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer.body, Exception):
            raise answer.body
        if request.url.path == "/api/version" and b"version" not in answer.body:
            return httpx.Response(200, json={"version": "0.32.15"})
        stream = httpx.ByteStream(answer.body)
        return httpx.Response(answer.status, headers=answer.headers, stream=stream)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was asked of the model."""
        return [json.loads(request.content) for request in self.requests if request.content]
