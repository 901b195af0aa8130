"""What runs are compared with: a prediction, the Taylor rule's answer, and history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmsim_lab.checks import plain_text
from llmsim_lab.economy import TaylorRule, history
from llmsim_lab.errors import ConfigError, DataError
from llmsim_lab.lab.charts.tracks import Track

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    Points = tuple[NDArray[np.float64], NDArray[np.float64]]

__all__ = [
    "HISTORY_LOOK",
    "PREDICTION_LOOK",
    "RULE_LOOK",
    "check_choices",
    "history_curve",
    "rule_curve",
]

RULE_LOOK: Mapping[str, Any] = {"colour": "#666666", "style": ":"}
HISTORY_LOOK: Mapping[str, Any] = {"colour": "black"}
PREDICTION_LOOK: Mapping[str, Any] = {"colour": "black", "style": "--"}


def check_choices(*, panels: object, history: object, rule: object, title: object) -> None:
    """Refuse what a chart cannot be given.

    Args:
        panels: names of columns, or None.
        history: True, False, or a frame.
        rule: True, False, a run's name, or a Taylor rule.
        title: a text.

    Raises:
        ConfigError: one of them is of the wrong type; the message says what it takes.
    """
    import pandas as pd

    plain_text("title", title)
    if not isinstance(history, bool | pd.DataFrame):
        raise ConfigError(f"history={history!r:.80} must be True, False, or a frame of what was")
    if not isinstance(rule, bool | str | TaylorRule):
        raise ConfigError(f"rule={rule!r:.80} must be True, False, a run's name, or a TaylorRule")
    if panels is not None and (isinstance(panels, str) or not isinstance(panels, Iterable)):
        raise ConfigError(f"panels={panels!r:.80} must be a list of columns, as in ['inflation']")


def rule_curve(track: Track, rule: bool | str | TaylorRule) -> Points | None:
    """Return the rate that the rule asks for on each row's data, percent per year.

    Args:
        track: the run.
        rule: a rule of the user's own; else the rows' ``taylor_rate`` is taken, where there is one.
    """
    import numpy as np

    turns = track.numbers("turn")
    if not isinstance(rule, TaylorRule) and "taylor_rate" in track.rows[-1]:
        return turns, track.numbers("taylor_rate")
    if not {"inflation", "output_gap", "interest_rate"} <= track.rows[-1].keys():
        return None
    asked = rule if isinstance(rule, TaylorRule) else TaylorRule()
    data = (track.numbers(name) for name in ("inflation", "output_gap", "interest_rate"))
    values = [
        asked.rate(inflation=inflation, output_gap=gap, previous_rate=rate)
        if np.isfinite([inflation, gap, rate]).all()
        else np.nan
        for inflation, gap, rate in zip(*data, strict=True)
    ]
    return turns, np.array(values, dtype=float)


def history_curve(
    tracks: Sequence[Track], wanted: bool | pd.DataFrame, columns: Sequence[str]
) -> tuple[dict[str, Points], str]:
    """Return what happened by column, and a note where that cannot be had.

    Args:
        tracks: the runs; history begins with their first turn.
        wanted: True looks it up; a frame is history as it is.
        columns: what is charted.
    """
    import numpy as np

    if wanted is False:
        return {}, ""
    start = min(track.turns[0] for track in tracks)
    if wanted is True:
        firsts = {(track.turns[0], track.first_period) for track in tracks}
        periods = {period for _, period in firsts}
        if periods == {None}:
            return {}, ""
        if len(firsts) > 1:
            return {}, "History is not drawn: the runs begin in different quarters."
        quarters = max(track.turns[1] for track in tracks) - start + 1
        try:
            frame = history(periods.pop(), quarters)
        except (ConfigError, DataError) as error:
            return {}, f"History is not drawn: {error}."
    else:
        frame, quarters = wanted, len(wanted)
    turns = np.arange(start, start + len(frame), dtype=float)
    points = {
        name: (turns, frame[name].to_numpy(dtype=float))
        for name in columns
        if name in frame.columns
    }
    last = f"{frame.index[-1]}" if len(frame) < quarters else ""
    return points, f"History ends with {last}." if last and points else ""
