"""``llmsim-lab tape diff``: how two recorded runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from llmsim_lab.cli.columns import heading
from llmsim_lab.cli.output import console, literal, say
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.tape import Changes, RunInfo
from llmsim_lab.llm.tape.changes import flat
from llmsim_lab.prompts import PromptDiff
from llmsim_lab.runs._registry import kind_name
from llmsim_lab.runs._run import series_on
from llmsim_lab.text import clip, number

__all__ = ["show_differences"]

_PARTS = ("config", "llm", "model", "seed", "given", "package", "git", "python", "platform")
_MAX_COMPARED_CHARS = 50_000
_MOST_SHOWN = 4


def show_differences(tape: Tape, a: RunInfo, b: RunInfo) -> None:
    """Print how two runs differ: what defines them, their prompts, where they led."""
    say(f"Run {a.id} ({a.name}) and run {b.id} ({b.name})", style="bold")
    kinds = kind_name(a.manifest), kind_name(b.manifest)
    if kinds[0] != kinds[1]:
        say(f"They are of different kinds: {kinds[0]} and {kinds[1]}")
    changed = list(_changes(a.manifest, b.manifest))
    for line in changed or ["Configuration, model and versions are the same."]:
        say(line)
    _show_prompts(a, b)
    _show_what_was_done(tape, a, b)
    _show_trajectories(tape, a, b)


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    before, after = (flat({name: run.get(name) for name in _PARTS}) for run in (a, b))
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, "(none)"), after.get(name, "(none)")
        if was != now:
            yield f"{name}: {clip(was, 200)} -> {clip(now, 200)}"


def _show_prompts(a: RunInfo, b: RunInfo) -> None:
    """Print word diffs of the prompts; parts whose prompts changed alike are named together."""
    before, after = a.manifest["prompts"], b.manifest["prompts"]
    changed: dict[tuple[str, str], list[str]] = {}
    for place in sorted(before.keys() | after.keys()):
        if place not in before or place not in after:
            say(f"{place}: only run {a.id if place in before else b.id} has a prompt for it")
        elif before[place]["digest"] != after[place]["digest"]:
            texts = before[place]["text"], after[place]["text"]
            changed.setdefault(texts, []).append(place)
    for (was, now), places in changed.items():
        say(f"The prompt of {', '.join(places)} differs:", style="bold")
        too_long = max(len(was), len(now)) > _MAX_COMPARED_CHARS
        say("(too long to compare word by word)" if too_long else PromptDiff(was, now))
    if not changed:
        say("The prompts that both have are the same.")


def _show_what_was_done(tape: Tape, a: RunInfo, b: RunInfo) -> None:
    """Print what was done from outside to one of them only, and where a fork changed the state."""
    changes = Changes(tape)
    for run, other in ((a, b), (b, a)):
        for line in changes.outside(run.id, other.id):
            say(f"From outside, run {run.id} only: {line}")
        for line in changes.state(run.id) if run.parent == other.id else ():
            say(f"Run {run.id} began from another {line}")


def _show_trajectories(tape: Tape, a: RunInfo, b: RunInfo) -> None:
    try:
        frame = tape.compare(a.id, b.id)
    except TapeError as error:
        say(error)
        return
    differences = frame.xs("difference", axis=1, level=1).drop(columns="seconds", errors="ignore")
    apart: Any = differences.ne(0) & differences.notna()
    names = [str(name) for name in differences.columns if apart[name].any()]
    if not names:
        say(f"Turns {frame.index.min()} to {frame.index.max()}, which both have, led to the same.")
        return
    first = apart.index[apart.any(axis=1)][0]
    say(f"Their trajectories part at turn {first}, in: {', '.join(names)}", style="bold")
    labels = {item.column: heading(item) for item in series_on(tape, a)[:_MOST_SHOWN]}
    shown = [name for name in labels if name in names]
    if not shown:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("turn", justify="right")
    for name in shown:
        table.add_column(literal(f"{labels[name]}, run {a.id} -> {b.id}"), justify="right")
    for turn, row in frame.loc[first:].iterrows():
        cells = [f"{number(row[name, 'a'])} -> {number(row[name, 'b'])}" for name in shown]
        table.add_row(literal(turn), *map(literal, cells))
    console.print(table)
