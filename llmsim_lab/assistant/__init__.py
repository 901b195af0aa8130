"""The decision engine: a message becomes an answer, tool calls, a question or a confirmation.

``LLMAgentEngine`` decides about one message, ``Chat`` is a conversation as a run, ``ToolLookup``
lets the agents of other simulations look things up. ``python -m llmsim_lab.assistant.tasks``
serves a task list over MCP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmsim_lab import _util
from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._constitution import load_constitution
from llmsim_lab.assistant._decision_log import DecisionLog
from llmsim_lab.assistant._engine import LLMAgentEngine
from llmsim_lab.assistant._function_tools import FunctionTools
from llmsim_lab.assistant._lookup import ToolLookup
from llmsim_lab.assistant.chat import Chat
from llmsim_lab.assistant.types import (
    AgentDecision,
    DecisionContext,
    DecisionType,
    LLMAdapter,
    ToolExecutor,
)

if TYPE_CHECKING:
    from llmsim_lab.assistant._mcp_executor import MCPToolExecutor

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
    "load_constitution",
]

# ``types`` has the contract's other names, for which it gives no module, and what an adapter or an
# executor of the user's own is written with. The rest needs the ``mcp`` library, which is an extra.
__getattr__, __dir__ = _util.late_names(
    __name__,
    {
        "_mcp_executor": "MCPToolExecutor",
        "types": "AgentEngineConfig FunctionCall LLMError LLMMessage LLMResponse Message "
        "PendingAction RateLimitError Said ToolCall ToolDeclaration ToolResult",
    },
)
