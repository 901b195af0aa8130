"""The client's promises: one retry where it may help, validation always, everything on record."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.models import PolicyDecision
from llmsim_lab.prompts import Prompt
from llmsim_lab.types import CallSite, ChatReply, ChatRequest

GOOD = {"action": "Raise the interest rate", "reasoning": "Prices rise fast.", "confidence": 0.8}
SITE = CallSite(component="agent", agent="Atlantis", turn=3)
BUSY = BackendError("busy", reason="server_error", status_code=503, retry=True)


def make_client(replies: Any, **settings: Any) -> tuple[LLMClient, ScriptedBackend]:
    backend = ScriptedBackend(replies)
    config = LLMConfig(**{"model": "test", "retry_wait_s": 0, **settings})
    return LLMClient(config, backend), backend


async def ask(client: LLMClient, prompt: str = "What now?", **more: Any) -> PolicyDecision:
    return await client.call_with_retry(
        prompt=prompt, response_model=PolicyDecision, **{"site": SITE, **more}
    )


async def failure_of(client: LLMClient, **more: Any) -> LLMFailureException:
    with pytest.raises(LLMFailureException) as caught:
        await ask(client, **more)
    return caught.value


async def test_a_valid_reply_becomes_a_decision_with_its_provenance() -> None:
    reply = ChatReply(
        text=PolicyDecision(**GOOD).model_dump_json(), prompt_tokens=120, reply_tokens=30
    )
    client, _ = make_client([reply])
    decision = await ask(client)
    assert decision == PolicyDecision(**GOOD)
    assert decision.call is not None
    assert decision.call.status == "ok"
    assert decision.call.attempts == 1
    assert decision.call.tokens == 150
    assert decision.call.reply is reply
    assert decision.call.request.site == SITE


async def test_every_option_reaches_the_backend() -> None:
    client, backend = make_client(
        GOOD, temperature=0.3, seed=7, num_ctx=2048, max_tokens=99, options={"top_p": 0.5}
    )
    await ask(client)
    assert dict(backend.requests[0].options) == {
        "temperature": 0.3,
        "seed": 7,
        "num_ctx": 2048,
        "num_predict": 99,
        "top_p": 0.5,
    }


async def test_a_rendered_prompt_goes_out_as_system_and_user_message() -> None:
    client, backend = make_client(GOOD)
    prompt = Prompt("State: {{ x }}", system="You advise.").render(x=1)
    await ask(client, prompt=prompt)
    assert [(m.role, m.content) for m in backend.requests[0].messages] == [
        ("system", "You advise."),
        ("user", "State: 1"),
    ]


async def test_the_schema_bounds_texts_and_offers_a_grid_of_confidences() -> None:
    client, backend = make_client(GOOD, max_text_chars=80)
    await ask(client)
    schema = backend.requests[0].schema
    assert schema is not None
    assert schema["properties"]["reasoning"]["maxLength"] == 80
    assert schema["properties"]["confidence"]["enum"][:3] == [0.0, 0.05, 0.1]
    assert schema["required"] == ["action", "reasoning", "confidence"]


async def test_choices_for_a_field_that_is_not_there_are_an_error_naming_it() -> None:
    client, _ = make_client(GOOD)
    with pytest.raises(ConfigError, match="'rate', which PolicyDecision lacks"):
        await ask(client, choices={"rate": (1, 2)})


@pytest.mark.parametrize(
    ("fault", "reason", "status_code"),
    [
        (TimeoutError(), "timeout", None),
        (ConnectionError("refused"), "connection_error", None),
        (BUSY, "server_error", 503),
    ],
)
async def test_a_passing_fault_is_retried_exactly_once(
    fault: Exception, reason: str, status_code: int | None
) -> None:
    client, backend = make_client([fault, GOOD])
    decision = await ask(client)
    assert decision.call is not None
    assert decision.call.attempts == 2
    assert decision.call.status == "ok"
    assert decision.call.history[0].reason == reason
    assert backend.requests[0].messages == backend.requests[1].messages
    assert [request.attempt for request in backend.requests] == [1, 2]

    client, backend = make_client([fault, fault, GOOD])
    failure = await failure_of(client)
    assert (failure.reason, failure.attempts, failure.status_code) == (reason, 2, status_code)
    assert failure.component == "agent"
    assert len(backend.requests) == 2


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            BackendError("wrong option type", reason="client_error", status_code=500),
            "client_error",
        ),
        (BackendError("too long", reason="context_overflow", status_code=400), "context_overflow"),
    ],
)
async def test_a_fault_of_the_request_itself_is_not_retried(fault: Exception, reason: str) -> None:
    client, backend = make_client([fault, GOOD])
    failure = await failure_of(client)
    assert (failure.reason, failure.attempts) == (reason, 1)
    assert len(backend.requests) == 1


async def test_a_reply_whose_content_is_rejected_is_repaired_or_handed_over() -> None:
    def check(decision: PolicyDecision) -> str | None:
        return None if "rate" in decision.action else "say something about rates"

    off_topic = {**GOOD, "action": "Sing"}
    client, backend = make_client([off_topic, GOOD])
    decision = await ask(client, check=check)
    assert decision.action == GOOD["action"]
    assert "say something about rates" in backend.requests[1].messages[-1].content

    client, _ = make_client([off_topic, off_topic])
    failure = await failure_of(client, check=check)
    assert failure.rejected == PolicyDecision(**off_topic)


async def test_a_slow_reply_times_out_and_is_stopped() -> None:
    stopped = 0

    async def hang(_: ChatRequest) -> str:
        nonlocal stopped
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            stopped += 1
            raise
        return ""

    client, _ = make_client(hang, timeout_s=0.05)
    failure = await failure_of(client)
    assert (failure.reason, failure.attempts) == ("timeout", 2)
    assert "0.05 s" in str(failure)
    assert stopped == 2


async def test_a_failed_call_logs_one_error_line(caplog: pytest.LogCaptureFixture) -> None:
    client, _ = make_client([BUSY] * 2)
    await failure_of(client)
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(lines) == 1
    assert lines[0].startswith("LLM_FAILURE component=agent agent=Atlantis turn=3")
    assert "reason=server_error attempts=2 status_code=503" in lines[0]


async def test_a_bug_in_a_backend_is_not_hidden_behind_a_model_failure() -> None:
    client, backend = make_client([KeyError("oops")])
    with pytest.raises(KeyError, match="oops"):
        await ask(client)
    assert len(backend.requests) == 1


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    in_flight = highest = 0

    async def answer(_: ChatRequest) -> dict[str, Any]:
        nonlocal in_flight, highest
        in_flight += 1
        highest = max(highest, in_flight)
        await asyncio.sleep(0.001)
        in_flight -= 1
        return GOOD

    client, _ = make_client(answer, max_concurrency=3)
    await asyncio.gather(*[ask(client) for _ in range(20)])
    assert highest == 3


def test_one_client_serves_several_event_loops_at_once() -> None:
    client, backend = make_client(GOOD, max_concurrency=1)

    def work() -> None:
        async def many() -> None:
            await asyncio.gather(*[ask(client) for _ in range(5)])

        asyncio.run(many())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(backend.requests) == 15


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "greater than or equal to 0"),
        ({"retry_wait_s": (5, 1)}, "0 <= shortest <= longest"),
        ({"max_tokens": 4096}, "leaves no room for a prompt"),
        ({"options": {"seed": 3}}, "options must not name seed"),
        ({"timeout_s": 0}, "greater than 0"),
        ({"tempreature": 1}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_settings_are_rejected_with_the_reason(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LLMConfig(**settings)


async def test_a_backend_of_ones_own_needs_only_chat() -> None:
    class Mine:
        async def chat(self, request: ChatRequest) -> ChatReply:
            return ChatReply(text=PolicyDecision(**GOOD).model_dump_json())

    async with LLMClient(LLMConfig(model="mine"), Mine()) as client:  # type: ignore[arg-type]
        assert (await ask(client)).action == GOOD["action"]
        info = await client.model_info()
    assert (info.name, info.backend) == ("mine", "Mine")


async def test_a_backend_that_answers_with_something_else_learns_what_is_wanted() -> None:
    class Mine:
        async def chat(self, request: ChatRequest) -> str:
            return "Hold"

    client = LLMClient(LLMConfig(model="mine"), Mine())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Mine.chat returned str; it must return ChatReply"):
        await ask(client)


async def test_whole_and_decimal_limits_of_one_field_are_told_apart() -> None:
    class Gift(BaseModel):
        amount: float

    client, backend = make_client({"amount": 3})
    for limits in ((0, 20), (0.0, 20.0)):
        await client.call_with_retry(
            prompt="How much?", response_model=Gift, limits={"amount": limits}
        )
    whole, decimal = (json.dumps(request.schema) for request in backend.requests)
    assert ('"maximum": 20}' in whole, '"maximum": 20.0}' in decimal) == (True, True)


async def test_a_client_with_other_settings_shares_what_is_known_of_the_server() -> None:
    client, backend = make_client(GOOD)
    other = client.with_config(client.config.model_copy(update={"seed": 5}))
    await ask(other)
    assert other.limits is client.limits
    assert backend.requests[0].options["seed"] == 5
    fixed = client.with_config(client.config.model_copy(update={"max_concurrency": 7}))
    assert (fixed.limits.at_once, client.limits.at_once) == (7, 1)
