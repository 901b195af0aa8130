"""What others do to a tape's file while a run writes it: nobody's bytes are lost, nor the run's."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from faults_kit import Attack, Case, Plan
from killed_runs import WORLDS, World
from tape_kit import hash_client
from test_crashes import TURNS, played_on, recorded

from llmsim_lab.errors import LabError
from llmsim_lab.tape import Tape, verify

pytestmark = pytest.mark.process

OTHER = b'{"tape":3,"by":"llmsim_lab 0.1.0","id":"0123456789abcdef","sum":"00000000"}\n'
NOBODY = 65534

Mischief = Callable[[Path], bytes | None]
"""Does something to a tape; returns the bytes that it put there."""


def replaced(path: Path, content: bytes) -> bytes:
    path.with_name("other").write_bytes(content)
    path.with_name("other").replace(path)
    return content


def overwritten(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    return content


def appended(text: bytes, path: Path) -> bytes:
    with path.open("ab") as file:
        file.write(text)
    return text


def truncated(share: float, path: Path) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def instead(put: Callable[[Path], object], path: Path) -> None:
    path.rename(path.with_name("moved.tape"))
    put(path)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)  # short, since the case stands in this folder


def mine(path: Path) -> Path:
    return path.with_name("mine.txt")


MISCHIEFS: dict[str, Mischief] = {
    "deleted": lambda path: path.unlink(),
    "moved": lambda path: instead(lambda _: None, path),
    "replaced by a shorter file": lambda path: replaced(path, OTHER),
    "replaced by a longer file": lambda path: replaced(path, OTHER + b"x" * 100_000),
    "replaced by a copy": lambda path: replaced(path, path.read_bytes()),
    "overwritten": lambda path: overwritten(path, OTHER),
    "overwritten, as long": lambda path: overwritten(path, b"y" * path.stat().st_size),
    "appended to": partial(appended, b"my notes\n"),
    "appended to, half a line": partial(appended, b"my notes"),
    "appended to, a line of a tape": partial(appended, OTHER),
    "cut in half": partial(truncated, 0.5),
    "emptied": partial(truncated, 0),
    "a fifo": partial(instead, os.mkfifo),
    "a folder": partial(instead, Path.mkdir),
    "a socket": partial(instead, bind),
    "a device": partial(instead, lambda path: path.symlink_to("/dev/zero")),
    "a link to a user's file": partial(instead, lambda path: path.symlink_to(mine(path))),
    "a hard link to a user's file": partial(instead, lambda path: os.link(mine(path), path)),
    "a link to nothing": partial(instead, lambda path: path.symlink_to("nothing")),
}


class Strike:
    """Does a mischief once.

    Attributes:
        armed: whether it is done before the next answer.
        kept: what the tape was before.
        put: what the mischief put there.
    """

    def __init__(self, mischief: Mischief, path: Path) -> None:
        self._mischief = mischief
        self._path = path
        self.armed = False
        self.kept = b""
        self.put: bytes | None = None

    def __call__(self, _: object = None) -> None:
        if not self.armed:
            return
        self.armed = False
        self.kept = self._path.read_bytes()
        self.put = self._mischief(self._path)


def meddle(world: World, kind: str, in_turn: bool, folder: Path) -> None:
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    strike = Strike(MISCHIEFS[kind], path)
    client = hash_client(world.backend(before_answer=strike))
    run = world.cls(**world.parts(), llm_client=client, tape=path)
    run.run(1, progress=False)
    strike.armed = True
    if not in_turn:
        strike()
    is_stopped = False
    try:
        run.run(TURNS - 1, progress=False)
    except LabError:
        is_stopped = True
    with suppress(LabError):  # a conversation is ended by a line, for which there is no place
        run.close()
    assert strike.kept, "nothing was done to the tape"
    if strike.put is not None:
        files = [one for one in folder.iterdir() if one.is_file() and one.name != "mine.txt"]
        assert any(strike.put in one.read_bytes() for one in files), "bytes of others are lost"
    if is_stopped:
        # As somebody does who puts back what was there.
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(strike.kept)
        run = played_on(world, path)
    assert verify(path) == []
    states = [turn.state for turn in whole.turns]
    assert [turn.state for turn in run.turns] == states
    assert [turn.state for turn in world.cls.load(path, 1).turns] == states


# --- other processes, and files that may only be read ---------------------------------------------


def in_a_child(work: Callable[[], object], user: int | None = None) -> bool:
    """Do some work in a forked process; return True if it ended in an error of ours."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            if user is not None:
                os.setuid(user)
            work()
            status = 0
        except LabError:
            status = 1
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1), f"the other process ended with {code}"
    return code == 1


