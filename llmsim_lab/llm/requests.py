"""Make requests: a call's first one, and the one that shows the model what was wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from llmsim_lab.calls import Attempt, CallSite, ChatRequest, Message
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.config import LLMConfig
from llmsim_lab.models import reply_schema
from llmsim_lab.prompts import RenderedPrompt

__all__ = ["first_request", "repair_request"]

_MAX_SHOWN_REPLY_CHARS = 2_000


def first_request(
    prompt: str,
    response_model: type[BaseModel],
    choices: Mapping[str, tuple[Any, ...]] | None,
    site: CallSite | None,
    *,
    config: LLMConfig,
    options: Mapping[str, Any],
) -> ChatRequest:
    """Return a call's first request; ``LLMClient.call_with_retry`` has the words.

    Args:
        prompt: a text, or a ``RenderedPrompt``.
        response_model: what the reply must be.
        choices: the only values allowed for some fields.
        site: where in the run the call is made.
        config: the client's settings.
        options: its sampling options, shared by all its requests.

    Raises:
        ConfigError: the prompt is empty, or a choice is for a field that is not there.
    """
    if not prompt.strip():
        raise ConfigError("the prompt is empty; give the model something to answer")
    messages: tuple[Message, ...]
    if isinstance(prompt, RenderedPrompt) and prompt.system:
        messages = (_system_message(prompt.system), Message("user", prompt.user))
    else:
        messages = (Message("user", str(prompt)),)
    narrowed = tuple(choices.items()) if choices else ()
    return ChatRequest(
        model=config.model,
        messages=messages,
        schema=_schema_of(response_model, config.max_text_chars, narrowed),
        options=options,
        think=config.think,
        keep_alive=config.keep_alive,
        timeout_s=config.timeout_s,
        site=site,
    )


def repair_request(request: ChatRequest, failed: Attempt) -> ChatRequest:
    """Show the model its own reply and what is wrong with it."""
    answer = failed.reply.text if failed.reply else ""
    calls = failed.reply.tool_calls if failed.reply else ()
    again = "Reply again."
    if request.schema is not None:
        again = "Reply again with one complete JSON object of the required form and nothing else."
    complaint = f"That reply was not valid: {failed.detail}.\n{again}"
    messages = (
        *request.messages,
        Message("assistant", answer[:_MAX_SHOWN_REPLY_CHARS], calls),
        Message("user", complaint),
    )
    return replace(request, messages=messages)


@lru_cache(maxsize=1024)
def _system_message(text: str) -> Message:
    """One message for all requests of a run that share it."""
    return Message("system", text)


@lru_cache(maxsize=1024)
def _schema_of(
    response_model: type[BaseModel],
    max_text: int | None,
    choices: tuple[tuple[str, tuple[Any, ...]], ...],
) -> Mapping[str, Any]:
    """The schema a model is held to; shared by all its requests, not to be changed."""
    schema = reply_schema(response_model, max_text=max_text)
    for field, values in choices:
        if field not in schema.get("properties", {}):
            raise ConfigError(
                f"choices name {field!r}, which {response_model.__name__} lacks; "
                f"its fields are {', '.join(schema.get('properties', {}))}"
            )
        schema["properties"][field] = {"enum": list(values)}
    return schema
