"""Validators: every action marked, none dropped, all judged at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from builders import make_action, make_client, make_state, requests_of, verdict

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.models import Action
from llmsim_lab.types import ChatRequest
from llmsim_lab.validators import EconLLMValidator

STATE = make_state()


def proposals(*texts: str) -> list[Action]:
    return [
        make_action(text, name=f"Nation {number}", validated=False)
        for number, text in enumerate(texts)
    ]


async def test_actions_come_back_marked_as_many_as_before_in_the_same_order() -> None:
    def by_text(request: ChatRequest) -> Any:
        return verdict("war" not in request.prompt.split("Proposed action")[1])

    actions = proposals("Cut taxes", "Go to war", "Raise rates", "Declare war on rain")
    client = make_client(by_text)
    marked = await EconLLMValidator(client).validate_actions(actions, STATE)
    assert [action.action_string for action in marked] == [a.action_string for a in actions]
    assert [action.validated for action in marked] == [True, False, True, False]
    assert not any(action.validated for action in actions)
    assert await EconLLMValidator(client).validate_actions([], STATE) == []


async def test_the_verdict_and_its_chain_go_with_the_action_and_into_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    client = make_client(["yes", verdict(False, reasoning="It is warfare.\nNo.")])
    validator = EconLLMValidator(client)
    (marked,) = await validator.validate_actions(proposals("Go to war"), make_state(turn=2))
    result = marked.validation_result
    assert result is not None
    assert (result.is_valid, result.reasoning) == (False, "It is warfare.\nNo.")
    assert (result.confidence, result.action_evaluated) == (0.9, "Go to war")
    assert (result.status, marked.status) == ("repaired", "ok")
    chain = result.chain
    assert chain is not None
    assert (chain.component, chain.agent, chain.turn) == ("validator", "Nation 0", 3)
    assert chain.call is not None
    (line,) = [r.message for r in caplog.records if "llm_reasoning_chain" in r.message]
    assert line == (
        'llm_reasoning_chain component=validator agent_id="Nation 0" turn=3 status=repaired '
        'is_valid=False reasoning="It is warfare.\\nNo." confidence=0.9'
    )


async def test_all_actions_are_in_flight_at_once() -> None:
    together = asyncio.Barrier(5)

    async def wait_for_the_others(request: ChatRequest) -> Any:
        await together.wait()
        return verdict()

    config = LLMConfig(max_concurrency=5, timeout_s=5, retry_wait_s=0)
    client = LLMClient(config, ScriptedBackend(wait_for_the_others))
    marked = await EconLLMValidator(client).validate_actions(proposals(*"abcde"), STATE)
    assert len(marked) == 5


@pytest.mark.parametrize(
    ("permissive", "words"),
    [
        (True, "accept an action if it has any significant impact"),
        (False, "only if it is a measure of this domain itself"),
    ],
)
async def test_a_validator_asks_as_domain_and_setting_say(permissive: bool, words: str) -> None:
    client = make_client(verdict())
    validator = EconLLMValidator(client, "fiscal", permissive=permissive)
    await validator.validate_actions(proposals("Build a dam"), STATE)
    system, user = (message.content for message in requests_of(client)[0].messages)
    assert words in system
    assert ("permissive" in system) is permissive
    assert "Domain: fiscal policy" in system
    assert user.startswith('Proposed action: "Build a dam"')


async def test_an_action_that_failed_its_own_check_is_rejected_unasked() -> None:
    client = make_client(verdict())
    failed = make_action("Sing", validated=False, status="failed")
    marked = await EconLLMValidator(client).validate_actions([failed, make_action()], STATE)
    assert [action.validated for action in marked] == [False, True]
    assert len(requests_of(client)) == 1
    assert marked[0].validation_result is not None
    assert "own check" in marked[0].validation_result.reasoning
