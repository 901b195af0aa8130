"""HTML for notebooks: untrusted text made safe, a few shared shapes, and values as tables.

Everything a model, a person or a file says goes through ``safe`` before it becomes HTML: escaped,
with what a page or a terminal might obey made visible. The shapes need no style sheet, so that they
read the same in JupyterLab, light or dark, and on pages that strip styles. What differs between two
replays of a tape, such as seconds, is left out, so that a notebook's outputs can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from llmsim_lab._util.text import clip

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_CHARACTERS = 20_000

# --- tokens: how all HTML of the lab looks -------------------------------------------------------
# Python values, since pages that are safe to show strip style elements, and most strip attributes:
# so each is written where it is used, and no meaning hangs on it.

LINE = "var(--jp-border-color2, rgba(127,127,127,0.4))"
SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow."""
STATUS_COLOURS: dict[str, str] = {
    "ok": "#1a7f37",
    "repaired": "#9a6700",
    "fallback": "#bc4c00",
    "failed": "#cf222e",
}
"""White text on any of them has a contrast of 4.5 or more."""

NUMBERS = "text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap"

_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    r"\u034f\u3164\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef\ud800-\udfff]"
)
"""Control codes, marks of direction, invisible letters, halves of characters."""

# In widgets, JupyterLab's lines are as high as its buttons, and columns have no space between them.
_TABLE = "line-height:1.4;border-collapse:collapse"
# Where a page lets words break anywhere, headings would be broken to one letter a line.
_CELL = "vertical-align:top;padding:3px 12px 3px 0;{};overflow-wrap:break-word"
_LINED = f"border-top:1px solid {LINE};{_CELL}"
_A_NUMBER = re.compile(r"[+\-\u2212]?\d[\d.,]*(e[+-]?\d+)?%?( to [+\-\u2212]?\d[\d.,]*)?")
_NO_NUMBER = ("", "none", "not known", "not reported")
"""What may stand in a column of numbers without making it one of texts."""

# --- untrusted text ------------------------------------------------------------------------------


def visible(text: str) -> str:
    """Return a text with its hidden characters written out: an escape code as ``␛``.

    Args:
        text: an untrusted text; line breaks and tabs stay.
    """

    def written(match: re.Match[str]) -> str:
        code = ord(match.group())
        if code < 0x20:
            return chr(0x2400 + code)  # where Unicode has signs for the control codes
        return f"⟨U+{code:04X}⟩"

    return _HIDDEN.sub(written, text.replace("\r\n", "\n"))


def safe(text: object, *, limit: int = MAX_CHARACTERS) -> Markup:
    """Return a text as HTML that shows it and does nothing else; ``Markup`` is left as it is.

    Args:
        text: anything; what is not a text is turned into one.
        limit: the most characters shown; a note says how many more there are.
    """
    if isinstance(text, Markup):
        return text
    whole = str(text)
    # Cut before it is escaped, which would take long for a text of many megabytes.
    shown = escape(visible(whole[:limit]))
    if len(whole) > limit:
        shown += Markup(" <em>… {} more characters</em>").format(f"{len(whole) - limit:,}")
    return shown


# --- shapes --------------------------------------------------------------------------------------


def styled(
    content: object,
    css: str = "",
    *,
    tag: str = "div",
    **attributes: object,
) -> Markup:
    """Return content, made safe, in an element of this style.

    Args:
        content: what is in it.
        css: of the tokens above.
        tag: the element's.
        attributes: such as ``role`` and ``aria_label``; left out where None.
    """
    if css:
        attributes["style"] = css
    written = join(
        Markup(' {}="{}"').format(name.replace("_", "-"), visible(str(value)))
        for name, value in attributes.items()
        if value is not None
    )
    return Markup("<{}{}>{}</{}>").format(
        Markup(tag),
        written,
        safe(content),
        Markup(tag),
    )


def pre(text: object) -> Markup:
    """Return a text as a block that keeps its lines and wraps the long ones."""
    css = "white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal;margin:0;line-height:1.4"
    return styled(
        text,
        css,
        tag="pre",
        dir="auto",
    )


