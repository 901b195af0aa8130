"""Who answers for people who are not there, and how they come back."""

from __future__ import annotations

import asyncio
import time

import pytest
from pydantic import field_validator
from room_kit import NAMES, PEOPLE, Gift, Pots, begun_class, open_room, playing

from llmsim_lab import Ask, Run, State
from llmsim_lab.errors import ConfigError
from llmsim_lab.room import Room


class Lucky(Gift):
    """A reply that a validator refuses, which its schema does not say."""

    @field_validator("amount")
    @classmethod
    def not_13(cls, amount: int) -> int:
        if amount == 13:
            raise ValueError("is unlucky; choose another")
        return amount


class Sum(State):
    total: int = 0


class Luck(Run[Sum]):
    async def turn(self, state: Sum, ask: Ask) -> Sum:
        gifts = await ask.each(NAMES, Lucky, "How much?", limits={"amount": (0, 20)})
        return Sum(total=sum(gift.amount for gift in gifts.values()))


async def test_one_guest_cannot_end_the_game_of_a_group() -> None:
    async with begun_class(Luck(players=PEOPLE, turns=1)) as (here, guests):
        for _ in range(3):
            reply = await guests[0].answer(13)
            assert reply.status_code == 409
            assert "is unlucky" in reply.json()["faults"]["amount"]
        await asyncio.gather(*[guest.play(5) for guest in guests])
        assert (await here.rounds).state == Sum(total=20)


async def test_a_question_that_waits_too_long_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks at the page is asked again in the next turn; who does not, when back."""
    async with begun_class(turns=2, timeout_s=300) as (here, guests):
        question = await guests[0].asked()
        assert question["until"] - question["since"] == pytest.approx(300)
        await guests[3].look_away()
        teacher = await here.teacher()
        teacher.watch()
        await teacher.until(lambda view: view["online"] == 3)
        later = time.time() + 301
        monkeypatch.setattr("llmsim_lab.room._seats.clock", lambda: later)
        await guests[0].until(lambda view: view.get("turn", 0) == 1 and view["step"] == "ask")
        people = here.room.people
        assert (await guests[3].get())["step"] == "filled"
        assert people["filled"].tolist() == [1, 1, 1, 1]


async def test_everybody_behind_one_word_is_asked_at_once() -> None:
    run = Pots(players={"*": "person, else random"}, turns=1)
    async with begun_class(run) as (_, guests):
        texts = [(await guest.asked())["text"] for guest in guests]
        assert len(set(texts)) == 4
        last = await asyncio.gather(*[guest.play() for guest in guests])
        assert {view["seat"] for view in last} == set(NAMES)


async def test_a_room_names_the_people_where_the_source_does_not() -> None:
    run = Pots(turns=1)
    async with open_room(run, seats=["Ann", "Bob", "Cy", "Di"], fill="rule") as here, playing(here):
        guests = await here.guests(2)
        here.room.start()
        last = await asyncio.gather(*[guest.play(3) for guest in guests])
    assert {view["told"][0][1] for view in last} == {20 - 3 + 1.6 * 2}
    with pytest.raises(ConfigError, match="seats= is missing"):
        Room(Pots(), fill="random")
