"""How a fake Ollama makes its answer to a chat request: plain, or as a stream of lines."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from llmsim_lab.calls import ChatReply
from llmsim_lab.testing import _go
from llmsim_lab.testing._http import Response, json_response
from llmsim_lab.testing._ollama_models import pieces_of, prompt_tokens
from llmsim_lab.testing._schemas import example, schema_faults

__all__ = ["Answer", "Refusal", "answer_chat", "as_chat_reply", "overflow"]

_MAX_REPEATS = 30
"""How often a token may come again at once, white space around it left out."""
_PROMPT_NS, _EVAL_NS, _LOADED_NS, _LOAD_NS = 1_000_000, 20_000_000, 700_000, 250_000_000
"""Made-up durations: of one prompt token, one generated token, a loaded and an unloaded model."""


class Refusal(Exception):  # noqa: N818 - named for what the server does
    """A refusal with a status of its own; ``from_runner`` ones look different in a stream."""

    def __init__(self, status: int, text: str, *, from_runner: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.from_runner = from_runner

    @classmethod
    def nested(cls, message: str, kind: str, **more: int) -> Refusal:
        """A refusal whose text is itself a JSON document, as of the newer runner."""
        fault = {"code": 400, "message": message, "type": kind, **more}
        document = json.dumps({"error": fault}, ensure_ascii=False, separators=(",", ":"))
        return cls(400, document, from_runner=True)


def overflow(tokens: int, num_ctx: int, *, old: bool) -> Refusal:
    """Return what a server says to a prompt that must not be cut and does not fit."""
    if old:
        return Refusal(400, "the input length exceeds the context length", from_runner=True)
    text = (
        f"request ({tokens} tokens) exceeds the available context size ({num_ctx} tokens), "
        "try increasing it"
    )
    more = {"n_prompt_tokens": tokens, "n_ctx": num_ctx}
    return Refusal.nested(text, "exceed_context_size_error", **more)


def as_chat_reply(value: Any) -> ChatReply:
    """Turn a user's reply into one with all its parts; mappings and models become JSON."""
    if isinstance(value, ChatReply):
        return value
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return ChatReply(text=value if isinstance(value, str) else json.dumps(value, indent=2))


def default_reply(wanted: Any) -> str:
    """Return what is answered where the user gave no reply: the least that has the form asked."""
    if wanted == "json" or wanted == {}:
        return "{}"
    return json.dumps(example(wanted), indent=2) if wanted else "This is a fake answer."


def answer_chat(
    body: dict[str, Any],
    *,
    num_ctx: int,
    old: bool,
    fresh: bool,
    reply: Callable[[dict[str, Any]], Any],
) -> Response:
    """Answer a chat request that has passed all checks but those of the runner.

    Args:
        body: the request.
        num_ctx: the context in force, tokens.
        old: whether to speak as version 0.24 did.
        fresh: whether the model had to be loaded for it.
        reply: gives the reply, or None for the least one that fits.
    """
    wanted = body.get("format")
    if isinstance(wanted, Mapping) and (faults := schema_faults(wanted)):
        if old:
            raise Refusal(500, "invalid JSON schema in format", from_runner=True)
        head = "Field 'json_schema': \"json_schema\": JSON schema conversion failed:\n"
        raise Refusal.nested(head + "\n".join(faults), "invalid_request_error")
    read = _tokens_read(body, num_ctx, old=old)
    given = reply(body)
    said = as_chat_reply(default_reply(wanted) if given is None else given)
    answer = Answer(
        body["model"],
        thinking="" if body.get("think") is False else said.thinking,
        calls=_tool_calls(said),
        read=read if said.prompt_tokens is None else said.prompt_tokens,
        load_ns=_LOAD_NS if fresh else _LOADED_NS,
        top=(body.get("top_logprobs") or 0) if body.get("logprobs") else None,
    )
    answer.cut(said, body, num_ctx)
    return answer.plain() if body.get("stream") is False else answer.stream()


def _tokens_read(body: Mapping[str, Any], num_ctx: int, *, old: bool) -> int:
    """Count the tokens the model gets to read; raise where they are too many and must stay."""
    messages: list[Mapping[str, Any]] = list(body["messages"])
    tokens = prompt_tokens(messages, body.get("tools"))
    if tokens < num_ctx:
        return tokens
    if body.get("truncate") is False:
        raise overflow(tokens, num_ctx, old=old)
    while tokens >= num_ctx:
        oldest = next((m for m in messages[:-1] if m.get("role") != "system"), None)
        if oldest is None:
            return num_ctx if old else num_ctx // 2 + 2
        messages.remove(oldest)
        tokens = prompt_tokens(messages, body.get("tools"))
    return tokens


