"""The child's HTTP protocol: a request as its fields, its event stream as a reply.

Replies are streamed since that is how the runtime notices that nobody waits for them any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from llmsim_lab.calls import ChatReply, ChatRequest
from llmsim_lab.errors import BackendError
from llmsim_lab.llm.embedded.grammar import grammar_of
from llmsim_lab.llm.embedded.tools import describe_tools, tool_schema, tools_as_text
from llmsim_lab.llm.transport import count, error_text, read_json

__all__ = ["Outgoing", "collect", "context_overflow", "outgoing", "raise_error"]

_LARGEST_SEED = 2**32 - 1
"""The runtime takes this one to mean: draw a seed."""

_WHOLE = {
    "num_predict": "max_tokens",
    "top_k": "top_k",
    "repeat_last_n": "repeat_last_n",
    "mirostat": "mirostat",
}
_REAL = {
    "temperature": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repeat_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
_OTHER = ("seed", "num_ctx", "stop", "cache_prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request, ready to be sent.

    Attributes:
        fields: the body.
        num_ctx: the context window asked for, tokens, or None.
        schema: what the reply is held to, or None.
    """

    fields: dict[str, Any]
    num_ctx: int | None = None
    schema: Mapping[str, Any] | None = None


def outgoing(request: ChatRequest) -> Outgoing:
    """Translate a request.

    Raises:
        BackendError: an option is unknown here, or its value is of the wrong type.
    """
    messages, schema = request.messages, request.schema
    if request.tools:
        messages = describe_tools(messages, request.tools)
        schema = tool_schema(request.tools, schema)
    fields: dict[str, Any] = {
        "messages": [
            {"role": role, "content": content} for role, content in map(tools_as_text, messages)
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
    }
    for name, value in request.options.items():
        if value is not None:
            _set_option(fields, name, value)
    if schema is not None:
        fields["grammar"] = grammar_of(schema)
    if request.think is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": bool(request.think)}
    num_ctx = request.options.get("num_ctx")
    return Outgoing(fields=fields, num_ctx=num_ctx, schema=schema)


def _set_option(fields: dict[str, Any], name: str, value: Any) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name in _WHOLE:
        _require(whole, name, value, "a whole number")
        # Ollama's -2, fill the context, is what the runtime does at its own -1.
        fields[_WHOLE[name]] = max(value, -1) if name == "num_predict" else value
    elif name in _REAL:
        _require(whole or isinstance(value, float), name, value, "a number")
        fields[_REAL[name]] = value
    elif name == "num_ctx":
        _require(whole and value > 0, name, value, "a whole number above 0")
    elif name == "seed":
        _require(whole, name, value, "a whole number")
        fields["seed"] = value % _LARGEST_SEED
    elif name == "stop":
        texts = [value] if isinstance(value, str) else value
        good = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        _require(good, name, value, "a text or a list of texts")
        fields["stop"] = list(texts)
    elif name == "cache_prompt":
        _require(isinstance(value, bool), name, value, "True or False")
        fields["cache_prompt"] = value
    else:
        known = ", ".join(sorted((*_WHOLE, *_REAL, *_OTHER)))
        raise BackendError(
            f"the embedded model has no option {name!r} (given: {value!r}); it has {known}",
            reason="client_error",
        )


def _require(good: bool, name: str, value: Any, kind: str) -> None:
    if not good:
        raise BackendError(f"option {name}={value!r} must be {kind}", reason="client_error")


@dataclass(slots=True)
class _Parts:
    """What has come of a reply so far."""

    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    done_reason: str | None = None
    prompt_tokens: int | None = None
    reply_tokens: int | None = None


async def collect(lines: AsyncIterator[str], *, trained: int | None = None) -> ChatReply:
    """Put a reply together from the lines of its event stream; times are left out.

    Args:
        lines: the stream.
        trained: the longest context the model was trained for, tokens, where known.

    Raises:
        BackendError: the runtime reports an error, or the stream ends early.
    """
    parts = _Parts()
    async for line in lines:
        kind, _, content = line.partition(": ")
        if kind == "error":
            raise_error({"error": _decoded(content)}, 200, trained=trained)
        if kind != "data" or content == "[DONE]":
            continue
        event = _decoded(content)
        if "error" in event:
            raise_error(event, 200, trained=trained)
        try:
            _take(event, parts)
        except (ValueError, TypeError, AttributeError) as error:
            raise _no_event(content) from error
    if parts.done_reason is None:
        raise BackendError(
            "the embedded model's reply broke off", reason="connection_error", retry=True
        )
    return ChatReply(
        text="".join(parts.text),
        thinking="".join(parts.thinking),
        done_reason=parts.done_reason,
        prompt_tokens=parts.prompt_tokens,
        reply_tokens=parts.reply_tokens,
    )


def _decoded(content: str) -> dict[str, Any]:
    try:
        event = read_json(content)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise _no_event(content)
    return event


def _no_event(content: str) -> BackendError:
    return BackendError(
        f"the embedded model's process sent {content[:200]!r}, which is no event",
        reason="server_error",
        retry=True,
    )


def _take(event: dict[str, Any], parts: _Parts) -> None:
    if usage := event.get("usage"):
        parts.prompt_tokens = count(usage.get("prompt_tokens"), "prompt_tokens")
        parts.reply_tokens = count(usage.get("completion_tokens"), "completion_tokens")
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        parts.text.append(_text(delta, "content"))
        parts.thinking.append(_text(delta, "reasoning_content"))
        parts.done_reason = _text(choice, "finish_reason") or parts.done_reason


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name) or ""
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a text")
    return value


def raise_error(body: Mapping[str, Any], status: int, *, trained: int | None = None) -> NoReturn:
    """Turn the runtime's error into one of ours; it may come with any status, also 200.

    Args:
        body: the error.
        status: the HTTP status it came with.
        trained: the longest context the model was trained for, tokens, where known.

    Raises:
        BackendError: always.
    """
    error = body.get("error")
    error = error if isinstance(error, Mapping) else {"message": str(error)}
    message = error_text(str(error.get("message", "it does not say what")))
    code = error.get("code", status)
    code = code if isinstance(code, int) and 400 <= code <= 599 else 500
    read, window = error.get("n_prompt_tokens"), error.get("n_ctx")
    is_overflow = error.get("type") == "exceed_context_size_error"
    if is_overflow and isinstance(read, int) and isinstance(window, int):
        raise context_overflow(read, window, trained=trained)
    if code < 500:
        raise BackendError(
            f"the embedded model refuses the request: {message}",
            reason="client_error",
            status_code=code,
        )
    raise BackendError(
        f"the embedded model failed: {message}",
        reason="server_error",
        status_code=code,
        retry=True,
    )


def context_overflow(
    prompt_tokens: int, num_ctx: int, *, trained: int | None = None
) -> BackendError:
    """Return the error of a prompt that is too long.

    Args:
        prompt_tokens: its length.
        num_ctx: the window, tokens.
        trained: the longest window the model was trained for, where known.
    """
    most = f", up to {trained}," if trained else ""
    way_out = f"raise LLMConfig.num_ctx{most} or shorten the prompt"
    if trained is not None and num_ctx >= trained:
        way_out = (
            "the model was trained for no more, so shorten the prompt or use one with a longer "
            "context"
        )
    return BackendError(
        f"the prompt has {prompt_tokens:,} tokens but num_ctx={num_ctx}; {way_out}",
        reason="context_overflow",
    )
