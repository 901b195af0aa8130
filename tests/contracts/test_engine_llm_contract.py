"""The engine contract: its own tests with mocks and on a real client, and its guarantees."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from builders import make_action, make_client, make_state, rate_update, requests_of

from llmsim_lab.engines import EconLLMEngine, EconomicEngine, Engine, LLMEngine
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.models import (
    Action,
    AgentState,
    GlobalState,
    SimulationState,
    StateUpdateDecision,
    ValidationResult,
)
from llmsim_lab.simulation import SimulationConfig

ClientFor = Callable[[Sequence[StateUpdateDecision]], Any]

SYSTEM_MESSAGE = """\
You are an economic simulation engine.
Given a validated policy action, determine the new interest rate based on economic theory.

Consider:
- Current economic indicators
- Policy action effects
- Monetary policy principles

Return JSON:
{
  "new_interest_rate": float,
  "reasoning": "step-by-step explanation of how you calculated the new rate",
  "confidence": 0.0-1.0
}
"""

USER_MESSAGE = """\
Current state:
- Interest Rate: 2.5%
- Inflation: 6.25%
- GDP Growth: -1.5%

Validated action: "Lower interest rates by 0.5%"

Think step-by-step:
1. How does this action affect monetary policy?
2. What interest rate adjustment is appropriate?
3. What is the new interest rate?

