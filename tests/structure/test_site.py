"""What builds the documentation site, and the notes of a release. ``make docs`` builds it."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import pytest
from builders import loaded
from pydantic import Field

REPO = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    return loaded(REPO / "scripts" / f"{name}.py")


@pytest.fixture(scope="module")
def build_docs() -> ModuleType:
    return script("build_docs")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('<a href="other.html#there">x</a>', ""),
        ('<a href="https://example.org">x</a>', ""),
        ('<a href="gone.html">x</a>', "page.html: gone.html is not there"),
        ('<a href="other.html#nowhere">x</a>', "page.html: other.html#nowhere has no such place"),
        ('<img src="gone.png">', "page.html: gone.png is not there"),
        (
            '<script src="https://cdn.example/x.js"></script>',
            "page.html: loads https://cdn.example/x.js from another machine",
        ),
    ],
)
def test_a_link_that_leads_nowhere_and_what_comes_from_elsewhere_are_faults(
    build_docs: ModuleType, tmp_path: Path, line: str, fault: str
) -> None:
    (tmp_path / "page.html").write_text(line)
    (tmp_path / "other.html").write_text('<h2 id="there">There</h2>')
    assert list(build_docs.faults_of(tmp_path)) == [fault] * bool(fault)


def test_settings_have_types_units_and_defaults_as_one_writes_them(build_docs: ModuleType) -> None:
    assert build_docs.type_in_words(Annotated[int, Field(ge=1)] | None) == "int | null"
    assert build_docs.type_in_words(dict[str, Literal["a", "b"]]) == "dict[str, 'a' | 'b']"
    page = build_docs.settings_page()
    for row in (
        r"| `max_tokens` | `int` | tokens | `512` | the longest reply, tokens. |",
        r"| `total_timeout_s` | `float \| null` | seconds | null | the longest time for one reply",
        r"| `start_at` | `str \| null` |  | null | the quarter whose real data",
        r"| `world` | `str` |  | *required* | `economic`, `social`",
    ):
        assert row in page


def test_every_key_says_what_it_does(build_docs: ModuleType) -> None:
    rows = re.findall(r"^\| (`\w+`) \|.*\| (.*) \|$", build_docs.settings_page(), re.MULTILINE)
    assert len(rows) > 100
    assert [key for key, meaning in rows if not meaning.strip()] == []


def test_every_variable_of_the_environment_is_on_the_page(build_docs: ModuleType) -> None:
    sources = "".join(path.read_text("utf-8") for path in (REPO / "llmsim_lab").rglob("*.py"))
    used = set(re.findall(r"\bLLMSIM_[A-Z]+\b", sources))
    assert used == set(re.findall(r"\bLLMSIM_[A-Z]+\b", build_docs.settings_page()))


def test_every_command_is_on_the_page_with_its_options(build_docs: ModuleType) -> None:
    page = build_docs.commands_page()
    headings = set(re.findall(r"^## `llmsim-lab (.*)`$", page, re.MULTILINE))
    assert {"lab", "doctor", "tape show", "model get", "room forget"} <= headings
    assert "--install" in page.partition("## `llmsim-lab doctor`")[2].partition("## ")[0]


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    notes_of = script("release_notes").notes_of
    changelog = (
        "# Changelog\n\n## 1.1.0, 2 May 2027\n\n- New.\n\n## 1.0.0, unreleased\n\n- First.\n"
    )
    assert notes_of("v1.1.0", changelog) == "- New."
    assert notes_of("1.0.0", changelog) == "- First."
    with pytest.raises(ValueError, match=r"no section 2\.0; it has 1\.1\.0, 1\.0\.0"):
        notes_of("2.0", changelog)
