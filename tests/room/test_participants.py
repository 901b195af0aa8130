"""What participants see and do, from the link to the code at the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from room_kit import NAMES, PEOPLE, Pots, Visitor, begun_class, open_room, playing

from llmsim_lab import Reply


class Feeling(Reply):
    fair: int


async def test_four_people_play_a_game_to_its_end(tmp_path: Path) -> None:
    run = Pots(players=PEOPLE, turns=2, tape=tmp_path / "pot.tape")
    async with open_room(run) as here, playing(here) as played:
        guests = await here.guests(4)
        await guests[0].until(lambda view: view["step"] == "lobby" and view["here"] == 4)
        here.room.start()
        last = await asyncio.gather(*[guest.play(5) for guest in guests])
        assert await played is run
        csv = await guests[1].client.get(guests[1].base + "answers")
        assert csv.text.startswith("turn,answered_by,amount,reasoning,result earned\n1,p002,5,")
        assert csv.headers["content-disposition"] == 'attachment; filename="answers.csv"'
    assert {view["seat"] for view in last} == set(NAMES)
    assert [view["told"] for view in last] == [[["earned", 23.0]]] * 4
    assert [view["payoff"] for view in last] == [46.0] * 4
    assert list(here.room.people["code"]) == [view["code"] for view in last]
    assert list(here.room.people["answered"]) == [2] * 4
    replayed = Pots.replay(tmp_path / "pot.tape")
    assert replayed.state == run.state
    assert list(replayed.decisions()["participant"]) == list(run.decisions()["participant"])


async def test_a_reload_and_a_lost_connection_lead_to_the_same_seat_and_question() -> None:
    async with begun_class() as (here, guests):
        before = await guests[0].asked()
        await guests[0].look_away()
        assert (await guests[0].get("about"))["joined"]
        assert await guests[0].join(here.room, "Somebody else") == "p001"
        guests[0].watch()
        assert await guests[0].asked() == before


async def test_of_two_taps_one_counts() -> None:
    async with begun_class(turns=2) as (_, guests):
        question = await guests[0].asked()
        message = {"do": "answer", "id": question["id"], "values": {"amount": 3}}
        replies = await asyncio.gather(*[guests[0].post("do", message) for _ in range(3)])
        assert sorted(reply.status_code for reply in replies) == [200, 409, 409]
        assert "closed" in {reply.json().get("error") for reply in replies}
        for guest in guests[1:]:
            await guest.answer()
        await guests[0].until(lambda view: view["step"] == "ask" and view["ask"]["turn"] == 2)
        assert (await guests[0].post("do", message)).status_code == 409


async def test_an_answer_that_is_wrong_is_named_by_its_field_and_asked_again() -> None:
    async with begun_class() as (_, guests):
        for wrong in (21, -1, "many", None, {"amount": 3}, [1]):
            reply = await guests[0].answer(amount=wrong)
            assert reply.status_code == 409, wrong
            assert "amount" in reply.json()["faults"], wrong
        assert (await guests[0].answer(amount="20")).status_code == 200


async def test_closing_questions_come_after_the_game_and_are_asked_once(tmp_path: Path) -> None:
    run = Pots(players=PEOPLE, turns=1, tape=tmp_path / "pot.tape")
    async with begun_class(run, closing=Feeling) as (here, guests):
        last = await asyncio.gather(*[guest.play() for guest in guests])
        assert [view["step"] for view in last] == ["closing"] * 4
        ask = last[0]["ask"]
        wrong = {"do": "answer", "id": ask["id"], "values": {"fair": "very"}}
        assert "fair" in (await guests[0].post("do", wrong)).json()["faults"]
        right = {"do": "answer", "id": ask["id"], "values": {"fair": 7}}
        assert (await guests[0].post("do", right)).status_code == 200
        assert (await guests[0].post("do", right)).status_code == 409
        await guests[0].until(lambda view: view["step"] == "done")
        assert here.room.people["fair"][0] == 7
    assert "fair" not in (tmp_path / "pot.tape").read_text()


async def test_a_fourth_tab_takes_the_place_of_the_first() -> None:
    """A browser has six connections for all its tabs; three reconnects a second else."""
    async with open_room(Pots(players=PEOPLE, turns=1)) as here:
        first = here.visitor()
        await first.join(here.room)
        first.watch()
        await first.until(bool)
        for _ in range(3):
            tab = Visitor(first.base, first)
            here.visitors.append(tab)
            tab.watch()
            await tab.until(bool)
        await first.ended()
        assert first.events == ["moved"]
