"""``llmsim-lab doctor --install``: what it says of a sound installation, and of one that is not.

``tests/structure/test_wheel.py`` runs it where the package is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import Run

COMMAND = [sys.executable, "-c", "from llmsim_lab.cli import main; main()"]


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=os.environ | {"LLMSIM_MODELS": str(folder)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.process
def test_a_sound_installation_is_a_page_of_lines_without_a_fault(tmp_path: Path) -> None:
    status, page = run(tmp_path, "doctor", "--install", PYTHONIOENCODING="cp437")
    assert status == 0, page
    assert page[-1].startswith("This installation is sound")
    assert len(page) < 25
    assert [line for line in page if line.startswith("fault")] == []
    [python] = [line for line in page if "Python 3." in line and sys.executable in line]
    assert ("not in a virtual environment" in python) == (sys.prefix == sys.base_prefix)
    for about in ("a run and its replay", "a chart", "a notebook's kernel", "JupyterLab"):
        assert any(line.startswith(f"ok    {about}: ") for line in page), page
    [terminal] = [line for line in page if "the terminal" in line]
    assert terminal.startswith("note  the terminal: cp437 has no sign for U+2212")
    assert terminal.endswith("set PYTHONUTF8=1")


@pytest.mark.process
def test_a_package_that_does_not_fit_is_named_with_both_versions(tmp_path: Path) -> None:
    (tmp_path / "scipy-0.1.dist-info").mkdir()
    (tmp_path / "scipy-0.1.dist-info" / "METADATA").write_text("Name: scipy\nVersion: 0.1\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    status, page = run(tmp_path, "doctor", "--install", PYTHONPATH=path)
    assert status == 1
    assert any(line.startswith("fault packages: scipy 0.1 is here, >=") for line in page), page
    assert page[-1] == "1 fault: packages."


def test_it_asks_no_model(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("doctor", "embedded", "--install")
    assert (status, "leave the others out" in err) == (2, True)


@pytest.mark.process
def test_a_sign_that_the_terminal_lacks_is_a_question_mark(tmp_path: Path) -> None:
    status, page = run(tmp_path, "lab", "2 \N{MINUS SIGN} 1", "--no-open", PYTHONIOENCODING="cp437")
    assert (status, page[0].endswith("2 ? 1")) == (0, True), page
