"""The built wheel, installed alone and used from another folder, has all it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

LOOK_INSIDE = """
from importlib import resources
from pathlib import Path

import llmsim_lab
from llmsim_lab.economy import load_us_macro
from llmsim_lab.prompts import Prompt

installed = resources.files("llmsim_lab")
assert "site-packages" in Path(llmsim_lab.__file__).parts, llmsim_lab.__file__
assert (installed / "py.typed").is_file()
names = sorted(f.name.removesuffix(".md") for f in (installed / "prompts").iterdir()
               if f.name.endswith(".md"))
assert names, "no prompt file in the wheel"
for name in ("page.html", "page.css", "view.css", "view.js", "host.js"):
    assert (installed / "run" / "front" / name).is_file()
for name in ("room.css", "guest.js", "teacher.js", "projector.js", "words.json"):
    assert (installed / "room" / "front" / name).is_file()
for name in names:
    assert Prompt.load(name).slots, name
print(len(load_us_macro()))
"""


def run(*command: object, folder: Path) -> str:
    """Run in an environment that knows nothing of the checkout; return what was printed."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "COV_", "COVERAGE", "LLMSIM", "OLLAMA")
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith(hidden)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, repo: Path) -> Path:
    """The bin folder of a new virtual environment that holds the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = (sys.executable, "-m", "uv", "--quiet")
    run(*uv, "build", "--wheel", "--out-dir", folder, repo, folder=folder)
    [wheel] = folder.glob("*.whl")
    run(*uv, "venv", "--python", sys.executable, folder / "venv", folder=folder)
    binaries = folder / "venv" / "bin"
    run(*uv, "pip", "install", "--python", binaries / "python", wheel, folder=folder)
    return binaries


def test_prompts_and_data_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    rows = run(installed / "python", "-W", "error", "-c", LOOK_INSIDE, folder=tmp_path)
    assert int(rows) > 200


def test_the_demo_runs_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    run(installed / "llmsim-lab", "demo", "--no-live", "--out", "here", folder=tmp_path)
    assert [path.suffix for path in (tmp_path / "here").rglob("*.png")] == [".png"]


def test_a_world_to_start_from_is_made_and_runs_without_a_checkout(
    installed: Path, tmp_path: Path
) -> None:
    run(installed / "llmsim-lab", "new", "mine", "--from", "public_goods", folder=tmp_path)
    assert "given" in run(installed / "python", "public_goods.py", folder=tmp_path / "mine")
