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

_NO_TOOLS = "(There are no tools at present.)"

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+)$", re.MULTILINE)
_AROUND_TITLE = " \t#*_`:"
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_PROMPT_HEADING = re.compile(r"^## User[ \t]*$", re.MULTILINE)


def load_constitution(
    path: str | Path | None = None, *, tools: Sequence[ToolDeclaration] | None = None
) -> str:
    """Return a constitution's text, for ``LLMAgentEngine``.

    Args:
        path: your own Markdown file, either a prompt file, whose system message is taken, or the
            text alone; the shipped one if not given. A slot ``tools`` in it is filled.
        tools: the tools to list; the task tools if not given.

    Raises:
        PromptError: the file cannot be read, or a section is missing or empty.
    """
    if path is None:
        prompt = Prompt.load("constitution")
        name = "the shipped constitution"
    else:
        prompt = _read(Path(path))
        name = str(path)
    if tools is None:
        listed = _TASK_TOOLS
    else:
        listed = "\n".join(f"- {tool.name}: {_first_line(tool)}" for tool in tools) or _NO_TOOLS
    values = {"tools": listed, "message": ""}  # only the system message is used, but all is filled
    if unknown := sorted(set(prompt.slots) - values.keys()):
        raise PromptError(f"{name} has slots that nothing fills: {', '.join(unknown)}")
    text = prompt.render(**{slot: values[slot] for slot in prompt.slots}).system
    check_constitution(text, name=name)
    return text


def check_constitution(text: str, *, name: str = "the constitution") -> None:
    """Check that a constitution has its sections and that none is empty.

    Args:
        text: Markdown.
        name: what to call it in the error.

    Raises:
        PromptError: sections are missing or empty; the message names them.
    """
    bodies = _sections(_COMMENT.sub("", text))  # a section of nothing but a comment is empty
    if faulty := [title for title in SECTIONS if not bodies.get(title.lower())]:
        needed = ", ".join(f"'## {title}'" for title in SECTIONS)
        raise PromptError(
            f"{name}: nothing under {', '.join(faulty)}; a constitution needs the sections {needed}"
        )


def _sections(text: str) -> dict[str, str]:
    """Return the text under each heading, with the headings of lower levels in it.

    A section also ends where another needed section begins, whatever the level of its heading.
    """
    needed = {title.lower() for title in SECTIONS}
    headings = [
        (len(found[1]), found[2].strip(_AROUND_TITLE).lower(), found)
        for found in _HEADING.finditer(text)
    ]
    bodies: dict[str, str] = {}
    for place, (level, title, heading) in enumerate(headings):
        ends = (
            later.start()
            for depth, name, later in headings[place + 1 :]
            if depth <= level or name in needed
        )
        body = text[heading.end() : next(ends, len(text))].strip()
        bodies[title] = bodies.get(title, "") + body
    return bodies


def _read(path: Path) -> Prompt:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"cannot read the constitution {path}: {error}") from error
    # A prompt file has a user's part; any other text is all system message, whatever its headings.
    if _PROMPT_HEADING.search(text):
        return Prompt.parse(text, name=path.stem)
    return Prompt("{{ message }}", system=text.strip(), name=path.stem)


def _first_line(tool: ToolDeclaration) -> str:
    return (tool.description.strip().splitlines() or ["(no description)"])[0]
