"""Hand-ins judged: which runs can be compared, which tapes count, what notebooks answered."""

from __future__ import annotations

import hashlib
import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from lessons_kit import TALKS, SameProcess, cell, model, recorded, write_notebook
from page_kit import PageData

from llmsim_lab.lessons import ProcessLimits, grade
from llmsim_lab.lessons.answers import LessonQuestion, key_of
from llmsim_lab.lessons.grading import Expected, arms_of, design_faults
from llmsim_lab.lessons.notebooks import run_notebook
from llmsim_lab.tape import RunInfo

LOUD, QUIET = {"loud": True}, {"loud": False}
TWO_ARMS = [recorded(seed, arm=arm) for arm in (QUIET, LOUD) for seed in (0, 1)]
LARGE = {"name": "large", "digest": "d2"}
LARGE_QUIET = [recorded(seed, arm=QUIET, model=LARGE) for seed in (0, 1)]


def with_loud(**changed: Any) -> list[RunInfo]:
    """Return the runs of two arms, of which those of the second differ."""
    return [*TWO_ARMS[:2], *(recorded(seed, arm=LOUD, **changed) for seed in (0, 1))]


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([], {}),
        ([recorded(1), recorded(0)], {"": 2}),
        (TWO_ARMS, {"loud=false": 2, "loud=true": 2}),
        ([recorded(arm={"who": "a"}), recorded()], {"who=a": 1, "who=none": 1}),
        (
            [recorded(prompts=("0a1b2c3d9",)), recorded(prompts=("ffffffff0", "eeeeeeee0"))],
            {"prompts=0a1b2c3d": 1, "prompts=eeeeeeee, ffffffff": 1},
        ),
        # Alike in all that is shown of a digest.
        ([recorded(prompts=("0a1b2c3d9",)), recorded(prompts=("0a1b2c3d8",))], {"": 2}),
    ],
)
def test_arms_are_called_by_what_differs_between_them(
    runs: list[RunInfo], labels: dict[str, int]
) -> None:
    arms = arms_of(runs)
    assert {label: len(of_arm) for label, of_arm in arms.items()} == labels
    assert [run for of_arm in arms.values() for run in of_arm] == runs


@pytest.mark.parametrize(
    ("runs", "expected", "faults"),
    [
        ([], {}, []),
        ([], {"seeds": 2}, ["it has no runs"]),
        ([], {"arms": 1, "seeds": 2}, ["it has no runs, and 1 arm were asked for"]),
        (TWO_ARMS, {"arms": 2, "seeds": 2}, []),
        (TWO_ARMS, {"arms": 3}, ["it has 2 arms, not 3"]),
        ([recorded(0)], {"arms": 2}, ["it has 1 arm, not 2"]),
        (
            TWO_ARMS,
            {"seeds": 3},
            ["loud=false has 2 seeds, not 3", "loud=true has 2 seeds, not 3"],
        ),
        ([recorded(0), recorded(0)], {"seeds": 2}, ["it has 1 seed, not 2"]),
        (
            TWO_ARMS[:3],
            {},
            ["not the same seeds in all arms (loud=false: 0, 1; loud=true: 0)"],
        ),
        (
            with_loud(model=LARGE),
            {},
            ["not the same model in all arms (loud=false: small; loud=true: large)"],
        ),
        (with_loud(settings={"seed": 7}), {}, []),
        (
            with_loud(settings={"model": "mine"}),
            {},
            ["not the same model in all arms (loud=false: small; loud=true: small (mine))"],
        ),
        (
            with_loud(model={"digest": "d3"}),
            {},
            [
                "not the same model in all arms (loud=false: small; loud=true: small, with other "
                "weights or settings)"
            ],
        ),
        # A factor, if each arm has both.
        ([*TWO_ARMS, *with_loud(model=LARGE)[2:], *LARGE_QUIET], {}, []),
        (
            [recorded(0), recorded(1, code="another")],
            {},
            ["its runs are of 2 versions of the code"],
        ),
        (
            [recorded(0)],
            {"world": b"mine"},
            ["its runs are not of the code in talks.py"],
        ),
        ([recorded(0, code=hashlib.sha256(b"mine").hexdigest())], {"world": b"mine"}, []),
        (
            [
                recorded(0, outcome=None),
                recorded(1, outcome="failed: no model"),
                recorded(2, verb="rerun", outcome=None),
            ],
            {},
            ["seed 0 ended at turn 2: it was cut off", "seed 1 ended at turn 2: failed: no model"],
        ),
    ],
)
def test_runs_of_all_arms_are_of_one_model_and_code_with_the_same_seeds(
    runs: list[RunInfo], expected: dict[str, Any], faults: list[str], tmp_path: Path
) -> None:
    asked_for = dict(expected)
    if "world" in asked_for:
        asked_for["world"] = tmp_path / "talks.py"
        asked_for["world"].write_bytes(expected["world"])
    assert design_faults(runs, Expected(**asked_for)) == faults


