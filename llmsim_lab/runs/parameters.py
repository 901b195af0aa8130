"""What a world's class says of itself: its parameters, its name on tapes, the digests of its code.

The annotated fields of the class become a configuration, a pydantic model, so that they can be
given by keyword, read from a file and written on a tape.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.tape._codec import dumps
from llmsim_lab.runs.registry import NOTEBOOK
from llmsim_lab.runs.settings import RunConfig, WorldConfig
from llmsim_lab.text import faults

if TYPE_CHECKING:
    from llmsim_lab.runs.base import Run

__all__ = ["Parameter", "code_digests", "config_type_of", "file_of", "identity", "types_of"]

AnyRunType = type["Run"]


class Parameter:
    """A parameter as an attribute of a run: what its configuration says; it cannot be set."""

    def __init__(self, name: str, default: Any) -> None:
        self.name = name
        self.default = default

    def __get__(self, run: Any, owner: type) -> Any:
        if run is not None:
            return getattr(run.config, self.name)
        if self.default is ...:
            raise AttributeError(f"{owner.__name__}.{self.name} has no default")
        return self.default

    def __set__(self, run: Any, value: Any) -> None:
        raise ConfigError(
            f"{self.name} is a parameter, which a run keeps to its end; make another run: "
            f"{type(run).__name__}({self.name}={value!r:.40})"
        )


def config_type_of(cls: AnyRunType, base: AnyRunType) -> type[RunConfig]:
    """Return the configuration made of a class's annotated fields and its parent's.

    Each field becomes a ``Parameter`` of the class.

    Args:
        cls: the world's class, just made.
        base: ``Run``, whose names are reserved.

    Raises:
        ConfigError: a field lacks its annotation, has a name that is taken, or a default that does
            not fit.
    """
    taken = {*inspect.signature(base).parameters, "unrecorded"}
    # Those of a class between, which has no turn and so no configuration, are the world's as well.
    between = [
        kind
        for kind in cls.__mro__[1:]
        if issubclass(kind, base) and kind is not base and kind.config_type is base.config_type
    ]
    own = [
        (name, hint, kind.__dict__.get(name, ...))
        for kind in (*reversed(between), cls)
        for name, hint in _annotations(kind).items()
    ]
    fields: dict[str, Any] = {}
    for name, hint, default in own:
        if get_origin(hint) is ClassVar or hint is ClassVar or name.startswith("_"):
            continue
        if hasattr(base, name) or name in WorldConfig.model_fields or name in taken:
            raise ConfigError(
                f"{cls.__name__}.{name}: the name {name!r} is taken, every run has something of "
                f"that name; call the parameter something else, such as {name}_"
            )
        fields[name] = (hint, default)
        _check_default(cls, name, hint, default)
        setattr(cls, name, Parameter(name, _plain_default(default)))
    _check_unannotated(cls, base)
    fields["name"] = (Annotated[str, Field(min_length=1)], cls.__name__)
    parent: type[RunConfig] = cls.config_type
    made: type[RunConfig] = create_model(
        f"{cls.__name__}Config", __base__=parent, __module__=cls.__module__, **fields
    )
    # Pickle finds it through the class that it belongs to.
    made.__qualname__ = f"{cls.__qualname__}.config_type"
    return made


def _plain_default(default: Any) -> Any:
    if isinstance(default, FieldInfo):
        default = default.get_default(call_default_factory=True)
        return ... if repr(default) == "PydanticUndefined" else default
    return default


def _check_default(cls: AnyRunType, name: str, hint: Any, default: Any) -> None:
    value = _plain_default(default)
    if value is ...:
        return
    known: Any = Annotated[hint, default] if isinstance(default, FieldInfo) else hint
    try:
        TypeAdapter(known).validate_python(value)
    except ValidationError as error:
        raise ConfigError(
            f"{cls.__name__}.{name} = {value!r:.60} does not fit its annotation: {faults(error)}"
        ) from error


def _annotations(cls: type) -> Mapping[str, Any]:
    own = inspect.get_annotations(cls)
    if not own:
        return {}
    shim = type("Annotations", (), {"__annotations__": dict(own), "__module__": cls.__module__})
    try:
        return get_type_hints(shim, localns=dict(vars(cls)), include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigError(
            f"an annotation of {cls.__name__} cannot be read: {error}; parameters have types that "
            "are known where the class is made: write them at the top of the file, or of the cell"
        ) from error


_OVERRIDABLE = (types.FunctionType, property, classmethod, staticmethod)


def _check_unannotated(cls: AnyRunType, base: AnyRunType) -> None:
    """Raise ConfigError for values without an annotation, and for names used for another thing."""
    for name, value in cls.__dict__.items():
        if name.startswith("_") or isinstance(value, Parameter | type):
            continue
        known = inspect.getattr_static(base, name, None)
        if isinstance(value, _OVERRIDABLE) or hasattr(type(value), "__get__"):
            if isinstance(known, property) and not hasattr(type(value), "__set__"):
                raise ConfigError(
                    f"{cls.__name__}.{name}: the name {name!r} is taken, every run has something "
                    f"of that name; call the method something else, such as {name}_"
                )
            continue
        if name in base.__annotations__:
            continue
        if known is not None:
            raise ConfigError(
                f"{cls.__name__}.{name}: the name {name!r} is taken, every run has something of "
                f"that name; call it something else, such as {name}_"
            )
        raise ConfigError(
            f"{cls.__name__}.{name} = {value!r:.60} has no annotation, so it is not a parameter; "
            f"write {name}: {type(value).__name__} = {value!r:.60}, or {name}: ClassVar = ... for "
            "what no run can vary"
        )


_TYPES = ("state_type", "turn_type", "config_type", "intervention_type")


def types_of(cls: AnyRunType, base: AnyRunType) -> dict[str, type]:
    """Return the classes that ``class X(Run[State, Turn, ...])`` names, by the attributes they are.

    Args:
        cls: the world's class, just made.
        base: ``Run``, whose parameters these are; of a class between only the first is the state's.
    """
    for parent in cls.__dict__.get("__orig_bases__", ()):
        origin = get_origin(parent)
        if isinstance(origin, type) and issubclass(origin, base):
            names = _TYPES if origin is base else _TYPES[:1]
            named = zip(names, get_args(parent), strict=False)
            return {name: it for name, it in named if isinstance(it, type) and it is not Any}
    return {}


# --- identity ------------------------------------------------------------------------------------


def file_of(cls: type) -> Path | None:
    """Return the file that defines a class; None for one from a notebook's cell or a shell."""
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    return Path(path) if path and not path.startswith("<") else None


