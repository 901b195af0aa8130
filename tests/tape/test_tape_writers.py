"""Who writes: one process at a time, only to the file that was opened, and only whole lines."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from builders import played, recorded
from counter_kit import answer, counter_client, make_counter
from journal_kit import add_run, findings, hear, make_small, program, run_program, tell

from llmsim_lab.errors import TapeError
from llmsim_lab.run import replay, resume
from llmsim_lab.tape import Tape
from llmsim_lab.tape.recorder import LiveRecorder
from llmsim_lab.types import ChatRequest


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return make_small(tmp_path / "small.tape")


# --- several at once ---------------------------------------------------------------------------

HOLD = """
    from llmsim_lab.tape import Tape
    from llmsim_lab.tape.recorder import LiveRecorder
    with Tape(sys.argv[1]) as tape, tape.writing():
        recorder = LiveRecorder(tape, 1)
        recorder.end(None)
        print("begun", flush=True)
        for line in sys.stdin:
            recorder.end(None)
            print(line, end="", flush=True)
"""


@pytest.mark.process
def test_a_second_writer_is_told_which_process_writes_and_readers_read(small: Path) -> None:
    with Tape(small) as tape:
        LiveRecorder(tape, add_run(tape)).end(None)  # as a process leaves it that is killed
    with program(HOLD, small) as other:
        assert hear(other) == "begun\n"
        what = (
            rf"another process writes to {small} \(run 1 was last begun by process {other.pid}\): "
            "stop the run there, or record on another file"
        )
        with Tape(small) as tape:
            for write in (add_run, lambda tape: tape.prune([4])):
                with pytest.raises(TapeError, match=what):
                    write(tape)
            for _ in range(3):
                lines = tape.journal.index.lines
                tell(other)
                assert hear(other) == "go\n"
                assert tape.run(1).outcome is None
                assert tape.journal.index.lines == lines + 1
                assert findings(small) == []
            other.kill()
            other.wait()
            assert add_run(tape) == 5
    assert findings(small) == []


@pytest.mark.process
def test_processes_that_make_a_tape_at_the_same_time_get_the_same_one(path: Path) -> None:
    code = """
        from llmsim_lab.tape import Tape
        print("ready", flush=True)
        sys.stdin.readline()
        print(Tape(sys.argv[1]).journal.index.head)
    """
    with ExitStack() as stack:
        children = [stack.enter_context(program(code, path)) for _ in range(2)]
        assert [hear(child) for child in children] == ["ready\n"] * 2
        for child in children:
            tell(child)
        heads = [hear(child) for child in children]
    assert heads == [f"{path.read_bytes()!r}\n"] * 2
    assert findings(path) == []


@pytest.mark.process
def test_a_forked_child_neither_writes_nor_keeps_the_lock(small: Path) -> None:
    code = """
        import gc, os
        from journal_kit import add_run
        from llmsim_lab.errors import TapeError
        from llmsim_lab.tape import Tape
        def told(write):
            try:
                print(write(), flush=True)
            except TapeError as error:
                print(error, flush=True)
        tape, (reading, writing) = Tape(sys.argv[1]), os.pipe()
        with tape.writing():
            if os.fork() == 0:
                os.close(writing)
                told(lambda: add_run(tape))
                told(lambda: add_run(Tape(sys.argv[1])))  # while its parent writes
                gc.collect()
                print("child", flush=True)
                os.read(reading, 1)  # until its parent has ended
                os.read(0, 3)
                print(add_run(Tape(sys.argv[1])), flush=True)
                os._exit(0)
            os.read(0, 3)
            print(add_run(tape), flush=True)
            os._exit(0)  # as killed: nothing is released
    """
    with program(code, small) as parent:
        first, second, third = (hear(parent) for _ in range(3))
        assert "was opened before this process forked; open it anew" in first
        assert "another process writes to" in second
        assert third == "child\n"
        with pytest.raises(TapeError, match="another process writes to"), Tape(small) as tape:
            add_run(tape)
        tell(parent)
        assert hear(parent) == "4\n"
        parent.wait()
        with Tape(small) as tape:
            assert add_run(tape) == 5
        tell(parent)
        assert hear(parent) == "6\n"
    assert findings(small) == []


def test_a_second_simulation_of_this_process_hears_of_the_first_and_close_lets_it_in(
    path: Path,
) -> None:
    first = played(make_counter(path), 1)
    with pytest.raises(TapeError, match=r"another simulation of this process.*close\(\) it"):
        resume(path, llm_client=counter_client())
    first.close()
    second = played(resume(path, llm_client=counter_client()), 1)
    with pytest.raises(TapeError, match=r"was closed by this simulation, or pruned; resume\("):
        first.run(1)
    assert replay(path).turns == second.turns


# --- another file in its place -----------------------------------------------------------------

OTHER = b'{"tape":3,"by":"llmsim_lab 0.1.0","id":"0123456789abcdef","sum":"00000000"}\n'


def replaced(path: Path, content: bytes) -> None:
    path.with_name("other").write_bytes(content)
    path.with_name("other").replace(path)


SIZES: dict[str, Callable[[bytes], bytes]] = {
    "shorter": lambda own: OTHER,
    "as long": lambda own: OTHER + b"x" * (len(own) - len(OTHER) - 1) + b"\n",
    "longer": lambda own: OTHER + b"x" * len(own) + b"\n",
    "an older copy": lambda own: own[: own.rindex(b"\n", 0, -1) + 1],
    "an edited copy": lambda own: own.replace(b"Ann", b"Eva"),
}
SWAPS: list[tuple[Callable[[Path, bytes], object], str]] = [
    (lambda path, _: path.unlink(), "shorter"),
    (lambda path, _: path.rename(path.with_name("moved.tape")), "shorter"),
    *((replaced, size) for size in SIZES),
    *((Path.write_bytes, size) for size in SIZES if size != "an edited copy"),
]


@pytest.mark.parametrize("when", ["in a turn", "between turns", "when it is read in a turn"])
@pytest.mark.parametrize(("swap", "size"), SWAPS)
def test_a_tape_with_another_file_in_its_place_is_an_error_and_that_file_is_not_written_to(
    path: Path, swap: Callable[[Path, bytes], None], size: str, when: str
) -> None:
    there: list[bytes | None] = []

    def swapped() -> None:
        swap(path, SIZES[size](path.read_bytes()))
        there.append(path.read_bytes() if path.exists() else None)

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if when != "between turns" and request.site.turn == 2 and not there:
            swapped()
            if when == "when it is read in a turn":
                with pytest.raises(TapeError, match="is another file by now"):
                    simulation.tape.runs()  # type: ignore[union-attr]
        return answer(request)

    simulation = played(make_counter(path, replies=reply), 1)
    if when == "between turns":
        swapped()
    what = "it was deleted, replaced, overwritten or renamed.* open it again, or put the first back"
    for _ in range(2):
        with pytest.raises(TapeError, match=what):
            simulation.run(1)
        assert (path.read_bytes() if path.exists() else None) == there[0]
    assert not path.with_name("x.tape.cut").exists()


@pytest.mark.parametrize("text", [b"my notes\n", b"half a line", b"a\nb\n", "its own line"])
@pytest.mark.parametrize("taken", ["a file", "a link", "nothing"])
@pytest.mark.posix
def test_text_appended_in_a_turn_stops_the_run_which_writes_nothing_behind_it_and_continues(
    path: Path, text: Any, taken: str
) -> None:
    beside, mine = path.with_name("x.tape.cut"), path.with_name("mine")
    mine.write_text("precious")
    if taken == "a link":
        beside.symlink_to(mine)
    elif taken == "a file":
        beside.write_text("precious")
    there: list[bytes] = []

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.turn == 2 and not there:
            lines = path.read_bytes().splitlines(keepends=True)
            added = lines[-1] if isinstance(text, str) else text
            with path.open("ab") as file:
                file.write(added)
            there.extend((path.read_bytes(), added))
        return answer(request)

    run = played(make_counter(path, replies=reply), 1)
    with pytest.raises(TapeError, match=r"something else wrote to the end of .* while a run"):
        run.run(2)
    assert (path.read_bytes(), run.turn_number) == (there[0], 1)
    assert played(run, 1).turn_number == 2
    assert findings(path) == []
    cut = beside if taken == "nothing" else path.with_name("x.tape.cut2")
    assert cut.read_bytes() == there[1]
    assert mine.read_text() == "precious"
    assert taken == "nothing" or beside.read_text() == "precious"
    run.close()
    assert replay(path).turns == run.turns


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


PLACES: dict[str, Callable[[Path], object]] = {
    "a fifo": lambda path: os.mkfifo(path),
    "a socket": bind,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.posix
def test_what_is_no_file_in_a_tapes_place_is_an_error_and_no_wait(
    tmp_path: Path, kind: str, in_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = Path("x.tape")

    def swapped() -> None:
        path.rename("moved.tape")
        PLACES[kind](path)

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if in_turn and request.site.turn == 2 and path.is_file():
            swapped()
        return answer(request)

    run = played(make_counter(path, replies=reply), 1)
    if not in_turn:
        swapped()
    uses: list[Callable[[], object]] = [lambda: run.run(1), run.tape.runs, lambda: Tape(path)]
    for use in uses:
        with pytest.raises(TapeError):
            use()


# --- what cannot be written --------------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can reach; those above ``tmp_path`` are for one user only."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.process
def test_a_user_who_may_only_read_replays_and_is_told_so_when_writing(shared: Path) -> None:
    paths = [shared / "file" / "x.tape", shared / "folder" / "x.tape"]
    for path, mode in zip(paths, (0o777, 0o555), strict=True):
        path.parent.mkdir()
        recorded(make_counter(path), 2)
        path.with_name("x.tape.lock").unlink()
        path.chmod(0o444)
        path.parent.chmod(mode)
    before = paths[0].read_bytes(), paths[1].read_bytes()
    code = """
        import os
        from counter_kit import counter_client
        from llmsim_lab.errors import TapeError
        from llmsim_lab.run import replay, resume
        replay(sys.argv[1])  # imports all that it needs, which another user may not read
        if os.geteuid() == 0:
            os.setuid(65534)
        for path in sys.argv[1:]:
            print(replay(path).turn_number)
            try:
                resume(path, llm_client=counter_client())
            except TapeError as error:
                print(error)
        """
    said = run_program(code, *paths).splitlines()
    assert said[::2] == ["2", "2"]
    for error in said[1::2]:
        assert error.startswith("cannot write ")
        assert "ermission denied" in error
    assert (paths[0].read_bytes(), paths[1].read_bytes()) == before


@pytest.mark.process
def test_a_tape_that_cannot_be_made_or_pruned_for_a_full_disk_leaves_what_was_there(
    small: Path,
) -> None:
    code = """
        import resource
        from pathlib import Path
        from llmsim_lab.errors import TapeError
        from llmsim_lab.tape import Tape
        def limited(size, act):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            try:
                act()
            except TapeError as error:
                print(error, flush=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        path = Path(sys.argv[1])
        limited(50, lambda: Tape(path.with_name("new.tape")))
        with Tape(path) as tape:
            limited(500, lambda: tape.prune([3]))
    """
    before = small.read_bytes()
    said = run_program(code, small)
    assert said.splitlines() == [
        f"no tape can be opened at {small.with_name('new.tape')}: the disk is full",
        f"cannot write {small}: File too large",
    ]
    assert small.read_bytes() == before
    assert small.with_name("new.tape").stat().st_size == 0
    with Tape(small.with_name("new.tape")) as tape:
        add_run(tape)
    assert findings(small.with_name("new.tape")) == []
    assert {path.suffix for path in small.parent.iterdir()} == {".tape", ".lock"}
