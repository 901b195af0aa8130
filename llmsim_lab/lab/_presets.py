"""Windows with fewer parts: turns, prompts, a tree of runs, charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import figure_bytes
from llmsim_lab._util.files import as_path, write_file
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._charted_runs import charted, lines_of, runs_in
from llmsim_lab.lab._lab import MOST_DRAWN, Lab
from llmsim_lab.lab._picture import Picture
from llmsim_lab.run import Run
from llmsim_lab.run.reading import RecordedRun
from llmsim_lab.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TurnStepper(Lab):
    """Plays a run turn by turn, and shows each turn: its state, the decisions and the reasons."""

    parts = ("head", "transport", "turn")


class PromptViewer(Lab):
    """Shows a run's prompts by slot beside their replies, and searches them."""

    parts = ("head", "calls")


class RunTree(Lab):
    """Shows a tape's runs with their changes; ``tape.tree()`` returns the same as text."""

    parts = ("head", "overview", "compare")

    def _drawn_runs(self) -> list[int]:
        return [*self.runs][-MOST_DRAWN:]


class RateChart(Lab):
    """A chart of runs that follows them while they are played; ``save`` writes it for papers.

    Args:
        runs: simulations, tapes or their files, frames as ``to_frame()`` returns them, or mappings
            from names to any of these.
        columns: the columns to draw, the first one large; if not given, the first four of the runs.
        title: the title above the chart.
    """

    parts = ("overview",)

    def __init__(
        self,
        *runs: object,
        columns: Sequence[str] | None = None,
        title: str = "",
    ) -> None:
        self._given = runs
        self._title = title
        self._charts = charted(lines_of(*runs, read=self._read_run), columns)
        super().__init__(runs)  # type: ignore[arg-type]
        self.reading.title = title

    def _open(self, source: Any, run: int | None) -> int:
        for runs in source:
            # Runs keep the numbers of their tape, so only the first tape may be shown as a whole.
            if isinstance(runs, Tape | str | Path) and not self.runs:
                super()._open(runs, run)
                continue
            for name, run_or_frame in runs_in(runs):
                if isinstance(run_or_frame, Run | RecordedRun):
                    self._add(run_or_frame, name=name)
                else:
                    self._add_frame(run_or_frame, name or "run")
        first, *_ = self.runs
        return first

    @property
    def figure(self) -> Figure:
        """The chart as a matplotlib figure."""
        return self._picture().figure()

    def _picture(self) -> Picture:
        return Picture(
            lines=lines_of(*self._given, read=self._read_run),
            charts=self._charts,
            title=self._title,
        )

    def save(self, path: str | Path) -> Path:
        """Write the chart and return the path.

        Args:
            path: a file that ends in ``.png``, ``.svg`` or ``.pdf``; an existing one is replaced.

        Raises:
            ConfigError: the file has another ending, or cannot be written.
        """
        path = as_path("path", path)
        kind: Any = path.suffix[1:].lower()
        if kind not in ("png", "svg", "pdf"):
            raise ConfigError(f"{path.name!r} must end in .png, .svg or .pdf")
        return write_file(path, figure_bytes(self.figure, kind))
