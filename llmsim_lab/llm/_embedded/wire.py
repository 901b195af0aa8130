"""The child's HTTP protocol: a request as its fields, its event stream as a reply.

Replies are streamed, because only so does the runtime notice that nobody waits for them any more.

Tools: the models were not trained to call them, so the system message explains them, and a reply
is held to a schema with one form for each tool.

Schemas: the runtime's own ``json_schema`` field does not keep numbers within a range; its
llguidance grammar does. A small model may write without end where the grammar allows it, so digits
and texts get a bound where the schema has none.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._completions import Completion, with_instruction
from llmsim_lab.llm._retry import context_overflow
from llmsim_lab.llm._transport import Telling, error_text, lines, read_json
from llmsim_lab.types import ChatReply, ChatRequest, Message, OnText, ToolCall

_LARGEST_SEED = 2**32 - 1
"""To the runtime, this one means: draw a seed."""

_WHOLE = ("num_predict", "top_k", "repeat_last_n", "mirostat")
_REAL = (
    *("temperature", "top_p", "min_p", "typical_p", "mirostat_tau", "mirostat_eta"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty"),
)

RESPOND = "respond"
"""The tool by which a model answers in words, where a request offers it."""
_ANSWER = "answer"
_EXPLAINED = """\
You may use these tools:
{tools}
Reply with one JSON object: {{"name": "TOOL", "arguments": {{...}}}} to use a tool, or \
{answer} to answer yourself once you need no tool."""
_ANSWERS = '{"answer": ...}'
_RESPONDS = f'{{"name": "{RESPOND}", "arguments": {{...}}}}'

MARKER = "~Qz7~"
"""A text that no model writes by itself; see ``probe_of``."""

_WHO = "the embedded model's process"
_MOST = 10**12
_STEP = 0.01
_LONGEST_TEXT = 1000
_NESTED = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else")
_FOR_PEOPLE = ("title", "description", "default", "examples", "discriminator", "$schema", "$id")
_BOUNDS = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")


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
    if request.top_logprobs:
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.think is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": bool(request.think)}
    num_ctx = request.options.get("num_ctx")
    return Outgoing(fields=fields, num_ctx=num_ctx, schema=schema)


def _set_option(fields: dict[str, Any], name: str, value: Any) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    texts = [value] if isinstance(value, str) else value
    are_texts = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
    rules = {
        **dict.fromkeys((*_WHOLE, "seed"), (whole, "a whole number")),
        **dict.fromkeys(_REAL, (whole or isinstance(value, float), "a number")),
        "num_ctx": (whole and value > 0, "a whole number above 0"),
        "stop": (are_texts, "a text or a list of texts"),
        "cache_prompt": (isinstance(value, bool), "True or False"),
    }
    if name not in rules:
        raise BackendError(
            f"the embedded model has no option {name!r} (given: {value!r}); it has "
            f"{', '.join(sorted(rules))}",
            reason="client_error",
        )
    is_right, what = rules[name]
    if not is_right:
        raise BackendError(f"option {name}={value!r} must be {what}", reason="client_error")
    if name == "num_predict":
        # Ollama's -2, fill the context, is what the runtime does at its own -1.
        fields["max_tokens"] = max(value, -1)
    elif name == "seed":
        fields["seed"] = value % _LARGEST_SEED
    elif name != "num_ctx":
        fields[name] = list(texts) if name == "stop" else value


async def collect(
    blocks: AsyncIterator[bytes], *, trained: int | None = None, on_text: OnText | None = None
) -> ChatReply:
    """Put a reply together from its event stream; times are left out.

    Args:
        blocks: the stream, in blocks of whole lines.
        trained: the longest context the model was trained for, tokens, where known.
        on_text: is given each piece.

    Raises:
        BackendError: the runtime reports an error, or the stream ends early.
    """
    answer, tell = Completion(_WHO), Telling(on_text)
    async for line in lines(blocks):
        name, _, content = line.partition(b": ")
        if name not in (b"data", b"error") or content == b"[DONE]":
            continue
        event = json_object(content)
        if event is None:
            raise _not_an_event(content)
        if name == b"error":
            event = {"error": event}
        if "error" in event:
            raise_error(event, 200, trained=trained)
        try:
            piece = answer.add(event)
        except (ValueError, TypeError) as error:
            raise _not_an_event(content) from error
        tell(*piece)
    if not answer.is_done:
        raise BackendError(
            "the embedded model's reply broke off", reason="connection_error", retry=True
        )
    return answer.reply()


def json_object(content: bytes) -> dict[str, Any] | None:
    """Return the JSON object that the runtime sent; None where it is something else."""
    with suppress(ValueError):
        value = read_json(content)
        return value if isinstance(value, dict) else None
    return None


def _not_an_event(content: bytes) -> BackendError:
    return BackendError(
        f"{_WHO} sent {content[:200].decode(errors='replace')!r}, which is not an event",
        reason="server_error",
        retry=True,
    )


def raise_error(body: Mapping[str, Any], status: int, *, trained: int | None = None) -> NoReturn:
    """Raise the runtime's error as a ``BackendError``; it may come with any status, also 200.

    Args:
        body: the error.
        status: the HTTP status it came with.
        trained: the longest context the model was trained for, tokens, where known.

    Raises:
        BackendError: always.
    """
    error = body.get("error") or {}
    error = error if isinstance(error, Mapping) else {"message": str(error)}
    message = error_text(str(error.get("message", "it does not say what")))
    code = error.get("code", status)
    code = code if isinstance(code, int) and 400 <= code <= 599 else 500
    read, window = error.get("n_prompt_tokens"), error.get("n_ctx")
    is_overflow = error.get("type") == "exceed_context_size_error"
    if is_overflow and isinstance(read, int) and isinstance(window, int):
        raise context_overflow(f"{read:,} tokens", window, trained=trained)
    if code < 500:
        raise BackendError(
            f"the embedded model rejects the request: {message}",
            reason="client_error",
            status_code=code,
        )
    raise BackendError(
        f"the embedded model failed: {message}",
        reason="server_error",
        status_code=code,
        retry=True,
    )


def tool_schema(
    tools: Sequence[Mapping[str, Any]], answer: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the schema of a reply: a call of one of the tools, or an answer.

    Args:
        tools: function declarations, as a ``ChatRequest`` has them. Where ``RESPOND`` is one of
            them, the model answers with it, and only so.
        answer: the schema of an answer; a text where it is None.

    Raises:
        BackendError: a declaration makes no sense.
    """
    forms = [
        _object(
            name={"const": function["name"]},
            arguments=function.get("parameters") or {"type": "object", "properties": {}},
        )
        for function in map(_function, tools)
    ]
    lifted: dict[str, Any] = {}
    if answer is not None:
        answer = dict(answer)
        lifted = {key: answer.pop(key) for key in ("$defs", "definitions") if key in answer}
    if not _responds(tools):
        forms.append(_object(answer=answer or {"type": "string"}))
    return {"anyOf": forms, **lifted}


