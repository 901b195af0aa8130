"""The decision engine: a message becomes an answer, tool calls, a question or a confirmation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmsim_lab.assistant.adapter import OllamaAdapter
from llmsim_lab.assistant.constitution import load_constitution
from llmsim_lab.assistant.decision_log import DecisionLog
from llmsim_lab.assistant.engine import LLMAgentEngine
from llmsim_lab.assistant.errors import (
    InvalidResponseError,
    LLMError,
    RateLimitError,
    ToolNotFoundError,
    ToolServerError,
)
from llmsim_lab.assistant.function_tools import FunctionTools
from llmsim_lab.assistant.lookup import ToolLookup
from llmsim_lab.assistant.protocols import (
    DecisionLogger,
    DeclaresTools,
    FunctionCall,
    LLMAdapter,
    LLMMessage,
    LLMResponse,
    StartsFirst,
    ToolDeclaration,
    ToolExecutor,
)
from llmsim_lab.assistant.recorded_tools import RecordedTools
from llmsim_lab.assistant.tool_agent import ToolUsingNationAgent
from llmsim_lab.assistant.types import (
    AgentDecision,
    AgentEngineConfig,
    DecisionContext,
    DecisionType,
    Message,
    PendingAction,
    ToolCall,
    ToolResult,
)

if TYPE_CHECKING:
    from llmsim_lab.assistant.chat import Chat
    from llmsim_lab.assistant.evaluation import evaluate
    from llmsim_lab.assistant.mcp_executor import MCPToolExecutor

__all__ = [
    "AgentDecision",
    "AgentEngineConfig",
    "Chat",
    "DecisionContext",
    "DecisionLog",
    "DecisionLogger",
    "DecisionType",
    "DeclaresTools",
    "FunctionCall",
    "FunctionTools",
    "InvalidResponseError",
    "LLMAdapter",
    "LLMAgentEngine",
    "LLMError",
    "LLMMessage",
    "LLMResponse",
    "MCPToolExecutor",
    "Message",
    "OllamaAdapter",
    "PendingAction",
    "RateLimitError",
    "RecordedTools",
    "StartsFirst",
    "ToolCall",
    "ToolDeclaration",
    "ToolExecutor",
    "ToolLookup",
    "ToolNotFoundError",
    "ToolResult",
    "ToolServerError",
    "ToolUsingNationAgent",
    "evaluate",
    "load_constitution",
]

_HOME = {"Chat": "chat", "MCPToolExecutor": "mcp_executor", "evaluate": "evaluation"}
"""The modules of names that load late; two of them need the ``mcp`` library."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("llmsim_lab"):
            raise
        raise ImportError(
            f"{name} needs the mcp library: pip install 'llmsim-lab[tools]' ({error})"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
