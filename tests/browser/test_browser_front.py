"""The front end's own tests, by Node, and its lint; users need neither."""

from __future__ import annotations

import subprocess
from pathlib import Path

from llmsim_lab.run.page import module

ROOT = Path(__file__).parents[2]
ESLINT = "eslint@9.39.1"


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_modules_pass_their_tests() -> None:
    _run("node", "--test", *map(str, sorted((ROOT / "tests/front").glob("*.test.mjs"))))


def test_the_modules_can_be_joined_into_one(tmp_path: Path) -> None:
    joined = tmp_path / "joined.mjs"  # in which no two have a name in common
    joined.write_text(module(), encoding="utf-8")
    _run("node", "--check", str(joined))


def test_the_modules_are_as_eslint_wants_them() -> None:
    config = "tests/front/eslint.config.mjs"
    _run("npx", "--yes", ESLINT, "-c", config, "llmsim_lab/run/front", "tests/front", "playground")
