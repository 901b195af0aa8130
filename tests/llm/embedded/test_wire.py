"""Requests become fields of the child's protocol, its event streams replies or errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._embedded.wire import collect, outgoing, raise_error
from llmsim_lab.types import ChatReply, ChatRequest, Message


def request(**changes: Any) -> ChatRequest:
    values: dict[str, Any] = {"model": "auto", "messages": (Message("user", "hi"),)}
    return ChatRequest(**values | changes)


def fields(**options: Any) -> dict[str, Any]:
    return outgoing(request(options=options)).fields


def test_options_arrive_by_the_runtimes_names() -> None:
    sent = fields(num_predict=20, temperature=0.5, top_k=3, top_p=1, repeat_penalty=1.1, seed=7)
    expected = {
        "max_tokens": 20,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 1,
        "repeat_penalty": 1.1,
        "seed": 7,
    }
    assert expected.items() <= sent.items()


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ({"num_predict": -2}, "max_tokens", -1),
        ({"seed": -1}, "seed", 2**32 - 2),
        ({"seed": 2**63}, "seed", 2**63 % (2**32 - 1)),
        ({"stop": "end"}, "stop", ["end"]),
        ({"stop": ("a", "b")}, "stop", ["a", "b"]),
        ({"cache_prompt": False}, "cache_prompt", False),
    ],
)
def test_values_are_put_into_the_runtimes_terms(
    option: dict[str, Any], field: str, value: Any
) -> None:
    assert fields(**option)[field] == value


def test_the_context_window_is_not_a_field_but_applies() -> None:
    sent = outgoing(request(options={"num_ctx": 2048}))
    assert sent.num_ctx == 2048
    assert "num_ctx" not in sent.fields


def test_an_option_without_a_value_is_left_out() -> None:
    assert "seed" not in fields(seed=None)


def test_an_unknown_option_is_rejected_by_name() -> None:
    with pytest.raises(BackendError, match=r"no option 'tfs_z' \(given: 1\); it has cache") as e:
        fields(tfs_z=1)
    assert e.value.reason == "client_error"
    assert not e.value.retry


@pytest.mark.parametrize(
    "option",
    [
        {"temperature": "hot"},
        {"temperature": True},
        {"num_predict": 1.5},
        {"num_ctx": 0},
        {"seed": "x"},
        {"stop": 3},
        {"stop": [3]},
        {"cache_prompt": 1},
    ],
)
def test_a_value_of_the_wrong_type_is_rejected(option: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match=rf"option {next(iter(option))}=.* must be"):
        fields(**option)


def test_a_schema_goes_out_as_a_grammar() -> None:
    sent = outgoing(request(schema={"type": "boolean"}))
    assert sent.fields["grammar"].startswith("%llguidance")
    assert sent.schema == {"type": "boolean"}


def test_tools_go_out_as_a_schema() -> None:
    sent = outgoing(request(tools=({"type": "function", "function": {"name": "ls"}},)))
    assert sent.schema is not None
    assert sent.fields["messages"][0]["role"] == "system"


@pytest.mark.parametrize(("think", "enabled"), [(False, False), ("low", True), (None, None)])
def test_thinking_is_asked_for_or_not(think: Any, enabled: bool | None) -> None:
    sent = outgoing(request(think=think)).fields.get("chat_template_kwargs", {})
    assert sent.get("enable_thinking") is enabled


# Replies


async def stream(*events: Any) -> AsyncIterator[bytes]:
    yield b": a comment\n"
    for event in events:
        line = event if isinstance(event, str) else f"data: {json.dumps(event, ensure_ascii=False)}"
        yield f"{line}\n\n".encode()


def piece(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": reason}]}


async def test_characters_that_end_lines_elsewhere_are_text() -> None:
    reply = await collect(stream(piece(content="a\u2028b\x85c\u2029"), piece("stop")))
    assert reply.text == "a\u2028b\x85c\u2029"


async def test_a_reply_is_put_together_from_its_events() -> None:
    usage = {"usage": {"prompt_tokens": 9, "completion_tokens": 2}, "choices": []}
    reply = await collect(
        stream(
            piece(role="assistant", content=None),
            piece(reasoning_content="hm"),
            piece(content="He"),
            piece(content="y"),
            piece("length"),
            usage,
            "data: [DONE]",
        )
    )
    assert reply == ChatReply(
        text="Hey", thinking="hm", done_reason="length", prompt_tokens=9, reply_tokens=2
    )


async def test_pieces_are_handed_on_as_they_come() -> None:
    told: list[str] = []
    pieces = [piece(reasoning_content="hm"), piece(content="He"), piece(content="y"), piece("stop")]
    reply = await collect(stream(*pieces), on_text=lambda text: bool(told.append(text)))
    assert told == ["<think>hm", "</think>He", "y"]
    assert (reply.text, reply.thinking, reply.done_reason) == ("Hey", "hm", "stop")


async def test_a_stream_that_ends_early_is_a_lost_connection() -> None:
    with pytest.raises(BackendError, match="broke off") as caught:
        await collect(stream(piece(content="He")))
    assert (caught.value.reason, caught.value.retry) == ("connection_error", True)


@pytest.mark.parametrize(
    "line", ['data: {"error": {"code": 500, "message": "oh"}}', 'error: {"message": "oh"}']
)
async def test_an_error_in_the_stream_is_an_error(line: str) -> None:
    with pytest.raises(BackendError, match="failed: oh") as caught:
        await collect(stream(piece(content="He"), line))
    assert (caught.value.reason, caught.value.status_code) == ("server_error", 500)


@pytest.mark.parametrize("line", ["data: {", "data: 3"])
async def test_what_is_not_an_event_is_shown(line: str) -> None:
    with pytest.raises(BackendError, match="which is not an event"):
        await collect(stream(line))


@pytest.mark.parametrize(
    "line",
    [
        'data: {"usage": {"prompt_tokens": true}}',
        'data: {"usage": {"completion_tokens": -1}}',
        'data: {"usage": [1]}',
        'data: {"choices": [{"delta": {"content": 5}}]}',
        'data: {"choices": [5]}',
        'data: {"x": NaN}',
        "data: " + "[" * 100_000,
    ],
)
async def test_an_event_that_makes_no_sense_is_shown_and_no_other_kind_of_error(line: str) -> None:
    with pytest.raises(BackendError, match="which is not an event") as caught:
        await collect(stream(line))
    assert (caught.value.reason, len(str(caught.value)) < 300) == ("server_error", True)


def test_an_errors_text_has_nothing_that_a_terminal_obeys() -> None:
    with pytest.raises(BackendError) as caught:
        raise_error({"error": {"message": "\x1b[31mred\x07\u202e\x9b"}}, 500)
    assert str(caught.value) == "the embedded model failed: [31mred"


def test_numbers_in_an_error_that_make_no_sense_are_left_aside() -> None:
    told = {"type": "exceed_context_size_error", "code": 10**30, "n_ctx": "x", "message": "long"}
    with pytest.raises(BackendError, match="failed: long") as caught:
        raise_error({"error": told}, 400)
    assert caught.value.status_code == 500


@pytest.mark.parametrize(
    ("trained", "rest"),
    [
        (
            None,
            "num_ctx=4096 can hold; raise LLMConfig.num_ctx, up to what the model was trained for, "
            "or shorten the prompt",
        ),
        (
            8192,
            "num_ctx=4096 can hold; raise LLMConfig.num_ctx, up to 8192, or shorten the prompt",
        ),
        (
            4096,
            "the 4096 tokens of context that the model was trained for; shorten the prompt, or use "
            "a model with a longer context",
        ),
    ],
)
def test_too_long_a_prompt_names_both_numbers_and_one_way_out(
    trained: int | None, rest: str
) -> None:
    error = {"type": "exceed_context_size_error", "code": 400, "n_prompt_tokens": 5031}
    with pytest.raises(BackendError) as caught:
        raise_error({"error": error | {"n_ctx": 4096}}, 400, trained=trained)
    assert str(caught.value) == f"the prompt has 5,031 tokens, more than {rest}"
    assert caught.value.reason == "context_overflow"


@pytest.mark.parametrize("body", [{}, {"error": {}}, {"error": {"code": 500}}])
def test_an_error_without_words_is_told_as_such(body: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match="failed: it does not say what"):
        raise_error(body, 500)


def test_a_prompt_that_does_not_fit_is_recognized_beside_json_in_the_message() -> None:
    told = {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}
    with pytest.raises(BackendError) as caught:
        raise_error({"error": told | {"message": '{"prompt": "too long"}'}}, 400)
    assert caught.value.reason == "context_overflow"


@pytest.mark.parametrize(
    ("body", "status", "reason", "retry"),
    [
        ({"error": {"code": 400, "message": "no"}}, 200, "client_error", False),
        ({"error": {"code": 503, "message": "loading"}}, 503, "server_error", True),
        ({"error": {"message": "no"}}, 404, "client_error", False),
        ({"error": "plain text"}, 200, "server_error", True),
        ({}, 500, "server_error", True),
    ],
)
def test_errors_are_distinguished_whatever_their_status(
    body: dict[str, Any], status: int, reason: str, retry: bool
) -> None:
    with pytest.raises(BackendError) as caught:
        raise_error(body, status)
    assert (caught.value.reason, caught.value.retry) == (reason, retry)
