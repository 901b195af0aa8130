"""Talking to models: one client, several backends, and the tape that records every call.

``connect`` and the backends for servers are imported when they are first used: they load HTTP
clients, which a run on a script or a tape does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmsim_lab.llm._client import LLMClient, LLMConfig
from llmsim_lab.llm._human import Person
from llmsim_lab.llm._scope import Budget
from llmsim_lab.llm._scripted import ScriptedBackend
from llmsim_lab.tape import Tape
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest

if TYPE_CHECKING:
    from llmsim_lab.llm._connect import connect
    from llmsim_lab.llm._embedded.backend import EmbeddedBackend
    from llmsim_lab.llm._ollama.backend import OllamaBackend
    from llmsim_lab.llm._openai import OpenAIBackend

__all__ = [
    "Budget",
    "ChatBackend",
    "ChatReply",
    "ChatRequest",
    "EmbeddedBackend",
    "LLMClient",
    "LLMConfig",
    "OllamaBackend",
    "OpenAIBackend",
    "Person",
    "ScriptedBackend",
    "Tape",
    "connect",
]

_LATE = {
    "EmbeddedBackend": "_embedded.backend",
    "OllamaBackend": "_ollama.backend",
    "OpenAIBackend": "_openai",
    "connect": "_connect",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
