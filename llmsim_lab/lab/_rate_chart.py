"""Runs as a chart in a notebook, which follows them as they are played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.drawing import figure_bytes, small_png
from llmsim_lab._util.files import write_file
from llmsim_lab._util.tables import csv_text
from llmsim_lab.economy import TaylorRule
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._html import sideways
from llmsim_lab.lab._widget import (
    Choices,
    LabWidget,
    Pace,
    button,
    checkbox,
    labelled,
    number_box,
    row,
)
from llmsim_lab.lab.charts._drawing import draw
from llmsim_lab.lab.charts._export import (
    FileKind,
    alt_text,
    data_frame,
    data_table,
    download_link,
    file_kind,
    image_html,
    notes_html,
    summary_html,
    summary_text,
)
from llmsim_lab.lab.charts._scene import Scene, check_choices, compose
from llmsim_lab.lab.charts._tracks import chartable, read_runs, run_numbers, tracks_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


_MOST_BOXES = 7
_PAGE = 10
"""Turns on a page of the table."""
_FILES: dict[FileKind, str] = {
    "png": "Make a picture of the chart to download",
    "svg": "Make a drawing of the chart to download, for papers",
    "csv": "Make a table of the runs' values to download",
}


class TablePart(w.VBox):
    """The runs' values as a table, hidden at first, the latest turns on the first page.

    Args:
        changed: called when another page, or the table at all, is asked for.

    Attributes:
        toggle: shows and hides it.
        page_box: which ten turns are shown.
        html: the table.
    """

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._choices = Choices()
        self.toggle = button("Show table", "Show the runs' values turn by turn", self._on_toggle)
        box = number_box("Page (1 is the latest)", value=1, least=1, most=1)
        self.page_box = self._choices.on_choice(box, changed)
        self.html = w.HTML()
        super().__init__([self.page_box, self.html], layout=w.Layout(display="none"))

    def _on_toggle(self) -> None:
        hidden = self.layout.display == "none"
        self.layout.display = "" if hidden else "none"
        self.toggle.description = "Hide table" if hidden else "Show table"
        self._changed()

    def draw(self, scene: Scene) -> None:
        """Show a scene's page as it is now, if the table is shown."""
        if self.layout.display != "none":
            first, last = scene.turns
            shown = self._choices.page(self.page_box, last - first + 1, _PAGE)
            html = data_table(scene, last=last - shown.start, turns=_PAGE)
            self.html.value = str(sideways(html, name="Table of values"))


_PANELS = 3


