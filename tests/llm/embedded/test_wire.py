"""What a request to the child has beyond OpenAI's protocol."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.errors import BackendError
from llmsim_lab.llm.embedded.wire import extend
from llmsim_lab.llm.openai import OpenAIBackend
from llmsim_lab.types import ChatRequest, Message


def body_of(**changes: Any) -> dict[str, Any]:
    asked = ChatRequest(**{"model": "auto", "messages": (Message("user", "hi"),)} | changes)
    return OpenAIBackend("m", base_url="127.0.0.1:9", extend=extend).body_of("m", asked)


def test_options_arrive_by_the_runtimes_names() -> None:
    same = {"temperature": 0.5, "top_k": 3, "top_p": 1, "repeat_penalty": 1.1, "seed": 7}
    sent = body_of(options={**same, "num_predict": 20})
    assert (same | {"max_tokens": 20}).items() <= sent.items()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"options": {"tfs_z": 1}}, r"the option tfs_z=1; it has cache_prompt,"),
        ({"options": {"temperature": "hot"}}, r"the option temperature='hot'; .*numbers"),
        ({"tools": ({"type": "function", "function": {"name": "ls"}},)}, "does not support tools"),
    ],
)
def test_what_the_runtime_lacks_is_rejected_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(BackendError, match=told) as caught:
        body_of(**changes)
    assert (caught.value.reason, caught.value.retry) == ("client_error", False)


def test_a_schema_goes_out_as_a_grammar() -> None:
    sent = body_of(schema={"type": "boolean"})
    assert sent["grammar"].startswith("%llguidance")
    assert "response_format" not in sent


@pytest.mark.parametrize(("think", "enabled"), [(False, False), ("low", True), (None, None)])
def test_thinking_is_asked_for_or_not(think: Any, enabled: bool | None) -> None:
    sent = body_of(think=think).get("chat_template_kwargs", {})
    assert sent.get("enable_thinking") is enabled
