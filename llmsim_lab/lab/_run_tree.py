"""A tape's runs and forks as a graph: look at one, compare two, open, verify.

A node of the graph is a run, an edge says what was changed. Runs stand in columns by how many forks
lie before them, a first fork in its parent's row. Siblings that differ only in a seed, as a sweep's
do, are one node until somebody unfolds them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.drawing import figure_bytes
from llmsim_lab._util.html import details, join, pairs, pre, safe, table, visible
from llmsim_lab._util.jsontext import as_mapping
from llmsim_lab._util.text import clip, few, number, printable
from llmsim_lab.errors import ConfigError, LabError, TapeError
from llmsim_lab.lab._html import sideways, word_diff
from llmsim_lab.lab._stepper import RunOpener, TurnStepper
from llmsim_lab.lab._widget import close_all, dropdown, row, settled
from llmsim_lab.lab.charts._drawing import draw
from llmsim_lab.lab.charts._export import alt_text, image_html
from llmsim_lab.lab.charts._scene import compose
from llmsim_lab.lab.charts._tracks import read_runs, tracks_of
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.run import replay
from llmsim_lab.run._run import series_on
from llmsim_lab.study._keeping import check_is_run
from llmsim_lab.tape import verify
from llmsim_lab.tape._changes import TextTree, edited_prompts, shared_start
from llmsim_lab.tape._lines import RunInfo
from llmsim_lab.tape._tape import parting
from llmsim_lab.tape._verify import Finding, replayable

if TYPE_CHECKING:
    import pandas as pd

# --- the graph -----------------------------------------------------------------------------------

NODE_WIDE, EDGE_WIDE, ROW_HIGH, NODE_HIGH = 150, 180, 46, 28
"""Pixels."""
_FEWEST, _MOST_NODES = 4, 24
"""Siblings that are folded, and nodes below one run."""
_LINE, _LINES = 28, 2
"""Letters of a line on an edge, and lines."""
_SEED = re.compile(r"((?:seed|replicate)\S* )(-?\d+)")
_NUMBER = re.compile(r"()(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A run, or several that are folded into one.

    Attributes:
        runs: which; of the tape itself, where several runs came from none, empty.
        name: on the node.
        words: on the edge to it.
        column, row: its place.
        parent: the row of the node that it came from; None for the first.
    """

    runs: tuple[RunInfo, ...]
    name: str
    words: str
    column: int
    row: int
    parent: int | None


def nodes_of(tree: TextTree, *, title: str, unfolded: Collection[int] = ()) -> list[Node]:
    """Return where each run stands.

    Args:
        tree: the runs, and what they changed.
        title: what stands for the tape, where several of its runs came from none.
        unfolded: first runs of those that are not to be folded.
    """
    nodes: list[Node] = []
    several = len(tree.below[None]) > 1
    if several:
        nodes.append(Node(runs=(), name=title, words="", column=0, row=0, parent=None))
    # A stack, not recursion: forks of forks may be deeper than Python's stack.
    start = (0, 0) if several else (-1, None)
    todo = [(group, *start) for group in reversed(_groups(tree, None, unfolded))]
    row, last = -1, -1
    while todo:
        group, column, parent = todo.pop()
        # A first fork continues its parent's row, unless that has gone further already.
        row = row if nodes and parent == row and last == column else row + 1
        first = group[0]
        name = f"{first.id} {printable(first.name)}"
        if len(group) > 1:
            name = f"{len(group)} runs: {first.id} to {group[-1].id}"
        words = _words(tree, group)
        last = column + 1
        nodes.append(Node(runs=group, name=name, words=words, column=last, row=row, parent=parent))
        if len(group) == 1:
            below = _groups(tree, first.id, unfolded) if first.id in tree.below else []
            todo += [(each, last, row) for each in reversed(below)]
    return nodes


