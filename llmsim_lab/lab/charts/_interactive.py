"""Scenes drawn with plotly, to be hovered over, zoomed and clicked while a run is played.

All panels stand above each other on one axis of turns, so that a turn is one vertical line and the
chart is as readable on a narrow page. Plotly reads some HTML in texts: all are escaped.

Plotly's own widget sends its script, 5 MB, with every figure, gives up where the page has not read
it in two seconds, and shows a reloaded page what it showed at first. So a few lines of script load
it here, once a page, and ask for the state of the moment.

Plotly takes a second to import, so this module is imported where a page shows a chart, on a thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape
from plotly.graph_objects import FigureWidget

from llmsim_lab._util.html import visible
from llmsim_lab._util.text import clip, number
from llmsim_lab.lab._run_reading import decisions_of, turn_at, turn_name
from llmsim_lab.lab.charts._drawing import marker_of, thinned

if TYPE_CHECKING:
    from llmsim_lab.lab.charts._scene import Curve, Scene
    from llmsim_lab.lab.charts._tracks import Track, Values

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
_MAIN, _SMALL, _GAP, _LINE = 300, 110, 32, 15
"""Pixels: the panels' heights, the space above one for its heading, a line of text."""
_MARK_LINES, _MOST_AGENTS, _MOST_TICKS = 3, 6, 5
_WIDE, _LEGEND_WIDE = 64, 36
"""Letters of a line of what was decided, and of the legend's."""
_GREY = "#767676"
_LOOK: dict[str, Any] = {
    "autosize": True,
    "font": {"family": "system-ui, sans-serif", "size": 12, "color": "#333"},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "hovermode": "closest",
    "hoverdistance": 30,
    "hoverlabel": {"align": "left", "bgcolor": "#fff", "namelength": -1},
    "dragmode": "zoom",
    "legend": {"orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
}
_AXIS: dict[str, Any] = {"zeroline": False, "gridcolor": "#ddd"}
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "typesetMath": False,  # a pair of dollars in a name is not a formula
    "modeBarButtons": [["zoom2d", "pan2d", "resetScale2d"]],
}


class Interactive:
    """A scene in a page, which later scenes of the same runs take over.

    Args:
        on_point: called with the run and the turn of a point that was clicked; None for the run
            where the point is of several or of none.

    Attributes:
        widget: the figure.
    """

    def __init__(self, on_point: Callable[[Track | None, int], object]) -> None:
        self.widget: Any = _Figure()
        self.widget._config = _CONFIG
        self.widget.on_msg(self._on_page)
        self._on_point = on_point
        self._scene: Scene
        self._loading = False
        self._frame: object = None
        self._shown: dict[str, Any] = {}
        self._who: dict[tuple[int, int], tuple[object, str]] = {}

    def _on_page(self, _: object, content: Any, __: object) -> None:
        """Answer the script, which asks for the state of the moment, then for what came since."""
        if content.get("ask") == "state":
            self._loading = True
            figure = self.widget
            figure._widget_data, figure._widget_layout = deepcopy((figure._data, figure._layout))
            figure.send({}, [str(FigureWidget._esm).encode()] if content.get("script") else [])
        elif content.get("ask") == "news":
            self._loading = False
            self.show(self._scene)

    def show(self, scene: Scene) -> None:
        """Draw a scene, in place of the one before; a part that the reader zoomed into stays."""
        self._scene = scene
        if self._loading:
            return  # the page would not take it over; it asks for the news when it has loaded
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
                # In place of the callback before: this trace may have been another run's.
                drawn.on_click(partial(self._on_click, track))
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
        # It means nothing to plotly, but each change of the layout makes it measure its room.
        self.widget.layout.meta = (self.widget.layout.meta or 0) + 1

    def _on_click(self, track: Track | None, trace: Any, points: Any, _: object) -> None:
        if points.point_inds:
            self._on_point(track, int(trace.x[points.point_inds[0]]))

    def _curves(self, scene: Scene) -> Iterator[tuple[dict[str, Any], Track | None]]:
        for curve in scene.curves:
            legend, group = curve.legend, f"{curve.name} {curve.legend}"
            for column, points in curve.points.items():
                place, (x, y) = scene.place(column), thinned(*points)
                marker = marker_of(curve, len(x))
                size, more = (4, 0.0) if place else (7, 0.5)
                dash, width = _DASHES[curve.style], curve.width + more
                own = {
                    "x": x,
                    "y": y,
                    "mode": "lines+markers" if marker else "lines",
                    "opacity": curve.alpha,
                    "line": {"color": curve.colour, "dash": dash, "width": width},
                    "marker": {"symbol": _MARKERS.get(marker, "x"), "size": size},
                    "hovertext": list(self._hovers(curve, scene, place, x, y)),
                    "hovertemplate": "%{hovertext}<extra></extra>",
                }
                trace = _trace(legend or curve.name, group, place, shown=bool(legend))
                yield trace | own, curve.track

    def _hovers(
        self, curve: Curve, scene: Scene, place: int, x: Values, y: Values
    ) -> Iterator[str]:
        series = scene.series[place]
        name = _plain(curve.name if curve.track else curve.legend or curve.name, 60)
        label, unit = _plain(series.label, 40), _plain(series.unit, 30)
        for turn, value in zip(x, y, strict=True):
            when, who = f"turn {turn:g}", ""
            if curve.track is not None:
                when, who = self._decided(curve.track, int(turn))
            said = f"<b>{name}</b>, {when}<br>{label} <b>{number(float(value))}</b> {unit}"
            yield said if place else said + who

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


class _Figure(FigureWidget):
    _esm = _SCRIPT


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


def _axis(letter: str, place: int) -> str:
    return f"{letter}{place + 1 if place else ''}"


