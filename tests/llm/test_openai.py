"""The backend for servers of OpenAI's protocol, and faults on the wire that they may have."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fake_ollama._http import Connection, Request, Response

from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, OpenAIBackend, Tape, _http, _openai, connect
from llmsim_lab.llm._openai import as_json, is_strict, parse_base_url, portable
from llmsim_lab.models import PolicyDecision
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import ChatReply, ChatRequest, Message, ToolCall

KEY = "sk-secret-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 20}},
    "required": ["word"],
    "additionalProperties": False,
}
REQUEST = ChatRequest(
    model="m",
    messages=(Message("system", "Be brief."), Message("user", "A secret plan.")),
    options={"temperature": 0.5, "seed": 7, "num_ctx": 4096, "num_predict": 64},
)
HELD = replace(REQUEST, schema=SCHEMA)
DECISION = '{"action": "Hold", "reasoning": "Prices are calm.", "confidence": 0.8}'
DONE = b"data: [DONE]\n\n"

Answer = Response | dict[str, Any] | Callable[[Request], Response]


def json_response(value: Any, status: int = 200) -> Response:
    """Answer with one JSON document."""
    headers = {"Content-Type": "application/json"}
    return Response(status=status, headers=headers, chunks=(json.dumps(value).encode(),))


@dataclass
class Server:
    """A server on loopback: each request gets the next answer, the last one again and again."""

    answers: list[Answer]
    requests: list[Request] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Of the chat requests."""
    url: str = ""
    connections: set[Connection] = field(default_factory=set)

    async def answer(self, request: Request) -> Response:
        self.requests.append(request)
        if request.content:
            self.bodies.append(json.loads(request.content))
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, dict):
            return json_response(found)
        return found if isinstance(found, Response) else found(request)


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Server]:
    server = Server(list(answers))
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: Connection(server.answer, server.connections), "127.0.0.1", 0
    )
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()
        for connection in list(server.connections):
            connection.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def talking(*answers: Answer, **settings: Any) -> AsyncIterator[tuple[Server, OpenAIBackend]]:
    async with serving(*answers) as server:
        backend = OpenAIBackend("m", base_url=server.url, **settings)
        yield server, backend


def said(content: str | None = "Hm.", *, finish: str = "stop", **more: Any) -> dict[str, Any]:
    """Write a whole answer."""
    top = {name: more.pop(name) for name in ("usage", "system_fingerprint") if name in more}
    choice = {"index": 0, "finish_reason": finish, "logprobs": more.pop("logprobs", None)}
    message = {"role": "assistant", "content": content, **more}
    return {"object": "chat.completion", "choices": [{**choice, "message": message}], **top}


def refused(status: int, message: str, **more: Any) -> Response:
    headers = more.pop("headers", {})
    response = json_response({"error": {"message": message, **more}}, status)
    return replace(response, headers={**response.headers, **headers})


def streamed(*events: dict[str, Any] | bytes, cut: bool = False) -> Response:
    chunks = tuple(
        event if isinstance(event, bytes) else f"data: {json.dumps(event)}\n\n".encode()
        for event in events
    )
    headers = {"Content-Type": "text/event-stream"}
    return Response(headers=headers, chunks=chunks, chunked=True, cut=cut)


def delta(*, finish: str | None = None, **values: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": values, "finish_reason": finish}]}


async def failure(
    *answers: Answer, request: ChatRequest = REQUEST, **settings: Any
) -> BackendError:
    async with talking(*answers, **settings) as (_, backend):
        with pytest.raises(BackendError) as caught:
            await backend.chat(request)
    return caught.value


def everything(error: BaseException) -> str:
    """Return all that a traceback could show of an error, and what its causes hold."""
    texts, at = ["".join(traceback.format_exception(error))], error
    while at is not None:
        texts += [repr(at), repr(vars(at))]
        at = at.__cause__ or at.__context__  # type: ignore[assignment]
    return "\n".join(texts)


# The request


async def test_a_request_has_every_option_and_no_other_field() -> None:
    request = replace(HELD, options={**REQUEST.options, "top_p": 0.9, "min_p": None, "top_k": 3})
    async with talking(said('{"word": "yes"}')) as (server, backend):
        await backend.chat(request)
    [body] = server.bodies
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "A secret plan."},
        ],
        "temperature": 0.5,
        "seed": 7,
        "max_tokens": 64,
        "top_p": 0.9,
        "top_k": 3,
        "chat_template_kwargs": {"enable_thinking": False},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA},
        },
    }
    assert server.requests[0].path == "/v1/chat/completions"


async def test_a_request_says_nothing_of_the_machine_and_asks_for_no_compression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-mine")
    async with talking(said()) as (server, backend):
        await backend.chat(REQUEST)
    headers = server.requests[0].headers
    assert headers["accept-encoding"] == "identity"
    assert not [name for name in headers if "stainless" in name or name.startswith("openai-")]
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("think", "fields"),
    [
        (None, {}),
        (True, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("low", {"reasoning_effort": "low"}),
    ],
)
async def test_thinking_is_asked_for_in_the_servers_words(
    think: bool | str | None, fields: dict[str, Any]
) -> None:
    async with talking(said()) as (server, backend):
        await backend.chat(replace(REQUEST, think=think))
    known = {"reasoning_effort", "chat_template_kwargs"}
    assert {name: value for name, value in server.bodies[0].items() if name in known} == fields


