"""Boxes that a widget fills itself, without taking that for a choice of the user's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ipywidgets as w

from llmsim_lab.errors import LabError
from llmsim_lab.markup import visible
from llmsim_lab.text import clip

__all__ = ["Choices", "checkbox", "status_choices", "text_box"]

_MOST_LABEL_CHARS = 160


class Choices:
    """Tells a user's choices from values that the widget sets.

    Args:
        lock: held while a choice is reacted to; choices come on threads of their own.
        show_error: called with what went wrong, or with None where nothing did.
    """

    def __init__(
        self, lock: threading.RLock, *, show_error: Callable[[LabError | None], object]
    ) -> None:
        self._lock = lock
        self._show_error = show_error
        self._here = threading.local()

    def on_choice(self, box: w.DOMWidget, react: Callable[[], object]) -> None:
        """Have something done when the user changes a box."""

        def heard(_: object) -> None:
            if not getattr(self._here, "filling", False):
                self._react(react)

        box.observe(heard, names="value")

    def on_click(self, button: w.Button, react: Callable[[], object]) -> None:
        """Have something done when the user presses a button."""
        button.on_click(lambda _: self._react(react))

    def _react(self, react: Callable[[], object]) -> None:
        with self._lock:
            try:
                react()
            except LabError as error:
                self._show_error(error)
            else:
                self._show_error(None)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        before = getattr(self._here, "filling", False)
        self._here.filling = True
        try:
            yield
        finally:
            self._here.filling = before

    def set(self, box: w.DOMWidget, value: object) -> None:
        """Set a box's value."""
        with self._quietly():
            box.value = value

    def number(self, box: w.BoundedIntText, value: int, *, least: int, most: int) -> None:
        """Set a number box's value and limits."""
        with self._quietly(), box.hold_trait_notifications():
            box.max, box.min, box.value = most, least, value

    def options(
        self, box: w.Dropdown, choices: Sequence[tuple[str, Any]], value: object = None
    ) -> None:
        """Set what a list offers, and its choice: the value where it is offered, else the first.

        Args:
            box: the list.
            choices: what is shown and what it stands for.
            value: what is to be chosen.
        """
        shown = tuple(
            (clip(visible(label), _MOST_LABEL_CHARS) or "(nameless)", choice)
            for label, choice in choices
        )
        values = [choice for _, choice in shown]
        with self._quietly():
            if shown != tuple(box.options):
                box.options = shown
            if shown:
                box.value = value if value in values else values[0]


def text_box(label: str, *, placeholder: str = "") -> w.Text:
    """Return a box for a text, which is heard when it is left or Enter is pressed."""
    return w.Text(
        description=label,
        placeholder=placeholder,
        continuous_update=False,
        style={"description_width": "initial"},
        layout=w.Layout(width="22em", max_width="100%"),
    )


def checkbox(label: str) -> w.Checkbox:
    """Return a box to tick, no wider than it needs to be."""
    return w.Checkbox(description=label, indent=False, layout=w.Layout(width="auto"))


def status_choices(*more: str) -> list[tuple[str, str]]:
    """Return what a filter by status offers: all, each status, and others."""
    return [
        ("all", ""),
        *((name, name) for name in ("ok", "repaired", "fallback", "failed", *more)),
    ]
