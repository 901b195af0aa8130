"""Scripted models for the card: one that obeys, one that always says the same, and others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from fake_ollama._fake_ollama import example

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.study._checks import PAIRS
from llmsim_lab.types import ChatReply, ChatRequest, ToolCall

Reply = Callable[[ChatRequest], Any]


def obeys(request: ChatRequest) -> Any:
    """Answer as a model does that understands and obeys."""
    prompt = request.prompt
    if request.tools:
        return _called(prompt)
    if request.schema is None:
        return f"An answer to: {prompt}"
    fields = request.schema["properties"]
    if "action" in fields:
        for pair in PAIRS:
            for wanted, instruction in enumerate((pair.instruction, pair.reverse)):
                if pair.who in prompt and instruction in prompt:
                    return {"action": pair.options[wanted]}
    if "pick" in fields:  # the same one wherever it stands
        return {"pick": min(fields["pick"]["enum"])}
    if "number" in fields:
        return {"number": 10 + request.options["seed"]}
    return example(request.schema)


def always_the_same(request: ChatRequest) -> Any:
    """Answer with the first that the form allows, whatever is asked."""
    if request.tools or request.schema is None:
        return "Yes."
    return example(request.schema)


def invalid_half_of_the_time() -> Reply:
    """Return a model that obeys, but answers every other first attempt in prose."""
    made = count()

    def reply(request: ChatRequest) -> Any:
        if request.schema is not None and request.attempt == 1 and next(made) % 2:
            return "I would rather not."
        return obeys(request)

    return reply


def never_valid(request: ChatRequest) -> Any:
    return "I would rather not."


def _called(prompt: str) -> ChatReply:
    if "timer" in prompt:
        [minutes] = [int(word) for word in prompt.split() if word.isdigit()]
        call = ToolCall(name="set_timer", arguments={"minutes": minutes})
    else:
        call = ToolCall(name="greet", arguments={"name": prompt.rstrip(".").split()[-1]})
    return ChatReply(text="", tool_calls=(call,))


def client_of(reply: Reply, *, name: str = "scripted") -> LLMClient:
    return LLMClient(LLMConfig(model=name), ScriptedBackend(reply, name=name))
