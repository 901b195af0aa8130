"""The tree as the structural tests see it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
# Without git (an unpacked archive): what .gitignore names, and nothing else, is left out.
_LEFT_OUT = {".git", ".venv", "__pycache__", "build", "dist", "out", "htmlcov", "bench.json"}
_LEFT_OUT |= {".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache", "coverage.xml"}


def project_files() -> list[Path]:
    """Return every file of the project, committed or about to be, sorted."""
    if shutil.which("git") and (REPO / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=REPO, capture_output=True, check=True, text=True)
        files = [REPO / name for name in listed.stdout.split("\0") if name]
    else:
        files = [
            path
            for path in REPO.rglob("*")
            if not _LEFT_OUT.intersection(path.relative_to(REPO).parts)
            and not path.name.startswith(".coverage")
            and not any(part.endswith(".egg-info") for part in path.parts)
        ]
    return sorted(path for path in files if path.is_file())


@pytest.fixture(scope="session")
def repo() -> Path:
    return REPO


@pytest.fixture(scope="session")
def files() -> list[Path]:
    return project_files()


@pytest.fixture
def clone(tmp_path: Path, files: list[Path]) -> Path:
    """A copy of the project as a new clone would have it; its path contains a space."""
    copy = tmp_path / "a clone"
    for path in files:
        target = copy / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return copy
