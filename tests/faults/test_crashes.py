"""Power that fails, disks that fill, Ctrl-C at any line, kills: what was recorded is not lost.

Elsewhere: kills at random moments (``tape/test_tape_crashes``), files that vanish, are replaced or
appended to, two processes and forked ones (``test_files_in_use``), servers (``test_ill_servers``),
a kernel's interrupt in JupyterLab (``browser/test_browser_faults``), a study's processes
(``study/test_study_processes``), a killed room (``room/test_room_process``).
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import resource
import signal
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import study_kit
from faults_kit import Attack, Case, Plan
from interrupt_kit import Lines, assert_ends_well, begun
from killed_runs import WORLDS, World
from runs_kit import TURNS, new_run, played_on, recorded, states_of
from tape_kit import HashBackend
from verbs_kit import command

import llmsim_lab
from llmsim_lab.errors import LabError, TapeError
from llmsim_lab.room import Room
from llmsim_lab.room._journal import RoomJournal
from llmsim_lab.run.recorded import page
from llmsim_lab.tape import Tape, repair, verify
from llmsim_lab.types import ChatRequest

pytestmark = pytest.mark.process


def has_run(path: Path) -> bool:
    """Return True unless a run was killed before its first turn was on the tape."""
    return path.exists() and bool(Tape(path, read_only=True).runs())


# --- kills ----------------------------------------------------------------------------------------

MOMENTS = ("before", "half", "after")
"""Of a line: nothing of it is written, half of it, all of it."""


def killed_at(line: int, moment: str) -> None:
    """Have this process killed as so many lines of a tape are written."""
    write = os.write
    lines_left = line

    def deadly(number: int, raw: bytes) -> int:
        nonlocal lines_left
        is_line = raw.endswith(b'"}\n')
        lines_left -= is_line
        if not is_line or lines_left > 0:
            return write(number, raw)
        if moment == "half":
            write(number, raw[: len(raw) // 2])
        elif moment == "after":
            write(number, raw)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    # A kill from outside comes at no certain line; a tape writes each by one call of this.
    os.write = deadly


def play_to_the_end(world: World, path: Path) -> Any:
    """Begin a run, or continue the one that is there."""
    return played_on(world, path) if has_run(path) else recorded(world, path)


def kill_at_a_line(world: World, part: float, moment: str, folder: Path) -> None:
    """Kill a run at one of its lines, and the one that continues it too; then let it end."""
    whole = recorded(world, folder / "whole.tape")
    lines = (folder / "whole.tape").read_bytes().count(b"\n")
    path = folder / "x.tape"
    for line in (1 + int(part * (lines - 1)), 2):
        child = os.fork()
        if child == 0:
            try:
                killed_at(line, moment)
                play_to_the_end(world, path)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    run = play_to_the_end(world, path)
    assert verify(path) == []
    assert states_of(run) == states_of(whole)


def killed_runs(plan: Plan) -> Iterator[Case]:
    """Yield each world, killed at so many of its lines; in long at each of them."""
    source = plan.source
    for name, world in WORLDS.items():
        count = {"brief": 1, "full": 6}.get(plan.size, plan.times(1))
        for number in range(count):
            part = number / count if plan.size == "long" else source.random()
            moment = MOMENTS[number % 3]
            step = partial(kill_at_a_line, world, part, moment)
            yield Case(f"{name} {moment} {part:.3f}", {"kill": step}, may_raise=False)


def test_a_run_killed_at_any_line_ends_as_one_that_was_not(attack: Attack) -> None:
    attack("crash: killed runs", killed_runs)


# --- power ----------------------------------------------------------------------------------------


def cut(content: bytes, at: int, _: random.Random) -> bytes:
    return content[:at]


def cut_at_a_line(content: bytes, at: int, _: random.Random) -> bytes:
    return content[: content.rfind(b"\n", 0, at) + 1]


def zeroed_tail(content: bytes, at: int, source: random.Random) -> bytes:
    """Write zeros where the file had grown but its blocks had not come to the disk."""
    return content[:at] + bytes(source.choice([1, 100, 4096, len(content) - at]))


def hole(content: bytes, at: int, source: random.Random) -> bytes:
    size = min(source.choice([1, 512, 4096]), len(content) - at)
    return content[:at] + bytes(size) + content[at + size :]


def lost_block(content: bytes, at: int, source: random.Random) -> bytes:
    return content[:at] + content[at + source.choice([1, 512, 4096]) :]


TAILS = [cut, cut_at_a_line, zeroed_tail]
"""After these a run continues; what the others left in the middle is named."""
DAMAGES = [*TAILS, *TAILS, hole, lost_block]


def lose_power(world: World, seed: str, folder: Path) -> None:
    recorded(world, folder / "whole.tape")
    source = random.Random(seed)
    content = (folder / "whole.tape").read_bytes()
    damage = source.choice(DAMAGES)
    written = damage(content, source.randrange(len(content)), source)
    (folder / "x.tape").write_bytes(written)
    (folder / "can continue").write_text("yes" if damage in TAILS else "")


def continue_after_power(world: World, folder: Path) -> None:
    path = folder / "x.tape"
    before = path.read_bytes()
    try:
        run = played_on(world, path)
    except LabError as error:
        # An empty file has become a tape without runs.
        assert path.read_bytes() == before or not before
        text = str(error)
        begins = "holds no run" in text or "is not a tape" in text
        assert begins or not (folder / "can continue").read_text(), text
        return
    assert verify(path) == []
    whole = world.cls.load(folder / "whole.tape", 1)
    assert states_of(run) == states_of(whole)
    assert world.cls.replay(path, **world.again()).turns == world.cls.load(path).turns


def repair_after_power(_: World, folder: Path) -> None:
    repair(folder / "x.tape", folder / "repaired.tape")
    assert verify(folder / "repaired.tape") == []


def power_losses(plan: Plan) -> Iterator[Case]:
    for name, world in WORLDS.items():
        for number in range(plan.times(1)):
            seed = f"{plan.seed} {name} {number}"
            steps = {"repair": repair_after_power, "resume": continue_after_power}
            yield Case(
                seed,
                {step: partial(do, world) for step, do in steps.items()},
                partial(lose_power, world, seed),
            )


def test_a_run_continues_after_a_power_failure(attack: Attack) -> None:
    attack("crash: power", power_losses)


# --- a disk that fills ----------------------------------------------------------------------------


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let files grow to so many bytes; a write beyond is cut short, or fails."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def fill_a_tape(world: World, share: float, folder: Path) -> None:
    """Record until nothing more can be written; then there is room again."""
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    run = new_run(world, path)
    try:
        with room_for(int((folder / "whole.tape").stat().st_size * share)):
            run.run(TURNS, progress=False)
    except LabError:
        assert verify(path) == []
    run.run(TURNS - run.turn_number, progress=False)
    run.close()
    assert verify(path) == []
    assert states_of(run) == states_of(whole)


def fill_by_a_page(share: float, folder: Path) -> None:
    """Write a page over an older one: it stays where the new one has no room."""
    recorded(WORLDS["own"], folder / "x.tape")
    page(folder / "x.tape", folder / "x.html")
    old = (folder / "x.html").read_bytes()
    with room_for(int(len(old) * share)), pytest.raises(LabError):
        page(folder / "x.tape", folder / "x.html")
    assert (folder / "x.html").read_bytes() == old
    assert sorted(path.name for path in folder.iterdir()) == [
        *("mine.txt", "x.html", "x.tape", "x.tape.lock")
    ]


def fill_a_room(share: float, folder: Path) -> None:
    """Lose a line of a room's journal to a full disk, and no other."""
    journal = RoomJournal(folder)
    for number in range(20):
        journal.write({"guest": f"p{number}", "token": "x", "trial": 0})
    size = (folder / "room.jsonl").stat().st_size
    with room_for(size + int(30 * share)), pytest.raises(LabError, match="make room"):
        journal.write({"guest": "p20", "token": "x", "trial": 0})
    journal.write({"guest": "p21", "token": "x", "trial": 0})
    names = [line["guest"] for line in RoomJournal(folder).lines()]
    assert names == [*(f"p{number}" for number in range(20)), "p21"]


