"""Models of servers that speak OpenAI's protocol, on the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pandas as pd
import pytest
from cli_kit import Run

from llmsim_lab import data_path

KEY = "sk-secret-0123456789"


@dataclass
class Server:
    url: str = ""
    asked: list[str] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)


def filled(schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    """Return a value that fits a schema."""
    if "$ref" in schema:
        return filled(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "enum" in schema:
        return schema["enum"][len(schema["enum"]) // 2]
    kinds = {
        "string": "Hold",
        "number": schema.get("minimum", 0),
        "integer": schema.get("minimum", 0),
        "boolean": True,
        "array": [],
        "object": {
            name: filled(child, whole) for name, child in schema.get("properties", {}).items()
        },
    }
    return kinds[schema["type"]]


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            return

        def say(self, body: str) -> None:
            state.asked.append(self.path)
            state.keys.add(self.headers.get("Authorization"))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_GET(self) -> None:
            model = {"id": "qwen", "owned_by": "vllm", "max_model_len": 9000}
            self.say(json.dumps({"data": [model]}))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            schema = asked["response_format"]["json_schema"]["schema"]
            message = {"role": "assistant", "content": json.dumps(filled(schema, schema))}
            choice = {"index": 0, "delta": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 50, "completion_tokens": 10}
            event = json.dumps({"choices": [choice], "usage": usage})
            self.say(f"data: {event}\n\ndata: [DONE]\n\n")

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"http://127.0.0.1:{listening.server_port}/v1"
    yield state
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_a_run_is_played_by_such_a_model(
    llmsim_lab: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    scenario = str(data_path("scenarios/volcker.yaml"))
    status, out, err = llmsim_lab(
        "run", scenario, "--model", "openai:qwen", "--base-url", server.url, "--turns", "1"
    )
    assert (status, err) == (0, "")
    assert f"Using qwen on the server at {server.url}." in " ".join(out.split())
    assert pd.read_csv("out/run/turns.csv")["period"].tolist() == ["1979Q3", "1979Q4"]
    assert server.asked.count("/v1/chat/completions") >= 1
    assert server.keys == {f"Bearer {KEY}"}
    assert KEY not in out


def test_the_doctor_asks_such_a_model_where_it_is_named(
    llmsim_lab: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    status, out, _ = llmsim_lab("doctor", "--model", "openai:qwen", "--base-url", server.url)
    assert status == 0
    assert "2,048 of 9,000" in out
    assert "no Ollama server answers at http://127.0.0.1:9;" in " ".join(out.split())


def test_the_doctor_mentions_the_environments_server_and_asks_no_model_there(
    llmsim_lab: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmsim_lab.cli._doctor.runtime_installed", lambda: False)
    _, out, _ = llmsim_lab("doctor", "--host", "127.0.0.1:9")
    assert "(not asked)" not in out
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    _, out, _ = llmsim_lab("doctor", "--host", "127.0.0.1:9")
    assert "qwen" in out
    assert "(not asked)" in out
    assert server.asked == ["/v1/models"]


def test_the_doctor_looks_at_no_service_on_the_internet_unasked(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmsim_lab.cli._doctor.runtime_installed", lambda: False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, out, _ = llmsim_lab("doctor", "--host", "127.0.0.1:9")
    assert "with --model openai:NAME" in " ".join(out.split())
    assert KEY not in out
