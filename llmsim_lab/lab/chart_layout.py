"""The parts of a ``RateChart`` and how they lie on the page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import ipywidgets as w

from llmsim_lab.lab.inputs import dropdown, row
from llmsim_lab.lab.widget import button
from llmsim_lab.runs._turn import Series

__all__ = ["ChartControls", "ExportRow", "TablePart"]

_MOST_BOXES = 7


class ChartControls:
    """What is charted, to choose from.

    Args:
        series: what can be charted.
        main: the large panel's column.
        panels: the small panels' columns.
        changed: called when something else is chosen.
        references: which of ``rule`` and ``history`` there can be for these runs.

    Attributes:
        main: a list of all columns.
        panels: a box for each of the first columns.
        rule, history: boxes for the references.
        update: a button that reads the runs again.
    """

    def __init__(
        self,
        series: Sequence[Series],
        *,
        main: str,
        panels: Collection[str],
        changed: Callable[[object], object],
        references: Collection[str] = ("rule", "history"),
    ) -> None:
        self.main = dropdown("Main chart", width="26em")
        self.main.options = [(str(item), item.column) for item in series]
        self.main.value = main
        offered = [
            item
            for place, item in enumerate(series)
            if place < _MOST_BOXES or item.column in panels
        ]
        self.panels = {
            item.column: _box(item.label, value=item.column in panels) for item in offered
        }
        self.rule = _box("Taylor rule", value=True)
        self.history = _box("History", value=True)
        for name, box in (("rule", self.rule), ("history", self.history)):
            box.layout.display = "" if name in references else "none"
        self.update = button("Update", tooltip="Read the runs again and draw them")
        for part in (self.main, *self.panels.values(), self.rule, self.history):
            part.observe(changed, names="value")

    def rows(self) -> tuple[w.Widget, ...]:
        """Return the parts in rows."""
        label = w.Label("Small charts:")
        return (
            row(self.main, self.rule, self.history, self.update, gap="4px 16px"),
            row(label, *self.panels.values(), gap="0 16px"),
        )


def _box(label: str, *, value: bool) -> w.Checkbox:
    return w.Checkbox(value=value, description=label, indent=False, layout=w.Layout(width="auto"))


class ExportRow:
    """Buttons that make a file, and the link to take it.

    Args:
        wanted: called with the kind of file.

    Attributes:
        png, svg, csv: the buttons.
        link: to the file made last.
    """

    def __init__(self, wanted: Callable[[str], object]) -> None:
        self.png = button("PNG", tooltip="Make a picture of the chart to download")
        self.svg = button("SVG", tooltip="Make a drawing of the chart to download, for papers")
        self.csv = button("CSV", tooltip="Make a table of the runs' values to download")
        self.link = w.HTML()
        self.png.on_click(lambda _: wanted("png"))
        self.svg.on_click(lambda _: wanted("svg"))
        self.csv.on_click(lambda _: wanted("csv"))

    @property
    def buttons(self) -> tuple[w.Button, ...]:
        """All three."""
        return (self.png, self.svg, self.csv)


class TablePart:
    """The runs' values as a table, hidden at first, a page at a time.

    Args:
        changed: called when another page, or the table at all, is asked for.
        page: turns on a page.

    Attributes:
        toggle: shows and hides it.
        earlier, later: turn the pages.
        html: the table.
        back: how many turns before the latest the page ends.
        page: turns on a page.
    """

    def __init__(self, changed: Callable[[], object], *, page: int) -> None:
        self._changed = changed
        self.page = page
        self.back = 0
        self.toggle = button("Show table", tooltip="Show the runs' values turn by turn")
        self.earlier = button("Earlier turns", tooltip="Show the turns before these")
        self.later = button("Later turns", tooltip="Show the turns after these")
        self.html = w.HTML()
        self.html.layout.overflow = "auto"
        self.box = w.VBox([row(self.earlier, self.later), self.html])
        self.box.layout.display = "none"
        self.toggle.on_click(self._on_toggle)
        self.earlier.on_click(lambda _: self._turn_page(self.page))
        self.later.on_click(lambda _: self._turn_page(-self.page))

    @property
    def open(self) -> bool:
        """Whether it is shown."""
        return bool(self.box.layout.display != "none")

    def _on_toggle(self, _: object) -> None:
        self.box.layout.display = "none" if self.open else ""
        self.toggle.description = "Hide table" if self.open else "Show table"
        self._changed()

    def _turn_page(self, turns: int) -> None:
        self.back = max(0, self.back + turns)
        self._changed()

    def show(self, html: object, *, turns: int) -> None:
        """Show a page.

        Args:
            html: the table.
            turns: how many turns there are in all, besides the first.
        """
        self.html.value = str(html)
        self.earlier.disabled = self.back + self.page > turns
        self.later.disabled = self.back == 0