def fill_a_new_folder(share: float, folder: Path) -> None:
    """Make a folder with a world, of which no half stays."""
    with room_for(int(1_000 * share)):
        said = command("new", "talk", "--from", "public_goods")
    assert "error: cannot write talk/public_goods.py: " in said
    assert not (folder / "talk").exists()


def full_disks(plan: Plan) -> Iterator[Case]:
    source = plan.source
    for name, world in WORLDS.items():
        for _ in range(plan.times(1)):
            share = source.uniform(0.02, 0.98)
            yield Case(
                f"{name} {share:.3f}",
                {"record": partial(fill_a_tape, world, share)},
                may_raise=False,
            )
    for _ in range(plan.times(1)):
        share = source.uniform(0.02, 0.98)
        yield Case(f"a page {share:.3f}", {"write": partial(fill_by_a_page, share)})
        yield Case(f"a room {share:.3f}", {"write": partial(fill_a_room, share)})
        yield Case(f"a new folder {share:.3f}", {"make": partial(fill_a_new_folder, share)})


def test_a_full_disk_costs_what_was_in_flight(attack: Attack) -> None:
    attack("crash: full disk", full_disks)


# --- a disk that fails ---------------------------------------------------------------------------

CALLS = [*("open", "read", "write", "lseek", "fstat", "stat"), *("fsync", "ftruncate", "close")]
"""What the system is asked while a run is recorded; any of it may fail, and work the next time."""


