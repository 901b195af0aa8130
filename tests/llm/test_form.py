"""The form of a reply in words: what it says, and when a model is told it."""

from __future__ import annotations

import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from builders import make_client, requests_of
from pydantic import UUID4, Base64Str, BaseModel, Field, create_model
from worlds import PublicGoods

from llmsim_lab import Reply, replay
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.types import ChatReply, ChatRequest, Message

OLD_WORDS = "Reply again with one complete JSON object of the required form and nothing else."


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """A place; this text is for people, not for models."""

    street: str
    floor: int = 0


class Branch(BaseModel):
    leaves: int
    branches: list[Branch]


class House(BaseModel):
    kind: Literal["house"]
    rooms: int


class Boat(BaseModel):
    kind: Literal["boat"]
    sails: Annotated[list[Place], Field(min_length=1)]


class Order(Reply):
    amount: int = Field(
        ge=0, le=20, title="Gift", description="coins for\n the pot.", examples=[7, 9]
    )
    price: Annotated[float, Field(gt=0, lt=1, multiple_of=0.1)]
    colour: Colour
    to: Place = Field(description="where it goes")
    by: Place
    tree: Branch | None
    home: House | Boat
    when: datetime.date
    shares: dict[str, int]
    pair: tuple[int, str]


TOLD = """\
Reply with one JSON object and nothing else. Its fields, in this order:
- "reasoning" (why, in one short sentence): a text of at most 30 characters
- "amount" (Gift; coins for the pot; for example 7 or 9): a whole number from 0 to 20
- "price": a number above 0 and below 1 in steps of 0.1
- "colour": one of "red", "blue"
- "to" (where it goes): an object with these fields, in this order:
  - "street": a text of at most 30 characters
  - "floor": a whole number
- "by": in the same form as "to"
- "tree": one of these:
  - an object with these fields, in this order:
    - "leaves": a whole number
    - "branches": a list, each item in the same form as "tree"
  - null
- "home": one of these:
  - an object with these fields, in this order:
    - "kind": "house"
    - "rooms": a whole number
  - an object with these fields, in this order:
    - "kind": "boat"
    - "sails": a list of 1 or more items, each item in the same form as "to"
- "when": a text in the form of 2024-05-31
- "shares": an object, each name a text, each value a whole number
- "pair": a list of 2, in this order:
  - a whole number
  - a text of at most 30 characters
- "confidence": one of 0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, \
0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0
An example of this form, with made-up values:
{"reasoning": "a text.", "amount": 10, "price": 0.5, "colour": "blue", \
"to": {"street": "a text", "floor": 1}, "by": {"street": "a text", "floor": 1}, \
"tree": {"leaves": 1, "branches": []}, \
"home": {"kind": "boat", "sails": [{"street": "a text", "floor": 1}]}, \
"when": "2024-05-31", "shares": {"a text": 1}, "pair": [1, "a text"], "confidence": 0.5}"""


def copied(request: ChatRequest) -> str:
    """Return what a model answers that knows the example alone."""
    return request.messages[-1].content.splitlines()[-1]


async def test_the_second_attempt_tells_fields_types_bounds_choices_and_an_example() -> None:
    client = make_client(["I would rather not.", copied], max_text_chars=30)
    order = await client.call_with_retry(prompt="What now?", response_model=Order)
    assert order.call is not None
    assert (order.call.status, order.amount, order.home.kind) == ("repaired", 10, "boat")
    no_json = (
        "That reply was not valid: the reply is not valid JSON: there is no JSON object in it."
    )
    assert requests_of(client)[1].messages[-1].content == f"{no_json}\nReply again.\n\n{TOLD}"


Stars = Annotated[str, Field(pattern=r"^\*+$", examples=["**"])]


@pytest.mark.parametrize(
    "kind",
    [
        Annotated[int, Field(ge=3, le=3)],
        Annotated[int, Field(gt=4, multiple_of=5)],
        Annotated[int, Field(lt=-4)],
        Annotated[float, Field(ge=0.1, le=0.3, multiple_of=0.1)],
        Annotated[Decimal, Field(gt=0, le=Decimal("0.01"))],
        Annotated[str, Field(min_length=9, max_length=12)],
        Annotated[str, Field(max_length=2)],
        Stars,
        Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+( left| right)?$", max_length=6)],
        complex,
        bool | None,
        None,
        Any,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        UUID,
        UUID4,
        Base64Str,
        Annotated[str, Field(pattern=r"^[ab]+$", min_length=9)],
        Literal[0, "a", None],
        Annotated[list[int], Field(min_length=2)],
        Annotated[set[int], Field(min_length=3)],
        Annotated[set[Literal["a", "b"]], Field(min_length=2)],
        Annotated[list[int], Field(max_length=0)],
        Annotated[dict[str, float], Field(min_length=2)],
        dict[Literal["a", "b"], bool],
        dict[Stars, int],
        tuple[int, ...],
        Annotated[House | Boat, Field(discriminator="kind")],
        Branch,
        list[Branch] | str,
    ],
    ids=str,
)
async def test_a_model_that_copies_the_example_answers(kind: Any) -> None:
    form = create_model("Form", __base__=Reply, answer=(kind, ...))
    client = make_client(["I would rather not.", copied], max_text_chars=40)
    await client.call_with_retry(prompt="What now?", response_model=form)


