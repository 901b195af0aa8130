"""The assistant's constitution: a Markdown file whose sections are checked on loading."""

from __future__ import annotations

from pathlib import Path

from llmsim_lab._util.files import as_path, bounded_text
from llmsim_lab.errors import PromptError
from llmsim_lab.prompts import Prompt

SECTIONS = ("Available Tools", "Behavioral Rules", "Response Guidelines")
"""The sections that a constitution must have."""


def load_constitution(path: str | Path | None = None) -> str:
    """Return a constitution's text, for ``LLMAgentEngine``.

    Args:
        path: your own Markdown file; the shipped one, for the task tools, if not given.

    Raises:
        PromptError: the file cannot be read, or a section is missing.
    """
    if path is None:
        return Prompt.load("constitution").system
    try:
        # Some editors write a mark of order.
        text = bounded_text(as_path("path", path), 2**20, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"cannot read the constitution {path}: {error}") from error
    heading_lines = [line for line in text.splitlines() if line.startswith("#")]
    # Of any level and emphasis: "### **Available Tools:**" is the section too.
    headings = [line.strip("#*: \t").lower() for line in heading_lines]
    missing = [title for title in SECTIONS if title.lower() not in headings]
    if missing:
        needed = ", ".join(f"'## {title}'" for title in SECTIONS)
        raise PromptError(
            f"{path}: no section {', '.join(missing)}; a constitution needs the sections {needed}"
        )
    return text.strip()