async def test_a_conversation_with_tools_names_the_call_that_each_result_is_of() -> None:
    calls = (
        ToolCall(name="find", arguments={"x": "é"}),
        ToolCall(name="add", arguments={}, id="abc"),
        ToolCall(name="find", arguments={"x": 2}),
    )
    messages = (
        Message("assistant", "", calls),
        Message("tool", "added", tool_name="add"),
        Message("tool", "first", tool_name="find"),
        Message("tool", "second", tool_name="find"),
    )
    asked, *results = as_json(messages)
    assert [call["id"] for call in asked["tool_calls"]] == ["call_1", "abc", "call_3"]
    assert asked["tool_calls"][0] == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "find", "arguments": '{"x": "é"}'},
    }
    assert [result["tool_call_id"] for result in results] == ["abc", "call_1", "call_3"]


async def test_openai_itself_is_asked_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(said('{"word": "yes"}')) as server:
        monkeypatch.setattr(_openai, "HOSTED", server.url)
        backend = OpenAIBackend("m", base_url=server.url, api_key=KEY)
        await backend.chat(HELD)
    [body] = server.bodies
    assert body["max_completion_tokens"] == 64
    assert "max_tokens" not in body
    assert "chat_template_kwargs" not in body
    held = body["response_format"]["json_schema"]
    assert held["strict"] is True
    assert held["schema"]["properties"] == {"word": {"type": "string"}}


# The reply


async def test_a_reply_has_text_thinking_tokens_and_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    answer = said(
        "Yes.", finish="tool_calls", tool_calls=[call], reasoning_content="Hm.", usage=usage
    )
    async with talking(answer) as (server, backend):
        tools = ({"type": "function", "function": {"name": "f", "parameters": {}}},)
        reply = await backend.chat(replace(REQUEST, tools=tools))
    assert server.bodies[0]["tools"] == list(tools)
    assert reply == ChatReply(
        text="Yes.",
        thinking="Hm.",
        tool_calls=(ToolCall(name="f", arguments={"x": 1}, id="c1"),),
        done_reason="stop",
        prompt_tokens=12,
        reply_tokens=3,
        seconds=reply.seconds,
    )
    assert reply.seconds > 0


async def test_alternatives_of_the_first_token_come_likeliest_first() -> None:
    tokens = [
        {"token": "B", "logprob": -2.0, "bytes": [66]},
        {"token": "A", "logprob": -0.25, "bytes": [65]},
    ]
    first = {"token": "A", "logprob": -0.25, "top_logprobs": tokens}
    answer = said("A", logprobs={"content": [first, {"token": "!", "top_logprobs": []}]})
    async with talking(answer) as (server, backend):
        reply = await backend.chat(replace(REQUEST, top_logprobs=5))
    assert server.bodies[0]["logprobs"] is True
    assert server.bodies[0]["top_logprobs"] == 5
    assert reply.top_logprobs == (("A", -0.25), ("B", -2.0))
    assert OpenAIBackend.max_top_logprobs == 20


async def test_a_reply_that_was_cut_says_so() -> None:
    async with talking(said("so far", finish="length")) as (_, backend):
        assert (await backend.chat(REQUEST)).done_reason == "length"


async def test_a_refusal_is_what_the_model_said() -> None:
    async with talking(said(None, refusal="I cannot.")) as (_, backend):
        assert (await backend.chat(REQUEST)).text == "I cannot."


async def test_a_model_that_the_server_stopped_is_a_failure_with_what_came() -> None:
    error = await failure(said("So far", finish="content_filter"))
    assert (error.reason, error.status_code, error.retry) == ("generation_stopped", 200, True)
    assert error.reply is not None
    assert error.reply.text == "So far"
    assert "stopped the model before it was done, after 'So far'" in str(error)


async def test_a_prompt_longer_than_num_ctx_is_an_error_though_the_server_took_it() -> None:
    error = await failure(said(usage={"prompt_tokens": 4097, "completion_tokens": 1}))
    assert error.reason == "context_overflow"
    assert "the prompt has 4,097 tokens, more than num_ctx=4096 can hold" in str(error)


# What a server does not have


async def test_a_server_without_structured_outputs_gets_the_schema_as_text_and_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no = refused(400, "This response_format type is unavailable now", type="invalid_request_error")
    async with talking(no, said('{"word": "yes"}')) as (server, backend):
        reply = await backend.chat(HELD)
        await backend.chat(HELD)
    assert reply.text == '{"word": "yes"}'
    assert ["response_format" in body for body in server.bodies] == [True, False, False]
    system = server.bodies[1]["messages"][0]
    assert system["role"] == "system"
    assert system["content"].startswith("Be brief.\n\nReply with one JSON object")
    assert json.dumps(SCHEMA) in system["content"]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    [line] = [record.getMessage() for record in warnings]
    assert line.startswith("response_format_unsupported model=m")
    assert "held to it by validation alone" in line