@pytest.mark.parametrize(
    ("cells", "finished", "fault", "answers"),
    [
        (["x = 2", "grade_answer(1, x)\ngrade_answer(2, 'b')"], 2, "", {"1": 2, "2": "b"}),
        (
            ["1 / 0", "grade_answer(1, 3)", "oops", "grade_answer(1, 2)"],
            2,
            "cell 2: ZeroDivisionError",
            {"1": 2},
        ),
        ([cell("text", "markdown"), "  ", "1"], 1, "", {}),
        ([cell("1 / 0", tags=("raises-exception",)), "1"], 2, "", {}),
        ([cell("1 / 0", tags=("other",)), "1"], 1, "cell 2: ZeroDivisionError", {}),
        ([{**cell("1 / 0"), "metadata": {"tags": "raises-exception"}}], 0, "cell 2: Zero", {}),
        (["grade_answer(1, 2)", "END", "grade_answer(1, 3)"], 1, "cell 3: RuntimeE", {"1": 2}),
        ([cell("END", tags=("raises-exception",)), "1"], 0, "cell 2: RuntimeError: its proc", {}),
        (["TELL 5", "1"], 2, "cell 2: it gave its answers without grade_answer", {}),
        (["TELL [[1, 2]]"], 1, "cell 2: it gave its answers without grade_answer", {}),
        (['TELL [["1", 2, 3]]'], 1, "cell 2: it gave its answers without grade_answer", {}),
    ],
)
def test_a_notebooks_cells_run_one_by_one_and_the_first_fault_is_told(
    cells: list[Any],
    finished: int,
    fault: str,
    answers: dict[str, Any],
    same_process: list[SameProcess],
    tmp_path: Path,
) -> None:
    first = cell("from llmsim_lab.lessons import grade_answer")
    texts = [cell(source) if isinstance(source, str) else source for source in cells]
    notebook = tmp_path / "a.ipynb"
    write_notebook(notebook, first, *texts)
    result = run_notebook(SameProcess(tmp_path, ProcessLimits()), notebook, recording=True)  # type: ignore[arg-type]
    assert result.fault.startswith(fault)
    assert bool(result.fault) == bool(fault)
    assert (result.cells, result.answers) == (finished + 1, answers)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('{"cells": [', "it is not a notebook, or only a part of one: it breaks off or is broken"),
        ('{"cells": [{}]}', "it is not a notebook: it has no list of cells; save it anew in Jupy"),
        ("[1]", "it is not a notebook: it has no list of cells; save it anew in Jupyter"),
        ("END", "its process ended"),
    ],
)
def test_a_notebook_that_cannot_be_run_has_no_answers(
    content: str, fault: str, tmp_path: Path
) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text('{"cells": []}' if content == "END" else content)
    process = SameProcess(tmp_path, ProcessLimits())
    process.ends_at_once = content == "END"
    result = run_notebook(process, notebook)  # type: ignore[arg-type]
    assert (result.cells, result.answers) == (0, {})
    assert result.fault.startswith(fault)


def play(world: Any, tape: Path, *, turns: int = 2, name: str = "small", **settings: Any) -> None:
    run = world(llm_client=model(name), tape=tape, **settings)
    run.run(turns, progress=False)
    run.close()


HERE = "import lessons_kit\nlessons_kit.STARTED[-1]"
"""The process in which a hand-in's world runs."""