def describe_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> tuple[Message, ...]:
    """Return the conversation with the tools explained in its system message."""
    listed = "\n".join(
        json.dumps(
            {key: function[key] for key in ("name", "description", "parameters") if key in function}
        )
        for function in map(_function, tools)
    )
    answer = _RESPONDS if _responds(tools) else _ANSWERS
    explained = _EXPLAINED.format(tools=listed, answer=answer)
    return with_instruction(messages, explained)


def tools_as_text(message: Message) -> tuple[str, str]:
    """Return role and text of a message in words that every chat template knows."""
    if message.role == "tool":
        return "user", f"Result of {message.tool_name or 'the tool'}:\n{message.content}"
    if message.tool_calls:
        calls = [
            json.dumps({"name": call.name, "arguments": dict(call.arguments)})
            for call in message.tool_calls
        ]
        return message.role, "\n".join(filter(None, [message.content, *calls]))
    return message.role, message.content


def read_tool_reply(reply: ChatReply) -> ChatReply:
    """Return the reply with the call, or the answer, that its text stands for."""
    try:
        value = read_json(reply.text)
    except ValueError:
        return reply  # mostly cut off at the token limit, as its done_reason says
    # The grammar leaves no other form than these two.
    if _ANSWER in value:
        answer = value[_ANSWER]
        return replace(reply, text=answer if isinstance(answer, str) else json.dumps(answer))
    call = ToolCall(name=value["name"], arguments=value["arguments"])
    return replace(reply, text="", tool_calls=(call,))


