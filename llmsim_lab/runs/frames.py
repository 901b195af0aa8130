"""What a run's data frames have in common, whatever its kind."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

from llmsim_lab.calls import Status
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._extract import InvalidReply, reply_fields
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.turn import RunTurn, every_chain
from llmsim_lab.tables import plain_frame

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.runs.base import Run

__all__ = ["COMMON_COLUMNS", "decisions_frame", "own_numbers", "turn_row"]

_STATUSES: tuple[Status, ...] = get_args(Status)
COMMON_COLUMNS = frozenset({"turn", "calls", *_STATUSES, "tokens", "seconds", "interventions"})
"""Of every run's frame, beside the kind's own."""
_BEFORE = ("run", "seed", "period", "turn", "player", "component")
_LAST_SAID = ("reasoning", "confidence")
_AFTER = (
    *("status", "interventions", "attempts", "prompt_tokens", "reply_tokens", "tokens", "seconds"),
    "model",
)
_TAKEN = {*_BEFORE, *_LAST_SAID, *_AFTER}


def turn_row(turn: RunTurn, own: dict[str, Any]) -> dict[str, Any]:
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
    row["interventions"] = _in_words(turn)
    return row


def own_numbers(row: Mapping[str, Any]) -> list[str]:
    """Return the columns of a frame's row that hold numbers and that not every run has."""
    return [
        name
        for name, value in row.items()
        if name not in COMMON_COLUMNS and isinstance(value, int | float)
    ]


def decisions_frame(run: Run) -> pd.DataFrame:
    """Return one row a decision; see ``Run.decisions``."""
    rows: list[dict[str, Any]] = []
    said: dict[str, None] = {}
    became: dict[str, None] = {}
    for turn in run.turns:
        chains = every_chain(turn)
        if not chains:
            continue
        shared = {
            "run": run.run_id,
            "seed": run.config.seed,
            "period": run.own_columns(turn).get("period"),
            "turn": turn.number,
            "interventions": _in_words(turn),
        }
        for chain, outcome in zip(chains, run.outcomes(turn, chains), strict=True):
            taken = _TAKEN | outcome.keys()
            fields = {
                f"reply_{name}" if name in taken else name: value
                for name, value in _fields(chain).items()
                if name not in _LAST_SAID
            }
            said |= dict.fromkeys(fields)
            became |= dict.fromkeys(outcome)
            rows.append({**fields, **outcome, **shared, **_decision(chain)})
    told = (*said, *_LAST_SAID, *(name for name in became if name not in said))
    return plain_frame(rows, (*_BEFORE, *told, *_AFTER))


def _fields(chain: LLMReasoningChain) -> dict[str, Any]:
    """Return what the model answered, by field; nothing where it was no object."""
    reply = chain.call.reply if chain.call else None
    with suppress(InvalidReply):
        return reply_fields(reply.text) if reply else {}
    return {}


def _decision(chain: LLMReasoningChain) -> dict[str, Any]:
    call = chain.call
    return {
        "player": chain.agent,
        "component": chain.component,
        "reasoning": chain.reasoning,
        "confidence": chain.confidence,
        "status": chain.status,
        "attempts": call.attempts if call else 0,
        "prompt_tokens": call.prompt_tokens if call else 0,
        "reply_tokens": call.reply_tokens if call else 0,
        "tokens": call.tokens if call else 0,
        "seconds": call.seconds if call else 0.0,
        "model": call.request.model if call else None,
    }


def _in_words(turn: RunTurn) -> str:
    return "; ".join(str(intervention) for intervention in turn.interventions)
