"""Texts in widgets: for reading, compared word by word, to copy; all without any script."""

from __future__ import annotations

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab.markup import join, safe, visible
from llmsim_lab.prompts import PromptDiff

__all__ = ["CopyBoxes", "block", "copyable", "prose", "sideways", "word_diff"]

_MOST_COMPARED_CHARS = 4_000
_MOST_COPIED_CHARS = 500_000


def block(*parts: object) -> Markup:
    """Return parts as one block with lines of a page's height; long words in tables wrap."""
    return Markup('<div style="line-height:1.4;overflow-wrap:anywhere">{}</div>').format(
        join(parts)
    )


def sideways(content: object, *, name: str, least: str = "0") -> Markup:
    """Return something that, where the page is too narrow for it, has a bar of its own.

    Args:
        content: such as a table or a picture.
        name: what it is, for screen readers; who uses the keyboard moves it by its arrows.
        least: how narrow it may become, as CSS has it.
    """
    # Words break only where they are longer than a line, so that columns stay readable. Without
    # a width of 0, what is in it would widen the whole widget.
    return Markup(
        '<div tabindex="0" role="region" aria-label="{}" '
        'style="width:0;min-width:100%;overflow-x:auto">'
        '<div style="line-height:1.4;overflow-wrap:break-word;min-width:{}">{}</div></div>'
    ).format(name, least, safe(content))


def copyable(text: str) -> str:
    """Return a text as it may be pasted anywhere; a last line says what differs, if anything does.

    Args:
        text: hidden characters, which a terminal might obey, are written out.
    """
    whole = text[:_MOST_COPIED_CHARS]
    shown = visible(whole)
    notes = []
    if shown != whole.replace("\r\n", "\n"):
        notes.append("hidden characters are written out")
    if len(text) > len(whole):
        notes.append(f"{len(text) - len(whole):,} characters are left out")
    return f"{shown}\n[{'; '.join(notes)}]" if notes else shown


def prose(text: object, *, limit: int = 20_000) -> Markup:
    """Return a text for reading: its lines are kept, its letters are those of the page.

    Args:
        text: anything.
        limit: the most characters shown.
    """
    return Markup(
        '<div dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere">{}</div>'
    ).format(safe(text, limit=limit))


def word_diff(before: str, after: str, *, limit: int = _MOST_COMPARED_CHARS) -> Markup:
    """Return what changed from one text to another, word by word; a line where nothing did.

    Args:
        before: the one.
        after: the other.
        limit: how much of each is compared, characters, since the time grows with its square; a
            note says so.
    """
    if before == after:
        return safe("no change")
    parts = [Markup(PromptDiff(before[:limit], after[:limit])._repr_html_())]
    if max(len(before), len(after)) > limit:
        parts.append(safe(f"Only the first {limit:,} characters were compared."))
    return join(parts)


class CopyBoxes(w.VBox):
    """Texts in boxes to copy them from, which needs no script: click, Ctrl+A, Ctrl+C.

    JupyterLab takes text areas out of HTML; a widget's is left alone.

    Args:
        labels: a box each.

    Attributes:
        boxes: by label.
    """

    def __init__(self, *labels: str) -> None:
        how = w.HTML("Click into a text, press Ctrl+A, then Ctrl+C (on a Mac: Cmd).")
        layout = w.Layout(width="auto")
        self.boxes = {
            label: w.Textarea(description=label, rows=8, layout=layout) for label in labels
        }
        super().__init__((how, *self.boxes.values()), layout=w.Layout(display="none"))

    @property
    def shown(self) -> bool:
        """Whether the boxes are there."""
        return bool(self.layout.display != "none")

    def show(self, *texts: str) -> None:
        """Show a text in each box, or, without any, take the boxes away."""
        for box, text in zip(self.boxes.values(), texts, strict=False):
            box.value = copyable(text)
        self.layout.display = "" if texts else "none"