def _groups(
    tree: TextTree, run: int | None, unfolded: Collection[int]
) -> list[tuple[RunInfo, ...]]:
    """Return what came from a run, with those folded that differ in a seed; in any number, if many.

    Those that others came from stand by themselves.
    """
    found: list[tuple[RunInfo, ...]] = []
    for pattern in (_SEED, _NUMBER, None):
        alike: dict[object, list[RunInfo]] = {}
        for info in tree.below[run]:
            words = "; ".join(tree.changed[info.id])
            own = info.id if info.id in tree.below else 0
            said = pattern.sub(r"\1#", words) if pattern else ""
            alike.setdefault((own, info.name, info.fork_turn, said), []).append(info)
        found = []
        for runs in alike.values():
            fold = len(runs) >= _FEWEST and runs[0].id not in unfolded
            found += [tuple(runs)] if fold else [(info,) for info in runs]
        if len(found) <= _MOST_NODES or unfolded:
            break
    return sorted(found, key=lambda runs: runs[0].id)


def _words(tree: TextTree, runs: Sequence[RunInfo]) -> str:
    """Return what was changed, of several runs as ``seed 1 … 200``."""
    first, last = ("; ".join(tree.changed[runs[at].id]) for at in (0, -1))
    words = first
    if first != last:
        words = f"{first} … {last}"
        start = len(first[: shared_start(first, last)].rstrip("0123456789.-"))
        if first[start:].isdigit() and last[start:].isdigit():
            words = f"{first} … {last[start:]}"
    verb, turn = runs[0].verb, runs[0].fork_turn
    if not words and verb != "run":
        words = verb if turn is None else f"{verb} at turn {turn}"
    elif turn is not None and not words.startswith("turn "):
        words = f"after turn {turn}: {words}"
    return printable(words)


def graph_svg(nodes: Sequence[Node], *, boxes: bool) -> Markup:
    """Return the edges and what they say as a drawing.

    Args:
        nodes: where each run stands.
        boxes: True to draw the nodes as well, in dark on white, for an image; else they are drawn
            over it, and the colours are those of the text around.
    """
    columns, rows = grid_of(nodes)
    across, down = columns * (NODE_WIDE + EDGE_WIDE) + NODE_WIDE, rows * ROW_HIGH
    ink = "#222" if boxes else "currentColor"
    paper = Markup('<rect width="{}" height="{}" fill="#fff"/>').format(across, down)
    shapes = [paper if boxes else "", *(_shape(node, boxes=boxes) for node in nodes)]
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" '
        'font-family="system-ui, sans-serif" font-size="11" fill="{2}" style="display:block">'
        "{3}</svg>"
    ).format(across, down, ink, join(shapes))


def grid_of(nodes: Sequence[Node]) -> tuple[int, int]:
    """Return how many columns of edges and rows of nodes the graph has."""
    return max(node.column for node in nodes), max(node.row for node in nodes) + 1


