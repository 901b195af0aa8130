"""What identifies a call: the whole request, its place in the run, and which sample it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmsim_lab.calls import ChatRequest, Message

__all__ = [
    "Settings",
    "SettingsCache",
    "call_key",
    "dumps",
    "encode_message",
    "key_fits",
    "nth_key",
    "plain",
    "settings_texts",
    "shared_system",
]

_MAX_KNOWN_SETTINGS = 10_000


def plain(value: Any) -> Any:
    """Return JSON-ready copies of mappings and tuples, as deep as they go."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def encode_message(message: Message) -> list[Any]:
    """Return a message as a short JSON list: role, content, and what else it has."""
    parts: list[Any] = [message.role, message.content]
    if message.tool_calls or message.tool_name is not None:
        calls = [[call.name, plain(call.arguments), call.id] for call in message.tool_calls]
        parts += [calls, message.tool_name]
    return parts


def settings_texts(request: ChatRequest) -> tuple[str, str]:
    """Return what requests have in common, as JSON: all of it, and what keys take from there.

    That is all but the messages, of which only the system message is repeated from request to
    request; keys have it with the messages. They leave out how long one waits and how long the
    model stays loaded.
    """
    values = {
        "model": request.model,
        "schema": plain(request.schema),
        "tools": plain(request.tools),
        "options": plain(request.options),
        "think": request.think,
    }
    more: dict[str, Any] = {"keep_alive": request.keep_alive, "timeout_s": request.timeout_s}
    if (system := shared_system(request)) is not None:
        more["system"] = system
    return dumps(values | more), dumps(values)


def shared_system(request: ChatRequest) -> str | None:
    """Return the system message that is kept with the settings, once for many requests."""
    first = request.messages[0] if request.messages else None
    if first is None or first.role != "system" or first.tool_calls or first.tool_name is not None:
        return None
    return first.content


def dumps(value: Any) -> str:
    """Return JSON that a database takes, also where a model wrote half a character."""
    text = _encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return json.dumps(value, separators=(",", ":"))
    return text


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Settings:
    """A request's settings as text, the text's digest, and their digest in keys."""

    text: str
    digest: bytes
    key_digest: bytes
    held: tuple[object, ...]


class SettingsCache:
    """Settings that many requests share, turned into text once per combination.

    Schemas and options are made once and handed to every request, so that the objects' identities
    tell the combinations apart; the objects are kept alive as long as their identities are in use.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Settings] = {}

    def of(self, request: ChatRequest) -> Settings:
        """Return the request's settings."""
        key = (
            request.model,
            id(request.schema),
            id(request.tools),
            id(request.options),
            request.think,
            request.keep_alive,
            request.timeout_s,
            shared_system(request),
        )
        found = self._known.get(key)
        if found is None:
            text, key_text = settings_texts(request)
            found = Settings(
                text,
                hashlib.sha256(text.encode()).digest(),
                hashlib.sha256(key_text.encode()).digest(),
                (request.schema, request.tools, request.options),
            )
            if len(self._known) < _MAX_KNOWN_SETTINGS:
                self._known[key] = found
        return found


def call_key(request: ChatRequest, settings: Settings) -> bytes:
    """Return the call's key, 32 bytes; equal for equal calls in any process.

    It covers model, messages, schema, tools, options and thinking; component, agent, turn and
    replicate; and the attempt.
    """
    site = request.site
    place = (
        [site.component, site.agent, site.turn, site.replicate] if site else [None, None, None, 0]
    )
    messages = [encode_message(message) for message in request.messages]
    text = json.dumps([place, request.attempt, messages], ensure_ascii=False)
    return hashlib.sha256(settings.key_digest + text.encode("utf-8", "surrogatepass")).digest()


def nth_key(base: bytes, count: int) -> bytes:
    """Return the key of the request of its turn that ``count`` others equal to it came before."""
    return base if count == 0 else base + count.to_bytes(4, "big")


def key_fits(key: object, base: bytes) -> bool:
    """Return whether a recorded key is ``base``, or that of the n-th of its like for some n."""
    if not isinstance(key, bytes) or not key.startswith(base):
        return False
    return key == base or (len(key) == len(base) + 4 and any(key[-4:]))