Calculate the new interest rate."""


def mock_llm_client_sequence(decisions: Sequence[StateUpdateDecision]) -> Mock:
    """As the document has it: a client that knows nothing but the method."""
    client = Mock()
    client.call_with_retry = AsyncMock(side_effect=list(decisions))
    return client


def scripted_client_sequence(decisions: Sequence[StateUpdateDecision]) -> Any:
    return make_client(list(decisions))


@pytest.fixture(
    params=[mock_llm_client_sequence, scripted_client_sequence], ids=["mock", "real client"]
)
def client_for(request: pytest.FixtureRequest) -> ClientFor:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def config() -> SimulationConfig:
    return SimulationConfig()


@pytest.fixture
def validated_action() -> Action:
    return Action(
        agent_name="TestNation",
        action_string="Increase interest rates",
        validated=True,
        validation_result=ValidationResult(is_valid=True, reasoning="Monetary policy."),
    )


# The document's tests


async def test_engine_processes_validated_action(
    client_for: ClientFor, config: SimulationConfig
) -> None:
    mock_decision = StateUpdateDecision(
        new_interest_rate=2.0,
        reasoning="Action proposes lowering rates by 0.5%. Current rate 2.5%, new rate 2.0%.",
        confidence=0.9,
        action_applied="Lower interest rates by 0.5%",
    )
    engine = EconomicEngine(config=config, llm_client=client_for([mock_decision]))
    action = Action(
        agent_name="TestNation",
        action_string="Lower interest rates by 0.5%",
        validated=True,
        validation_result=ValidationResult(is_valid=True),
    )
    current_state = SimulationState(
        turn=1,
        agents={"TestNation": AgentState(name="TestNation", economic_strength=100.0)},
        global_state=GlobalState(interest_rate=2.5, total_economic_value=1000.0),
    )
    engine.current_state = current_state

    new_state = await engine.run_turn([action])

    assert new_state.global_state.interest_rate == 2.0
    assert new_state.turn == 2
    assert len(new_state.reasoning_chains) > 0
    assert any("component=engine" in str(chain) for chain in new_state.reasoning_chains)


async def test_engine_skips_unvalidated_action(
    config: SimulationConfig, caplog: pytest.LogCaptureFixture
) -> None:
    llm_client = make_client([])
    engine = EconomicEngine(config=config, llm_client=llm_client)
    action = Action(
        agent_name="TestNation",
        action_string="Deploy military forces",
        validated=False,
        validation_result=ValidationResult(is_valid=False),
    )
    caplog.set_level(logging.INFO)

    new_state = await engine.run_turn([action])

    assert new_state.global_state.interest_rate == engine.current_state.global_state.interest_rate
    info_logs = [r.message for r in caplog.records if r.levelname == "INFO"]
    assert any("SKIPPED Agent [TestNation] due to unvalidated Action" in msg for msg in info_logs)
    assert new_state.turn == 1
    assert requests_of(llm_client) == []


async def test_engine_logs_reasoning_chain(
    client_for: ClientFor,
    config: SimulationConfig,
    validated_action: Action,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mock_decision = StateUpdateDecision(
        new_interest_rate=3.0,
        reasoning="Inflation high, increase rates to cool economy.",
        confidence=0.85,
        action_applied="Increase interest rates",
    )
    engine = EconomicEngine(config=config, llm_client=client_for([mock_decision]))
    caplog.set_level(logging.DEBUG)

    await engine.run_turn([validated_action])

    debug_logs = [r.message for r in caplog.records if r.levelname == "DEBUG"]
    assert any("llm_reasoning_chain" in msg for msg in debug_logs)
    assert any("component=engine" in msg for msg in debug_logs)
    assert any("cool economy" in msg for msg in debug_logs)


async def test_engine_aborts_on_llm_failure(
    config: SimulationConfig, validated_action: Action
) -> None:
    mock_client = Mock()
    mock_client.call_with_retry.side_effect = LLMFailureException(
        reason="server_error", attempts=2, component="engine"
    )
    engine = EconomicEngine(config=config, llm_client=mock_client)
    before = engine.current_state

    with pytest.raises(LLMFailureException) as exc_info:
        await engine.run_turn([validated_action])

    assert exc_info.value.reason == "server_error"
    assert exc_info.value.component == "engine"
    assert engine.current_state is before
    assert engine.current_state.turn == 0


async def test_engine_aborts_on_llm_failure_of_a_real_client(validated_action: Action) -> None:
    client = make_client([rate_update(4.25), ConnectionError("refused"), ConnectionError("again")])
    engine = EconomicEngine(llm_client=client)
    before = engine.current_state

    with pytest.raises(LLMFailureException) as exc_info:
        await engine.run_turn([validated_action, validated_action])

    assert (exc_info.value.reason, exc_info.value.component) == ("connection_error", "engine")
    assert engine.current_state is before
    assert before.global_state.interest_rate == 4.0


async def test_engine_processes_multiple_actions(
    client_for: ClientFor, config: SimulationConfig
) -> None:
    engine = EconomicEngine(
        config=config,
        llm_client=client_for(
            [
                StateUpdateDecision(
                    new_interest_rate=2.0, reasoning="Lower by 0.5%", confidence=0.8
                ),
                StateUpdateDecision(
                    new_interest_rate=1.8, reasoning="Further lower by 0.2%", confidence=0.8
                ),
            ]
        ),
    )
    actions = [
        Action(agent_name="Nation1", action_string="Lower rates 0.5%", validated=True),
        Action(agent_name="Nation2", action_string="Lower rates 0.2%", validated=True),
    ]

    new_state = await engine.run_turn(actions)

    assert new_state.global_state.interest_rate != engine.current_state.global_state.interest_rate
    assert len(new_state.reasoning_chains) >= 2
    # The decision of the document: sequential application, so the last one's rate stands.
    assert new_state.global_state.interest_rate == 1.8


async def test_engine_attaches_reasoning_chains_to_state(
    client_for: ClientFor, config: SimulationConfig, validated_action: Action
) -> None:
    mock_decision = StateUpdateDecision(
        new_interest_rate=2.5,
        reasoning="Maintain current rate due to stable indicators.",
        confidence=0.8,
        action_applied="Maintain interest rates",
    )
    engine = EconomicEngine(config=config, llm_client=client_for([mock_decision]))

    new_state = await engine.run_turn([validated_action])

    assert hasattr(new_state, "reasoning_chains")
    assert len(new_state.reasoning_chains) > 0
    engine_chains = [c for c in new_state.reasoning_chains if c.component == "engine"]
    assert len(engine_chains) >= 1
    assert "stable indicators" in engine_chains[0].reasoning


# Its written guarantees


async def test_only_validated_actions_reach_the_model() -> None:
    client = make_client([rate_update(4.25)])
    actions = [make_action("Go to war", validated=False), make_action("Raise rates")]
    await EconomicEngine(llm_client=client).run_turn(actions)
    (request,) = requests_of(client)
    assert 'Validated action: "Raise rates"' in request.prompt


async def test_the_prescribed_messages_reach_the_model() -> None:
    client = make_client(rate_update(2.0))
    engine = EconomicEngine(llm_client=client)
    engine.current_state = make_state(interest_rate=2.5, inflation=6.25, gdp_growth=-1.5)
    await engine.run_turn([make_action("Lower interest rates by 0.5%")])
    (request,) = requests_of(client)
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.messages[0].content.startswith(SYSTEM_MESSAGE)
    assert request.messages[1].content == USER_MESSAGE


async def test_the_model_is_called_with_state_update_decision_as_response_model(
    validated_action: Action,
) -> None:
    client = mock_llm_client_sequence([rate_update(4.25)])
    await EconomicEngine(llm_client=client).run_turn([validated_action])
    assert client.call_with_retry.await_args.kwargs["response_model"] is StateUpdateDecision


async def test_one_failed_attempt_is_made_good_by_the_retry(validated_action: Action) -> None:
    client = make_client(["dunno", rate_update(4.25)])
    state = await EconomicEngine(llm_client=client).run_turn([validated_action])
    assert state.global_state.interest_rate == 4.25
    assert state.reasoning_chains[0].status == "repaired"


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "null", '"high"'])
async def test_a_rate_that_is_not_a_number_breaks_the_schema_and_aborts(
    rate: str, validated_action: Action
) -> None:
    reply = f'{{"new_interest_rate": {rate}, "reasoning": "It rises.", "confidence": 0.5}}'
    engine = EconomicEngine(llm_client=make_client(reply))
    with pytest.raises(LLMFailureException, match="new_interest_rate") as caught:
        await engine.run_turn([validated_action])
    assert (caught.value.reason, caught.value.attempts) == ("invalid_response", 2)


async def test_the_turn_is_counted_once_however_many_actions_there_are() -> None:
    engine = EconomicEngine(llm_client=make_client(rate_update(4.25)))
    engine.current_state = make_state(turn=6)
    assert (await engine.run_turn([make_action()] * 3)).turn == 7


def test_the_hierarchy_is_engine_llm_engine_econ_llm_engine() -> None:
    assert issubclass(EconomicEngine, EconLLMEngine)
    assert EconLLMEngine.__bases__ == (LLMEngine,)
    assert LLMEngine.__bases__ == (Engine,)
    assert inspect.isabstract(Engine)


def test_llm_engine_leaves_prompt_and_application_to_its_subclasses() -> None:
    assert LLMEngine.__abstractmethods__ == {
        "_construct_state_update_prompt",
        "_apply_state_update",
    }
    assert not inspect.isabstract(EconLLMEngine)
