"""Populations: players that are like the people of a table.

Whole rows are drawn, so that what goes together in people goes together in players: age with
income, region with opinion. Margins drawn one by one would make people whom nobody is like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from pydantic import Field, PrivateAttr, field_validator, model_validator

from llmsim_lab._util.checks import (
    item_count,
    plain_number,
    plain_numbers,
    real_number,
    whole_number,
)
from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import brief, closest, counted, listed, whole_text
from llmsim_lab.errors import ConfigError, PromptError
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts.prompt import is_file_name

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Value = str | bool | int | float | None
Row = dict[str, Value]
Margins = Mapping[str, Mapping[object, float]]
"""By column, the share of each of its values."""

TAKEN = ("name", "state", "run", "turn", "turns", "persona", "persona_words")
"""What prompts have already, so that no column can be called so."""
_MOST_PLAYERS = 100_000
_NAMES_OF_WEIGHTS = frozenset(
    ("weight", "weights", "wgt", "wt", "pweight", "pweights", "sample_weight", "survey_weight")
)
"""What surveys call the column that says how many people a row stands for."""
_ROUNDS = 1_000
_TOLERANCE = 1e-9
_NEAR = 1e-6
"""Shares that differ by less are equal."""
_LARGE = 2.0**63
"""A number below it can be compared and shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What a population was drawn from, and how."""

    frame: pd.DataFrame
    weights: NDArray[np.float64]
    n: int
    seed: int
    names: tuple[str, ...]
    words: str


class Population(Settings):
    """Players by name, each with a row of a table.

    ``PublicGoods(population=Population.from_table(...))``: a row's columns are slots of prompts,
    ``{{ age }}``, and columns of ``decisions()``. A prompt that uses none of them is followed by
    the row in words. ``None``, the default, is nobody in particular: the reference of a study.

    Attributes:
        rows: by the player's name, its row.
        words: a player in words, a template with the columns as slots; without it the row is told
            as "About you: age 34, region north."
        wanted: the margins that ``raked`` was given, as texts.

    Raises:
        ConfigError: a row lacks a column or has a value that no tape holds, a column cannot be a
            slot, or the words are not a template of the columns.
    """

    rows: dict[str, Row]
    words: str = ""
    wanted: dict[str, dict[str, float]] = Field(default_factory=dict)
    _table: _Table | None = PrivateAttr(default=None)

    @field_validator("rows")
    @classmethod
    def _check_rows(cls, rows: dict[str, Row]) -> dict[str, Row]:
        if not rows:
            raise ValueError("a population has at least one player")
        # In one order, since a row in words follows it.
        columns = list(next(iter(rows.values())))
        for name, row in rows.items():
            if list(row) != columns:
                raise ValueError(
                    f"{brief(name)} has the columns {brief(list(row), 200)}, and the first one "
                    f"{brief(columns, 200)}"
                )
        if not columns:
            raise ValueError("the rows have no column, so that nobody is like anybody")
        # Checked here too, since a population may come from a file and not from a table.
        for column in columns:
            if column in TAKEN or not _is_slot(column):
                raise ValueError(
                    f"a column {brief(column)} cannot be a prompt's slot; call it something else, "
                    f"a word that is not one of {', '.join(TAKEN)}, nor of the language of prompts"
                )
        for name, row in rows.items():
            for text in (name, *row.values()):
                if isinstance(text, str) and text != whole_text(text):
                    raise ValueError(
                        f"{brief(text)}, of the player {brief(name)}, has half a character (a "
                        "surrogate), which no file can hold; read the table with its own encoding"
                    )
        return rows

    @model_validator(mode="after")
    def _check_words(self) -> Self:
        # From a tape or a file these may be of another population.
        for column, shares in self.wanted.items():
            if column not in self.columns:
                raise ValueError(
                    f"wanted has a margin of {brief(column)}, and the columns are "
                    f"{listed(self.columns)}"
                )
            for value in shares:
                if value != whole_text(value):
                    raise ValueError(f"wanted has the value {brief(value)}, with half a character")
        if not self.words:
            return self
        if is_file_name(self.words):
            raise ValueError(
                f"words are {self.words!r}, a file's name; give what is in it: "
                f"Path({self.words!r}).read_text()"
            )
        # Now, and not at the first question, which may come after an hour.
        words = Prompt(self.words, name="words of the population")
        unknown = [slot for slot in words.slots if slot not in self.columns]
        if unknown:
            raise ValueError(
                f"words use {{{{ {unknown[0]} }}}}{closest(unknown[0], self.columns)}, and the "
                f"columns are {listed(self.columns)}"
            )
        # Each row, since one may lack what the template does with the others.
        for row in self.rows.values():
            words.render(**{slot: row[slot] for slot in words.slots})
        return self

    @classmethod
    def from_table(
        cls,
        frame: pd.DataFrame,
        *,
        n: int | None = None,
        weights: str | Sequence[float] | None = None,
        seed: int = 0,
        names: Sequence[str] | None = None,
        words: str = "",
    ) -> Self:
        """Return players drawn from a table, whole rows.

        The draw is systematic: each row comes as often as its share of the weights times ``n``,
        rounded up or down.

        Args:
            frame: a row for each person.
            n: how many players; as many as the names, or as the table has rows, if not given.
            weights: of the rows: a column, which is no slot then, or numbers.
            seed: of the draw.
            names: of the players, as the world calls them; P1, P2, … if not given.
            words: see ``words``.

        Raises:
            ConfigError: the table is empty or lacks a value, a weight is negative, a column is
                called like weights and ``weights=`` does not name it, or names and ``n`` differ.
        """
        import numpy as np
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise ConfigError(
                f"a {type(frame).__name__} is no table; give a DataFrame of pandas, a row for each "
                "person"
            )
        if frame.empty:
            raise ConfigError("the table has no rows, so that nobody can be drawn from it")
        _check_columns(frame)
        seed = whole_number("seed", seed, least=0)
        # A column of weights is no trait: as a slot it would tell a player how many it stands for.
        numbers = np.ones(len(frame))
        if isinstance(weights, str):
            if weights not in frame:
                raise ConfigError(
                    f"weights={brief(weights)} is not a column{closest(weights, frame.columns)}; "
                    f"the table has {listed(list(frame.columns))}"
                )
            numbers = _weights_of(frame[weights], len(frame))
            frame = frame.drop(columns=weights)
        else:
            _check_no_weights_among_traits(frame)
            # By their places, people of a table that was sorted would have the weights of others.
            if isinstance(weights, pd.Series) and not weights.index.equals(frame.index):
                raise ConfigError(
                    "weights is a Series with another index than the table has; make it a column, "
                    "frame.assign(weight=weights), or, where it is in the rows' order, give "
                    "weights.to_numpy()"
                )
            if weights is not None:
                numbers = _weights_of(weights, len(frame))
        # All, and not the rows drawn alone: another seed would find the fault later.
        for column in frame.columns:
            _check_no_gap(frame[column], column)
            for cell in frame[column]:
                _plain(cell, column)
        players = _player_names(names, n, len(frame))
        table = _Table(
            # Rows are drawn by their place, and the caller's index may have gaps or repeats.
            frame=frame.reset_index(drop=True),
            weights=numbers / numbers.sum(),
            n=len(players),
            seed=seed,
            names=players,
            words=words,
        )
        return cls._drawn(table, {})

    @classmethod
    def _drawn(cls, table: _Table, wanted: Margins) -> Self:
        import numpy as np

        rng = np.random.default_rng(table.seed)
        # At random, so that rows with equal margins have equal chances.
        order = rng.permutation(len(table.frame))
        # By the margins' columns, the first one outermost: of each of its values the players are
        # as many as wanted, rounded up or down.
        for column in reversed(list(wanted)):
            # Stable sorts, the last one outermost. As texts, since a column may mix types.
            texts = np.array([str(_plain(value, column)) for value in table.frame[column]])
            order = order[np.argsort(texts[order], kind="stable")]
        # Systematic: n equally spaced points, moved together by chance, on the rows' weights.
        points = (rng.random() + np.arange(table.n)) / table.n
        places = np.searchsorted(np.cumsum(table.weights[order]), points)
        # Rounding may leave the last sum a little below the last point.
        chosen = order[places.clip(max=len(order) - 1)]
        # Else neighbours of the table's order would sit beside each other.
        rows = table.frame.iloc[rng.permutation(chosen)]
        players = {}
        for name, row in zip(table.names, rows.to_dict("records"), strict=True):
            cells: Row = {}
            for label, value in row.items():
                column = str(label)  # a text already, for pandas any label
                cells[column] = _plain(value, column)
            players[name] = cells
        margins: dict[str, dict[str, float]] = {}
        for column, shares in wanted.items():
            margins[column] = {}
            for value, share in shares.items():
                of_value = table.frame[column][_is_value(table.frame[column], value)]
                # As the players' rows have it: 1 in a column of numbers with a point is 1.0.
                if len(of_value):
                    value = of_value.iloc[0]
                # 1 and "1" are one text, in the players' shares too.
                text = str(_plain(value, column))
                margins[column][text] = margins[column].get(text, 0.0) + float(share)
        drawn = cls(
            rows=players,
            words=table.words,
            wanted=margins,
        )
        # Apart from the fields, which a tape holds: a table may be large, or a survey's own.
        drawn._table = table
        return drawn

    def raked(self, margins: Margins, *, seed: int | None = None) -> Self:
        """Return players drawn anew from the same table, weighted so that its margins are these.

        By iterative proportional fitting: Deming and Stephan (1940), "On a least squares adjustment
        of a sampled frequency table when the expected marginal totals are known", Annals of
        Mathematical Statistics 11. ``largest_miss`` says how far the players drawn are from them.

        Args:
            margins: by column, the share of each of its values: ``{"region": {"north": 0.3,
                "south": 0.7}}``.
            seed: of the draw; that of ``from_table`` if not given.

        Raises:
            ConfigError: the population was not drawn from a table here; a margin names a column or
                value that the table lacks, or leaves one out; shares are not 1 together; or no
                weights have all margins at once.
        """
        import numpy as np

        table = self._table
        if table is None:
            raise ConfigError(
                "raked() weights a table anew, and this population came from a tape or a file; "
                "begin with Population.from_table(...)"
            )
        if seed is not None:
            seed = whole_number("seed", seed, least=0)
        masks = _masks_of(table.frame, margins)
        weights = table.weights.copy()
        miss = np.inf
        for _ in range(_ROUNDS):
            for mask, share in masks:
                total = weights[mask].sum()
                # Rows of weight 0 cannot be raised to a share; the miss below says so.
                if total > 0:
                    weights[mask] *= share / total
            # After the last column's turn the others may be off again: all have to fit at once.
            misses = [abs(weights[mask].sum() - share) for mask, share in masks]
            miss = max(misses)
            if miss < _TOLERANCE:
                break
        if miss > _NEAR:
            raise ConfigError(
                f"no weights of these {len(table.frame)} rows have all margins at once: after "
                f"{_ROUNDS} rounds one is missed by {miss:.3f}. Combinations are lacking in the "
                "table, or their weight is 0; leave a margin out, or join values"
            )
        fitted = _Table(
            frame=table.frame,
            weights=weights / weights.sum(),
            n=table.n,
            seed=table.seed if seed is None else seed,
            names=table.names,
            words=table.words,
        )
        return type(self)._drawn(fitted, margins)

    def __eq__(self, other: object) -> bool:
        """Return True for the same players, whatever table they were drawn from."""
        if not isinstance(other, Population):
            return NotImplemented
        return (self.rows, self.words, self.wanted) == (other.rows, other.words, other.wanted)

    def on_tape(self) -> Self:
        """Return the players alone, as a tape has them, without the table they are drawn from."""
        return type(self)(
            rows=self.rows,
            words=self.words,
            wanted=self.wanted,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The players' names."""
        return tuple(self.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows."""
        return tuple(next(iter(self.rows.values())))

    def row(self, name: str) -> Mapping[str, Value]:
        """Return a player's row.

        Raises:
            ConfigError: there is no such player.
        """
        if not isinstance(name, str) or name not in self.rows:
            raise ConfigError(
                f"the population has no row for {brief(name)}{closest(name, self.rows)}; it has "
                f"{listed(list(self.rows))}: Population.from_table(..., names=[{brief(name)}, ...])"
            )
        return self.rows[name]

    def margins(self) -> pd.DataFrame:
        """Return the shares of each value that ``raked`` was given: wanted, and of the players."""
        import pandas as pd

        rows = []
        for column, shares in self.wanted.items():
            values = [str(row[column]) for row in self.rows.values()]
            for value, share in shares.items():
                players = values.count(value) / len(values)
                rows.append(
                    {
                        "column": column,
                        "value": value,
                        "wanted": share,
                        "players": players,
                    }
                )
        return pd.DataFrame(rows, columns=["column", "value", "wanted", "players"])

    @property
    def largest_miss(self) -> float | None:
        """How far the players' worst margin is from the one wanted; None without ``raked``."""
        if not self.wanted:
            return None
        margins = self.margins()
        misses = margins["wanted"] - margins["players"]
        return float(misses.abs().max())

    def to_frame(self) -> pd.DataFrame:
        """Return the players, a row each, by name."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.rows, orient="index").rename_axis("player")


def _masks_of(
    frame: pd.DataFrame,
    margins: Margins,
) -> list[tuple[NDArray[np.bool_], float]]:
    """Return for each share of the margins the rows that it is of.

    Raises:
        ConfigError: see ``Population.raked``.
    """
    import numpy as np

    if not isinstance(margins, Mapping) or not margins:
        raise ConfigError("raked() needs margins: raked({'region': {'north': 0.3, 'south': 0.7}})")
    masks = []
    for column, shares in margins.items():
        if not isinstance(column, str) or column not in frame:
            raise ConfigError(
                f"the table has no column {brief(column)}{closest(column, frame.columns)}; it has "
                f"{listed(list(frame.columns))}"
            )
        if not isinstance(shares, Mapping):
            raise ConfigError(
                f"the margin of {column} is {brief(shares)}; give each value its share in a dict: "
                f"{{{column!r}: {{'north': 0.3, 'south': 0.7}}}}, of a Series its .to_dict()"
            )
        for value, share in shares.items():
            _plain(value, column)
            real_number(f"the share of {column}={brief(value)}", share, least=0, most=1)
        if abs(sum(shares.values()) - 1) > _NEAR:
            raise ConfigError(
                f"the shares of {column} are {sum(shares.values()):g} together; they are 0 to 1, "
                "and 1 together"
            )
        # People whom no share is of would keep their weight, and all others' shares be too small.
        left_out = np.ones(len(frame), dtype=bool)
        for value in shares:
            left_out &= ~_is_value(frame[column], value)
        if left_out.any():
            # The first in the alphabet, so that a message does not change with the table's order.
            without_share = _plain(min(frame[column][left_out], key=str), column)
            strangers = [value for value in shares if not _is_value(frame[column], value).any()]
            of_nobody = ""
            if strangers:
                of_nobody = f", and nobody of the table is {brief(strangers[0])}"
            raise ConfigError(
                f"the margin of {column} does not say how many are {brief(without_share)}"
                f"{of_nobody}; give each of its values a share, 0 for nobody: "
                f"{column}={{{brief(without_share)}: 0, ...}}"
            )
        for value, share in shares.items():
            mask = _is_value(frame[column], value)
            if share > 0 and not mask.any():
                raise ConfigError(
                    f"{share:.0%} are to have {column}={brief(value)}, and the table has nobody "
                    "of them"
                )
            masks.append((mask, float(share)))
    return masks


def _is_value(
    column: pd.Series,
    value: object,
) -> NDArray[np.bool_]:
    """Return which rows have a value."""
    import pandas as pd

    # pandas' own NA is neither equal nor unequal.
    equal = pd.Series(column == value).fillna(False)
    return equal.to_numpy(dtype=bool)


def _is_missing(value: object) -> bool:
    import pandas as pd

    # Of a list isna() says it for each member.
    return pd.api.types.is_scalar(value) and bool(pd.isna(value))  # type: ignore[call-overload]


def _check_no_gap(cells: pd.Series, column: str) -> None:
    gaps = cells.index[cells.isna()]
    if not len(gaps):
        return
    # One gap makes pandas' whole numbers 33.0, which drop and fill alone leave as they are.
    raise ConfigError(
        f"the table has no value of {column!r} in {counted(len(gaps), 'row')}, first in row "
        f"{brief(plain_number(gaps[0]))}, and a player would be told {column} None; drop them, "
        f"frame.dropna(subset=[{column!r}]).convert_dtypes(), or fill them, "
        f"frame.fillna({{{column!r}: ...}}).convert_dtypes()"
    )


def _check_no_weights_among_traits(frame: pd.DataFrame) -> None:
    """Raise ConfigError for a survey's weights that would become a trait.

    Every row would count alike, and each player would be told how many people it stands for.
    """
    for column in frame.columns:
        if str(column).casefold() in _NAMES_OF_WEIGHTS:
            raise ConfigError(
                f"the table has a column {column!r}, and weights= does not name it: say "
                f"weights={column!r} to draw rows by it. If it is a person's own trait, rename it, "
                f"frame.rename(columns={{{column!r}: 'weight_kg'}}); if neither, drop it"
            )


def _check_columns(frame: pd.DataFrame) -> None:
    for column in frame.columns:
        if not isinstance(column, str):
            raise ConfigError(
                f"a column of the table is called {brief(column)}, which is not a text and cannot "
                "be a prompt's slot; name them: frame.columns = ['age', ...]"
            )
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        # A row is a dict, which would have the last of them alone.
        raise ConfigError(
            f"the table has the column {repeated[0]!r} twice; give each a name of its own"
        )


def _is_slot(column: str) -> bool:
    """Return True if ``{{ column }}`` is a slot in a prompt."""
    if not column.isidentifier():
        return False
    try:
        # Words of the language of prompts are not slots: not, True, none.
        return Prompt(f"{{{{ {column} }}}}").slots == (column,)
    except PromptError:
        return False


def _weights_of(
    weights: object,
    rows: int,
) -> NDArray[np.float64]:
    """Return weights as numbers, one for each row.

    Raises:
        ConfigError: they are not.
    """
    import numpy as np

    entries = plain_numbers(weights)
    # A set would drop equal weights, and lose their order.
    if not _is_list(entries):
        raise ConfigError(
            f"weights={brief(weights)} must be a column's name, or a list: a number for each row"
        )
    count = item_count(entries)
    if count != rows:
        raise ConfigError(f"weights are {count:,} numbers for {rows} rows; each row needs one")
    for weight in entries:
        if isinstance(weight, str):
            raise ConfigError(
                f"a weight={brief(weight)} must be a finite number, and it is a text: "
                "frame[column].astype(float) makes numbers of a column of texts"
            )
    numbers: NDArray[np.float64] = np.array(
        [real_number("a weight", weight, least=0) for weight in entries]
    )
    if not numbers.any():
        raise ConfigError("weights are all 0; a row that is to be drawn needs one above 0")
    numbers /= numbers.max()  # else the sum of the largest ones is no number
    return numbers


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _player_names(
    names: object,
    n: int | None,
    rows: int,
) -> tuple[str, ...]:
    """Return the players' names; as many as the names, or as the rows, if ``n`` is not given.

    Raises:
        ConfigError: they are not texts, each once, or not ``n``.
    """
    # A slip such as 10**30 would fill the memory before any error.
    if n is not None:
        n = whole_number("n", n, least=1, most=_MOST_PLAYERS)
    if names is None:
        last = rows if n is None else n
        return tuple(f"P{number}" for number in range(1, last + 1))
    entries = plain_numbers(names)
    # A set has no order: each program would give other people the rows.
    if not _is_list(entries):
        raise ConfigError(f"names={brief(names)} must be a list of texts: names=['Ann', 'Bob']")
    if item_count(entries) > _MOST_PLAYERS:
        raise ConfigError(f"names={brief(names)} has more than {_MOST_PLAYERS:,} names; give fewer")
    for name in entries:
        if not isinstance(name, str):
            raise ConfigError(f"names has {brief(name)}, and a player's name is a text")
    players = len(entries) if n is None else n
    different = len(set(entries))
    if different != len(entries) or players != len(entries):
        raise ConfigError(
            f"names are {len(entries)}, {different} of them different, and n={players} players "
            "need one each"
        )
    return tuple(entries)


def _is_plain(value: Any) -> TypeGuard[Value]:
    """Return True for a text or number that is as a tape holds it, as most cells are."""
    if type(value) is str:
        return value.isascii()
    # Not NaN, which is neither above nor below anything.
    return type(value) in (bool, int, float) and -_LARGE < value < _LARGE


def _plain(value: object, column: str) -> Value:
    """Return a cell of a column as a tape can hold it.

    Raises:
        ConfigError: it is a list, bytes or another thing that has no words of its own.
    """
    if _is_plain(value):
        return value
    import pandas as pd

    if _is_missing(value):
        return None
    plain = plain_number(value)
    if isinstance(plain, str) and plain != whole_text(plain):
        raise ConfigError(
            f"the column {brief(column)} has {brief(plain)}, with half a character (a surrogate), "
            "which no file can hold; read the table with its own encoding"
        )
    if isinstance(plain, str | bool):
        return plain
    if isinstance(plain, int):
        # Its size alone: a number of a thousand digits can neither be compared nor shown.
        real_number(f"a value of {column}", plain)
        return plain
    if isinstance(plain, float):
        return real_number(f"a value of {column}", plain)
    # Dates, categories and bands are told in words, which is all that a prompt does with them.
    has_words = pd.api.types.is_scalar(value) and not isinstance(value, bytes | complex)
    if not has_words:
        raise ConfigError(
            f"the column {column!r} has {brief(value)}; a cell is a text, a number, a truth value "
            f"or a date: frame[{column!r}] = frame[{column!r}].map(...)"
        )
    return str(value)