def join(
    parts: Iterable[object],
    *,
    between: str = "",
) -> Markup:
    """Return parts one after another, each made safe."""
    return Markup(escape(between)).join(safe(part) for part in parts)


def table(
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: object = "",
) -> Markup:
    """Return a plain table; cells are made safe, columns of numbers right-aligned.

    Args:
        header: the columns' names; no line of names where there are none.
        rows: each as long as the header; a row's first cell is its heading.
        caption: what the table shows, for everybody and for screen readers.
    """
    body = [list(row) for row in rows]
    columns: Iterable[Sequence[object]] = zip(*body, strict=True)
    if not body:
        # Without rows the heads are texts.
        columns = [()] * len(header)
    column_styles = [_column_style(column) for column in columns]

    def line(
        cells: Iterable[object],
        css: str,
        scopes: Iterable[str | None],
    ) -> Markup:
        parts: list[Markup] = []
        for content, style, scope in zip(cells, column_styles, scopes, strict=False):
            tag = "th" if scope else "td"
            parts.append(
                styled(
                    content,
                    css.format(style),
                    tag=tag,
                    scope=scope,
                )
            )
        return styled(join(parts), tag="tr")

    parts: list[Markup] = []
    if caption:
        caption_css = "text-align:left;font-weight:600;padding:4px 0"
        parts.append(
            styled(
                caption,
                caption_css,
                tag="caption",
            )
        )
    if header:
        heads = line(header, _CELL, repeat("col"))
        parts.append(styled(heads, tag="thead"))
    # A screen reader says a row's first cell before each of the others.
    lines = [line(row, _LINED, chain(["row"], repeat(None))) for row in body]
    parts.append(styled(join(lines), tag="tbody"))
    return styled(
        join(parts),
        _TABLE,
        tag="table",
    )


def _column_style(cells: Iterable[object]) -> str:
    """Return the style of a column: numbers stand on the right."""
    texts = [text for text in map(str, cells) if text not in _NO_NUMBER]
    if texts and all(map(_A_NUMBER.fullmatch, texts)):
        return NUMBERS
    # JupyterLab takes "start" out of a notebook that is not trusted, and aligns on the right.
    return "text-align:left"


_WIDE = Markup(
    '<div class="wide" style="overflow-x:auto" tabindex="0" role="group" aria-label="{}">{}</div>'
)
"""A keyboard reaches what scrolls."""


def scrolling(view: Markup, name: str) -> Markup:
    """Return a wide table in a part that scrolls by itself, so that the page does not.

    Args:
        view: the table.
        name: of the part, for those who hear the page.
    """
    return _WIDE.format(clip(name, 80), view)


def pairs(
    items: Iterable[tuple[object, object]],
    *,
    caption: object = "",
) -> Markup:
    """Return names and what they hold as a table of two columns."""
    return table((), items, caption=caption)


def badge(status: str) -> Markup:
    """Return a status of ``STATUS_COLOURS`` as a small coloured label; the word says it too."""
    css = f"background:{STATUS_COLOURS[status]};color:#fff;border-radius:3px;padding:0 6px"
    return styled(status, css, tag="span")


def details(
    summary: object,
    body: object,
    *,
    open: bool = False,  # noqa: A002 - HTML's
) -> Markup:
    """Return something that unfolds under a line.

    Args:
        summary: the line.
        body: what is below it.
        open: whether it starts unfolded.
    """
    return Markup("<details{}>{}{}</details>").format(
        Markup(" open") if open else "", styled(summary, tag="summary"), safe(body)
    )


def fields_html(value: BaseModel) -> Markup:
    """Return a model's fields as a table; without those that its repr leaves out."""
    fields = type(value).model_fields
    shown = [(name, cell(content)) for name, content in value if fields[name].repr]
    return pairs(shown, caption=type(value).__name__)


def cell(value: object) -> Markup:
    """Return a value as what stands in a table's cell."""
    if value is None or isinstance(value, bool):
        return safe({None: "none", True: "yes", False: "no"}[value])
    if isinstance(value, float):
        return safe(f"{value:g}")
    return safe(value)
