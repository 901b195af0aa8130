"""A person in a model's place: requests wait, answers may come from anywhere."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import pytest
from client_kit import GOOD, decide, failure_of
from pydantic import BaseModel, Field, TypeAdapter

from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import Person
from llmsim_lab.llm.extract import parse_reply
from llmsim_lab.llm.fields import typed_value
from llmsim_lab.llm.human import AnswerError, OpenQuestion, human_client
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import ChatRequest, Reply


def ask(person: Person, **more: Any) -> asyncio.Task[PolicyDecision]:
    return asyncio.create_task(decide(human_client(person), **more))


FIELDS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "whole": ({"type": "integer", "minimum": 1, "maximum": 9}, "3", 3),
    "share": ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "0,5", 0.5),
    "sure": ({"type": "boolean"}, "no", False),
    "side": ({"$ref": "#/$defs/Side"}, "left", "left"),
    "rate": ({"enum": [1.0, 1.25]}, "1.25 %", 1.25),
    "fixed": ({"const": "a"}, "a", "a"),
    "label": ({"enum": ["1,000", 5]}, "1,000", "1,000"),
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
    assert question.value("maybe", "") is None


@pytest.mark.parametrize(
    ("name", "typed", "fault"),
    [
        ("whole", "10", "is 10; it must be a whole number from 1 to 9"),
        ("share", "inf", "is inf; it must be a number above 0 and below 1"),
        ("whole", "1_0", "is '1_0'; it must be a whole number from 1 to 9"),
        ("whole", "17,200", "is '17,200', which may be 17200 or 17.2; write 17200 or 17.2"),
        ("share", "-1.234", "is '-1.234', which may be -1234 or -1.234; write -1234 or -1.2340"),
        ("maybe", "1.000 %", "is '1.000 %', which may be 1000 or 1; write 1000 or 1"),
        ("rate", "1,250", "is '1,250', which may be 1250 or 1.25; write 1250 or 1.25"),
        ("sure", "maybe", "is 'maybe'; it must be yes or no"),
        ("rate", "2", "is 2; it must be one of 1, 1.25"),
        ("words", "too long", "is 'too long'; it must be a text of at most 5 characters"),
        ("words", " ", "is missing"),
        ("mode", "some", "is 'some'; it must be one of True, False, shared"),
    ],
)
def test_what_is_typed_wrongly_is_reported_with_what_is_right(
    name: str, typed: str, fault: str
) -> None:
    question = question_of(SCHEMA)
    assert question.faults({**READ, name: question.value(name, typed)}) == {name: fault}


def test_a_field_that_is_not_asked_for_or_of_another_type_is_a_fault() -> None:
    faults = question_of(SCHEMA).faults(READ | {"mood": "good", "words": 7, "either": -1})
    assert faults.pop("mood") == "there is no such field"
    assert faults.pop("either") == "is -1; it must be a text or a whole number of at least 0"
    assert faults == {"words": "is 7; it must be a text of at most 5 characters"}


def judged_by(reply: type[Reply]) -> OpenQuestion:
    """Return a question whose answer is judged by a reply's class, as a run's are."""
    request = ChatRequest(model="human", messages=(), schema=reply.model_json_schema())
    may_lack = frozenset(Reply.model_fields)
    return OpenQuestion(request, lambda it: parse_reply(it.text, reply, may_lack=may_lack))


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ('[{"to": "Bob", "coins": 3}]', None),
        ("[]", "List should have at least 1 item after validation, not 0 (it is [])"),
        ('[{"to": "Bob"}]', "0.coins is missing"),
        (
            '[{"to": "Bob", "coins": 9}]',
            "0.coins: Input should be less than or equal to 5 (it is 9)",
        ),
        ("some", "is 'some'; it must be a list, as in JSON"),
    ],
)
def test_what_a_list_holds_is_judged_by_the_class_of_the_reply(
    typed: str, fault: str | None
) -> None:
    class Gift(BaseModel):
        to: str
        coins: int = Field(ge=0, le=5)

    class Gifts(Reply):
        gifts: list[Gift] = Field(min_length=1)

    question = judged_by(Gifts)
    assert question.faults({"gifts": question.value("gifts", typed)}).get("gifts") == fault


def test_a_union_with_a_discriminator_is_judged() -> None:
    class House(BaseModel):
        kind: Literal["house"]
        rooms: int

    class Boat(BaseModel):
        kind: Literal["boat"]
        sails: int

    class Order(Reply):
        home: House | Boat = Field(discriminator="kind")

    question = judged_by(Order)
    assert question.faults({"home": {"kind": "house", "rooms": 2}}) == {}
    assert question.faults({"home": {"kind": "boat", "sails": 2}}) == {}
    assert question.faults({"home": {"kind": "house"}}) == {"home": "house.rooms is missing"}


def test_what_can_be_one_number_only_is_read() -> None:
    question = question_of(
        SCHEMA | {"properties": {**SCHEMA["properties"], "fee": {"enum": [1.125]}}}
    )
    read = [question.value("share", typed) for typed in ("0.125", "1.2340", "1000")]
    assert read == [0.125, 1.234, 1000]
    assert question.value("words", "1,000") == "1,000"
    assert typed_value("1.125", {"enum": [1.125]}) == 1.125  # as it is shown


async def test_a_number_that_may_be_two_is_not_taken_from_code_either() -> None:
    person = Person()
    task = ask(person)
    question = await person.asked()
    with pytest.raises(ConfigError, match=r"confidence is '1.000', which may be 1000 or 1; write"):
        person.answer(question, GOOD | {"confidence": "1.000"})
    person.answer(question, GOOD)
    assert (await task).action == GOOD["action"]


@pytest.mark.parametrize(
    ("kind", "fares", "place"),
    [
        (dict[str, list[float]], {"Rome": ["1.000"]}, r"fares\.Rome\.0"),
        (list[tuple[str, float]], [["Rome", "1.000"]], r"fares\.0\.1"),
        (float | None, "1.000", "fares"),
    ],
)
@pytest.mark.parametrize("written", [dict, json.dumps])
def test_nor_inside_lists_and_objects_and_texts(
    kind: Any, fares: Any, place: str, written: Any
) -> None:
    question = question_of({"properties": {"fares": TypeAdapter(kind).json_schema()}})
    with pytest.raises(ConfigError, match=rf"{place} is '1.000', which may be 1000 or 1; write"):
        question.reply(written({"fares": fares}))


class AtTheDoor:
    async def __call__(self, question: OpenQuestion) -> Any:
        await asyncio.sleep(0)
        return GOOD | {"action": question.agent}


async def answered(question: OpenQuestion, *, more: str = "") -> Any:
    return await AtTheDoor()(question)


@pytest.mark.parametrize(
    "asks",
    [
        answered,
        AtTheDoor(),
        AtTheDoor().__call__,
        partial(answered, more="?"),
        lambda question: answered(question),
    ],
)
async def test_what_asks_may_return_anything_that_can_be_awaited(asks: Any) -> None:
    assert (await ask(Person(asks))).action == "Aland"


async def test_what_asks_asynchronously_and_fails_or_is_stopped_says_so() -> None:
    async def away(question: OpenQuestion) -> Any:
        raise OSError("the door is closed")

    with pytest.raises(OSError, match="the door is closed"):
        await ask(Person(away))
    nobody: Iterator[Any] = iter(())
    # Not as it is: no future can hold it, and the run would wait for ever.
    with pytest.raises(RuntimeError, match=r"the function raised StopIteration, as next\(\) does"):
        await ask(Person(lambda _: next(nobody)))
    asked = asyncio.Event()

    async def out(question: OpenQuestion) -> Any:
        asked.set()
        await asyncio.Event().wait()

    task = ask(Person(out))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConfigError, match=r"ask=3.*cannot be called; give a function"):
        Person(3)  # type: ignore[arg-type]


async def test_a_request_waits_for_its_answer() -> None:
    person = Person()
    task = ask(person)
    question = await person.asked()
    assert (question.agent, question.turn, question.complaint) == ("Aland", 1, "")
    assert not task.done()
    person.answer(question, GOOD)
    decision = await task
    assert decision.call is not None
    assert (decision.action, decision.call.status) == (GOOD["action"], "ok")
    assert person.questions == ()


async def test_an_answer_that_the_reply_class_refuses_is_not_sent_and_can_be_given_again() -> None:
    person = Person()
    task = ask(person, check=lambda d: "say more" if d.action == GOOD["action"] else None)
    question = await person.asked()
    assert question.faults(GOOD) == {"": "say more"}
    for wrong, fault in [
        (GOOD, "say more"),
        ("Raise it.", "there is no JSON object in it"),
        (GOOD | {"confidence": 2}, "confidence Input should be less than or equal to 1"),
    ]:
        with pytest.raises(AnswerError, match=f"the answer of Aland was not sent: .*{fault}"):
            person.answer(question, wrong)
    person.answer(question, GOOD | {"action": "Raise the rate to 4 %"})
    decision = await task
    assert decision.call is not None
    assert (decision.call.status, decision.call.attempts) == ("ok", 1)


async def test_what_a_function_answers_wrongly_is_asked_again_with_what_was_wrong() -> None:
    complaints = list[str]()

    def answer(question: OpenQuestion) -> Any:
        complaints.append(question.complaint)
        return GOOD if question.complaint else "Raise it."

    assert (await ask(Person(answer))).action == GOOD["action"]
    assert complaints == ["", "the reply is not valid JSON: there is no JSON object in it."]


async def test_people_may_leave_out_their_reasons_and_how_sure_they_are() -> None:
    person = Person()
    task = ask(person)
    person.answer(await person.asked(), {"action": "Hold the rate"})
    decision = await task
    assert (decision.reasoning, decision.confidence) == ("", None)


async def test_stopping_takes_the_question_away() -> None:
    person = Person()
    task = ask(person)
    question = await person.asked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert person.questions == ()
    with pytest.raises(ConfigError, match="question to Aland of turn 1 is closed"):
        person.answer(question, GOOD)


async def test_a_person_who_does_not_answer_in_time_is_not_asked_again() -> None:
    failure = await failure_of(human_client(Person(timeout_s=0.01)))
    assert (failure.reason, failure.attempts) == ("timeout", 1)
    assert failure.detail == "Aland did not answer within 0.01 s"


async def test_a_question_that_is_given_up_ends_at_once() -> None:
    person = Person()
    task = ask(person)
    question = await person.asked()
    person.give_up(question, "Aland has left")
    with pytest.raises(LLMFailureException, match="Aland has left"):
        await task
    with pytest.raises(ConfigError, match="is closed"):
        person.give_up(question, "Aland has left")


async def test_a_function_that_asks_may_wait_without_holding_up_the_loop() -> None:
    asked, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def at_the_keyboard(question: OpenQuestion) -> Any:
        loop.call_soon_threadsafe(asked.set)
        go_on.wait()
        return GOOD | {"action": question.agent}

    task = ask(Person(at_the_keyboard))
    await asked.wait()
    go_on.set()
    assert (await task).action == "Aland"


async def test_where_nobody_listens_the_log_says_once_how_to_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    person = Person()
    for _ in range(2):
        task = ask(person)
        person.answer(await person.asked(), GOOD)
        await task
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("WAITING_FOR_A_PERSON agent=Aland turn=1")
    assert "HumanSeat(simulation)" in line


async def test_a_listener_hears_of_questions_until_it_is_taken_off() -> None:
    person, heard, counts = Person(), list[int](), list[int]()
    stop = person.listen(lambda: heard.append(len(person.questions)))
    for _ in range(2):
        task = ask(person)
        person.answer(await person.asked(), GOOD)
        await task
        stop()
        counts.append(len(heard))
    assert (heard[0], heard[-1]) == (1, 0)
    assert counts[0] == counts[1]
