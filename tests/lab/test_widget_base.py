"""What all windows share: a live view and a static one; nothing stays once it is closed."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter
from ipywidgets import DOMWidget
from ipywidgets.widgets.widget import _instances
from markupsafe import Markup
from widget_kit import every_widget
from worlds import PublicGoods

from llmsim_lab import lab
from llmsim_lab._util.html import pre
from llmsim_lab.lab import _static as static_module


class Counter(lab.Lab):
    """A window whose static view is a number."""

    def __init__(self) -> None:
        super().__init__(PublicGoods(players="random"))
        self.count = 0

    def static_text(self) -> str:
        return f"Counter at {self.count} <b>"

    def static_html(self) -> Markup:
        return pre(self.static_text())


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a widget puts below its cell."""
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(static_module, "display", lambda bundle, **_: shown.append(bundle))
    return shown


async def test_a_widget_and_its_static_view_are_two_outputs_and_a_terminal_prints_one(
    outputs: list[dict[str, Any]],
) -> None:
    counter = Counter()
    assert DisplayFormatter().format(counter) == ({}, {})
    live, static = outputs
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == counter.model_id
    assert "text/plain" not in live
    assert set(static) == {"text/plain", "text/html"}
    assert static["text/plain"] == "Counter at 0 <b>"
    assert "Counter at 0 &lt;b&gt;" in static["text/html"]


async def test_of_a_closed_widget_the_static_view_is_shown_and_hides_nothing(
    outputs: list[dict[str, Any]],
) -> None:
    counter = Counter()
    counter.count = 7
    counter.close()
    DisplayFormatter().format(counter)
    [static] = outputs
    assert static["text/plain"] == "Counter at 7 <b>"
    assert static["text/html"] == str(counter.static_html())


async def test_closing_a_widget_leaves_nothing_of_it_open() -> None:
    before = set(_instances)
    widgets = await every_widget()
    assert set(widgets) == {
        name
        for name in lab.__all__
        if isinstance(found := getattr(lab, name), type) and issubclass(found, DOMWidget)
    }
    for widget in widgets.values():
        widget.close()
    left = [part for key, part in _instances.items() if key not in before]
    assert [type(part).__name__ for part in left] == []
