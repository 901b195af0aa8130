"""Scenes drawn with plotly, to be hovered over, zoomed and clicked while a run is played.

All panels stand above each other on one axis of turns, so that a turn is one vertical line and the
chart is as readable on a narrow page. Plotly reads some HTML in texts: all are escaped.

Plotly's own widget sends its script, 5 MB, with every figure, gives up where the page has not read
it in two seconds, and shows a reloaded page what it showed at first. So a few lines of script load
it here, once a page, and ask for the state of the moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from llmsim_lab._util.html import visible
from llmsim_lab._util.text import clip, number
from llmsim_lab.lab._run_reading import decisions_of, turn_at, turn_name
from llmsim_lab.lab.charts._drawing import thinned
from llmsim_lab.run._turn import Series

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from llmsim_lab.lab.charts._scene import Curve, Scene
    from llmsim_lab.lab.charts._tracks import Track

_SCRIPT = """
export default () => {
  let figure;
  const load = (model) => new Promise((done) => {
    const page = globalThis;
    model.on("msg:custom", async function got(said, [script]) {
      model.off("msg:custom", got);
      if (script) {
        const url = URL.createObjectURL(new Blob([script], {type: "text/javascript"}));
        page.llmsimPlotly = import(url);
      }
      const made = (await page.llmsimPlotly).default();
      made.initialize({model});
      done(made);
    });
    model.send({ask: "state", script: !page.llmsimPlotly});
  });
  return {
    async render({model, el}) {
      const drawn = (await (figure ??= load(model))).render({model, el});
      model.send({ask: "news"});
      return drawn;
    },
  };
};
"""
# Plotly writes colours into the drawing, so those of JupyterLab's theme have to overrule them; what
# is black, as history is, is as light as text on a dark page.
STYLE = Markup("""<style>
.llmsim-live .js-plotly-plot :is(text,.legendtext,.annotation-text)
{fill:var(--jp-content-font-color1,#333)!important}
.llmsim-live .js-plotly-plot [style*="stroke: rgb(0, 0, 0)"]
{stroke:var(--jp-content-font-color1,#000)!important}
.llmsim-live .js-plotly-plot :is(.gridlayer path,.zerolinelayer path)
{stroke:var(--jp-border-color2,#ddd)!important}
.llmsim-live .js-plotly-plot .hoverlayer .hovertext>path
{fill:var(--jp-layout-color1,#fff)!important}
.llmsim-live .js-plotly-plot .modebar-group{background:var(--jp-layout-color1,#fff)!important}
.llmsim-live .js-plotly-plot .modebar-btn path{fill:var(--jp-content-font-color2,#666)!important}
</style>""")

_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
_MARKERS = {"o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down"}
_FEW = 60
_MAIN, _SMALL, _GAP, _LINE = 300, 110, 32, 15
"""Pixels: the panels' heights, the space above one for its heading, a line of text."""
_MARK_LINES, _MOST_AGENTS, _MOST_TICKS = 3, 6, 5
_WIDE, _LEGEND_WIDE = 64, 36
"""Letters of a line of what was decided, and of the legend's."""
_GREY = "#767676"
_REST, _TAPED = "rgba(119,119,119,0.15)", "rgba(86,180,233,0.15)"
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "typesetMath": False,  # a pair of dollars in a name is not a formula
    "modeBarButtons": [["zoom2d", "pan2d", "resetScale2d"]],
}


class Interactive:
    """A scene in a page, which later scenes of the same runs take over.

    Args:
        scene: what to draw.
        on_point: called with the run and the turn of a point that was clicked; None for the run
            where the point is of several or of none.

    Attributes:
        widget: the figure.
    """

    def __init__(self, scene: Scene, on_point: Callable[[Track | None, int], object]) -> None:
        self.widget: Any = _figure_class()()
        self.widget._config = _CONFIG
        self.widget.on_msg(self._on_page)
        self._on_point = on_point
        self._scene = scene
        self._loading = False
        self._frame: object = None
        self._shown: dict[str, Any] = {}
        self._who: dict[tuple[int, int], tuple[object, str]] = {}
        self._draw(scene)

    def show(self, scene: Scene) -> None:
        """Draw a scene, in place of the one before; a part that the reader zoomed into stays."""
        self._scene = scene
        if not self._loading:  # else the page would not take it over
            self._draw(scene)

    def _on_page(self, _: object, content: Any, __: object) -> None:
        """Answer the script, which asks for the state of the moment, then for what came since."""
        if content.get("ask") == "state":
            self._loading = True
            figure = self.widget
            figure._widget_data, figure._widget_layout = deepcopy((figure._data, figure._layout))
            figure.send({}, [_bundle()] if content.get("script") else [])
        elif content.get("ask") == "news":
            self._loading = False
            self._draw(self._scene)

    def _draw(self, scene: Scene) -> None:
        traces = [*_bands(scene), *self._curves(scene)]
        layout = _layout(scene)
        frame = [{k: v for k, v in trace.items() if k not in _MOVING} for trace, _ in traces]
        if frame != self._frame:
            self._frame = frame
            self.widget.data = ()
            self.widget.add_traces([trace for trace, _ in traces])
        with self.widget.batch_update():
            for drawn, (trace, track) in zip(self.widget.data, traces, strict=True):
                for name in _MOVING & trace.keys():
                    drawn[name] = trace[name]
                drawn.on_click(self._clicked(track))
            for name, value in layout.items():
                if value != (before := self._shown.get(name)):
                    self._shown[name] = value
                    self.widget.layout[name] = self._kept(name, before, value)

    def _kept(self, name: str, before: Any, value: Any) -> Any:
        """Return what an axis becomes: with the part that the reader zoomed into, if any."""
        if before and name.startswith(("xaxis", "yaxis")):
            now = self.widget.layout[name].range
            if now is not None and tuple(now) != before["range"]:
                return value | {"range": now}
        return value

    def resize(self) -> None:
        """Let the figure take the width that it now has."""
        self.widget.layout.meta = (self.widget.layout.meta or 0) + 1

    def _clicked(self, track: Track | None) -> Callable[..., None]:
        def clicked(trace: Any, points: Any, _: object) -> None:
            if points.point_inds:
                self._on_point(track, int(trace.x[points.point_inds[0]]))

        return clicked

    def _curves(self, scene: Scene) -> Iterator[tuple[dict[str, Any], Track | None]]:
        for curve in scene.curves:
            for place, series in enumerate(scene.panel_series):
                if series.column not in curve.points:
                    continue
                x, y = thinned(*curve.points[series.column])
                look, single = curve.look, len(x) == 1
                marked = bool(single or (look.marker and len(x) <= _FEW))
                trace = {
                    "type": "scatter",
                    "x": x,
                    "y": y,
                    "mode": "lines+markers" if marked else "lines",
                    "name": _lines_of(curve.legend or curve.name),
                    "legendgroup": f"{curve.name} {curve.legend}",
                    "showlegend": bool(curve.legend) and place == 0,
                    "opacity": look.alpha,
                    "line": {
                        "color": look.colour,
                        "dash": _DASHES[look.style],
                        "width": look.width + (0.5 if place == 0 else 0),
                    },
                    "marker": {
                        "symbol": _MARKERS.get(look.marker, "x"),
                        "size": 7 if place == 0 else 4,
                    },
                    "yaxis": _axis("y", place),
                    "hovertext": list(self._hovers(curve, series, x, y, whole=place == 0)),
                    "hovertemplate": "%{hovertext}<extra></extra>",
                }
                yield trace, curve.track

    def _hovers(
        self,
        curve: Curve,
        series: Series,
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        *,
        whole: bool,
    ) -> Iterator[str]:
        name = _plain(curve.name if curve.track else curve.legend or curve.name, 60)
        label = _plain(series.label, 40)
        unit = _plain(series.unit, 30)
        for turn, value in zip(x, y, strict=True):
            when, who = f"turn {turn:g}", ""
            if curve.track is not None:
                when, who = self._decided(curve.track, int(turn))
            said = f"<b>{name}</b>, {when}<br>{label} <b>{number(float(value))}</b> {unit}"
            yield said + (who if whole else "")

    def _decided(self, track: Track, turn: int) -> tuple[str, str]:
        """Return a turn's name and who decided what in it; each turn is read once."""
        run = track.run
        played = None if run is None else turn_at(run, turn)
        if played is None:
            return f"turn {turn}", ""
        kept = self._who.get((id(track), turn))
        if kept is None or kept[0] is not played:
            kept = self._who[id(track), turn] = played, "".join(_decisions(played))
        return _plain(turn_name(played), 40), kept[1]


_MOVING = {"x", "y", "hovertext"}
"""What of a trace changes while a run goes on."""


@cache
def _figure_class() -> Any:
    from plotly.graph_objects import FigureWidget

    class Figure(FigureWidget):
        _esm = _SCRIPT

    return Figure


def _bundle() -> bytes:
    from plotly.graph_objects import FigureWidget

    return str(FigureWidget._esm).encode()


def _decisions(turn: Any) -> Iterator[str]:
    _, decisions = decisions_of(turn)
    for one in decisions[:_MOST_AGENTS]:
        chains = [chain for its in one.chains.values() for chain in its]
        statuses = dict.fromkeys(chain.status for chain in chains)
        how = ", ".join(status for status in statuses if status != "ok") or "ok"
        if all(chain.by_rule for chain in chains):
            how = "by rule"
        words = clip(" / ".join(one.proposed), 2 * _WIDE)
        lines = wrap(visible(words), _WIDE)
        yield f"<br><b>{_plain(one.agent, 40)}</b>, {how}" + (":" if lines else "")
        yield from (f"<br>{escape(line)}" for line in lines)
    if len(decisions) > _MOST_AGENTS:
        yield f"<br>and {len(decisions) - _MOST_AGENTS} more"


def _plain(text: str, length: int) -> str:
    """Return an untrusted text that plotly shows as it is."""
    return str(escape(visible(clip(text, length))))


def _lines_of(name: str) -> str:
    """Return a name for the legend, which cuts off what does not fit on a narrow page."""
    return "<br>".join(map(escape, wrap(visible(clip(name, 90)), _LEGEND_WIDE)))


def _axis(letter: str, place: int) -> str:
    return f"{letter}{place + 1 if place else ''}"


def _bands(scene: Scene) -> Iterator[tuple[dict[str, Any], None]]:
    import numpy as np

    for band in scene.bands:
        red, green, blue = (int(band.colour[at : at + 2], 16) for at in (1, 3, 5))
        for place, series in enumerate(scene.panel_series):
            if series.column in band.points:
                x, low, high = band.points[series.column]
                trace = {
                    "type": "scatter",
                    "x": np.concatenate([x, x[::-1]]),
                    "y": np.concatenate([high, low[::-1]]),
                    "fill": "toself",
                    "fillcolor": f"rgba({red},{green},{blue},{band.alpha})",
                    "line": {"width": 0},
                    "mode": "lines",
                    "hoverinfo": "skip",
                    "name": _lines_of(band.legend),
                    "legendgroup": band.legend,
                    "showlegend": place == 0,
                    "yaxis": _axis("y", place),
                }
                yield trace, None


def _layout(scene: Scene) -> dict[str, Any]:
    """Return what stands around the curves: axes, headings, marks, bounds, shaded turns."""
    panels = scene.panel_series
    inner = _MAIN + (_SMALL + _GAP) * (len(panels) - 1)
    lines = min(len(scene.marks), _MARK_LINES)
    entries = sum(1 for curve in scene.curves if curve.legend) + len(scene.bands)
    dated = bool(scene.ticks.names)
    below = 28 if dated else 48
    top, bottom = 30 + _LINE * lines, below + 22 * math.ceil((entries + 1) / 3)
    first, last = scene.span
    side = 0.03 * (last - first)
    layout: dict[str, Any] = {
        "height": inner + top + bottom,
        "autosize": True,
        "margin": {"l": 48, "r": 12, "t": top, "b": bottom},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "#333"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "hoverdistance": 30,
        "hoverlabel": {"align": "left", "bgcolor": "#fff", "namelength": -1},
        "dragmode": "zoom",
        "legend": {
            "orientation": "h",
            "x": 0,
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
        },
        "xaxis": {
            "range": (first - side, last + side),
            "anchor": _axis("y", len(panels) - 1),
            "title": {"text": "" if dated else scene.ticks.label, "standoff": 4},
            "zeroline": False,
            "gridcolor": "#ddd",
        },
    }
    if dated:
        every = math.ceil(len(scene.ticks.at) / _MOST_TICKS)
        layout["xaxis"] |= {
            "tickmode": "array",
            "tickvals": scene.ticks.at[::every],
            "ticktext": [_plain(name, 20) for name in scene.ticks.names[::every]],
        }
    headings = []
    above = 1.0
    for place, series in enumerate(panels):
        height = (_SMALL if place else _MAIN) / inner
        layout[_axis("yaxis", place)] = {
            "domain": (max(0.0, above - height), above),
            "range": tuple(scene.limits[series.column]),
            "zeroline": False,
            "gridcolor": "#ddd",
            "nticks": 4 if place else 7,
            "automargin": False,
        }
        title = series.label if place else scene.title
        unit = f", {_plain(series.unit, 30)}" if series.unit else ""
        headings.append(
            _note(
                f"<b>{_plain(title, 60)}</b>{unit}",
                x=0,
                y=above,
                yshift=2 if place else _LINE * lines + 4,
                xshift=0 if place else -36,  # more room on a narrow page
                font={"size": 12 if place else 13},
            )
        )
        above -= height + _GAP / inner
    layout["shapes"] = [*_shading(scene), *_lines(scene)]
    layout["annotations"] = [*headings, *_marks(scene), *_bounds(scene)]
    return layout


def _note(text: str, **more: Any) -> dict[str, Any]:
    given = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    return {"text": text, "showarrow": False, **given, **more}


def _shading(scene: Scene) -> Iterator[dict[str, Any]]:
    for span, colour, name in (
        (scene.rest, _REST, "planned, not played yet"),
        (scene.taped, _TAPED, "from the tape"),
    ):
        if span:
            box = {"type": "rect", "x0": span[0], "x1": span[1], "yref": "paper", "y0": 0, "y1": 1}
            look = {"fillcolor": colour, "line": {"width": 0}, "layer": "below"}
            yield {**box, **look, "showlegend": True, "name": name}


def _lines(scene: Scene) -> Iterator[dict[str, Any]]:
    for turn in dict.fromkeys(mark.turn for mark in scene.marks):
        look = {"color": _GREY, "width": 1, "dash": "dot"}
        yield {
            "type": "line",
            "x0": turn,
            "x1": turn,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": look,
        }
    columns = [series.column for series in scene.panel_series]
    for bound in scene.bounds:
        yield {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "yref": _axis("y", columns.index(bound.column)),
            "y0": bound.value,
            "y1": bound.value,
            "line": {"color": _GREY, "width": 1, "dash": "dash"},
        }


def _marks(scene: Scene) -> Iterator[dict[str, Any]]:
    """Write marks above the large panel, where nothing is drawn; the list below has all words."""
    first, last = scene.span
    lines = min(len(scene.marks), _MARK_LINES)
    for place, mark in enumerate(scene.marks):
        worded = len(scene.marks) <= 2 * _MARK_LINES
        left = mark.turn > first + 0.6 * (last - first)
        yield _note(
            f"{mark.number} {_plain(mark.text, 28)}" if worded else str(mark.number),
            hovertext=_plain(f"{mark.text} ({', '.join(mark.runs)})", 200),
            xref="x",
            x=mark.turn,
            y=1,
            xanchor="right" if left else "left",
            yshift=_LINE * (lines - 1 - place % lines),
            font={"size": 11},
        )


def _bounds(scene: Scene) -> Iterator[dict[str, Any]]:
    columns = [series.column for series in scene.panel_series]
    for bound in scene.bounds:
        yield _note(
            str(bound),
            xref="x",
            x=bound.at,
            yref=_axis("y", columns.index(bound.column)),
            y=bound.value,
            yanchor="bottom" if bound.upper else "top",
            font={"size": 11},
        )
