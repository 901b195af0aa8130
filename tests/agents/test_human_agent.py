"""A person as an agent: asked like a model, held to what a model is held to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from builders import make_client, make_state

from llmsim_lab.agents import NationAgent
from llmsim_lab.agents._agents import NationProfile
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm._human import OpenQuestion

SAID: dict[str, Any] = {
    "action": "Raise the interest rate",
    "reasoning": "Inflation is high.",
    "confidence": 0.8,
    "proposed_rate": 5.0,
}


MOVES = (-450, -25, 0, 25)


def agent_saying(*answers: Any, **more: Any) -> HumanAgent:
    """A person who gives these answers in turn."""
    left = list(answers)
    return HumanAgent("Aland", ask=lambda _: left.pop(0), **more)


async def test_a_person_sees_the_very_prompt_that_a_model_would_see() -> None:
    profile = NationProfile(mandate="jobs", inflation_target=3, temperament="bold")
    seen: list[OpenQuestion] = []
    human = HumanAgent("Aland", profile=profile, ask=lambda q: seen.append(q) or SAID)
    client = make_client(lambda _: {k: v for k, v in SAID.items() if k != "proposed_rate"})
    state = make_state(inflation=9)
    await human.decide_action(state)
    await NationAgent("Aland", client, profile=profile).decide_action(state)
    assert seen[0].request.messages == client.backend.requests[0].messages  # type: ignore[attr-defined]


async def test_the_decision_becomes_an_action_with_the_rate_named() -> None:
    action = await agent_saying(SAID).decide_action(make_state())
    assert (action.action_string, action.proposed_rate) == ("Raise the interest rate", 5.0)
    assert action.status == "ok"
    assert action.policy_decision is not None
    assert action.policy_decision.confidence == 0.8
    assert action.chain is not None
    assert action.chain.call is action.policy_decision.call
    assert action.chain.call is not None
    assert action.chain.call.request.model == "human"


async def test_without_a_rate_to_name_the_fields_are_those_of_a_model() -> None:
    said = {k: v for k, v in SAID.items() if k != "proposed_rate"}
    seen: list[OpenQuestion] = []
    agent = HumanAgent("Aland", names_rate=False, ask=lambda q: seen.append(q) or said)
    action = await agent.decide_action(make_state())
    assert action.proposed_rate is None
    assert list(seen[0].fields) == ["action", "reasoning", "confidence"]


async def test_an_action_outside_economic_policy_comes_back_once() -> None:
    agent = agent_saying(SAID | {"action": "Plant tulips"}, SAID)
    action = await agent.decide_action(make_state())
    assert (action.action_string, action.status) == ("Raise the interest rate", "repaired")


async def test_a_second_such_action_stands_as_failed() -> None:
    tulips = SAID | {"action": "Plant tulips"}
    action = await agent_saying(tulips, tulips).decide_action(make_state())
    assert (action.action_string, action.status) == ("Plant tulips", "failed")


async def test_a_rate_out_of_reach_fails_the_call() -> None:
    far = SAID | {"proposed_rate": 9.0}
    with pytest.raises(LLMFailureException, match="5 percentage points from the current 4%"):
        await agent_saying(far, far).decide_action(make_state())


async def test_the_rates_offered_are_those_within_one_step() -> None:
    agent = HumanAgent("Aland")
    task = asyncio.create_task(agent.decide_action(make_state()))
    question = await agent.person.asked()
    assert agent.question is question
    offered = question.fields["proposed_rate"]["enum"]
    assert (offered[0], offered[-1], len(offered)) == (2.0, 6.0, 17)
    agent.answer("Hold the rate", reasoning="Calm.", confidence=0.5, rate=4)
    assert (await task).proposed_rate == 4


@pytest.mark.parametrize("names_rate", [True, False])
async def test_the_question_is_known_before_it_is_asked(names_rate: bool) -> None:
    agent, state = HumanAgent("Aland", names_rate=names_rate), make_state()
    task = asyncio.create_task(agent.decide_action(state))
    asked, expected = (await agent.person.asked()).request, agent.expected(state).request
    assert (expected.messages, expected.schema) == (asked.messages, asked.schema)
    assert expected.site == asked.site
    task.cancel()


async def test_with_moves_a_person_names_the_rate_that_one_of_them_leads_to() -> None:
    agent = agent_saying(
        SAID | {"proposed_rate": 4.2}, SAID | {"proposed_rate": 4.37}, moves_bp=MOVES
    )
    state = make_state(interest_rate=4.123333)
    assert agent.rates_on_offer(4.123333) == [0, 3.87, 4.12, 4.37]
    action = await agent.decide_action(state)
    assert (action.status, action.rate_change_bp, action.proposed_rate) == ("repaired", 25, None)
    assert action.policy_decision is not None
    assert action.policy_decision.call is not None


async def test_of_moves_that_end_at_a_bound_the_smallest_is_taken() -> None:
    agent = agent_saying(SAID | {"proposed_rate": 0}, moves_bp=(-900, *MOVES))
    action = await agent.decide_action(make_state())
    assert action.rate_change_bp == -450


async def test_a_rate_that_is_not_on_offer_fails_the_call() -> None:
    odd = SAID | {"proposed_rate": 4.6}
    with pytest.raises(LLMFailureException, match=r"4\.6% is not on offer; .*: 0, 3\.75, 4, 4\.25"):
        await agent_saying(odd, odd, moves_bp=MOVES).decide_action(make_state())


async def test_a_wrong_answer_is_not_sent_and_the_question_stays() -> None:
    agent = HumanAgent("Aland")
    task = asyncio.create_task(agent.decide_action(make_state()))
    question = await agent.person.asked()
    with pytest.raises(ConfigError, match=r"not sent: .*rate is 40; it must be one of 2, 2\.25"):
        agent.answer("Hold the rate", reasoning="Calm.", confidence=0.5, rate=40)
    with pytest.raises(ConfigError, match="rate is missing"):
        agent.answer("Hold the rate", reasoning="Calm.", confidence=0.5)
    assert agent.question is question
    agent.answer("Hold the rate", reasoning="Calm.", confidence=0.5, rate=4)
    await task


def test_an_answer_that_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(ConfigError, match="Aland is asked nothing just now; start the turn first"):
        HumanAgent("Aland").answer("Hold", reasoning="Calm.", confidence=0.5, rate=4)


def test_an_action_is_judged_while_it_is_being_written() -> None:
    agent = HumanAgent("Aland")
    assert "names nothing of economic policy" in agent.complaint_about("Plant tulips")
    assert agent.complaint_about("Raise the rate") == ""


def test_a_model_does_not_take_a_persons_place_unseen() -> None:
    agent = HumanAgent("Aland")
    agent.llm_client = make_client()
    with pytest.raises(ConfigError, match="use a NationAgent"):
        _ = agent.question
