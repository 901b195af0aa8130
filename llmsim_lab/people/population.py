"""Populations: players that are like the people of a table.

Whole rows are drawn, so that what goes together in people goes together in players: age with
income, region with opinion. Margins drawn one by one would make people whom nobody is like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pydantic import Field, PrivateAttr, field_validator

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import closest, listed
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Value = str | bool | int | float | None
Margins = Mapping[str, Mapping[object, float]]
"""By column, the share of each of its values."""

TAKEN = ("name", "state", "run", "turn", "turns", "persona", "persona_words")
"""What prompts have already, so that no column can be called so."""
_ROUNDS = 1_000
_TOLERANCE = 1e-9
_NEAR = 1e-6
"""Shares that differ by less are equal."""


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
    """

    rows: dict[str, dict[str, Value]]
    words: str = ""
    wanted: dict[str, dict[str, float]] = Field(default_factory=dict)
    _table: _Table | None = PrivateAttr(default=None)

    @field_validator("rows")
    @classmethod
    def _check_rows(cls, rows: dict[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
        if not rows:
            raise ValueError("a population has at least one player")
        # In one order, since a row in words follows it.
        columns = list(next(iter(rows.values())))
        for name, row in rows.items():
            if list(row) != columns:
                raise ValueError(f"{name} has the columns {list(row)}, and the first one {columns}")
        if not columns:
            raise ValueError("the rows have no column, so that nobody is like anybody")
        # Checked here too, since a population may come from a file and not from a table.
        for column in columns:
            if column in TAKEN or not column.isidentifier():
                raise ValueError(
                    f"a column {column!r} cannot be a prompt's slot; call it something else, a "
                    f"word that is not one of {', '.join(TAKEN)}"
                )
        return rows

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
            ConfigError: the table is empty, a weight is negative, or names and ``n`` differ.
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
        repeated = frame.columns[frame.columns.duplicated()]
        if len(repeated):
            # A row is a dict, which would have the last of them alone.
            raise ConfigError(
                f"the table has the column {str(repeated[0])!r} twice; give each a name of its own"
            )
        whole_number("seed", seed, least=0)
        # A column of weights is no trait: as a slot it would tell a player how many it stands for.
        if isinstance(weights, str):
            if weights not in frame:
                raise ConfigError(
                    f"weights={weights!r} is not a column{closest(weights, frame.columns)}; the "
                    f"table has {listed([*map(str, frame.columns)])}"
                )
            numbers = _numbers(frame[weights])
            frame = frame.drop(columns=weights)
        elif weights is None:
            numbers = np.ones(len(frame))
        else:
            numbers = _numbers(weights)
        # NaN fails both comparisons below, and would make every weight NaN.
        is_wrong = len(numbers) != len(frame) or not np.isfinite(numbers).all()
        if is_wrong or numbers.min() < 0 or not numbers.sum():
            raise ConfigError(
                f"weights are {len(numbers)} numbers for {len(frame)} rows; each row needs one, "
                "finite and not negative, and not all may be 0"
            )
        if n is None:
            n = len(names) if names is not None else len(frame)
        whole_number("n", n, least=1)
        if names is None:
            names = [f"P{number}" for number in range(1, n + 1)]
        if len(names) != n or len(set(names)) != n:
            raise ConfigError(
                f"names are {len(names)}, {len(set(names))} of them different, and n={n} players "
                "need one each"
            )
        table = _Table(
            # Rows are drawn by their place, and the caller's index may have gaps or repeats.
            frame=frame.reset_index(drop=True),
            weights=numbers / numbers.sum(),
            n=n,
            seed=seed,
            names=tuple(names),
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
            # Stable sorts, the last one outermost. As texts, since a column may mix types;
            # astype(str) would leave what is missing as it is.
            codes = np.array([str(_plain(value)) for value in table.frame[column]])[order]
            order = order[np.argsort(codes, kind="stable")]
        # Systematic: n equally spaced points, moved together by chance, on the rows' weights.
        points = (rng.random() + np.arange(table.n)) / table.n
        places = np.searchsorted(np.cumsum(table.weights[order]), points)
        # Rounding may leave the last sum a little below the last point.
        chosen = order[places.clip(max=len(order) - 1)]
        # Else neighbours of the table's order would sit beside each other.
        rows = table.frame.iloc[rng.permutation(chosen)]
        players = {}
        for name, row in zip(table.names, rows.to_dict("records"), strict=True):
            players[name] = {str(column): _plain(value) for column, value in row.items()}
        margins: dict[str, dict[str, float]] = {}
        for column, shares in wanted.items():
            margins[column] = {}
            for value, share in shares.items():
                of_value = table.frame[column][_is_value(table.frame[column], value)]
                # As the players' rows have it: 1 in a column of numbers with a point is 1.0.
                text = str(_plain(of_value.iloc[0] if len(of_value) else value))
                margins[column][text] = float(share)
        drawn = cls(
            rows=players,
            words=table.words,
            wanted=margins,
        )
        # Apart from the fields, which a tape holds: a table may be large, or a survey's own.
        drawn._table = table
        return drawn

    def raked(self, margins: Margins) -> Self:
        """Return players drawn anew from the same table, weighted so that its margins are these.

        By iterative proportional fitting: Deming and Stephan (1940), "On a least squares adjustment
        of a sampled frequency table when the expected marginal totals are known", Annals of
        Mathematical Statistics 11. ``largest_miss`` says how far the players drawn are from them.

        Args:
            margins: by column, the share of each of its values: ``{"region": {"north": 0.3,
                "south": 0.7}}``.

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
            miss = max(abs(weights[mask].sum() - share) for mask, share in masks)
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
            seed=table.seed,
            names=table.names,
            words=table.words,
        )
        return type(self)._drawn(fitted, margins)

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
        if name not in self.rows:
            raise ConfigError(
                f"the population has no row for {name!r}{closest(name, self.rows)}; it has "
                f"{listed(list(self.rows))}: Population.from_table(..., names=[{name!r}, ...])"
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
                rows.append({"column": column, "value": value, "wanted": share, "players": players})
        return pd.DataFrame(rows, columns=["column", "value", "wanted", "players"])

    @property
    def largest_miss(self) -> float | None:
        """How far the players' worst margin is from the one wanted; None without ``raked``."""
        if not self.wanted:
            return None
        margins = self.margins()
        return float((margins["wanted"] - margins["players"]).abs().max())

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
        if column not in frame:
            raise ConfigError(
                f"the table has no column {column!r}{closest(column, frame.columns)}; it has "
                f"{listed([*map(str, frame.columns)])}"
            )
        if not isinstance(shares, Mapping):
            raise ConfigError(
                f"the margin of {column} is {shares!r:.60}; give each value its share: "
                f"{{{column!r}: {{'north': 0.3, 'south': 0.7}}}}"
            )
        for value, share in shares.items():
            real_number(f"the share of {column}={value!r}", share)
        if abs(sum(shares.values()) - 1) > _NEAR or min(shares.values()) < 0:
            raise ConfigError(
                f"the shares of {column} are {sum(shares.values()):g} together; they are 0 to 1, "
                "and 1 together"
            )
        # People whom no share is of would keep their weight, and all others' shares be too small.
        left_out = np.ones(len(frame), dtype=bool)
        for value in shares:
            left_out &= ~_is_value(frame[column], value)
        if left_out.any():
            without_share = _plain(min(frame[column][left_out].unique(), key=str))
            raise ConfigError(
                f"the margin of {column} does not say how many are {without_share!r}; give each of "
                f"its values a share, 0 for nobody: {column}={{{without_share!r}: 0, ...}}"
            )
        for value, share in shares.items():
            mask = _is_value(frame[column], value)
            if share > 0 and not mask.any():
                raise ConfigError(
                    f"{share:.0%} are to have {column}={value!r}, and the table has nobody of them"
                )
            masks.append((mask, float(share)))
    return masks


def _is_value(
    column: pd.Series,
    value: object,
) -> NDArray[np.bool_]:
    """Return which rows have a value; None and NaN are those that have none."""
    import pandas as pd

    if _is_missing(value):
        return column.isna().to_numpy(dtype=bool)
    # A cell of pandas' own NA is neither equal nor unequal.
    equal = pd.Series(column == value).fillna(False)
    return equal.to_numpy(dtype=bool)


def _is_missing(value: object) -> bool:
    import pandas as pd

    # Of a list isna() says it for each member.
    return pd.api.types.is_scalar(value) and bool(pd.isna(value))  # type: ignore[call-overload]


def _numbers(weights: Sequence[float] | pd.Series[float]) -> NDArray[np.float64]:
    """Return weights as numbers.

    Raises:
        ConfigError: one is none.
    """
    import numpy as np

    try:
        return np.asarray(weights, dtype=float)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"weights are numbers, one for each row: {error}") from None


def _plain(value: object) -> Value:
    """Return a cell as a tape can hold it."""
    if _is_missing(value):
        return None
    plain = value
    if hasattr(value, "item"):  # a number of numpy's, which no tape can hold
        plain = value.item()
    # Dates and categories are told in words, which is all that a prompt does with them.
    return plain if isinstance(plain, str | bool | int | float) else str(plain)
