"""FakeOllama as the official client sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest
from fake_ollama import FakeModel, FakeOllama, Fault
from fake_ollama._fake_ollama import example

from llmsim_lab.types import ChatReply, ToolCall

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def parts_of(server: FakeOllama, **more: Any) -> list[ollama.ChatResponse]:
    """Ask through the official client; one part, or those of a stream."""
    arguments: dict[str, Any] = {"model": "llama3.2", "messages": QUESTION} | more
    with ollama.Client(server.host, trust_env=False) as client:
        answer = client.chat(**arguments)
        return list(answer) if more.get("stream") else [answer]


def chat(server: FakeOllama, **more: Any) -> ollama.ChatResponse:
    [answer] = parts_of(server, **more)
    return answer


def text_of(answer: ollama.ChatResponse) -> str:
    return answer.message.content or ""


def post(server: FakeOllama, **more: Any) -> httpx.Response:
    body = {"model": "llama3.2", "messages": QUESTION, "stream": False} | more
    return httpx.post(f"{server.host}/api/chat", json=body, trust_env=False)


def post_impatiently(server: FakeOllama) -> None:
    body = {"model": "llama3.2", "messages": QUESTION}
    patience = httpx.Timeout(30, read=0.1)
    httpx.post(f"{server.host}/api/chat", json=body, timeout=patience, trust_env=False)


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with FakeOllama(reply="The capital of France is Paris.") as server:
        yield server


class TestReplies:
    def test_a_stream_brings_the_same_text_in_pieces(self, server: FakeOllama) -> None:
        parts = parts_of(server, stream=True)
        pieces = [part.message.content for part in parts]
        assert pieces == ["The", " capital", " of", " France", " is", " Paris", ".", ""]
        assert [part.done for part in parts] == [False] * 7 + [True]

    @pytest.mark.parametrize("stream", [True, False])
    def test_tool_calls_and_thinking_come_in_their_own_fields(self, stream: bool) -> None:
        reply = ChatReply(
            text="",
            thinking="I need the weather.",
            tool_calls=(ToolCall(name="get_weather", arguments={"city": "Paris"}),),
        )
        model = FakeModel(name="qwen3", capabilities=("completion", "tools", "thinking"))
        with FakeOllama([model], reply=reply) as server:
            more = {"stream": stream, "think": True, "tools": [WEATHER], "model": "qwen3"}
            parts = parts_of(server, **more)
        calls = [call for part in parts for call in part.message.tool_calls or ()]
        assert [(c.function.name, c.function.arguments) for c in calls] == [
            ("get_weather", {"city": "Paris"})
        ]
        thoughts = "".join(part.message.thinking or "" for part in parts)
        assert thoughts == "I need the weather."
        assert parts[-1].done_reason == "stop"


class TestLogProbabilities:
    REPLY = FakeOllama.tokens([{"hold": -2.5, "raise": -0.2, "cut": -3.0}, {".": -0.1, "!": -4.0}])

    @pytest.mark.parametrize("stream", [True, False])
    def test_a_place_says_its_first_token_and_lists_the_likeliest(self, stream: bool) -> None:
        with FakeOllama(reply=self.REPLY) as server:
            parts = parts_of(server, stream=stream, logprobs=True, top_logprobs=2)
        assert "".join(part.message.content or "" for part in parts) == "hold."
        first, second = (token for part in parts for token in part.logprobs or ())
        assert (first.token, first.logprob) == ("hold", -2.5)
        listed = [(each.token, each.logprob) for each in first.top_logprobs or ()]
        assert listed == [("raise", -0.2), ("hold", -2.5)]
        assert (second.token, second.logprob) == (".", -0.1)
        assert parts[-1].eval_count == 3

    def test_limits_and_stop_sequences_cut_token_by_token(self) -> None:
        reply = FakeOllama.tokens([{"one": -1.0}, {" two": -1.5, " to": -2.0}, {" three": -3.0}])
        with FakeOllama(reply=reply) as server:
            limited = chat(server, logprobs=True, options={"num_predict": 1})
            stopped = chat(server, logprobs=True, top_logprobs=9, options={"stop": ["o three"]})
        assert (text_of(limited), len(limited.logprobs or ())) == ("one", 1)
        assert text_of(stopped) == "one tw"
        assert [(token.token, token.logprob) for token in stopped.logprobs or ()] == [
            ("one", -1.0),
            (" tw", -1.5),
        ]


class TestSchemas:
    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            ({"const": "A"}, "A"),
            ({"type": "integer", "default": 3}, 3),
            ({"type": ["string", "null"], "enum": ["b", "c"]}, "b"),
            ({"oneOf": [{"type": "boolean"}, {"type": "null"}]}, True),
            (
                {
                    "allOf": [
                        {"properties": {"a": {"const": 1}}},
                        {"properties": {"b": {"const": 2}}},
                    ]
                },
                {"a": 1, "b": 2},
            ),
            ({"type": "integer", "exclusiveMinimum": 3}, 4),
            ({"type": "number", "maximum": 0.25}, 0.25),
            ({"type": ["string", "null"]}, "text"),
        ],
    )
    def test_an_example_is_made_of(self, schema: dict[str, Any], value: Any) -> None:
        assert example(schema) == value


class TestContext:
    LONG = " ".join(f"sentence number {n} of a long prompt." for n in range(400))

    @pytest.mark.parametrize(("version", "read"), [("0.32.15", 1026), ("0.24.0", 2048)])
    def test_a_prompt_is_cut_silently_otherwise(self, version: str, read: int) -> None:
        messages = [{"role": "user", "content": self.LONG}]
        with FakeOllama(version=version) as server:
            answer = chat(server, messages=messages, options={"num_ctx": 2048})
        assert answer.prompt_eval_count == read

    def test_num_predict_cuts_the_reply(self, server: FakeOllama) -> None:
        answer = chat(server, options={"num_predict": 5})
        assert text_of(answer) == "The capital of France is"
        assert (answer.done_reason, answer.eval_count) == ("length", 5)

    def test_a_reply_ends_with_the_context_unless_it_may_shift(self) -> None:
        with FakeOllama(reply="one two " * 250) as server:
            stopped = post(server, shift=False, options={"num_ctx": 64}).json()
            shifted = post(server, options={"num_ctx": 64}).json()
            limited = post(server, shift=False, options={"num_ctx": 64, "num_predict": 9}).json()
        assert stopped["prompt_eval_count"] + stopped["eval_count"] == 64
        assert stopped["done_reason"] == "length"
        assert shifted["eval_count"] > 64
        assert limited["eval_count"] == 9

    @pytest.mark.parametrize(("repeats", "stopped"), [(30, False), (31, True)])
    def test_a_token_that_comes_again_once_too_often_ends_the_reply(
        self, repeats: int, stopped: bool
    ) -> None:
        with FakeOllama(reply="say ha" + " ha" * repeats + " so") as server:
            plain = post(server, stream=False).json()
            lines = [json.loads(line) for line in post(server, stream=True).text.splitlines()]
        said = "say ha" + " ha" * 30
        assert plain["message"]["content"] == (said if stopped else said + " so")
        assert "".join(line["message"]["content"] for line in lines) == plain["message"]["content"]
        assert plain["done"] == lines[-1]["done"] == (not stopped)
        assert ("eval_count" in plain) == (not stopped)


class TestModels:
    def test_a_model_is_unloaded_after_its_time(self, server: FakeOllama) -> None:
        chat(server, keep_alive="1ms")
        time.sleep(0.01)
        assert httpx.get(f"{server.host}/api/ps", trust_env=False).json() == {"models": []}


class TestFaults:
    def test_faults_come_in_order_and_then_it_works_again(self, server: FakeOllama) -> None:
        server.fail_next(Fault.status(429), Fault.status(500), Fault.status(418, "teapot"))
        answers = [post(server) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [429, 500, 418, 200]
        assert answers[2].json() == {"error": "teapot"}

    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize(
        "fault", [Fault.cut_connection(), Fault.cut_stream(), Fault.cut_stream(after=0)]
    )
    def test_a_cut_is_a_broken_connection(
        self, server: FakeOllama, fault: Fault, stream: bool
    ) -> None:
        server.fail_next(fault)
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            post(server, stream=stream)

    def test_a_stream_can_end_without_its_closing_line(self, server: FakeOllama) -> None:
        server.fail_next(Fault.end_stream(after=3))
        assert post(server, stream=True).text.count('"done":false') == 3

    def test_a_hanging_request_ends_when_its_client_goes(self, server: FakeOllama) -> None:
        server.fail_next(Fault.hang())
        with pytest.raises(httpx.ReadTimeout):
            post_impatiently(server)
        server.wait_for(active=0)
        assert server.active == 0
        assert post(server).status_code == 200
