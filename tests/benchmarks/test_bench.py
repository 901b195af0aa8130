"""The benchmark runs and writes figures that make sense; how fast anything is, is not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]
SIZES = ["1x5", "2x5", "4x5", "2x10"]


def test_the_quick_benchmark_measures_and_shows_each_size_beside_its_target(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    done = subprocess.run(
        [sys.executable, str(REPO / "benchmarks" / "bench.py"), "--quick", "--out", str(out)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "120"},
    )
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert set(figures["machine"]["versions"]) == {"llmsim-lab", "ollama", "pydantic"}
    cpu, tape = figures["cpu"], figures["tape"]
    for kind in ("us_per_call", "us_per_call_mean"):
        assert list(cpu[kind]) == SIZES
        assert all(0 < micros < 1e6 for micros in cpu[kind].values())
    ratio = cpu["us_per_call"]["2x10"] / cpu["us_per_call_bare_loop"]
    assert cpu["ratio_to_bare_loop"] == pytest.approx(ratio, rel=0.02)
    difference = tape["us_per_call_recorded"] - tape["us_per_call_without"]
    assert tape["us_per_call_added"] == pytest.approx(difference, abs=0.02)
    assert tape["calls"] == 3 * 2 * 10
    shares = figures["read_back_pct_of_turn"]
    assert len(shares) == 6
    assert all(0 < share < 100 for share in shares.values())
    assert figures["import"]["ratio"] > 0
    assert all(f"CPU per model call, {size} agents x turns" in done.stdout for size in SIZES)
    assert "< 40 µs" in done.stdout
