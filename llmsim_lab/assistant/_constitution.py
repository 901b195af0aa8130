"""The assistant's constitution: a prompt file whose sections are checked on loading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from llmsim_lab.assistant._types import ToolDeclaration
from llmsim_lab.errors import PromptError
from llmsim_lab.prompts import Prompt

SECTIONS = ("Available Tools", "Behavioral Rules", "Response Guidelines")
"""The sections that a constitution must have."""

_TASK_TOOLS = """\
- add_task: Create new tasks
- list_tasks: View user's tasks
- update_task: Modify task descriptions
- complete_task: Mark tasks as done
- delete_task: Remove tasks (requires confirmation)"""

_HEADING = re.compile(
    rf"^ {{0,3}}#{{1,6}}\W*({'|'.join(SECTIONS)})\W*?$", re.MULTILINE | re.IGNORECASE
)


def load_constitution(
    path: str | Path | None = None, *, tools: Sequence[ToolDeclaration] | None = None
) -> str:
    """Return a constitution's text, for ``LLMAgentEngine``.

    Args:
        path: your own Markdown file; the shipped one if not given. A slot ``tools`` in it is
            filled.
        tools: the tools to list; the task tools if not given.

    Raises:
        PromptError: the file cannot be read, or a section is missing or empty.
    """
    if path is None:
        prompt = Prompt.load("constitution")
    else:
        try:
            text = Path(path).read_text(encoding="utf-8-sig")  # some editors write a mark of order
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"cannot read the constitution {path}: {error}") from error
        prompt = Prompt("{{ message }}", system=text.strip(), name=Path(path).stem)
    listed = _TASK_TOOLS
    if tools is not None:
        lines = [f"- {t.name}: {' '.join(t.description.strip().splitlines()[:1])}" for t in tools]
        listed = "\n".join(lines) or "(There are no tools at present.)"
    values = {"tools": listed, "message": ""}  # only the system message is used, but all is filled
    text = prompt.render(**{slot: values[slot] for slot in prompt.slots if slot in values}).system
    parts = _HEADING.split(text)
    bodies = dict(zip(map(str.lower, parts[1::2]), map(str.strip, parts[2::2]), strict=True))
    if faulty := [title for title in SECTIONS if not bodies.get(title.lower())]:
        needed = ", ".join(f"'## {title}'" for title in SECTIONS)
        raise PromptError(
            f"{path or 'the constitution'}: nothing under {', '.join(faulty)}; a constitution "
            f"needs the sections {needed}"
        )
    return text
