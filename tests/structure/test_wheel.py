"""The package as it is built: what is in it, and that it works alone, from another folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.process

UV = (sys.executable, "-m", "uv", "--quiet")


def run(*command: object, folder: Path, status: int = 0) -> str:
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
    assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# What is in it


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, files: list[Path], repo: Path) -> Path:
    """A folder with the wheel and the sdist of a clone, in which tools have left their traces."""
    clone = tmp_path_factory.mktemp("a clone")
    for path in files:
        copy = clone / path.relative_to(repo)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for trace in (
        "notebooks/.ipynb_checkpoints/01_first_run-checkpoint.ipynb",
        "data/templates/__pycache__/jury.cpython-311.pyc",
        "data/tapes/demo.tape.lock",
        "llmsim_lab/__pycache__/errors.cpython-311.pyc",
    ):
        (clone / trace).parent.mkdir(exist_ok=True)
        (clone / trace).touch()
    folder = tmp_path_factory.mktemp("built")
    run(*UV, "build", "--out-dir", folder, clone, folder=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [path] = built.glob("*.whl")
    return path


def names_in(archive: Path) -> set[str]:
    if archive.suffix == ".whl":
        return set(ZipFile(archive).namelist())
    with tarfile.open(archive) as opened:
        return {member.partition("/")[2] for member in opened.getnames()}


def test_the_wheel_holds_package_data_and_tutorials_and_nothing_else(
    wheel: Path, files: list[Path], repo: Path
) -> None:
    tracked = {path.relative_to(repo).as_posix() for path in files}
    wanted = {name for name in tracked if name.startswith("llmsim_lab/")}
    wanted |= {f"llmsim_lab/_{name}" for name in tracked if name.startswith("data/")}
    tutorials = {name for name in tracked if name.startswith("notebooks/0") or "ipynb" in name}
    wanted |= {f"llmsim_lab/_data/{name}" for name in tutorials if name.startswith("notebooks/")}
    names = {name for name in names_in(wheel) if ".dist-info/" not in name}
    assert names == wanted
    assert wheel.stat().st_size < 4e6


def test_the_sdist_has_all_that_the_wheel_and_its_tests_are_made_of(
    built: Path, files: list[Path], repo: Path
) -> None:
    [sdist] = built.glob("*.tar.gz")
    names = names_in(sdist)
    folders = ("llmsim_lab/", "data/", "notebooks/", "docs/", "scripts/", "tests/")
    tracked = {path.relative_to(repo).as_posix() for path in files}
    assert {name for name in tracked if name.startswith(folders)} - names == set()
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile"} - names == set()
    assert [name for name in names if "__pycache__" in name or "checkpoint" in name] == []
    assert sdist.stat().st_size < 6e6


def test_without_git_the_version_is_the_fallback(wheel: Path) -> None:
    assert wheel.name == "llmsim_lab-0.1.dev0-py3-none-any.whl"


def test_the_description_can_be_shown_by_a_package_index(built: Path, wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    for line in ("Name: llmsim-lab", "License-Expression: MIT", "Provides-Extra: lab"):
        assert f"{line}\n" in metadata
    assert "Description-Content-Type: text/markdown\n" in metadata


# That it works


LOOK_INSIDE = """
from importlib import resources
from pathlib import Path

import llmsim_lab
from llmsim_lab.economy import load_us_macro
from llmsim_lab.prompts import Prompt

installed = resources.files("llmsim_lab")
assert "site-packages" in Path(llmsim_lab.__file__).parts, llmsim_lab.__file__
names = sorted(f.name.removesuffix(".md") for f in (installed / "prompts").iterdir()
               if f.name.endswith(".md"))
assert names, "no prompt file in the wheel"
for name in names:
    assert Prompt.load(name).slots, name
print(len(load_us_macro()))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The bin folder of a new virtual environment that holds the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("installed")
    run(*UV, "venv", "--python", sys.executable, folder / "venv", folder=folder)
    binaries = folder / "venv" / "bin"
    run(*UV, "pip", "install", "--python", binaries / "python", wheel, folder=folder)
    return binaries


def test_prompts_and_data_are_found(installed: Path, tmp_path: Path) -> None:
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


def test_the_tutorials_are_copied_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    run(installed / "llmsim-lab", "lab", "mine", "--no-open", folder=tmp_path)
    assert len(list((tmp_path / "mine").glob("*.ipynb"))) == 12


def test_a_file_that_was_changed_after_installing_is_found(installed: Path, tmp_path: Path) -> None:
    doctor = (installed / "llmsim-lab", "doctor", "--install")
    assert "This installation is sound" in run(*doctor, folder=tmp_path)
    [errors] = installed.parent.glob("lib/python3*/site-packages/llmsim_lab/errors.py")
    errors.write_bytes(errors.read_bytes() + b"# cut off by a full d")
    page = run(*doctor, folder=tmp_path, status=1)
    assert "missing or changed since it was installed: llmsim_lab/errors.py" in page
