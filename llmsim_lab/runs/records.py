"""A turn to and from the JSON that a tape holds.

Calls are not written again: a chain names those of its decision by their numbers on the tape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from llmsim_lab.calls import Attempt, CallRecord
from llmsim_lab.errors import TapeError
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.frames import turn_row
from llmsim_lab.runs.kind import Kind
from llmsim_lab.runs.settings import RunIntervention
from llmsim_lab.runs.turn import TurnBase

__all__ = [
    "AnyKind",
    "AnyTurn",
    "Planned",
    "decode_turn",
    "interventions_of",
    "planned_in",
    "tape_turn",
]

AnyKind = type[Kind[Any, Any, Any, Any]]
AnyTurn = TurnBase[Any, Any]
Planned = Mapping[int, Sequence[RunIntervention]]


def tape_turn(kind: AnyKind, turn: AnyTurn, planned: Planned) -> tuple[int, str, str]:
    """Return a turn as the tape takes it: number, record, and row of the run's frame.

    Args:
        kind: the simulation's class.
        turn: the turn, its calls recorded.
        planned: what is to be done from outside, by turn.

    Raises:
        TapeError: a call was not recorded, so that the turn could not be replayed.
    """
    later = [item for at in sorted(planned) if at > turn.number for item in planned[at]]
    row = json.dumps(turn_row(turn, kind.own_columns(turn)), ensure_ascii=False)
    return turn.number, _encode_turn(kind, turn, later), row


def _encode_turn(kind: AnyKind, turn: AnyTurn, planned: Sequence[RunIntervention]) -> str:
    rest = {
        "turn": turn.number,
        "seconds": turn.seconds,
        "interventions": [_encode_intervention(item) for item in turn.interventions],
        "planned": [_encode_intervention(item) for item in planned],
        "chains": [_encode_chain(chain) for chain in turn.chains],
        "actions": [],
    }
    rest |= kind.encode_own(turn)
    return f'{{"state":{kind.encode_state(turn)},{json.dumps(rest, ensure_ascii=False)[1:]}'


def _encode_intervention(intervention: RunIntervention) -> dict[str, Any]:
    return intervention.model_dump(mode="json", by_alias=True)


def _encode_chain(chain: LLMReasoningChain) -> dict[str, Any]:
    values: dict[str, Any] = {
        "component": chain.component,
        "agent": chain.agent,
        "turn": chain.turn,
        "reasoning": chain.reasoning,
        "confidence": chain.confidence,
        "status": chain.status,
    }
    if chain.prompt_text:
        values["prompt_text"] = chain.prompt_text
    if chain.call is not None:
        numbers = [attempt.number for attempt in chain.call.history]
        if None in numbers:
            raise TapeError(
                f"a call behind {chain} was not recorded: it was made outside the run's own tasks; "
                "await it in the agent, or hand it to a thread with asyncio.to_thread"
            )
        values["call"] = [chain.call.status, numbers]
    return values


def decode_turn(
    kind: AnyKind, record: Mapping[str, Any], attempts: Callable[[int], Attempt]
) -> Any:
    """Return the turn that a record holds.

    Args:
        kind: the simulation's class.
        record: the parsed JSON.
        attempts: gives the attempt of a number on the tape.

    Raises:
        TapeError: the record does not hold what it should; the tape is damaged.
    """
    try:
        chains = tuple(_decode_chain(values, attempts) for values in record["chains"])
        common = {
            "number": record["turn"],
            "interventions": tuple(
                map(kind.intervention_type.model_validate, record["interventions"])
            ),
            "seconds": record["seconds"],
        }
        return kind.decode_turn(record, chains, common)
    except (KeyError, TypeError, IndexError, ValueError, ValidationError) as error:
        raise TapeError(f"turn {record.get('turn')} on the tape is damaged: {error}") from error


def _decode_chain(
    values: Mapping[str, Any], attempts: Callable[[int], Attempt]
) -> LLMReasoningChain:
    known = dict(values)
    call = None
    if "call" in known:
        status, numbers = known.pop("call")
        call = CallRecord(history=tuple(attempts(number) for number in numbers), status=status)
    return LLMReasoningChain(**known, call=call)


def planned_in(kind: AnyKind, records: Sequence[Mapping[str, Any]]) -> list[RunIntervention]:
    """Return what a run had planned: for turns that were played since, and for later ones.

    Args:
        kind: the simulation's class.
        records: of its turns, oldest first.
    """
    planned = interventions_of(kind, records[-1], "planned")
    for record, after in pairwise(records):
        items = interventions_of(kind, record, "planned")
        planned += [item for item in items if item.turn == after["turn"]]
    return planned


def interventions_of(kind: AnyKind, record: Mapping[str, Any], part: str) -> list[RunIntervention]:
    """Return what a record says was done at its turn, or was ``planned`` for later ones.

    Raises:
        TapeError: it cannot be read; the tape is damaged.
    """
    try:
        return [kind.intervention_type.model_validate(values) for values in record[part]]
    except ValidationError as error:
        raise TapeError(f"turn {record['turn']} on the tape is damaged: {error}") from error
