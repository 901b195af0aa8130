"""Validators: every action marked, none dropped, all judged at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from builders import make_action, make_client, make_state, policy, requests_of, verdict

from llmsim_lab.agents import NationAgent
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.models import Action
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.types import ChatReply, ChatRequest
from llmsim_lab.validators import EconLLMValidator, LLMValidator, Validator
from llmsim_lab.validators._validators import economic_domain, verdict_prompt

STATE = make_state()


def proposals(*texts: str) -> list[Action]:
    return [
        make_action(text, name=f"Nation {number}", validated=False)
        for number, text in enumerate(texts)
    ]


def by_text(request: ChatRequest) -> Any:
    return verdict("war" not in request.prompt.split("Proposed action")[1])


async def test_actions_come_back_marked_as_many_as_before_in_the_same_order() -> None:
    actions = proposals("Cut taxes", "Go to war", "Raise rates", "Declare war on rain")
    marked = await EconLLMValidator(make_client(by_text)).validate_actions(actions, STATE)
    assert [action.action_string for action in marked] == [a.action_string for a in actions]
    assert [action.validated for action in marked] == [True, False, True, False]


async def test_the_actions_given_stay_as_they_were() -> None:
    actions = proposals("Cut taxes")
    marked = await EconLLMValidator(make_client(verdict())).validate_actions(actions, STATE)
    assert actions[0].validated is False
    assert marked[0].validated is True


async def test_the_verdict_and_its_chain_go_with_the_action() -> None:
    validator = EconLLMValidator(make_client(verdict(False, reasoning="It is warfare.")))
    (marked,) = await validator.validate_actions(proposals("Go to war"), make_state(turn=2))
    result = marked.validation_result
    assert result is not None
    assert (result.is_valid, result.reasoning) == (False, "It is warfare.")
    assert (result.confidence, result.action_evaluated) == (0.9, "Go to war")
    assert result.chain is not None
    assert (result.chain.component, result.chain.agent, result.chain.turn) == (
        "validator",
        "Nation 0",
        3,
    )
    assert result.chain.call is not None


async def test_all_actions_are_in_flight_at_once() -> None:
    together = asyncio.Barrier(5)

    async def wait_for_the_others(request: ChatRequest) -> Any:
        await together.wait()
        return verdict()

    client = LLMClient(
        LLMConfig(max_concurrency=5, timeout_s=5, retry_wait_s=0),
        ScriptedBackend(wait_for_the_others),
    )
    marked = await EconLLMValidator(client).validate_actions(proposals(*"abcde"), STATE)
    assert len(marked) == 5


async def test_no_actions_are_no_error_and_no_call() -> None:
    client = make_client([])
    assert await EconLLMValidator(client).validate_actions([], STATE) == []
    assert requests_of(client) == []


def asked(*, permissive: bool, domain: str = "economic") -> RenderedPrompt:
    return verdict_prompt(
        Prompt.load("validator_economic"),
        economic_domain(domain),
        "Build a dam",
        permissive=permissive,
        agent="Aland",
    )


def test_a_permissive_validator_asks_for_any_significant_impact() -> None:
    prompt = asked(permissive=True)
    assert "accept an action if it has any significant impact" in prompt.system
    assert prompt.user.startswith('Proposed action: "Build a dam"')


def test_a_strict_validator_asks_for_a_measure_of_the_domain_itself() -> None:
    prompt = asked(permissive=False)
    assert "only if it is a measure of this domain itself" in prompt.system
    assert "permissive" not in prompt.system


async def test_a_validator_asks_as_its_domain_and_setting_say() -> None:
    client = make_client(verdict())
    validator = EconLLMValidator(client, "fiscal", permissive=False)
    await validator.validate_actions(proposals("Build a dam"), STATE)
    system = requests_of(client)[0].messages[0].content
    assert system == asked(permissive=False, domain="fiscal").system
    assert "Domain: fiscal policy" in system


async def test_an_action_that_failed_its_own_check_is_rejected_unasked() -> None:
    client = make_client(verdict())
    failed = make_action("Sing", validated=False, status="failed")
    marked = await EconLLMValidator(client).validate_actions([failed, make_action()], STATE)
    assert [action.validated for action in marked] == [False, True]
    assert len(requests_of(client)) == 1
    assert marked[0].validation_result is not None
    assert "own check" in marked[0].validation_result.reasoning


async def test_what_an_agent_says_twice_outside_its_domain_is_rejected() -> None:
    client = make_client([policy("Sing"), policy("Dance")])
    action = await NationAgent("Aland", client).decide_action(STATE)
    (marked,) = await EconLLMValidator(client).validate_actions([action], STATE)
    assert (marked.validated, marked.status) == (False, "failed")


async def test_a_repaired_verdict_says_so() -> None:
    validator = EconLLMValidator(make_client(["yes", verdict()]))
    (marked,) = await validator.validate_actions(proposals("Cut taxes"), STATE)
    assert marked.validation_result is not None
    assert marked.validation_result.status == "repaired"


async def test_when_one_judgement_fails_the_cause_is_kept() -> None:
    def one_down(request: ChatRequest) -> Any:
        return ConnectionError("refused") if "war" in request.prompt else verdict()

    validator = EconLLMValidator(make_client(one_down))
    with pytest.raises(LLMFailureException) as caught:
        await validator.validate_actions(proposals("Cut taxes", "Go to war"), STATE)
    assert caught.value.component == "validator"
    assert str(caught.value.__cause__) == "refused"


async def test_a_failed_judgement_stops_the_others() -> None:
    answered: list[str] = []

    async def first_fails(request: ChatRequest) -> Any:
        if "war" in request.prompt:
            return ChatReply(text="no")
        await asyncio.sleep(5)
        answered.append(request.prompt)
        return verdict()

    validator = EconLLMValidator(make_client(first_fails, max_concurrency=2))
    with pytest.raises(LLMFailureException):
        await validator.validate_actions(proposals("Cut taxes", "Go to war"), STATE)
    assert answered == []
    assert len(asyncio.all_tasks()) == 1


async def test_the_reasoning_is_logged_as_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    validator = EconLLMValidator(make_client(verdict(reasoning="It is a tax.\nSo yes.")))
    await validator.validate_actions(proposals("Cut taxes"), STATE)
    (line,) = [r.message for r in caplog.records if "llm_reasoning_chain" in r.message]
    assert line == (
        'llm_reasoning_chain component=validator agent_id="Nation 0" turn=1 status=ok '
        'is_valid=True reasoning="It is a tax.\\nSo yes." confidence=0.9'
    )


async def test_another_prompt_can_be_given() -> None:
    client = make_client(verdict())
    prompt = Prompt.load("validator_economic").replace(
        "Is the action that is proposed valid", "Is it sound"
    )
    await EconLLMValidator(client, prompt=prompt).validate_actions(proposals("Cut taxes"), STATE)
    assert "Is it sound in this domain?" in requests_of(client)[0].prompt


def test_the_hierarchy_is_validator_llm_validator_econ_llm_validator() -> None:
    assert EconLLMValidator.__bases__ == (LLMValidator,)
    assert LLMValidator.__bases__ == (Validator,)
    assert LLMValidator.__abstractmethods__ == {"_construct_validation_prompt"}
