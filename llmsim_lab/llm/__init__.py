"""Talking to models: one client, several backends, and the tape that records every call.

``connect`` and the backends for servers are imported when they are first used: they load HTTP
clients, which a run on a script or a tape does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmsim_lab import _util
from llmsim_lab.llm._config import LLMConfig
from llmsim_lab.llm._scripted import ScriptedBackend
from llmsim_lab.llm.choice import Choice
from llmsim_lab.llm.client import LLMClient
from llmsim_lab.llm.human import OpenQuestion, Person
from llmsim_lab.llm.scope import Budget
from llmsim_lab.tape import Tape
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest

if TYPE_CHECKING:
    from llmsim_lab.llm.connecting import connect
    from llmsim_lab.llm.embedded.backend import EmbeddedBackend
    from llmsim_lab.llm.ollama import OllamaBackend
    from llmsim_lab.llm.openai import OpenAIBackend

__all__ = [
    "Budget",
    "ChatBackend",
    "ChatReply",
    "ChatRequest",
    "Choice",
    "EmbeddedBackend",
    "LLMClient",
    "LLMConfig",
    "OllamaBackend",
    "OpenAIBackend",
    "OpenQuestion",
    "Person",
    "ScriptedBackend",
    "Tape",
    "connect",
]

__getattr__, __dir__ = _util.late_names(
    __name__,
    {
        "connecting": "connect",
        "embedded.backend": "EmbeddedBackend",
        "ollama": "OllamaBackend",
        "openai": "OpenAIBackend",
    },
)
