"""The rows of a run's two frames: one for each turn, and one for each decision."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import TYPE_CHECKING, get_args

from llmsim_lab._util.tables import plain_frame
from llmsim_lab._util.text import whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.run.state import COMMON_COLUMNS, Columns
from llmsim_lab.run.turn import Answer, Turn, with_outcomes
from llmsim_lab.types import CallRecord, Status

if TYPE_CHECKING:
    import pandas as pd

_STATUSES: tuple[Status, ...] = get_args(Status)

# A frame of decisions has the columns before, then those of the replies, then the columns after.
_COLUMNS_BEFORE = ("run", "seed", "period", "turn", "player", "component")
REASONS = ("reasoning", "confidence")
_ANSWER_COLUMNS = ("player", "component", *REASONS, "status")
_COST_COLUMNS = ("attempts", "prompt_tokens", "reply_tokens", "tokens")
_COLUMNS_AFTER = ("status", "interventions", *_COST_COLUMNS, "seconds", "model")
DECISION_COLUMNS = frozenset({*_COLUMNS_BEFORE, *REASONS, *_COLUMNS_AFTER})
"""Columns of every frame of decisions."""


def turn_row(turn: Turn) -> Columns:
    """Return a turn's row of a run's frame; see ``Run.to_frame``.

    Raises:
        ConfigError: the state has a column with a name that every frame has.
    """
    columns = turn.columns()
    # A state may add columns that depend on its values, so its class could not be checked for them.
    taken = COMMON_COLUMNS & columns.keys()
    if taken:
        raise ConfigError(
            f"the state has the column {min(taken)}, which every run's frame has already; give it "
            "another name"
        )
    return {
        "turn": turn.number,
        **columns,
        "calls": len(turn.calls),
        **dict.fromkeys(_STATUSES, 0),
        **turn.statuses,
        "tokens": turn.tokens,
        "seconds": turn.seconds,
        "interventions": _interventions_in_words(turn),
    }


def _interventions_in_words(turn: Turn) -> str:
    return whole_text("; ".join(map(str, turn.interventions)))


def decisions_frame(
    turns: Sequence[Turn],
    *,
    run: int | None,
    seed: int,
) -> pd.DataFrame:
    """Return a run's decisions, one row each; see ``Run.decisions``."""
    decisions: list[Columns] = []
    # Dicts used as ordered sets: columns keep the order in which they first came.
    reply_columns: dict[str, None] = {}
    outcome_columns: dict[str, None] = {}
    has_periods = False
    costs = _Costs()
    for turn in turns:
        columns = turn.columns()
        has_periods = has_periods or "period" in columns
        shared = {
            "run": run,
            "seed": seed,
            "period": columns.get("period"),
            "turn": turn.number,
            "interventions": _interventions_in_words(turn),
        }
        for answer, outcome in with_outcomes(turn):
            fields = _reply_columns(answer, outcome)
            reply_columns |= dict.fromkeys(fields)
            outcome_columns |= dict.fromkeys(outcome)
            # Later dicts win, but no field and no note has the name of a column of every frame.
            decisions.append({**fields, **outcome, **shared, **_decision_columns(answer, costs)})
    before = [name for name in _COLUMNS_BEFORE if has_periods or name != "period"]
    between = dict.fromkeys([*reply_columns, *REASONS, *outcome_columns])
    return plain_frame(decisions, (*before, *between, *_COLUMNS_AFTER))


def _reply_columns(answer: Answer, outcome: Columns) -> Columns:
    """Return the fields of a reply, each under a name that no other column has."""
    taken = DECISION_COLUMNS | outcome.keys()
    columns: Columns = {}
    for field_name, value in answer.fields.items():
        name = field_name
        # A loop, since ``reply_tokens``, the new name of ``tokens``, is taken as well.
        while name in taken or name in columns:
            name = f"reply_{name}"
        columns[name] = value
    return columns


class _Costs:
    """What calls took, looked up once for each: a thousand answers may come from the same calls."""

    def __init__(self) -> None:
        self._of_call: dict[int, tuple[float, ...]] = {}

    def of(self, call: CallRecord) -> tuple[float, ...]:
        """Return a call's costs, in the order of their columns, and its seconds."""
        costs = self._of_call.get(id(call))
        if costs is None:
            costs = (*(getattr(call, name) for name in _COST_COLUMNS), call.seconds)
            self._of_call[id(call)] = costs
        return costs


def _decision_columns(answer: Answer, costs: _Costs) -> Columns:
    """Return the columns of every decision; the costs are sums over the calls behind it."""
    calls = answer.calls
    columns: Columns = {name: getattr(answer, name) for name in _ANSWER_COLUMNS}
    # A decision may have several calls; all ask the same model.
    model = calls[0].request.model if calls else None
    columns["model"] = answer.filled_by or model
    # The start 0.0 makes the column of seconds one of floats.
    totals = [*([0] * len(_COST_COLUMNS)), 0.0]
    for call in calls:
        totals = list(map(add, totals, costs.of(call)))
    columns |= zip((*_COST_COLUMNS, "seconds"), totals, strict=True)
    return columns