class Tree(Reply):
    branches: list[Tree]


async def test_a_reply_may_hold_replies_of_its_own_kind() -> None:
    client = make_client(["I would rather not.", copied])
    assert (await client.call_with_retry(prompt="Draw.", response_model=Tree)).branches == []


async def test_limits_and_choices_of_a_question_are_told() -> None:
    client = make_client(["I would rather not.", copied])
    order = await client.call_with_retry(
        prompt="What now?",
        response_model=Order,
        choices={"colour": ("red",)},
        limits={"amount": (3, 4)},
    )
    assert (order.amount, order.colour) == (3, Colour.RED)
    form = requests_of(client)[1].messages[-1].content
    assert '"colour": "red"' in form
    assert "a whole number from 3 to 4" in form


SOME = '{"amount": 3}'


@pytest.mark.parametrize(
    ("reply", "is_told"),
    [
        ("I give 3.", True),
        ("", True),
        ("[3]", True),
        ('{"gift": 3}', True),
        ('{"answer": {"amount": 3}}', True),
        (f"<think>{SOME}</think> I give 3.", True),
        (ChatReply(text="", thinking=SOME), True),
        (ChatReply(text='{"reasoning": "I have', done_reason="length"), True),
        (ChatReply(text=f"{SOME} and", done_reason="aborted"), False),
        (ChatReply(text="I give", done_reason="aborted"), True),
        (SOME, False),
        (f"I give:\n```json\n{SOME}\n```", False),
    ],
)
async def test_the_form_is_told_where_the_first_reply_had_no_json_of_it(
    reply: Any, is_told: bool
) -> None:
    client = make_client([reply, reply])
    with pytest.raises(LLMFailureException):
        await client.call_with_retry(prompt="What now?", response_model=Order)
    note = requests_of(client)[1].messages[-1].content
    assert (OLD_WORDS in note, "An example of this form" in note) == (not is_told, is_told)


async def test_a_conversation_held_to_a_schema_is_told_it_too() -> None:
    call = {"type": "object", "properties": {"name": {"const": "greet"}}, "required": ["name"]}
    client = make_client(["Hello.", '{"name": "greet"}', "Hi."], tell_form=True)

    def check(reply: ChatReply) -> str | None:
        return None if reply.text.startswith("{") else "call a tool"

    await client.converse([Message("user", "Hi")], schema={"anyOf": [call]}, check=check)
    await client.converse([Message("user", "Hi")])
    first, second, free = requests_of(client)
    assert [message.role for message in first.messages] == ["system", "user"]
    for told in (first.messages[0], second.messages[-1]):
        assert '- "name": "greet"' in told.content
    assert free.messages == (Message("user", "Hi"),)


# A run with the setting


def obliging(request: ChatRequest) -> Any:
    """Answer in the form where any message names its fields, and else in prose."""
    if all(word in request.prompt for word in ('"reasoning"', '"amount"', '"confidence"')):
        return {"reasoning": "Fair.", "amount": 5, "confidence": 1}
    return "I give 5 coins."


@pytest.mark.parametrize("tell_form", [False, True])
def test_what_a_run_told_a_replay_tells_too_and_one_sentence_names_the_setting(
    tmp_path: Path, tell_form: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"tell_form": True} if tell_form else {}
    client = make_client(obliging, **settings)
    PublicGoods(llm_client=client).run(1)
    # As each run of a study has it.
    own_client = client.with_config(client.config)
    run = PublicGoods(llm_client=own_client, tape=tmp_path / "a.tape")
    run.run(2)
    assert {call.status for call in run.calls} == {"ok" if tell_form else "repaired"}
    roles = [message.role for message in run.calls[0].request.messages]
    assert roles == (["system", "user"] if tell_form else ["user", "assistant", "user"])
    # Once, and only where it would help.
    [*said] = [line for line in caplog.messages if "tell_form=True" in line]
    assert len(said) == (0 if tell_form else 1)
    # Recordings made before there was such a setting stay equal.
    assert ("tell_form" in run.manifest()["llm"]) is tell_form
    caplog.clear()
    assert replay(run.tape).state == run.state
    assert caplog.messages == []
