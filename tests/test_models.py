"""The values a simulation is made of: immutable, checked, and the same after a round trip."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from decimal import Decimal
from typing import Any

import pytest
from builders import make_action, make_client, make_state, policy, rate_update
from pydantic import BaseModel, Field, ValidationError

from llmsim_lab.agents import NationAgent
from llmsim_lab.economy.macro import STEADY_STATE
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.models import (
    Action,
    AgentState,
    GlobalState,
    LLMReasoningChain,
    MacroLags,
    PolicyDecision,
    SimulationState,
    StateUpdateDecision,
    ValidationDecision,
)
from llmsim_lab.types import Message, reply_schema

CHAIN = LLMReasoningChain(
    component="engine", agent="Aland", turn=3, reasoning='A "hot" economy.', confidence=0.8
)


# Bad values


@pytest.mark.parametrize("confidence", [1.2, -0.1, float("nan"), "high"])
def test_a_confidence_outside_0_to_1_names_the_field(confidence: Any) -> None:
    with pytest.raises(ValidationError, match="confidence") as caught:
        PolicyDecision(action="Cut taxes", reasoning="Weak.", confidence=confidence)
    assert str(confidence) in str(caught.value)


@pytest.mark.parametrize("field", ["interest_rate", "inflation", "gdp_growth", "output_gap"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "high"])
def test_a_rate_that_is_no_finite_number_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=f"1 validation error for GlobalState\n{field}"):
        GlobalState(**{field: value})


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_action_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="action"):
        PolicyDecision(action=text, reasoning="Weak.", confidence=0.5)
    with pytest.raises(ValidationError, match="action_string"):
        Action(agent_name="Aland", action_string=text)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (GlobalState, {"unemployment": 101}),
        (GlobalState, {"intrest_rate": 4}),
        (AgentState, {"name": " "}),
        (SimulationState, {"turn": -1}),
        (SimulationState, {"period": "1979-08"}),
    ],
)
def test_what_no_economy_can_be_is_refused(model: type[BaseModel], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=list(fields)[-1]):
        model(**fields)


# States


def test_the_defaults_are_the_steady_state() -> None:
    economy = GlobalState()
    assert (economy.interest_rate, economy.inflation, economy.output_gap) == (4, 2, 0)
    assert (economy.unemployment, economy.gdp_growth) == (5, 2.2)
    assert economy == STEADY_STATE
    assert economy.lags == MacroLags((2,) * 4, (0,) * 2, (4,) * 4)


@pytest.mark.parametrize("rate", [5, 5.0, "5", Decimal(5)])
def test_the_past_agrees_with_the_levels_however_they_were_given(rate: Any) -> None:
    assert GlobalState(interest_rate=rate).lags.interest_rate == (5.0,) * 4


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (make_state(), "turn"),
        (GlobalState(), "interest_rate"),
        (make_action(), "validated"),
        (policy(), "confidence"),
        (CHAIN, "reasoning"),
        (Message("user", "Hi"), "content"),
    ],
)
def test_values_are_immutable(value: object, field: str) -> None:
    with pytest.raises((ValidationError, FrozenInstanceError), match=r"frozen|cannot assign"):
        setattr(value, field, getattr(value, field))


# Round trips


async def test_a_state_with_its_calls_comes_back_as_it_was() -> None:
    engine = EconomicEngine(llm_client=make_client(rate_update(4.25)))
    state = await engine.run_turn([make_action()])
    assert state.reasoning_chains[0].call is not None
    assert SimulationState.model_validate_json(state.model_dump_json()) == state
    assert pickle.loads(pickle.dumps(state)) == state
    assert copy.deepcopy(state) == state


# Decisions


def test_decisions_are_equal_if_the_model_said_the_same() -> None:
    assert policy() == policy()
    assert policy() != policy(confidence=0.1)
    assert policy() != "Raise rates"
    assert len({policy(), policy(), policy("Cut taxes")}) == 2


# Chains


def test_a_chain_as_text_is_one_logfmt_line() -> None:
    assert str(CHAIN) == (
        "component=engine agent_id=Aland turn=3 status=ok confidence=0.8 "
        'reasoning="A \\"hot\\" economy."'
    )


async def test_a_repaired_chain_shows_the_first_prompt() -> None:
    client = make_client(["no", policy()])
    action = await NationAgent("Aland", client).decide_action(make_state())
    assert action.chain is not None
    assert action.chain.status == "repaired"
    assert "not valid" not in action.chain.prompt


# The schema a reply is held to


@pytest.mark.parametrize("model", [PolicyDecision, ValidationDecision, StateUpdateDecision])
def test_every_field_is_required_and_no_other_allowed(model: type[BaseModel]) -> None:
    schema = reply_schema(model)
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False
    assert "description" not in schema
    assert "title" not in str(schema)


def test_confidence_is_a_choice_from_a_grid() -> None:
    confidence = reply_schema(PolicyDecision)["properties"]["confidence"]
    assert confidence["enum"] == [round(step / 20, 2) for step in range(21)]
    assert "minimum" not in confidence


def test_texts_are_bounded_where_asked_also_in_nested_models_and_lists() -> None:
    class Step(BaseModel):
        why: str
        short: str = Field(default="", max_length=5)

    class Plan(BaseModel):
        steps: list[Step]
        note: str | None = None

    schema = reply_schema(Plan, max_text=50)
    step = schema["$defs"]["Step"]
    assert step["properties"]["why"]["maxLength"] == 50
    assert step["properties"]["short"]["maxLength"] == 5
    assert step["required"] == ["why", "short"]
    assert schema["properties"]["note"]["anyOf"][0]["maxLength"] == 50
    assert "maxLength" not in str(reply_schema(Plan)["properties"])
