"""The backend for servers of OpenAI's protocol, and faults on the wire that they may have."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from client_kit import Answer, Served

from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import OpenAIBackend, _http, connect, openai
from llmsim_lab.llm.openai import as_json, is_strict, portable
from llmsim_lab.types import ChatReply, ChatRequest, Message, ToolCall

URL = "http://box:1/v1"
KEY = "sk-secret-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 20}},
    "required": ["word"],
    "additionalProperties": False,
}
SIMPLER = {**SCHEMA, "properties": {"word": {"type": "string"}}}
PATTERNED = {**SCHEMA, "properties": {"word": {"type": "string", "pattern": "^[a-z]+$"}}}
LONG = {**SCHEMA, "properties": {"word": PATTERNED["properties"]["word"] | {"maxLength": 20}}}
REQUEST = ChatRequest(
    model="m",
    messages=(Message("system", "Be brief."), Message("user", "A secret plan.")),
    options={"temperature": 0.5, "seed": 7, "num_ctx": 4096, "num_predict": 64},
)
HELD = replace(REQUEST, schema=SCHEMA)
DONE = b"data: [DONE]\n\n"


def streamed(*events: dict[str, Any] | bytes) -> Answer:
    lines = [one if isinstance(one, bytes) else b"data: %b\n\n" % as_bytes(one) for one in events]
    return Answer(b"".join(lines))


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def delta(*, finish: str | None = None, **values: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": values, "finish_reason": finish}]}


def said(content: str | None = "Hm.", *, finish: str = "stop", **more: Any) -> Answer:
    """Write a reply of one piece."""
    usage = {"usage": more.pop("usage", None)}
    logprobs = more.pop("logprobs", None)
    event = delta(finish=finish, content=content, **more)
    event["choices"][0]["logprobs"] = logprobs
    return streamed(event | usage, DONE)


def document(value: Any, status: int = 200) -> Answer:
    return Answer(as_bytes(value), status)


def refused(status: int, message: str, **more: Any) -> Answer:
    headers = more.pop("headers", {})
    return replace(document({"error": {"message": message, **more}}, status), headers=headers)


# The request


@dataclass
class Server:
    """Asks new backends of the server that says what it is told to."""

    says: Served

    async def ask(self, *answers: Answer, request: ChatRequest = REQUEST, **settings: Any) -> Any:
        """Return a new backend's reply to a request."""
        self.says.answers = list(answers)
        return await OpenAIBackend("m", base_url=URL, **settings).chat(request)

    async def failure(self, *answers: Answer, **settings: Any) -> BackendError:
        with pytest.raises(BackendError) as caught:
            await self.ask(*answers, **settings)
        return caught.value


@pytest.fixture
def server(says: Served) -> Server:
    return Server(says)


async def test_a_request_has_every_option_and_no_other_field(server: Server) -> None:
    options = {**REQUEST.options, "top_p": 0.9, "min_p": None, "top_k": 3}
    await server.ask(said(), request=replace(HELD, options=options))
    [body] = server.says.bodies
    held = {"name": "reply", "strict": True, "schema": SCHEMA}
    assert body.pop("response_format") == {"type": "json_schema", "json_schema": held}
    roles = [(it["role"], it["content"]) for it in body.pop("messages")]
    assert roles == [(it.role, it.content) for it in REQUEST.messages]
    assert body.pop("stream_options") == {"include_usage": True}
    assert body.pop("chat_template_kwargs") == {"enable_thinking": False}
    sent = {"temperature": 0.5, "seed": 7, "max_tokens": 64, "top_p": 0.9, "top_k": 3}
    assert body == {"model": "m", "stream": True, **sent}
    [request] = server.says.requests
    assert str(request.url) == f"{URL}/chat/completions"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["user-agent"] == "llmsim-lab"
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("think", "fields"),
    [
        (None, {}),
        (True, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("low", {"reasoning_effort": "low"}),
    ],
)
async def test_thinking_is_asked_for_in_the_servers_words(
    server: Server, think: bool | str | None, fields: dict[str, Any]
) -> None:
    await server.ask(said(), request=replace(REQUEST, think=think))
    known = {"reasoning_effort", "chat_template_kwargs"}
    assert {name: value for name, value in server.says.bodies[0].items() if name in known} == fields