async def test_there_is_a_system_message_for_the_schema_where_there_was_none() -> None:
    request = replace(HELD, messages=(Message("user", "Go."),))
    async with talking(refused(422, "unknown: response_format"), said("{}")) as (server, backend):
        await backend.chat(request)
    assert [message["role"] for message in server.bodies[1]["messages"]] == ["system", "user"]


async def test_validation_does_the_work_without_structured_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no = refused(400, "response_format is not supported")
    answers = (no, said("I would hold."), said(f"Well: {DECISION}"))
    async with talking(*answers) as (server, backend):
        # On a busy machine the second request would be streamed, which these answers are not.
        monkeypatch.setattr(backend, "streams", False)
        client = LLMClient(LLMConfig(model="m", retry_wait_s=0), backend=backend)
        decision = await client.call_with_retry(prompt="And?", response_model=PolicyDecision)
    assert decision.action == "Hold"
    assert decision.call is not None
    assert decision.call.status == "repaired"
    assert len(server.bodies) == 3


async def test_a_schema_that_is_turned_down_is_sent_without_what_strict_mode_lacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no = refused(
        400,
        "Invalid schema for response_format 'reply': 'maxLength' is not permitted.",
        param="response_format",
    )
    other = {**SCHEMA, "properties": {"word": {"enum": ["yes"]}}}
    async with talking(no, said('{"word": "yes"}')) as (server, backend):
        await backend.chat(HELD)
        await backend.chat(HELD)
        await backend.chat(replace(HELD, schema=other))
    sent = [body["response_format"]["json_schema"]["schema"] for body in server.bodies]
    simpler = {**SCHEMA, "properties": {"word": {"type": "string"}}}
    assert sent == [SCHEMA, simpler, simpler, other]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_schema_that_is_turned_down_twice_goes_into_the_prompt() -> None:
    no = refused(400, "Invalid schema for response_format 'reply': no.")
    async with talking(no, no, said('{"word": "yes"}')) as (server, backend):
        await backend.chat(HELD)
    assert ["response_format" in body for body in server.bodies] == [True, True, False]


@pytest.mark.parametrize(
    ("message", "gone", "came"),
    [
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "max_tokens",
            "max_completion_tokens",
        ),
        ("Unrecognized request argument: chat_template_kwargs", "chat_template_kwargs", ""),
        ("This model does not support logprobs", "logprobs", ""),
    ],
)
async def test_what_a_server_does_not_take_is_left_out_from_then_on(
    message: str, gone: str, came: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = replace(REQUEST, top_logprobs=3)
    with caplog.at_level(logging.INFO, logger="llmsim_lab"):
        async with talking(refused(400, message), said()) as (server, backend):
            await asyncio.gather(backend.chat(request), backend.chat(request))
            await backend.chat(request)
    assert gone in server.bodies[0]
    assert gone not in server.bodies[-1]
    assert not came or server.bodies[-1][came] == 64
    lines = [line for line in caplog.messages if line.startswith(f"{gone}_unsupported")]
    assert len(lines) == 1


async def test_another_rejection_is_not_tried_again() -> None:
    async with talking(refused(400, "temperature must be 1")) as (server, backend):
        with pytest.raises(BackendError, match="rejects the request for 'm': temperature must be"):
            await backend.chat(HELD)
    assert len(server.bodies) == 1


# Errors that a server reports


@pytest.mark.parametrize(
    ("answer", "reason", "status", "retry", "told"),
    [
        (refused(401, "no"), "client_error", 401, False, "does not accept the key: no; set OPENAI"),
        (refused(403, "no"), "client_error", 403, False, "OPENAI_API_KEY"),
        (
            refused(404, "The model `m` does not exist."),
            "model_not_found",
            404,
            False,
            "has no model 'm' (The model `m` does not exist.)",
        ),
        (refused(404, "Not Found"), "client_error", 404, False, "base_url mostly ends in /v1"),
        (refused(429, "slow down"), "rate_limited", 429, True, "limits the rate: slow down"),
        (
            refused(429, "You exceeded your quota", code="insufficient_quota"),
            "rate_limited",
            429,
            False,
            "You exceeded your quota",
        ),
        (refused(500, "oops"), "server_error", 500, True, "failed on 'm': oops"),
        (refused(503, "Loading model"), "server_error", 503, True, "Loading model"),
        (refused(400, "bad \x1b[31mred"), "client_error", 400, False, "bad [31mred"),
        (json_response({"detail": "no body"}, 422), "client_error", 422, False, "no body"),
        (json_response({"message": "bare"}, 400), "client_error", 400, False, ": bare"),
        (json_response(["odd"], 500), "server_error", 500, True, '["odd"]'),
        (
            json_response({"error": {"message": "upstream died", "code": 502}}),
            "server_error",
            502,
            True,
            "upstream died",
        ),
        (json_response({"error": "plain"}), "server_error", 500, True, "plain"),
    ],
)
async def test_an_error_has_a_reason_and_a_way_out(
    answer: Response, reason: str, status: int, retry: bool, told: str
) -> None:
    error = await failure(answer, api_key=KEY)
    assert (error.reason, error.status_code, error.retry) == (reason, status, retry)
    assert told in str(error)
    assert "127.0.0.1" in str(error)


async def test_a_server_that_wants_a_key_says_where_to_put_it() -> None:
    error = await failure(refused(401, "Missing bearer"))
    assert "wants a key: Missing bearer; set OPENAI_API_KEY, or give api_key=..." in str(error)


async def test_a_missing_model_comes_with_the_list_of_those_there_are() -> None:
    listing = {"data": [{"id": f"model-{number}"} for number in range(14)]}
    error = await failure(refused(404, "no such model", code="model_not_found"), listing)
    assert "; it has model-0, model-1, " in str(error)
    assert str(error).endswith("model-11 and 2 more")


async def test_a_large_error_page_is_clipped() -> None:
    page = Response(status=502, headers={"Content-Type": "text/html"}, chunks=(b"x" * 300_000,))
    error = await failure(page)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 502, True)
    assert len(str(error)) < 700


