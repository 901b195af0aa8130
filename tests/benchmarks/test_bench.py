"""The benchmark runs and writes figures that make sense; how fast anything is, is not judged."""

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
SIZES = ["1x5", "2x5", "4x5", "2x10"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Run the quick benchmark once; return its figures and what it printed."""
    out = tmp_path_factory.mktemp("bench") / "bench.json"
    command = [sys.executable, str(REPO / "benchmarks" / "bench.py"), "--quick", "--out", str(out)]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        cwd=out.parent,
        env={**os.environ, "COLUMNS": "120"},
    )
    return json.loads(out.read_text(encoding="utf-8")), done.stdout


@pytest.fixture
def figures(run: tuple[dict[str, Any], str]) -> dict[str, Any]:
    return run[0]


def test_the_figures_come_with_what_is_needed_to_read_them(figures: dict[str, Any]) -> None:
    machine = figures["machine"]
    assert machine["cpus"] >= 1
    assert machine["python"] == sys.version.split()[0]
    assert set(machine["versions"]) == {"llmsim-lab", "ollama", "pydantic"}


@pytest.mark.parametrize("kind", ["us_per_call", "us_per_call_mean"])
def test_each_size_has_a_cost_per_call(figures: dict[str, Any], kind: str) -> None:
    assert list(figures["cpu"][kind]) == SIZES
    assert all(0 < micros < 1e6 for micros in figures["cpu"][kind].values())


def test_the_ratio_is_that_of_the_long_run_to_the_bare_loop(figures: dict[str, Any]) -> None:
    cpu = figures["cpu"]
    ratio = cpu["us_per_call"]["2x10"] / cpu["us_per_call_bare_loop"]
    assert cpu["ratio_to_bare_loop"] == pytest.approx(ratio, rel=0.02)
    assert cpu["growth_with_agents"] > 0
    assert cpu["growth_with_turns"] > 0


def test_recording_is_compared_with_the_same_run_without_a_tape(figures: dict[str, Any]) -> None:
    tape = figures["tape"]
    difference = tape["us_per_call_recorded"] - tape["us_per_call_without"]
    assert tape["us_per_call_added"] == pytest.approx(difference, abs=0.02)
    assert min(tape[f"us_per_call_{how}"] for how in ("without", "replayed", "loaded")) > 0


def test_the_files_bytes_are_those_of_all_calls(figures: dict[str, Any]) -> None:
    assert figures["tape"]["calls"] == 3 * 2 * 10
    assert figures["tape"]["bytes_per_call"] > 100


def test_both_imports_were_timed(figures: dict[str, Any]) -> None:
    assert figures["import"]["ms"] > 0
    assert figures["import"]["ms_ollama_and_pydantic"] > 0
    assert figures["import"]["ratio"] > 0


def test_the_table_shows_each_size_beside_its_target(run: tuple[dict[str, Any], str]) -> None:
    _, printed = run
    for size in SIZES:
        assert f"CPU per model call, {size} agents x turns" in printed
    assert "< 40 µs" in printed
    assert "bench.json" in printed
