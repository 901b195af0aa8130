"""The assistant's constitution: a prompt file whose sections are checked on loading."""

from __future__ import annotations

import re
from pathlib import Path

from llmsim_lab.errors import PromptError
from llmsim_lab.prompts import Prompt

SECTIONS = ("Available Tools", "Behavioral Rules", "Response Guidelines")
"""The sections that a constitution must have."""

_HEADING = re.compile(
    rf"^ {{0,3}}#{{1,6}}\W*({'|'.join(SECTIONS)})\W*?$", re.MULTILINE | re.IGNORECASE
)


def load_constitution(path: str | Path | None = None) -> str:
    """Return a constitution's text, for ``LLMAgentEngine``.

    Args:
        path: your own Markdown file; the shipped one, for the task tools, if not given.

    Raises:
        PromptError: the file cannot be read or has slots, or a section is missing or empty.
    """
    if path is None:
        prompt = Prompt.load("constitution")
    else:
        try:
            text = Path(path).read_text(encoding="utf-8-sig")  # some editors write a mark of order
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"cannot read the constitution {path}: {error}") from error
        prompt = Prompt("{{ message }}", system=text.strip(), name=Path(path).stem)
    text = prompt.render(message="").system
    parts = _HEADING.split(text)
    bodies = dict(zip(map(str.lower, parts[1::2]), map(str.strip, parts[2::2]), strict=True))
    if faulty := [title for title in SECTIONS if not bodies.get(title.lower())]:
        needed = ", ".join(f"'## {title}'" for title in SECTIONS)
        raise PromptError(
            f"{path or 'the constitution'}: nothing under {', '.join(faulty)}; a constitution "
            f"needs the sections {needed}"
        )
    return text
