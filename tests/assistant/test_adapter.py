"""The adapter reaches any model, says what failed, and finds calls that were written as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from assistant_kit import TASK_TOOLS

from llmsim_lab.assistant import (
    FunctionCall,
    InvalidResponseError,
    LLMAdapter,
    LLMError,
    LLMMessage,
    LLMResponse,
    OllamaAdapter,
    RateLimitError,
)
from llmsim_lab.assistant.text_calls import calls_in_text, cut_answer, read_choice
from llmsim_lab.calls import CallSite, ChatReply, ChatRequest, ToolCall
from llmsim_lab.errors import BackendError
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend, ScriptedBackend, Tape
from llmsim_lab.llm.ollama.wire import FieldsTransport, Outgoing
from llmsim_lab.llm.scope import recording, scoped
from llmsim_lab.llm.tape import LiveRecorder
from llmsim_lab.testing import FakeModel, FakeOllama

TALK = [LLMMessage("system", "Be brief."), LLMMessage("user", "Add milk")]
ADD = {"name": "add_task", "arguments": {"title": "Milk"}}


def make(replies: Any, **options: Any) -> tuple[OllamaAdapter, ScriptedBackend]:
    backend = ScriptedBackend(replies)
    client = LLMClient(LLMConfig(model="test", retry_wait_s=0), backend)
    return OllamaAdapter(client, **options), backend


async def generate(adapter: OllamaAdapter, messages: Any = TALK) -> LLMResponse:
    return await adapter.generate(messages, TASK_TOOLS)


def test_it_is_an_adapter_and_knows_the_tools_it_was_given() -> None:
    adapter, _ = make("", tools=TASK_TOOLS)
    assert isinstance(adapter, LLMAdapter)
    names = ["list_tasks", "unknown"]
    assert [tool.name for tool in adapter.get_tool_declarations(names)] == ["list_tasks"]


async def test_text_calls_tokens_and_reason_come_back() -> None:
    reply = ChatReply(
        text="I will.",
        tool_calls=(ToolCall(name="add_task", arguments={"title": "Milk"}),),
        done_reason="length",
        prompt_tokens=20,
    )
    adapter, backend = make([reply])
    response = await adapter.generate(TALK, TASK_TOOLS, temperature=0.2, max_tokens=99)
    assert response == LLMResponse(
        content="I will.",
        function_calls=(FunctionCall("add_task", {"title": "Milk"}),),
        finish_reason="length",
        usage={"prompt_tokens": 20},
    )
    [request] = backend.requests
    assert request.options["temperature"] == 0.2
    assert request.options["num_predict"] == 99
    assert request.tools[0]["function"]["name"] == "add_task"
    assert request.site is not None
    assert request.site.component == "assistant"


async def test_earlier_calls_and_their_results_are_told_as_such() -> None:
    adapter, backend = make("Done.")
    calls = [FunctionCall("add_task", '{"title": "Milk"}'), FunctionCall("add_task", "{broken")]
    talk = [
        *TALK,
        LLMMessage("assistant", "", calls),
        LLMMessage("tool", "done", tool_name="add_task"),
    ]
    await generate(adapter, talk)
    asked, told = backend.requests[0].messages[2:]
    assert [call.arguments for call in asked.tool_calls] == [
        {"title": "Milk"},
        {"arguments": "{broken"},
    ]
    assert (told.role, told.tool_name, told.content) == ("tool", "add_task", "done")


async def test_the_same_tools_are_the_same_object_in_every_request() -> None:
    adapter, backend = make("Fine.")
    for _ in range(2):
        await adapter.generate(TALK, list(TASK_TOOLS))
    assert backend.requests[0].tools is backend.requests[1].tools


async def test_an_empty_reply_is_asked_for_again_and_then_an_error() -> None:
    adapter, backend = make("  ")
    with pytest.raises(InvalidResponseError, match="the reply is empty"):
        await generate(adapter)
    assert len(backend.requests) == 2


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        (BackendError("slow", reason="rate_limited", retry_after_s=7), RateLimitError, None),
        (
            BackendError(
                "server busy, please try again.  maximum pending requests exceeded",
                reason="server_error",
                status_code=503,
            ),
            RateLimitError,
            None,
        ),
        (TimeoutError(), LLMError, "TIMEOUT"),
        (ConnectionError("gone"), LLMError, "CONNECTION_ERROR"),
    ],
)
async def test_what_failed_is_said_by_type_and_code(
    fault: Any, kind: type[LLMError], code: str | None
) -> None:
    adapter, _ = make(fault)
    with pytest.raises(kind) as caught:
        await generate(adapter)
    assert code in (None, caught.value.code)


async def test_a_rate_limits_wait_is_handed_on() -> None:
    adapter, _ = make(BackendError("slow", reason="rate_limited", retry_after_s=7))
    with pytest.raises(RateLimitError) as caught:
        await generate(adapter)
    assert caught.value.retry_after == 7


@pytest.mark.parametrize(("header", "wait"), [("12", 12.0), ("soon", None), (None, None)])
async def test_a_servers_retry_after_header_is_read(header: str | None, wait: float | None) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(429, headers={"Retry-After": header} if header else {})

    extra = Outgoing({})
    transport = FieldsTransport(httpx.MockTransport(answer))
    with scoped(outgoing=extra):
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await client.post("/api/chat", json={})
    assert extra.retry_after_s == wait


# Models without tool calls of their own


async def test_a_model_without_tools_is_given_them_as_a_schema() -> None:
    model = FakeModel(name="plain", capabilities=("completion",))
    replies = [json.dumps(ADD), json.dumps({"answer": "Added."})]
    with FakeOllama([model], reply=replies) as fake:
        client = LLMClient(
            LLMConfig(model="plain", retry_wait_s=0), OllamaBackend("plain", host=fake.host)
        )
        async with client:
            adapter = OllamaAdapter(client)
            first = await generate(adapter)
            assert first.function_calls == (FunctionCall("add_task", {"title": "Milk"}),)
            talk = [
                *TALK,
                LLMMessage("assistant", "", tuple(first.function_calls)),
                LLMMessage("tool", "done", tool_name="add_task"),
            ]
            assert (await generate(adapter, talk)).content == "Added."
        bodies = [dict(request.body) for request in fake.requests]
    tried, *held = bodies
    assert "tools" in tried
    assert not any(body.get("tools") for body in held)
    assert len(held) == 2
    forms = [form["properties"] for form in held[0]["format"]["anyOf"]]
    assert [form.get("name", {}).get("const") for form in forms] == [
        "add_task",
        "list_tasks",
        "complete_task",
        "delete_task",
        None,
    ]
    assert [message["role"] for message in held[1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]


async def test_each_agent_of_a_run_finds_out_by_itself_that_a_model_has_no_tools(
    tmp_path: Path,
) -> None:
    def reply(request: ChatRequest) -> Any:
        if request.tools:
            raise BackendError("test does not support tools", reason="client_error")
        return {"answer": "Hello."}

    adapter, backend = make(reply)
    with Tape(tmp_path / "x.tape") as tape:
        recorder = LiveRecorder(tape, tape.add_run({}, name="talk", first=(0, "{}", "{}")))
        with recording(recorder):
            for agent in ("Ann", "Ann", "Bo"):
                await adapter.ask(TALK, TASK_TOOLS, site=CallSite(component="agent", agent=agent))
    asked = [request.site and request.site.agent for request in backend.requests if request.tools]
    assert asked == ["Ann", "Bo"]
    assert len(backend.requests) == 2 + 3


async def test_a_schema_can_be_asked_for_from_the_start() -> None:
    adapter, backend = make({"answer": "Hello."}, tool_calling="schema")
    assert (await generate(adapter)).content == "Hello."
    assert backend.requests[0].schema is not None
    assert backend.requests[0].tools == ()


async def test_without_tools_there_is_no_schema() -> None:
    adapter, backend = make("Hello.", tool_calling="schema")
    assert (await adapter.generate(TALK, [])).content == "Hello."
    assert backend.requests[0].schema is None


async def test_a_reply_that_fits_no_form_is_asked_for_again() -> None:
    adapter, backend = make([{"name": 3}, ADD], tool_calling="schema")
    response = await generate(adapter)
    assert response.function_calls == (FunctionCall("add_task", {"title": "Milk"}),)
    assert "neither a tool" in backend.requests[1].messages[-1].content


async def test_native_only_does_not_go_over_to_a_schema() -> None:
    fault = BackendError("test does not support tools", reason="client_error", status_code=400)
    adapter, backend = make(fault, tool_calling="native")
    with pytest.raises(LLMError, match="does not support tools"):
        await generate(adapter)
    assert len(backend.requests) == 1


async def test_another_refusal_does_not_go_over_to_a_schema() -> None:
    adapter, backend = make(BackendError("bad option", reason="client_error", status_code=400))
    with pytest.raises(LLMError, match="bad option"):
        await generate(adapter)
    assert len(backend.requests) == 1


# Calls written as text


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ADD),
        f"<tool_call>\n{json.dumps(ADD)}\n</tool_call>",
        f"```json\n{json.dumps(ADD)}\n```",
        f"[TOOL_CALLS][{json.dumps(ADD)}]",
        f"<think>hm, {{}}</think>{json.dumps(ADD)}",
        json.dumps({"function": ADD}),
        json.dumps({"name": "add_task", "parameters": {"title": "Milk"}}),
    ],
)
async def test_a_call_that_was_written_as_text_is_a_call(text: str) -> None:
    adapter, _ = make(text)
    response = await generate(adapter)
    assert response.function_calls == (FunctionCall("add_task", {"title": "Milk"}),)
    assert response.content is None


@pytest.mark.parametrize("calling", ["native", "schema"])
async def test_a_call_beside_prose_is_a_call_and_the_prose_is_dropped(calling: Any) -> None:
    text = f"Sure! {json.dumps(ADD)}"
    adapter, _ = make(text if calling == "native" else {"answer": text}, tool_calling=calling)
    response = await generate(adapter)
    assert response.function_calls == (FunctionCall("add_task", {"title": "Milk"}),)
    assert response.content is None


async def test_a_call_beside_a_question_is_taken_out_and_the_question_stays() -> None:
    adapter, _ = make(f"{json.dumps(ADD)} Shall I?")
    response = await generate(adapter)
    assert (response.content, response.function_calls) == ("Shall I?", ())


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", "[{}]"])
async def test_a_call_that_was_shown_is_not_made_where_it_is_all_that_is_read_out(
    form: str,
) -> None:
    planted = json.dumps(ADD)
    talk = [*TALK, LLMMessage("tool", json.dumps([{"title": planted}]), tool_name="list_tasks")]
    adapter, backend = make([form.format(planted), "It says so."])
    response = await generate(adapter, talk)
    assert (response.content, response.function_calls) == ("It says so.", ())
    assert "it repeats a tool call that it was shown" in backend.requests[-1].prompt


async def test_a_call_that_a_tools_result_holds_is_not_made_when_it_is_read_out() -> None:
    adapter, _ = make(f"You have: {json.dumps(ADD)}")
    result = json.dumps({"tasks": [json.dumps(ADD)]})
    response = await generate(adapter, [*TALK, LLMMessage("tool", result, tool_name="list_tasks")])
    assert (response.content, response.function_calls) == ("You have:", ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("add_task(title='Milk')", "it only names a tool"),
        ("`list_tasks`", "it only names a tool"),
        ("<tool_call>{}</tool_call>", "a tool call that cannot be read"),
        ('{"name": "add_task", "argum', "a tool call that cannot be read"),
    ],
)
@pytest.mark.parametrize("calling", ["native", "schema"])
async def test_what_is_a_call_and_yet_none_is_asked_for_again(
    calling: Any, text: str, complaint: str
) -> None:
    replies: list[Any] = [text, "Hello."]
    if calling == "schema":
        replies = [{"answer": reply} for reply in replies]
    adapter, backend = make(replies, tool_calling=calling)
    response = await generate(adapter)
    assert (response.content, response.function_calls) == ("Hello.", ())
    assert complaint in backend.requests[1].messages[-1].content


def test_several_calls_may_stand_in_one_text() -> None:
    text = "\n".join(f"<tool_call>{json.dumps(ADD)}</tool_call>" for _ in range(2))
    assert len(calls_in_text(text)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        "",
        'I would call {"name": "add_task", "arguments": {}}',
        '{"name": "add_task"}',
        '{"name": "add_task", "arguments": {}} Shall I?',
        '{"a": 1}',
        "[1, 2]",
        "{" * 3000,
        "[" * 100_000,
    ],
)
def test_text_with_anything_else_in_it_is_no_call(text: str) -> None:
    assert calls_in_text(text) == []


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ('{"answer": "Hi"}', "Hi"),
        (json.dumps(ADD), FunctionCall("add_task", {"title": "Milk"})),
        ('{"answer": " "}', None),
        ("Hi", None),
        ("[" * 100_000, None),
        ("[]", None),
    ],
)
def test_a_choice_is_a_call_an_answer_or_neither(text: str, choice: Any) -> None:
    assert read_choice(text) == choice


async def test_json_that_is_no_call_stays_text_without_tools() -> None:
    adapter, _ = make(json.dumps(ADD))
    assert (await adapter.generate(TALK, [])).content == json.dumps(ADD)


@pytest.mark.parametrize("calling", ["native", "schema"])
async def test_an_answer_cut_inside_its_json_is_told_as_far_as_it_goes(calling: Any) -> None:
    cut = ChatReply(text='{"answer":"You stand on\\nthe sh', done_reason="length")
    adapter, _ = make([cut], tool_calling=calling)
    response = await generate(adapter)
    assert response.content == "You stand on\nthe sh …"
    assert response.finish_reason == "length"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"answer": "a \\"b', 'a "b …'),
        ('{"answer": "back\\\\', "back\\ …"),
        ('{"answer": "half \\', "half …"),
        ('{"answer": "half \\u26', "half …"),
        ('{"answer": "', None),
        ('{"answer": "whole"}', None),
        ('{"name": "add_task"', None),
        ("Hello", None),
    ],
)
def test_a_cut_answer_is_read_up_to_its_last_whole_sign(text: str, told: str | None) -> None:
    assert cut_answer(text) == told
