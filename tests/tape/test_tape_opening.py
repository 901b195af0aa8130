"""Opening a file: a tape is read whole by anybody; anything else is refused and left as it is."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from llmsim_lab.tape._codec import call_of
from tape_kit import bytes_in, hash_client, make_recorded, steady_config

from llmsim_lab.errors import LabError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run import fork, load, replay, rerun, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify

NOBODY = 65534


def finished(path: Path, **options: Any) -> Path:
    """A tape at rest: its run over, nobody has it open."""
    simulation = make_recorded(path, **options)
    simulation.close()
    assert simulation.tape is not None
    simulation.tape.close()
    assert not path.with_name(f"{path.name}-wal").exists()
    return path


def script(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run code in another process."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done


# --- what is no tape ---------------------------------------------------------------------------


def _other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (id)")
    connection.close()


def _newer_tape(path: Path) -> None:
    finished(path, turns=1)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = '3' WHERE key = 'format'")
    connection.commit()
    connection.close()


def _first_format(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {0x4C534C42}")
    connection.execute(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
    )
    connection.execute("INSERT INTO meta VALUES ('format', '1')")
    connection.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    connection.commit()
    connection.close()


def _unnamed_format(path: Path) -> None:
    finished(path, turns=1)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = 'soon' WHERE key = 'format'")
    connection.commit()
    connection.close()


def _cut(length: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        finished(path, turns=1)
        path.write_bytes(path.read_bytes()[:length])

    return make


NO_TAPES: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("turn,rate\n0,4\n" * 50), "it is not an SQLite file"),
    "short text": (lambda path: path.write_text("x"), "it is not an SQLite file"),
    "zeros": (lambda path: path.write_bytes(bytes(8192)), "it is not an SQLite file"),
    "another program's database": (_other_database, "SQLite file of another program"),
    "newer": (
        _newer_tape,
        r"^the tape \S+ has format 3; this version of llmsim_lab reads format 2: install a newer",
    ),
    "first format": (
        _first_format,
        r"^the tape \S+ has format 1, which is not read any more.*record the run again",
    ),
    "format without a number": (_unnamed_format, r"^the tape \S+ names no format; it is damaged$"),
    "folder": (lambda path: path.mkdir(), "cannot read the tape"),
    "cut in the header": (_cut(60), "SQLite file of another program"),
    "cut in the first page": (_cut(2000), "cannot open the tape"),
    "cut after the first page": (_cut(4096), "cannot open the tape"),
}


@pytest.mark.parametrize("kind", NO_TAPES)
@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "reading"])
def test_what_is_no_tape_is_refused_and_left_as_it_is(
    tmp_path: Path, kind: str, read_only: bool
) -> None:
    make, message = NO_TAPES[kind]
    path = tmp_path / "x.tape"
    make(path)
    before = bytes_in(tmp_path)
    with pytest.raises(TapeError, match=message) as caught:
        Tape(path, read_only=read_only)
    assert str(path) in str(caught.value)
    assert bytes_in(tmp_path) == before


@pytest.mark.parametrize("verb", [load, replay, resume, rerun, fork])
def test_no_verb_makes_a_tape_of_a_file_that_is_missing_or_empty(
    tmp_path: Path, verb: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tape"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TapeError, match=re.escape(f"there is no tape at {path}")):
        verb("x.tape")  # the message says where it was looked for
    assert bytes_in(tmp_path) == {}
    path.touch()
    before = bytes_in(tmp_path)
    with pytest.raises(TapeError, match="there is no tape at"):
        verb(path)
    assert bytes_in(tmp_path) == before


def test_what_cannot_be_read_is_an_error_that_names_the_file_and_why(tmp_path: Path) -> None:
    path = _template(tmp_path)
    with Tape(path, read_only=True) as tape, pytest.raises(TapeError) as caught:
        tape.file.query("SELECT absent FROM calls")
    assert str(caught.value) == f"cannot read the tape {path}: no such column: absent"


def test_an_empty_file_becomes_a_tape_when_it_is_to_be_written(tmp_path: Path) -> None:
    path = tmp_path / "x.tape"
    path.touch()
    assert len(finished(path, turns=1).read_bytes()) > 4096
    assert load(path).turn_number == 1


def test_a_tape_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="cannot open the tape"):
        Tape(tmp_path / "nowhere" / "x.tape")
    assert bytes_in(tmp_path) == {}


@pytest.mark.parametrize("name", ["with space.tape", "a?b#c%20d.tape", "töpfe 磁带.tape", "x"])
def test_a_tape_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = finished(tmp_path / name, turns=1)
    assert list(bytes_in(tmp_path)) == [name]
    assert replay(path).turn_number == 1
    assert list(bytes_in(tmp_path)) == [name]


@pytest.mark.parametrize("run", [0, 2, -1])
def test_a_run_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, run: int) -> None:
    path = finished(tmp_path / "x.tape", turns=1)
    with pytest.raises(TapeError, match=f"has no run {run}; it has: 1"):
        replay(path, run)


def test_a_tape_without_a_run_says_so(tmp_path: Path) -> None:
    Tape(tmp_path / "x.tape").close()
    with pytest.raises(TapeError, match="holds no run"):
        replay(tmp_path / "x.tape")


# --- damage ------------------------------------------------------------------------------------


def use_all(path: Path) -> None:
    """Read everything there is, in every way."""
    with Tape(path, read_only=True) as tape:
        for info in tape.runs():
            tape.calls(info.id, forgotten=True)
            tape.calls_frame(info.id)
            tape.turns_frame(info.id)
            tape.turn_records(info.id)
            str(tape.tree())
            load(tape, info.id)
            replay(tape, info.id)


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_raise_an_error_of_ours_or_do_no_harm(tmp_path: Path, seed: int) -> None:
    path = _template(tmp_path)
    source = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(source.choice([1, 3, 20, 200])):
        place = source.randrange(100, len(data))
        data[place] = source.randrange(256)
    path.write_bytes(data)
    before = bytes_in(tmp_path)
    with suppress(LabError):
        use_all(path)
    assert bytes_in(tmp_path) == before


@pytest.mark.parametrize("kept", [0.15, 0.5, 0.9, 0.99])
def test_a_tape_that_was_cut_off_raises_an_error_of_ours(tmp_path: Path, kept: float) -> None:
    path = _template(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    before = bytes_in(tmp_path)
    with pytest.raises(TapeError, match="tape"):
        use_all(path)
    assert bytes_in(tmp_path) == before


_made: dict[str, bytes] = {}


def _template(folder: Path) -> Path:
    """A copy of one and the same tape."""
    path = folder / "x.tape"
    if "x" not in _made:
        _made["x"] = finished(path, turns=2, faulty=True).read_bytes()
    path.write_bytes(_made["x"])
    return path


DEEP = "[" * 100_000
GARBAGE = [
    "",
    "{",
    "null",
    "[]",
    "{}",
    "7",
    '"text"',
    '{"a": NaN}',
    DEEP,
    "\udfff".encode("utf-8", "surrogatepass"),
]
COLUMNS = [
    ("runs", "manifest"),
    ("turns", "record"),
    ("calls", "messages"),
    ("calls", "reply"),
    ("calls", "fault"),
    ("texts", "text"),
]


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=lambda value: str(value))
@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda value: str(value)[:8] or "empty")
def test_garbage_in_a_column_raises_an_error_of_ours(
    tmp_path: Path, table: str, column: str, garbage: str | bytes
) -> None:
    path = _template(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {table} SET {column} = ?", (garbage,))
    connection.commit()
    connection.close()
    before = bytes_in(tmp_path)
    with pytest.raises(LabError):
        use_all(path)
    assert bytes_in(tmp_path) == before


@pytest.mark.parametrize("key", ["config", "prompts", "given", "llm", "package", "model"])
@pytest.mark.parametrize("value", [None, 5, [], {}, "x", {"x": {"y": 1}}], ids=str)
def test_a_manifest_that_holds_something_else_raises_an_error_of_ours_or_does_no_harm(
    tmp_path: Path, key: str, value: Any
) -> None:
    path = _template(tmp_path)
    connection = sqlite3.connect(path)
    manifest = json.loads(connection.execute("SELECT manifest FROM runs").fetchone()[0])
    for changed in ({**manifest, key: value}, {k: v for k, v in manifest.items() if k != key}):
        connection.execute("UPDATE runs SET manifest = ?", (json.dumps(changed),))
        connection.commit()
        with suppress(LabError):
            use_all(path)
        with suppress(LabError):
            resume(path, llm_client=hash_client()).close()
    connection.close()


@pytest.mark.parametrize("column", ["record", "row"])
def test_a_turns_record_with_parts_missing_raises_an_error_of_ours(
    tmp_path: Path, column: str
) -> None:
    path = _template(tmp_path)
    connection = sqlite3.connect(path)
    sql = f"SELECT {column} FROM turns WHERE turn = 2"
    whole = json.loads(connection.execute(sql).fetchone()[0])
    for key in whole if column == "record" else []:
        for value in (None, 5, "x", [[]], [5], [{}], {"x": 1}):
            text = json.dumps({**whole, key: value})
            connection.execute(f"UPDATE turns SET {column} = ? WHERE turn = 2", (text,))
            connection.commit()
            with suppress(LabError):
                use_all(path)
    connection.close()


SCHEMAS = {
    "a view in the place of a table": (
        "ALTER TABLE runs RENAME TO hidden; CREATE VIEW runs AS WITH RECURSIVE n(i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n"
    ),
    "another view": "CREATE VIEW more AS SELECT 1",
    "a trigger": "CREATE TRIGGER evil AFTER INSERT ON calls BEGIN DELETE FROM runs; END",
    "a generated column": (
        "ALTER TABLE turns ADD COLUMN big TEXT AS (hex(zeroblob(1000000000))) VIRTUAL"
    ),
    "a default": "ALTER TABLE texts ADD COLUMN more TEXT DEFAULT 'x'",
    "an index": "CREATE INDEX more ON calls (key)",
    "an index missing": "DROP INDEX calls_by_turn",
    "a table": "CREATE TABLE more (id)",
    "a column's name": 'ALTER TABLE texts ADD COLUMN "\x1b[2J" TEXT',
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "reading"])
def test_a_file_of_any_other_schema_is_not_opened(
    tmp_path: Path, name: str, read_only: bool
) -> None:
    path = _template(tmp_path)
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMAS[name])
    connection.close()
    before = bytes_in(tmp_path)
    with pytest.raises(TapeError, match=r"cannot open the tape .*(no tape has|not a tape's|lacks)"):
        Tape(path, read_only=read_only)
    assert bytes_in(tmp_path) == before


def test_ctrl_c_reaches_python_in_the_middle_of_a_long_statement(tmp_path: Path) -> None:
    with Tape(tmp_path / "x.tape") as tape:
        timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                tape.file.query(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
                    "SELECT count(*) FROM n"
                )
        finally:
            signal.signal(signal.SIGINT, before)
            timer.cancel()
        assert tape.runs() == []


# --- reading only ------------------------------------------------------------------------------


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    path = finished(tmp_path / "x.tape", turns=2)
    before = bytes_in(tmp_path)
    use_all(path)
    assert bytes_in(tmp_path) == before


def test_nothing_can_be_written_through_a_tape_opened_for_reading(tmp_path: Path) -> None:
    path = finished(tmp_path / "x.tape", turns=2)
    before = bytes_in(tmp_path)
    with Tape(path, read_only=True) as tape:
        with pytest.raises(TapeError, match="opened for reading only"):
            tape.end_run(1, "done")
        with pytest.raises(TapeError, match="opened for reading only"):
            Simulation(steady_config(), llm_client=hash_client(), tape=tape)
        for verb in (rerun, resume):
            with pytest.raises(TapeError, match="opened for reading only"):
                verb(tape, llm_client=hash_client())
        with pytest.raises(TapeError):
            tape.file.query("DELETE FROM calls")
    assert bytes_in(tmp_path) == before


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can reach; those above ``tmp_path`` are for one user only."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.process
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_user_who_may_only_read_replays(shared: Path, what: str) -> None:
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("becoming another user needs root; as oneself, the mode bits are enough")
    folder = shared
    path = finished(folder / "x.tape", turns=2)
    path.chmod(0o444)
    folder.chmod(0o555 if what == "folder" else 0o777)
    before = bytes_in(folder)
    done = script(
        f"""
        import os, sys
        from llmsim_lab.errors import TapeError
        from llmsim_lab.llm import Tape
        from llmsim_lab.run import replay
        replay(sys.argv[1])  # imports all that it needs, which nobody may not read
        os.setuid({NOBODY})
        print(replay(sys.argv[1]).turn_number)
        try:
            Tape(sys.argv[1])
        except TapeError as error:
            print(type(error).__name__, error)
        """,
        path,
    )
    first, second = done.stdout.splitlines()
    assert first == "2"
    assert second.startswith("TapeError cannot open the tape")
    assert bytes_in(folder) == before


@pytest.mark.parametrize("log", [[], ["x.tape-wal"]], ids=["at rest", "beside an empty log"])
def test_a_tape_on_a_disk_mounted_for_reading_replays(tmp_path: Path, log: list[str]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    path = finished(disk / "x.tape", turns=2)
    for name in log:
        (disk / name).touch()
    commands = (f"mount --bind {disk} {disk}", f"mount -o remount,bind,ro {disk}")
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode:
            subprocess.run(["umount", "-l", str(disk)], capture_output=True, check=False)
            pytest.skip(f"mounting is not allowed here ({done.stderr.strip()})")
    try:
        assert replay(path).turn_number == 2
        assert sorted(bytes_in(disk)) == ["x.tape", *log]
        with pytest.raises(TapeError, match="cannot open the tape"):
            Tape(path)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.process
def test_the_log_of_a_writer_that_died_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "x.tape"
    script(
        """
        import asyncio, os, sys
        sys.path[:0] = sys.argv[2:]
        from pathlib import Path
        from tape_kit import make_recorded
        run = make_recorded(Path(sys.argv[1]), turns=2)
        asyncio.run(run.step())
        os._exit(0)
        """,
        path,
        Path(__file__).parent,
        Path(__file__).parents[1],
    )
    assert path.with_name("x.tape-wal").stat().st_size > 0
    assert replay(path).turn_number == 3
    with Tape(path, read_only=True) as tape:
        assert [info.turns for info in tape.runs()] == [3]


# --- several at once ---------------------------------------------------------------------------


@pytest.mark.process
def test_others_read_while_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.tape"
    simulation = make_recorded(path, turns=1)
    seen = []
    with Tape(path, read_only=True) as early:
        for _ in range(3):
            seen.append((early.run().turns, len(load(early).turns)))
            simulation.run(1)
        done = script(
            "import sys\nfrom llmsim_lab.run import replay\nprint(replay(sys.argv[1]).turn_number)",
            path,
        )
    assert seen == [(1, 2), (2, 3), (3, 4)]
    assert done.stdout == "4\n"
    simulation.run(1)
    assert load(path).turns == simulation.turns


HOLD = """
    import sys
    sys.path[:0] = sys.argv[2:]
    from tape_kit import hash_client
    from llmsim_lab.run import resume
    run = resume(sys.argv[1], llm_client=hash_client())
    run.run(1)
    print("recording", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_two_processes_do_not_write_to_one_run(tmp_path: Path) -> None:
    path = finished(tmp_path / "x.tape", turns=1)
    here = Path(__file__).parent
    command = [sys.executable, "-c", textwrap.dedent(HOLD), str(path), str(here), str(here.parent)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "recording\n"
            with pytest.raises(TapeError, match=rf"recorded by process {other.pid}.*fork the run"):
                resume(path, llm_client=hash_client())
            branch = fork(path, llm_client=hash_client())
            branch.run(1)
            assert load(path, 1).turn_number == 2
        finally:
            other.kill()
    resumed = resume(path, 1, llm_client=hash_client())
    resumed.run(1)
    assert resumed.turn_number == 3
    assert replay(path, 1).turns == resumed.turns


def test_a_second_writer_in_this_process_hears_of_the_first_and_close_lets_it_in(
    tmp_path: Path,
) -> None:
    first = make_recorded(tmp_path / "x.tape", turns=1)
    with pytest.raises(TapeError, match=r"another simulation of this process.*close\(\) it"):
        resume(tmp_path / "x.tape", llm_client=hash_client())
    first.close()
    second = resume(tmp_path / "x.tape", llm_client=hash_client())
    second.run(1)
    for refused in (lambda: first.run(1), lambda: first.intervene(1, set={"inflation": 1})):
        with pytest.raises(TapeError, match=r"was closed by this simulation; resume\("):
            refused()
    second.run(1)
    assert replay(tmp_path / "x.tape").turns == second.turns


def test_a_simulation_that_is_gone_gives_its_run_back(tmp_path: Path) -> None:
    make_recorded(tmp_path / "x.tape", turns=1)
    import gc

    gc.collect()
    assert resume(tmp_path / "x.tape", llm_client=hash_client()).turn_number == 1


def test_a_run_given_back_in_the_middle_of_a_write_spoils_neither(tmp_path: Path) -> None:
    with Tape(tmp_path / "x.tape") as tape:
        first = Simulation(steady_config(), llm_client=hash_client(), tape=tape)
        second = Simulation(steady_config(), llm_client=hash_client(), tape=tape)
        with tape.file.transaction() as connection:
            connection.execute("UPDATE runs SET name = 'renamed' WHERE id = 2")
            first.close()
        second.run(1)
        names = [(info.name, info.turns) for info in tape.runs()]
        assert names == [("steady", 0), ("renamed", 1)]
        assert resume(tape, 1, llm_client=hash_client()).turn_number == 0


def _claimed(path: Path, writer: str) -> Path:
    finished(path, turns=1)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET writer = ?", (writer,))
    connection.commit()
    connection.close()
    return path


def _here(pid: int, since: float) -> str:
    import socket

    return json.dumps({"host": socket.gethostname(), "pid": pid, "since": since})


@pytest.mark.process
def test_a_dead_writers_entry_is_passed_over(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    path = _claimed(tmp_path / "x.tape", _here(child.pid, 1.0))
    assert resume(path, llm_client=hash_client()).turn_number == 1


def test_another_process_with_a_dead_writers_number_is_not_taken_for_it(tmp_path: Path) -> None:
    path = _claimed(tmp_path / "x.tape", _here(os.getppid(), 1.0))
    assert resume(path, llm_client=hash_client()).turn_number == 1


@pytest.mark.parametrize(
    ("writer", "message"),
    [
        (json.dumps({"host": "elsewhere", "pid": 7, "since": 1.0}), "on elsewhere .process 7."),
        ("{}", "is damaged"),
        ("7", "is damaged"),
        ("{", "is damaged"),
    ],
)
def test_a_writer_who_cannot_be_looked_for_is_believed_until_the_run_is_released(
    tmp_path: Path, writer: str, message: str
) -> None:
    path = _claimed(tmp_path / "x.tape", writer)
    with pytest.raises(TapeError, match=message) as caught:
        resume(path, llm_client=hash_client())
    if writer != "{":
        assert f"Tape({str(path)!r}).release(1)" in str(caught.value)
    with Tape(path) as tape:
        tape.release(1)
    assert resume(path, llm_client=hash_client()).turn_number == 1


@pytest.mark.process
def test_two_processes_that_make_a_tape_at_the_same_time_both_get_it(tmp_path: Path) -> None:
    code = "import sys; from llmsim_lab.llm import Tape; print(len(Tape(sys.argv[1])))"
    for number in range(2):
        command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / f"{number}.tape")]
        both = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(2)
        ]
        assert [child.communicate()[0] for child in both] == ["0\n", "0\n"]


