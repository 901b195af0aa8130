"""The economic simulation's part of a turn's record: its actions and its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmsim_lab.models import (
    Action,
    LLMReasoningChain,
    PolicyDecision,
    SimulationState,
    ValidationResult,
)
from llmsim_lab.simulation.turn import Turn

__all__ = ["decode_turn", "encode_actions"]


def encode_actions(turn: Turn) -> list[dict[str, Any]]:
    """Return a turn's actions for JSON; chains are named by their places among the turn's."""
    places = {id(chain): place for place, chain in enumerate(turn.chains)}
    return [_encode_action(action, places) for action in turn.actions]


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


def decode_turn(
    record: Mapping[str, Any],
    chains: tuple[LLMReasoningChain, ...],
    common: Mapping[str, Any],
) -> Turn:
    """Return the turn that a record holds.

    Args:
        record: the parsed JSON.
        chains: the turn's.
        common: its number, interventions and seconds.
    """
    state = SimulationState.model_validate(record["state"])
    return Turn(
        state=state.model_copy(update={"reasoning_chains": chains}),
        actions=tuple(_decode_action(values, chains) for values in record["actions"]),
        **common,
    )


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
