"""What reads a model's or a person's reply, more strictly than what a program gives a class.

Pydantic reads a class's values leniently: ``true`` as 1.0, ``"1_0"`` as 10, 0 as a day in 1970,
what is left out as its default, and numbers that are not finite. In a reply each of these is a
mistake. A reply's class may hold classes that know nothing of this package, and that none of its
settings reach. So the schema that pydantic made of the class is changed as a whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError, SchemaValidator

from llmsim_lab._util.jsontext import all_finite
from llmsim_lab.types import Reply

_NUMBERS = frozenset(("int", "float", "decimal", "fraction", "complex"))
_TIMES = {
    "date": "a date such as 2026-01-31",
    "datetime": "a date and time such as 2026-01-31T12:00:00",
    "time": "a time such as 12:00:00",
    "timedelta": "a duration such as PT90M or P1DT12H",
}
_DIGITS_ALONE = re.compile(r"\s*[-+]?\d+(\.\d*)?\s*")
_FIELDS = frozenset(("model-field", "dataclass-field", "named-tuple-field", None))
"""The kinds of nodes that hold a field; a function's parameter has no kind."""
_BY_NAME = frozenset(("fields", "choices"))
"""Members of a node that hold other nodes by names of the user's."""
_NOT_SCHEMAS = frozenset(
    (
        *("default", "expected", "members", "missing", "custom_error_context"),
        *("metadata", "serialization", "config", "cls"),
    )
)
"""Members of a node that hold values of the user's, which may look like a node."""

Node = dict[str, Any]
"""Of pydantic's core schema, whose members depend on its type."""
Check = Callable[..., object]
"""Returns a value that is read, or raises what pydantic shows."""


@lru_cache(maxsize=1024)
def reply_validator(
    model: type[BaseModel],
    may_lack: frozenset[str] = frozenset(),
) -> SchemaValidator:
    """Return what reads a reply as an instance of a class.

    In a ``Reply``, and in the objects inside it, no field may be left out.

    Args:
        model: the class.
        may_lack: fields that may be left out, of those that the class has.
    """
    model.model_rebuild()  # does something only where an annotation named a class made later
    lenient = model.__pydantic_core_schema__
    schema = _strict(lenient, complete=issubclass(model, Reply))
    fields = _fields_in(schema) if may_lack else {}
    for name in may_lack & fields.keys():
        # From the class's own, which may have a default that was taken away just now.
        as_in_class = _strict(_fields_in(lenient)[name], complete=False)
        fields[name] = _with_default(as_in_class)
    # Else pydantic takes the lenient validators that the classes inside have already.
    return SchemaValidator(schema, _use_prebuilt=False)


def _fields_in(schema: Any) -> dict[str, Node]:
    """Return the fields of the class that pydantic made a schema of, by name."""
    node: Node = schema
    definitions: dict[str, Node] = {}
    while node["type"] != "model-fields":
        for definition in node.get("definitions", ()):
            definitions[definition["ref"]] = definition
        if node["type"] == "definition-ref":  # a class that holds replies of its own kind
            node = definitions[node["schema_ref"]]
        else:
            node = node["schema"]
    fields: dict[str, Node] = node["fields"]
    return fields


def _with_default(field: Node) -> Node:
    """Return a field with a default: its class's own, or else what stands for nothing said."""
    inner: Node = field["schema"]
    if inner["type"] == "default":
        return field
    nothing = "" if inner["type"] == "str" else None
    with_default = {"type": "default", "schema": inner, "default": nothing}
    return {**field, "schema": with_default}


def _strict(part: Any, *, complete: bool) -> Any:
    """Return a part of pydantic's schema made strict.

    Args:
        part: a node, or what a node holds.
        complete: whether fields with a default are required too.
    """
    if isinstance(part, list | tuple):
        return type(part)(_strict(item, complete=complete) for item in part)
    if not isinstance(part, dict):
        return part
    node: Node = {}
    for name, inner in part.items():
        if name in _BY_NAME and isinstance(inner, dict):
            node[name] = {key: _strict(each, complete=complete) for key, each in inner.items()}
        elif name in _NOT_SCHEMAS:
            node[name] = inner
        else:
            node[name] = _strict(inner, complete=complete)
    kind = node.get("type")
    if kind == "union":
        return _union(part, node, complete=complete)
    if kind in _NUMBERS:
        return _checked_before(_read_number, _finite(node))
    if kind in _TIMES:
        return _checked_before(partial(_read_time, _TIMES[kind]), node)
    if kind == "any":
        return _checked_after(_read_finite, node)
    if kind in ("enum", "literal") and not _holds_truth_values(node):
        # Python takes true for 1, in a Literal[0, 1] too.
        return _checked_before(_read_choice, node)
    if complete:
        return _required(node)
    return node


