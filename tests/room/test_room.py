"""What a room is made of and says of itself: its source, addresses, labels, texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import segno
from room_kit import PEOPLE, Pot, Pots

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.room import Room
from llmsim_lab.room import room as room_module
from llmsim_lab.room._sources import RunSource, StudySource
from llmsim_lab.run import Question
from llmsim_lab.study import Study


class PlayedServer:
    """What a room asks of its server."""

    made: list[PlayedServer]
    free_port = 50_321

    def __init__(self, desks: Any, page_of: Any, words: Any, **settings: Any) -> None:
        self.desks = desks
        self.settings = settings
        self.port = settings["port"] or self.free_port
        self.names: set[str] = set()
        self.is_secure = False
        self.done: list[str] = []
        self.made.append(self)

    def start(self) -> None:
        self.done.append(f"started as {sorted(self.names)}")

    def call(self, work: object) -> None: ...

    def stop(self) -> None:
        self.done.append("stopped")


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[PlayedServer]:
    PlayedServer.made = []
    monkeypatch.setattr("llmsim_lab.room._server.RoomServer", PlayedServer)
    return PlayedServer.made


class Probe:
    """A socket that says by which address this machine would reach others."""

    AF_INET = SOCK_DGRAM = 0
    has_network = True

    def socket(self, *kind: object) -> Probe:
        return self

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *error: object) -> None: ...

    def connect(self, to: object) -> None:
        if not self.has_network:
            raise OSError("unreachable")

    def getsockname(self) -> tuple[str, int]:
        return ("10.0.0.7", 1)


@pytest.mark.parametrize(
    ("settings", "base", "names", "is_secure"),
    [
        ({}, "http://127.0.0.1:50321", "127.0.0.1:50321 localhost:50321", False),
        ({"port": 80}, "http://127.0.0.1", "127.0.0.1 localhost", False),
        (
            {"host": "::1", "port": 81},
            "http://[::1]:81",
            "127.0.0.1:81 localhost:81 [::1]:81",
            False,
        ),
        (
            {"host": "0.0.0.0"},
            "http://10.0.0.7:50321",
            "127.0.0.1:50321 localhost:50321 10.0.0.7:50321",
            False,
        ),
        (
            {"url": "https://Class.example.org/"},
            "https://Class.example.org",
            "127.0.0.1:50321 localhost:50321 class.example.org",
            True,
        ),
        ({"url": "http://a"}, "http://a", "127.0.0.1:50321 localhost:50321 a", False),
    ],
)
def test_a_room_is_known_by_the_addresses_that_lead_to_it(
    settings: dict[str, Any],
    base: str,
    names: str,
    is_secure: bool,
    servers: list[PlayedServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room_module, "socket", Probe())
    room = Room(Pots(players=PEOPLE), **settings)
    assert repr(room) == f"Room({Pots(players=PEOPLE)!r:.60}), not open"
    assert room.open() is room.open()
    [server] = servers
    assert (server.names, server.is_secure) == ({*names.split()}, is_secure)
    assert server.done == [f"started as {sorted(names.split())}"]
    assert server.settings["host"] == settings.get("host", "127.0.0.1")
    assert repr(room) == f"Room at {base}, code {room.code}, 0 of 4 joined"
    assert room.port == server.port
    links = [room.link, room.teacher_link, room.projector_link]
    assert [link.partition("#")[0] for link in links] == [
        f"{base}/",
        f"{base}/teacher/",
        f"{base}/projector/",
    ]
    assert len({link.partition("#")[2] for link in links}) == 3
    assert set(server.desks) == {"/", "/teacher/", "/projector/"}
    tried = room.try_out(2)
    assert [link.partition("#")[0] for link in tried] == [f"{base}/p/1/", f"{base}/p/2/"]
    assert set(server.desks) >= {"/p/1/", "/p/2/"}
    assert len(room.try_out(1)) == 1
    content = server.desks["/teacher/"].download(None, "links").content
    assert content.count("/p/") == 2
    room.close()
    room.close()
    assert server.done[1:] == ["stopped"]
    # Opened again it has the port that people's pages know, and the trial's links.
    room.open()
    assert servers[1].settings["port"] == server.port
    assert set(servers[1].desks) == {"/", "/teacher/", "/projector/", "/p/1/", "/p/2/"}


def test_without_a_network_a_room_for_all_is_at_this_machine(
    servers: list[PlayedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe()
    probe.has_network = False
    monkeypatch.setattr(room_module, "socket", probe)
    assert Room(Pots(players=PEOPLE)).open("0.0.0.0", 99).link.startswith("http://127.0.0.1:99/#")
    assert servers[0].settings["port"] == 99


def test_the_qr_code_is_the_rooms_link(servers: list[PlayedServer]) -> None:
    room = Room(Pots(players=PEOPLE)).open()
    links = room._links()
    code = segno.make(room.link, error="m", micro=False)
    path = str(links["qr"]["path"])  # type: ignore[index,call-overload]
    squares = {
        tuple(map(int, part.removesuffix("h1v1h-1z").split())) for part in path.split("M")[1:]
    }
    dark = {(x, y) for y, row in enumerate(code.matrix) for x, is_dark in enumerate(row) if is_dark}
    assert squares == dark
    assert links["qr"]["size"] == len(code.matrix)  # type: ignore[index,call-overload]
    assert links["try_out"] == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "ftp://a"}, "url='ftp://a' is not an address of a room; write it without a path"),
        ({"url": "a.example"}, "url='a.example' is not an address"),
        ({"url": "http:///x"}, "url='http:///x' is not an address"),
        ({"url": "https://a/b"}, "url='https://a/b' is not an address"),
        ({"url": "http://[::1"}, "url='http://.::1' is not an address"),
        ({"host": "a\0"}, "host='a.x00' is not an address to listen on"),
        ({"port": 10**400}, "port=.* must be a whole number, 0 to 65,535"),
        ({"beside": 5}, "beside=5 is not a run"),
        ({"timeout_s": "90"}, "timeout_s='90' must be a finite number"),
        ({"words": "/dev/zero"}, "words='/dev/zero' cannot be read: it is a device"),
        ({"labels": ["ana", " ana"]}, "labels= has 'ana' twice; each participant needs one"),
        ({"labels": "no such file"}, "labels='no such file' cannot be read: .*name a text file"),
        ({"welcome": "no_such_file.md"}, "welcome='no_such_file.md' cannot be read"),
        ({"welcome": Path("nothing")}, "welcome='nothing' cannot be read"),
        ({"seats": "Ann", "fill": "rule"}, r"is one text; give a list: seats=\['Ann'\]"),
    ],
)
def test_what_a_room_cannot_be_made_of_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Room(Pots(players=PEOPLE), **settings)


def test_labels_and_a_welcome_may_be_files(tmp_path: Path, servers: list[PlayedServer]) -> None:
    (tmp_path / "labels.txt").write_text(" ana\n\nbo & co\n")
    (tmp_path / "welcome.md").write_text("Hello.")
    files = {"labels": tmp_path / "labels.txt", "welcome": str(tmp_path / "welcome.md")}
    room = Room(Pots(players=PEOPLE), **files).open()  # type: ignore[arg-type]
    assert [link.partition("#")[0].partition("?")[2] for link in room.label_links.values()] == [
        "id=ana",
        "id=bo%20%26%20co",
    ]
    assert list(room.label_links) == ["ana", "bo & co"]
    about = servers[0].desks["/"].about("")
    assert (about["welcome"], about["labels"], about["joined"]) == ("Hello.", True, False)
    open_to_all = Room(Pots(players=PEOPLE), welcome="Read\nthis.md").open()
    about = servers[1].desks["/"].about("")
    assert (about["welcome"], about["labels"]) == ("Read\nthis.md", False)
    assert open_to_all.label_links == {}


def test_a_seat_is_filled_and_given_back_and_charts_are_shown_and_hidden(
    servers: list[PlayedServer],
) -> None:
    room = Room(Pots(players=PEOPLE)).open()
    teacher, guests = servers[0].desks["/teacher/"], servers[0].desks["/"]
    token, _ = guests.join({"code": room.code}, "")
    room.start()
    for desk, viewer, button, expected in (
        (teacher, None, {"do": "fill", "guest": "p001"}, (True, False)),
        (teacher, None, {"do": "show", "on": True}, (True, True)),
        (teacher, None, {"do": "give_back", "guest": "p001"}, (False, True)),
        (teacher, None, {"do": "fill", "guest": "p001"}, (True, True)),
        (guests, guests.viewer(token), {"do": "back"}, (False, True)),
        (teacher, None, {"do": "show"}, (False, False)),
    ):
        desk.do(viewer, button)
        view = teacher.view(None)
        [row] = [row for row in view["rows"][0]["seats"] if row["guest"]]
        assert (row["filled"], view["shown"]) == expected


def test_each_round_of_a_run_has_the_next_seed_on_the_same_tape(tmp_path: Path) -> None:
    run = Pots(players=PEOPLE, turns=2, seed=4, factor=1.5, tape=tmp_path / "pot.tape")
    source = RunSource(run, ["Bob", "Ann"])
    assert (source.item, source.seed, source.faults()) == (run, "4", {})
    assert [plan.seats for plan in source.plans] == [("Ann", "Bob")]
    assert source.runs([0]) == {0: run}
    first, third = (source.of_round(number, "").item for number in (1, 3))
    assert first is run
    assert (third.config.seed, third.config.factor, third.tape) == (6, 1.5, run.tape)
    source.journal(None).write({"a": 1})
    assert (tmp_path / "pot.room.jsonl").read_text() == '{"a":1}\n'
    source.journal(tmp_path / "own").write({"a": 1})
    assert (tmp_path / "own" / "room.jsonl").exists()
    assert Room(Pots(players=PEOPLE))._seats.source.key == ""


def gives_all(question: Question) -> int:
    return 20


def test_a_round_and_a_room_that_names_its_people_keep_players_start_and_changes(
    tmp_path: Path,
) -> None:
    run = Pots(
        players={"Ann": Person(timeout_s=9), "Bob": gives_all, "*": "random"},
        state=Pot(given=7),
        tape=tmp_path / "pot.tape",
    )
    run.intervene(0, {"given": 8})
    second = RunSource(run, ["Ann"]).of_round(2, "")
    second.item.close()
    reopened = RunSource(run, ["Ann"]).of_round(2, second.key)
    named = Room(run, seats=["Ann"], fill="random")._seats.source
    for source in (second, reopened, named):
        new = source.item
        assert (new.players["Bob"], new.players["*"]) == (gives_all, "random")
        assert new.state == run.state
    assert second.item.players["Ann"].backend.timeout_s == 9
    assert second.item.players["Ann"] is not run.players["Ann"]


def test_each_round_of_a_study_has_new_seeds_in_a_folder_of_its_own(tmp_path: Path) -> None:
    def of(**settings: Any) -> StudySource:
        return StudySource(
            Study(
                Pots,
                seeds=[3, 5],
                turns=1,
                outcome="given",
                players=PEOPLE,
                tape=tmp_path / "study",
                **settings,
            )
        )

    source = of(vary={"factor": [1.2, 1.8]})
    low, high = source.item.arms
    assert [(plan.name, plan.block) for plan in source.plans] == [
        (f"{low}, seed 3", 0),
        (f"{high}, seed 3", 0),
        (f"{low}, seed 5", 1),
        (f"{high}, seed 5", 1),
    ]
    assert (source.seed, source.key, source.runs([0, 1, 2, 3]), source.faults()) == (
        "3",
        "",
        {},
        {},
    )
    rounds = [source.of_round(number, "") for number in (2, 3, 4)]
    assert [list(played.item.units) for played in rounds] == [[6, 7], [8, 9], [10, 11]]
    assert [Path(played.item.tape).name for played in rounds] == ["round 2", "round 3", "round 4"]
    assert {Path(played.item.tape).parent for played in rounds} == {tmp_path / "study"}
    assert [plan.name for plan in of().plans] == ["seed 3", "seed 5"]
