"""The coverage of the gate's intervals is measured for each player and criterion."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]


def test_each_player_has_a_row_for_each_criterion(tmp_path: Path) -> None:
    out = tmp_path / "coverage_gate.json"
    script = REPO / "benchmarks" / "coverage_gate.py"
    command = [sys.executable, str(script), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    rows = json.loads(out.read_text(encoding="utf-8"))["cells"]
    cells = {(row["player"], row["criterion"]): row for row in rows}
    assert len(cells) == len(rows) == 30
    assert cells["Taylor rule", "direction"]["pass"] == 1
    assert cells["draws at random", "direction"]["fail"] == 1
    for row in rows:
        assert row["pass"] + row["fail"] + row["undecided"] == pytest.approx(1)
