"""What all windows share: a live view and a static one; nothing stays once it is closed."""

from __future__ import annotations

from ipywidgets import DOMWidget
from ipywidgets.widgets.widget import _instances
from widget_kit import every_widget

from llmsim_lab import lab


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