@contextmanager
def failing(name: str, at: int) -> Iterator[None]:
    """Have the system fail once, at such a call."""
    call = getattr(os, name)
    left = at

    def fails(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left != 0:
            return call(*arguments, **options)
        if name == "close":  # which closes a file also where it says that it could not
            call(*arguments)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    setattr(os, name, fails)
    try:
        yield
    finally:
        setattr(os, name, call)


def record_on_a_failing_disk(world: World, name: str, at: int, folder: Path) -> None:
    """Record while a call fails once; the run is then played on."""
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    run = new_run(world, path)
    with failing(name, at), suppress(LabError):
        run.run(TURNS, progress=False)
    try:
        run.run(TURNS - run.turn_number, progress=False)
        run.close()
    except TapeError as error:
        # The call failed once the turn was written, as a Ctrl-C may come then.
        assert "nothing is lost" in str(error)  # noqa: PT017 - it may also raise nothing
        run.close()
        run = played_on(world, path)
    assert verify(path) == []
    assert states_of(run) == states_of(whole)


def repair_on_a_failing_disk(world: World, name: str, at: int, folder: Path) -> None:
    """Repair a tape while a call fails once: there is a whole new tape, or none."""
    recorded(world, folder / "x.tape")
    with failing(name, at), suppress(LabError):
        repair(folder / "x.tape", folder / "repaired.tape")
    if (folder / "repaired.tape").exists():
        assert verify(folder / "repaired.tape") == []
    others = [path.name for path in folder.iterdir() if path.name.endswith((".new", ".part"))]
    assert others == []


def failing_disks(plan: Plan) -> Iterator[Case]:
    source = plan.source
    for name in CALLS:
        for _ in range({"brief": 1, "full": 2}.get(plan.size, 60)):
            world = source.choice(sorted(WORLDS))
            at = source.randint(1, 40)
            steps = {"record": record_on_a_failing_disk, "repair": repair_on_a_failing_disk}
            for step, do in steps.items():
                yield Case(
                    f"{world}: {name} {at}",
                    {step: partial(do, WORLDS[world], name, at)},
                    may_raise=False,
                )


def test_a_disk_that_fails_once_is_an_error_of_ours_after_which_a_run_is_played_on(
    attack: Attack,
) -> None:
    attack("crash: failing disk", failing_disks)


# --- Ctrl-C ---------------------------------------------------------------------------------------

PACKAGE = str(Path(llmsim_lab.__file__).parent)


def interrupt(part: float, folder: Path) -> None:
    """Interrupt a run at one of the package's lines; it then ends as one that was not."""
    # Of a coroutine that was made and not yet awaited Python itself says no more than this.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")
    expected = begun(folder / "whole.tape", HashBackend(faulty=True))
    counted = Lines(folder=PACKAGE)
    with counted.watched():
        asyncio.run(expected.arun(TURNS, progress=False))
    backend = HashBackend(faulty=True)
    run = begun(folder / "x.tape", backend)
    # A second run has fewer lines: what the first one has compiled and looked up is kept.
    lines = Lines(1 + int(part * counted.ran * 0.8), folder=PACKAGE)
    with pytest.raises(KeyboardInterrupt), lines.watched():
        asyncio.run(run.arun(TURNS, progress=False))
    assert_ends_well(folder / "x.tape", run, backend, expected)
    run.close()
    expected.close()


def interrupts(plan: Plan) -> Iterator[Case]:
    source = plan.source
    for _ in range(plan.times(2)):
        part = source.random()
        yield Case(
            f"at {part:.6f}", {"interrupt": partial(interrupt, part)}, cpu_s=20, may_raise=False
        )


def test_a_ctrl_c_at_any_line_of_the_package_loses_and_repeats_nothing(attack: Attack) -> None:
    attack("crash: Ctrl-C", interrupts)


# --- studies --------------------------------------------------------------------------------------


class Deadly(study_kit.Instant):
    """Answers so often, then kills its process; without a number always."""

    def __init__(self, answers: int = 0) -> None:
        super().__init__()
        self.answers = answers

    async def chat(self, request: ChatRequest) -> Any:
        self.answers -= 1
        if not self.answers:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().chat(request)


def study_at(folder: Path | None, backend: Deadly) -> pd.DataFrame:
    client = llmsim_lab.LLMClient(llmsim_lab.LLMConfig(model="m", retry_wait_s=0), backend)
    vary = {"factor": [1.0, 2.0]}
    study = study_kit.study_of(vary=vary, seeds=2, tape=folder, llm_client=client)
    return study_kit.timeless(study.run(progress=False))


def kill_a_study(seed: str, folder: Path) -> None:
    """Kill the process of a study again and again, then let it end."""
    source = random.Random(seed)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                study_at(folder / "study", Deadly(source.randint(1, 16)))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        source.random()
    frame = study_at(folder / "study", Deadly())
    pd.testing.assert_frame_equal(frame, study_at(None, Deadly()))
    for path in (folder / "study").glob("[!.]*.tape"):
        assert verify(path) == []


def killed_studies(plan: Plan) -> Iterator[Case]:
    for number in range(plan.times(2)):
        seed = f"{plan.seed} {number}"
        yield Case(seed, {"kill": partial(kill_a_study, seed)}, may_raise=False, wall_s=120)


def test_a_study_killed_at_any_question_gives_what_an_undisturbed_one_gives(
    attack: Attack,
) -> None:
    attack("crash: killed studies", killed_studies)


# --- a room's own files ---------------------------------------------------------------------------


def keep_a_room(folder: Path) -> None:
    journal = RoomJournal(folder)
    room = {"room": "a1b2c3", "code": "ABCDEF", "secret": "s" * 32}
    journal.write({"room": room})
    journal.write({"port": 8765})
    for number in range(6):
        digest = f"{zlib.crc32(bytes([number])):08x}"
        journal.write({"guest": f"p00{number}", "token": digest, "trial": 0})
        journal.write({"guest": f"p00{number}", "name": "Ann", "label": ""}, ".names")
        journal.write({"guest": f"p00{number}", "group": 0, "seat": "Ann"})
    journal.write({"phase": "open", "round": 1, "key": "k", "last_turn": None})
    journal.write({"away": "p001", "is_away": True})
    journal.write({"guest": "p001", "answers": {"age": 3}}, ".closing")


def damage_a_room(seed: str, folder: Path) -> None:
    keep_a_room(folder)
    source = random.Random(seed)
    for path in folder.glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        if source.random() < 0.7:
            lines.pop(source.randrange(len(lines)))
        odd = [b"\n", b"[1]\n", b'{"guest": 1}\n', b"\xff\xfe\n", bytes(512), b'{"away": "p9"}\n']
        lines.insert(source.randrange(len(lines) + 1), source.choice(odd))
        content = b"".join(lines)
        damage = source.choice([*TAILS, hole, lost_block])
        path.write_bytes(damage(content, source.randrange(len(content)), source))


def open_a_room(folder: Path) -> None:
    room = Room(WORLDS["own"].cls(players={"*": "person, else random"}, turns=1), folder=folder)
    room.open()
    try:
        assert room.link.startswith("http://127.0.0.1")
    finally:
        room.close()


def damaged_rooms(plan: Plan) -> Iterator[Case]:
    for number in range(plan.times(3)):
        seed = f"{plan.seed} {number}"
        yield Case(seed, {"open": open_a_room}, partial(damage_a_room, seed), may_raise=False)


def test_a_room_opens_whatever_a_power_failure_left_of_its_files(attack: Attack) -> None:
    attack("crash: the room's files", damaged_rooms)