async def test_a_conversation_with_tools_names_the_call_that_each_result_is_of() -> None:
    find = ToolCall(name="find", arguments={"x": "é"})
    calls = (find, ToolCall(name="add", arguments={}, id="abc"), find)
    results = [Message("tool", "so", tool_name=name) for name in ("add", "find", "find")]
    asked, *results = as_json([Message("assistant", "", calls), *results])
    assert [call["id"] for call in asked["tool_calls"]] == ["call_1", "abc", "call_3"]
    function = {"name": "find", "arguments": '{"x": "é"}'}
    assert asked["tool_calls"][0] == {"id": "call_1", "type": "function", "function": function}
    assert [result["tool_call_id"] for result in results] == ["abc", "call_1", "call_3"]


async def test_openai_itself_is_asked_in_its_own_words(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(openai, "HOSTED", URL)
    caplog.set_level(logging.INFO, logger="llmsim_lab")
    await server.ask(said(), request=HELD, api_key=KEY)
    [body] = server.says.bodies
    assert body["max_completion_tokens"] == 64
    assert not {"max_tokens", "chat_template_kwargs"} & set(body)
    held = body["response_format"]["json_schema"]
    assert (held["strict"], held["schema"]) == (True, SIMPLER)
    assert caplog.messages == []


# The reply


async def test_a_reply_has_text_thinking_tokens_and_calls(server: Server) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    usage["prompt_tokens_details"] = {"cached_tokens": 8}
    answer = said("Yes.", finish="length", tool_calls=[call], reasoning_content="Hm.", usage=usage)
    tools = ({"type": "function", "function": {"name": "f", "parameters": {}}},)
    reply = await server.ask(answer, request=replace(REQUEST, tools=tools))
    assert server.says.bodies[0]["tools"] == list(tools)
    assert reply == ChatReply(
        text="Yes.",
        thinking="Hm.",
        tool_calls=(ToolCall(name="f", arguments={"x": 1}, id="c1"),),
        done_reason="length",
        prompt_tokens=12,
        cached_tokens=8,
        reply_tokens=3,
        seconds=reply.seconds,
    )
    assert reply.seconds > 0


async def test_alternatives_of_the_first_token_are_asked_for_and_read(server: Server) -> None:
    tokens = [{"token": "B", "logprob": -2.0, "bytes": [66]}, {"token": "A", "logprob": -0.25}]
    first = {"token": "A", "logprob": -0.25, "top_logprobs": tokens}
    answer = said("A", logprobs={"content": [first, {"token": "!", "top_logprobs": []}]})
    reply = await server.ask(answer, request=replace(REQUEST, top_logprobs=5))
    assert (server.says.bodies[0]["logprobs"], server.says.bodies[0]["top_logprobs"]) == (True, 5)
    assert reply.top_logprobs == (("B", -2.0), ("A", -0.25))


async def test_a_model_that_the_server_stopped_is_a_failure_with_what_came(server: Server) -> None:
    error = await server.failure(said("So far", finish="content_filter"))
    assert (error.reason, error.status_code, error.retry) == ("generation_stopped", 200, True)
    assert error.reply is not None
    assert error.reply.text == "So far"
    assert "stopped the model before it was done, after 'So far'" in str(error)


async def test_a_stream_is_handed_on_and_put_together(server: Server) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    usage["timings"] = {"cache_n": 6, "prompt_n": 3}  # as llama.cpp has them
    server.says.answers = [
        streamed(
            b": a comment, as some send while they wait\n\n",
            delta(reasoning_content="Well"),
            delta(reasoning="…"),
            delta(role="assistant", content="Ye") | {"error": None},
            b'event: message\ndata:{"choices":[{"delta":{"content":"s\xe2\x80\xa8"}}]}\n\n',
            delta(finish="stop"),
            usage,
            DONE,
            delta(content="More"),
            b"data: {\n\n",
        )
    ]
    pieces: list[str] = []
    reply = await OpenAIBackend("m", base_url=URL).chat(REQUEST, on_text=pieces.append)
    assert [*filter(None, pieces)] == ["<think>Well", "…", "</think>Ye", "s\u2028"]
    assert (reply.text, reply.thinking, reply.done_reason) == ("Yes\u2028", "Well…", "stop")
    assert (reply.prompt_tokens, reply.cached_tokens, reply.reply_tokens) == (9, 6, 4)


@pytest.mark.parametrize(
    ("limit", "most", "words"),
    [("MAX_CALLS", 1, "1 calls of tools"), ("MAX_ARGUMENTS_BYTES", 11, "11 bytes of arguments")],
)
async def test_calls_of_tools_are_few_and_small(
    server: Server, limit: str, most: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = {"function": {"name": "f", "arguments": '{"x":1}'}}
    monkeypatch.setattr(_http, limit, most)
    error = await server.failure(streamed(*[delta(tool_calls=[piece])] * 2, DONE))
    assert f"sent more than {words}" in str(error)


async def test_calls_that_come_in_pieces_are_put_together(server: Server) -> None:
    def part(place: int | None, **function: str) -> dict[str, Any]:
        call: dict[str, Any] = {"function": function} | ({"id": "c"} if "name" in function else {})
        return delta(tool_calls=[call if place is None else call | {"index": place}])

    pieces = (
        part(0, name="f", arguments=""),
        part(0, arguments='{"x"'),
        part(1, name="g", arguments="{}"),
        part(0, arguments=": 1}"),
        part(None, name="h"),
    )
    reply = await server.ask(streamed(*pieces, delta(finish="tool_calls"), DONE))
    assert reply.tool_calls == (
        ToolCall(name="f", arguments={"x": 1}, id="c"),
        ToolCall(name="g", arguments={}, id="c"),
        ToolCall(name="h", arguments={}, id="c"),
    )


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"<html>Please log in.</html>"),
        document({"choices": [{"message": {"content": "not streamed"}}]}),
    ],
)
async def test_an_answer_that_is_not_of_the_protocol_is_the_servers_fault(
    server: Server, answer: Answer
) -> None:
    error = await server.failure(answer)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, True)
    assert "is not JSON as an OpenAI-compatible server sends it" in str(error)
    assert len(str(error)) < 700


