"""What a request to the child has beyond OpenAI's protocol."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._embedded.wire import extend
from llmsim_lab.llm._openai import OpenAIBackend
from llmsim_lab.types import ChatRequest, Message


def request(**changes: Any) -> ChatRequest:
    values: dict[str, Any] = {"model": "auto", "messages": (Message("user", "hi"),)}
    return ChatRequest(**values | changes)


def body_of(asked: ChatRequest) -> dict[str, Any]:
    backend = OpenAIBackend("m", base_url="127.0.0.1:9", extend=extend)
    return backend.body_of("m", asked)


def fields(**options: Any) -> dict[str, Any]:
    return body_of(request(options=options))


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


def test_a_seed_fits_the_runtime() -> None:
    assert fields(seed=2**63)["seed"] == 2**63 % (2**32 - 1)


def test_an_unknown_option_is_rejected_by_name() -> None:
    with pytest.raises(BackendError, match=r"the option tfs_z=1; it has cache_prompt,") as e:
        fields(tfs_z=1)
    assert (e.value.reason, e.value.retry) == ("client_error", False)


def test_a_value_that_is_not_a_number_is_rejected() -> None:
    with pytest.raises(BackendError, match=r"the option temperature='hot'; .*numbers"):
        fields(temperature="hot")


def test_a_schema_goes_out_as_a_grammar() -> None:
    sent = body_of(request(schema={"type": "boolean"}))
    assert sent["grammar"].startswith("%llguidance")
    assert "response_format" not in sent


def test_tools_are_rejected_as_by_a_model_that_cannot_call_them() -> None:
    with pytest.raises(BackendError, match="does not support tools") as caught:
        body_of(request(tools=({"type": "function", "function": {"name": "ls"}},)))
    assert caught.value.reason == "client_error"


@pytest.mark.parametrize(("think", "enabled"), [(False, False), ("low", True), (None, None)])
def test_thinking_is_asked_for_or_not(think: Any, enabled: bool | None) -> None:
    sent = body_of(request(think=think)).get("chat_template_kwargs", {})
    assert sent.get("enable_thinking") is enabled
