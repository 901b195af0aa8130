"""Groups: how people are dealt, held, played again, and found after the process was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from room_kit import PEOPLE, Pots, begun_class, open_room, playing

from llmsim_lab.errors import ConfigError
from llmsim_lab.room import Room, forget_names
from llmsim_lab.study import Study


def study(folder: Path, turns: int = 1) -> Study:
    return Study(
        Pots,
        vary={"factor": [1.2, 1.8]},
        seeds=3,
        turns=turns,
        outcome="given",
        players=PEOPLE,
        tape=folder / "study",
    )


async def test_the_end_keeps_whole_turns_and_stops_the_rest(tmp_path: Path) -> None:
    run = Pots(players=PEOPLE, turns=5, tape=tmp_path / "pot.tape")
    async with begun_class(run) as (here, guests):
        for guest in guests:
            await guest.answer()
        await guests[0].asked()
        here.room.end()
        for guest in guests:
            await guest.until(lambda view: view["step"] == "done")
        assert (await here.rounds).turn_number == 1


async def test_a_run_alone_continues_as_the_run_that_was_begun(tmp_path: Path) -> None:
    def run() -> Pots:
        return Pots(players=PEOPLE, turns=2, tape=tmp_path / "pot.tape")

    begun = run()
    async with begun_class(begun) as (here, guests):
        for guest in guests:
            await guest.answer()
        for guest in guests:
            await guest.until(lambda view: view["turn"] == 1)
        browsers = [dict(guest.client.cookies) for guest in guests]
    begun.close()  # as the end of its process does
    async with open_room(run()) as here, playing(here) as rounds:
        for cookies in browsers:
            guest = here.visitor()
            guest.client.cookies.update(cookies)
            guest.watch()
            await guest.answer()
        ended = await rounds
        assert (ended.run_id, ended.turn_number) == (1, 2)


async def test_names_are_forgotten_and_data_stay(tmp_path: Path) -> None:
    async with open_room(study(tmp_path)) as here:
        await here.guests(3)
        assert here.room.to_otree(tmp_path / "o.csv").read_text().startswith("participant.id_in")
        cookies = dict(here.visitors[0].client.cookies)
    assert forget_names(tmp_path / "study") == 3
    async with open_room(study(tmp_path)) as here:
        assert here.room.people["name"].tolist() == ["p001", "p002", "p003"]
        guest = here.visitor()
        guest.client.cookies.update(cookies)
        assert (await guest.get())["guest"] == "p001"
    with pytest.raises(ConfigError, match="has no room"):
        forget_names(tmp_path)


async def test_a_room_wants_people_and_says_how_to_name_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no people in it"):
        Room(Pots(players="rule"))
    with pytest.raises(ConfigError, match=r"no arm of .* has people"):
        Room(Study(Pots, seeds=2, players="rule", tape=tmp_path / "s"))
    with pytest.raises(ConfigError, match="there is no seat 'Eve'"):
        Room(Pots(players=PEOPLE), seats=["Eve"])
    with pytest.raises(ConfigError, match="not open"):
        _ = Room(Pots(players=PEOPLE)).link


async def test_what_makes_no_sense_now_is_refused_in_words() -> None:
    async with open_room(Pots(players=PEOPLE)) as here:
        teacher = await here.teacher()
        for button in ("start", "next_turn", "pause", "another_round", "fill", "dance"):
            reply = await teacher.post("do", {"do": button, "guest": "p009"})
            assert reply.status_code == 409, button
            assert reply.json()["fault"].endswith("."), button
