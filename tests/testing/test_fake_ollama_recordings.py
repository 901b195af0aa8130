"""FakeOllama against what real servers were recorded to say (tests/wire).

Compared: status, headers, framing, the order of keys and the types of values in JSON, error texts
word for word, the structure of streams. Not compared: what a model would say, sizes, times, and
numbers of tokens.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_ollama import FakeModel, FakeOllama, Fault
from fake_ollama._fake_ollama import TokenReply
from ollama_rules import refusal

from llmsim_lab.errors import BackendError
from llmsim_lab.llm import OllamaBackend
from llmsim_lab.types import ChatReply, ChatRequest, Message, ToolCall

WIRE = Path(__file__).parents[1] / "wire"
NOT_PLAYED = {
    "13-debug-render": "asks for a private debugging answer, which FakeOllama does not give",
    "80-runner-killed-midstream": "a fault, compared in a test of its own",
    "80-runner-killed-nonstream": "a fault, compared in a test of its own",
    "82-queue-full-cold": "a fault, compared in a test of its own",
    "82-queue-full": "shows the order in which a busy server answers; has no requests",
    "01-root-head": "no client of ours asks so",
    "06-405": "no client of ours asks so",
    "06-host": "what browsers may do is not played",
    "06-options": "what browsers may do is not played",
    "06-origin-bad": "what browsers may do is not played",
    "40-cloud-model": "there are no models in the cloud",
    "40-image": "messages of ours have no images",
}
SETUP: dict[str, dict[str, Any]] = {
    "10-ps-loaded": {},
    "45-keepalive-10m-ps": {"keep_alive": "10m"},
    "45-keepalive-float-ps": {"keep_alive": 1.5},
    "45-keepalive-int-ps": {"keep_alive": 120},
    "45-keepalive-neg-ps": {"keep_alive": -1},
    "45-keepalive-numeric-string-ps": {"keep_alive": -1},
    "50-ctx-ps": {"options": {"num_ctx": 256}},
    "50-ctx-beyond-train-ps": {"options": {"num_ctx": 32768}},
}
"""What has been asked of smollm2 before a recording starts."""
FREE = {"created_at", "modified_at", "expires_at", "digest", "content", "id", "token", "license"}
FREE |= {"modelfile", "parameters", "template", "system", "parameter_size"}
FREE |= {"quantization_level"}
"""Texts whose value is the server's or the model's own."""


@dataclass(frozen=True, eq=False)
class Recording:
    name: str
    version: str
    method: str
    path: str
    headers: dict[str, str]
    content: bytes
    status: int
    answer_headers: list[tuple[str, str]]
    answer: str

    @property
    def request(self) -> dict[str, Any]:
        try:
            body = json.loads(self.content)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    @property
    def is_by_model(self) -> bool:
        """Whether an answer depends on the models that are there."""
        said = ("not found", "does not support", "available context", "context length")
        return any(text in self.answer for text in said)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The JSON documents of the answer: the lines of a stream, or the one there is."""
        kind = dict(self.answer_headers).get("Content-Type", "")
        if "json" not in kind or not self.answer.strip():
            return []
        return [json.loads(line) for line in self.answer.splitlines() if line]


def read(path: Path) -> Recording:
    asked, _, answered = path.read_text(encoding="utf-8").partition("<<< HTTP ")
    asked = asked.partition(">>> ")[2]
    first, *lines = asked.splitlines()
    headers = [line[2:].partition(": ") for line in lines if line.startswith("> ")]
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
        method=first.split()[0],
        path=first.split()[1],
        headers={name: value for name, _, value in headers},
        content=content.encode(),
        status=int(code),
        answer_headers=answer_headers,
        answer=body.rstrip("\n"),
    )


PATHS = sorted(WIRE.glob("v*/*.txt"))
ALL = [read(path) for path in PATHS if path.stem not in NOT_PLAYED]
REFUSED = [r for r in ALL if r.path == "/api/chat" and r.status >= 400 and not r.is_by_model]
"""Refused for the request's own sake; FakeOllama takes any, and tests apply the rules."""
RECORDINGS = [recording for recording in ALL if recording not in REFUSED]


