"""A lesson's notebook, from one source: a student's version, a teacher's, and the key.

What leaves the student's version is marked as in Otter Assign: lines that end in ``# SOLUTION``,
``# SOLUTION NO PROMPT`` or ``# SEED``, lines between ``# BEGIN SOLUTION`` and ``# END SOLUTION``,
texts after ``# BEGIN PROMPT``, Markdown cells that begin with **SOLUTION**, and raw cells that
begin a question. Its tests are none of Otter's: a cell calls ``grade_answer``. Besides, a cell
with the tag ``teacher`` is in the teacher's version alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmsim_lab._util.config import yaml_value
from llmsim_lab._util.files import as_path, bounded_bytes, make_folder, temporary_folder, write_file
from llmsim_lab._util.results import Results
from llmsim_lab._util.text import whole, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons.answers import AnswerKey, LessonQuestion, key_of
from llmsim_lab.lessons.limits import HandInFault, LimitedProcess, ProcessLimits

# Otter's, as its documentation has them under "Otter Assign", "Notebook Format". An assignment's
# settings are of its own grader, and leave both versions there too.
_MARK = re.compile(
    r"# ((BEGIN|END) (QUESTION|SOLUTION|PROMPT)|ASSIGNMENT CONFIG)\s*$", re.MULTILINE
)
_OTHER_TESTS = re.compile(r"# BEGIN TESTS")
_WRITTEN = re.compile(r"\s*(\*\*|<strong>)solution:?(\*\*|</strong>)", re.IGNORECASE)
_ASSIGNED = re.compile(r"(?P<target>\s*[\w, .\[\]'\"]+=)(?!=)")
_TEACHER = ProcessLimits(
    cpu_s=300,
    wall_s=1_200,
    memory_mb=4_096,
)
"""Of the teacher's own notebook, which is trusted."""
_ANSWERS = "answers.json"
_MOST_BYTES = 10**7
"""Of a notebook: a plot in its outputs takes some 50 kB."""

Cell = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookResult:
    """What came of running a notebook.

    Attributes:
        cells: how many code cells ended well.
        fault: which cell failed first and why; empty if all ended well.
        answers: what ``grade_answer`` was given last, by question.
    """

    cells: int
    fault: str
    answers: Mapping[str, Any]


def cells_of(notebook: Path, shown_as: str = "") -> list[Cell]:
    """Return a notebook's cells, each source as one text.

    Args:
        notebook: the file.
        shown_as: what a message calls it; its path if empty.

    Raises:
        ConfigError: it is no notebook.
    """
    name = shown_as or str(notebook)
    content = _content_of(notebook, name)
    try:
        cells = []
        for cell in content["cells"]:
            # A source is a text or its lines: nbformat allows both.
            parts = {
                "cell_type": cell["cell_type"],
                "metadata": dict(cell.get("metadata", {})),
                # No file can hold half characters, nor code that is run.
                "source": whole_text("".join(cell["source"])),
            }
            cells.append({**cell, **parts})
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _not_a_notebook(name) from error
    return cells


def _not_a_notebook(name: str) -> ConfigError:
    return ConfigError(
        f"{name} is not a notebook: it has no list of cells; save it anew in Jupyter"
    )


def _content_of(notebook: Path, name: str) -> Any:
    """Return what a notebook's file holds."""
    if not notebook.exists():
        raise ConfigError(f"there is no file {name}")
    if notebook.is_dir():
        raise ConfigError(
            f"{name} is a folder; name the notebook in it: {Path(name) / 'lesson.ipynb'}"
        )
    try:
        content = bounded_bytes(notebook, _MOST_BYTES)
        return json.loads(content.decode())
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{name} is not a notebook, or only a part of one: it breaks off or is broken in line "
            f"{error.lineno}; save it anew in Jupyter"
        ) from error
    except (ValueError, RecursionError) as error:
        raise _not_a_notebook(name) from error


def run_notebook(
    process: LimitedProcess, notebook: Path, *, recording: bool = False
) -> NotebookResult:
    """Run a notebook's cells one by one, also those after one that fails.

    Args:
        process: runs them, in the notebook's folder.
        notebook: the file.
        recording: whether its answers become a key.
    """
    answers: dict[str, Any] = {}
    finished = 0
    fault = ""
    try:
        # "it": who reads of a hand-in does not know the copy that runs.
        cells = cells_of(notebook, "it")
        process.ask("answers", recording=recording)
    except (ConfigError, HandInFault) as error:
        return NotebookResult(
            cells=0,
            fault=str(error),
            answers=answers,
        )
    for number, cell in enumerate(cells, 1):
        is_code = cell["cell_type"] == "code"
        if not is_code or not cell["source"].strip():
            continue
        try:
            _run_cell(process, cell)
            finished += 1
        except HandInFault as error:
            # The first: those after it may only follow from it.
            fault = fault or f"cell {number}: {error}"
        # As in Otter, a cell that fails does not cost the answers of those after it.
        if not process.alive:
            break
        try:
            answers |= _answers_in(process.ask("answers", recording=recording))
        except HandInFault as error:
            fault = fault or f"cell {number}: {error}"
    return NotebookResult(
        cells=finished,
        fault=fault,
        answers=answers,
    )


