"""What a real Ollama refuses in a chat request, whatever its models (recorded: tests/wire).

FakeOllama takes any request. Tests compare what the package sends with these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmsim_lab._util.schemas import schemas_in

Duration = Annotated[str, Field(pattern=r"^[+-]?((\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h))+$")]
Number = float | None


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class Function(Strict):
    name: str
    arguments: dict[str, Any] = {}


class Call(Strict):
    function: Function


class Message(Strict):
    role: str = ""
    content: str | None = None
    thinking: str | None = None
    tool_name: str | None = None
    tool_calls: list[Call] | None = None
    images: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9+/\r\n]*={0,2}[\r\n]*$")]] | None = None


class Options(Strict):
    """Those that Ollama knows; others are let pass."""

    num_ctx: Number = None
    num_predict: Number = None
    num_keep: Number = None
    seed: Number = None
    top_k: Number = None
    repeat_last_n: Number = None
    temperature: Number = None
    top_p: Number = None
    min_p: Number = None
    typical_p: Number = None
    repeat_penalty: Number = None
    presence_penalty: Number = None
    frequency_penalty: Number = None
    stop: list[str] | None = None


class Chat(Strict):
    model: Annotated[str, Field(pattern=r"^(([\w.-]+(:\d+)?/)?[\w.-]+/)?[\w.-]+(:[\w.-]+)?$")]
    messages: list[Message] | None = None
    stream: bool | None = None
    options: Options | None = None
    truncate: bool | None = None
    shift: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    think: bool | Literal["high", "medium", "low", "max"] | None = None
    keep_alive: float | Duration | None = None
    format: dict[str, Any] | Literal["", "json"] | None = None


_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}
_STRUCTURE = {"properties", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "items", "pattern"}


def refusal(content: bytes) -> str | None:
    """Return why a server refuses a chat request, from the bytes of its body; None if it does not.

    The words are not the server's.
    """
    try:
        wanted = Chat.model_validate_json(content).format
    except ValidationError as error:
        return str(error)
    return schema_fault(wanted) if isinstance(wanted, dict) else None


def schema_fault(whole: Mapping[str, Any]) -> str | None:
    """Return what the server's grammar compiler does not take in a schema, if anything."""
    if not isinstance(whole.get("properties", {}), dict):
        return "properties is no object"
    for schema in schemas_in(whole):
        kind = schema.get("type", [])
        kinds = {kind} if isinstance(kind, str) else {*kind}
        if kinds - _TYPES or (schema and not kinds and not _STRUCTURE & schema.keys()):
            return f"unrecognized schema: {schema}"
        name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
        if name and name not in whole.get("$defs", {}):
            return f"unresolved: {schema}"
        pattern = schema.get("pattern", "^$")
        if not (pattern.startswith("^") and pattern.endswith("$")):
            return f"pattern without ^ and $: {pattern}"
    return None