async def test_the_wait_that_a_server_asks_for_is_passed_on() -> None:
    error = await failure(refused(429, "slow down", headers={"Retry-After": "17"}))
    assert error.retry_after_s == 17


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            refused(
                400,
                "request (4031 tokens) exceeds the available context size (2048 tokens)",
                type="exceed_context_size_error",
                n_prompt_tokens=4031,
                n_ctx=2048,
            ),
            "the prompt has 4031 tokens, more than the 2048 tokens of context",
        ),
        (
            refused(
                400,
                "This model's maximum context length is 4096 tokens. However, you requested 5000.",
                code="context_length_exceeded",
            ),
            "the prompt has 23 characters, more than the 4096 tokens of context",
        ),
        (
            refused(400, "The prompt is longer than the maximum model length of 512."),
            "more than the 512 tokens of context that the server gives this model",
        ),
    ],
)
async def test_a_prompt_that_does_not_fit_is_told_apart(answer: Response, told: str) -> None:
    error = await failure(answer, request=HELD)
    assert (error.reason, error.status_code, error.retry) == ("context_overflow", 400, False)
    assert told in str(error)
    assert "start the server with a larger window" in str(error)


async def test_the_official_client_does_not_retry_on_its_own() -> None:
    async with talking(refused(500, "oops", headers={"x-should-retry": "true"})) as (
        server,
        backend,
    ):
        client = LLMClient(LLMConfig(model="m", retry_wait_s=0), backend=backend)
        with pytest.raises(LLMFailureException) as caught:
            await client.call_with_retry(prompt="And?", response_model=PolicyDecision)
    assert (caught.value.reason, caught.value.attempts) == ("server_error", 2)
    assert len(server.bodies) == 2


async def test_a_slow_server_is_given_up_after_the_clients_time() -> None:
    async with serving(said()) as server:

        async def never(_: Request) -> Response:
            await asyncio.sleep(60)
            raise AssertionError

        server.answer = never  # type: ignore[method-assign]
        backend = OpenAIBackend("m", base_url=server.url)
        client = LLMClient(LLMConfig(model="m", timeout_s=0.2, retry_wait_s=0), backend=backend)
        with pytest.raises(LLMFailureException) as caught:
            await client.call_with_retry(prompt="And?", response_model=PolicyDecision)
        await client.aclose()
    assert caught.value.reason == "timeout"


# Answers that no server should give


async def test_a_redirect_is_not_followed() -> None:
    async with serving(said("from elsewhere")) as other:
        target = other.url.replace("http://", "http://me:secret@")
        away = Response(status=307, headers={"Location": target})
        error = await failure(away, api_key=KEY)
    assert (error.reason, error.status_code, error.retry) == ("client_error", 307, False)
    assert f"redirects to {other.url.removesuffix('/v1')}, which is not followed" in str(error)
    assert "secret" not in str(error)
    assert other.requests == []


async def test_a_compressed_reply_is_not_unpacked() -> None:
    body = gzip.compress(b" " * 50_000_000)
    error = await failure(Response(headers={"Content-Encoding": "gzip"}, chunks=(body,)))
    assert (error.reason, error.retry) == ("server_error", False)
    assert "sent a compressed reply (gzip)" in str(error)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_reply_has_a_largest_size(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "MAX_REPLY_BYTES", 400)
    large = streamed(delta(content="x" * 400), DONE) if stream else said("x" * 400)
    async with talking(large) as (_, backend):
        with pytest.raises(BackendError, match="sent more than 400 bytes") as caught:
            await backend.chat(REQUEST, on_text=(lambda _: False) if stream else None)
    assert (caught.value.reason, caught.value.retry) == ("server_error", False)


async def test_a_streamed_reply_has_a_longest_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "MAX_TEXT_CHARS", 20)
    many = streamed(*[delta(content="xxx")] * 7, DONE)
    async with talking(many) as (_, backend):
        with pytest.raises(BackendError, match="wrote 21 characters; 20 are the most"):
            await backend.chat(REQUEST, on_text=lambda _: False)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>hello</html>",
        b"",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": true}}',
        b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": -1}}',
        b'{"choices": [{"message": {"content": NaN}}]}',
        b'{"choices": [{"message": {"content": "x", "x": ' + b"[" * 300 + b"]" * 300 + b"}}]}",
        b'{"choices": [{"message": {"tool_calls": [{"function": {"arguments": "["}}]}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"function": {"arguments": "[]"}}]}}]}',
    ],
)
async def test_an_answer_that_is_not_of_the_protocol_is_the_servers_fault(body: bytes) -> None:
    answer = Response(headers={"Content-Type": "application/json"}, chunks=(body,))
    error = await failure(answer)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, True)
    assert "is not valid JSON of OpenAI's form" in str(error)
    assert len(str(error)) < 700