@pytest.mark.process
@pytest.mark.parametrize("written", [512, 4_096, 8_192, 20_480])
def test_a_tape_whose_maker_was_killed_while_making_it_is_made_again(
    tmp_path: Path, written: int
) -> None:
    script = """
        import resource, signal, sys
        from llmsim_lab.tape import Tape
        # The write that would make a file larger than this ends the process.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
        Tape(sys.argv[1])
    """
    path = tmp_path / "x.tape"
    command = [sys.executable, "-c", textwrap.dedent(script), path, str(written)]
    done = subprocess.run(command, check=False, timeout=60)
    assert done.returncode == -signal.SIGXFSZ
    assert path.stat().st_size == written
    with pytest.raises(TapeError, match="there is no tape at"):
        Tape(path, read_only=True)
    with Tape(path) as tape:
        assert verify(tape) == []
    assert [file.name for file in tmp_path.iterdir()] == ["x.tape"]


def test_the_pages_of_a_tape_that_was_never_whole_are_taken_back_by_a_reader_too(
    tmp_path: Path,
) -> None:
    """Left as a kill leaves it: some of the pages, and a journal that says there were none."""
    path = tmp_path / "x.tape"
    Tape(path).close()
    path.write_bytes(path.read_bytes()[:8_192])
    with pytest.raises(TapeError, match=r"was cut off, 8,192 of 36,864 bytes"):
        Tape(path)
    journal = bytes.fromhex("d9d505f920a163d7 00000000 00000000 00000000 00000200 00001000")
    path.with_name("x.tape-journal").write_bytes(journal.ljust(512, b"\0"))
    for _ in range(2):
        with pytest.raises(TapeError, match="there is no tape at"):
            Tape(path, read_only=True)
    with Tape(path) as tape:
        assert verify(tape) == []


