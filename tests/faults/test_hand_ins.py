"""Hand-ins of a lesson and a tournament that set out to cheat, to spoil, or to stop a class."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from faults_kit import Attack, Case, Plan
from lessons_kit import WORLD, cell, write_notebook
from tape_text import sealed
from tapes_kit import HEAD, MANIFEST, run, turn

from llmsim_lab import data_path
from llmsim_lab.lessons import ProcessLimits, grade, tournament
from llmsim_lab.lessons.answers import LessonQuestion, key_of

pytestmark = pytest.mark.process

LIMITS = ProcessLimits(cpu_s=2, wall_s=20, memory_mb=400)
LONG_NAME = os.fsdecode(b"M\xfcller" + 245 * b"n")
"""In Latin-1, as old archives have names, and so long that an ending leaves little room."""
SHOWN_NAME = LONG_NAME.replace("\udcfc", "\\udcfc")
BODIES: dict[str, str] = {
    "raises": "return {}['oops']",
    "never ends": """
        while True:
            pass
    """,
    "sleeps": """
        import time
        time.sleep(600)
    """,
    "exits": """
        import os
        os._exit(0)
    """,
    "a fork bomb": """
        import os
        while True: os.fork()
    """,
    "a shell": """
        import os
        os.system('touch ' + TARGET)
    """,
    "a program": """
        import subprocess
        subprocess.run(['touch', TARGET])
    """,
    "kills its host": """
        import os
        os.kill(os.getppid(), 9)
    """,
    "fills memory": """
        kept = []
        while True: kept.append('x' * 10**6)
    """,
    "fills the disk": """
        number = 0
        while True:
            number += 1
            with open(f'f{number}', 'wb') as file: file.write(bytes(2**24))
    """,
    "deep folders": """
        import os, time
        for _ in range(1_100):
            os.mkdir('d')
            os.chdir('d')
        time.sleep(600)
    """,
    "one large file": "open('f', 'wb').write(bytes(200 * 2**20))",
    "prints": "while True: print('x' * 1000)",
    "much in one answer": "return 'C' * 10**7",
    "deep": """
        x = []
        for _ in range(900): x = [x]
        return x
    """,
    "half a character": r"return '\ud800'",
    "a huge number": "return 10**4000",
    "NaN": "return float('nan')",
    "calls home": """
        import socket
        socket.create_connection(('127.0.0.1', 9))
    """,
    "looks up a name": """
        import socket
        socket.getaddrinfo('example.org', 80)
    """,
    "writes over a file": "open(TARGET, 'w')",
    "writes through a link": """
        import os
        os.symlink(TARGET, 'x')
        open('x', 'w')
    """,
    "removes a file": """
        import os
        os.remove(TARGET)
    """,
    "renames a file": """
        import os
        os.rename(TARGET, 'mine')
    """,
    "changes a mode": """
        import os
        os.chmod(TARGET, 0)
    """,
    "a key of the environment": """
        import os
        found = [name for name in os.environ if 'KEY' in name]
        return 'D' if found else {}['no key']
    """,
    "threads": """
        import threading, time
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        time.sleep(600)
    """,
    "answers for its host": r"""
        import os
        for fd in range(3, 20):
            try: os.write(fd, b'{"result": {}}\n')
            except OSError: pass
        return 'C'
    """,
    "an endless repr": """
        class X:
            def __repr__(self):
                while True: pass
        raise ValueError(X())
    """,
    "an error of errors": """
        class X(Exception):
            def __str__(self): raise X()
        raise X()
    """,
    "recursion": "return play(question)",
    "patches json": """
        import json
        json.dumps = None
        return 'C'
    """,
}
"""Of a player's function, by what it does."""


def function_of(body: str) -> str:
    lines = textwrap.dedent(body).strip()
    return f"def play(question):\n{textwrap.indent(lines, '    ')}\n"