def _shape(node: Node, *, boxes: bool) -> Markup:
    left = node.column * (NODE_WIDE + EDGE_WIDE)
    middle = (node.row + 1) * ROW_HIGH - NODE_HIGH // 2
    parts = []
    if node.parent is not None:
        begin, turn = left - EDGE_WIDE, (node.parent + 1) * ROW_HIGH - NODE_HIGH // 2
        path = '<path d="M{} {}h10V{}H{}" fill="none" stroke="#808080" stroke-width="1.5"/>'
        lines = wrap(visible(node.words), _LINE)
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [clip(f"{lines[_LINES - 1]} …", _LINE)]
        texts = [
            Markup('<text x="{}" y="{}">{}</text>').format(begin + 16, middle - 6 - 13 * up, line)
            for up, line in zip(range(len(lines))[::-1], lines, strict=True)
        ]
        parts += [
            Markup(path).format(begin, turn, middle, left),
            Markup("<g><title>{}</title>{}</g>").format(visible(node.words), join(texts)),
        ]
    if boxes or not node.runs:
        rect = '<rect x="{}" y="{}" width="{}" height="{}" rx="4" fill="none" stroke="#808080"/>'
        text = '<text x="{}" y="{}" font-size="12">{}</text>'
        name = clip(visible(node.name), 21)
        parts += [
            Markup(rect).format(left + 0.5, middle - NODE_HIGH // 2, NODE_WIDE - 1, NODE_HIGH - 1),
            Markup(text).format(left + 8, middle + 4, name),
        ]
    return join(parts)


# --- a run, and two compared ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The outcome of a check.

    Attributes:
        findings: what is wrong; empty if nothing is.
        same: how many runs were replayed to the recorded turns.
    """

    findings: tuple[Finding, ...]
    same: int


def _verified(path: Path) -> tuple[list[Finding], list[int]]:
    """Return what is wrong with a tape, and the runs to replay, if nothing is.

    Comparisons on runs are not runs.
    """
    with Tape(path, read_only=True) as tape:
        findings = verify(tape)
        return findings, [] if findings else replayable(tape)


def _replayed(path: Path, run: int) -> list[Finding]:
    with Tape(path, read_only=True) as tape:
        try:
            replay(tape, run)
        except LabError as error:
            return [Finding(what=f"it cannot be replayed: {error}", run=run)]
    return []


_MAX_COMPARED_CHARS = 50_000
_MOST = 20
"""Prompts, interventions and faults that are shown."""


def run_html(tape: Tape, info: RunInfo) -> Markup:
    """Return a run's facts, interventions and prompts.

    Args:
        tape: the tape.
        info: the run.
    """
    started = [("started (UTC)", info.started), ("ended (UTC)", info.ended or "not ended")]
    return join(
        [
            pairs([*facts(info), *started], caption=f"Run {info.id}"),
            _interventions(tape, info),
            _prompts(tape, info),
            details(
                "Configuration",
                pre(json.dumps(info.manifest.get("config"), indent=2, ensure_ascii=False)),
            ),
        ]
    )


def facts(info: RunInfo) -> list[tuple[str, str]]:
    """Return names and values of what a run was; without dates, so the same for the same tape."""
    manifest = info.manifest
    first = 1 if info.fork_turn is None else info.fork_turn + 1
    config, llm, found = (as_mapping(manifest.get(name)) for name in ("config", "llm", "model"))
    digest = f"digest {str(found['digest'])[:12]}" if found.get("digest") else ""
    model = (info.model or "none", str(found.get("backend") or ""), digest)
    origin = info.verb if info.parent is None else f"{info.verb} of run {info.parent}"
    if info.fork_turn is not None:
        origin += f" at turn {info.fork_turn}"
    told: list[tuple[str, object]] = [
        ("name", info.name),
        ("how it came about", origin),
        ("its own turns", f"{first} to {info.turns}" if info.turns >= first else "none yet"),
        ("requests recorded", f"{info.calls:,}"),
        ("outcome", info.outcome or "open: no end was noted, and it may continue"),
        ("model", ", ".join(part for part in model if part)),
        ("temperature", llm.get("temperature")),
        ("seed", manifest.get("seed")),
        ("kind of simulation", manifest.get("kind")),
        ("agents", _agents(config)),
        ("parts given by the user", ", ".join(map(str, manifest.get("given") or ()))),
        ("recorded by llmsim-lab", manifest.get("package")),
    ]
    return [(name, str(value)) for name, value in told if value not in (None, "")]


def _agents(config: Mapping[str, Any]) -> str:
    for key in ("nations", "agents"):
        entries = config.get(key)
        if isinstance(entries, list):
            names = [str(as_mapping(entry).get("name", entry)) for entry in entries]
            more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
            return clip(", ".join(names[:_MOST]), 300) + more
    return ""


def _interventions(tape: Tape, info: RunInfo) -> Markup:
    done = [str(text) for text in tape.turns_frame(info.id).get("interventions", ()) if text]
    if not done:
        return Markup()
    words = join(few([clip(text, 300) for text in done], _MOST), between="; ")
    return Markup("<p><strong>From outside:</strong> {}</p>").format(words)


def _prompts(tape: Tape, info: RunInfo) -> Markup:
    prompts = as_mapping(info.manifest.get("prompts"))
    if not prompts:
        return Markup("<p>No part of it has a prompt.</p>")
    entries = [(place, as_mapping(entry)) for place, entry in list(prompts.items())[:_MOST]]
    rows = [(place, it.get("name"), str(it.get("digest"))[:12]) for place, it in entries]
    listed = details("Prompts", table(("part", "prompt", "digest"), rows))
    if info.parent is None:
        return listed
    changes = list(prompt_changes(tape.run(info.parent), info))
    if not changes:
        return join([safe(f"Its prompts are those of run {info.parent}."), listed])
    shown = (
        details(f"The prompt of {places} is another than in run {info.parent}", diff, open=True)
        for places, diff in changes[:_MOST]
    )
    return join([*shown, listed])


def prompt_changes(before: RunInfo, after: RunInfo) -> Iterator[tuple[str, Markup]]:
    """Yield the parts whose prompts differ between two runs, with a word diff of the prompts.

    Parts whose prompts changed alike come together; a part that only one run has is left out.
    """
    for (was, now), places in edited_prompts(before.manifest, after.manifest).items():
        yield ", ".join(places), word_diff(visible(was), visible(now), limit=_MAX_COMPARED_CHARS)


_MOST_TURNS = 24
_MOST_COLUMNS = 4
_PANELS = 3


def differences_html(tape: Tape, a: RunInfo, b: RunInfo, apart: pd.DataFrame) -> Markup:
    """Return the differences as a sentence and a table of the columns that tell most.

    Args:
        tape: the tape that both are on.
        a: a run.
        b: another.
        apart: where they are ``parting``.
    """
    if apart.empty:
        return safe(f"Run {a.id} and run {b.id} took the same way in the turns that both have.")
    names = list(dict.fromkeys(map(str, apart.columns.get_level_values(0))))
    labels = {item.column: item.label for item in series_on(tape, a)}
    columns = ([name for name in labels if name in names] or names)[:_MOST_COLUMNS]

    def both(a: float, b: float) -> str:
        return number(a) if a == b else f"{number(a)} → {number(b)}"

    rows = [
        (turn, *(both(row[name, "a"], row[name, "b"]) for name in columns))
        for turn, row in apart.head(_MOST_TURNS).iterrows()
    ]
    header = ("turn", *(labels.get(name, name) for name in columns))
    left = len(apart) - len(rows)
    more = f" The next {left} turns are in .comparison." if left > 0 else ""
    return Markup("<p>They part at turn {}, in: {}.{}</p>{}").format(
        int(apart.index[0]),
        safe(", ".join(name.replace("_", " ") for name in names), limit=500),
        more,
        sideways(table(header, rows, caption=f"Run {a.id} → run {b.id}"), name="Where they part"),
    )


def chart_html(tape: Tape, a: RunInfo, b: RunInfo) -> Markup:
    """Return a chart of both runs as an image that says its latest values to screen readers.

    Raises:
        TapeError: they are of kinds that share nothing to chart.
    """
    names = [f"run {info.id}" for info in (a, b)]
    tracks = read_runs([tape], names=names, numbers=[a.id, b.id])
    ends = [track.rows[-1] for track in tracks_of(tracks)]
    shared = [item for item in series_on(tape, a) if all(item.column in end for end in ends)]
    if not shared:
        raise TapeError(f"runs {a.id} and {b.id} share no column that their kind charts")
    title = f"{shared[0].label}: run {a.id} and run {b.id}"
    scene = compose(tracks, shared[: 1 + _PANELS], title=title)
    return image_html(figure_bytes(draw(scene), "png", dpi=96), alt_text(scene))


_NOTHING = 0
"""In the list of runs to compare with: none. Runs are numbered from 1."""
_MOST_NODE = 20
"""Letters on a node."""
_LIST_WIDTH = "56em"
"""So that a run's line is read to its end, the model; narrower where the page is."""


class RunTree(RunOpener):
    """A tape's runs as a graph with what each changed; ``tape.tree()`` is the same tree as text.

    One run that is pressed is shown; two are compared. Many that differ only in a seed are one node
    until it is pressed.

    Args:
        tape: the tape or its file, which is opened for reading only.
        run: the number of the run whose facts are shown; the first if not given.
        llm_client: the model for forks made in the stepper that a run is opened in.

    Attributes:
        tape: the tape.
        selected: the number of the run whose facts are shown.
        comparison: how the selected run and the one it is compared with differ, as
            ``tape.compare`` gives it; None while nothing is compared.
        stepper: what the run was opened in, or None.
        checked: the outcome of the last check, or None before it.
    """

    def __init__(
        self,
        tape: Tape | str | Path,
        *,
        run: int | None = None,
        llm_client: LLMClient | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(tape, Tape | str | Path):
            raise ConfigError(
                f"{type(tape).__name__} is not a tape; pass a Tape or a tape's file: "
                "RunTree('x.tape')"
            )
        self.tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        self.llm_client = llm_client
        self.comparison: pd.DataFrame | None = None
        self.checked: Checked | None = None
        self._lay_out()
        self.refresh()
        if run is not None:
            self.select(run)

    def _lay_out(self) -> None:
        self.tree = w.GridBox(layout=w.Layout(overflow="visible", flex="0 0 auto"))
        self.nodes: dict[int, w.ToggleButton] = {}
        self._unfolded: set[int] = set()
        self.run_box, self.other_box = boxes = [
            self._choices.on_choice(dropdown(label, width=_LIST_WIDTH), self._chosen)
            for label in ("Run", "Compare with")
        ]
        self.open_button = self.starter("Open", "Step through the run below", self._open)
        checked = "Check the tape and replay each of its runs"
        self.check_button = self.starter("Verify", checked, self._check)
        self.stop_button = self.stopper("Stop", "Break off what is under way")
        self.refresh_button = self.starter("Refresh", "Read the tape again", self._refresh)
        self.facts, self.differences, self.chart = w.HTML(), w.HTML(), w.HTML()
        seen = self.open_button, self.close_button, self.check_button
        self._fixed = (*boxes, self.open_button, self.check_button, self.refresh_button)
        side = w.Layout(flex="1 1 28em", max_width="100%")
        compared = w.VBox([self.differences, self.chart], layout=side)
        self.children = (
            w.HTML("Press a run to see it, and another one to compare the two."),
            w.Box([self.tree], layout=w.Layout(overflow="auto", padding="0 0 8px")),
            *boxes,
            row(*seen, self.stop_button, self.refresh_button),
            *self.messages,
            row(self.facts, compared, gap="24px"),
            self.opened,
        )

    # --- the tree and a run -------------------------------------------------------------------

    @property
    def selected(self) -> int:
        """The number of the run whose facts are shown."""
        return int(self.run_box.value)

    def refresh(self) -> None:
        """Read the tape again: it may have a new run, or more turns of one.

        Raises:
            TapeError: it cannot be read, or holds no run.
        """
        text = self.tape.tree()
        if not text.runs:
            raise TapeError(f"the tape {self.tape.path} holds no run yet; record one first")
        self._text = text
        self._lines = {info.id: line for info, line in zip(text.runs, text.lines[1:], strict=True)}
        options = [(clip(line, 100), run) for run, line in self._lines.items()]
        played = {info.id for info in text.runs if info.verb != "experiment"}
        others = [("nothing", _NOTHING), *(one for one in options if one[1] in played)]
        self._choices.options(self.run_box, options, self.run_box.value)
        self._choices.options(self.other_box, others, self.other_box.value)
        self._show_graph()
        self._show_facts()

    def _show_graph(self) -> None:
        nodes = nodes_of(self._text, title=self.tape.path.name, unfolded=self._unfolded)
        # Over all cells, and first: the buttons after it lie above it.
        whole = w.Layout(grid_area="1 / 1 / -1 / -1", margin="0")
        edges = w.HTML(str(graph_svg(nodes, boxes=False)), layout=whole)
        self.nodes = {}
        buttons = [self._button(node) for node in nodes if node.runs]
        columns, rows = grid_of(nodes)
        place, between = self.tree.layout, f"{EDGE_WIDE}px {NODE_WIDE}px "
        place.grid_template_columns = f"{NODE_WIDE}px " + between * columns
        place.grid_template_rows = f"repeat({rows}, {ROW_HIGH}px)"
        before, self.tree.children = self.tree.children, (edges, *buttons)
        for part in before:
            close_all(part)
        self.controls = (*self._fixed, *buttons)
        self._set_busy(self.worker.busy)
        self._press()

    def _button(self, node: Node) -> w.DOMWidget:
        run = node.runs[0].id
        place = w.Layout(
            grid_area=f"{node.row + 1} / {2 * node.column + 1}",
            align_self="flex-end",
            width=f"{NODE_WIDE}px",
            height=f"{NODE_HIGH}px",
            margin="0",
        )
        if len(node.runs) > 1:
            said = f"Unfold {len(node.runs)} runs"
            folded = w.Button(description=f"{node.name} ▸", tooltip=said, layout=place)
            folded.on_click(lambda _: self._choices.attempt(lambda: self._unfold(run)))
            return folded
        line = visible(self._lines[run].lstrip("│├└─ "))
        made = self.nodes[run] = w.ToggleButton(tooltip=line, layout=place)
        self._choices.on_choice(made, lambda: self._pressed(run))
        return made

    def _unfold(self, run: int) -> None:
        self._unfolded.add(run)
        self._show_graph()

    def _pressed(self, run: int) -> None:
        """Show one run, or compare two: pressed again, a run is let go."""
        one, other = self.selected, int(self.other_box.value)
        if run == one:
            one, other = other or one, _NOTHING
        else:
            other = _NOTHING if run == other else run
        self._choices.set(self.run_box, one)
        if other in [value for _, value in self.other_box.options]:
            self._choices.set(self.other_box, other)
        else:  # a comparison of prompts, which has no turns to compare
            self._choices.set(self.run_box, run)
            self._choices.set(self.other_box, _NOTHING)
        self._chosen()

    def _press(self) -> None:
        """Show on the graph which runs are chosen, by a mark as well as by colour."""
        one, other = self.selected, int(self.other_box.value)
        names = {info.id: info.name for info in self._text.runs}
        for run, node in self.nodes.items():
            mark = "● " if run == one else "○ " if run == other else ""
            node.description = clip(visible(f"{mark}{run} {names[run]}"), _MOST_NODE)
            self._choices.set(node, bool(mark))
            node.button_style = "primary" if mark else ""

    def select(self, run: int, *, compare_with: int | None = None) -> None:
        """Show a run's facts, and compare it with another one if one is named.

        Args:
            run: its number.
            compare_with: another's.

        Raises:
            ConfigError: a number is not a whole one, or the widget is at work.
            TapeError: there is no such run, or one of those to compare is a comparison of prompts.
        """
        run = whole_number("run", run)
        shown = self.tape.run(run)
        if compare_with is not None:
            compare_with = whole_number("compare_with", compare_with)
            for info in (self.tape.run(compare_with), shown):
                check_is_run(info)
        if self.worker.busy:
            raise ConfigError("this widget is at work; await widget.idle() first, or stop it")
        self._choices.set(self.run_box, run)
        self._choices.set(self.other_box, _NOTHING if compare_with is None else compare_with)
        self._chosen()

    def _chosen(self) -> None:
        """Show what was chosen: facts at once, a comparison, which is slow, in the background."""

        async def compare() -> None:
            self.say(f"Comparing run {self.selected} and run {self.other_box.value}.")
            await asyncio.sleep(0)  # so that the message is sent before the chart is drawn
            self._show_comparison()

        self._press()
        self._show_facts()
        if self.other_box.value == _NOTHING:
            self._clear_comparison()
        else:
            self.start(compare)

    def _show_facts(self) -> None:
        self.facts.value = str(run_html(self.tape, self.tape.run(self.selected)))

    def _show_comparison(self) -> None:
        other = int(self.other_box.value)
        # Cleared first: where the new comparison fails, the old one must not stand under its error.
        self._clear_comparison()
        if other in (_NOTHING, self.selected):
            if other:
                self.say("A run does not differ from itself; compare it with another one.")
            return
        a, b = self.tape.run(self.selected), self.tape.run(other)
        for info in (a, b):
            check_is_run(info)
        self.comparison = self.tape.compare(a.id, b.id)
        apart = parting(self.comparison)
        self.differences.value = str(differences_html(self.tape, a, b, apart))
        self.chart.value = str(chart_html(self.tape, a, b))
        self.say(f"Run {a.id} and run {b.id} are compared.")

    def _clear_comparison(self) -> None:
        self.comparison = None
        self.differences.value = self.chart.value = ""

    async def _refresh(self) -> None:
        self.refresh()
        self._show_comparison()
        self.say("The tape was read again.")

    # --- open and check -----------------------------------------------------------------------

    async def _open(self) -> None:
        await settled(self.run_box)
        run = self.selected
        stepper = TurnStepper(self.tape, run=run, llm_client=self.llm_client)
        stepper.on_change(self._list_fork)
        self._open_below(stepper)
        self.say(f"Run {run} is open below.")

    def _list_fork(self, _: TurnStepper) -> None:
        """List a fork that was made in the opened stepper, if it is on this tape."""
        # Looking at another turn calls this too; only a new run is worth reading the tape again.
        if len(self.tape) != len(self.run_box.options):
            self.refresh()

    async def _check(self) -> None:
        self.checked = None
        self.say("Reading the tape.")
        # In threads, each with its own connection: reading and replaying would hold up the loop.
        findings, runs = await asyncio.to_thread(_verified, self.tape.path)
        same = 0
        for run in runs:
            self.say(f"The tape is whole. Replaying run {run}; there are {len(runs)}.")
            failed = await asyncio.to_thread(_replayed, self.tape.path, run)
            findings += failed
            same += not failed
        self.checked = Checked(findings=tuple(findings), same=same)
        if findings:
            raise TapeError("; ".join(few([str(finding) for finding in findings], _MOST)))
        counted = f"{same} {'run' if same == 1 else 'runs'}"
        self.say(f"The tape is sound; {counted} replayed to the same turns.")

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the tree and the selected run as plain text, the same for the same tape."""
        lines = [f"RunTree of {self.tape.path.name}", *self.tape.tree().lines[1:]]
        own = facts(self.tape.run(self.selected))
        lines += [f"  {name}: {clip(printable(value), 120)}" for name, value in own]
        if self.comparison is not None:
            apart = parting(self.comparison)
            where = "nowhere" if apart.empty else f"at turn {number(apart.index[0])}"
            lines.append(f"Run {self.selected} and run {self.other_box.value} part {where}")
        return "\n".join(lines)

    def static_html(self) -> Markup:
        """Return the same as simple HTML."""
        text = self.tape.tree()
        svg = graph_svg(nodes_of(text, title=self.tape.path.name), boxes=True)
        words = f"The tape's {len(text.runs)} runs as a graph; the same as text is below."
        drawn = image_html(svg.encode(), words, kind="svg")
        lines: Markup = pre("\n".join(text.lines[1:]))
        if len(text.runs) > _MOST:
            lines = details(f"All {len(text.runs)} runs", lines)
        own = pairs(facts(self.tape.run(self.selected)), caption=f"Run {self.selected}")
        return join([drawn, lines, own, Markup(self.differences.value)])
