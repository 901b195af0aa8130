"""pyproject.toml declares what is imported, and nothing else; uv.lock is of that list."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from structure_kit import read_source

# Used without an import: programs, pytest's plugins, and stubs for mypy.
NOT_IMPORTED = {
    *("ipykernel", "jupyterlab", "mypy", "nbval", "pandas-stubs", "pyarrow"),
    *("pytest-asyncio", "pytest-cov", "pytest-timeout", "pytest-xdist", "ruff"),
    *("types-jsonschema", "types-psutil"),
    *("mesa", "uv"),
    # The site, and what checks the package before it is published.
    *("furo", "myst-nb", "sphinx", "build", "check-wheel-contents", "twine"),
}
COMES_WITH = {
    **dict.fromkeys(("ipython", "traitlets"), "ipywidgets"),
    **dict.fromkeys(("pydantic-core", "typing-extensions"), "pydantic"),
    "markupsafe": "jinja2",
    "packaging": "matplotlib",
    "pillow": "matplotlib",
    "referencing": "jsonschema",
}
"""Parts of a package that we require: it always brings them, in versions that fit it."""
OWN = "llmsim-lab"


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found, requirement
    return normal(found[0])


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def project(repo: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    return loaded


def requirements(project: dict[str, Any]) -> list[str]:
    extras = project["optional-dependencies"].values()
    return [*project["dependencies"], *(line for extra in extras for line in extra)]


@cache
def distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@cache
def imported(folder: Path) -> frozenset[str]:
    """Return the distributions that the modules of a folder import."""
    known = distributions()
    local = {name for path in folder.rglob("*.py") for name in (path.stem, path.parent.name)}
    found = set()
    for path in folder.rglob("*.py"):
        for node in read_source(path).imports:
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            found |= {name.partition(".")[0] for name in names}
    found -= sys.stdlib_module_names | local | {"tests", "llmsim_lab"}
    # What `make test` does not install, such as playwright, is called as its module is.
    named = {normal(known.get(name, [name])[0]) for name in found}
    return frozenset(COMES_WITH.get(name, name) for name in named)


@pytest.mark.parametrize(("part", "whole"), COMES_WITH.items())
def test_what_comes_with_a_package_is_required_by_it(part: str, whole: str) -> None:
    always = [line for line in requires(whole) or () if "extra ==" not in line]
    assert part in map(name_of, always)


def test_the_package_declares_what_it_imports(repo: Path, project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    lists = [
        project["dependencies"],
        *(extras[e] for e in ("embedded", "notebooks", "room", "study", "tools")),
    ]
    assert imported(repo / "llmsim_lab") - {name_of(r) for part in lists for r in part} == set()


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_what_the_tests_import_is_declared(
    repo: Path, project: dict[str, Any], folder: str
) -> None:
    assert imported(repo / folder) - set(map(name_of, requirements(project))) == set()


def test_what_is_declared_is_used(repo: Path, project: dict[str, Any]) -> None:
    used = set().union(*(imported(repo / part) for part in ("llmsim_lab", "tests", "benchmarks")))
    assert set(map(name_of, requirements(project))) - used == NOT_IMPORTED | {OWN}


def test_the_lock_is_of_the_declared_versions(repo: Path, project: dict[str, Any]) -> None:
    packages = tomllib.loads((repo / "uv.lock").read_text())["package"]
    [own] = [package for package in packages if package["name"] == OWN]
    locked = {(row["name"], row.get("specifier", "")) for row in own["metadata"]["requires-dist"]}
    # uv writes what the extras that an extra names are made of.
    declared = {
        (name_of(line), line.partition(";")[0][len(name_of(line)) :])
        for line in requirements(project)
        if name_of(line) != OWN
    }
    assert locked == declared