GOOD = function_of("return 'C'")
PLAYERS = {name: function_of(body) for name, body in BODIES.items()}
PLAYERS["no function"] = "x = 1\n"


def play(kinds: list[str], folder: Path) -> None:
    """Let them play with one that is sound; whatever they do, only they are out."""
    os.environ["OPENAI_API_KEY"] = "sk-never-to-be-seen"
    players = folder / "players"
    players.mkdir()
    target = f"TARGET = {str(folder / 'mine.txt')!r}\n\n"
    for number, kind in enumerate(kinds):
        (players / f"bad{number}.py").write_text(target + PLAYERS[kind])
    for name in ("good", LONG_NAME):
        (players / f"{name}.py").write_text(GOOD)
    sys.path.insert(0, str(data_path("templates")))
    world = importlib.import_module("prisoners_dilemma").PrisonersDilemma
    standings = tournament(
        players,
        world,
        rounds=2,
        seeds=1,
        also=["random"],
        folder=folder / "played",
        limits=LIMITS,
    )
    assert sorted(standings.to_frame()["player"]) == [SHOWN_NAME, "good", "random"]
    assert len(str(standings)) < 5_000
    nobody_left(folder)
    faults = {forfeit.player: forfeit.fault for forfeit in standings.forfeits}
    (folder / "faults.json").write_text(json.dumps(faults))


def is_out(number: int, folder: Path) -> None:
    assert json.loads((folder / "faults.json").read_text())[f"bad{number}"]


def nobody_left(folder: Path) -> None:
    """Check that nothing it started goes on, whoever its parent is by now."""
    others = [other for other in psutil.process_iter(["cwd"]) if other.pid != os.getpid()]
    assert not [other for other in others if str(other.info["cwd"]).startswith(str(folder))]


def players(plan: Plan) -> Iterator[Case]:
    """Yield ten at a time, each with a step of its own."""
    names = [name for name, _ in plan.chosen(PLAYERS, 3)]
    for start in range(0, len(names), 10):
        kinds = names[start : start + 10]
        out = {kind: partial(is_out, number) for number, kind in enumerate(kinds)}
        steps = {"play": partial(play, kinds), **out}
        # What their own processes use is not counted here.
        yield Case(f"from {start + 1}", steps, may_raise=False, wall_s=300)


def test_a_hand_in_of_a_tournament_costs_nobody_else_anything(attack: Attack) -> None:
    attack("hand-ins: players", players)


COMMAND = [sys.executable, "-P", "-c", "from llmsim_lab.cli import main; main()"]
WORDS = {
    "tournament": "Stopped. What is done is kept; run it again.\n",
    "grade": "Stopped. No grades were written; run it again.\n",
}


@pytest.mark.posix
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("verb", WORDS)
def test_ctrl_c_ends_the_command_in_a_line_and_all_that_it_started_as_a_kill_does(
    tmp_path: Path, verb: str, is_killed: bool
) -> None:
    (tmp_path / "in" / "ann").mkdir(parents=True)
    notebook("while True: pass")(tmp_path / "in" / "ann")
    (tmp_path / "in" / "bob.py").write_text(PLAYERS["never ends"])
    arguments = [verb, "in", "--cpu", "60"]
    if verb == "tournament":
        world = data_path("templates/prisoners_dilemma.py")
        arguments += ["--also", "random", "--world", str(world)]
    # A group of its own, all of which gets what a terminal sends.
    command = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    started: list[psutil.Process] = []
    while not any("_child.py" in part for other in started for part in other.cmdline()):
        assert command.poll() is None
        time.sleep(0.1)
        started = psutil.Process(command.pid).children(recursive=True)
    if is_killed:
        command.kill()
    else:
        os.killpg(command.pid, signal.SIGINT)
    _, words = command.communicate()
    if not is_killed:
        assert (command.returncode, words.decode()) == (130, WORDS[verb])
    psutil.wait_procs(started, timeout=5)
    nobody_left(tmp_path)


