"""What all widgets share: one piece of work at a time, errors in place, a static view."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter
from ipywidgets import DOMWidget
from ipywidgets.widgets.widget import _instances
from widget_kit import every_widget

from llmsim_lab import lab
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import _static as static_module
from llmsim_lab.lab._widget import LabWidget, button


class Counter(LabWidget):
    """A widget that counts, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.fail: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.go = button("Go", tooltip="Count one more")
        self.halt = button("Stop", tooltip="Stop counting")
        self.go.on_click(lambda _: self.start(self.work))
        self.halt.on_click(lambda _: self.worker.stop())
        self.controls, self.stoppers = (self.go,), (self.halt,)

    async def work(self) -> None:
        await self.gate.wait()
        if self.fail:
            raise self.fail
        self.count += 1
        self.say(f"<{self.count}>")

    def static_text(self) -> str:
        return f"Counter at {self.count} <b>"


async def test_a_click_does_the_work_and_says_so() -> None:
    widget = Counter()
    widget.go.click()
    await widget.idle()
    assert widget.count == 1
    assert widget.status.value == '<div role="status" aria-live="polite">&lt;1&gt;</div>'


async def test_a_second_click_during_work_does_nothing() -> None:
    widget = Counter()
    widget.gate.clear()
    for _ in range(3):
        widget.go.click()
    assert widget.go.disabled
    assert not widget.halt.disabled
    widget.gate.set()
    await widget.idle()
    assert widget.count == 1
    assert not widget.go.disabled
    assert widget.halt.disabled


async def test_many_threads_may_click_at_once() -> None:
    widget = Counter()
    widget.gate.clear()
    threads = [threading.Thread(target=widget.go.click) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    widget.gate.set()
    await widget.idle()
    assert widget.count == 1


async def test_a_failure_is_shown_in_place_and_can_be_tried_again() -> None:
    widget = Counter()
    widget.fail = ConfigError("turns=<5> is wrong")
    widget.go.click()
    await widget.idle()
    assert 'role="alert"' in widget.error.value
    assert "ConfigError</strong>: turns=&lt;5&gt; is wrong" in widget.error.value
    assert widget.retry.layout.display == ""
    widget.fail = None
    widget.retry.click()
    await widget.idle()
    assert widget.count == 1
    assert widget.error.value == ""
    assert widget.retry.layout.display == "none"


async def test_an_unforeseen_failure_shows_where_it_happened() -> None:
    widget = Counter()
    widget.fail = KeyError("nations")
    widget.go.click()
    await widget.idle()
    assert "Where it happened" in widget.error.value
    assert "test_widget_base.py" in widget.error.value


async def test_work_can_be_stopped_and_begun_again() -> None:
    widget = Counter()
    widget.gate.clear()
    widget.go.click()
    await asyncio.sleep(0)
    widget.halt.click()
    await widget.idle()
    assert widget.count == 0
    assert "Stopped." in widget.status.value
    assert widget.error.value == ""
    widget.gate.set()
    widget.go.click()
    await widget.idle()
    assert widget.count == 1


async def test_a_stop_before_the_work_has_begun_stops_it_too() -> None:
    widget = Counter()
    widget.go.click()
    widget.halt.click()
    await widget.idle()
    assert widget.count == 0
    assert not widget.worker.busy


def test_a_widget_made_in_plain_code_works_in_the_background() -> None:
    widget = Counter()
    widget.go.click()
    asyncio.run(widget.idle())
    assert widget.count == 1


def test_a_widget_outliving_its_loop_says_so_and_stays_usable() -> None:
    async def make() -> Counter:
        return Counter()

    widget = asyncio.run(make())
    with pytest.raises(ConfigError, match=r"event loop .* is closed; make it again"):
        widget.start(widget.work)
    assert not widget.worker.busy
    widget.worker.stop()
    widget.worker.call(print)


async def test_a_saved_notebook_keeps_text_and_html() -> None:
    bundle = Counter()._repr_mimebundle_()
    assert bundle["text/plain"] == "Counter at 0 <b>"
    assert "Counter at 0 &lt;b&gt;" in bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle


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
