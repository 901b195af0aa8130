"""A tape's runs and forks as a tree, for the terminal and for a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence

from llmsim_lab.llm.tape.codec import RunInfo
from llmsim_lab.text import clip, printable

__all__ = ["RunTree"]

_MAX_TEXT = 60
_MAX_CHANGES = 160


class RunTree:
    """Runs with what was made of them below, forks and reruns, and what each changed.

    Args:
        runs: the tape's runs.
        title: what stands above them.
        changes: what each changed, by its number.

    Attributes:
        lines: the tree, a line each; texts from the tape without control characters.
        runs: the runs in the order of their lines, which begin after the title.
    """

    def __init__(
        self,
        runs: Iterable[RunInfo],
        *,
        title: str,
        changes: Callable[[int], Sequence[str]] = lambda _: (),
    ) -> None:
        runs = list(runs)
        numbers = {info.id for info in runs}
        below: dict[int | None, list[RunInfo]] = {}
        for info in runs:
            # A parent came first; else the tape is damaged, and the run stands by itself.
            known = info.parent in numbers and info.parent is not None and info.parent < info.id
            below.setdefault(info.parent if known else None, []).append(info)
        found = _lines(below, changes)
        self.lines: tuple[str, ...] = (printable(title), *(line for _, line in found))
        self.runs: tuple[RunInfo, ...] = tuple(info for info, _ in found)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _lines(
    below: dict[int | None, list[RunInfo]], changes: Callable[[int], Sequence[str]]
) -> Sequence[tuple[RunInfo, str]]:
    lines = []
    # Runs still to be written, the next one last: with the indent and whether it is the last one.
    todo = [(info, "", True, True) for info in reversed(below.get(None, []))]
    while todo:
        info, indent, last, top = todo.pop()
        branch, inside = ("", "") if top else ("└─ ", "   ") if last else ("├─ ", "│  ")
        lines.append((info, f"{indent}{branch}{_line(info, changes(info.id))}"))
        children = below.get(info.id, [])
        todo += [
            (child, indent + inside, place == 0, False)
            for place, child in enumerate(reversed(children))
        ]
    return lines


def _line(info: RunInfo, changed: Sequence[str]) -> str:
    verb = info.verb if info.fork_turn is None else f"{info.verb} at turn {info.fork_turn}"
    first = 1 if info.fork_turn is None else info.fork_turn + 1
    turns = f"turns {first} to {info.turns}" if info.turns >= first else "no turn yet"
    if info.verb == "experiment":
        turns = f"{info.turns} sample{'' if info.turns == 1 else 's'}"
    parts = [info.name, verb, turns, info.outcome or "open", info.model or "no model"]
    said = [clip(printable(part), _MAX_TEXT) for part in parts]
    if changed:
        said.insert(2, clip(printable("; ".join(changed)), _MAX_CHANGES))
    return f"{info.id} {' · '.join(said)}"