def two_processes(world: World, is_forked: bool, folder: Path) -> None:
    """Play a run here and in another process, turn by turn."""
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    run = world.cls(**world.parts(), llm_client=hash_client(world.backend()), tape=path)
    run.run(1, progress=False)
    if is_forked:
        assert in_a_child(lambda: run.run(1, progress=False)), "a forked run was played on"
        run.run(TURNS - 1, progress=False)
    else:
        with Tape(path).writing():
            assert in_a_child(lambda: played_on(world, path)), "two processes write"
        run.close()
        assert not in_a_child(lambda: played_on(world, path))
        with pytest.raises(LabError):
            run.run(1, progress=False)
    assert verify(path) == []
    played = world.cls.load(path, 1)
    assert [turn.state for turn in played.turns] == [turn.state for turn in whole.turns]


def fork_in_a_turn(world: World, folder: Path) -> None:
    """Fork where a model answers, as a tool of a user may; the child continues too."""
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    children: list[int] = []

    def fork(_: object) -> None:
        if not children:
            children.append(os.fork())

    client = hash_client(world.backend(before_answer=fork))
    run = world.cls(**world.parts(), llm_client=client, tape=path)
    run.run(TURNS, progress=False)
    run.close()
    assert children[0], "the child played the run to its end"
    os.waitpid(children[0], 0)  # or it waits for ever
    assert verify(path) == []
    assert [turn.state for turn in run.turns] == [turn.state for turn in whole.turns]


def read_only(world: World, is_folder: bool, folder: Path) -> None:
    """Read a tape that may not be written, and try to continue it, as another user."""
    path = folder / "x.tape"
    run = world.cls(**world.parts(), llm_client=hash_client(world.backend()), tape=path)
    run.run(2, progress=False)
    run.close()
    world.cls.replay(path, **world.again())
    path.with_name("x.tape.lock").unlink()
    path.chmod(0o444)
    folder.chmod(0o555 if is_folder else 0o777)
    folder.parent.chmod(0o755)
    before = path.read_bytes()
    user = NOBODY if os.geteuid() == 0 else None
    assert not in_a_child(lambda: world.cls.replay(path, **world.again()), user)
    assert in_a_child(lambda: played_on(world, path), user), "it was written to"
    assert path.read_bytes() == before


def files_in_use(plan: Plan) -> Iterator[Case]:
    names = list(WORLDS)
    for place, (kind, _) in enumerate(plan.chosen(MISCHIEFS, 5)):
        for in_turn in (True, False):
            # One world for each, of all by turns; in long all of them.
            start = plan.seed + 2 * place + in_turn
            worlds = names if plan.size == "long" else [names[start % len(names)]]
            for name in worlds:
                when = "in a turn" if in_turn else "between turns"
                step = partial(meddle, WORLDS[name], kind, in_turn)
                yield Case(f"{name}: {kind} {when}", {"meddle": step}, may_raise=False)
    worlds = names[plan.seed % len(names) :][:1] if plan.size == "brief" else names
    for name in worlds:
        world = WORLDS[name]
        steps = {
            "two processes": partial(two_processes, world, False),
            "a forked run": partial(two_processes, world, True),
            "a run forked in a turn": partial(fork_in_a_turn, world),
            "a file to read": partial(read_only, world, False),
            "a folder to read": partial(read_only, world, True),
        }
        for step, do in steps.items():
            yield Case(f"{name}: {step}", {"play": do}, may_raise=False)


def test_what_happens_to_a_tapes_file_costs_neither_the_run_nor_what_others_wrote(
    attack: Attack,
) -> None:
    attack("crash: files in use", files_in_use)
