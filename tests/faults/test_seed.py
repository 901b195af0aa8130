"""A failure under ``make check-faults`` can be repeated: by one seed, in a printed command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parent
TWO_CLASSES = """
import pytest
from faults_kit import Tally

class Failing:
    def tally(self, name, cases, plan):
        return Tally(name, tried=1, faults=["a fault"])

@pytest.fixture
def fork_server():
    return Failing()

@pytest.mark.parametrize("number", [1, 2])
def test_fails(attack, number):
    attack(f"class {number}", cases=None)
"""


@pytest.mark.process
def test_all_workers_draw_by_the_one_seed_of_the_header_which_repeats_a_failure(
    tmp_path: Path,
) -> None:
    shutil.copy(FAULTS / "conftest.py", tmp_path)
    (tmp_path / "test_two.py").write_text(TWO_CLASSES)
    # Without pytest's summary, which says a failure again, whole where CI is set.
    command = [sys.executable, "-m", "pytest", "-n", "2", "-rN", "-p", "no:nbval"]
    command += ["--full", "--seed=-1"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FAULTS), *sys.path])}
    ended = subprocess.run(
        [*command, "test_two.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    headers = re.findall(r"faults: --seed (\d+), full", ended.stdout)
    assert len(set(headers)) == 1, ended.stdout + ended.stderr
    repeats = re.findall(r"AssertionError: 1 of 1 failed; repeat them: python (.+)", ended.stdout)
    ends = [f"test_two.py::test_fails[{n}]' --full --seed={headers[0]}" for n in (1, 2)]
    assert sorted(repeats) == [f"-m pytest -m process '{end}" for end in ends]