# --- hand-ins that are graded ---------------------------------------------------------------------


def notebook(source: str) -> Callable[[Path], object]:
    imports = "import json, os\nfrom llmsim_lab.lessons import grade_answer, answers"
    return lambda folder: write_notebook(folder / "x.ipynb", cell(imports), cell(source))


def made_up(*odd_parts: dict[str, Any]) -> Callable[[Path], object]:
    """Write a tape with right sums, whose runs say odd things of themselves."""

    def write(folder: Path) -> None:
        lines = [HEAD]
        for number, odd in enumerate(odd_parts, 1):
            manifest = {name: part for name, part in {**SOUND, **odd}.items() if part is not ...}
            lines += [run(number, manifest=manifest), turn(number, 0)]
        (folder / "x.tape").write_bytes(b"".join(sealed(lines)))

    return write


def tape_in_latin_1(folder: Path) -> None:
    made_up({})(folder)
    (folder / "x.tape").rename(folder / os.fsdecode(b"M\xfc.tape"))


def sparse_file(name: str, size: int) -> Callable[[Path], object]:
    """Write a file of zeros that takes no disk, nor much of an archive."""

    def write(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(size)

    return write


def notebook_of(**parts: object) -> Callable[[Path], object]:
    """Write a notebook of one cell that divides by zero, with odd parts."""
    content = {"cells": [{"cell_type": "code", "source": "1/0", **parts}]}
    return lambda folder: (folder / "x.ipynb").write_text(json.dumps(content))


SOUND: dict[str, Any] = {**MANIFEST, "seed": 0, "code": {"file": "x"}, "kind": "contract_net:X"}
ODD: dict[str, Any] = {"none": None, "a list": [1], "a number": 7, "a text": "x", "missing": ...}
HAND_INS: dict[str, Callable[[Path], object]] = {
    **{
        f"a tape whose {part} is {name}": made_up({part: value})
        for part in ("kind", "seed", "config", "llm", "model", "prompts", "code")
        for name, value in ODD.items()
    },
    "prompts without digests": made_up({"prompts": {"p": {}}}),
    "half a character in a model's name": made_up({"model": {"name": "\ud800"}}),
    "a tape whose name is not UTF-8": tape_in_latin_1,
    "code that is a list": made_up({"code": {"file": [1]}}),
    "seeds of two types": made_up({"seed": "1"}, {"seed": 2}),
    "seeds and none": made_up({"seed": None}, {"seed": 2}),
    "no tape": lambda folder: (folder / "x.tape").write_bytes(b"\x00" * 1000),
    "an empty tape": lambda folder: (folder / "x.tape").write_bytes(b""),
    "a sparse tape of 5 TB": sparse_file("x.tape", 5 * 10**12),
    "a sparse notebook": sparse_file("x.ipynb", 4 * 10**8),
    "20,000 files": lambda folder: [(folder / f"{at}").touch() for at in range(20_000)],
    "a fifo": lambda folder: os.mkfifo(folder / "x.tape"),
    "a fifo for a notebook": lambda folder: os.mkfifo(folder / "x.ipynb"),
    "a link to the class": lambda folder: (folder / "all").symlink_to(folder.parent),
    "a link to itself": lambda folder: (folder / "x").symlink_to(folder / "x"),
    "a key of its own": lambda folder: (folder / "lesson.key").symlink_to(
        folder.parents[1] / "mine.txt"
    ),
    "a world of its own": lambda folder: (folder / WORLD.name).write_text("raise SystemExit\n"),
    "no notebook": lambda folder: (folder / "x.ipynb").write_text("[1]"),
    "a notebook of wrong types": notebook_of(metadata=[3]),
    "tags of wrong types": notebook_of(metadata={"tags": 3}),
    "a deep notebook": lambda folder: (folder / "x.ipynb").write_text("[" * 100_000),
    "answers of 5,000 members": notebook("grade_answer(2, list(range(5_000)))"),
    "an answer beyond all": notebook("grade_answer(1, 10**4000)"),
    "an answer that is NaN": notebook("grade_answer(1, float('nan'))"),
    "half a character": notebook("grade_answer(3, '\\ud800')"),
    "a deep answer": notebook("x = []\nfor _ in range(90): x = [x]\ngrade_answer(2, x)"),
    "answers without grade_answer": notebook("answers.recorded.append(({}, [], 3))"),
    "answers that are none": notebook("answers.recorded = 17"),
    "answers for its host": notebook(
        "for fd in range(3, 20):\n  try: os.write(fd, b'{\"result\": 17}\\n' * 9)\n"
        "  except OSError: pass"
    ),
    "reads the key": notebook("print(open('lesson.key').read())\ngrade_answer(1, 9)"),
    "grades itself": notebook("answers.grade_answer = lambda *_: 'right'\nanswers.is_recording=1"),
    "a shell in a cell": notebook("!touch ../../../mine.txt"),
    "magic": notebook("%%bash\ntouch /tmp/x"),
    "fills the disk": notebook("for n in range(10**6):\n  open(f'f{n}', 'wb').write(bytes(2**24))"),
    "deep folders": notebook(
        "import time\nfor _ in range(1_100):\n  os.mkdir('d')\n  os.chdir('d')\ntime.sleep(600)"
    ),
    "never ends": notebook("while True: pass"),
    "a thread that stays": notebook(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"
    ),
}
QUESTIONS = [
    LessonQuestion(name="1", answer=0.5, tolerance=0.1),
    LessonQuestion(name="2", answer=["a", "b"]),
    LessonQuestion(name="3", answer="yes"),
]


def judge(kinds: list[str], folder: Path) -> None:
    """Grade them beside one that is sound, and write all pages."""
    (folder / "lesson.key").write_text(key_of(QUESTIONS).model_dump_json())
    for number, kind in enumerate(kinds):
        bad = folder / "in" / f"bad{number}"
        bad.mkdir(parents=True)
        HAND_INS[kind](bad)
    for name in ("good", LONG_NAME):
        good = folder / "in" / name
        good.mkdir(parents=True)
        notebook("grade_answer(1, 0.5)")(good)
    limits = ProcessLimits(cpu_s=8, wall_s=200, memory_mb=1_000, printed=10**6)
    grades = grade(folder / "in", key=folder / "lesson.key", world=WORLD, limits=limits)
    grades.write(folder / "out")
    assert (folder / "out" / "index.html").stat().st_size < 5_000_000
    assert len(str(grades)) < 50_000
    nobody_left(folder)
    found = {hand_in.name: [hand_in.points, hand_in.faults] for hand_in in grades}
    assert found.pop("good") == [1, []]
    assert found.pop(SHOWN_NAME) == [1, []]
    (folder / "faults.json").write_text(json.dumps(found))


def has_no_points(number: int, folder: Path) -> None:
    points, faults = json.loads((folder / "faults.json").read_text())[f"bad{number}"]
    assert points == 0, faults
    assert len(str(faults)) < 2_000


def hand_ins(plan: Plan) -> Iterator[Case]:
    """Yield a class of them at a time, each with a step of its own."""
    names = [name for name, _ in plan.chosen(HAND_INS, 3)]
    for start in range(0, len(names), 30):
        kinds = names[start : start + 30]
        judged = {kind: partial(has_no_points, number) for number, kind in enumerate(kinds)}
        steps = {"grade": partial(judge, kinds), **judged}
        # A try of an answer takes its time, and they are many.
        yield Case(f"from {start + 1}", steps, cpu_s=20, may_raise=False, wall_s=600)


def test_a_hand_in_that_is_graded_gets_its_own_points_and_stops_no_other(attack: Attack) -> None:
    attack("hand-ins: graded", hand_ins)