def test_a_run_with_a_turn_missing_is_refused_by_the_gap(tmp_path: Path) -> None:
    path = finished(tmp_path / "gap.tape", turns=4)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM turns WHERE turn = 2")
    connection.close()
    with pytest.raises(TapeError, match=r"run 1 .* is damaged: turn 3 follows turn 1; .*verify"):
        load(path)


_CALL = {"name": "t", "arguments": {}}
_MESSAGE = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_REPLY = {"text": "!"}
_SETTINGS = {
    "model": "m",
    "schema": None,
    "tools": [],
    "options": {},
    "think": None,
    "keep_alive": None,
    "timeout_s": 1.0,
}
_ROW = {
    "id": 1,
    "run": 1,
    "key": b"k",
    "turn": 1,
    "component": "agent",
    "agent": "Aland",
    "replicate": 0,
    "attempt": 1,
    "seconds": 1.0,
    "forgotten": 0,
    "fault": None,
    "origin": None,
    "spans": None,
}


@pytest.mark.parametrize(
    ("part", "values"),
    [
        *(("row", {"turn": "1"}), ("row", {"component": 1}), ("row", {"agent": 1})),
        *(("row", {"replicate": None}), ("row", {"attempt": "1"}), ("row", {"attempt": 1.0})),
        *(("row", {"seconds": "1"}), ("row", {"key": "k"}), ("row", {"forgotten": None})),
        *(("row", {"origin": "1"}), ("row", {"spans": b"[]"}), ("row", {"origin": 1})),
        ("row", {"spans": "[]"}),
        *(("settings", {"model": 1}), ("settings", {"schema": []}), ("settings", {"options": []})),
        *(("settings", {"think": 1}), ("settings", {"keep_alive": []})),
        *(("settings", {"timeout_s": "1"}), ("settings", {"tools": ["x"]})),
        *(("settings", {"more": 1}), ("settings", {"system": 1})),
        *(("message", {"role": "boss"}), ("message", {"content": None})),
        *(("message", {"tool_name": 1}), ("message", {"more": 1})),
        *(("reply", {"text": None}), ("reply", {"thinking": None}), ("reply", {"more": 1})),
        *(("reply", {"done_reason": None}), ("reply", {"prompt_tokens": "1"})),
        *(("reply", {"prompt_tokens": True}), ("reply", {"reply_tokens": 1.5})),
        *(("reply", {"seconds": "1"}), ("reply", {"load_seconds": None})),
        *(("call", {"name": 1}), ("call", {"arguments": []}), ("call", {"id": 1})),
        *(("fault", {0: "bored"}), ("fault", {1: None}), ("fault", {2: "1"}), ("fault", {3: 1})),
    ],
)
def test_each_part_of_a_call_is_of_its_type(part: str, values: dict[Any, Any]) -> None:
    def made(name: str, whole: dict[Any, Any]) -> dict[Any, Any]:
        return whole | values if part == name else whole

    message = made("message", _MESSAGE) | {"tool_calls": [made("call", _CALL)]}
    fault = made("fault", dict(enumerate(["timeout", "late", None, True])))
    row = made("row", _ROW) | {
        "messages": json.dumps([message]),
        "reply": json.dumps(made("reply", _REPLY)),
        "fault": json.dumps(list(fault.values())),
    }
    with pytest.raises(TapeError, match="call 1 on the tape is damaged: "):
        call_of(row, json.dumps(made("settings", _SETTINGS)))
