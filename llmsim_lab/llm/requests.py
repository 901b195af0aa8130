"""Make requests: a call's first one, and the one that is made where its answer was of no use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from llmsim_lab.calls import Attempt, CallSite, ChatReply, ChatRequest, Message
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm.config import LLMConfig
from llmsim_lab.llm.extract import repeated_end, without_thinking
from llmsim_lab.models import reply_schema
from llmsim_lab.prompts import RenderedPrompt
from llmsim_lab.text import clip

__all__ = ["first_request", "second_request"]

_MAX_SHOWN_REPLY_CHARS, _MAX_SHOWN_CUT_CHARS = 2_000, 400
"""Of the model's own reply: of a whole one, and of one that was cut off."""
_MAX_COMPLAINT_CHARS, _MAX_UNIT_CHARS = 500, 60
_BYTES_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 8
"""Of the chat template around a message."""
_LEAST_ROOM_TOKENS = 128
"""What the second answer needs at least, unless the token limit is lower."""


def first_request(
    prompt: str,
    response_model: type[BaseModel],
    choices: Mapping[str, tuple[Any, ...]] | None,
    site: CallSite | None,
    *,
    limits: Mapping[str, tuple[float, float]] | None = None,
    config: LLMConfig,
    options: Mapping[str, Any],
) -> ChatRequest:
    """Return a call's first request; ``LLMClient.call_with_retry`` has the words.

    Args:
        prompt: a text, or a ``RenderedPrompt``.
        response_model: what the reply must be.
        choices: the only values allowed for some fields.
        site: where in the run the call is made.
        limits: the lowest and highest value allowed for some fields.
        config: the client's settings.
        options: its sampling options, shared by all its requests.

    Raises:
        ConfigError: the prompt is empty, or a choice is for a field that is not there.
    """
    if not prompt.strip():
        raise ConfigError("the prompt is empty; give the model something to answer")
    messages: tuple[Message, ...]
    origin = None
    if isinstance(prompt, RenderedPrompt):
        origin = prompt.origin(site)
        messages = (Message("user", prompt.user),)
        if prompt.system:
            messages = (_system_message(prompt.system), *messages)
    else:
        messages = (Message("user", str(prompt)),)
    chosen = tuple(choices.items()) if choices else ()
    bounds = tuple(limits.items()) if limits else ()
    return ChatRequest(
        model=config.model,
        messages=messages,
        schema=_schema_of(response_model, config.max_text_chars, chosen, bounds),
        options=options,
        think=config.think,
        keep_alive=config.keep_alive,
        timeout_s=config.timeout_s,
        site=site,
        origin=origin,
    )


def second_request(
    request: ChatRequest, failed: Attempt, fault: BackendError
) -> tuple[ChatRequest, bool]:
    """Return a call's second request, and whether it shows the model what was wrong.

    After an answer of no use the model is shown it, as far as it is worth showing, with a note.
    Where that cannot fit into the context window, the same is asked again. A stopped model is asked
    with another seed, and so is one that is asked the same again, since the same seed would give
    the same answer.

    Args:
        request: the first one.
        failed: what became of it.
        fault: the same, as an error; its cause says it in words for the model.
    """
    request = replace(request, attempt=2)
    if fault.reason not in ("invalid_response", "generation_stopped"):
        return request, False
    shown = _shown(request, failed, fault)
    fits = _fits(request, failed, shown)
    if fits:
        request = replace(request, messages=(*request.messages, *shown))
    if not fits or fault.reason == "generation_stopped":
        request = replace(request, options=_with_another_seed(request.options))
    return request, fits


