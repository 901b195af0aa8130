"""The classes of runs, and their names on tapes, in files, and as entry points.

A class with a ``kind`` is registered when it is defined. A package may announce its classes as
entry points of the group ``llmsim_lab.simulations``; tapes then find them without an import.
Nothing here depends on where a module of this package is, so tapes still work after it has moved.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from llmsim_lab._util.config import YamlFile
from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.prompts.prompt import digest_of

ENTRY_POINTS = "llmsim_lab.simulations"
"""The group of entry points: each names a ``kind``, and where its class is."""

_OWN = re.compile(r"([\w.-]+):([\w.]+)")
"""The name of a user's world on tapes: its file's stem and its class."""

RunClass = type[Any]
"""A class derived from ``Run``, which this module does not import."""

# Shared by the whole process: any tape that is opened finds the classes that were defined.
_known: dict[str, RunClass] = {}


# --- what a class is called, and what its turns follow from --------------------------------------


def file_of(cls: type) -> Path | None:
    """Return the file that defines a class; None for a class from a notebook or a shell."""
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    # Tools that run code from memory set a name such as <string> or <stdin>.
    if not path or path.startswith("<"):
        return None
    return Path(path)


def is_shipped(cls: type) -> bool:
    """Return True for a class of this package, which is always importable."""
    return cls.__module__.startswith("llmsim_lab.")


def identity(cls: type) -> str:
    """Return the name of a class on tapes: its file's stem and its own name, never ``__main__``."""
    path = file_of(cls)
    if path is None:
        return f"notebook:{cls.__qualname__}"
    stem = path.stem
    # Inside a package, these stems say nothing. The folder is the name that users import.
    if stem in ("__init__", "__main__"):
        stem = path.parent.name
    return f"{stem}:{cls.__qualname__}"


def code_digests(cls: RunClass, base: RunClass) -> dict[str, str]:
    """Return a SHA-256 digest of the code that a world's turns depend on, by the kind of code.

    ``file`` is the digest of the files of the class, its state and its bases. If there is no file,
    as in a notebook, ``methods`` is the digest of the sources of their methods.

    Args:
        cls: the world's class.
        base: ``Run``. Its code is left out, since the manifest has the package's version.
    """
    classes = _without_base(cls, base)
    # In the order of the classes, and each once: the digest depends on both.
    parts = (*classes, cls.state_type)
    files = dict.fromkeys(file_of(part) for part in parts if not is_shipped(part))
    # Methods, if there is no file (None has no read_bytes), if it is gone, or if it is in a zip.
    with suppress(OSError, AttributeError):
        contents = [file.read_bytes() for file in files]  # type: ignore[union-attr]
        return {"file": hashlib.sha256(b"\0".join(contents)).hexdigest()}
    return {"methods": digest_of(*_sources_of(classes))}


def sources_digest(cls: RunClass, base: RunClass) -> str:
    """Return a digest of a world's methods and fields alone, not of the rest of its file.

    Args:
        cls: the world's class.
        base: ``Run``, whose methods and fields are left out.
    """
    sources = _sources_of(_without_base(cls, base))
    config = _schema_of(cls.config_type)
    state = _schema_of(cls.state_type)
    # Without the fields of every run, which a new version of this package may change.
    shared = base.config_type.model_fields
    properties = config["properties"]
    fields = {name: schema for name, schema in properties.items() if name not in shared}
    return digest_of(*sources, dumps([fields, state]))


# Cached, since pydantic needs milliseconds for it, and each study asks again.
@lru_cache(maxsize=64)
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _without_base(cls: RunClass, base: RunClass) -> list[RunClass]:
    """Return a world's class and its bases below ``Run``."""
    return [part for part in cls.__mro__ if issubclass(part, base) and part is not base]


def _sources_of(classes: Sequence[type]) -> list[str]:
    """Return the sources of classes' methods, or their bytecode if there is no source."""
    sources = []
    for cls in classes:
        # Sorted by name, so that the order of methods in a file does not matter.
        for name, value in sorted(vars(cls).items()):
            # For a class method or a property, the function inside.
            function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            if not isinstance(function, types.FunctionType):
                continue
            try:
                sources.append(inspect.getsource(function))
            except (OSError, TypeError):
                code = function.__code__
                sources.append(f"{name} {code.co_code!r} {code.co_consts!r} {code.co_names!r}")
    return sources


