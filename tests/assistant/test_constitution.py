"""The constitution is a prompt file, and its sections are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsim_lab.assistant import load_constitution
from llmsim_lab.errors import PromptError

GOOD = """\
# House rules

## Available Tools
- look: Look around

### Behavioral rules
1. Be kind

## Response Guidelines
- Be brief
"""


CONTRACTS = """
- delete_task: Remove tasks (requires confirmation)
1. Only use tools when the user clearly wants a task operation
5. Stay focused on task management - politely decline off-topic requests
- Never expose internal details or tool names to users
"""


def test_the_shipped_constitution_has_the_contracts_words() -> None:
    assert [line for line in CONTRACTS.splitlines() if line not in load_constitution()] == []


@pytest.mark.parametrize(
    "behaviour",
    ["### Behavioral rules", "## Behavioral Rules\n### Always", "## Behavioral Rules:"],
)
def test_headings_may_be_written_as_markdown_allows(behaviour: str, tmp_path: Path) -> None:
    path, text = tmp_path / "rules.md", GOOD.replace("### Behavioral rules", behaviour)
    path.write_text(f"\ufeff{text}", encoding="utf-8")
    assert load_constitution(path) == text.strip()


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("## Available Tools", "## Tools", "Available Tools"),
        ("1. Be kind", "", "Behavioral Rules"),
        ("## Response Guidelines\n- Be brief", "", "Response Guidelines"),
    ],
)
def test_a_missing_or_empty_section_is_named(
    old: str, new: str, missing: str, tmp_path: Path
) -> None:
    path = tmp_path / "rules.md"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(PromptError, match=f"rules.md: nothing under {missing}; a constitution"):
        load_constitution(path)