def _shown(request: ChatRequest, failed: Attempt, fault: BackendError) -> tuple[Message, Message]:
    """Return the useful part of a reply, and a note for the model on what was wrong with it."""
    reply = failed.reply or ChatReply(text="")
    said = without_thinking(reply.text).lstrip()
    loop = repeated_end(said)
    said = loop.before if loop else said.rstrip()
    loop = loop or repeated_end(reply.thinking or reply.text)
    stopped = fault.reason == "generation_stopped"
    cut = stopped or reply.done_reason == "length"
    limit = _MAX_SHOWN_CUT_CHARS if cut else _MAX_SHOWN_REPLY_CHARS
    if len(said) > limit:
        said = said[:limit].rstrip() + " …"
    again = "Reply again."
    if request.schema is not None:
        again = "Reply again with one complete JSON object of the required form and nothing else."
    # The fault's own words are for whoever set the limits; its cause's are for the model.
    complaint = clip(str(fault.__cause__ or fault), _MAX_COMPLAINT_CHARS)
    if not cut:
        note = f"That reply was not valid: {complaint}."
    elif loop is not None:
        what = f'"{clip(loop.unit, _MAX_UNIT_CHARS)}"' if loop.unit else "white space"
        note = f"That reply repeated {what} over and over and was stopped. Do not repeat yourself."
    elif stopped:
        note = "That reply was stopped before it was complete."
    else:
        note = "That reply was too long and was cut off. Be brief."
    if cut and fault.rejected is not None:
        note += f" It was not valid either: {complaint}."
    return Message("assistant", said, reply.tool_calls), Message("user", f"{note}\n{again}")


def _fits(request: ChatRequest, failed: Attempt, shown: Sequence[Message]) -> bool:
    """Return whether the window can hold further messages and an answer as long as the last one."""
    num_ctx = request.options.get("num_ctx")
    if not isinstance(num_ctx, int):
        return True
    reply, limit = failed.reply or ChatReply(text=""), request.options.get("num_predict")
    read, written = reply.prompt_tokens, reply.reply_tokens or 0
    prompt = _tokens(request.messages) if read is None else read
    room = max(written, _LEAST_ROOM_TOKENS)
    if isinstance(limit, int) and limit > 0:
        room = min(room, limit)
        if read and reply.done_reason == "length" and 0 < written < limit:
            # Cut before the limit: the model was not trained for a window as large as asked.
            num_ctx = min(num_ctx, read + written)
    return prompt + _tokens(shown) + room <= num_ctx


def _tokens(messages: Sequence[Message]) -> int:
    """Return about how many tokens messages have."""
    size = sum(len(message.content.encode("utf-8", "replace")) for message in messages)
    return size // _BYTES_PER_TOKEN + _TOKENS_PER_MESSAGE * len(messages)


def _with_another_seed(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options with a seed that follows from theirs; as they are if they draw anew."""
    seed = options.get("seed")
    if not isinstance(seed, int) or seed == -1:  # Ollama draws anew at -1 as well
        return options
    digest = hashlib.sha256(f"second attempt, seed {seed}".encode()).digest()
    return {**options, "seed": int.from_bytes(digest[:4], "big") >> 1}


@lru_cache(maxsize=1024)
def _system_message(text: str) -> Message:
    """One message for all requests of a run that share it."""
    return Message("system", text)


@lru_cache(maxsize=1024)
def _schema_of(
    response_model: type[BaseModel],
    max_text: int | None,
    choices: tuple[tuple[str, tuple[Any, ...]], ...] = (),
    limits: tuple[tuple[str, tuple[float, float]], ...] = (),
) -> Mapping[str, Any]:
    """The schema a model is held to; shared by all its requests, not to be changed."""
    if not choices and not limits:
        return reply_schema(response_model, max_text=max_text)
    whole = _schema_of(response_model, max_text)
    fields: dict[str, Any] = dict(whole.get("properties", {}))
    for field, _ in (*choices, *limits):
        if field not in fields:
            raise ConfigError(
                f"choices or limits name {field!r}, which {response_model.__name__} lacks; "
                f"its fields are {', '.join(fields)}"
            )
    for field, values in choices:
        fields[field] = {"enum": list(values)}
    for field, (lowest, highest) in limits:
        known = {name: fields[field][name] for name in fields[field] if name not in _BOUNDS}
        fields[field] = {**known, "minimum": lowest, "maximum": highest}
    return {**whole, "properties": fields}


_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
