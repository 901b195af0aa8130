"""The window as a notebook's widget, and what of it stays in a saved notebook.

No trait carries data, so that a saved notebook holds none. What stays there is the static view.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import traitlets as t
from anywidget import AnyWidget
from markupsafe import Markup

from llmsim_lab._util.copies import Sole
from llmsim_lab._util.drawing import load_matplotlib
from llmsim_lab._util.html import details, join, pre, visible
from llmsim_lab._util.waiting import background_loop
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import _static
from llmsim_lab.lab._charted_runs import charted, lines_of
from llmsim_lab.lab._picture import Picture
from llmsim_lab.lab._saved_view import SavedView
from llmsim_lab.lab._shown_runs import FrameRun, ShownRun, turn_of
from llmsim_lab.lab.window import LiveWindow, Message, Source
from llmsim_lab.llm import LLMClient
from llmsim_lab.run import Run
from llmsim_lab.run.charts import networks_of
from llmsim_lab.run.page import module
from llmsim_lab.run.recorded import RoomForRuns
from llmsim_lab.run.turn import Turn
from llmsim_lab.tape import RunInfo

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_PACK_FROM = 20_000
"""The size from which a message is compressed, in bytes."""
_PICTURED = {"overview", "seat"}
"""The views with charts, of which a picture stays in the notebook."""
MOST_DRAWN = 40
"""The most runs in the static picture; the latest are drawn."""
_SAVE_S = 0.5
"""How long after a change the static view is written."""


class Lab(Sole, LiveWindow, AnyWidget):
    """Play a run, look at any turn, its charts, decisions and prompts, change it and fork it.

    A turn that fails, or is stopped, changes nothing: the run stays at its last whole turn. The
    arrow keys go from turn to turn, Space plays and pauses, Enter plays one turn.

    Args:
        source: a simulation; or a tape or its file, whose runs are shown.
        run: for a tape, the number of the run to show first; the latest if not given.
        llm_client: the model for forks and restarts of recorded runs, which have none of their own.

    Attributes:
        runs: the runs of the window, by their numbers here.
        shown: the numbers of the run that is shown and of its turn.

    Example:
        ``await lab.play(3)`` does from a cell what the button does.
    """

    no_copy = (
        "a window of a notebook cannot be copied or pickled: it belongs to one page. Make another "
        "one of the same run, such as Lab(run), or keep the run's tape"
    )
    # As text: for a path, anywidget has a watcher whose callback would keep each widget for ever.
    _esm = module()
    panels: t.List[str] = t.List(t.Unicode()).tag(sync=True)
    first: t.Dict[str, Any] = t.Dict().tag(sync=True)
    # A class attribute, since ``__del__`` calls close even if __init__ raised.
    _saved: SavedView | None = None

    def __init__(
        self,
        source: Source,
        *,
        run: int | None = None,
        llm_client: LLMClient | None = None,
    ) -> None:
        self._timers: set[str] = set()
        LiveWindow.__init__(
            self,
            source,
            run=run,
            llm_client=llm_client,
        )
        AnyWidget.__init__(self, panels=[*self.parts])
        self.on_msg(self._receive)

    # --- the page -----------------------------------------------------------------------------

    def _loop_to_play_on(self) -> asyncio.AbstractEventLoop:
        """Return the loop of a notebook's cells, which play turns too; elsewhere an own loop."""
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return background_loop()

    def _receive(
        self,
        _: object,
        message: object,
        __: object,
    ) -> None:
        self.receive(message)

    def _later(
        self,
        act: Callable[[], None],
        wait_s: float,
    ) -> None:
        """Do something soon, once for all calls until then."""
        if wait_s <= 0:
            act()
            return
        with self._lock:
            # Found by name, since each access to a method makes a new object.
            if act.__name__ in self._timers:
                return
            self._timers.add(act.__name__)

        def do() -> None:
            self._timers.discard(act.__name__)
            act()

        # On a thread, since a cell that plays turns may keep the loop busy.
        timer = threading.Timer(wait_s, do)
        timer.daemon = True
        timer.start()

    def _say(self, message: Message) -> None:
        text = json.dumps(
            message,
            ensure_ascii=False,
            separators=(",", ":"),
        )
        packed = text.encode(errors="replace")  # a model may write half a character
        if len(packed) < _PACK_FROM:
            self.send(message)
        else:
            self.send(
                {"packed": True},
                buffers=[gzip.compress(packed, 6)],
            )

    def _add_frame(self, frame: pd.DataFrame, name: str) -> int:
        """Show the rows of a frame as a run; returns its number here."""
        run = FrameRun.of(frame)
        number = self._number_for(run)
        info = RunInfo(
            id=number,
            name=name,
            verb="run",
            manifest={},
            started="",
            turns=run.last_planned,
            calls=0,
        )
        self._keep(number, run, info)
        self._look(number)
        return number

    # --- what stays ---------------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the window's content as plain text, the same for the same run."""
        lines = [f"{type(self).__name__} of {self.reading.title}".removesuffix(" of ")]
        drawn = self._picture()
        if drawn is not None:
            lines.append(drawn.words())
        run, turn = self._run_and_turn()
        if "turn" in self.panels:
            lines.append(_static.turn_text(run, turn))
        elif "calls" in self.panels:
            calls = _static.latest_call(run, turn)
            lines += map(_static.call_text, calls)
        lines += _static.runs_text(self.reading)
        return visible("\n".join(lines))

    def static_html(self) -> Markup:
        """Return the window's content as simple HTML: a table of the turn, the rest folded."""
        parts: list[Markup] = []
        run, turn = self._run_and_turn()
        if "turn" in self.panels:
            parts.append(_static.turn_html(run, turn))
        elif "calls" in self.panels:
            calls = _static.latest_call(run, turn)
            parts += map(_static.call_html, calls)
        drawn = self._picture()
        if drawn is not None:
            # For screen readers, and for pages that leave pictures out.
            words = pre(drawn.words())
            parts.append(details("The picture in words", words))
        parts += _static.runs_html(self.reading)
        return join(parts)

    def static_picture(self) -> Figure | None:
        """Return the window's content as a figure; None if it holds no numbers."""
        drawn = self._picture()
        return None if drawn is None else drawn.figure()

    def _picture(self) -> Picture | None:
        if not _PICTURED.intersection(self.panels):
            return None
        by_name: dict[str, Run] = {}
        numbers = self._with_room(self._drawn_runs())
        for number in numbers:
            run = self.runs[number]
            if isinstance(run, Run):
                by_name[_static.run_words(self.reading, number)] = run
        if not any(len(run.turns) > 1 for run in by_name.values()):
            return None  # a single turn has values, but no line to draw
        shown = self.runs[self.shown[0]]
        networks = networks_of(shown, shown.turns[-1])
        with suppress(ConfigError):
            lines = lines_of(by_name)
            return Picture(
                lines=lines,
                charts=charted(lines),
                title=self._infos[numbers[0]].name,
                network=networks[0] if networks else None,
                network_turn=shown.turns[-1].number,
            )
        return None

    def _drawn_runs(self) -> list[int]:
        """Return the runs in the static picture: the family of the run that is shown."""
        run, _ = self.shown
        family = _static.family(self.reading, run)
        return family[-MOST_DRAWN:]  # the latest runs of a large family, since people look at those

    def _with_room(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the latest of some runs: as many as can be made with their classes at once."""
        if self._tape is None:
            return numbers
        room = RoomForRuns(self._tape)
        made = [number for number in reversed(numbers) if room.take(self._infos[number])]
        made.reverse()
        return made

    def _run_and_turn(self) -> tuple[ShownRun, Turn]:
        number, at = self.shown
        run = self.runs[number]
        return run, turn_of(run, at)

    def _ipython_display_(self) -> None:
        """Display the window, and below it the picture and the text that the notebook keeps."""
        # Displayed again: picture and text follow to the new place, and stay in the old one.
        if self._saved is not None:
            self._saved.close()
        if _PICTURED.intersection(self.panels):
            load_matplotlib()  # a run without turns has no picture yet, but will soon
        self._saved = SavedView(self)
        self._saved.display()

    @property
    def revision(self) -> object:
        """What the static view depends on: if it is equal, the view is."""
        return len(self.reading.records), self.first

    def _save_soon(self) -> None:
        """Write the static view into the notebook soon; after a rest, if writing takes long."""
        if self._saved is not None:
            wait_s = max(_SAVE_S, self._saved.rests_until - time.monotonic())
            self._later(self._saved.update, wait_s)

    def close(self) -> None:
        """Remove the window from the page, and stop what is under way."""
        for stop in self._stop_listening:
            stop()
        self.stop()
        if self._saved is not None:
            self._saved.close()
        if self.comm is not None:
            self.layout.close()  # a widget of its own, which ipywidgets would keep
        super().close()
