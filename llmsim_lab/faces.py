"""How values look in a notebook: their fields as a small table, long parts folded away.

What changes from one run of the same tape to the next, such as seconds, is left out, so that a
notebook's outputs can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from pydantic import BaseModel

from llmsim_lab.calls import CallRecord
from llmsim_lab.markup import STATUS_COLOURS, badge, details, join, pairs, pre, safe, table

__all__ = ["call_html", "cell", "fields_html"]

_MOST = 50
"""Entries of a list that are shown; a note says how many more there are."""


def fields_html(value: BaseModel, *, more: Iterable[tuple[str, object]] = ()) -> Markup:
    """Return a model's fields as a table.

    Args:
        value: any pydantic model; fields that its own repr leaves out are folded.
        more: further rows.
    """
    rows: list[tuple[str, object]] = []
    for name, field in type(value).model_fields.items():
        content = getattr(value, name)
        shown = badge(content) if name == "status" and content in STATUS_COLOURS else cell(content)
        empty = content is None or content == "" or content == ()
        if not field.repr and not empty:
            shown = details("show", shown)
        if field.repr or not empty:
            rows.append((_title(name), shown))
    return pairs([*rows, *more], caption=type(value).__name__)


def cell(value: object) -> Markup:
    """Return any value as what stands in a table's cell."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return safe("none")
    if isinstance(value, bool):
        return safe("yes" if value else "no")
    if isinstance(value, float):
        return safe(f"{value:g}")
    if isinstance(value, str):
        return pre(value) if "\n" in value else safe(value)
    if isinstance(value, CallRecord):
        return call_html(value)
    if isinstance(value, BaseModel):
        return fields_html(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, Sequence):
        return _sequence(value)
    return safe(value)


def call_html(call: CallRecord) -> Markup:
    """Return a model call: who answered, at what cost, and, folded, what went to and fro."""
    last = call.history[-1]
    facts = [
        ("model", call.request.model),
        ("status", badge(call.status)),
        ("attempts", call.attempts),
        ("prompt tokens", call.prompt_tokens),
        ("reply tokens", call.reply_tokens),
    ]
    said = last.reply.text if last.reply else last.detail
    return join(
        [
            pairs(facts),
            details("prompt", pre(call.request.prompt)),
            details("reply" if last.reply else "fault", pre(said)),
        ]
    )


def _mapping(values: Mapping[Any, object]) -> Markup:
    if not values:
        return safe("none")
    if all(isinstance(value, BaseModel) for value in values.values()):
        return _sequence(list(values.values()))
    shown = list(values.items())[:_MOST]
    return join([pairs((name, cell(value)) for name, value in shown), _rest(len(values))])


def _sequence(values: Sequence[object]) -> Markup:
    if not values:
        return safe("none")
    shown = values[:_MOST]
    if all(isinstance(value, BaseModel) for value in values):
        rows = _table([value for value in shown if isinstance(value, BaseModel)])
    elif all(isinstance(value, int | float | str) for value in values):
        rows = join(map(cell, shown), between=", ")
    else:
        rows = join(map(cell, shown))
    return join([rows, _rest(len(values))])


def _table(values: Sequence[BaseModel]) -> Markup:
    """Return models of one kind, a row each, by the fields that are plain values."""
    names = [
        name
        for name, field in type(values[0]).model_fields.items()
        if field.repr and not isinstance(getattr(values[0], name), BaseModel | CallRecord)
    ]
    rows = [
        [
            badge(status)
            if name == "status" and (status := getattr(value, name)) in STATUS_COLOURS
            else cell(getattr(value, name, None))
            for name in names
        ]
        for value in values
    ]
    return table([_title(name) for name in names], rows)


def _rest(count: int) -> Markup:
    return safe(f"… and {count - _MOST} more") if count > _MOST else Markup()


def _title(name: str) -> str:
    return name.replace("_", " ")
