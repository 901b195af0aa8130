"""The economic simulation's columns of a run's data frame, and a turn in words."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from llmsim_lab.economy.rules import TaylorRule
from llmsim_lab.engines import EconLLMEngine, Engine
from llmsim_lab.llm.extract import InvalidReply, parse_reply
from llmsim_lab.models import (
    Action,
    GlobalState,
    LLMReasoningChain,
    SimulationState,
    StateUpdateDecision,
)
from llmsim_lab.runs._turn import Series

__all__ = ["SERIES", "in_words", "outcomes", "own_columns"]

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


def own_columns(state: SimulationState, actions: Sequence[Action]) -> dict[str, Any]:
    """Return what a turn's row says of the economy; see ``Turn.own_columns``."""
    economy = state.global_state
    row: dict[str, Any] = {"period": state.period}
    row |= {name: getattr(economy, name) for name in _ECONOMY}
    row["taylor_rate"] = TaylorRule().rate(
        inflation=economy.inflation,
        output_gap=economy.output_gap,
        previous_rate=economy.interest_rate,
    )
    row["actions"] = len(actions)
    row["accepted"] = sum(action.validated for action in actions)
    return row


def in_words(state: SimulationState, actions: Sequence[Action]) -> list[str]:
    """Return where a turn led, and what was proposed in it, as lines of text."""
    economy = state.global_state
    lines = [
        f"it led to: interest rate {economy.interest_rate:.2f}, inflation {economy.inflation:.2f}, "
        f"unemployment {economy.unemployment:.2f}, output gap {economy.output_gap:.2f}"
    ]
    for action in actions:
        accepted = "accepted" if action.validated else "REJECTED"
        lines.append(f"{action.agent_name} proposed ({accepted}): {action.action_string}")
    return lines


def outcomes(
    proposed: Sequence[Action],
    chains: Sequence[LLMReasoningChain],
    *,
    before: GlobalState,
    engine: Engine,
) -> list[dict[str, Any]]:
    """Return what became of each decision's action; see ``Simulation.outcomes``.

    Args:
        proposed: the turn's actions.
        chains: its decisions.
        before: the economy that the turn began with.
        engine: the run's.
    """
    actions = {action.agent_name: action for action in proposed}
    rate: float | None = before.interest_rate
    rates: dict[str, float | None] = {}
    for chain in chains:
        if chain.component == "engine":
            rate = rates[chain.agent] = _rate_after(chain, actions.get(chain.agent), rate, engine)
    found = []
    for chain in chains:
        action = actions.get(chain.agent)
        accepted = action is not None and action.validated
        # An engine of the user's own need not leave chains: then nothing is known of it.
        applied = chain.agent in rates if rates or not accepted else None
        outcome: dict[str, Any] = {
            "accepted": accepted,
            "applied": applied,
            "new_rate": rates.get(chain.agent),
        }
        if action is not None and chain.component == "agent" and chain.call is None:
            outcome["action"] = action.action_string
        found.append(outcome)
    return found


def _rate_after(
    chain: LLMReasoningChain, action: Action | None, rate: float | None, engine: Engine
) -> float | None:
    """Return the rate that an engine's decision set; None where its record does not say."""
    if chain.call is not None:
        with suppress(InvalidReply):
            reply = chain.call.reply.text if chain.call.reply else ""
            return parse_reply(reply, StateUpdateDecision).new_interest_rate
        return None
    asked = action.proposed_rate if action else None
    if asked is None or chain.status == "ok" or rate is None:
        return asked
    return engine.limits.nearest(asked, current=rate) if isinstance(engine, EconLLMEngine) else None