# --- the classes by their names ------------------------------------------------------------------


def register(name: str, cls: RunClass) -> None:
    """Register a class; the same class defined again, as in a notebook cell, replaces it.

    Raises:
        ConfigError: another class has that name.
    """
    registered = _known.get(name)
    if registered is not None and not _is_same(registered, cls):
        raise ConfigError(
            f"{cls.__module__}.{cls.__qualname__} cannot be the kind {name!r}: "
            f"{registered.__module__}.{registered.__qualname__} is; give it another name: "
            "kind = '...'"
        )
    _known[name] = cls


def _is_same(cls: type, other: type) -> bool:
    """Return True for one class, even if a script imports itself under its own name."""
    if cls.__qualname__ != other.__qualname__:
        return False
    if cls.__module__ == other.__module__:
        return True
    file = file_of(cls)
    return file is not None and file == file_of(other)


def _where_packages_are() -> tuple[tuple[str, int], ...]:
    """Return the folders that Python imports from, each with the time of its latest change."""
    folders = []
    for folder in sys.path:
        with suppress(OSError):
            folders.append((folder, Path(folder).stat().st_mtime_ns))
    return tuple(folders)


# Cached, since this reads a file of each package, and a tape has thousands of runs. The argument is
# the key: installing a package changes a folder.
@lru_cache(maxsize=1)
def _announced(_folders: tuple[tuple[str, int], ...]) -> Mapping[str, EntryPoint]:
    """Return the classes of runs that installed packages announce, by name."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def find_class(name: str) -> RunClass:
    """Return the class of runs with this name, such as ``crisis``.

    Raises:
        ConfigError: there is no class with this name.
    """
    if name in _known:
        return _known[name]
    announced = _announced(_where_packages_are())
    if name in announced:
        announced[name].load()  # importing the module defines the class, which registers itself
    if name not in _known:
        # Users' own classes have a colon in their names; they are imported and not named in files.
        kinds = [kind for kind in {*_known, *announced} if ":" not in kind]
        raise ConfigError(
            f"no kind of simulation is called {brief(name, 80)}; known are: "
            f"{', '.join(sorted(kinds))}. Import the module that defines it first"
        )
    return _known[name]


def class_of_manifest(run: int, manifest: Mapping[str, Any]) -> RunClass:
    """Return the class of a recorded run.

    Raises:
        TapeError: there is no class with the recorded name.
    """
    name = str(manifest.get("kind"))
    try:
        return find_class(name)
    except ConfigError as error:
        if not _OWN.fullmatch(name):
            raise TapeError(f"run {run} on the tape cannot be played: {error}") from error
        raise TapeError(
            f"run {run} on the tape cannot be played: it is one of {name}, which is not known "
            f"here, and a tape never makes code run; {how_to_import(name)}, and call again. If "
            f'file or class was renamed, write kind = "{name}" in the class'
        ) from error


def how_to_import(kind: str) -> str:
    """Return how to import a user's own world, by its name on tapes: ``pot:PublicGoods``."""
    file, _, world = kind.partition(":")
    if file == "notebook":
        return f"run the cell that defines {world}"
    return f"import it (from {file} import {world}; on the command line --import {file}.py)"


def class_and_config(
    source: YamlFile,
    *,
    kind: str = "",
) -> tuple[RunClass, Any]:
    """Return the class and the configuration that a file describes, by its key ``kind``.

    Args:
        source: the file.
        kind: the kind of a file that names none.

    Raises:
        ConfigError: the file has a fault; the message names the file and the line.
    """
    # Else a file that was not written yet would be played with every default.
    if not source.values:
        raise ConfigError(
            f"{source.path} is empty; it needs at least one key, such as 'kind: economic'"
        )
    try:
        cls = find_class(str(source.values.get("kind", kind)))
    except ConfigError as error:
        raise ConfigError(source.fault(("kind",), str(error))) from error
    values = {**cls._parameters_in(source)}
    values.pop("kind", None)
    return cls, replace(source, values=values).parse(cls.config_type)
