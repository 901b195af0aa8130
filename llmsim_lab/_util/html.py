"""HTML for notebooks: untrusted text made safe, a few shared shapes, and values as tables.

Everything a model, a person or a file says goes through ``safe`` before it becomes HTML: escaped,
with what a page or a terminal might obey made visible. The shapes need no style sheet, so that they
read the same in JupyterLab, light or dark, and on pages that strip styles. What differs between two
replays of a tape, such as seconds, is left out, so that a notebook's outputs can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from markupsafe import Markup, escape
from pydantic import BaseModel

_MAX_CHARACTERS = 20_000
_MAX_ENTRIES = 50
"""Entries of a list that are shown; a note says how many more there are."""

STATUS_COLOURS: dict[str, str] = {
    "ok": "#1a7f37",
    "repaired": "#9a6700",
    "fallback": "#bc4c00",
    "failed": "#cf222e",
}
"""White text on any of them has a contrast of 4.5 or more."""

_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    r"\u034f\u3164\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef\ud800-\udfff]"
)
"""Control codes, marks of direction, invisible letters, halves of characters."""

# In widgets, JupyterLab's lines are as high as its buttons, and columns have no space between them.
_TABLE = '<table style="line-height:1.4">'
_SPACE = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
# Where a page lets words break anywhere, headings would be broken to one letter a line.
_HEAD = _SPACE + ";overflow-wrap:break-word"
_CELL = f'<td style="{_SPACE}">{{}}</td>'
_ROW_HEAD = f'<th scope="row" style="{_HEAD}">{{}}</th>'
_COLUMN_HEAD = f'<th scope="col" style="{_HEAD}">{{}}</th>'

# --- untrusted text ------------------------------------------------------------------------------


def visible(text: str) -> str:
    """Return a text with its hidden characters written out: an escape code as ``␛``.

    Args:
        text: an untrusted text; line breaks and tabs stay.
    """

    def named(found: re.Match[str]) -> str:
        code = ord(found.group())
        return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"

    return _HIDDEN.sub(named, text.replace("\r\n", "\n"))


def safe(text: object, *, limit: int = _MAX_CHARACTERS) -> Markup:
    """Return a text as HTML that shows it and does nothing else; ``Markup`` is left as it is.

    Args:
        text: anything; what is not a text is turned into one.
        limit: the most characters shown; a note says how many more there are.
    """
    if isinstance(text, Markup):
        return text
    whole = str(text)
    # Cut before it is escaped, which would take long for a text of many megabytes.
    html = escape(visible(whole[:limit]))
    if len(whole) > limit:
        html += Markup(" <em>… {} more characters</em>").format(f"{len(whole) - limit:,}")
    return html


# --- shapes --------------------------------------------------------------------------------------


def pre(text: object, *, limit: int = _MAX_CHARACTERS) -> Markup:
    """Return a text as a block that keeps its lines and wraps the long ones."""
    return Markup(
        '<pre dir="auto" style="white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;'
        'margin:0;line-height:1.4">{}</pre>'
    ).format(safe(text, limit=limit))


def join(parts: Iterable[object], *, between: str = "") -> Markup:
    """Return parts one after another, each made safe."""
    return Markup(escape(between)).join(safe(part) for part in parts)


def table(
    header: Sequence[object], rows: Iterable[Sequence[object]], *, caption: object = ""
) -> Markup:
    """Return a plain table; cells are made safe.

    Args:
        header: the columns' names.
        rows: each as long as the header; a row's first cell is its heading.
        caption: what the table shows, for everybody and for screen readers.
    """
    head = join(Markup(_COLUMN_HEAD).format(safe(name)) for name in header)
    body = join(
        Markup("<tr>{}</tr>").format(
            join(
                Markup(_ROW_HEAD if place == 0 else _CELL).format(safe(content))
                for place, content in enumerate(row)
            )
        )
        for row in rows
    )
    return Markup(_TABLE + "{}<thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
        _caption(caption), head, body
    )


def _caption(caption: object) -> Markup:
    if not caption:
        return Markup()
    return Markup('<caption style="text-align:left">{}</caption>').format(safe(caption))


def pairs(items: Iterable[tuple[object, object]], *, caption: object = "") -> Markup:
    """Return names and what they hold as a table of two columns."""
    body = join(
        Markup("<tr>" + _ROW_HEAD + _CELL + "</tr>").format(safe(name), safe(value))
        for name, value in items
    )
    return Markup(_TABLE + "{}<tbody>{}</tbody></table>").format(_caption(caption), body)


def badge(status: str, *, like: str = "") -> Markup:
    """Return a status as a small coloured label; the word itself says it too.

    Args:
        status: the word.
        like: the status of ``STATUS_COLOURS`` that it is as good or bad as; itself if not given.
    """
    return Markup(
        '<span style="background:{};color:#fff;border-radius:3px;padding:0 6px">{}</span>'
    ).format(STATUS_COLOURS[like or status], status)


def details(summary: object, body: object, *, open: bool = False) -> Markup:  # noqa: A002 - HTML's
    """Return something that unfolds under a line.

    Args:
        summary: the line.
        body: what is below it.
        open: whether it starts unfolded.
    """
    return Markup("<details{}><summary>{}</summary>{}</details>").format(
        Markup(" open") if open else "", safe(summary), safe(body)
    )


# --- values --------------------------------------------------------------------------------------


def fields_html(value: BaseModel, *, more: Iterable[tuple[str, object]] = ()) -> Markup:
    """Return a model's fields as a table.

    Args:
        value: any pydantic model; fields that its own repr leaves out are folded.
        more: further rows.
    """
    rows: list[tuple[str, object]] = []
    for name, field in type(value).model_fields.items():
        content = getattr(value, name)
        if field.repr:
            rows.append((_title(name), _field(name, content)))
        elif not (content is None or content == "" or content == ()):
            rows.append((_title(name), details("show", _field(name, content))))
    return pairs([*rows, *more], caption=type(value).__name__)


def _field(name: str, content: object) -> Markup:
    return badge(content) if name == "status" and content in STATUS_COLOURS else cell(content)


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
    if hasattr(value, "__html__"):
        return Markup(value.__html__())
    if isinstance(value, BaseModel):
        return fields_html(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, Sequence):
        return _sequence(value)
    return safe(value)


def _mapping(values: Mapping[Any, object]) -> Markup:
    if not values:
        return safe("none")
    first = dict(islice(values.items(), _MAX_ENTRIES))
    if _of_one_model(values.values()):
        html = _models_table(list(first.values()), keys=list(first))
    else:
        html = pairs((name, cell(value)) for name, value in first.items())
    return join([html, _rest(len(values))])


def _sequence(values: Sequence[object]) -> Markup:
    if not values:
        return safe("none")
    first = values[:_MAX_ENTRIES]
    if _of_one_model(values):
        html = _models_table(first)
    else:
        plain = all(isinstance(value, int | float | str) for value in values)
        html = join(map(cell, first), between=", " if plain else "")
    return join([html, _rest(len(values))])


def _of_one_model(values: Iterable[object]) -> bool:
    classes = {type(value) for value in values}
    return len(classes) == 1 and issubclass(classes.pop(), BaseModel)


def _models_table(values: Sequence[Any], *, keys: Sequence[object] = ()) -> Markup:
    """Return models of one class, a row each, by the fields that are plain values.

    Args:
        values: the models.
        keys: of the mapping that they are in; shown unless a field says the same.
    """
    names = [
        name
        for name, field in type(values[0]).model_fields.items()
        if field.repr
        and not (
            isinstance(content := getattr(values[0], name), BaseModel)
            or hasattr(content, "__html__")
        )
    ]
    rows = [[_field(name, getattr(value, name)) for name in names] for value in values]
    heading = [_title(name) for name in names]
    named = any(keys == [getattr(value, name) for value in values] for name in names)
    if keys and not named:
        heading = ["key", *heading]
        rows = [[cell(key), *row] for key, row in zip(keys, rows, strict=True)]
    return table(heading, rows)


def _rest(count: int) -> Markup:
    return safe(f" … and {count - _MAX_ENTRIES} more") if count > _MAX_ENTRIES else Markup()


def _title(name: str) -> str:
    return name.replace("_", " ")
