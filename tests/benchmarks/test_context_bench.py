"""The benchmark of prompts runs and writes figures that make sense; its speed is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the quick benchmark once."""
    out = tmp_path_factory.mktemp("bench") / "context_bench.json"
    script = REPO / "benchmarks" / "context_bench.py"
    command = [sys.executable, str(script), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=out.parent)
    written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return written


def test_every_size_is_measured_in_every_order(figures: dict[str, Any]) -> None:
    assert set(figures["us_per_prompt"]) == {"usual", "stable_first"}
    for sizes in figures["us_per_prompt"].values():
        assert list(sizes) == ["2", "4"]
        assert min(sizes.values()) > 0


def test_five_modules_are_used_and_the_prompt_has_its_sections(figures: dict[str, Any]) -> None:
    assert len(figures["modules"]) == 5
    assert figures["prompt"]["sections"] >= 7
    assert figures["prompt"]["characters"] > 1000
