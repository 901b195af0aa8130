"""``make`` on a new machine: it sets itself up, or says plainly what is missing."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmsim_lab._util.config import yaml_value

make = shutil.which("make")
pytestmark = [pytest.mark.process, pytest.mark.skipif(make is None, reason="make is not installed")]

# What the set-up needs of the machine besides Python.
TOOLS = ("awk", "cat", "dirname", "find", "mkdir", "rm", "sh", "touch")


@pytest.fixture
def checkout(tmp_path: Path, repo: Path) -> Path:
    """What the set-up reads of the project, in a folder with a space in its name."""
    copy = tmp_path / "a clone"
    for name in ("Makefile", "pyproject.toml", "README.md", "scripts/setup-venv.sh"):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repo / name, target)
    return copy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder to use as the whole PATH: the usual small tools and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"{tool} is not installed"
        (folder / tool).symlink_to(found)
    return folder


def run_make(
    checkout: Path, path: Path, *arguments: str, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    assert make
    # Nothing may be fetched; and to compile all that is installed takes longer than what is used.
    variables = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    variables |= {"PIP_RETRIES": "1", "PIP_COMPILE": "0"}
    return subprocess.run(
        [*before, make, *arguments],
        cwd=checkout,
        env=variables | {"HOME": str(path.parent), "PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


WITHOUT_VENV = 'case "$2" in *ensurepip*) exit 1 ;; *) echo 3.12 ;; esac'


def test_every_target_sets_up_before_it_runs(checkout: Path, path: Path) -> None:
    listed = run_make(checkout, path).stdout.splitlines()
    for target in {line.split()[1] for line in listed} - {"help", "clean"}:
        done = run_make(checkout, path, "--dry-run", target)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0].startswith("sh scripts/setup-venv.sh install"), target


@pytest.mark.parametrize(
    ("python3", "words"),
    [
        ("", ("3.11", "none was found", "apt")),
        ("echo 3.9", ("3.11", "python3 is 3.9", "make PYTHON=")),
        (WITHOUT_VENV, ("python3 (3.12)", "apt install python3-venv")),
    ],
)
def test_a_machine_without_a_fit_python_is_told_so(
    checkout: Path, path: Path, python3: str, words: tuple[str, ...]
) -> None:
    if python3:
        (path / "python3").write_text(f"#!/bin/sh\n{python3}\n")
        (path / "python3").chmod(0o755)
    done = run_make(checkout, path, "demo")
    assert done.returncode != 0
    assert [word for word in words if word not in done.stderr] == [], done.stderr
    assert "Traceback" not in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_target_that_a_folder_is_named_after_is_made_again_all_the_same(repo: Path) -> None:
    makefile = (repo / "Makefile").read_text()
    documented = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)", makefile, re.MULTILINE)).split())
    assert documented - phony == set()


def test_a_folder_of_someone_elses_is_not_removed(checkout: Path, path: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "precious").touch()
    done = run_make(checkout, path, "demo")
    assert done.returncode != 0
    assert "not a virtual environment" in done.stderr
    assert (checkout / ".venv" / "precious").exists()


def test_conda_takes_its_packages_from_pyproject(repo: Path) -> None:
    environment = yaml_value((repo / "environment.yml").read_text())
    assert environment["dependencies"] == ["python>=3.11", "pip", {"pip": ["-e .[all]"]}]


# A folder for machines without a network


# Packages that `llmsim-lab model get` needs, and those that install them: the test is to take
# seconds. `make lab` asks for one of them in each of its extras.
LIGHT = {"anyio", "colorama", "filelock", "hatch-vcs", "hatchling", "httpx", "jinja2"}
LIGHT |= {"nest-asyncio", "platformdirs", "psutil", "pydantic", "rich", "typer"}


def leave_light_packages(pyproject: Path) -> None:
    text = re.sub(r'"xllamacpp>=.*"', '"colorama>=0.4"', pyproject.read_text())
    pyproject.write_text(
        re.sub(
            r'"([\w.-]+)>=[\w.,<]+"(?:, |,\n)?',
            lambda found: found[0] if found[1] in LIGHT else "",
            text,
        )
    )


def recipe(page: Path, stick: Path) -> list[list[str]]:
    """Return the two commands of the page, for another stick."""
    found = re.findall(r"^ *(make (?:offline|lab) \w+=.*)$", page.read_text(), re.MULTILINE)
    assert [line.split()[1] for line in found] == ["offline", "lab"]
    return [
        [word.replace("/media/USB STICK", str(stick)) for word in shlex.split(line)]
        for line in found
    ]


def without_network() -> list[str]:
    """Return what to put before a command, nothing where the system does not allow it."""
    unshare = shutil.which("unshare")
    tried = unshare and subprocess.run([unshare, "-rn", "true"], check=False, capture_output=True)
    return [unshare, "-rn"] if unshare and tried and tried.returncode == 0 else []


def set_up(clone: Path) -> None:
    """Leave a clone as ``make`` does that has set it up: with the packages of these tests."""
    venv = clone / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    [packages] = venv.glob("lib/python3.*/site-packages")
    (packages / "these.pth").write_text(sysconfig.get_path("purelib"))
    (venv / ".folder").write_text(str(clone.resolve()))
    (venv / ".ready-lab").touch()


@pytest.mark.embedded
def test_without_a_network_the_documented_stick_is_named_and_installs_all_of_it(
    clone: Path, path: Path, tmp_path: Path
) -> None:
    leave_light_packages(clone / "pyproject.toml")
    laptop = shutil.copytree(clone, tmp_path / "a laptop" / "clone")
    fill, install = recipe(clone / "notebooks" / "README.md", tmp_path / "USB STICK")
    set_up(clone)
    subprocess.run([*fill, "ARGS=smollm2-135m"], cwd=clone, check=True, timeout=300)
    shutil.rmtree(clone)

    (path / "python3").symlink_to(Path(sys.executable).resolve())
    # All that `make lab` does before it opens JupyterLab.
    lab = ".venv/.ready-lab"
    alone = without_network()
    failed = run_make(laptop, path, lab, before=alone)
    assert failed.returncode != 0
    assert "It could not reach its package index" in failed.stderr
    assert "run the same command again" in failed.stderr
    assert (laptop / ".venv" / "bin" / "python").exists()
    assert not list((laptop / ".venv").glob(".ready-*"))

    done = run_make(laptop, path, lab, *install[2:], before=alone)
    assert done.returncode == 0, done.stderr
    python = laptop / ".venv" / "bin" / "python"
    subprocess.run([python, "-c", "import colorama, nest_asyncio, anyio, llmsim_lab"], check=True)
    [weights] = tmp_path.glob(".cache/llmsim_lab/models/*.gguf")
    assert weights.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
