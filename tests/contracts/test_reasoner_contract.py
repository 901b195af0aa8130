"""The reasoner contract, section by section."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.statechart import (
    STATE_DESCRIPTIONS,
    AgentState,
    Post,
    Reasoner,
    SocialAgent,
    build_reasoner_prompt,
    parse_reasoner_response,
)
from llmsim_lab.statechart.reasoner import MoveQuestion

OPTIONS = [AgentState.COMPOSING, AgentState.SCROLLING]
POST = Post(id=7, author="Bob", text="Tea is best cold", topics=("tea",))


def ada() -> SocialAgent:
    return SocialAgent("Ada", ["tea", "chess"], "curious", state=AgentState.EVALUATING)


def reasoner_with(*replies: Any, **settings: Any) -> tuple[Reasoner, ScriptedBackend]:
    backend = ScriptedBackend(list(replies))
    return Reasoner(LLMClient(LLMConfig(retry_wait_s=0), backend), **settings), backend


async def decided(reasoner: Reasoner) -> AgentState:
    return await reasoner.decide(
        agent=ada(),
        current_state=AgentState.EVALUATING,
        trigger="decides",
        options=OPTIONS,
        context=POST,
    )


async def test_it_returns_the_option_that_the_model_names() -> None:
    reasoner, _ = reasoner_with('{"next_state": "scrolling"}')
    assert await decided(reasoner) is AgentState.SCROLLING


async def test_empty_options_are_a_value_error() -> None:
    reasoner, backend = reasoner_with('{"next_state": "idle"}')
    with pytest.raises(ValueError, match="no option"):
        await reasoner.decide(ada(), AgentState.EVALUATING, "decides", [])
    assert backend.requests == []


@pytest.mark.parametrize(
    "bad",
    ["no JSON at all", '{"next_state": "resting"}', '{"state": "scrolling"}', TimeoutError()],
    ids=["prose", "illegal state", "wrong key", "timeout"],
)
async def test_a_bad_answer_is_met_with_the_first_option_and_a_warning(
    bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    reasoner, _ = reasoner_with(bad, bad)
    with caplog.at_level(logging.WARNING):
        assert await decided(reasoner) is AgentState.COMPOSING
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [r.getMessage().split()[0] for r in warnings] == ["REASONER_FALLBACK"]
    assert reasoner.counts == {"fallback": 1}


async def test_a_model_that_is_not_there_is_an_error_and_no_decision() -> None:
    gone = BackendError("no server", reason="connection_error")
    reasoner, _ = reasoner_with(gone, gone)
    with pytest.raises(LLMFailureException, match="connection_error"):
        await decided(reasoner)


async def test_the_prompt_is_the_contracts() -> None:
    assert build_reasoner_prompt(
        "Ada", ["tea", "chess"], "curious", AgentState.EVALUATING, "decides", OPTIONS, None
    ).strip() == (
        "You are Ada, a social media user.\n\n"
        "Your interests: tea, chess\n"
        "Your personality: curious\n\n"
        'You are currently in the "evaluating" state and received the "decides" event.\n\n'
        "\n\n"
        "Choose your next state from these options:\n"
        "- composing: Write a response or original content\n"
        "- scrolling: Continue browsing without engaging\n\n"
        "Respond with JSON only:\n"
        '{"next_state": "<state_value>"}'
    )


async def test_the_prompt_quotes_the_post() -> None:
    reasoner, backend = reasoner_with('{"next_state": "scrolling"}')
    await decided(reasoner)
    assert 'You see a post by Bob (about tea):\n"Tea is best cold"' in backend.requests[0].prompt


async def test_the_model_is_held_to_the_legal_options() -> None:
    reasoner, backend = reasoner_with('{"next_state": "scrolling"}')
    await decided(reasoner)
    schema = backend.requests[0].schema
    assert schema is not None
    assert schema["properties"]["next_state"] == {"enum": ["composing", "scrolling"]}


def test_every_state_has_a_description() -> None:
    assert set(STATE_DESCRIPTIONS) == set(AgentState)


def test_a_response_is_parsed_whatever_its_letters_case() -> None:
    assert parse_reasoner_response('{"next_state": "Scrolling"}', OPTIONS) is AgentState.SCROLLING


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"next_state": 3}', '"scrolling"'])
def test_a_response_of_another_form_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="Failed to parse Reasoner response"):
        parse_reasoner_response(text, OPTIONS)


def test_a_response_outside_the_options_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="Invalid state: resting"):
        parse_reasoner_response('{"next_state": "resting"}', OPTIONS)


async def test_a_batch_is_reasoned_about_concurrently_and_answered_in_order() -> None:
    backend = ScriptedBackend(
        lambda request: {"next_state": "composing" if "Ada" in request.prompt else "scrolling"}
    )
    reasoner = Reasoner(LLMClient(LLMConfig(retry_wait_s=0), backend))
    questions = [
        MoveQuestion(SocialAgent(name), AgentState.EVALUATING, "decides", OPTIONS)
        for name in ("Ada", "Bea", "Ada the Second")
    ]
    assert await reasoner.decide(questions) == ["composing", "scrolling", "composing"]
    assert len(backend.requests) == 3
