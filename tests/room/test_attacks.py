"""What broke a room when it was attacked: one guest, an odd order, a world's own code."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from builders import until
from room_kit import NAMES, PATIENCE_S, PEOPLE, Pot, Pots, Visitor, begun_class, open_room, playing

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.errors import ConfigError


class Trust(Reply):
    yes: bool


class Asked(State):
    number: int = 0


class Trusts(Run[Asked]):
    """Each is asked about each, with the other's name as the tag."""

    async def turn(self, state: Asked, ask: Ask) -> Asked:
        for name in NAMES[:2]:
            other = NAMES[1 - NAMES.index(name)]
            await ask(name, Trust, "Secret of {{ name }}: {{ other }}?", other=other, tag=other)
        return Asked()


@pytest.mark.parametrize("word", ["*", "each"])
async def test_a_tag_that_is_a_players_name_does_not_give_the_question_to_that_player(
    word: str,
) -> None:
    names = ("*",) if word == "*" else NAMES[:2]
    run = Trusts(players=dict.fromkeys(names, "person, else random"), turns=1)
    async with open_room(run, seats=NAMES[:2]) as here, playing(here) as rounds:
        guests = await here.guests(2)
        here.room.start()

        async def answer(guest: Visitor) -> None:
            question = await guest.asked()
            assert question["text"].startswith(f"Secret of {guest.views[-1]['seat']}")
            sent = {"do": "answer", "id": question["id"], "values": {"yes": True}}
            assert (await guest.post("do", sent)).status_code == 200

        await asyncio.gather(*map(answer, guests))
        await rounds
        csv = (await guests[0].client.get(guests[0].base + "answers")).text
        assert csv.count("p001") == 1
        assert "somebody else" not in csv


async def test_end_and_another_round_at_once_end_the_cell() -> None:
    async with begun_class(turns=2) as (here, guests):
        await guests[0].asked()
        here.room.end()
        here.room.another_round()
        async with asyncio.timeout(PATIENCE_S):
            run = await here.rounds
        assert run.turn_number == 0
        assert here.room.phase == "lobby"


async def test_a_room_that_is_closed_ends_the_cell_and_opens_again() -> None:
    async with open_room(Pots(players=PEOPLE, turns=2)) as here, playing(here) as rounds:
        links = here.room.try_out(2)
        guests = await here.guests(4)
        here.room.start()
        await guests[0].asked()
        await asyncio.to_thread(here.room.close)
        with pytest.raises(ConfigError, match="was closed while it was played"):
            async with asyncio.timeout(PATIENCE_S):
                await rounds
        here.room.open()
        assert here.room.try_out(2) == links
        assert (await guests[0].client.get(links[0].partition("#")[0])).status_code == 200
        async with playing(here):
            guests[0].watch()
            await guests[0].asked()


class Broken(Pots):
    """A world whose own words for people fail, or are no JSON."""

    def told(self, state: Pot, player: str) -> dict[str, Any]:
        return {"nan": float("nan"), "set": {1}}

    def payoff(self, player: str) -> float:
        return self.state.earned[player]  # not there before the first turn


async def test_a_worlds_own_code_ends_nobodys_page() -> None:
    async with begun_class(Broken(players=PEOPLE, turns=2)) as (here, guests):
        await asyncio.gather(*[guest.answer() for guest in guests])
        view = await guests[0].until(lambda view: view.get("turn") == 1)
        assert view["told"] == [["nan", "nan"], ["set", "1"]]
    async with begun_class(Broken(players=PEOPLE, turns=2)) as (here, guests):
        await guests[0].asked()
        here.room.end()
        view = await guests[0].get()
        assert (view["step"], view.get("payoff")) == ("done", None)
        assert here.room.people["payoff"].isna().all()


@pytest.mark.process
async def test_a_connection_that_reads_no_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llmsim_lab.room._server._UNREAD_S", 0.5)
    async with open_room(Pots(players=PEOPLE, turns=1)) as here:
        guest = here.visitor()
        shell = (await guest.client.get(guest.base)).text
        script = shell.partition('src="')[2].partition('"')[0]
        request = f"GET {script} HTTP/1.1\r\nHost: 127.0.0.1:{here.room.port}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", here.room.port)) as lazy:
            lazy.setblocking(False)
            lazy.send(request.encode() * 300)

            def is_closed() -> bool:
                try:
                    lazy.send(b"G")
                except BlockingIOError:
                    return False
                except ConnectionError:
                    return True
                return False

            await until(is_closed)


async def test_half_a_character_and_deep_answers_break_nothing() -> None:
    async with open_room(Pots(players=PEOPLE, turns=1)) as here, playing(here):
        guests = await here.guests(1)
        head = {"content-type": "application/json", "origin": guests[0].base.rstrip("/")}
        await guests[0].join(here.room)
        half = here.visitor()
        content = json.dumps({"name": "\ud800", "secret": here.room.link.partition("#")[2]})
        await half.client.post(half.base + "join", content=content, headers=head)
        teacher = await here.teacher()
        assert "\ufffd" in (await teacher.client.get(teacher.base + "people")).text
        here.room.start()
        asked = (await guests[0].asked())["id"]
        for values in ('{"amount":"' + "[" * 9_000 + '"}', '{"a":' * 900 + "1" + "}" * 900):
            message = f'{{"do":"answer","id":"{asked}","values":{values}}}'
            reply = await guests[0].client.post(
                guests[0].base + "do", content=message, headers=head
            )
            assert reply.status_code == 409
            assert len(reply.content) < 40_000
