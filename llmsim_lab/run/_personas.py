"""Personas: what a population's rows do in prompts and tables.

Without a population ``persona`` is empty and ``persona_words`` too, so that a prompt that uses them
asks nobody in particular: the reference of a study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError
from llmsim_lab.people import Population
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts.prompt import RenderedPrompt
from llmsim_lab.run.config import WorldConfig

if TYPE_CHECKING:
    import pandas as pd

ENDING = "\n\n{{ persona_words }}"
"""What a prompt ends with that uses no column of the population: shared text stands first."""


def population_of(config: WorldConfig) -> Population | None:
    """Return a run's population; None without one, and of a world that has its own."""
    population = config.population
    # The social world's own population is a list of users, or their number.
    return population if isinstance(population, Population) else None


def check_rows(config: WorldConfig, players: Iterable[str]) -> None:
    """Raise ConfigError for a player without a row, whoever plays it.

    A rule reads no prompt: it would play as nobody in particular, in an arm that says otherwise.
    """
    population = population_of(config)
    if population is None:
        return
    for player in players:
        population.row(player)


def persona_slots(config: WorldConfig) -> dict[str, object]:
    """Return what fills the slots of a persona: functions of the player's name."""
    population = population_of(config)
    if population is None:
        # Empty and not missing, so that a prompt with {% if persona %} works without a population.
        return {"persona": {}, "persona_words": ""}
    slots: dict[str, object] = {
        "persona": population.row,
        "persona_words": partial(_in_words, population),
    }
    # After the two above, whose names no column may have.
    for column in population.columns:
        slots[column] = _column_of(population, column)
    return slots


def _column_of(
    population: Population,
    column: str,
) -> Callable[[str], object]:
    # A function of its own, as the loop's column would be the last one in all of them.
    return lambda name: population.row(name)[column]


def _in_words(population: Population, name: str) -> str:
    row = population.row(name)
    if population.words:
        words = Prompt(population.words, name="persona")
        values = {slot: row[slot] for slot in words.slots}
        return str(words.render(**values))
    facts = [f"{column.replace('_', ' ')} {value}" for column, value in row.items()]
    return f"About you: {', '.join(facts)}."


def ending_of(config: WorldConfig, slots: tuple[str, ...]) -> str:
    """Return what is put at a prompt's end; nothing where it uses the persona by itself."""
    population = population_of(config)
    if population is None:
        return ""
    # A prompt that tells some of the row by itself would tell it twice.
    used = {"persona", "persona_words", *population.columns}
    return "" if used.intersection(slots) else ENDING


def persona_text(
    text: object,
    config: WorldConfig,
    player: str,
    place: str,
) -> object:
    """Return a text that code made, followed by the player's row in words.

    A filled prompt is followed by them as by one part more, whose source is named.

    Raises:
        ConfigError: it is no text.
    """
    population = population_of(config)
    if population is None:
        return text
    words = _in_words(population, player)
    if isinstance(text, RenderedPrompt):
        return text.followed_by("persona_words", words, f"population, {player}")
    if type(text) is not str:
        raise ConfigError(
            f"{place}: the function prompt= returned {brief(text, 80)}, which is no text, so that "
            "the row of population= cannot follow it"
        )
    return f"{text}\n\n{words}"


def with_personas(frame: pd.DataFrame, config: WorldConfig) -> pd.DataFrame:
    """Return decisions with the columns of their players' rows, as ``persona_NAME`` if taken."""
    population = population_of(config)
    if population is None or frame.empty:
        return frame
    import pandas as pd

    # Decisions of an engine, or of anybody else without a row, have blanks.
    rows: list[Mapping[str, object]] = [
        population.rows.get(player, {}) for player in frame["player"]
    ]
    for column in population.columns:
        # A reply's own field of that name stays what was answered.
        name = f"persona_{column}" if column in frame else column
        frame[name] = pd.Series(
            [row.get(column) for row in rows],
            index=frame.index,
        )
    return frame
