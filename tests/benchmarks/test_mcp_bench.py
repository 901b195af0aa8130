"""The benchmark of tools over MCP runs and writes figures; how fast they are is not judged."""

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
    out = tmp_path_factory.mktemp("bench") / "mcp_bench.json"
    script = str(REPO / "benchmarks" / "mcp_bench.py")
    done = subprocess.run(
        [sys.executable, script, "--quick", "--out", str(out)],
        check=True,
        capture_output=True,
        text=True,
        cwd=out.parent,
        env={**os.environ, "COLUMNS": "120"},
    )
    return json.loads(out.read_text(encoding="utf-8")), done.stdout


@pytest.mark.parametrize("place", ["memory", "stdio"])
def test_calls_are_timed_one_by_one_and_at_once(
    run: tuple[dict[str, Any], str], place: str
) -> None:
    its = run[0][place]
    assert list(its) == ["list", "add", "list_at_once", "add_at_once"]
    for name, kind in its.items():
        extra = "median_ms_per_call" if name.endswith("at_once") else "cpu_ms_per_call"
        assert list(kind) == ["median_ms", "p95_ms", extra]


def test_a_call_that_starts_the_server_again_takes_longer_than_one_that_does_not(
    run: tuple[dict[str, Any], str],
) -> None:
    # A start takes a hundred times as long as a call, so this is no judgement of speed.
    assert run[0]["after_a_crash_ms"]["median_ms"] > run[0]["stdio"]["list"]["median_ms"]


def test_the_figures_say_how_many_calls_there_were(run: tuple[dict[str, Any], str]) -> None:
    assert (run[0]["tasks_listed"], run[0]["at_once"]) == (10, 20)


def test_the_main_figures_are_shown(run: tuple[dict[str, Any], str]) -> None:
    assert "stdio, list, 20 at once" in run[1]
    assert "stdio, call after a crash" in run[1]
