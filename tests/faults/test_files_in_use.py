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
from runs_kit import TURNS, new_run, played_on, recorded, states_of

from llmsim_lab.errors import LabError
from llmsim_lab.tape import Tape, verify

pytestmark = pytest.mark.process

OTHER = b'{"tape":3,"by":"llmsim_lab 0.1.0","id":"0123456789abcdef","sum":"00000000"}\n'
NOBODY = 65534

Mischief = Callable[[Path], bytes | None]
"""Does something to a tape; returns the bytes that it put there."""


def replace(path: Path, content: bytes) -> bytes:
    path.with_name("other").write_bytes(content)
    path.with_name("other").replace(path)
    return content


def overwrite(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    return content


def append(path: Path, content: bytes) -> bytes:
    with path.open("ab") as file:
        file.write(content)
    return content


def truncate(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def move(path: Path) -> None:
    path.rename(path.with_name("moved.tape"))


def put_instead(path: Path, put: Callable[[Path], object]) -> None:
    move(path)
    put(path)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)  # short, since the case stands in this folder


def link_to(target: str) -> Mischief:
    return lambda path: put_instead(path, lambda place: place.symlink_to(target))


def hard_link_to(target: str) -> Mischief:
    return lambda path: put_instead(path, lambda place: os.link(target, place))


MISCHIEFS: dict[str, Mischief] = {
    "deleted": Path.unlink,
    "moved": move,
    "replaced by a shorter file": lambda path: replace(path, OTHER),
    "replaced by a longer file": lambda path: replace(path, OTHER + b"x" * 100_000),
    "replaced by a copy": lambda path: replace(path, path.read_bytes()),
    "overwritten": lambda path: overwrite(path, OTHER),
    "overwritten, as long": lambda path: overwrite(path, b"y" * path.stat().st_size),
    "appended to": lambda path: append(path, b"my notes\n"),
    "appended to, half a line": lambda path: append(path, b"my notes"),
    "appended to, a line of a tape": lambda path: append(path, OTHER),
    "cut in half": lambda path: truncate(path, 0.5),
    "emptied": lambda path: truncate(path, 0),
    "a fifo": lambda path: put_instead(path, os.mkfifo),
    "a folder": lambda path: put_instead(path, Path.mkdir),
    "a socket": lambda path: put_instead(path, bind),
    "a device": link_to("/dev/zero"),
    "a link to a user's file": link_to("mine.txt"),
    "a hard link to a user's file": hard_link_to("mine.txt"),
    "a link to nothing": link_to("nothing"),
}


class Strike:
    """Does a mischief once.

    Attributes:
        is_armed: whether it is done before the next answer.
        tape_before: what the tape was before; empty until the mischief is done.
        put: what the mischief put there.
    """

    def __init__(self, mischief: Mischief, path: Path) -> None:
        self._mischief = mischief
        self._path = path
        self.is_armed = False
        self.tape_before = b""
        self.put: bytes | None = None

    def __call__(self, _: object = None) -> None:
        if not self.is_armed:
            return
        self.is_armed = False
        self.tape_before = self._path.read_bytes()
        self.put = self._mischief(self._path)


def meddle(world: World, mischief: Mischief, in_turn: bool, folder: Path) -> None:
    """Play a run to whose tape something is done; where it stops, put the tape back and resume."""
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    strike = Strike(mischief, path)
    run = new_run(world, path, before_answer=strike)
    run.run(1, progress=False)
    strike.is_armed = True
    if not in_turn:
        strike()
    is_stopped = False
    try:
        run.run(TURNS - 1, progress=False)
    except LabError:
        is_stopped = True
    with suppress(LabError):  # a conversation is ended by a line, for which there is no place
        run.close()
    assert strike.tape_before, "nothing was done to the tape"
    if strike.put is not None:
        assert is_kept(strike.put, folder), "bytes of others are lost"
    if is_stopped:
        put_back(path, strike.tape_before)
        run = played_on(world, path)
    assert verify(path) == []
    assert states_of(run) == states_of(whole)
    assert states_of(world.cls.load(path, 1)) == states_of(whole)


def is_kept(content: bytes, folder: Path) -> bool:
    """Return True if a file holds it; the user's own, which a tape may link to, does not count."""
    for path in folder.iterdir():
        if path.is_file() and path.name != "mine.txt" and content in path.read_bytes():
            return True
    return False


def put_back(path: Path, content: bytes) -> None:
    """Remove what is in the place of a tape, and write the tape as it was."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(content)


# --- other processes, and files that may only be read ---------------------------------------------


def fails_in_a_child(work: Callable[[], object], user: int | None = None) -> bool:
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


def play_in_a_fork(world: World, folder: Path) -> None:
    """Play a run in a forked process, which may not, and then here."""
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    run = new_run(world, path)
    run.run(1, progress=False)
    assert fails_in_a_child(lambda: run.run(1, progress=False)), "a forked run was played on"
    run.run(TURNS - 1, progress=False)
    assert verify(path) == []
    assert states_of(world.cls.load(path, 1)) == states_of(whole)


def play_in_two_processes(world: World, folder: Path) -> None:
    """Play a run here, then in another process, then here again, which may not."""
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    run = new_run(world, path)
    run.run(1, progress=False)
    with Tape(path).writing():
        assert fails_in_a_child(lambda: played_on(world, path)), "two processes write"
    run.close()
    assert not fails_in_a_child(lambda: played_on(world, path))
    with pytest.raises(LabError):
        run.run(1, progress=False)
    assert verify(path) == []
    assert states_of(world.cls.load(path, 1)) == states_of(whole)


def fork_in_a_turn(world: World, folder: Path) -> None:
    """Fork where a model answers, as a tool of a user may; the child continues too."""
    whole = recorded(world, folder / "whole.tape")
    path = folder / "x.tape"
    children: list[int] = []

    def fork(_: object) -> None:
        if not children:
            children.append(os.fork())

    run = new_run(world, path, before_answer=fork)
    run.run(TURNS, progress=False)
    run.close()
    assert children[0], "the child played the run to its end"
    os.waitpid(children[0], 0)  # or it waits for ever
    assert verify(path) == []
    assert states_of(run) == states_of(whole)


def read_only(world: World, folder_mode: int, folder: Path) -> None:
    """Read a tape that may not be written, and try to continue it, as another user."""
    path = folder / "x.tape"
    run = new_run(world, path)
    run.run(2, progress=False)
    run.close()
    world.cls.replay(path, **world.again())
    path.with_name("x.tape.lock").unlink()
    path.chmod(0o444)
    folder.chmod(folder_mode)
    folder.parent.chmod(0o755)
    content = path.read_bytes()
    user = None
    if os.geteuid() == 0:
        user = NOBODY
    assert not fails_in_a_child(lambda: world.cls.replay(path, **world.again()), user)
    assert fails_in_a_child(lambda: played_on(world, path), user), "it was written to"
    assert path.read_bytes() == content


USES: dict[str, Callable[[World, Path], object]] = {
    "two processes": play_in_two_processes,
    "a forked run": play_in_a_fork,
    "a run forked in a turn": fork_in_a_turn,
    "a file to read": lambda world, folder: read_only(world, 0o777, folder),
    "a folder to read": lambda world, folder: read_only(world, 0o555, folder),
}


def files_in_use(plan: Plan) -> Iterator[Case]:
    names = list(WORLDS)
    for place, (kind, mischief) in enumerate(plan.chosen(MISCHIEFS, 5)):
        for in_turn, when in ((True, "in a turn"), (False, "between turns")):
            worlds = names
            if plan.size != "long":
                # One world for each, of all by turns.
                number = plan.seed + 2 * place + in_turn
                worlds = [names[number % len(names)]]
            for name in worlds:
                step = partial(meddle, WORLDS[name], mischief, in_turn)
                yield Case(f"{name}: {kind} {when}", {"meddle": step}, may_raise=False)
    worlds = names
    if plan.size == "brief":
        worlds = [names[plan.seed % len(names)]]
    for name in worlds:
        for use, play in USES.items():
            steps = {"play": partial(play, WORLDS[name])}
            yield Case(f"{name}: {use}", steps, may_raise=False)


def test_what_happens_to_a_tapes_file_costs_neither_the_run_nor_what_others_wrote(
    attack: Attack,
) -> None:
    attack("crash: files in use", files_in_use)
