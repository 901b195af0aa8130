"""The rules beyond what was recorded."""

from __future__ import annotations

import json

import pytest
from ollama_rules import refusal, schema_faults


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"model": x}', "invalid character 'x' looking for beginning of value"),
        (b'{"model": 5}', "cannot unmarshal number into Go struct field ChatRequest.model"),
        (b'{"messages": ["hi"]}', "field ChatRequest.messages of type api.Message"),
        (b'{"top_logprobs": true}', "cannot unmarshal bool"),
        (b'{"think": 1}', "invalid think value: 1"),
        (b'{"keep_alive": "5x"}', 'time: unknown unit "x" in duration "5x"'),
    ],
)
def test_a_wrong_request_is_rejected(body: bytes, text: str) -> None:
    refused = refusal(body)
    assert refused is not None
    assert refused[0] == 400
    assert text in refused[1]


@pytest.mark.parametrize("text", ["1h30m", "1.5s", "-5m", "0s", "250ms"])
def test_durations_are_read_as_go_does(text: str) -> None:
    assert refusal(json.dumps({"model": "m", "keep_alive": text}).encode()) is None


def test_faults_deep_in_a_schema_are_found() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "date"}]}}}
    assert schema_faults(schema) == ['Unrecognized schema: {"type":"date"}']