async def test_a_log_probability_above_one_is_the_servers_fault() -> None:
    tokens = [{"token": "A", "logprob": 3.0}]
    error = await failure(said("A", logprobs={"content": [{"token": "A", "top_logprobs": tokens}]}))
    assert (error.reason, error.retry) == ("server_error", True)


async def test_a_connection_that_breaks_may_be_tried_again() -> None:
    error = await failure(Response(cut=True))
    assert (error.reason, error.retry) == ("connection_error", True)
    assert "the connection to the server at http://127.0.0.1" in str(error)


async def test_where_nothing_listens_the_way_out_is_named() -> None:
    async with serving(said()) as server:
        url = server.url
    backend = OpenAIBackend("m", base_url=url)
    with pytest.raises(BackendError) as caught:
        await backend.chat(REQUEST)
    assert (caught.value.reason, caught.value.retry) == ("connection_error", True)
    assert f"no OpenAI-compatible server answers at {url}; start it, or set base_url" in str(
        caught.value
    )


async def test_a_request_that_cannot_be_written_is_not_the_servers_fault() -> None:
    request = replace(REQUEST, options={"odd": {1, 2}})
    error = await failure(said(), request=request)
    assert (error.reason, error.retry) == ("client_error", False)
    assert "the request for 'm' cannot be sent" in str(error)


# Text while it is written


async def test_a_rejection_that_only_quotes_a_field_turns_nothing_off() -> None:
    odd = refused(400, "message 1 is too odd: {'logprobs': 5, 'response_format': {}}")
    request = replace(HELD, top_logprobs=5)
    async with talking(odd, odd, odd, said("{}"), said("{}")) as (server, backend):
        with pytest.raises(BackendError, match="too odd"):
            await backend.chat(request)
        await backend.chat(request)
    first, last = server.bodies[0], server.bodies[-1]
    assert len(server.bodies) > 2
    assert last == first
    assert {"logprobs", "response_format"} <= last.keys()


ESCAPES = {
    "slash": lambda key: key.replace("/", "\\/"),
    "some": lambda key: key.replace("=", "\\u003D").replace("+", "\\u002b"),
    "all": lambda key: "".join(f"\\u{ord(sign):04x}" for sign in key),
}


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_that_a_server_repeats_in_escapes_is_masked(escape: str, stream: bool) -> None:
    key = "sk-se/cret+0123456789=="
    error = json.dumps({"error": {"message": "bad key KEY"}}).replace("KEY", ESCAPES[escape](key))
    answer = streamed(f"data: {error}\n\n".encode()) if stream else refused(401, "")
    answer = answer if stream else replace(answer, chunks=(error.encode(),))
    async with talking(answer, api_key=key) as (_, backend):
        with pytest.raises(BackendError, match=r"bad key \*\*\*") as caught:
            await backend.chat(REQUEST, on_text=(lambda _: False) if stream else None)
    assert key not in everything(caught.value)


