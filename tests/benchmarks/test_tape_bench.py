"""The tape's benchmark runs and writes figures that make sense; how fast it is, is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process
REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the quick benchmark once."""
    out = tmp_path_factory.mktemp("bench") / "tape_bench.json"
    script = REPO / "benchmarks" / "tape_bench.py"
    command = [sys.executable, str(script), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=out.parent)
    written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return written


def test_recording_is_compared_with_the_same_run_without_a_tape(figures: dict[str, Any]) -> None:
    cost = figures["recording"]
    difference = cost["us_per_call_recorded"] - cost["us_per_call_without"]
    assert cost["us_per_call_added"] == pytest.approx(difference, abs=0.02)
    assert cost["us_per_call_without"] > 0


def test_the_files_bytes_are_those_of_all_calls(figures: dict[str, Any]) -> None:
    size, tape = figures["size"], figures["tape"]
    assert tape["calls"] == 3 * size["agents"] * size["turns"]
    assert tape["bytes_per_call"] == round(tape["bytes"] / tape["calls"])


def test_replaying_and_loading_have_a_speed(figures: dict[str, Any]) -> None:
    assert figures["replay"]["replay_turns_per_s"] > 0
    assert figures["replay"]["load_turns_per_s"] > 0


def test_the_tape_that_is_opened_is_as_large_as_it_should_be(figures: dict[str, Any]) -> None:
    assert figures["opening"]["calls"] >= figures["size"]["large_calls"]
    assert figures["opening"]["ms_open_and_read_a_turn"] > 0
