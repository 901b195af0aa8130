"""Who is kept out of a room, and what each page may know."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import sys
from pathlib import Path

import pytest
from room_kit import PEOPLE, Pots, Visitor, begun_class, open_room, playing

from llmsim_lab import data_path
from llmsim_lab.errors import ConfigError
from llmsim_lab.room import Room
from llmsim_lab.study import Study


def pots() -> Pots:
    return Pots(players=PEOPLE, turns=1)


async def test_each_page_wants_its_own_right() -> None:
    async with open_room(pots()) as here:
        guest = here.visitor()
        await guest.join(here.room)
        for path in ("now", "events", "answers"):
            assert (await here.visitor().client.get(guest.base + path)).status_code == 401
        for desk in ("teacher/", "projector/"):
            page = Visitor(guest.base + desk, guest)
            assert (await page.client.get(page.base + "now")).status_code == 401
            assert (await page.post("do", {"do": "start"})).status_code == 401
            assert (await page.post("join", {"key": here.room.code})).status_code == 403
        projector = here.visitor("projector/")
        await projector.enter(here.room.projector_link)
        assert (await projector.post("do", {"do": "start"})).status_code == 409
        assert set(await projector.get("links")) == {"link", "base", "code", "qr"}


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:80"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"content-type": "text/plain"},
    ],
)
async def test_a_post_of_another_site_is_not_taken(headers: dict[str, str]) -> None:
    async with open_room(pots()) as here:
        message = {"name": "Eve", "code": here.room.code}
        assert (await here.visitor().post("join", message, **headers)).status_code == 421
        assert len(here.room.people) == 0


async def test_a_page_under_a_foreign_name_is_not_given() -> None:
    async with open_room(pots()) as here:
        guest = here.visitor()
        reply = await guest.client.get(guest.base + "about", headers={"host": "rebound.example"})
        assert reply.status_code == 421


async def test_what_is_too_long_or_not_json_is_not_taken() -> None:
    async with open_room(pots()) as here:
        guest = here.visitor()
        await guest.join(here.room)
        head = {"content-type": "application/json", "origin": guest.base.rstrip("/")}

        async def parts() -> object:
            for _ in range(20):
                yield b" " * 1_000

        for content, status in [
            (b'"' + b"a" * 20_000 + b'"', 413),
            (parts(), 413),
            (b"[" * 10_000, 400),
            (b"[1]", 400),
            (b"\xff", 400),
        ]:
            reply = await guest.client.post(guest.base + "do", content=content, headers=head)
            assert reply.status_code == status


async def test_a_cookie_is_of_one_room_and_no_script_reads_it() -> None:
    async with open_room(pots()) as here, open_room(pots()) as other:
        guest = here.visitor()
        secret = here.room.link.partition("#")[2]
        reply = await guest.post("join", {"secret": secret})
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Max-Age=86400" in cookie
        assert cookie.split("=")[0] == f"seat-{(await guest.get('about'))['room']}"
        stranger = Visitor(other.visitor().base, guest)
        assert not (await stranger.get("about"))["joined"]


async def test_behind_a_tunnel_the_cookie_is_secure_and_its_name_is_known() -> None:
    async with open_room(pots(), url="https://class.example.org/") as here:
        assert here.room.link.startswith("https://class.example.org/#")
        local = Visitor(f"http://127.0.0.1:{here.room.port}/")
        here.visitors.append(local)
        head = {"host": "class.example.org", "origin": "https://class.example.org"}
        reply = await local.post("join", {"code": here.room.code}, **head)
        assert "Secure" in reply.headers["set-cookie"]


async def test_a_participants_bytes_have_nothing_of_others(tmp_path: Path) -> None:
    run = Pots(players=PEOPLE, turns=2, tape=tmp_path / "pot.tape")
    async with begun_class(run) as (_, guests):
        amounts = [3, 7, 11, 13]
        await asyncio.gather(
            *[guest.play(amount) for guest, amount in zip(guests, amounts, strict=True)]
        )
        for guest in guests:
            told = json.dumps(guest.views)
            for other in guests:
                if other is not guest:
                    seat = other.views[-1]["seat"]
                    assert f"Secret of {seat}" not in told
                    assert other.views[-1]["name"] not in told
                    assert other.views[-1]["code"] not in told
                    for token in other.client.cookies.values():
                        assert token not in told
        names = ("pot.tape", "pot.room.jsonl", "pot.room.names.jsonl")
        files = [(tmp_path / name).read_text() for name in names]
        for guest in guests:
            assert not any(
                token in text for token in guest.client.cookies.values() for text in files
            )
        tape = (tmp_path / "pot.tape").read_text()
        assert "Guest 1" not in tape
        assert "p001" in tape


async def test_the_notebook_keeps_no_key_of_the_teacher() -> None:
    """The link in a cell's output opens the page once; the room's own key is not in it."""
    async with open_room(pots()) as here:
        html = here.room._repr_html_()
        assert here.room.teacher_link.partition("#")[2] not in html
        ticket = html.partition("/teacher/#")[2].partition('"')[0]
        teacher = here.visitor("teacher/")
        await teacher.enter(f"#{ticket}")
        assert (await teacher.get())["phase"] == "lobby"
        again = await here.visitor("teacher/").post("join", {"key": ticket})
        assert again.status_code == 403


async def test_labels_let_in_who_is_listed_and_back_by_the_own_link(tmp_path: Path) -> None:
    listed = tmp_path / "labels.txt"
    listed.write_text("ana\nbo bo\n")
    async with open_room(pots(), labels=listed) as here:
        code = here.room.code
        stranger = await here.visitor().post("join", {"code": code, "id": "eve"})
        assert stranger.json()["error"] == "wrong_label"
        link = here.room.label_links["bo bo"]
        assert "/?id=bo%20bo#" in link
        message = {"id": "bo bo", "secret": link.partition("#")[2]}
        phone = await here.visitor().post("join", message)
        taken = await here.visitor().post("join", {"code": code, "id": "bo bo"})
        assert taken.json()["error"] == "label_taken"
        laptop = await here.visitor().post("join", message)
        assert laptop.json() == phone.json() == {"guest": "p001", "name": "bo bo"}


async def test_who_does_not_agree_is_not_in() -> None:
    async with open_room(pots(), welcome="We record what you decide.") as here:
        guest = here.visitor()
        assert (await guest.get("about"))["welcome"] == "We record what you decide."
        reply = await guest.post("join", {"code": here.room.code})
        assert reply.json()["error"] == "agree_first"
        assert len(here.room.people) == 0
        await guest.join(here.room, agreed=True)


async def test_a_trial_is_four_people_in_one_browser() -> None:
    async with open_room(pots()) as here:
        browser = here.visitor()
        guests = []
        for link in here.room.try_out(4):
            path = link.partition("#")[0]
            page = Visitor(path, browser)
            guests.append(await page.join(here.room))
        assert guests == ["p001", "p002", "p003", "p004"]
        paths = {cookie.path for cookie in browser.client.cookies.jar}
        assert paths == {"/p/1/", "/p/2/", "/p/3/", "/p/4/"}
        assert list(here.room.people["trial"]) == [1, 2, 3, 4]
        assert (await browser.client.get(browser.base + "p/5/")).status_code == 404
        assert [len(here.room.try_out(people)) for people in (1, 24)] == [1, 24]
        for people in (0, 25):
            with pytest.raises(ConfigError, match="the number of people is 1 to 24"):
                here.room.try_out(people)


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}: .*choose another"):
            Room(pots()).open(port=port)


async def test_at_the_end_the_wall_shows_what_people_of_a_published_study_did() -> None:
    sys.path.append(str(data_path("templates")))
    world = importlib.import_module("splitting").Splitting
    seats = {"A": "person, else random"}
    study = Study(world, {"stake": [7, 5]}, seeds=1, players=seats, outcome="share")
    async with open_room(study) as here, playing(here):
        guests = await here.guests(2)
        projector = here.visitor("projector/")
        await projector.enter(here.room.projector_link)
        here.room.start()
        await asyncio.gather(*[guest.play(amount=0) for guest in guests])
        [chart] = (await projector.get())["charts"]
        lines = {line["kind"]: line for line in chart["lines"]}
        assert lines["class"]["values"] == [[1, 0]]
        # Nobody published what people do with the other arm's stake.
        assert lines["people"]["label"] == "stake=5: 45 people, forsythe_1994"
        assert lines["people"]["values"] == [[1, pytest.approx(0.222, abs=0.001)]]
