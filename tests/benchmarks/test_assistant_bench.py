"""The benchmark of the decision engine runs and writes figures; its speed is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]


def test_every_kind_of_message_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "assistant_bench.json"
    script = REPO / "benchmarks" / "assistant_bench.py"
    command = [sys.executable, str(script), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    figures = json.loads(out.read_text(encoding="utf-8"))["us_per_message"]
    assert {"answer", "one tool", "confirmation asked", "confirmed"} < set(figures)
    assert len(figures) == 7
    assert min(figures.values()) > 0
