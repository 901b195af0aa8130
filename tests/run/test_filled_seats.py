"""Who answers for people who have left, or take too long, and what frames and tapes say of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, field_validator
from worlds import Gift, PublicGoods

from llmsim_lab import (
    Ask,
    LLMClient,
    LLMConfig,
    Person,
    Question,
    Run,
    ScriptedBackend,
    Simulation,
    State,
)
from llmsim_lab.errors import ConfigError, LLMFailureException, PromptError
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.run import load, replay
from llmsim_lab.run.people import People, people_of
from llmsim_lab.study.people import answers_of_people


class WithRule(PublicGoods):
    """Public goods with a rule of its own."""

    def rule(self, question: Question) -> Gift:
        return Gift(amount=7, reasoning="Seven.")


def model() -> LLMClient:
    reply = {"reasoning": "So.", "amount": 9, "confidence": 0.9}
    return LLMClient(LLMConfig(model="script"), ScriptedBackend(reply))


async def left_by_ann(run: Any) -> None:
    """Play a turn, in which Ann leaves when she is asked."""
    [ann] = people_of(run)
    task = asyncio.create_task(run.step())
    ann.give_up(await ann.asked(), "Ann has left")
    await task
    run.close()


@pytest.mark.parametrize(
    ("stand_in", "name"), [("random", "random"), ("rule", "rule"), ("model", "script")]
)
async def test_who_has_left_is_filled_in_and_the_frame_says_by_whom(
    stand_in: str, name: str, path: Path
) -> None:
    players = {"Ann": f"person, else {stand_in}", "*": "random"}
    run = WithRule(players=players, llm_client=model(), tape=path)
    await left_by_ann(run)
    rows = run.decisions().set_index("player")
    assert (rows.status["Ann"], rows.model["Ann"]) == ("fallback", name)
    assert rows.reasoning["Ann"] == f"{name} answers for Ann: Ann has left"
    assert rows.confidence.isna()["Ann"]
    assert rows.status.drop("Ann").eq("ok").all()
    if stand_in != "random":
        assert rows.amount["Ann"] == {"rule": 7, "model": 9}[stand_in]
    assert [answer.player for answer in answers_of_people(run)] == ["Ann"]
    again = replay(path)  # which needs nothing: who stands in is on the tape
    assert again.decisions().equals(run.decisions())
    assert load(path).config.players["Ann"] == players["Ann"]


async def test_where_the_model_that_fills_in_fails_too_chance_does(path: Path) -> None:
    down = LLMClient(LLMConfig(model="script", retry_wait_s=0), ScriptedBackend("No JSON."))
    run = PublicGoods(
        players={"Ann": "person, else model", "*": "random"}, llm_client=down, tape=path
    )
    await left_by_ann(run)
    row = run.decisions().set_index("player").loc["Ann"]
    assert (row.status, row.model) == ("fallback", "random")
    assert row.reasoning.startswith("random answers for Ann: Ann has left; script failed: ")
    assert replay(path).decisions().equals(run.decisions())


async def test_a_time_limit_is_asked_once_and_then_the_fill_answers() -> None:
    run = PublicGoods(players={"Ann": Person(timeout_s=0.01, stand_in="random"), "*": "random"})
    turn = await run.step()
    [call] = turn.calls
    assert (call.attempts, turn.statuses["fallback"]) == (1, 1)
    assert run.decisions().set_index("player").reasoning["Ann"] == (
        "random answers for Ann: Ann did not answer within 0.01 s"
    )


async def test_without_a_fill_a_person_who_has_left_fails_the_turn() -> None:
    run = PublicGoods(players={"Ann": "person", "*": "random"})
    [ann] = people_of(run)
    task = asyncio.create_task(run.step())
    ann.give_up(await ann.asked(), "Ann has left")
    with pytest.raises(LLMFailureException, match="Ann has left"):
        await task


def test_who_is_to_stand_in_has_to_be_there() -> None:
    with pytest.raises(ConfigError, match=r"a model is to answer where a person of PublicGoods"):
        PublicGoods(players={"Ann": "person, else model", "*": "random"})
    with pytest.raises(ConfigError, match=r"PublicGoods has no rule"):
        PublicGoods(players={"Ann": "person, else rule", "*": "random"})
    with pytest.raises(
        ConfigError, match=r"stand_in='chance'\) must be one of random, rule, model"
    ):
        Person(stand_in="chance")  # type: ignore[arg-type]


class Even(Gift):
    """A gift of an even number of coins."""

    @field_validator("amount")
    @classmethod
    def _is_even(cls, amount: int) -> int:
        if amount % 2:
            raise ValueError("give an even number")
        return amount


class Gave(State):
    gave: dict[str, int] = Field(default_factory=dict)


class Evens(Run[Gave]):
    """All players are asked at once."""

    async def turn(self, state: Gave, ask: Ask) -> Gave:
        gifts = await ask.each(["Ann", "Bob", "Cy"], Even, "{{ name }}?")
        return state.replace(gave={name: gift.amount for name, gift in gifts.items()})


async def test_an_answer_that_a_validator_refuses_never_ends_the_game_of_the_others() -> None:
    run = Evens(players={"*": "person"})
    people = People(run)
    assert list(people.seats) == ["Ann", "Bob", "Cy"]  # before anybody was asked
    task = asyncio.create_task(run.step())
    [person] = people_of(run)
    await person.asked()
    asked: dict[str, OpenQuestion] = {name: one.question for name, one in people.waiting().items()}
    assert list(asked) == ["Ann", "Bob", "Cy"]  # all at once
    for _ in range(3):
        assert asked["Bob"].faults({"amount": 3}) == {"amount": "give an even number"}
        with pytest.raises(ConfigError, match="answer of Bob was not sent: amount give an even"):
            person.answer(asked["Bob"], {"amount": 3})
    assert asked["Ann"].asked_at <= asked["Cy"].asked_at
    for question in asked.values():
        person.answer(question, {"amount": 4, "participant": "p007"})
    await task
    rows: Any = run.decisions()
    assert rows.amount.tolist() == [4, 4, 4]
    assert rows.participant.tolist() == ["p007"] * 3
    assert rows.confidence.isna().all()
    assert rows.reasoning.eq("").all()


async def test_a_class_writes_no_more_of_who_answers_than_one_person_does(tmp_path: Path) -> None:
    counts = []
    for people in (["Ann"], ["Ann", "Bob", "Cy"]):
        path = tmp_path / f"{len(people)}.tape"
        players = dict.fromkeys(people, "person, else random")
        run = Evens(players={"*": "random", **players}, tape=path)
        task = asyncio.create_task(run.step())
        for person in people_of(run):
            person.answer(await person.asked(), {"amount": 2})
        await task
        run.close()
        counts.append(path.read_text().count('"is":"set"'))
    assert counts[0] == counts[1]


class Offers(Run[Gave]):
    """Asks with a text for people."""

    for_cy: str = ""

    async def turn(self, state: Gave, ask: Ask) -> Gave:
        gifts = await ask.each(
            ["Ann", "Bob"],
            Gift,
            "You are {{ name }}. Reply with JSON. You have {{ coins }} coins.",
            coins=20,
            for_people="""{{ name }}, you have {{ coins }} coins.
                How many do you give?""",
        )
        if self.for_cy:
            await ask("Cy", Gift, "Well?", for_people=self.for_cy)
        return state.replace(gave={name: gift.amount for name, gift in gifts.items()})


async def test_people_are_shown_the_text_for_people_and_models_their_prompt(path: Path) -> None:
    run = Offers(players={"Ann": "person"}, llm_client=model(), tape=path)
    [(_, expected)] = People(run).next().values()
    [ann] = people_of(run)
    task = asyncio.create_task(run.step())
    question = await ann.asked()
    words = "Ann, you have 20 coins.\nHow many do you give?"
    assert question.text == expected.text == words
    ann.answer(question, {"amount": 3})
    await task
    prompts = {
        call.request.site.agent: call.request.prompt for call in run.calls if call.request.site
    }
    assert prompts["Ann"] == "You are Ann. Reply with JSON. You have 20 coins."
    assert [prompt.name for prompt in run.prompts.values()] == ["gift"]
    run.close()
    assert replay(path).state.gave == {"Ann": 3, "Bob": 9}


async def test_a_text_for_people_with_a_wrong_slot_is_an_error_also_where_a_model_plays() -> None:
    with pytest.raises(PromptError, match=r"prompt to Cy: nothing fills {{ coin }}"):
        await Offers(llm_client=model(), for_cy="{{ coin }}?").step()


def test_a_committee_is_put_to_people_in_a_third_of_the_words_and_the_same_figures() -> None:
    run = Simulation(nations=["Ann", "Bob"], players={"*": "person"}, start_at="1979Q3")
    question = People(run).next()["Bob"].question
    assert len(question.text) < len(question.request.prompt) / 2
    for figure in ("11.09", "9.67", "12.68", "9.09 percentage points above", "-1.41"):
        assert figure in question.text
        assert figure in question.request.prompt
    assert run.told(run.state, "Bob")["Policy rate (% per year)"] == 9.67
