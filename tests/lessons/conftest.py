"""Hand-ins without processes: their code runs here."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from lessons_kit import STARTED, WORLD, SameProcess

from llmsim_lab.lessons import answers, grading, notebooks, round_robin


@pytest.fixture
def same_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SameProcess]]:
    """Run hand-ins in this process; returns those that a test started."""
    STARTED.clear()
    for module in (grading, notebooks, round_robin):
        monkeypatch.setattr(module, "LimitedProcess", SameProcess)
    monkeypatch.setattr(answers, "recorded", [])
    monkeypatch.setattr(answers, "is_recording", False)
    monkeypatch.setattr(answers, "COST", 2)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield STARTED
    # A hand-in's world is imported by its name, also the next one's.
    sys.modules.pop(WORLD.stem, None)
