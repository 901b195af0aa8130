"""What a run's data frames have in common, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from llmsim_lab.calls import Status
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.protocol import TurnLike
from llmsim_lab.runs.turn import every_chain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHAIN_COLUMNS", "COMMON_COLUMNS", "chain_row", "chains_frame", "turn_row"]

_STATUSES: tuple[Status, ...] = get_args(Status)
COMMON_COLUMNS = frozenset({"turn", "calls", *_STATUSES, "tokens", "seconds", "interventions"})
"""Of every run's frame, beside the kind's own."""
CHAIN_COLUMNS = (
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
"""Of a frame of decisions."""


def turn_row(turn: TurnLike, own: dict[str, Any]) -> dict[str, Any]:
    """Return a turn's row of a run's frame.

    Columns: ``turn``; the kind's own; ``calls``, the model calls; ``ok``, ``repaired``,
    ``fallback``, ``failed``, how they came out; ``tokens``; ``seconds``; ``interventions``, in
    words.

    Args:
        turn: the turn.
        own: what the kind has to say of it, by column.

    Raises:
        ConfigError: one of those has the name of a column that every frame has.
    """
    if taken := COMMON_COLUMNS & own.keys():
        raise ConfigError(
            f"own_columns has {', '.join(sorted(taken))}, which every run's frame has already; "
            "give that column another name"
        )
    row: dict[str, Any] = {"turn": turn.number, **own}
    statuses = turn.statuses
    row["calls"] = len(turn.calls)
    row |= {name: statuses.get(name, 0) for name in _STATUSES}
    row["tokens"] = turn.tokens
    row["seconds"] = turn.seconds
    row["interventions"] = "; ".join(str(intervention) for intervention in turn.interventions)
    return row


def chain_row(chain: LLMReasoningChain) -> tuple[Any, ...]:
    """Return a decision as a row of a frame; ``CHAIN_COLUMNS`` has the names."""
    call = chain.call
    return (
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


def chains_frame(turns: Iterable[TurnLike]) -> pd.DataFrame:
    """Return one row a decision, in the order in which a turn's chains stand.

    Columns: ``turn``, ``component``, ``agent``, ``status``, ``confidence``, ``reasoning``,
    ``model``, ``attempts``, ``prompt_tokens``, ``reply_tokens``, ``seconds``; the last five are 0
    and the model is None where a rule decided.
    """
    import pandas as pd

    rows = [chain_row(chain) for turn in turns for chain in every_chain(turn)]
    return pd.DataFrame(rows, columns=list(CHAIN_COLUMNS))
