"""HTML from untrusted text: escaped, with what a page or terminal might obey made visible.

Everything a model, a person or a file says goes through ``safe`` before it becomes HTML. The rest
are the few shapes that reprs and widgets share. They need no style sheet, so that they read the
same in JupyterLab, light or dark, and on pages that strip styles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from llmsim_lab.calls import Status

__all__ = ["STATUS_COLOURS", "badge", "details", "join", "pairs", "pre", "safe", "table", "visible"]

_LIMIT = 20_000

STATUS_COLOURS: dict[Status, str] = {
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


def visible(text: str) -> str:
    """Return a text with its hidden characters written out: an escape code as ``␛``.

    Args:
        text: a stranger's text; line breaks and tabs stay.
    """
    return _HIDDEN.sub(_name_of, text.replace("\r\n", "\n"))


def _name_of(found: re.Match[str]) -> str:
    code = ord(found.group())
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def safe(text: object, *, limit: int = _LIMIT) -> Markup:
    """Return a text as HTML that shows it and does nothing else; ``Markup`` is left as it is.

    Args:
        text: anything; what is no text is turned into one.
        limit: the most characters shown; a note says how many more there are.
    """
    if isinstance(text, Markup):
        return text
    whole = str(text)
    shown = escape(visible(whole[:limit]))
    if len(whole) > limit:
        shown += Markup(" <em>… {} more characters</em>").format(f"{len(whole) - limit:,}")
    return shown


def pre(text: object, *, limit: int = _LIMIT) -> Markup:
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
                Markup(_ROW_HEAD if place == 0 else _CELL).format(safe(cell))
                for place, cell in enumerate(row)
            )
        )
        for row in rows
    )
    title = _caption(caption)
    return Markup(_TABLE + "{}<thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
        title, head, body
    )


# In widgets, JupyterLab's lines are as high as its buttons, and columns have no space between them.
_TABLE = '<table style="line-height:1.4">'
_SPACE = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
# Where a page lets words break anywhere, headings would be broken to one letter a line.
_HEAD = _SPACE + ";overflow-wrap:break-word"
_CELL = f'<td style="{_SPACE}">{{}}</td>'
_ROW_HEAD = f'<th scope="row" style="{_HEAD}">{{}}</th>'
_COLUMN_HEAD = f'<th scope="col" style="{_HEAD}">{{}}</th>'


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


def badge(status: Status) -> Markup:
    """Return a status as a small coloured label; the word itself says it too."""
    return Markup(
        '<span style="background:{};color:#fff;border-radius:3px;padding:0 6px">{}</span>'
    ).format(STATUS_COLOURS[status], status)


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