@pytest.mark.parametrize("content", [b"<html>", b'{"tokens": "x"}', b'{"tokens": [1e999]}'])
async def test_a_count_of_tokens_that_makes_no_sense_is_the_servers_fault(
    server: Server, content: bytes
) -> None:
    server.says.answers = [Answer(content)]
    with pytest.raises(BackendError, match="is not JSON as an OpenAI-compatible server sends it"):
        await OpenAIBackend("m", base_url=URL).tokens_in("x")


async def test_a_probability_beyond_all_is_the_servers_fault(server: Server) -> None:
    token = {"bytes": [65], "logprob": 1000.0}
    server.says.answers = [
        streamed(
            {"choices": [{"delta": {}, "logprobs": {"content": [token]}}]},
            delta(finish="stop"),
            DONE,
        )
    ]
    with pytest.raises(BackendError, match="logprob is 1000, which is not a logarithm"):
        await OpenAIBackend("m", base_url=URL).traced(REQUEST)


@pytest.mark.parametrize("written", ["[]", '{"a": '])
async def test_arguments_that_a_model_writes_wrongly_are_an_invalid_reply(
    server: Server, written: str
) -> None:
    call = {"function": {"name": "add", "arguments": written}}
    error = await server.failure(streamed(delta(tool_calls=[call]), DONE))
    assert (error.reason, error.retry) == ("invalid_response", True)
    assert str(error).startswith("the arguments of add are not a JSON object")
    assert error.__cause__ is None  # a replay, which has none, would show the model other words


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"error": {"message": "out of memory", "code": 502}}, 502),
        (b'error: {"message": "out of memory"}\n', None),
    ],
)
async def test_an_error_within_a_stream_is_the_servers(
    server: Server, event: dict[str, Any] | bytes, status: int | None
) -> None:
    error = await server.failure(streamed(delta(content="So"), event, DONE))
    assert (error.reason, error.status_code) == ("server_error", status)
    assert "failed for 'm': out of memory" in str(error)


# What a server does not have


async def test_a_server_without_structured_outputs_gets_the_schema_as_text_and_is_named_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    no = refused(400, "This response_format type is unavailable now", type="invalid_request_error")
    server.says.answers = [no, no, said('{"word": "yes"}')]
    backend = OpenAIBackend("m", base_url=URL)
    await backend.chat(HELD)
    await backend.chat(replace(HELD, messages=(Message("user", "Go."),)))
    bodies = server.says.bodies
    assert ["response_format" in body for body in bodies] == [True, True, False, False]
    assert [message["role"] for message in bodies[3]["messages"]] == ["system", "user"]
    system = bodies[2]["messages"][0]
    # Not where ``tell_form`` or a second attempt has told it.
    told = Message("user", f"Go.\n{bodies[3]['messages'][0]['content']}")
    await backend.chat(replace(HELD, messages=(told,)))
    assert [message["role"] for message in server.says.bodies[4]["messages"]] == ["user"]
    assert system["role"] == "system"
    assert system["content"].startswith("Be brief.\n\nReply with one JSON object")
    assert '- "word": a text of at most 20 characters\n' in system["content"]
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith("server_lacks model=m")
    assert "lacks=response_format" in line


