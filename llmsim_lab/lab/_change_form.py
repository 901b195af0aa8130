"""Forms for changing a run: numbers of its state, its prompts, its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._shown_runs import turn_of
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.run.charts import series_of
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.forms import MOST_SET, Field, documented, fields_of, help_of_number
from llmsim_lab.run.recorded import listed_interventions
from llmsim_lab.run.series import own_numbers
from llmsim_lab.run.state import State
from llmsim_lab.run.turn import Turn


class Settable(NamedTuple):
    """The numbers of a state that an intervention can set, as many as a form shows.

    Attributes:
        values: the numbers, by name.
        left_out: how many more there are.
    """

    values: dict[str, float]
    left_out: int


def settable(run: Run, number: int) -> Settable:
    """Return the numbers of a turn's state that an intervention can set."""
    turn = turn_of(run, number)
    columns = turn.columns()
    columns_of_state = State.columns(turn.state)
    # Also from the state, since a row may leave out numbers such as a shock.
    if len(columns_of_state) <= MOST_SET:
        columns |= columns_of_state
    numbers: dict[str, float] = {}
    for name in own_numbers(columns):
        # A form has no way to write infinity.
        if math.isfinite(columns[name]):
            numbers[name] = columns[name]
    names = _names_to_set(run, turn, numbers)
    values = {}
    for name in names[:MOST_SET]:
        value = numbers[name]
        if not isinstance(value, bool):
            value = float(f"{value:.6g}")  # nobody can read a form with seventeen digits
        values[name] = value
    return Settable(values, left_out=len(names) - len(values))


def _names_to_set(
    run: Run,
    turn: Turn,
    numbers: Mapping[str, float],
) -> list[str]:
    """Return the numbers that an intervention can set; derived ones and players' cannot be set.

    All are tried at once, and after an error each half. Each try checks the whole state, so one by
    one would take long.
    """
    names = [*numbers]
    # Each is set to its present value: the world's own checks say what can be set.
    with suppress(ConfigError):
        run.changed(turn.state, numbers)
        return names
    if len(names) == 1:
        return []
    middle = len(names) // 2
    settable_names: list[str] = []
    for half in (names[:middle], names[middle:]):
        settable_names += _names_to_set(
            run,
            turn,
            {name: numbers[name] for name in half},
        )
    return settable_names


def change_fields(
    run: Run,
    numbers: Mapping[str, float],
) -> list[Field]:
    """Return the fields of what a fork can change: numbers of the state, and prompts."""
    labels = {}
    for series in series_of(run):
        if series.label != series.column:  # else the label is made from the name
            labels[series.column] = str(series)
    fields = fields_of(
        StateChange.model_json_schema(),
        {"set": numbers},
        labels,
    )
    for field in fields:
        if field["place"][0] == "set":
            name = field["place"][-1]
            help_text = help_of_number(run.state_type, name)
            field["help"] = help_text.rstrip(".")
    for name, prompt in prompts_by_name(run).items():
        prompt_field: Field = {
            "place": ["prompt", name],
            "label": f"Prompt {name}",
            "value": prompt.text,
            "help": "",
            "schema": {"type": "string", "long": True},
        }
        fields.append(prompt_field)
    return fields


def parameter_fields(run: Run) -> list[Field]:
    """Return the fields of a run's parameters."""
    config = run.config
    values = config.model_dump(mode="json", by_alias=True)
    values["rationale"] = config.rationale  # the dump above leaves out the default
    # The configuration is made from the world's class, whose docstring describes the parameters.
    about = documented(type(run)) | documented(type(config))
    return fields_of(
        type(config).model_json_schema(),
        values,
        about=about,
    )


def prompts_by_name(run: Run) -> dict[str, Prompt]:
    """Return a run's prompts, by name."""
    return {prompt.name: prompt for prompt in run.prompts.values()}


def merged(
    values: Mapping[str, Any],
    changes: Mapping[str, Any],
) -> dict[str, Any]:
    """Return nested values with some of them changed."""
    result = dict(values)
    for name, change in changes.items():
        if isinstance(change, Mapping):
            # A part of the configuration that was not set is None, and becomes a dict.
            result[name] = merged(values.get(name) or {}, change)
        else:
            result[name] = change
    return result


def words_of(changes: object, name: str = "") -> str:
    """Return nested changes as words: ``factor = 2; coins.Ann = 5``."""
    if isinstance(changes, list):
        return f"{name} = {', '.join(changes)}"
    if not isinstance(changes, Mapping):
        return f"{name} = {changes}"
    words = []
    for key, value in changes.items():
        if key == "set":  # left out of the words
            words.append(words_of(value, name))
        else:
            words.append(words_of(value, f"{name} {key}".strip()))
    return "; ".join(words)


def words_of_fork(
    changes: Mapping[str, object],
    turn: int,
) -> list[str]:
    """Return the changes of a fork made in a cell, in the words of the form."""
    words = []
    for name, change in changes.items():
        if name == "intervene":
            words += [
                _intervention_words(intervention, turn)
                for intervention in listed_interventions(change, turn)
            ]
        elif isinstance(change, Prompt):
            words.append(f"prompt {change.name} edited")
        elif name != "llm_client":
            words.append(f"{name} {change}")
    return [clip(each, 120) for each in words]


def _intervention_words(intervention: Mapping[str, object], turn: int) -> str:
    """Return an intervention in words, with its turn unless that is the fork's."""
    values = dict(intervention)
    at = values.pop("turn", turn)
    note = values.pop("note", "")
    words = words_of(values)
    if note:
        words += f" ({note})"
    return words if at == turn else f"turn {at}: {words}"


def asking_with(client: LLMClient, settings: Mapping[str, Any]) -> LLMClient:
    """Return a client of the same model with some settings changed.

    Raises:
        ConfigError: a setting is wrong, or names another model.
    """
    model = client.config.model
    if settings.get("model", model) != model:
        raise ConfigError(
            f"a restart asks {model!r}; for {settings['model']!r} make another "
            f"window: Lab(run, llm_client=connect({settings['model']!r}))"
        )
    all_settings = {**client.config.model_dump(), **settings}
    # Validated, unlike by model_copy.
    config = LLMConfig.model_validate(all_settings)
    return client.with_config(config)
