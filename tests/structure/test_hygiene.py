"""Nothing in the tree names the machine it was made on."""

from __future__ import annotations

import json
import re
from pathlib import Path

# Written in pieces, so that this file passes its own test.
HOMES = "|".join(("home", "Users"))
ROOTS = "|".join(("root", "work", "farm"))
# The slash first: Python finds a character far faster than a place before which others are not.
MACHINE = re.compile(rf"/(?<![\w.~$}}-]/)(?:(?:{HOMES})/\w|(?:{ROOTS})(?:/|\b(?=[\"'`\s:])))")
HOSTS = ("pypi" + ".org", "files.python" + "hosted.org", "registry.npm" + "js.org")
REGISTRY = re.compile("|".join(map(re.escape, (*HOSTS, "deb.debian" + ".org"))))


def faults_in(text: str) -> list[str]:
    """Return what must not stand in a file, each with its line."""
    return [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for pattern in (MACHINE, REGISTRY)
        for match in pattern.finditer(text)
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
    lock = (repo / "uv.lock").read_text(encoding="utf-8")
    assert set(re.findall(r"\w+://([^/\"]*)", lock)) == set(HOSTS[:2])


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


def test_the_search_finds_what_it_is_for_and_leaves_other_paths_alone() -> None:
    bad = ["see " + "/ho" + "me/ann/x", 'File "' + "/ro" + 'ot/x.py"', "cd " + "/wo" + "rk/main"]
    bad += ["https://" + "pypi" + ".org/simple"]
    good = ["docs/work/x.md", "$HOME/root/x", "https://example.org/home/x", "~/work/", "a/root/b"]
    assert [bool(faults_in(line)) for line in bad + good] == [True] * 4 + [False] * 5
