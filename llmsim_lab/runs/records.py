"""A turn to and from the JSON that a tape holds.

Calls are not written again: the turn names its calls by their numbers on the tape, and a chain the
one of its decision by its place among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from llmsim_lab.calls import Attempt, CallRecord, Status
from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.codec import dumps
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.frames import turn_row
from llmsim_lab.runs.settings import RunIntervention
from llmsim_lab.runs.turn import TurnBase

if TYPE_CHECKING:
    from llmsim_lab.runs.base import Run

__all__ = [
    "AnyKind",
    "AnyTurn",
    "Planned",
    "decode_turn",
    "interventions_of",
    "numbers_of",
    "planned_in",
    "row_text",
    "tape_turn",
]

_STATUSES = get_args(Status)
AnyKind = type["Run"]
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
    try:
        return turn.number, _encode_turn(kind, turn, later), row_text(kind, turn)
    except ValueError as error:
        raise TapeError(
            f"turn {turn.number} cannot be written: it holds a number that is not finite (NaN or "
            f"Infinity), which JSON has no form for ({error}); look for a division by zero in what "
            "made the state"
        ) from error


def row_text(kind: AnyKind, turn: AnyTurn) -> str:
    """Return a turn's row of the run's frame as a JSON object."""
    return dumps(turn_row(turn, kind.own_columns(turn)))


def _encode_turn(kind: AnyKind, turn: AnyTurn, planned: Sequence[RunIntervention]) -> str:
    places = {id(call): place for place, call in enumerate(turn.calls)}
    rest = {
        "turn": turn.number,
        "seconds": turn.seconds,
        "interventions": [_encode_intervention(item) for item in turn.interventions],
        "planned": [_encode_intervention(item) for item in planned],
        "calls": [[call.status, numbers_of(call)] for call in turn.calls],
        "chains": [_encode_chain(chain, places) for chain in turn.chains],
        "actions": [],
    }
    rest |= kind.encode_own(turn)
    return f'{{"state":{kind.encode_state(turn)},{dumps(rest)[1:]}'


def _encode_intervention(intervention: RunIntervention) -> dict[str, Any]:
    return intervention.model_dump(mode="json", by_alias=True)


def _encode_chain(chain: LLMReasoningChain, places: Mapping[int, int]) -> dict[str, Any]:
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
        # A call of an earlier turn, which an agent may come back to, is named by its numbers.
        place = places.get(id(chain.call))
        values["call"] = [chain.call.status, numbers_of(chain.call)] if place is None else place
    return values


def numbers_of(call: CallRecord) -> list[int]:
    """Return the numbers of a call's attempts on the tape.

    Raises:
        TapeError: one was not recorded.
    """
    numbers = [attempt.number for attempt in call.history if attempt.number is not None]
    if len(numbers) < len(call.history):
        raise TapeError(
            f"a call of {call.request.site} was not recorded: it was made outside the run's own "
            "tasks; await it in the agent, or hand it to a thread with asyncio.to_thread"
        )
    return numbers


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
        calls = tuple(_decode_call(values, attempts) for values in record["calls"])
        chains = tuple(_decode_chain(values, calls, attempts) for values in record["chains"])
        common = {
            "number": record["turn"],
            "interventions": tuple(
                map(kind.intervention_type.model_validate, record["interventions"])
            ),
            "seconds": record["seconds"],
            "calls": calls,
        }
        return kind.decode_turn(record, chains, common)
    except (KeyError, TypeError, IndexError, ValueError, ValidationError) as error:
        raise TapeError(f"turn {record.get('turn')} on the tape is damaged: {error}") from error


def _decode_chain(
    values: Mapping[str, Any], calls: Sequence[CallRecord], attempts: Callable[[int], Attempt]
) -> LLMReasoningChain:
    known = dict(values)
    named = known.pop("call", None)
    call = None
    if type(named) is int:
        call = calls[named]
    elif named is not None:
        call = _decode_call(named, attempts)
    return LLMReasoningChain(**known, call=call)


def _decode_call(values: Any, attempts: Callable[[int], Attempt]) -> CallRecord:
    status, numbers = values
    if status not in _STATUSES or not numbers:
        raise ValueError(f"{values!r:.80} does not name a call by its status and numbers")
    return CallRecord(history=tuple(attempts(number) for number in numbers), status=status)


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
    except (ValidationError, KeyError, TypeError) as error:
        raise TapeError(f"turn {record['turn']} on the tape is damaged: {error}") from error
