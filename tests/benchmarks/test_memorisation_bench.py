"""How often each player is flagged as recalling history is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.process
def test_each_player_has_a_share(tmp_path: Path) -> None:
    out = tmp_path / "memorisation.json"
    script = REPO / "benchmarks" / "memorisation.py"
    command = [sys.executable, str(script), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    figures = json.loads(out.read_text(encoding="utf-8"))
    shares = {row["player"]: row["flagged"] for row in figures["cells"]}
    assert len(shares) == 7
    assert shares["recalls dates"] == 1
    assert shares["holds"] == 0


def test_the_committed_figures_are_those_that_were_promised() -> None:
    figures = json.loads((REPO / "benchmarks" / "memorisation.json").read_text(encoding="utf-8"))
    shares = {row["player"]: row["flagged"] for row in figures["cells"]}
    assert figures["starts"] == 20
    for player in ("recalls dates", "recalls figures"):
        assert shares[player] >= 0.9
    for player in ("Taylor rule", "Taylor rule, inertia 0.8", "holds", "draws at random"):
        assert shares[player] <= 0.05
