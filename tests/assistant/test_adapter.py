"""The adapter reaches any model, says what failed, and has the model say what its words are."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import ANY

import pytest
from assistant_kit import TASK_TOOLS
from fake_ollama import FakeModel, FakeOllama

from llmsim_lab.assistant import (
    FunctionCall,
    LLMError,
    LLMMessage,
    LLMResponse,
    OllamaAdapter,
    RateLimitError,
    ToolDeclaration,
)
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend, ScriptedBackend
from llmsim_lab.types import ChatReply, ChatRequest, ToolCall

TALK = [LLMMessage("system", "Be brief."), LLMMessage("user", "Add milk")]
ADD: dict[str, Any] = {"name": "add_task", "arguments": {"title": "Milk"}}
MILK = FunctionCall("add_task", {"title": "Milk"})


def said(text: str, kind: str = "answer", done: str = "nothing") -> dict[str, Any]:
    return {"name": "respond", "arguments": {"text": text, "kind": kind, "done": done}}


def called(name: str, arguments: dict[str, Any], **fields: Any) -> ChatReply:
    return ChatReply(text="", tool_calls=(ToolCall(name=name, arguments=arguments),), **fields)


OLLAMA = "registry.ollama.ai/library/gemma3:latest does not support tools"
REFUSALS = (
    OLLAMA,
    "No endpoints found that support tool use",
    "tools param requires --jinja flag",
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
)
"""Of Ollama, OpenRouter, llama.cpp and vLLM."""


def make(replies: Any, *, calling: str = "auto") -> tuple[OllamaAdapter, ScriptedBackend]:
    """Return an adapter of a model with these replies, whose server may refuse tools in words."""
    script = [*replies] if isinstance(replies, list) else [replies]

    def unable(request: ChatRequest) -> Any:
        if request.tools:
            raise BackendError(calling, reason="client_error")
        return script.pop(0) if len(script) > 1 else script[0]

    backend = ScriptedBackend(replies if calling == "auto" else unable)
    client = LLMClient(LLMConfig(model="test", retry_wait_s=0), backend)
    return OllamaAdapter(client), backend


async def generate(adapter: OllamaAdapter, messages: Any = TALK) -> LLMResponse:
    return await adapter.generate(messages, TASK_TOOLS)


async def test_text_calls_and_reason_come_back() -> None:
    calls = (ToolCall(**ADD),)
    adapter, backend = make([ChatReply(text="I will.", tool_calls=calls, done_reason="length")])
    response = await adapter.generate(TALK, TASK_TOOLS, temperature=0.2, max_tokens=99)
    assert response == LLMResponse("I will.", (MILK,), finish_reason="length")
    [request] = backend.requests
    assert (request.options["temperature"], request.options["num_predict"]) == (0.2, 99)
    offered = [tool["function"]["name"] for tool in request.tools]
    assert offered == [*(tool.name for tool in TASK_TOOLS), "respond"]
    assert request.site is not None
    assert request.site.component == "assistant"


FULL = "server busy, please try again.  maximum pending requests exceeded"
FAULTS: list[tuple[Exception, type[LLMError], str | None]] = [
    (BackendError("slow", reason="rate_limited", retry_after_s=7), RateLimitError, None),
    (BackendError(FULL, reason="server_error", status_code=503), RateLimitError, None),
    (TimeoutError(), LLMError, "TIMEOUT"),
    (ConnectionError("gone"), LLMError, "CONNECTION_ERROR"),
]


@pytest.mark.parametrize(("fault", "kind", "code"), FAULTS)
async def test_what_failed_is_said_by_type_and_code(
    fault: Any, kind: type[LLMError], code: str | None
) -> None:
    adapter, _ = make(fault)
    with pytest.raises(kind) as caught:
        await generate(adapter)
    assert code in (None, caught.value.code)
    assert caught.value.retry_after == getattr(fault, "retry_after_s", None)


# Models without tool calls of their own


async def test_a_model_without_tools_is_given_them_as_a_schema() -> None:
    model = FakeModel(name="plain", capabilities=("completion",))
    replies = [json.dumps(ADD), json.dumps(said("Added."))]
    with FakeOllama([model], reply=replies) as fake:
        config, backend = LLMConfig(model="plain"), OllamaBackend("plain", host=fake.host)
        async with LLMClient(config, backend) as client:
            adapter = OllamaAdapter(client)
            assert (await generate(adapter)).function_calls == (MILK,)
            after = LLMMessage("tool", "done", tool_name="add_task")
            talk = [*TALK, LLMMessage("assistant", "", (MILK,)), after]
            assert (await generate(adapter, talk)).content == "Added."
    tried, *held = [dict(request.body) for request in fake.requests]
    assert [bool(body.get("tools")) for body in (tried, *held)] == [True, False, False]
    forms = [form["properties"]["name"]["const"] for form in held[0]["format"]["anyOf"]]
    assert forms == [*(tool.name for tool in TASK_TOOLS), "respond"]
    first, *rest = held[1]["messages"]
    assert first["role"] == "system"
    assert [(message["role"], message["content"]) for message in rest] == [
        ("user", "Add milk"),
        ("assistant", json.dumps(ADD)),
        ("user", "Result of add_task:\ndone"),
    ]


async def test_a_model_that_copies_the_form_it_is_told_answers_in_words_and_calls_no_tool() -> None:
    model = FakeModel(name="plain", capabilities=("completion",))
    with FakeOllama([model], ignores_format=True) as fake:
        config, backend = LLMConfig(model="plain", retry_wait_s=0), OllamaBackend(host=fake.host)
        async with LLMClient(config, backend) as client:
            response = await generate(OllamaAdapter(client))
    assert (response.content, response.function_calls) == ("a text", ())


# What the model says of its words


@pytest.mark.parametrize("calling", ["auto", *REFUSALS])
@pytest.mark.parametrize("kind", ["answer", "question", "refusal"])
async def test_respond_says_what_the_words_are(kind: Any, calling: Any) -> None:
    reply = said("Erledigt.", kind, "add_task")
    wanted = reply if calling in REFUSALS else called("respond", reply["arguments"])
    adapter, _ = make(wanted, calling=calling)
    assert await generate(adapter) == LLMResponse("Erledigt.", (), ANY, kind=kind)


async def test_a_tool_of_ones_own_cannot_be_called_respond() -> None:
    taken = [*TASK_TOOLS, ToolDeclaration("respond", "Answer a letter.")]
    adapter, _ = make("")
    with pytest.raises(ConfigError, match="named 'respond', as the model's answer is; rename"):
        await adapter.generate(TALK, taken)


async def test_work_comes_before_words_about_it() -> None:
    calls = (ToolCall(**ADD), ToolCall(**said("Added.", done="add_task")))
    adapter, _ = make(ChatReply(text="", tool_calls=calls))
    response = await generate(adapter)
    assert (response.function_calls, response.content) == ((MILK,), None)


async def test_nothing_is_guessed_from_plain_text() -> None:
    text = json.dumps(ADD)
    adapter, backend = make(text)
    response = await generate(adapter)
    assert (response.content, response.function_calls) == (text, ())
    assert (response.kind, len(backend.requests)) == (None, 1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"kind": "answer"}, "text: Field required"),
        ({"text": " ", "kind": "answer"}, "text: String should have at least 1 character"),
        ({"text": "Hi", "kind": "poem"}, "kind: Input should be 'answer', 'question' or"),
    ],
)
async def test_words_that_are_not_as_asked_for_are_asked_for_again(
    arguments: dict[str, Any], complaint: str
) -> None:
    adapter, backend = make([called("respond", arguments), called("respond", {"text": "Hi"})])
    response = await generate(adapter)
    assert (response.content, response.kind) == ("Hi", None)
    assert complaint in backend.requests[1].messages[-1].content


@pytest.mark.parametrize("text", ["Hi", "[]", "[" * 100_000, '{"name": "add_task"}'])
async def test_content_held_to_a_schema_that_is_no_form_of_it_is_asked_for_again(text: str) -> None:
    adapter, backend = make([text, said("Hi")], calling=OLLAMA)
    assert (await generate(adapter)).content == "Hi"
    assert len([request for request in backend.requests if not request.tools]) == 2


@pytest.mark.parametrize("calling", ["auto", OLLAMA])
async def test_a_call_that_was_cut_is_not_made(calling: Any) -> None:
    cut = ChatReply(text='{"name": "add_task", "arguments": {"title": "Mil', done_reason="length")
    adapter, _ = make([cut, cut], calling=calling)
    with pytest.raises(LLMError, match="the call was cut off"):
        await generate(adapter)


async def test_half_characters_in_the_history_keep_no_request_from_being_sent() -> None:
    adapter, backend = make("Done.")
    half = "\ud83d"
    asked = FunctionCall("add_task", {"title": f"Milk {half}"})
    talk = [LLMMessage("user", f"Add {half}"), LLMMessage("assistant", half, (asked,))]
    await generate(adapter, talk)
    user, said = backend.requests[0].messages
    assert (user.content, said.content) == ("Add \ufffd", "\ufffd")
    assert said.tool_calls[0].arguments == {"title": "Milk \ufffd"}
