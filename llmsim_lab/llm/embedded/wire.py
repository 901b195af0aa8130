"""What the child is asked beyond OpenAI's protocol: options by Ollama's names, and a grammar.

The runtime's own ``json_schema`` field does not keep numbers within a range; its llguidance grammar
does. A small model may write without end where the grammar allows it, so digits and texts get a
bound where the schema has none.
"""

from __future__ import annotations

import json
import math
from typing import Any

from llmsim_lab._util.frozen import thawed
from llmsim_lab._util.jsontext import Schema
from llmsim_lab._util.schemas import schemas_in
from llmsim_lab.errors import BackendError
from llmsim_lab.types import ChatRequest

_MOST = 10**12
_LONGEST_TEXT = 1000

_OPTIONS = (
    *("cache_prompt", "frequency_penalty", "min_p", "mirostat", "mirostat_eta", "mirostat_tau"),
    *("num_ctx", "num_predict", "presence_penalty", "repeat_last_n", "repeat_penalty", "seed"),
    *("stop", "temperature", "top_k", "top_p", "typical_p"),
)
"""What the runtime has; what it does not know, or finds of another type, it would pass over."""


def extend(request: ChatRequest, body: dict[str, Any]) -> None:
    """Make a request's body what the runtime understands.

    Raises:
        BackendError: an option is unknown here, or its value is not a number; or tools are offered.
    """
    if request.tools:
        raise BackendError(
            "the embedded model does not support tools; OllamaAdapter offers them by a schema",
            reason="client_error",
        )
    for name, value in request.options.items():
        may_be = value is None or isinstance(value, int | float) or name == "stop"
        if name not in _OPTIONS or not may_be:
            raise BackendError(
                f"the embedded model does not take the option {name}={value!r}; it has "
                f"{', '.join(_OPTIONS)}, all but stop numbers",
                reason="client_error",
            )
    body["return_progress"] = True
    if body.pop("reasoning_effort", None):
        body["chat_template_kwargs"] = {"enable_thinking": True}
    if request.schema is not None:
        del body["response_format"]
        body["grammar"] = grammar_of(request.schema)


def grammar_of(schema: Schema) -> str:
    """Return the grammar of replies that fit the schema; keys come in the schema's order."""
    compact = {"x-guidance": {"whitespace_flexible": False}, **bounded(schema)}
    return f"%llguidance {{}}\nstart: %json {json.dumps(compact)}"


def bounded(schema: Schema) -> dict[str, Any]:
    """Return a schema with a bound on every number and text, and closed objects.

    What it says itself stays: an ``enum``, a range, a ``multipleOf``, a ``maxLength``, a
    ``pattern``.
    """
    result: dict[str, Any] = thawed(schema)
    for part in schemas_in(result):
        for name in ("$id", "$schema"):  # else the runtime may not follow the rest
            part.pop(name, None)
        if "properties" in part:
            part.setdefault("additionalProperties", False)
        if "enum" in part or "const" in part:
            continue
        types = str(part.get("type"))  # one, or a list of them
        if "number" in types or "integer" in types:
            _bound_number(part, whole="number" not in types)
        if "string" in types and not {"pattern", "format"} & part.keys():
            part.setdefault("maxLength", _LONGEST_TEXT)
    return result


def _bound_number(
    schema: dict[str, Any],
    *,
    whole: bool,
) -> None:
    """Bound the digits before and behind the decimal point."""
    lowest = schema.get("exclusiveMinimum")
    if lowest is None:
        lowest = schema.setdefault("minimum", -_MOST)
    highest = schema.get("exclusiveMaximum")
    if highest is None:
        highest = schema.setdefault("maximum", _MOST)
    if whole or "multipleOf" in schema:
        return
    digits = 2
    span = highest - lowest
    if 0 < span < 0.1:
        # A narrow range gets finer steps, 10 to 100 of them.
        digits = 1 - math.floor(math.log10(span))
    schema["multipleOf"] = round(10.0**-digits, digits)