def recorded_reply(recording: Recording) -> ChatReply | TokenReply | None:
    """What the model said, longer where it was cut, so that the fake server has to cut too."""
    messages = [answer.get("message", {}) for answer in recording.answers]
    if not messages or recording.path != "/api/chat":
        return None
    tokens = [token for answer in recording.answers for token in answer.get("logprobs", ())]
    if tokens:
        more = [{" and on": -0.1}] * 5 if recording.answers[-1]["done_reason"] == "length" else []
        return FakeOllama.tokens([*map(candidates, tokens), *more])
    calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    text = "".join(message.get("content", "") for message in messages)
    last = recording.answers[-1]
    if last.get("done_reason") == "length":
        text += " and on it goes" * 200
    elif last.get("done") is False:  # stopped for repeating itself, so that it continues with that
        text += f" {text.split()[-1]}" * 200
    return ChatReply(
        text=text,
        tool_calls=tuple(ToolCall(name=c["name"], arguments=c["arguments"]) for c in calls),
    )


def candidates(token: dict[str, Any]) -> dict[str, float]:
    return {each["token"]: each["logprob"] for each in (token, *token.get("top_logprobs", ()))}


def serve(recording: Recording) -> FakeOllama:
    models = (
        FakeModel(name="gemma3", capabilities=("completion",), family="gemma3"),
        FakeModel(name="smollm2"),
        FakeModel(name="smollm2-native", capabilities=("completion",)),
        FakeModel(name="smollm2-tools"),
    )
    reply = recorded_reply(recording)
    return FakeOllama(models, reply=reply, version=recording.version)


def shape(value: Any, name: str = "") -> Any:
    """A JSON value with what may differ taken out; lists by their first element."""
    if isinstance(value, dict):
        inside = [(key, shape(item, key)) for key, item in value.items()]
        return [pair for pair in inside if name != "model_info" or "context_length" in pair[0]]
    if isinstance(value, list):
        return [shape(item, name) for item in value[:1]]
    if name == "error":
        return re.sub(r"\d+(?= tokens|,|\})", "N", value)
    if isinstance(value, str) and name not in FREE:
        return value
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else value


def free_texts_out(value: Any) -> Any:
    text = json.dumps(value)
    return re.sub(
        r'\["(' + "|".join(FREE) + r')", (?:"(?:[^"\\]|\\.)*"|\[[^\]]*\])\]',
        r'["\1", "text"]',
        text,
    )


def comparable(answer: Any) -> Any:
    return free_texts_out(shape(answer))


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def recording(request: pytest.FixtureRequest) -> Recording:
    assert isinstance(request.param, Recording)
    return request.param


@pytest.fixture(scope="module")
def answered(recording: Recording, client: httpx.Client) -> httpx.Response:
    with serve(recording) as server:
        if recording.name in SETUP:
            body = {"model": "smollm2", "messages": []} | SETUP[recording.name]
            client.post(f"{server.host}/api/chat", json=body).raise_for_status()
        return client.request(
            recording.method,
            server.host + recording.path,
            headers=recording.headers,
            content=recording.content or None,
        )


every_recording = pytest.mark.parametrize(
    "recording",
    RECORDINGS,
    ids=[f"{r.version}-{r.name}" for r in RECORDINGS],
    indirect=True,
    scope="module",
)


@every_recording
def test_the_fake_server_answers_in_the_recorded_form(
    recording: Recording, answered: httpx.Response
) -> None:
    assert answered.status_code == recording.status
    assert_headers_match(recording, answered)
    if not recording.answers:
        assert answered.text == recording.answer
        return
    lines = answered.text.splitlines(keepends=True)
    streamed = answered.headers["content-type"] == "application/x-ndjson"
    assert all(line.endswith("\n") == streamed for line in lines)
    got, wanted = [json.loads(line) for line in lines], recording.answers
    assert comparable(got[-1]) == comparable(wanted[-1])
    assert (len(got) > 1) == (len(wanted) > 1)
    for line in got[:-1]:
        assert comparable(line) == comparable(wanted[0])


@pytest.mark.parametrize(
    "recording",
    [recording for recording in RECORDINGS if "logprobs" in recording.answer],
    ids=lambda recording: recording.name,
    indirect=True,
    scope="module",
)
def test_log_probabilities_are_answered_as_recorded(
    recording: Recording, answered: httpx.Response
) -> None:
    lines = [json.loads(line) for line in answered.text.splitlines()]
    wanted = [answer.get("logprobs") for answer in recording.answers]
    assert [line.get("logprobs") for line in lines] == wanted


