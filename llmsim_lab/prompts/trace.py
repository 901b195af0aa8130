"""Where values land in a filled template: it is filled once more with marks around each value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from llmsim_lab.prompts.fill import environment, find_slots

__all__ = ["Place", "Trace", "compile_trace"]

Place = tuple[str, int, int]
"""The slot, or several with commas between, and where its value starts and ends."""

Trace = Callable[[Mapping[str, object], str], list[Place] | None]

_MARK = "mark of a slot"
"""A name that no template can write."""

_PRIVATE = 0xF0000
"""The first of the characters that mean nothing; a prompt that has some is given others."""


@lru_cache(maxsize=256)
def compile_trace(text: str) -> Trace:
    """Return a function from the slots' values and the filled text to where the values are in it.

    What an expression prints belongs to the slots it mentions, also through the names of loops and
    assignments; what only decides whether some text is there has no place. None means that the
    values do not give that text: they have changed since.

    Args:
        text: the template.
    """
    template = _marking().parse(text)
    labels = _mark_outputs(template, _Names(template, find_slots(text)))
    filled = _marking().from_string(template)

    def trace(values: Mapping[str, object], text: str) -> list[Place] | None:
        marks = _unused_characters(text)
        found, places = _without_marks(filled.render({**values, _MARK: marks}), marks, labels)
        return places if found == text else None

    return trace


@cache
def _marking() -> ImmutableSandboxedEnvironment:
    made = environment().overlay()
    made.filters = {**made.filters, _MARK: _marked}
    return made


@jinja2.pass_context
def _marked(context: Context, value: object, label: int) -> str:
    opening, middle, closing = context[_MARK]
    return f"{opening}{label}{middle}{value!s}{closing}"


def _unused_characters(text: str) -> str:
    used = set(text)
    unused = (c for code in range(_PRIVATE, 0x110000) if (c := chr(code)) not in used)
    return next(unused) + next(unused) + next(unused)


class _Names:
    """Which slots the names in a template stand for."""

    def __init__(self, template: nodes.Template, slots: Iterable[str]) -> None:
        self._slots: dict[str, tuple[str, ...]] = {slot: (slot,) for slot in slots}
        for loop in template.find_all(nodes.For):
            self._derive(loop.target, loop.iter)
        for assignment in template.find_all(nodes.Assign):
            self._derive(assignment.target, assignment.node)

    def _derive(self, target: nodes.Node, origin: nodes.Node) -> None:
        slots = self.of(origin)
        for name in _names_in(target):
            self._slots.setdefault(name, slots)

    def of(self, node: nodes.Node) -> tuple[str, ...]:
        """Return the slots that an expression mentions, in order."""
        mentioned = [slot for name in _names_in(node) for slot in self._slots.get(name, ())]
        return tuple(dict.fromkeys(mentioned))


def _names_in(node: nodes.Node) -> list[str]:
    own = [node.name] if isinstance(node, nodes.Name) else []
    return own + [name.name for name in node.find_all(nodes.Name)]


def _mark_outputs(template: nodes.Template, names: _Names) -> list[str]:
    """Put a filter around the expressions that print slots; returns what to call each."""
    labels: list[str] = []
    for output in template.find_all(nodes.Output):
        for place, node in enumerate(output.nodes):
            slots = () if isinstance(node, nodes.TemplateData) else names.of(node)
            if slots:
                label = nodes.Const(len(labels))
                output.nodes[place] = nodes.Filter(node, _MARK, [label], [], None, None)
                labels.append(", ".join(slots))
    return labels


def _without_marks(text: str, marks: str, labels: list[str]) -> tuple[str, list[Place]]:
    """Return the text as it was, and the places of the innermost marked values."""
    opening, middle, closing = tuple(marks)
    plain: list[str] = []
    length = 0
    places: list[Place] = []
    opened: list[tuple[str, int, int]] = []
    for part in re.split(f"({opening}\\d+{middle}|{closing})", text):
        if part == closing:
            name, start, before = opened.pop()
            if len(places) == before:
                places.append((name, start, length))
        elif part.startswith(opening):
            opened.append((labels[int(part[1:-1])], length, len(places)))
        else:
            plain.append(part)
            length += len(part)
    return "".join(plain), places
