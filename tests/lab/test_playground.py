"""The playground's Python, without its browser."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab import Tape, data_path
from llmsim_lab.lab.playground import Playground

ROOT = Path(__file__).parents[2]
_PROGRAM = spec_from_file_location("build", ROOT / "playground" / "build.py")
assert _PROGRAM is not None
assert _PROGRAM.loader is not None
build: Any = module_from_spec(_PROGRAM)  # it is in no package
_PROGRAM.loader.exec_module(build)
POT = (ROOT / "playground" / "worlds" / "pot.py").read_text()


class Desk:
    """A playground, and what its page is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[dict[str, Any]] = []
        self._playground = Playground(lambda text: self.told.append(json.loads(text)), folder)

    def send(self, do: str, **message: object) -> None:
        self._playground.receive(json.dumps({"do": do, **message}))

    async def until(self, wanted: Callable[[dict[str, Any]], object]) -> Any:
        """Return what a message that is or was told has, as `wanted` picks it."""
        while True:
            for message in self.told:
                if picked := wanted(message):
                    return picked
            await asyncio.sleep(0.01)

    async def open(self, code: str = POT, **more: object) -> dict[str, Any]:
        """Open a world; returns what is said of it, or what is wrong."""
        self.told.clear()
        self.send("open", **({"place": "pot", "codes": {"pot": code}, "name": "pot"} | more))
        opened: dict[str, Any] = await self.until(
            lambda message: message.get("world") or message.get("wrong")
        )
        return opened

    def tape(self) -> Tape:
        return Tape(self.folder / "pot" / "pot.tape", read_only=True)


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_world_is_opened_with_a_run_and_named_are_those_it_asks(desk: Desk) -> None:
    world = await desk.open()
    assert world["players"] == {"*": "random"}
    assert world["seats"] == ["Ann", "Bob", "Cy", "Di"]
    assert (world["runs"], world["hasRule"]) == (1, False)
    with_rule = data_path("templates/public_goods.py").read_text()
    assert (await desk.open(with_rule))["players"] == {"*": "rule"}


async def test_turns_are_on_the_tape_at_once_and_a_person_is_asked(desk: Desk) -> None:
    await desk.open(players={"*": "random", "Ann": "person"})
    desk.send("play", run=1, turns=1)
    asked = await desk.until(lambda message: message.get("window", {}).get("ask"))
    assert asked["who"] == "Ann"
    desk.send("answer", id=asked["id"], values={"amount": "7"})
    await desk.until(lambda message: message.get("window", {}).get("live", {}).get("busy") is False)
    assert {"tape": str(desk.tape().path)} in desk.told
    assert desk.tape().run().turns == 1
    desk.send("replay")
    said = await desk.until(lambda message: message.get("says"))
    assert "1 run with 1 turn, all equal" in said
    desk.send("page")
    page = await desk.until(lambda message: message.get("page"))
    assert page.endswith("pot.html")


