"""The decision engine: a message becomes an answer, tool calls, a question or a confirmation.

Besides these names: ``types`` has what goes in and out, for those who write an adapter or a tool
executor; ``chat`` the configuration of conversations; ``recorded_tools`` tools in a run;
``evaluation`` messages with known right decisions, and scores; ``tasks`` a task list served over
MCP.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._constitution import load_constitution
from llmsim_lab.assistant._decision_log import DecisionLog
from llmsim_lab.assistant._engine import LLMAgentEngine
from llmsim_lab.assistant._function_tools import FunctionTools
from llmsim_lab.assistant.recorded_tools import ToolLookup
from llmsim_lab.assistant.types import (
    AgentDecision,
    DecisionContext,
    DecisionType,
    LLMAdapter,
    ToolExecutor,
)

if TYPE_CHECKING:
    from llmsim_lab.assistant._mcp_executor import MCPToolExecutor
    from llmsim_lab.assistant.chat import Chat
    from llmsim_lab.assistant.evaluation import evaluate

__all__ = [
    "AgentDecision",
    "Chat",
    "DecisionContext",
    "DecisionLog",
    "DecisionType",
    "FunctionTools",
    "LLMAdapter",
    "LLMAgentEngine",
    "MCPToolExecutor",
    "OllamaAdapter",
    "ToolExecutor",
    "ToolLookup",
    "evaluate",
    "load_constitution",
]

_HOME = {
    "Chat": "chat",
    "MCPToolExecutor": "_mcp_executor",
    "evaluate": "evaluation",
    # The contract's other names, for which it gives no module.
    **dict.fromkeys(
        ("AgentEngineConfig", "Message", "PendingAction", "ToolCall", "ToolResult"), "types"
    ),
}
"""The modules of names that are loaded late; two of them need the ``mcp`` library."""


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
