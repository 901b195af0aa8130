"""Build a prompt of a past turn again: it follows from the state and the actions alone.

No model is asked and the run's parts are left as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

from llmsim_lab.agents import Agent, LLMAgent
from llmsim_lab.engines import EconLLMEngine, Engine, LLMEngine
from llmsim_lab.llm.extract import parse_reply
from llmsim_lab.models import (
    Action,
    LLMReasoningChain,
    SimulationState,
    StateUpdateDecision,
)
from llmsim_lab.validators import LLMValidator, Validator

__all__ = ["HasParts", "rebuilt_prompt"]


class HasParts(Protocol):
    """A run of the economic simulation, as far as its prompts depend on it."""

    validator: Validator
    engine: Engine

    @property
    def agents(self) -> Sequence[Agent]:
        """Who proposes."""
        ...

    @property
    def turns(self) -> Sequence[Any]:
        """The turns so far."""
        ...


def rebuilt_prompt(simulation: HasParts, turn: int, component: str, agent: str) -> str | None:
    """Return the first prompt that a component of a run wrote in a turn, or None.

    None where that cannot be told: the component writes no prompts, or what it wrote about is not
    in the run's turns.

    Args:
        simulation: the run.
        turn: the turn that was being played.
        component: ``agent``, ``validator`` or ``engine``.
        agent: who decided, or whose action was judged or applied.
    """
    place = turn - simulation.turns[0].number
    if not 1 <= place <= len(simulation.turns):
        return None
    before: SimulationState = simulation.turns[place - 1].state
    if component == "agent":
        part = next((part for part in simulation.agents if part.name == agent), None)
        return part._construct_prompt(before) if isinstance(part, LLMAgent) else None
    if place == len(simulation.turns):
        return None
    played = simulation.turns[place]
    actions = [action for action in played.actions if action.agent_name == agent]
    if not actions:
        return None
    if component == "validator" and isinstance(simulation.validator, LLMValidator):
        return simulation.validator._construct_validation_prompt(actions[0])
    if component == "engine" and isinstance(simulation.engine, LLMEngine):
        engine = copy.copy(simulation.engine)
        engine.current_state = before
        return _engine_prompt(engine, actions[0], played.actions, played.chains)
    return None


def _engine_prompt(
    engine: LLMEngine,
    wanted: Action,
    actions: Sequence[Action],
    chains: Sequence[LLMReasoningChain],
) -> str | None:
    """Apply the recorded decisions up to an action and write the prompt about it."""
    decided = {chain.agent: chain for chain in chains if chain.component == "engine"}
    state = engine.current_state
    for action in actions:
        if not action.validated:
            continue
        if action is wanted:
            return engine._construct_state_update_prompt(action, state.global_state)
        decision = _recorded(engine, action, decided.get(action.agent_name), state)
        if decision is None:
            return None
        state = engine._apply_state_update(decision, state)
    return None


def _recorded(
    engine: LLMEngine, action: Action, chain: LLMReasoningChain | None, state: SimulationState
) -> StateUpdateDecision | None:
    """Return what became of an action, from its reply or from the rate that it names."""
    reply = chain.call.reply if chain and chain.call else None
    if reply is not None:
        decision = parse_reply(reply.text, StateUpdateDecision)
        return decision.model_copy(update={"action_applied": action.action_string})
    if isinstance(engine, EconLLMEngine) and action.proposed_rate is not None:
        return engine.named_rate(action, state.global_state)[0]
    return None
