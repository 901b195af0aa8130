"""The widgets' benchmark runs and writes figures that make sense; how fast it is, is not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Run the quick benchmark once; return its figures and what it printed."""
    out = tmp_path_factory.mktemp("bench") / "lab_bench.json"
    script = str(REPO / "benchmarks" / "lab_bench.py")
    done = subprocess.run(
        [sys.executable, script, "--quick", "--out", str(out)],
        check=True,
        capture_output=True,
        text=True,
        cwd=out.parent,
        env={**os.environ, "COLUMNS": "120"},
    )
    return json.loads(out.read_text(encoding="utf-8")), done.stdout


@pytest.mark.parametrize("kind", ["rules", "model"])
def test_each_length_of_run_has_its_times_and_what_was_sent(
    run: tuple[dict[str, Any], str], kind: str
) -> None:
    lengths = run[0]["stepper"][kind]
    assert list(lengths) == ["2", "5"]
    for its in lengths.values():
        assert 0 < its["step_ms"] <= its["step_ms_worst"]
        assert its["previous_ms"] > 0
        assert its["sent_kb"] > 1, "nothing was sent to the browser"


@pytest.mark.parametrize("kind", ["rules", "model"])
def test_memory_is_measured_with_the_widget_and_without(
    run: tuple[dict[str, Any], str], kind: str
) -> None:
    its = run[0]["memory"][kind]
    assert its["steps"] == 5
    assert its["bytes_per_step_with_widget"] > 0
    assert its["bytes_per_step_without"] > 0


def test_the_main_figures_are_shown(run: tuple[dict[str, Any], str]) -> None:
    assert "Step to screen, rules, 5 turns" in run[1]
    assert "< 250 ms" in run[1]