def _answers_in(pairs: object) -> dict[str, Any]:
    """Return answers by question; what a hand-in's process says is not to be trusted.

    Raises:
        HandInFault: they are not what ``grade_answer`` was given.
    """
    answers: dict[str, Any] = {}
    if not isinstance(pairs, list):
        raise HandInFault("it gave its answers without grade_answer")
    for pair in pairs:
        is_pair = isinstance(pair, list) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], str):
            raise HandInFault("it gave its answers without grade_answer")
        answers[pair[0]] = pair[1]
    return answers


def _run_cell(process: LimitedProcess, cell: Cell) -> None:
    try:
        process.ask("cell", source=cell["source"])
    except HandInFault:
        # As in nbclient: such a cell shows an error on purpose.
        if "raises-exception" not in _tags_of(cell) or not process.alive:
            raise


def _tags_of(cell: Cell) -> list[object]:
    tags = cell["metadata"].get("tags")
    return tags if isinstance(tags, list) else []


# --- from one source ------------------------------------------------------------------------------


def make_lesson(source: str | Path, folder: str | Path) -> AnswerKey:
    """Make a student's and a teacher's version of a lesson, and its key; return the key.

    ``folder/student`` gets the notebook without solutions and the key, ``folder/teacher`` the
    notebook with solutions, the key, and the answers as JSON. What lies beside the source, such as
    tapes and worlds, is copied to both; other notebooks, keys and lessons made before are not.

    Args:
        source: the notebook. It is run: what it gives ``grade_answer`` is right.
        folder: made if it is not there.

    Raises:
        ConfigError: it fails, or a question is not complete.
    """
    source = as_path("source", source)
    folder = as_path("folder", folder)
    versions = {version: folder / version for version in ("student", "teacher")}
    targets = [os.path.realpath(target) for target in versions.values()]
    if os.path.realpath(source.parent) in targets:
        raise ConfigError(
            f"{source} is in a folder that the lesson would be written to; give another one: "
            "--to out"
        )
    results = Results(
        folder=folder,
        kind="lesson",
        source=source,
        option="--to",
    )
    results.check(*versions)
    cells = cells_of(source)
    questions: dict[str, LessonQuestion] = {}
    for question in _questions(source, cells):
        if question.name in questions:
            raise ConfigError(f"{source} has two questions called {question.name}; rename one")
        questions[question.name] = question
    # Of a copy: what the notebook writes, such as tapes, is not to be handed out.
    with temporary_folder() as temporary:
        copy = temporary / "lesson"
        _copy(source.parent, copy, _left_out(folder))
        with LimitedProcess(copy, _TEACHER) as process:
            result = run_notebook(
                process,
                copy / source.name,
                recording=True,
            )
    if result.fault:
        raise ConfigError(
            f"{source} does not run, so that nothing is known to be right: {result.fault}"
        )
    for name, answer in result.answers.items():
        question = questions.get(name) or LessonQuestion(name=name)
        # What the YAML says counts more than what the notebook happens to give.
        if question.answer is None:
            question = question.model_copy(update={"answer": answer})
        questions[name] = question
    if not questions:
        raise ConfigError(
            f"{source} has no question: call grade_answer(1, value) in a code cell with what is "
            "right"
        )
    student_cells = list(_without_solutions(cells))
    # A call within a solution leaves with it, and then nobody can answer.
    if not any("grade_answer(" in cell["source"] for cell in student_cells):
        raise ConfigError(
            f"{source} has no grade_answer left in the student's version: take the call out of "
            "the lines that are marked as solutions"
        )
    # Before anything is written: a question without an answer is an error.
    key = key_of(questions.values())
    answers = {name: question.answer for name, question in questions.items()}
    results.note(*versions)
    for version, target in versions.items():
        # First, since it says that the folder is a lesson's, also if what follows is cut off; and
        # beside the notebook, where grade_answer looks for the only file of this kind.
        _write(target / f"{source.stem}.key", key.model_dump_json())
        _copy(source.parent, target, _left_out(folder, "*.ipynb", "*.key"))
        version_cells = [cell for cell in cells if not _is_mark(cell)]
        if version == "student":
            version_cells = student_cells
        # The rest of the file, such as its kernel, stays as the teacher has it.
        content = _content_of(source, str(source))
        content["cells"] = version_cells
        notebook = json.dumps(
            whole(content),
            indent=1,
            ensure_ascii=False,
        )
        _write(target / source.name, notebook + "\n")
    answers_text = json.dumps(answers, indent=1)
    _write(versions["teacher"] / _ANSWERS, answers_text)
    return key


