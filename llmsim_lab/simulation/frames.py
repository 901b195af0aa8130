"""A run's history as tidy data frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from llmsim_lab.economy.rules import TaylorRule
from llmsim_lab.simulation.turn import Turn

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["chains_frame", "turn_row", "turns_frame"]

_ECONOMY = (
    "interest_rate",
    "inflation",
    "output_gap",
    "unemployment",
    "gdp_growth",
    "total_economic_value",
)

_CHAIN_COLUMNS = (
    "turn",
    "component",
    "agent",
    "status",
    "confidence",
    "reasoning",
    "model",
    "attempts",
    "prompt_tokens",
    "reply_tokens",
    "seconds",
)


def turns_frame(turns: Sequence[Turn], rule: TaylorRule) -> pd.DataFrame:
    """Return one row a turn, the initial state first.

    Columns: ``turn``, ``period``; the economy's variables in their units; ``taylor_rate``, the rate
    that the rule asks for on that row's data, percent; ``actions`` and ``accepted``, how many;
    ``calls``, ``ok``, ``repaired``, ``fallback``, ``failed``, model decisions by status;
    ``tokens``; ``seconds``; ``interventions``, in words.
    """
    import pandas as pd

    return pd.DataFrame([turn_row(turn, rule) for turn in turns])


def turn_row(turn: Turn, rule: TaylorRule) -> dict[str, Any]:
    """Return a turn's row of ``turns_frame``."""
    economy = turn.state.global_state
    row: dict[str, Any] = {"turn": turn.number, "period": turn.state.period}
    row |= {name: getattr(economy, name) for name in _ECONOMY}
    row["taylor_rate"] = rule.rate(
        inflation=economy.inflation,
        output_gap=economy.output_gap,
        previous_rate=economy.interest_rate,
    )
    statuses = turn.statuses
    row["actions"] = len(turn.actions)
    row["accepted"] = sum(action.validated for action in turn.actions)
    row["calls"] = sum(chain.call is not None for chain in turn.chains)
    row |= {name: statuses[name] for name in ("ok", "repaired", "fallback", "failed")}
    row["tokens"] = turn.tokens
    row["seconds"] = turn.seconds
    row["interventions"] = "; ".join(str(intervention) for intervention in turn.interventions)
    return row


def chains_frame(turns: Iterable[Turn]) -> pd.DataFrame:
    """Return one row a decision, in the order agent, validator, engine within a turn.

    Columns: ``turn``, ``component``, ``agent``, ``status``, ``confidence``, ``reasoning``,
    ``model``, ``attempts``, ``prompt_tokens``, ``reply_tokens``, ``seconds``; the last five are 0
    and the model is None where a rule decided.
    """
    import pandas as pd

    rows = []
    for turn in turns:
        for chain in turn.chains:
            call = chain.call
            rows.append(
                (
                    chain.turn,
                    chain.component,
                    chain.agent,
                    chain.status,
                    chain.confidence,
                    chain.reasoning,
                    call.request.model if call else None,
                    call.attempts if call else 0,
                    call.prompt_tokens if call else 0,
                    call.reply_tokens if call else 0,
                    call.seconds if call else 0.0,
                )
            )
    return pd.DataFrame(rows, columns=list(_CHAIN_COLUMNS))
