"""What the child is asked beyond OpenAI's protocol: options by Ollama's names, and a grammar.

The runtime's own ``json_schema`` field does not keep numbers within a range; its llguidance grammar
does. A small model may write without end where the grammar allows it, so digits and texts get a
bound where the schema has none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from llmsim_lab.errors import BackendError
from llmsim_lab.types import ChatRequest

_LARGEST_SEED = 2**32 - 1
"""To the runtime, this one means: draw a seed."""

_WHOLE = ("num_predict", "top_k", "repeat_last_n", "mirostat")
_REAL = (
    *("temperature", "top_p", "min_p", "typical_p", "mirostat_tau", "mirostat_eta"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty"),
)

_MOST = 10**12
_STEP = 0.01
_LONGEST_TEXT = 1000
_NESTED = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else")
_FOR_PEOPLE = ("title", "description", "default", "examples", "discriminator", "$schema", "$id")
_BOUNDS = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")


def extend(request: ChatRequest, body: dict[str, Any]) -> None:
    """Make a request's body what the runtime understands.

    Raises:
        BackendError: an option is unknown here, or its value is of the wrong type; or tools are
            offered.
    """
    if request.tools:
        raise BackendError(
            "the embedded model does not support tools; offer them by a schema, as "
            "OllamaAdapter(tool_calling='schema') does",
            reason="client_error",
        )
    for name, value in request.options.items():
        if value is not None:
            body.pop(name, None)
            _set_option(body, name, value)
    body["return_progress"] = True
    if body.pop("reasoning_effort", None):
        body["chat_template_kwargs"] = {"enable_thinking": True}
    if request.schema is not None:
        del body["response_format"]
        body["grammar"] = grammar_of(request.schema)


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


def grammar_of(schema: Mapping[str, Any]) -> str:
    """Return the grammar of replies that fit the schema; keys come in the schema's order."""
    return f"%llguidance {{}}\nstart: {_rule(schema)}"


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
