"""The economic simulation's columns of a run's data frame, and a turn in words."""

from __future__ import annotations

from typing import Any

from llmsim_lab.economy.rules import TaylorRule
from llmsim_lab.runs import Series
from llmsim_lab.simulation.turn import Turn

__all__ = ["SERIES", "in_words", "own_columns"]

_ECONOMY = (
    "interest_rate",
    "inflation",
    "output_gap",
    "unemployment",
    "gdp_growth",
    "total_economic_value",
)

SERIES = (
    Series(column="interest_rate", label="Policy rate", unit="% per year", short="rate"),
    Series(column="inflation", label="Inflation", unit="% over four quarters", short="infl."),
    Series(column="output_gap", label="Output gap", unit="% of potential output"),
    Series(column="unemployment", label="Unemployment", unit="% of labour force", short="unem."),
    Series(column="gdp_growth", label="Real growth", unit="% per year"),
    Series(column="total_economic_value", label="Real output", unit="index"),
    Series(column="taylor_rate", label="Rate by the Taylor rule", unit="% per year"),
)


def own_columns(turn: Turn, rule: TaylorRule) -> dict[str, Any]:
    """Return what a turn's row says of the economy.

    Columns: ``period``; the economy's variables in their units; ``taylor_rate``, the rate that the
    rule asks for on that row's data, percent; ``actions`` and ``accepted``, how many.
    """
    economy = turn.state.global_state
    row: dict[str, Any] = {"period": turn.state.period}
    row |= {name: getattr(economy, name) for name in _ECONOMY}
    row["taylor_rate"] = rule.rate(
        inflation=economy.inflation,
        output_gap=economy.output_gap,
        previous_rate=economy.interest_rate,
    )
    row["actions"] = len(turn.actions)
    row["accepted"] = sum(action.validated for action in turn.actions)
    return row


def in_words(turn: Turn) -> list[str]:
    """Return where a turn led, and what was proposed in it, as lines of text."""
    economy = turn.state.global_state
    lines = [
        f"it led to: interest rate {economy.interest_rate:.2f}, inflation {economy.inflation:.2f}, "
        f"unemployment {economy.unemployment:.2f}, output gap {economy.output_gap:.2f}"
    ]
    for action in turn.actions:
        accepted = "accepted" if action.validated else "REJECTED"
        lines.append(f"{action.agent_name} proposed ({accepted}): {action.action_string}")
    return lines
