"""A recorded tape, made once; each test that changes one takes a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tape_tools_kit import record


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tape of three runs, not to be changed."""
    return record(tmp_path_factory.mktemp("tape") / "runs.tape")


@pytest.fixture
def tape_file(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, to change."""
    return Path(shutil.copy(recorded, tmp_path / "copy.tape"))
