"""Talking to models: one client, several backends."""

from llmsim_lab.calls import (
    Attempt,
    CallRecord,
    CallSite,
    ChatBackend,
    ChatReply,
    ChatRequest,
    Message,
    ModelInfo,
    ToolCall,
)
from llmsim_lab.llm.client import LLMClient
from llmsim_lab.llm.config import LLMConfig
from llmsim_lab.llm.scripted import ScriptedBackend

__all__ = [
    "Attempt",
    "CallRecord",
    "CallSite",
    "ChatBackend",
    "ChatReply",
    "ChatRequest",
    "LLMClient",
    "LLMConfig",
    "Message",
    "ModelInfo",
    "ScriptedBackend",
    "ToolCall",
]
