"""Which classes of runs there are, and what each is called: on tapes, in files, as an entry point.

A class that has a ``kind`` is known as soon as it is defined. For tapes to find it before anyone
has imported it, a package announces it as an entry point of the group ``llmsim_lab.simulations``.
Nothing here depends on where a module of this package lies, so that tapes outlive its moves.
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
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.prompts.prompt import digest_of

ENTRY_POINTS = "llmsim_lab.simulations"
"""The group of entry points: a ``kind``, and where its class is."""

_OWN = re.compile(r"([\w.-]+):([\w.]+)")
"""The name of a world of one's own: its file's stem and its class."""

RunClass = type[Any]
"""A class derived from ``Run``, which this module does not import."""

# For the whole process: a tape opened anywhere in it finds the classes that were defined.
_known: dict[str, RunClass] = {}


# --- what a class is called, and what its turns follow from --------------------------------------


def file_of(cls: type) -> Path | None:
    """Return the file that defines a class; None for one from a notebook's cell or a shell."""
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    # Tools that run code from memory write <string> or <stdin> there.
    if not path or path.startswith("<"):
        return None
    return Path(path)


def is_shipped(cls: type) -> bool:
    """Return True for a class of this package, which needs no import and whose version is known."""
    return cls.__module__.startswith("llmsim_lab.")


def identity(cls: type) -> str:
    """Return what a class is called on tapes: its file's stem and its name, never ``__main__``."""
    path = file_of(cls)
    if path is None:
        return f"notebook:{cls.__qualname__}"
    stem = path.stem
    # Of a package both say nothing: its folder is what one imports.
    if stem in ("__init__", "__main__"):
        stem = path.parent.name
    return f"{stem}:{cls.__qualname__}"


def code_digests(cls: RunClass, base: RunClass) -> dict[str, str]:
    """Return a SHA-256 digest of what a world's turns follow from, under what it is of.

    ``file``: its file, and those of its state and of its bases. Without one, as in a notebook,
    ``methods``: their sources.

    Args:
        cls: the world's class.
        base: ``Run``, whose own code is not in the digests: its package's version is recorded.
    """
    classes = _without_base(cls, base)
    # In the order of the classes and each once: the digest follows from both.
    parts = (*classes, cls.state_type)
    files = dict.fromkeys(file_of(part) for part in parts if not is_shipped(part))
    # Where there is no file (None has no read_bytes), or none any more, or a zip: the methods.
    with suppress(OSError, AttributeError):
        contents = [file.read_bytes() for file in files]  # type: ignore[union-attr]
        return {"file": hashlib.sha256(b"\0".join(contents)).hexdigest()}
    return {"methods": digest_of(*_sources_of(classes))}


def sources_digest(cls: RunClass, base: RunClass) -> str:
    """Return a digest of a world's methods and fields alone, whatever else its file holds.

    Args:
        cls: the world's class.
        base: ``Run``, whose own are not in it.
    """
    sources = _sources_of(_without_base(cls, base))
    config = _schema_of(cls.config_type)
    state = _schema_of(cls.state_type)
    # Without those of every run, which a new version of this package may change.
    shared = base.config_type.model_fields
    properties = config["properties"]
    fields = {name: schema for name, schema in properties.items() if name not in shared}
    return digest_of(*sources, dumps([fields, state]))


# Kept: pydantic takes milliseconds for it, and each study asks anew.
@lru_cache(maxsize=64)
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _without_base(cls: RunClass, base: RunClass) -> list[RunClass]:
    """Return a world's class and its bases below ``Run``."""
    return [part for part in cls.__mro__ if issubclass(part, base) and part is not base]


def _sources_of(classes: Sequence[type]) -> list[str]:
    """Return the sources of classes' methods, or their code where the source is not known."""
    sources = []
    for cls in classes:
        # By name, so that the order of methods in a file does not count.
        for name, value in sorted(vars(cls).items()):
            # Of a class method and of a property, the function.
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
    """Make a class known; the same class defined again, as in a notebook cell, takes over.

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
    """Return True for one class, also where a script imports itself by its own name."""
    if cls.__qualname__ != other.__qualname__:
        return False
    if cls.__module__ == other.__module__:
        return True
    file = file_of(cls)
    return file is not None and file == file_of(other)


def _where_packages_are() -> tuple[tuple[str, int], ...]:
    """Return the folders that Python looks into, with when each was changed last."""
    folders = []
    for folder in sys.path:
        with suppress(OSError):
            folders.append((folder, Path(folder).stat().st_mtime_ns))
    return tuple(folders)


# Cached, since it reads a file of each package, and a tape has thousands of runs. The argument is
# what the cache is kept by: a package that was installed since changes a folder.
@lru_cache(maxsize=1)
def _announced(_folders: tuple[tuple[str, int], ...]) -> Mapping[str, EntryPoint]:
    """Return what installed packages announce as classes of runs, by name."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def find_class(name: str) -> RunClass:
    """Return the class of runs that has a name, such as ``crisis``.

    Raises:
        ConfigError: none is known by that name.
    """
    if name in _known:
        return _known[name]
    announced = _announced(_where_packages_are())
    if name in announced:
        announced[name].load()  # defines the class, which registers itself
    if name not in _known:
        # Those of one's own have a colon, and are imported and not named.
        kinds = [kind for kind in {*_known, *announced} if ":" not in kind]
        raise ConfigError(
            f"no kind of simulation is called {name!r:.80}; known are: {', '.join(sorted(kinds))}. "
            "Import the module that defines it first"
        )
    return _known[name]


def class_of_manifest(run: int, manifest: Mapping[str, Any]) -> RunClass:
    """Return the class that a recorded run is one of.

    Raises:
        TapeError: no class of that name is known here.
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
    """Return how a world of one's own is made known, by its name on tapes: ``pot:PublicGoods``."""
    file, _, world = kind.partition(":")
    if file == "notebook":
        return f"run the cell that defines {world}"
    return f"import it (from {file} import {world}; on the command line --import {file}.py)"


def class_and_config(
    path: str | Path,
    *,
    kind: str = "",
) -> tuple[RunClass, Any]:
    """Read a run's configuration from a file, whose key ``kind`` names the class that plays it.

    Args:
        path: the file.
        kind: what a file means that names none.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; the message names file
            and line.
    """
    path = Path(path)
    source = YamlFile.read(path)
    try:
        cls = find_class(str(source.values.get("kind", kind)))
    except ConfigError as error:
        raise ConfigError(source.fault(("kind",), str(error))) from error
    values = {**cls._parameters_in(source)}
    values.pop("kind", None)
    return cls, replace(source, values=values).parse(cls.config_type)