async def test_a_person_is_told_what_came_of_a_turn_and_at_the_end_the_payoff(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(asyncio.TimerHandle, "when")  # a browser's Python has none
    code = data_path("templates/prisoners_dilemma.py").read_text()
    head = "class PrisonersDilemma(Run[Dilemma]):\n"
    short = code.replace(head, head + '    defaults = {"turns": 2}\n')
    await desk.open(short, players={"*": "rule", "Ann": "person"})
    told: list[object] = []
    for turn in (1, 2):
        desk.send("play", run=1, turns=1)
        asked = await desk.until(
            lambda message, turn=turn: (
                (asked := message.get("window", {}).get("ask")) and asked["turn"] == turn and asked
            )
        )
        desk.send("answer", id=asked["id"], values={"move": "C"})
        desk.told.clear()
        told.append(await desk.until(lambda message: message.get("window", {}).get("told")))
    lines = {"the other chose": "D", "you earned": 0}
    assert told == [{"1": {"Ann": lines}}, {"1": {"Ann": lines | {"your payoff in all": 0}}}]


async def test_a_kept_tape_is_opened_with_its_runs_and_played_on(tmp_path: Path) -> None:
    before = Desk(tmp_path)
    await before.open()
    after = Desk(tmp_path)
    world = await after.open(name="")
    assert (world["name"], world["runs"]) == ("pot", 1)
    after.send("play", run=1, turns=2)
    await after.until(
        lambda message: message.get("window", {}).get("live", {}).get("busy") is False
    )
    assert after.tape().run().turns == 2
    assert (await after.open(anew=True))["runs"] == 2


async def test_a_tape_without_its_world_is_shown_and_says_so(desk: Desk) -> None:
    await desk.open()
    world = await desk.open(name="", codes={})
    assert "name" not in world
    assert world["runs"] == 1


@pytest.mark.parametrize(
    ("good", "bad", "line", "words"),
    [
        ("class Gift(", "class Gift", 12, "Python cannot read this line"),
        ("pydantic", "pydantik", 3, "There is no module 'pydantik' in this page"),
        ("/ len(gifts)", "/ lenn(gifts)", 27, "NameError: name 'lenn' is not defined"),
        ("class PublicGoods", "raise SystemExit\nclass PublicGoods", 16, "SystemExit"),
        ("amount: int", "name: int", 20, "amount"),
        ("class PublicGoods(Run[Pot])", "class PublicGoods(Run[int])", 16, "has the state int"),
        ("Run[Pot]", "dict", 0, "pot.py has no world in it"),
    ],
)
async def test_what_is_wrong_is_told_with_its_line(
    desk: Desk, good: str, bad: str, line: int, words: str
) -> None:
    assert good in POT
    wrong = await desk.open(POT.replace(good, bad))
    assert wrong["line"] == line
    assert words in wrong["text"]


async def test_what_fails_in_a_later_turn_is_told_with_its_line(desk: Desk) -> None:
    await desk.open(POT.replace("        share =", "        assert ask.turn < 2\n        share ="))
    desk.send("play", run=1, turns=3)
    wrong = await desk.until(lambda message: message.get("wrong"))
    assert (wrong["line"], wrong["text"]) == (27, "AssertionError")
    assert desk.tape().run().turns == 1


PLAYS = """
import asyncio, sys
from pathlib import Path
from llmsim_lab.lab.playground import Playground

code = Path(sys.argv[1]).read_text()
playground = Playground(lambda text: None, "worlds")
asyncio.run(playground.open("pot", codes={"pot": code}, name="pot"))
print(*{name.partition(".")[0] for name in sys.modules if " " not in name})
"""


@pytest.mark.process
def test_the_page_has_the_packages_that_playing_imports_and_no_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLAYS, str(ROOT / "playground" / "worlds" / "pot.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = {name for name in done.stdout.split() if not name.startswith("_")}
    imported -= {*sys.stdlib_module_names, "llmsim_lab", "sitecustomize"}
    assert imported == {name.replace("-", "_") for name in build.PACKAGES}


@pytest.mark.process  # takes seconds
def test_each_package_of_the_page_is_locked_with_a_wheel_that_a_browser_can_use() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    for name in build.PACKAGES:
        [wheels] = [package["wheels"] for package in packages if package["name"] == name]
        names = " ".join(wheel["url"] for wheel in wheels)
        platform = build.ELSEWHERE if name == "markupsafe" else build.PLATFORM
        assert f"{build.ABI}-{platform}" in names or "-none-any" in names, name
        assert f"--hash={wheels[0]['hash']}" in build.locked(name)


@pytest.mark.parametrize("world", build.worlds(), ids=lambda world: world["name"])
async def test_each_world_of_the_page_is_played(desk: Desk, world: dict[str, str]) -> None:
    opened = await desk.open(world["code"], players={"*": "random"})
    assert opened["seats"]
    desk.send("play", run=1, turns=2)
    live = await desk.until(
        lambda message: (
            message.get("window", {}).get("live", {}).get("busy") is False
            and message["window"]["live"]
        )
    )
    assert live["fault"] == ""
    assert desk.tape().run().turns == 2


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not a playground"):
        build.build(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"
