"""What OpenAI's chat completions and those of the embedded runtime have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llmsim_lab._util.text import clip
from llmsim_lab.llm._extract import alternatives
from llmsim_lab.llm._transport import check_length, count, read_json
from llmsim_lab.types import ChatReply, Message, ToolCall

_DONE_REASONS = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "aborted",
    "abort": "aborted",
    "error": "aborted",
    "insufficient_system_resource": "aborted",
}


def with_instruction(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Return the conversation with a text at the end of its system message."""
    first = messages[0] if messages else None
    if first is not None and first.role == "system":
        return (replace(first, content=f"{first.content}\n\n{text}"), *messages[1:])
    return (Message("system", text), *messages)


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object as it is; raise TypeError if it is something else."""
    if not isinstance(value, dict):
        raise TypeError(f"it is {clip(repr(value), 60)}, not an object")
    return value


def _text(values: Mapping[str, Any], *names: str) -> str:
    """Return the first text there is under some names."""
    for name in names:
        value = values.get(name)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is {clip(repr(value), 60)}, not a text")
        if value:
            return value
    return ""


def _first(values: Any) -> dict[str, Any]:
    if not isinstance(values, list) or not values:
        raise TypeError(f"it is {clip(repr(values), 60)}, not a list of objects")
    return as_object(values[0])


@dataclass(slots=True)
class Completion:
    """Puts an answer together, from the events of a stream or from the one document there is.

    Attributes:
        who: the server, for messages.
        is_done: whether the server has said that this is all.
        events: how many there were so far, the end mark left out.
        fingerprint: what the server says of its set-up; empty where it does not.
    """

    who: str
    is_done: bool = False
    events: int = 0
    fingerprint: str = ""
    _text: list[str] = field(default_factory=list)
    _thinking: list[str] = field(default_factory=list)
    _calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    _top_logprobs: tuple[tuple[str, float], ...] = ()
    _finish: str = ""
    _read: int | None = None
    _written: int | None = None

    def add(self, event: Mapping[str, Any]) -> tuple[str, str]:
        """Take an event, the empty one as the end mark; returns its text and its thinking.

        Raises:
            ValueError: a count is not what it must be.
            TypeError: something is of another type than it must be.
            BackendError: a log-probability is not one.
        """
        if not event:
            self.is_done = True
            return "", ""
        self.events += 1
        if event.get("usage"):
            usage = as_object(event["usage"])
            self._read = count(usage.get("prompt_tokens"), "prompt_tokens")
            self._written = count(usage.get("completion_tokens"), "completion_tokens")
        if isinstance(fingerprint := event.get("system_fingerprint"), str):
            self.fingerprint = fingerprint or self.fingerprint
        if not event.get("choices"):
            return "", ""
        choice = _first(event["choices"])
        # A stream's events have a delta, a whole answer has a message.
        message = as_object(choice.get("delta") or choice.get("message") or {})
        self._finish = _text(choice, "finish_reason") or self._finish
        self.is_done = self.is_done or bool(self._finish)
        tokens = as_object(choice.get("logprobs") or {}).get("content")
        if tokens and not self._top_logprobs:
            listed = map(as_object, _first(tokens).get("top_logprobs") or ())
            pairs = ((one.get("token"), one.get("logprob")) for one in listed)
            self._top_logprobs = alternatives(pairs, who=self.who)
        # A refusal is what OpenAI's models write in place of an answer.
        text = _text(message, "content", "refusal")
        thinking = _text(message, "reasoning_content", "reasoning")
        self._text.append(text)
        self._thinking.append(thinking)
        for part in message.get("tool_calls") or ():
            self._add_call(as_object(part))
        return text, thinking

    def add_whole(self, body: Mapping[str, Any]) -> None:
        """Take the document of an answer that is not streamed; raises what ``add`` does."""
        as_object(_first(body.get("choices")).get("message"))
        self.add(body)

    def _add_call(self, part: Mapping[str, Any]) -> None:
        # Of servers that leave the index out, each part is a whole call.
        place = count(part.get("index", len(self._calls)), "index")
        call = self._calls.setdefault(place or 0, {"id": None, "name": "", "arguments": ""})
        function = as_object(part.get("function") or {})
        call["id"] = _text(part, "id") or call["id"]
        call["name"] = _text(function, "name") or call["name"]
        if isinstance(function.get("arguments"), dict):  # some servers do not write them as text
            call["arguments"] = function["arguments"]
        else:
            call["arguments"] += _text(function, "arguments")

    def reply(self, *, seconds: float = 0.0) -> ChatReply:
        """Return what has come so far.

        Raises:
            ValueError: a call's arguments are not JSON.
            TypeError: they are not an object.
            BackendError: it is too long.
        """
        text, thinking = "".join(self._text), "".join(self._thinking)
        check_length(len(text) + len(thinking), who="the model")
        return ChatReply(
            text=text,
            thinking=thinking,
            tool_calls=tuple(_call_of(call) for _, call in sorted(self._calls.items())),
            done_reason=_DONE_REASONS.get(self._finish, "stop"),
            prompt_tokens=self._read,
            reply_tokens=self._written,
            seconds=seconds,
            top_logprobs=self._top_logprobs,
        )


def _call_of(call: Mapping[str, Any]) -> ToolCall:
    arguments = call["arguments"] or "{}"
    if isinstance(arguments, str):
        arguments = read_json(arguments)
    return ToolCall(name=call["name"], arguments=as_object(arguments), id=call["id"])