@pytest.mark.parametrize(
    "recording",
    [recording for recording in ALL if recording.path == "/api/chat"],
    ids=lambda recording: f"{recording.version}-{recording.name}",
)
def test_the_rules_reject_what_a_server_rejected_in_its_words(recording: Recording) -> None:
    old = recording.version == "0.24.0"
    answer = (recording.status, recording.answers[-1].get("error"))
    wanted = answer if recording in REFUSED else None
    assert refusal(recording.content, old=old) == wanted


def assert_headers_match(recording: Recording, answered: httpx.Response) -> None:
    framing = {"content-length", "transfer-encoding"}
    wanted = {name.lower(): value for name, value in recording.answer_headers}
    for name in framing | {"date"}:
        assert (name in wanted) == (name in answered.headers) or name in framing, name
    left_out = {*framing, "date", "vary"}
    kept = {name: value for name, value in answered.headers.items() if name not in left_out}
    assert kept == {name: value for name, value in wanted.items() if name not in left_out}
    # Framing follows from the length, except in streams; the fake's texts have other lengths.
    chunked = "transfer-encoding" in answered.headers
    assert chunked != ("content-length" in answered.headers)
    by_length = "charset" in answered.headers.get("content-type", "charset")
    if by_length:
        assert chunked == (len(answered.content) > 2048)
        assert ("transfer-encoding" in wanted) == (len(recording.answer.encode()) > 2048)
    else:
        assert chunked == ("transfer-encoding" in wanted)


@every_recording
def test_the_fake_server_escapes_and_orders_json_as_go_does(
    recording: Recording, answered: httpx.Response
) -> None:
    for line in answered.text.splitlines() if recording.answers else ():
        assert not re.search("[<>&]", line)
        assert ": " not in re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)


def test_every_recording_is_played_or_has_a_reason_not_to_be() -> None:
    assert len(RECORDINGS) > 70
    assert len(REFUSED) > 25
    assert set(NOT_PLAYED) <= {path.stem for path in PATHS}


def fault_text(name: str) -> str:
    text = (WIRE / "v0.32.15" / f"{name}.txt").read_text(encoding="utf-8")
    match = re.search(r'\{"error":"[^"]*"\}', text)
    assert match
    return match.group()


def post(server: FakeOllama, **more: Any) -> httpx.Response:
    body = {"model": "llama3.2", "messages": [{"role": "user", "content": "A story."}]}
    return httpx.post(f"{server.host}/api/chat", json=body | more)


def test_a_runner_killed_mid_stream_ends_it_as_recorded() -> None:
    with FakeOllama(reply="Once upon a time, there was a fox.") as server:
        server.fail_next(Fault.error_line(after=5))
        answer = post(server)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = answer.text.splitlines()
    assert lines[-1] == fault_text("80-runner-killed-midstream")
    assert [json.loads(line)["done"] for line in lines[:-1]] == [False] * 5


def test_a_runner_killed_during_a_plain_request_answers_as_recorded() -> None:
    with FakeOllama() as server:
        server.fail_next(Fault.error_line())
        answer = post(server, stream=False)
    assert (answer.status_code, answer.text) == (500, fault_text("80-runner-killed-nonstream"))


def test_a_full_queue_answers_as_recorded() -> None:
    with FakeOllama() as server:
        server.fail_next(Fault.status(503))
        answer = post(server)
    assert (answer.status_code, answer.text) == (503, fault_text("82-queue-full-cold"))


CHATS = [one for one in ALL if one.path == "/api/chat" and one.answers]


@pytest.mark.parametrize("chat", CHATS, ids=[f"{chat.version}-{chat.name}" for chat in CHATS])
async def test_every_recorded_answer_is_a_reply_or_a_failure_in_the_servers_words(
    chat: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/version":
            return httpx.Response(200, json={"version": chat.version})
        if request.url.path != "/api/chat":
            return httpx.Response(404, json={"error": "not asked"})
        body = httpx.ByteStream(chat.answer.encode())
        return httpx.Response(chat.status, headers=chat.answer_headers, stream=body)

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.MockTransport(handle))
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
    if error is None:
        assert caught.value.reason == "generation_stopped"
        assert caught.value.reply.text == text
    else:
        assert caught.value.status_code == (chat.status if chat.status >= 400 else None)
        by_name = {"40-missing": "model_not_found", "50-ctx": "context_overflow"}
        others = "server_error" if "50" in str(chat.status) else "client_error"
        reasons = [reason for name, reason in by_name.items() if chat.name.startswith(name)]
        assert caught.value.reason in (reasons or [others])
