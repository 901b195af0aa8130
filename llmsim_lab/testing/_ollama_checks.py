"""What Ollama refuses in a chat request, in its own words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from llmsim_lab.testing import _go
from llmsim_lab.testing._go import GoError, json_kind, quote

__all__ = ["NAME", "bad_format", "check_options", "parse_body"]

NAME = re.compile(r"(?:[\w.-]+(?::\d+)?/)?(?:[\w.-]+/)?[\w.-]+(?::[\w.-]+)?")

_FIELDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "model": (str, "string"),
    "messages": (list, "[]api.Message"),
    "stream": (bool, "bool"),
    "options": (dict, "map[string]interface {}"),
    "truncate": (bool, "bool"),
    "shift": (bool, "bool"),
    "logprobs": (bool, "bool"),
    "top_logprobs": (int, "int"),
}
_INTEGERS = {"num_ctx", "num_predict", "num_keep", "num_batch", "num_gpu", "num_thread"}
_INTEGERS |= {"main_gpu", "seed", "top_k", "repeat_last_n"}
_FLOATS = {"temperature", "top_p", "min_p", "typical_p"}
_FLOATS |= {"repeat_penalty", "presence_penalty", "frequency_penalty"}
_THINK = (None, True, False, "high", "medium", "low", "max")
_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]*={0,2}[\r\n]*")


def parse_body(content: bytes) -> dict[str, Any]:
    """Decode a chat request's body and check its fields' types.

    Raises:
        GoError: the body is refused; the text is the server's.
    """
    if not content:
        raise GoError("missing request body")
    try:
        body = json.loads(content)
    except json.JSONDecodeError as fault:
        if fault.pos >= len(fault.doc.rstrip()) or "Unterminated" in fault.msg:
            raise GoError("unexpected EOF") from None
        character = fault.doc[fault.pos]
        raise GoError(f"invalid character {character!r} looking for beginning of value") from None
    if not isinstance(body, dict):
        raise GoError(
            f"json: cannot unmarshal {json_kind(body)} into Go value of type api.ChatRequest"
        )
    for name, (kind, go_kind) in _FIELDS.items():
        value = body.get(name)
        wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
        if value is not None and wrong:
            raise GoError(
                f"json: cannot unmarshal {json_kind(value)} into Go struct field "
                f"ChatRequest.{name} of type {go_kind}"
            )
    for message in body.get("messages") or ():
        _check_message(message)
    _check_think(body.get("think"))
    if body.get("keep_alive") is not None:
        _go.parse_duration(body["keep_alive"])
    return body


def _check_message(message: Any) -> None:
    if not isinstance(message, dict):
        raise GoError(
            f"json: cannot unmarshal {json_kind(message)} into Go struct field "
            "ChatRequest.messages of type api.Message"
        )
    for name in ("role", "content", "thinking", "tool_name"):
        value = message.get(name)
        if value is not None and not isinstance(value, str):
            raise GoError(
                f"json: cannot unmarshal {json_kind(value)} into Go struct field "
                f"Alias.{name} of type string"
            )
    for call in message.get("tool_calls") or ():
        if isinstance(call["function"].get("arguments"), str):
            raise GoError("Value looks like object, but can't find closing '}' symbol")
    for index, image in enumerate(message.get("images") or ()):
        match = _BASE64.match(image)
        good = match.end() if match else 0
        if good < len(image):
            raise GoError(
                f"json: cannot unmarshal string into Alias.images.{index} of type api.ImageData: "
                f"illegal base64 data at input byte {good}"
            )


def _check_think(think: Any) -> None:
    if think not in _THINK or type(think) in (int, float):
        shown = quote(think) if isinstance(think, str) else json.dumps(think)
        raise GoError(
            f'invalid think value: {shown} (must be "high", "medium", "low", "max", true, or false)'
        )


def check_options(options: Mapping[str, Any]) -> None:
    """Check the types of the options Ollama knows; unknown ones and nulls are let pass.

    Raises:
        GoError: an option has the wrong type.
    """
    for name, value in options.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None:
            continue
        if name in _INTEGERS and not number:
            raise GoError(f"option {quote(name)} must be of type integer")
        if name in _FLOATS and not number:
            raise GoError(f"option {quote(name)} must be of type float32")
        if name == "stop" and not isinstance(value, list):
            raise GoError(f"option {quote(name)} must be of type array")


def bad_format(wanted: Any, content: bytes) -> str | None:
    """Return the server's complaint about a ``format`` that is neither JSON nor a schema."""
    if wanted in (None, "", "json") or isinstance(wanted, dict):
        return None
    text, decoder = content.decode(), json.JSONDecoder()
    starts = [match.end() for match in re.finditer(r'"format"\s*:\s*', text)]
    found = [(start, *decoder.raw_decode(text, start)) for start in starts]
    raw = next(text[start:end] for start, value, end in found if value == wanted)
    return f'invalid format: {quote(raw)}; expected "json" or a valid JSON Schema object'
