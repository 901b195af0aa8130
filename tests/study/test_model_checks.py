"""What the doctor finds of models whose answers are known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fake_ollama import FakeOllama
from fake_ollama._fake_ollama import example

from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, connect
from llmsim_lab.study._checks import PAIRS, CheckResult, check_model
from llmsim_lab.types import ChatReply, ChatRequest, ToolCall

Reply = Callable[[ChatRequest], Any]


def obeys(request: ChatRequest) -> Any:
    """Answer as a model does that understands and obeys."""
    prompt = request.messages[-1].content
    if request.tools:
        name, key, value = "greet", "name", prompt.rstrip(".").split()[-1]
        if "timer" in prompt:
            name, key, value = "set_timer", "minutes", prompt.split()[-2]
        return ChatReply(text="", tool_calls=(ToolCall(name=name, arguments={key: value}),))
    if request.schema is None:
        return f"An answer to: {prompt}"
    if "action" in request.schema["properties"]:
        for pair in PAIRS:
            for wanted, instruction in enumerate((pair.instruction, pair.reverse)):
                if pair.who in prompt and instruction in prompt:
                    return {"action": pair.options[wanted]}
    return example(request.schema)


def always_the_same(request: ChatRequest) -> Any:
    """Answer with the first that the form allows, whatever is asked."""
    if request.tools or request.schema is None:
        return "Yes."
    return example(request.schema)


def found_of(client: LLMClient) -> dict[str, CheckResult]:
    check = asyncio.run(check_model(client, lambda _: None))
    return {one.check: one for one in check.findings}


def scripted(reply: Reply) -> LLMClient:
    return LLMClient(LLMConfig(model="scripted"), ScriptedBackend(reply, name="scripted"))


def results(found: dict[str, CheckResult]) -> dict[str, str]:
    return {name: one.result for name, one in found.items()}


def test_a_model_that_obeys_does_all_that_is_asked_for() -> None:
    found = found_of(scripted(obeys))
    forms = [one for name, one in found.items() if name.startswith("valid JSON")]
    assert [one.result for one in forms] == ["4 of 4"] * 5
    assert results(found)["obeys and obeys the reverse"] == "6 of 6"
    assert results(found)["tools"] == "4 of 4"
    assert {one.ok for one in [*forms, found["tools"], found["answers"]]} == {True}
    assert found["context"].value == LLMConfig().num_ctx


def test_a_model_that_always_says_the_same_obeys_no_pair_and_calls_no_tool() -> None:
    found = found_of(scripted(always_the_same))
    assert (found["obeys and obeys the reverse"].result, found["tools"].result) == (
        "0 of 6",
        "0 of 4",
    )
    assert found["tools"].note.endswith("0 called")


def test_a_reply_that_had_to_be_repaired_is_not_counted_as_valid() -> None:
    made = count()

    def reply(request: ChatRequest) -> Any:
        if request.schema is not None and request.attempt == 1 and next(made) % 2:
            return "I would rather not."
        return obeys(request)

    found = found_of(scripted(reply))["valid JSON: a field"]
    assert (found.result, found.note, found.ok) == ("2 of 4", "2 repaired", False)
    never = found_of(scripted(lambda _: "I would rather not."))["valid JSON: a field"]
    assert (never.result, never.note) == ("0 of 4", "4 invalid_response")


def test_what_a_backend_cannot_do_is_said_with_the_reason() -> None:
    found = found_of(scripted(obeys))
    assert found["log-probabilities"].note == "choices are drawn instead"
    assert found["tokens a second"].result == "not measured"
    assert "counts no tokens" in found["tokens a second"].note


def test_a_model_with_probabilities_says_how_much_is_on_the_options() -> None:
    def reply(request: ChatRequest) -> Any:
        if request.top_logprobs:
            return ChatReply(text="A", top_logprobs=(("A", -0.5), ("B", -1.5), ("C", -2.0)))
        return obeys(request)

    found = found_of(scripted(reply))["log-probabilities"]
    assert (found.result, found.note) == ("yes", "96 % on the options of a choice")


def test_a_model_that_cannot_call_tools_is_asked_for_them_by_a_schema() -> None:
    def reply(request: ChatRequest) -> Any:
        if request.tools:
            raise BackendError("'small' does not support tools", reason="client_error")
        if request.schema and "anyOf" in request.schema:
            [call] = obeys(replace(request, tools=({},))).tool_calls
            return {"name": call.name, "arguments": dict(call.arguments)}
        return obeys(request)

    assert found_of(scripted(reply))["tools"].result == "4 of 4"


def test_a_server_is_checked_over_the_wire() -> None:
    def reply(body: dict[str, Any]) -> Any:
        return None

    with FakeOllama(["small"], reply=reply) as server:
        found = found_of(connect("ollama:small", host=server.host, quiet=True))
    assert found["answers"].result == "yes"
    assert found["context"].note.startswith("trained for ")


@pytest.mark.parametrize("reason", ["connection_error", "rate_limited", "server_error"])
def test_a_model_that_does_not_answer_at_all_raises(reason: Any) -> None:
    def reply(_: ChatRequest) -> Any:
        raise BackendError("gone", reason=reason)

    with pytest.raises(LLMFailureException, match=reason):
        found_of(scripted(reply))


@pytest.mark.embedded
@pytest.mark.process
def test_the_small_embedded_model_keeps_each_form_and_has_probabilities(small_model: Path) -> None:
    found = found_of(connect("embedded:smollm2-135m", quiet=True, timeout_s=120))
    assert {one.result for name, one in found.items() if "JSON" in name} == {"4 of 4"}
    assert found["log-probabilities"].result == "yes"
    assert (found["tokens a second"].value or 0) > 1
