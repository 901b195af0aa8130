"""The chart's benchmark runs and writes figures that make sense; how fast it is, is not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]


def test_the_quick_benchmark_draws_and_follows(tmp_path: Path) -> None:
    out = tmp_path / "chart_bench.json"
    script = str(REPO / "benchmarks" / "chart_bench.py")
    done = subprocess.run(
        [sys.executable, script, "--quick", "--out", str(out)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "120"},
    )
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert list(figures["drawing"]) == ["2", "5"]
    for its in figures["drawing"].values():
        assert 0 < its["redraw_ms"] <= its["redraw_ms_worst"]
    assert 1 <= figures["following"]["drawn"] <= figures["following"]["turns"] + 1
    assert "redraw, 4 runs of 5 turns" in done.stdout
