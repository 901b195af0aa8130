"""The numbers of a contrast in an outcome, from one long table.

The table has one row for each value: ``arm``, one column for each factor, ``unit``, ``run``,
``wording``, ``replicate``, ``turn``, ``outcome``, ``value``. A unit is a run, or a recorded
situation that was asked again. Turns and replicates are averaged within their unit before anything
is inferred, so that n never counts turns or calls. This module knows neither tapes nor models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from llmsim_lab._util.text import among, brief, counted
from llmsim_lab.errors import ConfigError
from llmsim_lab.study.estimates.estimate import Contrast, Generality, Unit
from llmsim_lab.study.estimates.numeric import Numbers
from llmsim_lab.study.estimates.parts import Sample, TextSample, left_out
from llmsim_lab.study.estimates.texts import text_kinds, text_lengths

PROMPT = "prompt"
"""The factor whose levels may be several wordings each."""
_INFINITE = 1e150
"""The square of a larger number is infinite, and so is its variance."""


class Cube(NamedTuple):
    """Means by some of a table's columns.

    Attributes:
        values: one axis for each column; NaN where there is no number.
        levels: the values of the columns along each axis.
    """

    values: Numbers
    levels: list[list[Any]]


def cube(table: pd.DataFrame, *keys: str) -> Cube:
    """Return the means of a table's values by the keys, NaN where one is infinite."""
    # Texts become NaN: outcomes of texts are compared by their kinds.
    numbers = pd.to_numeric(table["value"], errors="coerce")
    return cube_of(table, numbers.to_frame(), *keys)


def cube_of(
    table: pd.DataFrame,
    columns: pd.DataFrame,
    *keys: str,
) -> Cube:
    """Return the means of columns by a table's keys; a single column adds no axis."""
    levels = []
    places = []
    for key in keys:
        # In the order of the table, which is that of the design.
        place_of_row, names = pd.factorize(table[key], use_na_sentinel=False)
        levels.append(list(names))
        places.append(place_of_row)
    shape = [len(names) for names in levels]
    # One number for each cell: grouping by several columns is far slower.
    cells = np.ravel_multi_index(places, shape)
    numbers = columns.to_numpy(dtype=float)
    # inf replaces -inf too, since the mean becomes NaN either way.
    numbers = np.where(np.abs(numbers) > _INFINITE, np.inf, numbers)
    means = pd.DataFrame(numbers).groupby(cells, sort=False).mean()
    column_count = numbers.shape[1]
    # All combinations, also those without a row.
    whole = np.full((math.prod(shape), column_count), np.nan)
    whole[means.index] = means.where(means < np.inf)
    if column_count > 1:
        shape.append(column_count)
    return Cube(whole.reshape(shape), levels)


