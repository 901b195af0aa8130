"""``llmsim-lab run CONFIG.yaml``, or ``FILE.py:CLASS``: any run that a file describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from llmsim_lab.cli.output import end, open_folder, report, say
from llmsim_lab.cli.play import client_for, play
from llmsim_lab.cli.world_file import is_world, lines_told, world_named
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape
from llmsim_lab.runs._config import PlayerWord, WorldConfig
from llmsim_lab.runs._registry import class_of_config, config_from_file
from llmsim_lab.text import closest, faults
from llmsim_lab.yaml_file import read_config

__all__ = ["named_values", "run"]

_WORDS = frozenset(get_args(PlayerWord)) - {"model"}


def run(
    named: str,
    *,
    parameters: Path | None,
    settings: Sequence[str],
    turns: int | None,
    model: str | None,
    out: Path,
    host: str | None,
    tape: Path | None = None,
) -> None:
    """Play a configured run and write its results; record it, if there is a tape for it.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    kind, config = _described(named, parameters)
    config = _with_values(config, named_values(settings, "--set turns=5"))
    if isinstance(config, WorldConfig) and model in _WORDS:
        # The word stands for the model; players that are rules or people already stay what they are
        players = {who: word for who, word in config.players.items() if word != "model"}
        config = config.model_copy(update={"players": {**players, "*": model}})
    elif model == "rule" and hasattr(config, "by_rules"):
        config = config.by_rules()
    elif model is not None:
        llm = config.llm.model_copy(update={"model": model})
        config = config.model_copy(update={"llm": llm})
    if turns is not None:
        config = config.model_copy(update={"turns": turns})
    out = open_folder(out)
    if model not in (None, "rule") and not config.needs_model and model not in _WORDS:
        say(f"--model {model} is not asked: rules, chance or people play everybody", style="yellow")
    client = client_for(config, host=host)
    with Tape(tape) if tape is not None else nullcontext() as record:
        with lines_told():
            simulation = kind(config, llm_client=client, tape=record)
        failure = play(simulation, config.turns)
        report(simulation, out)
        if record is not None:
            say(f"All of it is recorded as run {simulation.run_id} of {tape}.")
            simulation.close()
    end(simulation, config.turns, failure)


def _described(named: str, parameters: Path | None) -> tuple[Any, Any]:
    """Return the class and the configuration that the command line names.

    Raises:
        ConfigError: a file is missing, or something in it is wrong.
    """
    if not is_world(named):
        if parameters is not None:
            raise ConfigError(
                f"--config {parameters} is for a world in a Python file, such as pot.py; {named} "
                "is a configuration itself"
            )
        config = config_from_file(named, kind="economic")
        return class_of_config(config), config
    kind = world_named(named)
    with lines_told():
        if parameters is None:
            return kind, kind.config_type()
        return kind, read_config(parameters, kind.config_type)


def named_values(texts: Sequence[str], example: str) -> dict[str, Any]:
    """Return what ``NAME=VALUE`` texts say, each value read as one in YAML is.

    Raises:
        ConfigError: one is not of that form.
    """
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ConfigError(f"{text!r} is not a name and a value; write it like {example}")
        try:
            values[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            values[name.strip()] = value
    return values


def _with_values(config: Any, values: Mapping[str, Any]) -> Any:
    """Return a configuration with other values, those inside others named like ``llm.seed``.

    Raises:
        ConfigError: there is no such name, or a value is wrong.
    """
    if not values:
        return config
    whole = dict(config)
    for name, value in values.items():
        first, *path = name.split(".")
        if first not in whole:
            raise ConfigError(
                f"--set {name}: there is no parameter {first!r}{closest(first, whole)}; there are "
                f"{', '.join(whole)}"
            )
        if path:
            value = _with_value(whole[first], path, value)
        whole[first] = value
    try:
        return type(config).model_validate(whole)
    except ValidationError as error:
        raise ConfigError(f"--set: {faults(error)}") from error


def _with_value(inside: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    found = inside.model_dump() if isinstance(inside, BaseModel) else inside
    found = dict(found) if isinstance(found, Mapping) else {}
    return {**found, path[0]: _with_value(found.get(path[0]), path[1:], value)}