def identity(cls: type) -> str:
    """Return what a class is called on tapes: its file's stem and its name, never ``__main__``."""
    path = file_of(cls)
    if path is None:
        return f"{NOTEBOOK}:{cls.__qualname__}"
    stem = path.parent.name if path.stem in ("__init__", "__main__") else path.stem
    return f"{stem}:{cls.__qualname__}"


def code_digests(cls: AnyRunType, base: AnyRunType) -> dict[str, str]:
    """Return SHA-256 digests of what a world's turns follow from, by name.

    ``file``: of the whole file, where there is one. ``methods``: of their sources. ``parameters``
    and ``state``: of their JSON schemas.
    """
    found: dict[str, str] = {}
    path = file_of(cls)
    if path is not None:
        with suppress(OSError):  # a zip, or it is gone
            found["file"] = hashlib.sha256(path.read_bytes()).hexdigest()
    own = [kind for kind in cls.__mro__ if issubclass(kind, base) and kind is not base]
    found["methods"] = _digest(source for kind in own for source in _sources(kind))
    found["parameters"] = _digest([dumps(cls.config_type.model_json_schema())])
    found["state"] = _digest([dumps(cls.state_type.model_json_schema())])
    return found


def _sources(cls: type) -> Iterable[str]:
    """Return the sources of a class's methods, or their code where there is no source."""
    for name, value in sorted(vars(cls).items()):
        function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        if not isinstance(function, types.FunctionType):
            continue
        try:
            yield inspect.getsource(function)
        except (OSError, TypeError):
            code = function.__code__
            yield f"{name} {code.co_code!r} {code.co_consts!r} {code.co_names!r}"


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
