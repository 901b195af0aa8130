"""Worlds in Python files that the user names on the command line, which are run as code."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.runs import Run
from llmsim_lab.text import closest

__all__ = ["ImportFiles", "import_files", "is_world", "lines_told", "world_named"]

ImportFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--import",
        metavar="FILE.py",
        help="A Python file with the class of the recorded run, which is run as code; repeatable.",
    ),
]


def is_world(named: str) -> bool:
    """Return True for ``FILE.py`` and ``FILE.py:CLASS``."""
    return named.endswith(".py") or ".py:" in named


def world_named(named: str) -> type[Run]:
    """Run a file's code and return one of the worlds that it defines.

    Args:
        named: ``FILE.py:CLASS``; or ``FILE.py``, where the file defines one world.

    Raises:
        ConfigError: the file cannot be read or run, or it has no such world.
    """
    file, _, name = named.rpartition(":") if not named.endswith(".py") else (named, "", "")
    path = Path(file)
    module = _imported(path)
    own: dict[str, type[Run]] = {
        item.__name__: item
        for item in vars(module).values()
        if _plays(item) and item.__module__ == module.__name__
    }
    found: Any = getattr(module, name, None) if name else None
    if _plays(found):
        world: type[Run] = found
        return world
    if not own:
        raise ConfigError(
            f"{path} defines no world: a class derived from Run with async def turn(self, state, "
            "ask)"
        )
    if name:
        raise ConfigError(
            f"{path} defines no world {name!r}{closest(name, own)}; it defines {', '.join(own)}"
        )
    if len(own) > 1:
        raise ConfigError(
            f"{path} defines {len(own)} worlds, {', '.join(own)}; say which: "
            f"{path}:{next(iter(own))}"
        )
    return next(iter(own.values()))


def import_files(paths: Iterable[Path] | None) -> None:
    """Run the code of files, so that the worlds they define are known.

    Raises:
        ConfigError: one cannot be read or run.
    """
    for path in paths or ():
        _imported(path)


@contextmanager
def lines_told() -> Iterator[None]:
    """Name the file and the line where code of the user's, or what it calls, raises an error.

    Raises:
        ConfigError: in the place of such an error; any other is raised as it is.
    """
    try:
        yield
    except SyntaxError as error:
        file = _shown(Path(error.filename or "the file"))
        raise ConfigError(f"{file}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        place = _place_in(error)
        if not place or (isinstance(error, LabError) and not isinstance(error, ConfigError)):
            raise
        said = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"{place}: {said}") from error


def _place_in(error: BaseException) -> str:
    """Return file and line of the user's code that an error came from; empty if from none."""
    folders = {path.parent for path in _files}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.parent in folders:
            return f"{_shown(path)}, line {frame.lineno}"
    return ""


def _shown(path: Path) -> Path:
    """Return a path as seen from the current folder, if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


_files: set[Path] = set()
"""Those that were imported."""


def _plays(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, Run) and "kind" in vars(item)


def _imported(path: Path) -> ModuleType:
    """Return a file as a module called after its stem, with its folder to import from.

    Raises:
        ConfigError: it cannot be read or run, or a module of that name is there.
    """
    if path.suffix != ".py":
        raise ConfigError(f"{path} is not a Python file; name one that ends in .py")
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    path = path.resolve()
    there = sys.modules.get(path.stem)
    if there is not None and path in _files and there.__file__ == str(path):
        return there
    if there is not None or path.stem in sys.stdlib_module_names:
        raise ConfigError(
            f"{path.name} has the name of another module, {path.stem!r}, which it would hide; call "
            "the file something else"
        )
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as Python does for a script
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    _files.add(path)
    try:
        with lines_told():
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[path.stem]
        if not isinstance(error, SystemExit):
            raise
        raise ConfigError(
            f"{_place_in(error)}: the file ends the program while it is imported; put that below "
            'if __name__ == "__main__":'
        ) from error
    return module