async def test_a_setting_that_changes_nothing_goes_where_a_server_lacks_it(server: Server) -> None:
    no = refused(400, "Unrecognized request argument supplied: top_k", type="invalid_request_error")
    server.says.answers = [no, said("A")]
    options = {"top_k": 0, "min_p": 0.0, "temperature": 1}
    await OpenAIBackend("m", base_url=URL).chat(replace(REQUEST, options=options))
    assert ["top_k" in body for body in server.says.bodies] == [True, False]
    assert ["min_p" in body for body in server.says.bodies] == [True, True]


@pytest.mark.parametrize(
    ("lacking", "schemas"),
    [
        (["maxLength"], [LONG, PATTERNED, PATTERNED]),
        (["maxLength", "pattern"], [LONG, PATTERNED, SIMPLER, SIMPLER]),
    ],
)
async def test_a_schema_that_is_turned_down_is_sent_without_what_the_server_lacks(
    server: Server, lacking: list[str], schemas: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    text = "Invalid schema for response_format 'reply': {!r} is not permitted."
    refusals = [refused(400, text.format(name), param="response_format") for name in lacking]
    server.says.answers = [*refusals, said('{"word": "yes"}')]
    backend = OpenAIBackend("m", base_url=URL)
    request = replace(REQUEST, schema=LONG)
    await backend.chat(request)
    await backend.chat(request)
    sent = [body["response_format"]["json_schema"]["schema"] for body in server.says.bodies]
    assert sent == schemas
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("Unrecognized request argument: chat_template_kwargs", "chat_template_kwargs"),
        ("unknown field stream_options", "stream_options"),
        ("This model does not support logprobs", "logprobs"),
        ("Unrecognized request argument supplied: cache_prompt", "cache_prompt"),
    ],
)
async def test_what_a_server_does_not_take_is_left_out_from_then_on(
    server: Server, message: str, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="llmsim_lab")
    options = {**REQUEST.options, "cache_prompt": False}
    request = replace(REQUEST, top_logprobs=3, options=options)
    server.says.answers = [refused(400, message), said()]
    backend = OpenAIBackend("m", base_url=URL)
    await backend.chat(request)
    await backend.chat(request)
    assert gone in server.says.bodies[0]
    assert gone not in server.says.bodies[-1]
    assert ("max_completion_tokens" in server.says.bodies[-1]) == (gone == "max_tokens")
    assert sum(f"lacks={gone} " in line for line in caplog.messages) == 1


# Errors that a server reports


@pytest.mark.parametrize(
    ("answer", "reason", "told"),
    [
        (
            refused(401, "no"),
            "client_error",
            "the key that it was shown is not one that it knows: set",
        ),
        (refused(404, "Not Found"), "client_error", "is the address of an OpenAI-compatible"),
        (refused(400, "'seed' is not supported", param="seed"), "client_error", "body.pop('seed',"),
        (
            refused(400, "Unsupported value: 'temperature'", param="temperature"),
            *(
                "client_error",
                "; set temperature=1, or leave it out of each request: OpenAIBackend",
            ),
        ),
        (document({"detail": "no body"}, 422), "client_error", "no body"),
        (document({"message": "bare"}, 400), "client_error", ": bare"),
        (Answer(b"x" * 300_000, 502), "server_error", "failed for 'm': xxx"),
    ],
)
async def test_an_error_has_a_reason_and_a_way_out(
    server: Server, answer: Answer, reason: str, told: str
) -> None:
    error = await server.failure(answer, api_key=KEY)
    assert (error.reason, error.status_code) == (reason, answer.status)
    assert told in str(error)
    assert URL in str(error)
    assert len(str(error)) < 700


LLAMA = {"type": "exceed_context_size_error", "n_prompt_tokens": 4031, "n_ctx": 2048}
NOT_FIT = [
    (refused(400, "(2048 tokens)", **LLAMA), "has 4031 tokens, more than .* window of 2048 tokens"),
    (refused(400, "maximum", code="context_length_exceeded"), "has 25 characters, more than the c"),
    (refused(400, "The prompt is longer than the maximum model length of 512."), "of 512"),
]


@pytest.mark.parametrize(("answer", "told"), NOT_FIT)
async def test_a_prompt_that_does_not_fit_is_told_apart(
    server: Server, answer: Answer, told: str
) -> None:
    error = await server.failure(answer, request=HELD)
    assert (error.reason, error.status_code, error.retry) == ("context_overflow", 400, False)
    assert re.search(f"{told}.*start the server with a larger window", str(error))


# The key


async def fetched() -> str:
    return KEY


