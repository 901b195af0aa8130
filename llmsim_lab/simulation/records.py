"""A turn to and from the JSON that a tape holds.

Calls are not written again: a chain names those of its decision by their numbers on the tape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from llmsim_lab.calls import Attempt, CallRecord
from llmsim_lab.errors import TapeError
from llmsim_lab.models import (
    Action,
    LLMReasoningChain,
    PolicyDecision,
    SimulationState,
    ValidationResult,
)
from llmsim_lab.simulation.interventions import Intervention
from llmsim_lab.simulation.turn import Turn

__all__ = ["decode_turn", "encode_turn"]


def encode_turn(turn: Turn, planned: Sequence[Intervention]) -> str:
    """Return a turn as JSON.

    Args:
        turn: the turn, its calls recorded.
        planned: what is to be done from outside at later turns.

    Raises:
        TapeError: a call was not recorded, so that the turn could not be replayed.
    """
    places = {id(chain): place for place, chain in enumerate(turn.chains)}
    rest = {
        "turn": turn.number,
        "seconds": turn.seconds,
        "interventions": [_encode_intervention(item) for item in turn.interventions],
        "planned": [_encode_intervention(item) for item in planned],
        "chains": [_encode_chain(chain) for chain in turn.chains],
        "actions": [_encode_action(action, places) for action in turn.actions],
    }
    state = turn.state.model_dump_json(exclude={"reasoning_chains"})
    return f'{{"state":{state},{json.dumps(rest, ensure_ascii=False)[1:]}'


def _encode_intervention(intervention: Intervention) -> dict[str, Any]:
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


def _encode_action(action: Action, places: Mapping[int, int]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "agent_name": action.agent_name,
        "action_string": action.action_string,
        "validated": action.validated,
        "proposed_rate": action.proposed_rate,
        "status": action.status,
        "reasoning_chain_id": action.reasoning_chain_id,
        "chain": places.get(id(action.chain)),
    }
    if action.policy_decision is not None:
        values["policy_decision"] = action.policy_decision.model_dump()
    if action.validation_result is not None:
        result = action.validation_result
        values["validation_result"] = {
            "is_valid": result.is_valid,
            "reasoning": result.reasoning,
            "confidence": result.confidence,
            "action_evaluated": result.action_evaluated,
            "status": result.status,
            "chain": places.get(id(result.chain)),
        }
    return values


def decode_turn(record: Mapping[str, Any], attempts: Callable[[int], Attempt]) -> Turn:
    """Return the turn that a record holds.

    Args:
        record: the parsed JSON.
        attempts: gives the attempt of a number on the tape.

    Raises:
        TapeError: the record does not hold what it should; the tape is damaged.
    """
    try:
        return _decode_turn(record, attempts)
    except (KeyError, TypeError, IndexError, ValueError, ValidationError) as error:
        raise TapeError(f"turn {record.get('turn')} on the tape is damaged: {error}") from error


def _decode_turn(record: Mapping[str, Any], attempts: Callable[[int], Attempt]) -> Turn:
    chains = tuple(_decode_chain(values, attempts) for values in record["chains"])
    state = SimulationState.model_validate(record["state"])
    return Turn(
        number=record["turn"],
        state=state.model_copy(update={"reasoning_chains": chains}),
        actions=tuple(_decode_action(values, chains) for values in record["actions"]),
        interventions=tuple(map(Intervention.model_validate, record["interventions"])),
        seconds=record["seconds"],
    )


def _decode_chain(
    values: Mapping[str, Any], attempts: Callable[[int], Attempt]
) -> LLMReasoningChain:
    known = dict(values)
    call = None
    if "call" in known:
        status, numbers = known.pop("call")
        call = CallRecord(history=tuple(attempts(number) for number in numbers), status=status)
    return LLMReasoningChain(**known, call=call)


def _decode_action(values: Mapping[str, Any], chains: tuple[LLMReasoningChain, ...]) -> Action:
    known = dict(values)
    chain = _chain_at(chains, known.pop("chain"))
    decision = known.pop("policy_decision", None)
    if decision is not None:
        decision = PolicyDecision(**decision)
        if chain is not None and chain.call is not None:
            decision.with_call(chain.call)
    result = known.pop("validation_result", None)
    if result is not None:
        result = ValidationResult(**{**result, "chain": _chain_at(chains, result["chain"])})
    return Action(**known, chain=chain, policy_decision=decision, validation_result=result)


def _chain_at(chains: tuple[LLMReasoningChain, ...], place: int | None) -> LLMReasoningChain | None:
    return None if place is None else chains[place]
