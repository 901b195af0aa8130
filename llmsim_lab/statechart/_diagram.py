"""A statechart as text: for Mermaid, which JupyterLab draws, and as a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from llmsim_lab._util.html import visible

_PLAIN_ID = re.compile(r"[A-Za-z]+(_[A-Za-z]+)*")
_MERMAID_WORDS = re.compile(
    "as|choice|class|classdef|click|constructor|default|direction|end|fork|hide|href|join|note|of|"
    "prototype|scale|state|style",
    re.IGNORECASE,
)
"""Words that a state of a Mermaid diagram cannot be called."""


class Arrow(NamedTuple):
    """A transition: ``label`` is its trigger and guard, ``action`` the action's name or empty."""

    source: str
    target: str
    label: str
    action: str = ""

    @property
    def full_label(self) -> str:
        """Trigger, guard and action, as UML writes them."""
        return f"{self.label} / {self.action}" if self.action else self.label

    def __str__(self) -> str:
        return f"{self.source} --{self.label}--> {self.target}"


@dataclass(frozen=True, slots=True)
class Diagram:
    """What is written of a chart; names may be any texts, also untrusted ones."""

    states: tuple[str, ...]
    initial: str
    final: frozenset[str]
    arrows: tuple[Arrow, ...]

    def mermaid(self) -> str:
        """Return a Mermaid state diagram."""
        # JupyterLab makes the title the picture's text for those who cannot see it.
        title = f"Statechart of {len(self.states)} states and {len(self.arrows)} transitions"
        lines, ids = ["stateDiagram-v2", f"    accTitle: {title}"], {s: s for s in self.states}
        if not all(
            _PLAIN_ID.fullmatch(name) and not _MERMAID_WORDS.fullmatch(name) for name in ids
        ):
            # Mermaid takes plain words only; other names are titles of numbered states.
            ids = {state: f"s{number}" for number, state in enumerate(self.states)}
            lines += [f'    state "{_mermaid_text(state)}" as {ids[state]}' for state in ids]
        lines.append(f"    [*] --> {ids[self.initial]}")
        lines += [
            f"    {ids[arrow.source]} --> {ids[arrow.target]} : {_mermaid_text(arrow.full_label)}"
            for arrow in self.arrows
        ]
        lines += [f"    {ids[state]} --> [*]" for state in self.states if state in self.final]
        return "\n".join(lines) + "\n"

    def table(self) -> str:
        """Return the transitions as lines of text, in columns."""
        header = ("from", "trigger", "to")
        rows = [header, *((it.source, it.full_label, it.target) for it in self.arrows)]
        shown = [[" ".join(visible(text).split()) for text in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            for row in shown
        ]
        return "\n".join(line.rstrip() for line in lines)


def _mermaid_text(text: str) -> str:
    """Return a text that Mermaid shows and does not obey: codes such as ``#59;`` for a ``;``."""
    return "".join(
        letter if letter.isalnum() or letter in " _-.,()[]/'" else f"#{ord(letter)};"
        for letter in " ".join(visible(text).split())
    )
