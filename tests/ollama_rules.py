"""What a real Ollama refuses in a chat request, in its own words (recorded: tests/wire).

FakeOllama takes any request. Tests compare what the package sends with these rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fake_ollama._fake_ollama import UNITS_S


def refusal(content: bytes, *, old: bool = False) -> tuple[int, str] | None:
    """Return status and text with which a server refuses a chat request, whatever its models.

    Args:
        content: the request's body.
        old: whether the server is of before 0.30.
    """
    try:
        body = parse_body(content)
        if not 0 <= (body.get("top_logprobs") or 0) <= 20:
            raise GoError("top_logprobs must be between 0 and 20")
        if not body.get("model"):
            raise GoError("model is required")
        if not NAME.fullmatch(body["model"]):
            raise GoError("invalid model name")
    except GoError as fault:
        return 400, str(fault)
    if not body.get("messages"):
        return None
    try:
        check_options(body.get("options") or {})
    except GoError as fault:
        return 500, str(fault)
    wanted = body.get("format")
    if complaint := bad_format(wanted, content):
        return 500, complaint
    if isinstance(wanted, Mapping) and (faults := schema_faults(wanted)):
        if old:
            return 500, "invalid JSON schema in format"
        head = "Field 'json_schema': \"json_schema\": JSON schema conversion failed:\n"
        message = head + "\n".join(faults)
        fault_ = {"code": 400, "message": message, "type": "invalid_request_error"}
        return 400, json.dumps({"error": fault_}, ensure_ascii=False, separators=(",", ":"))
    return None


class GoError(Exception):
    """A fault whose text is what the server says."""


def quote(text: str) -> str:
    """Return the text as Go's ``%q`` prints it."""
    return json.dumps(text, ensure_ascii=False)


def json_kind(value: Any) -> str:
    """Name a JSON value's kind as Go's decoder does."""
    kinds = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    return kinds.get(type(value), "object")


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
        check_duration(body["keep_alive"])
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


_DURATION = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[a-zµ]+(?:\d+\.?\d*|\.\d+))*([a-zµ]*)")


def check_duration(value: float | str) -> None:
    """Check a ``keep_alive``: seconds, or a text such as ``10m``.

    Raises:
        GoError: the text is not a duration.
    """
    if not isinstance(value, str):
        return
    match = _DURATION.fullmatch(value)
    if not match:
        raise GoError(f"time: invalid duration {quote(value)}")
    if not match[1]:
        raise GoError(f"time: missing unit in duration {quote(value)}")
    for unit in re.findall(r"[a-zµ]+", value):
        if unit not in UNITS_S:
            raise GoError(f"time: unknown unit {quote(unit)} in duration {quote(value)}")


_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_STRUCTURE = ("properties", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "items", "pattern")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _lookup(ref: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    for step in ref.removeprefix("#/").split("/"):
        if not isinstance(node, Mapping) or step not in node:
            raise KeyError(f"Error resolving ref {ref}: {step} not in {_compact(node)}")
        node = node[step]
    return node


def schema_faults(schema: Any, root: Mapping[str, Any] | None = None) -> list[str]:
    """Return what the server's grammar compiler holds against a schema; empty if it is fine."""
    if not isinstance(schema, Mapping):
        return [f"Unrecognized schema: {_compact(schema)}"]
    root = schema if root is None else root
    if "$ref" in schema:
        try:
            _lookup(schema["$ref"], root)
        except KeyError as error:
            return [str(error.args[0])]
        return []
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    known = all(item in _TYPES for item in kinds) if kind is not None else True
    if not known or (kind is None and schema and not any(key in schema for key in _STRUCTURE)):
        return [f"Unrecognized schema: {_compact(schema)}"]
    pattern = schema.get("pattern")
    if pattern is not None and not (pattern.startswith("^") and pattern.endswith("$")):
        return ["Pattern must start with '^' and end with '$'"]
    return [fault for child in _children(schema) for fault in schema_faults(child, root)]


def _children(schema: Mapping[str, Any]) -> list[Any]:
    children: list[Any] = []
    for key in ("properties", "$defs"):
        nested = schema.get(key, {})
        children += nested.values() if isinstance(nested, Mapping) else [nested]
    for key in ("anyOf", "oneOf", "allOf"):
        children += schema.get(key, [])
    return children + ([schema["items"]] if "items" in schema else [])
