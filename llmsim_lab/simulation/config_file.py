"""Read a configuration from a YAML file, and say where in the file a fault is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from llmsim_lab.errors import ConfigError

__all__ = ["read_config"]

ModelT = TypeVar("ModelT", bound=BaseModel)


class _NoKeyTwice(yaml.SafeLoader):
    """YAML's own rule, which PyYAML does not keep: it would let the last one win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_config(path: Path, model: type[ModelT]) -> ModelT:
    """Return a file's content as an instance of the model.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; the message names file,
            line and key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error
    try:
        values = yaml.load(text, Loader=_NoKeyTwice)
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path} must hold keys and values, such as 'turns: 8', not {type(values).__name__}"
        )
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, path, tree, model)) from error


def _explain(
    error: ValidationError, path: Path, tree: yaml.Node | None, model: type[BaseModel]
) -> str:
    """Say what is wrong in a configuration file, each fault with its line."""
    faults = []
    for fault in error.errors(include_url=False):
        location = [part for part in fault["loc"] if part != "[key]"]
        line = _line_of(tree, location)
        key = ".".join(str(part) for part in location) or "the file"
        if fault["type"] == "extra_forbidden":
            what = f"unknown key; known here are {', '.join(_known_keys(model, location[:-1]))}"
        else:
            what = f"{fault['msg'].removeprefix('Value error, ')} (it is {_shown(fault['input'])})"
        faults.append(f"{path}, line {line}: {key}: {what}")
    return "\n".join(faults)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _line_of(node: yaml.Node | None, location: list[Any]) -> int:
    """Return the line of a key, or of the closest thing around it."""
    line = node.start_mark.line + 1 if node else 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, node = key.start_mark.line + 1, value
                    break
            else:
                return line
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line


def _known_keys(root: type[BaseModel], location: list[Any]) -> list[str]:
    """Return the keys that a place in the configuration may have."""
    model: Any = root
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        inner = [annotation, *getattr(annotation, "__args__", ())]
        models = [item for item in inner if isinstance(item, type) and issubclass(item, BaseModel)]
        if not models:
            return ["those of its type"]
        model = models[0]
    return sorted(field.alias or name for name, field in model.model_fields.items())
