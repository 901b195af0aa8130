"""Nothing in the tree names the machine it was made on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

# Written in pieces, so that this file passes its own test.
MACHINE = re.compile(
    r"(?<![\w.~$}-])/(?:" + "|".join(("home", "Users")) + r")/\w"
    r"|(?<![\w.~$}-])/(?:" + "|".join(("root", "work", "farm")) + r")(?:/|\b(?=[\"'`\s:]))"
)
REGISTRY = re.compile(
    "|".join(
        re.escape(host)
        for host in (
            "pypi" + ".org",
            "files.python" + "hosted.org",
            "registry.npm" + "js.org",
            "deb.debian" + ".org",
        )
    )
)


def faults_in(text: str) -> list[str]:
    """Return what must not stand in a file, each with its line."""
    return [
        f"line {number}: {match.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern in (MACHINE, REGISTRY)
        for match in pattern.finditer(line)
    ]


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def test_no_file_holds_a_machine_path_or_a_registry_host(repo: Path, files: list[Path]) -> None:
    assert len(files) > 20, "the list of files is all but empty"
    found = {
        str(path.relative_to(repo)): faults
        for path in files
        if path.name != "uv.lock" and (faults := faults_in(text_of(path)))
    }
    assert found == {}


def test_the_lock_names_the_public_registry_and_no_other(repo: Path) -> None:
    public = {"pypi" + ".org", "files.python" + "hosted.org"}
    lock = (repo / "uv.lock").read_text(encoding="utf-8")
    assert set(re.findall(r"\w+://([^/\"]*)", lock)) == public


def test_notebooks_hold_no_errors_no_times_and_no_state_of_widgets(files: list[Path]) -> None:
    notebooks = {path: json.loads(text_of(path)) for path in files if path.suffix == ".ipynb"}
    assert notebooks, "no notebook found"
    for path, notebook in notebooks.items():
        assert "widgets" not in notebook["metadata"], path
        for cell in notebook["cells"]:
            assert "execution" not in cell["metadata"], path
            for output in cell.get("outputs", []):
                assert output["output_type"] != "error", path
                assert output.get("name") != "stderr", path


@pytest.mark.parametrize(
    "line",
    [
        "see " + "/ho" + "me/ann/runs",
        'File "' + "/ro" + 'ot/.venv/x.py"',
        "cd " + "/wo" + "rk/main",
        "https://" + "pypi" + ".org/simple",
    ],
)
def test_the_search_finds_what_it_is_for(line: str) -> None:
    assert faults_in(f"first\n{line}")[0].startswith("line 2: ")


@pytest.mark.parametrize(
    "line", ["docs/work/x.md", "$HOME/root/x", "https://example.org/home/x", "~/work/", "a/root/b"]
)
def test_the_search_leaves_other_paths_alone(line: str) -> None:
    assert faults_in(line) == []