def _write(path: Path, text: str) -> None:
    make_folder(path.parent)
    write_file(path, text.encode())


def _copy(
    folder: Path,
    target: Path,
    ignored: Callable[[str, list[str]], set[str]],
) -> None:
    try:
        shutil.copytree(
            folder,
            target,
            ignore=ignored,
            dirs_exist_ok=True,
        )
    except OSError as error:
        # A link that leads nowhere, a pipe, a file that may not be read.
        reason = error
        if isinstance(error, shutil.Error):
            # It lists each file that could not be copied, with where to and why.
            (_, _, reason), *_ = error.args[0]
        raise ConfigError(
            f"what lies beside the lesson in {folder} cannot be copied: {reason}; put the lesson "
            "into a folder of its own, or make room on the disk"
        ) from error


def _left_out(folder: Path, *patterns: str) -> Callable[[str, list[str]], set[str]]:
    """Return what of a lesson's folder is not copied: hidden files, and lessons made of it."""
    by_name = shutil.ignore_patterns(".*", "__pycache__", *patterns)
    # The command's own "--to out" lies in the folder that is copied: without this it would be
    # copied into itself, and the answers of the last time into the student's version.
    made = {os.path.realpath(folder / version) for version in ("student", "teacher")}

    def ignored(
        place: str,
        names: list[str],
    ) -> set[str]:
        has_key = any(name.endswith(".key") for name in names)
        if _ANSWERS in names and has_key:
            return set(names)  # the teacher's version, made in another folder
        return by_name(place, names) | {
            name for name in names if os.path.realpath(Path(place, name)) in made
        }

    return ignored


def _is_mark(cell: Cell) -> bool:
    return cell["cell_type"] == "raw" and bool(_MARK.match(cell["source"]))


def _questions(
    source: Path,
    cells: list[Cell],
) -> Iterator[LessonQuestion]:
    for number, cell in enumerate(cells, 1):
        text = cell["source"]
        if cell["cell_type"] == "raw" and _OTHER_TESTS.match(text):
            raise ConfigError(
                f"{source}, cell {number}: tests of Otter are not run here; call "
                "grade_answer(1, value) in a code cell"
            )
        if _is_mark(cell) and text.startswith("# BEGIN QUESTION"):
            try:
                values = yaml_value(text)
            except ValueError as error:
                raise ConfigError(f"{source}, cell {number}: {error}") from error
            if not isinstance(values, dict) or "name" not in values:
                raise ConfigError(
                    f"{source}, cell {number}: a question has a name: '# BEGIN QUESTION', and on "
                    "the next line 'name: 1'"
                )
            # YAML has other keys than texts, and most names of questions are numbers.
            settings = {str(setting): value for setting, value in values.items()}
            settings["name"] = str(values["name"])
            try:
                question = LessonQuestion(**settings)
            except ConfigError as error:
                raise ConfigError(f"{source}, cell {number}: {error}") from error
            yield question


def _without_solutions(cells: list[Cell]) -> Iterator[Cell]:
    """Yield the cells of the student's version, without outputs."""
    for cell in cells:
        is_text = cell["cell_type"] == "markdown"
        is_solution = is_text and _WRITTEN.match(cell["source"])
        if _is_mark(cell) or is_solution or "teacher" in _tags_of(cell):
            continue
        if cell["cell_type"] == "code":
            text = without_solutions(cell["source"])
            yield {
                **cell,
                "source": text,
                "outputs": [],
                "execution_count": None,
            }
        else:
            yield cell


def without_solutions(code: str) -> str:
    """Return a cell's code as students get it.

    Raises:
        ConfigError: a solution begins and does not end, or the other way round.
    """
    lines: list[str] = []
    inside = ""
    for line in code.splitlines():
        text = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        if inside == "SOLUTION" and text != "# END SOLUTION":
            continue
        if text in ("# BEGIN SOLUTION", "# BEGIN SOLUTION NO PROMPT"):
            inside = "SOLUTION"
            # One "..." for the whole block, as Otter has it; code stays valid within a function.
            if not text.endswith("NO PROMPT"):
                lines.append(f"{indent}...")
        elif text == "# END SOLUTION":
            if not inside:
                raise ConfigError(f"# END SOLUTION stands without # BEGIN SOLUTION in:\n{code}")
            inside = ""
        elif text.endswith(("# SOLUTION NO PROMPT", "# SEED", "# BEGIN PROMPT", "# END PROMPT")):
            continue
        elif text.endswith("# SOLUTION"):
            # "share = ..." still has a value, so that the cell runs before it is answered.
            assigned = _ASSIGNED.match(line)
            kept = f"{assigned['target']} " if assigned else indent
            lines.append(f"{kept}...")
        else:
            lines.append(line)
    if inside:
        raise ConfigError(f"# BEGIN SOLUTION has no # END SOLUTION in:\n{code}")
    return "\n".join(lines)