def _tool_calls(said: ChatReply) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id or f"call_{secrets.token_hex(4)}",
            "function": {"index": index, "name": call.name, "arguments": dict(call.arguments)},
        }
        for index, call in enumerate(said.tool_calls)
    ]


def _before_repeats(pieces: Sequence[str]) -> Sequence[str]:
    """Return the tokens before the one that comes again once too often, or all."""
    last, repeats = None, 0
    for place, piece in enumerate(pieces):
        repeats = repeats + 1 if piece.strip() == last else 0
        last = piece.strip()
        if repeats > _MAX_REPEATS:
            return pieces[:place]
    return pieces


@dataclass(slots=True)
class Answer:
    """One answer in the making."""

    model: str
    thinking: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    read: int = 0
    load_ns: int = 0
    top: int | None = None
    """How many alternatives each token's probability comes with; None for no probabilities."""
    pieces: Sequence[str] = ()
    reason: str = "stop"
    generated: int = 0
    stopped: bool = False
    """Whether it repeats itself and is ended where that is noticed, without a closing line."""

    def cut(self, said: ChatReply, body: Mapping[str, Any], num_ctx: int) -> None:
        """Take the reply's tokens up to a stop sequence, a limit, or a token repeated too often."""
        options = body.get("options") or {}
        text = said.text
        for stop in options.get("stop") or ():
            text = text.partition(stop)[0]
        pieces = pieces_of(text)
        limit = int(options.get("num_predict") or 0)
        if body.get("shift") is False:
            room = max(1, num_ctx - self.read)
            limit = min(limit, room) if limit > 0 else room
        self.reason = said.done_reason
        self.generated = len(pieces) + len(self.calls) + 1
        if 0 < limit <= len(pieces):
            pieces, self.reason, self.generated = pieces[:limit], "length", limit
        if said.reply_tokens is not None:
            self.generated = said.reply_tokens
        kept = _before_repeats(pieces)
        self.stopped = len(kept) < len(pieces)
        self.pieces = kept

    def plain(self) -> Response:
        """Answer with one document."""
        message = self._message("".join(self.pieces))
        if self.thinking:
            message["thinking"] = self.thinking
        if self.calls:
            message["tool_calls"] = self.calls
        probabilities = [self._probability(piece) for piece in self.pieces]
        more = {"logprobs": probabilities} if self.top is not None else {}
        if self.stopped:
            return json_response(self._line(message) | {"done": False} | more)
        return json_response(self._line(message) | self._done() | more | self._metrics())

    def stream(self) -> Response:
        """Answer with a line a token."""
        lines = [
            self._line(self._message("") | {"thinking": piece}) | {"done": False}
            for piece in pieces_of(self.thinking)
        ]
        for piece in self.pieces:
            line = self._line(self._message(piece)) | {"done": False}
            more = {"logprobs": [self._probability(piece)]} if self.top is not None else {}
            lines.append(line | more)
        if self.calls and not self.stopped:
            message = self._message("") | {"tool_calls": self.calls}
            lines.append(self._line(message) | {"done": False})
        if not self.stopped:
            lines.append(self._line(self._message("")) | self._done() | self._metrics())
        chunks = tuple(_go.dumps(line).encode() + b"\n" for line in lines)
        headers = {"Content-Type": "application/x-ndjson"}
        return Response(headers=headers, chunks=chunks, chunked=True)

    def bare(self, reason: str) -> Response:
        """Answer a request without messages, which only loads or unloads."""
        self.reason = reason
        return json_response(self._line(self._message("")) | self._done())

    def _message(self, content: str) -> dict[str, Any]:
        return {"role": "assistant", "content": content}

    def _line(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {"model": self.model, "created_at": _go.timestamp(), "message": message}

    def _done(self) -> dict[str, Any]:
        return {"done": True, "done_reason": self.reason}

    def _metrics(self) -> dict[str, Any]:
        prompt_ns, eval_ns = self.read * _PROMPT_NS, self.generated * _EVAL_NS
        metrics = {
            "total_duration": self.load_ns + prompt_ns + eval_ns,
            "load_duration": self.load_ns,
            "prompt_eval_count": self.read,
            "prompt_eval_duration": prompt_ns,
            "eval_count": self.generated,
            "eval_duration": eval_ns,
        }
        return {name: value for name, value in metrics.items() if value}

    def _probability(self, piece: str) -> dict[str, Any]:
        def token(logprob: float) -> dict[str, Any]:
            return {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}

        ranked = [token(-0.5 - rank) for rank in range(self.top or 0)]
        return token(-0.5) | ({"top_logprobs": ranked} if ranked else {})
