"""What is said of calls under way."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_config, second_by_second

from llmsim_lab.lab._stepper import Playing, waiting_text
from llmsim_lab.llm._scope import InFlight
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message


def request(agent: str, **fields: Any) -> ChatRequest:
    site = CallSite(component="agent", agent=agent, turn=1)
    return ChatRequest(model="m", messages=(Message("user", "?"),), site=site, **fields)


def answered(asked: ChatRequest) -> Attempt:
    reply = ChatReply(text="!", prompt_tokens=1000, reply_tokens=200)
    return Attempt(request=asked, reply=reply, seconds=1.0)


def test_nothing_is_said_while_nothing_is_asked() -> None:
    assert waiting_text(InFlight()) == ""


def test_calls_waited_for_are_named_and_many_are_counted() -> None:
    calls = InFlight()
    asked = [request(f"Nation {number}") for number in range(5)]
    for each in asked:
        calls.began(each)
    assert waiting_text(calls) == (
        "waiting 0 s for agent of Nation 0, agent of Nation 1, agent of Nation 2 and 2 more"
    )


def test_what_was_answered_what_failed_and_what_came_from_the_tape_is_counted() -> None:
    calls = InFlight()
    first, second = request("Aland"), request("Aland", attempt=2)
    calls.began(first)
    calls.ended(first, None, taped=False)
    calls.ended(second, answered(second), taped=True)
    calls.began(second)
    assert waiting_text(calls) == (
        "waiting 0 s for agent of Aland (second attempt) · "
        "2 answered (1 from the tape), 1 failed, 1,200 tokens"
    )


def test_an_untrusted_name_cannot_steer_the_page() -> None:
    calls = InFlight()
    calls.began(request("A\x1b[31m\u202eland" + "d" * 1000))
    said = waiting_text(calls)
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert len(said) < 120


def test_its_seconds_are_those_since_it_was_called_last(monkeypatch: pytest.MonkeyPatch) -> None:
    second_by_second(monkeypatch)
    run = Simulation(make_config())
    playing = Playing(run, 1, on_tick=lambda _: None, on_turn=lambda _: None)
    assert [playing.seconds, playing.seconds] == [1, 2]
