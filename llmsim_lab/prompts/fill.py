"""Templates: which slots a text has, and a function that fills them.

With ``trace``, the only module that imports Jinja2; ``prompt`` imports it when the first prompt is
made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import jinja2
from jinja2 import meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["Fill", "TemplateFault", "compile_template", "environment", "find_slots", "split"]

Fill = Callable[[Mapping[str, object]], str]


class TemplateFault(ValueError):  # noqa: N818 - a finding, which becomes a PromptError
    """What is wrong with a template or its filling."""


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """Return what templates run in: Jinja2's sandbox, strict about values that are not there."""
    made = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)
    # No built-in names, which a slot of the same name would silently become, and no chance.
    made.globals.clear()
    del made.filters["random"]
    return made


def find_slots(text: str) -> set[str]:
    """Return the names of the values that a template wants.

    Raises:
        TemplateFault: a syntax error; the message names the line.
    """
    try:
        return meta.find_undeclared_variables(environment().parse(text))
    except jinja2.TemplateSyntaxError as error:
        raise TemplateFault(f"line {error.lineno}: {error.message}") from error


def compile_template(text: str) -> Fill:
    """Return a function from the slots' values to the filled text.

    A template of nothing but text and bare slots, as most are, is filled by one ``%`` with the same
    result as Jinja2's in a tenth of the time; any other by Jinja2, whose errors become
    ``TemplateFault``.
    """
    pieces = _pieces(environment().parse(text))
    if pieces is not None:
        pattern = "".join(
            f"%({piece})s" if is_slot else piece.replace("%", "%%") for is_slot, piece in pieces
        )
        return lambda values: pattern % values
    template = environment().from_string(text)

    def fill(values: Mapping[str, object]) -> str:
        try:
            return template.render(values)
        except jinja2.TemplateError as error:
            raise TemplateFault(str(error)) from error

    return fill


def _pieces(template: nodes.Template) -> list[tuple[bool, str]] | None:
    """Return text and names of slots in turn, or None if the template holds more than those."""
    pieces = []
    for output in template.body:
        if not isinstance(output, nodes.Output):
            return None
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                pieces.append((False, node.data))
            elif isinstance(node, nodes.Name):
                pieces.append((True, node.name))
            else:
                return None
    return pieces


def split(text: str) -> tuple[list[str], list[str]] | None:
    """Return a template's fixed pieces and, one fewer, the slots between them.

    None for a template of more than text and bare slots.
    """
    pieces = _pieces(environment().parse(text))
    if pieces is None:
        return None
    fixed, slots = [""], []
    for is_slot, piece in pieces:
        if is_slot:
            slots.append(piece)
            fixed.append("")
        else:
            fixed[-1] += piece
    return fixed, slots
