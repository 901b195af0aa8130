"""Labelled inputs and rows, as the lab's widgets lay them out."""

from __future__ import annotations

import ipywidgets as w

__all__ = ["dropdown", "number_box", "row"]


def number_box(label: str, *, value: int, least: int, most: int) -> w.BoundedIntText:
    """Return a box for a whole number.

    Args:
        label: what stands before it.
        value: at first.
        least: the smallest number it takes.
        most: the largest.
    """
    return w.BoundedIntText(
        value=value,
        min=least,
        max=most,
        description=label,
        style={"description_width": "initial"},
        layout=w.Layout(width="12em"),
    )


def dropdown(label: str, *, width: str = "20em") -> w.Dropdown:
    """Return a list to choose from, with one nameless entry, 0, until it is given others.

    Args:
        label: what stands before it.
        width: of label and list together.
    """
    return w.Dropdown(
        options=[("", 0)],
        description=label,
        style={"description_width": "initial"},
        layout=w.Layout(width=width, max_width="100%"),
    )


def row(*parts: w.Widget, gap: str = "4px") -> w.HBox:
    """Return widgets beside each other, on further lines where the page is narrow.

    Args:
        parts: the widgets.
        gap: between them, as CSS has it.
    """
    layout = w.Layout(flex_flow="row wrap", align_items="flex-start", grid_gap=gap)
    return w.HBox(parts, layout=layout)
