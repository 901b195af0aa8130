"""The benchmark of shared choices runs and writes figures; its speed is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]


def test_every_number_of_users_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "choice_bench.json"
    script = REPO / "benchmarks" / "choice_bench.py"
    command = [sys.executable, str(script), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    rows = json.loads(out.read_text(encoding="utf-8"))["a_turn"]
    assert [(row["users"], row["asked"]) for row in rows] == [
        (20, "each user"),
        (20, "by situation"),
        (40, "by situation"),
    ]
    assert rows[0]["calls"] == rows[0]["decisions"] > 0
    assert min(row["cpu_s"] for row in rows) > 0
