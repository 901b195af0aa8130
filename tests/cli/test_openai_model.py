"""Models of servers that speak OpenAI's protocol, on the command line."""

from __future__ import annotations

import json

import httpx
import pandas as pd
import pytest
from cli_kit import Run, reply, succeeds

from llmsim_lab import data_path

KEY = "sk-secret-0123456789"
URL = "http://127.0.0.1:1/v1"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """What a server with one model was asked."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if request.method == "GET":
            return httpx.Response(200, json={"data": [{"id": "qwen", "max_model_len": 9000}]})
        schema = json.loads(request.content)["response_format"]["json_schema"]["schema"]
        said = json.dumps(reply({"format": schema}))
        choice = {"index": 0, "delta": {"content": said}, "finish_reason": "stop"}
        event = json.dumps({"choices": [choice]})
        return httpx.Response(200, text=f"data: {event}\n\ndata: [DONE]\n\n")

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.MockTransport(answer))
    return requests


def test_a_run_is_played_by_such_a_model(
    llmsim_lab: Run, asked: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    scenario = str(data_path("scenarios/volcker.yaml"))
    out = succeeds(
        llmsim_lab, "run", scenario, "--model", "openai:qwen", "--base-url", URL, "--turns", "1"
    )
    assert f"Using qwen on the server at {URL}." in " ".join(out.split())
    assert pd.read_csv("out/run/turns.csv")["period"].tolist() == ["1979Q3", "1979Q4"]
    assert {request.headers["Authorization"] for request in asked} == {f"Bearer {KEY}"}
    assert KEY not in out
