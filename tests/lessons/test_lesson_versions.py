"""One source becomes a student's notebook, a teacher's, and a key."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from lessons_kit import cell, write_notebook

from llmsim_lab.cli import main
from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons import grade, make_lesson
from llmsim_lab.lessons.notebooks import without_solutions

# By the rules in Otter's documentation of its notebook format.
MARKED = """
def cube(x):
    power = x * x  # SOLUTION NO PROMPT
    return power * x  # SOLUTION
eight = cube(2)  # SOLUTION
rng.seed(3)  # SEED
if eight:
    # BEGIN SOLUTION
    half = eight / 2
    # END SOLUTION
    print(half)
def area(r):
    # BEGIN SOLUTION NO PROMPT
    return r * r
    # END SOLUTION
    \"\"\" # BEGIN PROMPT
    # Return the area of a square.
    pass
    \"\"\"; # END PROMPT
"""
HANDED_OUT = """
def cube(x):
    ...
eight = ...
if eight:
    ...
    print(half)
def area(r):
    # Return the area of a square.
    pass
"""


def test_what_is_marked_as_in_otter_leaves_the_students_version_as_there() -> None:
    assert without_solutions(MARKED) == HANDED_OUT.rstrip("\n")


def test_what_cannot_be_copied_beside_a_lesson_is_said(tmp_path: Path) -> None:
    write_notebook(tmp_path / "bids.ipynb", cell("1"))
    (tmp_path / "tape").symlink_to("tape")
    with pytest.raises(ConfigError, match=r"cannot be copied: .*tape.*a folder of its own"):
        make_lesson(tmp_path / "bids.ipynb", tmp_path / "out")


def test_a_notebook_that_is_not_there_is_said_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*bids\.ipynb"):
        make_lesson(tmp_path / "bids.ipynb", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"is a folder; name the notebook in it: .*lesson\.ipynb"):
        make_lesson(tmp_path, tmp_path / "out")
    (tmp_path / "bids.ipynb").write_text('{"cells": [\n')
    with pytest.raises(ConfigError, match="broken in line 2; save it anew in Jupyter"):
        make_lesson(tmp_path / "bids.ipynb", tmp_path / "out")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("name: 1\n---\nname: 1", r"bids\.ipynb has two questions called 1"),
        ("name: [1", r"bids\.ipynb, cell 1: line"),
        ("points: 2", r"bids\.ipynb, cell 1: a question has a name"),
        ("- name", r"bids\.ipynb, cell 1: a question has a name"),
        ("name: 1\n2: x", r"bids\.ipynb, cell 1: LessonQuestion: 2: Extra inputs are not"),
    ],
)
def test_a_question_that_is_wrong_is_named_with_its_cell(
    question: str, said: str, tmp_path: Path
) -> None:
    texts = question.split("\n---\n")
    cells = [cell(f"# BEGIN QUESTION\n{text}", "raw") for text in texts]
    write_notebook(tmp_path / "bids.ipynb", *cells)
    with pytest.raises(ConfigError, match=said):
        make_lesson(tmp_path / "bids.ipynb", tmp_path / "out")


@pytest.mark.usefixtures("same_process")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("share = 0.25  # SOLUTION", "has no question: call grade_answer"),
        ("grade_answer(1, 1e999)", "question 1 has the answer inf"),
        ("1 / 0", "does not run, so that nothing is known to be right: cell 2: ZeroDivisionError"),
        ("grade_answer(1, 3)  # SOLUTION", "no grade_answer left in the student's version"),
    ],
)
def test_a_lesson_that_nobody_can_answer_is_not_made(code: str, said: str, tmp_path: Path) -> None:
    imported = cell("from llmsim_lab.lessons import grade_answer")
    write_notebook(tmp_path / "bids.ipynb", imported, cell(code))
    with pytest.raises(ConfigError, match=said):
        make_lesson(tmp_path / "bids.ipynb", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.process
def test_the_lesson_that_is_shipped_grades_its_solution_and_each_answer_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("new bids --from lesson", "lesson bids/lesson.ipynb --to out"):
        monkeypatch.setattr("sys.argv", ["llmsim-lab", *command.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    hand_ins = tmp_path / "in"
    shutil.copytree("out/teacher", hand_ins / "solved")
    for name in ("broken", "untouched"):
        shutil.copytree("out/student", hand_ins / name)
    student = json.loads(Path("out/student/lesson.ipynb").read_text())
    assert not [cell for cell in student["cells"] if "SOLUTION" in cell["source"]]
    [first] = [cell for cell in student["cells"] if "grade_answer(1, " in cell["source"]]
    first["source"] = "messages = 30\ngrade_answer(1, messages)\n1 / 0"
    [last] = [cell for cell in student["cells"] if "grade_answer(6, " in cell["source"]]
    last["source"] = "grade_answer(6, 1)\ngrade_answer(2, print)"
    (hand_ins / "broken" / "lesson.ipynb").write_text(json.dumps(student))

    broken, solved, untouched = grade(
        hand_ins, key="out/teacher/lesson.key", world="bids/contract_net.py"
    )
    assert (solved.points, solved.faults) == (5.5, [])
    assert (untouched.points, untouched.faults) == (0, [])
    assert [graded.text for graded in untouched.graded] == ["no answer"] * 6
    # A cell that fails does not cost the answers after it.
    assert broken.points == 2
    assert broken.faults == ["lesson.ipynb, cell 6: ZeroDivisionError: division by zero"]


@pytest.mark.usefixtures("same_process")
@pytest.mark.parametrize("to", ["out", "source"])
def test_students_get_what_is_not_marked_and_teachers_all_but_the_marks(
    to: str, tmp_path: Path
) -> None:
    source = tmp_path / "source" / "bids.ipynb"
    (source.parent / "data").mkdir(parents=True)
    for name in ("data/x.csv", ".hidden", "old.key", "other.ipynb", "data/deep.ipynb"):
        (source.parent / name).write_text("x")
    # A lesson that was made beside, in another folder.
    for name in ("answers.json", "bids.key", "x.csv"):
        (source.parent / "made").mkdir(exist_ok=True)
        (source.parent / "made" / name).write_text("x")
    (source.parent / "half").mkdir()
    (source.parent / "half" / "answers.json").write_text("x")
    run = {**cell("share = 2  # SOLUTION\ngrade_answer(1, share)"), "execution_count": 7}
    run["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "2"}]
    cells = [
        cell("# ASSIGNMENT CONFIG", "raw"),
        cell("Ümläut", "raw"),
        cell(["# Bids", "\n", "Read on."], "markdown"),
        cell("# BEGIN QUESTION\nname: 1\npoints: 2.5\nanswer: 3\nhint: count", "raw"),
        cell("from llmsim_lab.lessons import grade_answer"),
        run,
        cell("# END QUESTION", "raw"),
        cell(" **Solution**: it is 2", "markdown"),
        cell("<strong>SOLUTION:</strong> it is 2", "markdown"),
        cell("The **solution:** is in the text", "markdown"),
        cell("# BEGIN SOLUTION", "raw"),
        cell("secret = 4", tags=("teacher",)),
        cell("grade_answer('two', {'a', 'b'})", tags=("other",)),
    ]
    write_notebook(source, *cells)
    whole = json.loads(source.read_text())
    source.write_text(json.dumps({**whole, "metadata": {"kernel": "python"}}))
    (tmp_path / to / "student").mkdir(parents=True)  # an empty one has nothing of anybody's
    # The second time the first one's lies there, perhaps beside the source.
    for _ in range(2):
        key = make_lesson(source, tmp_path / to)
    points = {name: question.points for name, question in key.questions.items()}
    assert points == {"1": 2.5, "two": 1}
    # What the source says counts more than what its code gives.
    assert [str(key.grade(1, answer)) for answer in (3, 2)] == ["1: right.", "1: not yet. count"]
    assert key.grade("two", ["b", "a"]).verdict == "right"
    for version, kept in (
        ("student", [1, 2, 4, 5, 9, 12]),
        ("teacher", [1, 2, 4, 5, 7, 8, 9, 11, 12]),
    ):
        folder = tmp_path / to / version
        text = (folder / "bids.ipynb").read_text()
        assert "Ümläut" in text
        assert text.startswith('{\n "cells": [\n')
        assert text.endswith("}\n")
        made = json.loads(text)
        assert made["metadata"] == {"kernel": "python"}
        expected = [{**cells[place], "source": "".join(cells[place]["source"])} for place in kept]
        if version == "student":
            expected[3] = cell("share = ...\ngrade_answer(1, share)")
        assert made["cells"] == expected
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        answers = {"answers.json"} if version == "teacher" else set()
        assert files == {"bids.ipynb", "bids.key", "data/x.csv", "half/answers.json", *answers}
        assert (folder / "bids.key").read_text() == key.model_dump_json()
    answers_text = (folder / "answers.json").read_text()
    assert json.loads(answers_text) == {"1": 3, "two": ["a", "b"]}
    with pytest.raises(ConfigError, match="give another one: --to out"):
        make_lesson(folder / "bids.ipynb", tmp_path / to)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("x = y == 2  # SOLUTION", "x = ..."),
        ("    a, b['c'] = 1, 2  # SOLUTION", "    a, b['c'] = ..."),
        ("  y == 2  # SOLUTION", "  ..."),
        ("  print(1)  # SOLUTION", "  ..."),
        ("x = 1  # SOLUTIONS", "x = 1  # SOLUTIONS"),
        ("# BEGIN SOLUTION\nx", "# BEGIN SOLUTION has no # END SOLUTION in:\n# BEGIN SOLUTION\nx"),
        ("x\n# END SOLUTION", "# END SOLUTION stands without # BEGIN SOLUTION in:\nx\n# END SOL"),
        (
            "# BEGIN SOLUTION NO PROMPT\n# BEGIN SOLUTION\n1\n# END SOLUTION\n2",
            "2",
        ),
    ],
)
def test_a_line_that_is_a_solution_leaves_its_target_and_blocks_must_end(
    code: str, kept: str
) -> None:
    if " in:\n" in kept:
        with pytest.raises(ConfigError, match=re.escape(kept)):
            without_solutions(code)
    else:
        assert without_solutions(code) == kept


def test_tests_of_otter_are_refused(tmp_path: Path) -> None:
    write_notebook(tmp_path / "bids.ipynb", cell("x"), cell("# BEGIN TESTS", "raw"))
    with pytest.raises(ConfigError, match="cell 2: tests of Otter are not run here; call grade_an"):
        make_lesson(tmp_path / "bids.ipynb", tmp_path / "out")