def _required(node: Node) -> Node:
    """Return a node whose field may not be left out, unless no model is asked for it."""
    if node.get("type") == "typed-dict-field":
        return {**node, "required": True}
    inner = node.get("schema")
    if not isinstance(inner, dict) or inner.get("type") != "default":
        return node
    # A dataclass gives a field with init=False its default by itself.
    is_given = node.get("type") in _FIELDS and node.get("init", True)
    if is_given and not _is_hidden(inner["schema"]):
        return {**node, "schema": inner["schema"]}
    return node


def _union(
    lenient: Node,
    strict: Node,
    *,
    complete: bool,
) -> Node:
    """Return alternatives under their own names; if complete, only what a model is asked for."""
    choices: list[object] = []
    for before, after in zip(lenient["choices"], strict["choices"], strict=True):
        if complete and _is_hidden(before):
            continue
        if isinstance(before, dict) and before["type"] != after["type"]:
            # By its name of before: else an error names the function around it.
            choices.append((after, before["type"]))
        else:
            choices.append(after)
    return {**strict, "choices": choices or strict["choices"]}


def _is_hidden(node: object) -> bool:
    """Return True if a model is not asked for this: it is annotated with ``SkipJsonSchema``."""
    if not isinstance(node, dict):
        return False
    makers = node.get("metadata", {}).get("pydantic_js_annotation_functions", ())
    owners = [getattr(maker, "__self__", None) for maker in makers]
    return any(isinstance(owner, SkipJsonSchema) for owner in owners)  # type: ignore[misc]  # an alias there


def _finite(node: Node) -> Node:
    """Return a number's node that takes finite numbers alone."""
    if node["type"] in ("float", "decimal"):
        return {**node, "allow_inf_nan": False}
    if node["type"] == "complex":  # which has no such setting
        return _checked_after(_read_finite, node)
    return node


def _holds_truth_values(node: Node) -> bool:
    values = node.get("expected") or [member.value for member in node.get("members", ())]
    return any(isinstance(value, bool) for value in values)


def _checked_before(check: Check, node: Node) -> Node:
    return _around("function-before", check, node)


def _checked_after(check: Check, node: Node) -> Node:
    return _around("function-after", check, node)


def _around(
    kind: str,
    check: Check,
    node: Node,
) -> Node:
    """Return a node around another one, which it takes the place of for those that refer to it."""
    outer: Node = {
        "type": kind,
        "function": {"type": "no-info", "function": check},
        "schema": {name: value for name, value in node.items() if name != "ref"},
        # What a model is asked for is seen at the outer one.
        "metadata": node.get("metadata", {}),
    }
    if "ref" in node:
        outer["ref"] = node["ref"]
    return outer


# --- what is read ---------------------------------------------------------------------------------


def _read_number(value: object) -> object:
    # Python reads 1_000 as a number, and no other language does.
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise PydanticCustomError("number_type", "Input should be a number")
    if isinstance(value, str) and _is_too_large(value):
        raise PydanticCustomError("finite_number", "Input should be a finite number")
    return value


def _is_too_large(text: str) -> bool:
    """Return True for a text such as ``1e999``, which a Decimal or a Fraction would take.

    With a larger exponent still, a Fraction would be made for hours.
    """
    if "e" not in text.lower():
        return False
    try:
        return math.isinf(float(text))
    except ValueError:
        return False


def _read_time(wanted: str, value: object) -> object:
    # Pydantic takes a number for seconds since 1970.
    is_number = isinstance(value, int | float)
    if is_number or (isinstance(value, str) and _DIGITS_ALONE.fullmatch(value)):
        raise PydanticCustomError("time_type", "Input should be {wanted}", {"wanted": wanted})
    return value


def _read_choice(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("choice_type", "Input should not be true or false")
    return value


def _read_finite(value: object) -> object:
    if not all_finite(value):
        raise PydanticCustomError("finite_number", "Input should be finite")
    return value
