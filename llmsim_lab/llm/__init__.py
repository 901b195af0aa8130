"""Talking to models: one client, several backends, and the tape that records every call."""

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
from llmsim_lab.llm.budget import Budget
from llmsim_lab.llm.client import LLMClient
from llmsim_lab.llm.config import LLMConfig
from llmsim_lab.llm.connect import connect
from llmsim_lab.llm.embedded import EmbeddedBackend
from llmsim_lab.llm.human import OpenQuestion, Person, human_client
from llmsim_lab.llm.ollama import OllamaBackend
from llmsim_lab.llm.scripted import ScriptedBackend
from llmsim_lab.llm.tape import Tape
from llmsim_lab.llm.watch import InFlight, Watch, watching

__all__ = [
    "Attempt",
    "Budget",
    "CallRecord",
    "CallSite",
    "ChatBackend",
    "ChatReply",
    "ChatRequest",
    "EmbeddedBackend",
    "InFlight",
    "LLMClient",
    "LLMConfig",
    "Message",
    "ModelInfo",
    "OllamaBackend",
    "OpenQuestion",
    "Person",
    "ScriptedBackend",
    "Tape",
    "ToolCall",
    "Watch",
    "connect",
    "human_client",
    "watching",
]
