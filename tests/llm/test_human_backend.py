"""A person in a model's place: requests wait, answers may come from anywhere."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field

from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.llm._human import OpenQuestion, human_client
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import CallSite, ChatRequest

GOOD = {"action": "Hold the rate", "reasoning": "All is calm.", "confidence": 0.8}


def person_of(client: LLMClient) -> Person:
    assert isinstance(client.backend, Person)
    return client.backend


def ask(client: LLMClient, **more: Any) -> asyncio.Task[PolicyDecision]:
    site = CallSite(component="agent", agent="Aland", turn=3)
    call = client.call_with_retry(
        prompt="What now?", response_model=PolicyDecision, site=site, **more
    )
    return asyncio.create_task(call)


FIELDS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "whole": ({"type": "integer", "minimum": 1, "maximum": 9}, "3", 3),
    "share": ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "0,5", 0.5),
    "sure": ({"type": "boolean"}, "no", False),
    "side": ({"$ref": "#/$defs/Side"}, "left", "left"),
    "rate": ({"enum": [1.0, 1.25]}, "1.25 %", 1.25),
    "fixed": ({"const": "a"}, "a", "a"),
    "words": ({"type": "string", "maxLength": 5}, "12", "12"),
    "parts": ({"type": "array"}, "[1]", [1]),
    "maybe": ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "4", 4),
    "either": ({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}, "5", 5),
    "mode": ({"anyOf": [{"type": "boolean"}, {"const": "shared"}]}, "shared", "shared"),
}
"""By name: the schema, what is typed, and the value that it is read as."""
SCHEMA = {
    "properties": {name: schema for name, (schema, _, _) in FIELDS.items()},
    "$defs": {"Side": {"enum": ["left", "right"]}},
}
READ = {name: value for name, (_, _, value) in FIELDS.items()}


def question_of(schema: dict[str, Any]) -> OpenQuestion:
    return OpenQuestion(ChatRequest(model="human", messages=(), schema=schema))


def test_what_is_typed_is_read_by_the_type_of_its_field() -> None:
    question = question_of(SCHEMA)
    read = {name: question.value(name, typed) for name, (_, typed, _) in FIELDS.items()}
    assert read == READ
    assert question.faults(read) == {}
    assert question.faults({**read, "maybe": None}) == {}


@pytest.mark.parametrize(
    ("name", "typed", "fault"),
    [
        ("whole", "2.5", "is 2.5; it must be a whole number from 1 to 9"),
        ("whole", "10", "is 10; it must be a whole number from 1 to 9"),
        ("share", "0", "is 0; it must be a number above 0 and below 1"),
        ("share", "inf", "is inf; it must be a number above 0 and below 1"),
        ("sure", "maybe", "is 'maybe'; it must be yes or no"),
        ("side", "up", "is 'up'; it must be one of left, right"),
        ("rate", "2", "is 2; it must be one of 1, 1.25"),
        ("words", "too long", "is 'too long'; it must be a text of at most 5 characters"),
        ("words", " ", "is missing"),
        ("parts", "one", "is 'one'; it must be a list, as in JSON"),
        ("mode", "some", "is 'some'; it must be one of True, False, shared"),
    ],
)
def test_what_is_typed_wrongly_is_reported_with_what_is_right(
    name: str, typed: str, fault: str
) -> None:
    question = question_of(SCHEMA)
    assert question.faults({**READ, name: question.value(name, typed)}) == {name: fault}


def test_a_field_of_several_types_takes_each() -> None:
    two: list[dict[str, Any]] = [{"type": "integer", "minimum": 0}, {"type": "boolean"}]
    question = question_of({"properties": {"either": {"anyOf": two}}})
    assert [question.value("either", said) for said in ("5", "yes")] == [5, True]
    fault = "is -1; it must be a whole number of at least 0 or yes or no"
    assert question.faults({"either": -1}) == {"either": fault}


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ('[{"to": "Bob", "coins": 3}]', None),
        ("[]", "[] should be non-empty"),
        ('[{"to": "Bob"}]', "at 0: 'coins' is a required property"),
        ('[{"to": "Bob", "coins": 9}]', "at 0.coins: 9 is greater than the maximum of 5"),
    ],
)
def test_what_a_list_holds_is_judged_too(typed: str, fault: str | None) -> None:
    class Gift(BaseModel):
        to: str
        coins: int = Field(ge=0, le=5)

    class Gifts(BaseModel):
        gifts: list[Gift] = Field(min_length=1)

    question = question_of(Gifts.model_json_schema())
    assert question.faults({"gifts": question.value("gifts", typed)}).get("gifts") == fault


async def test_a_request_waits_for_its_answer() -> None:
    client = human_client(Person())
    task = ask(client)
    question = await person_of(client).asked()
    assert (question.agent, question.turn, question.complaint) == ("Aland", 3, "")
    assert not task.done()
    person_of(client).answer(question, GOOD)
    decision = await task
    assert decision.action == "Hold the rate"
    assert decision.call is not None
    assert decision.call.status == "ok"
    assert person_of(client).questions == ()


async def test_an_invalid_answer_comes_back_with_what_was_wrong() -> None:
    client = human_client(Person())
    task = ask(client, check=lambda d: "say more" if d.action == "Hold the rate" else None)
    person = person_of(client)
    person.answer(await person.asked(), GOOD)
    second = await person.asked()
    assert second.complaint == "say more."
    person.answer(second, GOOD | {"action": "Hold the rate at 4 %"})
    decision = await task
    assert decision.call is not None
    assert decision.call.status == "repaired"


async def test_stopping_takes_the_question_away() -> None:
    client = human_client(Person())
    task = ask(client)
    question = await person_of(client).asked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert person_of(client).questions == ()
    with pytest.raises(ConfigError, match="question to Aland of turn 3 waits for no answer"):
        person_of(client).answer(question, GOOD)


async def test_nobody_answering_in_time_is_a_timeout() -> None:
    task = ask(human_client(Person(timeout_s=0.01)))
    with pytest.raises(LLMFailureException) as caught:
        await task
    assert caught.value.reason == "timeout"


async def test_a_function_that_asks_may_wait_without_holding_up_the_loop() -> None:
    asked, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen: list[OpenQuestion] = []

    def at_the_keyboard(question: OpenQuestion) -> Any:
        seen.append(question)
        loop.call_soon_threadsafe(asked.set)
        go_on.wait()
        return GOOD

    task = ask(human_client(Person(at_the_keyboard)))
    await asked.wait()
    go_on.set()
    assert (await task).action == "Hold the rate"
    assert seen[0].agent == "Aland"


async def test_where_nobody_listens_the_log_says_once_how_to_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = human_client(Person())
    person = person_of(client)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            task = ask(client)
            await asyncio.sleep(0.01)
            person.answer(person.questions[0], GOOD)
            await task
    [record] = caplog.records
    assert record.getMessage().startswith("WAITING_FOR_A_PERSON agent=Aland turn=3")
    assert "HumanSeat(simulation)" in record.getMessage()


async def test_a_listener_hears_of_questions_until_it_is_taken_off() -> None:
    client = human_client(Person())
    person = person_of(client)
    heard: list[int] = []
    stop = person.listen(lambda: heard.append(len(person.questions)))
    task = ask(client)
    person.answer(await person.asked(), GOOD)
    await task
    assert heard[0] == 1
    assert heard[-1] == 0
    stop()
    stop()
    count = len(heard)
    task = ask(client)
    person.answer(await person.asked(), GOOD)
    await task
    assert len(heard) == count


@pytest.mark.parametrize(
    ("changes", "field", "fault"),
    [
        ({"action": "  "}, "action", "is missing"),
        ({"action": 7}, "action", "is 7; it must be a text"),
        ({"action": "x" * 2_001}, "action", "is 'xxx"),
        ({"confidence": 0.83}, "confidence", "is 0.83; it must be one of 0, 0.05, 0.1"),
        ({"mood": "good"}, "mood", "there is no such field"),
    ],
)
async def test_a_question_says_what_is_wrong_with_an_answers_form(
    changes: dict[str, Any], field: str, fault: str
) -> None:
    client = human_client(Person())
    task = ask(client)
    question = await person_of(client).asked()
    assert question.faults(GOOD) == {}
    assert question.faults(GOOD | changes)[field].startswith(fault)
    person_of(client).answer(question, GOOD)
    await task