def place_of(
    kind: str,
    name: object,
    names: Iterable[object],
) -> int:
    """Return the place of a name among names; an unknown name is an error."""
    known_names = list(dict.fromkeys(names))
    if name not in known_names:
        raise ConfigError(f"{kind}={name!r} is unknown{among(str(name), map(str, known_names))}")
    return known_names.index(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeValues:
    """All values of an outcome, by arm.

    Attributes:
        name: the outcome's label.
        numbers: arms x wordings x units x replicates; for texts, the number of words.
        kinds: for texts, arms x units x replicates x kinds.
        are_words: whether the kinds are words, not whole texts.
        mixed: a sentence if the outcome has numbers and texts; empty otherwise.
        is_row: arms x units, True where the table has a row, with or without a value.
    """

    name: str
    numbers: Numbers
    is_row: NDArray[np.bool_]
    kinds: Numbers | None = None
    are_words: bool = False
    mixed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The design of a table.

    Attributes:
        arms: the names of the arms, in order.
        run_of: the number of each unit's run.
        wording_counts: how many wordings each arm has.
        wording_sets: a number for each arm; arms with the same number ask the same wordings.
        generalises_to: what the intervals are to hold for.
    """

    arms: list[str]
    run_of: NDArray[np.intp]
    wording_counts: NDArray[np.intp]
    wording_sets: NDArray[np.intp]
    generalises_to: Generality

    @classmethod
    def of(
        cls,
        table: pd.DataFrame,
        generalises_to: Generality,
    ) -> Layout:
        """Return the design of a table."""
        number_of_set: dict[object, int] = {}
        counts = []
        numbers = []
        for _, rows in table.groupby("arm", sort=False):
            wordings = tuple(rows["wording"].unique())
            # Every list has a "wording 1", so that the prompt's label must tell the lists apart.
            prompt = ""
            if PROMPT in rows:
                prompt = rows[PROMPT].iloc[0]
            counts.append(len(wordings))
            # The next number, for a list that no earlier arm had.
            new_number = len(number_of_set)
            number = number_of_set.setdefault((prompt, wordings), new_number)
            numbers.append(number)
        # In the order of the units in the cube of values.
        runs = table.drop_duplicates("unit")["run"]
        return cls(
            arms=list(table["arm"].unique()),
            run_of=pd.factorize(runs)[0],
            wording_counts=np.array(counts),
            wording_sets=np.array(numbers),
            generalises_to=generalises_to,
        )

    def contrast(self, name: str, weights: Numbers) -> Contrast:
        """Return a contrast of numbers, with its unit and what it generalises to."""
        # Of the compared arms: another arm may have several wordings.
        of_arms = self.wording_counts[weights != 0]
        has_wordings = of_arms.max(initial=0) > 1
        if has_wordings and "wordings" in self.generalises_to:
            return self._contrast(
                name,
                weights,
                "wording",
                self.generalises_to,
            )
        return self.contrast_of_texts(name, weights)

    def contrast_of_texts(self, name: str, weights: Numbers) -> Contrast:
        """Return a contrast of texts, which holds for these wordings only."""
        # Wordings are not repeated units here; runs are, or the situations of one run.
        if self.generalises_to in ("new runs", "new wordings and situations"):
            return self._contrast(
                name,
                weights,
                "run",
                "new runs",
            )
        return self._contrast(
            name,
            weights,
            "situation",
            "these situations",
        )

    def _contrast(
        self,
        name: str,
        weights: Numbers,
        unit: Unit,
        generalises_to: Generality,
    ) -> Contrast:
        by_arm = {}
        for arm, weight in zip(self.arms, weights, strict=True):
            # An arm with weight 0 is not compared, so that its missing runs do not count.
            if weight:
                by_arm[arm] = float(weight)
        return Contrast(
            name=name,
            weights=by_arm,
            unit=unit,
            generalises_to=generalises_to,
        )

    def _used(self, contrast: Contrast) -> NDArray[np.bool_]:
        """Return for each arm whether a contrast compares it."""
        return np.array([arm in contrast.weights for arm in self.arms])

    def sample(
        self,
        contrast: Contrast,
        outcome: OutcomeValues,
    ) -> Sample:
        """Return the numbers of a contrast's arms."""
        used = self._used(contrast)
        return Sample(
            values=outcome.numbers[used],
            weights=np.array(list(contrast.weights.values())),
            run_of=self.run_of,
            wording_counts=self.wording_counts[used],
            wording_sets=self.wording_sets[used],
        )

    def runs_left_out(
        self,
        contrast: Contrast,
        outcome: OutcomeValues,
    ) -> tuple[str, ...]:
        """Return the note on runs of a contrast's arms that have no value."""
        used = self._used(contrast)
        is_row = outcome.is_row[used]
        is_value = np.isfinite(outcome.numbers[used])
        # A unit counts if any of its wordings and replicates has a value.
        has_value = is_value.any(axis=(1, 3))
        # Units without a row are not missing: they belong to another arm.
        missing = is_row & ~has_value
        return left_out(
            int(missing.sum()),
            int(is_row.sum()),
        )

    def text_sample(
        self,
        contrast: Contrast,
        outcome: OutcomeValues,
    ) -> TextSample:
        """Return the texts of a contrast's arms."""
        assert outcome.kinds is not None
        return TextSample(
            kinds=outcome.kinds[self._used(contrast)],
            lengths=self.sample(contrast, outcome),
            are_words=outcome.are_words,
        )


_CELLS = ("arm", "wording", "unit", "replicate")


def outcomes_of(table: pd.DataFrame) -> list[OutcomeValues]:
    """Return a table's outcomes, numbers and texts."""
    is_text = table["value"].map(_is_text)
    names_of_texts = set(table.loc[is_text, "outcome"])
    whole = cube(table, *_CELLS, "outcome")
    # 0 where there is a row; NaN elsewhere.
    zeros = table[["value"]].notna() * 0.0
    rows_of_all = cube_of(
        table,
        zeros,
        "arm",
        "unit",
        "outcome",
    )
    outcomes = []
    names = whole.levels[-1]
    for place, name in enumerate(names):
        rows = rows_of_all.values[..., place]
        outcome = OutcomeValues(
            name=str(name),
            numbers=whole.values[..., place],
            is_row=np.isfinite(rows),
        )
        if name in names_of_texts:
            values = table.loc[table["outcome"] == name, "value"]
            texts = values[is_text]
            numbers = values[~is_text]
            number_count = int(numbers.notna().sum())
            if number_count:
                outcome = replace(outcome, mixed=_mixed(number_count, texts))
            else:
                outcome = _with_texts(outcome, table, texts)
        outcomes.append(outcome)
    return outcomes


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _mixed(
    number_count: int,
    texts: pd.Series[str],
) -> str:
    """Return the note on why an outcome with numbers and texts is not compared."""
    numbers = counted(number_count, "number")
    text_count = counted(len(texts), "text")
    example = texts.iloc[0]
    return (
        f"{numbers} and {text_count}, such as {brief(example, 40)}, cannot be compared; return "
        "None where a run has no number"
    )


def _with_texts(
    outcome: OutcomeValues,
    table: pd.DataFrame,
    texts: pd.Series[str],
) -> OutcomeValues:
    """Return an outcome with the kinds of its texts, and their lengths as numbers."""
    kinds = text_kinds(texts)
    # With all rows of the table, so that all arms, wordings and units have a place.
    of_kinds = cube_of(
        table,
        kinds.rows.reindex(table.index),
        "arm",
        "unit",
        "replicate",
    )
    # If all texts are equal there is one kind, and the cube has no axis for it.
    shape = [len(names) for names in of_kinds.levels]
    lengths = text_lengths(texts).reindex(table.index)
    of_lengths = cube_of(table, lengths.to_frame(), *_CELLS)
    return replace(
        outcome,
        numbers=of_lengths.values,
        kinds=of_kinds.values.reshape(*shape, -1),
        are_words=kinds.are_words,
    )
