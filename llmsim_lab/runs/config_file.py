"""A run's configuration from a file that says what kind of simulation it describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmsim_lab.errors import ConfigError
from llmsim_lab.runs.registry import find_kind
from llmsim_lab.yaml_file import YamlFile

__all__ = ["config_from_file"]


def config_from_file(path: str | Path, *, kind: str = "") -> Any:
    """Read a configuration: its key ``kind`` says which kind of simulation it is of.

    Args:
        path: the file.
        kind: what a file means that names none.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; the message names file
            and line.
    """
    path = Path(path)
    source = YamlFile.read(path)
    name = source.values.get("kind", kind)
    if not isinstance(name, str):
        raise ConfigError(source.fault(("kind",), f"must be a name such as crisis, not {name!r}"))
    if ":" in name:
        way = f"name the class: llmsim-lab run {name} --config {path}"
        raise ConfigError(source.fault(("kind",), f"{name}: data never make code run; {way}"))
    try:
        config_type = find_kind(name).config_type
    except ConfigError as error:
        raise ConfigError(source.fault(("kind",), str(error))) from error
    read = getattr(config_type, "from_yaml", None)
    return source.parse(config_type) if read is None else read(path)
