"""What only this package needs: texts, HTML, YAML, tables, waiting, checks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late_names(
    package: str,
    homes: Mapping[str, str],
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports names when first used.

    Args:
        package: its ``__name__``.
        homes: the modules in it, and the names that each has, with spaces between them.
    """
    home_of: dict[str, str] = {}
    for home, home_names in homes.items():
        home_of |= dict.fromkeys(home_names.split(), home)

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{home_of[name]}")
        value = getattr(module, name)
        # Kept, so that Python does not ask here again.
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *module.__all__})

    return get, names
