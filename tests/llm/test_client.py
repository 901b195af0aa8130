"""The client's promises: one retry where it may help, validation always, everything on record."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from builders import make_client, requests_of
from client_kit import GOOD, SITE, decide, decided, failure_of, say
from pydantic import BaseModel

from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.llm.scope import scoped
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import ChatReply, ChatRequest, Message, ToolCall

BUSY = BackendError("busy", reason="server_error", status_code=503, retry=True)


async def test_a_valid_reply_becomes_a_decision_with_its_provenance() -> None:
    reply = ChatReply(text=json.dumps(GOOD), prompt_tokens=120, reply_tokens=30)
    decision = await decide(make_client([reply]))
    assert decision == PolicyDecision(**GOOD)
    assert decision.call is not None
    assert (decision.call.status, decision.call.attempts, decision.call.tokens) == ("ok", 1, 150)
    assert (decision.call.reply, decision.call.request.site) == (reply, SITE)


async def test_choices_for_a_field_that_is_not_there_are_an_error_naming_it() -> None:
    with pytest.raises(ConfigError, match="'rate', which PolicyDecision lacks"):
        await decide(make_client(GOOD), choices={"rate": (1, 2)})


async def test_whole_and_decimal_limits_of_one_field_are_told_apart() -> None:
    class Gift(BaseModel):
        amount: float

    client = make_client({"amount": 3})
    for limits in ((0, 20), (0.0, 20.0)):
        await decide(client, response_model=Gift, limits={"amount": limits})
    whole, decimal = (json.dumps(request.schema) for request in requests_of(client))
    assert ('"maximum": 20}' in whole, '"maximum": 20.0}' in decimal) == (True, True)


# The second request


@pytest.mark.parametrize(
    ("fault", "reason", "attempts"),
    [
        (TimeoutError(), "timeout", 2),
        (ConnectionError("refused"), "connection_error", 2),
        (BUSY, "server_error", 2),
        (BackendError("wrong", reason="client_error", status_code=500), "client_error", 1),
        (BackendError("long", reason="context_overflow", status_code=400), "context_overflow", 1),
    ],
)
async def test_a_passing_fault_is_retried_once_and_one_of_the_request_itself_is_not(
    fault: Exception, reason: str, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    if attempts == 2:
        client = make_client([fault, GOOD])
        call = await decided(client)
        assert (call.attempts, call.status, call.history[0].reason) == (2, "ok", reason)
        first, second = requests_of(client)
        assert second == replace(first, attempt=2)
    client = make_client([fault, fault, GOOD])
    failure = await failure_of(client)
    status = getattr(fault, "status_code", None)
    assert (failure.reason, failure.attempts, failure.status_code) == (reason, attempts, status)
    assert (failure.component, len(requests_of(client))) == ("agent", attempts)
    [line] = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert line.startswith("LLM_FAILURE component=agent agent=Aland turn=1")
    assert f"reason={reason} attempts={attempts}" in line


AGAIN = "Reply again with one complete JSON object of the required form and nothing else."
NO_JSON = "the reply is not valid JSON: there is no JSON object in it"
WRONG = json.dumps(GOOD | {"confidence": 1.2})
LONG = " ".join([WRONG, *[f"point {number}," for number in range(200)]])
COMPLAINT = "confidence: Input should be less than or equal to 1 (it is 1.2)."


@pytest.mark.parametrize(
    ("reply", "shown", "told"),
    [
        (WRONG, WRONG, f"That reply was not valid: {COMPLAINT}\n"),
        (
            ChatReply(text=LONG, done_reason="length"),
            LONG[:400].rstrip() + " …",
            "That reply was too long and was cut off. Be brief.\n",
        ),
    ],
    ids=["invalid", "cut by the limit of tokens"],
)
async def test_an_invalid_reply_is_shown_with_what_was_wrong(
    reply: Any, shown: str, told: str
) -> None:
    client = make_client([reply, GOOD])
    assert (await decided(client)).status == "repaired"
    first, second = requests_of(client)
    after = (*first.messages, Message("assistant", shown), Message("user", told + AGAIN))
    assert second == replace(first, messages=after, attempt=2)


async def test_a_reply_whose_content_is_rejected_is_repaired_or_handed_over() -> None:
    def check(decision: PolicyDecision) -> str | None:
        return None if "rate" in decision.action else "say something about rates"

    off_topic = {**GOOD, "action": "Sing"}
    client = make_client([off_topic, GOOD])
    assert (await decide(client, check=check)).action == GOOD["action"]
    assert "say something about rates" in requests_of(client)[1].messages[-1].content
    failure = await failure_of(make_client([off_topic, off_topic]), check=check)
    assert failure.rejected == PolicyDecision(**off_topic)


async def test_of_two_faults_the_last_is_reported_and_one_of_both_once() -> None:
    client = make_client([WRONG, "I would rather not."])
    who = "agent of Aland in turn 1"
    assert str(await failure_of(client)) == f"{who}: invalid_response after 2 attempts: {NO_JSON}"
    full = ChatReply(text="I would", done_reason="length", prompt_tokens=950, reply_tokens=74)
    said = str(await failure_of(make_client([full, full], num_ctx=1024)))
    assert "cut off after 74 tokens, the prompt having 950 (max_tokens=512, num_ctx=1024)" in said
    assert f"ask for less ({NO_JSON})" in said
    full = ChatReply(text="I would", done_reason="length")
    assert "the reply was cut off (max_" in str(await failure_of(make_client([full, full])))


async def test_a_bug_in_a_backend_is_not_hidden_behind_a_model_failure() -> None:
    client = make_client([KeyError("oops")])
    with pytest.raises(KeyError, match="oops"):
        await decide(client)
    assert len(requests_of(client)) == 1


# A conversation with tools


async def test_a_conversations_messages_tools_and_options_reach_the_backend() -> None:
    wants = ChatReply(text="", tool_calls=(ToolCall(name="look", arguments={"at": ["sky", 1]}),))
    talk = [Message("system", "Be brief."), Message("user", "What is up?")]
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    client = make_client([wants, "The sky."], seed=7)
    reply, call = await client.converse(
        talk,
        tools=[tool],
        options={"temperature": 0.0, "num_predict": 50},
        site=SITE,
        check=lambda reply: "say it in words" if reply.tool_calls else None,
    )
    assert (reply.text, call.status, call.attempts) == ("The sky.", "repaired", 2)
    first, second = requests_of(client)
    assert (first.messages, first.tools) == (tuple(talk), (tool,))
    assert (first.schema, first.site) == (None, SITE)
    assert first.options == {"temperature": 0.0, "seed": 7, "num_ctx": 4096, "num_predict": 50}
    assert second.messages[2:] == (
        Message("assistant", "", wants.tool_calls),
        Message("user", "That reply was not valid: say it in words.\nReply again."),
    )


# Limits of time


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits asked for, none of which is waited out."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return asked


@pytest.mark.parametrize(("wanted", "waited"), [(7.0, 7.0), (3_600.0, 30.0)])
async def test_the_server_is_given_the_time_it_asks_for_up_to_the_timeout(
    waits: list[float], wanted: float, waited: float
) -> None:
    busy = BackendError("busy", reason="rate_limited", retry=True, retry_after_s=wanted)
    _, call = await say(make_client([busy, "Hi"], retry_wait_s=(0.0, 5.0), timeout_s=30.0))
    assert (waits, call.attempts) == ([waited], 2)


async def hang(_: ChatRequest) -> str:
    await asyncio.sleep(60)
    return "too late"


async def test_a_slow_reply_times_out_and_is_stopped() -> None:
    stopped = []

    async def hang_and_note(request: ChatRequest) -> str:
        try:
            return await hang(request)
        finally:
            stopped.append(request)

    failure = await failure_of(make_client(hang_and_note, timeout_s=0.02))
    assert (failure.reason, failure.attempts, len(stopped)) == ("timeout", 2, 2)
    assert "0.02 s" in str(failure)


@pytest.mark.parametrize(("replies", "attempts"), [([hang], 1), ([ConnectionError(), hang], 2)])
async def test_a_call_is_given_up_at_the_callers_limit_and_not_made_again(
    replies: Any, attempts: int
) -> None:
    with scoped(deadline=time.monotonic() + 0.2):
        failure = await failure_of(make_client(replies, timeout_s=60.0))
    assert (failure.reason, failure.attempts) == ("timeout", attempts)
    assert "the caller waits no longer" in str(failure)
    assert failure.call is not None
    last = failure.call.history[-1]
    assert (last.reason, last.retry, last.reply) == ("timeout", False, None)


async def test_waiting_for_ones_turn_counts_for_the_callers_limit() -> None:
    client = make_client(hang, timeout_s=60.0, max_concurrency=1)
    first = asyncio.create_task(say(client))
    await asyncio.sleep(0)
    with scoped(deadline=time.monotonic() + 0.05):
        assert (await failure_of(client)).reason == "timeout"
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


# Settings and backends


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    in_flight, seen = 0, []

    async def answer(_: ChatRequest) -> dict[str, Any]:
        nonlocal in_flight
        in_flight += 1
        seen.append(in_flight)
        await asyncio.sleep(0.001)
        in_flight -= 1
        return GOOD

    client = make_client(answer, max_concurrency=3)
    await asyncio.gather(*[decide(client) for _ in range(20)])
    assert max(seen) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "greater than or equal to 0"),
        ({"retry_wait_s": (5, 1)}, "0 <= shortest <= longest"),
        ({"max_tokens": 4096}, "leaves no room for a prompt"),
        ({"options": {"seed": 3}}, "options must not name seed"),
        ({"timeout_s": 0}, "greater than 0"),
        *(
            ({"keep_alive": value}, f"keep_alive={value!r} is not a time: give seconds")
            for value in ("ten minutes", "", "-1", "10", "1d", "5 m", True, 1e10, [1])
        ),
        *(
            ({"think": value}, f"think={value!r} must be True, False or how long")
            for value in ("banana", "", "true", 1, None, ["low"])
        ),
        ({"tempreature": 1}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_settings_are_rejected_with_the_reason(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LLMConfig(**settings)


@pytest.mark.parametrize("value", [None, 0, -1, 1.5, "0", "10m", "-1m", "1h30m", ".5h", "100ms"])
def test_a_time_that_a_model_stays_loaded_is_sent_as_it_is(value: Any) -> None:
    assert LLMConfig(keep_alive=value).keep_alive == value


async def test_a_backend_of_ones_own_needs_only_chat_and_learns_what_is_wanted() -> None:
    class Mine:
        said: Any = ChatReply(text=json.dumps(GOOD))

        async def chat(self, request: ChatRequest) -> Any:
            return self.said

    async with LLMClient(LLMConfig(model="mine"), Mine()) as client:  # type: ignore[arg-type]
        assert (await decide(client)).action == GOOD["action"]
        info = await client.model_info()
        assert (info.name, info.backend) == ("mine", "Mine")
        Mine.said = "Hold"
        with pytest.raises(ConfigError, match=r"Mine.chat returned str; it must return ChatReply"):
            await decide(client)
        Mine.model_info = partial(asyncio.sleep, 30)  # type: ignore[attr-defined]
        silent = client.with_config(LLMConfig(model="mine", timeout_s=0.01))
        with pytest.raises(LLMFailureException, match=r"no reply within 0\.01 s; raise timeout_s"):
            await silent.model_info()


async def test_a_client_with_other_settings_shares_what_is_known_of_the_server() -> None:
    client = make_client(GOOD)
    other = client.with_config(client.config.model_copy(update={"seed": 5}))
    await decide(other)
    assert other.limits is client.limits
    assert requests_of(client)[0].options["seed"] == 5
    fixed = client.with_config(client.config.model_copy(update={"max_concurrency": 7}))
    assert (fixed.limits.at_once, client.limits.at_once) == (7, 8)
