"""Where commands print, and how: a stranger's text has no markup and no control codes."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from llmsim_lab.text import printable

__all__ = ["console", "errors", "literal", "say"]

console = Console()
errors = Console(stderr=True)


def literal(text: object) -> Text:
    """Return a model's or a tape's text for a table: no markup, no terminal control codes."""
    return Text(printable(str(text)))


def say(text: object, *, style: str = "", to: Console = console) -> None:
    """Print text as it is, lines kept: no markup, no terminal control codes."""
    plain = printable(str(text), keep="\n\t")
    to.print(plain, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)