async def test_a_key_that_comes_in_pieces_of_a_call_is_masked() -> None:
    def part(**function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": 0, "function": function}])

    pieces = part(name="f", arguments=f'{{"x": ["{KEY[:5]}'), part(arguments=f'{KEY[5:]}"]}}')
    async with talking(streamed(*pieces, DONE), api_key=KEY) as (_, backend):
        reply = await backend.chat(REQUEST, on_text=lambda _: False)
    assert reply.tool_calls == (ToolCall(name="f", arguments={"x": ["***"]}),)


@pytest.mark.parametrize("word", ["x", "EMPTY", "ollama", "content", "stop"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_word_in_place_of_a_key_changes_no_reply(word: str, stream: bool) -> None:
    text = f"The index says {word}."
    answer = streamed(delta(content=text, finish="length"), DONE) if stream else said(text)
    async with talking(answer, api_key=word) as (server, backend):
        reply = await backend.chat(REQUEST, on_text=(lambda _: False) if stream else None)
    assert reply.text == text
    assert server.requests[0].headers["authorization"] == f"Bearer {word}"


async def test_a_stream_is_handed_on_and_put_together() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    first = {"token": "Ye", "top_logprobs": [{"token": "Ye", "logprob": -0.5}]}
    beginning = delta(role="assistant", content="Ye")
    beginning["choices"][0]["logprobs"] = {"content": [first]}
    answer = streamed(
        b": a comment, as some send while they wait\n\n",
        delta(reasoning_content="Well"),
        delta(reasoning="…"),
        beginning,
        b'data:{"choices":[{"delta":{"content":"s\xe2\x80\xa8"}}]}\n\n',
        delta(finish="stop"),
        usage,
        DONE,
    )
    pieces: list[str] = []
    async with talking(answer) as (server, backend):
        reply = await backend.chat(
            replace(REQUEST, top_logprobs=1), on_text=lambda piece: bool(pieces.append(piece))
        )
    assert server.bodies[0]["stream"] is True
    assert server.bodies[0]["stream_options"] == {"include_usage": True}
    assert [*filter(None, pieces)] == ["<think>Well", "…", "</think>Ye", "s\u2028"]
    assert (reply.text, reply.thinking, reply.done_reason) == ("Yes\u2028", "Well…", "stop")
    assert (reply.prompt_tokens, reply.reply_tokens) == (9, 4)
    assert reply.top_logprobs == (("Ye", -0.5),)


async def test_calls_that_come_in_pieces_are_put_together() -> None:
    def part(place: int, **function: str) -> dict[str, Any]:
        call: dict[str, Any] = {"index": place, "function": function}
        return delta(tool_calls=[call | ({"id": f"c{place}"} if "name" in function else {})])

    answer = streamed(
        part(0, name="f", arguments=""),
        part(0, arguments='{"x"'),
        part(1, name="g", arguments="{}"),
        part(0, arguments=": 1}"),
        delta(finish="tool_calls"),
        DONE,
    )
    async with talking(answer) as (_, backend):
        reply = await backend.chat(REQUEST, on_text=lambda _: False)
    assert reply.tool_calls == (
        ToolCall(name="f", arguments={"x": 1}, id="c0"),
        ToolCall(name="g", arguments={}, id="c1"),
    )


async def test_a_stream_that_ends_early_is_a_lost_connection() -> None:
    head = {"Content-Type": "text/event-stream", "Connection": "close"}
    body = f"data: {json.dumps(delta(content='So'))}\n\n".encode()

    async def unframed(_: Request) -> Response:
        [connection] = server.connections
        lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in head.items())]
        connection._transport.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        connection._transport.close()
        return Response(cut=True)

    async with serving(said()) as server:
        server.answer = unframed  # type: ignore[method-assign]
        backend = OpenAIBackend("m", base_url=server.url)
        with pytest.raises(BackendError, match="ended after 1 events, before it was done") as early:
            await backend.chat(REQUEST, on_text=lambda _: False)
    assert (early.value.reason, early.value.retry) == ("connection_error", True)
    async with talking(streamed(delta(content="So"), cut=True)) as (_, backend):
        with pytest.raises(BackendError, match="the connection to the server") as broken:
            await backend.chat(REQUEST, on_text=lambda _: False)
    assert (broken.value.reason, broken.value.retry) == ("connection_error", True)


async def test_a_reply_that_is_done_is_not_waited_for_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_openai, "_LAST_WORDS_S", 0.05)

    async def never_ends(_: Request) -> Response:
        [connection] = server.connections
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        event = f"data: {json.dumps(delta(content='Yes', finish='stop'))}\n\n"
        connection._transport.write((head + event).encode())
        while True:
            connection._transport.write(b": still here\n\n")
            await asyncio.sleep(0.01)

    async with serving(said()) as server:
        server.answer = never_ends  # type: ignore[method-assign]
        backend = OpenAIBackend("m", base_url=server.url)
        reply = await asyncio.wait_for(backend.chat(REQUEST, on_text=lambda _: False), 20)
    assert (reply.text, reply.done_reason) == ("Yes", "stop")


async def test_what_comes_after_the_end_of_a_stream_is_not_read() -> None:
    late = (delta(content="More"), b"data: {\n\n")
    answer = streamed(delta(content="Yes", finish="stop"), DONE, *late)
    async with talking(answer) as (_, backend):
        assert (await backend.chat(REQUEST, on_text=lambda _: False)).text == "Yes"


@pytest.mark.parametrize("nothing", [None, "", {}])
async def test_an_event_may_say_that_there_is_no_error(nothing: Any) -> None:
    answer = streamed(delta(content="Yes", finish="stop") | {"error": nothing}, DONE)
    async with talking(answer) as (_, backend):
        assert (await backend.chat(REQUEST, on_text=lambda _: False)).text == "Yes"


@pytest.mark.parametrize("body", [b"<html>Please log in.</html>", b"", b'{"choices": []}\n'])
async def test_what_is_no_stream_of_events_is_not_an_empty_reply(body: bytes) -> None:
    async with talking(Response(chunks=(body,), chunked=True)) as (_, backend):
        with pytest.raises(BackendError, match="no streamed reply") as caught:
            await backend.chat(REQUEST, on_text=lambda _: False)
    assert (caught.value.reason, caught.value.retry) == ("server_error", True)


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"message": "out of memory", "code": 500}},
        b'error: {"message": "out of memory"}\n',
    ],
)
async def test_an_error_within_a_stream_is_the_servers(event: dict[str, Any] | bytes) -> None:
    async with talking(streamed(delta(content="So"), event, DONE)) as (_, backend):
        with pytest.raises(BackendError, match="failed on 'm': out of memory") as caught:
            await backend.chat(REQUEST, on_text=lambda _: False)
    assert (caught.value.reason, caught.value.status_code) == ("server_error", 500)


