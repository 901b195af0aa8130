"""Calls to and from rows of the tape's table."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, get_args

from llmsim_lab.calls import Attempt, CallSite, ChatReply, ChatRequest, Message, ToolCall
from llmsim_lab.errors import FailureReason, TapeError
from llmsim_lab.llm.tape.checks import check_attempt
from llmsim_lab.llm.tape.keys import dumps, encode_message, plain, shared_system

__all__ = ["COLUMNS", "RecordedCall", "attempt_of", "encode_attempt", "fault_text", "reply_text"]

COLUMNS = (
    "calls.id, run, key, turn, component, agent, replicate, attempt, messages, reply, fault, "
    "seconds, forgotten, texts.text AS settings"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One request on a tape, with what became of it.

    Attributes:
        id: its number on the tape.
        run: the run that made it.
        key: what identifies it among those of its run.
        attempt: the request, the reply or fault, and how long it took.
        forgotten: whether its call failed for good and was tried anew.
    """

    id: int
    run: int
    key: bytes
    attempt: Attempt
    forgotten: bool


def reply_text(reply: ChatReply | None) -> str | None:
    """Return a reply as JSON."""
    if reply is None:
        return None
    values: dict[str, Any] = {"text": reply.text}
    if reply.thinking:
        values["thinking"] = reply.thinking
    if reply.tool_calls:
        values["tool_calls"] = [[c.name, plain(c.arguments), c.id] for c in reply.tool_calls]
    if reply.done_reason != "stop":
        values["done_reason"] = reply.done_reason
    for name in ("prompt_tokens", "reply_tokens"):
        if (count := getattr(reply, name)) is not None:
            values[name] = count
    for name in ("seconds", "load_seconds"):
        if duration := getattr(reply, name):
            values[name] = duration
    return dumps(values)


def fault_text(attempt: Attempt) -> str | None:
    """Return what went wrong as JSON, or None if nothing did."""
    if attempt.reason is None:
        return None
    return dumps([attempt.reason, attempt.detail, attempt.status_code, attempt.retry])


def encode_attempt(attempt: Attempt) -> tuple[str, str | None, str | None, float]:
    """Return messages, reply, fault and seconds as a row holds them."""
    request = attempt.request
    own = request.messages if shared_system(request) is None else request.messages[1:]
    messages = [encode_message(message) for message in own]
    return (
        dumps(messages),
        reply_text(attempt.reply),
        fault_text(attempt),
        attempt.seconds,
    )


def attempt_of(row: sqlite3.Row | Mapping[str, Any]) -> Attempt:
    """Return a row as an attempt.

    Raises:
        TapeError: the row does not hold what it should; the tape is damaged.
    """
    try:
        attempt = _attempt_of(row)
        check_attempt(attempt)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise TapeError(f"call {row['id']} on the tape is damaged: {error}") from error
    return attempt


@lru_cache(maxsize=512)
def _settings_of(text: str) -> Mapping[str, Any]:
    """Return the settings that many calls share, parsed once; whoever digests them knows them."""
    settings: dict[str, Any] = json.loads(text)
    return MappingProxyType(settings | {"tools": tuple(settings["tools"])})


def _attempt_of(row: sqlite3.Row | Mapping[str, Any]) -> Attempt:
    settings = _settings_of(row["settings"])
    site = None
    if row["component"] is not None:
        site = CallSite(
            component=row["component"],
            agent=row["agent"],
            turn=row["turn"],
            replicate=row["replicate"],
        )
    shared = [["system", settings["system"]]] if "system" in settings else []
    request = ChatRequest(
        model=settings["model"],
        messages=tuple(_message_of(parts) for parts in [*shared, *json.loads(row["messages"])]),
        schema=settings["schema"],
        tools=settings["tools"],
        options=settings["options"],
        think=settings["think"],
        keep_alive=settings["keep_alive"],
        timeout_s=settings["timeout_s"],
        site=site,
        attempt=row["attempt"],
    )
    reason, detail, status_code, retry = None, "", None, False
    if row["fault"] is not None:
        reason, detail, status_code, retry = json.loads(row["fault"])
        if reason not in get_args(FailureReason):
            raise ValueError(f"unknown reason {reason!r}")
    reply = _reply_of(json.loads(row["reply"])) if row["reply"] is not None else None
    return Attempt(
        request=request,
        reply=reply,
        seconds=row["seconds"],
        reason=reason,
        detail=detail,
        status_code=status_code,
        retry=retry,
        number=row["id"],
    )


def _tool_call_of(parts: list[Any]) -> ToolCall:
    return ToolCall(name=parts[0], arguments=parts[1], id=parts[2])


def _message_of(parts: list[Any]) -> Message:
    role, content, *more = parts
    if not more:
        return Message(role, content)
    calls, tool_name = more
    return Message(role, content, tuple(map(_tool_call_of, calls)), tool_name)


def _reply_of(values: Mapping[str, Any]) -> ChatReply:
    known = dict(values)
    calls = tuple(map(_tool_call_of, known.pop("tool_calls", [])))
    return ChatReply(**known, tool_calls=calls)
