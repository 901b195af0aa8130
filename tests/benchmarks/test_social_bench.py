"""The social benchmarks run and give the figures they promise."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(BENCHMARKS / f"{name}.py"))


def test_the_bench_by_rule_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    out = tmp_path / "out.json"
    script("social_bench")["main"](["--quick", "--out", str(out)])
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert figures["rounds_per_cpu_second"].keys() == {"10", "20"}
    assert all(rate > 0 for rate in figures["rounds_per_cpu_second"].values())
    assert 0 < figures["share_of_moves_that_need_a_decision"]["20"] < 1
    assert {"growth_with_users", "growth_with_rounds"} <= figures.keys()
    assert "The social simulation by rule" in capsys.readouterr().out
