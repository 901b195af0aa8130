"""The constitution is a Markdown file whose sections are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsim_lab.assistant import load_constitution
from llmsim_lab.errors import PromptError

GOOD = """\
# House rules

## Available Tools
- look: Look around

### Behavioral rules:
1. Be kind

## Response Guidelines ##
- Be brief
"""
CONTRACTS = """
- delete_task: Remove tasks (requires confirmation)
1. Only use tools when the user clearly wants a task operation
5. Stay focused on task management - politely decline off-topic requests
- Never expose internal details or tool names to users
"""


def test_the_shipped_constitution_has_the_contracts_words_and_sections(tmp_path: Path) -> None:
    assert [line for line in CONTRACTS.splitlines() if line not in load_constitution()] == []
    (tmp_path / "same.md").write_text(load_constitution())
    assert load_constitution(tmp_path / "same.md") == load_constitution()


def test_a_missing_section_is_named_and_headings_are_written_as_markdown_allows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rules.md"
    path.write_text(f"\ufeff{GOOD}", encoding="utf-8")
    assert load_constitution(path) == GOOD.strip()
    path.write_text(GOOD.replace("Available", "Our").replace("Response Guidelines", "Style"))
    missing = "no section Available Tools, Response Guidelines; a constitution needs"
    with pytest.raises(PromptError, match=f"rules.md: {missing}"):
        load_constitution(path)
    with pytest.raises(PromptError, match="cannot read the constitution"):
        load_constitution(tmp_path / "none.md")
