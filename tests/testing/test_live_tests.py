"""The live tests are not dead: they pass on a server that says what the real one says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import policy
from fake_ollama import FakeModel, FakeOllama, Fault, Throttle
from ollama_rules import refusal

from llmsim_lab.types import ChatReply, ToolCall

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]


def reply(body: dict[str, Any]) -> Any:
    if refused := refusal(json.dumps(body).encode()):
        return Fault.status(*refused)
    if body.get("tools"):
        call = ToolCall(name="get_weather", arguments={"city": "Paris"})
        return ChatReply(text="", tool_calls=(call,))
    fields = (body.get("format") or {}).get("properties", {})
    if "action" in fields and "rate_change_bp" not in fields:
        return policy()
    if not fields:
        return "Once upon a time there was a fox, who lived in a wood. " * 4
    return None


def run_live_tests(host: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "live", "-p", "no:nbval", "tests/live"],
        cwd=REPO,
        env=os.environ | {"OLLAMA_HOST": host},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_live_tests_pass_where_a_server_answers_as_ollama_does() -> None:
    model = FakeModel(name="llama3.2", capabilities=("completion", "tools"))
    with FakeOllama([model], reply=reply, throttle=Throttle.seen(0.005)) as server:
        done = run_live_tests(server.host)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