class RateChart(LabWidget):
    """A chart of runs: one column large, such as the interest rate, others in small panels below.

    It is drawn when it is first shown, and follows runs that are played, in whichever cell or
    widget, without drawing every turn. Its axis of turns goes to the last that is planned. Turns
    that a fork shares with its parent are drawn once; where it leaves is marked, and so is what was
    done from outside. For other simulations than the economic one the columns are those its
    ``series`` names. What a run's ``prediction`` says is a dashed line.

    Args:
        runs: simulations; tapes or their files; frames as ``to_frame()`` gives them; a list of
            these as an ensemble, drawn as a fan; mappings from names to any of them.
        names: for the legend, in the runs' order, a tape's runs one by one.
        run: of tapes, only the run of this number, or of these numbers; all if not given.
        main: the large panel's column; the first that the runs name if not given.
        panels: the small panels' columns; the next three if not given.
        history: what really happened, from the runs' first quarter on; a frame instead of US data.
        rule: the Taylor rule's answer, on the first run's data; a name says on which run's, a rule
            which one.
        title: above the chart.

    Attributes:
        main_box, panel_boxes: what is charted large; a box for each of the first columns.
        rule_box, history_box: the references.
        update_button: reads the runs again.
        picture: the chart.
        export: buttons for files, by their kind.
        link: to the file made last.
        table: the values turn by turn.

    Raises:
        ConfigError: there is nothing to chart, or a name or column is wrong.
        TapeError: a tape cannot be read.

    Example:
        An ensemble over the economy's shocks, the same for each policy:

        >>> from llmsim_lab.simulation import Simulation, SimulationConfig
        >>> config = SimulationConfig(
        ...     nations=[{"name": "Rule", "kind": "taylor"}],
        ...     validator={"kind": "always_valid"},
        ...     economy={"shock_scale": 1},
        ... )
        >>> runs = [Simulation(config.with_values(seed=seed)) for seed in range(20)]
        >>> frames = [run.run(12) for run in runs]
        >>> chart = RateChart(runs, names=["rule"])
        >>> chart.save("fan.svg")  # doctest: +SKIP
    """

    # Of the class, since a choice made while the parts are laid out asks for a drawing already.
    _drawn: Scene | None = None
    _pictured: tuple[Scene | None, bytes] = (None, b"")
    _stale = True
    _displayed = _counted = False

    def __init__(
        self,
        *runs: object,
        names: Sequence[str] | None = None,
        run: int | Sequence[int] | None = None,
        main: str | None = None,
        panels: Sequence[str] | None = None,
        history: bool | pd.DataFrame = True,
        rule: bool | str | TaylorRule = True,
        title: str = "",
    ) -> None:
        super().__init__()
        check_choices(panels=panels, history=history, rule=rule, title=title)
        self._items = read_runs(runs, names=names, numbers=run_numbers(run))
        self._tracks = tracks_of(self._items)
        # First and last rows say enough: a column that only a turn between has is not charted.
        ends = [
            values
            for track in self._tracks
            for values in (track.prediction, track.rows[0], track.rows[-1])
        ]
        declared = [series for track in self._tracks for series in track.series]
        self._series = {series.column: series for series in chartable(ends, declared)}
        if not self._series:
            raise ConfigError("the runs have no column of numbers to chart besides 'turn'")
        self._title, self._history, self._rule = title, history, rule
        main = next(iter(self._series)) if main is None else self._known(main)
        others = [name for name in self._series if name != main]
        chosen = others[:_PANELS] if panels is None else [self._known(name) for name in panels]
        self._lay_out(main=main, panels=chosen)
        self._scene: Scene
        self._pace = Pace(self._redraw, self.worker.call)
        for track in self._tracks:
            if track.simulation is not None:
                self.follow(track.simulation, self._on_turn)
        # Any number but None makes the page count where the chart is shown: it is drawn only there.
        self._view_count = 0
        self.refresh()
        self.observe(self._on_shown, names="_view_count")

    def _lay_out(self, *, main: str, panels: Sequence[str]) -> None:
        dated = any(track.first_period for track in self._tracks)
        past = dated or not isinstance(self._history, bool)
        options = [(str(item), name) for name, item in self._series.items()]
        self.main_box = labelled(
            w.Dropdown, "Main chart", width="26em", options=options, value=main
        )
        self.panel_boxes = {
            name: checkbox(item.label, value=name in panels)
            for place, (name, item) in enumerate(self._series.items())
            if place < _MOST_BOXES or name in panels
        }
        self.rule_box = checkbox("Taylor rule", value=self._rule is not False)
        self.history_box = checkbox("History", value=self._history is not False)
        # Nothing to compare with for a world without rates and quarters.
        references = {self.rule_box: "interest_rate" in self._series, self.history_box: past}
        for box, there in references.items():
            box.layout.display = "" if there else "none"
        for box in (self.main_box, *self.panel_boxes.values(), *references):
            box.observe(self._on_choice, names="value")
        again = "Read the runs again and draw them"
        self.update_button = self.starter("Update", again, self._read_again)
        self.picture = w.HTML()
        self.remarks = w.HTML()
        self.chart = w.VBox([self.picture, self.remarks])
        self.export = {
            kind: self.starter(kind.upper(), made, partial(self._make_link, kind))
            for kind, made in _FILES.items()
        }
        self.link = w.HTML()
        self.table = TablePart(self._show_table)
        self.controls = (self.update_button, *self.export.values())
        self.children = (
            row(self.main_box, *references, self.update_button, gap="4px 16px"),
            row(w.Label("Small charts:"), *self.panel_boxes.values(), gap="0 16px"),
            self.chart,
            *self.messages,
            row(self.table.toggle, *self.export.values(), self.link),
            self.table,
        )

    def _known(self, column: str) -> str:
        if column not in self._series:
            raise ConfigError(
                f"the runs have no column {column!r} of numbers; they have: "
                f"{', '.join(self._series)}"
            )
        return column

    # --- what is drawn -----------------------------------------------------------------------

    @property
    def scene(self) -> Scene:
        """What the chart shows now, as values."""
        with self._view:
            self._up_to_date()
            return self._scene

    @property
    def alt(self) -> str:
        """What the picture shows, in words, with every run's latest values."""
        return alt_text(self.scene)

    def _compose(self) -> Scene:
        main = str(self.main_box.value)
        chosen = [name for name, box in self.panel_boxes.items() if box.value and name != main]
        return compose(
            self._items,
            [self._series[name] for name in (main, *chosen)],
            title=self._title,
            history=_asked(self._history, self.history_box.value),
            rule=_asked(self._rule, self.rule_box.value),
        )

    def refresh(self, *, reread: bool = False) -> None:
        """Show the runs as they are now; the picture is drawn only if it is on a page.

        Args:
            reread: True to read tapes again, too.
        """
        with self._view:
            self._stale = False
            for track in self._tracks:
                if reread or track.simulation is not None:
                    track.update()
            self._scene = self._compose()
            self.remarks.value = str(notes_html(self._scene))
            self.remarks.layout.display = "" if self.remarks.value else "none"
            self._show_table()
            self.say(f"Up to turn {self._scene.turns[1]}.")
            if self._seen:
                self._draw()

    @property
    def _seen(self) -> bool:
        """True if the picture is on a page: as the page counts, once it has counted at all."""
        return self._view_count > 0 if self._counted else self._displayed

    def _draw(self) -> None:
        with self._view:
            self._up_to_date()
            # Scenes are immutable and composed anew for each change, so identity says enough.
            if self._drawn is self._scene:
                return
            self.picture.value = str(image_html(self._png(), alt_text(self._scene)))
            self._drawn = self._scene

    def _png(self) -> bytes:
        """Return the scene as a picture."""
        if self._pictured[0] is not self._scene:
            png = figure_bytes(draw(self._scene), "png", dpi=96)
            self._pictured = self._scene, png
        return self._pictured[1]

    def _redraw(self) -> None:
        """Draw, and show errors in place, since no caller waits for it."""
        if not self._seen:
            return
        try:
            self._draw()
        except Exception as error:  # noqa: BLE001 - shown to the reader
            self._stale = True
            self.show_error(error)

    def _on_turn(self) -> None:
        # Marked at once, drawn later: whoever reads in between gets all turns.
        self._stale = True
        self._pace.ask()

    def _on_choice(self, _: object) -> None:
        self._stale = True
        self.worker.call(self._redraw)

    def _on_shown(self, change: Any) -> None:
        if change["new"]:
            self._counted = True
            self.worker.call(self._redraw)

    async def _read_again(self) -> None:
        self.refresh(reread=True)

    async def idle(self) -> None:
        """Wait until what was started by a click has ended and the chart shows all turns."""
        await super().idle()
        self._up_to_date()

    def _up_to_date(self) -> None:
        if self._stale:
            self.refresh()

    # --- the table ---------------------------------------------------------------------------

    def _show_table(self) -> None:
        self.table.draw(self._scene)

    # --- for papers --------------------------------------------------------------------------

    @property
    def figure(self) -> Figure:
        """The chart as a new matplotlib figure, the caller's to change."""
        with self._view:
            return draw(self.scene)

    @property
    def frame(self) -> pd.DataFrame:
        """The runs' values below each other, as in the CSV file; see ``export.data_frame``."""
        with self._view:
            self._up_to_date()
            return data_frame(self._items, list(self._series.values()))

    def save(self, path: str | Path) -> Path:
        """Write the chart, or with ``.csv`` its values, and return the file's path.

        The same chart gives the same bytes with the same versions of the libraries.

        Args:
            path: ends in ``.png``, ``.svg``, ``.pdf`` or ``.csv``; what is there is replaced.

        Raises:
            ConfigError: it ends in something else, or cannot be written.
        """
        path = Path(path)
        return write_file(path, self._content(file_kind(path.name)))

    def _content(self, kind: FileKind) -> bytes:
        if kind == "csv":
            return csv_text(self.frame).encode()
        return figure_bytes(self.figure, kind)

    async def _make_link(self, kind: FileKind) -> None:
        # Gone while the file is made, so that nobody takes the one before.
        self.link.value = ""
        link = download_link(self._content(kind), kind)
        upto = self._scene.turns[1]
        self.link.value = str(Markup("{}, up to turn {}").format(link, upto))

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return first and latest values, the same for the same runs."""
        with self._view:
            return summary_text(self.scene)

    def static_html(self) -> Markup:
        """Return the picture, and first and latest values as a table."""
        with self._view:
            self._draw()
            picture = image_html(small_png(self._png()), alt_text(self._scene))
            return picture + summary_html(self._scene)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        self._displayed = True
        return super()._repr_mimebundle_(**kwargs)


def _asked(given: Any, ticked: bool) -> Any:
    """Return what a reference was given as; else True where the box asks for the usual one."""
    return ticked if not ticked or given is False else given
