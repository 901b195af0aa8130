"""The engine on a server that speaks Ollama's protocol, from the message to the tool and back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from assistant_kit import TASK_TOOLS, MemoryTasks, context
from fake_ollama import FakeOllama

from llmsim_lab.assistant import (
    AgentDecision,
    DecisionType,
    LLMAgentEngine,
    OllamaAdapter,
    load_constitution,
)
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend
from llmsim_lab.types import ChatReply, ToolCall


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    def answer(body: dict[str, Any]) -> Any:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return f"Done, I used add_task: {json.loads(last['content'])['title']}."
        wanted = ToolCall(name="add_task", arguments={"title": last["content"][4:]})
        return ChatReply(text="", tool_calls=(wanted,))

    with FakeOllama(reply=answer) as fake:
        yield fake


async def process(server: FakeOllama, message: str, tools: MemoryTasks) -> AgentDecision:
    config = LLMConfig(model="llama3.2", retry_wait_s=0)
    async with LLMClient(config, OllamaBackend("llama3.2", host=server.host)) as client:
        engine = LLMAgentEngine(OllamaAdapter(client, TASK_TOOLS), tools, load_constitution())
        return await engine.process_message(context(message))


async def test_a_message_becomes_a_tool_call_and_its_result_an_answer(server: FakeOllama) -> None:
    tools = MemoryTasks()
    decision = await process(server, "Add Buy milk", tools)
    assert decision.decision_type is DecisionType.INVOKE_TOOL
    assert decision.text == "Done, I used add task: Buy milk."
    assert tools.tasks == {"ann": {1: "Buy milk"}}
    first, second = (request.body for request in server.requests)
    assert first["options"]["temperature"] == 0.0
    assert first["options"]["num_predict"] == 1024
    declared = first["tools"][0]["function"]
    assert declared["parameters"]["required"] == ["title"]
    assert "user_id" not in json.dumps(first)
    assert second["messages"][-1]["tool_name"] == "add_task"


@pytest.mark.process
def test_what_needs_the_mcp_library_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['mcp'] = None; from llmsim_lab.assistant import MCPToolExecutor"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert "MCPToolExecutor needs the mcp library: pip install 'llmsim-lab[tools]'" in found.stderr
