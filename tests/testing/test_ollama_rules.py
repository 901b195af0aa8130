"""The rules beyond what was recorded."""

from __future__ import annotations

import json

import pytest
from ollama_rules import refusal


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"model": 5}, "model"),
        ({"messages": ["hi"]}, "messages.0"),
        ({"top_logprobs": True}, "top_logprobs"),
        ({"think": 1}, "think"),
        ({"keep_alive": "5x"}, "keep_alive"),
        ({"format": {"properties": {"a": {"anyOf": [{"type": "date"}]}}}}, "date"),
    ],
)
def test_a_wrong_request_is_rejected(body: dict[str, object], fault: str) -> None:
    assert fault in str(refusal(json.dumps({"model": "m"} | body).encode()))


@pytest.mark.parametrize("text", ["1h30m", "1.5s", "-5m", "0s", "250ms"])
def test_durations_are_read_as_go_does(text: str) -> None:
    assert refusal(json.dumps({"model": "m", "keep_alive": text}).encode()) is None
