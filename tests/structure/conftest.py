"""The tree as the structural tests see it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Every file of the project, committed or about to be, sorted."""
    if not (REPO / ".git").exists():
        pytest.skip("needs the list of files that git keeps")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPO, capture_output=True, check=True, text=True)
    found = (REPO / name for name in listed.stdout.split("\0") if name)
    return sorted(path for path in found if path.is_file())


@pytest.fixture(scope="session")
def repo() -> Path:
    return REPO


@pytest.fixture
def clone(tmp_path: Path, files: list[Path]) -> Path:
    """A copy of the project as a new clone would have it; its path contains a space."""
    copy = tmp_path / "a clone"
    for path in files:
        target = copy / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return copy
