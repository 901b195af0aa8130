"""The decision engine: a message becomes an answer, tool calls, a question or a confirmation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmsim_lab.assistant.adapter import OllamaAdapter, ToolCalling
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
    from llmsim_lab.assistant.cases import load_cases
    from llmsim_lab.assistant.chat import Chat, ChatConfig, record_chat, replay_chat
    from llmsim_lab.assistant.evaluation import evaluate
    from llmsim_lab.assistant.mcp_executor import MCPToolExecutor
    from llmsim_lab.assistant.scores import Evaluation

__all__ = [
    "AgentDecision",
    "AgentEngineConfig",
    "Chat",
    "ChatConfig",
    "DecisionContext",
    "DecisionLog",
    "DecisionLogger",
    "DecisionType",
    "DeclaresTools",
    "Evaluation",
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
    "ToolCalling",
    "ToolDeclaration",
    "ToolExecutor",
    "ToolLookup",
    "ToolNotFoundError",
    "ToolResult",
    "ToolServerError",
    "ToolUsingNationAgent",
    "evaluate",
    "load_cases",
    "load_constitution",
    "record_chat",
    "replay_chat",
]

_HOME = {
    "Chat": "chat",
    "ChatConfig": "chat",
    "Evaluation": "scores",
    "MCPToolExecutor": "mcp_executor",
    "evaluate": "evaluation",
    "load_cases": "cases",
    "record_chat": "chat",
    "replay_chat": "chat",
}
"""The modules of names that load late; two of them need the ``mcp`` library."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise ImportError(
            f"{name} needs the mcp library: pip install 'llmsim-lab[tools]' ({error})"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