async def test_a_server_that_counts_nothing_in_streams_is_asked_without() -> None:
    no = refused(400, "unknown field stream_options")
    async with talking(no, streamed(delta(content="So"), DONE)) as (server, backend):
        reply = await backend.chat(REQUEST, on_text=lambda _: False)
    assert ["stream_options" in body for body in server.bodies] == [True, False]
    assert (reply.text, reply.reply_tokens) == ("So", None)


# The key


async def _given(kind: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    if kind == "environment":
        monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
        return None

    async def fetched() -> str:
        return KEY

    return {"text": KEY, "function": lambda: KEY, "async function": fetched}[kind]


@pytest.mark.parametrize("kind", ["environment", "text", "function", "async function"])
async def test_the_key_goes_to_the_server_and_nowhere_else(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    echo = refused(401, f"Incorrect API key: Bearer {KEY}", param=KEY)
    caplog.set_level(logging.DEBUG)
    given = await _given(kind, monkeypatch)
    async with talking(said(f"It is {KEY}."), echo, api_key=given) as (server, backend):
        reply = await backend.chat(REQUEST)
        with pytest.raises(BackendError) as caught:
            await backend.chat(REQUEST)
        shown = repr(backend) + repr(vars(backend)) + repr(await backend._secret())
    assert [request.headers["authorization"] for request in server.requests] == [
        f"Bearer {KEY}"
    ] * 2
    assert reply.text == "It is ***."
    assert "Incorrect API key: Bearer ***" in str(caught.value)
    assert KEY not in everything(caught.value)
    assert KEY not in shown
    assert KEY not in caplog.text


async def test_a_key_that_a_stream_repeats_in_pieces_is_masked() -> None:
    answer = streamed(delta(content=KEY[:5]), delta(content=KEY[5:]), DONE)
    async with talking(answer, api_key=KEY) as (_, backend):
        reply = await backend.chat(REQUEST, on_text=lambda _: False)
    assert reply.text == "***"


async def test_lost_connections_do_not_show_the_key() -> None:
    error = await failure(Response(cut=True), api_key=KEY)
    assert KEY not in everything(error)


async def test_a_key_in_a_header_of_an_answer_goes_no_further() -> None:
    error = await failure(refused(500, "oops", headers={"X-Key": KEY}), api_key=KEY)
    assert KEY not in everything(error)


async def _record(path: Path) -> list[Request]:
    async with serving(said(DECISION, usage={"prompt_tokens": 1})) as server:
        client = await asyncio.to_thread(
            connect, "openai:m", base_url=server.url, api_key=KEY, quiet=True, retry_wait_s=0
        )
        with Tape(path) as tape:
            config = SimulationConfig(llm={"model": "m"}, moves_bp=None)
            await Simulation(config, llm_client=client, tape=tape).arun(1)
        await client.aclose()
    return server.requests


def test_the_key_is_not_on_the_tape(tmp_path: Path) -> None:
    requests = asyncio.run(_record(tmp_path / "a.tape"))
    assert len(requests) >= 2
    files = [file.read_bytes() for file in tmp_path.iterdir()]
    assert b"Prices are calm." in b"".join(files)
    assert KEY.encode() not in b"".join(files)


@pytest.mark.parametrize("key", ["sk-with\nbreak", "sk-…", "two words", " "])
def test_a_key_that_cannot_be_one_is_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="characters, not shown") as caught:
        OpenAIBackend("m", base_url="http://127.0.0.1:9/v1", api_key=key)
    assert key.strip() == "" or key not in everything(caught.value)


@pytest.mark.parametrize("value", ["sk-with\nbreak", None])
async def test_a_function_that_returns_no_key_fails_the_call(value: Any) -> None:
    error = await failure(said(), api_key=lambda: value)
    assert (error.reason, error.retry) == ("client_error", False)
    assert "with\nbreak" not in everything(error)


def test_a_key_that_goes_over_plain_http_to_another_machine_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    OpenAIBackend("m", base_url="http://127.0.0.1:9/v1", api_key=KEY)
    OpenAIBackend("m", base_url="https://box.invalid/v1", api_key=KEY)
    OpenAIBackend("m", base_url="http://box.invalid/v1")
    assert caplog.messages == []
    OpenAIBackend("m", base_url="http://box.invalid/v1", api_key=KEY)
    assert caplog.messages == ["key_in_clear base_url=http://box.invalid/v1"]


def test_openai_itself_is_not_asked_without_a_key() -> None:
    with pytest.raises(ConfigError, match=r"api\.openai\.com/v1 wants a key: set OPENAI_API_KEY"):
        OpenAIBackend("m")


# Which model and which server


async def test_model_info_says_what_the_server_tells_and_no_digest() -> None:
    listing = {
        "data": [
            {"id": "other", "owned_by": "them"},
            {"id": "m", "owned_by": "vllm", "max_model_len": 32768},
        ]
    }
    async with talking(said(system_fingerprint="fp_1"), listing) as (_, backend):
        await backend.chat(REQUEST)
        info = await backend.model_info()
    assert (info.name, info.backend, info.digest) == ("m", "openai", None)
    assert info.context_length == 32768
    assert info.version == "owned by vllm, system_fingerprint fp_1"


async def test_a_server_that_lists_no_models_can_be_asked_all_the_same() -> None:
    async with talking(refused(404, "Not Found")) as (_, backend):
        info = await backend.model_info()
    assert (info.name, info.context_length, info.version) == ("m", None, None)


async def test_connect_reports_the_server_and_the_names_it_lists() -> None:
    async with serving({"data": [{"id": "a"}, {"id": "b"}]}) as server:
        known = await asyncio.to_thread(connect, "openai:a", base_url=server.url, quiet=True)
        other = await asyncio.to_thread(connect, "openai:c", host=server.url, quiet=True)
        with pytest.raises(ConfigError, match=r"name the model, as 'openai:NAME': .* has a, b"):
            await asyncio.to_thread(connect, "openai", base_url=server.url)
    assert known.chosen == f"Using a on the server at {server.url}."
    assert (known.config.model, repr(known.backend)) == (
        "a",
        f"OpenAIBackend('a', base_url='{server.url}')",
    )
    assert other.chosen == f"Using c on the server at {server.url}, which lists a, b."


async def test_connect_takes_the_only_model_and_the_environments_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving({"data": [{"id": "only"}]}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("LLMSIM_MODEL", "openai")
        client = await asyncio.to_thread(connect, "auto", quiet=True)
    assert client.config.model == "only"
    assert "(LLMSIM_MODEL=openai)" in client.chosen


async def test_connect_reports_what_is_wrong_with_a_server() -> None:
    async with serving(refused(401, "no")) as server:
        with pytest.raises(ConfigError, match="does not accept the key: no; set OPENAI_API_KEY"):
            await asyncio.to_thread(connect, "openai:m", base_url=server.url, api_key=KEY)
        url = server.url
    with pytest.raises(ConfigError, match=f"no OpenAI-compatible server answers at {url}"):
        await asyncio.to_thread(connect, "openai:m", base_url=url)


@pytest.mark.parametrize(
    ("model", "settings", "told"),
    [
        ("ollama:a", {"base_url": "http://me:pw@x/v1"}, "base_url= does not go with 'ollama:a'"),
        ("embedded", {"api_key": KEY}, "api_key= does not go with 'embedded'.*OpenAI's protocol"),
        ("auto", {"base_url": "http://x/v1"}, "'auto' never takes a model of an OpenAI-compatible"),
        ("openai:a", {"base_url": "http://x/v1", "host": "y"}, "are two addresses"),
    ],
)
def test_an_address_that_does_not_go_with_the_model_is_an_error(
    model: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        connect(model, **settings)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (None, "https://api.openai.com/v1"),
        ("http://vllm:8000/v1", "http://vllm:8000/v1"),
        ("http://vllm:8000/v1/", "http://vllm:8000/v1"),
        ("gpu-box:8000", "http://gpu-box:8000/v1"),
        ("HTTPS://box", "https://box/v1"),
        ("http://[::1]:8080/v1/chat/completions", "http://[::1]:8080/v1"),
        ("https://x.example/openai/v3", "https://x.example/openai/v3"),
        (" 'http://box/v1' ", "http://box/v1"),
    ],
)
def test_a_base_url_is_understood(given: str | None, url: str) -> None:
    assert parse_base_url(given) == url


@pytest.mark.parametrize(
    "given", ["ftp://box/v1", "http://", "http://box:99999/v1", "http://box/v1?x=1", "a b"]
)
def test_what_is_not_an_address_is_an_error_with_an_example(given: str) -> None:
    with pytest.raises(ConfigError, match=r"for example http://127\.0\.0\.1:8000/v1"):
        parse_base_url(given)


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="the key goes into api_key") as caught:
        parse_base_url("http://me:hunter2@box/v1")
    assert "hunter2" not in str(caught.value)


