"""Model-driven agents: relevance check, statuses, profiles, prompts."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_client, make_state, policy, requests_of

from llmsim_lab.agents import EconLLMAgent, NationAgent
from llmsim_lab.agents.agents import NationProfile, RateDecision, thin_prompts
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.models import GlobalState
from llmsim_lab.prompts import Prompt

STATE = make_state()


async def decide(*replies: Any) -> Any:
    return await NationAgent("Aland", make_client(list(replies))).decide_action(STATE)


async def test_an_action_outside_economics_is_shown_to_the_model_with_the_complaint() -> None:
    client = make_client([policy("Sing a song"), policy("Cut taxes")])
    action = await NationAgent("Aland", client).decide_action(STATE)
    repair = requests_of(client)[1].messages
    assert [message.role for message in repair] == ["system", "user", "assistant", "user"]
    assert "Sing a song" in repair[2].content
    assert "names nothing of economic policy" in repair[3].content
    assert (action.action_string, action.status) == ("Cut taxes", "repaired")


async def test_two_actions_outside_economics_make_a_failed_action_that_keeps_its_calls() -> None:
    action = await decide(policy("Sing a song"), policy("Dance"))
    assert (action.action_string, action.status, action.validated) == ("Dance", "failed", False)
    assert action.chain.status == action.chain.call.status == "failed"
    assert action.chain.call.attempts == 2
    assert "Current economic state" in action.chain.prompt


@pytest.mark.parametrize(
    ("second", "reason"),
    [(ConnectionError("refused"), "connection_error"), ("no JSON", "invalid_response")],
)
async def test_a_second_attempt_that_fails_raises_though_the_first_was_only_irrelevant(
    second: Any, reason: str
) -> None:
    with pytest.raises(LLMFailureException) as caught:
        await decide(policy("Sing a song"), second)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("text", "relevant"),
    [
        ("Increase Taxes on luxury goods", True),
        ("Devalue the currency", True),
        ("Deploy the army", False),
        ("Study the syntax", False),
    ],
)
def test_what_names_economic_policy_is_relevant(text: str, relevant: bool) -> None:
    agent = EconLLMAgent("Aland", make_client())
    assert agent._validate_decision(policy(text)) is relevant


async def test_a_nations_profile_stands_in_the_system_message_and_not_in_the_user_message() -> None:
    client = make_client(policy())
    profile = NationProfile(mandate="full granaries", inflation_target=3.5, temperament="hawkish")
    await NationAgent("Borduria", client, profile=profile).decide_action(STATE)
    system, user = requests_of(client)[0].messages
    assert system.content.endswith(
        "You advise Borduria. Mandate: full granaries. Inflation target: 3.5%. "
        "Temperament: hawkish."
    )
    assert "Borduria" not in user.content


def test_moves_stand_in_a_thin_prompt_that_has_a_slot_for_them() -> None:
    with_slot, without = (
        thin_prompts(Prompt.load(name), GlobalState(), moves_bp=(-25, 0, 25))("Aland", None)
        for name in ("agent_rate", "agent_policy")
    )
    assert "-25, 0, +25" in with_slot
    assert "You advise Aland." in with_slot
    assert "+25" not in without


@pytest.mark.parametrize(
    "fields", [{"inflation_target": float("nan")}, {"mandate": ""}, {"temprament": "calm"}]
)
def test_a_wrong_profile_names_the_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"NationProfile: {next(iter(fields))}"):
        NationAgent("Aland", make_client(), profile=fields)


def test_a_rate_decision_is_asked_for_reasoning_then_size_then_words() -> None:
    asked = [*RateDecision.model_json_schema()["properties"]]
    assert asked == ["reasoning", "rate_change_bp", "action", "confidence"]
