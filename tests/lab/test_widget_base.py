"""What all windows share: a live view and a static one; nothing stays once it is closed."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter
from ipywidgets import DOMWidget
from ipywidgets.widgets.widget import _instances
from widget_kit import every_widget
from worlds import PublicGoods

from llmsim_lab import lab
from llmsim_lab.lab import _saved_view


def test_a_widget_its_picture_and_its_text_are_outputs_and_of_a_closed_one_the_last_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(_saved_view, "display", lambda bundle, **_: shown.append(bundle))
    run = PublicGoods(players="random")
    run.run(1, progress=False)
    window = lab.Lab(run)
    assert DisplayFormatter().format(window) == ({}, {})
    live, picture, text = shown
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == window.model_id
    assert "text/plain" not in live
    assert b64decode(picture["image/png"]).startswith(b"\x89PNG")
    assert set(text) == {"text/plain", "text/html"}
    window.close()
    DisplayFormatter().format(window)
    assert shown[3:] == [picture, text]


def test_a_window_keeps_the_place_of_a_picture_that_comes_with_the_first_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(_saved_view, "display", lambda bundle, **_: shown.append(bundle))
    DisplayFormatter().format(lab.Lab(PublicGoods(players="random")))
    assert shown[1] == {"text/html": ""}


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