def _responds(tools: Sequence[Mapping[str, Any]]) -> bool:
    return any(_function(tool)["name"] == RESPOND for tool in tools)


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BackendError(
            f"a tool is declared as {dict(tool)!r}; it should be "
            '{"type": "function", "function": {"name": ..., "parameters": {...}}}',
            reason="client_error",
        )
    return function


def grammar_of(schema: Mapping[str, Any]) -> str:
    """Return the grammar of replies that fit the schema; keys come in the schema's order."""
    return f"%llguidance {{}}\nstart: {_rule(schema)}"


def probe_of(schema: Mapping[str, Any]) -> str:
    """Return a grammar that makes the model write ``MARKER`` first.

    With a schema that it does not understand, the runtime leaves the reply unconstrained and does
    not raise an error. Only if the marker comes did it understand.
    """
    return f"%llguidance {{}}\nstart: {json.dumps(MARKER)} body\nbody: {_rule(schema)}"


def shape_of(schema: Mapping[str, Any]) -> str:
    """Return a text that two schemas share if the runtime understands both or neither.

    They may differ in the values of an enum, which often change from turn to turn.
    """
    return json.dumps(_without_values(schema), sort_keys=True)


def bounded(schema: Any) -> Any:
    """Return the schema with a bound on every number and text, closed objects, no prose.

    Args:
        schema: not changed. What it says itself stays: an ``enum``, a range, a ``multipleOf``, a
            ``maxLength``, a ``pattern``. True and false, which are schemas too, stay as they are.
    """
    if not isinstance(schema, Mapping):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _FOR_PEOPLE:
            continue
        if key in _NESTED and isinstance(value, Mapping):
            result[key] = {name: bounded(child) for name, child in value.items()}
        elif key in _LISTS and isinstance(value, list | tuple):
            result[key] = [bounded(child) for child in value]
        elif key in _SINGLE:
            result[key] = bounded(value)
        else:
            result[key] = value
    if "properties" in result:
        result.setdefault("additionalProperties", False)
    if "enum" in result or "const" in result:
        return result
    types = result.get("type", ())
    types = {types} if isinstance(types, str) else set(types)
    if types & {"number", "integer"}:
        _bound_number(result, whole="number" not in types)
    if "string" in types and not {"pattern", "format"} & set(result):
        result.setdefault("maxLength", _LONGEST_TEXT)
    return result


def _bound_number(schema: dict[str, Any], *, whole: bool) -> None:
    """Bound the digits before and behind the decimal point."""
    lowest, highest = (
        next((schema[key] for key in keys if key in schema), None) for keys in _BOUNDS
    )
    if lowest is None:
        schema["minimum"] = -_MOST if highest is None else min(-_MOST, highest)
    if highest is None:
        schema["maximum"] = _MOST if lowest is None else max(_MOST, lowest)
    if not whole and "multipleOf" not in schema:
        step = _STEP
        # A narrow range gets finer steps, 10 to 100 of them.
        if lowest is not None and highest is not None and 0 < highest - lowest < 10 * _STEP:
            digits = 1 - math.floor(math.log10(highest - lowest))
            step = round(10.0**-digits, digits)
        schema["multipleOf"] = step


def _rule(schema: Mapping[str, Any]) -> str:
    compact = {"x-guidance": {"whitespace_flexible": False}, **bounded(schema)}
    return f"%json {json.dumps(compact)}"


def _without_values(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: len(item) > 0 if key == "enum" and _plain(item) else _without_values(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_values(item) for item in value]
    return value


def _plain(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(
        isinstance(value, str | int | float) for value in values
    )