# Schemas


def test_a_portable_schema_has_only_what_strict_mode_knows() -> None:
    schema = {
        "title": "Reply",
        "type": "object",
        "$defs": {"One": {"type": "string", "title": "One", "minLength": 2}},
        "properties": {
            "one": {"$ref": "#/$defs/One", "description": "beside a reference"},
            "many": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 4},
            "either": {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            "title": {"type": "string", "default": "x"},
        },
        "required": ["one", "many", "either", "title"],
        "additionalProperties": False,
    }
    assert portable(schema) == {
        "type": "object",
        "$defs": {"One": {"type": "string"}},
        "properties": {
            "one": {"$ref": "#/$defs/One"},
            "many": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
            "either": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            "title": {"type": "string"},
        },
        "required": ["one", "many", "either", "title"],
        "additionalProperties": False,
    }
    assert is_strict(portable(schema))


@pytest.mark.parametrize(
    "change",
    [
        {"additionalProperties": {"type": "number"}},
        {"required": []},
        {"properties": {"word": {"type": "object", "properties": {"x": {}}}}},
        {"properties": {"word": {"type": "array", "items": {"type": "object"}}}},
        {"properties": {"word": {"anyOf": [{"type": "object"}]}}},
        {"properties": {"word": {"prefixItems": []}}},
    ],
)
def test_strict_is_not_promised_for_a_schema_that_is_not(change: dict[str, Any]) -> None:
    assert is_strict(SCHEMA)
    assert not is_strict(SCHEMA | change)
