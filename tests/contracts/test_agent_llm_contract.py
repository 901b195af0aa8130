"""The agent contract: its own tests with mocks and on a real client, and its written guarantees."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import pytest
from builders import make_client, make_state, policy, requests_of

from llmsim_lab.agents import Agent, EconLLMAgent, LLMAgent, NationAgent
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import AgentState, GlobalState, PolicyDecision, SimulationState

ClientFor = Callable[[PolicyDecision], Any]

SYSTEM_MESSAGE = """\
You are an economic policy advisor for a nation.
Analyze the current economic state and propose ONE specific policy action.
Think step-by-step about the economic situation and reasoning behind your recommendation.

Return your response as JSON with this structure:
{
  "action": "specific policy action string",
  "reasoning": "step-by-step explanation of why this action is appropriate",
  "confidence": 0.0-1.0
}
"""

USER_MESSAGE = """\
Current economic state:
- GDP Growth: -1.5%
- Inflation: 6.25%
- Unemployment: 8%
- Interest Rate: 2.5%

Think step-by-step:
1. What is the most pressing economic issue?
2. What policy action would address this issue?
3. What are the expected effects?

Propose ONE specific economic policy action."""


def mock_llm_client(decision: PolicyDecision) -> Mock:
    """As the document has it: a client that knows nothing but the method."""
    client = Mock()
    client.call_with_retry = AsyncMock(return_value=decision)
    return client


@pytest.fixture(params=[mock_llm_client, make_client], ids=["mock", "real client"])
def client_for(request: pytest.FixtureRequest) -> ClientFor:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def state() -> SimulationState:
    return SimulationState(
        turn=1,
        agents={"TestNation": AgentState(name="TestNation", economic_strength=100.0)},
        global_state=GlobalState(interest_rate=2.5, total_economic_value=1000.0),
    )


# The document's tests


async def test_agent_generates_policy_with_llm(
    client_for: ClientFor, state: SimulationState
) -> None:
    mock_llm_response = PolicyDecision(
        action="Lower interest rates by 0.5%",
        reasoning="High unemployment (8%) indicates weak demand. Lower rates stimulate borrowing.",
        confidence=0.85,
    )
    agent = NationAgent(name="TestNation", llm_client=client_for(mock_llm_response))

    action = await agent.decide_action(state)

    assert action.agent_name == "TestNation"
    assert action.action_string == "Lower interest rates by 0.5%"
    assert action.policy_decision is not None
    assert action.policy_decision.reasoning.startswith("High unemployment")
    assert action.policy_decision.confidence == 0.85
    assert action.validated is False


async def test_agent_logs_reasoning_chain(
    client_for: ClientFor, state: SimulationState, caplog: pytest.LogCaptureFixture
) -> None:
    mock_decision = PolicyDecision(
        action="Increase taxes",
        reasoning="High inflation requires demand reduction",
        confidence=0.7,
    )
    agent = NationAgent(name="TestNation", llm_client=client_for(mock_decision))
    caplog.set_level(logging.DEBUG)

    await agent.decide_action(state)

    debug_logs = [r for r in caplog.records if r.levelname == "DEBUG"]
    assert any("llm_reasoning_chain" in r.message for r in debug_logs)
    assert any("component=agent" in r.message for r in debug_logs)
    assert any("High inflation requires demand reduction" in r.message for r in debug_logs)


async def test_agent_aborts_on_llm_failure(state: SimulationState) -> None:
    mock_client = Mock()
    mock_client.call_with_retry.side_effect = LLMFailureException(
        reason="timeout", attempts=2, component="agent"
    )
    agent = NationAgent(name="TestNation", llm_client=mock_client)

    with pytest.raises(LLMFailureException) as exc_info:
        await agent.decide_action(state)

    assert exc_info.value.reason == "timeout"
    assert exc_info.value.attempts == 2


async def test_agent_aborts_on_llm_failure_of_a_real_client(
    state: SimulationState, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client([TimeoutError(), TimeoutError()])

    with pytest.raises(LLMFailureException) as exc_info:
        await NationAgent(name="TestNation", llm_client=client).decide_action(state)

    assert exc_info.value.reason == "timeout"
    assert exc_info.value.attempts == 2
    assert exc_info.value.component == "agent"
    (line,) = [r.message for r in caplog.records if r.levelname == "ERROR"]
    assert line.startswith("LLM_FAILURE component=agent agent=TestNation turn=2 reason=timeout")


async def test_agent_produces_flexible_action_string(
    client_for: ClientFor, state: SimulationState
) -> None:
    mock_decision = PolicyDecision(
        action="Implement trade sanctions on neighboring countries to boost domestic production",
        reasoning="Economic independence strategy",
        confidence=0.6,
    )
    agent = NationAgent(name="TestNation", llm_client=client_for(mock_decision))

    action = await agent.decide_action(state)

    assert isinstance(action.action_string, str)
    assert "trade sanctions" in action.action_string
    assert len(action.action_string) > 20


async def test_agent_constructs_cot_prompt(state: SimulationState) -> None:
    client = make_client(policy())
    with patch.object(
        LLMClient, "call_with_retry", autospec=True, side_effect=LLMClient.call_with_retry
    ) as spy_client:
        agent = NationAgent(name="TestNation", llm_client=client)
        await agent.decide_action(state)

    called_prompt = spy_client.call_args[1]["prompt"]
    assert "Think step-by-step" in called_prompt
    assert "What is the most pressing economic issue?" in called_prompt
    assert "GDP Growth:" in called_prompt
    assert "Inflation:" in called_prompt


# Its written guarantees


async def test_the_indicators_reach_the_model_in_the_prescribed_user_message() -> None:
    client = make_client(policy())
    state = make_state(interest_rate=2.5, inflation=6.25, unemployment=8, gdp_growth=-1.5)
    await NationAgent("TestNation", client).decide_action(state)
    (request,) = requests_of(client)
    assert request.messages[-1].role == "user"
    assert request.messages[-1].content == USER_MESSAGE


async def test_the_prescribed_system_message_opens_the_prompt(state: SimulationState) -> None:
    client = make_client(policy())
    await EconLLMAgent("TestNation", client).decide_action(state)
    (request,) = requests_of(client)
    assert request.messages[0].role == "system"
    assert request.messages[0].content.startswith(SYSTEM_MESSAGE)


async def test_the_model_is_called_with_policy_decision_as_response_model(
    state: SimulationState,
) -> None:
    client = mock_llm_client(policy())
    await NationAgent("TestNation", client).decide_action(state)
    assert client.call_with_retry.await_args.kwargs["response_model"] is PolicyDecision


async def test_the_action_refers_to_the_chain_that_was_logged(
    client_for: ClientFor, state: SimulationState
) -> None:
    agent = NationAgent("TestNation", client_for(policy(reasoning="Prices rise.")))
    action = await agent.decide_action(state)
    assert action.reasoning_chain_id == "2/agent/TestNation"
    assert action.chain is not None
    assert (action.chain.component, action.chain.agent, action.chain.turn) == (
        "agent",
        "TestNation",
        2,
    )
    assert action.chain.reasoning == "Prices rise."
    assert USER_MESSAGE.splitlines()[0] in action.chain.prompt


@pytest.mark.parametrize(
    "fault",
    [
        "no JSON at all",
        {"action": "Cut taxes", "reasoning": "Growth is weak."},
        {"action": "Cut taxes", "reasoning": "Growth is weak.", "confidence": 1.2},
        {"action": "   ", "reasoning": "Growth is weak.", "confidence": 0.5},
        TimeoutError(),
        ConnectionError("refused"),
    ],
    ids=["prose", "no confidence", "confidence 1.2", "empty action", "timeout", "no connection"],
)
async def test_one_failed_attempt_is_made_good_by_the_retry(
    fault: Any, state: SimulationState
) -> None:
    client = make_client([fault, policy("Cut taxes")])
    action = await NationAgent("TestNation", client).decide_action(state)
    assert action.action_string == "Cut taxes"
    assert [request.attempt for request in requests_of(client)] == [1, 2]


async def test_a_second_reply_that_breaks_the_schema_aborts(state: SimulationState) -> None:
    wrong = {"action": "Cut taxes", "reasoning": "Growth is weak.", "confidence": 1.2}
    client = make_client([wrong, wrong])
    with pytest.raises(LLMFailureException, match=r"confidence: .*less than or equal to 1.*1\.2"):
        await NationAgent("TestNation", client).decide_action(state)


def test_the_hierarchy_is_agent_llm_agent_econ_llm_agent() -> None:
    assert issubclass(NationAgent, EconLLMAgent)
    assert EconLLMAgent.__bases__ == (LLMAgent,)
    assert LLMAgent.__bases__ == (Agent,)
    assert inspect.isabstract(Agent)


def test_llm_agent_leaves_the_prompt_and_the_relevance_check_to_its_subclasses() -> None:
    assert LLMAgent.__abstractmethods__ == {"_construct_prompt", "_validate_decision"}
    assert not inspect.isabstract(EconLLMAgent)


def test_an_agent_of_another_domain_needs_only_the_two_abstract_methods() -> None:
    class Gardener(LLMAgent):
        def _construct_prompt(self, state: SimulationState) -> str:
            return f"Turn {state.turn}: what do you plant?"

        def _validate_decision(self, decision: PolicyDecision) -> bool:
            return "plant" in decision.action

    assert Gardener("Ada", make_client(policy())).name == "Ada"
