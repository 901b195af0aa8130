"""What real servers were recorded to say (tests/wire): the backend understands each answer."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from ollama_rules import refusal

from llmsim_lab.errors import BackendError
from llmsim_lab.llm import OllamaBackend, OpenAIBackend
from llmsim_lab.types import ChatRequest, Message

WIRE = Path(__file__).parents[1] / "wire"


@dataclass(frozen=True, eq=False)
class Recording:
    name: str
    version: str
    content: bytes
    status: int
    answer_headers: list[tuple[str, str]]
    answer: str

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The JSON documents of the answer: the lines of a stream, or the one there is."""
        return [json.loads(line) for line in self.answer.splitlines() if line]


def read(path: Path) -> Recording:
    asked, _, answered = path.read_text(encoding="utf-8").partition("<<< HTTP ")
    _, *lines = asked.partition(">>> ")[2].splitlines()
    content = "\n".join(line for line in lines if not line.startswith("> "))
    status, _, rest = answered.partition("\n")
    if "{" in status:  # written by a script: the headers as a dict in the status line
        code, _, raw = status.partition(" ")
        answer_headers, body = list(ast.literal_eval(raw).items()), rest
    else:
        code = status.split()[0]
        head, _, body = rest.partition("\n\n")
        pairs = [line[2:].partition(": ") for line in head.splitlines() if line.startswith("< ")]
        answer_headers = [(name, value) for name, _, value in pairs]
    body = "\n".join(line for line in body.splitlines() if not line.startswith("# "))
    return Recording(
        name=path.stem,
        version=path.parent.name.removeprefix("v"),
        content=content.encode(),
        status=int(code),
        answer_headers=answer_headers,
        answer=body.rstrip("\n"),
    )


def is_chat(path: Path) -> bool:
    return "/api/chat" in path.read_text(encoding="utf-8").partition("<<< HTTP ")[0]


def is_by_model(recording: Recording) -> bool:
    """Return True if the answer depends on the models that are there."""
    said = ("not found", "does not support", "available context", "context length")
    return any(text in recording.answer for text in said)


LEFT_OUT = {
    "13-debug-render": "asks for a private debugging answer",
    "06-405": "not a chat",
    "06-options": "not a chat",
    **dict.fromkeys(("80-after-crash", "81-after-disconnect", "83-keepalive-expiry"), "no request"),
    "80-runner-killed-nonstream": "the package only asks for streams",
    "82-queue-full-cold": "shows the order in which a busy server answers; has no requests",
    "82-queue-full": "the same",
    "40-cloud-model": "there are no models in the cloud",
    "40-image": "messages of ours have no images",
}
"""By name, why."""
PATHS = [path for path in sorted(WIRE.glob("v*/*.txt")) if path.stem not in LEFT_OUT]
CHATS = [read(path) for path in PATHS if is_chat(path)]
every_chat = pytest.mark.parametrize("chat", CHATS, ids=lambda chat: f"{chat.version}-{chat.name}")


@every_chat
def test_the_rules_reject_what_a_server_rejected(chat: Recording) -> None:
    # Killed in the middle, a server has answered 200.
    refused = chat.status >= 400 and not is_by_model(chat)
    assert (refusal(chat.content) is not None) == refused


def answer_of(chat: Recording) -> httpx.Response:
    body = httpx.ByteStream(chat.answer.encode())
    return httpx.Response(chat.status, headers=chat.answer_headers, stream=body)


@every_chat
async def test_every_recorded_answer_is_a_reply_or_a_failure_in_the_servers_words(
    chat: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/version":
            return httpx.Response(200, json={"version": chat.version})
        if request.url.path != "/api/chat":
            return httpx.Response(404, json={"error": "not asked"})
        return answer_of(chat)

    monkeypatch.setattr("llmsim_lab.llm._http.BoundedHTTP", lambda **_: httpx.MockTransport(handle))
    backend = OllamaBackend("smollm2", host="http://box:1")
    asked = ChatRequest(model="smollm2", messages=(Message("user", "Hello"),))
    error = next((one["error"] for one in chat.answers if "error" in one), None)
    messages = [one.get("message", {}) for one in chat.answers]
    text = "".join(message.get("content", "") for message in messages)
    if error is None and chat.answers[-1]["done"]:
        reply = await backend.chat(asked)
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        assert reply.text == text
        assert [one.name for one in reply.tool_calls] == [one["function"]["name"] for one in calls]
        assert reply.prompt_tokens == chat.answers[-1].get("prompt_eval_count")
        assert reply.done_reason == chat.answers[-1]["done_reason"]
        return
    with pytest.raises(BackendError) as caught:
        await backend.chat(asked)
    assert "not valid JSON" not in str(caught.value)
    assert '{"error"' not in str(caught.value), "the JSON inside the text was not taken apart"
    if error is None:
        assert caught.value.reason == "generation_stopped"
        assert caught.value.reply.text == text
    else:
        assert caught.value.status_code == (chat.status if chat.status >= 400 else None)
        by_name = {
            "40-missing": "model_not_found",
            "50-ctx": "context_overflow",
            "80-runner-killed": "server_error",
        }
        others = "server_error" if "50" in str(chat.status) else "client_error"
        reasons = [reason for name, reason in by_name.items() if chat.name.startswith(name)]
        assert caught.value.reason in (reasons or [others])


@pytest.mark.parametrize("name", ["60-openai-stream", "60-openai-missing"])
async def test_what_ollama_says_by_the_protocol_of_openai_is_understood_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = read(WIRE / "v0.32.15" / f"{name}.txt")

    transport = httpx.MockTransport(lambda _: answer_of(chat))
    monkeypatch.setattr("llmsim_lab.llm._http.BoundedHTTP", lambda **_: transport)
    asked = ChatRequest(model="nope", messages=(Message("user", "Hello"),))
    backend = OpenAIBackend("nope", base_url="http://box:1/v1")
    if chat.status == 200:
        reply = await backend.chat(asked)
        assert (reply.text, reply.done_reason) == ("A (raise)", "length")
        assert (reply.prompt_tokens, reply.reply_tokens) == (48, 4)
    else:
        with pytest.raises(BackendError, match="has no model 'nope'") as caught:
            await backend.chat(asked)
        assert (caught.value.reason, caught.value.status_code) == ("model_not_found", 404)