@pytest.mark.parametrize("given", [None, KEY, lambda: KEY, fetched])
async def test_the_key_goes_to_the_server_and_nowhere_else(
    server: Server, given: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if given is None:
        monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    backend = OpenAIBackend("m", base_url=URL, api_key=given)
    server.says.answers = [refused(401, f"Incorrect API key: Bearer {KEY}", param=KEY)]
    with pytest.raises(BackendError, match=r"Incorrect API key: Bearer \*\*\*"):
        await backend.chat(REQUEST)
    [request] = server.says.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(backend) + repr(vars(backend))
    assert KEY not in caplog.text


def test_openai_itself_is_not_asked_without_a_key() -> None:
    with pytest.raises(ConfigError, match=r"api\.openai\.com/v1 wants a key: set OPENAI_API_KEY"):
        OpenAIBackend("m")


# Which model and which server


async def test_the_only_model_is_taken_where_none_is_named(server: Server) -> None:
    server.says.answers = [document({"data": [{"id": "m"}]})]
    info = await OpenAIBackend(base_url=URL).model_info()
    assert (info.name, info.backend, info.digest) == ("m", "openai", None)


def test_connect_reports_the_server_and_the_names_it_lists(server: Server) -> None:
    server.says.answers = [document({"data": [{"id": "a"}, {"id": "b"}]})]
    known = connect("openai:a", base_url=URL, quiet=True)
    other = connect("openai:c", host=URL, quiet=True)
    with pytest.raises(ConfigError, match=r"name the model, as 'openai:NAME': .* has a, b"):
        connect("openai", base_url=URL)
    assert known.chosen == f"Using a on the server at {URL}."
    assert known.config.model == "a"
    assert other.chosen == f"Using c on the server at {URL}, which lists a, b."
    assert other.limits.at_once == 8


@pytest.mark.parametrize(
    ("properties", "at_once"),
    [({"total_slots": 3}, 3), ({"total_slots": "many"}, 8), ({}, 8), ([], 8)],
)
def test_as_many_are_sent_at_once_as_a_llama_cpp_server_has_slots(
    server: Server, properties: Any, at_once: int
) -> None:
    models = {"data": [{"id": "a", "owned_by": "llamacpp"}]}
    server.says.answers = [document(models), document(properties)]
    assert connect("openai:a", base_url=URL, quiet=True).limits.at_once == at_once
    assert [request.url.path for request in server.says.requests] == ["/v1/models", "/props"]


@pytest.mark.parametrize(
    ("model", "settings", "told"),
    [
        ("ollama:a", {"base_url": "http://me:pw@x/v1"}, "base_url= does not go with 'ollama'"),
        ("embedded", {"api_key": KEY}, "api_key= does not go with 'embedded'.*openai:NAME"),
        ("auto", {"base_url": "http://x/v1"}, "'openai:NAME' only, which 'auto' never takes"),
        ("openai:a", {"base_url": "http://x/v1", "host": "y"}, "are two addresses"),
    ],
)
def test_an_address_that_does_not_go_with_the_model_is_an_error(
    model: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        connect(model, **settings)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (None, "https://api.openai.com/v1"),
        ("http://vllm:8000/v1/", "http://vllm:8000/v1"),
        ("gpu-box:8000", "http://gpu-box:8000/v1"),
        ("https://x.example/openai/v3", "https://x.example/openai/v3"),
    ],
)
def test_a_base_url_is_understood(given: str | None, url: str) -> None:
    assert OpenAIBackend(base_url=given, api_key="a-key").base_url == url


# Schemas


@pytest.mark.parametrize(
    ("it", "strict"),
    [
        ({"type": "integer"}, True),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, True),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, False),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, False),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
    ],
)
def test_only_a_schema_that_strict_mode_takes_is_called_strict(it: Any, strict: bool) -> None:
    whole = {"type": "object", "properties": {"it": it}, "required": ["it"]}
    assert is_strict({**whole, "additionalProperties": False}) is strict


def test_a_portable_schema_has_only_what_strict_mode_knows() -> None:
    def whole(**properties: Any) -> dict[str, Any]:
        return {"properties": properties, "required": [*properties], "additionalProperties": False}

    either, one = [{"type": "integer", "minimum": 1}, {"type": "null"}], {"$ref": "#/$defs/One"}
    text = {"type": "string"}
    schema = {"title": "Reply", "$defs": {"One": text | {"minLength": 2}}}
    schema |= whole(one=one | {"description": "Why."}, either={"oneOf": either}, title=text)
    expected = whole(one=one, either={"anyOf": either}, title=text)
    assert portable(schema) == {"$defs": {"One": text}} | expected