@pytest.fixture
def talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Play the world of ``handed/talks.py``: one of two arms, one seed, to a tape."""
    (tmp_path / "handed").mkdir()
    (tmp_path / "handed" / "talks.py").write_text(TALKS)
    monkeypatch.syspath_prepend(tmp_path / "handed")
    world = importlib.import_module("talks").Talks
    played = tmp_path / "played"
    played.mkdir()
    for loud in (False, True):
        for seed in (0, 1):
            tape = played / f"{'loud' if loud else 'quiet'}{seed}.tape"
            play(world, tape, loud=loud, seed=seed)
    yield world
    sys.modules.pop("talks", None)


def test_hand_ins_are_verified_replayed_compared_and_their_notebooks_graded(
    talks: Any,
    same_process: list[SameProcess],
    tmp_path: Path,
) -> None:
    handed, played, folder = tmp_path / "handed", tmp_path / "played", tmp_path / "in"
    questions = [LessonQuestion(name=name, answer=3, points=2) for name in ("1", "2", "3")]
    questions[1] = LessonQuestion(name="2", answer=0.5, tolerance=0.01)
    (handed / "lesson.key").write_text(key_of(questions).model_dump_json())
    shutil.copy(played / "loud0.tape", handed / "shown.tape")

    def hand_in(name: str, *tapes: str, world: str = TALKS, cells: tuple[str, ...] = ()) -> Path:
        (folder / name / "tapes").mkdir(parents=True)
        for tape in tapes:
            shutil.copy(played / f"{tape}.tape", folder / name / "tapes")
        (folder / name / "talks.py").write_text(world)
        if cells:
            imported = cell("from llmsim_lab.lessons import grade_answer")
            write_notebook(folder / name / "a.ipynb", imported, *map(cell, cells))
        return folder / name

    four = ("loud1", "quiet0", "quiet1")
    right = ("grade_answer(1, 3)\ngrade_answer(2, 50)", "grade_answer(3, 4)")
    play(talks, played / "new0.tape", loud=True, seed=0, turns=3)
    ann = hand_in("ann", "new0", *four, cells=right)
    # What Jupyter keeps, hidden files, links and what was handed out do not count.
    (ann / ".ipynb_checkpoints").mkdir()
    shutil.copy(ann / "a.ipynb", ann / ".ipynb_checkpoints" / "a-checkpoint.ipynb")
    (ann / "b.ipynb").symlink_to(ann / "a.ipynb")
    shutil.copy(handed / "shown.tape", ann)
    bob = hand_in("bob", "new0", *four)
    tape = bob / "tapes" / "new0.tape"
    tape.write_text(tape.read_text().replace('"yes":1', '"yes":0'))
    (bob / "x.tape").symlink_to("/dev/zero")
    (bob / "y.tape.gz").mkdir()
    # Two faults of its own world, and a process that ends at the first.
    cy = hand_in("cy", "quiet0", "quiet1", world=TALKS.replace('"Yes?"', '"No?"'))
    (cy / "tapes" / "deep").mkdir()
    (cy / "tapes" / "deep" / "talks.py").write_text("1 / 0")
    hand_in("di", cells=("1 / 0", "grade_answer(2, 0.5)"))
    (folder / "ed.zip").touch()
    hand_in("flo", "loud0")
    # A world that ends the process, and one that answers for it.
    hand_in("gus", "quiet0", "quiet1", world=f"{HERE}.alive = False\n1 / 0")
    answered = f"{HERE}._tasks['replay'] = lambda **_: '12'"
    hand_in("hal", "quiet0", "quiet1", world=f"{TALKS}\n{answered}")

    grades = grade(folder, key=handed / "lesson.key", parallel=1)
    rows = [" | ".join(map(str, hand_in.row().values())) for hand_in in grades]
    changed = (
        "tapes/new0.tape was changed: line 12, run 1: it was changed, or a line of its run before "
        "it was added, removed or moved"
    )
    other_prompt = [
        f"tapes/{tape} cannot be replayed: TapeMiss: run 1 has no recorded call for player of Ann, "
        "turn 1, attempt 1. From the nearest recorded one, the prompt differs: [-Yes?-]{+No?+} A "
        "replay takes the prompts, the configuration and the code of the recording; to continue "
        "with other ones, fork the run. Note that talks:Talks has changed since it was recorded: "
        "its file"
        for tape in ("quiet0.tape", "quiet1.tape")
    ]
    small = "scripted (small)"
    assert rows == [
        f"ann | 2.5 | 5.0 | True | 4 of 4 | 4 of 4 | {small} | 2 | 2 | 1 of 1 | ",
        f"bob | 0 | 5.0 | False | 3 of 6 | 3 of 3 | {small} | 2 | 1 or 2 | 0 of 0 | {changed}; "
        "x.tape is not a file; y.tape.gz is not a file; not the same seeds in all arms (loud=true: "
        "1; loud=false: 0, 1)",
        f"cy | 0 | 5.0 | False | 2 of 2 | 0 of 2 | {small} | 1 | 2 | 0 of 0 | "
        + "; ".join(other_prompt),
        "di | 1.0 | 5.0 | False | 0 of 0 | 0 of 0 |  | 0 |  | 0 of 1 | a.ipynb, cell 2: "
        "ZeroDivisionError: division by zero",
        "ed.zip | 0 | 5.0 | False | 0 of 0 | 0 of 0 |  | 0 |  | 0 of 0 | it is not a folder; "
        "unpack it, or put it into one",
        "flo | 0 | 5.0 | False | 0 of 0 | 0 of 0 |  | 0 |  | 0 of 0 | it has neither tapes nor "
        "notebooks of its own",
        f"gus | 0 | 5.0 | False | 2 of 2 | 0 of 2 | {small} | 1 | 2 | 0 of 0 | tapes/quiet0.tape "
        "cannot be replayed: ZeroDivisionError: division by zero",
        f"hal | 0 | 5.0 | False | 2 of 2 | 1 of 2 | {small} | 1 | 2 | 0 of 0 | tapes/quiet1.tape "
        "cannot be replayed: its world answered in place of the replay",
    ]
    assert str(grades).splitlines()[::3] == [
        "ann: 2.5 of 5 points, sound",
        "di: 1 of 5 points, a.ipynb, cell 2: ZeroDivisionError: division by zero",
        "gus: 0 of 5 points, tapes/quiet0.tape cannot be replayed: ZeroDivisionError: division by "
        "zero",
    ]
    assert [str(graded) for graded in grades[3].graded] == [
        "1: not yet. no answer",
        "2: right.",
        "3: not yet. no answer",
    ]

    # The same world for all, whatever lies in their folders.
    (cy / "talks.py").unlink()
    (cy / "talks.py").symlink_to(handed / "lesson.key")
    key, world = handed / "lesson.key", handed / "talks.py"
    grades = grade(folder, key=key, world=world, arms=2, seeds=2, parallel=1)
    assert {hand_in.name: hand_in.replayed for hand_in in grades if hand_in.runs} == {
        "ann": 4,
        "bob": 3,
        "cy": 2,
        "gus": 2,
        "hal": 2,
    }
    assert (handed / "lesson.key").read_text().startswith("{")
    faults = {hand_in.name: hand_in.faults for hand_in in grades}
    assert faults["cy"] == ["it has 1 arm, not 2"]
    assert faults["bob"][3] == "loud=true has 1 seed, not 2"
    assert faults["flo"] == ["it has no runs, and 2 arms were asked for"]
    index = grades.write(tmp_path / "new" / "out")
    text = unescape(index.read_text())
    assert text.index(">all hand-ins</caption>") < text.index('href="pages/ann.html"')
    table = pd.read_csv(tmp_path / "new" / "out" / "grades.csv", keep_default_na=False)
    assert table["hand-in"].to_list() == [hand_in.name for hand_in in grades]
    pages = tmp_path / "new" / "out" / "pages"
    runs = PageData(pages / "ann.html").runs
    tapes = ["loud1", "new0", "quiet0", "quiet1"]
    assert [run["name"] for run in runs.values()] == [f"tapes/{tape}.tape" for tape in tapes]
    assert list(runs) == [1, 2, 3, 4]
    assert "<script" not in (pages / "di.html").read_text()
    page = (pages / "bob.html").read_text()
    assert cells_in(page)[:22:2] == list(grades[1].row())
    assert cells_in(page)[22:] == [
        *("what is wrong", *grades[1].faults),
        *("question", "answer", ""),
        *("1", "wrong", "no answer", "2", "wrong", "no answer", "3", "wrong", "no answer"),
        *("arm", "seeds", "model"),
        *("loud=true", "1", small),
        *("loud=false", "0, 1", small),
    ]


@pytest.mark.process
def test_hand_ins_run_in_processes_which_end_at_their_limits(talks: Any, tmp_path: Path) -> None:
    key = tmp_path / "lesson.key"
    key.write_text(key_of([LessonQuestion(name="1", answer=3)]).model_dump_json())
    for name, code in (("ann", "grade_answer(1, 3)"), ("bob", "while True: pass")):
        folder = tmp_path / "in" / name
        shutil.copytree(tmp_path / "played", folder / "tapes")
        (folder / "talks.py").write_text(TALKS)
        imported = cell("%matplotlib inline\nfrom llmsim_lab.lessons import grade_answer")
        write_notebook(folder / "a.ipynb", imported, cell(code))
    limits = ProcessLimits(cpu_s=4, wall_s=200, memory_mb=2_048)
    ann, bob = grade(tmp_path / "in", key=key, limits=limits)
    assert (ann.faults, ann.replayed, ann.points) == ([], 4, 1)
    assert bob.faults == ["a.ipynb, cell 2: it used more than 4 s of the processor"]
    assert (bob.replayed, bob.points) == (4, 0)


def cells_in(page: str) -> list[str]:
    """Return what stands in the cells of all tables of a page."""
    return [unescape(text) for text in re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", page)]
