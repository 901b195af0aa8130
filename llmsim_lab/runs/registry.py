"""Which kinds of simulation there are: by the name on the tape, and by their configuration.

A class that names a ``kind`` is known as soon as it is defined. For tapes to find it before anyone
has imported it, a package announces it as an entry point of the group ``llmsim_lab.simulations``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from llmsim_lab.errors import ConfigError, TapeError

if TYPE_CHECKING:
    from llmsim_lab.runs.base import Run

__all__ = [
    "ENTRY_POINTS",
    "NOTEBOOK",
    "find_kind",
    "kind_name",
    "kind_of_config",
    "kind_of_manifest",
    "register",
]

ENTRY_POINTS = "llmsim_lab.simulations"
"""The group of entry points: a kind's name, and where its class is."""

NOTEBOOK = "notebook"
"""What stands for the file in the name of a class that has none."""

_OWN = re.compile(r"([\w.-]+):([\w.]+)")
"""The name of a world of one's own: its file's stem and its class."""

_known: dict[str, type[Run]] = {}


def register(name: str, simulation: type[Run]) -> None:
    """Make a kind known; the same class defined again, as in a notebook cell, takes over.

    Raises:
        ConfigError: another class has that name.
    """
    there = _known.get(name)
    if there is not None and not _same(there, simulation):
        raise ConfigError(
            f"{_place(simulation)} cannot be the kind {name!r}: {_place(there)} is; give it "
            "another name: kind = '...'"
        )
    _known[name] = simulation


def _same(there: type, simulation: type) -> bool:
    """Return True for one class, also where a script imports itself by its own name."""
    if there.__qualname__ != simulation.__qualname__:
        return False
    files = {
        getattr(sys.modules.get(it.__module__), "__file__", None) for it in (there, simulation)
    }
    return there.__module__ == simulation.__module__ or (len(files) == 1 and None not in files)


def _place(simulation: type) -> str:
    return f"{simulation.__module__}.{simulation.__qualname__}"


def find_kind(name: str) -> type[Run]:
    """Return the class of a kind of simulation.

    Raises:
        ConfigError: none is known by that name, or the package that has it cannot be imported.
    """
    if name not in _known:
        announced = _announced()
        if name in announced:
            _load(announced[name])
    if name not in _known:
        there = ", ".join(sorted(one for one in {*_known, *announced} if ":" not in one))
        raise ConfigError(
            f"no kind of simulation is called {name!r:.80}; known are: {there}. Import "
            "the module that defines it first"
        )
    return _known[name]


def _announced() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _load(entry: EntryPoint) -> None:
    try:
        entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the kind of simulation {entry.name!r} cannot be imported from {entry.value}: {error}"
        ) from error


def kind_name(manifest: Mapping[str, Any]) -> str:
    """Return the name of a recorded run's kind."""
    return str(manifest.get("kind"))


def kind_of_manifest(run: int, manifest: Mapping[str, Any]) -> type[Run]:
    """Return the class that a recorded run is one of.

    Raises:
        TapeError: no such kind is known here.
    """
    name = kind_name(manifest)
    try:
        return find_kind(name)
    except ConfigError as error:
        why = str(error)
        if found := _OWN.fullmatch(name):
            file, world = found.groups()
            first = (
                f"run the cell that defines {world}"
                if file == NOTEBOOK
                else f"name the file that defines it: --import {file}.py on the command line"
            )
            why = (
                f"it is one of {name}, which is not known here, and a tape never makes code run; "
                f'{first}, {world}.replay("...") in Python; where the file or the class was '
                f'renamed, write kind = "{name}" in the class'
            )
        raise TapeError(f"run {run} on the tape cannot be played: {why}") from error


def kind_of_config(config: object) -> type[Run]:
    """Return the class that plays a configuration.

    Raises:
        ConfigError: it is no configuration of any known kind.
    """
    for simulation in _known.values():
        if type(config) is simulation.config_type:
            return simulation
    for simulation in _known.values():
        if isinstance(config, simulation.config_type):
            return simulation
    there = ", ".join(sorted(kind.config_type.__name__ for kind in _known.values()))
    raise ConfigError(
        f"{type(config).__name__} is no configuration of a simulation; there are: {there}"
    )