def _trace(name: str, group: str, place: int, *, shown: bool = True) -> dict[str, Any]:
    """Return what all traces say: their panel, and their name, which the legend has once."""
    # In lines, since the legend cuts off what does not fit on a narrow page.
    named = "<br>".join(map(escape, wrap(visible(clip(name, 90)), _LEGEND_WIDE)))
    once = {"name": named, "legendgroup": group, "showlegend": shown and place == 0}
    return {"type": "scatter", "yaxis": _axis("y", place), **once}


def _bands(scene: Scene) -> Iterator[tuple[dict[str, Any], None]]:
    for band in scene.bands:
        for column, (x, low, high) in band.points.items():
            own = {
                "x": np.concatenate([x, x[::-1]]),
                "y": np.concatenate([high, low[::-1]]),
                "fill": "toself",
                "fillcolor": _see_through(band.colour, band.alpha),
                "line": {"width": 0},
                "mode": "lines",
                "hoverinfo": "skip",
            }
            yield _trace(band.legend, band.legend, scene.place(column)) | own, None


def _see_through(colour: str, alpha: float) -> str:
    red, green, blue = bytes.fromhex(colour[1:])
    return f"rgba({red},{green},{blue},{alpha})"


def _layout(scene: Scene) -> dict[str, Any]:
    """Return what stands around the curves: axes, headings, marks, bounds, shaded turns."""
    panels, ticks = scene.series, scene.ticks
    inner = _MAIN + (_SMALL + _GAP) * (len(panels) - 1)
    lines = min(len(scene.marks), _MARK_LINES)
    entries = sum(1 for curve in scene.curves if curve.legend) + len(scene.bands)
    top = 30 + _LINE * lines
    bottom = (28 if ticks.names else 48) + 22 * math.ceil((entries + 1) / 3)
    every = math.ceil(len(ticks.at) / _MOST_TICKS)
    named = {
        "tickmode": "array",
        "tickvals": ticks.at[::every],
        "ticktext": [_plain(name, 20) for name in ticks.names[::every]],
    }
    turns = {
        "range": scene.reach,
        "anchor": _axis("y", len(panels) - 1),
        "title": {"text": "" if ticks.names else ticks.label, "standoff": 4},
    }
    margin = {"l": 48, "r": 12, "t": top, "b": bottom}
    layout = _LOOK | {"height": inner + top + bottom, "margin": margin}
    layout["xaxis"] = _AXIS | turns | (named if ticks.names else {})
    headings = []
    above = 1.0
    for place, series in enumerate(panels):
        height = (_SMALL if place else _MAIN) / inner
        layout[_axis("yaxis", place)] = _AXIS | {
            "domain": (max(0.0, above - height), above),
            "range": tuple(scene.limits[series.column]),
            "nticks": 4 if place else 7,
            "automargin": False,
        }
        unit = f", {_plain(series.unit, 30)}" if series.unit else ""
        title = f"<b>{_plain(series.label if place else scene.title, 60)}</b>{unit}"
        # The large panel's begins to the left of the axis: more room on a narrow page.
        left, up, size = (0, 2, 12) if place else (-36, _LINE * lines + 4, 13)
        headings.append(_note(title, x=0, y=above, xshift=left, yshift=up, font={"size": size}))
        above -= height + _GAP / inner
    layout["shapes"] = [*_shapes(scene)]
    layout["annotations"] = [*headings, *_notes(scene)]
    return layout


def _note(text: str, **more: Any) -> dict[str, Any]:
    given = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    return {"text": text, "showarrow": False, **given, **more}


def _shapes(scene: Scene) -> Iterator[dict[str, Any]]:
    """Yield shaded turns, a line at each mark's turn and one at each bound."""
    down = {"yref": "paper", "y0": 0, "y1": 1}
    for (first, last), colour, name in scene.shades:
        look = {"fillcolor": _see_through(colour, 0.15), "line": {"width": 0}, "layer": "below"}
        legend = {"showlegend": True, "name": name}
        yield {"type": "rect", "x0": first, "x1": last, **down, **look, **legend}
    for turn in scene.marked:
        dots = {"color": _GREY, "width": 1, "dash": "dot"}
        yield {"type": "line", "x0": turn, "x1": turn, **down, "line": dots}
    for bound in scene.bounds:
        axis = _axis("y", scene.place(bound.column))
        level = {"yref": axis, "y0": bound.value, "y1": bound.value}
        dashes = {"color": _GREY, "width": 1, "dash": "dash"}
        yield {"type": "line", "xref": "paper", "x0": 0, "x1": 1, **level, "line": dashes}


def _notes(scene: Scene) -> Iterator[dict[str, Any]]:
    """Yield the marks' words, above the large panel where nothing is drawn, and the bounds'.

    The list below the chart has all words of the marks.
    """
    small = {"xref": "x", "font": {"size": 11}}
    lines = min(len(scene.marks), _MARK_LINES)
    for place, mark in enumerate(scene.marks):
        worded = len(scene.marks) <= 2 * _MARK_LINES
        yield _note(
            f"{mark.number} {_plain(mark.text, 28)}" if worded else str(mark.number),
            hovertext=_plain(f"{mark.text} ({', '.join(mark.runs)})", 200),
            x=mark.turn,
            y=1,
            xanchor="right" if scene.late(mark.turn) else "left",
            yshift=_LINE * (lines - 1 - place % lines),
            **small,
        )
    for bound in scene.bounds:
        axis, below = _axis("y", scene.place(bound.column)), "bottom" if bound.upper else "top"
        at = {"x": bound.at, "y": bound.value, "yref": axis, "yanchor": below}
        yield _note(str(bound), **at, **small)
