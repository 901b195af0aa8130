"""FakeOllama as the official client sees it."""

from __future__ import annotations

import asyncio
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
    def test_a_text_is_sent_as_it_is(self, server: FakeOllama) -> None:
        answer = chat(server)
        assert text_of(answer) == "The capital of France is Paris."
        assert (answer.done_reason, answer.eval_count) == ("stop", 8)

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

    def test_thinking_is_left_out_where_it_was_not_wanted(self) -> None:
        with FakeOllama(reply=ChatReply(text="Yes.", thinking="Hm.")) as server:
            assert chat(server, think=False).message.thinking is None


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

    def test_without_a_number_no_alternatives_are_listed(self) -> None:
        with FakeOllama(reply=self.REPLY) as server:
            [first, _] = chat(server, logprobs=True).logprobs or ()
        assert (first.token, first.top_logprobs) == ("hold", None)

    def test_who_does_not_ask_gets_none(self) -> None:
        with FakeOllama(reply=self.REPLY) as server:
            answer = chat(server)
        assert (text_of(answer), answer.logprobs) == ("hold.", None)

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

    @pytest.mark.parametrize(
        ("version", "text"),
        [
            ("0.32.15", "exceeds the available context size (2048 tokens)"),
            ("0.24.0", "the input length exceeds the context length"),
        ],
    )
    def test_a_prompt_that_must_not_be_cut_is_rejected(self, version: str, text: str) -> None:
        messages = [{"role": "user", "content": self.LONG}]
        with FakeOllama(version=version) as server:
            answer = post(server, messages=messages, truncate=False, options={"num_ctx": 2048})
        assert answer.status_code == 400
        assert text in answer.json()["error"]

    @pytest.mark.parametrize(("version", "read"), [("0.32.15", 1026), ("0.24.0", 2048)])
    def test_a_prompt_is_cut_silently_otherwise(self, version: str, read: int) -> None:
        messages = [{"role": "user", "content": self.LONG}]
        with FakeOllama(version=version) as server:
            answer = chat(server, messages=messages, options={"num_ctx": 2048})
        assert answer.prompt_eval_count == read

    def test_old_messages_go_first_the_system_message_stays(self) -> None:
        short = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
        old = {"role": "user", "content": self.LONG}
        with FakeOllama() as server:
            wanted = chat(server, messages=short).prompt_eval_count
            got = chat(server, messages=[short[0], old, short[1]], options={"num_ctx": 2048})
        assert got.prompt_eval_count == wanted

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
    def test_models_are_listed_shown_and_loaded(self) -> None:
        models: list[str | FakeModel] = [
            "llama3.2",
            FakeModel(name="nomic-embed:v1", capabilities=("embedding",)),
        ]
        with (
            FakeOllama(models) as server,
            ollama.Client(server.host, trust_env=False) as client,
        ):
            assert [m.model for m in client.list().models] == ["llama3.2:latest", "nomic-embed:v1"]
            assert client.show("nomic-embed:v1").capabilities == ["embedding"]
            assert client.ps().models == []
            chat(server, options={"num_ctx": 1024})
            [loaded] = client.ps().models
            assert (loaded.name, loaded.context_length) == ("llama3.2:latest", 1024)
            with pytest.raises(ollama.ResponseError, match="does not support chat"):
                chat(server, model="nomic-embed:v1")

    def test_a_model_is_unloaded_after_its_time(self, server: FakeOllama) -> None:
        chat(server, keep_alive="1ms")
        time.sleep(0.01)
        assert httpx.get(f"{server.host}/api/ps", trust_env=False).json() == {"models": []}

    def test_a_missing_model_is_404_for_the_client(self, server: FakeOllama) -> None:
        with pytest.raises(ollama.ResponseError, match="model 'nope' not found") as caught:
            chat(server, model="nope")
        assert caught.value.status_code == 404

    def test_what_is_not_json_is_rejected(self, server: FakeOllama) -> None:
        answer = httpx.post(f"{server.host}/api/chat", content=b"nonsense", trust_env=False)
        assert (answer.status_code, "not a JSON object" in answer.text) == (400, True)


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

    def test_a_plain_answer_can_end_undone(self, server: FakeOllama) -> None:
        server.fail_next(Fault.end_stream(after=3))
        answer = post(server, stream=False).json()
        assert list(answer) == ["model", "created_at", "message", "done"]
        assert (answer["message"]["content"], answer["done"]) == ("The capital of", False)

    @pytest.mark.parametrize("stream", [True, False])
    def test_invalid_json_has_status_200(self, server: FakeOllama, stream: bool) -> None:
        server.fail_next(Fault.invalid_json())
        answer = post(server, stream=stream)
        assert answer.status_code == 200
        with pytest.raises(ValueError, match="line "):
            answer.json()

    def test_a_hanging_request_ends_when_its_client_goes(self, server: FakeOllama) -> None:
        server.fail_next(Fault.hang())
        with pytest.raises(httpx.ReadTimeout):
            post_impatiently(server)
        server.wait_for(active=0)
        assert server.active == 0
        assert post(server).status_code == 200

    def test_a_hanging_request_ends_when_the_server_stops(self) -> None:
        async def run() -> None:
            with FakeOllama() as server:
                server.fail_next(Fault.hang())
                async with ollama.AsyncClient(server.host, trust_env=False) as client:
                    asking = asyncio.create_task(client.chat("llama3.2", QUESTION))
                    await asyncio.to_thread(server.wait_for, active=1)
                    server.__exit__(None, None, None)
                    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                        await asking

        asyncio.run(run())
