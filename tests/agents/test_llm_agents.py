"""Model-driven agents: relevance check, statuses, profiles, prompts."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_client, make_state, policy, requests_of

from llmsim_lab.agents import EconLLMAgent, NationAgent
from llmsim_lab.agents._agents import NationProfile, RateDecision, thin_prompt
from llmsim_lab.errors import ConfigError, LLMFailureException, PromptError
from llmsim_lab.models import GlobalState, PolicyDecision
from llmsim_lab.prompts import Prompt

STATE = make_state()


async def decide(*replies: Any) -> Any:
    return await NationAgent("Aland", make_client(list(replies))).decide_action(STATE)


async def test_a_decision_at_the_first_attempt_is_ok_and_carries_its_call() -> None:
    action = await decide(policy())
    assert action.status == action.chain.status == "ok"
    assert action.policy_decision.call.attempts == 1
    assert action.chain.call is action.policy_decision.call


async def test_an_action_outside_economics_is_shown_to_the_model_with_the_complaint() -> None:
    client = make_client([policy("Sing a song"), policy("Cut taxes")])
    action = await NationAgent("Aland", client).decide_action(STATE)
    repair = requests_of(client)[1].messages
    assert [message.role for message in repair] == ["system", "user", "assistant", "user"]
    assert "Sing a song" in repair[2].content
    assert "names nothing of economic policy" in repair[3].content
    assert (action.action_string, action.status) == ("Cut taxes", "repaired")


async def test_two_actions_outside_economics_make_a_failed_action_and_not_a_lost_one() -> None:
    action = await decide(policy("Sing a song"), policy("Dance"))
    assert (action.action_string, action.status) == ("Dance", "failed")
    assert action.validated is False


async def test_a_failed_action_keeps_the_record_of_its_calls() -> None:
    action = await decide(policy("Sing a song"), policy("Dance"))
    assert action.chain.status == action.chain.call.status == "failed"
    assert action.chain.call.attempts == 2
    assert "Current economic state" in action.chain.prompt


async def test_no_connection_after_an_irrelevant_reply_is_a_failure_not_a_failed_action() -> None:
    with pytest.raises(LLMFailureException) as caught:
        await decide(policy("Sing a song"), ConnectionError("refused"))
    assert caught.value.reason == "connection_error"


async def test_the_reply_that_fails_for_its_form_raises_though_the_first_was_only_irrelevant() -> (
    None
):
    with pytest.raises(LLMFailureException) as caught:
        await decide(policy("Sing a song"), "no JSON")
    assert caught.value.reason == "invalid_response"


@pytest.mark.parametrize(
    "text",
    [
        "Raise the policy rate by 25 basis points",
        "Increase Taxes on luxury goods",
        "Invest in renewable energy infrastructure",
        "Devalue the currency",
        "Impose tariffs on steel",
        "Start a jobs programme",
        "Hike by a quarter point",
    ],
)
def test_what_names_economic_policy_is_relevant(text: str) -> None:
    assert EconLLMAgent("Aland", make_client())._validate_decision(policy(text)) is True


@pytest.mark.parametrize("text", ["Deploy the army", "Sing a song", "Do nothing", "Pray for rain"])
def test_a_text_without_economic_words_is_not_relevant(text: str) -> None:
    assert EconLLMAgent("Aland", make_client())._validate_decision(policy(text)) is False


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
        thin_prompt(Prompt.load(name), GlobalState(), name="Aland", moves_bp=(-25, 0, 25))
        for name in ("agent_rate", "agent_policy")
    )
    assert "-25, 0, +25" in with_slot
    assert "You advise Aland." in with_slot
    assert "+25" not in without


async def test_the_system_message_stays_the_same_from_turn_to_turn() -> None:
    client = make_client(policy())
    agent = NationAgent("Aland", client)
    await agent.decide_action(make_state(turn=0, inflation=2))
    await agent.decide_action(make_state(turn=1, inflation=9))
    first, second = requests_of(client)
    assert first.messages[0] == second.messages[0]
    assert first.messages[1] != second.messages[1]


async def test_another_prompt_can_be_given() -> None:
    client = make_client(policy())
    prompt = Prompt.load("agent_policy").replace("ONE specific", "exactly ONE")
    await NationAgent("Aland", client, prompt=prompt).decide_action(STATE)
    assert "propose exactly ONE policy action" in requests_of(client)[0].prompt
    assert prompt.parent == Prompt.load("agent_policy").digest


async def test_a_prompt_with_other_slots_says_which_it_lacks() -> None:
    agent = NationAgent("Aland", make_client(policy()), prompt=Prompt("Rate {{ rate }}?"))
    with pytest.raises(PromptError, match=r"no value for rate; no slot for gdp_growth, inflation"):
        await agent.decide_action(STATE)


async def test_a_plain_string_prompt_goes_out_as_one_user_message() -> None:
    class Terse(EconLLMAgent):
        def _construct_prompt(self, state: Any) -> str:
            return f"Turn {state.turn}. Policy?"

    client = make_client(policy())
    action = await Terse("Aland", client).decide_action(STATE)
    (message,) = requests_of(client)[0].messages
    assert (message.role, message.content) == ("user", "Turn 0. Policy?")
    assert action.chain is not None
    assert action.chain.prompt == "Turn 0. Policy?"


async def test_the_call_says_who_asked_and_in_which_turn() -> None:
    client = make_client(policy())
    await NationAgent("Aland", client).decide_action(make_state(turn=4))
    site = requests_of(client)[0].site
    assert site is not None
    assert (site.component, site.agent, site.turn) == ("agent", "Aland", 5)


async def test_the_schema_holds_texts_to_a_length_and_confidence_to_a_grid() -> None:
    client = make_client(policy(), max_text_chars=120)
    await NationAgent("Aland", client).decide_action(STATE)
    schema = requests_of(client)[0].schema
    assert schema is not None
    assert list(schema["properties"]) == ["action", "reasoning", "confidence"]
    assert schema["properties"]["reasoning"]["maxLength"] == 120
    assert schema["properties"]["confidence"]["enum"][:3] == [0.0, 0.05, 0.1]


@pytest.mark.parametrize("name", ["", "   ", "\n"])
def test_an_agent_without_a_name_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="needs a name"):
        NationAgent(name, make_client())


def test_an_agents_repr_names_its_class_and_itself() -> None:
    assert repr(NationAgent("Aland", make_client())) == "<NationAgent 'Aland'>"


@pytest.mark.parametrize(
    "fields",
    [{"inflation_target": float("nan")}, {"mandate": ""}, {"temprament": "calm"}],
    ids=["target not a number", "empty mandate", "unknown field"],
)
def test_a_wrong_profile_names_the_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"NationProfile: {next(iter(fields))}"):
        NationAgent("Aland", make_client(), profile=fields)


async def test_an_agent_of_another_domain_complains_in_general_words() -> None:
    class Picky(EconLLMAgent):
        def _validate_decision(self, decision: PolicyDecision) -> bool:
            return False

        def _complaint(self) -> str:
            return super(EconLLMAgent, self)._complaint()

    client = make_client(policy())
    action = await Picky("Aland", client).decide_action(STATE)
    assert action.status == "failed"
    assert "does not belong to this agent's domain" in requests_of(client)[1].prompt


# Decisions that state their size


def test_a_rate_decision_need_not_state_its_size() -> None:
    decision = RateDecision(action="Hold", reasoning="Calm.", confidence=0.5)
    assert decision.rate_change_bp is None
    assert isinstance(decision, PolicyDecision)


def test_further_fields_of_a_rate_decision_are_asked_for_before_confidence() -> None:
    class Dated(RateDecision):
        until: str = ""

    asked = [*Dated.model_json_schema()["properties"]]
    assert asked == ["reasoning", "rate_change_bp", "action", "until", "confidence"]
